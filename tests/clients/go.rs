//! The library for Go. Debian's packages are what it is compiled with: they need no network, and
//! are no modules.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use jobs_tests::checks::{Outcome, holds, output, succeeds};
use jobs_tests::{ROOT, state_directory};

use crate::{Library, need_packages};

pub fn conforms(library: &mut Library) {
    let packages = ["golang-go", "golang-github-lib-pq-dev", "golang-opentelemetry-otel-dev"];
    if !need_packages(library, &packages) {
        return;
    }
    let built = state_directory().join("go");
    fs::create_dir_all(&built).expect("a directory");
    let target = format!("{}/", built.display());
    if let Err(error) =
        succeeds(&mut library.own("go/conformance", &["go", "build", "-o", &target, ".", "./mail"]))
    {
        return library.cannot("its driver", "go build", &error);
    }
    let driver = library.program(built.join("conformance"));
    library.every_case("every case", &[], &driver);
    let mut example = library.program(built.join("mail"));
    example.env("PGSSLMODE", "disable");
    library.example("clients/go/conformance/mail/main.go", example);

    library.check_own("its own tests", "go", &["go", "test", "./..."]);
    let mut with_database = library.own("go/conformance", &["go", "test", "./..."]);
    with_database.env("DATABASE_URL", format!("{}?sslmode=disable", library.url()));
    library.check("its tests with a database", succeeds(&mut with_database));
    library.check("the web application compiles", application(library));
    library.check_own("vet finds nothing", "go", &["go", "vet", "./..."]);
    library.check("OpenTelemetry", telemetry(library));
    let unformatted = output(Command::new("gofmt").current_dir(ROOT).args(["-l", "clients/go"]));
    let formatted = unformatted.and_then(|files| holds(files.is_empty(), files));
    library.check("it is formatted", formatted);
}

/// With Debian's driver.
fn application(library: &Library) -> Outcome {
    let module = library.scratch.join("example.mod");
    fs::copy(Path::new(ROOT).join("clients/go/example/go.mod"), &module).expect("go.mod");
    let module = module.display().to_string();
    let driver = "github.com/lib/pq=/usr/share/gocode/src/github.com/lib/pq";
    succeeds(Command::new("go").args(["mod", "edit", "-replace", driver, &module]))?;
    succeeds(&mut library.own("go/example", &["go", "vet", &format!("-modfile={module}"), "./..."]))
}

fn telemetry(library: &Library) -> Outcome {
    let path = library.scratch.join("gopath");
    fs::create_dir_all(path.join("src")).expect("a directory");
    symlink(
        Path::new(ROOT).join("clients/go").canonicalize().expect("clients/go"),
        path.join("src/postgres_jobs"),
    )
    .expect("a link");
    let mut test = library.program("go");
    test.args(["test", "postgres_jobs/jobsotel"]).env("GO111MODULE", "off");
    succeeds(test.env("GOPATH", format!("{}:/usr/share/gocode", path.display())))
}
