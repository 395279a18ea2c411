//! All scenarios, and the controls: mistakes that must be found.

use std::path::Path;
use std::time::Instant;

use jobs_model::report::{counterexample, explore_family, line};
use jobs_model::scenario::Fault;
use jobs_model::scenarios::{CONTROLS, FAMILIES};

/// With `JOBS_MODEL_FAULT` the protocol has a fault in all scenarios, for the control of the suite.
fn fault() -> Fault {
    let name = std::env::var("JOBS_MODEL_FAULT").ok();
    let control = name.map(|name| {
        let control = CONTROLS.iter().find(|control| control.name == name);
        control.expect("a control of this name").scenario().fault
    });
    control.unwrap_or_default()
}

/// Every second scenario, which is enough for each change; with `JOBS_MODEL_EVERY=1` all of them.
fn every() -> usize {
    let every = std::env::var("JOBS_MODEL_EVERY").map(|every| every.parse().expect("a number"));
    every.unwrap_or(2)
}

/// In one test, so that no other one competes for the processors: it uses all of them.
#[test]
fn every_property_holds_in_every_state() {
    let mut states = 0;
    for family in FAMILIES {
        let begin = Instant::now();
        let sum = explore_family(family, fault(), every());
        println!("{}", line(family.name, &sum, begin.elapsed()));
        states += sum.states;
        if let Some(found) = sum.found {
            panic!("{found}");
        }
    }
    println!("{states} states, and every property holds in each");
    // An empty list of scenarios would be as green.
    assert!(states > 1_000_000);
}

/// The way to what is wrong is written down for each, as it is found: `JOBS_MODEL_WRITE=1` writes
/// it anew.
#[test]
fn every_mistake_is_found() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("counterexamples");
    for control in CONTROLS {
        let found = counterexample(control).expect(control.name);
        assert!(found.contains(control.property), "{found}");
        let told = format!("{}\n\n{found}", control.why);
        let path = directory.join(control.name).with_extension("txt");
        if std::env::var_os("JOBS_MODEL_WRITE").is_some() {
            std::fs::write(&path, &told).expect("write");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(told, written, "{} is not what is found", path.display());
    }
    let written = std::fs::read_dir(&directory).expect("there is a directory").count();
    assert_eq!(written, CONTROLS.len(), "a file for each control");
}

/// Without its mistake no control finds anything.
#[test]
fn nothing_is_found_without_the_mistakes() {
    for control in CONTROLS {
        assert!(counterexample(&control.without_fault()).is_none(), "{}", control.name);
    }
}
