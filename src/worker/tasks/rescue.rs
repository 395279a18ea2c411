//! Attempts whose lease ran out are failed for their workers.

use super::Task;
use crate::pg::time;
use crate::store::{maintain, place};
use crate::transition::{self, Told};

pub const TASK: Task = Task {
    name: "rescue",
    run,
};

fn run(limit: i64) -> usize {
    let now = time::now();
    let expired = maintain::expired_leases(now, limit);
    let mut rescued = 0;
    for lease in &expired {
        pgrx::check_for_interrupts!();
        let (error, kind) = if lease.timed_out {
            ("the attempt ran longer than its timeout", "timeout")
        } else {
            (
                "the lease expired: no sign of life from the worker",
                "lease_expired",
            )
        };
        let told = Told {
            token: None,
            error,
            details: Some(place::details_of_type(kind)),
            retry_in: None,
            retryable: true,
        };
        if let Some(stopped) = place::take_running(lease.id, lease.token) {
            transition::failed(lease.id, stopped, &told, now);
            rescued += 1;
        }
    }
    rescued
}
