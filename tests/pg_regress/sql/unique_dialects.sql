-- Options of other systems are translated into the native policy: explain_unique shows it.
create function pg_temp.native(opts jsonb, args jsonb = '{"id": 1, "x": 2}', meta jsonb = '{"t": 3, "u": 4}') returns setof text language sql as $$
  select canonical from jobs.explain_unique('k', args, opts, 'q', meta)
  union all
  select jsonb_strip_nulls(policy)::text from jobs.explain_unique('k', args, opts, 'q', meta) $$;

-- Oban. true: period infinity; an object: 60 seconds, worker, queue and args, the successful
-- states.
select pg_temp.native('{"oban": true}');
--> {"args":{"id":1,"x":2},"queue":"q","type":"k"}
--> {"wait": true, "by_args": true, "by_kind": false, "by_meta": false, "by_queue": true, "by_state": ["available", "scheduled", "pending", "running", "retryable", "completed"], "on_conflict": "skip", "exclude_kind": false}
select pg_temp.native('{"oban": {}}');
--> {"args":{"id":1,"x":2},"queue":"q","type":"k"}
--> {"wait": true, "window": "PT1M", "by_args": true, "by_kind": false, "by_meta": false, "by_queue": true, "by_state": ["available", "scheduled", "pending", "running", "retryable", "completed"], "on_conflict": "skip", "window_from": "created_at", "exclude_kind": false}
select pg_temp.native('{"oban": {"period": [2, "minutes"], "keys": ["id"], "states": ["scheduled", "executing", "suspended"], "timestamp": "scheduled_at"}}');
--> {"args":{"id":1},"queue":"q","type":"k"}
--> {"wait": true, "window": "PT2M", "by_args": ["id"], "by_kind": false, "by_meta": false, "by_queue": true, "by_state": ["scheduled", "pending", "running"], "on_conflict": "skip", "window_from": "scheduled_at", "exclude_kind": false, "args_optional": true}
select pg_temp.native('{"oban": {"period": "infinity", "fields": ["worker", "meta"], "keys": ["t"], "states": "incomplete"}, "on_conflict": "reject", "wait": false}');
--> {"meta":{"t":3},"type":"k"}
--> {"wait": false, "by_args": false, "by_kind": false, "by_meta": ["t"], "by_queue": false, "by_state": ["available", "scheduled", "pending", "running", "retryable"], "on_conflict": "reject", "exclude_kind": false, "meta_optional": true}
-- Open Job Spec. The type alone; rejected by default; args of which some members count, and of an
-- array its first element.
select pg_temp.native('{"ojs": {}}');
--> {"type":"k"}
--> {"wait": true, "by_args": false, "by_kind": true, "by_meta": false, "by_queue": false, "by_state": ["available", "scheduled", "pending", "running", "retryable"], "on_conflict": "reject", "exclude_kind": false}
select pg_temp.native('{"ojs": {"keys": ["type", "args", "queue"], "args_keys": ["id"], "period": "PT1H", "states": ["available", "active"], "on_conflict": "ignore"}}');
--> {"args":{"id":1},"queue":"q","type":"k"}
--> {"wait": true, "window": "PT1H", "by_args": ["id"], "by_kind": false, "by_meta": false, "by_queue": true, "by_state": ["available", "running"], "on_conflict": "skip", "window_from": "created_at", "exclude_kind": false, "args_required": true}
select pg_temp.native('{"ojs": {"keys": ["args"], "args_keys": ["id"]}}', '[{"id": 1, "x": 2}, 5]');
--> {"args":{"id":1},"type":"k"}
--> {"wait": true, "by_args": ["id"], "by_kind": false, "by_meta": false, "by_queue": false, "by_state": ["available", "scheduled", "pending", "running", "retryable"], "on_conflict": "reject", "exclude_kind": false, "args_required": true}
select pg_temp.native('{"ojs": {"keys": ["meta"], "meta_keys": ["t", "absent"]}}');
--> {"meta":{"t":3},"type":"k"}
--> {"wait": true, "by_args": false, "by_kind": false, "by_meta": ["absent", "t"], "by_queue": false, "by_state": ["available", "scheduled", "pending", "running", "retryable"], "on_conflict": "reject", "exclude_kind": false, "meta_optional": true}
-- A Faktory job without unique_for is not unique, and nothing is looked at.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('fk', '{}', '{"faktory": {}}'); --> id|skipped: 1|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('fk', '{}', '{"faktory": {"unique_for": null}}'); --> id|skipped: 2|f

-- One key for one meaning, whoever asks.
select jobs.unique_key('k', '{"id": 1}', '{"oban": true}', 'q') = jobs.unique_key('k', '{"id": 1}', '{"by_args": true, "by_queue": true}', 'q') as oban,
       jobs.unique_key('k', '{"id": 1}', '{"ojs": {"keys": ["args"]}}', 'q') = jobs.unique_key('k', '{"id": 1}', '{"by_args": true}', 'q') as ojs; --> oban|ojs: t|t
-- Decisions.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}'); --> id|skipped: 3|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}'); --> id|skipped: 3|t
call pg_temp.later('61 seconds');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('o', '{"id": 1}', '{"oban": {}}'); --> id|skipped: 4|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"]}}'); --> id|skipped: 5|f
select pg_temp.code($$select jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"]}}')$$); --> 23505
select id, unique_skipped_as_duplicate as skipped from jobs.insert('s', '{"id": 1}', '{"ojs": {"keys": ["args"], "on_conflict": "ignore"}}'); --> id|skipped: 5|t

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
  -- A number without its unit, a unit twice, units out of order, T with nothing behind it: the
  -- server's reader takes them, as years, hours, sums.
  ('{"ojs": {"period": "P1"}}'), ('{"ojs": {"period": "PT15"}}'), ('{"ojs": {"period": "PT1H30"}}'), ('{"ojs": {"period": "P1DT"}}'), ('{"ojs": {"period": "PTT1S"}}'), ('{"ojs": {"period": "P1Y1Y"}}'), ('{"ojs": {"period": "P1M2Y"}}'), ('{"ojs": {"period": "PT1S1M"}}'),
  ('{"ojs": {"period": "-PT15M"}}'), ('{"ojs": {"period": "PT-15M"}}'), ('{"ojs": {"period": "PT15M "}}'), ('{"ojs": {"period": "@ 1 hour"}}'), ('{"ojs": {"period": "PT0S"}}'),
  ('{"ojs": {"states": []}}'), ('{"ojs": {"states": true}}'), ('{"ojs": {"states": "all"}}'), ('{"ojs": {"states": {}}}'), ('{"ojs": {"states": [5]}}'), ('{"ojs": {"states": ["executing"]}}'),
  ('{"ojs": {"states": ["running"]}}'), ('{"ojs": {"states": ["actve"]}}'), ('{"ojs": {"states": ["Completed"]}}'), ('{"ojs": {"on_conflict": true}}'), ('{"ojs": {"on_conflict": ["ignore"]}}'),
  ('{"ojs": {"on_conflict": {"update": {"*": ["args"]}}}}'), ('{"ojs": {"on_conflict": "update"}}'), ('{"ojs": {"on_conflict": "skip"}}'), ('{"ojs": {"on_conflict": "Reject"}}'),
  ('{"ojs": {"on_conflict": "replace_except_schedul"}}'),
  ('{"ojs": {"keys": ["args"], "args_keys": ["id", "id"]}}'), ('{"ojs": {"states": ["active", "active"]}}');
create temp table before as select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, last_value, is_called from jobs.job_seq;
select pg_temp.refusals($$select jobs.insert('k', '{"id": 1}', %L, meta => '{"t": 1}')$$, array_agg(opts order by n)) from cases;
--> {"oban": true, "by_args": true} | 22023: oban and by_args cannot be combined | Omit oban or by_args.
--> {"oban": {}, "window": 60} | 22023: oban and window cannot be combined | Omit oban or window.
--> {"oban": true, "key": "k"} | 22023: oban and key cannot be combined | Omit oban or key.
--> {"oban": true, "faktory": {}} | 22023: oban and faktory cannot be combined | Omit oban or faktory.
--> {"oban": true, "ojs": {}} | 22023: oban and ojs cannot be combined | Omit oban or ojs.
-->   oban can be combined only with on_conflict and wait.
--> {"faktory": {}, "by_queue": true} | 22023: faktory and by_queue cannot be combined | Omit faktory or by_queue.
--> {"ojs": {}, "faktory": {}} | 22023: faktory and ojs cannot be combined | Omit faktory or ojs.
-->   faktory can be combined only with on_conflict and wait.
--> {"ojs": {}, "by_meta": ["t"]} | 22023: ojs and by_meta cannot be combined | Omit ojs or by_meta.
--> {"ojs": {}, "exclude_kind": true} | 22023: ojs and exclude_kind cannot be combined | Omit ojs or exclude_kind.
--> {"ojs": {}, "by_state": ["running"]} | 22023: ojs and by_state cannot be combined | Omit ojs or by_state.
-->   ojs can be combined only with on_conflict and wait.
--> {"oban": {"replace": ["args"]}, "on_conflict": "skip"} | 22023: on_conflict and oban.replace cannot be combined | Omit on_conflict or oban.replace.
--> {"ojs": {"on_conflict": "ignore"}, "on_conflict": "skip"} | 22023: on_conflict and ojs.on_conflict cannot be combined | Omit on_conflict or ojs.on_conflict.
-->   Both set what happens to a duplicate.
--> {"oban": true, "on_conflict": "ignore"} | 22023: on_conflict "ignore" is not known
-->   on_conflict must be "skip", "reject", "replace" or "replace_except_schedule". It may also be an object such as {"update": {"scheduled": ["args"]}}.
--> {"ojs": {}, "wait": "no"} | 22023: wait must not be a string
-->   wait must be true or false.
--> {"obon": true} | 22023: field "obon" of unique_opts is not known | Did you mean "oban"?
--> {"OJS": {}} | 22023: field "OJS" of unique_opts is not known | Did you mean "ojs"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> {"oban": 5} | 22023: oban must not be a number
--> {"oban": "true"} | 22023: oban must not be a string
--> {"oban": []} | 22023: oban must not be an array
-->   oban must be true, or an object with Oban's unique options.
--> {"oban": {"nosuch": 1}} | 22023: field "nosuch" of oban is not known
--> {"oban": {"perod": 1}} | 22023: field "perod" of oban is not known | Did you mean "period"?
--> {"oban": {"state": 1}} | 22023: field "state" of oban is not known | Did you mean "states"?
--> {"oban": {"Keys": 1}} | 22023: field "Keys" of oban is not known | Did you mean "keys"?
--> {"oban": {"by_args": 1}} | 22023: field "by_args" of oban is not known
--> {"oban": {"unique_for": 1}} | 22023: field "unique_for" of oban is not known
-->   The fields are period, fields, keys, states, timestamp, replace.
--> {"oban": {"period": true}} | 22023: oban.period true is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": "60"}} | 22023: oban.period "60" is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": "Infinity"}} | 22023: oban.period "Infinity" is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": "15 minutes"}} | 22023: oban.period "15 minutes" is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": "PT15M"}} | 22023: oban.period "PT15M" is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": []}} | 22023: oban.period [] is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": [2]}} | 22023: oban.period [2] is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": [2,"parsecs"]}} | 22023: oban.period [2,"parsecs"] is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": ["2","minutes"]}} | 22023: oban.period ["2","minutes"] is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": [2,"minutes",1]}} | 22023: oban.period [2,"minutes",1] is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": {}}} | 22023: oban.period {} is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": 10000000000000}} | 22023: oban.period 10000000000000 is not a period | Write 120, [2, "minutes"] or "infinity".
-->   oban.period must be a number of seconds, "infinity", or a list of a number and a unit from seconds to months.
--> {"oban": {"fields": []}} | 22023: oban.fields must not be an empty list | Omit oban.fields.
-->   oban.fields must have at least one element.
--> {"oban": {"fields": true}} | 22023: oban.fields must not be true
--> {"oban": {"fields": "args"}} | 22023: oban.fields must not be a string
--> {"oban": {"fields": {}}} | 22023: oban.fields must not be an object
--> {"oban": {"fields": [5]}} | 22023: an element of oban.fields must not be a number
-->   oban.fields must be a list of fields such as ["worker", "queue"].
--> {"oban": {"fields": ["nosuch"]}} | 22023: field "nosuch" of oban.fields is not known
--> {"oban": {"fields": ["kind"]}} | 22023: field "kind" of oban.fields is not known
--> {"oban": {"fields": ["arg"]}} | 22023: field "arg" of oban.fields is not known | Did you mean "args"?
--> {"oban": {"fields": ["Worker"]}} | 22023: field "Worker" of oban.fields is not known | Did you mean "worker"?
-->   The fields are worker, queue, args, meta.
--> {"oban": {"keys": true}} | 22023: oban.keys must not be true
--> {"oban": {"keys": "id"}} | 22023: oban.keys must not be a string
--> {"oban": {"keys": {}}} | 22023: oban.keys must not be an object
--> {"oban": {"keys": [5]}} | 22023: an element of oban.keys must not be a number
--> {"oban": {"keys": [["id"]]}} | 22023: an element of oban.keys must not be an array
-->   oban.keys must be a list of top-level members of args and meta.
--> {"oban": {"keys": [""]}} | 22023: path "" of oban.keys has an empty name | Write "\." for a dot in a name.
--> {"ojs": {"keys": ["args"], "args_keys": [""]}} | 22023: path "" of ojs.args_keys has an empty name | Write "\." for a dot in a name.
-->   A path must be one or more member names separated by dots.
--> {"oban": {"fields": ["worker", "queue"], "keys": ["id"]}} | 22023: oban.keys requires args or meta in oban.fields | Add "args" or "meta" to oban.fields, or omit oban.keys.
-->   oban.keys selects the members of args and meta to compare.
--> {"oban": {"states": []}} | 22023: oban.states must not be an empty list | Omit oban.states.
-->   oban.states must have at least one element.
--> {"oban": {"states": true}} | 22023: oban.states must not be true
--> {"oban": {"states": 5}} | 22023: oban.states must not be a number
--> {"oban": {"states": {}}} | 22023: oban.states must not be an object
--> {"oban": {"states": [5]}} | 22023: an element of oban.states must not be a number
-->   oban.states must be a list of states such as ["available", "scheduled"].
--> {"oban": {"states": ["nosuch"]}} | 22023: state "nosuch" of oban.states is not known
--> {"oban": {"states": ["running"]}} | 22023: state "running" of oban.states is not known
--> {"oban": {"states": ["pending"]}} | 22023: state "pending" of oban.states is not known
--> {"oban": {"states": ["excuting"]}} | 22023: state "excuting" of oban.states is not known | Did you mean "executing"?
--> {"oban": {"states": ["all"]}} | 22023: state "all" of oban.states is not known
--> {"oban": {"replace": {"nosuch": ["args"]}}} | 22023: state "nosuch" of oban.replace is not known
--> {"oban": {"replace": {"running": ["args"]}}} | 22023: state "running" of oban.replace is not known
--> {"oban": {"replace": {"*": ["args"]}}} | 22023: state "*" of oban.replace is not known
--> {"oban": {"replace": {"Executing": ["args"]}}} | 22023: state "Executing" of oban.replace is not known | Did you mean "executing"?
-->   The states are available, scheduled, suspended, executing, retryable, completed, cancelled, discarded.
--> {"oban": {"states": "nosuch"}} | 22023: oban.states "nosuch" is not known
--> {"oban": {"states": "succesful"}} | 22023: oban.states "succesful" is not known | Did you mean "successful"?
--> {"oban": {"states": "All"}} | 22023: oban.states "All" is not known | Did you mean "all"?
--> {"oban": {"states": ""}} | 22023: oban.states "" is not known
-->   oban.states must be "all", "incomplete", "scheduled" or "successful".
--> {"oban": {"timestamp": true}} | 22023: oban.timestamp must not be true
--> {"oban": {"timestamp": "created_at"}} | 22023: oban.timestamp "created_at" is not known
--> {"oban": {"timestamp": "insertedat"}} | 22023: oban.timestamp "insertedat" is not known | Did you mean "inserted_at"?
-->   oban.timestamp must be "inserted_at" or "scheduled_at".
--> {"oban": {"replace": []}} | 22023: oban.replace must not be an empty list | Omit oban.replace.
-->   oban.replace must have at least one element.
--> {"oban": {"replace": true}} | 22023: oban.replace must not be true
--> {"oban": {"replace": "args"}} | 22023: oban.replace must not be a string
--> {"oban": {"replace": [5]}} | 22023: an element of oban.replace must not be a number
-->   oban.replace must be a list of fields such as ["args", "max_attempts"].
--> {"oban": {"replace": ["nosuch"]}} | 22023: field "nosuch" of oban.replace is not known
--> {"oban": {"replace": ["kind"]}} | 22023: field "kind" of oban.replace is not known
--> {"oban": {"replace": ["arg"]}} | 22023: field "arg" of oban.replace is not known | Did you mean "args"?
--> {"oban": {"replace": ["prioritty"]}} | 22023: field "prioritty" of oban.replace is not known | Did you mean "priority"?
--> {"oban": {"replace": {"executing": ["arg"]}}} | 22023: field "arg" of oban.replace.executing is not known | Did you mean "args"?
-->   The fields are args, max_attempts, meta, priority, queue, scheduled_at, tags, worker.
--> {"oban": {"replace": {}}} | 22023: oban.replace must not be empty
-->   oban.replace must have at least one state with a list of fields.
--> {"oban": {"replace": {"executing": true}}} | 22023: oban.replace.executing must not be true
-->   oban.replace.executing must be a list of fields such as ["args", "max_attempts"].
--> {"oban": {"replace": {"executing": []}}} | 22023: oban.replace.executing must not be an empty list | Omit oban.replace.executing.
-->   oban.replace.executing must have at least one element.
--> {"faktory": true} | 22023: faktory must not be true
--> {"faktory": 600} | 22023: faktory must not be a number
--> {"faktory": []} | 22023: faktory must not be an array
-->   faktory must be an object such as {"unique_for": 600}.
--> {"faktory": {"unique": 1}} | 22023: field "unique" of faktory is not known
--> {"faktory": {"unique_fo": 1}} | 22023: field "unique_fo" of faktory is not known | Did you mean "unique_for"?
--> {"faktory": {"uniqueUntil": 1}} | 22023: field "uniqueUntil" of faktory is not known | Did you mean "unique_until"?
-->   The fields are unique_for, unique_until.
--> {"faktory": {"unique_for": true}} | 22023: faktory.unique_for must not be true
--> {"faktory": {"unique_for": "600"}} | 22023: faktory.unique_for must not be a string
--> {"faktory": {"unique_for": "PT10M"}} | 22023: faktory.unique_for must not be a string
--> {"faktory": {"unique_for": [600]}} | 22023: faktory.unique_for must not be an array
--> {"faktory": {"unique_for": {}}} | 22023: faktory.unique_for must not be an object
-->   faktory.unique_for must be a number of seconds.
--> {"faktory": {"unique_for": 0}} | 22023: faktory.unique_for 0 is too short | Omit faktory.unique_for for none.
--> {"faktory": {"unique_for": -5}} | 22023: faktory.unique_for -5 is too short | Omit faktory.unique_for for none.
-->   faktory.unique_for must be longer than 0.
--> {"faktory": {"unique_for": 1e30}} | 22023: faktory.unique_for 1000000000000000000000000000000 is out of range
-->   A duration must be at most 9223372036854 seconds.
--> {"faktory": {"unique_for": 600, "unique_until": true}} | 22023: faktory.unique_until must not be true
--> {"faktory": {"unique_for": 600, "unique_until": 5}} | 22023: faktory.unique_until must not be a number
--> {"faktory": {"unique_for": 600, "unique_until": "done"}} | 22023: faktory.unique_until "done" is not known
--> {"faktory": {"unique_for": 600, "unique_until": "Start"}} | 22023: faktory.unique_until "Start" is not known | Did you mean "start"?
--> {"faktory": {"unique_for": 600, "unique_until": "sucess"}} | 22023: faktory.unique_until "sucess" is not known | Did you mean "success"?
-->   faktory.unique_until must be "success" or "start".
--> {"ojs": true} | 22023: ojs must not be true
--> {"ojs": 5} | 22023: ojs must not be a number
--> {"ojs": "type"} | 22023: ojs must not be a string
--> {"ojs": []} | 22023: ojs must not be an array
-->   ojs must be an object such as {"keys": ["type", "args"]}.
--> {"ojs": {"nosuch": 1}} | 22023: field "nosuch" of ojs is not known
--> {"ojs": {"key": 1}} | 22023: field "key" of ojs is not known | Did you mean "keys"?
--> {"ojs": {"arg_keys": 1}} | 22023: field "arg_keys" of ojs is not known | Did you mean "args_keys"?
--> {"ojs": {"metaKeys": 1}} | 22023: field "metaKeys" of ojs is not known | Did you mean "meta_keys"?
--> {"ojs": {"onConflict": 1}} | 22023: field "onConflict" of ojs is not known | Did you mean "on_conflict"?
-->   The fields are keys, args_keys, meta_keys, period, states, on_conflict.
--> {"ojs": {"keys": true}} | 22023: ojs.keys must not be true
--> {"ojs": {"keys": "args"}} | 22023: ojs.keys must not be a string
--> {"ojs": {"keys": {}}} | 22023: ojs.keys must not be an object
--> {"ojs": {"keys": [5]}} | 22023: an element of ojs.keys must not be a number
-->   ojs.keys must be a list of dimensions such as ["type", "queue"].
--> {"ojs": {"keys": ["kind"]}} | 22023: dimension "kind" of ojs.keys is not known
--> {"ojs": {"keys": ["arg"]}} | 22023: dimension "arg" of ojs.keys is not known | Did you mean "args"?
--> {"ojs": {"keys": ["Type"]}} | 22023: dimension "Type" of ojs.keys is not known | Did you mean "type"?
-->   The dimensions are type, queue, args, meta.
--> {"ojs": {"keys": ["args"], "args_keys": true}} | 22023: ojs.args_keys must not be true
--> {"ojs": {"keys": ["args"], "args_keys": "id"}} | 22023: ojs.args_keys must not be a string
--> {"ojs": {"keys": ["args"], "args_keys": {}}} | 22023: ojs.args_keys must not be an object
--> {"ojs": {"keys": ["args"], "args_keys": [5]}} | 22023: an element of ojs.args_keys must not be a number
-->   ojs.args_keys must be a list of top-level members of args.
--> {"ojs": {"keys": ["meta"], "meta_keys": true}} | 22023: ojs.meta_keys must not be true
--> {"ojs": {"keys": ["meta"], "meta_keys": "id"}} | 22023: ojs.meta_keys must not be a string
--> {"ojs": {"keys": ["meta"], "meta_keys": {}}} | 22023: ojs.meta_keys must not be an object
--> {"ojs": {"keys": ["meta"], "meta_keys": [5]}} | 22023: an element of ojs.meta_keys must not be a number
-->   ojs.meta_keys must be a list of top-level members of meta.
--> {"ojs": {"keys": ["args", "args"]}} | 22023: "args" is listed twice in ojs.keys
-->   ojs.keys must list each element once.
--> {"ojs": {"meta_keys": ["id", "id"]}} | 22023: "id" is listed twice in ojs.meta_keys
-->   ojs.meta_keys must list each element once.
--> {"ojs": {"keys": ["meta"]}} | 22023: meta in ojs.keys requires ojs.meta_keys | Add "meta_keys", such as ["tenant_id"].
--> {"ojs": {"keys": ["type", "meta"], "meta_keys": []}} | 22023: meta in ojs.keys requires ojs.meta_keys | Add "meta_keys", such as ["tenant_id"].
-->   ojs.meta_keys lists the members of meta that make a job unique.
--> {"ojs": {"period": 900}} | 22023: ojs.period 900 is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": true}} | 22023: ojs.period true is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": ["PT15M"]}} | 22023: ojs.period ["PT15M"] is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": {}}} | 22023: ojs.period {} is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "15 minutes"}} | 22023: ojs.period "15 minutes" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "15"}} | 22023: ojs.period "15" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": ""}} | 22023: ojs.period "" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "P"}} | 22023: ojs.period "P" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PT"}} | 22023: ojs.period "PT" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "pt15m"}} | 22023: ojs.period "pt15m" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "P1"}} | 22023: ojs.period "P1" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PT15"}} | 22023: ojs.period "PT15" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PT1H30"}} | 22023: ojs.period "PT1H30" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "P1DT"}} | 22023: ojs.period "P1DT" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PTT1S"}} | 22023: ojs.period "PTT1S" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "P1Y1Y"}} | 22023: ojs.period "P1Y1Y" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "P1M2Y"}} | 22023: ojs.period "P1M2Y" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PT1S1M"}} | 22023: ojs.period "PT1S1M" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "-PT15M"}} | 22023: ojs.period "-PT15M" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PT-15M"}} | 22023: ojs.period "PT-15M" is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "PT15M "}} | 22023: ojs.period "PT15M " is not an ISO 8601 duration | Write "PT15M".
--> {"ojs": {"period": "@ 1 hour"}} | 22023: ojs.period "@ 1 hour" is not an ISO 8601 duration | Write "PT15M".
-->   ojs.period must be an ISO 8601 duration.
--> {"ojs": {"period": "PT0S"}} | 22023: ojs.period "PT0S" is too short | Omit ojs.period for none.
-->   ojs.period must be longer than 0.
--> {"ojs": {"states": []}} | 22023: ojs.states must not be an empty list | Omit ojs.states.
-->   ojs.states must have at least one element.
--> {"ojs": {"states": true}} | 22023: ojs.states must not be true
--> {"ojs": {"states": "all"}} | 22023: ojs.states must not be a string
--> {"ojs": {"states": {}}} | 22023: ojs.states must not be an object
--> {"ojs": {"states": [5]}} | 22023: an element of ojs.states must not be a number
-->   ojs.states must be a list of states such as ["available", "active"].
--> {"ojs": {"states": ["executing"]}} | 22023: state "executing" of ojs.states is not known
--> {"ojs": {"states": ["running"]}} | 22023: state "running" of ojs.states is not known
--> {"ojs": {"states": ["actve"]}} | 22023: state "actve" of ojs.states is not known | Did you mean "active"?
--> {"ojs": {"states": ["Completed"]}} | 22023: state "Completed" of ojs.states is not known | Did you mean "completed"?
-->   The states are available, active, scheduled, retryable, pending, completed, cancelled, discarded.
--> {"ojs": {"on_conflict": true}} | 22023: ojs.on_conflict must not be true
--> {"ojs": {"on_conflict": ["ignore"]}} | 22023: ojs.on_conflict must not be an array
--> {"ojs": {"on_conflict": {"update": {"*": ["args"]}}}} | 22023: ojs.on_conflict must not be an object
--> {"ojs": {"on_conflict": "update"}} | 22023: ojs.on_conflict "update" is not known
--> {"ojs": {"on_conflict": "skip"}} | 22023: ojs.on_conflict "skip" is not known
--> {"ojs": {"on_conflict": "Reject"}} | 22023: ojs.on_conflict "Reject" is not known | Did you mean "reject"?
--> {"ojs": {"on_conflict": "replace_except_schedul"}} | 22023: ojs.on_conflict "replace_except_schedul" is not known | Did you mean "replace_except_schedule"?
-->   ojs.on_conflict must be "ignore", "reject", "replace" or "replace_except_schedule".
--> {"ojs": {"keys": ["args"], "args_keys": ["id", "id"]}} | 22023: "id" is listed twice in ojs.args_keys
-->   ojs.args_keys must list each element once.
--> {"ojs": {"states": ["active", "active"]}} | 22023: "active" is listed twice in ojs.states
-->   ojs.states must list each element once.
-- A period that is none, whose fix depends on the default; members that args must have and have
-- not, in each form of args.
select pg_temp.refusals('select jobs.insert(''k'', ''{"id": 1}'', %L)', array[
  '{"oban": {"period": 0}}', '{"oban": {"period": -1}}', '{"oban": {"period": 0.0000004}}', '{"oban": {"period": [0, "minutes"]}}', '{"oban": {"period": [-2, "days"]}}', '{"oban": {"period": 1e400}}', '{"oban": {"period": [1e400, "days"]}}', '{"faktory": {"unique_for": 1e400}}']);
--> {"oban": {"period": 0}} | 22023: oban.period 0 is too short | Write "infinity" for none; the default is one minute.
--> {"oban": {"period": -1}} | 22023: oban.period -1 is too short | Write "infinity" for none; the default is one minute.
--> {"oban": {"period": 0.0000004}} | 22023: oban.period 0.0000004 is too short | Write "infinity" for none; the default is one minute.
--> {"oban": {"period": [0, "minutes"]}} | 22023: oban.period [0,"minutes"] is too short | Write "infinity" for none; the default is one minute.
--> {"oban": {"period": [-2, "days"]}} | 22023: oban.period [-2,"days"] is too short | Write "infinity" for none; the default is one minute.
-->   oban.period must be longer than 0.
--> {"oban": {"period": 1e400}} | 22023: oban.period 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000... is not a period | Write 120, [2, "minutes"] or "infinity".
--> {"oban": {"period": [1e400, "days"]}} | 22023: oban.period [100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000... is not a period | Write 120, [2, "minutes"] or "infinity".
-->   oban.period must be a number of seconds, "infinity", or a list of a number and a unit from seconds to months.
--> {"faktory": {"unique_for": 1e400}} | 22023: faktory.unique_for 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000... is out of range
-->   A duration must be at most 9223372036854 seconds.
select pg_temp.refusals('select jobs.insert(''k'', %L, ''{"ojs": {"keys": ["args"], "args_keys": ["id", "absent"]}}'')', array_agg(args)) from unnest(array['{"id": 1}', '[]', '[1]', '[{"id": 1}, {"absent": 2}]', '5', 'null']) args;
--> {"id": 1} | 22023: member "absent" is missing from args
--> [] | 22023: member "id" is missing from args
--> [1] | 22023: member "id" is missing from args
--> [{"id": 1}, {"absent": 2}] | 22023: member "absent" is missing from args
--> 5 | 22023: member "id" is missing from args
--> null | 22023: member "id" is missing from args
-->   All members that make the job unique must exist in args.
-- Every one is 22023, from each way in, and nothing is written, not even an id.
select n, opts, a, b, c, d from cases,
  lateral (select pg_temp.code(format('select jobs.insert_batch(%L, %L, %L)', 'k', '{"{}"}', opts)) a, pg_temp.code(format('select jobs.insert_many(%L)', jsonb_build_array(jsonb_build_object('kind', 'k', 'unique_opts', opts::jsonb)))) b,
                  pg_temp.code(format('select jobs.unique_key(%L, unique_opts => %L)', 'k', opts)) c, pg_temp.code(format('select jobs.explain_unique(%L, unique_opts => %L)', 'k', opts)) d) x
 where (a, b, c, d) <> ('22023', '22023', '22023', '22023') order by n; --> none
select b.* from before b join (select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, last_value, is_called from jobs.job_seq) a using (jobs, claims, last_value, is_called);
--> jobs|claims|last_value|is_called: 5|2|5|t
