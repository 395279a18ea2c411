//! Cells as an operator sets them up: a monitor, and for each cell two servers of `jobs`, by
//! pg_auto_failover.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jobs_tests::checks::{Outcome, output};
use jobs_tests::{Client, Postgres, log, owned_directory, poll_until, scratch_directory};
use tempfile::TempDir;
use tokio_postgres::{Config, NoTls};

use crate::network::{CLIENTS, Network};

/// How long the engine may take for anything but a failover.
const SETTLED: Duration = Duration::from_secs(120);

/// The monitor's settings of docs/cells-engine.md.
const MONITOR: &str = "pgautofailover.health_check_period = '1s'
pgautofailover.health_check_timeout = '2s'
pgautofailover.health_check_retry_delay = '500ms'
pgautofailover.node_considered_unhealthy_timeout = '6s'
pgautofailover.primary_demote_timeout = '6s'
pgautofailover.startup_grace_period = '1s'
";

/// Those of a cell's servers.
const SERVER: &str = "shared_preload_libraries = 'jobs,pg_stat_statements'
wal_sender_timeout = '5s'
wal_receiver_timeout = '5s'
";

/// For a test: little memory, nothing that outlives the machine, and logs that can be scanned.
const HERE: &str = "fsync = off
shared_buffers = '32MB'
wal_keep_size = '128MB'
jit = off
log_line_prefix = '%m [%p] %e %b %d: '
lc_messages = 'C'
timezone = 'UTC'
";

/// What a failover leaves in a log. Panics, internal errors and crashes are not among it.
const OF_FAILOVERS: &str = "FATAL: ";

/// A monitor, and the machines of all cells.
pub struct Cells {
    network: Network,
    directory: TempDir,
    postgres: Postgres,
    running: Vec<Child>,
}

/// A cell: the numbers of its machines.
pub struct Cell {
    /// Its name, a formation of the monitor.
    pub formation: &'static str,
    pub nodes: [u8; 2],
}

const MONITOR_NODE: u8 = 1;

/// What stands where in the monitor's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub primary: u8,
    pub secondary: u8,
}

impl Cells {
    /// Starts the monitor.
    pub async fn start(network: Network) -> Result<Cells, String> {
        let directory = scratch_directory();
        owned_directory(directory.path());
        let mut cells =
            Cells { network, directory, postgres: Postgres::installed(), running: Vec::new() };
        cells.machine(MONITOR_NODE)?;
        let mut create = cells.autoctl(MONITOR_NODE, &["create", "monitor"]);
        create.args(["--pgport", "5432", "--auth", "trust", "--no-ssl"]);
        output(create.args(["--hostname", &cells.network.address(MONITOR_NODE)]))?;
        cells.append(MONITOR_NODE, "postgresql.conf", &[HERE, MONITOR].concat());
        cells.run(MONITOR_NODE);
        poll_until("the monitor answers", SETTLED, async || cells.monitor().await.is_some()).await;
        Ok(cells)
    }

    /// Makes a cell of two machines; its first one begins as the primary.
    pub async fn add(&mut self, formation: &'static str, nodes: [u8; 2]) -> Result<Cell, String> {
        let cell = Cell { formation, nodes };
        let mut create = self.autoctl(MONITOR_NODE, &["create", "formation"]);
        output(create.args(["--formation", formation, "--kind", "pgsql"]))?;
        for node in nodes {
            self.machine(node)?;
            let (name, address) = (format!("node{node}"), self.network.address(node));
            let monitor = format!(
                "postgres://autoctl_node@{}:5432/pg_auto_failover",
                self.network.address(MONITOR_NODE)
            );
            let mut create = self.autoctl(node, &["create", "postgres"]);
            create.args(["--pgport", "5432", "--auth", "trust", "--no-ssl"]);
            create.args(["--name", &name, "--hostname", &address]);
            output(create.args(["--formation", formation, "--monitor", &monitor]))?;
            if node == nodes[0] {
                // The second one is a copy of it.
                self.append(node, "postgresql.conf", &[SERVER, HERE].concat());
                let clients = format!("host all all {}/32 trust\n", self.network.address(CLIENTS));
                self.append(node, "pg_hba.conf", &clients);
            }
            let mut set = self.autoctl(node, &["config", "set"]);
            output(set.args(["timeout.network_partition_timeout", "4"]))?;
            self.run(node);
            self.reports(&cell, if node == nodes[0] { "single" } else { "secondary" }).await;
        }
        Ok(cell)
    }

    /// Waits until a machine of the cell has this role.
    async fn reports(&self, cell: &Cell, role: &str) {
        poll_until(&format!("a server of {} is {role}", cell.formation), SETTLED, async || {
            self.states(cell).await.iter().any(|(_, state, goal)| state == role && goal == role)
        })
        .await;
    }

    /// Waits until the cell has a primary and a secondary, without which it acknowledges nothing.
    pub async fn healthy(&self, cell: &Cell) -> Roles {
        let roles = std::cell::Cell::new(None);
        poll_until(&format!("{} is healthy", cell.formation), SETTLED, async || {
            let states = self.states(cell).await;
            let node = |wanted: &str| {
                let mut found = states.iter().filter(|(_, s, goal)| s == wanted && goal == wanted);
                found.next().map(|(node, ..)| *node)
            };
            let both = node("primary").zip(node("secondary"));
            roles.set(both.map(|(primary, secondary)| Roles { primary, secondary }));
            both.is_some()
        })
        .await;
        roles.get().expect("both")
    }

    /// Node, reported state and assigned state of each machine of the cell, as the monitor has
    /// them.
    pub async fn states(&self, cell: &Cell) -> Vec<(u8, String, String)> {
        let Some(monitor) = self.monitor().await else { return Vec::new() };
        let sql = "select nodename, reportedstate::text, goalstate::text from pgautofailover.node where formationid = $1";
        let rows = monitor.query(sql, &[&cell.formation]).await.unwrap_or_default();
        let node = |name: &str| name["node".len()..].parse().expect("a number");
        rows.iter().map(|row| (node(row.get(0)), row.get(1), row.get(2))).collect()
    }

    async fn monitor(&self) -> Option<Client> {
        let mut config = self.server(MONITOR_NODE, "pg_auto_failover");
        config.user("autoctl_node");
        connected(&config).await
    }

    /// The connection parameters of a machine's server.
    pub fn server(&self, node: u8, database: &str) -> Config {
        let mut config = Config::new();
        config.host(self.network.address(node)).port(5432).user("postgres").dbname(database);
        config.connect_timeout(Duration::from_secs(2)).keepalives_idle(Duration::from_secs(2));
        config.keepalives_interval(Duration::from_secs(1)).keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(5));
        config
    }

    /// What a program that knows both servers of a cell is told: libpq's URL.
    pub fn url(&self, cell: &Cell, database: &str) -> String {
        let [a, b] = cell.nodes.map(|node| self.network.address(node));
        format!(
            "host={a},{b} port=5432 user=postgres dbname={database} target_session_attrs=read-write connect_timeout=2"
        )
    }

    /// The cell's primary, whichever it is.
    pub async fn primary(&self, cell: &Cell, database: &str) -> Client {
        let Roles { primary, .. } = self.healthy(cell).await;
        connected(&self.server(primary, database)).await.expect("the primary")
    }

    /// A psql on the machine itself, which no cut link keeps away. It gives up after three seconds.
    pub fn client_within(&self, node: u8, database: &str) -> Command {
        let mut psql = self.within(node);
        psql.args(["timeout", "3", "psql", "-X", "-qAt", "-U", "postgres", "-d", database]);
        psql
    }

    /// Kills all processes of a machine. They are stopped first: a postmaster whose children are
    /// killed before it would log that they crashed.
    pub fn kill(&mut self, node: u8) -> Outcome {
        self.network.signal(node, "STOP")?;
        self.network.signal(node, "KILL")?;
        // The parents of those that are gone.
        self.running.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        Ok(())
    }

    /// Starts the keeper of a machine, which starts its server.
    pub fn run(&mut self, node: u8) {
        let log = OpenOptions::new().create(true).append(true).open(self.keeper_log(node));
        let log: File = log.expect("a log");
        let mut run = self.autoctl(node, &["run"]);
        run.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.running.push(run.spawn().expect("pg_autoctl run"));
    }

    /// Has the cell acknowledge what its primary alone has, or no longer.
    pub fn asynchronous(&self, cell: &Cell) -> Outcome {
        for node in cell.nodes {
            output(self.autoctl(node, &["set", "node", "replication-quorum"]).arg("false"))?;
        }
        Ok(())
    }

    /// The network between the machines.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// No server of a cell has logged a panic, an internal error or a crash.
    pub fn logs_are_clean(&self, cell: &Cell) -> Outcome {
        let mut found = String::new();
        for node in cell.nodes {
            let logs = fs::read_dir(self.data(node).join("log")).into_iter().flatten().flatten();
            for file in logs {
                let text = fs::read(file.path()).map_err(|error| error.to_string())?;
                let text = String::from_utf8_lossy(&text).into_owned();
                for line in log::findings(&text, &[(u32::MAX, OF_FAILOVERS.into())]) {
                    found += &format!("{node}: {line}\n");
                }
            }
        }
        jobs_tests::checks::holds(found.is_empty(), found)
    }

    /// The ends of all logs, for a test that has failed.
    pub fn log_tails(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(30)..].join("\n");
                text += &format!("--- {}\n{last}\n", path.display());
            }
        }
        text
    }

    fn machine(&self, node: u8) -> Outcome {
        self.network.add(node)?;
        owned_directory(&self.home(node));
        Ok(())
    }

    fn home(&self, node: u8) -> PathBuf {
        self.directory.path().join(node.to_string())
    }

    fn data(&self, node: u8) -> PathBuf {
        self.home(node).join("data")
    }

    fn keeper_log(&self, node: u8) -> PathBuf {
        self.directory.path().join(format!("{node}.log"))
    }

    /// A program on a machine; its files are in a directory of their own.
    fn within(&self, node: u8) -> Command {
        let home = self.home(node);
        let mut command = self.network.command(node, &home);
        // Only Debian's Postgres has the monitor's extension.
        let debian = Path::new("/usr/lib/postgresql").join(self.postgres.major()).join("bin");
        let programs = if node == MONITOR_NODE { &debian } else { &self.postgres.bindir };
        command.args(["env", "-u", "RUST_BACKTRACE", "-u", "PGHOST", "-u", "PGPORT"]);
        command.arg(format!("PATH={}:/usr/bin:/bin", programs.display()));
        for name in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"] {
            command.arg(format!("{name}={}", home.display()));
        }
        command
    }

    fn autoctl(&self, node: u8, arguments: &[&str]) -> Command {
        let mut command = self.within(node);
        command.arg("pg_autoctl").args(arguments).arg("--pgdata").arg(self.data(node));
        command
    }

    fn append(&self, node: u8, file: &str, text: &str) {
        let file = OpenOptions::new().append(true).open(self.data(node).join(file));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        let nodes = fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        for node in nodes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let _ = self.network.signal(node, "KILL");
        }
        for child in &mut self.running {
            let _ = child.wait();
        }
    }
}

/// A session, if there is a server that answers.
pub async fn connected(config: &Config) -> Option<Client> {
    let connecting = tokio::time::timeout(Duration::from_secs(3), config.connect(NoTls));
    let (client, connection) = connecting.await.ok()?.ok()?;
    tokio::spawn(async move {
        let _ = connection.await; // how it ended is what the client's calls return
    });
    Some(client)
}
