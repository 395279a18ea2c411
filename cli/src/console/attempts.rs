//! Attempts to log in: who fails too often waits.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::role::locked;

/// Failures by role and by address.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<HashMap<String, Failures>>);

impl Attempts {
    /// Counts an attempt to log in, before it is made: many at once are no way around. How long
    /// to wait instead, where there were too many.
    pub(crate) fn begin(&self, keys: &[String]) -> Result<(), Duration> {
        let mut attempts = locked(&self.0);
        let now = Instant::now();
        let wait = keys.iter().filter_map(|key| attempts.get(key));
        let wait = wait
            .map(|attempts| attempts.until.saturating_duration_since(now))
            .max();
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        for key in keys {
            let fresh = Failures {
                count: 0,
                until: now,
            };
            attempts.entry(key.clone()).or_insert(fresh).fail(now);
        }
        Ok(())
    }

    pub(crate) fn succeeded(&self, keys: &[String]) {
        let mut attempts = locked(&self.0);
        for key in keys {
            attempts.remove(key);
        }
    }

    /// Forgets what is long ago.
    pub(crate) fn tidy(&self) {
        locked(&self.0).retain(|_, failures| failures.until + FORGOTTEN > Instant::now());
    }
}

/// Attempts that have failed in a row, of one role or from one address.
struct Failures {
    count: u32,
    /// No other attempt is made before.
    until: Instant,
}

/// How many may fail before there is a wait.
const FREE: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// After how long without any attempt they are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(900);

impl Failures {
    fn fail(&mut self, now: Instant) {
        if self.until + FORGOTTEN < now {
            self.count = 0;
        }
        self.count += 1;
        let wait = match self.count.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(9)).min(LONGEST_WAIT),
        };
        self.until = now + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_the_fifth_failure_on() {
        let attempts = Attempts::default();
        let keys = ["role app".to_owned()];
        for _ in 0..FREE {
            assert_eq!(attempts.begin(&keys), Ok(()));
        }
        assert!(attempts.begin(&keys).is_err());
        let now = Instant::now();
        let mut failures = Failures {
            count: 0,
            until: now,
        };
        let waits: Vec<u64> = (0..15)
            .map(|_| {
                failures.fail(now);
                (failures.until - now).as_secs()
            })
            .collect();
        assert_eq!(
            waits,
            [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
        );
    }

    #[test]
    fn a_success_forgets_failures() {
        let attempts = Attempts::default();
        let keys = ["role app".to_owned(), "address ::1".to_owned()];
        for _ in 0..3 * FREE {
            assert_eq!(attempts.begin(&keys), Ok(()));
            attempts.succeeded(&keys);
        }
    }
}
