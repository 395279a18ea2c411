//! What tests need of the machine. ./dev knows how to install it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::checks::{output, succeeds};

/// The top of the checkout.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The script that moves cells.
pub const MOVE_CELLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/move-cells");

/// Calls a function of ./dev or tests/programs.sh, and returns what it prints.
pub fn dev(function_and_arguments: &[&str]) -> Result<String, String> {
    dev_of(Path::new(ROOT), function_and_arguments)
}

/// As [`dev`], of a copy of the checkout.
pub fn dev_of(checkout: &Path, function_and_arguments: &[&str]) -> Result<String, String> {
    let mut dev = Command::new("bash");
    dev.arg("-c").arg(r#"exec 2>&1; exec bash "$0/dev" call "$@""#);
    output(dev.arg(checkout).args(function_and_arguments))
}

/// Has ./dev install something; the error is what it says.
pub fn need(function_and_arguments: &[&str]) -> Result<(), String> {
    dev(function_and_arguments).map(|_| ())
}

/// A program as `command` finds it, also among those that ./dev unpacks from packages.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = ["usr/sbin", "usr/bin"].map(|part| cache().join("programs").join(part));
    let mut places = unpacked.into_iter().chain(std::env::split_paths(&path));
    places.find_map(|place| Some(place.join(name)).filter(|found| found.exists()))
}

/// Where ./dev keeps what all checkouts use.
pub fn cache() -> PathBuf {
    let of_user = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(of_user, PathBuf::from);
    cache.join("jobs-dev")
}

/// Where cargo builds.
pub fn target_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from)
}

/// The program `pgjobs`, built once; the error is what cargo says.
pub fn pgjobs() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let mut build = Command::new("cargo");
        build.current_dir(ROOT).args(["build", "--quiet", "-p", "postgres-jobs-cli"]);
        succeeds(&mut build).map(|()| target_directory().join("debug/pgjobs"))
    });
    built.as_deref().map_err(String::clone)
}
