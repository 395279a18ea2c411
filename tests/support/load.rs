//! Producers and workers that go on whatever happens to the server, and write down what they were
//! told.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::{Client, Cluster, poll_until, run, scalar, seconds};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::Severity;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::figures::figure;
use crate::journal::{Fate, Journal, Pruning, differences};

/// The database that all load goes to.
pub const DATABASE: &str = "load";

const LEASE: &str = "2 seconds";
/// How long everything that is left may take once the producers have stopped.
pub const DRAINED: Duration = Duration::from_secs(120);

/// What producers, workers and the case share.
struct Shared {
    /// Where clients connect to: the first of them that takes writes.
    servers: Mutex<Vec<Config>>,
    produce: AtomicBool,
    work: AtomicBool,
    next: AtomicI64,
    journal: Mutex<Journal>,
    /// When the latest insertion and the latest completion that succeeded were begun.
    latest: Mutex<[Option<Instant>; 2]>,
}

/// How long connecting may take, and a call: a server that is stopped or cut off answers nothing.
const CONNECTING: Duration = Duration::from_secs(2);
const CALL: Duration = Duration::from_secs(10);

/// The cell has moved: nothing happened, and clients connect again, perhaps to another server.
const ELSEWHERE: &str = "JB001";

const INSERTION: usize = 0;
const COMPLETION: usize = 1;

impl Shared {
    fn journal<T>(&self, what: impl FnOnce(&mut Journal) -> T) -> T {
        what(&mut self.journal.lock().unwrap())
    }

    fn succeeded(&self, which: usize, begun: Instant) {
        let latest = &mut self.latest.lock().unwrap()[which];
        *latest = (*latest).max(Some(begun));
    }
}

/// Load on a cluster, until [`Load::end`].
pub struct Load {
    shared: Arc<Shared>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Makes the database with the tables of the clients' own and begins.
    pub async fn begin(
        cluster: &Cluster,
        rng: &mut StdRng,
        producers: usize,
        workers: usize,
    ) -> Load {
        let db = cluster.database(DATABASE).await;
        Self::begin_in(&db, cluster, rng, producers, workers).await
    }

    /// As [`Load::begin`], in a database that has the extension and may be a cell.
    pub async fn begin_in(
        db: &Client,
        cluster: &Cluster,
        rng: &mut StdRng,
        producers: usize,
        workers: usize,
    ) -> Load {
        Self::begin_at(db, vec![of_cluster(cluster)], rng, producers, workers).await
    }

    /// As [`Load::begin_in`], on several servers, of which at most one takes writes.
    pub async fn begin_at(
        db: &Client,
        servers: Vec<Config>,
        rng: &mut StdRng,
        producers: usize,
        workers: usize,
    ) -> Load {
        // Without a key: what is done twice is there twice.
        run(db, "create table public.done (job_id bigint, attempt int); create table public.own (n bigint)").await;
        let shared = Arc::new(Shared {
            servers: Mutex::new(servers),
            produce: AtomicBool::new(true),
            work: AtomicBool::new(true),
            next: AtomicI64::new(1),
            journal: Mutex::default(),
            latest: Mutex::default(),
        });
        let producers = (0..producers)
            .map(|_| tokio::spawn(produce(shared.clone(), StdRng::from_rng(rng))))
            .collect();
        let workers = (0..workers)
            .map(|_| tokio::spawn(work(shared.clone(), StdRng::from_rng(rng))))
            .collect();
        Load { shared, producers, workers }
    }

    /// Lets the clients connect to another server from now on.
    pub fn move_to(&self, cluster: &Cluster) {
        *self.shared.servers.lock().unwrap() = vec![of_cluster(cluster)];
    }

    /// Waits until an insertion and a completion have succeeded that were begun after `moment`.
    pub async fn resumed_since(&self, moment: Instant) {
        poll_until("clients insert and complete again", Duration::from_secs(60), async || {
            let latest = *self.shared.latest.lock().unwrap();
            latest.iter().all(|latest| latest.is_some_and(|begun| begun > moment))
        })
        .await;
    }

    /// Stops the producers, waits until the workers have nothing left, stops them, and compares.
    pub async fn end(self, db: &Client, pruning: Pruning) -> Ended {
        self.shared.produce.store(false, Ordering::Relaxed);
        over(self.producers).await; // what one of them has yet to commit is work as well
        let left = "select count(*) from jobs.jobs where state not in ('completed', 'cancelled', 'discarded')";
        poll_until("everything is done", DRAINED, async || scalar::<i64>(db, left).await == 0)
            .await;
        self.shared.work.store(false, Ordering::Relaxed);
        over(self.workers).await;
        let journal = std::mem::take(&mut *self.shared.journal.lock().unwrap());
        let differences = differences(db, &journal, pruning).await;
        Ended { journal, differences }
    }
}

fn of_cluster(cluster: &Cluster) -> Config {
    let mut server = cluster.config();
    server.dbname(DATABASE);
    server
}

async fn over(clients: Vec<JoinHandle<()>>) {
    for client in clients {
        client.await.expect("a client of the load");
    }
}

/// What came out of a load.
pub struct Ended {
    /// What the clients were told.
    pub journal: Journal,
    /// What the database says differently.
    pub differences: Vec<String>,
}

impl Ended {
    /// Panics where the database and the clients disagree; prints the figures.
    pub async fn assert_right(&self, db: &Client, case: &str) {
        let shown = &self.differences[..self.differences.len().min(20)];
        assert!(shown.is_empty(), "{} differences, such as {shown:#?}", self.differences.len());
        let journal = &self.journal;
        assert!(journal.inserted() > 0 && !journal.completed.is_empty(), "it stood still");
        figure(case, "jobs_inserted,_acknowledged", journal.inserted());
        figure(case, "skipped_as_duplicates", journal.fates(|fate| *fate == Fate::Skipped));
        figure(case, "refused_or_rolled_back", journal.fates(|fate| *fate == Fate::Refused));
        let unknown = journal.fates(|fate| *fate == Fate::Unknown);
        let sql = "select coalesce(array_agg((args->>'n')::bigint), '{}') from jobs.jobs where args ? 'n'";
        let there: Vec<i64> = scalar(db, sql).await;
        let arrived = there.iter().filter(|n| journal.wanted.get(n) == Some(&Fate::Unknown));
        figure(
            case,
            "insertions_whose_answer_was_lost",
            format!("{unknown}, of which {} are there", arrived.count()),
        );
        figure(case, "completions,_acknowledged", journal.completed.len());
        for (what, count) in &journal.counts {
            figure(case, what, count);
        }
    }
}

// --- both ----------------------------------------------------------------------------------------

/// A connection that is made anew whenever it is gone.
struct Session {
    shared: Arc<Shared>,
    client: Option<Client>,
}

/// Why a call has no answer.
enum Failure {
    /// The server refused it: nothing happened.
    Refused(String),
    /// The session is gone.
    Lost,
}

impl Session {
    fn new(shared: &Arc<Shared>) -> Session {
        Session { shared: shared.clone(), client: None }
    }

    /// Connects if need be; false: it did not work this time.
    async fn is_open(&mut self) -> bool {
        if self.client.as_ref().is_some_and(|client| !client.is_closed()) {
            return true;
        }
        let servers = self.shared.servers.lock().unwrap().clone();
        for mut server in servers {
            server.application_name("load").target_session_attrs(TargetSessionAttrs::ReadWrite);
            // libpq has one timeout for all that it takes to connect to a host.
            let connecting = tokio::time::timeout(CONNECTING, server.connect(NoTls));
            if let Ok(Ok((client, connection))) = connecting.await {
                tokio::spawn(async move {
                    let _ = connection.await; // how it ended is what the client's calls return
                });
                self.client = Some(client);
                return true;
            }
        }
        seconds(0.02).await;
        false
    }

    /// One round trip; Ok means that the server has said that it is done, with the commit if it is
    /// one.
    async fn call(&mut self, sql: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
        let client = self.client.as_ref().expect("an open session");
        let answer = tokio::time::timeout(CALL, client.simple_query(sql)).await;
        if let Ok(Ok(messages)) = answer {
            let rows = messages.into_iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            return Ok(rows.collect());
        }
        let error = answer.ok().and_then(Result::err);
        let refused = error
            .as_ref()
            .and_then(|error| error.as_db_error())
            .filter(|error| error.parsed_severity() == Some(Severity::Error));
        if let Some(refused) = refused {
            let code = refused.code().code();
            if code == ELSEWHERE {
                self.client = None;
            } else if code.starts_with("XX") {
                self.shared.journal(|journal| journal.wrong.push(format!("{sql}: {refused:?}")));
            }
            return Err(Failure::Refused(code.into()));
        }
        self.client = None;
        self.shared.journal(|journal| journal.count("sessions_lost"));
        Err(Failure::Lost)
    }

    /// Ends a transaction that an error has stopped.
    async fn roll_back(&mut self) {
        if self.client.is_some() {
            let _ = self.call("rollback").await;
        }
    }
}

fn number(row: &SimpleQueryRow, column: usize) -> Option<i64> {
    row.get(column).map(|text| text.parse().expect("a number"))
}

// --- producers -----------------------------------------------------------------------------------

/// How a producer inserts.
#[derive(Clone, Copy)]
enum Within {
    Statement,
    /// With a row of its own, in one transaction.
    Transaction,
    RolledBack,
}

/// What is common to all jobs: they come back soon, and are never given up.
const OPTIONS: &str = r#"max_attempts => 100000, retry => '{"strategy": "constant", "initial": 0.05, "jitter": false}'"#;

const LIVE: &str = r#""by_state": ["available", "scheduled", "pending", "running", "retryable"]"#;

/// An insertion: its SQL, and how many jobs it wants.
fn insertion(rng: &mut StdRng, n: i64) -> (String, i64, Within) {
    let columns = "id, unique_skipped_as_duplicate, replaced_id";
    let single = |args: String, unique: String, more: &str| {
        format!("select {columns} from jobs.insert('load', '{args}', {unique}, {OPTIONS}{more})")
    };
    let plain = |more: &str| single(format!(r#"{{"n": {n}}}"#), "'{}'".into(), more);
    // Once each: a key of which some ten producers' attempts fall on each, new ones all the time.
    let mut once = |policy: &str| {
        let key = format!("{policy}{}", n / 20 + rng.random_range(0..5));
        let unique = match policy {
            "update" => r#"{"update": {"*": ["priority"]}}"#.into(),
            _ => format!("\"{policy}\""),
        };
        single(
            format!(r#"{{"n": {n}, "once": "{key}"}}"#),
            format!(r#"'{{"key": "{key}", "by_queue": true, "on_conflict": {unique}}}'"#),
            "",
        )
    };
    match n % 16 {
        0 => (once("skip"), 1, Within::Statement),
        1 => (once("reject"), 1, Within::Statement),
        2 => (once("replace"), 1, Within::Statement),
        3 => (once("update"), 1, Within::Statement),
        // One at a time, under a few keys.
        4 | 5 => {
            let key = rng.random_range(0..8);
            let on_conflict = ["skip", "replace"].choose(rng).unwrap();
            let sql = single(
                format!(r#"{{"n": {n}, "alone": "{key}"}}"#),
                format!(
                    r#"'{{"key": "alone {key}", "by_queue": true, {LIVE}, "on_conflict": "{on_conflict}"}}'"#
                ),
                "",
            );
            (sql, 1, Within::Statement)
        }
        6 | 7 => {
            let more =
                format!(", scheduled_at => clock_timestamp() + '{} ms'", rng.random_range(0..500));
            (plain(&more), 1, Within::Statement)
        }
        8 => (plain(""), 1, Within::RolledBack),
        9 | 10 => (plain(""), 1, Within::Transaction),
        11 => {
            let count = rng.random_range(1..20);
            let sql = format!(
                "select {columns} from jobs.insert_batch('load', array(select jsonb_build_object('n', n) from generate_series({n}, {}) n), {OPTIONS}) order by ord",
                n + count - 1
            );
            (sql, count, *[Within::Statement, Within::Transaction].choose(rng).unwrap())
        }
        12 => {
            let count = rng.random_range(2..8);
            let element = |n: i64| {
                let once = format!("many{}", n / 2);
                format!(
                    r#"{{"kind": "load", "args": {{"n": {n}, "once": "{once}"}}, "unique_opts": {{"key": "{once}", "by_queue": true}}, "max_attempts": 100000, "retry": {{"strategy": "constant", "initial": 0.05}}}}"#
                )
            };
            let elements: Vec<String> = (n..n + count).map(element).collect();
            let sql = format!(
                "select {columns} from jobs.insert_many('[{}]') order by ord",
                elements.join(", ")
            );
            (sql, count, Within::Statement)
        }
        _ => (plain(""), 1, Within::Statement),
    }
}

async fn produce(shared: Arc<Shared>, mut rng: StdRng) {
    let mut session = Session::new(&shared);
    while shared.produce.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(2..12))).await;
        if !session.is_open().await {
            continue;
        }
        // Room for the largest batch; numbers that are left out were never wanted.
        let first =
            shared.next.fetch_add(20 + i64::from(rng.random_range(0..16)), Ordering::Relaxed);
        let (sql, count, within) = insertion(&mut rng, first);
        let begun = Instant::now();
        let answer = insert(&mut session, &mut rng, first, &sql, within).await;
        if answer.is_ok() && !matches!(within, Within::RolledBack) {
            shared.succeeded(INSERTION, begun);
        }
        shared.journal(|journal| {
            if !matches!(within, Within::Statement) {
                journal.with_own.insert(first);
            }
            match answer {
                Ok(rows) => {
                    assert_eq!(rows.len() as i64, count, "{sql}");
                    for (n, row) in (first..).zip(&rows) {
                        let fate = match (within, row.get(1)) {
                            (Within::RolledBack, _) => Fate::Refused,
                            (_, Some("t")) => Fate::Skipped,
                            _ => Fate::Inserted(number(row, 0).expect("an id")),
                        };
                        journal.wanted.insert(n, fate);
                        journal.replaced.extend(number(row, 2).filter(|_| fate != Fate::Refused));
                    }
                }
                Err(fate) => journal.wanted.extend((first..first + count).map(|n| (n, fate))),
            }
        });
    }
}

/// The rows of an insertion that is done (or rolled back), or what is known of one that is not.
async fn insert(
    session: &mut Session,
    rng: &mut StdRng,
    n: i64,
    sql: &str,
    within: Within,
) -> Result<Vec<SimpleQueryRow>, Fate> {
    let known = |failure| match failure {
        Failure::Refused(_) => Fate::Refused,
        Failure::Lost => Fate::Unknown,
    };
    if matches!(within, Within::Statement) {
        return session.call(sql).await.map_err(known);
    }
    let begun = session.call(&format!("begin; insert into own values ({n})")).await;
    let rows = match begun {
        Ok(_) => session.call(sql).await,
        Err(failure) => Err(failure),
    };
    let Ok(rows) = rows else {
        session.roll_back().await;
        return Err(Fate::Refused); // COMMIT was never sent
    };
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..10))).await;
    match within {
        Within::RolledBack => {
            session.roll_back().await;
            Ok(rows)
        }
        _ => session.call("commit").await.map(|_| rows).map_err(known),
    }
}

// --- workers -------------------------------------------------------------------------------------

/// An attempt that this worker has.
#[derive(Clone, Copy)]
struct Held {
    id: i64,
    token: i64,
    attempt: i64,
    /// The session that fetched it is gone.
    moved: bool,
}

async fn work(shared: Arc<Shared>, mut rng: StdRng) {
    let mut session = Session::new(&shared);
    let mut held: Vec<Held> = Vec::new();
    while shared.work.load(Ordering::Relaxed) {
        if session.client.is_none() {
            // What was fetched before goes on with its token.
            held.iter_mut().for_each(|held| held.moved = true);
        }
        if !session.is_open().await {
            continue;
        }
        if held.is_empty() {
            // Some sleep for longer than their lease lasts, and finish then all the same.
            let late = rng.random_range(0..50) == 0;
            let lease = if late { "100 ms" } else { LEASE };
            let most = if late { 1 } else { rng.random_range(1..10) };
            let sql = format!(
                "select id, token, attempt from jobs.fetch(max_jobs => {most}, lease => '{lease}')"
            );
            if let Ok(rows) = session.call(&sql).await {
                held.extend(rows.iter().map(|row| Held {
                    id: number(row, 0).expect("an id"),
                    token: number(row, 1).expect("a token"),
                    attempt: number(row, 2).expect("an attempt"),
                    moved: false,
                }));
            }
            let pause = match held.is_empty() {
                true => 10,
                false if late => 400,
                false => 2,
            };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        } else if held.len() > 2 && rng.random_range(0..5) == 0 {
            if !complete_many(&mut session, &held).await {
                held.clear();
            }
        } else {
            let one = held.pop().expect("one");
            if finish(&mut session, &mut rng, one).await {
                held.push(one);
            }
        }
    }
}

/// Returns true if the cell has moved, with the attempt.
async fn finish(session: &mut Session, rng: &mut StdRng, held: Held) -> bool {
    let Held { id, token, .. } = held;
    let (what, sql) = match rng.random_range(0..20) {
        0 | 1 => {
            let retry_in = rng.random_range(0..100);
            (
                "failed",
                format!(
                    "select jobs.fail({id}, {token}, 'it happens', retry_in => '{retry_in} ms')"
                ),
            )
        }
        2 => ("snoozed", format!("select jobs.snooze({id}, {token}, '50 ms')")),
        3 => ("released", format!("select jobs.release({id}, {token})")),
        other => {
            if other < 7 {
                let answer =
                    session.call(&format!("select jobs.heartbeat({id}, {token}, '{LEASE}')")).await;
                if answer.is_err() {
                    return note(session, answer, "heartbeats", held);
                }
            }
            return complete(session, rng, held).await;
        }
    };
    let answer = session.call(&sql).await;
    note(session, answer, what, held)
}

/// Completes a job together with a row of the worker's own.
async fn complete(session: &mut Session, rng: &mut StdRng, held: Held) -> bool {
    let Held { id, token, attempt, .. } = held;
    let begun = Instant::now();
    let both = format!(
        "begin; insert into done values ({id}, {attempt}); select jobs.complete({id}, {token})"
    );
    let mut answer = session.call(&both).await;
    if answer.is_ok() {
        if rng.random_range(0..3) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..20))).await;
        }
        answer = session.call("commit").await;
    }
    if answer.is_ok() {
        session.shared.journal(|journal| journal.complete(id));
        session.shared.succeeded(COMPLETION, begun);
    } else {
        session.roll_back().await;
    }
    note(session, answer, "completed_one_by_one", held)
}

async fn complete_many(session: &mut Session, all: &[Held]) -> bool {
    let list = |of: fn(&Held) -> i64| {
        let texts: Vec<String> = all.iter().map(|held| of(held).to_string()).collect();
        format!("'{{{}}}'", texts.join(","))
    };
    let sql = format!(
        "with c as (select id from jobs.complete_many({}, {}) where done), d as (insert into done select id, 0 from c) select id from c",
        list(|held| held.id),
        list(|held| held.token)
    );
    let begun = Instant::now();
    let answer = session.call(&sql).await;
    if let Ok(rows) = &answer {
        session.shared.journal(|journal| {
            for row in rows {
                journal.complete(number(row, 0).expect("an id"));
            }
        });
        if !rows.is_empty() {
            session.shared.succeeded(COMPLETION, begun);
        }
    }
    note(session, answer, "completed_together", all[0])
}

/// Counts the outcome of a call about an attempt, and returns true if the cell has moved. What else
/// it is refused for is a defect.
fn note<T>(session: &Session, answer: Result<T, Failure>, what: &'static str, held: Held) -> bool {
    let is_elsewhere = matches!(&answer, Err(Failure::Refused(code)) if code == ELSEWHERE);
    session.shared.journal(|journal| match answer {
        _ if is_elsewhere => journal.count("calls_that_the_retired_cell_refused"),
        Ok(_) if held.moved => journal.count("tokens_honoured_in_a_new_session"),
        Ok(_) => journal.count(what),
        Err(Failure::Refused(code)) if code == "55000" && held.moved => {
            journal.count("tokens_refused_in_a_new_session")
        }
        Err(Failure::Refused(code)) if code == "55000" => journal.count("leases_that_were_lost"),
        // The disk is full; a lock of a rival that is replaced.
        Err(Failure::Refused(code)) if ["53100", "40P01", "57014"].contains(&code.as_str()) => {
            journal.count("calls_refused_for_now")
        }
        Err(Failure::Refused(code)) => {
            journal.wrong.push(format!("{what} job {}: {code}", held.id))
        }
        Err(Failure::Lost) => journal.count("answers_lost_to_workers"),
    });
    is_elsewhere
}
