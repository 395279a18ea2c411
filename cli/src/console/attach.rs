//! The session that a request belongs to.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, html};

use super::app::App;
use super::http::{cookie, htmx_redirect, is_fragment, is_https, is_stream, see_other};
use super::role::Role;
use super::session::{COOKIE, Session};
use super::stream;

/// Finds the session of a request, or begins one.
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let is_https = is_https(headers);
    let known = known(&app, headers);
    let was_refused = app.sessions.was_refused(id(&app, headers));
    // A link of another site comes without our cookie, which is SameSite=Strict. So the page loads
    // itself again, and does not replace an existing session.
    let is_from_elsewhere = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if known.is_none() && is_from_elsewhere && request.method() == Method::GET {
        let url = request.uri().path_and_query().map_or("/", |path| path.as_str());
        return again(&app.url(url));
    }
    let (session, begins) = match (known, &app.process) {
        (Some(session), _) => (session, false),
        (None, Some(role)) => (app.sessions.begin(role.clone(), false), true),
        // With a login, all other pages need a session.
        (None, None) if request.uri().path() == "/login" => return next.run(request).await,
        (None, None) => return to_login(&app, &request.into_parts().0, was_refused),
    };
    request.extensions_mut().insert(session.clone());
    let mut response = next.run(request).await;
    if begins {
        app.set_secret(&mut response, is_https, COOKIE, &session.id, "");
    }
    response
}

fn id<'a>(app: &App, headers: &'a HeaderMap) -> &'a str {
    cookie(headers, &app.secret_name(is_https(headers), COOKIE)).unwrap_or_default()
}

/// The session that a browser has in a database.
pub(crate) fn known(app: &App, headers: &HeaderMap) -> Option<Arc<Session>> {
    app.sessions.find(id(app, headers), !is_fragment(headers))
}

/// The role that a browser has in a database.
pub(crate) fn role(app: &App, headers: &HeaderMap) -> Option<Arc<Role>> {
    app.process.clone().or_else(|| Some(known(app, headers)?.role.clone()))
}

/// Redirects to the login, which leads on to the requested page. `is_refused`: the database no
/// longer accepts the role.
pub(crate) fn to_login(app: &App, asked: &Parts, is_refused: bool) -> Response {
    if is_stream(&asked.headers) {
        return stream::ended(app, &asked.uri, is_refused);
    }
    let path = asked.uri.path_and_query().filter(|_| asked.method == Method::GET);
    let next = path.map_or("", |path| path.as_str());
    let login = app.login_url(next, is_refused);
    match is_fragment(&asked.headers) {
        true => htmx_redirect(&login),
        false => see_other(&login),
    }
}

/// A page that loads itself again, now from this site.
fn again(url: &str) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0; url=" (url) };
                title { "jobs" }
            }
            body { p { a href=(url) { "Continue" } } }
        }
    };
    Html(page.into_string()).into_response()
}
