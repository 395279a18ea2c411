//! The guarantee of uniqueness inside every kind of transaction: savepoints, exception blocks,
//! triggers, cursors and prepared transactions. Very large ones are in `large_transactions`, those
//! of one session in tests/pg_regress/sql/unique_statements.sql.

use jobs_tests::{
    Client, Cluster, LEVELS, SOON, comes_true, count, is, number, poll_until, quiet, row_of,
    rows_of, run, scalar, seconds, sqlstate, text,
};
use tokio::task::JoinHandle;
use tokio_postgres::Error;

/// The two ways to insert job `n` of kind `k` that is unique by its args.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// With the advisory lock.
    Single,
    /// Without it: whoever wants the key waits for the claim alone.
    Batch,
}

const WAYS: [Way; 2] = [Way::Single, Way::Batch];

impl Way {
    fn sql(self, n: i32, more: &str) -> String {
        let options = format!(r#"'{{"by_args": true{more}}}'"#);
        let call = match self {
            Way::Single => format!("jobs.insert('k', '{n}', {options})"),
            Way::Batch => format!("jobs.insert_batch('k', '{{{n}}}', {options})"),
        };
        format!("select id, unique_skipped_as_duplicate from {call}")
    }

    /// Its id, and whether it was a duplicate.
    async fn insert(self, db: &Client, n: i32) -> (i64, bool) {
        let row = db.query_one(&self.sql(n, ""), &[]).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// As [`Way::insert`], without waiting for rivals: no id where there is one.
    async fn insert_or_leave(self, db: &Client, n: i32) -> (Option<i64>, bool) {
        let sql = self.sql(n, r#", "wait": false"#);
        let row = row_of(db, &sql).await;
        (row.get(0), row.get(1))
    }
}

/// Another session that inserts at an isolation level, in a transaction of its own.
struct Rival {
    pid: i32,
    task: JoinHandle<Result<(i64, bool), Error>>,
}

impl Rival {
    /// Begins to insert, and is seen waiting.
    async fn waiting(cluster: &Cluster, db: &Client, level: &str, way: Way, n: i32) -> Rival {
        let database = text(db, "select current_database()::text").await;
        let client = cluster.connect(&database).await;
        run(&client, &format!("set default_transaction_isolation = '{level}'")).await;
        let pid = scalar(&client, "select pg_backend_pid()").await;
        let task = tokio::spawn(async move {
            let row = client.query_one(&way.sql(n, ""), &[]).await?;
            Ok((row.get(0), row.get(1)))
        });
        let rival = Rival { pid, task };
        poll_until("the rival waits", SOON, async || rival.waits(db).await).await;
        rival
    }

    async fn waits(&self, db: &Client) -> bool {
        let sql = format!(
            "select count(*) from pg_stat_activity where pid = {} and wait_event_type = 'Lock'",
            self.pid
        );
        number(db, &sql).await == 1
    }

    /// Panics if it does not wait any more, also a while later.
    async fn keeps_waiting(&self, db: &Client) {
        seconds(0.15).await;
        assert!(!self.task.is_finished() && self.waits(db).await);
    }

    /// What it was answered; it must come soon.
    async fn answer(self) -> Result<(i64, bool), Error> {
        tokio::time::timeout(SOON, self.task).await.expect("the rival still waits").unwrap()
    }

    /// Panics unless it inserts a job.
    async fn inserts(self) -> i64 {
        let (id, skipped) = self.answer().await.unwrap();
        assert!(!skipped);
        id
    }

    /// Panics unless it is told the job that exists, or, where its snapshot is older
    /// than that job, to try again.
    async fn comes_too_late(self, db: &Client, level: &str, existing: i64) {
        let session = format!("pg_stat_activity where pid = {}", self.pid);
        let answer = self.answer().await;
        if level == LEVELS[0] {
            assert_eq!(answer.unwrap(), (existing, true));
        } else {
            assert_eq!(sqlstate(answer), "40001");
            // An error is told before the transaction is undone, with its locks.
            poll_until("the rival has gone", SOON, async || count(db, &session).await == 0).await;
        }
    }
}

/// What is wrong with the jobs and claims of a database, each of whose keys must have one job,
/// `jobs` in all.
async fn faults(db: &Client, jobs: i64) -> Vec<String> {
    let checks = [
        ("jobs too few or too many", format!("select abs({jobs} - count(*)) from jobs.job")),
        ("keys with another number of jobs than one", "select count(*) from (select from jobs.job where unique_key is not null group by unique_key having count(*) <> 1) k".into()),
        (
            "jobs without a claim",
            "select count(*) from jobs.job j where unique_key is not null
                and not exists (select from jobs.unique_claim c where c.key = j.unique_key and j.id = any (c.jobs))"
                .into(),
        ),
        ("claims without a job", "select count(*) from jobs.unique_claim c where not exists (select from jobs.job j where j.id = any (c.jobs) and j.unique_key = c.key)".into()),
        ("jobs in no place", "select (select count(*) from jobs.job) - (select count(*) from jobs.jobs)".into()),
        ("locks left behind", "select count(*) from pg_locks where locktype = 'advisory'".into()),
    ];
    let mut faults = Vec::new();
    for (what, sql) in checks {
        let number = number(db, &sql).await;
        if number != 0 {
            faults.push(format!("{number} {what}"));
        }
    }
    faults
}

pub(crate) async fn assert_one_job_a_key(db: &Client, jobs: i64) {
    assert_eq!(faults(db, jobs).await, Vec::<String>::new());
}

async fn forget_all(db: &Client) {
    run(db, "select jobs.delete(id) from jobs.jobs; select jobs.maintain()").await;
}

#[tokio::test]
async fn control_every_fault_is_found() {
    let (_cluster, db) = quiet("faults").await;
    run(
        &db,
        "select jobs.insert('k', to_jsonb(n), '{\"by_args\": true}') from generate_series(1, 3) n",
    )
    .await;
    assert_one_job_a_key(&db, 3).await;
    for (doctored, found) in [
        ("select jobs.insert('other')", "1 jobs too few or too many"),
        (
            "update jobs.job set unique_key = (select unique_key from jobs.job limit 1)",
            "1 keys with another number of jobs than one",
        ),
        ("delete from jobs.unique_claim", "3 jobs without a claim"),
        ("update jobs.unique_claim set jobs = '{7}'", "3 claims without a job"),
        ("delete from jobs.ready", "3 jobs in no place"),
        ("select pg_advisory_xact_lock(1)", "1 locks left behind"),
    ] {
        run(&db, "begin").await;
        run(&db, doctored).await;
        let faults = faults(&db, 3).await;
        assert!(faults.contains(&found.to_string()), "{doctored}: {faults:?}");
        run(&db, "rollback").await;
    }
}

#[tokio::test]
async fn what_a_savepoint_rolled_back_is_no_duplicate_in_its_own_session() {
    let (_cluster, db) = quiet("own").await;
    for level in LEVELS {
        for way in WAYS {
            run(&db, &format!("begin isolation level {level}; savepoint a")).await;
            let (first, skipped) = way.insert(&db, 1).await;
            assert!(!skipped);
            assert_eq!(way.insert(&db, 1).await, (first, true));
            run(&db, "rollback to a").await;
            assert_eq!(count(&db, "jobs.jobs").await, 0);
            let (second, skipped) = way.insert(&db, 1).await;
            assert!(!skipped, "{level}, {way:?}");
            // Nested: only the inner one goes.
            run(&db, "savepoint b; savepoint c").await;
            assert!(!way.insert(&db, 2).await.1);
            run(&db, "release c; savepoint d").await;
            assert!(!way.insert(&db, 3).await.1);
            run(&db, "rollback to d").await;
            assert!(way.insert(&db, 2).await.1);
            assert!(!way.insert(&db, 3).await.1);
            run(&db, "rollback to b").await;
            assert!(!way.insert(&db, 2).await.1);
            assert!(!way.insert(&db, 3).await.1);
            assert_eq!(way.insert(&db, 1).await, (second, true));
            run(&db, "commit").await;
            assert_one_job_a_key(&db, 3).await;
            forget_all(&db).await;
        }
    }
}

#[tokio::test]
async fn a_rival_gets_the_key_as_soon_as_the_savepoint_that_has_it_is_rolled_back() {
    let (cluster, db) = quiet("soon").await;
    let holder = cluster.connect("soon").await;
    for level in LEVELS {
        for way in WAYS {
            let insert = way.sql(1, "");
            for insert in [
                insert.clone(),
                format!("savepoint b; {insert}"),
                format!("savepoint b; {insert}; rollback to b; {insert}"),
            ] {
                run(&holder, &format!("begin; savepoint a; {insert}")).await;
                let rival = Rival::waiting(&cluster, &db, level, way, 1).await;
                rival.keeps_waiting(&db).await;
                run(&holder, "rollback to a").await;
                let id = rival.inserts().await;
                // The holder's transaction is still open, and comes too late now.
                assert_eq!(way.insert(&holder, 1).await, (id, true));
                run(&holder, "commit").await;
                assert_one_job_a_key(&db, 1).await;
                forget_all(&db).await;
            }
        }
    }
}

/// Whoever waits for the claim alone then waits for the whole transaction, since the server knows
/// of no other end of a released savepoint; whoever waits for the advisory lock gets it at once.
#[tokio::test]
async fn a_rival_gets_the_key_of_a_released_savepoint_inside_a_rolled_back_one() {
    let (cluster, db) = quiet("inside").await;
    let holder = cluster.connect("inside").await;
    for level in LEVELS {
        for way in WAYS {
            let insert = way.sql(1, "");
            for end in ["commit", "rollback"] {
                run(&holder, &format!("begin; savepoint a; savepoint b; {insert}; release b"))
                    .await;
                let rival = Rival::waiting(&cluster, &db, level, way, 1).await;
                run(&holder, "rollback to a").await;
                let id = match way {
                    Way::Single => {
                        let id = rival.inserts().await;
                        run(&holder, end).await;
                        id
                    }
                    Way::Batch => {
                        run(&holder, end).await;
                        rival.inserts().await
                    }
                };
                assert_eq!(way.insert(&db, 1).await, (id, true));
                assert_one_job_a_key(&db, 1).await;
                forget_all(&db).await;
            }
        }
    }
}

#[tokio::test]
async fn a_released_savepoint_keeps_its_key_until_the_transaction_ends() {
    let (cluster, db) = quiet("released").await;
    let holder = cluster.connect("released").await;
    for level in LEVELS {
        for way in WAYS {
            for end in ["commit", "rollback"] {
                run(&holder, "begin; savepoint a; savepoint b").await;
                let (id, _) = way.insert(&holder, 1).await;
                run(&holder, "release b; release a").await;
                let rival = Rival::waiting(&cluster, &db, level, way, 1).await;
                // A savepoint that did not take the key gives it to no session.
                run(&holder, "savepoint other; rollback to other").await;
                rival.keeps_waiting(&db).await;
                run(&holder, end).await;
                if end == "commit" {
                    rival.comes_too_late(&db, level, id).await;
                } else {
                    rival.inserts().await;
                }
                assert_one_job_a_key(&db, 1).await;
                forget_all(&db).await;
            }
        }
    }
}

/// The server remembers 64 subtransactions of a session where others see them, and looks the others
/// up.
#[tokio::test]
async fn a_key_of_one_of_very_many_subtransactions_is_held_like_any_other() {
    let (cluster, db) = quiet("overflow").await;
    let holder = cluster.connect("overflow").await;
    for level in LEVELS {
        for way in WAYS {
            for end in ["commit", "rollback"] {
                run(
                    &holder,
                    "begin;
                     do $$ begin
                       for n in 1..300 loop
                         begin
                           perform jobs.insert('k', to_jsonb(n), '{\"by_args\": true}');
                         exception when division_by_zero then null;
                         end;
                       end loop;
                     end $$",
                )
                .await;
                // The last key was taken without an advisory lock, so that the claim alone says who
                // has it.
                let id = number(&holder, "select max(id) from jobs.jobs").await;
                assert_eq!(way.insert_or_leave(&db, 300).await, (None, true));
                let rival = Rival::waiting(&cluster, &db, level, way, 300).await;
                run(&holder, end).await;
                if end == "commit" {
                    rival.comes_too_late(&db, level, id).await;
                    assert_one_job_a_key(&db, 300).await;
                } else {
                    rival.inserts().await;
                    assert_one_job_a_key(&db, 1).await;
                }
                forget_all(&db).await;
            }
        }
    }
}

#[tokio::test]
async fn what_a_rolled_back_savepoint_replaced_or_updated_is_as_it_was() {
    let (cluster, db) = quiet("undone").await;
    let other = cluster.connect("undone").await;
    let insert = |policy: &str| {
        format!(
            "select id, unique_skipped_as_duplicate, replaced_id from jobs.insert('k', '1', '{{\"by_kind\": true{policy}}}', meta => '{{\"new\": true}}')"
        )
    };
    let seen = "select jsonb_agg(to_jsonb(j) order by id) from jobs.jobs j";
    for level in LEVELS {
        for policy in [
            r#", "on_conflict": "replace""#,
            r#", "on_conflict": {"update": {"*": ["args", "meta", "priority", "queue", "scheduled_at"]}}"#,
        ] {
            for running in [false, true] {
                run(&db, "select jobs.insert('k', unique_opts => '{\"by_kind\": true}')").await;
                if running {
                    run(&db, "select jobs.fetch()").await;
                }
                let id = number(&db, "select id from jobs.jobs").await;
                let before: serde_json::Value = scalar(&db, seen).await;
                run(&db, &format!("begin isolation level {level}; savepoint a")).await;
                let row = db.query_one(&insert(policy), &[]).await.unwrap();
                let answer: (bool, Option<i64>) = (row.get(1), row.get(2));
                let replaces = policy.contains("replace");
                assert_eq!(answer, (!replaces, replaces.then_some(id)));
                assert_ne!(scalar::<serde_json::Value>(&db, seen).await, before);
                run(&db, "rollback to a").await;
                assert_eq!(scalar::<serde_json::Value>(&db, seen).await, before);
                // The transaction is still open, and another one has its way with the job.
                run(&other, "set lock_timeout = '60s'").await;
                let row = other.query_one(&insert(policy), &[]).await.unwrap();
                assert_eq!((row.get(1), row.get(2)), answer, "{level}: {policy}");
                run(&db, "rollback").await;
                assert_eq!(count(&db, "jobs.jobs where finalized_at is null").await, 1);
                run(&db, "select jobs.cancel(id, force => true) from jobs.jobs").await;
                forget_all(&db).await;
            }
        }
    }
}

#[tokio::test]
async fn a_block_that_fails_after_its_insert_leaves_nothing_of_it() {
    let (cluster, db) = quiet("block").await;
    let holder = cluster.connect("block").await;
    for level in LEVELS {
        for way in WAYS {
            let insert =
                way.sql(1, "").replace("select id, unique_skipped_as_duplicate", "perform");
            run(&holder, &format!("begin isolation level {level}")).await;
            run(&holder, &format!("do $$ begin
                       for n in 1..50 loop
                         begin {insert}; perform 1 / 0; exception when division_by_zero then null; end;
                       end loop;
                     end $$")).await;
            assert_eq!(count(&holder, "jobs.jobs").await, 0);
            assert_eq!(count(&holder, "jobs.unique_claim").await, 0);
            // Not even a lock: another session inserts meanwhile, without waiting.
            let (id, skipped) = way.insert_or_leave(&db, 1).await;
            assert!(id.is_some() && !skipped, "{level}, {way:?}");
            run(&holder, "commit").await;
            assert_one_job_a_key(&db, 1).await;
            forget_all(&db).await;
        }
    }
}

#[tokio::test]
async fn a_deferred_trigger_that_fails_at_commit_leaves_no_job() {
    let (cluster, db) = quiet("deferred").await;
    run(
        &db,
        r#"create table orders (id int);
           create function reject() returns trigger language plpgsql as $$
           begin
             perform jobs.insert('bill', to_jsonb(new.id), '{"by_args": true, "on_conflict": "reject"}');
             return null;
           end $$;
           create constraint trigger t after insert on orders deferrable initially deferred for each row execute function reject()"#,
    )
    .await;
    run(&db, "begin; insert into orders values (1), (2), (1)").await;
    assert_eq!(sqlstate(db.batch_execute("commit").await), "23505");
    assert_one_job_a_key(&db, 0).await;
    assert_eq!(count(&db, "orders").await, 0);
    run(&db, "begin; insert into orders values (1), (2); commit").await;
    assert_one_job_a_key(&db, 2).await;
    // It decides at the commit, and waits there for a rival if it must.
    let holder = cluster.connect("deferred").await;
    run(&holder, "begin; select jobs.insert('bill', '3', '{\"by_args\": true}')").await;
    let waiter = cluster.connect("deferred").await;
    run(&waiter, "begin; insert into orders values (3)").await;
    let committing = tokio::spawn(async move {
        let answer = waiter.batch_execute("commit").await;
        // An error is told before the transaction is undone, with its locks; the next answer comes
        // after that.
        run(&waiter, "select").await;
        sqlstate(answer)
    });
    comes_true(
        &db,
        "count(*) = 1 from pg_stat_activity where wait_event_type = 'Lock' and query = 'commit'",
    )
    .await;
    run(&holder, "commit").await;
    assert_eq!(committing.await.unwrap(), "23505");
    assert_one_job_a_key(&db, 3).await;
}

#[tokio::test]
async fn a_prepared_insert_holds_its_key_until_it_is_committed_or_rolled_back() {
    let (cluster, db) = quiet("prepared").await;
    for level in LEVELS {
        for way in WAYS {
            for end in ["commit", "rollback"] {
                run(&db, &format!("begin isolation level {level}")).await;
                let (id, _) = way.insert(&db, 1).await;
                run(&db, "prepare transaction 'p'").await;
                assert_eq!(count(&db, "jobs.jobs").await, 0);
                for other in WAYS {
                    assert_eq!(other.insert_or_leave(&db, 1).await, (None, true), "busy");
                }
                // Maintenance goes round it.
                run(&db, "set lock_timeout = '60s'").await;
                let failing = "jobs.maintain() where error is not null";
                assert_eq!(count(&db, failing).await, 0);
                run(&db, "reset lock_timeout").await;
                // Another key is nobody's business.
                let (other, skipped) = way.insert_or_leave(&db, 2).await;
                assert!(!skipped && other.is_some());
                let rival = Rival::waiting(&cluster, &db, level, way, 1).await;
                rival.keeps_waiting(&db).await;
                run(&db, &format!("{end} prepared 'p'")).await;
                if end == "commit" {
                    rival.comes_too_late(&db, level, id).await;
                    assert_eq!(way.insert(&db, 1).await, (id, true));
                } else {
                    // Postgres lets go of what a prepared transaction has locked before it forgets
                    // what that has read: to a rival that is quick and serializable it still looks
                    // like a conflict, and it has to try again.
                    let answer = match rival.answer().await {
                        Err(error) if level == LEVELS[2] => {
                            assert_eq!(sqlstate::<()>(Err(error)), "40001");
                            way.insert(&db, 1).await
                        }
                        answer => answer.unwrap(),
                    };
                    assert!(!answer.1);
                    assert_eq!(way.insert(&db, 1).await, (answer.0, true));
                }
                assert_one_job_a_key(&db, 2).await;
                forget_all(&db).await;
            }
        }
    }
}

#[tokio::test]
async fn a_prepared_insert_holds_its_key_over_a_crash() {
    let (cluster, db) = quiet("crashed").await;
    for (name, n, way) in
        [("single", 1, Way::Single), ("batch", 2, Way::Batch), ("gone", 3, Way::Single)]
    {
        run(&db, "begin").await;
        way.insert(&db, n).await;
        run(&db, &format!("prepare transaction '{name}'")).await;
    }
    // One that was prepared and committed before the crash, and one that never was.
    run(&db, "begin").await;
    let (committed, _) = Way::Single.insert(&db, 4).await;
    run(&db, "prepare transaction 'q'").await;
    run(&db, "commit prepared 'q'").await;
    run(&db, "begin").await;
    Way::Single.insert(&db, 5).await;

    cluster.kill9();
    cluster.start_again();

    let db = cluster.connect("crashed").await;
    assert_eq!(count(&db, "pg_prepared_xacts").await, 3);
    assert_eq!(Way::Single.insert(&db, 4).await, (committed, true));
    assert!(!Way::Single.insert(&db, 5).await.1);
    for n in 1..=3 {
        for way in WAYS {
            assert_eq!(way.insert_or_leave(&db, n).await, (None, true), "busy");
        }
    }
    let rivals = [
        Rival::waiting(&cluster, &db, LEVELS[0], Way::Single, 1).await,
        Rival::waiting(&cluster, &db, LEVELS[1], Way::Single, 2).await,
        Rival::waiting(&cluster, &db, LEVELS[2], Way::Batch, 3).await,
    ];
    for end in ["commit prepared 'single'", "commit prepared 'batch'", "rollback prepared 'gone'"] {
        run(&db, end).await;
    }
    let [first, second, third] = rivals;
    let id = number(&db, "select id from jobs.jobs where args = '1'").await;
    first.comes_too_late(&db, LEVELS[0], id).await;
    second.comes_too_late(&db, LEVELS[1], 0).await;
    third.inserts().await;
    assert_one_job_a_key(&db, 5).await;
}

/// Few keys, step by step: tests/isolation/specs/unique_batch.spec.
#[tokio::test]
async fn large_batches_in_opposite_orders_do_not_deadlock() {
    const KEYS: i64 = 2000;
    const ROUNDS: i64 = 12;
    let (cluster, db) = quiet("orders").await;
    let connect = || cluster.connect("orders");
    let (a, b, c, d) = tokio::join!(connect(), connect(), connect(), connect());
    for round in 0..ROUNDS {
        let batch = async |client: &Client, order: &str| {
            let args = format!(
                "select jsonb_build_array({round}, n) from generate_series(1, {KEYS}) n order by n {order}"
            );
            let from = format!(
                "jobs.insert_batch('k', array({args}), '{{\"by_args\": true}}') where not unique_skipped_as_duplicate"
            );
            count(client, &from).await
        };
        let (a, b, c, d) =
            tokio::join!(batch(&a, "asc"), batch(&b, "desc"), batch(&c, "asc"), batch(&d, "desc"));
        assert_eq!(a + b + c + d, KEYS, "round {round}");
    }
    assert_one_job_a_key(&db, KEYS * ROUNDS).await;
    assert!(
        is(&db, "deadlocks = 0 from pg_stat_database where datname = current_database()").await
    );
}

#[tokio::test]
async fn a_cursor_sees_what_was_inserted_since_it_was_opened() {
    let (_cluster, db) = quiet("cursor").await;
    for level in LEVELS {
        run(&db, &format!("begin isolation level {level};
                 declare c cursor for select n, unique_skipped_as_duplicate
                   from generate_series(1, 10) n, lateral jobs.insert('k', to_jsonb(n), '{{\"by_args\": true}}') i")).await;
        assert_eq!(count(&db, "jobs.jobs").await, 0, "it has not begun");
        let fetch = async |many: &str| -> Vec<(i32, bool)> {
            let rows = rows_of(&db, &format!("fetch {many} c")).await;
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        };
        assert_eq!(fetch("3").await, [(1, false), (2, false), (3, false)]);
        assert_eq!(count(&db, "jobs.jobs").await, 3);
        assert!(Way::Single.insert(&db, 2).await.1);
        assert!(!Way::Single.insert(&db, 4).await.1);
        assert!(!Way::Batch.insert(&db, 5).await.1);
        assert_eq!(fetch("3").await, [(4, true), (5, true), (6, false)]);
        run(&db, "savepoint a").await;
        assert_eq!(fetch("1").await, [(7, false)]);
        run(&db, "rollback to a").await;
        assert_eq!(
            count(&db, "jobs.jobs").await,
            6,
            "the seventh is rolled back, the cursor is not"
        );
        assert!(!Way::Single.insert(&db, 7).await.1);
        run(&db, "close c; commit").await;
        assert_one_job_a_key(&db, 7).await;
        forget_all(&db).await;
    }
}

#[tokio::test]
async fn a_portal_that_is_fetched_in_parts_inserts_one_job_a_key() {
    let cluster = Cluster::quiet();
    let mut db = cluster.database("portal").await;
    let transaction = db.transaction().await.unwrap();
    let sql = "select i.unique_skipped_as_duplicate from generate_series(0, 99) n, lateral jobs.insert('k', to_jsonb(n % 60), '{\"by_args\": true}') i";
    let portal = transaction.bind(sql, &[]).await.unwrap();
    let mut skipped = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 7).await.unwrap();
        if rows.is_empty() {
            break;
        }
        skipped.extend(rows.iter().map(|row| row.get::<_, bool>(0)));
        // Another statement in the midst of it.
        let another = "select jobs.insert('k', '59', '{\"by_args\": true}')";
        transaction.execute(another, &[]).await.unwrap();
    }
    let expected: Vec<bool> = (0..100).map(|n| n >= 59).collect();
    assert_eq!(skipped, expected);
    transaction.commit().await.unwrap();
    assert_one_job_a_key(&db, 60).await;
}
