-- What operators look at: jobs.queues with long tables, jobs.workers, jobs.settings, jobs.health(),
-- jobs.metrics().

-- Short tables are counted right then.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[30]), queue => 'a'); --> 30
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[20]), queue => 'b', scheduled_at => '2999-01-01 00:00Z'); --> 20
select count(*) from (select jobs.complete(id, token) from jobs.fetch('a', 10)) x; --> 10
select count(*) from jobs.fetch('a', 5, worker => 'w2'); --> 5
select count(*) from jobs.fetch('a', 2, worker => 'w1'); --> 2
select jobs.pause_queue('empty') \gset
select queue, available, scheduled, pending, running, retryable, completed, cancelled, discarded, estimated, counted_at, paused from jobs.queues order by queue;
--> queue|available|scheduled|pending|running|retryable|completed|cancelled|discarded|estimated|counted_at|paused
--> a|13|0|0|7|0|10|0|0|{}|~|f
--> b|0|20|0|0|0|0|0|0|{}|~|f
--> empty|0|0|0|0|0|0|0|0|{}|~|t
-- jobs.queues is what jobs.jobs counts, no more and no less.
create function pg_temp.counted() returns table (queue text, state text, n bigint) language sql as $$
  select queue, state::text, count(*) from jobs.jobs group by 1, 2 $$;
create function pg_temp.shown() returns table (queue text, state text, n bigint) language sql as $$
  select q.queue, s.state, s.n from jobs.queues q, lateral (values ('available', q.available), ('scheduled', q.scheduled), ('pending', q.pending), ('running', q.running),
    ('retryable', q.retryable), ('completed', q.completed), ('cancelled', q.cancelled), ('discarded', q.discarded)) s(state, n) where s.n <> 0 $$;
create function pg_temp.measured() returns table (queue text, state text, n bigint) language sql as $$
  select labels ->> 'queue', labels ->> 'state', value::bigint from jobs.metrics() where metric = 'jobs_queue_jobs' and value <> 0 $$;
create function pg_temp.differing() returns table (who text, queue text, state text, n bigint) language sql as $$
  (select 'not shown', c.* from pg_temp.counted() c except select 'not shown', s.* from pg_temp.shown() s)
  union all (select 'not there', s.* from pg_temp.shown() s except select 'not there', c.* from pg_temp.counted() c)
  union all (select 'not measured', c.* from pg_temp.counted() c except select 'not measured', m.* from pg_temp.measured() m)
  union all (select 'measured in vain', m.* from pg_temp.measured() m except select 'measured in vain', c.* from pg_temp.counted() c) $$;
select count(*) from pg_temp.counted(); --> 4
select * from pg_temp.differing(); --> none

-- Long ones as maintenance has counted them: the others go on to be exact.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[10000]), queue => 'long'); --> 10000
-- Never counted yet: at least as many.
select queue, available, running, completed, estimated, counted_at from jobs.queues where queue in ('a', 'long') order by queue;
--> queue|available|running|completed|estimated|counted_at
--> a|13|7|10|{available}|~
--> long|9987|0|0|{available}|~
select rows, error from jobs.maintain() where task = 'statistics'; --> rows|error: 2|~
select queue, available, running, completed, estimated, counted_at between now() - interval '1 minute' and clock_timestamp() as counted from jobs.queues order by queue;
--> queue|available|running|completed|estimated|counted
--> a|13|7|10|{available}|t
--> b|0|0|0|{available}|t
--> empty|0|0|0|{}|~
--> long|10000|0|0|{available}|t
select * from pg_temp.differing(); --> none
-- Not counted again at once, whatever has changed; the server's statistics say what has.
select count(*) from jobs.insert_batch('k', array_fill('1'::jsonb, array[2]), queue => 'long'); --> 2
select pg_stat_force_next_flush() \gset
select rows, error from jobs.maintain() where task = 'statistics'; --> rows|error: 0|~
select available, running from jobs.queues where queue = 'long'; --> available|running: 10000|0
select * from pg_temp.differing() order by 1;
--> who|queue|state|n
--> measured in vain|long|available|10000
--> not measured|long|available|10002
--> not shown|long|available|10002
--> not there|long|available|10000
-- But when some time has passed.
update jobs.kept_count set counted_at = counted_at - interval '1 hour' where counted_at is not null returning place; --> ready
select rows, error from jobs.maintain() where task = 'statistics'; --> rows|error: 2|~
select available, running, counted_at > now() - interval '1 minute' as counted from jobs.queues where queue = 'long'; --> available|running|counted: 10002|0|t
select * from pg_temp.differing(); --> none
-- And not at all while nothing has changed, however long ago that was.
update jobs.kept_count set counted_at = counted_at - interval '1 hour' where counted_at is not null returning place; --> ready
select rows, error from jobs.maintain() where task = 'statistics'; --> rows|error: 0|~
select place, counted_at > now() - interval '1 minute' as counted from jobs.kept_count where counted_at is not null; --> place|counted: ready|f
-- A fetch changes what is exact and, as long as it is not counted again, not what is kept.
select count(*) from jobs.fetch('a', 1, worker => 'w1'); --> 1
select available, running, estimated from jobs.queues where queue = 'a'; --> available|running|estimated: 13|8|{available}
-- Short again: counted right then, and nothing is kept.
select jobs.cancel_many(queue => 'long'); --> 10000
select count(*) from jobs.kept_count where counted_at is not null; --> 1
select rows > 0 as some, error from jobs.maintain() where task = 'statistics'; --> some|error: t|~
select place from jobs.kept_count where counted_at is not null; --> finished
select queue, available, cancelled, estimated, counted_at is not null as counted from jobs.queues where queue in ('a', 'long') order by queue;
--> queue|available|cancelled|estimated|counted
--> a|12|0|{completed,cancelled,discarded}|t
--> long|2|10000|{completed,cancelled,discarded}|t

-- The oldest available job: of all lanes, by when it became available.
select count(*) from jobs.insert('old', queue => 'lanes', priority => 3); --> 1
call pg_temp.later('1 hour');
select count(*) from jobs.insert('young', queue => 'lanes', priority => 1); --> 1
select oldest_available_at = (select created_at from jobs.jobs where kind = 'old') as oldest from jobs.queues where queue = 'lanes'; --> t

-- Who holds what.
select worker, running, cardinality(job_ids) as ids, queues, kinds, oldest_attempted_at < now() as since, next_lease_expires_at is not null as lease, expired, cancel_requested from jobs.workers order by worker;
--> worker|running|ids|queues|kinds|since|lease|expired|cancel_requested
--> w1|3|3|{a}|{k}|t|t|3|0
--> w2|5|5|{a}|{k}|t|t|5|0
select jobs.cancel(job_ids[1]) from jobs.workers where worker = 'w1'; --> running
select worker, cancel_requested from jobs.workers order by worker; --> worker|cancel_requested: w1|1, w2|0
select bool_and(j.worker = w.worker) as right_worker from jobs.workers w, unnest(w.job_ids) id join jobs.jobs j using (id); --> t
call pg_temp.later('1 day');
select worker, running, expired from jobs.workers order by worker;
--> worker|running|expired
--> w1|3|3
--> w2|5|5

-- Settings: the value in force and where it comes from.
select name, value, default_value, unit, source, context from jobs.settings where name in ('jobs.enabled', 'jobs.interval', 'jobs.retention_discarded') order by name;
--> name|value|default_value|unit|source|context
--> jobs.enabled|off|on|~|configuration file|sighup
--> jobs.interval|1s|1000|ms|default|sighup
--> jobs.retention_discarded|7d|604800|s|default|sighup
select count(*) = (select count(*) from pg_settings where name like 'jobs.%') as all, count(*) filter (where description <> '') = count(*) as described from jobs.settings; --> all|described: t|t
select source_file ~ 'postgresql.conf$' as file, source_line > 0 as line from jobs.settings where name = 'jobs.enabled'; --> file|line: t|t

-- Health. Findings have a severity and a hint, the worst first.
create function pg_temp.findings(wanted text default '.') returns table (severity text, finding text, message text, hint boolean) language sql as $$
  select severity, finding, regexp_replace(message, '\m\d+ (s|min|h)( \d+ (s|min))?\M', 'SPAN'), length(hint) > 0 from jobs.health() where finding ~ wanted and finding !~ 'snapshot' $$;
-- No session but this test maintains this database.
select * from pg_temp.findings('worker_not');
--> severity|finding|message|hint
--> critical|worker_not_running|the background worker is disabled by jobs.enabled|t
select count(*) from jobs.maintain() where error is not null; --> 0
select * from pg_temp.findings('worker_not'); --> none
-- It is a finding once the last call was 10 minutes ago.
call pg_temp.later('9 minutes');
select * from pg_temp.findings('worker_not'); --> none
call pg_temp.later('2 minutes');
select * from pg_temp.findings('worker_not');
--> severity|finding|message|hint
--> critical|worker_not_running|the background worker is disabled by jobs.enabled|t
select count(*) from jobs.maintain() where error is not null; --> 0
select jobs.delete(id) is not null from jobs.jobs where queue = 'lanes'; --> t, t
select count(*) from (select jobs.delete(id) from jobs.jobs where state in ('available', 'scheduled', 'retryable', 'completed', 'cancelled')) x; --> 42
select * from pg_temp.findings(); --> none
-- oldest_available: from 5 minutes on, critical from an hour on, not of paused queues.
select count(*) from unnest('{q1,q2,q3}'::text[]) q, lateral jobs.insert('x', queue => q); --> 3
call pg_temp.later('4 minutes');
select * from pg_temp.findings('oldest'); --> none
call pg_temp.later('2 minutes');
select jobs.pause_queue('q3') \gset
select count(*) from jobs.fetch('q2'); --> 1
select * from pg_temp.findings('oldest');
--> severity|finding|message|hint
--> warning|oldest_available|the oldest available job of queue "q1" has been waiting for SPAN|t
select count(*) from jobs.health(oldest_available => '10 minutes') where finding = 'oldest_available'; --> 0
select count(*) from jobs.health(oldest_available => null) where finding = 'oldest_available'; --> 0
select severity from jobs.health(oldest_available => '10 seconds') where finding = 'oldest_available'; --> critical
call pg_temp.later('1 hour');
select severity from jobs.health() where finding = 'oldest_available'; --> critical
-- expired_leases: no session has rescued it.
select * from pg_temp.findings('lease');
--> severity|finding|message|hint
--> warning|expired_leases|the lease of 1 running job expired more than a minute ago without a rescue|t
select count(*) from jobs.maintain() where error is not null; --> 0
select * from pg_temp.findings('lease'); --> none
-- discarded within the last hour.
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('q1'); --> discarded
select * from pg_temp.findings('discarded'); --> severity|finding|message|hint: warning|discarded|1 job was discarded in the last hour|t
call pg_temp.later('61 minutes');
select * from pg_temp.findings('discarded'); --> none
-- bloat: by the server's statistics.
select count(*) from (select jobs.delete(id) from jobs.insert_batch('k', array_fill('1'::jsonb, array[300]), queue => 'bloat')) x; --> 300
select pg_stat_force_next_flush() \gset
select severity, finding, message ~ '^table jobs.ready has [\d,]{3,} dead rows and \d live rows?$' as says from jobs.health(dead_rows => 200) where message ~ 'jobs.ready';
--> severity|finding|says: warning|bloat|t
select count(*) from jobs.health(dead_rows => null) where finding = 'bloat'; --> 0
vacuum jobs.ready;
select count(*) from jobs.health(dead_rows => 200) where message ~ 'jobs.ready'; --> 0
-- The worst first, whatever it is about: the same in the order in which they are looked for would
-- be warning, info, critical.
select jobs.pause_maintenance() \gset
set application_name = 'pg_restore';
select count(*) from jobs.insert('x', queue => 'q4'); --> 1
call pg_temp.later('2 hours');
select severity, finding from jobs.health() where finding <> 'old_snapshot';
--> severity|finding
--> critical|oldest_available
--> warning|maintenance_paused
--> warning|queue_paused
--> warning|no_worker
--> info|restoring
reset application_name;
select jobs.resume_maintenance() \gset
select severity, finding from jobs.health() where finding <> 'old_snapshot';
--> severity|finding
--> critical|worker_not_running
--> critical|oldest_available
--> warning|queue_paused
--> warning|no_worker

-- Metrics: names and labels are those of Prometheus, each once; what they say is what the views
-- say.
select count(*) > 30 as some, count(*) = count(distinct (metric, labels)) as once, bool_and(metric ~ '^jobs_[a-z_]+$' and type in ('gauge', 'counter') and (type = 'counter') = (metric ~ '_(total|bucket|sum|count)$')) as named,
       bool_and(value is not null and value >= 0) as valued, bool_and(length(help) > 0) as explained from jobs.metrics(); --> some|once|named|valued|explained: t|t|t|t|t
select metric from jobs.metrics() group by 1 having count(distinct (type, help)) > 1; --> none
select distinct metric, type, (select array_agg(k order by k) from jsonb_object_keys(labels) k) as labels from jobs.metrics() order by 1;
--> metric|type|labels
--> jobs_expired_leases|gauge|~
--> jobs_failed_attempts_total|counter|~
--> jobs_fetched_total|counter|~
--> jobs_finished_total|counter|~
--> jobs_health_findings|gauge|{severity}
--> jobs_inserted_total|counter|~
--> jobs_kind_cancelled_total|counter|{kind,queue}
--> jobs_kind_completed_total|counter|{kind,queue}
--> jobs_kind_discarded_total|counter|{kind,queue}
--> jobs_kind_failed_attempts_total|counter|{kind,queue}
--> jobs_kind_inserted_total|counter|{kind,queue}
--> jobs_kind_started_total|counter|{kind,queue}
--> jobs_known_workers|gauge|{status}
--> jobs_maintenance_failures|gauge|{task}
--> jobs_maintenance_failures_total|counter|{task}
--> jobs_maintenance_last_duration_seconds|gauge|{task}
--> jobs_maintenance_last_run_timestamp_seconds|gauge|{task}
--> jobs_maintenance_paused|gauge|~
--> jobs_maintenance_rows_total|counter|{task}
--> jobs_queue_jobs|gauge|{queue,state}
--> jobs_queue_oldest_available_age_seconds|gauge|{queue}
--> jobs_queue_paused|gauge|{queue}
--> jobs_run_seconds_bucket|counter|{kind,le,queue}
--> jobs_run_seconds_count|counter|{kind,queue}
--> jobs_run_seconds_sum|counter|{kind,queue}
--> jobs_table_bytes|gauge|{table}
--> jobs_table_dead_rows|gauge|{table}
--> jobs_unique_claims|gauge|~
--> jobs_wait_seconds_bucket|counter|{kind,le,queue}
--> jobs_wait_seconds_count|counter|{kind,queue}
--> jobs_wait_seconds_sum|counter|{kind,queue}
--> jobs_workers|gauge|~
select * from pg_temp.counted() order by 1, 2;
--> queue|state|n
--> q1|discarded|1
--> q2|retryable|1
--> q3|available|1
--> q4|available|1
select * from pg_temp.differing(); --> none
select value from jobs.metrics() where metric = 'jobs_workers'; --> 0
select value > 0 as paused from jobs.metrics() where metric = 'jobs_queue_paused' and labels ->> 'queue' = 'q3'; --> t
-- Limits, but none of their keys.
select jobs.define_limit('total', queues => '{l}', concurrency => 1), jobs.define_limit('tenants', '{"by_args": ["t"]}', '{l}', concurrency => 1), jobs.configure_queue('l', concurrency => 2), jobs.insert('k', '{"t": 1}', queue => 'l'), jobs.insert('k', '{"t": 2}', queue => 'l') \gset
select count(*) from jobs.fetch('l', 2); --> 1
select metric, labels, value from jobs.metrics() where metric like 'jobs_limit%' order by 1, 2;
--> metric|labels|value
--> jobs_limit_held|{"limit": "tenants"}|0
--> jobs_limit_held|{"limit": "total"}|1
--> jobs_limit_running|{"limit": "tenants"}|1
--> jobs_limit_running|{"limit": "total"}|1
-- On a standby or read only.
begin read only;
select count(*) > 0 as readable from jobs.metrics(), jobs.queues, jobs.maintenance, jobs.settings; --> t
select count(*) >= 0 as readable from jobs.health(), jobs.workers; --> t
commit;
