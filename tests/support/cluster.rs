//! A private Postgres cluster: made by initdb in a temporary directory, gone when dropped.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobs_cluster::{Postgres, as_owner, owned_directory};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::checks::output;
use crate::{log, upgrade};

/// Not every database has the extension.
const CHECK: &str = r"select exists (select from pg_proc where pronamespace = to_regnamespace('jobs') and proname = 'check') as has \gset
\if :has
select current_database(), invariant, violations, job_ids, rule from jobs.check();
\endif
";

/// How to stop a server, as `pg_ctl stop -m` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Waits for all sessions to end.
    Smart,
    /// Ends the sessions.
    Fast,
    /// Like a power cut: recovery at the next start.
    Immediate,
}

/// What a cluster is made with; `Cluster::builder()`.
#[derive(Default)]
pub struct Builder {
    postgres: Option<Postgres>,
    port: Option<u16>,
    settings: Vec<(String, String)>,
    allowed: Vec<(u32, String)>,
    without_checksums: bool,
    planted: Option<String>,
}

impl Builder {
    /// A line of postgresql.conf. Later ones win, also over what the harness sets.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Another Postgres than that of `JOBS_PG_CONFIG`.
    pub fn postgres(mut self, pg_config: &Path) -> Self {
        self.postgres = Some(Postgres::of(pg_config));
        self
    }

    /// With the extension that can be told to have faults (`src/fault.rs`), and with these.
    pub fn faults(self, faults: &str) -> Self {
        let path = std::env::var("JOBS_FAULTS_PG_CONFIG");
        let path = path
            .expect("JOBS_FAULTS_PG_CONFIG is not set: run this through ./dev test server:FILE");
        self.postgres(path.as_ref()).set("jobs.fault", faults)
    }

    /// Also for clients that know no Unix sockets: on 127.0.0.1, at a port of its own.
    pub fn with_tcp(mut self) -> Self {
        self.port = Some(free_port());
        self
    }

    /// The launcher sends workers only where somebody asks for one (with the build with faults). So
    /// what comes of a call comes of its asking, however slow the machine is, and not of the visit
    /// that each database has once a minute.
    pub fn without_visits(self) -> Self {
        self.faults("no_visits")
    }

    /// Without `shared_preload_libraries = 'jobs'`: no background worker, no shared memory.
    pub fn without_preload(self) -> Self {
        self.set("shared_preload_libraries", "")
    }

    /// Without checksums of pages, which 18 has by default: with them what a reader leaves in a
    /// page is logged.
    pub fn without_checksums(mut self) -> Self {
        self.without_checksums = true;
        self
    }

    /// With an upgrade of the extension that makes these changes, to the version
    /// [`upgrade::PLANTED`], and with [`upgrade::CANDIDATE`].
    pub fn with_upgrade(mut self, changes: &str) -> Self {
        self.planted = Some(upgrade::planted_script(changes));
        self
    }

    /// As [`Cluster::allow`].
    pub fn allow(mut self, times: u32, regex: &str) -> Self {
        self.allowed.push((times, regex.into()));
        self
    }

    /// Makes the cluster and starts its server.
    pub fn start(self) -> Cluster {
        let cluster = self.make();
        cluster.start_again();
        cluster
    }

    /// Makes the cluster and leaves its server stopped.
    pub fn make(self) -> Cluster {
        let postgres = self.postgres.unwrap_or_else(Postgres::installed);
        let mut cluster = Cluster::in_new_directory(postgres, self.port, self.allowed);
        if let Some(script) = &self.planted {
            let directory = cluster.directory().join("postgres");
            cluster.postgres.bindir =
                upgrade::with_scripts(&cluster.postgres.bindir, &directory, script);
        }
        cluster.postgres.make(&cluster.data(), "");
        if self.without_checksums {
            // Fails where there are none.
            let mut disable = cluster.bin("pg_checksums");
            disable.args(["--disable", "--no-sync", "-D"]).arg(cluster.data());
            disable.output().expect("pg_checksums");
        }
        cluster.set("fsync", "off");
        // Compiling a test's own look at a view takes a second. What a session sets counts.
        cluster.set("jit_above_cost", -1);
        let addresses = self.port.map_or("", |_| "127.0.0.1");
        cluster.set("listen_addresses", addresses);
        cluster.set("port", cluster.port());
        cluster.set("unix_socket_directories", cluster.directory().display());
        cluster.set("max_prepared_transactions", 10);
        if let Ok(direct_access) = std::env::var("JOBS_DIRECT_ACCESS") {
            cluster.set("jobs.direct_access", direct_access);
        }
        for (name, value) in &self.settings {
            cluster.set(name, value);
        }
        cluster
    }
}

/// A running (or stopped) private server.
pub struct Cluster {
    postgres: Postgres,
    port: Option<u16>,
    directory: TempDir,
    allowed: Mutex<Vec<(u32, String)>>,
    may_be_violated: AtomicBool,
}

impl Cluster {
    /// A cluster that preloads the extension, with the harness's settings.
    pub fn start() -> Cluster {
        Self::builder().start()
    }

    /// A cluster whose background worker does nothing.
    pub fn quiet() -> Cluster {
        Self::builder().set("jobs.enabled", "off").start()
    }

    /// For other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Declares that this test causes log lines that are otherwise a bug (FATAL, XX000, a crash,
    /// ..; see log.rs): up to `times` lines that match the extended regular expression.
    pub fn allow(&self, times: u32, regex: &str) {
        self.allowed.lock().unwrap().push((times, regex.into()));
    }

    /// Declares that this test writes to the tables by hand, so that invariants do not hold there.
    pub fn allow_violations(&self) {
        self.may_be_violated.store(true, Ordering::Relaxed);
    }

    /// What `jobs.check()` finds in all databases, a row a line. Also asked when the cluster is
    /// dropped, so that every test that leaves a running server ends with it. A database that lets
    /// nobody in just then, or is locked by the test, is passed over.
    pub fn violations(&self) -> String {
        let databases = self.ask(
            "postgres",
            "select datname from pg_database where datallowconn and not datistemplate",
        );
        let in_each = |database| self.ask(database, CHECK);
        databases.lines().map(in_each).collect()
    }

    fn ask(&self, database: &str, script: &str) -> String {
        let mut psql = self.bin("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-d", database]);
        psql.env(
            "PGOPTIONS",
            "-c search_path=pg_catalog -c lock_timeout=5s -c statement_timeout=300s",
        );
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = psql.spawn().expect("psql");
        let mut stdin = running.stdin.take().expect("a pipe");
        let _ = stdin.write_all(script.as_bytes()); // it may have ended already
        drop(stdin);
        let output = running.wait_with_output().expect("psql");
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        // 3: a statement failed.
        if output.status.code() == Some(3) && !error.contains("lock timeout") {
            said += &error;
        }
        said
    }

    /// A connection to a database, as the superuser postgres.
    pub async fn connect(&self, database: &str) -> Client {
        self.connect_with(self.config().dbname(database)).await
    }

    /// A connection with a configuration of one's own, which starts from [`Cluster::config`].
    pub async fn connect_with(&self, config: &Config) -> Client {
        let (client, connection) = config.connect(NoTls).await.expect("connecting");
        tokio::spawn(async move {
            let _ = connection.await; // how it ended is what the client's calls return
        });
        client
    }

    /// The connection parameters of this cluster.
    pub fn config(&self) -> Config {
        let mut config = Config::new();
        config
            .host_path(self.directory())
            .port(self.port())
            .user("postgres")
            .application_name("test");
        config
    }

    /// Creates a database with the extension in it and connects.
    pub async fn database(&self, name: &str) -> Client {
        let postgres = self.connect("postgres").await;
        postgres
            .batch_execute(&format!("create database \"{name}\""))
            .await
            .expect("create database");
        let client = self.connect(name).await;
        client.batch_execute("create extension jobs").await.expect("create extension jobs");
        client
    }

    /// Where the sockets and the data directory are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.directory().join("data")
    }

    /// Sets something in postgresql.conf; takes effect at the next start or [`Cluster::reload`].
    pub fn set(&self, name: &str, value: impl ToString) {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).expect("postgresql.conf");
        text.push_str(&format!("{name} = '{}'\n", value.to_string().replace('\'', "''")));
        fs::write(&path, text).expect("postgresql.conf"); // keeps the file's owner
    }

    /// Tells the server to read its configuration again.
    pub fn reload(&self) {
        self.run(self.pg_ctl("reload").arg("-s"));
    }

    /// Starts a stopped server and waits until it accepts connections.
    pub fn start_again(&self) {
        self.start_with("");
    }

    /// Starts a stopped server with options on its command line, and waits as `start_again` does.
    pub fn start_with(&self, options: &str) {
        self.run(self.pg_ctl("start").args(["-w", "-s", "-o", options, "-l"]).arg(self.log_file()));
    }

    /// Stops the server and waits until it is gone.
    pub fn stop(&self, mode: Mode) {
        let mode = format!("{mode:?}").to_lowercase();
        self.run(self.pg_ctl("stop").args(["-w", "-s", "-m", &mode]));
    }

    /// Stops and starts.
    pub fn restart(&self, mode: Mode) {
        self.stop(mode);
        self.start_again();
    }

    /// Kills the postmaster with SIGKILL and waits until its processes, which notice that by
    /// themselves, are gone.
    pub fn kill9(&self) {
        self.allow(u32::MAX, "terminating connection due to unexpected postmaster exit");
        let postmaster = self.postmaster();
        let children = children(postmaster);
        signal("KILL", postmaster);
        let start = Instant::now();
        while Path::new(&format!("/proc/{postmaster}")).exists()
            || children.iter().any(|pid| is_alive(*pid))
        {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "processes outlive their postmaster"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills one server process with SIGKILL: Postgres then restarts all of them.
    pub fn kill9_backend(&self, pid: i32) {
        self.allow(1, "was terminated by signal 9");
        signal("KILL", pid as u32);
    }

    /// The process id of the postmaster.
    pub fn postmaster(&self) -> u32 {
        let pid_file =
            fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        pid_file.lines().next().and_then(|pid| pid.parse().ok()).expect("a process id")
    }

    /// The processor time that a process of the server has used so far.
    pub fn cpu_of(&self, pid: u32) -> Duration {
        processor_time(pid, 13)
    }

    /// The processor time of all processes of the server that have ended since it was started.
    pub fn cpu_of_ended_children(&self) -> Duration {
        processor_time(self.postmaster(), 15)
    }

    /// A connection string without a database.
    pub fn place(&self) -> String {
        format!("host={} port={} user=postgres", self.directory().display(), self.port())
    }

    /// A standby of this cluster, streaming from it.
    pub fn standby(&self) -> Cluster {
        let standby = Cluster::in_new_directory(
            self.postgres.clone(),
            self.port.map(|_| free_port()),
            self.allowed.lock().unwrap().clone(),
        );
        // Its receiver ends in FATAL whenever the primary goes away and when it is promoted.
        standby.allow(u32::MAX, " walreceiver : FATAL: ");
        // And it comes back at once, to a primary that may still be shutting down or starting up.
        self.allow(u32::MAX, "57P03 walsender [^:]*: FATAL: ");
        standby.run(
            standby
                .bin("pg_basebackup")
                .args(["-U", "postgres", "-R", "-c", "fast", "--no-sync", "-h"])
                .arg(self.directory())
                .args(["-p", &self.port().to_string()])
                .arg("-D")
                .arg(standby.data()),
        );
        let _ = fs::remove_file(standby.log_file());
        standby.set("unix_socket_directories", standby.directory().display());
        standby.set("port", standby.port());
        standby.start_again();
        standby
    }

    /// Makes a standby a primary and waits until it is.
    pub fn promote(&self) {
        self.run(self.pg_ctl("promote").args(["-w", "-s"]));
    }

    /// Runs pg_upgrade from this cluster into another one, which is new; both are stopped, before
    /// and after.
    pub fn upgrade_to(&self, new: &Cluster, options: &[&str]) {
        let mut command = new.bin("pg_upgrade");
        command.args(["-U", "postgres", "--no-sync", "-d"]);
        command.arg(self.data()).arg("-D").arg(new.data());
        command.arg("-b").arg(&self.postgres.bindir).arg("-B").arg(&new.postgres.bindir);
        new.run(command.args(options));
    }

    /// The server's log from its first start on.
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// Panics if the log has a line that must not be there. Also done when the cluster is dropped.
    pub fn assert_clean_log(&self) {
        if let Err(lines) = self.scan_log() {
            panic!("the server's log is not clean:\n{lines}");
        }
    }

    /// The lines of the log that must not be there, as an error.
    pub fn scan_log(&self) -> Result<(), String> {
        let log = self.log();
        let found = log::findings(&log, &self.allowed.lock().unwrap());
        if found.is_empty() {
            return Ok(());
        }
        Err(found.join("\n"))
    }

    /// A client program of the same Postgres (pg_dump, psql, pgbench, ..), with this server as its
    /// default.
    pub fn bin(&self, program: &str) -> Command {
        self.program(&self.postgres.bindir.join(program))
    }

    /// A program as the user that owns the servers.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = as_owner(program);
        command.current_dir(self.directory());
        self.as_default_of(&mut command);
        // Whatever it says, errors show nothing of what it asks for.
        command.env("RUST_BACKTRACE", "full");
        command
    }

    /// A client program of the same Postgres as the user that runs the tests, who may read the
    /// checkout.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.postgres.bindir.join(program));
        self.as_default_of(&mut command);
        command
    }

    fn as_default_of(&self, command: &mut Command) {
        command
            .env("PGHOST", self.directory())
            .env("PGPORT", self.port().to_string())
            .env("PGUSER", "postgres");
    }

    /// What psql prints of a script in a database, unaligned and without headings; every statement
    /// must succeed.
    pub fn psql(&self, database: &str, script: &str) -> String {
        let mut psql = self.client("psql");
        psql.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", database]);
        // On the command line it would be one transaction, and have a limit.
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(script.as_bytes()).expect("a file");
        output(psql.stdin(rewound(file))).unwrap_or_else(|said| panic!("{script}: {said}"))
    }

    /// The Postgres that it is of.
    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// The port, also of its Unix socket.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(5432)
    }

    fn in_new_directory(
        postgres: Postgres,
        port: Option<u16>,
        allowed: Vec<(u32, String)>,
    ) -> Cluster {
        let directory = scratch_directory();
        owned_directory(directory.path());
        Cluster {
            postgres,
            port,
            directory,
            allowed: Mutex::new(allowed),
            may_be_violated: AtomicBool::new(false),
        }
    }

    fn log_file(&self) -> PathBuf {
        self.data().join("server.log")
    }

    /// A line for a shell that has pg_ctl do this.
    pub fn pg_ctl_line(&self, arguments: &str) -> String {
        let pg_ctl = as_owner(&self.postgres.bindir.join("pg_ctl"));
        let words = std::iter::once(pg_ctl.get_program()).chain(pg_ctl.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let (data, log) = (self.data(), self.log_file());
        let (data, log) = (data.display(), log.display());
        format!("cd / && {} -s -D {data} -l {log} {arguments}", words.join(" "))
    }

    fn pg_ctl(&self, action: &str) -> Command {
        let mut command = self.bin("pg_ctl");
        command.arg(action).arg("-D").arg(self.data());
        command
    }

    /// Runs a program of the server; its output goes to a file, because a started server would keep
    /// a pipe open.
    fn run(&self, command: &mut Command) {
        let output = tempfile::tempfile().expect("a temporary file");
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output.try_clone().unwrap());
        let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if !status.success() {
            let text = std::io::read_to_string(rewound(output)).unwrap_or_default();
            panic!("{command:?}: {status}\n{text}\n{}", self.log_tail());
        }
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!("The end of its log:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let violations = match std::thread::panicking() {
            true => String::new(),
            false => self.violations(),
        };
        if self.data().join("postmaster.pid").exists() {
            // Fast, so that a background worker that does not stop is found here and not by an
            // operator.
            let stopped = self.pg_ctl("stop").args(["-w", "-s", "-t", "60", "-m", "fast"]).status();
            if !stopped.is_ok_and(|status| status.success()) {
                let _ = self.pg_ctl("stop").args(["-w", "-s", "-m", "immediate"]).status();
                if !std::thread::panicking() {
                    panic!("the server does not stop\n{}", self.log_tail());
                }
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        } else {
            self.assert_clean_log();
            assert!(
                violations.is_empty() || self.may_be_violated.load(Ordering::Relaxed),
                "jobs.check() found:\n{violations}"
            );
        }
    }
}

/// Where paths are short: that of a socket may have no more than 107 bytes.
pub fn scratch_directory() -> TempDir {
    let scratch = std::env::var("JOBS_SCRATCH").unwrap_or("/tmp".into());
    let directory = tempfile::Builder::new().prefix("jobs.").tempdir_in(scratch);
    directory.expect("a directory")
}

/// A port of 127.0.0.1 where nobody listens.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn signal(name: &str, pid: u32) {
    let status =
        Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().expect("kill");
    assert!(status.success(), "kill -{name} {pid}");
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("/proc");
    list.split_whitespace().map(|pid| pid.parse().expect("a process id")).collect()
}

/// Two fields of /proc/PID/stat, counted from 0, that are in user and in system mode.
fn processor_time(pid: u32, field: usize) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("/proc");
    // The second field is a name and may have spaces.
    let (_, behind_name) = stat.rsplit_once(") ").expect("a name");
    let ticks: u64 = behind_name
        .split(' ')
        .skip(field - 2)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("ticks"))
        .sum();
    // Linux shows a hundred ticks a second to programs.
    Duration::from_millis(ticks * 10)
}

fn is_alive(pid: u32) -> bool {
    // A zombie is dead: whether anyone collects it depends on the machine's init.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn rewound(mut file: fs::File) -> fs::File {
    use std::io::Seek;
    file.rewind().expect("rewind");
    file
}
