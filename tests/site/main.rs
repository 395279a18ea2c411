//! The suite `site`: the documentation as a site, and every link and anchor of it. A part is
//! `pages`, `links` or `controls`.
//!
//! Links are looked at where a reader follows them: in the HTML of the site that ./dev docs makes.
//! README.md and the documents beside it are in it, too. Nothing is asked for over the network: of
//! a link that leads out only the form counts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, holds, output, same, succeeds, suite};
use jobs_tests::{ROOT, as_owner, dev_of, need, scratch_directory, state_directory};
use regex::Regex;
use tempfile::TempDir;

fn main() -> ExitCode {
    suite(|checks| {
        if let Err(said) = need(&["need_mdbook"]).and_then(|()| need_linkchecker()) {
            return checks.check("mdbook and LinkChecker can be installed", Err(said));
        }
        if checks.wants("pages") {
            checks.check("docs/SUMMARY.md has every page once", has_every_page(Path::new(ROOT)));
        }
        if checks.wants("links") {
            let directory = readable_directory();
            let site = directory.path().join("site");
            checks.check(
                "the site is built without a word of complaint",
                build(Path::new(ROOT), &site),
            );
            checks.check("its links and anchors are right", links(&site, &[]));
        }
        if checks.wants("controls") {
            controls(checks);
        }
    })
}

/// What is wrong is planted in a copy of the repository, and found by its name.
fn controls(checks: &mut Checks) {
    let directory = readable_directory();
    let (copy, site) = (directory.path().join("copy"), directory.path().join("site"));
    fs::create_dir(&copy).expect("a directory");
    let mut tar = Command::new("bash");
    tar.args(["-c", r#"bash "$0/dev" call checkout_files | tar -x -C "$1""#, ROOT]).arg(&copy);
    succeeds(&mut tar).expect("a copy");
    let plant = |document: &str, line: &str| {
        let path = copy.join(document);
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, format!("{text}\n{line}\n")).expect(document);
    };
    let restore = |document: &str| {
        fs::copy(Path::new(ROOT).join(document), copy.join(document)).expect(document);
    };
    plant("docs/lost.md", "# Lost");
    checks.finds(
        "control: a page that is not in SUMMARY.md is found",
        "lost.md",
        has_every_page(&copy),
    );
    fs::remove_file(copy.join("docs/lost.md")).expect("the page");
    plant("docs/SUMMARY.md", "- [Lost](lost.md)");
    checks.finds("control: a page that is not there is found", "lost.md", build(&copy, &site));
    restore("docs/SUMMARY.md");
    plant("docs/concepts.md", "a <b>tag");
    checks.finds(
        "control: a tag that is not closed is found",
        "unclosed HTML tag",
        build(&copy, &site),
    );
    restore("docs/concepts.md");

    plant(
        "docs/concepts.md",
        "[1](lost-page.md) [2](../clients/examples/lost-file.rs) [3](worker-in-sql.md#lost-there) [4](#lost-here)",
    );
    plant("README.md", "[5](docs/worker-in-sql.md#lost-from-readme)");
    checks.check("a site with wrong links is built all the same", build(&copy, &site));
    let found = links(&site, &["index.html", "docs/concepts.html"]);
    for (what, words) in [
        ("control: its links are refused", ""),
        ("control: a link to a page that is not there", "Error.*lost-page.html"),
        ("control: a link to a file that is not there", "Error.*lost-file.rs"),
        ("control: an anchor of another page", "Anchor .lost-there"),
        ("control: an anchor of the same page", "Anchor .lost-here"),
        ("control: an anchor in README.md", "Anchor .lost-from-readme"),
        ("control: and nothing else", " 3 warnings found. 2 errors found"),
    ] {
        checks.finds(what, words, found.clone());
    }
}

/// The packages of the link checker, in an environment of their own, made once for each version of
/// their list. With Debian's Python, since user postgres must be able to run it: as root it would
/// become somebody who cannot read the site.
fn need_linkchecker() -> Outcome {
    let list = Path::new(ROOT).join("tests/site/requirements.txt");
    let environment = state_directory().join("linkchecker");
    let python = || Command::new("/usr/bin/python3");
    let wanted = output(python().arg("--version"))? + &fs::read_to_string(&list).expect("a list");
    if fs::read_to_string(environment.join("wanted")).is_ok_and(|has| has == wanted) {
        return Ok(());
    }
    succeeds(python().args(["-m", "venv", "--clear"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    succeeds(pip.args(["install", "-q", "--disable-pip-version-check", "-r"]).arg(list))?;
    fs::write(environment.join("wanted"), wanted).map_err(|error| error.to_string())
}

/// Builds the site of a checkout. mdbook says nothing beyond that it begins and where it writes to.
fn build(checkout: &Path, site: &Path) -> Outcome {
    let said = dev_of(checkout, &["build_site", &site.display().to_string()])?;
    holds(!["WARN", "ERROR"].iter().any(|level| said.contains(level)), &said)
}

fn has_every_page(checkout: &Path) -> Outcome {
    let docs = checkout.join("docs");
    let pages = output(Command::new("find").current_dir(&docs).args([".", "-name", "*.md"]))?;
    let pages = pages.lines().map(|page| page.trim_start_matches("./"));
    let pages: BTreeSet<_> = pages.filter(|page| *page != "SUMMARY.md").collect();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("SUMMARY.md");
    let link = Regex::new(r"\]\((.*\.md)\)").expect("a regex");
    let mut named: Vec<_> =
        link.captures_iter(&summary).map(|link| link.extract::<1>().1[0]).collect();
    named.sort();
    same(&pages.into_iter().collect::<Vec<_>>().join("\n"), &named.join("\n"))
}

/// The links of all pages of a site (404.html means the root of a web server), or of those named,
/// as far as they lead to files. Pages that they lead to are not followed: each is in the list
/// itself. A copy of the configuration is read, because the checkout may be out of reach.
fn links(site: &Path, pages: &[&str]) -> Outcome {
    let pages: Vec<PathBuf> = match pages {
        [] => {
            let all = output(
                Command::new("find").arg(site).args(["-name", "*.html", "!", "-name", "404.html"]),
            )?;
            all.lines().map(PathBuf::from).collect()
        }
        named => named.iter().map(|page| site.join(page)).collect(),
    };
    let directory = readable_directory();
    let configuration = directory.path().join("linkchecker.ini");
    fs::copy(Path::new(ROOT).join("tests/site/linkchecker.ini"), &configuration)
        .expect("linkchecker.ini");
    let mut checker = as_owner(&state_directory().join("linkchecker/bin/linkchecker"));
    checker.env("HOME", state_directory()).arg("-f").arg(configuration);
    checker.args(["--no-robots", "--no-status", "--recursion-level", "1", "--check-extern"]);
    checker.args(["--ignore-url", "^(https?|mailto):"]).args(pages);
    succeeds(&mut checker)
}

/// User postgres can read it.
fn readable_directory() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = scratch_directory();
    let readable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), readable).expect("a directory");
    directory
}
