//! What a running worker tells of attempts: in the log, and by its hooks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::job::{JobInfo, log_of};
use crate::worker::Hook;
use crate::{Error, Worker};

pub(crate) enum Report {
    /// The attempt has failed.
    Failed(Arc<JobInfo>, Error),
    /// The failure of the attempt has discarded the job.
    Discarded(Arc<JobInfo>, Error),
    /// The server refused the result, with this error.
    Refused(Arc<JobInfo>, String),
    /// The server does not want the result, for this reason.
    Dropped(Arc<JobInfo>, String),
}

macro_rules! log_failure {
    ($level:ident, $job:expr, $error:expr, $said:literal) => {{
        let details = $error.details();
        let (r#type, trace) = (details["type"].as_str(), details["trace"].as_str());
        log_of!($level, $job, max_attempts = $job.max_attempts, r#type, error = %$error, trace, $said);
    }};
}

impl Worker {
    /// May block, as the log and hooks may.
    pub(crate) fn report(&self, report: Report) {
        match report {
            Report::Failed(job, error) => {
                log_failure!(warn, job, error, "attempt failed");
                call(&self.on_error, &job, &error);
            }
            Report::Discarded(job, error) => {
                log_failure!(error, job, error, "job discarded");
                call(&self.on_discarded, &job, &error);
            }
            Report::Refused(job, error) => {
                log_of!(warn, job, %error, "result refused, retrying");
            }
            Report::Dropped(job, reason) => {
                log_of!(warn, job, reason, "job lost, result discarded");
            }
        }
    }
}

/// Calls a hook, whose panic ends nothing.
fn call(hook: &Option<Hook>, job: &JobInfo, error: &Error) {
    let Some(hook) = hook else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(job, error))) {
        log_of!(error, job, error = %Error::panic(panic), "hook failed");
    }
}
