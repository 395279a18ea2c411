//! What a value lacks of what makes its job unique, in words that help: a second walk, made only
//! where the first one has found nothing.

use serde::de::IgnoredAny;

use super::{Event, Events, skip_rest_of_array};
use crate::Invalid;
use crate::error::{nearest, quoted};
use crate::paths::{self, Paths};
use crate::policy::Part;

/// No more paths are named in a message.
const NAMED: usize = 3;
/// No more names are compared for a hint: there may be millions.
const COMPARED: usize = 10_000;

/// The refusal of a value that lacks what `part` asks for. `what` is its name: args or meta.
///
/// # Panics
///
/// If the events are not those of one whole JSON value.
pub(crate) fn refused(what: &str, part: &Part, value: &mut impl Events) -> Invalid {
    let (wanted, all) = match part {
        Part::Members(members) => (members, true),
        Part::Paths(paths) | Part::Optional(paths) => (paths, false),
        Part::None | Part::All => unreachable!("they ask for no paths"),
    };
    let found = Found::of(value, wanted, all);
    let mut lacking: Vec<Vec<String>> = wanted
        .to_list()
        .iter()
        .map(|path| paths::split(path, what).expect("it was read before"))
        .filter(|names| !found.has(wanted, names))
        .collect();
    // As they were given.
    lacking.sort_by_key(|names| wanted.along(names).last());
    if all {
        lacking.truncate(1);
    }
    let named: Vec<_> = lacking.iter().take(NAMED).map(|path| quoted_path(path)).collect();
    let (message, detail) = if all {
        (
            format!("member {} is missing from {what}", named[0]),
            format!("All members that make the job unique must exist in {what}."),
        )
    } else {
        let more = if lacking.len() > NAMED { ", .." } else { "" };
        let (paths, match_nothing) = match lacking.len() {
            1 => ("path", "matches nothing"),
            _ => ("paths", "match nothing"),
        };
        (
            format!("by_{what} {paths} {}{more} {match_nothing} in {what}", named.join(", ")),
            format!("At least one path must exist in {what}."),
        )
    };
    let invalid = Invalid::new(what, message, detail);
    let hint = lacking.iter().find_map(|names| found.hint(what, wanted, names));
    match hint {
        Some(hint) => invalid.hint(hint),
        None => invalid,
    }
}

fn quoted_path(names: &[String]) -> String {
    quoted(&paths::join(names))
}

/// What a walk has met of a node of the paths.
#[derive(Clone, Default)]
struct Met {
    /// It is there.
    is_there: bool,
    /// It is a string that holds an object.
    is_encoded: bool,
    /// It is not there, but a member of nearly the same name is.
    near: Option<String>,
}

/// What a walk has met.
struct Found {
    /// Of each node of the paths.
    nodes: Vec<Met>,
    /// How many names were compared.
    compared: usize,
}

impl Found {
    fn of(value: &mut impl Events, wanted: &Paths, members: bool) -> Found {
        let mut found = Found { nodes: vec![Met::default(); wanted.nodes()], compared: 0 };
        let is_object = match value.next() {
            Event::BeginObject => true,
            Event::BeginArray if members => value.next() == Event::BeginObject,
            Event::String(text) => {
                found.nodes[Paths::ROOT].is_encoded = holds_object(&text);
                false
            }
            _ => false,
        };
        if is_object {
            found.look_into_object(value, wanted);
        }
        found
    }

    /// Looks for the paths in the object whose beginning was the last event.
    fn look_into_object(&mut self, value: &mut impl Events, wanted: &Paths) {
        let mut inside = vec![Paths::ROOT];
        while let Some(&node) = inside.last() {
            let child = match value.next() {
                Event::Name(name) => {
                    let child = wanted.child(node, &name);
                    if child.is_none() {
                        self.compare(wanted, node, &name);
                    }
                    child
                }
                Event::EndObject => {
                    inside.pop();
                    continue;
                }
                _ => panic!("something else in the place of a name"),
            };
            let Some(child) = child.filter(|child| !wanted.is_whole(*child)) else {
                if let Some(child) = child {
                    self.nodes[child].is_there = true;
                }
                value.skip_value();
                continue;
            };
            self.nodes[child].is_there = true;
            match value.next() {
                Event::BeginObject => inside.push(child),
                Event::BeginArray => skip_rest_of_array(value),
                Event::String(text) => self.nodes[child].is_encoded = holds_object(&text),
                _ => {}
            }
        }
    }

    /// Whether this name is nearer to what is looked for in an object than those before.
    fn compare(&mut self, wanted: &Paths, node: usize, name: &str) {
        for child in wanted.children(node) {
            self.compared += 1;
            if self.compared > COMPARED {
                return;
            }
            let near = &mut self.nodes[child].near;
            let candidates = [near.as_deref().unwrap_or(name), name];
            *near = nearest(wanted.name(child), &candidates).map(str::to_string);
        }
    }

    /// Whether a path is there.
    fn has(&self, wanted: &Paths, path: &[String]) -> bool {
        let mut nodes = wanted.along(path);
        nodes.all(|node| self.nodes[node].is_there)
    }

    /// What may have been meant by a path that is not there.
    fn hint(&self, what: &str, wanted: &Paths, path: &[String]) -> Option<String> {
        let mut parent = Paths::ROOT;
        for (depth, node) in wanted.along(path).enumerate() {
            if self.nodes[parent].is_encoded {
                let value = match depth {
                    0 => what.to_string(),
                    _ => quoted_path(&path[..depth]),
                };
                return Some(format!(
                    "{value} is a JSON string that contains an object. Pass the object itself."
                ));
            }
            let met = &self.nodes[node];
            if !met.is_there {
                let mut names = path.to_vec();
                names[depth] = met.near.clone()?;
                return Some(format!("Did you mean {}?", quoted_path(&names)));
            }
            parent = node;
        }
        None
    }
}

/// Whether a text is the JSON of an object.
fn holds_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}
