-- jobs.schedule, jobs.unschedule, jobs.periodic: a job a tick, what it is inserted with, ticks that
-- were missed, definitions that are replaced.
-- A job is inserted first, so that the sequence of ids has begun; a tick of @yearly is not near,
-- unless somebody sees the new year in with this test.
select id from jobs.insert('first'); --> 1
-- What a definition shows of its past: ticks as years from this one.
create function pg_temp.past(name text) returns table (last_tick int, job bigint, skipped boolean, error text) language sql as $$
  select extract(year from last_run_at)::int - extract(year from now())::int, last_job_id, last_skipped, last_error from jobs.periodic p where p.name = $1 $$;

-- All parameters. The answer is the next tick.
select (jobs.schedule(name => 'all', cron => '@yearly', kind => 'k', args => '{"x": 1}', time_zone => 'europe/berlin', unique_opts => '{"by_args": true}', queue => 'q', priority => -3,
  max_attempts => 7, tags => '{a,b c}', meta => '{"m": 1}', timeout => '2 hours', retry => '"river"', missed => 'once', reason => 'r')).next_run_at = (date_trunc('year', now() at time zone 'Europe/Berlin') + interval '1 year') at time zone 'Europe/Berlin' as next_new_year;
--> t
select name, cron, time_zone, kind, queue, args, unique_opts, priority, max_attempts, tags, meta, timeout, retry, last_run_at, last_job_id, last_skipped, last_error, now() - defined_at < '1 minute' as just_defined from jobs.periodic;
--> name|cron|time_zone|kind|queue|args|unique_opts|priority|max_attempts|tags|meta|timeout|retry|last_run_at|last_job_id|last_skipped|last_error|just_defined
--> all|@yearly|Europe/Berlin|k|q|{"x": 1}|{"by_args": true}|-3|7|{a,"b c"}|{"m": 1}|02:00:00|"river"|~|~|f|~|t
-- Nothing is due.
select task, rows, error from jobs.maintain() where task = 'periodic'; --> task|rows|error: periodic|0|~
-- 400 days on a tick has passed.
call pg_temp.later('400 days');
select task, rows, error from jobs.maintain() where task = 'periodic'; --> task|rows|error: periodic|1|~
select id, kind, state, queue, args, priority, max_attempts, tags, meta, timeout, attempt, expires_at, scheduled_at = date_trunc('year', now() at time zone 'Europe/Berlin') at time zone 'Europe/Berlin' as at_new_year,
  created_at > now() - interval '1 minute' as just_created from jobs.jobs where kind = 'k';
--> id|kind|state|queue|args|priority|max_attempts|tags|meta|timeout|attempt|expires_at|at_new_year|just_created
--> 2|k|available|q|{"x": 1}|-3|7|{a,"b c"}|{"m": 1}|02:00:00|0|~|t|t
select retry, unique_key = decode(jobs.unique_key('k', '{"x": 1}', '{"by_args": true}', 'q'), 'hex') as its_key from jobs.job where kind = 'k'; --> retry|its_key: "river"|t
select last_job_id, last_skipped, last_error, extract(year from next_run_at at time zone 'Europe/Berlin') - extract(year from last_run_at at time zone 'Europe/Berlin') as years from jobs.periodic;
--> last_job_id|last_skipped|last_error|years: 2|f|~|1
-- It is done.
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
select jobs.unschedule('all'); --> t
-- There is none any more.
select jobs.unschedule('all'); --> f
select count(*) from jobs.periodic; --> 0

-- Defaults are those of the insertion.
select jobs.schedule('bare', '@yearly', 'bare') is not null as next; --> t
select time_zone, kind, queue, args, unique_opts, priority, max_attempts, tags, meta, timeout, retry from jobs.periodic;
--> time_zone|kind|queue|args|unique_opts|priority|max_attempts|tags|meta|timeout|retry
--> UTC|bare|default|{}|~|~|~|~|~|~|~
-- Of ticks that were missed the latest one.
call pg_temp.later('3660 days');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
select id, state, queue, args, priority, max_attempts, tags, meta, timeout from jobs.jobs where kind = 'bare';
--> id|state|queue|args|priority|max_attempts|tags|meta|timeout
--> 3|available|default|{}|1|25|{}|{}|00:01:00
select * from pg_temp.past('bare'); --> last_tick|job|skipped|error: 0|3|f|~
-- The clock is put back: the ticks that were dealt with do not come again, not by a new definition
-- either.
call pg_temp.later('-800 days');
select rows from jobs.maintain() where task = 'periodic'; --> 0
select (jobs.schedule('bare', '@yearly', 'bare')).next_run_at > last_run_at as after_the_last, last_run_at > now() as ahead from jobs.periodic; --> after_the_last|ahead: t|t
select rows from jobs.maintain() where task = 'periodic'; --> 0
select count(*) from jobs.jobs where kind = 'bare'; --> 1
-- Unless it was ended.
select jobs.unschedule('bare'); --> t
select (jobs.schedule('bare', '@yearly', 'bare')).next_run_at = date_trunc('year', now()) + interval '1 year' as next_new_year; --> t
select jobs.unschedule('bare'); --> t

-- Ticks that were missed by more than a minute get no job where they are to be skipped.
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'skip'); --> created
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'skip'); --> unchanged
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'once'); --> changed
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'skip'); --> changed
select missed from jobs.periodic; --> skip
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select last_run_at, last_job_id, last_error, next_run_at > now() as next from jobs.periodic; --> last_run_at|last_job_id|last_error|next: ~|~|~|t
-- Nor do they when a program defines it again first.
call pg_temp.later('400 days');
select outcome from jobs.schedule('late', '@yearly', 'late', missed => 'once'); --> changed
select count(*) from jobs.jobs where kind = 'late'; --> 0
select jobs.unschedule('late'); --> t
-- The latest tick is not missed if it is less than a minute late, however long nothing ran; nor is
-- one that was only put off.
select (jobs.schedule(n, c, n, missed => 'skip')).outcome from (values ('just now', 'every 1 second'), ('put off', 'every 1 day')) v(n, c); --> created, created
update jobs.periodic_schedule set defined_at = now() - interval '2 days', next_run_at = now() - case name when 'put off' then interval '1 second' else '1 day' end;
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 2|~
select kind, count(*) from jobs.jobs where kind in ('just now', 'put off') group by 1 order by 1; --> kind|count: just now|1, put off|1
select jobs.unschedule(name) from jobs.periodic; --> t, t

-- A definition is replaced as a whole.
select jobs.schedule('r', '@yearly', 'old', '{"x": 1}', 'Asia/Tokyo', '{"by_args": true}', 'q', 5, 7, '{t}', '{"m": 1}', '2 hours', '"river"') is not null as next; --> t
select (jobs.schedule('r', 'every 1 day', 'new')).next_run_at = date_trunc('day', now()) + interval '1 day' as tomorrow; --> t
select name, cron, time_zone, kind, queue, args, unique_opts, priority, max_attempts, tags, meta, timeout, retry from jobs.periodic;
--> name|cron|time_zone|kind|queue|args|unique_opts|priority|max_attempts|tags|meta|timeout|retry
--> r|every 1 day|UTC|new|default|{}|~|~|~|~|~|~|~
-- A tick of the old one that has passed is dealt with first.
call pg_temp.later('3 days');
select (jobs.schedule('r', '@yearly', 'newer')).next_run_at > now() as future; --> t
select kind, scheduled_at = date_trunc('day', created_at) as of_today from jobs.jobs where kind in ('old', 'new', 'newer'); --> kind|of_today: new|t
select rows from jobs.maintain() where task = 'periodic'; --> 0
select last_job_id = (select id from jobs.jobs where kind = 'new') as its_job from jobs.periodic; --> t
-- Ticks from before the definition do not count.
select (jobs.schedule('r', 'every 1 second', 'second')).next_run_at > now() as future; --> t
update jobs.periodic_schedule set next_run_at = now() - interval '1 hour', defined_at = now() + interval '1 hour', last_run_at = null;
select rows from jobs.maintain() where task = 'periodic'; --> 1
select count(*) from jobs.jobs where kind = 'second'; --> 0
select next_run_at - defined_at between '1 us' and '1 s' as next from jobs.periodic; --> t
select jobs.unschedule('r'); --> t

-- Both are part of the caller's transaction.
begin;
select jobs.schedule('gone', '@yearly', 'gone') is not null as next; --> t
rollback;
select jobs.schedule('stays', '@yearly', 'stays') is not null as next; --> t
begin;
select jobs.unschedule('stays'); --> t
rollback;
call pg_temp.later('400 days');
begin;
select rows from jobs.maintain() where task = 'periodic'; --> 1
rollback;
select name, last_run_at from jobs.periodic; --> name|last_run_at: stays|~
select rows from jobs.maintain() where task = 'periodic'; --> 1
select count(*) from jobs.jobs where kind = 'stays'; --> 1
select jobs.unschedule('stays'); --> t

-- Unique options: a duplicate is skipped, ..
select jobs.delete_many(states => enum_range(null::jobs.state)) > 0 as deleted; --> t
select id from jobs.insert('u', queue => 'waits', unique_opts => '{"by_kind": true}') \gset existing_
select jobs.schedule('skip', '@yearly', 'u', unique_opts => '{"by_kind": true}') is not null as next; --> t
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select last_tick, job = :existing_id as existing, skipped, error from pg_temp.past('skip'); --> last_tick|existing|skipped|error: 0|t|t|~
select count(*) from jobs.jobs where kind = 'u'; --> 1
-- .. its tick is over, so it does not come when the existing job is gone, but the next one does.
select jobs.delete(:existing_id); --> available
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
call pg_temp.later('366 days');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select last_tick, job > :existing_id as new, skipped, error from pg_temp.past('skip'); --> last_tick|new|skipped|error: 0|t|f|~
select jobs.unschedule('skip'); --> t
-- .. or rejected, which is nobody else's trouble, ..
select jobs.schedule(n, '@yearly', k, unique_opts => o) is not null as next from (values ('1 before', 'other', null), ('2 reject', 'u', '{"by_kind": true, "on_conflict": "reject"}'::jsonb), ('3 after', 'other', null)) v(n, k, o);
--> t, t, t
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
--> WARNING:  jobs: periodic job "2 reject" skipped a tick: a job with the same unique key exists
--> rows|error: 3|~
select kind, count(*) from jobs.jobs where kind in ('u', 'other') group by kind order by kind; --> kind|count: other|2, u|1
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
--> name|last_tick|job|skipped|error
--> 1 before|0|t|f|~
--> 2 reject|0|f|f|a job with the same unique key exists
--> 3 after|0|t|f|~
select jobs.unschedule(name) from jobs.periodic; --> t, t, t
-- .. or replaces.
select jobs.schedule('replace', '@yearly', 'u', unique_opts => '{"by_kind": true, "on_conflict": "replace"}') is not null as next; --> t
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select j.state, j.id = p.last_job_id as of_the_tick, p.last_skipped from jobs.jobs j, jobs.periodic p where j.kind = 'u' order by j.id;
--> state|of_the_tick|last_skipped
--> cancelled|f|f
--> available|t|f
select jobs.unschedule('replace'); --> t
-- The period is that of the tick; two definitions can be one job, and a producer's job can be the
-- tick's.
select id from jobs.insert('p', unique_opts => '{"by_period": "1 day"}', scheduled_at => date_trunc('year', now()) + interval '3 hours') \gset of_the_day_
select id from jobs.insert('p', unique_opts => '{"by_period": "1 day"}') \gset of_today_
select jobs.schedule(n, c, k, unique_opts => '{"by_period": "1 day"}') is not null as next from (values ('p', '@yearly', 'p'), ('p1', '@yearly', 'p2'), ('p2', '0 12 1 jan *', 'p2')) v(n, c, k);
--> t, t, t
update jobs.periodic_schedule set defined_at = defined_at - interval '400 days', next_run_at = next_run_at - interval '400 days';
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 3|~
select last_job_id = :of_the_day_id as of_the_day, last_skipped from jobs.periodic where name = 'p'; --> of_the_day|last_skipped: t|t
select name, last_job_id = (select id from jobs.jobs where kind = 'p2') as one, last_skipped from jobs.periodic where kind = 'p2' order by name;
--> name|one|last_skipped
--> p1|t|f
--> p2|t|t
select count(*) from jobs.jobs where kind in ('p', 'p2'); --> 3
select jobs.unschedule(name) from jobs.periodic; --> t, t, t

-- A definition that cannot be inserted any more is nobody else's trouble either; the next tick may
-- be better.
select jobs.schedule(n, '@yearly', n) is not null as next from unnest('{a,b,c,d}'::text[]) n; --> t, t, t, t
update jobs.periodic_schedule set kind = e'\n' where name = 'b';
update jobs.periodic_schedule set unique_opts = '{"by_moon": true}' where name = 'c';
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
--> WARNING:  jobs: periodic job "b" skipped a tick: kind "\n" contains a control character
--> WARNING:  jobs: periodic job "c" skipped a tick: field "by_moon" of unique_opts is not known
--> rows|error: 4|~
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
--> name|last_tick|job|skipped|error
--> a|0|t|f|~
--> b|0|f|f|kind "\n" contains a control character
--> c|0|f|f|field "by_moon" of unique_opts is not known
--> d|0|t|f|~
update jobs.periodic_schedule set kind = 'b' where name = 'b';
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic';
--> WARNING:  jobs: periodic job "c" skipped a tick: field "by_moon" of unique_opts is not known
--> 4
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
--> name|last_tick|job|skipped|error
--> a|0|t|f|~
--> b|0|t|f|~
--> c|0|f|f|field "by_moon" of unique_opts is not known
--> d|0|t|f|~
select jobs.unschedule(name) from jobs.periodic where name <> 'a'; --> t, t, t
-- One that cannot be read is read again in an hour: no tick is over by that.
update jobs.periodic_schedule set time_zone = 'Mars/Olympus';
select jobs.schedule('other', '@yearly', 'other') is not null as next; --> t
call pg_temp.later('366 days');
select rows, error from jobs.maintain() where task = 'periodic';
--> WARNING:  jobs: periodic job "a" cannot be read: time_zone "Mars/Olympus" is not known
--> rows|error: 2|~
select name, last_error, next_run_at - now() between '59 minutes' and '61 minutes' as in_an_hour from jobs.periodic order by name;
--> name|last_error|in_an_hour
--> a|time_zone "Mars/Olympus" is not known|t
--> other|~|f
update jobs.periodic_schedule set time_zone = 'UTC' where name = 'a';
select rows from jobs.maintain() where task = 'periodic'; --> 0
call pg_temp.later('1 hour');
select rows from jobs.maintain() where task = 'periodic'; --> 1
select * from (select name, last_error, last_job_id is not null as job, next_run_at > now() + interval '1 day' as next from jobs.periodic) x order by name;
--> name|last_error|job|next
--> a|~|t|t
--> other|~|t|t
select jobs.unschedule(name) from jobs.periodic; --> t, t

-- Nor is what a session has attached to a table.
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin if new.kind = 'refused' then raise exception 'refused %', 'here' using errcode = tg_argv[0]; end if; return new; end $$;
create trigger refuse before insert on jobs.job for each row execute function pg_temp.refuse('P0001');
select jobs.schedule(n, '@yearly', k) is not null as next from (values ('1', 'refused'), ('2', 'other')) v(n, k); --> t, t
call pg_temp.later('400 days');
select rows, error from jobs.maintain() where task = 'periodic';
--> WARNING:  jobs: periodic job "1" skipped a tick: refused here
--> rows|error: 2|~
select name, last_tick, job is not null as job, skipped, error from jobs.periodic, lateral pg_temp.past(name) order by name;
--> name|last_tick|job|skipped|error
--> 1|0|f|f|refused here
--> 2|0|t|f|~
-- What may be over in a moment is tried again after a second.
drop trigger refuse on jobs.job;
create trigger refuse before insert on jobs.job for each row execute function pg_temp.refuse('55P03');
call pg_temp.later('366 days');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select count(*) from jobs.jobs where kind = 'refused'; --> 0
select name, last_error, next_run_at - now() < '1 minute' as soon from jobs.periodic order by name;
--> name|last_error|soon
--> 1|refused here|t
--> 2|~|f
drop trigger refuse on jobs.job;
call pg_temp.later('2 seconds');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select scheduled_at = date_trunc('year', created_at) as of_its_tick from jobs.jobs where kind = 'refused'; --> t
select name, last_error, next_run_at - now() < '1 minute' as soon from jobs.periodic order by name;
--> name|last_error|soon
--> 1|~|f
--> 2|~|f
-- Who cancels means the whole call.
create trigger refuse before insert on jobs.job for each row execute function pg_temp.refuse('57014');
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic'; --> ERROR:  refused here
drop trigger refuse on jobs.job;
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 2|~
select jobs.unschedule(name) from jobs.periodic; --> t, t

-- What a definition came to: created, changed, or left as it was, with what had passed.
select jobs.schedule('o', '@yearly', 'o', '{"x": 1}', tags => '{a}', timeout => '1 hour') = row('created', date_trunc('year', now()) + interval '1 year')::jobs.schedule_result as created; --> t
select name, defined_at from jobs.periodic where name = 'o' \gset
select outcome, next_run_at = date_trunc('year', now()) + interval '1 year' as next from jobs.schedule('o', '@yearly', 'o', '{"x": 1}', tags => '{a}', timeout => '60 minutes');
--> outcome|next: unchanged|t
select defined_at = :'defined_at' as as_it_was from jobs.periodic; --> t
select string_agg((jobs.schedule('o', c, 'o', a, z, null, q, tags => '{a}', timeout => '1 hour')).outcome, ' ' order by n) from (values (1, '@yearly', '{"x": 2}'::jsonb, 'UTC', null), (2, '@monthly', '{"x": 2}', 'UTC', null), (3, '@monthly', '{"x": 2}', 'Asia/Tokyo', null), (4, '@monthly', '{"x": 2}', 'asia/tokyo', null), (5, '@monthly', '{"x": 2}', 'Asia/Tokyo', 'q'), (6, '@monthly', '{"x": 2}', 'Asia/Tokyo', 'q')) v(n, c, a, z, q);
--> changed changed changed unchanged changed unchanged
select jobs.unschedule('o'); --> t

-- Paused, it has no ticks, and those that fall into the pause never come, nor one that had passed
-- before without having its job. Who paused it, when and why is shown, of the first who did.
select (jobs.schedule('pause', '@yearly', 'pause')).outcome; --> created
call pg_temp.later('400 days');
select jobs.pause_periodic('pause', 'broken'), jobs.pause_periodic('pause', 'again');
select name, next_run_at, now() - paused_at < '1 minute' as just_now, paused_by = current_user as by_me, pause_reason from jobs.periodic;
--> name|next_run_at|just_now|by_me|pause_reason: pause|~|t|t|broken
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic'; --> 0
-- Defined anew it stays so.
select jobs.schedule('pause', '@yearly', 'pause'), jobs.schedule('pause', '@yearly', 'paused', queue => 'p'); --> schedule|schedule: (unchanged,)|(changed,)
select rows from jobs.maintain() where task = 'periodic'; --> 0
select jobs.resume_periodic('pause'), jobs.resume_periodic('pause', 'again');
select name, next_run_at = date_trunc('year', now()) + interval '1 year' as next_new_year, paused_at, paused_by, pause_reason, last_job_id from jobs.periodic;
--> name|next_new_year|paused_at|paused_by|pause_reason|last_job_id: pause|t|~|~|~|~
select rows from jobs.maintain() where task = 'periodic'; --> 0
call pg_temp.later('366 days');
select rows from jobs.maintain() where task = 'periodic'; --> 1
select count(*) from jobs.jobs where kind ~ '^paused?$'; --> 1
-- Undone with its transaction.
begin;
select jobs.pause_periodic('pause') \gset
rollback;
select paused_at, next_run_at is not null as next from jobs.periodic; --> paused_at|next: ~|t
select jobs.unschedule('pause'); --> t

-- Run now, with all that the definition says, beside its ticks, also while it is paused.
select (jobs.schedule('now', '@yearly', 'now', '{"x": 1}', queue => 'n', priority => 7, max_attempts => 3, tags => '{t}', meta => '{"m": 1}', timeout => '2 hours', retry => '"oban"', unique_opts => '{"by_kind": true}')).outcome;
--> created
select next_run_at from jobs.periodic \gset
select jobs.run_periodic('now') as id \gset
select state, args, queue, priority, max_attempts, tags, meta, timeout, retry, scheduled_at = created_at as at_once from jobs.jobs where id = :id;
--> state|args|queue|priority|max_attempts|tags|meta|timeout|retry|at_once
--> available|{"x": 1}|n|7|3|{t}|{"m": 1}|02:00:00|"oban"|t
select next_run_at = :'next_run_at' as as_it_was, last_run_at, last_job_id, last_ticks from jobs.periodic; --> as_it_was|last_run_at|last_job_id|last_ticks: t|~|~|[]
-- A duplicate is the job that is there.
select jobs.run_periodic('now') = :id as same, count(*) from jobs.jobs where kind = 'now'; --> same|count: t|1
select jobs.pause_periodic('now'), jobs.cancel(:id), jobs.run_periodic('now') > :id as another; --> pause_periodic|cancel|another: |cancelled|t
select (jobs.schedule('now', '@yearly', 'now', unique_opts => '{"by_kind": true, "on_conflict": "reject"}')).outcome, pg_temp.code($$select jobs.run_periodic('now')$$); --> outcome|code: changed|23505
select jobs.unschedule('now'); --> t
select pg_temp.refusals('select jobs.%s_periodic(''nwo'')', '{pause,resume,run}'::text[]);
--> pause | P0002: periodic job "nwo" does not exist | Use jobs.schedule to define it.
--> resume | P0002: periodic job "nwo" does not exist | Use jobs.schedule to define it.
--> run | P0002: periodic job "nwo" does not exist | Use jobs.schedule to define it.

-- The latest ten ticks, newest first, with the outcome of their jobs.
select jobs.delete_many(states => enum_range(null::jobs.state)) > 0 as deleted; --> t
select (jobs.schedule('ticks', 'every 1 day', 'ticks', unique_opts => '{"by_kind": true, "by_state": ["available"]}')).outcome; --> created
do $$ begin for n in 1 .. 12 loop call pg_temp.later('1 day'); perform jobs.maintain(); if n % 3 = 0 then perform jobs.complete(f.id, f.token) from jobs.fetch() f; end if; commit; end loop; end $$;
select pg_temp.code('select jobs.run_periodic(''tick'')'), pg_temp.try('select jobs.run_periodic(''tick'')') ~ 'Did you mean "ticks"' as hint; --> code|hint: P0002|t
select t.n, t.at = p.last_run_at as at_its_time, t.state, t.skipped, t.error, t.job_id = lag(t.job_id) over (order by t.n) as same_job
  from jobs.periodic p, rows from (jsonb_to_recordset(p.last_ticks) as (at timestamptz, job_id bigint, state jobs.state, skipped boolean, error text)) with ordinality as t(at, job_id, state, skipped, error, n);
--> n|at_its_time|state|skipped|error|same_job
--> 1|t|completed|t|~|~
--> 2|t|completed|t|~|t
--> 3|t|completed|f|~|t
--> 4|t|~|t|~|f
--> 5|t|~|t|~|t
--> 6|t|~|f|~|t
--> 7|t|~|t|~|f
--> 8|t|~|t|~|t
--> 9|t|~|f|~|t
--> 10|t|~|t|~|f
select last_ticks -> 0 -> 'job_id' = to_jsonb(last_job_id) as of_the_latest from jobs.periodic; --> t
-- A tick that has no job says why.
update jobs.periodic_schedule set kind = e'\n';
call pg_temp.later('1 day');
select rows from jobs.maintain() where task = 'periodic';
--> WARNING:  jobs: periodic job "ticks" skipped a tick: kind "\n" contains a control character
--> 1
select jsonb_array_length(last_ticks) as ticks, last_ticks -> 0 ->> 'error' as error, last_ticks -> 0 ->> 'job_id' as job, last_ticks -> 1 ->> 'skipped' as before from jobs.periodic;
--> ticks|error|job|before: 10|kind "\n" contains a control character|~|true
select jobs.unschedule('ticks'); --> t

-- Time zones: a time of the day is that of the zone, summer and winter.
select z, ((jobs.schedule(z, '30 9 1 * *', 'zone', time_zone => z)).next_run_at at time zone z)::time as shown from unnest('{UTC,Europe/Berlin,America/New_York,Asia/Kathmandu,Australia/Lord_Howe,Pacific/Apia}'::text[]) z;
--> z|shown
--> UTC|09:30:00
--> Europe/Berlin|09:30:00
--> America/New_York|09:30:00
--> Asia/Kathmandu|09:30:00
--> Australia/Lord_Howe|09:30:00
--> Pacific/Apia|09:30:00
call pg_temp.later('40 days');
select rows from jobs.maintain() where task = 'periodic'; --> 6
select distinct (scheduled_at at time zone time_zone)::time as shown, extract(day from scheduled_at at time zone time_zone) as day from jobs.jobs join jobs.periodic on id = last_job_id;
--> shown|day: 09:30:00|1
-- But not for what is every so often.
select count(distinct (jobs.schedule(z, 'every 12 hours', 'zone', time_zone => z)).next_run_at) from unnest('{UTC,Etc/UTC,etc/utc}'::text[]) z; --> 1

-- While a dump is being restored nothing is due: its sequence of ids is set last.
call pg_temp.later('40 days');
select last_value from jobs.job_seq \gset
alter sequence jobs.job_seq restart;
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
select setval('jobs.job_seq', :last_value) > 1 as set; --> t
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 8|~
select min(id) > :last_value as new_ids from jobs.jobs join jobs.periodic on id = last_job_id where cron like 'every%' or time_zone like 'Pacific/%'; --> t
-- A sequence that was never used begins with the first definition.
set client_min_messages = warning;
drop extension jobs;
create extension jobs;
reset client_min_messages;
select jobs.schedule('alone', '@yearly', 'alone') is not null as next; --> t
call pg_temp.later('400 days');
select rows from jobs.maintain() where task = 'periodic'; --> 1
select kind, state from jobs.jobs; --> kind|state: alone|available
