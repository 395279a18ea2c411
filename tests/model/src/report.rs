//! Exploring scenarios, and telling what came out so that a person can read it.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::explore::{Action, Exploration, Protocol};
use crate::scenarios::Control;
use crate::transaction::Say;

/// What came out.
pub struct Explored {
    /// The number of states.
    pub states: usize,
    /// The violated property, with a description of a shortest path to the violation.
    pub found: Option<(&'static str, String)>,
}

#[derive(Default)]
struct Sum {
    scenarios: usize,
    states: usize,
    /// The first violation.
    found: Option<String>,
}

/// Explores all of a scenario, up to the first state in which a property does not hold.
pub fn explore<P: Protocol>(exploration: Exploration<P>) -> Explored {
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

/// Explores scenarios, several at a time.
fn explore_all<P: Protocol>(scenarios: &[P]) -> Sum {
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
pub fn counterexample<P: Protocol>(control: &Control<P>) -> Option<String> {
    let &Control { scenario, property, .. } = control;
    explore(Exploration { scenario, property: Some(property) }).found.map(|(_, told)| told)
}

/// A way through a scenario, a line a step.
fn tell<P: Protocol>(scenario: &P, property: &str, path: &[Action]) -> String {
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

/// Explores scenarios and prints a line about them. Returns the number of states, or the first
/// violation.
pub fn explored<P: Protocol>(name: &str, scenarios: &[P]) -> Result<usize, String> {
    let begin = Instant::now();
    let Sum { scenarios, states, found } = explore_all(scenarios);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{name:<20} {scenarios:>6} scenarios {states:>9} states {seconds:>6.1} s");
    found.map_or(Ok(states), Err)
}
