-- Plans of jobs.jobs: by state it reads that state's table and job, by id indexes only, unless the
-- statistics are those of empty tables:
-- then a table is thought to be read in no time, and so is the plan of a prepared statement until
-- the next ANALYZE.

-- What a plan touches.
create function pg_temp.scans(query text) returns table (scan text) language plpgsql as $$
declare line text;
begin
  for line in execute 'explain (costs off) ' || query loop
    if line ~ '(Scan|Scan Backward) (using|on) ' then scan := regexp_replace(line, '^[ >-]*(.*?) *$', '\1'); return next; end if;
  end loop;
end $$;
create function pg_temp.tables(query text) returns text language sql as $$
  select string_agg(distinct name, ' ' order by name) from (select substring(scan from ' on (\w+)') as name from pg_temp.scans(query)) s join pg_class on relname = name and relkind = 'r' and relnamespace = 'jobs'::regnamespace $$;
-- Of the tables, read from end to end.
create function pg_temp.sequential(query text) returns bigint language sql as $$ select count(*) from pg_temp.scans(query) where scan ~ '^(Parallel )?Seq Scan' $$;

-- All columns but those of the latest error.
create temp view job as select id, state, queue, kind, priority, attempt, max_attempts, args, meta, tags, created_at, scheduled_at, attempted_at, finalized_at, expires_at, timeout, lease_expires_at, deadline_at, cancel_requested_at, cancel_reason, worker, token, progress, output, retry, flow_id, step from jobs.jobs;
create temp table queries (name text primary key, query text);
insert into queries
  select 'state ' || s, format('select * from job where state = %L', s) from unnest(enum_range(null::jobs.state)) s
  union all values ('id', 'select * from job where id = 4711'), ('id and state', 'select * from job where id = 4711 and state = ''running'''),
    ('queue', 'select * from job where queue = ''q'''), ('queues', 'select * from jobs.queues'),
    ('page', 'select * from job order by id limit 50'), ('page with errors', 'select id, last_error from jobs.jobs order by id limit 50');
prepare by_id (bigint) as select * from job where id = $1;
insert into queries values ('id, prepared', 'execute by_id (4711)');
set plan_cache_mode = force_generic_plan;
create function pg_temp.report() returns setof text language sql as $$
  select name || ': ' || pg_temp.tables(query) || case when name ~ '^id' then ', ' || pg_temp.sequential(query) || ' sequential' else '' end from queries order by name $$;

-- On new tables.
create temp table reported as select pg_temp.report() as line;
table reported;
--> id: finished job ready running scheduled, 0 sequential
--> id and state: job running, 0 sequential
--> id, prepared: finished job ready running scheduled, 0 sequential
--> page: finished job ready running scheduled
--> page with errors: error finished job ready running scheduled
--> queue: finished job ready running scheduled
--> queues: kept_count kept_queue queue
--> state available: job ready scheduled
--> state cancelled: finished job
--> state completed: finished job
--> state discarded: finished job
--> state pending: job scheduled
--> state retryable: job scheduled
--> state running: job running
--> state scheduled: job scheduled
-- And what is otherwise then.
create function pg_temp.otherwise() returns setof text language sql as $$ select line from (select pg_temp.report() except table reported) x(line) order by line collate "C" $$;
-- After vacuum analyze on empty tables.
vacuum analyze jobs.job, jobs.ready, jobs.scheduled, jobs.running, jobs.finished, jobs.error;
select pg_temp.otherwise();
--> id and state: job running, 2 sequential
--> id, prepared: finished job ready running scheduled, 20 sequential
--> id: finished job ready running scheduled, 20 sequential

-- With jobs.
select count(*) from jobs.insert_batch('k', array_fill('{}'::jsonb, array[5000])); --> 5000
select count(*) from jobs.insert_batch('k', array_fill('{}'::jsonb, array[2000]), scheduled_at => '2999-01-01 00:00Z'); --> 2000
select count(*) from (select jobs.complete(id, token) from jobs.fetch(max_jobs => 2000)) x; --> 2000
select count(*) from (select jobs.fail(id, token, 'x', '1 day') from jobs.fetch(max_jobs => 1000)) x; --> 1000
select count(*) from jobs.fetch(max_jobs => 500); --> 500
-- Before any session analyses them.
select pg_temp.otherwise(); --> id, prepared: finished job ready running scheduled, 20 sequential
-- After.
vacuum analyze jobs.job, jobs.ready, jobs.scheduled, jobs.running, jobs.finished, jobs.error;
select pg_temp.otherwise(); --> none

-- A window of 100 ids, as the console asks for it: no jobs beyond it are read, whatever the filter;
-- those in it once a state.
select pg_stat_force_next_flush();
begin;
set local enable_seqscan = off;
set local enable_hashjoin = off;
set local enable_mergejoin = off;
select count(*) from (select id, state from jobs.jobs where kind = 'none' and state <> 'completed' and id >= 3001 and id < 3101 order by id desc limit 10001) x; --> 0
select relname from pg_stat_xact_user_tables where schemaname = 'jobs' and relname = 'job' and seq_tup_read + idx_tup_fetch > 8 * 100; --> job
rollback;

-- The kind of a failed job is looked up for who asks for it only.
select pg_temp.tables('select job_id, error from jobs.errors'), pg_temp.tables('select job_id, job_kind from jobs.errors'); --> tables|tables: error|error job
-- A claim is found by the bytes of its key.
select count(*) from jobs.insert_batch('u', array(select to_jsonb(n) from generate_series(1, 2000) n), '{"by_args": true}'); --> 2000
vacuum analyze jobs.unique_claim;
select scan from pg_temp.scans($$select holders from jobs.unique_claims where key_bytes = '\x00'$$) where scan ~ ' on unique_claim'; --> Index Scan using unique_claim_pkey on unique_claim c

-- Queues are counted once a statement, also to find those of which something is set and that have
-- no jobs. What is kept of very many is read without being grouped.
begin;
set local track_functions = 'all';
select jobs.configure_queue('empty', concurrency => 1);
select count(*) from jobs.queues where queue in ('default', 'empty'); --> 2
select calls from pg_stat_xact_user_functions where funcname = 'count_queues'; --> 1
create function pg_temp.grouped(query text) returns bigint language plpgsql as $$
declare line text; n bigint = 0;
begin
  for line in execute 'explain (costs off) ' || query loop n = n + (line ~ '(Group|Hash)Aggregate')::integer; end loop;
  return n;
end $$;
select pg_temp.grouped('select * from jobs.queues'); --> 0
rollback;
