//! Sets of a fixed size. They are filled and read while a transaction commits, where
//! nothing may fail, not even an allocation. What does not fit is only counted as more.

/// Numbers, as many as fit.
pub struct Numbers {
    numbers: [u64; Numbers::ROOM],
    count: usize,
    more: bool,
}

impl Numbers {
    const ROOM: usize = 32;

    /// None.
    pub const fn new() -> Numbers {
        Numbers {
            numbers: [0; Numbers::ROOM],
            count: 0,
            more: false,
        }
    }

    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        if self.as_slice().contains(&number) {
            return;
        }
        match self.numbers.get_mut(self.count) {
            Some(free) => {
                *free = number;
                self.count += 1;
            }
            None => self.more = true,
        }
    }

    /// Those that fitted.
    pub fn as_slice(&self) -> &[u64] {
        &self.numbers[..self.count]
    }

    /// Whether it may be one of them.
    pub fn may_have(&self, number: u64) -> bool {
        self.more || self.as_slice().contains(&number)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.count, self.more) = (0, false);
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::Numbers;

    #[pg_test]
    fn numbers_are_kept_once_and_what_does_not_fit_may_be_any() {
        let mut numbers = Numbers::new();
        assert!(numbers.is_empty() && !numbers.may_have(1));
        (1..=Numbers::ROOM as u64).for_each(|n| {
            numbers.add(n);
            numbers.add(1);
        });
        assert_eq!(numbers.as_slice().len(), Numbers::ROOM);
        assert!(!numbers.may_have(0));
        numbers.add(0);
        assert!(numbers.may_have(0) && numbers.may_have(999));
        numbers.clear();
        assert!(numbers.is_empty() && !numbers.may_have(0));
    }
}
