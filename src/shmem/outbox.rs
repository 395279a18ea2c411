//! What the worker of a database has yet to notify, in shared memory. Sessions put it there
//! when they commit; nothing of that may fail.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bounded::{Names, Numbers};
use super::spinlock::Lock;

/// What there is to notify.
pub struct Content {
    /// Queues in which jobs became available.
    pub queues: Names,
    /// Running jobs with a request to cancel.
    pub cancelled: Numbers,
}

impl Content {
    pub const fn new() -> Content {
        Content { queues: Names::new(), cancelled: Numbers::new() }
    }

    /// It is not known what: it may be anything.
    pub fn unknown() -> Content {
        let mut any = Content::new();
        any.add_more();
        any
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.cancelled.is_empty()
    }

    /// Adds that there is more than is known.
    pub fn add_more(&mut self) {
        self.queues.add_more();
        self.cancelled.add_more();
    }

    pub fn add(&mut self, other: &Content) {
        self.queues.add_all(&other.queues);
        self.cancelled.add_all(&other.cancelled);
    }

    pub fn clear(&mut self) {
        self.queues.clear();
        self.cancelled.clear();
    }
}

/// The outbox of one database.
pub struct Outbox {
    lock: Lock,
    filled: AtomicBool,
    content: UnsafeCell<Content>,
}

impl Outbox {
    pub const fn new() -> Outbox {
        Outbox {
            lock: Lock::new(),
            filled: AtomicBool::new(false),
            content: UnsafeCell::new(Content::new()),
        }
    }

    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::SeqCst)
    }

    /// Puts something there; whether there was nothing before.
    pub fn put(&self, content: &Content) -> bool {
        // Where that cannot be done, who takes it is told that there is more.
        self.with(|mine| mine.add(content));
        !self.filled.swap(true, Ordering::SeqCst)
    }

    pub fn take(&self) -> Content {
        self.filled.store(false, Ordering::SeqCst);
        let mut taken = Content::new();
        let done = self.with(|mine| {
            taken.add(mine);
            mine.clear();
        });
        if done.is_none() {
            taken.add_more();
        }
        taken
    }

    /// `None`: another session is at it, and does not come to an end. It may be anything, then.
    fn with(&self, work: impl FnOnce(&mut Content)) -> Option<()> {
        // SAFETY: only the holder of the lock is here.
        let content = || unsafe { &mut *self.content.get() };
        self.lock.with(|| work(content()), || content().add_more())
    }
}
