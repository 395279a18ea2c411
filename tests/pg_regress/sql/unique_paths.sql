-- Paths of by_args and by_meta that name nothing are refused, from each way in, and nothing is
-- written.

-- The value, the rule, and what was likely meant: a member at the same depth, or a value that was
-- encoded once.
select pg_temp.refusals('select jobs.%s', array[
  $$insert('k', '{"user_id": 42}', '{"by_args": ["userid"]}')$$,
  $$insert('k', '{"address": {"city": "Wien"}}', '{"by_args": ["address.ctiy", "zip"]}')$$,
  $$insert('k', '{"user": {"name": "x"}}', '{"by_args": ["user.email"]}')$$,
  $$insert('k', '"{\"user_id\": 42}"', '{"by_args": ["user_id"]}')$$,
  $$insert('k', '{"user": "{\"id\": 42}"}', '{"by_args": ["user.id"]}')$$,
  $$insert('k', unique_opts => '{"by_args": ["a", "b", "c", "d"]}')$$,
  $$insert('k', unique_opts => '{"by_meta": ["tenant"]}')$$,
  $$insert('k', '{"tenant": 1}', '{"by_args": true, "by_meta": ["tenant"]}', meta => '{"Tenant": 1}')$$,
  $$insert('k', '[{"userid": 1}]', '{"ojs": {"keys": ["args"], "args_keys": ["user_id"]}}')$$]);
--> insert('k', '{"user_id": 42}', '{"by_args": ["userid"]}') | 22023: by_args path "userid" matches nothing in args | Did you mean "user_id"?
--> insert('k', '{"address": {"city": "Wien"}}', '{"by_args": ["address.ctiy", "zip"]}') | 22023: by_args paths "address.ctiy", "zip" match nothing in args | Did you mean "address.city"?
--> insert('k', '{"user": {"name": "x"}}', '{"by_args": ["user.email"]}') | 22023: by_args path "user.email" matches nothing in args
--> insert('k', '"{\"user_id\": 42}"', '{"by_args": ["user_id"]}') | 22023: by_args path "user_id" matches nothing in args | args is a JSON string that contains an object. Pass the object itself.
--> insert('k', '{"user": "{\"id\": 42}"}', '{"by_args": ["user.id"]}') | 22023: by_args path "user.id" matches nothing in args | "user" is a JSON string that contains an object. Pass the object itself.
--> insert('k', unique_opts => '{"by_args": ["a", "b", "c", "d"]}') | 22023: by_args paths "a", "b", "c", .. match nothing in args
-->   At least one path must exist in args.
--> insert('k', unique_opts => '{"by_meta": ["tenant"]}') | 22023: by_meta path "tenant" matches nothing in meta
--> insert('k', '{"tenant": 1}', '{"by_args": true, "by_meta": ["tenant"]}', meta => '{"Tenant": 1}') | 22023: by_meta path "tenant" matches nothing in meta | Did you mean "Tenant"?
-->   At least one path must exist in meta.
--> insert('k', '[{"userid": 1}]', '{"ojs": {"keys": ["args"], "args_keys": ["user_id"]}}') | 22023: member "user_id" is missing from args | Did you mean "userid"?
-->   All members that make the job unique must exist in args.
select pg_temp.code(format('select jobs.insert(%L, %L, %L)', 'k', args, '{"by_args": ["a", "b.c"]}')), string_agg(args, ' ') from unnest(array['{}', '[]', '[{"a": 1}]', '"a"', '7', 'null', '{"b": {}}', '{"b": 1}', '{"c": 1}']) args group by 1;
--> code|string_agg: 22023|{} [] [{"a": 1}] "a" 7 null {"b": {}} {"b": 1} {"c": 1}

-- One that is there is enough, null is there, and absent ones are left out of the key.
select args, jobs.unique_key('k', args::jsonb, '{"by_args": ["a", "b.c"]}') = encode(sha256(convert_to('{"args":' || args || ',"type":"k"}', 'UTF8')), 'hex') as the_key
  from unnest(array['{"a":1}', '{"a":null}', '{"b":{"c":[]}}', '{"a":{},"b":{"c":1}}']) args; --> args|the_key: {"a":1}|t, {"a":null}|t, {"b":{"c":[]}}|t, {"a":{},"b":{"c":1}}|t
-- Oban leaves out what is absent, and so do meta_keys of the Open Job Spec.
select canonical from jobs.explain_unique('k', '{"a": 1}', '{"oban": {"fields": ["worker", "args"], "keys": ["b"]}}')
union all select canonical from jobs.explain_unique('k', '{"a": 1}', '{"ojs": {"keys": ["meta"], "meta_keys": ["b"]}}', meta => '{"a": 1}'); --> {"args":{},"type":"k"}, {"meta":{},"type":"k"}

-- Each way in; a batch names the element.
select pg_temp.refusals('select jobs.%s', array[
  $$insert_batch('k', array['{"a": 1}', '{"A": 1}']::jsonb[], '{"by_args": ["a"]}')$$,
  $$insert_batch('k', array['{"a": 1}', '{"a": 2}']::jsonb[], '{"by_meta": ["a"]}', meta => '{"b": 1}')$$,
  $$insert_many('[{"kind": "k"}, {"kind": "k", "args": {"b": 1}, "unique_opts": {"by_args": ["a"]}}]')$$,
  $$unique_key('k', '{"A": 1}', '{"by_args": ["a"]}')$$,
  $$explain_unique('k', '{"A": 1}', '{"by_args": ["a"]}')$$,
  $$schedule('s', '@daily', 'k', '{"A": 1}', unique_opts => '{"by_args": ["a"]}')$$]);
--> insert_batch('k', array['{"a": 1}', '{"A": 1}']::jsonb[], '{"by_args": ["a"]}') | 22023: by_args path "a" matches nothing in args | Did you mean "A"?
--> insert_many('[{"kind": "k"}, {"kind": "k", "args": {"b": 1}, "unique_opts": {"by_args": ["a"]}}]') | 22023: by_args path "a" matches nothing in args
-->   Element 2: At least one path must exist in args.
--> insert_batch('k', array['{"a": 1}', '{"a": 2}']::jsonb[], '{"by_meta": ["a"]}', meta => '{"b": 1}') | 22023: by_meta path "a" matches nothing in meta
-->   Element 1: At least one path must exist in meta.
--> unique_key('k', '{"A": 1}', '{"by_args": ["a"]}') | 22023: by_args path "a" matches nothing in args | Did you mean "A"?
--> explain_unique('k', '{"A": 1}', '{"by_args": ["a"]}') | 22023: by_args path "a" matches nothing in args | Did you mean "A"?
--> schedule('s', '@daily', 'k', '{"A": 1}', unique_opts => '{"by_args": ["a"]}') | 22023: by_args path "a" matches nothing in args | Did you mean "A"?
-->   At least one path must exist in args.
select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, (select count(*) from jobs.periodic_schedule) as periodic, is_called from jobs.job_seq;
--> jobs|claims|periodic|is_called: 0|0|0|f

-- A kind's default is held against the args of each job.
select jobs.define_kind('d', unique_opts => '{"by_args": ["a"]}') \gset
select pg_temp.code($$select jobs.insert('d', '{"a": 1}')$$) as there, pg_temp.try($$select jobs.insert('d', '{"A": 1}')$$) as absent, pg_temp.code($$select jobs.insert('d', '{"A": 1}', '{}')$$) as not_unique;
--> there|absent|not_unique
--> ok|22023: by_args path "a" matches nothing in args | Did you mean "A"?
-->   At least one path must exist in args.|ok
select pg_temp.code($$select jobs.schedule('s', '@daily', 'd', '{"A": 1}')$$) as periodic; --> 22023
