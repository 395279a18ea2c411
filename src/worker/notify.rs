//! The notifications: sent by the worker of a database in transactions of its own, since
//! a transaction that notifies holds a lock of the whole server until it is on disk.

use crate::shmem::outbox::Content;
use crate::store::notifications as store;

/// Sends what there is to notify when this transaction commits; how many notifications.
pub fn send(content: &Content) -> usize {
    let mut payloads: Vec<String> = Vec::new();
    let mut queue = |name: &str| {
        let name = serde_json::Value::from(name);
        payloads.push(format!("{{\"queue\": {name}}}"));
    };
    if content.queues.has_more() {
        // Not all of the names are known: of every queue that a listener would find jobs in.
        store::available_queues().iter().for_each(|name| queue(name));
    }
    content.queues.for_each(queue);
    let mut cancel = |id: i64| payloads.push(format!("{{\"cancel\": {id}}}"));
    if content.cancelled.has_more() {
        store::cancel_requests().into_iter().for_each(&mut cancel);
    }
    let ids = content.cancelled.as_slice().iter();
    ids.for_each(|id| cancel(*id as i64));
    store::send(&payloads);
    payloads.len()
}
