//! Words for JSON values in messages.

use serde_json::Value;

/// What a value is, to stand after "is": "a string", "an array", "true".
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
