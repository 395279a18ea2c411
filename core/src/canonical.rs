//! Canonical JSON: one text for one value, whatever the order of its members, the spelling of its
//! numbers and the Unicode form of its strings.

use std::borrow::Cow;

use crate::Invalid;
use crate::error::quoted;
use crate::paths::Paths;

pub(crate) mod absent;
mod listed;
mod number;
mod writer;

pub use listed::Listed;
pub use writer::Writer;

/// Why a value has no canonical JSON, wherever it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A number that Postgres' `numeric` could not hold.
    OutOfRange,
    /// What is no number, in the place of one.
    Malformed,
    /// The text would become too long.
    TooLong,
    /// Two members of one object that have this name in Unicode normal form C.
    SameName(String),
}

impl Flaw {
    /// The refusal of the value of this parameter. The value itself is not repeated, but the names
    /// of its members are.
    pub fn of(self, parameter: &str) -> Invalid {
        match self {
            Flaw::OutOfRange => Invalid::new(
                parameter,
                format!("a number in {parameter} is out of range"),
                format!(
                    "A number in JSON must have at most {} digits before and {} after the decimal point.",
                    number::MOST_BEFORE_POINT,
                    number::MOST_AFTER_POINT
                ),
            ),
            Flaw::Malformed => Invalid::new(
                parameter,
                format!("a number in {parameter} is malformed"),
                "A number in JSON must have decimal digits, with an optional sign, fraction and exponent.",
            ),
            Flaw::TooLong => Invalid::new(
                parameter,
                format!("the canonical JSON of {parameter} is too long"),
                format!(
                    "It must have at most {} bytes, with its numbers written out.",
                    number::LONGEST_TEXT
                ),
            ),
            Flaw::SameName(name) => Invalid::new(
                parameter,
                format!(
                    "two members of one object in {parameter} are named {} in Unicode normal form C",
                    quoted(&name)
                ),
                "A key treats names that differ only in character encoding as the same.",
            )
            .hint("Rename one of them, or leave it out."),
        }
    }
}

/// One step of a walk through a JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// An object begins: pairs of a [`Name`](Event::Name) and a value follow.
    BeginObject,
    /// The object ends.
    EndObject,
    /// An array begins: values follow.
    BeginArray,
    /// The array ends.
    EndArray,
    /// The name of a member, without quotes and escapes. Its value follows.
    Name(Cow<'a, str>),
    /// The value null.
    Null,
    /// The value true or false.
    Bool(bool),
    /// A number, spelled as in JSON or as Postgres prints a `numeric`.
    Number(Cow<'a, str>),
    /// A string, without quotes and escapes.
    String(Cow<'a, str>),
    /// The whole value has been seen.
    End,
}

/// A walk through one JSON value, so that a value is read where it lies instead of being copied
/// into a tree.
pub trait Events {
    /// The next step; [`Event::End`] after the last.
    fn next(&mut self) -> Event<'_>;

    /// Goes past the value that would come next, as a whole: called after a name that was not asked
    /// for.
    fn skip_value(&mut self);
}

/// Writes a value: the whole of it, or, with `paths`, the object of just those paths, which may
/// leave the rest of `events` unread.
///
/// A path that is absent, or that goes through something that is not an object, is left out, and so
/// is an object of which nothing is left; the outermost object is always written, even if the value
/// is none. The answer is whether any of what was asked for is there.
///
/// Takes no stack for nested values: how deep they are is the caller's data.
///
/// # Panics
///
/// If the events are not those of one whole JSON value.
pub fn write(
    events: &mut impl Events,
    paths: Option<&Paths>,
    out: &mut Writer,
) -> Result<bool, Flaw> {
    match paths {
        None => write_whole(events, out).map(|()| true),
        Some(paths) => write_paths(events, paths, out),
    }
}

fn write_whole(events: &mut impl Events, out: &mut Writer) -> Result<(), Flaw> {
    let mut depth = 0_usize;
    loop {
        match events.next() {
            Event::BeginObject => {
                out.begin_object();
                depth += 1;
            }
            Event::EndObject => {
                out.end_object()?;
                depth -= 1;
            }
            Event::BeginArray => {
                out.begin_array();
                depth += 1;
            }
            Event::EndArray => {
                out.end_array();
                depth -= 1;
            }
            Event::Name(name) => {
                out.name(&name);
                continue;
            }
            Event::Null => out.null(),
            Event::Bool(value) => out.bool(value),
            Event::Number(text) => out.number(&text)?,
            Event::String(value) => out.string(&value),
            Event::End => panic!("the events end inside a value"),
        }
        if depth == 0 {
            return Ok(());
        }
    }
}

/// Writes the object of just those members of a value or, where it is an array, of its first
/// element, which may leave the rest of `events` unread. The answer is whether all of them are
/// there.
///
/// # Panics
///
/// If the events are not those of one whole JSON value.
pub fn write_members(
    events: &mut impl Events,
    members: &Paths,
    out: &mut Writer,
) -> Result<bool, Flaw> {
    let is_object = match events.next() {
        Event::BeginObject => true,
        Event::BeginArray => events.next() == Event::BeginObject,
        _ => false,
    };
    if !is_object {
        return Ok(false);
    }
    let met = write_paths_in_object(events, members, out)?;
    Ok((1..members.nodes()).all(|member| met[member]))
}

fn write_paths(events: &mut impl Events, paths: &Paths, out: &mut Writer) -> Result<bool, Flaw> {
    if events.next() == Event::BeginObject {
        let met = write_paths_in_object(events, paths, out)?;
        Ok((1..paths.nodes()).any(|node| met[node] && paths.is_whole(node)))
    } else {
        out.begin_object();
        out.end_object()?;
        Ok(false)
    }
}

/// Writes those paths of the object whose beginning was the last event. Which nodes of the paths
/// were there.
fn write_paths_in_object(
    events: &mut impl Events,
    paths: &Paths,
    out: &mut Writer,
) -> Result<Vec<bool>, Flaw> {
    out.begin_object();
    // Each node of the paths is met once at most: a second time is a second name that is the same.
    let mut met = vec![false; paths.nodes()];
    // The objects that the walk is inside of, and how many of them are written: an object is not
    // before something in it is.
    let mut inside = vec![Paths::ROOT];
    let mut written = 1;
    while let Some(&node) = inside.last() {
        let child = match events.next() {
            Event::Name(name) => paths.child(node, &name),
            Event::EndObject => {
                inside.pop();
                if written > inside.len() {
                    out.end_object()?;
                    written -= 1;
                }
                continue;
            }
            _ => panic!("something else in the place of a name"),
        };
        let Some(child) = child else {
            events.skip_value();
            continue;
        };
        if std::mem::replace(&mut met[child], true) {
            return Err(Flaw::SameName(paths.name(child).into()));
        }
        if paths.is_whole(child) {
            for &object in &inside[written..] {
                out.name(paths.name(object));
                out.begin_object();
            }
            written = inside.len();
            out.name(paths.name(child));
            write_whole(events, out)?;
        } else {
            match events.next() {
                Event::BeginObject => inside.push(child),
                Event::BeginArray => skip_rest_of_array(events),
                _scalar => {}
            }
        }
    }
    Ok(met)
}

/// Goes past the end of the array whose beginning was the last event.
fn skip_rest_of_array(events: &mut impl Events) {
    let mut depth = 1_usize;
    while depth > 0 {
        match events.next() {
            Event::BeginArray | Event::BeginObject => depth += 1,
            Event::EndArray | Event::EndObject => depth -= 1,
            Event::End => panic!("the events end inside an array"),
            _ => {}
        }
    }
}
