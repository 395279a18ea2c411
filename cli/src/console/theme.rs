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

    fn named(name: &str) -> Option<Self> {
        [Self::Light, Self::Dark].into_iter().find(|theme| theme.name() == name)
    }

    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::named(cookie(headers, COOKIE)?)
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
    let (theme, age) = match Theme::named(&chosen.theme) {
        Some(theme) => (theme.name(), 31_536_000),
        None => ("", 0),
    };
    app.set_cookie(&mut response, COOKIE, theme, &format!("; Max-Age={age}"));
    Ok(response)
}
