-- jobs.wait_for and jobs.results: what they refuse, when the one returns at once, and what the
-- other answers. tests/server/wait_for.rs has the rest: what it does while it waits.

select p.prokind, pg_get_function_arguments(p.oid), p.prosecdef, p.proconfig from pg_proc p where p.oid = 'jobs.wait_for'::regproc;
--> prokind|pg_get_function_arguments|prosecdef|proconfig
--> p|IN ids bigint[], IN timeout interval DEFAULT '00:00:30'::interval, IN want text DEFAULT 'all'::text|f|~

-- Bad input.
select pg_temp.refusals('call jobs.wait_for(%s)', array[
  'null', '''{1,null}''', 'array_fill(1::bigint, ''{10001}'')', '''{}'', null', '''{}'', ''-1 s''', '''{}'', want => null', '''{}'', want => ''some''', '''{}'', want => ''ALL''']);
--> null | 22004: ids must not be null
--> '{1,null}' | 22004: an element of ids must not be null
--> '{}', null | 22004: timeout must not be null
--> '{}', want => null | 22004: want must not be null
--> array_fill(1::bigint, '{10001}') | 22023: ids has 10001 elements
-->   ids must have at most 10000 elements.
--> '{}', '-1 s' | 22023: timeout "-00:00:01" is out of range
-->   timeout must be between 0 and 1000 years.
--> '{}', want => 'some' | 22023: want "some" is not known
--> '{}', want => 'ALL' | 22023: want "ALL" is not known
-->   want must be "all" or "any".
select pg_temp.refusals('select jobs.results(%s)', array['null', '''{1,null}''', 'array_fill(1::bigint, ''{10001}'')']);
--> null | 22004: ids must not be null
--> '{1,null}' | 22004: an element of ids must not be null
--> array_fill(1::bigint, '{10001}') | 22023: ids has 10001 elements
-->   ids must have at most 10000 elements.

-- Inside a transaction block: with the rule and the fix.
select pg_temp.try('call jobs.wait_for(''{1}'')');
--> 25001: jobs.wait_for cannot run inside a transaction block | Call it in autocommit mode, as a single statement.
-->   It commits, so that it holds no snapshot and no locks while it waits.
begin;
call jobs.wait_for('{1}');
--> ERROR:  jobs.wait_for cannot run inside a transaction block
--> DETAIL:  It commits, so that it holds no snapshot and no locks while it waits.
--> HINT:  Call it in autocommit mode, as a single statement.
rollback;

-- One job in each state, and one that is gone.
select i.id, i.state from jobs.insert_batch('k', array_fill('1'::jsonb, '{5}'), queue => 'q') i; --> id|state: 1|available, 2|available, 3|available, 4|available, 5|available
select id from jobs.insert('k', scheduled_at => now() + interval '1 hour'); --> 6
select id from jobs.insert('k', pending => true); --> 7
select jobs.complete(id, token, '{"n": 1}') from jobs.fetch('q'); --> completed
select (jobs.fail(id, token, 'once', retry_in => '1 hour')).state from jobs.fetch('q'); --> retryable
select (jobs.fail(id, token, 'for good', retryable => false)).state from jobs.fetch('q'); --> discarded
select jobs.cancel(4); --> cancelled
select count(*) from jobs.fetch('q'); --> 1
select jobs.delete(id) from jobs.insert('k'); --> available
select ord, id, state, output, error, finalized_at between now() - interval '1 minute' and clock_timestamp() as final from jobs.results('{7,6,5,4,3,2,1,8,99,-1,1}');
--> ord|id|state|output|error|final
--> 1|7|pending|~|~|~
--> 2|6|scheduled|~|~|~
--> 3|5|running|~|~|~
--> 4|4|cancelled|~|~|t
--> 5|3|discarded|~|for good|t
--> 6|2|retryable|~|once|~
--> 7|1|completed|{"n": 1}|~|t
--> 8|8|~|~|~|~
--> 9|99|~|~|~|~
--> 10|-1|~|~|~|~
--> 11|1|completed|{"n": 1}|~|t
select * from jobs.results('{}'); --> none
-- The latest error; a job that succeeds in the end keeps it.
select jobs.retry(2); --> available
select jobs.complete(id, token) from jobs.fetch('q'); --> completed
select state, error from jobs.results('{2}'); --> state|error: completed|once
select jobs.retry(3); --> available
select pg_sleep(0.001) \gset
select (jobs.fail(id, token, 'once more', retryable => false)).state from jobs.fetch('q'); --> discarded
select state, error from jobs.results('{3}'); --> state|error: discarded|once more
-- Also in a read-only transaction.
begin read only;
select state from jobs.results('{1}'); --> completed
commit;

-- It returns at once: with a timeout of 0; where all are over, or any is; of ids that are not
-- there; of none. As many as may be, and more than once.
call jobs.wait_for('{5}', '0');
call jobs.wait_for(ids => '{1,2,4,8,99,-1,1}', timeout => '1 hour', want => 'all');
call jobs.wait_for('{5,6,7,1}', '1 hour', 'any');
call jobs.wait_for('{5,6,7,8}', '1 hour', 'any');
call jobs.wait_for('{}', '1 hour');
call jobs.wait_for('{}', '1 hour', 'any');
select array_agg(n) as many from generate_series(100, 10099) n \gset
call jobs.wait_for(:'many', '1 hour');
call jobs.wait_for(array_fill(1::bigint, '{10000}'), '1000 years');
-- It does not, and waits for the time that it is given.
select clock_timestamp() as begun \gset
call jobs.wait_for('{1,5}', '100 ms');
select clock_timestamp() - :'begun' >= interval '100 ms' as waited; --> t
select clock_timestamp() as begun \gset
call jobs.wait_for('{5,6,7}', '100 ms', 'any');
select clock_timestamp() - :'begun' >= interval '100 ms' as waited; --> t
-- Nothing changed.
select state, count(*) from jobs.jobs group by 1 order by 1; --> state|count: scheduled|1, pending|1, running|1, completed|2, cancelled|1, discarded|1
-- Many at once, of which few are there.
select count(*) from jobs.results(array(select g::bigint from generate_series(1, 1000) g)); --> 1000
