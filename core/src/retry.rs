//! How long a failed job waits for its next try.

/// No delay is longer: 100 years of 365 days, in microseconds. It means never, and added to any
/// clock of our time it is still a timestamp that Postgres can hold.
pub const LONGEST_DELAY_MICROS: i64 = 100 * 365 * 86_400 * 1_000_000;

/// The delay of the policy `river`, in microseconds: (errors before this one + 1)^4 seconds, ± 10
/// %.
///
/// `unit_random` is a random number in [0, 1) that chooses within the ± 10 %, so that jobs that
/// failed together do not come back together.
pub fn river_delay_micros(errors_before: u32, unit_random: f64) -> i64 {
    let seconds = (f64::from(errors_before) + 1.0).powi(4);
    let jitter = 0.9 + 0.2 * unit_random;
    // A float becomes the nearest integer that fits, so what is too long stays the longest.
    ((seconds * jitter * 1e6).round() as i64).min(LONGEST_DELAY_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_the_fourth_power() {
        for (errors_before, seconds) in [(0, 1), (1, 16), (2, 81), (9, 10_000), (23, 331_776)] {
            assert_eq!(river_delay_micros(errors_before, 0.5), seconds * 1_000_000);
        }
    }

    #[test]
    fn varies_by_a_tenth() {
        assert_eq!(river_delay_micros(1, 0.0), 14_400_000);
        assert!((17_599_000..=17_600_000).contains(&river_delay_micros(1, 1.0 - f64::EPSILON)));
    }

    #[test]
    fn is_never_longer_than_a_century() {
        assert_eq!(river_delay_micros(u32::MAX, 0.0), LONGEST_DELAY_MICROS);
        assert_eq!(river_delay_micros(1000, 0.5), LONGEST_DELAY_MICROS);
    }
}
