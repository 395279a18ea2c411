-- jobs.fetch_any: as jobs.fetch, in the strict order of the queues given.

select count(*) from (values ('a', 'low', -5), ('b', 'high', 5), ('c', 'low', 1), ('d', 'high', 9), ('e', 'other', 1)) v(kind, queue, priority), lateral jobs.insert(v.kind, queue => v.queue, priority => v.priority) i;
--> 5
begin;
select row_number() over () as n, kind, queue from jobs.fetch_any('{high,low}', 10);
--> n|kind|queue
--> 1|b|high
--> 2|d|high
--> 3|a|low
--> 4|c|low
rollback;
begin;
select row_number() over () as n, kind, queue from jobs.fetch_any('{low,nosuch,high,low}', 10);
--> n|kind|queue
--> 1|a|low
--> 2|c|low
--> 3|b|high
--> 4|d|high
rollback;
begin;
select row_number() over () as n, kind, queue from jobs.fetch_any('{{low,high},{other,nosuch}}', 10);
--> n|kind|queue
--> 1|a|low
--> 2|c|low
--> 3|b|high
--> 4|d|high
--> 5|e|other
rollback;
-- A queue is looked at only when the ones before it have nothing left.
select kind, queue from jobs.fetch_any('{high,low}'); --> kind|queue: b|high
select kind, queue from jobs.fetch_any('{high,low}', 2); --> kind|queue: d|high, a|low
select kind, queue, attempt, lease_expires_at - attempted_at as lease from jobs.fetch_any('{high,low,other}', 2, 'me', '30 seconds', '{c,e}');
--> kind|queue|attempt|lease
--> c|low|1|00:00:30
--> e|other|1|00:00:30
select kind, worker from jobs.jobs where worker = 'me' order by kind; --> kind|worker: c|me, e|me
select count(*) from jobs.fetch_any('{high,low,other}', 10); --> 0
select count(*) from jobs.fetch_any('{}', 10); --> 0
-- Due jobs of each queue.
select count(*) from (values ('x', 'q1'), ('y', 'q2')) v(kind, queue), lateral jobs.insert(v.kind, queue => v.queue, scheduled_at => now() + interval '1 minute') i; --> 2
call pg_temp.later('2 minutes');
select kind from jobs.fetch_any('{q2,q1}', 10); --> y, x
-- Thousands of queues.
select count(*) from jobs.insert('k', queue => 'q 3000'); --> 1
select kind, queue from jobs.fetch_any((select array_agg('q ' || n) from generate_series(1, 3000) n), 10000); --> kind|queue: k|q 3000

select pg_temp.refusals('select jobs.fetch_any(%s)', array_agg(call)) from (values
  ($$null$$), ($$'{null}'$$), ($$'{a,null}'$$), ($$'{a,""}'$$), ($$array['a', repeat('q', 128)]$$), ($$array[e'a\tb']$$),
  ($$'{a}', null$$), ($$'{a}', 0$$), ($$'{a}', 10001$$), ($$'{}', 0$$), ($$'{a}', lease => '0'$$), ($$'{a}', kinds => '{null}'$$)) v(call);
--> null | 22004: queues must not be null
--> '{null}' | 22004: an element of queues must not be null
--> '{a,null}' | 22004: an element of queues must not be null
--> '{a}', null | 22004: max_jobs must not be null
--> '{a}', kinds => '{null}' | 22004: an element of kinds must not be null
--> '{a,""}' | 22023: an element of queues must not be empty
--> array['a', repeat('q', 128)] | 22023: an element of queues "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq..." is too long: 128 characters
--> array[e'a\tb'] | 22023: an element of queues "a\tb" contains a control character
-->   A queue must have 1 to 127 characters and no control characters.
--> '{a}', 0 | 22023: max_jobs 0 is out of range
--> '{a}', 10001 | 22023: max_jobs 10001 is out of range
--> '{}', 0 | 22023: max_jobs 0 is out of range
-->   max_jobs must be between 1 and 10000.
--> '{a}', lease => '0' | 22023: lease "00:00:00" is out of range
-->   lease must be longer than 0 and at most 1000 years.
