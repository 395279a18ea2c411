//! The databases that have the extension: which has work, who maintains it, and what its worker has
//! to know.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicUsize};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::commit::Work;
use super::is_preloaded;
use super::leases::Leases;
use super::outbox::Outbox;
use crate::fault::{self, Fault};
use crate::pg::server;

/// Maintenance tasks, each of which notes its latest run here.
pub const TASKS: usize = 8;

/// Databases that can be woken; those beyond are visited in turn.
const PLACES: usize = 256;
/// How many a test leaves, by [`Fault::FewPlaces`].
const FEW_PLACES: usize = 2;
/// Databases beyond that which are visited in turn.
const BEYOND: usize = 4096;

/// Of a place that is being freed: no database has it.
const NOBODY: u32 = u32::MAX;

/// The moment of [`Place::next_due`] when nothing is due.
pub const NEVER: i64 = i64::MAX;

/// The moment of [`Place::next_due`] when something may be due already.
const NOW: i64 = i64::MIN;

/// What [`Place::prepared`] is to begin with: some may have outlived the server's restart.
const SOME_PREPARED: usize = 1;

pub struct Place {
    /// The database's object id; 0 is a free place.
    oid: AtomicU32,
    /// Work that commits made since the worker's last pass began, or since it last looked.
    work: AtomicU8,
    /// The latch of its worker; 0 without one.
    worker: AtomicUsize,
    /// Its worker returns by itself in a moment.
    rests: AtomicBool,
    /// The next time at which something is due, as its worker found it.
    next_due: AtomicI64,
    /// How many prepared transactions that made work are left; see [`prepared`](super::prepared).
    prepared: AtomicUsize,
    /// Notifications that its worker has to send.
    pub to_notify: Outbox,
    /// Until when no lease expires.
    pub leases: Leases,
    /// The latest runs of its tasks that found nothing to do.
    idle_runs: [LastRun; TASKS],
}

/// A run of a task that found nothing to do. Written by one worker, read by any session; the two
/// numbers may be of different runs, which is no harm.
struct LastRun {
    /// When it began; 0 for never.
    at: AtomicI64,
    /// In microseconds.
    duration: AtomicI64,
}

impl LastRun {
    const fn never() -> LastRun {
        LastRun { at: AtomicI64::new(0), duration: AtomicI64::new(0) }
    }
}

/// A run of a task that found nothing to do.
pub struct IdleRun {
    /// The task's place in the list of tasks.
    pub task: usize,
    pub at: i64,
    /// In microseconds.
    pub duration: i64,
}

/// A database that has the extension and found no place.
struct Beyond {
    /// The database's object id; 0 is a free place.
    oid: AtomicU32,
    /// When a worker last visited it; 0 for never.
    visited_at: AtomicI64,
}

struct Shared {
    launcher: AtomicUsize,
    /// More databases have work than there are processes for workers.
    crowded: AtomicBool,
    places: [Place; PLACES],
    beyond: [Beyond; BEYOND],
}

shared!(
    SHARED: Shared = c"jobs",
    Shared {
        launcher: AtomicUsize::new(0),
        crowded: AtomicBool::new(false),
        places: std::array::from_fn(|_| Place {
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
        beyond: std::array::from_fn(|_| Beyond {
            oid: AtomicU32::new(0),
            visited_at: AtomicI64::new(0),
        }),
    }
);

fn places() -> &'static [Place] {
    let places = &SHARED.get().places;
    match fault::is_on(Fault::FewPlaces) {
        true => &places[..FEW_PLACES],
        false => places,
    }
}

/// How many databases can have a place.
pub fn place_count() -> usize {
    places().len()
}

/// The place of a database, if it has one.
pub fn known(database: Oid) -> Option<&'static Place> {
    let oid = database.to_u32();
    let mut places = places().iter();
    places.find(|place| place.oid.load(SeqCst) == oid)
}

/// The place of a database that has the extension, taken if it has none yet. `None` if all are
/// taken: then the launcher visits it in turn.
pub fn place(database: Oid) -> Option<&'static Place> {
    let oid = database.to_u32();
    let place = known(database).or_else(|| places().iter().find(|place| take(&place.oid, oid)));
    if place.is_none() {
        note_beyond(oid);
    }
    place
}

/// Whether a place was free, or another process of this database was faster.
fn take(place: &AtomicU32, oid: u32) -> bool {
    let taken = place.compare_exchange(0, oid, SeqCst, SeqCst);
    taken.is_ok() || taken == Err(oid)
}

/// Does something with the place of a database that has the extension, if there is one for it. It
/// is done again where the place was just freed.
pub fn with_place(database: Oid, work: impl Fn(&Place)) {
    while let Some(place) = place(database) {
        work(place);
        if place.oid.load(SeqCst) == database.to_u32() {
            break;
        }
    }
}

/// The place of this session's database, if there is shared memory and it has one.
pub fn own_place() -> Option<&'static Place> {
    is_preloaded().then(|| known(server::database())).flatten()
}

fn find_beyond(oid: u32) -> Option<&'static Beyond> {
    let mut beyond = SHARED.get().beyond.iter();
    beyond.find(|place| place.oid.load(SeqCst) == oid)
}

/// A database has no place; the launcher learns of a new one.
fn note_beyond(oid: u32) {
    let mut beyond = SHARED.get().beyond.iter();
    if find_beyond(oid).is_none() && beyond.any(|place| take(&place.oid, oid)) {
        set_latch(&SHARED.get().launcher);
    }
}

/// The databases that have the extension and no place.
pub fn beyond() -> Vec<Oid> {
    let beyond = SHARED.get().beyond.iter();
    let oids = beyond.map(|place| place.oid.load(SeqCst));
    oids.filter(|oid| *oid != 0).map(Oid::from).collect()
}

fn own_beyond() -> Option<&'static Beyond> {
    let has_none = is_preloaded() && own_place().is_none();
    has_none.then(|| find_beyond(server::database().to_u32()))?
}

/// Whether this session's database is one of them.
pub fn is_beyond() -> bool {
    own_beyond().is_some()
}

/// A worker without a place has looked at every task of its database.
pub fn note_visit(at: i64) {
    if let Some(beyond) = own_beyond() {
        beyond.visited_at.store(at, SeqCst);
    }
}

/// A database does not have the extension.
pub fn forget(database: Oid) {
    if let Some(beyond) = find_beyond(database.to_u32()) {
        beyond.free();
    }
    if let Some(place) = known(database) {
        free(place, database);
    }
}

/// Frees a place of a database, and asks anew for what was asked for meanwhile.
fn free(place: &Place, database: Oid) {
    let work = place.give_back();
    if work != Work::Nothing as u8 {
        with_place(database, |place| place.touch(work));
    }
}

/// Whether a transaction may be prepared in this session's database that made something. They are
/// not counted where there is no place.
pub fn has_prepared() -> bool {
    own_place().map_or_else(is_beyond, |place| place.prepared.load(SeqCst) != 0)
}

/// The latest runs in this session's database that found nothing to do.
pub fn idle_runs() -> Vec<IdleRun> {
    let of_place = |place: &Place, task: usize| IdleRun {
        task,
        at: place.idle_runs[task].at.load(Relaxed),
        duration: place.idle_runs[task].duration.load(Relaxed),
    };
    let of_beyond =
        |beyond: &Beyond, task| IdleRun { task, at: beyond.visited_at.load(SeqCst), duration: 0 };
    let (place, beyond) = (own_place(), own_beyond());
    let runs = (0..TASKS).filter_map(|task| {
        let place = place.map(|place| of_place(place, task));
        place.or_else(|| Some(of_beyond(beyond?, task)))
    });
    runs.filter(|run| run.at != 0).collect()
}

/// Whether every look for the place of this database finds this one.
fn is_first(place: &Place, oid: u32) -> bool {
    known(Oid::from(oid)).is_none_or(|first| std::ptr::eq(first, place))
}

/// Frees the places of databases that are gone: no session is connected to those. And those beyond
/// the places of databases that have got one, and a second place: two sessions can each take one,
/// if another becomes free meanwhile.
pub fn keep_only(databases: &[Oid]) {
    let is_gone = |oid| oid != 0 && oid != NOBODY && !databases.contains(&Oid::from(oid));
    for place in &SHARED.get().places {
        let oid = place.oid.load(SeqCst);
        if is_gone(oid) {
            place.give_back();
        } else if databases.contains(&Oid::from(oid))
            && !is_first(place, oid)
            && !place.is_attended()
        {
            free(place, Oid::from(oid));
        }
    }
    for beyond in &SHARED.get().beyond {
        let oid = beyond.oid.load(SeqCst);
        if is_gone(oid) || oid != 0 && known(Oid::from(oid)).is_some() {
            beyond.free();
        }
    }
}

/// Whether workers are asked to make room for those of other databases.
pub fn is_crowded() -> bool {
    SHARED.get().crowded.load(Relaxed)
}

/// Asks workers to make room, or not any more.
pub fn set_crowded(crowded: bool) {
    SHARED.get().crowded.store(crowded, Relaxed);
}

/// Makes this process the launcher that is woken.
pub fn attend_as_launcher() {
    SHARED.get().launcher.store(server::latch(), SeqCst);
}

impl Beyond {
    fn free(&self) {
        self.visited_at.store(0, SeqCst);
        self.oid.store(0, SeqCst);
    }
}

impl Place {
    /// Frees it; what was asked for meanwhile. A later request finds that it is free, and
    /// asks again ([`with_place`]).
    fn give_back(&self) -> u8 {
        self.oid.store(NOBODY, SeqCst);
        self.worker.store(0, SeqCst);
        self.rests.store(false, SeqCst);
        self.next_due.store(NEVER, SeqCst);
        self.prepared.store(SOME_PREPARED, SeqCst);
        self.to_notify.take();
        self.leases.forget();
        for run in &self.idle_runs {
            run.at.store(0, SeqCst);
        }
        let work = self.work.swap(Work::Nothing as u8, SeqCst);
        self.oid.store(0, SeqCst);
        work
    }

    /// Makes this process the worker that is woken, until it ends, however it does; whether it is.
    /// It is not where there is one already: a launcher that was started anew does not know those
    /// of the last one.
    pub fn attend(&'static self) -> bool {
        let nobody = self.worker.compare_exchange(0, server::latch(), SeqCst, SeqCst);
        if nobody.is_ok() {
            let place = pg_sys::Datum::from(std::ptr::from_ref(self).cast_mut());
            // SAFETY: places live as long as the server.
            unsafe { pg_sys::before_shmem_exit(Some(on_worker_exit), place) };
        }
        nobody.is_ok()
    }

    pub fn is_attended(&self) -> bool {
        self.worker.load(SeqCst) != 0
    }

    /// Marks the database as having work, and wakes its worker or the launcher.
    pub fn touch(&self, work: u8) {
        if self.work.fetch_max(work, SeqCst) == Work::Nothing as u8 {
            self.call();
        }
    }

    /// A transaction has been prepared that made something. It cannot be can commit it before this
    /// returns.
    pub fn note_prepared(&self) {
        self.prepared.fetch_add(1, SeqCst);
    }

    /// Wakes the worker, or who starts it.
    pub fn call(&self) {
        if !self.rests.load(SeqCst) && !set_latch(&self.worker) {
            set_latch(&SHARED.get().launcher);
        }
    }

    /// The launcher, which may not have started this worker, is to look at the database again: what
    /// came in at the last moment is for the next one.
    fn leave(&self) {
        let own = server::latch();
        let _ = self.worker.compare_exchange(own, 0, SeqCst, SeqCst);
        self.rests.store(false, SeqCst);
        set_latch(&SHARED.get().launcher);
    }

    /// Says that the worker needs no waking, because it comes back in a moment, or that it does
    /// again: then it looks once more for what came meanwhile. Waking a process costs a commit
    /// as much as a fifth of an insert.
    pub fn set_rests(&self, rests: bool) {
        self.rests.store(rests, SeqCst);
    }

    /// Whether there is something for a worker to do at once.
    pub fn is_asked_for(&self) -> bool {
        self.work.load(SeqCst) > Work::Nothing as u8 || self.to_notify.is_filled()
    }

    /// A pass begins: what commits from now on is new work. Until it has been made to its
    /// end, which says when something will be due, there is something to do now: a worker
    /// that has to leave before has not done what was asked for.
    pub fn begin_pass(&self) {
        self.next_due.store(NOW, SeqCst);
        self.take_work();
    }

    /// What commits made since this was asked last.
    pub fn take_work(&self) -> Work {
        let work = self.work.swap(Work::Nothing as u8, SeqCst);
        [Work::Nothing, Work::Available, Work::MayBeDue, Work::Held][work as usize]
    }

    /// Leaves work to the next worker.
    pub fn ask(&self) {
        self.work.store(Work::MayBeDue as u8, SeqCst);
    }

    /// Notes a run of a task that found nothing to do.
    pub fn note_idle_run(&self, task: usize, at: i64, duration: i64) {
        self.idle_runs[task].at.store(at, Relaxed);
        self.idle_runs[task].duration.store(duration, Relaxed);
    }

    /// Forgets that transactions were prepared, if the catalog says that none are left: who
    /// prepares one meanwhile is counted.
    pub fn forget_prepared(&self, are_left: impl FnOnce() -> bool) {
        let seen = self.prepared.load(SeqCst);
        if seen != 0 && !are_left() {
            let _ = self.prepared.compare_exchange(seen, 0, SeqCst, SeqCst);
        }
    }

    /// Whether its worker may not look again before this moment.
    pub fn looks_later_than(&self, at: i64) -> bool {
        let due = self.next_due();
        // A pass that is under way may have looked already.
        due > at || due == NOW
    }

    pub fn next_due(&self) -> i64 {
        self.next_due.load(SeqCst)
    }

    pub fn set_next_due(&self, at: i64) {
        self.next_due.store(at, SeqCst);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_worker_exit(_code: i32, place: pg_sys::Datum) {
    // SAFETY: the place that attend() handed over.
    unsafe { (*place.cast_mut_ptr::<Place>()).leave() };
}

/// Whether there was a latch to set.
fn set_latch(latch: &AtomicUsize) -> bool {
    let latch = latch.load(SeqCst);
    server::set_latch(latch);
    latch != 0
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::*;

    #[pg_test]
    fn a_second_place_of_a_database_is_freed_and_its_work_is_kept() {
        let database = server::database();
        let first = place(database).expect("a place");
        let second = places().last().expect("there are some");
        assert_eq!(second.oid.swap(database.to_u32(), SeqCst), 0);
        second.ask();
        let oids = places().iter().map(|place| place.oid.load(SeqCst));
        let known = oids.filter(|oid| *oid != 0).map(Oid::from);
        keep_only(&known.collect::<Vec<_>>());
        assert_eq!(second.oid.load(SeqCst), 0);
        assert!(first.is_asked_for());
        assert!(std::ptr::eq(place(database).expect("a place"), first));
    }
}
