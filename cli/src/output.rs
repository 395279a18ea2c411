//! A worker's output. A separate thread writes it, so that no job waits for a reader.

use std::io::{Result, Write};
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::visible;

/// The size of the buffer in bytes.
const CAPACITY: usize = 8 << 20;
/// How many bytes are written at once: a pipe has room for them once that many were read.
const PIECE: usize = 4 << 10;
/// How long the program waits at its end for a reader to take a piece.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// A stream with a buffer and a thread. Output that finds no room, or cannot be written, is dropped
/// and counted.
#[derive(Clone)]
pub(crate) struct Output(Arc<Buffer>);

struct Buffer {
    name: &'static str,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// How many bytes the thread has taken but not written yet.
    writing: usize,
    /// Whether the thread has taken bytes, and may have to report dropped ones.
    is_busy: bool,
    /// How many pieces were written.
    pieces: usize,
    /// How many bytes were dropped since the last report.
    dropped: usize,
}

impl State {
    fn is_left(&self) -> bool {
        self.is_busy || !self.waiting.is_empty()
    }
}

impl Output {
    pub(crate) fn new(name: &'static str, to: impl Write + Send + 'static) -> Self {
        let (state, changed) = Default::default();
        let output = Self(Arc::new(Buffer { name, state, changed }));
        let written = output.clone();
        thread::spawn(move || written.pass_on(to));
        output
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_all();
    }

    pub(crate) fn say(&self, bytes: &[u8]) {
        self.change(|state| {
            if state.writing + state.waiting.len() + bytes.len() <= CAPACITY {
                state.waiting.extend_from_slice(bytes);
            } else {
                state.dropped += bytes.len();
            }
        });
    }

    fn pass_on(&self, mut to: impl Write) {
        loop {
            let is_empty = |state: &mut State| state.waiting.is_empty();
            let state = self.0.changed.wait_while(self.state(), is_empty);
            let mut state = state.expect("no panic");
            let bytes = take(&mut state.waiting);
            (state.writing, state.is_busy) = (bytes.len(), true);
            drop(state);
            let mut is_written = false;
            for piece in bytes.chunks(PIECE) {
                is_written = to.write_all(piece).is_ok();
                self.change(|state| {
                    state.writing -= piece.len();
                    // Jobs continue without a reader, or on a full disk.
                    match is_written {
                        true => state.pieces += 1,
                        false => state.dropped += piece.len(),
                    }
                });
            }
            // It may be stderr itself that cannot be written.
            if is_written {
                let dropped = take(&mut self.state().dropped);
                self.warn(dropped);
            }
            self.change(|state| state.is_busy = false);
        }
    }

    fn warn(&self, dropped: usize) {
        if dropped > 0 {
            let name = self.0.name;
            tracing::warn!(bytes = dropped, "dropped output: {name} was not read in time");
        }
    }

    /// Waits until everything is written, as long as a reader takes some.
    pub(crate) fn finish(&self, patience: Duration) {
        let mut state = self.state();
        let mut pieces = usize::MAX;
        while state.is_left() && state.pieces != pieces {
            pieces = state.pieces;
            let is_held = |state: &mut State| state.is_left() && state.pieces == pieces;
            let changed = &self.0.changed;
            let waited = changed.wait_timeout_while(state, patience, is_held);
            state = waited.expect("no panic").0;
        }
        let lost = take(&mut state.dropped) + state.writing + state.waiting.len();
        drop(state);
        self.warn(lost);
    }
}

/// Takes whole lines of the log, and escapes the line ends and controls within them.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = visible::line(text.strip_suffix('\n').unwrap_or(&text));
        self.say(format!("{line}\n").as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::thread::{park, sleep};

    use super::*;

    /// What is done with each piece.
    struct Each<F>(F);

    fn each<F: FnMut(&[u8]) -> Result<()>>(done: F) -> Each<F> {
        Each(done)
    }

    impl<F: FnMut(&[u8]) -> Result<()>> Write for Each<F> {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            (self.0)(bytes)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_end_waits_for_a_slow_reader() {
        let read = Arc::new(Mutex::new(0_usize));
        let reads = read.clone();
        let output = Output::new(
            "slow",
            each(move |piece| {
                sleep(Duration::from_secs(1));
                *reads.lock().unwrap() += piece.len();
                Ok(())
            }),
        );
        output.say(&[0; 8 * PIECE]);
        output.finish(Duration::from_secs(5));
        assert_eq!(*read.lock().unwrap(), 8 * PIECE);
    }

    #[test]
    fn what_is_lost_is_counted_before_the_end() {
        let log = Arc::new(Mutex::new(String::new()));
        let logs = log.clone();
        let logger = tracing_subscriber::fmt().with_writer(move || {
            let logs = logs.clone();
            each(move |line| {
                sleep(Duration::from_secs(1));
                *logs.lock().unwrap() += &String::from_utf8_lossy(line);
                Ok(())
            })
        });
        logger.with_ansi(false).init();
        let counted = |name: &str, bytes: usize| {
            let wanted = format!("dropped output: {name} was not read in time bytes={bytes}\n");
            let log = log.lock().unwrap();
            assert!(log.contains(&wanted), "{wanted} is not in {log}");
        };
        let full = Output::new("full", each(|_| Ok(())));
        full.say(&[0; CAPACITY + 1]);
        full.say(&[0]);
        full.finish(Duration::MAX);
        counted("full", CAPACITY + 1);
        let closed = Output::new("closed", each(|_| Err(Error::other("closed"))));
        closed.say(&[0; 2 * PIECE]);
        closed.finish(Duration::MAX);
        counted("closed", 2 * PIECE);
        let unread = Output::new(
            "unread",
            each(|_| {
                loop {
                    park()
                }
            }),
        );
        unread.say(&[0; 2 * PIECE]);
        unread.finish(Duration::ZERO);
        counted("unread", 2 * PIECE);
    }
}
