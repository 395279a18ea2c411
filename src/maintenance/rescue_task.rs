//! Attempts whose lease ran out are failed for their workers.

use super::{Round, Singly, Task, Thing};
use crate::pg::time;
use crate::store::due::{self, Expired, Leases};
use crate::store::place;
use crate::transition::{self, FailedAttempt};

pub const TASK: Task = Task {
    name: "rescue",
    run,
    singly: Some(Singly { find, handle }),
};

fn run(limit: i64, but: &[Thing]) -> Round {
    let now = time::now();
    let leases = due::expired_leases(now, limit, &Leases::But(&Thing::jobs(but)));
    for lease in &leases {
        pgrx::check_for_interrupts!();
        rescue(lease, now);
    }
    Round::of(leases.len(), limit)
}

fn find(limit: i64, but: &[Thing]) -> Vec<Thing> {
    due::expired_leases(time::now(), limit, &Leases::But(&Thing::jobs(but)))
        .iter()
        .map(|lease| Thing::Job(lease.id))
        .collect()
}

fn handle(thing: &Thing) -> bool {
    let Thing::Job(id) = thing else {
        return false;
    };
    let now = time::now();
    let leases = due::expired_leases(now, 1, &Leases::Of(*id));
    for lease in &leases {
        rescue(lease, now);
    }
    !leases.is_empty()
}

/// The caller has locked it.
fn rescue(lease: &Expired, now: i64) {
    let (error, kind) = if lease.timed_out {
        ("the attempt ran longer than its timeout", "timeout")
    } else {
        (
            "the lease expired: no sign of life from the worker",
            "lease_expired",
        )
    };
    let failed = FailedAttempt {
        token: None,
        error,
        details: Some(place::details_of_type(kind)),
        retry_in: None,
        lease_lost: !lease.timed_out,
        retryable: true,
    };
    if let Some(row) = place::take_running(lease.id, lease.token) {
        transition::failed(lease.id, row, &failed, now);
    }
}
