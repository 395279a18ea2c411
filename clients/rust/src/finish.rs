//! The connection that says what became of jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde::Serialize;
use tokio::select;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::attempt::Attempt;
use crate::error::{self, Ending};
use crate::link::{Link, Parameter, is};
use crate::run::Core;

const FINISH: &str = "select done, reason from jobs.finish_many($1::text::jsonb)";
const PROGRESS: &str = "
select cancel_requested from jobs.heartbeat($1, $2, progress => $3::text::jsonb)";

/// The most results of a call, and the most bytes of outputs of one that has several.
pub(crate) const MOST: usize = 1_000;
const LONGEST: usize = 16 << 20;

/// What attempts have of their worker.
pub(crate) struct Finisher {
    pub(crate) results: mpsc::UnboundedSender<Finish>,
    link: Mutex<Link>,
    /// The latest call has failed: results that wait hold their places.
    pub(crate) is_stuck: AtomicBool,
    /// There is a new timeout, or a handler that was cancelled.
    pub(crate) look: Notify,
}

impl Finisher {
    pub(crate) fn new(link: Link, results: mpsc::UnboundedSender<Finish>) -> Self {
        Self {
            results,
            link: Mutex::new(link),
            is_stuck: AtomicBool::new(false),
            look: Notify::new(),
        }
    }

    /// Stores how far an attempt is.
    pub(crate) async fn progress(&self, attempt: &Attempt, value: &str) -> Result<(), Error> {
        let of: [Parameter<'_>; 3] = [
            (&attempt.job.id, Type::INT8),
            (&attempt.job.token, Type::INT8),
            (&value, Type::TEXT),
        ];
        let mut link = self.link.lock().await;
        loop {
            match link.rows(PROGRESS, &of).await {
                Ok(rows) => {
                    attempt.hear(Some(rows[0].try_get(0)?));
                    return Ok(());
                }
                Err(error) if link.passes(&error) => link.pause(&error).await,
                Err(error) => {
                    if is(&error, &["55000", "P0002"]) {
                        attempt.hear(None);
                    }
                    return Err(error);
                }
            }
        }
    }
}

/// A result, as `jobs.finish_many` has it.
#[derive(Serialize)]
pub(crate) struct Finish {
    #[serde(skip)]
    pub(crate) attempt: Arc<Attempt>,
    id: i64,
    token: i64,
    #[serde(flatten)]
    ending: Ending,
}

impl Finish {
    pub(crate) fn new(attempt: Arc<Attempt>, ending: Ending) -> Self {
        let (id, token) = (attempt.job.id, attempt.job.token);
        Self {
            attempt,
            id,
            token,
            ending,
        }
    }
}

/// Sends results, those together that come while a call is under way, until no handler runs any
/// more and all are sent.
pub(crate) async fn run(core: Arc<Core>, mut results: mpsc::UnboundedReceiver<Finish>) {
    let (mut received, mut unsent) = (Vec::new(), Vec::new());
    loop {
        if unsent.is_empty() {
            select! {
                biased;
                count = results.recv_many(&mut received, MOST) => if count == 0 { break },
                () = core.is_idle.cancelled(), if !results.is_closed() => results.close(),
            }
        }
        // What other handlers end with now goes with it.
        loop {
            tokio::task::yield_now().await;
            let known = received.len();
            while let Ok(result) = results.try_recv() {
                received.push(result);
            }
            if received.len() == known {
                break;
            }
        }
        unsent.append(&mut received);
        let mut link = core.finisher.link.lock().await;
        if let Err(error) = send(&core, &mut link, &mut unsent).await {
            let is_idle = core.is_idle.is_cancelled();
            let pause = link.pause(&error);
            if is_idle {
                pause.await;
            } else if core.is_idle.run_until_cancelled(pause).await.is_none() {
                // There is little time left now.
                link.failures = 0;
            }
        }
    }
}

/// Sends results, together as far as the server takes that. Leaves those that are to be sent again.
async fn send(core: &Core, link: &mut Link, results: &mut Vec<Finish>) -> Result<(), Error> {
    let mut calls: Vec<Vec<Finish>> = Vec::new();
    let mut length = 0;
    for result in results.drain(..) {
        length += result.ending.length();
        match calls.last_mut() {
            Some(call) if call.len() < MOST && length <= LONGEST => call.push(result),
            _ => {
                length = result.ending.length();
                calls.push(vec![result]);
            }
        }
    }
    let mut done = Ok(());
    while let Some(mut call) = calls.pop() {
        let Err(error) = finish(link, &call).await else {
            core.finisher.is_stuck.store(false, SeqCst);
            core.told(&call);
            continue;
        };
        if !link.passes(&error) && call.len() > 1 {
            calls.extend(call.into_iter().map(|result| vec![result]));
        } else if is(&error, &["22", "54"]) && !call[0].ending.is_plain() {
            let failed = crate::Error::new(error::shown(&error)).typed("invalid_output");
            call[0].ending = failed.0;
            calls.push(call);
        } else {
            core.finisher.is_stuck.store(true, SeqCst);
            results.extend(call);
            done = Err(error);
        }
    }
    done
}

async fn finish(link: &mut Link, call: &[Finish]) -> Result<(), Error> {
    let results = serde_json::to_string(call).expect("texts and numbers are JSON");
    let rows = link.rows(FINISH, &[(&results, Type::TEXT)]).await?;
    for (result, row) in call.iter().zip(rows) {
        if !row.try_get(0)? {
            let (id, reason): (_, Option<&str>) = (result.id, row.try_get(1)?);
            tracing::warn!(id, reason, "result dropped, the job is no longer ours");
        }
    }
    Ok(())
}
