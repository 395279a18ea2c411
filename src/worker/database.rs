//! The worker of one database: runs the tasks while there is work.

use std::time::{Duration, Instant};

use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::journal::{self, Journal};
use super::tasks::{self, PassedOver, Task};
use super::wake::{self, Slot};
use super::{notify, process};
use crate::pg::role::as_role;
use crate::pg::{subxact, time};
use crate::settings;
use crate::store::extension::{self, Extension};

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
        let _ = Worker::new(None).work_once();
        return;
    };
    slot.attend();
    if let Err(Leave::NoExtension) = Worker::new(Some(slot)).work(slot) {
        slot.set_next_due(wake::NEVER);
    }
}

/// A worker at work.
struct Worker {
    notifier: Option<Notifier>,
    journal: Journal,
    over: PassedOver,
}

/// What a pass did.
#[derive(Default)]
struct Pass {
    /// rows handled
    rows: usize,
    /// there is more to do at once
    more: bool,
    /// maintenance is not to do anything
    idle: bool,
}

impl Worker {
    fn new(slot: Option<&'static Slot>) -> Worker {
        Worker {
            notifier: slot.map(Notifier::new),
            journal: Journal::new(slot),
            over: PassedOver::default(),
        }
    }

    /// Passes until nothing is left to do just now.
    fn work_once(&mut self) -> Result<(), Leave> {
        while self.pass()?.more {}
        self.write_journal(true)
    }

    /// Passes, until there is nothing to do for a while.
    fn work(&mut self, slot: &Slot) -> Result<(), Leave> {
        let born = Instant::now();
        let mut idle_since = born;
        loop {
            slot.begin_pass();
            self.notify()?;
            let begun = Instant::now();
            let pass = self.pass()?;
            if pass.rows > 0 {
                idle_since = Instant::now();
            }
            if pass.more && !is_over(born) {
                hand_in_statistics();
                continue;
            }
            let next = if pass.idle {
                None
            } else {
                in_extension(|_| tasks::next_due())?.unwrap_or(None)
            };
            // A database with the extension has a next visit even if nothing is due.
            slot.set_next_due(next.unwrap_or(wake::NEVER).min(wake::NEVER - 1));
            let interval = Duration::from_millis(settings::INTERVAL.get() as u64);
            loop {
                let until_retry = self.until_retry();
                let is_done = idle_since.elapsed() >= LINGER && until_retry.is_none();
                if !is_wanted() || is_over(born) || is_done {
                    return self.write_journal(true);
                }
                self.notify()?;
                // Not more often than regular passes, whatever it is.
                let rest = interval.saturating_sub(begun.elapsed());
                let until_retry = until_retry.map_or(Duration::MAX, |retry| retry.max(rest));
                let pause = pause(slot, interval, begun, pass.rows).min(until_retry);
                if pause.is_zero() {
                    break;
                }
                self.write_journal(false)?;
                idle();
                let until_news = self
                    .notifier
                    .as_ref()
                    .map_or(Duration::MAX, Notifier::pause);
                process::sleep(pause.min(YIELD).min(until_news));
                if slot.is_dirty() {
                    idle_since = Instant::now();
                }
                // Whoever wants the database waits for us: look at least every second.
                in_extension(|_| ())?;
            }
        }
    }

    /// One turn of every task, so that one with much to do keeps no other waiting.
    fn pass(&mut self) -> Result<Pass, Leave> {
        let mut pass = Pass::default();
        if self.journal.is_to_look() {
            let standing = in_extension(journal::look)?;
            self.journal.take(standing);
        }
        if !self.journal.allows_maintenance() {
            self.over = PassedOver::default();
            self.journal.forget_stuck();
            pass.idle = true;
            return Ok(pass);
        }
        for (index, task) in tasks::ALL.into_iter().enumerate() {
            process::obey();
            if !is_wanted() {
                pass.more = false;
                return Ok(pass);
            }
            if !self.journal.is_to_try(index) {
                continue;
            }
            busy(task);
            let begun = time::now();
            let turn = tasks::turn(task, &mut self.over, &mut |round| {
                try_in_extension(|_| round())
            })?;
            complain(task, &turn.errors);
            let now = time::now();
            self.journal.note(index, &turn, now, now - begun);
            self.write_journal(false)?;
            pass.rows += turn.rows;
            pass.more |= turn.more;
            self.notify()?;
        }
        Ok(pass)
    }

    /// Writes down the runs that are not written down yet.
    fn write_journal(&mut self, leaving: bool) -> Result<(), Leave> {
        let runs = self.journal.take_runs(leaving);
        if !runs.is_empty() {
            in_extension(|extension| journal::write(extension, &runs))?;
        }
        Ok(())
    }

    /// How long until something is to be tried again that failed; `None`: nothing is.
    fn until_retry(&self) -> Option<Duration> {
        let retries = [self.journal.until_retry(), self.over.until_retry()];
        retries.into_iter().flatten().min()
    }

    fn notify(&mut self) -> Result<(), Leave> {
        match &mut self.notifier {
            Some(notifier) => notifier.notify(),
            None => Ok(()),
        }
    }
}

/// Whether the turn is over of a worker that began then: others wait for the process.
fn is_over(born: Instant) -> bool {
    wake::is_crowded() && born.elapsed() >= TURN
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

/// Sends what sessions have left to be notified.
struct Notifier {
    slot: &'static Slot,
    not_before: Instant,
}

impl Notifier {
    fn new(slot: &'static Slot) -> Notifier {
        Notifier {
            slot,
            not_before: Instant::now(),
        }
    }

    /// Notifies, if there is something to notify and it is not too soon.
    fn notify(&mut self) -> Result<(), Leave> {
        if !self.pause().is_zero() {
            return Ok(());
        }
        let content = self.slot.to_notify.take();
        let sent = !settings::NOTIFY.get() || in_extension(|_| notify::send(&content))?.is_some();
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
fn in_extension<T>(work: impl FnOnce(Extension) -> T) -> Result<Option<T>, Leave> {
    Ok(match try_in_extension(work)? {
        Ok(done) => Some(done),
        Err(error) => {
            warning!("jobs: maintenance failed: {error}");
            None
        }
    })
}

/// The same, and why it failed.
fn try_in_extension<T>(work: impl FnOnce(Extension) -> T) -> Result<Result<T, String>, Leave> {
    let outcome = process::transaction(|| {
        // SAFETY: set for the life of the process.
        if !process::database_is_free(unsafe { pg_sys::MyDatabaseId }) {
            return Err(Leave::Wanted);
        }
        let extension = extension::find().ok_or(Leave::NoExtension)?;
        if !process::extension_is_free(extension.oid) {
            return Err(Leave::Wanted);
        }
        Ok(as_role(extension.owner, || work(extension)))
    });
    match outcome {
        Ok(Ok(done)) => Ok(Ok(done)),
        Ok(Err(leave)) => Err(leave),
        Err(error) => Ok(Err(subxact::describe(&error).1)),
    }
}

/// Shows in pg_stat_activity what the worker is doing.
fn busy(task: &Task) {
    let name = std::ffi::CString::new(task.name).expect("no zero byte");
    // SAFETY: the text is copied.
    unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, name.as_ptr()) };
}

/// Shows that the worker waits.
fn idle() {
    hand_in_statistics();
    // SAFETY: outside a transaction.
    unsafe { pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null()) };
}

/// Autovacuum lives on them.
fn hand_in_statistics() {
    // SAFETY: outside a transaction.
    unsafe { pg_sys::pgstat_report_stat(false) };
}

/// Logs what went wrong, but not thousands of lines.
fn complain(task: &Task, errors: &[String]) {
    const MOST: usize = 10;
    for error in errors.iter().take(MOST) {
        warning!("jobs: maintenance task {} failed: {error}", task.name);
    }
    if errors.len() > MOST {
        let more = errors.len() - MOST;
        warning!(
            "jobs: maintenance task {} failed {more} more times",
            task.name
        );
    }
}
