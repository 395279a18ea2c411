//! Handlers and middleware.

use std::future::pending;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::error::{Ended, safe};
use crate::job::{JobInfo, output};
use crate::{ClientError, Error, Inserted, Job, NewJob};

/// How long a cancelled handler has to end by itself.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(1);

const NO_PANIC: &str = "no panic while it is locked";

/// A running handler, as middleware sees it.
pub type Handling = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// An `async fn(Job<A>) -> Result<T, Error>`, where `T` serializes to JSON; or a [`Blocking`] one,
/// or a [`Batch`].
pub trait Handler<A>: Sized {
    #[doc(hidden)]
    fn limited(self) -> Limited<A>;

    /// Sets how long the handler may run; [`Duration::MAX`] is no limit but the job's. Default: the
    /// timeout of its [`Kind`](crate::Kind), else that of the worker.
    fn timeout(self, timeout: impl Into<Option<Duration>>) -> Limited<A> {
        let Limited(handler, args) = self.limited();
        Limited(Registered { timeout: timeout.into(), ..handler }, args)
    }

    /// Sets how many jobs of the kind the worker runs at once. Default: as many as the worker has
    /// places.
    fn concurrency(self, concurrency: impl Into<Option<usize>>) -> Limited<A> {
        let Limited(handler, args) = self.limited();
        Limited(Registered { concurrency: concurrency.into(), ..handler }, args)
    }
}

/// A handler and its options.
pub struct Limited<A>(pub(crate) Registered, PhantomData<fn(A)>);

/// A handler of any args type, and its options.
pub(crate) struct Registered {
    /// How each of several jobs is handled. Nothing runs before the first poll.
    pub(crate) handle: Box<dyn Fn(Vec<Job<()>>) -> Vec<Handling> + Send + Sync>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: Option<usize>,
    /// The size of a batch, and how long it waits for more jobs.
    pub(crate) size: usize,
    pub(crate) linger: Duration,
}

impl<A> Limited<A> {
    fn of(handle: impl Fn(Vec<Job<()>>) -> Vec<Handling> + Send + Sync + 'static) -> Self {
        let (handle, linger) = (Box::new(handle), Duration::ZERO);
        Self(Registered { handle, timeout: None, concurrency: None, size: 1, linger }, PhantomData)
    }
}

impl<A> Handler<A> for Limited<A> {
    fn limited(self) -> Self {
        self
    }
}

impl<A, F, R, T> Handler<A> for F
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(Job<A>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, Error>> + Send + 'static,
    T: Serialize,
{
    fn limited(self) -> Limited<A> {
        let handler = Arc::new(self);
        Limited::of(move |jobs| {
            each(jobs, &handler, async |handler, job| {
                let late = late(vec![job.info.clone()]);
                let job = job.typed()?;
                select! {
                    biased;
                    result = handler(job) => output(result),
                    () = late => Err(Error::release()),
                }
            })
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
    fn limited(self) -> Limited<A> {
        let handler = Arc::new(self.0);
        Limited::of(move |jobs| {
            each(jobs, &handler, async |handler, job| {
                let (send, receive) = oneshot::channel();
                let (runtime, span) = (tokio::runtime::Handle::current(), tracing::Span::current());
                #[cfg(feature = "opentelemetry")]
                let context = opentelemetry::Context::current();
                // Unlike those of tokio, this thread does not keep the program from exiting.
                let thread = std::thread::spawn(move || {
                    let _entered = (runtime.enter(), span.enter());
                    #[cfg(feature = "opentelemetry")]
                    let _attached = context.attach();
                    // The worker may no longer wait for it.
                    drop(send.send(job.typed().and_then(|job| output(handler(job)))));
                });
                match receive.await {
                    Ok(ended) => ended,
                    Err(_) => resume_unwind(thread.join().expect_err("it has sent nothing")),
                }
            })
        })
    }
}

/// Handles each job by itself.
fn each<H: Clone, F, R>(jobs: Vec<Job<()>>, with: &H, handle: F) -> Vec<Handling>
where
    F: Fn(H, Job<()>) -> R,
    R: Future<Output = Ended> + Send + 'static,
{
    jobs.into_iter().map(|job| Box::pin(handle(with.clone(), job)) as Handling).collect()
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
pub struct Batch<A>(Limited<A>);

impl<A: DeserializeOwned + Send + 'static> Batch<A> {
    /// Batches of at most 100 jobs, of those that one fetch has brought.
    pub fn new<F, R>(handler: F) -> Self
    where
        F: Fn(Vec<Job<A>>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self(Limited::of(move |jobs| {
            let (handler, here) = (handler.clone(), Arc::new(Mutex::new(Vec::new())));
            let come = here.clone();
            let batch = async move {
                let mut jobs = std::mem::take(&mut *come.lock().expect(NO_PANIC));
                jobs.retain(|job: &Job<A>| !job.ended.initialized());
                jobs.sort_by_key(|job| job.came);
                let late = late(jobs.iter().map(|job| job.info.clone()).collect());
                select! {
                    biased;
                    result = handler(jobs) => result,
                    () = late => Err(Error::release()),
                }
            };
            // In a task: it continues after it has ended all jobs.
            let task = async {
                let batch = safe(batch).instrument(tracing::info_span!("batch"));
                #[cfg(feature = "opentelemetry")]
                let batch = opentelemetry::trace::FutureExt::with_current_context(batch);
                tokio::spawn(batch).await.unwrap_or_else(|_| Err(Error::release()))
            };
            let absent = TaskTracker::new();
            absent.close();
            each(jobs, &(task.boxed().shared(), absent, here), |(task, absent, here), job| {
                let is_absent = absent.token();
                async move {
                    let (info, is_of_test) = (job.info.clone(), job.link.is_none());
                    here.lock().expect(NO_PANIC).push(job.typed()?);
                    drop(is_absent);
                    select! {
                        biased;
                        () = absent.wait() => {}
                        () = info.cancellation.cancelled() => {
                            info.end(Err(Error::release()));
                            return Err(Error::release());
                        }
                    }
                    let ended = select! {
                        biased;
                        // A test works the next job after the whole handler.
                        ended = info.ended.wait(), if !is_of_test => return ended.clone(),
                        ended = task => ended.map(|()| Box::default()),
                    };
                    info.ended.get().cloned().unwrap_or(ended)
                }
            })
        }))
        .size(100)
    }

    /// Sets the maximum number of jobs. A batch is never larger than the concurrency.
    pub fn size(mut self, size: usize) -> Self {
        self.0.0.size = size;
        self
    }

    /// Sets how long a batch waits for more jobs after its first one.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.0.0.linger = linger;
        self
    }
}

impl<A> Handler<A> for Batch<A> {
    fn limited(self) -> Limited<A> {
        self.0
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
