\set ECHO none
-- How long a failed job waits: by its policy, unless the call says so.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Fails the job of a policy again and again, and says between which delays, in seconds, each wait
-- lies.
create function pg_temp.waits(retry jsonb, times int, low float[], high float[], attempts int = 25) returns table (n int, "as" boolean) language plpgsql as $$
declare job bigint := (select i.id from jobs.insert('k', queue => 'w', retry => waits.retry, max_attempts => attempts) i); f record; answer record; waited float;
begin
  for i in 1 .. times loop
    select * into f from jobs.fetch('w');
    select * into answer from jobs.fail(f.id, f.token, 'x');
    waited := extract(epoch from answer.scheduled_at - clock_timestamp());
    n := i; "as" := answer.state = 'retryable' and waited between low[i] - 1 and high[i] + 0.1;
    if not "as" then raise warning '% waited %', i, waited; end if;
    return next;
    perform jobs.retry(job);
  end loop;
  perform jobs.delete(job);
end $$;
-- (errors before this one + 1)^4, +- 10 %: the default.
select * from pg_temp.waits(null, 4, '{0.9,14.4,72.9,230.4}', '{1.1,17.6,89.1,281.6}');
select * from pg_temp.waits('"river"', 2, '{0.9,14.4}', '{1.1,17.6}');
-- 15 + 2^attempt, and up to 10 % more; of 25 attempts with 2^round(attempt / 25 * 20).
select * from pg_temp.waits('"oban"', 5, '{17,19,23,31,47}', '{18.7,20.9,25.3,34.1,51.7}', 20);
select * from pg_temp.waits('"oban"', 5, '{17,19,19,23,31}', '{18.7,20.9,20.9,25.3,34.1}');
-- n^4 + 15 + rand(30)(n + 1), n the failures before this one.
select * from pg_temp.waits('"faktory"', 4, '{15,16,31,96}', '{44,74,118,212}');
-- Strategies: exactly without jitter.
select * from pg_temp.waits('{"strategy": "exponential", "initial": 10, "jitter": false}', 4, '{10,20,40,80}', '{10,20,40,80}');
select * from pg_temp.waits('{"strategy": "exponential", "initial": "PT10S", "coefficient": 3, "max": "1 minute", "jitter": false}', 4, '{10,30,60,60}', '{10,30,60,60}');
select * from pg_temp.waits('{"strategy": "linear", "initial": 10, "jitter": false}', 3, '{10,20,30}', '{10,20,30}');
select * from pg_temp.waits('{"strategy": "constant", "initial": 10, "jitter": false}', 3, '{10,10,10}', '{10,10,10}');
select * from pg_temp.waits('{"strategy": "polynomial", "initial": 10, "coefficient": 2, "jitter": false}', 3, '{10,40,90}', '{10,40,90}');
select * from pg_temp.waits('{"strategy": "constant", "initial": 10, "jitter": 0.2}', 3, '{8,8,8}', '{12,12,12}');
select * from pg_temp.waits('{"strategy": "constant", "initial": 10, "jitter": true}', 3, '{5,5,5}', '{15,15,15}');
-- retry_in goes before the policy, and 0 is at once.
select f.id, f.token from jobs.insert('k', queue => 'i', retry => '"oban"') i, lateral jobs.fetch('i') f where f.id = i.id \gset
select state, scheduled_at - clock_timestamp() between '59 minutes' and '1 hour' as an_hour from jobs.fail(:id, :token, 'x', retry_in => '1 hour');

-- Errors of a type that is not retryable: exactly, or by a prefix. Other ones are.
create function pg_temp.fails(details jsonb, retry jsonb = '{"strategy": "constant", "non_retryable": ["invalid", "auth.*"]}') returns jobs.state language plpgsql as $$
declare f record;
begin
  perform jobs.insert('n', queue => 'n', retry => fails.retry);
  select * into f from jobs.fetch('n');
  return (select state from jobs.fail(f.id, f.token, 'x', details => fails.details));
end $$;
select details, pg_temp.fails(details) from unnest(array['{"type": "invalid"}', '{"type": "auth.expired"}', '{"type": "auth"}', '{"type": "invalid.x"}', '{"type": "Invalid"}', '{"type": 5}', '{}', '[]', '"invalid"', null]::jsonb[]) details;
select pg_temp.fails('{"type": "invalid"}', '"river"'), pg_temp.fails('{"type": "invalid"}', null);
-- So is a lease that ran out, if the policy says so.
select id from jobs.insert('t', queue => 't', retry => '{"strategy": "constant", "non_retryable": ["timeout"]}', timeout => '1 microsecond') \gset
select count(*) from jobs.fetch('t');
select rows from jobs.maintain() where task = 'rescue';
select state, (select details from jobs.errors where job_id = :id) from jobs.jobs where id = :id;

-- Refused, wherever it is given; JSON null is left out.
select retry, pg_temp.try(format('select jobs.insert(%L, retry => %L)', 'k', retry)) from unnest(array['"rivr"', '"exponential"', '5', 'true', 'false', '[]', '{"strategy": "exponental"}', '{"strategy": 5}', '{"initial": 0}', '{"initial": -1}', '{"initial": "1 month"}',
  '{"max": "soon"}', '{"jitter": 2}', '{"jitter": "x"}', '{"coefficient": 0}', '{"coefficient": "2"}', '{"non_retryable": "x"}', '{"non_retryable": [1]}', '{"non_retryable": ["*"]}', '{"intial": 5}', '{"max_attempts": 5}', '{"initial": "1 hour"}']) retry;
select pg_temp.code($$select jobs.insert('k', retry => 'null')$$), pg_temp.code($$select jobs.insert('k', retry => '{}')$$), pg_temp.code($$select jobs.insert_many('[{"kind": "k", "retry": "rivr"}]')$$);
