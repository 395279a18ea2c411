\set ECHO none
-- jobs.heartbeat: it renews the lease, never past the deadline.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select count(*) from (values ('default', null), ('long', interval '1 hour'), ('none', '-1'), ('leased', '1 hour')) v(queue, timeout), lateral jobs.insert('k', queue => v.queue, timeout => v.timeout) i;
select token as t1 from jobs.fetch() \gset
select token as t2 from jobs.fetch('long', lease => '1 minute') \gset
select token as t3 from jobs.fetch('none') \gset
select token as t4 from jobs.fetch('leased', lease => '10 minutes') \gset
-- How long from now, rounded up to 10 seconds.
create function pg_temp.lease(t timestamptz) returns interval language sql as $$ select make_interval(secs => ceil(extract(epoch from t - clock_timestamp()) / 10)::int * 10) $$;

-- Never past the deadline: one minute after the start, whatever is asked for.
select lease_expires_at = deadline_at as at_the_deadline, pg_temp.lease(deadline_at) as left, cancel_requested from jobs.heartbeat(1, :t1);
select lease_expires_at = deadline_at as at_the_deadline, cancel_requested from jobs.heartbeat(1, :t1, '1 hour');
-- null: as long as the fetch asked for. Shorter and longer work too.
call pg_temp.later('30 seconds');
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2);
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2, '5 minutes');
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2, '10 seconds');
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2);
-- Without a timeout there is no deadline; the lease is 1 hour.
select pg_temp.lease(lease_expires_at) as lease, deadline_at from jobs.heartbeat(3, :t3);
select pg_temp.lease(lease_expires_at) as lease, deadline_at from jobs.heartbeat(3, :t3, '30 days');
select pg_temp.lease(lease_expires_at) as lease from jobs.jobs where id = 3;
-- A lease that ran out is renewed as long as nobody rescued the job, and the deadline is not past.
call pg_temp.later('20 minutes');
select lease_expires_at < clock_timestamp() as ran_out from jobs.jobs where id = 4;
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(4, :t4);

-- Past the deadline it is refused.
select pg_temp.try(format('select jobs.heartbeat(1, %s)', :t1));
select pg_temp.try(format('select jobs.heartbeat(1, %s, %L)', :t1, '1 hour'));
-- But the job is still its worker's until it is rescued.
select jobs.complete(1, :t1);
select pg_temp.try(format('select jobs.heartbeat(1, %s)', :t1));

-- Progress: kept until another one is told; null leaves it.
select cancel_requested from jobs.heartbeat(3, :t3, progress => '{"done": 5}');
select progress from jobs.jobs where id = 3;
select cancel_requested from jobs.heartbeat(3, :t3);
select progress from jobs.jobs where id = 3;
select cancel_requested from jobs.heartbeat(3, :t3, progress => 'null');
select progress from jobs.jobs where id = 3;
select cancel_requested from jobs.heartbeat(3, :t3, progress => (repeat('[', 5000) || repeat(']', 5000))::jsonb);
select length(progress::text) from jobs.jobs where id = 3;

-- A cancel request is told.
select jobs.cancel(3);
select cancel_requested, deadline_at from jobs.heartbeat(3, :t3);

-- What is refused.
select call, pg_temp.try(replace('select jobs.heartbeat(' || call || ')', ':t', (select token::text from jobs.jobs where id = 3))) from (values
  ('null, 1'), ('3, null'), ('null, null'), ('99, 1'), ('3, 1'), ('3, :t, ''0'''), ('3, :t, ''-1 second'''), ('3, :t, ''-1 month''')) v(call);
select pg_temp.code(format('select jobs.heartbeat(3, %s, %L)', :t3, '178000000 years')) in ('ok', '22023') as an_answer_of_ours;
-- Cancelled by force: the worker's later calls are refused.
select jobs.cancel(3, force => true);
select pg_temp.try(format('select jobs.heartbeat(3, %s)', :t3));

-- Many at once: a row for each, in order; a lost one has nulls: a stale token, no such job, one
-- that does not run, one past its deadline.
select count(*) from generate_series(1, 4), lateral jobs.insert('m', to_jsonb(generate_series), queue => 'many', timeout => '1 hour');
create temp table held as select row_number() over (order by id) as n, id, token from jobs.fetch('many', 4);
select jobs.cancel(id) from held where n = 2;
select jobs.complete(id, token) from held where n = 3;
update jobs.running set deadline_at = clock_timestamp() - interval '1 second' where job_id = (select id from held where n = 4);
select n, lease_expires_at - clock_timestamp() between '9 min' and '10 min' as renewed, deadline_at is not null as deadline, cancel_requested
  from jobs.heartbeat_many((select array_agg(id order by n desc) || array[999::bigint, min(id)] from held), (select array_agg(token order by n desc) || array[1::bigint, 1] from held), '10 min') with ordinality as h(id, lease_expires_at, deadline_at, cancel_requested, n);
-- Without a lease: as long as the fetch asked for, else the timeout; never past the deadline.
select lease_expires_at = deadline_at as whole from held, lateral jobs.heartbeat_many(array[held.id], array[token]) where n = 1;
select lease_expires_at = deadline_at as whole from held, lateral jobs.heartbeat_many(array[held.id], array[token], '2 hours') where n = 1;
select count(*) from jobs.heartbeat_many('{}', '{}');
select call, pg_temp.try('select jobs.heartbeat_many(' || call || ')') from unnest(array['null, null', $$'{1}', null$$, $$'{1}', '{}'$$, $$'{null}', '{1}'$$, $$'{1}', '{1}', '0'$$, $$'{1}', '{1}', '-1 s'$$]) call;
