//! Statements on connections and transactions of the caller.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use crate::Result;

/// The rows of a statement, each a text.
type Rows = Result<Vec<String>>;

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
        let rows = self.query_typed(sql, &parameters).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
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
