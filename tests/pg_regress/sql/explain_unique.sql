\set ECHO none
-- What an insert would be unique by, and what would happen: nothing is written.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select * from jobs.explain_unique('k');
select * from jobs.explain_unique('k', unique_opts => '{}');
select canonical, unique_key = jobs.unique_key('k', '{"n": 1}', '{"by_args": true}') as the_key, unique_key = encode(sha256(canonical::bytea), 'hex') as its_hash,
       lock_id = ('x' || left(unique_key, 16))::bit(64)::bigint as its_lock, policy, holder, holder_state, would
  from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true}');
select id from jobs.insert('k', '{"n": 1}', '{"by_args": true}');
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true}');
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true, "on_conflict": "reject"}');
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true, "by_state": ["running"]}');
select holder, holder_state, would from jobs.explain_unique('k', '{"n": 2}', '{"by_args": true}');
select policy->>'by_period' as by_period, canonical from jobs.explain_unique('k', unique_opts => '{"by_period": "15 minutes"}', scheduled_at => '2026-02-12 15:21Z');
select policy->'by_args' as by_args, policy->'window' as "window", policy->>'window_from' as window_from
  from jobs.explain_unique('k', '{"c.d": 1}', '{"by_args": ["a.b", "c\\.d"], "window": 90}');
-- It reads: also where nothing can be written, and the claims' view with it.
begin read only;
select would from jobs.explain_unique('k', '{"n": 1}', '{"by_args": true}');
select key = jobs.unique_key('k', '{"n": 1}', '{"by_args": true}') as the_key, holders from jobs.unique_claims;
select unique_key = jobs.unique_key('k', '{"n": 1}', '{"by_args": true}') as its_key, (select holders from jobs.unique_claims where key_bytes = decode(unique_key, 'hex')) as holders from jobs.jobs;
commit;
select count(*) as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();
select pg_temp.try($$select jobs.explain_unique(null)$$);
select pg_temp.try($$select jobs.explain_unique('k', unique_opts => '{"by_arg": true}')$$);
select count(*) from jobs.jobs;

-- What a server of the Open Job Spec can declare: strong.
select manifest - 'capabilities' as manifest, manifest -> 'capabilities' -> 'unique_jobs' ->> 'strength' as strength, (manifest -> 'capabilities') - 'unique_jobs' as others from jobs.ojs_manifest() manifest;
