//! Handlers and middleware.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::select;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::sleep;
use tracing::Instrument;

use crate::error::Ended;
use crate::job::{JobInfo, output};
use crate::{ClientError, Error, Inserted, Job, NewJob};

/// How long a cancelled handler has to end by itself.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(1);

/// A running handler, as middleware sees it.
pub type Handling = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// An `async fn(Job<A>) -> Result<T, Error>`, where `T` serializes to JSON; or a [`Blocking`] one,
/// or a [`Batch`].
pub trait Handler<A>: Sized + Send + Sync + 'static {
    /// How each of the jobs is handled. Nothing runs before the first poll.
    #[doc(hidden)]
    fn handle(self: Arc<Self>, jobs: Vec<Job<()>>) -> Vec<Handling>;

    #[doc(hidden)]
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Sets how long the handler may run; [`Duration::MAX`] is no limit but the job's. Default: the
    /// timeout of its [`Kind`](crate::Kind), else that of the worker.
    fn timeout(self, timeout: impl Into<Option<Duration>>) -> Limited<Self> {
        let limits = Limits { timeout: timeout.into(), ..self.limits() };
        Limited { limits, handler: self.into() }
    }

    /// Sets how many jobs of the kind the worker runs at once. Default: as many as the worker has
    /// places.
    fn concurrency(self, concurrency: impl Into<Option<usize>>) -> Limited<Self> {
        let limits = Limits { concurrency: concurrency.into(), ..self.limits() };
        Limited { limits, handler: self.into() }
    }
}

/// A handler with a timeout or a concurrency.
pub struct Limited<H> {
    limits: Limits,
    handler: Arc<H>,
}

/// The options of a handler.
#[derive(Clone, Copy, Default)]
pub struct Limits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: Option<usize>,
    /// The size of a batch, and how long it waits for more jobs.
    pub(crate) batch: Option<(usize, Duration)>,
}

impl<A, H: Handler<A>> Handler<A> for Limited<H> {
    fn handle(self: Arc<Self>, jobs: Vec<Job<()>>) -> Vec<Handling> {
        self.handler.clone().handle(jobs)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl<A, F, R, T> Handler<A> for F
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Job<A>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, Error>> + Send + 'static,
    T: Serialize,
{
    fn handle(self: Arc<Self>, jobs: Vec<Job<()>>) -> Vec<Handling> {
        each(self, jobs, async |handler, job| {
            let cancellation = job.cancellation().clone();
            let late = async {
                cancellation.cancelled().await;
                sleep(GIVE_UP).await;
            };
            let job = job.typed()?;
            select! {
                biased;
                result = handler(job) => output(result),
                () = late => Err(Error::release()),
            }
        })
    }
}

/// A blocking handler, a `fn(Job<A>) -> Result<T, Error>`. It runs in its own thread, which cannot
/// be interrupted, so it should check [`Job::cancellation`] regularly.
pub struct Blocking<F>(pub F);

impl<A, F, T> Handler<A> for Blocking<F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Job<A>) -> Result<T, Error> + Send + Sync + 'static,
    T: Serialize,
{
    fn handle(self: Arc<Self>, jobs: Vec<Job<()>>) -> Vec<Handling> {
        each(self, jobs, async |handler, job| {
            let (send, receive) = oneshot::channel();
            let (runtime, span) = (tokio::runtime::Handle::current(), tracing::Span::current());
            // Unlike tokio's threads, a thread of its own does not keep the program from exiting.
            let thread = std::thread::spawn(move || {
                let _entered = (runtime.enter(), span.enter());
                let ended = job.typed().and_then(|job| output((handler.0)(job)));
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

/// Handles each job by itself.
fn each<H: Clone, F, R>(with: H, jobs: Vec<Job<()>>, handle: F) -> Vec<Handling>
where
    F: Fn(H, Job<()>) -> R,
    R: Future<Output = Ended> + Send + 'static,
{
    let handling = |job| Box::pin(handle(with.clone(), job)) as Handling;
    jobs.into_iter().map(handling).collect()
}

/// A handler of several jobs, an `async fn(Vec<Job<A>>) -> Result<(), Error>`.
///
/// It ends each job with [`Job::end`]. The jobs that it has not ended are completed without an
/// output when it returns, and fail with its error or panic. Its timeout is the earliest of its
/// jobs. It is dropped a second after the last job that it has not ended is cancelled.
///
/// ```
/// # use postgres_jobs::{Batch, Error, Job, Worker};
/// # use std::time::Duration;
/// # async fn deliver(to: &str) -> Result<String, Error> { Ok(to.into()) }
/// async fn send(jobs: Vec<Job<String>>) -> Result<(), Error> {
///     for job in jobs {
///         job.end(deliver(&job.args).await);
///     }
///     Ok(())
/// }
///
/// # fn worker(worker: Worker) -> Worker {
/// worker.kind("email.send", Batch::new(send).size(20).linger(Duration::from_millis(100)))
/// # }
/// ```
pub struct Batch<F> {
    handler: F,
    size: usize,
    linger: Duration,
}

impl<F> Batch<F> {
    /// Batches of at most 100 jobs, of those that one fetch has brought.
    pub fn new(handler: F) -> Self {
        Self { handler, size: 100, linger: Duration::ZERO }
    }

    /// Sets the maximum number of jobs. A batch is never larger than the concurrency.
    pub fn size(self, size: usize) -> Self {
        Self { size, ..self }
    }

    /// Sets how long a batch waits for more jobs after its first one.
    pub fn linger(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }
}

impl<A, F, R> Handler<A> for Batch<F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Vec<Job<A>>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Error>> + Send + 'static,
{
    fn handle(self: Arc<Self>, jobs: Vec<Job<()>>) -> Vec<Handling> {
        let own = jobs.clone();
        let whole = async move {
            let late = late(own.iter().map(|job| job.info.clone()).collect());
            let mut typed = Vec::new();
            for job in own {
                let info = job.info.clone();
                match job.typed() {
                    Ok(job) => typed.push(job),
                    Err(error) => info.end(Err(error)),
                }
            }
            if typed.is_empty() {
                return Ok(());
            }
            select! {
                biased;
                result = (self.handler)(typed) => result,
                () = late => Err(Error::release()),
            }
        };
        // In a task: it goes on after it has ended all jobs.
        let task = async move {
            let ended = tokio::spawn(whole.instrument(tracing::info_span!("batch"))).await;
            let lost = |error: JoinError| match error.try_into_panic() {
                Ok(panic) => Err(Error::panic(panic)),
                Err(_) => Err(Error::release()),
            };
            ended.unwrap_or_else(lost)
        };
        each(task.boxed().shared(), jobs, async |task, job| {
            let ended = select! {
                biased;
                // A test works the next job after the whole handler.
                ended = job.ended.wait(), if job.link.is_some() => return ended.clone(),
                ended = task => ended,
            };
            let own = job.ended.get().cloned();
            own.unwrap_or_else(|| ended.and_then(|()| output(Ok(()))))
        })
    }

    fn limits(&self) -> Limits {
        Limits { batch: Some((self.size, self.linger)), ..Limits::default() }
    }
}

/// Waits until the last job that has not ended is cancelled, and a second longer.
async fn late(jobs: Vec<Arc<JobInfo>>) {
    for job in &jobs {
        select! { _ = job.ended.wait() => {}, () = job.cancellation.cancelled() => {} }
    }
    if jobs.iter().all(|job| job.ended.initialized()) {
        pending().await
    }
    sleep(GIVE_UP).await;
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
