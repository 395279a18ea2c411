//! Time zones: what a clock on the wall shows.

/// What clocks of a time zone show at a moment: microseconds since 2000-01-01 00:00 UTC to
/// microseconds since 2000-01-01 00:00 as the clocks have it.
///
/// In the database it is the server's own data of time zones that knows. The way back follows from
/// it.
pub type Zone<'a> = &'a dyn Fn(i64) -> i64;

/// A day: no clock is further away from UTC, and no clock is changed twice within two of them.
const FAR: i64 = 86_400_000_000;

/// When clocks show a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// At one moment.
    Once(i64),
    /// At two, the clocks being put back between them.
    Twice(i64, i64),
    /// Never: this is when they are put forward, beyond it.
    Never(i64),
}

/// When the clocks show a time.
pub(super) fn when_shown(time: i64, zone: Zone) -> Shown {
    // If they are changed nearby, these are their distances from UTC before and after.
    let [before, after] = [time - FAR, time + FAR].map(|moment| zone(moment) - moment);
    let [one, other] = [time - before, time - after];
    match (zone(one) == time, zone(other) == time) {
        (true, true) if one != other => Shown::Twice(one.min(other), one.max(other)),
        (true, _) => Shown::Once(one),
        (false, true) => Shown::Once(other),
        (false, false) => Shown::Never(changed(time - FAR, time + FAR, zone)),
    }
}

/// When the clocks are changed, once, between these moments: the first moment at which they have
/// been.
pub(super) fn changed(before: i64, after: i64, zone: Zone) -> i64 {
    let distance = zone(before) - before;
    let (mut before, mut after) = (before, after);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if zone(middle) - middle == distance {
            before = middle;
        } else {
            after = middle;
        }
    }
    after
}
