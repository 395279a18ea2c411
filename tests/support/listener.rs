//! A session that listens to what is notified.

use std::future::poll_fn;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::{Cluster, SOON, run};

/// Its session lives as long as it does.
pub struct Listener {
    received: UnboundedReceiver<(String, String)>,
    _client: Client,
}

impl Listener {
    /// Listens in a database from now on.
    pub async fn new(cluster: &Cluster, database: &str) -> Listener {
        let config = cluster.config().dbname(database).clone();
        let (client, mut connection) = config.connect(NoTls).await.expect("connecting");
        let (sender, received) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(message) = message {
                    let _ = sender.send((message.channel().into(), message.payload().into()));
                }
            }
        });
        run(&client, "listen jobs").await;
        Listener { received, _client: client }
    }

    /// The next payload.
    pub async fn next(&mut self) -> String {
        let next = tokio::time::timeout(SOON, self.received.recv()).await;
        let (channel, payload) = next.expect("a notification").expect("the session lives");
        assert_eq!(channel, "jobs");
        payload
    }
}
