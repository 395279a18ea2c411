//! Statements, on the caller's connection or on one of a worker.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::select;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{CancelToken, Client, Config, GenericClient, NoTls, Socket};
use tokio_util::sync::CancellationToken;

use crate::ClientError;

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

/// Connects as workers do: with TLS, if the feature `tls` is there, unless the configuration says
/// `sslmode=disable`. The server's certificate must be one that the system trusts, unless it says
/// `sslmode=prefer`, the default. Then the connection is not encrypted where it is not.
///
/// # Errors
/// There is no such server, or it does not let us in.
pub async fn connect(config: &Config) -> Result<Client, ClientError> {
    let connected = match (tls(config), config.get_ssl_mode()) {
        (None, _) => connect_by(config, NoTls).await,
        (Some(tls), SslMode::Require) => connect_by(config, tls).await,
        (Some(tls), _) => match connect_by(config, tls).await {
            Err(error) if error.as_db_error().is_none() => {
                let mut config = config.clone();
                connect_by(config.ssl_mode(SslMode::Disable), NoTls).await
            }
            connected => connected,
        },
    };
    Ok(connected?)
}

#[cfg(feature = "tls")]
fn tls(config: &Config) -> Option<tokio_postgres_rustls::MakeRustlsConnect> {
    if config.get_ssl_mode() == SslMode::Disable {
        return None;
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Some(tokio_postgres_rustls::MakeRustlsConnect::new(config))
}

#[cfg(not(feature = "tls"))]
fn tls(_: &Config) -> Option<NoTls> {
    None
}

async fn connect_by<T>(config: &Config, tls: T) -> Result<Client, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static, TlsConnect: TlsConnect<Socket, Future: Send>>,
{
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(async {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection lost");
        }
    });
    Ok(client)
}

/// A cancel request needs no encryption, unless that is required of every connection.
async fn cancel(config: &Config, token: CancelToken) -> io::Result<()> {
    match tls(config).filter(|_| config.get_ssl_mode() == SslMode::Require) {
        Some(tls) => token.cancel_query(tls).await.map_err(io::Error::other),
        None => {
            let stream = LastToClose(open(config).await?);
            let sent = token.cancel_query_raw(stream, NoTls).await;
            sent.map_err(io::Error::other)
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens a socket to where the server is.
async fn open(config: &Config) -> io::Result<Box<dyn Stream>> {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let address = config.get_hostaddrs().first().map(ToString::to_string);
    match (address, config.get_hosts().first()) {
        (Some(address), _) => Ok(Box::new(TcpStream::connect((address, port)).await?)),
        (_, Some(Host::Tcp(name))) => Ok(Box::new(TcpStream::connect((&**name, port)).await?)),
        #[cfg(unix)]
        (_, Some(Host::Unix(directory))) => {
            let path = directory.join(format!(".s.PGSQL.{port}"));
            Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
        }
        _ => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

/// A stream that is closed after the other side has closed it, as libpq does. Debian 12's PgBouncer
/// ends with an error where a cancel request is gone before it has been sent on.
struct LastToClose(Box<dyn Stream>);

impl AsyncRead for LastToClose {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for LastToClose {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut byte = [0];
            let mut buffer = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Pin::new(&mut self.0).poll_shutdown(context);
            }
        }
    }
}
