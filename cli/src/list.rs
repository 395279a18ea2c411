//! `pgjobs list`.

use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::database::Database;
use crate::failed::{Failed, REFUSED};
use crate::filter::{Condition, Filter};
use crate::selected::{SelectedByError, text};
use crate::table::{Row, table};
use crate::terminal::{print, tell};
use crate::times;
use crate::windows::{FIRST_WINDOW, Windows};

const EXAMPLES: &str = "Prints the newest jobs that match all options, the newest first.

Examples:
  pgjobs list --queue mail --state discarded
  pgjobs list --failed-after '1 hour ago' --error 'connection refused'
  pgjobs list --args '{\"to\": \"ada@example.com\"}' --json | jq .id
  pgjobs list --limit 100 --below 4217    # the next page";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct List {
    #[command(flatten)]
    selected: SelectedByError,
    /// Job ID; can be repeated
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<i64>,
    /// Worker
    #[arg(long, value_parser = text())]
    worker: Option<String>,
    /// JSON that args contain, for roles that can see args
    #[arg(long, value_name = "JSON", value_parser = text())]
    args: Option<String>,
    /// Inserted at or after this Postgres timestamp, or '10 minutes ago'
    #[arg(long, value_name = "TIME", value_parser = text())]
    after: Option<String>,
    /// Inserted before
    #[arg(long, value_name = "TIME", value_parser = text())]
    before: Option<String>,
    /// Maximum number of jobs
    #[arg(short, long, default_value_t = 50, value_parser = value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Jobs with lower IDs, for the next page
    #[arg(long, value_name = "ID", default_value_t = i64::MAX, hide_default_value = true)]
    below: i64,
}

/// The token is left out: it belongs to the job's worker.
const JOB: &str = "to_jsonb(j) - 'token'";
/// What the table shows of a job.
const SHOWN: &str = "jsonb_build_object('id', id, 'state', state, 'queue', queue, 'kind', kind,
    'attempt', attempt || '/' || max_attempts,
    'inserted', to_char(created_at, 'YYYY-MM-DD HH24:MI:SS'),
    'error', left(split_part(last_error, E'\\n', 1), 60))";

/// Args are null for any other role.
const SEES_ARGS: &str = "select has_table_privilege('jobs.job', 'select')";

impl List {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let args = self.args.clone().unwrap_or_default();
        Filter { args: args.clone(), ..Filter::default() }.condition()?;
        let client = database.connect().await?;
        if self.args.is_some() && !client.query_one(SEES_ARGS, &[]).await?.try_get::<_, bool>(0)? {
            let hint = "The role needs SELECT on jobs.job.";
            let failed = Failed::new(REFUSED, "permission denied for args of jobs");
            return Err(Failed { hint: Some(hint.into()), ..failed });
        }
        let filter = Filter {
            worker: self.worker.clone().unwrap_or_default(),
            args,
            after: times::asked_text(&client, self.after.as_deref()).await?,
            before: times::asked_text(&client, self.before.as_deref()).await?,
            ..self.selected.filter(&client).await?
        };
        let mut condition = filter.whole_condition()?;
        if !self.ids.is_empty() {
            condition.and("id = any(?)", self.ids.clone());
        }
        let what = if json { JOB } else { SHOWN };
        let mut jobs = self.jobs(&client, &condition, what).await?;
        let has_more = jobs.len() > self.limit as usize;
        jobs.truncate(self.limit as usize);
        if json {
            jobs.iter().for_each(|(_, job)| print(job));
        } else {
            show(jobs.iter().map(|(_, job)| job))?;
        }
        if let (true, false, Some((id, _))) = (has_more, json, jobs.last()) {
            tell(format_args!("There are more jobs: --below {id}"));
        }
        Ok(())
    }

    /// The jobs of the page with their ids, and one more if there are more. Reads growing windows
    /// of ids, since `jobs.jobs` is a union by state and would be sorted as a whole.
    async fn jobs(
        &self,
        client: &Client,
        condition: &Condition,
        what: &str,
    ) -> Result<Vec<(i64, String)>, Failed> {
        let last: i64 = client.query_one("select jobs.last_id()", &[]).await?.try_get(0)?;
        let mut windows =
            Windows { left: 1..self.below.min(last + 1), size: FIRST_WINDOW, is_up: false };
        let most = self.limit + 1;
        let mut jobs = Vec::new();
        while let (true, Some(ids)) = ((jobs.len() as i64) < most, windows.next()) {
            let mut values: Vec<&(dyn ToSql + Sync)> = condition.values();
            values.extend([&ids.start as &(dyn ToSql + Sync), &ids.end]);
            let sql = format!(
                "select id, ({what})::text from jobs.jobs j
                  where {} and id >= ${} and id < ${} order by id desc limit {}",
                condition.sql,
                values.len() - 1,
                values.len(),
                most - jobs.len() as i64
            );
            let began = Instant::now();
            for row in client.query(&sql, &values).await? {
                jobs.push((row.try_get(0)?, row.try_get(1)?));
            }
            windows.fit(began.elapsed(), Duration::MAX);
        }
        Ok(jobs)
    }
}

/// Prints jobs as a table.
fn show<'a>(jobs: impl Iterator<Item = &'a String>) -> Result<(), Failed> {
    let rows = jobs.map(|job| serde_json::from_str::<Row>(job)).collect::<Result<Vec<_>, _>>()?;
    table(&["id", "state", "queue", "kind", "attempt", "inserted", "error"], &rows);
    Ok(())
}

/// Prints the oldest jobs of a condition as a table.
pub(crate) async fn show_oldest(
    client: &Client,
    condition: &Condition,
    most: usize,
) -> Result<(), Failed> {
    let sql = format!(
        "select ({SHOWN})::text from jobs.jobs where {} order by id limit {most}",
        condition.sql
    );
    let rows = client.query(&sql, &condition.values()).await?;
    let jobs = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    show(jobs.iter())
}
