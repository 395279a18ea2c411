//! A new job, and the row of `job` that it becomes.

use std::rc::Rc;

use jobs_core::interval::Interval;
use jobs_core::key::Key;
use jobs_core::policy::Hold;
use jobs_core::state::State;
use pgrx::IntoDatum;

use super::cells::Law;
use super::columns::columns;
use super::config::Kind;
use super::kept::Kept;
use super::queue::Queue;
use super::spi::{Arg, Value, big, text, texts};
use crate::pg::jsonb::Jsonb;
use crate::pg::time;

/// A value that a job was given, or the default, which is not stored. An `Option` would mean "no
/// change" in [`Changes`](super::changes::Changes).
#[derive(Clone, Copy, Debug, Default)]
pub enum Setting<T> {
    #[default]
    Default,
    Given(T),
}

impl<T> Setting<T> {
    pub fn given(&self) -> Option<&T> {
        match self {
            Setting::Default => None,
            Setting::Given(value) => Some(value),
        }
    }

    pub fn given_or_else(&self, default: impl FnOnce() -> T) -> T
    where
        T: Clone,
    {
        self.given().cloned().unwrap_or_else(default)
    }
}

impl<T> From<Option<T>> for Setting<T> {
    fn from(value: Option<T>) -> Setting<T> {
        value.map_or(Setting::Default, Setting::Given)
    }
}

/// What jobs of a batch mostly have in common, valid and with all defaults filled in.
pub struct Common {
    pub kind: String,
    pub queue: Queue,
    /// Lower runs first.
    pub priority: i16,
    pub expires_at: Option<i64>,
    /// All attempts, the first one too.
    pub max_attempts: i32,
    /// By default `{}`.
    pub tags: Setting<Vec<String>>,
    /// By default `{}`.
    pub meta: Setting<Jsonb>,
    /// By default [`DEFAULT_TIMEOUT`](super::fetch::DEFAULT_TIMEOUT).
    pub timeout: Setting<Interval>,
    /// By default river.
    pub retry: Setting<Jsonb>,
    /// `None`: it does not hold its key by itself
    pub hold: Option<Hold>,
    /// By what it was judged to live here; `None`: the database has no cell number.
    pub law: Option<Law>,
    /// Keeps the kind's defaults that this borrows from.
    pub _defaults: Rc<Kind>,
}

/// A validated job.
#[derive(Clone)]
pub struct NewJob {
    /// Shared with other jobs.
    pub common: Rc<Common>,
    pub args: Jsonb,
    /// Available, scheduled or pending.
    pub state: State,
    pub created_at: i64,
    pub scheduled_at: Option<i64>,
    /// `None`: not unique
    pub unique_key: Option<Key>,
    /// `None`: once it is final its retention alone keeps it
    pub kept: Option<Box<Kept>>,
}

impl NewJob {
    /// With the schedule of a job that it replaces, if there is one to take over.
    pub fn rescheduled(mut self, at: Option<i64>) -> Self {
        if let Some(at) = at {
            self.scheduled_at = Some(at);
            if self.state != State::Pending {
                let due = at <= self.created_at;
                self.state = if due { State::Available } else { State::Scheduled };
            }
        }
        self
    }

    /// When it is due, once it is not pending.
    pub fn scheduled_at(&self) -> i64 {
        self.scheduled_at.unwrap_or(self.created_at)
    }

    /// When its hold runs out, if it has one.
    pub fn hold_ends_at(&self) -> Option<i64> {
        let begins_at = self.created_at.max(self.scheduled_at());
        self.common.hold.map(|hold| time::add(begins_at, hold.length))
    }

    /// When a job that is not available is due.
    pub fn due_at(&self) -> i64 {
        match self.state {
            State::Pending => i64::MAX,
            _ => self.scheduled_at(),
        }
    }

    fn kept_as(&self, what: impl FnOnce(&Kept) -> Arg) -> Arg {
        self.kept.as_deref().and_then(what)
    }
}

columns! {
    /// The columns of `job`, and what each is of a new job.
    job {
        ID: INT8 not null = big(id),
        CREATED_AT: AT not null = big(new.created_at),
        SCHEDULED_AT: AT = new.scheduled_at.and_then(big),
        EXPIRES_AT: AT = new.common.expires_at.and_then(big),
        HOLD_ENDS_AT: AT = new.hold_ends_at().and_then(big),
        TIMEOUT: SPAN = new.common.timeout.given().copied().map(time::interval_datum),
        MAX_ATTEMPTS: INT4 not null = new.common.max_attempts.into_datum(),
        PRIORITY: INT2 not null = new.common.priority.into_datum(),
        KIND: TEXT not null = text(&new.common.kind),
        QUEUE: TEXT not null = new.common.queue.arg(),
        ARGS: JSONB not null = Some(new.args.datum()),
        META: JSONB = new.common.meta.given().copied().map(Jsonb::datum),
        TAGS: TEXTS = new.common.tags.given().and_then(|tags| texts(tags)),
        RETRY: JSONB = new.common.retry.given().copied().map(Jsonb::datum),
        UNIQUE_KEY: BYTEA = new.unique_key.and_then(|key| key.0.as_slice().into_datum()),
        HOLD_UNTIL: TEXT = new.common.hold.and_then(|hold| text(hold.until.as_str())),
        UNIQUE_UNTIL: AT = new.kept_as(|kept| kept.until.and_then(big)),
        UNIQUE_WINDOW: SPAN = new.kept_as(|kept| kept.window.map(time::interval_datum)),
        UNIQUE_FINAL: INT2 = new.kept_as(|kept| i16::from(kept.states.final_bits()).into_datum()),
    }
    pub fn row(new: &NewJob, id: i64);
}
