//! What happens to a new job that is a duplicate.

use std::fmt;

use serde_json::{Value, json};

use crate::Invalid;
use crate::given::{Given, together, word_for, wrong_type};
use crate::state::State;

/// What happens to a new job that is a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Nothing is written; the existing job is answered with.
    Skip,
    /// The insert fails.
    Reject,
    /// The existing jobs are cancelled, and the new one is inserted.
    Replace(Replace),
    /// The existing job takes values of the new one.
    Update(Updates),
}

/// How existing jobs are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replace {
    /// Whether the new job takes over the time of one that was scheduled.
    pub except_schedule: bool,
    /// Whether the insert fails where only final jobs conflict, which cannot be replaced. Otherwise
    /// it is skipped.
    pub reject_final: bool,
}

/// Which fields an existing job takes from the new one, by the state that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updates([Fields; State::ALL.len()]);

impl Updates {
    /// These fields in every state.
    pub fn in_every_state(fields: Fields) -> Self {
        Self([fields; State::ALL.len()])
    }

    /// The fields that a job in this state takes; none: it stays as it is.
    pub fn of(&self, state: State) -> Fields {
        self.0[state as usize]
    }
}

/// A field of a job that an update can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Its args.
    Args,
    /// Its kind.
    Kind,
    /// How many times it may be tried.
    MaxAttempts,
    /// Its meta.
    Meta,
    /// Its priority.
    Priority,
    /// Its queue.
    Queue,
    /// When it is due.
    ScheduledAt,
    /// Its tags.
    Tags,
}

impl Field {
    /// The field's name in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        word_for(self, &FIELDS)
    }
}

/// A set of fields.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fields(u8);

const _: () = assert!(FIELDS.len() <= u8::BITS as usize, "a bit a field");

impl Fields {
    /// Whether the field is one of them.
    pub const fn contains(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    /// Whether there is no field in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The fields in order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        let fields = FIELDS.into_iter().map(|(_, field)| field);
        fields.filter(move |field| self.contains(*field))
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        Self(fields.into_iter().fold(0, |set, field| set | 1 << field as u8))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

const REPLACE: Replace = Replace { except_schedule: false, reject_final: false };
const REPLACE_EXCEPT_SCHEDULE: Replace = Replace { except_schedule: true, ..REPLACE };

/// The ways that are a word.
const WORDS: [(&str, OnConflict); 4] = [
    ("skip", OnConflict::Skip),
    ("reject", OnConflict::Reject),
    ("replace", OnConflict::Replace(REPLACE)),
    ("replace_except_schedule", OnConflict::Replace(REPLACE_EXCEPT_SCHEDULE)),
];

/// The ways that are a word of the Open Job Spec.
pub(super) const OJS_WORDS: [(&str, OnConflict); 4] =
    [("ignore", OnConflict::Skip), WORDS[1], WORDS[2], WORDS[3]];

/// Every field, in order.
const FIELDS: [(&str, Field); 8] = [
    ("args", Field::Args),
    ("kind", Field::Kind),
    ("max_attempts", Field::MaxAttempts),
    ("meta", Field::Meta),
    ("priority", Field::Priority),
    ("queue", Field::Queue),
    ("scheduled_at", Field::ScheduledAt),
    ("tags", Field::Tags),
];

/// Stands for every state that is not named itself.
const EVERY_STATE: &str = "*";

/// Reads `on_conflict` in the native form.
pub(super) fn parse(given: &Given) -> Result<Option<OnConflict>, Invalid> {
    const UPDATE: &str =
        "It may also be an object such as {\"update\": {\"scheduled\": [\"args\"]}}.";
    let Some(Value::Object(object)) = given.get("on_conflict") else {
        return given.word("on_conflict", &WORDS).map_err(|invalid| invalid.also(UPDATE));
    };
    match Given::new("on_conflict", "field", object, &["update"])?.get("update") {
        Some(Value::Object(by_state)) => {
            let states = State::ALL.map(|state| (state.as_str(), state));
            let names = [&State::NAMES[..], &[EVERY_STATE]].concat();
            let given = Given::new("on_conflict.update", "state", by_state, &names)?;
            updates(&given, &states, &FIELDS).map(Some)
        }
        other => Err(wrong_type(
            "on_conflict.update",
            other.unwrap_or(&Value::Null),
            "on_conflict.update must be an object with a list of fields for each state, or for \"*\", every state.",
        )),
    }
}

/// Reads an update: for each state, by its word, a list of fields, by theirs.
pub(super) fn updates(
    given: &Given,
    states: &[(&'static str, State)],
    fields: &[(&str, Field)],
) -> Result<OnConflict, Invalid> {
    let in_state = |state: &'static str| -> Result<Option<Fields>, Invalid> {
        given.not_empty(&[state])?;
        let fields = given.words(state, "field", fields)?;
        Ok(fields.map(Fields::from_iter))
    };
    let elsewhere = in_state(EVERY_STATE)?.unwrap_or_default();
    let mut updates = Updates::in_every_state(elsewhere);
    for (word, state) in states {
        updates.0[*state as usize] = in_state(word)?.unwrap_or(elsewhere);
    }
    if updates == Updates::in_every_state(Fields::default()) {
        return Err(Invalid::new(
            given.name(),
            format!("{} must not be empty", given.name()),
            format!("{} must have at least one state with a list of fields.", given.name()),
        ));
    }
    Ok(OnConflict::Update(updates))
}

/// What is asked for in the native `on_conflict` or in a dialect's own option, whose name is
/// `path`. Refused are both.
pub(super) fn either(
    native: Option<OnConflict>,
    own: Option<OnConflict>,
    path: &str,
) -> Result<Option<OnConflict>, Invalid> {
    match (native, own) {
        (Some(_), Some(_)) => {
            Err(together("on_conflict", path, "Both set what happens to a duplicate."))
        }
        (native, own) => Ok(native.or(own)),
    }
}

impl OnConflict {
    /// This way, but that a replacement of final jobs fails instead of being skipped.
    pub(super) fn rejecting_final(self) -> Self {
        match self {
            OnConflict::Replace(replace) => {
                OnConflict::Replace(Replace { reject_final: true, ..replace })
            }
            other => other,
        }
    }

    /// As [`parse`] reads it, but for [`Replace::reject_final`].
    pub(super) fn to_json(self) -> Value {
        match self {
            OnConflict::Replace(replace) => {
                let native = Replace { reject_final: false, ..replace };
                json!(word_for(OnConflict::Replace(native), &WORDS))
            }
            OnConflict::Update(updates) => json!({ "update": updates.to_json() }),
            OnConflict::Skip | OnConflict::Reject => json!(word_for(self, &WORDS)),
        }
    }
}

impl Updates {
    fn to_json(self) -> Value {
        let list = |fields: Fields| fields.iter().map(Field::as_str).collect::<Value>();
        let [first, ..] = self.0;
        if self == Updates::in_every_state(first) {
            return json!({ EVERY_STATE: list(first) });
        }
        State::ALL
            .into_iter()
            .filter(|state| !self.of(*state).is_empty())
            .map(|state| (state.as_str().to_string(), list(self.of(state))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_name() {
        assert!(FIELDS.is_sorted_by_key(|(_, field)| *field));
        assert!(FIELDS.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(Field::MaxAttempts.as_str(), "max_attempts");
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let fields = Fields::from_iter([Field::Tags, Field::Args, Field::Tags]);
        assert_eq!(fields.iter().collect::<Vec<_>>(), [Field::Args, Field::Tags]);
        assert!(!fields.is_empty() && Fields::default().is_empty());
        let all = FIELDS.map(|(_, field)| field);
        assert_eq!(Fields::from_iter(all).iter().count(), 8);
        assert_eq!(format!("{fields:?}"), "{Args, Tags}");
    }
}
