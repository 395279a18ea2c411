-- jobs.snooze and jobs.release: given back, the attempt does not count, no error is recorded.

select count(*) from generate_series(1, 3) n, lateral jobs.insert('k', to_jsonb(n), queue => 'q' || n, max_attempts => 1) i; --> 3
select token as t1 from jobs.fetch('q1') \gset
select scheduled_at as first, state, scheduled_at - clock_timestamp() between interval '59 minutes' and interval '1 hour' as in_an_hour from jobs.snooze(1, :t1, '1 hour') \gset
\echo :state :in_an_hour
--> scheduled t
select id, state, attempt, scheduled_at = :'first' as at_that_time, worker, attempted_at, finalized_at from jobs.jobs where id = 1;
--> id|state|attempt|at_that_time|worker|attempted_at|finalized_at: 1|scheduled|0|t|~|~|~
select count(*) from jobs.errors; --> 0
select count(*) from jobs.fetch('q1'); --> 0
-- Again with the same token: as the first time.
select state, scheduled_at = :'first' as the_same from jobs.snooze(1, :t1, '5 hours'); --> state|the_same: scheduled|t
-- Due again, it is fetched with the attempt that it had, also after many of them.
call pg_temp.later('2 hours');
select attempt from jobs.fetch('q1'); --> 1
do $$
declare t bigint;
begin
  for n in 1..50 loop
    perform jobs.snooze(id, token, '0') from jobs.jobs where id = 1;
    perform from jobs.fetch('q1');
    perform jobs.release(id, token) from jobs.jobs where id = 1;
    perform from jobs.fetch('q1');
  end loop;
end $$;
select state, attempt, (select count(*) from jobs.errors) as errors from jobs.jobs where id = 1; --> state|attempt|errors: running|1|0
-- A delay of 0 is scheduled, due now.
select state, scheduled_at between now() and clock_timestamp() as now from jobs.snooze(1, pg_temp.token(1), '0'); --> state|now: scheduled|t
select state from jobs.jobs where id = 1; --> scheduled

select token as t2 from jobs.fetch('q2') \gset
select jobs.release(2, :t2); --> available
select id, state, attempt, scheduled_at = created_at as as_inserted, worker, attempted_at, token, lease_expires_at from jobs.jobs where id = 2;
--> id|state|attempt|as_inserted|worker|attempted_at|token|lease_expires_at: 2|available|0|t|~|~|~|~
select jobs.release(2, :t2); --> available
select attempt, token <> :t2 as another from jobs.fetch('q2'); --> attempt|another: 1|t
-- The answer of the first time, also when another has it by now; the other keeps it.
select jobs.release(2, :t2); --> available
select state, attempt from jobs.jobs where id = 2; --> state|attempt: running|1

-- After a cancel request: cancelled, for each. The attempt was one.
select count(*) from jobs.fetch('q3'); --> 1
select jobs.cancel(2), jobs.cancel(3, 'no more'); --> cancel|cancel: running|running
select pg_temp.token(2) as t2 \gset
select pg_temp.token(3) as t3 \gset
select jobs.release(2, :t2); --> cancelled
select * from jobs.snooze(3, :t3, '1 hour'); --> state|scheduled_at: cancelled|~
select id, state, finalized_at is not null as finalized, cancel_requested_at is not null as requested, cancel_reason, (select count(*) from jobs.errors) as errors from jobs.jobs where id in (2, 3) order by id;
--> id|state|finalized|requested|cancel_reason|errors
--> 2|cancelled|t|t|~|0
--> 3|cancelled|t|t|no more|0
select jobs.release(2, :t2); --> cancelled
select * from jobs.snooze(3, :t3, '1 hour'); --> state|scheduled_at: cancelled|~

select id as a from jobs.insert('a', queue => 'a') \gset
select count(*) from jobs.fetch('a'); --> 1
create function pg_temp.put(call text) returns text language sql as $$ select replace(call, ':a', (select id || ', ' || token from jobs.jobs where kind = 'a')) $$;
select call, pg_temp.try(pg_temp.put('select jobs.' || call)) from (values
  ('snooze(:a, null)'), ('snooze(:a, ''-1 second'')'), ('snooze(:a, ''-1 month'')'), ('snooze(null, 1, ''1'')'), ('snooze(1, null, ''1'')'), ('snooze(9999, 1, ''1'')'), ('snooze(1, 1, ''1'')'), ('snooze(2, 1, ''1'')'),
  ('release(null, 1)'), ('release(1, null)'), ('release(9999, 1)'), ('release(1, 1)'), ('release(3, 1)')) v(call);
--> call|try
--> snooze(:a, null)|22004: delay must not be null
--> snooze(:a, '-1 second')|22023: delay "-00:00:01" is out of range
-->   delay must be between 0 and 1000 years.
--> snooze(:a, '-1 month')|22023: delay "-1 mons" is out of range
-->   delay must be between 0 and 1000 years.
--> snooze(null, 1, '1')|22004: id must not be null
--> snooze(1, null, '1')|22004: token must not be null
--> snooze(9999, 1, '1')|P0002: job 9999 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
--> snooze(1, 1, '1')|55000: cannot snooze job 1: the token is not that of a current attempt; the job is scheduled | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
--> snooze(2, 1, '1')|55000: cannot snooze job 2: the token is not that of a current attempt; the job is cancelled | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
--> release(null, 1)|22004: id must not be null
--> release(1, null)|22004: token must not be null
--> release(9999, 1)|P0002: job 9999 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
--> release(1, 1)|55000: cannot release job 1: the token is not that of a current attempt; the job is scheduled | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
--> release(3, 1)|55000: cannot release job 3: the token is not that of a current attempt; the job is cancelled | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
-- After the end of time.
select pg_temp.code(pg_temp.put('select jobs.snooze(:a, ''178000000 years'')')); --> 22023
select state from jobs.jobs where id = :a; --> running
