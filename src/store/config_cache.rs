//! What operators say of kinds, queues, limits, workers and cells, as this session remembers it:
//! every insert and every fetch asks, and hardly ever has anything changed.
//!
//! The commit of a change tells every session, before its locks are released. What was read before
//! is of no use then.
//!
//! Most callers go by their transaction. What an old snapshot shows is not what the next one is to
//! see, so it is not remembered. A serializable transaction remembers what it has read itself, and
//! only that: the server is to know what its result depends on.
//!
//! What may miss no change goes by what is committed now, whatever the transaction's level.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::cells::{self, Here};
use super::config::{self, Kind, QueueSettings, Rare};
use super::queue::Queue;
use super::rules::{self, Rule};
use super::spi::Snapshot;
use super::workers::{self, Command};
use crate::pg::{invalidation, transaction, versions};

/// More kinds than this are not remembered: they are made up.
const MOST: usize = 10_000;

/// What was read is good until something else is heard, and only for this serializable transaction,
/// if it is one's.
type GoodFor = (u64, Option<u32>);

/// The settings of a queue: in general, and for a serializable transaction.
pub(super) type Remembered = RefCell<[Option<(GoodFor, Rc<QueueSettings>)>; 2]>;

#[derive(Default)]
struct Known {
    good_for: GoodFor,
    kinds: HashMap<String, Rc<Kind>>,
    /// Of all workers: they make up names, and hardly any has a command.
    commands: Option<Rc<HashMap<String, Command>>>,
    /// By [`Rare`].
    some: [Option<bool>; 2],
    /// The cell that this database is, if it has a number.
    here: Option<Option<Rc<Here>>>,
    rules: Option<Rc<Vec<Rule>>>,
}

thread_local! {
    /// In general, and for a serializable transaction.
    static KNOWN: RefCell<[Known; 2]> = RefCell::default();
}

pub fn kind(name: &str) -> Rc<Kind> {
    look_up(
        Snapshot::Own,
        |known| known.kinds.get(name).cloned(),
        || Rc::new(config::kind(name)),
        |known, found| {
            if known.kinds.len() >= MOST {
                known.kinds.clear();
            }
            known.kinds.insert(name.to_string(), found);
        },
    )
}

impl Queue {
    /// Its settings.
    pub fn settings(&self) -> Rc<QueueSettings> {
        self.settings_as_of(Snapshot::Own)
    }

    /// Its settings now.
    pub fn settings_now(&self) -> Rc<QueueSettings> {
        self.settings_as_of(Snapshot::latest())
    }

    fn settings_as_of(&self, seen: Snapshot) -> Rc<QueueSettings> {
        let place = |known: &Known| usize::from(known.good_for.1.is_some());
        look_up(
            seen,
            |known| match &self.remembered().borrow()[place(known)] {
                Some((good_for, found)) if *good_for == known.good_for => Some(found.clone()),
                _ => None,
            },
            || Rc::new(config::queue(self.name(), seen)),
            |known, found| {
                self.remembered().borrow_mut()[place(known)] = Some((known.good_for, found));
            },
        )
    }
}

/// Whether some queue has this now.
pub fn some(what: Rare) -> bool {
    let seen = Snapshot::latest();
    look_up(
        seen,
        |known| known.some[what as usize],
        || config::some(what, seen),
        |known, some| known.some[what as usize] = Some(some),
    )
}

/// The limits that hold now, by name.
pub fn rules() -> Rc<Vec<Rule>> {
    let seen = Snapshot::latest();
    look_up(
        seen,
        |known| known.rules.clone(),
        || Rc::new(rules::all(seen)),
        |known, rules| known.rules = Some(rules),
    )
}

/// The cell that this database is now; `None`: it has no number.
pub fn here() -> Option<Rc<Here>> {
    let seen = Snapshot::latest();
    look_up(
        seen,
        |known| known.here.clone(),
        || cells::here(seen).map(Rc::new),
        |known, here| known.here = Some(here),
    )
}

pub fn command(worker: &str) -> Option<Command> {
    let commands = look_up(
        Snapshot::Own,
        |known| known.commands.clone(),
        || Rc::new(workers::commands()),
        |known, commands| known.commands = Some(commands),
    );
    commands.get(worker).copied()
}

/// What is known, or else is read.
fn look_up<T: Clone>(
    seen: Snapshot,
    known: impl FnOnce(&mut Known) -> Option<T>,
    read: impl FnOnce() -> T,
    remember: impl FnOnce(&mut Known, T),
) -> T {
    let is_latest = matches!(seen, Snapshot::Latest);
    let is_apart = !is_latest && transaction::is_serializable();
    let reader = is_apart.then(versions::local_transaction);
    let good_for = (invalidation::heard(), reader);
    let found = KNOWN.with_borrow_mut(|of| {
        let all = &mut of[usize::from(is_apart)];
        if all.good_for != good_for {
            *all = Known::default();
            all.good_for = good_for;
        }
        known(all)
    });
    found.unwrap_or_else(|| {
        invalidation::watch(config::tables());
        let found = read();
        let may_remember = is_latest || is_apart || transaction::is_read_committed();
        KNOWN.with_borrow_mut(|of| {
            let all = &mut of[usize::from(is_apart)];
            if may_remember && all.good_for == good_for {
                remember(all, found.clone());
            }
        });
        found
    })
}

/// Tells all sessions, once this transaction commits, that something has changed.
pub fn changed() {
    invalidation::changed(config::tables());
}
