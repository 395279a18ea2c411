//! The answer to a request that failed.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use super::room::text;
use crate::failed::Invalid;
use crate::times::duration_text;
use crate::visible;

/// Says why a request failed and what to do. `page::framed` finds it in the response's extensions
/// and puts the frame of the page around it.
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

impl From<Invalid> for Problem {
    fn from(Invalid { message, hint }: Invalid) -> Self {
        Self::bad_input(message, hint)
    }
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

    /// `Problem::not_found("Job 42")`.
    pub(crate) fn not_found(what: &str) -> Self {
        let message = format!("{what} does not exist. It may have been deleted or pruned.");
        Self::new(StatusCode::NOT_FOUND, "Not found", message)
    }

    pub(crate) fn no_page() -> Self {
        let message = "There is no page at this address.";
        Self::new(StatusCode::NOT_FOUND, "Not found", message)
    }

    /// An invalid value in a form or an address.
    pub(crate) fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Request rejected", message).hint(hint)
    }

    pub(crate) fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", message).hint(hint)
    }

    /// The role does not see a payload column.
    pub(crate) fn no_payload(name: &str) -> Self {
        let message = format!("Your role may not see the {name} of jobs.");
        Self::forbidden(message, "It needs SELECT on jobs.job.")
    }

    /// What may be there again after so many seconds.
    fn unavailable(retry_after: u16, title: &'static str, message: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, title, message);
        Self { retry_after: Some(retry_after), ..problem }
    }

    /// The server is silent.
    pub(crate) fn no_answer() -> Self {
        Self::unavailable(2, "Database unavailable", "Postgres did not answer in time.")
    }

    pub(crate) fn too_many_attempts(wait: u16) -> Self {
        let wait_text = duration_text(wait.into());
        let message = format!("Too many failed attempts. Try again in {wait_text}.");
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self { retry_after: Some(wait), ..Self::new(status, "Too many attempts", message) }
    }

    /// All connections of the role are in use.
    pub(crate) fn busy() -> Self {
        Self::unavailable(5, "Console busy", "All connections of this role are in use.")
    }

    /// All connections of the console are in use.
    pub(crate) fn all_busy(most: usize) -> Self {
        let message = format!("All {most} database connections of the console are in use.");
        Self::unavailable(5, "Console busy", message)
    }

    /// A function or view returns other columns than a page expects: a defect, or another version.
    pub(crate) fn other_form(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", message)
            .hint("Check that the console and the extension have the same version.")
    }

    pub(crate) fn too_large() -> Self {
        let message = "This page would be larger than 2 MB.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Page too large", message)
            .hint("Narrow the filter, or use psql.")
    }

    pub(crate) fn standby() -> Self {
        let message = "Nothing can be changed on a standby.";
        Self::new(StatusCode::CONFLICT, "Database read-only", message)
            .hint("Connect the console to the primary.")
    }

    /// A query that always returns a row returned none.
    pub(crate) fn no_row() -> Self {
        Self::other_form("The database returned no row.")
    }

    pub(crate) fn no_extension(database: &str) -> Self {
        let message = format!("The extension jobs is not installed in the database {database}.");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Extension not installed", message)
            .hint("Ask a superuser to run CREATE EXTENSION jobs;")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into());
        self
    }

    /// Names the field of the form that the problem is about.
    pub(crate) fn about(mut self, field: &str) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Finds the field whose value Postgres could not read. Its error quotes the value alone.
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

    /// Whether the database refuses the role: wrong password, no such role, NOLOGIN.
    pub(crate) fn is_refused_role(&self) -> bool {
        self.sqlstate().is_some_and(|code| code.starts_with("28"))
    }

    /// Message, detail and hint, above a form or on a page of their own.
    pub(crate) fn said(&self) -> Markup {
        // Messages can quote texts of users.
        let said = |words: &str| text(&visible::lines(words));
        html! {
            p.problem-message { (said(&self.message)) }
            @if let Some(detail) = &self.detail { p { (said(detail)) } }
            @if let Some(hint) = &self.hint { p.hint { (said(hint)) } }
            @if let Some(code) = &self.sqlstate { p.quiet { "SQLSTATE " code { (code) } } }
        }
    }

    /// One line, for logs and /healthz.
    pub(crate) fn line(&self) -> String {
        let rest = self.detail.iter().chain(&self.hint);
        rest.fold(self.message.to_string(), |line, more| line + " " + more)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error.as_db_error() {
            Some(refused) => Self::from(refused),
            None if !is_lost(&error) => {
                let message = "The console could not encode its query for Postgres.";
                let problem =
                    Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", message);
                Self { detail: cause(&error), ..problem }
            }
            None => {
                let message = "Postgres is not answering. It may be restarting.";
                let problem = Self::unavailable(2, "Database unavailable", message);
                Self { detail: cause(&error), ..problem }
            }
        }
    }
}

/// Whether the connection failed, and not the encoding of the statement.
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

/// The root cause of an error that Postgres did not send.
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
            (None, "42501") => Some("This role lacks the required privilege."),
            (None, "57014") => {
                Some("Narrow the filter, or try again when the server is less busy.")
            }
            (None, "40001" | "40P01" | "55P03") => Some("Reload the page and try again."),
            (None, "25006") => Some("The server is a standby or read-only."),
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
        "40001" | "40P01" | "55P03" => (StatusCode::CONFLICT, "Conflicting change"),
        "57014" => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
        _ => match &code[..2] {
            "22" | "23" | "54" | "55" => (StatusCode::UNPROCESSABLE_ENTITY, "Request rejected"),
            "08" | "3D" | "53" | "57" => (StatusCode::SERVICE_UNAVAILABLE, "Database unavailable"),
            "25" => (StatusCode::CONFLICT, "Database read-only"),
            "28" => (StatusCode::FORBIDDEN, "Login refused"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "Database error"),
        },
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        let message = format!("Unexpected answer from the database: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_role_is_refused_a_login() {
        assert_eq!(of_sqlstate("28P01").1, "Login refused");
        assert_eq!(of_sqlstate("3D000"), (StatusCode::SERVICE_UNAVAILABLE, "Database unavailable"));
    }
}
