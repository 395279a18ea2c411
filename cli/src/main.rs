//! The program `jobs`.

mod console;
mod database;
mod hang_up;
mod insert;
mod output;
mod seconds;
mod show;
mod top;
mod visible;
mod work;

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::{ExitCode, exit};

use clap::{CommandFactory, Parser, Subcommand};
use serde_json::Value;
use tokio_postgres::error::{DbError, SqlState};

use crate::database::Database;

const EXAMPLES: &str = "Examples:
  jobs insert email.send '{\"to\": \"ada@example.com\"}' --queue mail --in '10 minutes'
  jobs work --queue mail --concurrency 4 -- ./send-email
  jobs show 42 --json
  jobs top -d postgresql://postgres@localhost/app
  jobs console -d postgresql://postgres@localhost/app

A shell has a command jobs of its own: there, write `env jobs`, or once `alias jobs='env jobs'`.

Exit codes:
  0  it is done
  1  the database refused it, or it could not be done
  2  wrong usage
  3  no connection to the database
  4  there is no such job
  5  the job that was waited for was cancelled, failed for good, or did not end in time";

/// A job queue in Postgres: work, insert, show and manage jobs.
#[derive(Parser)]
#[command(name = "jobs", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    database: Database,
    /// Print JSON, an object a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Work(work::Work),
    /// Insert a job, or one for each line of stdin
    Insert(insert::Insert),
    /// Show all that is known of jobs
    Show(show::Show),
    /// Show queues and workers, again and again on a terminal
    Top(top::Top),
    /// Serve pages that show and manage the queue
    Console(console::Console),
    /// Print a script that completes arguments in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Why a command ends, and with which code. One without a message has said it already.
pub(crate) struct Failed {
    code: u8,
    message: String,
}

/// The codes that the help lists.
pub(crate) const REFUSED: u8 = 1;
pub(crate) const WRONG: u8 = 2;
pub(crate) const NOT_CONNECTED: u8 = 3;
pub(crate) const NOT_FOUND: u8 = 4;
pub(crate) const NOT_COMPLETED: u8 = 5;

impl Failed {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for Failed {
    /// With the messages of its causes that its own does not have in it. What the database says
    /// stands alone.
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref::<DbError>() {
                message = visible::line(refused.message()).into();
                let hint = refused.hint().or_else(|| no_extension(refused));
                let more = [("DETAIL", refused.detail()), ("HINT", hint)];
                for (name, text) in more
                    .into_iter()
                    .filter_map(|(name, text)| Some((name, text?)))
                {
                    message += &format!("\n{name}: {}", visible::line(text));
                }
            } else if !message.contains(&error.to_string()) {
                message += &format!(": {error}");
            }
            cause = error.source();
        }
        Self::new(REFUSED, message)
    }
}

/// The program asks only for what is in the schema `jobs`.
fn no_extension(refused: &DbError) -> Option<&'static str> {
    let lacking = [&SqlState::INVALID_SCHEMA_NAME, &SqlState::UNDEFINED_TABLE];
    let hint = "Is this the right database? CREATE EXTENSION jobs makes it one with a queue.";
    lacking.contains(&refused.code()).then_some(hint)
}

/// Prints a line, or ends the program: quietly if the reader has gone away, as `head` does.
pub(crate) fn print(line: impl Display) {
    let Err(error) = writeln!(stdout(), "{line}") else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(0);
    }
    tell(format_args!("jobs: stdout: {error}"));
    exit(REFUSED.into());
}

/// Says it on stderr, if it can be said there.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Shows how far it is on a line of a terminal, in place of what was shown there before.
pub(crate) fn show_progress(line: impl Display) {
    if stderr().is_terminal() {
        // A terminal that does not wrap cuts what is too long for a line.
        let line = format!("\r\x1b[K\x1b[?7l{line}\x1b[?7h");
        let _ = stderr().write_all(line.as_bytes());
    }
}

/// A value without the quotes of a text.
pub(crate) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments {
        database,
        json,
        command,
    } = Arguments::parse();
    let done = match command {
        Command::Work(work) => work.run(&database, json).await,
        Command::Insert(insert) => insert.run(&database, json).await,
        Command::Show(show) => show.run(&database, json).await,
        Command::Top(top) => top.run(&database, json).await,
        Command::Console(console) => console.run(&database).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "jobs", &mut script);
            print(String::from_utf8_lossy(&script).trim_end());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { code, message }) => {
            if !message.is_empty() {
                tell(format_args!("jobs: {}", visible::lines(&message)));
            }
            ExitCode::from(code)
        }
    }
}
