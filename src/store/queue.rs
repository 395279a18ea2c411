//! A queue as a session knows it: looked up by its name once, and then handed down.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use pgrx::pg_sys::{Datum, Oid};

use super::config_cache::Remembered;
use super::spi::{Arg, Field, Value, text};
use super::types::*;
use crate::shmem::things;

/// A queue: its name, its number in shared memory, and what the session remembers of its settings.
#[derive(Clone)]
pub struct Queue(Rc<Known>);

struct Known {
    queue: things::Queue,
    settings: Remembered,
}

/// The queues that a session has met. Who holds one that is forgotten here keeps it.
#[derive(Default)]
struct Met {
    latest: Option<Queue>,
    by_number: BTreeMap<u64, Queue>,
}

/// More queues than this are not remembered: they are made up.
const MOST: usize = 10_000;

thread_local! {
    static MET: RefCell<Met> = RefCell::default();
}

impl Queue {
    pub fn named(name: &str) -> Queue {
        let is_it = |queue: &&Queue| queue.name() == name;
        MET.with_borrow_mut(|met| {
            if let Some(latest) = met.latest.as_ref().filter(is_it) {
                return latest.clone();
            }
            let queue = things::Queue::named(name);
            let known = met.by_number.get(&queue.number()).filter(is_it).cloned();
            let found = known.unwrap_or_else(|| {
                if met.by_number.len() >= MOST {
                    met.by_number.clear();
                }
                let settings = Remembered::default();
                let new = Queue(Rc::new(Known { queue, settings }));
                met.by_number.insert(new.number(), new.clone());
                new
            });
            met.latest.insert(found).clone()
        })
    }

    pub(super) fn remembered(&self) -> &Remembered {
        &self.0.settings
    }
}

impl Deref for Queue {
    type Target = things::Queue;

    fn deref(&self) -> &things::Queue {
        &self.0.queue
    }
}

impl PartialEq for Queue {
    fn eq(&self, other: &Queue) -> bool {
        Rc::ptr_eq(&self.0, &other.0) || self.name() == other.name()
    }
}

impl Value for Queue {
    const TYPE: Oid = TEXT;

    fn read(datum: Datum) -> Option<Queue> {
        Some(Queue::named(&String::read(datum)?))
    }

    fn arg(&self) -> Arg {
        text(self.name())
    }
}

impl Field for Queue {
    fn of(datum: Option<Datum>) -> Option<Queue> {
        Value::read(datum?)
    }
}
