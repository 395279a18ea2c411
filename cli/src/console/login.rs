//! Login and logout.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::App;
use super::http::{is_https, is_path, see_other, set_cookie};
use super::page;
use super::parts::{self, Kind};
use super::problem::Problem;
use super::role::Role;
use super::session::{COOKIE, Session, keep, session_of};
use super::theme::Theme;
use super::visit::{self, Query, Visit};

/// The largest form of a login: who has not logged in may send little.
const LARGEST_LOGIN: usize = 16 << 10;
/// The longest name that a role can have.
const LONGEST_NAME: usize = 63;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/login", get(ask).post(login))
        .layer(DefaultBodyLimit::max(LARGEST_LOGIN))
        .route("/logout", post(logout))
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
    let session = session_of(&request);
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
    let session = session_of(&request);
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
    if let Err(wait) = app.attempts.begin(&keys) {
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
    match enter(&app, role, password).await {
        Ok(entered) => {
            app.attempts.succeeded(&keys);
            let entered = Arc::new(entered);
            let role = app.sessions.role(&entered).unwrap_or(entered);
            app.sessions.end(&session);
            let session = app.sessions.begin(Some(role.clone()), true);
            app.live.begin();
            eprintln!("jobs: {:?} has logged in from {address}", role.name);
            let next = if is_path(next) { next } else { "/" };
            let mut response = see_other(&app.url(next));
            keep(&mut response, &app, &session, is_secure);
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
    let session = session_of(&request);
    let _: IgnoredAny = visit::form(request, &session.csrf).await?;
    app.sessions.end(&session);
    let mut response = see_other(&app.url("/login"));
    set_cookie(&mut response, &app, COOKIE, "", "; Max-Age=0");
    Ok(response)
}

/// Lets somebody in who knows the password of a role that may look at the queue.
async fn enter(app: &App, name: &str, password: &str) -> Result<Role, Problem> {
    if name.is_empty() || [name, password].iter().any(|text| text.contains('\0')) {
        return Err(Problem::bad_input(
            "There is no such role.",
            "Type another name.",
        ));
    }
    let mut config = app.database.clone();
    config.user(name);
    match postgres_jobs::connect(&config).await {
        Ok(_) => {
            return Err(Problem::forbidden(
                "The server asks this console for no password, so it cannot know who you are.",
                "pg_hba.conf has to ask connections of the console for a password: \
                 scram-sha-256 instead of trust or peer.",
            ));
        }
        Err(error) if error.code().is_some() => return Err(error.into()),
        // The server wants a password, as it should.
        Err(_) => {}
    }
    let role = Role::new(config.password(password));
    let rights = role.rights().await?;
    match rights.looks {
        true => Ok(role),
        false if rights.version.is_none() => Err(super::no_extension(&rights.database)),
        false => Err(visit::needs_a_grant(&rights.role)),
    }
}

/// The form that ends the session.
pub(crate) fn logout_form(visit: &Visit) -> Markup {
    visit.form("/logout", html! { button.link type="submit" { "Log out" } })
}
