//! What the tests share: canonical texts, tables in text, strategies.

use jobs_core::Invalid;
pub use jobs_core::canonical::Listed;
use jobs_core::canonical::{self, Flaw, Writer};
use jobs_core::paths::Paths;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::Value;

/// The canonical text of a value, or of those paths in it.
pub fn canonical(mut events: Listed, paths: Option<&Paths>) -> Result<String, Flaw> {
    let mut out = Writer::new();
    canonical::write(&mut events, paths, &mut out)?;
    Ok(out.finish())
}

/// The rows of a table in text, a line each: what stands between bars. What a row lacks is empty.
/// Lines that begin with two slashes are comments.
pub fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.map(|line| {
        let mut columns = line.split('|').map(str::trim);
        let row = std::array::from_fn(|_| columns.next().unwrap_or_default());
        assert_eq!(columns.next(), None, "{line}");
        row
    })
}

/// A refusal, which must be said well: message and hint.
#[track_caller]
pub fn refusal(invalid: &Invalid) -> (String, Option<String>) {
    let hint = invalid.hint.as_ref();
    assert!(invalid.detail.ends_with('.'), "{invalid:?}");
    assert!(!invalid.message.ends_with('.'), "{invalid:?}");
    // What it is about is named in it.
    assert!(invalid.message.contains(invalid.name()), "{invalid:?}");
    assert!(hint.is_none_or(|hint| hint.ends_with(['.', '?'])), "{invalid:?}");
    (invalid.message.clone(), invalid.hint.clone())
}

pub fn any_scalar(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2..2000_i64).prop_map(Value::from),
        (0.0..2.0).prop_map(Value::from),
        select(words).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

/// Any JSON, biased to what is made of these fields and words.
pub fn any_json(
    words: &'static [&'static str],
    fields: &'static [&'static str],
) -> impl Strategy<Value = Value> {
    any_scalar(words).prop_recursive(4, 30, 5, move |inner| {
        let some_words = vec(select(words), 0..4);
        let members = (subsequence(fields, 0..6), vec(inner.clone(), 6));
        prop_oneof![
            1 => vec(inner, 0..4).prop_map(Value::Array),
            2 => some_words.prop_map(Value::from),
            6 => members.prop_map(|(fields, values)| fields.into_iter().map(String::from).zip(values).collect()),
        ]
    })
}
