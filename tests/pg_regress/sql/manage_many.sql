-- cancel_many, retry_many and delete_many: what a filter finds, oldest first.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

create function pg_temp.fill() returns void language plpgsql as $$
begin
  truncate jobs.job, jobs.ready, jobs.scheduled, jobs.running, jobs.finished;
  perform setval('jobs.job_seq', 1, false);
  perform jobs.insert('a', queue => 'q', tags => '{x}');                                       -- 1 running
  perform jobs.fetch('q');
  perform jobs.insert('a', queue => 'q', tags => '{x,y}');                                     -- 2 available
  perform jobs.insert('b', queue => 'q', tags => '{y}', scheduled_at => '2999-01-01Z');        -- 3 scheduled
  perform jobs.insert('b', queue => 'r', pending => true);                                     -- 4 pending
  perform jobs.cancel(id) from jobs.insert('a', queue => 'r', tags => '{x}');                  -- 5 cancelled
  perform jobs.complete(f.id, f.token) from jobs.insert('b', queue => 's') i, lateral jobs.fetch('s') f;   -- 6 completed
  update jobs.job set created_at = created_at - interval '1 day' where id in (2, 4, 6);
end $$;
create function pg_temp.after(call text) returns text language plpgsql as $$
declare answer text;
begin
  perform pg_temp.fill();
  execute 'select jobs.' || call into answer;
  return answer || ': ' || (select string_agg(id || ' ' || state || case when cancel_requested_at is not null and state = 'running' then '!' else '' end, ', ' order by id) from jobs.jobs);
end $$;
select pg_temp.fill();
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
select pg_temp.fill();
select jobs.cancel_many(queue => 'q', max_jobs => 1) as first, jobs.cancel_many(queue => 'q', max_jobs => 1) as second, jobs.cancel_many(queue => 'q') as third, jobs.cancel_many(queue => 'q') as fourth;

-- Refused.
select call, pg_temp.try('select jobs.' || call) from unnest(array['cancel_many()', 'retry_many()', 'delete_many()', 'delete_many(max_jobs => 5)', 'delete_many(queue => ''q'', max_jobs => 0)', 'delete_many(queue => ''q'', max_jobs => 10001)', 'delete_many(queue => ''q'', max_jobs => null)',
  'delete_many(older_than => ''-1 day'')', 'delete_many(states => array[null]::jobs.state[])']) call;
