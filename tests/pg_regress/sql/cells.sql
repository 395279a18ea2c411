\set ECHO none
-- The number of a cell, its identity and its retirement.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.n(id bigint) returns bigint language sql as $$ select id - (3::bigint << 43) $$;

-- A database without a number is cell 0 in what it answers, and takes everything.
select jobs.cell_for('k'), jobs.cell_for('k', queue => 'q'), (select count(*) from jobs.cells) as cells;
select call, pg_temp.try('select jobs.' || call) from (values
  ($$place_queue('q', 1)$$), ($$spread_queue('q', '{"by_args": ["t"]}', '{1}')$$), ($$unplace_queue('q')$$), ($$set_cell_address(1, 'a')$$),
  ($$retire_cell('a')$$), ($$reinstate_cell()$$)) v(call);
-- Bad input is found before that.
select * from pg_temp.refusals('select jobs.%s', array[
  'set_cell(null)', 'set_cell(-1)', 'set_cell(1024)', $$place_queue(null, 1)$$, $$place_queue('', 1)$$, $$place_queue('q', null)$$, $$place_queue('q', 1024)$$, $$unplace_queue(null)$$,
  $$spread_queue('q', null, '{1}')$$, $$spread_queue('q', '[]', '{1}')$$, $$spread_queue('q', '{}', '{1}')$$, $$spread_queue('q', '{"by_args": ["a", "b"]}', '{1}')$$,
  $$spread_queue('q', '{"by_arg": ["a"]}', '{1}')$$, $$spread_queue('q', '{"by_args": ["a"]}', null)$$, $$spread_queue('q', '{"by_args": ["a"]}', '{}')$$,
  $$spread_queue('q', '{"by_args": ["a"]}', '{1,2,1}')$$, $$spread_queue('q', '{"by_args": ["a"]}', '{1,null}')$$, $$spread_queue('q', '{"by_args": ["a"]}', '{1,-2}')$$, $$spread_queue('*', '{"by_args": ["a"]}', '{1}')$$,
  $$set_cell_address(1024, 'a')$$, $$set_cell_address(1, null)$$, $$set_cell_address(1, '')$$, $$retire_cell(null)$$, $$cell_for(null)$$, $$cell_for('k', unique_opts => '{"by_arg": true}')$$]);

-- With one, it takes only what is placed there; its ids begin with the number.
select jobs.set_cell(3, 'third'), jobs.set_cell(3);
select cell, identity is not null as identity, address, is_self, retired_at, moved_to, settings_digest ~ '^[0-9a-f]{64}$' as digest from jobs.cells;
select pg_temp.try($$select jobs.insert('k')$$);
select jobs.cell_for('k');
select jobs.place_queue('*', 3), jobs.place_queue('*', 3);
select pg_temp.n(id), state, id < 1::bigint << 53 as is_safe from jobs.insert('k');
select pg_temp.n(id) from jobs.insert_batch('k', '{1,2}') order by ord;
select jobs.cell_for('k');
select pg_temp.try('select jobs.set_cell(4)');
select jobs.delete(id) from jobs.jobs;
select pg_temp.try('select jobs.set_cell(4)');
select count(*) from jobs.check();

-- Addresses are what refusals name.
select jobs.place_queue('mail', 5);
select pg_temp.try($$select jobs.insert('k', queue => 'mail')$$);
select jobs.set_cell_address(5, 'host=five', '00000000-0000-0000-0000-000000000005'), jobs.set_cell_address(5, 'host=five'), jobs.set_cell_address(3, 'host=three');
select pg_temp.try($$select jobs.insert('k', queue => 'mail')$$);
select cell, identity = '00000000-0000-0000-0000-000000000005' as is_given, address, is_self, settings_digest is null as none from jobs.cells order by cell;
select pg_temp.code($$select jobs.set_cell_address(3, 'host=three', '00000000-0000-0000-0000-000000000003')$$) as other, pg_temp.code($$select jobs.set_cell_address(3, 'host=3', identity) from jobs.cells where is_self$$) as own;

-- The digest is over settings.
create temp table digest as select settings_digest as was from jobs.cells where is_self;
select jobs.define_kind('d', timeout => '2 hours'), jobs.pause_queue('q');
set intervalstyle = iso_8601;
create temp table other as select settings_digest as was from jobs.cells where is_self;
reset intervalstyle;
select o.was <> d.was as differs, o.was = c.settings_digest as whatever_the_style from digest d, other o, jobs.cells c where is_self;
select jobs.undefine_kind('d');
select (select was from digest) = settings_digest as as_before from jobs.cells where is_self;
select jobs.resume_queue('q');

-- Retired, it refuses all that writes, tokens too; reading goes on.
select id as waits from jobs.insert('waits', queue => 'w') \gset
select jobs.insert('runs') \gset
select id, token from jobs.fetch() \gset
select jobs.schedule('p', 'every 1 second', 'tick') \gset
select jobs.retire_cell('host=new', 'moved');
select pg_temp.try('select jobs.insert(''k'')');
select count(*), string_agg(call, ', ') filter (where pg_temp.ask('select ' || call) <> 'JB001 {"cell": 3, "retired": true}') as others from (values
  ($$jobs.insert_many('[]')$$), ($$jobs.insert_batch('k', '{1}')$$), ($$jobs.fetch()$$), ($$jobs.fetch_any('{a}')$$), (format('jobs.complete(%s, %s)', :id, :token)), (format('jobs.fail(%s, %s, ''e'')', :id, :token)),
  (format('jobs.snooze(%s, %s, ''1 s'')', :id, :token)), (format('jobs.release(%s, %s)', :id, :token)), (format('jobs.heartbeat(%s, %s)', :id, :token)), (format('jobs.heartbeat_many(''{%s}'', ''{%s}'')', :id, :token)),
  (format('jobs.complete_many(''{%s}'', ''{%s}'')', :id, :token)), (format('jobs.fail_many(''{%s}'', ''{%s}'', ''{e}'')', :id, :token)), ($$jobs.finish_many('[]')$$),
  (format('jobs.cancel(%s)', :waits)), (format('jobs.retry(%s)', :waits)), (format('jobs.activate(%s)', :waits)), (format('jobs.delete(%s)', :waits)), (format('jobs.update(%s, priority => 2)', :waits)),
  ($$jobs.cancel_many('w')$$), ($$jobs.retry_many('w')$$), ($$jobs.delete_many('w')$$), ($$jobs.define_kind('k')$$), ($$jobs.undefine_kind('k')$$), ($$jobs.pause_queue('w')$$), ($$jobs.resume_queue('w')$$),
  ($$jobs.configure_queue('w')$$), ($$jobs.reset_queue('w')$$), ($$jobs.schedule('p', '@daily', 'k')$$), ($$jobs.unschedule('p')$$), ($$jobs.pause_periodic('p')$$), ($$jobs.resume_periodic('p')$$), ($$jobs.run_periodic('p')$$),
  ($$jobs.worker_beat('w', '{w}', 1)$$), ($$jobs.worker_leave('w')$$), ($$jobs.quiet_worker('w')$$), ($$jobs.stop_worker('w')$$), ($$jobs.resume_worker('w')$$), ($$jobs.maintain()$$), ($$jobs.pause_maintenance()$$), ($$jobs.resume_maintenance()$$),
  ($$jobs.set_cell(4)$$), ($$jobs.place_queue('w', 3)$$), ($$jobs.spread_queue('w', '{"by_args": ["a"]}', '{3}')$$), ($$jobs.unplace_queue('w')$$), ($$jobs.set_cell_address(5, 'b')$$), ($$jobs.grant_viewer(current_user::text)$$)) v(call);
select pg_temp.ask($$call jobs.wait(timeout => '1 ms')$$), (select count(*) from jobs.jobs) as jobs, jobs.cell_for('k'), (select reason || ': ' || detail from jobs.explain(:waits) limit 1) as explain;
select retired_at is not null as retired, moved_to from jobs.cells where is_self;
select severity, finding, message, hint from jobs.health() where finding ~ 'cell|placement';
select metric, labels, value from jobs.metrics() where metric ~ '^jobs_cell';
select jobs.retire_cell('host=newer'), jobs.retire_cell('host=newer');
select moved_to from jobs.cells where is_self;
create temp table identity as select identity from jobs.cells where is_self;
select jobs.reinstate_cell('again'), jobs.reinstate_cell();
select c.identity = i.identity as same, retired_at, moved_to from jobs.cells c, identity i where is_self;
select jobs.complete(:id, :token);
select finding, message from jobs.health() where finding ~ 'cell|placement' order by 1;

-- Who changed it is noted.
select action, target, arguments - 'identity' as arguments, reason from jobs.audit where action ~ 'cell|place' order by at;
