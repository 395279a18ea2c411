//! Handlers, and one attempt from its start to what became of it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::select;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tracing::Instrument;

use crate::connection::json;
use crate::error::Ending;
use crate::job::Attempt;
use crate::worker::Core;
use crate::{Error, Job, Middleware};

/// A handler under way, as middleware sees it: it ends with an output, which is JSON, or an error.
pub type Handling = Pin<Box<dyn Future<Output = Result<Box<RawValue>, Error>> + Send>>;

/// An `async fn(Job<A>) -> Result<T, E>`, where `T` has a JSON, and `E` becomes an [`Error`].
pub trait AsyncHandler<A>: Send + Sync + 'static {
    #[doc(hidden)]
    fn handle(&self, job: Job<A>) -> Handling;
}

impl<A, F, R, T, E> AsyncHandler<A> for F
where
    F: Fn(Job<A>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, E>> + Send + 'static,
    T: Serialize,
    E: Into<Error>,
{
    fn handle(&self, job: Job<A>) -> Handling {
        let result = self(job);
        Box::pin(async { output(result.await) })
    }
}

/// A `fn(Job<A>) -> Result<T, E>`, as of [`AsyncHandler`], that may block.
pub trait BlockingHandler<A>: Send + Sync + 'static {
    #[doc(hidden)]
    fn handle(&self, job: Job<A>) -> Result<Box<RawValue>, Error>;
}

impl<A, F, T, E> BlockingHandler<A> for F
where
    F: Fn(Job<A>) -> Result<T, E> + Send + Sync + 'static,
    T: Serialize,
    E: Into<Error>,
{
    fn handle(&self, job: Job<A>) -> Result<Box<RawValue>, Error> {
        output(self(job))
    }
}

pub(crate) struct Handler {
    /// Nothing runs before the first poll.
    start: Box<dyn Fn(Arc<Attempt>) -> Handling + Send + Sync>,
    is_blocking: bool,
}

impl Handler {
    pub(crate) fn new<A>(handler: impl AsyncHandler<A>) -> Arc<Self>
    where
        A: DeserializeOwned + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self::of(false, move |attempt| {
            let handler = handler.clone();
            Box::pin(async move { handler.handle(job(attempt)?).await })
        })
    }

    pub(crate) fn blocking<A>(handler: impl BlockingHandler<A>) -> Arc<Self>
    where
        A: DeserializeOwned + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self::of(true, move |attempt| {
            let handler = handler.clone();
            Box::pin(in_thread(move || handler.handle(job(attempt)?)))
        })
    }

    fn of<F>(is_blocking: bool, start: F) -> Arc<Self>
    where
        F: Fn(Arc<Attempt>) -> Handling + Send + Sync + 'static,
    {
        let start = Box::new(start);
        Arc::new(Self { start, is_blocking })
    }

    /// The handler with its middleware around it.
    pub(crate) fn start(&self, of: Arc<Attempt>, middleware: &[Arc<dyn Middleware>]) -> Handling {
        let handling = (self.start)(of.clone());
        middleware.iter().rev().fold(handling, |inner, one| {
            one.work(Job::new((), of.clone()), inner)
        })
    }
}

fn job<A: DeserializeOwned>(attempt: Arc<Attempt>) -> Result<Job<A>, Error> {
    let args = serde_json::from_str(attempt.job.raw_args.get());
    let args = args.map_err(|error| Error::from(error).typed("invalid_args"))?;
    Ok(Job::new(args, attempt))
}

fn output<T: Serialize, E: Into<Error>>(result: Result<T, E>) -> Result<Box<RawValue>, Error> {
    let output = result.map_err(Into::into)?;
    json(&output).map_err(|error| Error::from(error).typed("invalid_output"))
}

/// A thread of its own does not keep a program from ending, as those of tokio do.
async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = oneshot::channel();
    let (runtime, span) = (tokio::runtime::Handle::current(), tracing::Span::current());
    std::thread::spawn(move || {
        let _entered = (runtime.enter(), span.enter());
        // Nobody waits for the result where the job was left behind.
        let _ = send.send(catch_unwind(AssertUnwindSafe(work)));
    });
    let result = receive.await.expect("a thread sends a result or a panic");
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs the handler of an attempt, and says what became of it.
pub(crate) async fn work(core: Arc<Core>, attempt: Arc<Attempt>, handler: Arc<Handler>) {
    let job = &attempt.job;
    let is_blocking = handler.is_blocking;
    let span = tracing::info_span!("job", id = job.id, kind = job.kind, attempt = job.attempt);
    let run = {
        let (core, attempt) = (core.clone(), attempt.clone());
        async move { handler.start(attempt, &core.worker.middleware).await }
    };
    // In a task of its own, so that it can be aborted, and a panic ends nothing else.
    let mut handling = tokio::spawn(run.instrument(span));
    let (mut abort_at, mut timed_out) = (None, false);
    let result = loop {
        select! {
            result = &mut handling => break result,
            () = attempt.cancellation.cancelled(), if abort_at.is_none() => {
                abort_at = Some(Instant::now() + GIVE_UP);
            }
            () = until(abort_at), if !is_blocking && !handling.is_finished() => {
                handling.abort();
                abort_at = Some(Instant::now() + GIVE_UP);
            }
            () = until(attempt.timeout), if !timed_out && !attempt.is_over() => {
                timed_out = true;
                // In its transaction it still has the row, and the call would wait for that.
                if !attempt.is_in_transaction() {
                    attempt.finish(timeout().into());
                }
                attempt.cancellation.cancel();
            }
        }
    };
    let is_cancelled = attempt.cancellation.is_cancelled();
    let no_result = |error: JoinError| error.try_into_panic().map_or_else(Error::new, Error::panic);
    let result = result.unwrap_or_else(|error| Err(no_result(error)));
    if let Err(error) = &result {
        tracing::info!(id = job.id, kind = job.kind, %error, "handler ended");
    }
    match result {
        Ok(_) if attempt.is_in_transaction() => {}
        Err(_) if timed_out => attempt.finish(timeout().into()),
        // Where somebody cancelled the job, this cancels it.
        Err(error) if is_cancelled && error.is_plain() => attempt.finish(Ending::Release {}),
        result => attempt.finish(result.into()),
    }
    let leave = |running: &mut HashMap<_, _>| drop(running.remove(&job.token));
    core.running.send_modify(leave);
}

/// How long a handler has to end by itself after it was cancelled.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(1);

fn timeout() -> Error {
    Error::new("the handler has exceeded its timeout").typed("timeout")
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
