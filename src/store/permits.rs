//! Limits by key: which cover a job, and the permits of jobs that run.
//!
//! A *gate* is a limit as it holds for one key. A job that runs has a row in `permit` for each of
//! its gates, which the fetch inserts and the end of the attempt deletes. Fetches take turns at a
//! gate: who has the turn counts the rows that are there, also those of transactions that are under
//! way, and inserts its own before the next one counts. So a limit is exact, whatever commits or
//! rolls back, and nobody waits for the end of another transaction.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use jobs_core::interval::Interval;
use pgrx::pg_sys::InvalidOid;
use smallvec::SmallVec;

use super::direct::fetch::JobRow;
use super::direct::permits::{LookAtRunning, Running};
use super::direct::shapes;
use super::fetch::Picked;
use super::held;
use super::queue::Queue;
use super::rules::Rule;
use super::spi::{Arg, Snapshot, Tuples, big, bigs, column, plans, text};
use super::turns::{self, Starters, Turn};
use super::types::*;
use super::{config_cache, direct, rules};
use crate::error::Error;
use crate::fault::{self, Fault};
use crate::pg::jsonb::Jsonb;
use crate::pg::{lock, name, time, versions};

/// A limit as it holds for one job.
#[derive(Clone)]
pub struct Gate {
    pub id: i64,
    /// The limit, by its place among the rules.
    pub rule: usize,
    /// The canonical text of the job's key; `None`: it has none under this limit.
    pub key: Option<String>,
}

pub type Gates = SmallVec<[Gate; 2]>;

/// Whether the tables are there: the previous version's script makes none.
pub fn are_here() -> bool {
    shapes::PERMIT.name.oid() != InvalidOid
}

thread_local! {
    /// The transaction that has deleted permits last.
    static FREED: Cell<Option<u32>> = const { Cell::new(None) };
    /// The transaction that has forgotten starts last, and the last number of those at each gate.
    static FORGOTTEN: RefCell<(u32, HashMap<i64, i64>)> = RefCell::default();
}

/// Whether this transaction has deleted permits, which it no longer sees.
pub fn has_freed() -> bool {
    FREED.get() == Some(versions::local_transaction())
}

/// What of a job decides which limits cover it.
pub struct Subject<'a> {
    pub queue: &'a str,
    pub kind: &'a str,
    pub args: Jsonb,
    /// `None` for `{}`.
    pub meta: Option<Jsonb>,
    pub priority: i16,
}

/// The limits that cover a job, after the order of its queue.
pub fn gates(rules: &[Rule], of: &Subject) -> Gates {
    let gate = |(rule, of_rule): (usize, &Rule)| {
        let by = of_rule.by.as_ref();
        // A value without a canonical form is a key like one that is not there.
        let key = by.and_then(|by| {
            let meta = || of.meta.unwrap_or(Jsonb::empty_object()).events();
            by.key(of.kind, of.queue, || of.args.events(), meta).ok()
        });
        Gate { id: of_rule.gate(key.as_deref().unwrap_or_default(), of.priority), rule, key }
    };
    let covering = rules.iter().enumerate().filter(|(_, rule)| rule.covers(of.queue, of.kind));
    let mut gates: Gates = covering.map(gate).collect();
    gates.sort_by_key(|gate| rules[gate.rule].order.is_none());
    gates
}

/// A job that a fetch took out of its lane.
pub struct Covered {
    pub id: i64,
    pub kind: String,
    pub expires_at: Option<i64>,
    pub gates: Gates,
    /// Its row of `job`, where that was kept.
    pub row: Option<JobRow>,
}

impl Covered {
    pub fn of(rules: &[Rule], subject: &Subject, id: i64, expires_at: Option<i64>) -> Covered {
        let gates = gates(rules, subject);
        Covered { id, kind: subject.kind.to_string(), expires_at, gates, row: None }
    }

    /// Its gates but that of an order.
    fn limits<'a>(&'a self, rules: &'a [Rule]) -> impl Iterator<Item = &'a Gate> {
        self.gates.iter().filter(|gate| rules[gate.rule].order.is_none())
    }
}

/// The permits of a job that runs: a row of each gate, all of one number.
#[derive(Clone, Default)]
pub struct Permit {
    pub n: i64,
    pub gates: Vec<i64>,
}

pub struct PermitRow<'a> {
    pub gate: i64,
    pub n: i64,
    pub job_id: i64,
    pub name: &'a str,
    pub key: Option<&'a str>,
}

pub struct Start<'a> {
    pub gate: i64,
    pub n: i64,
    pub at: i64,
    pub name: &'a str,
    pub key: Option<&'a str>,
}

/// How many more jobs may start under a gate.
pub struct Room {
    pub left: usize,
    /// When the oldest start no longer counts for the rate, or a period from now if none counts.
    /// `None` without a rate, or if something else leaves no room.
    pub free_at: Option<i64>,
    /// Whether a start that is dated ahead of the clock uses the room up: the clock was set back.
    pub is_ahead: bool,
    /// The number and the time of the latest start, where starts count.
    latest: Option<(i64, i64)>,
}

impl Room {
    /// What is left now, up to so many.
    pub fn of(
        rules: &[Rule],
        gate: &Gate,
        now: i64,
        most: usize,
        running: &mut LookAtRunning,
    ) -> Room {
        let rule = &rules[gate.rule];
        let setting = rule.setting_of(gate.id);
        let mut room = Room { left: most, free_at: None, is_ahead: false, latest: None };
        if rule.is_strict() && turns::is_taken(gate.id) {
            room.left = 0;
        }
        if rule.is_paused_for(gate.id) {
            room.left = 0;
        }
        if let Some(limit) = setting.concurrency.filter(|_| room.left > 0) {
            let limit = limit as usize;
            let running = running.count(gate.id, limit);
            room.left = room.left.min(limit.saturating_sub(running));
        }
        if let Some((rate, period)) = setting.rate {
            let latest = latest_start(gate.id).unwrap_or((0, i64::MIN));
            room.latest = Some(latest);
            // The start that is `rate` before a new one is to be a period ago.
            let (from, since) =
                (latest.0 + 1 - i64::from(rate), time::ago(now, period).unwrap_or(i64::MIN));
            let first = direct::permits::first_start_after(gate.id, from, latest.0, since);
            let free = first.map_or(rate as usize, |(number, _)| (number - from) as usize);
            let oldest = first.map_or(now, |(_, at)| at);
            room.free_at = (room.left > 0).then(|| time::add(oldest, period));
            room.is_ahead = free == 0 && oldest > now;
            room.left = if fault::is_on(Fault::NoRates) { room.left } else { room.left.min(free) };
        }
        room
    }

    /// The number of the latest start, where starts count.
    pub fn latest_start(&self) -> Option<i64> {
        self.latest.map(|(number, _)| number)
    }

    fn start(&mut self, now: i64) -> Option<(i64, i64)> {
        self.left -= 1;
        let (number, at) = self.latest.as_mut()?;
        (*number, *at) = (*number + 1, now.max(*at));
        Some((*number, *at))
    }
}

/// The latest start under a gate. Where a clock that was put right left it ahead, it was now.
/// Others still see the starts that this transaction has forgotten, and number theirs behind them.
fn latest_start(gate: i64) -> Option<(i64, i64)> {
    let latest = direct::permits::latest_start(gate);
    let forgotten = FORGOTTEN.with_borrow(|(by, last)| {
        last.get(&gate).copied().filter(|_| *by == versions::local_transaction())
    });
    let forgotten = forgotten.map(|number| (number, i64::MIN));
    latest.max(forgotten).map(|(number, at)| (number, at.min(time::now())))
}

/// By so many locks fetches take turns.
const TURNS: i64 = 64;
/// Their numbers, behind those of fetches that want several jobs.
const FIRST_TURN: i64 = 1000;

/// Gives permits and turns to jobs of a queue, in their order, as far as their limits and the order
/// have room; else the place, among its gates, of the one that holds the job. `picked` are their
/// places. Turns that are over are to be ended afterwards.
pub fn admit(
    rules: &[Rule],
    queue: &Queue,
    jobs: &[Covered],
    picked: &[Picked],
    now: i64,
) -> (Vec<Result<Permit, usize>>, Vec<Turn>) {
    let is_order = |gate: &Gate| rules[gate.rule].order.is_some();
    let is_strict = |gate: &Gate| rules[gate.rule].is_strict();
    let strict_of = |job: &Covered| job.gates.first().filter(|gate| is_strict(gate)).is_some();
    let gates = jobs.iter().flat_map(|job| &job.gates);
    let gates = gates.filter(|gate| !is_order(gate) || is_strict(gate));
    let gates = gates.filter(|_| !fault::is_on(Fault::PermitOutOfTurn));
    let turns = gates.map(|gate| FIRST_TURN + gate.id.rem_euclid(TURNS)).collect();
    lock::in_turn(turns, || {
        let mut rooms: HashMap<i64, Room> = HashMap::new();
        let running = Running::open();
        let mut running = running.look();
        let (mut permits, mut starts) = (Vec::new(), Vec::new());
        let tables = jobs.iter().any(strict_of).then(turns::Tables::open);
        let ordered = jobs.iter().zip(picked).filter(|(job, _)| strict_of(job));
        let ordered = ordered.map(|(job, one)| (&job.gates[0], one));
        let mut starters = tables.as_ref().map(|tables| Starters::of(queue, tables, ordered));
        let mut admit_one = |(job, one): (_, &Picked)| -> Result<Permit, usize> {
            let job: &Covered = job;
            if let Some(starters) = starters.as_mut().filter(|_| strict_of(job))
                && !starters.take(&job.gates[0], one)
            {
                return Err(0);
            }
            let limits = || job.limits(rules);
            for gate in limits() {
                let room = || Room::of(rules, gate, now, jobs.len(), &mut running);
                rooms.entry(gate.id).or_insert_with(room);
            }
            let is_full = |gate: &Gate| !is_order(gate) && rooms[&gate.id].left == 0;
            if let Some(full) = job.gates.iter().position(is_full) {
                return Err(full);
            }
            if limits().next().is_none() {
                return Ok(Permit::default());
            }
            let n = name::next_value(&shapes::JOB_SEQ);
            for gate in limits() {
                let (name, key) = (rules[gate.rule].name.as_str(), gate.key.as_deref());
                permits.push(PermitRow { gate: gate.id, n, job_id: job.id, name, key });
                let room = rooms.get_mut(&gate.id).expect("it was asked");
                if let Some((n, at)) = room.start(now) {
                    starts.push(Start { gate: gate.id, n, at, name, key });
                }
            }
            Ok(Permit { n, gates: limits().map(|gate| gate.id).collect() })
        };
        let admitted = jobs.iter().zip(picked).map(&mut admit_one).collect();
        drop(running);
        fault::pause(Fault::PermitOutOfTurn);
        write(&permits, &starts);
        held::started(rules, &starts);
        (admitted, starters.map_or(Vec::new(), Starters::write))
    })
}

fn write(permits: &[PermitRow], starts: &[Start]) {
    if permits.is_empty() || direct::permits::write(permits, starts).is_some() {
        return;
    }
    INSERT.execute(&[
        column(INT8, permits, |row| big(row.gate)),
        column(INT8, permits, |row| big(row.n)),
        column(INT8, permits, |row| big(row.job_id)),
        column(TEXT, permits, |row| text(row.name)),
        column(TEXT, permits, |row| row.key.and_then(text)),
    ]);
    INSERT_STARTS.execute(&[
        column(INT8, starts, |row| big(row.gate)),
        column(INT8, starts, |row| big(row.n)),
        column(AT, starts, |row| big(row.at)),
        column(TEXT, starts, |row| text(row.name)),
        column(TEXT, starts, |row| row.key.and_then(text)),
    ]);
}

/// Takes back the permits of jobs that no longer run, and hands their places on.
pub fn free(permits: &[Permit]) {
    let rows: Vec<(i64, i64)> = permits
        .iter()
        .flat_map(|permit| permit.gates.iter().map(|gate| (*gate, permit.n)))
        .collect();
    if rows.is_empty() {
        return;
    }
    FREED.set(Some(versions::local_transaction()));
    direct::permits::delete(&rows).unwrap_or_else(|| {
        DELETE.execute(&[
            column(INT8, &rows, |row| big(row.0)),
            column(INT8, &rows, |row| big(row.1)),
        ]);
    });
    let mut freed = BTreeMap::new();
    for (gate, _) in rows {
        *freed.entry(gate).or_default() += 1;
    }
    if !fault::is_on(Fault::KeepPlaces) {
        held::hand_over(&freed);
    }
}

/// Cuts the starts at a gate that a clock which was put back left ahead.
pub fn cut_starts(gate: i64) {
    CUT_STARTS.execute(&[big(gate), big(time::now())]);
}

/// For a fetch that began so long ago, a start still counts that would no longer do so now.
const SLOWEST_FETCH: Interval = Interval::of_micros(60_000_000);

/// Forgets up to so many starts that no longer count for a rate; how many.
pub fn forget_starts(now: i64, limit: i64) -> usize {
    if !are_here() {
        return 0;
    }
    let rules = config_cache::rules();
    let now = time::ago(now, SLOWEST_FETCH).unwrap_or(i64::MIN);
    let since =
        |rule: &Rule| rule.periods().map(|period| time::ago(now, period).unwrap_or(i64::MIN)).min();
    let args = [
        column(TEXT, &rules[..], |rule| text(&rule.name)),
        column(AT, &rules[..], |rule| since(rule).and_then(big)),
        big(limit),
    ];
    let forgotten = FORGET_STARTS
        .list(&args, |rows, row| Some((rows.get::<i64>(row, "gate")?, rows.get::<i64>(row, "n")?)));
    FORGOTTEN.with_borrow_mut(|(by, last)| {
        if *by != versions::local_transaction() {
            (*by, *last) = (versions::local_transaction(), HashMap::new());
        }
        for (gate, n) in &forgotten {
            last.entry(*gate).and_modify(|last| *last = (*last).max(*n)).or_insert(*n);
        }
    });
    forgotten.len()
}

/// Which of these jobs of a queue limits cover, and how; `None` for those that are gone.
pub fn covered(rules: &[Rule], queue: &Queue, ids: &[i64]) -> Vec<Option<Covered>> {
    let found = of_jobs(rules, ids, Some(queue.name())).into_iter();
    let mut found: HashMap<i64, Covered> = found.map(|job| (job.id, job)).collect();
    ids.iter().map(|id| found.remove(id)).collect()
}

/// What covers those of these jobs that are there, in a queue or each in its own.
pub fn of_jobs(rules: &[Rule], ids: &[i64], queue: Option<&str>) -> Vec<Covered> {
    JOBS.run(&[bigs(ids)], |rows| {
        (0..rows.len()).map(|row| read(rules, rows, row, queue)).collect()
    })
}

/// Reads a job; a fetched one counts for the queue that it was fetched from.
pub fn read(rules: &[Rule], rows: &Tuples, row: usize, queue: Option<&str>) -> Covered {
    let (own, kind): (String, String) = (rows.given(row, "queue"), rows.given(row, "kind"));
    let subject = Subject {
        queue: queue.unwrap_or(&own),
        kind: &kind,
        args: rows.raw(row, "args").map_or(Jsonb::empty_object(), Jsonb::from_datum),
        meta: rows.raw(row, "meta").map(Jsonb::from_datum),
        priority: rows.given(row, "priority"),
    };
    Covered::of(rules, &subject, rows.given(row, "id"), rows.get(row, "expires_at"))
}

/// Gates as the text of an array: no parameter can be an array of arrays of different lengths.
pub(super) fn as_array(gates: impl Iterator<Item = i64>) -> Arg {
    let gates: Vec<String> = gates.map(|gate| gate.to_string()).collect();
    text(&format!("{{{}}}", gates.join(",")))
}

/// Gives jobs that run the permits that they need by rules that have just been written, whether or
/// not there is room. Waits for transactions that start or end attempts, and they wait for this
/// one: afterwards each goes by the new rules.
pub fn rules_changed() {
    LOCK_RUNNING.execute(&[]);
    let rules = rules::all(Snapshot::Latest);
    let running = RUNNING.run_as_of(Snapshot::Latest, &[], |rows| {
        (0..rows.len()).map(|row| read(&rules, rows, row, None)).collect::<Vec<_>>()
    });
    FREED.set(Some(versions::local_transaction()));
    let before: i64 = COUNT.value_as_of(Snapshot::Latest, &[]).unwrap_or(0);
    let mut are_all = CLEAR.execute(&[]) as i64 == before;
    let (mut permits, mut numbers) = (Vec::new(), Vec::new());
    for job in &running {
        let n = name::next_value(&shapes::JOB_SEQ);
        numbers.push(n);
        for gate in job.limits(&rules) {
            let (name, key) = (rules[gate.rule].name.as_str(), gate.key.as_deref());
            permits.push(PermitRow { gate: gate.id, n, job_id: job.id, name, key });
        }
    }
    write(&permits, &[]);
    let replaced = REPLACE.execute(&[
        column(INT8, &running, |job| big(job.id)),
        bigs(&numbers),
        column(TEXT, &running, |job| as_array(job.limits(&rules).map(|gate| gate.id))),
    ]);
    are_all &= replaced == running.len();
    if !are_all {
        // An old snapshot hides what others have started or ended since.
        Error::serialization_of_limits().raise();
    }
    crate::shmem::leases::noted(i64::MIN);
}

plans! {
    INSERT(INT8S, INT8S, INT8S, TEXTS, TEXTS) =
        "INSERT INTO jobs.permit (gate, n, job_id, name, key)
         SELECT p.gate, p.n, p.job_id, p.name, p.key FROM unnest($1, $2, $3, $4, $5) AS p(gate, n, job_id, name, key)";
    INSERT_STARTS(INT8S, INT8S, ATS, TEXTS, TEXTS) =
        "INSERT INTO jobs.limit_start (gate, n, at, name, key)
         SELECT s.gate, s.n, s.at, s.name, s.key::jsonb FROM unnest($1, $2, $3, $4, $5) AS s(gate, n, at, name, key)";
    DELETE(INT8S, INT8S) =
        "DELETE FROM jobs.permit p USING unnest($1, $2) AS g(gate, n) WHERE p.gate = g.gate AND p.n = g.n";
    CUT_STARTS(INT8, AT) =
        "UPDATE jobs.limit_start SET at = $2
          WHERE ctid = ANY (ARRAY(SELECT s.ctid FROM jobs.limit_start s WHERE s.gate = $1 AND s.at > $2 FOR UPDATE SKIP LOCKED))";
    FORGET_STARTS(TEXTS, ATS, INT8) =
        "DELETE FROM jobs.limit_start WHERE ctid = ANY (ARRAY(
           SELECT s.ctid FROM jobs.limit_start s LEFT JOIN unnest($1, $2) AS r(name, since) ON r.name = s.name
            WHERE r.since IS NULL OR s.at < r.since LIMIT $3 FOR UPDATE OF s SKIP LOCKED))
         RETURNING gate, n";
    JOBS(INT8S) =
        "SELECT j.id, j.queue, j.kind, j.priority, j.expires_at, j.args, j.meta FROM jobs.job j WHERE j.id = ANY ($1)";
    LOCK_RUNNING() = "LOCK TABLE jobs.running IN SHARE ROW EXCLUSIVE MODE";
    RUNNING() =
        "SELECT j.id, COALESCE(r.queue, j.queue) AS queue, j.kind, j.priority, j.expires_at, j.args, j.meta
           FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id ORDER BY r.job_id";
    COUNT() = "SELECT count(*) FROM jobs.permit";
    CLEAR() = "DELETE FROM jobs.permit";
    REPLACE(INT8S, INT8S, TEXTS) =
        "UPDATE jobs.running r SET permit = p.n, gates = p.gates::bigint[]
           FROM unnest($1, $2, $3) AS p(id, n, gates) WHERE r.job_id = p.id";
}
