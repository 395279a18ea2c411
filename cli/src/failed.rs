//! Why a command fails.

use std::fmt;

use tokio_postgres::error::{DbError, SqlState};

use crate::visible;

/// The exit code and message of a failed command. The message is empty if it was printed already.
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Whether the role lacks a right, so that a grant helps.
    pub(crate) lacks_right: bool,
}

/// An invalid filter, and what to do.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Invalid {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl From<Invalid> for Failed {
    fn from(Invalid { message, hint }: Invalid) -> Self {
        Self { hint: Some(hint), ..Self::new(WRONG, message) }
    }
}

/// The codes that the help lists.
pub(crate) const REFUSED: u8 = 1;
pub(crate) const WRONG: u8 = 2;
pub(crate) const NOT_CONNECTED: u8 = 3;
pub(crate) const NOT_FOUND: u8 = 4;
pub(crate) const NOT_COMPLETED: u8 = 5;

impl Failed {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, lacks_right: false }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible::lines(&self.message))?;
        let hint = self.hint.as_deref().map(visible::line);
        hint.map_or(Ok(()), |hint| write!(f, "\nHINT: {hint}"))
    }
}

impl<E: std::error::Error + 'static> From<E> for Failed {
    /// Adds the messages of its causes that its own does not contain. A message of the database
    /// stands alone.
    fn from(error: E) -> Self {
        let mut failed = Self::new(REFUSED, error.to_string());
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            let message = &mut failed.message;
            if let Some(refused) = error.downcast_ref::<DbError>() {
                *message = visible::line(refused.message()).into();
                let (code, hint) = known(refused.code());
                if let Some(detail) = refused.detail() {
                    *message += &format!("\nDETAIL: {}", visible::line(detail));
                }
                failed.code = code;
                failed.hint = hint.or(refused.hint()).map(Into::into);
                failed.lacks_right = *refused.code() == SqlState::INSUFFICIENT_PRIVILEGE;
            } else if !message.contains(&error.to_string()) {
                *message += &format!(": {error}");
            }
            cause = error.source();
        }
        if failed.message.ends_with("server does not support TLS") {
            failed.code = NOT_CONNECTED;
            failed.hint = Some(NO_TLS.into());
        }
        failed
    }
}

const NO_TLS: &str = "Set sslmode=disable in the URL, the connection string or PGSSLMODE.";

/// The exit code and hint for an error of the database. The program uses only the schema `jobs`.
fn known(code: &SqlState) -> (u8, Option<&'static str>) {
    let (code, hint) = match code.code() {
        "3D000" => (NOT_CONNECTED, "Check the name of the database."),
        "28000" | "28P01" => (NOT_CONNECTED, "Check the user and the password."),
        "3F000" | "42P01" => (REFUSED, NO_EXTENSION),
        "42883" => (REFUSED, OLD_EXTENSION),
        "P0002" => return (NOT_FOUND, None),
        _ => return (REFUSED, None),
    };
    (code, Some(hint))
}

pub(crate) const NO_EXTENSION: &str = "Check the database, or run CREATE EXTENSION jobs in it.";
pub(crate) const OLD_EXTENSION: &str =
    "Run ALTER EXTENSION jobs UPDATE, after installing the program's version on the server.";
