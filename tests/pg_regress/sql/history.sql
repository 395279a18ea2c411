-- jobs.history: what happened to jobs, by minute, queue and kind.

-- Nothing has happened.
select * from jobs.history(); --> none
-- What it may be asked.
select pg_temp.try(format('select * from jobs.history(%s)', arguments)) from (values
  ($$queue => ''$$), ($$kind => e'a\nb'$$), ($$since => '0'$$), ($$since => '-1 hour'$$), ($$since => null$$), ($$step => null$$), ($$step => '0'$$),
  ($$step => '59 s'$$), ($$step => '90 s'$$), ($$step => '1 month'$$), ($$step => '1 year'$$), ($$step => '1 minute 0.000001 s'$$),
  ($$'q', 'k', '7 days', '1 day'$$), ($$queue => null, kind => null, since => '1000 years', step => '2 minutes'$$)) v(arguments);
--> 22023: queue must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> 22023: kind "a\nb" contains a control character
-->   A kind must have 1 to 127 characters and no control characters.
--> 22023: since "00:00:00" is out of range
-->   since must be longer than 0 and at most 1000 years.
--> 22023: since "-01:00:00" is out of range
-->   since must be longer than 0 and at most 1000 years.
--> 22004: since must not be null
--> 22004: step must not be null
--> 22023: step "00:00:00" is out of range
-->   step must be longer than 0 and at most 1000 years.
--> 22023: step "00:00:59" is not a number of whole minutes
-->   step must be one or more whole minutes, hours or days.
--> 22023: step "00:01:30" is not a number of whole minutes
-->   step must be one or more whole minutes, hours or days.
--> 22023: step "1 mon" is not a number of whole minutes
-->   step must be one or more whole minutes, hours or days.
--> 22023: step "1 year" is not a number of whole minutes
-->   step must be one or more whole minutes, hours or days.
--> 22023: step "00:01:00.000001" is not a number of whole minutes
-->   step must be one or more whole minutes, hours or days.
--> ok
--> ok

-- One job for each end, all in one step. Times are as exact as a quarter.
create view pg_temp.happened as
  select queue, kind, inserted, started, completed, failed, discarded, cancelled,
         wait_p50 > '8 s' as waited_9_s, run_p50 > '0' as ran
    from jobs.history(since => '1 hour', step => '36500 days');
select count(jobs.insert(kind, queue => 'q'))
  from unnest('{complete,complete_many,fail,fail for good,snooze,release,force,asked and completed,asked and failed,asked and released,waits}'::text[]) kind; --> 11
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
--> kind|became
--> complete|completed
--> complete_many|completed
--> fail|retryable
--> fail for good|discarded
--> snooze|scheduled
--> release|available
--> force|cancelled
--> asked and completed|running
--> asked and failed|running
--> asked and released|running
select kind, case kind
         when 'asked and completed' then jobs.complete(id, pg_temp.token(id))::text
         when 'asked and failed' then (jobs.fail(id, pg_temp.token(id), 'e')).state::text
         else jobs.release(id, pg_temp.token(id))::text end as became
  from jobs.jobs where state = 'running' order by id; --> kind|became: asked and completed|completed, asked and failed|cancelled, asked and released|cancelled
select jobs.cancel(id) from jobs.jobs where kind = 'waits'; --> cancelled
-- What expires, by maintenance, and what is replaced.
select count(jobs.insert('expires', queue => 'q', expires_at => clock_timestamp() + interval '1 ms')); --> 1
select count(jobs.insert('replaced', queue => 'q', unique_opts => '{"by_kind": true}')); --> 1
select count(jobs.insert('replaced', queue => 'q', unique_opts => '{"by_kind": true, "on_conflict": "replace"}')); --> 1
select count(jobs.insert('replaced', queue => 'q', unique_opts => '{"by_kind": true}')); --> 1
select pg_sleep(0.01) \gset
select rows from jobs.maintain() where task = 'expire'; --> 1
-- A lease that is lost is a failed attempt.
select count(jobs.insert('rescued', queue => 'r')); --> 1
select count(*) from jobs.fetch('r', lease => '1 ms'); --> 1
select pg_sleep(0.01) \gset
select rows from jobs.maintain() where task = 'rescue'; --> 1
-- A batch, and many kinds at once.
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[7]), queue => 'b'); --> 7
select count(*) from jobs.insert_many('[{"kind": "m1", "queue": "b"}, {"kind": "m2", "queue": "b"}, {"kind": "m1", "queue": "b"}]'); --> 3
select * from pg_temp.happened order by queue, kind;
--> queue|kind|inserted|started|completed|failed|discarded|cancelled|waited_9_s|ran
--> b|batch|7|0|0|0|0|0|~|~
--> b|m1|2|0|0|0|0|0|~|~
--> b|m2|1|0|0|0|0|0|~|~
--> q|asked and completed|1|1|1|0|0|0|t|t
--> q|asked and failed|1|1|0|1|0|1|t|t
--> q|asked and released|1|1|0|0|0|1|t|t
--> q|complete|1|1|1|0|0|0|t|t
--> q|complete_many|1|1|1|0|0|0|t|t
--> q|expires|1|0|0|0|1|0|~|~
--> q|fail|1|1|0|1|0|0|t|t
--> q|fail for good|1|1|0|1|1|0|t|t
--> q|force|1|1|0|0|0|1|t|t
--> q|release|1|1|0|0|0|0|t|~
--> q|replaced|2|0|0|0|0|1|~|~
--> q|snooze|1|1|0|0|0|0|t|~
--> q|waits|1|0|0|0|0|1|~|~
--> r|rescued|1|1|0|1|0|0|f|t

-- Of one queue, of one kind, of both.
select count(*), count(distinct queue) from jobs.history(queue => 'b', step => '36500 days'); --> count|count: 3|1
select queue, inserted from jobs.history(kind => 'm1', step => '36500 days'); --> queue|inserted: b|2
select inserted from jobs.history('b', 'm2', '1 hour', '36500 days'); --> 1
select count(*) from jobs.history('b', 'rescued'); --> 0

-- What is rolled back does not count.
begin;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[7]), queue => 'b'); --> 7
rollback;
begin;
savepoint s;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[7]), queue => 'b'); --> 7
rollback to s;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[2]), queue => 'b'); --> 2
savepoint t;
savepoint u;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[3]), queue => 'b'); --> 3
release u;
-- What is not committed is not there yet.
select inserted from jobs.history('b', 'batch', step => '36500 days'); --> 7
commit;
select inserted from jobs.history('b', 'batch', step => '36500 days'); --> 12
select count(*) from jobs.history_delta; --> 0
-- What is prepared counts once that commits.
begin;
select count(*) from jobs.insert_batch('batch', array_fill('1'::jsonb, array[100]), queue => 'b'); --> 100
prepare transaction 'history';
select inserted from jobs.history('b', 'batch', step => '36500 days'); --> 12
commit prepared 'history';
select inserted from jobs.history('b', 'batch', step => '36500 days'); --> 112

-- A fetched job counts for the queue and kind with which it was fetched, whoever finishes it.
select count(jobs.insert('moves', queue => 'from', unique_opts => '{"by_kind": true}')); --> 1
select count(*) from jobs.fetch('from'); --> 1
select count(jobs.insert('moves', queue => 'to', unique_opts => '{"by_kind": true, "on_conflict": {"update": {"running": ["queue"]}}}')); --> 1
\c -
set timezone = 'UTC';
select jobs.complete(id, token) from jobs.jobs where kind = 'moves' and state = 'running'; --> completed
select queue, inserted, started, completed from jobs.history(kind => 'moves', step => '36500 days') order by queue; --> queue|inserted|started|completed: from|1|1|1
