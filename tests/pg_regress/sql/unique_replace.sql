-- on_conflict replace: every conflicting job that is not final is cancelled, the new one is
-- inserted.
create view pg_temp.jobs as select id, state, args->>'n' as n, cancel_reason, attempt from jobs.jobs order by id;

select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('a', '{"n": 1}', '{"by_kind": true, "on_conflict": "replace"}'); --> id|state|skipped|replaced_id: 1|available|f|~
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('a', '{"n": 2}', '{"by_kind": true, "on_conflict": "replace"}'); --> id|state|skipped|replaced_id: 2|available|f|1
select * from pg_temp.jobs;
--> id|state|n|cancel_reason|attempt
--> 1|cancelled|1|replaced|0
--> 2|available|2|~|0
-- A running one as with force: its worker's calls are refused.
select id as fetched from jobs.fetch(); --> 2
select pg_temp.token(2) as token \gset
select id, replaced_id from jobs.insert('a', '{"n": 3}', '{"by_kind": true, "on_conflict": "replace"}'); --> id|replaced_id: 3|2
select pg_temp.ask(format('select jobs.complete(2, %s)', :token)); --> 55000 lease_lost
select * from pg_temp.jobs;
--> id|state|n|cancel_reason|attempt
--> 1|cancelled|1|replaced|0
--> 2|cancelled|2|replaced|1
--> 3|available|3|~|0
-- Waiting ones in every state, all that conflict at once; replaced_id is the newest.
select id, state from jobs.insert('b', '{"n": 1}', '{"by_state": ["running"]}', scheduled_at => '2999-01-01Z'); --> id|state: 4|scheduled
select id, state from jobs.insert('b', '{"n": 2}', '{"by_state": ["running"]}', pending => true); --> id|state: 5|pending
select id, state from jobs.insert('b', '{"n": 3}', '{"by_state": ["running"]}', 'other'); --> id|state: 6|available
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('b', '{"n": 4}', '{"by_kind": true, "on_conflict": "replace"}'); --> id|state|skipped|replaced_id: 7|available|f|6
select * from pg_temp.jobs where id > 3;
--> id|state|n|cancel_reason|attempt
--> 4|cancelled|1|replaced|0
--> 5|cancelled|2|replaced|0
--> 6|cancelled|3|replaced|0
--> 7|available|4|~|0
-- Only those in the new job's states.
select id, state from jobs.insert('c', '{"n": 1}', '{"by_kind": true}', scheduled_at => '2999-01-01Z'); --> id|state: 8|scheduled
select id, replaced_id from jobs.insert('c', '{"n": 2}', '{"by_state": ["available"], "on_conflict": "replace"}'); --> id|replaced_id: 9|~
select id, replaced_id from jobs.insert('c', '{"n": 3}', '{"by_state": ["available"], "on_conflict": "replace"}'); --> id|replaced_id: 10|9
select * from pg_temp.jobs where id > 7;
--> id|state|n|cancel_reason|attempt
--> 8|scheduled|1|~|0
--> 9|cancelled|2|replaced|0
--> 10|available|3|~|0
-- If only final jobs conflict: as skip, and they are not touched. OJS: rejected.
select id from jobs.fetch('default', 10); --> 3, 7, 10
select jobs.complete(id, token) from jobs.jobs where state = 'running' order by id; --> completed, completed, completed
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('a', '{"n": 9}', '{"by_kind": true, "on_conflict": "replace"}'); --> id|state|skipped|replaced_id: 3|completed|t|~
select pg_temp.ask($$select jobs.insert('a', '{"n": 9}', '{"ojs": {"states": ["completed"], "on_conflict": "replace"}}')$$); --> 23505 {"existing_job_id":3,"existing_job_state":"completed"}
select * from pg_temp.jobs where id in (2, 3);
--> id|state|n|cancel_reason|attempt
--> 2|cancelled|2|replaced|1
--> 3|completed|3|~|1

-- replace_except_schedule: the new job takes over the schedule of the one it replaces, if that was
-- scheduled.
select id from jobs.insert('d', '{"n": 1}', '{"by_kind": true}', scheduled_at => '2999-01-01Z'); --> 11
select id, state, replaced_id, scheduled_at from jobs.insert('d', '{"n": 2}', '{"by_kind": true, "on_conflict": "replace_except_schedule"}');
--> id|state|replaced_id|scheduled_at: 12|scheduled|11|2999-01-01 00:00:00+00
select id, state, replaced_id, scheduled_at from jobs.insert('d', '{"n": 3}', '{"by_kind": true, "on_conflict": "replace"}', scheduled_at => '2998-01-01Z');
--> id|state|replaced_id|scheduled_at: 13|scheduled|12|2998-01-01 00:00:00+00
select id, state, replaced_id, scheduled_at from jobs.insert('d', '{"n": 4}', '{"by_kind": true, "on_conflict": "replace_except_schedule"}', scheduled_at => '2997-01-01Z');
--> id|state|replaced_id|scheduled_at: 14|scheduled|13|2998-01-01 00:00:00+00
select id from jobs.insert('e', '{"n": 1}', '{"by_kind": true}'); --> 15
select id, state, replaced_id, scheduled_at from jobs.insert('e', '{"n": 2}', '{"by_kind": true, "on_conflict": "replace_except_schedule"}', scheduled_at => '2997-01-01Z');
--> id|state|replaced_id|scheduled_at: 16|scheduled|15|2997-01-01 00:00:00+00

-- In a batch, one after the other: the last one stays.
select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert_batch('f', array['1', '2', '1', '2']::jsonb[], '{"by_args": true, "on_conflict": "replace"}');
--> ord|id|state|skipped|replaced_id
--> 1|17|available|f|~
--> 2|18|available|f|~
--> 3|19|available|f|17
--> 4|20|available|f|18
select id, state, args from jobs.jobs where kind = 'f' order by id;
--> id|state|args
--> 17|cancelled|1
--> 18|cancelled|2
--> 19|available|1
--> 20|available|2
-- Different policies under one key.
select ord, unique_skipped_as_duplicate as skipped, replaced_id is not null as replaces
  from jobs.insert_many('[{"kind": "g", "args": 1, "unique_opts": {"by_kind": true}}, {"kind": "g", "args": 2, "unique_opts": {"by_kind": true}},
                          {"kind": "g", "args": 3, "unique_opts": {"by_kind": true, "on_conflict": "replace"}}, {"kind": "g", "args": 4, "unique_opts": {"by_kind": true}}]');
--> ord|skipped|replaces
--> 1|f|f
--> 2|t|f
--> 3|f|t
--> 4|t|f
select args, state from jobs.jobs where kind = 'g' order by id; --> args|state: 1|cancelled, 3|available
-- Rolled back, nothing has happened.
begin;
select replaced_id is not null as replaces from jobs.insert('g', '5', '{"by_kind": true, "on_conflict": "replace"}'); --> t
rollback;
select args, state from jobs.jobs where kind = 'g' order by id; --> args|state: 1|cancelled, 3|available
select would, holder_state from jobs.explain_unique('g', unique_opts => '{"by_kind": true, "on_conflict": "replace"}'); --> would|holder_state: replace|available
