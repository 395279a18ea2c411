//! Statements, on the caller's connection or on one of a worker.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::select;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, GenericClient};
use tokio_util::sync::CancellationToken;

use crate::ClientError;
use crate::connect::{cancel, connect};

/// The rows of a statement, each a text.
type Rows = Result<Vec<String>, ClientError>;

/// A connection or transaction of the caller: `&Client` or `&Transaction` of `tokio_postgres`, and
/// with the feature `sqlx` `&mut PgConnection`, as which `&mut *transaction` gives a transaction.
pub trait Executor: Send {
    /// Runs a statement of this library, whose parameters are texts.
    #[doc(hidden)]
    fn rows(&mut self, sql: &'static str, of: &[&str]) -> impl Future<Output = Rows> + Send;
}

impl<C: GenericClient + Sync> Executor for &C {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Rows {
        let typed = |text| (text as &(dyn ToSql + Sync), Type::TEXT);
        let parameters: Vec<_> = of.iter().map(typed).collect();
        let rows = self.query_typed(sql, &parameters).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

#[cfg(feature = "sqlx")]
impl Executor for &mut sqlx::PgConnection {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Rows {
        let query = sqlx::query_scalar(sql);
        let query = of.iter().fold(query, |query, text| query.bind(*text));
        Ok(query.fetch_all(&mut **self).await?)
    }
}

/// A value as JSON. No jsonb holds more than this, and what is longer than a message to the server
/// can be would cost the connection.
pub(crate) fn json(value: &impl Serialize) -> Result<Box<RawValue>, ClientError> {
    let json = to_raw_value(value)?;
    match json.get().len() {
        ..0x1000_0000 => Ok(json),
        length => Err(ClientError::text(format!("its JSON has {length} bytes"))),
    }
}

/// A text that Postgres reads as an array.
pub(crate) fn array(values: impl IntoIterator<Item: ToString>) -> String {
    let escaped = |text: String| text.replace('\\', r"\\").replace('"', "\\\"");
    let quoted = values
        .into_iter()
        .map(|value| format!("\"{}\"", escaped(value.to_string())));
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

/// One of a worker's connections, made anew when it breaks.
pub(crate) struct Link {
    config: Config,
    client: Option<Client>,
    /// Once it is cancelled, nothing is repeated.
    until: CancellationToken,
}

impl Link {
    pub(crate) fn new(config: &Config, until: CancellationToken) -> Self {
        let config = config.clone();
        Self {
            config,
            client: None,
            until,
        }
    }

    /// Runs a statement, again and again while there is no connection, or it is refused for a
    /// reason that passes.
    pub(crate) async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Rows {
        for failures in 0.. {
            let error = match self.once(sql, of).await {
                Err(error) if self.passes(&error) => error,
                result => return result,
            };
            if self.until.is_cancelled() {
                return Err(error);
            }
            let pause = back_off(failures);
            tracing::warn!(%error, ?pause, "the database cannot be used, trying again");
            select! { _ = tokio::time::sleep(pause) => {}, _ = self.until.cancelled() => {} }
        }
        unreachable!("there are endless numbers")
    }

    /// Runs a statement that waits. Whatever ends it, as a `statement_timeout` does, wakes us.
    pub(crate) async fn wait(&mut self, sql: &'static str, of: &[&str]) -> Result<(), ClientError> {
        match self.once(sql, of).await {
            Err(error) if !self.passes(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn once(&mut self, sql: &'static str, of: &[&str]) -> Rows {
        self.connected().await?.rows(sql, of).await
    }

    /// Whether the reason of an error passes. If it is the connection, the next one is another.
    fn passes(&mut self, error: &ClientError) -> bool {
        let is_rivalry = error.is(RIVALRY);
        let is_lost = self.client.is_none() || error.code().is_none() || error.is(PASSING);
        if is_lost && !is_rivalry {
            self.client = None;
        }
        is_lost || is_rivalry
    }

    async fn connected(&mut self) -> Result<&Client, ClientError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            let client = select! {
                client = connect(&self.config) => client?,
                _ = self.until.cancelled() => return Err(ClientError::text("stopped")),
            };
            return Ok(self.client.insert(client));
        }
        Ok(self.client.as_ref().expect("connected"))
    }

    /// Ends the statement that is under way, which nobody waits for any more.
    pub(crate) async fn cancel(&mut self) {
        if let Some(client) = self.client.take() {
            let cancelling = cancel(&self.config, client.cancel_token());
            let _ = tokio::time::timeout(Duration::from_secs(1), cancelling).await;
        }
    }
}

/// The server ends the connection, cannot take one more, is short of something, or is a standby.
const PASSING: &[&str] = &[
    "08", "25006", "53", "57P01", "57P02", "57P03", "57P04", "57P05",
];
/// Others are at the same rows, for too long for a `statement_timeout`. The connection is good.
const RIVALRY: &[&str] = &["40P01", "40001", "55P03", "57014"];

/// How long to wait after so many failures in a row.
pub(crate) fn back_off(failures: u32) -> Duration {
    let seconds = 0.1 * f64::from(1 << failures.min(7));
    Duration::from_secs_f64(seconds.min(10.0) * (0.75 + 0.5 * (random() as f64 / u64::MAX as f64)))
}

/// A random number, good enough for names and pauses.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
