\set ECHO none
-- jobs.insert_many: an array of jobs in one atomic statement.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- A row per element, in order, ord from 1; each with options of its own.
select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue, scheduled_at = created_at as due_at_once
  from jobs.insert_many('[
    {"kind": "a"},
    {"kind": "b", "args": {"n": 1}, "queue": "q", "priority": -3, "max_attempts": 2, "tags": ["x", "y"], "meta": {"m": 1},
     "timeout": 90, "retry": "river", "scheduled_at": "2999-01-01T00:00:00Z", "expires_at": "3000-01-01 00:00:00+00"},
    {"kind": "c", "pending": true},
    {"kind": "d", "timeout": "PT15M", "priority": 5.0, "max_attempts": 3e0},
    {"kind": "e", "timeout": "2 hours", "args": null},
    {"kind": "f", "timeout": -1, "args": [1]}]');
select id, state, queue, kind, priority, max_attempts, args, meta, tags, timeout, expires_at from jobs.jobs order by id;
select scheduled_at from jobs.jobs where id = 2;

-- null leaves a field out, but for args.
select ord, id, state, queue from jobs.insert_many('[{"kind": "n", "unique_opts": null, "queue": null, "priority": null, "scheduled_at": null,
  "max_attempts": null, "tags": null, "meta": null, "timeout": null, "retry": null, "expires_at": null, "pending": null}]');
select args, queue, priority, max_attempts, tags, meta, timeout, expires_at from jobs.jobs where kind = 'n';

-- Times without a zone are of the session's.
set timezone = 'Asia/Tokyo';
select ord, scheduled_at at time zone 'UTC' as utc from jobs.insert_many('[{"kind": "t", "scheduled_at": "2030-01-01 09:00"}, {"kind": "t", "scheduled_at": "2030-01-01"}]');
set timezone = 'UTC';

-- None is none.
select * from jobs.insert_many('[]');

-- Duplicates inside are resolved like duplicates outside: the first one wins.
select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue from jobs.insert_many('[
  {"kind": "u", "args": {"n": 1}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 1.0}, "unique_opts": {"by_args": true}, "queue": "other"},
  {"kind": "u", "args": {"n": 2}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 1}},
  {"kind": "u", "args": {"n": 2}, "unique_opts": {"by_args": true}, "pending": true}]') order by ord;
select count(*) from jobs.jobs where kind = 'u';
-- And those outside, in the same call.
select ord, id > 12 as new, unique_skipped_as_duplicate as skipped from jobs.insert_many('[
  {"kind": "u", "args": {"n": 3}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 2}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 3}, "unique_opts": {"by_args": true}}]') order by ord;
select count(*) from jobs.jobs where kind = 'u';
-- A later element is a duplicate only of what its own by_state names.
select ord, state, unique_skipped_as_duplicate as skipped from jobs.insert_many('[
  {"kind": "w", "pending": true, "unique_opts": {"by_kind": true}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["available"]}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["available"]}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["pending"]}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["running"]}}]') order by ord;

-- A rejected duplicate fails the whole statement, with the existing job in DETAIL.
create function pg_temp.rejection(jobs text) returns table (code text, message text, existing text, state text) language plpgsql as $$
declare detail text;
begin
  perform jobs.insert_many(jobs::jsonb);
  return query select 'ok', '', '', '';
exception when others then
  get stacked diagnostics code = returned_sqlstate, message = message_text, detail = pg_exception_detail;
  return query select code, message, detail::jsonb ->> 'existing_job_id', detail::jsonb ->> 'existing_job_state';
end $$;
select id from jobs.insert('r', unique_opts => '{"by_args": true}', args => '1');
select * from pg_temp.rejection('[{"kind": "r", "args": 7}, {"kind": "r", "args": 1, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]');
select * from pg_temp.rejection('[{"kind": "r", "args": 1, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]');
select * from pg_temp.rejection('[{"kind": "r", "args": 2, "unique_opts": {"by_args": true, "on_conflict": "reject"}},
                                  {"kind": "r", "args": 2, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]');
select count(*) from jobs.jobs where kind = 'r';

-- What is refused, and nothing written. The index is in DETAIL.
create temp table cases (n int generated always as identity, code text, jobs text);
insert into cases (code, jobs) values
  ('22023', '{}'), ('22023', '"text"'), ('22023', 'null'), ('22023', '5'), ('22023', '{"kind": "k"}'),
  ('22023', '[5]'), ('22023', '[null]'), ('22023', '[[]]'), ('22023', '[[{"kind": "k"}]]'),
  ('22004', '[{}]'), ('22004', '[{"kind": null}]'), ('22004', '[{"kind": "k"}, {"queue": "q"}]'),
  ('22023', '[{"kind": ""}]'), ('22023', '[{"kind": 5}]'), ('22023', '[{"kind": ["k"]}]'), ('22023', '[{"kind": "a\u0001"}]'),
  ('22023', '[{"kind": "k", "queue": ""}]'), ('22023', '[{"kind": "k", "queue": {}}]'), ('22023', '[{"kind": "k", "queue": false}]'),
  ('22023', '[{"kind": "k", "priority": "1"}]'), ('22023', '[{"kind": "k", "priority": 1.5}]'), ('22023', '[{"kind": "k", "priority": 32768}]'),
  ('22023', '[{"kind": "k", "priority": 9007199254740993}]'), ('22023', '[{"kind": "k", "priority": 99999999999999999999}]'),
  ('22023', '[{"kind": "k", "priority": 1e400}]'), ('22023', '[{"kind": "k", "priority": true}]'),
  ('22023', '[{"kind": "k", "max_attempts": 0}]'), ('22023', '[{"kind": "k", "max_attempts": -1e400}]'),
  ('22023', '[{"kind": "k", "tags": "x"}]'), ('22023', '[{"kind": "k", "tags": [1]}]'), ('22023', '[{"kind": "k", "tags": [null]}]'), ('22023', '[{"kind": "k", "tags": {}}]'),
  ('22023', '[{"kind": "k", "meta": []}]'), ('22023', '[{"kind": "k", "meta": "x"}]'),
  ('22023', '[{"kind": "k", "timeout": 0}]'), ('22023', '[{"kind": "k", "timeout": -2}]'), ('22023', '[{"kind": "k", "timeout": "soon"}]'),
  ('22023', '[{"kind": "k", "timeout": true}]'), ('22023', '[{"kind": "k", "timeout": ""}]'), ('22023', '[{"kind": "k", "timeout": 1e400}]'), ('22023', '[{"kind": "k", "timeout": 1e30}]'),
  ('22023', '[{"kind": "k", "retry": "never"}]'),
  ('22023', '[{"kind": "k", "scheduled_at": 5}]'), ('22023', '[{"kind": "k", "scheduled_at": "tomorrowish"}]'), ('22023', '[{"kind": "k", "scheduled_at": "infinity"}]'),
  ('22023', '[{"kind": "k", "scheduled_at": ""}]'), ('22023', '[{"kind": "k", "scheduled_at": "2026-02-30T00:00:00Z"}]'), ('22023', '[{"kind": "k", "scheduled_at": "294277-01-01"}]'),
  ('22023', '[{"kind": "k", "expires_at": "-infinity"}]'),
  ('22023', '[{"kind": "k", "pending": "yes"}]'), ('22023', '[{"kind": "k", "pending": 1}]'),
  ('22023', '[{"kind": "k", "unique_opts": []}]'), ('22023', '[{"kind": "k"}, {"kind": "k", "unique_opts": {"by_arg": true}}]'),
  -- unknown fields, with the nearest known one where there is one near
  ('22023', '[{"kind": "k", "prority": 1}]'), ('22023', '[{"kind": "k", "Queue": "q"}]'), ('22023', '[{"kind": "k", "max_attempt": 1}]'), ('22023', '[{"kind": "k", "scheduledAt": null}]'),
  ('22023', '[{"kind": "k", "something_else": 1}]'), ('22023', '[{"kind": "k", "": 1}]'), ('22023', '[{"kind": "k"}, {"kind": "k"}, {"kind": "k", "kid\"''": 1}]');
select pg_temp.refusals('select jobs.insert_many(%L)', array_agg(jobs order by n)) from cases;
select n, code as expected, pg_temp.code(format('select jobs.insert_many(%L)', jobs)) as actual, jobs from cases
 where pg_temp.code(format('select jobs.insert_many(%L)', jobs)) <> code order by n;
-- Every refusal of an element names its index.
select n, jobs from cases where jobs ~ '^\[' and pg_temp.try(format('select jobs.insert_many(%L)', jobs)) !~ '\n  Element [123][:.]' order by n;
select pg_temp.try('select jobs.insert_many(null)');
select pg_temp.code(format('select jobs.insert_many(%L)', repeat('[', 5000) || repeat(']', 5000)));
select count(*) from jobs.jobs where kind = 'k';

-- 10,000 jobs in one call, in order, and no more locks than one takes.
select id as before from jobs.insert('mark') \gset
begin;
select count(*), min(ord), max(ord), bool_and(id = :before + ord) as in_order, bool_or(unique_skipped_as_duplicate) as skipped
  from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'many', 'args', n, 'unique_opts', '{"by_args": true}'::jsonb)) from generate_series(1, 10000) n));
select count(*) <= 1 as few_locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();
commit;
select count(*), bool_and(args = to_jsonb(id - :before)) as in_order from jobs.jobs where kind = 'many';
select count(*), bool_and(unique_skipped_as_duplicate) as skipped, bool_and(id = :before + ord) as the_same
  from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'many', 'args', n, 'unique_opts', '{"by_args": true}'::jsonb)) from generate_series(1, 10000) n));
