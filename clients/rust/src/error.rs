//! How a handler ends otherwise than by returning a value, and errors of calls.

use std::any::{Any, type_name};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

/// What a handler ends with if it does not return a value.
///
/// `?` makes one of every [`std::error::Error`], and keeps its message, the name of its type, its
/// causes, and the SQLSTATE if it is one of the database. [`Error::new`] takes texts, boxed errors
/// and those of `anyhow`. Such an error fails the attempt: the job is retried by its policy.
///
/// [`snooze`], [`cancel`], [`discard`] and [`retry_in`] make the other ways to end.
#[derive(Debug)]
pub struct Error(Ending);

/// What becomes of an attempt, as `jobs.finish_many` has it.
#[derive(Debug, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Ending {
    Complete {
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<Box<RawValue>>,
    },
    Fail {
        error: String,
        details: Details,
        retryable: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_in: Option<f64>,
    },
    Snooze {
        delay: f64,
    },
    Cancel {
        reason: String,
    },
    Release {},
}

/// What the database keeps of an error besides its text.
#[derive(Debug, Serialize)]
pub(crate) struct Details {
    #[serde(rename = "type")]
    type_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl Error {
    /// A failure with this message, and `Error` for its type.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of("Error", &*error.into())
    }

    /// Names the type of the failure, which policies know as `non_retryable`; the default is the
    /// name of the error's Rust type.
    pub fn typed(mut self, name: &str) -> Self {
        if let Ending::Fail { details, .. } = &mut self.0 {
            details.type_name = storable(name);
        }
        self
    }

    /// No further attempt is made.
    pub fn discard(mut self) -> Self {
        if let Ending::Fail { retryable, .. } = &mut self.0 {
            *retryable = false;
        }
        self
    }

    /// The next attempt is made after this delay, whatever the job's policy says.
    pub fn retry_in(mut self, delay: Duration) -> Self {
        if let Ending::Fail { retry_in, .. } = &mut self.0 {
            *retry_in = Some(delay.as_secs_f64());
        }
        self
    }

    /// The name of its type, if it is a failure.
    pub fn type_name(&self) -> Option<&str> {
        match &self.0 {
            Ending::Fail { details, .. } => Some(&details.type_name),
            _ => None,
        }
    }

    fn of(type_name: &str, error: &(dyn StdError + 'static)) -> Self {
        let (text, code) = describe(error);
        let mut trace = String::new();
        // It is the stack of where `?` or `new` stands, if RUST_BACKTRACE asks for it.
        let stack = Backtrace::capture();
        if stack.status() == BacktraceStatus::Captured {
            trace = stack.to_string();
        }
        for cause in causes(error).skip(1) {
            trace += &format!("caused by: {cause}\n");
        }
        let is_longer = trace.char_indices().nth_back(LONGEST - 1);
        let trace = storable(&trace[is_longer.map_or(0, |(at, _)| at)..]);
        let trace = Some(trace).filter(|trace| !trace.is_empty());
        let type_name = storable(type_name);
        Self(Ending::Fail {
            error: storable(if text.is_empty() { &type_name } else { &text }),
            details: Details {
                type_name,
                code,
                trace,
            },
            retryable: true,
            retry_in: None,
        })
    }

    /// What a panic leaves, if it is a text.
    pub(crate) fn panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        Self::new(text.unwrap_or("panic")).typed("panic")
    }

    /// Whether it is just an error, as of a handler that gives up because it was cancelled.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            self.0,
            Ending::Fail {
                retryable: true,
                retry_in: None,
                ..
            }
        )
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
            Ending::Fail { error, .. } => f.write_str(error),
            Ending::Cancel { reason } => f.write_str(reason),
            Ending::Snooze { delay } => write!(f, "snoozed for {delay} s"),
            Ending::Complete { .. } | Ending::Release {} => Ok(()),
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

/// The job has failed for good.
pub fn discard(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::new(error).discard()
}

/// The attempt has failed, and the next one is made after this delay.
pub fn retry_in(delay: Duration, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::new(error).retry_in(delay)
}

impl From<Result<Box<RawValue>, Error>> for Ending {
    fn from(result: Result<Box<RawValue>, Error>) -> Self {
        // A handler that returns nothing has no output.
        let output = |value: Box<RawValue>| Some(value).filter(|value| value.get() != "null");
        result.map_or_else(Self::from, |value| Self::Complete {
            output: output(value),
        })
    }
}

impl From<Error> for Ending {
    fn from(error: Error) -> Self {
        error.0
    }
}

/// Why a call of this library has failed: the database refused it, there is no connection, or a
/// value has no JSON.
#[derive(Debug)]
pub struct ClientError {
    message: String,
    code: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ClientError {
    /// The SQLSTATE, if the database refused the call.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    pub(crate) fn text(message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            message,
            code: None,
            source: None,
        }
    }

    /// Whether its SQLSTATE begins with one of these.
    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        let has = |code: &str| codes.iter().any(|class| code.starts_with(class));
        self.code().is_some_and(has)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ClientError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

macro_rules! client_error_of {
    ($error:ty) => {
        impl From<$error> for ClientError {
            fn from(error: $error) -> Self {
                let (message, code) = describe(&error);
                let source = Some(error.into());
                Self {
                    message,
                    code,
                    source,
                }
            }
        }
    };
}
client_error_of!(serde_json::Error);
client_error_of!(std::io::Error);
client_error_of!(tokio::task::JoinError);
client_error_of!(tokio_postgres::Error);
#[cfg(feature = "sqlx")]
client_error_of!(sqlx::Error);

/// The most characters that are kept of a text.
const LONGEST: usize = 10_000;

/// A text as the database can hold it: without NUL, and not endless.
fn storable(text: &str) -> String {
    let text: String = text.chars().take(LONGEST).collect();
    text.replace('\0', "\u{fffd}")
}

type Cause<'a> = &'a (dyn StdError + 'static);

fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What the database says, if this is one of its errors: message and SQLSTATE.
fn refusal(error: Cause<'_>) -> Option<(String, String)> {
    #[cfg(feature = "sqlx")]
    if let Some(error) = error
        .downcast_ref()
        .and_then(sqlx::Error::as_database_error)
    {
        return Some((error.message().into(), error.code()?.into()));
    }
    let error = error.downcast_ref::<tokio_postgres::error::DbError>()?;
    Some((error.message().into(), error.code().code().into()))
}

/// The message of an error, and the SQLSTATE that it or one of its causes has.
fn describe(error: Cause<'_>) -> (String, Option<String>) {
    let (message, code) = causes(error).find_map(refusal).unzip();
    // Its own message says no more than that there is a cause.
    let is_bare = error.is::<tokio_postgres::Error>();
    #[cfg(feature = "sqlx")]
    let is_bare = is_bare || matches!(error.downcast_ref(), Some(sqlx::Error::Database(_)));
    let text = match (is_bare, message, error.source()) {
        (true, Some(message), _) => message,
        (true, None, Some(cause)) => format!("{error}: {cause}"),
        _ => error.to_string(),
    };
    (text, code)
}
