//! Exploring scenarios, and telling what came out so that a person can read it.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};

use crate::explore::{Action, Exploration};
use crate::scenario::{Fault, Scenario};
use crate::scenarios::{Control, Family};
use crate::transaction::Say;

/// What came out.
pub struct Explored {
    /// The number of states.
    pub states: usize,
    /// The violated property, with a description of a shortest path to the violation.
    pub found: Option<(&'static str, String)>,
}

/// What came out of a family.
#[derive(Default)]
pub struct Sum {
    /// The number of scenarios.
    pub scenarios: usize,
    /// The total number of states.
    pub states: usize,
    /// The first violation.
    pub found: Option<String>,
}

/// Explores all of a scenario, up to the first state in which a property does not hold.
pub fn explore(exploration: Exploration) -> Explored {
    let scenario = exploration.scenario;
    let checker = exploration.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = checker.discoveries().into_iter().next();
    Explored {
        states: checker.unique_state_count(),
        found: found.map(|(property, path)| {
            let told = tell(&scenario, property, &path.into_actions());
            (property, told)
        }),
    }
}

/// Explores the scenarios of a family, several at a time.
pub fn explore_family(family: &Family, fault: Fault, every: usize) -> Sum {
    let scenarios: Vec<Scenario> = family.scenarios(fault).step_by(every).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sum = Sum::default();
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            let explored = explore(Exploration { scenario: *scenario, property: None });
            sum.scenarios += 1;
            sum.states += explored.states;
            if let Some((_, told)) = explored.found {
                sum.found = Some(format!("{scenario:?}\n{told}"));
                next.store(scenarios.len(), Ordering::Relaxed);
            }
        }
        sum
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let sums = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
        sums.fold(Sum::default(), |all, sum| Sum {
            scenarios: all.scenarios + sum.scenarios,
            states: all.states + sum.states,
            found: all.found.or(sum.found),
        })
    })
}

/// What a control finds: the way to a state in which its property does not hold.
pub fn counterexample(control: &Control) -> Option<String> {
    let explored =
        explore(Exploration { scenario: control.scenario(), property: Some(control.property) });
    explored.found.map(|(_, told)| told)
}

/// A way through a scenario, a line a step.
fn tell(scenario: &Scenario, property: &str, path: &[Action]) -> String {
    let mut told = String::new();
    let mut state = scenario.begin();
    for (n, action) in path.iter().enumerate() {
        let mut say = Say::all();
        scenario.act(&mut state, *action, &mut say);
        let session = action.session() + 1;
        let _ = writeln!(told, "{:2}. session {session}: {}", n + 1, say.said());
    }
    let _ = writeln!(told, "So this does not hold: {property}.");
    told
}

/// A line of the table of what was explored.
pub fn line(name: &str, sum: &Sum, time: Duration) -> String {
    format!(
        "{name:<20} {:>6} scenarios {:>9} states {:>6.1} s",
        sum.scenarios,
        sum.states,
        time.as_secs_f64()
    )
}
