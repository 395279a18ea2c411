//! How a program with tokio-postgres inserts jobs and finishes them by SQL. The library in Rust
//! does this: docs/workers.md.
//!
//! ```sql
//! create table orders (id bigint generated always as identity primary key,
//!   customer text not null, quantity smallint not null);
//! ```

use anyhow::{Context, Result, bail};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL")?;
    let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);

    // Parameters by name. An enum of the database, as a job's state, is read as text.
    let job = db
        .query_one(
            "select id, state::text, queue from jobs.insert(kind => $1, args => $2, queue => $3)",
            &[&"email.send", &json!({ "user_id": 42, "subject": "Grüße, 'Ada' \\ 😀" }), &"mail"],
        )
        .await?;
    let (state, queue): (&str, &str) = (job.get("state"), job.get("queue"));
    println!("insert: {state} in {queue}");

    unique(&db).await?;
    if let Err(error) = order(&mut db, "Ada", 2, false).await {
        println!("rolled back: {error}");
    }
    order(&mut db, "Grace", 3, true).await?;
    let orders: i64 = db.query_one("select count(*) from orders", &[]).await?.get(0);
    println!("committed: {orders} order");
    let typed = types(&db).await?;
    prepared(&db).await?;
    worker(&db).await?;
    read(&db, typed).await
}

/// A duplicate is the row of the job that exists, or, if so wished, an error. The id is null in an
/// outbox, whose queue looks for duplicates later.
async fn unique(db: &Client) -> Result<()> {
    let insert = db
        .prepare(
            "select id, unique_skipped_as_duplicate as skipped
               from jobs.insert(kind => 'report', args => $1, unique_opts => $2)",
        )
        .await?;
    let (args, skip) = (json!({ "customer": 7 }), json!({ "by_args": true }));
    let first = db.query_one(&insert, &[&args, &skip]).await?;
    let second = db.query_one(&insert, &[&args, &skip]).await?;
    let id: Option<i64> = first.get("id");
    println!(
        "unique: skipped {}, then {}, same job {}",
        first.get::<_, bool>("skipped"),
        second.get::<_, bool>("skipped"),
        second.get::<_, Option<i64>>("id") == id
    );
    let reject = json!({ "by_args": true, "on_conflict": "reject" });
    match db.query_one(&insert, &[&args, &reject]).await {
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            let detail = error.as_db_error().and_then(|error| error.detail());
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
async fn order(db: &mut Client, customer: &str, quantity: i16, in_stock: bool) -> Result<()> {
    let tx = db.transaction().await?;
    let order = tx
        .query_one(
            "insert into orders (customer, quantity) values ($1, $2) returning id",
            &[&customer, &quantity],
        )
        .await?;
    let args = json!({ "order_id": order.get::<_, i64>("id") });
    tx.execute("select jobs.insert(kind => 'order.confirm', args => $1)", &[&args]).await?;
    if !in_stock {
        bail!("out of stock");
    }
    Ok(tx.commit().await?)
}

/// A parameter has the type that the function says, and the value must be of just that: an i32 for
/// a priority, no i16.
async fn types(db: &Client) -> Result<Option<i64>> {
    // There is no type for an interval: it goes as text, and comes as something else.
    let insert = db
        .prepare(
            "select id, state::text, scheduled_at
               from jobs.insert(kind => $1, args => $2, priority => $3, scheduled_at => $4, expires_at => $5, tags => $6, meta => $7,
                                timeout => $8::text::interval, retry => $9, queue => $10, max_attempts => $11)",
        )
        .await?;
    let at: DateTime<Utc> =
        DateTime::parse_from_rfc3339("2999-01-01T13:00:00+01:00")?.with_timezone(&Utc);
    let job = db
        .query_one(
            &insert,
            &[
                &"typed",
                &json!([1, { "deep": [null] }]),
                &-5i32,
                &at,
                &(at + chrono::TimeDelta::hours(12)),
                &["a", "b, \"c\"", "NULL"].as_slice(),
                &json!({ "tenant": "acme" }),
                &"1 hour 30 minutes",
                &json!("oban"),
                &None::<&str>,
                &3i32,
            ],
        )
        .await?;
    println!(
        "types: {} {}",
        job.get::<_, &str>("state"),
        job.get::<_, DateTime<Utc>>("scheduled_at").to_rfc3339_opts(SecondsFormat::Millis, true)
    );
    let typed = job.get("id");

    // NULL has a type, too. Value::Null is JSON's, None is SQL's, which args refuse.
    let (text, int, time, json) = (None::<&str>, None::<i32>, None::<DateTime<Utc>>, None::<Value>);
    let tags = None::<Vec<&str>>;
    let mut states = Vec::new();
    for args in [Some(Value::Null), None] {
        let job = db
            .query_one(
                &insert,
                &[&"nulls", &args, &int, &time, &time, &tags, &json, &text, &json, &text, &int],
            )
            .await;
        states.push(match job {
            Ok(job) => job.get("state"),
            Err(error) => error.code().context("no code")?.code().to_owned(),
        });
    }
    println!("nulls: JSON null {}, SQL NULL {}", states[0], states[1]);
    Ok(typed)
}

/// A statement that is prepared once spares each call a round trip, and soon its plan. It belongs
/// to its connection; the crates that pool connections have caches of statements.
async fn prepared(db: &Client) -> Result<()> {
    let insert = db
        .prepare(
            "select unique_skipped_as_duplicate from jobs.insert(kind => 'index', args => $1, unique_opts => $2)",
        )
        .await?;
    let unique = json!({ "by_args": ["page"] });
    let mut inserted = 0;
    for n in 0..12 {
        let row = db.query_one(&insert, &[&json!({ "page": n % 6 }), &unique]).await?;
        inserted += i32::from(!row.get::<_, bool>(0));
    }
    let plans = db
        .query_one(
            "select generic_plans > 0 from pg_prepared_statements where statement like $1",
            &[&"%'index'%"],
        )
        .await?;
    let generic: bool = plans.get(0);
    println!("prepared: {inserted} of 12 inserted, generic plan {generic}");
    Ok(())
}

/// Many at once are one statement, however many. Then a worker in its smallest form.
async fn worker(db: &Client) -> Result<()> {
    let jobs = json!([
        { "kind": "ok", "queue": "work", "args": { "n": 1 }, "unique_opts": { "by_args": true } },
        { "kind": "bad", "queue": "work" },
        { "kind": "ok", "queue": "work", "args": { "n": 1 }, "unique_opts": { "by_args": true } },
    ]);
    let many = db
        .query(
            "select id, unique_skipped_as_duplicate from jobs.insert_many(jobs => $1) order by ord",
            &[&jobs],
        )
        .await?;
    let skipped: Vec<_> = many.iter().map(|row| row.get::<_, bool>(1).to_string()).collect();
    let same = many[2].get::<_, Option<i64>>(0) == many[0].get::<_, Option<i64>>(0);
    println!("insert_many: skipped {}, third is the first {same}", skipped.join(","));

    let fetch = db
        .prepare("select id, token, kind from jobs.fetch(queue => $1, worker => 'tokio-postgres')")
        .await?;
    // None: a real worker waits here, with `call jobs.wait($1)`.
    while let Some(job) = db.query_opt(&fetch, &[&"work"]).await? {
        let (id, token, kind): (i64, i64, &str) = (job.get(0), job.get(1), job.get(2));
        let row = match kind {
            "ok" => {
                let complete = "select jobs.complete($1, $2, output => $3)::text";
                db.query_one(complete, &[&id, &token, &json!({ "done": true })]).await?
            }
            _ => {
                let fail = "select state::text from jobs.fail($1, $2, $3, retryable => false, details => $4)";
                let details = json!({ "type": "BadAddress" });
                db.query_one(fail, &[&id, &token, &"no such address", &details]).await?
            }
        };
        println!("worker: {kind} {}", row.get::<_, &str>(0));
    }
    Ok(())
}

/// Each type as the driver reads it.
async fn read(db: &Client, typed: Option<i64>) -> Result<()> {
    let job = db
        .query_one(
            "select scheduled_at, (extract(epoch from timeout) / 60)::int as minutes, tags, meta from jobs.jobs where id = $1",
            &[&typed],
        )
        .await?;
    println!(
        "read: {}, {} minutes, {}, {}",
        job.get::<_, DateTime<Utc>>("scheduled_at").to_rfc3339_opts(SecondsFormat::Millis, true),
        job.get::<_, i32>("minutes"),
        json!(job.get::<_, Vec<&str>>("tags")),
        job.get::<_, Value>("meta")
    );
    let row = db
        .query_one(
            "select id, lease_expires_at from jobs.heartbeat_many(ids => $1, tokens => $2)",
            &[&vec![9007199254740993i64], &vec![1i64]],
        )
        .await?;
    let lease: Option<DateTime<Utc>> = row.get("lease_expires_at");
    println!(
        "bigint: {}, lease {}",
        row.get::<_, i64>("id"),
        lease.map_or("null".into(), |lease| lease.to_string())
    );
    Ok(())
}
