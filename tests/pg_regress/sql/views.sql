-- jobs.jobs, jobs.queues, jobs.errors.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select * from jobs.jobs;
select * from jobs.queues;
select * from jobs.errors;
-- jobs.jobs has what fetch returns, and state, finalized_at, cancel_requested_at, output, worker, expires_at, timeout.
select name as missing from unnest('{id,token,attempt,kind,args,meta,queue,priority,tags,max_attempts,created_at,scheduled_at,attempted_at,lease_expires_at,deadline_at,state,finalized_at,cancel_requested_at,output,worker,expires_at,timeout}'::text[]) name
 where not exists (select from pg_attribute where attrelid = 'jobs.jobs'::regclass and attname = name);
select name as missing from unnest('{job_id,attempt,at,error,details}'::text[]) name where not exists (select from pg_attribute where attrelid = 'jobs.errors'::regclass and attname = name);

-- A job of each state in one queue, and a few in others.
select count(*) from (values ('available', 'q'), ('scheduled', 'q'), ('pending', 'q'), ('running', 'r'), ('retryable', 't'), ('completed', 'c'), ('cancelled', 'q'), ('discarded', 'd')) v(kind, queue),
  lateral jobs.insert(v.kind, queue => v.queue, pending => v.kind = 'pending', scheduled_at => case when v.kind = 'scheduled' then timestamptz '2999-01-01 00:00Z' end, expires_at => '3000-01-01 00:00Z') i;
select jobs.cancel(id) from jobs.jobs where kind = 'cancelled';
select kind from jobs.fetch('r', worker => 'w1');
select (jobs.fail(id, token, 'first', '1 hour', details => '{"code": 1}')).state from jobs.fetch('t', worker => 'w2');
select jobs.complete(id, token, '{"ok": true}') from jobs.fetch('c', worker => 'w3');
select (jobs.fail(id, token, 'last', retryable => false)).state from jobs.fetch('d', worker => 'w4');
-- Every job is one row, in the state that its kind says.
select count(*), count(distinct id), count(*) filter (where kind = state::text) as right_state from jobs.jobs;
select state, attempt, worker, token is not null as token, attempted_at is not null as attempted, lease_expires_at is not null as leased, deadline_at is not null as deadline, finalized_at is not null as finalized, output, expires_at is not null as expires,
       scheduled_at is not null as due from jobs.jobs order by state;
select s, (select count(*) from jobs.jobs where state = s) as jobs from unnest(enum_range(null::jobs.state)) s order by s;
select * from (select queue, available, scheduled, pending, running, retryable, completed, cancelled, discarded, oldest_available_at = (select created_at from jobs.jobs where kind = 'available') as oldest from jobs.queues) x order by queue;
select kind, e.attempt, error, details, at between created_at and clock_timestamp() as at from jobs.errors e join jobs.jobs j on j.id = e.job_id order by e.job_id;
-- Every failed attempt is there.
select jobs.retry(id) from jobs.jobs where kind = 'retryable';
select (jobs.fail(id, token, 'second', '1 hour')).state from jobs.fetch('t');
select error from jobs.errors where job_id = 5 order by at desc;
-- A queue whose last job is gone is gone.
select jobs.delete(id) from jobs.jobs where queue = 'c';
select count(*) from jobs.queues where queue = 'c';
-- What is fetched is what is shown.
create temp table fetched as select * from jobs.fetch('q');
select count(*) as differing from fetched f join jobs.jobs j using (id)
 where (f.token, f.attempt, f.kind, f.args, f.meta, f.queue, f.priority, f.tags, f.max_attempts, f.created_at, f.scheduled_at, f.attempted_at, f.lease_expires_at, f.deadline_at)
   is distinct from (j.token, j.attempt, j.kind, j.args, j.meta, j.queue, j.priority, j.tags, j.max_attempts, j.created_at, j.scheduled_at, j.attempted_at, j.lease_expires_at, j.deadline_at);
-- They cannot be written.
select pg_temp.code(s) from (values ($$delete from jobs.jobs$$), ($$update jobs.jobs set priority = 1$$), ($$insert into jobs.queues (queue) values ('x')$$)) v(s);
-- A read-only transaction can read them.
begin read only;
select count(*) > 0 as readable from jobs.jobs, jobs.queues, jobs.errors;
commit;
-- Each object of the schema explains itself.
select proname as silent from pg_proc where pronamespace = 'jobs'::regnamespace and obj_description(oid, 'pg_proc') is null;
select relname as silent from pg_class where relnamespace = 'jobs'::regnamespace and relkind in ('r', 'v', 'S', 'p') and obj_description(oid, 'pg_class') is null;
select obj_description('jobs'::regnamespace, 'pg_namespace') is not null as schema, obj_description('jobs.state'::regtype, 'pg_type') is not null as state, (select obj_description(oid, 'pg_extension') from pg_extension where extname = 'jobs') is not null as extension;
