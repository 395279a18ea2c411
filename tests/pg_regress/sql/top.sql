-- jobs.top(): what happens right now, by queue.

-- A queue system with nothing in it has no line.
select * from jobs.top(); --> none
select jobs.configure_queue('limited', concurrency => 1) \gset
select jobs.pause_queue('paused') \gset
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[700]), queue => 'busy'); --> 700
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[5]), queue => 'limited'); --> 5
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[3]), queue => 'paused', scheduled_at => '2999-01-01 00:00Z'); --> 3
select count(*) from (select jobs.complete(id, token) from jobs.fetch('busy', 600)) x; --> 600
select count(*) from (select jobs.fail(id, token, 'boom', '1 hour') from jobs.fetch('busy', 60)) x; --> 60
select count(*) from jobs.fetch('busy', 10, 'w1'); --> 10
select count(*) from jobs.fetch('busy', 5, 'w2'); --> 5
select count(*) from jobs.fetch('limited', 5, 'w2'); --> 1
call pg_temp.later('30 s');
select queue, available, oldest between '30 s' and '2 min' as waited, running, workers, scheduled, retryable, completed_per_s, failed_per_s, note from jobs.top();
--> queue|available|waited|running|workers|scheduled|retryable|completed_per_s|failed_per_s|note
--> (all)|29|t|16|2|3|60|10.0|1.0|
--> busy|25|t|15|2|0|60|10.0|1.0|
--> limited|4|t|1|1|0|0|0.0|0.0|full
--> paused|0|~|0|0|3|0|0.0|0.0|paused
select jobs.define_limit('one', queues => '{held}', concurrency => 1) \gset
select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 'held'); --> 3
select count(*) from jobs.fetch('held', 2); --> 1
select available, running, note from jobs.top() where queue = 'held'; --> available|running|note: 2|1|2 held
-- What was long ago is no speed.
call pg_temp.later('1 min');
select queue, completed_per_s, failed_per_s from jobs.top() where queue = '(all)'; --> queue|completed_per_s|failed_per_s: (all)|0.0|0.0
-- Of many the latest 10,000 say how fast it is: they are as old as 20 seconds.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[10000]), queue => 'fast'); --> 10000
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[2000]), queue => 'fast'); --> 2000
select count(*) from (select jobs.complete(id, token) from jobs.fetch('fast', 2000)) x; --> 2000
update jobs.finished set finalized_at = clock_timestamp() - interval '50 s';
select count(*) from (select jobs.complete(id, token) from jobs.fetch('fast', 10000)) x; --> 10000
update jobs.finished set finalized_at = clock_timestamp() - interval '20 s' where finalized_at > clock_timestamp() - interval '40 s';
select queue, completed_per_s between 400 and 500 as as_fast_as_that from jobs.top() where queue = 'fast'; --> queue|as_fast_as_that: fast|t
