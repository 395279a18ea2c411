//! `CALL jobs.wait_for`: it returns when jobs are over, by the commit that ends them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jobs_tests::{
    Client, Cluster, Mode, SOON, comes_true, number, poll_until, rng, rows, run, scalar, text,
};
use rand::Rng;
use rand::seq::SliceRandom;

use crate::wait::{Waiter, only_commits, timed, without_looks};

/// Jobs of a queue; their ids.
async fn insert(db: &Client, queue: &str, count: i64) -> Vec<i64> {
    scalar(db, &format!("select array_agg(id order by id) from jobs.insert_batch('k', array_fill('1'::jsonb, array[{count}]), queue => '{queue}', timeout => '-1 second')")).await
}

/// A session that waits for job `id` until it is over.
async fn waiter(cluster: &Cluster, db: &Client, database: &str, id: i64) -> Waiter {
    let call = format!("call jobs.wait_for('{{{id}}}', '1 h')");
    Waiter::start(db, cluster.connect(database).await, &call).await
}

const PARTS: [(&str, &str); 9] = [
    ("INSERT", "select jobs.insert('k', queue => 'q')"),
    ("FETCH", "select jobs.fetch('q')"),
    ("LOSE", "select jobs.fetch('q', lease => '1 us')"),
    ("LAST", "select jobs.insert('k', queue => 'q', max_attempts => 1)"),
    ("UNIQUE", r#"select jobs.insert('k', queue => 'q', unique_opts => '{"by_kind": true}')"#),
    (
        "PERIODIC",
        r#"select jobs.schedule('n', '@yearly', 'k', unique_opts => '{"by_kind": true, "on_conflict": "replace"}')"#,
    ),
    ("LATER", "select pg_sleep(0.02)"),
    ("ASK", "select jobs.cancel(id) from jobs.jobs where state = 'running'"),
    ("MAINTAIN", "select jobs.maintain()"),
];

/// What is before, and what ends job 1 by then. HELD stands for a call about the job that runs.
const ENDS: &str = r#"
    INSERT; FETCH | HELD jobs.complete(id, token)
    INSERT; FETCH | HELD jobs.complete_many(array[id], array[token])
    INSERT; FETCH | HELD jobs.complete_many(array[id], array[token], array['1'::jsonb])
    INSERT; FETCH | HELD finish(id, token, '{"do": "complete"}')
    INSERT; FETCH | HELD finish(id, token, '{"do": "complete", "output": 1}')
    INSERT; FETCH | HELD jobs.fail(id, token, 'e', retryable => false)
    LAST; FETCH | HELD jobs.fail(id, token, 'e')
    LAST; FETCH | HELD jobs.fail_many(array[id], array[token], '{e}')
    LAST; FETCH | HELD finish(id, token, '{"do": "fail", "error": "e"}')
    INSERT; FETCH | HELD finish(id, token, '{"do": "fail", "error": "e", "retryable": false}')
    INSERT; FETCH | HELD jobs.cancel(id, force => true)
    INSERT; FETCH | HELD finish(id, token, '{"do": "cancel"}')
    INSERT; FETCH | ASK; HELD jobs.release(id, token)
    INSERT; FETCH | ASK; HELD jobs.snooze(id, token, '1 h')
    INSERT; FETCH | ASK; HELD jobs.fail(id, token, 'e')
    INSERT; FETCH | ASK; HELD jobs.fail_many(array[id], array[token], '{e}')
    INSERT; FETCH | ASK; HELD finish(id, token, '{"do": "release"}')
    INSERT; FETCH | ASK; HELD finish(id, token, '{"do": "snooze", "delay": 1}')
    INSERT; FETCH | HELD jobs.complete(id, token); select jobs.delete(1)
    INSERT | select jobs.cancel(1)
    INSERT | select jobs.cancel_many('q')
    INSERT | select jobs.delete(1)
    INSERT | select jobs.delete_many('q')
    select jobs.insert('k', queue => 'q', pending => true) | select jobs.cancel(1)
    UNIQUE | select jobs.insert('k', queue => 'q', unique_opts => '{"by_kind": true, "on_conflict": "replace"}')
    UNIQUE | select jobs.insert_batch('k', '{1}', queue => 'q', unique_opts => '{"by_kind": true, "on_conflict": "replace"}')
    UNIQUE | select jobs.insert_many('[{"kind": "k", "queue": "q", "unique_opts": {"by_kind": true, "on_conflict": "replace"}}]')
    UNIQUE; FETCH | select jobs.insert('k', queue => 'q', unique_opts => '{"by_kind": true, "on_conflict": "replace"}')
    UNIQUE; PERIODIC | select jobs.run_periodic('n')
    UNIQUE; PERIODIC; update jobs.periodic_schedule set defined_at = defined_at - interval '2 years', next_run_at = next_run_at - interval '2 years' | MAINTAIN
    select jobs.insert('k', queue => 'q', expires_at => clock_timestamp() + '10 ms'); LATER | MAINTAIN
    select jobs.insert('k', queue => 'q', expires_at => clock_timestamp() + '10 ms', scheduled_at => clock_timestamp() + '1 h'); LATER | MAINTAIN
    begin; LAST; LOSE; commit | MAINTAIN
    begin; INSERT; LOSE; select jobs.cancel(1); commit | MAINTAIN
    INSERT; FETCH | savepoint s; HELD jobs.complete(id, token); release s; select jobs.insert('k')
    INSERT; FETCH | savepoint s; HELD jobs.complete(id, token); rollback to s; HELD jobs.complete(id, token)
"#;

#[tokio::test]
async fn whatever_ends_a_job_wakes() {
    let cluster = only_commits();
    let db = cluster.database("ends").await;
    let mut client = cluster.connect("ends").await;
    run(&db, "create function finish(id bigint, token bigint, what jsonb) returns void language sql as
         'select jobs.finish_many(jsonb_build_array(what || jsonb_build_object(''id'', id, ''token'', token)))'").await;
    let part = |part: &str| match (PARTS.iter().find(|(name, _)| *name == part), part) {
        (Some((_, sql)), _) => sql.to_string(),
        (_, part) => match part.strip_prefix("HELD ") {
            Some(call) => format!("select {call} from jobs.jobs where state = 'running'"),
            None => part.into(),
        },
    };
    let statements = |parts: &str| parts.split("; ").map(part).collect::<Vec<_>>().join("; ");
    for [before, statement] in rows(ENDS) {
        run(&db, &statements(before)).await;
        println!("{statement}");
        let waiter = Waiter::start(&db, client, "call jobs.wait_for('{1}', '1 h')").await;
        run(&db, &format!("begin; {}; commit", statements(statement))).await;
        (_, client) = waiter.returned(Instant::now()).await;
        let over = "select coalesce(state::text, 'gone') from jobs.results('{1}')";
        let over = text(&client, over).await;
        assert!(
            ["completed", "cancelled", "discarded", "gone"].contains(&&*over),
            "{statement}: {over}"
        );
        run(&db, "drop extension jobs; create extension jobs").await;
    }
}

#[tokio::test]
async fn what_does_not_end_it_does_not() {
    let cluster = only_commits();
    let db = cluster.database("goes_on").await;
    let other = cluster.database("another").await;
    for db in [&db, &other] {
        insert(db, "q", 1).await;
        run(db, "select jobs.insert('k', queue => 'other'); select jobs.fetch('other')").await;
    }
    let held = "from jobs.jobs where state = 'running'";
    let (begun, call) = (Instant::now(), "call jobs.wait_for('{1}', '4 s')");
    let waiter = Waiter::start(&db, cluster.connect("goes_on").await, call).await;
    run(&db, "begin; select jobs.cancel(1); rollback").await;
    run(&db, "select count(*) from jobs.fetch('q')").await;
    run(&db, &format!("select jobs.heartbeat(id, token) {held} and id = 1")).await;
    run(&db, "select jobs.cancel(1)").await;
    run(&db, &format!("select jobs.complete(id, token) {held} and id = 2")).await;
    run(&db, "select jobs.delete(2)").await;
    run(&other, "select jobs.cancel(1, force => true)").await;
    let (waited, _) = waiter.returned(begun).await;
    assert!(waited >= Duration::from_secs(4), "{waited:?}");
}

#[tokio::test]
async fn many_wait_each_for_a_job_of_its_own() {
    const WAITERS: i64 = 1000;
    const AT_ONCE: usize = 100;
    let cluster =
        without_looks().set("jobs.enabled", "off").set("max_connections", WAITERS + 20).start();
    let db = cluster.database("many").await;
    let mut ids = insert(&db, "q", WAITERS).await;
    let mut waiters = BTreeMap::new();
    for id in &ids {
        let client = cluster.connect("many").await;
        let call = format!("call jobs.wait_for('{{{id}}}', '1 h')");
        let task = tokio::spawn(async move {
            run(&client, &call).await;
            client
        });
        waiters.insert(*id, task);
    }
    let asleep = "select count(*) from pg_stat_activity where wait_event_type = 'Extension' and query like 'call%'";
    poll_until("all sleep", 4 * SOON, async || number(&db, asleep).await == WAITERS).await;
    let held = format!("{HELD} and a.query like 'call%'");
    assert_eq!(number(&db, &held).await, 0, "they hold nothing");
    run(&db, &format!("select count(*) from jobs.fetch('q', {WAITERS})")).await;
    ids.shuffle(&mut rng());
    // One by one, then many at once.
    let (crowd, single) = ids.split_at(AT_ONCE);
    let mut returned = Vec::new();
    for id in single {
        run(&db, &format!("select jobs.complete(id, token) from jobs.jobs where id = {id}")).await;
        let woken = tokio::time::timeout(SOON, waiters.remove(id).unwrap()).await;
        returned.push(woken.expect("its commit wakes it").unwrap());
    }
    assert_eq!(number(&db, asleep).await, AT_ONCE as i64, "nobody else returns");
    let crowd = format!("{crowd:?}").replace(['[', ']'], "");
    let sql = format!(
        "select count(*) from jobs.complete_many('{{{crowd}}}', (select array_agg(j.token order by n) from unnest('{{{crowd}}}'::bigint[]) with ordinality u(id, n) join jobs.jobs j using (id))) where done"
    );
    assert_eq!(number(&db, &sql).await, AT_ONCE as i64);
    for (id, task) in waiters {
        let woken = tokio::time::timeout(SOON, task).await;
        woken.unwrap_or_else(|_| panic!("job {id}")).unwrap();
    }
}

/// How many sessions have a snapshot, a transaction id or a lock.
const HELD: &str = "select count(*) from pg_stat_activity a left join pg_locks l on l.pid = a.pid and l.locktype <> 'virtualxid'
  where (a.backend_xmin is not null or a.backend_xid is not null or l.pid is not null)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_is_missed_whenever_it_comes() {
    let cluster = only_commits();
    let db = cluster.database("races").await;
    let mut rng = rng();
    let mut pairs = Vec::new();
    for _ in 0..4 {
        let ids = insert(&db, "q", 200).await;
        let worker = cluster.connect("races").await;
        let waiter = cluster.connect("races").await;
        let delays: Vec<[u64; 3]> =
            ids.iter().map(|_| std::array::from_fn(|_| rng.random_range(0..1000))).collect();
        pairs.push(tokio::spawn(async move {
            for (id, [before, within, wait]) in ids.into_iter().zip(delays) {
                // The call comes before the statement, between it and its commit, or afterwards.
                let finish = async {
                    spin(before).await;
                    run(&worker, &format!("begin; select jobs.cancel({id})")).await;
                    spin(within).await;
                    run(&worker, "commit").await;
                };
                let wait = async {
                    spin(wait).await;
                    timed(&waiter, &format!("call jobs.wait_for('{{{id}}}', '1 h')")).await;
                };
                tokio::join!(finish, wait);
            }
        }));
    }
    for pair in pairs {
        pair.await.unwrap();
    }
}

/// Sleeps for so many microseconds.
async fn spin(micros: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(micros) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_waiter_that_comes_between_the_statement_and_its_commit_is_woken() {
    let cluster = only_commits();
    let db = cluster.database("between").await;
    let worker = cluster.connect("between").await;
    for id in insert(&db, "q", 2).await {
        run(&worker, &format!("begin; select jobs.cancel({id})")).await;
        let waiting = waiter(&cluster, &db, "between", id).await;
        run(&worker, "commit").await;
        waiting.returned(Instant::now()).await;
    }
}

#[tokio::test]
async fn a_prepared_transaction_ends_a_job_when_it_is_committed() {
    let cluster = only_commits();
    let db = cluster.database("prepared").await;
    let worker = cluster.connect("prepared").await;
    for (before, statement) in [
        ("", "jobs.complete(id, token) from jobs.fetch('q')"),
        (
            "select jobs.fetch('q')",
            "jobs.cancel(id, force => true) from jobs.jobs where state = 'running'",
        ),
        ("", "jobs.delete(id) from jobs.jobs where state = 'available'"),
    ] {
        println!("{statement}");
        let id = insert(&db, "q", 1).await[0];
        run(&db, before).await;
        let mut waiters = Vec::new();
        for end in ["rollback", "commit"] {
            run(&worker, &format!("begin; select {statement}")).await;
            waiters.push(waiter(&cluster, &db, "prepared", id).await);
            run(&worker, "prepare transaction 'p'").await;
            waiters.push(waiter(&cluster, &db, "prepared", id).await);
            for waiter in &waiters {
                poll_until("it sleeps on", SOON, async || waiter.sleeps(&db).await).await;
            }
            run(&db, &format!("{end} prepared 'p'")).await;
        }
        for waiter in waiters {
            waiter.returned(Instant::now()).await;
        }
    }
}

#[tokio::test]
async fn jobs_that_are_gone_or_never_were_are_over() {
    let cluster = only_commits();
    let db = cluster.database("gone").await;
    let observer = cluster.connect("gone").await;
    insert(&db, "q", 3).await;
    run(&db, "select jobs.configure_queue('q', retention_completed => '1 us'); select jobs.fetch('q', 3)").await;
    let complete = |id: i32| {
        format!(
            "select jobs.complete(id, token) from jobs.jobs where state = 'running' and id = {id}"
        )
    };
    let connect = || cluster.connect("gone");
    let call = |ids: &str, want: &str| format!("call jobs.wait_for('{{{ids}}}', '1 h', '{want}')");
    // 98 and 99 are not inserted. Of 1 to 3, 2 is the one that it waits for first.
    let missing = Waiter::start(&observer, connect().await, &call("1,98,99", "all")).await;
    let all = Waiter::start(&observer, connect().await, &call("1,2,3", "all")).await;
    for id in [1, 2] {
        run(&db, &complete(id)).await;
        // Pruned, if time allows by the server's clock.
        run(&db, "select pg_sleep(0.001), jobs.maintain()").await;
    }
    missing.returned(Instant::now()).await;
    let left = "select array_agg(id) from jobs.jobs";
    assert_eq!(scalar::<Vec<i64>>(&db, left).await, [3], "they are pruned");
    let any = Waiter::start(&observer, connect().await, &call("3", "any")).await;
    timed(&db, &call("1,3", "any")).await;
    timed(&db, &call("1,2,98", "all")).await;
    poll_until("it waits for the last one", SOON, async || all.sleeps(&observer).await).await;
    run(&db, &complete(3)).await;
    any.returned(Instant::now()).await;
    all.returned(Instant::now()).await;
}

#[tokio::test]
async fn all_and_any_of_many_in_whatever_order_they_end() {
    let cluster = only_commits();
    let db = cluster.database("sets").await;
    let observer = cluster.connect("sets").await;
    let mut rng = rng();
    for count in [1, 2, 8, 9, 300] {
        for order in ["ascending", "descending", "random"] {
            println!("{count} {order}");
            let mut ids = insert(&db, "q", count).await;
            let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            match order {
                "descending" => ids.reverse(),
                "random" => ids.shuffle(&mut rng),
                _ => {}
            }
            let connect = || cluster.connect("sets");
            let call = |want| format!("call jobs.wait_for('{{{list}}}', '1 h', '{want}')");
            let all = Waiter::start(&observer, connect().await, &call("all")).await;
            let any = Waiter::start(&observer, connect().await, &call("any")).await;
            let (last, others) = ids.split_last().unwrap();
            let cancel = |id: &i64| format!("select jobs.cancel({id})");
            if let Some((first, rest)) = others.split_first() {
                run(&db, &cancel(first)).await;
                any.returned(Instant::now()).await;
                for id in rest {
                    run(&db, &cancel(id)).await;
                }
                poll_until("it waits for the last one", SOON, async || all.sleeps(&observer).await)
                    .await;
                run(&db, &cancel(last)).await;
            } else {
                run(&db, &cancel(last)).await;
                any.returned(Instant::now()).await;
            }
            all.returned(Instant::now()).await;
        }
    }
}

#[tokio::test]
async fn holds_nothing_while_it_waits_and_may_be_a_worker_of_the_queue() {
    let cluster = only_commits();
    let db = cluster.database("nothing").await;
    insert(&db, "q", 2).await;
    let worker = cluster.connect("nothing").await;
    run(&worker, "select jobs.fetch('q')").await;
    let waiter = Waiter::start(&db, worker, "call jobs.wait_for('{2}', '1 h')").await;
    let held = format!("{HELD} and a.pid = {}", waiter.pid);
    assert_eq!(number(&db, &held).await, 0);
    run(&db, "select jobs.complete(id, token) from jobs.fetch('q')").await;
    let (_, worker) = waiter.returned(Instant::now()).await;
    let done = "select jobs.complete(id, token)::text from jobs.jobs where id = 1";
    assert_eq!(text(&worker, done).await, "completed");
}

#[tokio::test]
async fn without_preload_and_on_a_standby_it_looks_now_and_then() {
    let cluster = Cluster::builder().without_preload().start();
    let db = cluster.database("plain").await;
    for id in insert(&db, "q", 3).await {
        let waiting = waiter(&cluster, &db, "plain", id).await;
        run(&db, &format!("select jobs.cancel({id})")).await;
        waiting.returned(Instant::now()).await;
    }
    let id = insert(&db, "q", 1).await[0];
    let standby = cluster.standby();
    let replica = standby.connect("plain").await;
    comes_true(&replica, &format!("count(*) = 1 from jobs.jobs where id = {id}")).await;
    let waiting = waiter(&standby, &replica, "plain", id).await;
    run(&db, &format!("select jobs.cancel({id})")).await;
    waiting.returned(Instant::now()).await;
    drop(db);
    let state = "select state::text from jobs.results('{1}')";
    assert_eq!(text(&replica, state).await, "cancelled");
    cluster.stop(Mode::Fast);
}
