\set ECHO none
-- Paths of by_args and by_meta that name nothing are refused, from each way in, and nothing is
-- written.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- The value, the rule, and what was likely meant: a member at the same depth, or a value that was
-- encoded once.
select pg_temp.try($$select jobs.insert('k', '{"user_id": 42}', '{"by_args": ["userid"]}')$$);
select pg_temp.try($$select jobs.insert('k', '{"address": {"city": "Wien"}}', '{"by_args": ["address.ctiy", "zip"]}')$$);
select pg_temp.try($$select jobs.insert('k', '{"user": {"name": "x"}}', '{"by_args": ["user.email"]}')$$);
select pg_temp.try($$select jobs.insert('k', '"{\"user_id\": 42}"', '{"by_args": ["user_id"]}')$$);
select pg_temp.try($$select jobs.insert('k', '{"user": "{\"id\": 42}"}', '{"by_args": ["user.id"]}')$$);
select pg_temp.try($$select jobs.insert('k', unique_opts => '{"by_args": ["a", "b", "c", "d"]}')$$);
select pg_temp.try($$select jobs.insert('k', unique_opts => '{"by_meta": ["tenant"]}')$$);
select pg_temp.try($$select jobs.insert('k', '{"tenant": 1}', '{"by_args": true, "by_meta": ["tenant"]}', meta => '{"Tenant": 1}')$$);
select pg_temp.try($$select jobs.insert('k', '[{"userid": 1}]', '{"ojs": {"keys": ["args"], "args_keys": ["user_id"]}}')$$);
select args, pg_temp.code(format('select jobs.insert(%L, %L, %L)', 'k', args, '{"by_args": ["a", "b.c"]}')) from unnest(array['{}', '[]', '[{"a": 1}]', '"a"', '7', 'null', '{"b": {}}', '{"b": 1}', '{"c": 1}']) args;

-- One that is there is enough, null is there, and absent ones are left out of the key.
select args, jobs.unique_key('k', args::jsonb, '{"by_args": ["a", "b.c"]}') = encode(sha256(convert_to('{"args":' || args || ',"type":"k"}', 'UTF8')), 'hex') as the_key
  from unnest(array['{"a":1}', '{"a":null}', '{"b":{"c":[]}}', '{"a":{},"b":{"c":1}}']) args;
-- Oban leaves out what is absent, and so do meta_keys of the Open Job Spec.
select canonical from jobs.explain_unique('k', '{"a": 1}', '{"oban": {"fields": ["worker", "args"], "keys": ["b"]}}')
union all select canonical from jobs.explain_unique('k', '{"a": 1}', '{"ojs": {"keys": ["meta"], "meta_keys": ["b"]}}', meta => '{"a": 1}');

-- Each way in; a batch names the element.
select pg_temp.try($$select jobs.insert_batch('k', array['{"a": 1}', '{"A": 1}']::jsonb[], '{"by_args": ["a"]}')$$);
select pg_temp.try($$select jobs.insert_batch('k', array['{"a": 1}', '{"a": 2}']::jsonb[], '{"by_meta": ["a"]}', meta => '{"b": 1}')$$);
select pg_temp.try($$select jobs.insert_many('[{"kind": "k"}, {"kind": "k", "args": {"b": 1}, "unique_opts": {"by_args": ["a"]}}]')$$);
select pg_temp.try($$select jobs.unique_key('k', '{"A": 1}', '{"by_args": ["a"]}')$$);
select pg_temp.try($$select jobs.explain_unique('k', '{"A": 1}', '{"by_args": ["a"]}')$$);
select pg_temp.try($$select jobs.schedule('s', '@daily', 'k', '{"A": 1}', unique_opts => '{"by_args": ["a"]}')$$);
select (select count(*) from jobs.job) as jobs, (select count(*) from jobs.unique_claim) as claims, (select count(*) from jobs.periodic_schedule) as periodic, is_called from jobs.job_seq;

-- A kind's default is held against the args of each job.
select jobs.define_kind('d', unique_opts => '{"by_args": ["a"]}') \gset
select pg_temp.code($$select jobs.insert('d', '{"a": 1}')$$) as there, pg_temp.try($$select jobs.insert('d', '{"A": 1}')$$) as absent, pg_temp.code($$select jobs.insert('d', '{"A": 1}', '{}')$$) as not_unique;
select pg_temp.code($$select jobs.schedule('s', '@daily', 'd', '{"A": 1}')$$) as periodic;
