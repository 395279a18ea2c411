//! `pgjobs explain`.

use clap::Args;
use serde::Deserialize;
use tokio_postgres::Client;

use crate::database::Database;
use crate::failed::Failed;
use crate::terminal::print;
use crate::visible;

const EXAMPLES: &str = "Prints a line for each reason, the decisive one first.

Examples:
  pgjobs explain 42
  pgjobs explain 42 --json | jq -r .reason";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// Job ID
    id: i64,
}

/// The reasons of a job in JSON, the decisive one first.
const REASONS: &str = "
select (to_jsonb(e) - 'n')::text from rows from (jobs.explain($1)) with ordinality
    e(reason, detail, until, by_ids, n) order by n";

pub(crate) async fn reasons(client: &Client, id: i64) -> Result<Vec<String>, Failed> {
    let rows = client.query(REASONS, &[&id]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

#[derive(Deserialize)]
pub(crate) struct Reason {
    reason: String,
    detail: String,
    by_ids: Option<Vec<i64>>,
}

impl Explain {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let client = database.connect().await?;
        for text in reasons(&client, self.id).await? {
            match json {
                true => print(text),
                false => print(serde_json::from_str::<Reason>(&text)?.said()),
            }
        }
        Ok(())
    }
}

impl Reason {
    pub(crate) fn said(self) -> String {
        let mut said = format!("{}: {}", self.reason, self.detail);
        if let Some(ids) = self.by_ids.filter(|ids| !ids.is_empty()) {
            let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
            said += &format!(" (jobs {})", ids.join(", "));
        }
        visible::line(&said).into()
    }
}
