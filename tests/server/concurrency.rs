//! Many sessions insert the same keys, and many workers drain the queue: what every session was
//! told must fit together.

mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use history::{Answer, Fetched, Outcome, Told, Work, check_inserts, check_work};
use jobs_tests::{
    Client, Cluster, LEVELS, blocked, count, number, poll_until, quiet, rng, rows_of, run, scalar,
    sqlstate, with,
};
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::{Error, Row};

// --- inserts -------------------------------------------------------------------------------------

/// One session's part in the test of inserts.
struct Inserter {
    client: Client,
    rng: StdRng,
    levels: &'static [&'static str],
    told: Vec<Told>,
    retries: usize,
}

impl Inserter {
    /// Goes on until every key has a committed answer. The keys come in blocks that all sessions
    /// have in common, shuffled. No session has more than one key or batch, so that there is no
    /// deadlock.
    async fn run(&mut self, keys: i32) {
        let all: Vec<i32> = (0..keys).collect();
        for block in all.chunks(50) {
            let mut left = block.to_vec();
            while !left.is_empty() {
                left.shuffle(&mut self.rng);
                let single = self.rng.random_bool(0.5);
                let most = if single { 1 } else { left.len().min(20) };
                let keys = left.split_off(left.len() - self.rng.random_range(1..=most));
                match self.transaction(&keys, single).await {
                    Ok(true) => {}
                    Ok(false) => left.extend(keys),
                    Err(error) => {
                        assert_eq!(sqlstate::<()>(Err(error)), "40001");
                        assert!(self.levels.len() > 1, "as it is told");
                        self.retries += 1;
                        run(&self.client, "rollback").await;
                        left.extend(keys);
                    }
                }
            }
        }
    }

    /// One transaction that has one key or is one batch; whether it was committed.
    async fn transaction(&mut self, keys: &[i32], single: bool) -> Result<bool, Error> {
        let level = self.levels[self.rng.random_range(0..self.levels.len())];
        if level == "read committed" && self.rng.random_bool(0.3) {
            let told = self.insert(keys, single).await?;
            self.told.extend(told);
            return Ok(true);
        }
        self.client.batch_execute(&format!("begin isolation level {level}")).await?;
        let saves = self.rng.random_bool(0.3);
        if saves {
            self.client.batch_execute("savepoint a").await?;
        }
        let mut told = self.insert(keys, single).await?;
        self.pause().await;
        if saves && self.rng.random_bool(0.5) {
            self.client.batch_execute("rollback to a").await?;
            told.clear();
            if self.rng.random_bool(0.5) {
                told = self.insert(keys, single).await?;
                self.pause().await;
            }
        } else if saves {
            self.client.batch_execute("release a").await?;
        }
        let commit = self.rng.random_bool(0.8) && !told.is_empty();
        self.client.batch_execute(if commit { "commit" } else { "rollback" }).await?;
        self.told.extend(told.into_iter().filter(|_| commit));
        Ok(commit)
    }

    /// A transaction takes its time, so that others meet it.
    async fn pause(&mut self) {
        sleep(Duration::from_micros(self.rng.random_range(0..3000))).await;
    }

    async fn insert(&mut self, keys: &[i32], single: bool) -> Result<Vec<Told>, Error> {
        let from = match (single, self.rng.random_bool(0.5)) {
            (true, _) => "jobs.insert('k', $1::jsonb -> 0, $2)",
            (_, true) => "jobs.insert_batch('k', array(select jsonb_array_elements($1)), $2)",
            _ => {
                "jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'args', args, 'unique_opts', $2::jsonb)) from jsonb_array_elements($1) args))"
            }
        };
        let sql = format!("select id, unique_skipped_as_duplicate from {from}");
        let args = keys.iter().map(|key| json!({"n": key})).collect::<Value>();
        let rows = self.client.query(&sql, &[&args, &json!({"by_args": true})]).await?;
        assert_eq!(rows.len(), keys.len());
        let told = |(row, &key): (&Row, &i32)| Told { key, id: row.get(0), skipped: row.get(1) };
        Ok(rows.iter().zip(keys).map(told).collect())
    }
}

/// Inserts each of the keys from many sessions, which all wait for one at first.
async fn insert_all(database: &str, sessions: i64, keys: i32, levels: &'static [&'static str]) {
    let (cluster, db) = with(database, &[]).await;
    let mut seeds = rng();
    // No session gets past the first block of keys without key 0.
    let holder = cluster.connect(database).await;
    run(&holder, "begin").await;
    let first = "select id from jobs.insert('k', '{\"n\": 0}', '{\"by_args\": true}')";
    let mut told = vec![Told { key: 0, id: number(&holder, first).await, skipped: false }];
    let mut tasks = Vec::new();
    for _ in 0..sessions {
        let mut inserter = Inserter {
            client: cluster.connect(database).await,
            rng: StdRng::seed_from_u64(seeds.random()),
            levels,
            told: Vec::new(),
            retries: 0,
        };
        tasks.push(tokio::spawn(async move {
            inserter.run(keys).await;
            inserter
        }));
    }
    blocked(&db, sessions).await;
    run(&holder, "commit").await;
    let mut retries = 0;
    for task in tasks {
        let inserter = task.await.unwrap();
        told.extend(inserter.told);
        retries += inserter.retries;
    }
    println!("{} answers, {retries} retries", told.len());
    let rows = rows_of(&db, "select id, (args->>'n')::integer from jobs.jobs").await;
    let jobs: Vec<(i64, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let wrong = check_inserts(&told, &jobs);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(jobs.len(), keys as usize);
    assert_eq!(retries > 0, levels.len() > 1, "control: sessions got in each other's way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_a_key_under_read_committed() {
    insert_all("rc", 32, 500, &["read committed"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_a_key_at_any_level() {
    insert_all("mixed", 12, 100, &LEVELS).await;
}

/// Whoever does not wait for rivals gives up only where there is one: here is none, but much else
/// to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_waiting_gives_up_only_for_rivals() {
    let (cluster, db) = with("nowait", &[]).await;
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
    let jobs = count(&db, "jobs.jobs").await;
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
    for (round, level) in LEVELS.into_iter().enumerate() {
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
        let batch = format!("select coalesce(string_agg(ord::text, ' ' order by ord) filter (where id is null), '')
                 || ' of ' || count(*) filter (where not unique_skipped_as_duplicate)
               from jobs.insert_batch('k', array(select to_jsonb(n) from {numbers}), policy() || '{{\"wait\": false}}')");
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
        .faults("claim_blindly")
        .set("jobs.enabled", "off")
        .set("wal_level", "logical")
        .start();
    let db = cluster.database("race").await;
    let run = async |client: &Client, sql: &str| client.batch_execute(sql).await.expect(sql);
    // The server's own plugin: not every installation has one that writes text.
    run(&db, "create publication sent for table jobs.unique_claim").await;
    run(&db, "select pg_create_logical_replication_slot('sent', 'pgoutput')").await;
    let cases = LEVELS.map(|level| [(level, "commit", 1), (level, "rollback", 0)]);
    for (round, (level, end, of_winner)) in cases.into_iter().flatten().enumerate() {
        let key = |n: i64| 100 * round as i64 + n;
        let insert = |by_state: &str| {
            format!("select jobs.insert('k', '{}', '{{\"by_args\": true{by_state}}}')", key(20))
        };
        let winner = cluster.connect("race").await;
        run(&winner, &format!("begin isolation level {level}")).await;
        run(&winner, &insert("")).await;
        let batch = format!("select count(*) filter (where not unique_skipped_as_duplicate)
               from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series({}, {}) n), '{{\"by_args\": true}}')", key(1), key(40));
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
                    let cut = "select pg_terminate_backend($1, 60000)";
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
            self.work.finishes.push((id, token, answer));
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
            let unknown = jobs.iter().map(|&(id, token)| (id, token, Answer::Unknown));
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
            self.work.finishes.push((id, token, answer));
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
        number(&db, left).await == 0
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
    let refused = work.finishes.iter().filter(|finish| finish.2 == Answer::Refused).count();
    println!("{} fetched, {refused} stale tokens refused", work.fetches.len());
    let wrong = check_work(&work, &outcomes);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(outcomes.len() as i64, JOBS);
    assert_eq!(cut, 1, "one worker was cut off");
    assert!(refused > 0, "no worker lost a job");
}
