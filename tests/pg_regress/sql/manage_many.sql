\set ECHO none
-- cancel_many, retry_many and delete_many: what a filter finds, oldest first.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

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

select pg_temp.after($$cancel_many(queue => 'q')$$);
select pg_temp.after($$cancel_many(kind => 'b')$$);
select pg_temp.after($$cancel_many(states => '{running,completed}')$$);
select pg_temp.after($$cancel_many(tag => 'x')$$);
select pg_temp.after($$cancel_many(older_than => '1 hour')$$);
select pg_temp.after($$cancel_many(older_than => '1 hour', kind => 'a')$$);
select pg_temp.after($$cancel_many('q', 'a', '{available,running}', 'y', '1 hour', 5)$$);
select pg_temp.after($$cancel_many(queue => 'q', max_jobs => 2)$$);
select pg_temp.after($$cancel_many(queue => 'nosuch')$$);
select pg_temp.after($$cancel_many(states => '{}')$$);
select pg_temp.after($$retry_many(states => enum_range(null::jobs.state))$$);
select pg_temp.after($$retry_many(queue => 'r')$$);
select pg_temp.after($$delete_many(kind => 'a')$$);
select pg_temp.after($$delete_many(states => '{completed,cancelled,discarded}')$$);
select pg_temp.after($$delete_many(older_than => '0')$$);
-- A running job that was asked already keeps a repeated call from no other.
select pg_temp.fill() \gset
select jobs.cancel_many(queue => 'q', max_jobs => 1) as first, jobs.cancel_many(queue => 'q', max_jobs => 1) as second, jobs.cancel_many(queue => 'q') as third, jobs.cancel_many(queue => 'q') as fourth;

-- By the latest error, and from the first attempt on. What got over its error is not meant, unless
-- its state is named.
select count(*) from jobs.insert_batch('f', array['1', '2', '3', '4']::jsonb[], queue => 'f', max_attempts => 1);
select count(jobs.fail(id, token, 'timeout of ' || args::text)) from jobs.fetch('f', 4);
select jobs.retry(id) from jobs.jobs where queue = 'f' and args in ('3', '4') order by id;
select (jobs.fail(id, token, 'refused 100%')).state from jobs.fetch('f');
select jobs.complete(id, token) from jobs.fetch('f');
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

-- Refused.
select call, pg_temp.try('select jobs.' || call) from unnest(array['cancel_many()', 'retry_many()', 'delete_many()', 'delete_many(max_jobs => 5)', 'delete_many(queue => ''q'', max_jobs => 0)', 'delete_many(queue => ''q'', max_jobs => 10001)', 'delete_many(queue => ''q'', max_jobs => null)',
  'delete_many(older_than => ''-1 day'')', 'delete_many(states => array[null]::jobs.state[])', 'retry_many(error_like => ''a\'')', 'retry_many(error_like => ''a\\'')', 'retry_many(failed_after => ''infinity'')']) call;
