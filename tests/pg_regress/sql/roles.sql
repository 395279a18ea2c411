-- jobs.grant_application and jobs.grant_operator: what each may, tried, and what it sees.

create role jobs_roles_application;
create role jobs_roles_operator;
create role jobs_roles_nobody;
select jobs.grant_application('jobs_roles_application', reason => 'the shop'), jobs.grant_operator('jobs_roles_operator', 'on call');
-- Of the views they see each column. (access has whose each object is, and tries all of them.)
select r as role, count(*) filter (where not has_column_privilege('jobs_roles_' || r, a.attrelid, a.attnum, 'select')) as unseen, count(*) filter (where has_column_privilege('jobs_roles_' || r, a.attrelid, a.attnum, 'insert, update')) as written
  from unnest('{application,operator}'::text[]) r, pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = 'jobs'::regnamespace and c.relkind = 'v' and a.attnum > 0 group by 1 order by 1;
--> role|unseen|written
--> application|0|0
--> operator|0|0
-- A program that is trusted does it all: defines, inserts, works, looks, manages by id.
set role jobs_roles_application;
select jobs.define_kind('mail', queue => 'mail'), jobs.configure_queue('mail', concurrency => 5);
select outcome from jobs.schedule('nightly', '@daily', 'report', '{"secret": 1}', queue => 'reports'); --> created
select jobs.run_periodic('nightly') > 0 as run; --> t
select id from jobs.insert('mail', '{"to": "somebody"}', '{"by_args": true}') \gset
select args, queue from jobs.jobs where id = :id; --> args|queue: {"to": "somebody"}|mail
select holder = :id as holder from jobs.explain_unique('mail', '{"to": "somebody"}', '{"by_args": true}'); --> t
select token from jobs.fetch('mail') \gset
select (jobs.fail(:id, :token, 'no route', '1 hour')).state; --> retryable
select jobs.retry(:id), jobs.update(:id, priority => 2), jobs.cancel(:id, 'no use'), jobs.delete(:id); --> retry|update|cancel|delete: available|available|cancelled|cancelled
reset role;
-- An operator sees it all, pauses and resumes, cancels, retries, activates, many at once, and
-- makes, changes and deletes no job.
select id from jobs.insert('mail', '{"to": "another"}', pending => true) \gset
select count(*) from jobs.insert_batch('mail', array['1', '2']::jsonb[], queue => 'many'); --> 2
set role jobs_roles_operator;
select args from jobs.jobs where id = :id; --> {"to": "another"}
select args from jobs.periodic; --> {"secret": 1}
select jobs.activate(:id), jobs.cancel(:id), jobs.retry(:id); --> activate|cancel|retry: available|cancelled|available
select jobs.cancel_many(queue => 'many') as cancelled, jobs.retry_many(queue => 'many') as retried; --> cancelled|retried: 2|2
select jobs.pause_queue('mail', 'down'), jobs.pause_periodic('nightly', 'down');
select paused_by, pause_reason from jobs.queues where paused union all select paused_by, pause_reason from jobs.periodic; --> paused_by|pause_reason: jobs_roles_operator|down, jobs_roles_operator|down
select jobs.resume_queue('mail'), jobs.resume_periodic('nightly');
select action from jobs.audit where role = 'jobs_roles_operator' and reason = 'down' order by at; --> pause_queue, pause_periodic
reset role;
-- Both see what jobs carry, whoever has written it.
select id from jobs.insert('carry', '{"a": 1}', queue => 'carried', meta => '{"m": 2}') \gset
select token from jobs.fetch('carried') \gset
select (jobs.heartbeat(:id, :token, progress => '{"p": 3}')).cancel_requested; --> f
set role jobs_roles_application;
select args, meta, progress from jobs.jobs where id = :id; --> args|meta|progress: {"a": 1}|{"m": 2}|{"p": 3}
select outcome from jobs.schedule('carrier', '@daily', 'carry', '{"a": 1}', meta => '{"m": 2}'); --> created
set role jobs_roles_operator;
select args, meta, progress from jobs.jobs where id = :id; --> args|meta|progress: {"a": 1}|{"m": 2}|{"p": 3}
select args, meta from jobs.periodic where name = 'carrier'; --> args|meta: {"a": 1}|{"m": 2}
reset role;
select jobs.complete(:id, :token, '{"o": 4}'); --> completed
select count(*) from jobs.insert('carry', queue => 'carried'); --> 1
select id, token from jobs.fetch('carried') \gset failed_
select (jobs.fail(:failed_id, :failed_token, 'no route', retryable => false, details => '{"d": 5}')).state; --> discarded
set role jobs_roles_application;
select args, meta from jobs.periodic where name = 'carrier'; --> args|meta: {"a": 1}|{"m": 2}
select args, meta, output from jobs.jobs where id = :id; --> args|meta|output: {"a": 1}|{"m": 2}|{"o": 4}
select state, output, error from jobs.results(array[:id, :failed_id]);
--> state|output|error
--> completed|{"o": 4}|~
--> discarded|~|no route
select error, details from jobs.errors where job_id = :failed_id; --> error|details: no route|{"d": 5}
set role jobs_roles_operator;
select args, meta, output from jobs.jobs where id = :id; --> args|meta|output: {"a": 1}|{"m": 2}|{"o": 4}
select state, output, error from jobs.results(array[:id, :failed_id]);
--> state|output|error
--> completed|{"o": 4}|~
--> discarded|~|no route
select error, details from jobs.errors where job_id = :failed_id; --> error|details: no route|{"d": 5}
-- What each manages is in the audit under its name; each function of its own was called.
set role jobs_roles_application;
select jobs.activate(id) from jobs.insert('carry', queue => 'carried', pending => true); --> available
select jobs.undefine_kind('mail'), jobs.reset_queue('mail'), jobs.unschedule('carrier'); --> undefine_kind|reset_queue|unschedule: t|t|t
select jobs.define_limit('l', '{"by_kind": true}', concurrency => 1), jobs.override_limit('l', '{"type": "k"}', 2), jobs.pause_limit('l'), jobs.resume_limit('l'), jobs.drop_limit('l'), jobs.order_queue('ordered', '{"by_kind": true}', true), jobs.unblock('ordered', '{"type": "k"}') \gset
select jobs.define_limit('m', concurrency => 1) \gset
set role jobs_roles_operator;
select jobs.quiet_worker('w'), jobs.stop_worker('w'), jobs.resume_worker('w'), jobs.pause_limit('m'), jobs.resume_limit('m'), jobs.unblock('ordered', '{"type": "k"}') as unblocked;
--> quiet_worker|stop_worker|resume_worker|pause_limit|resume_limit|unblocked: |||||~
reset role;
select r as role, proname as missing from unnest('{application,operator}'::text[]) r, pg_proc
 where pronamespace = 'jobs'::regnamespace and 'reason' = any (proargnames[1:pronargs]) and has_function_privilege('jobs_roles_' || r, pg_proc.oid, 'execute')
   and not exists (select from jobs.audit a where a.role = 'jobs_roles_' || r and a.action = proname); --> role|missing: application|unblock, operator|unblock
-- What was refused or has failed is not.
select count(*) as n from jobs.audit \gset
set role jobs_roles_application;
select pg_temp.code('select jobs.' || call) from unnest(array['cancel(-1)', 'retry(null)', 'define_kind('''')', 'configure_queue(''q'', 0)', 'unschedule(null)', 'update(1, priority => 99999)', 'pause_queue(''q'')']) call;
--> P0002, 22004, 22023, 22023, 22004, 22023, 42501
select count(*) - :n as more from jobs.audit; --> 0
set role jobs_roles_operator;
select pg_temp.code('select jobs.' || call) from unnest(array['cancel(-1)', 'retry_many()', 'pause_queue('''')', 'pause_queue(''q''), 1 / 0', 'quiet_worker('''')', 'pause_periodic(''nosuch'')', 'delete(1)']) call;
--> P0002, 22023, 22023, 22012, 22023, P0002, 42501
select count(*) - :n as more from jobs.audit; --> 0
-- Neither can be rid of it.
set role jobs_roles_application;
select pg_temp.code('drop table jobs.audit_record'); --> 42501
set role jobs_roles_operator;
select pg_temp.code('drop table jobs.audit_record'); --> 42501
reset role;
select jobs.revoke('jobs_roles_application'), jobs.revoke('jobs_roles_operator');
drop role jobs_roles_application, jobs_roles_operator, jobs_roles_nobody;
