//! What a program puts around every insert and every handler.

use crate::handler::Handling;
use crate::insert::{Inserted, NewJob};
use crate::job::Job;

/// Something around every insert, every handler, or both.
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
    /// Is called before an insert, and can change the job. What it returns is called after it, or
    /// dropped if the insert fails.
    fn insert(&self, job: &mut NewJob) -> Option<AfterInsert> {
        let _ = job;
        None
    }

    /// Makes of a handler under way another one. As handlers are, it is dropped at an `await` if it
    /// does not end after a cancellation.
    fn work(&self, job: Job<()>, handling: Handling) -> Handling {
        let _ = job;
        handling
    }
}

/// What is called after an insert.
pub type AfterInsert = Box<dyn FnOnce(&Inserted) + Send>;
