//! The Debian package of the extension.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs_tests::ROOT;
use jobs_tests::checks::{Checks, Outcome, holds, output, same, succeeds};
use regex::Regex;

use crate::{Packaging, has_packages, in_bash, installed, script};

pub fn package(checks: &mut Checks, packaging: &Packaging) {
    if !has_packages(checks, &["debhelper", "lintian"]) {
        return;
    }
    let (major, version) = (packaging.major(), &packaging.version);
    let directory = packaging.scratch.join("dist");
    let made = make(&packaging.staged, major, &directory);
    checks.check("the Debian package is made", made);
    let name = format!("postgresql-{major}-jobs");
    let Some(package) = find(&directory, &format!("{name}_{version}-1_")) else {
        return; // that was counted
    };
    let expected = packaging.expected(Path::new(ROOT));
    controls(checks, packaging, &package, &expected);
    let fields = field(&package, &["Package", "Version", "Section"]);
    let right = format!("Package: {name}\nVersion: {version}-1\nSection: database");
    checks.check("it has the name and version that it should", same(&right, &fields));
    let depends = field(&package, &["Depends"]);
    let needed = Regex::new(&format!("^postgresql-{major}, .*libc6")).expect("a regex");
    checks.check("it depends on its server", holds(needed.is_match(&depends), &depends));
    checks.check("it installs all files of the extension", has(&package, &expected));
    let again = packaging.scratch.join("again");
    let made = make(&packaging.staged, major, &again);
    let twin = again.join(package.file_name().expect("a name"));
    let is_same = made.and_then(|()| succeeds(Command::new("cmp").arg(&package).arg(twin)));
    checks.check("the same files make the same package", is_same);
    checks.check("lintian is content", lintian(&package));
    installed::works(checks, packaging, &package);
}

/// A package of what is staged.
pub fn make(staged: &Path, major: &str, directory: &Path) -> Outcome {
    succeeds(script("deb").arg(staged).arg(major).arg(directory))
}

/// The file in a directory whose name begins so.
pub fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?;
    let mut files = files.map(|file| file.expect("a file").path());
    files.find(|file| file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
}

pub fn field(package: &Path, names: &[&str]) -> String {
    output(Command::new("dpkg-deb").arg("-f").arg(package).args(names)).expect("dpkg-deb")
}

/// A package has these files beside documents.
pub fn has(package: &Path, expected: &str) -> Outcome {
    const LIST: &str = r#"dpkg-deb --fsys-tarfile "$0" | tar -t | sed -n 's/^\.//; /\/$/d; /^\/usr\/share\/doc\//d; p' | LC_ALL=C sort"#;
    same(expected, &in_bash(Path::new(ROOT), LIST, &[package]))
}

/// Warnings count, too. It is not for Debian's archive, so it closes none of Debian's bugs.
pub fn lintian(package: &Path) -> Outcome {
    let mut lintian = Command::new("lintian");
    lintian.args([
        "--allow-root",
        "--fail-on",
        "error,warning",
        "--suppress-tags",
        "initial-upload-closes-no-bugs",
    ]);
    succeeds(lintian.arg(package))
}

fn controls(checks: &mut Checks, packaging: &Packaging, package: &Path, expected: &str) {
    const BREAK: &str = r#"dpkg-deb -R "$0" "$1"; rm "$1"/usr/share/doc/postgresql-*-jobs/copyright "$1"/usr/share/postgresql/*/extension/jobs--*.sql; dpkg-deb --root-owner-group -b "$1" "$1.deb""#;
    let tree = packaging.scratch.join("unpacked");
    in_bash(Path::new(ROOT), BREAK, &[package, &tree]);
    let broken = packaging.scratch.join("unpacked.deb");
    checks.finds(
        "control: lintian finds a package without a copyright",
        "no-copyright-file",
        lintian(&broken),
    );
    checks.finds(
        "control: a package without scripts is found",
        r"jobs--.*\.sql",
        has(&broken, expected),
    );
    let incomplete = packaging.scratch.join("incomplete");
    packaging.stage(&incomplete);
    let library = format!("usr/lib/postgresql/{}/lib/jobs.so", packaging.major());
    fs::remove_file(incomplete.join(library)).expect("the library");
    let made = make(&incomplete, packaging.major(), &packaging.scratch.join("dist"));
    checks.finds("control: there is no package without the library", r"has no .*jobs\.so", made);
}
