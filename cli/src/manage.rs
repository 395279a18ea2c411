//! `pgjobs retry` and `pgjobs cancel`.

use std::io::{IsTerminal, Write, stderr, stdin};

use clap::{Args, value_parser};
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::bulk::{Action, MOST, Meant};
use crate::database::Database;
use crate::failed::{Failed, NOT_FOUND, REFUSED, WRONG};
use crate::filter::Filter;
use crate::list::show_oldest;
use crate::selected::{Selected, SelectedByError};
use crate::terminal::{plural, print};

pub(crate) const RETRY: &str = "Makes jobs available now, with one more attempt if none is left. \
Available and running jobs are unaffected.

Examples:
  pgjobs retry 42 43
  pgjobs retry --kind email.send --state discarded
  pgjobs retry --queue mail --failed-after '1 hour ago' --reset --yes";

pub(crate) const CANCEL: &str = "Cancels waiting jobs, and asks running jobs to stop.

Examples:
  pgjobs cancel 42 --reason 'wrong address'
  pgjobs cancel 42 --force
  pgjobs cancel --queue mail --tag newsletter --yes";

#[derive(Args)]
pub(crate) struct Retry {
    /// Job IDs, or the options under Jobs
    ids: Vec<i64>,
    /// Reset the attempt count
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    selected: SelectedByError,
}

#[derive(Args)]
pub(crate) struct Cancel {
    /// Job IDs, or the options under Jobs
    ids: Vec<i64>,
    /// Cancel running jobs at once, and refuse their workers' results
    #[arg(long, requires = "ids")]
    force: bool,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    selected: Selected,
}

#[derive(Args)]
struct How {
    /// Maximum number of selected jobs, the oldest first
    #[arg(long, value_name = "NUMBER", default_value_t = MOST as i32, value_parser = value_parser!(i32).range(1..=MOST))]
    max: i32,
    /// Do not show and confirm the selected jobs
    #[arg(short, long)]
    yes: bool,
    /// Reason, for the audit
    #[arg(long)]
    reason: Option<String>,
}

impl Retry {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let Self { ids, selected, reset, how } = self;
        check(&ids, selected.is_empty())?;
        let client = database.connect().await?;
        if ids.is_empty() {
            let filter = selected.filter(&client).await?;
            return how.many(Action::Retry, &filter, reset, &client, json).await;
        }
        let call = "select jobs.retry($1, reset => $2, reason => $3)::text";
        each(&ids, call, reset, how.reason, &client, json).await
    }
}

impl Cancel {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let Self { ids, selected, force, how } = self;
        check(&ids, selected.is_empty())?;
        let client = database.connect().await?;
        if ids.is_empty() {
            return how.many(Action::Cancel, &selected.filter(), false, &client, json).await;
        }
        let call = "select jobs.cancel($1, force => $2, reason => $3)::text";
        each(&ids, call, force, how.reason, &client, json).await
    }
}

fn check(ids: &[i64], is_unselected: bool) -> Result<(), Failed> {
    match (ids.is_empty(), is_unselected) {
        (true, true) => Err(Failed::new(WRONG, "no jobs: give IDs, or options such as --queue")),
        (false, false) => Err(Failed::new(WRONG, "give either IDs, or options that select jobs")),
        _ => Ok(()),
    }
}

/// Calls a function for each job.
async fn each(
    ids: &[i64],
    call: &str,
    option: bool,
    reason: Option<String>,
    client: &Client,
    json: bool,
) -> Result<(), Failed> {
    let mut missing = Vec::new();
    for id in ids {
        let called = client.query_one(call, &[id, &option, &reason]).await.map_err(Failed::from);
        match called {
            Ok(row) => {
                let state: String = row.try_get(0)?;
                match json {
                    true => print(json!({ "id": id, "state": state })),
                    false => print(format!("job {id} {state}")),
                }
            }
            Err(failed) if failed.code == NOT_FOUND => missing.push(id.to_string()),
            Err(failed) => return Err(failed),
        }
    }
    match missing[..] {
        [] => Ok(()),
        _ => Err(Failed::new(NOT_FOUND, format!("no such job: {}", missing.join(", ")))),
    }
}

/// How many of the selected jobs are shown before they change.
const SHOWN: usize = 10;

impl How {
    /// Changes the jobs of a filter.
    async fn many(
        self,
        action: Action,
        filter: &Filter,
        reset: bool,
        client: &Client,
        json: bool,
    ) -> Result<(), Failed> {
        let meant = Meant::new(action, filter)?;
        let mut most = self.max;
        if !self.yes {
            let found = self.preview(&meant, client, json).await?;
            if found == 0 {
                return Ok(());
            }
            // Never more than were shown, even if there are new ones.
            most = found as i32;
            confirm(&format!("{} {}", action.title(), plural(found, "job"))).await?;
        }
        let (sql, of) = meant.call(most, reset, self.reason);
        let of: Vec<_> = of.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        let done: i64 = client.query_one(&sql, &of).await?.try_get(0)?;
        let more = if done == i64::from(self.max) { "; there may be more" } else { "" };
        match json {
            true => print(json!({ "jobs": done })),
            false => print(format!("{} {}{more}", plural(done, "job"), action.done())),
        }
        Ok(())
    }

    /// Prints what would change. Returns how many jobs.
    async fn preview(&self, meant: &Meant<'_>, client: &Client, json: bool) -> Result<i64, Failed> {
        let condition = meant.condition(None)?;
        let sql = format!(
            "select state, count(*) from
                (select state::text from jobs.jobs where {} order by id limit {}) j
              group by state order by count(*) desc, state",
            condition.sql, self.max
        );
        let (mut all, mut states) = (0, Vec::new());
        for row in client.query(&sql, &condition.values()).await? {
            let (state, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            all += count;
            states.push((state, count));
        }
        if json {
            let states: serde_json::Map<_, _> =
                states.into_iter().map(|(state, count)| (state, count.into())).collect();
            print(json!({ "matching": all, "states": states }));
            return Ok(all);
        }
        if all > 0 {
            show_oldest(client, &condition, SHOWN.min(self.max as usize)).await?;
        }
        let states: Vec<_> =
            states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let states = if all > 0 { format!(": {}", states.join(", ")) } else { String::new() };
        let more = if all == i64::from(self.max) { ", or more" } else { "" };
        print(format!("{}{states}{more}", plural(all, "matching job")));
        Ok(all)
    }
}

/// Asks on a terminal.
pub(crate) async fn confirm(what: &str) -> Result<(), Failed> {
    if !stdin().is_terminal() {
        return Err(Failed::new(
            WRONG,
            "nothing was changed: --yes is required without a terminal",
        ));
    }
    let _ = write!(stderr(), "{what}? [y/N] ");
    let mut answer = String::new();
    let read = move || stdin().read_line(&mut answer).map(|_| answer);
    let answer = spawn_blocking(read).await??;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failed::new(REFUSED, "nothing was changed")),
    }
}
