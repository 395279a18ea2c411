//! State that all requests share.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{Extensions, HeaderMap, HeaderValue, header};
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

/// The databases of a console, in the order of its options.
pub(crate) type Cells = Arc<[Arc<App>]>;

/// Those of a request.
pub(crate) fn cells(extensions: &Extensions) -> Cells {
    extensions.get::<Cells>().expect("the router adds them").clone()
}

/// What all of them return, in their order.
pub(crate) async fn together<T: Send + 'static>(
    all: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let all: Vec<_> = all.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::new();
    for one in all {
        results.push(one.await.expect("it does not panic"));
    }
    results
}

/// The options of the console for a database, and its sessions there.
pub(crate) struct App {
    /// The path of the console.
    pub(super) root: String,
    /// The path of the pages of this database: that of the console if it is the only one.
    pub(super) prefix: String,
    /// Where the database is, for people.
    pub(crate) address: String,
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

    /// The overview: of all cells, if there are several.
    pub(crate) fn home(&self) -> String {
        format!("{}/", self.root)
    }

    /// Where its pages are in the console: nowhere special if it is the only one.
    pub(super) fn place(&self) -> &str {
        &self.prefix[self.root.len()..]
    }

    /// Whether it is one of several.
    pub(crate) fn is_cell(&self) -> bool {
        !self.place().is_empty()
    }

    /// Where a login is, for the log, if there are several places.
    pub(super) fn at(&self) -> String {
        if self.is_cell() { format!(" at {}", self.address) } else { String::new() }
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
        let path = self.home();
        let cookie = format!("{name}={value}; Path={path}; HttpOnly; SameSite=Strict{more}");
        let cookie = HeaderValue::try_from(cookie).expect("the prefix has no control characters");
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }

    /// The name of a cookie that authenticates a visitor. With https the prefix of the name makes
    /// the browser accept it only from https and, without a path prefix, only from this host. Each
    /// cell has its own.
    pub(super) fn secret_name(&self, is_https: bool, name: &str) -> String {
        let cell = self.place().replace('/', "_");
        match (is_https, &*self.root) {
            (false, _) => format!("{name}{cell}"),
            (true, "") => format!("__Host-{name}{cell}"),
            (true, _) => format!("__Secure-{name}{cell}"),
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
