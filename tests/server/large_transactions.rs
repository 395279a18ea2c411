//! The guarantee of uniqueness inside transactions that insert very many jobs.

use std::time::Instant;

use jobs_tests::{Client, Cluster, LEVELS, count, number, quiet, run, text};

use crate::transactions::assert_one_job_a_key;

/// As shipped: nothing about locks is set.
async fn many(name: &str) -> (Cluster, Client) {
    let (cluster, db) = quiet(name).await;
    let limits = text(&db, "select current_setting('max_locks_per_transaction') || ' ' || current_setting('max_connections')").await;
    assert_eq!(limits, "64 100", "the defaults");
    (cluster, db)
}

/// Runs an insert of 100,000 jobs in one transaction, given how many of them it inserts, and again.
async fn insert_100_000(db: &Client, level: &str, sql: &str) {
    for expected in [100_000, 0] {
        let begun = Instant::now();
        run(db, &format!("begin isolation level {level}")).await;
        assert_eq!(number(db, sql).await, expected, "{sql}");
        let locks = count(db, "pg_locks where pid = pg_backend_pid()").await;
        assert!(locks < 64, "{locks} locks");
        run(db, "commit").await;
        println!("{:?} for {expected} at {level}", begun.elapsed());
        assert_one_job_a_key(db, 100_000).await;
    }
}

#[tokio::test]
async fn a_transaction_inserts_100_000_unique_jobs_in_one_batch() {
    for level in [LEVELS[0], LEVELS[2]] {
        let (_cluster, db) = many("whole").await;
        insert_100_000(&db, level, "select count(*) filter (where not unique_skipped_as_duplicate)
               from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 100000) n), '{\"by_args\": true}')").await;
    }
}

#[tokio::test]
async fn a_transaction_inserts_100_000_unique_jobs_in_batches_of_10_000() {
    let (_cluster, db) = many("parts").await;
    insert_100_000(&db, LEVELS[0], "select count(*) filter (where not i.unique_skipped_as_duplicate)
           from generate_series(0, 9) part,
                lateral jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'args', n, 'unique_opts', '{\"by_args\": true}'::jsonb))
                                            from generate_series(part * 10000 + 1, part * 10000 + 10000) n)) i").await;
}

#[tokio::test]
async fn a_transaction_inserts_100_000_unique_jobs_one_by_one() {
    let (_cluster, db) = many("singles").await;
    insert_100_000(&db, LEVELS[0], "select count(*) filter (where not i.unique_skipped_as_duplicate)
           from generate_series(1, 100000) n, lateral jobs.insert('k', to_jsonb(n), '{\"by_args\": true}') i").await;
}

#[tokio::test]
async fn a_transaction_inserts_5_000_unique_jobs_in_a_subtransaction_each() {
    let (_cluster, db) = many("blocks").await;
    let sql = r#"do $$
        declare skipped bool;
        begin
          for n in 1..5000 loop
            begin
              select unique_skipped_as_duplicate into skipped from jobs.insert('k', to_jsonb(n), '{"by_args": true}');
              if n % 3 = 0 and not skipped then raise exception using errcode = 'ZZ000'; end if;
            exception when sqlstate 'ZZ000' then null;
            end;
          end loop;
        end $$"#;
    // Jobs that a third of the blocks rolls back are not found by the second run.
    for _ in 0..2 {
        run(&db, "begin").await;
        run(&db, sql).await;
        let locks =
            count(&db, "pg_locks where pid = pg_backend_pid() and locktype = 'advisory'").await;
        assert!(locks <= 16, "{locks} advisory locks");
        run(&db, "commit").await;
        assert_one_job_a_key(&db, 5000 - 5000 / 3).await;
    }
}
