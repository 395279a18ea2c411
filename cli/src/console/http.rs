//! What requests say, and what answers are made of.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::App;

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).into_iter();
    all.filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// Keeps a value in a cookie that no script and no other site gets; `more` are other attributes.
pub(crate) fn set_cookie(response: &mut Response, app: &App, name: &str, value: &str, more: &str) {
    let path = app.url("/");
    let cookie = format!("{name}={value}; Path={path}; HttpOnly; SameSite=Strict{more}");
    let cookie = HeaderValue::try_from(cookie).expect("the prefix has no control characters");
    response.headers_mut().append(header::SET_COOKIE, cookie);
}

/// Whether htmx asks for a part of a page.
pub(crate) fn is_fragment(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request") && !headers.contains_key("hx-boosted")
}

/// Whether a proxy in front of us speaks https.
pub(crate) fn is_https(headers: &HeaderMap) -> bool {
    headers
        .get("x-forwarded-proto")
        .is_some_and(|proto| proto == "https")
}

/// Whether a path is one of ours: browsers take what begins with two slashes for another site.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path[1..].starts_with(['/', '\\']) && !path.contains(char::is_control)
}

/// 303 to a URL. What cannot be in a header goes to the start.
pub(crate) fn see_other(url: &str) -> Response {
    let url = HeaderValue::try_from(url).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response()
}

/// Answers a part of a page so that htmx goes on to another URL with the whole one.
pub(crate) fn htmx_redirect(url: &str) -> Response {
    let url = HeaderValue::try_from(url).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::UNAUTHORIZED, [("hx-redirect", url)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_ours_are_gone_to() {
        for path in ["/", "/jobs?state=running", "/queue?name=a//b"] {
            assert!(is_path(path), "{path}");
        }
        for path in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/a\r\nb: c",
        ] {
            assert!(!is_path(path), "{path}");
        }
    }
}
