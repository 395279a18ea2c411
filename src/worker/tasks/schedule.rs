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
    // An equal share each, so that a queue with millions of due jobs does not keep the others waiting.
    let share = (limit / queues.len().max(1) as i64).max(1);
    let mut more = false;
    for queue in &queues {
        let share = share.min(limit - promoted as i64);
        if share == 0 {
            break;
        }
        let due = fetch::promote_due(queue, now, share, &but, reach);
        if due > 0 {
            news::available(queue);
        }
        promoted += due;
        more |= due as i64 == share;
    }
    let round = Round::of(promoted, limit);
    Round {
        more: more || round.more,
        ..round
    }
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
