\set ECHO none
-- unique_opts that are refused: 22023 with the value, the rule and, where one is likely, the fix.
-- And those that are not.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

create temp table cases (n int generated always as identity, opts text);
insert into cases (opts) values
  -- shape
  ('[]'), ('"by_args"'), ('true'), ('5'),
  -- unknown fields
  ('{"by_arg": true}'), ('{"byArgs": true}'), ('{"BY_ARGS": true}'), ('{"by_queu": true}'), ('{"uniq": true}'), ('{"": true}'), ('{"by_args": true, "onconflict": "skip"}'),
  ('{"by_args": true, "by_arg": null}'), ('{"x\u00e9\"''": 1}'),
  -- modifiers of nothing
  ('{"exclude_kind": true}'), ('{"on_conflict": "reject"}'), ('{"on_conflict": "skip"}'), ('{"wait": false}'), ('{"wait": true}'), ('{"exclude_kind": true, "by_args": false}'),
  ('{"by_kind": false, "on_conflict": "reject"}'),
  -- wrong types
  ('{"by_kind": "yes"}'), ('{"by_kind": 1}'), ('{"by_kind": []}'), ('{"by_args": "user_id"}'), ('{"by_args": 1}'), ('{"by_args": {"a": true}}'), ('{"by_args": [1]}'), ('{"by_args": [null]}'), ('{"by_args": [["a"]]}'), ('{"by_args": [true]}'),
  ('{"by_meta": true}'), ('{"by_meta": "a"}'), ('{"by_meta": [5]}'), ('{"by_queue": "default"}'), ('{"by_queue": 0}'), ('{"exclude_kind": "x", "by_args": true}'),
  ('{"key": 5}'), ('{"key": true}'), ('{"key": ["a"]}'), ('{"key": {}}'), ('{"wait": 0, "by_kind": true}'), ('{"wait": "false", "by_kind": true}'),
  ('{"by_state": true}'), ('{"by_state": "running"}'), ('{"by_state": {}}'), ('{"by_state": [5]}'), ('{"by_state": [null]}'),
  ('{"by_period": true}'), ('{"by_period": [2, "minutes"]}'), ('{"by_period": {}}'),
  ('{"by_kind": true, "on_conflict": true}'), ('{"by_kind": true, "on_conflict": 1}'), ('{"by_kind": true, "on_conflict": ["skip"]}'), ('{"by_kind": true, "on_conflict": {}}'), ('{"by_kind": true, "on_conflict": {"skip": true}}'),
  -- values out of range
  ('{"by_args": []}'), ('{"by_meta": []}'), ('{"by_state": []}'), ('{"by_args": [""]}'), ('{"by_args": ["a..b"]}'), ('{"by_args": [".a"]}'), ('{"by_args": ["a."]}'), ('{"by_args": ["a\\b"]}'), ('{"by_args": ["a\\"]}'),
  ('{"key": ""}'), ('{"by_state": ["runing"]}'), ('{"by_state": ["available", "executing"]}'), ('{"by_state": ["Running"]}'), ('{"by_state": [""]}'),
  ('{"by_period": 0}'), ('{"by_period": 0.999999}'), ('{"by_period": -60}'), ('{"by_period": "0 seconds"}'), ('{"by_period": "-1 day"}'), ('{"by_period": "1 month"}'), ('{"by_period": "P1Y"}'), ('{"by_period": "1 year 3 days"}'),
  ('{"by_period": "1 month -30 days"}'), ('{"by_period": "weekly"}'), ('{"by_period": ""}'), ('{"by_period": 1e30}'), ('{"by_period": "infinity"}'),
  ('{"by_kind": true, "on_conflict": "ignore"}'), ('{"by_kind": true, "on_conflict": "rejct"}'), ('{"by_kind": true, "on_conflict": "Skip"}'), ('{"by_kind": true, "on_conflict": ""}'),
  -- a key stands for itself
  ('{"key": "k", "by_args": true}'), ('{"key": "k", "by_args": ["a"]}'), ('{"key": "k", "by_meta": ["a"]}'), ('{"key": "k", "by_period": 60}'),
  -- wrong types inside lists, and those that are left
  ('{"by_kind": {}}'), ('{"by_queue": []}'), ('{"by_queue": {}}'), ('{"by_args": true, "exclude_kind": 1}'), ('{"by_args": true, "exclude_kind": []}'), ('{"by_args": true, "exclude_kind": {}}'),
  ('{"by_args": ["a", {}]}'), ('{"by_meta": {}}'), ('{"by_meta": 5}'), ('{"by_meta": ["a", null]}'), ('{"by_meta": [false]}'), ('{"by_meta": ["a..b"]}'), ('{"by_state": 5}'),
  ('{"by_state": ["running", true]}'), ('{"by_state": [["running"]]}'), ('{"by_state": [{}]}'), ('{"by_kind": true, "wait": []}'), ('{"by_kind": true, "wait": {}}'), ('{"key": 1.5}'),
  -- periods and windows
  ('{"by_period": "NaN"}'), ('{"by_period": 9223372036855}'), ('{"by_kind": true, "window": true}'), ('{"by_kind": true, "window": [60]}'), ('{"by_kind": true, "window": {"minutes": 1}}'),
  ('{"by_kind": true, "window": "soon"}'), ('{"by_kind": true, "window": ""}'), ('{"by_kind": true, "window": "infinity"}'), ('{"by_kind": true, "window": "NaN"}'),
  ('{"by_kind": true, "window": 0}'), ('{"by_kind": true, "window": -60}'), ('{"by_kind": true, "window": 0.0000004}'), ('{"by_kind": true, "window": "PT0S"}'),
  ('{"by_kind": true, "window": "-1 day"}'), ('{"by_kind": true, "window": "1 month -30 days"}'), ('{"by_kind": true, "window": 1e30}'), ('{"by_kind": true, "window": -1e60}'),
  ('{"by_kind": true, "window_from": "created_at"}'), ('{"by_kind": true, "window": null, "window_from": "created_at"}'), ('{"by_kind": true, "hold_until": "success"}'),
  ('{"by_kind": true, "window": 60, "window_from": true}'), ('{"by_kind": true, "window": 60, "window_from": ["created_at"]}'), ('{"by_kind": true, "window": 60, "window_from": "inserted_at"}'),
  ('{"by_kind": true, "window": 60, "window_from": "Scheduled"}'), ('{"window": 60}'),
  -- updates
  ('{"by_kind": true, "on_conflict": {"updat": {"*": ["args"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"*": ["args"]}, "x": 1}}'), ('{"by_kind": true, "on_conflict": "update"}'),
  ('{"by_kind": true, "on_conflict": {"update": null}}'), ('{"by_kind": true, "on_conflict": {"update": true}}'), ('{"by_kind": true, "on_conflict": {"update": 5}}'),
  ('{"by_kind": true, "on_conflict": {"update": "args"}}'), ('{"by_kind": true, "on_conflict": {"update": ["args"]}}'), ('{"by_kind": true, "on_conflict": {"update": {}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"running": null, "*": false}}}'), ('{"by_kind": true, "on_conflict": {"update": {"runing": ["args"]}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"executing": ["args"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"Available": ["args"]}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"**": ["args"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"": ["args"]}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"running": true}}}'), ('{"by_kind": true, "on_conflict": {"update": {"*": "args"}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"*": {"args": 1}}}}'), ('{"by_kind": true, "on_conflict": {"update": {"*": [5]}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"*": ["args", null]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"*": []}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"*": ["args"], "running": []}}}'), ('{"by_kind": true, "on_conflict": {"update": {"running": ["arg"]}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"running": ["Priority"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"running": ["max_attempt"]}}}'),
  ('{"by_kind": true, "on_conflict": {"update": {"running": ["state"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"running": ["worker"]}}}');
select pg_temp.refusals($$select jobs.insert('k', unique_opts => %L)$$, array_agg(opts order by n)) from cases;
-- Every one is 22023, from each way in.
select n, opts, a, b, c, d, e from cases,
  lateral (select pg_temp.code(format('select jobs.insert(%L, unique_opts => %L)', 'k', opts)) a, pg_temp.code(format('select jobs.insert_batch(%L, %L, %L)', 'k', '{"{}"}', opts)) b,
                  pg_temp.code(format('select jobs.insert_many(%L)', jsonb_build_array(jsonb_build_object('kind', 'k', 'unique_opts', opts::jsonb)))) c,
                  pg_temp.code(format('select jobs.unique_key(%L, unique_opts => %L)', 'k', opts)) d, pg_temp.code(format('select jobs.explain_unique(%L, unique_opts => %L)', 'k', opts)) e) x
 where (a, b, c, d, e) <> ('22023', '22023', '22023', '22023', '22023') order by n;
-- And nothing is written, not even an id.
select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, last_value, is_called from jobs.job_seq;

-- A number that no double holds is no null: it does not count as left out.
select opts, pg_temp.code(format('select jobs.unique_key(%L, unique_opts => %L)', 'k', opts)) from (values
  ('{"by_kind": true, "by_period": 1e400}'), ('{"by_args": true, "by_period": -1e400}'), ('{"by_kind": true, "by_state": 1e400}'), ('{"by_args": 1e400, "by_kind": true}'), ('{"by_kind": 1e400}'),
  ('{"by_kind": true, "on_conflict": 1e400}'), ('{"by_kind": true, "key": 1e400}'), ('{"by_kind": true, "wait": 1e400}'), ('{"by_kind": true, "window": 1e400}'), ('{"by_queue": 1e400}')) v(opts);

-- What is not refused: null and false count as left out, whichever field it is.
select opts, jobs.unique_key('k', '{"a": 1}', opts::jsonb) is not null as is_unique from (values
  ('{}'), ('{"by_args": false}'), ('{"by_args": null}'), ('{"by_meta": false, "by_queue": false, "by_period": null, "by_state": null, "key": false, "exclude_kind": null, "on_conflict": false, "wait": null}'),
  ('{"window": null, "hold_for": false, "oban": null, "faktory": false, "ojs": null}'), ('{"by_args": true, "window": null, "hold_for": false, "on_conflict": null}'),
  ('{"by_kind": true}'), ('{"by_kind": true, "by_args": true}'), ('{"by_args": ["a", "a", "b.c"]}'), ('{"by_state": ["running", "running"]}'),
  ('{"by_state": ["available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded"]}'), ('{"by_period": 1}'), ('{"by_period": "PT1S"}'), ('{"by_period": 1.5}'), ('{"by_period": "1 day 2 hours"}'),
  ('{"by_period": 9000000000000}'), ('{"key": " "}'), ('{"key": "k", "by_kind": true, "by_args": false}'), ('{"by_queue": true, "wait": false}'), ('{"by_queue": true, "wait": true}'), ('{"by_kind": true, "on_conflict": "skip"}'), ('{"by_kind": true, "on_conflict": "reject"}'),
  ('{"by_args": true, "window": 60}'), ('{"by_kind": true, "window": "100000 years"}'), ('{"by_kind": true, "window": "PT1H", "window_from": "scheduled_at"}'), ('{"by_args": true, "on_conflict": "replace"}'),
  ('{"by_args": true, "on_conflict": "replace_except_schedule"}'), ('{"by_args": true, "on_conflict": {"update": {"*": ["priority"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"*": null, "running": ["args", "args"]}}}'),
  ('{"oban": true}'), ('{"oban": {}, "by_args": false, "ojs": null}'), ('{"ojs": {"keys": ["type"]}}'), ('{"ojs": {"keys": [], "args_keys": []}, "wait": false}')) v(opts);
-- Text without a unit is seconds to Postgres, and so here.
select jobs.unique_key('k', '{}', '{"by_period": "15"}', scheduled_at => '2026-02-12 15:21:33Z') = jobs.unique_key('k', '{}', '{"by_period": 15}', scheduled_at => '2026-02-12 15:21:33Z') as same;
-- JSON null is how some drivers write null: no options.
select pg_temp.try($$select jobs.insert('k', unique_opts => 'null')$$);
-- Thousands of paths, and paths that are thousands of names long.
select jobs.unique_key('k', '{"a": 1}', jsonb_build_object('by_args', (select jsonb_agg('p' || n) from generate_series(1, 5000) n) || '["a"]')) = jobs.unique_key('k', '{"a": 1}', '{"by_args": ["a"]}') as many;
select jobs.unique_key('k', '{"a": 1, "b": 2}', jsonb_build_object('by_args', jsonb_build_array(repeat('a.', 100000) || 'a', 'b'))) = jobs.unique_key('k', '{"b": 2}', '{"by_args": ["b"]}') as long;
