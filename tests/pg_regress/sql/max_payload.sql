-- jobs.max_payload bounds the text of what jobs carry, which can be a thousand times longer than
-- what is sent and stored. Reasons and errors have bounds of their own.

select setting || unit as limit from pg_settings where name = 'jobs.max_payload'; --> 65536kB
-- An array of n + 1 numbers, of 131072 * n + 1 digits; and of 67,109,891 bytes in a few.
create function pg_temp.numbers(n int) returns jsonb language sql as $$ select ('[' || repeat('1e131071,', n) || '1]')::jsonb $$;
create function pg_temp.within(n int) returns jsonb language sql as $$ select jsonb_build_object('n', pg_temp.numbers(n)) $$;
select length(pg_temp.numbers(512)::text) as text, pg_column_size(pg_temp.numbers(512)) as bytes; --> text|bytes: 67109891|8212

-- What is at the limit is taken.
select state from jobs.insert('k', pg_temp.numbers(511)); --> available
select fetched.id, length(args::text) from jobs.fetch() as fetched; --> id|length: 1|66978817

-- For every role that inserts.
select pg_temp.refusals('select jobs.%s', array[
  $$insert('k', pg_temp.numbers(512))$$,
  $$insert('k', to_jsonb(repeat(e'\x01', 12000000)))$$,
  $$insert('k', meta => pg_temp.within(512))$$,
  $$insert('k', pg_temp.numbers(300), meta => pg_temp.within(300))$$,
  $$insert('k', tags => array[repeat('a', 33554432), repeat('b', 33554433)])$$,
  $$insert('k', retry => pg_temp.within(512))$$,
  $$insert('k', unique_opts => pg_temp.within(512))$$,
  $$insert_batch('k', array['1', pg_temp.numbers(512)])$$,
  $$insert_batch('k', array[pg_temp.numbers(300)], meta => pg_temp.within(300))$$,
  $$insert_many(jsonb_build_array('{"kind": "k"}'::jsonb, jsonb_build_object('kind', 'k', 'args', pg_temp.numbers(512))))$$,
  $$insert_many(jsonb_build_array(jsonb_build_object('kind', 'k', 'timeout', pg_temp.numbers(512))))$$,
  $$unique_key('k', pg_temp.numbers(512), '{"by_args": true}')$$,
  $$explain_unique('k', pg_temp.numbers(512), '{"by_args": true}')$$,
  $$schedule('p', '@daily', 'k', pg_temp.numbers(512))$$,
  $$define_kind('k', retry => pg_temp.within(512))$$]);
--> insert('k', pg_temp.numbers(512)) | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> insert('k', to_jsonb(repeat(e'\x01', 12000000))) | 54000: the text of args and meta is too long: 72000002 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> insert('k', meta => pg_temp.within(512)) | 54000: the text of args and meta is too long: 67109900 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> insert('k', pg_temp.numbers(300), meta => pg_temp.within(300)) | 54000: the text of args and meta is too long: 78644413 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> unique_key('k', pg_temp.numbers(512), '{"by_args": true}') | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> explain_unique('k', pg_temp.numbers(512), '{"by_args": true}') | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> schedule('p', '@daily', 'k', pg_temp.numbers(512)) | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of args and meta to 67108864 bytes.
--> insert('k', tags => array[repeat('a', 33554432), repeat('b', 33554433)]) | 54000: the text of tags is too long: 67108865 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of tags to 67108864 bytes.
--> insert('k', retry => pg_temp.within(512)) | 54000: the text of retry is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> define_kind('k', retry => pg_temp.within(512)) | 54000: the text of retry is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of retry to 67108864 bytes.
--> insert('k', unique_opts => pg_temp.within(512)) | 54000: the text of unique_opts is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of unique_opts to 67108864 bytes.
--> insert_batch('k', array['1', pg_temp.numbers(512)]) | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> insert_many(jsonb_build_array('{"kind": "k"}'::jsonb, jsonb_build_object('kind', 'k', 'args', pg_temp.numbers(512)))) | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   Element 2: jobs.max_payload limits the text of args and meta to 67108864 bytes.
--> insert_batch('k', array[pg_temp.numbers(300)], meta => pg_temp.within(300)) | 54000: the text of args and meta is too long: 78644413 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   Element 1: jobs.max_payload limits the text of args and meta to 67108864 bytes.
--> insert_many(jsonb_build_array(jsonb_build_object('kind', 'k', 'timeout', pg_temp.numbers(512)))) | 54000: the text of timeout is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   Element 1: jobs.max_payload limits the text of timeout to 67108864 bytes.

-- Of a job that is there, args and meta count together, whichever is changed.
select id from jobs.insert('k', pg_temp.numbers(300), '{"key": "u", "on_conflict": {"update": {"*": ["meta"]}}}') \gset
select pg_temp.refusals('select jobs.update(' || :id || ', %s)', array[
  'args => pg_temp.numbers(512)', 'meta => pg_temp.within(300)', 'args => pg_temp.numbers(200), meta => pg_temp.within(300)', 'args => pg_temp.numbers(300)']);
--> args => pg_temp.numbers(512) | 54000: the text of args and meta is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> meta => pg_temp.within(300) | 54000: the text of args and meta is too long: 78644413 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> args => pg_temp.numbers(300) | 54000: the text of args and meta is too long: 78644413 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of args and meta to 67108864 bytes.
--> args => pg_temp.numbers(200), meta => pg_temp.within(300) | ok
select pg_temp.try($$select jobs.insert('k', '1', '{"key": "u", "on_conflict": {"update": {"*": ["meta"]}}}', meta => pg_temp.within(320))$$);
--> 54000: the text of args and meta is too long: 68158493 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of args and meta to 67108864 bytes.
select pg_temp.try(format('select jobs.update(%s, args => ''1'')', :id)); --> ok
select pg_temp.try($$select jobs.insert('k', '1', '{"key": "u", "on_conflict": {"update": {"*": ["meta"]}}}', meta => pg_temp.within(320))$$); --> ok

-- Workers.
select state from jobs.insert('w', queue => 'w'); --> available
select id, token from jobs.fetch('w') \gset
create temp view held as select id, token, jsonb_build_object('id', id, 'token', token) as its from jobs.jobs where state = 'running' and queue = 'w';
select pg_temp.refusals('select jobs.%s from held', array[
  'heartbeat(id, token, progress => pg_temp.numbers(512))', 'complete(id, token, pg_temp.numbers(512))', 'complete_many(array[id], array[token], array[pg_temp.numbers(512)])',
  $$fail(id, token, 'e', details => pg_temp.within(512))$$, $$fail_many(array[id], array[token], '{e}', array[pg_temp.within(512)])$$,
  $$finish_many(jsonb_build_array(its || '{"do": "complete"}' || jsonb_build_object('output', pg_temp.numbers(512))))$$,
  $$finish_many(jsonb_build_array(its || '{"do": "fail", "error": "e"}' || jsonb_build_object('details', pg_temp.within(512))))$$, $$worker_beat('w', '{}', 1, pg_temp.within(512))$$]);
--> heartbeat(id, token, progress => pg_temp.numbers(512)) | 54000: the text of progress is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of progress to 67108864 bytes.
--> complete(id, token, pg_temp.numbers(512)) | 54000: the text of output is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of output to 67108864 bytes.
--> complete_many(array[id], array[token], array[pg_temp.numbers(512)]) | 54000: the text of output is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> finish_many(jsonb_build_array(its || '{"do": "complete"}' || jsonb_build_object('output', pg_temp.numbers(512)))) | 54000: the text of output is too long: 67109891 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   Element 1: jobs.max_payload limits the text of output to 67108864 bytes.
--> fail(id, token, 'e', details => pg_temp.within(512)) | 54000: the text of details is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of details to 67108864 bytes.
--> fail_many(array[id], array[token], '{e}', array[pg_temp.within(512)]) | 54000: the text of details is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
--> finish_many(jsonb_build_array(its || '{"do": "fail", "error": "e"}' || jsonb_build_object('details', pg_temp.within(512)))) | 54000: the text of details is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   Element 1: jobs.max_payload limits the text of details to 67108864 bytes.
--> worker_beat('w', '{}', 1, pg_temp.within(512)) | 54000: the text of info is too long: 67109898 bytes | Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.
-->   jobs.max_payload limits the text of info to 67108864 bytes.
select state, attempt from jobs.jobs where id = :id; --> state|attempt: running|1

-- An error is cut at 1,000,000 bytes, between two characters.
select state from jobs.fail(:id, :token, repeat('é', 500001), '0'); --> available
select octet_length(error), right(error, 45) from jobs.errors where job_id = :id; --> octet_length|right: 999999|éééééé ... (cut: the error has 1000002 bytes)
select id, token from jobs.fetch('w') \gset
select state from jobs.fail(:id, :token, repeat('é', 500000), '0'); --> available
select octet_length(error), right(error, 3) from jobs.errors where job_id = :id and attempt = 2; --> octet_length|right: 1000000|ééé

-- A reason has 2,000 characters, wherever one is given.
with managing as (
  select p.proname::text as name,
         case when p.pronargs > p.pronargdefaults then string_agg(format('null::%s', format_type(t.of, null)), ', ' order by t.n) filter (where t.n <= p.pronargs - p.pronargdefaults) || ', ' else '' end as given
    from pg_proc p, unnest(p.proargtypes) with ordinality t(of, n)
   where p.pronamespace = 'jobs'::regnamespace and 'reason' = any (p.proargnames[:p.pronargs])
   group by p.oid)
select count(*) > 40 as many, string_agg(name, ', ') filter (where pg_temp.code(format('select jobs.%I(%sreason => repeat(''é'', 2001))', name, given)) <> '22023') as others from managing;
--> many|others: t|~
select pg_temp.try($$select jobs.pause_queue('q', repeat('é', 2001))$$);
--> 22023: reason "éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé..." is too long: 2001 characters
-->   A reason must have at most 2000 characters.
select pg_temp.try($$select jobs.pause_queue('q', repeat('é', 2000))$$); --> ok
select id, token from jobs.fetch('w') \gset
select pg_temp.try($$select jobs.finish_many(jsonb_build_array(its || '{"do": "cancel"}' || jsonb_build_object('reason', repeat('é', 2001)))) from held$$);
--> 22023: reason "éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé..." is too long: 2001 characters
-->   Element 1: A reason must have at most 2000 characters.
