-- jobs.retry: available now.

select id, state from jobs.insert('scheduled', scheduled_at => '2999-01-01 00:00Z'); --> id|state: 1|scheduled
select id, state from jobs.insert('pending', pending => true, scheduled_at => '2999-01-01 00:00Z'); --> id|state: 2|pending
select id, state from jobs.insert('retryable', queue => 'r', max_attempts => 2); --> id|state: 3|available
select (jobs.fail(id, token, 'x', '1 hour')).state from jobs.fetch('r'); --> retryable
select id, state from jobs.insert('completed', queue => 'c', max_attempts => 1); --> id|state: 4|available
select jobs.complete(id, token, '{"out": 1}') from jobs.fetch('c'); --> completed
select id, state from jobs.insert('cancelled'); --> id|state: 5|available
select jobs.cancel(5, 'why'); --> cancelled
select id, state from jobs.insert('discarded', queue => 'd', max_attempts => 1); --> id|state: 6|available
select (jobs.fail(id, token, 'x')).state from jobs.fetch('d'); --> discarded
select jobs.retry(n) from generate_series(1, 6) n; --> available, available, available, available, available, available
-- max_attempts + 1 where they were exhausted; nothing of the outcome is left, but its errors.
select id, kind, state, attempt, max_attempts, scheduled_at between now() - interval '1 minute' and clock_timestamp() as now, finalized_at, output, cancel_requested_at, cancel_reason, worker,
       (select count(*) from jobs.errors where job_id = id) as errors from jobs.jobs order by id;
--> id|kind|state|attempt|max_attempts|now|finalized_at|output|cancel_requested_at|cancel_reason|worker|errors
--> 1|scheduled|available|0|25|t|~|~|~|~|~|0
--> 2|pending|available|0|25|t|~|~|~|~|~|0
--> 3|retryable|available|1|2|t|~|~|~|~|~|1
--> 4|completed|available|1|2|t|~|~|~|~|~|0
--> 5|cancelled|available|0|25|t|~|~|~|~|~|0
--> 6|discarded|available|1|2|t|~|~|~|~|~|1
select kind, attempt from jobs.fetch_any('{default,r,c,d}', 10); --> kind|attempt: scheduled|1, pending|1, cancelled|1, retryable|2, completed|2, discarded|2
-- An available or a running one: nothing changes, the state is the answer.
create temp table before as select * from jobs.jobs;
select jobs.retry(1), jobs.retry(1, true); --> retry|retry: running|running
select id, state from jobs.insert('available', queue => 'a'); --> id|state: 13|available
insert into before select * from jobs.jobs where kind = 'available';
select jobs.retry(id), jobs.retry(id, true) from jobs.jobs where kind = 'available'; --> retry|retry: available|available
select count(*) as changed from (table before except select * from jobs.jobs) x; --> 0
-- reset: attempt back to 0, errors kept.
select (jobs.fail(id, token, 'y', '1 hour')).state from jobs.jobs where kind in ('retryable', 'discarded') order by id; --> discarded, discarded
select kind, state, attempt, max_attempts from jobs.jobs where kind in ('retryable', 'discarded') order by id;
--> kind|state|attempt|max_attempts
--> retryable|discarded|2|2
--> discarded|discarded|2|2
select kind, jobs.retry(id, true) from jobs.jobs where kind in ('retryable', 'discarded') order by id; --> kind|retry: retryable|available, discarded|available
select kind, state, attempt, max_attempts, (select count(*) from jobs.errors where job_id = id) as errors from jobs.jobs where kind in ('retryable', 'discarded') order by id;
--> kind|state|attempt|max_attempts|errors
--> retryable|available|0|2|2
--> discarded|available|0|2|2
-- NULL means the default: not reset.
select (jobs.fail(f.id, f.token, 'z', '1 hour')).state, jobs.retry(f.id, null) from jobs.fetch('r') f; --> state|retry: retryable|available
select state, attempt from jobs.jobs where kind = 'retryable'; --> state|attempt: available|1
-- The token that finished it still gets its answer, and finishes nothing again.
select id as e from jobs.insert('e', queue => 'e') \gset
select token as te from jobs.fetch('e') \gset
select jobs.complete(:e, :te); --> completed
select jobs.retry(:e); --> available
select jobs.complete(:e, :te); --> completed
select state from jobs.jobs where id = :e; --> available
-- At the end of what max_attempts can be.
select id as m from jobs.insert('m', queue => 'm', max_attempts => 2147483647) \gset
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('m'); --> discarded
select jobs.retry(:m); --> available
select max_attempts from jobs.jobs where id = :m; --> 2147483647
-- In its lane: behind those that were available before it.
select jobs.cancel((jobs.insert('first', queue => 'lane')).id); --> cancelled
select state from jobs.insert('second', queue => 'lane'); --> available
select jobs.retry(id) from jobs.jobs where kind = 'first'; --> available
select kind from jobs.fetch('lane', 2); --> second, first

select pg_temp.refusals('select jobs.retry(%s)', array_agg(call)) from (values ('null'), ('999'), ('-1'), ('null, true')) v(call);
--> null | 22004: id must not be null
--> null, true | 22004: id must not be null
--> 999 | P0002: job 999 does not exist
--> -1 | P0002: job -1 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
