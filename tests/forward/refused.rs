//! Rows that the queue refuses never stop the others.

use jobs_tests::{comes_true, count, is, poll_until, run, scalar, text, texts};
use serde_json::Value;

use super::{LONG, Pair, arrive, insert, said};

const ARRIVED: &str = "select args::text from jobs.jobs where kind = 'k' order by id";

#[tokio::test]
async fn refused_rows_stay_with_their_errors_and_the_others_go_on() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    run(&jobs, r#"select jobs.insert('unique', unique_opts => '{"by_kind": true}')"#).await;
    run(
        &outbox,
        r#"select jobs.insert('k', '1');
        select jobs.insert('k', '2', '{"nosuch": true}');
        select jobs.insert('unique', unique_opts => '{"by_kind": true, "on_conflict": "reject"}');
        select jobs.insert('k', '3');
        select jobs.insert('k', '4', retry => '"nosuch"');
        select jobs.insert('k', '5')"#,
    )
    .await;
    let (code, log) = pair.once().await;
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("row 2 of the outbox was refused: "), "{log}");
    assert!(log.contains("3 rows refused"), "{log}");
    assert_eq!(texts(&jobs, ARRIVED).await, ["1", "3", "5"]);

    let (code, status) = pair.status().await;
    assert_eq!((code, &status["refused"], &status["waiting"]), (1, &3.into(), &0.into()));
    let rows = status["refused_rows"].as_array().unwrap();
    let codes: Vec<&Value> = rows.iter().map(|row| &row["sqlstate"]).collect();
    assert_eq!(codes, ["22023", "23505", "22023"]);
    let error = text(&outbox, "select error from jobs.outbox where id = 2").await;
    assert!(error.starts_with("field \"nosuch\" of unique_opts is not known"), "{error}");
    assert!(error.contains("\nDETAIL: ") && !error.contains("Element"), "{error}");
    let (code, table) = said(&["--from", &pair.from(), "--status"]).await;
    assert!(code == 1 && table.contains("\nrow 2, kind k: field \"nosuch\" of "), "{table}");
    let forever = "bool_and(attempts = 1 and next_attempt_at = 'infinity') from jobs.outbox";
    assert!(is(&outbox, forever).await);
    let finding = "count(*) = 1 from jobs.health() where finding = 'forward_refused' and message ~ 'refuses 3 rows of outbox'";
    assert!(is(&jobs, finding).await);

    // They are not tried again by themselves.
    pair.once().await;
    assert!(is(&outbox, forever).await);
    run(&jobs, "select jobs.delete(id) from jobs.jobs where kind = 'unique'").await;
    run(&outbox, "select jobs.retry_outbox()").await;
    assert_eq!(pair.once().await.0, 1);
    assert_eq!(texts(&outbox, "select id::text from jobs.outbox order by id").await, ["2", "5"]);
    run(&outbox, "select jobs.drop_outbox('{2,5}')").await;
    assert_eq!(pair.once().await.0, 0);
    assert_eq!(pair.status().await.0, 0);
    assert_eq!(count(&jobs, "jobs.health() where finding like 'forward%'").await, 0);
    assert_eq!(count(&jobs, "jobs.jobs").await, 4);
}

#[tokio::test]
async fn many_refused_rows_among_many() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    run(
        &outbox,
        r#"select jobs.insert('k', to_jsonb(n), case when n % 50 = 7 then '{"nosuch": 1}'::jsonb end) from generate_series(1, 1500) n"#,
    )
    .await;
    let (code, log) = pair.once().await;
    assert_eq!(code, 1, "{log}");
    assert_eq!(count(&outbox, "jobs.outbox").await, 30);
    let arrived = "select array_agg(args::bigint order by id) = (select array_agg(n::bigint) from generate_series(1, 1500) n where n % 50 <> 7) from jobs.jobs";
    assert!(scalar::<bool>(&jobs, arrived).await);
}

#[tokio::test]
async fn a_full_queue_takes_the_rest_in_order_once_it_has_room() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    run(&jobs, "select jobs.configure_queue('full', max_waiting => 3)").await;
    run(&jobs, "select jobs.define_kind('default', queue => 'full')").await;
    // Some say the queue, some leave it to their kind.
    run(&outbox, "select jobs.insert('k', to_jsonb(n), queue => 'full') from generate_series(1, 10) n;
        select jobs.insert('default'); select jobs.insert('other', to_jsonb(n)) from generate_series(100, 104) n").await;
    let forwarder = pair.forward();
    arrive(&jobs, 8).await;
    assert_eq!(texts(&jobs, ARRIVED).await, ["1", "2", "3"]);
    assert_eq!(count(&jobs, "jobs.jobs where kind = 'other'").await, 5);
    comes_true(&outbox, "count(*) = 8 from jobs.outbox").await;
    let refused = "count(*) = 1 from jobs.outbox where sqlstate = '54000' and error ~ 'queue \"full\"' and queue = 'full'";
    comes_true(&outbox, refused).await;
    poll_until("all arrive as there is room", LONG, async || {
        run(&jobs, "select jobs.complete(id, token) from jobs.fetch('full')").await;
        count(&outbox, "jobs.outbox").await == 0
    })
    .await;
    drop(forwarder);
    let all: Vec<String> = (1..=10).map(|n| n.to_string()).collect();
    assert_eq!(texts(&jobs, ARRIVED).await, all);
    assert_eq!(count(&jobs, "jobs.jobs where kind = 'default'").await, 1);
}

#[tokio::test]
async fn a_row_that_waits_for_anothers_key_does_not_hold_up_the_others() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    let unique = r#"'u', unique_opts => '{"by_kind": true}'"#;
    run(&jobs, &format!("begin; select jobs.insert({unique})")).await;
    run(&outbox, &format!("select jobs.insert({unique})")).await;
    insert(&outbox, 1, 4).await;
    let forwarder = pair.forward();
    let others = pair.jobs().await;
    arrive(&others, 4).await;
    comes_true(
        &outbox,
        "count(*) = 1 and count(*) filter (where sqlstate = '55P03') = 1 from jobs.outbox",
    )
    .await;
    run(&jobs, "commit").await;
    comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
    drop(forwarder);
    assert_eq!(count(&jobs, "jobs.jobs where kind = 'u'").await, 1);
}
