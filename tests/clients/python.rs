//! The library for Python, and the control of all cases, which is in Python, too.

use std::process::Command;

use jobs_tests::checks::{holds, succeeds};
use jobs_tests::state_directory;

use crate::{Library, runner};

fn python(library: &Library, script: &str) -> Command {
    let mut python = library.program(runner());
    python.arg(script).env("PYTHONPATH", "clients/python/src");
    python
}

pub fn conforms(library: &mut Library) {
    let driver = python(library, "clients/conformance/driver.py");
    library.every_case("every case", &[], &driver);
    const EXAMPLE: &str = "clients/python/examples/mail.py";
    let example = python(library, EXAMPLE);
    library.example(EXAMPLE, example);
    package(library);
}

/// What its registry and its users' type checkers refuse.
fn package(library: &mut Library) {
    let need = ["need_python", "clients_python", "clients/python/tests/requirements.txt"];
    if !library.checks.has("python: its package", "pip install", &need) {
        return;
    }
    let bin = state_directory().join("clients_python/bin").display().to_string();
    let scratch = library.scratch.display().to_string();
    let python = format!("{bin}/python");
    library.check_own(
        "its own tests",
        "python",
        &[&python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
    );
    library.check_own(
        "the types hold, strictly",
        "python",
        &[&format!("{bin}/mypy"), "--cache-dir", &format!("{scratch}/mypy")],
    );
    library.check_own(
        "the types hold for pyright",
        "python",
        &[&format!("{bin}/basedpyright"), "--pythonpath", &python],
    );
    let made = format!("{scratch}/python");
    library.check_own(
        "the package is made",
        "python",
        &[&python, "-m", "build", "-q", "--no-isolation", "--outdir", &made],
    );
    let mut twine = Command::new("bash");
    twine.args(["-c", r#""$0" check --strict "$1"/*"#]).arg(format!("{bin}/twine")).arg(made);
    library.check("its registry would take it", succeeds(&mut twine));
}

/// A third passes as well: a driver that cannot do anything fails them all. Another one loses
/// errors; its case waits for what does not come.
pub fn control(library: &mut Library) {
    let mut broken = python(library, "clients/conformance/broken.py");
    let (sum, said) = library.cases("python", &["--jobs", "12"], &broken);
    let (passed, failed) = sum.unwrap_or_default();
    println!("with a broken driver {passed} cases pass, and {failed} fail");
    let is_third = 3 * failed >= passed + failed && 3 * passed >= passed + failed && passed > 0;
    library.check("a third of the cases fail with a broken driver", holds(is_third, said));

    let wrong = [
        ("lose", "loses errors", "^an error fails the attempt", r#"it is [["completed", 1]]"#, 1),
        (
            "mute",
            "logs nothing",
            "^(a discarded job is logged|hooks are told of failed)",
            "no event",
            2,
        ),
        (
            "stray",
            "follows no refusal",
            "^(a refusal is|a second refusal|strings and)",
            "no event",
            3,
        ),
    ];
    for (how, what, only, seen, number) in wrong {
        broken.env("JOBS_BROKEN", how).env("JOBS_PATIENCE", "20");
        let (sum, said) = library.cases("python", &["--only", only], &broken);
        let is_seen = sum == Some((0, number)) && said.contains(seen);
        library.check(format!("cases fail with a driver that {what}"), holds(is_seen, said));
    }
}
