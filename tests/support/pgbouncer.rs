//! PgBouncer, of Debian, before a server. That one knows nothing of prepared statements yet, which
//! is the harder case.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::checks::{Outcome, holds, output, succeeds};
use crate::{Cluster, SOON, need, program};

/// What `PgBouncer::start` needs. Its package would start a service; it is only unpacked, and what
/// it is linked with is installed.
pub fn need_pgbouncer() -> Outcome {
    need(&["need_packages", "libevent-2.1-7", "libc-ares2"])?;
    need(&["need_programs", "pgbouncer"])
}

/// A pooler that runs until it is dropped.
pub struct PgBouncer {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    log: PathBuf,
    pid: PathBuf,
}

impl PgBouncer {
    /// Starts it with this configuration, to which its port, its files and its two users are added.
    /// Everybody may connect as app and postgres.
    pub fn start(cluster: &Cluster, databases: &str, settings: &str) -> Result<PgBouncer, String> {
        let port = crate::free_port();
        let file = |name: &str| cluster.directory().join(name);
        let (log, pid) = (file("pgbouncer.log"), file("pgbouncer.pid"));
        let write = |name: &str, text: &str| fs::write(file(name), text).expect("a file");
        write("userlist.txt", "\"app\" \"\"\n\"postgres\" \"\"\n");
        let ours = [
            "listen_addr = 127.0.0.1".to_string(),
            format!("listen_port = {port}"),
            "unix_socket_dir =".into(),
            "auth_type = trust".into(),
            format!("auth_file = {}", file("userlist.txt").display()),
            format!("logfile = {}", log.display()),
            format!("pidfile = {}", pid.display()),
        ]
        .join("\n");
        write(
            "pgbouncer.ini",
            &format!("[databases]\n{databases}\n[pgbouncer]\n{settings}\n{ours}\n"),
        );
        // From a copy, which its user can reach.
        let copy = file("pgbouncer");
        fs::copy(program("pgbouncer").ok_or("pgbouncer is not there")?, &copy)
            .map_err(|error| error.to_string())?;
        let mut pgbouncer = cluster.program(&copy);
        succeeds(pgbouncer.args(["-d", "-q"]).arg(file("pgbouncer.ini")))?;
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            holds(begun.elapsed() < SOON, "it does not listen")?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(PgBouncer { port, log, pid })
    }

    /// Its log has no warnings and no errors.
    pub fn complains_of_nothing(&self) -> Outcome {
        let log = read(&self.log);
        let complaints = [" WARNING ", " ERROR ", " FATAL "];
        holds(!complaints.iter().any(|level| log.contains(level)), &log)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = output(Command::new("kill").arg(read(&self.pid).trim()));
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
