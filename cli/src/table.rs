//! Rows of JSON as a table for people.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::terminal::{plain, print};
use crate::visible;

/// A column that is not shown can be deeper than a `Value`.
#[derive(Deserialize)]
pub(crate) struct Row(BTreeMap<String, Box<RawValue>>);

impl Row {
    pub(crate) fn value(&self, name: &str) -> Value {
        let value = self.0.get(name);
        value.map_or(Value::Null, |value| serde_json::from_str(value.get()).unwrap_or_default())
    }
}

/// Prints columns as wide as their content, with numbers right-aligned. Estimates have a ~.
pub(crate) fn table(columns: &[&str], rows: &[Row]) {
    let mut lines = vec![String::new(); rows.len() + 1];
    for name in columns {
        let is_number = rows.iter().any(|row| row.value(name).is_number());
        let cells: Vec<String> = rows.iter().map(|row| cell(row, name)).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max();
        let width = width.unwrap_or_default().max(name.len());
        let texts = [*name].into_iter().chain(cells.iter().map(String::as_str));
        for (line, cell) in lines.iter_mut().zip(texts) {
            *line += &match is_number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:width$}  "),
            };
        }
    }
    lines.iter().for_each(|line| print(line.trim_end()));
}

fn cell(row: &Row, name: &str) -> String {
    let is_estimated = |one: &Vec<Value>| one.iter().any(|state| state == name);
    let text = match row.value(name) {
        Value::Null => "-".into(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        value if row.value("estimated").as_array().is_some_and(is_estimated) => format!("~{value}"),
        value => plain(&value),
    };
    visible::line(&text).into()
}
