//! What holds for all schedules: ticks are where walking through time minute by minute finds them.

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use jobs_core::interval::Interval;
use jobs_core::schedule;
use proptest::prelude::*;

use crate::clock::Clock;

const MINUTE: i64 = 60_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A field of cron: its text, and the numbers that it stands for.
#[derive(Clone, Debug)]
struct Field {
    text: String,
    numbers: Vec<u32>,
}

impl Field {
    fn has(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }

    fn has_star(&self) -> bool {
        self.text.contains('*')
    }
}

fn any_item(from: u32, to: u32) -> impl Strategy<Value = Field> {
    let bounds = (from..=to, from..=to).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let step = 1..=to.min(12);
    let field = |text: String, numbers| Field { text, numbers };
    prop_oneof![
        2 => Just(field("*".into(), (from..=to).collect())),
        4 => (from..=to).prop_map(move |number| field(number.to_string(), vec![number])),
        2 => bounds.clone().prop_map(move |(first, last)| {
            field(format!("{first}-{last}"), (first..=last).collect())
        }),
        2 => step.clone().prop_map(move |step| {
            field(format!("*/{step}"), (from..=to).step_by(step as usize).collect())
        }),
        1 => (bounds, step).prop_map(move |((first, last), step)| {
            let numbers = (first..=last).step_by(step as usize).collect();
            field(format!("{first}-{last}/{step}"), numbers)
        }),
    ]
}

fn any_field(from: u32, to: u32) -> impl Strategy<Value = Field> {
    prop::collection::vec(any_item(from, to), 1..3).prop_map(|items| Field {
        text: items
            .iter()
            .map(|item| item.text.as_str())
            .collect::<Vec<_>>()
            .join(","),
        numbers: items.into_iter().flat_map(|item| item.numbers).collect(),
    })
}

/// Cron's five fields.
type Cron = (Field, Field, Field, Field, Field);

fn any_cron() -> impl Strategy<Value = Cron> {
    // Few schedules of a month or a day of it have a tick in the time that is walked through.
    let all = || {
        Just(Field {
            text: "*".into(),
            numbers: (0..=31).collect(),
        })
    };
    (
        any_field(0, 59),
        any_field(0, 23),
        prop_oneof![all().boxed(), any_field(1, 31).boxed()],
        prop_oneof![3 => all().boxed(), 1 => any_field(1, 12).boxed()],
        prop_oneof![all().boxed(), any_field(0, 6).boxed()],
    )
}

fn text((minute, hour, day, month, weekday): &Cron) -> String {
    format!(
        "{} {} {} {} {}",
        minute.text, hour.text, day.text, month.text, weekday.text
    )
}

/// Whether the fields match what a clock shows.
fn matches((minute, hour, day, month, weekday): &Cron, shown: i64) -> bool {
    let time = calendar(shown);
    let of_month = day.has(time.day());
    let of_week = weekday.has(time.weekday().num_days_from_sunday());
    let of_either = if day.has_star() || weekday.has_star() {
        of_month && of_week
    } else {
        of_month || of_week
    };
    minute.has(time.minute()) && hour.has(time.hour()) && month.has(time.month()) && of_either
}

fn calendar(shown: i64) -> NaiveDateTime {
    DateTime::from_timestamp_micros(shown + 946_684_800_000_000)
        .expect("in range")
        .naive_utc()
}

/// A clock that is changed up to three times in the ten days from a moment on.
fn any_clock(start: i64) -> impl Strategy<Value = Clock> {
    let minutes = || (-24..=28_i64).prop_map(|halves| halves * 30);
    // Mostly by an hour, at whole hours.
    let change = || {
        prop_oneof![
            4 => prop_oneof![Just(60), Just(-60)],
            1 => prop_oneof![Just(30), Just(-30), Just(120), Just(-120)],
        ]
    };
    let changes = prop::collection::vec((0..12_i64, change()), 0..=3);
    (minutes(), changes).prop_map(move |(first, changes)| {
        let mut minutes = first;
        let changes = changes.into_iter().zip(0..).map(|((hour, change), nth)| {
            minutes += change;
            (start + (nth * 3 + 1) * DAY + hour * HOUR, minutes)
        });
        Clock {
            first,
            changes: changes.collect(),
        }
    })
}

/// The ticks after a moment and until another one, both whole minutes, by looking at the clock
/// every minute.
fn walked(cron: &Cron, clock: &Clock, after: i64, until: i64) -> Vec<i64> {
    let every_hour = (0..24).all(|hour| cron.1.has(hour));
    let mut latest_shown = clock.show(after - DAY);
    let mut ticks = Vec::new();
    for moment in (after - DAY..=until).step_by(MINUTE as usize) {
        let shown = clock.show(moment);
        let tick = if every_hour {
            matches(cron, shown)
        } else {
            // Nothing where it is shown again; more than a minute where some have been skipped.
            (latest_shown + MINUTE..=shown)
                .step_by(MINUTE as usize)
                .any(|shown| matches(cron, shown))
        };
        latest_shown = latest_shown.max(shown);
        if tick && moment > after {
            ticks.push(moment);
        }
    }
    ticks
}

/// Ten days from some time between 1990 and 2100 on.
fn any_start() -> impl Strategy<Value = i64> {
    (-3650..36_500_i64).prop_map(|day| day * DAY)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ticks_are_where_the_fields_match_and_nowhere_else(cron in any_cron(), start in any_start()) {
        let Ok(schedule) = schedule::parse(&text(&cron), &|_| None) else {
            return Ok(());
        };
        let utc = |at| at;
        let mut after = start;
        for tick in (start + MINUTE..=start + 10 * DAY).step_by(MINUTE as usize) {
            if matches(&cron, tick) {
                prop_assert_eq!(schedule.next(after, &utc), Some(tick), "{}", text(&cron));
                after = tick;
            }
        }
        prop_assert!(schedule.next(after, &utc).is_none_or(|tick| tick > start + 10 * DAY));
    }

    #[test]
    fn ticks_are_where_the_clock_says(
        (start, clock) in any_start().prop_flat_map(|start| (Just(start), any_clock(start))),
        cron in any_cron(),
        within in prop::collection::vec(0..10 * DAY, 10),
        nearby in prop::collection::vec(-2 * HOUR..2 * HOUR, 10),
    ) {
        let Ok(schedule) = schedule::parse(&text(&cron), &|_| None) else {
            return Ok(());
        };
        let zone = |at| clock.show(at);
        let until = start + 10 * DAY;
        let ticks = walked(&cron, &clock, start, until);

        let mut found = Vec::new();
        let mut after = start;
        while let Some(tick) = schedule.next(after, &zone).filter(|tick| *tick <= until) {
            found.push(tick);
            after = tick;
        }
        prop_assert_eq!(&found, &ticks, "{}", text(&cron));

        // From any moment, not only from ticks, and from around changes above all.
        let within = within.into_iter().map(|within| start + within);
        let around = clock
            .changes
            .iter()
            .flat_map(|(change, _)| nearby.iter().map(move |nearby| change + nearby));
        for at in within.chain(around) {
            let behind = ticks.partition_point(|tick| *tick <= at);
            if let Some(tick) = ticks.get(behind) {
                prop_assert_eq!(schedule.next(at, &zone), Some(*tick), "{} at {}", text(&cron), at);
            }
            if behind > 0 {
                prop_assert_eq!(schedule.previous_or_at(at, &zone), Some(ticks[behind - 1]), "{} at {}", text(&cron), at);
            }
        }
    }

    #[test]
    fn every_tick_is_a_multiple(
        at in prop_oneof![any::<i64>(), -40_000 * DAY..40_000 * DAY],
        duration in prop_oneof![1_000_000..=DAY, 1_000_000..=365_000 * DAY],
    ) {
        let schedule = schedule::parse("every so often", &|_| Some(Interval::of_micros(duration)));
        let schedule = schedule.unwrap();
        let utc = |at| at;
        // 2000-01-01 is 730119 days after 0001-01-01.
        let multiple = |tick| (i128::from(tick) + 730_119 * i128::from(DAY)) % i128::from(duration) == 0;
        match schedule.next(at, &utc) {
            Some(tick) => prop_assert!(multiple(tick) && tick > at && tick.abs_diff(at) <= duration as u64),
            None => prop_assert!(at > i64::MAX - duration),
        }
        match schedule.previous_or_at(at, &utc) {
            Some(tick) => prop_assert!(multiple(tick) && tick <= at && tick.abs_diff(at) < duration as u64),
            None => prop_assert!(at < i64::MIN + duration),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(
        text in prop_oneof![
            any::<String>(),
            "[-*/,0-9a-z@? ]{0,20}",
            "([-*/,?L0-9]{1,5}|\\*|mon|JAN)( ([-*/,0-9]{1,4}|\\*|tue|Feb-mar)){4,5}",
            "(every|EVERY) ?.{0,10}",
        ],
        months in 0..2_i32, days in -1..2_i32, micros: i64, at: i64,
    ) {
        let interval = Interval { months, days, micros };
        if let Ok(schedule) = schedule::parse(&text, &|_| Some(interval)) {
            let utc = |at| at;
            prop_assert!(schedule.next(at, &utc).is_none_or(|tick| tick > at));
            prop_assert!(schedule.previous_or_at(at, &utc).is_none_or(|tick| tick <= at));
            // Whatever is read has ticks in our time.
            let now = 9539 * DAY;
            prop_assert!(micros > 1000 * DAY || schedule.next(now, &utc).is_some(), "{}", text);
        }
    }
}
