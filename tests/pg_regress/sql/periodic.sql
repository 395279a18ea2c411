\set ECHO none
-- jobs.schedule, jobs.unschedule, jobs.periodic: a job a tick, what it is inserted with, ticks that
-- were missed, definitions that are replaced.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
-- A job is inserted first, so that the sequence of ids has begun; a tick of @yearly is not near,
-- unless somebody sees the new year in with this test.
select id from jobs.insert('first');
-- What a definition shows of its past: ticks as years from this one.
create function pg_temp.past(name text) returns table (last_tick int, job bigint, skipped boolean, error text) language sql as $$
  select extract(year from last_run_at)::int - extract(year from now())::int, last_job_id, last_skipped, last_error from jobs.periodic p where p.name = $1 $$;

-- All parameters. The answer is the next tick.
select (jobs.schedule(name => 'all', cron => '@yearly', kind => 'k', args => '{"x": 1}', time_zone => 'europe/berlin', unique_opts => '{"by_args": true}', queue => 'q', priority => -3,
  max_attempts => 7, tags => '{a,b c}', meta => '{"m": 1}', timeout => '2 hours', retry => '"river"', missed => 'once', reason => 'r')).next_run_at = (date_trunc('year', now() at time zone 'Europe/Berlin') + interval '1 year') at time zone 'Europe/Berlin' as next_new_year;
select name, cron, time_zone, kind, queue, args, unique_opts, priority, max_attempts, tags, meta, timeout, retry, last_run_at, last_job_id, last_skipped, last_error, now() - defined_at < '1 minute' as just_defined from jobs.periodic;
-- Nothing is due.
select task, rows, error from jobs.maintain() where task = 'periodic';
-- 400 days on a tick has passed.
call pg_temp.later('400 days');
select task, rows, error from jobs.maintain() where task = 'periodic';
select id, kind, state, queue, args, priority, max_attempts, tags, meta, timeout, attempt, expires_at, scheduled_at = date_trunc('year', now() at time zone 'Europe/Berlin') at time zone 'Europe/Berlin' as at_new_year,
  created_at > now() - interval '1 minute' as just_created from jobs.jobs where kind = 'k';
select retry, unique_key = decode(jobs.unique_key('k', '{"x": 1}', '{"by_args": true}', 'q'), 'hex') as its_key from jobs.job where kind = 'k';
select last_job_id, last_skipped, last_error, extract(year from next_run_at at time zone 'Europe/Berlin') - extract(year from last_run_at at time zone 'Europe/Berlin') as years from jobs.periodic;
-- It is done.
select rows, error from jobs.maintain() where task = 'periodic';
select jobs.unschedule('all');
-- There is none any more.
select jobs.unschedule('all');
select count(*) from jobs.periodic;

-- Defaults are those of the insertion.
select jobs.schedule('bare', '@yearly', 'bare') is not null as next;
select time_zone, kind, queue, args, unique_opts, priority, max_attempts, tags, meta, timeout, retry from jobs.periodic;
-- Of ticks that were missed the latest one.
call pg_temp.later('3660 days');
select rows, error from jobs.maintain() where task = 'periodic';
select rows, error from jobs.maintain() where task = 'periodic';
select id, state, queue, args, priority, max_attempts, tags, meta, timeout from jobs.jobs where kind = 'bare';
select * from pg_temp.past('bare');
-- The clock is put back: the ticks that were dealt with do not come again, not by a new definition
-- either.
call pg_temp.later('-800 days');
select rows from jobs.maintain() where task = 'periodic';
select (jobs.schedule('bare', '@yearly', 'bare')).next_run_at > last_run_at as after_the_last, last_run_at > now() as ahead from jobs.periodic;
select rows from jobs.maintain() where task = 'periodic';
select count(*) from jobs.jobs where kind = 'bare';
-- Unless it was ended.
select jobs.unschedule('bare');
select (jobs.schedule('bare', '@yearly', 'bare')).next_run_at = date_trunc('year', now()) + interval '1 year' as next_new_year;
select jobs.unschedule('bare');

-- Ticks that were missed by more than a minute get no job where they are to be skipped.
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'skip');
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'skip');
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'once');
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'skip');
select missed from jobs.periodic;
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
select last_run_at, last_job_id, last_error, next_run_at > now() as next from jobs.periodic;
-- Nor do they when a program defines it again first.
call pg_temp.later('400 days');
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'once');
select count(*) from jobs.jobs where kind = 'late';
select jobs.unschedule('late');
-- The latest tick is not missed if it is less than a minute late, however long nothing ran; nor is
-- one that was only put off.
select (jobs.schedule(n, c, n, missed => 'skip')).outcome from (values ('just now', 'every 1 second'), ('put off', 'every 1 day')) v(n, c);
update jobs.periodic_schedule set defined_at = now() - interval '2 days', next_run_at = now() - case name when 'put off' then interval '1 second' else '1 day' end;
select rows, error from jobs.maintain() where task = 'periodic';
select kind, count(*) from jobs.jobs where kind in ('just now', 'put off') group by 1 order by 1;
select jobs.unschedule(name) from jobs.periodic;

-- A definition is replaced as a whole.
select jobs.schedule('r', '@yearly', 'old', '{"x": 1}', 'Asia/Tokyo', '{"by_args": true}', 'q', 5, 7, '{t}', '{"m": 1}', '2 hours', '"river"') is not null as next;
select (jobs.schedule('r', 'every 1 day', 'new')).next_run_at = date_trunc('day', now()) + interval '1 day' as tomorrow;
select name, cron, time_zone, kind, queue, args, unique_opts, priority, max_attempts, tags, meta, timeout, retry from jobs.periodic;
-- A tick of the old one that has passed is dealt with first.
call pg_temp.later('3 days');
select (jobs.schedule('r', '@yearly', 'newer')).next_run_at > now() as future;
select kind, scheduled_at = date_trunc('day', created_at) as of_today from jobs.jobs where kind in ('old', 'new', 'newer');
select rows from jobs.maintain() where task = 'periodic';
select last_job_id = (select id from jobs.jobs where kind = 'new') as its_job from jobs.periodic;
-- Ticks from before the definition do not count.
select (jobs.schedule('r', 'every 1 second', 'second')).next_run_at > now() as future;
update jobs.periodic_schedule set next_run_at = now() - interval '1 hour', defined_at = now() + interval '1 hour', last_run_at = null;
select rows from jobs.maintain() where task = 'periodic';
select count(*) from jobs.jobs where kind = 'second';
select next_run_at - defined_at between '1 us' and '1 s' as next from jobs.periodic;
select jobs.unschedule('r');

-- Both are part of the caller's transaction.
begin;
select jobs.schedule('gone', '@yearly', 'gone') is not null as next;
rollback;
select jobs.schedule('stays', '@yearly', 'stays') is not null as next;
begin;
select jobs.unschedule('stays');
rollback;
call pg_temp.later('400 days');
begin;
select rows from jobs.maintain() where task = 'periodic';
rollback;
select name, last_run_at from jobs.periodic;
select rows from jobs.maintain() where task = 'periodic';
select count(*) from jobs.jobs where kind = 'stays';
select jobs.unschedule('stays');

-- Unique options: a duplicate is skipped, ..
select jobs.delete_many(states => enum_range(null::jobs.state)) > 0 as deleted;
select id from jobs.insert('u', queue => 'waits', unique_opts => '{"by_kind": true}') \gset existing_
select jobs.schedule('skip', '@yearly', 'u', unique_opts => '{"by_kind": true}') is not null as next;
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
select last_tick, job = :existing_id as existing, skipped, error from pg_temp.past('skip');
select count(*) from jobs.jobs where kind = 'u';
-- .. its tick is over, so it does not come when the existing job is gone, but the next one does.
select jobs.delete(:existing_id);
select rows, error from jobs.maintain() where task = 'periodic';
call pg_temp.later('366 days');
select rows, error from jobs.maintain() where task = 'periodic';
select last_tick, job > :existing_id as new, skipped, error from pg_temp.past('skip');
select jobs.unschedule('skip');
-- .. or rejected, which is nobody else's trouble, ..
select jobs.schedule(n, '@yearly', k, unique_opts => o) is not null as next from (values ('1 before', 'other', null), ('2 reject', 'u', '{"by_kind": true, "on_conflict": "reject"}'::jsonb), ('3 after', 'other', null)) v(n, k, o);
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
select kind, count(*) from jobs.jobs where kind in ('u', 'other') group by kind order by kind;
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
select jobs.unschedule(name) from jobs.periodic;
-- .. or replaces.
select jobs.schedule('replace', '@yearly', 'u', unique_opts => '{"by_kind": true, "on_conflict": "replace"}') is not null as next;
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
select j.state, j.id = p.last_job_id as of_the_tick, p.last_skipped from jobs.jobs j, jobs.periodic p where j.kind = 'u' order by j.id;
select jobs.unschedule('replace');
-- The period is that of the tick; two definitions can be one job, and a producer's job can be the
-- tick's.
select id from jobs.insert('p', unique_opts => '{"by_period": "1 day"}', scheduled_at => date_trunc('year', now()) + interval '3 hours') \gset of_the_day_
select id from jobs.insert('p', unique_opts => '{"by_period": "1 day"}') \gset of_today_
select jobs.schedule(n, c, k, unique_opts => '{"by_period": "1 day"}') is not null as next from (values ('p', '@yearly', 'p'), ('p1', '@yearly', 'p2'), ('p2', '0 12 1 jan *', 'p2')) v(n, c, k);
update jobs.periodic_schedule set defined_at = defined_at - interval '400 days', next_run_at = next_run_at - interval '400 days';
select rows, error from jobs.maintain() where task = 'periodic';
select last_job_id = :of_the_day_id as of_the_day, last_skipped from jobs.periodic where name = 'p';
select name, last_job_id = (select id from jobs.jobs where kind = 'p2') as one, last_skipped from jobs.periodic where kind = 'p2' order by name;
select count(*) from jobs.jobs where kind in ('p', 'p2');
select jobs.unschedule(name) from jobs.periodic;

-- A definition that cannot be inserted any more is nobody else's trouble either; the next tick may
-- be better.
select jobs.schedule(n, '@yearly', n) is not null as next from unnest('{a,b,c,d}'::text[]) n;
update jobs.periodic_schedule set kind = e'\n' where name = 'b';
update jobs.periodic_schedule set unique_opts = '{"by_moon": true}' where name = 'c';
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
update jobs.periodic_schedule set kind = 'b' where name = 'b';
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic';
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
select jobs.unschedule(name) from jobs.periodic where name <> 'a';
-- One that cannot be read is read again in an hour: no tick is over by that.
update jobs.periodic_schedule set time_zone = 'Mars/Olympus';
select jobs.schedule('other', '@yearly', 'other') is not null as next;
call pg_temp.later('366 days');
select rows, error from jobs.maintain() where task = 'periodic';
select name, last_error, next_run_at - now() between '59 minutes' and '61 minutes' as in_an_hour from jobs.periodic order by name;
update jobs.periodic_schedule set time_zone = 'UTC' where name = 'a';
select rows from jobs.maintain() where task = 'periodic';
call pg_temp.later('1 hour');
select rows from jobs.maintain() where task = 'periodic';
select * from (select name, last_error, last_job_id is not null as job, next_run_at > now() + interval '1 day' as next from jobs.periodic) x order by name;
select jobs.unschedule(name) from jobs.periodic;

-- Nor is what somebody has attached to a table.
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin if new.kind = 'refused' then raise exception 'refused %', 'here' using errcode = tg_argv[0]; end if; return new; end $$;
create trigger refuse before insert on jobs.job for each row execute function pg_temp.refuse('P0001');
select jobs.schedule(n, '@yearly', k) is not null as next from (values ('1', 'refused'), ('2', 'other')) v(n, k);
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
-- What may be over in a moment is tried again after a second.
drop trigger refuse on jobs.job;
create trigger refuse before insert on jobs.job for each row execute function pg_temp.refuse('55P03');
call pg_temp.later('366 days');
select rows, error from jobs.maintain() where task = 'periodic';
select count(*) from jobs.jobs where kind = 'refused';
select name, last_error, next_run_at - now() < '1 minute' as soon from jobs.periodic order by name;
drop trigger refuse on jobs.job;
call pg_temp.later('2 seconds');
select rows, error from jobs.maintain() where task = 'periodic';
select scheduled_at = date_trunc('year', created_at) as of_its_tick from jobs.jobs where kind = 'refused';
select name, last_error, next_run_at - now() < '1 minute' as soon from jobs.periodic order by name;
-- Who cancels means the whole call.
create trigger refuse before insert on jobs.job for each row execute function pg_temp.refuse('57014');
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic';
drop trigger refuse on jobs.job;
select rows, error from jobs.maintain() where task = 'periodic';
select jobs.unschedule(name) from jobs.periodic;

-- What a definition came to: created, changed, or left as it was, with what had passed.
select jobs.schedule('o', '@yearly', 'o', '{"x": 1}', tags => '{a}', timeout => '1 hour') = row('created', date_trunc('year', now()) + interval '1 year')::jobs.schedule_result as created;
select name, defined_at from jobs.periodic where name = 'o' \gset
select outcome, next_run_at = date_trunc('year', now()) + interval '1 year' as next from jobs.schedule('o', '@yearly', 'o', '{"x": 1}', tags => '{a}', timeout => '60 minutes');
select defined_at = :'defined_at' as as_it_was from jobs.periodic;
select string_agg((jobs.schedule('o', c, 'o', a, z, null, q, tags => '{a}', timeout => '1 hour')).outcome, ' ' order by n) from (values (1, '@yearly', '{"x": 2}'::jsonb, 'UTC', null), (2, '@monthly', '{"x": 2}', 'UTC', null), (3, '@monthly', '{"x": 2}', 'Asia/Tokyo', null), (4, '@monthly', '{"x": 2}', 'asia/tokyo', null), (5, '@monthly', '{"x": 2}', 'Asia/Tokyo', 'q'), (6, '@monthly', '{"x": 2}', 'Asia/Tokyo', 'q')) v(n, c, a, z, q);
select jobs.unschedule('o');

-- Paused, it has no ticks, and those that fall into the pause never come, nor one that had passed
-- before without having its job. Who paused it, when and why is shown, of the first who did.
select (jobs.schedule('pause', '@yearly', 'pause')).outcome;
call pg_temp.later('400 days');
select jobs.pause_periodic('pause', 'broken'), jobs.pause_periodic('pause', 'again');
select name, next_run_at, now() - paused_at < '1 minute' as just_now, paused_by = current_user as by_me, pause_reason from jobs.periodic;
select rows, error from jobs.maintain() where task = 'periodic';
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic';
-- Defined anew it stays so.
select jobs.schedule('pause', '@yearly', 'pause'), jobs.schedule('pause', '@yearly', 'paused', queue => 'p');
select rows from jobs.maintain() where task = 'periodic';
select jobs.resume_periodic('pause'), jobs.resume_periodic('pause', 'again');
select name, next_run_at = date_trunc('year', now()) + interval '1 year' as next_new_year, paused_at, paused_by, pause_reason, last_job_id from jobs.periodic;
select rows from jobs.maintain() where task = 'periodic';
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic';
select count(*) from jobs.jobs where kind ~ '^paused?$';
-- Undone with its transaction.
begin;
select jobs.pause_periodic('pause') \gset
rollback;
select paused_at, next_run_at is not null as next from jobs.periodic;
select jobs.unschedule('pause');

-- Run now, with all that the definition says, beside its ticks, also while it is paused.
select (jobs.schedule('now', '@yearly', 'now', '{"x": 1}', queue => 'n', priority => 7, max_attempts => 3, tags => '{t}', meta => '{"m": 1}', timeout => '2 hours', retry => '"oban"', unique_opts => '{"by_kind": true}')).outcome;
select next_run_at from jobs.periodic \gset
select jobs.run_periodic('now') as id \gset
select state, args, queue, priority, max_attempts, tags, meta, timeout, retry, scheduled_at = created_at as at_once from jobs.jobs where id = :id;
select next_run_at = :'next_run_at' as as_it_was, last_run_at, last_job_id, last_ticks from jobs.periodic;
-- A duplicate is the job that is there.
select jobs.run_periodic('now') = :id as same, count(*) from jobs.jobs where kind = 'now';
select jobs.pause_periodic('now'), jobs.cancel(:id), jobs.run_periodic('now') > :id as another;
select (jobs.schedule('now', '@yearly', 'now', unique_opts => '{"by_kind": true, "on_conflict": "reject"}')).outcome, pg_temp.code($$select jobs.run_periodic('now')$$);
select jobs.unschedule('now');
select call, pg_temp.try('select jobs.' || call || '_periodic(''nwo'')') from unnest('{pause,resume,run}'::text[]) call;

-- The latest ten ticks, newest first, with what became of their jobs.
select jobs.delete_many(states => enum_range(null::jobs.state)) > 0 as deleted;
select (jobs.schedule('ticks', 'every 1 day', 'ticks', unique_opts => '{"by_kind": true, "by_state": ["available"]}')).outcome;
do $$ begin for n in 1 .. 12 loop call pg_temp.later('1 day'); perform jobs.maintain(); if n % 3 = 0 then perform jobs.complete(f.id, f.token) from jobs.fetch() f; end if; commit; end loop; end $$;
select pg_temp.code('select jobs.run_periodic(''tick'')'), pg_temp.try('select jobs.run_periodic(''tick'')') ~ 'Did you mean "ticks"' as hint;
select t.n, t.at = p.last_run_at as at_its_time, t.state, t.skipped, t.error, t.job_id = lag(t.job_id) over (order by t.n) as same_job
  from jobs.periodic p, rows from (jsonb_to_recordset(p.last_ticks) as (at timestamptz, job_id bigint, state jobs.state, skipped boolean, error text)) with ordinality as t(at, job_id, state, skipped, error, n);
select last_ticks -> 0 -> 'job_id' = to_jsonb(last_job_id) as of_the_latest from jobs.periodic;
-- A tick that has no job says why.
update jobs.periodic_schedule set kind = e'\n';
call pg_temp.later('1 day');
select rows from jobs.maintain() where task = 'periodic';
select jsonb_array_length(last_ticks) as ticks, last_ticks -> 0 ->> 'error' as error, last_ticks -> 0 ->> 'job_id' as job, last_ticks -> 1 ->> 'skipped' as before from jobs.periodic;
select jobs.unschedule('ticks');

-- Time zones: a time of the day is that of the zone, summer and winter.
select z, ((jobs.schedule(z, '30 9 1 * *', 'zone', time_zone => z)).next_run_at at time zone z)::time as shown from unnest('{UTC,Europe/Berlin,America/New_York,Asia/Kathmandu,Australia/Lord_Howe,Pacific/Apia}'::text[]) z;
call pg_temp.later('40 days');
select rows from jobs.maintain() where task = 'periodic';
select distinct (scheduled_at at time zone time_zone)::time as shown, extract(day from scheduled_at at time zone time_zone) as day from jobs.jobs join jobs.periodic on id = last_job_id;
-- But not for what is every so often.
select count(distinct (jobs.schedule(z, 'every 12 hours', 'zone', time_zone => z)).next_run_at) from unnest('{UTC,Etc/UTC,etc/utc}'::text[]) z;

-- While a dump is being restored nothing is due: its sequence of ids is set last.
call pg_temp.later('40 days');
select last_value from jobs.job_seq \gset
alter sequence jobs.job_seq restart;
select rows, error from jobs.maintain() where task = 'periodic';
select setval('jobs.job_seq', :last_value) > 1 as set;
select rows, error from jobs.maintain() where task = 'periodic';
select min(id) > :last_value as new_ids from jobs.jobs join jobs.periodic on id = last_job_id where cron like 'every%' or time_zone like 'Pacific/%';
-- A sequence that was never used begins with the first definition.
set client_min_messages = warning;
drop extension jobs;
create extension jobs;
reset client_min_messages;
select jobs.schedule('alone', '@yearly', 'alone') is not null as next;
call pg_temp.later('400 days');
select rows from jobs.maintain() where task = 'periodic';
select kind, state from jobs.jobs;
