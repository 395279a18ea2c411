//! The serialiser: canonical JSON from a sequence of calls.

use std::cmp::Ordering;
use std::mem;
use std::ops::Range;

use super::{Flaw, number};
use crate::interrupt;
use crate::text::{nfc, push_quoted};

/// Writes one JSON value as RFC 8785 (JSON Canonicalization Scheme) does, but for two things:
/// strings and names are brought into Unicode normal form C, and numbers that a double cannot hold
/// keep their own digits.
///
/// The calls follow the value's structure: a name before each value inside an object, an end for
/// each beginning. Calls that do not are a mistake in the program; they panic or write nonsense.
///
/// Members may come in any order. They are written as they come, and each object that turns out to
/// be out of order only notes how its members should stand; [`finish`](Self::finish) puts all of
/// them right in one pass. So no part of the text is moved more than once, however deep it is
/// nested.
#[derive(Debug, Default)]
pub struct Writer {
    /// The text so far, members in the order in which they came.
    text: String,
    /// The arrays and objects that have begun and not ended.
    levels: Vec<Level>,
    /// The members so far of all objects in `levels`, those of inner ones last.
    members: Vec<Member>,
    /// The names of `members`, normalised but not escaped, one after the other.
    names: String,
    /// The objects that have ended with members out of order.
    reorders: Vec<Reorder>,
    /// Where the members of those objects stand in `text`, in the right order.
    pieces: Vec<Range<usize>>,
}

#[derive(Debug)]
enum Level {
    Array {
        empty: bool,
    },
    Object {
        /// Where its members begin in [`Writer::members`].
        first: usize,
    },
}

#[derive(Debug)]
struct Member {
    /// Its name in [`Writer::names`].
    name: Range<usize>,
    /// Its name and value in [`Writer::text`], without a comma. The end is known once the next
    /// member or the end of the object comes.
    text: Range<usize>,
}

#[derive(Debug)]
struct Reorder {
    /// Where the object's opening brace stands in [`Writer::text`].
    open: usize,
    /// Where its closing brace stands.
    close: usize,
    /// Its members in [`Writer::pieces`].
    pieces: Range<usize>,
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new() -> Self {
        Self {
            // Room for what most jobs need, instead of growing to it in steps.
            text: String::with_capacity(256),
            ..Self::default()
        }
    }

    /// Begins an object; names and values follow.
    pub fn begin_object(&mut self) {
        self.begin_value();
        self.text.push('{');
        self.levels.push(Level::Object { first: self.members.len() });
    }

    /// The name of the member whose value comes next.
    pub fn name(&mut self, name: &str) {
        let Some(Level::Object { first }) = self.levels.last() else {
            panic!("a name outside an object")
        };
        if let Some(previous) = self.members[*first..].last_mut() {
            previous.text.end = self.text.len();
            self.text.push(',');
        }
        let name = nfc(name);
        let (name_start, text_start) = (self.names.len(), self.text.len());
        self.names.push_str(&name);
        push_quoted(&mut self.text, &name);
        self.text.push(':');
        self.members
            .push(Member { name: name_start..self.names.len(), text: text_start..text_start });
    }

    /// Ends the object that was begun last. Refused if two of its names are the same in Unicode
    /// normal form C.
    pub fn end_object(&mut self) -> Result<(), Flaw> {
        let Some(Level::Object { first }) = self.levels.pop() else {
            panic!("the end of an object that did not begin")
        };
        let members = &mut self.members[first..];
        if let [Member { name, text }, ..] = &*members {
            let (names_start, open) = (name.start, text.start - 1);
            let close = self.text.len();
            members[members.len() - 1].text.end = close;

            let order = |a: &Member, b: &Member| {
                interrupt::check();
                utf16_order(&self.names[a.name.clone()], &self.names[b.name.clone()])
            };
            if !members.is_sorted_by(|a, b| order(a, b).is_lt()) {
                members.sort_unstable_by(order);
                if let Some(same) =
                    members.windows(2).find(|pair| order(&pair[0], &pair[1]).is_eq())
                {
                    return Err(Flaw::SameName(self.names[same[0].name.clone()].into()));
                }
                let pieces_start = self.pieces.len();
                self.pieces.extend(members.iter().map(|member| member.text.clone()));
                self.reorders.push(Reorder {
                    open,
                    close,
                    pieces: pieces_start..self.pieces.len(),
                });
            }
            self.members.truncate(first);
            self.names.truncate(names_start);
        }
        self.text.push('}');
        Ok(())
    }

    /// Begins an array; values follow.
    pub fn begin_array(&mut self) {
        self.begin_value();
        self.text.push('[');
        self.levels.push(Level::Array { empty: true });
    }

    /// Ends the array that was begun last.
    pub fn end_array(&mut self) {
        let ended = self.levels.pop();
        assert!(
            matches!(ended, Some(Level::Array { .. })),
            "the end of an array that did not begin"
        );
        self.text.push(']');
    }

    /// Writes null.
    pub fn null(&mut self) {
        self.begin_value();
        self.text.push_str("null");
    }

    /// Writes true or false.
    pub fn bool(&mut self, value: bool) {
        self.begin_value();
        self.text.push_str(if value { "true" } else { "false" });
    }

    /// Writes a number, given as a JSON number or as Postgres prints a `numeric`. Refused if it is
    /// neither, or beyond what `numeric` can hold.
    pub fn number(&mut self, text: &str) -> Result<(), Flaw> {
        self.begin_value();
        number::push(&mut self.text, text)
    }

    /// Writes a string.
    pub fn string(&mut self, value: &str) {
        self.begin_value();
        push_quoted(&mut self.text, &nfc(value));
    }

    /// The canonical text.
    pub fn finish(mut self) -> String {
        assert!(self.levels.is_empty(), "an array or object has not ended");
        if self.reorders.is_empty() {
            return self.text;
        }
        // Inner objects ended before outer ones; they are looked for in the order in which they
        // stand in the text.
        self.reorders.sort_unstable_by_key(|reorder| reorder.open);
        let mut sorted = String::with_capacity(self.text.len());
        // What is still to be copied, next last, each with what has to be written before it.
        let mut todo = vec![("", 0..self.text.len())];
        while let Some((before, range)) = todo.pop() {
            interrupt::check();
            sorted.push_str(before);
            let next = self.reorders.partition_point(|reorder| reorder.open < range.start);
            let Some(reorder) = self.reorders.get(next).filter(|reorder| reorder.open < range.end)
            else {
                sorted.push_str(&self.text[range]);
                continue;
            };
            sorted.push_str(&self.text[range.start..=reorder.open]);
            todo.push(("", reorder.close..range.end));
            let pieces = &self.pieces[reorder.pieces.clone()];
            todo.extend(pieces[1..].iter().rev().map(|piece| (",", piece.clone())));
            todo.push(("", pieces[0].clone()));
        }
        sorted
    }

    /// The comma before an array's element. Before a member's value stands its name.
    fn begin_value(&mut self) {
        if let Some(Level::Array { empty }) = self.levels.last_mut()
            && !mem::replace(empty, false)
        {
            self.text.push(',');
        }
    }
}

/// The order of names in RFC 8785, section 3.2.3. It is not the order of UTF-8 bytes: characters
/// beyond U+FFFF are surrogates in UTF-16 and come before U+E000.
fn utf16_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object of these names, each with its position as value.
    fn object(names: &[&str]) -> Result<String, Flaw> {
        let mut out = Writer::new();
        out.begin_object();
        for (position, name) in names.iter().enumerate() {
            out.name(name);
            out.number(&position.to_string())?;
        }
        out.end_object()?;
        Ok(out.finish())
    }

    #[test]
    fn members_stand_in_order_of_utf16() {
        assert_eq!(object(&[]).unwrap(), "{}");
        assert_eq!(object(&["a", "b"]).unwrap(), r#"{"a":0,"b":1}"#);
        assert_eq!(object(&["b", "", "ab", "a"]).unwrap(), r#"{"":1,"a":3,"ab":2,"b":0}"#);
        // RFC 8785, section 3.2.3, but for the Hebrew letter, which is decomposed in normal form C.
        assert_eq!(
            object(&["\u{20ac}", "\r", "\u{fb33}", "1", "\u{1f600}", "\u{80}", "\u{f6}"]).unwrap(),
            "{\"\\r\":1,\"1\":3,\"\u{80}\":5,\"\u{f6}\":6,\"\u{5d3}\u{5bc}\":2,\"\u{20ac}\":0,\"\u{1f600}\":4}"
        );
        // As UTF-8 the other way round.
        assert_eq!(object(&["\u{ffe6}", "\u{1f600}"]).unwrap(), "{\"\u{1f600}\":1,\"\u{ffe6}\":0}");
        // Compared as names, not as they are escaped: the quote comes before the exclamation mark's
        // successors.
        assert_eq!(object(&["#", "\"", "!"]).unwrap(), r##"{"!":2,"\"":1,"#":0}"##);
    }

    #[test]
    fn inner_objects_are_sorted_inside_outer_ones() {
        let mut out = Writer::new();
        out.begin_array();
        out.begin_object();
        out.name("b");
        out.begin_object();
        for name in ["d", "c"] {
            out.name(name);
            out.begin_array();
            out.null();
            out.bool(true);
            out.end_array();
        }
        out.end_object().unwrap();
        out.name("a");
        out.begin_object();
        out.end_object().unwrap();
        out.end_object().unwrap();
        out.begin_object();
        for name in ["z", "y", "x"] {
            out.name(name);
            out.string(name);
        }
        out.end_object().unwrap();
        out.end_array();
        assert_eq!(
            out.finish(),
            r#"[{"a":{},"b":{"c":[null,true],"d":[null,true]}},{"x":"x","y":"y","z":"z"}]"#
        );
    }

    #[test]
    fn names_that_become_the_same_are_refused() {
        for names in
            [&["caf\u{e9}", "cafe\u{301}"][..], &["cafe\u{301}", "a", "caf\u{e9}"], &["a", "a"]]
        {
            let same = nfc(names[0]).into_owned();
            assert_eq!(object(names), Err(Flaw::SameName(same)));
        }
    }
}
