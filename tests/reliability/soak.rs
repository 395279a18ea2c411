//! Load that goes on, with pruning: what it takes in memory, on disk and in open files is the same
//! in the end as in the first quarter, and all the time nothing needs attention.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use jobs_tests::{Client, Cluster, SOON, number, poll_until, rng, run, seconds, texts};

use super::leaks::anonymous_memory;
use jobs_tests::figures::{duration, figure};
use jobs_tests::journal::{Pruning, assert_whole};
use jobs_tests::load::{DATABASE, Load};

/// How much larger the last quarter's figures may be than the first one's: twice, and what is small
/// may be more.
const FACTOR: i64 = 2;
const SLACK_ON_DISK: i64 = 2 << 20;
const SLACK_IN_MEMORY: i64 = 2 << 20;
const SLACK_FILES: i64 = 20;

/// What is measured, by name; bytes but for files and plans.
type Sizes = BTreeMap<String, i64>;

/// A session that stays, in which everything is called all the time.
struct Resident {
    db: Client,
    pid: i64,
}

impl Resident {
    /// Calls for so long.
    async fn call_for(&self, time: Duration) -> u64 {
        let begun = Instant::now();
        let mut calls = 0;
        while begun.elapsed() < time {
            let sql = r#"select jobs.insert('resident', '{"a": 1}', '{"by_args": true, "on_conflict": "replace"}', queue => 'resident');
                         select jobs.insert_batch('resident', array_fill('{}'::jsonb, array[3]), queue => 'resident');
                         select jobs.complete_many(array_agg(id), array_agg(token)) from (select id, token from jobs.fetch('resident', 2)) f having count(*) > 0;
                         select jobs.fail(id, token, 'x', retryable => false) from jobs.fetch('resident', 2);
                         select count(*) from jobs.queues; select jobs.explain_unique('resident', '{}', '{"by_args": true}')"#;
            self.db.batch_execute(sql).await.unwrap();
            calls += 1;
            seconds(0.005).await;
        }
        calls
    }

    /// The process id of the background worker, which may be starting just then.
    async fn worker(&self) -> i64 {
        let worker = format!("backend_type = 'jobs worker' and datname = '{DATABASE}'");
        let count = format!("select count(*) from pg_stat_activity where {worker}");
        poll_until("a background worker", SOON, async || number(&self.db, &count).await > 0).await;
        let pid = format!("select max(pid)::bigint from pg_stat_activity where {worker}");
        number(&self.db, &pid).await
    }

    async fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::new();
        let sql = "select c.relname::text, pg_relation_size(c.oid) from pg_class c where c.relnamespace = 'jobs'::regnamespace and c.relkind in ('r', 'i')";
        for row in self.db.query(sql, &[]).await.unwrap() {
            sizes.insert(format!("disk {}", row.get::<_, String>(0)), row.get(1));
        }
        let worker = self.worker().await;
        for (name, pid) in [("worker", worker), ("session", self.pid)] {
            sizes.insert(format!("memory of the {name}"), anonymous_memory(pid));
            sizes.insert(
                format!("files of the {name}"),
                fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as i64,
            );
        }
        let contexts =
            "select coalesce(sum(used_bytes), 0)::bigint from pg_backend_memory_contexts";
        sizes.insert("memory in the session's contexts".into(), number(&self.db, contexts).await);
        let plans = "select count(*) from pg_backend_memory_contexts where name like 'CachedPlan%'";
        sizes.insert("plans of the session".into(), number(&self.db, plans).await);
        sizes
    }
}

/// What needs somebody's attention. The load has jobs discarded on purpose. On a slow machine
/// somebody may wait for a key for a second.
async fn unhealthy(db: &Client) -> Vec<String> {
    let sql = "select finding || ': ' || message from jobs.health(lock_wait => '1 minute') where finding <> 'discarded'";
    texts(db, sql).await
}

/// What grew, from the first quarter to the last.
fn grown(first: &Sizes, last: &Sizes) -> Vec<String> {
    let is_too_much = |(name, size): (&String, &i64)| {
        let before = first.get(name).copied().unwrap_or(0);
        let slack = match name.split(' ').next() {
            Some("disk") => SLACK_ON_DISK,
            Some("memory") => SLACK_IN_MEMORY,
            _ => SLACK_FILES,
        };
        (*size > FACTOR * before + slack).then(|| format!("{name}: {before}, then {size}"))
    };
    last.iter().filter_map(is_too_much).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_grows() {
    let case = "soak";
    // Retention and vacuum of hours, in seconds.
    let cluster = Cluster::builder()
        .set("jobs.interval", "100 ms")
        .set("jobs.retention_completed", "1 s")
        .set("jobs.retention_cancelled", "1 s")
        .set("jobs.retention_discarded", "1 s")
        .set("autovacuum_naptime", "1 s")
        .start();
    let load = Load::begin(&cluster, &mut rng(), 3, 3).await;
    let db = cluster.connect(DATABASE).await;
    let pid = number(&db, "select pg_backend_pid()::bigint").await;
    let resident = Resident { db, pid };
    let watcher = cluster.connect(DATABASE).await;
    // Twice what a quarter lasts at least, so that the first quarter has pruning already.
    let quarter = (duration() / 4).max(Duration::from_secs(2));
    let (mut quarters, mut calls, mut jobs) = (Vec::new(), 0, 0);
    for _ in 0..4 {
        for _ in 0..4 {
            calls += resident.call_for(quarter / 4).await;
            assert_eq!(unhealthy(&watcher).await, [""; 0]);
        }
        quarters.push(resident.sizes().await);
        jobs = number(&watcher, "select last_value from jobs.job_seq").await;
        assert_whole(&watcher).await;
    }
    let (first, last) = (&quarters[0], &quarters[3]);
    let sum = |sizes: &Sizes, of: &str| {
        sizes.iter().filter(|(name, _)| name.starts_with(of)).map(|(_, size)| size).sum::<i64>()
    };
    figure(case, "length", format!("{} s", 4 * quarter.as_secs()));
    figure(case, "jobs", jobs);
    figure(case, "rounds_of_calls_in_the_session_that_stays", calls);
    let show = |name: &str, size: fn(&Sizes, &str) -> i64, unit: i64, words: &str| {
        let all: Vec<String> =
            quarters.iter().map(|quarter| (size(quarter, name) / unit).to_string()).collect();
        figure(
            case,
            &format!("{},_by_quarters", name.replace(' ', "_")),
            format!("{}{words}", all.join(", ")),
        );
    };
    figure(
        case,
        "tables_and_indexes,_first_and_last_quarter",
        format!("{} kB, {} kB", sum(first, "disk ") >> 10, sum(last, "disk ") >> 10),
    );
    for name in
        ["memory of the worker", "memory of the session", "memory in the session's contexts"]
    {
        show(name, |sizes, name| sizes[name], 1024, " kB");
    }
    for name in ["files of the worker", "files of the session", "plans of the session"] {
        show(name, |sizes, name| sizes[name], 1, "");
    }
    // The load itself is right as well, also where nothing is left but what was done.
    resident.db.batch_execute("select jobs.delete_many(queue => 'resident')").await.unwrap();
    load.end(&watcher, Pruning::Final).await.assert_right(&watcher, case).await;
    let grown = grown(first, last);
    assert!(grown.is_empty(), "{grown:#?}");
    run(&watcher, "select jobs.pause_maintenance()").await;
    let control = unhealthy(&watcher).await;
    assert!(control[0].starts_with("maintenance_paused"), "{control:?}");
}

#[test]
fn control_what_grows_is_found() {
    let sizes = |disk: i64, files: i64| {
        Sizes::from([("disk job".to_string(), disk), ("files of the worker".to_string(), files)])
    };
    assert_eq!(grown(&sizes(8 << 20, 30), &sizes(18 << 20, 80)), [""; 0]);
    assert_eq!(grown(&sizes(8 << 20, 30), &sizes(19 << 20, 81)).len(), 2);
    assert_eq!(grown(&Sizes::new(), &sizes(3 << 20, 1)).len(), 1, "an index that was not there");
}
