-- jobs.wait: what it refuses, and when it returns at once. tests/server/wait.rs has the rest: what
-- it does while it waits.

select p.prokind, pg_get_function_arguments(p.oid), p.prosecdef, p.proconfig from pg_proc p where p.oid = 'jobs.wait'::regproc;
--> prokind|pg_get_function_arguments|prosecdef|proconfig
--> p|IN queue text DEFAULT 'default'::text, IN timeout interval DEFAULT '00:00:30'::interval|f|~

-- Bad input.
select pg_temp.refusals('call jobs.wait(%s)', array[
  'null', 'timeout => null', ''''', ''0''', 'repeat(''q'', 128)', 'e''a\tb''',
  'timeout => ''-1 s''', 'timeout => ''1001 years''', 'timeout => ''-1 month''']);
--> null | 22004: queue must not be null
--> timeout => null | 22004: timeout must not be null
--> '', '0' | 22023: queue must not be empty
--> repeat('q', 128) | 22023: queue "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq..." is too long: 128 characters
--> e'a\tb' | 22023: queue "a\tb" contains a control character
-->   A queue must have 1 to 127 characters and no control characters.
--> timeout => '-1 s' | 22023: timeout "-00:00:01" is out of range
--> timeout => '1001 years' | 22023: timeout "1001 years" is out of range
--> timeout => '-1 month' | 22023: timeout "-1 mons" is out of range
-->   timeout must be between 0 and 1000 years.
-- Of a type that it has not.
call jobs.wait(1);
--> ERROR:  procedure jobs.wait(integer) does not exist
--> LINE 1: call jobs.wait(1);
-->              ^
--> HINT:  No procedure matches the given name and argument types. You might need to add explicit type casts.
call jobs.wait('q', '1 parsec');
--> ERROR:  invalid input syntax for type interval: "1 parsec"
--> LINE 1: call jobs.wait('q', '1 parsec');
-->                             ^

-- Inside a transaction block: with the rule and the fix.
select pg_temp.try('call jobs.wait()');
--> 25001: jobs.wait cannot run inside a transaction block | Call it in autocommit mode, as a single statement.
-->   It commits, so that it holds no snapshot and no locks while it waits.
begin;
call jobs.wait();
--> ERROR:  jobs.wait cannot run inside a transaction block
--> DETAIL:  It commits, so that it holds no snapshot and no locks while it waits.
--> HINT:  Call it in autocommit mode, as a single statement.
rollback;
select 1 as one\; call jobs.wait();
--> 1
--> ERROR:  jobs.wait cannot run inside a transaction block
--> DETAIL:  It commits, so that it holds no snapshot and no locks while it waits.
--> HINT:  Call it in autocommit mode, as a single statement.

-- It returns at once with a timeout of 0, and where there is something; the longest names and
-- timeouts are taken.
call jobs.wait('q', '0');
call jobs.wait(timeout => interval '0');
select id from jobs.insert('k'); --> 1
call jobs.wait();
call jobs.wait('default', '1000 years');
select id from jobs.insert('k', queue => repeat('ü', 127)); --> 2
call jobs.wait(repeat('ü', 127));
select id from jobs.insert('k', queue => 'due', scheduled_at => now() - interval '1 minute'); --> 3
call jobs.wait('due', '1 hour');
-- Nothing changed.
select state, count(*) from jobs.jobs group by 1; --> state|count: available|3
