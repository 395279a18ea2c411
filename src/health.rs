//! What needs attention: a function for each finding, which answers none where all is well.
//! [`FINDINGS`] has them in the order in which findings of one severity are shown.

use std::collections::HashMap;

use jobs_core::words::{behind_colon, by, literal};

use crate::pg::time::show_micros as span;
use crate::settings;
use crate::store::health::{
    Attached, Facts, Failing, ForeignOwner, ForeignRight, LockWait, Session, Table,
};
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
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Critical => "critical",
            Warning => "warning",
            Info => "info",
        }
    }
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// What it is, in words.
    pub message: String,
    /// What to do, with a statement that runs as it stands.
    pub hint: String,
}

impl Finding {
    fn new(severity: Severity, message: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding {
            severity,
            message: message.into(),
            hint: hint.into(),
        }
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
    worker_not_running no_slot maintenance_paused restoring maintenance_failing
    old_snapshot oldest_available discarded expired_leases clock_moved
    mostly_failing running_long queue_paused lost_worker no_worker periodic_failed
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
    if age > from * times {
        Critical
    } else {
        Warning
    }
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
    let at_least = if count as i64 >= COUNTED {
        "at least "
    } else {
        ""
    };
    vec![Finding {
        message: format!(
            "{at_least}{count} {many}; the worst: {}",
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
    let long_ago = Some(i64::MIN);
    let (message, hint, never, tolerated) = if !worker.is_preloaded {
        (
            "there is no background worker: the library is not preloaded, and nobody has called jobs.maintain() for 10 minutes",
            "Add jobs to shared_preload_libraries and restart the server, or have this called every few seconds: SELECT * FROM jobs.maintain();".into(),
            long_ago,
            FOR_LONG,
        )
    } else if !worker.is_enabled {
        (
            "the background worker is switched off: jobs.enabled",
            "ALTER SYSTEM SET jobs.enabled = on; SELECT pg_reload_conf();".into(),
            long_ago,
            FOR_LONG,
        )
    } else if !worker.is_to_come {
        (
            "the background worker leaves this database alone: jobs.databases does not name it",
            settings::hint_to_cover(&worker.database),
            long_ago,
            FOR_LONG,
        )
    } else if !upkeep.has_launcher {
        (
            "the launcher of the background worker does not run",
            "The server's log says why it ended; it is started again after 5 seconds. Until then: SELECT * FROM jobs.maintain();".into(),
            long_ago,
            FOR_LONG,
        )
    } else if upkeep.server_started_at < facts.now - SOON {
        (
            "no background worker has come to this database for 5 minutes",
            format!(
                "Perhaps there is no process left for it: ALTER SYSTEM SET max_worker_processes = {}; and restart the server. Until then: SELECT * FROM jobs.maintain();",
                upkeep.max_worker_processes + 8
            ),
            upkeep.first_job_at,
            SOON,
        )
    } else {
        return Vec::new();
    };
    let is_to_run = !upkeep.is_standby && upkeep.paused_at.is_none() && !upkeep.is_being_restored;
    let last = upkeep.last_run_at.or(never);
    let is_late = is_to_run && last.is_some_and(|at| at < facts.now - tolerated);
    let found = is_late.then(|| Finding::new(Critical, message, hint));
    found.into_iter().collect()
}

fn no_slot(facts: &Facts) -> Vec<Finding> {
    let single = |slots| {
        let message = format!(
            "more than {slots} databases of this server have the extension, so the background worker visits this one every few seconds, and no commit wakes it"
        );
        let hint = "Drop the extension where nobody uses it. The databases: SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname;";
        Finding::new(Warning, message, hint)
    };
    facts.worker.without_slot.map(single).into_iter().collect()
}

fn maintenance_paused(facts: &Facts) -> Vec<Finding> {
    let upkeep = &facts.upkeep;
    let single = |(since, who): (i64, &String)| {
        let message = format!(
            "maintenance was paused by {who} {} ago",
            span(facts.now - since)
        );
        Finding::new(Warning, message, "SELECT jobs.resume_maintenance();")
    };
    let pause = upkeep.paused_at.zip(upkeep.paused_by.as_ref());
    pause.map(single).into_iter().collect()
}

fn restoring(facts: &Facts) -> Vec<Finding> {
    let message = "maintenance waits while pg_restore is connected to this database";
    let hint = "It goes on by itself when that is done. Who it is: SELECT * FROM pg_stat_activity WHERE application_name = 'pg_restore' AND datname = current_database();";
    let is_restored = facts.upkeep.is_being_restored;
    let found = is_restored.then(|| Finding::new(Info, message, hint));
    found.into_iter().collect()
}

fn maintenance_failing(facts: &Facts) -> Vec<Finding> {
    let single = |task: &Failing| {
        let severity = if task.failures < 10 {
            Warning
        } else {
            Critical
        };
        let message = format!(
            "task {} has failed {} times in a row, the last time {} ago: {}",
            task.task,
            task.failures,
            span(facts.now - task.last_error_at),
            task.last_error
        );
        let hint = format!(
            "What stops it has to be cleared away; the other tasks and jobs go on. SELECT * FROM jobs.maintenance WHERE task = {};",
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
                format!(
                    "a transaction has been open for {}: {}",
                    span(age),
                    who(session)
                ),
                format!(
                    "Dead rows of every table stay until it ends. To end it: SELECT pg_terminate_backend({});",
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
                    "transaction {gid} of user {user} has been prepared for {}",
                    span(age)
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
                    "A long query there, by hot_standby_feedback. Which standby: SELECT * FROM pg_stat_replication WHERE pid = {pid};"
                ),
            ),
            None => {
                let name = literal(&replica.name);
                let hint =
                    format!("If nobody uses it any more: SELECT pg_drop_replication_slot({name});");
                (format!("replication slot {name}"), hint)
            }
        };
        let message = format!("{whose} keeps dead rows of the last {transactions} transactions");
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
            let (queue, id, age) = (&one.queue, one.id, facts.now - one.since);
            Finding::new(
                by_age(age, from, 12),
                format!(
                    "the oldest available job of queue {queue} has waited {}",
                    span(age)
                ),
                format!(
                    "Why: SELECT * FROM jobs.explain({id}); Who works: SELECT * FROM jobs.workers; If nobody wants it: SELECT jobs.cancel({id});"
                ),
            )
        },
        &format!(
            "queues have available jobs that have waited for more than {}",
            span(from)
        ),
        "SELECT queue, available, oldest_available_at FROM jobs.queues WHERE NOT paused ORDER BY oldest_available_at LIMIT 20;",
    )
}

fn discarded(facts: &Facts) -> Vec<Finding> {
    let jobs = match facts.work.discarded {
        0 => return Vec::new(),
        jobs => up_to(jobs, health_work::MOST_DISCARDED),
    };
    let message = format!("{jobs} jobs were discarded in the last hour");
    let hint = "Why: SELECT job_id, error FROM jobs.errors WHERE at > now() - interval '1 hour' ORDER BY at DESC LIMIT 10; To try them again: SELECT jobs.retry_many(states => '{discarded}', failed_after => now() - interval '1 hour');";
    vec![Finding::new(Warning, message, hint)]
}

/// A number that was counted no further than one above `most`.
fn up_to(count: i64, most: i64) -> String {
    if count > most {
        format!("more than {most}")
    } else {
        count.to_string()
    }
}

fn expired_leases(facts: &Facts) -> Vec<Finding> {
    let jobs = facts.work.expired_leases;
    if jobs == 0 || facts.upkeep.is_standby {
        return Vec::new();
    }
    let message = format!(
        "{jobs} running jobs have had no lease for more than a minute and were not rescued"
    );
    let hint = "Maintenance does that: SELECT * FROM jobs.maintenance; By hand: SELECT * FROM jobs.maintain();";
    vec![Finding::new(Warning, message, hint)]
}

// What is yet to be brought forward, or else what was.
fn clock_moved(facts: &Facts) -> Vec<Finding> {
    let (message, hint) = match (facts.ahead, &facts.put_back) {
        (Some(ahead), _) => (
            format!(
                "stored times lie up to {} ahead of the clock; maintenance brings them forward within a minute",
                span(ahead)
            ),
            "Now: SELECT * FROM jobs.maintain();",
        ),
        (None, Some(cut)) => (
            format!(
                "the clock was put back: {} ago, {} stored times lay up to {} ahead of it and were brought forward",
                span(facts.now - cut.at),
                cut.times,
                cut.ahead
            ),
            "What a wrong clock leaves: docs/operations/clock.md. When it was: SELECT * FROM jobs.audit WHERE action = 'clock put back' ORDER BY at DESC;",
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
        let MostlyFailing {
            what,
            name,
            attempts,
            completed,
            latest,
        } = one;
        let error = behind_colon(health_work::error_of(latest).as_deref());
        let message = format!(
            "{attempts} attempts of {what} {name} failed in the last 10 minutes and {completed} were completed{error}"
        );
        let hint = format!(
            "SELECT e.* FROM jobs.errors e JOIN jobs.jobs j ON j.id = e.job_id WHERE j.{what} = {} ORDER BY e.at DESC LIMIT 10; So that attempts are kept until it is mended: SELECT jobs.pause_queue({});",
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
    let mut found: Vec<(&Usual, &Long, i64)> = Vec::new();
    for long in &facts.work.long {
        let age = facts.now - long.attempted_at;
        let usual = usual.get(&long.kind[..]).copied();
        let is_long = |usual: &&Usual| age > 10 * usual.mostly && age > usual.longest;
        let Some(usual) = usual.filter(is_long) else {
            continue;
        };
        match found
            .iter_mut()
            .find(|(_, oldest, _)| oldest.kind == long.kind)
        {
            Some((.., jobs)) => *jobs += 1,
            None => found.push((usual, long, 1)),
        }
    }
    let single = |(usual, oldest, jobs): &(&Usual, &Long, i64)| {
        let (id, kind) = (oldest.job_id, &oldest.kind);
        let message = format!(
            "{jobs} jobs of kind {kind} run for more than ten times as long as jobs of it do (95 of 100 took up to {}): {id} since {}",
            span(usual.mostly),
            span(facts.now - oldest.attempted_at)
        );
        let hint = format!("SELECT jobs.show({id}); To stop it: SELECT jobs.cancel({id});");
        Finding::new(Warning, message, hint)
    };
    found.iter().take(20).map(single).collect()
}

fn queue_paused(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.paused,
        |one| {
            let age = facts.now - one.paused_at;
            let severity = if age > 60 * MINUTE { Warning } else { Info };
            let message = format!(
                "queue {} was paused {} ago{}, and {} of its jobs wait",
                one.queue,
                span(age),
                by(one.paused_by.as_deref(), one.pause_reason.as_deref()),
                up_to(one.jobs, COUNTED)
            );
            let hint = format!("SELECT jobs.resume_queue({});", literal(&one.queue));
            Finding::new(severity, message, hint)
        },
        "queues are paused while their jobs wait",
        "SELECT queue, paused_at, paused_by, pause_reason FROM jobs.queues WHERE paused ORDER BY paused_at LIMIT 20;",
    )
}

fn lost_worker(facts: &Facts) -> Vec<Finding> {
    let lost = &facts.work.lost;
    let jobs: i64 = lost.iter().map(|one| one.running).sum();
    let last = lost
        .iter()
        .map(|one| one.last_lease_expires_at)
        .max()
        .unwrap_or(0);
    let left = |until: i64| span((until - facts.now).max(0));
    grouped(
        lost,
        |one| {
            let holds = if one.running == 1 {
                "1 job".into()
            } else {
                format!("{} jobs", one.running)
            };
            let message = format!(
                "worker {} holds {holds} and was last seen {} ago; the last of its leases ends in {}",
                one.worker,
                span(facts.now - one.last_seen_at),
                left(one.last_lease_expires_at)
            );
            let hint = format!(
                "Each job is retried when its lease ends. SELECT * FROM jobs.workers WHERE worker = {};",
                literal(&one.worker)
            );
            Finding::new(Warning, message, hint)
        },
        &format!(
            "lost workers hold {jobs} jobs; the last of their leases ends in {}",
            left(last)
        ),
        "SELECT * FROM jobs.workers WHERE status = 'lost' AND running > 0;",
    )
}

fn no_worker(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.unattended,
        |(queue, fetched_at)| {
            let message = match fetched_at {
                Some(at) => format!(
                    "jobs of queue {queue} wait, and nobody has fetched from it for {}",
                    span(facts.now - at)
                ),
                None => format!(
                    "jobs of queue {queue} wait, and nobody is known to have fetched from it"
                ),
            };
            let queue = literal(queue);
            let hint = format!(
                "Start a worker that fetches from it, or see why none does: SELECT * FROM jobs.workers WHERE {queue} = ANY (queues); Its jobs: SELECT * FROM jobs.jobs WHERE queue = {queue} AND state = 'available' ORDER BY priority, id LIMIT 10;"
            );
            Finding::new(Warning, message, hint)
        },
        "queues have waiting jobs, and no worker fetches from them",
        "Start workers that fetch from these queues. Known workers: SELECT worker, status, queues FROM jobs.workers; The queues: SELECT queue, available, oldest_available_at FROM jobs.queues WHERE NOT paused ORDER BY oldest_available_at LIMIT 20;",
    )
}

fn periodic_failed(facts: &Facts) -> Vec<Finding> {
    grouped(
        &facts.work.periodic_failed,
        |one| {
            let (name, error) = (&one.name, &one.error);
            let message = format!("the latest tick of periodic job {name} has no job: {error}");
            let hint = format!(
                "SELECT * FROM jobs.periodic WHERE name = {}; next_run_at is when it is tried again.",
                literal(name)
            );
            Finding::new(Warning, message, hint)
        },
        "periodic jobs have a latest tick without a job",
        "SELECT name, last_error, next_run_at FROM jobs.periodic WHERE last_error IS NOT NULL;",
    )
}

fn bloat(facts: &Facts) -> Vec<Finding> {
    let Some(from) = facts.from.dead_rows else {
        return Vec::new();
    };
    let has_many = |table: &&Table| table.dead > from && table.dead > table.live;
    let single = |Table { name, dead, live }: &Table| {
        let message = format!("table jobs.{name} has {dead} dead rows and {live} live ones");
        let hint = format!(
            "Something keeps vacuum from it (see old_snapshot), or autovacuum does not keep up. By hand: VACUUM jobs.{name};"
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
            "{} has waited {} in a transaction that inserts unique jobs, for {holders}",
            who(&wait.waiter),
            span(age)
        );
        let hint = format!(
            "It goes on when that transaction ends. Insert at the end of transactions, or with \"wait\": false. What it does: SELECT * FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids({}));",
            wait.waiter.pid
        );
        Finding::new(by_age(age, from, 60), message, hint)
    };
    facts.lock_waits.iter().map(single).collect()
}

/// Which process a session is, and whose.
fn who(session: &Session) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let name = session
        .application_name
        .iter()
        .filter(|name| !name.is_empty());
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
    let single = |one: &ForeignRight| {
        let (rights, kind, name, grantee) = (&one.never, &one.kind, &one.name, &one.grantee);
        let role = one.role.as_deref().unwrap_or("everybody");
        let message = format!("{role} has {rights} on {} {name}", kind.to_lowercase());
        let hint = format!(
            "With that one can have the rights of the extension's owner. REVOKE {rights} ON {kind} {name} FROM {grantee} CASCADE;"
        );
        Finding::new(Critical, message, hint)
    };
    facts.foreign_rights.iter().map(single).collect()
}

fn foreign_trigger(facts: &Facts) -> Vec<Finding> {
    let single = |one: &Attached| {
        let (kind, name, on) = (&one.kind, &one.name, &one.on);
        let calls = one.calls.as_ref();
        let calls = calls.map_or_else(String::new, |function| format!(" calls {function}"));
        let message = format!("{} {name} on {on}{calls}", kind.to_lowercase());
        let hint = format!(
            "It runs with the rights of the extension's owner, and calls take a slower way because of it, by statements. DROP {kind} {name} ON {on};"
        );
        Finding::new(Warning, message, hint)
    };
    facts.attached.iter().map(single).collect()
}

fn foreign_owner(facts: &Facts) -> Vec<Finding> {
    let single = |one: &ForeignOwner| {
        let (kind, name, owner, to) = (&one.kind, &one.name, &one.owner, &one.extension_owner);
        let message = format!(
            "{} {name} belongs to {owner}, the extension to {to}",
            kind.to_lowercase()
        );
        let hint = format!("ALTER {kind} {name} OWNER TO {};", one.to);
        Finding::new(Critical, message, hint)
    };
    facts.foreign_owners.iter().map(single).collect()
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{Finding, MINUTE, Severity, findings};
    use crate::store::health::{Facts, Prepared, Upkeep, Worker};
    use crate::store::health_work::{Completed, Failed, Long, Lost, Oldest, Usual};

    /// Where all is well.
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
            upkeep: Upkeep {
                has_launcher: true,
                last_run_at: Some(now),
                ..Upkeep::default()
            },
            ..Facts::default()
        }
    }

    /// The only finding.
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
        assert!(
            found.hint.contains("max_worker_processes = 8;"),
            "{found:?}"
        );
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
            found
                .hint
                .ends_with(r"COMMIT PREPARED E'it''s\\'; or ROLLBACK PREPARED E'it''s\\';")
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
        assert!(found(kind).starts_with("11 attempts of kind k "));
        let queue = failed(&[("k", "a", 5), ("l", "a", 6)], &[("k", "b", 20)]);
        assert!(found(queue).starts_with("11 attempts of queue a "));
        let as_many = failed(&[("k", "a", 10)], &[("k", "a", 10)]);
        assert_eq!(findings(&as_many), []);
        // As many as are looked at, in a minute of the ten: ten times as many, and some not seen.
        let rare = |attempts| failed(&[("k", "a", attempts)], &[("k", "a", 1), ("x", "x", 9_999)]);
        assert_eq!(findings(&rare(40)), []);
        assert!(found(rare(41)).contains(" 1 were completed"));
    }

    #[pg_test]
    fn a_job_runs_long_by_its_kind() {
        let mut facts = well();
        let (kind, now) = ("k", facts.now);
        let long = [(1, 11), (2, 9)].map(|(job_id, minutes)| Long {
            job_id,
            kind: kind.into(),
            attempted_at: now - minutes * MINUTE,
        });
        facts.work.long = long.into();
        assert_eq!(findings(&facts), [], "nothing is known of the kind");
        let (kind, mostly) = (kind.into(), MINUTE);
        let longest = 2 * MINUTE;
        facts.work.usual.push(Usual {
            kind,
            mostly,
            longest,
        });
        let found = only(&facts, "running_long");
        assert_eq!(
            found.hint,
            "SELECT jobs.show(1); To stop it: SELECT jobs.cancel(1);"
        );
        facts.work.usual[0].longest = 12 * MINUTE;
        assert_eq!(findings(&facts), []);
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
