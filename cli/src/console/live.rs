//! What tells open pages to look again: notifications of the database, and a clock.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_postgres::Error;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;

use super::App;
use super::problem::Problem;
use super::role::{Role, locked};
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
    /// As whom the console listens: the first role that there is.
    role: Mutex<Option<Arc<Role>>>,
    has_role: Notify,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            events: broadcast::Sender::new(4),
            has_changed: Notify::new(),
            role: Mutex::default(),
            has_role: Notify::new(),
        }
    }
}

impl Live {
    /// Listens as this role, unless there is one.
    pub(crate) fn offer(&self, role: &Arc<Role>) {
        locked(&self.role).get_or_insert_with(|| role.clone());
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
    tokio::join!(tell(&app.live), tick(&app.live), listen(&app.live));
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

async fn listen(live: &Live) {
    loop {
        let role = locked(&live.role).clone();
        let Some(role) = role else {
            live.has_role.notified().await;
            continue;
        };
        if hear(live, &role).await.is_err() {
            // That is two: a role that no session has any more. The next one that logs in may do
            // better.
            locked(&live.role).take_if(|taken| Arc::strong_count(taken) <= 2);
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

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/live", get(stream))
}

async fn stream(State(app): State<Arc<App>>, _: Visit) -> Result<Response, Problem> {
    let events = BroadcastStream::new(app.live.events.subscribe());
    // A page that was too slow for some events gets the next one.
    let events = events.filter_map(Result::ok);
    // A browser ignores an event without data.
    let events = events.map(|event| Ok::<_, Infallible>(Event::default().event(event).data("now")));
    let alive = KeepAlive::new().interval(ALIVE);
    Ok(Sse::new(events).keep_alive(alive).into_response())
}
