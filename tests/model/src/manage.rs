//! What happens to jobs after they were inserted: `src/transition/` and
//! `src/api/work_manage.rs`. None of it waits for a claim.

use jobs_core::state::State;

use crate::database::{Id, Job, Key, Note, Version, View};
use crate::scenario::{Fault, Op};
use crate::session::Step;
use crate::transaction::Turn;

/// Whether a call can do something to a job.
fn can(op: Op, job: &Job) -> bool {
    match op {
        Op::Complete(key) => job.key == key && job.state == State::Available,
        Op::Retry(key) => job.key == key && job.state.is_final(),
        Op::Delete(key) => job.key == key,
        _ => false,
    }
}

impl Turn<'_> {
    /// The jobs that a call may be about.
    pub fn candidates(&mut self, op: Op) -> Vec<Id> {
        let view = self.view();
        let jobs = self.state.database.jobs.iter();
        let is_meant = |job: &&Version<Job>| view.sees(job) && can(op, &job.row);
        jobs.filter(is_meant).map(|job| job.row.id).collect()
    }

    /// Begins to complete, retry or delete a job.
    pub fn begin_move(&mut self, op: Op) {
        let found = self.candidates(op);
        match found.get(self.choice) {
            None => {
                self.say.say(|| "finds no such job".into());
                self.me().end_call();
            }
            Some(id) => {
                self.me().job = *id;
                self.move_job(op);
            }
        }
    }

    /// Moves the job if it still is where it was seen. Waits for who is moving it, and looks again
    /// then.
    pub fn move_job(&mut self, op: Op) {
        let own = self.own();
        let view = self.view();
        let id = self.me().job;
        let seen = self.state.database.job_seen(id, view).cloned();
        let Some(version) = seen.filter(|version| can(op, &version.row)) else {
            self.say.say(|| format!("finds that job {id} is not there any more"));
            return self.me().end_call();
        };
        if let Some(xid) = self.state.database.in_the_way(&version, own) {
            self.say.say(|| format!("wants job {id}"));
            return self.wait_for(xid, Step::Chase);
        }
        if version.gone.is_some() {
            return self.fail_to_serialize();
        }
        let by = self.xid();
        let job = version.row;
        match op {
            Op::Complete(_) => {
                self.say.say(|| format!("completes job {id}"));
                let finalized_at = self.next_number();
                let after = Job { state: State::Completed, finalized_at, ..job };
                self.state.database.update_job(job, after, by);
            }
            Op::Retry(_) => {
                self.say.say(|| format!("retries job {id} and notes that it returns"));
                let after =
                    Job { state: State::Available, finalized_at: 0, has_returned: true, ..job };
                self.state.database.update_job(job, after, by);
                let note = self.next_number();
                self.leave(Note::Returned(job.key, id, note));
                self.leave(Note::Orphaned(job.key));
            }
            _ => {
                let leaves_note = self.scenario.fault != Fault::DeleteWithoutNote;
                self.say.say(|| {
                    let note = if leaves_note { " and leaves a note" } else { "" };
                    format!("deletes job {id}{note}")
                });
                let last = self.state.database.jobs.iter_mut();
                let mut last = last.filter(|version| version.row == job && version.gone.is_none());
                last.next().expect("it was seen").gone = Some(by);
                if leaves_note {
                    self.leave(Note::Orphaned(job.key));
                }
            }
        }
        self.me().end_call();
    }

    /// Leaves a note.
    pub fn leave(&mut self, row: Note) {
        let by = self.xid();
        self.state.database.notes.push(Version::new(row, by));
    }

    /// Whether a job exists.
    pub fn exists(&self, id: Id, view: View) -> bool {
        self.state.database.job_seen(id, view).is_some()
    }

    /// The keys that are dealt with.
    pub fn keys() -> [Key; 2] {
        [crate::database::A, crate::database::B]
    }
}
