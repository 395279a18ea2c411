-- jobs.explain(id): why a job does not run now; every reason, and several at once.
-- Of the job of a kind. The times are not the same twice; jobs are shown by their kinds.
create function pg_temp.why(of text) returns table (reason text, detail text, until text, jobs text[]) language sql as $$
  select e.reason, regexp_replace(regexp_replace(e.detail, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+00', 'TIME', 'g'), 'activate\(\d+', 'activate(ID'),
         case when e.until > clock_timestamp() then 'later' else e.until::text end,
         case when e.by_ids is not null then array(select j.kind from unnest(e.by_ids) with ordinality u(id, n) join jobs.jobs j on j.id = u.id order by u.n) end
    from jobs.jobs k, lateral jobs.explain(k.id) e where k.kind = of $$;
create function pg_temp.ends(of text) returns text language sql as $$ select jobs.complete(id, token)::text from jobs.jobs where kind = of $$;
-- How many rows of the tables that jobs wait in this transaction has read, and pages of the index
-- that says in what order.
create function pg_temp.read() returns bigint language sql as $$
  select sum(pg_stat_get_xact_tuples_fetched(t) + pg_stat_get_xact_tuples_returned(t))::bigint from unnest('{jobs.ready,jobs.scheduled}'::regclass[]) t $$;
create function pg_temp.pages() returns bigint language sql as $$ select pg_stat_get_xact_blocks_fetched('jobs.ready_pkey'::regclass) $$;

-- running: a worker has it. From now on a session is at work on queue q.
select state from jobs.insert('held', queue => 'q', timeout => '-1 second'); --> available
select kind from jobs.fetch('q', worker => 'w1', lease => '1 day'); --> held
select * from pg_temp.why('held');
--> reason|detail|until|jobs
--> running|held by worker "w1" since TIME, attempt 1 of 25; the lease expires at TIME|later|~

-- next, or behind others: by priority, then by the time for which they have been available.
select state from jobs.insert('a', queue => 'q'); --> available
select * from pg_temp.why('a'); --> reason|detail|until|jobs: next|the next fetch from queue "q" returns it|~|~
select state from jobs.insert('b', queue => 'q'); --> available
select * from pg_temp.why('b');
--> reason|detail|until|jobs
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{a}
select state from jobs.insert('urgent', queue => 'q', priority => 0); --> available
select * from pg_temp.why('urgent'); --> reason|detail|until|jobs: next|the next fetch from queue "q" returns it|~|~
select * from pg_temp.why('a');
--> reason|detail|until|jobs
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{urgent}
select * from pg_temp.why('b');
--> reason|detail|until|jobs
--> behind 2 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{urgent,a}

-- expired: it is in nobody's way.
select state from jobs.insert('gone', queue => 'q', priority => -1, expires_at => clock_timestamp() + interval '1 microsecond'); --> available
select * from pg_temp.why('gone');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it|~|~
select * from pg_temp.why('urgent'); --> reason|detail|until|jobs: next|the next fetch from queue "q" returns it|~|~
select jobs.pause_maintenance() \gset
select * from pg_temp.why('gone');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it, but maintenance is paused until jobs.resume_maintenance|~|~
select jobs.resume_maintenance() \gset

-- scheduled, and due: then it can be fetched, whether maintenance was there or not.
select state from jobs.insert('scheduled', queue => 'q', scheduled_at => now() + interval '1 hour'); --> scheduled
select * from pg_temp.why('scheduled'); --> reason|detail|until|jobs: scheduled|due at TIME|later|~
select i.state, j.state from jobs.insert('due', queue => 'q', scheduled_at => clock_timestamp() + interval '1 s') i, jobs.insert('due first', queue => 'q', priority => -5, timeout => '-1 second', scheduled_at => clock_timestamp() + interval '1 s') j, pg_sleep(1.1);
--> state|state: scheduled|scheduled
select * from pg_temp.why('due');
--> reason|detail|until|jobs
--> behind 4 jobs|jobs with a lower priority number or a longer wait come first in queue "q"; it was due at TIME, and a fetch makes it available|~|{"due first",urgent,a,b}
select * from pg_temp.why('due first');
--> reason|detail|until|jobs
--> next|the next fetch from queue "q" returns it; it was due at TIME, and a fetch makes it available|~|~
select * from pg_temp.why('urgent');
--> reason|detail|until|jobs
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{"due first"}
select kind from jobs.fetch('q', worker => 'w1', lease => '1 day'); --> due first
select * from pg_temp.why('due');
--> reason|detail|until|jobs
--> behind 3 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{urgent,a,b}

-- pending, and due later than that; retryable.
select state from jobs.insert('pending', queue => 'q', pending => true); --> pending
select * from pg_temp.why('pending'); --> reason|detail|until|jobs: pending|waiting for jobs.activate(ID)|~|~
select state from jobs.insert('pending later', queue => 'q', pending => true, scheduled_at => now() + interval '1 hour'); --> pending
select * from pg_temp.why('pending later');
--> reason|detail|until|jobs
--> pending|waiting for jobs.activate(ID)|~|~
--> scheduled|due at TIME|later|~
select state from jobs.insert('retryable', queue => 'r'); --> available
select (jobs.fail(id, token, e'no route to host\nor none at all', '1 hour')).state from jobs.fetch('r'); --> retryable
select * from pg_temp.why('retryable');
--> reason|detail|until|jobs
--> retryable|attempt 1 of 25 failed: no route to host; the next attempt is due at TIME|later|~

-- running: its worker is lost.
select count(*) from jobs.insert('k', queue => 'lost', timeout => '-1 s'); --> 1
select jobs.worker_beat('gone', '{lost}', 1), (select kind from jobs.fetch('lost', worker => 'gone', lease => '1 day')); --> worker_beat|kind: run|k
select detail like '%the worker is lost%' as lost from jobs.explain((select id from jobs.jobs where worker = 'gone')); --> f
call pg_temp.later('61 seconds');
select regexp_replace(detail, '[0-9]{4}-[0-9: .-]* \+00', 'TIME', 'g') as detail from jobs.explain((select id from jobs.jobs where worker = 'gone'));
--> held by worker "gone" since TIME, attempt 1 of 25; the lease expires at TIME; the worker is lost and was last seen at TIME

-- no worker: no session has fetched from its queue, or not for long.
select state from jobs.insert('alone', queue => 'n'); --> available
select * from pg_temp.why('alone');
--> reason|detail|until|jobs
--> no worker|no worker has fetched from queue "n"|~|~
--> next|the next fetch from queue "n" returns it|~|~
select jobs.worker_beat('w9', '{n}', 1); --> run
select * from pg_temp.why('alone');
--> reason|detail|until|jobs
--> no worker|no worker has fetched from queue "n"|~|~
--> next|the next fetch from queue "n" returns it|~|~
select jobs.quiet_worker('w9') \gset
select * from pg_temp.why('alone');
--> reason|detail|until|jobs
--> no worker|no worker has fetched from queue "n"; workers of queue "n" are quiet until jobs.resume_worker: w9|~|~
--> next|the next fetch from queue "n" returns it|~|~
-- Nor has it one when all that are known are quiet, however lately they fetched. Who holds a job is
-- one, whether it beats or not, unless it is quiet.
select count(*) from unnest('{h1,h2}'::text[]) k, lateral jobs.insert(k, queue => 'h', timeout => '-1 second'); --> 2
select jobs.worker_beat('w8', '{h}', 1); --> run
select kind from jobs.fetch('h', worker => 'w7', lease => '1 day'); --> h1
select jobs.stop_worker('w8') \gset
select * from pg_temp.why('h2'); --> reason|detail|until|jobs: next|the next fetch from queue "h" returns it|~|~
select jobs.quiet_worker('w7') \gset
select * from pg_temp.why('h2');
--> reason|detail|until|jobs
--> no worker|workers of queue "h" are quiet until jobs.resume_worker: w8|~|~
--> next|the next fetch from queue "h" returns it|~|~
select jobs.worker_beat('w6', '{other,h}', 1); --> run
select * from pg_temp.why('h2'); --> reason|detail|until|jobs: next|the next fetch from queue "h" returns it|~|~
select jobs.quiet_worker('w6') \gset
select * from pg_temp.why('h2');
--> reason|detail|until|jobs
--> no worker|workers of queue "h" are quiet until jobs.resume_worker: w6, w8|~|~
--> next|the next fetch from queue "h" returns it|~|~
select jobs.resume_worker('w8') \gset
select * from pg_temp.why('h2'); --> reason|detail|until|jobs: next|the next fetch from queue "h" returns it|~|~

-- queue paused, limit, rate: each has a row, whatever else the job waits for.
select jobs.configure_queue('c', concurrency => 1, rate => 1, rate_period => '1 hour') \gset
select state from jobs.insert('runs', queue => 'c', timeout => '-1 second'); --> available
select * from pg_temp.why('runs');
--> reason|detail|until|jobs
--> no worker|no worker has fetched from queue "c"|~|~
--> next|the next fetch from queue "c" returns it|~|~
select kind from jobs.fetch('c', worker => 'w2', lease => '1 day'); --> runs
select i.state, j.state from jobs.insert('waits', queue => 'c') i, jobs.insert('all of it', queue => 'c', scheduled_at => now() + interval '1 day') j; --> state|state: available|scheduled
select * from pg_temp.why('waits');
--> reason|detail|until|jobs
--> queue limit|queue "c" has 1 running job, and its concurrency is 1|~|{runs}
--> queue rate|queue "c" has reached its rate of 1 job in 1 h|later|~
select jobs.pause_queue('c', 'no paper') \gset
select * from pg_temp.why('waits');
--> reason|detail|until|jobs
--> queue paused|queue "c" was paused at TIME by postgres (no paper); jobs.resume_queue resumes it|~|~
--> queue limit|queue "c" has 1 running job, and its concurrency is 1|~|{runs}
--> queue rate|queue "c" has reached its rate of 1 job in 1 h|later|~
select * from pg_temp.why('all of it');
--> reason|detail|until|jobs
--> scheduled|due at TIME|later|~
--> queue paused|queue "c" was paused at TIME by postgres (no paper); jobs.resume_queue resumes it|~|~
--> queue limit|queue "c" has 1 running job, and its concurrency is 1|~|{runs}
--> queue rate|queue "c" has reached its rate of 1 job in 1 h|later|~
select jobs.pause_queue('r'), jobs.pause_queue('q');
select * from pg_temp.why('retryable');
--> reason|detail|until|jobs
--> retryable|attempt 1 of 25 failed: no route to host; the next attempt is due at TIME|later|~
--> queue paused|queue "r" was paused at TIME by postgres; jobs.resume_queue resumes it|~|~
select * from pg_temp.why('pending');
--> reason|detail|until|jobs
--> pending|waiting for jobs.activate(ID)|~|~
--> queue paused|queue "q" was paused at TIME by postgres; jobs.resume_queue resumes it|~|~
select * from pg_temp.why('a');
--> reason|detail|until|jobs
--> queue paused|queue "q" was paused at TIME by postgres; jobs.resume_queue resumes it|~|~
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{urgent}
select * from pg_temp.why('urgent');
--> reason|detail|until|jobs
--> queue paused|queue "q" was paused at TIME by postgres; jobs.resume_queue resumes it|~|~
select jobs.resume_queue('q'), jobs.resume_queue('r'), jobs.resume_queue('c');
select pg_temp.ends('runs'); --> completed
select * from pg_temp.why('waits'); --> reason|detail|until|jobs: queue rate|queue "c" has reached its rate of 1 job in 1 h|later|~
select jobs.configure_queue('c', concurrency => 1) \gset
select * from pg_temp.why('waits'); --> reason|detail|until|jobs: next|the next fetch from queue "c" returns it|~|~
call pg_temp.later('6 minutes');
select * from pg_temp.why('waits'); --> reason|detail|until|jobs: next|the next fetch from queue "c" returns it|~|~
select kind from jobs.fetch('c'); --> waits

-- More run than may, since the limit was lowered; with a free slot it is not the limit.
select jobs.configure_queue('low', concurrency => 3) \gset
select count(*) from unnest('{l1,l2,l3}'::text[]) k, lateral jobs.insert(k, queue => 'low', timeout => '-1 second'); --> 3
select count(*) from jobs.fetch('low', 2, lease => '1 day'); --> 2
select * from pg_temp.why('l3'); --> reason|detail|until|jobs: next|the next fetch from queue "low" returns it|~|~
select jobs.configure_queue('low', concurrency => 1) \gset
select * from pg_temp.why('l3');
--> reason|detail|until|jobs
--> queue limit|queue "low" has 2 running jobs, and its concurrency is 1|~|{l1,l2}
select pg_temp.ends('l2'); --> completed
select * from pg_temp.why('l3'); --> reason|detail|until|jobs: queue limit|queue "low" has 1 running job, and its concurrency is 1|~|{l1}
select pg_temp.ends('l1'); --> completed
select * from pg_temp.why('l3'); --> reason|detail|until|jobs: next|the next fetch from queue "low" returns it|~|~

-- limit: its concurrency, its rate; limit paused.
select jobs.define_limit('keys', '{"by_args": ["t"]}', '{g}', concurrency => 1, rate => 1, rate_period => '1 hour') \gset
select count(*) from unnest('{g1,g2}'::text[]) k, lateral jobs.insert(k, '{"t": 7}', queue => 'g', timeout => '-1 second'); --> 2
select kind from jobs.fetch('g', 2, lease => '1 day'); --> g1
select * from pg_temp.why('g2');
--> reason|detail|until|jobs
--> limit|limit "keys" with key {"args": {"t": 7}} has 1 running job, and its concurrency is 1|~|{g1}
select jobs.pause_limit('keys', '7', 'unpaid') \gset
select * from pg_temp.why('g2');
--> reason|detail|until|jobs
--> limit paused|limit "keys" with key {"args": {"t": 7}} was paused at TIME by postgres (unpaid); jobs.resume_limit resumes it|~|{g1}
select jobs.resume_limit('keys', '7'), pg_temp.ends('g1') \gset
select * from pg_temp.why('g2');
--> reason|detail|until|jobs
--> limit|limit "keys" with key {"args": {"t": 7}} has reached its rate of 1 job in 1 h|later|~

-- Before a fetch has the job held, too, in the same words.
select jobs.define_limit('lane', '{"by_args": ["t"]}', '{lane}', concurrency => 1), jobs.define_limit('starts', queues => '{starts}', rate => 1, rate_period => '1 hour') \gset
select count(*) from unnest('{lane,starts}'::text[]) q, lateral jobs.insert(q || 1, '{"t": 7}', queue => q, timeout => '-1 second'); --> 2
select kind from jobs.fetch_any('{lane,starts}', 2, lease => '1 day') order by kind; --> lane1, starts1
select a.state, b.state, c.state, d.state from jobs.insert('lane2', '{"t": 7}', queue => 'lane') a, jobs.insert('lane3', '{"t": 8}', queue => 'lane', priority => 0) b, jobs.insert('starts2', queue => 'starts') c, jobs.insert('starts3', queue => 'starts', scheduled_at => now() + interval '1 day') d;
--> state|state|state|state: available|available|available|scheduled
select count(*) from jobs.scheduled where gate is not null and queue in ('lane', 'starts'); --> 0
select * from pg_temp.why('lane2');
--> reason|detail|until|jobs
--> limit|limit "lane" with key {"args": {"t": 7}} has 1 running job, and its concurrency is 1|~|{lane1}
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "lane"|~|{lane3}
select * from pg_temp.why('lane3'); --> reason|detail|until|jobs: next|the next fetch from queue "lane" returns it|~|~
select * from pg_temp.why('starts2'); --> reason|detail|until|jobs: limit|limit "starts" has reached its rate of 1 job in 1 h|later|{starts1}
select * from pg_temp.why('starts3');
--> reason|detail|until|jobs
--> scheduled|due at TIME|later|~
--> limit|limit "starts" has reached its rate of 1 job in 1 h|later|{starts1}
select count(*) from jobs.fetch('starts'); --> 0
select * from pg_temp.why('starts2'); --> reason|detail|until|jobs: limit|limit "starts" has reached its rate of 1 job in 1 h|later|{starts1}
select jobs.pause_limit('lane', '8', 'unpaid') \gset
select * from pg_temp.why('lane3');
--> reason|detail|until|jobs
--> limit paused|limit "lane" with key {"args": {"t": 8}} was paused at TIME by postgres (unpaid); jobs.resume_limit resumes it|~|~
select jobs.resume_limit('lane', '8'), jobs.pause_limit('lane') \gset
select * from pg_temp.why('lane3');
--> reason|detail|until|jobs
--> limit paused|limit "lane" with key {"args": {"t": 8}} was paused at TIME by postgres; jobs.resume_limit resumes it|~|~
-- Of several limits, the first that has no room.
select jobs.resume_limit('lane'), jobs.define_limit('all', queues => '{lane}', concurrency => 1) \gset
select * from pg_temp.why('lane3'); --> reason|detail|until|jobs: limit|limit "all" has 1 running job, and its concurrency is 1|~|{lane1}
select jobs.override_limit('lane', '7', concurrency => 2), jobs.drop_limit('all') \gset
select reason from pg_temp.why('lane2'); --> behind 1 jobs

-- kind not asked for: fetches ask for others.
select count(*) from unnest('{left,taken,other}'::text[]) k, lateral jobs.insert(k, queue => 'k', timeout => '-1 second'); --> 3
select kind from jobs.fetch('k', kinds => '{taken,none}', lease => '1 day'); --> taken
select * from pg_temp.why('left');
--> reason|detail|until|jobs
--> kind not asked for|workers fetched from queue "k", most recently at TIME, but none asked for kind "left" in the last 5 minutes|~|~
select * from pg_temp.why('other');
--> reason|detail|until|jobs
--> kind not asked for|workers fetched from queue "k", most recently at TIME, but none asked for kind "other" in the last 5 minutes|~|~
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "k"|~|{left}
select pg_temp.ends('taken'); --> completed
select * from pg_temp.why('left');
--> reason|detail|until|jobs
--> kind not asked for|workers fetched from queue "k", most recently at TIME, but none asked for kind "left" in the last 5 minutes|~|~
select id, state from jobs.insert('left', queue => 'k', priority => 9) \gset later_
select id = :later_id as it from jobs.fetch('k', 2, kinds => '{left}') order by id desc limit 1; --> t
select count(jobs.release(id, token)) from jobs.jobs where state = 'running' and kind = 'left' and id <> :later_id; --> 1
select reason from jobs.jobs j, jobs.explain(j.id) where j.kind = 'left' and j.queue = 'k' and j.state = 'available'; --> behind 1 jobs
-- Whoever takes jobs of any kind asks for each.
select count(*) from jobs.fetch('fresh', kinds => '{old}'); --> 0
select count(*) from jobs.insert('new', queue => 'fresh'); --> 1
select * from pg_temp.why('new');
--> reason|detail|until|jobs
--> kind not asked for|workers fetched from queue "fresh", most recently at TIME, but none asked for kind "new" in the last 5 minutes|~|~
select count(jobs.release(id, token)) from jobs.fetch('fresh'); --> 1
select * from pg_temp.why('new'); --> reason|detail|until|jobs: next|the next fetch from queue "fresh" returns it|~|~

-- running, in full: its time, its progress, a request to stop, a lease that ran out.
select state from jobs.insert('long', queue => 'l', timeout => '1 hour', max_attempts => 3); --> available
select kind from jobs.fetch('l', worker => 'w3', lease => '10 minutes'); --> long
select cancel_requested from jobs.heartbeat((select id from jobs.jobs where kind = 'long'), (select token from jobs.jobs where kind = 'long'), '10 minutes', '{"done": 0.5}'); --> f
select jobs.cancel(id, 'no need') from jobs.jobs where kind = 'long'; --> running
select * from pg_temp.why('long');
--> reason|detail|until|jobs
--> running|held by worker "w3" since TIME, attempt 1 of 3; the lease expires at TIME; the attempt times out at TIME; cancellation was requested at TIME: no need; progress {"done": 0.5}|later|~
call pg_temp.later('11 minutes');
select * from pg_temp.why('long');
--> reason|detail|until|jobs
--> running|held by worker "w3" since TIME, attempt 1 of 3; the lease expired at TIME, and maintenance rescues the job; the attempt times out at TIME; cancellation was requested at TIME: no need; progress {"done": 0.5}|~|~
select jobs.pause_maintenance() \gset
select * from pg_temp.why('long');
--> reason|detail|until|jobs
--> running|held by worker "w3" since TIME, attempt 1 of 3; the lease expired at TIME, and maintenance rescues the job, but maintenance is paused until jobs.resume_maintenance; the attempt times out at TIME; cancellation was requested at TIME: no need; progress {"done": 0.5}|~|~
select jobs.resume_maintenance() \gset

-- A viewer sees the reasons, and not what the job carries.
set client_min_messages = warning;
drop role if exists jobs_explain_viewer, jobs_explain_nobody;
create role jobs_explain_viewer;
create role jobs_explain_nobody;
reset client_min_messages;
select jobs.grant_viewer('jobs_explain_viewer') \gset
grant usage on schema jobs to jobs_explain_nobody;
set role jobs_explain_viewer;
select reason, detail ~ 'no need$' as without from jobs.jobs j, jobs.explain(j.id) where j.kind = 'long'; --> reason|without: running|t
set role jobs_explain_nobody;
select jobs.explain(1); --> ERROR:  permission denied for function explain
reset role;
select jobs.revoke('jobs_explain_viewer') \gset
revoke usage on schema jobs from jobs_explain_nobody;
drop role jobs_explain_viewer, jobs_explain_nobody;

-- final.
select * from pg_temp.why('l1'); --> reason|detail|until|jobs: final|completed at TIME by worker "pg_regress/explain"|~|~
select jobs.cancel(id, 'a mistake') from jobs.jobs where kind = 'pending'; --> cancelled
select * from pg_temp.why('pending'); --> reason|detail|until|jobs: final|cancelled at TIME: a mistake|~|~
select rows from jobs.maintain() where task = 'expire'; --> 1
select * from pg_temp.why('gone'); --> reason|detail|until|jobs: final|discarded at TIME: expired|~|~

-- Several at once. Who has expired waits for nothing else any more, whatever state it is in.
select state from jobs.insert('gone scheduled', queue => 'x', scheduled_at => now() + interval '1 hour', expires_at => clock_timestamp() + interval '1 microsecond'); --> scheduled
select * from pg_temp.why('gone scheduled');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it|~|~
select state from jobs.insert('gone retryable', queue => 'x'); --> available
select (jobs.fail(id, token, 'no route', '1 hour')).state from jobs.fetch('x'); --> retryable
select jobs.update(id, expires_at => clock_timestamp() + interval '1 microsecond') from jobs.jobs where kind = 'gone retryable'; --> retryable
select * from pg_temp.why('gone retryable');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it|~|~
select state from jobs.insert('gone paused', queue => 'x', expires_at => clock_timestamp() + interval '1 microsecond'); --> available
select jobs.pause_queue('x') \gset
select * from pg_temp.why('gone paused');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it|~|~
select * from pg_temp.why('gone scheduled');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it|~|~
select * from pg_temp.why('gone retryable');
--> reason|detail|until|jobs
--> expired|expired at TIME: no fetch returns it, and maintenance discards it|~|~
-- A paused queue that no session has fetched from; a full one whose only worker is quiet.
select state from jobs.insert('left alone', queue => 'y'); --> available
select jobs.pause_queue('y') \gset
select * from pg_temp.why('left alone');
--> reason|detail|until|jobs
--> queue paused|queue "y" was paused at TIME by postgres; jobs.resume_queue resumes it|~|~
--> no worker|no worker has fetched from queue "y"|~|~
select jobs.configure_queue('z', concurrency => 1), jobs.worker_beat('wz', '{z}', 2); --> configure_queue|worker_beat: |run
select count(*) from unnest('{z1,z2}'::text[]) k, lateral jobs.insert(k, queue => 'z', timeout => '-1 second'); --> 2
select kind from jobs.fetch('z', worker => 'wz', lease => '1 day'); --> z1
select jobs.quiet_worker('wz') \gset
select * from pg_temp.why('z2');
--> reason|detail|until|jobs
--> queue limit|queue "z" has 1 running job, and its concurrency is 1|~|{z1}
--> no worker|workers of queue "z" are quiet until jobs.resume_worker: wz|~|~
select pg_temp.ends('z1'); --> completed
select * from pg_temp.why('z2');
--> reason|detail|until|jobs
--> no worker|workers of queue "z" are quiet until jobs.resume_worker: wz|~|~
--> next|the next fetch from queue "z" returns it|~|~
-- However many wait, few are looked at: up to 10,000 in front, none that is behind.
select count(*) from jobs.insert_batch('many', array(select to_jsonb(n) from generate_series(1, 40000) n), queue => 'm'); --> 40000
select count(*) from jobs.insert_batch('sleeping', array(select to_jsonb(n) from generate_series(1, 5000) n), queue => 'm', scheduled_at => now() + interval '1 day'); --> 5000
create function pg_temp.looked_at(job bigint) returns table (reason text, ids int, few boolean) language plpgsql as $$
declare
  before bigint := pg_temp.read();
  pages bigint := pg_temp.pages();
begin
  return query select e.reason, cardinality(e.by_ids), pg_temp.read() - before < 10100 and pg_temp.pages() - pages < 100 from jobs.explain(job) e where e.reason <> 'no worker';
end $$;
select l.* from (select min(id) as first, max(id) as last from jobs.jobs where kind = 'many') m, lateral (values (first), (first + 3), (last)) v(id), lateral pg_temp.looked_at(v.id) l;
--> reason|ids|few
--> next|~|t
--> behind 3 jobs|3|t
--> behind more than 10000 jobs|10|t

-- Bad input; read only.
select pg_temp.try('select jobs.explain(0)');
--> P0002: job 0 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
select pg_temp.try('select jobs.explain(null)'); --> 22004: id must not be null
begin isolation level serializable read only;
select * from pg_temp.why('a');
--> reason|detail|until|jobs
--> behind 1 jobs|jobs with a lower priority number or a longer wait come first in queue "q"|~|{urgent}
commit;

-- The first call of a session can be in a parallel query.
\c -
set parallel_setup_cost = 0;
set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0;
select reason from jobs.jobs, jobs.explain(id) where kind = 'z2'; --> no worker, next
select jobs.show(id) ~ 'kind z2' from jobs.jobs where kind = 'z2'; --> t
