\set ECHO none
-- jobs.maintenance: what is written down of each task; a task that fails, and one job that a task
-- fails at; pausing.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- A row a task from the start.
select task, last_run_at, rows, duration, last_error, failures, rows_total, failures_total, paused_at from jobs.maintenance;
-- By hand, a run is written down also where there was nothing to do.
select count(*) from jobs.insert('x');
select task, rows, error from jobs.maintain() where rows > 0 or error is not null;
select task, last_run_at between now() - interval '1 minute' and clock_timestamp() as now, rows, duration >= '0' as duration, rows_total from jobs.maintenance;
-- The last run, and totals.
select count(*) from jobs.insert_batch('due', array_fill('1'::jsonb, array[3]), queue => 'd', scheduled_at => now() + interval '1 hour');
call pg_temp.later('2 hours');
select task, rows from jobs.maintain() where rows > 0;
select rows, rows_total from jobs.maintenance where task = 'schedule';
select count(*) from jobs.maintain() where error is not null;
select rows, rows_total from jobs.maintenance where task = 'schedule';

-- What cannot be handled stops no other job of the task, and no other task.
create function pg_temp.poison() returns trigger language plpgsql as $$
begin
  if to_jsonb(case tg_op when 'DELETE' then old else new end) ->> tg_argv[0] = current_setting('test.poison') then raise exception 'poisoned'; end if;
  return case tg_op when 'DELETE' then old else new end;
end $$;
create function pg_temp.poisoned(task_name text) returns table (task text, rows bigint, error text) language sql as $$
  select task, rows, regexp_replace(error, 'job \d+', 'job N') from jobs.maintain() where rows > 0 or error is not null or task = task_name $$;
-- schedule: five jobs, the middle one is poisoned.
select (array_agg(id order by id))[3] as bad from jobs.insert_batch('s', array_fill('1'::jsonb, array[5]), queue => 's', scheduled_at => now() + interval '1 hour') \gset
select set_config('test.poison', :'bad', false) = :'bad' as set;
call pg_temp.later('2 hours');
create trigger poison before delete on jobs.scheduled for each row execute function pg_temp.poison('job_id');
select * from pg_temp.poisoned('schedule');
select state, count(*), bool_and(id = :bad) as bad from jobs.jobs where queue = 's' group by 1 order by 1;
select last_error ~ ('^job ' || :bad || ': poisoned$') as says_which, last_error_at is not null as at, failures, failures_total, rows, rows_total from jobs.maintenance where task = 'schedule';
-- It is tried again each time; what it had failed at before counts once more.
select * from pg_temp.poisoned('schedule');
select failures, failures_total from jobs.maintenance where task = 'schedule';
select severity, finding, message ~ 'schedule has failed 2 times in a row' as says from jobs.health() where finding = 'maintenance_failing';
drop trigger poison on jobs.scheduled;
select * from pg_temp.poisoned('schedule');
select state, count(*) from jobs.jobs where queue = 's' group by 1 order by 1;
-- Over: the error is still told, with its time.
select last_error is not null as last_error, failures, failures_total from jobs.maintenance where task = 'schedule';
select count(*) from jobs.health() where finding = 'maintenance_failing';
-- The job that was poisoned is in the state of the others: same columns in the queue.
select count(distinct (j.attempt, j.scheduled_at, j.priority)) from jobs.jobs j where queue = 's';

-- expire, of jobs that are ready and of some that wait.
select id as bad from jobs.insert('e bad', queue => 'e', expires_at => now() + interval '1 hour') \gset
select count(*) from jobs.insert_batch('e', array_fill('1'::jsonb, array[3]), queue => 'e', expires_at => now() + interval '1 hour');
select count(*) from jobs.insert_batch('e later', array_fill('1'::jsonb, array[3]), queue => 'e', expires_at => now() + interval '1 hour', scheduled_at => now() + interval '1 day');
select set_config('test.poison', :'bad', false) = :'bad' as set;
call pg_temp.later('2 hours');
create trigger poison before insert on jobs.finished for each row execute function pg_temp.poison('job_id');
select * from pg_temp.poisoned('expire');
select kind, state, count(*) from jobs.jobs where queue = 'e' group by 1, 2 order by 1;
-- What is done one by one is done as in one go.
select count(distinct (e.attempt, e.error, e.details)), min(e.error), min(e.details::text) from jobs.errors e join jobs.jobs j on j.id = e.job_id where j.queue = 'e';
select count(distinct (attempt, finalized_at is null, worker, token)) from jobs.jobs where queue = 'e' and state = 'discarded';
drop trigger poison on jobs.finished;
select * from pg_temp.poisoned('expire');

-- rescue.
select count(*) from jobs.insert_batch('r', array_fill('1'::jsonb, array[4]), queue => 'r', max_attempts => 1);
select max(id) as bad from jobs.fetch('r', 4) \gset
select set_config('test.poison', :'bad', false) = :'bad' as set;
call pg_temp.later('2 hours');
create trigger poison before delete on jobs.running for each row execute function pg_temp.poison('job_id');
select * from pg_temp.poisoned('rescue');
select state, count(*) from jobs.jobs where queue = 'r' group by 1 order by 1;
drop trigger poison on jobs.running;
select * from pg_temp.poisoned('rescue');

-- prune, with their claims.
select count(*) from jobs.insert_batch('p', array(select to_jsonb(n) from generate_series(1, 5) n), '{"by_args": true}', queue => 'p');
select count(*) from (select jobs.complete(id, token) from jobs.fetch('p', 5)) x;
select min(id) as bad from jobs.jobs where queue = 'p' \gset
select set_config('test.poison', :'bad', false) = :'bad' as set;
call pg_temp.later('25 hours');
create trigger poison before delete on jobs.job for each row execute function pg_temp.poison('id');
select task, error from pg_temp.poisoned('prune') where task = 'prune';
select count(*), bool_and(id = :bad) as bad from jobs.jobs where queue = 'p';
select count(*) from jobs.unique_claims;
drop trigger poison on jobs.job;
select task, rows, error from pg_temp.poisoned('prune') where task = 'prune';
select count(*) from jobs.unique_claims;
-- More than are tried one by one, with two retentions: what was not tried is pruned with the next
-- round.
select jobs.configure_queue('p2', retention_completed => '1 hour') \gset
select count(*) from jobs.insert_batch('p', array(select to_jsonb(n) from generate_series(1, 61) n), '{"by_args": true}', queue => 'p');
select min(key) as bad from jobs.unique_claims \gset
select count(*) from jobs.insert_batch('p', array(select to_jsonb(n) from generate_series(101, 105) n), '{"by_args": true}', queue => 'p2');
select count(*) from (select jobs.complete(id, token) from jobs.fetch('p', 61) union all select jobs.complete(id, token) from jobs.fetch('p2', 5)) x;
select set_config('test.poison', '\x' || :'bad', false) = '\x' || :'bad' as set;
call pg_temp.later('25 hours');
create trigger poison before delete on jobs.unique_claim for each row execute function pg_temp.poison('key');
select task, error from pg_temp.poisoned('prune') where task = 'prune';
select queue, count(*) from jobs.jobs where queue in ('p', 'p2') group by 1;
drop trigger poison on jobs.unique_claim;
select task, rows, error from pg_temp.poisoned('prune') where task = 'prune';
select count(*) from jobs.unique_claims;

-- claims.
select count(*) from jobs.insert_batch('c', array(select to_jsonb(n) from generate_series(1, 3) n), '{"by_args": true}', queue => 'c');
select min(key) as bad from jobs.unique_claims \gset
select count(jobs.delete(id)) from jobs.jobs where queue = 'c';
select set_config('test.poison', '\x' || :'bad', false) = '\x' || :'bad' as set;
create trigger poison before delete on jobs.unique_claim for each row execute function pg_temp.poison('key');
select * from pg_temp.poisoned('claims');
select count(*), bool_and(key = :'bad') as bad from jobs.unique_claims;
select count(*) from jobs.maintenance where last_error like '%' || :'bad' || '%';
drop trigger poison on jobs.unique_claim;
select * from pg_temp.poisoned('claims');
select count(*) from jobs.unique_claims;

-- periodic.
select count(jobs.schedule(n, '@hourly', n, queue => 'periodic')) from unnest('{p1,p2,p3}'::text[]) n;
select set_config('test.poison', 'p1', false) as set;
call pg_temp.later('2 hours');
create trigger poison before update on jobs.periodic_schedule for each row execute function pg_temp.poison('name');
select task, error from pg_temp.poisoned('periodic') where task = 'periodic';
select kind from jobs.jobs where queue = 'periodic' order by 1;
drop trigger poison on jobs.periodic_schedule;
select task, rows, error from pg_temp.poisoned('periodic') where task = 'periodic';
select kind from jobs.jobs where queue = 'periodic' order by 1;
select count(jobs.unschedule(n)) from unnest('{p1,p2,p3}'::text[]) n;

-- What fails as a whole is told as a whole, and stops no other task.
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
create trigger refuse before delete on jobs.unique_note for each statement execute function pg_temp.refuse();
select count(*) from jobs.insert('due', queue => 'w', scheduled_at => now() + interval '1 hour');
call pg_temp.later('2 hours');
select task, rows, error from jobs.maintain() where rows > 0 or error is not null;
drop trigger refuse on jobs.unique_note;

-- Where there is nothing to prune, nothing is deleted, not even by a statement for no rows.
create trigger refuse before delete on jobs.finished for each statement execute function pg_temp.refuse();
select task, error from jobs.maintain() where error is not null;
drop trigger refuse on jobs.finished;

-- Paused: nothing is done, and everything says so. Work goes on.
select jobs.pause_maintenance() \gset
select count(*) from jobs.insert('due', queue => 'z', scheduled_at => now() + interval '1 hour');
call pg_temp.later('2 hours');
select distinct rows, error ~ ('^maintenance was paused by ' || session_user) as says_so from jobs.maintain();
select state from jobs.jobs where queue = 'z';
select bool_and(paused_at < clock_timestamp()) as paused, min(paused_by) = session_user as by from jobs.maintenance;
select severity, finding, message ~ ('paused by ' || session_user) as says, hint from jobs.health() where finding = 'maintenance_paused';
select state from jobs.insert('now', queue => 'y');
select kind from jobs.fetch('y');
select kind from jobs.fetch('z');
-- A second time changes nothing: it is paused since the first.
select paused_at as since from jobs.maintenance limit 1 \gset
select jobs.pause_maintenance() \gset
select bool_and(paused_at = :'since') as since from jobs.maintenance;
-- Undone with the transaction.
begin;
select jobs.resume_maintenance();
select count(paused_at) from jobs.maintenance;
rollback;
select count(distinct paused_at) from jobs.maintenance;
select jobs.resume_maintenance();
select jobs.resume_maintenance();
select count(paused_at) from jobs.maintenance;
select count(*) from jobs.maintain() where error is not null;
select count(*) from jobs.health() where finding = 'maintenance_paused';
begin read only;
select pg_temp.try('select jobs.pause_maintenance()'), pg_temp.try('select jobs.resume_maintenance()');
rollback;

-- While a dump is being restored the sequence is as it was made: nothing is done, not even about
-- what is due.
select pg_sequence_last_value('jobs.job_seq') as last \gset
select count(*) from jobs.insert('due', queue => 'restored', scheduled_at => now() + interval '1 hour');
call pg_temp.later('2 hours');
select setval('jobs.job_seq', 1, false);
select count(*) = (select count(*) from jobs.maintenance) as "all", sum(rows), count(error) from jobs.maintain();
select state from jobs.jobs where queue = 'restored';
select setval('jobs.job_seq', :last + 1) > 1 as set;
select task, rows from jobs.maintain() where rows > 0;
