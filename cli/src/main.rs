//! The program `jobs`.

mod console;
mod database;
mod failed;
mod hang_up;
mod insert;
mod output;
mod seconds;
mod show;
mod terminal;
mod top;
mod visible;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::database::Database;
use crate::failed::Failed;
use crate::terminal::{print, tell};

const EXAMPLES: &str = "Examples:
  jobs insert email.send '{\"to\": \"ada@example.com\"}' --queue mail --in '10 minutes'
  jobs work --queue mail --concurrency 4 -- ./send-email
  jobs show 42 --json
  jobs top -d postgresql://postgres@localhost/app
  jobs console -d postgresql://postgres@localhost/app

Shells have a builtin of this name: run `env jobs`, or set `alias jobs='env jobs'`.

Exit codes:
  0  success
  1  failure, or refused by the database
  2  invalid usage
  3  no connection to the database
  4  job not found
  5  with --wait: the job was cancelled or discarded, or did not end in time";

/// Insert, run, show and manage the jobs of a Postgres database.
#[derive(Parser)]
#[command(name = "jobs", version, after_help = EXAMPLES)]
struct Arguments {
    /// Print JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    database: Database,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Work(work::Work),
    /// Insert a job, or one for each line of stdin
    Insert(insert::Insert),
    /// Show jobs and their errors
    Show(show::Show),
    /// Show queues and workers, refreshed on a terminal
    Top(top::Top),
    /// Serve the web console
    Console(console::Console),
    /// Print a shell completion script
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
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
