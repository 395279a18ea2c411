\set ECHO none
-- jobs.fetch_any: as jobs.fetch, in the strict order of the queues given.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select count(*) from (values ('a', 'low', -5), ('b', 'high', 5), ('c', 'low', 1), ('d', 'high', 9), ('e', 'other', 1)) v(kind, queue, priority), lateral jobs.insert(v.kind, queue => v.queue, priority => v.priority) i;
begin;
select row_number() over () as n, kind, queue from jobs.fetch_any('{high,low}', 10);
rollback;
begin;
select row_number() over () as n, kind, queue from jobs.fetch_any('{low,nosuch,high,low}', 10);
rollback;
begin;
select row_number() over () as n, kind, queue from jobs.fetch_any('{{low,high},{other,nosuch}}', 10);
rollback;
-- A queue is looked at only when the ones before it have nothing left.
select kind, queue from jobs.fetch_any('{high,low}');
select kind, queue from jobs.fetch_any('{high,low}', 2);
select kind, queue, attempt, lease_expires_at - attempted_at as lease from jobs.fetch_any('{high,low,other}', 2, 'me', '30 seconds', '{c,e}');
select kind, worker from jobs.jobs where worker = 'me' order by kind;
select count(*) from jobs.fetch_any('{high,low,other}', 10);
select count(*) from jobs.fetch_any('{}', 10);
-- Due jobs of each queue.
select count(*) from (values ('x', 'q1'), ('y', 'q2')) v(kind, queue), lateral jobs.insert(v.kind, queue => v.queue, scheduled_at => now() + interval '1 minute') i;
call pg_temp.later('2 minutes');
select kind from jobs.fetch_any('{q2,q1}', 10);
-- Thousands of queues.
select count(*) from jobs.insert('k', queue => 'q 3000');
select kind, queue from jobs.fetch_any((select array_agg('q ' || n) from generate_series(1, 3000) n), 10000);

select call, pg_temp.try('select jobs.fetch_any(' || call || ')') from (values
  ($$null$$), ($$'{null}'$$), ($$'{a,null}'$$), ($$'{a,""}'$$), ($$array['a', repeat('q', 128)]$$), ($$array[e'a\tb']$$),
  ($$'{a}', null$$), ($$'{a}', 0$$), ($$'{a}', 10001$$), ($$'{}', 0$$), ($$'{a}', lease => '0'$$), ($$'{a}', kinds => '{null}'$$)) v(call);
