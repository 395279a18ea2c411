//! Many sessions insert the same keys, and many workers drain the queue: what everybody was told
//! must fit together.

mod history;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use history::{Answer, Fetched, Finish, Insert, Job, Outcome, Reply, check_inserts, check_work};
use jobs_tests::{
    Client, Cluster, blocked, number, poll_until, quiet, rng, rows_of, run, scalar, sqlstate,
    with_faults,
};
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::Error;

// --- inserts -------------------------------------------------------------------------------------

/// An answer, with what tells whether somebody had to wait for it.
struct Recorded {
    insert: Insert,
    /// The time at which the insert was sent.
    begun: Instant,
    /// The time at which the commit was sent, or the insert itself without a transaction.
    committed: Instant,
}

/// One session's part in the test of inserts.
struct Inserter {
    client: Client,
    rng: StdRng,
    levels: &'static [&'static str],
    record: Vec<Recorded>,
    deadlocks: usize,
    retries: usize,
}

impl Inserter {
    /// Goes on until every key has a committed answer. The keys come in blocks that all sessions
    /// have in common, shuffled.
    async fn run(&mut self, keys: i32) {
        let all: Vec<i32> = (0..keys).collect();
        for block in all.chunks(50) {
            let mut left = block.to_vec();
            while !left.is_empty() {
                left.shuffle(&mut self.rng);
                let single = self.rng.random_bool(0.5);
                let count = match single {
                    true => 1,
                    false => self.rng.random_range(1..=left.len().min(20)),
                };
                let keys = left.split_off(left.len() - count);
                match self.transaction(&keys, single).await {
                    Ok(true) => {}
                    Ok(false) => left.extend(keys),
                    Err(error) => {
                        match error.code().map(|code| code.code()) {
                            Some("40001") if self.levels.len() > 1 => self.retries += 1,
                            Some("40P01") => self.deadlocks += 1,
                            _ => panic!("{error}: {:?}", error.as_db_error()),
                        }
                        self.client.batch_execute("rollback").await.unwrap();
                        left.extend(keys);
                    }
                }
            }
        }
    }

    /// One transaction that has one key or is one batch; whether it was committed.
    async fn transaction(&mut self, keys: &[i32], single: bool) -> Result<bool, Error> {
        let level = self.levels[self.rng.random_range(0..self.levels.len())];
        let mut record = Vec::new();
        if level == "read committed" && self.rng.random_bool(0.3) {
            record.extend(self.insert(keys, single).await?);
            self.note(record, None);
            return Ok(true);
        }
        self.client.batch_execute(&format!("begin isolation level {level}")).await?;
        if self.rng.random_bool(0.3) {
            self.client.batch_execute("savepoint a").await?;
            let undone = self.insert(keys, single).await?;
            self.pause().await;
            if self.rng.random_bool(0.5) {
                self.client.batch_execute("rollback to a").await?;
                self.note(undone, Some(false));
                if self.rng.random_bool(0.5) {
                    record.extend(self.insert(keys, single).await?);
                }
            } else {
                self.client.batch_execute("release a").await?;
                record.extend(undone);
            }
        } else {
            record.extend(self.insert(keys, single).await?);
        }
        self.pause().await;
        let commit = self.rng.random_bool(0.8);
        let sent = Instant::now();
        self.client.batch_execute(if commit { "commit" } else { "rollback" }).await?;
        let decided = commit && !record.is_empty();
        for entry in &mut record {
            entry.committed = sent;
        }
        self.note(record, Some(commit));
        Ok(decided)
    }

    /// A transaction takes its time, so that others meet it.
    async fn pause(&mut self) {
        sleep(Duration::from_micros(self.rng.random_range(0..3000))).await;
    }

    fn note(&mut self, record: Vec<Recorded>, committed: Option<bool>) {
        self.record.extend(record.into_iter().map(|mut entry| {
            entry.insert.committed = committed.unwrap_or(true);
            entry
        }));
    }

    async fn insert(&mut self, keys: &[i32], single: bool) -> Result<Vec<Recorded>, Error> {
        let begun = Instant::now();
        let policy = json!({"by_args": true});
        let args: Vec<Value> = keys.iter().map(|key| json!({"n": key})).collect();
        let rows = if single {
            self.client
                .query(
                    "select id, unique_skipped_as_duplicate from jobs.insert('k', $1, $2)",
                    &[&args[0], &policy],
                )
                .await?
        } else if self.rng.random_bool(0.5) {
            self.client
                .query(
                    "select id, unique_skipped_as_duplicate from jobs.insert_batch('k', $1, $2) order by ord",
                    &[&args, &policy],
                )
                .await?
        } else {
            let jobs: Vec<Value> = args
                .iter()
                .map(|args| json!({"kind": "k", "args": args, "unique_opts": policy}))
                .collect();
            self.client
                .query(
                    "select id, unique_skipped_as_duplicate from jobs.insert_many($1) order by ord",
                    &[&Value::from(jobs)],
                )
                .await?
        };
        assert_eq!(rows.len(), keys.len());
        Ok(rows
            .iter()
            .zip(keys)
            .map(|(row, &key)| {
                let id = row.get(0);
                let reply = match row.get(1) {
                    true => Reply::Skipped(id),
                    false => Reply::Inserted(id),
                };
                Recorded {
                    insert: Insert { key, reply, committed: false },
                    begun,
                    committed: begun,
                }
            })
            .collect())
    }
}

/// How often a session was answered with a job whose commit was sent only after its own insert: it
/// had to wait.
fn waited(record: &[Recorded]) -> usize {
    let commits: HashMap<i64, Instant> = record
        .iter()
        .filter(|entry| entry.insert.committed)
        .filter_map(|entry| match entry.insert.reply {
            Reply::Inserted(id) => Some((id, entry.committed)),
            Reply::Skipped(_) => None,
        })
        .collect();
    record
        .iter()
        .filter(|entry| match entry.insert.reply {
            Reply::Skipped(id) => commits.get(&id).is_some_and(|commit| entry.begun < *commit),
            Reply::Inserted(_) => false,
        })
        .count()
}

/// Inserts each of the keys from many sessions; the jobs that are there in the end.
async fn insert_all(
    cluster: &Cluster,
    database: &str,
    sessions: usize,
    keys: i32,
    levels: &'static [&'static str],
) -> Vec<Job> {
    let db = cluster.database(database).await;
    let mut seeds = rng();
    // Nobody gets past the first block of keys without key 0.
    let holder = cluster.connect(database).await;
    run(&holder, "begin").await;
    let held: i64 = holder
        .query_one(
            "select id from jobs.insert('k', $1, $2)",
            &[&json!({"n": 0}), &json!({"by_args": true})],
        )
        .await
        .unwrap()
        .get(0);
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..sessions {
        let mut inserter = Inserter {
            client: cluster.connect(database).await,
            rng: StdRng::seed_from_u64(seeds.random()),
            levels,
            record: Vec::new(),
            deadlocks: 0,
            retries: 0,
        };
        tasks.push(tokio::spawn(async move {
            inserter.run(keys).await;
            inserter
        }));
    }
    blocked(&db, sessions as i64).await;
    run(&holder, "commit").await;
    let mut record = Vec::new();
    let (mut deadlocks, mut retries) = (0, 0);
    for task in tasks {
        let inserter = task.await.unwrap();
        record.extend(inserter.record);
        deadlocks += inserter.deadlocks;
        retries += inserter.retries;
    }
    // Of each other: the holder is not in the record.
    let waited = waited(&record);
    println!(
        "{} answers in {:?}: {waited} duplicates had to wait, {retries} retries",
        record.len(),
        begun.elapsed(),
    );

    let jobs: Vec<Job> = rows_of(&db, "select id, (args->>'n')::integer from jobs.jobs")
        .await
        .iter()
        .map(|row| Job { id: row.get(0), key: row.get(1) })
        .collect();
    let mut inserts: Vec<Insert> = record.iter().map(|entry| entry.insert).collect();
    inserts.push(insert(0, Reply::Inserted(held), true));
    let wrong = check_inserts(&inserts, &jobs);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(jobs.len(), keys as usize);
    assert_eq!(deadlocks, 0, "nobody held more than one key or batch");
    assert!(waited > 0, "nobody met a rival that was not yet committed");
    jobs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_a_key_under_read_committed() {
    let cluster = Cluster::start();
    insert_all(&cluster, "rc", 32, 500, &["read committed"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_a_key_at_any_level() {
    let cluster = Cluster::start();
    insert_all(&cluster, "mixed", 12, 100, &["read committed", "repeatable read", "serializable"])
        .await;
}

/// Whoever does not wait for rivals gives up only where there is one: here is none, but much else
/// to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_waiting_gives_up_only_for_rivals() {
    let cluster = Cluster::start();
    let db = cluster.database("nowait").await;
    let mut tasks = Vec::new();
    for session in 0..32 {
        let client = cluster.connect("nowait").await;
        tasks.push(tokio::spawn(async move {
            let policy = json!({"by_args": true, "wait": false});
            let mut busy = 0;
            for round in 0..40 {
                let args: Vec<Value> =
                    (0..50).map(|n| json!({"session": session, "round": round, "n": n})).collect();
                let (one, rest) = args.split_first().unwrap();
                let row = client
                    .query_one("select id is null from jobs.insert('k', $1, $2)", &[one, &policy])
                    .await
                    .unwrap();
                busy += i64::from(row.get::<_, bool>(0));
                let row = client
                    .query_one(
                        "select count(*) from jobs.insert_batch('k', $1, $2) where id is null",
                        &[&rest, &policy],
                    )
                    .await
                    .unwrap();
                busy += row.get::<_, i64>(0);
            }
            busy
        }));
    }
    let mut busy = 0;
    for task in tasks {
        busy += task.await.unwrap();
    }
    let jobs: i64 = scalar(&db, "select count(*) from jobs.jobs").await;
    assert_eq!((busy, jobs), (0, 32 * 40 * 50));
}

#[tokio::test]
async fn not_waiting_passes_over_the_keys_of_rivals_alone() {
    let (cluster, db) = quiet("busy").await;
    let run = async |client: &Client, sql: &str| client.batch_execute(sql).await.expect(sql);
    run(
        &db,
        "set statement_timeout = '30s';
         create function policy() returns jsonb language sql return
           jsonb_build_object('by_args', true, 'by_state', jsonb_build_array('available'))",
    )
    .await;
    for (round, level) in
        ["read committed", "repeatable read", "serializable"].into_iter().enumerate()
    {
        let numbers = format!("generate_series({round} * 100 + 1, {round} * 100 + 100) n");
        let insert = async |client: &Client, n: usize, queue: &str| {
            let n = round * 100 + n;
            let sql = format!("select jobs.insert('k', '{n}', policy(), queue => '{queue}')");
            run(client, &sql).await;
        };
        // Keys that are taken, and to be locked: their jobs run.
        for n in [40, 50] {
            insert(&db, n, "fast").await;
        }
        run(&db, "select jobs.fetch('fast', 2)").await;
        let rival = cluster.connect("busy").await;
        run(&rival, "begin").await;
        let of_rival: Vec<usize> = [20, 40].into_iter().chain(60..=90).collect();
        for n in &of_rival {
            insert(&rival, *n, "default").await;
        }
        let of_rival: Vec<String> = of_rival.iter().map(usize::to_string).collect();
        let batch = format!(
            "select coalesce(string_agg(ord::text, ' ' order by ord) filter (where id is null), '')
                 || ' of ' || count(*) filter (where not unique_skipped_as_duplicate)
               from jobs.insert_batch('k', array(select to_jsonb(n) from {numbers}), policy() || '{{\"wait\": false}}')",
        );
        run(&db, &format!("set default_transaction_isolation = '{level}'")).await;
        let answer = async || -> String { scalar(&db, &batch).await };
        let wanted = format!("{} of 67", of_rival.join(" "));
        assert_eq!(answer().await, wanted, "{level}");
        run(&rival, "rollback").await;
        assert_eq!(answer().await, " of 33", "{level}");
    }
}

/// The look for rivals is switched off, so that both batches come upon whoever has a key when they
/// have written.
#[tokio::test]
async fn batches_that_lose_a_race_for_a_key_wait_for_the_winner_only() {
    let cluster = Cluster::builder()
        .postgres(&with_faults())
        .set("jobs.enabled", "off")
        .set("jobs.fault", "claim_blindly")
        .set("wal_level", "logical")
        .start();
    let db = cluster.database("race").await;
    let run = async |client: &Client, sql: &str| client.batch_execute(sql).await.expect(sql);
    // The server's own plugin: not every installation has one that writes text.
    run(&db, "create publication sent for table jobs.unique_claim").await;
    run(&db, "select pg_create_logical_replication_slot('sent', 'pgoutput')").await;
    let cases = ["read committed", "repeatable read", "serializable"]
        .map(|level| [(level, "commit", 1), (level, "rollback", 0)]);
    for (round, (level, end, of_winner)) in cases.into_iter().flatten().enumerate() {
        let key = |n: i64| 100 * round as i64 + n;
        let insert = |by_state: &str| {
            format!("select jobs.insert('k', '{}', '{{\"by_args\": true{by_state}}}')", key(20))
        };
        let winner = cluster.connect("race").await;
        run(&winner, &format!("begin isolation level {level}")).await;
        run(&winner, &insert("")).await;
        let batch = format!(
            "select count(*) filter (where not unique_skipped_as_duplicate)
               from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series({}, {}) n), '{{\"by_args\": true}}')",
            key(1),
            key(40)
        );
        let mut losers = Vec::new();
        for _ in 0..2 {
            let (session, batch) = (cluster.connect("race").await, batch.clone());
            losers.push(tokio::spawn(async move { number(&session, &batch).await }));
            blocked(&db, losers.len() as i64).await;
        }
        // They are not in the winner's way.
        run(&winner, &insert(", \"by_state\": [\"running\"]")).await;
        run(&winner, end).await;
        let mut inserted = 0;
        for loser in losers {
            inserted += loser.await.expect("no deadlock");
        }
        assert_eq!(inserted, 40 - of_winner, "{level}, {end}");
        // What is left is of no subtransaction: the race was lost.
        let kept = "select count(*) from jobs.unique_claim c join jobs.job j on j.id = c.jobs[1] where c.xmin <> j.xmin";
        assert_eq!(number(&db, kept).await, 0, "{level}, {end}");
        // A subscriber is sent each claim once.
        let sent = "select count(*) from pg_logical_slot_get_binary_changes('sent', null, null, 'proto_version', '1', 'publication_names', 'sent')
                     where get_byte(data, 0) = ascii('I')";
        assert_eq!(number(&db, sent).await, 40, "{level}, {end}");
    }
}

// --- work ----------------------------------------------------------------------------------------

/// What all workers saw.
#[derive(Default)]
struct Work {
    fetches: Vec<Fetched>,
    finishes: Vec<Finish>,
}

/// One worker. A slow one asks for a short lease and overstays it now and then.
struct Worker {
    client: Client,
    rng: StdRng,
    slow: bool,
    /// Cuts this worker's connection while it completes its third batch: who cuts, and the process
    /// that ends.
    cut: Option<(Client, i32)>,
    work: Work,
}

impl Worker {
    /// Works until the queue is drained; `false` if its connection was cut.
    async fn run(&mut self, drained: &AtomicBool) -> bool {
        let mut batches = 0;
        while !drained.load(Ordering::Relaxed) {
            let lease = if self.slow { "100 ms" } else { "30 s" };
            let count = self.rng.random_range(1..=20);
            let Ok(rows) = self
                .client
                .query(
                    "select id, token, attempt from jobs.fetch(max_jobs => $1, lease => $2::text::interval)",
                    &[&count, &lease],
                )
                .await
            else {
                return false; // what it fetched, if it did, is nobody's until it is rescued
            };
            let mut jobs: Vec<(i64, i64)> = Vec::new();
            for row in &rows {
                let fetched = Fetched { id: row.get(0), token: row.get(1), attempt: row.get(2) };
                self.work.fetches.push(fetched);
                jobs.push((fetched.id, fetched.token));
            }
            if jobs.is_empty() {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            batches += 1;
            if let Some((by, pid)) = self.cut.take_if(|_| batches == 3) {
                let soon =
                    Duration::from_micros(self.rng.random_range(0..2000) * jobs.len() as u64);
                let cut = async {
                    sleep(soon).await;
                    let cut = "select pg_terminate_backend($1, 5000)";
                    by.query_one(cut, &[&pid]).await.unwrap().get(0)
                };
                let (_, ended): (bool, bool) = tokio::join!(self.complete_each(&jobs), cut);
                assert!(ended, "the connection is not cut");
                return false;
            }
            // Whoever is yet to be cut keeps its pace, so that it does get a third batch.
            if self.slow && self.cut.is_none() && self.rng.random_bool(0.3) {
                sleep(Duration::from_millis(1500)).await;
            }
            jobs.shuffle(&mut self.rng);
            let done = match self.rng.random_bool(0.5) {
                true => self.complete_many(&jobs).await,
                false => self.complete_each(&jobs).await,
            };
            if !done {
                return false;
            }
        }
        true
    }

    async fn complete_each(&mut self, jobs: &[(i64, i64)]) -> bool {
        for &(id, token) in jobs {
            sleep(Duration::from_micros(self.rng.random_range(0..2000))).await;
            let result =
                self.client.query_one("select jobs.complete($1, $2)::text", &[&id, &token]).await;
            let answer = match &result {
                Ok(row) => {
                    assert_eq!(row.get::<_, &str>(0), "completed");
                    Answer::Completed
                }
                Err(error) => match error.as_db_error() {
                    Some(refused) if refused.code().code() == "55000" => {
                        assert_eq!(refused.detail(), Some("lease_lost"));
                        Answer::Refused
                    }
                    Some(error) if error.code().code() != "57P01" => panic!("{error:?}"),
                    _ => Answer::Unknown,
                },
            };
            self.work.finishes.push(Finish { id, token, answer });
            if answer == Answer::Unknown {
                return false;
            }
        }
        true
    }

    async fn complete_many(&mut self, jobs: &[(i64, i64)]) -> bool {
        let (ids, tokens): (Vec<i64>, Vec<i64>) = jobs.iter().copied().unzip();
        let result = self
            .client
            .query("select id, done from jobs.complete_many($1, $2)", &[&ids, &tokens])
            .await;
        if result.is_err() {
            assert!(
                matches!(sqlstate(result).as_str(), "57P01" | "connection closed"),
                "complete_many"
            );
            let unknown =
                jobs.iter().map(|&(id, token)| Finish { id, token, answer: Answer::Unknown });
            self.work.finishes.extend(unknown);
            return false;
        }
        let rows = result.unwrap();
        assert_eq!(rows.len(), jobs.len());
        for (row, &(id, token)) in rows.iter().zip(jobs) {
            assert_eq!(row.get::<_, i64>(0), id);
            let answer = match row.get(1) {
                true => Answer::Completed,
                false => Answer::Refused,
            };
            self.work.finishes.push(Finish { id, token, answer });
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_is_completed_once_by_its_last_worker() {
    const JOBS: i64 = 10_000;
    const WORKERS: usize = 8;
    let cluster = Cluster::builder().set("jobs.interval", "50ms").start();
    cluster.allow(1, "terminating connection due to administrator command");
    let db = cluster.database("work").await;
    db.query(
        "select count(*) from jobs.insert_batch('k', array(select jsonb_build_object('n', n) from generate_series(1, $1::bigint) n), '{\"by_args\": true}',
           retry => '{\"strategy\": \"constant\", \"initial\": 0.5}')",
        &[&JOBS],
    )
    .await
    .unwrap();

    let mut seeds = rng();
    let drained = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for number in 0..WORKERS {
        let client = cluster.connect("work").await;
        let pid = client.query_one("select pg_backend_pid()", &[]).await;
        let mut worker = Worker {
            client,
            rng: StdRng::seed_from_u64(seeds.random()),
            slow: number < 2,
            cut: match number {
                0 => Some((cluster.connect("work").await, pid.unwrap().get(0))),
                _ => None,
            },
            work: Work::default(),
        };
        let drained = drained.clone();
        tasks.push(tokio::spawn(async move { (worker.run(&drained).await, worker) }));
    }
    poll_until("the queue is drained", Duration::from_secs(300), || async {
        let left = "select count(*) from jobs.jobs where state <> 'completed'";
        scalar::<i64>(&db, left).await == 0
    })
    .await;
    drained.store(true, Ordering::Relaxed);

    let mut work = Work::default();
    let mut cut = 0;
    for task in tasks {
        let (alive, mut worker) = task.await.unwrap();
        if !alive {
            cut += 1;
            // It comes back and says of everything that it ever had that it is done.
            worker.client = cluster.connect("work").await;
            let had: Vec<(i64, i64)> =
                worker.work.fetches.iter().map(|fetched| (fetched.id, fetched.token)).collect();
            assert!(worker.complete_each(&had).await);
            assert!(worker.complete_many(&had).await);
        }
        work.fetches.extend(worker.work.fetches);
        work.finishes.extend(worker.work.finishes);
    }
    let outcomes: Vec<Outcome> =
        rows_of(&db, "select id, state::text, token, attempt from jobs.jobs")
            .await
            .iter()
            .map(|row| Outcome {
                id: row.get(0),
                completed: row.get::<_, &str>(1) == "completed",
                token: row.get(2),
                attempt: row.get(3),
            })
            .collect();
    let refused = work.finishes.iter().filter(|finish| finish.answer == Answer::Refused).count();
    println!("{} fetched, {refused} stale tokens refused", work.fetches.len());
    let wrong = check_work(&work.fetches, &work.finishes, &outcomes);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(outcomes.len() as i64, JOBS);
    assert_eq!(cut, 1, "one worker was cut off");
    assert!(refused > 0, "no worker lost a job");
}

// --- the control: the checks can fail ------------------------------------------------------------

fn insert(key: i32, reply: Reply, committed: bool) -> Insert {
    Insert { key, reply, committed }
}

fn a_good_history() -> (Vec<Insert>, Vec<Job>) {
    let history = vec![
        insert(1, Reply::Inserted(10), true),
        insert(1, Reply::Skipped(10), true),
        insert(2, Reply::Inserted(11), false),
        insert(2, Reply::Inserted(12), true),
        insert(2, Reply::Skipped(12), false),
    ];
    let jobs = vec![Job { id: 10, key: 1 }, Job { id: 12, key: 2 }];
    (history, jobs)
}

#[test]
fn control_a_good_history_passes() {
    let (history, jobs) = a_good_history();
    assert!(check_inserts(&history, &jobs).is_empty());
}

#[test]
fn control_two_jobs_of_a_key_are_found() {
    let (mut history, mut jobs) = a_good_history();
    history.push(insert(1, Reply::Inserted(13), true));
    jobs.push(Job { id: 13, key: 1 });
    assert_eq!(check_inserts(&history, &jobs), ["key 1 has 2 jobs: [10, 13]"]);
}

#[test]
fn control_a_lost_insert_is_found() {
    let (mut history, jobs) = a_good_history();
    history.push(insert(3, Reply::Inserted(13), true));
    assert_eq!(
        check_inserts(&history, &jobs),
        ["key 3: job 13 is lost, which a committed transaction was told it inserted"]
    );
    let (mut history, jobs) = a_good_history();
    history.push(insert(2, Reply::Skipped(11), true));
    assert_eq!(
        check_inserts(&history, &jobs),
        ["key 2: job 11 is lost, which a committed transaction was told it skipped to"]
    );
}

#[test]
fn control_what_a_rollback_leaves_behind_is_found() {
    let (history, mut jobs) = a_good_history();
    jobs[1].id = 11;
    assert_eq!(
        check_inserts(&history, &jobs),
        [
            "key 2: job 12 is lost, which a committed transaction was told it inserted",
            "job 11 is there, but was rolled back"
        ]
    );
}

#[test]
fn control_a_wait_is_counted() {
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    let entry = |reply, begun, committed| Recorded {
        insert: insert(1, reply, true),
        begun: after(begun),
        committed: after(committed),
    };
    let rival = || entry(Reply::Inserted(1), 0, 10);
    assert_eq!(waited(&[rival(), entry(Reply::Skipped(1), 5, 20)]), 1);
    assert_eq!(waited(&[rival(), entry(Reply::Skipped(1), 15, 20)]), 0);
}

fn fetched(id: i64, token: i64, attempt: i32) -> Fetched {
    Fetched { id, token, attempt }
}

fn finish(id: i64, token: i64, answer: Answer) -> Finish {
    Finish { id, token, answer }
}

/// Job 1 was completed at once and its worker asked twice; job 2 was rescued, and its first worker
/// refused.
fn good_work() -> (Vec<Fetched>, Vec<Finish>, Vec<Outcome>) {
    let outcome = |id, token, attempt| Outcome { id, completed: true, token: Some(token), attempt };
    (
        vec![fetched(1, 100, 1), fetched(2, 101, 1), fetched(2, 102, 2)],
        vec![
            finish(1, 100, Answer::Unknown),
            finish(1, 100, Answer::Completed),
            finish(2, 101, Answer::Refused),
            finish(2, 102, Answer::Completed),
        ],
        vec![outcome(1, 100, 1), outcome(2, 102, 2)],
    )
}

#[test]
fn control_good_work_passes() {
    let (fetches, finishes, outcomes) = good_work();
    assert!(check_work(&fetches, &finishes, &outcomes).is_empty());
}

#[test]
fn control_a_job_completed_twice_is_found() {
    let (fetches, mut finishes, outcomes) = good_work();
    finishes[2].answer = Answer::Completed;
    assert_eq!(
        check_work(&fetches, &finishes, &outcomes),
        ["job 2 was completed 2 times", "job 2: a stale token was accepted"]
    );
}

#[test]
fn control_a_stale_token_is_found() {
    let (fetches, mut finishes, mut outcomes) = good_work();
    finishes[2].answer = Answer::Completed;
    finishes[3].answer = Answer::Refused;
    outcomes[1].token = Some(101);
    assert_eq!(
        check_work(&fetches, &finishes, &outcomes),
        [
            "job 2 was completed by a stale token",
            "job 2: a stale token was accepted",
            "job 2 is completed, but its worker was not told so"
        ]
    );
}

#[test]
fn control_a_job_that_two_workers_got_is_found() {
    let (mut fetches, finishes, outcomes) = good_work();
    fetches.push(fetched(1, 103, 1));
    assert!(
        check_work(&fetches, &finishes, &outcomes)
            .contains(&"job 1: two workers had one attempt".to_string())
    );
    fetches.push(fetched(2, 102, 3));
    assert!(
        check_work(&fetches, &finishes, &outcomes)
            .contains(&"token 102 was given twice".to_string())
    );
}

#[test]
fn control_an_unfinished_and_a_lost_job_are_found() {
    let (fetches, finishes, mut outcomes) = good_work();
    outcomes[0].completed = false;
    outcomes.pop();
    assert_eq!(
        check_work(&fetches, &finishes, &outcomes),
        ["job 2 was fetched, but is lost", "job 1 is not completed"]
    );
}
