//! What follows from each move of a job, by whatever call it is made: what the history counts, that
//! a slot is free again once the job does not run, and that the next fetch finds a job that is
//! available. Who is told of it is in `wait` and `wait_for`.

use jobs_tests::{is, number, quiet, rows, run, text};

/// Of the job that a case is about, which is of a kind of its own.
const OWN: &str = "
    create function kind() returns text language sql as $$ select current_setting('own.kind') $$;
    create function job() returns bigint language sql as $$ select max(id) from jobs.job where kind = kind() $$;
    create function token() returns bigint language sql as $$ select token from jobs.running where job_id = job() $$;
    create function finish(what text) returns void language sql as $$
      select jobs.finish_many(jsonb_build_array(what::jsonb || jsonb_build_object('id', job(), 'token', token()))) $$;
    create function age() returns void language sql as $$
      update jobs.finished set finalized_at = now() - interval '100 days' where job_id = job() $$;
    create function counted() returns text language sql as $$
      select rtrim(repeat('inserted ', sum(inserted)::int) || repeat('started ', sum(started)::int) || repeat('completed ', sum(completed)::int)
                   || repeat('failed ', sum(failed)::int) || repeat('discarded ', sum(discarded)::int) || repeat('cancelled ', sum(cancelled)::int))
        from jobs.history() where kind = kind() $$;
    create function state() returns text language sql as $$
      select coalesce((select state::text from jobs.jobs where id = job()), 'gone') $$;
    select jobs.configure_queue(q, concurrency => 1) from unnest('{q,r}'::text[]) q";

const CALLS: [(&str, &str); 13] = [
    ("NEW", "jobs.insert(kind(), queue => 'q')"),
    ("FETCH", "jobs.fetch('q', kinds => array[kind()])"),
    ("MAINTAIN", "jobs.maintain()"),
    // Until what is due or over in a moment is so.
    ("LATER", "pg_sleep(0.01)"),
    (
        "IN_A_MOMENT",
        "jobs.insert(kind(), queue => 'q', scheduled_at => clock_timestamp() + '1 ms')",
    ),
    ("LATE", "jobs.insert(kind(), queue => 'q', scheduled_at => clock_timestamp() + '1 h')"),
    ("PENDING", "jobs.insert(kind(), queue => 'q', pending => true)"),
    ("LAST_TRY", "jobs.insert(kind(), queue => 'q', max_attempts => 1)"),
    ("LOSE", "jobs.fetch('q', kinds => array[kind()], lease => '1 us')"),
    ("COMPLETE", "jobs.complete(job(), token())"),
    ("CANCEL", "jobs.cancel(job())"),
    ("FAIL", "jobs.fail(job(), token(), 'e')"),
    ("AGE", "age()"),
];

/// Calls, what they count in the end, and what the last job of theirs has become.
const MOVES: &str = r#"
    NEW | inserted | available
    jobs.insert_batch(kind(), '{1,2}', queue => 'q') | inserted inserted | available
    jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', kind(), 'queue', 'q'))) | inserted | available
    jobs.insert(kind(), queue => 'q', unique_opts => '{"by_kind": true}') | inserted | available
    jobs.insert(kind(), queue => 'q', unique_opts => '{"by_kind": true, "on_conflict": "replace"}') from generate_series(1, 2) | inserted inserted cancelled | available
    LATE | inserted | scheduled
    PENDING | inserted | pending
    IN_A_MOMENT; LATER; MAINTAIN | inserted | available
    IN_A_MOMENT; LATER; FETCH | inserted started | running
    NEW; FETCH | inserted started | running
    NEW; FETCH; COMPLETE | inserted started completed | completed
    NEW; FETCH; jobs.complete_many(array[job()], array[token()]) | inserted started completed | completed
    NEW; FETCH; finish('{"do": "complete"}') | inserted started completed | completed
    NEW; FETCH; FAIL | inserted started failed | retryable
    NEW; FETCH; jobs.fail_many(array[job()], array[token()], '{e}', retry_in => '0') | inserted started failed | available
    LAST_TRY; FETCH; FAIL | inserted started failed discarded | discarded
    NEW; FETCH; jobs.fail(job(), token(), 'e', retryable => false) | inserted started failed discarded | discarded
    NEW; FETCH; CANCEL; FAIL | inserted started failed cancelled | cancelled
    NEW; FETCH; CANCEL | inserted started | running
    NEW; FETCH; jobs.snooze(job(), token(), '1 h') | inserted started | scheduled
    NEW; FETCH; jobs.release(job(), token()) | inserted started | available
    NEW; FETCH; CANCEL; jobs.release(job(), token()) | inserted started cancelled | cancelled
    NEW; FETCH; finish('{"do": "cancel"}') | inserted started cancelled | cancelled
    NEW; FETCH; jobs.cancel(job(), force => true) | inserted started cancelled | cancelled
    NEW; CANCEL | inserted cancelled | cancelled
    LATE; jobs.cancel_many(kind => kind()) | inserted cancelled | cancelled
    NEW; LOSE; LATER; MAINTAIN | inserted started failed | retryable
    LAST_TRY; LOSE; LATER; MAINTAIN | inserted started failed discarded | discarded
    jobs.insert(kind(), queue => 'q', expires_at => clock_timestamp() + '1 ms'); LATER; MAINTAIN | inserted discarded | discarded
    jobs.insert(kind(), queue => 'q', pending => true, expires_at => clock_timestamp() + '1 ms'); LATER; MAINTAIN | inserted discarded | discarded
    NEW; FETCH; COMPLETE; jobs.retry(job()) | inserted started completed | available
    NEW; FETCH; FAIL; jobs.retry_many(kind => kind()) | inserted started failed | available
    PENDING; jobs.activate(job()) | inserted | available
    NEW; jobs.update(job(), queue => 'r') | inserted | available
    NEW; jobs.update(job(), priority => 7) | inserted | available
    NEW; jobs.update(job(), args => '2') | inserted | available
    LATE; jobs.update(job(), scheduled_at => clock_timestamp()) | inserted | available
    LATE; jobs.update(job(), args => '2') | inserted | scheduled
    NEW; jobs.delete(job()) | inserted | gone
    NEW; CANCEL; jobs.delete_many(kind => kind()) | inserted cancelled | gone
    NEW; FETCH; COMPLETE; AGE; MAINTAIN | inserted started completed | gone
"#;

#[tokio::test]
async fn every_move_counts_and_frees_its_slot_and_is_found() {
    let (_cluster, db) = quiet("moves").await;
    run(&db, OWN).await;
    for access in ["on", "off"] {
        run(&db, &format!("set jobs.direct_access = {access}")).await;
        for (n, [calls, counted, state]) in rows(MOVES).enumerate() {
            println!("{access}: {calls}");
            run(&db, &format!("set own.kind = '{access}{n}'")).await;
            for call in calls.split("; ") {
                let named = CALLS.iter().find(|(name, _)| *name == call);
                let call = named.map_or(call, |(_, call)| call);
                run(&db, &format!("select {call}")).await;
            }
            assert_eq!(text(&db, "select state()").await, state);
            assert_eq!(text(&db, "select counted()").await, counted);
            let slots = "(select count(*) from jobs.queue_slot where job_id is not null) = (select count(*) from jobs.running)";
            assert!(is(&db, slots).await);
            if state == "available" {
                let found = "select count(*) from jobs.fetch_any('{q,r}', kinds => array[kind()])";
                assert_eq!(number(&db, found).await, 1);
            }
            run(&db, "select jobs.cancel(id, force => true) from jobs.jobs where kind = kind() and finalized_at is null").await;
        }
    }
}
