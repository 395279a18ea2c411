-- What a role tries that may insert, fetch and look, to have the extension run its code or show it
-- more. Each attack has its control: it works on somebody who is not careful.
-- tests/server/security.rs has the attacks for which it takes several sessions.

create role jobs_attacks_mallory;
create role jobs_attacks_nobody;
create schema evil authorization jobs_attacks_mallory;
grant temp on database :DBNAME to jobs_attacks_mallory;
select jobs.grant_producer('jobs_attacks_mallory'), jobs.grant_worker('jobs_attacks_mallory'), jobs.grant_viewer('jobs_attacks_mallory');
-- Somebody careless, with the rights of the superuser.
create function public.careless(n bigint) returns boolean language sql security definer as $$ select n = 2 $$;
create function public.careful(n bigint) returns boolean language sql security definer set search_path = pg_catalog, pg_temp as $$ select n = 2 $$;
-- SQLSTATE of a statement, undone; what the error tells is written down.
create table public.told (who text default current_user, what text);
grant insert, select on public.told to public;
create function public.attempt(statement text) returns text language plpgsql as $$
declare message text; detail text; hint text; context text; c text; r text; t text;
begin
  execute statement;
  raise exception 'it works' using errcode = 'ZZ000';
exception when others then
  get stacked diagnostics message = message_text, detail = pg_exception_detail, hint = pg_exception_hint, context = pg_exception_context, c = column_name, r = constraint_name, t = table_name;
  insert into public.told (what) values (concat_ws(e'\n', message, detail, hint, replace(context, statement, ''), c, r, t));
  return sqlstate;
end $$;

set role jobs_attacks_mallory;
-- Whatever of hers is run says with whose rights.
create table evil.log (what text, who text default current_user);
grant insert on evil.log to public;
grant usage on schema evil to public;
create function evil.caught(what text) returns boolean language plpgsql as $$ begin insert into evil.log (what) values (what); return true; end $$;
-- A twin of every operator and of every function of Postgres on the types that a queue is made of.
create temp table made (what text);
do $$
declare
  t oid[] := array['bool', 'int2', 'int4', 'int8', 'text', 'bytea', 'timestamptz', 'interval', 'jsonb', 'name', 'oid', 'float8', 'numeric', 'text[]', 'int8[]', 'jsonb[]', 'bytea[]', 'timestamptz[]', 'regclass', 'anyelement', 'anyarray', 'anynonarray', 'anycompatible', 'anycompatiblearray', 'jobs.state', 'anyenum']::regtype[]::oid[];
  o record; f record;
begin
  for o in select oid, oprname, oprleft::regtype as l, oprright::regtype as r, oprresult::regtype as result from pg_operator where oprnamespace = 'pg_catalog'::regnamespace and oprleft = any (t || 0::oid) and oprright = any (t) loop
    begin
      execute format('create function evil.o%s(%s %s) returns %s language plpgsql as %L', o.oid, case when o.l <> 0 then o.l::text || ', ' else '' end, o.r, o.result, format('begin perform evil.caught(%L); return null; end', 'operator ' || o.oprname));
      execute format('create operator evil.%s (function = evil.o%s, %s rightarg = %s)', o.oprname, o.oid, case when o.l <> 0 then 'leftarg = ' || o.l::text || ',' else '' end, o.r);
      insert into made values ('operator');
    exception when others then null;
    end;
  end loop;
  for f in select proname, pg_get_function_identity_arguments(oid) as args, pg_get_function_result(oid) as result from pg_proc
            where pronamespace = 'pg_catalog'::regnamespace and prokind in ('f', 'a') and proargtypes::oid[] <@ t and prorettype <> 'trigger'::regtype loop
    begin
      execute format('create function evil.%I(%s) returns %s language plpgsql as %L', f.proname, f.args, f.result, format('begin perform evil.caught(%L); return %s; end', 'function ' || f.proname, case when f.result like 'SETOF %' then '' else 'null' end));
      insert into made values ('function');
    exception when others then null;
    end;
  end loop;
end $$;
select count(*) filter (where what = 'operator') > 200 as operators, count(*) filter (where what = 'function') > 500 as functions from made; --> operators|functions: t|t
-- Types and tables, too: those of the extension and of the catalog, as views that run her code.
create domain evil.text as pg_catalog.text check (evil.caught('domain text'));
create domain evil.jsonb as pg_catalog.jsonb check (evil.caught('domain jsonb'));
create domain evil.int8 as pg_catalog.int8 check (evil.caught('domain int8'));
create type evil.state as enum ('evil');
do $$
declare r record;
begin
  for r in select relname from pg_class where relkind in ('r', 'v') and relnamespace in ('jobs'::regnamespace, 'pg_catalog'::regnamespace) and relname not in ('pg_attribute') loop
    execute format('create view evil.%I as select evil.caught(%L) as x', r.relname, 'view ' || r.relname);
    execute format('create temp view %I as select evil.caught(%L) as x', r.relname, 'temp view ' || r.relname);
  end loop;
end $$;
create sequence evil.job_seq start 666;
create temp sequence job_seq start 666;
create function pg_temp.now() returns timestamptz language sql as $$ select timestamptz '-infinity' from (select evil.caught('temp now()')) x $$;

-- The life of jobs, in a session whose plans are all made under her path.
\c -
set timezone = 'UTC';
set datestyle = 'ISO';
set intervalstyle = 'postgres';
set role jobs_attacks_mallory;
create temp view job as select evil.caught('temp view job') as x;
create temp view ready as select evil.caught('temp view ready') as x;
create temp view pg_class as select evil.caught('temp view pg_class') as x;
create temp sequence job_seq start 666;
create function pg_temp.clock_timestamp() returns timestamptz language plpgsql as $$ begin perform evil.caught('temp clock_timestamp()'); return null; end $$;
set search_path = pg_temp, evil, public, pg_catalog, jobs;
select id, state, unique_skipped_as_duplicate from jobs.insert('a', '{"n": 1}', '{"by_args": true}', 'q'); --> id|state|unique_skipped_as_duplicate: 1|available|f
select id, state, unique_skipped_as_duplicate from jobs.insert('a', '{"n": 1.0}', '{"by_args": true}', 'q'); --> id|state|unique_skipped_as_duplicate: 1|available|t
select id, state, unique_skipped_as_duplicate from jobs.insert('a', '{"n": 2}', '{"by_args": true, "by_period": "1 hour", "window": "1 hour", "hold_for": "PT1H"}', 'q', 0, '2000-01-01', 3, '{t}', '{"m": 1}', '1 hour', '"oban"', '2999-01-01');
--> id|state|unique_skipped_as_duplicate: 2|available|f
select id, state from jobs.insert('later', queue => 'q', scheduled_at => '2999-01-01'); --> id|state: 3|scheduled
select ord, id, unique_skipped_as_duplicate from jobs.insert_batch('b', '{1,2,1}', '{"by_args": true}', 'b');
--> ord|id|unique_skipped_as_duplicate
--> 1|4|f
--> 2|5|f
--> 3|4|t
select ord, id, replaced_id from jobs.insert_many('[{"kind": "b", "args": 1, "queue": "b", "unique_opts": {"by_args": true, "on_conflict": "replace"}}, {"kind": "b", "args": 2, "queue": "b", "unique_opts": {"by_args": true, "on_conflict": {"update": {"*": ["priority", "meta"]}}}}]');
--> ord|id|replaced_id
--> 1|6|4
--> 2|5|~
select pg_catalog.left(jobs.unique_key('a', '{"n": 1}', '{"by_args": true}'), 8); --> 5beb9e83
select id, token, attempt, kind, args, deadline_at operator(pg_catalog.-) attempted_at as timeout from jobs.fetch('q', 1, 'w') \gset j_
select :j_id as id, :'j_kind' as kind, :'j_args' as args, :'j_timeout' as timeout; --> id|kind|args|timeout: 2|a|{"n": 2}|01:00:00
select cancel_requested from jobs.heartbeat(:j_id, :j_token, '1 hour', '{"p": 1}'); --> f
select state from jobs.fail(:j_id, :j_token, 'x', '1 hour', details => '{"type": "t"}'); --> retryable
select id, token, attempt from jobs.fetch_any('{none,q}', 1, 'w', kinds => '{a}') \gset j_
select jobs.complete(:j_id, :j_token, '{"o": 1}'); --> completed
select id, token from jobs.fetch('b', 1, 'w') \gset j_
select state from jobs.snooze(:j_id, :j_token, '1 hour'); --> scheduled
select id, token from jobs.fetch('b', 1, 'w') \gset j_
select jobs.release(:j_id, :j_token); --> available
select id, token from jobs.fetch('b', 1, 'w') \gset j_
select id, cancel_requested from jobs.heartbeat_many(array[:j_id], array[:j_token]); --> id|cancel_requested: 5|f
select id, state, done from jobs.complete_many(array[:j_id], array[:j_token]); --> id|state|done: 5|completed|t
call jobs.wait('q', '0.05 s');
select id from jobs.insert('c'); --> 9
call jobs.wait(timeout => '1 hour');
select finding from jobs.health() where finding operator(pg_catalog.=) 'bloat'; --> none
select pg_catalog.count(*) operator(pg_catalog.>) 10 as metrics from jobs.metrics(); --> t
select id, state, attempt, args from jobs.jobs order by id using operator(pg_catalog.<);
--> id|state|attempt|args
--> 1|completed|1|~
--> 2|retryable|1|~
--> 3|scheduled|0|~
--> 4|cancelled|0|~
--> 5|completed|1|~
--> 6|scheduled|0|~
--> 9|available|0|~
select queue, available, scheduled, running, completed, cancelled from jobs.queues order by queue using operator(pg_catalog.<);
--> queue|available|scheduled|running|completed|cancelled
--> b|0|1|0|1|1
--> default|1|0|0|0|0
--> q|0|1|0|1|0
select job_id, attempt, error from jobs.errors; --> job_id|attempt|error: 2|1|x
select worker, running from jobs.workers; --> none
select pg_catalog.count(*) from jobs.unique_claims; --> 4
select pg_catalog.count(*) operator(pg_catalog.>) 5 as tasks from jobs.maintenance; --> t
select pg_catalog.count(*) operator(pg_catalog.>) 5 as settings from jobs.settings; --> t
select name from jobs.periodic; --> none
-- And what others do in her database, under her path.
reset role;
select jobs.schedule('p', 'every 1 hour', 'p') is not null as scheduled, jobs.define_kind('d', 'q', 3), jobs.configure_queue('lim', 2, 10, '1 hour'), jobs.pause_queue('z');
--> scheduled|define_kind|configure_queue|pause_queue: t|||
update jobs.periodic_schedule set defined_at = '1999-01-01', next_run_at = '2000-01-01';
select task, rows, error from jobs.maintain();
--> task|rows|error
--> schedule|0|~
--> limits|0|~
--> periodic|1|~
--> expire|0|~
--> rescue|0|~
--> prune|0|~
--> claims|0|~
--> statistics|0|~
select id from jobs.insert('d', queue => 'lim'); --> 23
select id, token, kind from jobs.fetch('lim') \gset j_
select jobs.cancel(:j_id, force => true), jobs.retry(:j_id), jobs.delete(:j_id); --> cancel|retry|delete: cancelled|available|available
select jobs.cancel_many(kind => 'c'), jobs.delete_many(states => '{cancelled}'); --> cancel_many|delete_many: 1|2
select would from jobs.explain_unique('a', '{"n": 1}', '{"by_args": true}'); --> skip
select jobs.pause_maintenance(), jobs.resume_maintenance(), jobs.unschedule('p'); --> pause_maintenance|resume_maintenance|unschedule: ||t
select jobs.grant_admin('jobs_attacks_nobody'), jobs.revoke('jobs_attacks_nobody');
-- Nothing of hers was run.
reset search_path;
select * from evil.log; --> none
-- Control: it is by who is careless, with the rights of whoever that is.
set role jobs_attacks_mallory;
set search_path = pg_temp, evil, public, pg_catalog, jobs;
select 1::pg_catalog.int8 = 2 as operator; --> ~
select now() as function; --> ~
select * from job; --> t
select 'x'::text as type; --> x
select careless(1) as careless, careful(1) as careful; --> careless|careful: ~|f
reset search_path;
select what, who from evil.log;
--> what|who
--> operator =|jobs_attacks_mallory
--> function now|jobs_attacks_mallory
--> temp view job|jobs_attacks_mallory
--> domain text|jobs_attacks_mallory
--> operator =|postgres
truncate evil.log;

-- Types of her own as arguments: what they run is run before the call, with her rights.
create domain evil.kind_of_job as text check (evil.caught('domain ' || value));
create domain evil.args as jsonb check (evil.caught('domain args'));
create type evil.color as enum ('red');
create function evil.to_text(evil.color) returns text language plpgsql as $$ begin perform evil.caught('cast'); return 'red'; end $$;
create cast (evil.color as text) with function evil.to_text(evil.color) as implicit;
select id, queue from jobs.insert('k'::evil.kind_of_job, '{}'::evil.args, queue => 'red'::evil.color); --> id|queue: 25|red
select count(*) from jobs.insert_batch('k', array['{}'::evil.args]); --> 1
select count(*) from jobs.fetch_any(array['red'::evil.color::text]); --> 1
select what, who from evil.log;
--> what|who
--> domain k|jobs_attacks_mallory
--> domain args|jobs_attacks_mallory
--> cast|jobs_attacks_mallory
--> domain args|jobs_attacks_mallory
--> cast|jobs_attacks_mallory
truncate evil.log;
-- What only an owner may do to the extension's objects, tried: nothing works.
reset role;
create temp table tries (n serial, statement text);
insert into tries (statement) select * from unnest(string_to_array($$
create trigger t before insert on jobs.job for each row execute function suppress_redundant_updates_trigger()
create rule r as on insert to jobs.job do also select evil.caught('rule')
create rule "_RETURN" as on select to jobs.jobs do instead select evil.caught('rule')
create policy p on jobs.job using (evil.caught('policy'))
alter table jobs.job enable row level security
alter table jobs.job force row level security
alter table jobs.job alter column queue set default evil.caught('default')
alter table jobs.job add check (evil.caught('check'))
create index on jobs.job ((evil.caught(kind)))
create unique index on jobs.job (kind)
create statistics evil.s (dependencies) on kind, queue from jobs.job
create table evil.child () inherits (jobs.job)
alter table evil.log inherit jobs.job
create table evil.key (id bigint references jobs.job)
create table evil.copy (like jobs.job)
create table evil.copy as select * from jobs.job
create materialized view evil.copy as select args from jobs.job
create publication jobs_attacks for table jobs.job
create or replace view jobs.errors as select 1 as job_id
alter view jobs.jobs set (security_invoker = true)
create function jobs.f() returns int language sql as 'select 1'
create table jobs.t ()
create or replace function jobs.ojs_manifest() returns jsonb language sql as 'select 1'
alter function jobs.delete(bigint, text) owner to jobs_attacks_mallory
alter function jobs.complete(bigint, bigint, jsonb) set search_path = evil
alter function jobs.complete(bigint, bigint, jsonb) security invoker
alter function jobs.complete(bigint, bigint, jsonb) reset all
comment on function jobs.delete(bigint, text) is 'x'
alter type jobs.state add value 'evil'
create cast (jobs.state as bigint) with function evil.to_number(jobs.state) as implicit
create cast (jobs.state as text) with inout as implicit
create operator class evil.c default for type jobs.state using btree as operator 1 <
alter extension jobs add function evil.caught(text)
alter extension jobs drop function jobs.delete(bigint, text)
alter extension jobs update
drop extension jobs
drop schema jobs cascade
drop view jobs.jobs
alter schema jobs rename to hers
reassign owned by current_user to jobs_attacks_nobody
grant select on jobs.job to jobs_attacks_nobody
create event trigger e on ddl_command_end execute function evil.event()
create function evil.c() returns bigint language c as '$libdir/jobs', 'delete_wrapper'
set session_replication_role = replica
set jobs.enabled = off
alter role jobs_attacks_mallory set jobs.enabled = off
alter role jobs_attacks_mallory superuser
load 'jobs'
cluster jobs.job using job_pkey
reindex table jobs.job
truncate jobs.job
lock table jobs.job in access exclusive mode
lock table jobs.jobs in access exclusive mode
select * from jobs.jobs for update
$$, e'\n')) s where s <> '';
grant select on tries to public;
set role jobs_attacks_mallory;
create function evil.event() returns event_trigger language plpgsql as $$ begin perform evil.caught('event trigger'); end $$;
create function evil.to_number(jobs.state) returns bigint language sql as 'select 1';
select attempt(statement) as code, count(*), string_agg(statement, '; ') filter (where statement ~ 'jobs.enabled') as server from tries group by 1 order by 1;
--> code|count|server
--> 42501|52|~
--> 55P02|2|set jobs.enabled = off; alter role jobs_attacks_mallory set jobs.enabled = off
copy (select args from jobs.job) to stdout; --> ERROR:  permission denied for table job
grant execute on function jobs.insert to jobs_attacks_nobody; --> WARNING:  no privileges were granted for "insert"
revoke execute on function jobs.insert from jobs_attacks_mallory; --> WARNING:  no privileges could be revoked for "insert"
select r as role, has_function_privilege('jobs_attacks_' || r, 'jobs.insert'::regproc, 'execute') as may_insert from unnest('{mallory,nobody}'::text[]) r; --> role|may_insert: mallory|t, nobody|f
-- Control: on what is hers they work.
create table evil.hers (id bigint primary key, kind text);
select attempt(s) from unnest(array['create trigger t before insert on evil.hers for each row execute function suppress_redundant_updates_trigger()', 'create rule r as on insert to evil.hers do also select evil.caught(''rule'')',
  'create policy p on evil.hers using (evil.caught(''policy''))', 'alter table evil.hers force row level security', 'create table evil.child () inherits (evil.hers)', 'create table evil.key (id bigint references evil.hers)']) s;
--> ZZ000, ZZ000, ZZ000, ZZ000, ZZ000, ZZ000

-- Functions of the extension in what is hers are run with the rights of whoever touches it, and
-- whoever has none is refused.
create table evil.trap (key text default jobs.unique_key('k', '{}', '{"by_kind": true}'), args jsonb, check (jobs.unique_key('k', args, '{"by_args": true}') <> 'x'));
create index on evil.trap ((jobs.ojs_manifest()));
create index on evil.trap ((jobs.unique_key('k', args))); --> ERROR:  functions in index expression must be marked IMMUTABLE
create view evil.view as select id from jobs.insert('from a view');
create function evil.insert() returns trigger language plpgsql as $$ begin perform jobs.insert('from a trigger', new.args); return new; end $$;
create trigger t after insert on evil.trap for each row execute function evil.insert();
create table evil.secured (id bigint);
insert into evil.secured values (1);
create policy p on evil.secured using (jobs.unique_key('k') is null);
alter table evil.secured enable row level security;
alter table evil.secured force row level security;
grant all on all tables in schema evil to public;
insert into evil.trap (args) values ('{"n": 1}');
select id > 0 as inserted from evil.view; --> t
select id from evil.secured; --> 1
reset role;
truncate told;
set role jobs_attacks_nobody;
select attempt(s) from unnest(array['insert into evil.trap (args) values (null)', 'insert into evil.trap (key, args) values (null, null)', 'select * from evil.view', 'select * from evil.secured']) s;
--> 42501, 42501, 42501, 42501
select distinct split_part(what, e'\n', 1) as message from told order by 1; --> permission denied for function insert, permission denied for function unique_key
reset role;
select kind, count(*) from jobs.jobs where kind ~ '^from' group by 1 order by 1; --> kind|count: from a trigger|1, from a view|1

-- Row security of the caller has nothing to do with the extension's tables.
set role jobs_attacks_mallory;
set row_security = off;
select state from jobs.insert('k', queue => 'rls'); --> available
select kind from jobs.fetch('rls'); --> k
reset row_security;
reset role;

-- Who calls is who has the rights of the moment: neither a session's user nor the caller of a
-- function that belongs to another role.
set role jobs_attacks_nobody;
select session_user <> current_user as changed, attempt('select jobs.insert(''k'')') as insert, attempt('select * from jobs.jobs') as view, attempt('call jobs.wait()') as wait, attempt('select jobs.grant_admin(''jobs_attacks_nobody'')') as "grant";
--> changed|insert|view|wait|grant: t|42501|42501|42501|42501
reset role;
set role jobs_attacks_mallory;
create function evil.for_others() returns text language sql security definer set search_path = pg_catalog, pg_temp as $$ select state::text from jobs.insert('on behalf of others') $$;
create function evil.look() returns bigint language sql security definer set search_path = pg_catalog, pg_temp as $$ select count(args) from jobs.jobs $$;
create function evil.look_as_caller() returns bigint language sql set search_path = pg_catalog, pg_temp as $$ select count(args) from jobs.jobs $$;
reset role;
set role jobs_attacks_nobody;
select evil.for_others(); --> available
reset role;
select evil.look() as as_a_viewer, evil.look_as_caller() > 0 as as_superuser; --> as_a_viewer|as_superuser: 0|t

-- Settings of a session change nothing: the same calls, with the same answers.
create function public.life(n bigint) returns table (step text, answer text) language plpgsql as $$
declare i record; f record; q text := concat('set ', n);
begin
  select * into i from jobs.insert('a', '{"n": 1.50, "t": "a\\x"}', '{"by_args": true, "by_queue": true, "window": "2 days -1 hours", "hold_for": "-1 hours 2 days", "by_period": "PT1H"}', q, scheduled_at => '2020-02-03T04:05:06.7+00', timeout => '1 hour');
  step := 'insert'; answer := concat_ws(' ', i.state, i.unique_skipped_as_duplicate, extract(epoch from i.scheduled_at)); return next;
  select * into i from jobs.explain_unique('a', '{"n": 1.50, "t": "a\\x"}', '{"by_args": true, "by_queue": true, "window": "2 days -1 hours", "hold_for": "-1 hours 2 days", "by_period": "PT1H"}', q, scheduled_at => '2020-02-03T04:05:06.7+00');
  step := 'explain'; answer := concat_ws(' ', i.canonical, i.policy, i.would); return next;
  for i in select * from jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'b', 'queue', q, 'scheduled_at', '2020-02-03T04:05:06Z', 'timeout', '90 minutes', 'tags', '["x\\y", "null"]'::jsonb, 'expires_at', '2999-01-02T03:04:05+02', 'priority', 5))) loop
    step := 'many'; answer := concat_ws(' ', i.state, extract(epoch from i.scheduled_at)); return next;
  end loop;
  for f in select * from jobs.fetch(q, 9, 'w', lease => '10 minutes') order by kind loop
    step := 'fetch'; answer := concat_ws(' ', f.kind, f.args, extract(epoch from f.lease_expires_at - f.attempted_at), extract(epoch from f.deadline_at - f.attempted_at), to_json(f.tags)); return next;
    if f.kind = 'a' then
      step := 'complete'; answer := jobs.complete(f.id, f.token, '1.5e3'); return next;
    else
      step := 'fail'; answer := (jobs.fail(f.id, f.token, E'x\\y', '1 day')).state; return next;
    end if;
  end loop;
  step := 'schedule'; answer := extract(epoch from (jobs.schedule(q, '30 3 * * *', 'p', time_zone => 'Asia/Kolkata')).next_run_at)::bigint % 86400; return next;
  step := 'unschedule'; answer := jobs.unschedule(q); return next;
  for i in select metric, labels from jobs.metrics() where labels->>'queue' = q order by 1, 2::text loop
    step := 'metrics'; answer := concat_ws(' ', i.metric, i.labels - 'queue'); return next;
  end loop;
  step := 'view'; answer := (select string_agg(concat_ws(' ', kind, state, attempt, extract(epoch from timeout), extract(epoch from expires_at)), ', ' order by kind) from jobs.jobs where queue = q); return next;
  step := 'retry'; answer := jobs.retry_many(queue => q, older_than => '0'); return next;
end $$;
create temp table settings (n serial, setting text);
insert into settings (setting) select * from unnest(string_to_array($$
application_name = 'x'
datestyle = 'SQL, DMY'
datestyle = 'German'
intervalstyle = 'sql_standard'
intervalstyle = 'iso_8601'
timezone = 'Pacific/Apia'
timezone = '-13:37'
bytea_output = 'escape'
extra_float_digits = -15
lc_numeric = 'C'
lc_monetary = 'POSIX'
xmloption = 'document'
xmlbinary = 'hex'
standard_conforming_strings = off
backslash_quote = on
array_nulls = off
transform_null_equals = on
quote_all_identifiers = on
default_text_search_config = 'pg_catalog.german'
default_transaction_isolation = 'serializable'
default_transaction_deferrable = on
row_security = off
session_replication_role = replica
plan_cache_mode = force_custom_plan
force_parallel_mode = on
parallel_setup_cost = 0
enable_indexscan = off
enable_nestloop = off
enable_sort = off
enable_material = off
join_collapse_limit = 1
from_collapse_limit = 1
geqo_threshold = 2
constraint_exclusion = on
cursor_tuple_fraction = 0
work_mem = '64kB'
jit_above_cost = 0
synchronous_commit = off
default_toast_compression = 'pglz'
check_function_bodies = off
client_min_messages = error
password_encryption = md5
gin_fuzzy_search_limit = 1
synchronize_seqscans = off
$$, e'\n')) s where s <> '';
-- Called so before 16.
update settings set setting = replace(setting, 'force_parallel_mode', 'debug_parallel_query') where not exists (select from pg_settings where name = 'force_parallel_mode');
create temp table lives (n bigint, setting text, ord bigint, step text, answer text);
-- Plans are made anew each time, by the settings of the first call.
\set ECHO none
select format('set %s', setting), 'discard plans', format('insert into lives select %s, %L, row_number() over (), step, replace(answer, ''set %s'', ''QUEUE'') from life(%s)', n, setting, n, n), 'reset all'
  from (select n, setting from settings union all select 0, 'timezone = ''UTC''') s order by n \gexec
\set ECHO all
set timezone = 'UTC';
set datestyle = 'ISO';
set intervalstyle = 'postgres';
select count(distinct n) as lives from lives; --> 45
select step, answer from lives where n = 0 and step <> 'metrics' order by ord;
--> step|answer
--> insert|available f 1580702706.700000
--> explain|{"args":{"n":1.5,"t":"a\\x"},"period":"2020-02-03T04:00:00Z","queue":"QUEUE","type":"a"} {"key": null, "wait": true, "window": "P2DT-1H", "by_args": true, "by_kind": false, "by_meta": false, "by_queue": true, "by_state": ["available", "scheduled", "pending", "running", "retryable", "completed"], "hold_for": "P2DT-1H", "by_period": "PT1H", "hold_until": "success", "on_conflict": "skip", "window_from": "created_at", "exclude_kind": false} skip
--> many|available 1580702706.000000
--> fetch|a {"n": 1.50, "t": "a\\x"} 600.000000 3600.000000 []
--> complete|completed
--> fetch|b {} 600.000000 5400.000000 ["x\\y","null"]
--> fail|retryable
--> schedule|79200
--> unschedule|true
--> view|a completed 1 3600.000000, b retryable 1 5400.000000 32472234245.000000
--> retry|2
select l.setting, l.step, l.answer, d.answer as as_it_should_be from lives l join lives d on d.n = 0 and d.ord = l.ord where (l.step, l.answer) is distinct from (d.step, d.answer) order by l.n, l.ord;
--> none
select count(*) as other_lengths from (select from lives group by n having count(*) <> (select count(*) from lives where n = 0)) x; --> 0
-- Control: on whoever is not careful they have an effect.
set intervalstyle = 'sql_standard';
select interval '-1 hours 2 days' = '47 hours' as right; --> f
reset intervalstyle;
-- Those that limit what may be done limit it here as well.
set default_transaction_read_only = on;
\set VERBOSITY sqlstate
select jobs.insert('k'); --> ERROR:  25006
select jobs.fetch(); --> ERROR:  25006
\set VERBOSITY default
reset default_transaction_read_only;

-- What errors tell of other people's jobs: the texts of refused calls, with everything that an
-- error carries.
truncate told;
select id as s_id from jobs.insert('secret kind', '{"x": "secret args"}', '{"by_args": true}', 'secret queue', meta => '{"y": "secret meta"}', tags => '{secret tag}') \gset
select id as t_id from jobs.insert('secret kind', '{"x": "secret args 2"}', '{"key": "secret key"}', 'other queue', scheduled_at => '2999-01-01') \gset
select count(*) from jobs.fetch('secret queue', worker => 'secret worker'); --> 1
select jobs.unique_key('secret kind', '{"x": "secret args"}', '{"by_args": true}') as key \gset
set role jobs_attacks_mallory;
select attempt(format(s, :s_id, :t_id)) as code, s as call from unnest(array[
  'select jobs.complete(%1$s, 1)', 'select jobs.complete(%2$s, 1)', 'select jobs.fail(%1$s, 1, ''x'')', 'select jobs.snooze(%1$s, 1, ''1'')', 'select jobs.release(%2$s, 1)', 'select jobs.heartbeat(%1$s, 1)', 'select jobs.complete(999999, 1)',
  'select jobs.cancel(%1$s)', 'select jobs.update(%1$s, ''{}'')', 'select jobs.delete(%1$s)']) s;
--> code|call
--> 55000|select jobs.complete(%1$s, 1)
--> 55000|select jobs.complete(%2$s, 1)
--> 55000|select jobs.fail(%1$s, 1, 'x')
--> 55000|select jobs.snooze(%1$s, 1, '1')
--> 55000|select jobs.release(%2$s, 1)
--> 55000|select jobs.heartbeat(%1$s, 1)
--> P0002|select jobs.complete(999999, 1)
--> 42501|select jobs.cancel(%1$s)
--> 42501|select jobs.update(%1$s, '{}')
--> 42501|select jobs.delete(%1$s)
-- Of a duplicate they tell its id and state, to who had the args to begin with.
select attempt($$select jobs.insert('secret kind', '{"x": "secret args"}', '{"by_args": true, "on_conflict": "reject"}')$$), attempt($$select jobs.insert_many('[{"kind": "secret kind", "args": {"x": "secret args"}, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]')$$);
--> attempt|attempt: 23505|23505
reset role;
select count(*) from told; --> 12
-- Who has a job is told to who may work, and nothing else of it.
select what from told where replace(what, 'worker "secret worker"', '') ~* 'secret' or what ~ :'key' or what ~ left(:'key', 16); --> none
select distinct replace(split_part(what, e'\n', 1), :'s_id', 'ID') as message, replace(split_part(what, e'\n', 2), :'s_id', 'ID') as detail from told where what ~ 'existing_job_id' order by 1, 2;
--> message|detail
--> a job with the same unique key exists|{"existing_job_id":ID,"existing_job_state":"running","index":1}
--> a job with the same unique key exists|{"existing_job_id":ID,"existing_job_state":"running"}
-- Control: a careless table tells.
create table public.careless_unique (args jsonb unique);
insert into public.careless_unique values ('{"x": "secret args"}');
select attempt($$insert into public.careless_unique values ('{"x": "secret args"}')$$); --> 23505
select count(*) from told where what ~ 'Key.*secret args'; --> 1

-- What a producer is told of another's job whose args it can guess, and what it can do to it:
-- what its policy says, docs/security.md.
set role jobs_attacks_mallory;
select id = :t_id as found, state, queue, created_at is not null as created_at, scheduled_at from jobs.insert('secret kind', '{}', '{"key": "secret key"}');
--> found|state|queue|created_at|scheduled_at: t|scheduled|other queue|t|2999-01-01 00:00:00+00
select id = :t_id as updated from jobs.insert('secret kind', '{"x": "forged"}', '{"key": "secret key", "on_conflict": {"update": {"*": ["args", "priority"]}}}', priority => 30000); --> t
select replaced_id = :t_id as replaced from jobs.insert('secret kind', '{"x": "forged"}', '{"key": "secret key", "on_conflict": "replace"}'); --> t
reset role;
select args, priority, state, cancel_reason from jobs.jobs where id = :t_id; --> args|priority|state|cancel_reason: {"x": "forged"}|30000|cancelled|replaced
-- But nothing to one that its policy does not match: of another key, or inserted without one.
select id as p_id from jobs.insert('plain') \gset
set role jobs_attacks_mallory;
select replaced_id from jobs.insert('plain', unique_opts => '{"by_kind": true, "by_state": ["available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded"], "on_conflict": "replace"}');
--> ~
reset role;
select state from jobs.jobs where id = :p_id; --> available

-- Notifications are hints: anybody can send them, and nothing happens.
set role jobs_attacks_nobody;
select pg_notify('jobs', format('{"cancel": %s}', :s_id)) \gset
reset role;
select state, cancel_requested_at from jobs.jobs where id = :s_id; --> state|cancel_requested_at: running|~
select cancel_requested from jobs.jobs j, lateral jobs.heartbeat(j.id, j.token) where j.id = :s_id; --> f

-- Nothing more of hers was run.
select what, who from evil.log; --> none
set client_min_messages = error;
select jobs.revoke('jobs_attacks_mallory'), jobs.revoke('jobs_attacks_nobody');
drop schema evil cascade;
drop table public.told, public.careless_unique;
drop function public.careless, public.careful, public.life, public.attempt;
drop owned by jobs_attacks_mallory;
drop role jobs_attacks_mallory, jobs_attacks_nobody;
