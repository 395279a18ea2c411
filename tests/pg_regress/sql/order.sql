\set ECHO none
-- The order of queues by key: strict, fair, and both.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
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
  '''{"by_args": ["t"]}'', true, weights => ''{}''', '''{"by_args": ["t"]}'', fair => true, weights => ''{"a": 0}''', '''{"by_args": ["t"], "by_kind": true}'', fair => true, weights => ''{"a": 2}''', '''{}'', true', '''{"by_args": ["t"]}'', null']);
select pg_temp.code('select jobs.order_queue('''', null)'), pg_temp.code('select jobs.unblock(''o'', null)');
select count(*) from jobs.audit;

-- Strict: in the order of insertion, whatever the priority, each after the one before it is final.
select jobs.order_queue('o', '{"by_args": ["t"]}', strict => true), jobs.order_queue('o', '{"by_args": ["t"]}', strict => true, reason => 'the same') \gset
select count(*) from jobs.audit where action = 'order_queue';
select pg_temp.put('a1', 'a'), pg_temp.put('a2', 'a', 0::smallint), pg_temp.put('b1', 'b', 1::smallint), pg_temp.put('a3', 'a', 1::smallint) \gset
select pg_temp.start() as first, pg_temp.start() as nothing;
select queue, key, waiting, running, weight, blocked_by from jobs.order_keys order by key;
select reason, detail, (select array_agg(j.kind order by j.id) from jobs.job j where j.id = any (by_ids)) as in_front from jobs.explain(pg_temp.id('a3'));
select pg_temp.done('a1'), pg_temp.done('b1') \gset
select pg_temp.start();
-- Who waits for a retry, was snoozed or released keeps the turn.
select pg_temp.failed('a2', true, '1 hour');
select pg_temp.start();
select jobs.retry(pg_temp.id('a2')) is not null;
select pg_temp.start();
select jobs.release(id, token) is not null as released from pg_temp.token('a2') as t(id bigint, token bigint);
select pg_temp.start();
select jobs.snooze(id, token, '1 hour') is not null as snoozed from pg_temp.token('a2') as t(id bigint, token bigint);
select pg_temp.start(), jobs.cancel(pg_temp.id('a2')) as cancelled;
select pg_temp.start();
-- A final job that is retried goes to the end; a scheduled one has no turn until it is due.
select pg_temp.put('a4', 'a') \gset
select id as a6 from jobs.insert('a6', '{"t": "a"}', queue => 'o', priority => 0, scheduled_at => now() + interval '1 hour') \gset
select pg_temp.failed('a3', false), jobs.retry(pg_temp.id('a3')) is not null as retried;
select pg_temp.put('a5', 'a') \gset
select pg_temp.start();
select pg_temp.done('a4') \gset
select pg_temp.start();
select pg_temp.done('a3'), jobs.update(:a6, scheduled_at => now()) is not null as due, pg_temp.start();
select pg_temp.done('a5'), pg_temp.start();
select pg_temp.done('a6') \gset
select (select count(*) from jobs.turn), (select count(*) from jobs.order_keys), (select count(*) from jobs.check());
select count(jobs.delete(id)) from jobs.jobs \gset

-- A key that is changed: the job goes to the end of the other one.
select pg_temp.put('a1', 'a'), pg_temp.put('b1', 'b'), pg_temp.put('b2', 'b'), pg_temp.put('a2', 'a'), pg_temp.put('a3', 'a') \gset
select jobs.update(pg_temp.id('a2'), args => '{"t": "b"}') is not null as moved;
select pg_temp.start();
select pg_temp.done('a1'), pg_temp.done('b1'), pg_temp.start();
select pg_temp.done('b2'), pg_temp.done('a3'), pg_temp.start();
select pg_temp.done('a2'), pg_temp.start();

-- So does the key of one that waits for its retry: the next of its former key starts.
select count(jobs.delete(id)) from jobs.jobs \gset
select pg_temp.put('a1', 'a'), pg_temp.put('a2', 'a'), pg_temp.put('b1', 'b') \gset
select pg_temp.start(1), pg_temp.failed('a1', true, '1 hour');
select pg_temp.start(), jobs.update(pg_temp.id('a1'), args => '{"t": "b"}') is not null as moved, pg_temp.start();
select jobs.retry(pg_temp.id('a1')) is not null, pg_temp.start() as behind_b1;
select pg_temp.done('b1'), pg_temp.start(), pg_temp.done('a1'), pg_temp.done('a2') \gset

-- A discarded job blocks its key, if it had started, until it is unblocked, retried or deleted.
select count(jobs.delete(id)) from jobs.jobs \gset
select jobs.order_queue('o', '{"by_args": ["t"]}', true, 'block') \gset
select pg_temp.put('a1', 'a'), pg_temp.put('a2', 'a'), pg_temp.put('a3', 'a'), pg_temp.put('a4', 'a'), pg_temp.put('a5', 'a') \gset
select jobs.unblock('o', '"a"'), pg_temp.start(), pg_temp.failed('a1', false);
select pg_temp.start(), jobs.unblock('o', '"b"');
select key, waiting, running, blocked_by = pg_temp.id('a1') as by_a1 from jobs.order_keys;
select reason, regexp_replace(detail, '\d+', 'N') as detail, by_ids = array[pg_temp.id('a1')] as in_front from jobs.explain(pg_temp.id('a2'));
select severity, finding, regexp_replace(message, '\d+', 'N') as message, hint from jobs.health() where finding = 'key_blocked';
select jobs.unblock('o', '"a"') = pg_temp.id('a1') as unblocked, jobs.unblock('o', '{"args": {"t": "a"}}') as again, pg_temp.start();
select pg_temp.failed('a2', false), pg_temp.start() as blocked, jobs.retry(pg_temp.id('a2')) is not null as retried, pg_temp.start();
select pg_temp.failed('a3', false), pg_temp.start() as blocked, jobs.delete(pg_temp.id('a3')) as deleted, pg_temp.start();
-- A cancelled one does not, nor one that never started.
select jobs.cancel(pg_temp.id('a4'), force => true) is not null as cancelled, pg_temp.start();
select pg_temp.put('a6', 'a'), jobs.insert('late', '{"t": "a"}', queue => 'o', expires_at => clock_timestamp()) \gset
select pg_temp.done('a5') \gset
select count(*) from jobs.maintain() \gset
select pg_temp.start(), pg_temp.done('a2') \gset
select pg_temp.start(), pg_temp.done('a6') \gset
select pg_temp.start(), (select count(*) from jobs.turn), (select count(*) from jobs.check());

-- Fair: keys take turns, whenever their jobs came; a new key begins at the present.
select count(jobs.delete(id)) from jobs.jobs \gset
select jobs.order_queue('f', '{"by_args": ["t"]}', fair => true) \gset
select count(pg_temp.put('a', 'a', queue => 'f')) from generate_series(1, 250) \gset
select count(pg_temp.put('b', 'b', queue => 'f')), count(pg_temp.put('c', 'c', queue => 'f')) from generate_series(1, 5) \gset
select queue, key, waiting, running, weight from jobs.order_keys order by key;
select kind, count(*) from regexp_split_to_table(pg_temp.start(15, 'f'), ' ') as kind group by kind order by kind;
select count(pg_temp.put('d', 'd', queue => 'f')) from generate_series(1, 5) \gset
select kind, count(*) from regexp_split_to_table(pg_temp.start(10, 'f'), ' ') as kind group by kind order by kind;
-- In the best priority.
select pg_temp.put('e', 'a', 0::smallint, 'f'), pg_temp.put('e', 'e', 0::smallint, 'f') \gset
select pg_temp.start(2, 'f');
select key, waiting, running from jobs.order_keys order by key;
-- By weight.
select jobs.order_queue('f', '{"by_args": ["t"]}', fair => true, weights => '{"a": 3, "b": 2}') \gset
select count(pg_temp.put('b', 'b', queue => 'f')), count(pg_temp.put('c', 'c', queue => 'f')) from generate_series(1, 150) \gset
select kind, count(*) from regexp_split_to_table(pg_temp.start(60, 'f'), ' ') as kind group by kind order by kind;
select key, weight from jobs.order_keys where queue = 'f' order by key;
-- The order of the lane again.
select jobs.order_queue('f', null) \gset
select count(*) from jobs.ready where gate is not null or seq < 0;
select kind, count(*) from regexp_split_to_table(pg_temp.start(30, 'f'), ' ') as kind group by kind order by kind;
select count(*) from jobs.order_keys;

-- Both: shares between keys, order within a key. It is set while jobs wait and run.
select pg_temp.put('a1', 'a', 2::smallint, 'g'), pg_temp.put('a2', 'a', 1::smallint, 'g'), pg_temp.put('a3', 'a', 0::smallint, 'g'), pg_temp.put('b1', 'b', 2::smallint, 'g'), pg_temp.put('b2', 'b', 2::smallint, 'g') \gset
select pg_temp.start(1, 'g');
select jobs.order_queue('g', '{"by_args": ["t"]}', strict => true, fair => true) \gset
select pg_temp.start(10, 'g');
select pg_temp.done('a3'), pg_temp.start(10, 'g');
select pg_temp.done('b1'), pg_temp.start(10, 'g'), pg_temp.done('a1'), pg_temp.done('b2') \gset
select pg_temp.start(10, 'g'), (select count(*) from jobs.check());

-- It is set while two jobs of a key run: the one that comes back waits for the other.
select pg_temp.put('a1', 'a', queue => 'h'), pg_temp.put('a2', 'a', queue => 'h'), pg_temp.put('a3', 'a', queue => 'h') \gset
select pg_temp.start(2, 'h'), jobs.order_queue('h', '{"by_args": ["t"]}', strict => true) \gset
select pg_temp.start(10, 'h') \gset
select state from jobs.job j join jobs.running r on r.job_id = j.id, jobs.fail(j.id, r.token, 'no', retry_in => '0') where j.kind = 'a1' and j.queue = 'h';
select pg_temp.start(10, 'h') as before;
select jobs.complete(j.id, r.token) from jobs.job j join jobs.running r on r.job_id = j.id where j.kind = 'a2' and j.queue = 'h';
select pg_temp.start(10, 'h');
select jobs.complete(j.id, r.token) from jobs.job j join jobs.running r on r.job_id = j.id where j.kind = 'a3' and j.queue = 'h';
select pg_temp.start(10, 'h');

-- An order is no limit.
select count(*) from jobs.limits where name like 'order/%';
select jobs.drop_limit('order/h'), pg_temp.code('select jobs.pause_limit(''order/h'')');

-- Limits and an order on one queue: who has the turn waits for the limit, and keeps the turn.
select jobs.order_queue('l', '{"by_args": ["t"]}', true), jobs.define_limit('one', queues => '{l}', concurrency => 1) \gset
select pg_temp.put('a1', 'a', queue => 'l'), pg_temp.put('b1', 'b', queue => 'l'), pg_temp.put('b2', 'b', 0::smallint, 'l'), pg_temp.put('b3', 'b', 0::smallint, 'l') \gset
select pg_temp.start(10, 'l'), pg_temp.start(10, 'l') as none, pg_temp.put('b4', 'b', 0::smallint, 'l') \gset
select kind, reason from jobs.jobs j, jobs.explain(j.id) where queue = 'l' and state = 'available' order by kind;
select key, waiting, running from jobs.order_keys where queue = 'l' order by key;
select pg_temp.done('a1'), pg_temp.start(10, 'l');
select pg_temp.done('b1'), pg_temp.start(10, 'l'), pg_temp.done('b2') \gset
select pg_temp.start(10, 'l'), (select count(*) from jobs.check());

-- A spread queue.
select count(jobs.order_queue(q, null)::text) from unnest('{g,h,l,o}'::text[]) q \gset
select jobs.set_cell(0), jobs.place_queue('*', 0), jobs.spread_queue('s', '{"by_args": ["t.id"]}', '{0,1}') \gset
select * from pg_temp.refusals('select jobs.order_queue(''s'', %L, true)', array['{"by_args": ["u"]}', '{"by_args": ["t"]}']);
