//! `pgjobs unblock`.

use clap::Args;
use serde_json::{Value, json};

use crate::database::Database;
use crate::failed::Failed;
use crate::terminal::print;
use crate::visible;

const EXAMPLES: &str = "Examples:
  pgjobs unblock accounts 7 --reason 'corrected by hand'
  pgjobs unblock accounts acme '{\"args\": {\"account\": \"globex\"}}'";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Unblock {
    /// Queue with a strict order
    queue: String,
    /// Key as JSON, or its value if the order has one path; what is not JSON is a string
    #[arg(required = true, value_name = "KEY", value_parser = key)]
    keys: Vec<Value>,
    /// Reason, for the audit
    #[arg(long)]
    reason: Option<String>,
}

fn key(text: &str) -> Result<Value, String> {
    Ok(serde_json::from_str(text).unwrap_or_else(|_| text.into()))
}

impl Unblock {
    /// Unblocks all keys or none.
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        const CALL: &str = "select jobs.unblock($1, $2::text::jsonb, $3)";
        let mut client = database.connect().await?;
        let transaction = client.transaction().await?;
        let mut unblocked: Vec<Option<i64>> = Vec::new();
        for key in &self.keys {
            let key = key.to_string();
            let row = transaction.query_one(CALL, &[&self.queue, &key, &self.reason]).await?;
            unblocked.push(row.try_get(0)?);
        }
        transaction.commit().await?;
        for (key, job) in self.keys.iter().zip(unblocked) {
            if json {
                print(json!({ "queue": self.queue, "key": key, "unblocked": job }));
                continue;
            }
            let outcome = match job {
                Some(job) => format!("unblocked, job {job} stays discarded"),
                None => "was not blocked".into(),
            };
            print(visible::line(&format!("key {key} of queue \"{}\" {outcome}", self.queue)));
        }
        Ok(())
    }
}
