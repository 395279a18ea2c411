//! The delays of other queues, in seconds.
//!
//! Each takes a random number in [0, 1) and grows without a bound, to infinity if need be: the
//! caller sets one.

/// River's. It counts errors instead of attempts.
pub(super) fn river(errors_before: u32, unit_random: f64) -> f64 {
    let seconds = (f64::from(errors_before) + 1.0).powi(4);
    seconds * (0.9 + 0.2 * unit_random)
}

/// Oban's.
pub(super) fn oban(attempt: u32, unit_random: f64) -> f64 {
    (15.0 + f64::from(attempt).exp2()) * (1.0 + 0.1 * unit_random)
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
        for (errors_before, seconds) in [
            (0, 1.0),
            (1, 16.0),
            (2, 81.0),
            (9, 10_000.0),
            (23, 331_776.0),
        ] {
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
    fn oban_doubles_beyond_fifteen_seconds() {
        for (attempt, seconds) in [
            (1, 17.0),
            (2, 19.0),
            (3, 23.0),
            (10, 1_039.0),
            (20, 1_048_591.0),
        ] {
            assert_eq!(oban(attempt, 0.0), seconds, "attempt {attempt}");
        }
    }

    #[test]
    fn oban_adds_up_to_a_tenth() {
        assert!(near(oban(10, 0.5), 1_090.95));
        assert!(near(oban(1, ALMOST_ONE), 18.7));
    }

    #[test]
    fn faktory_grows_with_the_fourth_power_beyond_fifteen_seconds() {
        for (failures_before, seconds) in
            [(0, 15.0), (1, 16.0), (2, 31.0), (3, 96.0), (10, 10_015.0)]
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
