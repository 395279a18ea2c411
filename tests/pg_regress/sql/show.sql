\set ECHO none
-- What people look at in psql: jobs.show(id), one job's whole story. And who may look.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- The times are not the same twice.
create function pg_temp.story(job bigint) returns text language sql as $$
  select regexp_replace(jobs.show(job), '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+00', 'TIME', 'g') $$;

select id from jobs.insert('email.send', '{"user_id": 42}', queue => 'mail', priority => 3, max_attempts => 2, tags => '{urgent,vip}', meta => '{"tenant": "acme"}');
select pg_temp.story(1);
-- Running, with progress and a request to stop.
select attempt from jobs.fetch('mail', worker => 'w1');
select jobs.heartbeat(1, pg_temp.token(1), progress => '{"percent": 50}') is not null as alive;
select jobs.cancel(1, 'no longer wanted');
select pg_temp.story(1);
select jobs.complete(1, pg_temp.token(1), '{"message_id": "m-1"}');
select pg_temp.story(1);
-- Failed twice; an error of several lines is set in.
select id from jobs.insert('k', 'null', max_attempts => 2, timeout => '-1 s');
select (jobs.fail(id, token, e'first line\nsecond line', '1 hour', details => '{"type": "smtp.refused"}')).state from jobs.fetch(worker => 'w2');
select pg_temp.story(2);
select jobs.retry(2);
select pg_temp.story(2);
select id from jobs.fetch(worker => 'w2');
select pg_temp.story(2);
select (jobs.fail(2, pg_temp.token(2), 'again')).state;
select pg_temp.story(2);
-- Waiting for a time, for somebody, for nobody.
select id, state from jobs.insert('k', scheduled_at => '2999-01-01 00:00Z', expires_at => '2999-02-01 00:00Z');
select jobs.show(4) like '%It is due at 2999-01-01 00:00:00.000 +00, and expires at 2999-02-01 00:00:00.000 +00.' as says_when;
select pg_temp.story(4);
select id, state from jobs.insert('k', pending => true);
select pg_temp.story(5);
select id, state from jobs.insert('k', pending => true, scheduled_at => '2999-01-01 00:00Z');
select pg_temp.story(6);
select jobs.cancel(5, 'a mistake');
select pg_temp.story(5);
-- In the session's time zone.
set timezone = 'Asia/Kolkata';
select jobs.show(4) like '%It is due at 2999-01-01 05:30:00.000 +05:30, and expires%' as in_its_zone;
reset timezone;
set timezone = 'UTC';
-- Bad input.
select pg_temp.try('select jobs.show(7)');
select pg_temp.try('select jobs.show(null)');

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
select jobs.show(1) ~ 'acme|user_id|m-1|percent' as leaks, jobs.show(1) ~ 'attempt 1 begun by w1' as tells;
select count(*) from jobs.top();
select count(*) from jobs.check();
set role jobs_show_nobody;
select pg_temp.code('select jobs.show(1)'), pg_temp.code('select jobs.top()'), pg_temp.code('select jobs.check()');
reset role;
select jobs.revoke('jobs_show_viewer') \gset
revoke usage on schema jobs from jobs_show_nobody;
drop role jobs_show_viewer;
drop role jobs_show_nobody;

-- Texts of users stay on their line, and no terminal obeys them.
select id from jobs.insert('k', 'null', queue => 'noisy', tags => array[e'\x1b[2J', e'a\n2999-01-01 forged'], max_attempts => 1);
select (jobs.fail(id, token, e'red \x1b[31m\r\nTIME  forged\u202e', details => jsonb_build_object('type', e'\x07\x7f'))).state from jobs.fetch('noisy', worker => 'w3');
select id from jobs.insert('k', 'null', queue => 'noisy');
select jobs.cancel(8, e'gone\nTIME  completed\u009b');
select pg_temp.story(7);
select pg_temp.story(8);
select detail ~ 'gone\\nTIME  completed\\x9b$' from jobs.explain(8);
select count(*) from generate_series(1, 10) n, jobs.insert('noisy', to_jsonb(n), queue => 'noisy');
select count(jobs.fail(id, token, e'\x1b]0;title\x07')) from jobs.fetch('noisy', max_jobs => 10);
select substring(message from 'completed: .*') from jobs.health() where finding = 'mostly_failing' and message like '%noisy%';

-- Its worker is lost.
select id from jobs.insert('k', queue => 'lost', timeout => '-1 s');
select jobs.worker_beat('gone', '{lost}', 1), (select kind from jobs.fetch('lost', worker => 'gone'));
update jobs.worker set last_seen_at = last_seen_at - interval '61 seconds';
select pg_temp.story((select id from jobs.jobs where worker = 'gone'));

-- Held by a limit, whose key a viewer does not see.
select jobs.define_limit('one', '{"by_args": ["tenant"]}', '{held}', concurrency => 1), jobs.insert('k', '{"tenant": "acme"}', queue => 'held'), jobs.insert('k', '{"tenant": "acme"}', queue => 'held') \gset
select count(*) from jobs.fetch('held', 2);
create role jobs_show_viewer;
select jobs.grant_viewer('jobs_show_viewer') \gset
select id as held from jobs.jobs where queue = 'held' and state = 'available' \gset
select substring(jobs.show(:held), 'Held: .*');
set role jobs_show_viewer;
select substring(jobs.show(:held), 'Held: .*');
reset role;
drop owned by jobs_show_viewer;
drop role jobs_show_viewer;
