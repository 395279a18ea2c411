-- The extension as such: made, dropped, made again; what it leaves, who may use it, what it says of
-- itself.

-- Everything is in the schema jobs and belongs to the extension; the schema too.
select extname, extrelocatable, extnamespace::regnamespace from pg_extension where extname = 'jobs'; --> extname|extrelocatable|extnamespace: jobs|f|pg_catalog
create function pg_temp.objects() returns table (kind text, identity text) language sql as $$
  select o.type, o.identity from (
    select 'pg_class'::regclass as c, oid from pg_class where relnamespace = to_regnamespace('jobs') and relkind in ('r', 'v', 'S', 'p', 'm', 'f')
    union all select 'pg_proc'::regclass, oid from pg_proc where pronamespace = to_regnamespace('jobs')
    union all select 'pg_type'::regclass, oid from pg_type where typnamespace = to_regnamespace('jobs') and (typtype = 'e' or typrelid in (select oid from pg_class where relkind = 'c'))
    union all select 'pg_namespace'::regclass, to_regnamespace('jobs') where to_regnamespace('jobs') is not null) x, lateral pg_identify_object(x.c, x.oid, 0) o
$$;
select count(*) > 0 as objects from pg_temp.objects(); --> t
select kind, identity as not_a_member from pg_temp.objects() except
  select o.type, o.identity from pg_depend d, lateral pg_identify_object(d.classid, d.objid, 0) o where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e';
--> none
select o.type, o.identity as outside_of_the_schema from pg_depend d, lateral pg_identify_object(d.classid, d.objid, 0) o
 where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e' and coalesce(o.schema, o.identity) <> 'jobs' and o.identity !~ '^jobs\.';
--> none

-- What it promises.
select enum_range(null::jobs.state); --> {available,scheduled,pending,running,retryable,completed,cancelled,discarded}
-- No function is overloaded; all run with the extension's rights and a search_path of their own.
-- (Procedures that do cannot end transactions; jobs.insert, explain and health switch themselves;
-- jobs.show and results read what their caller may, and what grants asks who called.)
select proname as overloaded from pg_proc where pronamespace = 'jobs'::regnamespace group by 1 having count(*) > 1; --> none
select proname as not_secured from pg_proc where pronamespace = 'jobs'::regnamespace and prokind <> 'p' and (prosecdef <> (proname not in ('insert', 'show', 'explain', 'health', 'results', 'revoke', 'installed') and proname !~ '^grant_') or proconfig is distinct from case when proname <> 'insert' then '{"search_path=pg_catalog, pg_temp"}'::text[] end);
--> none
-- Names and defaults of parameters, and the columns of the types that they return.
select proname, pg_get_function_arguments(oid), pg_get_function_result(oid) from pg_proc where pronamespace = 'jobs'::regnamespace and proname in
  ('insert', 'insert_many', 'insert_batch', 'unique_key', 'fetch', 'fetch_any', 'complete', 'complete_many', 'finish_many', 'fail', 'fail_many', 'snooze', 'release', 'heartbeat', 'heartbeat_many', 'cancel', 'retry', 'delete', 'maintain', 'schedule', 'unschedule', 'explain_unique') order by 1;
--> proname|pg_get_function_arguments|pg_get_function_result
--> cancel|id bigint, reason text DEFAULT NULL::text, force boolean DEFAULT false|jobs.state
--> complete|id bigint, token bigint, output jsonb DEFAULT NULL::jsonb|jobs.state
--> complete_many|ids bigint[], tokens bigint[], outputs jsonb[] DEFAULT NULL::jsonb[]|SETOF jobs.batch_complete_result
--> delete|id bigint, reason text DEFAULT NULL::text|jobs.state
--> explain_unique|kind text, args jsonb DEFAULT '{}'::jsonb, unique_opts jsonb DEFAULT NULL::jsonb, queue text DEFAULT NULL::text, meta jsonb DEFAULT NULL::jsonb, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone|jobs.unique_explanation
--> fail|id bigint, token bigint, error text, retry_in interval DEFAULT NULL::interval, retryable boolean DEFAULT true, details jsonb DEFAULT NULL::jsonb|jobs.finish_result
--> fail_many|ids bigint[], tokens bigint[], errors text[], details jsonb[] DEFAULT NULL::jsonb[], retry_in interval DEFAULT NULL::interval|SETOF jobs.batch_fail_result
--> fetch|queue text DEFAULT 'default'::text, max_jobs integer DEFAULT 1, worker text DEFAULT NULL::text, lease interval DEFAULT NULL::interval, kinds text[] DEFAULT NULL::text[], min_jobs integer DEFAULT 1, linger interval DEFAULT NULL::interval|SETOF jobs.fetched_job
--> fetch_any|queues text[], max_jobs integer DEFAULT 1, worker text DEFAULT NULL::text, lease interval DEFAULT NULL::interval, kinds text[] DEFAULT NULL::text[], min_jobs integer DEFAULT 1, linger interval DEFAULT NULL::interval|SETOF jobs.fetched_job
--> finish_many|results jsonb|SETOF jobs.batch_finish_result
--> heartbeat|id bigint, token bigint, lease interval DEFAULT NULL::interval, progress jsonb DEFAULT NULL::jsonb|jobs.heartbeat_result
--> heartbeat_many|ids bigint[], tokens bigint[], lease interval DEFAULT NULL::interval|SETOF jobs.batch_heartbeat_result
--> insert|kind text, args jsonb DEFAULT '{}'::jsonb, unique_opts jsonb DEFAULT NULL::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, tags text[] DEFAULT NULL::text[], meta jsonb DEFAULT NULL::jsonb, timeout interval DEFAULT NULL::interval, retry jsonb DEFAULT NULL::jsonb, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, pending boolean DEFAULT false|jobs.insert_result
--> insert_batch|kind text, args jsonb[], unique_opts jsonb DEFAULT NULL::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, tags text[] DEFAULT NULL::text[], meta jsonb DEFAULT NULL::jsonb, timeout interval DEFAULT NULL::interval, retry jsonb DEFAULT NULL::jsonb, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, pending boolean DEFAULT false|SETOF jobs.batch_insert_result
--> insert_many|jobs jsonb|SETOF jobs.batch_insert_result
--> maintain||TABLE(task text, rows bigint, duration interval, error text)
--> release|id bigint, token bigint|jobs.state
--> retry|id bigint, reset boolean DEFAULT false, reason text DEFAULT NULL::text|jobs.state
--> schedule|name text, cron text, kind text, args jsonb DEFAULT '{}'::jsonb, time_zone text DEFAULT 'UTC'::text, unique_opts jsonb DEFAULT NULL::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, max_attempts integer DEFAULT NULL::integer, tags text[] DEFAULT NULL::text[], meta jsonb DEFAULT NULL::jsonb, timeout interval DEFAULT NULL::interval, retry jsonb DEFAULT NULL::jsonb, missed text DEFAULT 'once'::text, reason text DEFAULT NULL::text|jobs.schedule_result
--> snooze|id bigint, token bigint, delay interval|jobs.finish_result
--> unique_key|kind text, args jsonb DEFAULT '{}'::jsonb, unique_opts jsonb DEFAULT NULL::jsonb, queue text DEFAULT NULL::text, meta jsonb DEFAULT NULL::jsonb, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone|text
--> unschedule|name text, reason text DEFAULT NULL::text|boolean
select t.oid::regtype as type, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum) as columns
  from pg_type t join pg_class c on c.oid = t.typrelid and c.relkind = 'c' join pg_attribute a on a.attrelid = c.oid where t.typnamespace = 'jobs'::regnamespace group by t.oid order by t.oid::regtype::text;
--> type|columns
--> jobs.batch_complete_result|id bigint, state jobs.state, done boolean
--> jobs.batch_fail_result|id bigint, state jobs.state, scheduled_at timestamp with time zone, done boolean
--> jobs.batch_finish_result|ord integer, id bigint, state jobs.state, scheduled_at timestamp with time zone, done boolean, reason text
--> jobs.batch_heartbeat_result|id bigint, lease_expires_at timestamp with time zone, deadline_at timestamp with time zone, cancel_requested boolean
--> jobs.batch_insert_result|ord integer, id bigint, state jobs.state, unique_skipped_as_duplicate boolean, replaced_id bigint, queue text, created_at timestamp with time zone, scheduled_at timestamp with time zone
--> jobs.fetched_job|id bigint, token bigint, attempt integer, kind text, args jsonb, meta jsonb, queue text, priority integer, tags text[], max_attempts integer, created_at timestamp with time zone, scheduled_at timestamp with time zone, attempted_at timestamp with time zone, lease_expires_at timestamp with time zone, deadline_at timestamp with time zone
--> jobs.finish_result|state jobs.state, scheduled_at timestamp with time zone
--> jobs.heartbeat_result|lease_expires_at timestamp with time zone, deadline_at timestamp with time zone, cancel_requested boolean
--> jobs.insert_result|id bigint, state jobs.state, unique_skipped_as_duplicate boolean, replaced_id bigint, queue text, created_at timestamp with time zone, scheduled_at timestamp with time zone
--> jobs.job_result|ord integer, id bigint, state jobs.state, output jsonb, error text, finalized_at timestamp with time zone
--> jobs.schedule_result|outcome text, next_run_at timestamp with time zone
--> jobs.unique_explanation|canonical text, unique_key text, lock_id bigint, policy jsonb, holder bigint, holder_state jobs.state, would text

-- Settings, with their defaults.
select name, context, boot_val from pg_settings where name like 'jobs.%' order by name;
--> name|context|boot_val
--> jobs.advisory_lock_prefix|sighup|0
--> jobs.batch_size|sighup|10000
--> jobs.databases|sighup|
--> jobs.enabled|sighup|on
--> jobs.interval|sighup|1000
--> jobs.log_min_messages|sighup|warning
--> jobs.max_payload|sighup|65536
--> jobs.metrics_max_series|sighup|50000
--> jobs.notify|sighup|on
--> jobs.retention_audit|sighup|7776000
--> jobs.retention_cancelled|sighup|86400
--> jobs.retention_completed|sighup|86400
--> jobs.retention_discarded|sighup|604800
--> jobs.retention_forwarded|sighup|604800
--> jobs.retention_history|sighup|604800
set jobs.nosuch = 1;
--> ERROR:  invalid configuration parameter name "jobs.nosuch"
--> DETAIL:  "jobs" is a reserved prefix.
set jobs.batch_size = 5; --> ERROR:  parameter "jobs.batch_size" cannot be changed now

-- Dropped with jobs in it, it leaves nothing behind.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[10]), '{"by_kind": true, "by_state": ["running"]}'); --> 10
select count(*) from jobs.fetch(max_jobs => 3); --> 3
drop extension jobs;
select * from pg_temp.objects(); --> none
select to_regnamespace('jobs') is null as schema_gone, (select count(*) from pg_extension where extname = 'jobs') as extensions; --> schema_gone|extensions: t|0
-- Functions that a session has used do not stand in the way of the next installation, in the same
-- session.
create extension jobs;
select id, state from jobs.insert('again', unique_opts => '{"by_kind": true}'); --> id|state: 1|available
select id, unique_skipped_as_duplicate from jobs.insert('again', unique_opts => '{"by_kind": true}'); --> id|unique_skipped_as_duplicate: 1|t
select id, kind from jobs.fetch(); --> id|kind: 1|again
select jobs.complete(1, pg_temp.token(1)); --> completed
select state from jobs.jobs; --> completed
select count(*) from jobs.maintain() where error is not null; --> 0
-- In one transaction, undone.
begin;
drop extension jobs;
create extension jobs;
select id from jobs.insert('inside'); --> 1
rollback;
select id, kind from jobs.jobs; --> id|kind: 1|again
select id > 1 as goes_on from jobs.insert('after'); --> t
-- What depends on it has to go first.
create table uses_it (state jobs.state);
drop extension jobs;
--> ERROR:  cannot drop extension jobs because other objects depend on it
--> DETAIL:  column state of table uses_it depends on type jobs.state
--> HINT:  Use DROP ... CASCADE to drop the dependent objects too.
drop table uses_it;
-- Twice is refused; another role's schema of that name is not taken over.
create extension jobs; --> ERROR:  extension "jobs" already exists
drop extension jobs;
create schema jobs;
\set SHOW_CONTEXT never
create extension jobs; --> ERROR:  schema "jobs" already exists
\set SHOW_CONTEXT errors
drop schema jobs;
create extension jobs;
select id from jobs.insert('k'); --> 1
-- The schema is not for taking away or moving.
alter extension jobs set schema public; --> ERROR:  extension "jobs" does not support SET SCHEMA
drop schema jobs;
--> ERROR:  cannot drop schema jobs because extension jobs requires it
--> HINT:  You can drop extension jobs instead.
