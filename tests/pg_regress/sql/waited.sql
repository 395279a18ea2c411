\set ECHO none
-- Since when a job waits: the later of when it was due and when it was inserted, retried,
-- activated, released or given a new time, or its queue was resumed. All that shows a wait agrees.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
-- The wait of the queue's oldest available job in hours, rounded, in each place that shows it; and
-- what health says beyond the usual.
create function pg_temp.hours(age interval) returns int language sql as $$ select round(extract(epoch from age) / 3600)::int $$;
create function pg_temp.waits(of text) returns table (queues int, top int, metric int, findings text[]) language sql as $$
  select (select pg_temp.hours(clock_timestamp() - oldest_available_at) from jobs.queues where queue = of),
         (select pg_temp.hours(oldest) from jobs.top() where queue = of),
         (select pg_temp.hours(make_interval(secs => value)) from jobs.metrics() where metric = 'jobs_queue_oldest_available_age_seconds' and labels ->> 'queue' = of),
         array(select finding from jobs.health() where finding in ('oldest_available', 'no_worker') and position(of in message) > 0 order by 1) $$;
-- The waits of the attempts that have begun.
create function pg_temp.waited(of text) returns table (history int, metric int) language sql as $$
  select (select pg_temp.hours(max(wait_p99)) from jobs.history(queue => of, since => '10 days', step => '36500 days')),
         (select pg_temp.hours(make_interval(secs => value)) from jobs.metrics() where metric = 'jobs_wait_seconds_sum' and labels ->> 'queue' = of) $$;

-- Inserted when it had been due for two hours.
select state from jobs.insert('k', queue => 'late', scheduled_at => now() - interval '2 hours');
select * from pg_temp.waits('late');
select count(*) from jobs.fetch('late');
select * from pg_temp.waited('late');
-- It waits from then on; and a job that came due, since it was due.
select state from jobs.insert('k', queue => 'long');
select state from jobs.insert('k', queue => 'due', scheduled_at => now() + interval '2 hours');
call pg_temp.later('3 hours');
select rows from jobs.maintain() where task = 'schedule';
select * from pg_temp.waits('long');
select * from pg_temp.waits('due');
select count(*) from jobs.fetch('due');
select * from pg_temp.waited('due');

-- Activated, retried, released, and given a time that has passed.
select count(*) from unnest('{activated,retried,released,updated}'::text[]) q,
  lateral jobs.insert('k', queue => q, pending => q = 'activated', scheduled_at => now() - interval '2 hours');
select count(*) from jobs.fetch('released');
select jobs.cancel(id) from jobs.jobs where queue = 'retried';
call pg_temp.later('3 hours');
select jobs.activate(id) from jobs.jobs where queue = 'activated';
select jobs.retry(id) from jobs.jobs where queue = 'retried';
select jobs.release(id, token) from jobs.jobs where queue = 'released';
select jobs.update(id, scheduled_at => now() - interval '4 hours') from jobs.jobs where queue = 'updated';
select q, w.* from unnest('{activated,retried,released,updated}'::text[]) q, pg_temp.waits(q) w;
-- When it was due is as it was.
select queue, pg_temp.hours(now() - scheduled_at) as due from jobs.jobs where queue in ('activated', 'retried', 'released', 'updated') order by id;
-- An update of something else leaves the wait alone.
call pg_temp.later('1 hour');
select jobs.update(id, tags => '{t}') from jobs.jobs where queue in ('activated', 'updated');
select q, w.* from unnest('{activated,retried,released,updated}'::text[]) q, pg_temp.waits(q) w;
select count(*) from jobs.fetch('activated');
select * from pg_temp.waited('activated');

-- Its queue was paused and resumed.
select jobs.pause_queue('long') \gset
call pg_temp.later('1 hour');
select jobs.resume_queue('long') \gset
select * from pg_temp.waits('long');
call pg_temp.later('1 hour');
select * from pg_temp.waits('long');
select count(*) from jobs.fetch('long');
select * from pg_temp.waited('long');
-- A queue that was resumed, and of which nothing else is set, is forgotten once no job waits.
select count(*) from jobs.queue;
select count(*) from jobs.queues where queue = 'long' and not paused;
call pg_temp.later('2 minutes');
select rows from jobs.maintain() where task = 'prune';
select count(*) from jobs.queue;
