//! The connection on which a worker sends beats, renews leases, and receives commands and cancels.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::cells::SEE;
use crate::engine::{Engine, Stage};
use crate::error::CREATE_EXTENSION;
use crate::executor::{json, query};
use crate::job::JobInfo;
use crate::link::{Link, NEVER_CONNECTS};
use crate::{ClientError, Result};

/// The oldest version of the extension that has what this library calls.
const NEEDS: &str = "0.1.0";
const VERSION: &str = env!("CARGO_PKG_VERSION");

const SERVER: &str = "
select json_build_object('database', current_database(), 'role', session_user,
    'host', coalesce(host(inet_server_addr()), 'local'), 'version', version, 'is_old', coalesce(
        string_to_array(substring(version, '[0-9.]*'), '.')::int[] < string_to_array($1, '.')::int[], false))::text
from (select max(extversion) as version from pg_extension where extname = 'jobs') e";
const BEAT: &str = "
select to_json(jobs.worker_beat($1, string_to_array($2, e'\n'), $3::int,
    jsonb_build_object('library', 'postgres-jobs for Rust', 'version', $4) || $5::jsonb))::text";
// A call takes at most 10,000 jobs.
const HEARTBEATS: &str = "
select coalesce(cancel_requested::text, 'null')
from (select translate($1, '[]', '{}')::bigint[] as ids, translate($2, '[]', '{}')::bigint[] as tokens) held,
    generate_series(1, cardinality(ids), 10000) n, jobs.heartbeat_many(ids[n:n + 9999], tokens[n:n + 9999])";
const WAIT: &str = "
call jobs.wait_any('{}', worker => $1, timeout => make_interval(secs => $2::float8))";

/// Beats until the worker ends.
pub(crate) async fn run(engine: Arc<Engine>, cell: usize) {
    let options = &engine.worker.options;
    let pace = (options.lease / 3).min(Duration::from_secs(10));
    // So that another connection can renew the leases before they expire.
    let mut link = engine.worker.link(cell, pace + Duration::from_secs(5));
    let pace = pace.as_secs_f64().to_string();
    while engine.stage() < Stage::Over {
        let is_first = !engine.state.borrow().cells[cell].is_known;
        match beat(&engine, cell, &mut link, is_first).await {
            Ok(()) => {
                engine.before(Stage::Over, link.wait(WAIT, &[&options.name, &pace])).await;
            }
            Err(error) => {
                let error = engine.hinted(cell, error);
                // Also one such as a name that no worker can have.
                let is_lasting =
                    error.has_hint() || error.is(NEVER_CONNECTS) || !link.passes(&error);
                if is_first && is_lasting {
                    return engine.fail(error);
                }
                engine.before(Stage::Over, link.pause("heartbeat", &error)).await;
            }
        }
    }
}

/// What a worker is connected to.
#[derive(Deserialize)]
struct Server {
    database: String,
    role: String,
    host: String,
    version: Option<String>,
    is_old: bool,
}

/// Reads the version of the extension, and refuses none and an old one.
async fn greet(link: &mut Link) -> Result<Server> {
    let server: Server = query(link, SERVER, &[NEEDS]).await?.swap_remove(0);
    let (fault, hint) = match &server.version {
        None => {
            let fault =
                format!("the database \"{}\" does not have the extension jobs", server.database);
            (fault, CREATE_EXTENSION)
        }
        Some(version) if server.is_old => (
            format!("the extension jobs has version {version}, and this library needs {NEEDS}"),
            "Run ALTER EXTENSION jobs UPDATE, after installing it on the server.",
        ),
        Some(_) => return Ok(server),
    };
    Err(ClientError::Extension(fault).with_hint(hint))
}

async fn beat(engine: &Engine, cell: usize, link: &mut Link, is_first: bool) -> Result<()> {
    let mut server = if is_first { Some(greet(link).await?) } else { None };
    for seen in query(link, SEE, &[]).await? {
        engine.see(cell, seen)?;
    }
    let options = &engine.worker.options;
    let concurrency = options.concurrency.min(i32::MAX as usize).to_string();
    let (queues, info) = (engine.queues(cell), json(&options.info)?);
    let of = [&*options.name, &queues, &concurrency, VERSION, info.get()];
    for command in query(link, BEAT, &of).await? {
        if let Some(server) = server.take_if(|_| engine.stage() <= Stage::Run) {
            engine.enter(Stage::Run);
            let kinds = engine.worker.fetches().join("\n").replace('\n', ", ");
            tracing::info!(
                worker = options.name,
                queues = queues.replace('\n', ", "),
                kinds = if kinds == ", " { "all kinds" } else { &kinds },
                concurrency = options.concurrency,
                database = server.database,
                user = server.role,
                host = server.host,
                extension = server.version,
                library = VERSION,
                "worker started"
            );
        }
        if engine.obey(cell, command) != command {
            let command = format!("{command:?}").to_lowercase();
            tracing::info!(command, "operator command received");
        }
    }
    let jobs: Vec<Arc<JobInfo>> = {
        let state = engine.state.borrow();
        let running = state.attended().filter(|job| !job.is_settled());
        let unsent = state.unsent.values().map(|result| &result.job);
        let held = running.chain(&state.waiting).chain(unsent);
        held.filter(|job| job.cell == cell).cloned().collect()
    };
    if !jobs.is_empty() {
        let (ids, tokens): (Vec<_>, Vec<_>) = jobs.iter().map(|job| (job.id, job.token)).unzip();
        let of = [&*format!("{ids:?}"), &format!("{tokens:?}")];
        let heard = query(link, HEARTBEATS, &of).await?;
        for (job, is_cancelled) in jobs.iter().zip(heard) {
            job.hear(is_cancelled);
        }
        engine.change(|state| state.release_waiting(|job| job.reason.get().is_some()));
    }
    Ok(())
}
