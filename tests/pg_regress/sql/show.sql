-- What people look at in psql: jobs.show(id), one job's whole story. And who may look.

-- The times are not the same twice.
create function pg_temp.story(job bigint) returns text language sql as $$
  select regexp_replace(jobs.show(job), '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+00', 'TIME', 'g') $$;

select id from jobs.insert('email.send', '{"user_id": 42}', queue => 'mail', priority => 3, max_attempts => 2, tags => '{urgent,vip}', meta => '{"tenant": "acme"}'); --> 1
select pg_temp.story(1);
--> Job 1, kind email.send: available
-->   queue mail, priority 3, attempt 0 of 2
-->   tags urgent, vip
-->   args {"user_id": 42}
-->   meta {"tenant": "acme"}
--> 
--> TIME  inserted
--> It waits to be fetched.
-- Running, with progress and a request to stop.
select attempt from jobs.fetch('mail', worker => 'w1'); --> 1
select jobs.heartbeat(1, pg_temp.token(1), progress => '{"percent": 50}') is not null as alive; --> t
select jobs.cancel(1, 'no longer wanted'); --> running
select pg_temp.story(1);
--> Job 1, kind email.send: running
-->   queue mail, priority 3, attempt 1 of 2
-->   tags urgent, vip
-->   args {"user_id": 42}
-->   meta {"tenant": "acme"}
--> 
--> TIME  inserted
--> TIME  attempt 1 begun by w1
--> TIME  asked to stop: no longer wanted
--> Its lease ends at TIME, its time at TIME.
--> Progress: {"percent": 50}
select jobs.complete(1, pg_temp.token(1), '{"message_id": "m-1"}'); --> completed
select pg_temp.story(1);
--> Job 1, kind email.send: completed
-->   queue mail, priority 3, attempt 1 of 2
-->   tags urgent, vip
-->   args {"user_id": 42}
-->   meta {"tenant": "acme"}
--> 
--> TIME  inserted
--> TIME  attempt 1 begun by w1
--> TIME  asked to stop: no longer wanted
--> TIME  completed, output {"message_id": "m-1"}
-- Failed twice; an error of several lines is set in.
select id from jobs.insert('k', 'null', max_attempts => 2, timeout => '-1 s'); --> 2
select (jobs.fail(id, token, e'first line\nsecond line', '1 hour', details => '{"type": "smtp.refused"}')).state from jobs.fetch(worker => 'w2'); --> retryable
select pg_temp.story(2);
--> Job 2, kind k: retryable
-->   queue default, priority 1, attempt 1 of 2
-->   args null
--> 
--> TIME  inserted
--> TIME  attempt 1 failed: first line
-->     second line (smtp.refused)
--> It is tried again at TIME.
select jobs.retry(2); --> available
select pg_temp.story(2);
--> Job 2, kind k: available
-->   queue default, priority 1, attempt 1 of 2
-->   args null
--> 
--> TIME  inserted
--> TIME  attempt 1 failed: first line
-->     second line (smtp.refused)
--> It waits to be fetched.
select id from jobs.fetch(worker => 'w2'); --> 2
select pg_temp.story(2);
--> Job 2, kind k: running
-->   queue default, priority 1, attempt 2 of 2
-->   args null
--> 
--> TIME  inserted
--> TIME  attempt 1 failed: first line
-->     second line (smtp.refused)
--> TIME  attempt 2 begun by w2
--> Its lease ends at TIME, its time is not limited.
select (jobs.fail(2, pg_temp.token(2), 'again')).state; --> discarded
select pg_temp.story(2);
--> Job 2, kind k: discarded
-->   queue default, priority 1, attempt 2 of 2
-->   args null
--> 
--> TIME  inserted
--> TIME  attempt 1 failed: first line
-->     second line (smtp.refused)
--> TIME  attempt 2 begun by w2
--> TIME  attempt 2 failed: again
--> TIME  discarded
-- Waiting for a time, for somebody, for nobody.
select id, state from jobs.insert('k', scheduled_at => '2999-01-01 00:00Z', expires_at => '2999-02-01 00:00Z'); --> id|state: 4|scheduled
select jobs.show(4) like '%It is due at 2999-01-01 00:00:00.000 +00, and expires at 2999-02-01 00:00:00.000 +00.' as says_when; --> t
select pg_temp.story(4);
--> Job 4, kind k: scheduled
-->   queue default, priority 1, attempt 0 of 25
-->   args {}
--> 
--> TIME  inserted
--> It is due at TIME, and expires at TIME.
select id, state from jobs.insert('k', pending => true); --> id|state: 5|pending
select pg_temp.story(5);
--> Job 5, kind k: pending
-->   queue default, priority 1, attempt 0 of 25
-->   args {}
--> 
--> TIME  inserted
--> It waits for jobs.activate.
select id, state from jobs.insert('k', pending => true, scheduled_at => '2999-01-01 00:00Z'); --> id|state: 6|pending
select pg_temp.story(6);
--> Job 6, kind k: pending
-->   queue default, priority 1, attempt 0 of 25
-->   args {}
--> 
--> TIME  inserted
--> It waits for jobs.activate, and is due at TIME.
select jobs.cancel(5, 'a mistake'); --> cancelled
select pg_temp.story(5);
--> Job 5, kind k: cancelled
-->   queue default, priority 1, attempt 0 of 25
-->   args {}
--> 
--> TIME  inserted
--> TIME  cancelled: a mistake
-- In the session's time zone.
set timezone = 'Asia/Kolkata';
select jobs.show(4) like '%It is due at 2999-01-01 05:30:00.000 +05:30, and expires%' as in_its_zone; --> t
reset timezone;
set timezone = 'UTC';
-- Bad input.
select pg_temp.try('select jobs.show(7)');
--> P0002: job 7 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
select pg_temp.try('select jobs.show(null)'); --> 22004: id must not be null

-- A viewer sees the story, and not what the job carries.
set client_min_messages = warning;
drop role if exists jobs_show_viewer;
create role jobs_show_viewer;
drop role if exists jobs_show_nobody;
create role jobs_show_nobody;
reset client_min_messages;
select jobs.grant_viewer('jobs_show_viewer') \gset
grant usage on schema jobs to jobs_show_nobody;
set role jobs_show_viewer;
select jobs.show(1) ~ 'acme|user_id|m-1|percent' as leaks, jobs.show(1) ~ 'attempt 1 begun by w1' as tells; --> leaks|tells: f|t
select count(*) from jobs.top(); --> 3
select count(*) from jobs.check(); --> 0
set role jobs_show_nobody;
select pg_temp.code('select jobs.show(1)'), pg_temp.code('select jobs.top()'), pg_temp.code('select jobs.check()'); --> code|code|code: 42501|42501|42501
reset role;
select jobs.revoke('jobs_show_viewer') \gset
revoke usage on schema jobs from jobs_show_nobody;
drop role jobs_show_viewer;
drop role jobs_show_nobody;

-- Texts of users stay on their line, and no terminal obeys them.
select id from jobs.insert('k', 'null', queue => 'noisy', tags => array[e'\x1b[2J', e'a\n2999-01-01 forged'], max_attempts => 1); --> 7
select (jobs.fail(id, token, e'red \x1b[31m\r\nTIME  forged\u202e', details => jsonb_build_object('type', e'\x07\x7f'))).state from jobs.fetch('noisy', worker => 'w3'); --> discarded
select id from jobs.insert('k', 'null', queue => 'noisy'); --> 8
select jobs.cancel(8, e'gone\nTIME  completed\u009b'); --> cancelled
select pg_temp.story(7);
--> Job 7, kind k: discarded
-->   queue noisy, priority 1, attempt 1 of 1
-->   tags \x1b[2J, a\n2999-01-01 forged
-->   args null
--> 
--> TIME  inserted
--> TIME  attempt 1 begun by w3
--> TIME  attempt 1 failed: red \x1b[31m\r
-->     TIME  forged\u202e (\x07\x7f)
--> TIME  discarded
select pg_temp.story(8);
--> Job 8, kind k: cancelled
-->   queue noisy, priority 1, attempt 0 of 25
-->   args null
--> 
--> TIME  inserted
--> TIME  cancelled: gone\nTIME  completed\x9b
select detail ~ 'gone\\nTIME  completed\\x9b$' from jobs.explain(8); --> t
select count(*) from generate_series(1, 10) n, jobs.insert('noisy', to_jsonb(n), queue => 'noisy'); --> 10
select count(jobs.fail(id, token, e'\x1b]0;title\x07')) from jobs.fetch('noisy', max_jobs => 10); --> 10
select substring(message from 'completed: .*') from jobs.health() where finding = 'mostly_failing' and message like '%noisy%'; --> completed: \x1b]0;title\x07

-- Its worker is lost.
select id from jobs.insert('k', queue => 'lost', timeout => '-1 s'); --> 19
select jobs.worker_beat('gone', '{lost}', 1), (select kind from jobs.fetch('lost', worker => 'gone')); --> worker_beat|kind: run|k
update jobs.worker set last_seen_at = last_seen_at - interval '61 seconds';
select pg_temp.story((select id from jobs.jobs where worker = 'gone'));
--> Job 19, kind k: running
-->   queue lost, priority 1, attempt 1 of 25
-->   args {}
--> 
--> TIME  inserted
--> TIME  attempt 1 begun by gone
--> Its lease ends at TIME, its time is not limited.
--> Its worker gone is lost, last seen at TIME.

-- Held by a limit, whose key a viewer does not see.
select jobs.define_limit('one', '{"by_args": ["tenant"]}', '{held}', concurrency => 1), jobs.insert('k', '{"tenant": "acme"}', queue => 'held'), jobs.insert('k', '{"tenant": "acme"}', queue => 'held') \gset
select count(*) from jobs.fetch('held', 2); --> 1
create role jobs_show_viewer;
select jobs.grant_viewer('jobs_show_viewer') \gset
select id as held from jobs.jobs where queue = 'held' and state = 'available' \gset
select substring(jobs.show(:held), 'Held: .*'); --> Held: limit "one" with key {"args": {"tenant": "acme"}} has 1 running job, and its concurrency is 1.
set role jobs_show_viewer;
select substring(jobs.show(:held), 'Held: .*'); --> Held: limit "one" has 1 running job, and its concurrency is 1.
reset role;
-- One in its lane, which the next fetch has held.
select jobs.cancel(:held) \gset
select id as lane from jobs.insert('k', '{"tenant": "acme"}', queue => 'held') \gset
select count(*) from jobs.ready where job_id = :lane; --> 1
select substring(jobs.show(:lane), 'Held: .*'); --> Held: limit "one" with key {"args": {"tenant": "acme"}} has 1 running job, and its concurrency is 1.
set role jobs_show_viewer;
select substring(jobs.show(:lane), 'Held: .*'); --> Held: limit "one" has 1 running job, and its concurrency is 1.
reset role;
drop owned by jobs_show_viewer;
drop role jobs_show_viewer;
