-- unique_opts that are refused: 22023 with the value, the rule and, where one is likely, the fix.
-- And those that are not.

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
  ('{"by_period": "1 month -30 days"}'), ('{"by_period": "weekly"}'), ('{"by_period": ""}'), ('{"by_period": 1e30}'), ('{"by_period": "200000000 days"}'), ('{"by_period": "infinity"}'),
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
--> [] | 22023: unique_opts must not be an array
--> "by_args" | 22023: unique_opts must not be a string
--> true | 22023: unique_opts must not be true
--> 5 | 22023: unique_opts must not be a number
-->   unique_opts must be an object such as {"by_args": true}; {} means not unique.
--> {"by_arg": true} | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
--> {"byArgs": true} | 22023: field "byArgs" of unique_opts is not known | Did you mean "by_args"?
--> {"BY_ARGS": true} | 22023: field "BY_ARGS" of unique_opts is not known | Did you mean "by_args"?
--> {"by_queu": true} | 22023: field "by_queu" of unique_opts is not known | Did you mean "by_queue"?
--> {"uniq": true} | 22023: field "uniq" of unique_opts is not known
--> {"": true} | 22023: field "" of unique_opts is not known
--> {"by_args": true, "onconflict": "skip"} | 22023: field "onconflict" of unique_opts is not known | Did you mean "on_conflict"?
--> {"by_args": true, "by_arg": null} | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
--> {"x\u00e9\"'": 1} | 22023: field "xé"'" of unique_opts is not known
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> {"exclude_kind": true} | 22023: exclude_kind alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"on_conflict": "reject"} | 22023: on_conflict alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"on_conflict": "skip"} | 22023: on_conflict alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"wait": false} | 22023: wait alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"wait": true} | 22023: wait alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"exclude_kind": true, "by_args": false} | 22023: exclude_kind alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"by_kind": false, "on_conflict": "reject"} | 22023: on_conflict alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
--> {"window": 60} | 22023: window alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
-->   It requires one of by_kind, by_args, by_meta, by_queue, by_period, by_state, key.
--> {"by_kind": "yes"} | 22023: by_kind must not be a string
--> {"by_kind": 1} | 22023: by_kind must not be a number
--> {"by_kind": []} | 22023: by_kind must not be an array
--> {"by_kind": {}} | 22023: by_kind must not be an object
-->   by_kind must be true or false.
--> {"by_args": "user_id"} | 22023: by_args must not be a string
--> {"by_args": 1} | 22023: by_args must not be a number
--> {"by_args": {"a": true}} | 22023: by_args must not be an object
--> {"by_args": [1]} | 22023: an element of by_args must not be a number
--> {"by_args": [null]} | 22023: an element of by_args must not be null
--> {"by_args": [["a"]]} | 22023: an element of by_args must not be an array
--> {"by_args": [true]} | 22023: an element of by_args must not be true
--> {"by_args": ["a", {}]} | 22023: an element of by_args must not be an object
-->   by_args must be true for all args, or a list of paths such as ["user_id", "address.city"].
--> {"by_meta": true} | 22023: by_meta must not be true
--> {"by_meta": "a"} | 22023: by_meta must not be a string
--> {"by_meta": [5]} | 22023: an element of by_meta must not be a number
--> {"by_meta": {}} | 22023: by_meta must not be an object
--> {"by_meta": 5} | 22023: by_meta must not be a number
--> {"by_meta": ["a", null]} | 22023: an element of by_meta must not be null
--> {"by_meta": [false]} | 22023: an element of by_meta must not be false
-->   by_meta must be a list of paths such as ["tenant_id"]; true is not allowed.
--> {"by_queue": "default"} | 22023: by_queue must not be a string
--> {"by_queue": 0} | 22023: by_queue must not be a number
--> {"by_queue": []} | 22023: by_queue must not be an array
--> {"by_queue": {}} | 22023: by_queue must not be an object
-->   by_queue must be true or false.
--> {"exclude_kind": "x", "by_args": true} | 22023: exclude_kind must not be a string
--> {"by_args": true, "exclude_kind": 1} | 22023: exclude_kind must not be a number
--> {"by_args": true, "exclude_kind": []} | 22023: exclude_kind must not be an array
--> {"by_args": true, "exclude_kind": {}} | 22023: exclude_kind must not be an object
-->   exclude_kind must be true or false.
--> {"key": 5} | 22023: key must not be a number
--> {"key": true} | 22023: key must not be true
--> {"key": ["a"]} | 22023: key must not be an array
--> {"key": {}} | 22023: key must not be an object
--> {"key": ""} | 22023: key must not be empty
--> {"key": 1.5} | 22023: key must not be a number
-->   key must be a string that is not empty.
--> {"wait": 0, "by_kind": true} | 22023: wait must not be a number
--> {"wait": "false", "by_kind": true} | 22023: wait must not be a string
--> {"by_kind": true, "wait": []} | 22023: wait must not be an array
--> {"by_kind": true, "wait": {}} | 22023: wait must not be an object
-->   wait must be true or false.
--> {"by_state": true} | 22023: by_state must not be true
--> {"by_state": "running"} | 22023: by_state must not be a string
--> {"by_state": {}} | 22023: by_state must not be an object
--> {"by_state": [5]} | 22023: an element of by_state must not be a number
--> {"by_state": [null]} | 22023: an element of by_state must not be null
--> {"by_state": 5} | 22023: by_state must not be a number
--> {"by_state": ["running", true]} | 22023: an element of by_state must not be true
--> {"by_state": [["running"]]} | 22023: an element of by_state must not be an array
--> {"by_state": [{}]} | 22023: an element of by_state must not be an object
-->   by_state must be a list of states such as ["available", "scheduled"].
--> {"by_period": true} | 22023: by_period must not be true | Write 900, "PT15M" or "15 minutes".
--> {"by_period": [2, "minutes"]} | 22023: by_period must not be an array | Write 900, "PT15M" or "15 minutes".
--> {"by_period": {}} | 22023: by_period must not be an object | Write 900, "PT15M" or "15 minutes".
--> {"by_period": "weekly"} | 22023: by_period "weekly" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_period": ""} | 22023: by_period "" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_period": "infinity"} | 22023: by_period "infinity" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_period": "NaN"} | 22023: by_period "NaN" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": true} | 22023: window must not be true | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": [60]} | 22023: window must not be an array | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": {"minutes": 1}} | 22023: window must not be an object | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": "soon"} | 22023: window "soon" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": ""} | 22023: window "" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": "infinity"} | 22023: window "infinity" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_kind": true, "window": "NaN"} | 22023: window "NaN" is not a duration | Write 900, "PT15M" or "15 minutes".
-->   A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.
--> {"by_kind": true, "on_conflict": true} | 22023: on_conflict must not be true
--> {"by_kind": true, "on_conflict": 1} | 22023: on_conflict must not be a number
--> {"by_kind": true, "on_conflict": ["skip"]} | 22023: on_conflict must not be an array
--> {"by_kind": true, "on_conflict": "ignore"} | 22023: on_conflict "ignore" is not known
--> {"by_kind": true, "on_conflict": "rejct"} | 22023: on_conflict "rejct" is not known | Did you mean "reject"?
--> {"by_kind": true, "on_conflict": "Skip"} | 22023: on_conflict "Skip" is not known | Did you mean "skip"?
--> {"by_kind": true, "on_conflict": ""} | 22023: on_conflict "" is not known
--> {"by_kind": true, "on_conflict": "update"} | 22023: on_conflict "update" is not known
-->   on_conflict must be "skip", "reject", "replace" or "replace_except_schedule". It may also be an object such as {"update": {"scheduled": ["args"]}}.
--> {"by_kind": true, "on_conflict": {}} | 22023: on_conflict.update must not be null
--> {"by_kind": true, "on_conflict": {"update": null}} | 22023: on_conflict.update must not be null
--> {"by_kind": true, "on_conflict": {"update": true}} | 22023: on_conflict.update must not be true
--> {"by_kind": true, "on_conflict": {"update": 5}} | 22023: on_conflict.update must not be a number
--> {"by_kind": true, "on_conflict": {"update": "args"}} | 22023: on_conflict.update must not be a string
--> {"by_kind": true, "on_conflict": {"update": ["args"]}} | 22023: on_conflict.update must not be an array
-->   on_conflict.update must be an object with a list of fields for each state, or for "*", every state.
--> {"by_kind": true, "on_conflict": {"skip": true}} | 22023: field "skip" of on_conflict is not known
--> {"by_kind": true, "on_conflict": {"updat": {"*": ["args"]}}} | 22023: field "updat" of on_conflict is not known | Did you mean "update"?
--> {"by_kind": true, "on_conflict": {"update": {"*": ["args"]}, "x": 1}} | 22023: field "x" of on_conflict is not known
-->   The fields are update.
--> {"by_args": []} | 22023: by_args must not be an empty list | Omit by_args.
-->   by_args must have at least one element.
--> {"by_meta": []} | 22023: by_meta must not be an empty list | Omit by_meta.
-->   by_meta must have at least one element.
--> {"by_state": []} | 22023: by_state must not be an empty list | Omit by_state.
-->   by_state must have at least one element.
--> {"by_args": [""]} | 22023: path "" of by_args has an empty name | Write "\." for a dot in a name.
--> {"by_args": ["a..b"]} | 22023: path "a..b" of by_args has an empty name | Write "\." for a dot in a name.
--> {"by_args": [".a"]} | 22023: path ".a" of by_args has an empty name | Write "\." for a dot in a name.
--> {"by_args": ["a."]} | 22023: path "a." of by_args has an empty name | Write "\." for a dot in a name.
--> {"by_meta": ["a..b"]} | 22023: path "a..b" of by_meta has an empty name | Write "\." for a dot in a name.
-->   A path must be one or more member names separated by dots.
--> {"by_args": ["a\\b"]} | 22023: path "a\b" of by_args has a backslash that escapes nothing | Write "\\" for a backslash in a name.
--> {"by_args": ["a\\"]} | 22023: path "a\" of by_args has a backslash that escapes nothing | Write "\\" for a backslash in a name.
-->   In a path, a backslash may only precede a dot or another backslash.
--> {"by_state": ["runing"]} | 22023: state "runing" of by_state is not known | Did you mean "running"?
--> {"by_state": ["available", "executing"]} | 22023: state "executing" of by_state is not known
--> {"by_state": ["Running"]} | 22023: state "Running" of by_state is not known | Did you mean "running"?
--> {"by_state": [""]} | 22023: state "" of by_state is not known
-->   The states are available, scheduled, pending, running, retryable, completed, cancelled, discarded.
--> {"by_period": 0} | 22023: by_period 0 is too short
--> {"by_period": 0.999999} | 22023: by_period 0.999999 is too short
--> {"by_period": -60} | 22023: by_period -60 is too short
--> {"by_period": "0 seconds"} | 22023: by_period "0 seconds" is too short
--> {"by_period": "-1 day"} | 22023: by_period "-1 day" is too short
-->   A period must be at least one second.
--> {"by_period": "1 month"} | 22023: by_period "1 month" has no fixed length | Write it in days, such as "30 days".
--> {"by_period": "P1Y"} | 22023: by_period "P1Y" has no fixed length | Write it in days, such as "30 days".
--> {"by_period": "1 year 3 days"} | 22023: by_period "1 year 3 days" has no fixed length | Write it in days, such as "30 days".
--> {"by_period": "1 month -30 days"} | 22023: by_period "1 month -30 days" has no fixed length | Write it in days, such as "30 days".
-->   A period must have a fixed length; months and years vary in length.
--> {"by_period": 1e30} | 22023: by_period 1000000000000000000000000000000 is out of range
--> {"by_period": 9223372036855} | 22023: by_period 9223372036855 is out of range
--> {"by_kind": true, "window": 1e30} | 22023: window 1000000000000000000000000000000 is out of range
--> {"by_kind": true, "window": -1e60} | 22023: window -1000000000000000000000000000000000000000000000000000000000000 is out of range
-->   A duration must be at most 9223372036854 seconds.
--> {"by_period": "200000000 days"} | 22023: by_period "200000000 days" is out of range
-->   A period must be at most 106751991 days.
--> {"key": "k", "by_args": true} | 22023: key and by_args cannot be combined | Omit one of them, or make the value of by_args part of the key.
--> {"key": "k", "by_args": ["a"]} | 22023: key and by_args cannot be combined | Omit one of them, or make the value of by_args part of the key.
--> {"key": "k", "by_meta": ["a"]} | 22023: key and by_meta cannot be combined | Omit one of them, or make the value of by_meta part of the key.
--> {"key": "k", "by_period": 60} | 22023: key and by_period cannot be combined | Omit one of them, or make the value of by_period part of the key.
-->   A key replaces args, meta and period.
--> {"by_kind": true, "window": 0} | 22023: window 0 is too short | Omit window for none.
--> {"by_kind": true, "window": -60} | 22023: window -60 is too short | Omit window for none.
--> {"by_kind": true, "window": 0.0000004} | 22023: window 0.0000004 is too short | Omit window for none.
--> {"by_kind": true, "window": "PT0S"} | 22023: window "PT0S" is too short | Omit window for none.
--> {"by_kind": true, "window": "-1 day"} | 22023: window "-1 day" is too short | Omit window for none.
--> {"by_kind": true, "window": "1 month -30 days"} | 22023: window "1 month -30 days" is too short | Omit window for none.
-->   window must be longer than 0.
--> {"by_kind": true, "window_from": "created_at"} | 22023: window_from requires window | Add window, or omit window_from.
--> {"by_kind": true, "window": null, "window_from": "created_at"} | 22023: window_from requires window | Add window, or omit window_from.
-->   window_from has no effect without window.
--> {"by_kind": true, "hold_until": "success"} | 22023: hold_until requires hold_for | Add hold_for, or omit hold_until.
-->   hold_until has no effect without hold_for.
--> {"by_kind": true, "window": 60, "window_from": true} | 22023: window_from must not be true
--> {"by_kind": true, "window": 60, "window_from": ["created_at"]} | 22023: window_from must not be an array
--> {"by_kind": true, "window": 60, "window_from": "inserted_at"} | 22023: window_from "inserted_at" is not known
--> {"by_kind": true, "window": 60, "window_from": "Scheduled"} | 22023: window_from "Scheduled" is not known | Did you mean "scheduled_at"?
-->   window_from must be "created_at" or "scheduled_at".
--> {"by_kind": true, "on_conflict": {"update": {}}} | 22023: on_conflict.update must not be empty
--> {"by_kind": true, "on_conflict": {"update": {"running": null, "*": false}}} | 22023: on_conflict.update must not be empty
-->   on_conflict.update must have at least one state with a list of fields.
--> {"by_kind": true, "on_conflict": {"update": {"runing": ["args"]}}} | 22023: state "runing" of on_conflict.update is not known | Did you mean "running"?
--> {"by_kind": true, "on_conflict": {"update": {"executing": ["args"]}}} | 22023: state "executing" of on_conflict.update is not known
--> {"by_kind": true, "on_conflict": {"update": {"Available": ["args"]}}} | 22023: state "Available" of on_conflict.update is not known | Did you mean "available"?
--> {"by_kind": true, "on_conflict": {"update": {"**": ["args"]}}} | 22023: state "**" of on_conflict.update is not known | Did you mean "*"?
--> {"by_kind": true, "on_conflict": {"update": {"": ["args"]}}} | 22023: state "" of on_conflict.update is not known
-->   The states are available, scheduled, pending, running, retryable, completed, cancelled, discarded, *.
--> {"by_kind": true, "on_conflict": {"update": {"running": true}}} | 22023: on_conflict.update.running must not be true
-->   on_conflict.update.running must be a list of fields such as ["args", "kind"].
--> {"by_kind": true, "on_conflict": {"update": {"*": "args"}}} | 22023: on_conflict.update.* must not be a string
--> {"by_kind": true, "on_conflict": {"update": {"*": {"args": 1}}}} | 22023: on_conflict.update.* must not be an object
--> {"by_kind": true, "on_conflict": {"update": {"*": [5]}}} | 22023: an element of on_conflict.update.* must not be a number
--> {"by_kind": true, "on_conflict": {"update": {"*": ["args", null]}}} | 22023: an element of on_conflict.update.* must not be null
-->   on_conflict.update.* must be a list of fields such as ["args", "kind"].
--> {"by_kind": true, "on_conflict": {"update": {"*": []}}} | 22023: on_conflict.update.* must not be an empty list | Omit on_conflict.update.*.
-->   on_conflict.update.* must have at least one element.
--> {"by_kind": true, "on_conflict": {"update": {"*": ["args"], "running": []}}} | 22023: on_conflict.update.running must not be an empty list | Omit on_conflict.update.running.
-->   on_conflict.update.running must have at least one element.
--> {"by_kind": true, "on_conflict": {"update": {"running": ["arg"]}}} | 22023: field "arg" of on_conflict.update.running is not known | Did you mean "args"?
--> {"by_kind": true, "on_conflict": {"update": {"running": ["Priority"]}}} | 22023: field "Priority" of on_conflict.update.running is not known | Did you mean "priority"?
--> {"by_kind": true, "on_conflict": {"update": {"running": ["max_attempt"]}}} | 22023: field "max_attempt" of on_conflict.update.running is not known | Did you mean "max_attempts"?
--> {"by_kind": true, "on_conflict": {"update": {"running": ["state"]}}} | 22023: field "state" of on_conflict.update.running is not known
--> {"by_kind": true, "on_conflict": {"update": {"running": ["worker"]}}} | 22023: field "worker" of on_conflict.update.running is not known
-->   The fields are args, kind, max_attempts, meta, priority, queue, scheduled_at, tags.
-- Every one is 22023, from each way in.
select n, opts, a, b, c, d, e from cases,
  lateral (select pg_temp.code(format('select jobs.insert(%L, unique_opts => %L)', 'k', opts)) a, pg_temp.code(format('select jobs.insert_batch(%L, %L, %L)', 'k', '{"{}"}', opts)) b,
                  pg_temp.code(format('select jobs.insert_many(%L)', jsonb_build_array(jsonb_build_object('kind', 'k', 'unique_opts', opts::jsonb)))) c,
                  pg_temp.code(format('select jobs.unique_key(%L, unique_opts => %L)', 'k', opts)) d, pg_temp.code(format('select jobs.explain_unique(%L, unique_opts => %L)', 'k', opts)) e) x
 where (a, b, c, d, e) <> ('22023', '22023', '22023', '22023', '22023') order by n; --> none
-- And nothing is written, not even an id.
select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, last_value, is_called from jobs.job_seq; --> jobs|claims|last_value|is_called: 0|0|1|f

-- A number that no double holds is no null: it does not count as left out.
select pg_temp.code(format('select jobs.unique_key(%L, unique_opts => %L)', 'k', opts)), count(*) from (values
  ('{"by_kind": true, "by_period": 1e400}'), ('{"by_args": true, "by_period": -1e400}'), ('{"by_kind": true, "by_state": 1e400}'), ('{"by_args": 1e400, "by_kind": true}'), ('{"by_kind": 1e400}'),
  ('{"by_kind": true, "on_conflict": 1e400}'), ('{"by_kind": true, "key": 1e400}'), ('{"by_kind": true, "wait": 1e400}'), ('{"by_kind": true, "window": 1e400}'), ('{"by_queue": 1e400}')) v(opts) group by 1;
--> code|count: 22023|10

-- What is not refused: null and false count as left out, whichever field it is.
select count(*), count(jobs.unique_key('k', '{"a": 1}', opts::jsonb)) as unique from (values
  ('{}'), ('{"by_args": false}'), ('{"by_args": null}'), ('{"by_meta": false, "by_queue": false, "by_period": null, "by_state": null, "key": false, "exclude_kind": null, "on_conflict": false, "wait": null}'),
  ('{"window": null, "hold_for": false, "oban": null, "faktory": false, "ojs": null}')) v(opts); --> count|unique: 5|0
select count(*), count(jobs.unique_key('k', '{"a": 1}', opts::jsonb)) as unique from (values
  ('{"by_args": true, "window": null, "hold_for": false, "on_conflict": null}'),
  ('{"by_kind": true}'), ('{"by_kind": true, "by_args": true}'), ('{"by_args": ["a", "a", "b.c"]}'), ('{"by_state": ["running", "running"]}'),
  ('{"by_state": ["available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded"]}'), ('{"by_period": 1}'), ('{"by_period": "PT1S"}'), ('{"by_period": 1.5}'), ('{"by_period": "1 day 2 hours"}'),
  ('{"by_period": 9000000000000}'), ('{"key": " "}'), ('{"key": "k", "by_kind": true, "by_args": false}'), ('{"by_queue": true, "wait": false}'), ('{"by_queue": true, "wait": true}'), ('{"by_kind": true, "on_conflict": "skip"}'), ('{"by_kind": true, "on_conflict": "reject"}'),
  ('{"by_args": true, "window": 60}'), ('{"by_kind": true, "window": "100000 years"}'), ('{"by_kind": true, "window": "PT1H", "window_from": "scheduled_at"}'), ('{"by_args": true, "on_conflict": "replace"}'),
  ('{"by_args": true, "on_conflict": "replace_except_schedule"}'), ('{"by_args": true, "on_conflict": {"update": {"*": ["priority"]}}}'), ('{"by_kind": true, "on_conflict": {"update": {"*": null, "running": ["args", "args"]}}}'),
  ('{"oban": true}'), ('{"oban": {}, "by_args": false, "ojs": null}'), ('{"ojs": {"keys": ["type"]}}'), ('{"ojs": {"keys": [], "args_keys": []}, "wait": false}')) v(opts); --> count|unique: 28|28
-- Text without a unit is seconds to Postgres, and so here.
select jobs.unique_key('k', '{}', '{"by_period": "15"}', scheduled_at => '2026-02-12 15:21:33Z') = jobs.unique_key('k', '{}', '{"by_period": 15}', scheduled_at => '2026-02-12 15:21:33Z') as same; --> t
-- JSON null is how some drivers write null: no options.
select pg_temp.try($$select jobs.insert('k', unique_opts => 'null')$$); --> ok
-- Thousands of paths, and paths that are thousands of names long.
select jobs.unique_key('k', '{"a": 1}', jsonb_build_object('by_args', (select jsonb_agg('p' || n) from generate_series(1, 5000) n) || '["a"]')) = jobs.unique_key('k', '{"a": 1}', '{"by_args": ["a"]}') as many;
--> t
select jobs.unique_key('k', '{"a": 1, "b": 2}', jsonb_build_object('by_args', jsonb_build_array(repeat('a.', 100000) || 'a', 'b'))) = jobs.unique_key('k', '{"b": 2}', '{"by_args": ["b"]}') as long; --> t
