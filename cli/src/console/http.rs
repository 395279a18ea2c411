//! Reads requests and builds answers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// How long a form may take to arrive.
const FORM: Duration = Duration::from_secs(30);

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).into_iter();
    all.filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// Whether a proxy says that it passes a request on.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    let others = ["forwarded", "via", "x-real-ip"];
    headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-forwarded-") || others.contains(&name)
    })
}

/// The address of a request: the last one added by a proxy on this machine, else the peer. Earlier
/// ones can be forged.
pub(crate) fn client(peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    let peer = peer.ip().to_canonical();
    let forwarded = headers.get_all("x-forwarded-for").into_iter().next_back();
    let forwarded = forwarded.filter(|_| peer.is_loopback());
    let last = forwarded.and_then(|all| all.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
    last.map_or(peer, |last: IpAddr| last.to_canonical())
}

/// An address as limits count it: an IPv6 client controls its whole /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Whether htmx asks for a part of a page.
pub(crate) fn is_fragment(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request") && !headers.contains_key("hx-boosted")
}

/// Whether a page subscribes to changes.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accepted| accepted == "text/event-stream")
}

/// Whether the browser uses https. Each proxy adds the protocol of its request, so the first
/// element is the browser's.
pub(crate) fn is_https(headers: &HeaderMap) -> bool {
    let all = headers.get("x-forwarded-proto");
    let all = all.and_then(|all| all.to_str().ok());
    all.and_then(|all| all.split(',').next())
        .is_some_and(|first| first.trim().eq_ignore_ascii_case("https"))
}

/// Whether a request that may change something comes from another site. A browser sends the origin;
/// other programs do not have our cookies.
pub(crate) fn is_foreign(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() {
        return false;
    }
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let origin = text("origin");
    match text("sec-fetch-site") {
        Some(site) => site != "same-origin" || origin == Some("null"),
        None => origin.is_some_and(|origin| !is_own(origin, headers)),
    }
}

/// Whether an origin is the console's, by the name in the request.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let (Some((scheme, name)), Some(host)) = (origin.split_once("://"), host) else {
        return false;
    };
    let is_scheme = scheme == "https" || scheme == "http" && !is_https(headers);
    is_scheme && name.eq_ignore_ascii_case(host)
}

/// Whether a path is on this site: browsers take two leading slashes for another site.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path[1..].starts_with(['/', '\\']) && !path.contains(char::is_control)
}

/// The form of a request, if it has this CSRF token.
pub(crate) async fn form<T: DeserializeOwned>(request: Request, csrf: &str) -> Result<T, Problem> {
    #[derive(Deserialize)]
    struct Token {
        csrf: String,
    }
    let late = || {
        let message = "The form did not arrive within 30 seconds.";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    };
    let body = tokio::time::timeout(FORM, Bytes::from_request(request, &()))
        .await
        .map_err(|_| late())?
        .map_err(|error| Problem::new(error.status(), "Form rejected", error.body_text()))?;
    let has_token = serde_urlencoded::from_bytes::<Token>(&body)
        .is_ok_and(|given| is_same(given.csrf.as_bytes(), csrf.as_bytes()));
    if !has_token {
        return Err(Problem::forbidden(
            "This form belongs to another session or to one that has ended.",
            "Go back, reload the page and try again.",
        ));
    }
    serde_urlencoded::from_bytes(&body).map_err(|error| {
        let message = format!("Invalid value in the form: {error}");
        Problem::bad_input(message, "Go back and correct it.")
    })
}

/// Compares in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Redirects to a URL with 303, or to the start if it is invalid in a header.
pub(crate) fn see_other(url: &str) -> Response {
    let url = HeaderValue::try_from(url).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response()
}

/// Answers a request for a part of a page so that htmx loads another URL as a whole.
pub(crate) fn htmx_redirect(url: &str) -> Response {
    let url = HeaderValue::try_from(url).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::UNAUTHORIZED, [("hx-redirect", url)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_of_this_machine_says_who_asks() {
        let cases = [
            ("127.0.0.1:1", "192.0.2.1, 192.0.2.2", "192.0.2.2"),
            ("127.0.0.1:1", "::ffff:192.0.2.2", "192.0.2.2"),
            ("[::1]:1", "2001:db8::1", "2001:db8::1"),
            ("[::1]:1", "192.0.2.1, unknown", "::1"),
            ("127.0.0.1:1", "", "127.0.0.1"),
            ("198.51.100.1:1", "192.0.2.1", "198.51.100.1"),
        ];
        for (peer, forwarded, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.append("x-forwarded-for", HeaderValue::from_static("192.0.2.9"));
            headers.append("x-forwarded-for", HeaderValue::from_static(forwarded));
            let client = client(peer.parse().expect("an address"), &headers);
            assert_eq!(client.to_string(), expected, "{peer} {forwarded}");
        }
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let all = all.iter().map(|(name, value)| {
            let name = axum::http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        all.collect()
    }

    #[test]
    fn the_first_proxy_says_what_the_browser_speaks() {
        for (said, expected) in [
            ("https", true),
            ("HTTPS , http", true),
            ("https,https", true),
            ("http, https", false),
            ("http", false),
            ("", false),
        ] {
            assert_eq!(is_https(&headers(&[("x-forwarded-proto", said)])), expected, "{said}");
        }
    }

    #[test]
    fn only_an_own_page_sends_a_form() {
        let host = ("host", "jobs.example:8088");
        let https = ("x-forwarded-proto", "https");
        for (more, expected) in [
            (&[][..], false),
            (&[("origin", "http://jobs.example:8088")], false),
            (&[("origin", "https://Jobs.example:8088"), https], false),
            (&[("origin", "http://jobs.example:8088"), https], true),
            (&[("origin", "http://jobs.example")], true),
            (&[("origin", "http://evil.example:8088")], true),
            (&[("origin", "null")], true),
            (&[("origin", "jobs.example:8088")], true),
            // A browser knows it better than a proxy that gives another name.
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://outside.example")], false),
            (&[("sec-fetch-site", "same-origin"), ("origin", "null")], true),
            (&[("sec-fetch-site", "same-site"), ("origin", "http://jobs.example:8088")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "none")], true),
        ] {
            let headers = headers(&[&[host], more].concat());
            assert_eq!(is_foreign(&Method::POST, &headers), expected, "{more:?}");
            assert!(!is_foreign(&Method::GET, &headers));
        }
    }

    #[test]
    fn only_paths_of_ours_are_gone_to() {
        for path in ["/", "/jobs?state=running", "/queue?name=a//b"] {
            assert!(is_path(path), "{path}");
        }
        for path in ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb: c"]
        {
            assert!(!is_path(path), "{path}");
        }
    }
}
