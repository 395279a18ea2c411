//! What needs attention: a function for each finding, which answers none where all is well.
//! [`FINDINGS`] has them in the order in which findings of one severity are shown.

use std::collections::HashMap;

use jobs_core::words::{behind_colon, by, duration, literal, many, number, quoted_name};

use crate::pg::time::read_interval;
use crate::settings;
use crate::store::forwarded::Outbox;
use crate::store::health::{Cell, Facts, Failing, LockWait, Session, Table, Told};
use crate::store::health_work::{self, COUNTED, Completed, Failed, Long, Usual};

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Critical,
    Warning,
    Info,
}
use Severity::{Critical, Info, Warning};

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Critical => "critical",
            Warning => "warning",
            Info => "info",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub message: String,
    /// What to do, with a statement that runs as it stands.
    pub hint: String,
}

impl Finding {
    fn new(severity: Severity, message: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { severity, message: message.into(), hint: hint.into() }
    }
}

macro_rules! by_name {
    ($($finding:ident)*) => {
        &[$((stringify!($finding), $finding)),*]
    };
}

type Look = fn(&Facts) -> Vec<Finding>;

/// Every finding that there can be, by its name.
const FINDINGS: &[(&str, Look)] = by_name! {
    worker_not_running no_place maintenance_paused restoring maintenance_failing
    old_snapshot oldest_available discarded expired_leases clock_moved
    mostly_failing running_long queue_paused limit_paused key_blocked lost_worker no_worker periodic_failed
    forward_behind forward_refused
    cell_retired cell_unreplicated placements_differ
    bloat table_changed lock_wait foreign_right foreign_trigger foreign_owner
};

/// What the facts amount to, each with its name, the worst first.
pub fn findings(facts: &Facts) -> Vec<(&'static str, Finding)> {
    let look = |(name, look): &(&'static str, Look)| {
        let found = look(facts).into_iter();
        let name = *name;
        found.map(move |finding| (name, finding))
    };
    let mut findings: Vec<_> = FINDINGS.iter().flat_map(look).collect();
    findings.sort_by_key(|(_, finding)| finding.severity);
    findings
}

const MINUTE: i64 = 60_000_000;

/// What has lasted for so many times as long as makes it a finding is critical.
fn by_age(age: i64, from: i64, times: i64) -> Severity {
    if age > from * times { Critical } else { Warning }
}

/// Findings of a kind as they are shown. More than a few are one, with the worst of them.
fn grouped<T>(
    all: &[T],
    single: impl Fn(&T) -> Finding,
    many: &str,
    hint_for_all: &str,
) -> Vec<Finding> {
    const MOST_ALIKE: usize = 5;
    const WORST: usize = 3;
    if all.len() <= MOST_ALIKE {
        return all.iter().map(single).collect();
    }
    let worst: Vec<Finding> = all.iter().take(WORST).map(single).collect();
    let messages: Vec<&str> = worst.iter().map(|one| one.message.as_str()).collect();
    let count = all.len();
    let at_least = if count as i64 >= COUNTED { "at least " } else { "" };
    vec![Finding {
        message: format!(
            "{at_least}{} {many}; the worst: {}",
            number(count as i64),
            messages.join("; ")
        ),
        hint: hint_for_all.into(),
        ..worst[0].clone()
    }]
}

// Another session may be calling jobs.maintain(): then all is well. The launcher sends a worker
// once a minute. Where none has ever come, the oldest job says for how long one could have.
fn worker_not_running(facts: &Facts) -> Vec<Finding> {
    const FOR_LONG: i64 = 10 * MINUTE;
    const SOON: i64 = 5 * MINUTE;
    let (worker, upkeep) = (&facts.worker, &facts.upkeep);
    let is_visited =
        worker.is_preloaded && worker.is_enabled && worker.is_to_come && upkeep.has_launcher;
    if is_visited && upkeep.server_started_at >= facts.now - SOON {
        return Vec::new();
    }
    let (message, hint) = if !worker.is_preloaded {
        (
            "there is no background worker, as the library is not preloaded, and jobs.maintain() has not been called for 10 minutes",
            "Add jobs to shared_preload_libraries and restart the server, or run this every few seconds: SELECT * FROM jobs.maintain();".into(),
        )
    } else if !worker.is_enabled {
        (
            "the background worker is disabled by jobs.enabled",
            "ALTER SYSTEM SET jobs.enabled = on; SELECT pg_reload_conf();".into(),
        )
    } else if !worker.is_to_come {
        (
            "the background worker skips this database, which jobs.databases does not list",
            settings::hint_to_cover(&worker.database),
        )
    } else if !upkeep.has_launcher {
        (
            "the launcher of the background worker is not running",
            "The server's log has the reason; the launcher restarts after 5 seconds. Until then: SELECT * FROM jobs.maintain();".into(),
        )
    } else {
        (
            "the background worker has not visited this database for 5 minutes",
            format!(
                "The server may have no worker process left: ALTER SYSTEM SET max_worker_processes = {}; then restart it. Until then: SELECT * FROM jobs.maintain();",
                upkeep.max_worker_processes + 8
            ),
        )
    };
    let (never, tolerated) = match is_visited {
        true => (upkeep.first_job_at, SOON),
        false => (Some(i64::MIN), FOR_LONG),
    };
    let is_retired = facts.cell.as_ref().is_some_and(|cell| cell.is_retired);
    let is_to_run = !upkeep.is_standby
        && upkeep.paused_at.is_none()
        && !upkeep.is_being_restored
        && !is_retired;
    let last = upkeep.last_run_at.or(never);
    let is_late = is_to_run && last.is_some_and(|at| at < facts.now - tolerated);
    let found = is_late.then(|| Finding::new(Critical, message, hint));
    found.into_iter().collect()
}

fn no_place(facts: &Facts) -> Vec<Finding> {
    let single = |places| {
        let message = format!(
            "more than {places} databases of this server have the extension: the background worker visits this one every few seconds, and commits do not wake it"
        );
        let hint = "Drop the extension where it is not used. All databases: SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname;";
        Finding::new(Warning, message, hint)
    };
    facts.worker.without_place.map(single).into_iter().collect()
}

fn maintenance_paused(facts: &Facts) -> Vec<Finding> {
    let upkeep = &facts.upkeep;
    let single = |(since, who): (i64, &String)| {
        let message =
            format!("maintenance was paused by {who} {} ago", duration(facts.now - since));
        Finding::new(Warning, message, "SELECT jobs.resume_maintenance();")
    };
    let pause = upkeep.paused_at.zip(upkeep.paused_by.as_ref());
    pause.map(single).into_iter().collect()
}

fn restoring(facts: &Facts) -> Vec<Finding> {
    let message = "maintenance is waiting for pg_restore, which is connected to this database";
    let hint = "Maintenance continues when pg_restore is done. Its sessions: SELECT * FROM pg_stat_activity WHERE application_name = 'pg_restore' AND datname = current_database();";
    let is_restored = facts.upkeep.is_being_restored;
    let found = is_restored.then(|| Finding::new(Info, message, hint));
    found.into_iter().collect()
}

fn maintenance_failing(facts: &Facts) -> Vec<Finding> {
    let single = |task: &Failing| {
        let severity = if task.failures < 10 { Warning } else { Critical };
        let message = format!(
            "task {} has failed {} in a row, most recently {} ago: {}",
            task.task,
            many(task.failures.into(), "time"),
            duration(facts.now - task.last_error_at),
            task.last_error
        );
        let hint = format!(
            "Fix the cause; jobs and the other tasks continue. SELECT * FROM jobs.maintenance WHERE task = {};",
            literal(&task.task)
        );
        Finding::new(severity, message, hint)
    };
    facts.failing.iter().map(single).collect()
}

// How old a slot or a standby's feedback is cannot be seen, only how many transactions ago it was.
fn old_snapshot(facts: &Facts) -> Vec<Finding> {
    const MANY_TRANSACTIONS: i64 = 1_000_000;
    let mut found = Vec::new();
    if let Some(from) = facts.from.old_snapshot {
        let old = |since: i64| Some(facts.now - since).filter(|age| *age > from);
        let mut add = |age: i64, message, hint| {
            let severity = by_age(age, from, 12);
            found.push(Finding::new(severity, message, hint));
        };
        for (since, session) in &facts.open {
            let Some(age) = old(*since) else { continue };
            add(
                age,
                format!("a transaction has been open for {}: {}", duration(age), who(session)),
                format!(
                    "It keeps the dead rows of every table until it ends. To end it: SELECT pg_terminate_backend({});",
                    session.pid
                ),
            );
        }
        for one in &facts.prepared {
            let Some(age) = old(one.prepared) else {
                continue;
            };
            let (gid, user) = (literal(&one.gid), one.user.as_deref().unwrap_or("-"));
            add(
                age,
                format!(
                    "prepared transaction {gid} of user {user} has been open for {}",
                    duration(age)
                ),
                format!(
                    "It holds its locks and keeps dead rows until it ends: COMMIT PREPARED {gid}; or ROLLBACK PREPARED {gid};"
                ),
            );
        }
    }
    for replica in &facts.replicas {
        let transactions = replica.transactions;
        if transactions <= MANY_TRANSACTIONS {
            continue;
        }
        let severity = by_age(transactions, MANY_TRANSACTIONS, 10);
        let (whose, hint) = match replica.pid {
            Some(pid) => (
                format!("the standby of process {pid} ({})", replica.name),
                format!(
                    "A long query on the standby keeps them (hot_standby_feedback). Which standby: SELECT * FROM pg_stat_replication WHERE pid = {pid};"
                ),
            ),
            None => {
                let name = literal(&replica.name);
                let hint =
                    format!("If it is no longer used: SELECT pg_drop_replication_slot({name});");
                (format!("replication slot {name}"), hint)
            }
        };
        let message = format!(
            "{whose} keeps the dead rows of the last {} transactions",
            number(transactions)
        );
        found.push(Finding::new(severity, message, hint));
    }
    found
}

fn oldest_available(facts: &Facts) -> Vec<Finding> {
    let Some(from) = facts.from.oldest_available else {
        return Vec::new();
    };
    let oldest = &facts.work.oldest;
    let late = oldest.partition_point(|one| facts.now - one.since > from);
    grouped(
        &oldest[..late],
        |one| {
            let (queue, id, age) = (quoted_name(&one.queue), one.id, facts.now - one.since);
            Finding::new(
                by_age(age, from, 12),
                format!(
                    "the oldest available job of queue {queue} has been waiting for {}",
                    duration(age)
                ),
                format!(
                    "Why: SELECT * FROM jobs.explain({id}); Workers: SELECT * FROM jobs.workers; If it is not needed: SELECT jobs.cancel({id});"
                ),
            )
        },
        &format!("queues have jobs that have been available for more than {}", duration(from)),
        "SELECT queue, available, oldest_available_at FROM jobs.queues WHERE NOT paused ORDER BY oldest_available_at LIMIT 20;",
    )
}

fn discarded(facts: &Facts) -> Vec<Finding> {
    let jobs = match facts.work.discarded {
        0 => return Vec::new(),
        1 => "1 job was".into(),
        jobs => up_to(jobs, health_work::MOST_DISCARDED) + " jobs were",
    };
    let message = format!("{jobs} discarded in the last hour");
    let hint = "Why: SELECT job_id, error FROM jobs.errors WHERE at > now() - interval '1 hour' ORDER BY at DESC LIMIT 10; To retry them: SELECT jobs.retry_many(states => '{discarded}', failed_after => now() - interval '1 hour');";
    vec![Finding::new(Warning, message, hint)]
}

/// A number that was counted no further than one above `most`.
fn up_to(count: i64, most: i64) -> String {
    match count > most {
        true => format!("more than {}", number(most)),
        false => number(count),
    }
}

fn expired_leases(facts: &Facts) -> Vec<Finding> {
    let jobs = match facts.work.expired_leases {
        _ if facts.upkeep.is_standby => return Vec::new(),
        0 => return Vec::new(),
        1 => "the lease of 1 running job".into(),
        jobs => format!("the leases of {} running jobs", number(jobs)),
    };
    let message = format!("{jobs} expired more than a minute ago without a rescue");
    let hint = "Maintenance rescues jobs: SELECT * FROM jobs.maintenance; By hand: SELECT * FROM jobs.maintain();";
    vec![Finding::new(Warning, message, hint)]
}

// What is yet to be brought forward, or else what was.
fn clock_moved(facts: &Facts) -> Vec<Finding> {
    let (message, hint) = match (facts.ahead, &facts.put_back) {
        (Some(ahead), _) => (
            format!(
                "stored times are up to {} ahead of the clock; maintenance corrects them within a minute",
                duration(ahead)
            ),
            "Now: SELECT * FROM jobs.maintain();",
        ),
        (None, Some(cut)) => (
            format!(
                "the clock was put back: {} stored times up to {} ahead of it were corrected {} ago",
                cut.times,
                read_interval(&cut.ahead).map_or(cut.ahead.clone(), |ahead| {
                    duration(ahead.approximate_micros() as i64)
                }),
                duration(facts.now - cut.at)
            ),
            "What a wrong clock leaves behind: docs/operations/clock.md. When it was: SELECT * FROM jobs.audit WHERE action = 'clock put back' ORDER BY at DESC;",
        ),
        (None, None) => return Vec::new(),
    };
    vec![Finding::new(Warning, message, hint)]
}

/// A kind or queue of which most attempts fail.
struct MostlyFailing<'a> {
    what: &'static str,
    name: &'a str,
    attempts: i64,
    completed: i64,
    latest: &'a Failed,
}

// Where more jobs were completed than are looked at, those before are reckoned by these, and so
// that a kind of which chance shows too few is not a finding. A queue is told of where none of its
// kinds is.
fn mostly_failing(facts: &Facts) -> Vec<Finding> {
    let work = &facts.work;
    let kinds = mostly_failing_by("kind", facts, |one| &one.kind, |one| &one.kind);
    let mut queues = mostly_failing_by("queue", facts, |one| &one.queue, |one| &one.queue);
    let is_told = |queue: &str| {
        let mut of_queue = work.failed.iter().filter(|failed| failed.queue == queue);
        of_queue.any(|failed| kinds.iter().any(|kind| kind.name == failed.kind))
    };
    queues.retain(|queue| !is_told(queue.name));
    let mut found: Vec<MostlyFailing> = kinds.into_iter().chain(queues).collect();
    found.sort_by_key(|one| -one.attempts);
    let single = |one: &MostlyFailing| {
        let MostlyFailing { what, name, attempts, completed, latest } = one;
        let error = behind_colon(health_work::error_of(latest).as_deref());
        let (attempts, completed) = (number(*attempts), many(*completed, "job"));
        let quoted_name = quoted_name(name);
        let message = format!(
            "{attempts} attempts of {what} {quoted_name} failed in the last 10 minutes, and {completed} completed{error}"
        );
        let hint = format!(
            "SELECT e.* FROM jobs.errors e JOIN jobs.jobs j ON j.id = e.job_id WHERE j.{what} = {} ORDER BY e.at DESC LIMIT 10; To save attempts until it is fixed: SELECT jobs.pause_queue({});",
            literal(name),
            literal(&latest.queue)
        );
        Finding::new(Warning, message, hint)
    };
    found.iter().take(20).map(single).collect()
}

fn mostly_failing_by<'a>(
    what: &'static str,
    facts: &'a Facts,
    failed_name: impl Fn(&'a Failed) -> &'a str,
    completed_name: impl Fn(&'a Completed) -> &'a str,
) -> Vec<MostlyFailing<'a>> {
    let work = &facts.work;
    let seen: i64 = work.completed.iter().map(|completed| completed.jobs).sum();
    let first = work.completed.iter().map(|completed| completed.since).min();
    let (unseen, times) = match first {
        Some(first) if seen >= health_work::LATEST => {
            let span = (facts.now - first).max(1_000);
            (3, (health_work::LATELY as f64 / span as f64).max(1.0))
        }
        _ => (0, 1.0),
    };
    let mut found: Vec<MostlyFailing> = Vec::new();
    let mut places = HashMap::new();
    for failed in &work.failed {
        let name = failed_name(failed);
        let place = *places.entry(name).or_insert(found.len());
        match found.get_mut(place) {
            Some(one) => one.attempts += failed.attempts,
            None => found.push(MostlyFailing {
                what,
                name,
                attempts: failed.attempts,
                completed: 0,
                latest: failed,
            }),
        }
    }
    for completed in &work.completed {
        if let Some(place) = places.get(completed_name(completed)) {
            found[*place].completed += completed.jobs;
        }
    }
    found.retain(|one| {
        let completed = (one.completed + unseen) as f64 * times;
        one.attempts >= health_work::FEWEST_FAILED && one.attempts as f64 > completed
    });
    found
}

fn running_long(facts: &Facts) -> Vec<Finding> {
    let usual = facts.work.usual.iter();
    let usual: HashMap<&str, &Usual> = usual.map(|usual| (&usual.kind[..], usual)).collect();
    let single = |long: &Long| {
        let usual = duration(usual.get(&long.kind[..])?.mostly);
        let (id, kind, age) = (long.job_id, &long.kind, duration(facts.now - long.attempted_at));
        let jobs = match long.jobs {
            1 => format!("1 {kind} job has"),
            jobs => format!("{} {kind} jobs have", number(jobs)),
        };
        let message = format!(
            "{jobs} been running more than 10 times longer than usual (p95 {usual}); the oldest is job {id}, {age}"
        );
        let hint = format!("SELECT jobs.show({id}); To stop it: SELECT jobs.cancel({id});");
        Some(Finding::new(Warning, message, hint))
    };
    facts.work.long.iter().filter_map(single).collect()
}

fn queue_paused(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.paused,
        |one| {
            let queue = format!("queue {}", quoted_name(&one.queue));
            let by = by(one.paused_by.as_deref(), one.pause_reason.as_deref());
            let hint = format!("SELECT jobs.resume_queue({});", literal(&one.queue));
            paused(&queue, facts.now - one.paused_at, &by, one.jobs, "waiting", hint)
        },
        "paused queues have waiting jobs",
        "SELECT queue, paused_at, paused_by, pause_reason FROM jobs.queues WHERE paused ORDER BY paused_at LIMIT 20;",
    )
}

fn limit_paused(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.limits_paused,
        |one| {
            let (limit, name) = (format!("limit {}", quoted_name(&one.name)), literal(&one.name));
            let (what, hint) = match &one.key {
                Some(key) => (
                    format!("key {key} of {limit}"),
                    format!("SELECT jobs.resume_limit({name}, {});", literal(key)),
                ),
                None if one.is_key => (
                    format!("a key of {limit}"),
                    format!(
                        "SELECT * FROM jobs.limit_keys WHERE name = {name} AND paused_at IS NOT NULL;"
                    ),
                ),
                None => (limit, format!("SELECT jobs.resume_limit({name});")),
            };
            let by = by(one.paused_by.as_deref(), one.pause_reason.as_deref());
            paused(&what, facts.now - one.paused_at, &by, one.jobs, "held", hint)
        },
        "paused limits and keys of limits hold jobs",
        "SELECT name, key, held, paused_at FROM jobs.limit_keys WHERE held > 0 ORDER BY paused_at LIMIT 20; SELECT * FROM jobs.limits WHERE paused_at IS NOT NULL;",
    )
}

fn key_blocked(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.keys_blocked,
        |one| {
            let (queue, id) = (quoted_name(&one.queue), one.job_id);
            let (key, hint) = match &one.key {
                Some(key) => (
                    format!("key {key}"),
                    format!("SELECT jobs.unblock({}, {});", literal(&one.queue), literal(key)),
                ),
                None => ("a key".into(), format!("SELECT * FROM jobs.explain({id});")),
            };
            let jobs = jobs_are(one.jobs);
            let detail = format!("discarded job {id} blocks {key} of queue {queue}; {jobs} held");
            Finding::new(Warning, detail, hint)
        },
        "discarded jobs block keys that have waiting jobs",
        "SELECT queue, key, waiting, blocked_by FROM jobs.order_keys WHERE blocked_by IS NOT NULL ORDER BY waiting DESC LIMIT 20;",
    )
}

/// So many jobs do not start since something was paused.
fn paused(what: &str, age: i64, by: &str, jobs: i64, are: &str, hint: String) -> Finding {
    let severity = if age > 60 * MINUTE { Warning } else { Info };
    let (age, jobs) = (duration(age), jobs_are(jobs));
    let message = format!("{what} has been paused for {age}{by}; {jobs} {are}");
    Finding::new(severity, message, hint)
}

fn jobs_are(jobs: i64) -> String {
    match jobs {
        1 => "1 job is".into(),
        jobs => up_to(jobs, COUNTED) + " jobs are",
    }
}

fn lost_worker(facts: &Facts) -> Vec<Finding> {
    let lost = &facts.work.lost;
    let jobs: i64 = lost.iter().map(|one| one.running).sum();
    let last = lost.iter().map(|one| one.last_lease_expires_at).max().unwrap_or(0);
    let left = |until: i64| duration(until - facts.now);
    grouped(
        lost,
        |one| {
            let message = format!(
                "worker {} holds {} and was last seen {} ago; its last lease expires in {}",
                quoted_name(&one.worker),
                many(one.running, "job"),
                duration(facts.now - one.last_seen_at),
                left(one.last_lease_expires_at)
            );
            let hint = format!(
                "Each job is retried when its lease expires. SELECT * FROM jobs.workers WHERE worker = {};",
                literal(&one.worker)
            );
            Finding::new(Warning, message, hint)
        },
        &format!(
            "lost workers hold {}; the last lease expires in {}",
            many(jobs, "job"),
            left(last)
        ),
        "SELECT * FROM jobs.workers WHERE status = 'lost' AND running > 0;",
    )
}

fn no_worker(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.unattended,
        |(queue, fetched_at)| {
            let for_long = fetched_at
                .map_or_else(String::new, |at| format!(" for {}", duration(facts.now - at)));
            let message = format!(
                "no worker has fetched from queue {}{for_long}; its jobs are waiting",
                quoted_name(queue)
            );
            let queue = literal(queue);
            let hint = format!(
                "Start a worker for this queue. Workers that list it: SELECT * FROM jobs.workers WHERE {queue} = ANY (queues); Its jobs: SELECT * FROM jobs.jobs WHERE queue = {queue} AND state = 'available' ORDER BY priority, id LIMIT 10;"
            );
            Finding::new(Warning, message, hint)
        },
        "queues have waiting jobs, and no worker fetches from them",
        "Start workers for these queues. Known workers: SELECT worker, status, queues FROM jobs.workers; The queues: SELECT queue, available, oldest_available_at FROM jobs.queues WHERE NOT paused ORDER BY oldest_available_at LIMIT 20;",
    )
}

fn periodic_failed(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.periodic_failed,
        |one| {
            let (name, error) = (&one.name, &one.error);
            let message = format!(
                "the latest tick of periodic job {} inserted no job: {error}",
                quoted_name(name)
            );
            let hint = format!(
                "SELECT * FROM jobs.periodic WHERE name = {}; It is retried at next_run_at.",
                literal(name)
            );
            Finding::new(Warning, message, hint)
        },
        "periodic jobs have a latest tick that inserted no job",
        "SELECT name, last_error, next_run_at FROM jobs.periodic WHERE last_error IS NOT NULL;",
    )
}

// An outbox that is not reported may have rows that are not known.
fn forward_behind(facts: &Facts) -> Vec<Finding> {
    const TOLERATED: i64 = 5 * MINUTE;
    let mut found = Vec::new();
    for one in &facts.outboxes {
        let (silent, address) = (facts.now - one.seen_at, quoted_name(&one.address));
        let behind = one.oldest_at.map_or(0, |oldest| one.seen_at - oldest);
        let (age, message) = if silent > TOLERATED {
            let of = format!("no forwarder has reported outbox {address} for");
            (silent, format!("{of} {}", duration(silent)))
        } else if behind > TOLERATED {
            let of = format!("the oldest of {} waiting in outbox", many(one.waiting, "row"));
            (behind, format!("{of} {address} is {} old", duration(behind)))
        } else {
            continue;
        };
        let hint = format!(
            "Start pgjobs forward, or see its log. Last report: {OF_OUTBOXES} If the outbox no longer exists: DELETE FROM jobs.forwarder WHERE source = '{}';",
            one.source
        );
        found.push(Finding::new(by_age(age, TOLERATED, 12), message, hint));
    }
    found
}

const OF_OUTBOXES: &str =
    "SELECT metric, labels, value FROM jobs.metrics() WHERE metric LIKE 'jobs_forward%';";

fn forward_refused(facts: &Facts) -> Vec<Finding> {
    let refused = facts.outboxes.iter().filter(|one| one.refused > 0);
    let single = |one: &Outbox| {
        let (rows, address) = (many(one.refused, "row"), quoted_name(&one.address));
        let message = format!("this queue refuses {rows} of outbox {address}");
        let hint = format!(
            "Errors: pgjobs forward --status. In that database, jobs.retry_outbox() retries rows and jobs.drop_outbox(ids) deletes them. All outboxes: {OF_OUTBOXES}"
        );
        Finding::new(Warning, message, hint)
    };
    refused.map(single).collect()
}

fn cell_retired(facts: &Facts) -> Vec<Finding> {
    let single = |cell: &Cell| {
        let number = cell.cell;
        let message = match &cell.moved_to {
            Some(moved_to) => format!("cell {number} is retired: it has moved to {moved_to}"),
            None => format!("cell {number} is retired: this database is a copy of it"),
        };
        let hint =
            "It refuses all writes. If no other copy takes them: SELECT jobs.reinstate_cell();";
        Finding::new(Warning, message, hint)
    };
    facts.cell.iter().filter(|cell| cell.is_retired).map(single).collect()
}

fn cell_unreplicated(facts: &Facts) -> Vec<Finding> {
    let single = |cell: &Cell| {
        let message = format!(
            "cell {} has no synchronous standby: a failover can lose jobs, and their unique keys with them",
            cell.cell
        );
        let hint = "Name standbys in synchronous_standby_names: SELECT * FROM pg_settings WHERE name = 'synchronous_standby_names';";
        Finding::new(Warning, message, hint)
    };
    let is_alone =
        |cell: &&Cell| !cell.is_replicated && !cell.is_retired && !facts.upkeep.is_standby;
    facts.cell.iter().filter(is_alone).map(single).collect()
}

// What this cell alone can tell.
fn placements_differ(facts: &Facts) -> Vec<Finding> {
    let strays = facts.cell.as_ref().map_or(&[][..], |cell| &cell.strays);
    grouped(
        strays,
        |stray| {
            let queue = quoted_name(&stray.queue);
            let (message, hint) = match &stray.periodic {
                Some(name) => (
                    format!(
                        "periodic job {} inserts into queue {queue}, which this cell does not take",
                        quoted_name(name)
                    ),
                    format!(
                        "Define it in the cell of the queue. SELECT * FROM jobs.periodic WHERE name = {};",
                        literal(name)
                    ),
                ),
                None => (
                    format!("queue {queue} has jobs in this cell, which does not take it"),
                    format!(
                        "Place it here with jobs.place_queue, or delete its jobs: SELECT * FROM jobs.jobs WHERE queue = {} LIMIT 10;",
                        literal(&stray.queue)
                    ),
                ),
            };
            Finding::new(Warning, message, hint)
        },
        "queues are used in this cell, which does not take them",
        "SELECT * FROM jobs.placements; SELECT queue FROM jobs.queues;",
    )
}

fn bloat(facts: &Facts) -> Vec<Finding> {
    let Some(from) = facts.from.dead_rows else {
        return Vec::new();
    };
    let has_many = |table: &&Table| table.dead > from && table.dead > table.live;
    let single = |Table { name, dead, live }: &Table| {
        let message = format!(
            "table jobs.{name} has {} and {}",
            many(*dead, "dead row"),
            many(*live, "live row")
        );
        let hint = format!(
            "Something keeps vacuum from removing them (see old_snapshot), or autovacuum does not keep up. By hand: VACUUM jobs.{name};"
        );
        Finding::new(Warning, message, hint)
    };
    facts.tables.iter().filter(has_many).map(single).collect()
}

fn table_changed(facts: &Facts) -> Vec<Finding> {
    let changed = facts.changed.iter();
    let single = changed.map(|one| Finding::new(Warning, &one.what, &one.mend));
    single.collect()
}

fn lock_wait(facts: &Facts) -> Vec<Finding> {
    let from = facts.from.lock_wait.unwrap_or(0);
    let single = |wait: &LockWait| {
        let age = facts.now - wait.waits_since;
        let holders: Vec<String> = wait.holders.iter().map(who).collect();
        let holders = match &holders[..] {
            [] => "a prepared transaction".into(),
            some => some.join(", "),
        };
        let message = format!(
            "{} has been waiting for {} for a unique key of {holders}",
            who(&wait.waiter),
            duration(age)
        );
        let hint = format!(
            "The wait ends with that transaction. Insert at the end of transactions, or with \"wait\": false. What it is doing: SELECT * FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids({}));",
            wait.waiter.pid
        );
        Finding::new(by_age(age, from, 60), message, hint)
    };
    facts.lock_waits.iter().map(single).collect()
}

/// Which process a session is, and whose.
fn who(session: &Session) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let name = session.application_name.iter().filter(|name| !name.is_empty());
    let name: String = name.map(|name| format!(", {name}")).collect();
    format!(
        "process {} ({}, user {}{name}, {})",
        session.pid,
        or_none(&session.backend_type),
        or_none(&session.user),
        or_none(&session.state)
    )
}

fn foreign_right(facts: &Facts) -> Vec<Finding> {
    told(Critical, &facts.foreign_rights)
}

fn foreign_trigger(facts: &Facts) -> Vec<Finding> {
    told(Warning, &facts.attached)
}

fn foreign_owner(facts: &Facts) -> Vec<Finding> {
    told(Critical, &facts.foreign_owners)
}

fn told(severity: Severity, all: &[Told]) -> Vec<Finding> {
    let single = |one: &Told| Finding::new(severity, &one.message, &one.hint);
    all.iter().map(single).collect()
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{Finding, MINUTE, Severity, findings};
    use crate::store::health::{Facts, Prepared, Upkeep, Worker};
    use crate::store::health_work::{Completed, Failed, Long, Lost, Oldest, Usual};

    fn well() -> Facts {
        let now = 1_000 * MINUTE;
        Facts {
            now,
            worker: Worker {
                is_preloaded: true,
                is_enabled: true,
                is_to_come: true,
                ..Worker::default()
            },
            upkeep: Upkeep { has_launcher: true, last_run_at: Some(now), ..Upkeep::default() },
            ..Facts::default()
        }
    }

    fn only(facts: &Facts, name: &str) -> Finding {
        let found = findings(facts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, name);
        found[0].1.clone()
    }

    #[pg_test]
    fn nothing_is_found_where_all_is_well() {
        assert_eq!(findings(&well()), []);
    }

    #[pg_test]
    fn a_worker_is_missed_unless_somebody_maintains() {
        let mut facts = well();
        facts.worker.is_enabled = false;
        assert_eq!(findings(&facts), [], "somebody calls jobs.maintain()");
        facts.upkeep.last_run_at = Some(facts.now - 11 * MINUTE);
        let found = only(&facts, "worker_not_running");
        assert_eq!(found.severity, Severity::Critical);
        facts.worker.is_enabled = true;
        let found = only(&facts, "worker_not_running");
        assert!(found.hint.contains("max_worker_processes = 8;"), "{found:?}");
        facts.upkeep.is_standby = true;
        assert_eq!(findings(&facts), []);
    }

    #[pg_test]
    fn names_are_quoted_where_a_hint_runs() {
        let mut facts = well();
        facts.from.old_snapshot = Some(MINUTE);
        facts.prepared.push(Prepared {
            gid: r"it's\".into(),
            user: None,
            prepared: facts.now - 13 * MINUTE,
        });
        let found = only(&facts, "old_snapshot");
        assert_eq!(found.severity, Severity::Critical);
        assert!(
            found.hint.ends_with(r"COMMIT PREPARED E'it''s\\'; or ROLLBACK PREPARED E'it''s\\';")
        );
    }

    #[pg_test]
    fn the_oldest_are_found_from_a_threshold_on_and_many_are_one() {
        let mut facts = well();
        let wait = |facts: &mut Facts, minutes: i64| {
            let since = facts.now - minutes * MINUTE;
            let (queue, id) = (format!("q{minutes}"), 7);
            facts.work.oldest.push(Oldest { queue, since, id });
        };
        (0..5).for_each(|n| wait(&mut facts, 20 - n));
        wait(&mut facts, 5);
        assert_eq!(findings(&facts), [], "no threshold");
        facts.from.oldest_available = Some(5 * MINUTE);
        assert_eq!(findings(&facts).len(), 5);
        facts.work.oldest.pop();
        wait(&mut facts, 6);
        let found = only(&facts, "oldest_available");
        assert!(found.message.starts_with("6 queues have "), "{found:?}");
        assert!(!found.message.contains("q17"), "{found:?}");
    }

    /// So many attempts of some kinds and queues failed, and jobs were completed.
    fn failed(attempts: &[(&str, &str, i64)], completed: &[(&str, &str, i64)]) -> Facts {
        let mut facts = well();
        let now = facts.now;
        let failed = attempts.iter().map(|&(kind, queue, attempts)| Failed {
            kind: kind.into(),
            queue: queue.into(),
            attempts,
            at: now,
            job_id: 0,
        });
        let completed = completed.iter().map(|&(kind, queue, jobs)| Completed {
            kind: kind.into(),
            queue: queue.into(),
            jobs,
            since: now - MINUTE,
        });
        facts.work.failed = failed.collect();
        facts.work.completed = completed.collect();
        facts
    }

    #[pg_test]
    fn what_fails_mostly_is_a_kind_or_else_a_queue() {
        let found = |facts| only(&facts, "mostly_failing").message;
        let kind = failed(&[("k", "a", 5), ("k", "b", 6)], &[("k", "a", 10)]);
        assert!(found(kind).starts_with("11 attempts of kind \"k\" "));
        let queue = failed(&[("k", "a", 5), ("l", "a", 6)], &[("k", "b", 20)]);
        assert!(found(queue).starts_with("11 attempts of queue \"a\" "));
        let as_many = failed(&[("k", "a", 10)], &[("k", "a", 10)]);
        assert_eq!(findings(&as_many), []);
        // As many as are looked at, in a minute of the ten: ten times as many, and some not seen.
        let rare = |attempts| failed(&[("k", "a", attempts)], &[("k", "a", 1), ("x", "x", 9_999)]);
        assert_eq!(findings(&rare(40)), []);
        assert!(found(rare(41)).contains(", and 1 job completed"));
    }

    #[pg_test]
    fn jobs_run_long_by_their_kind() {
        let mut facts = well();
        facts.work.usual.push(Usual { kind: "k".into(), mostly: MINUTE, longest: 2 * MINUTE });
        facts.work.long.push(Long {
            kind: "k".into(),
            jobs: 2,
            job_id: 1,
            attempted_at: facts.now - 11 * MINUTE,
        });
        let found = only(&facts, "running_long");
        assert_eq!(
            found.message,
            "2 k jobs have been running more than 10 times longer than usual (p95 1 min); the oldest is job 1, 11 min"
        );
        assert_eq!(found.hint, "SELECT jobs.show(1); To stop it: SELECT jobs.cancel(1);");
    }

    #[pg_test]
    fn the_worst_come_first() {
        let mut facts = well();
        facts.upkeep.is_being_restored = true;
        facts.work.lost.push(Lost {
            worker: "w".into(),
            running: 1,
            last_seen_at: facts.now,
            last_lease_expires_at: 0,
        });
        let found = findings(&facts);
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["lost_worker", "restoring"]);
    }
}
