//! What a call does to the jobs under a key, if it was told the truth.

use std::collections::BTreeMap;

use super::model::*;

/// A job under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// `None` means deleted.
    pub state: Option<State>,
    /// The token of the current attempt.
    pub token: i64,
    pub cancel_requested: bool,
    /// Tokens that finishing calls have used, with the call and the resulting state.
    pub used: Vec<(i64, Finish, State)>,
    /// The event that releases the hold. `None` means no hold.
    pub hold: Option<Until>,
    /// The states in which the window of the job keeps it, whatever the retention.
    pub kept: Vec<State>,
    /// The number of commits that changed the job.
    pub version: u32,
}

impl Job {
    pub fn is_live(&self) -> bool {
        self.state.is_some_and(|state| !state.is_final())
    }

    /// Whether nothing is left of it that an insert could meet.
    pub fn is_gone(&self, gone: &[State]) -> bool {
        self.hold.is_none() && (self.state.is_none() || self.is_past(gone))
    }

    /// Whether it is past its retention, and its own window does not keep it.
    fn is_past(&self, gone: &[State]) -> bool {
        let is_past = |state| gone.contains(&state) && !self.kept.contains(&state);
        self.state.is_some_and(is_past)
    }

    fn moved(&self, state: State) -> Job {
        Job { state: Some(state), token: 0, cancel_requested: false, ..self.clone() }
    }
}

pub type Jobs = BTreeMap<i64, Job>;

/// What a call does, where it stands, if it was told the truth: the jobs that it changes, and
/// whether it inserted one.
#[derive(Debug, PartialEq, Eq)]
pub struct Effect {
    pub changes: Jobs,
    pub inserts: bool,
}

impl Effect {
    fn none() -> Effect {
        Effect { changes: Jobs::new(), inserts: false }
    }

    fn change(id: i64, job: Job) -> Effect {
        Effect { changes: Jobs::from([(id, job)]), inserts: false }
    }
}

/// The jobs under a key as a call sees them.
pub struct Key<'a> {
    pub jobs: &'a Jobs,
    pub gone: &'a [State],
}

impl Key<'_> {
    /// What a fact means here; nothing if it is not true here.
    pub fn effect(&self, fact: &Fact) -> Option<Effect> {
        match fact {
            Fact::Insert { new, reply, .. } => self.insert(new, *reply),
            Fact::Fetch { job, token } => {
                let found = self.jobs.get(job)?;
                let fetched = Job {
                    token: *token,
                    hold: found.hold.filter(|until| *until != Until::Start),
                    ..found.moved(Running)
                };
                (found.state == Some(Available)).then(|| Effect::change(*job, fetched))
            }
            Fact::Finish { job, token, what, reply } => self.finish(*job, *token, *what, *reply),
            Fact::Manage { job, what, reply } => self.manage(*job, *what, *reply),
            Fact::Look(seen) => {
                let is_seen =
                    |(id, job): (&i64, &Job)| match (job.state, seen.iter().find(|s| s.0 == *id)) {
                        (Some(state), Some((_, seen))) => state == *seen,
                        (Some(_), None) => job.is_past(self.gone),
                        (None, seen) => seen.is_none(),
                    };
                let is_known = |(id, _): &(i64, State)| self.jobs.contains_key(id);
                (self.jobs.iter().all(is_seen) && seen.iter().all(is_known)).then(Effect::none)
            }
        }
    }

    fn counts(&self, job: &Job, new: &New) -> bool {
        let by_state = |state: State| new.by_state.contains(&state) && !job.is_past(self.gone);
        job.hold.is_some() || job.state.is_some_and(by_state)
    }

    fn conflicting(&self, new: &New) -> impl Iterator<Item = (i64, &Job)> {
        let all = self.jobs.iter().map(|(id, job)| (*id, job));
        all.filter(|(_, job)| self.counts(job, new))
    }

    /// The jobs that an insert wants to replace or update, and whether the new job takes over a
    /// schedule.
    fn touches(&self, new: &New) -> (Vec<i64>, bool) {
        match &new.on_conflict {
            OnConflict::Skip | OnConflict::Reject => (Vec::new(), false),
            OnConflict::Update { states, .. } => {
                let newest = self.conflicting(new).last();
                let listed = newest.filter(|(_, job)| {
                    !job.is_past(self.gone)
                        && job.state.is_some_and(|state| states.contains(&state))
                });
                (listed.map(|(id, _)| id).into_iter().collect(), false)
            }
            OnConflict::Replace | OnConflict::ReplaceExceptSchedule => {
                let live: Vec<i64> = self
                    .conflicting(new)
                    .filter(|(_, job)| job.is_live())
                    .map(|(id, _)| id)
                    .collect();
                let newest = live.last().map(|id| self.jobs[id].state);
                let keeps = new.on_conflict == OnConflict::ReplaceExceptSchedule;
                (live, keeps && newest == Some(Some(Scheduled)))
            }
        }
    }

    fn insert(&self, new: &New, reply: Reply) -> Option<Effect> {
        let (touched, schedule) = self.touches(new);
        if reply == Reply::Busy {
            return Some(Effect::none());
        }
        if touched.is_empty() {
            return self.insert_untouching(new, reply);
        }
        if let OnConflict::Update { schedule, .. } = &new.on_conflict {
            let id = touched[0];
            let job = self.jobs.get(&id)?;
            let before = job.state.expect("it is touched in a state that is listed");
            let after = match before {
                Available | Scheduled | Retryable if *schedule && new.state == Scheduled => {
                    Scheduled
                }
                Available | Scheduled | Retryable if *schedule => Available,
                other => other,
            };
            let right = Reply::Skipped { id, state: Some(after) } == reply;
            // Of a running or a final job only the row of its values is written.
            return right.then(|| match before == Running || before.is_final() {
                true => Effect::none(),
                false => Effect::change(id, job.moved(after)),
            });
        }
        let mut changes: Jobs = touched
            .iter()
            .map(|id| (*id, Job { hold: None, ..self.jobs[id].moved(Cancelled) }))
            .collect();
        let state = if schedule && new.state != Pending { Scheduled } else { new.state };
        let replaced = changes.last_key_value().map(|(id, _)| *id);
        match reply {
            Reply::Inserted { id, state: s, replaced: r }
                if s == state && r == replaced && r.is_some() =>
            {
                changes.insert(id, fresh(new, state));
                Some(Effect { changes, inserts: true })
            }
            _ => None,
        }
    }

    fn insert_untouching(&self, new: &New, reply: Reply) -> Option<Effect> {
        let newest = self.conflicting(new).last();
        let newest = newest.map(|(id, job)| (id, job.state.filter(|_| !job.is_past(self.gone))));
        match reply {
            Reply::Busy => unreachable!("that is no decision"),
            Reply::Skipped { id, state } => (newest == Some((id, state))
                && new.on_conflict != OnConflict::Reject)
                .then(Effect::none),
            Reply::Rejected { id, state } => (newest == Some((id, state))
                && new.on_conflict == OnConflict::Reject)
                .then(Effect::none),
            Reply::Inserted { id, state, replaced } => {
                let right = newest.is_none() && state == new.state && replaced.is_none();
                right.then(|| Effect { inserts: true, ..Effect::change(id, fresh(new, state)) })
            }
        }
    }

    fn finish(
        &self,
        id: i64,
        token: i64,
        what: Finish,
        reply: Result<State, Refusal>,
    ) -> Option<Effect> {
        let is_current = |job: &&Job| job.state == Some(Running) && job.token == token;
        if reply == Err(Refusal::Locked) {
            let left = self.jobs.get(&id).filter(is_current);
            return left.map(|_| Effect::none());
        }
        let Some(job) = self.jobs.get(&id).filter(is_current) else {
            // That it is refused is decided here; the reason is looked for later, when there may be
            // another one.
            let right = match self.used(id, token, what) {
                Some((first, may_be_gone)) => reply == Ok(first) || may_be_gone && reply.is_err(),
                None => reply.is_err(),
            };
            return right.then(Effect::none);
        };
        let state = match what {
            Finish::Complete => Completed,
            _ if job.cancel_requested => Cancelled,
            Finish::Fail(state) => state,
            Finish::Snooze => Scheduled,
            Finish::Release => Available,
        };
        let mut after = job.moved(state);
        after.used.push((token, what, state));
        if what == Finish::Complete {
            after.hold = after.hold.filter(|until| *until != Until::Success);
        }
        (reply == Ok(state)).then(|| Effect::change(id, after))
    }

    /// What this very call made of a job with this token before, and whether the job may have been
    /// removed since.
    fn used(&self, id: i64, token: i64, what: Finish) -> Option<(State, bool)> {
        let job = self.jobs.get(&id)?;
        let state = job.state?;
        let is_it = |used: &&(i64, Finish, State)| used.0 == token && used.1.is_same_call(what);
        let first = job.used.iter().find(is_it)?;
        Some((first.2, self.gone.contains(&state)))
    }

    fn manage(&self, id: i64, what: Manage, reply: Result<State, Refusal>) -> Option<Effect> {
        let Some((job, state)) = self.jobs.get(&id).and_then(|job| Some((job, job.state?))) else {
            return (reply == Err(Refusal::Unknown)).then(Effect::none);
        };
        if reply == Err(Refusal::Unknown) {
            return job.is_past(self.gone).then(Effect::none);
        }
        let (answer, after) = match (what, state) {
            (Manage::Cancel { .. }, state) if state.is_final() => (Ok(state), None),
            // Asking again for the same changes nothing.
            (Manage::Cancel { force: false }, Running) if job.cancel_requested => {
                (Ok(Running), None)
            }
            (Manage::Cancel { force: false }, Running) => {
                let asked = Job { cancel_requested: true, ..job.clone() };
                (Ok(Running), Some(asked))
            }
            (Manage::Cancel { .. }, _) => (Ok(Cancelled), Some(job.moved(Cancelled))),
            (Manage::Retry, Available | Running) => (Ok(state), None),
            (Manage::Retry, _) => (Ok(Available), Some(job.moved(Available))),
            (Manage::Delete, Running) => (Err(Refusal::WrongState), None),
            (Manage::Delete, _) => (Ok(state), Some(Job { state: None, ..job.moved(state) })),
        };
        (reply == answer)
            .then(|| after.map_or_else(Effect::none, |after| Effect::change(id, after)))
    }
}

fn fresh(new: &New, state: State) -> Job {
    Job {
        state: Some(state),
        token: 0,
        cancel_requested: false,
        used: Vec::new(),
        hold: new.hold,
        kept: match new.window {
            Some(_) => new.by_state.clone(),
            None => Vec::new(),
        },
        version: 0,
    }
}
