//! Faults that a build for the controls of the tests can be told to have (`jobs.fault`: one, or
//! several with commas), to show
//! that the tests find them. Without the feature `faults` every question is a constant no, so that
//! nothing of it is left in the library.

use std::cell::Cell;

macro_rules! faults {
    ($($(#[$what:meta])* $fault:ident = $name:literal;)*) => {
        /// What can be wrong on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$what])* $fault,)*
        }

        #[cfg(feature = "faults")]
        const NAMES: &[&str] = &[$($name),*];
    };
}
faults! {
    /// The look under a locked claim sees what the outer statement sees.
    OuterSnapshot = "outer_snapshot";
    /// Claims are deleted by the statement that waits for their locks, and so with its snapshot.
    ReapInOneStatement = "reap_in_one_statement";
    /// The list of a claim is shortened to the newest job, whatever the others are.
    FoldBlindly = "fold_blindly";
    /// The floor of a lane is raised over rows that others are just inserting or deleting.
    RaiseBlindly = "raise_blindly";
    /// A count of a queue's waiting jobs misses those that others are just inserting.
    CountCommitted = "count_committed";
    /// A look for claims misses those that others are just inserting. Harmless: it makes a rare
    /// race common, for tests.
    ClaimBlindly = "claim_blindly";
    /// The holder of a lock in shared memory stops.
    StopUnderLock = "stop_under_lock";
    /// As [`Fault::StopUnderLock`], and afterwards ignores that others gave up waiting.
    StopAndTrust = "stop_and_trust";
    /// The holder of a lock in shared memory allocates.
    AllocateUnderLock = "allocate_under_lock";
    /// A session stops after its commit, before it wakes anyone. Harmless: it shows tests what
    /// others know by then.
    StopAtCommit = "stop_at_commit";
    /// The end of a transaction allocates.
    AllocateAtCommit = "allocate_at_commit";
    /// The launcher starts workers only in databases that a session asks for. Harmless: it shows
    /// tests that the request did it.
    NoVisits = "no_visits";
    /// Fetches with `min_jobs` take no turns.
    OutOfTurn = "out_of_turn";
    /// A session that waits for a job does not look by itself. Harmless: it shows tests that a
    /// commit woke the session.
    NoLooks = "no_looks";
    /// A cell takes jobs and queues of others.
    AnyCell = "any_cell";
    /// The end of an attempt hands its places on to no job.
    KeepPlaces = "keep_places";
    /// Fetches count permits without taking turns.
    PermitOutOfTurn = "permit_out_of_turn";
    /// In a strict order a job starts while another one has the turn.
    TurnTwice = "turn_twice";
    /// A job that is final keeps its turn.
    KeepTurns = "keep_turns";
    /// Fetches heed no rate.
    NoRates = "no_rates";
    /// No discarded job blocks its key.
    NoBlocks = "no_blocks";
    /// Few waiting sessions can be woken. Harmless: it lets tests have more than that.
    FewSeats = "few_seats";
    /// Few databases get a place in shared memory. Harmless: it lets tests have more than that.
    FewPlaces = "few_places";
    /// The history counts rolled-back moves.
    CountRolledBack = "count_rolled_back";
    /// Results wait hours for locked jobs. Harmless: it lets tests end the lock in time.
    Patient = "patient";
    /// An out-of-memory error finds no reserve, and does not end the session.
    NoReserve = "no_reserve";
    /// Writing a transaction's counts first takes all memory that is left.
    Exhaust = "exhaust";
}

#[cfg(not(feature = "faults"))]
pub const fn is_on(_fault: Fault) -> bool {
    false
}

#[cfg(feature = "faults")]
pub fn is_on(fault: Fault) -> bool {
    let name = NAMES[fault as usize];
    // In place: a copy would be an allocation, where there may be none.
    // SAFETY: a string of the server's, or null.
    unsafe {
        let set = *crate::settings::FAULT.as_ptr();
        let is = |one: &[u8]| one == name.as_bytes();
        !set.is_null()
            && std::ffi::CStr::from_ptr(set).to_bytes().split(|byte| *byte == b',').any(is)
    }
}

/// A lock in shared memory is held: stops the process.
pub fn stop_under_lock() {
    stop(Fault::StopUnderLock);
    stop(Fault::StopAndTrust);
}

/// Stops the process, if this fault is on, as SIGSTOP from outside does, until it is told to go
/// on.
pub fn stop(fault: Fault) {
    if is_on(fault) {
        const SIGSTOP: i32 = 19;
        unsafe extern "C" {
            fn raise(signal: i32) -> i32;
        }
        // SAFETY: a function of the C library.
        unsafe { raise(SIGSTOP) };
    }
}

/// Takes a moment, if this fault is on, so that others come between.
pub fn pause(fault: Fault) {
    if is_on(fault) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Allocates a little, if this fault is on.
pub fn allocate(fault: Fault) {
    if is_on(fault) {
        drop(std::hint::black_box(Box::new(0)));
    }
}

/// Takes all the memory that is left, and asks for more, if this fault is on.
pub fn exhaust() {
    use std::alloc::{GlobalAlloc, Layout, System};

    use pgrx::pg_sys;
    const NO_ERROR: i32 = pg_sys::MCXT_ALLOC_NO_OOM as i32;
    if is_on(Fault::Exhaust) {
        for size in [1 << 20, 1 << 10, 1 << 4] {
            let layout = Layout::from_size_align(size, 8).expect("it is a size");
            // SAFETY: of a size that is not 0; it is never freed.
            while !unsafe { System.alloc(layout) }.is_null() {}
        }
        for size in (3..=13).rev().map(|bits| 1 << bits) {
            // SAFETY: what is left in the context of the moment; null where nothing is.
            while !unsafe { pg_sys::palloc_extended(size, NO_ERROR) }.is_null() {}
        }
        // SAFETY: raises an error.
        unsafe { pg_sys::palloc(8) };
    }
}

thread_local! {
    /// A look that has the fault is under way.
    static LOOKS: Cell<bool> = const { Cell::new(false) };
}

/// Runs the look under a locked claim.
pub fn with_outer_snapshot<T>(look: impl FnOnce() -> T) -> T {
    if !is_on(Fault::OuterSnapshot) {
        return look();
    }
    LOOKS.set(true);
    let found = look();
    LOOKS.set(false);
    found
}

/// Whether statements read with the snapshot of the outer one now.
pub fn reads_outer_snapshot() -> bool {
    is_on(Fault::OuterSnapshot) && LOOKS.get()
}
