\set ECHO none
-- jobs.wait_any: what it refuses, and when it returns at once. tests/server/wait_any.rs has the
-- rest: what it does while it waits.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select p.prokind, pg_get_function_arguments(p.oid), p.prosecdef, p.proconfig from pg_proc p where p.oid = 'jobs.wait_any'::regproc;

-- Bad input.
select c as call, pg_temp.try('call jobs.wait_any(' || c || ')') from unnest(array[
  'null', '''{q,null}''', '''{q,""}''', '''{q}'', null', '''{q}'', ''-1 s''', '''{q}'', worker => ''''']) c;

-- Inside a transaction block: with the rule and the fix.
select pg_temp.try('call jobs.wait_any(''{q}'')');
begin;
call jobs.wait_any('{q}');
rollback;

-- It returns at once with a timeout of 0, and where one of the queues has something.
call jobs.wait_any('{q}', '0');
select id from jobs.insert('k', queue => 'q3');
call jobs.wait_any(queues => '{q1,q2,q3}', timeout => '1 hour', worker => 'w');
select id from jobs.insert('k', queue => 'due', scheduled_at => now() - interval '1 minute');
call jobs.wait_any('{q1,due}', '1 hour');
-- Not where it has not, nor of no queue, nor of one that is paused.
select jobs.pause_queue('q3') \gset
select clock_timestamp() as begun \gset
call jobs.wait_any('{q1,q2,q3}', '50 ms');
call jobs.wait_any('{}', '50 ms', 'w');
select clock_timestamp() - :'begun' >= interval '100 ms' as waited;
select jobs.resume_queue('q3') \gset
call jobs.wait_any('{q1,q2,q3}', '1 hour', 'w');

-- A worker that is to fetch no more has nothing to wait for but another command.
select jobs.quiet_worker('w') \gset
select clock_timestamp() as begun \gset
-- It came since the last call: it is told, once.
call jobs.wait_any('{q3}', '1 hour', 'w');
call jobs.wait_any('{q3}', '50 ms', 'w');
select clock_timestamp() - :'begun' >= interval '50 ms' as waited;
select jobs.resume_worker('w') \gset
call jobs.wait_any('{nothing}', '1 hour', 'w');
-- A job that is asked to stop.
select count(*) from jobs.fetch('q3', worker => 'w');
select jobs.cancel(1);
call jobs.wait_any('{nothing}', '1 hour', 'w');
select jobs.cancel(1, force => true);
call jobs.wait_any('{nothing}', '1 hour', 'w');
