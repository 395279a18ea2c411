-- Names are the same whichever way Unicode writes them: e with an acute accent is one character or
-- two, and what is kept is the one.
\set one 'U&''caf\\00e9'''
\set two 'U&''cafe\\0301'''
select length(:one) as one, length(:two) as two; --> one|two: 4|5

-- For every role that inserts.
select queue = :one as kept from jobs.insert(:two, '"insert"', queue => :two); --> t
select queue = :one as kept from jobs.insert_batch(:two, array['"insert_batch"'::jsonb], queue => :two); --> t
select queue = :one as kept from jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', :two, 'queue', :two, 'args', 'insert_many'))); --> t
select outcome from jobs.schedule(:two, '@daily', :two, '"run_periodic"', queue => :two); --> created
select count(jobs.run_periodic(:one)); --> 1
select count(jobs.run_periodic(:two)); --> 1
select queue = :one as queue, kind = :one as kind, count(*), string_agg(args #>> '{}', ' ' order by id) from jobs.jobs group by 1, 2;
--> queue|kind|count|string_agg: t|t|5|insert insert_batch insert_many run_periodic run_periodic
select name = :one as name, kind = :one as kind, queue = :one as queue from jobs.periodic; --> name|kind|queue: t|t|t
-- One key, one queue.
select unique_skipped_as_duplicate from unnest(array[:one, :two]) u, jobs.insert(u, unique_opts => '{"by_queue": true}', queue => u); --> f, t
select jobs.unique_key(:one, unique_opts => '{"by_queue": true}', queue => :one) = jobs.unique_key(:two, unique_opts => '{"by_queue": true}', queue => :two) as same; --> t
select queue = :one as queue, available from jobs.queues; --> queue|available: t|6

-- Settings of kinds, queues and workers.
select jobs.define_kind(:two, queue => :two, priority => 7) \gset
select kind = :one as kind, queue = :one as queue, priority from jobs.kinds; --> kind|queue|priority: t|t|7
select queue = :one as queue from jobs.insert(:one); --> t
select jobs.undefine_kind(:two); --> t
select jobs.configure_queue(:two, concurrency => 100) \gset
select jobs.pause_queue(:two, 'names') \gset
select queue = :one as queue, concurrency, paused from jobs.queues; --> queue|concurrency|paused: t|100|t
select count(*) from jobs.fetch(:one); --> 0
select jobs.resume_queue(:two) \gset
select jobs.quiet_worker(:two) \gset
select jobs.worker_beat(:one, array[:two], 1), jobs.worker_beat(:two, array[:two], 1); --> worker_beat|worker_beat: quiet|quiet
select worker = :one as worker, queues = array[:one] as queues, status from jobs.workers; --> worker|queues|status: t|t|quiet
select count(*) from jobs.fetch(:two, worker => :two); --> 0
select jobs.resume_worker(:two) \gset
select distinct action, target = :one as target from jobs.audit order by action;
--> action|target
--> configure_queue|t
--> define_kind|t
--> pause_queue|t
--> quiet_worker|t
--> resume_queue|t
--> resume_worker|t
--> run_periodic|t
--> schedule|t
--> undefine_kind|t

-- Workers.
call jobs.wait(:two, '1 hour');
call jobs.wait_any(array[:two], '1 hour', :two);
select count(*) from jobs.fetch(:two, worker => :two); --> 1
select count(*) from jobs.fetch_any(array[:two], worker => :two); --> 1
select count(*) from jobs.fetch(:one, kinds => array[:two]); --> 1
select count(*) from jobs.jobs where worker = :one; --> 2
select sum(inserted) from jobs.history(:two, :two); --> 7

-- Filters.
select jobs.cancel_many(queue => :two, kind => :two, states => '{available}', max_jobs => 2); --> 2
select jobs.retry_many(queue => :two, kind => :two, states => '{cancelled}', max_jobs => 1); --> 1
select id, state, queue = :one as queue from jobs.jobs where state = 'available' order by id desc limit 1 \gset
select jobs.update(:id, queue => :two), (select queue = :one from jobs.jobs where id = :id) as queue; --> update|queue: available|t
select jobs.delete_many(queue => :two, kind => :two, states => '{cancelled}'); --> 1
select jobs.pause_periodic(:two) \gset
select jobs.resume_periodic(:two) \gset
select jobs.unschedule(:two); --> t

-- The length is that of what is kept: 127 characters, written as 254.
select length(queue) from jobs.insert('k', queue => repeat(U&'e\0301', 127)); --> 127
select pg_temp.code($$select jobs.insert('k', queue => repeat(U&'e\0301', 128))$$); --> 22023
-- insert_many reads every time that insert does.
select count(*) from unnest(array['epoch', 'today', 'tomorrow', '2026-02-12', 'yesterday 10:00']) t,
  lateral jobs.insert('t', scheduled_at => t::timestamptz) a, lateral jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 't', 'scheduled_at', t))) b
 where a.scheduled_at = b.scheduled_at; --> 5
