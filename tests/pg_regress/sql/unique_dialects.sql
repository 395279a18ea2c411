-- Options of other systems are translated into the native policy: explain_unique shows it.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.native(opts jsonb, args jsonb = '{"id": 1, "x": 2}', meta jsonb = '{"t": 3, "u": 4}') returns setof text language sql as $$
  select canonical from jobs.explain_unique('k', args, opts, 'q', meta)
  union all
  select jsonb_strip_nulls(policy)::text from jobs.explain_unique('k', args, opts, 'q', meta) $$;

-- Oban. true: period infinity; an object: 60 seconds, worker, queue and args, the successful states.
select pg_temp.native('{"oban": true}');
select pg_temp.native('{"oban": {}}');
select pg_temp.native('{"oban": {"period": [2, "minutes"], "keys": ["id"], "states": ["scheduled", "executing", "suspended"], "timestamp": "scheduled_at"}}');
select pg_temp.native('{"oban": {"period": "infinity", "fields": ["worker", "meta"], "keys": ["t"], "states": "incomplete"}, "on_conflict": "reject", "wait": false}');
-- Open Job Spec. The type alone; rejected by default; args of which some members count, and of an array its first element.
select pg_temp.native('{"ojs": {}}');
select pg_temp.native('{"ojs": {"keys": ["type", "args", "queue"], "args_keys": ["id"], "period": "PT1H", "states": ["available", "active"], "on_conflict": "ignore"}}');
select pg_temp.native('{"ojs": {"keys": ["args"], "args_keys": ["id"]}}', '[{"id": 1, "x": 2}, 5]');
select pg_temp.native('{"ojs": {"keys": ["meta"], "meta_keys": ["t", "absent"]}}');
-- A Faktory job without unique_for is not unique, and nothing is looked at.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('fk', '{}', '{"faktory": {}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('fk', '{}', '{"faktory": {"unique_for": null}}');

-- One key for one meaning, whoever asks.
select jobs.unique_key('k', '{"id": 1}', '{"oban": true}', 'q') = jobs.unique_key('k', '{"id": 1}', '{"by_args": true, "by_queue": true}', 'q') as oban,
       jobs.unique_key('k', '{"id": 1}', '{"ojs": {"keys": ["args"]}}', 'q') = jobs.unique_key('k', '{"id": 1}', '{"by_args": true}', 'q') as ojs;
-- Decisions.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}');
select pg_temp.later('61 seconds');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"]}}');
select pg_temp.code($$select jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"]}}')$$);
select id, unique_skipped_as_duplicate as skipped from jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"], "on_conflict": "ignore"}}');

-- Refused.
select o as opts, pg_temp.code(format('select jobs.insert(%L, %L, %L, meta => %L)', 'k', '{"id": 1}', o, '{"t": 1}')) from unnest(array[
  '{"oban": {"period": -1}}', '{"oban": {"fields": []}}', '{"oban": {"fields": ["nosuch"]}}', '{"oban": {"states": ["nosuch"]}}', '{"oban": {"nosuch": 1}}',
  '{"oban": true, "by_args": true}', '{"oban": true, "ojs": {}}', '{"oban": 5}',
  '{"ojs": {"nosuch": 1}}', '{"ojs": {"states": ["executing"]}}', '{"ojs": {"keys": ["meta"]}}', '{"ojs": {"keys": ["args"], "args_keys": ["absent"]}}',
  '{"ojs": {"period": "15 minutes"}}', '{"ojs": {"period": 900}}',
  '{"oban": {"replace": ["nosuch"]}}', '{"ojs": {"on_conflict": "update"}}']) o;
select count(*) from jobs.jobs where kind = 'k';
