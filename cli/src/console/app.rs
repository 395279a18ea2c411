//! State that all requests share.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use tokio_postgres::Config;

use super::connection::Pool;
use super::http;
use super::live::Live;
use super::login_attempts::Attempts;
use super::login_token::Tokens;
use super::parts;
use super::problem::Problem;
use super::role::Role;
use super::session::Sessions;

/// The options of the console, and its sessions.
pub(crate) struct App {
    pub(super) prefix: String,
    pub(super) is_read_only: bool,
    pub(super) has_login: bool,
    pub(super) is_loopback: bool,
    /// Names that are served without a login.
    pub(super) allowed_hosts: Vec<String>,
    /// The connection, with the role if there is no login.
    pub(super) database: Config,
    /// The role of every visitor without a login.
    pub(super) process: Option<Arc<Role>>,
    pub(super) pool: Arc<Pool>,
    pub(super) sessions: Sessions,
    pub(super) attempts: Attempts,
    pub(super) tokens: Tokens,
    /// The latest health check and its time. One request at a time runs it.
    pub(super) health: tokio::sync::Mutex<Option<(Instant, Result<(), Problem>)>>,
    pub(super) live: Live,
}

impl App {
    /// Whether a request may change nothing. Without a login, a request through a proxy does not
    /// come from this machine.
    pub(super) fn is_read_only(&self, headers: &HeaderMap) -> bool {
        self.is_read_only || !self.has_login && http::is_forwarded(headers)
    }

    /// A path of the console with its prefix.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// The address of the login, which leads on to `next`. `is_refused`: the database no longer
    /// accepts the role.
    pub(super) fn login_url(&self, next: &str, is_refused: bool) -> String {
        let refused = if is_refused { "yes" } else { "" };
        let pairs = [("next", next), ("refused", refused)];
        self.url(&parts::link("/login", pairs))
    }

    pub(super) fn database_name(&self) -> &str {
        self.database.get_dbname().unwrap_or_default()
    }

    /// Sets a cookie that is hidden from scripts and other sites; `more` are other attributes.
    pub(super) fn set_cookie(&self, response: &mut Response, name: &str, value: &str, more: &str) {
        let path = self.url("/");
        let cookie = format!("{name}={value}; Path={path}; HttpOnly; SameSite=Strict{more}");
        let cookie = HeaderValue::try_from(cookie).expect("the prefix has no control characters");
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }

    /// The name of a cookie that authenticates a visitor. With https the prefix of the name makes
    /// the browser accept it only from https and, without a path prefix, only from this host.
    pub(super) fn secret_name(&self, is_https: bool, name: &str) -> String {
        match (is_https, &*self.prefix) {
            (false, _) => name.into(),
            (true, "") => format!("__Host-{name}"),
            (true, _) => format!("__Secure-{name}"),
        }
    }

    /// Sets a cookie that authenticates a visitor.
    pub(super) fn set_secret(
        &self,
        response: &mut Response,
        is_https: bool,
        name: &str,
        value: &str,
        more: &str,
    ) {
        let name = self.secret_name(is_https, name);
        let secure = if is_https { "; Secure" } else { "" };
        self.set_cookie(response, &name, value, &format!("{secure}{more}"));
    }
}
