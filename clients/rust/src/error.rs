//! How a handler ends otherwise than by returning a value, and errors of calls.

use std::any::{Any, type_name};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::handler::Ended;

/// What a handler ends with if it does not return a value.
///
/// `?` makes one of every [`std::error::Error`], and keeps its message, those of its causes, the
/// name of its type, and the SQLSTATE if it is one of the database. [`Error::new`] takes texts,
/// boxed errors and those of `anyhow`. Such an error fails the attempt: the job is retried by its
/// policy, unless [`Error::discard`] or [`Error::retry_in`] say otherwise.
///
/// [`snooze`] and [`cancel`] make the other ways to end.
#[derive(Debug)]
pub struct Error(pub(crate) Ending);

/// What becomes of an attempt, as `jobs.finish_many` has it.
#[derive(Debug, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Ending {
    Complete {
        output: Box<RawValue>,
    },
    /// A handler that returns nothing has no output.
    #[serde(rename = "complete")]
    CompleteWithout {},
    Fail(Failure),
    Snooze {
        delay: f64,
    },
    Cancel {
        reason: String,
    },
    Release {},
}

#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    error: String,
    /// What is kept besides: `type`, `code`, `trace`.
    pub(crate) details: BTreeMap<&'static str, String>,
    retryable: bool,
    retry_in: Option<f64>,
}

impl Error {
    /// A failure with this message, and `Error` for its type.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of("Error", &*error.into())
    }

    /// Names the type of the failure, which policies know as `non_retryable`; the default is the
    /// name of the error's Rust type.
    pub fn typed(self, name: &str) -> Self {
        self.with(|failure| drop(failure.details.insert("type", storable(name))))
    }

    /// The job has failed for good.
    pub fn discard(self) -> Self {
        self.with(|failure| failure.retryable = false)
    }

    /// The next attempt is made after this delay, whatever the job's policy says.
    pub fn retry_in(self, delay: Duration) -> Self {
        self.with(|failure| failure.retry_in = Some(delay.as_secs_f64()))
    }

    fn with(mut self, change: impl FnOnce(&mut Failure)) -> Self {
        if let Ending::Fail(failure) = &mut self.0 {
            change(failure);
        }
        self
    }

    fn of(type_name: &str, error: Cause<'_>) -> Self {
        let (text, type_name) = (storable(&shown(error)), storable(type_name));
        let mut details = BTreeMap::from([("type", type_name.clone())]);
        details.extend(code(error).map(|code| ("code", code)));
        details.extend(trace().map(|trace| ("trace", trace)));
        Self(Ending::Fail(Failure {
            error: if text.is_empty() { type_name } else { text },
            details,
            retryable: true,
            retry_in: None,
        }))
    }

    /// What a panic leaves, if it is a text.
    pub(crate) fn panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Self::new(text.unwrap_or("panic")).typed("panic")
    }

    pub(crate) fn timeout() -> Self {
        Self::new("the handler has exceeded its timeout").typed("timeout")
    }
}

impl Ending {
    /// Whether it is just an error, as of a handler that gives up because it was cancelled.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Fail(failure) if failure.retryable && failure.retry_in.is_none())
    }
}

impl From<Ended> for Ending {
    fn from(ended: Ended) -> Self {
        match ended {
            Ok(output) if output.get() == "null" => Self::CompleteWithout {},
            Ok(output) => Self::Complete { output },
            Err(error) => error.0,
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::of(type_name::<E>(), &error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ending::Fail(failure) => f.write_str(&failure.error),
            Ending::Cancel { reason } => f.write_str(reason),
            Ending::Snooze { delay } => write!(f, "snoozed for {delay} s"),
            _ => f.write_str("released"),
        }
    }
}

/// The job comes again after this delay; the attempt does not count.
pub fn snooze(delay: Duration) -> Error {
    let delay = delay.as_secs_f64();
    Error(Ending::Snooze { delay })
}

/// The job is cancelled, for this reason.
pub fn cancel(reason: impl AsRef<str>) -> Error {
    let reason = storable(reason.as_ref());
    Error(Ending::Cancel { reason })
}

/// What calls of this library return.
pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a call of this library has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The database refuses it, or there is no connection.
    #[error("{}", shown(.0))]
    Database(#[from] tokio_postgres::Error),
    /// So does sqlx.
    #[cfg(feature = "sqlx")]
    #[error("{}", shown(.0))]
    Sqlx(#[from] sqlx::Error),
    /// A value has no JSON, or the JSON is of another type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// No worker can have this option.
    #[error("{0}")]
    Option(String),
    /// So many results were lost. Their jobs run again when their leases have run out.
    #[error("{0} results could not be sent")]
    Unsent(usize),
    /// The system refuses it.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

impl ClientError {
    /// The SQLSTATE, if the database refused the call.
    pub fn code(&self) -> Option<String> {
        code(self)
    }

    /// Whether its SQLSTATE begins with one of these.
    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        let has = |code: String| codes.iter().any(|class| code.starts_with(class));
        self.code().is_some_and(has)
    }
}

/// The most characters that are kept of a text.
const LONGEST: usize = 10_000;

/// A text as the database can hold it: without NUL, and not endless.
fn storable(text: &str) -> String {
    let text: String = text.chars().take(LONGEST).collect();
    text.replace('\0', "\u{fffd}")
}

/// The stack of where `?` or `new` stands, if RUST_BACKTRACE asks for it. Its end is kept.
fn trace() -> Option<String> {
    let stack = Backtrace::capture();
    let stack = (stack.status() == BacktraceStatus::Captured).then(|| stack.to_string())?;
    let beyond = stack.chars().count().saturating_sub(LONGEST);
    Some(stack.chars().skip(beyond).collect())
}

type Cause<'a> = &'a (dyn StdError + 'static);

fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The message of an error, and those of its causes that it does not have in it.
fn shown(error: Cause<'_>) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The SQLSTATE that an error or one of its causes has.
fn code(error: Cause<'_>) -> Option<String> {
    causes(error).find_map(|cause| {
        #[cfg(feature = "sqlx")]
        if let Some(sqlx::Error::Database(error)) = cause.downcast_ref() {
            return Some(error.code()?.into());
        }
        let error = cause.downcast_ref::<tokio_postgres::error::DbError>()?;
        Some(error.code().code().into())
    })
}
