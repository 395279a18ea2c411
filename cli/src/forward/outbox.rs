//! The outbox, in a database that need not have the extension: outbox/outbox.sql.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config};

use super::fault::{Fault, answer};

/// How many rows are carried over at once.
const BATCH: i32 = 1000;

/// A connection to an outbox, which hears of new rows.
pub(super) struct Outbox {
    client: Client,
    messages: JoinHandle<()>,
    heard: Arc<Notify>,
    /// The outbox, wherever it is.
    pub(super) id: String,
    /// Whether each row that may have been sent to a cell names it.
    pub(super) has_cells: bool,
    /// Whether some row names a cell.
    pub(super) is_on_the_way: bool,
    pub(super) version: String,
}

pub(super) struct Row {
    pub(super) id: i64,
    pub(super) key: String,
    /// The queue, or the kind that decides it: in it, rows keep their order.
    pub(super) lane: String,
    /// An element of jobs.insert_many.
    pub(super) job: String,
}

/// A row that the queue refuses, and when it may help to try again, as an interval.
pub(super) struct Refused {
    pub(super) id: i64,
    pub(super) error: String,
    pub(super) code: String,
    pub(super) retry_after: Option<&'static str>,
}

/// How an outbox is.
pub(super) struct Status {
    pub(super) waiting: i64,
    pub(super) oldest_at: Option<DateTime<Utc>>,
    pub(super) refused: i64,
}

/// Its column names are shown to people.
const SHOWN: &str = "
select to_jsonb(s)::text from jobs.outbox_status s order by s.queue";
const REFUSED: &str = "
select jsonb_build_object('id', o.id, 'kind', o.job -> 'kind', 'queue', o.queue, 'attempts', o.attempts, 'sqlstate', o.sqlstate, 'error', o.error,
           'refused_at', o.refused_at, 'next_attempt_at', nullif(o.next_attempt_at, 'infinity'))::text
    from jobs.outbox o where o.refused_at is not null order by o.id limit 20";
const STATUS: &str = "
select count(*) filter (where error is null), min(created_at) filter (where next_attempt_at is distinct from 'infinity'), count(error)
    from jobs.outbox where $1 is null or coalesce(cell, $1) = $1";
const WAITING: &str = "
select count(*) from jobs.outbox where error is null and cell is not distinct from $1";
/// Asks nothing of the schema, which another role may not use.
const INSTALLED: &str = "
select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'jobs' and c.relname = 'outbox_source'),
    exists (select from pg_catalog.pg_extension where extname = 'jobs'), current_setting('server_version'), current_database()::text";
const ID: &str = "
select id::text, has_cells, has_cells and exists (select from jobs.outbox where cell is not null) from jobs.outbox_source";
/// A forwarder that the network has lost does not keep its rows for long.
const PREPARE: &str = "
set idle_in_transaction_session_timeout = '2min'; set statement_timeout = '1min'";
const LISTEN: &str = "listen jobs_outbox";
const BEGIN: &str = "begin isolation level read committed";
const TAKE: &str = r"
select o.id, o.key::text, coalesce(o.queue, E'\t' || (o.job ->> 'kind')), o.job::text
    from jobs.outbox_take($1, $2, $3) o order by o.id";
const AIM: &str = "select jobs.outbox_aim($1, $2)";
const HAS_CELLS: &str = "select jobs.outbox_has_cells($1)";
const DONE: &str = "select jobs.outbox_done($1)";
const REFUSE: &str = "select jobs.outbox_refused(array[$1], $2, $3, $4::text::interval)";
const COMMIT: &str = "commit";
const ROWS: &str = "
select k::text, o.id from unnest($1::text[]::uuid[]) k left join jobs.outbox o on o.key = k";

impl Outbox {
    /// `heard` is told when it hears of new rows.
    pub(super) async fn open(config: &Config, heard: Arc<Notify>) -> Result<Self, Fault> {
        let hears = heard.clone();
        let connected = postgres_jobs::connect_hearing(config, move |_| hears.notify_one());
        let (client, messages) = answer(connected).await?;
        let (id, version) = (String::new(), String::new());
        let (has_cells, is_on_the_way) = (false, false);
        let mut outbox = Self { client, messages, heard, id, has_cells, is_on_the_way, version };
        let row = outbox.row(INSTALLED).await?;
        let database: String = row.try_get(3)?;
        let missing = match (row.try_get(0)?, row.try_get(1)?) {
            (true, _) => None,
            (false, true) => Some("Insert jobs there directly: it has the extension jobs."),
            (false, false) => {
                Some("Check the database, or run outbox.sql in it: psql -f outbox.sql.")
            }
        };
        if let Some(hint) = missing {
            return Err(Fault::wrong(format!("the database \"{database}\" has no outbox"), hint));
        }
        outbox.version = row.try_get(2)?;
        let row = outbox.row(ID).await?;
        (outbox.id, outbox.has_cells) = (row.try_get(0)?, row.try_get(1)?);
        outbox.is_on_the_way = row.try_get(2)?;
        answer(outbox.client.batch_execute(PREPARE)).await?;
        Ok(outbox)
    }

    async fn row(&self, sql: &str) -> Result<tokio_postgres::Row, Fault> {
        let mut rows = answer(self.client.query_typed(sql, &[])).await?;
        Ok(rows.swap_remove(0))
    }

    /// Has the session hear of new rows.
    pub(super) async fn listen(&self) -> Result<(), Fault> {
        answer(self.client.batch_execute(LISTEN)).await
    }

    /// Returns when rows may have come.
    pub(super) async fn heard(&self) {
        self.heard.notified().await;
    }

    /// Begins a transaction, and takes rows of a cell, or rows without one. Leaves out these lanes.
    pub(super) async fn take(&self, hold: &[String], cell: Option<i32>) -> Result<Vec<Row>, Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 3] =
            [(&BATCH, Type::INT4), (&hold, Type::TEXT_ARRAY), (&cell, Type::INT4)];
        let begun = self.client.batch_execute(BEGIN);
        let taken = self.client.query_typed(TAKE, &of);
        let (begun, taken) = answer(async { Ok::<_, Fault>(tokio::join!(begun, taken)) }).await?;
        begun?;
        let row = |row: &tokio_postgres::Row| {
            let (id, key, lane, job) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            Ok(Row { id, key, lane, job })
        };
        taken?.iter().map(row).collect()
    }

    /// Deletes rows that the queue has, keeps the refused ones with their errors, chooses the cells
    /// of others, and commits.
    pub(super) async fn commit(
        &self,
        done: &[i64],
        refused: &[Refused],
        aimed: &BTreeMap<i32, Vec<i64>>,
    ) -> Result<(), Fault> {
        for (cell, rows) in aimed {
            self.aim(rows, *cell).await?;
        }
        for one in refused {
            let of: [(&(dyn ToSql + Sync), Type); 4] = [
                (&one.id, Type::INT8),
                (&one.error, Type::TEXT),
                (&one.code, Type::TEXT),
                (&one.retry_after, Type::TEXT),
            ];
            answer(self.client.query_typed(REFUSE, &of)).await?;
        }
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&done, Type::INT8_ARRAY)];
        let deleted = async {
            match done {
                [] => Ok(Vec::new()),
                _ => self.client.query_typed(DONE, &of).await,
            }
        };
        let committed = self.client.batch_execute(COMMIT);
        let (deleted, committed) =
            answer(async { Ok::<_, Fault>(tokio::join!(deleted, committed)) }).await?;
        deleted?;
        Ok(committed?)
    }

    /// Chooses the cell of rows.
    pub(super) async fn aim(&self, rows: &[i64], cell: i32) -> Result<(), Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 2] = [(&rows, Type::INT8_ARRAY), (&cell, Type::INT4)];
        answer(self.client.query_typed(AIM, &of)).await.map(|_| ())
    }

    /// Writes down whether each row that may have been sent to a cell names it.
    pub(super) async fn set_has_cells(&mut self, so: bool) -> Result<(), Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&so, Type::BOOL)];
        answer(self.client.query_typed(HAS_CELLS, &of)).await?;
        self.has_cells = so;
        Ok(())
    }

    /// Those of the keys of which there is no row any more, and the rows of the others.
    pub(super) async fn rows(&self, keys: &[String]) -> Result<(Vec<String>, Vec<i64>), Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&keys, Type::TEXT_ARRAY)];
        let (mut gone, mut here) = (Vec::new(), Vec::new());
        for row in answer(self.client.query_typed(ROWS, &of)).await? {
            match row.try_get(1)? {
                Some(id) => here.push(id),
                None => gone.push(row.try_get(0)?),
            }
        }
        Ok((gone, here))
    }

    /// How many rows of a cell, or of none, wait.
    pub(super) async fn waiting(&self, cell: Option<i32>) -> Result<i64, Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&cell, Type::INT4)];
        let rows = answer(self.client.query_typed(WAITING, &of)).await?;
        Ok(rows[0].try_get(0)?)
    }

    /// Of the rows of a cell and of rows without one, or of all.
    pub(super) async fn status(&self, cell: Option<i32>) -> Result<Status, Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&cell, Type::INT4)];
        let row = answer(self.client.query_typed(STATUS, &of)).await?.swap_remove(0);
        let (waiting, oldest_at, refused) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Status { waiting, oldest_at, refused })
    }

    /// The queues with rows, and the oldest refused rows, as JSON.
    pub(super) async fn shown(&self) -> Result<[Vec<String>; 2], Fault> {
        let texts = async |sql| {
            let rows = answer(self.client.query_typed(sql, &[])).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<String>, Fault>>()
        };
        Ok([texts(SHOWN).await?, texts(REFUSED).await?])
    }
}

/// A server that is not there any more need not answer.
impl Drop for Outbox {
    fn drop(&mut self) {
        self.messages.abort();
    }
}
