//! `pgjobs health`.

use clap::Args;
use serde::Deserialize;

use crate::database::Database;
use crate::failed::{Failed, REFUSED};
use crate::terminal::print;
use crate::visible;

const EXAMPLES: &str = "Exits with 1 if there are findings.

Examples:
  pgjobs health
  pgjobs health --json | jq -r 'select(.severity == \"critical\") | .message'";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Health {}

const FINDINGS: &str = "
select (to_jsonb(f) - 'n')::text from rows from (jobs.health()) with ordinality
    f(severity, finding, message, hint, n) order by n";

#[derive(Deserialize)]
struct Finding {
    severity: String,
    finding: String,
    message: String,
    hint: Option<String>,
}

impl Health {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let findings = database.connect().await?.query(FINDINGS, &[]).await?;
        for row in &findings {
            let text: &str = row.try_get(0)?;
            match json {
                true => print(text),
                false => print(serde_json::from_str::<Finding>(text)?.said()),
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

impl Finding {
    fn said(self) -> String {
        let said = format!("{} ({}): {}", self.severity, self.finding, self.message);
        let hint = self
            .hint
            .map(|hint| format!("\n  HINT: {}", visible::line(&hint)));
        format!("{}{}", visible::line(&said), hint.unwrap_or_default())
    }
}
