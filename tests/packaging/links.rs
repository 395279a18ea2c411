//! Links of the packages are right where a registry shows them: ops/packaging/links.

use std::fs;
use std::path::Path;

use jobs_tests::checks::{Checks, same, succeeds};
use jobs_tests::{ROOT, rows};

use crate::{Packaging, in_bash, script};

/// What is said, and what makes it so in a checkout.
const WRONG: &str = r#"
    META.json, resources | sed -i '/"web": /s/issues/bugs/' ops/packaging/META.json
    pyproject.toml, project.urls | sed -i '/^Changelog = /d' clients/python/pyproject.toml
    package.json | sed -i '/"bugs": /d' clients/typescript/package.json
    cli/Cargo.toml | sed -i '/^documentation = /d' cli/Cargo.toml
    ops/book.toml | sed -i '/^git-repository-url/d' ops/book.toml
    clients/go/README.md: no link to its CHANGELOG | sed -i '/CHANGELOG/d' clients/go/README.md
    a link out of the package: ../README.md | echo '[all](../README.md)' >>clients/python/README.md
    a link to nothing: https://.*/blob/HEAD/docs/none.md | sed -i 's#/docs/console.md#/docs/none.md#' cli/README.md
    a link to nothing: https://.*/clients/README.md#lost | sed -i 's/#logs/#lost/' clients/go/README.md
    a link into the repository without | sed -i 's#/blob/HEAD/clients/typescript/examples#/examples#' clients/typescript/README.md
    an item without an address: .`Options` | sed -i '/^.`Options`.:/d' clients/rust/README.md
    a hidden line: # use | sed -i 's/^use std::time/# &/' clients/rust/README.md
"#;

pub fn are_right(checks: &mut Checks, packaging: &Packaging) {
    checks.check("every link of the packages is right", succeeds(&mut script("links")));
    for [said, change] in rows(WRONG) {
        let copy = packaging.copy("links");
        in_bash(&copy, change, &[]);
        let outcome = succeeds(script("links").arg(&copy));
        checks.finds(format!("control: a link is wrong: {said}"), said, outcome);
    }
    let moved = packaging.copy("links");
    in_bash(&moved, "ops/packaging/links --to https://example.com/queue", &[]);
    checks.check("all follow when the repository moves", succeeds(script("links").arg(&moved)));
    let former = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).expect("Cargo.toml");
    let former = former.lines().find_map(|line| line.strip_prefix("repository = "));
    let left = r#"grep -rlF "${0//\"/}" cli clients ops Cargo.toml"#;
    let left = in_bash(&moved, &format!("{left} || true"), &[Path::new(former.expect("one"))]);
    checks.check("none names the former address", same("", &left));
}
