//! The suite `pgspot`: the scripts that CREATE EXTENSION and ALTER EXTENSION .. UPDATE run as
//! superuser, searched for names that another search_path could turn. Every finding counts,
//! warnings too. A part is a part of a script's name.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, output, suite};
use jobs_tests::{Postgres, ROOT, cache, upgrade};

const SET: &str = "SET LOCAL search_path = pg_catalog, pg_temp;";

fn main() -> ExitCode {
    suite(scripts)
}

fn scripts(checks: &mut Checks) {
    if !checks.has("pgspot", "pip install pgspot", &["need_pgspot"]) {
        return;
    }
    let extension = Postgres::installed().config("--sharedir").join("extension");
    let install = extension.join(format!("jobs--{}.sql", upgrade::VERSION));
    let upgrades = fs::read_dir(Path::new(ROOT).join("sql")).expect("sql");
    let upgrades = upgrades.map(|file| file.expect("a script").path());
    let upgrades = upgrades.filter(|script| name_of(script).starts_with("jobs--"));
    for script in std::iter::once(install.clone()).chain(upgrades) {
        let name = name_of(&script);
        if checks.wants(&name) {
            checks.check(&name, clean(&findings(&name, &read(&script), &extension)));
        }
    }

    // What is planted is found by its code, in both kinds of scripts; without it they are clean.
    let planted = "CREATE FUNCTION jobs.planted() RETURNS int LANGUAGE c SECURITY DEFINER AS 'MODULE_PATHNAME', 'planted';\n";
    let planted = findings("jobs--planted", &(read(&install) + planted), &extension);
    checks.check(
        "control: a function without a search_path of its own is found",
        only("PS003", &planted),
    );
    let name = format!("jobs--{}--planted", upgrade::VERSION);
    let upgraded = |script: &str| findings(&name, script, &extension);
    let column = "ALTER TABLE jobs.job ADD COLUMN planted text DEFAULT 'a' || 'b';";
    let careful = upgraded(&format!("{SET} {column}"));
    checks.check("an upgrade script that sets its search_path is clean", clean(&careful));
    checks.check(
        "what upgrade scripts begin and end with is clean",
        clean(&upgraded(upgrade::TEMPLATE)),
    );
    checks.check(
        "control: an upgrade script that does not is found, whatever the earlier script sets",
        only("PS001", &upgraded(column)),
    );
    let replaced = "CREATE OR REPLACE FUNCTION public.planted() RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'planted';";
    checks.check(
        "control: a function that another role may have made is found",
        only("PS002", &upgraded(&format!("{SET} {replaced}"))),
    );
}

fn name_of(script: &Path) -> String {
    script.file_stem().expect("a name").to_string_lossy().into_owned()
}

fn read(script: &Path) -> String {
    fs::read_to_string(script).expect("a script")
}

/// It knows bodies of functions as texts only.
fn as_it_knows(script: &str) -> String {
    script.replace("\nBEGIN ATOMIC\n", "\nAS $atomic$\n").replace("\nEND;\n", "\n$atomic$;\n")
}

/// What pgspot says of a script. An upgrade script is read after the install script that it starts
/// from. How careful that one was does not matter, it has run; but what it has created the upgrade
/// may replace.
fn findings(name: &str, script: &str, extension: &Path) -> Result<String, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, as_it_knows(text)).expect("a script");
        path
    };
    let mut pgspot = Command::new(cache().join("pgspot/bin/pgspot"));
    if let [_, from, _] = name.split("--").collect::<Vec<_>>()[..] {
        let earlier = read(&extension.join(format!("jobs--{from}.sql")));
        let earlier =
            format!("SET search_path = pg_catalog, pg_temp;\n{earlier}\nRESET search_path;\n");
        pgspot.arg("-a").arg(write("earlier.sql", &earlier));
    }
    output(pgspot.arg(write(&format!("{name}.read"), script)))
}

fn clean(found: &Result<String, String>) -> Outcome {
    found.as_ref().map(|_| ()).map_err(String::clone)
}

/// This code is found, and nothing else.
fn only(code: &str, found: &Result<String, String>) -> Outcome {
    let Err(found) = found else {
        return Err("nothing was found".into());
    };
    let codes = || found.lines().filter(|line| line.starts_with("PS"));
    match codes().count() > 0 && codes().all(|line| line.starts_with(&format!("{code}:"))) {
        true => Ok(()),
        false => Err(found.clone()),
    }
}
