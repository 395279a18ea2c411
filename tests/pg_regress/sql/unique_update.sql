-- on_conflict update: the existing job takes the listed fields, if its state is listed.
create view pg_temp.jobs as select id, state, kind, args, meta, queue, priority, max_attempts, tags, scheduled_at > now() as later from jobs.jobs order by id;
create function pg_temp.again(fields jsonb, at timestamptz = null) returns table (id bigint, state jobs.state, skipped boolean, queue text) language sql as $$
  select id, state, unique_skipped_as_duplicate, queue from jobs.insert('b', '{"new": true}', jsonb_build_object('key', 'k', 'exclude_kind', true, 'on_conflict', jsonb_build_object('update', fields)),
    'new', 5, at, 7, '{new}', '{"new": true}') $$;

select id from jobs.insert('a', '{}', '{"key": "k", "exclude_kind": true}'); --> 1
select * from pg_temp.again('{"available": ["args"]}'); --> id|state|skipped|queue: 1|available|t|default
select * from pg_temp.jobs;
--> id|state|kind|args|meta|queue|priority|max_attempts|tags|later
--> 1|available|a|{"new": true}|{}|default|1|25|{}|f
select * from pg_temp.again('{"*": ["kind", "max_attempts", "meta", "tags"]}'); --> id|state|skipped|queue: 1|available|t|default
select * from pg_temp.jobs;
--> id|state|kind|args|meta|queue|priority|max_attempts|tags|later
--> 1|available|b|{"new": true}|{"new": true}|default|1|7|{new}|f
-- The lane: it goes to the end of the other one, and is fetched from there.
select * from pg_temp.again('{"available": ["queue", "priority"]}'); --> id|state|skipped|queue: 1|available|t|new
select * from pg_temp.jobs;
--> id|state|kind|args|meta|queue|priority|max_attempts|tags|later
--> 1|available|b|{"new": true}|{"new": true}|new|5|7|{new}|f
select count(*) as in_the_old_queue from jobs.fetch('default'); --> 0
-- Not listed: skipped.
select * from pg_temp.again('{"running": ["args"]}'); --> id|state|skipped|queue: 1|available|t|new
-- A new time makes a waiting job scheduled, or available, as an insert would.
select * from pg_temp.again('{"*": ["scheduled_at"]}', '2999-01-01Z'); --> id|state|skipped|queue: 1|scheduled|t|new
select * from pg_temp.jobs;
--> id|state|kind|args|meta|queue|priority|max_attempts|tags|later
--> 1|scheduled|b|{"new": true}|{"new": true}|new|5|7|{new}|t
select * from pg_temp.again('{"scheduled": ["queue"]}', '2998-01-01Z'); --> id|state|skipped|queue: 1|scheduled|t|new
select scheduled_at from jobs.jobs; --> 2999-01-01 00:00:00+00
select * from pg_temp.again('{"*": ["scheduled_at"]}'); --> id|state|skipped|queue: 1|available|t|new
select * from pg_temp.jobs;
--> id|state|kind|args|meta|queue|priority|max_attempts|tags|later
--> 1|available|b|{"new": true}|{"new": true}|new|5|7|{new}|f
-- A named state goes before "*".
select * from pg_temp.again('{"*": ["priority"], "available": ["args"]}'); --> id|state|skipped|queue: 1|available|t|new
-- A running job takes what does not move it.
select id from jobs.fetch('new'); --> 1
select * from pg_temp.again('{"running": ["args", "priority"]}'); --> id|state|skipped|queue: 1|running|t|new
select state, args, priority from jobs.jobs; --> state|args|priority: running|{"new": true}|5
select jobs.complete(id, token) from jobs.jobs; --> completed
select id, state, attempt from jobs.jobs; --> id|state|attempt: 1|completed|1
-- The key stays, whatever the args are by now.
select id from jobs.insert('c', '{"n": 1}', '{"by_args": true, "by_state": ["available"]}'); --> 4
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{"n": 1}', '{"by_args": true, "by_state": ["available"], "on_conflict": {"update": {"*": ["args", "priority"]}}}', priority => 3);
--> id|skipped: 4|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{"n": 1.0}', '{"by_args": true, "by_state": ["available"]}'); --> id|skipped: 4|t
-- Oban's replace.
select id from jobs.insert('o', '{"n": 1}', '{"oban": {"keys": ["n"]}}', scheduled_at => '2999-01-01Z'); --> 6
select id, state, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"n": 1, "x": 1}', '{"oban": {"keys": ["n"], "replace": {"scheduled": ["args", "priority"]}}}', priority => 2);
--> id|state|skipped: 6|scheduled|t
select args, priority, state from jobs.jobs where kind = 'o'; --> args|priority|state: {"n": 1, "x": 1}|2|scheduled
-- In a batch the second element updates the first.
select ord, id = min(id) over () as the_first, unique_skipped_as_duplicate as skipped from jobs.insert_many(
  '[{"kind": "m", "args": 1, "unique_opts": {"by_kind": true}}, {"kind": "m", "args": 2, "unique_opts": {"by_kind": true, "on_conflict": {"update": {"available": ["args"]}}}}]');
--> ord|the_first|skipped
--> 1|t|f
--> 2|t|t
select args, state from jobs.jobs where kind = 'm'; --> args|state: 2|available
-- What comes behind an update is decided after it: the job that runs is updated, and none waits.
select id from jobs.insert('w', '1', '{"by_kind": true}', 'w'); --> 8
select count(*) as fetched from jobs.fetch('w'); --> 1
select ord, unique_skipped_as_duplicate as skipped, state from jobs.insert_many(
  '[{"kind": "w", "args": 2, "unique_opts": {"by_kind": true, "on_conflict": {"update": {"running": ["args"]}}}}, {"kind": "w", "args": 3, "unique_opts": {"by_state": ["available"], "on_conflict": "reject"}}]');
--> ord|skipped|state
--> 1|t|running
--> 2|f|available
select args, state from jobs.jobs where kind = 'w' order by id; --> args|state: 2|running, 3|available
select would, holder_state from jobs.explain_unique('m', unique_opts => '{"by_kind": true, "on_conflict": {"update": {"available": ["args"]}}}'); --> would|holder_state: update|available
select count(*) from jobs.ready r where not exists (select from jobs.job j where j.id = r.job_id); --> 0
