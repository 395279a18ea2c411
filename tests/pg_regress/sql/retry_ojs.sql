-- retry in Open Job Spec's form, and after_lease: how long a job waits whose worker was lost.

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
select state, waits between 0.5 and 1.5 as about_a_second, attempts from pg_temp.waits('{"ojs": {}}'); --> state|about_a_second|attempts: retryable|t|3
select * from pg_temp.waits('{"ojs": {"max_attempts": 10, "initial_interval": "PT10S", "jitter": false}}'); --> state|waits|attempts: retryable|10.0|10
select * from pg_temp.waits('{"ojs": {"initial_interval": "PT10M", "jitter": false, "on_exhaustion": "dead_letter"}}'); --> state|waits|attempts: retryable|300.0|3
select * from pg_temp.waits('{"ojs": {"initial_interval": "PT1H", "max_interval": "P1D", "backoff_coefficient": 3, "jitter": false, "backoff_strategy": "polynomial", "non_retryable_errors": ["auth.*"]}}', details => '{"type": "card"}');
--> state|waits|attempts: retryable|3600.0|3
select * from pg_temp.waits('{"ojs": {"non_retryable_errors": ["auth.*"]}}', details => '{"type": "auth.forbidden"}'); --> state|waits|attempts: discarded|~|3
select * from pg_temp.waits('{"ojs": {"max_attempts": 1}}') union all select * from pg_temp.waits('{"ojs": {"max_attempts": 0}}');
--> state|waits|attempts
--> discarded|~|1
--> discarded|~|1
-- The formulas of other queues can be told what is hopeless, too.
select * from pg_temp.waits('{"strategy": "river", "non_retryable": ["card"]}', details => '{"type": "card"}'); --> state|waits|attempts: discarded|~|25

-- How often: max_attempts where it is given, else the policy, else the kind, else the
-- specification's 3. One of both in one call.
select * from pg_temp.waits('{"ojs": {"initial_interval": "PT10S", "jitter": false}}', max_attempts => 7); --> state|waits|attempts: retryable|10.0|7
select * from pg_temp.waits('{"ojs": {"max_attempts": 7, "initial_interval": "PT10S", "jitter": false}}', max_attempts => 7); --> state|waits|attempts: retryable|10.0|7
select pg_temp.try($$select pg_temp.waits('{"ojs": {"max_attempts": 3}}', max_attempts => 7)$$);
--> 22023: max_attempts 7 differs from retry.ojs.max_attempts 3 | Leave one of them out.
-->   Both set the job's number of attempts.
create function pg_temp.defined(max_attempts int, retry jsonb) returns int language plpgsql as $$
declare job bigint;
begin
  perform jobs.define_kind('d', max_attempts => defined.max_attempts, retry => defined.retry);
  select id into job from jobs.insert('d');
  return (select j.max_attempts from jobs.jobs j where id = job);
end $$;
select pg_temp.defined(7, null) as a, pg_temp.defined(7, '{"ojs": {}}') as b, pg_temp.defined(null, '{"ojs": {}}') as c, pg_temp.defined(null, '{"ojs": {"max_attempts": 9}}') as d; --> a|b|c|d: 7|7|3|9
select pg_temp.code($$select jobs.define_kind('d', max_attempts => 7, retry => '{"ojs": {"max_attempts": 3}}')$$); --> 22023
select jobs.define_kind('d', max_attempts => 7) \gset
create temp table made as select id from jobs.insert('d', retry => '{"ojs": {}}') union all select id from jobs.insert('d', retry => '{"ojs": {"max_attempts": 2}}') union all
  select id from jobs.insert_batch('d', array['1']::jsonb[], retry => '{"ojs": {"max_attempts": 4}}') union all
  select id from jobs.insert_many('[{"kind": "d", "retry": {"ojs": {"max_attempts": 5}}}, {"kind": "e", "retry": {"ojs": {}}}]');
select kind, max_attempts from jobs.jobs join made using (id) order by id; --> kind|max_attempts: d|7, d|2, d|4, d|5, e|3
select pg_temp.try($$select jobs.insert_many('[{"kind": "e"}, {"kind": "e", "max_attempts": 2, "retry": {"ojs": {"max_attempts": 5}}}]')$$);
--> 22023: max_attempts 2 differs from retry.ojs.max_attempts 5 | Leave one of them out.
-->   Element 2: Both set the job's number of attempts.
select id as waiting from jobs.insert('u') \gset
select jobs.update(:waiting, retry => '{"ojs": {"max_attempts": 5}}'); --> available
select max_attempts from jobs.jobs where id = :waiting; --> 5
select jobs.update(:waiting, retry => '{"ojs": {}}'); --> available
select max_attempts from jobs.jobs where id = :waiting; --> 5
select pg_temp.code(format($$select jobs.update(%s, max_attempts => 2, retry => '{"ojs": {"max_attempts": 5}}')$$, :waiting)) as update,
       pg_temp.code($$select jobs.schedule('s', '@daily', 'e', retry => '{"ojs": {"max_attempts": "5"}}')$$) as schedule, pg_temp.code($$select jobs.schedule('s', '@daily', 'e', retry => '{"ojs": {"max_attempts": 5}}')$$) as valid;
--> update|schedule|valid: 22023|22023|ok

-- What is refused: the value, the rule, the fix. Members of the policy, and what stands beside it.
select pg_temp.refusals('select jobs.insert(''k'', retry => %L)', array[
  '{"ojs": 3}', '{"ojs": {"max_atempts": 3}}', '{"ojs": {"initial": "PT1S"}}', '{"ojs": {"max_attempts": -1}}', '{"ojs": {"max_attempts": 2.5}}', '{"ojs": {"initial_interval": 1}}', '{"ojs": {"initial_interval": "1 second"}}',
  '{"ojs": {"max_interval": "P1M"}}', '{"ojs": {"backoff_coefficient": 0.5}}', '{"ojs": {"jitter": 0.5}}', '{"ojs": {"on_exhaustion": "keep"}}', '{"ojs": {"backoff_strategy": "fibonacci"}}', '{"ojs": {"non_retryable_errors": ["*"]}}',
  '{"ojs": {}, "strategy": "linear"}', '{"ojs": {"after_lease": 1}}', '{"strategy": "river", "initial": 5}', '{"after_lease": -1}', '{"after_lease": "soon"}', '{"after_lease": "1 month"}', '{"after_lse": 1}']);
--> {"ojs": 3} | 22023: retry.ojs must not be a number
-->   retry.ojs must be an object such as {"max_attempts": 5, "initial_interval": "PT1S"}.
--> {"ojs": {"max_atempts": 3}} | 22023: field "max_atempts" of retry.ojs is not known | Did you mean "max_attempts"?
--> {"ojs": {"initial": "PT1S"}} | 22023: field "initial" of retry.ojs is not known
--> {"ojs": {"after_lease": 1}} | 22023: field "after_lease" of retry.ojs is not known
-->   The fields are max_attempts, initial_interval, backoff_coefficient, max_interval, jitter, non_retryable_errors, on_exhaustion, backoff_strategy.
--> {"ojs": {"max_attempts": -1}} | 22023: retry.ojs.max_attempts -1 is out of range
-->   retry.ojs.max_attempts must be a number between 0 and 2147483647.
--> {"ojs": {"max_attempts": 2.5}} | 22023: retry.ojs.max_attempts 2.5 is not a whole number
-->   retry.ojs.max_attempts must be a whole number.
--> {"ojs": {"initial_interval": 1}} | 22023: retry.ojs.initial_interval 1 is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"initial_interval": "1 second"}} | 22023: retry.ojs.initial_interval "1 second" is not an ISO 8601 duration | Write "PT15M".
-->   retry.ojs.initial_interval must be an ISO 8601 duration.
--> {"ojs": {"max_interval": "P1M"}} | 22023: retry.ojs.max_interval "P1M" has no fixed length | Write it in days, such as "30 days".
-->   retry.ojs.max_interval must have a fixed length longer than 0 and at most 1000 years; months and years vary in length.
--> {"ojs": {"backoff_coefficient": 0.5}} | 22023: retry.ojs.backoff_coefficient 0.5 is out of range
-->   retry.ojs.backoff_coefficient must be a number between 1 and 1000.
--> {"ojs": {"jitter": 0.5}} | 22023: retry.ojs.jitter must not be a number
-->   retry.ojs.jitter must be true or false.
--> {"ojs": {"on_exhaustion": "keep"}} | 22023: retry.ojs.on_exhaustion "keep" is not known
-->   retry.ojs.on_exhaustion must be "discard" or "dead_letter".
--> {"ojs": {"backoff_strategy": "fibonacci"}} | 22023: retry.ojs.backoff_strategy "fibonacci" is not known
-->   retry.ojs.backoff_strategy must be "none", "linear", "exponential" or "polynomial".
--> {"ojs": {"non_retryable_errors": ["*"]}} | 22023: "*" of retry.ojs.non_retryable_errors matches no error type
-->   retry.ojs.non_retryable_errors must be a list of error types such as "card_declined", or "auth.*" for all that begin with "auth.".
--> {"ojs": {}, "strategy": "linear"} | 22023: retry.ojs and retry.strategy cannot be combined | Omit retry.ojs or retry.strategy.
-->   retry.ojs can be combined only with after_lease.
--> {"strategy": "river", "initial": 5} | 22023: retry.initial cannot be combined with strategy "river" | Omit retry.initial.
-->   The strategies river, oban, faktory are fixed formulas; the others take initial, coefficient, max, jitter.
--> {"after_lease": -1} | 22023: retry.after_lease -1 is too short
--> {"after_lease": "1 month"} | 22023: retry.after_lease "1 month" has no fixed length | Write it in days, such as "30 days".
-->   retry.after_lease must have a fixed length between 0 and 1000 years; months and years vary in length.
--> {"after_lease": "soon"} | 22023: retry.after_lease "soon" is not a duration | Write 900, "PT15M" or "15 minutes".
-->   A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.
--> {"after_lse": 1} | 22023: field "after_lse" of retry is not known | Did you mean "after_lease"?
-->   The fields are strategy, initial, coefficient, max, jitter, non_retryable, after_lease, ojs.

-- After a lost lease: so long, or by the policy. Running out of its time is not that.
create temp table lost (queue text, retry jsonb, timeout interval);
insert into lost values ('l at once', '{"strategy": "oban", "after_lease": 0}', '1 day'), ('l later', '{"strategy": "river", "after_lease": "1 hour"}', '1 day'), ('l ojs', '{"ojs": {"max_attempts": 2}, "after_lease": "PT30M"}', '1 day'),
  ('l native', '{"strategy": "constant", "initial": 20, "jitter": false, "after_lease": 5}', '1 day'), ('l default', '{"strategy": "constant", "initial": 20, "jitter": false}', '1 day'), ('l last', '{"ojs": {"max_attempts": 1}, "after_lease": 0}', '1 day'),
  ('l hopeless', '{"strategy": "river", "after_lease": 0, "non_retryable": ["lease_expired"]}', '1 day'), ('l timeout', '{"strategy": "constant", "initial": 20, "jitter": false, "after_lease": 5}', '1 minute');
select count(*) from lost l, lateral jobs.insert('k', queue => l.queue, retry => l.retry, timeout => l.timeout) i; --> 8
select count(*) from lost l, lateral jobs.fetch(l.queue, lease => '1 minute') f; --> 8
call pg_temp.later('61 seconds');
select task, rows from jobs.maintain() where task = 'rescue'; --> task|rows: rescue|8
select j.queue, j.state, case when finalized_at is null then round(extract(epoch from j.scheduled_at - e.at), 1) end as waits, e.details ->> 'type' as type from jobs.jobs j join jobs.errors e on e.job_id = j.id where j.queue ~ '^l ' order by j.id;
--> queue|state|waits|type
--> l at once|available|0.0|lease_expired
--> l later|retryable|3600.0|lease_expired
--> l ojs|retryable|1800.0|lease_expired
--> l native|retryable|5.0|lease_expired
--> l default|retryable|20.0|lease_expired
--> l last|discarded|~|lease_expired
--> l hopeless|discarded|~|lease_expired
--> l timeout|retryable|20.0|timeout
-- A failure that the worker reports is the policy's.
select f.id, f.token from jobs.fetch('l at once') f \gset
select state, scheduled_at - clock_timestamp() between '15 s' and '25 s' as by_the_policy from jobs.fail(:id, :token, 'x'); --> state|by_the_policy: retryable|t
