//! Order by key: jobs of a key start one after the other, however attempts begin and end, and keys
//! share the starts; also if the queue is spread over cells by the key.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jobs_tests::{
    Client, Cluster, Mode, blocked, comes_true, count, is, number, rng, run, seconds, sqlstate,
    texts,
};
use rand::Rng;
use tokio::task::JoinSet;

use crate::limits::{end, most, session};

/// Some of them in each of two cells.
const TENANTS: usize = 5;
/// Jobs of a tenant.
const JOBS: usize = 60;

const FETCH: &str =
    "select id, token, args->>'t' from jobs.fetch('q', max_jobs => 3, lease => '1 s')";

/// A job that a session held, from after its fetch to before its end.
struct Run {
    tenant: String,
    id: i64,
    from: Instant,
    to: Instant,
}

struct Scene {
    cluster: Cluster,
    databases: Vec<String>,
    inserting: AtomicUsize,
    is_over: AtomicBool,
    runs: Mutex<Vec<Run>>,
}

impl Scene {
    async fn session(&self, cell: usize, n: usize) -> Client {
        session(&self.cluster, &self.databases[cell], n).await
    }
}

/// Inserts the jobs of a tenant, some of them together, at any priority.
async fn insert(scene: &Scene, tenant: usize) {
    let mut rng = rng();
    let job = format!(r#"'k', '{{"t": {tenant}}}', queue => 'q'"#);
    let home = format!("select jobs.cell_for({job})::bigint");
    let home = number(&scene.session(0, tenant).await, &home).await;
    let db = scene.session(home as usize, tenant).await;
    let mut left = JOBS;
    while left > 0 {
        let some = rng.random_range(1..=left.min(5));
        let priority = rng.random_range(1..4);
        let insert = format!(
            r#"select jobs.insert_batch('k', array_fill('{{"t": {tenant}}}'::jsonb, array[{some}]), queue => 'q', priority => {priority}, max_attempts => 1000, retry => '{{"strategy": "constant", "initial": 0.05}}')"#
        );
        if db.batch_execute(&insert).await.is_ok() {
            left -= some;
        }
        seconds(rng.random_range(0.0..0.01)).await;
    }
    scene.inserting.fetch_sub(1, Ordering::Relaxed);
}

/// Works until nothing is left to do.
async fn work(scene: &Scene, n: usize) {
    let mut rng = rng();
    let cell = n % scene.databases.len();
    let mut db = scene.session(cell, n).await;
    while !scene.is_over.load(Ordering::Relaxed) {
        if rng.random_bool(0.1) {
            let _ = db.batch_execute(&format!("begin; select * from ({FETCH}) f; rollback")).await;
            let _ = db.batch_execute("rollback").await;
            continue;
        }
        let Ok(rows) = db.query(FETCH, &[]).await else {
            seconds(0.002).await;
            if db.is_closed() {
                db = scene.session(cell, n).await;
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
            let held = Run { tenant: row.get(2), id, from, to: Instant::now() };
            scene.runs.lock().unwrap().push(held);
            let _ = end(&db, id, token, &mut rng).await;
        }
    }
}

/// What broke the order.
fn broken(runs: &mut [Run]) -> Vec<String> {
    runs.sort_by_key(|run| run.from);
    let mut latest: HashMap<&str, &Run> = HashMap::new();
    let mut begun: HashSet<i64> = HashSet::new();
    let mut broken = Vec::new();
    for run in &*runs {
        if let Some(before) = latest.insert(&run.tenant, run).filter(|before| before.id != run.id) {
            if before.to > run.from {
                broken.push(format!("{} runs beside {}", run.id, before.id));
            }
            if run.id < before.id {
                broken.push(format!("{} starts after {}", run.id, before.id));
            }
            if begun.contains(&run.id) {
                broken.push(format!("{} comes back after {}", run.id, before.id));
            }
        }
        begun.insert(run.id);
    }
    broken
}

/// Makes this a cell of several that share the queue.
async fn become_cell(db: &Client, cell: usize, cells: usize) {
    let all: Vec<String> = (0..cells).map(|cell| cell.to_string()).collect();
    let spread = format!(
        r#"select jobs.spread_queue('q', '{{"by_args": ["t"]}}', '{{{}}}')"#,
        all.join(",")
    );
    run(db, &format!("select jobs.set_cell({cell})")).await;
    run(db, &spread).await;
}

/// In one database, or in cells.
async fn history(rules: &str, cells: usize) -> (Vec<Client>, Cluster, Vec<Run>) {
    const SESSIONS: usize = 16;
    let builder = Cluster::builder().allow(1000, "FATAL.*terminating connection");
    let cluster = builder.set("jobs.interval", "100ms").start();
    let databases: Vec<String> = (0..cells).map(|cell| format!("order{cell}")).collect();
    let mut all = Vec::new();
    for (cell, database) in databases.iter().enumerate() {
        let db = cluster.database(database).await;
        if cells > 1 {
            become_cell(&db, cell, cells).await;
        }
        run(&db, rules).await;
        all.push(db);
    }
    let scene = Arc::new(Scene {
        cluster,
        databases,
        inserting: AtomicUsize::new(TENANTS),
        is_over: AtomicBool::new(false),
        runs: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    for tenant in 0..TENANTS {
        let scene = scene.clone();
        tasks.spawn(async move { insert(&scene, tenant).await });
    }
    for n in 0..SESSIONS {
        let scene = scene.clone();
        tasks.spawn(async move { work(&scene, n).await });
    }
    while scene.inserting.load(Ordering::Relaxed) > 0 {
        seconds(0.05).await;
    }
    for db in &all {
        comes_true(db, "not exists (select from jobs.jobs where finalized_at is null)").await;
    }
    scene.is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    let scene = Arc::into_inner(scene).expect("the tasks are done");
    (all, scene.cluster, scene.runs.into_inner().unwrap())
}

fn ordered(how: &str) -> String {
    format!(r#"select jobs.order_queue('q', '{{"by_args": ["t"]}}', {how})"#)
}

/// Everything was done, in each cell something, and nothing is left.
async fn all_is_done(databases: &[Client], runs: &[Run]) {
    assert!(runs.len() >= TENANTS * JOBS, "{}", runs.len());
    for db in databases {
        assert!(count(db, "jobs.jobs").await > 0);
        for table in ["turn", "permit", "running", "scheduled", "ready", "check()"] {
            assert_eq!(count(db, &format!("jobs.{table}")).await, 0, "{table}");
        }
    }
}

async fn holds(how: &str, cells: usize) {
    let (databases, _cluster, mut runs) = history(&ordered(how), cells).await;
    assert_eq!(broken(&mut runs), [""; 0]);
    all_is_done(&databases, &runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_holds_and_everything_is_done_whatever_ends_an_attempt() {
    holds("strict => true", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_holds_beside_shares_over_two_cells() {
    holds("strict => true, fair => true", 2).await;
}

/// With the control that this order is not strict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_beside_a_fair_order_over_two_cells() {
    let limit = r#"select jobs.define_limit('t', '{"by_args": ["t"]}', '{q}', concurrency => 2)"#;
    let rules = [&ordered("fair => true"), limit].join(";");
    let (databases, _cluster, mut runs) = history(&rules, 2).await;
    for tenant in 0..TENANTS {
        let of = runs.iter().filter(|run| run.tenant == tenant.to_string());
        let most = most(of.map(|run| (run.from, run.to)));
        assert!(most <= 2, "{most} of tenant {tenant}");
    }
    all_is_done(&databases, &runs).await;
    assert!(!broken(&mut runs).is_empty());
}

/// A crash takes the sessions, and nothing else: who had the turn has it.
#[tokio::test]
async fn a_crash_loses_no_turn() {
    let cluster = Cluster::builder().set("jobs.interval", "100ms").start();
    let db = cluster.database("crash").await;
    run(
        &db,
        r#"select jobs.order_queue('q', '{"by_args": ["t"]}', strict => true);
           select jobs.insert('k', '{"t": 1}', queue => 'q') from generate_series(1, 3);
           select jobs.fetch('q', lease => '1 s')"#,
    )
    .await;
    cluster.stop(Mode::Immediate);
    cluster.start_again();
    let db = cluster.connect("crash").await;
    assert_eq!(number(&db, "select count(*) from jobs.fetch('q', 10)").await, 0);
    comes_true(&db, "count(*) = 1 and bool_and(state = 'retryable' and id = (select min(id) from jobs.job)) from jobs.jobs where attempt = 1").await;
    run(&db, "select jobs.retry(min(id)) from jobs.job").await;
    let first = "id = (select min(id) from jobs.job) from jobs.fetch('q', 10)";
    comes_true(&db, first).await;
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

const SHARES: &str = r#"select jobs.order_queue('q', '{"by_args": ["t"]}', fair => true, weights => '{"a": 3, "b": 2}')"#;

/// Inserts jobs of all tenants that live here, and has some of them start. Returns how many tenants
/// there are.
async fn share(db: &Client, weights: &[(&str, usize)], jobs: usize) -> usize {
    let mut here = Vec::new();
    for (tenant, weight) in weights {
        let insert = format!(
            r#"select jobs.insert_batch('k', array_fill('{{"t": "{tenant}"}}'::jsonb, array[{jobs}]), queue => 'q')"#
        );
        match db.batch_execute(&insert).await {
            Ok(()) => here.push((tenant, weight)),
            refused => assert_eq!(sqlstate(refused), "JB001"),
        }
    }
    let mut starts: Vec<String> = Vec::new();
    while starts.len() < jobs * here.len() * 3 / 10 {
        let fetch = "with f as materialized (select * from jobs.fetch('q', 10)) select args->>'t' from f where jobs.complete(id, token) is not null";
        starts.extend(texts(db, fetch).await);
    }
    let all: usize = here.iter().map(|(_, weight)| **weight).sum();
    for (tenant, weight) in &here {
        let places: Vec<usize> = (0..starts.len()).filter(|n| starts[*n] == **tenant).collect();
        let expected = starts.len() * **weight / all;
        assert!(places.len().abs_diff(expected) <= expected / 20, "{tenant}: {}", places.len());
        let longest = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= all / **weight + 2, "{tenant} waited for {longest} starts");
    }
    here.len()
}

#[tokio::test]
async fn tenants_of_a_spread_queue_share_the_starts_of_their_cell() {
    let cluster = Cluster::builder().start();
    let weights = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|tenant| match tenant {
        "a" => (tenant, 3),
        "b" => (tenant, 2),
        _ => (tenant, 1),
    });
    let mut tenants = Vec::new();
    for cell in 0..2 {
        let db = cluster.database(&format!("shares{cell}")).await;
        become_cell(&db, cell, 2).await;
        run(&db, SHARES).await;
        tenants.push(share(&db, &weights, 500).await);
    }
    assert!(tenants[0] > 1 && tenants[1] > 1 && tenants[0] + tenants[1] == 8, "{tenants:?}");
}

/// Starts by weight, whoever comes when, and at most as far apart as the weights say.
#[tokio::test]
async fn keys_share_the_starts_by_weight() {
    let cluster = Cluster::builder().start();
    let db = cluster.database("shares").await;
    run(&db, SHARES).await;
    assert_eq!(share(&db, &[("a", 3), ("b", 2), ("c", 1), ("d", 1)], 8400).await, 4);
    // A new key begins at the present.
    run(&db, r#"select jobs.insert('k', '{"t": "e"}', queue => 'q') from generate_series(1, 100)"#)
        .await;
    let next = texts(&db, "select args->>'t' from jobs.fetch('q', 80)").await;
    let new = next.iter().filter(|tenant| *tenant == "e").count();
    assert!((8..=12).contains(&new), "{new} of 80");
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

/// A job joins the order of its key when its insert commits.
#[tokio::test]
async fn no_key_waits_for_an_insert_that_is_open() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("open").await, cluster.connect("open").await);
    for order in ["strict => true", "strict => true, fair => true"] {
        let order = format!(r#"select jobs.order_queue('q', '{{"by_args": ["t"]}}', {order})"#);
        run(&db, &order).await;
        let insert = |kind| format!(r#"select jobs.insert('{kind}', '{{"t": 1}}', queue => 'q')"#);
        run(&other, &format!("begin; {}", insert("open"))).await;
        run(&db, &insert("committed")).await;
        run(&db, "select jobs.maintain()").await;
        assert_eq!(kinds(&db).await, ["committed"]);
        run(&other, "commit").await;
        assert_eq!(kinds(&db).await, [""; 0]);
        run(&db, COMPLETE).await;
        assert_eq!(kinds(&db).await, ["open"]);
        run(&db, COMPLETE).await;
    }
}

/// The kinds of the jobs that a fetch starts.
async fn kinds(db: &Client) -> Vec<String> {
    texts(db, "select kind from jobs.fetch('q', 10)").await
}

const COMPLETE: &str = "select jobs.complete(id, token) from jobs.jobs where state = 'running'";

#[tokio::test]
async fn a_job_that_leaves_before_its_start_leaves_its_place_to_the_next() {
    let cluster = Cluster::quiet();
    let db = cluster.database("leaves").await;
    let both = r#"select jobs.order_queue('q', '{"by_args": ["t"]}', strict => true);
        select jobs.define_limit('one', queues => '{p}', concurrency => 1)"#;
    run(&db, both).await;
    for (access, queue) in [("on", "q"), ("on", "p"), ("off", "q"), ("off", "p")] {
        run(&db, &format!("set jobs.direct_access = {access}")).await;
        for leaves in [
            "select jobs.cancel(min(id)) from jobs.job",
            "select jobs.delete(min(id)) from jobs.job",
            "select jobs.update(min(id), queue => 'other') from jobs.job",
            r#"select jobs.update(min(id), args => '{"t": 2}'), jobs.cancel(min(id)) from jobs.job"#,
            "select pg_sleep(0.02); select jobs.maintain()",
        ] {
            let insert = format!(
                r#"select jobs.insert('k', '{{"t": 1}}', queue => '{queue}', expires_at => case n when 1 then clock_timestamp() + '20 ms' end) from generate_series(1, 2) n"#
            );
            run(&db, &insert).await;
            run(&db, leaves).await;
            let second =
                format!("id = (select max(id) from jobs.job) from jobs.fetch('{queue}', 10)");
            assert!(is(&db, &second).await, "{access}, {queue}: {leaves}");
            run(&db, COMPLETE).await;
            run(&db, "select jobs.delete(id) from jobs.job").await;
        }
    }
}

#[tokio::test]
async fn of_two_first_orders_of_a_queue_the_later_one_stays() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("two").await, cluster.connect("two").await);
    run(&db, r#"select jobs.insert('k', '{"t": 1}', queue => 'q') from generate_series(1, 2)"#)
        .await;
    run(&db, r#"begin; select jobs.order_queue('q', '{"by_args": ["t"]}', fair => true)"#).await;
    let later = r#"select jobs.order_queue('q', '{"by_args": ["t"]}', strict => true)"#;
    let later = tokio::spawn(async move { other.batch_execute(later).await });
    blocked(&cluster.connect("two").await, 1).await;
    run(&db, "commit").await;
    later.await.unwrap().unwrap();
    assert_eq!(texts(&db, "select is_strict::text from jobs.limit_rule").await, ["true"]);
    assert_eq!(kinds(&db).await, ["k"]);
    run(&db, COMPLETE).await;
    assert_eq!(kinds(&db).await, ["k"]);
}

/// 100,000 keys, each with a job or two: all start, those of a key one after the other, and no
/// fetch finds nothing.
#[tokio::test]
async fn many_keys_are_worked_off_without_a_stall() {
    const KEYS: usize = 100_000;
    let cluster = Cluster::quiet();
    let db = cluster.database("many").await;
    run(&db, "create table starts (n bigserial, queue text, key bigint, id bigint)").await;
    for (queue, order) in [("s", "strict => true"), ("f", "fair => true")] {
        let order =
            format!(r#"select jobs.order_queue('{queue}', '{{"by_args": ["t"]}}', {order})"#);
        run(&db, &order).await;
        let insert = format!(
            "select count(*) from generate_series(0, 9) part, lateral jobs.insert_batch('k', (select array_agg(jsonb_build_object('t', n)) from generate_series(1, {KEYS}) n, generate_series(0, n % 2) where n % 10 = part), queue => '{queue}')"
        );
        run(&db, &insert).await;
        let work = format!(
            "with f as materialized (select * from jobs.fetch('{queue}', 10000)),
                  s as (insert into starts (queue, key, id) select queue, (args->>'t')::bigint, id from f)
             select count(jobs.complete(id, token)) from f"
        );
        let mut left = KEYS * 3 / 2;
        while left > 0 {
            let done = number(&db, &work).await as usize;
            assert!(done > 0, "{queue}: {left} are left");
            left -= done;
        }
    }
    let swapped = "(select id - lag(id) over (partition by queue, key order by n) as step from starts) s where step <= 0";
    assert_eq!(count(&db, swapped).await, 0);
    assert_eq!(count(&db, "(select distinct queue, id from starts) s").await, 3 * KEYS as i64);
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

#[tokio::test]
async fn a_job_whose_turn_an_old_snapshot_hides_is_not_held_by_it() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("hides").await, cluster.connect("hides").await);
    for access in ["on", "off"] {
        run(&other, &format!("set jobs.direct_access = {access}")).await;
        run(
            &db,
            r#"select jobs.order_queue('q', '{"by_args": ["t"]}', strict => true);
               select jobs.define_limit('one', concurrency => 1);
               select jobs.insert('first', '{"t": 1}', queue => 'q'), jobs.insert('next', '{"t": 2}', queue => 'q', pending => true)"#,
        )
        .await;
        assert_eq!(texts(&db, "select kind from jobs.fetch('q')").await, ["first"]);
        run(&other, "begin isolation level repeatable read; select count(*) from jobs.job").await;
        run(&db, "select jobs.activate(max(id)) from jobs.job").await;
        // It gets the turn of its key, and the limit holds it.
        assert_eq!(kinds(&db).await, [""; 0]);
        run(&other, &format!("{COMPLETE}; commit")).await;
        run(&db, "select jobs.maintain()").await;
        assert_eq!(kinds(&db).await, ["next"], "{access}");
        run(&db, COMPLETE).await;
    }
}

/// Two jobs were inserted while the order was set; maintenance has seen both, and would hold one.
#[tokio::test]
async fn maintenance_holds_no_job_that_others_have_taken_meanwhile() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("order").await, cluster.connect("order").await);
    let taking = cluster.connect("order").await;
    run(&other, "begin; select jobs.insert('k', queue => 'q') from generate_series(1, 2)").await;
    let order = r#"select jobs.order_queue('q', '{"by_args": ["t"]}', strict => true)"#;
    run(&db, order).await;
    run(&other, "commit").await;
    run(&taking, "begin; lock table jobs.ready in share mode").await;
    let take = async {
        blocked(&db, 1).await;
        run(&taking, "select jobs.cancel(max(id)) from jobs.job; commit").await;
    };
    tokio::join!(run(&other, "select jobs.maintain()"), take);
    assert_eq!(count(&db, "jobs.check()").await, 0);
    assert_eq!(count(&db, "jobs.scheduled").await, 0);
    assert_eq!(count(&db, "jobs.ready where gate is not null").await, 1);
}
