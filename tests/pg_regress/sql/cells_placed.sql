\set ECHO none
-- Queues that are placed: what this cell refuses, and where.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
select jobs.set_cell(3), jobs.place_queue('here', 3), jobs.place_queue('there', 5), jobs.set_cell_address(5, 'host=five');

select * from jobs.placements;
select jobs.cell_for('k', queue => 'here') as here, jobs.cell_for('k', queue => 'there') as there, jobs.cell_for('k', queue => 'nowhere') as nowhere;
select pg_temp.try($$select jobs.insert('k', queue => 'there')$$) as there, pg_temp.try($$select jobs.insert('k', queue => 'nowhere "q"')$$) as nowhere;

-- Bad input is found first, also behind a wrong cell in a batch, which is refused whole.
select pg_temp.try($$select jobs.insert_many('[{"kind": "k", "queue": "here"}, {"kind": "k", "queue": "there"}, {"kind": "k", "queue": "here", "priority": 99999}]')$$);
select pg_temp.ask($$select jobs.insert_many('[{"kind": "k", "queue": "here"}, {"kind": "k", "queue": "there"}]')$$) as many, pg_temp.ask($$select jobs.insert_batch('k', '{1,2}', queue => 'there')$$) as batch, (select count(*) from jobs.jobs) as jobs;
select call, pg_temp.ask('select jobs.' || call) from (values
  ($$insert('k', queue => 'there', max_attempts => 0)$$), ($$fetch('there', 0)$$), ($$configure_queue('there', concurrency => 0)$$), ($$cancel_many('there', older_than => '-1 s')$$)) v(call);

-- Everything that names a queue.
select count(*), string_agg(call, ', ') filter (where pg_temp.ask('select jobs.' || call) <> 'JB001 {"cell": 5, "queue": "there"}') as others from (values
  ($$fetch('there')$$), ($$fetch_any('{here,there}')$$), ($$pause_queue('there')$$), ($$resume_queue('there')$$), ($$configure_queue('there')$$), ($$configure_queue('there', concurrency => 1)$$), ($$reset_queue('there')$$),
  ($$schedule('p', '@daily', 'k', queue => 'there')$$), ($$cancel_many('there')$$), ($$retry_many('there')$$), ($$delete_many('there')$$)) v(call);
select pg_temp.ask($$call jobs.wait('there', '1 ms')$$) as wait, pg_temp.ask($$call jobs.wait_any('{here,there}', '1 ms')$$) as wait_any;

-- A kind's default counts as a queue that is given. In another cell's, the insert is refused.
select jobs.define_kind('d', queue => 'there');
select pg_temp.ask($$select jobs.insert('d')$$);
select jobs.define_kind('d', queue => 'here', unique_opts => '{"by_queue": true}');
select jobs.cell_for('d'), jobs.cell_for('d', queue => 'there');

-- Keys contain the queue.
select * from pg_temp.refusals('select jobs.insert(''k'', queue => ''here'', unique_opts => %L)', array['{"by_kind": true}', '{"key": "x"}', '{"ojs": {}}', '{"oban": {"fields": ["args"]}}']);
select pg_temp.code(format('select jobs.insert(''k'', queue => ''here'', unique_opts => %L)', o)) from unnest('{"{\"by_queue\": true}","{\"key\": \"x\", \"by_queue\": true}","{\"oban\": true}","{\"faktory\": {\"unique_for\": 60}}","{\"ojs\": {\"keys\": [\"queue\"], \"on_conflict\": \"ignore\"}}"}'::text[]) o;
select call, pg_temp.code('select jobs.' || call) from (values
  ($$define_kind('u', unique_opts => '{"by_kind": true}')$$), ($$define_kind('u', unique_opts => '{"by_queue": true}')$$), ($$schedule('u', '@daily', 'k', queue => 'here', unique_opts => '{"by_kind": true}')$$),
  ($$cell_for('k', unique_opts => '{"by_kind": true}', queue => 'here')$$)) v(call);
-- It is the queue's own key.
select jobs.place_queue('here too', 3);
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('m', queue => 'here', unique_opts => '{"key": "m", "by_queue": true}') union all
select queue, unique_skipped_as_duplicate from jobs.insert('m', queue => 'here too', unique_opts => '{"key": "m", "by_queue": true}') union all
select queue, unique_skipped_as_duplicate from jobs.insert('m', queue => 'here', unique_opts => '{"key": "m", "by_queue": true}');
select jobs.delete_many('here') > 0 as deleted;

-- A job cannot be moved out by an update; one on conflict keeps the queue, which is of the key.
select id from jobs.insert('k', queue => 'here') \gset
select pg_temp.ask(format('select jobs.update(%s, queue => ''there'')', :id)) as out, pg_temp.ask(format('select jobs.update(%s, queue => ''here too'')', :id)) as within;
select queue from jobs.jobs where id = :id;

-- The invariant counts every job that lives elsewhere, also by '*'.
begin;
select jobs.cancel(:id), jobs.place_queue('*', 5);
update jobs.job set queue = 'named nowhere' where id = :id;
select invariant, violations from jobs.check();
rollback;

-- Placements change only while no job would live elsewhere, final ones included.
select jobs.cancel(:id);
select pg_temp.try($$select jobs.place_queue('here too', 5)$$);
select pg_temp.ask($$select jobs.unplace_queue('here too')$$) as unplace, pg_temp.ask($$select jobs.spread_queue('here too', '{"by_args": ["t"]}', '{5,6}')$$) as spread;
select * from jobs.placements where queue = 'here too';
select jobs.place_queue('*', 3), jobs.unplace_queue('here too'), jobs.unplace_queue('here too');
select pg_temp.try($$select jobs.place_queue('*', 5)$$);
select pg_temp.code($$select jobs.unplace_queue('*')$$);
select jobs.delete_many('here too');
select jobs.place_queue('*', 5), jobs.unplace_queue('*');
select * from jobs.placements;

-- A tick whose queue has gone says so.
select jobs.place_queue('t', 3), jobs.schedule('tick', 'every 1 second', 'k', queue => 't') is not null as scheduled;
select jobs.place_queue('t', 5);
call pg_temp.later('10 s');
set client_min_messages = error;
select count(*) from jobs.maintain() where error is not null;
reset client_min_messages;
select last_error from jobs.periodic where name = 'tick';
select finding, message, hint from jobs.health() where finding = 'placements_differ';

-- A database with jobs becomes cell 0.
drop extension jobs;
create extension jobs;
select jobs.insert('old', queue => 'q') \gset
begin;
select pg_temp.code('select jobs.set_cell(1)') as one, jobs.set_cell(0) as zero;
select pg_temp.ask($$select jobs.fetch('q')$$) as fetch;
select id, (select reason || ': ' || detail from jobs.explain(id) limit 1) as explain from jobs.jobs;
select finding, message, hint from jobs.health() where finding = 'placements_differ';
select jobs.place_queue('*', 0);
commit;
select id from jobs.insert('new');
select kind from jobs.fetch('q');
select count(*) from jobs.check();
