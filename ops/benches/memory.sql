-- What a session's own memory (RssAnon of its process) grows by while it calls a function again and
-- again: from the end of the first hundredth of the calls to the last one, and in the second half
-- of them. A line a function. Each hundredth is a transaction of its own.
--
-- The hot calls are made :n times; what takes longer, or is called seldom, a share of that. :part
-- of 2 of the list is done, so that two sessions can share it.
set client_min_messages = warning;
set synchronous_commit = off;

create function pg_temp.rss() returns bigint language sql volatile as $$
  select substring(pg_read_file('/proc/self/status') from 'RssAnon:\s+(\d+)')::bigint $$;

select jobs.define_limit('under', '{"by_args": ["t"]}', '{under}', concurrency => 1), jobs.order_queue('under', '{"by_args": ["t"]}', fair => true) \gset

-- A call as PL/pgSQL: g counts the calls, f and i are variables. What one makes the same call ends,
-- where it would pile up.
create temp table calls (part int, share numeric, name text, body text);
insert into calls values
  -- First what looks at all jobs, while there are few.
  (1, 0.01, 'insert + cancel_many + retry_many + delete_many', $$perform jobs.insert('y', queue => 'y'); perform jobs.cancel_many(queue => 'y'); perform jobs.retry_many(queue => 'y'); perform jobs.delete_many(queue => 'y');$$),
  (1, 0.01, 'check', $$perform jobs.check();$$),
  (2, 0.01, 'metrics', $$perform jobs.metrics();$$),
  (1, 0.01, 'history', $$perform jobs.history();$$),
  (2, 0.01, 'health', $$perform jobs.health();$$),
  (1, 0.01, 'top', $$perform jobs.top();$$),
  (2, 0.01, 'count_queues', $$perform jobs.count_queues();$$),
  (1, 0.01, 'maintain', $$perform jobs.insert('x', queue => 'x', expires_at => now() + '1 us'); perform jobs.maintain();$$),
  (2, 0.01, 'grants and revoke', $$perform jobs.grant_producer('memory'), jobs.grant_worker('memory'), jobs.grant_viewer('memory'), jobs.grant_application('memory'), jobs.grant_operator('memory'), jobs.grant_admin('memory'); perform jobs.revoke('memory');$$),
  -- Procedures end transactions, so that nothing else can call them: psql does, below.
  (0, 0.1, 'wait', $$call jobs.wait('nothing', '0');$$),
  (0, 0.1, 'wait_any', $$call jobs.wait_any('{nothing,none}', '0', 'w');$$),
  (0, 0.1, 'wait_for', $$call jobs.wait_for('{1,2}', '1 us');$$),
  (1, 1, 'insert', $$perform jobs.insert('m', queue => 'm');$$),
  (1, 1, 'fetch + complete', $$for f in select id, token from jobs.fetch('m') loop perform jobs.complete(f.id, f.token); end loop;$$),
  (2, 1, 'insert unique', $$perform jobs.insert('u', to_jsonb(g), '{"by_args": true}', queue => 'u');$$),
  (2, 1, 'insert duplicate', $$perform jobs.insert('d', unique_opts => '{"by_args": true}', queue => 'd');$$),
  (2, 1, 'insert_batch', $$perform jobs.insert_batch('b', array[to_jsonb(g), to_jsonb(g + 1)], queue => 'b');$$),
  (1, 1, 'insert_many', $$perform jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'b', 'args', g, 'queue', 'many')));$$),
  (2, 1, 'fetch + fail', $$for f in select id, token from jobs.fetch('b') loop perform jobs.fail(f.id, f.token, 'e', retry_in => '1 day'); end loop;$$),
  (1, 1, 'fetch + snooze', $$for f in select id, token from jobs.fetch('many') loop perform jobs.snooze(f.id, f.token, '1 day'); end loop;$$),
  (2, 1, 'fetch + heartbeat + release', $$for f in select id, token from jobs.fetch('b') loop perform jobs.heartbeat(f.id, f.token); perform jobs.release(f.id, f.token); end loop;$$),
  (1, 1, 'insert + cancel', $$perform jobs.cancel((jobs.insert('c', queue => 'c')).id);$$),
  (2, 1, 'explain_unique', $$perform jobs.explain_unique('u', to_jsonb(g), '{"by_args": true}');$$),
  (1, 1, 'unique_key', $$perform jobs.unique_key('u', to_jsonb(g), '{"by_args": true}');$$),
  (1, 0.1, 'insert that replaces', $$perform jobs.insert('r', unique_opts => '{"by_kind": true, "on_conflict": "replace"}', scheduled_at => now() + '1 hour', queue => 'r');$$),
  (1, 0.1, 'insert + fetch_any + complete_many', $$perform jobs.insert('fa', queue => 'fa'); select array_agg(id) as ids, array_agg(token) as tokens into f from jobs.fetch_any('{nothing,fa}', 10); perform jobs.complete_many(f.ids, f.tokens);$$),
  (2, 0.1, 'insert_batch + fetch + complete_many with outputs', $$perform jobs.insert_batch('mo', array['1', '2']::jsonb[], queue => 'mo'); select array_agg(id) as ids, array_agg(token) as tokens into f from jobs.fetch('mo', 2, min_jobs => 2); perform jobs.complete_many(f.ids, f.tokens, array['{"a": 1}', null]::jsonb[]);$$),
  (2, 0.1, 'insert_batch + fetch + fail_many', $$perform jobs.insert_batch('mf', array['1', '2']::jsonb[], queue => 'mf'); select array_agg(id) as ids, array_agg(token) as tokens into f from jobs.fetch('mf', 2); perform jobs.fail_many(f.ids, f.tokens, '{a,b}', array['{"type": "x"}', null]::jsonb[], '1 day');$$),
  (2, 0.1, 'insert_batch + fetch + finish_many', $$perform jobs.insert_batch('mm', array['1', '2', '3', '4']::jsonb[], queue => 'mm'); select jsonb_agg(jsonb_build_object('id', id, 'token', token) || case args when '1' then '{"do": "complete", "output": [1]}' when '2' then '{"do": "fail", "error": "e", "retryable": false}' when '3' then '{"do": "snooze", "delay": "1 day"}' else '{"do": "release"}' end::jsonb) as results into f from jobs.fetch('mm', 4); perform jobs.finish_many(f.results); perform jobs.delete_many(queue => 'mm');$$),
  (1, 0.1, 'insert + fetch + heartbeat_many + complete', $$perform jobs.insert('h', queue => 'h'); select id, token into f from jobs.fetch('h'); perform jobs.heartbeat_many(array[f.id], array[f.token]); perform jobs.complete(f.id, f.token);$$),
  (2, 0.1, 'insert + activate + update + delete', $$select id into i from jobs.insert('a', queue => 'a', pending => true); perform jobs.activate(i); perform jobs.update(i, '{"x": 1}', priority => 3, tags => '{a}'); perform jobs.delete(i);$$),
  (2, 0.1, 'insert + results + delete', $$select id into i from jobs.insert('s', queue => 's'); perform jobs.results(array[i, i + 1]); perform jobs.delete(i);$$),
  (2, 0.1, 'insert + cancel + retry + delete', $$select id into i from jobs.insert('t', queue => 't'); perform jobs.cancel(i); perform jobs.retry(i, true); perform jobs.delete(i);$$),
  (2, 0.1, 'insert + show + delete', $$select id into i from jobs.insert('s', queue => 's'); perform jobs.show(i); perform jobs.delete(i);$$),
  (1, 0.1, 'insert + explain + delete', $$select id into i from jobs.insert('s', queue => 's'); perform jobs.explain(i); perform jobs.delete(i);$$),
  (2, 0.1, 'define_kind + undefine_kind', $$perform jobs.define_kind('defined', priority => g % 10); perform jobs.undefine_kind('defined');$$),
  (2, 0.01, 'configure_queue + reset_queue', $$perform jobs.configure_queue('limited', 1 + g % 5, 10, '1 minute', max_waiting => 5); perform jobs.reset_queue('limited');$$),
  (2, 0.1, 'pause_queue + resume_queue', $$perform jobs.pause_queue('paused'); perform jobs.resume_queue('paused');$$),
  (1, 0.1, 'insert + fetch + complete under a limit and an order', $$perform jobs.insert('u', jsonb_build_object('t', g % 100), queue => 'under'); for f in select id, token from jobs.fetch('under') loop perform jobs.complete(f.id, f.token); end loop;$$),
  (1, 0.01, 'define_limit + override_limit + pause_limit + resume_limit + drop_limit', $$perform jobs.define_limit('l', '{"by_args": ["t"]}', '{l}', concurrency => 1 + g::integer % 5); perform jobs.override_limit('l', '"a"', 2); perform jobs.pause_limit('l', '"a"'); perform jobs.resume_limit('l', '"a"'); perform jobs.drop_limit('l');$$),
  (1, 0.01, 'order_queue + unblock', $$perform jobs.order_queue('o', '{"by_args": ["t"]}', strict => true); perform jobs.unblock('o', '1'); perform jobs.order_queue('o', null);$$),
  (1, 1, 'order_key, order_weight', $$perform jobs.order_key('{"by_args": ["t"]}', 'q', 'k', '{"t": 1}', '{}'), jobs.order_weight('{"by_args": ["t"]}', '{"a": 2}', '{"args": {"t": "a"}}');$$),
  (2, 0.1, 'forward + forward_report + forwarded_open', $$select gen_random_uuid() as key into f; perform jobs.forward('00000000-0000-0000-0000-000000000001', array[f.key], '[{"kind": "f", "queue": "f"}]'); perform jobs.forward('00000000-0000-0000-0000-000000000001', '{}', '[]', array[f.key]); perform jobs.forward_report('00000000-0000-0000-0000-000000000001', 'x', g, now(), 0); perform jobs.forwarded_open('00000000-0000-0000-0000-000000000001');$$),
  (2, 1, 'cell_for, takes_queue, is_copy_of_cell, settings_digest', $$perform jobs.cell_for('k', '{}'), jobs.takes_queue('q'), jobs.is_copy_of_cell(), jobs.settings_digest();$$),
  (2, 0.1, 'worker_beat + worker_leave', $$perform jobs.worker_beat('leaves', '{m}', 10, '{}'); perform jobs.worker_leave('leaves');$$),
  (1, 1, 'worker_beat', $$perform jobs.worker_beat('beats', '{m,mail}', g::integer, '{"version": "1"}');$$),
  (2, 0.1, 'quiet_worker + stop_worker + resume_worker', $$perform jobs.quiet_worker('quiet', 'r'); perform jobs.stop_worker('quiet'); perform jobs.resume_worker('quiet');$$),
  (2, 0.1, 'pause_maintenance + resume_maintenance', $$perform jobs.pause_maintenance(); perform jobs.resume_maintenance();$$),
  (1, 0.1, 'schedule + unschedule', $$perform jobs.schedule('s', '*/5 3 * * 1-5', 's', time_zone => 'Europe/Berlin'); perform jobs.unschedule('s');$$),
  (2, 0.1, 'schedule + pause_periodic + resume_periodic + run_periodic', $$perform jobs.schedule('p', '@daily', 'p', queue => 'p', priority => g % 2); perform jobs.pause_periodic('p', 'r'); perform jobs.resume_periodic('p'); perform jobs.delete(jobs.run_periodic('p'));$$),
  (2, 1, 'idle_runs, installed, is_preloaded, last_id, ojs_manifest', $$perform jobs.idle_runs(), jobs.installed(), jobs.is_preloaded(), jobs.last_id(), jobs.ojs_manifest();$$);

-- Nobody forgets a function, but for those that make a database a cell.
do $$
declare missing text;
begin
  select string_agg(p.proname, ', ') into missing from pg_proc p
   where p.pronamespace = 'jobs'::regnamespace and p.proname not in ('set_cell', 'place_queue', 'spread_queue', 'unplace_queue', 'set_cell_address', 'retire_cell', 'reinstate_cell')
     and not exists (select from calls where body ~ format('jobs\.%s\(', p.proname));
  if missing is not null then raise 'ops/benches/memory.sql does not call: %', missing; end if;
end $$;

create function pg_temp.body(first bigint, calls bigint) returns void language plpgsql as 'begin end';
create procedure pg_temp.measure(part int, calls bigint) language plpgsql as $p$
declare c record; each bigint; before bigint; halfway bigint;
begin
  create temp table grown (name text, calls bigint, kb bigint, late bigint);
  for c in select * from calls where calls.part = measure.part loop
    execute format('create or replace function pg_temp.body(first bigint, calls bigint) returns void language plpgsql as %L',
      'declare f record; i bigint; begin for g in first .. first + calls - 1 loop ' || c.body || ' end loop; end');
    each := greatest(calls * c.share / 100, 1);
    for round in 1 .. 100 loop
      perform pg_temp.body(round * each, each);
      commit;
      if round = 1 then before := pg_temp.rss(); end if;
      if round = 50 then halfway := pg_temp.rss(); end if;
    end loop;
    insert into grown values (c.name, 100 * each, pg_temp.rss() - before, pg_temp.rss() - halfway);
  end loop;
end $p$;
call pg_temp.measure(:part, :n);

select :part = 2 as waits, greatest(:n / 1000, 1) as each \gset
\if :waits
  select body from calls, generate_series(1, :each) where part = 0 \gexec
  select pg_temp.rss() as before \gset
  select body from calls, generate_series(1, 49 * :each) where part = 0 \gexec
  select pg_temp.rss() as halfway \gset
  select body from calls, generate_series(1, 50 * :each) where part = 0 \gexec
  insert into grown select name, 100 * :each, pg_temp.rss() - :before, pg_temp.rss() - :halfway from calls where part = 0;
\endif
select name, calls, kb, late from grown;
