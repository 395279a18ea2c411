//! Inserting jobs, the unique ones at most once.
//!
//! First a look without any lock: where a committed job conflicts, that is the outcome.
//! Otherwise the claim is inserted or, if the key has one, locked; then, in a statement
//! of its own, with a snapshot that sees what the lock waited for, the jobs under it
//! are looked at again, and the job is inserted or not.

use std::rc::Rc;

use jobs_core::key::Key;
use jobs_core::policy::Policy;
use jobs_core::state::State;
use jobs_core::verdict::{Holder, Job, Verdict};

use super::advisory_lock;
use super::batch::Batch;
use super::holders::{self, Holders, decide};
use crate::cell::{self, Home};
use crate::error::{Error, Result};
use crate::pg::{path, subxact, transaction};
use crate::store::insert;
use crate::store::job::NewJob;
use crate::store::look::StoredHolder;

/// A validated job with the policy that its key was made by.
pub struct Candidate {
    /// Its `unique_key` is set if it has a policy.
    pub job: NewJob,
    /// `None`: not unique
    pub policy: Option<Rc<Policy>>,
    pub home: Home,
}

impl Candidate {
    /// Refuses a job that does not live in this cell.
    pub fn own(&self) -> Result<()> {
        let common = &self.job.common;
        cell::own(common.law.as_ref(), self.home, common.queue.name())
    }

    /// As later candidates of its batch see it, once it is to be inserted.
    pub(super) fn as_holder(&self, index: usize) -> Holder {
        Holder {
            id: index as i64,
            job: Some(Job {
                state: self.job.state,
                created_at: self.job.created_at,
                scheduled_at: self.job.scheduled_at(),
                finalized_at: i64::MAX,
                queue: self.job.common.queue.number(),
                kept_until: i64::MIN,
            }),
            holds: self.job.common.hold.is_some(),
        }
    }
}

/// The outcome of a candidate.
#[derive(Clone)]
pub enum Outcome {
    Inserted(i64),
    /// Skipped: this job exists.
    Existing(Box<StoredHolder>),
    /// Skipped: this job exists, and took values of the new one.
    Updated(Box<StoredHolder>),
    /// Skipped: this earlier element of the batch was inserted.
    Earlier(usize),
    /// Skipped: another transaction is inserting the key, and the policy does not wait.
    Busy,
    /// Inserted in the place of others.
    Replaced(Box<Replacement>),
}

/// A job that was inserted in the place of others.
#[derive(Clone)]
pub struct Replacement {
    pub id: i64,
    /// The newest of the jobs that it replaces.
    pub replaced: i64,
    /// It may have taken over a schedule.
    pub state: State,
    pub scheduled_at: i64,
}

pub fn insert_one(candidate: &Candidate) -> Result<Outcome> {
    candidate.own()?;
    let (Some(policy), Some(key)) = (&candidate.policy, candidate.job.unique_key) else {
        return Ok(Outcome::Inserted(insert::one(&candidate.job)?));
    };
    let now = candidate.job.created_at;
    let mut holders = holders::look(key, policy);
    if let Some(outcome) = outcome_at_once(policy, holders.as_ref(), now)? {
        return Ok(outcome);
    }
    if !policy.wait {
        return insert_at_once(candidate, key);
    }
    if advisory_lock::take(key) {
        // The holder of the lock has decided meanwhile.
        holders = holders::look(key, policy);
        if let Some(outcome) = outcome_at_once(policy, holders.as_ref(), now)? {
            return Ok(outcome);
        }
    }
    // A key that is free, or was a moment ago, is claimed together with the insert.
    if holders.is_none() {
        match insert::one_claiming(&candidate.job) {
            Ok(Some(id)) => return Ok(Outcome::Inserted(id)),
            Ok(None) => {}
            // If the key was taken meanwhile, it is a duplicate, whether there is room or not.
            Err(full) if !is_taken(key, policy) => return Err(full),
            Err(_) => {}
        }
    }
    by_batch(candidate)
}

/// Whether a key may have been taken since.
fn is_taken(key: Key, policy: &Policy) -> bool {
    // An old snapshot does not tell: the claim does.
    !transaction::is_read_committed() || holders::look(key, policy).is_some()
}

/// By statements, several of them: the path is set once for all.
fn by_batch(candidate: &Candidate) -> Result<Outcome> {
    let mut outcomes = path::pinned(|| Batch::of_one(candidate)?.insert())?;
    Ok(outcomes.remove(0))
}

/// Inserts one job whose key no other session is inserting. Otherwise it must not keep the
/// lock that it tried, so all of it is in a subtransaction; or there is no such lock, as in
/// batches.
fn insert_at_once(candidate: &Candidate, key: Key) -> Result<Outcome> {
    if !subxact::has_room() || !advisory_lock::has_room() {
        return by_batch(candidate);
    }
    let work = || {
        if !advisory_lock::try_take(key) {
            return Ok(Outcome::Busy);
        }
        by_batch(candidate)
    };
    let inserted =
        |outcome: &Result<Outcome>| outcome.as_ref().is_ok_and(|o| !matches!(o, Outcome::Busy));
    subxact::kept_if(inserted, work)
}

/// Inserts jobs in one go, as if one by one in their order.
pub fn insert_many(candidates: &[Candidate]) -> Result<Vec<Outcome>> {
    candidates.iter().try_for_each(Candidate::own)?;
    Batch::of_many(candidates)?.insert()
}

/// The outcome that a committed job gives without any lock, if one does.
fn outcome_at_once(
    policy: &Policy,
    holders: Option<&Holders>,
    now: i64,
) -> Result<Option<Outcome>> {
    match decide(policy, holders, now) {
        Verdict::Skip(existing) => {
            let holder = holders.map(|holders| holders.holder(existing.id).clone());
            Ok(holder.map(|holder| Outcome::Existing(Box::new(holder))))
        }
        Verdict::Reject(existing) => Err(Error::duplicate(Some(existing.id), existing.state, None)),
        _ => Ok(None),
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    fn one<T: FromDatum + IntoDatum>(sql: &str) -> T {
        Spi::get_one(sql).expect(sql).expect(sql)
    }

    /// Jobs under the key of kind `k`.
    fn holders() -> Vec<i64> {
        one("SELECT jobs FROM jobs.unique_claim")
    }

    fn insert(by_state: &str) -> (i64, bool) {
        let row = Spi::get_two_with_args::<i64, bool>(
            "SELECT id, unique_skipped_as_duplicate
               FROM jobs.insert('k', unique_opts => jsonb_build_object('by_state', $1::jsonb))",
            &[by_state.into()],
        )
        .expect("inserted");
        (row.0.expect("id"), row.1.expect("flag"))
    }

    #[pg_test]
    fn a_key_used_over_and_over_keeps_its_list_short() {
        for _ in 0..50 {
            let (id, skipped) = insert(r#"["available", "running"]"#);
            assert!(!skipped);
            assert!(insert(r#"["available"]"#).1, "while it is available");
            Spi::run(&format!("SELECT jobs.cancel({id})")).expect("cancel");
        }
        assert!(holders().len() <= 2, "{:?}", holders());
    }

    #[pg_test]
    fn single_inserts_take_sixteen_locks_and_batches_none() {
        let locks = || {
            one::<i64>(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
            )
        };
        Spi::run(
            "SELECT jobs.insert_batch('b', array(SELECT to_jsonb(n) FROM generate_series(1, 100) n), '{\"by_args\": true}')",
        )
        .expect("batch");
        assert_eq!(locks(), 0);
        Spi::run("SELECT jobs.insert('s', to_jsonb(n), '{\"by_args\": true}') FROM generate_series(1, 100) n")
            .expect("singles");
        assert_eq!(locks(), 16);
        assert_eq!(one::<i64>("SELECT count(*) FROM jobs.jobs"), 200);
    }

    #[pg_test]
    fn the_lock_is_on_the_first_bytes_of_the_key() {
        Spi::run("SELECT jobs.insert('s', unique_opts => '{\"by_kind\": true}')").expect("insert");
        let lock = one::<String>(
            "SELECT lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0')
               FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        );
        let key =
            one::<String>("SELECT jobs.unique_key('s', unique_opts => '{\"by_kind\": true}')");
        assert_eq!(lock, key[..16]);
    }
}
