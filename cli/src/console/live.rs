//! What tells open pages to look again: notifications of the database, and a clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;

use super::App;
use super::problem::Problem;
use super::role::PATIENCE;
use super::visit::Visit;

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
        let Some((config, mut life)) = ear(app, turn) else {
            app.live.has_role.notified().await;
            continue;
        };
        let has_heard = tokio::select! {
            has_heard = hear(&app.live, &config) => has_heard,
            // Nobody is left who has this role, so its connection ends.
            _ = life.changed() => true,
        };
        pause = next_pause(pause, has_heard);
        tokio::time::sleep(pause).await;
    }
}

/// As whom to listen, and for how long: no longer than somebody has the role.
fn ear(app: &App, turn: usize) -> Option<(Config, watch::Receiver<()>)> {
    let roles = match &app.process {
        Some(role) => vec![role.clone()],
        None => app.sessions.roles(),
    };
    let role = roles.get(turn.checked_rem(roles.len())?)?;
    Some((role.config.clone(), role.life()))
}

fn next_pause(pause: Duration, has_heard: bool) -> Duration {
    match has_heard {
        true => PAUSE,
        false => LONGEST_PAUSE.min(pause * 2),
    }
}

/// Listens until the connection is lost. Whether it could.
async fn hear(live: &Live, config: &Config) -> bool {
    // One that has not been read yet is enough.
    let (sender, mut heard) = mpsc::channel(1);
    let Ok(Ok(Some(_client))) = timeout(PATIENCE, listening(config, sender)).await else {
        return false;
    };
    while heard.recv().await.is_some() {
        live.changed();
    }
    true
}

/// A connection that listens. A standby tells nothing, and would have an error in its log for each
/// time that it is asked to.
async fn listening(config: &Config, heard: mpsc::Sender<()>) -> Result<Option<Client>, Error> {
    let hear = move |_| {
        let _ = heard.try_send(());
    };
    let client = postgres_jobs::connect_hearing(config, hear).await?;
    let is_standby = "select pg_catalog.pg_is_in_recovery()";
    if client.query_one(is_standby, &[]).await?.get(0) {
        return Ok(None);
    }
    client.batch_execute("listen jobs").await?;
    Ok(Some(client))
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
