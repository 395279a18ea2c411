\set ECHO none
-- jobs.history: what happened to jobs, by minute, queue and kind.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Nothing has happened.
select * from jobs.history();
-- What it may be asked.
select pg_temp.try(format('select * from jobs.history(%s)', arguments)) from (values
  ($$queue => ''$$), ($$kind => e'a\nb'$$), ($$since => '0'$$), ($$since => '-1 hour'$$), ($$since => null$$), ($$step => null$$), ($$step => '0'$$),
  ($$step => '59 s'$$), ($$step => '90 s'$$), ($$step => '1 month'$$), ($$step => '1 year'$$), ($$step => '1 minute 0.000001 s'$$),
  ($$'q', 'k', '7 days', '1 day'$$), ($$queue => null, kind => null, since => '1000 years', step => '2 minutes'$$)) v(arguments);

-- One job for each end, all in one step. Times are as exact as a quarter.
create view pg_temp.happened as
  select queue, kind, inserted, started, completed, failed, discarded, cancelled,
         wait_p50 > '8 s' as waited_9_s, run_p50 > '0' as ran
    from jobs.history(since => '1 hour', step => '36500 days');
select count(jobs.insert(kind, queue => 'q'))
  from unnest('{complete,complete_many,fail,fail for good,snooze,release,force,asked and completed,asked and failed,asked and released,waits}'::text[]) kind;
call pg_temp.later('9 s');
select kind, case kind
         when 'complete' then jobs.complete(id, token)::text
         when 'complete_many' then (select state::text from jobs.complete_many(array[id], array[token]))
         when 'fail' then (jobs.fail(id, token, 'e', retry_in => '1 hour')).state::text
         when 'fail for good' then (jobs.fail(id, token, 'e', retryable => false)).state::text
         when 'snooze' then (jobs.snooze(id, token, '1 hour')).state::text
         when 'release' then jobs.release(id, token)::text
         when 'force' then jobs.cancel(id, force => true)::text
         else jobs.cancel(id)::text end as became
  from jobs.fetch('q', 10);
select kind, case kind
         when 'asked and completed' then jobs.complete(id, pg_temp.token(id))::text
         when 'asked and failed' then (jobs.fail(id, pg_temp.token(id), 'e')).state::text
         else jobs.release(id, pg_temp.token(id))::text end as became
  from jobs.jobs where state = 'running' order by id;
select jobs.cancel(id) from jobs.jobs where kind = 'waits';
-- What expires, by maintenance, and what is replaced.
select count(jobs.insert('expires', queue => 'q', expires_at => clock_timestamp() + interval '1 ms'));
select count(jobs.insert('replaced', queue => 'q', unique_opts => '{"by_kind": true}'));
select count(jobs.insert('replaced', queue => 'q', unique_opts => '{"by_kind": true, "on_conflict": "replace"}'));
select count(jobs.insert('replaced', queue => 'q', unique_opts => '{"by_kind": true}'));
select pg_sleep(0.01) \gset
select rows from jobs.maintain() where task = 'expire';
-- A lease that is lost is a failed attempt.
select count(jobs.insert('rescued', queue => 'r'));
select count(*) from jobs.fetch('r', lease => '1 ms');
select pg_sleep(0.01) \gset
select rows from jobs.maintain() where task = 'rescue';
-- A batch, and many kinds at once.
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[7]), queue => 'b');
select count(*) from jobs.insert_many('[{"kind": "m1", "queue": "b"}, {"kind": "m2", "queue": "b"}, {"kind": "m1", "queue": "b"}]');
select * from pg_temp.happened order by queue, kind;

-- Of one queue, of one kind, of both.
select count(*), count(distinct queue) from jobs.history(queue => 'b', step => '36500 days');
select queue, inserted from jobs.history(kind => 'm1', step => '36500 days');
select inserted from jobs.history('b', 'm2', '1 hour', '36500 days');
select count(*) from jobs.history('b', 'rescued');

-- What is rolled back does not count.
begin;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[7]), queue => 'b');
rollback;
begin;
savepoint s;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[7]), queue => 'b');
rollback to s;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[2]), queue => 'b');
savepoint t;
savepoint u;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[3]), queue => 'b');
release u;
-- What is not committed is not there yet.
select inserted from jobs.history('b', 'batch', step => '36500 days');
commit;
select inserted from jobs.history('b', 'batch', step => '36500 days');
select count(*) from jobs.history_delta;
-- What is prepared counts once that commits.
begin;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[100]), queue => 'b');
prepare transaction 'history';
select inserted from jobs.history('b', 'batch', step => '36500 days');
commit prepared 'history';
select inserted from jobs.history('b', 'batch', step => '36500 days');

-- A fetched job counts for the queue and kind with which it was fetched, whoever finishes it.
select count(jobs.insert('moves', queue => 'from', unique_opts => '{"by_kind": true}'));
select count(*) from jobs.fetch('from');
select count(jobs.insert('moves', queue => 'to', unique_opts => '{"by_kind": true, "on_conflict": {"update": {"running": ["queue"]}}}'));
\c -
set timezone = 'UTC';
select jobs.complete(id, token) from jobs.jobs where kind = 'moves' and state = 'running';
select queue, inserted, started, completed from jobs.history(kind => 'moves', step => '36500 days') order by queue;
