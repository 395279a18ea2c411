//! What holds for every value and every moment.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jobs_core::canonical::Event;
use jobs_core::paths::Paths;
use jobs_core::period;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use crate::support::{self, Listed};

/// A JSON value as such: without the order of members, the spelling of numbers and the form of
/// characters. Two of them are equal exactly if they are the same value.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Null,
    Bool(bool),
    /// Mantissa × 10^exponent. The mantissa does not end in 0; zero has the exponent 0.
    Number(i128, i32),
    /// In normal form C.
    String(String),
    Array(Vec<Json>),
    /// Names in normal form C.
    Object(BTreeMap<String, Json>),
}

fn number(mut mantissa: i128, mut exponent: i32) -> Json {
    if mantissa == 0 {
        return Json::Number(0, 0);
    }
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    Json::Number(mantissa, exponent)
}

/// Reads what the library wrote, by the rules of JSON alone.
fn reread(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(value) => {
            let text = value.to_string();
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            let digits = format!("{whole}{fraction}");
            let zeros = digits.len() - digits.trim_end_matches('0').len();
            let exponent = exponent.parse::<i32>().unwrap() - fraction.len() as i32 + zeros as i32;
            match &digits[..digits.len() - zeros] {
                "" | "-" => number(0, 0),
                digits => number(digits.parse().unwrap(), exponent),
            }
        }
        Value::String(value) => Json::String(value.clone()),
        Value::Array(elements) => Json::Array(elements.iter().map(reread).collect()),
        Value::Object(members) => Json::Object(
            members.iter().map(|(name, value)| (name.clone(), reread(value))).collect(),
        ),
    }
}

/// Text of characters that matter here: escaped ones, combining ones, ones that change in normal
/// form C, both sides of the surrogates, and any other.
fn text() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        4 => prop::char::range('a', 'c'),
        2 => prop::sample::select(vec![
            '\0', '\n', '\u{1f}', '"', '\\', '/', '\u{7f}', 'e', '\u{e9}', '\u{301}', '\u{323}', '\u{212b}', '\u{fb33}',
            '\u{ac00}', '\u{11a8}', '\u{e000}', '\u{ffff}', '\u{10000}', '\u{1f600}',
        ]),
        1 => any::<char>(),
    ];
    prop::collection::vec(char, 0..5).prop_map(|chars| chars.into_iter().nfc().collect())
}

fn any_number() -> impl Strategy<Value = Json> {
    prop_oneof![
        4 => (-1000..1000_i128, -3..4).prop_map(|(mantissa, exponent)| number(mantissa, exponent)),
        2 => (any::<i64>(), -30..30).prop_map(|(mantissa, exponent)| number(mantissa.into(), exponent)),
        1 => (any::<i64>(), -420..420).prop_map(|(mantissa, exponent)| number(mantissa.into(), exponent)),
        // Doubles by their shortest digits, and their neighbours that only differ beyond those.
        2 => (any::<f64>().prop_filter("finite", |double| double.is_finite()), 0..2_i128).prop_map(|(double, more)| {
            let Json::Number(mantissa, exponent) = reread(&format!("{double:e}").parse().unwrap()) else { unreachable!() };
            number(mantissa * 10 + more, exponent - 1)
        }),
    ]
}

fn any_json() -> impl Strategy<Value = Json> {
    let scalar = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any_number(),
        text().prop_map(Json::String),
    ];
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            prop::collection::btree_map(text(), inner, 0..6).prop_map(Json::Object),
        ]
    })
}

/// Choices of a way to spell a value, used one after the other.
#[derive(Clone, Debug)]
struct Spelling(Vec<Index>, usize);

fn spelling() -> impl Strategy<Value = Spelling> {
    prop::collection::vec(any::<Index>(), 32).prop_map(|choices| Spelling(choices, 0))
}

impl Spelling {
    fn choose(&mut self, options: usize) -> usize {
        self.1 += 1;
        self.0[self.1 % self.0.len()].index(options)
    }

    fn text(&mut self, text: &str) -> Cow<'static, str> {
        Cow::Owned(if self.choose(2) == 0 { text.to_string() } else { text.nfd().collect() })
    }

    fn number(&mut self, mantissa: i128, exponent: i32) -> String {
        let zeros = self.choose(4);
        let sign = if mantissa < 0 || (mantissa == 0 && self.choose(2) == 0) { "-" } else { "" };
        let digits = format!("{}{}", mantissa.unsigned_abs(), "0".repeat(zeros));
        let exponent = exponent - zeros as i32;
        match self.choose(4) {
            0 => format!("{sign}{digits}e{exponent}"),
            1 => format!("{sign}{digits}.0E{exponent:+}"),
            2 => format!("{sign}0.{digits}e{}", exponent + digits.len() as i32),
            // As Postgres prints a numeric.
            _ if exponent >= 0 => format!("{sign}{digits}{}", "0".repeat(exponent as usize)),
            _ => {
                let after = exponent.unsigned_abs() as usize;
                let digits = format!("{digits:0>width$}", width = after + 1);
                let (whole, fraction) = digits.split_at(digits.len() - after);
                format!("{sign}{whole}.{fraction}")
            }
        }
    }

    fn events(&mut self, value: &Json, events: &mut Vec<Event<'static>>) {
        match value {
            Json::Null => events.push(Event::Null),
            Json::Bool(value) => events.push(Event::Bool(*value)),
            Json::Number(mantissa, exponent) => {
                events.push(Event::Number(Cow::Owned(self.number(*mantissa, *exponent))));
            }
            Json::String(value) => events.push(Event::String(self.text(value))),
            Json::Array(elements) => {
                events.push(Event::BeginArray);
                elements.iter().for_each(|element| self.events(element, events));
                events.push(Event::EndArray);
            }
            Json::Object(members) => {
                events.push(Event::BeginObject);
                let mut members: Vec<_> = members.iter().collect();
                while !members.is_empty() {
                    let (name, value) = members.swap_remove(self.choose(members.len()));
                    events.push(Event::Name(self.text(name)));
                    self.events(value, events);
                }
                events.push(Event::EndObject);
            }
        }
    }
}

fn canonical(value: &Json, mut spelling: Spelling) -> String {
    let mut events = Vec::new();
    spelling.events(value, &mut events);
    support::canonical(Listed::new(events), None).unwrap()
}

/// Every member name in the text must be above the one before it in its object, by UTF-16 code
/// units. serde_json's map would sort them anew, so this reads the text itself, of which strings
/// are the only part where braces mean nothing.
fn members_are_sorted(text: &str) -> bool {
    let mut last_names: Vec<Vec<u16>> = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        match char {
            '{' => last_names.push(Vec::new()),
            '}' => drop(last_names.pop()),
            '"' => {
                let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
                let string: Vec<u16> = strings.next().unwrap().unwrap().encode_utf16().collect();
                rest = &rest[strings.byte_offset()..];
                if rest.starts_with(':') {
                    let last = last_names.last_mut().unwrap();
                    if *last > string {
                        return false;
                    }
                    *last = string;
                }
                continue;
            }
            _ => {}
        }
        rest = &rest[char.len_utf8()..];
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_value_has_one_text(value in any_json(), one in spelling(), other in spelling()) {
        prop_assert_eq!(canonical(&value, one), canonical(&value, other));
    }

    #[test]
    fn other_values_have_other_texts(one in any_json(), other in any_json(), spelling in spelling()) {
        let texts_equal = canonical(&one, spelling.clone()) == canonical(&other, spelling);
        prop_assert_eq!(texts_equal, one == other);
    }

    #[test]
    fn other_numbers_have_other_texts(one in any_number(), digit in 0..40_u32, spelling in spelling()) {
        let Json::Number(mantissa, exponent) = one else { unreachable!() };
        let Some(more) = 10_i128.checked_pow(digit % 17).and_then(|place| mantissa.checked_add(place)) else {
            return Ok(());
        };
        prop_assert_ne!(canonical(&one, spelling.clone()), canonical(&number(more, exponent), spelling));
    }

    #[test]
    fn the_text_is_the_value(value in any_json(), spelling in spelling()) {
        let text = canonical(&value, spelling);
        let parsed: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(reread(&parsed), value);
    }

    #[test]
    fn the_text_is_its_own_canonical_text(value in any_json(), spelling in spelling()) {
        let text = canonical(&value, spelling);
        let parsed: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(support::canonical(Listed::from(&parsed), None).unwrap(), text);
    }

    #[test]
    fn members_are_in_utf16_order(value in any_json(), spelling in spelling()) {
        let text = canonical(&value, spelling);
        prop_assert!(members_are_sorted(&text), "{}", text);
    }

    #[test]
    fn paths_are_read_or_refused(paths in prop::collection::vec(r"[ab.\\é]{0,8}|.*", 0..4), value in any_json(), mut spelling in spelling()) {
        if let Ok(paths) = Paths::parse(&paths, "by_args") {
            let mut events = Vec::new();
            spelling.events(&value, &mut events);
            let text = support::canonical(Listed::new(events), Some(&paths)).unwrap();
            prop_assert!(members_are_sorted(&text));
        }
    }

    #[test]
    fn a_period_holds_its_moment(
        // The years 1 to 9999, in microseconds from 2000.
        at in -63_082_281_600_000_000..252_455_616_000_000_000_i64,
        period in prop_oneof![1_000_000..10_000_000_000_i64, (1..1_000_000_i64).prop_map(|seconds| seconds * 1_000_000)],
    ) {
        let start = since_first(&period::start_of(at, period));
        let at = at + 63_082_281_600_000_000;
        prop_assert!(start <= at && at - start < period);
        prop_assert_eq!(start % period, 0);
    }
}

/// Microseconds from 0001-01-01 of a time in ISO form, by the calendar's own rule.
fn since_first(time: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
    let before = number(0..4) - 1;
    let leap_year = (before + 1) % 4 == 0 && ((before + 1) % 100 != 0 || (before + 1) % 400 == 0);
    let february = 28 + i64::from(leap_year);
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days = before * 365 + before / 4 - before / 100
        + before / 400
        + months[..number(5..7) as usize - 1].iter().sum::<i64>()
        + number(8..10)
        - 1;
    let seconds = days * 86_400 + number(11..13) * 3600 + number(14..16) * 60 + number(17..19);
    let fraction = time[19..].trim_end_matches('Z').trim_start_matches('.');
    seconds * 1_000_000 + format!("{fraction:0<6}").parse::<i64>().unwrap()
}
