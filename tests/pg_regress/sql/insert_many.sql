-- jobs.insert_many: an array of jobs in one atomic statement.

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
--> ord|id|state|skipped|replaced_id|queue|due_at_once
--> 1|1|available|f|~|default|t
--> 2|2|scheduled|f|~|q|f
--> 3|3|pending|f|~|default|t
--> 4|4|available|f|~|default|t
--> 5|5|available|f|~|default|t
--> 6|6|available|f|~|default|t
select id, state, queue, kind, priority, max_attempts, args, meta, tags, timeout, expires_at from jobs.jobs order by id;
--> id|state|queue|kind|priority|max_attempts|args|meta|tags|timeout|expires_at
--> 1|available|default|a|1|25|{}|{}|{}|00:01:00|~
--> 2|scheduled|q|b|-3|2|{"n": 1}|{"m": 1}|{x,y}|00:01:30|3000-01-01 00:00:00+00
--> 3|pending|default|c|1|25|{}|{}|{}|00:01:00|~
--> 4|available|default|d|5|3|{}|{}|{}|00:15:00|~
--> 5|available|default|e|1|25|null|{}|{}|02:00:00|~
--> 6|available|default|f|1|25|[1]|{}|{}|-00:00:01|~
select scheduled_at from jobs.jobs where id = 2; --> 2999-01-01 00:00:00+00

-- null leaves a field out, but for args.
select ord, id, state, queue from jobs.insert_many('[{"kind": "n", "unique_opts": null, "queue": null, "priority": null, "scheduled_at": null,
  "max_attempts": null, "tags": null, "meta": null, "timeout": null, "retry": null, "expires_at": null, "pending": null}]'); --> ord|id|state|queue: 1|7|available|default
select args, queue, priority, max_attempts, tags, meta, timeout, expires_at from jobs.jobs where kind = 'n';
--> args|queue|priority|max_attempts|tags|meta|timeout|expires_at: {}|default|1|25|{}|{}|00:01:00|~

-- Times without a zone are of the session's.
set timezone = 'Asia/Tokyo';
select ord, scheduled_at at time zone 'UTC' as utc from jobs.insert_many('[{"kind": "t", "scheduled_at": "2030-01-01 09:00"}, {"kind": "t", "scheduled_at": "2030-01-01"}]');
--> ord|utc: 1|2030-01-01 00:00:00, 2|2029-12-31 15:00:00
set timezone = 'UTC';

-- None is none.
select * from jobs.insert_many('[]'); --> none

-- Duplicates inside are resolved like duplicates outside: the first one wins.
select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue from jobs.insert_many('[
  {"kind": "u", "args": {"n": 1}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 1.0}, "unique_opts": {"by_args": true}, "queue": "other"},
  {"kind": "u", "args": {"n": 2}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 1}},
  {"kind": "u", "args": {"n": 2}, "unique_opts": {"by_args": true}, "pending": true}]') order by ord;
--> ord|id|state|skipped|replaced_id|queue
--> 1|10|available|f|~|default
--> 2|10|available|t|~|default
--> 3|11|available|f|~|default
--> 4|12|available|f|~|default
--> 5|11|available|t|~|default
select count(*) from jobs.jobs where kind = 'u'; --> 3
-- And those outside, in the same call.
select ord, id > 12 as new, unique_skipped_as_duplicate as skipped from jobs.insert_many('[
  {"kind": "u", "args": {"n": 3}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 2}, "unique_opts": {"by_args": true}},
  {"kind": "u", "args": {"n": 3}, "unique_opts": {"by_args": true}}]') order by ord;
--> ord|new|skipped
--> 1|t|f
--> 2|f|t
--> 3|t|t
select count(*) from jobs.jobs where kind = 'u'; --> 4
-- A later element is a duplicate only of what its own by_state names.
select ord, state, unique_skipped_as_duplicate as skipped from jobs.insert_many('[
  {"kind": "w", "pending": true, "unique_opts": {"by_kind": true}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["available"]}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["available"]}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["pending"]}},
  {"kind": "w", "unique_opts": {"by_kind": true, "by_state": ["running"]}}]') order by ord;
--> ord|state|skipped
--> 1|pending|f
--> 2|available|f
--> 3|available|t
--> 4|pending|t
--> 5|available|f

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
select id from jobs.insert('r', unique_opts => '{"by_args": true}', args => '1'); --> 17
select * from pg_temp.rejection('[{"kind": "r", "args": 7}, {"kind": "r", "args": 1, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]');
--> code|message|existing|state: 23505|a job with the same unique key exists|17|available
select * from pg_temp.rejection('[{"kind": "r", "args": 1, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]');
--> code|message|existing|state: 23505|a job with the same unique key exists|17|available
select * from pg_temp.rejection('[{"kind": "r", "args": 2, "unique_opts": {"by_args": true, "on_conflict": "reject"}},
                                  {"kind": "r", "args": 2, "unique_opts": {"by_args": true, "on_conflict": "reject"}}]');
--> code|message|existing|state: 23505|a job with the same unique key exists|~|available
select count(*) from jobs.jobs where kind = 'r'; --> 1

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
--> {} | 22023: jobs must not be an object | Use jobs.insert for a single job.
--> "text" | 22023: jobs must not be a string | Use jobs.insert for a single job.
--> null | 22023: jobs must not be null | Use jobs.insert for a single job.
--> 5 | 22023: jobs must not be a number | Use jobs.insert for a single job.
--> {"kind": "k"} | 22023: jobs must not be an object | Use jobs.insert for a single job.
-->   jobs must be an array with an object for each job.
--> [5] | 22023: an element of jobs must not be a number
--> [null] | 22023: an element of jobs must not be null
--> [[]] | 22023: an element of jobs must not be an array
--> [[{"kind": "k"}]] | 22023: an element of jobs must not be an array
-->   Element 1: Each element must be an object with the parameters of jobs.insert.
--> [{}] | 22004: kind must not be null
--> [{"kind": null}] | 22004: kind must not be null
-->   Element 1.
--> [{"kind": "k"}, {"queue": "q"}] | 22004: kind must not be null
-->   Element 2.
--> [{"kind": ""}] | 22023: kind must not be empty
--> [{"kind": "a\u0001"}] | 22023: kind "a\u{1}" contains a control character
-->   Element 1: A kind must have 1 to 127 characters and no control characters.
--> [{"kind": 5}] | 22023: kind must not be a number
--> [{"kind": ["k"]}] | 22023: kind must not be an array
-->   Element 1: kind must be a string.
--> [{"kind": "k", "queue": ""}] | 22023: queue must not be empty
-->   Element 1: A queue must have 1 to 127 characters and no control characters.
--> [{"kind": "k", "queue": {}}] | 22023: queue must not be an object
--> [{"kind": "k", "queue": false}] | 22023: queue must not be false
-->   Element 1: queue must be a string.
--> [{"kind": "k", "priority": "1"}] | 22023: priority must not be a string
--> [{"kind": "k", "priority": true}] | 22023: priority must not be true
-->   Element 1: priority must be a whole number.
--> [{"kind": "k", "priority": 1.5}] | 22023: priority 1.5 is not a whole number of 32 bits
--> [{"kind": "k", "priority": 9007199254740993}] | 22023: priority 9007199254740993 is not a whole number of 32 bits
--> [{"kind": "k", "priority": 99999999999999999999}] | 22023: priority 99999999999999999999 is not a whole number of 32 bits
--> [{"kind": "k", "priority": 1e400}] | 22023: priority 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000... is not a whole number of 32 bits
-->   Element 1: priority must be a whole number of 32 bits.
--> [{"kind": "k", "priority": 32768}] | 22023: priority 32768 is out of range
-->   Element 1: priority must be between -32768 and 32767; lower numbers run first.
--> [{"kind": "k", "max_attempts": 0}] | 22023: max_attempts 0 is too low
-->   Element 1: max_attempts must be at least 1; it includes the first attempt.
--> [{"kind": "k", "max_attempts": -1e400}] | 22023: max_attempts -100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000... is not a whole number of 32 bits
-->   Element 1: max_attempts must be a whole number of 32 bits.
--> [{"kind": "k", "tags": "x"}] | 22023: tags must not be a string
--> [{"kind": "k", "tags": [1]}] | 22023: an element of tags must not be a number
--> [{"kind": "k", "tags": [null]}] | 22023: an element of tags must not be null
--> [{"kind": "k", "tags": {}}] | 22023: tags must not be an object
-->   Element 1: tags must be an array of strings.
--> [{"kind": "k", "meta": []}] | 22023: meta must not be an array
--> [{"kind": "k", "meta": "x"}] | 22023: meta must not be a string
-->   Element 1: meta must be an object.
--> [{"kind": "k", "timeout": 0}] | 22023: timeout "00:00:00" is out of range | Use -1 second for no limit.
--> [{"kind": "k", "timeout": -2}] | 22023: timeout "-00:00:02" is out of range | Use -1 second for no limit.
-->   Element 1: timeout must be longer than 0 and at most 1000 years.
--> [{"kind": "k", "timeout": "soon"}] | 22023: timeout "soon" is not a duration | Write 900, "PT15M" or "15 minutes".
--> [{"kind": "k", "timeout": true}] | 22023: timeout must not be true | Write 900, "PT15M" or "15 minutes".
--> [{"kind": "k", "timeout": ""}] | 22023: timeout "" is not a duration | Write 900, "PT15M" or "15 minutes".
-->   Element 1: A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.
--> [{"kind": "k", "timeout": 1e400}] | 22023: timeout 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000... is out of range
--> [{"kind": "k", "timeout": 1e30}] | 22023: timeout 1000000000000000000000000000000 is out of range
-->   Element 1: A duration must be at most 9223372036854 seconds.
--> [{"kind": "k", "retry": "never"}] | 22023: retry "never" is not known
-->   Element 1: retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.
--> [{"kind": "k", "scheduled_at": 5}] | 22023: scheduled_at must not be a number
-->   Element 1: scheduled_at must be a timestamp as a string.
--> [{"kind": "k", "scheduled_at": "tomorrowish"}] | 22023: scheduled_at "tomorrowish" is not a timestamp | Use ISO 8601, for example 2026-02-12T15:21:00Z.
--> [{"kind": "k", "scheduled_at": "infinity"}] | 22023: scheduled_at "infinity" is not a timestamp | Use ISO 8601, for example 2026-02-12T15:21:00Z.
--> [{"kind": "k", "scheduled_at": ""}] | 22023: scheduled_at "" is not a timestamp | Use ISO 8601, for example 2026-02-12T15:21:00Z.
--> [{"kind": "k", "scheduled_at": "2026-02-30T00:00:00Z"}] | 22023: scheduled_at "2026-02-30T00:00:00Z" is not a timestamp | Use ISO 8601, for example 2026-02-12T15:21:00Z.
--> [{"kind": "k", "scheduled_at": "294277-01-01"}] | 22023: scheduled_at "294277-01-01" is not a timestamp | Use ISO 8601, for example 2026-02-12T15:21:00Z.
-->   Element 1: scheduled_at must be a finite timestamp.
--> [{"kind": "k", "expires_at": "-infinity"}] | 22023: expires_at "-infinity" is not a timestamp | Use ISO 8601, for example 2026-02-12T15:21:00Z.
-->   Element 1: expires_at must be a finite timestamp.
--> [{"kind": "k", "pending": "yes"}] | 22023: pending must not be a string
--> [{"kind": "k", "pending": 1}] | 22023: pending must not be a number
-->   Element 1: pending must be true or false.
--> [{"kind": "k", "unique_opts": []}] | 22023: unique_opts must not be an array
-->   Element 1: unique_opts must be an object such as {"by_args": true}; {} means not unique.
--> [{"kind": "k"}, {"kind": "k", "unique_opts": {"by_arg": true}}] | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   Element 2: The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> [{"kind": "k", "prority": 1}] | 22023: field "prority" of jobs is not known | Did you mean "priority"?
--> [{"kind": "k", "Queue": "q"}] | 22023: field "Queue" of jobs is not known | Did you mean "queue"?
--> [{"kind": "k", "max_attempt": 1}] | 22023: field "max_attempt" of jobs is not known | Did you mean "max_attempts"?
--> [{"kind": "k", "scheduledAt": null}] | 22023: field "scheduledAt" of jobs is not known | Did you mean "scheduled_at"?
--> [{"kind": "k", "something_else": 1}] | 22023: field "something_else" of jobs is not known
--> [{"kind": "k", "": 1}] | 22023: field "" of jobs is not known
-->   Element 1: The fields are kind, args, unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry, expires_at, pending.
--> [{"kind": "k"}, {"kind": "k"}, {"kind": "k", "kid\"'": 1}] | 22023: field "kid"'" of jobs is not known
-->   Element 3: The fields are kind, args, unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry, expires_at, pending.
select n, code as expected, pg_temp.code(format('select jobs.insert_many(%L)', jobs)) as actual, jobs from cases
 where pg_temp.code(format('select jobs.insert_many(%L)', jobs)) <> code order by n; --> none
-- Every refusal of an element names its index.
select n, jobs from cases where jobs ~ '^\[' and pg_temp.try(format('select jobs.insert_many(%L)', jobs)) !~ '\n  Element [123][:.]' order by n; --> none
select pg_temp.try('select jobs.insert_many(null)'); --> 22004: jobs must not be null
select pg_temp.code(format('select jobs.insert_many(%L)', repeat('[', 5000) || repeat(']', 5000))); --> 22023
select count(*) from jobs.jobs where kind = 'k'; --> 0

-- 10,000 jobs in one call, in order, and no more locks than one takes.
select id as before from jobs.insert('mark') \gset
begin;
select count(*), min(ord), max(ord), bool_and(id = :before + ord) as in_order, bool_or(unique_skipped_as_duplicate) as skipped
  from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'many', 'args', n, 'unique_opts', '{"by_args": true}'::jsonb)) from generate_series(1, 10000) n));
--> count|min|max|in_order|skipped: 10000|1|10000|t|f
select count(*) <= 1 as few_locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); --> t
commit;
select count(*), bool_and(args = to_jsonb(id - :before)) as in_order from jobs.jobs where kind = 'many'; --> count|in_order: 10000|t
select count(*), bool_and(unique_skipped_as_duplicate) as skipped, bool_and(id = :before + ord) as the_same
  from jobs.insert_many((select jsonb_agg(jsonb_build_object('kind', 'many', 'args', n, 'unique_opts', '{"by_args": true}'::jsonb)) from generate_series(1, 10000) n));
--> count|skipped|the_same: 10000|t|t
