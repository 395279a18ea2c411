//! `jobs show`.

use clap::Args;
use serde_json::{Map, Value};

use crate::database::Database;
use crate::{Failed, NOT_FOUND, plain, print};

const EXAMPLES: &str = "Examples:
  jobs show 42
  jobs show 42 43 --json | jq .errors";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// Ids of jobs
    #[arg(required = true)]
    ids: Vec<i64>,
}

/// Without the token, which is its worker's.
const JOB: &str = "
select (to_jsonb(j) - 'token' || jsonb_build_object('errors', (
    select coalesce(jsonb_agg(to_jsonb(e) - '{job_id,job_kind}'::text[] order by e.attempt, e.at), '[]')
        from jobs.errors e where e.job_id = j.id)))::text
    from jobs.jobs j where j.id = $1";

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
            match json {
                true => print(text),
                false => show(serde_json::from_str(&text)?),
            }
        }
        match missing[..] {
            [] => Ok(()),
            _ => Err(Failed::new(
                NOT_FOUND,
                format!("no job {}", missing.join(", ")),
            )),
        }
    }
}

fn show(mut job: Map<String, Value>) {
    let errors = job.remove("errors");
    print(format!("job {}", plain(&job["id"])));
    let order = [
        "state",
        "kind",
        "queue",
        "attempt",
        "max_attempts",
        "args",
        "output",
        "progress",
    ];
    let rest: Vec<String> = job
        .keys()
        .filter(|name| !order.contains(&name.as_str()))
        .cloned()
        .collect();
    for name in order.into_iter().map(str::to_owned).chain(rest) {
        match &job[&name] {
            Value::Null => {}
            value if name != "id" => print(format!("  {name:20} {}", plain(value))),
            _ => {}
        }
    }
    for error in errors
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let (attempt, at) = (plain(&error["attempt"]), plain(&error["at"]));
        print(format!("  error of attempt {attempt}, {at}"));
        plain(&error["error"])
            .lines()
            .for_each(|line| print(format!("    {line}")));
    }
}
