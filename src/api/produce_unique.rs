//! The key, and what it would lead to.

use jobs_core::key::Key;
use pgrx::datum::{JsonB, TimestampWithTimeZone};
use pgrx::prelude::*;

use super::parameters::{Parameters, given};
use crate::check;
use crate::error::{Result, or_raise};
use crate::options::{Checked, Options};
use crate::pg::jsonb::Jsonb;
use crate::pg::reply::{Cell, Record};
use crate::pg::time;
use crate::settings;
use crate::unique::{self, policy};

/// The key that an insert with the same arguments would hold.
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
        let given = given! { unique_opts, queue, meta, scheduled_at };
        let (checked, args) = checked(kind, args, given?)?;
        Ok(checked.candidate(args)?.job.unique_key)
    };
    or_raise(run).map(|key| key.hex())
}

/// What an insert with the same arguments is unique by, and what would happen.
#[pg_extern(sql = false)]
fn explain_unique(
    kind: Option<&str>,
    args: Option<Jsonb>,
    unique_opts: Option<Jsonb>,
    queue: Option<&str>,
    meta: Option<Jsonb>,
    scheduled_at: Option<TimestampWithTimeZone>,
) -> Record {
    or_raise(|| {
        let given = given! { unique_opts, queue, meta, scheduled_at };
        let (checked, args) = checked(kind, args, given?)?;
        let Some(policy) = checked.policy() else {
            let mut cells = vec![Cell::Null; 7];
            cells[6] = Cell::Text("insert".into());
            return Ok(Record(cells));
        };
        let canonical = policy::canonical(policy, &checked.subject(args, time::now()))?;
        let key = Key::of(&canonical);
        let (holder, would) = unique::foresee(policy, key);
        Ok(Record(vec![
            Cell::Text(canonical),
            Cell::Text(key.hex()),
            Cell::Big(key.lock_id(settings::ADVISORY_LOCK_PREFIX.get())),
            Cell::Json(policy.to_json().to_string()),
            holder.as_ref().map_or(Cell::Null, |holder| Cell::Big(holder.id)),
            holder.and_then(|holder| holder.state()).into(),
            Cell::Text(would.into()),
        ]))
    })
}

/// What a server of the Open Job Spec can declare of this queue.
#[pg_extern(sql = false)]
fn ojs_manifest() -> JsonB {
    JsonB(serde_json::json!({
        "ojs_version": "1.0.0-rc.1",
        "implementation": {"name": "jobs", "version": env!("CARGO_PKG_VERSION"), "language": "rust"},
        // The protocol is SQL; the spec's own are for a server in front of it.
        "protocols": [],
        "backend": "postgres",
        "capabilities": {
            "batch_enqueue": true,
            "cron_jobs": true,
            "dead_letter": true,
            "delayed_jobs": true,
            "job_ttl": true,
            "pause_resume": true,
            "priority_queues": true,
            "rate_limiting": true,
            "schema_validation": false,
            "workflows": false,
            "unique_jobs": {
                "strength": "strong",
                "mechanism": "the primary key of a table of keys, locked while the jobs under the key are looked at",
            },
        },
    }))
}

/// The options as an insert would check them, and the args.
fn checked(kind: Option<&str>, args: Option<Jsonb>, given: Options) -> Result<(Checked, Jsonb)> {
    let kind = &*check::name("kind", kind)?;
    let args = check::given("args", args)?;
    let checked = given.checked(kind)?;
    checked.fits(args)?;
    Ok((checked, args))
}
