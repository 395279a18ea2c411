-- How long a failed job waits: by its policy, unless the call says so.

-- Fails the job of a policy again and again: whether each wait lies between two delays, in seconds.
create function pg_temp.waits(retry jsonb, low float[], high float[], attempts int) returns boolean language plpgsql as $$
declare job bigint := (select i.id from jobs.insert('k', queue => 'w', retry => waits.retry, max_attempts => attempts) i); f record; answer record; waited float; result boolean := true;
begin
  for i in 1 .. cardinality(low) loop
    select * into f from jobs.fetch('w');
    select * into answer from jobs.fail(f.id, f.token, 'x');
    waited := extract(epoch from answer.scheduled_at - clock_timestamp());
    if answer.state <> 'retryable' or waited not between low[i] - 1 and high[i] + 0.1 then raise warning '% waited %', i, waited; result := false; end if;
    perform jobs.retry(job);
  end loop;
  perform jobs.delete(job);
  return result;
end $$;
select retry, attempts, pg_temp.waits(retry::jsonb, low::float[], high::float[], attempts) from (values
  -- (errors before this one + 1)^4, +- 10 %: the default.
  (null, '{0.9,14.4,72.9,230.4}', '{1.1,17.6,89.1,281.6}', 25),
  ('"river"', '{0.9,14.4}', '{1.1,17.6}', 25),
  -- 15 + 2^attempt, and up to 10 % more; of 25 attempts with 2^round(attempt / 25 * 20).
  ('"oban"', '{17,19,23,31,47}', '{18.7,20.9,25.3,34.1,51.7}', 20),
  ('"oban"', '{17,19,19,23,31}', '{18.7,20.9,20.9,25.3,34.1}', 25),
  -- n^4 + 15 + rand(30)(n + 1), n the failures before this one.
  ('"faktory"', '{15,16,31,96}', '{44,74,118,212}', 25),
  -- Strategies: exactly without jitter.
  ('{"strategy": "exponential", "initial": 10, "jitter": false}', '{10,20,40,80}', '{10,20,40,80}', 25),
  ('{"strategy": "exponential", "initial": "PT10S", "coefficient": 3, "max": "1 minute", "jitter": false}', '{10,30,60,60}', '{10,30,60,60}', 25),
  ('{"strategy": "linear", "initial": 10, "jitter": false}', '{10,20,30}', '{10,20,30}', 25),
  ('{"strategy": "constant", "initial": 10, "jitter": false}', '{10,10,10}', '{10,10,10}', 25),
  ('{"strategy": "polynomial", "initial": 10, "coefficient": 2, "jitter": false}', '{10,40,90}', '{10,40,90}', 25),
  ('{"strategy": "constant", "initial": 10, "jitter": 0.2}', '{8,8,8}', '{12,12,12}', 25),
  ('{"strategy": "constant", "initial": 10, "jitter": true}', '{5,5,5}', '{15,15,15}', 25)) v(retry, low, high, attempts);
--> retry|attempts|waits
--> ~|25|t
--> "river"|25|t
--> "oban"|20|t
--> "oban"|25|t
--> "faktory"|25|t
--> {"strategy": "exponential", "initial": 10, "jitter": false}|25|t
--> {"strategy": "exponential", "initial": "PT10S", "coefficient": 3, "max": "1 minute", "jitter": false}|25|t
--> {"strategy": "linear", "initial": 10, "jitter": false}|25|t
--> {"strategy": "constant", "initial": 10, "jitter": false}|25|t
--> {"strategy": "polynomial", "initial": 10, "coefficient": 2, "jitter": false}|25|t
--> {"strategy": "constant", "initial": 10, "jitter": 0.2}|25|t
--> {"strategy": "constant", "initial": 10, "jitter": true}|25|t
-- retry_in goes before the policy, and 0 is at once.
select jobs.insert('k', queue => 'i', retry => '"oban"') \gset
select id, token from jobs.fetch('i') \gset
select state, scheduled_at - clock_timestamp() between '59 minutes' and '1 hour' as an_hour from jobs.fail(:id, :token, 'x', retry_in => '1 hour'); --> state|an_hour: retryable|t

-- Errors of a type that is not retryable: exactly, or by a prefix. Other ones are.
create function pg_temp.fails(details jsonb, retry jsonb = '{"strategy": "constant", "non_retryable": ["invalid", "auth.*"]}') returns jobs.state language plpgsql as $$
declare f record;
begin
  perform jobs.insert('n', queue => 'n', retry => fails.retry);
  select * into f from jobs.fetch('n');
  return (select state from jobs.fail(f.id, f.token, 'x', details => fails.details));
end $$;
select details, pg_temp.fails(details) from unnest(array['{"type": "invalid"}', '{"type": "auth.expired"}', '{"type": "auth"}', '{"type": "invalid.x"}', '{"type": "Invalid"}', '{"type": 5}', '{}', '[]', '"invalid"', null]::jsonb[]) details;
--> details|fails
--> {"type": "invalid"}|discarded
--> {"type": "auth.expired"}|discarded
--> {"type": "auth"}|retryable
--> {"type": "invalid.x"}|retryable
--> {"type": "Invalid"}|retryable
--> {"type": 5}|retryable
--> {}|retryable
--> []|retryable
--> "invalid"|retryable
--> ~|retryable
select pg_temp.fails('{"type": "invalid"}', '"river"'), pg_temp.fails('{"type": "invalid"}', null); --> fails|fails: retryable|retryable
-- So is a lease that ran out, if the policy says so.
select id from jobs.insert('t', queue => 't', retry => '{"strategy": "constant", "non_retryable": ["timeout"]}', timeout => '1 microsecond') \gset
select count(*) from jobs.fetch('t'); --> 1
select rows from jobs.maintain() where task = 'rescue'; --> 1
select state, (select details from jobs.errors where job_id = :id) from jobs.jobs where id = :id; --> state|details: discarded|{"type": "timeout"}

-- Refused, wherever it is given; JSON null is left out.
select pg_temp.refusals('select jobs.insert(''k'', retry => %L)', array['"rivr"', '"exponential"', '5', 'true', 'false', '[]', '{"strategy": "exponental"}', '{"strategy": 5}', '{"initial": 0}', '{"initial": -1}', '{"initial": "1 month"}',
  '{"max": "soon"}', '{"jitter": 2}', '{"jitter": "x"}', '{"coefficient": 0}', '{"coefficient": "2"}', '{"non_retryable": "x"}', '{"non_retryable": [1]}', '{"non_retryable": ["*"]}', '{"intial": 5}', '{"max_attempts": 5}', '{"initial": "1 hour"}']);
--> "rivr" | 22023: retry "rivr" is not known | Did you mean "river"?
--> "exponential" | 22023: retry "exponential" is not known | Write {"strategy": "exponential"}.
--> 5 | 22023: retry must not be a number | Use max_attempts to set the number of attempts.
--> true | 22023: retry must not be true
--> false | 22023: retry must not be false | Set max_attempts to 1 for no retries.
--> [] | 22023: retry must not be an array
-->   retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.
--> {"strategy": "exponental"} | 22023: retry.strategy "exponental" is not known | Did you mean "exponential"?
--> {"strategy": 5} | 22023: retry.strategy must not be a number
-->   retry.strategy must be "exponential", "linear", "constant" or "polynomial".
--> {"initial": 0} | 22023: retry.initial 0 is too short
--> {"initial": -1} | 22023: retry.initial -1 is too short
--> {"initial": "1 month"} | 22023: retry.initial "1 month" has no fixed length | Write it in days, such as "30 days".
-->   retry.initial must have a fixed length longer than 0 and at most 1000 years; months and years vary in length.
--> {"max": "soon"} | 22023: retry.max "soon" is not a duration | Write 900, "PT15M" or "15 minutes".
-->   A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.
--> {"jitter": 2} | 22023: retry.jitter 2 is out of range
-->   retry.jitter must be a number between 0 and 1.
--> {"jitter": "x"} | 22023: retry.jitter must not be a string
-->   retry.jitter must be true, false, or a number between 0 and 1: the fraction by which the delay varies in either direction.
--> {"coefficient": 0} | 22023: retry.coefficient 0 is out of range
--> {"coefficient": "2"} | 22023: retry.coefficient must not be a string
-->   retry.coefficient must be a number between 1 and 1000.
--> {"non_retryable": "x"} | 22023: retry.non_retryable must not be a string
--> {"non_retryable": [1]} | 22023: an element of retry.non_retryable must not be a number
-->   retry.non_retryable must be a list of error types such as ["card_declined", "auth.*"].
--> {"non_retryable": ["*"]} | 22023: "*" of retry.non_retryable matches no error type
-->   retry.non_retryable must be a list of error types such as "card_declined", or "auth.*" for all that begin with "auth.".
--> {"intial": 5} | 22023: field "intial" of retry is not known | Did you mean "initial"?
--> {"max_attempts": 5} | 22023: field "max_attempts" of retry is not known | Give max_attempts outside of retry.
-->   The fields are strategy, initial, coefficient, max, jitter, non_retryable, after_lease, ojs.
--> {"initial": "1 hour"} | 22023: retry.initial PT1H is longer than retry.max PT5M | Set both.
-->   retry.initial must be at most retry.max; they default to PT1S and PT5M.
select pg_temp.code($$select jobs.insert('k', retry => 'null')$$), pg_temp.code($$select jobs.insert('k', retry => '{}')$$), pg_temp.code($$select jobs.insert_many('[{"kind": "k", "retry": "rivr"}]')$$);
--> code|code|code: ok|ok|22023
