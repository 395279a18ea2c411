-- jobs.fail: retry by the river policy, discard, cancel; what is recorded.

-- river: (errors before this one + 1)^4 seconds, 10 % either way.
select id from jobs.insert('river', queue => 'river', max_attempts => 6); --> 1
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
--> attempt 1: retryable, delay within 10 % of the policy's
--> attempt 2: retryable, delay within 10 % of the policy's
--> attempt 3: retryable, delay within 10 % of the policy's
--> attempt 4: retryable, delay within 10 % of the policy's
--> attempt 5: retryable, delay within 10 % of the policy's
--> attempt 6: discarded, delay none by the policy's
select state, attempt, max_attempts, finalized_at is not null as finalized, (select count(*) from jobs.fetch('river')) as left from jobs.jobs where id = 1;
--> state|attempt|max_attempts|finalized|left: discarded|6|6|t|0
select job_id, attempt, error, details from jobs.errors order by at desc;
--> job_id|attempt|error|details
--> 1|6|error of attempt 6|~
--> 1|5|error of attempt 5|~
--> 1|4|error of attempt 4|~
--> 1|3|error of attempt 3|~
--> 1|2|error of attempt 2|~
--> 1|1|error of attempt 1|~
-- 200 first failures: within the bounds, and not all the same.
select count(*) from jobs.insert_batch('jitter', array_fill('1'::jsonb, array[200]), queue => 'jitter'); --> 200
create temp table jitter as select f.id, r.scheduled_at from jobs.fetch('jitter', 200) f, lateral jobs.fail(f.id, f.token, 'x') r;
select count(*), bool_and(extract(epoch from scheduled_at - at) between 0.9 and 1.1) as within, count(distinct scheduled_at - at) > 100 as jitter,
       min(scheduled_at - at) < interval '0.95 s' as low, max(scheduled_at - at) > interval '1.05 s' as high from jitter join jobs.errors on job_id = id; --> count|within|jitter|low|high: 200|t|t|t|t

-- retry_in instead of the policy; 0 is at once.
select id as a from jobs.insert('a', queue => 'a') \gset
select count(*) from jobs.fetch('a'); --> 1
select state, abs(extract(epoch from scheduled_at - clock_timestamp()) - 3600) < 5 as in_an_hour from jobs.fail(:a, pg_temp.token(:a), 'one', '1 hour', details => '{"type": "net.timeout", "code": 7, "trace": ["x"]}');
--> state|in_an_hour: retryable|t
select state, attempt, scheduled_at > clock_timestamp() as later, worker, finalized_at from jobs.jobs where id = :a; --> state|attempt|later|worker|finalized_at: retryable|1|t|~|~
select jobs.retry(:a); --> available
select count(*) from jobs.fetch('a'); --> 1
select state, scheduled_at between now() and clock_timestamp() as now from jobs.fail(:a, pg_temp.token(:a), 'two', '0'); --> state|now: available|t
select attempt from jobs.fetch('a'); --> 3
select state, scheduled_at from jobs.fail(:a, pg_temp.token(:a), '', retryable => false, retry_in => '1 hour'); --> state|scheduled_at: discarded|~
select state, attempt, finalized_at is not null as finalized from jobs.jobs where id = :a; --> state|attempt|finalized: discarded|3|t
select attempt, error, details from jobs.errors where job_id = :a order by at;
--> attempt|error|details
--> 1|one|{"code": 7, "type": "net.timeout", "trace": ["x"]}
--> 2|two|~
--> 3||~

-- max_attempts counts all tries, the first one too.
select id as b from jobs.insert('b', queue => 'b', max_attempts => 1) \gset
select count(*) from jobs.fetch('b'); --> 1
select * from jobs.fail(:b, pg_temp.token(:b), 'only one', '0'); --> state|scheduled_at: discarded|~
-- retry gives it one more.
select jobs.retry(:b); --> available
select attempt, max_attempts from jobs.fetch('b'); --> attempt|max_attempts: 2|2
select * from jobs.fail(:b, pg_temp.token(:b), 'the last'); --> state|scheduled_at: discarded|~
-- After a cancel request it is cancelled, and the error is kept.
select id as c from jobs.insert('c', queue => 'c') \gset
select token as tc from jobs.fetch('c') \gset
select jobs.cancel(:c, 'enough'); --> running
select * from jobs.fail(:c, :tc, 'stopped'); --> state|scheduled_at: cancelled|~
select state, attempt, cancel_reason, finalized_at is not null as finalized, (select string_agg(error, ',') from jobs.errors where job_id = :c) as errors from jobs.jobs where id = :c;
--> state|attempt|cancel_reason|finalized|errors: cancelled|1|enough|t|stopped
-- Again with the same token: as the first time, once recorded.
select * from jobs.fail(:c, :tc, 'again', '0', true); --> state|scheduled_at: cancelled|~
select count(*) from jobs.errors where job_id = :c; --> 1
select id as d from jobs.insert('d', queue => 'd') \gset
select token as td from jobs.fetch('d') \gset
select scheduled_at as first from jobs.fail(:d, :td, 'x', '1 hour') \gset
select state, scheduled_at = :'first' as the_same from jobs.fail(:d, :td, 'y', '2 hours'); --> state|the_same: retryable|t
select state, scheduled_at = :'first' as the_same from jobs.fail(:d, :td, 'z', retryable => false); --> state|the_same: retryable|t
-- Also when another worker has it by now: the client that lost the answer may ask, and nothing
-- happens to the other's attempt.
select jobs.retry(:d); --> available
select attempt, token <> :td as another from jobs.fetch('d'); --> attempt|another: 2|t
select state, scheduled_at = :'first' as the_same from jobs.fail(:d, :td, 'y'); --> state|the_same: retryable|t
select state, attempt from jobs.jobs where id = :d; --> state|attempt: running|2
select count(*) from jobs.errors where job_id = :d; --> 1

-- NULL means the default, for what has one.
select state from jobs.fail(:d, pg_temp.token(:d), 'x', null, null, null); --> retryable
-- Any text, any details.
select id as e from jobs.insert('e', queue => 'e') \gset
select count(*) from jobs.fetch('e'); --> 1
select state from jobs.fail(:e, pg_temp.token(:e), repeat(e'long\n', 100000), '0', details => (repeat('[', 5000) || repeat(']', 5000))::jsonb); --> available
select length(error), length(details::text) from jobs.errors where job_id = :e; --> length|length: 500000|10000
select count(*) from jobs.fetch('e'); --> 1
select call, pg_temp.try(replace('select jobs.fail(' || call || ')', ':e', (select id || ', ' || token from jobs.jobs where kind = 'e'))) from (values
  (':e, null'), (':e, ''x'', ''-1 second'''), (':e, ''x'', ''-1 day'''), (':e, null, ''-1'''), ('null, 1, ''x'''), ('1, null, ''x'''), ('null, null, null'), ('9999, 1, ''x'''), ('1, 1, ''x''')) v(call);
--> call|try
--> :e, null|22004: error must not be null
--> :e, 'x', '-1 second'|22023: retry_in "-00:00:01" is out of range
-->   retry_in must be between 0 and 1000 years.
--> :e, 'x', '-1 day'|22023: retry_in "-1 days" is out of range
-->   retry_in must be between 0 and 1000 years.
--> :e, null, '-1'|22004: error must not be null
--> null, 1, 'x'|22004: id must not be null
--> 1, null, 'x'|22004: token must not be null
--> null, null, null|22004: id must not be null
--> 9999, 1, 'x'|P0002: job 9999 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
--> 1, 1, 'x'|55000: cannot fail job 1: the token is not that of a current attempt; the job is discarded | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
-- After the end of time.
select pg_temp.code(format('select jobs.fail(%s, %s, %L, %L)', :e, pg_temp.token(:e), 'x', '178000000 years')); --> 22023
select state from jobs.jobs where id = :e; --> running
