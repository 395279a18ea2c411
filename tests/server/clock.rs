//! A clock that was ahead and was put back. To the database it is the same when all that it has
//! stored is moved ahead.

use jobs_tests::{Client, comes_true, count, insert, is, number, quiet, run, state, text, with};

/// Puts the clock back by a day.
async fn put_back(db: &Client) {
    run(db, "do $$ declare c record; begin
           for c in select a.attrelid::regclass as of, string_agg(format('%1$I = %1$I + interval ''1 day''', a.attname), ', ') as ahead
                      from pg_attribute a join pg_class t on t.oid = a.attrelid
                     where t.relnamespace = 'jobs'::regnamespace and t.relkind = 'r' and a.atttypid = 'timestamptz'::regtype
                     group by 1 loop
             execute format('update %s set %s', c.of, c.ahead);
           end loop;
           update jobs.unique_claim set hold_ends_at = (select array_agg(e + interval '1 day' order by n) from unnest(hold_ends_at) with ordinality u(e, n))
            where hold_ends_at is not null;
         end $$").await;
}

/// No stored time of what happened lies ahead of the clock.
const NOTHING_AHEAD: &str = "not exists (select from jobs.health() where finding = 'clock_moved' and message like 'stored times%')";

async fn fetched(db: &Client, options: &str) -> i64 {
    number(db, &format!("select id from jobs.fetch('q', {options})")).await
}

#[tokio::test]
async fn a_queue_with_a_rate_goes_on_within_its_period() {
    let (_cluster, db) = quiet("clock").await;
    run(&db, "select jobs.configure_queue('q', rate => 1, rate_period => '1 second')").await;
    for _ in 0..3 {
        insert(&db, "'k', queue => 'q'").await;
    }
    fetched(&db, "1").await;
    put_back(&db).await;
    let reason = "reason = 'queue rate' and until <= clock_timestamp() + interval '2 seconds'";
    assert!(is(&db, &format!("exists (select from jobs.jobs j, jobs.explain(j.id) where j.state = 'available' and {reason})")).await, "what explains it goes by the period");
    // No session maintains anything here, and who waits is told to fetch.
    run(&db, "call jobs.wait('q', '1 hour')").await;
    comes_true(&db, "exists (select from jobs.fetch('q', 1))").await;
    comes_true(&db, "exists (select from jobs.fetch('q', 1))").await;
    assert!(
        is(&db, "max(free_at) <= clock_timestamp() + interval '1 second' from jobs.queue_start")
            .await
    );
}

#[tokio::test]
async fn a_key_with_a_rate_goes_on_within_its_period() {
    let (_cluster, db) = quiet("clock").await;
    run(
        &db,
        r#"select jobs.define_limit('one', '{"by_args": ["t"]}', '{q}', rate => 1, rate_period => '1 second');
        select jobs.define_limit('two', '{"by_args": ["t"]}', '{r}', rate => 2, rate_period => '10 seconds');
        select jobs.insert('k', '{"t": 1}', queue => queue) from unnest('{q,q,r,r,r}'::text[]) queue;
        select jobs.fetch('q'), jobs.fetch('r')"#,
    )
    .await;
    put_back(&db).await;
    let ahead =
        |limit| format!("jobs.limit_start where name = '{limit}' and at > clock_timestamp()");
    // Where there is room, the next start is dated now.
    run(&db, "select jobs.fetch('r')").await;
    assert_eq!(count(&db, "jobs.limit_start where name = 'two'").await, 2);
    assert_eq!(count(&db, &ahead("two")).await, 1);
    assert_eq!(count(&db, "jobs.fetch_any('{q,r}', 10)").await, 0);
    run(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, &ahead("one")).await, 0);
    assert_eq!(count(&db, &ahead("two")).await, 0);
    for queue in ["q", "r"] {
        let starts = format!(
            "(select count(*) from jobs.maintain()) > 0 and exists (select from jobs.fetch('{queue}'))"
        );
        comes_true(&db, &starts).await;
    }
}

/// Months and days are longer at some times and in some time zones than in others.
#[tokio::test]
async fn a_start_a_little_further_ahead_than_its_period_is_kept() {
    let (_cluster, db) = quiet("clock").await;
    run(&db, "select jobs.configure_queue('q', rate => 1, rate_period => '1 month')").await;
    for _ in 0..2 {
        insert(&db, "'k', queue => 'q'").await;
    }
    fetched(&db, "1").await;
    for (further, is_kept) in [("2 days", true), ("1 month", false)] {
        run(&db, &format!("update jobs.queue_start set free_at = clock_timestamp() + interval '1 month' + interval '{further}'")).await;
        run(&db, "select count(*) from jobs.fetch('q', 1)").await;
        let is_as_it_was =
            "free_at > clock_timestamp() + interval '1 month 1 day' from jobs.queue_start";
        assert_eq!(is(&db, is_as_it_was).await, is_kept, "{further}");
    }
}

#[tokio::test]
async fn leases_end_within_their_length() {
    let (_cluster, db) = quiet("clock").await;
    for timeout in ["-1 second", "2 seconds"] {
        insert(&db, &format!("'k', queue => 'q', max_attempts => 1, timeout => '{timeout}'")).await;
        fetched(&db, "1, lease => '1 second'").await;
    }
    put_back(&db).await;
    run(&db, "select jobs.maintain()").await;
    assert!(
        is(&db, "not exists (select from jobs.running where cancel_requested_at is not null)")
            .await
    );
    comes_true(
        &db,
        "(select count(*) from jobs.maintain()) > 0 and not exists (select from jobs.running)",
    )
    .await;
    assert_eq!(count(&db, "jobs.finished where finalized_at <= clock_timestamp()").await, 2);
}

#[tokio::test]
async fn leases_that_the_right_clock_gave_are_kept() {
    let (_cluster, db) = quiet("clock").await;
    let mut running = Vec::new();
    for timeout in ["-1 second", "-1 second", "2 hours"] {
        insert(&db, &format!("'k', queue => 'q', timeout => '{timeout}'")).await;
        running.push(fetched(&db, "1, lease => '1 minute'").await);
    }
    put_back(&db).await;
    let [before, renewed, limited] = running[..] else {
        panic!("three jobs run");
    };
    // The first began before the clock was ahead, and asks for more than its fetch did.
    run(&db, &format!("update jobs.running set attempted_at = attempted_at - interval '1 day' where job_id = {before};
             select jobs.heartbeat(job_id, token, '5 hours') from jobs.running where job_id = {before};
             select jobs.heartbeat(job_id, token) from jobs.running where job_id in ({renewed}, {limited})")).await;
    run(&db, "select jobs.maintain()").await;
    for (id, least, most) in [
        (before, "4 hours", "5 hours"),
        (renewed, "10 seconds", "1 minute"),
        (limited, "10 seconds", "1 minute"),
    ] {
        let lease = format!(
            "lease_expires_at between clock_timestamp() + interval '{least}' and clock_timestamp() + interval '{most}' from jobs.running where job_id = {id}"
        );
        assert!(is(&db, &lease).await, "{lease}");
    }
    assert!(
        is(&db, "not exists (select from jobs.running where attempted_at > clock_timestamp())")
            .await
    );
}

#[tokio::test]
async fn holds_and_windows_last_as_long_as_they_are() {
    let (_cluster, db) = quiet("clock").await;
    let hold =
        r#"'k', '1', unique_opts => '{"by_args": true, "by_state": [], "hold_for": "2 seconds"}'"#;
    let window = r#"'k', '2', queue => 'q', unique_opts => '{"by_args": true, "window": "2 seconds", "by_state": ["completed"]}'"#;
    let held = insert(&db, hold).await;
    let done = insert(&db, window).await;
    fetched(&db, "1").await;
    run(
        &db,
        &format!("select jobs.complete({done}, token) from jobs.running where job_id = {done}"),
    )
    .await;
    put_back(&db).await;
    // They hold, and not for a day.
    assert_eq!(insert(&db, window).await, done);
    comes_true(&db, &format!("(select count(*) from jobs.maintain()) > 0 and {NOTHING_AHEAD}"))
        .await;
    for (options, old) in [(hold, held), (window, done)] {
        comes_true(
            &db,
            &format!("not (select unique_skipped_as_duplicate from jobs.insert({options}))"),
        )
        .await;
        assert!(state(&db, old).await.is_some());
    }
    assert!(is(&db, "(select count(*) from jobs.check()) = 0").await);
}

/// The newer job is kept for less long once it is cut, so the older one counts again.
#[tokio::test]
async fn a_final_job_from_ahead_hides_no_older_one() {
    let (_cluster, db) =
        with("clock", &[("jobs.enabled", "off"), ("jobs.retention_completed", "0")]).await;
    let with = |window| {
        format!(
            r#"'k', '1', queue => 'q', unique_opts => '{{"by_args": true, "window": "{window}", "by_state": ["completed"]}}'"#
        )
    };
    let complete = async |options: &str| {
        let id = insert(&db, options).await;
        fetched(&db, "1").await;
        run(
            &db,
            &format!("select jobs.complete({id}, token) from jobs.running where job_id = {id}"),
        )
        .await;
        id
    };
    let old = complete(&with("12 hours")).await;
    // The clock is ahead from now on, for the newer one only.
    run(
        &db,
        &format!(
            "update jobs.job set created_at = created_at - interval '3 seconds' where id = {old}"
        ),
    )
    .await;
    let new = complete(&with("1 second")).await;
    assert_ne!(new, old);
    run(&db, &format!("update jobs.job set created_at = created_at + interval '1 day', unique_until = unique_until + interval '1 day' where id = {new};
             update jobs.finished set finalized_at = finalized_at + interval '1 day' where job_id = {new}")).await;
    // A job that joins them makes a new list.
    let third = insert(
        &db,
        r#"'k', '1', queue => 'q', unique_opts => '{"by_args": true, "by_state": ["available"]}'"#,
    )
    .await;
    run(&db, &format!("select jobs.delete({third})")).await;
    comes_true(&db, &format!("(select count(*) from jobs.maintain()) > 0 and not exists (select from jobs.job where id = {new})")).await;
    assert_eq!(insert(&db, &with("12 hours")).await, old);
}

#[tokio::test]
async fn retries_schedules_workers_and_retention_go_by_the_clock_again() {
    let (_cluster, db) = quiet("clock").await;
    let failed =
        insert(&db, r#"'k', queue => 'q', retry => '{"strategy": "constant", "initial": 90}'"#)
            .await;
    fetched(&db, "1").await;
    run(
        &db,
        &format!(
            "select jobs.fail({failed}, token, 'x') from jobs.running where job_id = {failed};
             select jobs.schedule('hourly', '@hourly', 'p');
             select jobs.schedule('yearly', '@yearly', 'p');
             select jobs.worker_beat('w', '{{q}}', 1);
             update jobs.periodic_schedule set last_run_at = date_trunc('hour', now());"
        ),
    )
    .await;
    let done = insert(&db, "'k', queue => 'done'").await;
    run(&db, &format!("select jobs.cancel({done})")).await;
    put_back(&db).await;
    let ahead = text(&db, "select message from jobs.health() where finding = 'clock_moved'").await;
    assert!(
        ahead.starts_with("stored times are up to 23 h")
            || ahead.starts_with("stored times are up to 1 d"),
        "{ahead}"
    );
    comes_true(&db, &format!("(select count(*) from jobs.maintain()) > 0 and {NOTHING_AHEAD}"))
        .await;
    for what in [
        "(select due_at <= clock_timestamp() + interval '10 minutes' from jobs.scheduled)",
        "(select next_run_at <= clock_timestamp() + interval '2 hours' from jobs.periodic where name = 'hourly')",
        "(select defined_at <= clock_timestamp() and next_run_at > clock_timestamp() from jobs.periodic where name = 'yearly')",
        "(select last_seen_at <= clock_timestamp() from jobs.workers where worker = 'w')",
        "(select finalized_at <= clock_timestamp() from jobs.finished)",
        "(select at <= clock_timestamp() from jobs.error)",
        "not exists (select from jobs.job where created_at > clock_timestamp())",
        "exists (select from jobs.health() where finding = 'clock_moved' and message like 'the clock was put back%')",
        "not exists (select from jobs.periodic where paused_at is not null)",
        "not exists (select from jobs.maintenance where last_error_at is not null)",
        "not exists (select from jobs.finished where attempted_at is not null)",
        "not exists (select from jobs.check())",
    ] {
        assert!(is(&db, what).await, "{what}");
    }
    // Control: nothing more is cut.
    run(&db, "select jobs.maintain()").await;
    assert_eq!(count(&db, "jobs.audit where action = 'clock put back'").await, 1);
}
