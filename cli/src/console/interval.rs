//! Intervals in words, which Postgres can read as well.

/// A retention without an end.
pub(super) const FOREVER: &str = "forever";

/// An interval of Postgres in words: 7 days for 168:00:00. A retention that is negative has no end.
pub(super) fn words(interval: &str) -> String {
    if interval.starts_with('-') {
        return FOREVER.into();
    }
    let Some(seconds) = clock_seconds(interval) else {
        return interval.into();
    };
    let units = [
        (seconds / 86_400, "day"),
        (seconds / 3_600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let plural = |many| if many == 1 { "" } else { "s" };
    let said = units.into_iter().filter(|(many, _)| *many > 0);
    let said = said.map(|(many, unit)| format!("{many} {unit}{}", plural(many)));
    match said.collect::<Vec<_>>() {
        none if none.is_empty() => "0".into(),
        said => said.join(" "),
    }
}

/// A typed interval as Postgres reads it.
pub(super) fn typed(text: &str) -> &str {
    match text {
        FOREVER => "-1 second",
        text => text,
    }
}

/// The seconds of HH:MM:SS.
fn clock_seconds(interval: &str) -> Option<u64> {
    let parts: Vec<u64> =
        interval.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts[..] else {
        return None;
    };
    Some(hours * 3_600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_words() {
        let cases = [
            ("168:00:00", "7 days"),
            ("25:30:01", "1 day 1 hour 30 minutes 1 second"),
            ("00:00:00", "0"),
            ("00:00:00.5", "00:00:00.5"),
            ("1 mon 02:00:00", "1 mon 02:00:00"),
            ("-00:00:00.000001", "forever"),
        ];
        for (interval, said) in cases {
            assert_eq!(words(interval), said);
        }
    }
}
