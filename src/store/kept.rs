//! What keeps a job once it is final, so that it counts under its key however short its retention
//! is.

use jobs_core::interval::Interval;
use jobs_core::state::{State, States};

use super::spi::Tuples;
use crate::pg::time;

/// The period or window for which a job is to be unique.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub states: States,
    pub until: Option<i64>,
    /// And until this long after it was due.
    pub window: Option<Interval>,
}

/// The end of a window of days and months differs between time zones by no more than that, in
/// microseconds: a day or so, and what the months that it begins and ends in differ by.
const ZONES_DIFFER: i64 = 96 * 3600 * 1_000_000;

impl Kept {
    pub fn read(rows: &Tuples, row: usize) -> Option<Kept> {
        let window = rows.get(row, "unique_window");
        Kept::of(rows.get(row, "unique_until"), window, rows.get(row, "unique_final"))
    }

    /// From the columns of `job`.
    pub fn of(until: Option<i64>, window: Option<Interval>, states: Option<i16>) -> Option<Kept> {
        states.map(|bits| Kept { states: States::of_final_bits(bits as u8), until, window })
    }

    /// Until when the job is kept if it ends, or has ended, in this state.
    pub fn until(&self, state: State, scheduled_at: i64) -> Option<i64> {
        self.until_longer(state, scheduled_at, |_| 0)
    }

    /// Until when it is kept in every time zone: days and months are those of a session's own.
    pub fn until_everywhere(&self, state: State, scheduled_at: i64) -> Option<i64> {
        self.until_longer(state, scheduled_at, |window| {
            let is_of_days = window.months != 0 || window.days != 0;
            if is_of_days { ZONES_DIFFER } else { 0 }
        })
    }

    fn until_longer(
        &self,
        state: State,
        scheduled_at: i64,
        longer: impl Fn(Interval) -> i64,
    ) -> Option<i64> {
        let window_ends = || {
            self.window.map(|window| {
                time::end_of_window(scheduled_at, window).saturating_add(longer(window))
            })
        };
        let is_one = self.states.contains(state);
        is_one.then(|| self.until.max(window_ends())).flatten()
    }
}
