\set ECHO none
-- jobs.max_payload bounds the text of what jobs carry, which can be a thousand times longer than
-- what is sent and stored. Reasons and errors have bounds of their own.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select setting || unit as limit from pg_settings where name = 'jobs.max_payload';
-- An array of n + 1 numbers, of 131072 * n + 1 digits; and of 67,109,891 bytes in a few.
create function pg_temp.numbers(n int) returns jsonb language sql as $$ select ('[' || repeat('1e131071,', n) || '1]')::jsonb $$;
create function pg_temp.within(n int) returns jsonb language sql as $$ select jsonb_build_object('n', pg_temp.numbers(n)) $$;
select length(pg_temp.numbers(512)::text) as text, pg_column_size(pg_temp.numbers(512)) as bytes;

-- What is at the limit is taken.
select state from jobs.insert('k', pg_temp.numbers(511));
select fetched.id, length(args::text) from jobs.fetch() as fetched;

-- Whoever inserts.
select pg_temp.try($$select jobs.insert('k', pg_temp.numbers(512))$$);
select pg_temp.try($$select jobs.insert('k', to_jsonb(repeat(e'\x01', 12000000)))$$);
select pg_temp.try($$select jobs.insert('k', meta => pg_temp.within(512))$$);
select pg_temp.try($$select jobs.insert('k', pg_temp.numbers(300), meta => pg_temp.within(300))$$);
select pg_temp.try($$select jobs.insert('k', tags => array[repeat('a', 33554432), repeat('b', 33554433)])$$);
select pg_temp.try($$select jobs.insert('k', retry => pg_temp.within(512))$$);
select pg_temp.try($$select jobs.insert('k', unique_opts => pg_temp.within(512))$$);
select pg_temp.try($$select jobs.insert_batch('k', array['1', pg_temp.numbers(512)])$$);
select pg_temp.try($$select jobs.insert_batch('k', array[pg_temp.numbers(300)], meta => pg_temp.within(300))$$);
select pg_temp.try($$select jobs.insert_many(jsonb_build_array('{"kind": "k"}'::jsonb, jsonb_build_object('kind', 'k', 'args', pg_temp.numbers(512))))$$);
select pg_temp.try($$select jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'k', 'timeout', pg_temp.numbers(512))))$$);
select pg_temp.try($$select jobs.unique_key('k', pg_temp.numbers(512), '{"by_args": true}')$$);
select pg_temp.try($$select jobs.explain_unique('k', pg_temp.numbers(512), '{"by_args": true}')$$);
select pg_temp.try($$select jobs.schedule('p', '@daily', 'k', pg_temp.numbers(512))$$);
select pg_temp.try($$select jobs.define_kind('k', retry => pg_temp.within(512))$$);

-- Of a job that is there, args and meta count together, whichever is changed.
select id from jobs.insert('k', pg_temp.numbers(300), '{"key": "u", "on_conflict": {"update": {"*": ["meta"]}}}') \gset
select pg_temp.try(format('select jobs.update(%s, args => pg_temp.numbers(512))', :id));
select pg_temp.try(format('select jobs.update(%s, meta => pg_temp.within(300))', :id));
select pg_temp.try(format('select jobs.update(%s, args => pg_temp.numbers(200), meta => pg_temp.within(300))', :id));
select pg_temp.try(format('select jobs.update(%s, args => pg_temp.numbers(300))', :id));
select pg_temp.try($$select jobs.insert('k', '1', '{"key": "u", "on_conflict": {"update": {"*": ["meta"]}}}', meta => pg_temp.within(320))$$);
select pg_temp.try(format('select jobs.update(%s, args => ''1'')', :id));
select pg_temp.try($$select jobs.insert('k', '1', '{"key": "u", "on_conflict": {"update": {"*": ["meta"]}}}', meta => pg_temp.within(320))$$);

-- Workers.
select state from jobs.insert('w', queue => 'w');
select id, token from jobs.fetch('w') \gset
select pg_temp.try(format('select jobs.heartbeat(%s, %s, progress => pg_temp.numbers(512))', :id, :token));
select pg_temp.try(format('select jobs.complete(%s, %s, pg_temp.numbers(512))', :id, :token));
select pg_temp.try(format('select jobs.complete_many(array[%s], array[%s], array[pg_temp.numbers(512)])', :id, :token));
select pg_temp.try(format('select jobs.fail(%s, %s, ''e'', details => pg_temp.within(512))', :id, :token));
select pg_temp.try(format('select jobs.fail_many(array[%s], array[%s], array[''e''], array[pg_temp.within(512)])', :id, :token));
select pg_temp.try(format('select jobs.finish_many(jsonb_build_array(jsonb_build_object(''id'', %s, ''token'', %s, ''do'', ''complete'', ''output'', pg_temp.numbers(512))))', :id, :token));
select pg_temp.try(format('select jobs.finish_many(jsonb_build_array(jsonb_build_object(''id'', %s, ''token'', %s, ''do'', ''fail'', ''error'', ''e'', ''details'', pg_temp.within(512))))', :id, :token));
select pg_temp.try($$select jobs.worker_beat('w', '{}', 1, pg_temp.within(512))$$);
select state, attempt from jobs.jobs where id = :id;

-- An error is cut at 1,000,000 bytes, between two characters.
select state from jobs.fail(:id, :token, repeat('é', 500001), '0');
select octet_length(error), right(error, 45) from jobs.errors where job_id = :id;
select id, token from jobs.fetch('w') \gset
select state from jobs.fail(:id, :token, repeat('é', 500000), '0');
select octet_length(error), right(error, 3) from jobs.errors where job_id = :id and attempt = 2;

-- A reason has 2,000 characters, wherever one is given.
with managing as (
  select p.proname::text as name,
         case when p.pronargs > p.pronargdefaults then string_agg(format('null::%s', format_type(t.of, null)), ', ' order by t.n) filter (where t.n <= p.pronargs - p.pronargdefaults) || ', ' else '' end as given
    from pg_proc p, unnest(p.proargtypes) with ordinality t(of, n)
   where p.pronamespace = 'jobs'::regnamespace and 'reason' = any (p.proargnames[:p.pronargs])
   group by p.oid)
select name, pg_temp.code(format('select jobs.%I(%sreason => repeat(''é'', 2001))', name, given)) from managing order by name;
select pg_temp.try($$select jobs.pause_queue('q', repeat('é', 2001))$$);
select pg_temp.try($$select jobs.pause_queue('q', repeat('é', 2000))$$);
select id, token from jobs.fetch('w') \gset
select pg_temp.try(format('select jobs.finish_many(jsonb_build_array(jsonb_build_object(''id'', %s, ''token'', %s, ''do'', ''cancel'', ''reason'', repeat(''é'', 2001))))', :id, :token));
