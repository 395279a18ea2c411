-- Queues that are placed: what this cell refuses, and where.
select jobs.set_cell(3), jobs.place_queue('here', 3), jobs.place_queue('there', 5), jobs.set_cell_address(5, 'host=five');

select * from jobs.placements;
--> queue|by|cells
--> here|~|{3}
--> there|~|{5}
select jobs.cell_for('k', queue => 'here') as here, jobs.cell_for('k', queue => 'there') as there, jobs.cell_for('k', queue => 'nowhere') as nowhere; --> here|there|nowhere: 3|5|~
select pg_temp.try($$select jobs.insert('k', queue => 'there')$$) as there, pg_temp.try($$select jobs.insert('k', queue => 'nowhere "q"')$$) as nowhere;
--> there|nowhere
--> JB001: queue "there" lives in cell 5 | host=five
-->   {"cell": 5, "queue": "there"}|JB001: queue "nowhere "q"" lives in no cell | Use jobs.place_queue or jobs.spread_queue.
-->   {"cell": null, "queue": "nowhere \"q\""}

-- Bad input is found first, also behind a wrong cell in a batch, which is refused whole.
select pg_temp.try($$select jobs.insert_many('[{"kind": "k", "queue": "here"}, {"kind": "k", "queue": "there"}, {"kind": "k", "queue": "here", "priority": 99999}]')$$);
--> 22023: priority 99999 is out of range
-->   Element 3: priority must be between -32768 and 32767; lower numbers run first.
select pg_temp.ask($$select jobs.insert_many('[{"kind": "k", "queue": "here"}, {"kind": "k", "queue": "there"}]')$$) as many, pg_temp.ask($$select jobs.insert_batch('k', '{1,2}', queue => 'there')$$) as batch, (select count(*) from jobs.jobs) as jobs;
--> many|batch|jobs: JB001 {"cell": 5, "queue": "there"}|JB001 {"cell": 5, "queue": "there"}|0
select call, pg_temp.ask('select jobs.' || call) from (values
  ($$insert('k', queue => 'there', max_attempts => 0)$$), ($$fetch('there', 0)$$), ($$configure_queue('there', concurrency => 0)$$), ($$cancel_many('there', older_than => '-1 s')$$),
  ($$order_queue('there', '{"by_args": ["t"]}', strict => true, on_discard => 'x')$$), ($$unblock('there', null)$$)) v(call);
--> call|ask
--> insert('k', queue => 'there', max_attempts => 0)|22023 max_attempts must be at least 1; it includes the first attempt.
--> fetch('there', 0)|22023 max_jobs must be between 1 and 10000.
--> configure_queue('there', concurrency => 0)|22023 concurrency must be between 1 and 10000, or null for no limit.
--> cancel_many('there', older_than => '-1 s')|22023 older_than must be between 0 and 1000 years.
--> order_queue('there', '{"by_args": ["t"]}', strict => true, on_discard => 'x')|22023 on_discard must be "continue" or "block".
--> unblock('there', null)|22004

-- Everything that names a queue.
select count(*), string_agg(call, ', ') filter (where pg_temp.ask('select jobs.' || call) <> 'JB001 {"cell": 5, "queue": "there"}') as others from (values
  ($$order_queue('there', '{"by_args": ["t"]}', strict => true)$$), ($$unblock('there', '1')$$), ($$fetch('there')$$), ($$fetch_any('{here,there}')$$), ($$pause_queue('there')$$), ($$resume_queue('there')$$), ($$configure_queue('there')$$), ($$configure_queue('there', concurrency => 1)$$), ($$reset_queue('there')$$),
  ($$schedule('p', '@daily', 'k', queue => 'there')$$), ($$cancel_many('there')$$), ($$retry_many('there')$$), ($$delete_many('there')$$)) v(call); --> count|others: 13|~
select pg_temp.ask($$call jobs.wait('there', '1 ms')$$) as wait, pg_temp.ask($$call jobs.wait_any('{here,there}', '1 ms')$$) as wait_any;
--> wait|wait_any: JB001 {"cell": 5, "queue": "there"}|JB001 {"cell": 5, "queue": "there"}

-- A kind's default counts as a queue that is given. In another cell's, the insert is refused.
select jobs.define_kind('d', queue => 'there');
select pg_temp.ask($$select jobs.insert('d')$$); --> JB001 {"cell": 5, "queue": "there"}
select jobs.define_kind('d', queue => 'here', unique_opts => '{"by_queue": true}');
select jobs.cell_for('d'), jobs.cell_for('d', queue => 'there'); --> cell_for|cell_for: 3|5

-- Keys contain the queue.
select * from pg_temp.refusals('select jobs.insert(''k'', queue => ''here'', unique_opts => %L)', array['{"by_kind": true}', '{"key": "x"}', '{"ojs": {}}', '{"oban": {"fields": ["args"]}}']);
--> {"by_kind": true} | 22023: unique_opts do not contain the queue | Add "by_queue": true, in "oban" "queue" to fields, or in "ojs" "queue" to keys.
--> {"key": "x"} | 22023: unique_opts do not contain the queue | Add "by_queue": true, in "oban" "queue" to fields, or in "ojs" "queue" to keys.
--> {"ojs": {}} | 22023: unique_opts do not contain the queue | Add "by_queue": true, in "oban" "queue" to fields, or in "ojs" "queue" to keys.
--> {"oban": {"fields": ["args"]}} | 22023: unique_opts do not contain the queue | Add "by_queue": true, in "oban" "queue" to fields, or in "ojs" "queue" to keys.
-->   In a database with a cell number, unique keys must contain the queue, so that none spans cells.
select pg_temp.code(format('select jobs.insert(''k'', queue => ''here'', unique_opts => %L)', o)) from unnest('{"{\"by_queue\": true}","{\"key\": \"x\", \"by_queue\": true}","{\"oban\": true}","{\"faktory\": {\"unique_for\": 60}}","{\"ojs\": {\"keys\": [\"queue\"], \"on_conflict\": \"ignore\"}}"}'::text[]) o;
--> ok, ok, ok, ok, ok
select call, pg_temp.code('select jobs.' || call) from (values
  ($$define_kind('u', unique_opts => '{"by_kind": true}')$$), ($$define_kind('u', unique_opts => '{"by_queue": true}')$$), ($$schedule('u', '@daily', 'k', queue => 'here', unique_opts => '{"by_kind": true}')$$),
  ($$cell_for('k', unique_opts => '{"by_kind": true}', queue => 'here')$$)) v(call);
--> call|code
--> define_kind('u', unique_opts => '{"by_kind": true}')|22023
--> define_kind('u', unique_opts => '{"by_queue": true}')|ok
--> schedule('u', '@daily', 'k', queue => 'here', unique_opts => '{"by_kind": true}')|22023
--> cell_for('k', unique_opts => '{"by_kind": true}', queue => 'here')|22023
-- It is the queue's own key.
select jobs.place_queue('here too', 3);
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('m', queue => 'here', unique_opts => '{"key": "m", "by_queue": true}') union all
select queue, unique_skipped_as_duplicate from jobs.insert('m', queue => 'here too', unique_opts => '{"key": "m", "by_queue": true}') union all
select queue, unique_skipped_as_duplicate from jobs.insert('m', queue => 'here', unique_opts => '{"key": "m", "by_queue": true}'); --> queue|skipped: here|f, here too|f, here|t
select jobs.delete_many('here') > 0 as deleted; --> t

-- A job cannot be moved out by an update; one on conflict keeps the queue, which is of the key.
select id from jobs.insert('k', queue => 'here') \gset
select pg_temp.ask(format('select jobs.update(%s, queue => ''there'')', :id)) as out, pg_temp.ask(format('select jobs.update(%s, queue => ''here too'')', :id)) as within;
--> out|within: JB001 {"cell": 5, "queue": "there"}|available
select queue from jobs.jobs where id = :id; --> here too

-- The invariant counts every job that lives elsewhere, also by '*'.
begin;
select jobs.cancel(:id), jobs.place_queue('*', 5); --> cancel|place_queue: cancelled|
update jobs.job set queue = 'named nowhere' where id = :id;
select invariant, violations from jobs.check(); --> invariant|violations: cell|1
rollback;

-- Placements change only while no job would live elsewhere, final ones included.
select jobs.cancel(:id); --> cancelled
select pg_temp.try($$select jobs.place_queue('here too', 5)$$);
--> 55006: queue "here too" has jobs in this cell, which would no longer be its own | Finish and delete them, use a new queue name, or move the whole cell.
-->   2 jobs, final ones included.
select pg_temp.ask($$select jobs.unplace_queue('here too')$$) as unplace, pg_temp.ask($$select jobs.spread_queue('here too', '{"by_args": ["t"]}', '{5,6}')$$) as spread;
--> unplace|spread: 55006 2 jobs, final ones included.|55006 2 jobs, final ones included.
select * from jobs.placements where queue = 'here too'; --> queue|by|cells: here too|~|{3}
select jobs.place_queue('*', 3), jobs.unplace_queue('here too'), jobs.unplace_queue('here too'); --> place_queue|unplace_queue|unplace_queue: |t|f
select pg_temp.try($$select jobs.place_queue('*', 5)$$);
--> 55006: queues that are named nowhere have jobs in this cell, which would no longer be its own | Finish and delete them, use a new queue name, or move the whole cell.
-->   2 jobs, final ones included.
select pg_temp.code($$select jobs.unplace_queue('*')$$); --> 55006
select jobs.delete_many('here too'); --> 2
select jobs.place_queue('*', 5), jobs.unplace_queue('*'); --> place_queue|unplace_queue: |t
select * from jobs.placements;
--> queue|by|cells
--> here|~|{3}
--> there|~|{5}

-- A queue that leaves takes its settings, its pause and its order along.
create function pg_temp.set_queue(queue text) returns void language sql as $$
  select jobs.configure_queue(queue, concurrency => 2, rate => 9, rate_period => '1 s', max_waiting => 5, retention_completed => '1 h');
  select jobs.pause_queue(queue);
  select jobs.order_queue(queue, '{"by_args": ["t"]}', strict => true) $$;
create function pg_temp.set_queues() returns text language sql as $$
  select string_agg(distinct queue, ',' order by queue) from (select queue from jobs.queue union all select unnest(queues) from jobs.limit_rule) q $$;
select jobs.place_queue('set', 3), jobs.place_queue('kept', 3), jobs.place_queue('*', 3) \gset
select pg_temp.set_queue('set'), pg_temp.set_queue('kept'), pg_temp.set_queue('other') \gset
select jobs.place_queue('set', 3), pg_temp.set_queues(); --> place_queue|set_queues: |kept,other,set
select jobs.place_queue('set', 5) \gset
select pg_temp.set_queues(); --> kept,other
select jobs.place_queue('*', 5) \gset
select pg_temp.set_queues(); --> kept
begin;
select jobs.unplace_queue('kept') \gset
select pg_temp.set_queues(), count(*) as violations from jobs.check(); --> set_queues|violations: ~|0
rollback;
select pg_temp.set_queues(); --> kept
select jobs.spread_queue('kept', '{"by_args": ["t"]}', '{5,6}') \gset
select pg_temp.set_queues(); --> ~
select jobs.unplace_queue('*'), jobs.unplace_queue('set'), jobs.unplace_queue('kept') \gset

-- A tick whose queue has gone says so.
select jobs.place_queue('t', 3), jobs.schedule('tick', 'every 1 second', 'k', queue => 't') is not null as scheduled; --> place_queue|scheduled: |t
select jobs.place_queue('t', 5);
call pg_temp.later('10 s');
set client_min_messages = error;
select count(*) from jobs.maintain() where error is not null; --> 0
reset client_min_messages;
select last_error from jobs.periodic where name = 'tick'; --> queue "t" lives in cell 5
select finding, message, hint from jobs.health() where finding = 'placements_differ';
--> finding|message|hint
--> placements_differ|periodic job "tick" inserts into queue "t", which this cell does not take|Define it in the cell of the queue. SELECT * FROM jobs.periodic WHERE name = 'tick';

-- A database with jobs becomes cell 0.
drop extension jobs;
create extension jobs;
select jobs.insert('old', queue => 'q', unique_opts => '{"by_queue": true}') \gset
begin;
select pg_temp.code('select jobs.set_cell(1)') as one, jobs.set_cell(0) as zero; --> one|zero: 55000|
select pg_temp.ask($$select jobs.fetch('q')$$) as fetch; --> JB001 {"cell": null, "queue": "q"}
select pg_temp.ask(format('select jobs.insert(''old'', ''{"n": 1}'', queue => ''q'', unique_opts => ''{"by_queue": true, "on_conflict": %s}'')', c)) from unnest('{"\"replace\"","{\"update\": {\"available\": [\"args\"]}}"}'::text[]) c;
--> JB001 {"cell": null, "queue": "q"}, JB001 {"cell": null, "queue": "q"}
select kind, args, state from jobs.jobs; --> kind|args|state: old|{}|available
select id, (select reason || ': ' || detail from jobs.explain(id) limit 1) as explain from jobs.jobs; --> id|explain: 1|wrong cell: this job of queue "q" lives in no cell
select finding, message, hint from jobs.health() where finding = 'placements_differ';
--> finding|message|hint
--> placements_differ|queue "q" has jobs in this cell, which does not take it|Place it here with jobs.place_queue, or delete its jobs: SELECT * FROM jobs.jobs WHERE queue = 'q' LIMIT 10;
select jobs.place_queue('*', 0);
commit;
select id from jobs.insert('new'); --> 2
select kind from jobs.fetch('q'); --> old
select count(*) from jobs.check(); --> 0
