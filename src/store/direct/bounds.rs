//! Counting the jobs of a queue that wait, without statements.

use pgrx::IntoDatum;

use super::{shapes, walk};
use crate::pg::scan::{Key, Seen};
use crate::pg::table::Table;
use crate::pg::transaction;
use crate::store::bounds::Waiting;
use crate::store::lanes::{self, Reach};
use crate::store::queue::Queue;

/// How many jobs of a queue wait, up to so many; `None`: use a statement.
///
/// What is committed counts, whatever the transaction's snapshot. A job that comes due meanwhile is
/// rather counted twice than not at all.
pub fn count(queue: &Queue, most: usize) -> Option<Waiting> {
    let scheduled = Table::open_to_read(&shapes::SCHEDULED, &shapes::SCHEDULED_DUE)?;
    let ready = Table::open_to_read(&shapes::READY, &shapes::READY.key)?;
    transaction::make_visible();
    // Without conflicts for a serializable transaction, which would fail because of work.
    let seen = Seen::dirty();
    let mut waiting = Waiting::default();
    let mut add = |table: &Table, index, keys: &[Key]| {
        let mut scan = table.scan(index, &seen, keys.len());
        scan.find(keys);
        while waiting.there < most
            && let Some(row) = scan.next()
        {
            pgrx::check_for_interrupts!();
            waiting.all += 1;
            waiting.there += usize::from(!row.is_new);
        }
    };
    let name = queue.name().into_datum().expect("names are not null");
    let from = Key::at_from(2, lanes::scheduled_from(queue, Reach::FromFloor));
    add(&scheduled, &shapes::SCHEDULED_DUE, &[Key::text(1, name), from]);
    match lanes::ready(queue).known_floors() {
        None => add(&ready, &shapes::READY.key, &[Key::text(1, name)]),
        Some(floors) => walk::parts(&floors)
            .iter()
            .for_each(|part| add(&ready, &shapes::READY.key, &part.keys(name, &floors))),
    }
    Some(waiting)
}
