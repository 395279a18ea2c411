//! JSON as a tree that can be folded.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::bytes;
use super::room::{fitting, long};

/// The largest text that is shown as a tree: a larger page would be slow to load.
pub(crate) const LARGEST: i32 = 256 * 1024;
/// How many elements of an array or members of an object are shown.
const ELEMENTS: usize = 100;
/// How many characters of a string are shown before it is folded.
const CHARACTERS: usize = 300;
/// Deeper than this is shown as text.
const DEEPEST: usize = 64;

/// A JSON text as a tree, open down to a depth. Numbers stay exactly as they are. `raw` is where
/// the text alone is served.
pub(crate) fn tree(json: &str, open_depth: usize, raw: Option<&str>) -> Markup {
    let value = (json.len() <= LARGEST as usize).then(|| serde_json::from_str::<Value>(json));
    html! {
        div.json {
            @match value {
                None => p { (bytes(json.len())) ": too large to show." },
                Some(Err(_)) => pre { (long(json)) },
                Some(Ok(value)) => @match fitting(whole(json, &value, open_depth)) {
                    Some(whole) => (whole),
                    None => pre { (long(json)) },
                },
            }
            @if let Some(raw) = raw { a.raw href=(raw) { "Raw" } }
        }
    }
}

fn whole(json: &str, value: &Value, open_depth: usize) -> Markup {
    html! {
        div.json-tree { (node(None, value, open_depth, 0)) }
        button.copy type="button" hidden data-copy=(json) { "Copy" }
    }
}

fn node(name: Option<&str>, value: &Value, open_depth: usize, depth: usize) -> Markup {
    let is_open = depth < open_depth;
    html! {
        @match value {
            Value::Array(all) if !all.is_empty() && depth < DEEPEST => {
                details open[is_open] {
                    summary { (label(name)) span.json-size { "[" (all.len()) "]" } }
                    ol {
                        @for one in all.iter().take(ELEMENTS) {
                            li { (node(None, one, open_depth, depth + 1)) }
                        }
                    }
                    (more(all.len()))
                }
            }
            Value::Object(all) if !all.is_empty() && depth < DEEPEST => {
                details open[is_open] {
                    summary { (label(name)) span.json-size { "{" (all.len()) "}" } }
                    ul {
                        @for (name, one) in all.iter().take(ELEMENTS) {
                            li { (node(Some(name), one, open_depth, depth + 1)) }
                        }
                    }
                    (more(all.len()))
                }
            }
            Value::String(text) => {
                (label(name))
                @match text.char_indices().nth(CHARACTERS) {
                    None => span.json-string { bdi { (quoted(text)) } },
                    Some((cut, _)) => details.long {
                        summary {
                            span.json-string { bdi { (quoted(&text[..cut])) "…" } }
                            " " span.json-size { (bytes(text.len())) }
                        }
                        pre { bdi { (text) } }
                    }
                }
            }
            Value::Array(_) | Value::Object(_) | Value::Number(_) => {
                (label(name)) span.json-number { bdi { (value.to_string()) } }
            }
            Value::Bool(_) | Value::Null => {
                (label(name)) span.json-word { (value.to_string()) }
            }
        }
    }
}

fn label(name: Option<&str>) -> Markup {
    html! { @if let Some(name) = name { span.json-name { bdi { (quoted(name)) } } ": " } }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn more(length: usize) -> Markup {
    html! { @if length > ELEMENTS { p.quiet { "and " (length - ELEMENTS) " more" } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_exact() {
        for number in ["9007199254740993", "0.1000", "-123456789012345678901234567890"] {
            let markup = tree(&format!("{{\"n\": {number}}}"), 1, None).into_string();
            assert!(markup.contains(&format!(">{number}<")), "{markup}");
        }
    }

    #[test]
    fn strings_and_keys_are_json() {
        let json = r#"{"a\u202e\"b": "c\u0007\\d\u00e9\u202e"}"#;
        let markup = tree(json, 1, None).into_string();
        let key = "<bdi>&quot;a\u{202e}\\&quot;b&quot;</bdi>";
        let text = "<bdi>&quot;c\\u0007\\\\dé\u{202e}&quot;</bdi>";
        assert!(markup.contains(key) && markup.contains(text), "{markup}");
    }

    #[test]
    fn nothing_is_markup() {
        let json = r#"{"<script>alert(1)</script>": "<img src=x onerror=alert(1)>\"'"}"#;
        let markup = tree(json, 1, Some("/raw?a=\"><script>")).into_string();
        assert!(!markup.contains("<script>") && !markup.contains("<img"), "{markup}");
    }

    #[test]
    fn what_is_large_is_folded() {
        let many = serde_json::to_string(&vec![0; 10_000]).expect("numbers");
        let markup = tree(&many, 1, None).into_string();
        assert!(markup.contains("and 9900 more"), "{markup}");
        let huge = format!("\"{}\"", "x".repeat(1_000_000));
        let markup = tree(&huge, 1, None).into_string();
        assert!(markup.contains("1.0 MB") && markup.len() < 1000, "{markup}");
    }
}
