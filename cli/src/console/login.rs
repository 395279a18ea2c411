//! Login and logout.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout};

use super::app::App;
use super::connection::Connection;
use super::http::{self, client, cookie, is_https, is_path, see_other};
use super::login_token::Tokens;
use super::page;
use super::parts::{self, Look};
use super::problem::Problem;
use super::role::{PATIENCE, Role};
use super::room::text;
use super::session::{COOKIE, Session, secret, session_of};
use super::theme::Theme;
use super::visit::{self, Query};
use crate::terminal::log;

/// The cookie that the token of the form belongs to.
const FORM: &str = "jobs_login";
/// The largest form of a login.
pub(super) const LARGEST: usize = 16 << 10;
/// The longest name that a role can have.
const LONGEST_NAME: usize = 63;

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    next: String,
    /// Not empty if the database no longer accepts the role.
    #[serde(default)]
    refused: String,
}

pub(super) async fn ask(
    State(app): State<Arc<App>>,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Response {
    if request.extensions().get::<Arc<Session>>().is_some() {
        return see_other(&app.url("/"));
    }
    let headers = request.headers();
    let is_https = is_https(headers);
    let known = cookie(headers, &app.secret_name(is_https, FORM));
    let known = known.and_then(|cookie| app.tokens.of(cookie));
    let fresh = known.is_none().then(Tokens::cookie);
    let csrf = known.or_else(|| app.tokens.of(fresh.as_deref()?));
    let csrf = csrf.expect("a cookie is good at first");
    let asked = Login { next: wanted.next, ..Login::default() };
    let said = html! {
        @if !wanted.refused.is_empty() {
            div.problem role="alert" {
                p { "Your session has ended: the database no longer accepts its role." }
            }
        }
    };
    let theme = Theme::of(headers);
    let mut response = form(&app, &csrf, theme, &asked, StatusCode::OK, said);
    if let Some(cookie) = fresh {
        app.set_secret(&mut response, is_https, FORM, &cookie, "");
    }
    response
}

fn form(
    app: &App,
    csrf: &str,
    theme: Option<Theme>,
    asked: &Login,
    status: StatusCode,
    said: Markup,
) -> Response {
    let main = html! {
        form.login method="post" action=(app.url("/login")) {
            h1 { "Log in" }
            p.quiet { "Use a role of the database " strong { (text(app.database_name())) } ". You have its privileges here." }
            (said)
            input type="hidden" name="csrf" value=(csrf);
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
            (parts::button("Log in", Look::Primary))
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

pub(super) async fn login(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Problem> {
    if !app.has_login {
        return Ok(see_other(&app.url("/")));
    }
    let before = request.extensions().get::<Arc<Session>>().cloned();
    let theme = Theme::of(request.headers());
    let is_https = is_https(request.headers());
    let csrf = cookie(request.headers(), &app.secret_name(is_https, FORM));
    // Without a cookie no form has a valid token.
    let csrf = csrf.and_then(|cookie| app.tokens.of(cookie)).unwrap_or_else(secret);
    let address = client(peer, request.headers());
    let asked: Login = http::form(request, &csrf).await?;
    let Login { role, password, next } = &asked;
    let refused = |status, said: Markup| {
        let said = html! { div.problem role="alert" { (said) } };
        form(&app, &csrf, theme, &asked, status, said)
    };
    // Postgres would truncate the name, so that several names would mean one role.
    if role.len() > LONGEST_NAME {
        let said = html! { p { "Role names have at most 63 bytes." } };
        return Ok(refused(StatusCode::UNPROCESSABLE_ENTITY, said));
    }
    if let Err(wait) = app.attempts.begin(address, role) {
        let seconds = wait.as_secs() + 1;
        let said = html! {
            p { "Too many failed attempts. Try again in " (parts::duration(seconds as f64)) "." }
        };
        let mut response = refused(StatusCode::TOO_MANY_REQUESTS, said);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return Ok(response);
    }
    let entered = timeout(PATIENCE, enter(&app, role, password)).await;
    match entered.unwrap_or_else(|_| Err(Problem::no_answer())) {
        Ok(entered) => {
            app.attempts.succeeded(address, role);
            let entered = Arc::new(entered);
            let role = app.sessions.role(&entered).unwrap_or(entered);
            if let Some(before) = before {
                app.sessions.end(&before);
            }
            let session = app.sessions.begin(role.clone(), true);
            app.live.begin();
            log(format_args!("role {:?} logged in from {address}", role.name));
            let next = if is_path(next) { next } else { "/" };
            let mut response = see_other(&app.url(next));
            app.set_secret(&mut response, is_https, COOKIE, &session.id, "");
            Ok(response)
        }
        Err(problem) => {
            if !problem.is_refused_role() {
                app.attempts.take_back(address, role);
            }
            let why = problem.line();
            log(format_args!("login as role {role:?} from {address} failed: {why}"));
            Ok(refused(problem.status, problem.said()))
        }
    }
}

pub(super) async fn logout(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Problem> {
    let session = session_of(&request);
    let is_https = is_https(request.headers());
    let address = client(peer, request.headers());
    let _: IgnoredAny = http::form(request, &session.csrf).await?;
    app.sessions.end(&session);
    if session.is_logged_in() {
        log(format_args!("role {:?} logged out from {address}", session.role.name));
    }
    let mut response = see_other(&app.url("/login"));
    app.set_secret(&mut response, is_https, COOKIE, "", "; Max-Age=0");
    Ok(response)
}

/// Checks the password of a role that may view the queue.
async fn enter(app: &App, name: &str, password: &str) -> Result<Role, Problem> {
    if name.is_empty() || [name, password].iter().any(|text| text.contains('\0')) {
        return Err(Problem::bad_input("This role does not exist.", "Enter another name."));
    }
    let mut config = app.database.clone();
    config.user(name);
    let permit = app.pool.permit(Instant::now() + PATIENCE).await?;
    match Connection::open(&config, permit).await {
        Ok(_) => {
            return Err(Problem::forbidden(
                "Postgres asks the console for no password, so the console cannot check yours.",
                "In pg_hba.conf, require scram-sha-256 for the console's connections, not trust or peer.",
            ));
        }
        Err(error) if error.code().is_some() => return Err(error.into()),
        // The server wants a password, as it should.
        Err(_) => {}
    }
    let role = Role::new(config.password(password), &app.pool);
    let rights = role.rights().await?;
    match rights.looks {
        true => Ok(role),
        false if rights.version.is_none() => Err(Problem::no_extension(&rights.database)),
        false => Err(visit::needs_a_grant(&rights.role)),
    }
}
