//! Words for people: durations, counts, and names in statements that run as they stand.

/// A duration in microseconds: 120 ms, 1.2 s, 3 min 4 s, 2 h 5 min, 3 d 4 h. One that is negative
/// is none.
pub fn duration(micros: i64) -> String {
    let two = |whole: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {smaller}"),
    };
    let seconds = micros.max(0) as f64 / 1e6;
    let whole = seconds.round() as i64;
    match seconds {
        0.0 => "0 s".into(),
        s if s < 0.001 => format!("{micros} µs"),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 9.95 => format!("{s:.1} s").replace(".0 ", " "),
        _ if whole < 60 => format!("{whole} s"),
        _ if whole < 3_600 => two(whole / 60, "min", whole % 60, "s"),
        _ if whole < 86_400 => two(whole / 3_600, "h", whole % 3_600 / 60, "min"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    }
}

/// A number with a comma before each three digits: 12,400.
pub fn number(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many things: 1 job, 2 jobs.
pub fn many(count: i64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", number(count))
}

/// A text as SQL has it.
pub fn literal(text: &str) -> String {
    let escape = if text.contains('\\') { "E" } else { "" };
    let text = text.replace('\\', r"\\").replace('\'', "''");
    format!("{escape}'{text}'")
}

/// Who did something, and why, as the rest of a sentence.
pub fn by(who: Option<&str>, reason: Option<&str>) -> String {
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    who.map_or_else(String::new, |who| format!(" by {who}{reason}"))
}

/// What a sentence ends with, if anything is known of it.
pub fn behind_colon(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(": {text}"))
}

/// A name in quotes, whole: names are short.
pub fn quoted_name(name: &str) -> String {
    format!("\"{name}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (micros, words) in [
            (-1, "0 s"),
            (0, "0 s"),
            (850, "850 µs"),
            (119_600, "120 ms"),
            (999_600, "1 s"),
            (3_136_000, "3.1 s"),
            (9_960_000, "10 s"),
            (59_600_000, "1 min"),
            (125_119_000, "2 min 5 s"),
            (7_500_000_000, "2 h 5 min"),
            (86_399_600_000, "1 d"),
            (273_600_000_000, "3 d 4 h"),
        ] {
            assert_eq!(duration(micros), words);
        }
    }

    #[test]
    fn counts_have_plurals_and_commas() {
        for (count, words) in [
            (0, "0 jobs"),
            (1, "1 job"),
            (999, "999 jobs"),
            (12_400, "12,400 jobs"),
            (-1_234_567, "-1,234,567 jobs"),
        ] {
            assert_eq!(many(count, "job"), words);
        }
    }

    #[test]
    fn literals_are_read_whatever_is_set() {
        for (text, sql) in [("q", "'q'"), ("nobody's", "'nobody''s'"), (r"a\'b", r"E'a\\''b'")] {
            assert_eq!(literal(text), sql);
        }
    }
}
