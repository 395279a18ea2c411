\set ECHO none
-- retry in Open Job Spec's form, and after_lease: how long a job waits whose worker was lost.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Fails jobs of a policy once, and says how long they wait, in seconds, and how often they may be
-- tried.
create function pg_temp.waits(retry jsonb, max_attempts int = null, details jsonb = null, out state jobs.state, out waits numeric, out attempts int) language plpgsql as $$
declare f record; answer record;
begin
  perform jobs.insert('k', queue => 'w', retry => waits.retry, max_attempts => waits.max_attempts);
  select * into strict f from jobs.fetch('w');
  select * into strict answer from jobs.fail(f.id, f.token, 'x', details => waits.details);
  state := answer.state;
  attempts := f.max_attempts;
  waits := round(extract(epoch from answer.scheduled_at - (select max(at) from jobs.errors where job_id = f.id)), 1);
  perform jobs.delete(f.id);
end $$;
-- Left out: 3 attempts, a second, doubling up to five minutes, with jitter.
select state, waits between 0.5 and 1.5 as about_a_second, attempts from pg_temp.waits('{"ojs": {}}');
select * from pg_temp.waits('{"ojs": {"max_attempts": 10, "initial_interval": "PT10S", "jitter": false}}');
select * from pg_temp.waits('{"ojs": {"initial_interval": "PT10M", "jitter": false, "on_exhaustion": "dead_letter"}}');
select * from pg_temp.waits('{"ojs": {"initial_interval": "PT1H", "max_interval": "P1D", "backoff_coefficient": 3, "jitter": false, "backoff_strategy": "polynomial", "non_retryable_errors": ["auth.*"]}}', details => '{"type": "card"}');
select * from pg_temp.waits('{"ojs": {"non_retryable_errors": ["auth.*"]}}', details => '{"type": "auth.forbidden"}');
select * from pg_temp.waits('{"ojs": {"max_attempts": 1}}') union all select * from pg_temp.waits('{"ojs": {"max_attempts": 0}}');
-- The formulas of other queues can be told what is hopeless, too.
select * from pg_temp.waits('{"strategy": "river", "non_retryable": ["card"]}', details => '{"type": "card"}');

-- How often: max_attempts where it is given, else the policy, else the kind, else the
-- specification's 3. One of both in one call.
select * from pg_temp.waits('{"ojs": {"initial_interval": "PT10S", "jitter": false}}', max_attempts => 7);
select * from pg_temp.waits('{"ojs": {"max_attempts": 7, "initial_interval": "PT10S", "jitter": false}}', max_attempts => 7);
select pg_temp.try($$select pg_temp.waits('{"ojs": {"max_attempts": 3}}', max_attempts => 7)$$);
create function pg_temp.defined(max_attempts int, retry jsonb) returns int language plpgsql as $$
declare job bigint;
begin
  perform jobs.define_kind('d', max_attempts => defined.max_attempts, retry => defined.retry);
  select id into job from jobs.insert('d');
  return (select j.max_attempts from jobs.jobs j where id = job);
end $$;
select pg_temp.defined(7, null) as a, pg_temp.defined(7, '{"ojs": {}}') as b, pg_temp.defined(null, '{"ojs": {}}') as c, pg_temp.defined(null, '{"ojs": {"max_attempts": 9}}') as d;
select pg_temp.code($$select jobs.define_kind('d', max_attempts => 7, retry => '{"ojs": {"max_attempts": 3}}')$$);
select jobs.define_kind('d', max_attempts => 7) \gset
create temp table made as select id from jobs.insert('d', retry => '{"ojs": {}}') union all select id from jobs.insert('d', retry => '{"ojs": {"max_attempts": 2}}') union all
  select id from jobs.insert_batch('d', array['1']::jsonb[], retry => '{"ojs": {"max_attempts": 4}}') union all
  select id from jobs.insert_many('[{"kind": "d", "retry": {"ojs": {"max_attempts": 5}}}, {"kind": "e", "retry": {"ojs": {}}}]');
select kind, max_attempts from jobs.jobs join made using (id) order by id;
select pg_temp.try($$select jobs.insert_many('[{"kind": "e"}, {"kind": "e", "max_attempts": 2, "retry": {"ojs": {"max_attempts": 5}}}]')$$);
select id as waiting from jobs.insert('u') \gset
select jobs.update(:waiting, retry => '{"ojs": {"max_attempts": 5}}');
select max_attempts from jobs.jobs where id = :waiting;
select jobs.update(:waiting, retry => '{"ojs": {}}');
select max_attempts from jobs.jobs where id = :waiting;
select pg_temp.code(format($$select jobs.update(%s, max_attempts => 2, retry => '{"ojs": {"max_attempts": 5}}')$$, :waiting)) as update,
       pg_temp.code($$select jobs.schedule('s', '@daily', 'e', retry => '{"ojs": {"max_attempts": "5"}}')$$) as schedule, pg_temp.code($$select jobs.schedule('s', '@daily', 'e', retry => '{"ojs": {"max_attempts": 5}}')$$) as valid;

-- What is refused: the value, the rule, the fix. Members of the policy, and what stands beside it.
select retry, pg_temp.try(format('select jobs.insert(%L, retry => %L)', 'k', retry)) from unnest(array[
  '{"ojs": 3}', '{"ojs": {"max_atempts": 3}}', '{"ojs": {"initial": "PT1S"}}', '{"ojs": {"max_attempts": -1}}', '{"ojs": {"max_attempts": 2.5}}', '{"ojs": {"initial_interval": 1}}', '{"ojs": {"initial_interval": "1 second"}}',
  '{"ojs": {"max_interval": "P1M"}}', '{"ojs": {"backoff_coefficient": 0.5}}', '{"ojs": {"jitter": 0.5}}', '{"ojs": {"on_exhaustion": "keep"}}', '{"ojs": {"backoff_strategy": "fibonacci"}}', '{"ojs": {"non_retryable_errors": ["*"]}}',
  '{"ojs": {}, "strategy": "linear"}', '{"ojs": {"after_lease": 1}}', '{"strategy": "river", "initial": 5}', '{"after_lease": -1}', '{"after_lease": "soon"}', '{"after_lease": "1 month"}', '{"after_lse": 1}']) retry;

-- After a lost lease: so long, or by the policy. Running out of its time is not that.
create temp table lost (queue text, retry jsonb, timeout interval);
insert into lost values ('l at once', '{"strategy": "oban", "after_lease": 0}', '1 day'), ('l later', '{"strategy": "river", "after_lease": "1 hour"}', '1 day'), ('l ojs', '{"ojs": {"max_attempts": 2}, "after_lease": "PT30M"}', '1 day'),
  ('l native', '{"strategy": "constant", "initial": 20, "jitter": false, "after_lease": 5}', '1 day'), ('l default', '{"strategy": "constant", "initial": 20, "jitter": false}', '1 day'), ('l last', '{"ojs": {"max_attempts": 1}, "after_lease": 0}', '1 day'),
  ('l hopeless', '{"strategy": "river", "after_lease": 0, "non_retryable": ["lease_expired"]}', '1 day'), ('l timeout', '{"strategy": "constant", "initial": 20, "jitter": false, "after_lease": 5}', '1 minute');
select count(*) from lost l, lateral jobs.insert('k', queue => l.queue, retry => l.retry, timeout => l.timeout) i;
select count(*) from lost l, lateral jobs.fetch(l.queue, lease => '1 minute') f;
call pg_temp.later('61 seconds');
select task, rows from jobs.maintain() where task = 'rescue';
select j.queue, j.state, case when finalized_at is null then round(extract(epoch from j.scheduled_at - e.at), 1) end as waits, e.details ->> 'type' as type from jobs.jobs j join jobs.errors e on e.job_id = j.id where j.queue ~ '^l ' order by j.id;
-- A failure that the worker reports is the policy's.
select f.id, f.token from jobs.fetch('l at once') f \gset
select state, scheduled_at - clock_timestamp() between '15 s' and '25 s' as by_the_policy from jobs.fail(:id, :token, 'x');
