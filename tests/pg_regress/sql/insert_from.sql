\set ECHO none
-- jobs.insert in FROM: once, whatever is beside it there, and whatever is made of its row.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup


-- Any columns, in any order, and what is made of them.
select queue, id, state, queue as again from jobs.insert('k', queue => 'q');
select id * 2 as twice, coalesce(replaced_id, -1) as replaced, queue || '!' as queue, row_number() over () as n from jobs.insert('k');
select (i).id, (i).queue, (i).replaced_id from jobs.insert('k') i;
select i.id = (i).id as same, i = i as equal, num_nulls(i.*) as nulls from jobs.insert('k') i;
select count(*), max(id), array_agg(distinct state) as states from jobs.insert('k');
select 1 as one from jobs.insert('k');
select from jobs.insert('k');
select distinct id from jobs.insert('k') order by id desc limit 3;
select state, max(id) from jobs.insert('k') group by rollup (state) order by state;
select to_jsonb(i) - 'created_at' - 'scheduled_at' as answer from jobs.insert('k') i;
-- The row as a whole has the names of its type, whatever FROM calls the columns.
select e, to_jsonb(i) ->> 'queue' as queue, i::text like '(11,available,f,,default,%)' as as_text from jobs.insert('k') as i (a, b, c, d, e);
select id from (select id, queue from jobs.insert('k')) i where queue = 'default';
select y from jobs.insert('k') i left join lateral (select i.queue || 'x' as y) s on true;
select x from (select id + 1 as x from jobs.insert('k')) s group by rollup (x) order by x;
select generate_series(1, 2) as n, queue from jobs.insert('k');
select id from jobs.insert('k') for update;
create temp table beside (id bigint primary key);
-- Joins, also those that the planner leaves out.
select count(*) from jobs.insert('k') i left join beside on beside.id = i.id;
select i.queue from jobs.insert('k') i left join beside on beside.id = i.id where now() > '-infinity';
select i.queue, max(i.id) from jobs.insert('k') i left join beside on beside.id = i.id group by i.queue;
create temp view in_view as select id, queue from jobs.insert('k');
create temp view in_safe_view with (security_barrier) as select id, queue from jobs.insert('k');
select queue, (select v.id - w.id from in_safe_view w) as before from in_view v;
create function pg_temp.inlined(out id bigint, out queue text) stable language sql as $$ select id, queue from jobs.insert('k') $$;
select queue from pg_temp.inlined();
-- All of them were inserted once.
select count(*), max(id) from jobs.jobs;

-- A condition leaves the answer out, not the job.
select id from jobs.insert('condition') where id < 0;
select id from jobs.insert('condition') where state = 'completed' or queue = 'no';
-- Whose row nobody asks for is not inserted.
select id from jobs.insert('limit') limit 0;
select id from jobs.insert('never') where false;
select id from jobs.insert('never') where (select false);
select kind, count(*) from jobs.jobs where kind in ('condition', 'limit', 'never') group by kind;

-- As a source of other statements.
create temp table into_table as select id, queue from jobs.insert('k');
insert into into_table select id, queue from jobs.insert('k', queue => 'second');
with new as (select id, queue from jobs.insert('k', queue => 'third')) insert into into_table table new;
create function pg_temp.inserted(kind text) returns bigint language plpgsql as $$
declare job record;
begin
  select * into job from jobs.insert(kind);
  return job.id;
end $$;
insert into into_table select pg_temp.inserted('k'), 'fourth';
update into_table set queue = i.queue from jobs.insert('k', queue => 'fifth') i where into_table.queue = 'fourth';
select id - min(id) over () as nth, queue from into_table order by id;
with new as (insert into into_table select id, queue from jobs.insert('k', queue => 'sixth') union all select id, queue from jobs.insert('k', queue => 'seventh') returning queue)
select * from new order by queue;
insert into beside select 1 union all select 2;
insert into beside select 1 from jobs.insert('k', queue => 'eighth') on conflict (id) do update set id = -excluded.id returning (select queue from jobs.insert('k', queue => 'ninth'));
select queue, count(*) from jobs.jobs where queue in ('sixth', 'seventh', 'eighth', 'ninth') group by queue order by queue;
select count(*) from into_table natural join jobs.jobs;
select n, i.queue from generate_series(1, 3) n, jobs.insert('each', queue => 'q' || n) i order by n;
select n, (select queue from jobs.insert('each', queue => 'q' || n)) from generate_series(1, 2) n order by n;
select count(*) from jobs.jobs where kind = 'each';

-- Arguments: parameters, subselects, other calls.
prepare producer (text, jsonb) as select ordinality, queue from jobs.insert($1, $2, queue => lower($1)) with ordinality;
prepare alone (text, jsonb) as select queue, unique_skipped_as_duplicate as duplicate from jobs.insert($1, $2, '{"by_args": true}', queue => lower($1)) where id > 0;
execute producer ('A', '{"n": 1}');
execute alone ('A', '{"n": 1}');
execute alone ('A', '{"n": 1}');
execute alone ('B', '{"n": 2}');
execute alone ('C', '{"n": 3}');
execute alone ('D', '{"n": 4}');
execute alone ('E', '{"n": 5}');
execute alone ('F', '{"n": 6}');
execute alone ('F', '{"n": 6}');
select kind, args, queue from jobs.jobs where kind between 'A' and 'F' order by id;
select queue from jobs.insert('k', queue => (select max(queue) from into_table));
select queue from jobs.insert('k', queue => 'after' || (jobs.insert('inner')).queue);
select count(*) from jobs.jobs where kind = 'inner';

-- A cursor goes forwards and backwards; the job is inserted with the first row that is asked for,
-- and once.
begin;
declare c cursor for select queue from jobs.insert('cursor');
select count(*) from jobs.jobs where kind = 'cursor';
fetch c;
fetch c;
fetch backward c;
fetch backward c;
fetch 2 c;
move absolute 0 c;
fetch c;
select count(*) from jobs.jobs where kind = 'cursor';
declare s scroll cursor with hold for select queue || '!' from jobs.insert('cursor');
fetch last s;
fetch prior s;
commit;
fetch first s;
close s;
select count(*) from jobs.jobs where kind = 'cursor';

-- Errors are those of the call, with all that they carry.
select id from jobs.insert('k', queue => repeat('q', 128));
select id from jobs.insert(null);
select id from jobs.insert('k', jsonb_build_object('a', 1 / (select 0)));
create function pg_temp.fails() returns jsonb language plpgsql as $$
begin
  raise 'no' using errcode = 'P1234', detail = 'd', hint = 'h', column = 'c', constraint = 'n', datatype = 't', table = 'b', schema = 's';
end $$;
create function pg_temp.fields(statement text) returns text language plpgsql as $$
declare f1 text; f2 text; f3 text; f4 text; f5 text; f6 text; f7 text; f8 text; f9 text; f10 text;
begin
  execute statement;
  return 'no error';
exception when others then
  get stacked diagnostics f1 = returned_sqlstate, f2 = message_text, f3 = pg_exception_detail, f4 = pg_exception_hint,
    f5 = column_name, f6 = constraint_name, f7 = pg_datatype_name, f8 = table_name, f9 = schema_name, f10 = pg_exception_context;
  return concat_ws(' ', f1, f2, f3, f4, f5, f6, f7, f8, f9, regexp_replace(split_part(f10, E'\nSQL', 1), 'pg_temp_\d+', 'pg_temp'));
end $$;
select pg_temp.fields('select id from jobs.insert(''k'', pg_temp.fails())') as fields
union all select pg_temp.fields('select i.id from jobs.insert(''k'', pg_temp.fails()) with ordinality i');
select pg_temp.fields('select id from jobs.insert(''k'', ''{}'', ''{"by_arg": true}'')') as fields
union all select pg_temp.fields('select i.id from jobs.insert(''k'', ''{}'', ''{"by_arg": true}'') with ordinality i');
select pg_temp.fields('select id from jobs.insert(''k'') where pg_temp.fails() is null') as fields
union all select pg_temp.fields('select i.id from jobs.insert(''k'') with ordinality i where pg_temp.fails() is null');
begin;
declare c cursor for select queue from jobs.insert('savepoint');
savepoint s;
fetch c;
rollback to s;
fetch c;
rollback;
select count(*) from jobs.jobs where kind = 'savepoint';
-- After one, the session goes on.
select id > 0 as inserted from jobs.insert('k');

-- Rights are looked at with each execution, also of a plan that is kept.
create role insert_from_nobody;
grant usage on schema jobs to insert_from_nobody;
revoke execute on function jobs.insert from public;
set role insert_from_nobody;
select id from jobs.insert('k');
execute alone ('F', '{"n": 6}');
reset role;
drop owned by insert_from_nobody;
drop role insert_from_nobody;
