//! Buckets of times, and what is made of them.

use jobs_core::counts::{BUCKETS, Counts, Event, PLACES, Time, bucket, end, place, places};

fn measured(times: &[i64]) -> Counts {
    let mut counts = Counts::default();
    for micros in times {
        let [sum, bucket] = places(Time::Run, *micros);
        counts.add(sum.into(), *micros as u64);
        counts.add(bucket.into(), 1);
    }
    counts
}

#[test]
fn a_bucket_ends_at_most_a_quarter_above_its_beginning() {
    assert_eq!(end(0), 256);
    for number in 1..BUCKETS - 1 {
        let (begin, end) = (end(number - 1), end(number));
        assert!(begin < end && 4 * (end - begin) <= begin, "{number}");
        assert_eq!(bucket(begin), number - 1);
        assert_eq!(bucket(begin + 1), number);
        assert_eq!(bucket(end), number);
    }
    assert_eq!(end(BUCKETS - 2), 1 << 42);
    assert_eq!(bucket((1 << 42) + 1), BUCKETS - 1);
    assert_eq!(bucket(i64::MAX), BUCKETS - 1);
    for micros in [i64::MIN, -1, 0, 1, 256] {
        assert_eq!(bucket(micros), 0, "{micros}");
    }
}

#[test]
fn powers_of_four_are_ends() {
    // jobs.metrics() tells how many are up to each.
    for power in (10..=34).step_by(2) {
        assert!((0..BUCKETS).any(|number| end(number) == 1 << power));
    }
}

#[test]
fn no_two_things_have_one_place() {
    let mut seen = vec![0; PLACES];
    for event in Event::ALL {
        seen[usize::from(place(event))] += 1;
    }
    for time in [Time::Wait, Time::Run] {
        seen[usize::from(places(time, 0)[0])] += 1;
        for number in 0..BUCKETS - 1 {
            seen[usize::from(places(time, end(number))[1])] += 1;
        }
        seen[usize::from(places(time, i64::MAX)[1])] += 1;
    }
    assert!(seen.iter().all(|count| *count == 1), "{seen:?}");
}

#[test]
fn a_percentile_is_in_the_bucket_of_the_time_with_its_rank() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
        seed >> 33
    };
    for count in [1, 2, 3, 10, 99, 100, 1000] {
        let mut times: Vec<i64> = (0..count)
            .map(|_| {
                let power = random() % 40;
                ((random() << 9) as i64) & ((1 << power) - 1)
            })
            .collect();
        let counts = measured(&times);
        times.sort_unstable();
        for part in [0.5, 0.95, 0.99] {
            let rank = (part * count as f64).ceil() as usize;
            let exact = times[rank - 1];
            let found = counts.percentile(Time::Run, part).expect("there are some");
            assert_eq!(bucket(found), bucket(exact), "{exact} {found}");
            assert!((found - exact).abs() <= (exact / 4).max(256), "{exact} {found}");
        }
        assert_eq!(counts.sum(Time::Run), times.iter().sum::<i64>() as u64);
        let up_to = times.iter().filter(|time| **time <= 1 << 20).count() as u64;
        assert_eq!(counts.up_to(Time::Run, 1 << 20), up_to);
        assert_eq!(counts.measured(Time::Run), count as u64);
    }
    assert_eq!(Counts::default().percentile(Time::Wait, 0.5), None);
}

#[test]
fn what_is_stored_is_what_was_counted() {
    let mut counts = measured(&[1, 1000, 1_000_000]);
    counts.add(place(Event::Failed).into(), 7);
    let stored = counts.to_store();
    let mut read = Counts::default();
    read.add_stored(&stored);
    assert_eq!(read, counts);
    read.add_stored(&stored);
    assert_eq!(read.of(Event::Failed), 14);
    // What no version of this has stored changes nothing.
    read.add_stored(&[PLACES as i64, 1, -1, 1, 0, -5, 3]);
    assert_eq!(read.of(Event::Inserted), 0);
}
