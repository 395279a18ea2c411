//! A release, as ops/packaging/release makes one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, holds, same, succeeds};
use jobs_tests::{ROOT, rows, state_directory};

use crate::{Packaging, debian, has_packages, in_bash, make, script};

/// What a release is refused for, and what makes it so in a checkout.
const REFUSED: &str = r#"
    not committed | touch new_file
    has no date | sed -i '0,/^## \[/s/ - 2030-12-31/ - unreleased/' CHANGELOG.md
    what was released as | sed -i '1i -- changed' sql/10_schema.sql
    no maintainer's address | sed -i 's/@postgresql\.org/@example.org/' ops/packaging/META.json
    has no repository | ops/packaging/links --to https://example.com/jobs
    versions or links differ | sed -i 's/This is version [0-9.]*[0-9]/This is version 9.9.9/' README.md
    is tagged already | git tag "v$(ops/packaging/version)"
"#;

pub fn is_made(checks: &mut Checks, packaging: &Packaging) {
    if !has_packages(checks, &["git", "debhelper", "help2man", "zip", "unzip"])
        || !packaging.stage_program(checks)
    {
        return;
    }
    let (major, version) = (packaging.major(), &packaging.version);
    let release = Release { packaging, checkout: packaging.copy("release") };
    release.change(&format!(
        r#"sed -i "0,/^## \[/s/^## \[.*/## [{version}] - 2030-12-31/" CHANGELOG.md"#
    ));
    release.change(r#"sed -i 's/"maintainer": .*/"maintainer": "Some Body <somebody@postgresql.org>",/' ops/packaging/META.json"#);
    release.change("ops/packaging/links --to https://git.postgresql.org/jobs");
    for command in
        [&["init", "-q", "-b", "main"][..], &["add", "-A"], &["commit", "-q", "-m", "a release"]]
    {
        release.git(command);
    }
    checks.check("a release is made", release.make(&packaging.pg_config()));
    let source = format!("jobs-{version}.zip");
    let package = format!("postgresql-{major}-jobs_{version}-1_");
    let files = release.has(&[&source, &package, "jobs-tools_", "SHA256SUMS"]);
    checks.check("it has the source, the packages and checksums", files);
    checks.check("the checksums are right", release.sums());
    let zipped = release.change(&format!("unzip -Z1 dist/{source} | grep -v '/$' | LC_ALL=C sort"));
    let tracked = "{ git ls-files; echo META.json; }";
    let tracked =
        release.change(&format!("{tracked} | sed 's:^:jobs-{version}/:' | LC_ALL=C sort"));
    let what = "the source is what git has and PGXN's META.json, in a directory of its own";
    checks.check(what, same(&tracked, &zipped));
    let package = debian::find(&release.dist(), &package).expect("the package");
    let maintainer =
        same("Some Body <somebody@postgresql.org>", &debian::field(&package, &["Maintainer"]));
    checks.check("the package's maintainer is META.json's", maintainer);
    let changed = release.git(&["tag"]) + &release.git(&["status", "--porcelain", "-uall"]);
    let script_kept = same(&format!("?? sql/install/jobs--{version}.sql"), &changed);
    checks.check("nothing was tagged or changed, but the install script is kept", script_kept);
    let packed = format!(
        r#"dpkg-deb --fsys-tarfile "$0" | tar -xO ./usr/share/postgresql/{major}/extension/jobs--{version}.sql"#
    );
    let packed = in_bash(&release.checkout, &packed, &[&package]);
    let kept = release.checkout.join(format!("sql/install/jobs--{version}.sql"));
    let is_packed = same(&packed, &fs::read_to_string(kept).unwrap_or_default());
    checks.check("as it is in the package", is_packed);
    release.git(&["add", "sql/install"]);
    release.git(&["commit", "-q", "-m", "its install script"]);
    let still = succeeds(script("check").arg(&release.checkout));
    checks.check("then it is still that version", still);
    let source = release.dist().join(source);
    pgxn(checks, packaging, &source);
    release.change(&format!("echo >>'{}'", source.display()));
    checks.finds("control: a changed file has another checksum", "did NOT match", release.sums());

    for [said, change] in rows(REFUSED) {
        let outcome = release.refused(said, change);
        checks.finds(format!("control: no release: {said}"), said, outcome);
    }
    release.git(&["tag", "-d", &format!("v{version}")]);
    let other = packaging.config_of(packaging.scratch, 99);
    checks.finds("control: no release: no feature for", "no feature for", release.make(&other));
}

/// A copy of the checkout from which releases are made.
struct Release<'a> {
    packaging: &'a Packaging<'a>,
    checkout: PathBuf,
}

impl Release<'_> {
    fn dist(&self) -> PathBuf {
        self.checkout.join("dist")
    }

    fn change(&self, line: &str) -> String {
        in_bash(&self.checkout, line, &[])
    }

    fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(&self.checkout);
        for setting in ["user.name=tests", "user.email=tests@localhost", "commit.gpgsign=false"] {
            git.args(["-c", setting]);
        }
        let said = jobs_tests::checks::output(git.args(arguments));
        said.unwrap_or_else(|said| panic!("git {arguments:?}: {said}"))
    }

    fn make(&self, pg_config: &Path) -> Outcome {
        let mut release = script("release");
        release.current_dir(&self.checkout).arg(pg_config);
        succeeds(release.env("STAGED", &self.packaging.staged))
    }

    fn sums(&self) -> Outcome {
        succeeds(Command::new("sha256sum").current_dir(self.dist()).args([
            "--quiet",
            "-c",
            "SHA256SUMS",
        ]))
    }

    /// Files whose names begin so, and nothing else.
    fn has(&self, names: &[&str]) -> Outcome {
        for name in names {
            let file = debian::find(&self.dist(), name).ok_or(format!("no {name}"))?;
            holds(fs::metadata(file).expect("a file").len() > 0, format!("{name} is empty"))?;
        }
        let files = fs::read_dir(self.dist()).expect("dist").count();
        holds(files == names.len(), format!("{files} files"))
    }

    /// The change is committed only where that is what is tried; afterwards it is undone.
    fn refused(&self, said: &str, change: &str) -> Outcome {
        let head = self.git(&["rev-parse", "HEAD"]);
        self.change(change);
        if said != "not committed" {
            self.git(&["commit", "-q", "-a", "--allow-empty", "-m", "control"]);
        }
        let outcome = self.make(&self.packaging.pg_config());
        self.git(&["reset", "-q", "--hard", head.trim()]);
        self.git(&["clean", "-q", "-f"]);
        outcome
    }
}

/// PGXN's client reads META.json of the archive, and calls make with its own variables.
fn pgxn(checks: &mut Checks, packaging: &Packaging, source: &Path) {
    let need = ["need_python", "packaging", "tests/packaging/requirements.txt"];
    let what = "PGXN's client installs from the source";
    if !checks.has(what, "pip install -r tests/packaging/requirements.txt", &need) {
        return;
    }
    let to = packaging.scratch.join("pgxn");
    fs::create_dir(&to).expect("a directory");
    let install = |source: &Path| {
        let mut client = Command::new(state_directory().join("packaging/bin/pgxnclient"));
        client
            .args(["install", "--yes", "--nosudo", "--pg_config"])
            .arg(packaging.pg_config())
            .arg(source);
        client.current_dir(ROOT).env("STAGED", &packaging.staged);
        succeeds(client.env("DESTDIR", &to))
    };
    checks.check(what, install(source));
    checks.check("all files", make::has(&to, &packaging.expected(Path::new(ROOT))));
    let incomplete = packaging.scratch.join("incomplete.zip");
    fs::copy(source, &incomplete).expect("a copy");
    in_bash(packaging.scratch, "zip -q -d incomplete.zip '*/Makefile'", &[]);
    checks.finds("control: not without a Makefile", "Makefile", install(&incomplete));
}
