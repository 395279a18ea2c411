//! Ticks where clocks are changed.

use jobs_core::schedule;

use crate::clock::Clock;
use crate::support::rows;
use crate::time::{at, text};

/// A clock by its distances from UTC in minutes, and when it gets them.
fn clock(first: i64, changes: &[(&str, i64)]) -> Clock {
    let changes = changes.iter().map(|(when, minutes)| (at(when), *minutes));
    Clock { first, changes: changes.collect() }
}

/// From 02:00 to 03:00 on 2026-03-29, from 03:00 to 02:00 on 2026-10-25.
fn berlin() -> Clock {
    clock(
        60,
        &[("2026-03-29 01:00:00", 120), ("2026-10-25 01:00:00", 60), ("2027-03-28 01:00:00", 120)],
    )
}

/// From 02:00 to 03:00 on 2026-03-08, from 02:00 to 01:00 on 2026-11-01.
fn new_york() -> Clock {
    clock(
        -300,
        &[
            ("2026-03-08 07:00:00", -240),
            ("2026-11-01 06:00:00", -300),
            ("2027-03-14 07:00:00", -240),
        ],
    )
}

/// By half an hour: from 02:00 to 01:30 on 2026-04-05, from 02:00 to 02:30 on 2026-10-04.
fn lord_howe() -> Clock {
    clock(660, &[("2026-04-04 15:00:00", 630), ("2026-10-03 15:30:00", 660)])
}

/// From 00:00 to 01:00 on 2026-03-08, from 01:00 to 00:00 on 2026-11-01.
fn havana() -> Clock {
    clock(-300, &[("2026-03-08 05:00:00", -240), ("2026-11-01 05:00:00", -300)])
}

/// It left 2011-12-30 out, going over the date line.
fn apia() -> Clock {
    clock(-600, &[("2011-12-30 10:00:00", 840)])
}

/// Each line: a schedule, a clock, after and until when, and the ticks, all in UTC.
#[track_caller]
fn ticks_are(table: &str) {
    for [cron, clock, after, until, expected] in rows(table) {
        let clock = match clock {
            "berlin" => berlin(),
            "new_york" => new_york(),
            "lord_howe" => lord_howe(),
            "havana" => havana(),
            "apia" => apia(),
            other => panic!("{other}"),
        };
        let [after, until] = [after, until].map(|text| at(&format!("{text}:00")));
        assert_eq!(ticks(cron, &clock, after, until).join(", "), expected, "{cron}");
    }
}

fn ticks(cron: &str, clock: &Clock, after: i64, until: i64) -> Vec<String> {
    let schedule = schedule::parse(cron, &|_| None).unwrap();
    let zone = |at| clock.show(at);
    let mut before = after;
    let mut ticks = Vec::new();
    while let Some(tick) = schedule.next(before, &zone).filter(|tick| *tick <= until) {
        assert!(tick > before);
        assert_eq!(schedule.previous_or_at(tick, &zone), Some(tick));
        if !ticks.is_empty() {
            assert_eq!(schedule.previous_or_at(tick - 1, &zone), Some(before));
        }
        // Without the year and the seconds, which are 0.
        let text = text(tick);
        ticks.push(text[5..].strip_suffix(":00").expect(&text).to_string());
        before = tick;
    }
    ticks
}

#[test]
fn a_daily_tick_keeps_to_the_clock_on_the_wall() {
    ticks_are(
        "
            0 9 * * * | berlin | 2026-03-27 12:00 | 2026-03-30 12:00 | 03-28 08:00, 03-29 07:00, 03-30 07:00
            0 9 * * * | new_york | 2026-10-30 16:00 | 2026-11-02 16:00 | 10-31 13:00, 11-01 14:00, 11-02 14:00
        ",
    );
}

#[test]
fn a_tick_that_is_skipped_comes_right_after_the_change() {
    ticks_are(
        "
            30 2 * * * | berlin | 2026-03-27 12:00 | 2026-03-30 12:00 | 03-28 01:30, 03-29 01:00, 03-30 00:30
            30 2 * * * | new_york | 2026-03-06 12:00 | 2026-03-09 12:00 | 03-07 07:30, 03-08 07:00, 03-09 06:30
            // The first moment that is skipped, too.
            0 2 * * * | berlin | 2026-03-28 12:00 | 2026-03-30 12:00 | 03-29 01:00, 03-30 00:00
        ",
    );
}

#[test]
fn ticks_that_are_skipped_together_are_one() {
    ticks_are(
        "
            // 02:00, 02:20 and 02:40 are skipped, and at 03:00 there is a tick of its own.
            */20 1-3 * * * | berlin | 2026-03-28 12:00 | 2026-03-29 12:00 | 03-29 00:00, 03-29 00:20, 03-29 00:40, 03-29 01:00, 03-29 01:20, 03-29 01:40
            */20 2 * * * | berlin | 2026-03-28 12:00 | 2026-03-30 00:20 | 03-29 01:00, 03-30 00:00, 03-30 00:20
        ",
    );
}

#[test]
fn a_tick_that_is_repeated_comes_the_first_time() {
    ticks_are(
        "
            30 2 * * * | berlin | 2026-10-23 12:00 | 2026-10-26 12:00 | 10-24 00:30, 10-25 00:30, 10-26 01:30
            30 1 * * * | new_york | 2026-10-30 12:00 | 2026-11-02 12:00 | 10-31 05:30, 11-01 05:30, 11-02 06:30
            // 02:00 is repeated, 03:00 is not, though the clock is put back there.
            0 2,3 * * * | berlin | 2026-10-24 12:00 | 2026-10-25 12:00 | 10-25 00:00, 10-25 02:00
        ",
    );
}

#[test]
fn a_repeated_hour_that_is_meant_runs_once() {
    ticks_are(
        "
            */20 1-3 * * * | berlin | 2026-10-24 12:00 | 2026-10-25 12:00 | 10-24 23:00, 10-24 23:20, 10-24 23:40, 10-25 00:00, 10-25 00:20, 10-25 00:40, 10-25 02:00, 10-25 02:20, 10-25 02:40
        ",
    );
}

#[test]
fn every_quarter_of_an_hour_goes_on_through_changes() {
    ticks_are(
        "
            */15 * * * * | berlin | 2026-03-29 00:15 | 2026-03-29 01:30 | 03-29 00:30, 03-29 00:45, 03-29 01:00, 03-29 01:15, 03-29 01:30
            // The first 02:00 is at 00:00 UTC, the second one at 01:00.
            */15 * * * * | berlin | 2026-10-24 23:45 | 2026-10-25 02:00 | 10-25 00:00, 10-25 00:15, 10-25 00:30, 10-25 00:45, 10-25 01:00, 10-25 01:15, 10-25 01:30, 10-25 01:45, 10-25 02:00
        ",
    );
}

#[test]
fn every_hour_goes_on_through_changes() {
    ticks_are(
        "
            0 * * * * | new_york | 2026-03-08 05:30 | 2026-03-08 08:30 | 03-08 06:00, 03-08 07:00, 03-08 08:00
            0 * * * * | new_york | 2026-11-01 04:30 | 2026-11-01 07:30 | 11-01 05:00, 11-01 06:00, 11-01 07:00
            @hourly | new_york | 2026-03-08 05:30 | 2026-03-08 08:30 | 03-08 06:00, 03-08 07:00, 03-08 08:00
            @hourly | new_york | 2026-11-01 04:30 | 2026-11-01 07:30 | 11-01 05:00, 11-01 06:00, 11-01 07:00
            0 */1 * * * | new_york | 2026-03-08 05:30 | 2026-03-08 08:30 | 03-08 06:00, 03-08 07:00, 03-08 08:00
            0 */1 * * * | new_york | 2026-11-01 04:30 | 2026-11-01 07:30 | 11-01 05:00, 11-01 06:00, 11-01 07:00
            0 0-23 * * * | new_york | 2026-03-08 05:30 | 2026-03-08 08:30 | 03-08 06:00, 03-08 07:00, 03-08 08:00
            0 0-23 * * * | new_york | 2026-11-01 04:30 | 2026-11-01 07:30 | 11-01 05:00, 11-01 06:00, 11-01 07:00
            // At 01:30, then at 03:30 by the clock.
            30 * * * * | new_york | 2026-03-08 06:00 | 2026-03-08 08:00 | 03-08 06:30, 03-08 07:30
        ",
    );
}

#[test]
fn every_two_hours_are_hours_of_the_clock() {
    ticks_are(
        "
            // 00:00, 02:00 put off to 03:00, 04:00.
            0 */2 * * * | berlin | 2026-03-28 22:30 | 2026-03-29 02:30 | 03-28 23:00, 03-29 01:00, 03-29 02:00
            // 00:00, 02:00 the first time, 04:00.
            0 */2 * * * | berlin | 2026-10-24 21:30 | 2026-10-25 03:30 | 10-24 22:00, 10-25 00:00, 10-25 03:00
        ",
    );
}

#[test]
fn days_begin_where_the_clock_says() {
    ticks_are(
        "
            // 2026-03-01 00:00 and 2026-07-01 00:00 in Berlin.
            @monthly | berlin | 2026-02-12 00:00 | 2026-03-02 00:00 | 02-28 23:00
            @monthly | berlin | 2026-06-12 00:00 | 2026-07-02 00:00 | 06-30 22:00
            // Monday the 16th begins on Monday at 05:00 in New York.
            0 0 * * mon | new_york | 2026-02-12 00:00 | 2026-02-17 00:00 | 02-16 05:00
        ",
    );
}

#[test]
fn a_midnight_that_is_skipped_or_repeated_is_one_tick() {
    ticks_are(
        "
            @daily | havana | 2026-03-06 12:00 | 2026-03-09 12:00 | 03-07 05:00, 03-08 05:00, 03-09 04:00
            @daily | havana | 2026-10-30 12:00 | 2026-11-02 12:00 | 10-31 04:00, 11-01 04:00, 11-02 05:00
            @hourly | havana | 2026-11-01 03:30 | 2026-11-01 06:30 | 11-01 04:00, 11-01 05:00, 11-01 06:00
        ",
    );
}

#[test]
fn half_an_hour_is_changed_as_well() {
    ticks_are(
        "
            // Back: 01:45 first at 14:45 UTC, again at 15:15.
            45 1 * * * | lord_howe | 2026-04-04 00:00 | 2026-04-06 00:00 | 04-04 14:45, 04-05 15:15
            45 * * * * | lord_howe | 2026-04-04 14:00 | 2026-04-04 16:30 | 04-04 14:45, 04-04 15:15, 04-04 16:15
            // Forward: 02:15 is skipped.
            15 2 * * * | lord_howe | 2026-10-03 00:00 | 2026-10-05 00:00 | 10-03 15:30, 10-04 15:15
        ",
    );
}

#[test]
fn a_day_that_is_left_out_is_one_tick() {
    ticks_are(
        "
            // The 29th at noon is at 22:00 UTC; the 30th is made up for when the 31st begins.
            0 12 * * * | apia | 2011-12-29 12:00 | 2011-12-31 00:00 | 12-29 22:00, 12-30 10:00, 12-30 22:00
            0 */6 30 12 * | apia | 2011-12-01 00:00 | 2012-01-01 00:00 | 12-30 10:00
            0 * 30 12 * | apia | 2011-12-01 00:00 | 2012-01-01 00:00 |
        ",
    );
}

#[test]
fn the_latest_tick_is_found_from_within_a_repeated_hour() {
    let zone = |at| berlin().show(at);
    let latest = |cron: &str, when: &str| {
        let schedule = schedule::parse(cron, &|_| None).unwrap();
        text(schedule.previous_or_at(at(when), &zone).unwrap())
    };
    // It is 02:10 for the second time, and 02:45 was before.
    assert_eq!(latest("45 2 * * *", "2026-10-25 01:10:00"), "2026-10-25 00:45:00");
    assert_eq!(latest("45 * * * *", "2026-10-25 01:10:00"), "2026-10-25 00:45:00");
    assert_eq!(latest("5 * * * *", "2026-10-25 01:10:00"), "2026-10-25 01:05:00");
    assert_eq!(latest("5 2 * * *", "2026-10-25 01:10:00"), "2026-10-25 00:05:00");
    // It is 02:10 for the first time.
    assert_eq!(latest("45 2 * * *", "2026-10-25 00:10:00"), "2026-10-24 00:45:00");
    assert_eq!(latest("45 * * * *", "2026-10-25 00:10:00"), "2026-10-24 23:45:00");
    // It is 03:10, and 02:30 was skipped; at 01:59 it was not yet.
    assert_eq!(latest("30 2 * * *", "2026-03-29 01:10:00"), "2026-03-29 01:00:00");
    assert_eq!(latest("30 2 * * *", "2026-03-29 00:59:59"), "2026-03-28 01:30:00");
}
