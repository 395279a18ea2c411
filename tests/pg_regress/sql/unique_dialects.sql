\set ECHO none
-- Options of other systems are translated into the native policy: explain_unique shows it.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.native(opts jsonb, args jsonb = '{"id": 1, "x": 2}', meta jsonb = '{"t": 3, "u": 4}') returns setof text language sql as $$
  select canonical from jobs.explain_unique('k', args, opts, 'q', meta)
  union all
  select jsonb_strip_nulls(policy)::text from jobs.explain_unique('k', args, opts, 'q', meta) $$;

-- Oban. true: period infinity; an object: 60 seconds, worker, queue and args, the successful
-- states.
select pg_temp.native('{"oban": true}');
select pg_temp.native('{"oban": {}}');
select pg_temp.native('{"oban": {"period": [2, "minutes"], "keys": ["id"], "states": ["scheduled", "executing", "suspended"], "timestamp": "scheduled_at"}}');
select pg_temp.native('{"oban": {"period": "infinity", "fields": ["worker", "meta"], "keys": ["t"], "states": "incomplete"}, "on_conflict": "reject", "wait": false}');
-- Open Job Spec. The type alone; rejected by default; args of which some members count, and of an
-- array its first element.
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
call pg_temp.later('61 seconds');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"]}}');
select pg_temp.code($$select jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"]}}')$$);
select id, unique_skipped_as_duplicate as skipped from jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"], "on_conflict": "ignore"}}');

-- Refused: 22023 with the value, the rule and, where one is likely, the fix.
create temp table cases (n int generated always as identity, opts text);
insert into cases (opts) values
  -- beside each other, and beside the native fields
  ('{"oban": true, "by_args": true}'), ('{"oban": {}, "window": 60}'), ('{"oban": true, "key": "k"}'), ('{"faktory": {}, "by_queue": true}'), ('{"ojs": {}, "by_meta": ["t"]}'),
  ('{"ojs": {}, "exclude_kind": true}'), ('{"ojs": {}, "by_state": ["running"]}'), ('{"oban": true, "faktory": {}}'), ('{"oban": true, "ojs": {}}'), ('{"ojs": {}, "faktory": {}}'),
  ('{"oban": {"replace": ["args"]}, "on_conflict": "skip"}'), ('{"ojs": {"on_conflict": "ignore"}, "on_conflict": "skip"}'), ('{"oban": true, "on_conflict": "ignore"}'),
  ('{"ojs": {}, "wait": "no"}'), ('{"obon": true}'), ('{"OJS": {}}'),
  -- oban
  ('{"oban": 5}'), ('{"oban": "true"}'), ('{"oban": []}'), ('{"oban": {"nosuch": 1}}'), ('{"oban": {"perod": 1}}'), ('{"oban": {"state": 1}}'), ('{"oban": {"Keys": 1}}'),
  ('{"oban": {"by_args": 1}}'), ('{"oban": {"unique_for": 1}}'), ('{"oban": {"period": true}}'), ('{"oban": {"period": "60"}}'), ('{"oban": {"period": "Infinity"}}'),
  ('{"oban": {"period": "15 minutes"}}'), ('{"oban": {"period": "PT15M"}}'), ('{"oban": {"period": []}}'), ('{"oban": {"period": [2]}}'), ('{"oban": {"period": [2,"parsecs"]}}'),
  ('{"oban": {"period": ["2","minutes"]}}'), ('{"oban": {"period": [2,"minutes",1]}}'), ('{"oban": {"period": {}}}'), ('{"oban": {"period": 10000000000000}}'), ('{"oban": {"fields": []}}'),
  ('{"oban": {"fields": true}}'), ('{"oban": {"fields": "args"}}'), ('{"oban": {"fields": {}}}'), ('{"oban": {"fields": [5]}}'), ('{"oban": {"fields": ["nosuch"]}}'),
  ('{"oban": {"fields": ["kind"]}}'), ('{"oban": {"fields": ["arg"]}}'), ('{"oban": {"fields": ["Worker"]}}'), ('{"oban": {"keys": true}}'), ('{"oban": {"keys": "id"}}'), ('{"oban": {"keys": {}}}'),
  ('{"oban": {"keys": [5]}}'), ('{"oban": {"keys": [["id"]]}}'), ('{"oban": {"keys": [""]}}'), ('{"oban": {"fields": ["worker", "queue"], "keys": ["id"]}}'), ('{"oban": {"states": []}}'),
  ('{"oban": {"states": true}}'), ('{"oban": {"states": 5}}'), ('{"oban": {"states": {}}}'), ('{"oban": {"states": [5]}}'), ('{"oban": {"states": ["nosuch"]}}'),
  ('{"oban": {"states": ["running"]}}'), ('{"oban": {"states": ["pending"]}}'), ('{"oban": {"states": ["excuting"]}}'), ('{"oban": {"states": ["all"]}}'), ('{"oban": {"states": "nosuch"}}'),
  ('{"oban": {"states": "succesful"}}'), ('{"oban": {"states": "All"}}'), ('{"oban": {"states": ""}}'), ('{"oban": {"timestamp": true}}'), ('{"oban": {"timestamp": "created_at"}}'),
  ('{"oban": {"timestamp": "insertedat"}}'), ('{"oban": {"replace": []}}'), ('{"oban": {"replace": true}}'), ('{"oban": {"replace": "args"}}'), ('{"oban": {"replace": [5]}}'),
  ('{"oban": {"replace": ["nosuch"]}}'), ('{"oban": {"replace": ["kind"]}}'), ('{"oban": {"replace": ["arg"]}}'), ('{"oban": {"replace": ["prioritty"]}}'), ('{"oban": {"replace": {}}}'),
  ('{"oban": {"replace": {"nosuch": ["args"]}}}'), ('{"oban": {"replace": {"running": ["args"]}}}'), ('{"oban": {"replace": {"*": ["args"]}}}'), ('{"oban": {"replace": {"Executing": ["args"]}}}'),
  ('{"oban": {"replace": {"executing": true}}}'), ('{"oban": {"replace": {"executing": []}}}'), ('{"oban": {"replace": {"executing": ["arg"]}}}'),
  -- faktory
  ('{"faktory": true}'), ('{"faktory": 600}'), ('{"faktory": []}'), ('{"faktory": {"unique": 1}}'), ('{"faktory": {"unique_fo": 1}}'), ('{"faktory": {"uniqueUntil": 1}}'),
  ('{"faktory": {"unique_for": true}}'), ('{"faktory": {"unique_for": "600"}}'), ('{"faktory": {"unique_for": "PT10M"}}'), ('{"faktory": {"unique_for": [600]}}'), ('{"faktory": {"unique_for": {}}}'),
  ('{"faktory": {"unique_for": 0}}'), ('{"faktory": {"unique_for": -5}}'), ('{"faktory": {"unique_for": 1e30}}'), ('{"faktory": {"unique_for": 600, "unique_until": true}}'),
  ('{"faktory": {"unique_for": 600, "unique_until": 5}}'), ('{"faktory": {"unique_for": 600, "unique_until": "done"}}'), ('{"faktory": {"unique_for": 600, "unique_until": "Start"}}'),
  ('{"faktory": {"unique_for": 600, "unique_until": "sucess"}}'),
  -- ojs
  ('{"ojs": true}'), ('{"ojs": 5}'), ('{"ojs": "type"}'), ('{"ojs": []}'), ('{"ojs": {"nosuch": 1}}'), ('{"ojs": {"key": 1}}'), ('{"ojs": {"arg_keys": 1}}'), ('{"ojs": {"metaKeys": 1}}'),
  ('{"ojs": {"onConflict": 1}}'), ('{"ojs": {"keys": true}}'), ('{"ojs": {"keys": "args"}}'), ('{"ojs": {"keys": {}}}'), ('{"ojs": {"keys": [5]}}'), ('{"ojs": {"keys": ["kind"]}}'),
  ('{"ojs": {"keys": ["arg"]}}'), ('{"ojs": {"keys": ["Type"]}}'), ('{"ojs": {"keys": ["args"], "args_keys": true}}'), ('{"ojs": {"keys": ["args"], "args_keys": "id"}}'),
  ('{"ojs": {"keys": ["args"], "args_keys": {}}}'), ('{"ojs": {"keys": ["args"], "args_keys": [5]}}'), ('{"ojs": {"keys": ["meta"], "meta_keys": true}}'),
  ('{"ojs": {"keys": ["meta"], "meta_keys": "id"}}'), ('{"ojs": {"keys": ["meta"], "meta_keys": {}}}'), ('{"ojs": {"keys": ["meta"], "meta_keys": [5]}}'),
  ('{"ojs": {"keys": ["args"], "args_keys": [""]}}'), ('{"ojs": {"keys": ["args", "args"]}}'), ('{"ojs": {"meta_keys": ["id", "id"]}}'), ('{"ojs": {"keys": ["meta"]}}'),
  ('{"ojs": {"keys": ["type", "meta"], "meta_keys": []}}'), ('{"ojs": {"period": 900}}'), ('{"ojs": {"period": true}}'), ('{"ojs": {"period": ["PT15M"]}}'), ('{"ojs": {"period": {}}}'),
  ('{"ojs": {"period": "15 minutes"}}'), ('{"ojs": {"period": "15"}}'), ('{"ojs": {"period": ""}}'), ('{"ojs": {"period": "P"}}'), ('{"ojs": {"period": "PT"}}'), ('{"ojs": {"period": "pt15m"}}'),
  ('{"ojs": {"period": "-PT15M"}}'), ('{"ojs": {"period": "PT-15M"}}'), ('{"ojs": {"period": "PT15M "}}'), ('{"ojs": {"period": "@ 1 hour"}}'), ('{"ojs": {"period": "PT0S"}}'),
  ('{"ojs": {"states": []}}'), ('{"ojs": {"states": true}}'), ('{"ojs": {"states": "all"}}'), ('{"ojs": {"states": {}}}'), ('{"ojs": {"states": [5]}}'), ('{"ojs": {"states": ["executing"]}}'),
  ('{"ojs": {"states": ["running"]}}'), ('{"ojs": {"states": ["actve"]}}'), ('{"ojs": {"states": ["Completed"]}}'), ('{"ojs": {"on_conflict": true}}'), ('{"ojs": {"on_conflict": ["ignore"]}}'),
  ('{"ojs": {"on_conflict": {"update": {"*": ["args"]}}}}'), ('{"ojs": {"on_conflict": "update"}}'), ('{"ojs": {"on_conflict": "skip"}}'), ('{"ojs": {"on_conflict": "Reject"}}'),
  ('{"ojs": {"on_conflict": "replace_except_schedul"}}'),
  ('{"ojs": {"keys": ["args"], "args_keys": ["id", "id"]}}'), ('{"ojs": {"states": ["active", "active"]}}');
create temp table before as select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, last_value, is_called from jobs.job_seq;
select pg_temp.refusals($$select jobs.insert('k', '{"id": 1}', %L, meta => '{"t": 1}')$$, array_agg(opts order by n)) from cases;
-- A period that is none, whose fix depends on the default; members that args must have and have
-- not, in each form of args.
select opts, pg_temp.code(format('select jobs.insert(%L, %L, %L)', 'k', args, opts)) from (values
  ('{"oban": {"period": 0}}', '{"id": 1}'), ('{"oban": {"period": -1}}', '{"id": 1}'), ('{"oban": {"period": 0.0000004}}', '{"id": 1}'), ('{"oban": {"period": [0, "minutes"]}}', '{"id": 1}'), ('{"oban": {"period": [-2, "days"]}}', '{"id": 1}'),
  ('{"oban": {"period": 1e400}}', '{"id": 1}'), ('{"oban": {"period": [1e400, "days"]}}', '{"id": 1}'), ('{"faktory": {"unique_for": 1e400}}', '{"id": 1}')) v(opts, args);
select args, pg_temp.try(format('select jobs.insert(%L, %L, %L)', 'k', args, '{"ojs": {"keys": ["args"], "args_keys": ["id", "absent"]}}')) from unnest(array['{"id": 1}', '[]', '[1]', '[{"id": 1}, {"absent": 2}]', '5', 'null']) args;
-- Every one is 22023, from each way in, and nothing is written, not even an id.
select n, opts, a, b, c, d from cases,
  lateral (select pg_temp.code(format('select jobs.insert_batch(%L, %L, %L)', 'k', '{"{}"}', opts)) a, pg_temp.code(format('select jobs.insert_many(%L)', jsonb_build_array(jsonb_build_object('kind', 'k', 'unique_opts', opts::jsonb)))) b,
                  pg_temp.code(format('select jobs.unique_key(%L, unique_opts => %L)', 'k', opts)) c, pg_temp.code(format('select jobs.explain_unique(%L, unique_opts => %L)', 'k', opts)) d) x
 where (a, b, c, d) <> ('22023', '22023', '22023', '22023') order by n;
select b.* from before b join (select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, last_value, is_called from jobs.job_seq) a using (jobs, claims, last_value, is_called);
