//! Login and logout.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout};

use super::app::{App, cells, together};
use super::attach;
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
        return see_other(&app.home());
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
            p.quiet {
                "Use a role of the database "
                strong { (text(app.database_name())) }
                ". You have its privileges here."
                @if app.is_cell() { " You are logged in to the other cells that accept it as well." }
            }
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

#[derive(Clone, Default, Deserialize)]
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
        return Ok(see_other(&app.home()));
    }
    let cells = cells(request.extensions());
    let before: Vec<_> = cells.iter().map(|cell| attach::known(cell, request.headers())).collect();
    let theme = Theme::of(request.headers());
    let is_https = is_https(request.headers());
    let csrf = cookie(request.headers(), &app.secret_name(is_https, FORM));
    // Without a cookie no form has a valid token.
    let csrf = csrf.and_then(|cookie| app.tokens.of(cookie)).unwrap_or_else(secret);
    let address = client(peer, request.headers());
    let asked: Login = http::form(request, &csrf).await?;
    let Login { role, next, .. } = &asked;
    let refused = |status, said: Markup| {
        let said = html! { div.problem role="alert" { (said) } };
        form(&app, &csrf, theme, &asked, status, said)
    };
    // Postgres would truncate the name, so that several names would mean one role.
    if role.len() > LONGEST_NAME {
        let said = html! { p { "Role names have at most 63 bytes." } };
        return Ok(refused(StatusCode::UNPROCESSABLE_ENTITY, said));
    }
    let attempts = cells.iter().map(|cell| attempt(cell.clone(), address, asked.clone()));
    let entered = together(attempts).await;
    let own = cells.iter().position(|cell| Arc::ptr_eq(cell, &app)).expect("it is one of them");
    let next = match &entered[own] {
        Ok(_) if is_path(next) => app.url(next),
        Err(problem) if problem.is_refused_role() || entered.iter().all(Result::is_err) => {
            let mut response = refused(problem.status, problem.said());
            if let Some(seconds) = problem.retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            return Ok(response);
        }
        // A cell that is down does not close the others.
        _ => app.home(),
    };
    let mut response = see_other(&next);
    for ((cell, before), entered) in cells.iter().zip(before).zip(entered) {
        let Ok(role) = entered else { continue };
        if let Some(before) = before {
            cell.sessions.end(&before);
        }
        log(format_args!("role {:?} logged in{} from {address}", role.name, cell.at()));
        let session = cell.sessions.begin(role, true);
        cell.live.begin();
        cell.set_secret(&mut response, is_https, COOKIE, &session.id, "");
    }
    Ok(response)
}

/// Enters a database, unless too many attempts have failed there.
async fn attempt(
    app: Arc<App>,
    address: IpAddr,
    Login { role, password, .. }: Login,
) -> Result<Arc<Role>, Problem> {
    if let Err(wait) = app.attempts.begin(address, &role) {
        return Err(Problem::too_many_attempts(wait.as_secs() as u16 + 1));
    }
    let entered = timeout(PATIENCE, enter(&app, &role, &password)).await;
    match entered.unwrap_or_else(|_| Err(Problem::no_answer())) {
        Ok(entered) => {
            app.attempts.succeeded(address, &role);
            let entered = Arc::new(entered);
            Ok(app.sessions.role(&entered).unwrap_or(entered))
        }
        Err(problem) => {
            if !problem.is_refused_role() {
                app.attempts.take_back(address, &role);
            }
            let (at, why) = (app.at(), problem.line());
            log(format_args!("login as role {role:?}{at} from {address} failed: {why}"));
            Err(problem)
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
    let cells = cells(request.extensions());
    let all = cells.iter().map(|cell| (cell, attach::known(cell, request.headers())));
    let all: Vec<_> = all.collect();
    let _: IgnoredAny = http::form(request, &session.csrf).await?;
    if session.is_logged_in() {
        log(format_args!("role {:?} logged out from {address}", session.role.name));
    }
    let mut response = see_other(&app.url("/login"));
    for (cell, session) in all {
        if let Some(session) = session {
            cell.sessions.end(&session);
        }
        cell.set_secret(&mut response, is_https, COOKIE, "", "; Max-Age=0");
    }
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
    visit::looks(&role).await?;
    Ok(role)
}
