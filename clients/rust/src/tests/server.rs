//! A server with no database behind it.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

/// What it answers to a statement: no rows, or an SQLSTATE and a message.
pub type Answer = Result<(), (&'static str, &'static str)>;

const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0";
const READY: &[u8] = b"Z\0\0\0\x05I";
const NO_ROWS: &[u8] = b"1\0\0\0\x042\0\0\0\x04n\0\0\0\x04C\0\0\0\x0dSELECT 0\0";

/// What clients can connect to, and how. It says nothing.
pub async fn silent() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new();
    config.host("127.0.0.1").user("anybody");
    config.port(listener.local_addr().unwrap().port());
    config.ssl_mode(SslMode::Disable);
    (listener, config)
}

/// Starts one that speaks, and says how to connect to it. What answers gets each statement with its
/// parameters. It cannot prepare statements.
pub async fn start<F>(answer: impl Fn(String) -> F + Clone + Send + 'static) -> Config
where
    F: Future<Output = Answer> + Send + 'static,
{
    let (listener, config) = silent().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, answer.clone()));
        }
    });
    config
}

async fn converse<F>(mut stream: TcpStream, answer: impl Fn(String) -> F) -> io::Result<()>
where
    F: Future<Output = Answer>,
{
    read(&mut stream).await?;
    stream.write_all(&[WELCOME, READY].concat()).await?;
    let mut asked = Vec::new();
    loop {
        let is_whole = stream.read_u8().await? == b'S';
        asked.extend(read(&mut stream).await?);
        if is_whole {
            let asked = std::mem::take(&mut asked);
            let answer = match answer(String::from_utf8_lossy(&asked).into()).await {
                Ok(()) => NO_ROWS.into(),
                Err((code, message)) => {
                    let fields = format!("SERROR\0C{code}\0M{message}\0\0");
                    let length = 4 + fields.len() as u32;
                    [&b"E"[..], &length.to_be_bytes(), fields.as_bytes()].concat()
                }
            };
            stream.write_all(&[&answer, READY].concat()).await?;
        }
    }
}

/// A message after its tag, which begins with its length.
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; stream.read_u32().await? as usize - 4];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
