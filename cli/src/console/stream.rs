//! The events for an open page: something has changed, or its session has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

use super::app::App;
use super::problem::Problem;
use super::role::Role;
use super::session::Session;
use super::visit::Query;

/// How often a comment shows proxies that a stream is alive.
const ALIVE: Duration = Duration::from_secs(15);

/// The page that listens.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Page {
    /// The page to return to after a login.
    next: String,
}

pub(super) async fn stream(
    State(app): State<Arc<App>>,
    Extension(session): Extension<Arc<Session>>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let Ok(turn) = session.streams.clone().try_acquire_owned() else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many open pages",
            "At most 20 pages of a session receive live updates. Close some.",
        ));
    };
    let (sender, told) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = tell_page(&app, &session, &page, &sender) => {}
            () = sender.closed() => {}
        }
        drop(turn);
    });
    Ok(events(ReceiverStream::new(told)))
}

/// Tells a page of changes and, once its session is over, where to log in.
async fn tell_page(app: &App, session: &Session, page: &Page, told: &mpsc::Sender<Event>) {
    let mut heard = app.live.events();
    loop {
        let event = match heard.recv().await {
            Ok(event) => event,
            // A page that was too slow for some events gets the next one.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        // A page that refreshes notices this itself, but a page with a form does not.
        if session.is_logged_in() && is_refused(&session.role).await {
            app.sessions.refuse(&session.role);
        }
        let is_over = !app.sessions.has(session);
        let event = match is_over {
            true => over(app, page, app.sessions.was_refused(&session.id)),
            // A browser ignores an event without data.
            false => Event::default().event(event).data("now"),
        };
        if told.send(event).await.is_err() || is_over {
            return;
        }
    }
}

/// Whether the database no longer accepts a role. Its answer is cached for a minute.
async fn is_refused(role: &Role) -> bool {
    let rights = role.rights().await;
    rights.is_err_and(|problem| problem.is_refused_role())
}

fn over(app: &App, page: &Page, is_refused: bool) -> Event {
    let login = app.login_url(&page.next, is_refused);
    Event::default().event("login").data(login)
}

/// The event for a page whose session has ended.
pub(super) fn ended(app: &App, asked: &Uri, is_refused: bool) -> Response {
    let page = serde_urlencoded::from_str(asked.query().unwrap_or_default());
    let event = over(app, &page.unwrap_or_default(), is_refused);
    events(tokio_stream::once(event))
}

fn events(all: impl Stream<Item = Event> + Send + 'static) -> Response {
    let alive = KeepAlive::new().interval(ALIVE);
    let all = Sse::new(all.map(Ok::<_, Infallible>));
    all.keep_alive(alive).into_response()
}
