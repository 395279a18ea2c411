//! Jobs that are due become available.

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::store::fetch::{self, Reach};
use crate::store::{due, place};
use crate::transition;
use crate::worker::{news, process};

pub const TASK: Task = Task {
    name: "schedule",
    run,
    singly: Some(Singly { find, handle }),
};

fn run(limit: i64, but: &[Thing]) -> Round {
    let (now, but) = (time::now(), Thing::jobs(but));
    let mut promoted = 0;
    // The worker begins where it has been before; who calls `jobs.maintain()` gets all.
    let (queues, reach) = match process::is_worker() {
        true => (due::queues_with_due_from_floor(now), Reach::FromFloor),
        false => (due::queues_with_due(now), Reach::All),
    };
    for queue in &queues {
        let due = fetch::promote_due(queue, now, limit, &but, reach);
        if due > 0 {
            news::available(queue);
        }
        promoted += due;
    }
    Round::of(promoted, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let (now, but) = (time::now(), Thing::jobs(but));
    due::queues_with_due(now)
        .iter()
        .flat_map(|queue| due::scheduled(queue, now, limit, &but))
        .map(Thing::Job)
        .collect()
}

fn handle(thing: &Thing) -> bool {
    if let Thing::Job(id) = thing
        && let Some(place) = place::locate(*id)
    {
        transition::became_due(&place)
    } else {
        false
    }
}
