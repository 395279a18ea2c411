//! What tells open pages to look again: notifications of the database, and a clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_postgres::Error;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;

use super::App;
use super::problem::Problem;
use super::role::Role;
use super::visit::Visit;

/// No two refreshes are closer to each other.
const PAUSE: Duration = Duration::from_secs(2);
/// Finishing a job notifies nobody, so pages look from time to time.
const TICK: Duration = Duration::from_secs(10);
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
    for turn in 0.. {
        let roles: Vec<_> = match &app.process {
            Some(role) => vec![role.clone()],
            None => app.sessions.roles(),
        };
        match roles.len() {
            0 => app.live.has_role.notified().await,
            all => drop(hear(&app.live, &roles[turn % all]).await),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Listens until the connection is lost.
async fn hear(live: &Live, role: &Role) -> Result<(), Error> {
    // One that has not been read yet is enough.
    let (sender, mut heard) = mpsc::channel(1);
    let hear = move |_| {
        let _ = sender.try_send(());
    };
    let client = postgres_jobs::connect_hearing(&role.config, hear).await?;
    client.batch_execute("listen jobs").await?;
    while heard.recv().await.is_some() {
        live.changed();
    }
    Ok(())
}

pub(super) async fn stream(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Problem> {
    let session = visit.session;
    let Ok(turn) = session.streams.clone().try_acquire_owned() else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many pages are open",
            "Those of this session refresh themselves no more than 20 at once. Close some.",
        ));
    };
    let events = BroadcastStream::new(app.live.events.subscribe());
    // A page that was too slow for some events gets the next one.
    let events = events.filter_map(Result::ok);
    let events = events.take_while(move |_| turn.num_permits() > 0 && app.sessions.has(&session));
    // A browser ignores an event without data.
    let events = events.map(|event| Ok::<_, Infallible>(Event::default().event(event).data("now")));
    let alive = KeepAlive::new().interval(ALIVE);
    Ok(Sse::new(events).keep_alive(alive).into_response())
}
