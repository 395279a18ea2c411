//! Upgrades of the extension: from each version that was released, and one that a test plants, so
//! that there always is one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that is made here.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version that a planted upgrade leads to.
pub const PLANTED: &str = "planted";
/// A version before this one that had the same install script, so that there always is one.
pub const CANDIDATE: &str = "candidate";
/// What each upgrade script is made of.
pub const TEMPLATE: &str = include_str!("../../packaging/upgrade.sql");

/// An upgrade script as the next version will have one, with these changes.
pub fn planted_script(changes: &str) -> String {
    TEMPLATE.replace("-- What changes.\n", changes)
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
/// Postgres finds its files by where its programs are, so these are copied. Everything else is that
/// of the other one.
pub fn with_scripts(bindir: &Path, directory: &Path, planted: &str) -> PathBuf {
    let old = bindir.parent().expect("lib/postgresql/MAJOR");
    let major = old.file_name().expect("a major");
    let old_share = bindir.join("../../../../share/postgresql").join(major);
    let new = directory.join("lib/postgresql").join(major);
    let share = directory.join("share/postgresql").join(major);
    let scripts = share.join("extension");
    fs::create_dir_all(&new).expect("a directory");
    fs::create_dir_all(&scripts).expect("a directory");
    let copied = Command::new("cp").arg("-a").arg(bindir).arg(&new).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp {bindir:?}");
    symlink(old.join("lib"), new.join("lib")).expect("a link");
    link_all(&old_share, &share);
    link_all(&old_share.join("extension"), &scripts);
    let upgrade = |from, to, script: &str| {
        let path = scripts.join(format!("jobs--{from}--{to}.sql"));
        fs::write(path, script).expect("a script");
    };
    upgrade(VERSION, PLANTED, planted);
    upgrade(CANDIDATE, VERSION, TEMPLATE);
    let install = |version| scripts.join(format!("jobs--{version}.sql"));
    symlink(install(VERSION), install(CANDIDATE)).expect("a link");
    new.join("bin")
}

/// Links to all files of a directory that are not there.
fn link_all(from: &Path, to: &Path) {
    for file in fs::read_dir(from).expect("a directory") {
        let file = file.expect("a file");
        let link = to.join(file.file_name());
        if !link.exists() {
            symlink(file.path(), link).expect("a link");
        }
    }
}
