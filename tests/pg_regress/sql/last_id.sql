\set ECHO none
-- jobs.last_id(): no job has a larger id.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select jobs.last_id();
select id, jobs.last_id() from jobs.insert('k');
select jobs.last_id();
-- What is rolled back took its number along.
begin;
select id from jobs.insert('k');
rollback;
select jobs.last_id(), (select max(id) from jobs.jobs) as newest;
-- Of a batch, of a deleted job, and where a job takes another place in its queue.
select max(id) as newest from jobs.insert_batch('k', array_fill('1'::jsonb, array[1000])) \gset
select jobs.last_id() >= :newest as covers;
select jobs.delete(:newest);
select jobs.last_id() >= :newest as covers;
select jobs.cancel(1), jobs.retry(1);
select id > :newest as is_new, jobs.last_id() >= id as covers from jobs.insert('k');
select jobs.last_id() >= max(id) as covers from jobs.jobs;
-- As a dump restores it: the next number, which nobody has taken yet.
select setval('jobs.job_seq', 5000, false);
select jobs.last_id();
select id from jobs.insert('k');
select jobs.last_id();
-- It only reads, and finds the sequence whatever there is before it in the path.
create temp sequence job_seq start 666;
set search_path = pg_temp, public;
begin read only;
select jobs.last_id();
commit;
reset search_path;

-- Who looks may ask; who is granted nothing may not.
set client_min_messages = warning;
drop role if exists jobs_last_id_viewer;
drop role if exists jobs_last_id_nobody;
create role jobs_last_id_viewer;
create role jobs_last_id_nobody;
reset client_min_messages;
select jobs.grant_viewer('jobs_last_id_viewer') \gset
grant usage on schema jobs to jobs_last_id_nobody;
set role jobs_last_id_viewer;
select jobs.last_id();
select pg_temp.code('select last_value from jobs.job_seq');
set role jobs_last_id_nobody;
select pg_temp.code('select jobs.last_id()');
reset role;
select jobs.revoke('jobs_last_id_viewer') \gset
revoke usage on schema jobs from jobs_last_id_nobody;
drop role jobs_last_id_viewer;
drop role jobs_last_id_nobody;
