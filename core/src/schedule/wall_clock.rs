//! From the times that a clock shows to moments, over the changes of the clock.

use super::cron::Cron;
use super::zone::{self, Shown, Zone};

/// How far from 2000 ticks are looked for, so that no sum overflows: nearly 3000 years.
const FARTHEST: i64 = 1_095_000 * 86_400_000_000;

/// The first tick after a moment.
pub(super) fn next(cron: &Cron, after: i64, zone: Zone) -> Option<i64> {
    if !(-FARTHEST..=FARTHEST).contains(&after) {
        return None;
    }
    let clock = zone(after);
    // Times that the clock has shown and is going to show again come before those that it has not
    // shown yet.
    let repeated = match zone::when_shown(clock, zone) {
        Shown::Twice(first, second) if after == first => {
            let put_back = zone::changed(first, second, zone);
            Some(zone(put_back) - 1)
        }
        _ => None,
    };
    let first_beyond = |start| {
        let mut time = start;
        loop {
            time = cron.next(time)?;
            let ticks = ticks(cron, time, zone).into_iter().flatten();
            if let Some(tick) = ticks.filter(|tick| *tick > after).min() {
                return Some(tick);
            }
        }
    };
    let starts = [Some(clock), repeated].into_iter().flatten();
    starts.filter_map(first_beyond).min()
}

/// The latest tick that is not after a moment.
pub(super) fn previous_or_at(cron: &Cron, at: i64, zone: Zone) -> Option<i64> {
    if !(-FARTHEST..=FARTHEST).contains(&at) {
        return None;
    }
    let clock = zone(at);
    // Where the clock shows times again, it has already shown later ones.
    let shown_before = match zone::when_shown(clock, zone) {
        Shown::Twice(first, second) if at == second => {
            let put_back = zone::changed(first, second, zone);
            Some(zone(put_back - 1))
        }
        _ => None,
    };
    let latest_until = |start: i64| {
        let mut time = start;
        loop {
            time = cron.previous_or_at(time)?;
            let ticks = ticks(cron, time, zone).into_iter().flatten();
            if let Some(tick) = ticks.filter(|tick| *tick <= at).max() {
                return Some(tick);
            }
            time -= 1;
        }
    };
    let starts = [Some(clock), shown_before].into_iter().flatten();
    starts.filter_map(latest_until).max()
}

/// The ticks for a time that matches.
fn ticks(cron: &Cron, time: i64, zone: Zone) -> [Option<i64>; 2] {
    match (zone::when_shown(time, zone), cron.is_every_hour()) {
        (Shown::Once(moment), _) => [Some(moment), None],
        (Shown::Twice(first, second), true) => [Some(first), Some(second)],
        (Shown::Twice(first, _), false) => [Some(first), None],
        (Shown::Never(_), true) => [None, None],
        (Shown::Never(put_forward), false) => [Some(put_forward), None],
    }
}
