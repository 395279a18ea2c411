//! A reader of durations for tests, in the place of the server's.

use jobs_core::interval::Interval;

/// Reads ISO 8601, as the library writes it, and a few texts such as Postgres takes.
pub fn read(text: &str) -> Option<Interval> {
    let (months, days, micros) = match text {
        "15 minutes" => (0, 0, 900_000_000),
        "1 month" => (1, 0, 0),
        "-1 day" => (0, -1, 0),
        "1 month -30 days" => (1, -30, 0),
        _ => return iso_8601(text),
    };
    Some(Interval { months, days, micros })
}

fn iso_8601(text: &str) -> Option<Interval> {
    let mut interval = Interval::of_micros(0);
    let mut number = String::new();
    let mut in_time = false;
    for char in text.strip_prefix('P')?.chars() {
        if char.is_ascii_digit() || "-.".contains(char) {
            number.push(char);
            continue;
        }
        if char == 'T' {
            in_time = true;
            continue;
        }
        // In millionths, which only seconds can have.
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        let millionths: i64 = format!("{whole}{fraction:0<6}").parse().ok()?;
        let (amount, small) = (millionths / 1_000_000, i32::try_from(millionths / 1_000_000));
        match (in_time, char) {
            (false, 'Y') => interval.months += small.ok()? * 12,
            (false, 'M') => interval.months += small.ok()?,
            (false, 'W') => interval.days += small.ok()? * 7,
            (false, 'D') => interval.days += small.ok()?,
            (true, 'H') => interval.micros += amount * 3_600_000_000,
            (true, 'M') => interval.micros += amount * 60_000_000,
            (true, 'S') => interval.micros += millionths,
            _ => return None,
        }
        number.clear();
    }
    number.is_empty().then_some(interval)
}
