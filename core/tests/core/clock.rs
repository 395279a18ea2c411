//! Clocks of time zones for tests, in the place of the server's data.

/// A clock by the moments at which it is changed.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Ahead of UTC by so much before the first change, in minutes.
    pub first: i64,
    /// From this moment on by so much, in order.
    pub changes: Vec<(i64, i64)>,
}

impl Clock {
    /// What it shows at a moment.
    pub fn show(&self, at: i64) -> i64 {
        let changes = self.changes.iter().rev();
        let latest = changes.map(|(from, minutes)| (*from, *minutes)).find(|(from, _)| *from <= at);
        at + latest.map_or(self.first, |(_, minutes)| minutes) * 60_000_000
    }
}
