//! Inserts jobs, and measures how many wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::Utc;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};

use crate::QUEUE;
use crate::environment::Environment;
use crate::samples::Samples;

const INSERT: &str =
    "select count(*) from jobs.insert_batch($1, $2, queue => $1, max_attempts => $3)";
const DEPTH: &str = "select coalesce(sum(available), 0)::bigint, coalesce(sum(running), 0)::bigint
  from jobs.queues where queue = $1";

/// Produces until the process ends, over new connections if one breaks.
pub async fn produce(environment: Arc<Environment>, samples: Arc<Samples>) {
    let mut producer = Producer { environment, samples, seq: 0 };
    loop {
        if let Err(error) = producer.produce().await {
            eprintln!("producer: {error:#}");
            sleep(Duration::from_millis(500)).await;
        }
    }
}

struct Producer {
    environment: Arc<Environment>,
    samples: Arc<Samples>,
    seq: u64,
}

impl Producer {
    async fn produce(&mut self) -> Result<()> {
        let client = connect(&self.environment.url).await?;
        if self.environment.is_paced {
            return self.obey(&client).await;
        }
        let mut credit = 0.0;
        let mut last = Instant::now();
        loop {
            sleep(Duration::from_millis(self.environment.batch_ms)).await;
            let rate = self.environment.rate();
            self.samples.target_rate.store(rate as i64, Relaxed);
            credit += rate * last.elapsed().as_secs_f64();
            last = Instant::now();
            while let Some(depth) = self.environment.depth {
                let lacking = depth - self.samples.depth.load(Relaxed);
                if lacking <= 0 {
                    break;
                }
                let count = self.environment.batch.min(lacking as usize);
                self.insert(&client, count).await?;
                self.samples.depth.fetch_add(count as i64, Relaxed);
            }
            while self.environment.depth.is_none() && credit >= 1.0 {
                let count = self.environment.batch.min(credit as usize);
                self.insert(&client, count).await?;
                credit -= count as f64;
            }
        }
    }

    /// Inserts as many jobs as each line of standard input says: `ENQUEUE 128`.
    async fn obey(&mut self, client: &Client) -> Result<()> {
        let mut lines = BufReader::new(stdin()).lines();
        while let Some(line) = lines.next_line().await? {
            let count = line.strip_prefix("ENQUEUE ").context("no such token")?;
            self.insert(client, count.trim().parse()?).await?;
        }
        std::future::pending().await
    }

    async fn insert(&mut self, client: &Client, count: usize) -> Result<()> {
        let created_us = Utc::now().timestamp_micros();
        let pad = "x".repeat(self.environment.payload);
        let args: Vec<_> = (0..count as u64)
            .map(|n| json!({ "seq": self.seq + n, "created_us": created_us, "pad": pad }))
            .collect();
        let statement = client.prepare(INSERT).await?;
        client.query_one(&statement, &[&QUEUE, &args, &self.environment.max_attempts]).await?;
        self.samples.producer.record(Some(Utc::now().timestamp_micros() - created_us));
        self.samples.enqueued.fetch_add(count as u64, Relaxed);
        self.seq += count as u64;
        Ok(())
    }
}

/// Looks four times a second how many jobs wait and run.
pub async fn measure_depth(environment: Arc<Environment>, samples: Arc<Samples>) {
    loop {
        if let Err(error) = look(&environment, &samples).await {
            eprintln!("depth: {error:#}");
            sleep(Duration::from_millis(500)).await;
        }
    }
}

async fn look(environment: &Environment, samples: &Samples) -> Result<()> {
    let client = connect(&environment.url).await?;
    loop {
        let row = client.query_one(DEPTH, &[&QUEUE]).await?;
        samples.depth.store(row.get(0), Relaxed);
        samples.running.store(row.get(1), Relaxed);
        sleep(Duration::from_millis(250)).await;
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
