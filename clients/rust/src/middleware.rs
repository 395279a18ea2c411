//! What a program puts around every insert and every handler.

use crate::{Handling, Inserted, Job, NewJob};

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
    fn insert(&self, _job: &mut NewJob) -> Option<AfterInsert> {
        None
    }

    /// Makes of a handler under way another one. A handler that does not end after a cancellation
    /// ends with an error here.
    fn work(&self, _job: Job<()>, handling: Handling) -> Handling {
        handling
    }
}

/// What is called after an insert.
pub type AfterInsert = Box<dyn FnOnce(&Inserted) + Send>;
