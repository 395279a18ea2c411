\set ECHO none
-- configure_queue(.., max_waiting): an insert that does not fit is refused, whichever way it comes.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.waiting(q text) returns bigint language sql as $$
  select count(*) from jobs.jobs where queue = q and state in ('available', 'scheduled', 'retryable', 'pending') $$;

-- Every job that waits counts, whatever for; one that runs does not.
select jobs.configure_queue('q', max_waiting => 3) \gset
select state from jobs.insert('k', queue => 'q');
select state from jobs.insert('k', queue => 'q', scheduled_at => now() + interval '1 hour');
select state from jobs.insert('k', queue => 'q', pending => true);
select pg_temp.try($$select jobs.insert('k', queue => 'q')$$);
select pg_temp.ask($$select jobs.insert('k', queue => 'q', scheduled_at => now() + interval '1 hour')$$), pg_temp.ask($$select jobs.insert('k', queue => 'q', pending => true)$$);
select count(*) from jobs.fetch('q');
select state from jobs.insert('k', queue => 'q');
select pg_temp.ask($$select jobs.insert('k', queue => 'q')$$);
select queue, available, scheduled, pending, running, max_waiting from jobs.queues;
-- Others are not concerned.
select state from jobs.insert('k', queue => 'other');

-- A batch fits as a whole or not at all.
select count(*) from jobs.fetch('q');
select pg_temp.try($$select jobs.insert_batch('k', '{1,2}', queue => 'q')$$);
select pg_temp.ask($$select jobs.insert_many('[{"kind": "k"}, {"kind": "k", "queue": "q"}, {"kind": "k", "queue": "q"}]')$$);
select pg_temp.waiting('q'), pg_temp.waiting('default');
select ord, queue from jobs.insert_many('[{"kind": "k"}, {"kind": "k", "queue": "q"}]');
select pg_temp.ask($$select jobs.insert_batch('k', '{1}', queue => 'q')$$), pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{}', queue => 'q')$$);

-- Whatever else makes a job wait goes on.
create temp table r as select id, token, row_number() over (order by id) as n from jobs.jobs where state = 'running';
select (jobs.fail(id, token, 'e', '1 hour')).state from r where n = 1;
select jobs.release(id, token) from r where n = 2;
select jobs.update(id, queue => 'q') from jobs.jobs where queue = 'other';
select jobs.retry(id) from jobs.jobs where state = 'retryable';
select pg_temp.waiting('q');
-- The depth is counted up to the bound.
select pg_temp.ask($$select jobs.insert('k', queue => 'q')$$);
-- Cancelled or deleted, they make room.
select jobs.cancel_many(queue => 'q', max_jobs => 3);
select pg_temp.ask($$select jobs.insert('k', queue => 'q')$$);
select jobs.delete(min(id)) from jobs.jobs where queue = 'q' and state = 'available';
select state from jobs.insert('k', queue => 'q');
select pg_temp.waiting('q'), pg_temp.ask($$select jobs.insert('k', queue => 'q')$$);

-- Duplicates count nothing: they are answered as ever.
select jobs.configure_queue('u', max_waiting => 2) \gset
select ord, unique_skipped_as_duplicate from jobs.insert_batch('u', '{1,2,1}', '{"by_args": true}', queue => 'u');
select unique_skipped_as_duplicate from jobs.insert('u', '2', '{"by_args": true}', queue => 'u');
select pg_temp.ask($$select jobs.insert('u', '2', '{"by_args": true, "on_conflict": "reject"}', queue => 'u')$$) like '23505 %' as rejected;
select ord, unique_skipped_as_duplicate from jobs.insert_batch('u', '{1,2}', '{"by_args": true}', queue => 'u');
select pg_temp.ask($$select jobs.insert('u', '3', '{"by_args": true}', queue => 'u')$$), pg_temp.ask($$select jobs.insert('u', '3', '{"by_args": true, "wait": false}', queue => 'u')$$), pg_temp.ask($$select jobs.insert_batch('u', '{1,3}', '{"by_args": true}', queue => 'u')$$);
select replaced_id is not null as replaced from jobs.insert('u', '1', '{"by_args": true, "on_conflict": "replace"}', queue => 'u');
select unique_skipped_as_duplicate from jobs.insert('u', '1', '{"by_args": true, "on_conflict": {"update": {"*": ["priority"]}}}', queue => 'u', priority => 3);
-- A key that was refused is nobody's.
select pg_temp.waiting('u'), (select count(*) from jobs.unique_claims);
select id is not null as fetched from jobs.fetch('u');
select unique_skipped_as_duplicate from jobs.insert('u', '3', '{"by_args": true}', queue => 'u');
-- A final job makes no difference, by whatever way the key is claimed.
select jobs.cancel_many(queue => 'u', states => '{available}');
select state from jobs.insert_batch('u', '{3,2}', '{"by_args": true}', queue => 'u');
select state from jobs.insert('u', '4', '{"by_args": true}', queue => 'u');
select pg_temp.ask($$select jobs.insert('u', '1', '{"by_args": true}', queue => 'u')$$);

-- Within transactions and savepoints: one's own jobs count, those that were rolled back do not.
select jobs.configure_queue('s', max_waiting => 2) \gset
begin;
select state from jobs.insert('k', queue => 's');
savepoint a;
select state from jobs.insert('k', queue => 's');
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
rollback to a;
select count(*) from jobs.insert_batch('k', '{1}', queue => 's');
savepoint b;
select jobs.insert('k', queue => 's');
rollback to b;
select count(*) from jobs.fetch('s');
select state from jobs.insert('k', queue => 's');
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
rollback;
select pg_temp.waiting('s');
-- Nor do those of a savepoint that was released, once what is around it is rolled back.
begin;
savepoint a;
select state from jobs.insert('k', queue => 's');
select state from jobs.insert('k', queue => 's');
release a;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
select pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1}', queue => 's')$$);
rollback;
select pg_temp.waiting('s');
begin;
savepoint a;
savepoint b;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's');
release b;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
select pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1}', queue => 's')$$);
rollback to a;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's');
release a;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
rollback;
select pg_temp.waiting('s');
begin;
select state from jobs.insert('k', queue => 's');
select state from jobs.insert('k', queue => 's');
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
rollback;
begin isolation level repeatable read;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's');
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
rollback;
begin isolation level serializable;
select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's');
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
commit;
select pg_temp.waiting('s');

-- A bound is changed, goes with its transaction, and is taken away.
select jobs.configure_queue('s', max_waiting => 1) \gset
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
begin;
select jobs.configure_queue('s') \gset
select state from jobs.insert('k', queue => 's');
rollback;
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);
select jobs.configure_queue('s', max_waiting => 4) \gset
select pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 's')$$), pg_temp.ask($$select count(*) from jobs.insert_batch('k', '{1,2}', queue => 's')$$);
select jobs.configure_queue('s') \gset
select count(*) from jobs.insert_batch('k', '{1,2,3}', queue => 's');
select jobs.configure_queue('s', max_waiting => 8) \gset
select state from jobs.insert('k', queue => 's');
select pg_temp.ask($$select jobs.insert('k', queue => 's')$$);

-- A kind that goes to a queue by its definition; a queue of many lanes, with much that is not there
-- any more.
select jobs.define_kind('d', queue => 'd'), jobs.configure_queue('d', max_waiting => 50);
select count(*) from generate_series(1, 20) n, lateral jobs.insert('d', priority => n % 12);
select count(jobs.complete(id, token)) from jobs.fetch('d', 20);
select count(*) from jobs.insert_batch('d', array_fill('1'::jsonb, array[25]), priority => -5);
select count(*) from generate_series(1, 25) n, lateral jobs.insert('d', priority => n);
select pg_temp.ask($$select jobs.insert('d')$$);
select count(*) from jobs.fetch('d', 30);
select pg_temp.ask($$select count(*) from jobs.insert_batch('d', array_fill('1'::jsonb, array[31]))$$), pg_temp.ask($$select count(*) from jobs.insert_batch('d', array_fill('1'::jsonb, array[30]))$$), pg_temp.ask($$select jobs.insert('d')$$);

-- A periodic job is tried again until there is room.
select jobs.configure_queue('p', max_waiting => 1) \gset
select state from jobs.insert('k', queue => 'p');
select (jobs.schedule('tick', 'every 1 hour', 'tick', queue => 'p')).next_run_at > now() as later;
call pg_temp.later('2 hours');
select rows, error from jobs.maintain() where task = 'periodic';
select last_run_at, last_job_id, last_error, next_run_at between now() - interval '1 minute' and now() + interval '1 minute' as soon from jobs.periodic;
select jobs.delete(id) from jobs.jobs where queue = 'p';
call pg_temp.later('1 minute');
select rows, error from jobs.maintain() where task = 'periodic';
select last_run_at is not null as ran, (select kind from jobs.jobs where id = last_job_id), last_error from jobs.periodic;

-- Bad values.
select call, pg_temp.try('select jobs.' || call) from unnest(array['configure_queue(''n'', max_waiting => 0)', 'configure_queue(''n'', max_waiting => -1)']) call;
select queue, max_waiting from jobs.queues where max_waiting is not null order by queue;
select labels, value from jobs.metrics() where metric = 'jobs_queue_waiting_limit' order by labels ->> 'queue';
