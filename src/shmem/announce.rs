//! What the transaction under way has to tell others once it commits: in which queues
//! there are jobs that were not there before, and which running jobs are to be cancelled.
//! What a savepoint takes back is told nevertheless: somebody looks for nothing.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::bounded::Numbers;
use super::outbox::Content;

/// What one transaction announces.
pub struct Announcement {
    /// queues in which a job became available, or waits for its time
    queues: Numbers,
    /// what listeners are told
    pub to_notify: Content,
}

thread_local! {
    static PENDING: RefCell<Announcement> = const {
        RefCell::new(Announcement::nothing())
    };
}

/// Jobs of this queue became available.
pub fn available(queue: &str) {
    note(|announced| {
        announced.queues.add(hash(queue));
        announced.to_notify.queues.add(queue);
    });
}

/// A job of this queue waits for its time, and so may be the next to be due.
pub fn waits(queue: &str) {
    note(|announced| announced.queues.add(hash(queue)));
}

/// Somebody asked to cancel this running job.
pub fn cancelled(id: i64) {
    note(|announced| announced.to_notify.cancelled.add(id as u64));
}

/// Without shared memory there is nobody to tell.
fn note(add: impl FnOnce(&mut Announcement)) {
    if super::is_preloaded() {
        PENDING.with_borrow_mut(add);
    }
}

/// The transaction is over: hands what it had to tell to `tell`, and forgets it.
pub fn end(tell: impl FnOnce(&Announcement)) {
    PENDING.with_borrow_mut(|announced| {
        if !announced.is_empty() {
            tell(announced);
            announced.queues.clear();
            announced.to_notify.clear();
        }
    });
}

impl Announcement {
    const fn nothing() -> Announcement {
        Announcement {
            queues: Numbers::new(),
            to_notify: Content::new(),
        }
    }

    /// It is not known what: it may be of any queue.
    pub fn unknown() -> Announcement {
        let mut any = Announcement::nothing();
        any.queues.add_more();
        any.to_notify.add_more();
        any
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.to_notify.is_empty()
    }

    /// Whether they may be of a queue.
    pub fn concern(&self, queue: u64) -> bool {
        self.queues.may_have(queue)
    }
}

/// A queue's name as a number, the same in all processes: two names with one number
/// only wake somebody for nothing.
pub fn hash(queue: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    queue.hash(&mut hasher);
    hasher.finish()
}
