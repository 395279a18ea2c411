//! All scenarios, and the controls: mistakes that must be found.

use std::path::Path;

use jobs_model::explore::Protocol;
use jobs_model::report::{counterexample, explored};
use jobs_model::scenario::Fault;
use jobs_model::scenarios::{CONTROLS, Control, FAMILIES};
use jobs_model::{limits, turns};

/// With `JOBS_MODEL_FAULT` the protocol has a fault in all scenarios, for the control of the suite.
fn fault() -> Fault {
    let name = std::env::var("JOBS_MODEL_FAULT").ok();
    let control = name.map(|name| {
        let control = CONTROLS.iter().find(|control| control.name == name);
        control.expect("a control of this name").scenario.fault
    });
    control.unwrap_or_default()
}

/// Every third one, which is enough for each change; with `JOBS_MODEL_EVERY=1` all of them. 3 does
/// not divide the number of starts of a family, each kept or not, so all of them are explored.
fn every<P>(scenarios: impl Iterator<Item = P>) -> Vec<P> {
    let every = std::env::var("JOBS_MODEL_EVERY").map(|every| every.parse().expect("a number"));
    scenarios.step_by(every.unwrap_or(3)).collect()
}

/// In one test, so that no other one competes for the processors: it uses all of them.
#[test]
fn every_property_holds_in_every_state() {
    let families =
        FAMILIES.iter().map(|family| explored(family.name, &every(family.scenarios(fault()))));
    let limits =
        std::iter::once_with(|| explored("limits", &every(limits::scenarios().into_iter())));
    let turns = std::iter::once_with(|| explored("turns", &every(turns::scenarios().into_iter())));
    let states: Result<usize, String> = families.chain(limits).chain(turns).sum();
    let states = states.unwrap_or_else(|found| panic!("{found}"));
    println!("{states} states, and every property holds in each");
    // An empty list of scenarios would be as green.
    assert!(states > 1_000_000);
}

/// The way to what is wrong is written down for each, as it is found: `JOBS_MODEL_WRITE=1` writes
/// it anew.
fn mistakes_are_found<P: Protocol>(directory: &Path, controls: &[Control<P>]) {
    for control in controls {
        let sound = Control { scenario: control.scenario.without_fault(), ..*control };
        assert!(counterexample(&sound).is_none(), "{} without its mistake", control.name);
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
}

#[test]
fn every_mistake_is_found() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("counterexamples");
    mistakes_are_found(&directory, CONTROLS);
    mistakes_are_found(&directory, limits::CONTROLS);
    mistakes_are_found(&directory, turns::CONTROLS);
    let written = std::fs::read_dir(&directory).expect("there is a directory").count();
    let controls = CONTROLS.len() + limits::CONTROLS.len() + turns::CONTROLS.len();
    assert_eq!(written, controls, "a file for each control");
}
