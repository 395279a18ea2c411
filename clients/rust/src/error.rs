//! How a handler ends otherwise than by returning a value, and errors of calls.

use std::any::type_name;
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
pub struct Error {
    text: String,
    details: Details,
    end: End,
}

/// What the database keeps of an error besides its text.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Details {
    #[serde(rename = "type")]
    type_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

#[derive(Debug, PartialEq)]
enum End {
    Fail,
    RetryIn(Duration),
    Discard,
    Snooze(Duration),
    Cancel,
}

impl Error {
    /// A failure with this message, and `Error` for its type.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of("Error", &*error.into())
    }

    /// Names the type of the failure, which policies know as `non_retryable`; the default is the
    /// name of the error's Rust type.
    pub fn typed(mut self, type_name: &str) -> Self {
        self.details.type_name = storable(type_name);
        self
    }

    /// No further attempt is made.
    pub fn discard(self) -> Self {
        Self {
            end: End::Discard,
            ..self
        }
    }

    /// The next attempt is made after this delay, whatever the job's policy says.
    pub fn retry_in(self, delay: Duration) -> Self {
        Self {
            end: End::RetryIn(delay),
            ..self
        }
    }

    fn of(type_name: &str, error: &(dyn StdError + 'static)) -> Self {
        let (text, code) = describe(error);
        let causes = causes(error)
            .skip(1)
            .map(|cause| format!("caused by: {cause}\n"));
        let mut trace: String = causes.collect();
        // It is the stack of where `?` or `new` stands, if RUST_BACKTRACE asks for it.
        let stack = Backtrace::capture();
        if stack.status() == BacktraceStatus::Captured {
            trace.insert_str(0, &stack.to_string());
        }
        let is_long = trace.char_indices().nth_back(LONGEST - 1);
        let trace = storable(&trace[is_long.map_or(0, |(at, _)| at)..]);
        Self {
            text: storable(&text),
            details: Details {
                type_name: storable(type_name),
                code,
                trace: Some(trace).filter(|trace| !trace.is_empty()),
            },
            end: End::Fail,
        }
    }

    fn ending(end: End, text: &str) -> Self {
        Self {
            text: storable(text),
            details: Details::default(),
            end,
        }
    }

    /// What a panic leaves, if it is a text.
    pub(crate) fn panic(payload: Box<dyn std::any::Any + Send>) -> Self {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or(payload.downcast_ref::<&str>().copied());
        Self::new(text.unwrap_or_default()).typed("panic")
    }

    /// The name of its type.
    pub fn type_name(&self) -> &str {
        &self.details.type_name
    }

    /// Whether it is just an error, as of a handler that gives up because it was cancelled.
    pub(crate) fn is_plain(&self) -> bool {
        self.end == End::Fail
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::of(type_name::<E>(), &error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The job comes again after this delay; the attempt does not count.
pub fn snooze(delay: Duration) -> Error {
    Error::ending(End::Snooze(delay), "snoozed")
}

/// The job is cancelled, for this reason.
pub fn cancel(reason: impl AsRef<str>) -> Error {
    Error::ending(End::Cancel, reason.as_ref())
}

/// The job has failed for good.
pub fn discard(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::new(error).discard()
}

/// The attempt has failed, and the next one is made after this delay.
pub fn retry_in(delay: Duration, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::new(error).retry_in(delay)
}

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

impl From<Result<Box<RawValue>, Error>> for Ending {
    fn from(result: Result<Box<RawValue>, Error>) -> Self {
        // A handler that returns nothing has no output.

        result.map_or_else(Self::from, |output| Self::Complete {
            output: Some(output).filter(|output| output.get() != "null"),
        })
    }
}

impl From<Error> for Ending {
    fn from(Error { text, details, end }: Error) -> Self {
        match end {
            End::Snooze(delay) => Self::Snooze {
                delay: delay.as_secs_f64(),
            },
            End::Cancel => Self::Cancel { reason: text },
            _ => Self::Fail {
                error: if text.is_empty() {
                    details.type_name.clone()
                } else {
                    text
                },
                details,
                retryable: end != End::Discard,
                retry_in: match end {
                    End::RetryIn(delay) => Some(delay.as_secs_f64()),
                    _ => None,
                },
            },
        }
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

    pub(crate) fn new(error: impl StdError + Send + Sync + 'static) -> Self {
        let (message, code) = describe(&error);
        Self {
            message,
            code,
            source: Some(Box::new(error)),
        }
    }

    pub(crate) fn text(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            source: None,
        }
    }

    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        self.code()
            .is_some_and(|code| codes.iter().any(|class| code.starts_with(class)))
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

/// The most characters that are kept of a text.
const LONGEST: usize = 10_000;

/// A text as the database can hold it: without NUL, and not endless.
fn storable(text: &str) -> String {
    text.chars()
        .take(LONGEST)
        .map(|c| {
            if c == '\0' {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The message of an error, and the SQLSTATE that it or one of its causes has.
fn describe(error: &(dyn StdError + 'static)) -> (String, Option<String>) {
    let refusal = causes(error).find_map(|cause| {
        #[cfg(feature = "sqlx")]
        if let Some(refusal) = cause
            .downcast_ref()
            .and_then(sqlx::Error::as_database_error)
        {
            return Some((refusal.message().to_owned(), refusal.code()?.into_owned()));
        }
        let refusal = cause.downcast_ref::<tokio_postgres::error::DbError>()?;
        Some((
            refusal.message().to_owned(),
            refusal.code().code().to_owned(),
        ))
    });
    // Its own message says no more than that there is a cause.
    let is_bare = error.is::<tokio_postgres::Error>();
    #[cfg(feature = "sqlx")]
    let is_bare = is_bare || matches!(error.downcast_ref(), Some(sqlx::Error::Database(_)));
    match refusal {
        Some((message, code)) if is_bare => (message, Some(code)),
        refusal => {
            let cause = error
                .source()
                .filter(|_| is_bare)
                .map(|cause| format!(": {cause}"));
            (
                error.to_string() + &cause.unwrap_or_default(),
                refusal.map(|(_, code)| code),
            )
        }
    }
}
