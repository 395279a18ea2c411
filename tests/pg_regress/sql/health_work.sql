\set ECHO none
-- jobs.health() about the work itself: each finding comes when there is a reason, and goes with it.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.findings(wanted text default '.') returns table (severity text, finding text, message text, hint text) language sql as $$
  select severity, finding, regexp_replace(regexp_replace(message, '\m\d+(\.\d)? (µs|ms|s|min|h|d)( \d+ (s|min|h))?\M', 'SPAN', 'g'), '\d+(, SPAN)?$', 'N\1'), regexp_replace(hint, '\d+(?=\);)', 'N', 'g')
    from jobs.health() where finding ~ wanted and finding not in ('old_snapshot', 'worker_not_running') $$;
create function pg_temp.fails(queue text, n int) returns bigint language sql as $$
  select count(jobs.fail(id, token, format(e'first line\nno route to host %s', id), '1 hour')) from jobs.fetch(fails.queue, n) $$;
create function pg_temp.completes(queue text, n int) returns bigint language sql as $$
  select count(jobs.complete(id, token)) from jobs.fetch(completes.queue, n) $$;
create function pg_temp.clear() returns void language plpgsql as $$
begin
  perform jobs.cancel(job_id, force => true) from jobs.running;
  perform jobs.delete(id) from jobs.job;
end $$;

-- Nothing is wrong.
select count(*) from jobs.maintain() where error is not null;
select * from pg_temp.findings();

-- mostly_failing: from ten attempts on, if more failed than were completed.
select count(*) from jobs.insert_batch('mail', array_fill('1'::jsonb, array[40]), queue => 'q');
select pg_temp.fails('q', 9);
select * from pg_temp.findings();
select pg_temp.fails('q', 1);
select * from pg_temp.findings();
select pg_temp.completes('q', 9);
select message from pg_temp.findings();
select pg_temp.completes('q', 1);
select * from pg_temp.findings();
select count(jobs.fail(id, token, 'the newest', '1 hour')) from jobs.fetch('q', 1);
select message from pg_temp.findings();
call pg_temp.later('11 minutes');
select * from pg_temp.findings('failing');
select pg_temp.clear() \gset

-- Of several kinds that share a queue it is the queue; of one kind in several queues, the kind.
select count(*) from generate_series(1, 12) n, lateral jobs.insert('kind ' || n, queue => 'r');
select pg_temp.fails('r', 12);
select finding, message, hint from pg_temp.findings();
select pg_temp.clear() \gset
select count(*) from generate_series(1, 12) n, lateral jobs.insert('spread', queue => 'q' || n);
select sum(pg_temp.fails('q' || n, 1)) from generate_series(1, 12) n;
select message from pg_temp.findings();
select pg_temp.clear() \gset

-- What expired was no attempt, and what was asked to stop has not failed. Where completed jobs go
-- at once, it is not known how many there were.
select count(*) from jobs.insert_batch('late', array_fill('1'::jsonb, array[12]), expires_at => now() + interval '1 microsecond');
select count(*) from jobs.insert_batch('stopped', array_fill('1'::jsonb, array[12]), queue => 'stopped');
select count(jobs.cancel(id)) from jobs.fetch('stopped', 12);
select count(jobs.fail(id, token, 'e')) from jobs.jobs where state = 'running';
select jobs.configure_queue('gone', retention_completed => '0') \gset
select count(*) from jobs.insert_batch('gone', array_fill('1'::jsonb, array[12]), queue => 'gone');
select pg_temp.fails('gone', 12);
select rows from jobs.maintain() where task = 'expire';
select finding, message from pg_temp.findings();
select jobs.configure_queue('gone') \gset
select finding from pg_temp.findings('failing');
select pg_temp.clear() \gset

-- running_long: by twenty jobs of its kind, longer than any of them took, and a minute at least.
select count(*) from jobs.insert_batch('quick', array_fill('1'::jsonb, array[23]), queue => 'l', timeout => '-1 second');
select state from jobs.insert('rare', queue => 'l2', timeout => '-1 second');
select pg_temp.completes('l', 19);
create temp table held as select id, token from jobs.fetch('l', 1, lease => '1 day');
select kind from jobs.fetch('l2', 1, lease => '1 day');
call pg_temp.later('2 minutes');
select * from pg_temp.findings();
select pg_temp.completes('l', 1);
select * from pg_temp.findings();
select jobs.complete(id, token) from held;
select * from pg_temp.findings();
select kind from jobs.fetch('l', 1, lease => '1 day');
call pg_temp.later('90 seconds');
select * from pg_temp.findings('long');
call pg_temp.later('1 minute');
select message from pg_temp.findings('long');
select pg_temp.clear() \gset
select * from pg_temp.findings();

-- no_worker: jobs have waited for five minutes, and nobody has fetched from their queue.
select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 'n');
call pg_temp.later('4 minutes');
select * from pg_temp.findings();
call pg_temp.later('2 minutes');
select * from pg_temp.findings('no_worker');
select jobs.pause_queue('n') \gset
select * from pg_temp.findings('no_worker');
select jobs.resume_queue('n') \gset
select * from pg_temp.findings('no_worker');
call pg_temp.later('6 minutes');
select * from pg_temp.findings('no_worker');
select pg_temp.completes('n', 1);
select * from pg_temp.findings('no_worker');
select count(*) from jobs.fetch('n', 1, lease => '1 minute');
select * from pg_temp.findings('no_worker');
select pg_temp.clear() \gset

-- queue_paused: with jobs that could be fetched.
select jobs.pause_queue('p', 'no paper') \gset
select * from pg_temp.findings();
select state from jobs.insert('k', queue => 'p', scheduled_at => now() + interval '1 hour');
select * from pg_temp.findings();
select state from jobs.insert('k', queue => 'p');
select * from pg_temp.findings();
call pg_temp.later('61 minutes');
select severity, message from pg_temp.findings('paused');
select jobs.resume_queue('p') \gset
select * from pg_temp.findings('paused');
select pg_temp.clear() \gset

-- limit_paused: a limit, or a key of one, that holds jobs. A viewer does not see the key.
select jobs.define_limit('api', '{"by_args": ["t"]}', concurrency => 1), jobs.define_limit('all', queues => '{x}', concurrency => 1) \gset
select jobs.pause_limit('api', '"it''s"', 'unpaid'), jobs.pause_limit('api', '"none"'), jobs.pause_limit('all') \gset
select count(*) from unnest('{a,x,x}'::text[]) q, lateral jobs.insert('k', '{"t": "it''s"}', queue => q);
select count(*) from jobs.fetch_any('{a,x}', 3);
select * from pg_temp.findings('limit');
create role jobs_health;
select jobs.grant_viewer('jobs_health') \gset
set role jobs_health;
select message, hint from pg_temp.findings('limit');
reset role;
drop owned by jobs_health;
drop role jobs_health;
select jobs.resume_limit('all'), jobs.resume_limit('api', '"it''s"'), jobs.pause_limit('api') \gset
call pg_temp.later('61 minutes');
select severity, message, hint from pg_temp.findings('limit');
select jobs.resume_limit('api') \gset
select * from pg_temp.findings('limit');
select jobs.drop_limit('api'), jobs.drop_limit('all') \gset
select pg_temp.clear() \gset

-- lost_worker: not seen for a minute, while it holds jobs. Of many there is one finding.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, '{20}'), queue => 'w', timeout => '-1 s');
select jobs.worker_beat('w1', '{w}', 2), jobs.worker_beat('idle', '{w}', 2);
select count(*) from jobs.fetch('w', 1, worker => 'w1', lease => '10 minutes') a, jobs.fetch('w', 1, worker => 'never seen', lease => '1 hour') b;
call pg_temp.later('59 seconds');
select * from pg_temp.findings('lost');
call pg_temp.later('2 seconds');
select * from pg_temp.findings('lost');
select count(*) from jobs.fetch('w', 1, worker => 'w1', lease => '20 minutes');
select message from pg_temp.findings('lost');
select jobs.worker_beat('w1', '{w}', 2);
select * from pg_temp.findings('lost');
select count(jobs.worker_beat('m' || n, '{w}', 2)), sum((select count(*) from jobs.fetch('w', n, worker => 'm' || n, lease => '1 hour'))) from generate_series(1, 4) n;
call pg_temp.later('61 seconds');
select message from pg_temp.findings('lost');
select jobs.worker_beat('m6', '{w}', 2), (select count(*) from jobs.fetch('w', 5, worker => 'm6', lease => '2 hours'));
update jobs.worker set last_seen_at = last_seen_at - interval '61 seconds' where worker = 'm6';
select * from pg_temp.findings('lost');
select pg_temp.clear() \gset

-- periodic_failed: a tick has no job; until the next one has.
select jobs.configure_queue('full', max_waiting => 1) \gset
select state from jobs.insert('k', queue => 'full');
select (jobs.schedule('tick', 'every 1 hour', 'tick', queue => 'full')).next_run_at > now() as later;
call pg_temp.later('61 minutes');
select rows, error from jobs.maintain() where task = 'periodic';
select * from pg_temp.findings('periodic');
select pg_temp.clear() \gset
call pg_temp.later('1 minute');
select rows, error from jobs.maintain() where task = 'periodic';
select * from pg_temp.findings('periodic');
