//! An installation of Postgres, and what it makes clusters of.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Of every cluster. `%e` is the SQLSTATE: tests/support/log.rs looks for it.
const SETTINGS: &str = "log_line_prefix = '%m [%p] %e %b %d: '
lc_messages = 'C'
timezone = 'UTC'
shared_preload_libraries = 'jobs'
";

/// An installation: where its programs are.
#[derive(Clone)]
pub struct Postgres {
    /// The directory of its programs.
    pub bindir: PathBuf,
}

impl Postgres {
    /// That of `JOBS_PG_CONFIG`, which ./dev sets, else the one that ./dev keeps.
    pub fn installed() -> Postgres {
        let default = || state_directory().join("pg15/lib/postgresql/15/bin/pg_config");
        let pg_config = std::env::var_os("JOBS_PG_CONFIG").map_or_else(default, PathBuf::from);
        Postgres::of(&pg_config)
    }

    /// The one that this program belongs to.
    pub fn of(pg_config: &Path) -> Postgres {
        assert!(pg_config.exists(), "no {}: run this through ./dev test", pg_config.display());
        let directory = pg_config.parent().expect("a directory");
        Postgres { bindir: directory.canonicalize().expect("a directory") }
    }

    /// A program, such as psql, as the user that owns the servers.
    pub fn program(&self, name: &str) -> Command {
        as_owner(&self.bindir.join(name))
    }

    /// The answer of pg_config to an option.
    pub fn config(&self, option: &str) -> PathBuf {
        let mut pg_config = Command::new(self.bindir.join("pg_config"));
        let answer = pg_config.arg(option).output().expect("pg_config");
        PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim())
    }

    /// The major version, as its directory is named.
    pub fn major(&self) -> &str {
        let of_major = self.bindir.parent().and_then(Path::file_name);
        of_major.and_then(|name| name.to_str()).expect("a major")
    }

    /// Makes a data directory, with these lines behind those that postgresql.conf has of every
    /// cluster.
    pub fn make(&self, data: &Path, lines: &str) {
        owned_directory(data);
        let mut copy = as_owner(Path::new("cp"));
        run(copy.arg("-a").arg(self.template().join(".")).arg(data));
        let settings = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"));
        let mut settings = settings.expect("postgresql.conf");
        write!(settings, "{SETTINGS}{lines}").expect("postgresql.conf");
    }

    /// Made once for each major: a copy of it is a new cluster in a moment.
    fn template(&self) -> PathBuf {
        let template = state_directory().join(format!("template{}", self.major()));
        static MAKES: Mutex<()> = Mutex::new(());
        let _one = MAKES.lock().expect("no other thread has failed");
        if template.exists() {
            return template;
        }
        let new = template.with_extension(std::process::id().to_string());
        owned_directory(&new);
        let mut initdb = self.program("initdb");
        initdb.arg("-D").arg(&new);
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync"]);
        run(initdb.args(["-E", "UTF8", "--locale=C.UTF-8"]));
        // Another process may have been as quick.
        if fs::rename(&new, &template).is_err() {
            let _ = fs::remove_dir_all(new);
        }
        template
    }
}

/// Where ./dev keeps what it makes of this checkout.
pub fn state_directory() -> PathBuf {
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../.dev").into();
    std::env::var_os("JOBS_STATE").map_or_else(default, PathBuf::from)
}

/// A program as the user that owns the servers: Postgres refuses to run as root, and as root its
/// programs run as user postgres.
pub fn as_owner(program: &Path) -> Command {
    let mut command = Command::new(if is_root() { Path::new("runuser") } else { program });
    if is_root() {
        command.args(["-u", "postgres", "--"]).arg(program);
    }
    command.current_dir("/");
    command
}

/// Makes this directory, if there is none, one of the user that owns the servers.
pub fn owned_directory(path: &Path) {
    fs::create_dir_all(path).expect("a directory");
    if is_root() {
        let (uid, gid) = postgres_user();
        chown(path, Some(uid), Some(gid)).expect("chown");
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("chmod");
}

fn run(command: &mut Command) {
    let output = command.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("/proc").uid() == 0
}

fn postgres_user() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let line = passwd.lines().find(|line| line.starts_with("postgres:")).expect("user postgres");
    let id =
        |field: usize| line.split(':').nth(field).and_then(|id| id.parse().ok()).expect("an id");
    (id(2), id(3))
}
