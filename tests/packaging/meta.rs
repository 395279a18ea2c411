//! META.json, by PGXN's own validator.

use std::fs;
use std::path::Path;
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, output, succeeds};
use jobs_tests::{ROOT, cache, need};
use serde_json::Value;

use crate::Packaging;

const VERSION: &str = "0.7.0";

pub fn is_valid(checks: &mut Checks, packaging: &Packaging) {
    if let Err(said) = need_validator() {
        let tried = format!("cargo install --debug pgxn_meta --version ={VERSION} --locked");
        return checks.cannot("META.json by PGXN's validator", tried, &said);
    }
    let path = Path::new(ROOT).join("ops/packaging/META.json");
    checks.check("META.json is valid", judge(&path));
    let text = fs::read_to_string(path).expect("META.json");
    let changed = packaging.scratch.join("META.json");
    let with = |text: &str| {
        fs::write(&changed, text).expect("META.json");
        judge(&changed)
    };
    for field in ["name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"] {
        let mut meta: Value = serde_json::from_str(&text).expect("JSON");
        meta.as_object_mut().expect("an object").remove(field).expect(field);
        let outcome = with(&meta.to_string());
        checks.finds(format!("control: META.json without {field} is refused"), field, outcome);
    }
    let outcome = with(&text.replace(r#""version": "0"#, r#""version": "v0"#));
    checks.finds("control: META.json with a version that is none is refused", "version", outcome);
}

fn validator() -> Command {
    Command::new(cache().join("bin/pgxn_meta"))
}

fn judge(meta: &Path) -> Outcome {
    succeeds(validator().arg(meta))
}

fn need_validator() -> Outcome {
    match output(validator().arg("--version")) {
        Ok(version) if version.contains(VERSION) => Ok(()),
        _ => need(&["install_program", "pgxn_meta", VERSION, "-q"]),
    }
}
