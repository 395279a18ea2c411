//! Connections to the database: their total number, and the idle ones.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Client, Config, Error, Notification};

use super::problem::Problem;

/// How long a connection has to close. It does not close by itself while the server owes an answer,
/// and a silent server owes it forever.
const LEAVE: Duration = Duration::from_secs(3);
/// The maximum age of a connection for another statement: the role may have lost access.
const AGE: Duration = Duration::from_secs(60);

/// Nothing that holds one of these locks panics half way.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection with its permit.
pub(crate) struct Connection {
    client: Client,
    messages: Option<JoinHandle<()>>,
    permit: Option<Permit>,
    opened: Instant,
}

/// Permits one connection.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Connection {
    pub(crate) async fn open(config: &Config, permit: Permit) -> Result<Self, Error> {
        Self::hearing(config, permit, |_| {}).await
    }

    /// The function that gets the notifications is dropped when the connection is lost.
    pub(crate) async fn hearing(
        config: &Config,
        permit: Permit,
        heard: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self, Error> {
        let (client, messages) = postgres_jobs::connect_hearing(config, heard).await?;
        Ok(Self { client, messages: Some(messages), permit: Some(permit), opened: Instant::now() })
    }

    fn serves(&self) -> bool {
        self.opened.elapsed() < AGE && !self.is_closed()
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Releases the permit once the connection is closed.
impl Drop for Connection {
    fn drop(&mut self) {
        let (Some(mut messages), permit) = (self.messages.take(), self.permit.take()) else {
            return;
        };
        tokio::spawn(async move {
            if timeout(LEAVE, &mut messages).await.is_err() {
                messages.abort();
            }
            drop(permit);
        });
    }
}

/// All connections of the console, whichever role they are of.
pub(crate) struct Pool {
    most: usize,
    permits: Arc<Semaphore>,
    /// Idle ones, by the number of their role, the oldest first.
    idle: Mutex<Vec<(u64, Connection)>>,
    /// How many wait for a permit.
    waiting: AtomicUsize,
    roles: AtomicU64,
}

impl Pool {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            permits: Arc::new(Semaphore::new(most)),
            idle: Mutex::default(),
            waiting: AtomicUsize::new(0),
            roles: AtomicU64::new(0),
        })
    }

    /// A number for one more role.
    pub(crate) fn number(&self) -> u64 {
        self.roles.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until one more connection is permitted. An idle one is closed for it.
    pub(crate) async fn permit(&self, until: Instant) -> Result<Permit, Problem> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        // Counted before it looks, so that no connection becomes idle unnoticed.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(&self.waiting);
        let oldest = {
            let mut idle = locked(&self.idle);
            (!idle.is_empty()).then(|| idle.remove(0))
        };
        drop(oldest);
        let permit = timeout_at(until, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| Problem::all_busy(self.most))?;
        Ok(permit.expect("it is never closed"))
    }

    /// An idle connection of a role.
    pub(crate) fn take(&self, role: u64) -> Option<Connection> {
        let mut idle = locked(&self.idle);
        let last = idle.iter().rposition(|(of, _)| *of == role)?;
        let (_, connection) = idle.remove(last);
        Some(connection).filter(Connection::serves)
    }

    /// Keeps a connection for the next statement of its role, unless another role waits.
    pub(crate) fn keep(&self, role: u64, connection: Connection) {
        let mut idle = locked(&self.idle);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            idle.push((role, connection));
        }
    }

    /// Closes the idle connections of a role.
    pub(crate) fn close(&self, role: u64) {
        locked(&self.idle).retain(|(of, _)| *of != role);
    }

    /// Closes connections that are too old or broken.
    pub(crate) fn tidy(&self) {
        locked(&self.idle).retain(|(_, connection)| connection.serves());
    }
}

struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_connection_for_too_long_is_told_so() {
        let pool = Pool::new(2);
        let soon = || Instant::now() + Duration::from_millis(50);
        let first = pool.permit(soon()).await.expect("there are two");
        let _second = pool.permit(soon()).await.expect("there are two");
        let refused = pool.permit(soon()).await.expect_err("there are two");
        assert!(refused.line().contains("All 2 database connections"), "{}", refused.line());
        assert_eq!(pool.waiting.load(Ordering::SeqCst), 0);
        let later = Instant::now() + Duration::from_secs(60);
        let (third, ()) = tokio::join!(pool.permit(later), async { drop(first) });
        assert!(third.is_ok());
    }
}
