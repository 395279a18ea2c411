//! Statements with text parameters, whose rows are JSON.

use ciborium::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::ser::Error;
use serde_json::value::{RawValue, to_raw_value};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::Result;

/// The caller's connection or transaction: `&Client` or `&Transaction` of `tokio_postgres`. With
/// the feature `sqlx` also `&mut PgConnection`, such as `&mut *transaction`.
pub trait Executor: Send {
    /// Runs a statement of this library, whose parameters are texts.
    #[doc(hidden)]
    fn rows(
        &mut self,
        sql: &'static str,
        of: &[&str],
    ) -> impl Future<Output = Result<Vec<String>>> + Send;
}

impl<C: GenericClient + Sync> Executor for &C {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<String>> {
        texts(self.query_typed(sql, &typed(of)).await?)
    }
}

pub(crate) fn typed<'a>(of: &'a [&str]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    of.iter().map(|text| (text as _, Type::TEXT)).collect()
}

#[cfg(feature = "sqlx")]
impl Executor for &mut sqlx::PgConnection {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<String>> {
        let query = of.iter().fold(sqlx::query_scalar(sql), |query, text| query.bind(*text));
        Ok(query.fetch_all(&mut **self).await?)
    }
}

pub(crate) fn texts(rows: Vec<Row>) -> Result<Vec<String>> {
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Runs a statement whose rows are JSON.
pub(crate) async fn query<T: DeserializeOwned>(
    executor: &mut impl Executor,
    sql: &'static str,
    of: &[&str],
) -> Result<Vec<T>> {
    let rows = executor.rows(sql, of).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

/// A value as JSON, within the limit of jsonb. A text beyond the limit of a message to the server
/// would break the connection.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    let json = to_raw_value(value)?;
    let length = json.get().len();
    if length >= 0x1000_0000 {
        return Err(Error::custom(format!("JSON of {length} bytes is too long")));
    }
    // serde_json writes NaN and infinity as null.
    let values = json.get().contains("null").then(|| Value::serialized(value).ok()).flatten();
    match values.as_ref().and_then(no_number) {
        Some(number) => Err(Error::custom(format!("{number} is not a JSON number"))),
        None => Ok(json),
    }
}

/// A number within the value that JSON does not have.
fn no_number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number).filter(|number| !number.is_finite()),
        Value::Array(values) => values.iter().find_map(no_number),
        Value::Map(members) => members.iter().find_map(|(_, value)| no_number(value)),
        _ => None,
    }
}
