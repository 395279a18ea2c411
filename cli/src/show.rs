//! `pgjobs show`.

use std::collections::BTreeMap;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::database::Database;
use crate::explain::{Reason, reasons};
use crate::failed::{Failed, NOT_FOUND};
use crate::terminal::print;
use crate::visible;

const EXAMPLES: &str = "Examples:
  pgjobs show 42
  pgjobs show 42 43 --json | jq .errors";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// Job IDs
    #[arg(required = true)]
    ids: Vec<i64>,
}

/// The token is left out: it belongs to the job's worker.
const JOB: &str = "
select (to_jsonb(j) - 'token' || jsonb_build_object('errors', (
    select coalesce(jsonb_agg(to_jsonb(e) - '{job_id,job_kind}'::text[] order by e.attempt, e.at), '[]')
        from jobs.errors e where e.job_id = j.id)))::text, j.state::text
    from jobs.jobs j where j.id = $1";

/// A failed attempt.
#[derive(Deserialize)]
struct Failure {
    attempt: i64,
    at: String,
    error: String,
}

impl Show {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let client = database.connect().await?;
        let mut missing = Vec::new();
        for id in self.ids {
            let Some(row) = client.query_opt(JOB, &[&id]).await? else {
                missing.push(id.to_string());
                continue;
            };
            let text: String = row.try_get(0)?;
            if json {
                print(text);
                continue;
            }
            show(&text)?;
            let state: String = row.try_get(1)?;
            if state == "available" {
                let reasons = match reasons(&client, id).await {
                    // It has gone meanwhile.
                    Err(failed) if failed.code == NOT_FOUND => Vec::new(),
                    reasons => reasons?,
                };
                for reason in reasons {
                    let said = serde_json::from_str::<Reason>(&reason)?.said();
                    print(format!("  {said}"));
                }
            }
        }
        match missing[..] {
            [] => Ok(()),
            _ => Err(Failed::new(NOT_FOUND, format!("no such job: {}", missing.join(", ")))),
        }
    }
}

/// Shows each column of a job on a line, however deep its value.
fn show(job: &str) -> Result<(), Failed> {
    let mut job: BTreeMap<String, Box<RawValue>> = serde_json::from_str(job)?;
    let errors: Vec<Failure> = match job.remove("errors") {
        Some(errors) => serde_json::from_str(errors.get())?,
        None => Vec::new(),
    };
    job.retain(|_, value| value.get() != "null");
    if let Some(id) = job.remove("id") {
        print(format!("job {id}"));
    }
    let order = ["state", "kind", "queue", "attempt", "max_attempts", "args", "output", "progress"];
    let first = order.map(|name| job.remove_entry(name));
    for (name, value) in first.into_iter().flatten().chain(job) {
        let text = serde_json::from_str(value.get()).unwrap_or(value.to_string());
        print(format!("  {name:20} {}", visible::line(&text)));
    }
    for Failure { attempt, at, error } in errors {
        print(format!("  error in attempt {attempt} at {at}"));
        let text = visible::lines(&error).replace('\n', "\n    ");
        print(format!("    {text}"));
    }
    Ok(())
}
