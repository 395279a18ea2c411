\set ECHO none
-- What is a duplicate, and what happens to it.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- The second insert is skipped: nothing is written, the existing job's row is the answer.
select id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue from jobs.insert('a', '{"n": 1}', '{"by_args": true}', 'first');
select id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue from jobs.insert('a', '{"n": 1.0}', '{"by_args": true}', 'second', priority => 7, meta => '{"x": 1}');
select created_at = (select created_at from jobs.jobs where id = 1) as its_created_at, scheduled_at = (select scheduled_at from jobs.jobs where id = 1) as its_scheduled_at
  from jobs.insert('a', '{"n": 1}', '{"by_args": true}', scheduled_at => '2999-01-01 00:00Z');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{"n": 2}', '{"by_args": true}');
select id, queue, priority, meta, args from jobs.jobs order by id;
-- Also for a job without uniqueness: it is no duplicate and counts as none.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{"n": 1}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{"n": 1}', '{}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{"n": 1}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{"n": 1}', '{"by_args": true}');
-- Keys compare what was inserted under the same dimensions.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_kind": true}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_args": true}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_queue": true}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{"other": 1}', '{"by_state": ["available"]}');
-- The kind belongs to the key unless it is excluded.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d1', '{}', '{"key": "same"}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d2', '{}', '{"key": "same"}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d1', '{}', '{"key": "same", "exclude_kind": true}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d2', '{}', '{"key": "same", "exclude_kind": true}');
-- A period: the same bucket, and the next one.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_period": "1 hour"}', scheduled_at => '2999-01-01 10:00Z');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_period": "1 hour"}', scheduled_at => '2999-01-01 10:59:59.999999Z');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_period": "1 hour"}', scheduled_at => '2999-01-01 11:00Z');
-- meta and queue.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{"n": 1}', '{"by_meta": ["t.id"]}', meta => '{"t": {"id": 1, "x": 1}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{"n": 2}', '{"by_meta": ["t.id"]}', meta => '{"t": {"id": 1, "x": 2}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{"n": 2}', '{"by_meta": ["t.id"]}', meta => '{"t": {"id": 2}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('g', '{"n": 1}', '{"by_queue": true}', 'q1');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('g', '{"n": 1}', '{"by_queue": true}', 'q2');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('g', '{"n": 2}', '{"by_queue": true}', 'q1');

-- by_state: an existing job of each state against a new one that looks for each state, and for the
-- default ones: all but cancelled and discarded.
create temp table existing (state jobs.state, id bigint);
insert into existing select s, (jobs.insert('s-' || s, '{}', '{"by_kind": true}', 'q-' || s, pending => s = 'pending',
  scheduled_at => case when s = 'scheduled' then timestamptz '2999-01-01 00:00Z' end)).id from unnest(enum_range(null::jobs.state)) s;
select e.state, f.id = e.id as fetched from existing e, jobs.fetch('q-' || e.state) f where e.state in ('running', 'retryable', 'completed', 'cancelled', 'discarded');
select (jobs.fail(id, pg_temp.token(id), 'x', '1 day')).state from existing where state = 'retryable';
select jobs.complete(id, pg_temp.token(id)) from existing where state = 'completed';
select (jobs.fail(id, pg_temp.token(id), 'x', retryable => false)).state from existing where state = 'discarded';
select jobs.cancel(id, force => true) from existing where state = 'cancelled';
select count(*) as as_intended from existing e join jobs.jobs j using (id, state);
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
-- All but its own.
select e.state, pg_temp.skipped('s-' || e.state, jsonb_build_object('by_kind', true, 'by_state', (select jsonb_agg(s) from unnest(enum_range(null::jobs.state)) s where s <> e.state))) from existing e order by e.state;

-- All existing jobs of the key are looked at; the newest that conflicts is the one answered with.
select id as base from jobs.insert('mark') \gset
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["running"]}');
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["running"]}', pending => true);
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["running"]}');
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["available", "pending"]}');
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["pending"]}');
select jobs.cancel(:base + 3);
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true}');
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["available"]}');
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('m', '{}', '{"by_kind": true, "by_state": ["cancelled", "available"]}');

-- reject: 23505, DETAIL is one JSON object, and the key is nowhere in the error.
select pg_temp.try($$select jobs.insert('a', '{"n": 1}', '{"by_args": true, "on_conflict": "reject"}')$$);
select pg_temp.try($$select jobs.insert('s-running', '{}', '{"by_kind": true, "on_conflict": "reject"}')$$) ~ '"existing_job_state":"running"' as names_the_state;
select pg_temp.try($$select jobs.insert('s-cancelled', '{}', '{"by_kind": true, "on_conflict": "reject"}')$$);
select strpos(pg_temp.try($$select jobs.insert('a', '{"n": 1}', '{"by_args": true, "on_conflict": "reject"}')$$), jobs.unique_key('a', '{"n": 1}', '{"by_args": true}')) as key_at;

-- Uniqueness is decided at insertion only: a job that comes back while its key is held by another
-- simply comes back.
select id as base from jobs.insert('mark') \gset
select id - :base as n from jobs.insert('r', '{}', '{"by_kind": true}', 'r');
select jobs.cancel(:base + 1);
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true}', 'r');
select jobs.retry(:base + 1);
select id - :base as n, state from jobs.jobs where kind = 'r' order by id;
-- Both count again; the newest answers.
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true}', 'r');
select id - :base as n, complete as state from jobs.fetch('r', 10) f, jobs.complete(f.id, f.token) order by 1;
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true}', 'r');
select id as newest, state, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true, "by_state": ["available"]}', 'r') \gset
\echo :state :skipped
-- The older one that comes back counts too, when the newer ones do not.
select jobs.cancel(:newest);
select jobs.retry(:base + 1);
select id - :base as n, state, unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_kind": true, "by_state": ["available"]}', 'r');

-- A deleted job is gone at once; a rolled back insert never was.
select id as base from jobs.insert('mark') \gset
select id - :base as n from jobs.insert('x', '{}', '{"by_kind": true}');
select jobs.delete(:base + 1);
select id - :base as n, unique_skipped_as_duplicate as skipped from jobs.insert('x', '{}', '{"by_kind": true}');
begin;
select unique_skipped_as_duplicate as skipped from jobs.insert('y', '{}', '{"by_kind": true}');
select unique_skipped_as_duplicate as skipped from jobs.insert('y', '{}', '{"by_kind": true}');
savepoint s;
select unique_skipped_as_duplicate as skipped from jobs.insert('z', '{}', '{"by_kind": true}');
rollback to s;
select unique_skipped_as_duplicate as skipped from jobs.insert('z', '{}', '{"by_kind": true}');
rollback;
select unique_skipped_as_duplicate as skipped from jobs.insert('y', '{}', '{"by_kind": true}');
select unique_skipped_as_duplicate as skipped from jobs.insert('z', '{}', '{"by_kind": true}');

-- A final job past its retention counts as gone, pruned or not: completed after 24 hours, discarded
-- after 7 days.
select jobs.complete(f.id, f.token) from jobs.insert('p', '{}', '{"by_kind": true}', 'p') i, lateral jobs.fetch('p') f;
select jobs.complete(f.id, f.token) from jobs.fetch('p') f;
select (jobs.insert('p2', '{}', '{"by_kind": true, "by_state": ["discarded"]}', 'p2')).unique_skipped_as_duplicate as skipped;
select (jobs.fail(f.id, f.token, 'x', retryable => false)).state from jobs.fetch('p2') f;
call pg_temp.later('23 hours 59 minutes');
select pg_temp.skipped('p', '{"by_kind": true}') = 'inserted' as inserted;
call pg_temp.later('2 minutes');
select pg_temp.skipped('p', '{"by_kind": true}') = 'inserted' as inserted;
select pg_temp.skipped('p2', '{"by_kind": true, "by_state": ["discarded"]}') = 'inserted' as inserted;
call pg_temp.later('5 days 23 hours 57 minutes');
select pg_temp.skipped('p2', '{"by_kind": true, "by_state": ["discarded"]}') = 'inserted' as inserted;
call pg_temp.later('4 minutes');
select pg_temp.skipped('p2', '{"by_kind": true, "by_state": ["discarded"]}') = 'inserted' as inserted;

-- wait: false changes nothing where nobody else is at work.
select unique_skipped_as_duplicate as skipped from jobs.insert('w', '{}', '{"by_kind": true, "wait": false}');
select unique_skipped_as_duplicate as skipped, id is not null as its_id from jobs.insert('w', '{}', '{"by_kind": true, "wait": false}');
select ord, unique_skipped_as_duplicate as skipped from jobs.insert_batch('w2', array['1', '2', '1']::jsonb[], '{"by_args": true, "wait": false}') order by ord;

-- A single unique insert takes an advisory lock on the first 8 bytes of the key; one that is
-- answered by a committed job takes none.
begin;
select unique_skipped_as_duplicate as skipped from jobs.insert('l', '{}', '{"by_kind": true}');
select (classid::bigint << 32) | objid::bigint = ('x' || left(jobs.unique_key('l', '{}', '{"by_kind": true}'), 16))::bit(64)::bigint as on_the_key, objsubid, mode, granted
  from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();
commit;
begin;
select unique_skipped_as_duplicate as skipped from jobs.insert('l', '{}', '{"by_kind": true}');
select count(*) as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();
commit;
-- The first 16 of a transaction.
begin;
select count(*) as inserted from generate_series(1, 100) n, lateral jobs.insert('l16', to_jsonb(n), '{"by_args": true}') i where not i.unique_skipped_as_duplicate;
select count(*) as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();
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
select state, count(*) from jobs.jobs where kind = 'cycle' group by state;
select pg_temp.skipped('cycle', '{"by_kind": true}') <> 'inserted' as skipped;
