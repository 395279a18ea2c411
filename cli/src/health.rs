//! `pgjobs health`.

use clap::Args;
use serde_json::json;

use crate::database::Database;
use crate::failed::{Failed, REFUSED};
use crate::finding::Finding;
use crate::standby::Standby;
use crate::terminal::print;
use crate::visible;

const EXAMPLES: &str = "Exits with 1 if there are findings. On a standby the first line is its lag.

Examples:
  pgjobs health
  pgjobs health --json | jq -r 'select(.severity == \"critical\") | .message'";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Health {}

const FINDINGS: &str = "
select (to_jsonb(f) - 'n')::text from rows from (jobs.health()) with ordinality
    f(severity, finding, message, hint, n) order by n";

impl Health {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let client = database.connect().await?;
        if let Some(standby) = Standby::of(&client).await? {
            match json {
                true => print(json!({ "standby": standby })),
                false => print(standby),
            }
        }
        let findings = client.query(FINDINGS, &[]).await?;
        for row in &findings {
            let text: &str = row.try_get(0)?;
            match json {
                true => print(text),
                false => print(said(serde_json::from_str(text)?)),
            }
        }
        match findings.is_empty() {
            true if json => Ok(()),
            true => {
                print("no findings");
                Ok(())
            }
            false => Err(Failed::new(REFUSED, "")),
        }
    }
}

fn said(Finding { severity, finding, message, hint }: Finding) -> String {
    let said = format!("{severity} ({finding}): {message}");
    let hint = hint.map(|hint| format!("\n  HINT: {}", visible::line(&hint)));
    format!("{}{}", visible::line(&said), hint.unwrap_or_default())
}
