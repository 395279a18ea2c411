//! What holds for all schedules: ticks are where walking through time minute by minute finds them.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike};
use jobs_core::interval::Interval;
use jobs_core::schedule;
use proptest::prelude::*;

use crate::clock::Clock;

const MINUTE: i64 = 60_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A field of cron: its text, and the numbers and days that it stands for.
#[derive(Clone, Debug, Default)]
struct Field {
    text: String,
    numbers: Vec<u32>,
    days: Vec<Day>,
}

/// A day that depends on its month. Weekdays count from Sunday, 0.
#[derive(Clone, Copy, Debug)]
enum Day {
    Last,
    LastWorkday,
    Nearest(u32),
    LastOf(u32),
    Nth(u32, u32),
}

impl Day {
    fn text(self) -> String {
        match self {
            Day::Last => "L".into(),
            Day::LastWorkday => "lw".into(),
            Day::Nearest(day) => format!("{day}W"),
            Day::LastOf(weekday) => format!("{weekday}L"),
            Day::Nth(weekday, nth) => format!("{weekday}#{nth}"),
        }
    }

    /// Whether it is this date, by looking at all days of the month.
    fn is(self, date: NaiveDate) -> bool {
        let first = date.with_day(1).expect("every month has a first day");
        let month = || first.iter_days().take_while(|day| day.month() == date.month());
        let weekday = |day: &NaiveDate| day.weekday().num_days_from_sunday();
        let workdays = || month().filter(|day| (1..=5).contains(&weekday(day)));
        let of_weekday = |wanted: u32| month().filter(move |day| weekday(day) == wanted);
        let found = match self {
            Day::Last => month().last(),
            Day::LastWorkday => workdays().last(),
            Day::Nearest(wanted) => month()
                .find(|day| day.day() == wanted)
                .and_then(|_| workdays().min_by_key(|day| day.day().abs_diff(wanted))),
            Day::LastOf(wanted) => of_weekday(wanted).last(),
            Day::Nth(wanted, nth) => of_weekday(wanted).nth(nth as usize - 1),
        };
        found == Some(date)
    }
}

impl Field {
    fn of(days: Vec<Day>) -> Self {
        let texts: Vec<_> = days.iter().map(|day| day.text()).collect();
        Field { text: texts.join(","), days, ..Field::default() }
    }

    fn has_day(&self, number: u32, date: NaiveDate) -> bool {
        self.has(number) || self.days.iter().any(|day| day.is(date))
    }

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
    let field = |text: String, numbers| Field { text, numbers, ..Field::default() };
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
        text: items.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(","),
        numbers: items.into_iter().flat_map(|item| item.numbers).collect(),
        ..Field::default()
    })
}

fn days_of_month() -> impl Strategy<Value = Field> {
    let day =
        prop_oneof![Just(Day::Last), Just(Day::LastWorkday), (1..=31_u32).prop_map(Day::Nearest)];
    prop::collection::vec(day, 1..3).prop_map(Field::of)
}

fn days_of_week() -> impl Strategy<Value = Field> {
    let day = prop_oneof![
        (0..=6_u32).prop_map(Day::LastOf),
        (0..=6_u32, 1..=5_u32).prop_map(|(weekday, nth)| Day::Nth(weekday, nth)),
    ];
    prop::collection::vec(day, 1..3).prop_map(Field::of)
}

/// Cron's five fields.
type Cron = (Field, Field, Field, Field, Field);

fn any_cron() -> impl Strategy<Value = Cron> {
    // Few schedules of a month or a day of it have a tick in the time that is walked through.
    let all = || Just(Field { text: "*".into(), numbers: (0..=31).collect(), ..Field::default() });
    (
        any_field(0, 59),
        any_field(0, 23),
        prop_oneof![
            2 => all().boxed(),
            2 => any_field(1, 31).boxed(),
            1 => days_of_month().boxed(),
        ],
        prop_oneof![3 => all().boxed(), 1 => any_field(1, 12).boxed()],
        prop_oneof![
            2 => all().boxed(),
            2 => any_field(0, 6).boxed(),
            1 => days_of_week().boxed(),
        ],
    )
}

fn text((minute, hour, day, month, weekday): &Cron) -> String {
    format!("{} {} {} {} {}", minute.text, hour.text, day.text, month.text, weekday.text)
}

/// Whether the fields match what a clock shows.
fn matches((minute, hour, day, month, weekday): &Cron, shown: i64) -> bool {
    let time = calendar(shown);
    if !(minute.has(time.minute()) && hour.has(time.hour()) && month.has(time.month())) {
        return false;
    }
    let of_month = day.has_day(time.day(), time.date());
    let of_week = weekday.has_day(time.weekday().num_days_from_sunday(), time.date());
    if day.has_star() || weekday.has_star() { of_month && of_week } else { of_month || of_week }
}

fn calendar(shown: i64) -> NaiveDateTime {
    DateTime::from_timestamp_micros(shown + 946_684_800_000_000).expect("in range").naive_utc()
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
        Clock { first, changes: changes.collect() }
    })
}

/// The clocks of 35 time zones as they were and will be changed, of most since 1993: by half an
/// hour, by two hours or by a day, once or four times a year, or never regularly.
fn real_clocks() -> Vec<(&'static str, Clock)> {
    let clock = |line: &'static str| {
        let mut words = line.split(' ');
        let mut next = || words.next().expect("a line has a zone and its offset");
        let (zone, first) = (next(), next().parse().expect("minutes"));
        let changes = words.map(|change| {
            let (moment, minutes) = change.split_once('=').expect("a moment and minutes");
            let moment = NaiveDateTime::parse_from_str(moment, "%Y-%m-%dT%H:%M").expect("a moment");
            let at = moment.and_utc().timestamp_micros() - 946_684_800_000_000;
            (at, minutes.parse().expect("minutes"))
        });
        let changes = changes.collect();
        (zone, Clock { first, changes })
    };
    include_str!("vectors/zones.txt").lines().map(clock).collect()
}

/// One of these clocks, and ten days around one of its changes.
fn any_real_clock() -> impl Strategy<Value = (&'static str, Clock, i64)> {
    let any_change = any::<prop::sample::Index>();
    let any_clock = prop::sample::select(real_clocks());
    (any_clock, any_change, 1..9_i64).prop_map(|((zone, clock), nth, days_before)| {
        let (change, _) = *nth.get(&clock.changes);
        let start = (change - days_before * DAY).div_euclid(DAY) * DAY;
        let (from, until) = (start - 3 * DAY, start + 13 * DAY);
        let first = (clock.show(from) - from) / MINUTE;
        let changes = clock.changes.into_iter();
        let changes = changes.filter(|(at, _)| (from + 1..until).contains(at)).collect();
        (zone, Clock { first, changes }, start)
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

/// Compares the ticks of ten days with those of the walk, also from moments `within` them and
/// `nearby` each change.
fn compare(
    cron: &Cron,
    clock: &Clock,
    start: i64,
    within: &[i64],
    nearby: &[i64],
) -> Result<(), TestCaseError> {
    let Ok(schedule) = schedule::parse(&text(cron), &|_| None) else {
        return Ok(());
    };
    let zone = |at| clock.show(at);
    let until = start + 10 * DAY;
    let ticks = walked(cron, clock, start, until);

    let mut found = Vec::new();
    let mut after = start;
    while let Some(tick) = schedule.next(after, &zone).filter(|tick| *tick <= until) {
        found.push(tick);
        after = tick;
    }
    prop_assert_eq!(&found, &ticks, "{}", text(cron));

    // From any moment, not only from ticks, and from around changes above all.
    let within = within.iter().map(|within| start + within);
    let around = clock
        .changes
        .iter()
        .flat_map(|(change, _)| nearby.iter().map(move |nearby| change + nearby))
        .filter(|at| (start..until).contains(at));
    for at in within.chain(around) {
        let behind = ticks.partition_point(|tick| *tick <= at);
        if let Some(tick) = ticks.get(behind) {
            prop_assert_eq!(schedule.next(at, &zone), Some(*tick), "{} at {}", text(cron), at);
        }
        if behind > 0 {
            prop_assert_eq!(
                schedule.previous_or_at(at, &zone),
                Some(ticks[behind - 1]),
                "{} at {}",
                text(cron),
                at
            );
        }
    }
    Ok(())
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
        compare(&cron, &clock, start, &within, &nearby)?;
    }

    #[test]
    fn ticks_are_where_real_clocks_say(
        (zone, clock, start) in any_real_clock(),
        cron in any_cron(),
        within in prop::collection::vec(0..10 * DAY, 10),
        nearby in prop::collection::vec(-2 * HOUR..2 * HOUR, 10),
    ) {
        compare(&cron, &clock, start, &within, &nearby)
            .map_err(|error| TestCaseError::fail(format!("{zone}: {error}")))?;
    }

    #[test]
    fn every_tick_is_a_multiple(
        at in prop_oneof![any::<i64>(), -40_000 * DAY..40_000 * DAY],
        duration in prop_oneof![1_000_000..=DAY, 1_000_000..=365_000 * DAY],
    ) {
        let schedule = schedule::parse("every 1 x", &|_| Some(Interval::of_micros(duration)));
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
            "0 0( ([-*/,0-9LW#]{1,4}|\\*)){3}",
            "(CRON_TZ=)?[a-z/]{0,9} ?([*0-9]{1,2} ){4,6}[*?a-zA-Z/]{1,9}",
            "@?(every|EVERY) ?.{0,10}",
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
