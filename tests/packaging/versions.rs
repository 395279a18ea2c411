//! Every file that names a version names the right one: ops/packaging/check.

use std::path::Path;

use jobs_tests::checks::{Checks, succeeds};
use jobs_tests::rows;

use crate::{EARLIER, Packaging, in_bash, release_earlier, script};

/// What the check says, and what makes it wrong.
const WRONG: &str = r#"
    Cargo.lock, jobs-core | sed -i '/^name = "jobs-core"/{n;s/".*"/"9.9.9"/}' Cargo.lock
    jobs.control | sed -i "s/@CARGO_VERSION@/9.9.9/" jobs.control
    META.json | sed -i '0,/"version": /s/"version": .*/"version": "9.9.9",/' ops/packaging/META.json
    META.json, provides | sed -i '/"docfile"/{n;s/"version": .*/"version": "9.9.9"/}' ops/packaging/META.json
    META.json, the oldest Postgres | sed -i 's/"PostgreSQL": .*/"PostgreSQL": "9.6.0"/' ops/packaging/META.json
    README.md | sed -i 's/This is version [0-9.]*[0-9]/This is version 9.9.9/' README.md
    CHANGELOG.md, the newest | sed -i '0,/^## \[/s/^## \[.*/## [9.9.9] - unreleased/' CHANGELOG.md
    CHANGELOG.md, headings of another form | sed -i '0,/^## \[/s/^## .*/&, soon/' CHANGELOG.md
    clients/typescript/src/version.ts | sed -i 's/"0.*"/"9.9.9"/' clients/typescript/src/version.ts
    rust-toolchain.toml | sed -i 's/1\.95/1.94/' rust-toolchain.toml
    ops/Dockerfile, rust | sed -i 's/rust:1\.95/rust:1.94/' ops/Dockerfile
    Cargo.toml, pgrx-tests | sed -i 's/^pgrx-tests = .*/pgrx-tests = "=0.1.0"/' Cargo.toml
    META.json: .*must be .9\.9\.9 | sed -i '/^\[workspace.package\]/,/^\[/s/^version = .*/version = "9.9.9"/' Cargo.toml
"#;

pub fn agree(checks: &mut Checks, packaging: &Packaging) {
    checks.check("all files name the same version", succeeds(&mut script("check")));
    let of = |checkout: &Path| succeeds(script("check").arg(checkout));
    for [said, change] in rows(WRONG) {
        let copy = packaging.copy("versions");
        in_bash(&copy, change, &[]);
        checks.finds(format!("control: a version is wrong: {said}"), said, of(&copy));
    }
    let copy = packaging.copy("versions");
    release_earlier(packaging, &copy);
    checks.check("an earlier version can be upgraded", of(&copy));
    let (version, earlier) = (&packaging.version, EARLIER);
    for (said, change) in [
        ("sql, where upgrade scripts lead", format!("rm sql/jobs--{earlier}--{version}.sql")),
        ("sql/install, the versions before", format!("rm sql/install/jobs--{earlier}.sql")),
        (
            "what was released as",
            format!("cp sql/install/jobs--{earlier}.sql sql/install/jobs--{version}.sql"),
        ),
    ] {
        let copy = packaging.copy("versions");
        release_earlier(packaging, &copy);
        in_bash(&copy, &change, &[]);
        checks.finds(format!("control: a version is wrong: {said}"), said, of(&copy));
    }
}
