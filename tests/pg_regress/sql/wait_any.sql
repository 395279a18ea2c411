-- jobs.wait_any: what it refuses, and when it returns at once. tests/server/wait_any.rs has the
-- rest: what it does while it waits.

select p.prokind, pg_get_function_arguments(p.oid), p.prosecdef, p.proconfig from pg_proc p where p.oid = 'jobs.wait_any'::regproc;
--> prokind|pg_get_function_arguments|prosecdef|proconfig
--> p|IN queues text[], IN timeout interval DEFAULT '00:00:30'::interval, IN worker text DEFAULT NULL::text|f|~

-- Bad input.
select pg_temp.refusals('call jobs.wait_any(%s)', array[
  'null', '''{q,null}''', '''{q,""}''', '''{q}'', null', '''{q}'', ''-1 s''', '''{q}'', worker => ''''']);
--> null | 22004: queues must not be null
--> '{q,null}' | 22004: an element of queues must not be null
--> '{q}', null | 22004: timeout must not be null
--> '{q,""}' | 22023: an element of queues must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> '{q}', '-1 s' | 22023: timeout "-00:00:01" is out of range
-->   timeout must be between 0 and 1000 years.
--> '{q}', worker => '' | 22023: worker must not be empty
-->   A worker must have 1 to 127 characters and no control characters.

-- Inside a transaction block: with the rule and the fix.
select pg_temp.try('call jobs.wait_any(''{q}'')');
--> 25001: jobs.wait_any cannot run inside a transaction block | Call it in autocommit mode, as a single statement.
-->   It commits, so that it holds no snapshot and no locks while it waits.
begin;
call jobs.wait_any('{q}');
--> ERROR:  jobs.wait_any cannot run inside a transaction block
--> DETAIL:  It commits, so that it holds no snapshot and no locks while it waits.
--> HINT:  Call it in autocommit mode, as a single statement.
rollback;

-- It returns at once with a timeout of 0, and where one of the queues has something.
call jobs.wait_any('{q}', '0');
select id from jobs.insert('k', queue => 'q3'); --> 1
call jobs.wait_any(queues => '{q1,q2,q3}', timeout => '1 hour', worker => 'w');
select id from jobs.insert('k', queue => 'due', scheduled_at => now() - interval '1 minute'); --> 2
call jobs.wait_any('{q1,due}', '1 hour');
-- Not where it has not, nor of no queue, nor of one that is paused.
select jobs.pause_queue('q3') \gset
select clock_timestamp() as begun \gset
call jobs.wait_any('{q1,q2,q3}', '50 ms');
call jobs.wait_any('{}', '50 ms', 'w');
select clock_timestamp() - :'begun' >= interval '100 ms' as waited; --> t
select jobs.resume_queue('q3') \gset
call jobs.wait_any('{q1,q2,q3}', '1 hour', 'w');

-- A worker that is to fetch no more has nothing to wait for but another command.
select jobs.quiet_worker('w') \gset
select clock_timestamp() as begun \gset
-- It came since the last call: it is told, once.
call jobs.wait_any('{q3}', '1 hour', 'w');
call jobs.wait_any('{q3}', '50 ms', 'w');
select clock_timestamp() - :'begun' >= interval '50 ms' as waited; --> t
select jobs.resume_worker('w') \gset
call jobs.wait_any('{nothing}', '1 hour', 'w');
-- A job that is asked to stop.
select count(*) from jobs.fetch('q3', worker => 'w'); --> 1
select jobs.cancel(1); --> running
call jobs.wait_any('{nothing}', '1 hour', 'w');
select jobs.cancel(1, force => true); --> cancelled
call jobs.wait_any('{nothing}', '1 hour', 'w');
