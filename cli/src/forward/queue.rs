//! The queue that gets the jobs: jobs.forward and what goes with it.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config};

use super::fault::{Fault, answer, is_of};
use super::outbox::{Outbox, Refused, Row, Status};
use crate::failed::{NO_EXTENSION, OLD_EXTENSION};
use crate::visible;

pub(super) struct Queue {
    client: Client,
    /// The version of the extension.
    pub(super) version: String,
    database: String,
}

/// Rows that the queue has not taken.
pub(super) enum Rejected {
    /// Because of one of them.
    Rows(Refusal),
    /// Because of the queue, whatever the rows are.
    All(Fault),
}

/// Why rows were refused.
pub(super) struct Refusal {
    pub(super) error: String,
    pub(super) code: String,
    pub(super) cause: Cause,
    /// The place of the row, if the queue says which one it is.
    pub(super) place: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Cause {
    /// The row will never be taken as it is.
    Row,
    /// The row's queue is full.
    FullQueue,
    /// The row belongs to another cell.
    OtherCell,
    /// Others have a lock that it needs, or the cause is not known.
    Passing,
}

const INSTALLED: &str = "
select (select extversion from pg_catalog.pg_extension where extname = 'jobs'),
    exists (select from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
             where n.nspname = 'jobs' and p.proname = 'forward'), current_database()::text";
/// A row that waits for another transaction's key does not hold up the others.
const PREPARE: &str = "set lock_timeout = '2s'; set statement_timeout = '50s'";
const NUMBER: &str = "select max(cell) from jobs.cells where is_self";
/// Without unique_opts, of which the cell does not depend, and which may be wrong.
const CELLS: &str = "
select array(select jobs.cell_for(j->>'kind', coalesce(j->'args', '{}'), '{}', j->>'queue', j->'meta')
               from jsonb_array_elements($1::text::jsonb) with ordinality e(j, n) order by n)";
const FORWARD: &str = "
select jobs.forward($1::text::uuid, $2::text[]::uuid[], $3::text::jsonb, $4::text[]::uuid[])";
const OPEN: &str = "select k::text from jobs.forwarded_open($1::text::uuid) k";
const REPORT: &str = "select jobs.forward_report($1::text::uuid, $2, $3, $4, $5)";

/// The queue cannot work, whatever it is asked: connection, standby, resources, set-up.
const OUTAGE: &[&str] = &["08", "25006", "28", "3D", "3F", "42", "53", "55000", "57P", "58"];
/// What a row is.
const OF_ROW: &[&str] = &["22", "23", "54"];

impl Queue {
    pub(super) async fn open(config: &Config) -> Result<Self, Fault> {
        let client = answer(postgres_jobs::connect(config)).await?;
        answer(client.batch_execute(PREPARE)).await?;
        let rows = answer(client.query_typed(INSTALLED, &[])).await?;
        let (version, is_new): (Option<String>, bool) = (rows[0].try_get(0)?, rows[0].try_get(1)?);
        let database = rows[0].try_get(2)?;
        match version {
            Some(version) if is_new => Ok(Self { client, version, database }),
            Some(version) => Err(Fault::wrong(
                format!("the extension jobs has version {version}, which cannot forward"),
                OLD_EXTENSION,
            )),
            None => Err(Fault::wrong(
                format!("the database \"{database}\" does not have the extension jobs"),
                NO_EXTENSION,
            )),
        }
    }

    /// Inserts the jobs of rows that it does not have yet. All or nothing.
    pub(super) async fn forward(
        &self,
        outbox: &Outbox,
        rows: &[&Row],
        deleted: &[String],
    ) -> Result<(), Rejected> {
        let keys: Vec<&str> = rows.iter().map(|row| &*row.key).collect();
        let jobs = elements(rows);
        let of: [(&(dyn ToSql + Sync), Type); 4] = [
            (&outbox.id, Type::TEXT),
            (&keys, Type::TEXT_ARRAY),
            (&jobs, Type::TEXT),
            (&deleted, Type::TEXT_ARRAY),
        ];
        self.call(FORWARD, &of).await.map(|_| ())
    }

    async fn call(
        &self,
        sql: &str,
        of: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, Rejected> {
        let called = async { Ok::<_, Fault>(self.client.query_typed(sql, of).await) };
        answer(called).await.map_err(Rejected::All)?.map_err(refusal)
    }

    /// The number of the cell.
    pub(super) async fn number(&self) -> Result<i32, Fault> {
        let rows = answer(self.client.query_typed(NUMBER, &[])).await?;
        rows[0].try_get::<_, Option<i32>>(0)?.ok_or_else(|| {
            let message = format!("the database \"{}\" has no cell number", self.database);
            Fault::wrong(message, "Run jobs.set_cell in it, or give no other --to.")
        })
    }

    /// The cells of rows, as this one knows them. None: nowhere, or the row is wrong.
    pub(super) async fn cells(&self, rows: &[&Row]) -> Result<Vec<Option<i32>>, Fault> {
        let (mut parts, mut cells) = (vec![rows], Vec::new());
        while let Some(part) = parts.pop() {
            let jobs = elements(part);
            match self.call(CELLS, &[(&jobs, Type::TEXT)]).await {
                Ok(found) => cells.extend(found[0].try_get::<_, Vec<Option<i32>>>(0)?),
                Err(Rejected::All(fault)) => return Err(fault),
                Err(Rejected::Rows(_)) if part.len() == 1 => cells.push(None),
                Err(Rejected::Rows(_)) => {
                    let (front, behind) = part.split_at(part.len() / 2);
                    parts.extend([behind, front]);
                }
            }
        }
        Ok(cells)
    }

    /// The keys of an outbox that may still have the rows.
    pub(super) async fn open_keys(&self, outbox: &Outbox) -> Result<Vec<String>, Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 1] = [(&outbox.id, Type::TEXT)];
        let rows = answer(self.client.query_typed(OPEN, &of)).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Says how the outbox is, for health and metrics.
    pub(super) async fn report(
        &self,
        outbox: &Outbox,
        address: &str,
        status: &Status,
    ) -> Result<(), Fault> {
        let of: [(&(dyn ToSql + Sync), Type); 5] = [
            (&outbox.id, Type::TEXT),
            (&address, Type::TEXT),
            (&status.waiting, Type::INT8),
            (&status.oldest_at, Type::TIMESTAMPTZ),
            (&status.refused, Type::INT8),
        ];
        answer(self.client.query_typed(REPORT, &of)).await.map(|_| ())
    }
}

/// The parameter of jobs.insert_many.
fn elements(rows: &[&Row]) -> String {
    let jobs: Vec<&str> = rows.iter().map(|row| &*row.job).collect();
    format!("[{}]", jobs.join(","))
}

fn refusal(error: tokio_postgres::Error) -> Rejected {
    let Some(refused) = error.as_db_error() else {
        return Rejected::All(error.into());
    };
    let code = refused.code().code().to_owned();
    if is_of(&code, OUTAGE) {
        return Rejected::All(error.into());
    }
    let detail = refused.detail().unwrap_or_default();
    if code == "JB001" && detail.contains("\"retired\": true") {
        return Rejected::All(error.into());
    }
    let cause = match is_of(&code, OF_ROW) {
        false if code == "JB001" => Cause::OtherCell,
        // Another limit has a DETAIL for people.
        true if code == "54000" && detail.starts_with("{\"depth\"") => Cause::FullQueue,
        true => Cause::Row,
        false => Cause::Passing,
    };
    let (place, detail) = element(detail);
    let mut error = refused.message().to_owned();
    for (name, text) in [("DETAIL", detail), ("HINT", refused.hint().unwrap_or_default())] {
        if !text.is_empty() {
            error += &format!("\n{name}: {text}");
        }
    }
    Rejected::Rows(Refusal { error: visible::lines(&error).into_owned(), code, cause, place })
}

/// The place of the element that a DETAIL is about, and what it says of the element.
fn element(detail: &str) -> (Option<usize>, &str) {
    let rest = detail.strip_prefix("Element ").unwrap_or_default();
    let (number, rest) = rest.split_at(rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(0));
    match number.parse::<usize>() {
        Ok(number) => (number.checked_sub(1), rest.trim_start_matches([':', '.', ' '])),
        Err(_) => (None, detail),
    }
}

impl Refusal {
    pub(super) fn of(self, row: &Row) -> Refused {
        let retry_after = match self.cause {
            Cause::Row => None,
            // The program holds the lane meanwhile, so that its order is kept.
            Cause::FullQueue => Some("0"),
            Cause::OtherCell | Cause::Passing => Some("10 s"),
        };
        Refused { id: row.id, error: self.error, code: self.code, retry_after }
    }
}
