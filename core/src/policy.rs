//! The policy: what a caller asks for in `unique_opts`.
//!
//! Whatever form it is asked for in, the native one or the options of another system (a dialect),
//! there is one [`Policy`] afterwards and one meaning.

use serde_json::{Value, json};

use crate::Invalid;
use crate::interval::{Interval, ReadInterval};
use crate::paths::Paths;
use crate::state::{State, States};

mod faktory;
mod native;
mod oban;
mod ojs;
mod on_conflict;

use crate::given::{Given, ROOT, together, word_for};
pub(crate) use native::{by_args, by_meta};
pub use on_conflict::{Field, Fields, OnConflict, Replace, Updates};

/// What makes a job unique, and what happens to a duplicate.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What of the args is part of the key.
    pub by_args: Part,
    /// What of meta is part of the key.
    pub by_meta: Part,
    /// Whether the queue is part of the key.
    pub by_queue: bool,
    /// The period that is part of the key, in microseconds, at least a second. See
    /// [`crate::period`].
    pub by_period: Option<i64>,
    /// The states in which an existing job counts as a duplicate. Empty only with a hold.
    pub by_state: States,
    /// Whether the kind is left out of the key.
    pub exclude_kind: bool,
    /// A key given by the caller, instead of args, meta and period.
    pub key: Option<String>,
    /// How young an existing job has to be to count by its state; any age if there is none.
    pub window: Option<Window>,
    /// Whether the job holds its key by itself, whatever becomes of it.
    pub hold: Option<Hold>,
    /// What happens to a new job that is a duplicate.
    pub on_conflict: OnConflict,
    /// Whether to wait for another transaction that is inserting the same key.
    pub wait: bool,
}

/// What of a job's args or meta is part of the key.
#[derive(Clone, Debug)]
pub enum Part {
    /// Nothing.
    None,
    /// All of it.
    All,
    /// The object of these paths, of which one at least must be there; those that are absent are
    /// left out.
    Paths(Paths),
    /// The object of those of these paths that are there, if any.
    Optional(Paths),
    /// The object of these top-level members, which must be there; of an array, those of its first
    /// element.
    Members(Paths),
}

/// A sliding window: only existing jobs that are younger count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How long it is: longer than nothing; months are those of the calendar.
    pub length: Interval,
    /// What an existing job's age counts from.
    pub from: WindowFrom,
}

/// The time that the age of an existing job counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFrom {
    /// When it was inserted.
    CreatedAt,
    /// When it is or was due.
    ScheduledAt,
}

/// How long a job holds its key by itself, even if it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How long after its insertion, or after its `scheduled_at` when that is later: longer than
    /// nothing; months are those of the calendar.
    pub length: Interval,
    /// What gives the key back before.
    pub until: HoldUntil,
}

/// What releases a key before its hold has run out. It is released once: a retry does not take
/// it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldUntil {
    /// The job's completion.
    Success,
    /// Its first fetch.
    Start,
}

impl HoldUntil {
    /// The word for it: `success` or `start`.
    pub fn as_str(self) -> &'static str {
        word_for(self, &HOLD_UNTIL)
    }
}

impl Default for Policy {
    /// One job of its kind, everything else as it is when it is left out.
    fn default() -> Self {
        Self {
            by_args: Part::None,
            by_meta: Part::None,
            by_queue: false,
            by_period: None,
            by_state: States::DEFAULT_UNIQUE,
            exclude_kind: false,
            key: None,
            window: None,
            hold: None,
            on_conflict: OnConflict::Skip,
            wait: true,
        }
    }
}

/// The options of other systems, each an object in a field of this name.
const DIALECTS: [&str; 3] = ["oban", "faktory", "ojs"];
/// The fields that the native form and the dialects have in common.
const COMMON: [&str; 2] = ["on_conflict", "wait"];

const WINDOW_FROM: [(&str, WindowFrom); 2] =
    [("created_at", WindowFrom::CreatedAt), ("scheduled_at", WindowFrom::ScheduledAt)];
const HOLD_UNTIL: [(&str, HoldUntil); 2] =
    [("success", HoldUntil::Success), ("start", HoldUntil::Start)];

/// Reads `unique_opts`; nothing if they ask for nothing, which means not unique.
///
/// A field that is null or false counts as left out (but `wait`, where false says something).
/// Durations in text go through `read`.
pub fn parse(value: &Value, read: ReadInterval) -> Result<Option<Policy>, Invalid> {
    const RULE: &str =
        "unique_opts must be an object such as {\"by_args\": true}; {} means not unique.";
    let native = native::fields();
    let known = [&native[..], &COMMON, &DIALECTS].concat();
    let given = Given::of(ROOT, value, &known, RULE)?;
    let on_conflict = on_conflict::parse(&given)?;
    let wait = given.bool("wait")?.unwrap_or(true);

    let dialect = DIALECTS.into_iter().find_map(|dialect| Some((dialect, given.get(dialect)?)));
    let policy = match dialect {
        None => native::parse(&given, on_conflict, read)?,
        Some((dialect, options)) => {
            let others: Vec<_> = [&native[..], &DIALECTS]
                .concat()
                .into_iter()
                .filter(|other| *other != dialect)
                .collect();
            if let Some(other) = given.first_of(&others) {
                return Err(together(
                    dialect,
                    other,
                    &format!("{dialect} can be combined only with {}.", COMMON.join(" and ")),
                ));
            }
            match dialect {
                "oban" => Some(oban::parse(options, on_conflict)?),
                "faktory" => faktory::parse(options, on_conflict)?,
                _ => Some(ojs::parse(options, on_conflict, read)?),
            }
        }
    };
    Ok(policy.map(|policy| Policy { wait, ..policy }))
}

impl Policy {
    /// The policy in the native form, with what was left out filled in, durations in ISO 8601.
    ///
    /// [`parse`] reads it as the same policy, or refuses it where the policy is a dialect's that
    /// the native form has no words for: `by_meta` true, `args_required` (the paths of `by_args`
    /// are [`Part::Members`]), `args_optional` and `meta_optional` (they are [`Part::Optional`]),
    /// and `final_conflict` `"reject"` ([`Replace::reject_final`]).
    pub fn to_json(&self) -> Value {
        let duration = |length: Interval| length.to_string();
        let parts = [&self.by_args, &self.by_meta];
        let kind_alone = !self.exclude_kind
            && !self.by_queue
            && self.by_period.is_none()
            && self.key.is_none()
            && parts.iter().all(|part| matches!(part, Part::None));
        let states = self.by_state.iter().map(State::as_str).collect::<Vec<_>>();
        let mut json = json!({
            "by_kind": kind_alone,
            "by_args": self.by_args.to_json(),
            "by_meta": self.by_meta.to_json(),
            "by_queue": self.by_queue,
            "by_period": self.by_period.map(Interval::of_micros).map(duration),
            "by_state": states,
            "exclude_kind": self.exclude_kind,
            "key": self.key,
            "window": self.window.map(|window| duration(window.length)),
            "window_from": self.window.map(|window| word_for(window.from, &WINDOW_FROM)),
            "hold_for": self.hold.map(|hold| duration(hold.length)),
            "hold_until": self.hold.map(|hold| hold.until.as_str()),
            "on_conflict": self.on_conflict.to_json(),
            "wait": self.wait,
        });
        for (part, required, optional) in [
            (&self.by_args, "args_required", "args_optional"),
            (&self.by_meta, "meta_required", "meta_optional"),
        ] {
            match part {
                Part::Members(_) => json[required] = json!(true),
                Part::Optional(_) => json[optional] = json!(true),
                Part::None | Part::All | Part::Paths(_) => {}
            }
        }
        if let OnConflict::Replace(Replace { reject_final: true, .. }) = self.on_conflict {
            json["final_conflict"] = json!("reject");
        }
        json
    }
}

impl Part {
    /// What may also be absent.
    pub(crate) fn optional(self) -> Part {
        match self {
            Part::Paths(paths) => Part::Optional(paths),
            other => other,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Part::None => json!(false),
            Part::All => json!(true),
            Part::Paths(paths) | Part::Optional(paths) | Part::Members(paths) => {
                json!(paths.to_list())
            }
        }
    }
}
