//! Handlers, and what becomes of one that runs.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::attempt::Attempt;
use crate::job::json;
use crate::worker::Worker;
use crate::{Error, Job};

/// How a handler ends: with an output, which is JSON, or an error.
pub(crate) type Ended = Result<Box<RawValue>, Error>;

/// A handler under way, as middleware sees it.
pub type Handling = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// An `async fn(Job<A>) -> Result<T, E>`, where `T` has a JSON, and `E` becomes an [`Error`]. Or a
/// [`Blocking`] one.
pub trait Handler<A>: Send + Sync + 'static {
    /// Nothing runs before the first poll.
    #[doc(hidden)]
    fn handle(self: Arc<Self>, job: Job<()>) -> Handling;

    #[doc(hidden)]
    fn is_blocking(&self) -> bool {
        false
    }
}

impl<A, F, R, T, E> Handler<A> for F
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Job<A>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, E>> + Send + 'static,
    T: Serialize,
    E: Into<Error>,
{
    fn handle(self: Arc<Self>, job: Job<()>) -> Handling {
        Box::pin(async move { output(self(job.typed()?).await) })
    }
}

/// A handler that blocks, a `fn(Job<A>) -> Result<T, E>`: it runs in a thread of its own, which
/// nothing can end. So it looks at [`Job::cancellation`] now and then.
pub struct Blocking<F>(pub F);

impl<A, F, T, E> Handler<A> for Blocking<F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Job<A>) -> Result<T, E> + Send + Sync + 'static,
    T: Serialize,
    E: Into<Error>,
{
    fn handle(self: Arc<Self>, job: Job<()>) -> Handling {
        Box::pin(in_thread(move || output((self.0)(job.typed()?))))
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

fn output<T: Serialize, E: Into<Error>>(result: Result<T, E>) -> Ended {
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

/// A handler that a worker has, whatever type its args have.
pub(crate) struct Registered {
    start: Box<dyn Fn(Job<()>) -> Handling + Send + Sync>,
    pub(crate) is_blocking: bool,
}

impl Registered {
    pub(crate) fn new<A>(handler: impl Handler<A>) -> Self {
        let is_blocking = handler.is_blocking();
        let handler = Arc::new(handler);
        let start = Box::new(move |job| handler.clone().handle(job));
        Self { start, is_blocking }
    }

    /// Runs it, with its middleware around it. A panic is an error.
    pub(crate) async fn run(&self, worker: &Worker, of: &Arc<Attempt>) -> Ended {
        let job = Job::new((), of.clone());
        let mut handling = None;
        poll_fn(|context| {
            let poll = || {
                let handling = handling.get_or_insert_with(|| {
                    let middleware = worker.middleware.iter().rev();
                    let handling = (self.start)(job.clone());
                    middleware.fold(handling, |inner, one| one.work(job.clone(), inner))
                });
                handling.as_mut().poll(context)
            };
            let ended = catch_unwind(AssertUnwindSafe(poll));
            ended.unwrap_or_else(|panic| Poll::Ready(Err(Error::panic(panic))))
        })
        .await
    }
}
