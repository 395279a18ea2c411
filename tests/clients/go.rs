//! The library for Go, with two drivers. Its modules come from the proxy that `go` asks.

use std::fs;
use std::process::Command;

use jobs_tests::checks::{holds, output, succeeds};
use jobs_tests::{ROOT, state_directory};

use crate::Library;

/// What lib/pq does in another way than pgx: connections and transactions.
const PQ_CASES: &str = "cut|silen|restart|PgBouncer|statement_timeout|cancel|lost|locked|stop|signal|SIG|grace|transaction|rolled back|insert|outbox|wait|ends a worker|not let in|rights|sync|test";

const MODULES: [&str; 4] = ["go", "go/jobsotel", "go/conformance", "go/example"];

pub fn conforms(library: &mut Library) {
    let built = state_directory().join("go");
    fs::create_dir_all(&built).expect("a directory");
    let target = format!("{}/", built.display());
    let build = ["go", "build", "-o", &target, ".", "./mail"];
    if let Err(error) = succeeds(&mut library.own("go/conformance", &build)) {
        return library.cannot("its driver", "go build", &error);
    }
    let mut driver = library.program(built.join("conformance"));
    library.every_case("every case", &[], &driver);
    driver.env("JOBS_DRIVER", "pq");
    library.every_case("some cases, with lib/pq", &["--only", PQ_CASES], &driver);
    let example = library.program(built.join("mail"));
    library.example("clients/go/conformance/mail/main.go", example);

    for module in MODULES {
        let mut test = library.own(module, &["go", "test", "./..."]);
        test.env("DATABASE_URL", format!("{}?sslmode=disable", library.url()));
        library.check(format!("the tests of {module}"), succeeds(&mut test));
        library.check_own(
            &format!("vet finds nothing in {module}"),
            module,
            &["go", "vet", "./..."],
        );
        let tidy = ["go", "mod", "tidy", "-diff"];
        library.check_own(&format!("go.mod and go.sum of {module} are tidy"), module, &tidy);
    }
    let unformatted = output(Command::new("gofmt").current_dir(ROOT).args(["-l", "clients/go"]));
    let formatted = unformatted.and_then(|files| holds(files.is_empty(), files));
    library.check("it is formatted", formatted);
}
