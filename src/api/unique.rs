//! Section 3 of the contract: the key.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use super::check;
use crate::error::OrRaise;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::unique::policy::{self, Subject};

/// The key that an insert with the same arguments would hold. See the COMMENT in sql/40_produce.sql.
#[pg_extern(sql = false)]
fn unique_key(
    kind: Option<&str>,
    args: Option<Jsonb>,
    unique_opts: Option<Jsonb>,
    queue: Option<&str>,
    meta: Option<Jsonb>,
    scheduled_at: Option<TimestampWithTimeZone>,
) -> Option<String> {
    let run = || {
        let subject = Subject {
            kind: check::name("kind", kind)?,
            args: check::given("args", args)?,
            meta: check::object("meta", meta)?,
            queue: check::name("queue", queue.or(Some("default")))?,
            at: match scheduled_at {
                Some(at) => check::finite("scheduled_at", at.into())?,
                None => time::now(),
            },
        };
        let policy = policy::parse(unique_opts)?;
        policy
            .map(|policy| policy::key(&policy, &subject))
            .transpose()
    };
    run().or_raise().map(|key| key.hex())
}
