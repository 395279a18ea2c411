-- configure_queue(.., max_waiting): an insert that does not fit is refused, whichever way it comes.
create function pg_temp.waiting(q text) returns bigint language sql as $$
  select count(*) from jobs.jobs where queue = q and state in ('available', 'scheduled', 'retryable', 'pending') $$;

-- Every job that waits counts, whatever for; one that runs does not.
select jobs.configure_queue('q', max_waiting => 3) \gset
select state from jobs.insert('k', queue => 'q'); --> available
select state from jobs.insert('k', queue => 'q', scheduled_at => now() + interval '1 hour'); --> scheduled
select state from jobs.insert('k', queue => 'q', pending => true); --> pending
select pg_temp.try($$select jobs.insert('k', queue => 'q')$$);
--> 54000: queue "q" is full | Retry when workers have taken some of its jobs, or raise max_waiting with jobs.configure_queue.
-->   {"depth":3,"bound":3}
select pg_temp.ask($$select jobs.insert('k', queue => 'q', scheduled_at => now() + interval '1 hour')$$), pg_temp.ask($$select jobs.insert('k', queue => 'q', pending => true)$$);
--> ask|ask: 54000 {"depth":3,"bound":3}|54000 {"depth":3,"bound":3}
select count(*) from jobs.fetch('q'); --> 1
select state from jobs.insert('k', queue => 'q'); --> available
select pg_temp.ask($$select jobs.insert('k', queue => 'q')$$); --> 54000 {"depth":3,"bound":3}
select queue, available, scheduled, pending, running, max_waiting from jobs.queues; --> queue|available|scheduled|pending|running|max_waiting: q|1|1|1|1|3
-- Others are not concerned.
select state from jobs.insert('k', queue => 'other'); --> available

-- A batch fits as a whole or not at all.
select count(*) from jobs.fetch('q'); --> 1
select pg_temp.try($$select jobs.insert_batch('k', '{1,2}', queue => 'q')$$);
--> 54000: queue "q" has no room for 2 more jobs | Retry when workers have taken some of its jobs, or raise max_waiting with jobs.configure_queue.
-->   {"depth":2,"bound":3}
select pg_temp.ask($$select jobs.insert_many('[{"kind": "k"}, {"kind": "k", "queue": "q"}, {"kind": "k", "queue": "q"}]')$$); --> 54000 {"depth":2,"bound":3}
select pg_temp.waiting('q'), pg_temp.waiting('default'); --> waiting|waiting: 2|0
select ord, queue from jobs.insert_many('[{"kind": "k"}, {"kind": "k", "queue": "q"}]'); --> ord|queue: 1|default, 2|q
select pg_temp.ask($$select jobs.insert_batch('k', '{1}', queue => 'q')$$), pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{}', queue => 'q')$$); --> ask|ask: 54000 {"depth":3,"bound":3}|0

-- Whatever else makes a job wait goes on.
create temp table r as select id, token, row_number() over (order by id) as n from jobs.jobs where state = 'running';
select (jobs.fail(id, token, 'e', '1 hour')).state from r where n = 1; --> retryable
select jobs.release(id, token) from r where n = 2; --> available
select jobs.update(id, queue => 'q') from jobs.jobs where queue = 'other'; --> available
select jobs.retry(id) from jobs.jobs where state = 'retryable'; --> available
select pg_temp.waiting('q'); --> 6
-- The depth is counted up to the bound.
select pg_temp.ask($$select jobs.insert('k', queue => 'q')$$); --> 54000 {"depth":3,"bound":3}
-- Cancelled or deleted, they make room.
select jobs.cancel_many(queue => 'q', max_jobs => 3); --> 3
select pg_temp.ask($$select jobs.insert('k', queue => 'q')$$); --> 54000 {"depth":3,"bound":3}
select jobs.delete(min(id)) from jobs.jobs where queue = 'q' and state = 'available'; --> available
select state from jobs.insert('k', queue => 'q'); --> available
select pg_temp.waiting('q'), pg_temp.ask($$select jobs.insert('k', queue => 'q')$$); --> waiting|ask: 3|54000 {"depth":3,"bound":3}

-- Duplicates count nothing, and have the usual results.
select jobs.configure_queue('u', max_waiting => 2) \gset
select ord, unique_skipped_as_duplicate from jobs.insert_batch('u', '{1,2,1}', '{"by_args": true}', queue => 'u'); --> ord|unique_skipped_as_duplicate: 1|f, 2|f, 3|t
select unique_skipped_as_duplicate from jobs.insert('u', '2', '{"by_args": true}', queue => 'u'); --> t
select pg_temp.ask($$select jobs.insert('u', '2', '{"by_args": true, "on_conflict": "reject"}', queue => 'u')$$) like '23505 %' as rejected; --> t
select ord, unique_skipped_as_duplicate from jobs.insert_batch('u', '{1,2}', '{"by_args": true}', queue => 'u'); --> ord|unique_skipped_as_duplicate: 1|t, 2|t
select pg_temp.ask($$select jobs.insert('u', '3', '{"by_args": true}', queue => 'u')$$), pg_temp.ask($$select jobs.insert('u', '3', '{"by_args": true, "wait": false}', queue => 'u')$$), pg_temp.ask($$select jobs.insert_batch('u', '{1,3}', '{"by_args": true}', queue => 'u')$$);
--> ask|ask|ask: 54000 {"depth":2,"bound":2}|54000 {"depth":2,"bound":2}|54000 {"depth":2,"bound":2}
select replaced_id is not null as replaced from jobs.insert('u', '1', '{"by_args": true, "on_conflict": "replace"}', queue => 'u'); --> t
select unique_skipped_as_duplicate from jobs.insert('u', '1', '{"by_args": true, "on_conflict": {"update": {"*": ["priority"]}}}', queue => 'u', priority => 3); --> t
-- A key that was refused is free.
select pg_temp.waiting('u'), (select count(*) from jobs.unique_claims); --> waiting|count: 2|2
select id is not null as fetched from jobs.fetch('u'); --> t
select unique_skipped_as_duplicate from jobs.insert('u', '3', '{"by_args": true}', queue => 'u'); --> f
-- A final job makes no difference, by whatever way the key is claimed.
select jobs.cancel_many(queue => 'u', states => '{available}'); --> 2
select state from jobs.insert_batch('u', '{3,2}', '{"by_args": true}', queue => 'u'); --> available, running
select state from jobs.insert('u', '4', '{"by_args": true}', queue => 'u'); --> available
select pg_temp.ask($$select jobs.insert('u', '1', '{"by_args": true}', queue => 'u')$$); --> 54000 {"depth":2,"bound":2}

-- Within transactions and savepoints: one's own jobs count, those that were rolled back do not.
select jobs.configure_queue('s', max_waiting => 2) \gset
begin;
select state from jobs.insert('k', queue => 's'); --> available
savepoint a;
select state from jobs.insert('k', queue => 's'); --> available
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback to a;
select count(*) from jobs.insert_batch('k', '{1}', queue => 's'); --> 1
savepoint b;
select jobs.insert('k', queue => 's');
--> ERROR:  queue "s" is full
--> DETAIL:  {"depth":2,"bound":2}
--> HINT:  Retry when workers have taken some of its jobs, or raise max_waiting with jobs.configure_queue.
rollback to b;
select count(*) from jobs.fetch('s'); --> 1
select state from jobs.insert('k', queue => 's'); --> available
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback;
select pg_temp.waiting('s'); --> 0
-- Nor do those of a savepoint that was released, once what is around it is rolled back.
begin;
savepoint a;
select state from jobs.insert('k', queue => 's'); --> available
select state from jobs.insert('k', queue => 's'); --> available
release a;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
select pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1}', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback;
select pg_temp.waiting('s'); --> 0
begin;
savepoint a;
savepoint b;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's'); --> 2
release b;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
select pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1}', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback to a;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's'); --> 2
release a;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback;
select pg_temp.waiting('s'); --> 0
begin;
select state from jobs.insert('k', queue => 's'); --> available
select state from jobs.insert('k', queue => 's'); --> available
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback;
begin isolation level repeatable read;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's'); --> 2
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
rollback;
begin isolation level serializable;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's'); --> 2
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":2,"bound":2}
commit;
select pg_temp.waiting('s'); --> 2

-- A bound is changed, goes with its transaction, and is taken away.
select jobs.configure_queue('s', max_waiting => 1) \gset
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":1,"bound":1}
begin;
select jobs.configure_queue('s') \gset
select state from jobs.insert('k', queue => 's'); --> available
rollback;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":1,"bound":1}
select jobs.configure_queue('s', max_waiting => 4) \gset
select pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 's')$$), pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's')$$);
--> ask|ask: 54000 {"depth":2,"bound":4}|2
select jobs.configure_queue('s') \gset
select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 's'); --> 3
select jobs.configure_queue('s', max_waiting => 8) \gset
select state from jobs.insert('k', queue => 's'); --> available
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$); --> 54000 {"depth":8,"bound":8}

-- A kind that goes to a queue by its definition; a queue of many lanes, with much that is not there
-- any more.
select jobs.define_kind('d', queue => 'd'), jobs.configure_queue('d', max_waiting => 50);
select count(*) from generate_series(1, 20) n, lateral jobs.insert('d', priority => n % 12); --> 20
select count(jobs.complete(id, token)) from jobs.fetch('d', 20); --> 20
select count(*) from jobs.insert_batch('d', array_fill('1'::jsonb, array[25]), priority => -5); --> 25
select count(*) from generate_series(1, 25) n, lateral jobs.insert('d', priority => n); --> 25
select pg_temp.ask($$select jobs.insert('d')$$); --> 54000 {"depth":50,"bound":50}
select count(*) from jobs.fetch('d', 30); --> 30
select pg_temp.ask($$select count(*) from jobs.insert_batch('d', array_fill('1'::jsonb, array[31]))$$), pg_temp.ask($$select count(*) from jobs.insert_batch('d', array_fill('1'::jsonb, array[30]))$$), pg_temp.ask($$select jobs.insert('d')$$);
--> ask|ask|ask: 54000 {"depth":20,"bound":50}|30|54000 {"depth":50,"bound":50}

-- A periodic job is tried again until there is room.
select jobs.configure_queue('p', max_waiting => 1) \gset
select state from jobs.insert('k', queue => 'p'); --> available
select (jobs.schedule('tick', 'every 1 hour', 'tick', queue => 'p')).next_run_at > now() as later; --> t
call pg_temp.later('2 hours');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 0|~
select last_run_at, last_job_id, last_error, next_run_at between now() - interval '1 minute' and now() + interval '1 minute' as soon from jobs.periodic;
--> last_run_at|last_job_id|last_error|soon: ~|~|queue "p" is full|t
select jobs.delete(id) from jobs.jobs where queue = 'p'; --> available
call pg_temp.later('1 minute');
select rows, error from jobs.maintain() where task = 'periodic'; --> rows|error: 1|~
select last_run_at is not null as ran, (select kind from jobs.jobs where id = last_job_id), last_error from jobs.periodic; --> ran|kind|last_error: t|tick|~

-- Bad values.
select pg_temp.refusals('select jobs.%s', array['configure_queue(''n'', max_waiting => 0)', 'configure_queue(''n'', max_waiting => -1)']);
--> configure_queue('n', max_waiting => 0) | 22023: max_waiting 0 is out of range
--> configure_queue('n', max_waiting => -1) | 22023: max_waiting -1 is out of range
-->   max_waiting must be between 1 and 2147483647, or null for no limit.
select queue, max_waiting from jobs.queues where max_waiting is not null order by queue; --> queue|max_waiting: d|50, p|1, q|3, s|8, u|2
select labels, value from jobs.metrics() where metric = 'jobs_queue_waiting_limit' order by labels ->> 'queue';
--> labels|value
--> {"queue": "d"}|50
--> {"queue": "p"}|1
--> {"queue": "q"}|3
--> {"queue": "s"}|8
--> {"queue": "u"}|2
