//! Statements with text parameters, whose rows are JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::Result;
use crate::finite::Finite;

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
        let query = sqlx::query_scalar(sql);
        let query = of.iter().fold(query, |query, text| query.bind(*text));
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
    let parsed = rows.iter().map(|row| Ok(serde_json::from_str(row)?));
    parsed.collect()
}

/// A value as JSON, within the limit of jsonb. A text beyond the limit of a message to the server
/// would break the connection.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    let json = to_raw_value(value)?;
    // serde_json writes what is no number as null.
    if json.get().contains("null") {
        value.serialize(Finite)?;
    }
    let length = json.get().len();
    if length < 0x1000_0000 {
        return Ok(json);
    }
    let error = format!("JSON of {length} bytes is too long");
    Err(serde::ser::Error::custom(error))
}
