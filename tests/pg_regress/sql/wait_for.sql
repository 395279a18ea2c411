\set ECHO none
-- jobs.wait_for and jobs.results: what they refuse, when the one returns at once, and what the
-- other answers. tests/server/wait_for.rs has the rest: what it does while it waits.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select p.prokind, pg_get_function_arguments(p.oid), p.prosecdef, p.proconfig from pg_proc p where p.oid = 'jobs.wait_for'::regproc;

-- Bad input.
select c as call, pg_temp.try('call jobs.wait_for(' || c || ')') from unnest(array[
  'null', '''{1,null}''', 'array_fill(1::bigint, ''{10001}'')', '''{}'', null', '''{}'', ''-1 s''', '''{}'', want => null', '''{}'', want => ''some''', '''{}'', want => ''ALL''']) c;
select c as call, pg_temp.try('select jobs.results(' || c || ')') from unnest(array['null', '''{1,null}''', 'array_fill(1::bigint, ''{10001}'')']) c;

-- Inside a transaction block: with the rule and the fix.
select pg_temp.try('call jobs.wait_for(''{1}'')');
begin;
call jobs.wait_for('{1}');
rollback;

-- One job in each state, and one that is gone.
select i.id, i.state from jobs.insert_batch('k', array_fill('1'::jsonb, '{5}'), queue => 'q') i;
select id from jobs.insert('k', scheduled_at => now() + interval '1 hour');
select id from jobs.insert('k', pending => true);
select jobs.complete(id, token, '{"n": 1}') from jobs.fetch('q');
select (jobs.fail(id, token, 'once', retry_in => '1 hour')).state from jobs.fetch('q');
select (jobs.fail(id, token, 'for good', retryable => false)).state from jobs.fetch('q');
select jobs.cancel(4);
select count(*) from jobs.fetch('q');
select jobs.delete(id) from jobs.insert('k');
select ord, id, state, output, error, finalized_at between now() - interval '1 minute' and clock_timestamp() as final from jobs.results('{7,6,5,4,3,2,1,8,99,-1,1}');
select * from jobs.results('{}');
-- The latest error; a job that succeeds in the end keeps it.
select jobs.retry(2);
select jobs.complete(id, token) from jobs.fetch('q');
select state, error from jobs.results('{2}');
select jobs.retry(3);
select pg_sleep(0.001) \gset
select (jobs.fail(id, token, 'once more', retryable => false)).state from jobs.fetch('q');
select state, error from jobs.results('{3}');
-- Also in a read-only transaction.
begin read only;
select state from jobs.results('{1}');
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
select clock_timestamp() - :'begun' >= interval '100 ms' as waited;
select clock_timestamp() as begun \gset
call jobs.wait_for('{5,6,7}', '100 ms', 'any');
select clock_timestamp() - :'begun' >= interval '100 ms' as waited;
-- Nothing changed.
select state, count(*) from jobs.jobs group by 1 order by 1;
-- Many at once, of which few are there.
select count(*) from jobs.results(array(select g::bigint from generate_series(1, 1000) g));
