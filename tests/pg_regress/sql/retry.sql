\set ECHO none
-- jobs.retry: available now.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select id, state from jobs.insert('scheduled', scheduled_at => '2999-01-01 00:00Z');
select id, state from jobs.insert('pending', pending => true, scheduled_at => '2999-01-01 00:00Z');
select id, state from jobs.insert('retryable', queue => 'r', max_attempts => 2);
select (jobs.fail(id, token, 'x', '1 hour')).state from jobs.fetch('r');
select id, state from jobs.insert('completed', queue => 'c', max_attempts => 1);
select jobs.complete(id, token, '{"out": 1}') from jobs.fetch('c');
select id, state from jobs.insert('cancelled');
select jobs.cancel(5, 'why');
select id, state from jobs.insert('discarded', queue => 'd', max_attempts => 1);
select (jobs.fail(id, token, 'x')).state from jobs.fetch('d');
select jobs.retry(n) from generate_series(1, 6) n;
-- max_attempts + 1 where they were exhausted; nothing of the outcome is left, but its errors.
select id, kind, state, attempt, max_attempts, scheduled_at between now() - interval '1 minute' and clock_timestamp() as now, finalized_at, output, cancel_requested_at, cancel_reason, worker,
       (select count(*) from jobs.errors where job_id = id) as errors from jobs.jobs order by id;
select kind, attempt from jobs.fetch_any('{default,r,c,d}', 10);
-- An available or a running one: nothing changes, the state is the answer.
create temp table before as select * from jobs.jobs;
select jobs.retry(1), jobs.retry(1, true);
select id, state from jobs.insert('available', queue => 'a');
insert into before select * from jobs.jobs where kind = 'available';
select jobs.retry(id), jobs.retry(id, true) from jobs.jobs where kind = 'available';
select count(*) as changed from (table before except select * from jobs.jobs) x;
-- reset: attempt back to 0, errors kept.
select (jobs.fail(id, token, 'y', '1 hour')).state from jobs.jobs where kind in ('retryable', 'discarded') order by id;
select kind, state, attempt, max_attempts from jobs.jobs where kind in ('retryable', 'discarded') order by id;
select kind, jobs.retry(id, true) from jobs.jobs where kind in ('retryable', 'discarded') order by id;
select kind, state, attempt, max_attempts, (select count(*) from jobs.errors where job_id = id) as errors from jobs.jobs where kind in ('retryable', 'discarded') order by id;
-- NULL means the default: not reset.
select (jobs.fail(f.id, f.token, 'z', '1 hour')).state, jobs.retry(f.id, null) from jobs.fetch('r') f;
select state, attempt from jobs.jobs where kind = 'retryable';
-- The token that finished it still gets its answer, and finishes nothing again.
select id as e from jobs.insert('e', queue => 'e') \gset
select token as te from jobs.fetch('e') \gset
select jobs.complete(:e, :te);
select jobs.retry(:e);
select jobs.complete(:e, :te);
select state from jobs.jobs where id = :e;
-- At the end of what max_attempts can be.
select id as m from jobs.insert('m', queue => 'm', max_attempts => 2147483647) \gset
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('m');
select jobs.retry(:m);
select max_attempts from jobs.jobs where id = :m;
-- In its lane: behind those that were available before it.
select jobs.cancel((jobs.insert('first', queue => 'lane')).id);
select state from jobs.insert('second', queue => 'lane');
select jobs.retry(id) from jobs.jobs where kind = 'first';
select kind from jobs.fetch('lane', 2);

select call, pg_temp.try('select jobs.retry(' || call || ')') from (values ('null'), ('999'), ('-1'), ('null, true')) v(call);
