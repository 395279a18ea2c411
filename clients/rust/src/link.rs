//! Connections to the database.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[cfg(not(feature = "tls"))]
use tokio_postgres::NoTls;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Notification, Row, Socket, Statement};
use tokio_util::task::AbortOnDropHandle;

use crate::error::shown;

/// Connects as workers do: with TLS, if the feature `tls` is there, unless the configuration says
/// `sslmode=disable`. The server's certificate must be one that the system trusts, unless it says
/// `sslmode=prefer`, the default. Then the connection is not encrypted where it is not.
///
/// # Errors
/// There is no such server, or it does not let us in.
pub async fn connect(config: &Config) -> Result<Client, Error> {
    connect_hearing(config, |_| {}).await
}

/// Connects as [`connect`] does, for a client that is to `LISTEN`. What hears the notifications is
/// dropped when the connection is lost.
///
/// # Errors
/// As [`connect`].
pub async fn connect_hearing(
    config: &Config,
    heard: impl FnMut(Notification) + Send + 'static,
) -> Result<Client, Error> {
    let (client, connection) = open(config).await?;
    serve(connection, heard).detach();
    Ok(client)
}

/// What carries a client's messages.
type Connection = tokio_postgres::Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

async fn open(config: &Config) -> Result<(Client, Connection), Error> {
    let is_preferred = config.get_ssl_mode() == SslMode::Prefer;
    match open_by(config).await {
        Err(error) if is_preferred && error.code().is_none() => {
            open_by(config.clone().ssl_mode(SslMode::Disable)).await
        }
        opened => opened,
    }
}

async fn open_by(config: &Config) -> Result<(Client, Connection), Error> {
    config.connect(tls(config)).await
}

/// Carries messages until the client or the handle is dropped.
fn serve(
    mut connection: Connection,
    mut heard: impl FnMut(Notification) + Send + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(notification)) => heard(notification),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "connection lost");
                    return;
                }
            }
        }
    }))
}

#[cfg(feature = "tls")]
type Tls = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "tls"))]
type Tls = NoTls;

#[cfg(feature = "tls")]
fn tls(config: &Config) -> Tls {
    let mut roots = rustls::RootCertStore::empty();
    if config.get_ssl_mode() != SslMode::Disable {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Tls::new(config)
}

#[cfg(not(feature = "tls"))]
fn tls(_: &Config) -> Tls {
    NoTls
}

/// A parameter of a statement, with its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// One of a worker's connections, made anew when it breaks.
pub(crate) struct Link {
    config: Config,
    /// Whether statements are prepared.
    prepares: bool,
    /// A client, and its connection, which is closed when that is dropped.
    opened: Option<(Client, AbortOnDropHandle<()>)>,
    prepared: HashMap<&'static str, Statement>,
    /// How many calls have failed since one succeeded.
    pub(crate) failures: u32,
}

impl Link {
    pub(crate) fn new(config: &Config, prepares: bool) -> Self {
        Self {
            config: config.clone(),
            prepares,
            opened: None,
            prepared: HashMap::new(),
            failures: 0,
        }
    }

    /// Runs a statement. If its connection does not serve any more, the next one has another.
    pub(crate) async fn rows(
        &mut self,
        sql: &'static str,
        of: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let result = self.once(sql, of).await;
        if result.is_ok() {
            self.failures = 0;
        }
        if let Err(error) = &result {
            // A pooler gives each statement another session, or the extension is another one now.
            let is_lost = is(error, &["26000", "42P05", "0A000"]) && self.prepares;
            self.prepares &= !is_lost;
            if is_lost || error.code().is_none() || is(error, GONE) {
                self.opened = None;
            }
        }
        result
    }

    async fn once(&mut self, sql: &'static str, of: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.open().await?;
        let (client, _) = self.opened.as_ref().expect("it is open");
        if !self.prepares {
            return client.query_typed(sql, of).await;
        }
        if !self.prepared.contains_key(sql) {
            let types: Vec<_> = of.iter().map(|(_, of)| of.clone()).collect();
            let prepared = client.prepare_typed(sql, &types).await?;
            self.prepared.insert(sql, prepared);
        }
        let values: Vec<_> = of.iter().map(|(value, _)| *value).collect();
        client.query(&self.prepared[sql], &values).await
    }

    /// Connects, unless it has.
    pub(crate) async fn open(&mut self) -> Result<(), Error> {
        if self
            .opened
            .as_ref()
            .is_none_or(|(client, _)| client.is_closed())
        {
            self.opened = None;
            self.prepared.clear();
            let (client, connection) = open(&self.config).await?;
            self.opened = Some((client, serve(connection, |_| {})));
        }
        Ok(())
    }

    /// Runs a statement that waits. Whatever ends it, as a `statement_timeout` does, wakes us.
    pub(crate) async fn wait(&mut self, sql: &'static str, of: &[Parameter<'_>]) {
        match self.rows(sql, of).await {
            Err(error) if !is(&error, &["57014"]) => self.pause(&error).await,
            _ => {}
        }
    }

    /// Waits before a call is repeated: the longer the more have failed.
    pub(crate) async fn pause(&mut self, error: &Error) {
        let pause = back_off(self.failures);
        self.failures += 1;
        let error = shown(error);
        tracing::warn!(error, ?pause, "a call has failed and is repeated");
        tokio::time::sleep(pause).await;
    }

    /// Whether the statement that has failed so may succeed if it is repeated.
    pub(crate) fn passes(&self, error: &Error) -> bool {
        self.opened.is_none() || is(error, RIVALRY)
    }
}

/// Whether an error has a SQLSTATE that begins with one of these.
pub(crate) fn is(error: &Error, codes: &[&str]) -> bool {
    let has = |code: &str| codes.iter().any(|class| code.starts_with(class));
    error.code().is_some_and(|code| has(code.code()))
}

/// The server ends the connection, cannot take one more, is short of something, or is a standby.
const GONE: &[&str] = &[
    "08", "25006", "53", "57P01", "57P02", "57P03", "57P04", "57P05",
];
/// Others are at the same rows, for too long for a `statement_timeout`. The connection is good.
const RIVALRY: &[&str] = &["40P01", "40001", "55P03", "57014"];

/// How long to wait after so many failures in a row.
fn back_off(failures: u32) -> Duration {
    let seconds = 0.1 * f64::from(1 << failures.min(7));
    Duration::from_secs_f64(seconds.min(10.0) * (0.75 + 0.5 * (random() as f64 / u64::MAX as f64)))
}

/// A random number, good enough for names and pauses.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
