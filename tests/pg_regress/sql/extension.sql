\set ECHO none
-- The extension as such: made, dropped, made again; what it leaves, who may use it, what it says of
-- itself.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Everything is in the schema jobs and belongs to the extension; the schema too.
select extname, extrelocatable, extnamespace::regnamespace from pg_extension where extname = 'jobs';
create function pg_temp.objects() returns table (kind text, identity text) language sql as $$
  select o.type, o.identity from (
    select 'pg_class'::regclass as c, oid from pg_class where relnamespace = to_regnamespace('jobs') and relkind in ('r', 'v', 'S', 'p', 'm', 'f')
    union all select 'pg_proc'::regclass, oid from pg_proc where pronamespace = to_regnamespace('jobs')
    union all select 'pg_type'::regclass, oid from pg_type where typnamespace = to_regnamespace('jobs') and (typtype = 'e' or typrelid in (select oid from pg_class where relkind = 'c'))
    union all select 'pg_namespace'::regclass, to_regnamespace('jobs') where to_regnamespace('jobs') is not null) x, lateral pg_identify_object(x.c, x.oid, 0) o
$$;
select count(*) > 0 as objects from pg_temp.objects();
select kind, identity as not_a_member from pg_temp.objects() except
  select o.type, o.identity from pg_depend d, lateral pg_identify_object(d.classid, d.objid, 0) o where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e';
select o.type, o.identity as outside_of_the_schema from pg_depend d, lateral pg_identify_object(d.classid, d.objid, 0) o
 where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e' and coalesce(o.schema, o.identity) <> 'jobs' and o.identity !~ '^jobs\.';

-- What it promises.
select enum_range(null::jobs.state);
-- No function is overloaded; all run with the extension's rights and a search_path of their own.
-- (Procedures that do cannot end transactions; jobs.insert, explain and health switch themselves;
-- jobs.show and results read what their caller may, and what grants asks who called.)
select proname as overloaded from pg_proc where pronamespace = 'jobs'::regnamespace group by 1 having count(*) > 1;
select proname as not_secured from pg_proc where pronamespace = 'jobs'::regnamespace and prokind <> 'p' and (prosecdef <> (proname not in ('insert', 'show', 'explain', 'health', 'results', 'revoke', 'installed') and proname !~ '^grant_') or proconfig is distinct from case when proname <> 'insert' then '{"search_path=pg_catalog, pg_temp"}'::text[] end);
-- Names and defaults of parameters, and the columns of the types that they return.
select proname, pg_get_function_arguments(oid), pg_get_function_result(oid) from pg_proc where pronamespace = 'jobs'::regnamespace and proname in
  ('insert', 'insert_many', 'insert_batch', 'unique_key', 'fetch', 'fetch_any', 'complete', 'complete_many', 'finish_many', 'fail', 'fail_many', 'snooze', 'release', 'heartbeat', 'heartbeat_many', 'cancel', 'retry', 'delete', 'maintain', 'schedule', 'unschedule', 'explain_unique') order by 1;
select t.oid::regtype as type, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum) as columns
  from pg_type t join pg_class c on c.oid = t.typrelid and c.relkind = 'c' join pg_attribute a on a.attrelid = c.oid where t.typnamespace = 'jobs'::regnamespace group by t.oid order by t.oid::regtype::text;

-- Settings, with their defaults.
select name, context, boot_val from pg_settings where name like 'jobs.%' order by name;
set jobs.nosuch = 1;
set jobs.batch_size = 5;

-- Dropped with jobs in it, it leaves nothing behind.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[10]), '{"by_kind": true, "by_state": ["running"]}');
select count(*) from jobs.fetch(max_jobs => 3);
drop extension jobs;
select * from pg_temp.objects();
select to_regnamespace('jobs') is null as schema_gone, (select count(*) from pg_extension where extname = 'jobs') as extensions;
-- Functions that a session has used do not stand in the way of the next installation, in the same
-- session.
create extension jobs;
select id, state from jobs.insert('again', unique_opts => '{"by_kind": true}');
select id, unique_skipped_as_duplicate from jobs.insert('again', unique_opts => '{"by_kind": true}');
select id, kind from jobs.fetch();
select jobs.complete(1, pg_temp.token(1));
select state from jobs.jobs;
select count(*) from jobs.maintain() where error is not null;
-- In one transaction, undone.
begin;
drop extension jobs;
create extension jobs;
select id from jobs.insert('inside');
rollback;
select id, kind from jobs.jobs;
select id > 1 as goes_on from jobs.insert('after');
-- What depends on it has to go first.
create table uses_it (state jobs.state);
drop extension jobs;
drop table uses_it;
-- Twice is refused; a schema of that name that is somebody else's is not taken over.
create extension jobs;
drop extension jobs;
create schema jobs;
\set SHOW_CONTEXT never
create extension jobs;
\set SHOW_CONTEXT errors
drop schema jobs;
create extension jobs;
select id from jobs.insert('k');
-- The schema is not for taking away or moving.
alter extension jobs set schema public;
drop schema jobs;
