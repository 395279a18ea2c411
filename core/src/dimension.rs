//! The dimension of a queue that is spread over cells: the one value of a job's args or meta that
//! says in which cell it lives.

use serde_json::{Value, json};

use crate::Invalid;
use crate::canonical::{Events, Writer, absent, write};
use crate::given::Given;
use crate::key::Key;
use crate::paths::{self, Paths};
use crate::policy::{Part, Policy};
use crate::text::push_quoted;

/// One path of args or of meta.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// Whether it is a path of meta, not of args.
    of_meta: bool,
    /// The names that it leads through.
    names: Vec<String>,
    /// A set of this path alone.
    path: Paths,
}

impl PartialEq for Dimension {
    fn eq(&self, other: &Dimension) -> bool {
        self.of_meta == other.of_meta && self.names == other.names
    }
}

const RULE: &str =
    "by must name one path, such as {\"by_args\": [\"tenant\"]} or {\"by_meta\": [\"tenant\"]}.";

impl Dimension {
    /// Reads `{"by_args": ["tenant"]}` or `{"by_meta": ["tenant"]}`, with a single path.
    pub fn parse(by: &Value) -> Result<Dimension, Invalid> {
        let given = Given::of("by", by, &["by_args", "by_meta"], RULE)?;
        let [args, meta] = ["by_args", "by_meta"].map(|field| given.strings(field, RULE));
        let (of_meta, list) = match (args?, meta?) {
            (Some(list), None) => (false, list),
            (None, Some(list)) => (true, list),
            (Some(_), Some(_)) => return Err(not_one("names paths of args and of meta")),
            (None, None) => return Err(not_one("names no path")),
        };
        let [path] = &list[..] else {
            return Err(not_one(match list.len() {
                0 => "names no path",
                _ => "names several paths",
            }));
        };
        let name = if of_meta { "by_meta" } else { "by_args" };
        Ok(Dimension {
            of_meta,
            names: paths::split(path, name)?,
            path: Paths::parse(&list, name)?,
        })
    }

    /// The dimension as [`parse`](Self::parse) reads it.
    pub fn to_json(&self) -> Value {
        json!({ (self.field()): self.path.to_list() })
    }

    /// Whether it is a path of meta, not of args.
    pub fn is_of_meta(&self) -> bool {
        self.of_meta
    }

    fn field(&self) -> &'static str {
        if self.of_meta { "by_meta" } else { "by_args" }
    }

    fn parameter(&self) -> &'static str {
        if self.of_meta { "meta" } else { "args" }
    }

    /// The canonical text of the value that a job's args, or meta, have in this dimension. Refused
    /// if they have none; null is one. `value` is called once more to say what is not there.
    pub fn text<E: Events>(&self, value: impl Fn() -> E) -> Result<String, Invalid> {
        let mut out = Writer::new();
        let is_there = write(&mut value(), Some(&self.path), &mut out);
        if !is_there.map_err(|flaw| flaw.of(self.parameter()))? {
            let part = Part::Paths(self.path.clone());
            let mut refused = absent::refused(self.parameter(), &part, &mut value());
            refused.detail =
                "Every job of a spread queue must have the path by which it is spread.".into();
            return Err(refused);
        }
        // An object of nothing but this path.
        let mut before = String::new();
        for name in &self.names {
            before.push('{');
            push_quoted(&mut before, name);
            before.push(':');
        }
        let text = out.finish();
        Ok(text[before.len()..text.len() - self.names.len()].to_string())
    }

    /// Whether jobs with the same key under a policy have the same value in this dimension: the key
    /// contains its path, or one that leads there.
    pub fn is_part_of(&self, policy: &Policy) -> bool {
        match if self.of_meta { &policy.by_meta } else { &policy.by_args } {
            Part::None => false,
            Part::All => true,
            Part::Paths(paths) | Part::Optional(paths) | Part::Members(paths) => {
                paths.along(&self.names).any(|node| paths.is_whole(node))
            }
        }
    }

    /// The refusal of a policy that this dimension is no part of.
    pub fn missing(&self) -> Invalid {
        let list = json!(self.path.to_list());
        Invalid::new(
            "unique_opts",
            format!("unique_opts do not contain {} {list}", self.field()),
            "The queue is spread by this path, so unique keys must contain it: no key may span cells.",
        )
        .hint(format!("Add \"{}\": {list}.", self.field()))
    }
}

fn not_one(what: &str) -> Invalid {
    Invalid::new("by", format!("by {what}"), RULE)
}

/// The number by which a value is placed: the first 8 bytes of the SHA-256 of its canonical text,
/// big-endian. Of n cells it is that of number `hash % n`, from 0.
pub fn hash(text: &str) -> u64 {
    u64::from_be_bytes(*Key::of(text).0.first_chunk().expect("a key has 32 bytes"))
}
