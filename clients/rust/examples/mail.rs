//! Works the queue mail.

use postgres_jobs::{Error, Job, Options, Worker};
use serde_json::{Value, json};

async fn send(job: Job<Value>) -> Result<Value, Error> {
    println!("mail to {}", job.args["to"]);
    Ok(json!({"sent": true}))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let database = std::env::var("DATABASE_URL")?.parse()?;
    let worker = Worker::new(database, Options::queues(["mail"]))?;
    Ok(worker.kind("email.send", send).run().await?)
}
