//! What may need attention: the facts from which `src/health.rs` decides. Those of jobs, queues and
//! workers are in `health_work.rs`.

use std::collections::HashSet;

use super::direct::shapes;
use super::health_work::{self, Work};
use super::members::{MEMBERS, granted};
use super::run_log::RESTORING;
use super::spi::{Row, Tuples, big, plans, rows};
use super::types::*;
use super::{catalog, clock, config_cache, forwarded};
use crate::pg::changed::{self, Difference};
use crate::pg::time;
use crate::settings;
use crate::shmem::{self, databases};

/// From when on something is a finding, in microseconds; `None`: never.
#[derive(Default)]
pub struct Thresholds {
    /// The age of a snapshot.
    pub old_snapshot: Option<i64>,
    /// How long a job has been available.
    pub oldest_available: Option<i64>,
    /// How long a session has waited for a key.
    pub lock_wait: Option<i64>,
    /// Dead rows of a table.
    pub dead_rows: Option<i64>,
}

#[derive(Default)]
pub struct Facts {
    pub now: i64,
    pub from: Thresholds,
    pub worker: Worker,
    pub upkeep: Upkeep,
    /// Tasks whose last run failed.
    pub failing: Vec<Failing>,
    /// Open transactions that keep dead rows of this database.
    pub open: Vec<(i64, Session)>,
    pub prepared: Vec<Prepared>,
    pub replicas: Vec<Replica>,
    /// How far stored times lie ahead of the clock.
    pub ahead: Option<i64>,
    pub put_back: Option<clock::PutBack>,
    pub work: Work,
    /// Outboxes in other databases.
    pub outboxes: Vec<forwarded::Outbox>,
    /// The cell that this database is, if it has a number.
    pub cell: Option<Cell>,
    pub tables: Vec<Table>,
    /// Tables that are not as they were made.
    pub changed: Vec<Difference>,
    pub lock_waits: Vec<LockWait>,
    pub foreign_rights: Vec<Told>,
    /// Triggers and rules of others.
    pub attached: Vec<Told>,
    pub foreign_owners: Vec<Told>,
}

/// The cell that this database is.
pub struct Cell {
    pub cell: i32,
    pub is_retired: bool,
    pub moved_to: Option<String>,
    /// Whether commits wait for a standby.
    pub is_replicated: bool,
    pub strays: Vec<Stray>,
}

/// What the background worker depends on.
#[derive(Default)]
pub struct Worker {
    pub database: String,
    pub is_preloaded: bool,
    pub is_enabled: bool,
    /// It maintains this database, by the settings.
    pub is_to_come: bool,
    /// How many databases have a place in shared memory, where this one has none.
    pub without_place: Option<usize>,
}

rows! {
    /// How maintenance is.
    #[derive(Default)]
    pub struct Upkeep {
        pub last_run_at: Option<i64>,
        /// When the oldest job was inserted, where no task has ever run.
        pub first_job_at: Option<i64>,
        pub server_started_at: i64,
        pub has_launcher: bool,
        pub max_worker_processes: i32,
        pub is_standby: bool,
        pub is_being_restored: bool,
        pub paused_at: Option<i64>,
        pub paused_by: Option<String>,
    }

    /// A task whose last run failed.
    pub struct Failing {
        pub task: String,
        /// In a row.
        pub failures: i32,
        pub last_error_at: i64,
        pub last_error: String,
    }

    /// A process of the server.
    pub struct Session {
        pub pid: i32,
        pub backend_type: Option<String>,
        pub user: Option<String>,
        pub application_name: Option<String>,
        pub state: Option<String>,
    }

    pub struct Prepared {
        pub gid: String,
        pub user: Option<String>,
        pub prepared: i64,
    }

    /// What keeps dead rows for another server: a slot, or the process of a standby.
    pub struct Replica {
        pub pid: Option<i32>,
        pub name: String,
        /// For how many transactions it has kept them. Its age is not known.
        pub transactions: i64,
    }

    /// A queue that this cell does not take, with jobs here or a periodic job that inserts there.
    pub struct Stray {
        pub queue: String,
        pub periodic: Option<String>,
    }

    pub struct Table {
        pub name: String,
        /// Rows.
        pub dead: i64,
        pub live: i64,
    }

    /// A finding in words.
    pub struct Told {
        pub message: String,
        pub hint: String,
    }
}

/// A session that waits for a unique key.
pub struct LockWait {
    pub waits_since: i64,
    pub waiter: Session,
    /// Those that it waits for, but for prepared transactions.
    pub holders: Vec<Session>,
}

pub fn facts(from: Thresholds, sees_payload: bool) -> Facts {
    let now = time::now();
    let open = |rows: &Tuples, row| Some((rows.given(row, "xact_start"), Session::read(rows, row)));
    Facts {
        now,
        worker: worker(),
        upkeep: UPKEEP.rows(&[]).pop().unwrap_or_default(),
        failing: FAILING.rows(&[]),
        open: OPEN.list(&[], open),
        prepared: PREPARED.rows(&[]),
        replicas: REPLICAS.rows(&[]),
        ahead: clock::lies_ahead(now),
        put_back: clock::put_back(),
        work: health_work::facts(&from, now, sees_payload),
        outboxes: forwarded::outboxes(),
        cell: config_cache::here().map(|here| Cell {
            cell: here.cell,
            is_retired: here.is_retired,
            moved_to: here.moved_to.clone(),
            is_replicated: IS_REPLICATED.value(&[]) == Some(true),
            strays: STRAYS.rows(&[]),
        }),
        tables: TABLES.rows(&[]),
        changed: changed(),
        lock_waits: from.lock_wait.map_or_else(Vec::new, |wait| lock_waits(now - wait)),
        foreign_rights: FOREIGN_RIGHTS.rows(&[]),
        attached: ATTACHED.rows(&[]),
        foreign_owners: FOREIGN_OWNERS.rows(&[]),
        from,
    }
}

fn worker() -> Worker {
    let database = catalog::database();
    Worker {
        is_preloaded: shmem::is_preloaded(),
        is_enabled: settings::ENABLED.get(),
        is_to_come: settings::covers(&database),
        without_place: databases::is_beyond().then(databases::place_count),
        database,
    }
}

/// The sessions that have waited since then, and for which ones.
fn lock_waits(since: i64) -> Vec<LockWait> {
    let mut waits: Vec<LockWait> = Vec::new();
    LOCK_WAITS.list(&[big(since)], |rows, row| {
        let session = Session::read(rows, row);
        match rows.get(row, "waitstart") {
            Some(waits_since) => {
                waits.push(LockWait { waits_since, waiter: session, holders: Vec::new() })
            }
            None => waits.last_mut()?.holders.push(session),
        }
        Some(())
    });
    waits
}

/// Tables that are not as they were made. An index is not valid, either, while it is being made.
fn changed() -> Vec<Difference> {
    let made: HashSet<i64> = INDEXES_BEING_MADE.values(&[]).into_iter().collect();
    let is_made = |found: &Difference| {
        let index = found.index.map(|index| i64::from(index.to_u32()));
        index.is_some_and(|index| made.contains(&index))
    };
    let written = shapes::WRITTEN.into_iter().map(|shape| (shape, true));
    let read = shapes::READ.into_iter().map(|shape| (shape, false));
    let all = written.chain(read);
    let found = all.flat_map(|(shape, is_written)| changed::differences(shape, is_written));
    found.filter(|found| !is_made(found)).collect()
}

// The first line of an error, for people.
pub(super) fn line(error: &str) -> String {
    format!(r"left(split_part({error}, E'\n', 1), 200)")
}

// What a session is.
fn session(of: &str) -> String {
    format!(
        "{of}.pid, {of}.backend_type, (SELECT u.rolname::text FROM pg_catalog.pg_roles u WHERE u.oid = {of}.usesysid) AS user, {of}.application_name, {of}.state"
    )
}

const THIS_DATABASE: &str =
    "(SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())";

plans! {
    UPKEEP() =
        "SELECT m.last_run_at, CASE WHEN m.last_run_at IS NULL THEN (SELECT j.created_at FROM jobs.job j ORDER BY j.id LIMIT 1) END AS first_job_at,
                pg_catalog.pg_postmaster_start_time() AS server_started_at,
                EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(NULL) a WHERE a.backend_type = 'jobs launcher') AS has_launcher,
                pg_catalog.current_setting('max_worker_processes')::integer AS max_worker_processes, pg_catalog.pg_is_in_recovery() AS is_standby, {RESTORING} AS is_being_restored, p.paused_at, p.paused_by
           FROM (SELECT max(m.last_run_at) AS last_run_at FROM jobs.maintenance m) m LEFT JOIN jobs.maintenance_pause p ON true";
    FAILING() =
        "SELECT t.task, t.failures, t.last_error_at, t.last_error FROM jobs.maintenance_task t WHERE t.failures > 0 ORDER BY t.task";
    // Only snapshots of this database keep its dead rows, and those of standbys.
    OPEN() =
        "SELECT a.xact_start, {session}
           FROM pg_catalog.pg_stat_get_activity(NULL) a
          WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start IS NOT NULL
            AND (a.datid = {THIS_DATABASE} OR a.backend_type = 'walsender') AND a.backend_type <> 'autovacuum worker'
          ORDER BY a.xact_start",
        session = session("a");
    PREPARED() =
        "SELECT p.gid, (SELECT u.rolname::text FROM pg_catalog.pg_roles u WHERE u.oid = p.ownerid) AS user, p.prepared
           FROM pg_catalog.pg_prepared_xact() p WHERE p.dbid = {THIS_DATABASE} ORDER BY p.prepared";
    REPLICAS() =
        "SELECT NULL::integer AS pid, s.slot_name::text AS name, age(s.xmin)::bigint AS transactions
           FROM pg_catalog.pg_get_replication_slots() s WHERE s.xmin IS NOT NULL
         UNION ALL
         SELECT a.pid, a.application_name, age(a.backend_xmin)
           FROM pg_catalog.pg_stat_get_activity(NULL) a WHERE a.backend_type = 'walsender' AND a.backend_xmin IS NOT NULL";
    TABLES() =
        "SELECT c.relname::text AS name, pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead, pg_catalog.pg_stat_get_live_tuples(c.oid) AS live
           FROM pg_catalog.pg_class c WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relkind = 'r' ORDER BY 2 DESC";
    // A session that waits for a key has looked at the claims before. Behind each that waits are
    // those that it waits for.
    LOCK_WAITS(AT) =
        "WITH waiter AS MATERIALIZED (
           SELECT l.waitstart, row_number() OVER (ORDER BY l.waitstart) AS n, {session}
             FROM pg_catalog.pg_lock_status() l JOIN pg_catalog.pg_stat_get_activity(NULL) a ON a.pid = l.pid
            WHERE NOT l.granted AND (l.locktype IN ('advisory', 'transactionid') OR l.locktype = 'tuple' AND l.relation = 'jobs.unique_claim'::pg_catalog.regclass)
              AND a.datid = {THIS_DATABASE}
              AND l.waitstart < $1
              AND EXISTS (SELECT FROM pg_catalog.pg_lock_status() h
                           WHERE h.pid = l.pid AND h.granted AND h.locktype = 'relation' AND h.database = a.datid
                             AND h.relation = 'jobs.unique_claim'::pg_catalog.regclass)
            ORDER BY l.waitstart LIMIT 50)
         SELECT w.n, w.waitstart, w.pid, w.backend_type, w.user, w.application_name, w.state FROM waiter w
         UNION ALL
         SELECT w.n, NULL, {holder}
           FROM waiter w, LATERAL (SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids(w.pid)) AS pid) p
           JOIN pg_catalog.pg_stat_get_activity(NULL) b ON b.pid = p.pid
          ORDER BY n, waitstart",
        session = session("a"),
        holder = session("b");
    IS_REPLICATED() = "SELECT current_setting('synchronous_standby_names') <> ''";
    STRAYS() =
        "SELECT s.queue, s.periodic
           FROM (
             SELECT q.queue, NULL::text AS periodic FROM jobs.queues q
              WHERE q.available + q.scheduled + q.pending + q.running + q.retryable + q.completed + q.cancelled + q.discarded > 0
             UNION ALL
             SELECT COALESCE(p.queue, k.queue, 'default'), p.name FROM jobs.periodic_schedule p LEFT JOIN jobs.kind k ON k.kind = p.kind) s
          WHERE NOT jobs.takes_queue(s.queue)
          ORDER BY s.periodic IS NOT NULL, s.queue, s.periodic LIMIT 20";
    INDEXES_BEING_MADE() =
        "SELECT p.param7 FROM pg_catalog.pg_stat_get_progress_info('CREATE INDEX') p";
    FOREIGN_RIGHTS() =
        "{granted}SELECT format('%s has %s on %s %s', COALESCE(g.role::text, 'PUBLIC'), g.never, lower(g.kind), g.name) AS message,
                format('This gives the rights of the extension''s owner. REVOKE %s ON %s %s FROM %s CASCADE;',
                       g.never, g.kind, g.name, g.grantee) AS hint
           FROM granted g WHERE g.never IS NOT NULL ORDER BY g.role::text, g.never, g.kind, g.name",
        granted = granted();
    // None comes with the extension, but for the rules that are its views.
    ATTACHED() =
        "{MEMBERS}SELECT format('%s %s on %s%s', lower(a.kind), a.name, a.of, ' calls ' || a.calls) AS message,
                format('It runs with the rights of the extension''s owner and makes calls slower. DROP %s %s ON %s;',
                       a.kind, a.name, a.of) AS hint
           FROM (SELECT 'TRIGGER' AS kind, quote_ident(t.tgname) AS name, m.name AS of, t.tgfoid::pg_catalog.regprocedure::text AS calls
                   FROM member m JOIN pg_catalog.pg_trigger t ON t.tgrelid = m.objid
                  WHERE m.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND NOT t.tgisinternal
                 UNION
                 SELECT 'RULE', quote_ident(r.rulename), m.name, NULL
                   FROM member m JOIN pg_catalog.pg_rewrite r ON r.ev_class = m.objid
                  WHERE m.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND r.ev_type <> '1') a
          ORDER BY a.kind, a.name, a.of";
    FOREIGN_OWNERS() =
        "{MEMBERS}SELECT format('%s %s is owned by %s, the extension by %s', lower(o.kind), o.name, o.owner, o.should) AS message,
                format('ALTER %s %s OWNER TO %s;', o.kind, o.name, o.quoted) AS hint
           FROM (SELECT DISTINCT m.kind, m.name, COALESCE(o.rolname::text, m.owner::text) AS owner,
                        COALESCE(e.rolname::text, m.extowner::text) AS should, COALESCE(quote_ident(e.rolname), m.extowner::text) AS quoted
                   FROM member m LEFT JOIN pg_catalog.pg_roles o ON o.oid = m.owner LEFT JOIN pg_catalog.pg_roles e ON e.oid = m.extowner
                  WHERE m.owner <> m.extowner) o
          ORDER BY o.kind, o.name";
}
