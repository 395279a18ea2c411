//! Periodic jobs: when a definition is due, and the job of a tick.
//!
//! A definition is dealt with by the session that has its row locked, in one transaction: the job
//! of the latest tick is inserted, and the row says that it was. So there is one job a tick,
//! whichever session looks, and however often a server is started again.

use std::rc::Rc;

use jobs_core::schedule::{self, Schedule, zone_name};
use pgrx::prelude::*;

use crate::check;
use crate::error::Result;
use crate::options::Options;
use crate::pg::zone::TimeZone;
use crate::pg::{subxact, time};
use crate::store::periodic_schedule::{self, Definition, Missed, Outcome, Periodic};
use crate::unique;

/// When a tick is tried again whose job could not be inserted just now, in microseconds.
const AGAIN: i64 = 1_000_000;
/// How late a tick may be and is not missed, in microseconds.
const LATE: i64 = 60 * 1_000_000;
/// When a definition is read again that could not be, in microseconds: the server may have got the
/// time zone.
const READ_AGAIN: i64 = 3600 * 1_000_000;

/// The zones that a schedule of every so often can have.
const UTC: [&str; 2] = ["UTC", "Etc/UTC"];

/// The ticks of a schedule in a time zone.
#[derive(Debug)]
pub struct Ticks {
    schedule: Schedule,
    zone: TimeZone,
}

impl Ticks {
    pub fn of(cron: &str, time_zone: &str) -> Result<Ticks> {
        let schedule = schedule::parse(cron, &time::read_interval)?;
        let zone = TimeZone::find(time_zone)
            .ok_or_else(|| zone_name::refused(time_zone, &TimeZone::names()))?;
        if schedule.is_every() && !UTC.contains(&zone.name().as_str()) {
            return Err(zone_name::beside_every(time_zone, cron).into());
        }
        Ok(Ticks { schedule, zone })
    }

    /// The time zone as the server writes it.
    pub fn time_zone(&self) -> String {
        self.zone.name()
    }

    /// The first tick after a moment; `None`: time ends before.
    pub fn next(&self, after: i64) -> Option<i64> {
        self.schedule.next(after, &|at| self.zone.show(at))
    }

    /// The latest tick that is not after a moment.
    fn latest(&self, at: i64) -> Option<i64> {
        self.schedule.previous_or_at(at, &|at| self.zone.show(at))
    }
}

/// What is to be done about a tick.
enum Decided {
    Done(Outcome),
    /// Try again: another transaction is inserting the key.
    Busy,
    /// Try again: this failed, and may succeed the next time.
    Later(String),
}

/// Deals with a definition whose time has come, which the caller has locked: inserts the job of the
/// latest tick that was missed, unless none of those is to have one. A job that cannot be inserted
/// affects no other: that is logged, and shown with the definition. Whether it is over
/// with, or was put off so quickly that others can be looked at instead.
pub fn run(due: &Periodic, now: i64) -> bool {
    let name = &due.definition.name;
    let ticks = match Ticks::of(&due.definition.cron, &due.definition.time_zone) {
        Ok(ticks) => ticks,
        Err(error) => {
            warning!("jobs: periodic job {name:?} cannot be read: {error}");
            let error = error.to_string();
            periodic_schedule::put_off(name, Some(now + READ_AGAIN), Some(&error));
            return true;
        }
    };
    // Ticks up to here were dealt with, also where the clock was put back since.
    let done = due.defined_at.max(due.last_run_at.unwrap_or(i64::MIN));
    let next = ticks.next(done.max(now));
    let Some(tick) = ticks.latest(now).filter(|tick| *tick > done) else {
        periodic_schedule::put_off(name, next, None);
        return true;
    };
    if due.definition.missed == Missed::Skip && is_missed(due, tick, now) {
        log!("jobs: periodic job {name:?} skipped missed ticks");
        periodic_schedule::put_off(name, next, None);
        return true;
    }
    match insert(&due.definition, tick) {
        Decided::Done(outcome) => {
            if let Some(error) = &outcome.error {
                warning!("jobs: periodic job {name:?} skipped a tick: {error}");
            }
            periodic_schedule::note_tick(name, tick, next, &outcome);
            true
        }
        Decided::Busy => {
            periodic_schedule::put_off(name, Some(now + AGAIN), Some(periodic_schedule::BUSY));
            true
        }
        Decided::Later(error) => {
            // It may have waited for a lock until that took too long.
            periodic_schedule::put_off(name, Some(time::now() + AGAIN), Some(&error));
            false
        }
    }
}

/// Cuts what lies further ahead of the clock than its own ticks allow: the next tick may have been
/// dealt with by a clock that was ahead, and no later one; how many definitions that were.
pub fn cut(now: i64) -> usize {
    let cut = |name: &String| {
        let Some(there) = periodic_schedule::lock_free(name) else {
            return false;
        };
        let Ok(ticks) = Ticks::of(&there.definition.cron, &there.definition.time_zone) else {
            return false;
        };
        let first = ticks.next(now).unwrap_or(i64::MAX);
        let done = there.last_run_at.map(|at| at.min(first));
        let defined_at = there.defined_at.min(now);
        let next = ticks.next(done.unwrap_or(now).max(now));
        let is_late = there.next_run_at > next && !there.is_paused;
        let is_ahead = done != there.last_run_at || defined_at != there.defined_at || is_late;
        if is_ahead {
            let next = there.next_run_at.and(next);
            periodic_schedule::cut(name, defined_at, done, next);
        }
        is_ahead
    };
    periodic_schedule::names().iter().filter(|name| cut(name)).count()
}

/// Whether a tick is late because the definition was not looked at in time. One
/// that was put off has been looked at.
fn is_missed(due: &Periodic, tick: i64, now: i64) -> bool {
    let first_look = due.next_run_at.map_or(tick, |at| at.max(tick));
    now.saturating_sub(first_look) > LATE
}

/// Inserts the job of a tick, in a subtransaction.
fn insert(definition: &Definition, tick: i64) -> Decided {
    let options = Options { scheduled_at: Some(tick), ..definition.options.clone() };
    if let Err(error) = check::args_and_meta(Some(definition.args), options.meta) {
        // Unlike a queue that is full it stays as it is.
        let error = Some(error.to_string());
        return Decided::Done(Outcome { error, ..Outcome::default() });
    }
    let work = || {
        let kind = &*check::name("kind", Some(&definition.kind))?;
        let checked = options.checked(kind)?;
        let mut candidate = checked.candidate(definition.args)?;
        // Other periodic jobs must not wait for a transaction that inserts this one's key.
        let waits = candidate
            .policy
            .as_mut()
            .is_some_and(|policy| std::mem::replace(&mut Rc::make_mut(policy).wait, false));
        unique::insert_one(&candidate).map(|outcome| (outcome, waits))
    };
    // Nor for one that has locked a job which this one replaces.
    let insert =
        || subxact::attempt_unless_cancelled(|| work().unwrap_or_else(|error| error.raise()));
    match unique::no_wait(insert) {
        Ok((unique::Outcome::Busy, true)) => Decided::Busy,
        Ok((outcome, _)) => Decided::Done(came_of(&outcome)),
        Err((code, message)) if may_pass(code) => Decided::Later(message),
        Err((_, message)) => Decided::Done(Outcome { error: Some(message), ..Outcome::default() }),
    }
}

/// Inserts the job of a definition now, as a program would: its id, or that of the job that is
/// there, and whether anything has changed.
pub fn insert_now(definition: Definition) -> Result<(Option<i64>, bool)> {
    let kind = &*check::name("kind", Some(&definition.kind))?;
    let candidate = definition.options.checked(kind)?.candidate(definition.args)?;
    let outcome = unique::insert_one(&candidate)?;
    let Outcome { job, skipped, .. } = came_of(&outcome);
    let is_updated = matches!(outcome, unique::Outcome::Updated(_));
    Ok((job, !skipped || is_updated))
}

/// Whether an error may not come the next time: a queue that is full has room again.
fn may_pass(code: PgSqlErrorCode) -> bool {
    subxact::is_passing(code) || code == PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED
}

/// What came of inserting the job of a tick.
fn came_of(outcome: &unique::Outcome) -> Outcome {
    use unique::Outcome as Inserted;
    let (job, skipped) = match outcome {
        Inserted::Inserted(id) => (Some(*id), false),
        Inserted::Replaced(replacement) => (Some(replacement.id), false),
        Inserted::Existing(holder) | Inserted::Updated(holder) => (Some(holder.id), true),
        Inserted::Earlier(_) | Inserted::Busy => (None, true),
    };
    Outcome { job, skipped, error: None }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::Ticks;
    use crate::pg::time::read_timestamp;

    /// What core tells of clocks holds for the server's time zones: the clock skips a tick, repeats
    /// one, stands half an hour off, and days end by it.
    #[pg_test]
    fn ticks_are_those_of_the_time_zone() {
        let at = |text: &str| read_timestamp(&format!("2024-{text}Z")).expect("a timestamp");
        for (cron, time_zone, ticks) in [
            ("30 2 * * *", "Europe/Berlin", "03-30 01:30, 03-31 01:00, 04-01 00:30"),
            ("30 1 * * *", "America/New_York", "11-02 05:30, 11-03 05:30, 11-04 06:30"),
            ("15 2 * * *", "Australia/Lord_Howe", "10-04 15:45, 10-05 15:30, 10-06 15:15"),
            ("@hourly", "America/New_York", "11-03 05:00, 11-03 06:00, 11-03 07:00"),
            ("0 0 L * *", "Asia/Kolkata", "02-28 18:30, 03-30 18:30, 04-29 18:30"),
            ("every 90 minutes", "etc/utc", "03-31 00:00, 03-31 01:30, 03-31 03:00"),
        ] {
            let of = Ticks::of(cron, time_zone).expect("valid");
            let ticks: Vec<i64> = ticks.split(", ").map(at).collect();
            for tick in ticks.windows(2) {
                assert_eq!(of.next(tick[0]), Some(tick[1]), "{cron} in {time_zone}");
                assert_eq!(of.latest(tick[1]), Some(tick[1]), "{cron} in {time_zone}");
                assert_eq!(of.latest(tick[1] - 1), Some(tick[0]), "{cron} in {time_zone}");
            }
        }
        assert!(Ticks::of("every 90 minutes", "Europe/London").is_err());
    }
}
