//! Explores the scenarios and says what came out; with the name of a control, tells what that
//! finds.
//!
//!     cargo run -p jobs-model
//!     cargo run -p jobs-model -- look-in-the-same-statement

use std::process::ExitCode;

use jobs_model::explore::Protocol;
use jobs_model::report::{counterexample, explored};
use jobs_model::scenario::Fault;
use jobs_model::scenarios::{CONTROLS, Control, FAMILIES};
use jobs_model::{limits, turns};

fn main() -> ExitCode {
    if let Some(name) = std::env::args().nth(1) {
        let Some(told) = told(CONTROLS, &name)
            .or_else(|| told(limits::CONTROLS, &name))
            .or_else(|| told(turns::CONTROLS, &name))
        else {
            eprintln!("There is no control {name}. counterexamples/ has a file for each control.");
            return ExitCode::FAILURE;
        };
        print!("{told}");
        return ExitCode::SUCCESS;
    }
    let families = FAMILIES
        .iter()
        .map(|family| explored(family.name, &family.scenarios(Fault::None).collect::<Vec<_>>()));
    let limits = std::iter::once_with(|| explored("limits", &limits::scenarios()));
    let turns = std::iter::once_with(|| explored("turns", &turns::scenarios()));
    match families.chain(limits).chain(turns).sum::<Result<usize, String>>() {
        Ok(states) => println!("{states} states, and every property holds in each"),
        Err(found) => {
            println!("{found}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn told<P: Protocol>(controls: &[Control<P>], name: &str) -> Option<String> {
    let control = controls.iter().find(|control| control.name == name)?;
    let found = counterexample(control).expect("a control finds something");
    Some(format!("{}\n\n{found}", control.why))
}
