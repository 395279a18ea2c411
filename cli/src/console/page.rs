//! The frame of every page.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::app::{App, Cells};
use super::assets;
use super::attach::to_login;
use super::parts;
use super::problem::Problem;
use super::room::{self, LARGEST, text};
use super::session::Session;
use super::theme::Theme;
use super::visit::Visit;
use crate::visible;

/// The entries of the navigation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    Overview,
    Jobs,
    Failures,
    Queues,
    Limits,
    Workers,
    Periodic,
    Unique,
    Audit,
    Maintenance,
}

/// Each with its path, its name, and its key after a g.
const SCREENS: [(Screen, &str, &str, char); 10] = [
    (Screen::Overview, "/", "Overview", 'o'),
    (Screen::Jobs, "/jobs", "Jobs", 'j'),
    (Screen::Failures, "/failures", "Failures", 'f'),
    (Screen::Queues, "/queues", "Queues", 'q'),
    (Screen::Limits, "/limits", "Limits", 'l'),
    (Screen::Workers, "/workers", "Workers", 'w'),
    (Screen::Periodic, "/periodic", "Periodic", 'p'),
    (Screen::Unique, "/unique", "Uniqueness", 'u'),
    (Screen::Audit, "/audit", "Audit", 'a'),
    (Screen::Maintenance, "/maintenance", "Maintenance", 'm'),
];

/// Pages request only their own site, and run no scripts from answers.
const HTMX: &str = r#"{"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,"includeIndicatorStyles":false,"disableInheritance":true,"historyCacheSize":0,"refreshOnHistoryMiss":true,"scrollBehavior":"auto"}"#;

impl Visit {
    /// A page that is refreshed as a whole when something has changed. Fields in use and opened
    /// details are left alone.
    pub(crate) fn page(&self, screen: Screen, title: &str, main: Markup) -> Response {
        page(self, screen, title, &main, true)
    }

    /// A page that is not refreshed, but for its `live` parts.
    pub(crate) fn still(&self, screen: Screen, title: &str, main: Markup) -> Response {
        page(self, screen, title, &main, false)
    }

    /// A page that is not refreshed, with a form and its problem.
    pub(crate) fn with_form(
        &self,
        screen: Screen,
        title: &str,
        main: Markup,
        wrong: Option<&Problem>,
    ) -> Response {
        let mut response = self.still(screen, title, main);
        if let Some(wrong) = wrong {
            *response.status_mut() = wrong.status;
        }
        response
    }
}

/// A whole page, or the content of its `main` for htmx.
fn page(visit: &Visit, screen: Screen, title: &str, main: &Markup, is_live: bool) -> Response {
    let main = html! {
        h1 { (text(title)) }
        @if let Some(standby) = &visit.standby {
            p.standby { span.badge { (standby.to_string()) } " Nothing can be changed here." }
        }
        (main)
    };
    if main.0.len() > LARGEST {
        return Problem::too_large().into_response();
    }
    if visit.is_fragment {
        return Html(main.into_string()).into_response();
    }
    framed_page(visit, Some(screen), title, &main, is_live).into_response()
}

fn framed_page(
    visit: &Visit,
    screen: Option<Screen>,
    title: &str,
    main: &Markup,
    is_live: bool,
) -> Html<String> {
    // Only a page with a GET address is refreshed.
    let path = visit.path.as_deref();
    let here = path.filter(|_| is_live).map(|path| visit.url(path));
    let live = visit.url(&parts::link("/live", [("next", path.unwrap_or_default())]));
    let body = html! {
        body hx-ext="morph" data-live=(live) data-start=(visit.url("/")) {
            a.skip href="#main" { "Skip to content" }
            (sidebar(visit, screen))
            (content(visit.session.said(), here, main))
            (help())
        }
    };
    let app = &visit.app;
    let database = if app.is_cell() { &app.address } else { &visit.rights.database };
    document(app, visit.theme, &format!("{title} · {database}"), &body)
}

/// The page about all cells, which is refreshed when the session in one of them hears of a change.
pub(crate) fn of_cells(
    cells: &Cells,
    app: &App,
    theme: Option<Theme>,
    title: &str,
    main: &Markup,
) -> Html<String> {
    let body = html! {
        body hx-ext="morph" data-live=(app.url("/live")) {
            a.skip href="#main" { "Skip to content" }
            header.sidebar { (brand(&app.home())) (switcher(cells, None, "/")) }
            (content(None, Some(app.home()), main))
        }
    };
    document(app, theme, title, &body)
}

/// What stands beside the sidebar: notices, and the content of a page, which may be refreshed.
fn content(said: Option<String>, here: Option<String>, main: &Markup) -> Markup {
    html! {
        div.content {
            div #flash role="status" { @if let Some(message) = said { p.flash { (text(&message)) } } }
            p.notice #connection hidden role="status" { "The console is not responding. Retrying …" }
            p.notice #gone hidden role="status" {
                "This item no longer exists. It may have been deleted or pruned."
            }
            @if let Some(here) = here {
                main #main tabindex="-1" hx-get=(here) hx-trigger="refresh from:body"
                    hx-target="this" hx-swap="morph:innerHTML" { (main) }
            } @else {
                main #main tabindex="-1" { (main) }
            }
        }
    }
}

fn brand(home: &str) -> Markup {
    html! { a.brand href=(home) { span.mark aria-hidden="true" {} "jobs" } }
}

/// Links to all cells, which keep to the screen.
fn switcher(cells: &Cells, current: Option<&App>, path: &str) -> Markup {
    let is_current = |cell: &App| current.is_some_and(|app| app.prefix == cell.prefix);
    html! {
        nav.cells aria-label="Cells" {
            details open[current.is_none()] {
                summary { (text(current.map_or("All cells", |app| &app.address))) }
                ul {
                    @if let Some(app) = current { li { a href=(app.home()) { "All cells" } } }
                    @for cell in &**cells {
                        li {
                            a href=(cell.url(path)) aria-current=[is_current(cell).then_some("true")] {
                                (text(&cell.address))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn sidebar(visit: &Visit, current: Option<Screen>) -> Markup {
    html! {
        header.sidebar {
            (brand(&visit.url("/")))
            @if visit.app.is_cell() {
                (switcher(&visit.cells, Some(&visit.app), path_of(current)))
            }
            nav aria-label="Screens" {
                ul {
                    @for (screen, path, name, _) in SCREENS {
                        li {
                            a href=(visit.url(path))
                                aria-current=[(current == Some(screen)).then_some("page")] { (name) }
                        }
                    }
                }
            }
            div.foot {
                p.where {
                    span title="Database" { (text(&visit.rights.database)) }
                    span.quiet { "as " (text(&visit.rights.role)) }
                }
                @if visit.is_read_only { p.badge { "read-only" } }
                @if visit.rights.is_standby { p.badge { "standby" } }
                (theme_switch(visit, path_of(current)))
                div.links {
                    button #help-button.link type="button" hidden { "Shortcuts" }
                    @if visit.session.is_logged_in() {
                        (visit.form("/logout", html! { button.link type="submit" { "Log out" } }))
                    }
                }
            }
        }
    }
}

/// The theme switch. It returns to `screen` if the page has no GET address.
fn theme_switch(visit: &Visit, screen: &str) -> Markup {
    let now = visit.theme.map_or("auto", Theme::name);
    let fields = html! {
        input type="hidden" name="back" value=(visit.path.as_deref().unwrap_or(screen));
        fieldset.themes {
            legend.visually-hidden { "Theme" }
            @for (theme, label) in [("light", "Light"), ("dark", "Dark"), ("auto", "Auto")] {
                button name="theme" value=(theme) aria-pressed=((theme == now).to_string()) { (label) }
            }
        }
    };
    visit.form("/theme", fields)
}

fn path_of(screen: Option<Screen>) -> &'static str {
    let found = SCREENS.iter().find(|(one, ..)| screen == Some(*one));
    found.map_or("/", |(_, path, ..)| path)
}

fn help() -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keyboard shortcuts" }
            dl.keys {
                div { dt { kbd { "/" } } dd { "Go to the filter" } }
                div { dt { kbd { "?" } } dd { "Show shortcuts" } }
                @for (_, path, name, key) in SCREENS {
                    div data-key=(key) data-path=(path) {
                        dt { kbd { "g" } " " kbd { (key) } } dd { "Go to " (name) }
                    }
                }
            }
            form method="dialog" { button.button { "Close" } }
        }
    }
}

/// A page without navigation, before the login.
pub(crate) fn bare(app: &App, theme: Option<Theme>, title: &str, main: &Markup) -> Html<String> {
    document(app, theme, title, &html! { body.bare { main #main { (main) } } })
}

fn document(app: &App, theme: Option<Theme>, title: &str, body: &Markup) -> Html<String> {
    let asset = |name| app.url(&assets::path(name));
    let document = html! {
        (DOCTYPE)
        html lang="en" data-theme=[theme.map(Theme::name)] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content=(theme.map_or("light dark", Theme::name));
                meta name="robots" content="noindex";
                meta name="htmx-config" content=(HTMX);
                title { (visible::line(title)) " · jobs" }
                link rel="icon" href=(asset("icon.svg"));
                @for name in ["uplot.min.css", "console.css"] {
                    link rel="stylesheet" href=(asset(name));
                }
                @for name in ["htmx.min.js", "idiomorph-ext.min.js", "uplot.min.js", "console.js"] {
                    script defer src=(asset(name)) {}
                }
            }
            (body)
        }
    };
    Html(document.into_string())
}

/// Puts the frame around a problem. If the database refuses the role, its sessions end.
pub(crate) async fn framed(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let asked = parts.clone();
    let response = room::page(next.run(Request::from_parts(parts, body))).await;
    let Some(problem) = response.extensions().get::<Arc<Problem>>().cloned() else {
        return response;
    };
    if problem.is_refused_role()
        && let Some(session) = asked.extensions.get::<Arc<Session>>()
        && session.is_logged_in()
    {
        app.sessions.refuse(&session.role);
        return to_login(&app, &asked, true);
    }
    let theme = Theme::of(&asked.headers);
    let again = (asked.method == Method::GET && problem.retry_after.is_some())
        .then(|| asked.uri.path_and_query())
        .flatten();
    let main = html! {
        div.problem role="alert" { (problem.said()) }
        div.actions {
            @if let Some(path) = again {
                a.button.primary href=(app.url(path.as_str())) { "Try again" }
            }
            a.button href=(app.home()) { "Go to overview" }
        }
    };
    let page = match Visit::known(&asked, &app) {
        Some(visit) if visit.is_fragment => Html(problem.said().into_string()),
        Some(visit) => {
            let main = html! { h1 { (problem.title) } (main) };
            framed_page(&visit, None, problem.title, &main, false)
        }
        None => bare(&app, theme, problem.title, &html! { h1 { (problem.title) } (main) }),
    };
    let (mut head, _) = response.into_parts();
    head.headers.remove(header::CONTENT_TYPE);
    head.headers.remove(header::CONTENT_LENGTH);
    (head.status, head.headers, page).into_response()
}
