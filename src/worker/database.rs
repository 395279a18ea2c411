//! The worker of one database: runs the tasks while there is work.

use std::time::{Duration, Instant};

use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::tasks::{self, Round, Task};
use super::wake::{self, Slot};
use super::{notify, process};
use crate::config;
use crate::pg::role::as_role;
use crate::pg::{subxact, time};
use crate::settings;
use crate::store::{extension, maintain};

/// Without work for so long the worker goes; the launcher starts another one when it is needed.
const LINGER: Duration = Duration::from_secs(5);
/// A worker's turn where more databases have work than there are processes for workers.
const TURN: Duration = Duration::from_secs(2);
/// How long DROP DATABASE and the like wait for the worker at most.
const YIELD: Duration = Duration::from_secs(1);
/// Notifications are not sent more often.
const NOTIFY_EVERY: Duration = Duration::from_millis(50);
/// The same after it failed: somebody is not done with notifying.
const NOTIFY_AGAIN: Duration = Duration::from_secs(2);

/// Why the worker goes.
enum Leave {
    /// the database does not have the extension
    NoExtension,
    /// somebody wants the database, or the extension, for themselves
    Wanted,
}

#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn jobs_database_main(database: pg_sys::Datum) {
    process::handle_signals();
    let database = Oid::from(database.value() as u32);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    for (name, value) in [
        ("application_name", "jobs worker"),
        ("search_path", "pg_catalog, pg_temp"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", "0"),
        ("lock_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "0"),
        ("max_parallel_workers_per_gather", "0"),
    ] {
        process::set(name, value);
    }
    process::apply_log_level();
    let Some(slot) = wake::slot(database) else {
        // More databases than slots: one pass, and the launcher comes back.
        let _ = pass(None);
        return;
    };
    slot.attend();
    if let Err(Leave::NoExtension) = work(slot) {
        slot.set_next_due(wake::NEVER);
    }
}

/// Passes, until there is nothing to do for a while.
fn work(slot: &Slot) -> Result<(), Leave> {
    let born = Instant::now();
    let mut idle_since = born;
    let mut notifier = Notifier {
        slot,
        not_before: born,
    };
    loop {
        slot.begin_pass();
        notifier.notify()?;
        let begun = Instant::now();
        let rows = pass(Some(&mut notifier))?;
        let next =
            in_extension(|| maintain::next_due(config::shortest_retention()))?.unwrap_or(None);
        // A database with the extension has a next visit even if nothing is due.
        slot.set_next_due(next.unwrap_or(wake::NEVER).min(wake::NEVER - 1));
        if rows > 0 {
            idle_since = Instant::now();
        }
        let interval = Duration::from_millis(settings::INTERVAL.get() as u64);
        loop {
            let crowded = wake::is_crowded() && born.elapsed() >= TURN;
            if !is_wanted() || crowded || idle_since.elapsed() >= LINGER {
                return Ok(());
            }
            notifier.notify()?;
            let pause = pause(slot, interval, begun, rows);
            if pause.is_zero() {
                break;
            }
            idle();
            process::sleep(pause.min(YIELD).min(notifier.pause()));
            if slot.is_dirty() {
                idle_since = Instant::now();
            }
            // Whoever wants the database waits for us: look at least every second.
            in_extension(|| ())?;
        }
    }
}

/// Whether the settings still want this worker.
fn is_wanted() -> bool {
    settings::ENABLED.get() && settings::covers(BackgroundWorker::get_extra())
}

/// How long until the next pass.
fn pause(slot: &Slot, interval: Duration, begun: Instant, rows: usize) -> Duration {
    let until_due =
        Duration::from_micros(slot.next_due().saturating_sub(time::now()).max(0) as u64);
    let rest = interval.saturating_sub(begun.elapsed());
    if until_due.is_zero() && rows == 0 {
        // What is due could not be done just now: no use to try at once.
        rest
    } else if slot.is_dirty() {
        until_due.min(rest)
    } else {
        until_due
    }
}

/// Every task, round by round, each round in a transaction of its own; rows handled. A
/// task that fails does not stop the others.
fn pass(mut notifier: Option<&mut Notifier>) -> Result<usize, Leave> {
    let mut rows = 0;
    for task in tasks::ALL {
        loop {
            busy(task);
            process::obey();
            if !is_wanted() {
                return Ok(rows);
            }
            let round = in_extension(|| tasks::round(task))?;
            if let Some(notifier) = &mut notifier {
                notifier.notify()?;
            }
            match round {
                Some(Round { rows: done, more }) => {
                    rows += done;
                    if !more {
                        break;
                    }
                }
                None => break,
            }
        }
    }
    Ok(rows)
}

/// Sends what sessions have left to be notified.
struct Notifier<'a> {
    slot: &'a Slot,
    not_before: Instant,
}

impl Notifier<'_> {
    /// Notifies, if there is something to notify and it is not too soon.
    fn notify(&mut self) -> Result<(), Leave> {
        if !self.pause().is_zero() {
            return Ok(());
        }
        let content = self.slot.to_notify.take();
        let sent = !settings::NOTIFY.get() || in_extension(|| notify::send(&content))?.is_some();
        let rest = if sent { NOTIFY_EVERY } else { NOTIFY_AGAIN };
        self.not_before = Instant::now() + rest;
        if !sent {
            self.slot.to_notify.put(&content);
        }
        Ok(())
    }

    /// How long at most until there is something to do.
    fn pause(&self) -> Duration {
        if self.slot.to_notify.is_filled() {
            self.not_before.saturating_duration_since(Instant::now())
        } else {
            Duration::MAX
        }
    }
}

/// Runs `work` in a transaction, as the extension's owner; `None` if it failed, which is logged.
fn in_extension<T>(work: impl FnOnce() -> T) -> Result<Option<T>, Leave> {
    let outcome = process::transaction(|| {
        // SAFETY: set for the life of the process.
        if !process::database_is_free(unsafe { pg_sys::MyDatabaseId }) {
            return Err(Leave::Wanted);
        }
        let (extension, owner) = extension::find().ok_or(Leave::NoExtension)?;
        if !process::extension_is_free(extension) {
            return Err(Leave::Wanted);
        }
        Ok(as_role(owner, work))
    });
    match outcome {
        Ok(Ok(done)) => Ok(Some(done)),
        Ok(Err(leave)) => Err(leave),
        Err(error) => {
            let (code, message) = subxact::describe(&error);
            warning!("jobs: maintenance failed: {message} ({code:?})");
            Ok(None)
        }
    }
}

/// Shows in pg_stat_activity what the worker is doing.
fn busy(task: &Task) {
    let name = std::ffi::CString::new(task.name).expect("no zero byte");
    // SAFETY: the text is copied.
    unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, name.as_ptr()) };
}

/// Shows that the worker waits, and hands in its statistics: autovacuum lives on them.
fn idle() {
    // SAFETY: outside a transaction.
    unsafe {
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    }
}
