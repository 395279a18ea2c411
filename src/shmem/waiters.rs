//! Sessions that wait for jobs, in shared memory: who commits a job wakes them directly.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, PgAtomic, pg_shmem_init};

use super::announce::Announcement;
use crate::pg::server;

/// Sessions that can be woken; those beyond look now and then.
const SEATS: usize = 512;

/// One session that waits.
struct Seat {
    /// its process id; 0: free
    owner: AtomicI32,
    database: AtomicU32,
    /// the hash of the queue's name
    queue: AtomicU64,
    latch: AtomicUsize,
    /// a commit has announced something for it
    woken: AtomicBool,
}

struct Waiters {
    /// how many seats are taken: mostly none, and then a commit looks no further
    count: AtomicU32,
    seats: [Seat; SEATS],
}

// SAFETY: atomics only; the latches are addresses in shared memory, the same in every process.
unsafe impl PGRXSharedMemory for Waiters {}

// SAFETY: the name is this extension's own.
static WAITERS: PgAtomic<Waiters> = unsafe { PgAtomic::new(c"jobs waiters") };

thread_local! {
    /// The seat of this session.
    static MINE: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    /// Whether this session has said what is to be done when it ends.
    static PREPARED: Cell<bool> = const { Cell::new(false) };
}

/// Asks for the shared memory.
pub fn register() {
    pg_shmem_init!(
        WAITERS = Waiters {
            count: AtomicU32::new(0),
            seats: std::array::from_fn(|_| Seat {
                owner: AtomicI32::new(0),
                database: AtomicU32::new(0),
                queue: AtomicU64::new(0),
                latch: AtomicUsize::new(0),
                woken: AtomicBool::new(false),
            }),
        }
    );
}

/// Wakes those who wait for what a transaction has just committed. Called in the commit
/// callback: nothing in here may fail.
pub fn wake(database: Oid, announced: &Announcement) {
    let waiters = WAITERS.get();
    if waiters.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    for seat in &waiters.seats {
        if seat.owner.load(Ordering::SeqCst) != 0
            && seat.database.load(Ordering::SeqCst) == database.to_u32()
            && announced.concern(seat.queue.load(Ordering::SeqCst))
            && !seat.woken.swap(true, Ordering::SeqCst)
        {
            // Whose seat is being taken just now may have none yet.
            server::set_latch(seat.latch.load(Ordering::SeqCst));
        }
    }
}

/// A seat that was taken; given back when it is dropped, or with the end of the process.
pub struct Taken(&'static Seat);

/// Takes a seat for this session; `None` if there is none. A commit that is not visible to
/// a snapshot taken after this will wake the session: the seat is taken before the snapshot
/// is, and a commit is visible before it looks for seats.
pub fn take_seat(queue: u64) -> Option<Taken> {
    if !super::is_preloaded() {
        return None;
    }
    if !PREPARED.replace(true) {
        // SAFETY: the callback lives as long as the library, which is never unloaded.
        unsafe { pg_sys::before_shmem_exit(Some(on_exit), pg_sys::Datum::null()) };
    }
    let waiters = WAITERS.get();
    let seat = waiters.seats.iter().find(|seat| {
        seat.owner
            .compare_exchange(0, server::process(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    })?;
    MINE.set(Some(seat));
    seat.database
        .store(server::database().to_u32(), Ordering::SeqCst);
    seat.queue.store(queue, Ordering::SeqCst);
    seat.latch.store(server::latch(), Ordering::SeqCst);
    waiters.count.fetch_add(1, Ordering::SeqCst);
    Some(Taken(seat))
}

impl Taken {
    /// What committed so far is not new any more.
    pub fn forget(&self) {
        self.0.woken.store(false, Ordering::SeqCst);
    }

    /// Whether a commit has announced something since.
    pub fn is_woken(&self) -> bool {
        self.0.woken.load(Ordering::SeqCst)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        stand_up();
    }
}

/// Gives this session's seat back. An error comes here by unwinding, the end of the process
/// by its callback.
fn stand_up() {
    if let Some(seat) = MINE.take() {
        WAITERS.get().count.fetch_sub(1, Ordering::SeqCst);
        seat.owner.store(0, Ordering::SeqCst);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
    stand_up();
}
