//! Statements: JSON goes in, and each row that comes out is JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::Result;

/// The rows of a statement, each a text.
pub(crate) type Rows = Result<Vec<String>>;

/// A connection or transaction of the caller: `&Client` or `&Transaction` of `tokio_postgres`, and
/// with the feature `sqlx` `&mut PgConnection`, as which `&mut *transaction` gives a transaction.
pub trait Executor: Send {
    /// Runs a statement of this library, whose parameters are texts.
    #[doc(hidden)]
    fn rows(&mut self, sql: &'static str, of: &[&str]) -> impl Future<Output = Rows> + Send;
}

impl<C: GenericClient + Sync> Executor for &C {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Rows {
        let typed = |text| (text as &(dyn ToSql + Sync), Type::TEXT);
        let parameters: Vec<_> = of.iter().map(typed).collect();
        texts(self.query_typed(sql, &parameters).await?)
    }
}

#[cfg(feature = "sqlx")]
impl Executor for &mut sqlx::PgConnection {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Rows {
        let query = sqlx::query_scalar(sql);
        let query = of.iter().fold(query, |query, text| query.bind(*text));
        Ok(query.fetch_all(&mut **self).await?)
    }
}

pub(crate) fn texts(rows: Vec<Row>) -> Rows {
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Runs a statement of one parameter.
pub(crate) async fn query<T: DeserializeOwned>(
    executor: &mut impl Executor,
    sql: &'static str,
    of: impl Serialize,
) -> Result<Vec<T>> {
    let of = to_raw_value(&of)?;
    let rows = executor.rows(sql, &[of.get()]).await?;
    let parsed = rows.iter().map(|row| Ok(serde_json::from_str(row)?));
    parsed.collect()
}

/// A value as JSON. No jsonb holds more than this, and what is longer than a message to the server
/// can be would cost the connection.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    let json = to_raw_value(value)?;
    match json.get().len() {
        ..0x1000_0000 => Ok(json),
        length => Err(serde::ser::Error::custom(format!(
            "its JSON has {length} bytes"
        ))),
    }
}
