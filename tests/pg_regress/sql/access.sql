-- Who may do what: jobs.grant_producer, grant_worker, grant_viewer, grant_application,
-- grant_operator, grant_admin and revoke.

create role jobs_access_none;
create role jobs_access_producer;
create role jobs_access_worker;
create role jobs_access_viewer;
create role jobs_access_application;
create role jobs_access_operator;
create role jobs_access_admin;
create temp table who as select n, who, 'jobs_access_' || who as role from unnest('{none,producer,worker,viewer,application,operator,admin}'::text[]) with ordinality as u(who, n);

-- Every object of the schema, and what a role may do with it, in the letters of \dp.
create temp view objects as
  select 'routine' as kind, oid, proname::text as name from pg_proc where pronamespace = to_regnamespace('jobs')
  union all select case relkind when 'v' then 'view' when 'S' then 'sequence' when 'r' then 'table' else 'relation ' || relkind::text end, oid, relname::text
    from pg_class where relnamespace = to_regnamespace('jobs') and relkind not in ('i', 't', 'c')
  union all select 'type', oid, typname::text from pg_type t where typnamespace = to_regnamespace('jobs') and typcategory <> 'A' and not exists (select from pg_class c where c.oid = typrelid and relkind <> 'c')
  union all select 'schema', oid, 'jobs' from pg_namespace where nspname = 'jobs';
create function pg_temp.may(role text, kind text, object oid) returns text language sql as $$
  select coalesce(nullif(case kind
    when 'routine' then case when has_function_privilege(role, object, 'execute') then 'X' else '' end
    when 'schema' then concat(case when has_schema_privilege(role, object, 'usage') then 'U' end, case when has_schema_privilege(role, object, 'create') then 'C' end)
    when 'type' then case when has_type_privilege(role, object, 'usage') then 'U' else '' end
    when 'sequence' then (select string_agg(l, '' order by l) from (values ('r', 'select'), ('w', 'update'), ('U', 'usage')) v(l, p) where has_sequence_privilege(role, object, p))
    else (select string_agg(l, '' order by l) from (values ('r', 'select'), ('a', 'insert'), ('w', 'update'), ('d', 'delete'), ('D', 'truncate'), ('x', 'references'), ('t', 'trigger')) v(l, p)
           where has_table_privilege(role, object, p) or (p in ('select', 'insert', 'update', 'references') and has_any_column_privilege(role, object, p)))
  end, ''), '-') $$;
-- One table, an object a row: whoever adds one decides here whose it is.
create temp view matrix as
  select kind, name as object, m.* from objects, lateral (
    select max(may) filter (where who = 'none') as none, max(may) filter (where who = 'producer') as producer, max(may) filter (where who = 'worker') as worker, max(may) filter (where who = 'viewer') as viewer,
           max(may) filter (where who = 'application') as application, max(may) filter (where who = 'operator') as operator, max(may) filter (where who = 'admin') as admin
      from (select who, pg_temp.may(role, kind, oid) as may from who) x) m;

-- Nobody may do anything.
select distinct none, producer, worker, viewer, application, operator, admin from matrix; --> none|producer|worker|viewer|application|operator|admin: -|-|-|-|-|-|-
-- Granted.
select jobs.grant_producer('jobs_access_producer') \gset
select jobs.grant_worker('jobs_access_worker') \gset
select jobs.grant_viewer('jobs_access_viewer');
select jobs.grant_application('jobs_access_application') \gset
select jobs.grant_operator('jobs_access_operator') \gset
select jobs.grant_admin('jobs_access_admin');
-- A function's rights are those of docs/security.md: tests/server/rights.rs.
select kind, none, producer, worker, viewer, application, operator, admin, case when concat(none, producer, worker, viewer, application, operator, admin) ~ '[^-]' then string_agg(object, ' ' order by object collate "C") else 'others' end as objects
  from matrix where kind <> 'routine' group by 1, 2, 3, 4, 5, 6, 7, 8 order by 1, 9;
--> kind|none|producer|worker|viewer|application|operator|admin|objects
--> schema|-|U|U|U|U|U|U|jobs
--> sequence|-|-|-|-|-|-|-|others
--> table|-|-|-|-|r|r|r|job
--> table|-|-|-|-|-|-|-|others
--> type|-|U|U|U|U|U|U|batch_complete_result batch_fail_result batch_finish_result batch_heartbeat_result batch_insert_result fetched_job finish_result heartbeat_result insert_result job_result schedule_result state unique_explanation
--> view|-|-|-|r|r|r|r|audit errors jobs kinds limit_keys limits maintenance order_keys orders periodic queues settings unique_claims workers
--> view|-|r|r|r|r|r|r|cells placements
select distinct none from matrix where kind = 'routine'; --> -
-- Nothing can be passed on, and nothing went to PUBLIC.
select count(*) filter (where e.is_grantable and e.grantee <> o.owner) as grantable, count(*) filter (where e.grantee = 0) as public from (
  select proacl as acl, proowner as owner from pg_proc where pronamespace = 'jobs'::regnamespace
  union all select relacl, relowner from pg_class where relnamespace = 'jobs'::regnamespace
  union all select attacl, relowner from pg_attribute a join pg_class c on c.oid = attrelid where relnamespace = 'jobs'::regnamespace
  union all select typacl, typowner from pg_type where typnamespace = 'jobs'::regnamespace
  union all select nspacl, nspowner from pg_namespace where nspname = 'jobs') o, aclexplode(o.acl) e; --> grantable|public: 0|0

-- Really tried: each routine with nulls, each relation in every way, by each role; refused exactly
-- where the matrix says so.
create temp table tries as
  select kind, oid, name, case when kind <> 'routine' then '' else 'X' end as letter,
         format('%s jobs.%I(%s)', case when (select prokind = 'p' from pg_proc p where p.oid = o.oid) then 'call' else 'select' end, name,
                (select string_agg('null::' || format_type(t, null), ', ' order by n) from pg_proc p, unnest(p.proargtypes) with ordinality as u(t, n) where p.oid = o.oid)) as statement
    from objects o where kind = 'routine'
  union all select kind, oid, name, l, format(s, name) from objects,
    (values ('r', 'select count(*) from (select from jobs.%I limit 1) x'), ('d', 'delete from jobs.%I where false'), ('a', 'insert into jobs.%I default values'), ('D', 'truncate jobs.%I'), ('x', 'create temp table x as select * from jobs.%I for update'), ('t', 'create trigger x before truncate on jobs.%I execute function suppress_redundant_updates_trigger()')) v(l, s)
   where kind in ('table', 'view')
  union all select kind, oid, name, 'w', format('update jobs.%I set %I = null where false', name, (select attname from pg_attribute where attrelid = oid and attnum = 1)) from objects where kind in ('table', 'view')
  union all select kind, oid, name, l, format(s, name) from objects, (values ('r', 'select last_value from jobs.%I'), ('w', 'select setval(''jobs.%I'', 1)'), ('U', 'select nextval(''jobs.%I'')')) v(l, s) where kind = 'sequence'
  union all select kind, oid, name, 'C', 'create table jobs.x ()' from objects where kind = 'schema'
  union all select kind, oid, name, 'U', 'create temp table x (x jobs.' || name || ')' from objects where kind = 'type';
create temp table answers (who text, kind text, name text, letter text, statement text, may boolean, answer text);
grant select on who, tries to public;
grant insert on answers to public;
create function pg_temp.try_all(as_who text) returns bigint language plpgsql as $$
declare t record; done bigint := 0;
begin
  execute 'set local role jobs_access_' || as_who;
  for t in select * from tries loop
    begin
      execute t.statement;
      raise exception 'it works' using errcode = 'ZZ000';
    exception when others then
      done := done + 1;
      insert into answers values (as_who, t.kind, t.name, t.letter, t.statement, strpos(pg_temp.may(current_user, t.kind, t.oid), t.letter) > 0, sqlstate);
    end;
  end loop;
  reset role;
  return done;
end $$;
select count(distinct tried) as as_many, min(tried) = (select count(*) from tries) as every_one from (select pg_temp.try_all(who) as tried from who) x; --> as_many|every_one: 1|t
-- (Writing a view is refused for what it is before rights are looked at.)
update answers set answer = 'refused' where answer = '42501' or kind = 'view' and letter <> 'r' and answer in ('55000', '42809', '0A000');
select who, statement, may, answer from answers where (answer <> 'refused') is distinct from may order by 1, 2; --> none
select distinct kind, letter, answer from answers where kind <> 'routine' and answer <> 'refused' order by 1, 2;
--> kind|letter|answer
--> table|r|ZZ000
--> type|U|ZZ000
--> view|r|ZZ000

-- What a producer, a worker, a viewer and an admin are for, done by each.
set role jobs_access_producer;
select id, state from jobs.insert('mail', '{"secret": "args"}', '{"by_args": true}', meta => '{"secret": "meta"}', tags => '{shown}'); --> id|state: 1|available
select id, unique_skipped_as_duplicate from jobs.insert('mail', '{"secret": "args"}', '{"by_args": true}'); --> id|unique_skipped_as_duplicate: 1|t
select count(*) from jobs.insert_many('[{"kind": "mail"}, {"kind": "mail"}]'); --> 2
select count(*) from jobs.insert_batch('mail', array['{"secret": "args 2"}', '{"secret": "args 3"}']::jsonb[]); --> 2
select length(jobs.unique_key('mail', '{}', '{"by_kind": true}')), jsonb_typeof(jobs.ojs_manifest()) as manifest; --> length|manifest: 64|object
select id from jobs.fetch(); --> ERROR:  permission denied for function fetch
select id from jobs.jobs; --> ERROR:  permission denied for view jobs
select id from jobs.job; --> ERROR:  permission denied for table job
select jobs.cancel(1); --> ERROR:  permission denied for function cancel
select holder from jobs.explain_unique('mail', '{}', '{"by_kind": true}'); --> ERROR:  permission denied for function explain_unique
reset role;
set role jobs_access_worker;
select id, args, meta from jobs.fetch(worker => 'w', max_jobs => 3);
--> id|args|meta
--> 1|{"secret": "args"}|{"secret": "meta"}
--> 2|{}|{}
--> 3|{}|{}
call jobs.wait(timeout => '0');
select id from jobs.insert('mail'); --> ERROR:  permission denied for function insert
select state from jobs.jobs; --> ERROR:  permission denied for view jobs
reset role;
select (jobs.heartbeat(id, token, progress => '{"secret": "progress"}')).cancel_requested from jobs.jobs where id = 1; --> f
select jobs.complete(id, token, '{"secret": "output"}') from jobs.jobs where id = 2; --> completed
-- An admin may define, which shows in a view.
set role jobs_access_admin;
select jobs.schedule('nightly', '@daily', 'mail', '{"secret": "periodic args"}', meta => '{"secret": "periodic meta"}') is not null as scheduled; --> t
select jobs.define_kind('mail', priority => 2) \gset
select jobs.pause_queue('q'), jobs.resume_queue('q');
select count(*) > 0 as maintained from jobs.maintain() where error is null; --> t
select jobs.pause_maintenance(), paused_by = session_user as by_the_session from jobs.maintenance limit 1; --> pause_maintenance|by_the_session: |~
select distinct paused_by = session_user as by_the_session_user from jobs.maintenance; --> t
select jobs.resume_maintenance() \gset
select holder, would from jobs.explain_unique('mail', '{"secret": "args"}', '{"by_args": true}'); --> holder|would: 1|skip
select jobs.grant_viewer('jobs_access_none'); --> ERROR:  permission denied for function grant_viewer
select jobs.grant_admin('jobs_access_admin'); --> ERROR:  permission denied for function grant_admin
select jobs.revoke('jobs_access_viewer'); --> ERROR:  permission denied for function revoke
select jobs.installed(); --> ERROR:  permission denied for function installed
grant execute on function jobs.grant_viewer(text, text) to jobs_access_admin; --> ERROR:  permission denied for function grant_viewer
update jobs.job set kind = 'x'; --> ERROR:  permission denied for table job
update jobs.errors set error = 'x'; --> ERROR:  permission denied for view errors
select job_id from jobs.ready; --> ERROR:  permission denied for table ready
reset role;

-- What jobs carry is hidden from a viewer and shown to an admin, in every view and function that
-- reads.
select (jobs.fail(id, token, 'error text', '1 hour', details => '{"type": "shown"}')).state from jobs.jobs where id = 3; --> retryable
set role jobs_access_producer;
select id, state, output, error, finalized_at is not null as final from jobs.results('{2,3,99}');
--> id|state|output|error|final
--> 2|completed|~|~|t
--> 3|retryable|~|~|f
--> 99|~|~|~|f
reset role;
set role jobs_access_worker;
select id, state, output, error from jobs.results('{2,3}');
--> id|state|output|error
--> 2|completed|~|~
--> 3|retryable|~|~
reset role;
set role jobs_access_viewer;
select id, state, output, error from jobs.results('{2,3}');
--> id|state|output|error
--> 2|completed|~|~
--> 3|retryable|~|error text
select id, state, kind, args, meta, tags, progress, output from jobs.jobs order by id;
--> id|state|kind|args|meta|tags|progress|output
--> 1|running|mail|~|~|{shown}|~|~
--> 2|completed|mail|~|~|{}|~|~
--> 3|retryable|mail|~|~|{}|~|~
--> 4|available|mail|~|~|{}|~|~
--> 5|available|mail|~|~|{}|~|~
select name, kind, args, meta from jobs.periodic; --> name|kind|args|meta: nightly|mail|~|~
reset role;
set role jobs_access_admin;
select id, state, output, error from jobs.results('{2,3}');
--> id|state|output|error
--> 2|completed|{"secret": "output"}|~
--> 3|retryable|~|error text
select id, state, kind, args, meta, tags, progress, output from jobs.jobs order by id;
--> id|state|kind|args|meta|tags|progress|output
--> 1|running|mail|{"secret": "args"}|{"secret": "meta"}|{shown}|{"secret": "progress"}|~
--> 2|completed|mail|{}|{}|{}|~|{"secret": "output"}
--> 3|retryable|mail|{}|{}|{}|~|~
--> 4|available|mail|{"secret": "args 2"}|{}|{}|~|~
--> 5|available|mail|{"secret": "args 3"}|{}|{}|~|~
select name, kind, args, meta from jobs.periodic; --> name|kind|args|meta: nightly|mail|{"secret": "periodic args"}|{"secret": "periodic meta"}
reset role;
-- Keys of an order are of args, and its weights name keys.
select jobs.order_queue('default', '{"by_args": true}', fair => true, weights => '{"{\"args\": {\"secret\": \"args 2\"}}": 3}') \gset
-- Any column of any view, and of the functions that a viewer may call: the word is nowhere.
create function pg_temp.leaks() returns table (source text, secrets bigint) language plpgsql as $$
begin
  for source in select relname from pg_class where relnamespace = 'jobs'::regnamespace and relkind = 'v' union all select 'health()' union all select 'metrics()' order by 1 loop
    execute format('select count(*) from jobs.%s x where x::text ~ ''secret''', source) into secrets;
    return next;
  end loop;
end $$;
create function pg_temp.peek(anyelement) returns boolean cost 0.0000001 language plpgsql as $$ begin raise warning 'seen: %', $1; return true; end $$;
set role jobs_access_viewer;
select string_agg(source || ' ' || secrets, ', ') filter (where secrets > 0) as leaks, count(*) > 10 as views from pg_temp.leaks(); --> leaks|views: ~|t
-- By no way around: conditions that look, functions that are cheaper than the view's own,
-- statistics, plans, locks.
select count(*) from jobs.jobs where args is not null or meta is not null or progress is not null or output is not null or not pg_temp.peek(args) and not pg_temp.peek(output);
--> WARNING:  seen: <NULL>
--> WARNING:  seen: <NULL>
--> WARNING:  seen: <NULL>
--> WARNING:  seen: <NULL>
--> WARNING:  seen: <NULL>
--> 0
select count(*) from jobs.jobs where state = 'completed' and output->>'secret' = 'output'; --> 0
select count(*) from jobs.periodic where args is not null or meta is not null; --> 0
select count(*) from pg_stats where schemaname = 'jobs'; --> 0
select pg_temp.code('lock table jobs.jobs in ' || mode || ' mode') from unnest('{access share,row share,row exclusive,share,access exclusive}'::text[]) mode; --> ok, 42501, 42501, 42501, 42501
select id from jobs.jobs for update; --> ERROR:  permission denied for view jobs
reset role;
set role jobs_access_admin;
select string_agg(source || ' ' || secrets, ', ') filter (where secrets > 0) as leaks, count(*) > 10 as views from pg_temp.leaks(); --> leaks|views: audit 1, jobs 4, order_keys 3, orders 1, periodic 1|t
reset role;
-- A kept plan asks anew who reads.
prepare payload as select count(args) as args, count(output) as output from jobs.jobs;
execute payload; --> args|output: 5|1
set role jobs_access_viewer;
execute payload; --> args|output: 0|0
reset role;
execute payload; --> args|output: 5|1
deallocate payload;
-- SELECT on a few columns of the table is not enough; on the table it is. Granted by hand, that
-- makes a viewer that sees everything.
grant select (id, args) on jobs.job to jobs_access_viewer;
set role jobs_access_viewer;
select count(args) from jobs.jobs; --> 0
reset role;
revoke select (id, args) on jobs.job from jobs_access_viewer;
grant select on jobs.job to jobs_access_viewer;
set role jobs_access_viewer;
select count(args) > 0 as sees from jobs.jobs; --> t
reset role;
revoke select on jobs.job from jobs_access_viewer;

-- Granted twice, and two at once: nothing else.
create temp table before as select * from matrix;
create temp view difference as (table before except table matrix) union all (table matrix except table before);
select jobs.grant_producer('jobs_access_producer'), jobs.grant_worker('jobs_access_worker'), jobs.grant_viewer('jobs_access_viewer'), jobs.grant_application('jobs_access_application'), jobs.grant_operator('jobs_access_operator'), jobs.grant_admin('jobs_access_admin');
table difference; --> none
-- Control: a grant by hand, and a new function of which PUBLIC was left its right, show.
begin;
grant execute on function jobs.maintain to jobs_access_operator;
create function jobs.another() returns void language sql as '';
table difference order by 1, 2, 3, 8;
--> kind|object|none|producer|worker|viewer|application|operator|admin
--> routine|another|X|X|X|X|X|X|X
--> routine|maintain|-|-|-|-|-|-|X
--> routine|maintain|-|-|-|-|-|X|X
rollback;
select jobs.grant_producer('jobs_access_none'), jobs.grant_worker('jobs_access_none');
select count(*) filter (where none <> greatest(producer, worker)) as neither_producer_nor_worker from matrix where kind = 'routine'; --> 0
select jobs.revoke('jobs_access_none');
-- Undone with its transaction.
begin;
select jobs.grant_viewer('jobs_access_none');
rollback;
select distinct none from matrix; --> -

-- Taken away: all of it, also what was granted by hand, column by column, by others, and what was
-- passed on.
grant all on schema jobs to jobs_access_producer;
grant all on all tables in schema jobs to jobs_access_producer with grant option;
grant all on all sequences in schema jobs to jobs_access_producer;
grant all on all routines in schema jobs to jobs_access_producer with grant option;
grant update (args) on jobs.job to jobs_access_producer;
grant usage on type jobs.state, jobs.job to jobs_access_producer;
set role jobs_access_producer;
grant select, delete on jobs.running to jobs_access_worker, jobs_access_viewer;
grant execute on function jobs.cancel(bigint, text, boolean) to jobs_access_worker;
grant select (id) on jobs.job to jobs_access_worker;
reset role;
select pg_temp.may('jobs_access_worker', 'table', 'jobs.running'::regclass) as running, pg_temp.may('jobs_access_worker', 'table', 'jobs.job'::regclass) as job, pg_temp.may('jobs_access_worker', 'routine', 'jobs.cancel'::regproc) as cancel;
--> running|job|cancel: dr|r|X
-- Of a role that was granted by another one. Others keep what they have.
select jobs.revoke('jobs_access_worker');
select distinct worker from matrix; --> -
select pg_temp.may('jobs_access_viewer', 'table', 'jobs.running'::regclass) as viewer; --> dr
select jobs.revoke('jobs_access_producer');
select distinct producer from matrix; --> -
select pg_temp.may('jobs_access_viewer', 'table', 'jobs.running'::regclass) as viewer; --> -
select jobs.revoke('jobs_access_viewer'), jobs.revoke('jobs_access_application'), jobs.revoke('jobs_access_operator'), jobs.revoke('jobs_access_admin');
select distinct none, producer, worker, viewer, application, operator, admin from matrix; --> none|producer|worker|viewer|application|operator|admin: -|-|-|-|-|-|-
-- Of who has nothing, and again.
select jobs.revoke('jobs_access_none'), jobs.revoke('jobs_access_admin');
-- The owner keeps its own.
select jobs.revoke(session_user);
select relname, relacl::text ~ ('\m' || session_user || '=arwdDxt') as all_of_it from pg_class where oid = 'jobs.job'::regclass; --> relname|all_of_it: job|t

-- Bad input: each function says the same of it.
select pg_temp.try(format('select jobs.%s(%s)', f, a)), count(*) as functions from unnest('{grant_producer,grant_worker,grant_viewer,grant_application,grant_operator,grant_admin,revoke}'::text[]) f,
  unnest(array['null', '''nosuch''', '''public''']) a group by a, 1 order by a, 2;
--> try|functions
--> 42704: role "nosuch" does not exist | Use CREATE ROLE to create it.
-->   Give the name as in pg_roles, without quotes.|7
--> 42704: role "public" does not exist | PUBLIC cannot be given these rights. Name roles instead.
-->   Give the name as in pg_roles, without quotes.|7
--> 22004: role must not be null|7
select pg_temp.refusals('select jobs.grant_viewer(%L)', '{"",PUBLIC,current_user,session_user,none,JOBS_ACCESS_NONE,"jobs_access_none ","jobs_access_none, jobs_access_viewer","\"jobs_access_none\"","jobs_access_none with grant option"}');
-->  | 42704: role "" does not exist | Use CREATE ROLE to create it.
--> PUBLIC | 42704: role "PUBLIC" does not exist | PUBLIC cannot be given these rights. Name roles instead.
--> current_user | 42704: role "current_user" does not exist | Use CREATE ROLE to create it.
--> session_user | 42704: role "session_user" does not exist | Use CREATE ROLE to create it.
--> none | 42704: role "none" does not exist | Use CREATE ROLE to create it.
--> JOBS_ACCESS_NONE | 42704: role "JOBS_ACCESS_NONE" does not exist | Did you mean "jobs_access_none"?
--> jobs_access_none  | 42704: role "jobs_access_none " does not exist | Did you mean "jobs_access_none"?
--> jobs_access_none, jobs_access_viewer | 42704: role "jobs_access_none, jobs_access_viewer" does not exist | Use CREATE ROLE to create it.
--> "jobs_access_none" | 42704: role ""jobs_access_none"" does not exist | Did you mean "jobs_access_none"?
--> jobs_access_none with grant option | 42704: role "jobs_access_none with grant option" does not exist | Use CREATE ROLE to create it.
-->   Give the name as in pg_roles, without quotes.
begin read only;
select distinct pg_temp.code(format('select jobs.%s(''jobs_access_none'')', f)) from unnest('{grant_producer,grant_worker,grant_viewer,grant_application,grant_operator,grant_admin,revoke}'::text[]) f;
--> 25006
rollback;
-- Names that have to be quoted, and names that are words of the language.
create role "Weird ""Role""; drop table jobs.job; --";
create role "current_user";
create role "Group";
create role "jobs access\' ü";
create temp table odd as select rolname from pg_roles where rolname in ('Weird "Role"; drop table jobs.job; --', 'current_user', 'Group', 'jobs access\'' ü');
set standard_conforming_strings = off;
set escape_string_warning = off;
set quote_all_identifiers = on;
select count(*) from (select jobs.grant_viewer(rolname) from odd) x; --> 4
reset quote_all_identifiers;
reset standard_conforming_strings;
reset escape_string_warning;
select rolname, pg_temp.may(rolname, 'view', 'jobs.jobs'::regclass), pg_temp.may(rolname, 'routine', 'jobs.health'::regproc), pg_temp.may(rolname, 'table', 'jobs.job'::regclass) from odd order by 1;
--> rolname|may|may|may
--> Group|r|X|-
--> Weird "Role"; drop table jobs.job; --|r|X|-
--> current_user|r|X|-
--> jobs access\' ü|r|X|-
select distinct none, producer, worker, viewer, application, operator, admin from matrix; --> none|producer|worker|viewer|application|operator|admin: -|-|-|-|-|-|-
set role "Weird ""Role""; drop table jobs.job; --";
select count(*) > 0 as jobs, count(args) as args from jobs.jobs; --> jobs|args: t|0
reset role;
-- A role that was granted something cannot be dropped; after revoke it can.
select pg_temp.code('drop role "current_user"'); --> 2BP01
select count(*) from (select jobs.revoke(rolname) from odd) x; --> 4
drop role "Weird ""Role""; drop table jobs.job; --", "current_user", "Group", "jobs access\' ü";

-- Members of a role may what it may.
select jobs.grant_producer('jobs_access_producer') \gset
grant jobs_access_producer to jobs_access_none;
set role jobs_access_none;
select state from jobs.insert('by a member'); --> available
reset role;
revoke jobs_access_producer from jobs_access_none;
-- Dropped and made again, the extension has granted nothing.
drop extension jobs;
create extension jobs;
select distinct none, producer, worker, viewer, application, operator, admin from matrix; --> none|producer|worker|viewer|application|operator|admin: -|-|-|-|-|-|-
drop role jobs_access_none, jobs_access_producer, jobs_access_worker, jobs_access_viewer, jobs_access_application, jobs_access_operator, jobs_access_admin;
