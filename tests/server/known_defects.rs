//! Defects of uniqueness that job systems have shipped with: one test each says that they are not
//! here. Those of transactions are in transactions.rs, those of one session in
//! tests/pg_regress/sql/unique*.sql.

use jobs_tests::{
    Client, Cluster, LEVELS, blocked, blocked_until, number, quiet, row_of, rows_of, run, scalar,
    seconds, sqlstate, text,
};
use tokio_postgres::Error;

/// What an insert answers.
#[derive(Debug, PartialEq)]
struct Answer {
    id: Option<i64>,
    skipped: bool,
    replaced: Option<i64>,
}

impl Answer {
    fn skipped(id: i64) -> Answer {
        Answer { id: Some(id), skipped: true, replaced: None }
    }
}

/// A call that inserts a job of kind `k`, alone or as a batch of one.
fn call(batch: bool, args: &str, options: &str) -> String {
    let from = if batch {
        format!("jobs.insert_batch('k', array['{args}'::jsonb], '{options}')")
    } else {
        format!("jobs.insert('k', '{args}', '{options}')")
    };
    format!("select id, unique_skipped_as_duplicate, replaced_id from {from}")
}

async fn try_insert(db: &Client, sql: &str) -> Result<Answer, Error> {
    let row = db.query_one(sql, &[]).await?;
    Ok(Answer { id: row.get(0), skipped: row.get(1), replaced: row.get(2) })
}

async fn insert(db: &Client, args: &str, options: &str) -> Answer {
    let sql = call(false, args, options);
    try_insert(db, &sql).await.expect(&sql)
}

/// The id of a job that is inserted now.
async fn inserted(db: &Client, args: &str, options: &str) -> i64 {
    let answer = insert(db, args, options).await;
    assert!(!answer.skipped, "{args} {options}: {answer:?}");
    answer.id.unwrap()
}

async fn state(db: &Client, id: i64) -> String {
    scalar(db, &format!("select state::text from jobs.jobs where id = {id}")).await
}

async fn forget_all(db: &Client) {
    run(db, "select jobs.cancel(id, force => true) from jobs.jobs; select jobs.delete(id) from jobs.jobs; select jobs.maintain()").await;
}

/// All that a write would change: versions and locks of rows, the sequence, what the server counts,
/// the log.
const TRACES: &str = "
  select concat_ws(' ',
    (select string_agg(concat(t, xmin, ctid, xmax), ' ' order by t, ctid) from (
       select 'job' as t, xmin, ctid, xmax from jobs.job union all select 'ready', xmin, ctid, xmax from jobs.ready
       union all select 'finished', xmin, ctid, xmax from jobs.finished union all select 'claim', xmin, ctid, xmax from jobs.unique_claim
       union all select 'note', xmin, ctid, xmax from jobs.unique_note) v),
    (select last_value::text || is_called from jobs.job_seq),
    (select concat_ws('/', sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del)) from pg_stat_user_tables),
    pg_current_wal_insert_lsn())";

async fn traces(db: &Client) -> String {
    run(db, "select pg_stat_force_next_flush()").await;
    scalar(db, TRACES).await
}

/// A server that writes nothing to its log by itself.
fn silent() -> Cluster {
    Cluster::builder()
        .set("jobs.enabled", "off")
        .set("autovacuum", "off")
        .set("wal_level", "minimal")
        .set("max_wal_senders", 0)
        .set("checkpoint_timeout", "1h")
        .without_checksums()
        .start()
}

#[tokio::test]
async fn a_duplicate_costs_no_row_version_no_id_no_log_and_no_lock() {
    let cluster = silent();
    let db = cluster.database("free").await;
    // Else whoever reads the catalog first clears up what CREATE EXTENSION left there.
    run(&db, "vacuum").await;
    let worker = cluster.connect("free").await;
    run(&worker, "set lock_timeout = '60s'").await;
    let policy = |more: &str| format!(r#"'{{"by_args": true{more}}}'"#);
    let mut duplicates = Vec::new();
    for more in [
        "",
        r#", "wait": false"#,
        r#", "window": "1 hour""#,
        r#", "by_state": ["available", "completed"]"#,
        r#", "on_conflict": {"update": {"pending": ["args"]}}"#,
    ] {
        let policy = policy(more);
        duplicates.push(format!("select jobs.insert('k', '1', {policy})"));
        duplicates.push(format!(
            "select jobs.insert_batch('k', array_fill('1'::jsonb, array[20]), {policy})"
        ));
        duplicates.push(format!("select jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'k', 'args', 1, 'unique_opts', {policy}::jsonb)))"));
    }
    // Those that would be replaced but are final are left alone as well.
    duplicates
        .push(format!("select jobs.insert('k', '2', {})", policy(r#", "on_conflict": "replace""#)));
    for rejecting in [
        format!("jobs.insert('k', '1', {})", policy(r#", "on_conflict": "reject""#)),
        r#"jobs.insert('k', '1', '{"ojs": {"keys": ["args"]}}')"#.into(),
        format!("jobs.insert_batch('k', '{{1, 1}}', {})", policy(r#", "on_conflict": "reject""#)),
    ] {
        duplicates.push(format!("do $$ begin perform {rejecting}; raise 'inserted'; exception when unique_violation then null; end $$"));
    }
    let mut fetched = 0;
    for level in LEVELS {
        let id = inserted(&db, "1", r#"{"by_args": true}"#).await;
        let done: i64 =
            scalar(&db, "select id from jobs.insert('k', '2', '{\"by_args\": true}', 'done')")
                .await;
        run(&db, "select jobs.complete(id, token) from jobs.fetch('done')").await;
        assert_eq!(state(&db, done).await, "completed");
        for duplicate in &duplicates {
            // Whatever is written at the first use of a session or a page.
            run(&db, duplicate).await;
            run(&db, "checkpoint").await;
            let before = traces(&db).await;
            run(&db, &format!("begin isolation level {level}")).await;
            for _ in 0..5 {
                run(&db, duplicate).await;
            }
            let held = text(&db, "select coalesce(string_agg(distinct locktype || ' ' || mode, ', '), '') from pg_locks
                  where pid = pg_backend_pid() and mode not in ('AccessShareLock', 'SIReadLock') and locktype <> 'virtualxid'").await;
            assert_eq!(held, "", "{level}: {duplicate}");
            let unassigned: bool =
                scalar(&db, "select pg_current_xact_id_if_assigned() is null").await;
            assert!(unassigned, "{level}: {duplicate}");
            run(&db, "commit").await;
            assert_eq!(traces(&db).await, before, "{level}: {duplicate}");
            // While it is open, a worker gets the job.
            run(&db, &format!("begin isolation level {level}")).await;
            run(&db, duplicate).await;
            let job = row_of(&worker, "select id, token from jobs.fetch()").await;
            assert_eq!(job.get::<_, i64>(0), id);
            fetched += 1;
            worker
                .execute("select jobs.release($1, $2)", &[&id, &job.get::<_, i64>(1)])
                .await
                .unwrap();
            // What the server counts of its work is not to come up later.
            run(&worker, "select pg_stat_force_next_flush()").await;
            run(&db, "rollback").await;
        }
        // And finishes it, also when it was fetched before.
        run(&db, &format!("begin isolation level {level}; {}", duplicates[0])).await;
        run(&worker, "select jobs.complete(id, token) from jobs.fetch()").await;
        run(&db, "commit").await;
        assert_eq!(state(&db, id).await, "completed");
        forget_all(&db).await;
    }
    assert_eq!(fetched, LEVELS.len() * duplicates.len());
}

#[tokio::test]
async fn control_what_is_not_a_duplicate_leaves_traces() {
    let cluster = silent();
    let db = cluster.database("traces").await;
    inserted(&db, "1", r#"{"by_args": true}"#).await;
    let mut before = traces(&db).await;
    assert_eq!(traces(&db).await, before, "the server is quiet");
    for sql in [
        "select jobs.insert('k', '2', '{\"by_args\": true}')",
        "select nextval('jobs.job_seq')",
        "select from jobs.job for share",
        "select from jobs.unique_claim for key share",
        "update jobs.unique_claim set jobs = jobs",
        "select pg_current_xact_id()",
        "select jobs.fetch()",
    ] {
        run(&db, sql).await;
        let after = traces(&db).await;
        assert_ne!(after, before, "{sql}");
        before = after;
    }
}

/// Options under one key that differ in all that is no part of it, and that mind an available job.
const SAME_KEY: [&str; 6] = [
    r#"{"by_args": true}"#,
    r#"{"by_args": true, "by_state": ["available", "running"]}"#,
    r#"{"by_args": true, "window": "1 hour", "by_state": ["available"]}"#,
    r#"{"by_args": true, "on_conflict": "reject", "by_kind": true}"#,
    r#"{"by_args": true, "on_conflict": "replace"}"#,
    r#"{"by_args": true, "on_conflict": {"update": {"*": ["meta"]}}}"#,
];

/// Panics unless this is the answer to an insert with these options that meets an available job.
fn assert_met(options: &str, existing: i64, answer: Result<Answer, Error>) {
    if options.contains("reject") {
        assert_eq!(sqlstate(answer), "23505", "{options}");
        return;
    }
    let answer = answer.expect(options);
    if options.contains("replace") {
        assert_eq!((answer.skipped, answer.replaced), (false, Some(existing)), "{options}");
        assert_ne!(answer.id, Some(existing), "{options}");
    } else {
        assert_eq!(answer, Answer::skipped(existing), "{options}");
    }
}

#[tokio::test]
async fn callers_whose_policies_differ_under_one_key_do_not_pass_each_other_by() {
    let (cluster, db) = quiet("differ").await;
    let holder = cluster.connect("differ").await;
    for level in LEVELS {
        let other = cluster.connect("differ").await;
        run(&other, &format!("set default_transaction_isolation = '{level}'")).await;
        for first in SAME_KEY {
            for second in SAME_KEY {
                let batch = first.len() % 2 == 0;
                run(&holder, "begin").await;
                let id = inserted(&holder, "1", first).await;
                let sql = call(batch, "1", second);
                let waiting = try_insert(&other, &sql);
                let answer = blocked_until(&db, waiting, &holder, "commit").await;
                if level == LEVELS[0] {
                    assert_met(second, id, answer);
                } else {
                    assert_eq!(sqlstate(answer), "40001", "{level}: {first}, {second}");
                    let again = try_insert(&other, &call(batch, "1", second)).await;
                    assert_met(second, id, again);
                }
                let live: i64 =
                    scalar(&db, "select count(*) from jobs.jobs where finalized_at is null").await;
                assert_eq!(live, 1, "{level}: {first}, {second}");
                forget_all(&db).await;
            }
        }
    }
}

#[tokio::test]
async fn a_snapshot_that_is_older_than_a_rivals_commit_never_lets_a_second_job_in() {
    let (cluster, db) = quiet("stale").await;
    let other = cluster.connect("stale").await;
    for level in LEVELS {
        for options in SAME_KEY {
            for batch in [false, true] {
                run(&other, &format!("begin isolation level {level}; select from jobs.jobs")).await;
                let id = inserted(&db, "1", SAME_KEY[0]).await;
                let answer = try_insert(&other, &call(batch, "1", options)).await;
                if level == LEVELS[0] {
                    assert_met(options, id, answer);
                } else {
                    assert_eq!(sqlstate(answer), "40001", "{level}: {options}");
                }
                run(&other, "rollback").await;
                // Also when the job is done by then, and the policy does not mind it any more:
                // trying again is the answer.
                run(&other, &format!("begin isolation level {level}; select from jobs.jobs")).await;
                run(&db, &format!("select jobs.cancel({id})")).await;
                let answer = try_insert(&other, &call(batch, "1", options)).await;
                if level == LEVELS[0] {
                    assert!(!answer.unwrap().skipped);
                } else {
                    // In that snapshot the job is available; what it was told is still true there
                    // or is refused.
                    match answer {
                        Ok(answer) => assert_eq!(answer, Answer::skipped(id), "{level}: {options}"),
                        Err(error) => assert!(
                            ["40001", "23505"].contains(&sqlstate::<()>(Err(error)).as_str()),
                            "{level}: {options}"
                        ),
                    }
                }
                run(&other, "rollback").await;
                forget_all(&db).await;
            }
        }
    }
}

#[tokio::test]
async fn of_many_that_wait_for_a_rival_that_rolls_back_exactly_one_inserts() {
    let (cluster, db) = quiet("waiters").await;
    let holder = cluster.connect("waiters").await;
    for level in LEVELS {
        for ways in [[false, false], [true, true], [false, true]] {
            run(&holder, "begin").await;
            let (holds, waits) = (ways[0], ways[1]);
            let options = r#"{"by_args": true}"#;
            let lost = try_insert(&holder, &call(holds, "1", options)).await.unwrap();
            let mut tasks = Vec::new();
            for _ in 0..8 {
                let client = cluster.connect("waiters").await;
                run(&client, &format!("set default_transaction_isolation = '{level}'")).await;
                tasks.push(tokio::spawn(async move {
                    let sql = call(waits, "1", options);
                    loop {
                        let answer = try_insert(&client, &sql).await;
                        if answer.as_ref().is_err_and(|error| {
                            error.code().is_some_and(|code| code.code() == "40001")
                        }) {
                            continue; // as it is told
                        }
                        return answer.unwrap();
                    }
                }));
            }
            blocked(&db, 8).await;
            run(&holder, "rollback").await;
            let mut ids = Vec::new();
            let mut inserted = 0;
            for task in tasks {
                let answer = task.await.unwrap();
                inserted += i32::from(!answer.skipped);
                ids.push(answer.id.expect("nobody is told to go away"));
            }
            assert_eq!(inserted, 1, "{level}");
            ids.dedup();
            assert_eq!(ids.len(), 1, "{level}");
            assert_ne!(ids[0], lost.id.unwrap());
            assert_eq!(number(&db, "select id from jobs.jobs").await, ids[0]);
            forget_all(&db).await;
        }
    }
}

/// Inserts under two keys, in either order: whether the second is a duplicate of the first, by its
/// insert and by the keys.
async fn same(db: &Client, one: (&str, &str), other: (&str, &str)) -> bool {
    let mut answers = Vec::new();
    for [first, second] in [[one, other], [other, one]] {
        run(db, "begin").await;
        inserted(db, first.1, first.0).await;
        answers.push(insert(db, second.1, second.0).await.skipped);
        run(db, "rollback").await;
    }
    let key = |of: (&str, &str)| format!("jobs.unique_key('k', '{}', '{}')", of.1, of.0);
    answers.push(scalar(db, &format!("select {} = {}", key(one), key(other))).await);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{one:?}, {other:?}: {answers:?}");
    answers[0]
}

/// Options, and args that each differ from the others.
const DIFFERENT: &str = r#"
    -- Order and length of lists, and what contains what.
    {"by_args": true} => [1, 2] | [2, 1] | [1] | [1, 2, 2] | [[1, 2]] | [1, [2]] | [] | [[]] | [null] | [{}] | {}
    {"by_args": true} => {"a": 1} | {"a": 1, "b": 2} | {"b": 2} | {"a": 2, "b": 1} | {"a": [1]} | [{"a": 1}] | ["a", 1] | [["a", 1]]
    {"by_args": true} => {"l": [{"x": 1}, {"y": 2}]} | {"l": [{"y": 2}, {"x": 1}]} | {"l": [{"x": 1, "y": 2}]}
    -- Numbers that a double cannot tell apart.
    {"by_args": true} => 9007199254740992 | 9007199254740993 | 9007199254740994 | -9007199254740993 | "9007199254740993"
    {"by_args": true} => 0.1 | 0.10000000000000000001 | 0.1000000000000000055511151231257827 | 0.11
    {"by_args": true} => 1e400 | 1e401 | -1e400 | 1e-400 | 1e-401 | 0
    {"by_args": true} => 123456789012345678901234567890 | 123456789012345678901234567891 | 123456789012345678901234567890.1
    -- Nothing, in its many forms.
    {"by_args": true} => {"a": null} | {} | {"a": ""} | {"a": 0} | {"a": false} | {"a": []} | {"a": {}} | {"a": "null"} | {"": null} | null | "" | false
    {"by_args": ["a"]} => {"a": null} | {"a": ""} | {"a": 0} | {"a": false} | {"a": []} | {"a": {}} | {"a": [1, 2]} | {"a": [2, 1]}
    {"by_args": ["a.b"]} => {"a": {"b": null}} | {"a": {"b": ""}} | {"a": {"b": {}}}
    -- Types.
    {"by_args": true} => 1 | "1" | true | "true" | [1] | {"1": 1} | 1.5
    -- Dots and backslashes in names.
    {"by_args": true} => {"a.b": 1} | {"a": {"b": 1}} | {"a\\.b": 1} | {"a": {".b": 1}} | {"a.": {"b": 1}}
    {"oban": {"fields": ["args"], "keys": ["a.b"]}} => {"a.b": 1} | {"a": {"b": 1}}
    {"by_args": ["a.b", "a\\.b"]} => {"a.b": 1} | {"a": {"b": 1}} | {"a.b": 1, "a": {"b": 1}}
    -- Text: compatibility forms, case and blanks mean something.
    {"by_args": true} => "fi" | "ﬁ" | "FI" | " fi" | "fi " | "f i" | "f\ni"
    {"by_args": true} => "²" | "2" | "é" | "e" | "E\u0301" | "\u00e9\u0301"
"#;

/// Options, and args that are the same.
const EQUAL: &str = r#"
    {"by_args": true} => 1.1 | 1.10 | 11e-1 | 0.11e1 | 1.1000000000000000000000000
    {"by_args": true} => 9007199254740993 | 9007199254740993.0 | 9007199254740993000e-3
    {"by_args": true} => 0 | -0 | 0.0 | -0.00 | 0e7
    {"by_args": true} => 100 | 1e2 | 1E+2 | 100.000
    {"by_args": true} => {"a": 1, "b": [1, 2]} | {"b": [1.0, 2], "a": 1} | { "b" : [ 1,2e0 ], "a":1 }
    {"by_args": true} => "é" | "e\u0301" | "\u00e9"
    {"by_args": true} => {"é": 1} | {"e\u0301": 1}
    {"by_args": true} => "K" | "\u212a"
    {"by_args": ["a"]} => {"a": 1} | {"a": 1.0, "b": 5} | {"b": null, "a": 1}
    {"oban": {"fields": ["args"], "keys": ["a"]}} => {} | {"b": 1} | [] | 5 | null | ["a"]
    {"by_args": ["a.b", "c"]} => {"c": 1} | {"c": 1, "a": {}} | {"c": 1, "a.b": 1} | {"c": 1, "a": null} | {"c": 1, "a": [{"b": 1}]}
    {"by_args": ["a.b"]} => {"a": {"b": 1}} | {"a": {"b": 1, "c": 2}, "a.b": 3}
    {"by_args": ["a\\.b"]} => {"a.b": 1} | {"a": {"b": 2}, "a.b": 1}
"#;

#[tokio::test]
async fn args_are_one_key_exactly_if_they_are_equal() {
    let (_cluster, db) = quiet("keys").await;
    for (sets, equal) in [(DIFFERENT, false), (EQUAL, true)] {
        for (options, args) in sets.lines().filter_map(|line| line.trim().split_once(" => ")) {
            let args: Vec<&str> = args.split(" | ").collect();
            for (n, one) in args.iter().enumerate() {
                for other in &args[n + 1..] {
                    let same = same(&db, (options, one), (options, other)).await;
                    assert_eq!(same, equal, "{options}: {one}, {other}");
                }
            }
        }
    }
    // What one path finds under a name, another one finds further inside.
    let dot = (r#"{"by_args": ["a\\.b"]}"#, r#"{"a.b": 1}"#);
    let inside = (r#"{"by_args": ["a.b"]}"#, r#"{"a": {"b": 1}}"#);
    assert!(!same(&db, dot, inside).await);
}

#[tokio::test]
async fn a_job_that_comes_back_while_another_one_has_its_key_comes_back() {
    let (_cluster, db) = quiet("back").await;
    run(&db, "create table pair (how text, n int, away bigint, there bigint)").await;
    // What takes the first job of each key out of `available`, while a second one is inserted, and
    // what it is afterwards.
    let ways = [
        ("retried", "cancelled"),
        ("failed", "running"),
        ("snoozed", "running"),
        ("released", "running"),
        ("rescued", "running"),
        ("scheduled", "scheduled"),
        ("expired", "scheduled"),
        ("cancelled", "running"),
    ];
    let options = r#"{"by_args": true, "by_state": ["available"]}"#;
    for (how, away) in ways {
        for n in 0..20 {
            let more = match how {
                "scheduled" => "scheduled_at => clock_timestamp() + '0.2 s'",
                "expired" => {
                    "scheduled_at => clock_timestamp() + '1 day', expires_at => clock_timestamp() + '0.2 s'"
                }
                _ => "pending => false",
            };
            let args = format!(r#"{{"how": "{how}", "n": {n}}}"#);
            let first = number(
                &db,
                &format!("select id from jobs.insert('k', '{args}', '{options}', '{how}', {more})"),
            )
            .await;
            match away {
                "cancelled" => run(&db, &format!("select jobs.cancel({first})")).await,
                "running" => {
                    let lease = if how == "rescued" { "0.2 s" } else { "1 hour" };
                    run(&db, &format!("select jobs.fetch('{how}', lease => '{lease}')")).await;
                }
                _ => {}
            }
            assert_eq!(state(&db, first).await, away, "{how}");
            let second = inserted(&db, &args, options).await;
            run(&db, &format!("insert into pair values ('{how}', {n}, {first}, {second})")).await;
        }
    }
    // Some that have nothing to do with keys are in the same batches.
    run(&db, "select jobs.insert('plain', queue => 'plain', scheduled_at => clock_timestamp() + '0.2 s') from generate_series(1, 20)").await;
    let versions = "select string_agg(concat(xmin, ctid, xmax), ' ' order by ctid) from jobs.ready where job_id in (select there from pair)";
    let untouched = text(&db, versions).await;
    for (how, call) in [
        ("retried", "jobs.retry(away)"),
        ("failed", "jobs.fail(away, token, 'x', '0')"),
        ("snoozed", "jobs.snooze(away, token, '0.1 s')"),
        ("released", "jobs.release(away, token)"),
        ("cancelled", "jobs.cancel(away, force => true)"),
    ] {
        run(&db, &format!("select {call} from pair left join jobs.running r on r.job_id = away where how = '{how}'")).await;
    }
    seconds(0.3).await;
    let failing: i64 =
        scalar(&db, "select count(*) from jobs.maintain() where error is not null").await;
    assert_eq!(failing, 0);
    for (how, _) in ways {
        let expected = match how {
            "rescued" => "retryable",
            "expired" => "discarded",
            "cancelled" => "cancelled",
            _ => "available",
        };
        let states = text(&db, &format!("select string_agg(distinct a.state || ' ' || b.state, ', ') from pair join jobs.jobs a on a.id = away join jobs.jobs b on b.id = there where how = '{how}'")).await;
        assert_eq!(states, format!("{expected} available"), "{how}");
    }
    let plain: i64 =
        scalar(&db, "select count(*) from jobs.jobs where kind = 'plain' and state = 'available'")
            .await;
    assert_eq!(plain, 20);
    assert_eq!(text(&db, versions).await, untouched);
    // The rescued ones are due by a retry, like any other.
    run(&db, "select jobs.retry(away) from pair where how = 'rescued'").await;
    // Both count, and the newest answers; without it, the one that has returned does.
    let pairs = rows_of(&db, "select how, n, away, there from pair").await;
    assert_eq!(pairs.len(), 160);
    for row in pairs {
        let (how, n): (&str, i32) = (row.get(0), row.get(1));
        let (away, there): (i64, i64) = (row.get(2), row.get(3));
        let args = format!(r#"{{"how": "{how}", "n": {n}}}"#);
        assert_eq!(insert(&db, &args, options).await, Answer::skipped(there), "{args}");
        run(&db, &format!("select jobs.cancel({there})")).await;
        let answer = insert(&db, &args, options).await;
        if ["expired", "cancelled"].contains(&how) {
            assert!(!answer.skipped, "{args}");
        } else {
            assert_eq!(answer, Answer::skipped(away), "{args}");
        }
    }
}
