//! Reading an object of options, field by field.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::Invalid;
use crate::error::{quoted, shown};
use crate::interval::{self, Interval, ReadInterval};
use crate::json;

/// The outermost object; its fields are named without it.
pub(crate) const ROOT: &str = "unique_opts";

/// The fields of which false means something else than leaving them out.
const FALSE_SAYS_SOMETHING: [&str; 2] = ["wait", "jitter"];

/// The fields that are given in an object: those that are null or false, where that says nothing,
/// are not seen.
pub(crate) struct Given<'a> {
    /// The object's name in messages.
    name: &'static str,
    object: &'a Map<String, Value>,
}

impl<'a> Given<'a> {
    /// The fields of an object, which are all among the `known` ones. `noun` is what they are.
    pub fn new(
        name: &'static str,
        noun: &str,
        object: &'a Map<String, Value>,
        known: &[&str],
    ) -> Result<Self, Invalid> {
        match object.keys().find(|field| !known.contains(&field.as_str())) {
            None => Ok(Self { name, object }),
            Some(unknown) => Err(Invalid::unknown(name, noun, unknown, known)),
        }
    }

    /// [`Given::new`] of a value that is to be an object of fields, as `rule` says.
    pub fn of(
        name: &'static str,
        value: &'a Value,
        known: &[&str],
        rule: &str,
    ) -> Result<Self, Invalid> {
        let Value::Object(object) = value else {
            return Err(wrong_type(name, value, rule));
        };
        Self::new(name, "field", object, known)
    }

    /// The object's name in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A field's value, if it is given.
    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| match value {
            Value::Null => false,
            Value::Bool(false) => FALSE_SAYS_SOMETHING.contains(&field),
            _ => true,
        })
    }

    /// The first of these fields that is given.
    pub fn first_of(&self, fields: &[&'static str]) -> Option<&'static str> {
        fields.iter().copied().find(|field| self.get(field).is_some())
    }

    /// A field's name in messages: `by_args`, `oban.keys`.
    pub fn path(&self, field: &str) -> String {
        if self.name == ROOT { field.to_string() } else { format!("{}.{field}", self.name) }
    }

    /// A field that is true or left out.
    pub fn flag(&self, field: &str) -> Result<bool, Invalid> {
        Ok(self.bool(field)?.unwrap_or(false))
    }

    /// A field that is true, or false where that says something.
    pub fn bool(&self, field: &str) -> Result<Option<bool>, Invalid> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => {
                let path = self.path(field);
                Err(wrong_type(&path, other, format!("{path} must be true or false.")))
            }
        }
    }

    /// A field that is a number in a range.
    pub fn number(&self, field: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Invalid> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let path = self.path(field);
        let rule =
            format!("{path} must be a number between {} and {}.", range.start(), range.end());
        let Value::Number(number) = value else {
            return Err(wrong_type(&path, value, rule));
        };
        match number.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(Invalid::new(
                &path,
                format!("{path} {} is out of range", shown(&number.to_string())),
                rule,
            )),
        }
    }

    /// A field that is one of some words, each with what it means.
    pub fn word<T: Copy>(&self, field: &str, words: &[(&str, T)]) -> Result<Option<T>, Invalid> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let path = self.path(field);
        let rule = || format!("{path} must be {}.", alternatives(words));
        let Value::String(given) = value else {
            return Err(wrong_type(&path, value, rule()));
        };
        match meaning(given, words) {
            Some(meaning) => Ok(Some(meaning)),
            None => {
                Err(Invalid::new(&path, format!("{path} {} is not known", quoted(given)), rule())
                    .did_you_mean(given, &names(words)))
            }
        }
    }

    /// A field that is a list of such words, which may be empty. `noun` is what they are.
    pub fn words<T: Copy>(
        &self,
        field: &str,
        noun: &str,
        words: &[(&str, T)],
    ) -> Result<Option<Vec<T>>, Invalid> {
        let path = self.path(field);
        let (first, second) = (words[0].0, words[1].0);
        let rule = format!("{path} must be a list of {noun}s such as [\"{first}\", \"{second}\"].");
        let Some(list) = self.strings(field, &rule)? else {
            return Ok(None);
        };
        list.iter()
            .map(|given| {
                meaning(given, words)
                    .ok_or_else(|| Invalid::unknown(&path, noun, given, &names(words)))
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// A field that is a list of strings, which may be empty.
    pub fn strings(&self, field: &str, rule: &str) -> Result<Option<Vec<String>>, Invalid> {
        let path = self.path(field);
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(list)) => list
                .iter()
                .map(|element| match element {
                    Value::String(string) => Ok(string.clone()),
                    other => Err(Invalid::new(
                        &path,
                        format!("an element of {path} must not be {}", json::what(other)),
                        rule,
                    )),
                })
                .collect::<Result<_, _>>()
                .map(Some),
            Some(other) => Err(wrong_type(&path, other, rule)),
        }
    }

    /// Refuses those of these fields that are a list with nothing in it.
    pub fn not_empty(&self, fields: &[&str]) -> Result<(), Invalid> {
        match fields
            .iter()
            .find(|field| matches!(self.get(field), Some(Value::Array(list)) if list.is_empty()))
        {
            None => Ok(()),
            Some(field) => {
                let path = self.path(field);
                Err(Invalid::new(
                    &path,
                    format!("{path} must not be an empty list"),
                    format!("{path} must have at least one element."),
                )
                .hint(format!("Omit {path}.")))
            }
        }
    }

    /// Refuses those of these fields that are a list with something in it twice.
    pub fn not_twice(&self, fields: &[&str]) -> Result<(), Invalid> {
        for field in fields {
            let Some(Value::Array(list)) = self.get(field) else {
                continue;
            };
            let mut seen = HashSet::new();
            if let Some(again) = list.iter().find(|element| !seen.insert(*element)) {
                let path = self.path(field);
                return Err(Invalid::new(
                    &path,
                    format!("{} is listed twice in {path}", json::shown(again)),
                    format!("{path} must list each element once."),
                ));
            }
        }
        Ok(())
    }

    /// A field that is a duration, longer than nothing.
    pub fn duration(&self, field: &str, read: ReadInterval) -> Result<Option<Interval>, Invalid> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let path = self.path(field);
        let duration = interval::from_json(value, &path, read)?;
        if !duration.is_positive() {
            Err(not_positive(&path, value))
        } else if !duration.fits_a_calendar() {
            Err(Invalid::new(
                &path,
                format!("{path} {} is out of range", json::shown(value)),
                interval::PARTS_RULE,
            ))
        } else {
            Ok(Some(duration))
        }
    }

    /// Refuses a field that says something only about another one, if that is left out.
    pub fn only_with(&self, field: &str, other: &str) -> Result<(), Invalid> {
        match (self.get(field), self.get(other)) {
            (Some(_), None) => {
                let (field, other) = (self.path(field), self.path(other));
                Err(Invalid::new(
                    &field,
                    format!("{field} requires {other}"),
                    format!("{field} has no effect without {other}."),
                )
                .hint(format!("Add {other}, or omit {field}.")))
            }
            _ => Ok(()),
        }
    }
}

/// The refusal of two fields that cannot stand together.
pub(crate) fn together(one: &str, other: &str, rule: &str) -> Invalid {
    Invalid::new(one, format!("{one} and {other} cannot be combined"), rule)
        .hint(format!("Omit {one} or {other}."))
}

/// The refusal of a value of the wrong type.
pub(crate) fn wrong_type(path: &str, value: &Value, rule: impl Into<String>) -> Invalid {
    Invalid::new(path, format!("{path} must not be {}", json::what(value)), rule)
}

/// The refusal of a duration that is none.
pub(crate) fn not_positive(path: &str, value: &Value) -> Invalid {
    Invalid::new(
        path,
        format!("{path} {} is too short", json::shown(value)),
        format!("{path} must be longer than 0."),
    )
    .hint(format!("Omit {path} for none."))
}

/// The word that means this.
pub(crate) fn word_for<T: PartialEq>(meaning: T, words: &[(&'static str, T)]) -> &'static str {
    words.iter().find(|(_, other)| *other == meaning).expect("every meaning has a word").0
}

/// What a word means, if it is one of these.
pub(crate) fn meaning<T: Copy>(given: &str, words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning)
}

fn names<'w, T>(words: &[(&'w str, T)]) -> Vec<&'w str> {
    words.iter().map(|(word, _)| *word).collect()
}

/// `"a", "b" or "c"`.
fn alternatives<T>(words: &[(&str, T)]) -> String {
    let quoted: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    match quoted.as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        all => all.concat(),
    }
}
