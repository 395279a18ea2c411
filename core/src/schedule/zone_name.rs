//! Names of time zones that are refused, and what to write instead.

use crate::Invalid;
use crate::error::{nearest, quoted};

const RULE: &str = "time_zone must be a name in pg_timezone_names. Offsets, POSIX time zones and abbreviations are not accepted.";
const EXAMPLE: &str = "Write a place as in pg_timezone_names, for example \"Europe/Berlin\".";

/// Zones without whole hours whose clocks are never changed.
const BETWEEN_HOURS: [(i32, &str); 8] = [
    (-570, "Pacific/Marquesas"),
    (210, "Asia/Tehran"),
    (270, "Asia/Kabul"),
    (330, "Asia/Kolkata"),
    (345, "Asia/Kathmandu"),
    (390, "Asia/Yangon"),
    (525, "Australia/Eucla"),
    (570, "Australia/Darwin"),
];

/// The refusal of a name that is not among those `known`.
pub fn refused(name: &str, known: &[String]) -> Invalid {
    let message = format!("time_zone {} is not known", quoted(name));
    let invalid = Invalid::new("time_zone", message, RULE);
    let hint = match offset_minutes(name) {
        Some(minutes) => place_of(minutes),
        None => place_like(name, known).map(|place| format!("Did you mean {}?", quoted(&place))),
    };
    invalid.hint(hint.unwrap_or_else(|| EXAMPLE.to_string()))
}

/// The refusal of a zone beside `every` and a duration, whose multiples no clock counts.
pub fn beside_every(zone: &str, cron: &str) -> Invalid {
    Invalid::new(
        "time_zone",
        format!("time_zone {} cannot be combined with cron {}", quoted(zone), quoted(cron)),
        "A schedule of \"every\" and a duration counts from 0001-01-01 00:00 UTC in every time zone.",
    )
    .hint("Omit time_zone, or write clock times, such as \"0 0 * * *\" for each midnight.")
}

/// What to write for an offset, if there is a zone that always has it.
fn place_of(minutes: i32) -> Option<String> {
    let hours = minutes / 60;
    if minutes == 0 {
        return Some("Write \"UTC\".".to_string());
    }
    if minutes % 60 == 0 && (-12..=14).contains(&hours) {
        let direction = if hours > 0 { "ahead of" } else { "behind" };
        let (count, plural) = (hours.abs(), if hours.abs() == 1 { "" } else { "s" });
        return Some(format!(
            "Write \"Etc/GMT{:+}\" for {count} hour{plural} {direction} UTC: these names have the sign reversed, as in POSIX.",
            -hours
        ));
    }
    let (_, place) = BETWEEN_HOURS.iter().find(|(known, _)| *known == minutes)?;
    Some(format!("Write a place that has this offset, such as \"{place}\"."))
}

/// The offset from UTC that a text such as `UTC+3`, `+03:00` or `3` means; ahead of UTC is
/// positive.
fn offset_minutes(text: &str) -> Option<i32> {
    let upper = text.trim().to_ascii_uppercase();
    let named = ["UTC", "GMT", "UT"].iter().find_map(|name| upper.strip_prefix(name));
    let offset = named.unwrap_or(&upper).trim();
    let (sign, digits) = match offset.strip_prefix(['-', '\u{2212}']) {
        Some(digits) => (-1, digits),
        None => (1, offset.strip_prefix('+').unwrap_or(offset)),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.is_ascii() && digits.len() == 4 => digits.split_at(2),
        None => (digits, "0"),
    };
    let number = |text: &str| {
        let is_number = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i32>().ok().filter(|_| is_number)
    };
    Some(sign * (number(hours)? * 60 + number(minutes).filter(|minutes| *minutes < 60)?))
}

/// The place whose name, or the part of it behind the last slash, is most likely meant. Only
/// places are suggested: `MST` is near `BST`, and half the world away.
fn place_like(name: &str, known: &[String]) -> Option<String> {
    let is_place = |name: &&str| {
        let area = name.split_once('/').map(|(area, _)| area);
        area.is_some_and(|area| !["Etc", "SystemV", "posix", "right"].contains(&area))
    };
    let places: Vec<&str> = known.iter().map(String::as_str).filter(is_place).collect();
    let city = name.trim().replace(' ', "_");
    let is_city = |place: &&str| {
        let last = place.rsplit('/').next();
        last.is_some_and(|last| last.eq_ignore_ascii_case(&city))
    };
    let found = places.iter().copied().find(is_city);
    found.or_else(|| nearest(name, &places)).map(str::to_owned)
}
