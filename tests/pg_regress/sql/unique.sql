-- What is a duplicate, and what happens to it.

-- The second insert is skipped: nothing is written, the existing job's row is the answer.
select id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue from jobs.insert('a', '{"n": 1}', '{"by_args": true}', 'first'); --> id|state|skipped|replaced_id|queue: 1|available|f|~|first
select id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue from jobs.insert('a', '{"n": 1.0}', '{"by_args": true}', 'second', priority => 7, meta => '{"x": 1}');
--> id|state|skipped|replaced_id|queue: 1|available|t|~|first
select created_at = (select created_at from jobs.jobs where id = 1) as its_created_at, scheduled_at = (select scheduled_at from jobs.jobs where id = 1) as its_scheduled_at
  from jobs.insert('a', '{"n": 1}', '{"by_args": true}', scheduled_at => '2999-01-01 00:00Z'); --> its_created_at|its_scheduled_at: t|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{"n": 2}', '{"by_args": true}'); --> id|skipped: 2|f
select id, queue, priority, meta, args from jobs.jobs order by id;
--> id|queue|priority|meta|args
--> 1|first|1|{}|{"n": 1}
--> 2|default|1|{}|{"n": 2}
-- Also for a job without uniqueness: it is no duplicate and counts as none.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{"n": 1}'); --> id|skipped: 3|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{"n": 1}', '{}'); --> id|skipped: 4|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{"n": 1}'); --> id|skipped: 5|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{"n": 1}', '{"by_args": true}'); --> id|skipped: 6|f
-- Keys compare what was inserted under the same dimensions.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_kind": true}'); --> id|skipped: 7|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_args": true}'); --> id|skipped: 8|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_queue": true}'); --> id|skipped: 9|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{"other": 1}', '{"by_state": ["available"]}'); --> id|skipped: 7|t
-- The kind belongs to the key unless it is excluded.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d1', '{}', '{"key": "same"}'); --> id|skipped: 10|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d2', '{}', '{"key": "same"}'); --> id|skipped: 11|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d1', '{}', '{"key": "same", "exclude_kind": true}'); --> id|skipped: 12|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d2', '{}', '{"key": "same", "exclude_kind": true}'); --> id|skipped: 12|t
-- A period: the same bucket, and the next one.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_period": "1 hour"}', scheduled_at => '2999-01-01 10:00Z'); --> id|skipped: 13|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_period": "1 hour"}', scheduled_at => '2999-01-01 10:59:59.999999Z'); --> id|skipped: 13|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_period": "1 hour"}', scheduled_at => '2999-01-01 11:00Z'); --> id|skipped: 14|f
-- meta and queue.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{"n": 1}', '{"by_meta": ["t.id"]}', meta => '{"t": {"id": 1, "x": 1}}'); --> id|skipped: 15|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{"n": 2}', '{"by_meta": ["t.id"]}', meta => '{"t": {"id": 1, "x": 2}}'); --> id|skipped: 15|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{"n": 2}', '{"by_meta": ["t.id"]}', meta => '{"t": {"id": 2}}'); --> id|skipped: 16|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('g', '{"n": 1}', '{"by_queue": true}', 'q1'); --> id|skipped: 17|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('g', '{"n": 1}', '{"by_queue": true}', 'q2'); --> id|skipped: 18|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('g', '{"n": 2}', '{"by_queue": true}', 'q1'); --> id|skipped: 17|t

-- by_state: an existing job of each state against a new one that looks for each state, and for the
-- default ones: all but cancelled and discarded.
create temp table existing (state jobs.state, id bigint);
insert into existing select s, (jobs.insert('s-' || s, '{}', '{"by_kind": true}', 'q-' || s, pending => s = 'pending',
  scheduled_at => case when s = 'scheduled' then timestamptz '2999-01-01 00:00Z' end)).id from unnest(enum_range(null::jobs.state)) s;
select e.state, f.id = e.id as fetched from existing e, jobs.fetch('q-' || e.state) f where e.state in ('running', 'retryable', 'completed', 'cancelled', 'discarded');
--> state|fetched: running|t, retryable|t, completed|t, cancelled|t, discarded|t
select (jobs.fail(id, pg_temp.token(id), 'x', '1 day')).state from existing where state = 'retryable'; --> retryable
select jobs.complete(id, pg_temp.token(id)) from existing where state = 'completed'; --> completed
select (jobs.fail(id, pg_temp.token(id), 'x', retryable => false)).state from existing where state = 'discarded'; --> discarded
select jobs.cancel(id, force => true) from existing where state = 'cancelled'; --> cancelled
select count(*) as as_intended from existing e join jobs.jobs j using (id, state); --> 8
-- Each is tried, then rolled back.
create function pg_temp.skipped(kind text, opts jsonb) returns text language plpgsql as $$
declare i record; answer text;
begin
  select * into i from jobs.insert(kind, '{}', opts);
  answer := case when i.unique_skipped_as_duplicate then i.id || ' ' || i.state else 'inserted' end;
  raise exception using errcode = 'ZZ000';
exception when sqlstate 'ZZ000' then return answer;
end $$;
select e.state as existing, string_agg(l.s::text, ' ' order by l.s) filter (where pg_temp.skipped('s-' || e.state, jsonb_build_object('by_kind', true, 'by_state', jsonb_build_array(l.s))) = e.id || ' ' || e.state) as counts_for,
       pg_temp.skipped('s-' || e.state, '{"by_kind": true}') = e.id || ' ' || e.state as by_default
  from existing e, unnest(enum_range(null::jobs.state)) l(s) group by e.state, e.id order by e.state;
--> existing|counts_for|by_default
--> available|available|t
--> scheduled|scheduled|t
--> pending|pending|t
--> running|running|t
--> retryable|retryable|t
--> completed|completed|t
--> cancelled|cancelled|f
--> discarded|discarded|f
-- All but its own.
select e.state, pg_temp.skipped('s-' || e.state, jsonb_build_object('by_kind', true, 'by_state', (select jsonb_agg(s) from unnest(enum_range(null::jobs.state)) s where s <> e.state))) from existing e order by e.state;
--> state|skipped
--> available|inserted
--> scheduled|inserted
--> pending|inserted
--> running|inserted
--> retryable|inserted
--> completed|inserted
--> cancelled|inserted
--> discarded|inserted

-- All existing jobs of the key are looked at; the newest that conflicts is the one answered with.
select id as base from jobs.insert('mark') \gset
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["running"]}'); --> n|skipped: 1|f
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["running"]}', pending => true); --> n|skipped: 2|f
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["running"]}'); --> n|skipped: 3|f
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["available", "pending"]}'); --> n|state|skipped: 3|available|t
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["pending"]}'); --> n|state|skipped: 2|pending|t
select jobs.cancel(:base + 3); --> cancelled
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true}'); --> n|state|skipped: 2|pending|t
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["available"]}'); --> n|state|skipped: 1|available|t
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["cancelled", "available"]}'); --> n|state|skipped: 3|cancelled|t

-- reject: 23505, DETAIL is one JSON object, and the key is nowhere in the error.
select pg_temp.try($$select jobs.insert('a', '{"n": 1}', '{"by_args": true, "on_conflict": "reject"}')$$);
--> 23505: a job with the same unique key exists
-->   {"existing_job_id":1,"existing_job_state":"available"}
select pg_temp.try($$select jobs.insert('s-running', '{}', '{"by_kind": true, "on_conflict": "reject"}')$$) ~ '"existing_job_state":"running"' as names_the_state; --> t
select pg_temp.try($$select jobs.insert('s-cancelled', '{}', '{"by_kind": true, "on_conflict": "reject"}')$$); --> ok
select strpos(pg_temp.try($$select jobs.insert('a', '{"n": 1}', '{"by_args": true, "on_conflict": "reject"}')$$), jobs.unique_key('a', '{"n": 1}', '{"by_args": true}')) as key_at; --> 0

-- Uniqueness is decided at insertion only: a job that comes back while its key is held by another
-- simply comes back.
select id as base from jobs.insert('mark') \gset
select id - :base as n from jobs.insert('r', '{}', '{"by_kind": true}', 'r'); --> 1
select jobs.cancel(:base + 1); --> cancelled
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true}', 'r'); --> n|skipped: 2|f
select jobs.retry(:base + 1); --> available
select id - :base as n, state from jobs.jobs where kind = 'r' order by id; --> n|state: 1|available, 2|available
-- Both count again; the newest answers.
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true}', 'r'); --> n|skipped: 2|t
select id - :base as n, complete as state from jobs.fetch('r', 10) f, jobs.complete(f.id, f.token) order by 1; --> n|state: 1|completed, 2|completed
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true}', 'r'); --> n|state|skipped: 2|completed|t
select id as newest, state, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true, "by_state": ["available"]}', 'r') \gset
\echo :state :skipped
--> available f
-- The older one that comes back counts too, when the newer ones do not.
select jobs.cancel(:newest); --> cancelled
select jobs.retry(:base + 1); --> available
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true, "by_state": ["available"]}', 'r'); --> n|state|skipped: 1|available|t

-- A deleted job is gone at once; a rolled back insert never was.
select id as base from jobs.insert('mark') \gset
select id - :base as n from jobs.insert('x', '{}', '{"by_kind": true}'); --> 1
select jobs.delete(:base + 1); --> available
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('x', '{}', '{"by_kind": true}'); --> n|skipped: 2|f
begin;
select unique_skipped_as_duplicate as skipped from jobs.insert('y', '{}', '{"by_kind": true}'); --> f
select unique_skipped_as_duplicate as skipped from jobs.insert('y', '{}', '{"by_kind": true}'); --> t
savepoint s;
select unique_skipped_as_duplicate as skipped from jobs.insert('z', '{}', '{"by_kind": true}'); --> f
rollback to s;
select unique_skipped_as_duplicate as skipped from jobs.insert('z', '{}', '{"by_kind": true}'); --> f
rollback;
select unique_skipped_as_duplicate as skipped from jobs.insert('y', '{}', '{"by_kind": true}'); --> f
select unique_skipped_as_duplicate as skipped from jobs.insert('z', '{}', '{"by_kind": true}'); --> f

-- A final job past its retention counts as gone, pruned or not: completed after 24 hours, discarded
-- after 7 days.
select jobs.complete(f.id, f.token) from jobs.insert('p', '{}', '{"by_kind": true}', 'p') i, lateral jobs.fetch('p') f; --> completed
select jobs.complete(f.id, f.token) from jobs.fetch('p') f; --> none
select (jobs.insert('p2', '{}', '{"by_kind": true, "by_state": ["discarded"]}', 'p2')).unique_skipped_as_duplicate as skipped; --> f
select (jobs.fail(f.id, f.token, 'x', retryable => false)).state from jobs.fetch('p2') f; --> discarded
call pg_temp.later('23 hours 59 minutes');
select pg_temp.skipped('p', '{"by_kind": true}') = 'inserted' as inserted; --> f
call pg_temp.later('2 minutes');
select pg_temp.skipped('p', '{"by_kind": true}') = 'inserted' as inserted; --> t
select pg_temp.skipped('p2', '{"by_kind": true, "by_state": ["discarded"]}') = 'inserted' as inserted; --> f
call pg_temp.later('5 days 23 hours 57 minutes');
select pg_temp.skipped('p2', '{"by_kind": true, "by_state": ["discarded"]}') = 'inserted' as inserted; --> f
call pg_temp.later('4 minutes');
select pg_temp.skipped('p2', '{"by_kind": true, "by_state": ["discarded"]}') = 'inserted' as inserted; --> t

-- wait: false changes nothing where no other session is at work.
select unique_skipped_as_duplicate as skipped from jobs.insert('w', '{}', '{"by_kind": true, "wait": false}'); --> f
select unique_skipped_as_duplicate as skipped, id is not null as its_id from jobs.insert('w', '{}', '{"by_kind": true, "wait": false}'); --> skipped|its_id: t|t
select ord, unique_skipped_as_duplicate as skipped from jobs.insert_batch('w2', array['1', '2', '1']::jsonb[], '{"by_args": true, "wait": false}') order by ord; --> ord|skipped: 1|f, 2|f, 3|t

-- A single unique insert takes an advisory lock on the first 8 bytes of the key; one that is
-- answered by a committed job takes none.
begin;
select unique_skipped_as_duplicate as skipped from jobs.insert('l', '{}', '{"by_kind": true}'); --> f
select (classid::bigint << 32) | objid::bigint = ('x' || left(jobs.unique_key('l', '{}', '{"by_kind": true}'), 16))::bit(64)::bigint as on_the_key, objsubid, mode, granted
  from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); --> on_the_key|objsubid|mode|granted: t|1|ExclusiveLock|t
commit;
begin;
select unique_skipped_as_duplicate as skipped from jobs.insert('l', '{}', '{"by_kind": true}'); --> t
select count(*) as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); --> 0
commit;
-- The first 16 of a transaction.
begin;
select count(*) as inserted from generate_series(1, 100) n, lateral jobs.insert('l16', to_jsonb(n), '{"by_args": true}') i where not i.unique_skipped_as_duplicate; --> 100
select count(*) as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); --> 16
rollback;

-- One key through its life many times: it is free each time that by_state lets it.
do $$
begin
  for n in 1..300 loop
    perform jobs.insert('cycle', '{}', '{"by_kind": true, "by_state": ["available", "running"]}', 'cycle');
    perform jobs.insert('cycle', '{}', '{"by_kind": true, "by_state": ["available", "running"]}', 'cycle');
    perform jobs.complete(f.id, f.token) from jobs.fetch('cycle', 10) f;
  end loop;
end $$;
select state, count(*) from jobs.jobs where kind = 'cycle' group by state; --> state|count: completed|300
select pg_temp.skipped('cycle', '{"by_kind": true}') <> 'inserted' as skipped; --> t
-- The period is that of scheduled_at, whenever a job is inserted, and each element has its own.
select unique_skipped_as_duplicate as skipped from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'period', 'unique_opts', '{"by_period": "1 day"}'::jsonb, 'scheduled_at', day))
  from unnest(array[null, '2999-01-06', '2999-01-07', '2001-01-05 12:00Z', '2999-01-07 23:59:59.999999Z', '2001-01-05 00:00Z']) day)) order by ord; --> f, f, f, f, t, t
