//! Starting attempts: out of `ready`, into `running`.

use std::collections::BTreeMap;

use jobs_core::interval::Interval;
use pgrx::pg_sys::{Datum, Oid};

use super::columns::columns;
use super::config_cache;
use super::count::waits_since;
use super::direct::fetch::JobRow;
use super::direct::{self, shapes};
use super::effects::{self, Told};
use super::held::{self, Held};
use super::permits::{self, Covered, Gate, Permit};
use super::queue::Queue;
use super::rules::{Rule, WINDOW};
use super::spi::{Arg, Plan, Value, big, bigs, column, plans, rows, text, texts};
use super::turns;
use super::types::*;
use crate::error::Error;
use crate::pg::{jsonb, lock, time, transaction};
use crate::settings::LONGEST_ROW;
use crate::shmem::tally::{self, Pair};

/// What an attempt may take where neither the job nor its kind says it. The view `jobs.jobs` has it
/// as well.
pub const DEFAULT_TIMEOUT: Interval = Interval::of_micros(60_000_000);
/// A lease where neither the fetch nor a timeout says how long.
pub const DEFAULT_LEASE: Interval = Interval::of_micros(3_600_000_000);

pub struct Fetch<'a> {
    pub now: i64,
    pub worker: &'a str,
    /// `None`: the job's timeout, else [`DEFAULT_LEASE`]
    pub lease: Option<Interval>,
    /// `None`: all
    pub kinds: Option<&'a [String]>,
}

/// What a fetch may take of a queue with limits.
pub struct Room<'a> {
    /// A slot for each job that may run; `None` without a limit.
    pub slots: Option<&'a [i64]>,
    /// A start for each job that may start, and the time after which each is free again.
    pub starts: Option<(&'a [i64], Interval)>,
    /// How many due jobs the fetch made available.
    pub promoted: usize,
}

/// Takes a row: the columns of `jobs.fetch`, and maybe more.
pub type Emit<'a> = &'a mut dyn FnMut(Vec<Datum>, Vec<bool>);

columns! {
    /// What [`START`] returns: the columns of `jobs.fetched_job`; since when the job has waited;
    /// and when a hold ends that the job gives back at its start.
    fetched {
        ID: INT8 not null,
        TOKEN: INT8 not null,
        ATTEMPT: INT4 not null,
        KIND: TEXT not null,
        ARGS: JSONB not null,
        META: JSONB not null,
        QUEUE: TEXT not null,
        PRIORITY: INT4 not null,
        TAGS: TEXTS not null,
        MAX_ATTEMPTS: INT4 not null,
        CREATED_AT: AT not null,
        SCHEDULED_AT: AT not null,
        ATTEMPTED_AT: AT not null,
        LEASE_EXPIRES_AT: AT not null,
        DEADLINE_AT: AT,
        WAITS_SINCE: AT not null,
        HOLD_ENDS_AT: AT,
    }
}

/// The types of the columns of `jobs.fetched_job`.
pub const FETCHED_JOB: &[Oid] = fetched::TYPES.split_at(RETURNED).0;
pub(super) const RETURNED: usize = fetched::WAITS_SINCE as usize - 1;

/// A job whose attempt was started.
pub(super) struct Started {
    pub id: i64,
    /// Its queue and kind, for the history.
    pub pair: Pair,
    /// Since when it has waited.
    pub since: i64,
    /// Until when it held its key, which it releases at its start.
    pub hold_ends_at: Option<i64>,
    pub lease_ends_at: i64,
}

/// How many attempts a fetch has started, and how many jobs it has left to their limits instead.
#[derive(Default)]
pub struct Began {
    pub started: usize,
    pub held: usize,
}

/// Starts attempts at up to as many jobs of a queue as there are tokens.
pub fn start(queue: &Queue, fetch: &Fetch, tokens: &[i64], room: &Room, emit: Emit) -> Began {
    // Who changes limits waits for those who have this lock, so they do not change from here on.
    lock::to_write(shapes::RUNNING.name.oid());
    let rules = config_cache::rules();
    let limits = Limits { rules: &rules, queue, now: fetch.now };
    let limits = rules.iter().any(|rule| rule.covers_queue(queue.name())).then_some(limits);
    let asked = limits.as_ref().filter(|limits| limits.are_asked());
    let (started, held) = direct::fetch::start(queue, fetch, tokens, room, asked, emit)
        .unwrap_or_else(|| match limits {
            None => (start_by_statement(queue, fetch, tokens, room, emit), 0),
            Some(limits) => start_with_permits(&limits, fetch, tokens, room, emit),
        });
    effects::started(queue, fetch, room, &started);
    Began { started: started.len(), held }
}

/// The limits by key of a queue, for a fetch.
pub struct Limits<'a> {
    pub rules: &'a [Rule],
    pub queue: &'a Queue,
    pub now: i64,
}

rows! {
    /// A job that was taken out of its lane.
    pub struct Picked {
        pub seq: i64,
        pub job_id: i64,
        pub scheduled_at: Option<i64>,
        pub available_at: Option<i64>,
        pub attempt: i32,
        pub priority: i16,
        /// The gate that it counts for in its lane.
        pub gate: Option<i64>,
    }
}

impl Picked {
    /// Whether the job's position is a turn of another key than that of this gate: the job was
    /// inserted while the queue's order changed.
    pub fn has_turn_of_another(&self, gate: i64) -> bool {
        self.seq < 0 && self.gate != Some(gate)
    }
}

/// A job that may start, with its permit and its row of `job`, where that was kept.
pub type Admitted = (Picked, Permit, Option<JobRow>);

impl Limits<'_> {
    /// Whether anything but a fair order covers jobs of the queue.
    fn are_asked(&self) -> bool {
        let covering = self.rules.iter().filter(|rule| rule.covers_queue(self.queue.name()));
        covering
            .map(|rule| rule.order.as_ref())
            .any(|order| order.is_none_or(|order| order.is_strict))
    }

    /// Keeps those of the jobs that may start, with their permits and rows, and has the others
    /// held. Jobs that are gone are left out.
    pub fn admit(
        &self,
        picked: Vec<Picked>,
        covered: Vec<Option<Covered>>,
    ) -> (Vec<Admitted>, usize) {
        let both = picked.into_iter().zip(covered);
        let is_there = |(one, covered): (Picked, Option<Covered>)| {
            if covered.is_none() {
                not_seen(one.job_id);
            }
            Some((one, covered?))
        };
        let (picked, covered): (Vec<_>, Vec<_>) = both.filter_map(is_there).unzip();
        let (mut may_start, mut held) = (Vec::new(), Vec::new());
        let mut passed_on = BTreeMap::new();
        let (admitted, ended) = permits::admit(self.rules, self.queue, &covered, &picked, self.now);
        for ((one, covered), admitted) in picked.into_iter().zip(covered).zip(admitted) {
            let order_of = |gate: &Gate| self.rules[gate.rule].order.as_ref();
            let full = match admitted {
                Ok(permit) => {
                    let is_fair =
                        |gate: &&Gate| order_of(gate).is_some_and(|order| !order.is_strict);
                    let fair = covered.gates.first().filter(is_fair);
                    let fair = fair.filter(|_| turns::looks_for_others(&one));
                    fair.map(|gate| passed_on.insert(gate.id, WINDOW as i64));
                    may_start.push((one, permit, covered.row));
                    continue;
                }
                Err(full) => &covered.gates[full],
            };
            if let Some(gate) = one.gate.filter(|gate| order_of(full).is_some() || *gate != full.id)
            {
                *passed_on.entry(gate).or_default() += 1;
            }
            let one = Held {
                job_id: one.job_id,
                seq: match order_of(full).is_some() && one.has_turn_of_another(full.id) {
                    true => one.job_id,
                    false => one.seq,
                },
                scheduled_at: one.scheduled_at,
                available_at: one.available_at,
                expires_at: covered.expires_at,
                attempt: one.attempt,
                priority: one.priority,
                queue: self.queue.clone(),
                kind: covered.kind,
                gate: full.id,
                name: String::new(),
                key: full.key.clone(),
            };
            held.push(one.by(&self.rules[full.rule]));
        }
        held::hold(&held);
        turns::end(&ended);
        // Another gate holds these, and the one that let them go has its place still.
        held::hand_over(&passed_on);
        (may_start, held.len())
    }
}

/// The row of a job that a fetch took is not seen: it is gone, or an old snapshot hides it. Then a
/// place was handed over to the job in this transaction, which must not lose it.
pub fn not_seen(id: i64) {
    if !transaction::is_read_committed() {
        Error::serialization(id).raise();
    }
}

/// How long the text is of what a job carries, of which these are the columns of
/// `jobs.fetched_job`, where it is so long that no row can be returned that has it.
pub fn too_long(values: &[Datum]) -> Option<u64> {
    let at = |column: i32| values[column as usize - 1];
    // Each character of a tag may have to be escaped.
    let others =
        2 * (jsonb::stored_bytes(at(fetched::TAGS)) + jsonb::stored_bytes(at(fetched::KIND)));
    let most = LONGEST_ROW.saturating_sub(others);
    let carried = [at(fetched::ARGS), at(fetched::META)];
    let length = jsonb::stored_length_above(most, &carried);
    length.map(|length| length + others)
}

/// The id and token of a job, of which these are the columns of `jobs.fetched_job`.
pub fn id_and_token(values: &[Datum]) -> (i64, i64) {
    let at = |column: i32| values[column as usize - 1].value() as i64;
    (at(fetched::ID), at(fetched::TOKEN))
}

/// Since when a job has waited.
pub fn since(values: &[Datum]) -> i64 {
    values[fetched::WAITS_SINCE as usize - 1].value() as i64
}

/// Since when each of up to so many jobs of a queue waits that a fetch could start now, as
/// far as limits are left aside.
pub fn available_since(queue: &Queue, fetch: &Fetch, most: usize) -> Vec<i64> {
    direct::fetch::available_since(queue, fetch, most).unwrap_or_else(|| {
        let args = [queue.arg(), big(fetch.now), big(most as i64), fetch.kinds.and_then(texts)];
        AVAILABLE_SINCE.values(&args)
    })
}

fn start_by_statement(
    queue: &Queue,
    fetch: &Fetch,
    tokens: &[i64],
    room: &Room,
    emit: Emit,
) -> Vec<Started> {
    let mut args = starting_args(queue, fetch, tokens, room);
    let plan = match fetch.kinds {
        None => &START,
        Some(kinds) => {
            args.push(texts(kinds));
            &START_KINDS
        }
    };
    started(plan, &args, queue, emit)
}

/// As [`start_by_statement`], but of jobs that limits cover only those that have room.
fn start_with_permits(
    limits: &Limits,
    fetch: &Fetch,
    tokens: &[i64],
    room: &Room,
    emit: Emit,
) -> (Vec<Started>, usize) {
    let queue = limits.queue;
    let mut args = vec![queue.arg(), big(fetch.now), big(tokens.len() as i64)];
    args.push(fetch.kinds.and_then(texts));
    let mut picked: Vec<Picked> = PICK.rows(&args);
    picked.sort_by_key(|one| (one.priority, one.seq));
    let ids: Vec<i64> = picked.iter().map(|one| one.job_id).collect();
    let covered = permits::covered(limits.rules, queue, &ids);
    let (may_start, held) = limits.admit(picked, covered);
    if may_start.is_empty() {
        return (Vec::new(), held);
    }
    let mut args = starting_args(queue, fetch, tokens, room);
    args.extend([
        column(INT8, &may_start, |(one, ..)| big(one.seq)),
        column(INT8, &may_start, |(one, ..)| big(one.job_id)),
        column(AT, &may_start, |(one, ..)| one.scheduled_at.and_then(big)),
        column(AT, &may_start, |(one, ..)| one.available_at.and_then(big)),
        column(INT4, &may_start, |(one, ..)| Some(one.attempt.into())),
        column(INT8, &may_start, |(_, permit, _)| big(permit.n)),
        column(TEXT, &may_start, |(_, permit, _)| permits::as_array(permit.gates.iter().copied())),
    ]);
    (started(&START_PICKED, &args, queue, emit), held)
}

fn starting_args(queue: &Queue, fetch: &Fetch, tokens: &[i64], room: &Room) -> Vec<Arg> {
    vec![
        queue.arg(),
        big(fetch.now),
        big(tokens.len() as i64),
        bigs(tokens),
        fetch.lease.map(time::interval_datum),
        text(fetch.worker),
        room.slots.and_then(bigs),
        big(time::add(fetch.now, DEFAULT_TIMEOUT)),
        big(time::add(fetch.now, DEFAULT_LEASE)),
    ]
}

fn started(plan: &Plan, args: &[Arg], queue: &Queue, emit: Emit) -> Vec<Started> {
    plan.list(args, |rows, row| {
        let (values, nulls) = rows.datums(row);
        emit(values, nulls);
        Some(Started {
            id: rows.at(row, fetched::ID)?,
            pair: tally::pair(queue.name(), &rows.at::<String>(row, fetched::KIND)?),
            since: rows.at(row, fetched::WAITS_SINCE)?,
            hold_ends_at: rows.at(row, fetched::HOLD_ENDS_AT),
            lease_ends_at: rows.at(row, fetched::LEASE_EXPIRES_AT)?,
        })
    })
}

/// Makes up to `limit` jobs of a queue available that came due from then on, but not these, in the
/// order in which they were due; how many.
pub fn promote_due(
    queue: &Queue,
    from: i64,
    now: i64,
    limit: i64,
    but: &[i64],
    told: Told,
) -> usize {
    let args = [queue.arg(), big(now), big(limit), bigs(but), big(from)];
    let promoted = PROMOTE_DUE
        .list(&args, |rows, row| Some((rows.get(row, "priority")?, rows.get(row, "seq")?)));
    effects::promoted(queue, &promoted, told);
    promoted.len()
}

// When the time of an attempt is over that begins at $2.
const DEADLINE: &str = "CASE WHEN j.timeout IS NULL THEN $8
          WHEN j.timeout > '0' THEN GREATEST($2, $2 + j.timeout) END";

// The rows are locked before they are deleted, so their ctids stay true; a deleted row
// is nobody else's. Numbered in the order of the lane, each takes its token by number.
// Everything is computed once, before the lease is inserted: joining what the insert
// returns would compare every row with every other.
fn picking(filter: &str, and: &str) -> String {
    format!(
        "DELETE FROM jobs.ready
            WHERE ctid = ANY (ARRAY(
              SELECT r.ctid FROM jobs.ready r
               WHERE r.queue = $1 AND (r.expires_at IS NULL OR r.expires_at > $2){filter}
               ORDER BY r.priority, r.seq LIMIT $3 FOR UPDATE SKIP LOCKED))
           RETURNING seq, job_id, scheduled_at, available_at, attempt, priority{and}"
    )
}

// The previous version's table has no permits.
fn starting(picked: &str, has_permits: bool) -> String {
    let permits = if has_permits { ", permit, gates" } else { "" };
    format!(
        "WITH picked AS MATERIALIZED (
           {picked}),
         job AS (
           SELECT row_number() OVER (ORDER BY j.priority, p.seq) AS n, p.attempt + 1 AS attempt, p.scheduled_at AS rescheduled_at{permits}, {} AS waits_since, j.*,
                  CASE WHEN j.hold_ends_at > $2 THEN j.hold_until END AS holds_until,
{DEADLINE} AS deadline_at
             FROM picked p JOIN jobs.job j ON j.id = p.job_id),
         lease AS MATERIALIZED (
           SELECT j.*, $4[n] AS token,
                  LEAST(CASE WHEN $5 IS NOT NULL THEN GREATEST($2, $2 + $5)
                             ELSE COALESCE(deadline_at, $9) END, deadline_at)
                    AS lease_expires_at
             FROM job j),
         started AS (
           INSERT INTO jobs.running (job_id, token, attempted_at, lease_expires_at, deadline_at, scheduled_at, hold_ends_at, slot, attempt, lease, worker{permits})
           SELECT id, token, $2, lease_expires_at, deadline_at, rescheduled_at,
                  CASE WHEN holds_until = 'success' THEN hold_ends_at END, $7[n], attempt, $5, $6{permits} FROM lease)
         SELECT id, token, attempt, kind, args, COALESCE(meta, '{{}}'), queue, priority::integer,
                COALESCE(tags, '{{}}'), max_attempts, created_at,
                COALESCE(rescheduled_at, scheduled_at, created_at), $2, lease_expires_at, deadline_at, waits_since,
                CASE WHEN holds_until = 'start' THEN hold_ends_at END
           FROM lease ORDER BY n",
        waits_since("p", "j")
    )
}

fn of_kinds(parameter: usize) -> String {
    format!(" AND (SELECT k.kind FROM jobs.job k WHERE k.id = r.job_id) = ANY (${parameter})")
}

plans! {
    START(TEXT, AT, INT8, INT8S, SPAN, TEXT, INT8S, AT, AT) =>
        starting(&picking("", ""), false);
    START_KINDS(TEXT, AT, INT8, INT8S, SPAN, TEXT, INT8S, AT, AT, TEXTS) =>
        starting(&picking(&of_kinds(10), ""), false);
    PICK(TEXT, AT, INT8, TEXTS) => picking(&format!(" AND ($4 IS NULL OR {})", &of_kinds(4)[5..]), ", gate");
    START_PICKED(TEXT, AT, INT8, INT8S, SPAN, TEXT, INT8S, AT, AT, INT8S, INT8S, ATS, ATS, INT4S, INT8S, TEXTS) =>
        starting(
            "SELECT p.seq, p.job_id, p.scheduled_at, p.available_at, p.attempt, p.permit, p.gates::bigint[] AS gates
               FROM unnest($10, $11, $12, $13, $14, $15, $16) AS p(seq, job_id, scheduled_at, available_at, attempt, permit, gates)",
            true,
        );
    AVAILABLE_SINCE(TEXT, AT, INT8, TEXTS) =
        "SELECT {waits_since}
       FROM (SELECT r.job_id, r.scheduled_at, r.available_at FROM jobs.ready r
              WHERE r.queue = $1 AND (r.expires_at IS NULL OR r.expires_at > $2)
                AND ($4 IS NULL OR (SELECT k.kind FROM jobs.job k WHERE k.id = r.job_id) = ANY ($4))
              ORDER BY r.priority, r.seq LIMIT $3) r
       JOIN jobs.job j ON j.id = r.job_id",
        waits_since = waits_since("r", "j");
    PROMOTE_DUE(TEXT, AT, INT8, INT8S, AT) =
        "WITH due AS MATERIALIZED (
           DELETE FROM jobs.scheduled
            WHERE ctid = ANY (ARRAY(
              SELECT s.ctid FROM jobs.scheduled s WHERE s.queue = $1 AND s.due_at >= $5 AND s.due_at <= $2 AND s.job_id <> ALL ($4)
                  AND EXISTS (SELECT FROM jobs.job j WHERE j.id = s.job_id)
               ORDER BY s.due_at LIMIT $3 FOR UPDATE SKIP LOCKED))
           RETURNING job_id, due_at, expires_at, attempt, queue)
         INSERT INTO jobs.ready (seq, job_id, scheduled_at, expires_at, attempt, priority, queue)
         SELECT nextval('jobs.job_seq'), o.job_id, o.rescheduled_at, o.expires_at, o.attempt, o.priority, o.queue
           FROM (SELECT d.*, j.priority, NULLIF(d.due_at, j.scheduled_at) AS rescheduled_at
                   FROM due d JOIN jobs.job j ON j.id = d.job_id ORDER BY d.due_at, d.job_id) o
         RETURNING priority, seq";
}
