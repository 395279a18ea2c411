//! Works the queue mail.

use postgres_jobs::{ClientError, Error, Job, Options, Worker};
use serde_json::{Value, json};

async fn send(job: Job<Value>) -> Result<Value, Error> {
    println!("mail to {}", job.args["to"]);
    Ok(json!({"sent": true}))
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let database = std::env::var("DATABASE_URL").expect("DATABASE_URL");
    let options = Options {
        queues: vec!["mail".into()],
        ..Options::default()
    };
    let worker = Worker::new(database.parse()?, options)?;
    worker.kind("email.send", send).run().await
}
