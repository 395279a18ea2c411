//! Handlers and middleware.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::select;
use tokio::sync::oneshot;

use crate::executor::json;
use crate::{ClientError, Error, Inserted, Job, NewJob};

/// How long a cancelled handler has to end by itself.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(1);

/// The result of a handler: an output, which is JSON, or an error.
pub(crate) type Ended = Result<Box<RawValue>, Error>;

/// A running handler, as middleware sees it.
pub type Handling = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// An `async fn(Job<A>) -> Result<T, E>`, where `T` serializes to JSON and `E` converts to an
/// [`Error`]; or a [`Blocking`] one.
pub trait Handler<A>: Send + Sync + 'static {
    /// Nothing runs before the first poll.
    #[doc(hidden)]
    fn handle(self: Arc<Self>, job: Job<()>) -> Handling;
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
        Box::pin(async move {
            let cancellation = job.cancellation().clone();
            let late = async {
                cancellation.cancelled().await;
                tokio::time::sleep(GIVE_UP).await;
            };
            let job = job.typed()?;
            select! {
                biased;
                result = self(job) => output(result),
                () = late => Err(Error::release()),
            }
        })
    }
}

/// A blocking handler, a `fn(Job<A>) -> Result<T, E>`. It runs in its own thread, which cannot be
/// interrupted, so it should check [`Job::cancellation`] regularly.
pub struct Blocking<F>(pub F);

impl<A, F, T, E> Handler<A> for Blocking<F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Job<A>) -> Result<T, E> + Send + Sync + 'static,
    T: Serialize,
    E: Into<Error>,
{
    fn handle(self: Arc<Self>, job: Job<()>) -> Handling {
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            let (runtime, span) = (tokio::runtime::Handle::current(), tracing::Span::current());
            // Unlike tokio's threads, a thread of its own does not keep the program from exiting.
            let thread = std::thread::spawn(move || {
                let _entered = (runtime.enter(), span.enter());
                let ended = job.typed().and_then(|job| output((self.0)(job)));
                // The worker may no longer wait for it.
                drop(send.send(ended));
            });
            match receive.await {
                Ok(ended) => ended,
                Err(_) => resume_unwind(thread.join().expect_err("it has sent nothing")),
            }
        })
    }
}

fn output<T: Serialize, E: Into<Error>>(result: Result<T, E>) -> Ended {
    let output = json(&result.map_err(Into::into)?);
    output.map_err(|error| Error::from(error).typed("invalid_output"))
}

/// Code around every insert, every handler, or both.
///
/// ```
/// # use postgres_jobs::{Handling, Job, Middleware};
/// /// Says how long each handler took.
/// struct Timing;
///
/// impl Middleware for Timing {
///     fn work(&self, job: Job<()>, handling: Handling) -> Handling {
///         Box::pin(async move {
///             let began = std::time::Instant::now();
///             let result = handling.await;
///             println!("{} took {:?}", job.kind, began.elapsed());
///             result
///         })
///     }
/// }
/// ```
pub trait Middleware: Send + Sync + 'static {
    /// Called before an insert; can change the job. The returned function is called after the
    /// insert, or dropped if the caller abandons the insert.
    fn insert(&self, _job: &mut NewJob) -> Option<AfterInsert> {
        None
    }

    /// Wraps a running handler. A handler that does not end after a cancellation ends with an error
    /// here.
    fn work(&self, _job: Job<()>, handling: Handling) -> Handling {
        handling
    }
}

/// Called after an insert, also after a failed one.
pub type AfterInsert = Box<dyn FnOnce(Result<&Inserted, &ClientError>) + Send>;
