-- jobs.fetch: which jobs, in which order, and what it tells of them.
set application_name = 'tester';

-- An empty queue gives no rows, whatever its name.
select * from jobs.fetch(); --> none
select count(*) from jobs.fetch('nosuch', 10); --> 0

-- What is told of a job; attempt + 1, running, and the row is what jobs.jobs shows.
select id from jobs.insert('k', '{"n": 1}', null, 'q', 7, null, 3, '{a,b}', '{"m": 1}', '2 minutes'); --> 1
select id, token between 1 and 9007199254740991 as token, attempt, kind, args, meta, queue, priority, tags, max_attempts,
       attempted_at between now() and clock_timestamp() as now, lease_expires_at - attempted_at as lease, deadline_at - attempted_at as timeout,
       scheduled_at = created_at as due_at_once
  from jobs.fetch('q');
--> id|token|attempt|kind|args|meta|queue|priority|tags|max_attempts|now|lease|timeout|due_at_once
--> 1|t|1|k|{"n": 1}|{"m": 1}|q|7|{a,b}|3|t|00:02:00|00:02:00|t
select id, state, attempt, worker, queue, priority, token is not null as token, lease_expires_at - attempted_at as lease, deadline_at - attempted_at as timeout, finalized_at from jobs.jobs;
--> id|state|attempt|worker|queue|priority|token|lease|timeout|finalized_at
--> 1|running|1|tester|q|7|t|00:02:00|00:02:00|~
-- It is nobody else's now.
select count(*) from jobs.fetch('q', 10); --> 0

-- Order: lower priority number first, then in the order in which they became available.
select count(*) from (values ('a', 5), ('b', -3), ('c', 5), ('d', null), ('e', -32768), ('f', 32767), ('g', -3)) v(kind, priority), lateral jobs.insert(v.kind, priority => v.priority) i; --> 7
select row_number() over () as n, kind, priority from jobs.fetch(max_jobs => 3);
--> n|kind|priority
--> 1|e|-32768
--> 2|b|-3
--> 3|g|-3
select row_number() over () as n, kind, priority from jobs.fetch(max_jobs => 100);
--> n|kind|priority
--> 1|d|1
--> 2|a|5
--> 3|c|5
--> 4|f|32767
select count(distinct token) from jobs.jobs where state = 'running'; --> 8
-- A job that comes back joins the end of its lane.
select count(*) from (values ('1'), ('2'), ('3')) v(kind), lateral jobs.insert(v.kind, queue => 'lane') i; --> 3
select kind, release as state from jobs.fetch('lane') f, jobs.release(f.id, f.token); --> kind|state: 1|available
select kind from jobs.fetch('lane', 10); --> 2, 3, 1
-- Jobs become available when they are due, before those that are inserted later.
select count(*) from (values ('late', 2), ('early', 1)) v(kind, n), lateral jobs.insert(v.kind, queue => 'due', scheduled_at => now() + v.n * interval '1 hour') i; --> 2
select kind from jobs.fetch('due', 10); --> none
call pg_temp.later('59 minutes');
select kind from jobs.fetch('due', 10); --> none
call pg_temp.later('2 hours');
select kind, scheduled_at - created_at between interval '59 minutes 59 seconds' and interval '2 hours' as scheduled from jobs.fetch('due', 10); --> kind|scheduled: early|t, late|t

-- Only these kinds; none of them; the queue's other jobs stay.
select count(*) from (values ('x'), ('y'), ('x'), ('z')) v(kind), lateral jobs.insert(v.kind, queue => 'kinds') i; --> 4
select kind from jobs.fetch('kinds', 10, kinds => '{}'); --> none
select kind from jobs.fetch('kinds', 10, kinds => '{nosuch,''}'); --> none
select kind from jobs.fetch('kinds', 10, kinds => '{z,x}'); --> x, x, z
select kind from jobs.fetch('kinds', 10, kinds => '{{x,y},{y,y}}'); --> y
select kind from jobs.fetch('kinds', 10); --> none

-- worker: as given, else application_name, else the process id.
select count(*) from generate_series(1, 4) n, lateral jobs.insert('w', to_jsonb(n), queue => 'w') i; --> 4
select (select worker from jobs.jobs j where j.id = f.id) is null as not_in_this_snapshot from jobs.fetch('w', worker => 'me ''"; --') f; --> t
select count(*) from jobs.fetch('w'); --> 1
set application_name = '';
select count(*) from jobs.fetch('w'); --> 1
select args, case when worker = pg_backend_pid()::text then 'the process id' else worker end as worker from jobs.jobs where queue = 'w' and state = 'running' order by id;
--> args|worker: 1|me '"; --, 2|tester, 3|the process id
set application_name = 'tester';

-- lease: the argument, else the timeout, else 1 hour; never past the deadline.
create temp table leases (n int, timeout interval, lease interval);
insert into leases values (1, null, null), (2, '10 minutes', null), (3, '-1', null), (4, '10 minutes', '1 minute'), (5, '10 minutes', '1 hour'), (6, '-1', '5 minutes'), (7, '-1', '2 days'), (8, null, '1 microsecond'), (9, '1 microsecond', null);
select count(*) from leases, lateral jobs.insert('l', to_jsonb(n), queue => 'l' || n, timeout => timeout) i; --> 9
select n, timeout, lease, lease_expires_at - attempted_at as leased, deadline_at - attempted_at as deadline from leases, lateral jobs.fetch('l' || n, lease => lease) order by n;
--> n|timeout|lease|leased|deadline
--> 1|~|~|00:01:00|00:01:00
--> 2|00:10:00|~|00:10:00|00:10:00
--> 3|-00:00:01|~|01:00:00|~
--> 4|00:10:00|00:01:00|00:01:00|00:10:00
--> 5|00:10:00|01:00:00|00:10:00|00:10:00
--> 6|-00:00:01|00:05:00|00:05:00|~
--> 7|-00:00:01|2 days|2 days|~
--> 8|~|00:00:00.000001|00:00:00.000001|00:01:00
--> 9|00:00:00.000001|~|00:00:00.000001|00:00:00.000001

-- An expired job is never fetched, also before it is swept.
select count(*) from (values (interval '-1 second'), ('1 hour'), (null)) v(after), lateral jobs.insert('e', queue => 'e', expires_at => clock_timestamp() + v.after) i; --> 3
select id from jobs.insert('e', queue => 'e', scheduled_at => clock_timestamp() + interval '1 hour', expires_at => clock_timestamp() + interval '90 minutes'); --> 37
begin;
select count(*) from jobs.fetch('e', 10); --> 2
rollback;
call pg_temp.later('2 hours');
select count(*) from jobs.fetch('e', 10); --> 1
-- Pending jobs are not fetched.
select state from jobs.insert('p', queue => 'p', pending => true, scheduled_at => '2001-01-01 00:00Z'); --> pending
select count(*) from jobs.fetch('p', 10); --> 0

-- max_jobs: 1 to 10,000.
select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[10001]), queue => 'many'); --> 10001
select count(*), count(distinct token) as tokens, count(distinct id) as ids from jobs.fetch('many', 10000); --> count|tokens|ids: 10000|10000|10000
select count(*) from jobs.fetch('many', 10000); --> 1
-- Queues are compared exactly.
select count(*) from jobs.insert('k', queue => 'Q'); --> 1
select count(*) from jobs.fetch('q', 10); --> 0
select count(*) from jobs.fetch('Q', 10); --> 1
-- A job whose timeout ends after the end of time does not stop those behind it.
do $$ begin perform jobs.insert('long', queue => 'long', timeout => '178000000 years'); exception when invalid_parameter_value then null; end $$;
select id is not null as inserted from jobs.insert('behind', queue => 'long'); --> t
select kind from jobs.fetch('long', 10) where kind = 'behind'; --> behind
-- It is part of the transaction: given back by a rollback, the attempt did not happen.
select count(*) from jobs.insert('k', queue => 'tx'); --> 1
begin;
select attempt from jobs.fetch('tx'); --> 1
rollback;
select attempt from jobs.fetch('tx'); --> 1
-- attempts count up with every fetch.
select attempt, (jobs.fail(id, token, 'x', '0')).state from jobs.jobs where queue = 'tx'; --> attempt|state: 1|available
select attempt from jobs.fetch('tx'); --> 2

-- What is refused.
select pg_temp.refusals('select jobs.fetch(%s)', array_agg(call)) from (values
  ($$null$$), ($$''$$), ($$repeat('q', 128)$$), ($$e'q\n'$$), ($$'q', null$$), ($$'q', 0$$), ($$'q', -1$$), ($$'q', 10001$$), ($$'q', 2147483647$$),
  ($$lease => '0'$$), ($$lease => '-1 second'$$), ($$lease => '-1 day'$$), ($$kinds => '{a,null}'$$)) v(call);
--> null | 22004: queue must not be null
--> 'q', null | 22004: max_jobs must not be null
--> kinds => '{a,null}' | 22004: an element of kinds must not be null
--> '' | 22023: queue must not be empty
--> repeat('q', 128) | 22023: queue "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq..." is too long: 128 characters
--> e'q\n' | 22023: queue "q\n" contains a control character
-->   A queue must have 1 to 127 characters and no control characters.
--> 'q', 0 | 22023: max_jobs 0 is out of range
--> 'q', -1 | 22023: max_jobs -1 is out of range
--> 'q', 10001 | 22023: max_jobs 10001 is out of range
--> 'q', 2147483647 | 22023: max_jobs 2147483647 is out of range
-->   max_jobs must be between 1 and 10000.
--> lease => '0' | 22023: lease "00:00:00" is out of range
--> lease => '-1 second' | 22023: lease "-00:00:01" is out of range
--> lease => '-1 day' | 22023: lease "-1 days" is out of range
-->   lease must be longer than 0 and at most 1000 years.
-- A lease after the end of time.
select pg_temp.code($$select jobs.fetch('q', lease => '178000000 years')$$) in ('ok', '22023') as an_answer_of_ours; --> t
select count(*) from jobs.insert('k', queue => 'forever', timeout => '-1'); --> 1
select pg_temp.code($$select jobs.fetch('forever', lease => '178000000 years')$$) in ('ok', '22023') as an_answer_of_ours; --> t
select pg_temp.try($$select jobs.fetch(worker => '')$$); --> ok
