//! The connection on which a worker says that it is there, renews leases, and hears of commands and
//! cancels.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::ClientError;
use crate::attempt::Told;
use crate::link::{Link, Parameter};
use crate::run::{Command, Core};

const BEAT: &str = "select jobs.worker_beat($1, $2, $3, $4::text::jsonb)";
const HEARTBEATS: &str = "select cancel_requested from jobs.heartbeat_many($1, $2)";
const WAIT: &str = "call jobs.wait_any('{}', timeout => make_interval(secs => $1), worker => $2)";

/// Beats until it is ended. Only what the server has against the worker at its start is an error.
pub(crate) async fn run(core: Arc<Core>) -> Result<(), ClientError> {
    let mut link = core.worker.link();
    let options = &core.worker.options;
    let pace = (options.lease / 3)
        .min(Duration::from_secs(10))
        .as_secs_f64();
    loop {
        match beat(&core, &mut link).await {
            Ok(()) => {
                let of: [Parameter<'_>; 2] = [(&pace, Type::FLOAT8), (&options.name, Type::TEXT)];
                link.wait(WAIT, &of).await;
            }
            Err(error) => {
                let is_known = core.command.borrow().is_some();
                if !is_known && !link.passes(&error) {
                    return Err(error.into());
                }
                link.pause(&error).await;
            }
        }
    }
}

async fn beat(core: &Core, link: &mut Link) -> Result<(), Error> {
    let (queues, options) = (core.worker.queues(), &core.worker.options);
    let concurrency = i32::try_from(options.concurrency).unwrap_or(i32::MAX);
    let info = serde_json::Value::from(options.info.clone()).to_string();
    let of: [Parameter<'_>; 4] = [
        (&options.name, Type::TEXT),
        (&queues, Type::TEXT_ARRAY),
        (&concurrency, Type::INT4),
        (&info, Type::TEXT),
    ];
    for row in link.rows(BEAT, &of).await? {
        let command = Some(match row.try_get(0)? {
            "quiet" => Command::Quiet,
            "stop" => Command::Stop,
            _ => Command::Run,
        });
        let is_new = |known: &mut Option<Command>| std::mem::replace(known, command) != command;
        core.command.send_if_modified(is_new);
    }
    let attempts = core.attempts(|state| state.result != Told::Over);
    if attempts.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = attempts.iter().map(|attempt| attempt.job.id).collect();
    let tokens: Vec<i64> = attempts.iter().map(|attempt| attempt.job.token).collect();
    let of: [Parameter<'_>; 2] = [(&ids, Type::INT8_ARRAY), (&tokens, Type::INT8_ARRAY)];
    for (attempt, row) in attempts.iter().zip(link.rows(HEARTBEATS, &of).await?) {
        attempt.hear(row.try_get(0)?);
    }
    Ok(())
}
