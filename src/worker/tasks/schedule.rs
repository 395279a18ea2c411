//! Jobs that are due become available.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Round, Singly, Task, Thing, rotate};
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
    // The worker begins where it has been before; who calls `jobs.maintain()` gets all.
    let (mut queues, reach) = match process::is_worker() {
        true => (due::queues_with_due_from_floor(now), Reach::FromFloor),
        false => (due::queues_with_due(now), Reach::All),
    };
    // A queue with millions of due jobs shall not keep the others waiting: an equal share each, and what they leave of
    // it is shared by those that have more.
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    rotate(&mut queues, ROUND.fetch_add(1, Ordering::Relaxed));
    let mut left = limit;
    while left > 0 && !queues.is_empty() {
        let share = (left / queues.len() as i64).max(1);
        queues.retain(|queue| {
            let share = share.min(left);
            if share == 0 {
                return true;
            }
            let due = fetch::promote_due(queue, now, share, &but, reach) as i64;
            if due > 0 {
                news::available(queue);
            }
            left -= due;
            due == share
        });
    }
    Round::of((limit - left) as usize, limit)
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
