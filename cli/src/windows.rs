//! Windows of ids.

use std::ops::Range;
use std::time::Duration;

/// The size of the first window: a page, if most ids are matching jobs.
pub(crate) const FIRST_WINDOW: i64 = 250;
/// The next window is larger only if there is time for this many like the last one. For a window
/// with many jobs the planner would start with all jobs of a state.
const GROWING: f64 = 16.0;

/// Ranges of ids, from one end of a range to the other.
pub(crate) struct Windows {
    pub(crate) left: Range<i64>,
    /// The size of the next window; 0 if time ran out.
    pub(crate) size: i64,
    pub(crate) is_up: bool,
}

impl Windows {
    pub(crate) fn next(&mut self) -> Option<Range<i64>> {
        let Range { start, end } = self.left;
        if start >= end || self.size == 0 {
            return None;
        }
        let window = match self.is_up {
            true => start..end.min(start.saturating_add(self.size)),
            false => start.max(end.saturating_sub(self.size))..end,
        };
        match self.is_up {
            true => self.left.start = window.end,
            false => self.left.end = window.start,
        }
        Some(window)
    }

    /// The cost of a window depends on how many of its ids are jobs; the next one may be like the
    /// last. Sizes are always the same, so that live refreshes read the same windows.
    pub(crate) fn fit(&mut self, took: Duration, left: Duration) {
        let took = took.max(Duration::from_micros(1));
        self.size = match left.as_secs_f64() / took.as_secs_f64() {
            times if times >= GROWING => self.size.saturating_mul(4),
            times if times >= 1.0 => self.size,
            _ => 0,
        };
    }

    /// The last searched id, if there are others.
    pub(crate) fn rest(&self) -> Option<i64> {
        let Range { start, end } = self.left;
        (start < end).then_some(if self.is_up { start - 1 } else { end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn windows_have_each_id_once() {
        for is_up in [false, true] {
            let mut windows = Windows { left: 1..10_001, size: 250, is_up };
            let mut seen = Vec::new();
            while let Some(window) = windows.next() {
                let ids: Vec<i64> = window.collect();
                seen.extend(if is_up { ids } else { ids.into_iter().rev().collect() });
                windows.fit(MS(1), MS(100));
            }
            let all: Vec<i64> = (1..10_001).collect();
            let expected = if is_up { all } else { all.into_iter().rev().collect() };
            assert_eq!(seen, expected);
            assert_eq!(windows.rest(), None);
        }
    }

    #[test]
    fn windows_grow_while_there_is_time() {
        let mut windows = Windows { left: 1..1_000_001, size: 250, is_up: false };
        for (took, left, size) in [(1, 100, 1_000), (5, 90, 4_000), (10, 85, 4_000), (10, 9, 0)] {
            windows.next();
            windows.fit(MS(took), MS(left));
            assert_eq!(windows.size, size, "{took} of {left}");
        }
        assert!(windows.next().is_none());
        assert_eq!(windows.rest(), Some(1_000_001 - 250 - 1_000 - 2 * 4_000));
    }
}
