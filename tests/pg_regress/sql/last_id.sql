-- jobs.last_id(): no job has a larger id.

select jobs.last_id(); --> 0
select id, jobs.last_id() from jobs.insert('k'); --> id|last_id: 1|1
select jobs.last_id(); --> 1
-- What is rolled back took its number along.
begin;
select id from jobs.insert('k'); --> 2
rollback;
select jobs.last_id(), (select max(id) from jobs.jobs) as newest; --> last_id|newest: 2|1
-- Of a batch, of a deleted job, and where a job takes another place in its queue.
select max(id) as newest from jobs.insert_batch('k', array_fill('1'::jsonb, array[1000])) \gset
select jobs.last_id() >= :newest as covers; --> t
select jobs.delete(:newest); --> available
select jobs.last_id() >= :newest as covers; --> t
select jobs.cancel(1), jobs.retry(1); --> cancel|retry: cancelled|available
select id > :newest as is_new, jobs.last_id() >= id as covers from jobs.insert('k'); --> is_new|covers: t|t
select jobs.last_id() >= max(id) as covers from jobs.jobs; --> t
-- As a dump restores it: the next number, which no session has taken yet.
select setval('jobs.job_seq', 5000, false); --> 5000
select jobs.last_id(); --> 4999
select id from jobs.insert('k'); --> 5000
select jobs.last_id(); --> 5000
-- It only reads, and finds the sequence whatever there is before it in the path.
create temp sequence job_seq start 666;
set search_path = pg_temp, public;
begin read only;
select jobs.last_id(); --> 5000
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
select jobs.last_id(); --> 5000
select pg_temp.code('select last_value from jobs.job_seq'); --> 42501
set role jobs_last_id_nobody;
select pg_temp.code('select jobs.last_id()'); --> 42501
reset role;
select jobs.revoke('jobs_last_id_viewer') \gset
revoke usage on schema jobs from jobs_last_id_nobody;
drop role jobs_last_id_viewer;
drop role jobs_last_id_nobody;
