//! Periods: the start of the one that a moment falls into.

const MICROS_PER_SECOND: i128 = 1_000_000;
const MICROS_PER_DAY: i128 = 86_400 * MICROS_PER_SECOND;
/// From 0001-01-01, where periods are counted from, to 2000-01-01, where Postgres counts time from.
const FIRST_TO_POSTGRES_EPOCH: i128 = 730_119 * MICROS_PER_DAY;

/// A moment rounded down to a multiple of a period, all in microseconds, moments since 2000-01-01
/// 00:00 UTC and multiples as in [`start_of`].
pub(crate) fn rounded_down(at: i64, period: i64) -> i128 {
    // 128 bits: rounding down may go below what 64 can hold.
    let since_first = i128::from(at) + FIRST_TO_POSTGRES_EPOCH;
    since_first.div_euclid(period.into()) * i128::from(period) - FIRST_TO_POSTGRES_EPOCH
}

/// The end of the period that a moment falls into, which is the start of the next one, as in
/// [`start_of`]; the end of all time if it is later.
pub fn end_of(at: i64, period: i64) -> i64 {
    let end = rounded_down(at, period) + i128::from(period);
    end.try_into().unwrap_or(i64::MAX)
}

/// The start of the period that a moment falls into: the moment rounded down to a multiple of the
/// period, in text as it stands in a unique key, such as `2026-02-12T15:15:00Z`.
///
/// `at` is in microseconds since 2000-01-01 00:00 UTC, `period` in microseconds and positive.
/// Multiples count from 0001-01-01 00:00 UTC, a Monday, so that periods of a week start on Mondays.
/// A fraction of a second stands only where there is one. Years before 0001 and after 9999 have a
/// sign; the year before 0001 is `+0000`.
pub fn start_of(at: i64, period: i64) -> String {
    let start = rounded_down(at, period) + FIRST_TO_POSTGRES_EPOCH;
    let (year, month, day) = civil(start.div_euclid(MICROS_PER_DAY));
    let micros = start.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);

    let year =
        if (1..=9999).contains(&year) { format!("{year:04}") } else { format!("{year:+05}") };
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    let fraction = fraction.trim_end_matches('0');
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Year, month and day of the day that is so many days after 0001-01-01, in the Gregorian calendar
/// also before it was introduced. Year 0 is the one before year 1.
///
/// By hand because Postgres' timestamps reach the year 294276, beyond what calendar libraries
/// hold. Years are taken to begin in March, so that a leap day is the last of its year, and are
/// counted in eras of 400, which repeat.
fn civil(day: i128) -> (i128, i128, i128) {
    const DAYS_PER_ERA: i128 = 146_097;
    // From 0000-03-01, where an era begins, to 0001-01-01.
    let day = day + 306;
    let (era, day_of_era) = (day.div_euclid(DAYS_PER_ERA), day.rem_euclid(DAYS_PER_ERA));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // March is 0. Five months from March on have 153 days, and so have the next five.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next_year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const MINUTE: i64 = 60 * SECOND;
    const DAY: i64 = 1440 * MINUTE;
    /// 2026-02-12 15:21:00 UTC: 9539 days (26 years with 7 leap days, January and 11 days) and
    /// 15:21 hours.
    const AT: i64 = 9539 * DAY + (15 * 60 + 21) * MINUTE;

    #[test]
    fn a_period_ends_where_the_next_one_starts() {
        assert_eq!(end_of(AT, 15 * MINUTE), AT + 9 * MINUTE);
        assert_eq!(end_of(AT + 9 * MINUTE, 15 * MINUTE), AT + 24 * MINUTE);
        assert_eq!(end_of(AT + 9 * MINUTE - 1, 15 * MINUTE), AT + 9 * MINUTE);
        for (at, period) in [(AT, 7 * DAY), (i64::MIN, DAY), (0, SECOND)] {
            assert_eq!(
                start_of(end_of(at, period), period),
                start_of(at.saturating_add(period), period)
            );
        }
        assert_eq!(end_of(i64::MAX, DAY), i64::MAX);
        assert_eq!(end_of(0, i64::MAX), i64::MAX - (FIRST_TO_POSTGRES_EPOCH as i64));
    }

    #[test]
    fn rounds_down_to_a_multiple() {
        assert_eq!(start_of(AT, SECOND), "2026-02-12T15:21:00Z");
        assert_eq!(start_of(AT, 15 * MINUTE), "2026-02-12T15:15:00Z");
        assert_eq!(start_of(AT - MINUTE * 6, 15 * MINUTE), "2026-02-12T15:15:00Z");
        assert_eq!(start_of(AT - MINUTE * 6 - 1, 15 * MINUTE), "2026-02-12T15:00:00Z");
        assert_eq!(start_of(AT, DAY), "2026-02-12T00:00:00Z");
    }

    #[test]
    fn weeks_start_on_mondays() {
        // 2026-02-09 is a Monday.
        assert_eq!(start_of(AT, 7 * DAY), "2026-02-09T00:00:00Z");
        // 2000-01-01 was a Saturday, 1999-12-27 the Monday before.
        assert_eq!(start_of(0, 7 * DAY), "1999-12-27T00:00:00Z");
    }

    #[test]
    fn time_before_the_epoch_rounds_down_too() {
        assert_eq!(start_of(-1, DAY), "1999-12-31T00:00:00Z");
        assert_eq!(start_of(-1, SECOND), "1999-12-31T23:59:59Z");
    }

    #[test]
    fn fractions_stand_only_where_there_are_any() {
        let period = 1_500_000;
        // 2000-01-01 is a whole number of days and so of 1.5 seconds after 0001-01-01.
        assert_eq!(start_of(2_999_999, period), "2000-01-01T00:00:01.5Z");
        assert_eq!(start_of(3_000_000, period), "2000-01-01T00:00:03Z");
        assert_eq!(
            start_of(1_000_001, 1_000_001).split_once('.').map(|(_, fraction)| fraction.len()),
            Some(7)
        );
    }

    #[test]
    fn years_beyond_four_digits_have_a_sign() {
        let first = -730_119 * DAY;
        assert_eq!(start_of(first, DAY), "0001-01-01T00:00:00Z");
        assert_eq!(start_of(first - 1, DAY), "+0000-12-31T00:00:00Z");
        assert_eq!(start_of(first - 367 * DAY, DAY), "-0001-12-31T00:00:00Z");
        // 8000 years are 20 eras of 146097 days.
        assert_eq!(start_of(20 * 146_097 * DAY - 1, DAY), "9999-12-31T00:00:00Z");
        assert_eq!(start_of(20 * 146_097 * DAY, DAY), "+10000-01-01T00:00:00Z");
        // Neither end of what an i64 holds overflows; a period longer than all time before starts
        // below it.
        assert!(start_of(i64::MAX, SECOND).starts_with("+294277-"));
        assert!(start_of(i64::MIN, i64::MAX).starts_with('-'));
        assert_eq!(start_of(0, i64::MAX), "0001-01-01T00:00:00Z");
    }

    /// Day by day through two eras, by the calendar's own rule.
    #[test]
    fn every_day_has_its_date() {
        let (mut year, mut month, mut day) = (-399, 1, 1);
        for days in -146_097..=146_097 {
            assert_eq!(civil(days), (year, month, day), "{days} days from 0001-01-01");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day == last) {
                (_, false) => (year, month, day + 1),
                (12, true) => (year + 1, 1, 1),
                (_, true) => (year, month + 1, 1),
            };
        }
    }
}
