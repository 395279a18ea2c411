\set ECHO none
-- jobs.top(): what happens right now, by queue.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- A queue system with nothing in it has no line.
select * from jobs.top();
select jobs.configure_queue('limited', concurrency => 1) \gset
select jobs.pause_queue('paused') \gset
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[700]), queue => 'busy');
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[5]), queue => 'limited');
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[3]), queue => 'paused', scheduled_at => '2999-01-01 00:00Z');
select count(*) from (select jobs.complete(id, token) from jobs.fetch('busy', 600)) x;
select count(*) from (select jobs.fail(id, token, 'boom', '1 hour') from jobs.fetch('busy', 60)) x;
select count(*) from jobs.fetch('busy', 10, 'w1');
select count(*) from jobs.fetch('busy', 5, 'w2');
select count(*) from jobs.fetch('limited', 5, 'w2');
call pg_temp.later('30 s');
select queue, available, oldest between '30 s' and '2 min' as waited, running, workers, scheduled, retryable, completed_per_s, failed_per_s, note from jobs.top();
select jobs.define_limit('one', queues => '{held}', concurrency => 1) \gset
select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 'held');
select count(*) from jobs.fetch('held', 2);
select available, running, note from jobs.top() where queue = 'held';
-- What was long ago is no speed.
call pg_temp.later('1 min');
select queue, completed_per_s, failed_per_s from jobs.top() where queue = '(all)';
-- Of many the latest 10,000 say how fast it is: they are as old as 20 seconds.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[10000]), queue => 'fast');
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[2000]), queue => 'fast');
select count(*) from (select jobs.complete(id, token) from jobs.fetch('fast', 2000)) x;
update jobs.finished set finalized_at = clock_timestamp() - interval '50 s';
select count(*) from (select jobs.complete(id, token) from jobs.fetch('fast', 10000)) x;
update jobs.finished set finalized_at = clock_timestamp() - interval '20 s' where finalized_at > clock_timestamp() - interval '40 s';
select queue, completed_per_s between 400 and 500 as as_fast_as_that from jobs.top() where queue = 'fast';
