//! The connections and privileges of one Postgres role.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{timeout, timeout_at};
use tokio_postgres::Config;
use tokio_postgres::types::ToSql;

use super::connection::{Connection, Pool, locked};
use super::problem::Problem;
use crate::standby::{STANDBY, Standby};

/// Values of the parameters $1, $2 ..
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How many connections a role has at most, however many people use it.
const CONNECTIONS: usize = 4;
/// How long a request waits for a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait beyond a statement's timeout. A connection that is silent for longer counts as
/// lost.
const SILENCE: Duration = Duration::from_secs(3);
/// How long the privileges of a role are cached.
const RIGHTS_KEPT: Duration = Duration::from_secs(60);
/// How long live refreshes of several people share a result.
pub(crate) const SHARED: Duration = Duration::from_secs(2);
/// A result is shared for this many times as long as it took, so that a query takes at most this
/// part of a processor, however many people look.
const ONE_PART_IN: u32 = 50;
/// No result is shared for longer than that.
const LONGEST_SHARED: Duration = Duration::from_secs(30);
macro_rules! read {
    () => {
        "begin isolation level read committed, read only, not deferrable; \
         set local jit = off; set local max_parallel_workers_per_gather = 0"
    };
}
/// Statements of pages are short: parallel workers and JIT would take longer.
const READ: &str = read!();
/// The planner would read millions of jobs for a hash.
const LOOK_UP: &str = concat!(
    read!(),
    "; set local enable_seqscan = off; set local enable_hashjoin = off; \
     set local enable_mergejoin = off"
);
const WRITE: &str = "begin isolation level read committed, read write";
/// Settings of the role, and objects in schemas of its search_path, have no effect.
const SETTINGS: &str = "set local search_path = pg_catalog, pg_temp; set local timezone = 'UTC'; \
     set local intervalstyle = 'postgres'; set local lock_timeout = '5s'";
/// How long a call that changes something may take. It can change up to 10,000 jobs.
const CALL: Duration = Duration::from_secs(60);

/// The privileges of a role on the extension.
#[derive(Deserialize)]
pub(crate) struct Rights {
    /// The functions that it may execute.
    pub(crate) functions: HashSet<String>,
    /// Whether it may read the views: a viewer or more.
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

/// How a query that only reads is run.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    begin: &'static str,
    within: Duration,
}

impl Reading {
    /// With this timeout.
    pub(crate) fn within(within: Duration) -> Self {
        let begin = READ;
        Self { begin, within }
    }

    /// With this timeout, and a plan that looks jobs up one by one, as the extension's statements
    /// do.
    pub(crate) fn looking_up(within: Duration) -> Self {
        let begin = LOOK_UP;
        Self { begin, within }
    }
}

/// The rows of a query, each a JSON text.
type Rows = Arc<Vec<String>>;
/// Results by statement and parameters, with the time until which each is shared.
type Shared = HashMap<String, (Instant, Arc<OnceCell<Result<Rows, Problem>>>)>;

pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) config: Config,
    turns: Arc<Semaphore>,
    pool: Arc<Pool>,
    number: u64,
    /// The latest known privileges.
    rights: Mutex<Option<Arc<Rights>>>,
    shared: Mutex<Shared>,
    /// It ends with the role: when the last session has ended.
    life: watch::Sender<()>,
}

/// A transaction on a connection of its own.
struct Turn {
    connection: Option<Connection>,
    of: Place,
    permit: Option<OwnedSemaphorePermit>,
    within: Duration,
}

/// Where a role's connections wait for the next statement, while the role exists.
#[derive(Clone)]
struct Place {
    pool: Arc<Pool>,
    role: u64,
    life: watch::Receiver<()>,
}

impl Place {
    fn keep(&self, connection: Connection) {
        if self.life.has_changed().is_ok() {
            self.pool.keep(self.role, connection);
        }
    }
}

impl Role {
    pub(crate) fn new(config: &Config, pool: &Arc<Pool>) -> Self {
        Self {
            name: config.get_user().unwrap_or_default().into(),
            config: config.clone(),
            turns: Arc::new(Semaphore::new(CONNECTIONS)),
            pool: pool.clone(),
            number: pool.number(),
            rights: Mutex::default(),
            shared: Mutex::default(),
            life: watch::Sender::default(),
        }
    }

    pub(crate) async fn rights(&self) -> Result<Arc<Rights>, Problem> {
        let reading = Reading::within(Duration::from_secs(5));
        let rows = self.shared_rows(RIGHTS, &[], reading, RIGHTS_KEPT).await?;
        let rights: Arc<Rights> = Arc::new(serde_json::from_str(&rows[0])?);
        *locked(&self.rights) = Some(rights.clone());
        Ok(rights)
    }

    /// How a standby is, and none of a primary.
    pub(crate) async fn standby(&self) -> Result<Option<Standby>, Problem> {
        let reading = Reading::within(Duration::from_secs(5));
        let rows = self.shared_rows(STANDBY, &[], reading, SHARED).await?;
        Ok(rows.first().map(|row| serde_json::from_str(row)).transpose()?)
    }

    /// The latest known privileges, without a query: for the frame of an error page.
    pub(crate) fn known_rights(&self) -> Option<Arc<Rights>> {
        locked(&self.rights).clone()
    }

    /// Ends when the last session of the role ends. It does not keep the role alive.
    pub(crate) fn life(&self) -> watch::Receiver<()> {
        self.life.subscribe()
    }

    /// Runs a query that only reads.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        of: Parameters<'_>,
        Reading { begin, within }: Reading,
    ) -> Result<Vec<String>, Problem> {
        self.run(begin, sql, of, within).await
    }

    /// Rows for live refreshes. Concurrent requests for the same rows share the result, or the
    /// failure.
    pub(crate) async fn shared_rows(
        &self,
        sql: &str,
        of: Parameters<'_>,
        reading: Reading,
        shared_for: Duration,
    ) -> Result<Rows, Problem> {
        let mut key = sql.to_owned();
        write!(key, "\0{of:?}").expect("a text can be written to");
        let cell = {
            let (mut shared, now) = (locked(&self.shared), Instant::now());
            // An unfinished result that a request waits for stays.
            shared.retain(|_, (until, cell)| {
                now < *until || !cell.initialized() && Arc::strong_count(cell) > 1
            });
            let fresh = || (now + shared_for, Arc::default());
            shared.entry(key.clone()).or_insert_with(fresh).1.clone()
        };
        let read = async || {
            let began = Instant::now();
            let rows = self.rows(sql, of, reading).await.map(Arc::new);
            let longer = LONGEST_SHARED.min(began.elapsed() * ONE_PART_IN);
            if let (Ok(_), Some((until, _))) = (&rows, locked(&self.shared).get_mut(&key)) {
                *until = (*until).max(Instant::now() + longer);
            }
            rows
        };
        let rows = cell.get_or_init(read).await.clone();
        if rows.is_err() && shared_for > SHARED {
            locked(&self.shared).remove(&key);
        }
        rows
    }

    /// Runs a call that changes something, in a transaction of its own.
    pub(crate) async fn call(
        &self,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<Option<String>, Problem> {
        let rows = self.run(WRITE, sql, of, CALL).await;
        locked(&self.shared).clear();
        Ok(rows?.into_iter().next())
    }

    async fn run(
        &self,
        begin: &str,
        sql: &str,
        of: Parameters<'_>,
        within: Duration,
    ) -> Result<Vec<String>, Problem> {
        let turn = self.begin(begin, within).await?;
        let answer = timeout(within + SILENCE, turn.connection().query(&as_json(sql), of)).await;
        let rows = answer.map_err(|_| Problem::no_answer())??;
        turn.commit().await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Begins a transaction on an idle connection or on a new one. The server of an idle one may
    /// have ended it; then nothing has happened yet, and another one is taken.
    async fn begin(&self, begin: &str, within: Duration) -> Result<Turn, Problem> {
        let begin =
            format!("{begin}; {SETTINGS}; set local statement_timeout = {}", within.as_millis());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let permit = timeout_at(deadline, self.turns.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| Problem::busy())?;
        let mut turn = Turn {
            connection: None,
            of: Place { pool: self.pool.clone(), role: self.number, life: self.life() },
            permit: permit.ok(),
            within,
        };
        loop {
            let idle = self.pool.take(self.number);
            let is_idle = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                None => {
                    let permit = self.pool.permit(deadline).await?;
                    let opened = timeout_at(deadline, Connection::open(&self.config, permit));
                    opened.await.map_err(|_| Problem::no_answer())??
                }
            };
            match timeout(SILENCE, connection.batch_execute(&begin)).await {
                Ok(Ok(())) => {
                    turn.connection = Some(connection);
                    return Ok(turn);
                }
                Ok(Err(_)) if is_idle => {}
                Ok(Err(error)) => return Err(error.into()),
                // The others would be silent as well.
                Err(_) if is_idle => self.pool.close(self.number),
                Err(_) => return Err(Problem::no_answer()),
            }
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.pool.close(self.number);
    }
}

impl Turn {
    fn connection(&self) -> &Connection {
        let connection = self.connection.as_ref();
        connection.expect("it is there until the end")
    }

    /// Ends the transaction. The connection serves again unless that fails.
    async fn commit(mut self) -> Result<(), Problem> {
        let commit = self.connection().batch_execute("commit");
        let ended = timeout(self.within + SILENCE, commit).await;
        let connection = self.connection.take().expect("it is there until the end");
        ended.map_err(|_| Problem::no_answer())??;
        self.of.keep(connection);
        Ok(())
    }
}

/// A statement that failed, or whose page was closed. The server may still run it, and its
/// connection stays occupied until then.
impl Drop for Turn {
    fn drop(&mut self) {
        let (Some(connection), Some(permit)) = (self.connection.take(), self.permit.take()) else {
            return;
        };
        let (of, within) = (self.of.clone(), self.within + SILENCE);
        tokio::spawn(async move {
            let ended = timeout(within, connection.batch_execute("rollback")).await;
            if let Ok(Ok(())) = ended {
                of.keep(connection);
            }
            drop(permit);
        });
    }
}

/// Makes each row one JSON text, whatever the types of its columns.
fn as_json(sql: &str) -> String {
    format!("select pg_catalog.to_jsonb(q)::text from ({sql}) q")
}
