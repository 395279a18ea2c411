-- What an insert would be unique by, and what would happen: nothing is written.

select * from jobs.explain_unique('k'); --> canonical|unique_key|lock_id|policy|holder|holder_state|would: ~|~|~|~|~|~|insert
select * from jobs.explain_unique('k', unique_opts => '{}'); --> canonical|unique_key|lock_id|policy|holder|holder_state|would: ~|~|~|~|~|~|insert
select canonical, unique_key = jobs.unique_key('k', '{"n": 1}', '{"by_args": true}') as the_key, unique_key = encode(sha256(canonical::bytea), 'hex') as its_hash,
       lock_id = ('x' || left(unique_key, 16))::bit(64)::bigint as its_lock, policy, holder, holder_state, would
  from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true}');
--> canonical|the_key|its_hash|its_lock|policy|holder|holder_state|would
--> {"args":{"n":1},"type":"k"}|t|t|t|{"key": null, "wait": true, "window": null, "by_args": true, "by_kind": false, "by_meta": false, "by_queue": false, "by_state": ["available", "scheduled", "pending", "running", "retryable", "completed"], "hold_for": null, "by_period": null, "hold_until": null, "on_conflict": "skip", "window_from": null, "exclude_kind": false}|~|~|insert
select id from jobs.insert('k', '{"n": 1}', '{"by_args": true}'); --> 1
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true}'); --> holder|holder_state|would: 1|available|skip
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true, "on_conflict": "reject"}'); --> holder|holder_state|would: 1|available|reject
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true, "by_state": ["running"]}'); --> holder|holder_state|would: ~|~|insert
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 2}', '{"by_args": true}'); --> holder|holder_state|would: ~|~|insert
select policy->>'by_period' as by_period, canonical from jobs.explain_unique('k', unique_opts => '{"by_period": "15 minutes"}', scheduled_at => '2026-02-12 15:21Z');
--> by_period|canonical: PT15M|{"period":"2026-02-12T15:15:00Z","type":"k"}
select policy->'by_args' as by_args, policy->'window' as "window", policy->>'window_from' as window_from
  from jobs.explain_unique('k', '{"c.d": 1}', '{"by_args": ["a.b", "c\\.d"], "window": 90}'); --> by_args|window|window_from: ["a.b", "c\\.d"]|"PT1M30S"|created_at
-- It reads: also where nothing can be written, and the claims' view with it.
begin read only;
select would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true}'); --> skip
select key = jobs.unique_key('k', '{"n": 1}', '{"by_args": true}') as the_key, holders from jobs.unique_claims; --> the_key|holders: t|{1}
select unique_key = jobs.unique_key('k', '{"n": 1}', '{"by_args": true}') as its_key, (select holders from jobs.unique_claims where key_bytes = decode(unique_key, 'hex')) as holders from jobs.jobs;
--> its_key|holders: t|{1}
commit;
select count(*) as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); --> 0
select pg_temp.try($$select jobs.explain_unique(null)$$); --> 22004: kind must not be null
select pg_temp.try($$select jobs.explain_unique('k', unique_opts => '{"by_arg": true}')$$);
--> 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
select count(*) from jobs.jobs; --> 1

-- What a server of the Open Job Spec can declare: strong.
select manifest - 'capabilities' as manifest, manifest -> 'capabilities' -> 'unique_jobs' ->> 'strength' as strength, (manifest -> 'capabilities') - 'unique_jobs' as others from jobs.ojs_manifest() manifest;
--> manifest|strength|others
--> {"backend": "postgres", "protocols": [], "ojs_version": "1.0.0-rc.1", "implementation": {"name": "jobs", "version": "0.1.0", "language": "rust"}}|strong|{"job_ttl": true, "cron_jobs": true, "workflows": false, "dead_letter": true, "delayed_jobs": true, "pause_resume": true, "batch_enqueue": true, "rate_limiting": true, "priority_queues": true, "schema_validation": false}
