//! `pgjobs top`.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::Args;
use tokio_postgres::Client;

use crate::database::Database;
use crate::failed::Failed;
use crate::standby::Standby;
use crate::table::{Row, table};
use crate::terminal::print;

const EXAMPLES: &str = "Shows the 1,000 busiest queues.

Examples:
  pgjobs top
  pgjobs top --interval 10 -d postgresql://postgres@localhost/app
  pgjobs top --once --json | jq .queues";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {
    /// Refresh interval
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,
    /// Print once and exit
    #[arg(long)]
    once: bool,
}

const QUEUES: &str = "
select coalesce(jsonb_agg(to_jsonb(q) || jsonb_build_object('waits',
    extract(epoch from clock_timestamp() - q.oldest_available_at)::bigint)
    order by q.running + q.available desc, q.queue), '[]')::text
    from (select q.*, t.note from jobs.queues q
              left join jobs.top() t on t.queue = q.queue and t.note <> ''
           order by q.running + q.available desc, q.queue limit 1000) q";
const WORKERS: &str = "
select coalesce(jsonb_agg(to_jsonb(w) order by w.worker), '[]')::text
    from jobs.workers w where w.status is distinct from 'lost' or w.running > 0";

impl Top {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let client = database.connect().await?;
        let is_live = stdout().is_terminal() && !json && !self.once;
        loop {
            let (queues, workers) = (look(&client, QUEUES).await?, look(&client, WORKERS).await?);
            let standby = Standby::of(&client).await?;
            if json {
                let standby = serde_json::to_string(&standby)?;
                print(format!(
                    r#"{{"queues": {queues}, "workers": {workers}, "standby": {standby}}}"#
                ));
            } else {
                if is_live {
                    // Clears the screen and moves to its corner.
                    print("\x1b[2J\x1b[H");
                }
                if let Some(standby) = standby {
                    print(format_args!("{standby}\n"));
                }
                let columns = [
                    "queue",
                    "available",
                    "scheduled",
                    "retryable",
                    "running",
                    "completed",
                    "discarded",
                    "waits",
                    "note",
                ];
                table(&columns, &serde_json::from_str::<Vec<Row>>(&queues)?);
                print("");
                table(
                    &["worker", "status", "running", "concurrency", "queues", "version"],
                    &serde_json::from_str::<Vec<Row>>(&workers)?,
                );
            }
            if !is_live {
                return Ok(());
            }
            let pause =
                Duration::try_from_secs_f64(self.interval.max(0.1)).unwrap_or(Duration::MAX);
            tokio::time::sleep(pause).await;
        }
    }
}

async fn look(client: &Client, statement: &str) -> Result<String, Failed> {
    Ok(client.query_one(statement, &[]).await?.try_get(0)?)
}
