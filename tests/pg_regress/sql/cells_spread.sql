-- Queues that are spread over cells by a value of args or meta.
-- Where a value lives, by SQL alone.
create function pg_temp.home(canonical text, cells int[]) returns int language sql as $$
  select cells[1 + mod(('x' || encode(substr(sha256(convert_to(canonical, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint::numeric + case when get_bit(sha256(convert_to(canonical, 'UTF8')), 7) = 1 then 18446744073709551616 else 0 end, cardinality(cells))::int] $$;
select jobs.set_cell(1), jobs.spread_queue('s', '{"by_args": ["tenant"]}', '{1,2,3}'), jobs.spread_queue('m', '{"by_meta": ["a.b"]}', '{2,1}');
select * from jobs.placements;
--> queue|by|cells
--> m|{"by_meta": ["a.b"]}|{2,1}
--> s|{"by_args": ["tenant"]}|{1,2,3}

select count(*), count(*) filter (where jobs.cell_for('k', jsonb_build_object('tenant', v, 'n', n), queue => 's') is distinct from pg_temp.home(canonical, '{1,2,3}')) as other, count(distinct pg_temp.home(canonical, '{1,2,3}')) as cells
  from (select n, to_jsonb('t' || n) as v, '"t' || n || '"' as canonical from generate_series(1, 300) n
        union all select n, to_jsonb(n), n::text from generate_series(1, 300) n
        union all values (0, 'null'::jsonb, 'null'), (0, '[1.0, "é"]', '[1,"é"]'), (0, '{"b": 1, "a": "e\u0301"}', '{"a":"é","b":1}')) v; --> count|other|cells: 603|0|3
select jobs.cell_for('k', queue => 'm', meta => '{"a": {"b": 7}}') = pg_temp.home('7', '{2,1}') as by_meta; --> t

-- A job without it, and policies without it.
select pg_temp.try($$select jobs.insert('k', '{"tenat": 1}', queue => 's')$$) as args, pg_temp.try($$select jobs.insert('k', queue => 'm')$$) as meta;
--> args|meta
--> 22023: by_args path "tenant" matches nothing in args | Did you mean "tenat"?
-->   Every job of a spread queue must have the path by which it is spread.|22023: by_meta path "a.b" matches nothing in meta
-->   Every job of a spread queue must have the path by which it is spread.
select pg_temp.code($$select jobs.insert('k', '["tenant"]', queue => 's')$$) as no_object, pg_temp.code($$select jobs.cell_for('k', queue => 's')$$) as cell_for; --> no_object|cell_for: 22023|22023
select * from pg_temp.refusals('select jobs.insert(''k'', ''{"tenant": 1}'', queue => ''s'', unique_opts => %L)', array[
  '{"by_queue": true}', '{"by_queue": true, "by_args": ["tenant.x", "other"]}', '{"by_queue": true, "key": "x"}', '{"ojs": {"keys": ["queue"]}}']);
--> {"by_queue": true} | 22023: unique_opts do not contain by_args ["tenant"] | Add "by_args": ["tenant"].
--> {"by_queue": true, "by_args": ["tenant.x", "other"]} | 22023: unique_opts do not contain by_args ["tenant"] | Add "by_args": ["tenant"].
--> {"by_queue": true, "key": "x"} | 22023: unique_opts do not contain by_args ["tenant"] | Add "by_args": ["tenant"].
--> {"ojs": {"keys": ["queue"]}} | 22023: unique_opts do not contain by_args ["tenant"] | Add "by_args": ["tenant"].
-->   The queue is spread by this path, so unique keys must contain it: no key may span cells.
select call, pg_temp.code('select jobs.' || call) from (values
  ($$define_kind('d', queue => 's', unique_opts => '{"by_queue": true}')$$), ($$define_kind('d', queue => 's', unique_opts => '{"by_queue": true, "by_args": true}')$$),
  ($$schedule('p', '@daily', 'k', queue => 's')$$), ($$schedule('p', '@daily', 'k', '{"tenant": 1}', queue => 's', unique_opts => '{"by_queue": true}')$$)) v(call);
--> call|code
--> define_kind('d', queue => 's', unique_opts => '{"by_queue": true}')|22023
--> define_kind('d', queue => 's', unique_opts => '{"by_queue": true, "by_args": true}')|ok
--> schedule('p', '@daily', 'k', queue => 's')|22023
--> schedule('p', '@daily', 'k', '{"tenant": 1}', queue => 's', unique_opts => '{"by_queue": true}')|22023
-- What is of this cell is taken, and the rest refused.
create temp table t as select n, jobs.cell_for('k', jsonb_build_object('tenant', n), queue => 's') as cell from generate_series(1, 30) n;
select cell, string_agg(distinct pg_temp.ask(format('select count(*) from jobs.insert(''k'', ''{"tenant": %s}'', queue => ''s'', unique_opts => ''{"by_queue": true, "by_args": ["tenant"]}'')', n)), ', ') from t group by cell order by cell;
--> cell|string_agg: 1|1, 2|JB001 {"cell": 2, "queue": "s"}, 3|JB001 {"cell": 3, "queue": "s"}
select pg_temp.try(format('select jobs.insert(''k'', ''{"tenant": %s}'', queue => ''s'')', (select min(n) from t where cell = 2)));
--> JB001: this job of queue "s" lives in cell 2
-->   {"cell": 2, "queue": "s"}
select count(*) = (select count(*) from t where cell = 1) as own from jobs.fetch('s', 100); --> t

-- Nor can an update move one out: by what it is spread by, or into another queue.
select id from jobs.insert('k', jsonb_build_object('tenant', (select min(n) from t where cell = 1)), queue => 's') \gset
select pg_temp.ask(format('select jobs.update(%s, args => ''{"tenant": %s}'')', :id, n)) as out from t where cell = 2 order by n limit 1; --> JB001 {"cell": 2, "queue": "s"}
select pg_temp.code(format('select jobs.update(%s, args => ''{"tenant": %s, "x": 1}'')', :id, n)) as within from t where cell = 1 order by n desc limit 1; --> ok
select pg_temp.code(format('select jobs.update(%s, args => ''{}'')', :id)) as lacks, pg_temp.code(format('select jobs.update(%s, queue => ''m'')', :id)) as no_meta; --> lacks|no_meta: 22023|22023

-- No limit of all its jobs, whichever comes first.
select pg_temp.try($$select jobs.configure_queue('s', concurrency => 1)$$) as concurrency, pg_temp.code($$select jobs.configure_queue('s', rate => 1, rate_period => '1 s')$$) as rate, pg_temp.code($$select jobs.configure_queue('s', max_waiting => 1000)$$) as others;
--> concurrency|rate|others
--> 22023: queue "s" is spread over cells | Leave concurrency and rate out.
-->   A concurrency or rate of a spread queue would span cells.|22023|ok
select jobs.place_queue('l', 1), jobs.configure_queue('l', concurrency => 1);
select pg_temp.try($$select jobs.spread_queue('l', '{"by_args": ["t"]}', '{1}')$$);
--> 55000: cannot spread queue "l": it has a concurrency or rate | Remove the limit with jobs.configure_queue.
-->   A limit or order of the queue would span cells.

-- Nor a kind or a periodic job whose inserts would be refused, be the queue its own or its kind's.
select jobs.place_queue('f', 1), jobs.place_queue('default', 1) \gset
select * from pg_temp.refusals('select jobs.%s; select jobs.spread_queue(''f'', ''{"by_args": ["t"]}'', ''{1}'')', array[
  $$define_kind('e', queue => 'f', unique_opts => '{"by_queue": true, "by_args": ["u"]}')$$,
  $$define_kind('e', queue => 'f', unique_opts => '{"by_queue": true}'), jobs.schedule('p', '@daily', 'e', '{"t": 1}')$$,
  $$schedule('p', '@daily', 'k', '{"t": 1}', queue => 'f', unique_opts => '{"by_queue": true}')$$,
  $$define_kind('e', queue => 'f'), jobs.schedule('p', '@daily', 'e', '{"t": 1}', unique_opts => '{"by_queue": true}')$$,
  $$schedule('p', '@daily', 'k', '{"u": 1}', queue => 'f')$$,
  $$define_kind('e', queue => 'f'), jobs.schedule('p', '@daily', 'e', '{"u": 1}')$$,
  $$schedule('p', '@daily', 'k', queue => 'f'), jobs.pause_periodic('p')$$]);
--> define_kind('e', queue => 'f', unique_opts => '{"by_queue": true, "by_args": ["u"]}') | 55000: cannot spread queue "f": in kind "e", unique_opts do not contain by_args ["t"] | First change the kind with jobs.define_kind.
--> define_kind('e', queue => 'f', unique_opts => '{"by_queue": true}'), jobs.schedule('p', '@daily', 'e', '{"t": 1}') | 55000: cannot spread queue "f": in kind "e", unique_opts do not contain by_args ["t"] | First change the kind with jobs.define_kind.
--> schedule('p', '@daily', 'k', '{"t": 1}', queue => 'f', unique_opts => '{"by_queue": true}') | 55000: cannot spread queue "f": in periodic job "p", unique_opts do not contain by_args ["t"] | First change the periodic job with jobs.schedule.
--> define_kind('e', queue => 'f'), jobs.schedule('p', '@daily', 'e', '{"t": 1}', unique_opts => '{"by_queue": true}') | 55000: cannot spread queue "f": in periodic job "p", unique_opts do not contain by_args ["t"] | First change the periodic job with jobs.schedule.
-->   The queue is spread by this path, so unique keys must contain it: no key may span cells.
--> schedule('p', '@daily', 'k', '{"u": 1}', queue => 'f') | 55000: cannot spread queue "f": in periodic job "p", by_args path "t" matches nothing in args | First change the periodic job with jobs.schedule.
--> define_kind('e', queue => 'f'), jobs.schedule('p', '@daily', 'e', '{"u": 1}') | 55000: cannot spread queue "f": in periodic job "p", by_args path "t" matches nothing in args | First change the periodic job with jobs.schedule.
--> schedule('p', '@daily', 'k', queue => 'f'), jobs.pause_periodic('p') | 55000: cannot spread queue "f": in periodic job "p", by_args path "t" matches nothing in args | First change the periodic job with jobs.schedule.
-->   Every job of a spread queue must have the path by which it is spread.
select pg_temp.try($$select jobs.schedule('p', '@daily', 'k', meta => '{"n": 1}'); select jobs.spread_queue('default', '{"by_meta": ["m"]}', '{1}')$$);
--> 55000: cannot spread queue "default": in periodic job "p", by_meta path "m" matches nothing in meta | First change the periodic job with jobs.schedule.
-->   Every job of a spread queue must have the path by which it is spread.
-- Those that fit, and those of other queues.
select jobs.define_kind('e', queue => 'f', unique_opts => '{"by_queue": true, "by_args": ["t"]}'), jobs.schedule('p', '@daily', 'e', '{"t": 1}'),
       jobs.define_kind('g', queue => 'g', unique_opts => '{"by_queue": true}'), jobs.schedule('q', '@daily', 'e', queue => 'default', unique_opts => '{"by_queue": true}') \gset
select pg_temp.code($$select jobs.spread_queue('f', '{"by_args": ["t"]}', '{1}')$$); --> ok

-- Its cells change only while no job would live elsewhere, or lacks the path.
select pg_temp.ask($$select jobs.spread_queue('s', '{"by_args": ["tenant"]}', '{2,3}')$$) ~ '^55006 [0-9]+ jobs, final ones included.$' as all_jobs,
       pg_temp.ask($$select jobs.spread_queue('s', '{"by_args": ["other"]}', '{1,2,3}')$$) ~ '^55006 ' as lacks, pg_temp.code($$select jobs.spread_queue('s', '{"by_args": ["tenant"]}', '{1}')$$) as only_here, pg_temp.code($$select jobs.place_queue('s', 1)$$) as placed;
--> all_jobs|lacks|only_here|placed: t|t|ok|ok
select pg_temp.ask($$select jobs.spread_queue('s', '{"by_args": ["tenant"]}', '{3,2,1}')$$) ~ '^55006 ' as other_order, pg_temp.code($$select jobs.spread_queue('s', '{"by_args": ["tenant"]}', '{1,2,3}')$$) as back;
--> other_order|back: t|ok
select count(*) from jobs.check(); --> 0
