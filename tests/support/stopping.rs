//! A session that stops itself: `stop` in `src/fault.rs`.

use std::fs;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::{SOON, poll_until, run};

/// A session that stops where the fault says, in the statement that it was given.
pub struct Stopping {
    pid: i32,
    statement: JoinHandle<()>,
}

impl Stopping {
    /// Has it run the statement.
    pub async fn begin(client: Client, fault: &str, sql: String) -> Stopping {
        let pid = client.query_one("select pg_backend_pid()", &[]).await;
        let pid: i32 = pid.unwrap().get(0);
        // In the statement's transaction: the fault may be that it stops at the end of one.
        let sql = format!("set jobs.fault = '{fault}'; {sql}");
        let statement = tokio::spawn(async move { run(&client, &sql).await });
        Stopping { pid, statement }
    }

    /// Waits for that.
    pub async fn has_stopped(&self) {
        poll_until("it has stopped", SOON, async || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
            stat.contains(") T ")
        })
        .await;
    }

    /// Has it go on to the end of the statement, however often it stops.
    pub async fn go_on(self) {
        let mut statement = pin!(self.statement);
        loop {
            let pid = self.pid.to_string();
            let kill = Command::new("kill").args(["-CONT", &pid]).status();
            // It may have come to its end, and its session be over.
            let is_there = kill.unwrap().success();
            let pause = if is_there { Duration::from_millis(20) } else { SOON };
            if let Ok(done) = tokio::time::timeout(pause, &mut statement).await {
                return done.unwrap();
            }
            assert!(is_there);
        }
    }
}
