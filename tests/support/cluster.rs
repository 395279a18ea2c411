//! A private Postgres cluster: made by initdb in a temporary directory, gone when dropped.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::upgrade;

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
    pg_config: Option<PathBuf>,
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
        self.pg_config = Some(pg_config.into());
        self
    }

    /// The launcher sends workers only where somebody asks for one (with the build with faults). So
    /// what comes of a call comes of its asking, however slow the machine is, and not of the visit
    /// that each database has once a minute.
    pub fn without_visits(self) -> Self {
        self.postgres(&crate::with_faults())
            .set("jobs.fault", "no_visits")
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
        let mut cluster = Cluster::in_new_directory(
            self.pg_config.as_deref().map_or_else(bindir, bindir_of),
            self.allowed,
        );
        if let Some(script) = &self.planted {
            let directory = cluster.directory().join("postgres");
            cluster.bindir = upgrade::with_scripts(&cluster.bindir, &directory, script);
        }
        cluster.make_data();
        if self.without_checksums {
            // Fails where there are none.
            let mut disable = cluster.bin("pg_checksums");
            disable
                .args(["--disable", "--no-sync", "-D"])
                .arg(cluster.data());
            disable.output().expect("pg_checksums");
        }
        // %e is the SQLSTATE: scan_log.sh looks for it.
        cluster.set("log_line_prefix", "%m [%p] %e %b %d: ");
        cluster.set("lc_messages", "C");
        cluster.set("timezone", "UTC");
        cluster.set("fsync", "off");
        // Compiling a test's own look at a view takes a second. What a session sets counts.
        cluster.set("jit_above_cost", -1);
        cluster.set("listen_addresses", "");
        cluster.set("unix_socket_directories", cluster.directory().display());
        cluster.set("max_prepared_transactions", 10);
        cluster.set("shared_preload_libraries", "jobs");
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
    bindir: PathBuf,
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
    /// ..; see scan_log.sh): up to `times` lines that match the extended regular expression.
    pub fn allow(&self, times: u32, regex: &str) {
        self.allowed.lock().unwrap().push((times, regex.into()));
    }

    /// Declares that this test writes to the tables by hand, so that what must hold there does not.
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
            "-c search_path=pg_catalog -c lock_timeout=5s -c statement_timeout=60s",
        );
        psql.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
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
        client
            .batch_execute("create extension jobs")
            .await
            .expect("create extension jobs");
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
        text.push_str(&format!(
            "{name} = '{}'\n",
            value.to_string().replace('\'', "''")
        ));
        fs::write(&path, text).expect("postgresql.conf"); // keeps the file's owner
    }

    /// Tells the server to read its configuration again.
    pub fn reload(&self) {
        self.run(self.pg_ctl("reload").arg("-s"));
    }

    /// A new data directory: a copy of the one that ./dev has made, unless this Postgres is of
    /// another major.
    fn make_data(&self) {
        if let Some(template) = std::env::var_os("JOBS_TEMPLATE_CLUSTER").map(PathBuf::from)
            && self
                .bindir
                .ends_with(format!("{}/bin", major_of(&template)))
        {
            let mut copy = self.program(Path::new("cp"));
            return self.run(copy.arg("-a").arg(template).arg(self.data()));
        }
        let mut initdb = self.bin("initdb");
        initdb.arg("-D").arg(self.data());
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync"]);
        self.run(initdb.args(["-E", "UTF8", "--locale=C.UTF-8"]));
    }

    /// Starts a stopped server and waits until it accepts connections.
    pub fn start_again(&self) {
        self.start_with("");
    }

    /// Starts a stopped server with options on its command line, and waits as `start_again` does.
    pub fn start_with(&self, options: &str) {
        self.run(
            self.pg_ctl("start")
                .args(["-w", "-s", "-o", options, "-l"])
                .arg(self.log_file()),
        );
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
        self.allow(
            u32::MAX,
            "terminating connection due to unexpected postmaster exit",
        );
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
        pid_file
            .lines()
            .next()
            .and_then(|pid| pid.parse().ok())
            .expect("a process id")
    }

    /// The processor time that a process of the server has used so far.
    pub fn cpu_of(&self, pid: u32) -> Duration {
        processor_time(pid, 13)
    }

    /// The processor time of all processes of the server that have ended since it was started.
    pub fn cpu_of_ended_children(&self) -> Duration {
        processor_time(self.postmaster(), 15)
    }

    /// A standby of this cluster, streaming from it.
    pub fn standby(&self) -> Cluster {
        let standby =
            Cluster::in_new_directory(self.bindir.clone(), self.allowed.lock().unwrap().clone());
        // Its receiver ends in FATAL whenever the primary goes away and when it is promoted.
        standby.allow(u32::MAX, " walreceiver : FATAL: ");
        // And it comes back at once, to a primary that may still be shutting down or starting up.
        self.allow(u32::MAX, "57P03 walsender [^:]*: FATAL: ");
        standby.run(
            standby
                .bin("pg_basebackup")
                .args(["-U", "postgres", "-R", "-c", "fast", "--no-sync", "-h"])
                .arg(self.directory())
                .arg("-D")
                .arg(standby.data()),
        );
        let _ = fs::remove_file(standby.log_file());
        standby.set("unix_socket_directories", standby.directory().display());
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
        command
            .arg("-b")
            .arg(&self.bindir)
            .arg("-B")
            .arg(&new.bindir);
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
        let mut scan = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scan_log.sh"));
        scan.arg(self.log_file());
        for (times, regex) in self.allowed.lock().unwrap().iter() {
            scan.arg(times.to_string()).arg(regex);
        }
        let output = scan.output().expect("scan_log.sh");
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// A client program of the same Postgres (pg_dump, psql, pgbench, ..), with this server as its
    /// default.
    pub fn bin(&self, program: &str) -> Command {
        self.program(&self.bindir.join(program))
    }

    /// A program as the user that owns the servers.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.directory());
        command
            .env("PGHOST", self.directory())
            .env("PGUSER", "postgres")
            // Whatever it says, errors show nothing of what it asks for.
            .env("RUST_BACKTRACE", "full");
        command
    }

    fn in_new_directory(bindir: PathBuf, allowed: Vec<(u32, String)>) -> Cluster {
        // Where paths are short: that of a socket may have no more than 107 bytes.
        let scratch = std::env::var("JOBS_SCRATCH").unwrap_or("/tmp".into());
        let directory = tempfile::Builder::new()
            .prefix("jobs.")
            .tempdir_in(scratch)
            .expect("a directory for a cluster");
        if is_root() {
            let (uid, gid) = postgres_user();
            chown(directory.path(), Some(uid), Some(gid)).expect("chown");
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("chmod");
        Cluster {
            bindir,
            directory,
            allowed: Mutex::new(allowed),
            may_be_violated: AtomicBool::new(false),
        }
    }

    fn log_file(&self) -> PathBuf {
        self.data().join("server.log")
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
        let status = command
            .status()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if !status.success() {
            let text = std::io::read_to_string(rewound(output)).unwrap_or_default();
            panic!("{command:?}: {status}\n{text}\n{}", self.log_tail());
        }
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!(
            "The end of its log:\n{}",
            lines[lines.len().saturating_sub(40)..].join("\n")
        )
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
            let stopped = self
                .pg_ctl("stop")
                .args(["-w", "-s", "-t", "20", "-m", "fast"])
                .status();
            if !stopped.is_ok_and(|status| status.success()) {
                let _ = self
                    .pg_ctl("stop")
                    .args(["-w", "-s", "-m", "immediate"])
                    .status();
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

/// From `JOBS_PG_CONFIG`, which ./dev sets, else where ./dev keeps its private Postgres.
fn bindir() -> PathBuf {
    let default = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../.dev/pg15/lib/postgresql/15/bin/pg_config"
    );
    let pg_config = std::env::var("JOBS_PG_CONFIG").unwrap_or(default.into());
    bindir_of(Path::new(&pg_config))
}

fn bindir_of(pg_config: &Path) -> PathBuf {
    assert!(
        pg_config.exists(),
        "no {}: run this through ./dev test server",
        pg_config.display()
    );
    let directory = pg_config.parent().expect("a directory");
    directory.canonicalize().expect("a directory")
}

/// The major that a data directory is of.
fn major_of(data: &Path) -> String {
    let major = fs::read_to_string(data.join("PG_VERSION")).unwrap_or_default();
    major.trim().to_string()
}

/// Postgres refuses to run as root; as root its programs run as user postgres.
fn is_root() -> bool {
    fs::metadata("/proc/self").expect("/proc").uid() == 0
}

fn postgres_user() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let line = passwd
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect("user postgres");
    let id = |field: usize| {
        line.split(':')
            .nth(field)
            .and_then(|id| id.parse().ok())
            .expect("an id")
    };
    (id(2), id(3))
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()
        .expect("kill");
    assert!(status.success(), "kill -{name} {pid}");
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("/proc");
    list.split_whitespace()
        .map(|pid| pid.parse().expect("a process id"))
        .collect()
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
