//! What needs somebody's attention: each statement finds one kind of thing, and says severity,
//! finding, message and hint.

use jobs_core::interval::Interval;
use pgrx::pg_sys::Datum;

use super::clock;
use super::count::heads;
use super::direct::shapes;
use super::health_work;
use super::members::{granted, members};
use super::run_log::is_being_restored;
use super::spi::{Plan, Tuples, big, bigs, text, texts};
use super::types::*;
use crate::pg::changed::{self, Difference};
use crate::pg::time;

/// What the findings about the background worker depend on.
pub struct Worker {
    /// `None`: it is to run; else why it does not
    pub is_off: Option<&'static str>,
    /// what to do about that
    pub hint: String,
    /// the database has no slot, because so many others have one
    pub without_slot: Option<usize>,
}

/// From when on something is a finding; `None`: never.
pub struct Thresholds {
    /// the age of a snapshot
    pub old_snapshot: Option<Interval>,
    /// how long a job has been available
    pub oldest_available: Option<Interval>,
    /// how long somebody has waited for a key
    pub lock_wait: Option<Interval>,
    /// dead rows of a table
    pub dead_rows: Option<i64>,
}

/// Hands the findings to `take`, kind by kind.
pub fn find(worker: &Worker, from: &Thresholds, mut take: impl FnMut(&Tuples)) {
    let span = |threshold: Option<Interval>| [threshold.map(time::interval_datum)];
    WORKER.run(
        &[worker.is_off.and_then(text), text(&worker.hint)],
        &mut take,
    );
    if let Some(slots) = worker.without_slot {
        NO_SLOT.run(&[big(slots as i64)], &mut take);
    }
    for plan in [&PAUSED, &RESTORING, &FAILING] {
        plan.run(&[], &mut take);
    }
    for plan in [&OLD_SNAPSHOTS, &PREPARED] {
        plan.run(&span(from.old_snapshot), &mut take);
    }
    SLOTS.run(&[], &mut take);
    OLDEST_AVAILABLE.run(&span(from.oldest_available), &mut take);
    for plan in [&DISCARDED, &EXPIRED_LEASES] {
        plan.run(&[], &mut take);
    }
    clock::find(&mut take);
    health_work::find(&mut take);
    BLOAT.run(&[from.dead_rows.map(Datum::from)], &mut take);
    find_changed(&mut take);
    LOCK_WAITS.run(&span(from.lock_wait), &mut take);
    for plan in [&FOREIGN_RIGHTS, &FOREIGN_TRIGGERS, &FOREIGN_OWNERS] {
        plan.run(&[], &mut take);
    }
}

/// More findings of a kind than this are one, with the worst of them.
const MOST_ALIKE: i64 = 5;
/// How many of the worst it names.
const WORST: usize = 3;
/// More are not counted.
pub(super) const COUNTED: i64 = 1000;

/// Findings of a kind as they are shown. A statement that may find the same of many things says how
/// many there are, what they are together, and the hint for all.
pub fn grouped(found: &Tuples) -> Vec<[Option<String>; 4]> {
    let single = |row| [1, 2, 3, 4].map(|n| found.at(row, n));
    let total = match found.is_empty() {
        true => 0,
        false => found.find(0, "total").unwrap_or(0),
    };
    if total <= MOST_ALIKE {
        return (0..found.len()).map(single).collect();
    }
    let message = |row| single(row)[2].take();
    let worst: Vec<String> = (0..WORST).filter_map(message).collect();
    let at_least = if total >= COUNTED { "at least " } else { "" };
    let many: String = found.find(0, "many").unwrap_or_default();
    let message = format!("{at_least}{total} {many}; the worst: {}", worst.join("; "));
    let [severity, finding, ..] = single(0);
    vec![[
        severity,
        finding,
        Some(message),
        found.find(0, "hint_for_all"),
    ]]
}

/// Finds tables that are not as they were made.
fn find_changed(take: &mut impl FnMut(&Tuples)) {
    let written = shapes::WRITTEN.into_iter().map(|shape| (shape, true));
    let read = shapes::READ.into_iter().map(|shape| (shape, false));
    let found: Vec<Difference> = written
        .chain(read)
        .flat_map(|(shape, is_written)| changed::differences(shape, is_written))
        .collect();
    let what: Vec<&str> = found.iter().map(|found| found.what.as_str()).collect();
    let mend: Vec<&str> = found.iter().map(|found| found.mend.as_str()).collect();
    let index: Vec<i64> = found
        .iter()
        .map(|found| found.index.map_or(0, |index| index.to_u32().into()))
        .collect();
    CHANGED.run(&[texts(&what), texts(&mend), bigs(&index)], take);
}

// An age as people write it: to the second.
macro_rules! age {
    ($since:literal) => {
        concat!("date_trunc('second', clock_timestamp() - ", $since, ")")
    };
}

// The first line of an error, for people.
macro_rules! line {
    ($error:literal) => {
        concat!("left(split_part(", $error, r", E'\n', 1), 200)")
    };
}

pub(super) use {age, line};

macro_rules! who {
    ($of:literal) => {
        concat!(
            "format('process %s (%s, user %s%s, %s)', ",
            $of,
            ".pid, ",
            $of,
            ".backend_type, COALESCE((SELECT u.rolname::text FROM pg_catalog.pg_roles u WHERE u.oid = ",
            $of,
            ".usesysid), '-'), COALESCE(', ' || NULLIF(",
            $of,
            ".application_name, ''), ''), COALESCE(",
            $of,
            ".state, '-'))"
        )
    };
}

// Somebody else may be calling jobs.maintain(): then all is well. The launcher sends a worker once
// a minute. Where none has ever come, the oldest job says for how long one could have.
static WORKER: Plan = Plan::new(
    concat!(
        "SELECT 'critical', 'worker_not_running', w.message, w.hint
           FROM (SELECT max(m.last_run_at) AS last_run_at FROM jobs.maintenance m) m,
                (SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(NULL) a WHERE a.backend_type = 'jobs launcher') AS runs) l,
                LATERAL (VALUES
                  ($1 IS NOT NULL, timestamptz '-infinity', interval '10 minutes', $1, $2),
                  ($1 IS NULL AND NOT l.runs, '-infinity', '10 minutes', 'the launcher of the background worker does not run',
                   'The server''s log says why it ended; it is started again after 5 seconds. Until then: SELECT * FROM jobs.maintain();'),
                  ($1 IS NULL AND l.runs AND pg_catalog.pg_postmaster_start_time() < clock_timestamp() - interval '5 minutes',
                   CASE WHEN m.last_run_at IS NULL THEN (SELECT j.created_at FROM jobs.job j ORDER BY j.id LIMIT 1) END, '5 minutes',
                   'no background worker has come to this database for 5 minutes', format('Perhaps there is no process left for it: ALTER SYSTEM SET max_worker_processes = %s; and restart the server. Until then: SELECT * FROM jobs.maintain();',
                          pg_catalog.current_setting('max_worker_processes')::integer + 8))
                ) w(applies, never, tolerated, message, hint)
          WHERE w.applies AND COALESCE(m.last_run_at, w.never) < clock_timestamp() - w.tolerated
            AND NOT pg_catalog.pg_is_in_recovery() AND NOT EXISTS (SELECT FROM jobs.maintenance_pause) AND NOT ",
        is_being_restored!()
    ),
    &[TEXT, TEXT],
);

static NO_SLOT: Plan = Plan::new(
    "SELECT 'warning', 'no_slot', format('more than %s databases of this server have the extension, so the background worker visits this one every few seconds, and no commit wakes it', $1),
            'Drop the extension where nobody uses it. The databases: SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname;'",
    &[INT8],
);

static PAUSED: Plan = Plan::new(
    concat!(
        "SELECT 'warning', 'maintenance_paused', format('maintenance was paused by %s %s ago', p.paused_by, ",
        age!("p.paused_at"),
        "), 'SELECT jobs.resume_maintenance();' FROM jobs.maintenance_pause p"
    ),
    &[],
);

static RESTORING: Plan = Plan::new(
    concat!(
        "SELECT 'info', 'restoring', 'maintenance waits while pg_restore is connected to this database', 
                'It goes on by itself when that is done. Who it is: SELECT * FROM pg_stat_activity WHERE application_name = ''pg_restore'' AND datname = current_database();' WHERE ",
        is_being_restored!()
    ),
    &[],
);

static FAILING: Plan = Plan::new(
    concat!(
        "SELECT CASE WHEN t.failures < 10 THEN 'warning' ELSE 'critical' END, 'maintenance_failing',
                format('task %s has failed %s times in a row, the last time %s ago: %s', t.task, t.failures, ",
        age!("t.last_error_at"),
        ", t.last_error), format('What stops it has to be cleared away; the other tasks and jobs go on. SELECT * FROM jobs.maintenance WHERE task = %L;', t.task)
           FROM jobs.maintenance_task t WHERE t.failures > 0 ORDER BY t.task"
    ),
    &[],
);

// Only snapshots of this database keep its dead rows, and those of standbys.
static OLD_SNAPSHOTS: Plan = Plan::new(
    concat!(
        "SELECT CASE WHEN a.xact_start < clock_timestamp() - 12 * $1 THEN 'critical' ELSE 'warning' END, 'old_snapshot',
                format('a transaction has been open for %s: %s', ",
        age!("a.xact_start"),
        ", ",
        who!("a"),
        "), format('Dead rows of every table stay until it ends. To end it: SELECT pg_terminate_backend(%s);', a.pid)
           FROM pg_catalog.pg_stat_get_activity(NULL) a
          WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start < clock_timestamp() - $1
            AND (a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) OR a.backend_type = 'walsender')
            AND a.backend_type <> 'autovacuum worker'
          ORDER BY a.xact_start"
    ),
    &[SPAN],
);

static PREPARED: Plan = Plan::new(
    concat!(
        "SELECT CASE WHEN p.prepared < clock_timestamp() - 12 * $1 THEN 'critical' ELSE 'warning' END, 'old_snapshot',
                format('transaction %L of user %s has been prepared for %s', p.gid, (SELECT u.rolname FROM pg_catalog.pg_roles u WHERE u.oid = p.ownerid), ",
        age!("p.prepared"),
        "), format('It holds its locks and keeps dead rows until it ends: COMMIT PREPARED %L; or ROLLBACK PREPARED %1$L;', p.gid)
           FROM pg_catalog.pg_prepared_xact() p
          WHERE p.dbid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
            AND p.prepared < clock_timestamp() - $1
          ORDER BY p.prepared"
    ),
    &[SPAN],
);

// How old a slot or a standby's feedback is cannot be seen, only how many transactions ago it was.
static SLOTS: Plan = Plan::new(
    "SELECT CASE WHEN o.transactions < 10000000 THEN 'warning' ELSE 'critical' END, 'old_snapshot',
            format('%s keeps dead rows of the last %s transactions', o.whose, o.transactions), o.hint
       FROM (SELECT format('replication slot %L', s.slot_name) AS whose, age(s.xmin) AS transactions,
                    format('If nobody uses it any more: SELECT pg_drop_replication_slot(%L);', s.slot_name) AS hint
               FROM pg_catalog.pg_get_replication_slots() s WHERE s.xmin IS NOT NULL
             UNION ALL
             SELECT format('the standby of process %s (%s)', a.pid, a.application_name), age(a.backend_xmin),
                    format('A long query there, by hot_standby_feedback. Which standby: SELECT * FROM pg_stat_replication WHERE pid = %s;', a.pid)
               FROM pg_catalog.pg_stat_get_activity(NULL) a WHERE a.backend_type = 'walsender' AND a.backend_xmin IS NOT NULL) o
      WHERE o.transactions > 1000000",
    &[],
);

static OLDEST_AVAILABLE: Plan = Plan::new(
    concat!(
        heads!(),
        "SELECT CASE WHEN o.since < clock_timestamp() - 12 * $1 THEN 'critical' ELSE 'warning' END, 'oldest_available',
                format('the oldest available job of queue %s has waited %s', o.queue, ",
        age!("o.since"),
        "), format('Why: SELECT * FROM jobs.explain(%s); Who works: SELECT * FROM jobs.workers; If nobody wants it: SELECT jobs.cancel(%1$s);', o.id),
                count(*) OVER () AS total, format('queues have available jobs that have waited for more than %s', $1) AS many,
                'SELECT queue, available, oldest_available_at FROM jobs.queues WHERE NOT paused ORDER BY oldest_available_at LIMIT 20;' AS hint_for_all
           FROM (SELECT h.queue, min(h.since) AS since, (array_agg(h.id ORDER BY h.since))[1] AS id FROM head h GROUP BY h.queue) o
          WHERE o.since < clock_timestamp() - $1
            AND NOT EXISTS (SELECT FROM jobs.queue q WHERE q.queue = o.queue AND q.paused_at IS NOT NULL)
          ORDER BY o.since LIMIT 20"
    ),
    &[SPAN],
);

static DISCARDED: Plan = Plan::new(
    "SELECT 'warning', 'discarded', format('%s jobs were discarded in the last hour', CASE WHEN d.n > 10000 THEN 'more than 10000' ELSE d.n::text END),
            'Why: SELECT job_id, error FROM jobs.errors WHERE at > now() - interval ''1 hour'' ORDER BY at DESC LIMIT 10; To try them again: SELECT jobs.retry_many(states => ''{discarded}'', failed_after => now() - interval ''1 hour'');'
       FROM (SELECT count(*) AS n
               FROM (SELECT FROM jobs.finished f
                      WHERE f.state = 'discarded' AND f.is_kept IN (false, true) AND f.finalized_at > clock_timestamp() - interval '1 hour' LIMIT 10001) x) d
      WHERE d.n > 0",
    &[],
);

static EXPIRED_LEASES: Plan = Plan::new(
    "SELECT 'warning', 'expired_leases', format('%s running jobs have had no lease for more than a minute and were not rescued', e.n),
            'Maintenance does that: SELECT * FROM jobs.maintenance; By hand: SELECT * FROM jobs.maintain();'
       FROM (SELECT count(*) AS n FROM jobs.running r WHERE r.lease_expires_at < clock_timestamp() - interval '1 minute') e
      WHERE e.n > 0 AND NOT pg_catalog.pg_is_in_recovery()",
    &[],
);

static BLOAT: Plan = Plan::new(
    "SELECT 'warning', 'bloat', format('table jobs.%s has %s dead rows and %s live ones', b.relname, b.dead, b.live),
            format('Something keeps vacuum from it (see old_snapshot), or autovacuum does not keep up. By hand: VACUUM jobs.%s;', b.relname)
       FROM (SELECT c.relname, pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead, pg_catalog.pg_stat_get_live_tuples(c.oid) AS live
               FROM pg_catalog.pg_class c WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relkind = 'r') b
      WHERE b.dead > $1 AND b.dead > b.live
      ORDER BY b.dead DESC",
    &[INT8],
);

// Whoever waits for a key has looked at the claims before.
static LOCK_WAITS: Plan = Plan::new(
    concat!(
        "SELECT CASE WHEN l.waitstart < clock_timestamp() - 60 * $1 THEN 'critical' ELSE 'warning' END, 'lock_wait',
                format('%s has waited %s in a transaction that inserts unique jobs, for %s', ",
        who!("a"),
        ", ",
        age!("l.waitstart"),
        ", COALESCE((SELECT string_agg(",
        who!("b"),
        ", ', ') FROM pg_catalog.pg_stat_get_activity(NULL) b WHERE b.pid = ANY (pg_catalog.pg_blocking_pids(l.pid))), 'a prepared transaction')),
                format('It goes on when that transaction ends. Insert at the end of transactions, or with \"wait\": false. What it does: SELECT * FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(%s));', l.pid)
           FROM pg_catalog.pg_lock_status() l JOIN pg_catalog.pg_stat_get_activity(NULL) a ON a.pid = l.pid
          WHERE NOT l.granted AND (l.locktype IN ('advisory', 'transactionid') OR l.locktype = 'tuple' AND l.relation = 'jobs.unique_claim'::pg_catalog.regclass)
            AND a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
            AND l.waitstart < clock_timestamp() - $1
            AND EXISTS (SELECT FROM pg_catalog.pg_lock_status() h
                         WHERE h.pid = l.pid AND h.granted AND h.locktype = 'relation' AND h.database = a.datid
                           AND h.relation = 'jobs.unique_claim'::pg_catalog.regclass)
          ORDER BY l.waitstart LIMIT 50"
    ),
    &[SPAN],
);

// An index is not valid, either, while it is being made.
static CHANGED: Plan = Plan::new(
    "SELECT 'warning', 'table_changed', c.what, c.mend FROM unnest($1, $2, $3) AS c(what, mend, index)
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_stat_get_progress_info('CREATE INDEX') p WHERE p.param7 = c.index)",
    &[TEXTS, TEXTS, INT8S],
);

static FOREIGN_RIGHTS: Plan = Plan::new(
    concat!(
        granted!(),
        "SELECT 'critical', 'foreign_right', format('%s has %s on %s %s', COALESCE(g.role, 'everybody'), g.never, lower(g.kind), g.name),
                format('With that one can have the rights of the extension''s owner. REVOKE %s ON %s %s FROM %s CASCADE;', g.never, g.kind, g.name, g.grantee)
           FROM granted g WHERE g.never IS NOT NULL
          ORDER BY 3"
    ),
    &[],
);

// None comes with the extension, but for the rules that are its views.
static FOREIGN_TRIGGERS: Plan = Plan::new(
    concat!(
        members!(),
        "SELECT 'warning', 'foreign_trigger', o.what, format('It runs with the rights of the extension''s owner, and calls take a slower way because of it, by statements. DROP %s;', o.name)
           FROM (SELECT format('trigger %I on %s calls %s', t.tgname, m.name, t.tgfoid::pg_catalog.regprocedure) AS what, format('TRIGGER %I ON %s', t.tgname, m.name) AS name
                   FROM member m JOIN pg_catalog.pg_trigger t ON t.tgrelid = m.objid
                  WHERE m.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND NOT t.tgisinternal
                 UNION
                 SELECT format('rule %I on %s', r.rulename, m.name), format('RULE %I ON %s', r.rulename, m.name)
                   FROM member m JOIN pg_catalog.pg_rewrite r ON r.ev_class = m.objid
                  WHERE m.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND r.ev_type <> '1') o
          ORDER BY 3"
    ),
    &[],
);

static FOREIGN_OWNERS: Plan = Plan::new(
    concat!(
        members!(),
        "SELECT DISTINCT 'critical', 'foreign_owner', format('%s %s belongs to %s, the extension to %s', lower(m.kind), m.name, o.rolname, e.rolname),
                format('ALTER %s %s OWNER TO %I;', m.kind, m.name, e.rolname)
           FROM member m LEFT JOIN pg_catalog.pg_roles o ON o.oid = m.owner LEFT JOIN pg_catalog.pg_roles e ON e.oid = m.extowner
          WHERE m.owner <> m.extowner
          ORDER BY 3"
    ),
    &[],
);
