//! Upgrades of the extension: from each version that was released, and one that a test plants, so
//! that there always is one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that is made here.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version that a planted upgrade leads to.
pub const PLANTED: &str = "planted";
/// The first release candidate: `support/candidate/` has its install script, without comments.
pub const CANDIDATE: &str = "candidate";
/// What each upgrade script is made of.
pub const TEMPLATE: &str = include_str!("../../ops/packaging/upgrade.sql");

/// An upgrade script as the next version will have one, with these changes.
pub fn planted_script(changes: &str) -> String {
    TEMPLATE.replace("-- What changes.\n", changes)
}

/// The upgrade script from [`CANDIDATE`] to this version.
fn candidate_script() -> String {
    let changes = include_str!("candidate/changes.sql");
    // Tables and views that these change.
    let changed = "jobs.ready, jobs.scheduled, jobs.running, jobs.errors";
    planted_script(&format!("{changes}{}", replaced(&install_script())))
        .replace("jobs.error, jobs.errors", changed)
}

/// This version's install script, as `make` puts it together.
fn install_script() -> String {
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql");
    let parts = fs::read_dir(parts).expect("the scripts");
    let mut parts: Vec<PathBuf> = parts.map(|part| part.expect("a file").path()).collect();
    parts.retain(|part| {
        let name = part.file_name().expect("a name").as_encoded_bytes();
        name[0].is_ascii_digit()
    });
    parts.sort();
    let read = |part: &PathBuf| fs::read_to_string(part).expect("a script");
    parts.iter().map(read).collect()
}

/// The statements of a script that say anew what a function, a view or a COMMENT is. Each begins a
/// line and ends with one.
fn replaced(script: &str) -> String {
    let creates = ["CREATE FUNCTION ", "CREATE PROCEDURE ", "CREATE VIEW "];
    let mut replaced = String::new();
    // How the statement ends that the line is part of.
    let mut ends: Option<&[&str]> = None;
    for line in script.split_inclusive('\n') {
        if ends.is_none() {
            if line.starts_with("COMMENT ON ") {
                ends = Some(&["';\n", "$$;\n"]);
            } else if creates.iter().any(|create| line.starts_with(create)) {
                ends = Some(&[";\n"]);
                replaced += "CREATE OR REPLACE";
                replaced += &line["CREATE".len()..];
                if line.ends_with(";\n") {
                    ends = None;
                }
                continue;
            }
        } else if line == "BEGIN ATOMIC\n" {
            ends = Some(&["END;\n"]);
        }
        if let Some(end) = ends {
            replaced += line;
            if end.iter().any(|end| line.ends_with(end)) {
                ends = None;
            }
        }
    }
    replaced
}

/// The versions that were released before this one: their install scripts are kept.
pub fn released() -> Vec<String> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/install");
    // Before the first release there is no such directory.
    let Ok(files) = fs::read_dir(kept) else {
        return Vec::new();
    };
    files
        .filter_map(|file| {
            let name = file.expect("a file").file_name().into_string().ok()?;
            let version = name.strip_prefix("jobs--")?.strip_suffix(".sql")?;
            (version != VERSION).then(|| version.to_string())
        })
        .collect()
}

/// Makes a Postgres in this directory with more scripts for the extension: an upgrade to
/// [`PLANTED`], and [`CANDIDATE`] with its upgrade to this version. Returns where its programs are.
///
/// Postgres finds its files by where its programs are, so these are copied. Everything else is a
/// link to that of the other one.
pub fn with_scripts(bindir: &Path, directory: &Path, planted: &str) -> PathBuf {
    let is_of_major = |path: &&Path| path.parent().is_some_and(|of| of.ends_with("lib/postgresql"));
    let of_major = bindir.ancestors().find(is_of_major).expect("a major");
    let root = of_major.ancestors().nth(3).expect("a tree");
    let copy = |options, from: PathBuf, to: &Path| {
        fs::create_dir_all(to).expect("a directory");
        let copied = Command::new("cp").args(options).arg(&from).arg(to).status();
        assert!(copied.is_ok_and(|status| status.success()), "cp {from:?}");
    };
    for part in ["lib", "share"] {
        let part = Path::new(part).join("postgresql");
        let from = root.join(&part).join(of_major.file_name().expect("a major"));
        copy(["-a", "--symbolic-link"], from, &directory.join(part));
    }
    let new = directory.join(bindir.strip_prefix(root).expect("a part of the tree"));
    copy(["-a", "--remove-destination"], bindir.join("."), &new);
    let share = Command::new(new.join("pg_config")).arg("--sharedir").output();
    let share = String::from_utf8(share.expect("pg_config").stdout).expect("a path");
    let scripts = Path::new(share.trim()).join("extension");
    let upgrade = |from, to, script: &str| {
        let path = scripts.join(format!("jobs--{from}--{to}.sql"));
        fs::write(path, script).expect("a script");
    };
    upgrade(VERSION, PLANTED, planted);
    upgrade(CANDIDATE, VERSION, &candidate_script());
    let frozen = scripts.join(format!("jobs--{CANDIDATE}.sql"));
    fs::write(frozen, include_str!("candidate/install.sql")).expect("a script");
    new
}
