//! The library for TypeScript, with two drivers and several majors of Node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use jobs_tests::checks::{holds, output, succeeds};
use jobs_tests::{ROOT, cache, need, program};

use crate::{Library, need_packages};

const DRIVER: &str = "clients/conformance/driver.mjs";

/// What the package `postgres` does in another way than `pg`: connections that break, waits that
/// are ended, stops.
const POSTGRES_CASES: &str = "outbox|cut|silen|restart|PgBouncer|statement_timeout|cancel|lost|locked|stop|signal|SIG|grace|released|left behind|could not send|ends a worker";

/// What can differ between majors of Node: how modules are imported and required, the drivers, how
/// a worker begins, hears of a cancel, connects again and ends.
const NODE_CASES: &str = "^(an error fails the attempt|a cancelled job's handler|a kind's timeout cancels|an idle worker whose|SIGINT is|every option of an insert|a program waits for results)";

/// The oldest Node that is supported, and newer ones; with the installed one everything runs.
const NODES: [&str; 3] = ["18", "22", "24"];

pub fn conforms(library: &mut Library) {
    if program("npm").is_none() && !need_packages(library, &["nodejs", "npm"]) {
        return;
    }
    let install = ["npm", "ci", "--loglevel=error", "--no-audit", "--no-fund"];
    let built = succeeds(&mut library.own("typescript", &install))
        .and_then(|()| succeeds(&mut library.own("typescript", &["npm", "run", "-s", "build"])));
    if let Err(error) = built {
        return library.cannot("its driver", "npm ci, npm run build", &error);
    }
    let mut driver = library.program("node");
    driver.arg(DRIVER);
    library.every_case("every case", &[], &driver);
    let example = example(library);
    library.example("clients/typescript/examples/mail.ts", example);
    driver.env("JOBS_DRIVER", "postgres");
    library.every_case("some cases, with postgres", &["--only", POSTGRES_CASES], &driver);

    library.check_own("its own tests", "typescript", &["npm", "test", "--silent"]);
    let scratch = library.scratch.display().to_string();
    let pack = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", &scratch];
    library.check_own("the package is made", "typescript", &pack);
    let types = r#"npx attw --no-color -f table-flipped "$0"/postgres-jobs-*.tgz"#;
    library.check_own(
        "its types resolve everywhere",
        "typescript",
        &["bash", "-c", types, &scratch],
    );
    // The tests mostly wait, so those of all Nodes run at once.
    let running: Vec<_> = NODES.into_iter().filter_map(|major| begin(library, major)).collect();
    for (major, node, tests) in running {
        end(library, major, &node, tests);
    }
}

fn example(library: &Library) -> Command {
    let directory = library.scratch.join("example");
    let out = directory.display().to_string();
    let options = [
        "--rootDir",
        "examples",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--skipLibCheck",
        "examples/mail.ts",
    ];
    let mut compile = library.own("typescript", &["npx", "tsc", "--outDir", &out]);
    succeeds(compile.args(options)).expect("the example");
    let modules = directory.join("node_modules");
    fs::create_dir_all(&modules).expect("a directory");
    let package = Path::new(ROOT).join("clients/typescript").canonicalize().expect("the package");
    symlink(package, modules.join("postgres-jobs")).expect("a link");
    fs::write(directory.join("package.json"), r#"{"type": "module"}"#).expect("package.json");
    let mut node = library.program("node");
    node.arg(directory.join("mail.js"));
    node
}

/// Begins the tests of workers and packages with a major of Node.
fn begin(library: &mut Library, major: &'static str) -> Option<(&'static str, PathBuf, Child)> {
    let platform = "`node-${process.platform}-${process.arch}`";
    let package = output(Command::new("node").args(["-p", platform])).expect("node");
    let package = package.trim();
    let home = cache().join(format!("node-{major}"));
    let node = home.join("node_modules").join(package).join("bin/node");
    if !node.exists() {
        let wanted = format!("{package}@{major}");
        let home = home.display().to_string();
        let install = [
            "one_at_a_time",
            "npm",
            "install",
            "--prefix",
            &home,
            "--loglevel=error",
            "--no-audit",
            "--no-fund",
            &wanted,
        ];
        if let Err(error) = need(&install) {
            library.cannot(format!("Node {major}"), &format!("npm install {wanted}"), &error);
            return None;
        }
    }
    let path = node.display().to_string();
    let mut tests = library.own("typescript", &[&path, "--test", "test/worker.test.mjs"]);
    Some((major, node, tests.spawn().expect("node")))
}

fn end(library: &mut Library, major: &str, node: &Path, mut tests: Child) {
    let version = output(Command::new(node).arg("--version"));
    let is_major =
        version.and_then(|version| holds(version.starts_with(&format!("v{major}.")), version));
    library.check(format!("it is Node {major}"), is_major);
    let status = tests.wait().expect("node");
    let passed = holds(status.success(), status);
    library.check(format!("Node {major}: the tests of workers and packages"), passed);
    for package in ["pg", "postgres"] {
        let mut driver = library.program(node);
        driver.arg(DRIVER).env("JOBS_DRIVER", package);
        let what = format!("Node {major}: some cases, with {package}");
        library.every_case(what, &["--only", NODE_CASES], &driver);
    }
}
