//! What the transaction under way has to tell others once it commits: in which queues there are
//! jobs that were not there before, which jobs are final, which running ones are to be cancelled,
//! and of which workers something is asked. What a savepoint rolls back is told nevertheless:
//! a session looks for nothing.

use std::cell::RefCell;

use super::bounded::{Crowd, Filter, Numbers};
use super::outbox::Content;
use super::things::{self, Queue};

/// What one transaction announces.
pub struct Announcement {
    /// Queues in which a job became available or scheduled.
    pub queues: Crowd,
    /// Jobs that became final or were deleted.
    pub jobs: Crowd,
    /// Workers that got a command, or a request to cancel one of their jobs.
    pub workers: Numbers,
    /// Notifications for listeners.
    pub to_notify: Content,
}

thread_local! {
    static PENDING: RefCell<Announcement> = const {
        RefCell::new(Announcement::nothing())
    };
}

/// Jobs of this queue became available.
pub fn available(queue: &Queue) {
    note(|announced| {
        announced.queues.add(queue.number());
        announced.to_notify.queues.add(queue.name());
    });
}

/// A job of this queue waits for its time, and so may be the next to be due. Or it is available as
/// before, by another row.
pub fn waits(queue: &Queue) {
    note(|announced| announced.queues.add(queue.number()));
}

/// A job became final, or is gone. Noted whether or not a session waits for it: one may come
/// between now and the commit.
pub fn over(id: i64) {
    note(|announced| announced.jobs.add(things::job(id)));
}

/// A cancel was requested of this running job of a worker.
pub fn cancelled(id: i64, worker: &str) {
    note(|announced| {
        announced.workers.add(things::worker(worker));
        announced.to_notify.cancelled.add(id as u64);
    });
}

/// A worker has another command.
pub fn requested(worker: &str) {
    note(|announced| announced.workers.add(things::worker(worker)));
}

/// Without shared memory there is no session to tell.
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
            announced.jobs.clear();
            announced.workers.clear();
            announced.to_notify.clear();
        }
    });
}

impl Announcement {
    const fn nothing() -> Announcement {
        Announcement {
            queues: Crowd::new(),
            jobs: Crowd::new(),
            workers: Numbers::new(),
            to_notify: Content::new(),
        }
    }

    /// It is not known what: it may be of any queue, job and worker.
    pub fn unknown() -> Announcement {
        let mut any = Announcement::nothing();
        any.queues.add_more();
        any.jobs.add_more();
        any.workers.add_more();
        any.to_notify = Content::unknown();
        any
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty()
            && self.jobs.is_empty()
            && self.workers.is_empty()
            && self.to_notify.is_empty()
    }
    /// All of it.
    pub fn filter<const WORDS: usize>(&self) -> Filter<WORDS> {
        let mut filter = Filter::new();
        filter.add_all(&self.queues);
        filter.add_all(&self.jobs);
        let workers = self.workers.as_slice().iter();
        workers.for_each(|worker| filter.add(*worker));
        if self.workers.has_more() {
            filter.add_more();
        }
        filter
    }
}
