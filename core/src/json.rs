//! Words for JSON values in messages.

use serde_json::Value;

use crate::error;

/// What a value is, to stand after "must not be": "a string", "an array", "true".
pub(crate) fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value as messages show it: cut where it is too long to help.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => error::quoted(text),
        other => error::shown(&other.to_string()),
    }
}
