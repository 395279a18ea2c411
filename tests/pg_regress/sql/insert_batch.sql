\set ECHO none
-- jobs.insert_batch: one kind, many args, the same options, one atomic statement.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue, scheduled_at = created_at as due_at_once
  from jobs.insert_batch('k', array['{"n": 1}', '[2]', 'null', '"x"']::jsonb[]);
select id, kind, args, queue, priority, max_attempts, tags, meta, timeout from jobs.jobs order by id;

-- Options hold for all.
select ord, id, state, queue, scheduled_at from jobs.insert_batch(kind => 'o', args => array['1', '2']::jsonb[], unique_opts => null, queue => 'q', priority => 9,
  scheduled_at => '2999-01-01 00:00+00', max_attempts => 4, tags => '{t}', meta => '{"m": 1}', timeout => '-1', retry => '"river"', expires_at => '3000-01-01 00:00+00', pending => false);
select id, state, args, queue, priority, max_attempts, tags, meta, timeout, expires_at from jobs.jobs where kind = 'o' order by id;
select ord, state from jobs.insert_batch('p', array['1', '2']::jsonb[], pending => true);

-- None is none; more dimensions are as many elements, in their order; a lower bound says nothing.
select * from jobs.insert_batch('k', '{}');
select ord, id from jobs.insert_batch('d', array[['1', '2'], ['3', '4']]::jsonb[]) order by ord;
select id, args from jobs.jobs where kind = 'd' order by id;
select ord, id from jobs.insert_batch('d', '[5:6]={5,6}'::jsonb[]);

-- Duplicates inside, outside, and none.
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('u', array['1', '2', '1', '3', '1.0']::jsonb[], '{"by_args": true}') order by ord;
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('u', array['3', '4', '4']::jsonb[], '{"by_args": true}') order by ord;
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('v', array['3', '4', '4']::jsonb[], '{"by_kind": true}') order by ord;
-- A duplicate costs no id.
select id from jobs.insert('next');
select pg_temp.code($$select jobs.insert_batch('u', array['9', '2']::jsonb[], '{"by_args": true, "on_conflict": "reject"}')$$);
select pg_temp.code($$select jobs.insert_batch('u', array['9', '9']::jsonb[], '{"by_args": true, "on_conflict": "reject"}')$$);
select count(*) from jobs.jobs where kind = 'u';

-- What is refused. An element's index is in DETAIL.
select call, pg_temp.try('select jobs.insert_batch(' || call || ')') from (values
  ($$null, '{}'$$), ($$'k', null$$), ($$'k', array['1', null, '3']::jsonb[]$$), ($$'k', array[null]::jsonb[]$$),
  ($$'', array['1']::jsonb[]$$), ($$'', '{}'$$), ($$'k', '{}', queue => ''$$), ($$'k', '{}', priority => 40000$$), ($$'k', '{}', max_attempts => 0$$),
  ($$'k', '{}', '{"by_arg": true}'$$), ($$'k', '{}', meta => '[]'$$), ($$'k', '{}', tags => '{null}'$$), ($$'k', '{}', scheduled_at => 'infinity'$$), ($$'k', '{}', retry => '1'$$),
  ($$'k', array['{"\u00e9": 1}', '{"\u00e9": 1, "e\u0301": 2}']::jsonb[], '{"by_args": true}'$$)) v(call);
select count(*) from jobs.jobs where kind = 'k';

-- 10,000 unique jobs in one call take no more lock slots than one.
select id as before from jobs.insert('mark') \gset
begin;
select count(*), min(ord), max(ord), bool_and(id = :before + ord) as in_order
  from jobs.insert_batch('many', (select array_agg(to_jsonb(n) order by n) from generate_series(1, 10000) n), '{"by_args": true}');
select count(*) <= 1 as few_locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();
commit;
select count(*), bool_and(args = to_jsonb(id - :before)) as in_order from jobs.jobs where kind = 'many';
select count(*), bool_and(unique_skipped_as_duplicate) as skipped from jobs.insert_batch('many', (select array_agg(to_jsonb(n) order by n desc) from generate_series(1, 10000) n), '{"by_args": true}');
select count(*), count(distinct id), count(*) filter (where unique_skipped_as_duplicate) as skipped from jobs.insert_batch('one', array_fill('1'::jsonb, array[10000]), '{"by_args": true}');
