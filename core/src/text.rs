//! Strings of names and canonical JSON: Unicode normal form C, and the escapes of RFC 8785, section
//! 3.2.2.2.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::interrupt;

/// The string in Unicode normal form C, the same one if it is already.
pub fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(interrupt::chars(text)) == IsNormalized::Yes {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(interrupt::chars(text).nfc().collect())
    }
}

/// Appends a string as a JSON string: only what must be escaped is, and in its shortest form.
pub(crate) fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if at % interrupt::CHUNK == interrupt::CHUNK - 1 {
            interrupt::check();
        }
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        // All that is escaped is ASCII, so both ends of the slice are between characters.
        out.push_str(&text[copied..at]);
        copied = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            control => write!(out, "\\u{control:04x}").expect("a String takes everything"),
        }
    }
    out.push_str(&text[copied..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut out = String::new();
        push_quoted(&mut out, text);
        out
    }

    #[test]
    fn escapes_are_those_of_rfc_8785() {
        assert_eq!(quoted(""), r#""""#);
        assert_eq!(quoted("plain /\u{7f}\u{2028}€😀"), "\"plain /\u{7f}\u{2028}€😀\"");
        assert_eq!(quoted("\u{8}\t\n\u{c}\r\"\\"), r#""\b\t\n\f\r\"\\""#);
        assert_eq!(quoted("\0a\u{b}€\u{1f}"), r#""\u0000a\u000b€\u001f""#);
    }

    #[test]
    fn normal_form_c() {
        assert!(matches!(nfc("ascii"), Cow::Borrowed("ascii")));
        assert!(matches!(nfc("caf\u{e9}"), Cow::Borrowed("caf\u{e9}")));
        assert_eq!(nfc("cafe\u{301}"), "caf\u{e9}");
        // Excluded from composition: the normal form is the longer one.
        assert_eq!(nfc("\u{fb33}"), "\u{5d3}\u{5bc}");
        // The Kelvin sign is a plain K.
        assert_eq!(nfc("\u{212a}"), "K");
    }
}
