//! Work on a large value asks now and then whether to continue.

use std::sync::OnceLock;

static ASKED: OnceLock<fn()> = OnceLock::new();

/// So many bytes or characters are dealt with between two questions: less than a millisecond.
pub(crate) const CHUNK: usize = 1 << 16;

/// Says once what is asked. It returns if the work continues, and otherwise unwinds.
pub fn ask(asked: fn()) {
    let _ = ASKED.set(asked);
}

/// Asks. Without a question, all work continues to its end.
pub(crate) fn check() {
    if let Some(asked) = ASKED.get() {
        asked();
    }
}

/// The characters of a text, asking on the way.
pub(crate) fn chars(text: &str) -> impl Iterator<Item = char> + Clone {
    let mut left = CHUNK;
    text.chars().inspect(move |_| {
        left -= 1;
        if left == 0 {
            left = CHUNK;
            check();
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::catch_unwind;

    use super::*;
    use crate::canonical::Writer;
    use crate::key::Key;
    use crate::paths::Paths;

    thread_local! {
        /// How often was asked, and whether the next answer is no.
        static STATE: Cell<(usize, bool)> = const { Cell::new((0, false)) };
    }

    fn count() {
        let (asked, ends) = STATE.get();
        STATE.set((asked + 1, ends));
        assert!(!ends, "it is to end");
    }

    /// How often some work asks; it ends where the answer is no.
    fn asks(work: impl Fn() + std::panic::RefUnwindSafe) -> usize {
        ask(count);
        STATE.set((0, false));
        work();
        let (asked, _) = STATE.get();
        if asked > 0 {
            STATE.set((0, true));
            assert!(catch_unwind(&work).is_err());
            assert_eq!(STATE.get().0, 1, "it has ended at once");
            STATE.set((0, false));
        }
        asked
    }

    /// An object with so many members, the last first.
    fn object(members: u32) -> String {
        let mut out = Writer::new();
        out.begin_object();
        for n in (0..members).rev() {
            out.name(&format!("{n:08}"));
            out.null();
        }
        out.end_object().unwrap();
        out.finish()
    }

    #[test]
    fn long_work_asks_often() {
        const LONG: usize = 20 * CHUNK;
        let string = |text: &str| Writer::new().string(text);
        let ascii = "x".repeat(LONG);
        assert!(asks(|| string(&ascii)) >= 20);
        let composed = "\u{e9}".repeat(LONG);
        assert!(asks(|| string(&composed)) >= 40, "looked at and written");
        let decomposed = "e\u{301}".repeat(LONG);
        assert!(asks(|| string(&decomposed)) >= 60, "and composed");
        assert!(asks(|| _ = Key::of(&ascii)) >= 19);
        assert!(asks(|| drop(object(10_000))) >= 20_000);
        let paths: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        assert!(asks(|| drop(Paths::parse(&paths, "by_args"))) >= 1000);
    }

    #[test]
    fn short_work_does_not() {
        assert_eq!(asks(|| Writer::new().string("short, caf\u{e9}")), 0);
        assert_eq!(asks(|| _ = Key::of("{}")), 0);
    }
}
