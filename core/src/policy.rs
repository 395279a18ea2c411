//! The policy: what a caller asks for in `unique_opts`, in the native form.

use serde_json::{Map, Value};

use crate::Invalid;
use crate::interval::{self, ReadInterval};
use crate::json;
use crate::paths::Paths;
use crate::state::{State, States};

/// What makes a job unique, and what happens to a duplicate.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What of the args is part of the key.
    pub by_args: Args,
    /// Which members of meta are part of the key.
    pub by_meta: Option<Paths>,
    /// Whether the queue is part of the key.
    pub by_queue: bool,
    /// The period that is part of the key, in microseconds, at least a second. See
    /// [`crate::period`].
    pub by_period: Option<i64>,
    /// The states in which an existing job counts as a duplicate.
    pub by_state: States,
    /// Whether the kind is left out of the key.
    pub exclude_kind: bool,
    /// A key given by the caller, instead of args, meta, queue and period.
    pub key: Option<String>,
    /// What happens to a new job that is a duplicate.
    pub on_conflict: OnConflict,
    /// Whether to wait for another transaction that is inserting the same key.
    pub wait: bool,
}

/// What of the args is part of the key.
#[derive(Clone, Debug)]
pub enum Args {
    /// Nothing.
    None,
    /// All of them.
    All,
    /// The object of these paths.
    Paths(Paths),
}

/// What happens to a new job that is a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Nothing is written; the existing job is answered with.
    Skip,
    /// The insert fails.
    Reject,
}

/// The fields of which at least one is needed: they say what the key or a duplicate is.
const IDENTITY: [&str; 7] = [
    "by_kind",
    "by_args",
    "by_meta",
    "by_queue",
    "by_period",
    "by_state",
    "key",
];
/// The fields that only change what the others mean.
const MODIFIERS: [&str; 3] = ["exclude_kind", "on_conflict", "wait"];
/// The fields that are known but cannot be used yet.
const LATER: [&str; 7] = [
    "window",
    "window_from",
    "hold_for",
    "hold_until",
    "oban",
    "faktory",
    "ojs",
];

const ON_CONFLICT: [&str; 2] = ["skip", "reject"];
/// The values of `on_conflict` that are known but cannot be used yet; the last one is an object's
/// only member.
const ON_CONFLICT_LATER: [&str; 3] = ["replace", "replace_except_schedule", "update"];

const SHORTEST_PERIOD_MICROS: i64 = 1_000_000;

/// Reads `unique_opts`; nothing if they ask for nothing, which means not unique.
///
/// A field that is null or false counts as left out (but `wait`, where false says something).
/// Durations in text go through `read`.
pub fn parse(value: &Value, read: ReadInterval) -> Result<Option<Policy>, Invalid> {
    let Value::Object(object) = value else {
        return Err(Invalid::new(
            format!("unique_opts is {}", json::what(value)),
            "Unique options are an object such as {\"by_args\": true}; {} means not unique.",
        ));
    };
    let fields = Fields::of(object)?;
    let key = fields.key()?;
    let policy = Policy {
        by_args: fields.by_args()?,
        by_meta: fields.by_meta()?,
        by_queue: fields.flag("by_queue")?,
        by_period: fields.by_period(read)?,
        by_state: fields.by_state()?,
        exclude_kind: fields.flag("exclude_kind")?,
        key,
        on_conflict: fields.on_conflict()?,
        wait: fields.wait()?,
    };
    fields.flag("by_kind")?;

    if fields.first_of(&IDENTITY).is_some() {
        return Ok(Some(policy));
    }
    match fields.first_of(&MODIFIERS) {
        None => Ok(None),
        Some(modifier) => Err(Invalid::new(
            format!("{modifier} without anything that makes the job unique"),
            format!("It needs one of {} beside it.", IDENTITY.join(", ")),
        )
        .hint("Add \"by_args\": true for one job per kind and args, or \"by_kind\": true for one per kind.")),
    }
}

/// The fields that are given: those that are null or false, where that says nothing, are not seen.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// Refuses fields that are unknown, and those given that are not supported yet.
    fn of(object: &'a Map<String, Value>) -> Result<Self, Invalid> {
        let known = [&IDENTITY[..], &MODIFIERS, &LATER].concat();
        if let Some(unknown) = object.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Invalid::new(
                format!("unique_opts has the unknown field \"{unknown}\""),
                format!("The fields are {}.", known.join(", ")),
            )
            .did_you_mean(unknown, &known));
        }
        let fields = Fields(object);
        match fields.first_of(&LATER) {
            Some(later) => Err(Invalid::new(
                format!("unique_opts field \"{later}\" is not supported by this version"),
                format!(
                    "This version supports the fields {}.",
                    [&IDENTITY[..], &MODIFIERS].concat().join(", ")
                ),
            )),
            None => Ok(fields),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| match value {
            Value::Null => false,
            Value::Bool(false) => name == "wait",
            _ => true,
        })
    }

    fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.get(name).is_some())
    }

    fn flag(&self, name: &str) -> Result<bool, Invalid> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(true)) => Ok(true),
            Some(other) => Err(wrong_type(name, other, format!("{name} is true or false."))),
        }
    }

    fn wait(&self) -> Result<bool, Invalid> {
        match self.get("wait") {
            None => Ok(true),
            Some(Value::Bool(wait)) => Ok(*wait),
            Some(other) => Err(wrong_type("wait", other, "wait is true or false.")),
        }
    }

    fn by_args(&self) -> Result<Args, Invalid> {
        const RULE: &str = "by_args is true for all args, or a list of paths such as [\"user_id\", \"address.city\"].";
        match self.get("by_args") {
            None => Ok(Args::None),
            Some(Value::Bool(true)) => Ok(Args::All),
            Some(list) => Ok(Args::Paths(Paths::parse(&strings("by_args", list, RULE)?)?)),
        }
    }

    fn by_meta(&self) -> Result<Option<Paths>, Invalid> {
        const RULE: &str = "by_meta is a list of paths such as [\"tenant_id\"]; all of meta cannot make a job unique.";
        match self.get("by_meta") {
            None => Ok(None),
            Some(list) => Ok(Some(Paths::parse(&strings("by_meta", list, RULE)?)?)),
        }
    }

    fn by_period(&self, read: ReadInterval) -> Result<Option<i64>, Invalid> {
        let Some(value) = self.get("by_period") else {
            return Ok(None);
        };
        let Some(micros) = interval::from_json(value, "by_period", read)?.fixed_micros() else {
            return Err(Invalid::new(
                format!("by_period {value} has no fixed length"),
                "A period has a fixed length of at least one second; months and years differ in length.",
            )
            .hint("Write it in days, such as \"30 days\"."));
        };
        if micros < SHORTEST_PERIOD_MICROS {
            return Err(Invalid::new(
                format!("by_period {value} is too short"),
                "A period is at least one second.",
            ));
        }
        Ok(Some(micros))
    }

    fn by_state(&self) -> Result<States, Invalid> {
        const RULE: &str = "by_state is a list of states such as [\"available\", \"running\"].";
        let Some(list) = self.get("by_state") else {
            return Ok(States::DEFAULT_UNIQUE);
        };
        let mut states = States::empty();
        for name in strings("by_state", list, RULE)? {
            let Some(state) = State::from_str(&name) else {
                return Err(Invalid::new(
                    format!("by_state has the unknown state \"{name}\""),
                    format!("The states are {}.", State::NAMES.join(", ")),
                )
                .did_you_mean(&name, &State::NAMES));
            };
            states.insert(state);
        }
        Ok(states)
    }

    fn key(&self) -> Result<Option<String>, Invalid> {
        let key = match self.get("key") {
            None => return Ok(None),
            Some(Value::String(key)) if key.is_empty() => {
                return Err(Invalid::new(
                    "key is empty",
                    "An explicit key is a string that is not empty.",
                ));
            }
            Some(Value::String(key)) => key,
            Some(other) => {
                return Err(wrong_type(
                    "key",
                    other,
                    "An explicit key is a string that is not empty.",
                ));
            }
        };
        match self.first_of(&["by_args", "by_meta", "by_queue", "by_period"]) {
            None => Ok(Some(key.clone())),
            Some(other) => Err(Invalid::new(
                format!("key and {other} together"),
                "An explicit key stands in the place of args, meta, queue and period.",
            )
            .hint(format!(
                "Leave one of them out, or put what {other} stands for into the key."
            ))),
        }
    }

    fn on_conflict(&self) -> Result<OnConflict, Invalid> {
        let Some(value) = self.get("on_conflict") else {
            return Ok(OnConflict::Skip);
        };
        let word = match value {
            Value::String(word) => word.as_str(),
            Value::Object(object) if object.keys().eq(["update"]) => "update",
            other => {
                return Err(wrong_type(
                    "on_conflict",
                    other,
                    "on_conflict is \"skip\" or \"reject\".",
                ));
            }
        };
        match word {
            "skip" => Ok(OnConflict::Skip),
            "reject" => Ok(OnConflict::Reject),
            later if ON_CONFLICT_LATER.contains(&later) => Err(Invalid::new(
                format!("on_conflict \"{later}\" is not supported by this version"),
                "This version supports \"skip\" and \"reject\".",
            )),
            unknown => Err(Invalid::new(
                format!("on_conflict is \"{unknown}\""),
                "on_conflict is \"skip\" or \"reject\".",
            )
            .did_you_mean(unknown, &ON_CONFLICT)),
        }
    }
}

/// A list of strings with at least one in it.
fn strings(field: &str, value: &Value, rule: &str) -> Result<Vec<String>, Invalid> {
    let Value::Array(list) = value else {
        return Err(wrong_type(field, value, rule));
    };
    if list.is_empty() {
        return Err(Invalid::new(format!("{field} is an empty list"), rule)
            .hint(format!("Leave {field} out.")));
    }
    list.iter()
        .map(|element| match element {
            Value::String(string) => Ok(string.clone()),
            other => Err(Invalid::new(
                format!("{field} has {} in its list", json::what(other)),
                rule,
            )),
        })
        .collect()
}

fn wrong_type(field: &str, value: &Value, rule: impl Into<String>) -> Invalid {
    Invalid::new(format!("{field} is {}", json::what(value)), rule)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::interval::Interval;

    fn read(text: &str) -> Option<Interval> {
        match text {
            "15 minutes" => Some(Interval {
                months: 0,
                days: 0,
                micros: 900_000_000,
            }),
            "1 month" => Some(Interval {
                months: 1,
                days: 0,
                micros: 0,
            }),
            "-1 day" => Some(Interval {
                months: 0,
                days: -1,
                micros: 0,
            }),
            _ => None,
        }
    }

    fn policy(value: Value) -> Policy {
        parse(&value, &read).unwrap().unwrap()
    }

    /// The refusal of these options: message and hint.
    fn refused(value: Value) -> (String, Option<String>) {
        let invalid = parse(&value, &read).expect_err(&value.to_string());
        assert!(invalid.detail.ends_with('.'), "{invalid:?}");
        assert!(!invalid.message.ends_with('.'), "{invalid:?}");
        assert!(
            invalid
                .hint
                .as_ref()
                .is_none_or(|hint| hint.ends_with(['.', '?'])),
            "{invalid:?}"
        );
        (invalid.message, invalid.hint)
    }

    #[test]
    fn nothing_left_is_not_unique() {
        for value in [
            json!({}),
            json!({ "by_args": false, "by_queue": null, "key": false }),
            json!({ "exclude_kind": false, "on_conflict": null, "wait": null }),
            json!({ "window": null, "hold_for": false, "oban": null }),
        ] {
            assert!(parse(&value, &read).unwrap().is_none(), "{value}");
        }
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let policy = policy(json!({ "by_kind": true }));
        assert!(matches!(policy.by_args, Args::None));
        assert!(policy.by_meta.is_none() && policy.by_period.is_none() && policy.key.is_none());
        assert!(!policy.by_queue && !policy.exclude_kind && policy.wait);
        assert_eq!(policy.by_state, States::DEFAULT_UNIQUE);
        assert_eq!(policy.on_conflict, OnConflict::Skip);
    }

    #[test]
    fn every_field_is_read() {
        let policy = policy(json!({
            "by_kind": true, "by_args": ["a", "a"], "by_meta": ["b"], "by_queue": true, "by_period": "15 minutes",
            "by_state": ["running", "available", "running"], "exclude_kind": true, "on_conflict": "reject", "wait": false,
        }));
        assert!(
            matches!(&policy.by_args, Args::Paths(paths) if paths.child(Paths::ROOT, "a").is_some())
        );
        assert!(
            policy
                .by_meta
                .is_some_and(|paths| paths.child(Paths::ROOT, "b").is_some())
        );
        assert!(policy.by_queue && policy.exclude_kind && !policy.wait);
        assert_eq!(policy.by_period, Some(900_000_000));
        assert_eq!(
            policy.by_state,
            States::of(&[State::Available, State::Running])
        );
        assert_eq!(policy.on_conflict, OnConflict::Reject);
    }

    #[test]
    fn each_identity_is_enough() {
        for value in [
            json!({ "by_kind": true }),
            json!({ "by_args": true }),
            json!({ "by_meta": ["a"] }),
            json!({ "by_queue": true }),
            json!({ "by_period": 1 }),
            json!({ "by_state": ["running"] }),
            json!({ "key": "k", "by_kind": true, "exclude_kind": true, "wait": true, "by_state": ["running"] }),
        ] {
            policy(value);
        }
    }

    #[test]
    fn modifiers_alone_are_refused() {
        for (value, field) in [
            (json!({ "exclude_kind": true }), "exclude_kind"),
            (
                json!({ "on_conflict": "skip", "by_args": false }),
                "on_conflict",
            ),
            (json!({ "wait": true }), "wait"),
            (json!({ "wait": false, "by_kind": null }), "wait"),
        ] {
            assert_eq!(
                refused(value).0,
                format!("{field} without anything that makes the job unique")
            );
        }
    }

    #[test]
    fn unknown_words_are_refused_with_the_nearest() {
        for (value, message, hint) in [
            (
                json!({ "by_arg": true }),
                "unique_opts has the unknown field \"by_arg\"",
                Some("by_args"),
            ),
            (
                json!({ "hold_fro": 1 }),
                "unique_opts has the unknown field \"hold_fro\"",
                Some("hold_for"),
            ),
            (
                json!({ "priority": null }),
                "unique_opts has the unknown field \"priority\"",
                None,
            ),
            (
                json!({ "by_state": ["runing"] }),
                "by_state has the unknown state \"runing\"",
                Some("running"),
            ),
            (
                json!({ "by_state": ["executing"] }),
                "by_state has the unknown state \"executing\"",
                None,
            ),
            (
                json!({ "by_kind": true, "on_conflict": "rejct" }),
                "on_conflict is \"rejct\"",
                Some("reject"),
            ),
            (
                json!({ "by_kind": true, "on_conflict": "" }),
                "on_conflict is \"\"",
                None,
            ),
        ] {
            let hint = hint.map(|word| format!("Did you mean \"{word}\"?"));
            assert_eq!(refused(value), (message.to_string(), hint));
        }
    }

    #[test]
    fn wrong_types_are_refused() {
        for (value, message) in [
            (json!(null), "unique_opts is null"),
            (json!(true), "unique_opts is true"),
            (json!(["by_args"]), "unique_opts is an array"),
            (json!({ "by_kind": 1 }), "by_kind is a number"),
            (json!({ "by_kind": [] }), "by_kind is an array"),
            (json!({ "by_queue": "true" }), "by_queue is a string"),
            (json!({ "by_args": "user_id" }), "by_args is a string"),
            (json!({ "by_args": {} }), "by_args is an object"),
            (
                json!({ "by_args": ["a", 1] }),
                "by_args has a number in its list",
            ),
            (json!({ "by_args": [null] }), "by_args has null in its list"),
            (json!({ "by_meta": true }), "by_meta is true"),
            (
                json!({ "by_meta": [["a"]] }),
                "by_meta has an array in its list",
            ),
            (json!({ "by_state": "running" }), "by_state is a string"),
            (json!({ "by_state": true }), "by_state is true"),
            (json!({ "by_period": true }), "by_period is true"),
            (
                json!({ "by_period": [2, "minutes"] }),
                "by_period is an array",
            ),
            (
                json!({ "by_kind": true, "exclude_kind": "yes" }),
                "exclude_kind is a string",
            ),
            (json!({ "key": true }), "key is true"),
            (json!({ "key": 7 }), "key is a number"),
            (json!({ "by_kind": true, "wait": 0 }), "wait is a number"),
            (
                json!({ "by_kind": true, "on_conflict": true }),
                "on_conflict is true",
            ),
            (
                json!({ "by_kind": true, "on_conflict": { "skip": 1 } }),
                "on_conflict is an object",
            ),
        ] {
            assert_eq!(refused(value).0, message);
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (value, message) in [
            (json!({ "by_args": [] }), "by_args is an empty list"),
            (json!({ "by_meta": [] }), "by_meta is an empty list"),
            (json!({ "by_state": [] }), "by_state is an empty list"),
            (
                json!({ "by_args": ["a..b"] }),
                "path \"a..b\" has an empty name",
            ),
            (json!({ "by_period": 0 }), "by_period 0 is too short"),
            (
                json!({ "by_period": 0.999_999 }),
                "by_period 0.999999 is too short",
            ),
            (
                json!({ "by_period": "-1 day" }),
                "by_period \"-1 day\" is too short",
            ),
            (
                json!({ "by_period": "1 month" }),
                "by_period \"1 month\" has no fixed length",
            ),
            (
                json!({ "by_period": "weekly" }),
                "by_period \"weekly\" is not a duration",
            ),
            (json!({ "key": "" }), "key is empty"),
        ] {
            assert_eq!(refused(value).0, message);
        }
    }

    #[test]
    fn a_key_stands_alone() {
        assert_eq!(
            policy(json!({ "key": "monthly" })).key.as_deref(),
            Some("monthly")
        );
        for (other, value) in [
            ("by_args", json!(true)),
            ("by_meta", json!(["a"])),
            ("by_queue", json!(true)),
            ("by_period", json!(60)),
        ] {
            assert_eq!(
                refused(json!({ "key": "k", other: value })).0,
                format!("key and {other} together")
            );
        }
        policy(json!({ "key": "k", "by_args": false, "by_queue": null }));
    }

    #[test]
    fn what_comes_later_is_refused_as_such() {
        for field in LATER {
            let (message, _) = refused(json!({ "by_args": true, field: 60 }));
            assert_eq!(
                message,
                format!("unique_opts field \"{field}\" is not supported by this version")
            );
        }
        for (word, value) in [
            ("replace", json!("replace")),
            ("replace_except_schedule", json!("replace_except_schedule")),
            ("update", json!({ "update": { "*": ["priority"] } })),
        ] {
            let (message, _) = refused(json!({ "by_args": true, "on_conflict": value }));
            assert_eq!(
                message,
                format!("on_conflict \"{word}\" is not supported by this version")
            );
        }
    }
}
