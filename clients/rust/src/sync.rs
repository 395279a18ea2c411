//! What a worker declares in the database: defaults of kinds, and periodic jobs.

use serde::Deserialize;

use crate::executor::{json, query};
use crate::{Executor, Result, Worker};

/// What [`Worker::sync`] did about a kind or a periodic job.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// `kind` or `periodic job`.
    pub object: String,
    /// Its name.
    pub name: String,
    /// `created`, `changed` or `unchanged`.
    pub outcome: String,
}

impl Worker {
    /// Writes the defaults of the worker's kinds and its periodic jobs into the database, as part
    /// of the caller's transaction. Kinds without defaults are skipped, and nothing is removed.
    ///
    /// # Errors
    /// The database refuses a definition, or the role lacks the rights of
    /// `jobs.grant_application`.
    pub async fn sync(&self, mut executor: impl Executor) -> Result<Vec<Change>> {
        let kinds = self.kinds.iter().map(|kind| (DEFINE_KIND, json(kind)));
        let periodic = self.periodic.iter().map(|periodic| (SCHEDULE, json(periodic)));
        let mut changes = Vec::new();
        for (sql, declared) in kinds.chain(periodic) {
            let change = query(&mut executor, sql, &[declared?.get()]).await;
            changes.extend(change.map_err(|error| error.hinted("grant_application('ROLE')"))?);
        }
        Ok(changes)
    }
}

/// Its parameter is a list of the name and the defaults.
const DEFINE_KIND: &str = "
with declared as (
    select normalize($1::jsonb->>0) as kind, normalize(queue) as queue, priority, max_attempts, retry,
            make_interval(secs => timeout) as timeout, jsonb_strip_nulls(unique_opts) as unique_opts
        from jsonb_to_record($1::jsonb->1) as (queue text, priority int, max_attempts int,
            timeout float8, retry jsonb, unique_opts jsonb)),
compared as (
    select d.*, case when k.kind is null then 'created'
            when (d.queue, d.priority, d.max_attempts, d.timeout, d.retry, d.unique_opts)
                is not distinct from
                (k.queue, k.priority, k.max_attempts, k.timeout, k.retry, k.unique_opts)
            then 'unchanged' else 'changed' end as outcome
        from declared d left join jobs.kinds k using (kind)
        where num_nonnulls(d.queue, d.priority, d.max_attempts, d.timeout, d.retry, d.unique_opts) > 0)
select json_build_object('object', 'kind', 'name', kind, 'outcome', outcome,
        'defined', case when outcome <> 'unchanged' then
            jobs.define_kind(kind, queue, priority, max_attempts, timeout, retry, unique_opts)::text
        end)::text
    from compared";
const SCHEDULE: &str = "
select json_build_object('object', 'periodic job', 'name', p.name, 'outcome',
        (jobs.schedule(p.name, p.cron, j.kind, coalesce(j.args, 'null'),
            time_zone => coalesce(p.time_zone, 'UTC'), missed => coalesce(p.missed, 'once'),
            queue => j.queue, priority => j.priority, max_attempts => j.max_attempts,
            tags => nullif(j.tags, '{}'), meta => nullif(j.meta, '{}'), retry => j.retry,
            timeout => make_interval(secs => j.timeout),
            unique_opts => jsonb_strip_nulls(j.unique_opts))).outcome)::text
    from jsonb_to_record($1::jsonb) as p(name text, cron text, time_zone text, missed text, job jsonb),
        jsonb_to_record(p.job) as j(kind text, args jsonb, queue text, priority int,
            max_attempts int, tags text[], meta jsonb, timeout float8, retry jsonb, unique_opts jsonb)";
