//! The jobs under a key, and what a policy decides by them.

use jobs_core::key::Key;
use jobs_core::policy::Policy;
use jobs_core::verdict::{self, Job, Member, Verdict};

use crate::pg::time;
use crate::settings::Retention;
use crate::store::claims::{self, Holder};

/// Jobs with the key that they are under.
pub(super) type Pairs = Vec<(Key, i64)>;

/// The jobs under a key that has a claim.
pub(super) struct Under {
    pub(super) holders: Vec<Holder>,
    pub(super) members: Vec<Member>,
}

impl Under {
    pub(super) fn new(holders: Vec<Holder>) -> Under {
        let retention = Retention::current();
        let now = time::now();
        let members = holders
            .iter()
            .map(|holder| {
                let kept = retention.of(holder.state);
                let kept_until = holder.finalized_at.zip(kept);
                let kept_until = kept_until.map_or(i64::MAX, |(at, kept)| at.saturating_add(kept));
                let job = Job {
                    state: holder.state,
                    created_at: holder.created_at,
                    scheduled_at: holder.scheduled_at,
                    kept_until,
                };
                Member {
                    id: holder.id,
                    job: (kept_until > now).then_some(job),
                    holds: false,
                }
            })
            .collect();
        Under { holders, members }
    }

    /// A job that was decided by.
    pub(super) fn holder(&self, id: i64) -> Holder {
        let holder = self.holders.iter().find(|holder| holder.id == id);
        holder.expect("decisions are of these jobs").clone()
    }

    /// The jobs that stay in the key's list, and those that are put aside.
    pub(super) fn folded(&self, key: Key) -> (Pairs, Pairs) {
        let kept = verdict::fold(&self.members);
        let ids = self.members.iter().map(|member| (key, member.id));
        ids.partition(|(_, id)| kept.contains(id))
    }
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
    let under = claims::look(key).map(Under::new);
    let verdict = decide(policy, under.as_ref(), time::now());
    let id = match &verdict {
        Verdict::Insert => None,
        Verdict::Skip(existing) | Verdict::Reject(existing) => Some(existing.id),
        Verdict::Replace { cancel, .. } => cancel.last().copied(),
        Verdict::Update { id, .. } => Some(*id),
    };
    let holder = id.zip(under.as_ref()).map(|(id, under)| under.holder(id));
    (holder, verdict.as_str())
}
