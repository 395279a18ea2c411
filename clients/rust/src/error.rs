//! How a handler ends otherwise than by returning a value, and errors of calls.

use std::any::{Any, type_name};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// What a handler ends with if it does not return a value.
///
/// `?` makes one of every [`std::error::Error`], and keeps its message, those of its causes, the
/// name of its type, and the SQLSTATE if it is one of the database. [`Error::new`] takes texts,
/// boxed errors and those of `anyhow`. Such an error fails the attempt: the job is retried by its
/// policy, unless [`Error::discard`] or [`Error::retry_in`] say otherwise.
///
/// [`snooze`] and [`cancel`] make the other ways to end.
#[derive(Debug)]
pub struct Error(
    /// What becomes of the attempt, as `jobs.finish_many` has it.
    pub(crate) Value,
);

impl Error {
    /// A failure with this message, and `Error` for its type.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of("Error", &*error.into())
    }

    /// Names the type of the failure, which policies know as `non_retryable`; the default is the
    /// name of the error's Rust type.
    pub fn typed(self, name: &str) -> Self {
        self.with("/details/type", storable(name))
    }

    /// The job has failed for good.
    pub fn discard(self) -> Self {
        self.with("/retryable", false)
    }

    /// The next attempt is made after this delay, whatever the job's policy says.
    pub fn retry_in(self, delay: Duration) -> Self {
        self.with("/retry_in", delay.as_secs_f64())
    }

    /// Changes a failure; the other endings have no such members.
    fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        if let Some(member) = self.0.pointer_mut(member) {
            *member = value.into();
        }
        self
    }

    fn of(type_name: &str, error: Cause<'_>) -> Self {
        let (text, type_name) = (storable(&shown(error)), storable(type_name));
        let mut details = BTreeMap::from([("type", type_name.clone())]);
        details.extend(code(error).map(|code| ("code", code)));
        details.extend(trace().map(|trace| ("trace", trace)));
        let text = if text.is_empty() { type_name } else { text };
        Self(json!({
            "do": "fail", "error": text, "details": details, "retryable": true, "retry_in": null,
        }))
    }

    /// What a panic leaves, if it is a text.
    pub(crate) fn panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Self::new(text.unwrap_or("panic")).typed("panic")
    }

    pub(crate) fn timeout() -> Self {
        Self::new("the attempt ran longer than its timeout").typed("timeout")
    }

    /// The attempt does not count, and another worker gets the job.
    pub(crate) fn release() -> Self {
        Self(json!({ "do": "release" }))
    }

    /// Whether it is just an error, as of a handler that gives up because it was cancelled.
    pub(crate) fn is_plain(&self) -> bool {
        let is_of_output = self.0["details"]["type"] == "invalid_output";
        self.0["retryable"] == true && self.0["retry_in"].is_null() && !is_of_output
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::of(type_name::<E>(), &error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0["error"].as_str().or(self.0["reason"].as_str()) {
            Some(text) => f.write_str(text),
            None => write!(f, "{}", self.0),
        }
    }
}

/// The job comes again after this delay; the attempt does not count.
pub fn snooze(delay: Duration) -> Error {
    Error(json!({ "do": "snooze", "delay": delay.as_secs_f64() }))
}

/// The job is cancelled, for this reason.
pub fn cancel(reason: impl AsRef<str>) -> Error {
    Error(json!({ "do": "cancel", "reason": storable(reason.as_ref()) }))
}

/// What calls of this library return.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Why a call of this library has failed.
#[derive(thiserror::Error)]
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
    /// The system refuses it, or a part of the worker has panicked.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// As it is displayed: `main` shows so the error that it returns.
impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
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
