//! `pgjobs work`: a program for each job.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use postgres_jobs::{
    Blocking, ClientError, Error, Handling, Job, JobInfo, Middleware, Options, Queue, Reason,
    Worker,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;
use tracing::{Level, info};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::database::Database;
use crate::failed::{Failed, REFUSED, WRONG};
use crate::hang_up;
use crate::output::{Output, PATIENCE};
use crate::seconds::{limit, seconds};
use crate::terminal::name;

const EXAMPLES: &str = "Examples:
  pgjobs work -- ./send-email
  pgjobs work --queue mail=3 --queue default=1 --concurrency 4 -- ./handle
  pgjobs work --kind resize --timeout 30 --discard 64 -- sh -c 'convert \"$(jq -r .picture)\" small.png'
  pgjobs work --json -- ./send-email | tee attempts.log";

/// Run a program for each job
///
/// The program gets the job's args as JSON on stdin, and JOBS_ID, JOBS_KIND, JOBS_QUEUE,
/// JOBS_ATTEMPT and JOBS_MAX_ATTEMPTS in its environment.
///
/// Exit code 0 completes the job, unless the database refuses the output. That is stdout: JSON as
/// it is, any other text as {"text": ...}. Text beyond 64 kB goes to stderr. Any other code,
/// usually 75 (EX_TEMPFAIL), fails the attempt with the end of stderr as the error, and the retry
/// policy applies; stdout goes to stderr. A code given with --discard discards the job. For retry
/// policies, the type of the error is exit_CODE or signal_NUMBER.
///
/// When the job is cancelled or exceeds its timeout, the program's process group gets SIGTERM, and
/// SIGKILL once the program has exited or the grace period is over. When the worker stops, programs
/// get SIGTERM after the grace period and SIGKILL a second later. Their exit code has no effect
/// then.
///
/// SIGTERM, SIGINT and SIGHUP stop the worker. An ignored SIGHUP, as under nohup, stays ignored. A
/// second SIGTERM or SIGINT skips the grace period.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Work {
    /// Queue to fetch from, or QUEUE=WEIGHT; can be repeated
    #[arg(short, long = "queue", value_name = "QUEUE", default_value = "default")]
    queues: Vec<String>,
    /// Maximum number of programs that run at once
    #[arg(short, long, default_value_t = 10)]
    concurrency: usize,
    /// Kind to fetch; can be repeated [default: all]
    #[arg(short, long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Timeout of a program, or -1 for the job's timeout alone [default: -1]
    #[arg(long, value_name = "SECONDS", value_parser = limit, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// How long jobs stay with a dead worker before they are rescued
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    lease: Duration,
    /// Grace period for programs, after a stop and after SIGTERM
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    grace: Duration,
    /// Do not prepare statements: for PgBouncer in transaction mode
    #[arg(long)]
    no_prepare: bool,
    /// Name of the worker [default: HOST:PID:RANDOM]
    #[arg(long)]
    name: Option<String>,
    /// Exit code that discards the job; can be repeated
    #[arg(long = "discard", value_name = "CODE")]
    discard: Vec<i32>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Programs that run, by their process groups.
type Groups = Arc<Mutex<HashSet<i32>>>;

impl Work {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let program = Path::new(&self.command[0]);
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<_> = match program.components().count() {
            1 => std::env::split_paths(&paths).map(|path| path.join(program)).collect(),
            _ => vec![program.into()],
        };
        let files = places.iter().filter_map(|place| place.metadata().ok());
        let mut files = files.filter(Metadata::is_file).peekable();
        let is_found = files.peek().is_some();
        if !files.any(|file| file.permissions().mode() & 0o111 != 0) {
            let fault = if is_found { "is not executable" } else { "not found" };
            let message = format!("program \"{}\" {fault}", program.display());
            return Err(Failed::new(REFUSED, message));
        }
        let reports = Output::new("stdout", stdout());
        let log = Output::new("stderr", stderr());
        let traced = log.clone();
        let lines = fmt::layer().with_writer(move || traced.clone()).with_target(false);
        let is_shown = |line: &tracing::Metadata<'_>| line.is_event() && !is_returned(line);
        let filter = filter_fn(move |line| *line.level() <= Level::INFO && is_shown(line));
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
        let groups = Groups::default();
        let worker = self.worker(database, &log, &groups)?;
        let mut worker = worker.middleware(Report(json.then(|| reports.clone())));
        if json {
            let reports = reports.clone();
            // Its attempt was reported as completed.
            worker = worker.on_error(move |job, error| {
                if error.details()["type"] == "invalid_output" {
                    report(&reports, job, None, Some(error.to_string()));
                }
            });
        }
        hang_up::terminates()?;
        let ended = worker.run().await;
        // Their jobs have been released.
        for group in groups.lock().expect("no panic").drain() {
            kill(group, Signal::KILL);
        }
        let ended = ended.map_err(|fault| {
            let failed = failed(fault);
            log.say(format!("{}: {failed}\n", name()).as_bytes());
            Failed::new(failed.code, "")
        });
        reports.finish(PATIENCE);
        log.finish(PATIENCE);
        ended
    }

    fn worker(self, database: &Database, log: &Output, groups: &Groups) -> Result<Worker, Failed> {
        let mut options = Options {
            queues: Vec::new(),
            concurrency: self.concurrency,
            timeout: self.timeout,
            lease: self.lease,
            grace: self.grace,
            prepare: !self.no_prepare,
            ..Options::default()
        };
        for queue in &self.queues {
            let (name, weight) = queue.rsplit_once('=').unwrap_or((queue, "1"));
            let weight = weight.parse();
            let weight = weight
                .map_err(|_| Failed::new(WRONG, format!("invalid weight in --queue {queue}")))?;
            let name = name.into();
            options.queues.push(Queue { name, weight });
        }
        if let Some(name) = &self.name {
            options.name = name.clone();
        }
        let program = self.command[0].to_string_lossy().into();
        options.info.insert("program".into(), program);
        let worker = Worker::new(database.config()?, options).map_err(failed)?;
        let (work, log, groups) = (Arc::new(self), log.clone(), groups.clone());
        // Blocking: the library ends no thread, which leaves time between the two signals.
        let runtime = tokio::runtime::Handle::current();
        let kinds = work.kinds.clone();
        let handler = move |job| runtime.block_on(work.program(job, &log, &groups));
        if kinds.is_empty() {
            return Ok(worker.otherwise(Blocking(handler)));
        }
        Ok(kinds.iter().fold(worker, |worker, kind| worker.kind(kind, Blocking(handler.clone()))))
    }

    /// Runs the program for a job.
    async fn program(
        &self,
        job: Job<Box<RawValue>>,
        log: &Output,
        groups: &Groups,
    ) -> Result<Box<RawValue>, Error> {
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("JOBS_ID", job.id.to_string())
            .env("JOBS_KIND", &job.kind)
            .env("JOBS_QUEUE", &job.queue)
            .env("JOBS_ATTEMPT", job.attempt.to_string())
            .env("JOBS_MAX_ATTEMPTS", job.max_attempts.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = child.id().map_or(0, |id| id as i32);
        groups.lock().expect("no panic").insert(group);
        let mut ending = Box::pin(communicate(&mut child, job.args.get(), log));
        let ended = job.cancellation().run_until_cancelled(&mut ending).await;
        let ended = match ended {
            Some(ended) => ended,
            None => {
                kill(group, Signal::TERM);
                let ended = timeout(self.grace, &mut ending).await;
                // Reaches processes that it started and left behind, too.
                kill(group, Signal::KILL);
                if ended.is_err() {
                    let _ = ending.await;
                }
                Err(Error::new(match job.cancelled_because() {
                    Some(Reason::Timeout) => "the attempt ran longer than its timeout",
                    Some(Reason::Stopping) => "the worker is stopping",
                    Some(Reason::Lost) => "the job was lost",
                    _ => "the job was cancelled",
                }))
            }
        };
        groups.lock().expect("no panic").remove(&group);
        let (status, output, errors) = ended?;
        self.result(status, &output, &errors, log)
    }

    fn result(
        &self,
        status: ExitStatus,
        output: &[u8],
        errors: &[u8],
        log: &Output,
    ) -> Result<Box<RawValue>, Error> {
        if status.success() {
            return of_stdout(output, log);
        }
        if !output.is_empty() {
            log.say(format!("{}\n", String::from_utf8_lossy(output).trim_ascii_end()).as_bytes());
        }
        let errors = String::from_utf8_lossy(errors);
        let text = match errors.trim() {
            "" => status.to_string(),
            errors => errors.into(),
        };
        let error = Error::new(text).typed(&match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit_{code}"),
            (None, signal) => format!("signal_{}", signal.unwrap_or_default()),
        });
        match status.code() {
            Some(code) if self.discard.contains(&code) => Err(error.discard()),
            _ => Err(error),
        }
    }
}

/// The maximum length of a text as output.
const LONGEST_TEXT: usize = 65_536;

/// The output of a program that printed this: its JSON, or its text, of which the log gets what is
/// too long.
fn of_stdout(printed: &[u8], log: &Output) -> Result<Box<RawValue>, Error> {
    let text = String::from_utf8_lossy(printed);
    let text = text.trim_ascii_end();
    if text.trim_ascii().is_empty() {
        return Ok(to_raw_value(&())?);
    }
    if let Ok(json) = RawValue::from_string(text.trim_ascii_start().into()) {
        return Ok(json);
    }
    let (kept, rest) = text.split_at(text.floor_char_boundary(LONGEST_TEXT));
    if !rest.is_empty() {
        log.say(format!("{rest}\n").as_bytes());
    }
    // A jsonb has no NUL.
    Ok(to_raw_value(&json!({ "text": kept.replace('\0', "\u{fffd}") }))?)
}

fn failed(fault: ClientError) -> Failed {
    match fault {
        ClientError::Option(fault) => Failed::new(WRONG, fault),
        ClientError::Hinted { error, hint } => {
            Failed { hint: Some(hint), lacks_right: false, ..Failed::from(*error) }
        }
        fault => fault.into(),
    }
}

/// Whether the library logs what [`Worker::run`] returns as an error.
fn is_returned(line: &tracing::Metadata<'_>) -> bool {
    line.target() == "postgres_jobs::handle" && *line.level() == Level::ERROR
}

fn kill(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        // It may have ended just now.
        let _ = kill_process_group(group, signal);
    }
}

/// Gives a program its input, and returns how it ended, its stdout and the end of its stderr.
async fn communicate(
    child: &mut Child,
    input: &str,
    log: &Output,
) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), Error> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let status = {
        let writing = async {
            if let Some(mut stdin) = stdin {
                // A program need not read its input.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let (reading, passing) =
            (read_output(stdout, &mut output), read_errors(stderr, &mut errors, log));
        let mut talking = Box::pin(async { tokio::join!(writing, reading, passing) });
        tokio::select! {
            status = child.wait() => {
                // Processes that it left behind may hold the pipes open.
                let _ = timeout(Duration::from_secs(1), talking).await;
                status?
            }
            _ = &mut talking => child.wait().await?,
        }
    };
    Ok((status, output, errors))
}

/// The maximum length of an error.
const LONGEST: usize = 10_000;

/// Passes a program's stderr on, and keeps its end.
async fn read_errors(from: Option<ChildStderr>, kept: &mut Vec<u8>, log: &Output) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        log.say(&buffer[..length]);
        kept.extend_from_slice(&buffer[..length]);
        kept.drain(..kept.len().saturating_sub(LONGEST));
    }
}

/// Reads a program's stdout, up to the limit of a jsonb.
async fn read_output(from: Option<ChildStdout>, kept: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let _ = (&mut from).take(0x1000_0000).read_to_end(kept).await;
    // So that the program does not wait for us.
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
}

/// Reports an attempt as JSON.
fn report(to: &Output, job: &JobInfo, seconds: Option<f64>, error: Option<String>) {
    let (id, kind, attempt) = (job.id, &job.kind, job.attempt);
    let line =
        json!({ "id": id, "kind": kind, "attempt": attempt, "seconds": seconds, "error": error });
    to.say(format!("{line}\n").as_bytes());
}

/// Reports each attempt: as JSON, or in the log, which has the library's report of failed ones.
struct Report(Option<Output>);

impl Middleware for Report {
    fn work(&self, job: Job<()>, handling: Handling) -> Handling {
        let reports = self.0.clone();
        Box::pin(async move {
            let began = Instant::now();
            let result = handling.await;
            let seconds = began.elapsed().as_secs_f64();
            let error = result.as_ref().err().map(ToString::to_string);
            if let Some(reports) = reports {
                report(&reports, &job, Some(seconds), error);
                return result;
            }
            let (id, kind, attempt) = (job.id, &job.kind, job.attempt);
            let seconds = format_args!("{seconds:.1}");
            match (error, job.cancelled_because()) {
                (None, _) => info!(job = id, kind, attempt, %seconds, "job completed"),
                (Some(_), None | Some(Reason::Timeout)) => {}
                (Some(error), Some(_)) => {
                    info!(job = id, kind, attempt, %seconds, error, "attempt stopped");
                }
            }
            result
        })
    }
}
