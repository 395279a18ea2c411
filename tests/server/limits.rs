//! Limits by key: never more than may run or start, however attempts begin and end, and nothing is
//! left behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jobs_tests::{
    Builder, Client, Cluster, Mode, blocked, comes_true, count, is, number, rng, run, seconds,
    sqlstate, texts, with_faults,
};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

/// Two jobs of a tenant at a time, seven of all; of kind `r`, 20 start in a second.
const LIMITS: &str = r#"
    select jobs.define_limit('tenant', by => '{"by_args": ["t"]}', concurrency => 2);
    select jobs.define_limit('all', queues => '{default,other}', concurrency => 7);
    select jobs.define_limit('rate', kinds => '{r}', rate => 20, rate_period => '1 s')"#;

const JOBS: &str = r#"
    select jobs.insert_batch('k', (select array_agg(jsonb_build_object('t', n % 5)) from generate_series(1, 300) n), max_attempts => 1000, retry => '{"strategy": "constant", "initial": 0.05}');
    select jobs.insert_batch('r', (select array_agg(jsonb_build_object('t', n % 5)) from generate_series(1, 60) n), queue => 'other', max_attempts => 1000, retry => '{"strategy": "constant", "initial": 0.05}');
    select jobs.insert_batch('k', (select array_agg(jsonb_build_object('t', n % 5)) from generate_series(1, 100) n), scheduled_at => now() + interval '0.5 s', priority => 0, max_attempts => 1000, retry => '{"strategy": "constant", "initial": 0.05}')"#;

/// A job that a session held, from after its fetch to before its end.
struct Run {
    tenant: String,
    from: Instant,
    to: Instant,
}

#[derive(Default)]
struct History {
    runs: Vec<Run>,
    /// When jobs of kind `r` started, in microseconds.
    starts: Vec<i64>,
}

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

const FETCH: &str =
    "select id, token, args->>'t', kind, (extract(epoch from attempted_at) * 1000000)::bigint
    from jobs.fetch_any('{default,other}', max_jobs => 2, lease => '1 s')";

struct Scene {
    cluster: Cluster,
    is_over: AtomicBool,
    history: Mutex<History>,
}

/// Works until nothing is left to do.
async fn work(scene: &Scene, n: usize) {
    let mut rng = rng();
    let mut db = session(&scene.cluster, "limits", n).await;
    while !scene.is_over.load(Ordering::Relaxed) {
        let is_undone = rng.random_bool(0.1);
        if is_undone {
            let undone = format!("begin; select * from ({FETCH}) f; rollback");
            let _ = db.batch_execute(&undone).await;
            let _ = db.batch_execute("rollback").await;
            continue;
        }
        let Ok(rows) = db.query(FETCH, &[]).await else {
            // A serialization failure, or a session that has ended itself.
            seconds(0.002).await;
            if db.is_closed() {
                db = session(&scene.cluster, "limits", n).await;
            }
            continue;
        };
        let from = Instant::now();
        if rows.is_empty() {
            seconds(0.005).await;
        }
        for row in rows {
            seconds(rng.random_range(0.0..0.004)).await;
            let (id, token): (i64, i64) = (row.get(0), row.get(1));
            {
                let mut history = scene.history.lock().unwrap();
                history.runs.push(Run { tenant: row.get(2), from, to: Instant::now() });
                if row.get::<_, &str>(3) == "r" {
                    history.starts.push(row.get(4));
                }
            }
            // Whatever fails, the lease of the job ends.
            let _ = end(&db, id, token, &mut rng).await;
        }
    }
}

pub async fn session(cluster: &Cluster, database: &str, n: usize) -> Client {
    let db = cluster.connect(database).await;
    let level = LEVELS[n % LEVELS.len()];
    run(&db, &format!("set default_transaction_isolation = '{level}'")).await;
    db
}

/// Ends an attempt in one of the ways in which it can end.
pub async fn end(
    db: &Client,
    id: i64,
    token: i64,
    rng: &mut StdRng,
) -> Result<(), tokio_postgres::Error> {
    let complete = format!("select jobs.complete({id}, {token})");
    let call = match rng.random_range(0..100) {
        0..5 => format!("select jobs.fail({id}, {token}, 'no', retry_in => '0 s')"),
        5..10 => format!("select jobs.fail({id}, {token}, 'no', retry_in => '20 ms')"),
        10..15 => format!("select jobs.snooze({id}, {token}, '20 ms')"),
        15..20 => format!("select jobs.release({id}, {token})"),
        20..25 => format!("select jobs.cancel({id}, force => true)"),
        25..30 => {
            db.batch_execute(&format!("begin; {complete}; rollback")).await?;
            complete
        }
        // Its lease ends later.
        30..32 => "select 1".into(),
        32..34 => "select pg_terminate_backend(pg_backend_pid())".into(),
        _ => complete,
    };
    db.batch_execute(&call).await
}

/// The most jobs that were held at a time, of those that were held from and to these.
pub fn most(held: impl Iterator<Item = (Instant, Instant)>) -> i64 {
    let mut moments: Vec<_> = held.flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
    moments.sort();
    let mut now = 0;
    moments
        .iter()
        .map(|(_, change)| {
            now += change;
            now
        })
        .max()
        .unwrap_or(0)
}

fn held(run: &Run) -> (Instant, Instant) {
    (run.from, run.to)
}

/// What broke a limit.
fn broken(history: &mut History) -> Vec<String> {
    let runs = &history.runs;
    let of = |tenant| runs.iter().filter(move |run| run.tenant == tenant).map(held);
    let tenants: HashMap<&str, i64> =
        ["0", "1", "2", "3", "4"].map(|tenant| (tenant, most(of(tenant)))).into();
    let mut broken: Vec<String> = tenants
        .iter()
        .filter(|(_, most)| **most > 2)
        .map(|(tenant, most)| format!("{most} of tenant {tenant}"))
        .collect();
    let all = most(runs.iter().map(held));
    broken.extend((all > 7).then(|| format!("{all} at a time")));
    history.starts.sort_unstable();
    let starts = history.starts.windows(21).filter(|starts| starts[20] - starts[0] < 1_000_000);
    broken.extend(starts.map(|starts| format!("21 starts in {} us", starts[20] - starts[0])));
    broken
}

async fn history(builder: Builder, sessions: usize) -> (Cluster, History) {
    let cluster = builder.set("jobs.interval", "100ms").start();
    let db = cluster.database("limits").await;
    run(&db, LIMITS).await;
    run(&db, JOBS).await;
    let scene =
        Arc::new(Scene { cluster, is_over: AtomicBool::new(false), history: Mutex::default() });
    let mut workers = JoinSet::new();
    for n in 0..sessions {
        let scene = scene.clone();
        workers.spawn(async move { work(&scene, n).await });
    }
    comes_true(&db, "not exists (select from jobs.jobs where finalized_at is null)").await;
    scene.is_over.store(true, Ordering::Relaxed);
    workers.join_all().await;
    let scene = Arc::into_inner(scene).expect("the workers are done");
    (scene.cluster, scene.history.into_inner().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_and_everything_is_done_whatever_ends_an_attempt() {
    let (cluster, mut history) =
        history(Cluster::builder().allow(1000, "FATAL.*terminating connection"), 16).await;
    assert_eq!(broken(&mut history), [""; 0]);
    assert!(history.runs.len() > 400, "{}", history.runs.len());
    let db = cluster.connect("limits").await;
    for table in ["permit", "running", "scheduled", "ready", "check()"] {
        assert_eq!(count(&db, &format!("jobs.{table}")).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_fetches_that_count_out_of_turn_break_limits() {
    let builder = Cluster::builder().postgres(&with_faults());
    let builder = builder.allow(1000, "FATAL.*terminating connection");
    let builder = builder.set("jobs.fault", "permit_out_of_turn");
    let (_cluster, mut history) = history(builder, 16).await;
    assert_ne!(broken(&mut history), [""; 0]);
}

/// Three jobs of one key, of which one may run.
const ONE_OF_THREE: &str = r#"
    select jobs.define_limit('one', by => '{"by_args": ["t"]}', concurrency => 1);
    select jobs.insert('k', '{"t": 1}') from generate_series(1, 3)"#;
const START: &str = "select id from jobs.fetch(max_jobs => 10)";
const COMPLETE: &str = "select jobs.complete(id, token) from jobs.jobs where state = 'running'";

#[tokio::test]
async fn the_end_of_an_attempt_hands_its_place_on() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(&db, ONE_OF_THREE).await;
    for _ in 0..3 {
        assert_eq!(started(&db).await, 1);
        assert_eq!(started(&db).await, 0);
        run(&db, &format!("begin; {COMPLETE}; rollback")).await;
        assert_eq!(started(&db).await, 0);
        run(&db, COMPLETE).await;
    }
    assert_eq!(count(&db, "jobs.jobs where state = 'completed'").await, 3);
}

#[tokio::test]
async fn control_an_end_that_keeps_its_place_leaves_jobs_behind() {
    let cluster = Cluster::builder().postgres(&with_faults()).set("jobs.enabled", "off");
    let cluster = cluster.set("jobs.fault", "keep_places").start();
    let db = cluster.database("limits").await;
    run(&db, ONE_OF_THREE).await;
    assert_eq!(started(&db).await, 1);
    run(&db, COMPLETE).await;
    assert_eq!(started(&db).await, 0);
    run(&db, "select jobs.maintain()").await;
    assert_eq!(started(&db).await, 1);
}

#[tokio::test]
async fn a_change_counts_what_runs_and_applies_from_its_commit() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(&db, r#"select jobs.insert('k', '{"t": 1}') from generate_series(1, 4)"#).await;
    let held = "select count(*) from jobs.fetch(max_jobs => 1)";
    assert_eq!(number(&db, held).await, 1);
    let define = r#"select jobs.define_limit('t', by => '{"by_args": ["t"]}', concurrency => 2)"#;
    run(&db, define).await;
    assert_eq!(started(&db).await, 1);
    assert_eq!(texts(&db, "select running || '/' || held from jobs.limits").await, ["2/2"]);
    run(&db, r#"select jobs.override_limit('t', '1', concurrency => 3), jobs.maintain()"#).await;
    assert_eq!(started(&db).await, 1);
    run(&db, "select jobs.drop_limit('t'), jobs.maintain()").await;
    assert_eq!(started(&db).await, 1);
    assert_eq!(count(&db, "jobs.permit").await, 0);
    run(&db, COMPLETE).await;
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

#[tokio::test]
async fn permits_outlive_a_crash_with_their_jobs() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(&db, ONE_OF_THREE).await;
    assert_eq!(started(&db).await, 1);
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("limits").await;
    assert_eq!(started(&db).await, 0);
    assert!(is(&db, "count(*) = 0 from jobs.check()").await);
    run(&db, COMPLETE).await;
    assert_eq!(started(&db).await, 1);
}

/// Maintenance has looked at the room, and a job starts before it looks at the lane.
#[tokio::test]
async fn maintenance_has_no_job_fetched_in_the_place_of_one_that_has_just_started() {
    let cluster = Cluster::quiet();
    for (n, one) in [
        "define_limit('one', concurrency => 1)",
        "define_limit('one', rate => 1, rate_period => '1 hour')",
        r#"order_queue('default', by => '{"by_args": ["t"]}', strict => true)"#,
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("limits{n}");
        let (db, other) = (cluster.database(&name).await, cluster.connect(&name).await);
        run(&db, &format!("select jobs.{one}; select jobs.insert('k') from generate_series(1, 3)"))
            .await;
        let fetching = cluster.connect(&name).await;
        run(&fetching, "begin; lock table jobs.scheduled in share mode").await;
        let fetch = async {
            blocked(&db, 1).await;
            run(&fetching, "select jobs.fetch(); commit").await;
        };
        tokio::join!(run(&other, "select jobs.maintain()"), fetch);
        assert_eq!(count(&db, "jobs.ready").await, 0, "{one}");
        assert_eq!(count(&db, "jobs.scheduled").await, 2, "{one}");
    }
}

/// How many jobs a fetch starts.
async fn started(db: &Client) -> usize {
    db.query(START, &[]).await.unwrap().len()
}

#[tokio::test]
async fn a_place_that_a_rollback_takes_back_is_not_given_twice() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    let two = r#"select jobs.define_limit('two', by => '{"by_args": ["t"]}', concurrency => 2);
        select jobs.insert('k', '{"t": 1}') from generate_series(1, 4)"#;
    run(&db, two).await;
    assert_eq!(started(&db).await, 2);
    let first = "select jobs.complete(id, token) from (select * from jobs.jobs where state = 'running' order by id limit 1) j";
    run(&db, &format!("begin; {first}; {START}; rollback")).await;
    assert_eq!(started(&db).await, 0);
    run(&db, &format!("begin; savepoint s; {first}; {START}; rollback to s; commit")).await;
    assert_eq!(started(&db).await, 0);
    assert_eq!(count(&db, "jobs.running").await, 2);
}

#[tokio::test]
async fn a_limit_defined_with_an_old_snapshot_misses_nothing() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("limits").await, cluster.connect("limits").await);
    run(&db, "select jobs.insert('k') from generate_series(1, 2)").await;
    run(&other, "begin isolation level repeatable read; select 1").await;
    assert_eq!(number(&db, "select count(*) from jobs.fetch()").await, 1);
    let define = other.batch_execute("select jobs.define_limit('one', concurrency => 1)").await;
    assert_eq!(sqlstate(define), "40001");
    run(&other, "rollback; select jobs.define_limit('one', concurrency => 1)").await;
    assert_eq!(started(&db).await, 0);
    run(&db, COMPLETE).await;
    assert_eq!(started(&db).await, 1);
}

#[tokio::test]
async fn a_saturated_key_holds_up_no_other_under_a_second_limit() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(
        &db,
        r#"select jobs.define_limit('all', concurrency => 1), jobs.define_limit('tenant', by => '{"by_args": ["t"]}', concurrency => 1);
        select jobs.insert('k', '{"t": "first"}'); select jobs.fetch();
        select jobs.insert('k', '{"t": "x"}') from generate_series(1, 30); select jobs.insert('k', '{"t": "y"}');
        select jobs.pause_limit('tenant', '"x"')"#,
    )
    .await;
    assert_eq!(started(&db).await, 0);
    run(&db, COMPLETE).await;
    assert_eq!(texts(&db, "select args->>'t' from jobs.fetch()").await, ["y"]);
}

#[tokio::test]
async fn jobs_that_a_limit_no_longer_covers_are_let_go() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(
        &db,
        "select jobs.define_limit('one', concurrency => 1);
         select jobs.insert('a', queue => 'a') from generate_series(1, 2);
         select jobs.insert('b', queue => 'b') from generate_series(1, 2);
         select jobs.pause_limit('one'); select jobs.fetch_any('{a,b}', 10);
         select jobs.define_limit('one', queues => '{a}', concurrency => 1), jobs.maintain()",
    )
    .await;
    assert_eq!(number(&db, "select count(*) from jobs.fetch('b', 10)").await, 2);
    assert_eq!(number(&db, "select count(*) from jobs.fetch('a', 10)").await, 0);
}

#[tokio::test]
async fn a_change_between_two_looks_at_a_part_of_the_keys_reaches_all_of_them() {
    let cluster = Cluster::builder().set("jobs.enabled", "off").set("jobs.batch_size", 1).start();
    let db = cluster.database("limits").await;
    run(
        &db,
        r#"select jobs.define_limit('t', by => '{"by_args": ["t"]}', concurrency => 1), jobs.pause_limit('t');
        select jobs.insert('k', jsonb_build_object('t', n)) from generate_series(1, 3) n; select jobs.fetch(max_jobs => 10)"#,
    )
    .await;
    let maintain = "select jobs.maintain()";
    // All keys, and the first one again.
    for _ in 0..5 {
        run(&db, maintain).await;
    }
    run(&db, r#"select jobs.define_limit('t', by => '{"by_args": ["t"]}', kinds => '{other}', concurrency => 1)"#).await;
    for _ in 0..5 {
        run(&db, maintain).await;
    }
    assert_eq!(number(&db, "select count(*) from jobs.fetch(max_jobs => 10)").await, 3);
}

/// Starts that are forgotten beside a fetch of the same transaction are still seen by others.
#[tokio::test]
async fn a_start_is_numbered_behind_those_that_its_transaction_has_forgotten() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("limits").await, cluster.connect("limits").await);
    run(
        &db,
        "select jobs.define_limit('two', rate => 2, rate_period => '1 hour');
         select jobs.insert('k') from generate_series(1, 2);
         select jobs.fetch(max_jobs => 2);
         update jobs.limit_start set at = at - interval '2 hours';
         select jobs.insert('k') from generate_series(1, 2)",
    )
    .await;
    run(&db, "begin; select jobs.maintain(); select jobs.fetch()").await;
    assert_eq!(started(&other).await, 1);
    run(&db, "commit; select jobs.insert('k'), jobs.maintain()").await;
    assert_eq!(started(&other).await, 0);
}

#[tokio::test]
async fn a_held_job_counts_under_its_unique_key() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(&db, "select jobs.define_limit('one', concurrency => 1); select jobs.insert('first')")
        .await;
    for access in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {access}")).await;
        let insert = |on_conflict: &str| {
            format!(
                r#"select state || ' ' || unique_skipped_as_duplicate from jobs.insert('k', unique_opts => '{{"by_kind": true, "on_conflict": {on_conflict}}}')"#
            )
        };
        assert_eq!(texts(&db, &insert(r#""skip""#)).await, ["available false"]);
        assert_eq!(texts(&db, &insert(r#""skip""#)).await, ["available true"]);
        let update = insert(r#"{"update": {"available": ["priority"]}}"#);
        assert_eq!(texts(&db, &update).await, ["available true"]);
        assert_eq!(texts(&db, &insert(r#""replace""#)).await, ["available false"]);
        let both = "jobs.jobs where kind = 'k' and state in ('available', 'cancelled')";
        assert_eq!(count(&db, both).await, 2);
        run(&db, "select jobs.delete(id) from jobs.jobs where kind = 'k'").await;
    }
}

#[tokio::test]
async fn a_fetch_with_an_old_snapshot_loses_no_job_that_its_transaction_has_promoted() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("limits").await, cluster.connect("limits").await);
    for (n, access) in ["on", "off"].into_iter().enumerate() {
        run(&other, &format!("set jobs.direct_access = {access}")).await;
        let limit =
            format!("select jobs.define_limit('one', queues => '{{q{n}}}', concurrency => 1)");
        run(&db, &limit).await;
        let insert = format!("select jobs.insert('k', queue => 'q{n}')");
        run(&db, &insert).await;
        run(&db, &format!("select jobs.fetch('q{n}')")).await;
        run(&other, "begin isolation level repeatable read; select count(*) from jobs.job").await;
        run(&db, &format!("{insert}; select jobs.fetch('q{n}')")).await;
        let both = format!("{COMPLETE}; select jobs.fetch('q{n}')");
        let both = other.batch_execute(&both).await;
        // Without direct access it has seen nothing to promote.
        assert_eq!(sqlstate(both), if access == "on" { "40001" } else { "00000" });
        run(&other, "commit").await;
        assert_eq!(count(&db, "jobs.check()").await, 0);
    }
}

/// The first of two jobs leaves the lane, so the second one goes back to it, in the same call.
#[tokio::test]
async fn jobs_of_which_one_takes_the_place_of_the_other_are_replaced_and_updated_together() {
    let cluster = Cluster::quiet();
    let db = cluster.database("limits").await;
    run(&db, "select jobs.define_limit('one', concurrency => 1)").await;
    for access in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {access}")).await;
        for (on_conflict, left) in
            [(r#""replace""#, 2), (r#"{"update": {"available": ["queue"]}}"#, 0)]
        {
            let both = |on_conflict: &str, queue: &str| {
                format!(
                    r#"select state || ' ' || unique_skipped_as_duplicate from jobs.insert_batch('k', array['{{"n": 1}}', '{{"n": 2}}']::jsonb[], '{{"by_args": true, "on_conflict": {on_conflict}}}', queue => '{queue}')"#
                )
            };
            let skipped = (left == 0).to_string();
            assert_eq!(texts(&db, &both(r#""skip""#, "q")).await, ["available false"; 2]);
            let changed = texts(&db, &both(on_conflict, "r")).await;
            assert_eq!(changed, [format!("available {skipped}"), format!("available {skipped}")]);
            assert_eq!(count(&db, "jobs.jobs where state = 'cancelled'").await, left);
            assert_eq!(count(&db, "jobs.jobs where queue = 'r' and state = 'available'").await, 2);
            assert_eq!(count(&db, "jobs.check()").await, 0);
            assert_eq!(number(&db, "select count(*) from jobs.fetch('r', 2)").await, 1);
            run(&db, "select jobs.cancel(id, force => true), jobs.delete(id) from jobs.jobs").await;
        }
    }
}
