//! Claims: which jobs were inserted under a key. The primary key of `unique_claim` is
//! what decides between rivals, at every isolation level.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use jobs_core::interval::Interval;
use jobs_core::key::Key;
use jobs_core::state::{State, States};
use pgrx::IntoDatum;
use pgrx::pg_sys::{Datum, Oid};

use super::direct::shapes;
use super::spi::{Arg, Plan, Tuples, bigs};
use super::types::*;
use super::under;
use crate::fault;
use crate::pg::memory::Scratch;
use crate::pg::row::NewRow;
use crate::pg::scan::{self, Seen};
use crate::pg::table::Table;
use crate::pg::time;
use crate::pg::transaction;
use crate::pg::{array, dirty, lock, subxact};

/// A job that was inserted under a key: it still exists, or still holds the key.
#[derive(Clone, Debug)]
pub struct Holder {
    /// its id
    pub id: i64,
    /// the job; `None`: it is gone, only its hold is left
    pub job: Option<HolderJob>,
    /// until when it holds the key by itself, if it has not given it back
    pub hold_ends_at: Option<i64>,
}

/// What counts of a holder that exists.
#[derive(Clone, Debug)]
pub struct HolderJob {
    /// where it is now
    pub state: State,
    /// its queue
    pub queue: Rc<str>,
    /// when it was inserted
    pub created_at: i64,
    /// when it is or was due
    pub scheduled_at: i64,
    /// when it became final
    pub finalized_at: Option<i64>,
    /// what its retention does not shorten, which few jobs have
    pub kept: Option<Box<KeptFinal>>,
}

/// By no more than that the end of a window of days and months differs between time zones, in microseconds: a day or so,
/// and what the months that it begins and ends in differ by.
const ZONES_DIFFER: i64 = 96 * 3600 * 1_000_000;

/// What keeps a job once it is final, as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptFinal {
    until: Option<i64>,
    window: Option<Interval>,
    states: i16,
}

impl KeptFinal {
    /// From the columns of `job`.
    pub fn of(
        until: Option<i64>,
        window: Option<Interval>,
        states: Option<i16>,
    ) -> Option<KeptFinal> {
        states.map(|states| KeptFinal {
            until,
            window,
            states,
        })
    }

    /// Until when the job is kept if it ends, or has ended, in this state.
    pub fn until(&self, state: State, scheduled_at: i64) -> Option<i64> {
        self.until_longer(state, scheduled_at, |_| 0)
    }

    /// The same, whatever the time zone of who asks: days and months are those of a session's own.
    pub fn until_everywhere(&self, state: State, scheduled_at: i64) -> Option<i64> {
        self.until_longer(state, scheduled_at, |window| {
            let is_of_days = window.months != 0 || window.days != 0;
            if is_of_days { ZONES_DIFFER } else { 0 }
        })
    }

    fn until_longer(
        &self,
        state: State,
        scheduled_at: i64,
        longer: impl Fn(Interval) -> i64,
    ) -> Option<i64> {
        let is_one = i16::from(States::of(&[state]).final_bits()) & self.states != 0;
        let window_ends = || {
            self.window.map(|window| {
                time::end_of_window(scheduled_at, window).saturating_add(longer(window))
            })
        };
        is_one.then(|| self.until.max(window_ends())).flatten()
    }
}

/// The name of a queue, which many jobs in a row share.
pub fn shared(queue: &str) -> Rc<str> {
    thread_local! {
        static LATEST: RefCell<Rc<str>> = RefCell::new(Rc::from(""));
    }
    LATEST.with_borrow_mut(|latest| {
        if **latest != *queue {
            *latest = Rc::from(queue);
        }
        latest.clone()
    })
}

impl HolderJob {
    /// Until when its own period or window keeps it, if it is final.
    pub fn kept_until(&self) -> Option<i64> {
        let kept = self.kept.as_ref()?;
        kept.until(self.state, self.scheduled_at)
    }
}

impl Holder {
    /// The state of the job, if it exists.
    pub fn state(&self) -> Option<State> {
        self.job.as_ref().map(|job| job.state)
    }
}

/// What stands under a key that has a claim.
#[derive(Default)]
pub struct Found {
    /// a row a job, by id
    holders: BTreeMap<i64, Holder>,
    /// A job of the list is gone, or one has come back: it may be what a job that was put
    /// aside was put aside for.
    pub is_outdated: bool,
    /// the notes of jobs that came back
    returns: Vec<i64>,
    /// jobs of which the list says that they hold the key, and which have given it back
    released: Vec<i64>,
}

impl Found {
    /// The jobs, in the order of their ids, and what a new list of the key makes superfluous.
    pub fn take_apart(self) -> (Vec<Holder>, Superseded) {
        let superseded = Superseded {
            returns: self.returns,
            released: self.released,
        };
        (self.holders.into_values().collect(), superseded)
    }

    /// Jobs that hold nothing by themselves, each as it is, if it is there.
    fn of(listed: Vec<(i64, Option<HolderJob>)>) -> Found {
        let mut found = Found::default();
        for (id, job) in listed {
            found.add(
                Holder {
                    id,
                    job,
                    hold_ends_at: None,
                },
                false,
                None,
            );
        }
        found
    }

    /// A claim without any job gives one row of nulls. A job in no place at all is not
    /// there: its row is left from something that went wrong.
    fn read(&mut self, rows: &Tuples, row: usize) {
        let Some(id) = rows.big(row, 2) else {
            return;
        };
        let released = rows.bool(row, 9) == Some(true);
        let hold_ends_at = rows.big(row, 8).filter(|_| !released);
        let returned = rows.big(row, 10);
        let job = rows.state(row, 3).map(|state| HolderJob {
            state,
            queue: shared(&rows.text(row, 4).expect("queues are not null")),
            created_at: rows.big(row, 5).expect("it is not null"),
            scheduled_at: rows.big(row, 6).expect("it has a default"),
            finalized_at: rows.big(row, 7),
            kept: KeptFinal::of(rows.big(row, 11), rows.span(row, 12), rows.small(row, 13))
                .map(Box::new),
        });
        self.add(
            Holder {
                id,
                job,
                hold_ends_at,
            },
            released,
            returned,
        );
    }

    fn add(&mut self, new: Holder, released: bool, returned: Option<i64>) {
        self.is_outdated |= new.job.is_none() || returned.is_some();
        self.returns.extend(returned);
        self.released.extend(released.then_some(new.id));
        if new.job.is_none() && new.hold_ends_at.is_none() {
            return;
        }
        // One that came back may be in the list as well; only there is its hold.
        let hold_ends_at = new.hold_ends_at;
        let holder = self.holders.entry(new.id).or_insert(new);
        holder.hold_ends_at = holder.hold_ends_at.max(hold_ends_at);
    }
}

/// What is of no use any more once the list of a key is written anew.
#[derive(Default)]
pub struct Superseded {
    returns: Vec<i64>,
    released: Vec<i64>,
}

/// New lists of keys that the caller has locked; what is put aside is so for what is listed.
#[derive(Default)]
pub struct Lists {
    listed: Vec<Listed>,
    aside: Vec<(Key, i64)>,
    returns: Vec<(Key, i64)>,
    released: Vec<i64>,
}

impl Lists {
    /// Adds a job to the list of its key.
    pub fn list(&mut self, job: Listed) {
        self.listed.push(job);
    }

    /// Puts a job aside.
    pub fn put_aside(&mut self, key: Key, id: i64) {
        self.aside.push((key, id));
    }

    /// Leaves out what the list that was looked at said besides.
    pub fn supersede(&mut self, key: Key, superseded: &Superseded) {
        let returns = superseded.returns.iter().map(|seq| (key, *seq));
        self.returns.extend(returns);
        self.released.extend(&superseded.released);
    }

    /// Writes them. Always writes the claims, so that a rival with an older snapshot gets 40001.
    /// Of the notes only those go that were looked at: others may have come since.
    pub fn write(mut self) {
        self.listed.sort_unstable_by_key(|job| (job.key, job.id));
        if !self.listed.is_empty() && self.write_directly().is_none() {
            let scratch = Scratch::new();
            for some in by_key(&self.listed) {
                scratch.within(|| {
                    let columns = listed_columns(some);
                    SET_LISTS.execute(&columns);
                    LISTED_AGAIN.execute(&columns[..2]);
                });
            }
            execute_for(&PUT_ASIDE, &self.aside);
            if !transaction::is_read_committed() {
                // An older snapshot may have shown them after they were deleted, and after what that left was cleared away.
                let keys: BTreeSet<Key> = self.aside.iter().map(|(key, _)| *key).collect();
                note_orphans(&keys, time::now());
            }
        }
        execute_for(&FORGET_RETURNS, &self.returns);
        forget_releases(&self.released);
    }

    /// The lists, and what is put aside, without statements; `None`: use statements.
    fn write_directly(&self) -> Option<()> {
        // An older snapshot may show a claim that is gone by now.
        let claims = open().filter(|_| transaction::is_read_committed())?;
        let aside = Table::open(&shapes::UNIQUE_FOLDED)?;
        transaction::make_visible();
        let seen = Seen::now();
        let scratch = Scratch::new();
        for some in by_key(&self.listed) {
            scratch.within(|| {
                let mut scan = claims.scan(&shapes::UNIQUE_CLAIM.key, &seen, 1).backward();
                for jobs in some.chunk_by(|a, b| a.key == b.key) {
                    pgrx::check_for_interrupts!();
                    scan.find(&[key_is(jobs[0].key)]);
                    if let Some(found) = scan.next() {
                        claims.update(&found, row(&claims, jobs), &shapes::UNIQUE_CLAIM.key);
                    }
                }
                drop(scan);
                let mut scan = aside.scan(&shapes::UNIQUE_FOLDED.key, &seen, 2);
                for job in some {
                    pgrx::check_for_interrupts!();
                    scan.find(&[key_is(job.key), scan::Key::big(2, job.id)]);
                    if let Some(found) = scan.next() {
                        aside.delete(&found, true);
                    }
                }
            });
        }
        drop(seen);
        for some in self.aside.chunks(AT_ONCE) {
            scratch.within(|| {
                for (key, id) in some {
                    pgrx::check_for_interrupts!();
                    let job = aside.row(&[bytes(*key), Some(Datum::from(*id))]);
                    aside.insert_unless_taken(job);
                }
            });
        }
        transaction::make_visible();
        Some(())
    }
}

/// Of so many keys or jobs at once the parameters of a statement, or what else Postgres wants memory for, do not fill it.
pub const AT_ONCE: usize = 10_000;

/// Jobs that are in the order of their keys, some at once, all of a key together.
fn by_key(mut rest: &[Listed]) -> impl Iterator<Item = &[Listed]> {
    std::iter::from_fn(move || {
        let mut count = rest.len().min(AT_ONCE);
        while (1..rest.len()).contains(&count) && rest[count].key == rest[count - 1].key {
            count += 1;
        }
        let (some, behind) = rest.split_at(count);
        rest = behind;
        (count > 0).then_some(some)
    })
}

/// A job in the list of a key.
#[derive(Clone)]
pub struct Listed {
    /// the key
    pub key: Key,
    /// the job
    pub id: i64,
    /// until when it holds the key by itself
    pub hold_ends_at: Option<i64>,
}

/// What a claim lists; `None` if the key has no claim. Takes no lock.
pub fn look(key: Key) -> Option<Found> {
    let listed = match fault::reads_outer_snapshot() {
        true => Err(()),
        false => under::listed(key),
    };
    match listed {
        Ok(listed) => listed.map(Found::of),
        Err(()) => look_by(&LOOK_MANY, &[key]).remove(&key),
    }
}

/// What the claims of some keys list; keys without a claim are left out. A claim that is there, and that the statement does
/// not see, as that of a transaction which is still open, lists nothing. Takes no lock.
pub fn look_many(keys: &[Key]) -> BTreeMap<Key, Found> {
    match keys {
        [] => BTreeMap::new(),
        [key] => look(*key).map(|found| (*key, found)).into_iter().collect(),
        _ => {
            // Most keys of a batch are new, mostly: what a statement does for each is not done for them.
            let claimed = (!fault::reads_outer_snapshot()).then(|| under::claimed(keys));
            let Some(claimed) = claimed.flatten() else {
                return look_by(&LOOK_MANY, keys);
            };
            let mut found = match claimed.as_slice() {
                [] => BTreeMap::new(),
                claimed => look_by(&LOOK_MANY, claimed),
            };
            for key in claimed {
                found.entry(key).or_default();
            }
            found
        }
    }
}

/// All that stands under some keys, also what was put aside. Takes no lock.
pub fn look_at_all(keys: &[Key]) -> BTreeMap<Key, Found> {
    look_by(&LOOK_AT_ALL, keys)
}

fn look_by(plan: &Plan, keys: &[Key]) -> BTreeMap<Key, Found> {
    let mut found: BTreeMap<Key, Found> = BTreeMap::new();
    plan.run(&[Some(key_array(keys))], |rows| {
        for row in 0..rows.len() {
            let ord = rows.big(row, 1).expect("ordinality") as usize;
            found.entry(keys[ord - 1]).or_default().read(rows, row);
        }
    });
    found
}

/// In the order given: inserts a claim with the job beside the key, or, where there is one already, locks it. Waits for
/// rivals. All sessions give keys in ascending order, so that they cannot deadlock. `is_taken` says by a place among them
/// which keys are known to have a claim; `fresh` is told which were inserted.
pub fn claim_or_lock(
    claims: &[Listed],
    is_taken: impl Fn(usize) -> bool,
    mut fresh: impl FnMut(usize),
) {
    // From the first on that somebody is just inserting or deleting, in order, by a statement, which waits for that.
    let mut done = claim_or_lock_directly(claims, is_taken, true, &mut fresh);
    if done == claims.len() {
        return;
    }
    let scratch = Scratch::new();
    for some in claims[done..].chunks(AT_ONCE) {
        scratch.within(|| {
            CLAIM_OR_LOCK.run(&listed_columns(some), |rows| {
                for row in 0..rows.len() {
                    let key = rows.bytes(row, 1).expect("keys are not null");
                    let key = Key::from_bytes(&key).expect("keys have 32 bytes");
                    let index = some.binary_search_by_key(&key, |claim| claim.key);
                    fresh(done + index.expect("it was given"));
                }
            });
        });
        done += some.len();
    }
}

/// The same as far as it can be done without a statement, which is up to the first key that somebody is just inserting or
/// deleting: how many, from the first on. With `wait` it waits for who has locked one.
pub fn claim_or_lock_directly(
    claims: &[Listed],
    is_taken: impl Fn(usize) -> bool,
    wait: bool,
    mut fresh: impl FnMut(usize),
) -> usize {
    let Some(table) = (!claims.is_empty()).then(open).flatten() else {
        return 0;
    };
    let mut done = claim_together(&table, claims, |index| !is_taken(index));
    (0..done).for_each(&mut fresh);
    let mut claim_or_lock = |index: usize| {
        pgrx::check_for_interrupts!();
        let claim = &claims[index];
        let mut insert = |look: bool| {
            let inserts = (!look || is_free(&table, claim.key))
                && table.insert_unless_taken(new_row(&table, claim));
            if inserts {
                fresh(index);
            }
            inserts
        };
        let lock = || {
            transaction::is_read_committed()
                && table.lock(&shapes::UNIQUE_CLAIM.key, &[key_is(claim.key)], wait)
        };
        match is_taken(index) {
            // Who does not wait may try often, and leaves a dead row each time that a rival is there.
            false => insert(!wait) || lock(),
            // Unless whoever had it is gone by now.
            true => lock() || insert(true),
        }
    };
    let scratch = (claims.len() > done + 1).then(Scratch::new);
    while done < claims.len() {
        let some = done..claims.len().min(done + AT_ONCE);
        let count = some.len();
        let work = || some.take_while(|index| claim_or_lock(*index)).count();
        let claimed = match &scratch {
            Some(scratch) => scratch.within(work),
            None => work(),
        };
        done += claimed;
        if claimed < count {
            break;
        }
    }
    transaction::make_visible();
    done
}

/// Whether [`claim_or_lock_directly`] can do both; otherwise it can at most insert.
pub fn can_claim_or_lock_directly() -> bool {
    transaction::is_read_committed() && open().is_some()
}

/// From so many new keys on it pays to begin a subtransaction.
const WORTH_A_SUBTRANSACTION: usize = 32;

/// Inserts claims, up to the first whose key is known to have one; how many. Never waits.
///
/// An insertion that can be taken back by itself takes a lock and a second record of WAL. These can only be taken back all
/// together: that is done if a rival has come since it was looked for claims, and is what this returns none for.
fn claim_together(table: &Table, claims: &[Listed], is_new: impl Fn(usize) -> bool) -> usize {
    let new = (0..claims.len()).take_while(|index| is_new(*index)).count();
    if new < WORTH_A_SUBTRANSACTION || !subxact::has_room() {
        return 0;
    }
    let rows = claims[..new].iter().map(|claim| new_row(table, claim));
    let all = subxact::attempt_and_keep(|| table.insert_if_new(rows), |all| *all)
        .unwrap_or_else(|error| subxact::rethrow(*error));
    if all { new } else { 0 }
}

/// Whether no claim has this key, be it of a transaction that is still open.
fn is_free(table: &Table, key: Key) -> bool {
    let seen = Seen::dirty();
    let mut scan = table.scan(&shapes::UNIQUE_CLAIM.key, &seen, 1);
    scan.find(&[key_is(key)]);
    scan.next().is_none()
}

/// Inserts one claim; whether the key had none.
pub fn claim_if_new(claim: &Listed) -> Option<bool> {
    let table = open()?;
    Some(table.insert_unless_taken(new_row(&table, claim)))
}

/// The table of claims, to write to it without a statement. A serializable transaction is better off with a statement, which
/// looks for a rival and waits for it before it writes: writing first, it fails although the rival may be rolled back.
fn open() -> Option<Table> {
    let is_serializable = transaction::is_serializable();
    (!is_serializable)
        .then(|| Table::open(&shapes::UNIQUE_CLAIM))
        .flatten()
}

fn new_row(claims: &Table, claim: &Listed) -> NewRow {
    row(claims, std::slice::from_ref(claim))
}

/// The claim of a key that lists these jobs, with the ends of their holds.
fn row(claims: &Table, jobs: &[Listed]) -> NewRow {
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    let ends: Vec<Arg> = jobs
        .iter()
        .map(|job| job.hold_ends_at.map(Datum::from))
        .collect();
    let some_hold = ends.iter().any(Option::is_some);
    let hold_ends_at = some_hold.then(|| array::build(AT, &ends));
    claims.row(&[bytes(jobs[0].key), bigs(&ids), hold_ends_at])
}

/// The condition on the first column of an index that it is this key.
pub(super) fn key_is(key: Key) -> scan::Key {
    scan::Key::bytes(1, bytes(key).expect("keys are not null"))
}

/// Whether somebody else is at work on a key right now: its claim is locked, or is being
/// inserted or deleted by a transaction that is still open. Call it in a subtransaction
/// that is rolled back: it locks what it finds free.
pub fn is_contended(key: Key) -> bool {
    look_dirtily(key) == dirty::Found::InProgress
        || IS_CLAIMED.execute(&[bytes(key)]) > LOCK_FREE.execute(&[bytes(key)])
}

/// Whether a key has a claim that the transaction's snapshot does not show.
pub fn is_unseen(key: Key) -> bool {
    !transaction::is_read_committed()
        && look_dirtily(key) == dirty::Found::Row
        && IS_CLAIMED.execute(&[bytes(key)]) == 0
}

fn look_dirtily(key: Key) -> dirty::Found {
    let (table, index) = CLAIM_TABLE.run(&[], |rows| {
        let oid = |column| Oid::from(rows.datum(0, column).expect("they exist").value() as u32);
        (oid(1), oid(2))
    });
    dirty::look(table, index, bytes(key).expect("keys are not null"))
}

/// Takes the lock on the table that everybody takes who writes claims.
pub fn let_write() {
    lock::to_write(shapes::UNIQUE_CLAIM.name.oid());
}

/// Says that a final job comes back: from now on it counts under its key also if it had
/// been put aside. Never waits, whoever has locked the claim. Maintenance sees to it that
/// such notes do not pile up.
pub fn come_back(key: Key, id: i64, now: i64) {
    COME_BACK.execute(&[bytes(key), Some(Datum::from(id))]);
    note_orphans(&[key], now);
}

/// Forgets that jobs were put aside, or came back, which are being deleted. The caller has locked their claims.
pub fn forget_beside(pairs: &[(Key, i64)]) {
    for plan in [&LISTED_AGAIN, &BACK_NO_MORE] {
        execute_for(plan, pairs);
    }
}

/// Ends the holds of jobs before they run out at the times beside them. Never waits, whoever has
/// locked the claims.
pub fn release_holds(holds: &[(i64, i64)]) {
    if !holds.is_empty() {
        let column = |value: fn(&(i64, i64)) -> i64, element| {
            let values: Vec<Arg> = holds.iter().map(|h| Some(Datum::from(value(h)))).collect();
            Some(array::build(element, &values))
        };
        RELEASE_HOLDS.execute(&[column(|h| h.0, INT8), column(|h| h.1, AT)]);
    }
}

/// Deletes what tells that jobs have ended their holds: no claim lists these holds any more. What
/// maintenance is at work on, or has deleted since an old snapshot, is left to it.
pub(super) fn forget_releases(ids: &[i64]) {
    if transaction::is_read_committed() && !ids.is_empty() {
        let ids: Vec<Arg> = ids.iter().map(|id| Some(Datum::from(*id))).collect();
        FORGET_RELEASES.execute(&[Some(array::build(INT8, &ids))]);
    }
}

/// Notes keys for maintenance to look, from `due_at` on, whether their claims can go.
pub fn note_orphans<'a>(keys: impl IntoIterator<Item = &'a Key>, due_at: i64) {
    let keys: Vec<Key> = keys.into_iter().copied().collect();
    if !keys.is_empty() {
        NOTE_ORPHANS.execute(&[Some(key_array(&keys)), Some(Datum::from(due_at))]);
    }
}

fn bytes(key: Key) -> Arg {
    key.0.as_slice().into_datum()
}

/// An array of keys as a parameter.
pub(super) fn key_array(keys: &[Key]) -> Datum {
    array::build(
        BYTEA,
        &keys.iter().map(|key| bytes(*key)).collect::<Vec<_>>(),
    )
}

/// Runs a statement for some keys and numbers.
fn execute_for(plan: &Plan, pairs: &[(Key, i64)]) {
    if pairs.is_empty() {
        return;
    }
    let scratch = Scratch::new();
    for some in pairs.chunks(AT_ONCE) {
        scratch.within(|| {
            let (keys, numbers) = columns(some);
            plan.execute(&[Some(keys), Some(numbers)]);
        });
    }
}

fn columns(pairs: &[(Key, i64)]) -> (Datum, Datum) {
    let keys: Vec<Arg> = pairs.iter().map(|(key, _)| bytes(*key)).collect();
    let ids: Vec<Arg> = pairs.iter().map(|(_, id)| Some(Datum::from(*id))).collect();
    (array::build(BYTEA, &keys), array::build(INT8, &ids))
}

fn listed_columns(listed: &[Listed]) -> [Arg; 3] {
    let pairs: Vec<(Key, i64)> = listed.iter().map(|job| (job.key, job.id)).collect();
    let ends: Vec<Arg> = listed
        .iter()
        .map(|job| job.hold_ends_at.map(Datum::from))
        .collect();
    let (keys, ids) = columns(&pairs);
    [Some(keys), Some(ids), Some(array::build(AT, &ends))]
}

// One snapshot sees a job in exactly one place.
macro_rules! holders {
    ($more:literal) => {
        concat!(
            "LEFT JOIN LATERAL (
               SELECT u.id,
                      CASE WHEN r.job_id IS NOT NULL THEN 'running'
                           WHEN COALESCE(a.seq, b.seq) IS NOT NULL THEN 'available'
                           ELSE COALESCE(s.state::text, f.state::text) END AS state,
                      j.queue, j.created_at,
                      COALESCE(NULLIF(s.due_at, 'infinity'), r.scheduled_at, f.scheduled_at, b.scheduled_at,
                               j.scheduled_at, j.created_at) AS scheduled_at,
                      f.finalized_at,
                      u.hold_ends_at,
                      CASE WHEN u.hold_ends_at IS NOT NULL
                           THEN (SELECT true FROM jobs.unique_hold_release x WHERE x.job_id = u.id LIMIT 1) END AS released,
                      u.return, j.unique_until, j.unique_window, j.unique_final
                 FROM (SELECT l.id, l.hold_ends_at, NULL::bigint AS return FROM unnest(c.jobs, c.hold_ends_at) AS l(id, hold_ends_at)
                        UNION ALL
                       SELECT t.job_id, NULL, t.seq FROM jobs.unique_return t WHERE t.key = c.key",
            $more,
            "         ) u
                 LEFT JOIN jobs.job j ON j.id = u.id
                 LEFT JOIN jobs.running r ON r.job_id = j.id
                 LEFT JOIN jobs.scheduled s ON s.job_id = j.id
                 LEFT JOIN jobs.finished f ON f.job_id = j.id
                 LEFT JOIN jobs.ready a ON a.queue = j.queue AND a.priority = j.priority AND a.seq = j.id
                 LEFT JOIN jobs.ready b ON b.job_id = j.id AND b.seq <> b.job_id) h ON true"
        )
    };
}
macro_rules! look_columns {
    () => {
        ", h.id, h.state, h.queue, h.created_at, h.scheduled_at, h.finalized_at, h.hold_ends_at, h.released, h.return, h.unique_until, h.unique_window, h.unique_final FROM "
    };
}
// An old snapshot may show two claims of one key: one that is gone by now, and one that this transaction has put in its
// place. A plain join on a unique column would stop at the first.
macro_rules! look_many {
    ($more:literal) => {
        concat!(
            "SELECT k.ord",
            look_columns!(),
            "unnest($1) WITH ORDINALITY AS k(key, ord)
             CROSS JOIN LATERAL (SELECT u.* FROM jobs.unique_claim u WHERE u.key = k.key OFFSET 0) c ",
            holders!($more)
        )
    };
}

static IS_CLAIMED: Plan = Plan::new("SELECT FROM jobs.unique_claim c WHERE c.key = $1", &[BYTEA]);
static LOCK_FREE: Plan = Plan::new(
    "SELECT FROM jobs.unique_claim c WHERE c.key = $1 FOR UPDATE SKIP LOCKED",
    &[BYTEA],
);
static CLAIM_TABLE: Plan = Plan::new(
    "SELECT 'jobs.unique_claim'::regclass::oid, 'jobs.unique_claim_pkey'::regclass::oid",
    &[],
);
static LOOK_MANY: Plan = Plan::new(look_many!(""), &[BYTEAS]);
static LOOK_AT_ALL: Plan = Plan::new(
    look_many!(
        " UNION ALL SELECT p.job_id, NULL, NULL FROM jobs.unique_folded p WHERE p.key = c.key"
    ),
    &[BYTEAS],
);

// An update that its WHERE forbids locks the taken row and writes no new version.
static CLAIM_OR_LOCK: Plan = Plan::new(
    "INSERT INTO jobs.unique_claim AS c (key, jobs, hold_ends_at)
     SELECT n.key, ARRAY[n.id], CASE WHEN n.hold_ends_at IS NOT NULL THEN ARRAY[n.hold_ends_at] END
       FROM unnest($1, $2, $3) AS n(key, id, hold_ends_at)
     ON CONFLICT (key) DO UPDATE SET jobs = c.jobs WHERE false
     RETURNING c.key",
    &[BYTEAS, INT8S, ATS],
);

static SET_LISTS: Plan = Plan::new(
    "UPDATE jobs.unique_claim c SET jobs = n.jobs, hold_ends_at = n.hold_ends_at
       FROM (SELECT u.key, array_agg(u.id ORDER BY u.id) AS jobs,
                    CASE WHEN count(u.hold_ends_at) > 0 THEN array_agg(u.hold_ends_at ORDER BY u.id) END AS hold_ends_at
               FROM unnest($1, $2, $3) AS u(key, id, hold_ends_at) GROUP BY u.key) n
      WHERE c.key = n.key",
    &[BYTEAS, INT8S, ATS],
);

static PUT_ASIDE: Plan = Plan::new(
    "INSERT INTO jobs.unique_folded (key, job_id) SELECT n.key, n.id FROM unnest($1, $2) AS n(key, id) ON CONFLICT DO NOTHING",
    &[BYTEAS, INT8S],
);
static LISTED_AGAIN: Plan = Plan::new(
    "DELETE FROM jobs.unique_folded u USING unnest($1, $2) AS n(key, id) WHERE u.key = n.key AND u.job_id = n.id",
    &[BYTEAS, INT8S],
);
static COME_BACK: Plan = Plan::new(
    "INSERT INTO jobs.unique_return (key, seq, job_id) VALUES ($1, nextval('jobs.job_seq'), $2)",
    &[BYTEA, INT8],
);
static BACK_NO_MORE: Plan = Plan::new(
    "DELETE FROM jobs.unique_return u USING unnest($1, $2) AS n(key, id) WHERE u.key = n.key AND u.job_id = n.id",
    &[BYTEAS, INT8S],
);
static FORGET_RETURNS: Plan = Plan::new(
    "DELETE FROM jobs.unique_return u USING unnest($1, $2) AS n(key, seq) WHERE u.key = n.key AND u.seq = n.seq",
    &[BYTEAS, INT8S],
);

// A job that starts again has given its key back before.
static RELEASE_HOLDS: Plan = Plan::new(
    "INSERT INTO jobs.unique_hold_release (job_id, hold_ends_at)
     SELECT n.id, n.ends_at FROM unnest($1, $2) AS n(id, ends_at)
      WHERE NOT EXISTS (SELECT FROM jobs.unique_hold_release r WHERE r.job_id = n.id)",
    &[INT8S, ATS],
);
static FORGET_RELEASES: Plan = Plan::new(
    "DELETE FROM jobs.unique_hold_release WHERE ctid = ANY (ARRAY(
       SELECT r.ctid FROM jobs.unique_hold_release r WHERE r.job_id = ANY ($1) FOR UPDATE SKIP LOCKED))",
    &[INT8S],
);
static NOTE_ORPHANS: Plan = Plan::new(
    "INSERT INTO jobs.unique_orphan (key, due_at) SELECT n.key, $2 FROM unnest($1) AS n(key)",
    &[BYTEAS, AT],
);

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::*;

    /// Tests run at the same time, so that each has keys of its own.
    fn claims(test: u8, count: u16) -> Vec<Listed> {
        (0..count).map(|n| claim(test, n)).collect()
    }

    fn claim(test: u8, n: u16) -> Listed {
        let mut key = Key([test; 32]);
        key.0[..2].copy_from_slice(&n.to_be_bytes());
        Listed {
            key,
            id: n.into(),
            hold_ends_at: None,
        }
    }

    fn count(what: &str) -> i64 {
        Spi::get_one(&format!(
            "SELECT count(*) FROM jobs.unique_claim WHERE {what}"
        ))
        .expect("count")
        .expect("count")
    }

    #[pg_test]
    fn rows_of_which_one_is_taken_are_all_taken_back() {
        let table = Table::open(&shapes::UNIQUE_CLAIM).expect("it is as it was made");
        let insert = |claims: &[Listed]| {
            let rows = claims.iter().map(|claim| new_row(&table, claim));
            subxact::attempt_and_keep(|| table.insert_if_new(rows), |all| *all)
                .unwrap_or_else(|error| subxact::rethrow(*error))
        };
        let all = claims(1, 300);
        // Behind the rows that are written at once, and among them.
        for taken in [280, 3] {
            assert!(insert(&[claim(1, taken)]));
            assert!(!insert(&all));
            transaction::make_visible();
            assert_eq!(count(&format!("jobs[1] = {taken}")), 1);
            assert_eq!(count("jobs[1] NOT IN (3, 280)"), 0);
        }
        for some in [&all[..3], &all[4..280], &all[281..]] {
            assert!(insert(some), "nobody is in the way");
        }
        transaction::make_visible();
        assert_eq!(count("true"), 300);
    }

    #[pg_test]
    fn claims_are_inserted_together_up_to_the_first_that_is_taken() {
        let all = claims(2, 600);
        let claim = |claims: &[Listed], is_taken: &dyn Fn(&Key) -> bool| {
            let mut fresh = 0;
            let is_taken = |index: usize| is_taken(&claims[index].key);
            let done = claim_or_lock_directly(claims, is_taken, true, |_| fresh += 1);
            (done, fresh)
        };
        assert_eq!(claim(&all[500..510], &|_| false), (10, 10));
        let is_known = |key: &Key| all[500..510].iter().any(|claim| claim.key == *key);
        assert_eq!(claim(&all, &is_known), (600, 590));
        assert_eq!(count("true"), 600);
        let in_subtransaction = "xmin <> pg_current_xact_id()::xid";
        assert_eq!(count(in_subtransaction), 500);
        // Of one of these the look knew nothing: one by one.
        let all = claims(3, 300);
        assert_eq!(claim(&all[200..201], &|_| false), (1, 1));
        assert_eq!(claim(&all, &|_| false), (300, 299));
        assert_eq!(count("true"), 900);
        assert_eq!(count(in_subtransaction), 500);
    }

    #[pg_test]
    fn a_key_whose_claim_is_gone_is_free() {
        let all = claims(4, 4);
        let keys: Vec<Key> = all.iter().map(|claim| claim.key).collect();
        assert_eq!(
            claim_or_lock_directly(&all[..3], |_| false, true, |_| ()),
            3
        );
        Spi::run("DELETE FROM jobs.unique_claim WHERE jobs[1] = 1").expect("delete");
        assert_eq!(under::claimed(&keys), Some(vec![keys[0], keys[2]]));
        // As if they had all been known to have one.
        let mut fresh = Vec::new();
        let done = claim_or_lock_directly(&all, |_| true, false, |index| fresh.push(index));
        assert_eq!((done, fresh), (4, vec![1, 3]));
        assert_eq!(under::claimed(&keys), Some(keys));
    }
}
