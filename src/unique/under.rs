//! The jobs under a key, and what a policy decides by them.

use std::collections::BTreeMap;

use jobs_core::key::Key;
use jobs_core::policy::Policy;
use jobs_core::verdict::{self, Job, Member, Verdict};

use crate::pg::time;
use crate::settings::Retention;
use crate::store::claims::{self, Found, Holder, Listed};

/// Jobs with the key that they are under.
pub(super) type Pairs = Vec<(Key, i64)>;

/// The jobs under a key that has a claim.
pub(super) struct Under {
    /// in the order of their ids
    holders: Vec<Holder>,
    /// a member a holder
    members: Vec<Member>,
}

/// The jobs under a key, if it has a claim. Takes no lock.
pub(super) fn look(key: Key) -> Option<Under> {
    let found = claims::look(key)?;
    if found.is_outdated {
        return look_many(&[key]).remove(&key);
    }
    Some(Under::new(found))
}

/// The jobs under each key that has a claim. Takes no lock.
pub(super) fn look_many(keys: &[Key]) -> BTreeMap<Key, Under> {
    let mut found = claims::look_many(keys);
    let outdated: Vec<Key> = found
        .iter()
        .filter_map(|(key, found)| found.is_outdated.then_some(*key))
        .collect();
    // What was put aside counts for nothing as long as what it was put aside for is there.
    // Where that is not certain all is read anew, in one snapshot.
    if !outdated.is_empty() {
        for key in &outdated {
            found.remove(key);
        }
        found.extend(claims::look_at_all(&outdated));
    }
    found
        .into_iter()
        .map(|(key, found)| (key, Under::new(found)))
        .collect()
}

impl Under {
    fn new(found: Found) -> Under {
        let retention = Retention::current();
        let now = time::now();
        let mut holders = found.into_holders();
        for holder in &mut holders {
            holder.hold_ends_at = holder.hold_ends_at.filter(|ends_at| *ends_at > now);
        }
        holders.retain(|holder| holder.job.is_some() || holder.hold_ends_at.is_some());
        let members = holders
            .iter_mut()
            .map(|holder| {
                let member = Member {
                    id: holder.id,
                    job: counts(holder, retention).filter(|job| job.kept_until > now),
                    holds: holder.hold_ends_at.is_some(),
                };
                // Past its retention it counts as gone, pruned or not.
                holder.job = holder.job.take().filter(|_| member.job.is_some());
                member
            })
            .collect();
        Under { holders, members }
    }

    /// A job that was decided by.
    pub(super) fn holder(&self, id: i64) -> &Holder {
        let holder = self.holders.iter().find(|holder| holder.id == id);
        holder.expect("decisions are of these jobs")
    }

    /// A job that may be gone by now.
    pub(super) fn find(&self, id: i64) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.id == id)
    }

    /// The jobs that stay in the key's list, and those that are put aside.
    pub(super) fn folded(&self, key: Key) -> (Vec<Listed>, Pairs) {
        let kept = verdict::fold(&self.members);
        let (kept, aside): (Vec<&Holder>, Vec<&Holder>) =
            self.holders.iter().partition(|h| kept.contains(&h.id));
        let listed = kept.into_iter().map(|holder| Listed {
            key,
            id: holder.id,
            hold_ends_at: holder.hold_ends_at,
        });
        let aside = aside.into_iter().map(|holder| (key, holder.id));
        (listed.collect(), aside.collect())
    }
}

/// What counts of a job that exists.
fn counts(holder: &Holder, retention: Retention) -> Option<Job> {
    let job = holder.job.as_ref()?;
    let kept = retention.of(job.state);
    let kept_until = job.finalized_at.zip(kept);
    Some(Job {
        state: job.state,
        created_at: job.created_at,
        scheduled_at: job.scheduled_at,
        kept_until: kept_until.map_or(i64::MAX, |(at, kept)| at.saturating_add(kept)),
    })
}

/// Decides a job inserted `now` by the jobs under its key.
pub(super) fn decide(policy: &Policy, under: Option<&Under>, now: i64) -> Verdict {
    let members = under.map_or(&[][..], |under| &under.members);
    verdict::decide(policy, members, cutoff(policy, now))
}

/// Where a policy's window begins; `None` if it has none, or one that goes back further
/// than time does.
pub(super) fn cutoff(policy: &Policy, now: i64) -> Option<i64> {
    policy
        .window
        .and_then(|window| time::ago(now, window.length))
}

/// What an insert with a key would be told now: the newest job that conflicts, if one
/// does, and the word for what would happen.
pub fn foresee(policy: &Policy, key: Key) -> (Option<Holder>, &'static str) {
    let under = look(key);
    let verdict = decide(policy, under.as_ref(), time::now());
    let id = match &verdict {
        Verdict::Insert => None,
        Verdict::Skip(existing) | Verdict::Reject(existing) => Some(existing.id),
        Verdict::Replace { cancel, .. } => cancel.last().copied(),
        Verdict::Update { id, .. } => Some(*id),
    };
    let holder = id.zip(under).map(|(id, under)| under.holder(id).clone());
    (holder, verdict.as_str())
}
