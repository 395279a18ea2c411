\set ECHO none
-- jobs.snooze and jobs.release: given back, the attempt does not count, no error is recorded.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select count(*) from generate_series(1, 3) n, lateral jobs.insert('k', to_jsonb(n), queue => 'q' || n, max_attempts => 1) i;
select token as t1 from jobs.fetch('q1') \gset
select scheduled_at as first, state, scheduled_at - clock_timestamp() between interval '59 minutes' and interval '1 hour' as in_an_hour from jobs.snooze(1, :t1, '1 hour') \gset
\echo :state :in_an_hour
select id, state, attempt, scheduled_at = :'first' as at_that_time, worker, attempted_at, finalized_at from jobs.jobs where id = 1;
select count(*) from jobs.errors;
select count(*) from jobs.fetch('q1');
-- Again with the same token: as the first time.
select state, scheduled_at = :'first' as the_same from jobs.snooze(1, :t1, '5 hours');
-- Due again, it is fetched with the attempt that it had, also after many of them.
call pg_temp.later('2 hours');
select attempt from jobs.fetch('q1');
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
select state, attempt, (select count(*) from jobs.errors) as errors from jobs.jobs where id = 1;
-- A delay of 0 is scheduled, due now.
select state, scheduled_at between now() and clock_timestamp() as now from jobs.snooze(1, pg_temp.token(1), '0');
select state from jobs.jobs where id = 1;

select token as t2 from jobs.fetch('q2') \gset
select jobs.release(2, :t2);
select id, state, attempt, scheduled_at = created_at as as_inserted, worker, attempted_at, token, lease_expires_at from jobs.jobs where id = 2;
select jobs.release(2, :t2);
select attempt, token <> :t2 as another from jobs.fetch('q2');
-- The answer of the first time, also when another has it by now; the other keeps it.
select jobs.release(2, :t2);
select state, attempt from jobs.jobs where id = 2;

-- After a cancel request: cancelled, for each. The attempt was one.
select count(*) from jobs.fetch('q3');
select jobs.cancel(2), jobs.cancel(3, 'no more');
select pg_temp.token(2) as t2 \gset
select pg_temp.token(3) as t3 \gset
select jobs.release(2, :t2);
select * from jobs.snooze(3, :t3, '1 hour');
select id, state, finalized_at is not null as finalized, cancel_requested_at is not null as requested, cancel_reason, (select count(*) from jobs.errors) as errors from jobs.jobs where id in (2, 3) order by id;
select jobs.release(2, :t2);
select * from jobs.snooze(3, :t3, '1 hour');

select id as a from jobs.insert('a', queue => 'a') \gset
select count(*) from jobs.fetch('a');
create function pg_temp.put(call text) returns text language sql as $$ select replace(call, ':a', (select id || ', ' || token from jobs.jobs where kind = 'a')) $$;
select call, pg_temp.try(pg_temp.put('select jobs.' || call)) from (values
  ('snooze(:a, null)'), ('snooze(:a, ''-1 second'')'), ('snooze(:a, ''-1 month'')'), ('snooze(null, 1, ''1'')'), ('snooze(1, null, ''1'')'), ('snooze(9999, 1, ''1'')'), ('snooze(1, 1, ''1'')'), ('snooze(2, 1, ''1'')'),
  ('release(null, 1)'), ('release(1, null)'), ('release(9999, 1)'), ('release(1, 1)'), ('release(3, 1)')) v(call);
-- After the end of time.
select pg_temp.code(pg_temp.put('select jobs.snooze(:a, ''178000000 years'')'));
select state from jobs.jobs where id = :a;
