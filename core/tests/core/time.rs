//! Times of the tests in text, such as `2026-03-29 01:00:00`, to and from microseconds since 2000.

use chrono::NaiveDateTime;

const FORMAT: &str = "%Y-%m-%d %H:%M:%S";
const UNIX_TO_2000: i64 = 946_684_800_000_000;

pub fn at(text: &str) -> i64 {
    let time = NaiveDateTime::parse_from_str(text, FORMAT).unwrap_or_else(|_| panic!("{text}"));
    time.and_utc().timestamp_micros() - UNIX_TO_2000
}

pub fn text(at: i64) -> String {
    let time = chrono::DateTime::from_timestamp_micros(at + UNIX_TO_2000).expect("in range");
    time.naive_utc().to_string()
}
