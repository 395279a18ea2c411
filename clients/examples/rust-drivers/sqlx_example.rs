//! How a program with sqlx inserts jobs and finishes them by SQL. The library in Rust does this:
//! docs/workers.md.
//!
//! ```sql
//! create table orders (id bigint generated always as identity primary key,
//!   customer text not null, quantity smallint not null);
//! ```

use anyhow::{Context, Result, bail};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgDatabaseError, PgPool, PgPoolOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL")?;
    let db = PgPoolOptions::new().max_connections(4).connect(&url).await?;

    // Parameters by name. An enum of the database, as a job's state, is read as text.
    let (state, queue): (String, String) = sqlx::query_as(
        "select state::text, queue from jobs.insert(kind => $1, args => $2, queue => $3)",
    )
    .bind("email.send")
    .bind(json!({ "user_id": 42, "subject": "Grüße, 'Ada' \\ 😀" }))
    .bind("mail")
    .fetch_one(&db)
    .await?;
    println!("insert: {state} in {queue}");

    unique(&db).await?;
    if let Err(error) = order(&db, "Ada", 2, false).await {
        println!("rolled back: {error}");
    }
    order(&db, "Grace", 3, true).await?;
    let (orders,): (i64,) = sqlx::query_as("select count(*) from orders").fetch_one(&db).await?;
    println!("committed: {orders} order");
    let typed = types(&db).await?;
    prepared(&db).await?;
    worker(&db).await?;
    read(&db, typed).await
}

/// A duplicate is the row of the job that exists, or, if so wished, an error. The id is null in an
/// outbox, whose queue looks for duplicates later.
async fn unique(db: &PgPool) -> Result<()> {
    let report = |unique_opts: Value| {
        sqlx::query_as::<_, (Option<i64>, bool)>(
            "select id, unique_skipped_as_duplicate from jobs.insert(kind => 'report', args => $1, unique_opts => $2)",
        )
        .bind(json!({ "customer": 7 }))
        .bind(unique_opts)
        .fetch_one(db)
    };
    let (id, first) = report(json!({ "by_args": true })).await?;
    let (same, second) = report(json!({ "by_args": true })).await?;
    println!("unique: skipped {first}, then {second}, same job {}", same == id);
    match report(json!({ "by_args": true, "on_conflict": "reject" })).await {
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
            let detail = error.downcast_ref::<PgDatabaseError>().detail();
            let detail: Value = serde_json::from_str(detail.context("no detail")?)?;
            let existing = detail["existing_job_id"].as_i64();
            println!("reject: 23505, names the existing job {}", existing == id);
        }
        // Of an outbox: its queue rejects the job.
        other => drop(other?),
    }
    Ok(())
}

/// The job and the row that it is about are one transaction. A transaction that is dropped is
/// rolled back.
async fn order(db: &PgPool, customer: &str, quantity: i16, in_stock: bool) -> Result<()> {
    let mut tx = db.begin().await?;
    let (id,): (i64,) =
        sqlx::query_as("insert into orders (customer, quantity) values ($1, $2) returning id")
            .bind(customer)
            .bind(quantity)
            .fetch_one(&mut *tx)
            .await?;
    sqlx::query("select jobs.insert(kind => 'order.confirm', args => $1)")
        .bind(json!({ "order_id": id }))
        .execute(&mut *tx)
        .await?;
    if !in_stock {
        bail!("out of stock");
    }
    Ok(tx.commit().await?)
}

/// The options of one insert. What is None is NULL: the default.
#[derive(Default)]
struct Options {
    priority: Option<i32>,
    scheduled_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    tags: Option<Vec<String>>,
    meta: Option<Value>,
    timeout: Option<TimeDelta>,
    retry: Option<Value>,
    queue: Option<String>,
    max_attempts: Option<i32>,
}

/// A parameter has the type of its value: JSON must be a Value (or Json<T>), there is no
/// jobs.insert that takes text for it.
async fn insert(
    db: &PgPool,
    kind: &str,
    args: Option<Value>,
    options: Options,
) -> sqlx::Result<(Option<i64>, String, DateTime<Utc>)> {
    sqlx::query_as(
        "select id, state::text, scheduled_at
           from jobs.insert(kind => $1, args => $2, priority => $3, scheduled_at => $4, expires_at => $5, tags => $6,
                            meta => $7, timeout => $8, retry => $9, queue => $10, max_attempts => $11)",
    )
    .bind(kind)
    .bind(args)
    .bind(options.priority)
    .bind(options.scheduled_at)
    .bind(options.expires_at)
    .bind(options.tags)
    .bind(options.meta)
    .bind(options.timeout)
    .bind(options.retry)
    .bind(options.queue)
    .bind(options.max_attempts)
    .fetch_one(db)
    .await
}

async fn types(db: &PgPool) -> Result<Option<i64>> {
    let at = DateTime::parse_from_rfc3339("2999-01-01T13:00:00+01:00")?.with_timezone(&Utc);
    let options = Options {
        priority: Some(-5),
        scheduled_at: Some(at),
        expires_at: Some(at + TimeDelta::hours(12)),
        tags: Some(["a", "b, \"c\"", "NULL"].map(String::from).to_vec()),
        meta: Some(json!({ "tenant": "acme" })),
        timeout: Some(TimeDelta::minutes(90)),
        retry: Some(json!("oban")),
        queue: None,
        max_attempts: Some(3),
    };
    let args = json!([1, { "deep": [null] }]);
    let (typed, state, at) = insert(db, "typed", Some(args), options).await?;
    println!("types: {state} {}", at.to_rfc3339_opts(SecondsFormat::Millis, true));

    // Value::Null is JSON's null, None is SQL's, which args refuse.
    let (_, state, _) = insert(db, "nulls", Some(Value::Null), Options::default()).await?;
    let refused = insert(db, "nulls", None, Options::default()).await;
    let error = refused.err().context("not refused")?;
    let code = error.as_database_error().and_then(|error| error.code());
    println!("nulls: JSON null {state}, SQL NULL {}", code.context("no code")?);
    Ok(typed)
}

/// Every statement is prepared, and each connection keeps the latest hundred.
async fn prepared(db: &PgPool) -> Result<()> {
    let mut db = db.acquire().await?; // one connection, to look at its plans
    let mut inserted = 0;
    for n in 0..12 {
        let (skipped,): (bool,) = sqlx::query_as(
            "select unique_skipped_as_duplicate from jobs.insert(kind => 'index', args => $1, unique_opts => $2)",
        )
        .bind(json!({ "page": n % 6 }))
        .bind(json!({ "by_args": ["page"] }))
        .fetch_one(&mut *db)
        .await?;
        inserted += i32::from(!skipped);
    }
    let (generic,): (bool,) = sqlx::query_as(
        "select generic_plans > 0 from pg_prepared_statements where statement like $1",
    )
    .bind("%'index'%")
    .fetch_one(&mut *db)
    .await?;
    println!("prepared: {inserted} of 12 inserted, generic plan {generic}");
    Ok(())
}

/// Many at once are one statement, however many. Then a worker in its smallest form.
async fn worker(db: &PgPool) -> Result<()> {
    let many: Vec<(Option<i64>, bool)> = sqlx::query_as(
        "select id, unique_skipped_as_duplicate from jobs.insert_many(jobs => $1) order by ord",
    )
    .bind(json!([
        { "kind": "ok", "queue": "work", "args": { "n": 1 }, "unique_opts": { "by_args": true } },
        { "kind": "bad", "queue": "work" },
        { "kind": "ok", "queue": "work", "args": { "n": 1 }, "unique_opts": { "by_args": true } },
    ]))
    .fetch_all(db)
    .await?;
    let skipped: Vec<_> = many.iter().map(|(_, skipped)| skipped.to_string()).collect();
    println!(
        "insert_many: skipped {}, third is the first {}",
        skipped.join(","),
        many[2].0 == many[0].0
    );

    // None: a real worker waits here, with `call jobs.wait($1)`, not in a transaction.
    while let Some((id, token, kind)) = sqlx::query_as::<_, (i64, i64, String)>(
        "select id, token, kind from jobs.fetch(queue => $1, worker => 'sqlx')",
    )
    .bind("work")
    .fetch_optional(db)
    .await?
    {
        let ended = match kind.as_str() {
            "ok" => sqlx::query_as("select jobs.complete($1, $2, output => $3)::text")
                .bind(id)
                .bind(token)
                .bind(json!({ "done": true })),
            _ => sqlx::query_as(
                "select state::text from jobs.fail($1, $2, $3, retryable => false, details => $4)",
            )
            .bind(id)
            .bind(token)
            .bind("no such address")
            .bind(json!({ "type": "BadAddress" })),
        };
        let (state,): (String,) = ended.fetch_one(db).await?;
        println!("worker: {kind} {state}");
    }
    Ok(())
}

/// Each type as the driver reads it. An interval is bound from a TimeDelta and read as Postgres has
/// it, with months and days of their own.
async fn read(db: &PgPool, typed: Option<i64>) -> Result<()> {
    let (at, timeout, tags, meta): (DateTime<Utc>, PgInterval, Vec<String>, Value) =
        sqlx::query_as("select scheduled_at, timeout, tags, meta from jobs.jobs where id = $1")
            .bind(typed)
            .fetch_one(db)
            .await?;
    println!(
        "read: {}, {} minutes, {}, {meta}",
        at.to_rfc3339_opts(SecondsFormat::Millis, true),
        timeout.microseconds / 60_000_000,
        json!(tags)
    );
    let (id, lease): (i64, Option<DateTime<Utc>>) = sqlx::query_as(
        "select id, lease_expires_at from jobs.heartbeat_many(ids => $1, tokens => $2)",
    )
    .bind(vec![9007199254740993i64])
    .bind(vec![1i64])
    .fetch_one(db)
    .await?;
    let lease = lease.map_or("null".into(), |lease| lease.to_string());
    println!("bigint: {id}, lease {lease}");
    Ok(())
}
