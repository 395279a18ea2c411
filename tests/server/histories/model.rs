//! A history of a few sessions that use a few keys, and what each call does to a key.
//!
//! The state of a key is its jobs: their ids, states, leases and holds. A history is explained by
//! an order of events in which every call was told what it must be told where it stands:
//!
//! * What a call does is visible to its own transaction at once, to others from its commit on. A
//!   commit is an event of its own, between the times at which it began and ended; so is a
//!   rollback, which for a call that failed may come at any time from the beginning of that call
//!   on.
//! * A call of a READ COMMITTED transaction stands between its beginning and end, and sees what was
//!   committed before it and what its own transaction did. What a call does to several jobs, it
//!   does one after the other.
//! * A REPEATABLE READ or SERIALIZABLE transaction sees what was committed at its snapshot, an
//!   event within its first call, and what it did itself. It cannot change a job that was changed
//!   since, and cannot insert if a job was inserted under the key since: that is 40001. A duplicate
//!   is told by its snapshot, however old. Jobs that are gone by now need neither hinder an insert
//!   nor be seen by it: a snapshot older than a prune may no longer show what was pruned.
//! * Who inserted under a key holds the key until its transaction, or the subtransaction that
//!   inserted, has ended: no other transaction can insert under it. Who changed a job holds the job
//!   likewise.
//! * A duplicate is told the conflicting job with the highest id. A replacement or an update
//!   touches jobs that conflict at that very point.
//! * The call that used a token is answered with it as the first time, as long as the job is there.
//!   Whoever else is refused for a token was not the job's current holder; which reason is given is
//!   looked up only later.
//! * `wait: false` may give up only while another transaction is at work on the key
//!   (`plain::busy_without_rival`).
//! * 40001 (not under READ COMMITTED) and 40P01 may come at any time, and leave nothing.
//! * Maintenance has no effect: it removes only what no longer counts. A final job whose retention
//!   is over in the same moment counts as gone to inserts, and to calls by id may be there or not;
//!   but for one whose own window keeps it in that state.
//!
//! Time plays no part: windows and holds never run out, leases and delays outlast the history. Keys
//! are explained one by one: an order for each is less than one order for all, but whatever has
//! none is wrong.

pub use jobs_core::state::State::{self, *};

pub fn state_of(name: &str) -> State {
    State::from_str(name).unwrap_or_else(|| panic!("there is no state {name}"))
}

/// When a hold is given back before it has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Until {
    Success,
    Start,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Skip,
    Reject,
    Replace,
    ReplaceExceptSchedule,
    /// The existing job takes the new values in these states. `schedule` includes `scheduled_at`.
    Update {
        states: Vec<State>,
        schedule: bool,
    },
}

/// A job to be inserted.
#[derive(Clone, Debug)]
pub struct New {
    pub by_state: Vec<State>,
    pub on_conflict: OnConflict,
    pub wait: bool,
    /// A window that never ends. Its only effect is that retention does not end it in its own
    /// `by_state`.
    pub window: Option<&'static str>,
    pub hold: Option<Until>,
    /// The initial state: available, scheduled or pending.
    pub state: State,
}

/// What an insert was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Inserted { id: i64, state: State, replaced: Option<i64> },
    Skipped { id: i64, state: Option<State> },
    Rejected { id: i64, state: Option<State> },
    Busy,
}

/// What the holder of a lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    Complete,
    /// The resulting state: retryable, available (at once) or discarded.
    Fail(State),
    Snooze,
    Release,
}

impl Finish {
    /// Whether it is the same call, whatever is said with it.
    pub fn is_same_call(self, other: Finish) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// A call by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    Cancel { force: bool },
    Retry,
    Delete,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// P0002
    Unknown,
    /// 55000
    WrongState,
    /// An element of a call for many jobs that was not done.
    NotDone,
    /// An element that was not done because another session had locked the job.
    Locked,
}

/// One thing that a call was told. A call with several elements was told several, in order.
#[derive(Clone, Debug)]
pub enum Fact {
    Insert {
        key: usize,
        new: New,
        reply: Reply,
    },
    Fetch {
        job: i64,
        token: i64,
    },
    Finish {
        job: i64,
        token: i64,
        what: Finish,
        reply: Result<State, Refusal>,
    },
    Manage {
        job: i64,
        what: Manage,
        reply: Result<State, Refusal>,
    },
    /// A snapshot of all jobs of the history.
    Look(Vec<(i64, State)>),
}

/// Microseconds from the beginning of the history, on one clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub begin: u64,
    pub end: u64,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    /// The call and its answer in readable form.
    pub text: String,
    pub facts: Vec<Fact>,
    /// The SQLSTATE of a failed call.
    pub error: Option<String>,
    /// The keys of the inserts in the call, even if the call failed.
    pub keys: Vec<usize>,
    pub maintains: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    Call(Call),
    Savepoint(Span),
    Release(Span),
    RollbackTo(Span),
    End { span: Span, committed: bool },
}

impl Step {
    pub fn span(&self) -> Span {
        match self {
            Step::Call(call) => call.span,
            Step::Savepoint(span) | Step::Release(span) | Step::RollbackTo(span) => *span,
            Step::End { span, .. } => *span,
        }
    }
}

/// A transaction of one session, ended.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub session: usize,
    /// READ COMMITTED sees the latest, the others a snapshot
    pub level: &'static str,
    pub steps: Vec<Step>,
}

impl Transaction {
    pub fn has_snapshot(&self) -> bool {
        self.level != "read committed"
    }

    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps.iter().filter_map(|step| match step {
            Step::Call(call) => Some(call),
            _ => None,
        })
    }

    pub fn end(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.span().end)
    }
}

/// The transactions of a session are in their order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Final states whose retention is zero.
    pub gone: Vec<State>,
    pub transactions: Vec<Transaction>,
}
