//! Texts of users as a terminal may have them. The program `pgjobs` has this file as well, by a
//! link: it does not depend on this crate.

use std::borrow::Cow;
use std::fmt::Write;

/// The text on one line: control characters, line ends among them, and those that change the
/// direction of writing are escapes.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The text with its line ends and tabs, and escapes for other such characters.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |one| "\n\t".contains(one))
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |one: char| is_control(one) && !is_kept(one);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            _ if !is_escaped(one) => shown.push(one),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            '\0'..='\u{ff}' => write!(shown, "\\x{:02x}", one as u32).expect("it is a String"),
            _ => write!(shown, "\\u{:04x}", one as u32).expect("it is a String"),
        }
    }
    shown.into()
}

/// C0, C1, DEL, separators of lines and paragraphs, and controls of bidirectional text.
fn is_control(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let text = "a\u{1b}[2J\u{7}\r\n\tb\u{7f}\u{9b}\u{2028}\u{202e}\u{2066}\\é\u{a0}😀";
        let rest = r"b\x7f\x9b\u2028\u202e\u2066\é";
        let end = "\u{a0}😀";
        assert_eq!(line(text), format!(r"a\x1b[2J\x07\r\n\t{rest}{end}"));
        assert_eq!(lines(text), format!("a\\x1b[2J\\x07\\r\n\t{rest}{end}"));
    }

    #[test]
    fn other_texts_are_not_copied() {
        assert!(matches!(line("déjà vu \u{5d0}"), Cow::Borrowed(_)));
        assert!(matches!(lines("a\n\tb"), Cow::Borrowed(_)));
    }
}
