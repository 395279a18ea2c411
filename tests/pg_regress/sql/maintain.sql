-- jobs.maintain: schedule, expire, rescue, prune, claims, statistics. What it does about periodic
-- jobs is in periodic.sql.

-- A row per task; nothing to do.
select task, rows, duration >= '0' as duration, error from jobs.maintain();
--> task|rows|duration|error
--> schedule|0|t|~
--> limits|0|t|~
--> periodic|0|t|~
--> expire|0|t|~
--> rescue|0|t|~
--> prune|0|t|~
--> claims|0|t|~
--> statistics|0|t|~

-- schedule: what is due becomes available, scheduled and retryable, not pending.
select id, state from jobs.insert('scheduled', queue => 's', scheduled_at => now() + interval '1 hour'); --> id|state: 1|scheduled
select id, state from jobs.insert('retryable', queue => 's'); --> id|state: 2|available
select (jobs.fail(id, token, 'x', '30 minutes')).state from jobs.fetch('s'); --> retryable
select id, state from jobs.insert('pending', queue => 's', pending => true, scheduled_at => now() + interval '1 hour'); --> id|state: 3|pending
select id, state from jobs.insert('far', queue => 's', scheduled_at => now() + interval '3 hours'); --> id|state: 4|scheduled
select task, rows from jobs.maintain() where rows > 0; --> none
call pg_temp.later('2 hours');
select kind, state from jobs.jobs order by id; --> kind|state: scheduled|scheduled, retryable|retryable, pending|pending, far|scheduled
select task, rows from jobs.maintain() where rows > 0 or error is not null; --> task|rows: schedule|2
select kind, state, attempt, scheduled_at < now() as due from jobs.jobs order by id;
--> kind|state|attempt|due
--> scheduled|available|0|t
--> retryable|available|1|t
--> pending|pending|0|t
--> far|scheduled|0|f
select kind from jobs.fetch('s', 10); --> retryable, scheduled

-- expire: available, scheduled, pending and retryable ones past expires_at are discarded with an
-- error that says so; running and final ones are not.
select state from jobs.insert('e available', queue => 'e', expires_at => now() + interval '1 hour'); --> available
select state from jobs.insert('e scheduled', queue => 'e', expires_at => now() + interval '1 hour', scheduled_at => now() + interval '5 hours'); --> scheduled
select state from jobs.insert('e pending', queue => 'e', expires_at => now() + interval '1 hour', pending => true); --> pending
select state from jobs.insert('e retryable', queue => 'e1', expires_at => now() + interval '1 hour'); --> available
select (jobs.fail(id, token, 'x', '3 hours')).state from jobs.fetch('e1'); --> retryable
select state from jobs.insert('e running', queue => 'e2', expires_at => now() + interval '1 hour', timeout => '1 day'); --> available
select kind from jobs.fetch('e2'); --> e running
select state from jobs.insert('e completed', queue => 'e3', expires_at => now() + interval '1 hour'); --> available
select jobs.complete(id, token) from jobs.fetch('e3'); --> completed
select state from jobs.insert('e later', queue => 'e', expires_at => now() + interval '3 hours'); --> available
call pg_temp.later('30 minutes');
select task, rows from jobs.maintain() where task = 'expire'; --> task|rows: expire|0
call pg_temp.later('1 hour');
select task, rows from jobs.maintain() where task = 'expire'; --> task|rows: expire|4
select kind, state, attempt, finalized_at is not null as finalized from jobs.jobs where kind ~ '^e ' order by id;
--> kind|state|attempt|finalized
--> e available|discarded|0|t
--> e scheduled|discarded|0|t
--> e pending|discarded|0|t
--> e retryable|discarded|1|t
--> e running|running|1|f
--> e completed|completed|1|t
--> e later|available|0|f
select kind, e.attempt, error ~ 'expired' as says_expired, details ->> 'type' as type from jobs.errors e join jobs.jobs on id = job_id where kind ~ '^e ' order by id, at;
--> kind|attempt|says_expired|type
--> e available|0|t|expired
--> e scheduled|0|t|expired
--> e pending|0|t|expired
--> e retryable|1|f|~
--> e retryable|1|t|expired

-- rescue: an attempt whose lease ended is failed for its worker: retried, discarded or cancelled as
-- by fail.
select count(*) from (values ('r deadline', interval '1 minute', null, 5), ('r lease', '1 day', interval '1 minute', 5), ('r last', '1 minute', null, 1), ('r cancel', '1 minute', null, 5), ('r none', '-1', null, 5), ('r alive', '1 day', null, 5)) v(kind, timeout, lease, attempts),
  lateral jobs.insert(v.kind, queue => v.kind, timeout => v.timeout, max_attempts => v.attempts) i; --> 6
create temp table held as select f.* from (values ('r deadline', null::interval), ('r lease', '1 minute'), ('r last', null), ('r cancel', null), ('r none', null), ('r alive', null)) v(queue, lease), lateral jobs.fetch(v.queue, lease => v.lease) f;
select jobs.cancel(id) from held where kind = 'r cancel'; --> running
select task, rows from jobs.maintain() where task = 'rescue'; --> task|rows: rescue|0
call pg_temp.later('61 seconds');
select task, rows from jobs.maintain() where task = 'rescue'; --> task|rows: rescue|4
select kind, state, attempt, finalized_at is not null as finalized from jobs.jobs where kind ~ '^r ' order by id;
--> kind|state|attempt|finalized
--> r deadline|retryable|1|f
--> r lease|retryable|1|f
--> r last|discarded|1|t
--> r cancel|cancelled|1|t
--> r none|running|1|f
--> r alive|running|1|f
select kind, e.attempt, details ->> 'type' as type, length(error) > 0 as text from jobs.errors e join jobs.jobs on id = job_id where kind ~ '^r ' order by id;
--> kind|attempt|type|text
--> r deadline|1|timeout|t
--> r lease|1|lease_expired|t
--> r last|1|timeout|t
--> r cancel|1|timeout|t
-- The river delay of a first error.
select kind, j.scheduled_at - at between interval '0.9 s' and interval '1.1 s' as by_the_policy from jobs.jobs j join jobs.errors on job_id = id where kind in ('r deadline', 'r lease') order by kind;
--> kind|by_the_policy: r deadline|t, r lease|t
-- Its worker is too late.
select kind, pg_temp.ask(format('select jobs.complete(%s, %s)', id, token)) from held where kind in ('r deadline', 'r lease', 'r last', 'r cancel') order by kind;
--> kind|ask
--> r cancel|55000 lease_lost
--> r deadline|55000 lease_lost
--> r last|55000 lease_lost
--> r lease|55000 lease_lost
-- Without a timeout the lease was an hour.
call pg_temp.later('1 hour');
select task, rows from jobs.maintain() where task = 'rescue'; --> task|rows: rescue|1
select kind, state from jobs.jobs where kind in ('r none', 'r alive') order by kind; --> kind|state: r alive|running, r none|retryable
-- The error before this one counts: (1 + 1)^4 seconds.
select jobs.retry(id) is not null as retried from held where kind = 'r deadline'; --> t
select attempt from jobs.fetch('r deadline'); --> 2
call pg_temp.later('2 minutes');
select rows from jobs.maintain() where task = 'rescue'; --> 1
select state, j.scheduled_at - max(at) between interval '14.4 s' and interval '17.6 s' as by_the_policy from jobs.jobs j join jobs.errors on job_id = id where kind = 'r deadline' group by state, j.scheduled_at;
--> state|by_the_policy: retryable|t

-- prune: completed and cancelled after 24 hours, discarded after 7 days, with their errors.
create function pg_temp.fresh() returns void language sql as $$ set client_min_messages = warning; drop extension jobs cascade; create extension jobs; $$;
select pg_temp.fresh(); --> ~
select count(*) from (values ('completed'), ('cancelled'), ('discarded'), ('available')) v(kind), lateral jobs.insert(v.kind, queue => v.kind, unique_opts => '{"by_kind": true}') i; --> 4
select jobs.complete(id, token) from jobs.fetch('completed'); --> completed
select jobs.cancel(id) from jobs.jobs where kind = 'cancelled'; --> cancelled
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('discarded'); --> discarded
call pg_temp.later('23 hours 59 minutes');
select task, rows from jobs.maintain() where task = 'prune'; --> task|rows: prune|0
call pg_temp.later('2 minutes');
select task, rows from jobs.maintain() where task = 'prune'; --> task|rows: prune|2
select kind from jobs.jobs order by kind; --> available, discarded
call pg_temp.later('6 days');
select task, rows from jobs.maintain() where task = 'prune'; --> task|rows: prune|1
select kind from jobs.jobs order by kind; --> available
select count(*) from jobs.errors; --> 0
select pg_temp.ask('select jobs.delete(1)') as pruned; --> P0002 The job was never inserted into this database, or it was deleted or pruned.

-- claims: keys that no job needs. One that still has a job stays, and the job stays a duplicate.
select jobs.delete(id) from jobs.jobs where kind = 'available'; --> available
select task, rows from jobs.maintain() where task in ('prune', 'claims'); --> task|rows: prune|0, claims|1
create function pg_temp.rows() returns table (name text, rows bigint) language plpgsql as $$
begin
  for name in select relname from pg_class where relnamespace = 'jobs'::regnamespace and relkind in ('r', 'p') and relname not in ('maintenance_task', 'kept_count', 'audit_record') loop
    execute format('select count(*) from jobs.%I', name) into rows;
    if rows > 0 then return next; end if;
  end loop;
end $$;
select * from pg_temp.rows(); --> none
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true, "by_state": ["running"]}', queue => 'c'); --> f
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true, "by_state": ["running"]}', queue => 'c'); --> f
select jobs.delete(min(id)) from jobs.jobs; --> available
select rows, error from jobs.maintain() where task = 'claims'; --> rows|error: 1|~
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true}'); --> t
-- A delete that is rolled back leaves nothing to do.
begin;
select jobs.delete(max(id)) from jobs.jobs; --> available
rollback;
select rows, error from jobs.maintain() where task = 'claims'; --> rows|error: 0|~
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true}'); --> t

-- It is part of the caller's transaction.
begin;
call pg_temp.later('2 hours');
select error from jobs.maintain() where error is not null; --> none
rollback;
-- A failing task is reported and does not stop the others.
select state from jobs.insert('due', queue => 'f', scheduled_at => now() + interval '1 hour'); --> scheduled
select state from jobs.insert('expiring', queue => 'f', expires_at => now() + interval '1 hour'); --> available
call pg_temp.later('2 hours');
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused %', 'here'; end $$;
create trigger refuse before delete on jobs.scheduled for each row execute function pg_temp.refuse();
select task, rows, error from jobs.maintain() where task in ('schedule', 'expire');
--> task|rows|error
--> schedule|0|job 7: refused here
--> expire|1|~
drop trigger refuse on jobs.scheduled;
select task, rows, error from jobs.maintain() where task in ('schedule', 'expire');
--> task|rows|error
--> schedule|1|~
--> expire|0|~
-- 10,000 and more than one batch.
select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[10500]), queue => 'many', scheduled_at => now() + interval '1 hour'); --> 10500
call pg_temp.later('2 hours');
select rows, error from jobs.maintain() where task = 'schedule'; --> rows|error: 10500|~
select count(*) from jobs.fetch('many', 10000); --> 10000
