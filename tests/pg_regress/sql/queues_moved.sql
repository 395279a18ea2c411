-- An insert gives a running job another queue: until the attempt ends the job counts for the one
-- that it was fetched from, for limits and in every view.
create function pg_temp.fetched(q text) returns bigint language sql as $$ select count(*) from jobs.fetch(q, 100) $$;
-- A job of this kind runs from a queue; then it is given another one.
create function pg_temp.runs(kind text, q text) returns text language sql as $$
  select 'job ' || i.id || ', fetched ' || pg_temp.fetched(q) from jobs.insert(kind, queue => q, unique_opts => '{"by_kind": true}') i $$;
create function pg_temp.move(kind text, q text) returns boolean language sql as $$
  select unique_skipped_as_duplicate from jobs.insert(kind, queue => q, unique_opts => '{"by_kind": true, "on_conflict": {"update": {"running": ["queue"]}}}') $$;
create view pg_temp.counts as select queue, available, scheduled, running, retryable from jobs.queues order by queue;

-- One level after the other: from a queue without a limit into one whose only slot is free.
create procedure pg_temp.moved(level text) language plpgsql as $$
declare k bigint; t bigint; n bigint; story text := level || ':';
begin
  perform set_config('default_transaction_isolation', level, false);
  commit;
  perform jobs.configure_queue('b', concurrency => 1);
  perform pg_temp.runs('k', 'a');
  select id, token into k, t from jobs.jobs where kind = 'k' and state = 'running';
  commit;
  perform pg_temp.move('k', 'b');
  commit;
  story := story || format(' it runs in %s;', (select queue from jobs.jobs where id = k));
  perform jobs.insert('other', queue => 'b');
  commit;
  n := pg_temp.fetched('b');
  story := story || format(' b lets %s start,', n);
  commit;
  perform jobs.insert('other', queue => 'b');
  n := pg_temp.fetched('b');
  story := story || format(' then %s;', n);
  commit;
  story := story || (select format(' running: %s', string_agg(queue || ' ' || running, ', ' order by queue)) from jobs.queues where running > 0);
  perform jobs.fail(k, t, 'x', '0');
  commit;
  story := story || format('; after it failed it is %s', (select state || ' in ' || queue from jobs.jobs where id = k));
  n := pg_temp.fetched('b');
  story := story || format('; b lets %s start', n);
  commit;
  perform jobs.complete(id, token) from jobs.jobs where kind = 'other' and state = 'running';
  commit;
  n := pg_temp.fetched('b');
  perform jobs.complete(id, token) from jobs.jobs where kind = 'other' and state = 'running';
  commit;
  n := n + pg_temp.fetched('b');
  commit;
  story := story || (select format(', and %s when there is room; running: %s', n, string_agg(queue || ' ' || running, ', ' order by queue)) from jobs.queues where running > 0);
  perform jobs.complete(id, token) from jobs.jobs where state = 'running';
  perform jobs.delete(id) from jobs.jobs;
  commit;
  raise notice '%', story;
end $$;
call pg_temp.moved('read committed');
--> NOTICE:  read committed: it runs in a; b lets 1 start, then 0; running: a 1, b 1; after it failed it is available in b; b lets 0 start, and 2 when there is room; running: b 1
call pg_temp.moved('repeatable read');
--> NOTICE:  repeatable read: it runs in a; b lets 1 start, then 0; running: a 1, b 1; after it failed it is available in b; b lets 0 start, and 2 when there is room; running: b 1
call pg_temp.moved('serializable');
--> NOTICE:  serializable: it runs in a; b lets 1 start, then 0; running: a 1, b 1; after it failed it is available in b; b lets 0 start, and 2 when there is room; running: b 1
reset default_transaction_isolation;

-- Out of a queue with a limit: its slot is taken until the job ends, and nothing of it is left
-- then.
select jobs.configure_queue('limited', concurrency => 1) \gset
select pg_temp.runs('l', 'limited') ~ 'fetched 1' as runs; --> t
select count(*) from jobs.insert('next', queue => 'limited'); --> 1
select pg_temp.move('l', 'elsewhere'); --> t
select * from pg_temp.counts;
--> queue|available|scheduled|running|retryable
--> b|0|0|0|0
--> limited|1|0|1|0
select pg_temp.fetched('limited'), pg_temp.fetched('elsewhere'); --> fetched|fetched: 0|0
-- What is asked for by queue finds it where it runs.
select queues from jobs.workers; --> {limited}
select jobs.cancel_many(queue => 'elsewhere'), jobs.retry_many(queue => 'limited', states => '{running}'); --> cancel_many|retry_many: 0|0
-- Moved again, and back: it is the first queue that counts, and the last that it goes to.
select pg_temp.move('l', 'further'), pg_temp.move('l', 'limited'), pg_temp.move('l', 'last'); --> move|move|move: t|t|t
select queue, state from jobs.jobs where kind = 'l'; --> queue|state: limited|running
select s.state, s.scheduled_at > now() as later from jobs.jobs j, jobs.snooze(j.id, j.token, '1 hour') s where j.kind = 'l' and j.state = 'running'; --> state|later: scheduled|t
select queue, state from jobs.jobs where kind = 'l'; --> queue|state: last|scheduled
select pg_temp.fetched('limited'); --> 1
select * from pg_temp.counts;
--> queue|available|scheduled|running|retryable
--> b|0|0|0|0
--> last|0|1|0|0
--> limited|0|0|1|0
select jobs.cancel(id, force => true) from jobs.jobs where kind in ('l', 'next'); --> cancelled, cancelled

-- A limit that is set while it runs gives it a slot of the queue that it was fetched from, and none
-- of the other.
select pg_temp.runs('s', 'from') ~ 'fetched 1' as runs, pg_temp.move('s', 'to'); --> runs|move: t|t
select jobs.configure_queue('to', concurrency => 1), jobs.configure_queue('from', concurrency => 1);
select count(*) from jobs.insert('t', queue => 'to') t, jobs.insert('f', queue => 'from') f; --> 1
select pg_temp.fetched('to') as to, pg_temp.fetched('from') as from; --> to|from: 1|0
select jobs.release(id, token) from jobs.jobs where kind = 's' and state = 'running'; --> available
select queue, state from jobs.jobs where kind = 's'; --> queue|state: to|available
select pg_temp.fetched('to') as to, pg_temp.fetched('from') as from; --> to|from: 0|1
select count(jobs.complete(id, token)) from jobs.jobs where state = 'running'; --> 2
select pg_temp.fetched('to') as to; --> 1
select jobs.complete(id, token) from jobs.jobs where state = 'running'; --> completed

-- It has started in the queue that it was fetched from, so it is no start of the other one; the
-- next attempt is.
select jobs.configure_queue('rated', rate => 1, rate_period => '1 hour') \gset
select pg_temp.runs('r', 'unrated') ~ 'fetched 1' as runs, pg_temp.move('r', 'rated'); --> runs|move: t|t
select count(*) from jobs.insert('first', queue => 'rated', priority => 1); --> 1
select pg_temp.fetched('rated'); --> 1
select f.state from jobs.jobs j, jobs.fail(j.id, j.token, 'x', '0') f where j.kind = 'r' and j.state = 'running'; --> available
select pg_temp.fetched('rated'); --> 0
call pg_temp.later('61 minutes');
select kind from jobs.fetch('rated', 100); --> r

-- A rescue takes it to the other one, too, and nothing is wrong with any of it.
select pg_temp.runs('e', 'dies') ~ 'fetched 1' as runs, pg_temp.move('e', 'takes over'); --> runs|move: t|t
call pg_temp.later('2 hours');
select rows > 0 as rescued from jobs.maintain() where task = 'rescue'; --> t
select queue, state from jobs.jobs where kind = 'e'; --> queue|state: takes over|retryable
select * from jobs.check(); --> none
-- Where the insert is rolled back, nothing has happened.
select pg_temp.runs('u', 'undone') ~ 'fetched 1' as runs; --> t
begin;
select pg_temp.move('u', 'never'); --> t
rollback;
select f.state from jobs.jobs j, jobs.fail(j.id, j.token, 'x', '0') f where j.kind = 'u' and j.state = 'running'; --> available
select queue from jobs.jobs where kind = 'u'; --> undone
