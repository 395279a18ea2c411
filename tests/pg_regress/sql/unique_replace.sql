\set ECHO none
-- on_conflict replace: every conflicting job that is not final is cancelled, the new one is
-- inserted.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create view pg_temp.jobs as select id, state, args->>'n' as n, cancel_reason, attempt from jobs.jobs order by id;

select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('a', '{"n": 1}', '{"by_kind": true, "on_conflict": "replace"}');
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('a', '{"n": 2}', '{"by_kind": true, "on_conflict": "replace"}');
select * from pg_temp.jobs;
-- A running one as with force: its worker's calls are refused.
select id as fetched from jobs.fetch();
select pg_temp.token(2) as token \gset
select id, replaced_id from jobs.insert('a', '{"n": 3}', '{"by_kind": true, "on_conflict": "replace"}');
select pg_temp.ask(format('select jobs.complete(2, %s)', :token));
select * from pg_temp.jobs;
-- Waiting ones in every state, all that conflict at once; replaced_id is the newest.
select id, state from jobs.insert('b', '{"n": 1}', '{"by_state": ["running"]}', scheduled_at => '2999-01-01Z');
select id, state from jobs.insert('b', '{"n": 2}', '{"by_state": ["running"]}', pending => true);
select id, state from jobs.insert('b', '{"n": 3}', '{"by_state": ["running"]}', 'other');
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('b', '{"n": 4}', '{"by_kind": true, "on_conflict": "replace"}');
select * from pg_temp.jobs where id > 3;
-- Only those in the new job's states.
select id, state from jobs.insert('c', '{"n": 1}', '{"by_kind": true}', scheduled_at => '2999-01-01Z');
select id, replaced_id from jobs.insert('c', '{"n": 2}', '{"by_state": ["available"], "on_conflict": "replace"}');
select id, replaced_id from jobs.insert('c', '{"n": 3}', '{"by_state": ["available"], "on_conflict": "replace"}');
select * from pg_temp.jobs where id > 7;
-- If only final jobs conflict: as skip, and they are not touched. OJS: rejected.
select id from jobs.fetch('default', 10);
select jobs.complete(id, token) from jobs.jobs where state = 'running' order by id;
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('a', '{"n": 9}', '{"by_kind": true, "on_conflict": "replace"}');
select pg_temp.ask($$select jobs.insert('a', '{"n": 9}', '{"ojs": {"states": ["completed"], "on_conflict": "replace"}}')$$);
select * from pg_temp.jobs where id in (2, 3);

-- replace_except_schedule: the new job takes over the schedule of the one it replaces, if that was
-- scheduled.
select id from jobs.insert('d', '{"n": 1}', '{"by_kind": true}', scheduled_at => '2999-01-01Z');
select id, state, replaced_id, scheduled_at from jobs.insert('d', '{"n": 2}', '{"by_kind": true, "on_conflict": "replace_except_schedule"}');
select id, state, replaced_id, scheduled_at from jobs.insert('d', '{"n": 3}', '{"by_kind": true, "on_conflict": "replace"}', scheduled_at => '2998-01-01Z');
select id, state, replaced_id, scheduled_at from jobs.insert('d', '{"n": 4}', '{"by_kind": true, "on_conflict": "replace_except_schedule"}', scheduled_at => '2997-01-01Z');
select id from jobs.insert('e', '{"n": 1}', '{"by_kind": true}');
select id, state, replaced_id, scheduled_at from jobs.insert('e', '{"n": 2}', '{"by_kind": true, "on_conflict": "replace_except_schedule"}', scheduled_at => '2997-01-01Z');

-- In a batch, one after the other: the last one stays.
select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert_batch('f', array['1', '2', '1', '2']::jsonb[], '{"by_args": true, "on_conflict": "replace"}');
select id, state, args from jobs.jobs where kind = 'f' order by id;
-- Different policies under one key.
select ord, unique_skipped_as_duplicate as skipped, replaced_id is not null as replaces
  from jobs.insert_many('[{"kind": "g", "args": 1, "unique_opts": {"by_kind": true}}, {"kind": "g", "args": 2, "unique_opts": {"by_kind": true}},
                          {"kind": "g", "args": 3, "unique_opts": {"by_kind": true, "on_conflict": "replace"}}, {"kind": "g", "args": 4, "unique_opts": {"by_kind": true}}]');
select args, state from jobs.jobs where kind = 'g' order by id;
-- Rolled back, nothing has happened.
begin;
select replaced_id is not null as replaces from jobs.insert('g', '5', '{"by_kind": true, "on_conflict": "replace"}');
rollback;
select args, state from jobs.jobs where kind = 'g' order by id;
select would, holder_state from jobs.explain_unique('g', unique_opts => '{"by_kind": true, "on_conflict": "replace"}');
