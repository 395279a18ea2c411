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
        if !self.as_slice().contains(&number) && !self.push(number) {
            self.more = true;
        }
    }

    /// Adds a number that is not among them; whether it fitted.
    fn push(&mut self, number: u64) -> bool {
        let free = self.numbers.get_mut(self.count);
        let fits = free.map(|free| *free = number).is_some();
        self.count += usize::from(fits);
        fits
    }

    /// Those that fitted.
    pub fn as_slice(&self) -> &[u64] {
        &self.numbers[..self.count]
    }

    /// Adds those of another set.
    pub fn add_all(&mut self, others: &Numbers) {
        others
            .as_slice()
            .iter()
            .for_each(|number| self.add(*number));
        self.more |= others.more;
    }

    /// Adds some that are not known.
    pub fn add_more(&mut self) {
        self.more = true;
    }

    /// Whether others did not fit.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Whether it may be one of them.
    pub fn may_have(&self, number: u64) -> bool {
        self.more || self.as_slice().contains(&number)
    }

    /// Adds them to a filter.
    pub fn add_to(&self, filter: &mut Filter) {
        self.as_slice()
            .iter()
            .for_each(|number| filter.add(*number));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.more
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.count, self.more) = (0, false);
    }
}

/// Numbers, however many: those that do not fit are bits of a Bloom filter.
pub struct ManyNumbers {
    few: Numbers,
    others: [u64; ManyNumbers::WORDS],
    has_others: bool,
}

impl ManyNumbers {
    /// Among a thousand others one in sixteen is taken for one of them.
    const WORDS: usize = 256;

    /// None.
    pub const fn new() -> ManyNumbers {
        ManyNumbers {
            few: Numbers::new(),
            others: [0; ManyNumbers::WORDS],
            has_others: false,
        }
    }

    /// Adds a number. That is all that a job costs which becomes final.
    pub fn push(&mut self, number: u64) {
        if !self.few.push(number) {
            let (word, bit) = place(number, ManyNumbers::WORDS);
            self.others[word] |= bit;
            self.has_others = true;
        }
    }

    /// Adds some that are not known.
    pub fn add_more(&mut self) {
        self.few.add_more();
    }

    /// Whether others are not known.
    pub fn has_more(&self) -> bool {
        self.few.has_more()
    }

    /// Whether it may be one of them.
    pub fn may_have(&self, number: u64) -> bool {
        let (word, bit) = place(number, ManyNumbers::WORDS);
        self.few.may_have(number) || self.has_others && self.others[word] & bit != 0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.few.is_empty()
    }

    /// Adds them to a filter.
    pub fn add_to(&self, filter: &mut Filter) {
        self.few.add_to(filter);
        if self.has_others {
            for (word, bits) in self.others.iter().enumerate() {
                filter.0[word % Filter::WORDS] |= bits;
            }
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.few.clear();
        if self.has_others {
            (self.others, self.has_others) = ([0; ManyNumbers::WORDS], false);
        }
    }
}

/// Numbers as a Bloom filter.
#[derive(Default)]
pub struct Filter(pub [u64; Filter::WORDS]);

impl Filter {
    /// So many words: no number is told for certain, but most that are not among them.
    pub const WORDS: usize = 8;

    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        let (word, bit) = place(number, Filter::WORDS);
        self.0[word] |= bit;
    }
}

/// Where a number is in a filter of so many words, a power of 2: in a shorter one it is at the
/// remainder of the word's number.
fn place(number: u64, words: usize) -> (usize, u64) {
    ((number >> 6) as usize % words, 1 << (number % 64))
}

/// Names, as many as fit.
pub struct Names {
    /// one after the other, each with its length in two bytes before it
    bytes: [u8; Names::ROOM],
    used: usize,
    more: bool,
}

impl Names {
    const ROOM: usize = 1000;

    /// None.
    pub const fn new() -> Names {
        Names {
            bytes: [0; Names::ROOM],
            used: 0,
            more: false,
        }
    }

    /// Adds a name.
    pub fn add(&mut self, name: &str) {
        if self.iter().any(|one| one == name.as_bytes()) {
            return;
        }
        let begin = self.used + 2;
        match self.bytes.get_mut(self.used..begin + name.len()) {
            Some(free) => {
                let (length, bytes) = free.split_at_mut(2);
                length.copy_from_slice(&(name.len() as u16).to_le_bytes());
                bytes.copy_from_slice(name.as_bytes());
                self.used = begin + name.len();
            }
            None => self.more = true,
        }
    }

    /// Adds those of another set.
    pub fn add_all(&mut self, others: &Names) {
        others.for_each(|name| self.add(name));
        self.more |= others.more;
    }

    /// Hands over those that fitted.
    pub fn for_each(&self, mut work: impl FnMut(&str)) {
        for name in self.iter() {
            // They were put in as text.
            if let Ok(name) = std::str::from_utf8(name) {
                work(name);
            }
        }
    }

    /// Adds some that are not known.
    pub fn add_more(&mut self) {
        self.more = true;
    }

    /// Whether others did not fit.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0 && !self.more
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.used, self.more) = (0, false);
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..self.used];
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let (name, behind) = behind.split_at_checked(u16::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(name)
        })
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::{Filter, ManyNumbers, Names, Numbers};

    #[pg_test]
    fn numbers_are_kept_once_and_what_does_not_fit_may_be_any() {
        let mut numbers = Numbers::new();
        assert!(numbers.is_empty() && !numbers.may_have(1));
        (1..=Numbers::ROOM as u64).for_each(|n| {
            numbers.add(n);
            numbers.add(1);
        });
        assert_eq!(numbers.as_slice().len(), Numbers::ROOM);
        assert!(!numbers.has_more() && !numbers.may_have(0));
        numbers.add(0);
        assert!(numbers.has_more() && numbers.may_have(0) && numbers.may_have(999));
        numbers.clear();
        assert!(numbers.is_empty() && !numbers.may_have(0));
    }

    /// Far from each other, as those of jobs.
    fn number(n: u64) -> u64 {
        crate::shmem::things::job(n as i64)
    }

    #[pg_test]
    fn a_crowd_has_all_that_were_pushed_and_few_others() {
        let mut many = ManyNumbers::new();
        assert!(many.is_empty() && !many.may_have(number(0)));
        for count in [Numbers::ROOM as u64, 1000] {
            (0..count).for_each(|n| many.push(number(n)));
            assert!((0..count).all(|n| many.may_have(number(n))));
            let wrong = (1000..2000).filter(|n| many.may_have(number(*n))).count();
            let most = if count < 1000 { 0 } else { 120 };
            assert!(wrong <= most, "{count}: {wrong}");
            let mut filter = Filter::default();
            many.add_to(&mut filter);
            for n in 0..count {
                let mut one = Filter::default();
                one.add(number(n));
                assert!(
                    one.0
                        .iter()
                        .zip(filter.0)
                        .all(|(one, all)| one & all == *one)
                );
            }
            many.clear();
            assert!(many.is_empty() && !many.may_have(number(0)) && !many.may_have(number(999)));
        }
        many.add_more();
        assert!(!many.is_empty() && many.has_more() && many.may_have(number(5)));
    }

    fn all(names: &Names) -> Vec<String> {
        let mut all = Vec::new();
        names.for_each(|name| all.push(name.to_string()));
        all
    }

    #[pg_test]
    fn names_are_kept_once_in_order_and_what_does_not_fit_is_noticed() {
        let longest = "\u{10FFFF}".repeat(127);
        let mut names = Names::new();
        assert!(names.is_empty());
        for name in ["b", "a", "b", &longest, "ab", "a"] {
            names.add(name);
        }
        assert_eq!(all(&names), ["b", "a", &longest, "ab"]);
        assert!(!names.has_more());
        names.add(&longest.replace('\u{10FFFF}', "\u{10FFFE}"));
        assert!(names.has_more());
        names.add("c");
        let mut others = Names::new();
        others.add("z");
        others.add_all(&names);
        assert_eq!(all(&others), ["z", "b", "a", &longest, "ab", "c"]);
        assert!(others.has_more());
        others.clear();
        assert!(others.is_empty() && all(&others).is_empty());
    }

    #[pg_test]
    fn names_fill_their_room_to_the_last_byte() {
        let mut names = Names::new();
        names.add(&"x".repeat(Names::ROOM - 2 - 3));
        names.add("y");
        assert!(!names.has_more());
        assert_eq!(all(&names).len(), 2);
        names.add("z");
        assert!(names.has_more());
        assert_eq!(all(&names).len(), 2);
    }
}
