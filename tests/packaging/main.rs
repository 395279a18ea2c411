//! The suite `packaging`: what packagers and their users get. A part is the name of one.
//!
//! Nothing is built here but the program `pgjobs`: packages are made of what ./dev has installed.
//! The Debian package is really installed, into Debian's own Postgres and a cluster made for it,
//! and removed at the end, also when the suite stops half-way.

mod debian;
mod installed;
mod links;
mod linters;
mod make;
mod meta;
mod program;
mod release;
mod versions;

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use jobs_tests::checks::{Checks, output, succeeds, suite};
use jobs_tests::{Postgres, ROOT, need, owned_directory, scratch_directory};

fn main() -> ExitCode {
    suite(|checks| {
        let installed = Postgres::installed();
        let major = installed.major();
        let debian = PathBuf::from(format!("/usr/lib/postgresql/{major}"));
        if !debian.join("bin/pg_config").exists() {
            let tried = format!("apt-get install postgresql-{major}");
            let which = output(Command::new("ls").arg("/usr/lib/postgresql")).unwrap_or_default();
            let which = which.split_whitespace().collect::<Vec<_>>().join(" ");
            return checks.skip(
                format!("the package for Postgres {major}"),
                tried,
                format!("this Debian has {which} only"),
            );
        }
        // A socket will be in it.
        let scratch = scratch_directory();
        owned_directory(scratch.path());
        let packaging = Packaging {
            installed: &installed,
            debian,
            version: output(&mut script("version")).expect("a version").trim().into(),
            staged: scratch.path().join("staged"),
            scratch: scratch.path(),
        };
        packaging.stage(&packaging.staged);
        let parts: [(&str, Part); 10] = [
            ("versions", versions::agree),
            ("links", links::are_right),
            ("meta", meta::is_valid),
            ("make", make::installs),
            ("deb", debian::package),
            ("tools", program::package),
            ("release", release::is_made),
            ("docker", linters::docker),
            ("systemd", linters::systemd),
            ("scripts", linters::scripts),
        ];
        for (name, part) in parts {
            if checks.wants(name) {
                part(checks, &packaging);
            }
        }
    })
}

/// The tests of a part.
type Part = fn(&mut Checks, &Packaging);

/// What is packaged, and where.
struct Packaging<'a> {
    installed: &'a Postgres,
    /// Debian's Postgres.
    debian: PathBuf,
    version: String,
    /// The tree that `make` leaves for Debian's pg_config.
    staged: PathBuf,
    scratch: &'a Path,
}

impl Packaging<'_> {
    fn major(&self) -> &str {
        self.installed.major()
    }

    fn pg_config(&self) -> PathBuf {
        self.debian.join("bin/pg_config")
    }

    /// Fills a tree with the files that ./dev has installed.
    fn stage(&self, directory: &Path) {
        let major = self.major();
        let library = directory.join(format!("usr/lib/postgresql/{major}/lib"));
        let scripts = directory.join(format!("usr/share/postgresql/{major}/extension"));
        for directory in [&library, &scripts] {
            fs::create_dir_all(directory).expect("a directory");
        }
        let copy = |from: &Path, to: &Path| {
            fs::copy(from, to.join(from.file_name().expect("a name"))).expect("a copy");
        };
        copy(&self.installed.config("--pkglibdir").join("jobs.so"), &library);
        let extension = self.installed.config("--sharedir").join("extension");
        for file in fs::read_dir(extension).expect("files") {
            let file = file.expect("a file").path();
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            if name == "jobs.control" || name.starts_with("jobs--") {
                copy(&file, &scripts);
            }
        }
    }

    /// The program `pgjobs` beside it, unless it is there.
    fn stage_program(&self, checks: &mut Checks) -> bool {
        let directory = self.staged.join("usr/bin");
        let built = if directory.join("pgjobs").exists() {
            Ok(())
        } else {
            succeeds(script("program").arg(&directory).arg("dev"))
        };
        let is_built = built.is_ok();
        if !is_built {
            checks.check("the program is built", built);
        }
        is_built
    }

    /// A copy of the checkout, to be changed by a control. Not by git: what is not committed yet is
    /// tested, too.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.scratch.join(name);
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).expect("a directory");
        const TAR: &str = r#"tar -c --exclude=node_modules --exclude=./.git --exclude=./.dev --exclude=./target --exclude=./dist . | tar -x --no-same-owner -C "$0""#;
        in_bash(Path::new(ROOT), TAR, &[&copy]);
        copy
    }

    /// The files below usr/ that must be installed of a checkout, a line each.
    fn expected(&self, checkout: &Path) -> String {
        let major = self.major();
        let find = "find sql -name 'jobs--*.sql' -printf '%f\\n'";
        let mut names: Vec<String> =
            in_bash(checkout, find, &[]).lines().map(String::from).collect();
        names.extend(["jobs.control".into(), format!("jobs--{}.sql", self.version)]);
        let mut files: Vec<_> = names
            .iter()
            .map(|name| format!("/usr/share/postgresql/{major}/extension/{name}"))
            .chain([format!("/usr/lib/postgresql/{major}/lib/jobs.so")])
            .collect();
        files.sort();
        files.dedup();
        files.join("\n")
    }

    /// A pg_config of another major.
    fn config_of(&self, directory: &Path, major: impl Display) -> PathBuf {
        let path = directory.join(format!("pg_config{major}"));
        write_program(
            &path,
            &format!(
                "#!/bin/sh\ncase $1 in --version) echo 'PostgreSQL {major}.1 (Debian)' ;; *) '{}' $1 | sed 's:/{}:/{major}:' ;; esac\n",
                self.pg_config().display(),
                self.major()
            ),
        );
        path
    }
}

/// The version that was never released, from which a copy of the checkout can be upgraded.
const EARLIER: &str = "0.0.1";

/// Makes a copy of the checkout what it would be like if that version had been.
fn release_earlier(packaging: &Packaging, checkout: &Path) {
    let write = |path: String, text: &str| fs::write(checkout.join(path), text).expect("a script");
    fs::create_dir_all(checkout.join("sql/install")).expect("a directory");
    write(format!("sql/install/jobs--{EARLIER}.sql"), &format!("-- {EARLIER}\n"));
    write(
        format!("sql/jobs--{EARLIER}--{}.sql", packaging.version),
        &format!("-- from {EARLIER}\n"),
    );
    let changes = fs::read_to_string(checkout.join("CHANGELOG.md")).expect("CHANGELOG.md");
    write("CHANGELOG.md".into(), &format!("{changes}\n## [{EARLIER}] - 2020-01-01\n"));
}

/// A script of ops/packaging.
fn script(name: &str) -> Command {
    let mut script = Command::new(format!("ops/packaging/{name}"));
    script.current_dir(ROOT);
    // What is looked at here is inside of packages, and nobody keeps them.
    script.env("DPKG_DEB_COMPRESSOR_LEVEL", "0");
    // A checkout without git has no date.
    static NOW: LazyLock<String> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("a time").as_secs().to_string()
    });
    script.env("SOURCE_DATE_EPOCH", &*NOW);
    script
}

/// What a line of bash prints that must succeed; `$0`, `$1` and so on are these.
fn in_bash(directory: &Path, line: &str, arguments: &[&Path]) -> String {
    let mut bash = Command::new("bash");
    bash.current_dir(directory).args(["-euc", line]).args(arguments);
    output(&mut bash).unwrap_or_else(|said| panic!("{line}: {said}"))
}

/// Installs Debian's packages, or has the test fail that needs them.
fn has_packages(checks: &mut Checks, packages: &[&str]) -> bool {
    let tried = format!("apt-get install {}", packages.join(" "));
    let needed = need(&[&["need_packages"][..], packages].concat());
    needed.map_err(|error| checks.cannot("its tools", tried, &error)).is_ok()
}

fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a program");
}
