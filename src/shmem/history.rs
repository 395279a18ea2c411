//! What is counted of jobs, in shared memory: an entry for each minute of a queue and kind, until
//! the worker has written it into `history_bucket`.
//!
//! An entry is free, or somebody fills it, or it is counted in, or the worker is writing it. Who
//! counts pins it before the commit and lets go of it behind it, so nobody waits for anybody: where
//! an entry cannot be had there is another one for the same minute, and they are summed. Where
//! there is none at all, the transaction writes what it has counted into `history_delta`.
//!
//! An entry that is being written stays until that is committed. Who reads takes the entries first
//! and the rows after, with a newer snapshot. A row says which entry it was, so none counts twice.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{
    AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};

use jobs_core::history::{Counts, PLACES};
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::{PgSharedMemoryInitialization, pg_shmem_init};

use crate::pg::name::Name;
use crate::pg::{server, time};

/// Minutes of queues and kinds, of all databases.
const ENTRIES: usize = 1024;
/// Where one may be.
const WAYS: usize = 16;
/// The bytes of a queue's and a kind's names; longer ones have no entry.
const ROOM: usize = 248;

/// In microseconds.
pub const MINUTE: i64 = 60_000_000;

/// What is done with an entry; from IDLE on as many as it is above that have it pinned.
const FREE: i32 = 0;
const IDLE: i32 = 1;
const FILLING: i32 = -1;
const WRITING: i32 = -2;

struct Entry {
    users: AtomicI32,
    /// the table that it is to go to: a database may have had the extension before
    table: AtomicU32,
    /// the pair's number
    key: AtomicI32,
    /// of the names, in two bytes each
    lengths: AtomicU32,
    /// no two entries have the same, also of different runs of the server
    serial: AtomicI64,
    names: [AtomicU8; ROOM],
    counts: [AtomicU64; PLACES],
}

struct Shared {
    /// when this memory was made
    epoch: AtomicI64,
    serial: AtomicI64,
    /// the database and the minute of each entry, side by side to be looked through; 0: free
    heads: [AtomicU64; ENTRIES],
    entries: [Entry; ENTRIES],
}

/// Where it is: too large to be made somewhere else first. All of it is numbers, and 0 is free.
struct Place(AtomicPtr<Shared>);

static SHARED: Place = Place(AtomicPtr::new(std::ptr::null_mut()));

impl PgSharedMemoryInitialization for Place {
    type Value = ();

    unsafe fn on_shmem_request(&'static self) {
        // SAFETY: in the hook for that.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<Shared>()) };
    }

    unsafe fn on_shmem_startup(&'static self, (): ()) {
        const ADDIN_SHMEM_INIT_LOCK: usize = 21;
        // SAFETY: in the hook for that, and under its lock.
        unsafe {
            let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
            pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
            let (name, mut found) = (c"jobs history".as_ptr(), false);
            let memory = pg_sys::ShmemInitStruct(name, size_of::<Shared>(), &mut found);
            let memory = memory.cast::<Shared>();
            if !found {
                memory.write_bytes(0, 1);
                (*memory).epoch.store(time::now(), Ordering::SeqCst);
                (*memory).serial.store(time::now(), Ordering::SeqCst);
            }
            self.0.store(memory, Ordering::SeqCst);
            pg_sys::LWLockRelease(lock);
        }
    }
}

/// Asks for the shared memory.
pub fn register() {
    pg_shmem_init!(SHARED = ());
}

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or memory of this type that lives as long as the server. Only atomics.
    unsafe { SHARED.0.load(Ordering::Relaxed).as_ref() }
}

/// When the counts began that are lost with this shared memory; 0: there is none, and none are.
pub fn epoch() -> i64 {
    shared().map_or(0, |shared| shared.epoch.load(Ordering::SeqCst))
}

/// A queue and a kind.
pub struct Names<'a> {
    /// the table that their counts go to
    pub table: u32,
    /// the queue
    pub queue: &'a str,
    /// the kind
    pub kind: &'a str,
    /// their number: others may have the same
    pub key: i32,
}

/// An entry that nobody frees or writes until it is let go of.
#[derive(Clone, Copy, Debug)]
pub struct Pinned(u32);

/// Pins the entry of a minute, maybe the one that it was before; `None`: there is no room. Neither
/// fails nor allocates.
pub fn pin(names: &Names, minute: i64, before: Option<Pinned>) -> Option<Pinned> {
    let shared = shared()?;
    let head = head(server::database(), minute);
    let is_it = |place: usize| {
        let entry = &shared.entries[place];
        shared.heads[place].load(Ordering::SeqCst) == head
            && entry.key.load(Ordering::SeqCst) == names.key
            && entry.pin()
            && (shared.heads[place].load(Ordering::SeqCst) == head && entry.is_of(names)
                || entry.let_go())
    };
    let pinned = |place: usize| Pinned(place as u32);
    if let Some(before) = before.filter(|before| is_it(before.0 as usize)) {
        return Some(before);
    }
    let first = (head ^ names.key as u32 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let mut ways = (0..WAYS).map(|way| (first as usize + way) % ENTRIES);
    if let Some(place) = ways.clone().find(|place| is_it(*place)) {
        return Some(pinned(place));
    }
    if names.queue.len() + names.kind.len() > ROOM {
        return None;
    }
    let is_left_behind = |place: usize| {
        shared.heads[place].load(Ordering::SeqCst) >> 32 == head >> 32
            && shared.entries[place].table.load(Ordering::SeqCst) != names.table
            && shared.entries[place].change(IDLE, FILLING)
    };
    let free = ways
        .clone()
        .find(|place| shared.entries[*place].change(FREE, FILLING));
    let place = free.or_else(|| ways.find(|place| is_left_behind(*place)))?;
    shared.entries[place].fill(names, shared.serial.fetch_add(1, Ordering::SeqCst));
    shared.heads[place].store(head, Ordering::SeqCst);
    shared.entries[place]
        .users
        .store(IDLE + 1, Ordering::SeqCst);
    Some(pinned(place))
}

impl Pinned {
    /// Adds to places, and lets go of the entry.
    pub fn add_and_let_go(self, counts: impl Iterator<Item = (u16, u64)>) {
        if let Some(shared) = shared() {
            let entry = &shared.entries[self.0 as usize];
            for (place, count) in counts {
                entry.counts[usize::from(place)].fetch_add(count, Ordering::Relaxed);
            }
            entry.let_go();
        }
    }
}

impl Entry {
    fn change(&self, from: i32, to: i32) -> bool {
        let change = self
            .users
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        change.is_ok()
    }

    fn pin(&self) -> bool {
        let more = |users| (users >= IDLE).then_some(users + 1);
        let pinned = self
            .users
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        pinned.is_ok()
    }

    /// Nobody has it; for who looks for another one.
    fn let_go(&self) -> bool {
        self.users.fetch_sub(1, Ordering::SeqCst);
        false
    }

    fn fill(&self, names: &Names, serial: i64) {
        self.serial.store(serial, Ordering::SeqCst);
        self.table.store(names.table, Ordering::SeqCst);
        self.key.store(names.key, Ordering::SeqCst);
        let lengths = (names.queue.len() << 16 | names.kind.len()) as u32;
        self.lengths.store(lengths, Ordering::SeqCst);
        for (to, byte) in self.names.iter().zip(names.bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn is_of(&self, names: &Names) -> bool {
        let lengths = (names.queue.len() << 16 | names.kind.len()) as u32;
        self.table.load(Ordering::SeqCst) == names.table
            && self.lengths.load(Ordering::SeqCst) == lengths
            && self
                .names
                .iter()
                .zip(names.bytes())
                .all(|(mine, byte)| mine.load(Ordering::Relaxed) == byte)
    }

    fn copy(&self, minute: i64) -> Copied {
        let serial = self.serial.load(Ordering::SeqCst);
        let lengths = self.lengths.load(Ordering::SeqCst);
        let (queue, kind) = ((lengths >> 16) as usize, (lengths & 0xFFFF) as usize);
        let bytes = self.names.iter().take(queue + kind);
        let bytes: Vec<u8> = bytes.map(|byte| byte.load(Ordering::Relaxed)).collect();
        let (queue, kind) = bytes.split_at(queue.min(bytes.len()));
        let mut counts = Counts::default();
        for (place, count) in self.counts.iter().enumerate() {
            counts.add(place, count.load(Ordering::Relaxed));
        }
        Copied {
            serial,
            minute,
            queue: String::from_utf8_lossy(queue).into_owned(),
            kind: String::from_utf8_lossy(kind).into_owned(),
            counts,
        }
    }
}

impl Names<'_> {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.queue.bytes().chain(self.kind.bytes())
    }
}

fn head(database: Oid, minute: i64) -> u64 {
    u64::from(database.to_u32()) << 32 | (minute / MINUTE) as u32 as u64
}

/// The table that minutes go to.
static TABLE: Name = Name::new(c"history_bucket");

/// Its object id, which says which extension it is of.
pub fn table() -> u32 {
    TABLE.oid().to_u32()
}

/// The entries of this session's database, and the minutes that they are of.
fn own() -> impl Iterator<Item = (usize, &'static Entry, i64)> {
    let database = u64::from(server::database().to_u32());
    let (shared, table) = (shared(), table());
    shared.into_iter().flat_map(move |shared| {
        let entries = shared.heads.iter().zip(&shared.entries).enumerate();
        entries.filter_map(move |(place, (head, entry))| {
            let head = head.load(Ordering::SeqCst);
            let is_own = head >> 32 == database && entry.table.load(Ordering::SeqCst) == table;
            is_own.then_some((place, entry, i64::from(head as u32) * MINUTE))
        })
    })
}

/// What an entry had.
pub struct Copied {
    /// which it was
    pub serial: i64,
    /// when its minute began
    pub minute: i64,
    /// the queue
    pub queue: String,
    /// the kind
    pub kind: String,
    /// what was counted
    pub counts: Counts,
}

/// What the entries of this database have now; also those that are being written.
pub fn copies() -> Vec<Copied> {
    let copied = own().filter_map(|(_, entry, minute)| {
        let is_pinned = entry.pin();
        if !is_pinned && entry.users.load(Ordering::SeqCst) != WRITING {
            return None;
        }
        let copied = entry.copy(minute);
        if is_pinned {
            entry.let_go();
        }
        // Else it may have become another one meanwhile, once its row was committed.
        (entry.serial.load(Ordering::SeqCst) == copied.serial).then_some(copied)
    });
    copied.collect()
}

/// When the first minute of this database is over that is to be written. What a commit under way
/// has pinned is left to a later visit: it may wait for a standby.
pub fn next_due() -> Option<i64> {
    let is_idle = |entry: &Entry| entry.users.load(Ordering::SeqCst) == IDLE;
    let due = own().filter(|(_, entry, _)| is_idle(entry));
    due.map(|(_, _, minute)| minute + MINUTE).min()
}

thread_local! {
    /// The entries that this transaction writes, each with the subtransaction that does.
    static WRITTEN: RefCell<ManuallyDrop<Vec<(usize, u32)>>> = const {
        RefCell::new(ManuallyDrop::new(Vec::new()))
    };
}

/// Takes entries of minutes before this one, at most so many, to be written by this subtransaction.
/// If it commits they are freed, else they are as they were.
pub fn take(before: i64, most: usize, subtransaction: u32) -> Vec<Copied> {
    let taken = own().filter(|(_, entry, minute)| *minute < before && entry.change(IDLE, WRITING));
    let taken = taken.take(most).map(|(place, entry, minute)| {
        WRITTEN.with_borrow_mut(|written| written.push((place, subtransaction)));
        entry.copy(minute)
    });
    taken.collect()
}

/// The transaction is over, or a subtransaction that began with this one is rolled back. Where it
/// is prepared, its entries stay as they are: nobody knows what becomes of it, and a row that comes
/// says which entry it was.
pub fn end_writing(from: u32, is_committed: Option<bool>) {
    WRITTEN.with(|written| {
        // SAFETY: nobody has it borrowed, but for who gets no more memory: that ends the session,
        // and does not come back.
        let written = unsafe { &mut *written.as_ptr() };
        written.retain(|(place, subtransaction)| {
            let is_over = *subtransaction >= from;
            if let (true, Some(shared), Some(is_committed)) = (is_over, shared(), is_committed) {
                if is_committed {
                    shared.heads[*place].store(0, Ordering::SeqCst);
                }
                let users = if is_committed { FREE } else { IDLE };
                shared.entries[*place].users.store(users, Ordering::SeqCst);
            }
            !is_over
        });
    });
}

/// Frees the entries of databases that are gone: nobody is connected to those.
pub fn keep_only(databases: &[Oid]) {
    let Some(shared) = shared() else { return };
    for (head, entry) in shared.heads.iter().zip(&shared.entries) {
        let database = Oid::from((head.load(Ordering::SeqCst) >> 32) as u32);
        let is_gone = database != pg_sys::InvalidOid && !databases.contains(&database);
        if is_gone && (entry.change(IDLE, FILLING) || entry.change(WRITING, FILLING)) {
            head.store(0, Ordering::SeqCst);
            entry.users.store(FREE, Ordering::SeqCst);
        }
    }
}
