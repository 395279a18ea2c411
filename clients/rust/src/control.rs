//! The connection on which a worker says that it is there, renews leases, and hears of commands and
//! cancels.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::select;

use crate::ClientError;
use crate::connection::{Link, array};
use crate::job::Attempt;
use crate::worker::Core;

const BEAT: &str = "
select to_json(jobs.worker_beat($1, $2::text::text[], $3::text::integer, $4::text::jsonb))::text";
const HEARTBEATS: &str = "
select to_json(h)::text from jobs.heartbeat_many($1::text::bigint[], $2::text::bigint[]) h";
const WAIT: &str = "call jobs.wait_any('{}', timeout => $1::text::interval, worker => $2)";

/// Beats until nothing runs any more.
pub(crate) async fn run(core: Arc<Core>) {
    let mut link = Link::new(core.config(), core.is_over.clone());
    let pace = (core.worker.lease / 3).min(Duration::from_secs(10));
    let pace_text = format!("{} s", pace.as_secs_f64());
    loop {
        let round = async {
            beat(&core, &mut link).await?;
            link.wait(WAIT, &[&pace_text, &core.worker.name]).await
        };
        select! {
            result = round => if let Err(error) = result {
                tracing::error!(%error, "cannot beat");
                // The server may take no calls without queues: then this is the pace.
                tokio::time::sleep(pace.min(Duration::from_millis(500))).await;
            },
            () = core.is_over.cancelled() => break,
        }
    }
    link.cancel().await;
}

async fn beat(core: &Core, link: &mut Link) -> Result<(), ClientError> {
    let worker = &core.worker;
    let queues = array(worker.queues.iter().map(|queue| &queue.name));
    let info = serde_json::to_string(&worker.info)?;
    let parameters = [
        &*worker.name,
        &queues,
        &worker.concurrency.to_string(),
        &info,
    ];
    for answer in link.rows(BEAT, &parameters).await? {
        let command = serde_json::from_str(&answer)?;
        core.command
            .send_if_modified(|known| known.replace(command) != Some(command));
    }
    let held = |attempt: &Arc<Attempt>| !attempt.is_over() && !attempt.is_in_transaction();
    let attempts: Vec<_> = core.attempts().into_iter().filter(held).collect();
    let ids = array(attempts.iter().map(|attempt| attempt.job.id));
    let tokens = array(attempts.iter().map(|attempt| attempt.job.token));
    if attempts.is_empty() {
        return Ok(());
    }
    let answers = link.rows(HEARTBEATS, &[&ids, &tokens]).await?;
    attempts
        .iter()
        .zip(answers)
        .for_each(|(attempt, answer)| attempt.heard(&answer));
    Ok(())
}

#[derive(Deserialize)]
struct Heartbeat {
    cancel_requested: Option<bool>,
}

impl Attempt {
    /// Takes the answer to a heartbeat.
    pub(crate) fn heard(&self, answer: &str) {
        match serde_json::from_str::<Heartbeat>(answer).map(|answer| answer.cancel_requested) {
            Ok(Some(false)) => {}
            Ok(Some(true)) => self.cancellation.cancel(),
            Ok(None) => self.lose(),
            Err(error) => tracing::error!(%error, "a heartbeat's answer that cannot be read"),
        }
    }
}
