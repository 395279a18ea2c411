\set ECHO none
-- jobs.explain(id): why a job does not run now; every reason, and several at once.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
-- Of the job of a kind. The times are not the same twice; jobs are shown by their kinds.
create function pg_temp.why(of text) returns table (reason text, detail text, until text, jobs text[]) language sql as $$
  select e.reason, regexp_replace(regexp_replace(e.detail, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+00', 'TIME', 'g'), 'activate\(\d+', 'activate(ID'),
         case when e.until > clock_timestamp() then 'later' else e.until::text end,
         case when e.by_ids is not null then array(select j.kind from unnest(e.by_ids) with ordinality u(id, n) join jobs.jobs j on j.id = u.id order by u.n) end
    from jobs.jobs k, lateral jobs.explain(k.id) e where k.kind = of $$;
create function pg_temp.ends(of text) returns text language sql as $$ select jobs.complete(id, token)::text from jobs.jobs where kind = of $$;
-- How many rows of the tables that jobs wait in this transaction has read, and pages of the index
-- that says in what order.
create function pg_temp.read() returns bigint language sql as $$
  select sum(pg_stat_get_xact_tuples_fetched(t) + pg_stat_get_xact_tuples_returned(t))::bigint from unnest('{jobs.ready,jobs.scheduled}'::regclass[]) t $$;
create function pg_temp.pages() returns bigint language sql as $$ select pg_stat_get_xact_blocks_fetched('jobs.ready_pkey'::regclass) $$;

-- running: a worker has it. From now on somebody is at work on queue q.
select state from jobs.insert('held', queue => 'q', timeout => '-1 second');
select kind from jobs.fetch('q', worker => 'w1', lease => '1 day');
select * from pg_temp.why('held');

-- next, or behind others: by priority, then by the time for which they have been available.
select state from jobs.insert('a', queue => 'q');
select * from pg_temp.why('a');
select state from jobs.insert('b', queue => 'q');
select * from pg_temp.why('b');
select state from jobs.insert('urgent', queue => 'q', priority => 0);
select * from pg_temp.why('urgent');
select * from pg_temp.why('a');
select * from pg_temp.why('b');

-- expired: it is in nobody's way.
select state from jobs.insert('gone', queue => 'q', priority => -1, expires_at => clock_timestamp() + interval '1 microsecond');
select * from pg_temp.why('gone');
select * from pg_temp.why('urgent');
select jobs.pause_maintenance() \gset
select * from pg_temp.why('gone');
select jobs.resume_maintenance() \gset

-- scheduled, and due: then it can be fetched, whether maintenance was there or not.
select state from jobs.insert('scheduled', queue => 'q', scheduled_at => now() + interval '1 hour');
select * from pg_temp.why('scheduled');
select i.state, j.state from jobs.insert('due', queue => 'q', scheduled_at => clock_timestamp() + interval '1 s') i, jobs.insert('due first', queue => 'q', priority => -5, timeout => '-1 second', scheduled_at => clock_timestamp() + interval '1 s') j, pg_sleep(1.1);
select * from pg_temp.why('due');
select * from pg_temp.why('due first');
select * from pg_temp.why('urgent');
select kind from jobs.fetch('q', worker => 'w1', lease => '1 day');
select * from pg_temp.why('due');

-- pending, and due later than that; retryable.
select state from jobs.insert('pending', queue => 'q', pending => true);
select * from pg_temp.why('pending');
select state from jobs.insert('pending later', queue => 'q', pending => true, scheduled_at => now() + interval '1 hour');
select * from pg_temp.why('pending later');
select state from jobs.insert('retryable', queue => 'r');
select (jobs.fail(id, token, e'no route to host\nor none at all', '1 hour')).state from jobs.fetch('r');
select * from pg_temp.why('retryable');

-- running: its worker is lost.
select count(*) from jobs.insert('k', queue => 'lost', timeout => '-1 s');
select jobs.worker_beat('gone', '{lost}', 1), (select kind from jobs.fetch('lost', worker => 'gone', lease => '1 day'));
select detail like '%the worker is lost%' as lost from jobs.explain((select id from jobs.jobs where worker = 'gone'));
call pg_temp.later('61 seconds');
select regexp_replace(detail, '[0-9]{4}-[0-9: .-]* \+00', 'TIME', 'g') as detail from jobs.explain((select id from jobs.jobs where worker = 'gone'));

-- no worker: nobody has fetched from its queue, or not for long.
select state from jobs.insert('alone', queue => 'n');
select * from pg_temp.why('alone');
select jobs.worker_beat('w9', '{n}', 1);
select * from pg_temp.why('alone');
select jobs.quiet_worker('w9') \gset
select * from pg_temp.why('alone');
-- Nor has it one when all that are known are quiet, however lately they fetched. Who holds a job is
-- one, whether it beats or not, unless it is quiet.
select count(*) from unnest('{h1,h2}'::text[]) k, lateral jobs.insert(k, queue => 'h', timeout => '-1 second');
select jobs.worker_beat('w8', '{h}', 1);
select kind from jobs.fetch('h', worker => 'w7', lease => '1 day');
select jobs.stop_worker('w8') \gset
select * from pg_temp.why('h2');
select jobs.quiet_worker('w7') \gset
select * from pg_temp.why('h2');
select jobs.worker_beat('w6', '{other,h}', 1);
select * from pg_temp.why('h2');
select jobs.quiet_worker('w6') \gset
select * from pg_temp.why('h2');
select jobs.resume_worker('w8') \gset
select * from pg_temp.why('h2');

-- queue paused, limit, rate: each has a row, whatever else the job waits for.
select jobs.configure_queue('c', concurrency => 1, rate => 1, rate_period => '1 hour') \gset
select state from jobs.insert('runs', queue => 'c', timeout => '-1 second');
select * from pg_temp.why('runs');
select kind from jobs.fetch('c', worker => 'w2', lease => '1 day');
select i.state, j.state from jobs.insert('waits', queue => 'c') i, jobs.insert('all of it', queue => 'c', scheduled_at => now() + interval '1 day') j;
select * from pg_temp.why('waits');
select jobs.pause_queue('c', 'no paper') \gset
select * from pg_temp.why('waits');
select * from pg_temp.why('all of it');
select jobs.pause_queue('r'), jobs.pause_queue('q');
select * from pg_temp.why('retryable');
select * from pg_temp.why('pending');
select * from pg_temp.why('a');
select * from pg_temp.why('urgent');
select jobs.resume_queue('q'), jobs.resume_queue('r'), jobs.resume_queue('c');
select pg_temp.ends('runs');
select * from pg_temp.why('waits');
select jobs.configure_queue('c', concurrency => 1) \gset
select * from pg_temp.why('waits');
call pg_temp.later('6 minutes');
select * from pg_temp.why('waits');
select kind from jobs.fetch('c');

-- More run than may, since the limit was lowered; with a free slot it is not the limit.
select jobs.configure_queue('low', concurrency => 3) \gset
select count(*) from unnest('{l1,l2,l3}'::text[]) k, lateral jobs.insert(k, queue => 'low', timeout => '-1 second');
select count(*) from jobs.fetch('low', 2, lease => '1 day');
select * from pg_temp.why('l3');
select jobs.configure_queue('low', concurrency => 1) \gset
select * from pg_temp.why('l3');
select pg_temp.ends('l2');
select * from pg_temp.why('l3');
select pg_temp.ends('l1');
select * from pg_temp.why('l3');

-- kind not asked for: fetches ask for others.
select count(*) from unnest('{left,taken,other}'::text[]) k, lateral jobs.insert(k, queue => 'k', timeout => '-1 second');
select kind from jobs.fetch('k', kinds => '{taken,none}', lease => '1 day');
select * from pg_temp.why('left');
select * from pg_temp.why('other');
select pg_temp.ends('taken');
select * from pg_temp.why('left');
select id, state from jobs.insert('left', queue => 'k', priority => 9) \gset later_
select id = :later_id as it from jobs.fetch('k', 2, kinds => '{left}') order by id desc limit 1;
select count(jobs.release(id, token)) from jobs.jobs where state = 'running' and kind = 'left' and id <> :later_id;
select reason from jobs.jobs j, jobs.explain(j.id) where j.kind = 'left' and j.queue = 'k' and j.state = 'available';
-- Whoever takes jobs of any kind asks for each.
select count(*) from jobs.fetch('fresh', kinds => '{old}');
select count(*) from jobs.insert('new', queue => 'fresh');
select * from pg_temp.why('new');
select count(jobs.release(id, token)) from jobs.fetch('fresh');
select * from pg_temp.why('new');

-- running, in full: its time, its progress, a request to stop, a lease that ran out.
select state from jobs.insert('long', queue => 'l', timeout => '1 hour', max_attempts => 3);
select kind from jobs.fetch('l', worker => 'w3', lease => '10 minutes');
select cancel_requested from jobs.heartbeat((select id from jobs.jobs where kind = 'long'), (select token from jobs.jobs where kind = 'long'), '10 minutes', '{"done": 0.5}');
select jobs.cancel(id, 'no need') from jobs.jobs where kind = 'long';
select * from pg_temp.why('long');
call pg_temp.later('11 minutes');
select * from pg_temp.why('long');
select jobs.pause_maintenance() \gset
select * from pg_temp.why('long');
select jobs.resume_maintenance() \gset

-- A viewer sees the reasons, and not what the job carries.
set client_min_messages = warning;
drop role if exists jobs_explain_viewer, jobs_explain_nobody;
create role jobs_explain_viewer;
create role jobs_explain_nobody;
reset client_min_messages;
select jobs.grant_viewer('jobs_explain_viewer') \gset
grant usage on schema jobs to jobs_explain_nobody;
set role jobs_explain_viewer;
select reason, detail ~ 'no need$' as without from jobs.jobs j, jobs.explain(j.id) where j.kind = 'long';
set role jobs_explain_nobody;
select jobs.explain(1);
reset role;
select jobs.revoke('jobs_explain_viewer') \gset
revoke usage on schema jobs from jobs_explain_nobody;
drop role jobs_explain_viewer, jobs_explain_nobody;

-- final.
select * from pg_temp.why('l1');
select jobs.cancel(id, 'a mistake') from jobs.jobs where kind = 'pending';
select * from pg_temp.why('pending');
select rows from jobs.maintain() where task = 'expire';
select * from pg_temp.why('gone');

-- Several at once. Who has expired waits for nothing else any more, whatever state it is in.
select state from jobs.insert('gone scheduled', queue => 'x', scheduled_at => now() + interval '1 hour', expires_at => clock_timestamp() + interval '1 microsecond');
select * from pg_temp.why('gone scheduled');
select state from jobs.insert('gone retryable', queue => 'x');
select (jobs.fail(id, token, 'no route', '1 hour')).state from jobs.fetch('x');
select jobs.update(id, expires_at => clock_timestamp() + interval '1 microsecond') from jobs.jobs where kind = 'gone retryable';
select * from pg_temp.why('gone retryable');
select state from jobs.insert('gone paused', queue => 'x', expires_at => clock_timestamp() + interval '1 microsecond');
select jobs.pause_queue('x') \gset
select * from pg_temp.why('gone paused');
select * from pg_temp.why('gone scheduled');
select * from pg_temp.why('gone retryable');
-- A paused queue that nobody has fetched from; a full one whose only worker is quiet.
select state from jobs.insert('left alone', queue => 'y');
select jobs.pause_queue('y') \gset
select * from pg_temp.why('left alone');
select jobs.configure_queue('z', concurrency => 1), jobs.worker_beat('wz', '{z}', 2);
select count(*) from unnest('{z1,z2}'::text[]) k, lateral jobs.insert(k, queue => 'z', timeout => '-1 second');
select kind from jobs.fetch('z', worker => 'wz', lease => '1 day');
select jobs.quiet_worker('wz') \gset
select * from pg_temp.why('z2');
select pg_temp.ends('z1');
select * from pg_temp.why('z2');
-- However many wait, few are looked at: up to 10,000 in front, none that is behind.
select count(*) from jobs.insert_batch('many', array(select to_jsonb(n) from generate_series(1, 40000) n), queue => 'm');
select count(*) from jobs.insert_batch('sleeping', array(select to_jsonb(n) from generate_series(1, 5000) n), queue => 'm', scheduled_at => now() + interval '1 day');
create function pg_temp.looked_at(job bigint) returns table (reason text, ids int, few boolean) language plpgsql as $$
declare
  before bigint := pg_temp.read();
  pages bigint := pg_temp.pages();
begin
  return query select e.reason, cardinality(e.by_ids), pg_temp.read() - before < 10100 and pg_temp.pages() - pages < 100 from jobs.explain(job) e where e.reason <> 'no worker';
end $$;
select l.* from (select min(id) as first, max(id) as last from jobs.jobs where kind = 'many') m, lateral (values (first), (first + 3), (last)) v(id), lateral pg_temp.looked_at(v.id) l;

-- Bad input; read only.
select pg_temp.try('select jobs.explain(0)');
select pg_temp.try('select jobs.explain(null)');
begin isolation level serializable read only;
select * from pg_temp.why('a');
commit;
