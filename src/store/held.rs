//! Jobs that are available, and that a limit or an order holds back: rows of `scheduled` with a
//! gate.
//!
//! A job is held by one gate at a time. The end of an attempt hands its places on in its own
//! transaction: of each queue and kind that is held there, the first jobs go back to their lanes,
//! where the next fetch has them take permits, or wait at another gate. What that cannot see, such
//! as a rollback, the maintenance task `limits` finds.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use jobs_core::state::State;

use super::direct::permits::{LookAtWaiting, Running, Waiting};
use super::effects::{self, Told};
use super::job::NewJob;
use super::permits::{self, Gate, Gates, Room, Start, Subject};
use super::queue::Queue;
use super::rules::{Order, Rule};
use super::spi::{Arg, Plan, Tuples, Value, big, column, plans, rows, text};
use super::turns::{self, Turns};
use super::types::*;
use super::{config_cache, direct};
use crate::pg::jsonb::Jsonb;
use crate::pg::{invalidation, time};
use crate::shmem;
use crate::shmem::commit::{self, Work};

/// A job that a limit holds back.
pub struct Held {
    pub job_id: i64,
    /// Its position in its lane.
    pub seq: i64,
    pub scheduled_at: Option<i64>,
    pub available_at: Option<i64>,
    pub expires_at: Option<i64>,
    pub attempt: i32,
    pub priority: i16,
    pub queue: Queue,
    pub kind: String,
    pub gate: i64,
    /// The limit, and the job's key under it.
    pub name: String,
    pub key: Option<String>,
}

impl Held {
    /// Held by this limit or order, which tells apart by no more than it asks for.
    pub fn by(mut self, rule: &Rule) -> Held {
        self.name = rule.name.clone();
        if let Some(order) = &rule.order {
            self.kind.clear();
            if order.is_strict {
                self.priority = 0;
            }
        }
        self
    }
}

/// Has jobs held that are in no other place. Whoever is just ending an attempt does not see them,
/// so the worker looks after the commit.
pub fn hold(held: &[Held]) {
    if held.is_empty() {
        return;
    }
    commit::wake_worker(Work::Held);
    if direct::permits::hold(held).is_some() {
        return;
    }
    HOLD.execute(&[
        column(INT8, held, |one| big(one.job_id)),
        column(AT, held, |one| one.expires_at.and_then(big)),
        column(INT4, held, |one| Some(one.attempt.into())),
        column(TEXT, held, |one| text(one.queue.name())),
        column(INT8, held, |one| big(one.gate)),
        column(INT8, held, |one| big(one.seq)),
        column(AT, held, |one| one.scheduled_at.and_then(big)),
        column(AT, held, |one| one.available_at.and_then(big)),
        column(INT4, held, |one| Some(i32::from(one.priority).into())),
        column(TEXT, held, |one| text(&one.kind)),
        column(TEXT, held, |one| text(&one.name)),
        column(TEXT, held, |one| one.key.as_deref().and_then(text)),
    ]);
}

/// Where new jobs go that are available: of each gate only as many are in the lane as may run.
#[derive(Default)]
pub struct OnInsert {
    /// Of each job; nothing at all where no limit covers any.
    judged: Vec<Judged>,
    rules: Rc<Vec<Rule>>,
}

#[derive(Default)]
pub(super) struct Judged {
    /// The gate that the job is held at, or that it counts for in its lane.
    pub gate: Option<Gate>,
    pub is_held: bool,
    /// Its position in its lane, if its key has turns.
    pub turn: Option<i64>,
}

impl OnInsert {
    pub fn of(jobs: &[(i64, &NewJob)]) -> OnInsert {
        let rules = config_cache::rules();
        if rules.is_empty() {
            return OnInsert::default();
        }
        let gates: Vec<Gates> = jobs.iter().map(|(_, job)| gates_of(&rules, job)).collect();
        if gates.iter().all(Gates::is_empty) {
            return OnInsert::default();
        }
        let waiting = Waiting::open(&rules);
        let mut known = Known::of(&rules, waiting.as_ref());
        let judge_one = |((_, job), gates): (&(i64, &NewJob), Gates)| {
            let common = &job.common;
            judge(&common.queue, &common.kind, common.priority, gates, &mut known)
        };
        let judged = jobs.iter().zip(gates).map(judge_one).collect();
        drop(known);
        OnInsert { judged, rules }
    }

    pub fn is_held(&self, n: usize) -> bool {
        self.judged.get(n).is_some_and(|judged| judged.is_held)
    }

    /// The gate that a job counts for in its lane.
    pub fn gate(&self, n: usize) -> Option<i64> {
        self.judged.get(n)?.gate.as_ref().map(|gate| gate.id)
    }

    /// The position of a job in its lane.
    pub fn seq(&self, n: usize, id: i64) -> i64 {
        self.judged.get(n).and_then(|judged| judged.turn).unwrap_or(id)
    }

    /// Has those jobs held that are, whose rows of `job` are written.
    pub fn hold(&self, jobs: &[(i64, &NewJob)]) {
        let held = jobs.iter().zip(&self.judged).filter(|(_, judged)| judged.is_held);
        let held = held.filter_map(|((id, job), judged)| {
            let (gate, common) = (judged.gate.as_ref()?, &job.common);
            let held = Held {
                job_id: *id,
                seq: *id,
                scheduled_at: None,
                available_at: None,
                expires_at: common.expires_at,
                attempt: 0,
                priority: common.priority,
                queue: common.queue.clone(),
                kind: common.kind.clone(),
                gate: gate.id,
                name: String::new(),
                key: gate.key.clone(),
            };
            Some(held.by(&self.rules[gate.rule]))
        });
        hold(&held.collect::<Vec<_>>());
    }
}

/// More jobs of a gate than these are not counted: fetches have them held as they meet them.
const MOST_IN_LANE: usize = 100;

/// What was looked up for a batch.
pub(super) struct Known<'a> {
    rules: &'a [Rule],
    /// `None`: use statements.
    look: Option<LookAtWaiting<'a>>,
    /// By gate, queue, and kind, where those are told apart.
    first_held: HashMap<(i64, u64, Option<String>), Option<i16>>,
    in_lane: HashMap<i64, usize>,
    turns: HashMap<i64, Turns>,
}

impl<'a> Known<'a> {
    pub fn of(rules: &'a [Rule], waiting: Option<&'a Waiting>) -> Known<'a> {
        let (first_held, in_lane, turns) = Default::default();
        Known { rules, look: waiting.map(Waiting::look), first_held, in_lane, turns }
    }

    fn first_held(&mut self, gate: i64, queue: &Queue, kind: Option<&str>) -> Option<i16> {
        let place = (gate, queue.number(), kind.map(String::from));
        let (look, kind) = (&mut self.look, kind.unwrap_or_default());
        *self.first_held.entry(place).or_insert_with(|| match look {
            Some(look) => look.first_held(gate, queue, kind),
            None => FIRST_PRIORITY.value(&[big(gate), queue.arg(), text(kind)]),
        })
    }

    /// How many jobs of a gate are in a lane, or have the turn, up to so many, with those of the
    /// batch.
    fn in_lane(&mut self, gate: i64, most: usize, has_turns: bool) -> &mut usize {
        let look = &mut self.look;
        self.in_lane.entry(gate).or_insert_with(|| match look {
            _ if most > MOST_IN_LANE => 0,
            Some(look) => look.in_lane(gate, most, has_turns),
            None if has_turns && turns::is_taken(gate) => most,
            None => IN_LANE.execute(&[big(gate), big(most as i64)]),
        })
    }
}

/// What covers a new job that is available.
fn gates_of(rules: &[Rule], job: &NewJob) -> Gates {
    if job.state != State::Available {
        return Gates::new();
    }
    let common = &job.common;
    let subject = Subject {
        queue: common.queue.name(),
        kind: &common.kind,
        args: job.args,
        meta: common.meta.given().copied(),
        priority: common.priority,
    };
    permits::gates(rules, &subject)
}

/// Where a job goes that is available now.
pub(super) fn judge(
    queue: &Queue,
    kind: &str,
    priority: i16,
    mut gates: Gates,
    known: &mut Known,
) -> Judged {
    let rules = known.rules;
    let order = gates.first().and_then(|gate| rules[gate.rule].order.as_ref());
    if order.is_some() {
        // Limits are asked once it has its turn.
        gates.truncate(1);
    }
    let mut is_behind = |gate: &Gate| {
        let first = known.first_held(gate.id, queue, order.is_none().then_some(kind));
        first.is_some_and(|first| first <= priority || order.is_some())
    };
    if let Some(gate) = gates.iter().find(|gate| is_behind(gate)) {
        return Judged { gate: Some(gate.clone()), is_held: true, turn: None };
    }
    let most = |gate: &Gate| rules[gate.rule].most(gate.id);
    let Some(gate) = gates.into_iter().min_by_key(most) else {
        return Judged::default();
    };
    let most = most(&gate);
    let has_turns = order.is_some_and(|order| order.is_strict);
    let in_lane = known.in_lane(gate.id, most, has_turns);
    let is_held = *in_lane >= most && most <= MOST_IN_LANE;
    *in_lane += 1;
    let weights = order.and_then(|order| order.weights.as_ref()).filter(|_| !is_held);
    let turn = weights.map(|weights| {
        let weight = weights.of(gate.key.as_deref().unwrap_or_default());
        let turns = known.turns.entry(gate.id);
        turns.or_insert_with(|| Turns::of(gate.id, weight, queue, priority)).next()
    });
    Judged { gate: Some(gate), is_held, turn }
}

/// Jobs have left their lanes that counted for these gates there, and did not start.
pub(super) fn left(gates: impl Iterator<Item = i64>) {
    let mut places = BTreeMap::new();
    gates.for_each(|gate| *places.entry(gate).or_default() += 1);
    hand_over(&places);
}

/// So many places at each of these gates are free: has the first jobs that they hold back to their
/// lanes.
pub fn hand_over(places: &BTreeMap<i64, i64>) {
    if places.is_empty() {
        return;
    }
    let all = || places.keys().copied();
    for gate in direct::permits::holding(all()).unwrap_or_else(|| all().collect()) {
        hand_over_at(gate, places[&gate]);
    }
}

/// Jobs start that count for rates. If a rate that holds jobs has room again before the worker
/// would look, the worker finds out when.
pub fn started(rules: &[Rule], starts: &[Start]) {
    let is_soon = |start: &&Start| {
        let rule = rules.iter().find(|rule| rule.name == start.name);
        let rate = rule.and_then(|rule| rule.setting_of(start.gate).rate);
        rate.is_some_and(|(_, period)| time::add(0, period) < LOOK_EVERY)
    };
    let mut gates = starts.iter().filter(is_soon).map(|start| start.gate).peekable();
    if gates.peek().is_some()
        && direct::permits::holding(gates).is_none_or(|holding| !holding.is_empty())
    {
        commit::wake_worker(Work::Held);
    }
}

/// How held jobs of a gate go back to their lanes.
pub struct Way<'a> {
    rules: &'a [Rule],
    gate: i64,
    name: String,
    pub order: Option<&'a Order>,
    /// See [`Rule::least`].
    pub least: usize,
    /// With so many jobs in its lane it has no room for those.
    pub enough: usize,
    /// What share of the starts its key has.
    weight: f64,
}

impl Way<'_> {
    /// How many jobs may be in a lane now.
    pub fn room(&self) -> usize {
        room(self.rules, self.gate, &self.name).map_or(usize::MAX, |room| room.left)
    }

    /// Their positions in a lane, if they do not have those that they had.
    pub fn turns(&self, gate: i64, queue: &Queue, priority: i16) -> Option<Turns> {
        self.order?.weights.as_ref()?;
        Some(Turns::of(gate, self.weight, queue, priority))
    }
}

/// The way of jobs that this limit or order holds at a gate, all with this key.
fn way<'a>(rules: &'a [Rule], gate: i64, name: &str, key: Option<Jsonb>) -> Way<'a> {
    let rule = rules.iter().find(|rule| rule.name == name);
    let order = rule.and_then(|rule| rule.order.as_ref());
    let weights = order.and_then(|order| order.weights.as_ref());
    let weight = weights.zip(rule).zip(key).and_then(|((weights, rule), key)| {
        let key = rule.by.as_ref()?.given(&key.to_value("key").ok()?).ok()?;
        Some(weights.of(&key))
    });
    let (least, weight) = (rule.map_or(1, Rule::least), weight.unwrap_or(1.0));
    let enough = rule.map_or(usize::MAX, |rule| rule.most(gate)).saturating_sub(least - 1);
    Way { rules, gate, name: name.to_string(), order, least, enough, weight }
}

fn hand_over_at(gate: i64, count: i64) {
    let rules = config_cache::rules();
    let promoted =
        direct::permits::promote(gate, count as usize, |name, key| way(&rules, gate, name, key));
    match promoted {
        Some((promoted, are_placed)) => tell(&promoted, are_placed),
        None => {
            let holder: Option<String> = HOLDER.value(&[big(gate)]);
            holder.map(|name| promote(&rules, gate, &name, count));
        }
    }
}

fn tell(promoted: &[(Queue, (i16, i64))], are_placed: bool) {
    for of_queue in promoted.chunk_by(|a, b| a.0 == b.0) {
        let (queue, places) = (&of_queue[0].0, of_queue.iter().map(|(_, place)| *place));
        let places: Vec<_> = places.collect();
        match are_placed {
            true => effects::placed(queue, &places),
            false => effects::promoted(queue, &places, Told::All),
        }
    }
}

/// The room at a gate; `None`: the limit is gone.
fn room(rules: &[Rule], gate: i64, name: &str) -> Option<Room> {
    let rule = rules.iter().position(|rule| rule.name == name)?;
    let most = rules[rule].most(gate);
    let gate = Gate { id: gate, rule, key: None };
    Some(Room::of(rules, &gate, time::now(), most, &mut Running::open().look()))
}

/// Has the first jobs that a gate holds back to their lanes, up to so many of each queue and kind,
/// and no more than have room beside those that are there already; how many, and when there is room
/// for another start.
fn promote(rules: &[Rule], gate: i64, name: &str, most: i64) -> (usize, Option<i64>) {
    let rule = rules.iter().find(|rule| rule.name == name);
    let look = || room(rules, gate, name);
    let mut room = look();
    if room.as_ref().is_some_and(|room| room.is_ahead) {
        permits::cut_starts(gate);
        room = look();
    }
    let free_at = room.as_ref().and_then(|room| room.free_at);
    let latest = room.as_ref().and_then(|room| room.latest_start());
    let left = room.map_or(usize::MAX, |room| room.left);
    if left == 0 {
        return (0, free_at);
    }
    let args = [
        big(gate),
        big(most),
        big(left.try_into().unwrap_or(i64::MAX)),
        Some(rule.is_some_and(Rule::is_strict).into()),
        latest.and_then(big),
        rule.and_then(|rule| rule.setting_of(gate).concurrency).and_then(|limit| big(limit.into())),
        big(rule.map_or(1, Rule::least) as i64),
    ];
    let promoted = moved(&PROMOTE, &args);
    // If the lane has jobs for all the room, looking again is of no use before they start.
    (promoted, free_at.filter(|_| promoted > 0))
}

/// Runs a statement that has held jobs back to their lanes; how many.
fn moved(plan: &Plan, args: &[Arg]) -> usize {
    let promoted = plan.list(args, |rows, row| {
        Some((
            rows.get::<Queue>(row, "queue")?,
            (rows.get::<i16>(row, "priority")?, rows.get::<i64>(row, "seq")?),
        ))
    });
    tell(&promoted, false);
    promoted.len()
}

/// Looks at up to so many gates that hold jobs, from the one after `after` on, and has jobs back to
/// their lanes where there is room, or where the limit is no longer there. Returns how many jobs
/// that were, and the last gate if there may be more.
pub fn look_after(after: i64, most: i64) -> (usize, Option<i64>) {
    if !permits::are_here() {
        return (0, None);
    }
    let heard = invalidation::heard();
    if after == i64::MIN {
        BEGAN.set(heard);
        FAIR_LANES.with_borrow_mut(|[before, now]| *before = std::mem::take(now));
    }
    let is_to_check = CHECKED.get() != heard;
    let rules = config_cache::rules();
    if is_to_check && turns::repair(&rules, most) {
        // The next round goes on.
        BEGAN.set(u64::MAX);
    }
    let mut gates = GATES.list(&[big(after), big(most)], |rows, row| {
        let (gate, name) = (rows.get::<i64>(row, "gate")?, rows.get::<String>(row, "limit_name")?);
        Some((gate, name, rows.given::<bool>(row, "is_defined")))
    });
    let last = gates.last().map(|(gate, ..)| *gate).filter(|_| gates.len() as i64 == most);
    // A commit is seen before it tells of the limit that it defines.
    let is_unheard =
        |name: &str, is_defined| is_defined && rules.iter().all(|rule| rule.name != name);
    gates.retain(|(_, name, is_defined)| !is_unheard(name, *is_defined));
    let has_orders = rules.iter().any(|rule| rule.order.is_some());
    let mut next = i64::MAX;
    let promoted = gates.iter().map(|(gate, name, _)| {
        let mut released = 0;
        if is_to_check {
            released = release(&rules, *gate, name, most);
        }
        let returns_many = |rule: &Rule| rule.name == *name && rule.least() > 1;
        if shmem::is_worker() && rules.iter().any(returns_many) && has_moved(*gate) {
            return released;
        }
        let (mut promoted, free_at) = promote(&rules, *gate, name, most);
        next = free_at.map_or(next, |at| next.min(at));
        // Jobs that an order takes out of the lane again leave room there.
        let is_limit = rules.iter().any(|rule| rule.name == *name && rule.order.is_none());
        let mut more = if has_orders && is_limit { promoted } else { 0 };
        while more > 0 && (promoted as i64) < most {
            (more, _) = promote(&rules, *gate, name, most);
            promoted += more;
        }
        released + promoted
    });
    let promoted = promoted.sum();
    NEXT_START.set(next);
    if last.is_none() {
        CHECKED.set(BEGAN.get());
    }
    (promoted, last)
}

/// Where jobs are held, the gates are looked at so often, in microseconds.
const LOOK_EVERY: i64 = 1_000_000;

thread_local! {
    /// When the first of the gates that were looked at has room for another start.
    static NEXT_START: Cell<i64> = const { Cell::new(i64::MAX) };
    /// What was heard of changes when this round of looks at all gates began.
    static BEGAN: Cell<u64> = const { Cell::new(u64::MAX) };
    /// What was heard of them when the last round began that checked all gates for jobs that limits
    /// no longer cover.
    static CHECKED: Cell<u64> = const { Cell::new(u64::MAX) };
    /// By gate, the first and the last position in the lane of a fair order: in the round before,
    /// and in this one.
    static FAIR_LANES: RefCell<[HashMap<i64, (i64, i64)>; 2]> = RefCell::default();
}

/// Whether the lane of a key in a fair order has moved since the round before. Fetches then return
/// its held jobs. Until a slow return by the worker commits, they would find the lane full, and
/// nothing in it.
fn has_moved(gate: i64) -> bool {
    let ends = |rows: &Tuples, row| rows.get(row, "first").zip(rows.get(row, "last"));
    let Some(ends) = ENDS.list(&[big(gate)], ends).pop() else {
        return false;
    };
    FAIR_LANES.with_borrow_mut(|[before, now]| {
        now.insert(gate, ends);
        before.get(&gate) != Some(&ends)
    })
}

/// When to look at gates next, after a look at that time; `None`: no job is held.
pub fn next_look(looked_at: i64) -> Option<i64> {
    let soon = || looked_at.saturating_add(LOOK_EVERY).clamp(0, NEXT_START.get().max(0));
    (permits::are_here() && ANY.execute(&[]) > 0).then(soon)
}

/// Has jobs back to their lanes that are not under this gate by now, whether or not it has room;
/// how many.
fn release(rules: &[Rule], gate: i64, name: &str, most: i64) -> usize {
    let classes: Vec<Class> = CLASSES.rows(&[big(gate)]);
    let is_stale = |class: &&Class| {
        let covers = |rule: &&Rule| rule.name == name && rule.covers(&class.queue, &class.kind);
        // All jobs of a gate have the same key.
        rules.iter().find(covers).is_none() || {
            let queue = Queue::named(&class.queue);
            let first = permits::covered(rules, &queue, &[class.job_id]).pop().flatten();
            first.is_some_and(|job| job.gates.iter().all(|other| other.id != gate))
        }
    };
    let released = classes.iter().filter(is_stale).map(|class| {
        let args = [big(gate), text(&class.queue), text(&class.kind), big(most)];
        moved(&RELEASE, &args)
    });
    released.sum()
}

rows! {
    /// A queue and kind of jobs that a gate holds, and the first of them.
    pub struct Class {
        pub queue: String,
        pub kind: String,
        pub job_id: i64,
    }
}

/// The position of a held job in its lane. A turn that it had is over.
pub(super) const POSITION: &str = "CASE WHEN f.seq < 0 THEN f.job_id ELSE f.seq END";

plans! {
    HOLD(INT8S, ATS, INT4S, TEXTS, INT8S, INT8S, ATS, ATS, INT4S, TEXTS, TEXTS, TEXTS) =
        "INSERT INTO jobs.scheduled (job_id, due_at, expires_at, attempt, state, queue, gate, seq, scheduled_at, available_at, priority, kind, limit_name, limit_key)
         SELECT h.job_id, 'infinity', h.expires_at, h.attempt, 'available', h.queue, h.gate, h.seq, h.scheduled_at, h.available_at, h.priority::smallint, h.kind, h.name, h.key::jsonb
           FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
             AS h(job_id, expires_at, attempt, queue, gate, seq, scheduled_at, available_at, priority, kind, name, key)";
    ANY() = "SELECT FROM jobs.scheduled s WHERE s.gate IS NOT NULL LIMIT 1";
    HOLDER(INT8) = "SELECT s.limit_name FROM jobs.scheduled s WHERE s.gate = $1 LIMIT 1";
    FIRST_PRIORITY(INT8, TEXT, TEXT) =
        "SELECT s.priority FROM jobs.scheduled s WHERE s.gate = $1 AND s.queue = $2 AND s.kind = $3 ORDER BY s.priority LIMIT 1";
    IN_LANE(INT8, INT8) = "SELECT FROM jobs.ready r WHERE r.gate = $1 LIMIT $2";
    GATES(INT8, INT8) =
        "WITH RECURSIVE g AS (
           (SELECT s.gate, s.limit_name FROM jobs.scheduled s WHERE s.gate > $1 ORDER BY s.gate LIMIT 1)
           UNION ALL
           SELECT n.gate, n.limit_name FROM g,
                  LATERAL (SELECT s.gate, s.limit_name FROM jobs.scheduled s WHERE s.gate > g.gate ORDER BY s.gate LIMIT 1) n)
         SELECT g.gate, g.limit_name, EXISTS (SELECT FROM jobs.limit_rule r WHERE r.name = g.limit_name) AS is_defined FROM g LIMIT $2";
    ENDS(INT8) = "SELECT min(r.seq) AS first, max(r.seq) AS last FROM jobs.ready r WHERE r.gate = $1";
    CLASSES(INT8) =
        "WITH RECURSIVE class AS (
           (SELECT s.queue, s.kind, s.job_id FROM jobs.scheduled s WHERE s.gate = $1 ORDER BY s.queue, s.kind LIMIT 1)
           UNION ALL
           SELECT next.* FROM class c,
                  LATERAL (SELECT s.queue, s.kind, s.job_id FROM jobs.scheduled s
                            WHERE s.gate = $1 AND (s.queue, s.kind) > (c.queue, c.kind) ORDER BY s.queue, s.kind LIMIT 1) next)
         SELECT c.queue, c.kind, c.job_id FROM class c LIMIT 1000";
    RELEASE(INT8, TEXT, TEXT, INT8) =
        "WITH free AS MATERIALIZED (
           DELETE FROM jobs.scheduled WHERE ctid = ANY (ARRAY(
             SELECT s.ctid FROM jobs.scheduled s WHERE s.gate = $1 AND s.queue = $2 AND s.kind = $3 ORDER BY s.priority, s.seq LIMIT $4 FOR UPDATE SKIP LOCKED))
           RETURNING job_id, seq, scheduled_at, available_at, expires_at, attempt, priority, queue)
         INSERT INTO jobs.ready (seq, job_id, scheduled_at, available_at, expires_at, attempt, priority, queue)
         SELECT {POSITION}, f.job_id, f.scheduled_at, f.available_at, f.expires_at, f.attempt, COALESCE(j.priority, f.priority), f.queue
           FROM free f LEFT JOIN jobs.job j ON j.id = f.job_id
         RETURNING queue, priority, seq";
    // Walks from class to class along the index. A strict order passes over no job that is locked.
    // $3 is the room at an earlier look. A job that has started since is no longer in the lane, but
    // it has a permit, a start or a turn.
    PROMOTE(INT8, INT8, INT8, BOOL, INT8, INT8, INT8) =
        "WITH RECURSIVE room AS (
           SELECT LEAST($3 - (SELECT count(*) FROM jobs.limit_start s WHERE s.gate = $1 AND s.n > $5),
                        $6 - (SELECT count(*) FROM jobs.permit p WHERE p.gate = $1),
                        CASE WHEN $4 THEN 1 - (SELECT count(*) FROM jobs.turn t WHERE t.gate = $1) END) AS free),
         class AS (
           (SELECT s.queue, s.kind, 1 AS n FROM jobs.scheduled s WHERE s.gate = $1 ORDER BY s.queue, s.kind LIMIT 1)
           UNION ALL
           SELECT next.queue, next.kind, c.n + 1 FROM class c,
                  LATERAL (SELECT s.queue, s.kind FROM jobs.scheduled s
                            WHERE s.gate = $1 AND (s.queue, s.kind) > (c.queue, c.kind) ORDER BY s.queue, s.kind LIMIT 1) next
            WHERE c.n < 1000),
         free AS MATERIALIZED (
           DELETE FROM jobs.scheduled WHERE ctid = ANY (ARRAY(
             SELECT f.ctid
               FROM (SELECT c.queue, c.kind, GREATEST((SELECT free FROM room) - count(l.job_id), 0) AS free FROM class c
                       LEFT JOIN (SELECT r.queue, j.kind, r.job_id FROM jobs.ready r JOIN jobs.job j ON j.id = r.job_id WHERE r.gate = $1 LIMIT 200) l
                         ON l.queue = c.queue AND c.kind IN (l.kind, '') GROUP BY c.queue, c.kind) c,
                    LATERAL (SELECT s.ctid FROM jobs.scheduled s WHERE s.gate = $1 AND s.queue = c.queue AND s.kind = c.kind
                                AND (NOT $4 OR s.seq = (SELECT m.seq FROM jobs.scheduled m WHERE m.gate = $1 ORDER BY m.queue, m.kind, m.priority, m.seq LIMIT 1))
                              ORDER BY s.priority, s.seq LIMIT CASE WHEN c.free < $7 THEN 0 ELSE LEAST($2, c.free) END FOR UPDATE SKIP LOCKED) f))
           RETURNING job_id, seq, scheduled_at, available_at, expires_at, attempt, priority, queue)
         INSERT INTO jobs.ready (seq, job_id, scheduled_at, available_at, expires_at, attempt, priority, queue, gate)
         SELECT {POSITION}, f.job_id, f.scheduled_at, f.available_at, f.expires_at, f.attempt, COALESCE(j.priority, f.priority), f.queue, $1
           FROM free f LEFT JOIN jobs.job j ON j.id = f.job_id
         RETURNING queue, priority, seq";
}
