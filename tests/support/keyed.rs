//! Histories of jobs under limits and orders by key. Sessions insert, fetch, end and change jobs in
//! every way, another one changes limits and orders meanwhile, and the test does more harm. What
//! the sessions were told must fit what was in force (`keyed/broken.rs`). In the end one session
//! works off what is left, without a worker in the background, so that what stalls is seen.

#[path = "keyed/broken.rs"]
mod broken;
#[path = "keyed/changes.rs"]
mod changes;
#[path = "keyed/rules.rs"]
mod rules;
#[path = "keyed/sessions.rs"]
mod sessions;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::RwLock;
use tokio::task::JoinSet;

pub use rules::{By, Limit, Order, QUEUES};
use rules::{Key, Rules, Who};

use crate::{Builder, Client, Cluster, count, is, number, rng, run, seconds, text, texts};

const DATABASE: &str = "keyed";

/// What a history consists of.
#[derive(Clone)]
pub struct Plan {
    /// What is run first.
    pub setup: String,
    /// The limits at the beginning.
    pub limits: Vec<Limit>,
    /// The order of the queue `a` at the beginning.
    pub order: Option<Order>,
    /// Whether limits, the order and pauses change meanwhile.
    pub changes: bool,
    /// How many sessions fetch jobs.
    pub fetchers: usize,
    /// How many sessions insert jobs.
    pub inserters: usize,
    /// Sessions go on until so many attempts were started.
    pub starts: usize,
    /// They stop after that in any case.
    pub at_most: Duration,
}

impl Plan {
    /// 40 sessions under these rules, which change.
    pub fn of(limits: impl Into<Vec<Limit>>, order: Option<Order>) -> Plan {
        Plan {
            setup: String::new(),
            limits: limits.into(),
            order,
            changes: true,
            fetchers: 32,
            inserters: 8,
            starts: 1500,
            at_most: Duration::from_secs(300),
        }
    }
}

/// When a call was sent, and when it had returned; `None`: it has not, as far as is known.
#[derive(Clone, Copy, Debug)]
struct Span {
    sent: Instant,
    done: Option<Instant>,
}

impl Span {
    fn begin() -> Span {
        Span { sent: Instant::now(), done: None }
    }

    /// The call has returned. An answer that was lost may stand for an effect at any time.
    fn ended(self, session: &Client) -> Span {
        Span { done: (!session.is_closed()).then(Instant::now), ..self }
    }

    /// Whether the call may have had its effect at that time or later.
    fn may_be_after(&self, at: Instant) -> bool {
        self.done.is_none_or(|done| done >= at)
    }
}

/// A job, as its inserter knows it.
struct Inserted {
    who: Who,
    queue: &'static str,
    /// When it became available; `None`: when it came due.
    available: Option<Span>,
    /// No sooner than then.
    not_before: Instant,
    /// Its place in its batch.
    ord: usize,
}

/// An attempt that a session has had.
struct Start {
    id: i64,
    who: Who,
    queue: String,
    kind: String,
    /// Its number under a key that makes jobs unique.
    unique: Option<i64>,
    expires: bool,
    fetch: Span,
    /// By the clock of the server, in microseconds.
    at: i64,
    /// When the first call was sent that ends the attempt.
    ended: Option<Instant>,
    /// When the first call was sent after which the job may be final.
    is_final: Option<Instant>,
    /// The call that discarded the job.
    discarded: Option<Span>,
}

/// What the sessions were told.
#[derive(Default)]
struct Journal {
    inserted: BTreeMap<i64, Inserted>,
    starts: Vec<Start>,
    /// Calls that change a job otherwise than by ending an attempt.
    touched: HashMap<i64, Vec<Span>>,
    /// Likewise, all jobs with this number under a unique key.
    touched_by_key: HashMap<i64, Vec<Span>>,
    unblocked: Vec<(Key, Span)>,
    broken: Vec<String>,
}

/// What all sessions have in common.
pub struct Scene {
    /// The server.
    pub cluster: Cluster,
    plan: Plan,
    /// The database. Whoever has it to write to has no call of another session beside him.
    database: RwLock<String>,
    rules: Mutex<Rules>,
    journal: Mutex<Journal>,
    is_over: AtomicBool,
}

/// What came of a history.
pub struct Told {
    /// The server, without a worker in the background.
    pub cluster: Cluster,
    /// What broke a limit, an order, an invariant, or stalled.
    pub broken: Vec<String>,
    /// How many attempts were started.
    pub starts: usize,
    /// The first members of args that their jobs had.
    pub tenants: BTreeSet<i64>,
}

impl Scene {
    fn journal<T>(&self, work: impl FnOnce(&mut Journal) -> T) -> T {
        work(&mut self.journal.lock().unwrap())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Another session in the database of the others.
    pub async fn connect(&self) -> Client {
        let database = self.database.read().await.clone();
        sessions::connected(&self.cluster, &database).await
    }

    /// Has all sessions go on in a copy of their database.
    pub async fn move_to_copy(&self, copy: impl AsyncFnOnce(&Cluster, &str, &str)) {
        let mut database = self.database.write().await;
        let new = format!("{database}2");
        copy(&self.cluster, &database, &new).await;
        *database = new;
    }

    /// Whether the sessions have done so much of their work, in percent.
    pub async fn is_at(&self, percent: usize) {
        let part = self.plan.starts * percent / 100;
        while !self.is_over() && self.journal(|journal| journal.starts.len()) < part {
            seconds(0.01).await;
        }
    }

    fn has_enough(&self) -> bool {
        self.journal(|journal| journal.starts.len()) >= self.plan.starts
    }
}

/// Runs a history, with harm that is done meanwhile.
pub async fn history(builder: Builder, plan: Plan, harm: impl AsyncFnOnce(&Scene)) -> Told {
    let builder = builder
        .set("jobs.interval", "100ms")
        .allow(u32::MAX, "57P0[123] .* FATAL: ")
        .allow(u32::MAX, "FATAL.*terminating connection");
    let cluster = builder.start();
    let db = cluster.database(DATABASE).await;
    run(&db, &plan.setup).await;
    let mut rules = Rules::default();
    for limit in &plan.limits {
        rules.set_limit(&db, limit.clone()).await;
    }
    if plan.order.is_some() {
        rules.set_order(&db, plan.order).await;
    }
    let scene = Arc::new(Scene {
        cluster,
        plan,
        database: RwLock::new(DATABASE.into()),
        rules: Mutex::new(rules),
        journal: Mutex::default(),
        is_over: AtomicBool::new(false),
    });
    let mut rng = rng();
    let mut tasks = JoinSet::new();
    for n in 0..scene.plan.inserters {
        tasks.spawn(sessions::insert(scene.clone(), sessions::seeded(&mut rng), n));
    }
    for n in 0..scene.plan.fetchers {
        tasks.spawn(sessions::work(scene.clone(), sessions::seeded(&mut rng), n));
    }
    for _ in 0..2 {
        tasks.spawn(sessions::manage(scene.clone(), sessions::seeded(&mut rng)));
    }
    if scene.plan.changes {
        tasks.spawn(changes::change(scene.clone(), sessions::seeded(&mut rng)));
    }
    let begun = Instant::now();
    let watch = async {
        while !scene.has_enough() && begun.elapsed() < scene.plan.at_most {
            seconds(0.02).await;
        }
        scene.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(watch, harm(&scene));
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a session");
    }
    let scene = Arc::into_inner(scene).expect("the sessions are over");
    work_off(&scene).await;
    let (rules, mut journal) =
        (scene.rules.into_inner().unwrap(), scene.journal.into_inner().unwrap());
    journal.broken.extend(broken::broken(&journal, &rules));
    Told {
        cluster: scene.cluster,
        broken: journal.broken,
        starts: journal.starts.len(),
        tenants: journal.starts.iter().map(|start| start.who.t).collect(),
    }
}

/// The least pause of a session that has nothing to do.
const MOMENT: f64 = 0.005;

/// How often maintenance may have to help: the changes before have left something behind, and so
/// have attempts that were rolled back.
const HELP: usize = 3;

/// One session works until nothing is left. Where it finds nothing although jobs are available, one
/// pass of maintenance must be enough.
async fn work_off(scene: &Scene) {
    let db = scene.connect().await;
    changes::resume_all(scene, &db).await;
    run(&db, "alter system set jobs.enabled = off").await;
    run(&db, "select pg_reload_conf()").await;
    let workers = "not exists (select from pg_stat_activity where backend_type = 'jobs worker')";
    crate::comes_true(&db, workers).await;
    // Only maintenance promotes what a rate has held, once its time has come.
    let rates = scene.plan.limits.iter().filter(|limit| limit.rate.is_some());
    let kinds: Vec<&str> = rates.filter_map(|limit| limit.kind).collect();
    let unrated = format!(
        "exists (select from jobs.jobs where state = 'available' and kind <> all ('{{{}}}'))",
        kinds.join(",")
    );
    let mut rng = rng();
    let mut helped = 0;
    // The time of a rate can come between a fetch and the look at what waits.
    let mut in_vain = 0;
    loop {
        if sessions::fetch_and_end(scene, &db, &mut rng, 1000, true).await > 0 {
            in_vain = 0;
            continue;
        }
        if is(&db, "not exists (select from jobs.jobs where finalized_at is null)").await {
            break;
        }
        let waits =
            "exists (select from jobs.jobs where state in ('running', 'scheduled', 'retryable'))
            or exists (select from jobs.limit_keys where next_start_at is not null and held > 0)";
        let has_to_wait = is(&db, waits).await;
        if has_to_wait {
            seconds(MOMENT).await;
        } else if in_vain > 1 {
            let stalled = "select e.id || ' stalls: ' || x.reason || ', ' || x.detail
                from (select min(id) as id from jobs.jobs where state = 'available') e, jobs.explain(e.id) x";
            let stalled = texts(&db, stalled).await;
            let rows = "select 'turn ' || to_jsonb(t)::text from jobs.turn t
                union all select 'ready ' || to_jsonb(r)::text from jobs.ready r
                union all select 'held ' || to_jsonb(s)::text from jobs.scheduled s
                union all select 'rule ' || to_jsonb(s)::text from jobs.limit_rule s
                union all select 'key ' || to_jsonb(s)::text from jobs.limit_key_rule s";
            for row in texts(&db, rows).await {
                eprintln!("{row}");
            }
            scene.journal(|journal| journal.broken.extend(stalled));
            return;
        }
        let could_start = is(&db, &unrated).await;
        run(&db, "select jobs.maintain()").await;
        in_vain = if has_to_wait { 0 } else { in_vain + 1 };
        helped += usize::from(!has_to_wait && could_start);
    }
    if helped > HELP {
        let said = format!("maintenance had to help {helped} times");
        scene.journal(|journal| journal.broken.push(said));
    }
    for table in ["permit", "turn", "running", "scheduled", "ready", "check()"] {
        let left = count(&db, &format!("jobs.{table}")).await;
        if left > 0 {
            scene
                .journal(|journal| journal.broken.push(format!("{left} of jobs.{table} are left")));
        }
    }
    let last = number(&db, "select coalesce(max(id), 0) from jobs.job").await;
    let known = text(&db, "select coalesce(string_agg(id::text, ','), '') from jobs.job").await;
    let known: HashSet<&str> = known.split(',').collect();
    scene.journal(|journal| {
        let is_lost = |id: &&i64| {
            !journal.touched.contains_key(id) && !known.contains(id.to_string().as_str())
        };
        let lost: Vec<_> = journal.inserted.keys().filter(is_lost).copied().collect();
        if !lost.is_empty() {
            journal.broken.push(format!("lost, up to {last}: {lost:?}"));
        }
    });
}
