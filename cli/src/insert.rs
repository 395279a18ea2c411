//! `pgjobs insert`.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use clap::Args;
use postgres_jobs::{Inserted, JobResult, NewJob, State, Want, wait_for};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, stdin};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient};

use crate::database::Database;
use crate::failed::{Failed, NOT_COMPLETED, REFUSED, WRONG};
use crate::seconds::{limit, seconds};
use crate::terminal::{plain, plural, print, show_progress};
use crate::{times, visible};

const EXAMPLES: &str = "Examples:
  pgjobs insert email.send '{\"to\": \"ada@example.com\"}' --queue mail
  pgjobs insert report --at 'tomorrow 6:00' --unique '{\"by_args\": true}'
  pgjobs insert sum '[1, 2]' --wait 60 --json
  jq -c '.users[]' users.json | pgjobs insert email.send --lines";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Insert {
    /// Kind of the job, which selects its handler
    kind: String,
    /// Args as JSON; - reads them from stdin
    #[arg(default_value = "{}")]
    args: String,
    /// Insert a job for each line of stdin, all or none; the line is its args
    #[arg(long, conflicts_with_all = ["args", "wait"])]
    lines: bool,
    /// Queue [default: default]
    #[arg(short, long)]
    queue: Option<String>,
    /// Priority; lower numbers are fetched first [default: 1]
    #[arg(long)]
    priority: Option<i32>,
    /// When the job is due, as a Postgres timestamp: '2030-01-01 9:00', tomorrow
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Delay until the job is due, such as '10 minutes'
    #[arg(long, value_name = "INTERVAL", conflicts_with = "at")]
    r#in: Option<String>,
    /// When the job is discarded unless it was fetched
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Maximum number of attempts [default: 25]
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<i32>,
    /// Tag; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Metadata, a JSON object
    #[arg(long, value_name = "JSON")]
    meta: Option<String>,
    /// Timeout of an attempt, or -1 for no limit [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = limit, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Retry policy: river, oban, faktory or JSON [default: river]
    #[arg(long, value_name = "POLICY")]
    retry: Option<String>,
    /// Unique options as JSON, such as '{"by_args": true}'
    #[arg(long, value_name = "JSON")]
    unique: Option<String>,
    /// Insert the job as pending
    #[arg(long)]
    pending: bool,
    /// Wait this long for the job to end, and print its output
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,
}

/// Unique options are passed on as given: the database accepts more forms than the library has
/// types for.
const INSERT: &str = "
select to_json(i)::text from jobs.insert_many((
    select jsonb_agg(job || jsonb_build_object('unique_opts', $2::jsonb))
        from jsonb_array_elements($1::jsonb) job)) i order by ord";

impl Insert {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let mut args = self.args.clone();
        if args == "-" {
            args.clear();
            stdin().read_to_string(&mut args).await?;
        }
        let mut job = self.job(&args)?;
        let mut client = database.connect().await?;
        self.set_times(&client, &mut job).await?;
        if self.lines {
            return self.lines(&mut client, job, json).await;
        }
        let inserted = self.insert(&client, &[job]).await;
        let inserted = inserted.map_err(|failed| placed(failed, None))?.remove(0);
        match self.wait {
            Some(time) => wait(&client, &inserted, time, json).await,
            None => {
                print(if json { shown(&inserted).to_string() } else { said(&inserted) });
                Ok(())
            }
        }
    }

    /// The job without its times.
    fn job(&self, args: &str) -> Result<NewJob, Failed> {
        let mut job = NewJob {
            queue: self.queue.clone(),
            priority: self.priority,
            max_attempts: self.max_attempts,
            tags: self.tags.clone(),
            timeout: self.timeout,
            pending: self.pending,
            ..NewJob::new(&self.kind, parsed::<Box<RawValue>>(args, "args")?)?
        };
        if let Some(meta) = &self.meta {
            job.meta = parsed(meta, "meta")?;
        }
        if let Some(policy) = &self.retry {
            let policy = match policy.starts_with('{') {
                true => parsed(policy, "retry")?,
                false => Value::from(policy.as_str()),
            };
            job.retry = Some(policy);
        }
        if let Some(unique) = &self.unique {
            parsed::<IgnoredAny>(unique, "unique")?;
        }
        Ok(job)
    }

    /// Sets the times, which Postgres reads.
    async fn set_times(&self, client: &Client, job: &mut NewJob) -> Result<(), Failed> {
        if let Some(text) = &self.at {
            job.scheduled_at =
                Some(times::asked(client, "select $1::text::timestamptz", text).await?);
        }
        if let Some(text) = &self.r#in {
            job.scheduled_at =
                Some(times::asked(client, "select now() + $1::text::interval", text).await?);
        }
        if let Some(text) = &self.expires_at {
            job.expires_at =
                Some(times::asked(client, "select $1::text::timestamptz", text).await?);
        }
        Ok(())
    }

    async fn insert(
        &self,
        client: &impl GenericClient,
        jobs: &[NewJob],
    ) -> Result<Vec<Inserted>, Failed> {
        let jobs = serde_json::to_string(jobs)?;
        let of: [(&(dyn ToSql + Sync), Type); 2] =
            [(&jobs, Type::TEXT), (&self.unique, Type::TEXT)];
        let rows = client.query_typed(INSERT, &of).await?;
        let inserted = rows.iter().map(|row| Ok(serde_json::from_str(row.try_get(0)?)?));
        inserted.collect()
    }

    /// Inserts a job like the template for each line of stdin.
    async fn lines(&self, client: &mut Client, template: NewJob, json: bool) -> Result<(), Failed> {
        let transaction = client.transaction().await?;
        let mut lines = BufReader::new(stdin()).lines();
        let (mut number, mut duplicates) = (0, 0);
        loop {
            let mut batch = Vec::new();
            while batch.len() < 1000
                && let Some(line) = lines.next_line().await?
            {
                let what = format!("line {}", number + batch.len() + 1);
                let args =
                    parsed(&line, &what).map_err(|fault| Failed { code: REFUSED, ..fault })?;
                batch.push(NewJob { args, ..template.clone() });
            }
            if batch.is_empty() {
                break;
            }
            let inserted = self.insert(&transaction, &batch).await;
            let inserted = inserted.map_err(|failed| placed(failed, Some(number)))?;
            number += batch.len();
            duplicates += inserted.iter().filter(|one| one.is_duplicate).count();
            show_progress(plural(number as i64, "job"));
        }
        transaction.commit().await?;
        show_progress("");
        let inserted = number - duplicates;
        match json {
            true => print(json!({ "inserted": inserted, "duplicates": duplicates })),
            false => print(format!(
                "{} inserted, {}",
                plural(inserted as i64, "job"),
                plural(duplicates as i64, "duplicate")
            )),
        }
        Ok(())
    }
}

/// Names the line of an element of a call, after so many lines of earlier calls, or nothing for a
/// job by itself.
fn placed(mut failed: Failed, before: Option<usize>) -> Failed {
    if let Some((message, detail)) = failed.message.split_once("\nDETAIL: Element ") {
        let (number, rule) = detail.split_once([':', '.']).unwrap_or((detail, ""));
        let line = before
            .zip(number.parse().ok())
            .map(|(before, number): (usize, usize)| format!("line {}: ", before + number));
        let rule = match rule.trim_start() {
            "" => String::new(),
            rule => format!("\nDETAIL: {rule}"),
        };
        failed.message = format!("{}{message}{rule}", line.unwrap_or_default());
    }
    failed
}

fn parsed<T: for<'de> serde::Deserialize<'de>>(text: &str, what: &str) -> Result<T, Failed> {
    serde_json::from_str(text).map_err(|error| Failed::new(WRONG, format!("{what}: {error}")))
}

fn shown(inserted: &Inserted) -> Value {
    json!({ "id": inserted.id, "state": inserted.state, "duplicate": inserted.is_duplicate })
}

fn said(inserted: &Inserted) -> String {
    let (Some(id), Some(state)) = (inserted.id, inserted.state) else {
        return "duplicate of a job that another transaction is inserting".into();
    };
    let is = if inserted.is_duplicate { "already exists, " } else { "" };
    format!("job {id} {is}{}", json!(state).as_str().unwrap_or_default())
}

async fn wait(
    client: &Client,
    inserted: &Inserted,
    time: Duration,
    json: bool,
) -> Result<(), Failed> {
    let Some(id) = inserted.id else {
        return Err(Failed::new(NOT_COMPLETED, said(inserted)));
    };
    let result = watched(client, id, time).await;
    show_progress("");
    let result = result?;
    if json {
        print(serde_json::to_string(&result)?);
    } else if let Some(output) = &result.raw_output {
        print(output);
    }
    if result.state == Some(State::Completed) {
        return Ok(());
    }
    let error = result.error.map(|error| format!(": {}", visible::lines(&error)));
    let (state, error) = (named(result.state), error.unwrap_or_default());
    Err(Failed::new(NOT_COMPLETED, format!("job {id} is {state}{error}")))
}

/// How often a terminal shows the state of the awaited job.
const LOOK: Duration = Duration::from_secs(1);
const PROGRESS: &str = "select progress::text from jobs.jobs where id = $1";

/// Waits for a job, and meanwhile shows its state and progress on a terminal.
async fn watched(client: &Client, id: i64, time: Duration) -> Result<JobResult, Failed> {
    let began = Instant::now();
    let mut can_read = true;
    loop {
        let left = time.saturating_sub(began.elapsed());
        let turn = match stderr().is_terminal() {
            true => left.min(LOOK),
            false => left,
        };
        let result = wait_for(client, &[id], turn, Want::All).await?.remove(0);
        let is_over = matches!(
            result.state,
            None | Some(State::Completed | State::Cancelled | State::Discarded)
        );
        if is_over || turn == left {
            return Ok(result);
        }
        let mut progress = None;
        if can_read {
            // A role that may only insert sees the state alone, and does not ask again.
            let row = client.query_opt(PROGRESS, &[&id]).await;
            can_read = row.is_ok();
            progress = row.ok().flatten().and_then(|row| row.get(0));
        }
        let progress = progress.map(|progress: String| format!(": {}", visible::line(&progress)));
        let (state, progress) = (named(result.state), progress.unwrap_or_default());
        show_progress(format_args!("job {id} is {state}{progress}"));
    }
}

fn named(state: Option<State>) -> String {
    state.map_or("deleted".into(), |state| plain(&json!(state)))
}
