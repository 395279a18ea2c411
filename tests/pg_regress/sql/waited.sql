-- Since when a job waits: the later of when it was due and when it was inserted, retried,
-- activated, released or given a new time, or its queue was resumed. All that shows a wait agrees.
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
select state from jobs.insert('k', queue => 'late', scheduled_at => now() - interval '2 hours'); --> available
select * from pg_temp.waits('late'); --> queues|top|metric|findings: 0|0|0|{}
select count(*) from jobs.fetch('late'); --> 1
select * from pg_temp.waited('late'); --> history|metric: 0|0
-- It waits from then on; and a job that came due, since it was due.
select state from jobs.insert('k', queue => 'long'); --> available
select state from jobs.insert('k', queue => 'due', scheduled_at => now() + interval '2 hours'); --> scheduled
call pg_temp.later('3 hours');
select rows from jobs.maintain() where task = 'schedule'; --> 1
select * from pg_temp.waits('long'); --> queues|top|metric|findings: 3|3|3|{no_worker,oldest_available}
select * from pg_temp.waits('due'); --> queues|top|metric|findings: 1|1|1|{no_worker,oldest_available}
select count(*) from jobs.fetch('due'); --> 1
select * from pg_temp.waited('due'); --> history|metric: 1|1

-- Held: by a limit, and by an order. What keeps jobs on purpose is another finding.
select jobs.define_limit('one', queues => '{held}', concurrency => 1), jobs.order_queue('ordered', '{"by_args": ["t"]}', strict => true, on_discard => 'block') \gset
select count(jobs.insert('k', queue => q, max_attempts => 1, timeout => '-1 second')) from unnest('{held,ordered}'::text[]) q, generate_series(1, 2); --> 4
select count(*) from jobs.fetch_any('{held,ordered}', 4, lease => '1 day'); --> 2
select count(*) from jobs.ready where queue <> 'long'; --> 0
call pg_temp.later('3 hours');
select * from pg_temp.waits('held'); --> queues|top|metric|findings: 3|3|3|{oldest_available}
select * from pg_temp.waits('ordered'); --> queues|top|metric|findings: 3|3|3|{oldest_available}
select jobs.pause_limit('one'), jobs.fail(id, token, 'no') from jobs.jobs where queue = 'ordered' and state = 'running' \gset
select * from pg_temp.waits('held'); --> queues|top|metric|findings: 3|3|3|{}
select * from pg_temp.waits('ordered'); --> queues|top|metric|findings: 3|3|3|{}

-- Activated, retried, released, and given a time that has passed.
select count(*) from unnest('{activated,retried,released,updated}'::text[]) q,
  lateral jobs.insert('k', queue => q, pending => q = 'activated', scheduled_at => now() - interval '2 hours'); --> 4
select count(*) from jobs.fetch('released'); --> 1
select jobs.cancel(id) from jobs.jobs where queue = 'retried'; --> cancelled
call pg_temp.later('3 hours');
select jobs.activate(id) from jobs.jobs where queue = 'activated'; --> available
select jobs.retry(id) from jobs.jobs where queue = 'retried'; --> available
select jobs.release(id, token) from jobs.jobs where queue = 'released'; --> available
select jobs.update(id, scheduled_at => now() - interval '4 hours') from jobs.jobs where queue = 'updated'; --> available
select q, w.* from unnest('{activated,retried,released,updated}'::text[]) q, pg_temp.waits(q) w;
--> q|queues|top|metric|findings
--> activated|0|0|0|{}
--> retried|0|0|0|{}
--> released|0|0|0|{}
--> updated|0|0|0|{}
-- When it was due is as it was.
select queue, pg_temp.hours(now() - scheduled_at) as due from jobs.jobs where queue in ('activated', 'retried', 'released', 'updated') order by id;
--> queue|due: activated|5, retried|0, released|5, updated|4
-- An update of something else leaves the wait alone.
call pg_temp.later('1 hour');
select jobs.update(id, tags => '{t}') from jobs.jobs where queue in ('activated', 'updated'); --> available, available
select q, w.* from unnest('{activated,retried,released,updated}'::text[]) q, pg_temp.waits(q) w;
--> q|queues|top|metric|findings
--> activated|1|1|1|{no_worker,oldest_available}
--> retried|1|1|1|{no_worker,oldest_available}
--> released|1|1|1|{oldest_available}
--> updated|1|1|1|{no_worker,oldest_available}
select count(*) from jobs.fetch('activated'); --> 1
select * from pg_temp.waited('activated'); --> history|metric: 1|1

-- Its queue was paused and resumed.
select jobs.pause_queue('long') \gset
call pg_temp.later('1 hour');
select jobs.resume_queue('long') \gset
select * from pg_temp.waits('long'); --> queues|top|metric|findings: 0|0|0|{}
call pg_temp.later('1 hour');
select * from pg_temp.waits('long'); --> queues|top|metric|findings: 1|1|1|{no_worker,oldest_available}
select count(*) from jobs.fetch('long'); --> 1
select * from pg_temp.waited('long'); --> history|metric: 1|1
-- A queue that was resumed, and of which nothing else is set, is forgotten once no job waits.
select count(*) from jobs.queue; --> 1
select count(*) from jobs.queues where queue = 'long' and not paused; --> 1
call pg_temp.later('2 minutes');
select rows from jobs.maintain() where task = 'prune'; --> 2
select count(*) from jobs.queue; --> 0
