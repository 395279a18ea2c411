//! Attempts whose lease ran out are failed for their workers. Once a minute, times that a clock has
//! left ahead are cut, so that leases end.

use super::{Round, Singly, Task, Thing, clock};
use crate::pg::time;
use crate::store::due::{self, Expired, Leases};
use crate::store::moves;
use crate::transition::attempt::{self, By, Ending, Failure, Finishing};

pub const TASK: Task = Task { name: "rescue", run, singly: Some(Singly { find, handle }) };

fn run(limit: i64, but: &[Thing]) -> Round {
    let leases = due::expired_leases(time::now(), limit, &Leases::But(&Thing::jobs(but)));
    rescue(&leases);
    let more_notes = due::forget_heartbeats(time::now(), limit);
    let (cut, more) = clock::cut(limit);
    let mut round = Round::of(leases.len(), limit);
    round.rows += cut;
    round.more |= more || more_notes;
    round
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
    let leases = due::expired_leases(time::now(), 1, &Leases::Of(*id));
    rescue(&leases);
    !leases.is_empty()
}

/// The caller has locked them.
fn rescue(leases: &[Expired]) {
    if leases.is_empty() {
        return;
    }
    let details = ["timeout", "lease_expired"].map(|name| Some(moves::details_of_type(name)));
    let said = leases.iter().map(|lease| {
        let (error, details, by) = match lease.timed_out {
            true => ("the attempt ran longer than its timeout", details[0], By::Timeout),
            false => ("the lease expired: no heartbeat from the worker", details[1], By::LostLease),
        };
        let (id, token) = (lease.id, lease.token);
        let ending = Ending::Fail(Failure { error, details, retry_in: None, retryable: true, by });
        Finishing { id, token, ending }
    });
    attempt::end(&said.collect::<Vec<_>>());
}
