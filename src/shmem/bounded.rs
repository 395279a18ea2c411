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

    pub const fn new() -> Numbers {
        Numbers { numbers: [0; Numbers::ROOM], count: 0, more: false }
    }

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

    pub fn add_all(&mut self, others: &Numbers) {
        others.as_slice().iter().for_each(|number| self.add(*number));
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

    pub fn may_have(&self, number: u64) -> bool {
        self.more || self.as_slice().contains(&number)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.more
    }

    pub fn clear(&mut self) {
        (self.count, self.more) = (0, false);
    }
}

/// Numbers, however many, as bits of a Bloom filter with so many words, a power of 2: a number that
/// is not among them is rarely taken for one of them.
pub struct Filter<const WORDS: usize> {
    words: [u64; WORDS],
    is_filled: bool,
}

/// Among a thousand others one in sixteen is taken for one of them.
pub type Crowd = Filter<256>;

impl<const WORDS: usize> Filter<WORDS> {
    pub const fn new() -> Self {
        Filter { words: [0; WORDS], is_filled: false }
    }

    /// Adds a number. That is all that a job costs which becomes final.
    pub fn add(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.words[word] |= bit;
        self.is_filled = true;
    }

    /// Adds those of a longer one: a number is at the remainder of its word there.
    pub fn add_all<const MORE: usize>(&mut self, others: &Filter<MORE>) {
        if others.is_filled {
            for (word, bits) in others.words.iter().enumerate() {
                self.words[word % WORDS] |= bits;
            }
            self.is_filled = true;
        }
    }

    /// Adds some that are not known: it may be any.
    pub fn add_more(&mut self) {
        (self.words, self.is_filled) = ([u64::MAX; WORDS], true);
    }

    pub fn may_have(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.words[word] & bit != 0
    }

    pub fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    pub fn is_empty(&self) -> bool {
        !self.is_filled
    }

    pub fn clear(&mut self) {
        if self.is_filled {
            *self = Self::new();
        }
    }

    fn place(number: u64) -> (usize, u64) {
        ((number >> 6) as usize % WORDS, 1 << (number % 64))
    }
}

/// Names, as many as fit.
pub struct Names {
    /// The names in order, each after its length in two bytes.
    bytes: [u8; Names::ROOM],
    used: usize,
    more: bool,
}

impl Names {
    const ROOM: usize = 1000;

    pub const fn new() -> Names {
        Names { bytes: [0; Names::ROOM], used: 0, more: false }
    }

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

    pub fn is_empty(&self) -> bool {
        self.used == 0 && !self.more
    }

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

    use super::{Crowd, Filter, Names, Numbers};

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
        let mut many = Crowd::new();
        assert!(many.is_empty() && !many.may_have(number(0)));
        for count in [32, 1000] {
            (0..count).for_each(|n| many.add(number(n)));
            assert!((0..count).all(|n| many.may_have(number(n))));
            let wrong = (1000..2000).filter(|n| many.may_have(number(*n))).count();
            let most = if count < 1000 { 10 } else { 120 };
            assert!(wrong <= most, "{count}: {wrong}");
            let mut filter = Filter::<8>::new();
            filter.add_all(&many);
            assert!((0..count).all(|n| filter.may_have(number(n))));
            many.clear();
            assert!(many.is_empty() && !many.may_have(number(0)) && !many.may_have(number(999)));
        }
        many.add_more();
        assert!(!many.is_empty() && many.may_have(number(5)));
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
