//! Jobs that are due become available.

use std::cell::RefCell;

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::shmem;
use crate::store::effects::Told;
use crate::store::lanes::Reach;
use crate::store::queue::Queue;
use crate::store::{due, fetch, place};
use crate::transition;

pub const TASK: Task = Task { name: "schedule", run, singly: Some(Singly { find, handle }) };

thread_local! {
    /// The queue that a round was at last: if it failed, there.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    /// The queue that was looked at last where more jobs are due than a round handles.
    static AFTER: RefCell<String> = const { RefCell::new(String::new()) };
}

fn run(limit: i64, but: &[Thing]) -> Round {
    let (now, but) = (time::now(), Thing::jobs(but));
    // The worker begins where it has been before; who calls `jobs.maintain()` gets all.
    let reach = match shmem::is_worker() {
        true => Reach::FromFloor,
        false => Reach::All,
    };
    let queues = AFTER.with_borrow_mut(|after| due::queues_with_due(now, limit, after, reach));
    let promoted = by_shares(queues, limit, |queue, from, share| {
        LAST.set(queue.to_owned());
        fetch::promote_due(&Queue::named(queue), from, now, share, &but, Told::All) as i64
    });
    Round::of(promoted as usize, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let (now, mut but) = (time::now(), Thing::jobs(but));
    let mut after = AFTER.with_borrow(String::clone);
    let mut queues = due::queues_with_due(now, limit, &mut after, Reach::All);
    // Among more queues than things, the one that the round failed at shall be there.
    LAST.with_borrow(|last| {
        queues.retain(|(queue, _)| queue != last);
        queues.insert(0, (last.clone(), i64::MIN));
    });
    let mut found = Vec::new();
    by_shares(queues, limit, |queue, _, share| {
        let due = due::scheduled(&Queue::named(queue), now, share, &but);
        found.extend(due.iter().copied().map(Thing::Job));
        but.extend(&due);
        due.len() as i64
    });
    found
}

/// Takes up to `limit` things of these queues; how many it took. A queue with millions of due jobs
/// shall not keep the others waiting: an equal share each, and what they leave of it is shared by
/// those that have more.
fn by_shares(
    mut queues: Vec<(String, i64)>,
    limit: i64,
    mut take: impl FnMut(&str, i64, i64) -> i64,
) -> i64 {
    let mut left = limit;
    while left > 0 && !queues.is_empty() {
        let share = (left / queues.len() as i64).max(1);
        queues.retain(|(queue, from)| {
            let share = share.min(left);
            if share == 0 {
                return true;
            }
            let taken = take(queue, *from, share);
            left -= taken;
            taken == share
        });
    }
    limit - left
}

fn handle(thing: &Thing) -> bool {
    if let Thing::Job(id) = thing
        && let Some(place) = place::locate(*id)
    {
        transition::due::became_due(&place)
    } else {
        false
    }
}
