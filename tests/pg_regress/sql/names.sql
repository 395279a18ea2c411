\set ECHO none
-- Names are the same whichever way Unicode writes them: e with an acute accent is one character or
-- two, and what is kept is the one.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
\set one 'U&''caf\\00e9'''
\set two 'U&''cafe\\0301'''
select length(:one) as one, length(:two) as two;

-- Whoever inserts.
select queue = :one as kept from jobs.insert(:two, '"insert"', queue => :two);
select queue = :one as kept from jobs.insert_batch(:two, array['"insert_batch"'::jsonb], queue => :two);
select queue = :one as kept from jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', :two, 'queue', :two, 'args', 'insert_many')));
select outcome from jobs.schedule(:two, '@daily', :two, '"run_periodic"', queue => :two);
select count(jobs.run_periodic(:one));
select count(jobs.run_periodic(:two));
select queue = :one as queue, kind = :one as kind, count(*), string_agg(args #>> '{}', ' ' order by id) from jobs.jobs group by 1, 2;
select name = :one as name, kind = :one as kind, queue = :one as queue from jobs.periodic;
-- One key, one queue.
select unique_skipped_as_duplicate from unnest(array[:one, :two]) u, jobs.insert(u, unique_opts => '{"by_queue": true}', queue => u);
select jobs.unique_key(:one, unique_opts => '{"by_queue": true}', queue => :one) = jobs.unique_key(:two, unique_opts => '{"by_queue": true}', queue => :two) as same;
select queue = :one as queue, available from jobs.queues;

-- What is set of kinds, queues and workers.
select jobs.define_kind(:two, queue => :two, priority => 7) \gset
select kind = :one as kind, queue = :one as queue, priority from jobs.kinds;
select queue = :one as queue from jobs.insert(:one);
select jobs.undefine_kind(:two);
select jobs.configure_queue(:two, concurrency => 100) \gset
select jobs.pause_queue(:two, 'names') \gset
select queue = :one as queue, concurrency, paused from jobs.queues;
select count(*) from jobs.fetch(:one);
select jobs.resume_queue(:two) \gset
select jobs.quiet_worker(:two) \gset
select jobs.worker_beat(:one, array[:two], 1), jobs.worker_beat(:two, array[:two], 1);
select worker = :one as worker, queues = array[:one] as queues, status from jobs.workers;
select count(*) from jobs.fetch(:two, worker => :two);
select jobs.resume_worker(:two) \gset
select distinct action, target = :one as target from jobs.audit order by action;

-- Workers.
call jobs.wait(:two, '1 hour');
call jobs.wait_any(array[:two], '1 hour', :two);
select count(*) from jobs.fetch(:two, worker => :two);
select count(*) from jobs.fetch_any(array[:two], worker => :two);
select count(*) from jobs.fetch(:one, kinds => array[:two]);
select count(*) from jobs.jobs where worker = :one;
select sum(inserted) from jobs.history(:two, :two);

-- Filters.
select jobs.cancel_many(queue => :two, kind => :two, states => '{available}', max_jobs => 2);
select jobs.retry_many(queue => :two, kind => :two, states => '{cancelled}', max_jobs => 1);
select id, state, queue = :one as queue from jobs.jobs where state = 'available' order by id desc limit 1 \gset
select jobs.update(:id, queue => :two), (select queue = :one from jobs.jobs where id = :id) as queue;
select jobs.delete_many(queue => :two, kind => :two, states => '{cancelled}');
select jobs.pause_periodic(:two) \gset
select jobs.resume_periodic(:two) \gset
select jobs.unschedule(:two);

-- The length is that of what is kept: 127 characters, written as 254.
select length(queue) from jobs.insert('k', queue => repeat(U&'e\0301', 127));
select pg_temp.code($$select jobs.insert('k', queue => repeat(U&'e\0301', 128))$$);
-- insert_many reads every time that insert does.
select count(*) from unnest(array['epoch', 'today', 'tomorrow', '2026-02-12', 'yesterday 10:00']) t,
  lateral jobs.insert('t', scheduled_at => t::timestamptz) a, lateral jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 't', 'scheduled_at', t))) b
 where a.scheduled_at = b.scheduled_at;
