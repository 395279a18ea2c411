//! The Dockerfile, compose.yaml, the units of systemd and the scripts, by their linters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, feed, holds, succeeds};
use jobs_tests::{ROOT, state_directory};

use crate::{Packaging, has_packages, in_bash};

const COMPOSE: &str = "clients/examples/compose/compose.yaml";
const CELLS: &str = "clients/examples/compose/cells.yaml";
const DOCKERFILE: &str = "ops/Dockerfile";

/// There may be no engine to build it with, so it is only read.
pub fn docker(checks: &mut Checks, packaging: &Packaging) {
    let need = ["need_python", "packaging", "tests/packaging/requirements.txt"];
    if !checks.has("the Dockerfile", "pip install -r tests/packaging/requirements.txt", &need) {
        return;
    }
    let tool = |name: &str| {
        let mut tool = Command::new(state_directory().join("packaging/bin").join(name));
        tool.current_dir(ROOT);
        tool
    };
    let hadolint = |file: &Path| succeeds(tool("hadolint").arg(file));
    let is_valid = |file: &Path| {
        succeeds(
            tool("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec"]).arg(file),
        )
    };
    let (dockerfile, compose) = (read(DOCKERFILE), read(COMPOSE));
    let changed = |name: &str, text: String| {
        let path = packaging.scratch.join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    checks.check("hadolint is content with the Dockerfile", hadolint(Path::new(DOCKERFILE)));
    checks.check("process 1 of the worker's image is an init", has_init(&dockerfile));
    checks.refuses(
        "control: an image without one is found",
        has_init(&dockerfile.replace(r#""tini", "--", "#, "")),
    );
    checks
        .check("compose.yaml is as the Compose specification has it", is_valid(Path::new(COMPOSE)));
    checks.check("cells.yaml likewise", is_valid(Path::new(CELLS)));
    let builds =
        [&compose, &read(CELLS)].map(|text| in_step(text, "build:", "dockerfile: ops/Dockerfile"));
    checks.check("both are built by the Dockerfile", builds.into_iter().collect());
    checks.refuses(
        "control: one that is built by none is found",
        in_step(
            &compose.replace("dockerfile: ops/", "dockerfile: "),
            "build:",
            "dockerfile: ops/Dockerfile",
        ),
    );
    let wrong = changed("compose.yaml", compose.replace("\n    restart:", "\n    restarts:"));
    checks.refuses("control: a wrong compose.yaml is found", is_valid(&wrong));
    let worker = compose.split_once("\n  worker:").expect("a worker").1;
    let worker =
        worker.lines().take_while(|line| !line.starts_with(|c: char| c.is_ascii_lowercase()));
    let variables = worker.filter_map(|line| {
        let (name, _) = line.strip_prefix("      ")?.split_once(": ")?;
        name.chars().all(|c| c.is_ascii_uppercase()).then_some(name)
    });
    checks.check("its worker is told its database", program_reads(&variables.collect::<Vec<_>>()));
    let wrong =
        dockerfile.replace("COPY . .", "ADD . .").replace("\nWORKDIR /source", "\nRUN cd source");
    checks.finds(
        "control: hadolint finds what is bad",
        "DL3020",
        hadolint(&changed("Dockerfile", wrong)),
    );
}

/// A text has one as often as the other.
fn in_step(text: &str, one: &str, other: &str) -> Outcome {
    let (ones, others) = (text.matches(one).count(), text.matches(other).count());
    holds(ones > 0 && ones == others, format!("{ones} times {one}, {others} times {other}"))
}

/// What is installed in the stage of the worker, and what that starts.
fn has_init(dockerfile: &str) -> Outcome {
    let stages = dockerfile.split("\nFROM ");
    let stage = stages
        .into_iter()
        .find(|stage| stage.lines().next().is_some_and(|from| from.ends_with(" AS worker")));
    let stage = stage.ok_or("there is no stage of the worker")?;
    let installs =
        stage.lines().any(|line| line.contains("apt-get install ") && line.contains(" tini "));
    let starts = stage.lines().any(|line| line == r#"ENTRYPOINT ["tini", "--", "pgjobs"]"#);
    holds(installs && starts, stage)
}

/// The program `pgjobs` knows its database by these variables.
fn program_reads(names: &[&str]) -> Outcome {
    let source = read("cli/src/database.rs");
    let unknown: Vec<_> =
        names.iter().filter(|name| !source.contains(&format!("\"{name}\""))).collect();
    holds(
        unknown.is_empty() && !names.is_empty(),
        format!("of {names:?} it does not know {unknown:?}"),
    )
}

/// The units that start a worker and the console.
pub fn systemd(checks: &mut Checks, packaging: &Packaging) {
    if !has_packages(checks, &["systemd"]) {
        return;
    }
    let units = fs::read_dir(Path::new(ROOT).join("ops/packaging/systemd")).expect("units");
    let mut units: Vec<PathBuf> = units.map(|unit| unit.expect("a unit").path()).collect();
    units.sort();
    for unit in units {
        let text = fs::read_to_string(&unit).expect("a unit");
        let name = unit.file_name().expect("a name").to_string_lossy().into_owned();
        // The program and its settings are not installed.
        let verified = |text: &str| {
            let start = |line: &str| match line.strip_prefix("ExecStart=") {
                Some(command) => {
                    let (_, arguments) = command.split_once(' ').unwrap_or((command, ""));
                    format!("ExecStart=/bin/true {arguments}\n")
                }
                None => format!("{line}\n"),
            };
            let copy = packaging.scratch.join(&name);
            fs::write(&copy, text.lines().map(start).collect::<String>()).expect("a unit");
            let (ended_well, said) =
                feed(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(copy), "");
            holds(ended_well && said.is_empty(), said)
        };
        checks.check(format!("systemd is content with {name}"), verified(&text));
        // In the file that the unit reads, or in the unit.
        let told = text.lines().filter_map(|line| {
            let line = line.strip_prefix("#   ").or(line.strip_prefix("Environment="))?;
            line.strip_prefix("PG")?.split_once('=')
        });
        let told: Vec<_> = told.map(|(name, _)| format!("PG{name}")).collect();
        let told: Vec<_> = told.iter().map(String::as_str).collect();
        checks.check(format!("{name}: it is told its database"), program_reads(&told));
        let wrong = text.replace("\nRestart=always", "\nRestart=now and then");
        checks.refuses(format!("control: {name} made wrong is found"), verified(&wrong));
    }
    let wrong = program_reads(&["PGHOST", "DATABASE_URL"]);
    checks.refuses("control: a setting that the program does not read is found", wrong);
}

pub fn scripts(checks: &mut Checks, packaging: &Packaging) {
    if !has_packages(checks, &["shellcheck"]) {
        return;
    }
    const FIND: &str = "{ grep -rlE '^#!.*(bash|bin/sh)' dev .ci clients/examples ops tests; ls tests/*.sh ops/scripts/*.sh; } | sort -u";
    let shellcheck = |script: &Path| {
        let mut shellcheck = Command::new("shellcheck");
        succeeds(shellcheck.current_dir(ROOT).args(["-S", "error", "-s", "bash"]).arg(script))
    };
    for script in in_bash(Path::new(ROOT), FIND, &[]).lines().filter(|path| !path.ends_with(".rs"))
    {
        checks
            .check(format!("shellcheck finds no error in {script}"), shellcheck(Path::new(script)));
    }
    let bad = packaging.scratch.join("bad.sh");
    fs::write(&bad, "#!/bin/bash\nif [ $# = 1 ]; then echo one\n").expect("a script");
    checks.finds("control: shellcheck finds an error", "SC1", shellcheck(&bad));
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}
