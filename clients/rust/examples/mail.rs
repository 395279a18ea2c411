//! Works the queue mail.

use postgres_jobs::{ClientError, Error, Job, Worker};
use serde_json::{Value, json};

async fn send(job: Job<Value>) -> Result<Value, Error> {
    println!("mail to {}", job.args["to"]);
    Ok(json!({"sent": true}))
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL");
    Worker::new(&*url)
        .queues(["mail"])
        .kind("email.send", send)
        .run()
        .await
}
