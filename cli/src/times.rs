//! Times typed by people and times of Postgres.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde::de::{Deserialize, Deserializer};

use tokio_postgres::Client;

use crate::failed::{Failed, Invalid};

/// A time in UTC from a browser's field or a link; none if nothing was typed.
pub(crate) fn typed(what: &str, text: &str) -> Result<Option<DateTime<Utc>>, Invalid> {
    if text.is_empty() {
        return Ok(None);
    }
    let forms =
        ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let with_zone = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc());
    let time = with_zone.ok().or_else(|| {
        let parse = |form| NaiveDateTime::parse_from_str(text, form).ok();
        forms.into_iter().find_map(parse).map(|time| time.and_utc())
    });
    match time.filter(is_readable) {
        Some(time) => Ok(Some(time)),
        None => Err(Invalid::new(
            format!("Invalid time for {what}: {text:?}."),
            "Enter a UTC time such as 2026-01-31 18:30.",
        )),
    }
}

/// A time that Postgres reads, by a statement with the text as parameter.
pub(crate) async fn asked(
    client: &Client,
    statement: &str,
    text: &str,
) -> Result<DateTime<Utc>, Failed> {
    Ok(client.query_one(statement, &[&text]).await?.try_get(0)?)
}

/// A timestamp that Postgres reads, or an interval such as `10 minutes ago`, for a field of the
/// filter; empty if there is none.
pub(crate) async fn asked_text(client: &Client, text: Option<&str>) -> Result<String, Failed> {
    let Some(text) = text else {
        return Ok(String::new());
    };
    let statement = match text.trim_end().ends_with(" ago") {
        true => "select now() + $1::text::interval",
        false => "select $1::text::timestamptz",
    };
    Ok(asked(client, statement, text).await?.to_rfc3339())
}

/// Postgres supports fewer years than chrono, and some that no other program can read.
fn is_readable(time: &DateTime<Utc>) -> bool {
    (1..=9999).contains(&time.year())
}

/// A time of Postgres. An infinite time, or one before our era, becomes the nearest readable one.
/// For `#[serde(deserialize_with = "times::bounded")]`.
pub(crate) fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<DateTime<Utc>, D::Error> {
    String::deserialize(from).map(|text| nearest(&text))
}

/// As `bounded`, where there may be no time.
pub(crate) fn bounded_option<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<DateTime<Utc>>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.as_deref().map(nearest))
}

fn nearest(text: &str) -> DateTime<Utc> {
    let read = text.parse().ok().filter(is_readable);
    read.unwrap_or_else(|| {
        let is_past = text.starts_with('-') || text.ends_with("BC");
        let (year, month, day) = if is_past { (1, 1, 1) } else { (9999, 12, 31) };
        let date = NaiveDate::from_ymd_opt(year, month, day).expect("a date");
        date.and_time(NaiveTime::MIN).and_utc()
    })
}

/// 850 µs, 120 ms, 1.2 s, 3 min 4 s, 2 h 5 min, 3 d 4 h.
pub(crate) fn duration_text(seconds: f64) -> String {
    if seconds < 0.0 {
        return format!("\u{2212}{}", duration_text(-seconds));
    }
    let two = |whole: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {smaller}"),
    };
    let whole = seconds.round() as i64;
    match seconds {
        0.0 => "0 s".into(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 59.5 => format!("{s:.0} s"),
        _ if whole < 3600 => two(whole / 60, "min", whole % 60, "s"),
        _ if whole < 86400 => two(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => two(whole / 86400, "d", whole % 86400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_browsers_and_links() {
        let at = |text| typed("", text).map(|time| time.map(|time| time.to_rfc3339()));
        let same = Some("2026-01-31T18:30:00+00:00".to_owned());
        for text in ["2026-01-31T18:30", "2026-01-31 18:30", "2026-01-31T19:30:00+01:00"] {
            assert!(at(text).is_ok_and(|time| time == same), "{text}");
        }
        for text in ["yesterday", "+262142-12-31T23:59", "-4713-01-01T00:00", "0000-01-01T00:00"] {
            assert!(at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_the_nearest_time_that_can() {
        for (text, read) in [
            ("2026-01-31T18:30:00.5+00:00", "2026-01-31T18:30:00.500+00:00"),
            ("infinity", "9999-12-31T00:00:00+00:00"),
            ("294276-01-01T00:00:00+00:00", "9999-12-31T00:00:00+00:00"),
            ("-infinity", "0001-01-01T00:00:00+00:00"),
            ("0044-03-15T00:00:00+00:00 BC", "0001-01-01T00:00:00+00:00"),
        ] {
            assert_eq!(nearest(text).to_rfc3339(), read, "{text}");
        }
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [
            (0.0, "0 s"),
            (0.000_85, "850 µs"),
            (0.12, "120 ms"),
            (0.9999, "1.0 s"),
            (1.24, "1.2 s"),
            (59.6, "1 min"),
            (184.0, "3 min 4 s"),
            (7500.0, "2 h 5 min"),
            (273_600.0, "3 d 4 h"),
            (-1.5, "\u{2212}1.5 s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration_text(seconds), text, "{seconds}");
        }
    }
}
