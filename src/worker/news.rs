//! What the transaction under way has to tell others once it commits: in which queues
//! there are jobs that were not there before.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::bounded::Numbers;

/// News of one transaction.
pub struct News {
    /// queues in which a job became available, or waits for its time
    queues: Numbers,
}

thread_local! {
    static NEWS: RefCell<News> = const {
        RefCell::new(News {
            queues: Numbers::new(),
        })
    };
}

/// Jobs of this queue became available.
pub fn available(queue: &str) {
    waits(queue);
}

/// A job of this queue waits for its time, and so may be the next to be due.
pub fn waits(queue: &str) {
    NEWS.with_borrow_mut(|news| news.queues.add(hash(queue)));
}

/// The transaction is over: hands what it had to tell to `tell`, and forgets it.
pub fn end(tell: impl FnOnce(&News)) {
    NEWS.with_borrow_mut(|news| {
        if !news.is_empty() {
            tell(news);
            news.queues.clear();
        }
    });
}

impl News {
    fn is_empty(&self) -> bool {
        self.queues.is_empty()
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
