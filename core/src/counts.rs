//! What is counted of the jobs of a queue and kind in a minute: how often something happened, and
//! how long attempts waited and ran, in buckets of a fixed size.

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job was inserted.
    Inserted,
    /// An attempt started.
    Started,
    /// A job was completed.
    Completed,
    /// An attempt failed.
    Failed,
    /// A job was discarded.
    Discarded,
    /// A job was cancelled.
    Cancelled,
}

impl Event {
    /// All of them, in the order of their places.
    pub const ALL: [Event; 6] = [
        Event::Inserted,
        Event::Started,
        Event::Completed,
        Event::Failed,
        Event::Discarded,
        Event::Cancelled,
    ];
}

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The time from when a job is due until its attempt starts.
    Wait,
    /// The time from the start of an attempt until its end.
    Run,
}

/// Times up to so many microseconds, as a power of two, are in the first bucket.
const FIRST: u32 = 8;
/// Longer times than this are in the last one: 2^42 microseconds are 50 days.
const LAST: u32 = 42;
/// From one power of two to the next there are so many buckets, as a power of two: a bucket ends at
/// most a quarter above its beginning.
const PARTS: u32 = 2;
/// The buckets of one kind of time.
pub const BUCKETS: usize = ((LAST - FIRST) << PARTS) as usize + 2;

/// The places of all that is counted: events, the sums of both times in microseconds, and their
/// buckets. What is stored goes by these numbers.
pub const PLACES: usize = SUMS + 2 + 2 * BUCKETS;
const SUMS: usize = Event::ALL.len();

/// The place of an event.
pub fn place(event: Event) -> u16 {
    event as u16
}

/// The places of a time: of its sum, and of its bucket.
pub fn places(time: Time, micros: i64) -> [u16; 2] {
    let bucket = first_bucket(time) + bucket(micros);
    [(SUMS + time as usize) as u16, bucket as u16]
}

fn first_bucket(time: Time) -> usize {
    SUMS + 2 + time as usize * BUCKETS
}

/// The bucket of a time: above the end of the one before, up to its own.
pub fn bucket(micros: i64) -> usize {
    let below = micros.max(1) as u64 - 1;
    if below >> FIRST == 0 {
        return 0;
    }
    let power = below.ilog2();
    if power >= LAST {
        return BUCKETS - 1;
    }
    let part = (below >> (power - PARTS)) as usize & ((1 << PARTS) - 1);
    1 + (((power - FIRST) as usize) << PARTS) + part
}

/// Where a bucket ends; that of the last one is where it begins.
pub fn end(bucket: usize) -> i64 {
    let Some(number) = bucket.min(BUCKETS - 2).checked_sub(1) else {
        return 1 << FIRST;
    };
    let power = FIRST + (number >> PARTS) as u32;
    let part = (number & ((1 << PARTS) - 1)) as i64 + 1;
    (1 << power) + (part << (power - PARTS))
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Box<[u64; PLACES]>);

impl Default for Counts {
    fn default() -> Counts {
        Counts(Box::new([0; PLACES]))
    }
}

impl Counts {
    /// Adds to a place. One that there is not is passed over.
    pub fn add(&mut self, place: usize, count: u64) {
        if let Some(place) = self.0.get_mut(place) {
            *place = place.saturating_add(count);
        }
    }

    /// Adds what others have counted.
    pub fn add_all(&mut self, others: &Counts) {
        for (place, count) in others.0.iter().enumerate() {
            self.add(place, *count);
        }
    }

    /// Adds what was stored: places and counts in turns.
    pub fn add_stored(&mut self, stored: &[i64]) {
        for pair in stored.chunks_exact(2) {
            self.add(pair[0] as usize, pair[1].max(0) as u64);
        }
    }

    /// What is to be stored: the places that have something, each with its count.
    pub fn to_store(&self) -> Vec<i64> {
        let places = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        places.flat_map(|(place, count)| [place as i64, *count as i64]).collect()
    }

    /// How often something happened.
    pub fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// All times together, in microseconds.
    pub fn sum(&self, time: Time) -> u64 {
        self.0[SUMS + time as usize]
    }

    /// How many times were up to so long, if a bucket ends there.
    pub fn up_to(&self, time: Time, micros: i64) -> u64 {
        let buckets = self.buckets(time).iter().enumerate();
        let all = buckets.filter(|(n, _)| *n < BUCKETS - 1 && end(*n) <= micros);
        all.map(|(_, count)| count).sum()
    }

    /// How many times were measured.
    pub fn measured(&self, time: Time) -> u64 {
        self.buckets(time).iter().sum()
    }

    /// The time that such a part of all does not exceed: somewhere in the bucket that has it, by
    /// its rank there. So it is off by less than a quarter, or less than 256 microseconds.
    pub fn percentile(&self, time: Time, part: f64) -> Option<i64> {
        let all = self.measured(time);
        let rank = ((part * all as f64).ceil() as u64).clamp(1, all.max(1));
        let mut before = 0;
        for (number, count) in self.buckets(time).iter().enumerate() {
            if before + count >= rank {
                let begin = number.checked_sub(1).map_or(0, end);
                let into = ((rank - before) as f64 - 0.5) / *count as f64;
                return Some(begin + ((end(number) - begin) as f64 * into).ceil() as i64);
            }
            before += count;
        }
        None
    }

    fn buckets(&self, time: Time) -> &[u64] {
        &self.0[first_bucket(time)..][..BUCKETS]
    }
}
