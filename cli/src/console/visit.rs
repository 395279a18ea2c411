//! The argument of every handler: the session, and the privileges of its role.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny};

use super::app::{App, Cells, cells};
use super::http::{self, is_fragment, see_other};
use super::problem::Problem;
use super::role::{Parameters, Reading, Rights, Role, SHARED};
use super::session::Session;
use super::theme::Theme;
use crate::standby::Standby;
use crate::visible;

/// How long a query of a page may take.
const PAGE: Duration = Duration::from_secs(5);

pub(crate) struct Visit {
    pub(crate) app: Arc<App>,
    pub(crate) cells: Cells,
    pub(crate) role: Arc<Role>,
    pub(crate) session: Arc<Session>,
    /// Whether htmx asks for a part of the page, to refresh it.
    pub(crate) is_fragment: bool,
    pub(crate) is_read_only: bool,
    pub(crate) theme: Option<Theme>,
    /// Path and query, without the prefix; none of a page that answers a form.
    pub(crate) path: Option<String>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) standby: Option<Standby>,
}

impl Visit {
    /// A path of the console with its prefix: `visit.url("/jobs?state=running")`.
    pub(crate) fn url(&self, path: &str) -> String {
        self.app.url(path)
    }

    /// Whether an action is offered: the role may execute `jobs.FUNCTION`, and neither the console
    /// nor the database is read-only.
    pub(crate) fn may(&self, function: &str) -> bool {
        !self.is_read_only && self.standby.is_none() && self.executes(function)
    }

    /// Whether the role may execute `jobs.FUNCTION`, which only reads.
    pub(crate) fn executes(&self, function: &str) -> bool {
        self.rights.functions.contains(function)
    }

    /// Whether the role sees args, meta, progress and output.
    pub(crate) fn sees_payload(&self) -> bool {
        self.rights.sees_payload
    }

    /// Rows of a query, each read from its `to_jsonb`. Intervals are selected as seconds, JSON
    /// that is shown as text.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<Vec<T>, Problem> {
        self.read(Reading::within(PAGE), sql, of).await
    }

    /// Rows of a query that may take longer than those of a page, or is planned in another way.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        reading: Reading,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<Vec<T>, Problem> {
        let rows = match self.is_fragment {
            true => self.role.shared_rows(sql, of, reading, SHARED).await?,
            false => self.role.rows(sql, of, reading).await?.into(),
        };
        parsed(&rows)
    }

    /// Rows of an expensive query, shared by the role for this long.
    pub(crate) async fn rows_kept<T: DeserializeOwned>(
        &self,
        kept: Duration,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<Vec<T>, Problem> {
        let reading = Reading::within(PAGE);
        parsed(&self.role.shared_rows(sql, of, reading, kept).await?)
    }

    /// The first row, if any.
    pub(crate) async fn row<T: DeserializeOwned>(
        &self,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<Option<T>, Problem> {
        Ok(self.rows(sql, of).await?.into_iter().next())
    }

    /// The row of a query that always has one.
    pub(crate) async fn one<T: DeserializeOwned>(
        &self,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<T, Problem> {
        self.row(sql, of).await?.ok_or_else(Problem::no_row)
    }

    /// A part of a page that is refreshed by itself, from the page at this path.
    pub(crate) fn live(&self, id: &str, path: &str, part: Markup) -> Markup {
        html! {
            div id=(id) hx-get=(self.url(path)) hx-select={ "#" (id) } hx-target="this"
                hx-swap="morph:outerHTML" hx-trigger="refresh from:body" { (part) }
        }
    }

    /// A form that POSTs to the path, with the CSRF token.
    pub(crate) fn form(&self, path: &str, fields: Markup) -> Markup {
        html! {
            form method="post" action=(self.url(path)) {
                input type="hidden" name="csrf" value=(self.session.csrf);
                (fields)
            }
        }
    }
}

impl FromRequestParts<Arc<App>> for Visit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Some((session, role)) = who(parts) else {
            return Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "Not logged in",
                "Log in with a database role.",
            ));
        };
        let rights = looks(&role).await?;
        let standby = match rights.is_standby {
            // It may have been promoted since.
            true => role.standby().await?,
            false => None,
        };
        Ok(Self { standby, ..Self::new(parts, app, session, role, rights) })
    }
}

/// A row of one column.
pub(crate) struct Only<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Only<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let columns = HashMap::<String, T>::deserialize(deserializer)?;
        let value = columns.into_values().next().map(Self);
        value.ok_or_else(|| D::Error::custom("a row without a column"))
    }
}

pub(crate) fn parsed<T: DeserializeOwned>(rows: &[String]) -> Result<Vec<T>, Problem> {
    let parse = |row: &String| Ok(serde_json::from_str(row)?);
    rows.iter().map(parse).collect()
}

/// The session and role of a request.
fn who(parts: &Parts) -> Option<(Arc<Session>, Arc<Role>)> {
    let session = parts.extensions.get::<Arc<Session>>()?.clone();
    let role = session.role.clone();
    Some((session, role))
}

impl Visit {
    fn new(
        parts: &Parts,
        app: &Arc<App>,
        session: Arc<Session>,
        role: Arc<Role>,
        rights: Arc<Rights>,
    ) -> Self {
        let path = parts.uri.path_and_query();
        let path = path.filter(|_| parts.method == Method::GET);
        Self {
            app: app.clone(),
            cells: cells(&parts.extensions),
            role,
            session,
            is_fragment: is_fragment(&parts.headers),
            is_read_only: app.is_read_only(&parts.headers),
            theme: Theme::of(&parts.headers),
            path: path.map(|path| path.as_str().into()),
            rights,
            standby: None,
        }
    }

    /// A visit with cached privileges, without a query: the database may be the problem.
    pub(crate) fn known(parts: &Parts, app: &Arc<App>) -> Option<Self> {
        let (session, role) = who(parts)?;
        let rights = role.known_rights()?;
        Some(Self::new(parts, app, session, role, rights))
    }
}

/// The privileges of a role that may view the queue.
pub(crate) async fn looks(role: &Role) -> Result<Arc<Rights>, Problem> {
    let rights = role.rights().await?;
    match rights.looks {
        _ if rights.version.is_none() => Err(Problem::no_extension(&rights.database)),
        true => Ok(rights),
        false => Err(needs_a_grant(&rights.role)),
    }
}

/// For a role that may not view the queue, such as a producer.
fn needs_a_grant(role: &str) -> Problem {
    let role = role.replace('\'', "''");
    Problem::forbidden(
        "This role may not view the queue.",
        format!(
            "Ask the extension's owner to run SELECT jobs.grant_viewer('{role}'); \
             jobs.grant_operator and jobs.grant_admin allow more."
        ),
    )
}

/// The query of a URL.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let read = serde_urlencoded::from_str(query).map_err(|error| {
            let message = format!("Invalid value in the address: {error}");
            Problem::bad_input(message, "Go back and choose another value.")
        });
        read.map(Self)
    }
}

/// The parameters in the path of a URL. Invalid ones mean that the page does not exist.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Sync + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|_| Problem::no_page())
    }
}

/// Reads an empty field as none. For `#[serde(default, deserialize_with = "optional")]`.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(|error| D::Error::custom(format!("{text:?}: {error}"))))
        .transpose()
}

/// The visit and the form of a POST. Without a valid CSRF token it is refused.
pub(crate) struct Change<T> {
    pub(crate) visit: Visit,
    pub(crate) form: T,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Change<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut parts, app).await?;
        let form = http::form(Request::from_parts(parts, body), &visit.session.csrf).await?;
        Ok(Self { visit, form })
    }
}

impl<T> Change<T> {
    /// Runs a call as the role in its own transaction, and returns its result.
    pub(crate) async fn call<R: DeserializeOwned>(
        &self,
        sql: &str,
        of: Parameters<'_>,
    ) -> Result<R, Problem> {
        if self.visit.is_read_only {
            return Err(Problem::forbidden(
                "This console is read-only.",
                "It was started with --read-only, or without --login on an address that others \
                 can reach.",
            ));
        }
        if self.visit.standby.is_some() {
            return Err(Problem::standby());
        }
        let row = self.visit.role.call(sql, of).await?;
        self.visit.app.live.changed();
        Ok(serde_json::from_str(&row.ok_or_else(Problem::no_row)?)?)
    }

    /// Runs a call without a result.
    pub(crate) async fn run(&self, sql: &str, of: Parameters<'_>) -> Result<(), Problem> {
        self.call::<IgnoredAny>(sql, of).await.map(drop)
    }

    /// Redirects to a page of the console, which shows the message once.
    pub(crate) fn done(&self, path: &str, message: impl Into<String>) -> Response {
        let message: String = message.into();
        self.visit.session.say(visible::line(&message).into());
        see_other(&self.visit.url(path))
    }
}
