//! What stands under a key: the jobs that its claim lists, and those that its notes name.

use std::collections::BTreeMap;

use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::pg_sys::Datum;

use super::claims::key_args;
use super::direct;
use super::kept::Kept;
use super::notes::NoteKind;
use super::place::JOINED_TO_ITS_ROW;
use super::queue::Queue;
use super::spi::{Tuples, plans};
use super::types::*;
use crate::fault;

/// A job that was inserted under a key: it still exists, or still holds the key. Decisions go by a
/// `verdict::Holder`.
#[derive(Clone)]
pub struct StoredHolder {
    pub id: i64,
    /// `None` when the job is deleted and only its hold is left.
    pub job: Option<StoredJob>,
    /// Until when it holds the key by itself, if it has not released it.
    pub hold_ends_at: Option<i64>,
}

/// A job of a `StoredHolder` that exists.
#[derive(Clone)]
pub struct StoredJob {
    pub state: State,
    pub queue: Queue,
    pub created_at: i64,
    /// When it is or was due.
    pub scheduled_at: i64,
    pub finalized_at: Option<i64>,
    /// What its retention does not shorten. Few jobs have it.
    pub kept: Option<Box<Kept>>,
}

impl StoredJob {
    /// Until when its own period or window keeps it, if it is final.
    pub fn kept_until(&self) -> Option<i64> {
        let kept = self.kept.as_ref()?;
        kept.until(self.state, self.scheduled_at)
    }
}

impl StoredHolder {
    /// Brings what lies ahead of the clock forward, as maintenance will: the clock was ahead when
    /// the job was inserted or became final, and was put back.
    pub fn cut(&mut self, now: i64) {
        let Some(job) = &mut self.job else {
            return;
        };
        job.finalized_at = job.finalized_at.map(|at| at.min(now));
        let ahead = job.created_at - now;
        if ahead <= 0 {
            return;
        }
        if job.scheduled_at == job.created_at {
            job.scheduled_at = now;
        }
        job.created_at = now;
        if let Some(until) = job.kept.as_mut().and_then(|kept| kept.until.as_mut()) {
            *until -= ahead;
        }
        self.hold_ends_at = self.hold_ends_at.map(|at| at - ahead);
    }

    /// The state of the job, if it exists.
    pub fn state(&self) -> Option<State> {
        self.job.as_ref().map(|job| job.state)
    }
}

/// What stands under a key that has a claim.
#[derive(Default)]
pub struct UnderKey {
    /// By the job's id.
    holders: BTreeMap<i64, StoredHolder>,
    /// A job of the list is gone, or one has returned: it may be what another one was folded for.
    pub is_outdated: bool,
    /// Notes that a new list makes superfluous, and their numbers.
    notes: Vec<(NoteKind, i64)>,
}

impl UnderKey {
    /// The jobs, in the order of their ids, and the notes that a new list of the key makes
    /// superfluous.
    pub fn take_apart(self) -> (Vec<StoredHolder>, Vec<(NoteKind, i64)>) {
        (self.holders.into_values().collect(), self.notes)
    }

    fn of(holders: Vec<StoredHolder>) -> UnderKey {
        let mut found = UnderKey::default();
        holders.into_iter().for_each(|one| found.add(one));
        found
    }

    /// A claim without any job gives one row of nulls. A job in no place at all is not
    /// there: its row is left from something that went wrong.
    fn read(&mut self, rows: &Tuples, row: usize) {
        let Some(id) = rows.get(row, "id") else {
            return;
        };
        let (released, returned) = (rows.get(row, "released"), rows.get(row, "returned"));
        let released_note = released.map(|seq| (NoteKind::Released, seq));
        let returned_note = returned.map(|seq| (NoteKind::Returned, seq));
        self.notes.extend(released_note);
        self.notes.extend(returned_note);
        self.is_outdated |= returned.is_some();
        let job = rows.get(row, "state").map(|state| StoredJob {
            state,
            queue: rows.given(row, "queue"),
            created_at: rows.given(row, "created_at"),
            scheduled_at: rows.given(row, "scheduled_at"),
            finalized_at: rows.get(row, "finalized_at"),
            kept: Kept::read(rows, row).map(Box::new),
        });
        self.add(StoredHolder {
            id,
            job,
            hold_ends_at: rows.get(row, "hold_ends_at").filter(|_| released.is_none()),
        });
    }

    fn add(&mut self, new: StoredHolder) {
        self.is_outdated |= new.job.is_none();
        if new.job.is_none() && new.hold_ends_at.is_none() {
            return;
        }
        // One that has returned may be in the list as well; only there is its hold.
        let hold_ends_at = new.hold_ends_at;
        let holder = self.holders.entry(new.id).or_insert(new);
        holder.hold_ends_at = holder.hold_ends_at.max(hold_ends_at);
    }
}

/// What a claim lists, and which jobs have returned; `None` if the key has no claim. Takes no lock.
pub fn look(key: Key) -> Option<UnderKey> {
    let listed = match fault::reads_outer_snapshot() {
        true => Err(()),
        false => direct::look::listed(key),
    };
    match listed {
        Ok(listed) => listed.map(UnderKey::of),
        Err(()) => by_statement(&[key], false).remove(&key),
    }
}

/// What the claims of some keys list, and which jobs have returned; keys without a claim are left
/// out. A claim that is there and that the statement does not see, as that of a transaction which
/// is still open, lists nothing. Takes no lock.
pub fn look_many(keys: &[Key]) -> BTreeMap<Key, UnderKey> {
    match keys {
        [] => BTreeMap::new(),
        [key] => look(*key).map(|found| (*key, found)).into_iter().collect(),
        _ => {
            // Most keys of a batch are new, mostly: what a statement does for each is not done for
            // them.
            let claimed = (!fault::reads_outer_snapshot()).then(|| direct::look::claimed(keys));
            let Some(claimed) = claimed.flatten() else {
                return by_statement(keys, false);
            };
            let mut found = match claimed.as_slice() {
                [] => BTreeMap::new(),
                claimed => by_statement(claimed, false),
            };
            for key in claimed {
                found.entry(key).or_default();
            }
            found
        }
    }
}

/// All that stands under some keys, also the jobs that were folded. Takes no lock.
pub fn look_at_all(keys: &[Key]) -> BTreeMap<Key, UnderKey> {
    by_statement(keys, true)
}

fn by_statement(keys: &[Key], folded: bool) -> BTreeMap<Key, UnderKey> {
    let mut found: BTreeMap<Key, UnderKey> = BTreeMap::new();
    LOOK.run(&[key_args(keys), Some(Datum::from(folded))], |rows| {
        for row in 0..rows.len() {
            let ord = rows.given::<i64>(row, "ord") as usize;
            found.entry(keys[ord - 1]).or_default().read(rows, row);
        }
    });
    found
}

plans! {
    // One snapshot sees a job in exactly one place. An old snapshot may show two claims of one key:
    // one that is gone by now, and one that this transaction has put in its place. A plain join on
    // a unique column would stop at the first.
    LOOK(BYTEAS, BOOL) =
        "SELECT k.ord, h.id, h.released, h.returned, h.state, h.queue, h.created_at, h.scheduled_at, h.finalized_at,
            h.unique_until, h.unique_window, h.unique_final, h.hold_ends_at
       FROM unnest($1) WITH ORDINALITY AS k(key, ord)
       CROSS JOIN LATERAL (SELECT u.* FROM jobs.unique_claim u WHERE u.key = k.key OFFSET 0) c
       LEFT JOIN LATERAL (
         SELECT u.id,
                CASE WHEN r.job_id IS NOT NULL THEN 'running'
                     WHEN COALESCE(a.seq, b.seq) IS NOT NULL THEN 'available'
                     ELSE COALESCE(s.state::text, f.state::text) END AS state,
                j.queue, j.created_at,
                COALESCE(NULLIF(s.due_at, 'infinity'), r.scheduled_at, f.scheduled_at, b.scheduled_at,
                         j.scheduled_at, j.created_at) AS scheduled_at,
                f.finalized_at,
                u.hold_ends_at,
                CASE WHEN u.hold_ends_at IS NOT NULL THEN (
                  SELECT n.seq FROM jobs.unique_note n
                   WHERE n.key = c.key AND n.kind = 'h' AND n.seq = u.id) END AS released,
                u.returned, j.unique_until, j.unique_window, j.unique_final
           FROM (SELECT l.id, l.hold_ends_at, NULL::bigint AS returned
                   FROM unnest(c.jobs, c.hold_ends_at) AS l(id, hold_ends_at)
                  UNION ALL
                 SELECT n.job_id, NULL, n.seq FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'r'
                  UNION ALL
                 SELECT n.job_id, NULL, NULL FROM jobs.unique_note n
                  WHERE n.key = c.key AND n.kind = 'f' AND $2) u
           LEFT JOIN jobs.job j ON j.id = u.id
{JOINED_TO_ITS_ROW}) h ON true";
}
