-- The order of queues by key: strict, fair, and both.
-- Inserts a job of a tenant; names are kinds.
create function pg_temp.put(name text, tenant text, priority smallint default 2, queue text default 'o') returns bigint language sql
  as $$ select id from jobs.insert(name, jsonb_build_object('t', tenant), queue => queue, priority => priority) $$;
-- Fetches, and says what started.
create function pg_temp.start(many int default 10, queue text default 'o') returns text language sql
  as $$ select string_agg(kind, ' ' order by n) from (select kind, row_number() over () as n from jobs.fetch(queue, many)) f $$;
create function pg_temp.token(name text) returns record language sql
  as $$ select j.id, r.token from jobs.job j join jobs.running r on r.job_id = j.id where j.kind = name $$;
create function pg_temp.done(name text) returns void language sql
  as $$ select jobs.complete(j.id, r.token) from jobs.job j join jobs.running r on r.job_id = j.id where j.kind = name $$;
create function pg_temp.id(name text) returns bigint language sql as $$ select id from jobs.jobs where kind = name $$;
create function pg_temp.failed(name text, retryable boolean, retry_in interval default null) returns jobs.state language sql
  as $$ select state from jobs.job j join jobs.running r on r.job_id = j.id, jobs.fail(j.id, r.token, 'no', retryable => retryable, retry_in => retry_in) where j.kind = name $$;

-- What is no order.
select * from pg_temp.refusals('select jobs.order_queue(''o'', %s)', array['null, strict => true', 'null, weights => ''{}''', '''{"by_args": ["t"]}''', '''{"by_args": ["t"]}'', true, ''stop''', '''{"by_args": ["t"]}'', fair => true, on_discard => ''block''',
  '''{"by_args": ["t"]}'', true, weights => ''{}''', '''{"by_args": ["t"]}'', fair => true, weights => ''{"a": 0}''', '''{"by_args": ["t"], "by_kind": true}'', fair => true, weights => ''{"a": 2}''', '''{"by_args": ["t"]}'', fair => true, weights => ''{"e\u0301": 1, "\u00e9": 2}''', '''{}'', true', '''{"by_args": ["t"]}'', null']);
--> null, strict => true | 22023: by must not be null if the order has other settings | To remove the order, pass only the queue and by => null.
--> null, weights => '{}' | 22023: by must not be null if the order has other settings | To remove the order, pass only the queue and by => null.
-->   An order requires by, such as {"by_args": ["tenant"]}.
--> '{"by_args": ["t"]}' | 22023: strict and fair must not both be false
-->   An order must be strict, fair, or both.
--> '{"by_args": ["t"]}', true, 'stop' | 22023: on_discard "stop" is not known
-->   on_discard must be "continue" or "block".
--> '{"by_args": ["t"]}', fair => true, on_discard => 'block' | 22023: on_discard block requires strict
-->   Only a strict order can block a key.
--> '{"by_args": ["t"]}', true, weights => '{}' | 22023: weights requires fair
-->   Only a fair order has weights.
--> '{"by_args": ["t"]}', fair => true, weights => '{"a": 0}' | 22023: weight 0 of key "a" is out of range
-->   A weight must be a number between 0.001 and 1000.
--> '{"by_args": ["t"], "by_kind": true}', fair => true, weights => '{"a": 2}' | 22023: key "a" of weights does not fit by
-->   A key must have the form {"args":{"t":".."},"type":".."}.
--> '{"by_args": ["t"]}', fair => true, weights => '{"e\u0301": 1, "\u00e9": 2}' | 22023: two members of one object in weights are named "é" in Unicode normal form C | Rename one of them, or leave it out.
-->   A key treats names that differ only in character encoding as the same.
--> '{}', true | 22023: by must not be empty | To remove the order, pass by => null.
-->   by must be an object of by_args, by_meta, by_kind or by_queue, such as {"by_args": ["tenant"]}.
--> '{"by_args": ["t"]}', null | 22004: strict must not be null
select pg_temp.code('select jobs.order_queue('''', null)'), pg_temp.code('select jobs.unblock(''o'', null)'); --> code|code: 22023|22004
select count(*) from jobs.audit; --> 0

-- Strict: in the order of insertion, whatever the priority, each after the one before it is final.
select jobs.order_queue('o', '{"by_args": ["t"]}', strict => true), jobs.order_queue('o', '{"by_args": ["t"]}', strict => true, reason => 'the same') \gset
select count(*) from jobs.audit where action = 'order_queue'; --> 1
select pg_temp.put('a1', 'a'), pg_temp.put('a2', 'a', 0::smallint), pg_temp.put('b1', 'b', 1::smallint), pg_temp.put('a3', 'a', 1::smallint) \gset
select pg_temp.start() as first, pg_temp.start() as nothing; --> first|nothing: b1 a1|~
select queue, key, waiting, running, weight, blocked_by from jobs.order_keys order by key;
--> queue|key|waiting|running|weight|blocked_by
--> o|{"args": {"t": "a"}}|2|1|~|~
--> o|{"args": {"t": "b"}}|0|1|~|~
select reason, detail, (select array_agg(j.kind order by j.id) from jobs.job j where j.id = any (by_ids)) as in_front from jobs.explain(pg_temp.id('a3'));
--> reason|detail|in_front
--> order|jobs of key {"args": {"t": "a"}} that became available earlier come first, one at a time|{a1,a2}
select pg_temp.done('a1'), pg_temp.done('b1') \gset
select pg_temp.start(); --> a2
-- Who waits for a retry, was snoozed or released keeps the turn.
select pg_temp.failed('a2', true, '1 hour'); --> retryable
select pg_temp.start(); --> ~
select jobs.retry(pg_temp.id('a2')) is not null; --> t
select pg_temp.start(); --> a2
select jobs.release(id, token) is not null as released from pg_temp.token('a2') as t(id bigint, token bigint); --> t
select pg_temp.start(); --> a2
select jobs.snooze(id, token, '1 hour') is not null as snoozed from pg_temp.token('a2') as t(id bigint, token bigint); --> t
select pg_temp.start(), jobs.cancel(pg_temp.id('a2')) as cancelled; --> start|cancelled: ~|cancelled
select pg_temp.start(); --> a3
-- A final job that is retried goes to the end; a scheduled one has no turn until it is due.
select pg_temp.put('a4', 'a') \gset
select id as a6 from jobs.insert('a6', '{"t": "a"}', queue => 'o', priority => 0, scheduled_at => now() + interval '1 hour') \gset
select pg_temp.failed('a3', false), jobs.retry(pg_temp.id('a3')) is not null as retried; --> failed|retried: discarded|t
select pg_temp.put('a5', 'a') \gset
select pg_temp.start(); --> a4
select pg_temp.done('a4') \gset
select pg_temp.start(); --> a3
select pg_temp.done('a3'), jobs.update(:a6, scheduled_at => now()) is not null as due, pg_temp.start(); --> done|due|start: ~|t|a5
select pg_temp.done('a5'), pg_temp.start(); --> done|start: ~|a6
select pg_temp.done('a6') \gset
select (select count(*) from jobs.turn), (select count(*) from jobs.order_keys), (select count(*) from jobs.check()); --> count|count|count: 0|0|0
select count(jobs.delete(id)) from jobs.jobs \gset

-- A key that is changed: the job goes to the end of the other one.
select pg_temp.put('a1', 'a'), pg_temp.put('b1', 'b'), pg_temp.put('b2', 'b'), pg_temp.put('a2', 'a'), pg_temp.put('a3', 'a') \gset
select jobs.update(pg_temp.id('a2'), args => '{"t": "b"}') is not null as moved; --> t
select pg_temp.start(); --> a1 b1
select pg_temp.done('a1'), pg_temp.done('b1'), pg_temp.start(); --> done|done|start: ~|~|b2 a3
select pg_temp.done('b2'), pg_temp.done('a3'), pg_temp.start(); --> done|done|start: ~|~|a2
select pg_temp.done('a2'), pg_temp.start(); --> done|start: ~|~

-- So does the key of one that waits for its retry: the next of its former key starts.
select count(jobs.delete(id)) from jobs.jobs \gset
select pg_temp.put('a1', 'a'), pg_temp.put('a2', 'a'), pg_temp.put('b1', 'b') \gset
select pg_temp.start(1), pg_temp.failed('a1', true, '1 hour'); --> start|failed: a1|retryable
select pg_temp.start(), jobs.update(pg_temp.id('a1'), args => '{"t": "b"}') is not null as moved, pg_temp.start(); --> start|moved|start: b1|t|a2
select jobs.retry(pg_temp.id('a1')) is not null, pg_temp.start() as behind_b1; --> ?column?|behind_b1: t|~
select pg_temp.done('b1'), pg_temp.start(), pg_temp.done('a1'), pg_temp.done('a2') \gset

-- A discarded job blocks its key, if it had started, until it is unblocked, retried or deleted.
select count(jobs.delete(id)) from jobs.jobs \gset
select jobs.order_queue('o', '{"by_args": ["t"]}', true, 'block') \gset
select pg_temp.put('a1', 'a'), pg_temp.put('a2', 'a'), pg_temp.put('a3', 'a'), pg_temp.put('a4', 'a'), pg_temp.put('a5', 'a') \gset
select jobs.unblock('o', '"a"'), pg_temp.start(), pg_temp.failed('a1', false); --> unblock|start|failed: ~|a1|discarded
select pg_temp.start(), jobs.unblock('o', '"b"'); --> start|unblock: ~|~
select key, waiting, running, blocked_by = pg_temp.id('a1') as by_a1 from jobs.order_keys; --> key|waiting|running|by_a1: {"args": {"t": "a"}}|4|0|t
select reason, regexp_replace(detail, '\d+', 'N') as detail, by_ids = array[pg_temp.id('a1')] as in_front from jobs.explain(pg_temp.id('a2'));
--> reason|detail|in_front
--> order|discarded job N blocks key {"args": {"t": "a"}}; jobs.unblock, retry or delete of it unblocks it|t
select severity, finding, regexp_replace(message, '\d+', 'N') as message, hint from jobs.health() where finding = 'key_blocked';
--> severity|finding|message|hint
--> warning|key_blocked|discarded job N blocks key {"args": {"t": "a"}} of queue "o"; 4 jobs are held|SELECT jobs.unblock('o', '{"args": {"t": "a"}}');
select * from jobs.orders;
--> queue|by|strict|on_discard|fair|weights|waiting_keys|blocked_keys
--> o|{"by_args": ["t"]}|t|block|f|~|1|1
select note from jobs.top() where queue = 'o'; --> 4 held, 1 key blocked
select substring(regexp_replace(jobs.show(pg_temp.id('a2')), 'job \d+', 'job N', 'g') from 'Held: [^\n]*');
--> Held: discarded job N blocks key {"args": {"t": "a"}}; jobs.unblock, retry or delete of it unblocks it.
select metric, labels, value from jobs.metrics() where metric like 'jobs_queue_%_keys' order by 1;
--> metric|labels|value
--> jobs_queue_blocked_keys|{"queue": "o"}|1
--> jobs_queue_waiting_keys|{"queue": "o"}|1
select jobs.unblock('o', '"a"') = pg_temp.id('a1') as unblocked, jobs.unblock('o', '{"args": {"t": "a"}}') as again, pg_temp.start(); --> unblocked|again|start: t|~|a2
select pg_temp.failed('a2', false), pg_temp.start() as blocked, jobs.retry(pg_temp.id('a2')) is not null as retried, pg_temp.start(); --> failed|blocked|retried|start: discarded|~|t|a3
select pg_temp.failed('a3', false), pg_temp.start() as blocked, jobs.delete(pg_temp.id('a3')) as deleted, pg_temp.start(); --> failed|blocked|deleted|start: discarded|~|discarded|a4
-- A cancelled one does not, nor one that never started.
select jobs.cancel(pg_temp.id('a4'), force => true) is not null as cancelled, pg_temp.start(); --> cancelled|start: t|a5
select pg_temp.put('a6', 'a'), jobs.insert('late', '{"t": "a"}', queue => 'o', expires_at => clock_timestamp()) \gset
select pg_temp.done('a5') \gset
select count(*) from jobs.maintain() \gset
select pg_temp.start(), pg_temp.done('a2') \gset
select pg_temp.start(), pg_temp.done('a6') \gset
select pg_temp.start(), (select count(*) from jobs.turn), (select count(*) from jobs.check()); --> start|count|count: ~|0|0

-- Pruning the discarded job leaves its key blocked.
select pg_temp.put('p1', 'a'), pg_temp.put('p2', 'a') \gset
select pg_temp.id('p1') as p1, pg_temp.start(), pg_temp.failed('p1', false) \gset
call pg_temp.later('8 days');
select count(*) from jobs.maintain() \gset
select pg_temp.id('p1') as pruned, pg_temp.start() as blocked, jobs.unblock('o', '"a"') = :p1 as unblocked, pg_temp.start(); --> pruned|blocked|unblocked|start: ~|~|t|p2
-- Jobs that lack the path share a key.
select count(jobs.insert('lacks', args, queue => 'o')) from unnest('{"{}","{\"u\": 1}","{\"t\": null}"}'::jsonb[]) args \gset
select pg_temp.start(), (select count(*) from jobs.check()); --> start|count: lacks lacks|0
select count(jobs.complete(id, token)) from jobs.jobs where state = 'running'; --> 3

-- Fair: keys take turns, whenever their jobs came; a new key begins at the present.
select count(jobs.delete(id)) from jobs.jobs \gset
select jobs.order_queue('f', '{"by_args": ["t"]}', fair => true) \gset
select count(pg_temp.put('a', 'a', queue => 'f')) from generate_series(1, 250) \gset
select count(pg_temp.put('b', 'b', queue => 'f')), count(pg_temp.put('c', 'c', queue => 'f')) from generate_series(1, 5) \gset
select queue, key, waiting, running, weight from jobs.order_keys order by key;
--> queue|key|waiting|running|weight
--> f|{"args": {"t": "a"}}|250|0|1
--> f|{"args": {"t": "b"}}|5|0|1
--> f|{"args": {"t": "c"}}|5|0|1
select kind, count(*) from regexp_split_to_table(pg_temp.start(15, 'f'), ' ') as kind group by kind order by kind; --> kind|count: a|5, b|5, c|5
select count(pg_temp.put('d', 'd', queue => 'f')) from generate_series(1, 5) \gset
select kind, count(*) from regexp_split_to_table(pg_temp.start(10, 'f'), ' ') as kind group by kind order by kind; --> kind|count: a|5, d|5
-- In the best priority.
select pg_temp.put('e', 'a', 0::smallint, 'f'), pg_temp.put('e', 'e', 0::smallint, 'f') \gset
select pg_temp.start(2, 'f'); --> e e
select key, waiting, running from jobs.order_keys order by key;
--> key|waiting|running
--> {"args": {"t": "a"}}|240|11
--> {"args": {"t": "b"}}|0|5
--> {"args": {"t": "c"}}|0|5
--> {"args": {"t": "d"}}|0|5
--> {"args": {"t": "e"}}|0|1
-- By weight.
select jobs.order_queue('f', '{"by_args": ["t"]}', fair => true, weights => '{"a": 3, "b": 2}') \gset
select count(pg_temp.put('b', 'b', queue => 'f')), count(pg_temp.put('c', 'c', queue => 'f')) from generate_series(1, 150) \gset
select kind, count(*) from regexp_split_to_table(pg_temp.start(60, 'f'), ' ') as kind group by kind order by kind; --> kind|count: a|30, b|20, c|10
select key, weight from jobs.order_keys where queue = 'f' order by key;
--> key|weight
--> {"args": {"t": "a"}}|3
--> {"args": {"t": "b"}}|2
--> {"args": {"t": "c"}}|1
--> {"args": {"t": "d"}}|1
--> {"args": {"t": "e"}}|1
select strict, fair, on_discard, weights, waiting_keys, blocked_keys from jobs.orders where queue = 'f'; --> strict|fair|on_discard|weights|waiting_keys|blocked_keys: f|t|continue|{"a": 3, "b": 2}|3|0
-- The order of the lane again.
select jobs.order_queue('f', null) \gset
select count(*) from jobs.ready where gate is not null or seq < 0; --> 0
select kind, count(*) from regexp_split_to_table(pg_temp.start(30, 'f'), ' ') as kind group by kind order by kind; --> kind|count: a|30
select count(*) from jobs.order_keys; --> 0

-- Both: shares between keys, order within a key. It is set while jobs wait and run.
select pg_temp.put('a1', 'a', 2::smallint, 'g'), pg_temp.put('a2', 'a', 1::smallint, 'g'), pg_temp.put('a3', 'a', 0::smallint, 'g'), pg_temp.put('b1', 'b', 2::smallint, 'g'), pg_temp.put('b2', 'b', 2::smallint, 'g') \gset
select pg_temp.start(1, 'g'); --> a3
select jobs.order_queue('g', '{"by_args": ["t"]}', strict => true, fair => true) \gset
select pg_temp.start(10, 'g'); --> b1
select pg_temp.done('a3'), pg_temp.start(10, 'g'); --> done|start: ~|a1
select pg_temp.done('b1'), pg_temp.start(10, 'g'), pg_temp.done('a1'), pg_temp.done('b2') \gset
select pg_temp.start(10, 'g'), (select count(*) from jobs.check()); --> start|count: a2|0

-- It is set while two jobs of a key run: the one that comes back waits for the other.
select pg_temp.put('a1', 'a', queue => 'h'), pg_temp.put('a2', 'a', queue => 'h'), pg_temp.put('a3', 'a', queue => 'h') \gset
select pg_temp.start(2, 'h'), jobs.order_queue('h', '{"by_args": ["t"]}', strict => true) \gset
select pg_temp.start(10, 'h') \gset
select state from jobs.job j join jobs.running r on r.job_id = j.id, jobs.fail(j.id, r.token, 'no', retry_in => '0') where j.kind = 'a1' and j.queue = 'h'; --> available
select pg_temp.start(10, 'h') as before; --> ~
select jobs.complete(j.id, r.token) from jobs.job j join jobs.running r on r.job_id = j.id where j.kind = 'a2' and j.queue = 'h'; --> completed
select pg_temp.start(10, 'h'); --> a3
select jobs.complete(j.id, r.token) from jobs.job j join jobs.running r on r.job_id = j.id where j.kind = 'a3' and j.queue = 'h'; --> completed
select pg_temp.start(10, 'h'); --> a1

-- An order is no limit.
select count(*) from jobs.limits where name like 'order/%'; --> 0
select jobs.drop_limit('order/h'), pg_temp.code('select jobs.pause_limit(''order/h'')'); --> drop_limit|code: f|P0002

-- Limits and an order on one queue: who has the turn waits for the limit, and keeps the turn.
select jobs.order_queue('l', '{"by_args": ["t"]}', true), jobs.define_limit('one', queues => '{l}', concurrency => 1) \gset
select pg_temp.put('a1', 'a', queue => 'l'), pg_temp.put('b1', 'b', queue => 'l'), pg_temp.put('b2', 'b', 0::smallint, 'l'), pg_temp.put('b3', 'b', 0::smallint, 'l') \gset
select pg_temp.start(10, 'l'), pg_temp.start(10, 'l') as none, pg_temp.put('b4', 'b', 0::smallint, 'l') \gset
select kind, reason from jobs.jobs j, jobs.explain(j.id) where queue = 'l' and state = 'available' order by kind; --> kind|reason: b1|limit, b2|order, b3|order, b4|order
select key, waiting, running from jobs.order_keys where queue = 'l' order by key;
--> key|waiting|running
--> {"args": {"t": "a"}}|0|1
--> {"args": {"t": "b"}}|4|0
select pg_temp.done('a1'), pg_temp.start(10, 'l'); --> done|start: ~|b1
select pg_temp.done('b1'), pg_temp.start(10, 'l'), pg_temp.done('b2') \gset
select pg_temp.start(10, 'l'), (select count(*) from jobs.check()); --> start|count: b3|0

-- A spread queue.
select count(jobs.order_queue(q, null)::text) from unnest('{g,h,l,o}'::text[]) q \gset
select jobs.set_cell(0), jobs.place_queue('*', 0), jobs.spread_queue('s', '{"by_args": ["t.id"]}', '{0,1}') \gset
select * from pg_temp.refusals('select jobs.order_queue(''s'', %L, true)', array['{"by_args": ["u"]}', '{"by_args": ["t"]}']);
--> {"by_args": ["u"]} | 22023: by does not contain {"by_args":["t.id"]}, by which queue "s" is spread | Add it to by.
-->   The order of a spread queue must contain the path, so that no key spans cells.
--> {"by_args": ["t"]} | ok
select jobs.order_queue('p', '{"by_args": ["u"]}', true) \gset
select pg_temp.try($$select jobs.spread_queue('p', '{"by_args": ["t"]}', '{0}')$$) as spread, pg_temp.code($$select jobs.spread_queue('p', '{"by_args": ["u"]}', '{0}')$$) as contained;
--> spread|contained
--> 55000: cannot spread queue "p": its order does not contain the path | Add it to by of the order.
-->   A limit or order of the queue would span cells.|ok
