//! Whether the server is a standby, and how far behind the primary.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use crate::failed::Failed;
use crate::times::duration_text;

/// A row on a standby. One that is connected and has replayed all that it got is not behind.
pub(crate) const STANDBY: &str = "
select case when exists (select from pg_catalog.pg_stat_wal_receiver)
            and pg_catalog.pg_last_wal_replay_lsn() >= pg_catalog.pg_last_wal_receive_lsn() then 0
        else greatest(extract(epoch from clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()), 0)
    end::float8 as lag_seconds
    where pg_catalog.pg_is_in_recovery()";

#[derive(Deserialize, Serialize)]
pub(crate) struct Standby {
    /// None before anything was replayed.
    pub(crate) lag_seconds: Option<f64>,
}

impl Standby {
    /// None on a primary.
    pub(crate) async fn of(client: &Client) -> Result<Option<Self>, Failed> {
        let row = client.query_opt(STANDBY, &[]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(|lag_seconds| Self { lag_seconds }))
    }
}

impl fmt::Display for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lag_seconds {
            None => f.write_str("standby, nothing replayed yet"),
            Some(0.0) => f.write_str("standby, not behind the primary"),
            Some(lag) => write!(f, "standby, {} behind the primary", duration_text(lag)),
        }
    }
}
