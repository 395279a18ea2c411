-- Uniqueness outlasts retention: a final job counts and is kept until its own by_period or window
-- has passed, if its own by_state has the state that it ended in. Retention prolongs that, it never
-- shortens it.

select jobs.configure_queue('default', retention_completed => '0', retention_cancelled => '0', retention_discarded => '0') \gset

create function pg_temp.ended(job bigint, how text) returns jobs.state language plpgsql as $$
declare answer jobs.state;
begin
  if how = 'cancelled' then
    return jobs.cancel(job);
  end if;
  if how = 'completed' then
    select jobs.complete(f.id, f.token) into strict answer from jobs.fetch() f where f.id = job;
  else
    select (jobs.fail(f.id, f.token, 'broken', retryable => false)).state into strict answer from jobs.fetch() f where f.id = job;
  end if;
  return answer;
end $$;
create function pg_temp.all_states(opts jsonb) returns jsonb language sql as $$
  select case when opts ? 'oban' then '{"by_args": true, "by_queue": true}' when opts ? 'ojs' then '{"by_kind": true}' else opts end || '{"by_state": ["available", "scheduled", "pending", "running", "retryable", "completed", "cancelled", "discarded"]}' $$;
-- How many jobs go.
create function pg_temp.prune() returns bigint language plpgsql as $$
declare before constant bigint := (select count(*) from jobs.job);
begin
  perform jobs.maintain();
  return before - (select count(*) from jobs.job);
end $$;
-- What a job that was inserted with these options and ended like this counts for, before and after
-- pruning, and for whom looks at all states.
create function pg_temp.story(opts jsonb, how text, passed interval, out before text, out pruned bigint, out after text) language plpgsql as $$
begin
  perform pg_temp.ended((select id from jobs.insert('k', unique_opts => opts)), how);
  call pg_temp.later(passed);
  select would into before from jobs.explain_unique('k', unique_opts => pg_temp.all_states(opts));
  pruned := pg_temp.prune();
  select would into after from jobs.explain_unique('k', unique_opts => pg_temp.all_states(opts));
  perform jobs.delete(id) from jobs.jobs;
  perform jobs.maintain();
end $$;

-- A period of 100,000 days ends in 2191.
create temp table cases (n int generated always as identity, opts jsonb, passed interval);
insert into cases (opts, passed) values
  ('{"by_kind": true, "window": "1 day"}', '23 hours'), ('{"by_kind": true, "window": "1 day"}', '25 hours'),
  ('{"by_period": "100000 days"}', '100 years'), ('{"by_period": "100000 days"}', '200 years'),
  ('{"by_period": "100000 days", "by_state": ["available", "cancelled", "discarded"]}', '100 years'),
  (pg_temp.all_states('{"by_kind": true, "window": "1 day", "window_from": "scheduled_at"}'), '23 hours'), (pg_temp.all_states('{"by_kind": true, "window": "1 day", "window_from": "scheduled_at"}'), '25 hours'),
  -- both: until the later one
  ('{"by_period": "100000 days", "window": "1 day"}', '2 days'), (pg_temp.all_states('{"by_kind": true, "window": "100000 years"}'), '1000 years'),
  -- nothing that lasts, or no final state in it: the retention alone
  (pg_temp.all_states('{"by_kind": true}'), '0'), ('{"by_kind": true, "window": "1 day", "by_state": ["available"]}', '0'), ('{"by_period": "100000 days", "by_state": ["running"]}', '0'),
  ('{"oban": {}}', '50 s'), ('{"oban": {}}', '70 s'), ('{"ojs": {"period": "PT1H", "states": ["completed"]}}', '0'),
  -- days and months are those of a time zone, which another session may have differently:
  -- the job stays some days longer
  (pg_temp.all_states('{"by_kind": true, "window": "1 day", "window_from": "scheduled_at"}'), '121 hours'), (pg_temp.all_states('{"by_kind": true, "window": "1 month", "window_from": "scheduled_at"}'), '31 days 12 hours'),
  (pg_temp.all_states('{"by_kind": true, "window": "24 hours", "window_from": "scheduled_at"}'), '25 hours');
create temp table told (way text, n int, how text, story text);
-- A transaction each: what is too much for one is left to the next.
create procedure pg_temp.tell(way text) language plpgsql as $$
declare c record;
begin
  for c in select * from cases, unnest(array['completed', 'cancelled', 'discarded']) how order by n, how loop
    insert into told values (way, c.n, c.how, pg_temp.story(c.opts, c.how, c.passed)::text);
    commit;
  end loop;
end $$;
call pg_temp.tell('directly');
select n, opts - 'by_state' as opts, passed, max(story) filter (where how = 'completed') as completed, max(story) filter (where how = 'cancelled') as cancelled, max(story) filter (where how = 'discarded') as discarded
  from told join cases using (n) group by n, opts, passed order by n;
--> n|opts|passed|completed|cancelled|discarded
--> 1|{"window": "1 day", "by_kind": true}|23:00:00|(skip,0,skip)|(insert,1,insert)|(insert,1,insert)
--> 2|{"window": "1 day", "by_kind": true}|25:00:00|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 3|{"by_period": "100000 days"}|100 years|(skip,0,skip)|(insert,1,insert)|(insert,1,insert)
--> 4|{"by_period": "100000 days"}|200 years|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 5|{"by_period": "100000 days"}|100 years|(insert,1,insert)|(skip,0,skip)|(skip,0,skip)
--> 6|{"window": "1 day", "by_kind": true, "window_from": "scheduled_at"}|23:00:00|(skip,0,skip)|(skip,0,skip)|(skip,0,skip)
--> 7|{"window": "1 day", "by_kind": true, "window_from": "scheduled_at"}|25:00:00|(insert,0,insert)|(insert,0,insert)|(insert,0,insert)
--> 8|{"window": "1 day", "by_period": "100000 days"}|2 days|(insert,0,insert)|(insert,1,insert)|(insert,1,insert)
--> 9|{"window": "100000 years", "by_kind": true}|1000 years|(skip,0,skip)|(skip,0,skip)|(skip,0,skip)
--> 10|{"by_kind": true}|00:00:00|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 11|{"window": "1 day", "by_kind": true}|00:00:00|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 12|{"by_period": "100000 days"}|00:00:00|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 13|{"oban": {}}|00:00:50|(skip,0,skip)|(insert,1,insert)|(insert,1,insert)
--> 14|{"oban": {}}|00:01:10|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 15|{"ojs": {"period": "PT1H", "states": ["completed"]}}|00:00:00|(skip,0,skip)|(insert,1,insert)|(insert,1,insert)
--> 16|{"window": "1 day", "by_kind": true, "window_from": "scheduled_at"}|121:00:00|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
--> 17|{"window": "1 month", "by_kind": true, "window_from": "scheduled_at"}|31 days 12:00:00|(insert,0,insert)|(insert,0,insert)|(insert,0,insert)
--> 18|{"window": "24 hours", "by_kind": true, "window_from": "scheduled_at"}|25:00:00|(insert,1,insert)|(insert,1,insert)|(insert,1,insert)
-- By statements, as where a session has attached something to the tables, it is the same.
create function public.nothing() returns trigger language plpgsql as $$ begin return null; end $$;
create trigger nothing after insert or update or delete on jobs.job execute function public.nothing();
create trigger nothing after insert or update or delete on jobs.finished execute function public.nothing();
call pg_temp.tell('by statements');
select n, how, array_agg(way || ' ' || story order by way) as differ from told group by n, how having count(distinct story) <> 1 or count(*) <> 2; --> none
drop trigger nothing on jobs.job;
drop trigger nothing on jobs.finished;

-- What is stored: the end of the week, or of the window, and the states.
select id from jobs.insert('w', unique_opts => '{"by_period": "1 week"}'); --> 109
select id from jobs.insert('w2', unique_opts => pg_temp.all_states('{"by_period": "1 week"}'), scheduled_at => '2999-01-01 12:00Z'); --> 110
select id from jobs.insert('w3', unique_opts => '{"by_kind": true, "window": "1 month"}'); --> 111
select id from jobs.insert('w4', unique_opts => '{"by_kind": true, "window": "1 day", "window_from": "scheduled_at"}'); --> 112
select id from jobs.insert('w5', unique_opts => '{"by_kind": true}'); --> 113
select kind, case kind when 'w' then unique_until = date_trunc('week', created_at) + '7 days' when 'w2' then unique_until = '2999-01-07Z' when 'w3' then unique_until >= created_at + '1 month' else unique_until is null end as until,
       unique_window, unique_final from jobs.job where kind like 'w%' order by kind;
--> kind|until|unique_window|unique_final
--> w|t|~|1
--> w2|t|~|7
--> w3|t|~|1
--> w4|t|1 day|1
--> w5|t|~|~
select jobs.delete(id) is not null as deleted from jobs.jobs; --> t, t, t, t, t

-- A window that counts from scheduled_at goes by when the job was due last.
select id as snoozed from jobs.insert('z', unique_opts => '{"by_kind": true, "window": "1 hour", "window_from": "scheduled_at"}') \gset
select (jobs.snooze(id, token, '1 day')).state from jobs.fetch(); --> scheduled
call pg_temp.later('24 hours 10 minutes');
select pg_temp.ended(:snoozed, 'completed'); --> completed
select pg_temp.prune(); --> 0
select id = :snoozed as the_same, unique_skipped_as_duplicate as skipped from jobs.insert('z', unique_opts => '{"by_kind": true, "window": "1 hour", "window_from": "scheduled_at"}');
--> the_same|skipped: t|t
call pg_temp.later('1 hour');
select pg_temp.prune(); --> 1
select id from jobs.insert('due', unique_opts => pg_temp.all_states('{"by_kind": true, "window": "1 hour", "window_from": "scheduled_at"}'), scheduled_at => clock_timestamp() + '1 day'); --> 116
select jobs.cancel(max(id)) from jobs.jobs; --> cancelled
call pg_temp.later('24 hours 30 minutes');
select pg_temp.prune(); --> 0
call pg_temp.later('31 minutes');
select pg_temp.prune(); --> 1

-- A longer retention prolongs, also for who has no window; retention for ever is for ever.
select jobs.configure_queue('default', retention_completed => '2 days', retention_cancelled => '-1 s', retention_discarded => '0') \gset
select pg_temp.story('{"by_kind": true, "window": "1 day"}', 'completed', '25 hours'), pg_temp.story('{"by_kind": true, "window": "1 day"}', 'cancelled', '25 hours');
--> story|story: (insert,0,insert)|(insert,0,insert)
select id from jobs.insert('p', unique_opts => '{"by_kind": true, "window": "1 day"}'); --> 119
select pg_temp.ended(max(id), 'completed') from jobs.jobs; --> completed
call pg_temp.later('25 hours');
select would from jobs.explain_unique('p', unique_opts => '{"by_kind": true}') union all select would from jobs.explain_unique('p', unique_opts => '{"by_kind": true, "window": "1 day"}'); --> skip, insert
select jobs.configure_queue('default', retention_completed => '0', retention_cancelled => '0', retention_discarded => '0') \gset
select pg_temp.prune(); --> 1

-- The new job's policy decides whether it conflicts; the old one's, how long it is there.
select id as old from jobs.insert('o', unique_opts => '{"by_kind": true, "window": "1 day"}') \gset
select pg_temp.ended(:old, 'completed'); --> completed
select would, holder = :old as old from jobs.explain_unique('o', unique_opts => '{"by_kind": true}') union all
select would, holder = :old from jobs.explain_unique('o', unique_opts => '{"by_kind": true, "by_state": ["available"]}') union all
select would, holder = :old from jobs.explain_unique('o', unique_opts => '{"by_kind": true, "window": 0.000001}'); --> would|old: skip|t, insert|~, insert|~
-- A newer job that nothing keeps does not push it out of what is known of the key.
select pg_temp.ended(id, 'completed') from jobs.insert('o', unique_opts => '{"by_kind": true, "by_state": ["available"]}'); --> completed
select pg_temp.ended(id, 'completed') from jobs.insert('o', unique_opts => '{"by_kind": true, "by_state": ["available"]}'); --> completed
select pg_temp.prune(); --> 2
select would, holder = :old as old from jobs.explain_unique('o', unique_opts => '{"by_kind": true}'); --> would|old: skip|t
begin isolation level repeatable read;
select id = :old as old, unique_skipped_as_duplicate as skipped from jobs.insert('o', unique_opts => '{"by_kind": true}'); --> old|skipped: t|t
commit;
select id = :old as old, unique_skipped_as_duplicate as skipped from jobs.insert_batch('o', array['1']::jsonb[], unique_opts => '{"by_kind": true}'); --> old|skipped: t|t
-- It comes back by a retry, ends in another state, and by a deletion it is gone.
select jobs.retry(:old), pg_temp.ended(:old, 'discarded'); --> retry|ended: available|discarded
select would from jobs.explain_unique('o', unique_opts => pg_temp.all_states('{"by_kind": true}')); --> insert
select jobs.retry(:old), pg_temp.ended(:old, 'completed'), pg_temp.prune(); --> retry|ended|prune: available|completed|0
select would from jobs.explain_unique('o', unique_opts => '{"by_kind": true}'); --> skip
select jobs.delete(:old); --> completed
select would from jobs.explain_unique('o', unique_opts => '{"by_kind": true}'); --> insert
select task, rows from jobs.maintain() where rows > 0; --> task|rows: claims|1
select count(*) as claims from jobs.unique_claim; --> 0
drop function public.nothing();
