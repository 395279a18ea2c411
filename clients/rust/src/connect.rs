//! Connections to the server: TLS, and the requests that end a statement.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{CancelToken, Client, Config, NoTls, Socket};

use crate::ClientError;

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
pub(crate) async fn cancel(config: &Config, token: CancelToken) -> io::Result<()> {
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
