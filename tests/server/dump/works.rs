//! Whether a queue goes on as another one would.

use jobs_tests::{Client, Cluster, comes_true, count, number, row_of, rows_of, sqlstate, text};

use super::{SOON, run, scalar, texts};

/// Unique jobs under keys of many kinds: arguments of `jobs.insert` and of `jobs.explain_unique`.
pub const UNIQUE: [&str; 18] = [
    r#"'by args', '{"n": 1.0, "x": [null]}', '{"by_args": true}'"#,
    r#"'by paths', '{"a": {"b": 1}, "c": 2}', '{"by_args": ["a.b"]}'"#,
    r#"'by meta', unique_opts => '{"by_meta": ["m"]}', meta => '{"m": "x", "n": 2}'"#,
    r#"'by queue', unique_opts => '{"by_queue": true}', queue => 'a queue'"#,
    r#"'by period', unique_opts => '{"by_period": "1 day"}', scheduled_at => '2200-01-01 12:00+00'"#,
    r#"'by state', unique_opts => '{"by_state": ["available", "cancelled"]}'"#,
    r#"'by key', unique_opts => '{"key": "the key", "exclude_kind": true}'"#,
    r#"'window', unique_opts => '{"by_kind": true, "window": "P10D"}'"#,
    r#"'no wait', unique_opts => '{"by_kind": true, "wait": false}'"#,
    r#"'hold', unique_opts => '{"by_state": [], "hold_for": "P10D"}'"#,
    r#"'reject', unique_opts => '{"by_kind": true, "on_conflict": "reject"}'"#,
    r#"'replace', unique_opts => '{"by_kind": true, "on_conflict": "replace"}'"#,
    r#"'replace', '{"other": true}', '{"by_args": true, "on_conflict": "replace_except_schedule"}', scheduled_at => '2200-01-01 12:00+00'"#,
    r#"'update', unique_opts => '{"by_kind": true, "on_conflict": {"update": {"*": ["args"]}}}'"#,
    r#"'oban', unique_opts => '{"oban": {"period": "infinity", "fields": ["worker", "args"]}}'"#,
    r#"'faktory', unique_opts => '{"faktory": {"unique_for": 1000000.5, "unique_until": "start"}}'"#,
    r#"'ojs', '{"k": 1}', '{"ojs": {"keys": ["args"], "args_keys": ["k"]}}'"#,
    r#"'defined', '{"n": 1}'"#,
];

/// Keys of jobs in queue.sql.
const OTHERS: [&str; 15] = [
    r#"'by args', '{"n": 2}', '{"by_args": true}'"#,
    r#"'tick done', '{"n": 1}', '{"by_args": true}'"#,
    r#"'tick held', unique_opts => '{"by_kind": true}'"#,
    r#"'running and holding', unique_opts => '{"by_kind": true}'"#,
    r#"'many', unique_opts => '{"by_kind": true}'"#,
    r#"'folded', unique_opts => '{"by_state": ["cancelled"]}'"#,
    r#"'folded', unique_opts => '{"by_state": ["available"]}'"#,
    r#"'returned', unique_opts => '{"by_state": ["available"], "on_conflict": "reject"}'"#,
    r#"'lost', unique_opts => '{"by_kind": true}'"#,
    r#"'half lost', unique_opts => '{"by_kind": true}'"#,
    r#"'held by a deleted job', unique_opts => '{"by_state": [], "hold_for": 1}'"#,
    r#"'held until the start', unique_opts => '{"by_state": [], "hold_for": 1}'"#,
    r#"'held until success', unique_opts => '{"by_state": [], "hold_for": 1}'"#,
    r#"'held by a cancelled job', unique_opts => '{"by_state": [], "hold_for": 1}'"#,
    r#"'past its retention', unique_opts => '{"by_state": ["cancelled"]}'"#,
];

/// What an insert would come to.
#[derive(Debug, PartialEq)]
struct Would {
    key: Option<String>,
    holder: Option<i64>,
    state: Option<String>,
    would: Option<String>,
}

/// An attempt that was begun before, or a finishing call that was answered.
#[derive(Debug)]
struct Attempt {
    id: i64,
    token: i64,
    answer: String,
    /// The finishing call that was answered. The string is empty for a running attempt.
    call: String,
}

/// How a queue is expected to go on: read from one that nothing has happened to.
pub struct Expected {
    /// The highest id taken.
    last: i64,
    settled: Vec<String>,
    would: Vec<Would>,
    running: Vec<Attempt>,
    finished: Vec<Attempt>,
    given_back: Vec<Attempt>,
    lanes: Vec<i64>,
}

impl Expected {
    /// Reads it from a copy of the database `before`, which is made here and maintained once.
    pub async fn of(cluster: &Cluster, last: i64) -> Expected {
        let postgres = cluster.connect("postgres").await;
        run(&postgres, "create database settled template before").await;
        let db = cluster.connect("settled").await;
        maintain(&db).await;
        let expected = Expected {
            last,
            settled: settled(&db, last).await,
            would: would(&db).await,
            running: attempts(&db, "select id, token, (cancel_requested_at is not null)::text, '' from jobs.jobs where state = 'running'").await,
            finished: attempts(&db, "select id, token, state::text, case state when 'completed' then 'complete' when 'discarded' then 'fail' else 'release' end
                   from jobs.jobs where finalized_at is not null and token is not null").await,
            given_back: attempts(&db, "select job_id, token, state::text, case when scheduled_at is null then 'release' else 'snooze' end from jobs.answer").await,
            lanes: lanes(&db).await,
        };
        expected.assert_of_everything();
        expected
    }

    /// The check of a queue would not say much with less in it.
    fn assert_of_everything(&self) {
        for would in ["insert", "skip", "reject", "replace", "update"] {
            let count = self.would.iter().filter(|w| w.would.as_deref() == Some(would));
            assert!(count.count() > 0, "no key where the policy says {would}");
        }
        assert!(
            self.would.iter().any(|w| w.holder.is_some() && w.state.is_none()),
            "no hold of a deleted job"
        );
        assert_eq!(self.running.len(), 10);
        assert_eq!(self.running.iter().filter(|a| a.answer == "true").count(), 1);
        assert!(self.finished.len() >= 4 && self.given_back.len() >= 3);
        assert_eq!(self.lanes.len(), 8);
    }

    /// Has maintenance run once, then as [`Expected::check_settled`].
    pub async fn check(&self, cluster: &Cluster, database: &str) {
        let db = cluster.connect(database).await;
        maintain(&db).await;
        assert_eq!(settled(&db, self.last).await, self.settled);
        self.check_settled(cluster, database).await;
    }

    /// Waits until the background worker has done what maintenance has to do, then as
    /// [`Expected::check_settled`].
    pub async fn check_after_the_worker(&self, cluster: &Cluster, database: &str) {
        let db = cluster.connect(database).await;
        let start = std::time::Instant::now();
        loop {
            run(&db, "select jobs.installed()").await;
            let now = settled(&db, self.last).await;
            if now == self.settled {
                break;
            }
            if start.elapsed() > SOON {
                assert_eq!(now, self.settled, "maintained otherwise");
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        self.check_settled(cluster, database).await;
    }

    /// Goes on with the queue in every way, and so changes it.
    async fn check_settled(&self, cluster: &Cluster, database: &str) {
        let db = cluster.connect(database).await;
        self.check_maintained(&db).await;
        self.check_limits(&db).await;
        self.check_order(&db).await;
        self.check_tokens(&db).await;
        self.check_keys(&db).await;
        self.check_rights(&db).await;
    }

    /// What was due became available, once; nothing is left to do, and ticks do not come again.
    async fn check_maintained(&self, db: &Client) {
        assert_eq!(number(db, "select sum(rows)::bigint from jobs.maintain()").await, 0);
        assert_eq!(count(db, "jobs.fetch('due', 10)").await, 1);
        assert_eq!(count(db, "jobs.fetch('due', 10)").await, 0);
        assert_eq!(
            count(db, "jobs.jobs where kind = 'tick overdue'").await,
            1,
            "one job of the tick that had passed"
        );
        let id = number(db, "select id from jobs.jobs where kind = 'tick overdue'").await;
        assert!(id > self.last, "{id}");
    }

    async fn check_limits(&self, db: &Client) {
        assert_eq!(count(db, "jobs.fetch('paused', 10)").await, 0);
        run(db, "select jobs.resume_queue('paused')").await;
        assert_eq!(count(db, "jobs.fetch('paused', 10)").await, 1);
        assert_eq!(count(db, "jobs.fetch('rate', 10)").await, 0);
        assert_eq!(count(db, "jobs.fetch('slots', 10)").await, 0);
        let one = "select jobs.complete(id, token) from jobs.jobs where queue = 'slots' and state = 'running' limit 1";
        run(db, one).await;
        assert_eq!(count(db, "jobs.fetch('slots', 10)").await, 1);
        // One at a time, and no more than two.
        for started in [1, 0] {
            assert_eq!(count(db, "jobs.fetch('tenants', 10)").await, 0);
            run(db, &one.replace("slots", "tenants")).await;
            assert_eq!(count(db, "jobs.fetch('tenants', 10)").await, started);
        }
        let own = "select retention_completed = -1 and retention_cancelled > 0 and retention_discarded > 0 from jobs.queue where queue = 'kept'";
        assert!(scalar::<bool>(db, own).await);
    }

    async fn check_order(&self, db: &Client) {
        let rows = db.query("select id from jobs.fetch('lanes', 100)", &[]);
        let ids: Vec<i64> = rows.await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(ids, self.lanes);
    }

    async fn check_tokens(&self, db: &Client) {
        for attempt in &self.running {
            let Attempt { id, token, answer, .. } = attempt;
            if text(db, &state(*id)).await != "running" {
                continue; // it made room for another one
            }
            let wrong = format!("select jobs.complete({id}, {})", token + 1);
            assert_eq!(sqlstate(db.batch_execute(&wrong).await), "55000");
            let asked = format!("select cancel_requested::text from jobs.heartbeat({id}, {token})");
            assert_eq!(&text(db, &asked).await, answer);
            let complete = format!("select jobs.complete({id}, {token})::text");
            assert_eq!(text(db, &complete).await, "completed");
            assert_eq!(text(db, &complete).await, "completed");
        }
        for attempt in self.finished.iter().chain(&self.given_back) {
            let Attempt { id, token, .. } = attempt;
            let again = match attempt.call.as_str() {
                "complete" => format!("jobs.complete({id}, {token})"),
                "fail" => format!("(jobs.fail({id}, {token}, 'again')).state"),
                "snooze" => format!("(jobs.snooze({id}, {token}, '1 s')).state"),
                _ => format!("jobs.release({id}, {token})"),
            };
            let answer = text(db, &format!("select ({again})::text")).await;
            assert_eq!(answer, attempt.answer, "{id}: {again}");
        }
    }

    async fn check_keys(&self, db: &Client) {
        for (arguments, expected) in UNIQUE.iter().chain(&OTHERS).zip(&self.would) {
            let sql = format!(
                "select id, unique_skipped_as_duplicate, replaced_id from jobs.insert({arguments})"
            );
            let answer = db.query_one(&sql, &[]).await;
            if expected.would.as_deref() == Some("reject") {
                assert_eq!(sqlstate(answer), "23505", "{arguments}");
                continue;
            }
            let row = answer.expect(&sql);
            let (id, skipped, replaced): (i64, bool, Option<i64>) =
                (row.get(0), row.get(1), row.get(2));
            match expected.would.as_deref() {
                Some("skip" | "update") => {
                    assert_eq!((Some(id), skipped), (expected.holder, true), "{arguments}");
                }
                Some("replace") => {
                    assert_eq!((replaced, skipped), (expected.holder, false), "{arguments}");
                    assert!(id > self.last);
                }
                _ => {
                    assert_eq!((replaced, skipped), (None, false), "{arguments}");
                    assert!(id > self.last, "{arguments}: {id} was there before");
                }
            }
        }
    }

    async fn check_rights(&self, db: &Client) {
        for (role, call, code) in [
            ("dump_producer", "select jobs.insert('granted')", "00000"),
            ("dump_producer", "select jobs.fetch()", "42501"),
            ("dump_viewer", "select id, state from jobs.jobs", "00000"),
            ("dump_viewer", "select args from jobs.jobs", "42501"),
            ("dump_viewer", "select jobs.insert('not granted')", "42501"),
        ] {
            run(db, &format!("set role {role}")).await;
            assert_eq!(sqlstate(db.batch_execute(call).await), code, "{role}: {call}");
            run(db, "reset role").await;
        }
    }

    /// What explain_unique says of every key.
    pub async fn check_explained(&self, db: &Client) {
        assert_eq!(would(db).await, self.would);
    }
}

/// Jobs, keys, errors and periodic jobs after a maintenance, but for what differs from one time to
/// the next: when it was, random delays and new ids.
async fn settled(db: &Client, last: i64) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, sql) in [
        (
            "job",
            "select row(kind, case when id <= {last} then id end, state, queue, priority, attempt, max_attempts, worker, token, progress, output,
                        cancel_reason, finalized_at is not null, lease_expires_at)::text from jobs.jobs",
        ),
        ("key", "select c::text from jobs.unique_claims c"),
        ("error", "select row(job_id, attempt, error, details)::text from jobs.errors"),
        (
            "periodic",
            "select row(name, next_run_at, last_run_at, case when last_job_id <= {last} then last_job_id end, last_skipped, last_error)::text
               from jobs.periodic",
        ),
        ("note", "select row(key, kind, case when seq <= {last} then seq end, job_id, due_at)::text from jobs.unique_note"),
        ("slot", "select s::text from jobs.queue_slot s"),
        ("start", "select s::text from jobs.queue_start s"),
    ] {
        let sql = sql.replace("{last}", &last.to_string());
        let rows = texts(db, &format!("{sql} order by 1")).await;
        lines.extend(rows.iter().map(|row| format!("{what} {row}")));
    }
    lines
}

async fn would(db: &Client) -> Vec<Would> {
    let mut all = Vec::new();
    for arguments in UNIQUE.iter().chain(&OTHERS) {
        let sql = format!(
            "select unique_key, holder, holder_state::text, would from jobs.explain_unique({arguments})"
        );
        let row = row_of(db, &sql).await;
        all.push(Would {
            key: row.get(0),
            holder: row.get(1),
            state: row.get(2),
            would: row.get(3),
        });
    }
    all
}

async fn attempts(db: &Client, sql: &str) -> Vec<Attempt> {
    let rows = rows_of(db, &format!("{sql} order by 1, 2")).await;
    rows.iter()
        .map(|row| Attempt {
            id: row.get(0),
            token: row.get(1),
            answer: row.get(2),
            call: row.get(3),
        })
        .collect()
}

async fn lanes(db: &Client) -> Vec<i64> {
    let sql = "select job_id from jobs.ready where queue = 'lanes' order by priority, seq";
    let rows = rows_of(db, sql).await;
    rows.iter().map(|row| row.get(0)).collect()
}

async fn maintain(db: &Client) {
    // The server may not have noticed yet that pg_restore is gone.
    comes_true(
        db,
        "not exists (select from pg_stat_activity where application_name = 'pg_restore')",
    )
    .await;
    let failed =
        texts(db, "select task || ': ' || error from jobs.maintain() where error is not null")
            .await;
    assert!(failed.is_empty(), "{failed:?}");
}

fn state(id: i64) -> String {
    format!("select state::text from jobs.jobs where id = {id}")
}
