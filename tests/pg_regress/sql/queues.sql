\set ECHO none
-- pause_queue, resume_queue, configure_queue.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.fill(queue text, n int) returns bigint language sql as $$ select count(*) from generate_series(1, n) n, lateral jobs.insert('k', to_jsonb(n), queue => fill.queue) $$;
create function pg_temp.fetched(queue text, most int = 100) returns bigint language sql as $$ select count(*) from jobs.fetch(fetched.queue, most) $$;
-- Finishes so many of the jobs that run.
create function pg_temp.complete(q text, n int) returns bigint language sql as $$
  select count(jobs.complete(id, token)) from (select id, token from jobs.jobs where state = 'running' and queue = q order by id limit n) r $$;

-- Paused, a queue gives nothing, and is left out of several; it need not have jobs yet. Jobs that
-- run go on.
select pg_temp.fill('p', 3), pg_temp.fill('r', 1);
select pg_temp.fetched('p', 1);
select jobs.pause_queue('p'), jobs.pause_queue('p'), jobs.pause_queue('later');
select pg_temp.fetched('p');
select queue from jobs.fetch_any('{p,later,r}', 5);
select queue, available, running, paused from jobs.queues order by queue;
select pg_temp.complete('p', 1);
select pg_temp.fill('later', 1), pg_temp.fetched('later');
select jobs.resume_queue('p'), jobs.resume_queue('p'), jobs.resume_queue('nosuch');
select pg_temp.fetched('p');
begin;
select jobs.pause_queue('later');
select jobs.resume_queue('later') \gset
select pg_temp.fetched('later');
rollback;
select pg_temp.fetched('later');

-- Who paused it, when and why is kept, of the first who did, until it goes on.
create role jobs_queues;
grant usage on schema jobs to jobs_queues;
grant execute on function jobs.pause_queue to jobs_queues;
set role jobs_queues;
select jobs.pause_queue('why', reason => 'deploy');
reset role;
select jobs.pause_queue('why', 'another');
select queue, paused, now() - paused_at < '1 minute' as just_now, paused_by, pause_reason from jobs.queues where queue = 'why';
select jobs.configure_queue('why', 1), jobs.resume_queue('why');
select queue, paused, paused_at, paused_by, pause_reason from jobs.queues where queue = 'why';
select jobs.pause_queue('why');
select paused, paused_by = current_user as by_me, pause_reason from jobs.queues where queue = 'why';
select jobs.resume_queue('why') \gset
drop owned by jobs_queues;
drop role jobs_queues;

-- Concurrency: so many run at a time, whoever fetches, until they are finished in whatever way.
select jobs.configure_queue('c', concurrency => 3) \gset
select pg_temp.fill('c', 40);
select pg_temp.fetched('c', 2), pg_temp.fetched('c', 2), pg_temp.fetched('c', 2);
select pg_temp.complete('c', 1);
select pg_temp.fetched('c');
create temp table r as select id, token, row_number() over (order by id) as n from jobs.jobs where state = 'running' and queue = 'c';
select (select state from jobs.fail(id, token, 'x', retryable => false)) from r where n = 1;
select pg_temp.fetched('c');
select jobs.release(id, token) from r where n = 2;
select pg_temp.fetched('c');
select jobs.cancel(id, force => true) from r where n = 3;
select pg_temp.fetched('c');
select state from jobs.complete_many((select array_agg(id) from jobs.jobs where state = 'running' and queue = 'c'), (select array_agg(token) from jobs.jobs where state = 'running' and queue = 'c'));
select pg_temp.fetched('c'), pg_temp.fetched('c');
-- A rollback gives back what it took, a fetch by kinds takes what it got.
select pg_temp.complete('c', 3);
begin;
select pg_temp.fetched('c');
rollback;
select count(*) from jobs.fetch('c', 100, kinds => '{nosuch}');
select pg_temp.fetched('c');
-- A rescued attempt, and a replaced job.
select pg_temp.complete('c', 3);
select count(*) from jobs.fetch('c', 1, lease => '1 microsecond');
select pg_temp.fetched('c');
select rows from jobs.maintain() where task = 'rescue';
select pg_temp.fetched('c');
-- A lower limit: those that run go on, and others start only when there is room. None: there is no
-- limit.
select jobs.configure_queue('c', concurrency => 1) \gset
select pg_temp.complete('c', 1), pg_temp.fetched('c'), pg_temp.complete('c', 1), pg_temp.fetched('c');
select pg_temp.complete('c', 1), pg_temp.fetched('c');
select jobs.configure_queue('c', concurrency => 2) \gset
select pg_temp.fetched('c');
select jobs.configure_queue('c') \gset
select pg_temp.fetched('c', 4);
-- Jobs that run already count for a new limit.
select jobs.configure_queue('c', concurrency => 3) \gset
select pg_temp.fetched('c'), pg_temp.complete('c', 3), pg_temp.fetched('c'), pg_temp.complete('c', 1), pg_temp.fetched('c');

-- Rate: so many start within any time of that length.
select jobs.configure_queue('t', rate => 3, rate_period => '1 hour') \gset
select pg_temp.fill('t', 20);
select pg_temp.fetched('t', 2), pg_temp.fetched('t', 5), pg_temp.fetched('t', 5);
select pg_temp.complete('t', 3), pg_temp.fetched('t');
call pg_temp.later('59 minutes');
select pg_temp.fetched('t');
call pg_temp.later('2 minutes');
select pg_temp.fetched('t');
-- Both.
select jobs.configure_queue('b', 2, 3, '1 hour') \gset
select pg_temp.fill('b', 20), pg_temp.fetched('b'), pg_temp.complete('b', 2), pg_temp.fetched('b'), pg_temp.complete('b', 1), pg_temp.fetched('b');
select queue, concurrency, rate, rate_period from jobs.queues where queue in ('b', 'c', 't') order by queue;

-- Retention of a queue: shorter, longer, for ever.
select jobs.configure_queue('short', retention_completed => '1 hour'), jobs.configure_queue('long', retention_completed => '1 year'), jobs.configure_queue('ever', retention_completed => '-1 second');
select count(jobs.complete(f.id, f.token)) from unnest(array['short', 'long', 'ever', 'usual']) q, lateral jobs.insert('x', '{}', '{"by_queue": true}', q) i, lateral jobs.fetch(q) f;
call pg_temp.later('2 hours');
select q, unique_skipped_as_duplicate as skipped from unnest(array['short', 'long', 'ever', 'usual']) q, lateral jobs.explain_unique('x', '{}', '{"by_queue": true}', q) e(canonical, unique_key, lock_id, policy, holder, holder_state, would), lateral (select would = 'skip') s(unique_skipped_as_duplicate);
select rows from jobs.maintain() where task = 'prune';
select queue from jobs.jobs where kind = 'x' order by queue;
call pg_temp.later('2 days');
select count(*) > 0 as some from jobs.maintain() where task = 'prune' and rows > 0;
select queue from jobs.jobs where kind = 'x' order by queue;

-- What was set is taken back: limits and retention. What is paused stays so.
select jobs.configure_queue('back', concurrency => 1, rate => 2, rate_period => '1 hour', retention_completed => '1 year'), jobs.configure_queue('back paused', 1), jobs.pause_queue('back paused', 'stays');
select pg_temp.fill('back', 4), pg_temp.fetched('back');
select jobs.complete(id, token) from jobs.jobs where queue = 'back' and state = 'running';
select jobs.reset_queue('back'), jobs.reset_queue('back paused'), jobs.reset_queue('nosuch');
select jobs.reset_queue('back'), jobs.reset_queue('back paused');
select queue, paused, pause_reason, concurrency, rate, rate_period, retention_completed from jobs.queues where queue like 'back%' order by queue;
select queue from jobs.queue where queue like 'back%';
select pg_temp.fetched('back');
call pg_temp.later('2 days');
select count(*) > 0 as some from jobs.maintain() where task = 'prune' and rows > 0;
select count(*) from jobs.jobs where queue = 'back' and state = 'completed';
select jobs.resume_queue('back paused'), jobs.reset_queue('back paused');
select queue from jobs.queue where queue like 'back%';
-- It can be set anew, and a rollback leaves it as it was.
begin;
select jobs.configure_queue('back', concurrency => 4) \gset
select jobs.reset_queue('back');
rollback;
select jobs.configure_queue('back', concurrency => 4) \gset
select concurrency from jobs.queues where queue = 'back';

-- A queue that is not paused, and of which nothing is set, is like one that was never named.
select jobs.configure_queue('bare'), jobs.pause_queue('bare'), jobs.configure_queue('bare'), jobs.resume_queue('bare');
select count(*) from jobs.queues where queue = 'bare';
select jobs.configure_queue('bare', 5), jobs.configure_queue('bare');
select count(*) from jobs.queues where queue = 'bare';
select jobs.configure_queue('bare', max_waiting => 5), jobs.pause_queue('bare'), jobs.resume_queue('bare');
select max_waiting from jobs.queues where queue = 'bare';

-- Refused, and nothing changes.
select call, pg_temp.try('select jobs.' || call) from unnest(array['pause_queue(null)', 'pause_queue('''')', 'resume_queue(null)', 'reset_queue(null)', 'configure_queue(null)', 'configure_queue(''q'', 0)', 'configure_queue(''q'', -1)', 'configure_queue(''q'', 10001)', 'configure_queue(''q'', rate => 5)',
  'configure_queue(''q'', rate_period => ''1 s'')', 'configure_queue(''q'', rate => 0, rate_period => ''1 s'')', 'configure_queue(''q'', rate => 5, rate_period => ''0'')', 'configure_queue(''q'', retention_completed => ''-2 s'')']) call;
select count(*) from jobs.queue where queue = 'q';
