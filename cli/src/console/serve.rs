//! Connections of browsers, and their limits.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

use super::connection::locked;
use super::http::network;

/// How many connections there are at most; others wait.
const CONNECTIONS: usize = 1000;
/// How long the head of a request may take to arrive.
const HEAD: Duration = Duration::from_secs(10);
/// How long requests have to end once the console is told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// The limits of browsers.
pub(super) struct Limits {
    /// How many connections one address has at most; more are closed.
    pub(super) per_address: usize,
    /// How long a connection may read nothing of an answer.
    pub(super) write: Duration,
}

/// Answers requests until it is told to stop, and then those under way.
pub(super) async fn until(
    stop: impl Future<Output = ()>,
    listener: TcpListener,
    router: &Router,
    limits: Limits,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
    let addresses = Arc::new(Addresses::default());
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let accept = async {
            let turn = turns.clone().acquire_owned().await;
            (turn, listener.accept().await)
        };
        let (turn, accepted) = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, peer)) = accepted else {
            // There may be no file descriptor for it yet.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(place) = addresses.enter(peer.ip(), limits.per_address) else {
            continue;
        };
        let service = router.clone().layer(Extension(ConnectInfo(peer)));
        let stream = TokioIo::new(Taken::new(stream, limits.write));
        let served = server.serve_connection(stream, TowerToHyperService::new(service));
        let served = graceful.watch(served);
        tokio::spawn(async move {
            // It fails if the browser disconnects.
            let _ = served.await;
            drop((turn, place));
        });
    }
    drop(listener);
    // Streams of live pages would never end.
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// How many connections each address has.
#[derive(Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// A connection among those of its address.
struct Place {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    fn enter(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = network(address);
        let mut all = locked(&self.0);
        let count = all.entry(address).or_default();
        (*count < most).then(|| {
            *count += 1;
            Place { addresses: self.clone(), address }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = locked(&self.addresses.0);
        let count = all.get_mut(&self.address).expect("it is one of them");
        *count -= 1;
        if *count == 0 {
            all.remove(&self.address);
        }
    }
}

/// A connection that fails when its peer reads nothing for too long.
struct Taken {
    stream: TcpStream,
    limit: Duration,
    /// Since a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Taken {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        let waits = None;
        Self { stream, limit, waits }
    }

    fn within(
        &mut self,
        written: Poll<Result<usize>>,
        context: &mut Context,
    ) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let limit = self.limit;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(limit)));
        let is_late = waits.as_mut().poll(context);
        is_late.map(|()| Err(Error::from(ErrorKind::TimedOut)))
    }
}

impl AsyncRead for Taken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        buffer: &mut ReadBuf,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Taken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[IoSlice],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.within(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
