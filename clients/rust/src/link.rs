//! Connections to the database.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use futures_util::TryStreamExt;
#[cfg(feature = "tls")]
use rustls::RootCertStore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Notification, Row, Statement};
use tokio_util::task::AbortOnDropHandle;

use crate::executor::{Executor, texts, typed};
use crate::{ClientError, Result};

/// Connects as workers do: with TLS, if the feature `tls` is enabled, unless the configuration has
/// `sslmode=disable`. The server's certificate must be trusted by the system or by `trust`. With
/// `sslmode=prefer`, the default, a connection to an untrusted server is not encrypted.
///
/// # Errors
/// The server cannot be reached, or refuses the connection.
pub async fn connect(config: &Config) -> Result<Client, Error> {
    Ok(connect_hearing(config, |_| {}).await?.0)
}

/// Connects as [`connect`] does, for a client that uses `LISTEN`. The function that gets the
/// notifications is dropped when the connection is lost.
///
/// The task carries the messages. It ends after the client is dropped and the server has answered.
/// Abort it if the server may never answer.
///
/// # Errors
/// Those of [`connect`].
pub async fn connect_hearing(
    config: &Config,
    mut heard: impl FnMut(Notification) + Send + 'static,
) -> Result<(Client, JoinHandle<()>), Error> {
    #[cfg(not(feature = "tls"))]
    let tls = |_: &Config| tokio_postgres::NoTls;
    let mut connected = config.connect(tls(config)).await;
    if let Err(error) = &connected
        && error.code().is_none()
        && config.get_ssl_mode() == SslMode::Prefer
    {
        let mut plain = config.clone();
        plain.ssl_mode(SslMode::Disable);
        connected = plain.connect(tls(&plain)).await;
    }
    let (client, mut connection) = connected?;
    let messages = async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(notification)) => heard(notification),
                Ok(_) => {}
                Err(error) => return tracing::debug!(%error, "connection lost"),
            }
        }
    };
    Ok((client, tokio::spawn(messages)))
}

/// The trusted certificates, or none for the system's.
#[cfg(feature = "tls")]
static TRUSTED: std::sync::RwLock<RootCertStore> =
    std::sync::RwLock::new(RootCertStore { roots: Vec::new() });

/// Trusts only the certificates of a PEM file, in all later connections of this process.
///
/// # Errors
/// The file cannot be read, or has no certificate.
#[cfg(feature = "tls")]
pub fn trust(file: &std::path::Path) -> io::Result<()> {
    let found = rustls_native_certs::load_certs_from_paths(Some(file), None);
    if let Some(error) = found.errors.into_iter().next() {
        return Err(io::Error::other(error));
    }
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        return Err(io::Error::other("the file has no certificate"));
    }
    *TRUSTED.write().expect("no panic") = roots;
    Ok(())
}

#[cfg(feature = "tls")]
fn tls(config: &Config) -> tokio_postgres_rustls::MakeRustlsConnect {
    let mut roots = TRUSTED.read().expect("no panic").clone();
    if roots.is_empty() && config.get_ssl_mode() != SslMode::Disable {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tokio_postgres_rustls::MakeRustlsConnect::new(config)
}

/// A connection of a worker, which reconnects when it breaks.
pub(crate) struct Link {
    config: Config,
    /// Whether statements are prepared.
    prepares: bool,
    /// A connection without an answer for this long counts as broken.
    patience: Duration,
    /// How long connecting may take.
    connecting: Duration,
    /// A client, its messages, and the statements that it has prepared.
    pub(crate) opened: Option<(Client, AbortOnDropHandle<()>, HashMap<&'static str, Statement>)>,
    /// How many calls have failed since the last complete round: a fetch or beat and
    /// its wait, or results or progress.
    pub(crate) failures: u32,
    /// Whether a call has succeeded.
    pub(crate) has_worked: bool,
}

impl Executor for Link {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<String>> {
        texts(self.run(sql, of).await?)
    }
}

impl Link {
    pub(crate) fn new(config: Config, prepares: bool, patience: Duration) -> Self {
        // Each host has its turn, though a call may have less time. A turn ends when the socket is
        // open: a server that accepts and then stays silent is left when all turns are over.
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()) as u32;
        let turn = config.get_connect_timeout().copied().unwrap_or_default();
        let turns = turn.saturating_mul(hosts).saturating_add(Duration::from_secs(5));
        let connecting = patience.max(turns);
        Self {
            config,
            prepares,
            patience,
            connecting,
            opened: None,
            failures: 0,
            has_worked: false,
        }
    }

    /// Runs a statement. If its connection is broken, the next statement gets a new one.
    pub(crate) async fn run(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<Row>> {
        let rows = self.once(sql, of).await;
        match &rows {
            Ok(_) => self.has_worked = true,
            Err(error) if error.is(UNPREPARED) => (self.opened, self.prepares) = (None, false),
            Err(error) if is_gone(error) => self.opened = None,
            Err(_) => {}
        }
        rows
    }

    /// Connects if necessary. It can be abandoned, since no statement has been sent.
    pub(crate) async fn open(&mut self) -> Result<()> {
        self.opened.take_if(|(client, ..)| client.is_closed());
        if self.opened.is_none() {
            let connected = timeout(self.connecting, connect_hearing(&self.config, |_| {})).await;
            let (client, messages) = connected.map_err(io::Error::from)??;
            self.opened = Some((client, AbortOnDropHandle::new(messages), HashMap::new()));
        }
        Ok(())
    }

    async fn once(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<Row>> {
        self.open().await?;
        let (client, _, prepared) = self.opened.as_mut().expect("it is open");
        let answer = async {
            if !self.prepares {
                return client.query_typed(sql, &typed(of)).await;
            }
            if !prepared.contains_key(sql) {
                let types = vec![Type::TEXT; of.len()];
                prepared.insert(sql, client.prepare_typed(sql, &types).await?);
            }
            client.query_raw(&prepared[sql], of).await?.try_collect().await
        };
        let answer = timeout(self.patience, answer).await;
        Ok(answer.map_err(io::Error::from)??)
    }

    /// Runs a statement that waits. Whatever ends it, such as a `statement_timeout`, wakes the
    /// caller.
    pub(crate) async fn wait(&mut self, sql: &'static str, of: &[&str]) {
        match self.run(sql, of).await {
            Err(error) if !error.is(&["57014"]) => self.pause("wait", &error).await,
            // The call before the wait has succeeded too.
            _ => self.failures = 0,
        }
    }

    /// Pauses before a call is repeated, longer after each failure.
    pub(crate) async fn pause(&mut self, call: &str, error: &ClientError) {
        sleep(self.failed(call, error)).await;
    }

    /// Logs a failed call, and returns the pause before it is repeated.
    pub(crate) fn failed(&mut self, call: &str, error: &ClientError) -> Duration {
        let pause = back_off(self.failures);
        self.failures += 1;
        let text = error.to_string().replace('\n', " ");
        if self.passes(error) {
            tracing::warn!(error = %text, ?pause, "call failed, retrying");
        } else {
            tracing::error!(error = %text, ?pause, "{call} refused, retrying");
        }
        pause
    }

    /// Whether a repetition of the failed statement may succeed.
    pub(crate) fn passes(&self, error: &ClientError) -> bool {
        self.opened.is_none() || error.is(RIVALRY)
    }
}

/// The time limit of a call that does not wait. No wait for jobs is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The server ends the connection, or is a standby.
const GONE: &[&str] = &["08", "25006", "57P0"];
/// Conflicts over rows, up to a `statement_timeout`, and cells that do not take the jobs. The
/// connection is intact.
const RIVALRY: &[&str] = &["40P01", "40001", "55P03", "57014", "JB001"];
/// A pooler gives each statement another session, or the extension has changed.
const UNPREPARED: &[&str] = &["26000", "42P05", "0A000"];

/// The server refuses a parameter of the connection.
pub(crate) const NEVER_CONNECTS: &[&str] = &["22023", "42601", "42704", "55P02"];

/// Whether the database cannot be reached.
pub(crate) fn is_gone(error: &ClientError) -> bool {
    error.is(GONE) || error.code().is_none()
}

/// The pause after this many failures in a row.
pub(crate) fn back_off(failures: u32) -> Duration {
    let seconds = 0.1 * f64::from(1 << failures.min(7));
    Duration::from_secs_f64(seconds.min(10.0) * (0.75 + 0.5 * (random() as f64 / u64::MAX as f64)))
}

/// A random number for names and pauses.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
