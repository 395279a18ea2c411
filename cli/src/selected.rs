//! Options that select jobs.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tokio_postgres::Client;

use crate::failed::Failed;
use crate::filter::{Filter, STATES};
use crate::times;

/// Reads the value of an option that selects jobs: an empty field of a [`Filter`] matches any job.
pub(crate) fn text() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

#[derive(Args)]
#[command(next_help_heading = "Jobs")]
pub(crate) struct Selected {
    /// State
    #[arg(short, long, value_parser = STATES)]
    state: Option<String>,
    /// Queue
    #[arg(short, long, value_parser = text())]
    queue: Option<String>,
    /// Kind
    #[arg(short, long, value_parser = text())]
    kind: Option<String>,
    /// Tag
    #[arg(long, value_parser = text())]
    tag: Option<String>,
}

#[derive(Args)]
#[command(next_help_heading = "Jobs")]
pub(crate) struct SelectedByError {
    #[command(flatten)]
    of: Selected,
    /// Text that the latest error contains
    #[arg(long, value_name = "TEXT", value_parser = text(), conflicts_with = "error_like")]
    error: Option<String>,
    /// LIKE pattern of the latest error
    #[arg(long, value_name = "PATTERN", value_parser = text())]
    error_like: Option<String>,
    /// The latest error came after this Postgres timestamp, or '10 minutes ago'
    #[arg(long, value_name = "TIME", value_parser = text())]
    failed_after: Option<String>,
}

impl Selected {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { state, queue, kind, tag } = self;
        [state, queue, kind, tag].iter().all(|value| value.is_none())
    }

    pub(crate) fn filter(&self) -> Filter {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Filter {
            state: text(&self.state),
            queue: text(&self.queue),
            kind: text(&self.kind),
            tag: text(&self.tag),
            ..Filter::default()
        }
    }
}

impl SelectedByError {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { of, error, error_like, failed_after } = self;
        of.is_empty() && [error, error_like, failed_after].iter().all(|value| value.is_none())
    }

    pub(crate) async fn filter(&self, client: &Client) -> Result<Filter, Failed> {
        Ok(Filter {
            error: self.error.clone().unwrap_or_default(),
            error_like: self.error_like.clone().unwrap_or_default(),
            failed_after: times::asked_text(client, self.failed_after.as_deref()).await?,
            ..self.of.filter()
        })
    }
}
