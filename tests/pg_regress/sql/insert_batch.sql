-- jobs.insert_batch: one kind, many args, the same options, one atomic statement.

select ord, id, state, unique_skipped_as_duplicate as skipped, replaced_id, queue, scheduled_at = created_at as due_at_once
  from jobs.insert_batch('k', array['{"n": 1}', '[2]', 'null', '"x"']::jsonb[]);
--> ord|id|state|skipped|replaced_id|queue|due_at_once
--> 1|1|available|f|~|default|t
--> 2|2|available|f|~|default|t
--> 3|3|available|f|~|default|t
--> 4|4|available|f|~|default|t
select id, kind, args, queue, priority, max_attempts, tags, meta, timeout from jobs.jobs order by id;
--> id|kind|args|queue|priority|max_attempts|tags|meta|timeout
--> 1|k|{"n": 1}|default|1|25|{}|{}|00:01:00
--> 2|k|[2]|default|1|25|{}|{}|00:01:00
--> 3|k|null|default|1|25|{}|{}|00:01:00
--> 4|k|"x"|default|1|25|{}|{}|00:01:00

-- Options hold for all.
select ord, id, state, queue, scheduled_at from jobs.insert_batch(kind => 'o', args => array['1', '2']::jsonb[], unique_opts => null, queue => 'q', priority => 9,
  scheduled_at => '2999-01-01 00:00+00', max_attempts => 4, tags => '{t}', meta => '{"m": 1}', timeout => '-1', retry => '"river"', expires_at => '3000-01-01 00:00+00', pending => false);
--> ord|id|state|queue|scheduled_at
--> 1|5|scheduled|q|2999-01-01 00:00:00+00
--> 2|6|scheduled|q|2999-01-01 00:00:00+00
select id, state, args, queue, priority, max_attempts, tags, meta, timeout, expires_at from jobs.jobs where kind = 'o' order by id;
--> id|state|args|queue|priority|max_attempts|tags|meta|timeout|expires_at
--> 5|scheduled|1|q|9|4|{t}|{"m": 1}|-00:00:01|3000-01-01 00:00:00+00
--> 6|scheduled|2|q|9|4|{t}|{"m": 1}|-00:00:01|3000-01-01 00:00:00+00
select ord, state from jobs.insert_batch('p', array['1', '2']::jsonb[], pending => true); --> ord|state: 1|pending, 2|pending

-- None is none; more dimensions are as many elements, in their order; a lower bound says nothing.
select * from jobs.insert_batch('k', '{}'); --> none
select ord, id from jobs.insert_batch('d', array[['1', '2'], ['3', '4']]::jsonb[]) order by ord; --> ord|id: 1|9, 2|10, 3|11, 4|12
select id, args from jobs.jobs where kind = 'd' order by id; --> id|args: 9|1, 10|2, 11|3, 12|4
select ord, id from jobs.insert_batch('d', '[5:6]={5,6}'::jsonb[]); --> ord|id: 1|13, 2|14

-- Duplicates inside, outside, and none.
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('u', array['1', '2', '1', '3', '1.0']::jsonb[], '{"by_args": true}') order by ord;
--> ord|id|skipped
--> 1|15|f
--> 2|16|f
--> 3|15|t
--> 4|17|f
--> 5|15|t
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('u', array['3', '4', '4']::jsonb[], '{"by_args": true}') order by ord;
--> ord|id|skipped
--> 1|17|t
--> 2|18|f
--> 3|18|t
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('v', array['3', '4', '4']::jsonb[], '{"by_kind": true}') order by ord;
--> ord|id|skipped
--> 1|19|f
--> 2|19|t
--> 3|19|t
-- A duplicate costs no id.
select id from jobs.insert('next'); --> 20
select pg_temp.code($$select jobs.insert_batch('u', array['9', '2']::jsonb[], '{"by_args": true, "on_conflict": "reject"}')$$); --> 23505
select pg_temp.code($$select jobs.insert_batch('u', array['9', '9']::jsonb[], '{"by_args": true, "on_conflict": "reject"}')$$); --> 23505
select count(*) from jobs.jobs where kind = 'u'; --> 4

-- What is refused. An element's index is in DETAIL.
select pg_temp.refusals('select jobs.insert_batch(%s)', array_agg(call)) from (values
  ($$null, '{}'$$), ($$'k', null$$), ($$'k', array['1', null, '3']::jsonb[]$$), ($$'k', array[null]::jsonb[]$$),
  ($$'', array['1']::jsonb[]$$), ($$'', '{}'$$), ($$'k', '{}', queue => ''$$), ($$'k', '{}', priority => 40000$$), ($$'k', '{}', max_attempts => 0$$),
  ($$'k', '{}', '{"by_arg": true}'$$), ($$'k', '{}', meta => '[]'$$), ($$'k', '{}', tags => '{null}'$$), ($$'k', '{}', scheduled_at => 'infinity'$$), ($$'k', '{}', retry => '1'$$),
  ($$'k', array['{"\u00e9": 1}', '{"\u00e9": 1, "e\u0301": 2}']::jsonb[], '{"by_args": true}'$$)) v(call);
--> null, '{}' | 22004: kind must not be null
--> 'k', null | 22004: args must not be null
--> 'k', '{}', tags => '{null}' | 22004: an element of tags must not be null
--> 'k', array['1', null, '3']::jsonb[] | 22004: args must not be null
-->   Element 2.
--> 'k', array[null]::jsonb[] | 22004: args must not be null
-->   Element 1.
--> '', array['1']::jsonb[] | 22023: kind must not be empty
--> '', '{}' | 22023: kind must not be empty
-->   A kind must have 1 to 127 characters and no control characters.
--> 'k', '{}', queue => '' | 22023: queue must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> 'k', '{}', priority => 40000 | 22023: priority 40000 is out of range
-->   priority must be between -32768 and 32767; lower numbers run first.
--> 'k', '{}', max_attempts => 0 | 22023: max_attempts 0 is too low
-->   max_attempts must be at least 1; it includes the first attempt.
--> 'k', '{}', '{"by_arg": true}' | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> 'k', '{}', meta => '[]' | 22023: meta must not be an array
-->   meta must be an object.
--> 'k', '{}', scheduled_at => 'infinity' | 22023: scheduled_at infinity is out of range
-->   scheduled_at must be finite.
--> 'k', '{}', retry => '1' | 22023: retry must not be a number | Use max_attempts to set the number of attempts.
-->   retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.
--> 'k', array['{"\u00e9": 1}', '{"\u00e9": 1, "e\u0301": 2}']::jsonb[], '{"by_args": true}' | 22023: two members of one object in args are named "é" in Unicode normal form C | Rename one of them, or leave it out.
-->   Element 2: A key treats names that differ only in character encoding as the same.
select count(*) from jobs.jobs where kind = 'k'; --> 4

-- 10,000 unique jobs in one call take no more lock slots than one.
select id as before from jobs.insert('mark') \gset
begin;
select count(*), min(ord), max(ord), bool_and(id = :before + ord) as in_order
  from jobs.insert_batch('many', (select array_agg(to_jsonb(n) order by n) from generate_series(1, 10000) n), '{"by_args": true}'); --> count|min|max|in_order: 10000|1|10000|t
select count(*) <= 1 as few_locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); --> t
commit;
select count(*), bool_and(args = to_jsonb(id - :before)) as in_order from jobs.jobs where kind = 'many'; --> count|in_order: 10000|t
select count(*), bool_and(unique_skipped_as_duplicate) as skipped from jobs.insert_batch('many', (select array_agg(to_jsonb(n) order by n desc) from generate_series(1, 10000) n), '{"by_args": true}');
--> count|skipped: 10000|t
select count(*), count(distinct id), count(*) filter (where unique_skipped_as_duplicate) as skipped from jobs.insert_batch('one', array_fill('1'::jsonb, array[10000]), '{"by_args": true}');
--> count|count|skipped: 10000|1|9999
