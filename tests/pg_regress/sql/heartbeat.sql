-- jobs.heartbeat: it renews the lease, never past the deadline.

select count(*) from (values ('default', null), ('long', interval '1 hour'), ('none', '-1'), ('leased', '1 hour')) v(queue, timeout), lateral jobs.insert('k', queue => v.queue, timeout => v.timeout) i;
--> 4
select token as t1 from jobs.fetch() \gset
select token as t2 from jobs.fetch('long', lease => '1 minute') \gset
select token as t3 from jobs.fetch('none') \gset
select token as t4 from jobs.fetch('leased', lease => '10 minutes') \gset
-- How long from now, rounded up to 10 seconds.
create function pg_temp.lease(t timestamptz) returns interval language sql as $$ select make_interval(secs => ceil(extract(epoch from t - clock_timestamp()) / 10)::int * 10) $$;

-- Never past the deadline: one minute after the start, whatever is asked for.
select lease_expires_at = deadline_at as at_the_deadline, pg_temp.lease(deadline_at) as left, cancel_requested from jobs.heartbeat(1, :t1); --> at_the_deadline|left|cancel_requested: t|00:01:00|f
select lease_expires_at = deadline_at as at_the_deadline, cancel_requested from jobs.heartbeat(1, :t1, '1 hour'); --> at_the_deadline|cancel_requested: t|f
-- null: as long as the fetch asked for. Shorter and longer work too.
call pg_temp.later('30 seconds');
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2); --> lease|deadline: 00:01:00|00:59:30
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2, '5 minutes'); --> lease|deadline: 00:05:00|00:59:30
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2, '10 seconds'); --> lease|deadline: 00:00:10|00:59:30
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(2, :t2); --> lease|deadline: 00:01:00|00:59:30
-- Without a timeout there is no deadline; the lease is 1 hour.
select pg_temp.lease(lease_expires_at) as lease, deadline_at from jobs.heartbeat(3, :t3); --> lease|deadline_at: 01:00:00|~
select pg_temp.lease(lease_expires_at) as lease, deadline_at from jobs.heartbeat(3, :t3, '30 days'); --> lease|deadline_at: 720:00:00|~
select pg_temp.lease(lease_expires_at) as lease from jobs.jobs where id = 3; --> 720:00:00
-- A lease that ran out is renewed as long as no session rescued the job, and the deadline is not
-- past.
call pg_temp.later('20 minutes');
select lease_expires_at < clock_timestamp() as ran_out from jobs.jobs where id = 4; --> t
select pg_temp.lease(lease_expires_at) as lease, pg_temp.lease(deadline_at) as deadline from jobs.heartbeat(4, :t4); --> lease|deadline: 00:10:00|00:39:30

-- Past the deadline it is refused.
select pg_temp.try(format('select jobs.heartbeat(1, %s)', :t1));
--> 55000: cannot renew the lease of job 1: it is running | The attempt has exceeded the job's timeout. Stop working on it.
-->   deadline_exceeded
select pg_temp.try(format('select jobs.heartbeat(1, %s, %L)', :t1, '1 hour'));
--> 55000: cannot renew the lease of job 1: it is running | The attempt has exceeded the job's timeout. Stop working on it.
-->   deadline_exceeded
-- But the job is still its worker's until it is rescued.
select jobs.complete(1, :t1); --> completed
select pg_temp.try(format('select jobs.heartbeat(1, %s)', :t1));
--> 55000: cannot renew the lease of job 1: this token was already used by complete, which made the job completed | A token is valid for one finishing call. Discard this result: another worker may own the job now.
-->   already_finished

-- Progress: kept until another one is told; null leaves it.
select cancel_requested from jobs.heartbeat(3, :t3, progress => '{"done": 5}'); --> f
select progress from jobs.jobs where id = 3; --> {"done": 5}
select cancel_requested from jobs.heartbeat(3, :t3); --> f
select progress from jobs.jobs where id = 3; --> {"done": 5}
select cancel_requested from jobs.heartbeat(3, :t3, progress => 'null'); --> f
select progress from jobs.jobs where id = 3; --> null
select cancel_requested from jobs.heartbeat(3, :t3, progress => (repeat('[', 5000) || repeat(']', 5000))::jsonb); --> f
select length(progress::text) from jobs.jobs where id = 3; --> 10000

-- A cancel request is told.
select jobs.cancel(3); --> running
select cancel_requested, deadline_at from jobs.heartbeat(3, :t3); --> cancel_requested|deadline_at: t|~

-- What is refused.
select call, pg_temp.try(replace('select jobs.heartbeat(' || call || ')', ':t', (select token::text from jobs.jobs where id = 3))) from (values
  ('null, 1'), ('3, null'), ('null, null'), ('99, 1'), ('3, 1'), ('3, :t, ''0'''), ('3, :t, ''-1 second'''), ('3, :t, ''-1 month''')) v(call);
--> call|try
--> null, 1|22004: id must not be null
--> 3, null|22004: token must not be null
--> null, null|22004: id must not be null
--> 99, 1|P0002: job 99 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
--> 3, 1|55000: cannot renew the lease of job 3: the token is not that of the current attempt, which worker "pg_regress/heartbeat" has held since .. | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
--> 3, :t, '0'|22023: lease "00:00:00" is out of range
-->   lease must be longer than 0 and at most 1000 years.
--> 3, :t, '-1 second'|22023: lease "-00:00:01" is out of range
-->   lease must be longer than 0 and at most 1000 years.
--> 3, :t, '-1 month'|22023: lease "-1 mons" is out of range
-->   lease must be longer than 0 and at most 1000 years.
select pg_temp.code(format('select jobs.heartbeat(3, %s, %L)', :t3, '178000000 years')) in ('ok', '22023') as an_answer_of_ours; --> t
-- Cancelled by force: the worker's later calls are refused.
select jobs.cancel(3, force => true); --> cancelled
select pg_temp.try(format('select jobs.heartbeat(3, %s)', :t3));
--> 55000: cannot renew the lease of job 3: the token is not that of a current attempt; the job is cancelled | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost

-- Many at once: a row for each, in order; a lost one has nulls: a stale token, no such job, one
-- that does not run, one past its deadline.
select count(*) from generate_series(1, 4), lateral jobs.insert('m', to_jsonb(generate_series), queue => 'many', timeout => '1 hour'); --> 4
create temp table held as select row_number() over (order by id) as n, id, token from jobs.fetch('many', 4);
select jobs.cancel(id) from held where n = 2; --> running
select jobs.complete(id, token) from held where n = 3; --> completed
update jobs.running set deadline_at = clock_timestamp() - interval '1 second' where job_id = (select id from held where n = 4);
select n, lease_expires_at - clock_timestamp() between '9 min' and '10 min' as renewed, deadline_at is not null as deadline, cancel_requested
  from jobs.heartbeat_many((select array_agg(id order by n desc) || array[999::bigint, min(id)] from held), (select array_agg(token order by n desc) || array[1::bigint, 1] from held), '10 min') with ordinality as h(id, lease_expires_at, deadline_at, cancel_requested, n);
--> n|renewed|deadline|cancel_requested
--> 1|~|f|~
--> 2|~|f|~
--> 3|t|t|t
--> 4|t|t|f
--> 5|~|f|~
--> 6|~|f|~
-- Without a lease: as long as the fetch asked for, else the timeout; never past the deadline.
select lease_expires_at = deadline_at as whole from held, lateral jobs.heartbeat_many(array[held.id], array[token]) where n = 1; --> t
select lease_expires_at = deadline_at as whole from held, lateral jobs.heartbeat_many(array[held.id], array[token], '2 hours') where n = 1; --> t
select count(*) from jobs.heartbeat_many('{}', '{}'); --> 0
select pg_temp.refusals('select jobs.heartbeat_many(%s)', array['null, null', $$'{1}', null$$, $$'{1}', '{}'$$, $$'{null}', '{1}'$$, $$'{1}', '{1}', '0'$$, $$'{1}', '{1}', '-1 s'$$]);
--> null, null | 22004: ids must not be null
--> '{1}', null | 22004: tokens must not be null
--> '{null}', '{1}' | 22004: an element of ids must not be null
--> '{1}', '{}' | 22023: ids has 1 elements, but tokens has 0
-->   ids and tokens must have the same length: a token for each id.
--> '{1}', '{1}', '0' | 22023: lease "00:00:00" is out of range
--> '{1}', '{1}', '-1 s' | 22023: lease "-00:00:01" is out of range
-->   lease must be longer than 0 and at most 1000 years.
