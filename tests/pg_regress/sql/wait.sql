\set ECHO none
-- jobs.wait: what it refuses, and when it returns at once. tests/server/wait.rs has the rest: what
-- it does while it waits.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select p.prokind, pg_get_function_arguments(p.oid), p.prosecdef, p.proconfig from pg_proc p where p.oid = 'jobs.wait'::regproc;

-- Bad input.
select c as call, pg_temp.try('call jobs.wait(' || c || ')') from unnest(array[
  'null', 'timeout => null', ''''', ''0''', 'repeat(''q'', 128)', 'e''a\tb''',
  'timeout => ''-1 s''', 'timeout => ''1001 years''', 'timeout => ''-1 month''']) c;
-- Of a type that it has not.
call jobs.wait(1);
call jobs.wait('q', '1 parsec');

-- Inside a transaction block: with the rule and the fix.
select pg_temp.try('call jobs.wait()');
begin;
call jobs.wait();
rollback;
select 1 as one\; call jobs.wait();

-- It returns at once with a timeout of 0, and where there is something; the longest names and
-- timeouts are taken.
call jobs.wait('q', '0');
call jobs.wait(timeout => interval '0');
select id from jobs.insert('k');
call jobs.wait();
call jobs.wait('default', '1000 years');
select id from jobs.insert('k', queue => repeat('ü', 127));
call jobs.wait(repeat('ü', 127));
select id from jobs.insert('k', queue => 'due', scheduled_at => now() - interval '1 minute');
call jobs.wait('due', '1 hour');
-- Nothing changed.
select state, count(*) from jobs.jobs group by 1;
