-- Workers that say that they are there: jobs.worker_beat, quiet_worker, stop_worker, resume_worker,
-- and the view jobs.workers.

-- With all parameters, and with those that are needed.
select jobs.worker_beat(worker => 'w1', queues => '{mail,default}', concurrency => 10, info => '{"version": "1.2", "host": "a"}'); --> run
select jobs.worker_beat('w2', '{}', 1); --> run
select worker, status, queues, concurrency, busy, running, version, info, command, last_seen_at = first_seen_at as once, job_ids, kinds, oldest_attempted_at, next_lease_expires_at, expired, cancel_requested
  from jobs.workers order by worker;
--> worker|status|queues|concurrency|busy|running|version|info|command|once|job_ids|kinds|oldest_attempted_at|next_lease_expires_at|expired|cancel_requested
--> w1|idle|{mail,default}|10|0|0|1.2|{"host": "a", "version": "1.2"}|~|t|{}|{}|~|~|0|0
--> w2|idle|{}|1|0|0|~|~|~|t|{}|{}|~|~|0|0

-- Bad input.
select pg_temp.refusals('select jobs.%s', array[
  'worker_beat(null, ''{q}'', 1)', 'worker_beat('''', ''{q}'', 1)', 'worker_beat(repeat(''w'', 128), ''{q}'', 1)', 'worker_beat(''w'', null, 1)', 'worker_beat(''w'', ''{q,null}'', 1)',
  'worker_beat(''w'', ''{""}'', 1)', 'worker_beat(''w'', ''{q}'', null)', 'worker_beat(''w'', ''{q}'', 0)', 'worker_beat(''w'', ''{q}'', 1, ''[]'')',
  'quiet_worker(null)', 'stop_worker('''')', 'resume_worker(e''a\tb'')', 'worker_leave(null)']);
--> worker_beat(null, '{q}', 1) | 22004: worker must not be null
--> worker_beat('w', null, 1) | 22004: queues must not be null
--> worker_beat('w', '{q,null}', 1) | 22004: an element of queues must not be null
--> worker_beat('w', '{q}', null) | 22004: concurrency must not be null
--> quiet_worker(null) | 22004: worker must not be null
--> worker_leave(null) | 22004: worker must not be null
--> worker_beat('', '{q}', 1) | 22023: worker must not be empty
--> worker_beat(repeat('w', 128), '{q}', 1) | 22023: worker "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww..." is too long: 128 characters
--> stop_worker('') | 22023: worker must not be empty
--> resume_worker(e'a\tb') | 22023: worker "a\tb" contains a control character
-->   A worker must have 1 to 127 characters and no control characters.
--> worker_beat('w', '{""}', 1) | 22023: an element of queues must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> worker_beat('w', '{q}', 0) | 22023: concurrency 0 is too low
-->   concurrency must be at least 1.
--> worker_beat('w', '{q}', 1, '[]') | 22023: info must not be an array
-->   info must be an object.
select count(*) from jobs.workers; --> 2
-- Each of them takes the names that a fetch takes, and no others.
begin;
select what, array_agg(distinct pg_temp.code(format('select jobs.' || call, name))) as codes
  from (values (1, ' ', 'a space'), (2, repeat('ä', 127), 'the longest'), (3, repeat('w', 128), 'too long'), (4, e'a\tb', 'a tab'), (5, u&'\0085', 'of C1'), (6, '"%\''', 'quotes')) v(n, name, what),
       unnest(array['fetch(worker => %L)', 'fetch_any(''{q}'', worker => %L)', 'worker_beat(%L, ''{q}'', 1)', 'quiet_worker(%L)', 'stop_worker(%L)', 'resume_worker(%L)']) call
 group by n, what order by n;
--> what|codes
--> a space|{ok}
--> the longest|{ok}
--> too long|{22023}
--> a tab|{22023}
--> of C1|{22023}
--> quotes|{ok}
rollback;

-- A beat that says nothing new writes nothing; one that does writes, and so does any a while later.
begin;
select jobs.worker_beat('w5', '{mail}', 10, '{"a": 1, "b": 2}'); --> run
create function pg_temp.version() returns text language sql volatile as $$ select w.cmin::text from jobs.worker w where w.worker = 'w5' $$;
select pg_temp.version() as seen \gset
select jobs.worker_beat('w5', '{mail}', 10, '{"b": 2, "a": 1}'); --> run
select pg_temp.version() = :'seen' as untouched; --> t
select jobs.worker_beat('w5', '{mail}', 11, '{"a": 1, "b": 2}'); --> run
select pg_temp.version() = :'seen' as untouched, pg_temp.version() as seen \gset other_
select :'other_untouched' = 't' as untouched; --> f
select jobs.worker_beat('w5', '{mail,default}', 11, '{"a": 1, "b": 2}'); --> run
select pg_temp.version() = :'other_seen' as untouched; --> f
select jobs.worker_beat('w5', '{mail,default}', 11); --> run
select info from jobs.worker where worker = 'w5'; --> ~
-- Another scale is something else.
select jobs.worker_beat('w5', '{mail,default}', 11, info) from (values (1, '{"a": 1}'::jsonb), (2, '{"a": 1.0}')) v(n, info) order by n; --> run, run
select info from jobs.worker where worker like 'w5'; --> {"a": 1.0}
call pg_temp.later('3 seconds');
select jobs.worker_beat('w5', '{mail,default}', 11); --> run
select last_seen_at > first_seen_at as later, last_seen_at > clock_timestamp() - interval '3 seconds' as seen from jobs.worker where worker = 'w5'; --> later|seen: t|t
rollback;
-- What is left out is not what was said before.
select jobs.worker_beat('w1', '{mail}', 10); --> run
select info, version from jobs.workers where worker = 'w1'; --> info|version: ~|~

-- Busy: what it holds, by the name that it fetches with. One that never says that it is there is
-- shown while it holds jobs.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, '{9}'), queue => 'mail'); --> 9
select count(*) from jobs.fetch('mail', 2, worker => 'w1') a, jobs.fetch('mail', 1, worker => 'w3') b; --> 2
select worker, status, running, busy, concurrency, queues, last_seen_at is not null as seen from jobs.workers order by worker;
--> worker|status|running|busy|concurrency|queues|seen
--> w1|busy|2|2|10|{mail}|t
--> w2|idle|0|0|1|{}|t
--> w3|busy|1|1|~|{mail}|f

-- Quiet: from then on it gets nothing, in this session and in others, by either function; what it
-- holds it keeps. Others go on.
select jobs.quiet_worker('w1', reason => 'deploy') \gset
select jobs.worker_beat('w1', '{mail}', 10); --> quiet
select count(*) from jobs.fetch('mail', worker => 'w1'); --> 0
select count(*) from jobs.fetch_any('{default,mail}', worker => 'w1'); --> 0
select count(*) from jobs.fetch('mail', worker => 'w2'); --> 1
select (jobs.heartbeat(id, token)).cancel_requested from jobs.jobs where worker = 'w1' limit 1; --> f
select worker, status, command, commanded_at between now() - interval '1 minute' and clock_timestamp() as at, commanded_by = session_user as by, command_reason from jobs.workers where command is not null;
--> worker|status|command|at|by|command_reason: w1|quiet|quiet|t|t|deploy
-- By the session's name, too, where the fetch gives none, or an empty one.
set application_name = 'w1';
select count(*) from jobs.fetch('mail'); --> 0
select count(*) from jobs.fetch('mail', worker => ''); --> 0
set application_name = 'w4';
select count(*) from jobs.fetch('mail'); --> 1
reset application_name;
-- Stop takes the place of quiet; resume removes either. Again, nothing changes.
select jobs.stop_worker('w1') \gset
select jobs.worker_beat('w1', '{mail}', 10); --> stop
select status, command, command_reason from jobs.workers where worker = 'w1'; --> status|command|command_reason: stop|stop|~
select count(*) from jobs.fetch('mail', worker => 'w1'); --> 0
select jobs.resume_worker('w1', reason => 'all is well'), jobs.resume_worker('w1');
select action, target, reason, arguments from jobs.audit order by at;
--> action|target|reason|arguments
--> quiet_worker|w1|deploy|{}
--> stop_worker|w1|~|{}
--> resume_worker|w1|all is well|{}
select jobs.worker_beat('w1', '{mail}', 10); --> run
select count(*) from jobs.fetch('mail', worker => 'w1'); --> 1
-- A name that no session has used yet.
select jobs.stop_worker('new', 'not yet') \gset
select worker, status, running, last_seen_at, command_reason from jobs.workers where worker = 'new'; --> worker|status|running|last_seen_at|command_reason: new|stop|0|~|not yet
select count(*) from jobs.fetch('mail', worker => 'new'); --> 0
select jobs.worker_beat('new', '{mail}', 1); --> stop
-- What is rolled back was never commanded.
begin;
select jobs.resume_worker('new') \gset
select count(*) from jobs.fetch('mail', worker => 'new'); --> 1
select jobs.worker_beat('new', '{mail}', 1); --> run
rollback;
select jobs.worker_beat('new', '{mail}', 1); --> stop
begin;
select jobs.quiet_worker('w2') \gset
rollback;
select jobs.worker_beat('w2', '{}', 1); --> run
-- An older snapshot shows the command from before; the next transaction knows.
begin isolation level repeatable read;
select count(*) from jobs.fetch('nothing', worker => 'w1'); --> 0
commit;
select jobs.quiet_worker('w1') \gset
begin isolation level serializable;
select count(*) from jobs.fetch('mail', worker => 'w1'); --> 0
commit;
select jobs.resume_worker('w1') \gset

-- Lost, a minute after it was seen last; whoever never said anything cannot be. With a command it
-- is shown as lost all the same.
select jobs.quiet_worker('w2', 'gone') \gset
call pg_temp.later('30 seconds');
select worker, status, command from jobs.workers order by worker;
--> worker|status|command
--> new|stop|stop
--> w1|busy|~
--> w2|quiet|quiet
--> w3|busy|~
--> w4|busy|~
select labels ->> 'status' as status, value from jobs.metrics() where metric = 'jobs_known_workers' order by 1; --> status|value: busy|3, idle|0, lost|0, quiet|1, stop|1
call pg_temp.later('31 seconds');
select worker, status, command from jobs.workers order by worker;
--> worker|status|command
--> new|lost|stop
--> w1|lost|~
--> w2|lost|quiet
--> w3|busy|~
--> w4|busy|~
select labels ->> 'status' as status, value from jobs.metrics() where metric = 'jobs_known_workers' order by 1; --> status|value: busy|2, idle|0, lost|3, quiet|0, stop|0
-- A day later it is forgotten, unless it was seen meanwhile. Its command stays longer.
select jobs.worker_beat('w1', '{mail}', 10); --> run
call pg_temp.later('23 hours');
select error from jobs.maintain() where error is not null; --> none
select worker, first_seen_at is not null as known, status, command from jobs.workers where worker in ('w1', 'w2', 'new') order by worker;
--> worker|known|status|command
--> new|t|lost|stop
--> w1|t|lost|~
--> w2|t|lost|quiet
select jobs.worker_beat('w1', '{mail}', 10); --> run
call pg_temp.later('2 hours');
select rows > 0 as some, error from jobs.maintain() where task = 'prune'; --> some|error: t|~
select worker, first_seen_at is not null as known, status, command from jobs.workers where worker in ('w1', 'w2', 'new') order by worker;
--> worker|known|status|command
--> new|f|stop|stop
--> w1|t|lost|~
--> w2|f|quiet|quiet
select worker from jobs.worker; --> w1
-- The command of a worker is forgotten after 30 days in which it has neither fetched nor beaten,
-- once it runs nothing.
select count(*) from jobs.insert('k', queue => 'slow', timeout => '-1 s'); --> 1
select id, token from jobs.fetch('slow', worker => 'busy', lease => '900 days') \gset
select jobs.quiet_worker('busy'), jobs.quiet_worker('fetches'), jobs.stop_worker('beats');
call pg_temp.later('20 days');
select count(*) from jobs.fetch('mail', worker => 'fetches'); --> 0
select jobs.worker_beat('beats', '{mail}', 1); --> stop
call pg_temp.later('11 days');
select error from jobs.maintain() where task = 'prune'; --> ~
select worker, command from jobs.workers where command is not null order by worker; --> worker|command: beats|stop, busy|quiet, fetches|quiet
select jobs.worker_beat('new', '{mail}', 1); --> run
select jobs.complete(:id, :token); --> completed
call pg_temp.later('20 days');
select error from jobs.maintain() where task = 'prune'; --> ~
select worker, command from jobs.workers where command is not null order by worker; --> none

-- A worker that leaves is gone at once, unless it holds jobs: then it can still be lost.
select jobs.worker_beat('leaves', '{mail}', 1); --> run
select jobs.worker_leave('leaves') as known, jobs.worker_leave('leaves') as again, jobs.worker_leave('busy') as never_beat; --> known|again|never_beat: t|f|f
select count(*) from jobs.workers where worker = 'leaves'; --> 0
select jobs.worker_beat('holds', '{held}', 1), count(*) from jobs.insert('k', queue => 'held'); --> worker_beat|count: run|1
select count(*) from jobs.fetch('held', worker => 'holds'); --> 1
select jobs.worker_leave('holds'); --> f
select status, running from jobs.workers where worker = 'holds'; --> status|running: busy|1
call pg_temp.later('61 seconds');
select status, running from jobs.workers where worker = 'holds'; --> status|running: lost|1
