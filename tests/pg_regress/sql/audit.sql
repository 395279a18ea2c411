-- jobs.audit: a row for each managing call that changed something, of whatever role.

create role jobs_audit;
create role jobs_audit_other;
set application_name = 'console';
select jobs.grant_admin('jobs_audit', 'on call'), jobs.grant_admin('jobs_audit', 'has it already');
set role jobs_audit;
-- Kinds and queues. Each is done twice: the second call changes nothing.
select jobs.define_kind('k', priority => 3, retry => '{"strategy": "linear"}', reason => 'faster') from generate_series(1, 2); --> , 
select jobs.undefine_kind('k', 'as before'), jobs.undefine_kind('k', 'again'); --> undefine_kind|undefine_kind: t|f
select jobs.pause_queue('q', 'deploy'), jobs.pause_queue('q', 'again'), jobs.resume_queue('q', 'deployed'), jobs.resume_queue('q', 'again');
select jobs.configure_queue('q', 5, retention_completed => '1 hour', reason => 'overload'), jobs.configure_queue('q', 5, retention_completed => '1 hour', reason => 'again');
select jobs.reset_queue('q', 'over'), jobs.reset_queue('q', 'again'); --> reset_queue|reset_queue: t|f
-- Limits.
select jobs.define_limit('l', '{"by_args": ["t"]}', concurrency => 2, reason => n::text), jobs.override_limit('l', '"acme"', 5, reason => n::text) from generate_series(1, 2) n;
--> define_limit|override_limit: |, |
select jobs.pause_limit('l', '"acme"', 'unpaid'), jobs.pause_limit('l', '"acme"', 'again'), jobs.resume_limit('l', '"acme"', 'paid'), jobs.resume_limit('l', '"acme"', 'again'), jobs.drop_limit('l', 'over'), jobs.drop_limit('l', 'again');
--> pause_limit|pause_limit|resume_limit|resume_limit|drop_limit|drop_limit: ||||t|f
-- Orders.
select jobs.order_queue('o', '{"by_kind": true}', true, reason => n::text) from generate_series(1, 2) n; --> , 
select jobs.unblock('o', '{"type": "k"}', 'nothing blocks'), jobs.order_queue('o', null, reason => 'over'), jobs.order_queue('o', null, reason => 'again'); --> unblock|order_queue|order_queue: ~||
-- Workers.
select jobs.quiet_worker('w', 'hot'), jobs.quiet_worker('w', 'again'), jobs.stop_worker('w', 'hotter'), jobs.stop_worker('w', 'again'), jobs.resume_worker('w', 'cool'), jobs.resume_worker('w', 'again');
-- Periodic jobs, and maintenance. What jobs carry is not repeated.
select jobs.schedule('nightly', '@daily', 'k', '{"secret": 1}', meta => '{"secret": 2}', tags => '{a,b c}', reason => 'wanted') is not null as scheduled; --> t
select outcome from jobs.schedule('nightly', '@daily', 'k', '{"secret": 1}', meta => '{"secret": 2}', tags => '{a,b c}', reason => 'again'); --> unchanged
select jobs.pause_periodic('nightly', 'broken'), jobs.pause_periodic('nightly', 'again'), jobs.resume_periodic('nightly', 'mended'), jobs.resume_periodic('nightly', 'again');
select outcome from jobs.schedule('hourly', '@hourly', 'hourly', queue => 'h', unique_opts => '{"by_kind": true}'); --> created
select jobs.run_periodic('hourly', 'now') = jobs.run_periodic('hourly', 'again') as same; --> t
select outcome from jobs.schedule('urgent', '@yearly', 'urgent', queue => 'h', unique_opts => '{"by_kind": true, "on_conflict": {"update": {"available": ["priority"]}}}'); --> created
select jobs.run_periodic('urgent', 'now') = jobs.run_periodic('urgent', 'updated') as same; --> t
select outcome from jobs.schedule('urgent', '@yearly', 'urgent', queue => 'h', unique_opts => '{"by_kind": true, "on_conflict": "replace"}'); --> changed
select jobs.run_periodic('urgent', 'replaced') > 0 as another; --> t
select jobs.unschedule('nightly', 'not wanted'), jobs.unschedule('nightly', 'again'); --> unschedule|unschedule: t|f
select jobs.pause_maintenance('upgrade'), jobs.pause_maintenance('again'), jobs.resume_maintenance('upgraded'), jobs.resume_maintenance('again');
-- A job.
select id from jobs.insert('k', pending => true) \gset job_
select jobs.activate(:job_id, 'ready'), pg_temp.code('select jobs.activate(' || :job_id || ', ''again'')'); --> activate|code: available|55000
select jobs.update(:job_id, '{"secret": 3}', priority => 7, scheduled_at => '2999-01-01Z', tags => '{x}', meta => '{"secret": 4}', timeout => '1 hour', reason => 'later'); --> scheduled
select jobs.update(:job_id, reason => 'nothing'); --> scheduled
-- Values that it has already change nothing; another scale of a number does.
select jobs.update(:job_id, '{"secret": 3}', priority => 7, scheduled_at => '2999-01-01Z', tags => '{x}', meta => '{"secret": 4}', timeout => '1 hour', reason => 'again'); --> scheduled
select jobs.update(:job_id, '{"secret": 3.0}', reason => 'more exactly'); --> scheduled
select jobs.retry(:job_id, reason => 'now'), jobs.retry(:job_id, reason => 'again'); --> retry|retry: available|available
select jobs.cancel(:job_id, 'no use', force => true), jobs.cancel(:job_id, 'again'); --> cancel|cancel: cancelled|cancelled
select jobs.delete(:job_id, 'tidy'), pg_temp.code('select jobs.delete(' || :job_id || ', ''again'')'); --> delete|code: cancelled|P0002
-- A running job that was asked to stop is asked for another reason, or nothing changes.
select count(*) from jobs.insert('k', queue => 'r'); --> 1
select id from jobs.fetch('r') \gset running_
select jobs.cancel(:running_id, 'no use'), jobs.cancel(:running_id, 'no use'), jobs.cancel(:running_id), jobs.cancel_many(queue => 'r', reason => 'again');
--> cancel|cancel|cancel|cancel_many: running|running|running|0
select jobs.cancel(:running_id, 'wrong'), jobs.cancel(:running_id, 'wrong'), jobs.cancel(:running_id, force => true); --> cancel|cancel|cancel: running|running|cancelled
select jobs.delete(:running_id, 'tidy'); --> cancelled
-- Many jobs.
select count(*) from jobs.insert_batch('k', array['1', '2', '3']::jsonb[], queue => 'b'); --> 3
select jobs.cancel_many(queue => 'b', reason => 'no use'), jobs.cancel_many(queue => 'b', reason => 'again'); --> cancel_many|cancel_many: 3|0
select distinct cancel_reason from jobs.jobs where queue = 'b'; --> no use
select jobs.retry_many('b', max_jobs => 2, reset => true, reason => 'some of them'), jobs.retry_many('b', error_like => '%', reason => 'none'); --> retry_many|retry_many: 2|0
select jobs.delete_many(kind => 'k', states => '{available,cancelled}', older_than => '0', reason => 'tidy'), jobs.delete_many(kind => 'k', reason => 'again'); --> delete_many|delete_many: 3|0
-- What fails or is rolled back is not there.
select pg_temp.code('select jobs.pause_queue('''')'), pg_temp.code('select jobs.cancel(999)'), pg_temp.code('select jobs.retry_many()'); --> code|code|code: 22023|P0002|22023
begin;
select jobs.pause_queue('rolled back');
rollback;
begin;
savepoint a;
select jobs.pause_queue('rolled back');
rollback to a;
commit;
-- Nor is what producers and workers do.
select count(*) from jobs.insert('w', queue => 'w', unique_opts => '{"by_kind": true, "on_conflict": "replace"}'), generate_series(1, 2); --> 2
select id, token from jobs.fetch('w') \gset
select cancel_requested from jobs.heartbeat(:id, :token); --> f
select jobs.release(:id, :token); --> available
select id, token from jobs.fetch('w') \gset
select state from jobs.fail(:id, :token, 'e', '0'); --> available
select id, token from jobs.fetch('w') \gset
select jobs.complete(:id, :token); --> completed
select count(*) > 0 as maintained from jobs.maintain(); --> t
-- Through another role's function the session's role is told.
reset role;
create function pg_temp.pause() returns void language sql security definer set search_path = pg_catalog as $$ select jobs.pause_queue('by a function') $$;
set role jobs_audit;
select pg_temp.pause(); --> ~
-- Those that grant.
reset role;
select jobs.grant_producer('jobs_audit_other', 'p'), jobs.grant_worker('jobs_audit_other', 'w'), jobs.grant_viewer('jobs_audit_other', 'v'), jobs.grant_viewer('jobs_audit_other', 'again');
select jobs.grant_operator('jobs_audit_other', 'o'), jobs.grant_application('jobs_audit_other', 'a');
select jobs.revoke('jobs_audit_other', 'left'), jobs.revoke('jobs_audit_other', 'again'), pg_temp.code('select jobs.grant_admin(''nobody there'')'); --> revoke|revoke|code: ||42704
select case role when session_user then 'owner' else role end as role, action, case target when :'job_id' then 'job' when :'running_id' then 'running' else target end as target, arguments, jobs, reason from jobs.audit_record order by ctid;
--> role|action|target|arguments|jobs|reason
--> owner|grant_admin|jobs_audit|{}|~|on call
--> jobs_audit|define_kind|k|{"retry": {"strategy": "linear"}, "priority": 3}|~|faster
--> jobs_audit|undefine_kind|k|{}|~|as before
--> jobs_audit|pause_queue|q|{}|~|deploy
--> jobs_audit|resume_queue|q|{}|~|deployed
--> jobs_audit|configure_queue|q|{"concurrency": 5, "retention_completed": "01:00:00"}|~|overload
--> jobs_audit|reset_queue|q|{}|~|over
--> jobs_audit|define_limit|l|{"by": {"by_args": ["t"]}, "per_cell": false, "concurrency": 2}|~|1
--> jobs_audit|override_limit|l|{"key": "acme", "concurrency": 5}|~|1
--> jobs_audit|pause_limit|l|{"key": "acme"}|~|unpaid
--> jobs_audit|resume_limit|l|{"key": "acme"}|~|paid
--> jobs_audit|drop_limit|l|{}|~|over
--> jobs_audit|order_queue|o|{"by": {"by_kind": true}, "fair": false, "strict": true, "on_discard": "continue"}|~|1
--> jobs_audit|order_queue|o|{"fair": false, "strict": false, "on_discard": "continue"}|~|over
--> jobs_audit|quiet_worker|w|{}|~|hot
--> jobs_audit|stop_worker|w|{}|~|hotter
--> jobs_audit|resume_worker|w|{}|~|cool
--> jobs_audit|schedule|nightly|{"args": true, "cron": "@daily", "kind": "k", "meta": true, "tags": ["a", "b c"], "missed": "once", "time_zone": "UTC"}|~|wanted
--> jobs_audit|pause_periodic|nightly|{}|~|broken
--> jobs_audit|resume_periodic|nightly|{}|~|mended
--> jobs_audit|schedule|hourly|{"args": true, "cron": "@hourly", "kind": "hourly", "queue": "h", "missed": "once", "time_zone": "UTC", "unique_opts": {"by_kind": true}}|~|~
--> jobs_audit|run_periodic|hourly|{}|1|now
--> jobs_audit|schedule|urgent|{"args": true, "cron": "@yearly", "kind": "urgent", "queue": "h", "missed": "once", "time_zone": "UTC", "unique_opts": {"by_kind": true, "on_conflict": {"update": {"available": ["priority"]}}}}|~|~
--> jobs_audit|run_periodic|urgent|{}|1|now
--> jobs_audit|run_periodic|urgent|{}|1|updated
--> jobs_audit|schedule|urgent|{"args": true, "cron": "@yearly", "kind": "urgent", "queue": "h", "missed": "once", "time_zone": "UTC", "unique_opts": {"by_kind": true, "on_conflict": "replace"}}|~|~
--> jobs_audit|run_periodic|urgent|{}|1|replaced
--> jobs_audit|unschedule|nightly|{}|~|not wanted
--> jobs_audit|pause_maintenance|~|{}|~|upgrade
--> jobs_audit|resume_maintenance|~|{}|~|upgraded
--> jobs_audit|activate|job|{}|1|ready
--> jobs_audit|update|job|{"args": true, "meta": true, "tags": ["x"], "timeout": "01:00:00", "priority": 7, "scheduled_at": "2999-01-01T00:00:00+00:00"}|1|later
--> jobs_audit|update|job|{"args": true}|1|more exactly
--> jobs_audit|retry|job|{"reset": false}|1|now
--> jobs_audit|cancel|job|{"force": true}|1|no use
--> jobs_audit|delete|job|{}|1|tidy
--> jobs_audit|cancel|running|{"force": false}|1|no use
--> jobs_audit|cancel|running|{"force": false}|1|wrong
--> jobs_audit|cancel|running|{"force": true}|1|~
--> jobs_audit|delete|running|{}|1|tidy
--> jobs_audit|cancel_many|~|{"queue": "b", "max_jobs": 10000}|3|no use
--> jobs_audit|retry_many|~|{"queue": "b", "reset": true, "max_jobs": 2}|2|some of them
--> jobs_audit|delete_many|~|{"kind": "k", "states": ["available", "cancelled"], "max_jobs": 10000, "older_than": "00:00:00"}|3|tidy
--> jobs_audit|pause_queue|by a function|{}|~|~
--> owner|grant_producer|jobs_audit_other|{}|~|p
--> owner|grant_worker|jobs_audit_other|{}|~|w
--> owner|grant_viewer|jobs_audit_other|{}|~|v
--> owner|grant_operator|jobs_audit_other|{}|~|o
--> owner|grant_application|jobs_audit_other|{}|~|a
--> owner|revoke|jobs_audit_other|{}|~|left
select distinct login_role = session_user as logged_in, application_name, at between now() - interval '1 minute' and clock_timestamp() as just_now from jobs.audit;
--> logged_in|application_name|just_now: t|console|t
-- Every function that takes a reason has been called, with those of cells (cells.sql).
begin;
select jobs.set_cell(0), jobs.place_queue('*', 0), jobs.spread_queue('spread', '{"by_args": ["t"]}', '{0}'), jobs.unplace_queue('spread'), jobs.set_cell_address(0, 'host=this'), jobs.retire_cell('host=new'), jobs.reinstate_cell() \gset
select proname as missing from pg_proc where pronamespace = 'jobs'::regnamespace and 'reason' = any (proargnames[1:pronargs]) and proname not in (select action from jobs.audit); --> unblock
rollback;
-- Another scale of a number or another form of a duration is a change; the same again is none.
select jobs.define_kind('exact', timeout => t, unique_opts => u) from (values (1, interval '1 day', '{"by_period": 60}'::jsonb), (2, '24:00', '{"by_period": 60}'), (3, '24:00', '{"by_period": 60.0}'), (4, '24:00', '{"by_period": 60.0}')) v(n, t, u) order by n;
--> , , , 
select jobs.configure_queue('exact', rate => 5, rate_period => p) from (values (1, interval '1 day'), (2, '24:00'), (3, '24:00')) v(n, p) order by n; --> , , 
select (jobs.schedule('exact', '@daily', 'k', a, timeout => t)).outcome from (values (1, '{"n": 1}'::jsonb, interval '1 day'), (2, '{"n": 1.0}', '1 day'), (3, '{"n": 1.0}', '24:00'), (4, '{"n": 1.0}', '24:00')) v(n, a, t) order by n;
--> created, changed, changed, unchanged
select k.timeout, k.unique_opts, q.rate_period, p.args, p.timeout from jobs.kinds k, jobs.queues q, jobs.periodic p where k.kind = 'exact' and q.queue = 'exact' and p.name = 'exact';
--> timeout|unique_opts|rate_period|args|timeout
--> 24:00:00|{"by_period": 60.0}|24:00:00|{"n": 1.0}|24:00:00
select action, count(*) from jobs.audit where target = 'exact' group by action order by action; --> action|count: configure_queue|2, define_kind|3, schedule|3
-- Whatever the session's formats and path are, times are ISO 8601.
set datestyle = 'German';
set timezone = 'Asia/Kolkata';
select jobs.update(id, scheduled_at => '2998-01-01 00:00+00') from jobs.insert('k'); --> scheduled
reset timezone;
set datestyle = 'ISO';
select arguments from jobs.audit where action = 'update' order by at desc limit 1; --> {"scheduled_at": "2998-01-01T05:30:00+05:30"}
-- Those it is about cannot change it; who sees the views sees it.
set role jobs_audit;
select pg_temp.code(s) from unnest(array['insert into jobs.audit_record default values', 'update jobs.audit_record set role = null', 'delete from jobs.audit_record', 'truncate jobs.audit_record', 'select from jobs.audit_record', 'drop table jobs.audit_record',
  'insert into jobs.audit select * from jobs.audit', 'update jobs.audit set role = null', 'delete from jobs.audit', 'drop view jobs.audit']) s;
--> 42501, 42501, 42501, 42501, 42501, 42501, 0A000, 42501, 42501, 42501
reset role;
select jobs.grant_viewer('jobs_audit_other') \gset
set role jobs_audit_other;
select count(*) > 20 as seen, count(*) filter (where arguments::text ~ 'secret') as secrets from jobs.audit; --> seen|secrets: t|0
reset role;
-- It is kept for jobs.retention_audit, by the time of each row.
select count(*) as n from jobs.audit \gset
call pg_temp.later('89 days');
select jobs.pause_queue('newer');
select rows >= 0 as pruned from jobs.maintain() where task = 'prune'; --> t
select count(*) - :n as more from jobs.audit; --> 1
call pg_temp.later('2 days');
select rows >= :n as pruned from jobs.maintain() where task = 'prune'; --> t
select action, target from jobs.audit; --> action|target: pause_queue|newer
-- The latest are found without reading the others.
set enable_sort = off;
explain (costs off) select * from jobs.audit order by at desc limit 10; --> Limit,   ->  Index Scan Backward using audit_record_by_age on audit_record a
reset enable_sort;
select jobs.revoke('jobs_audit'), jobs.revoke('jobs_audit_other');
drop role jobs_audit, jobs_audit_other;
