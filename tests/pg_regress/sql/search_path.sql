-- No search_path, operator or temp table of a caller changes what a function does.

-- Evil operators, functions, types and casts in a schema before pg_catalog, and temp tables with
-- the names of the extension's and of the catalogue's.
create schema evil;
create table evil.log (what text);
create function evil.eq(a bigint, b bigint) returns boolean language plpgsql as $$ begin insert into evil.log values ('bigint ='); return true; end $$;
create function evil.eq(a text, b text) returns boolean language plpgsql as $$ begin insert into evil.log values ('text ='); return true; end $$;
create function evil.eq(a bytea, b bytea) returns boolean language plpgsql as $$ begin insert into evil.log values ('bytea ='); return true; end $$;
create function evil.eq(a jobs.state, b jobs.state) returns boolean language plpgsql as $$ begin insert into evil.log values ('state ='); return true; end $$;
create function evil.le(a timestamptz, b timestamptz) returns boolean language plpgsql as $$ begin insert into evil.log values ('timestamptz <='); return true; end $$;
create function evil.plus(a timestamptz, b interval) returns timestamptz language plpgsql as $$ begin insert into evil.log values ('timestamptz +'); return '-infinity'; end $$;
create operator evil.= (function = evil.eq, leftarg = bigint, rightarg = bigint);
create operator evil.= (function = evil.eq, leftarg = text, rightarg = text);
create operator evil.= (function = evil.eq, leftarg = bytea, rightarg = bytea);
create operator evil.= (function = evil.eq, leftarg = jobs.state, rightarg = jobs.state);
create operator evil.<= (function = evil.le, leftarg = timestamptz, rightarg = timestamptz);
create operator evil.> (function = evil.le, leftarg = timestamptz, rightarg = timestamptz);
create operator evil.+ (function = evil.plus, leftarg = timestamptz, rightarg = interval);
create function evil.nextval(regclass) returns bigint language plpgsql as $$ begin insert into evil.log values ('nextval'); return 666; end $$;
create function evil.unnest(anyarray) returns setof anyelement language plpgsql as $$ begin insert into evil.log values ('unnest'); end $$;
create function evil.clock_timestamp() returns timestamptz language plpgsql as $$ begin insert into evil.log values ('clock_timestamp'); return '-infinity'; end $$;
create function evil.count("any") returns bigint language internal as 'int8inc';
create type evil.state as enum ('evil');
create type evil.jsonb as (x int);
create temp table job (id bigint, kind text);
create temp table ready (job_id bigint, seq bigint);
create temp table scheduled (job_id bigint);
create temp table running (job_id bigint, token bigint);
create temp table finished (job_id bigint);
create temp table error (job_id bigint);
create temp table unique_claim (key bytea);
create temp sequence job_seq start 666;
create temp table pg_class (relname text);
create temp table jobs (id bigint);

create function pg_temp.life() returns table (step text, answer text) language plpgsql as $$
declare i record; f record; n bigint;
begin
  select * into i from jobs.insert('a', pg_catalog.jsonb_build_object('n', 1), '{"by_args": true}', 'q');
  step := 'insert'; answer := pg_catalog.concat_ws(' ', i.id, i.state, i.unique_skipped_as_duplicate, i.queue); return next;
  select * into i from jobs.insert('a', '{"n": 2}', '{"by_args": true}', 'q', 0::int);
  step := 'insert another'; answer := pg_catalog.concat_ws(' ', i.id, i.state, i.unique_skipped_as_duplicate, i.queue); return next;
  select * into i from jobs.insert('a', '{"n": 1}', '{"by_args": true}', 'q');
  step := 'insert a duplicate'; answer := pg_catalog.concat_ws(' ', i.id, i.state, i.unique_skipped_as_duplicate, i.queue); return next;
  select * into i from jobs.insert('later', scheduled_at => '2999-01-01 00:00Z');
  step := 'schedule'; answer := pg_catalog.concat_ws(' ', i.id, i.state); return next;
  for i in select * from jobs.insert_batch('b', array['1', '2', '1']::pg_catalog.jsonb[], '{"by_args": true}', 'b') loop
    step := 'batch'; answer := pg_catalog.concat_ws(' ', i.ord, i.id, i.unique_skipped_as_duplicate); return next;
  end loop;
  select * into f from jobs.fetch('q', worker => 'w');
  step := 'fetch'; answer := pg_catalog.concat_ws(' ', f.id, f.attempt, f.kind, f.args, f.lease_expires_at operator(pg_catalog.-) f.attempted_at); return next;
  step := 'complete'; answer := jobs.complete(f.id, f.token); return next;
  select * into f from jobs.fetch('q', worker => 'w');
  step := 'fetch'; answer := pg_catalog.concat_ws(' ', f.id, f.attempt); return next;
  select * into i from jobs.heartbeat(f.id, f.token);
  step := 'heartbeat'; answer := i.cancel_requested; return next;
  select * into i from jobs.fail(f.id, f.token, 'x', '1 hour');
  step := 'fail'; answer := i.state; return next;
  step := 'cancel'; answer := jobs.cancel(f.id); return next;
  step := 'retry'; answer := jobs.retry(f.id); return next;
  select * into f from jobs.fetch_any('{default,q}', 10);
  step := 'fetch_any'; answer := pg_catalog.concat_ws(' ', f.id, f.attempt); return next;
  select * into i from jobs.snooze(f.id, f.token, '1 hour');
  step := 'snooze'; answer := i.state; return next;
  step := 'delete'; answer := jobs.delete(f.id); return next;
  step := 'define'; answer := jobs.schedule('p', '@yearly', 'p') is not null and jobs.schedule('q', 'every 1 day', 'q') is not null; return next;
  update jobs.periodic_schedule set defined_at = '1999-01-01', next_run_at = '2000-01-01';
  step := 'define again'; answer := jobs.schedule('q', '@yearly', 'q') is not null; return next;
  for i in select * from jobs.maintain() loop
    step := 'maintain'; answer := pg_catalog.concat_ws(' ', i.task, i.rows, i.error); return next;
  end loop;
  for i in select * from jobs.periodic order by name loop
    step := 'periodic'; answer := pg_catalog.concat_ws(' ', i.name, i.last_job_id, i.last_skipped, i.last_error); return next;
  end loop;
  step := 'end'; answer := jobs.unschedule('p'); return next;
  step := 'beat'; answer := jobs.worker_beat('w', '{q}', 1, '{"n": 1}'); return next;
  perform jobs.quiet_worker('w');
  step := 'beat'; answer := jobs.worker_beat('w', '{q}', 1, '{"n": 1}'); return next;
  perform jobs.resume_worker('w');
  step := 'key'; answer := jobs.unique_key('a', '{"n": 1}', '{"by_args": true}'); return next;
  step := 'last id'; answer := jobs.last_id() between 1 and 600; return next;
  perform from jobs.insert_batch('m', array['1', '2']::pg_catalog.jsonb[], queue => 'm');
  select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('id', m.id, 'token', m.token, 'do', 'fail', 'error', 'x')) as results into f from jobs.fetch('m', 2, min_jobs => 2) m;
  for i in select * from jobs.finish_many(f.results) loop
    step := 'finish_many'; answer := pg_catalog.concat_ws(' ', i.ord, i.state, i.done); return next;
  end loop;
  -- What a single insert runs statements for: it has no path of its own, they have.
  for n in 1 .. 2 loop
    select * into i from jobs.insert('r', '{"n": 1}', '{"by_args": true, "on_conflict": "replace"}', 'r');
    step := 'replace'; answer := pg_catalog.concat_ws(' ', i.state, i.unique_skipped_as_duplicate, i.replaced_id is not null); return next;
  end loop;
  for n in 1 .. 2 loop
    select * into i from jobs.insert('u', pg_catalog.to_jsonb(n), '{"by_kind": true, "on_conflict": {"update": {"available": ["args"]}}}', 'u');
    step := 'update'; answer := pg_catalog.concat_ws(' ', i.state, i.unique_skipped_as_duplicate); return next;
  end loop;
  for n in 1 .. 2 loop
    select * into i from jobs.insert('w', unique_opts => '{"by_kind": true, "wait": false, "by_state": ["completed"]}', queue => 'w');
    step := 'do not wait'; answer := pg_catalog.concat_ws(' ', i.state, i.unique_skipped_as_duplicate); return next;
  end loop;
end $$;
-- As a caller with a clean path sees it.
create temp table clean as select row_number() over () as n, step, answer from pg_temp.life();
select step, case when step = 'key' then left(answer, 8) else answer end as answer from clean order by n;
--> step|answer
--> insert|1 available f q
--> insert another|2 available f q
--> insert a duplicate|1 available t q
--> schedule|3 scheduled
--> batch|1 4 f
--> batch|2 5 f
--> batch|3 4 t
--> fetch|2 1 a {"n": 2} 00:01:00
--> complete|completed
--> fetch|1 1
--> heartbeat|false
--> fail|retryable
--> cancel|cancelled
--> retry|available
--> fetch_any|1 2
--> snooze|scheduled
--> delete|scheduled
--> define|true
--> define again|true
--> maintain|schedule 0
--> maintain|limits 0
--> maintain|periodic 1
--> maintain|expire 0
--> maintain|rescue 0
--> maintain|prune 0
--> maintain|claims 1
--> maintain|statistics 0
--> periodic|p 9 f
--> periodic|q 8 f
--> end|true
--> beat|run
--> beat|quiet
--> key|5beb9e83
--> last id|true
--> finish_many|1 retryable t
--> finish_many|2 retryable t
--> replace|available f f
--> replace|available f t
--> update|available f
--> update|available t
--> do not wait|available f
--> do not wait|available f
set client_min_messages = warning;
drop extension jobs cascade;
create extension jobs;
create function evil.eq(a jobs.state, b jobs.state) returns boolean language plpgsql as $$ begin insert into evil.log values ('state ='); return true; end $$;
create operator evil.= (function = evil.eq, leftarg = jobs.state, rightarg = jobs.state);
-- And with the evil one. Plans of the session are made again.
set search_path = pg_temp, evil, pg_catalog, public;
create temp table dirty as select pg_catalog.row_number() over () as n, step, answer from pg_temp.life();
reset search_path;
select n, c.step, c.answer as clean, d.answer as dirty from clean c full join dirty d using (n) where (c.step, c.answer) is distinct from (d.step, d.answer) order by n; --> none
select * from evil.log; --> none
-- A session whose first call is made with the evil path.
\c -
set client_min_messages = warning;
set search_path = evil, pg_catalog, public;
select pg_catalog.concat_ws(' ', id, state, unique_skipped_as_duplicate) from jobs.insert('first', unique_opts => '{"by_kind": true}', queue => 'first'); --> 17 available f
select kind, attempt from jobs.fetch('first', 10); --> kind|attempt: first|1
select kind, attempt from jobs.fetch('first', 10); --> none
reset search_path;
select * from evil.log; --> none
-- The views keep what they were made with.
select count(*) filter (where definition ~ 'evil') as evil from (select pg_get_viewdef(oid) as definition from pg_catalog.pg_class where relnamespace = 'jobs'::regnamespace and relkind = 'v') v; --> 0
set search_path = evil, pg_catalog, public;
select pg_catalog.concat_ws(' ', id, state) from jobs.jobs where queue operator(pg_catalog.=) 'first'; --> 17 running
reset search_path;
select * from evil.log; --> none
-- Made while such things stand in the path, the extension is the same.
create temp table views as select relname, pg_get_viewdef(oid) as definition from pg_catalog.pg_class where relnamespace = 'jobs'::regnamespace and relkind = 'v';
drop extension jobs cascade;
set search_path = evil, public;
create extension jobs;
reset search_path;
select relname as differs from pg_temp.views v join pg_catalog.pg_class c using (relname) where relnamespace = 'jobs'::regnamespace and pg_get_viewdef(c.oid) <> v.definition; --> none
select id, state from jobs.insert('k'); --> id|state: 1|available
select id, kind from jobs.fetch(); --> id|kind: 1|k
select * from evil.log; --> none
select extnamespace::regnamespace from pg_extension where extname = 'jobs'; --> pg_catalog
-- Control: whoever is not careful is caught.
set search_path = evil, pg_catalog, public;
select 1::bigint = 2::bigint as equal; --> t
reset search_path;
select * from evil.log; --> bigint =
drop schema evil cascade;
