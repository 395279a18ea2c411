//! What plain SQL does: fetching and completing in batches of as many jobs as a worker runs at a
//! time, over as many connections as CONNECTIONS says, each with a batch of its own.

use std::env::{args, var};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let batch: i32 = args().nth(2).unwrap_or_default().parse()?;
    let mut clients = Vec::new();
    for _ in 0..var("CONNECTIONS")?.parse::<usize>()? {
        let (client, connection) = tokio_postgres::connect(&var("DATABASE_URL")?, NoTls).await?;
        tokio::spawn(connection);
        clients.push(client);
    }
    let first = now();
    let work = clients.into_iter().map(|client| tokio::spawn(work(client, batch)));
    for connection in work.collect::<Vec<_>>() {
        connection.await??;
    }
    println!("{}", json!({ "first": first, "last": now() }));
    std::future::pending().await
}

/// Works until there are no more jobs.
async fn work(client: Client, batch: i32) -> Result<(), tokio_postgres::Error> {
    let fetch = client.prepare("select * from jobs.fetch('bench', $1)").await?;
    let complete = "select count(*) from jobs.complete_many($1, $2)";
    let complete = client.prepare(complete).await?;
    loop {
        let jobs = client.query(&fetch, &[&batch]).await?;
        if jobs.is_empty() {
            return Ok(());
        }
        let column = |name: &str| jobs.iter().map(|job| job.get(name)).collect::<Vec<i64>>();
        client.query(&complete, &[&column("id"), &column("token")]).await?;
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
