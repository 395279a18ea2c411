//! What is counted of jobs, in shared memory: an entry for each minute of a queue and kind, until
//! maintenance has written it into `history_bucket` (docs/internals/observing.md).
//!
//! An entry is free, being filled, counted in, or closed. A session that counts pins it
//! before the commit and lets go of it behind it, so there are no waits. Where one cannot
//! be had there is another one for the same minute, and they are summed.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

use jobs_core::counts::{Counts, PLACES};
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::{PgSharedMemoryInitialization, pg_shmem_init};

use crate::pg::{server, time};

/// Minutes of queues and kinds, of all databases.
const ENTRIES: usize = 2048;
/// Where one may be: so many that there is a free one among them, if an eighth of all are free.
const WAYS: usize = 64;
/// The bytes of a queue's and a kind's names; longer ones have no entry.
const ROOM: usize = 248;

/// In microseconds.
pub const MINUTE: i64 = 60_000_000;

/// What is done with an entry; from IDLE on as many as it is above that have it pinned.
const FREE: i32 = 0;
const IDLE: i32 = 1;
const FILLING: i32 = -1;
const CLOSED: i32 = -2;

/// What an entry is of; apart from the rest, so that many are looked through at once.
struct Head {
    users: AtomicI32,
    /// The database and the minute; 0 is a free place.
    place: AtomicU64,
    /// Of queue and kind.
    hash: AtomicU64,
}

struct Body {
    /// Unique over all runs of the server. Its remainder by [`ENTRIES`] is the entry's place.
    serial: AtomicI64,
    /// Of the names, in two bytes each.
    lengths: AtomicU32,
    names: [AtomicU8; ROOM],
    counts: [AtomicU64; PLACES],
}

struct Shared {
    /// When this memory was made.
    begun: AtomicI64,
    serial: AtomicI64,
    heads: [Head; ENTRIES],
    bodies: [Body; ENTRIES],
}

/// Where it is: too large to be made somewhere else first.
struct SharedPtr(AtomicPtr<Shared>);

static SHARED: SharedPtr = SharedPtr(AtomicPtr::new(std::ptr::null_mut()));

impl PgSharedMemoryInitialization for SharedPtr {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: in the hook for that.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<Shared>()) };
    }

    unsafe fn on_shmem_startup(&'static self, (): ()) {
        const ADDIN_SHMEM_INIT_LOCK: usize = 21;
        // SAFETY: in the hook for that, and under its lock. All of it is numbers.
        unsafe {
            let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
            pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
            let (name, mut found) = (c"jobs history".as_ptr(), false);
            let memory = pg_sys::ShmemInitStruct(name, size_of::<Shared>(), &mut found);
            let memory = memory.cast::<Shared>();
            if !found {
                (&raw mut (*memory).heads).write_bytes(0, 1);
                let (now, step) = (time::now(), ENTRIES as i64);
                (*memory).begun.store(now, SeqCst);
                (*memory).serial.store(now / step * step, SeqCst);
            }
            self.0.store(memory, SeqCst);
            pg_sys::LWLockRelease(lock);
        }
    }
}

pub fn register() {
    pg_shmem_init!(SHARED = ());
}

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or memory of this type that lives as long as the server. Only atomics.
    unsafe { SHARED.0.load(Relaxed).as_ref() }
}

/// Which counters continue: those of this database, of a copy of which they are not, since this
/// shared memory was made, with which counts are lost.
pub fn epoch() -> i64 {
    let begun = shared().map_or(0, |shared| shared.begun.load(SeqCst));
    begun ^ i64::from(server::database().to_u32()) << 32
}

pub struct Names<'a> {
    pub queue: &'a str,
    pub kind: &'a str,
    /// Of both.
    pub hash: u64,
}

/// What was counted of a queue and kind in a minute.
pub struct Counted {
    /// The entry that had the counts, if one did.
    pub serial: Option<i64>,
    /// When the minute began.
    pub minute: i64,
    pub queue: String,
    pub kind: String,
    pub counts: Counts,
}

/// How often something happened, by its place.
#[derive(Clone, Copy)]
#[repr(C, packed(2))]
pub struct PlaceCount {
    pub place: u16,
    /// A number of events, or of microseconds.
    pub count: u64,
}

/// An entry that is neither freed nor written until it is let go of: its number, from 1 on.
#[derive(Clone, Copy)]
pub struct Pinned(NonZeroU32);

/// Pins the entry of a minute; `None`: there is no room. Neither fails nor allocates.
pub fn pin(names: &Names, minute: i64) -> Option<Pinned> {
    let shared = shared()?;
    let place = place(server::database(), minute);
    let mixed = (place ^ names.hash).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize;
    let (first, step) = (mixed >> 32, mixed >> 8 | 1);
    let ways = (0..WAYS).map(|way| first.wrapping_add(way.wrapping_mul(step)) % ENTRIES);
    let is_it = |number: &usize| shared.heads[*number].pin(place, Some(names.hash));
    let fill = || {
        let has_room = names.queue.len() + names.kind.len() <= ROOM && has_room();
        let is_free = |number: &usize| shared.heads[*number].change(FREE, FILLING);
        let number = has_room.then(|| ways.clone().find(is_free))??;
        let serial = shared.serial.fetch_add(ENTRIES as i64, SeqCst);
        shared.bodies[number].fill(names, serial + number as i64);
        shared.heads[number].fill(names, place);
        Some(number)
    };
    let pinned = ways.clone().find(is_it).or_else(fill);
    pinned.and_then(|number| NonZeroU32::new(number as u32 + 1).map(Pinned))
}

/// The number of the minute that a time is in.
pub fn minute_number(at: i64) -> u32 {
    at.div_euclid(MINUTE) as u32
}

/// Whether this database may have one more: it never has more than are free. So one without
/// maintenance has half of all at most, another one a quarter, and there are always some for the
/// next.
fn has_room() -> bool {
    let (database, mut own, mut free) = (u64::from(server::database().to_u32()), 0, 0);
    for head in shared().iter().flat_map(|shared| &shared.heads) {
        match head.place.load(Relaxed) {
            0 => free += 1,
            place => own += usize::from(place >> 32 == database),
        }
    }
    own < free
}

impl Pinned {
    /// Adds to places, and lets go of the entry.
    pub fn add_and_let_go(self, counts: &[PlaceCount]) {
        if let Some(shared) = shared() {
            let number = self.0.get() as usize - 1;
            for counted in counts {
                let counter = &shared.bodies[number].counts[usize::from(counted.place)];
                counter.fetch_add(counted.count, Relaxed);
            }
            shared.heads[number].let_go();
        }
    }
}

impl Head {
    fn change(&self, from: i32, to: i32) -> bool {
        let change = self.users.compare_exchange(from, to, SeqCst, SeqCst);
        change.is_ok()
    }

    fn is_of(&self, place: u64, hash: Option<u64>) -> bool {
        self.place.load(SeqCst) == place && hash.is_none_or(|hash| self.hash.load(SeqCst) == hash)
    }

    /// Whether it is of these, and now pinned.
    fn pin(&self, place: u64, hash: Option<u64>) -> bool {
        let more = |users| (users >= IDLE).then_some(users + 1);
        let is_pinned =
            self.is_of(place, hash) && self.users.fetch_update(SeqCst, SeqCst, more).is_ok();
        // It may have become another one before it was pinned.
        let is_it = is_pinned && self.is_of(place, hash);
        if is_pinned && !is_it {
            self.let_go();
        }
        is_it
    }

    fn let_go(&self) {
        self.users.fetch_sub(1, SeqCst);
    }

    /// Says what it is of, and pins it.
    fn fill(&self, names: &Names, place: u64) {
        self.hash.store(names.hash, SeqCst);
        self.place.store(place, SeqCst);
        self.users.store(IDLE + 1, SeqCst);
    }

    /// Whether no session counts in it any more.
    fn close(&self) -> bool {
        self.change(IDLE, CLOSED) || self.users.load(SeqCst) == CLOSED
    }

    fn free(&self) {
        self.place.store(0, SeqCst);
        self.users.store(FREE, SeqCst);
    }
}

impl Body {
    fn fill(&self, names: &Names, serial: i64) {
        self.serial.store(serial, SeqCst);
        let lengths = (names.queue.len() << 16 | names.kind.len()) as u32;
        self.lengths.store(lengths, SeqCst);
        let bytes = names.queue.bytes().chain(names.kind.bytes());
        for (to, byte) in self.names.iter().zip(bytes) {
            to.store(byte, Relaxed);
        }
        for count in &self.counts {
            count.store(0, Relaxed);
        }
    }

    fn copy(&self, minute: i64) -> Counted {
        let serial = self.serial.load(SeqCst);
        let lengths = self.lengths.load(SeqCst);
        let (queue, kind) = ((lengths >> 16) as usize, (lengths & 0xFFFF) as usize);
        let bytes = self.names.iter().take(queue + kind);
        let bytes: Vec<u8> = bytes.map(|byte| byte.load(Relaxed)).collect();
        let (queue, kind) = bytes.split_at(queue.min(bytes.len()));
        let mut counts = Counts::default();
        for (place, count) in self.counts.iter().enumerate() {
            counts.add(place, count.load(Relaxed));
        }
        Counted {
            serial: Some(serial),
            minute,
            queue: String::from_utf8_lossy(queue).into_owned(),
            kind: String::from_utf8_lossy(kind).into_owned(),
            counts,
        }
    }
}

fn place(database: Oid, minute: i64) -> u64 {
    u64::from(database.to_u32()) << 32 | (minute / MINUTE) as u32 as u64
}

/// An entry of this session's database.
struct Own {
    head: &'static Head,
    body: &'static Body,
    place: u64,
    minute: i64,
}

fn own() -> impl Iterator<Item = Own> {
    let database = u64::from(server::database().to_u32());
    shared().into_iter().flat_map(move |shared| {
        let entries = shared.heads.iter().zip(&shared.bodies);
        entries.filter_map(move |(head, body)| {
            let place = head.place.load(SeqCst);
            (place >> 32 == database).then_some(Own {
                head,
                body,
                place,
                minute: i64::from(place as u32) * MINUTE,
            })
        })
    })
}

/// What the entries of this database have now; also those that are closed.
pub fn copies() -> Vec<Counted> {
    let copied = own().filter_map(|own| {
        let is_pinned = own.head.pin(own.place, None);
        if !is_pinned && own.head.users.load(SeqCst) != CLOSED {
            return None;
        }
        let copied = own.body.copy(own.minute);
        // A closed one may be another one by now, since its row is committed.
        let is_it =
            Some(own.body.serial.load(SeqCst)) == copied.serial && own.head.is_of(own.place, None);
        if is_pinned {
            own.head.let_go();
        }
        is_it.then_some(copied)
    });
    copied.collect()
}

/// When the first minute of this database is over that is to be written. Also one that is pinned,
/// and cannot be written yet: letting go of it wakes no process.
pub fn next_due() -> Option<i64> {
    let due = own().filter(|own| own.head.users.load(SeqCst) >= IDLE);
    due.map(|own| own.minute + MINUTE).min()
}

/// Closes the entries of minutes before this one; what those have that are closed. Called by one at
/// a time.
pub fn close(before: i64) -> Vec<Counted> {
    let closed = own().filter(|own| own.minute < before && own.head.close());
    closed.map(|own| own.body.copy(own.minute)).collect()
}

/// Frees a closed entry, whose row is committed.
pub fn free(serial: i64) {
    if let Some(shared) = shared() {
        shared.heads[serial as usize % ENTRIES].free();
    }
}

/// Frees the entries of databases that are gone: no session is connected to those.
pub fn keep_only(databases: &[Oid]) {
    free_where(|database| !databases.contains(&database));
}

/// Frees the entries of this database, which an extension has left that is not there any more.
pub fn forget() {
    free_where(|database| database == server::database());
}

fn free_where(is_gone: impl Fn(Oid) -> bool) {
    for head in shared().iter().flat_map(|shared| &shared.heads) {
        let database = Oid::from((head.place.load(SeqCst) >> 32) as u32);
        if database != pg_sys::InvalidOid && is_gone(database) && head.close() {
            head.free();
        }
    }
}
