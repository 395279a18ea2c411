//! What tells open pages to look again: notifications of the database, and a clock.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::Config;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

use super::App;
use super::connection::{Connection, Permit};
use super::problem::Problem;
use super::role::{PATIENCE, Role};
use super::session::{Session, login_url};
use super::visit::Query;

/// No two refreshes are closer to each other.
const PAUSE: Duration = Duration::from_secs(2);
/// Finishing a job notifies nobody, so pages look from time to time.
const TICK: Duration = Duration::from_secs(10);
/// Where nothing tells of changes, it is tried again so late in the end.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a comment shows proxies that a stream is alive.
const ALIVE: Duration = Duration::from_secs(15);

pub(crate) struct Live {
    events: broadcast::Sender<&'static str>,
    has_changed: Notify,
    has_role: Notify,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            events: broadcast::Sender::new(4),
            has_changed: Notify::new(),
            has_role: Notify::new(),
        }
    }
}

impl Live {
    /// Listens, now that there is a role to listen as.
    pub(crate) fn begin(&self) {
        self.has_role.notify_one();
    }

    /// Tells pages soon that something has changed.
    pub(crate) fn changed(&self) {
        self.has_changed.notify_one();
    }

    fn say(&self, event: &'static str) {
        // Nobody may be there to hear it.
        let _ = self.events.send(event);
    }
}

/// Tells pages, for as long as the console runs.
pub(crate) async fn run(app: Arc<App>) {
    tokio::join!(tell(&app.live), tick(&app.live), listen(&app));
}

async fn tell(live: &Live) {
    loop {
        live.has_changed.notified().await;
        live.say("changed");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn tick(live: &Live) {
    loop {
        tokio::time::sleep(TICK).await;
        live.say("tick");
    }
}

/// Listens as the role of the console, or with a login as one that is logged in: another one each
/// time, as a password may have been changed since. Without notifications the clock is left.
async fn listen(app: &App) {
    let mut pause = PAUSE;
    for turn in 0.. {
        let Some((role, config, mut life)) = ear(app, turn) else {
            app.live.has_role.notified().await;
            continue;
        };
        let heard = tokio::select! {
            heard = hear(app, &config) => heard,
            // Nobody is left who has this role, so its connection ends.
            _ = life.changed() => Ok(true),
        };
        pause = next_pause(pause, matches!(heard, Ok(true)));
        if heard.is_err_and(|problem| problem.is_refused_role())
            && let Some(role) = role.upgrade()
        {
            app.sessions.refuse(&role);
        }
        tokio::time::sleep(pause).await;
    }
}

/// As whom to listen, and for how long: no longer than somebody has the role.
fn ear(app: &App, turn: usize) -> Option<(Weak<Role>, Config, watch::Receiver<()>)> {
    let roles = match &app.process {
        Some(role) => vec![role.clone()],
        None => app.sessions.roles(),
    };
    let role = roles.get(turn.checked_rem(roles.len())?)?;
    Some((Arc::downgrade(role), role.config.clone(), role.life()))
}

fn next_pause(pause: Duration, has_heard: bool) -> Duration {
    match has_heard {
        true => PAUSE,
        false => LONGEST_PAUSE.min(pause * 2),
    }
}

/// Listens until the connection is lost. Whether it could.
async fn hear(app: &App, config: &Config) -> Result<bool, Problem> {
    // One that has not been read yet is enough.
    let (sender, mut heard) = mpsc::channel(1);
    let permit = app.pool.permit(Instant::now() + PATIENCE).await?;
    let listening = timeout(PATIENCE, listening(config, permit, sender)).await;
    let listening = listening.map_err(|_| Problem::no_answer())??;
    let Some(_connection) = listening else {
        return Ok(false);
    };
    while heard.recv().await.is_some() {
        app.live.changed();
    }
    Ok(true)
}

/// A connection that listens. A standby tells nothing, and would have an error in its log for each
/// time that it is asked to.
async fn listening(
    config: &Config,
    permit: Permit,
    heard: mpsc::Sender<()>,
) -> Result<Option<Connection>, Problem> {
    let hear = move |_| {
        let _ = heard.try_send(());
    };
    let connection = Connection::hearing(config, permit, hear).await?;
    let is_standby = "select pg_catalog.pg_is_in_recovery()";
    if connection.query_one(is_standby, &[]).await?.get(0) {
        return Ok(None);
    }
    connection.batch_execute("listen jobs").await?;
    Ok(Some(connection))
}

/// The page that listens.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Page {
    /// Where somebody goes on after a login.
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
            "Too many pages are open",
            "No more than 20 of a session hear of changes. Close some.",
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
    let mut heard = app.live.events.subscribe();
    loop {
        let event = match heard.recv().await {
            Ok(event) => event,
            // A page that was too slow for some events gets the next one.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        // Pages find out by themselves, but one with a form asks for nothing.
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

/// Whether the database lets a role in no more. What it has said is known for a minute.
async fn is_refused(role: &Role) -> bool {
    let rights = role.rights().await;
    rights.is_err_and(|problem| problem.is_refused_role())
}

fn over(app: &App, page: &Page, is_refused: bool) -> Event {
    let login = login_url(app, &page.next, is_refused);
    Event::default().event("login").data(login)
}

/// What a page hears whose session is over.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_tells_of_is_asked_for_ever_later() {
        let mut pause = PAUSE;
        let mut pauses = Vec::new();
        for has_heard in [false, false, false, false, false, false, true, false] {
            pause = next_pause(pause, has_heard);
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [4, 8, 16, 32, 60, 60, 2, 4]);
    }
}
