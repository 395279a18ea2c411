//! Refuses requests of other sites, and sets the security headers of every answer.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::http;

pub(super) async fn guarded(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = if !is_allowed_host(&app, request.headers()) {
        let said = "The console does not serve this host name. Open it by address or as localhost, or start it with --allow-host.";
        (StatusCode::MISDIRECTED_REQUEST, said).into_response()
    } else if http::is_foreign(request.method(), request.headers()) {
        let said = "Another site sent this form. Open the console and repeat the action there.";
        (StatusCode::FORBIDDEN, said).into_response()
    } else if !http::is_path(request.uri().path()) {
        StatusCode::NOT_FOUND.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With no-referrer a browser would send forms without their origin.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Another site could point its own DNS name at this machine, and without a login act as the role
/// of this console. So only allowed names and addresses are served.
fn is_allowed_host(app: &App, headers: &HeaderMap) -> bool {
    if app.has_login {
        return true;
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = host.host().trim_matches(['[', ']']);
    match name.parse::<IpAddr>() {
        Ok(address) => !app.is_loopback || address.to_canonical().is_loopback(),
        Err(_) => {
            let allowed = app.allowed_hosts.iter().map(String::as_str);
            let mut allowed = allowed.chain(["localhost"]);
            allowed.any(|allowed| allowed.eq_ignore_ascii_case(name))
        }
    }
}
