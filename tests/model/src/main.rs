//! Explores the scenarios and says what came out; with the name of a control, tells what that
//! finds.
//!
//!     cargo run -p jobs-model
//!     cargo run -p jobs-model -- look-in-the-same-statement

use std::process::ExitCode;
use std::time::Instant;

use jobs_model::report::{counterexample, explore_family, line};
use jobs_model::scenario::Fault;
use jobs_model::scenarios::{CONTROLS, FAMILIES};

fn main() -> ExitCode {
    if let Some(name) = std::env::args().nth(1) {
        let Some(control) = CONTROLS.iter().find(|control| control.name == name) else {
            let names: Vec<&str> = CONTROLS.iter().map(|control| control.name).collect();
            eprintln!("There is no control {name}; there are: {}", names.join(", "));
            return ExitCode::FAILURE;
        };
        print!(
            "{}\n\n{}",
            control.why,
            counterexample(control).expect("a control finds something")
        );
        return ExitCode::SUCCESS;
    }
    let mut states = 0;
    for family in FAMILIES {
        let begin = Instant::now();
        let sum = explore_family(family, Fault::None, 1);
        println!("{}", line(family.name, &sum, begin.elapsed()));
        states += sum.states;
        if let Some(found) = sum.found {
            println!("{found}");
            return ExitCode::FAILURE;
        }
    }
    println!("{states} states, and every property holds in each");
    ExitCode::SUCCESS
}
