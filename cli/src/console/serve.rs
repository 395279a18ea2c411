//! Connections of browsers: how many there are, and for how long.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How many connections there are at most; others wait.
const CONNECTIONS: usize = 1000;
/// How long the head of a request may take to arrive.
const HEAD: Duration = Duration::from_secs(15);
/// How long requests have to end once the console is told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Answers until it is told to stop, and then what was asked before.
pub(super) async fn until(stop: impl Future<Output = ()>, listener: TcpListener, router: &Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
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
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = router.clone().layer(Extension(ConnectInfo(peer)));
        let served =
            server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let served = graceful.watch(served);
        tokio::spawn(async move {
            // It ends in an error where the browser goes away.
            let _ = served.await;
            drop(turn);
        });
    }
    drop(listener);
    // Streams of live pages would never end.
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}
