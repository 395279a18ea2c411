-- What functions return has types: their values in programs, and what becomes of calls when
-- somebody alters one.

-- The type is that of the value, however the function is called.
select pg_typeof(jobs.insert('k')), pg_typeof(i) from jobs.insert('k') i; --> pg_typeof|pg_typeof: jobs.insert_result|jobs.insert_result
select distinct pg_typeof(m), pg_typeof(jobs.insert_many('[{"kind": "k"}]')) from jobs.insert_many('[{"kind": "k"}]') m; --> pg_typeof|pg_typeof: jobs.batch_insert_result|jobs.batch_insert_result
select pg_typeof(b) from jobs.insert_batch('k', '{1}') b; --> jobs.batch_insert_result
select pg_typeof(jobs.explain_unique('k')), pg_typeof(e) from jobs.explain_unique('k') e; --> pg_typeof|pg_typeof: jobs.unique_explanation|jobs.unique_explanation
select pg_typeof(f), pg_typeof(a) from jobs.fetch() f, jobs.fetch_any('{default}') a; --> pg_typeof|pg_typeof: jobs.fetched_job|jobs.fetched_job
select pg_typeof(jobs.heartbeat(1, pg_temp.token(1))), pg_typeof(jobs.heartbeat_many('{1}', array[pg_temp.token(1)])); --> pg_typeof|pg_typeof: jobs.heartbeat_result|jobs.batch_heartbeat_result
select pg_typeof(jobs.snooze(1, pg_temp.token(1), '1 hour')), pg_typeof(jobs.fail(2, pg_temp.token(2), 'e', '1 hour')); --> pg_typeof|pg_typeof: jobs.finish_result|jobs.finish_result
select pg_typeof(jobs.schedule('n', '@daily', 'k')), pg_typeof(s) from jobs.schedule('n', '@daily', 'k') s; --> pg_typeof|pg_typeof: jobs.schedule_result|jobs.schedule_result
select pg_typeof(jobs.complete_many('{3}', '{1}')); --> jobs.batch_complete_result
select pg_typeof(jobs.fail_many('{3}', '{1}', '{e}')), pg_typeof(jobs.finish_many('[{"id": 3, "token": 1, "do": "release"}]')); --> pg_typeof|pg_typeof: jobs.batch_fail_result|jobs.batch_finish_result
select pg_typeof(jobs.results('{3}')), pg_typeof(r) from jobs.results('{3}') r; --> pg_typeof|pg_typeof: jobs.job_result|jobs.job_result

-- A program in PL/pgSQL, as somebody who may insert and work: it declares, assigns, passes on and
-- returns them.
create role jobs_results;
select jobs.grant_producer('jobs_results'), jobs.grant_worker('jobs_results');
create table results_kept (job jobs.fetched_job, ended jobs.finish_result);
grant all on results_kept to jobs_results;
set role jobs_results;
create function pg_temp.ended(job jobs.fetched_job) returns jobs.finish_result language sql as $$ select jobs.snooze(job.id, job.token, '1 hour') $$;
create function pg_temp.program() returns setof jobs.insert_result language plpgsql as $$
declare
  inserted jobs.insert_result;
  batch jobs.batch_insert_result[];
  job jobs.fetched_job;
  lease jobs.heartbeat_result;
begin
  inserted := jobs.insert('typed', '{"n": 1}', queue => 'typed');
  return next inserted;
  batch := array(select b from jobs.insert_batch('typed', array['{"n": 2}', '{"n": 3}']::jsonb[], queue => 'typed') b);
  raise notice 'batch: % %', batch[1].ord, batch[2].ord;
  for job in select * from jobs.fetch('typed', 2) loop
    lease := jobs.heartbeat(job.id, job.token, '30 s');
    raise notice '% % %', job.args, lease.cancel_requested, lease.lease_expires_at < job.lease_expires_at;
    insert into results_kept values (job, pg_temp.ended(job));
  end loop;
end $$;
select state, queue, unique_skipped_as_duplicate as duplicate from pg_temp.program();
--> NOTICE:  batch: 1 2
--> NOTICE:  {"n": 1} f t
--> NOTICE:  {"n": 2} f t
--> state|queue|duplicate: available|typed|f
select (job).args, (job).attempt, (ended).state, (ended).scheduled_at > now() as later from results_kept order by (job).id;
--> args|attempt|state|later
--> {"n": 1}|1|scheduled|t
--> {"n": 2}|1|scheduled|t
-- A table of a type takes what the function returns.
create temp table results_typed of jobs.fetched_job;
insert into results_typed select * from jobs.fetch('typed');
select kind, args, tags, meta from results_typed; --> kind|args|tags|meta: typed|{"n": 3}|{}|{}
reset role;
-- While something uses them, the extension stays.
select pg_temp.code('drop extension jobs'); --> 2BP01
drop table results_kept;
drop table results_typed;

-- Their owner can alter them. Nothing is taken for what it is not.
prepare insert_it as select state from jobs.insert('k', queue => 'altered');
prepare fetch_it as select kind, queue from jobs.fetch('altered');
execute insert_it; --> available
begin;
alter type jobs.insert_result alter attribute id type text;
select pg_temp.try($$select * from jobs.insert('k', queue => 'altered')$$);
--> 55000: type jobs.insert_result was altered | Restore the columns that docs/reference.md lists.
-->   The extension's types must have the columns with which they were created.
select pg_temp.try($$select (jobs.insert('k', queue => 'altered')).id$$);
--> 55000: type jobs.insert_result was altered | Restore the columns that docs/reference.md lists.
-->   The extension's types must have the columns with which they were created.
select pg_temp.code('execute insert_it'); --> 55000
rollback;
begin;
alter type jobs.insert_result alter attribute state type text;
select pg_temp.code($$select * from jobs.insert('k', queue => 'altered')$$); --> 55000
rollback;
begin;
alter type jobs.insert_result drop attribute queue;
select pg_temp.code($$select * from jobs.insert('k', queue => 'altered')$$); --> 55000
rollback;
begin;
alter type jobs.batch_insert_result add attribute more text;
select pg_temp.code($$select * from jobs.insert_batch('k', '{1}', queue => 'altered')$$); --> 55000
rollback;
begin;
alter type jobs.fetched_job alter attribute token type text;
select pg_temp.try($$select * from jobs.fetch('altered')$$);
--> 55000: type jobs.fetched_job was altered | Restore the columns that docs/reference.md lists.
-->   The extension's types must have the columns with which they were created.
select pg_temp.code('execute fetch_it'); --> 55000
rollback;
-- Renamed columns are what they were.
begin;
alter type jobs.fetched_job rename attribute kind to what;
select what, queue from jobs.fetch('altered'); --> what|queue: k|altered
rollback;
-- As it was, so are the calls.
select count(*) from jobs.jobs where queue = 'altered'; --> 1
execute fetch_it; --> kind|queue: k|altered
execute insert_it; --> available
drop owned by jobs_results;
drop role jobs_results;
