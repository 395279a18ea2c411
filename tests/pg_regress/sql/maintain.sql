\set ECHO none
-- jobs.maintain: schedule, expire, rescue, prune, claims, statistics. What it does about periodic
-- jobs is in periodic.sql.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- A row per task; nothing to do.
select task, rows, duration >= '0' as duration, error from jobs.maintain();

-- schedule: what is due becomes available, scheduled and retryable, not pending.
select id, state from jobs.insert('scheduled', queue => 's', scheduled_at => now() + interval '1 hour');
select id, state from jobs.insert('retryable', queue => 's');
select (jobs.fail(id, token, 'x', '30 minutes')).state from jobs.fetch('s');
select id, state from jobs.insert('pending', queue => 's', pending => true, scheduled_at => now() + interval '1 hour');
select id, state from jobs.insert('far', queue => 's', scheduled_at => now() + interval '3 hours');
select task, rows from jobs.maintain() where rows > 0;
call pg_temp.later('2 hours');
select kind, state from jobs.jobs order by id;
select task, rows from jobs.maintain() where rows > 0 or error is not null;
select kind, state, attempt, scheduled_at < now() as due from jobs.jobs order by id;
select kind from jobs.fetch('s', 10);

-- expire: available, scheduled, pending and retryable ones past expires_at are discarded with an
-- error that says so; running and final ones are not.
select state from jobs.insert('e available', queue => 'e', expires_at => now() + interval '1 hour');
select state from jobs.insert('e scheduled', queue => 'e', expires_at => now() + interval '1 hour', scheduled_at => now() + interval '5 hours');
select state from jobs.insert('e pending', queue => 'e', expires_at => now() + interval '1 hour', pending => true);
select state from jobs.insert('e retryable', queue => 'e1', expires_at => now() + interval '1 hour');
select (jobs.fail(id, token, 'x', '3 hours')).state from jobs.fetch('e1');
select state from jobs.insert('e running', queue => 'e2', expires_at => now() + interval '1 hour', timeout => '1 day');
select kind from jobs.fetch('e2');
select state from jobs.insert('e completed', queue => 'e3', expires_at => now() + interval '1 hour');
select jobs.complete(id, token) from jobs.fetch('e3');
select state from jobs.insert('e later', queue => 'e', expires_at => now() + interval '3 hours');
call pg_temp.later('30 minutes');
select task, rows from jobs.maintain() where task = 'expire';
call pg_temp.later('1 hour');
select task, rows from jobs.maintain() where task = 'expire';
select kind, state, attempt, finalized_at is not null as finalized from jobs.jobs where kind ~ '^e ' order by id;
select kind, e.attempt, error ~ 'expired' as says_expired, details ->> 'type' as type from jobs.errors e join jobs.jobs on id = job_id where kind ~ '^e ' order by id, at;

-- rescue: an attempt whose lease ended is failed for its worker: retried, discarded or cancelled as
-- by fail.
select count(*) from (values ('r deadline', interval '1 minute', null, 5), ('r lease', '1 day', interval '1 minute', 5), ('r last', '1 minute', null, 1), ('r cancel', '1 minute', null, 5), ('r none', '-1', null, 5), ('r alive', '1 day', null, 5)) v(kind, timeout, lease, attempts),
  lateral jobs.insert(v.kind, queue => v.kind, timeout => v.timeout, max_attempts => v.attempts) i;
create temp table held as select f.* from (values ('r deadline', null::interval), ('r lease', '1 minute'), ('r last', null), ('r cancel', null), ('r none', null), ('r alive', null)) v(queue, lease), lateral jobs.fetch(v.queue, lease => v.lease) f;
select jobs.cancel(id) from held where kind = 'r cancel';
select task, rows from jobs.maintain() where task = 'rescue';
call pg_temp.later('61 seconds');
select task, rows from jobs.maintain() where task = 'rescue';
select kind, state, attempt, finalized_at is not null as finalized from jobs.jobs where kind ~ '^r ' order by id;
select kind, e.attempt, details ->> 'type' as type, length(error) > 0 as text from jobs.errors e join jobs.jobs on id = job_id where kind ~ '^r ' order by id;
-- The river delay of a first error.
select kind, j.scheduled_at - at between interval '0.9 s' and interval '1.1 s' as by_the_policy from jobs.jobs j join jobs.errors on job_id = id where kind in ('r deadline', 'r lease') order by kind;
-- Its worker is too late.
select kind, pg_temp.ask(format('select jobs.complete(%s, %s)', id, token)) from held where kind in ('r deadline', 'r lease', 'r last', 'r cancel') order by kind;
-- Without a timeout the lease was an hour.
call pg_temp.later('1 hour');
select task, rows from jobs.maintain() where task = 'rescue';
select kind, state from jobs.jobs where kind in ('r none', 'r alive') order by kind;
-- The error before this one counts: (1 + 1)^4 seconds.
select jobs.retry(id) is not null as retried from held where kind = 'r deadline';
select attempt from jobs.fetch('r deadline');
call pg_temp.later('2 minutes');
select rows from jobs.maintain() where task = 'rescue';
select state, j.scheduled_at - max(at) between interval '14.4 s' and interval '17.6 s' as by_the_policy from jobs.jobs j join jobs.errors on job_id = id where kind = 'r deadline' group by state, j.scheduled_at;

-- prune: completed and cancelled after 24 hours, discarded after 7 days, with their errors.
create function pg_temp.fresh() returns void language sql as $$ set client_min_messages = warning; drop extension jobs cascade; create extension jobs; $$;
select pg_temp.fresh();
select count(*) from (values ('completed'), ('cancelled'), ('discarded'), ('available')) v(kind), lateral jobs.insert(v.kind, queue => v.kind, unique_opts => '{"by_kind": true}') i;
select jobs.complete(id, token) from jobs.fetch('completed');
select jobs.cancel(id) from jobs.jobs where kind = 'cancelled';
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('discarded');
call pg_temp.later('23 hours 59 minutes');
select task, rows from jobs.maintain() where task = 'prune';
call pg_temp.later('2 minutes');
select task, rows from jobs.maintain() where task = 'prune';
select kind from jobs.jobs order by kind;
call pg_temp.later('6 days');
select task, rows from jobs.maintain() where task = 'prune';
select kind from jobs.jobs order by kind;
select count(*) from jobs.errors;
select pg_temp.ask('select jobs.delete(1)') as pruned;

-- claims: keys that no job needs. One that still has a job stays, and the job stays a duplicate.
select jobs.delete(id) from jobs.jobs where kind = 'available';
select task, rows from jobs.maintain() where task in ('prune', 'claims');
create function pg_temp.rows() returns table (name text, rows bigint) language plpgsql as $$
begin
  for name in select relname from pg_class where relnamespace = 'jobs'::regnamespace and relkind in ('r', 'p') and relname not in ('maintenance_task', 'kept_count', 'audit_record') loop
    execute format('select count(*) from jobs.%I', name) into rows;
    if rows > 0 then return next; end if;
  end loop;
end $$;
select * from pg_temp.rows();
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true, "by_state": ["running"]}', queue => 'c');
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true, "by_state": ["running"]}', queue => 'c');
select jobs.delete(min(id)) from jobs.jobs;
select rows, error from jobs.maintain() where task = 'claims';
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true}');
-- A delete that is rolled back leaves nothing to do.
begin;
select jobs.delete(max(id)) from jobs.jobs;
rollback;
select rows, error from jobs.maintain() where task = 'claims';
select unique_skipped_as_duplicate as skipped from jobs.insert('available', unique_opts => '{"by_kind": true}');

-- It is part of the caller's transaction.
begin;
call pg_temp.later('2 hours');
select error from jobs.maintain() where error is not null;
rollback;
-- A failing task is reported and does not stop the others.
select state from jobs.insert('due', queue => 'f', scheduled_at => now() + interval '1 hour');
select state from jobs.insert('expiring', queue => 'f', expires_at => now() + interval '1 hour');
call pg_temp.later('2 hours');
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused %', 'here'; end $$;
create trigger refuse before delete on jobs.scheduled for each row execute function pg_temp.refuse();
select task, rows, error from jobs.maintain() where task in ('schedule', 'expire');
drop trigger refuse on jobs.scheduled;
select task, rows, error from jobs.maintain() where task in ('schedule', 'expire');
-- 10,000 and more than one batch.
select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[10500]), queue => 'many', scheduled_at => now() + interval '1 hour');
call pg_temp.later('2 hours');
select rows, error from jobs.maintain() where task = 'schedule';
select count(*) from jobs.fetch('many', 10000);
