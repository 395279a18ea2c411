//! The connection that says what became of jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use serde::Deserialize;
use tokio::select;
use tokio_util::sync::CancellationToken;

use crate::connection::Link;
use crate::error::Ending;
use crate::job::{Finish, Request};
use crate::worker::{Core, Received};
use crate::{ClientError, Error};

pub(crate) const FINISH: &str = "select to_json(f)::text from jobs.finish_many($1::text::jsonb) f";
const PROGRESS: &str = "
select to_json(h)::text from jobs.heartbeat($1::text::bigint, $2::text::bigint, progress => $3::text::jsonb) h";

/// The most results of a call, and the most bytes of one that has several.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 16 << 20;

/// Sends results, those together that come while a call is under way, until nothing runs any more
/// and all are sent.
pub(crate) async fn run(core: Arc<Core>, mut requests: Received, given_up: CancellationToken) {
    let mut link = Link::new(core.config(), given_up);
    let mut received = Vec::new();
    loop {
        select! {
            biased;
            count = requests.recv_many(&mut received, MOST) => if count == 0 { break },
            () = core.is_over.cancelled(), if !requests.is_closed() => requests.close(),
        }
        // Handlers that are ready to end are told of in one call.
        tokio::task::yield_now().await;
        while received.len() < MOST
            && let Ok(request) = requests.try_recv()
        {
            received.push(request);
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        for request in received.drain(..) {
            match request {
                Request::Finish(finish) => {
                    let result = Sent::new(&finish);
                    if bytes + result.text.len() > MOST_BYTES {
                        send(&core, &mut link, std::mem::take(&mut batch)).await;
                        bytes = 0;
                    }
                    bytes += result.text.len();
                    batch.push(result);
                }
                Request::Progress {
                    attempt,
                    value,
                    answer,
                } => {
                    let (id, token) = (attempt.job.id.to_string(), attempt.job.token.to_string());
                    let result = link.rows(PROGRESS, &[&id, &token, value.get()]).await;
                    match &result {
                        Ok(rows) => rows.iter().for_each(|row| attempt.heard(row)),
                        Err(error) if error.is(&["55000", "P0002"]) => attempt.lose(),
                        Err(_) => {}
                    }
                    // A handler that is gone needs no answer.
                    let _ = answer.send(result.map(drop));
                }
            }
        }
        send(&core, &mut link, batch).await;
    }
}

/// A result as it is sent.
struct Sent {
    id: i64,
    token: i64,
    text: String,
}

impl Sent {
    fn new(finish: &Finish) -> Self {
        let text = serde_json::to_string(finish).expect("texts and numbers are JSON");
        Self {
            id: finish.id,
            token: finish.token,
            text,
        }
    }
}

/// Sends results in one call, or each by itself if the server refuses that.
async fn send(core: &Core, link: &mut Link, batch: Vec<Sent>) {
    if batch.is_empty() || call(link, &batch).await.is_ok() {
        return;
    }
    for result in batch {
        let (id, token) = (result.id, result.token);
        let error = match call(link, &[result]).await {
            Ok(()) => continue,
            Err(error) => error,
        };
        let ending = Ending::from(Error::new(error.to_string()).typed("invalid_output"));
        let failed = Sent::new(&Finish { id, token, ending });
        if !error.is(&["22", "54"]) || call(link, &[failed]).await.is_err() {
            tracing::error!(id, %error, "a result cannot be sent");
            core.unsent.fetch_add(1, SeqCst);
        }
    }
}

async fn call(link: &mut Link, batch: &[Sent]) -> Result<(), ClientError> {
    let texts: Vec<&str> = batch.iter().map(|result| &*result.text).collect();
    let rows = link
        .rows(FINISH, &[&format!("[{}]", texts.join(","))])
        .await?;
    for (result, row) in batch.iter().zip(rows) {
        let finished: Finished = serde_json::from_str(&row)?;
        if !finished.done {
            tracing::warn!(
                id = result.id,
                reason = finished.reason,
                "result dropped, the job is no longer ours"
            );
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Finished {
    done: bool,
    reason: Option<String>,
}
