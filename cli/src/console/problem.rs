//! What a page answers when it cannot do what it was asked for.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use super::room::text;
use crate::visible;

/// Why not, in words, and what to do. The frame of the page is put around it by `page::framed`,
/// which finds it in the response's extensions.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    message: Box<str>,
    detail: Option<Box<str>>,
    hint: Option<Box<str>>,
    sqlstate: Option<Box<str>>,
    field: Option<Box<str>>,
    /// After how many seconds it can be tried again.
    pub(crate) retry_after: Option<u16>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            title,
            message: message.into().into(),
            detail: None,
            hint: None,
            sqlstate: None,
            field: None,
            retry_after: None,
        }
    }

    /// `Problem::not_found("job 42")`.
    pub(crate) fn not_found(what: &str) -> Self {
        let message = format!("There is no {what}. It may have been deleted or pruned.");
        Self::new(StatusCode::NOT_FOUND, "Not found", message)
    }

    pub(crate) fn no_page() -> Self {
        let message = "There is no page at this address.";
        Self::new(StatusCode::NOT_FOUND, "Not found", message)
    }

    /// What was typed cannot be.
    pub(crate) fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "That does not work",
            message,
        )
        .hint(hint)
    }

    pub(crate) fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", message).hint(hint)
    }

    /// The connection is there, and nothing comes.
    pub(crate) fn no_answer() -> Self {
        Self {
            retry_after: Some(2),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "No connection to the database",
                "Postgres has not answered in time.",
            )
        }
    }

    /// Others of the same role use all its connections.
    pub(crate) fn busy() -> Self {
        Self {
            retry_after: Some(5),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too much at once",
                "All connections of this role are in use.",
            )
        }
    }

    /// Other roles use all connections of the console.
    pub(crate) fn all_busy(most: usize) -> Self {
        let message = format!("All {most} connections of the console to the database are in use.");
        Self {
            retry_after: Some(5),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "Too much at once", message)
        }
    }

    /// A function or view answers in another form than a page expects. That is a defect, or it is
    /// of another version.
    pub(crate) fn other_form(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "This page is broken",
            message,
        )
        .hint("The console and the extension may be of different versions.")
    }

    pub(crate) fn too_large() -> Self {
        let message = "This page would be larger than 2 MB.";
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "This page is too large",
            message,
        )
        .hint("Narrow the filter, or ask in psql.")
    }

    /// What always has a row had none.
    pub(crate) fn no_row() -> Self {
        Self::other_form("The database answered without a row.")
    }

    pub(crate) fn no_extension(database: &str) -> Self {
        let message = format!("The database {database} does not have the extension jobs.");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "There is no queue here",
            message,
        )
        .hint("A superuser can install it there: CREATE EXTENSION jobs;")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into());
        self
    }

    /// Which field of a form it is about.
    pub(crate) fn about(mut self, field: &str) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Of which field it is, where Postgres cannot read a value. It quotes that, not its name.
    pub(crate) fn about_quoted<'a>(
        self,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let is_quoted = |value: &str| self.message.contains(&format!("\"{value}\""));
        let mut fields = fields.into_iter();
        match fields.find(|(_, value)| !value.is_empty() && is_quoted(value)) {
            Some((name, _)) if self.field.is_none() => self.about(name),
            _ => self,
        }
    }

    pub(crate) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    pub(crate) fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// Whether the database does not let the role in: another password, no such role, no login.
    pub(crate) fn is_refused_role(&self) -> bool {
        self.sqlstate().is_some_and(|code| code.starts_with("28"))
    }

    /// Message, detail and hint, to be shown above a form or on a page of its own.
    pub(crate) fn said(&self) -> Markup {
        // Texts of users are among our words.
        let said = |words: &str| text(&visible::lines(words));
        html! {
            p.problem-message { (said(&self.message)) }
            @if let Some(detail) = &self.detail { p { (said(detail)) } }
            @if let Some(hint) = &self.hint { p.hint { (said(hint)) } }
            @if let Some(code) = &self.sqlstate { p.quiet { "SQLSTATE " code { (code) } } }
        }
    }

    /// In one line, for logs and /healthz.
    pub(crate) fn line(&self) -> String {
        let rest = self.detail.iter().chain(&self.hint);
        rest.fold(self.message.to_string(), |line, more| line + " " + more)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error.as_db_error() {
            Some(refused) => Self::from(refused),
            None if !is_lost(&error) => Self {
                detail: cause(&error),
                ..Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "This page is broken",
                    "The console asked Postgres for something that it cannot send.",
                )
            },
            None => Self {
                retry_after: Some(2),
                detail: cause(&error),
                ..Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "No connection to the database",
                    "Postgres does not answer. It may be starting again.",
                )
            },
        }
    }
}

/// Whether the connection is to blame, and not what was to be sent over it.
fn is_lost(error: &Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(deeper) = cause {
        if deeper.is::<std::io::Error>() {
            return true;
        }
        cause = deeper.source();
    }
    error.is_closed()
}

/// What is behind an error that Postgres did not send.
fn cause(error: &Error) -> Option<Box<str>> {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(cause.to_string().into())
}

impl From<&DbError> for Problem {
    fn from(refused: &DbError) -> Self {
        let code = refused.code().code();
        let (status, title) = of_sqlstate(code);
        let hint = match (refused.hint(), code) {
            (Some(hint), _) => Some(hint),
            (None, "42501") => Some("The role of this console may not do that."),
            (None, "57014") => {
                Some("Narrow the filter, or try again when the server has less to do.")
            }
            (None, "40001" | "40P01" | "55P03") => {
                Some("Look at the present state, and try again.")
            }
            (None, "25006") => Some("This server is a standby, or it is read only."),
            _ => None,
        };
        Self {
            detail: refused.detail().map(Box::from),
            hint: hint.map(Box::from),
            sqlstate: Some(code.into()),
            field: refused.column().map(Box::from),
            retry_after: (status == StatusCode::SERVICE_UNAVAILABLE).then_some(2),
            ..Self::new(status, title, refused.message())
        }
    }
}

fn of_sqlstate(code: &str) -> (StatusCode, &'static str) {
    match code {
        "P0002" => (StatusCode::NOT_FOUND, "Not found"),
        "42501" => (StatusCode::FORBIDDEN, "Not allowed"),
        "40001" | "40P01" | "55P03" => (
            StatusCode::CONFLICT,
            "Somebody else changed it at the same time",
        ),
        "57014" => (StatusCode::GATEWAY_TIMEOUT, "That took too long"),
        _ => match &code[..2] {
            "22" | "23" | "54" | "55" => (StatusCode::UNPROCESSABLE_ENTITY, "That does not work"),
            "08" | "53" | "57" => (
                StatusCode::SERVICE_UNAVAILABLE,
                "No connection to the database",
            ),
            "25" => (StatusCode::CONFLICT, "Nothing can be changed here"),
            "28" | "3D" => (
                StatusCode::FORBIDDEN,
                "The database does not let this role in",
            ),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "The database refused it"),
        },
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        let message = format!("The database answered in another form than expected: {error}");
        Self::other_form(message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.line()).into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}
