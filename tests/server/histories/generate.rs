//! What sessions say: random calls, biased towards those that get into each other's way.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::model::*;

/// What a history is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of the random numbers. Repeating a seed repeats the calls.
    pub seed: u64,
    /// A number that separates the queue and keys of this history from those of other histories.
    pub number: usize,
    pub mix: Mix,
    pub sessions: usize,
    pub calls: usize,
    pub keys: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All kinds of calls.
    All,
    /// Final jobs are removed during inserts under their keys.
    Reaping,
    /// Policies consider only one state, so that many jobs share a key.
    Layers,
}

impl Plan {
    pub fn new(seed: u64, number: usize, rng: &mut StdRng, gone: bool) -> Plan {
        let mix = match rng.random_range(0..10) {
            0..6 if gone => Mix::Reaping,
            0..4 => Mix::Layers,
            _ => Mix::All,
        };
        Plan {
            seed,
            number,
            mix,
            sessions: rng.random_range(if mix == Mix::Reaping { 3..=4 } else { 2..=4 }),
            calls: rng.random_range(4..=9),
            keys: *[1, 1, 2, 3].choose(rng).expect("some"),
        }
    }

    /// Whether a session does little but maintenance.
    pub fn is_reaper(&self, session: usize) -> bool {
        self.mix == Mix::Reaping && session == 0
    }

    pub fn queue(&self) -> String {
        format!("h{}", self.number)
    }
}

/// A job that is running, as its worker knows it.
pub type Lease = (i64, i64);

/// What sessions know of each other's jobs.
#[derive(Default)]
pub struct Pool {
    pub jobs: Vec<i64>,
    pub leases: Vec<Lease>,
}

#[derive(Clone, Debug)]
pub enum Say {
    Insert(usize, New),
    InsertMany(Vec<(usize, New)>),
    /// Inserts a job with one policy under each key.
    InsertBatch(Vec<usize>, New),
    Fetch(usize),
    Finish(Lease, Finish),
    CompleteMany(Vec<Lease>),
    /// Fails the jobs, with the resulting state as in [`Finish::Fail`].
    FailMany(Vec<Lease>, State),
    FinishMany(Vec<(Lease, Finish)>),
    Manage(i64, Manage),
    Look,
    Maintain,
}

/// Numbers of [`Say::random`].
const INSERT: i32 = 0;
const FINISH: i32 = 58;
const MAINTAIN: i32 = 95;

/// One of the latest jobs, which others are at work on.
fn recent(pool: &Pool, rng: &mut StdRng) -> i64 {
    let from = pool.jobs.len().saturating_sub(4);
    *pool.jobs[from..].choose(rng).expect("a job")
}

impl Say {
    pub fn random(plan: &Plan, session: usize, rng: &mut StdRng, pool: &mut Pool) -> Say {
        let n = rng.random_range(0..100);
        let kind = match plan.mix {
            Mix::Reaping if plan.is_reaper(session) && n < 75 => MAINTAIN,
            Mix::Reaping if n < 25 && !pool.jobs.is_empty() => {
                let end = [Manage::Cancel { force: true }, Manage::Delete];
                let what = *end.choose(rng).expect("some");
                return Say::Manage(recent(pool, rng), what);
            }
            Mix::Reaping if n < 60 => INSERT,
            _ if !pool.leases.is_empty() && rng.random_bool(0.3) => FINISH,
            _ => n,
        };
        match kind {
            0..26 => Say::Insert(rng.random_range(0..plan.keys), random_new(plan, rng)),
            26..38 => Say::InsertMany(random_elements(plan, rng)),
            38..44 => {
                let keys = random_elements(plan, rng).into_iter().map(|(key, _)| key);
                Say::InsertBatch(keys.collect(), random_new(plan, rng))
            }
            44..58 => Say::Fetch(rng.random_range(1..=3)),
            58..72 if !pool.leases.is_empty() => {
                let what = random_finish(rng);
                let count = rng.random_range(1..=3.min(pool.leases.len()));
                let many = rng.random_range(0..3);
                // Some are used again, as by a client that lost an answer, or has lost its mind.
                let mut take = || {
                    let n = rng.random_range(0..pool.leases.len());
                    match rng.random_bool(0.2) {
                        true => pool.leases[n],
                        false => pool.leases.swap_remove(n),
                    }
                };
                let mut leases: Vec<Lease> = (0..count).map(|_| take()).collect();
                match (&leases[..], many, what) {
                    ([lease], ..) => Say::Finish(*lease, what),
                    (_, 0, _) => {
                        leases.sort();
                        Say::CompleteMany(leases)
                    }
                    (_, 1, Finish::Fail(Available)) => Say::FailMany(leases, Available),
                    (_, 1, _) => Say::FailMany(leases, Retryable),
                    _ => {
                        let ends = leases.into_iter().map(|lease| (lease, random_finish(rng)));
                        Say::FinishMany(ends.collect())
                    }
                }
            }
            58..90 if !pool.jobs.is_empty() => {
                let job = recent(pool, rng);
                let what = match rng.random_range(0..10) {
                    0..3 => Manage::Cancel { force: false },
                    3..5 => Manage::Cancel { force: true },
                    5..8 => Manage::Retry,
                    _ => Manage::Delete,
                };
                Say::Manage(job, what)
            }
            90..95 => Say::Look,
            95..97 => Say::Maintain,
            _ => Say::Insert(rng.random_range(0..plan.keys), random_new(plan, rng)),
        }
    }

    /// The keys that it wants to insert under.
    pub fn keys(&self) -> Vec<usize> {
        match self {
            Say::Insert(key, _) => vec![*key],
            Say::InsertMany(elements) => elements.iter().map(|(key, _)| *key).collect(),
            Say::InsertBatch(keys, _) => keys.clone(),
            _ => Vec::new(),
        }
    }

    /// The leases that it says something of, which hardly anybody else then does.
    pub fn leases(&self) -> Vec<Lease> {
        match self {
            Say::Finish(lease, _) => vec![*lease],
            Say::CompleteMany(leases) | Say::FailMany(leases, _) => leases.clone(),
            Say::FinishMany(ends) => ends.iter().map(|(lease, _)| *lease).collect(),
            _ => Vec::new(),
        }
    }

    /// What it says of leases, each with how its attempt ends.
    pub fn ends(&self) -> Vec<(Lease, Finish)> {
        let what = match self {
            Say::Finish(_, what) => *what,
            Say::FailMany(_, state) => Finish::Fail(*state),
            Say::FinishMany(ends) => return ends.clone(),
            _ => Finish::Complete,
        };
        let leases = self.leases().into_iter();
        leases.map(|lease| (lease, what)).collect()
    }

    /// The jobs that it inserts, with their keys.
    pub fn elements(&self) -> Vec<(usize, New)> {
        match self {
            Say::Insert(key, new) => vec![(*key, new.clone())],
            Say::InsertMany(elements) => elements.clone(),
            Say::InsertBatch(keys, new) => keys.iter().map(|key| (*key, new.clone())).collect(),
            _ => Vec::new(),
        }
    }

    pub fn sql(&self, plan: &Plan) -> String {
        let columns = "id, state, unique_skipped_as_duplicate, replaced_id";
        let queue = plan.queue();
        match self {
            Say::Insert(key, new) => format!(
                "select {columns} from jobs.insert('k', '{}', '{}', '{queue}', {})",
                args(plan, *key),
                new.options(),
                new.when()
            ),
            Say::InsertMany(elements) => {
                let jobs = elements.iter().map(|(key, new)| {
                    let mut job = json!({"kind": "k", "queue": queue, "args": args(plan, *key), "unique_opts": new.options()});
                    match new.state {
                        Scheduled => job["scheduled_at"] = json!(LATER),
                        Pending => job["pending"] = json!(true),
                        _ => {}
                    }
                    job
                });
                let jobs = Value::Array(jobs.collect());
                format!("select {columns} from jobs.insert_many('{jobs}') order by ord")
            }
            Say::InsertBatch(keys, new) => {
                let args: Vec<String> =
                    keys.iter().map(|key| format!("'{}'", args(plan, *key))).collect();
                format!(
                    "select {columns} from jobs.insert_batch('k', array[{}]::jsonb[], '{}', '{queue}', {}) order by ord",
                    args.join(", "),
                    new.options(),
                    new.when()
                )
            }
            Say::Fetch(count) => format!("select id, token from jobs.fetch('{queue}', {count})"),
            Say::Finish((id, token), what) => match what {
                Finish::Complete => format!("select jobs.complete({id}, {token})"),
                Finish::Fail(Retryable) => {
                    format!("select state from jobs.fail({id}, {token}, 'e', '1 hour')")
                }
                Finish::Fail(Available) => {
                    format!("select state from jobs.fail({id}, {token}, 'e', '0')")
                }
                Finish::Fail(_) => {
                    format!("select state from jobs.fail({id}, {token}, 'e', retryable => false)")
                }
                Finish::Snooze => format!("select state from jobs.snooze({id}, {token}, '1 hour')"),
                Finish::Release => format!("select jobs.release({id}, {token})"),
            },
            Say::CompleteMany(leases) => {
                format!("select id, state, done from jobs.complete_many({})", arrays(leases))
            }
            Say::FailMany(leases, state) => {
                let errors = vec!["'e'"; leases.len()].join(", ");
                let delay = match state {
                    Available => "0",
                    _ => "1 hour",
                };
                format!(
                    "select id, state, done from jobs.fail_many({}, array[{errors}], retry_in => '{delay}')",
                    arrays(leases)
                )
            }
            Say::FinishMany(ends) => {
                let results = ends.iter().map(|((id, token), what)| {
                    let mut result = match what {
                        Finish::Complete => json!({"do": "complete"}),
                        Finish::Fail(Retryable) => {
                            json!({"do": "fail", "error": "e", "retry_in": "1 hour"})
                        }
                        Finish::Fail(Available) => {
                            json!({"do": "fail", "error": "e", "retry_in": 0})
                        }
                        Finish::Fail(_) => {
                            json!({"do": "fail", "error": "e", "retryable": false})
                        }
                        Finish::Snooze => json!({"do": "snooze", "delay": "1 hour"}),
                        Finish::Release => json!({"do": "release"}),
                    };
                    (result["id"], result["token"]) = (json!(id), json!(token));
                    result
                });
                let results = Value::Array(results.collect());
                format!(
                    "select id, state, done, reason from jobs.finish_many('{results}') order by ord"
                )
            }
            Say::Manage(id, what) => match what {
                Manage::Cancel { force } => format!("select jobs.cancel({id}, force => {force})"),
                Manage::Retry => format!("select jobs.retry({id})"),
                Manage::Delete => format!("select jobs.delete({id})"),
            },
            Say::Look => format!("select id, state from jobs.jobs where queue = '{queue}'"),
            Say::Maintain => {
                "select task, error from jobs.maintain() where error is not null".into()
            }
        }
    }
}

/// Ids and tokens, an array each.
fn arrays(leases: &[Lease]) -> String {
    let list = |column: fn(&Lease) -> i64| {
        let list: Vec<String> = leases.iter().map(|lease| column(lease).to_string()).collect();
        list.join(", ")
    };
    format!("array[{}], array[{}]", list(|lease| lease.0), list(|lease| lease.1))
}

const LATER: &str = "2900-01-01T00:00:00Z";

fn args(plan: &Plan, key: usize) -> Value {
    json!({"history": plan.number, "key": key})
}

impl New {
    fn options(&self) -> Value {
        let names: Vec<&str> = self.by_state.iter().map(|state| state.as_str()).collect();
        let mut options = json!({"by_args": true, "by_state": names, "on_conflict": match &self.on_conflict {
            OnConflict::Skip => json!("skip"),
            OnConflict::Reject => json!("reject"),
            OnConflict::Replace => json!("replace"),
            OnConflict::ReplaceExceptSchedule => json!("replace_except_schedule"),
            OnConflict::Update { states, schedule } => {
                let fields = if *schedule { json!(["scheduled_at", "tags"]) } else { json!(["max_attempts", "priority"]) };
                let states = states.iter().map(|state| (state.to_string(), fields.clone()));
                json!({"update": Value::Object(states.collect())})
            }
        }});
        if !self.wait {
            options["wait"] = json!(false);
        }
        if let Some(window) = self.window {
            options["window"] = json!("1 day");
            options["window_from"] = json!(window);
        }
        if let Some(until) = self.hold {
            options["hold_for"] = json!("1 day");
            options["hold_until"] = json!(format!("{until:?}").to_lowercase());
        }
        options
    }

    fn when(&self) -> String {
        match self.state {
            Scheduled => format!("scheduled_at => '{LATER}', priority => 2"),
            Pending => "pending => true".into(),
            _ => "priority => 1".into(),
        }
    }
}

fn random_finish(rng: &mut StdRng) -> Finish {
    *[
        Finish::Complete,
        Finish::Complete,
        Finish::Fail(Retryable),
        Finish::Fail(Available),
        Finish::Fail(Discarded),
        Finish::Snooze,
        Finish::Release,
    ]
    .choose(rng)
    .expect("some")
}

fn random_elements(plan: &Plan, rng: &mut StdRng) -> Vec<(usize, New)> {
    let count = rng.random_range(1..=4);
    let mut elements: Vec<(usize, New)> =
        (0..count).map(|_| (rng.random_range(0..plan.keys), random_new(plan, rng))).collect();
    if rng.random_bool(0.5) {
        elements.sort_by_key(|(key, _)| *key);
    }
    elements
}

fn random_new(plan: &Plan, rng: &mut StdRng) -> New {
    let hold =
        rng.random_bool(0.2).then(|| *[Until::Success, Until::Start].choose(rng).expect("some"));
    let by_state = match plan.mix {
        Mix::Layers => vec![*[Available, Scheduled, Pending, Running].choose(rng).expect("some")],
        _ => random_states(rng),
    };
    let on_conflict = match rng.random_range(0..20) {
        0..9 => OnConflict::Skip,
        9..12 => OnConflict::Reject,
        // What replaces leaves few jobs behind.
        12..17 if plan.mix == Mix::Layers => OnConflict::Skip,
        12..=14 => OnConflict::Replace,
        15..17 => OnConflict::ReplaceExceptSchedule,
        _ => OnConflict::Update { states: random_states(rng), schedule: rng.random_bool(0.5) },
    };
    New {
        by_state: if hold.is_some() && rng.random_bool(0.3) { Vec::new() } else { by_state },
        on_conflict,
        wait: rng.random_bool(0.88),
        window: (rng.random_bool(0.1))
            .then(|| *["created_at", "scheduled_at"].choose(rng).expect("some")),
        hold,
        state: *[Available, Available, Available, Scheduled, Pending].choose(rng).expect("some"),
    }
}

fn random_states(rng: &mut StdRng) -> Vec<State> {
    match rng.random_range(0..8) {
        0..3 => vec![Available, Scheduled, Pending, Running, Retryable, Completed],
        3 => State::ALL.to_vec(),
        4 => vec![Available, Scheduled, Pending, Running, Retryable],
        5 => vec![Available, Scheduled],
        6 => vec![Running, Completed],
        _ => {
            let some: Vec<State> =
                State::ALL.into_iter().filter(|_| rng.random_bool(0.4)).collect();
            if some.is_empty() { vec![Available] } else { some }
        }
    }
}
