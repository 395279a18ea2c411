//! Tells open pages to refresh: on notifications of the database, and by a clock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::Config;

use super::connection::{Connection, Permit, Pool};
use super::problem::Problem;
use super::role::{PATIENCE, Role};
use super::session::Sessions;

/// The minimum time between two refreshes.
const PAUSE: Duration = Duration::from_secs(2);
/// Finishing a job sends no notification, so pages also refresh at this interval.
const TICK: Duration = Duration::from_secs(10);
/// The longest pause before it tries to listen again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

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
    /// Starts to listen, now that there is a role to listen as.
    pub(crate) fn begin(&self) {
        self.has_role.notify_one();
    }

    /// Tells pages soon that something has changed.
    pub(crate) fn changed(&self) {
        self.has_changed.notify_one();
    }

    /// The events for pages from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<&'static str> {
        self.events.subscribe()
    }

    fn say(&self, event: &'static str) {
        // There may be no subscriber.
        let _ = self.events.send(event);
    }

    /// Tells pages of changes while the console runs.
    pub(crate) async fn run(&self, process: Option<&Arc<Role>>, sessions: &Sessions, pool: &Pool) {
        tokio::join!(self.tell(), self.tick(), self.listen(process, sessions, pool));
    }

    async fn tell(&self) {
        loop {
            self.has_changed.notified().await;
            self.say("changed");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn tick(&self) {
        loop {
            tokio::time::sleep(TICK).await;
            self.say("tick");
        }
    }

    /// Listens as the role of the console, or with a login as one that is logged in: another one
    /// each time, as a password may have been changed since. Without notifications the clock is
    /// left.
    async fn listen(&self, process: Option<&Arc<Role>>, sessions: &Sessions, pool: &Pool) {
        let mut pause = PAUSE;
        for turn in 0.. {
            let Some((role, config, mut life)) = ear(process, sessions, turn) else {
                self.has_role.notified().await;
                continue;
            };
            let heard = tokio::select! {
                heard = self.hear(&config, pool) => heard,
                // No session has this role any more, so its connection ends.
                _ = life.changed() => Ok(true),
            };
            pause = next_pause(pause, matches!(heard, Ok(true)));
            if heard.is_err_and(|problem| problem.is_refused_role())
                && let Some(role) = role.upgrade()
            {
                sessions.refuse(&role);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Listens until the connection is lost. Returns whether it could.
    async fn hear(&self, config: &Config, pool: &Pool) -> Result<bool, Problem> {
        // One unread notification is enough.
        let (sender, mut heard) = mpsc::channel(1);
        let permit = pool.permit(Instant::now() + PATIENCE).await?;
        let listening = timeout(PATIENCE, listening(config, permit, sender)).await;
        let listening = listening.map_err(|_| Problem::no_answer())??;
        let Some(_connection) = listening else {
            return Ok(false);
        };
        while heard.recv().await.is_some() {
            self.changed();
        }
        Ok(true)
    }
}

/// The role to listen as, and its life: no longer than a session has the role.
fn ear(
    process: Option<&Arc<Role>>,
    sessions: &Sessions,
    turn: usize,
) -> Option<(Weak<Role>, Config, watch::Receiver<()>)> {
    let roles = match process {
        Some(role) => vec![role.clone()],
        None => sessions.roles(),
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
