\set ECHO none
-- jobs.grant_application and jobs.grant_operator: what each may, tried, and what it sees.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

create role jobs_roles_application;
create role jobs_roles_operator;
create role jobs_roles_nobody;
select jobs.grant_application('jobs_roles_application', reason => 'the shop'), jobs.grant_operator('jobs_roles_operator', 'on call');
-- Of the views they see each column. (access has whose each object is, and tries all of them.)
select r as role, count(*) filter (where not has_column_privilege('jobs_roles_' || r, a.attrelid, a.attnum, 'select')) as unseen, count(*) filter (where has_column_privilege('jobs_roles_' || r, a.attrelid, a.attnum, 'insert, update')) as written
  from unnest('{application,operator}'::text[]) r, pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = 'jobs'::regnamespace and c.relkind = 'v' and a.attnum > 0 group by 1 order by 1;
-- A program that is trusted does it all: defines, inserts, works, looks, manages by id.
set role jobs_roles_application;
select jobs.define_kind('mail', queue => 'mail'), jobs.configure_queue('mail', concurrency => 5);
select outcome from jobs.schedule('nightly', '@daily', 'report', '{"secret": 1}', queue => 'reports');
select jobs.run_periodic('nightly') > 0 as run;
select id from jobs.insert('mail', '{"to": "somebody"}', '{"by_args": true}') \gset
select args, queue from jobs.jobs where id = :id;
select holder = :id as holder from jobs.explain_unique('mail', '{"to": "somebody"}', '{"by_args": true}');
select token from jobs.fetch('mail') \gset
select (jobs.fail(:id, :token, 'no route', '1 hour')).state;
select jobs.retry(:id), jobs.update(:id, priority => 2), jobs.cancel(:id, 'no use'), jobs.delete(:id);
reset role;
-- An operator sees it all, pauses and resumes, cancels, retries, activates, many at once, and
-- makes, changes and deletes no job.
select id from jobs.insert('mail', '{"to": "another"}', pending => true) \gset
select count(*) from jobs.insert_batch('mail', array['1', '2']::jsonb[], queue => 'many');
set role jobs_roles_operator;
select args from jobs.jobs where id = :id;
select args from jobs.periodic;
select jobs.activate(:id), jobs.cancel(:id), jobs.retry(:id);
select jobs.cancel_many(queue => 'many') as cancelled, jobs.retry_many(queue => 'many') as retried;
select jobs.pause_queue('mail', 'down'), jobs.pause_periodic('nightly', 'down');
select paused_by, pause_reason from jobs.queues where paused union all select paused_by, pause_reason from jobs.periodic;
select jobs.resume_queue('mail'), jobs.resume_periodic('nightly');
select action from jobs.audit where role = 'jobs_roles_operator' and reason = 'down' order by at;
reset role;
-- Both see what jobs carry, whoever has written it.
select id from jobs.insert('carry', '{"a": 1}', queue => 'carried', meta => '{"m": 2}') \gset
select token from jobs.fetch('carried') \gset
select (jobs.heartbeat(:id, :token, progress => '{"p": 3}')).cancel_requested;
set role jobs_roles_application;
select args, meta, progress from jobs.jobs where id = :id;
select outcome from jobs.schedule('carrier', '@daily', 'carry', '{"a": 1}', meta => '{"m": 2}');
set role jobs_roles_operator;
select args, meta, progress from jobs.jobs where id = :id;
select args, meta from jobs.periodic where name = 'carrier';
reset role;
select jobs.complete(:id, :token, '{"o": 4}');
select count(*) from jobs.insert('carry', queue => 'carried');
select id, token from jobs.fetch('carried') \gset failed_
select (jobs.fail(:failed_id, :failed_token, 'no route', retryable => false, details => '{"d": 5}')).state;
set role jobs_roles_application;
select args, meta from jobs.periodic where name = 'carrier';
select args, meta, output from jobs.jobs where id = :id;
select state, output, error from jobs.results(array[:id, :failed_id]);
select error, details from jobs.errors where job_id = :failed_id;
set role jobs_roles_operator;
select args, meta, output from jobs.jobs where id = :id;
select state, output, error from jobs.results(array[:id, :failed_id]);
select error, details from jobs.errors where job_id = :failed_id;
-- What each manages is in the audit under its name; each function of its own was called.
set role jobs_roles_application;
select jobs.activate(id) from jobs.insert('carry', queue => 'carried', pending => true);
select jobs.undefine_kind('mail'), jobs.reset_queue('mail'), jobs.unschedule('carrier');
select jobs.define_limit('l', '{"by_kind": true}', concurrency => 1), jobs.override_limit('l', '{"type": "k"}', 2), jobs.pause_limit('l'), jobs.resume_limit('l'), jobs.drop_limit('l'), jobs.order_queue('ordered', '{"by_kind": true}', true), jobs.unblock('ordered', '{"type": "k"}') \gset
select jobs.define_limit('m', concurrency => 1) \gset
set role jobs_roles_operator;
select jobs.quiet_worker('w'), jobs.stop_worker('w'), jobs.resume_worker('w'), jobs.pause_limit('m'), jobs.resume_limit('m'), jobs.unblock('ordered', '{"type": "k"}') as unblocked;
reset role;
select r as role, proname as missing from unnest('{application,operator}'::text[]) r, pg_proc
 where pronamespace = 'jobs'::regnamespace and 'reason' = any (proargnames[1:pronargs]) and has_function_privilege('jobs_roles_' || r, pg_proc.oid, 'execute')
   and not exists (select from jobs.audit a where a.role = 'jobs_roles_' || r and a.action = proname);
-- What was refused or has failed is not.
select count(*) as n from jobs.audit \gset
set role jobs_roles_application;
select pg_temp.code('select jobs.' || call) from unnest(array['cancel(-1)', 'retry(null)', 'define_kind('''')', 'configure_queue(''q'', 0)', 'unschedule(null)', 'update(1, priority => 99999)', 'pause_queue(''q'')']) call;
select count(*) - :n as more from jobs.audit;
set role jobs_roles_operator;
select pg_temp.code('select jobs.' || call) from unnest(array['cancel(-1)', 'retry_many()', 'pause_queue('''')', 'pause_queue(''q''), 1 / 0', 'quiet_worker('''')', 'pause_periodic(''nosuch'')', 'delete(1)']) call;
select count(*) - :n as more from jobs.audit;
-- Neither can be rid of it.
set role jobs_roles_application;
select pg_temp.code('drop table jobs.audit_record');
set role jobs_roles_operator;
select pg_temp.code('drop table jobs.audit_record');
reset role;
select jobs.revoke('jobs_roles_application'), jobs.revoke('jobs_roles_operator');
drop role jobs_roles_application, jobs_roles_operator, jobs_roles_nobody;
