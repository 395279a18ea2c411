//! New jobs: the row of `job`, the row of `ready` or `scheduled`, and, for a key that
//! nobody holds, the claim.

use std::rc::Rc;

use jobs_core::interval::Interval;
use jobs_core::key::Key;
use jobs_core::policy::Hold;
use jobs_core::state::{State, States};
use pgrx::IntoDatum;
use pgrx::pg_sys::{Datum, Oid};

use super::claims::{self, AT_ONCE, Listed};
use super::config::Kind;
use super::lanes;
use super::shapes::{self, scheduled};
use super::spi::{Arg, Plan, text, texts};
use super::types::*;
use crate::pg::array;
use crate::pg::jsonb::Jsonb;
use crate::pg::memory::Scratch;
use crate::pg::name;
use crate::pg::table::Table;
use crate::pg::time;
use crate::pg::transaction;

/// What jobs of a batch mostly have in common, valid and with all defaults filled in.
pub struct Common {
    /// what to do
    pub kind: String,
    /// where
    pub queue: String,
    /// lower runs first
    pub priority: i16,
    /// as given
    pub expires_at: Option<i64>,
    /// all tries, the first one too
    pub max_attempts: i32,
    /// `None`: `{}`
    pub tags: Option<Vec<String>>,
    /// `None`: `{}`
    pub meta: Option<Jsonb>,
    /// `None`: 1 minute
    pub timeout: Option<Interval>,
    /// `None`: river
    pub retry: Option<Jsonb>,
    /// `None`: it does not hold its key by itself
    pub hold: Option<Hold>,
    /// what some of this stands in
    pub _defaults: Rc<Kind>,
}

/// What keeps a job that is final, so that it counts under its key however short its retention is.
#[derive(Clone, Copy)]
pub struct Kept {
    /// in these states
    pub states: States,
    /// until then
    pub until: Option<i64>,
    /// and until this long after it was due
    pub window: Option<Interval>,
}

/// A validated job.
#[derive(Clone)]
pub struct NewJob {
    /// what it shares with others
    pub common: Rc<Common>,
    /// with what
    pub args: Jsonb,
    /// available, scheduled or pending
    pub state: State,
    /// the clock at the insertion
    pub created_at: i64,
    /// as given
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
                self.state = if due {
                    State::Available
                } else {
                    State::Scheduled
                };
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
        self.common
            .hold
            .map(|hold| time::add(begins_at, hold.length))
    }

    /// When a job that is not available is due.
    fn due_at(&self) -> i64 {
        match self.state {
            State::Pending => i64::MAX,
            _ => self.scheduled_at(),
        }
    }

    fn key(&self) -> Arg {
        self.unique_key
            .and_then(|key| key.0.as_slice().into_datum())
    }

    fn args(&self) -> [Arg; 20] {
        let (common, kept) = (&*self.common, self.kept.as_deref());
        [
            Some(Datum::from(self.created_at)),
            self.scheduled_at.map(Datum::from),
            common.expires_at.map(Datum::from),
            common.timeout.map(time::interval_datum),
            Some(Datum::from(common.max_attempts)),
            Some(Datum::from(common.priority)),
            text(&common.kind),
            text(&common.queue),
            Some(self.args.datum()),
            common.meta.map(Jsonb::datum),
            common.tags.as_ref().and_then(|tags| texts(tags)),
            common.retry.map(Jsonb::datum),
            self.key(),
            text(self.state.as_str()),
            Some(Datum::from(self.due_at())),
            self.hold_ends_at().map(Datum::from),
            common.hold.and_then(|hold| text(hold.until.as_str())),
            kept.and_then(|kept| kept.until).map(Datum::from),
            kept.and_then(|kept| kept.window).map(time::interval_datum),
            kept.map(|kept| Datum::from(i16::from(kept.states.final_bits()))),
        ]
    }
}

/// Inserts one job; its id.
pub fn one(job: &NewJob) -> i64 {
    let directly = || Some(Direct::open(&[(0, job)])?.one(job));
    let by_statement = || {
        let plan = match job.state {
            State::Available => &ONE_READY,
            _ => &ONE_SCHEDULED,
        };
        plan.run(&job.args(), |rows| {
            rows.big(0, 1).expect("one job was inserted")
        })
    };
    let id = directly().unwrap_or_else(by_statement);
    put(&[(id, job)]);
    id
}

/// Inserts one unique job together with its claim, if nobody has that key; its id.
pub fn one_claiming(job: &NewJob) -> Option<i64> {
    let directly = || Direct::open(&[(0, job)])?.one_claiming(job);
    let by_statement = || {
        let plan = match job.state {
            State::Available => &ONE_CLAIMING_READY,
            _ => &ONE_CLAIMING_SCHEDULED,
        };
        plan.run(&job.args(), |rows| {
            (!rows.is_empty()).then(|| rows.big(0, 1).expect("ids are not null"))
        })
    };
    let id = directly().unwrap_or_else(by_statement);
    put(id.map(|id| (id, job)).as_slice());
    id
}

/// The tables that new jobs go to, where they are as they were made: then no statement is needed.
struct Direct {
    jobs: Table,
    ready: Option<Table>,
    scheduled: Option<Table>,
}

impl Direct {
    /// Those that these jobs need; `None`: use a statement.
    fn open(jobs: &[(i64, &NewJob)]) -> Option<Direct> {
        let is_ready = |(_, job): &(i64, &NewJob)| job.state == State::Available;
        let open = |is_needed: bool, shape| is_needed.then(|| Table::open(shape));
        let ready = open(jobs.iter().any(is_ready), &shapes::READY);
        let scheduled = open(!jobs.iter().all(is_ready), &shapes::SCHEDULED);
        let is_none = |table: &Option<Option<Table>>| matches!(table, Some(None));
        if is_none(&ready) || is_none(&scheduled) {
            return None;
        }
        Some(Direct {
            jobs: Table::open(&shapes::JOB)?,
            ready: ready.flatten(),
            scheduled: scheduled.flatten(),
        })
    }

    fn one(&self, job: &NewJob) -> i64 {
        let id = id();
        self.insert(&[(id, job)]);
        id
    }

    /// The claim comes first: if the key is taken, nothing else is written.
    fn one_claiming(&self, job: &NewJob) -> Option<Option<i64>> {
        let id = id();
        let claim = Listed {
            key: job.unique_key.expect("it is unique"),
            id,
            hold_ends_at: job.hold_ends_at(),
        };
        Some(claims::claim_if_new(&claim)?.then(|| {
            self.insert(&[(id, job)]);
            id
        }))
    }

    /// Each row is made when it is its turn: of many, few are in memory at once.
    fn insert(&self, new: &[(i64, &NewJob)]) {
        self.jobs.insert(new.iter().map(|(id, job)| {
            let [
                created_at,
                scheduled_at,
                expires_at,
                timeout,
                max_attempts,
                priority,
                kind,
                queue,
                args,
                meta,
                tags,
                retry,
                key,
                _state,
                _due_at,
                hold_ends_at,
                hold_until,
                unique_until,
                unique_window,
                unique_final,
            ] = job.args();
            self.jobs.row(&[
                Some(Datum::from(*id)),
                created_at,
                scheduled_at,
                expires_at,
                hold_ends_at,
                timeout,
                max_attempts,
                priority,
                kind,
                queue,
                args,
                meta,
                tags,
                retry,
                key,
                hold_until,
                unique_until,
                unique_window,
                unique_final,
            ])
        }));
        let attempt = Some(Datum::from(0i32));
        let is_ready = |job: &NewJob| job.state == State::Available;
        if let Some(table) = &self.ready {
            let ready = new.iter().filter(|(_, job)| is_ready(job));
            table.insert(ready.map(|(id, job)| {
                let (id, common) = (Some(Datum::from(*id)), &job.common);
                let expires_at = common.expires_at.map(Datum::from);
                let priority = Some(Datum::from(common.priority));
                table.row(&[
                    id,
                    id,
                    None,
                    expires_at,
                    attempt,
                    priority,
                    text(&common.queue),
                ])
            }));
        }
        if let Some(table) = &self.scheduled {
            let scheduled = new.iter().filter(|(_, job)| !is_ready(job));
            table.insert(scheduled.map(|(id, job)| {
                let (id, common) = (Some(Datum::from(*id)), &job.common);
                let due_at = Some(Datum::from(job.due_at()));
                let expires_at = common.expires_at.map(Datum::from);
                let state = Some(table.label(scheduled::STATE, job.state.as_str()));
                table.row(&[id, due_at, expires_at, attempt, state, text(&common.queue)])
            }));
        }
        transaction::make_visible();
    }
}

/// The jobs are in their lanes.
fn put(jobs: &[(i64, &NewJob)]) {
    let mut last = None;
    for (id, job) in jobs {
        let (queue, priority) = (job.common.queue.as_str(), job.common.priority);
        let lane = (queue, priority);
        if job.state != State::Available {
            lanes::put_scheduled(queue, job.due_at());
        } else if last.is_none_or(|(known, lowest)| known != lane || *id < lowest) {
            // Those that follow in the same lane are above it, mostly.
            lanes::put_ready(queue, priority, *id);
            last = Some((lane, *id));
        }
    }
}

/// Takes an id; later ones are higher.
pub fn id() -> i64 {
    name::next_value(&shapes::JOB_SEQ)
}

/// Inserts jobs under ids that were taken for them.
pub fn many(jobs: &[(i64, &NewJob)]) {
    if jobs.is_empty() {
        return;
    }
    match Direct::open(jobs) {
        Some(tables) => tables.insert(jobs),
        None => {
            let scratch = Scratch::new();
            for some in jobs.chunks(AT_ONCE) {
                scratch.within(|| many_by_statement(some));
            }
        }
    }
    put(jobs);
}

fn many_by_statement(jobs: &[(i64, &NewJob)]) {
    const COLUMNS: [Oid; 20] = [
        AT, AT, AT, SPAN, INT4, INT2, TEXT, TEXT, JSONB, JSONB, TEXT, JSONB, BYTEA, TEXT, AT, AT,
        TEXT, AT, SPAN, INT2,
    ];
    let mut columns: [Vec<Arg>; 20] = std::array::from_fn(|_| Vec::with_capacity(jobs.len()));
    for (_, job) in jobs {
        for (column, arg) in columns.iter_mut().zip(job.args()) {
            column.push(arg);
        }
    }
    // Arrays of arrays must be rectangular, tags are not: they travel as jsonb text.
    columns[10] = jobs
        .iter()
        .map(|(_, job)| {
            let tags = job.common.tags.as_ref();
            tags.and_then(|tags| text(&serde_json::json!(tags).to_string()))
        })
        .collect();
    let ids: Vec<Arg> = jobs.iter().map(|(id, _)| Some(Datum::from(*id))).collect();
    let mut args = vec![Some(array::build(INT8, &ids))];
    args.extend(
        columns
            .iter()
            .zip(COLUMNS)
            .map(|(column, element)| Some(array::build(element, column))),
    );
    MANY.execute(&args);
}

macro_rules! columns {
    () => {
        "created_at, scheduled_at, expires_at, timeout, max_attempts, priority, kind, queue, args, meta, tags, retry, unique_key, hold_ends_at, hold_until/*+*/, unique_until, unique_window, unique_final/*-*/"
    };
}
macro_rules! values {
    () => {
        "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $16, $17/*+*/, $18, $19, $20/*-*/"
    };
}
macro_rules! into_ready {
    () => {
        " INSERT INTO jobs.ready (seq, job_id, expires_at, attempt, priority, queue)
          SELECT j.id, j.id, $3, 0, $6, $8 FROM j RETURNING job_id"
    };
}
macro_rules! into_scheduled {
    () => {
        " INSERT INTO jobs.scheduled (job_id, due_at, expires_at, attempt, state, queue)
          SELECT j.id, $15, $3, 0, $14::jobs.state, $8 FROM j RETURNING job_id"
    };
}
macro_rules! plain {
    () => {
        concat!(
            "WITH j AS (INSERT INTO jobs.job (id, ",
            columns!(),
            ")
                        VALUES (nextval('jobs.job_seq'), ",
            values!(),
            ") RETURNING id)"
        )
    };
}
// The claim comes first: if the key is taken, nothing else is written.
macro_rules! claiming {
    () => {
        concat!(
            "WITH c AS (INSERT INTO jobs.unique_claim (key, jobs, hold_ends_at)
                        VALUES ($13, ARRAY[nextval('jobs.job_seq')], CASE WHEN $16 IS NOT NULL THEN ARRAY[$16] END)
                        ON CONFLICT (key) DO NOTHING RETURNING jobs[1] AS id),
                  j AS (INSERT INTO jobs.job (id, ", columns!(), ") SELECT c.id, ", values!(), " FROM c RETURNING id)"
        )
    };
}

const ONE: &[Oid] = &[
    AT, AT, AT, SPAN, INT4, INT2, TEXT, TEXT, JSONB, JSONB, TEXTS, JSONB, BYTEA, TEXT, AT, AT,
    TEXT, AT, SPAN, INT2,
];
static ONE_READY: Plan = Plan::new(concat!(plain!(), into_ready!()), ONE);
static ONE_SCHEDULED: Plan = Plan::new(concat!(plain!(), into_scheduled!()), ONE);
static ONE_CLAIMING_READY: Plan = Plan::new(concat!(claiming!(), into_ready!()), ONE);
static ONE_CLAIMING_SCHEDULED: Plan = Plan::new(concat!(claiming!(), into_scheduled!()), ONE);

static MANY: Plan = Plan::new(
    concat!(
        "WITH new AS MATERIALIZED (
           SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
             AS n(id, created_at, scheduled_at, expires_at, timeout, max_attempts, priority, kind, queue,
                  args, meta, tags, retry, unique_key, state, due_at, hold_ends_at, hold_until,
                  unique_until, unique_window, unique_final)),
         j AS (INSERT INTO jobs.job (id, ", columns!(), ")
               SELECT id, created_at, scheduled_at, expires_at, timeout, max_attempts, priority, kind, queue, args, meta,
                      CASE WHEN tags IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(tags::jsonb)) END,
                      retry, unique_key, hold_ends_at, hold_until/*+*/, unique_until, unique_window, unique_final/*-*/ FROM new),
         r AS (INSERT INTO jobs.ready (seq, job_id, expires_at, attempt, priority, queue)
               SELECT id, id, expires_at, 0, priority, queue FROM new WHERE state = 'available')
         INSERT INTO jobs.scheduled (job_id, due_at, expires_at, attempt, state, queue)
         SELECT id, due_at, expires_at, 0, state::jobs.state, queue FROM new WHERE state <> 'available'"
    ),
    &[INT8S, ATS, ATS, ATS, SPANS, INT4S, INT2S, TEXTS, TEXTS, JSONBS, JSONBS, TEXTS, JSONBS, BYTEAS, TEXTS, ATS, ATS, TEXTS, ATS, SPANS, INT2S],
);
