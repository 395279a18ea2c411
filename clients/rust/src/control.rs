//! The connection on which a worker sends beats, renews leases, and receives commands and cancels.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::config::Host;

use crate::engine::{Engine, Stage};
use crate::error::CREATE_EXTENSION;
use crate::executor::{json, query};
use crate::job::JobInfo;
use crate::link::Link;
use crate::options::names;
use crate::{ClientError, Result, Worker};

/// The oldest version of the extension that has what this library calls.
const NEEDS: &str = "0.1.0";
const VERSION: &str = env!("CARGO_PKG_VERSION");

const SERVER: &str = "
select json_build_object('database', current_database(), 'role', session_user,
    'version', (select extversion from pg_extension where extname = 'jobs'))::text";
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

/// Beats until the worker ends, or cannot start.
pub(crate) async fn run(engine: Arc<Engine>) {
    let options = &engine.worker.options;
    let pace = (options.lease / 3).min(Duration::from_secs(10));
    // So that another connection can renew the leases before they expire.
    let mut link = engine.worker.link(pace + Duration::from_secs(5));
    let pace = pace.as_secs_f64().to_string();
    let mut server = None;
    while engine.state.borrow().stage < Stage::Over {
        let beaten = beat(&engine, &mut link, &mut server).await;
        let has_worked = engine.state.borrow().stage > Stage::Start;
        match beaten.map_err(|error| engine.fatal(has_worked, error)) {
            Ok(()) => {
                engine.before(Stage::Over, link.wait(WAIT, &[&options.name, &pace])).await;
            }
            // Such as a name that no worker can have.
            Err(Some(error)) if !has_worked && !link.passes(&error) => return engine.fail(error),
            Err(Some(error)) => {
                engine.before(Stage::Over, link.pause("heartbeat", &error)).await;
            }
            Err(None) => return,
        }
    }
}

/// What a worker is connected to.
#[derive(Deserialize)]
struct Server {
    database: String,
    role: String,
    version: Option<String>,
}

/// Reads the version of the extension, and refuses none and an old one.
async fn greet(link: &mut Link) -> Result<Server> {
    let mut servers: Vec<Server> = query(link, SERVER, &[]).await?;
    let server = servers.swap_remove(0);
    let number = |version: &str| -> Vec<u32> {
        version.split('.').map(|part| part.parse().unwrap_or_default()).collect()
    };
    let fault = match &server.version {
        None => {
            let name = &server.database;
            format!(
                "the database \"{name}\" does not have the extension jobs\nHINT: {CREATE_EXTENSION}"
            )
        }
        Some(version) if number(version) < number(NEEDS) => format!(
            "the extension jobs has version {version}, and this library needs {NEEDS}\n\
             HINT: Run ALTER EXTENSION jobs UPDATE, after installing it on the server."
        ),
        Some(_) => return Ok(server),
    };
    Err(ClientError::Extension(fault))
}

async fn beat(engine: &Engine, link: &mut Link, server: &mut Option<Server>) -> Result<()> {
    if server.is_none() && engine.state.borrow().stage == Stage::Start {
        *server = Some(greet(link).await?);
    }
    let options = &engine.worker.options;
    let concurrency = options.concurrency.min(i32::MAX as usize).to_string();
    let (queues, info) = (names(&options.queues), json(&options.info)?);
    let of = [&*options.name, &queues, &concurrency, VERSION, info.get()];
    for stage in query(link, BEAT, &of).await? {
        let before = engine.enter(stage);
        if let (Stage::Start, Some(server)) = (before, &server) {
            engine.worker.log_start(server);
        } else if before != stage {
            tracing::info!(command = ?stage, "operator command received");
        }
    }
    let jobs: Vec<Arc<JobInfo>> = {
        let state = engine.state.borrow();
        let running = state.running.values().filter(|job| !job.is_settled.load(SeqCst));
        let unsent = state.unsent.values().map(|result| &result.job);
        running.chain(&state.waiting).chain(unsent).cloned().collect()
    };
    if !jobs.is_empty() {
        let (ids, tokens): (Vec<_>, Vec<_>) = jobs.iter().map(|job| (job.id, job.token)).unzip();
        let of = [&*format!("{ids:?}"), &format!("{tokens:?}")];
        let heard = query(link, HEARTBEATS, &of).await?;
        for (job, is_cancelled) in jobs.iter().zip(heard) {
            job.hear(is_cancelled);
        }
        engine.change(|state| state.release_waiting(false));
    }
    Ok(())
}

impl Worker {
    fn log_start(&self, server: &Server) {
        let kinds = self.fetches().join("\n").replace('\n', ", ");
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(directory)) => directory.display().to_string(),
            None => {
                self.config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default()
            }
        };
        tracing::info!(
            worker = self.options.name,
            queues = names(&self.options.queues).replace('\n', ", "),
            kinds = if kinds == ", " { "all kinds" } else { &kinds },
            concurrency = self.options.concurrency,
            database = server.database,
            user = server.role,
            host,
            extension = server.version,
            library = VERSION,
            "worker started"
        );
    }
}
