//! Orders of queues by key.
//!
//! In a strict order a job has the **turn** of its key from its start until it is final: a row of
//! `turn`, which others of its key wait for. A fetch gives the turn to the first available job,
//! while it is the fetch's own turn at the gate (see [`permits`]), so the order is exact.
//! In a fair order the position of a job in its lane is a turn of its key
//! ([`jobs_core::order::turn`]), given as the job enters the lane. Of a key no more jobs than
//! [`Rule::most`](super::rules::Rule::most) enter it, so that a turn is never far ahead of the
//! present. The others are held ([`super::held`]).

use std::collections::{HashMap, HashSet};

use jobs_core::order;

use super::direct::permits::Waiting;
use super::direct::turns::{LookAtPlaces, LookAtTaken, Places, Taken};
use super::fetch::Picked;
use super::held::{self, Held, Judged, Known, POSITION};
use super::permits::{self, Covered, Gate};
use super::queue::Queue;
use super::rules::{self, Rule, WINDOW};
use super::spi::{Snapshot, Tuples, Value, big, bigs, column, plans, text};
use super::types::*;
use super::{config_cache, direct, effects};
use crate::error::Error;
use crate::fault::{self, Fault};
use crate::pg::transaction;
use crate::shmem::things;

/// A job's turn at a gate.
#[derive(Clone)]
pub struct Turn {
    pub gate: i64,
    pub job_id: i64,
    /// The job was discarded, and nobody has unblocked its key.
    pub is_blocked: bool,
    pub queue: String,
}

/// The positions of a key's next jobs in a lane.
pub struct Turns {
    gate: i64,
    weight: f64,
    /// The next one is here or later.
    from: i64,
}

impl Turns {
    pub fn of(gate: i64, weight: f64, queue: &Queue, priority: i16) -> Turns {
        let present = || PRESENT.value(&[queue.arg(), Some(priority.into())]);
        let present = direct::turns::present(queue, priority).unwrap_or_else(present);
        let last = direct::turns::last(gate).unwrap_or_else(|| LAST.value(&[big(gate)]));
        let from =
            present.into_iter().chain(last.map(|last| last + 1)).fold(order::FIRST_TURN, i64::max);
        Turns { gate, weight, from }
    }

    pub fn next(&mut self) -> i64 {
        let turn = order::turn(self.gate, self.weight, self.from);
        self.from = turn + 1;
        turn
    }
}

/// Whether a job has the turn at a gate, or may not have it yet, as far as anybody can know.
pub fn is_taken(gate: i64) -> bool {
    Taken::open().look().is_taken(gate, 0)
}

/// The turns that jobs have.
pub fn of(ids: &[i64]) -> Vec<Turn> {
    let by_statement = || {
        OF.run_as_of(Snapshot::Latest, &[bigs(ids)], |rows| {
            (0..rows.len()).filter_map(|row| turn(rows, row)).collect()
        })
    };
    direct::turns::of(ids).unwrap_or_else(by_statement)
}

fn turn(rows: &Tuples, row: usize) -> Option<Turn> {
    Some(Turn {
        gate: rows.get(row, "gate")?,
        job_id: rows.get(row, "job_id")?,
        is_blocked: rows.get(row, "is_blocked")?,
        queue: rows.get(row, "queue")?,
    })
}

/// What [`Starters`] look at.
pub struct Tables {
    taken: Taken,
    /// `None`: use statements.
    places: Option<Places>,
}

impl Tables {
    pub fn open() -> Tables {
        Tables { taken: Taken::open(), places: Places::open() }
    }
}

/// Who may start in a strict order, for a fetch whose turn it is at the gates.
pub struct Starters<'a> {
    queue: &'a Queue,
    taken: LookAtTaken<'a>,
    places: Option<LookAtPlaces<'a>>,
    /// By gate: who comes first of those that the fetch has taken out of their lanes.
    first: HashMap<i64, (i64, i64)>,
    own: Vec<Turn>,
    given: Vec<(&'a Gate, i64)>,
    ended: Vec<Turn>,
}

impl<'a> Starters<'a> {
    /// Of these jobs: their gates and places.
    pub fn of(
        queue: &'a Queue,
        tables: &'a Tables,
        jobs: impl Iterator<Item = (&'a Gate, &'a Picked)>,
    ) -> Starters<'a> {
        let mut first = HashMap::new();
        let mut ids = Vec::new();
        for (gate, one) in jobs {
            ids.push(one.job_id);
            if !one.has_turn_of_another(gate.id) {
                let place = (one.seq, one.job_id);
                let first = first.entry(gate.id).or_insert(place);
                *first = (*first).min(place);
            }
        }
        let (taken, places) = (tables.taken.look(), tables.places.as_ref().map(Places::look));
        let (given, ended) = Default::default();
        Starters { queue, taken, places, first, own: of(&ids), given, ended }
    }

    /// Whether it is a job's turn; then it has it from now on.
    pub fn take(&mut self, gate: &'a Gate, one: &Picked) -> bool {
        let (seq, id) = (one.seq, one.job_id);
        let (own, former): (Vec<_>, Vec<_>) = self
            .own
            .iter()
            .filter(|turn| turn.job_id == id)
            .cloned()
            .partition(|turn| turn.gate == gate.id);
        // Its key was changed.
        self.ended.extend(former);
        if !own.is_empty() {
            return true;
        }
        let is_given = self.given.iter().any(|(given, _)| given.id == gate.id);
        let (queue, places) = (self.queue, &mut self.places);
        let mut is_behind = || match places {
            Some(places) => places.is_behind(gate.id, queue, seq, id),
            None => IS_BEHIND.execute(&[big(gate.id), big(seq), big(id), queue.arg()]) > 0,
        };
        let may_start = !is_given
            && self.first.get(&gate.id) == Some(&(seq, id))
            && !self.taken.is_taken(gate.id, id)
            && !is_behind();
        if may_start {
            self.given.push((gate, id));
        }
        may_start
    }

    /// Writes the turns that were given; the others are ended afterwards.
    pub fn write(self) -> Vec<Turn> {
        let Starters { queue, given, ended, .. } = self;
        if !given.is_empty() {
            give(&given, queue);
        }
        ended
    }
}

fn give(turns: &[(&Gate, i64)], queue: &Queue) {
    direct::turns::give(turns, queue).unwrap_or_else(|| {
        GIVE.execute(&[
            column(INT8, turns, |(gate, _)| big(gate.id)),
            column(INT8, turns, |(_, id)| big(*id)),
            column(TEXT, turns, |(gate, _)| text(gate.key.as_deref().unwrap_or("{}"))),
            queue.arg(),
        ]);
    });
}

/// Takes turns from jobs, and hands them on.
pub fn end(turns: &[Turn]) {
    if turns.is_empty() {
        return;
    }
    direct::turns::end(turns).unwrap_or_else(|| {
        let ended = END.execute(&[
            column(INT8, turns, |turn| big(turn.gate)),
            column(INT8, turns, |turn| big(turn.job_id)),
        ]);
        if ended < turns.len() && !transaction::is_read_committed() {
            // An old snapshot hides some of them.
            Error::serialization_of_limits().raise();
        }
    });
    held::hand_over(&turns.iter().map(|turn| (turn.gate, 1)).collect());
}

/// Jobs are final, or are gone: their keys' turns pass on, except from those discarded ones that
/// block them.
pub(super) fn over(ids: impl Iterator<Item = i64>, are_discarded: bool) {
    let rules = config_cache::rules();
    if !rules.iter().any(Rule::is_strict) || fault::is_on(Fault::KeepTurns) {
        return;
    }
    let turns = of(&ids.collect::<Vec<_>>());
    let blocks = |turn: &Turn| {
        let rule = order_of(&rules, &Queue::named(&turn.queue));
        rule.and_then(|rule| rule.order.as_ref()).is_some_and(|order| order.blocks)
    };
    let (blocking, ended): (Vec<_>, Vec<_>) = turns
        .into_iter()
        .partition(|turn| are_discarded && blocks(turn) && !fault::is_on(Fault::NoBlocks));
    if !blocking.is_empty() {
        direct::turns::block(&blocking).unwrap_or_else(|| {
            BLOCK.execute(&[column(INT8, &blocking, |turn| big(turn.job_id))]);
        });
    }
    end(&ended);
}

/// Jobs wait again: turns end of those that were final and block their keys, of those that have
/// another key or queue by now, and of those that ran at the same time when the order was set.
pub(super) fn returned(ids: impl Iterator<Item = i64>) {
    let rules = config_cache::rules();
    if !rules.iter().any(Rule::is_strict) {
        return;
    }
    let turns = of(&ids.collect::<Vec<_>>());
    if turns.is_empty() {
        return;
    }
    let ids: Vec<i64> = turns.iter().map(|turn| turn.job_id).collect();
    let covered = permits::of_jobs(&rules, &ids, None);
    let has_gate = |turn: &Turn| {
        let job = covered.iter().find(|job| job.id == turn.job_id);
        job.is_some_and(|job| job.gates.iter().any(|gate| gate.id == turn.gate))
    };
    let taken = Taken::open();
    let mut taken = taken.look();
    let mut is_over =
        |turn: &Turn| turn.is_blocked || !has_gate(turn) || taken.is_taken(turn.gate, turn.job_id);
    let ended: Vec<_> = turns.into_iter().filter(|turn| is_over(turn)).collect();
    drop(taken);
    end(&ended);
}

/// Removes the turn of the discarded job that blocks a gate; the job.
pub fn unblock(gate: i64) -> Option<i64> {
    let id = BLOCKED.value(&[big(gate)])?;
    end(&of(&[id]).into_iter().filter(|turn| turn.gate == gate).collect::<Vec<_>>());
    Some(id)
}

/// Has the jobs of a queue go by its order as it has just been written. Waits for transactions
/// that have started or ended jobs, and they wait for this one. Jobs that others insert meanwhile
/// [`repair`] finds.
pub fn order_changed(queue: &Queue, keeps_turns: bool, keeps_blocked: bool) {
    LOCK.execute(&[]);
    let count = |seen| COUNT.value_as_of(seen, &[queue.arg()]).unwrap_or(0i64);
    if count(Snapshot::Own) != count(Snapshot::Latest) {
        // An old snapshot hides some of them.
        Error::serialization_of_limits().raise();
    }
    RESET.execute(&[queue.arg()]);
    RELEASE.execute(&[queue.arg()]);
    CLEAR.execute(&[queue.arg(), Some(keeps_turns.into()), Some(keeps_blocked.into())]);
    let rules = rules::all(Snapshot::Latest);
    let rule = order_of(&rules, queue);
    if !keeps_turns && rule.is_some_and(Rule::is_strict) {
        // Those that run come first. Of others that have started the first of a key has its turn.
        let started = STARTED.run(&[queue.arg()], |rows| {
            let job = |row| {
                let mut job = permits::read(&rules, rows, row, Some(queue.name()));
                (job.gates.swap_remove(0), job.id, rows.given(row, "is_running"))
            };
            (0..rows.len()).map(job).collect::<Vec<(Gate, i64, bool)>>()
        });
        let mut taken = HashSet::new();
        let have_turns =
            started.iter().filter(|(gate, _, is_running)| taken.insert(gate.id) || *is_running);
        give(&have_turns.map(|(gate, id, _)| (gate, *id)).collect::<Vec<_>>(), queue);
    }
    let places = PLACES.list(&[queue.arg()], |rows, row| {
        Some((rows.get::<i16>(row, "priority")?, rows.get::<i64>(row, "seq")?))
    });
    for some in places.chunks(1000) {
        effects::placed(queue, some);
        settle_by(&rules, queue, some);
    }
}

/// Mends what transactions that were open while an order was set have left: settles up to so many
/// jobs of each queue, and ends turns of jobs that are final or gone. Whether there may be more.
pub fn repair(rules: &[Rule], most: i64) -> bool {
    let mut has_more = false;
    let orders = rules.iter().filter(|rule| rule.order.is_some());
    for queue in orders.flat_map(|rule| rule.queues.iter().flatten()) {
        let queue = Queue::named(queue);
        let rest = REST.list(&[queue.arg(), big(most)], |rows, row| {
            Some((rows.get::<i16>(row, "priority")?, rows.get::<i64>(row, "seq")?))
        });
        settle_by(rules, &queue, &rest);
        has_more |= rest.len() as i64 >= most;
    }
    if rules.iter().any(Rule::is_strict) {
        end(&LEFT.list(&[big(most)], turn));
    }
    has_more
}

/// A fetch took jobs of a queue out of their lanes: of their keys others take their turns.
pub(super) fn taken(queue: &Queue, jobs: &[Picked]) {
    if order_of(&config_cache::rules(), queue).is_some() {
        let jobs = jobs.iter().filter(|one| looks_for_others(one));
        let gates = jobs.filter_map(|one| Some((one.gate?, WINDOW as i64)));
        held::hand_over(&gates.collect());
    }
}

/// Whether a job's start in a fair order looks for room in the lane of its key. About one in four
/// does: looking costs more than a start, and most of the lane is still full by then.
pub(super) fn looks_for_others(one: &Picked) -> bool {
    things::job(one.job_id).is_multiple_of(4)
}

/// The order of a queue, if it has one.
fn order_of<'a>(rules: &'a [Rule], queue: &Queue) -> Option<&'a Rule> {
    rules.iter().find(|rule| rule.order.is_some() && rule.covers_queue(queue.name()))
}

/// Jobs of a queue are in these places of their lanes, otherwise than by an insert: where it has
/// an order they take their turns, or are held.
pub(super) fn settle(queue: &Queue, places: &[(i16, i64)]) {
    settle_by(&config_cache::rules(), queue, places);
}

fn settle_by(rules: &[Rule], queue: &Queue, places: &[(i16, i64)]) {
    let Some(rule) = order_of(rules, queue).filter(|_| !places.is_empty()) else {
        return;
    };
    // Jobs can share a turn.
    let mut once = HashSet::new();
    let places: Vec<_> = places.iter().filter(|place| once.insert(**place)).collect();
    let args = [
        queue.arg(),
        column(INT4, &places, |(priority, _)| Some(i32::from(*priority).into())),
        column(INT8, &places, |(_, seq)| big(*seq)),
    ];
    let order = rule.order.as_ref().expect("it has one");
    let found = PLACED.run(&args, |rows| {
        (0..rows.len()).map(|row| found(rules, rows, row, queue)).collect::<Vec<_>>()
    });
    // An old snapshot hides turns that others have given meanwhile: a job that is held by its own
    // turn would wait for ever.
    let in_turn: HashSet<i64> = match order.is_strict {
        true => {
            let ids: Vec<i64> = found.iter().map(|one| one.job.job_id).collect();
            of(&ids).into_iter().map(|turn| turn.job_id).collect()
        }
        false => HashSet::new(),
    };
    // Scans that are used beside the rows of a statement would not outlive it.
    let waiting = Waiting::open(rules);
    let mut known = Known::of(rules, waiting.as_ref());
    let (mut held, mut placed, mut turns) = (Vec::new(), Vec::new(), HashMap::new());
    for Found { gate, is_in, job } in found {
        let (id, priority, seq) = (job.job_id, job.priority, job.seq);
        let judged = match is_in || in_turn.contains(&job.job_id) {
            true => Judged { gate: Some(gate), ..Judged::default() },
            false => {
                let gates = [gate].into_iter().collect();
                held::judge(queue, &job.kind, priority, gates, &mut known)
            }
        };
        let Some(gate) = judged.gate else {
            continue;
        };
        if judged.is_held {
            held.push((job.by(rule), priority));
            continue;
        }
        let key = gate.key.as_deref().unwrap_or_default();
        let turn = judged.turn.or_else(|| {
            let weight = order.weights.as_ref()?.of(key);
            let turns = turns.entry((gate.id, priority));
            let mut next = || Turns::of(gate.id, weight, queue, priority);
            let is_one = order::turn(gate.id, weight, seq) == seq;
            (!is_one).then(|| turns.or_insert_with(&mut next).next())
        });
        let turn = turn.unwrap_or(seq);
        if !is_in || turn != seq {
            placed.push((id, priority, seq, turn, gate.id));
        }
    }
    drop(known);
    if !placed.is_empty() {
        PLACE.execute(&[
            queue.arg(),
            column(INT4, &placed, |row| Some(i32::from(row.1).into())),
            column(INT8, &placed, |row| big(row.2)),
            column(INT8, &placed, |row| big(row.0)),
            column(INT8, &placed, |row| big(row.3)),
            column(INT8, &placed, |row| big(row.4)),
        ]);
        let places: Vec<_> = placed.iter().map(|row| (row.1, row.3)).collect();
        effects::placed(queue, &places);
    }
    if !held.is_empty() {
        let taken: Vec<i64> = TAKE.values(&[
            queue.arg(),
            column(INT4, &held, |(_, priority)| Some(i32::from(*priority).into())),
            column(INT8, &held, |(one, _)| big(one.seq)),
            column(INT8, &held, |(one, _)| big(one.job_id)),
        ]);
        // Others may have fetched or cancelled some meanwhile.
        let taken: HashSet<i64> = taken.into_iter().collect();
        let held = held.into_iter().map(|(one, _)| one);
        held::hold(&held.filter(|one| taken.contains(&one.job_id)).collect::<Vec<_>>());
    }
}

/// A job in its lane.
struct Found {
    /// Of its key in the order.
    gate: Gate,
    /// It is in the lane as a job of the gate.
    is_in: bool,
    /// As it would be held.
    job: Held,
}

fn found(rules: &[Rule], rows: &Tuples, row: usize, queue: &Queue) -> Found {
    let Covered { id, kind, expires_at, mut gates, .. } =
        permits::read(rules, rows, row, Some(queue.name()));
    let gate = gates.swap_remove(0);
    Found {
        is_in: rows.get(row, "gate") == Some(gate.id),
        job: Held {
            job_id: id,
            seq: rows.given(row, "seq"),
            scheduled_at: rows.get(row, "scheduled_at"),
            available_at: rows.get(row, "available_at"),
            expires_at,
            attempt: rows.given(row, "attempt"),
            priority: rows.given(row, "priority"),
            queue: queue.clone(),
            kind,
            gate: gate.id,
            name: String::new(),
            key: gate.key.clone(),
        },
        gate,
    }
}

plans! {
    LOCK() = "LOCK TABLE jobs.running IN SHARE ROW EXCLUSIVE MODE";
    COUNT(TEXT) =
        "SELECT (SELECT count(*) FROM jobs.ready r WHERE r.queue = $1) + (SELECT count(*) FROM jobs.scheduled s WHERE s.queue = $1) + (SELECT count(*) FROM jobs.running)";
    CLEAR(TEXT, BOOL, BOOL) =
        "DELETE FROM jobs.turn WHERE queue = $1 AND NOT CASE WHEN is_blocked THEN $3 ELSE $2 END";
    RESET(TEXT) =
        "UPDATE jobs.ready SET gate = NULL, seq = CASE WHEN seq < 0 THEN job_id ELSE seq END WHERE queue = $1 AND gate IS NOT NULL";
    RELEASE(TEXT) =
        "WITH free AS MATERIALIZED (
           DELETE FROM jobs.scheduled WHERE queue = $1 AND gate IS NOT NULL
           RETURNING job_id, seq, scheduled_at, available_at, expires_at, attempt, queue)
         INSERT INTO jobs.ready (seq, job_id, scheduled_at, available_at, expires_at, attempt, priority, queue)
         SELECT {POSITION}, f.job_id, f.scheduled_at, f.available_at, f.expires_at, f.attempt, j.priority, f.queue
           FROM free f JOIN jobs.job j ON j.id = f.job_id";
    STARTED(TEXT) =
        "SELECT j.id, j.queue, j.kind, j.priority, j.expires_at, j.args, j.meta, w.is_running
           FROM (SELECT r.job_id, true AS is_running FROM jobs.running r JOIN jobs.job q ON q.id = r.job_id WHERE COALESCE(r.queue, q.queue) = $1
                 UNION ALL SELECT s.job_id, false FROM jobs.scheduled s WHERE s.queue = $1 AND s.attempt > 0
                 UNION ALL SELECT r.job_id, false FROM jobs.ready r WHERE r.queue = $1 AND r.attempt > 0) w
           JOIN jobs.job j ON j.id = w.job_id ORDER BY w.is_running DESC, j.id";
    PLACES(TEXT) =
        "SELECT r.priority, r.seq FROM jobs.ready r WHERE r.queue = $1 ORDER BY r.seq, r.job_id";
    LEFT(INT8) =
        "SELECT t.gate, t.job_id, t.is_blocked, t.queue FROM jobs.turn t
          WHERE NOT t.is_blocked
            AND (EXISTS (SELECT FROM jobs.finished f WHERE f.job_id = t.job_id) OR NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = t.job_id)) LIMIT $1";
    REST(TEXT, INT8) =
        "SELECT r.priority, r.seq FROM jobs.ready r WHERE r.queue = $1 AND r.gate IS NULL ORDER BY r.seq LIMIT $2";
    BLOCKED(INT8) =
        "SELECT t.job_id FROM jobs.turn t WHERE t.gate = $1 AND t.is_blocked ORDER BY t.job_id LIMIT 1 FOR UPDATE";
    PRESENT(TEXT, INT2) =
        "SELECT r.seq FROM jobs.ready r WHERE r.queue = $1 AND r.priority = $2 AND r.seq < 0 ORDER BY r.seq LIMIT 1";
    LAST(INT8) = "SELECT max(r.seq) FROM jobs.ready r WHERE r.gate = $1 AND r.seq < 0";
    OF(INT8S) = "SELECT t.gate, t.job_id, t.is_blocked, t.queue FROM jobs.turn t WHERE t.job_id = ANY ($1)";
    IS_BEHIND(INT8, INT8, INT8, TEXT) =
        "SELECT FROM jobs.ready r WHERE r.gate = $1 AND (r.seq, r.job_id) < ($2, $3)
         UNION ALL
         SELECT FROM jobs.scheduled s WHERE s.gate = $1 AND s.queue = $4 AND s.seq < $2 AND $2 >= 0 LIMIT 1";
    GIVE(INT8S, INT8S, TEXTS, TEXT) =
        "INSERT INTO jobs.turn (gate, job_id, is_blocked, queue, key)
         SELECT t.gate, t.job_id, false, $4, t.key FROM unnest($1, $2, $3) AS t(gate, job_id, key)";
    BLOCK(INT8S) = "UPDATE jobs.turn SET is_blocked = true WHERE job_id = ANY ($1)";
    END(INT8S, INT8S) =
        "DELETE FROM jobs.turn t USING unnest($1, $2) AS e(gate, job_id) WHERE t.gate = e.gate AND t.job_id = e.job_id";
    PLACED(TEXT, INT4S, INT8S) =
        "SELECT j.id, j.queue, r.seq, r.priority, r.gate, r.attempt, r.scheduled_at, r.available_at, r.expires_at, j.kind, j.args, j.meta
           FROM unnest($2, $3) WITH ORDINALITY AS p(priority, seq, n)
           JOIN jobs.ready r ON r.queue = $1 AND r.priority = p.priority AND r.seq = p.seq
           JOIN jobs.job j ON j.id = r.job_id ORDER BY p.n";
    PLACE(TEXT, INT4S, INT8S, INT8S, INT8S, INT8S) =
        "UPDATE jobs.ready r SET seq = p.turn, gate = p.gate
           FROM unnest($2, $3, $4, $5, $6) AS p(priority, seq, job_id, turn, gate)
          WHERE r.queue = $1 AND r.priority = p.priority AND r.seq = p.seq AND r.job_id = p.job_id";
    TAKE(TEXT, INT4S, INT8S, INT8S) =
        "DELETE FROM jobs.ready r USING unnest($2, $3, $4) AS p(priority, seq, job_id)
          WHERE r.queue = $1 AND r.priority = p.priority AND r.seq = p.seq AND r.job_id = p.job_id RETURNING r.job_id";
}
