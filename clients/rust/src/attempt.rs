//! An attempt at a job, from its fetch until the server knows what became of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::error::Ending;
use crate::finish::{Finish, Finisher};
use crate::handler::Ended;
use crate::job::JobInfo;

/// How long a handler has to end by itself after it was cancelled.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(1);

/// An attempt at a job.
pub(crate) struct Attempt {
    pub(crate) job: JobInfo,
    pub(crate) cancellation: CancellationToken,
    /// Where the worker takes its result; none in a test.
    pub(crate) finisher: Option<Arc<Finisher>>,
    state: Mutex<State>,
}

/// How far an attempt is.
pub(crate) struct State {
    /// Whether the handler has not ended.
    pub(crate) runs: bool,
    pub(crate) result: Told,
    /// Whether the handler has completed the job in a transaction, which may not be committed yet.
    pub(crate) is_in_transaction: bool,
    has_timed_out: bool,
    /// When the handler is cancelled, or ended if it was cancelled.
    due: Option<Instant>,
}

/// How far a result is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Told {
    /// There is none.
    NotYet,
    /// It is to be sent.
    Waiting,
    /// The server has it, or is not to have one: the job is somebody else's by now.
    Over,
}

impl State {
    pub(crate) fn is_unsent(&self) -> bool {
        self.result == Told::Waiting
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.runs && self.result == Told::Over
    }
}

impl Attempt {
    /// `timeout` is how long the handler may run, if the worker or the kind says so.
    pub(crate) fn new(
        job: JobInfo,
        timeout: Option<Duration>,
        finisher: Option<Arc<Finisher>>,
    ) -> Arc<Self> {
        let now = Instant::now();
        // Before the server does it, so that the error says what the handler was told.
        let early = |left: Duration| now + left - (left / 20).min(Duration::from_secs(1));
        let server = job
            .deadline
            .map(|at| early(at.saturating_duration_since(now)));
        let own = timeout.and_then(|timeout| now.checked_add(timeout));
        Arc::new(Self {
            job,
            cancellation: CancellationToken::new(),
            finisher,
            state: Mutex::new(State {
                runs: true,
                result: Told::NotYet,
                is_in_transaction: false,
                has_timed_out: false,
                due: server.into_iter().chain(own).min(),
            }),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the handler. Soon it is ended.
    pub(crate) fn cancel(&self) {
        if !self.cancellation.is_cancelled() {
            self.state().due = Some(Instant::now() + GIVE_UP);
            self.cancellation.cancel();
            if let Some(finisher) = &self.finisher {
                finisher.look.notify_one();
            }
        }
    }

    /// Takes the answer to a heartbeat, whether the job is to be cancelled. None: it is lost.
    pub(crate) fn hear(&self, is_cancelled: Option<bool>) {
        let mut state = self.state();
        match is_cancelled {
            Some(true) if !state.is_in_transaction => {}
            None if state.result == Told::NotYet && !state.is_in_transaction => {
                tracing::warn!(id = self.job.id, kind = self.job.kind, "job lost");
                state.result = Told::Over;
            }
            _ => return,
        }
        drop(state);
        self.cancel();
    }

    /// Cancels the handler at its timeout. Ends it, if that can be, when it was cancelled and does
    /// not end. Returns when to look again.
    pub(crate) fn look(self: &Arc<Self>, task: Option<&AbortHandle>) -> Option<Instant> {
        let mut state = self.state();
        if state.due.is_none_or(|due| due > Instant::now()) {
            return state.due;
        }
        state.due = None;
        if self.cancellation.is_cancelled() {
            if let Some(task) = task {
                task.abort();
            }
            return None;
        }
        state.has_timed_out = true;
        let is_in_transaction = state.is_in_transaction;
        drop(state);
        // In its transaction it still has the row, and the call would wait for that.
        if !is_in_transaction {
            self.finish(Error::timeout().0);
        }
        self.cancel();
        self.state().due
    }

    /// Says what became of the attempt, unless that has been said.
    pub(crate) fn finish(self: &Arc<Self>, ending: Ending) {
        let mut state = self.state();
        if state.result == Told::NotYet {
            state.result = Told::Waiting;
            if let Some(finisher) = &self.finisher {
                // Nobody is there to send it once the worker has ended.
                let _ = finisher.results.send(Finish::new(self.clone(), ending));
            }
        }
    }

    /// Takes what the handler has ended with; none: it was ended.
    pub(crate) fn end(self: &Arc<Self>, result: Option<Ended>) {
        let mut state = self.state();
        state.runs = false;
        let (is_in_transaction, has_timed_out) = (state.is_in_transaction, state.has_timed_out);
        let is_cancelled = self.cancellation.is_cancelled();
        let ending = match result {
            // Of one that was ended its transaction may be in its commit, and has the row.
            Some(Ok(_)) | None if is_in_transaction => {
                state.result = Told::Over;
                return;
            }
            Some(Err(_)) | None if has_timed_out => Error::timeout().0,
            None => Ending::Release {},
            // Where somebody cancelled the job, this cancels it.
            Some(Err(error)) if is_cancelled && error.0.is_plain() => Ending::Release {},
            Some(result) => result.into(),
        };
        drop(state);
        self.finish(ending);
    }
}
