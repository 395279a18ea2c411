//! A connection to the database, which is closed when it serves no more.

use std::ops::Deref;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, Notification};

/// How long a connection has to take leave of the server. While that owes an answer it is not
/// closed by itself, and a server that is silent owes it for ever.
const LEAVE: Duration = Duration::from_secs(3);

pub(crate) struct Connection {
    client: Client,
    messages: JoinHandle<()>,
    opened: Instant,
}

impl Connection {
    pub(crate) async fn open(config: &Config) -> Result<Self, Error> {
        Self::hearing(config, |_| {}).await
    }

    /// What hears the notifications is dropped when the connection is lost.
    pub(crate) async fn hearing(
        config: &Config,
        heard: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Self, Error> {
        let (client, messages) = postgres_jobs::connect_hearing(config, heard).await?;
        let opened = Instant::now();
        Ok(Self {
            client,
            messages,
            opened,
        })
    }

    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let messages = self.messages.abort_handle();
        tokio::spawn(async move {
            tokio::time::sleep(LEAVE).await;
            messages.abort();
        });
    }
}
