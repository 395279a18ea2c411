//! The databases that have the extension: which has work, who maintains it, and what its worker has
//! to know.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, PgAtomic, pg_shmem_init};

use super::commit::Work;
use super::is_preloaded;
use super::leases::Leases;
use super::outbox::Outbox;
use crate::pg::server;

/// Maintenance tasks, each of which notes its latest run here.
pub const TASKS: usize = 7;

/// Databases that can be woken; those beyond are still visited now and then.
pub const SLOTS: usize = 256;

/// The moment of [`Slot::next_due`] when nothing is due.
pub const NEVER: i64 = i64::MAX;

/// The moment of [`Slot::next_due`] when something may be due already.
const NOW: i64 = i64::MIN;

/// What [`Slot::prepared`] is to begin with: some may have outlived the server's restart.
const SOME_PREPARED: usize = 1;

/// One database.
pub struct Slot {
    /// its object id; 0: free
    oid: AtomicU32,
    /// what commits made since the last pass began, or the worker looked last: a [`Work`]
    work: AtomicU8,
    /// the latch of its worker; 0: none is running
    worker: AtomicUsize,
    /// its worker comes back by itself in a moment
    rests: AtomicBool,
    /// when its worker found that something will be due
    next_due: AtomicI64,
    /// counts the transactions that were prepared and made something; 0: none of them is left
    prepared: AtomicUsize,
    /// what its worker has yet to notify
    pub to_notify: Outbox,
    /// until when no lease runs out
    pub leases: Leases,
    /// the latest runs of its tasks that found nothing to do
    idle_runs: [LastRun; TASKS],
}

/// A run of a task that found nothing to do. Written by one worker, read by whoever looks; the two
/// numbers may be of different runs, which is no harm.
struct LastRun {
    /// when; 0: never
    at: AtomicI64,
    /// how long it took, in microseconds
    duration: AtomicI64,
}

impl LastRun {
    const fn never() -> LastRun {
        LastRun {
            at: AtomicI64::new(0),
            duration: AtomicI64::new(0),
        }
    }
}

/// A run of a task that found nothing to do.
pub struct IdleRun {
    /// which, by its place in the list of tasks
    pub task: usize,
    /// when
    pub at: i64,
    /// how long it took, in microseconds
    pub duration: i64,
}

struct Shared {
    launcher: AtomicUsize,
    /// more databases have work than there are processes for workers
    crowded: AtomicBool,
    slots: [Slot; SLOTS],
}

// SAFETY: atomics only; the latches are addresses in shared memory, the same in every process.
unsafe impl PGRXSharedMemory for Shared {}

// SAFETY: the name is this extension's own.
static SHARED: PgAtomic<Shared> = unsafe { PgAtomic::new(c"jobs") };

/// Asks for the shared memory.
pub fn register() {
    pg_shmem_init!(
        SHARED = Shared {
            launcher: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            slots: std::array::from_fn(|_| Slot {
                oid: AtomicU32::new(0),
                work: AtomicU8::new(Work::Nothing as u8),
                worker: AtomicUsize::new(0),
                rests: AtomicBool::new(false),
                next_due: AtomicI64::new(NEVER),
                prepared: AtomicUsize::new(SOME_PREPARED),
                to_notify: Outbox::new(),
                leases: Leases::unknown(),
                idle_runs: std::array::from_fn(|_| LastRun::never()),
            }),
        }
    );
}

/// The slot of a database, taken if it has none yet; `None` if all are taken.
pub fn slot(database: Oid) -> Option<&'static Slot> {
    let oid = database.to_u32();
    let slots = &SHARED.get().slots;
    let taken = slots
        .iter()
        .find(|slot| slot.oid.load(Ordering::Acquire) == oid);
    taken.or_else(|| {
        slots.iter().find(|slot| {
            match slot
                .oid
                .compare_exchange(0, oid, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => true,
                // Another session of this database was faster.
                Err(found) => found == oid,
            }
        })
    })
}

/// The slot of this session's database, if there is shared memory and it has one.
pub fn own_slot() -> Option<&'static Slot> {
    if !is_preloaded() {
        return None;
    }
    let oid = server::database().to_u32();
    let mut slots = SHARED.get().slots.iter();
    slots.find(|slot| slot.oid.load(Ordering::Acquire) == oid)
}

/// Whether a transaction may be prepared in this session's database that made something.
pub fn has_prepared() -> bool {
    own_slot().is_some_and(|slot| slot.prepared.load(Ordering::SeqCst) != 0)
}

/// The latest runs in this session's database that found nothing to do.
pub fn idle_runs() -> Vec<IdleRun> {
    own_slot().map_or(Vec::new(), |slot| {
        let runs = slot.idle_runs.iter().enumerate();
        runs.map(|(task, run)| IdleRun {
            task,
            at: run.at.load(Ordering::Relaxed),
            duration: run.duration.load(Ordering::Relaxed),
        })
        .filter(|run| run.at != 0)
        .collect()
    })
}

/// Frees the slots of databases that are gone: nobody is connected to those.
pub fn keep_only(databases: &[Oid]) {
    for slot in &SHARED.get().slots {
        let oid = slot.oid.load(Ordering::Acquire);
        if oid != 0 && !databases.contains(&Oid::from(oid)) {
            slot.worker.store(0, Ordering::SeqCst);
            slot.rests.store(false, Ordering::SeqCst);
            slot.work.store(Work::Nothing as u8, Ordering::SeqCst);
            slot.next_due.store(NEVER, Ordering::SeqCst);
            slot.prepared.store(SOME_PREPARED, Ordering::SeqCst);
            slot.to_notify.take();
            slot.leases.forget();
            for run in &slot.idle_runs {
                run.at.store(0, Ordering::SeqCst);
            }
            slot.oid.store(0, Ordering::Release);
        }
    }
}

/// Whether workers are asked to make room for those of other databases.
pub fn is_crowded() -> bool {
    SHARED.get().crowded.load(Ordering::Relaxed)
}

/// Asks workers to make room, or not any more.
pub fn set_crowded(crowded: bool) {
    SHARED.get().crowded.store(crowded, Ordering::Relaxed);
}

/// Makes this process the launcher that is woken.
pub fn attend_as_launcher() {
    SHARED
        .get()
        .launcher
        .store(server::latch(), Ordering::SeqCst);
}

impl Slot {
    /// Makes this process the worker that is woken, until it ends, however it does; whether it is.
    /// It is not where there is one already: a launcher that was started anew does not know those
    /// of the last one.
    pub fn attend(&'static self) -> bool {
        let nobody =
            self.worker
                .compare_exchange(0, server::latch(), Ordering::SeqCst, Ordering::SeqCst);
        if nobody.is_ok() {
            let slot = pg_sys::Datum::from(std::ptr::from_ref(self).cast_mut());
            // SAFETY: slots live as long as the server.
            unsafe { pg_sys::before_shmem_exit(Some(on_worker_exit), slot) };
        }
        nobody.is_ok()
    }

    /// Whether it has a worker.
    pub fn is_attended(&self) -> bool {
        self.worker.load(Ordering::SeqCst) != 0
    }

    /// Marks the database as having work, and wakes whoever cares for it.
    pub fn touch(&self, work: u8) {
        if self.work.fetch_max(work, Ordering::SeqCst) == Work::Nothing as u8 {
            self.call();
        }
    }

    /// A transaction has been prepared that made something. Nobody can commit it before this
    /// returns.
    pub fn note_prepared(&self) {
        self.prepared.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes the worker, or who starts it.
    pub fn call(&self) {
        if !self.rests.load(Ordering::SeqCst) && !set_latch(&self.worker) {
            set_latch(&SHARED.get().launcher);
        }
    }

    /// The launcher, which may not have started this worker, is to look at the database again: what
    /// came in at the last moment is for the next one.
    fn leave(&self) {
        let own = server::latch();
        let _ = self
            .worker
            .compare_exchange(own, 0, Ordering::SeqCst, Ordering::SeqCst);
        self.rests.store(false, Ordering::SeqCst);
        set_latch(&SHARED.get().launcher);
    }

    /// Says that the worker needs no waking, because it comes back in a moment, or that it does
    /// again: then it looks once more for what came meanwhile. Waking a process costs a commit
    /// as much as a fifth of an insert.
    pub fn set_rests(&self, rests: bool) {
        self.rests.store(rests, Ordering::SeqCst);
    }

    /// Whether there is something for a worker to do at once.
    pub fn is_asked_for(&self) -> bool {
        self.work.load(Ordering::SeqCst) > Work::Nothing as u8 || self.to_notify.is_filled()
    }

    /// A pass begins: what commits from now on is new work. Until it has been made to its
    /// end, which says when something will be due, there is something to do now: whoever
    /// has to leave before has not done what was asked for.
    pub fn begin_pass(&self) {
        self.next_due.store(NOW, Ordering::SeqCst);
        self.take_work();
    }

    /// What commits made since this was asked last.
    pub fn take_work(&self) -> Work {
        let work = self.work.swap(Work::Nothing as u8, Ordering::SeqCst);
        [Work::Nothing, Work::Available, Work::MayBeDue][work as usize]
    }

    /// Leaves work to the next worker.
    pub fn ask(&self) {
        self.work.store(Work::MayBeDue as u8, Ordering::SeqCst);
    }

    /// Notes a run of a task that found nothing to do.
    pub fn note_idle_run(&self, task: usize, at: i64, duration: i64) {
        self.idle_runs[task].at.store(at, Ordering::Relaxed);
        self.idle_runs[task]
            .duration
            .store(duration, Ordering::Relaxed);
    }

    /// Forgets that transactions were prepared, if the catalog says that none are left: who
    /// prepares one meanwhile is counted.
    pub fn forget_prepared(&self, are_left: impl FnOnce() -> bool) {
        let seen = self.prepared.load(Ordering::SeqCst);
        if seen != 0 && !are_left() {
            let _ = self
                .prepared
                .compare_exchange(seen, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Whether its worker may not look again before this moment.
    pub fn looks_later_than(&self, at: i64) -> bool {
        let due = self.next_due();
        // A pass that is under way may have looked already.
        due > at || due == NOW
    }

    /// When something will be due.
    pub fn next_due(&self) -> i64 {
        self.next_due.load(Ordering::SeqCst)
    }

    /// Says when something will be due.
    pub fn set_next_due(&self, at: i64) {
        self.next_due.store(at, Ordering::SeqCst);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_worker_exit(_code: i32, slot: pg_sys::Datum) {
    // SAFETY: the slot that attend() handed over.
    unsafe { (*slot.cast_mut_ptr::<Slot>()).leave() };
}

/// Whether there was a latch to set.
fn set_latch(latch: &AtomicUsize) -> bool {
    let latch = latch.load(Ordering::SeqCst);
    server::set_latch(latch);
    latch != 0
}
