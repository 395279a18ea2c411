//! The connection that says what became of jobs.

use std::sync::Arc;

use serde::Serialize;
use tokio::select;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::attempt::{Attempt, Told};
use crate::error::{self, Ending};
use crate::link::{Link, Parameter, is};
use crate::run::Core;

const FINISH: &str = "select done, reason from jobs.finish_many($1::text::jsonb)";
const PROGRESS: &str = "
select cancel_requested from jobs.heartbeat($1, $2, progress => $3::text::jsonb)";

/// The most results of a call, and the most bytes of one that has several.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 16 << 20;

/// What attempts have of their worker.
pub(crate) struct Finisher {
    pub(crate) results: mpsc::UnboundedSender<(Arc<Attempt>, Ending)>,
    link: Mutex<Link>,
    /// There is a new timeout, or a handler that was cancelled.
    pub(crate) look: Notify,
}

impl Finisher {
    pub(crate) fn new(link: Link) -> (Arc<Self>, Results) {
        let (results, received) = mpsc::unbounded_channel();
        let (link, look) = (Mutex::new(link), Notify::new());
        (
            Arc::new(Self {
                results,
                link,
                look,
            }),
            received,
        )
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

pub(crate) type Results = mpsc::UnboundedReceiver<(Arc<Attempt>, Ending)>;

/// Sends results, those together that come while a call is under way, until no handler runs any
/// more and all are sent.
pub(crate) async fn run(core: Arc<Core>, mut results: Results) {
    let (mut received, mut unsent) = (Vec::new(), Vec::new());
    loop {
        if unsent.is_empty() {
            select! {
                biased;
                count = results.recv_many(&mut received, MOST) => if count == 0 { break },
                () = core.is_idle.cancelled(), if !results.is_closed() => results.close(),
            }
            // What other handlers end with now goes with it.
            tokio::task::yield_now().await;
        }
        while let Ok(result) = results.try_recv() {
            received.push(result);
        }
        unsent.extend(
            received
                .drain(..)
                .map(|(attempt, ending)| Sent::new(attempt, &ending)),
        );
        let mut link = core.finisher.link.lock().await;
        let error;
        (unsent, error) = send(&core, &mut link, unsent).await;
        if let Some(error) = error {
            link.pause(&error).await;
        }
    }
}

/// A result, as `jobs.finish_many` has it.
#[derive(Serialize)]
pub(crate) struct Finish<'a> {
    pub(crate) id: i64,
    pub(crate) token: i64,
    #[serde(flatten)]
    pub(crate) ending: &'a Ending,
}

/// A result as it is sent.
struct Sent {
    attempt: Arc<Attempt>,
    text: String,
    /// Whether a call has failed that had it.
    is_late: bool,
    is_replaced: bool,
}

impl Sent {
    fn new(attempt: Arc<Attempt>, ending: &Ending) -> Self {
        let (id, token) = (attempt.job.id, attempt.job.token);
        let text = serde_json::to_string(&Finish { id, token, ending });
        Self {
            attempt,
            text: text.expect("texts and numbers are JSON"),
            is_late: false,
            is_replaced: false,
        }
    }
}

/// Sends results, together as far as the server takes that. Returns those that are to be sent
/// again, and why.
async fn send(core: &Core, link: &mut Link, results: Vec<Sent>) -> (Vec<Sent>, Option<Error>) {
    let first = results.iter().filter(|result| !result.is_late);
    core.tell(first.map(|result| &result.attempt), Told::Sending);
    let mut calls: Vec<Vec<Sent>> = Vec::new();
    let mut bytes = 0;
    for result in results {
        bytes += result.text.len();
        match calls.last_mut() {
            Some(call) if call.len() < MOST && bytes <= MOST_BYTES => call.push(result),
            _ => {
                bytes = result.text.len();
                calls.push(vec![result]);
            }
        }
    }
    let (mut unsent, mut why) = (Vec::new(), None);
    while let Some(mut call) = calls.pop() {
        let Err(error) = finish(link, &call).await else {
            core.tell(call.iter().map(|result| &result.attempt), Told::Over);
            continue;
        };
        if !link.passes(&error) && call.len() > 1 {
            calls.extend(call.into_iter().map(|result| vec![result]));
        } else if is(&error, &["22", "54"]) && !call[0].is_replaced {
            let failed = crate::Error::new(error::shown(&error)).typed("invalid_output");
            call[0] = Sent::new(call[0].attempt.clone(), &failed.0);
            call[0].is_replaced = true;
            calls.push(call);
        } else {
            call.iter_mut().for_each(|result| result.is_late = true);
            core.tell(call.iter().map(|result| &result.attempt), Told::Waiting);
            unsent.extend(call);
            why = Some(error);
        }
    }
    (unsent, why)
}

async fn finish(link: &mut Link, call: &[Sent]) -> Result<(), Error> {
    let texts: Vec<&str> = call.iter().map(|result| &*result.text).collect();
    let results = format!("[{}]", texts.join(","));
    let rows = link.rows(FINISH, &[(&results, Type::TEXT)]).await?;
    for (result, row) in call.iter().zip(rows) {
        if !row.try_get(0)? {
            let (id, reason): (_, Option<&str>) = (result.attempt.job.id, row.try_get(1)?);
            tracing::warn!(id, reason, "result dropped, the job is no longer ours");
        }
    }
    Ok(())
}
