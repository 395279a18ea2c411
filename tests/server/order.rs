//! Order by key, step by step: jobs of a key start one after the other, and keys share the starts;
//! also if the queue is spread over cells by the key. `keyed.rs` has what happens when all goes on
//! at once.

use jobs_tests::{
    Client, Cluster, Mode, blocked, comes_true, count, is, number, quiet, run, sqlstate, texts,
    with,
};

/// A crash takes the sessions, and nothing else: who had the turn has it.
#[tokio::test]
async fn a_crash_loses_no_turn() {
    let (cluster, db) = with("crash", &[("jobs.interval", "100ms")]).await;
    run(
        &db,
        r#"select jobs.order_queue('q', '{"by_args": ["t"]}', strict => true);
           select jobs.insert('k', '{"t": 1}', queue => 'q', retry => '{"strategy": "constant", "initial": "PT1H"}') from generate_series(1, 3);
           select jobs.fetch('q', lease => '1 s')"#,
    )
    .await;
    cluster.restart(Mode::Immediate);
    let db = cluster.connect("crash").await;
    assert_eq!(count(&db, "jobs.fetch('q', 10)").await, 0);
    comes_true(&db, "count(*) = 1 and bool_and(state = 'retryable' and id = (select min(id) from jobs.job)) from jobs.jobs where attempt = 1").await;
    run(&db, "select jobs.retry(min(id)) from jobs.job").await;
    let first = "id = (select min(id) from jobs.job) from jobs.fetch('q', 10)";
    comes_true(&db, first).await;
    assert_eq!(count(&db, "jobs.check()").await, 0);
}

/// Makes a database one of two cells that share the queue by `t`.
pub fn cell_of_two(cell: usize, queue: &str) -> String {
    format!(
        r#"select jobs.set_cell({cell}), jobs.spread_queue('{queue}', '{{"by_args": ["t"]}}', '{{0,1}}');"#
    )
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
        run(&db, &cell_of_two(cell, "q")).await;
        run(&db, SHARES).await;
        tenants.push(share(&db, &weights, 500).await);
    }
    assert!(tenants[0] > 1 && tenants[1] > 1 && tenants[0] + tenants[1] == 8, "{tenants:?}");
}

/// Starts by weight, whoever comes when, and at most as far apart as the weights say.
#[tokio::test]
async fn keys_share_the_starts_by_weight() {
    let (_cluster, db) = with("shares", &[]).await;
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

/// Jobs that return to their lane hide from fetches until that commits, so maintenance leaves them
/// to fetches while their key has others there.
#[tokio::test]
async fn maintenance_takes_no_turn_from_a_key() {
    let cluster = Cluster::quiet();
    let db = cluster.database("lane").await;
    run(&db, r#"select jobs.order_queue('q', '{"by_args": ["t"]}', fair => true), jobs.insert_batch('k', array_fill('{"t": 1}'::jsonb, array[300]), queue => 'q')"#).await;
    for (fetched, in_lane) in [(20, 80), (4, 76), (1, 100)] {
        run(&db, &format!("select jobs.fetch('q', {fetched})")).await;
        run(&db, "select jobs.maintain()").await;
        assert_eq!(count(&db, "jobs.ready").await, in_lane);
    }
}

/// Fetches have held jobs return to the lane before their key has none there, also if it has others
/// that nobody wants.
#[tokio::test]
async fn fetches_return_held_jobs_in_time() {
    let cluster = Cluster::quiet();
    let db = cluster.database("held").await;
    run(&db, r#"select jobs.order_queue('q', '{"by_args": ["t"]}', fair => true);
        select jobs.insert_batch('unwanted', array_fill('{"t": 1}'::jsonb, array[50]), queue => 'q');
        select jobs.insert_batch('k', array_fill('{"t": 1}'::jsonb, array[300]), queue => 'q')"#).await;
    for _ in 0..300 {
        assert_eq!(count(&db, "jobs.fetch('q', 1, kinds => '{k}')").await, 1);
    }
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
    let (_cluster, db) = quiet("leaves").await;
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
    let (_cluster, db) = quiet("many").await;
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

/// A job is inserted while its queue is given another order, so its turn is that of another key.
#[tokio::test]
async fn a_turn_that_an_insert_took_in_the_order_before_overtakes_nobody() {
    let cluster = Cluster::quiet();
    let (db, other) = (cluster.database("order").await, cluster.connect("order").await);
    let order = |by: &str| {
        format!(
            r#"select jobs.order_queue('q', '{{"by_args": ["{by}"]}}', strict => true, fair => true)"#
        )
    };
    run(&db, &order("t")).await;
    for kind in ["first", "second", "third"] {
        run(&db, &format!(r#"select jobs.insert('{kind}', '{{"t": 1}}', queue => 'q')"#)).await;
    }
    run(&other, r#"begin; select jobs.insert('last', '{"t": 2}', queue => 'q')"#).await;
    run(&db, &order("u")).await;
    run(&other, "commit").await;
    for expected in ["first", "second", "third", "last"] {
        run(&db, "select count(*) from jobs.fetch('q', 10)").await;
        run(&db, "select jobs.maintain()").await;
        let running = "select kind from jobs.jobs where state = 'running'";
        run(&db, "select count(*) from jobs.fetch('q', 10)").await;
        assert_eq!(texts(&db, running).await, [expected]);
        run(&db, COMPLETE).await;
    }
}

/// A limit holds the jobs of one key while those of another start. They have no credit for that.
#[tokio::test]
async fn a_key_that_a_limit_held_shares_the_starts_from_then_on() {
    let (_cluster, db) = quiet("held").await;
    run(
        &db,
        r#"select jobs.order_queue('q', '{"by_args": ["t"]}', fair => true);
           select jobs.define_limit('two', '{"by_args": ["t"]}', concurrency => 2);
           select jobs.insert_batch('k', array_fill('{"t": "a"}'::jsonb, '{300}'), queue => 'q');
           select jobs.insert_batch('k', array_fill('{"t": "b"}'::jsonb, '{900}'), queue => 'q')"#,
    )
    .await;
    assert_eq!(count(&db, "jobs.fetch('q', 4)").await, 4);
    run(&db, &format!("{COMPLETE} and args->>'t' = 'b'")).await;
    assert!(!starts(&db, 200).await.contains('a'));
    run(&db, COMPLETE).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.check()").await, 0);
    let starts = starts(&db, 200).await;
    assert!(!starts.contains("aaa") && !starts.contains("bbb"), "{starts}");
}

/// The keys of so many jobs that are started and completed one by one, beside maintenance.
async fn starts(db: &Client, jobs: usize) -> String {
    let work = "with f as materialized (select * from jobs.fetch('q')) select args->>'t' from f where jobs.complete(id, token) is not null";
    let mut keys = String::new();
    for n in 0..jobs {
        keys += &texts(db, work).await.concat();
        if n % 10 == 0 {
            run(db, "select jobs.maintain()").await;
        }
    }
    keys
}
