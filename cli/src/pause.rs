//! `pgjobs pause` and `pgjobs resume`.

use clap::Args;
use serde_json::json;

use crate::database::Database;
use crate::failed::Failed;
use crate::terminal::print;
use crate::visible;

pub(crate) const PAUSE: &str = "Fetches return nothing from a paused queue. \
A paused periodic job inserts no jobs. Running jobs are unaffected.

Examples:
  pgjobs pause mail --reason 'mail server is down'
  pgjobs pause --periodic nightly-report";

pub(crate) const RESUME: &str = "Examples:
  pgjobs resume mail
  pgjobs resume --periodic nightly-report";

#[derive(Args)]
pub(crate) struct Paused {
    /// Queues
    #[arg(required_unless_present = "periodic", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Periodic job; can be repeated
    #[arg(long, value_name = "NAME")]
    periodic: Vec<String>,
    /// Reason, for the audit
    #[arg(long)]
    reason: Option<String>,
}

/// What a command does to its queues and periodic jobs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum To {
    Pause,
    Resume,
}

impl Paused {
    /// Changes all or none.
    pub(crate) async fn run(self, to: To, database: &Database, json: bool) -> Result<(), Failed> {
        let mut client = database.connect().await?;
        let transaction = client.transaction().await?;
        let verb = if to == To::Pause { "pause" } else { "resume" };
        let all = [("queue", &self.queues), ("periodic", &self.periodic)];
        for (noun, names) in all {
            let call = format!("select jobs.{verb}_{noun}($1, $2)");
            for name in names {
                transaction.execute(&call, &[name, &self.reason]).await?;
            }
        }
        transaction.commit().await?;
        for (noun, names) in all {
            for name in names {
                if json {
                    print(json!({ noun: name, "paused": to == To::Pause }));
                } else {
                    let noun = noun.replace("periodic", "periodic job");
                    print(format!("{noun} \"{}\" {verb}d", visible::line(name)));
                }
            }
        }
        Ok(())
    }
}
