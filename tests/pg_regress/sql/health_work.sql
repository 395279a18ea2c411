-- jobs.health() about the work itself: each finding comes when there is a reason, and goes with it.
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
select count(*) from jobs.maintain() where error is not null; --> 0
select * from pg_temp.findings(); --> none

-- mostly_failing: from ten attempts on, if more failed than were completed.
select count(*) from jobs.insert_batch('mail', array_fill('1'::jsonb, array[40]), queue => 'q'); --> 40
select pg_temp.fails('q', 9); --> 9
select * from pg_temp.findings(); --> none
select pg_temp.fails('q', 1); --> 1
select * from pg_temp.findings();
--> severity|finding|message|hint
--> warning|mostly_failing|10 attempts of kind "mail" failed in the last 10 minutes, and 0 jobs completed: first line|SELECT e.* FROM jobs.errors e JOIN jobs.jobs j ON j.id = e.job_id WHERE j.kind = 'mail' ORDER BY e.at DESC LIMIT 10; To save attempts until it is fixed: SELECT jobs.pause_queue('q');
select pg_temp.completes('q', 9); --> 9
select message from pg_temp.findings(); --> 10 attempts of kind "mail" failed in the last 10 minutes, and 9 jobs completed: first line
select pg_temp.completes('q', 1); --> 1
select * from pg_temp.findings(); --> none
select count(jobs.fail(id, token, 'the newest', '1 hour')) from jobs.fetch('q', 1); --> 1
select message from pg_temp.findings(); --> 11 attempts of kind "mail" failed in the last 10 minutes, and 10 jobs completed: the newest
call pg_temp.later('11 minutes');
select * from pg_temp.findings('failing'); --> none
select pg_temp.clear() \gset

-- Of several kinds that share a queue it is the queue; of one kind in several queues, the kind.
select count(*) from generate_series(1, 12) n, lateral jobs.insert('kind ' || n, queue => 'r'); --> 12
select pg_temp.fails('r', 12); --> 12
select finding, message, hint from pg_temp.findings();
--> finding|message|hint
--> mostly_failing|12 attempts of queue "r" failed in the last 10 minutes, and 0 jobs completed: first line|SELECT e.* FROM jobs.errors e JOIN jobs.jobs j ON j.id = e.job_id WHERE j.queue = 'r' ORDER BY e.at DESC LIMIT 10; To save attempts until it is fixed: SELECT jobs.pause_queue('r');
select pg_temp.clear() \gset
select count(*) from generate_series(1, 12) n, lateral jobs.insert('spread', queue => 'q' || n); --> 12
select sum(pg_temp.fails('q' || n, 1)) from generate_series(1, 12) n; --> 12
select message from pg_temp.findings(); --> 12 attempts of kind "spread" failed in the last 10 minutes, and 0 jobs completed: first line
select pg_temp.clear() \gset

-- What expired was no attempt, and what was asked to stop has not failed. Where completed jobs go
-- at once, it is not known how many there were.
select count(*) from jobs.insert_batch('late', array_fill('1'::jsonb, array[12]), expires_at => now() + interval '1 microsecond'); --> 12
select count(*) from jobs.insert_batch('stopped', array_fill('1'::jsonb, array[12]), queue => 'stopped'); --> 12
select count(jobs.cancel(id)) from jobs.fetch('stopped', 12); --> 12
select count(jobs.fail(id, token, 'e')) from jobs.jobs where state = 'running'; --> 12
select jobs.configure_queue('gone', retention_completed => '0') \gset
select count(*) from jobs.insert_batch('gone', array_fill('1'::jsonb, array[12]), queue => 'gone'); --> 12
select pg_temp.fails('gone', 12); --> 12
select rows from jobs.maintain() where task = 'expire'; --> 12
select finding, message from pg_temp.findings(); --> finding|message: discarded|12 jobs were discarded in the last hour
select jobs.configure_queue('gone') \gset
select finding from pg_temp.findings('failing'); --> mostly_failing
select pg_temp.clear() \gset

-- running_long: by twenty jobs of its kind, longer than any of them took, and a minute at least.
select count(*) from jobs.insert_batch('quick', array_fill('1'::jsonb, array[23]), queue => 'l', timeout => '-1 second'); --> 23
select state from jobs.insert('rare', queue => 'l2', timeout => '-1 second'); --> available
select pg_temp.completes('l', 19); --> 19
create temp table held as select id, token from jobs.fetch('l', 1, lease => '1 day');
select kind from jobs.fetch('l2', 1, lease => '1 day'); --> rare
call pg_temp.later('2 minutes');
select * from pg_temp.findings(); --> none
select pg_temp.completes('l', 1); --> 1
select * from pg_temp.findings();
--> severity|finding|message|hint
--> warning|running_long|1 quick job has been running more than 10 times longer than usual (p95 SPAN); the oldest is job N, SPAN|SELECT jobs.show(N); To stop it: SELECT jobs.cancel(N);
select jobs.complete(id, token) from held; --> completed
select * from pg_temp.findings(); --> none
select kind from jobs.fetch('l', 1, lease => '1 day'); --> quick
call pg_temp.later('90 seconds');
select * from pg_temp.findings('long'); --> none
call pg_temp.later('1 minute');
select message from pg_temp.findings('long'); --> 1 quick job has been running more than 10 times longer than usual (p95 SPAN); the oldest is job N, SPAN
select pg_temp.clear() \gset
select * from pg_temp.findings(); --> none

-- no_worker: jobs have waited for five minutes, and no session has fetched from their queue.
select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 'n'); --> 3
call pg_temp.later('4 minutes');
select * from pg_temp.findings(); --> none
call pg_temp.later('2 minutes');
select * from pg_temp.findings('no_worker');
--> severity|finding|message|hint
--> warning|no_worker|no worker has fetched from queue "n"; its jobs are waiting|Start a worker for this queue. Workers that list it: SELECT * FROM jobs.workers WHERE 'n' = ANY (queues); Its jobs: SELECT * FROM jobs.jobs WHERE queue = 'n' AND state = 'available' ORDER BY priority, id LIMIT 10;
select jobs.pause_queue('n') \gset
select * from pg_temp.findings('no_worker'); --> none
select jobs.resume_queue('n') \gset
select * from pg_temp.findings('no_worker'); --> none
call pg_temp.later('6 minutes');
select * from pg_temp.findings('no_worker');
--> severity|finding|message|hint
--> warning|no_worker|no worker has fetched from queue "n"; its jobs are waiting|Start a worker for this queue. Workers that list it: SELECT * FROM jobs.workers WHERE 'n' = ANY (queues); Its jobs: SELECT * FROM jobs.jobs WHERE queue = 'n' AND state = 'available' ORDER BY priority, id LIMIT 10;
select pg_temp.completes('n', 1); --> 1
select * from pg_temp.findings('no_worker'); --> none
select count(*) from jobs.fetch('n', 1, lease => '1 minute'); --> 1
select * from pg_temp.findings('no_worker'); --> none
select pg_temp.clear() \gset

-- queue_paused: with jobs that could be fetched.
select jobs.pause_queue('p', 'no paper') \gset
select * from pg_temp.findings(); --> none
select state from jobs.insert('k', queue => 'p', scheduled_at => now() + interval '1 hour'); --> scheduled
select * from pg_temp.findings(); --> none
select state from jobs.insert('k', queue => 'p'); --> available
select * from pg_temp.findings();
--> severity|finding|message|hint
--> info|queue_paused|queue "p" has been paused for SPAN by postgres (no paper); 1 job is waiting|SELECT jobs.resume_queue('p');
call pg_temp.later('61 minutes');
select severity, message from pg_temp.findings('paused');
--> severity|message
--> warning|queue "p" has been paused for SPAN by postgres (no paper); 2 jobs are waiting
select jobs.resume_queue('p') \gset
select * from pg_temp.findings('paused'); --> none
select pg_temp.clear() \gset

-- limit_paused: a limit, or a key of one, that holds jobs. A viewer does not see the key.
select jobs.define_limit('api', '{"by_args": ["t"]}', concurrency => 1), jobs.define_limit('all', queues => '{x}', concurrency => 1) \gset
select jobs.pause_limit('api', '"it''s"', 'unpaid'), jobs.pause_limit('api', '"none"'), jobs.pause_limit('all') \gset
select count(*) from unnest('{a,x,x}'::text[]) q, lateral jobs.insert('k', '{"t": "it''s"}', queue => q); --> 3
select count(*) from jobs.fetch_any('{a,x}', 3); --> 0
select * from pg_temp.findings('limit');
--> severity|finding|message|hint
--> info|limit_paused|key {"args": {"t": "it's"}} of limit "api" has been paused for SPAN by postgres (unpaid); 1 job is held|SELECT jobs.resume_limit('api', '{"args": {"t": "it''s"}}');
--> info|limit_paused|limit "all" has been paused for SPAN by postgres; 2 jobs are held|SELECT jobs.resume_limit('all');
create role jobs_health;
select jobs.grant_viewer('jobs_health') \gset
set role jobs_health;
select message, hint from pg_temp.findings('limit');
--> message|hint
--> a key of limit "api" has been paused for SPAN by postgres (unpaid); 1 job is held|SELECT * FROM jobs.limit_keys WHERE name = 'api' AND paused_at IS NOT NULL;
--> limit "all" has been paused for SPAN by postgres; 2 jobs are held|SELECT jobs.resume_limit('all');
reset role;
drop owned by jobs_health;
drop role jobs_health;
select jobs.resume_limit('all'), jobs.resume_limit('api', '"it''s"'), jobs.pause_limit('api') \gset
call pg_temp.later('61 minutes');
select severity, message, hint from pg_temp.findings('limit');
--> severity|message|hint
--> warning|limit "api" has been paused for SPAN by postgres; 1 job is held|SELECT jobs.resume_limit('api');
select jobs.resume_limit('api') \gset
select * from pg_temp.findings('limit'); --> none
select jobs.drop_limit('api'), jobs.drop_limit('all') \gset
select pg_temp.clear() \gset

-- lost_worker: not seen for a minute, while it holds jobs. Of many there is one finding.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, '{20}'), queue => 'w', timeout => '-1 s'); --> 20
select jobs.worker_beat('w1', '{w}', 2), jobs.worker_beat('idle', '{w}', 2); --> worker_beat|worker_beat: run|run
select count(*) from jobs.fetch('w', 1, worker => 'w1', lease => '10 minutes') a, jobs.fetch('w', 1, worker => 'never seen', lease => '1 hour') b; --> 1
call pg_temp.later('59 seconds');
select * from pg_temp.findings('lost'); --> none
call pg_temp.later('2 seconds');
select * from pg_temp.findings('lost');
--> severity|finding|message|hint
--> warning|lost_worker|worker "w1" holds 1 job and was last seen SPAN ago; its last lease expires in SPAN|Each job is retried when its lease expires. SELECT * FROM jobs.workers WHERE worker = 'w1';
select count(*) from jobs.fetch('w', 1, worker => 'w1', lease => '20 minutes'); --> 1
select message from pg_temp.findings('lost'); --> worker "w1" holds 2 jobs and was last seen SPAN ago; its last lease expires in SPAN
select jobs.worker_beat('w1', '{w}', 2); --> run
select * from pg_temp.findings('lost'); --> none
select count(jobs.worker_beat('m' || n, '{w}', 2)), sum((select count(*) from jobs.fetch('w', n, worker => 'm' || n, lease => '1 hour'))) from generate_series(1, 4) n; --> count|sum: 4|10
call pg_temp.later('61 seconds');
select message from pg_temp.findings('lost');
--> worker "m4" holds 4 jobs and was last seen SPAN ago; its last lease expires in SPAN
--> worker "m3" holds 3 jobs and was last seen SPAN ago; its last lease expires in SPAN
--> worker "m2" holds 2 jobs and was last seen SPAN ago; its last lease expires in SPAN
--> worker "w1" holds 2 jobs and was last seen SPAN ago; its last lease expires in SPAN
--> worker "m1" holds 1 job and was last seen SPAN ago; its last lease expires in SPAN
select jobs.worker_beat('m6', '{w}', 2), (select count(*) from jobs.fetch('w', 5, worker => 'm6', lease => '2 hours')); --> worker_beat|count: run|5
update jobs.worker set last_seen_at = last_seen_at - interval '61 seconds' where worker = 'm6';
select * from pg_temp.findings('lost');
--> severity|finding|message|hint
--> warning|lost_worker|6 lost workers hold 17 jobs; the last lease expires in SPAN; the worst: worker "m6" holds 5 jobs and was last seen SPAN ago; its last lease expires in SPAN; worker "m4" holds 4 jobs and was last seen SPAN ago; its last lease expires in SPAN; worker "m3" holds 3 jobs and was last seen SPAN ago; its last lease expires in SPAN|SELECT * FROM jobs.workers WHERE status = 'lost' AND running > 0;
select pg_temp.clear() \gset

-- periodic_failed: a tick has no job; until the next one has.
select jobs.configure_queue('full', max_waiting => 1) \gset
select state from jobs.insert('k', queue => 'full'); --> available
select (jobs.schedule('tick', 'every 1 hour', 'tick', queue => 'full')).next_run_at > now() as later; --> t
call pg_temp.later('61 minutes');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
select * from pg_temp.findings('periodic');
--> severity|finding|message|hint
--> warning|periodic_failed|the latest tick of periodic job "tick" inserted no job: queue "full" is full|SELECT * FROM jobs.periodic WHERE name = 'tick'; It is retried at next_run_at.
select pg_temp.clear() \gset
call pg_temp.later('1 minute');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select * from pg_temp.findings('periodic'); --> none
