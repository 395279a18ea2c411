//! clients/examples/checksum.rs on a small tree, and what the queue holds afterwards against what
//! it must have.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, holds, output, same};
use jobs_tests::{Cluster, ROOT, target_directory};
use regex::Regex;

use crate::sql;

pub fn runs(checks: &mut Checks, cluster: &Cluster) {
    let mut build = Command::new("cargo");
    output(build.current_dir(ROOT).args(["build", "--quiet", "-p", "jobs-examples"]))
        .expect("the example");
    let tree = tree(cluster);
    let first = run(cluster, &tree);
    checks.check("checksum runs", first.as_ref().map(|_| ()).map_err(String::clone));
    let first = first.unwrap_or_default();
    println!("{first}");
    let must = [301, 903, 300, 1];
    checks.check("it reports what it must", reported(&first, must));
    checks.refuses("control: another number is refused", reported(&first, [302, 903, 300, 1]));
    checks.check("every digest in the queue is right", digests(cluster, &tree));
    let tries = "select count(*) from jobs.errors e join jobs.jobs j on j.id = e.job_id where j.state = 'discarded'";
    let tries = same("3", &sql(cluster, tries));
    checks.check("the link that leads nowhere was tried three times", tries);
    let second = run(cluster, &tree);
    checks.check(
        "a second run does it all again",
        second.as_ref().map(|_| ()).map_err(String::clone),
    );
    checks.check("and reports the same", reported(&second.unwrap_or_default(), must));
}

fn tree(cluster: &Cluster) -> PathBuf {
    let tree = cluster.directory().join("tree");
    fs::create_dir_all(tree.join("sub")).expect("a directory");
    for n in 1..=300 {
        fs::write(tree.join(format!("sub/file {n}")), format!("{n}\n")).expect("a file");
    }
    symlink("nowhere", tree.join("dangling")).expect("a link");
    tree
}

/// As user postgres, who owns the directory of the socket; from a copy, because the target
/// directory may be out of reach.
fn run(cluster: &Cluster, tree: &Path) -> Result<String, String> {
    let copy = cluster.directory().join("checksum");
    fs::copy(target_directory().join("debug/checksum"), &copy).expect("the example");
    let mut checksum = cluster.program(Path::new("timeout"));
    let url = format!("host={} user=postgres dbname=jobs", cluster.directory().display());
    output(checksum.arg("120").arg(copy).arg(tree).env("DATABASE_URL", url))
}

/// So many jobs were inserted, skipped, completed and discarded. At least one was rescued, and what
/// was rescued was retried.
fn reported(report: &str, [inserted, skipped, completed, discarded]: [u64; 4]) -> Outcome {
    let number = |line: &str, place: usize| {
        let mut lines =
            report.lines().filter(|found| Regex::new(line).expect("a regex").is_match(found));
        let number = lines.next_back().and_then(|line| line.split_whitespace().nth(place - 1));
        number.and_then(|number| {
            number.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok()
        })
    };
    let (retried, rescued) = (number("^retried", 2), number("rescued", 5));
    holds(
        number("^inserted", 2) == Some(inserted)
            && number("^skipped", 4) == Some(skipped)
            && number("^completed", 2) == Some(completed)
            && number("^discarded", 3) == Some(discarded)
            && retried >= rescued
            && rescued > Some(0),
        report,
    )
}

fn digests(cluster: &Cluster, tree: &Path) -> Outcome {
    let query = "select output->>'sha256' || '  ' || (args->>'path') from jobs.jobs where state = 'completed' order by 1";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(String::from).collect();
        lines.sort();
        lines.join("\n")
    };
    let files =
        fs::read_dir(tree.join("sub")).expect("files").map(|file| file.expect("a file").path());
    let sums = output(Command::new("sha256sum").args(files))?;
    same(&sorted(&sums), &sorted(&sql(cluster, query)))
}
