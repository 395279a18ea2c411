//! The theme: light, dark or the system's.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;

use super::app::App;
use super::http::{self, cookie, is_path, see_other};
use super::problem::Problem;
use super::session::session_of;

const COOKIE: &str = "jobs_theme";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        match cookie(headers, COOKIE)? {
            "light" => Some(Self::Light),
            "dark" => Some(Self::Dark),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Chosen {
    theme: String,
    back: String,
}

/// Stores the theme in a cookie.
pub(super) async fn keep(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let session = session_of(&request);
    let chosen: Chosen = http::form(request, &session.csrf).await?;
    let back = if is_path(&chosen.back) { &*chosen.back } else { "/" };
    let mut response = see_other(&app.url(back));
    let (theme, age) = match &*chosen.theme {
        "light" => ("light", 31_536_000),
        "dark" => ("dark", 31_536_000),
        _ => ("", 0),
    };
    app.set_cookie(&mut response, COOKIE, theme, &format!("; Max-Age={age}"));
    Ok(response)
}
