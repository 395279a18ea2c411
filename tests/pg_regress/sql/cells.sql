-- The number of a cell, its identity and its retirement.
create function pg_temp.n(id bigint) returns bigint language sql as $$ select id - (3::bigint << 43) $$;

-- A database without a number is cell 0 in what it answers, and takes everything.
select jobs.cell_for('k'), jobs.cell_for('k', queue => 'q'), (select count(*) from jobs.cells) as cells; --> cell_for|cell_for|cells: 0|0|0
select pg_temp.refusals('select jobs.%s', array_agg(call)) from (values
  ($$place_queue('q', 1)$$), ($$spread_queue('q', '{"by_args": ["t"]}', '{1}')$$), ($$unplace_queue('q')$$), ($$set_cell_address(1, 'a')$$),
  ($$retire_cell('a')$$), ($$reinstate_cell()$$)) v(call);
--> place_queue('q', 1) | 55000: cannot place a queue: this database has no cell number | Use jobs.set_cell first.
--> spread_queue('q', '{"by_args": ["t"]}', '{1}') | 55000: cannot spread a queue: this database has no cell number | Use jobs.set_cell first.
--> unplace_queue('q') | 55000: cannot unplace a queue: this database has no cell number | Use jobs.set_cell first.
--> set_cell_address(1, 'a') | 55000: cannot set the address of a cell: this database has no cell number | Use jobs.set_cell first.
--> retire_cell('a') | 55000: cannot retire the cell: this database has no cell number | Use jobs.set_cell first.
--> reinstate_cell() | 55000: cannot reinstate the cell: this database has no cell number | Use jobs.set_cell first.
-- Bad input is found before that.
select * from pg_temp.refusals('select jobs.%s', array[
  'set_cell(null)', 'set_cell(-1)', 'set_cell(1024)', $$place_queue(null, 1)$$, $$place_queue('', 1)$$, $$place_queue('q', null)$$, $$place_queue('q', 1024)$$, $$unplace_queue(null)$$,
  $$spread_queue('q', null, '{1}')$$, $$spread_queue('q', '[]', '{1}')$$, $$spread_queue('q', '{}', '{1}')$$, $$spread_queue('q', '{"by_args": ["a", "b"]}', '{1}')$$,
  $$spread_queue('q', '{"by_arg": ["a"]}', '{1}')$$, $$spread_queue('q', '{"by_args": ["a"]}', null)$$, $$spread_queue('q', '{"by_args": ["a"]}', '{}')$$,
  $$spread_queue('q', '{"by_args": ["a"]}', '{1,2,1}')$$, $$spread_queue('q', '{"by_args": ["a"]}', '{1,null}')$$, $$spread_queue('q', '{"by_args": ["a"]}', '{1,-2}')$$, $$spread_queue('*', '{"by_args": ["a"]}', '{1}')$$,
  $$set_cell_address(1024, 'a')$$, $$set_cell_address(1, null)$$, $$set_cell_address(1, '')$$, $$retire_cell(null)$$, $$cell_for(null)$$, $$cell_for('k', unique_opts => '{"by_arg": true}')$$]);
--> set_cell(null) | 22004: cell must not be null
--> place_queue(null, 1) | 22004: queue must not be null
--> place_queue('q', null) | 22004: cell must not be null
--> unplace_queue(null) | 22004: queue must not be null
--> spread_queue('q', null, '{1}') | 22004: by must not be null
--> spread_queue('q', '{"by_args": ["a"]}', null) | 22004: cells must not be null
--> spread_queue('q', '{"by_args": ["a"]}', '{1,null}') | 22004: an element of cells must not be null
--> set_cell_address(1, null) | 22004: address must not be null
--> retire_cell(null) | 22004: moved_to must not be null
--> cell_for(null) | 22004: kind must not be null
--> set_cell(-1) | 22023: cell -1 is out of range
--> set_cell(1024) | 22023: cell 1024 is out of range
--> place_queue('q', 1024) | 22023: cell 1024 is out of range
--> spread_queue('q', '{"by_args": ["a"]}', '{1,-2}') | 22023: cell -2 is out of range
--> set_cell_address(1024, 'a') | 22023: cell 1024 is out of range
-->   A cell must be between 0 and 1023.
--> place_queue('', 1) | 22023: queue must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> spread_queue('q', '[]', '{1}') | 22023: by must not be an array
--> spread_queue('q', '{}', '{1}') | 22023: by names no path
--> spread_queue('q', '{"by_args": ["a", "b"]}', '{1}') | 22023: by names several paths
-->   by must name one path, such as {"by_args": ["tenant"]} or {"by_meta": ["tenant"]}.
--> spread_queue('q', '{"by_arg": ["a"]}', '{1}') | 22023: field "by_arg" of by is not known | Did you mean "by_args"?
-->   The fields are by_args, by_meta.
--> spread_queue('q', '{"by_args": ["a"]}', '{}') | 22023: cells must not be empty
--> spread_queue('q', '{"by_args": ["a"]}', '{1,2,1}') | 22023: cell 1 is listed twice
-->   cells must list at least one cell, and each once.
--> spread_queue('*', '{"by_args": ["a"]}', '{1}') | 22023: queue "*" cannot be spread
-->   Only a queue with a name of its own can be spread.
--> set_cell_address(1, '') | 22023: address "" is not an address
-->   address must have 1 to 1000 characters and no control characters.
--> cell_for('k', unique_opts => '{"by_arg": true}') | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.

-- With one, it takes only what is placed there; its ids begin with the number.
select jobs.set_cell(3, 'third'), jobs.set_cell(3);
select cell, identity is not null as identity, address, is_self, retired_at, moved_to, settings_digest ~ '^[0-9a-f]{64}$' as digest from jobs.cells;
--> cell|identity|address|is_self|retired_at|moved_to|digest: 3|t|~|t|~|~|t
select pg_temp.try($$select jobs.insert('k')$$);
--> JB001: queue "default" lives in no cell | Use jobs.place_queue or jobs.spread_queue.
-->   {"cell": null, "queue": "default"}
select jobs.cell_for('k'); --> ~
select jobs.place_queue('*', 3), jobs.place_queue('*', 3);
select pg_temp.n(id), state, id < 1::bigint << 53 as is_safe from jobs.insert('k'); --> n|state|is_safe: 1|available|t
select pg_temp.n(id) from jobs.insert_batch('k', '{1,2}') order by ord; --> 2, 3
select jobs.cell_for('k'); --> 3
select pg_temp.try('select jobs.set_cell(4)');
--> 55000: cannot become cell 4: id 26388279066625 belongs to another cell | A database that has jobs already can become cell 0.
-->   The ids of jobs begin with the number of their cell.
select jobs.delete(id) from jobs.jobs; --> available, available, available
select pg_temp.try('select jobs.set_cell(4)');
--> 55000: cannot become cell 4: id 26388279066627 belongs to another cell | A database that has jobs already can become cell 0.
-->   The ids of jobs begin with the number of their cell.
select count(*) from jobs.check(); --> 0

-- Addresses are what refusals name.
select jobs.place_queue('mail', 5);
select pg_temp.try($$select jobs.insert('k', queue => 'mail')$$);
--> JB001: queue "mail" lives in cell 5
-->   {"cell": 5, "queue": "mail"}
select jobs.set_cell_address(5, 'host=five', '00000000-0000-0000-0000-000000000005'), jobs.set_cell_address(5, 'host=five'), jobs.set_cell_address(3, 'host=three');
select pg_temp.try($$select jobs.insert('k', queue => 'mail')$$);
--> JB001: queue "mail" lives in cell 5 | host=five
-->   {"cell": 5, "queue": "mail"}
select cell, identity = '00000000-0000-0000-0000-000000000005' as is_given, address, is_self, settings_digest is null as none from jobs.cells order by cell;
--> cell|is_given|address|is_self|none
--> 3|f|host=three|t|f
--> 5|t|host=five|f|t
select pg_temp.code($$select jobs.set_cell_address(3, 'host=three', '00000000-0000-0000-0000-000000000003')$$) as other, pg_temp.code($$select jobs.set_cell_address(3, 'host=3', identity) from jobs.cells where is_self$$) as own;
--> other|own: 55000|ok

-- The digest is over settings.
create temp table digest as select settings_digest as was from jobs.cells where is_self;
select jobs.define_kind('d', timeout => '2 hours'), jobs.pause_queue('q');
set intervalstyle = iso_8601;
create temp table other as select settings_digest as was from jobs.cells where is_self;
reset intervalstyle;
select o.was <> d.was as differs, o.was = c.settings_digest as whatever_the_style from digest d, other o, jobs.cells c where is_self; --> differs|whatever_the_style: t|t
select jobs.undefine_kind('d'); --> t
select (select was from digest) = settings_digest as as_before from jobs.cells where is_self; --> t
select jobs.resume_queue('q');

-- Retired, it refuses all that writes, tokens too; reading goes on.
select id as waits from jobs.insert('waits', queue => 'w') \gset
select jobs.insert('runs') \gset
select id, token from jobs.fetch() \gset
select jobs.schedule('p', 'every 1 second', 'tick') \gset
select jobs.retire_cell('host=new', 'moved');
select pg_temp.try('select jobs.insert(''k'')');
--> JB001: cell 3 is retired | host=new
-->   {"cell": 3, "retired": true}
create temp table calls as select call from (values
  ($$jobs.insert_many('[]')$$), ($$jobs.insert_batch('k', '{1}')$$), ($$jobs.fetch()$$), ($$jobs.fetch_any('{a}')$$), (format('jobs.complete(%s, %s)', :id, :token)), (format('jobs.fail(%s, %s, ''e'')', :id, :token)),
  (format('jobs.snooze(%s, %s, ''1 s'')', :id, :token)), (format('jobs.release(%s, %s)', :id, :token)), (format('jobs.heartbeat(%s, %s)', :id, :token)), (format('jobs.heartbeat_many(''{%s}'', ''{%s}'')', :id, :token)),
  (format('jobs.complete_many(''{%s}'', ''{%s}'')', :id, :token)), (format('jobs.fail_many(''{%s}'', ''{%s}'', ''{e}'')', :id, :token)), ($$jobs.finish_many('[]')$$),
  (format('jobs.cancel(%s)', :waits)), (format('jobs.retry(%s)', :waits)), (format('jobs.activate(%s)', :waits)), (format('jobs.delete(%s)', :waits)), (format('jobs.update(%s, priority => 2)', :waits)),
  ($$jobs.cancel_many('w')$$), ($$jobs.retry_many('w')$$), ($$jobs.delete_many('w')$$), ($$jobs.define_kind('k')$$), ($$jobs.undefine_kind('k')$$), ($$jobs.pause_queue('w')$$), ($$jobs.resume_queue('w')$$),
  ($$jobs.configure_queue('w')$$), ($$jobs.reset_queue('w')$$), ($$jobs.schedule('p', '@daily', 'k')$$), ($$jobs.unschedule('p')$$), ($$jobs.pause_periodic('p')$$), ($$jobs.resume_periodic('p')$$), ($$jobs.run_periodic('p')$$),
  ($$jobs.worker_beat('w', '{w}', 1)$$), ($$jobs.worker_leave('w')$$), ($$jobs.quiet_worker('w')$$), ($$jobs.stop_worker('w')$$), ($$jobs.resume_worker('w')$$), ($$jobs.maintain()$$), ($$jobs.pause_maintenance()$$), ($$jobs.resume_maintenance()$$),
  ($$jobs.set_cell(4)$$), ($$jobs.place_queue('w', 3)$$), ($$jobs.spread_queue('w', '{"by_args": ["a"]}', '{3}')$$), ($$jobs.unplace_queue('w')$$), ($$jobs.set_cell_address(5, 'b')$$), ($$jobs.grant_viewer(current_user::text)$$),
  ($$jobs.define_limit('l', concurrency => 1)$$), ($$jobs.override_limit('l', '1', 1)$$), ($$jobs.pause_limit('l')$$), ($$jobs.resume_limit('l')$$), ($$jobs.drop_limit('l')$$),
  ($$jobs.order_queue('w', '{"by_args": ["a"]}', strict => true)$$), ($$jobs.unblock('w', '1')$$), ($$jobs.revoke(current_user::text)$$),
  ($$jobs.forward('00000000-0000-0000-0000-00000000000a', '{00000000-0000-0000-0000-00000000000b}', '[{"kind": "k"}]')$$), ($$jobs.forward_report('00000000-0000-0000-0000-00000000000a', 'shop', 0, null, 0)$$)) v(call);
select count(*), string_agg(call, ', ') filter (where pg_temp.ask('select ' || call) <> 'JB001 {"cell": 3, "retired": true}') as others from calls; --> count|others: 56|~
-- All others that Postgres lets write only read, wait, retire, or grant as grant_viewer does.
-- insert was tried above.
select string_agg(p.proname, ' ' order by p.proname collate "C") from pg_proc p
 where p.pronamespace = 'jobs'::regnamespace and p.provolatile = 'v' and p.proacl::text ~ '=' and not exists (select from calls where call like format('jobs.%s(%%', p.proname));
--> cell_for explain_unique grant_admin grant_application grant_operator grant_producer grant_worker health history idle_runs insert installed metrics reinstate_cell results retire_cell top unique_key wait wait_any wait_for
select pg_temp.ask($$call jobs.wait(timeout => '1 ms')$$), pg_temp.ask($$call jobs.wait_any('{w}', '1 ms')$$), (select count(*) from jobs.jobs) as jobs, jobs.cell_for('k'), (select reason || ': ' || detail from jobs.explain(:waits) limit 1) as explain;
--> ask|ask|jobs|cell_for|explain
--> JB001 {"cell": 3, "retired": true}|JB001 {"cell": 3, "retired": true}|2|3|wrong cell: cell 3 is retired
select retired_at is not null as retired, moved_to from jobs.cells where is_self; --> retired|moved_to: t|host=new
select severity, finding, message, hint from jobs.health() where finding ~ 'cell|placement';
--> severity|finding|message|hint
--> warning|cell_retired|cell 3 is retired: it has moved to host=new|It refuses all writes. If no other copy takes them: SELECT jobs.reinstate_cell();
select metric, labels, value from jobs.metrics() where metric ~ '^jobs_cell'; --> metric|labels|value: jobs_cell_retired|{"cell": "3"}|1
select jobs.retire_cell('host=newer'), jobs.retire_cell('host=newer');
select moved_to from jobs.cells where is_self; --> host=newer
create temp table identity as select identity from jobs.cells where is_self;
select jobs.reinstate_cell('again'), jobs.reinstate_cell();
select c.identity = i.identity as same, retired_at, moved_to from jobs.cells c, identity i where is_self; --> same|retired_at|moved_to: t|~|~
select jobs.complete(:id, :token); --> completed
select finding, message from jobs.health() where finding ~ 'cell|placement' order by 1;
--> finding|message
--> cell_unreplicated|cell 3 has no synchronous standby: a failover can lose jobs, and their unique keys with them

-- Who changed it is noted.
select action, target, arguments - 'identity' as arguments, reason from jobs.audit where action ~ 'cell|place' order by at;
--> action|target|arguments|reason
--> set_cell|3|{}|third
--> place_queue|*|{"cell": 3}|~
--> place_queue|mail|{"cell": 5}|~
--> set_cell_address|5|{"address": "host=five"}|~
--> set_cell_address|3|{"address": "host=three"}|~
--> set_cell_address|3|{"address": "host=3"}|~
--> retire_cell|host=new|{}|moved
--> retire_cell|host=newer|{}|~
--> reinstate_cell|~|{}|again
