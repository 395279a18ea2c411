//! A busy database in which all is well, with default settings: `jobs.health()` finds nothing, as
//! long as that lasts. The load has a rate that a small machine carries beside builds, so that a
//! finding means more than a slow moment: most of them begin with minutes. No session waits for a
//! key, since each key is wanted by one session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jobs_tests::{Client, Cluster, SOON, number, poll_until, rng, run, seconds, text, texts, with};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use jobs_tests::figures::{duration, figure, variable};
use jobs_tests::journal::assert_whole;
use jobs_tests::load::{DATABASE, DRAINED};

const ASKED_EVERY: Duration = Duration::from_secs(2);
/// Longer than the minute from which on a job can run long.
const RENDERING: Duration = Duration::from_secs(80);

/// What the database has answered to the clients.
#[derive(Default)]
struct Answers {
    inserted: HashSet<i64>,
    /// Final jobs and their states.
    ended: HashMap<i64, String>,
    counts: BTreeMap<&'static str, u64>,
}

impl Answers {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// An attempt, or a job that waited, has ended like this.
    fn ended(&mut self, id: i64, state: String, what: &'static str) {
        self.count(what);
        if ["completed", "cancelled", "discarded"].contains(&state.as_str()) {
            let before = self.ended.insert(id, state);
            assert_eq!(before, None, "job {id} ended twice");
        }
    }
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool, // for producers, and for what takes long
    is_drained: AtomicBool,
    answers: Mutex<Answers>,
}

impl Shared {
    fn answers<T>(&self, what: impl FnOnce(&mut Answers) -> T) -> T {
        what(&mut self.answers.lock().unwrap())
    }
}

/// The load, about 80 jobs a second.
struct Busy {
    shared: Arc<Shared>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Busy {
    async fn begin(cluster: &Cluster, rng: &mut StdRng) -> Busy {
        let connect = async || cluster.connect(DATABASE).await;
        let shared = Arc::<Shared>::default();
        run(&connect().await, "select jobs.schedule('tick', 'every 2 seconds', 'tick', queue => 'mail'); select jobs.schedule('minute', '* * * * *', 'tick', queue => 'mail')").await;
        let mut producers = vec![tokio::spawn(cancel(shared.clone(), connect().await))];
        for (period, statement) in
            [(40, one as fn(u64) -> String), (200, batch), (120_000, rendering)]
        {
            let every = Duration::from_millis(period);
            let db = connect().await;
            producers.push(tokio::spawn(produce(shared.clone(), db, every, statement)));
        }
        let mut workers = Vec::new();
        for (name, queues, most) in [
            ("mail1", "mail,default", 1),
            ("mail2", "mail,default", 1),
            ("bulk1", "bulk,default", 20),
            ("bulk2", "bulk,mail", 20),
            ("slow", "slow", 1),
        ] {
            let worker = Worker {
                shared: shared.clone(),
                db: connect().await,
                rng: StdRng::from_rng(rng),
                name,
                queues,
                most,
                beaten: None,
            };
            workers.push(tokio::spawn(worker.work()));
        }
        Busy { shared, producers, workers }
    }

    /// Panics where a client has ended, with what it said.
    fn assert_at_work(&self) {
        let has_ended = |client: &JoinHandle<()>| client.is_finished();
        assert!(!self.producers.iter().chain(&self.workers).any(has_ended), "a client has ended");
    }

    /// Ends the load at once.
    async fn abort(self) {
        for client in self.producers.into_iter().chain(self.workers) {
            client.abort();
            let _ = client.await; // says that it was aborted
        }
    }

    /// Ends the load, once there is nothing left but what is scheduled for another day.
    async fn end(self, db: &Client) -> Answers {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for producer in self.producers {
            producer.await.expect("a producer");
        }
        run(db, "select jobs.unschedule(name) from jobs.periodic").await;
        let left = "select count(*) from jobs.jobs where kind <> 'later' and state not in ('completed', 'cancelled', 'discarded')";
        poll_until("everything is done", DRAINED, async || number(db, left).await == 0).await;
        self.shared.is_drained.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.expect("a worker");
        }
        self.shared.answers(std::mem::take)
    }
}

// --- producers -----------------------------------------------------------------------------------

/// Inserts with the nth statement; a slow moment is not made up for.
async fn produce(shared: Arc<Shared>, db: Client, every: Duration, statement: fn(u64) -> String) {
    let mut next = Instant::now();
    let mut n = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        if Instant::now() < next {
            let left = next - Instant::now();
            tokio::time::sleep(left.min(Duration::from_millis(200))).await;
            continue;
        }
        next = Instant::now() + every;
        insert(&shared, &db, &statement(n)).await;
        n += 1;
    }
}

/// Inserts what a function returns, and the id of the last job.
async fn insert(shared: &Shared, db: &Client, function: &str) -> i64 {
    let sql = format!("select id, unique_skipped_as_duplicate, replaced_id from {function}");
    let rows = db.query(&sql, &[]).await.expect(&sql);
    shared.answers(|answers| {
        for row in &rows {
            if row.get(1) {
                answers.count("skipped_as_duplicates");
            } else {
                let id = row.get(0);
                assert!(answers.inserted.insert(id), "id {id} was given out twice");
            }
            if let Some(replaced) = row.get(2) {
                answers.ended(replaced, "cancelled".into(), "replaced");
            }
        }
    });
    rows.last().expect("a job").get(0)
}

fn one(n: u64) -> String {
    // Each of these keys is wanted five times, by this session.
    let key = n / 50;
    match n % 10 {
        0 => format!(r#"jobs.insert('sync', '{{"account": {key}}}', '{{"by_args": true}}')"#),
        1 => format!(
            r#"jobs.insert('index', '{{"page": {key}}}', '{{"by_args": true, "by_state": ["scheduled"], "on_conflict": "replace"}}', scheduled_at => now() + '10 s')"#
        ),
        2 => "jobs.insert('remind', queue => 'mail', scheduled_at => now() + '5 s')".into(),
        3 => "jobs.insert('later', scheduled_at => now() + '1 day')".into(),
        _ => format!(r#"jobs.insert('mail', '{{"to": {n}}}', queue => 'mail')"#),
    }
}

fn batch(_: u64) -> String {
    r#"jobs.insert_batch('import', array_fill('{"rows": 100}'::jsonb, array[10]), queue => 'bulk')"#
        .into()
}

fn rendering(_: u64) -> String {
    "jobs.insert('render', queue => 'slow', timeout => '10 minutes')".into()
}

/// Inserts jobs that are cancelled before they are due.
async fn cancel(shared: Arc<Shared>, db: Client) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let function = "jobs.insert('remind', queue => 'mail', scheduled_at => now() + '10 s')";
        let id = insert(&shared, &db, function).await;
        seconds(1.0).await;
        let state = text(&db, &format!("select jobs.cancel({id})::text")).await;
        if state == "cancelled" {
            shared.answers(|answers| answers.ended(id, state, "cancelled"));
        }
    }
}

// --- workers -------------------------------------------------------------------------------------

struct Worker {
    shared: Arc<Shared>,
    db: Client,
    rng: StdRng,
    name: &'static str,
    /// In the order in which they are looked at.
    queues: &'static str,
    /// How many jobs it fetches at once.
    most: i32,
    /// When it last said that it is there.
    beaten: Option<Instant>,
}

impl Worker {
    async fn work(mut self) {
        let Worker { name, queues, most, .. } = self;
        let fetch = format!(
            "select id, token, attempt, kind from jobs.fetch_any('{{{queues}}}', {most}, '{name}')"
        );
        let wait = format!("call jobs.wait_any('{{{queues}}}', '1 s', '{name}')");
        while !self.shared.is_drained.load(Ordering::Relaxed) {
            self.beat().await;
            let jobs = self.db.query(&fetch, &[]).await.expect(&fetch);
            if jobs.is_empty() {
                run(&self.db, &wait).await;
                continue;
            }
            let mut results = Vec::new();
            for job in &jobs {
                let (id, token, attempt) = (job.get(0), job.get(1), job.get(2));
                let kind: &str = job.get(3);
                if kind == "render" {
                    self.render(id, token).await;
                }
                results.push((id, token, self.result(attempt, kind)));
            }
            if most == 1 {
                let (id, token, what) = results[0];
                self.finish(id, token, what).await;
            } else {
                self.finish_many(&results).await;
            }
        }
    }

    async fn beat(&mut self) {
        let is_due = |beaten: Instant| beaten.elapsed() > Duration::from_secs(10);
        if self.beaten.is_none_or(is_due) {
            let Worker { name, queues, most, .. } = self;
            let beat = format!("select jobs.worker_beat('{name}', '{{{queues}}}', {most})");
            assert_eq!(text(&self.db, &beat).await, "run");
            self.beaten = Some(Instant::now());
        }
    }

    /// Five in a thousand fail, and succeed when tried again.
    fn result(&mut self, attempt: i32, kind: &str) -> &'static str {
        if kind == "broken" || attempt == 1 && self.rng.random_bool(0.005) {
            "fail"
        } else if self.rng.random_bool(0.01) {
            "snooze"
        } else {
            "complete"
        }
    }

    /// Goes on for long, with heartbeats.
    async fn render(&mut self, id: i64, token: i64) {
        let begun = Instant::now();
        while begun.elapsed() < RENDERING && !self.shared.is_over.load(Ordering::Relaxed) {
            self.beat().await;
            run(&self.db, &format!("select jobs.heartbeat({id}, {token})")).await;
            seconds(1.0).await;
        }
    }

    async fn finish(&mut self, id: i64, token: i64, what: &'static str) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..10))).await;
        let (count, sql) = match what {
            "fail" => ("failed", format!("state from jobs.fail({id}, {token}, 'it happens')")),
            "snooze" => ("snoozed", format!("state from jobs.snooze({id}, {token}, '2 s')")),
            _ => (
                "completed_one_by_one",
                format!("state from jobs.complete({id}, {token}, '{{\"sent\": true}}') as state"),
            ),
        };
        let sql = format!("select {}", sql.replacen("state", "state::text", 1));
        let state = text(&self.db, &sql).await;
        self.shared.answers(|answers| answers.ended(id, state, count));
    }

    async fn finish_many(&mut self, results: &[(i64, i64, &'static str)]) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..50))).await;
        let mut left = results.to_vec();
        while !left.is_empty() {
            left = self.finish_unlocked(&left).await;
        }
    }

    /// Finishes those whose jobs no session has locked for long; the others.
    async fn finish_unlocked(
        &mut self,
        results: &[(i64, i64, &'static str)],
    ) -> Vec<(i64, i64, &'static str)> {
        let list: Vec<String> = results
            .iter()
            .map(|(id, token, what)| {
                let more = match *what {
                    "fail" => r#", "error": "it happens""#,
                    "snooze" => r#", "delay": "2 s""#,
                    _ => "",
                };
                format!(r#"{{"id": {id}, "token": {token}, "do": "{what}"{more}}}"#)
            })
            .collect();
        let sql = format!(
            "select ord, id, state::text, reason from jobs.finish_many('[{}]')",
            list.join(",")
        );
        let rows = self.db.query(&sql, &[]).await.expect(&sql);
        let mut locked = Vec::new();
        self.shared.answers(|answers| {
            for row in rows {
                let (ord, id, state): (i32, i64, String) = (row.get(0), row.get(1), row.get(2));
                let result = results[ord as usize - 1];
                match row.get(3) {
                    Some("locked") => {
                        locked.push(result);
                        continue;
                    }
                    reason => assert_eq!(reason, None, "job {id}"),
                }
                let count = match result.2 {
                    "fail" => "failed",
                    "snooze" => "snoozed",
                    _ => "completed_together",
                };
                answers.ended(id, state, count);
            }
        });
        locked
    }
}

// --- what is asked -------------------------------------------------------------------------------

async fn findings(db: &Client) -> Vec<String> {
    let sql =
        "select format('%s: %s, %s (%s)', finding, severity, message, hint) from jobs.health()";
    texts(db, sql).await
}

/// Where the database says something else about a job than the clients were told, once all work is
/// done: what has not ended is scheduled for another day.
async fn differences(db: &Client, answers: &Answers) -> Vec<String> {
    let sql = "select id, state::text, kind from jobs.jobs";
    let rows = db.query(sql, &[]).await.unwrap();
    let mut unseen = answers.inserted.clone();
    let mut wrong = Vec::new();
    for row in rows {
        let (id, state, kind): (i64, String, String) = (row.get(0), row.get(1), row.get(2));
        if !unseen.remove(&id) && kind != "tick" {
            wrong.push(format!("job {id} is there, and nobody was told of it"));
        }
        let expected = answers.ended.get(&id).map_or("scheduled", String::as_str);
        if state != expected || state == "scheduled" && kind != "later" {
            wrong.push(format!("job {id} of kind {kind} is {state}, not {expected}"));
        }
    }
    wrong.extend(unseen.iter().map(|id| format!("job {id} is lost")));
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_needs_attention() {
    let case = "healthy";
    let time = variable("JOBS_RELIABILITY_HEALTHY_SECONDS", duration().as_secs().max(15));
    let (cluster, db) = with(DATABASE, &[]).await;
    let busy = Busy::begin(&cluster, &mut rng()).await;
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < Duration::from_secs(time) {
        let found = findings(&db).await;
        assert!(found.is_empty(), "after {:?}: {found:#?}", begun.elapsed());
        asked += 1;
        busy.assert_at_work();
        tokio::time::sleep(ASKED_EVERY).await;
    }
    let answers = busy.end(&db).await;
    assert_eq!(findings(&db).await, [""; 0]);
    assert_whole(&db).await;
    assert_eq!(differences(&db, &answers).await, [""; 0]);
    figure(case, "length", format!("{time} s"));
    figure(case, "times_that_jobs.health()_was_asked", asked + 1);
    figure(case, "findings", 0);
    figure(case, "jobs_inserted,_acknowledged", answers.inserted.len());
    let ticks = "select count(*) from jobs.jobs where kind = 'tick'";
    figure(case, "jobs_of_periodic_ones", number(&db, ticks).await);
    for (what, count) in &answers.counts {
        figure(case, what, count);
    }
    // One that is lost, and one that no session was told of, are found.
    let id = answers.inserted.iter().min().unwrap();
    run(&db, &format!("select jobs.delete({id}), jobs.insert('x')")).await;
    let found = differences(&db, &answers).await;
    assert!(found.iter().any(|one| one.ends_with("is lost")), "{found:?}");
    assert!(found.iter().any(|one| one.contains("nobody was told")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn control_one_thing_wrong_is_found() {
    let (cluster, db) = with(DATABASE, &[]).await;
    let busy = Busy::begin(&cluster, &mut rng()).await;
    for (finding, what) in [
        ("discarded", "jobs.insert('broken', queue => 'mail', max_attempts => 1)"),
        (
            "mostly_failing",
            "jobs.insert_batch('broken', array_fill('{}'::jsonb, array[12]), queue => 'mail')",
        ),
        ("queue_paused", "jobs.pause_queue('bulk')"),
        ("maintenance_paused", "jobs.pause_maintenance()"),
    ] {
        let is_found = async || {
            let found = findings(&db).await;
            found.iter().any(|one| one.starts_with(&format!("{finding}: ")))
        };
        assert!(!is_found().await, "{finding}, and nothing is wrong yet");
        run(&db, &format!("select {what}")).await;
        poll_until(finding, SOON, is_found).await;
        busy.assert_at_work();
    }
    busy.abort().await;
}
