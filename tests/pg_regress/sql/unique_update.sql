\set ECHO none
-- on_conflict update: the existing job takes the listed fields, if its state is listed.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create view pg_temp.jobs as select id, state, kind, args, meta, queue, priority, max_attempts, tags, scheduled_at > now() as later from jobs.jobs order by id;
create function pg_temp.again(fields jsonb, at timestamptz = null) returns table (id bigint, state jobs.state, skipped boolean, queue text) language sql as $$
  select id, state, unique_skipped_as_duplicate, queue from jobs.insert('b', '{"new": true}', jsonb_build_object('key', 'k', 'exclude_kind', true, 'on_conflict', jsonb_build_object('update', fields)),
    'new', 5, at, 7, '{new}', '{"new": true}') $$;

select id from jobs.insert('a', '{}', '{"key": "k", "exclude_kind": true}');
select * from pg_temp.again('{"available": ["args"]}');
select * from pg_temp.jobs;
select * from pg_temp.again('{"*": ["kind", "max_attempts", "meta", "tags"]}');
select * from pg_temp.jobs;
-- The lane: it goes to the end of the other one, and is fetched from there.
select * from pg_temp.again('{"available": ["queue", "priority"]}');
select * from pg_temp.jobs;
select count(*) as in_the_old_queue from jobs.fetch('default');
-- Not listed: skipped.
select * from pg_temp.again('{"running": ["args"]}');
-- A new time makes a waiting job scheduled, or available, as an insert would.
select * from pg_temp.again('{"*": ["scheduled_at"]}', '2999-01-01Z');
select * from pg_temp.jobs;
select * from pg_temp.again('{"scheduled": ["queue"]}', '2998-01-01Z');
select scheduled_at from jobs.jobs;
select * from pg_temp.again('{"*": ["scheduled_at"]}');
select * from pg_temp.jobs;
-- A named state goes before "*".
select * from pg_temp.again('{"*": ["priority"], "available": ["args"]}');
-- A running job takes what does not move it.
select id from jobs.fetch('new');
select * from pg_temp.again('{"running": ["args", "priority"]}');
select state, args, priority from jobs.jobs;
select jobs.complete(id, token) from jobs.jobs;
select id, state, attempt from jobs.jobs;
-- The key stays, whatever the args are by now.
select id from jobs.insert('c', '{"n": 1}', '{"by_args": true, "by_state": ["available"]}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{"n": 1}', '{"by_args": true, "by_state": ["available"], "on_conflict": {"update": {"*": ["args", "priority"]}}}', priority => 3);
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{"n": 1.0}', '{"by_args": true, "by_state": ["available"]}');
-- Oban's replace.
select id from jobs.insert('o', '{"n": 1}', '{"oban": {"keys": ["n"]}}', scheduled_at => '2999-01-01Z');
select id, state, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"n": 1, "x": 1}', '{"oban": {"keys": ["n"], "replace": {"scheduled": ["args", "priority"]}}}', priority => 2);
select args, priority, state from jobs.jobs where kind = 'o';
-- In a batch the second element updates the first.
select ord, id = min(id) over () as the_first, unique_skipped_as_duplicate as skipped from jobs.insert_many(
  '[{"kind": "m", "args": 1, "unique_opts": {"by_kind": true}}, {"kind": "m", "args": 2, "unique_opts": {"by_kind": true, "on_conflict": {"update": {"available": ["args"]}}}}]');
select args, state from jobs.jobs where kind = 'm';
-- What comes behind an update is decided after it: the job that runs is updated, and none waits.
select id from jobs.insert('w', '1', '{"by_kind": true}', 'w');
select count(*) as fetched from jobs.fetch('w');
select ord, unique_skipped_as_duplicate as skipped, state from jobs.insert_many(
  '[{"kind": "w", "args": 2, "unique_opts": {"by_kind": true, "on_conflict": {"update": {"running": ["args"]}}}}, {"kind": "w", "args": 3, "unique_opts": {"by_state": ["available"], "on_conflict": "reject"}}]');
select args, state from jobs.jobs where kind = 'w' order by id;
select would, holder_state from jobs.explain_unique('m', unique_opts => '{"by_kind": true, "on_conflict": {"update": {"available": ["args"]}}}');
select count(*) from jobs.ready r where not exists (select from jobs.job j where j.id = r.job_id);
