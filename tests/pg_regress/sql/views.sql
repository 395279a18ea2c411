-- jobs.jobs, jobs.queues, jobs.errors.

select * from jobs.jobs; --> none
select * from jobs.queues; --> none
select * from jobs.errors; --> none
-- jobs.jobs has what fetch returns, and state, finalized_at, cancel_requested_at, output, worker,
-- expires_at, timeout; and its retry policy, its key, its latest error, its flow.
select name as missing from unnest('{id,token,attempt,kind,args,meta,queue,priority,tags,max_attempts,created_at,scheduled_at,attempted_at,lease_expires_at,deadline_at,state,finalized_at,cancel_requested_at,output,worker,expires_at,timeout,retry,unique_key,last_error,last_error_at,flow_id,step}'::text[]) name
 where not exists (select from pg_attribute where attrelid = 'jobs.jobs'::regclass and attname = name); --> none
select name as missing from unnest('{job_id,attempt,at,error,details,worker,job_kind}'::text[]) name where not exists (select from pg_attribute where attrelid = 'jobs.errors'::regclass and attname = name);
--> none

-- A job of each state in one queue, and a few in others.
select count(*) from (values ('available', 'q'), ('scheduled', 'q'), ('pending', 'q'), ('running', 'r'), ('retryable', 't'), ('completed', 'c'), ('cancelled', 'q'), ('discarded', 'd')) v(kind, queue),
  lateral jobs.insert(v.kind, queue => v.queue, pending => v.kind = 'pending', scheduled_at => case when v.kind = 'scheduled' then timestamptz '2999-01-01 00:00Z' end, expires_at => '3000-01-01 00:00Z') i;
--> 8
select jobs.cancel(id) from jobs.jobs where kind = 'cancelled'; --> cancelled
select kind from jobs.fetch('r', worker => 'w1'); --> running
select (jobs.fail(id, token, 'first', '1 hour', details => '{"code": 1}')).state from jobs.fetch('t', worker => 'w2'); --> retryable
select jobs.complete(id, token, '{"ok": true}') from jobs.fetch('c', worker => 'w3'); --> completed
select (jobs.fail(id, token, 'last', retryable => false)).state from jobs.fetch('d', worker => 'w4'); --> discarded
-- Every job is one row, in the state that its kind says.
select count(*), count(distinct id), count(*) filter (where kind = state::text) as right_state from jobs.jobs; --> count|count|right_state: 8|8|8
select state, attempt, worker, token is not null as token, attempted_at is not null as attempted, lease_expires_at is not null as leased, deadline_at is not null as deadline, finalized_at is not null as finalized, output, expires_at is not null as expires,
       scheduled_at is not null as due from jobs.jobs order by state;
--> state|attempt|worker|token|attempted|leased|deadline|finalized|output|expires|due
--> available|0|~|f|f|f|f|f|~|t|t
--> scheduled|0|~|f|f|f|f|f|~|t|t
--> pending|0|~|f|f|f|f|f|~|t|t
--> running|1|w1|t|t|t|t|f|~|t|t
--> retryable|1|~|f|f|f|f|f|~|t|t
--> completed|1|w3|t|t|f|f|t|{"ok": true}|t|t
--> cancelled|0|~|f|f|f|f|t|~|t|t
--> discarded|1|w4|t|t|f|f|t|~|t|t
select s, (select count(*) from jobs.jobs where state = s) as jobs from unnest(enum_range(null::jobs.state)) s order by s;
--> s|jobs
--> available|1
--> scheduled|1
--> pending|1
--> running|1
--> retryable|1
--> completed|1
--> cancelled|1
--> discarded|1
select * from (select queue, available, scheduled, pending, running, retryable, completed, cancelled, discarded, oldest_available_at = (select created_at from jobs.jobs where kind = 'available') as oldest from jobs.queues) x order by queue;
--> queue|available|scheduled|pending|running|retryable|completed|cancelled|discarded|oldest
--> c|0|0|0|0|0|1|0|0|~
--> d|0|0|0|0|0|0|0|1|~
--> q|1|1|1|0|0|0|1|0|t
--> r|0|0|0|1|0|0|0|0|~
--> t|0|0|0|0|1|0|0|0|~
select kind, e.job_kind, e.attempt, error, details, at between created_at and clock_timestamp() as at from jobs.errors e join jobs.jobs j on j.id = e.job_id order by e.job_id;
--> kind|job_kind|attempt|error|details|at
--> retryable|retryable|1|first|{"code": 1}|t
--> discarded|discarded|1|last|~|t
-- Every failed attempt is there.
select jobs.retry(id) from jobs.jobs where kind = 'retryable'; --> available
select (jobs.fail(id, token, 'second', '1 hour')).state from jobs.fetch('t'); --> retryable
select error from jobs.errors where job_id = 5 order by at desc; --> second, first
-- The latest one is shown with its job, also after the job got over it, beside the policy that it
-- goes by.
select state from jobs.insert('over it', queue => 'o', retry => '{"strategy": "constant", "initial": 60}'); --> available
select (jobs.fail(id, token, 'overcome', '0')).state from jobs.fetch('o', worker => 'w5'); --> available
select jobs.complete(id, token) from jobs.fetch('o', worker => 'w6'); --> completed
select kind, state, retry, last_error, last_error_at = (select max(at) from jobs.errors where job_id = j.id) as its_time, flow_id, step from jobs.jobs j where kind in ('available', 'retryable', 'discarded', 'over it') order by kind;
--> kind|state|retry|last_error|its_time|flow_id|step
--> available|available|"river"|~|~|~|~
--> discarded|discarded|"river"|last|t|~|~
--> over it|completed|{"initial": 60, "strategy": "constant"}|overcome|t|~|~
--> retryable|retryable|"river"|second|t|~|~
-- Whose attempt it was: a worker's that said so, one's that was lost, one's that took too long, and
-- nobody's.
select count(*) from jobs.insert('lost', queue => 'l') a, jobs.insert('slow', queue => 's', timeout => '1 us') b, jobs.insert('expired', queue => 'e', expires_at => '2000-01-01 00:00Z') c; --> 1
select count(*) from jobs.fetch('l', worker => 'w7', lease => '1 us') a, jobs.fetch('s', worker => 'w8') b; --> 1
select task, rows from jobs.maintain() where task in ('expire', 'rescue') order by task; --> task|rows: expire|1, rescue|2
select kind, e.worker, e.details ->> 'type' as type from jobs.errors e join jobs.jobs j on j.id = e.job_id where kind in ('discarded', 'over it', 'lost', 'slow', 'expired') order by kind;
--> kind|worker|type
--> discarded|w4|~
--> expired|~|expired
--> lost|w7|lease_expired
--> over it|w5|~
--> slow|w8|timeout
-- A queue whose last job is gone is gone.
select jobs.delete(id) from jobs.jobs where queue = 'c'; --> completed
select count(*) from jobs.queues where queue = 'c'; --> 0
-- What is fetched is what is shown.
create temp table fetched as select * from jobs.fetch('q');
select count(*) as differing from fetched f join jobs.jobs j using (id)
 where (f.token, f.attempt, f.kind, f.args, f.meta, f.queue, f.priority, f.tags, f.max_attempts, f.created_at, f.scheduled_at, f.attempted_at, f.lease_expires_at, f.deadline_at)
   is distinct from (j.token, j.attempt, j.kind, j.args, j.meta, j.queue, j.priority, j.tags, j.max_attempts, j.created_at, j.scheduled_at, j.attempted_at, j.lease_expires_at, j.deadline_at); --> 0
-- They cannot be written.
select pg_temp.code(s) from (values ($$delete from jobs.jobs$$), ($$update jobs.jobs set priority = 1$$), ($$insert into jobs.queues (queue) values ('x')$$)) v(s); --> 55000, 55000, 55000
-- A read-only transaction can read them.
begin read only;
select count(*) > 0 as readable from jobs.jobs, jobs.queues, jobs.errors; --> t
commit;
-- Each object of the extension explains itself, and so does each column of its views. From 18 on
-- the types of rows and their arrays are objects of it, too.
create temp view silent as
select pg_describe_object(d.classid, d.objid, d.objsubid) as silent from pg_depend d
 where d.refclassid = 'pg_extension'::regclass and d.refobjid = (select oid from pg_extension where extname = 'jobs') and d.deptype = 'e'
   and coalesce(obj_description(d.objid, d.classid::regclass::text), '') = ''
   and not exists (select from pg_type t where d.classid = 'pg_type'::regclass and t.oid = d.objid
                    and (t.typelem <> 0 or exists (select from pg_class c where c.oid = t.typrelid and c.relkind <> 'c')))
 union all
select pg_describe_object('pg_class'::regclass, a.attrelid, a.attnum) from pg_attribute a join pg_class c on c.oid = a.attrelid
 where c.relnamespace = 'jobs'::regnamespace and c.relkind in ('v', 'm') and a.attnum > 0 and not a.attisdropped and coalesce(col_description(a.attrelid, a.attnum), '') = '';
select * from silent; --> none
select (select obj_description(oid, 'pg_extension') from pg_extension where extname = 'jobs') is not null as extension; --> t
-- What is in the schema belongs to the extension, so that nothing escapes the check.
select relname as stranger from pg_class c where relnamespace = 'jobs'::regnamespace and relkind not in ('i', 't', 'c') and not exists (select from pg_depend where objid = c.oid and deptype = 'e');
--> none
select typname as stranger from pg_type t where typnamespace = 'jobs'::regnamespace and typcategory <> 'A'
   and not exists (select from pg_class c where c.oid = t.typrelid and c.relkind <> 'c') and not exists (select from pg_depend where objid = t.oid and deptype = 'e'); --> none
select proname as stranger from pg_proc p where pronamespace = 'jobs'::regnamespace and not exists (select from pg_depend where objid = p.oid and deptype = 'e'); --> none
-- Control: what is silent is found.
begin;
comment on schema jobs is null;
comment on type jobs.state is null;
comment on type jobs.fetched_job is null;
comment on sequence jobs.job_seq is null;
comment on table jobs.job is null;
comment on view jobs.queues is null;
comment on column jobs.queues.paused is null;
comment on function jobs.metrics() is null;
comment on procedure jobs.wait(text, interval) is null;
select * from silent order by silent collate "C";
--> column paused of view jobs.queues
--> function jobs.metrics()
--> function jobs.wait(text,interval)
--> schema jobs
--> sequence jobs.job_seq
--> table jobs.job
--> type jobs.fetched_job
--> type jobs.state
--> view jobs.queues
rollback;
