//! The ways a handler ends other than by returning a value, and the errors of calls.

use std::any::{Any, type_name};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The result of a handler: an output, which is JSON, or an error.
pub(crate) type Ended = Result<Box<RawValue>, Error>;

/// How a handler ends if it does not return a value.
///
/// `?` converts every [`std::error::Error`], and keeps its message, those of its causes, the name
/// of its type, and the SQLSTATE of a database error. [`Error::new`] takes texts, boxed errors and
/// `anyhow` errors. Such an error fails the attempt: the job is retried by its policy, unless
/// [`Error::discard`] or [`Error::retry_in`] is called.
///
/// [`snooze`] and [`cancel`] are the other ways to end.
#[derive(Clone, Debug)]
pub struct Error(
    /// Members of an element of `jobs.finish_many`.
    pub(crate) Value,
);

impl Error {
    /// A failure with this message and type `Error`.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of("Error", &*error.into())
    }

    /// Sets the type of the failure, for `non_retryable` in retry policies. Default: the name of
    /// the error's Rust type.
    pub fn typed(self, name: &str) -> Self {
        self.with("/details/type", storable(name))
    }

    /// Discards the job.
    pub fn discard(self) -> Self {
        self.with("/retryable", false)
    }

    /// Retries the job after this delay, whatever its retry policy.
    pub fn retry_in(self, delay: Duration) -> Self {
        self.with("/retry_in", delay.min(LONGEST_DURATION).as_secs_f64())
    }

    /// What the database keeps in `details`: `type`, and `code` and `trace` if there are any.
    pub fn details(&self) -> &Value {
        &self.0["details"]
    }

    /// Changes a failure. The other endings have no such members.
    fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        if let Some(member) = self.0.pointer_mut(member) {
            *member = value.into();
        }
        self
    }

    fn of(type_name: &str, error: Cause<'_>) -> Self {
        let (text, type_name) = (storable(&shown(error)), storable(type_name));
        let mut details = json!({ "type": type_name, "code": code(error), "trace": trace() });
        details.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        let text = if text.is_empty() { type_name } else { text };
        Self(json!({
            "do": "fail", "error": text, "details": details, "retryable": true, "retry_in": null,
        }))
    }

    /// The failure for a panic, with its payload if that is a text.
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

    pub(crate) fn is_release(&self) -> bool {
        self.0["do"] == "release"
    }

    /// Whether it is a plain error, as from a handler that stops because it was cancelled.
    pub(crate) fn is_plain(&self) -> bool {
        let is_of_output = self.details()["type"] == "invalid_output";
        self.0["retryable"] == true && self.0["retry_in"].is_null() && !is_of_output
    }
}

/// Turns a panic into an error.
pub(crate) async fn safe<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(Error::panic(panic)))
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

/// Schedules the job again after this delay. The attempt does not count.
pub fn snooze(delay: Duration) -> Error {
    Error(json!({ "do": "snooze", "delay": delay.min(LONGEST_DURATION).as_secs_f64() }))
}

/// Cancels the job with this reason.
pub fn cancel(reason: impl AsRef<str>) -> Error {
    Error(json!({ "do": "cancel", "reason": storable(reason.as_ref()) }))
}

/// The result of calls of this library.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// The error of a call of this library.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The database refused the call, or there is no connection.
    #[error("{}", shown(.0))]
    Database(#[from] tokio_postgres::Error),
    /// sqlx refused the call, or has no connection.
    #[cfg(feature = "sqlx")]
    #[error("{}", shown(.0))]
    Sqlx(#[from] sqlx::Error),
    /// A value has no JSON form, or JSON has another type than expected.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// An option is invalid.
    #[error("{0}")]
    Option(String),
    /// This many results were lost. Their jobs run again once their leases expire.
    #[error("results could not be sent: {0}")]
    Unsent(usize),
    /// Another of these errors, and what to do about it.
    #[error("{error}\nHINT: {hint}")]
    Hinted {
        /// The error.
        #[source]
        error: Box<ClientError>,
        /// What to do about it.
        hint: String,
    },
    /// The extension is missing, or older than this library needs.
    #[error("{0}")]
    Extension(String),
    /// The system refused the call, or a part of the worker panicked.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// As `Display`, since `main` prints the `Debug` form of the error that it returns.
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
        self.code().is_some_and(|code| codes.iter().any(|class| code.starts_with(class)))
    }

    pub(crate) fn has_hint(&self) -> bool {
        matches!(self, Self::Hinted { .. })
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self::Hinted { error: self.into(), hint: hint.into() }
    }

    /// Adds a hint, if the database or the role lacks what the call needs. `grant` is the call that
    /// would grant the rights.
    pub(crate) fn hinted(self, grant: &str) -> Self {
        let text = self.to_string();
        let has = |part| text.contains(part);
        let hint = match self.code().as_deref() {
            Some("3D000") => "Check the database in the URL.",
            Some("28000" | "28P01") => CHECK_USER,
            Some("3F000" | "42P01") => CREATE_EXTENSION,
            Some("42883") => {
                "Run ALTER EXTENSION jobs UPDATE, after installing the version that the library \
                 needs on the server."
            }
            Some("42501") => &format!("Ask an administrator to run SELECT jobs.{grant}."),
            None if has("password missing") => CHECK_USER,
            None if has("invalid configuration") => "Check the hosts and the ports in the URL.",
            // Not a failure of DNS itself, as glibc and musl call it.
            None if has("Name or service not known") || has("Name does not resolve") => {
                "Check the host in the URL."
            }
            None if has("server does not support TLS") => "Add ?sslmode=disable to the URL.",
            None if has("no TLS implementation") => "Enable the feature tls of postgres-jobs.",
            _ => return self,
        };
        self.with_hint(hint)
    }
}

pub(crate) const CREATE_EXTENSION: &str = "Check the database, or run CREATE EXTENSION jobs in it.";
const CHECK_USER: &str = "Check the user and the password in the URL.";

/// The longest duration in the database: 1000 years of 360 days.
pub(crate) const LONGEST_DURATION: Duration = Duration::from_secs(1000 * 360 * 86_400);

/// The maximum length of a stored text, in characters.
const LONGEST: usize = 10_000;

/// A text that the database can store: cut, and without NUL.
fn storable(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

/// The stack at `?` or `new`, if RUST_BACKTRACE is set. Its end is kept.
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

/// The message of an error, and those of its causes that it does not contain.
fn shown(error: Cause<'_>) -> String {
    causes(error).map(ToString::to_string).fold(String::new(), |text, cause| match &*text {
        "" => cause,
        text if text.contains(&cause) => text.into(),
        text => format!("{text}: {cause}"),
    })
}

/// The SQLSTATE of an error or of one of its causes.
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
