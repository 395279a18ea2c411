//! Schedules: what is read, what is refused, and the ticks of clocks that are never changed.

use jobs_core::Invalid;
use jobs_core::interval::Interval;
use jobs_core::schedule::{self, Schedule};

use crate::duration;
use crate::support::{refusal, rows};
use crate::time::{at, text};

/// Reads durations as the server does, as far as the tests need it.
fn read(text: &str) -> Option<Interval> {
    let digits = text.trim_start_matches(|char: char| char.is_ascii_digit() || "-.".contains(char));
    let number: Option<f64> = text[..text.len() - digits.len()].parse().ok();
    let micros = match digits.trim().trim_end_matches('s') {
        "econd" | "second" => 1e6,
        "m" | "minute" => 60e6,
        "hour" => 3600e6,
        "day" => 86_400e6,
        "month" => {
            let months = number? as i32;
            return Some(Interval { months, days: 0, micros: 0 });
        }
        _ => return duration::read(text),
    };
    Some(Interval::of_micros((number? * micros) as i64))
}

fn parse(text: &str) -> Result<Schedule, Invalid> {
    schedule::parse(text, &read)
}

fn schedule(text: &str) -> Schedule {
    parse(text).unwrap_or_else(|invalid| panic!("{text}: {invalid:?}"))
}

fn utc(at: i64) -> i64 {
    at
}

/// The first ticks after a moment, in UTC.
fn ticks<const N: usize>(schedule: &str, after: &str) -> [String; N] {
    let schedule = self::schedule(schedule);
    let mut tick = at(after);
    std::array::from_fn(|_| {
        let next = schedule.next(tick, &utc).expect("there is one");
        // Seen from there and from just before the one that follows, it is the latest.
        assert_eq!(schedule.previous_or_at(next, &utc), Some(next));
        let following = schedule.next(next, &utc).expect("there is one");
        assert_eq!(schedule.previous_or_at(following - 1, &utc), Some(next));
        tick = next;
        text(next)
    })
}

/// The refusal: message and hint.
fn refused(text: &str) -> (String, Option<String>) {
    refusal(&parse(text).expect_err(text))
}

/// A Thursday.
const NOON: &str = "2026-02-12 12:00:00";

#[test]
fn every_minute() {
    assert_eq!(
        ticks("* * * * *", "2026-12-31 23:58:59"),
        ["2026-12-31 23:59:00", "2027-01-01 00:00:00", "2027-01-01 00:01:00"]
    );
}

#[test]
fn a_tick_is_after_the_moment_and_latest_at_it() {
    let daily = schedule("0 12 * * *");
    let noon = at(NOON);
    let day = 86_400_000_000;
    assert_eq!(daily.next(noon - 1, &utc), Some(noon));
    assert_eq!(daily.next(noon, &utc), Some(noon + day));
    assert_eq!(daily.next(noon + 1, &utc), Some(noon + day));
    assert_eq!(daily.previous_or_at(noon - 1, &utc), Some(noon - day));
    assert_eq!(daily.previous_or_at(noon, &utc), Some(noon));
    assert_eq!(daily.previous_or_at(noon + 1, &utc), Some(noon));
}

#[test]
fn steps_ranges_and_lists() {
    assert_eq!(
        ticks("*/25 * * * *", NOON),
        ["2026-02-12 12:25:00", "2026-02-12 12:50:00", "2026-02-12 13:00:00"]
    );
    assert_eq!(
        ticks("30 9-17/4 * * *", NOON),
        ["2026-02-12 13:30:00", "2026-02-12 17:30:00", "2026-02-13 09:30:00"]
    );
    assert_eq!(
        ticks("0,45,50-52 0 * * *", NOON),
        [
            "2026-02-13 00:00:00",
            "2026-02-13 00:45:00",
            "2026-02-13 00:50:00",
            "2026-02-13 00:51:00",
            "2026-02-13 00:52:00",
            "2026-02-14 00:00:00"
        ]
    );
    assert_eq!(
        ticks("1-9/4,05 \t 007 *  *\n* ", NOON),
        ["2026-02-13 07:01:00", "2026-02-13 07:05:00", "2026-02-13 07:09:00"]
    );
    // All, and something else.
    assert_eq!(ticks("0 5,* * * *", NOON), ["2026-02-12 13:00:00"]);
}

#[test]
fn months_and_days_have_names() {
    assert_eq!(
        ticks("0 0 1 jan,Jun-AUG *", NOON),
        [
            "2026-06-01 00:00:00",
            "2026-07-01 00:00:00",
            "2026-08-01 00:00:00",
            "2027-01-01 00:00:00"
        ]
    );
    // 2026-02-13 is a Friday.
    assert_eq!(
        ticks("0 0 * * MON-fri/2", NOON),
        ["2026-02-13 00:00:00", "2026-02-16 00:00:00", "2026-02-18 00:00:00"]
    );
}

#[test]
fn sunday_begins_and_ends_the_week() {
    let sundays = ["2026-02-15 00:00:00", "2026-02-22 00:00:00"];
    for day in ["0", "7", "sun", "SUN", "0,7", "sun-sun"] {
        assert_eq!(ticks(&format!("0 0 * * {day}"), NOON), sundays, "{day}");
    }
    let weekend = ["2026-02-14 00:00:00", "2026-02-15 00:00:00", "2026-02-21 00:00:00"];
    for days in ["6-7", "sat-sun", "6,0", "sat,sun"] {
        assert_eq!(ticks(&format!("0 0 * * {days}"), NOON), weekend, "{days}");
    }
    let all = ["2026-02-13 00:00:00", "2026-02-14 00:00:00"];
    for days in ["0-6", "1-7", "0-7", "sun-sat", "mon-sun"] {
        assert_eq!(ticks(&format!("0 0 * * {days}"), NOON), all, "{days}");
    }
}

#[test]
fn either_of_two_days_will_do() {
    // The 15th is a Sunday, the 16th and the 23rd are Mondays, and so is the 2nd of March.
    assert_eq!(
        ticks("0 0 15,17 * mon", NOON),
        [
            "2026-02-15 00:00:00",
            "2026-02-16 00:00:00",
            "2026-02-17 00:00:00",
            "2026-02-23 00:00:00",
            "2026-03-02 00:00:00"
        ]
    );
    // Also if no month ever had the one.
    assert_eq!(
        ticks("0 0 31 feb mon", NOON),
        ["2026-02-16 00:00:00", "2026-02-23 00:00:00", "2027-02-01 00:00:00"]
    );
}

#[test]
fn a_star_in_a_day_field_is_no_alternative() {
    // The 23rd of February is the first Monday with an odd number after the 12th.
    assert_eq!(ticks("0 0 */2 * mon", NOON), ["2026-02-23 00:00:00", "2026-03-09 00:00:00"]);
    // Of */3, the Wednesdays, Saturdays and Sundays, the first that are a 13th.
    assert_eq!(ticks("0 0 13 * */3", NOON), ["2026-05-13 00:00:00", "2026-06-13 00:00:00"]);
    assert_eq!(ticks("0 0 * * mon", NOON), ["2026-02-16 00:00:00"]);
    assert_eq!(ticks("0 0 13 * *", NOON), ["2026-02-13 00:00:00"]);
}

#[test]
fn the_29th_of_february_comes_in_leap_years() {
    assert_eq!(ticks("0 0 29 2 *", NOON), ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]);
    assert_eq!(ticks("0 0 29 2 *", "2096-02-29 00:00:00"), ["2104-02-29 00:00:00"]);
    assert_eq!(ticks("0 0 29 2 *", "2399-01-01 00:00:00"), ["2400-02-29 00:00:00"]);
}

#[test]
fn the_31st_comes_in_long_months() {
    assert_eq!(
        ticks("59 23 31 * *", "2026-03-31 23:59:00"),
        [
            "2026-05-31 23:59:00",
            "2026-07-31 23:59:00",
            "2026-08-31 23:59:00",
            "2026-10-31 23:59:00",
            "2026-12-31 23:59:00"
        ]
    );
    assert_eq!(ticks("0 0 30 1-3 *", "2027-01-30 00:00:00"), ["2027-03-30 00:00:00"]);
}

#[test]
fn some_schedules_have_a_name() {
    for (name, first, second) in [
        ("@hourly", "2026-02-12 13:00:00", "2026-02-12 14:00:00"),
        ("@daily", "2026-02-13 00:00:00", "2026-02-14 00:00:00"),
        ("@midnight", "2026-02-13 00:00:00", "2026-02-14 00:00:00"),
        // Sundays
        ("@weekly", "2026-02-15 00:00:00", "2026-02-22 00:00:00"),
        ("@monthly", "2026-03-01 00:00:00", "2026-04-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00", "2028-01-01 00:00:00"),
        ("@annually", "2027-01-01 00:00:00", "2028-01-01 00:00:00"),
        (" @Daily ", "2026-02-13 00:00:00", "2026-02-14 00:00:00"),
    ] {
        assert_eq!(ticks(name, NOON), [first, second], "{name}");
    }
}

#[test]
fn every_so_often_counts_from_the_year_1() {
    assert_eq!(
        ticks("every 90 seconds", NOON),
        ["2026-02-12 12:01:30", "2026-02-12 12:03:00", "2026-02-12 12:04:30"]
    );
    assert_eq!(
        ticks("Every PT15M", "2026-02-12 12:00:01"),
        ["2026-02-12 12:15:00", "2026-02-12 12:30:00"]
    );
    // Mondays.
    assert_eq!(ticks(" EVERY  P7D ", NOON), ["2026-02-16 00:00:00", "2026-02-23 00:00:00"]);
    // 2026-02-12 is 730119 + 9539 = 11 * 67241 + 7 days after it.
    assert_eq!(ticks("every P11D", NOON), ["2026-02-16 00:00:00", "2026-02-27 00:00:00"]);
    assert_eq!(ticks("every 1 second", NOON), ["2026-02-12 12:00:01", "2026-02-12 12:00:02"]);
}

#[test]
fn every_so_often_is_the_same_in_all_zones() {
    let hourly = schedule("every PT1H");
    let tick = at(NOON) + 3_600_000_000;
    assert_eq!(hourly.next(at(NOON), &|at| at + 1_234_567_890), Some(tick));
    assert_eq!(hourly.previous_or_at(tick + 1, &|at| at - 1_234_567_890), Some(tick));
}

#[test]
fn time_ends() {
    for cron in ["* * * * *", "0 0 29 2 *", "every PT1H"] {
        let schedule = schedule(cron);
        assert_eq!(schedule.next(i64::MAX, &utc), None, "{cron}");
        assert_eq!(schedule.previous_or_at(i64::MIN, &utc), None, "{cron}");
    }
    let yearly = schedule("@yearly");
    assert_eq!(yearly.next(at("5100-01-01 00:00:00"), &utc), None);
    assert_eq!(yearly.previous_or_at(-1_100_000 * 86_400_000_000, &utc), None);
    assert!(yearly.next(at("4900-01-01 00:00:00"), &utc).is_some());
}

#[test]
fn what_has_no_form_is_refused() {
    for (cron, message, hint) in [
        ("", "cron must not be empty", None),
        (" \t", "cron must not be empty", None),
        ("soon", "cron \"soon\" is not a schedule", None),
        ("daily", "cron \"daily\" is not a schedule", Some("Did you mean \"@daily\"?")),
        ("@dayly", "cron \"@dayly\" is not a schedule", Some("Did you mean \"@daily\"?")),
        ("@reboot", "cron \"@reboot\" is not a schedule", None),
        ("@daily *", "cron \"@daily *\" has 2 fields instead of 5", None),
        ("* * * *", "cron \"* * * *\" has 4 fields instead of 5", None),
        (
            "* * * * * *",
            "cron \"* * * * * *\" has 6 fields instead of 5",
            Some("Write \"every 1 second\"."),
        ),
        (
            "90 seconds",
            "cron \"90 seconds\" has 2 fields instead of 5",
            Some("Write \"every 90 seconds\"."),
        ),
        ("PT1H", "cron \"PT1H\" is not a schedule", Some("Write \"every PT1H\".")),
    ] {
        assert_eq!(refused(cron), (message.into(), hint.map(Into::into)));
    }
}

#[test]
fn seconds_and_years_are_refused() {
    for (cron, fields) in [("10 0 12 * * *", 6), ("*/7 * * * * *", 6), ("0 0 12 * * * 2026", 7)] {
        assert_eq!(
            refused(cron),
            (
                format!("cron \"{cron}\" has {fields} fields instead of 5"),
                Some("Omit the fields for seconds and years. For more than once a minute, write \"every 10 seconds\".".into())
            )
        );
    }
}

#[test]
fn numbers_outside_of_their_field_are_refused() {
    for (cron, message) in [
        ("60 * * * *", "minute \"60\""),
        ("* 24 * * *", "hour \"24\""),
        ("* 1-24 * * *", "hour \"1-24\""),
        ("* * 0 * *", "day of month \"0\""),
        ("* * 32 * *", "day of month \"32\""),
        ("* * * 13 *", "month \"13\""),
        ("* * * 0 *", "month \"0\""),
        ("* * * * 8", "day of week \"8\""),
        ("-1 * * * *", "minute \"-1\""),
        ("+1 * * * *", "minute \"+1\""),
        ("1.5 * * * *", "minute \"1.5\""),
        ("99999999999 * * * *", "minute \"99999999999\""),
        ("1,60,2 * * * *", "minute \"60\""),
        ("*/0 * * * *", "minute \"*/0\""),
        ("1-5/0 * * * *", "minute \"1-5/0\""),
    ] {
        assert_eq!(refused(cron), (format!("{message} of cron \"{cron}\" is not valid"), None));
    }
}

#[test]
fn what_is_no_item_of_a_list_is_refused() {
    for (cron, message) in [
        (", * * * *", "minute \"\""),
        ("1,,2 * * * *", "minute \"\""),
        ("1, * * * *", "minute \"\""),
        ("*/ * * * *", "minute \"*/\""),
        ("*/2/2 * * * *", "minute \"*/2/2\""),
        ("1- * * * *", "minute \"1-\""),
        ("1-2-3 * * * *", "minute \"1-2-3\""),
        ("** * * * *", "minute \"**\""),
        ("*-5 * * * *", "minute \"*-5\""),
        ("L * * * *", "minute \"L\""),
        ("* * * L *", "month \"L\""),
        ("* * 5L * *", "day of month \"5L\""),
        ("* * L-3 * *", "day of month \"L-3\""),
        ("* * W * *", "day of month \"W\""),
        ("* * 32W * *", "day of month \"32W\""),
        ("* * 1-5W * *", "day of month \"1-5W\""),
        ("* * L/2 * *", "day of month \"L/2\""),
        ("* * * * L", "day of week \"L\""),
        ("* * * * 15W", "day of week \"15W\""),
        ("* * * * 5#0", "day of week \"5#0\""),
        ("* * * * 5#6", "day of week \"5#6\""),
        ("* * * * 8#1", "day of week \"8#1\""),
        ("* * * * 8L", "day of week \"8L\""),
        ("* * * * 1-5L", "day of week \"1-5L\""),
        ("* * * * +1", "day of week \"+1\""),
        ("* * * * \u{e9}", "day of week \"\u{e9}\""),
    ] {
        assert_eq!(refused(cron), (format!("{message} of cron \"{cron}\" is not valid"), None));
    }
}

#[test]
fn names_elsewhere_and_misspelled_names_are_refused() {
    for [cron, message, hint] in rows(
        r#"
            * * * tue * | month "tue"
            * * * * jan | day of week "jan"
            jan * * * * | minute "jan"
            * * * jnu * | month "jnu" | Did you mean "jun"?
            * * * * Monday | day of week "Monday" | Did you mean "mon"?
            * * * * mon-thurs | day of week "mon-thurs" | Did you mean "thu"?
            * * * 1-jann * | month "1-jann" | Did you mean "jan"?
            * * * 12sept * | month "12sept"
            * * * * lunes | day of week "lunes"
        "#,
    ) {
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        assert_eq!(
            refused(cron),
            (format!("{message} of cron \"{cron}\" is not valid"), hint.map(Into::into))
        );
    }
}

#[test]
fn what_is_likely_meant_is_said() {
    for [cron, item, hint] in rows(
        r#"
            0/15 * * * * | minute "0/15" | Write "0-59/15 * * * *".
            0 0 1 mar/3 * | month "mar/3" | Write "0 0 1 3-12/3 *".
            */90 * * * * | minute "*/90" | Write "every 90 minutes".
            0 */48 * * * | hour "*/48" | Write "every 48 hours".
            0 0 ? * 1 | day of month "?" | Write "0 0 * * 1".
            0 22-4 * * * | hour "22-4" | Write "0 22-23,0-4 * * *".
            0 0 * * 3,fri-mon | day of week "fri-mon" | Write "0 0 * * 3,5-6,0-1".
            0 0 L,LW * * | day of month "L,LW" | L and LW cannot be in the same list.
        "#,
    ) {
        assert_eq!(
            refused(cron),
            (format!("{item} of cron \"{cron}\" is not valid"), Some(hint.into()))
        );
    }
    // Nothing else would mean the same.
    for cron in ["*/90 9 * * *", "* */48 * * *", "0 22-4/2 * * *", "60,5/2 * * * *"] {
        assert_eq!(refused(cron).1, None, "{cron}");
    }
}

#[test]
fn what_a_hint_says_to_write_is_taken() {
    for (cron, written, zone) in [
        ("*/15", "*/15 * * * *", None),
        ("*/30 * * * * *", "every 30 seconds", None),
        ("0 0 12 * * *", "0 12 * * *", None),
        ("0 0 12 ? * MON", "0 12 * * MON", None),
        ("0 0 12 ? * MON *", "0 12 * * MON", None),
        ("30 9 ? * 2 *", "30 9 * * 2", None),
        ("1 month", "@monthly", None),
        ("every 1 month", "@monthly", None),
        ("every 12 months", "@yearly", None),
        ("every 3 months", "0 0 1 */3 *", None),
        ("every 5 months", "every 30 days", None),
        ("@every 5m", "every 5m", None),
        ("5 minutes", "every 5 minutes", None),
        ("every (5 minutes)", "every PT5M", None),
        ("every day", "every PT24H", None),
        ("every month", "@monthly", None),
        ("every (0 seconds)", "every 90 seconds", None),
        ("every 9:00", "0 9 * * *", None),
        ("every 1 day 09:00", "0 9 * * *", None),
        ("every day at 17:30:00", "30 17 * * *", None),
        ("every 0.5 seconds", "every 1 second", None),
        ("every so often", "every 90 seconds", None),
        ("CRON_TZ=Europe/Berlin 0 9 * * *", "0 9 * * *", Some("Europe/Berlin")),
        ("TZ=UTC @daily", "@daily", Some("UTC")),
        ("0 9 * * * Europe/Berlin", "0 9 * * *", Some("Europe/Berlin")),
        ("0/15 9 * * *", "0-59/15 9 * * *", None),
        ("5/10 * * * *", "5-59/10 * * * *", None),
    ] {
        let (_, hint) = refused(cron);
        let hint = hint.unwrap_or_else(|| panic!("{cron} has no hint"));
        let quoted: Vec<_> = hint.split('"').skip(1).step_by(2).collect();
        assert_eq!(quoted[0], written, "{cron}: {hint}");
        for written in quoted {
            assert!(parse(written).is_ok(), "{cron}: {hint}");
        }
        let named = hint.split('\'').nth(1);
        assert_eq!(named, zone, "{cron}: {hint}");
    }
    for cron in ["0 9 * * Europe/Berlin", "* * * *"] {
        assert_eq!(refused(cron).1, None, "{cron}");
    }
}

#[test]
fn days_may_depend_on_their_month() {
    // 2026-02-12 is a Thursday; the 15th is a Sunday in February, March and November.
    for (cron, first, second) in [
        ("0 0 L * *", "2026-02-28 00:00:00", "2026-03-31 00:00:00"),
        ("0 0 lw * *", "2026-02-27 00:00:00", "2026-03-31 00:00:00"),
        ("0 0 15W * *", "2026-02-16 00:00:00", "2026-03-16 00:00:00"),
        ("0 0 31w * *", "2026-03-31 00:00:00", "2026-05-29 00:00:00"),
        ("0 0 * * 5L", "2026-02-27 00:00:00", "2026-03-27 00:00:00"),
        ("0 0 * * friL", "2026-02-27 00:00:00", "2026-03-27 00:00:00"),
        ("0 0 * * 7l", "2026-02-22 00:00:00", "2026-03-29 00:00:00"),
        ("0 0 * * 1#2", "2026-03-09 00:00:00", "2026-04-13 00:00:00"),
        ("0 0 * * Sun#5", "2026-03-29 00:00:00", "2026-05-31 00:00:00"),
        ("0 0 1,L * *", "2026-02-28 00:00:00", "2026-03-01 00:00:00"),
        // Either of two day fields, unless one has a star.
        ("0 0 L * 1#3", "2026-02-16 00:00:00", "2026-02-28 00:00:00"),
        ("0 0 */2 * 5L", "2026-02-27 00:00:00", "2026-03-27 00:00:00"),
    ] {
        assert_eq!(ticks(cron, NOON), [first, second], "{cron}");
    }
    for cron in ["0 0 30W 2 *", "0 0 */31 * 1#2", "0 0 */30 2 5L"] {
        assert_eq!(refused(cron), (format!("cron \"{cron}\" never occurs"), None));
    }
}

#[test]
fn a_refused_field_is_explained() {
    let detail = |cron| parse(cron).unwrap_err().detail;
    assert_eq!(
        detail("60 * * * *"),
        "The minute must be 0 to 59, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all."
    );
    assert!(detail("* * * 13 *").starts_with("The month must be 1 to 12 or jan to dec, "));
    assert!(detail("* * * * 8").starts_with("The day of week must be 0 to 7 or sun to sat, "));
}

#[test]
fn days_that_never_come_are_refused() {
    for cron in ["0 0 31 2 *", "0 0 30 feb *", "0 0 31 apr,jun,sep,nov *", "0 0 30,31 2 */2"] {
        assert_eq!(refused(cron), (format!("cron \"{cron}\" never occurs"), None));
    }
    for cron in ["0 0 29 2 *", "0 0 31 */2 *", "0 0 30-31 1-2 *"] {
        assert!(parse(cron).is_ok(), "{cron}");
    }
}

#[test]
fn other_durations_than_fixed_ones_are_refused() {
    for [cron, what, hint] in rows(
        r#"
            every | has no duration | Write "every 90 seconds" or "every PT1H".
            every hour | has no duration | Write "every PT1H".
            every 0 seconds | is too frequent | Write at least "every 1 second".
            every 0.5 seconds | is too frequent | Write at least "every 1 second".
            every -90 seconds | is too frequent | Write at least "every 1 second".
            every 1 month | has no fixed length | Write "@monthly" for the first of each month, or "every 30 days".
            every 90 | has no duration | Write "every 90 seconds" or "every PT1H".
            every P365001D | is too infrequent
        "#,
    ) {
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        assert_eq!(refused(cron), (format!("cron \"{cron}\" {what}"), hint.map(Into::into)));
    }
}
