//! Why a command fails.

use tokio_postgres::error::{DbError, SqlState};

use crate::visible;

/// The exit code and message of a failed command. The message is empty if it was printed already.
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) message: String,
}

/// The codes that the help lists.
pub(crate) const REFUSED: u8 = 1;
pub(crate) const WRONG: u8 = 2;
pub(crate) const NOT_CONNECTED: u8 = 3;
pub(crate) const NOT_FOUND: u8 = 4;
pub(crate) const NOT_COMPLETED: u8 = 5;

impl Failed {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for Failed {
    /// Adds the messages of its causes that its own does not contain. A message of the database
    /// stands alone.
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref::<DbError>() {
                message = visible::line(refused.message()).into();
                let hint = refused.hint().or_else(|| no_extension(refused));
                let more = [("DETAIL", refused.detail()), ("HINT", hint)];
                for (name, text) in more
                    .into_iter()
                    .filter_map(|(name, text)| Some((name, text?)))
                {
                    message += &format!("\n{name}: {}", visible::line(text));
                }
            } else if !message.contains(&error.to_string()) {
                message += &format!(": {error}");
            }
            cause = error.source();
        }
        Self::new(REFUSED, message)
    }
}

/// The program uses only the schema `jobs`.
fn no_extension(refused: &DbError) -> Option<&'static str> {
    let lacking = [&SqlState::INVALID_SCHEMA_NAME, &SqlState::UNDEFINED_TABLE];
    let hint = "Check the database, or run CREATE EXTENSION jobs in it.";
    lacking.contains(&refused.code()).then_some(hint)
}
