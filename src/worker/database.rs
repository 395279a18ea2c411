//! The worker of one database: runs the tasks while there is work.

use std::time::{Duration, Instant};

use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::journal::{self, Journal};
use super::{notify, process};
use crate::maintenance::{self, PassedOver, Round, Task};
use crate::pg::extension::complaint;
use crate::pg::role::as_role;
use crate::pg::{server, subxact, time};
use crate::settings;
use crate::shmem::commit::Work;
use crate::shmem::databases::{self, Place};
use crate::shmem::outbox::Content;
use crate::store::{catalog, due, run_log};

/// After it was woken the worker is not woken again for so long, however many commits there are.
const REST: Duration = Duration::from_millis(50);
/// Without work for so long the worker goes; the launcher starts another one when it is needed.
const LINGER: Duration = Duration::from_secs(5);
/// A worker's turn where more databases have work than there are processes for workers.
const TURN: Duration = Duration::from_secs(2);
/// Passes do not begin more often, however much becomes due, unless there is more to do at once: a
/// fetch finds jobs that are due by itself, and the rest can wait so long.
const PASS_EVERY: Duration = Duration::from_millis(50);
/// How long DROP DATABASE and the like wait for the worker at most.
const YIELD: Duration = Duration::from_secs(1);
/// Notifications are not sent more often.
const NOTIFY_EVERY: Duration = Duration::from_millis(50);
/// Notifications that failed are sent again this much later: a session is not done with notifying.
const NOTIFY_AGAIN: Duration = Duration::from_secs(2);
/// When something is due next is not looked for more often, however much work is made.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Nor more rarely than this, however long a look takes: it may have been the machine that was slow
/// for a moment.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// After a pass in which nothing was to be done (no job was ever inserted, or maintenance is
/// paused), the next one that is asked for comes so soon, however long the interval is: it may
/// be the first job.
const HINDERED_AGAIN: Duration = Duration::from_secs(1);

/// Why the worker goes.
enum Leave {
    /// The database does not have the extension.
    NoExtension,
    /// The schema `jobs` is not the extension's. The log says so.
    Displaced,
    /// Another session waits to drop, rename or copy the database, or to change the extension.
    Wanted,
}

/// The life of a worker.
pub fn main(database: Oid) {
    process::begin();
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    process::apply_settings();
    process::set("application_name", "jobs worker");
    // What a crash undoes it finds and does again. Its flushes would delay those of fetches.
    process::set("synchronous_commit", "off");
    // Only where the extension is. Where that cannot be told now, it is found out below.
    let has_extension = || process::transaction(|| catalog::find().is_some()).unwrap_or(true);
    if databases::known(database).is_none() && !has_extension() {
        return databases::forget(database);
    }
    let Some(place) = databases::place(database) else {
        // One visit, and the launcher comes back.
        if let Err(Leave::NoExtension) = Worker::new(None).work_once() {
            databases::forget(database);
        }
        return;
    };
    if !place.attend() {
        return;
    }
    match Worker::new(Some(place)).work(place) {
        Err(Leave::NoExtension) => databases::forget(database),
        // No session can make work there. The next regular visit sees whether it is so still.
        Err(Leave::Displaced) => place.set_next_due(databases::NEVER - 1),
        Ok(()) | Err(Leave::Wanted) => (),
    }
}

/// A worker at work.
struct Worker {
    notifier: Option<Notifier>,
    journal: Journal,
    over: PassedOver,
    /// A commit made work since the last pass began.
    is_asked: bool,
    /// Likewise, for the next pass, as soon as that may begin.
    is_urgent: bool,
}

/// What a pass did.
#[derive(Default)]
struct Pass {
    began: i64,
    rows: usize,
    more: bool,
    state: State,
}

/// Whether a pass was made.
#[derive(Default)]
enum State {
    #[default]
    Done,
    /// No, and trying again is of no use before a commit wakes the worker.
    Hindered,
    /// The look for work failed.
    Unknown,
}

impl Worker {
    fn new(place: Option<&'static Place>) -> Worker {
        Worker {
            notifier: place.map(Notifier::new),
            journal: Journal::new(place),
            over: PassedOver::default(),
            is_asked: false,
            is_urgent: false,
        }
    }

    /// Passes until nothing is left to do just now. No session has kept what there is to notify.
    fn work_once(&mut self) -> Result<(), Leave> {
        while self.pass()?.more {}
        if settings::NOTIFY.get() {
            in_extension(|| notify::send(&Content::unknown()))?;
        }
        self.write_journal(true)
    }

    /// Passes, until there is nothing to do for a while.
    fn work(&mut self, place: &Place) -> Result<(), Leave> {
        let outcome = self.pass_and_wait(place);
        if self.is_asked && !matches!(outcome, Err(Leave::Displaced)) {
            // Another session has to do it.
            place.ask();
        }
        outcome
    }

    fn pass_and_wait(&mut self, place: &Place) -> Result<(), Leave> {
        let born = Instant::now();
        let mut idle_since = born;
        loop {
            place.begin_pass();
            (self.is_asked, self.is_urgent) = (false, false);
            self.notify()?;
            let begun = Instant::now();
            let pass = self.pass()?;
            if pass.rows > 0 {
                idle_since = Instant::now();
            }
            if pass.more && !is_over(born) {
                process::report_statistics();
                continue;
            }
            let mut look_again = look_for_due(place, &pass)?;
            let mut is_stale = false;
            loop {
                let work = place.take_work();
                let has_work = work != Work::Nothing;
                is_stale |= work == Work::MayBeDue;
                self.is_urgent |= work == Work::Held;
                if has_work {
                    self.is_asked = true;
                    idle_since = Instant::now();
                }
                let until_retry = self.until_retry();
                let is_idle = pass.rows == 0 && !self.is_asked;
                let is_done = idle_since.elapsed() >= LINGER && until_retry.is_none();
                let makes_room = databases::is_crowded() && is_idle;
                if !is_wanted() || is_over(born) || makes_room || is_done {
                    return self.write_journal(true);
                }
                self.notify()?;
                if is_stale && Instant::now() >= look_again {
                    look_again = look_for_due(place, &pass)?;
                    is_stale = false;
                }
                let mut interval = Duration::from_millis(settings::INTERVAL.get() as u64);
                if matches!(pass.state, State::Hindered) {
                    interval = interval.min(HINDERED_AGAIN);
                }
                let rest = interval.saturating_sub(begun.elapsed());
                // Not more often than regular passes, whatever it is.
                let until_retry = until_retry.map_or(Duration::MAX, |retry| retry.max(rest));
                let at_least = PASS_EVERY.min(interval).saturating_sub(begun.elapsed());
                let mut pause = self.pause(place, rest).min(until_retry);
                pause = pause.max(at_least);
                if pause.is_zero() {
                    break;
                }
                if is_stale {
                    pause = pause.min(look_again.saturating_duration_since(Instant::now()));
                }
                self.write_journal(false)?;
                process::report_statistics();
                process::report_activity(None);
                let until_notify = self.notifier.as_ref().map_or(Duration::MAX, Notifier::pause);
                let longest = if has_work { REST } else { YIELD };
                place.set_rests(has_work);
                process::sleep(pause.min(longest).min(until_notify));
                place.set_rests(false);
                // DROP DATABASE and the like wait for us: look at least every second.
                in_extension(|| ())?;
            }
        }
    }

    /// How long until the next pass, where `rest` is left of the interval.
    fn pause(&self, place: &Place, rest: Duration) -> Duration {
        if self.is_urgent {
            return Duration::ZERO;
        }
        let due = place.next_due();
        let until_due = Duration::from_micros(due.saturating_sub(time::now()).max(0) as u64);
        match self.is_asked {
            true => until_due.min(rest),
            false => until_due,
        }
    }

    /// One turn of every task, so that one with much to do keeps no other waiting.
    fn pass(&mut self) -> Result<Pass, Leave> {
        let mut pass = Pass { began: time::now(), ..Pass::default() };
        if self.journal.is_to_look() {
            let Some(looked) = in_extension(journal::look)? else {
                pass.state = State::Unknown;
                return Ok(pass);
            };
            self.journal.take(looked);
        }
        if !self.journal.allows_maintenance() {
            self.over = PassedOver::default();
            self.journal.forget_stuck();
            self.journal.note_visit();
            pass.state = match self.journal.is_hindered_in_passing() {
                true => State::Unknown,
                false => State::Hindered,
            };
            return Ok(pass);
        }
        for (index, task) in maintenance::ALL.into_iter().enumerate() {
            process::obey();
            if !is_wanted() {
                pass.more = false;
                return Ok(pass);
            }
            if !self.journal.is_to_try(index) {
                continue;
            }
            process::report_activity(Some(task.name));
            let begun = time::now();
            let turn = maintenance::turn(
                task,
                settings::BATCH_SIZE.get().into(),
                &mut self.over,
                &mut |round| {
                    try_in_extension(|| match run_log::is_paused() {
                        true => Round::default(),
                        false => round(),
                    })
                },
            )?;
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
            in_extension(|| journal::write(&runs))?;
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
    databases::is_crowded() && born.elapsed() >= TURN
}

/// Whether the settings still want this worker.
fn is_wanted() -> bool {
    settings::ENABLED.get() && settings::covers(BackgroundWorker::get_extra())
}

/// Says when something will be due next; when to look again at the earliest, if a session makes
/// more work.
fn look_for_due(place: &Place, pass: &Pass) -> Result<Instant, Leave> {
    /// Of the time.
    const ONE_PART_IN: u32 = 50;
    let begun = Instant::now();
    let next = match pass.state {
        // A database with the extension has a next visit even if nothing is due.
        State::Hindered => databases::NEVER - 1,
        State::Unknown => soon(),
        State::Done => match in_extension(|| {
            place.forget_prepared(due::has_prepared);
            // What it left for the next one was not looked at.
            let looked_at = if pass.more { i64::MIN } else { pass.began };
            maintenance::next_due(looked_at)
        })? {
            Some(next) => next.unwrap_or(databases::NEVER).min(databases::NEVER - 1),
            None => soon(),
        },
    };
    place.set_next_due(next);
    let pause = begun.elapsed() * ONE_PART_IN;
    Ok(Instant::now() + pause.clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY))
}

/// In a second.
fn soon() -> i64 {
    time::now() + 1_000_000
}

/// Sends what sessions have left to be notified.
struct Notifier {
    place: &'static Place,
    not_before: Instant,
}

impl Notifier {
    fn new(place: &'static Place) -> Notifier {
        Notifier { place, not_before: Instant::now() }
    }

    /// Notifies, if there is something to notify and it is not too soon.
    fn notify(&mut self) -> Result<(), Leave> {
        if !self.pause().is_zero() {
            return Ok(());
        }
        let content = self.place.to_notify.take();
        let sent = if settings::NOTIFY.get() {
            in_extension(|| notify::send(&content)).map(|sent| sent.is_some())
        } else {
            Ok(true)
        };
        let is_sent = matches!(sent, Ok(true));
        let rest = if is_sent { NOTIFY_EVERY } else { NOTIFY_AGAIN };
        self.not_before = Instant::now() + rest;
        if !is_sent {
            self.place.to_notify.put(&content);
        }
        sent.map(|_| ())
    }

    /// How long at most until there is something to do.
    fn pause(&self) -> Duration {
        if self.place.to_notify.is_filled() {
            self.not_before.saturating_duration_since(Instant::now())
        } else {
            Duration::MAX
        }
    }
}

/// Runs `work` in a transaction, as the extension's owner; `None` if it failed, which is logged.
fn in_extension<T>(work: impl FnOnce() -> T) -> Result<Option<T>, Leave> {
    Ok(match try_in_extension(work)? {
        Ok(done) => Some(done),
        Err(error) => {
            warning!("jobs: maintenance failed: {error}");
            None
        }
    })
}

/// Runs `work` in a transaction if the database and the extension are free; tells why it failed.
fn try_in_extension<T>(work: impl FnOnce() -> T) -> Result<Result<T, String>, Leave> {
    let outcome = process::transaction(|| {
        if !process::database_is_free(server::database()) {
            return Err(Leave::Wanted);
        }
        let extension = catalog::find().ok_or(Leave::NoExtension)?;
        if !process::extension_is_free(extension.oid) {
            return Err(Leave::Wanted);
        }
        // Maintenance would use what another role has made.
        if let Some(report) = complaint() {
            report.report(PgLogLevel::WARNING);
            return Err(Leave::Displaced);
        }
        Ok(as_role(extension.owner, || {
            let done = work();
            // Before the commit, which does it with the rights of the process.
            process::fire_deferred();
            done
        }))
    });
    match outcome {
        Ok(done) => done.map(Ok),
        Err(error) => Ok(Err(subxact::describe(&error).1)),
    }
}

/// Logs what went wrong, but not thousands of lines.
fn complain(task: &Task, errors: &[String]) {
    const MOST: usize = 10;
    for error in errors.iter().take(MOST) {
        warning!("jobs: maintenance task {} failed: {error}", task.name);
    }
    if errors.len() > MOST {
        let more = errors.len() - MOST;
        warning!("jobs: maintenance task {} failed {more} more times", task.name);
    }
}
