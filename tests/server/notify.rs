//! `LISTEN jobs`: what is notified, how often, and that no producer pays for it.

use std::collections::BTreeSet;
use std::time::Instant;

use jobs_tests::{
    Client, Cluster, Listener, SOON, comes_true, count, number, poll_until, run, scalar, seconds,
    sqlstate, text, with,
};
use serde_json::{Value, json};

/// What is notified next.
async fn next(listener: &mut Listener) -> Value {
    serde_json::from_str(&listener.next().await).expect("JSON")
}

/// All that came, or still comes, before that of a job which is inserted now.
async fn so_far(listener: &mut Listener, db: &Client) -> Vec<Value> {
    run(db, "select jobs.insert('k', queue => 'that is all')").await;
    let mut all = Vec::new();
    loop {
        match next(listener).await {
            last if last == json!({"queue": "that is all"}) => return all,
            payload => all.push(payload),
        }
    }
}

/// What it was about is not known any more, so all that there is to notify is. A worker's visit
/// notifies only what a session has left for it, so it is the commit that does.
#[tokio::test]
async fn a_prepared_transaction_notifies_when_it_commits() {
    let (cluster, db) = with("prepared", &[("jobs.interval", "1h")]).await;
    let mut listener = Listener::new(&cluster, "prepared").await;
    run(&db, "select jobs.insert('k', queue => 'runs')").await;
    assert_eq!(next(&mut listener).await, json!({"queue": "runs"}));
    let running = number(&db, "select id from jobs.fetch('runs')").await;
    let prepare = format!(
        "begin; select jobs.insert('k', queue => 'q'), jobs.cancel({running}); prepare transaction 'p'"
    );
    run(&db, &prepare).await;
    assert_eq!(so_far(&mut listener, &db).await, [] as [Value; 0]);
    run(&db, "commit prepared 'p'").await;
    let told = [next(&mut listener).await, next(&mut listener).await, next(&mut listener).await];
    for wanted in [json!({"queue": "q"}), json!({"cancel": running})] {
        assert!(told.contains(&wanted), "{told:?} has no {wanted}");
    }
}

#[tokio::test]
async fn available_jobs_are_notified_at_once_by_queue() {
    // Between two passes an hour: notifications do not wait for one.
    let (cluster, db) = with("available", &[("jobs.interval", "1h")]).await;
    let mut listener = Listener::new(&cluster, "available").await;
    for n in 0..10 {
        run(&db, &format!("select jobs.insert('k', queue => 'q{n}')")).await;
        assert_eq!(next(&mut listener).await, json!({"queue": format!("q{n}")}));
        seconds(0.1).await;
    }
}

#[tokio::test]
async fn the_payload_is_what_was_promised() {
    let (cluster, db) = with("payload", &[]).await;
    let mut listener = Listener::new(&cluster, "payload").await;
    run(&db, "select jobs.insert('k', queue => 'mail \"x\"')").await;
    assert_eq!(listener.next().await, r#"{"queue": "mail \"x\""}"#);
    run(&db, "select jobs.fetch('mail \"x\"'); select jobs.cancel(1)").await;
    assert_eq!(listener.next().await, r#"{"cancel": 1}"#);
}

#[tokio::test]
async fn whatever_makes_a_job_available_is_notified_and_nothing_else() {
    let (cluster, db) = with("ways", &[("jobs.interval", "50ms")]).await;
    let mut listener = Listener::new(&cluster, "ways").await;
    let q = vec![json!({"queue": "q"})];
    let nothing = Vec::new();
    let running = "select jobs.insert('k', queue => 'q'); select jobs.fetch('q')";
    let finish = |call: &str| format!("select {call} from jobs.jobs where state = 'running'");
    for (before, statement, expected) in [
        ("", "select jobs.insert('k', queue => 'q')".into(), &q),
        ("", "select jobs.insert_batch('k', '{1,2}', queue => 'q')".into(), &q),
        ("", "begin; select jobs.insert('k', queue => 'q'); rollback".into(), &nothing),
        ("", "select jobs.insert('k', queue => 'q', pending => true)".into(), &nothing),
        (
            "",
            "select jobs.insert('k', queue => 'q', scheduled_at => clock_timestamp() + '1 h')"
                .into(),
            &nothing,
        ),
        (
            "select jobs.insert('u', queue => 'q', unique_opts => '{\"by_kind\": true}')",
            "select jobs.insert('u', queue => 'q', unique_opts => '{\"by_kind\": true}')".into(),
            &nothing,
        ),
        (running, finish("jobs.release(id, token)"), &q),
        (running, finish("jobs.fail(id, token, 'x', '0')"), &q),
        (running, finish("jobs.fail_many(array[id], array[token], '{x}', retry_in => '0')"), &q),
        (running, finish("jobs.fail(id, token, 'x', '1 h')"), &nothing),
        (running, finish("jobs.complete(id, token)"), &nothing),
        (
            "select jobs.insert('k', queue => 'q', pending => true)",
            "select jobs.activate(max(id)) from jobs.job where queue <> 'that is all'".into(),
            &q,
        ),
        (
            "select jobs.insert('k', queue => 'other')",
            "select jobs.update(max(id), queue => 'q') from jobs.job where queue <> 'that is all'"
                .into(),
            &q,
        ),
        (
            "select jobs.insert('k', queue => 'q')",
            "select jobs.update(max(id), args => '1') from jobs.job where queue <> 'that is all'"
                .into(),
            &nothing,
        ),
        (
            "select jobs.insert('k', queue => 'q')",
            "select jobs.cancel(max(id)) from jobs.job where queue <> 'that is all'".into(),
            &nothing,
        ),
        ("select jobs.insert('k', queue => 'q')", "select jobs.fetch('q')".into(), &nothing),
        ("select jobs.insert('k', queue => 'q')", "select jobs.pause_queue('q')".into(), &nothing),
        (
            "select jobs.insert('k', queue => 'q'); select jobs.pause_queue('q')",
            "select jobs.resume_queue('q')".into(),
            &q,
        ),
    ] {
        run(&db, before).await;
        so_far(&mut listener, &db).await;
        run(&db, &statement).await;
        // They may come with what ends them, in whatever order the server gives.
        seconds(0.1).await;
        assert_eq!(&so_far(&mut listener, &db).await, expected, "{statement}");
        run(&db, "drop extension jobs; create extension jobs").await;
    }
}

#[tokio::test]
async fn due_and_rescued_jobs_are_notified() {
    let (cluster, db) = with("due", &[]).await;
    let mut listener = Listener::new(&cluster, "due").await;
    run(&db, "select jobs.insert('k', queue => 'q', scheduled_at => clock_timestamp() + '1 s')")
        .await;
    assert_eq!(next(&mut listener).await, json!({"queue": "q"}));
    assert_eq!(number(&db, "select available from jobs.queues").await, 1);
    // The lease of the only attempt but one ends, and the next is due a second later.
    run(&db, "select jobs.fetch('q', lease => '0.2 s')").await;
    assert_eq!(next(&mut listener).await, json!({"queue": "q"}));
}

#[tokio::test]
async fn cancel_requests_of_running_jobs_are_notified() {
    let (cluster, db) = with("cancels", &[]).await;
    run(&db, "select jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 200) n)); select jobs.fetch(max_jobs => 199)").await;
    let mut listener = Listener::new(&cluster, "cancels").await;
    so_far(&mut listener, &db).await;
    run(&db, "select jobs.cancel(200)").await;
    assert_eq!(so_far(&mut listener, &db).await, Vec::<Value>::new(), "it was not running");
    run(&db, "select jobs.cancel(1)").await;
    assert_eq!(next(&mut listener).await, json!({"cancel": 1}));
    run(&db, "begin; select jobs.cancel(2); rollback; begin; select jobs.cancel(3); commit").await;
    assert_eq!(next(&mut listener).await, json!({"cancel": 3}));
    // By force it is cancelled at once, and its worker may as well know.
    run(&db, "select jobs.cancel(4, force => true)").await;
    assert_eq!(next(&mut listener).await, json!({"cancel": 4}));
    // More at once than are remembered one by one.
    assert_eq!(
        number(&db, "select jobs.cancel_many('default', states => '{running}')").await,
        196,
        "all but those that were asked already, and the cancelled one"
    );
    let mut left: BTreeSet<i64> = (1..=199).filter(|id| ![1, 3, 4].contains(id)).collect();
    while !left.is_empty() {
        let told = next(&mut listener).await["cancel"].as_i64().unwrap();
        // Where not all are remembered one by one, all that were asked are told again.
        assert!(left.remove(&told) || [1, 3].contains(&told), "{told}");
    }
    assert_eq!(
        count(&db, "jobs.jobs where cancel_requested_at is not null and state = 'running'").await,
        198
    );
}

#[tokio::test]
async fn names_of_any_kind_and_number_are_notified() {
    let (cluster, db) = with("names", &[]).await;
    let mut listener = Listener::new(&cluster, "names").await;
    for name in [
        r#"a "quoted" \ one"#.to_string(),
        "für Zwölf 🦀".into(),
        "\u{10FFFF}".repeat(127),
        "'; drop table jobs.job; --".into(),
        " ".into(),
    ] {
        db.execute("select jobs.insert('k', queue => $1)", &[&name]).await.unwrap();
        assert_eq!(next(&mut listener).await, json!({"queue": name}));
    }
    // More names in one transaction than are remembered, and more than that from many.
    for sql in [
        "select jobs.insert('k', queue => 'a queue with a name ' || n) from generate_series(1, 300) n",
        "do 'begin for n in 1..300 loop perform jobs.insert(''k'', queue => ''a queue with a name '' || n); commit; end loop; end'",
    ] {
        run(&db, sql).await;
        let mut told = BTreeSet::new();
        while told.len() < 300 {
            let name = next(&mut listener).await["queue"].as_str().unwrap().to_string();
            if name.starts_with("a queue") {
                told.insert(name);
            }
        }
        run(&db, "select jobs.cancel_many(states => '{available}')").await;
    }
}

#[tokio::test]
async fn many_commits_are_one_notification() {
    let (cluster, db) = with("coalesced", &[]).await;
    let mut listener = Listener::new(&cluster, "coalesced").await;
    let begun = Instant::now();
    for _ in 0..1000 {
        run(&db, "select jobs.insert('k', queue => 'q')").await;
    }
    let told = so_far(&mut listener, &db).await.len() as u128;
    let moments = begun.elapsed().as_millis() / 50 + 2;
    println!("{told} notifications of 1000 commits in {:?}", begun.elapsed());
    assert!(told >= 1 && told <= moments, "{told} in {:?}", begun.elapsed());
}

#[tokio::test]
async fn they_can_be_switched_off_and_are_of_one_database() {
    let (cluster, db) = with("switched", &[("jobs.notify", "off")]).await;
    let other = cluster.database("other").await;
    let mut listener = Listener::new(&cluster, "switched").await;
    run(&db, "select jobs.insert('k', queue => 'silent')").await;
    seconds(0.5).await;
    cluster.set("jobs.notify", "on");
    cluster.reload();
    poll_until("it is on", SOON, async || {
        let on = text(&db, "show jobs.notify").await;
        on == "on"
    })
    .await;
    run(&other, "select jobs.insert('k', queue => 'elsewhere')").await;
    seconds(0.5).await;
    assert_eq!(so_far(&mut listener, &db).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_worker_that_has_gone_comes_back_to_notify() {
    let cluster = Cluster::builder().without_visits().start();
    let db = cluster.database("gone").await;
    let mut listener = Listener::new(&cluster, "gone").await;
    so_far(&mut listener, &db).await;
    comes_true(&db, "count(*) = 0 from pg_stat_activity where backend_type = 'jobs worker'").await;
    run(&db, "select jobs.insert('k', queue => 'q')").await;
    assert_eq!(next(&mut listener).await, json!({"queue": "q"}));
}

/// The lock that every commit with a notification takes is held by one that waits for a standby
/// which does not exist.
#[tokio::test]
async fn no_producer_takes_the_lock_of_notifications() {
    let cluster = Cluster::builder()
        .set("jobs.interval", "50ms")
        .set("synchronous_standby_names", "nobody")
        .set("synchronous_commit", "local")
        .start();
    cluster.allow(20, "jobs worker .*maintenance failed");
    let db = cluster.database("lock").await;
    let mut listener = Listener::new(&cluster, "lock").await;
    so_far(&mut listener, &db).await;

    let holder = cluster.connect("lock").await;
    run(&holder, "set synchronous_commit = on").await;
    let pid: i32 = scalar(&holder, "select pg_backend_pid()").await;
    let holding = tokio::spawn(async move {
        // A write: a commit of nothing but notifications does not wait for standbys.
        let _ = holder.batch_execute("begin; create table t (); notify other; commit").await;
        holder
    });
    let locks = |mode: &str| {
        format!(
            "select count(*) from pg_locks where locktype = 'object' and database = 0
                and classid = 'pg_database'::regclass and objid = 0 and {mode}"
        )
    };
    poll_until("the lock is held", SOON, async || {
        number(&db, &locks(&format!("granted and pid = {pid}"))).await == 1
    })
    .await;
    run(&db, "set statement_timeout = '60s'").await;
    assert_eq!(
        sqlstate(db.batch_execute("set lock_timeout = '200ms'; notify other").await),
        "55P03",
        "control"
    );

    for sql in [
        "select jobs.insert('k', queue => 'q')",
        "select jobs.insert_batch('k', '{1,2,3}', queue => 'q')",
        "select jobs.fetch('q', max_jobs => 3)",
        "select jobs.cancel_many('q', states => '{running}')",
        "select jobs.fail(id, token, 'x', '0') from jobs.jobs where state = 'running' and id % 2 = 0",
        "select jobs.insert('k', queue => 'later', scheduled_at => clock_timestamp() + '1.5 s')",
    ] {
        let ran = tokio::time::timeout(SOON, run(&db, sql)).await;
        ran.unwrap_or_else(|_| panic!("it waits: {sql}"));
        let mine = format!("pid = {}", number(&db, "select pg_backend_pid()::bigint").await);
        assert_eq!(number(&db, &locks(&mine)).await, 0);
    }
    // The worker waits for the lock, but not for long: maintenance goes on.
    poll_until("it waits", SOON, async || number(&db, &locks("not granted")).await == 1).await;
    comes_true(&db, "count(*) = 1 from jobs.ready where queue = 'later'").await;

    run(&db, &format!("select pg_cancel_backend({pid})")).await;
    drop(holding.await.unwrap());
    let mut told = BTreeSet::new();
    while told.len() < 2 {
        if let Some(name) = next(&mut listener).await["queue"].as_str() {
            told.insert(name.to_string());
        }
    }
    assert_eq!(told, ["later", "q"].map(String::from).into(), "nothing is lost by it");
}
