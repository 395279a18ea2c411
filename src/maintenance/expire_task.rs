//! Jobs that were not begun before `expires_at` are discarded.

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::store::{due as store, moves, place};
use crate::transition::due;

pub const TASK: Task = Task { name: "expire", run, singly: Some(Singly { find, handle }) };

fn run(limit: i64, but: &[Thing]) -> Round {
    let details = moves::details_of_type("expired").datum();
    let expired = store::expire(time::now(), limit, details, &Thing::jobs(but));
    Round::of(expired, limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    let expired = store::expired(time::now(), limit, &Thing::jobs(but));
    expired.into_iter().map(Thing::Job).collect()
}

fn handle(thing: &Thing) -> bool {
    if let Thing::Job(id) = thing
        && let Some(place) = place::locate(*id)
    {
        due::expired(&place, time::now())
    } else {
        false
    }
}
