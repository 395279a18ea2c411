//! The program `pgjobs`.

mod apply;
mod bulk;
mod cells;
mod console;
mod database;
mod explain;
mod failed;
mod filter;
mod finding;
mod forward;
mod hang_up;
mod health;
mod insert;
mod list;
mod manage;
mod output;
mod pause;
mod seconds;
mod selected;
mod show;
mod standby;
mod table;
mod terminal;
mod times;
mod top;
mod unblock;
mod visible;
mod windows;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::database::Database;
use crate::pause::To;
use crate::terminal::{name, print, tell};

const EXAMPLES: &str = "Examples:
  pgjobs insert email.send '{\"to\": \"ada@example.com\"}' --queue mail --in '10 minutes'
  pgjobs work --queue mail --concurrency 4 -- ./send-email
  pgjobs show 42 --json
  pgjobs top -d postgresql://postgres@localhost/app
  pgjobs console -d postgresql://postgres@localhost/app
  pgjobs console --database service=one --database service=two

Exit codes:
  0  success
  1  failure, refused by the database, findings of `health` or `cells`, or refused rows of `forward`
  2  invalid usage
  3  no connection to the database
  4  no such job or periodic job
  5  with --wait: the job was cancelled or discarded, or did not end in time";

/// Insert, run, show and manage the jobs of a Postgres database.
#[derive(Parser)]
#[command(name = "pgjobs", version, after_help = EXAMPLES)]
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
    /// List jobs
    List(list::List),
    /// Retry jobs
    #[command(after_help = manage::RETRY)]
    Retry(manage::Retry),
    /// Cancel jobs
    #[command(after_help = manage::CANCEL)]
    Cancel(manage::Cancel),
    /// Show why a job is not running
    Explain(explain::Explain),
    Forward(forward::Forward),
    /// Pause queues and periodic jobs
    #[command(after_help = pause::PAUSE)]
    Pause(pause::Paused),
    /// Resume queues and periodic jobs
    #[command(after_help = pause::RESUME)]
    Resume(pause::Paused),
    /// Unblock keys of a queue with a strict order
    Unblock(unblock::Unblock),
    /// Show what needs attention
    Health(health::Health),
    /// Show several databases that share queues
    Cells(cells::Cells),
    Apply(apply::Apply),
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

impl Command {
    /// The function that grants a role what the command needs.
    fn grant(&self) -> &'static str {
        match self {
            Self::Work(_) => "grant_worker",
            Self::Insert(_) => "grant_producer",
            Self::Apply(_) => "grant_admin",
            Self::Retry(_)
            | Self::Cancel(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Unblock(_) => "grant_operator",
            _ => "grant_viewer",
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { database, json, command } = Arguments::parse();
    let grant = command.grant();
    let done = match command {
        Command::Work(work) => work.run(&database, json).await,
        Command::Insert(insert) => insert.run(&database, json).await,
        Command::Show(show) => show.run(&database, json).await,
        Command::List(list) => list.run(&database, json).await,
        Command::Retry(retry) => retry.run(&database, json).await,
        Command::Cancel(cancel) => cancel.run(&database, json).await,
        Command::Explain(explain) => explain.run(&database, json).await,
        Command::Forward(forward) => forward.run(json).await,
        Command::Pause(paused) => paused.run(To::Pause, &database, json).await,
        Command::Resume(paused) => paused.run(To::Resume, &database, json).await,
        Command::Unblock(unblock) => unblock.run(&database, json).await,
        Command::Health(health) => health.run(&database, json).await,
        Command::Cells(cells) => cells.run(json).await,
        Command::Apply(apply) => apply.run(&database, json).await,
        Command::Top(top) => top.run(&database, json).await,
        Command::Console(console) => console.run(&database, json).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "pgjobs", &mut script);
            print(String::from_utf8_lossy(&script).trim_end());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            let failed = database.hinted(failed, grant);
            if !failed.message.is_empty() {
                tell(format_args!("{}: {failed}", name()));
            }
            ExitCode::from(failed.code)
        }
    }
}
