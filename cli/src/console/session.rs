//! Sessions of browsers, login and logout.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde::Deserialize;

use super::App;
use super::page;
use super::parts::{self, Kind};
use super::problem::Problem;
use super::role::{Role, locked};
use super::visit::{self, Query, Theme, Visit, cookie, htmx_redirect, is_fragment, see_other};

const COOKIE: &str = "jobs_console";
/// After how long a session that nobody uses ends.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// The largest form of a login: who has not logged in may send little.
const LARGEST_LOGIN: usize = 16 << 10;
/// The longest name that a role can have.
const LONGEST_NAME: usize = 63;
/// How many sessions without a login there are at most; the one that is idle for longest goes.
const ANONYMOUS: usize = 1000;

pub(crate) struct Session {
    id: String,
    pub(crate) csrf: String,
    /// Whose it is; none until somebody has logged in.
    pub(crate) role: Option<Arc<Role>>,
    is_logged_in: bool,
    seen: Mutex<Instant>,
    flash: Mutex<Option<String>>,
}

impl Session {
    /// Says it on the next page.
    pub(crate) fn say(&self, message: String) {
        *locked(&self.flash) = Some(message);
    }

    pub(crate) fn said(&self) -> Option<String> {
        locked(&self.flash).take()
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.is_logged_in
    }

    fn idle(&self) -> Duration {
        locked(&self.seen).elapsed()
    }
}

/// 256 random bits.
fn secret() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<Session>>>,
    attempts: Mutex<HashMap<String, Attempts>>,
}

impl Sessions {
    fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = locked(&self.all).get(id).cloned()?;
        if session.idle() > IDLE {
            return None;
        }
        *locked(&session.seen) = Instant::now();
        Some(session)
    }

    fn begin(&self, role: Option<Arc<Role>>, is_logged_in: bool) -> Arc<Session> {
        let session = Arc::new(Session {
            id: secret(),
            csrf: secret(),
            role,
            is_logged_in,
            seen: Mutex::new(Instant::now()),
            flash: Mutex::default(),
        });
        let mut all = locked(&self.all);
        let anonymous = || all.values().filter(|other| !other.is_logged_in);
        if !is_logged_in && anonymous().count() >= ANONYMOUS {
            let oldest = anonymous().min_by_key(|other| *locked(&other.seen));
            let oldest = oldest.expect("there are some").id.clone();
            all.remove(&oldest);
        }
        all.insert(session.id.clone(), session.clone());
        session
    }

    fn end(&self, session: &Session) {
        locked(&self.all).remove(&session.id);
    }

    /// Ends sessions that nobody uses, and forgets old attempts.
    pub(crate) fn tidy(&self) {
        locked(&self.all).retain(|_, session| session.idle() <= IDLE);
        locked(&self.attempts).retain(|_, attempts| attempts.until + FORGOTTEN > Instant::now());
    }

    /// A role that is logged in with this name already, whose connections can be shared.
    fn role(&self, like: &Role) -> Option<Arc<Role>> {
        let is_it = |role: &Arc<Role>| {
            role.name == like.name && role.config.get_password() == like.config.get_password()
        };
        let all = locked(&self.all);
        all.values()
            .filter_map(|session| session.role.clone())
            .find(is_it)
    }

    /// All roles that are logged in.
    pub(crate) fn roles(&self) -> Vec<Arc<Role>> {
        let all = locked(&self.all);
        all.values()
            .filter_map(|session| session.role.clone())
            .collect()
    }

    /// Counts an attempt to log in, before it is made: many at once are no way around. How long
    /// to wait instead, where there were too many.
    fn attempt(&self, keys: &[String]) -> Result<(), Duration> {
        let mut attempts = locked(&self.attempts);
        let now = Instant::now();
        let wait = keys.iter().filter_map(|key| attempts.get(key));
        let wait = wait
            .map(|attempts| attempts.until.saturating_duration_since(now))
            .max();
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        for key in keys {
            let fresh = Attempts {
                failures: 0,
                until: now,
            };
            attempts.entry(key.clone()).or_insert(fresh).fail(now);
        }
        Ok(())
    }

    fn succeeded(&self, keys: &[String]) {
        let mut attempts = locked(&self.attempts);
        for key in keys {
            attempts.remove(key);
        }
    }
}

/// Attempts to log in that have failed in a row, of a role or from an address.
struct Attempts {
    failures: u32,
    /// No other attempt is made before.
    until: Instant,
}

/// How many may fail before there is a wait.
const FREE: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// After how long without any attempt they are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(900);

impl Attempts {
    fn fail(&mut self, now: Instant) {
        if self.until + FORGOTTEN < now {
            self.failures = 0;
        }
        self.failures += 1;
        let wait = match self.failures.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(9)).min(LONGEST_WAIT),
        };
        self.until = now + wait;
    }
}

/// Finds the session of a request, or begins one.
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let known = cookie(headers, COOKIE).and_then(|id| app.sessions.find(id));
    // A link of another site comes without our cookie, which is SameSite=Strict. So the page asks
    // for itself again, and does not end the session that there may be.
    let is_from_elsewhere = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "cross-site");
    if known.is_none() && is_from_elsewhere && request.method() == Method::GET {
        let url = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        return page::again(&app.url(url));
    }
    let is_login = request.uri().path() == "/login";
    let begins = known.is_none() && (!app.has_login || is_login);
    let is_secure = is_https(headers);
    let session = match known {
        // With a login nobody but who has logged in sees another page.
        None if !begins => return to_login(&app, &request),
        Some(session) if session.role.is_none() && !is_login => return to_login(&app, &request),
        None => app.sessions.begin(app.process.clone(), false),
        Some(session) => session,
    };
    request.extensions_mut().insert(session.clone());
    let mut response = next.run(request).await;
    if begins && !response.headers().contains_key(header::SET_COOKIE) {
        set_cookie(&mut response, &app, &session.id, is_secure);
    }
    response
}

/// Sends somebody to the login, and then on to where they wanted to go.
fn to_login(app: &App, request: &Request) -> Response {
    let path = request
        .uri()
        .path_and_query()
        .filter(|_| request.method() == Method::GET);
    let next = path.map_or("", |path| path.as_str());
    let login = app.url(&parts::link("/login", &[("next", next)]));
    match is_fragment(request.headers()) {
        true => htmx_redirect(&login),
        false => see_other(&login),
    }
}

/// Whether a path is one of ours: browsers take what begins with two slashes for another site.
fn is_ours(path: &str) -> bool {
    path.starts_with('/') && !path[1..].starts_with(['/', '\\']) && !path.contains(char::is_control)
}

/// Whether a proxy in front of us speaks https.
fn is_https(headers: &HeaderMap) -> bool {
    headers
        .get("x-forwarded-proto")
        .is_some_and(|proto| proto == "https")
}

fn set_cookie(response: &mut Response, app: &App, value: &str, is_secure: bool) {
    let path = app.url("/");
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::try_from(cookie).expect("the prefix has no control characters");
    response.headers_mut().append(header::SET_COOKIE, cookie);
}

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/login", get(ask).post(login))
        .layer(DefaultBodyLimit::max(LARGEST_LOGIN))
        .route("/logout", post(logout))
        .route("/theme", post(theme))
}

#[derive(Deserialize)]
struct Wanted {
    #[serde(default)]
    next: String,
}

async fn ask(
    State(app): State<Arc<App>>,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Response {
    let session = session(&request);
    if session.role.is_some() {
        return see_other(&app.url("/"));
    }
    let asked = Login {
        next: wanted.next,
        ..Login::default()
    };
    form(
        &app,
        &session,
        Theme::of(request.headers()),
        &asked,
        StatusCode::OK,
        html! {},
    )
}

fn session(request: &Request) -> Arc<Session> {
    let session = request.extensions().get::<Arc<Session>>();
    session.expect("the session is attached").clone()
}

fn form(
    app: &App,
    session: &Session,
    theme: Option<Theme>,
    asked: &Login,
    status: StatusCode,
    said: Markup,
) -> Response {
    let main = html! {
        form.login method="post" action=(app.url("/login")) {
            h1 { "Log in" }
            p.quiet { "As a role of the database " strong { (app.database_name()) } ". You can do here what that role may do." }
            (said)
            input type="hidden" name="csrf" value=(session.csrf);
            input type="hidden" name="next" value=(asked.next);
            div.field {
                label for="role" { "Role" }
                input #role name="role" value=(asked.role) required autocomplete="username"
                    autocapitalize="none" spellcheck="false" autofocus[asked.role.is_empty()];
            }
            div.field {
                label for="password" { "Password" }
                input #password type="password" name="password" required
                    autocomplete="current-password" autofocus[!asked.role.is_empty()];
            }
            (parts::button("Log in", Kind::Primary))
        }
    };
    (status, page::bare(app, theme, "Log in", &main)).into_response()
}

#[derive(Default, Deserialize)]
struct Login {
    role: String,
    password: String,
    #[serde(default)]
    next: String,
}

async fn login(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Problem> {
    if !app.has_login {
        return Ok(see_other(&app.url("/")));
    }
    let session = session(&request);
    let theme = Theme::of(request.headers());
    let is_secure = is_https(request.headers());
    let address = address(peer, request.headers());
    let asked: Login = visit::form(request, &session.csrf).await?;
    let Login {
        role,
        password,
        next,
    } = &asked;
    let keys = [format!("role {role}"), format!("address {address}")];
    let refused = |status, said: Markup| {
        let said = html! { div.problem role="alert" { (said) } };
        form(&app, &session, theme, &asked, status, said)
    };
    // Postgres would cut the name off, and so find a role that other names mean as well.
    if role.len() > LONGEST_NAME {
        let said = html! { p { "There is no role of so long a name." } };
        return Ok(refused(StatusCode::UNPROCESSABLE_ENTITY, said));
    }
    if let Err(wait) = app.sessions.attempt(&keys) {
        let seconds = wait.as_secs() + 1;
        let said = html! {
            p { "Too many attempts have failed. Try again in " (parts::duration(seconds as f64)) "." }
        };
        let mut response = refused(StatusCode::TOO_MANY_REQUESTS, said);
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return Ok(response);
    }
    match app.enter(role, password).await {
        Ok(entered) => {
            app.sessions.succeeded(&keys);
            let entered = Arc::new(entered);
            let role = app.sessions.role(&entered).unwrap_or(entered);
            app.live.offer(&role);
            app.sessions.end(&session);
            let session = app.sessions.begin(Some(role.clone()), true);
            eprintln!("jobs: {:?} has logged in from {address}", role.name);
            let next = if is_ours(next) { next } else { "/" };
            let mut response = see_other(&app.url(next));
            set_cookie(&mut response, &app, &session.id, is_secure);
            Ok(response)
        }
        Err(problem) => {
            eprintln!(
                "jobs: {role:?} was not let in from {address}: {}",
                problem.line()
            );
            Ok(refused(problem.status, problem.said()))
        }
    }
}

/// Where a request comes from: what a proxy on this machine has added last, else the peer.
fn address(peer: SocketAddr, headers: &HeaderMap) -> String {
    let forwarded = headers.get_all("x-forwarded-for").into_iter().next_back();
    let forwarded = forwarded.and_then(|all| all.to_str().ok());
    match forwarded.and_then(|all| all.rsplit(',').next()) {
        Some(last) if peer.ip().is_loopback() => last.trim().into(),
        _ => peer.ip().to_string(),
    }
}

async fn logout(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let session = session(&request);
    let _: serde::de::IgnoredAny = visit::form(request, &session.csrf).await?;
    app.sessions.end(&session);
    let mut response = see_other(&app.url("/login"));
    let path = app.url("/");
    let cookie = format!("{COOKIE}=; Path={path}; HttpOnly; SameSite=Strict; Max-Age=0");
    let cookie = HeaderValue::try_from(cookie).expect("the prefix has no control characters");
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

#[derive(Deserialize)]
struct Switch {
    theme: String,
    back: String,
}

/// Keeps a theme in a cookie, so that pages come in it.
async fn theme(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let session = session(&request);
    let switch: Switch = visit::form(request, &session.csrf).await?;
    let back = if is_ours(&switch.back) {
        &*switch.back
    } else {
        "/"
    };
    let mut response = see_other(&app.url(back));
    let (theme, age) = match &*switch.theme {
        "light" => ("light", 31_536_000),
        "dark" => ("dark", 31_536_000),
        _ => ("", 0),
    };
    let path = app.url("/");
    let cookie =
        format!("jobs_theme={theme}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={age}");
    let cookie = HeaderValue::try_from(cookie).expect("the prefix has no control characters");
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The form that ends the session.
pub(crate) fn logout_form(visit: &Visit) -> Markup {
    visit.form("/logout", html! { button.link type="submit" { "Log out" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_the_fifth_failure_on() {
        let sessions = Sessions::default();
        let keys = ["role app".to_owned()];
        for _ in 0..FREE {
            assert_eq!(sessions.attempt(&keys), Ok(()));
        }
        assert!(sessions.attempt(&keys).is_err());
        let now = Instant::now();
        let mut attempts = Attempts {
            failures: 0,
            until: now,
        };
        let waits: Vec<u64> = (0..15)
            .map(|_| {
                attempts.fail(now);
                (attempts.until - now).as_secs()
            })
            .collect();
        assert_eq!(
            waits,
            [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
        );
    }

    #[test]
    fn only_paths_of_ours_are_gone_to() {
        for path in ["/", "/jobs?state=running", "/queue?name=a//b"] {
            assert!(is_ours(path), "{path}");
        }
        for path in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/a\r\nb: c",
        ] {
            assert!(!is_ours(path), "{path}");
        }
    }

    #[test]
    fn a_success_forgets_failures() {
        let sessions = Sessions::default();
        let keys = ["role app".to_owned(), "address ::1".to_owned()];
        for _ in 0..3 * FREE {
            assert_eq!(sessions.attempt(&keys), Ok(()));
            sessions.succeeded(&keys);
        }
    }

    #[test]
    fn sessions_without_a_login_are_bounded() {
        let sessions = Sessions::default();
        let first = sessions.begin(None, false);
        for _ in 0..ANONYMOUS {
            sessions.begin(None, false);
        }
        assert!(sessions.find(&first.id).is_none());
        assert_eq!(locked(&sessions.all).len(), ANONYMOUS);
    }
}
