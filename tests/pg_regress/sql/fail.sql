\set ECHO none
-- jobs.fail: retry by the river policy, discard, cancel; what is recorded.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- river: (errors before this one + 1)^4 seconds, 10 % either way.
select id from jobs.insert('river', queue => 'river', max_attempts => 6);
create function pg_temp.fail_once(queue text) returns text language plpgsql as $$
declare f record; r record; delay interval;
begin
  call pg_temp.later('1 day');
  select * into f from jobs.fetch(queue);
  select * into r from jobs.fail(f.id, f.token, 'error of attempt ' || f.attempt);
  select into delay r.scheduled_at - max(at) from jobs.errors where job_id = f.id;
  return format('attempt %s: %s, delay %s the policy''s', f.attempt, r.state,
    case when delay is null then 'none by' when extract(epoch from delay) between 0.9 * f.attempt ^ 4 and 1.1 * f.attempt ^ 4 then 'within 10 % of' else delay || ' out of' end);
end $$;
select pg_temp.fail_once('river') from generate_series(1, 6);
select state, attempt, max_attempts, finalized_at is not null as finalized, (select count(*) from jobs.fetch('river')) as left from jobs.jobs where id = 1;
select job_id, attempt, error, details from jobs.errors order by at desc;
-- 200 first failures: within the bounds, and not all the same.
select count(*) from jobs.insert_batch('jitter', array_fill('1'::jsonb, array[200]), queue => 'jitter');
create temp table jitter as select f.id, r.scheduled_at from jobs.fetch('jitter', 200) f, lateral jobs.fail(f.id, f.token, 'x') r;
select count(*), bool_and(extract(epoch from scheduled_at - at) between 0.9 and 1.1) as within, count(distinct scheduled_at - at) > 100 as jitter,
       min(scheduled_at - at) < interval '0.95 s' as low, max(scheduled_at - at) > interval '1.05 s' as high from jitter join jobs.errors on job_id = id;

-- retry_in instead of the policy; 0 is at once.
select id as a from jobs.insert('a', queue => 'a') \gset
select count(*) from jobs.fetch('a');
select state, abs(extract(epoch from scheduled_at - clock_timestamp()) - 3600) < 5 as in_an_hour from jobs.fail(:a, pg_temp.token(:a), 'one', '1 hour', details => '{"type": "net.timeout", "code": 7, "trace": ["x"]}');
select state, attempt, scheduled_at > clock_timestamp() as later, worker, finalized_at from jobs.jobs where id = :a;
select jobs.retry(:a);
select count(*) from jobs.fetch('a');
select state, scheduled_at between now() and clock_timestamp() as now from jobs.fail(:a, pg_temp.token(:a), 'two', '0');
select attempt from jobs.fetch('a');
select state, scheduled_at from jobs.fail(:a, pg_temp.token(:a), '', retryable => false, retry_in => '1 hour');
select state, attempt, finalized_at is not null as finalized from jobs.jobs where id = :a;
select attempt, error, details from jobs.errors where job_id = :a order by at;

-- max_attempts counts all tries, the first one too.
select id as b from jobs.insert('b', queue => 'b', max_attempts => 1) \gset
select count(*) from jobs.fetch('b');
select * from jobs.fail(:b, pg_temp.token(:b), 'only one', '0');
-- retry gives it one more.
select jobs.retry(:b);
select attempt, max_attempts from jobs.fetch('b');
select * from jobs.fail(:b, pg_temp.token(:b), 'the last');
-- After a cancel request it is cancelled, and the error is kept.
select id as c from jobs.insert('c', queue => 'c') \gset
select token as tc from jobs.fetch('c') \gset
select jobs.cancel(:c, 'enough');
select * from jobs.fail(:c, :tc, 'stopped');
select state, attempt, cancel_reason, finalized_at is not null as finalized, (select string_agg(error, ',') from jobs.errors where job_id = :c) as errors from jobs.jobs where id = :c;
-- Again with the same token: as the first time, once recorded.
select * from jobs.fail(:c, :tc, 'again', '0', true);
select count(*) from jobs.errors where job_id = :c;
select id as d from jobs.insert('d', queue => 'd') \gset
select token as td from jobs.fetch('d') \gset
select scheduled_at as first from jobs.fail(:d, :td, 'x', '1 hour') \gset
select state, scheduled_at = :'first' as the_same from jobs.fail(:d, :td, 'y', '2 hours');
select state, scheduled_at = :'first' as the_same from jobs.fail(:d, :td, 'z', retryable => false);
-- Also when another worker has it by now: the client that lost the answer may ask, and nothing
-- happens to the other's attempt.
select jobs.retry(:d);
select attempt, token <> :td as another from jobs.fetch('d');
select state, scheduled_at = :'first' as the_same from jobs.fail(:d, :td, 'y');
select state, attempt from jobs.jobs where id = :d;
select count(*) from jobs.errors where job_id = :d;

-- NULL means the default, for what has one.
select state from jobs.fail(:d, pg_temp.token(:d), 'x', null, null, null);
-- Any text, any details.
select id as e from jobs.insert('e', queue => 'e') \gset
select count(*) from jobs.fetch('e');
select state from jobs.fail(:e, pg_temp.token(:e), repeat(e'long\n', 100000), '0', details => (repeat('[', 5000) || repeat(']', 5000))::jsonb);
select length(error), length(details::text) from jobs.errors where job_id = :e;
select count(*) from jobs.fetch('e');
select call, pg_temp.try(replace('select jobs.fail(' || call || ')', ':e', (select id || ', ' || token from jobs.jobs where kind = 'e'))) from (values
  (':e, null'), (':e, ''x'', ''-1 second'''), (':e, ''x'', ''-1 day'''), (':e, null, ''-1'''), ('null, 1, ''x'''), ('1, null, ''x'''), ('null, null, null'), ('9999, 1, ''x'''), ('1, 1, ''x''')) v(call);
-- After the end of time.
select pg_temp.code(format('select jobs.fail(%s, %s, %L, %L)', :e, pg_temp.token(:e), 'x', '178000000 years'));
select state from jobs.jobs where id = :e;
