-- jobs.maintenance: what is written down of each task; a task that fails, and one job that a task
-- fails at; pausing.

-- A row a task from the start.
select task, last_run_at, rows, duration, last_error, failures, rows_total, failures_total, paused_at from jobs.maintenance;
--> task|last_run_at|rows|duration|last_error|failures|rows_total|failures_total|paused_at
--> claims|~|~|~|~|0|0|0|~
--> expire|~|~|~|~|0|0|0|~
--> limits|~|~|~|~|0|0|0|~
--> periodic|~|~|~|~|0|0|0|~
--> prune|~|~|~|~|0|0|0|~
--> rescue|~|~|~|~|0|0|0|~
--> schedule|~|~|~|~|0|0|0|~
--> statistics|~|~|~|~|0|0|0|~
-- By hand, a run is written down also where there was nothing to do.
select count(*) from jobs.insert('x'); --> 1
select task, rows, error from jobs.maintain() where rows > 0 or error is not null; --> none
select task, last_run_at between now() - interval '1 minute' and clock_timestamp() as now, rows, duration >= '0' as duration, rows_total from jobs.maintenance;
--> task|now|rows|duration|rows_total
--> claims|t|0|t|0
--> expire|t|0|t|0
--> limits|t|0|t|0
--> periodic|t|0|t|0
--> prune|t|0|t|0
--> rescue|t|0|t|0
--> schedule|t|0|t|0
--> statistics|t|0|t|0
-- The last run, and totals.
select count(*) from jobs.insert_batch('due', array_fill('1'::jsonb, array[3]), queue => 'd', scheduled_at => now() + interval '1 hour'); --> 3
call pg_temp.later('2 hours');
select task, rows from jobs.maintain() where rows > 0; --> task|rows: schedule|3
select rows, rows_total from jobs.maintenance where task = 'schedule'; --> rows|rows_total: 3|3
select count(*) from jobs.maintain() where error is not null; --> 0
select rows, rows_total from jobs.maintenance where task = 'schedule'; --> rows|rows_total: 0|3

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
select set_config('test.poison', :'bad', false) = :'bad' as set; --> t
call pg_temp.later('2 hours');
create trigger poison before delete on jobs.scheduled for each row execute function pg_temp.poison('job_id');
select * from pg_temp.poisoned('schedule'); --> task|rows|error: schedule|4|job N: poisoned
select state, count(*), bool_and(id = :bad) as bad from jobs.jobs where queue = 's' group by 1 order by 1;
--> state|count|bad
--> available|4|f
--> scheduled|1|t
select last_error ~ ('^job ' || :bad || ': poisoned$') as says_which, last_error_at is not null as at, failures, failures_total, rows, rows_total from jobs.maintenance where task = 'schedule';
--> says_which|at|failures|failures_total|rows|rows_total: t|t|1|1|4|7
-- It is tried again each time; what it had failed at before counts once more.
select * from pg_temp.poisoned('schedule'); --> task|rows|error: schedule|0|job N: poisoned
select failures, failures_total from jobs.maintenance where task = 'schedule'; --> failures|failures_total: 2|2
select severity, finding, message ~ 'schedule has failed 2 times in a row' as says from jobs.health() where finding = 'maintenance_failing'; --> severity|finding|says: warning|maintenance_failing|t
drop trigger poison on jobs.scheduled;
select * from pg_temp.poisoned('schedule'); --> task|rows|error: schedule|1|~
select state, count(*) from jobs.jobs where queue = 's' group by 1 order by 1; --> state|count: available|5
-- Over: the error is still told, with its time.
select last_error is not null as last_error, failures, failures_total from jobs.maintenance where task = 'schedule'; --> last_error|failures|failures_total: t|0|2
select count(*) from jobs.health() where finding = 'maintenance_failing'; --> 0
-- The job that was poisoned is in the state of the others: same columns in the queue.
select count(distinct (j.attempt, j.scheduled_at, j.priority)) from jobs.jobs j where queue = 's'; --> 1

-- expire, of jobs that are ready and of some that wait.
select id as bad from jobs.insert('e bad', queue => 'e', expires_at => now() + interval '1 hour') \gset
select count(*) from jobs.insert_batch('e', array_fill('1'::jsonb, array[3]), queue => 'e', expires_at => now() + interval '1 hour'); --> 3
select count(*) from jobs.insert_batch('e later', array_fill('1'::jsonb, array[3]), queue => 'e', expires_at => now() + interval '1 hour', scheduled_at => now() + interval '1 day'); --> 3
select set_config('test.poison', :'bad', false) = :'bad' as set; --> t
call pg_temp.later('2 hours');
create trigger poison before insert on jobs.finished for each row execute function pg_temp.poison('job_id');
select * from pg_temp.poisoned('expire'); --> task|rows|error: expire|6|job N: poisoned
select kind, state, count(*) from jobs.jobs where queue = 'e' group by 1, 2 order by 1;
--> kind|state|count
--> e|discarded|3
--> e bad|available|1
--> e later|discarded|3
-- What is done one by one is done as in one go.
select count(distinct (e.attempt, e.error, e.details)), min(e.error), min(e.details::text) from jobs.errors e join jobs.jobs j on j.id = e.job_id where j.queue = 'e';
--> count|min|min: 1|expired|{"type": "expired"}
select count(distinct (attempt, finalized_at is null, worker, token)) from jobs.jobs where queue = 'e' and state = 'discarded'; --> 1
drop trigger poison on jobs.finished;
select * from pg_temp.poisoned('expire'); --> task|rows|error: expire|1|~

-- rescue.
select count(*) from jobs.insert_batch('r', array_fill('1'::jsonb, array[4]), queue => 'r', max_attempts => 1); --> 4
select max(id) as bad from jobs.fetch('r', 4) \gset
select set_config('test.poison', :'bad', false) = :'bad' as set; --> t
call pg_temp.later('2 hours');
create trigger poison before delete on jobs.running for each row execute function pg_temp.poison('job_id');
select * from pg_temp.poisoned('rescue'); --> task|rows|error: rescue|3|job N: poisoned
select state, count(*) from jobs.jobs where queue = 'r' group by 1 order by 1; --> state|count: running|1, discarded|3
drop trigger poison on jobs.running;
select * from pg_temp.poisoned('rescue'); --> task|rows|error: rescue|1|~

-- prune, with their claims.
select count(*) from jobs.insert_batch('p', array(select to_jsonb(n) from generate_series(1, 5) n), '{"by_args": true}', queue => 'p'); --> 5
select count(*) from (select jobs.complete(id, token) from jobs.fetch('p', 5)) x; --> 5
select min(id) as bad from jobs.jobs where queue = 'p' \gset
select set_config('test.poison', :'bad', false) = :'bad' as set; --> t
call pg_temp.later('25 hours');
create trigger poison before delete on jobs.job for each row execute function pg_temp.poison('id');
select task, error from pg_temp.poisoned('prune') where task = 'prune'; --> task|error: prune|job N: poisoned
select count(*), bool_and(id = :bad) as bad from jobs.jobs where queue = 'p'; --> count|bad: 1|t
select count(*) from jobs.unique_claims; --> 1
drop trigger poison on jobs.job;
select task, rows, error from pg_temp.poisoned('prune') where task = 'prune'; --> task|rows|error: prune|1|~
select count(*) from jobs.unique_claims; --> 0
-- More than are tried one by one, with two retentions: what was not tried is pruned with the next
-- round.
select jobs.configure_queue('p2', retention_completed => '1 hour') \gset
select count(*) from jobs.insert_batch('p', array(select to_jsonb(n) from generate_series(1, 61) n), '{"by_args": true}', queue => 'p'); --> 61
select min(key) as bad from jobs.unique_claims \gset
select count(*) from jobs.insert_batch('p', array(select to_jsonb(n) from generate_series(101, 105) n), '{"by_args": true}', queue => 'p2'); --> 5
select count(*) from (select jobs.complete(id, token) from jobs.fetch('p', 61) union all select jobs.complete(id, token) from jobs.fetch('p2', 5)) x; --> 66
select set_config('test.poison', '\x' || :'bad', false) = '\x' || :'bad' as set; --> t
call pg_temp.later('25 hours');
create trigger poison before delete on jobs.unique_claim for each row execute function pg_temp.poison('key');
select task, error from pg_temp.poisoned('prune') where task = 'prune'; --> task|error: prune|job N: poisoned
select queue, count(*) from jobs.jobs where queue in ('p', 'p2') group by 1; --> queue|count: p|1
drop trigger poison on jobs.unique_claim;
select task, rows, error from pg_temp.poisoned('prune') where task = 'prune'; --> task|rows|error: prune|1|~
select count(*) from jobs.unique_claims; --> 0

-- claims.
select count(*) from jobs.insert_batch('c', array(select to_jsonb(n) from generate_series(1, 3) n), '{"by_args": true}', queue => 'c'); --> 3
select min(key) as bad from jobs.unique_claims \gset
select count(jobs.delete(id)) from jobs.jobs where queue = 'c'; --> 3
select set_config('test.poison', '\x' || :'bad', false) = '\x' || :'bad' as set; --> t
create trigger poison before delete on jobs.unique_claim for each row execute function pg_temp.poison('key');
select * from pg_temp.poisoned('claims'); --> task|rows|error: claims|2|a key noted in jobs.unique_note: poisoned
select count(*), bool_and(key = :'bad') as bad from jobs.unique_claims; --> count|bad: 1|t
select count(*) from jobs.maintenance where last_error like '%' || :'bad' || '%'; --> 0
drop trigger poison on jobs.unique_claim;
select * from pg_temp.poisoned('claims'); --> task|rows|error: claims|1|~
select count(*) from jobs.unique_claims; --> 0

-- periodic.
select count(jobs.schedule(n, '@hourly', n, queue => 'periodic')) from unnest('{p1,p2,p3}'::text[]) n; --> 3
select set_config('test.poison', 'p1', false) as set; --> p1
call pg_temp.later('2 hours');
create trigger poison before update on jobs.periodic_schedule for each row execute function pg_temp.poison('name');
select task, error from pg_temp.poisoned('periodic') where task = 'periodic'; --> task|error: periodic|periodic job "p1": poisoned
select kind from jobs.jobs where queue = 'periodic' order by 1; --> p2, p3
drop trigger poison on jobs.periodic_schedule;
select task, rows, error from pg_temp.poisoned('periodic') where task = 'periodic'; --> task|rows|error: periodic|1|~
select kind from jobs.jobs where queue = 'periodic' order by 1; --> p1, p2, p3
select count(jobs.unschedule(n)) from unnest('{p1,p2,p3}'::text[]) n; --> 3

-- What fails as a whole is told as a whole, and stops no other task.
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
create trigger refuse before delete on jobs.unique_note for each statement execute function pg_temp.refuse();
select count(*) from jobs.insert('due', queue => 'w', scheduled_at => now() + interval '1 hour'); --> 1
call pg_temp.later('2 hours');
select task, rows, error from jobs.maintain() where rows > 0 or error is not null;
--> task|rows|error
--> schedule|1|~
--> claims|0|refused
drop trigger refuse on jobs.unique_note;

-- Where there is nothing to prune, nothing is deleted, not even by a statement for no rows.
create trigger refuse before delete on jobs.finished for each statement execute function pg_temp.refuse();
select task, error from jobs.maintain() where error is not null; --> none
drop trigger refuse on jobs.finished;

-- Paused: nothing is done, and everything says so. Work goes on.
select jobs.pause_maintenance() \gset
select count(*) from jobs.insert('due', queue => 'z', scheduled_at => now() + interval '1 hour'); --> 1
call pg_temp.later('2 hours');
select distinct rows, error ~ ('^maintenance was paused by ' || session_user) as says_so from jobs.maintain(); --> rows|says_so: 0|t
select state from jobs.jobs where queue = 'z'; --> scheduled
select bool_and(paused_at < clock_timestamp()) as paused, min(paused_by) = session_user as by from jobs.maintenance; --> paused|by: t|t
select severity, finding, message ~ ('paused by ' || session_user) as says, hint from jobs.health() where finding = 'maintenance_paused';
--> severity|finding|says|hint: warning|maintenance_paused|t|SELECT jobs.resume_maintenance();
select state from jobs.insert('now', queue => 'y'); --> available
select kind from jobs.fetch('y'); --> now
select kind from jobs.fetch('z'); --> due
-- A second time changes nothing: it is paused since the first.
select paused_at as since from jobs.maintenance limit 1 \gset
select jobs.pause_maintenance() \gset
select bool_and(paused_at = :'since') as since from jobs.maintenance; --> t
-- Undone with the transaction.
begin;
select jobs.resume_maintenance();
select count(paused_at) from jobs.maintenance; --> 0
rollback;
select count(distinct paused_at) from jobs.maintenance; --> 1
select jobs.resume_maintenance();
select jobs.resume_maintenance();
select count(paused_at) from jobs.maintenance; --> 0
select count(*) from jobs.maintain() where error is not null; --> 0
select count(*) from jobs.health() where finding = 'maintenance_paused'; --> 0
begin read only;
select pg_temp.try('select jobs.pause_maintenance()'), pg_temp.try('select jobs.resume_maintenance()');
--> try|try
--> 25006: cannot write jobs in a read-only transaction | Use a read-write transaction.|25006: cannot write jobs in a read-only transaction | Use a read-write transaction.
rollback;

-- While a dump is being restored the sequence is as it was made: nothing is done, not even about
-- what is due.
select pg_sequence_last_value('jobs.job_seq') as last \gset
select count(*) from jobs.insert('due', queue => 'restored', scheduled_at => now() + interval '1 hour'); --> 1
call pg_temp.later('2 hours');
select setval('jobs.job_seq', 1, false); --> 1
select count(*) = (select count(*) from jobs.maintenance) as "all", sum(rows), count(error) from jobs.maintain(); --> all|sum|count: t|0|0
select state from jobs.jobs where queue = 'restored'; --> scheduled
select setval('jobs.job_seq', :last + 1) > 1 as set; --> t
select task, rows from jobs.maintain() where rows > 0; --> task|rows: schedule|1, rescue|2
