//! What operators say of kinds and queues: defaults of a kind; whether a queue is paused, its
//! limits, how long its jobs are kept.

use jobs_core::interval::Interval;
use jobs_core::state::State;
use pgrx::pg_sys::Oid;

use super::columns::{delete_some, list, parameters, record, set};
use super::queue::Queue;
use super::spi::{Arg, Snapshot, Tuples, Value, big, plans, text};
use super::types::*;
use super::{cells, rules};
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::name::Name;

record! {
    /// What jobs of a kind are inserted with where the insert says nothing; `None`: the system's
    /// default.
    Kind: "jobs.kind" by kind {
        queue: String,
        priority: i16,
        max_attempts: i32,
        timeout: Interval,
        retry: OwnedJsonb,
        unique_opts: OwnedJsonb,
    }
}

/// The options of a job, in order, with the types that they are kept in: `$what!` gets the list.
macro_rules! options {
    ($what:ident) => {
        $what! {
            unique_opts: Jsonb,
            queue: String,
            priority: i16,
            scheduled_at: i64,
            max_attempts: i32,
            tags: Vec<String>,
            meta: Jsonb,
            timeout: Interval,
            retry: Jsonb,
            expires_at: i64,
            pending: bool,
        }
    };
}
pub(crate) use options;

macro_rules! as_struct {
    ($($option:ident: $type:ty,)*) => {
        /// What is given of a job but its kind and args; `None` is the default.
        #[allow(missing_docs)]
        #[derive(Clone, Default)]
        pub struct Options {
            $(pub $option: Option<$type>,)*
        }

        impl Options {
            /// Those of a row; the statement may leave some out.
            pub fn read(rows: &Tuples, row: usize) -> Options {
                Options { $($option: rows.find(row, stringify!($option)),)* }
            }
        }
    };
}
options!(as_struct);

record! {
    /// The settings of a queue. One without settings is like those that were never named. So
    /// says the view `jobs.queues`, too.
    QueueSettings: "jobs.queue" by queue {
        /// The most jobs that run at a time.
        concurrency: i32,
        /// The most jobs that start in a period.
        rate: i32,
        rate_period: Interval,
        /// The most jobs that wait.
        max_waiting: i32,
        /// How long final jobs are kept: microseconds, or [`FOR_EVER`].
        retention_completed: i64,
        retention_cancelled: i64,
        retention_discarded: i64,
    } {
        paused_at: i64,
        /// When a pause ended during which jobs waited.
        resumed_at: i64,
    }
}

/// As a retention: the jobs are never deleted.
pub const FOR_EVER: i64 = -1;

impl QueueSettings {
    /// Whether nothing is fetched.
    pub fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }

    /// How long jobs of each final state are kept, where the queue says so; the inner `None`: for
    /// ever.
    fn retentions(&self) -> [Option<Option<i64>>; 3] {
        let kept = |kept: i64| (kept != FOR_EVER).then_some(kept);
        let (completed, cancelled) = (self.retention_completed, self.retention_cancelled);
        [completed, cancelled, self.retention_discarded].map(|own| own.map(kept))
    }

    /// How long a job in this state is kept, if the queue says so.
    pub fn retention(&self, state: State) -> Option<Option<i64>> {
        self.retentions()[state.final_number()?]
    }
}

/// What hardly any queue has.
#[derive(Clone, Copy)]
pub enum Rare {
    /// A retention of its own.
    Retention,
    /// A bound on its waiting jobs.
    Bound,
}

pub fn kind(name: &str) -> Kind {
    KIND.first(&[text(name)], Kind::read).unwrap_or_default()
}

pub fn queue(name: &str, seen: Snapshot) -> QueueSettings {
    let queue = QUEUE.first_as_of(seen, &[text(name)], QueueSettings::read);
    queue.unwrap_or_default()
}

/// Whether some queue has this.
pub fn some(what: Rare, seen: Snapshot) -> bool {
    let plan = match what {
        Rare::Retention => &SOME_RETENTION,
        Rare::Bound => &SOME_BOUND,
    };
    plan.run_as_of(seen, &[], |rows| !rows.is_empty())
}

/// The tables whose changes make what was read before stale.
pub fn tables() -> [Oid; 7] {
    static KIND: Name = Name::new(c"kind");
    static QUEUE: Name = Name::new(c"queue");
    static COMMAND: Name = Name::new(c"worker_command");
    let [cell, placement] = cells::tables();
    let [limit, key] = rules::tables();
    [&KIND, &QUEUE, &COMMAND, cell, placement, limit, key].map(Name::oid)
}

/// The kinds whose jobs go to this queue unless an insert names another one, with their default
/// uniqueness.
pub fn kinds_of(queue: &str) -> Vec<(String, Option<OwnedJsonb>)> {
    KINDS_OF.list_as_of(Snapshot::Latest, &[text(queue)], |rows, row| {
        Some((rows.get(row, "kind")?, rows.get(row, "unique_opts")))
    })
}

/// Writes the defaults of a kind. Waits for a concurrent change of them. Returns true if they are
/// others than before.
pub fn set_kind(name: &str, defaults: &Kind) -> bool {
    let before = LOCK_KIND.first(&[text(name)], Kind::read);
    before.as_ref() != Some(defaults) && SET_KIND.execute(&defaults.row(name)) > 0
}

/// Removes the defaults of a kind; whether there were any.
pub fn remove_kind(name: &str) -> bool {
    REMOVE_KIND.execute(&[text(name)]) > 0
}

/// Pauses a queue; whether it was not paused before.
pub fn pause(queue: &str, at: i64, by: &str, reason: Option<&str>) -> bool {
    let reason = reason.and_then(text);
    PAUSE.execute(&[text(queue), big(at), text(by), reason]) > 0
}

/// Resumes a queue; whether it was paused. Waits for a pause in progress.
pub fn resume(queue: &str, at: i64) -> bool {
    let before = LOCK_QUEUE.first(&[text(queue)], QueueSettings::read);
    let is_paused = before.is_some_and(|before| before.is_paused());
    let is_resumed = is_paused && RESUME.execute(&[text(queue), big(at)]) > 0;
    FORGET_QUEUE.execute(&[text(queue)]);
    is_resumed
}

/// Forgets that up to so many queues were resumed before then, of which nothing else is set and no
/// job waits; how many.
pub fn forget_resumed(before: i64, limit: i64) -> usize {
    FORGET_RESUMED.execute(&[big(before), big(limit)])
}

/// Writes the limits of a queue and how long its jobs are kept, none: takes them back; whether that
/// is another time than before. `None`: all of it is as before.
pub fn set_queue(queue: &str, settings: &QueueSettings) -> Option<bool> {
    // So that it can be locked against changes.
    let before = loop {
        MAKE_QUEUE.execute(&[text(queue)]);
        if let Some(before) = LOCK_QUEUE.first(&[text(queue)], QueueSettings::read) {
            break before;
        }
    };
    let same = QueueSettings {
        paused_at: before.paused_at,
        resumed_at: before.resumed_at,
        ..settings.clone()
    };
    let is_other = before != same && SET_QUEUE.execute(&settings.row(queue)) > 0;
    FORGET_QUEUE.execute(&[text(queue)]);
    is_other.then(|| before.retentions() != settings.retentions())
}

/// The queues that are paused or have settings or an order: this one, or all for '*'.
pub fn known_queues(queue: &str) -> Vec<Queue> {
    let names: Vec<String> = KNOWN_QUEUES.run_as_of(Snapshot::Latest, &[text(queue)], |rows| {
        (0..rows.len()).map(|row| rows.given(row, "queue")).collect()
    });
    names.iter().map(|name| Queue::named(name)).collect()
}

// Whether a queue is paused or has a setting.
fn is_set() -> String {
    let settings = list(&QueueSettings::SET[1..]);
    format!("num_nonnulls(paused_at, {settings}) > 0")
}

plans! {
    KIND(TEXT) => Kind::select();
    LOCK_KIND(TEXT) => Kind::select() + " FOR UPDATE";
    KINDS_OF(TEXT) = "SELECT kind, unique_opts FROM jobs.kind WHERE queue = $1";
    QUEUE(TEXT) => QueueSettings::select();
    LOCK_QUEUE(TEXT) => QueueSettings::select() + " FOR UPDATE";
    SOME_RETENTION() =
        "SELECT FROM jobs.queue q
          WHERE COALESCE(q.retention_completed, q.retention_cancelled, q.retention_discarded) IS NOT NULL LIMIT 1";
    SOME_BOUND() = "SELECT FROM jobs.queue q WHERE q.max_waiting IS NOT NULL LIMIT 1";
    SET_KIND[Kind::TYPES] =
        "INSERT INTO jobs.kind ({columns}) VALUES ({values}) ON CONFLICT (kind) DO UPDATE {set}",
        columns = list(Kind::SET),
        values = parameters(Kind::SET.len()),
        set = set(Kind::SET);
    REMOVE_KIND(TEXT) = "DELETE FROM jobs.kind WHERE kind = $1";
    PAUSE(TEXT, AT, TEXT, TEXT) =
        "INSERT INTO jobs.queue AS q (queue, paused_at, paused_by, pause_reason) VALUES ($1, $2, $3, $4)
         ON CONFLICT (queue) DO UPDATE
            SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
          WHERE q.paused_at IS NULL";
    RESUME(TEXT, AT) =
        "UPDATE jobs.queue
            SET paused_at = NULL, paused_by = NULL, pause_reason = NULL,
                resumed_at = CASE WHEN EXISTS (SELECT FROM jobs.ready r WHERE r.queue = $1)
                                    OR EXISTS (SELECT FROM jobs.scheduled s WHERE s.queue = $1 AND s.due_at <= $2) THEN $2 END
          WHERE queue = $1";
    KNOWN_QUEUES(TEXT) =
        "SELECT k.queue
           FROM (SELECT q.queue FROM jobs.queue q
                 UNION
                 SELECT r.queues[1] COLLATE \"C\" FROM jobs.limit_rule r WHERE r.is_strict IS NOT NULL) k
          WHERE $1 IN ('*', k.queue)";
    MAKE_QUEUE(TEXT) = "INSERT INTO jobs.queue (queue) VALUES ($1) ON CONFLICT DO NOTHING";
    SET_QUEUE[QueueSettings::TYPES] =
        "UPDATE jobs.queue {set} WHERE queue = $1",
        set = set(QueueSettings::SET);
    FORGET_QUEUE(TEXT) =
        "DELETE FROM jobs.queue WHERE queue = $1 AND resumed_at IS NULL AND NOT {is_set}",
        is_set = is_set();
    FORGET_RESUMED(AT, INT8) => delete_some("queue", &format!(
        "t.resumed_at < $1 AND NOT {}
           AND NOT EXISTS (SELECT FROM jobs.ready r WHERE r.queue = t.queue)
           AND NOT EXISTS (SELECT FROM jobs.scheduled s WHERE s.queue = t.queue AND s.due_at <= t.resumed_at)",
        is_set()
    ));
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{Kind, QueueSettings, is_set};

    #[pg_test]
    fn the_view_shows_queues_that_are_paused_or_have_a_setting() {
        let sql =
            "SELECT strpos(replace(pg_get_viewdef('jobs.queues'::regclass), 's.', ''), $1) > 0";
        assert_eq!(Spi::get_one_with_args(sql, &[is_set().into()]), Ok(Some(true)));
    }

    #[pg_test]
    fn every_column_of_kinds_and_queues_is_known() {
        let pause = ["paused_at", "paused_by", "pause_reason", "resumed_at"];
        for (table, set, others) in
            [("kind", Kind::SET, &[][..]), ("queue", QueueSettings::SET, &pause)]
        {
            let sql = format!(
                "SELECT string_agg(attname, ', ' ORDER BY attname) FROM pg_attribute
                  WHERE attrelid = 'jobs.{table}'::regclass AND attnum > 0"
            );
            let mut known = [set, others].concat();
            known.sort_unstable();
            assert_eq!(Spi::get_one(&sql), Ok(Some(known.join(", "))));
        }
    }

    #[pg_test]
    fn a_column_that_is_no_default_makes_no_change_of_a_kind() {
        let add = "ALTER TABLE jobs.kind ADD COLUMN seen_at timestamptz DEFAULT clock_timestamp()";
        Spi::run(add).expect(add);
        let (mut kind, written) = (Kind::default(), |kind: &Kind| super::set_kind("k", kind));
        assert!(written(&kind) && !written(&kind));
        kind.priority = Some(2);
        assert!(written(&kind) && !written(&kind));
    }
}
