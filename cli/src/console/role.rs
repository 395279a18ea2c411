//! Connections of one Postgres role, and what it may do.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::{OnceCell, Semaphore};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error};

use super::problem::Problem;

/// Values of the parameters $1, $2 ..
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How many connections a role has at most, whatever the number of people that use it.
const CONNECTIONS: usize = 4;
/// After how long an idle connection is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How long what a role may do is remembered.
const RIGHTS_KEPT: Duration = Duration::from_secs(60);
/// How long live refreshes of several people share a result.
pub(crate) const SHARED: Duration = Duration::from_secs(2);
/// Statements of pages are short: to start processes or to compile for them takes longer.
const READ: &str =
    "begin read only; set local jit = off; set local max_parallel_workers_per_gather = 0";
/// How long a call that changes something may take: one of them is about up to 10,000 jobs.
const CALL: Duration = Duration::from_secs(60);

/// Nothing that holds one of these locks panics half way.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a role may do with the extension.
#[derive(Deserialize)]
pub(crate) struct Rights {
    /// The functions that it may execute.
    pub(crate) functions: HashSet<String>,
    /// Whether it may look at the views: a viewer or more.
    pub(crate) looks: bool,
    /// Whether it sees args, meta, progress and output.
    pub(crate) sees_payload: bool,
    pub(crate) database: String,
    /// As the server has it, which is another name than that of the login after SET ROLE.
    pub(crate) role: String,
    pub(crate) is_standby: bool,
    pub(crate) version: Option<String>,
}

const RIGHTS: &str = "
select current_database() as database, current_user as role, pg_is_in_recovery() as is_standby,
    (select x.extversion from pg_catalog.pg_extension x where x.extname = 'jobs') as version,
    coalesce((select has_schema_privilege(n.oid, 'USAGE') and has_table_privilege(c.oid, 'SELECT')
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'jobs' and c.relname = 'jobs'), false) as looks,
    coalesce((select has_table_privilege(c.oid, 'SELECT')
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'jobs' and c.relname = 'job'), false) as sees_payload,
    coalesce((select jsonb_agg(distinct p.proname)
        from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'jobs' and has_schema_privilege(n.oid, 'USAGE')
            and has_function_privilege(p.oid, 'EXECUTE')), '[]') as functions";

/// The rows of a query, each a JSON text.
type Rows = Arc<Vec<String>>;
/// Results by statement and parameters, with the time until which each is shared.
type Shared = HashMap<String, (Instant, Arc<OnceCell<Rows>>)>;

pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) config: Config,
    turns: Semaphore,
    idle: Mutex<Vec<(Instant, Client)>>,
    rights: tokio::sync::Mutex<Option<(Instant, Arc<Rights>)>>,
    shared: Mutex<Shared>,
}

impl Role {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            name: config.get_user().unwrap_or_default().into(),
            config: config.clone(),
            turns: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
            rights: tokio::sync::Mutex::default(),
            shared: Mutex::default(),
        }
    }

    pub(crate) async fn rights(&self) -> Result<Arc<Rights>, Problem> {
        let mut known = self.rights.lock().await;
        if let Some((since, rights)) = &*known
            && since.elapsed() < RIGHTS_KEPT
        {
            return Ok(rights.clone());
        }
        let rows = self.rows(RIGHTS, &[], Duration::from_secs(5)).await?;
        let rights: Arc<Rights> = Arc::new(serde_json::from_str(&rows[0])?);
        *known = Some((Instant::now(), rights.clone()));
        Ok(rights)
    }

    /// What was known last, without asking: for the frame of a page that says what went wrong.
    pub(crate) fn known_rights(&self) -> Option<Arc<Rights>> {
        let known = self.rights.try_lock().ok()?;
        known.as_ref().map(|(_, rights)| rights.clone())
    }

    /// Runs a query that only reads.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        of: Parameters<'_>,
        within: Duration,
    ) -> Result<Vec<String>, Error> {
        let _turn = self.turn().await;
        let client = self.begin(READ, within).await?;
        let rows = client.query(&as_json(sql), of).await;
        self.end(client, rows.is_ok()).await?;
        rows?.iter().map(|row| row.try_get(0)).collect()
    }

    /// Rows for live refreshes: who asks for the same meanwhile gets the same result.
    pub(crate) async fn shared_rows(
        &self,
        sql: &str,
        of: Parameters<'_>,
        within: Duration,
        shared_for: Duration,
    ) -> Result<Rows, Error> {
        let mut key = sql.to_owned();
        write!(key, "\0{of:?}").expect("a text can be written to");
        let cell = {
            let (mut shared, now) = (locked(&self.shared), Instant::now());
            // What somebody still waits for stays, however long that takes.
            shared.retain(|_, (until, cell)| {
                now < *until || !cell.initialized() && Arc::strong_count(cell) > 1
            });
            let fresh = || (now + shared_for, Arc::default());
            shared.entry(key).or_insert_with(fresh).1.clone()
        };
        let rows = async || self.rows(sql, of, within).await.map(Arc::new);
        cell.get_or_try_init(rows).await.cloned()
    }

    /// Runs a call that changes something, in a transaction of its own.
    pub(crate) async fn call(
        &self,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<Option<String>, Error> {
        let _turn = self.turn().await;
        let client = self
            .begin("begin isolation level read committed", CALL)
            .await?;
        let row = client.query_opt(&as_json(sql), of).await;
        let ended = self.end(client, row.is_ok()).await;
        locked(&self.shared).clear();
        let row = row?;
        ended?;
        row.map(|row| row.try_get(0)).transpose()
    }

    async fn turn(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.turns.acquire().await.expect("it is never closed")
    }

    /// Begins a transaction on an idle connection or on a new one. The server of an idle one may
    /// have gone; then nothing has happened yet, and another one is taken.
    async fn begin(&self, begin: &str, within: Duration) -> Result<Client, Error> {
        let begin = format!(
            "{begin}; set local statement_timeout = {}; set local lock_timeout = '5s'",
            within.as_millis()
        );
        loop {
            let idle = locked(&self.idle).pop();
            let is_idle = idle.is_some();
            let client = match idle {
                Some((_, client)) => client,
                None => postgres_jobs::connect(&self.config).await?,
            };
            match client.batch_execute(&begin).await {
                Err(_) if is_idle => {}
                begun => return begun.map(|()| client),
            }
        }
    }

    /// Ends the transaction. The connection serves again unless that fails.
    async fn end(&self, client: Client, is_good: bool) -> Result<(), Error> {
        let ended = client
            .batch_execute(if is_good { "commit" } else { "rollback" })
            .await;
        if ended.is_ok() {
            locked(&self.idle).push((Instant::now(), client));
        }
        // What was wrong with the statement says more.
        if is_good { ended } else { Ok(()) }
    }

    /// Closes connections that nobody has used for a while.
    pub(crate) fn tidy(&self) {
        locked(&self.idle).retain(|(since, client)| since.elapsed() < IDLE && !client.is_closed());
    }
}

/// So each row comes as one JSON text, whatever the types of its columns.
fn as_json(sql: &str) -> String {
    format!("select to_jsonb(q)::text from ({sql}) q")
}
