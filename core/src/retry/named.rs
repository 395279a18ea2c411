//! The delays of other queues, in seconds.
//!
//! Each takes a random number in [0, 1) and grows without a bound, to infinity if need be: the
//! caller sets one.

/// The longest delay of River: the most nanoseconds that 63 bits can count.
const RIVER_LONGEST: f64 = 9_223_372_036.854_775;

/// River's. It counts errors instead of attempts, and no jitter leads beyond its longest delay.
pub(super) fn river(errors_before: u32, unit_random: f64) -> f64 {
    let seconds = (f64::from(errors_before) + 1.0).powi(4);
    if seconds >= RIVER_LONGEST {
        return RIVER_LONGEST;
    }
    (seconds * (0.9 + 0.2 * unit_random)).min(RIVER_LONGEST)
}

/// Oban's. It spreads more than 20 attempts over the delays of 20.
pub(super) fn oban(attempt: u32, max_attempts: u32, unit_random: f64) -> f64 {
    const MOST: u32 = 20;
    let n = if max_attempts > MOST {
        (f64::from(attempt) / f64::from(max_attempts) * f64::from(MOST)).round()
    } else {
        f64::from(attempt)
    };
    (15.0 + n.exp2()) * (1.0 + 0.1 * unit_random)
}

/// Faktory's, whose random number is a whole one from 0 to 29.
pub(super) fn faktory(failures_before: u32, unit_random: f64) -> f64 {
    let n = f64::from(failures_before);
    n.powi(4) + 15.0 + (unit_random * 30.0).floor() * (n + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALMOST_ONE: f64 = 1.0 - f64::EPSILON;

    /// Whether they are the same as times go, in which a microsecond is the smallest.
    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-7
    }

    #[test]
    fn river_grows_with_the_fourth_power() {
        for (errors_before, seconds) in
            [(0, 1.0), (1, 16.0), (2, 81.0), (9, 10_000.0), (23, 331_776.0)]
        {
            assert_eq!(river(errors_before, 0.5), seconds);
        }
    }

    #[test]
    fn river_varies_by_a_tenth() {
        assert!(near(river(1, 0.0), 14.4));
        assert!(near(river(1, 0.25), 15.2));
        assert!(near(river(1, ALMOST_ONE), 17.6));
    }

    #[test]
    fn river_waits_no_longer_than_292_years() {
        // 309 and 310 to the fourth power, and all that counts.
        assert!(near(river(308, 0.5), 9_116_621_361.0));
        assert_eq!(river(308, ALMOST_ONE), RIVER_LONGEST);
        for (errors_before, unit_random) in [(309, 0.0), (999, 0.5), (u32::MAX, ALMOST_ONE)] {
            assert_eq!(river(errors_before, unit_random), RIVER_LONGEST);
        }
    }

    #[test]
    fn oban_doubles_beyond_fifteen_seconds() {
        for (attempt, seconds) in
            [(1, 17.0), (2, 19.0), (3, 23.0), (10, 1_039.0), (20, 1_048_591.0)]
        {
            assert_eq!(oban(attempt, 20, 0.0), seconds, "attempt {attempt}");
        }
    }

    #[test]
    fn oban_spreads_more_attempts_than_twenty() {
        for (attempt, max_attempts, seconds) in [
            (1, 21, 17.0),
            (20, 21, 524_303.0),
            (1, 25, 17.0),
            // 19.2 is 19: six days.
            (24, 25, 524_303.0),
            (1, 1000, 16.0),
            // A half is rounded up.
            (25, 1000, 17.0),
            (500, 1000, 1_039.0),
            (999, 1000, 1_048_591.0),
            (1, i32::MAX.unsigned_abs(), 16.0),
            (u32::MAX, u32::MAX, 1_048_591.0),
        ] {
            let delay = oban(attempt, max_attempts, 0.0);
            assert_eq!(delay, seconds, "{attempt} of {max_attempts}");
        }
    }

    #[test]
    fn oban_adds_up_to_a_tenth() {
        assert!(near(oban(10, 20, 0.5), 1_090.95));
        assert!(near(oban(1, 20, ALMOST_ONE), 18.7));
        assert!(near(oban(24, 25, ALMOST_ONE), 576_733.3));
    }

    #[test]
    fn faktory_grows_with_the_fourth_power_beyond_fifteen_seconds() {
        for (failures_before, seconds) in
            [(0, 15.0), (1, 16.0), (2, 31.0), (3, 96.0), (24, 331_791.0)]
        {
            assert_eq!(faktory(failures_before, 0.0), seconds);
        }
    }

    #[test]
    fn faktory_adds_whole_multiples() {
        // 31 + 3 * 15, 15 + 29, 31 + 3 * 29.
        assert_eq!(faktory(2, 0.5), 76.0);
        assert_eq!(faktory(0, ALMOST_ONE), 44.0);
        assert_eq!(faktory(2, ALMOST_ONE), 118.0);
        assert_eq!(faktory(2, 0.033), 31.0);
        assert_eq!(faktory(2, 0.034), 34.0);
    }
}
