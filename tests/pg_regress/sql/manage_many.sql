-- cancel_many, retry_many and delete_many: what a filter finds, oldest first.

create function pg_temp.fill() returns void language plpgsql as $$
begin
  truncate jobs.job, jobs.ready, jobs.scheduled, jobs.running, jobs.finished;
  perform setval('jobs.job_seq', 1, false);
  perform jobs.insert('a', queue => 'q', tags => '{x}');                          -- 1 running
  perform jobs.fetch('q');
  perform jobs.insert('a', queue => 'q', tags => '{x,y}');                        -- 2 available
  -- 3 scheduled
  perform jobs.insert('b', queue => 'q', tags => '{y}', scheduled_at => '2999-01-01Z');
  perform jobs.insert('b', queue => 'r', pending => true);                        -- 4 pending
  perform jobs.cancel(id) from jobs.insert('a', queue => 'r', tags => '{x}');     -- 5 cancelled
  -- 6 completed
  perform jobs.complete(f.id, f.token) from jobs.insert('b', queue => 's') i, lateral jobs.fetch('s') f;
  update jobs.job set created_at = created_at - interval '1 day' where id in (2, 4, 6);
end $$;
create function pg_temp.after(call text) returns text language plpgsql as $$
declare answer text;
begin
  perform pg_temp.fill();
  execute 'select jobs.' || call into answer;
  return answer || ': ' || (select string_agg(id || ' ' || state || case when cancel_requested_at is not null and state = 'running' then '!' else '' end, ', ' order by id) from jobs.jobs);
end $$;
select pg_temp.fill() \gset
select id, state, queue, kind, tags from jobs.jobs order by id;
--> id|state|queue|kind|tags
--> 1|running|q|a|{x}
--> 2|available|q|a|{x,y}
--> 3|scheduled|q|b|{y}
--> 4|pending|r|b|{}
--> 5|cancelled|r|a|{x}
--> 6|completed|s|b|{}

select pg_temp.after($$cancel_many(queue => 'q')$$); --> 3: 1 running!, 2 cancelled, 3 cancelled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(kind => 'b')$$); --> 2: 1 running, 2 available, 3 cancelled, 4 cancelled, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(states => '{running,completed}')$$); --> 1: 1 running!, 2 available, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(tag => 'x')$$); --> 2: 1 running!, 2 cancelled, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(older_than => '1 hour')$$); --> 2: 1 running, 2 cancelled, 3 scheduled, 4 cancelled, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(older_than => '1 hour', kind => 'a')$$); --> 1: 1 running, 2 cancelled, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many('q', 'a', '{available,running}', 'y', '1 hour', 5)$$); --> 1: 1 running, 2 cancelled, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(queue => 'q', max_jobs => 2)$$); --> 2: 1 running!, 2 cancelled, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(queue => 'nosuch')$$); --> 0: 1 running, 2 available, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$cancel_many(states => '{}')$$); --> 0: 1 running, 2 available, 3 scheduled, 4 pending, 5 cancelled, 6 completed
select pg_temp.after($$retry_many(states => enum_range(null::jobs.state))$$); --> 4: 1 running, 2 available, 3 available, 4 available, 5 available, 6 available
select pg_temp.after($$retry_many(queue => 'r')$$); --> 2: 1 running, 2 available, 3 scheduled, 4 available, 5 available, 6 completed
select pg_temp.after($$delete_many(kind => 'a')$$); --> 2: 1 running, 3 scheduled, 4 pending, 6 completed
select pg_temp.after($$delete_many(states => '{completed,cancelled,discarded}')$$); --> 2: 1 running, 2 available, 3 scheduled, 4 pending
select pg_temp.after($$delete_many(older_than => '0')$$); --> 5: 1 running
-- A running job that was asked already keeps a repeated call from no other.
select pg_temp.fill() \gset
select jobs.cancel_many(queue => 'q', max_jobs => 1) as first, jobs.cancel_many(queue => 'q', max_jobs => 1) as second, jobs.cancel_many(queue => 'q') as third, jobs.cancel_many(queue => 'q') as fourth;
--> first|second|third|fourth: 1|1|1|0

-- By the latest error, and from the first attempt on. What got over its error is not meant, unless
-- its state is named.
select count(*) from jobs.insert_batch('f', array['1', '2', '3', '4']::jsonb[], queue => 'f', max_attempts => 1); --> 4
select count(jobs.fail(id, token, 'timeout of ' || args::text)) from jobs.fetch('f', 4); --> 4
select jobs.retry(id) from jobs.jobs where queue = 'f' and args in ('3', '4') order by id; --> available, available
select (jobs.fail(id, token, 'refused 100%')).state from jobs.fetch('f'); --> discarded
select jobs.complete(id, token) from jobs.fetch('f'); --> completed
update jobs.error set at = at - interval '1 hour' where error = 'timeout of 1';
create function pg_temp.retried(call text) returns text language plpgsql as $$
declare answer text;
begin
  execute 'select jobs.retry_many(' || call || ')' into answer;
  raise exception using errcode = 'ZZ000', message = answer || ': ' || coalesce((select string_agg(format('%s at %s', args, attempt), ', ' order by id) from jobs.jobs where queue = 'f' and state = 'available'), '');
exception when sqlstate 'ZZ000' then
  return sqlerrm;
end $$;
select call, pg_temp.retried(call) from unnest(array[$$error_like => 'timeout%'$$, $$error_like => '%100\%'$$, $$error_like => 'timeout'$$, $$error_like => 'timeout of _', max_jobs => 1$$, $$failed_after => now() - interval '30 minutes'$$,
  $$error_like => 'timeout%', failed_after => now() - interval '30 minutes'$$, $$error_like => 'timeout%', states => '{completed,discarded}'$$, $$'f', 'f', '{discarded}', null, null, 2, true, 'timeout%', '2000-01-01Z'$$,
  $$queue => 'f', reset => true$$, $$queue => 'f', reset => null$$]) call;
--> call|retried
--> error_like => 'timeout%'|2: 1 at 1, 2 at 1
--> error_like => '%100\%'|1: 3 at 2
--> error_like => 'timeout'|0: 
--> error_like => 'timeout of _', max_jobs => 1|1: 1 at 1
--> failed_after => now() - interval '30 minutes'|2: 2 at 1, 3 at 2
--> error_like => 'timeout%', failed_after => now() - interval '30 minutes'|1: 2 at 1
--> error_like => 'timeout%', states => '{completed,discarded}'|3: 1 at 1, 2 at 1, 4 at 2
--> 'f', 'f', '{discarded}', null, null, 2, true, 'timeout%', '2000-01-01Z'|2: 1 at 0, 2 at 0
--> queue => 'f', reset => true|4: 1 at 0, 2 at 0, 3 at 0, 4 at 0
--> queue => 'f', reset => null|4: 1 at 1, 2 at 1, 3 at 2, 4 at 2

-- Refused.
select pg_temp.refusals('select jobs.%s', array['cancel_many()', 'retry_many()', 'delete_many()', 'delete_many(max_jobs => 5)', 'delete_many(queue => ''q'', max_jobs => 0)', 'delete_many(queue => ''q'', max_jobs => 10001)', 'delete_many(queue => ''q'', max_jobs => null)',
  'delete_many(older_than => ''-1 day'')', 'delete_many(states => array[null]::jobs.state[])', 'retry_many(error_like => ''a\'')', 'retry_many(error_like => ''a\\'')', 'retry_many(failed_after => ''infinity'')']);
--> cancel_many() | 22023: queue, kind, states, tag and older_than must not all be null | To select all jobs, list all states.
--> retry_many() | 22023: queue, kind, states, tag, older_than, error_like and failed_after must not all be null | To select all jobs, list all states.
--> delete_many() | 22023: queue, kind, states, tag and older_than must not all be null | To select all jobs, list all states.
--> delete_many(max_jobs => 5) | 22023: queue, kind, states, tag and older_than must not all be null | To select all jobs, list all states.
-->   At least one filter is required.
--> delete_many(queue => 'q', max_jobs => 0) | 22023: max_jobs 0 is out of range
--> delete_many(queue => 'q', max_jobs => 10001) | 22023: max_jobs 10001 is out of range
-->   max_jobs must be between 1 and 10000.
--> delete_many(queue => 'q', max_jobs => null) | 22004: max_jobs must not be null
--> delete_many(states => array[null]::jobs.state[]) | 22004: an element of states must not be null
--> retry_many(error_like => 'a\\') | ok
--> delete_many(older_than => '-1 day') | 22023: older_than "-1 days" is out of range
-->   older_than must be between 0 and 1000 years.
--> retry_many(error_like => 'a\') | 22023: error_like "a\" ends with a backslash | Write two backslashes to match one.
-->   error_like is a LIKE pattern, in which a backslash escapes the next character.
--> retry_many(failed_after => 'infinity') | 22023: failed_after infinity is out of range
-->   failed_after must be finite.
