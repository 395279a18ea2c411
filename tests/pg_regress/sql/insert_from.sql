-- jobs.insert in FROM: once, whatever is beside it there, and whatever is made of its row.


-- Any columns, in any order, and what is made of them.
select queue, id, state, queue as again from jobs.insert('k', queue => 'q'); --> queue|id|state|again: q|1|available|q
select id * 2 as twice, coalesce(replaced_id, -1) as replaced, queue || '!' as queue, row_number() over () as n from jobs.insert('k'); --> twice|replaced|queue|n: 4|-1|default!|1
select (i).id, (i).queue, (i).replaced_id from jobs.insert('k') i; --> id|queue|replaced_id: 3|default|~
select i.id = (i).id as same, i = i as equal, num_nulls(i.*) as nulls from jobs.insert('k') i; --> same|equal|nulls: t|t|0
select count(*), max(id), array_agg(distinct state) as states from jobs.insert('k'); --> count|max|states: 1|5|{available}
select 1 as one from jobs.insert('k'); --> 1
select from jobs.insert('k'); --> none
select distinct id from jobs.insert('k') order by id desc limit 3; --> 8
select state, max(id) from jobs.insert('k') group by rollup (state) order by state; --> state|max: available|9, ~|9
select to_jsonb(i) - 'created_at' - 'scheduled_at' as answer from jobs.insert('k') i; --> {"id": 10, "queue": "default", "state": "available", "replaced_id": null, "unique_skipped_as_duplicate": false}
-- The row as a whole has the names of its type, whatever FROM calls the columns.
select e, to_jsonb(i) ->> 'queue' as queue, i::text like '(11,available,f,,default,%)' as as_text from jobs.insert('k') as i (a, b, c, d, e); --> e|queue|as_text: default|default|t
select id from (select id, queue from jobs.insert('k')) i where queue = 'default'; --> 12
select y from jobs.insert('k') i left join lateral (select i.queue || 'x' as y) s on true; --> defaultx
select x from (select id + 1 as x from jobs.insert('k')) s group by rollup (x) order by x; --> 15, ~
select generate_series(1, 2) as n, queue from jobs.insert('k'); --> n|queue: 1|default, 2|default
select id from jobs.insert('k') for update; --> 16
create temp table beside (id bigint primary key);
-- Joins, also those that the planner leaves out.
select count(*) from jobs.insert('k') i left join beside on beside.id = i.id; --> 1
select i.queue from jobs.insert('k') i left join beside on beside.id = i.id where now() > '-infinity'; --> default
select i.queue, max(i.id) from jobs.insert('k') i left join beside on beside.id = i.id group by i.queue; --> queue|max: default|19
create temp view in_view as select id, queue from jobs.insert('k');
create temp view in_safe_view with (security_barrier) as select id, queue from jobs.insert('k');
select queue, (select v.id - w.id from in_safe_view w) as before from in_view v; --> queue|before: default|-1
create function pg_temp.inlined(out id bigint, out queue text) stable language sql as $$ select id, queue from jobs.insert('k') $$;
select queue from pg_temp.inlined(); --> default
-- All of them were inserted once.
select count(*), max(id) from jobs.jobs; --> count|max: 22|22

-- A condition leaves the answer out, not the job.
select id from jobs.insert('condition') where id < 0; --> none
select id from jobs.insert('condition') where state = 'completed' or queue = 'no'; --> none
-- Whose row nobody asks for is not inserted.
select id from jobs.insert('limit') limit 0; --> none
select id from jobs.insert('never') where false; --> none
select id from jobs.insert('never') where (select false); --> none
select kind, count(*) from jobs.jobs where kind in ('condition', 'limit', 'never') group by kind; --> kind|count: condition|2

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
select id - min(id) over () as nth, queue from into_table order by id; --> nth|queue: 0|default, 1|second, 2|third, 3|fifth
with new as (insert into into_table select id, queue from jobs.insert('k', queue => 'sixth') union all select id, queue from jobs.insert('k', queue => 'seventh') returning queue)
select * from new order by queue; --> seventh, sixth
insert into beside select 1 union all select 2;
insert into beside select 1 from jobs.insert('k', queue => 'eighth') on conflict (id) do update set id = -excluded.id returning (select queue from jobs.insert('k', queue => 'ninth')); --> ninth
select queue, count(*) from jobs.jobs where queue in ('sixth', 'seventh', 'eighth', 'ninth') group by queue order by queue; --> queue|count: eighth|1, ninth|1, seventh|1, sixth|1
select count(*) from into_table natural join jobs.jobs; --> 5
select n, i.queue from generate_series(1, 3) n, jobs.insert('each', queue => 'q' || n) i order by n; --> n|queue: 1|q1, 2|q2, 3|q3
select n, (select queue from jobs.insert('each', queue => 'q' || n)) from generate_series(1, 2) n order by n; --> n|queue: 1|q1, 2|q2
select count(*) from jobs.jobs where kind = 'each'; --> 5

-- Arguments: parameters, subselects, other calls.
prepare producer (text, jsonb) as select ordinality, queue from jobs.insert($1, $2, queue => lower($1)) with ordinality;
prepare alone (text, jsonb) as select queue, unique_skipped_as_duplicate as duplicate from jobs.insert($1, $2, '{"by_args": true}', queue => lower($1)) where id > 0;
execute producer ('A', '{"n": 1}'); --> ordinality|queue: 1|a
execute alone ('A', '{"n": 1}'); --> queue|duplicate: a|f
execute alone ('A', '{"n": 1}'); --> queue|duplicate: a|t
execute alone ('B', '{"n": 2}'); --> queue|duplicate: b|f
execute alone ('C', '{"n": 3}'); --> queue|duplicate: c|f
execute alone ('D', '{"n": 4}'); --> queue|duplicate: d|f
execute alone ('E', '{"n": 5}'); --> queue|duplicate: e|f
execute alone ('F', '{"n": 6}'); --> queue|duplicate: f|f
execute alone ('F', '{"n": 6}'); --> queue|duplicate: f|t
select kind, args, queue from jobs.jobs where kind between 'A' and 'F' order by id;
--> kind|args|queue
--> A|{"n": 1}|a
--> A|{"n": 1}|a
--> B|{"n": 2}|b
--> C|{"n": 3}|c
--> D|{"n": 4}|d
--> E|{"n": 5}|e
--> F|{"n": 6}|f
select queue from jobs.insert('k', queue => (select max(queue) from into_table)); --> third
select queue from jobs.insert('k', queue => 'after' || (jobs.insert('inner')).queue); --> afterdefault
select count(*) from jobs.jobs where kind = 'inner'; --> 1

-- A cursor goes forwards and backwards; the job is inserted with the first row that is asked for,
-- and once.
begin;
declare c cursor for select queue from jobs.insert('cursor');
select count(*) from jobs.jobs where kind = 'cursor'; --> 0
fetch c; --> default
fetch c; --> none
fetch backward c; --> default
fetch backward c; --> none
fetch 2 c; --> default
move absolute 0 c;
fetch c; --> default
select count(*) from jobs.jobs where kind = 'cursor'; --> 1
declare s scroll cursor with hold for select queue || '!' from jobs.insert('cursor');
fetch last s; --> default!
fetch prior s; --> none
commit;
fetch first s; --> default!
close s;
select count(*) from jobs.jobs where kind = 'cursor'; --> 2

-- Errors are those of the call, with all that they carry.
select id from jobs.insert('k', queue => repeat('q', 128));
--> ERROR:  queue "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq..." is too long: 128 characters
--> DETAIL:  A queue must have 1 to 127 characters and no control characters.
select id from jobs.insert(null); --> ERROR:  kind must not be null
select id from jobs.insert('k', jsonb_build_object('a', 1 / (select 0))); --> ERROR:  division by zero
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
--> P1234 no d h c n t b s PL/pgSQL function pg_temp.fails() line 3 at RAISE
--> P1234 no d h c n t b s PL/pgSQL function pg_temp.fails() line 3 at RAISE
select pg_temp.fields('select id from jobs.insert(''k'', ''{}'', ''{"by_arg": true}'')') as fields
union all select pg_temp.fields('select i.id from jobs.insert(''k'', ''{}'', ''{"by_arg": true}'') with ordinality i');
--> 22023 field "by_arg" of unique_opts is not known The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs. Did you mean "by_args"? unique_opts     SQL statement "select id from jobs.insert('k', '{}', '{"by_arg": true}')"
--> PL/pgSQL function pg_temp.fields(text) line 4 at EXECUTE
--> 22023 field "by_arg" of unique_opts is not known The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs. Did you mean "by_args"? unique_opts     SQL statement "select i.id from jobs.insert('k', '{}', '{"by_arg": true}') with ordinality i"
--> PL/pgSQL function pg_temp.fields(text) line 4 at EXECUTE
select pg_temp.fields('select id from jobs.insert(''k'') where pg_temp.fails() is null') as fields
union all select pg_temp.fields('select i.id from jobs.insert(''k'') with ordinality i where pg_temp.fails() is null');
--> P1234 no d h c n t b s PL/pgSQL function pg_temp.fails() line 3 at RAISE
--> P1234 no d h c n t b s PL/pgSQL function pg_temp.fails() line 3 at RAISE
begin;
declare c cursor for select queue from jobs.insert('savepoint');
savepoint s;
fetch c; --> default
rollback to s;
fetch c; --> none
rollback;
select count(*) from jobs.jobs where kind = 'savepoint'; --> 0
-- After one, the session goes on.
select id > 0 as inserted from jobs.insert('k'); --> t

-- Rights are looked at with each execution, also of a plan that is kept.
create role insert_from_nobody;
grant usage on schema jobs to insert_from_nobody;
revoke execute on function jobs.insert from public;
set role insert_from_nobody;
select id from jobs.insert('k'); --> ERROR:  permission denied for function insert
execute alone ('F', '{"n": 6}'); --> ERROR:  permission denied for function insert
reset role;
drop owned by insert_from_nobody;
drop role insert_from_nobody;
