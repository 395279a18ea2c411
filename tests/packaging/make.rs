//! The Makefile. cargo is played by a script that writes down how it was called: the build itself
//! is what ./dev does.

use std::fs;
use std::path::Path;
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, holds, output, same, succeeds};
use regex::Regex;

use crate::{Packaging, release_earlier, write_program};

pub fn installs(checks: &mut Checks, packaging: &Packaging) {
    let copy = packaging.copy("make");
    release_earlier(packaging, &copy);
    let to = packaging.scratch.join("destdir");
    let pg_config = packaging.pg_config();
    let make = |arguments: &[&str]| {
        let mut make = Command::new("make");
        make.args(["-s", "-C"]).arg(&copy).args(arguments);
        make.arg(format!("DESTDIR={}", to.display()));
        make
    };
    let of = format!("PG_CONFIG={}", pg_config.display());
    let staged = format!("STAGED={}", packaging.staged.display());
    checks.check(
        "make install takes PG_CONFIG and DESTDIR",
        succeeds(&mut make(&["install", &of, &staged])),
    );
    checks.check(
        "and installs all files",
        has(&to, &packaging.expected(Path::new(jobs_tests::ROOT))),
    );
    checks.finds(
        "control: another list of files is refused",
        "-/etc/jobs.conf",
        has(&to, "/etc/jobs.conf"),
    );
    checks.check("make uninstall removes them", succeeds(&mut make(&["uninstall", &of])));
    checks.check("all of them", has(&to, ""));
    let nowhere = succeeds(&mut make(&["install", "PG_CONFIG=/nowhere/pg_config"]));
    checks.finds("control: without a server there is nothing to do", "set PG_CONFIG", nowhere);
    builds(checks, packaging, &copy, &to);
}

fn builds(checks: &mut Checks, packaging: &Packaging, copy: &Path, to: &Path) {
    let stub = packaging.scratch.join("stub");
    let major = packaging.major();
    write_program(
        &stub.join("cargo"),
        r#"#!/bin/bash
echo "$PGRX_PG_CONFIG_PATH: cargo $*" >>"$STUB/calls"
mkdir -p "$CARGO_TARGET_DIR/release" && echo built >"$CARGO_TARGET_DIR/release/libjobs.so"
"#,
    );
    let [ours, other] = [major, "99"].map(|major| packaging.config_of(&stub, major));
    let make = |target: &str, pg_config: &Path| {
        let mut make = Command::new("make");
        make.args(["-s", "-C"]).arg(copy).arg(target);
        make.arg(format!("PG_CONFIG={}", pg_config.display()))
            .arg(format!("DESTDIR={}", to.display()));
        make.env_remove("PGRX_PG_CONFIG_PATH")
            .env("STUB", &stub)
            .env("CARGO_TARGET_DIR", stub.join("target"));
        let path = std::env::var("PATH").expect("PATH");
        succeeds(make.env("PATH", format!("{}:{path}", stub.display())))
    };
    let calls = || fs::read_to_string(stub.join("calls")).unwrap_or_default();
    let are = |count| holds(calls().lines().count() == count, calls());
    let called = |words: String| {
        let words = Regex::new(&words).expect("a regex");
        holds(calls().lines().any(|call| words.is_match(call)), calls())
    };
    checks.check("make builds by cargo", make("all", &ours));
    let build = format!(
        "^{}: cargo build --lib --profile release --no-default-features --features pg{major} $",
        regex::escape(&ours.display().to_string())
    );
    checks.check("for the major of PG_CONFIG, with its feature alone", called(build));
    checks.check("make install then builds nothing", make("install", &ours));
    checks.check("as one call says", are(1));
    checks.check("all files are there, earlier versions too", has(to, &packaging.expected(copy)));
    let read = |path: String| fs::read_to_string(to.join(path)).unwrap_or_default();
    let library = read(format!("usr/lib/postgresql/{major}/lib/jobs.so"));
    checks.check("the library is what cargo built", same("built", &library));
    let control = read(format!("usr/share/postgresql/{major}/extension/jobs.control"));
    let version = format!("default_version = '{}'", packaging.version);
    let names = holds(control.lines().any(|line| line.starts_with(&version)), control);
    checks.check("the control file names the version", names);
    let touched = succeeds(Command::new("touch").arg(copy.join("src/lib.rs")));
    let again = touched.and_then(|()| make("all", &ours));
    checks.check("make builds again when a source is newer", again);
    checks.check("as two calls say", are(2));
    make("all", &other).expect("make");
    checks.check("another major has another feature", called("--features pg99 $".into()));
    let tree = stub.join("target/package/_usr_lib_postgresql_99_lib/built");
    checks.check("and a tree of its own", holds(tree.exists(), tree.display()));
}

/// These files are in a directory, and no others.
pub fn has(directory: &Path, expected: &str) -> Outcome {
    let files = output(Command::new("find").current_dir(directory).args([".", "-type", "f"]))?;
    let mut files: Vec<_> = files.lines().map(|file| file.trim_start_matches('.')).collect();
    files.sort();
    same(expected, &files.join("\n"))
}
