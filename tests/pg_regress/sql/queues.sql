-- pause_queue, resume_queue, configure_queue.
create function pg_temp.fill(queue text, n int) returns bigint language sql as $$ select count(*) from generate_series(1, n) n, lateral jobs.insert('k', to_jsonb(n), queue => fill.queue) $$;
create function pg_temp.fetched(queue text, most int = 100) returns bigint language sql as $$ select count(*) from jobs.fetch(fetched.queue, most) $$;
-- Finishes so many of the jobs that run.
create function pg_temp.complete(q text, n int) returns bigint language sql as $$
  select count(jobs.complete(id, token)) from (select id, token from jobs.jobs where state = 'running' and queue = q order by id limit n) r $$;

-- Paused, a queue gives nothing, and is left out of several; it need not have jobs yet. Jobs that
-- run go on.
select pg_temp.fill('p', 3), pg_temp.fill('r', 1); --> fill|fill: 3|1
select pg_temp.fetched('p', 1); --> 1
select jobs.pause_queue('p'), jobs.pause_queue('p'), jobs.pause_queue('later');
select pg_temp.fetched('p'); --> 0
select queue from jobs.fetch_any('{p,later,r}', 5); --> r
select queue, available, running, paused from jobs.queues order by queue;
--> queue|available|running|paused
--> later|0|0|t
--> p|2|1|t
--> r|0|1|f
select pg_temp.complete('p', 1); --> 1
select pg_temp.fill('later', 1), pg_temp.fetched('later'); --> fill|fetched: 1|0
select jobs.resume_queue('p'), jobs.resume_queue('p'), jobs.resume_queue('nosuch');
select pg_temp.fetched('p'); --> 2
begin;
select jobs.pause_queue('later');
select jobs.resume_queue('later') \gset
select pg_temp.fetched('later'); --> 1
rollback;
select pg_temp.fetched('later'); --> 0

-- Who paused it, when and why is kept, of the first who did, until it goes on.
create role jobs_queues;
grant usage on schema jobs to jobs_queues;
grant execute on function jobs.pause_queue to jobs_queues;
set role jobs_queues;
select jobs.pause_queue('why', reason => 'deploy');
reset role;
select jobs.pause_queue('why', 'another');
select queue, paused, now() - paused_at < '1 minute' as just_now, paused_by, pause_reason from jobs.queues where queue = 'why'; --> queue|paused|just_now|paused_by|pause_reason: why|t|t|jobs_queues|deploy
select jobs.configure_queue('why', 1), jobs.resume_queue('why');
select queue, paused, paused_at, paused_by, pause_reason from jobs.queues where queue = 'why'; --> queue|paused|paused_at|paused_by|pause_reason: why|f|~|~|~
select jobs.pause_queue('why');
select paused, paused_by = current_user as by_me, pause_reason from jobs.queues where queue = 'why'; --> paused|by_me|pause_reason: t|t|~
select jobs.resume_queue('why') \gset
drop owned by jobs_queues;
drop role jobs_queues;

-- Concurrency: so many run at a time, whoever fetches, until they are finished in whatever way.
select jobs.configure_queue('c', concurrency => 3) \gset
select pg_temp.fill('c', 40); --> 40
select pg_temp.fetched('c', 2), pg_temp.fetched('c', 2), pg_temp.fetched('c', 2); --> fetched|fetched|fetched: 2|1|0
select pg_temp.complete('c', 1); --> 1
select pg_temp.fetched('c'); --> 1
create temp table r as select id, token, row_number() over (order by id) as n from jobs.jobs where state = 'running' and queue = 'c';
select (select state from jobs.fail(id, token, 'x', retryable => false)) from r where n = 1; --> discarded
select pg_temp.fetched('c'); --> 1
select jobs.release(id, token) from r where n = 2; --> available
select pg_temp.fetched('c'); --> 1
select jobs.cancel(id, force => true) from r where n = 3; --> cancelled
select pg_temp.fetched('c'); --> 1
select state from jobs.complete_many((select array_agg(id) from jobs.jobs where state = 'running' and queue = 'c'), (select array_agg(token) from jobs.jobs where state = 'running' and queue = 'c'));
--> completed, completed, completed
select pg_temp.fetched('c'), pg_temp.fetched('c'); --> fetched|fetched: 3|0
-- A rollback gives back what it took, a fetch by kinds takes what it got.
select pg_temp.complete('c', 3); --> 3
begin;
select pg_temp.fetched('c'); --> 3
rollback;
select count(*) from jobs.fetch('c', 100, kinds => '{nosuch}'); --> 0
select pg_temp.fetched('c'); --> 3
-- A rescued attempt, and a replaced job.
select pg_temp.complete('c', 3); --> 3
select count(*) from jobs.fetch('c', 1, lease => '1 microsecond'); --> 1
select pg_temp.fetched('c'); --> 2
select rows from jobs.maintain() where task = 'rescue'; --> 1
select pg_temp.fetched('c'); --> 1
-- A lower limit: those that run go on, and others start only when there is room. None: there is no
-- limit.
select jobs.configure_queue('c', concurrency => 1) \gset
select pg_temp.complete('c', 1), pg_temp.fetched('c'), pg_temp.complete('c', 1), pg_temp.fetched('c'); --> complete|fetched|complete|fetched: 1|0|1|0
select pg_temp.complete('c', 1), pg_temp.fetched('c'); --> complete|fetched: 1|1
select jobs.configure_queue('c', concurrency => 2) \gset
select pg_temp.fetched('c'); --> 1
select jobs.configure_queue('c') \gset
select pg_temp.fetched('c', 4); --> 4
-- Jobs that run already count for a new limit.
select jobs.configure_queue('c', concurrency => 3) \gset
select pg_temp.fetched('c'), pg_temp.complete('c', 3), pg_temp.fetched('c'), pg_temp.complete('c', 1), pg_temp.fetched('c'); --> fetched|complete|fetched|complete|fetched: 0|3|0|1|1

-- Rate: so many start within any time of that length.
select jobs.configure_queue('t', rate => 3, rate_period => '1 hour') \gset
select pg_temp.fill('t', 20); --> 20
select pg_temp.fetched('t', 2), pg_temp.fetched('t', 5), pg_temp.fetched('t', 5); --> fetched|fetched|fetched: 2|1|0
select pg_temp.complete('t', 3), pg_temp.fetched('t'); --> complete|fetched: 3|0
call pg_temp.later('59 minutes');
select pg_temp.fetched('t'); --> 0
call pg_temp.later('2 minutes');
select pg_temp.fetched('t'); --> 3
-- Both.
select jobs.configure_queue('b', 2, 3, '1 hour') \gset
select pg_temp.fill('b', 20), pg_temp.fetched('b'), pg_temp.complete('b', 2), pg_temp.fetched('b'), pg_temp.complete('b', 1), pg_temp.fetched('b');
--> fill|fetched|complete|fetched|complete|fetched: 20|2|2|1|1|0
select queue, concurrency, rate, rate_period from jobs.queues where queue in ('b', 'c', 't') order by queue;
--> queue|concurrency|rate|rate_period
--> b|2|3|01:00:00
--> c|3|~|~
--> t|~|3|01:00:00

-- Retention of a queue: shorter, longer, for ever.
select jobs.configure_queue('short', retention_completed => '1 hour'), jobs.configure_queue('long', retention_completed => '1 year'), jobs.configure_queue('ever', retention_completed => '-1 second');
select count(jobs.complete(f.id, f.token)) from unnest(array['short', 'long', 'ever', 'usual']) q, lateral jobs.insert('x', '{}', '{"by_queue": true}', q) i, lateral jobs.fetch(q) f; --> 4
call pg_temp.later('2 hours');
select q, unique_skipped_as_duplicate as skipped from unnest(array['short', 'long', 'ever', 'usual']) q, lateral jobs.explain_unique('x', '{}', '{"by_queue": true}', q) e(canonical, unique_key, lock_id, policy, holder, holder_state, would), lateral (select would = 'skip') s(unique_skipped_as_duplicate);
--> q|skipped: short|f, long|t, ever|t, usual|t
select rows from jobs.maintain() where task = 'prune'; --> 3
select queue from jobs.jobs where kind = 'x' order by queue; --> ever, long, usual
call pg_temp.later('2 days');
select count(*) > 0 as some from jobs.maintain() where task = 'prune' and rows > 0; --> t
select queue from jobs.jobs where kind = 'x' order by queue; --> ever, long

-- Settings are removed: limits and retention. A pause remains.
select jobs.configure_queue('back', concurrency => 1, rate => 2, rate_period => '1 hour', retention_completed => '1 year'), jobs.configure_queue('back paused', 1), jobs.pause_queue('back paused', 'stays');
select pg_temp.fill('back', 4), pg_temp.fetched('back'); --> fill|fetched: 4|1
select jobs.complete(id, token) from jobs.jobs where queue = 'back' and state = 'running'; --> completed
select jobs.reset_queue('back'), jobs.reset_queue('back paused'), jobs.reset_queue('nosuch'); --> reset_queue|reset_queue|reset_queue: t|t|f
select jobs.reset_queue('back'), jobs.reset_queue('back paused'); --> reset_queue|reset_queue: f|f
select queue, paused, pause_reason, concurrency, rate, rate_period, retention_completed from jobs.queues where queue like 'back%' order by queue;
--> queue|paused|pause_reason|concurrency|rate|rate_period|retention_completed
--> back|f|~|~|~|~|~
--> back paused|t|stays|~|~|~|~
select queue from jobs.queue where queue like 'back%'; --> back paused
select pg_temp.fetched('back'); --> 3
call pg_temp.later('2 days');
select count(*) > 0 as some from jobs.maintain() where task = 'prune' and rows > 0; --> t
select count(*) from jobs.jobs where queue = 'back' and state = 'completed'; --> 0
select jobs.resume_queue('back paused'), jobs.reset_queue('back paused'); --> resume_queue|reset_queue: |f
select queue from jobs.queue where queue like 'back%'; --> none
-- It can be set anew, and a rollback leaves it as it was.
begin;
select jobs.configure_queue('back', concurrency => 4) \gset
select jobs.reset_queue('back'); --> t
rollback;
select jobs.configure_queue('back', concurrency => 4) \gset
select concurrency from jobs.queues where queue = 'back'; --> 4

-- A queue that is not paused, and of which nothing is set, is like one that was never named.
select jobs.configure_queue('bare'), jobs.pause_queue('bare'), jobs.configure_queue('bare'), jobs.resume_queue('bare');
select count(*) from jobs.queues where queue = 'bare'; --> 0
select jobs.configure_queue('bare', 5), jobs.configure_queue('bare');
select count(*) from jobs.queues where queue = 'bare'; --> 0
select jobs.configure_queue('bare', max_waiting => 5), jobs.pause_queue('bare'), jobs.resume_queue('bare');
select max_waiting from jobs.queues where queue = 'bare'; --> 5

-- Refused, and nothing changes.
select pg_temp.refusals('select jobs.%s', array['pause_queue(null)', 'pause_queue('''')', 'resume_queue(null)', 'reset_queue(null)', 'configure_queue(null)', 'configure_queue(''q'', 0)', 'configure_queue(''q'', -1)', 'configure_queue(''q'', 10001)', 'configure_queue(''q'', rate => 5)',
  'configure_queue(''q'', rate_period => ''1 s'')', 'configure_queue(''q'', rate => 0, rate_period => ''1 s'')', 'configure_queue(''q'', rate => 5, rate_period => ''0'')', 'configure_queue(''q'', retention_completed => ''-2 s'')']);
--> pause_queue(null) | 22004: queue must not be null
--> resume_queue(null) | 22004: queue must not be null
--> reset_queue(null) | 22004: queue must not be null
--> configure_queue(null) | 22004: queue must not be null
--> pause_queue('') | 22023: queue must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> configure_queue('q', 0) | 22023: concurrency 0 is out of range | Use jobs.pause_queue to stop fetching.
--> configure_queue('q', -1) | 22023: concurrency -1 is out of range
--> configure_queue('q', 10001) | 22023: concurrency 10001 is out of range
-->   concurrency must be between 1 and 10000, or null for no limit.
--> configure_queue('q', rate => 5) | 22023: rate requires rate_period | Give both, or leave both out for no limit.
--> configure_queue('q', rate_period => '1 s') | 22023: rate_period requires rate | Give both, or leave both out for no limit.
-->   At most rate jobs start within any rate_period.
--> configure_queue('q', rate => 0, rate_period => '1 s') | 22023: rate 0 is out of range | Use jobs.pause_queue to stop fetching.
-->   rate must be between 1 and 100000, or null for no limit.
--> configure_queue('q', rate => 5, rate_period => '0') | 22023: rate_period "00:00:00" is out of range
-->   rate_period must be longer than 0 and at most 1000 years.
--> configure_queue('q', retention_completed => '-2 s') | 22023: retention_completed "-00:00:02" is out of range | Use -1 second to keep jobs forever.
-->   retention_completed must be between 0 and 1000 years.
select count(*) from jobs.queue where queue = 'q'; --> 0
