//! The Debian package of the program `pgjobs`.

use std::fs;
use std::path::Path;
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, feed, holds, output, succeeds};
use jobs_tests::{Cluster, ROOT};

use crate::{Packaging, debian, has_packages, in_bash};

const FILES: &str = "/lib/systemd/system/jobs-console.service
/lib/systemd/system/jobs-forward.service
/lib/systemd/system/jobs-work@.service
/usr/bin/jobs
/usr/bin/pgjobs
/usr/share/bash-completion/completions/pgjobs
/usr/share/jobs-tools/outbox.sql
/usr/share/lintian/overrides/jobs-tools
/usr/share/man/man1/jobs.1.gz
/usr/share/man/man1/pgjobs.1.gz";

pub fn package(checks: &mut Checks, packaging: &Packaging) {
    if !has_packages(checks, &["debhelper", "help2man", "lintian"]) {
        return;
    }
    let directory = packaging.scratch.join("tools");
    let empty = packaging.scratch.join("empty");
    fs::create_dir_all(&empty).expect("a directory");
    let without = debian::make(&empty, "tools", &directory);
    checks.finds(
        "control: there is no package without the program",
        "has no usr/bin/pgjobs",
        without,
    );
    if !packaging.stage_program(checks) {
        return;
    }
    let made = debian::make(&packaging.staged, "tools", &directory);
    checks.check("the Debian package of the program is made", made);
    let manifest =
        fs::read_to_string(Path::new(ROOT).join("cli/Cargo.toml")).expect("cli/Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = version.expect("a version").trim_end_matches('"');
    let Some(package) = debian::find(&directory, &format!("jobs-tools_{version}-1_")) else {
        return; // that was counted
    };
    checks.check("it has the program, its units and its manual page", debian::has(&package, FILES));
    let depends = debian::field(&package, &["Depends"]);
    checks.check("it needs no files of Postgres", holds(!depends.contains("postgresql"), &depends));
    checks.check("lintian is content with it", debian::lintian(&package));
    let tree = packaging.scratch.join("program");
    output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree)).expect("dpkg-deb");
    let program = tree.join("usr/bin/pgjobs");
    let says = output(Command::new(&program).arg("--version"));
    let runs = says.and_then(|says| holds(says.starts_with(&format!("pgjobs {version}")), says));
    checks.check("the program runs", runs);
    checks.check("its manual page has every command", has_commands(&program, &tree));
    connects(checks, packaging, &program);
}

/// Whatever system it is on, it needs nothing of it, also where it looks up a name.
fn connects(checks: &mut Checks, packaging: &Packaging, program: &Path) {
    checks.check("it needs no library", is_static(program));
    checks
        .refuses("control: another one does", is_static(&packaging.installed.bindir.join("psql")));
    let cluster = Cluster::builder().with_tcp().start();
    cluster.psql("postgres", "create extension jobs");
    let top = |place: &str, more: &str| {
        let database = format!("host={place} port={} user=postgres{more}", cluster.port());
        succeeds(Command::new(program).args(["top", "--once", "-d", &database]))
    };
    let socket = cluster.directory().display().to_string();
    for place in ["localhost", "127.0.0.1", &socket] {
        checks.check(format!("it connects to {place}"), top(place, ""));
    }
    checks.finds("it has TLS", "TLS handshake", top("127.0.0.1", " sslmode=require"));
    checks.end(cluster);
}

fn is_static(program: &Path) -> Outcome {
    let (_, said) = feed(Command::new("ldd").arg(program), "");
    holds(said.contains("not a dynamic executable") || said.contains("statically linked"), said)
}

fn has_commands(program: &Path, tree: &Path) -> Outcome {
    const COMMANDS: &str = r#""$0" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'"#;
    let page = in_bash(tree, "zcat usr/share/man/man1/pgjobs.1.gz", &[]);
    let words: Vec<_> = page.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let commands = in_bash(tree, COMMANDS, &[program]);
    holds(!commands.is_empty(), "it has no commands")?;
    let missing: Vec<_> = commands.lines().filter(|command| !words.contains(command)).collect();
    holds(missing.is_empty(), format!("no {missing:?}"))
}
