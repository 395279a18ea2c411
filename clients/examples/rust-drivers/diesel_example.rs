//! How a program with Diesel inserts jobs and finishes them by SQL. The library in Rust has a
//! worker, and inserts by other drivers: docs/workers.md.
//!
//! ```sql
//! create table orders (id bigint generated always as identity primary key,
//!   customer text not null, quantity smallint not null);
//! ```

use anyhow::{Context, Result, bail};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error::DatabaseError};
use diesel::sql_query;
use diesel::sql_types::{
    Array, BigInt, Bool, Integer, Interval, Jsonb, Nullable, Text, Timestamptz,
};
use serde_json::{Value, json};

mod schema {
    diesel::table! { orders (id) { id -> BigInt, customer -> Text, quantity -> SmallInt } }

    // The view of all jobs, with the columns that this program reads.
    diesel::table! {
        jobs.jobs (id) {
            id -> BigInt,
            scheduled_at -> Timestamptz,
            timeout -> Nullable<Interval>,
            tags -> Array<Text>,
            meta -> Jsonb,
        }
    }
}
use schema::{jobs, orders};

/// What the functions return. An enum of the database, as a job's state, is read as text. The id is
/// null in an outbox, whose queue looks for duplicates later.
#[derive(QueryableByName)]
struct Inserted {
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<i64>,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Text)]
    queue: String,
    #[diesel(sql_type = Bool)]
    skipped: bool,
    #[diesel(sql_type = Timestamptz)]
    scheduled_at: DateTime<Utc>,
}

const INSERTED: &str =
    "select id, state::text, queue, unique_skipped_as_duplicate as skipped, scheduled_at";

fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL")?;
    let db = &mut PgConnection::establish(&url)?;

    // Parameters by name; each value is bound with the type of the parameter.
    let job: Inserted =
        sql_query(format!("{INSERTED} from jobs.insert(kind => $1, args => $2, queue => $3)"))
            .bind::<Text, _>("email.send")
            .bind::<Jsonb, _>(json!({ "user_id": 42, "subject": "Grüße, 'Ada' \\ 😀" }))
            .bind::<Text, _>("mail")
            .get_result(db)?;
    println!("insert: {} in {}", job.state, job.queue);

    unique(db)?;
    if let Err(error) = order(db, "Ada", 2, false) {
        println!("rolled back: {error}");
    }
    order(db, "Grace", 3, true)?;
    let orders: i64 = orders::table.count().get_result(db)?;
    println!("committed: {orders} order");
    let typed = types(db)?;
    prepared(db)?;
    worker(db)?;
    read(db, typed.context("no id")?)
}

/// A duplicate is the row of the job that exists, or, if so wished, an error.
fn unique(db: &mut PgConnection) -> Result<()> {
    let mut report = |unique_opts: Value| {
        sql_query(format!(
            "{INSERTED} from jobs.insert(kind => 'report', args => $1, unique_opts => $2)"
        ))
        .bind::<Jsonb, _>(json!({ "customer": 7 }))
        .bind::<Jsonb, _>(unique_opts)
        .get_result::<Inserted>(db)
    };
    let first = report(json!({ "by_args": true }))?;
    let second = report(json!({ "by_args": true }))?;
    println!(
        "unique: skipped {}, then {}, same job {}",
        first.skipped,
        second.skipped,
        second.id == first.id
    );
    match report(json!({ "by_args": true, "on_conflict": "reject" })) {
        Err(DatabaseError(DatabaseErrorKind::UniqueViolation, error)) => {
            let detail: Value = serde_json::from_str(error.details().context("no detail")?)?;
            let existing = detail["existing_job_id"].as_i64();
            println!("reject: 23505, names the existing job {}", existing == first.id);
        }
        // Of an outbox: its queue rejects the job.
        other => drop(other?),
    }
    Ok(())
}

/// The job and the row that it is about are one transaction. An error rolls it back.
fn order(db: &mut PgConnection, customer: &str, quantity: i16, in_stock: bool) -> Result<()> {
    db.transaction(|db| {
        let id: i64 = diesel::insert_into(orders::table)
            .values((orders::customer.eq(customer), orders::quantity.eq(quantity)))
            .returning(orders::id)
            .get_result(db)?;
        sql_query("select jobs.insert(kind => 'order.confirm', args => $1)")
            .bind::<Jsonb, _>(json!({ "order_id": id }))
            .execute(db)?;
        if !in_stock {
            bail!("out of stock");
        }
        Ok(())
    })
}

/// The options of one insert. What is None is NULL: the default.
#[derive(Default)]
struct Options {
    priority: Option<i32>,
    scheduled_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    tags: Option<Vec<&'static str>>,
    meta: Option<Value>,
    timeout: Option<TimeDelta>,
    retry: Option<Value>,
    queue: Option<&'static str>,
    max_attempts: Option<i32>,
}

fn insert(
    db: &mut PgConnection,
    kind: &str,
    args: Option<Value>,
    options: Options,
) -> QueryResult<Inserted> {
    sql_query(format!(
        "{INSERTED} from jobs.insert(kind => $1, args => $2, priority => $3, scheduled_at => $4, expires_at => $5, tags => $6,
                                     meta => $7, timeout => $8, retry => $9, queue => $10, max_attempts => $11)"
    ))
    .bind::<Text, _>(kind)
    .bind::<Nullable<Jsonb>, _>(args)
    .bind::<Nullable<Integer>, _>(options.priority)
    .bind::<Nullable<Timestamptz>, _>(options.scheduled_at)
    .bind::<Nullable<Timestamptz>, _>(options.expires_at)
    .bind::<Nullable<Array<Text>>, _>(options.tags)
    .bind::<Nullable<Jsonb>, _>(options.meta)
    .bind::<Nullable<Interval>, _>(options.timeout)
    .bind::<Nullable<Jsonb>, _>(options.retry)
    .bind::<Nullable<Text>, _>(options.queue)
    .bind::<Nullable<Integer>, _>(options.max_attempts)
    .get_result(db)
}

fn types(db: &mut PgConnection) -> Result<Option<i64>> {
    let at = DateTime::parse_from_rfc3339("2999-01-01T13:00:00+01:00")?.with_timezone(&Utc);
    let options = Options {
        priority: Some(-5),
        scheduled_at: Some(at),
        expires_at: Some(at + TimeDelta::hours(12)),
        tags: Some(vec!["a", "b, \"c\"", "NULL"]),
        meta: Some(json!({ "tenant": "acme" })),
        timeout: Some(TimeDelta::minutes(90)),
        retry: Some(json!("oban")),
        queue: None,
        max_attempts: Some(3),
    };
    let typed = insert(db, "typed", Some(json!([1, { "deep": [null] }])), options)?;
    let at = typed.scheduled_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    println!("types: {} {at}", typed.state);

    // Value::Null is JSON's null, None is SQL's, which args refuse. Of the SQLSTATEs Diesel tells
    // apart only a few.
    let job = insert(db, "nulls", Some(Value::Null), Options::default())?;
    match insert(db, "nulls", None, Options::default()) {
        Err(DatabaseError(kind, _)) => {
            println!("nulls: JSON null {}, SQL NULL {kind:?}", job.state)
        }
        _ => bail!("not refused"),
    }
    Ok(typed.id)
}

/// One insert as a query of its own type. Diesel keeps the prepared statement of such a query, on
/// each connection; those of sql_query it does not keep.
#[derive(QueryId)]
struct InsertIndex {
    args: Value,
    unique_opts: Value,
}

impl Query for InsertIndex {
    type SqlType = (Nullable<BigInt>, Bool);
}

impl RunQueryDsl<PgConnection> for InsertIndex {}

impl QueryFragment<Pg> for InsertIndex {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "select id, unique_skipped_as_duplicate from jobs.insert(kind => 'index', args => ",
        );
        out.push_bind_param::<Jsonb, _>(&self.args)?;
        out.push_sql(", unique_opts => ");
        out.push_bind_param::<Jsonb, _>(&self.unique_opts)?;
        out.push_sql(")");
        Ok(())
    }
}

fn prepared(db: &mut PgConnection) -> Result<()> {
    let mut inserted = 0;
    for n in 0..12 {
        let insert = InsertIndex {
            args: json!({ "page": n % 6 }),
            unique_opts: json!({ "by_args": ["page"] }),
        };
        let (_, skipped): (Option<i64>, bool) = insert.get_result(db)?;
        inserted += i32::from(!skipped);
    }
    #[derive(QueryableByName)]
    struct Plans {
        #[diesel(sql_type = Bool)]
        generic: bool,
    }
    let plans: Plans = sql_query(
        "select generic_plans > 0 as generic from pg_prepared_statements where statement like $1",
    )
    .bind::<Text, _>("%'index'%")
    .get_result(db)?;
    println!("prepared: {inserted} of 12 inserted, generic plan {}", plans.generic);
    Ok(())
}

#[derive(QueryableByName)]
struct Fetched {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    token: i64,
    #[diesel(sql_type = Text)]
    kind: String,
}

#[derive(QueryableByName)]
struct Ended {
    #[diesel(sql_type = Text)]
    state: String,
}

/// Many at once are one statement, however many. Then a worker in its smallest form.
fn worker(db: &mut PgConnection) -> Result<()> {
    let many: Vec<Inserted> = sql_query(format!(
        "{INSERTED} from jobs.insert_many(jobs => $1) order by ord"
    ))
    .bind::<Jsonb, _>(json!([
        { "kind": "ok", "queue": "work", "args": { "n": 1 }, "unique_opts": { "by_args": true } },
        { "kind": "bad", "queue": "work" },
        { "kind": "ok", "queue": "work", "args": { "n": 1 }, "unique_opts": { "by_args": true } },
    ]))
    .get_results(db)?;
    let skipped: Vec<_> = many.iter().map(|job| job.skipped.to_string()).collect();
    println!(
        "insert_many: skipped {}, third is the first {}",
        skipped.join(","),
        many[2].id == many[0].id
    );

    // None: a real worker waits here, with `call jobs.wait($1)`, not in a transaction.
    while let Some(job) =
        sql_query("select id, token, kind from jobs.fetch(queue => $1, worker => 'diesel')")
            .bind::<Text, _>("work")
            .get_result::<Fetched>(db)
            .optional()?
    {
        let ended: Ended = match job.kind.as_str() {
            "ok" => sql_query("select jobs.complete($1, $2, output => $3)::text as state")
                .bind::<BigInt, _>(job.id)
                .bind::<BigInt, _>(job.token)
                .bind::<Jsonb, _>(json!({ "done": true }))
                .get_result(db)?,
            _ => sql_query(
                "select state::text from jobs.fail($1, $2, $3, retryable => false, details => $4)",
            )
            .bind::<BigInt, _>(job.id)
            .bind::<BigInt, _>(job.token)
            .bind::<Text, _>("no such address")
            .bind::<Jsonb, _>(json!({ "type": "BadAddress" }))
            .get_result(db)?,
        };
        println!("worker: {} {}", job.kind, ended.state);
    }
    Ok(())
}

/// Each type as the driver reads it.
fn read(db: &mut PgConnection, typed: i64) -> Result<()> {
    let (at, timeout, tags, meta): (DateTime<Utc>, Option<TimeDelta>, Vec<String>, Value) =
        jobs::table
            .find(typed)
            .select((jobs::scheduled_at, jobs::timeout, jobs::tags, jobs::meta))
            .first(db)?;
    println!(
        "read: {}, {} minutes, {}, {meta}",
        at.to_rfc3339_opts(SecondsFormat::Millis, true),
        timeout.context("no timeout")?.num_minutes(),
        json!(tags)
    );

    #[derive(QueryableByName)]
    struct Beat {
        #[diesel(sql_type = BigInt)]
        id: i64,
        #[diesel(sql_type = Nullable<Timestamptz>)]
        lease_expires_at: Option<DateTime<Utc>>,
    }
    let beat: Beat =
        sql_query("select id, lease_expires_at from jobs.heartbeat_many(ids => $1, tokens => $2)")
            .bind::<Array<BigInt>, _>(vec![9007199254740993i64])
            .bind::<Array<BigInt>, _>(vec![1i64])
            .get_result(db)?;
    let lease = beat.lease_expires_at.map_or("null".into(), |lease| lease.to_string());
    println!("bigint: {}, lease {lease}", beat.id);
    Ok(())
}
