-- jobs.check(): all invariants hold after everything that a queue does, and each rule is found
-- broken when it is.

-- A job in every state, under keys, with holds, errors, slots and a key that is used over and over.
select count(*) from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 9) n), '{"by_args": true}'); --> 9
select count(*) from jobs.insert_batch('l', array_fill('1'::jsonb, array[4]), queue => 'limited'); --> 4
select id, state from jobs.insert('s', scheduled_at => '2999-01-01 00:00Z', expires_at => '2999-02-01 00:00Z'); --> id|state: 14|scheduled
select id, state from jobs.insert('p', pending => true); --> id|state: 15|pending
select jobs.configure_queue('limited', concurrency => 2) \gset
select count(*) from (select jobs.complete(id, token) from jobs.fetch(max_jobs => 3)) x; --> 3
select (jobs.fail(id, token, 'boom', '1 hour')).state from jobs.fetch(); --> retryable
select (jobs.fail(id, token, 'boom', retryable => false)).state from jobs.fetch(); --> discarded
select id from jobs.fetch(lease => '1 hour', max_jobs => 2); --> 6, 7
select id from jobs.fetch('limited', 4); --> 10, 11
select jobs.cancel(9), jobs.retry(1), jobs.delete(2); --> cancel|retry|delete: cancelled|available|completed
select state from jobs.insert('h', 'null', '{"by_kind": true, "by_state": ["available"], "hold_for": 60, "hold_until": "start"}'); --> available
select jobs.complete(id, token) from jobs.fetch(kinds => '{h}'); --> completed
select state, unique_skipped_as_duplicate from jobs.insert('h', 'null', '{"by_kind": true, "by_state": ["available"], "hold_for": 60, "hold_until": "start"}');
--> state|unique_skipped_as_duplicate: available|f
select state, count(*) from jobs.jobs group by 1 order by 1;
--> state|count
--> available|5
--> scheduled|1
--> pending|1
--> running|4
--> retryable|1
--> completed|2
--> cancelled|1
--> discarded|1
select * from jobs.check(); --> none
select count(*) as failed from jobs.maintain() where error is not null; --> 0
select * from jobs.check(); --> none

-- Each rule, broken by hand and mended by the rollback.
create function pg_temp.breaks(harm text) returns setof text language plpgsql as $$
declare found text[];
begin
  begin
    execute harm;
    found := array(select format('%s %s %s', invariant, violations, job_ids) from jobs.check());
    raise exception using errcode = 'P0R00';
  exception when sqlstate 'P0R00' then return query select unnest(found);
  end;
end $$;
select pg_temp.breaks($$select$$); --> none
select pg_temp.breaks($$delete from jobs.ready where job_id = 8$$); --> one_place 1 {8}
select pg_temp.breaks($$insert into jobs.scheduled select 8, 'infinity', null, 0, 'pending', 'default'$$); --> one_place 1 {8}
select pg_temp.breaks($$insert into jobs.scheduled select 999, 'infinity', null, 0, 'pending', 'default'$$); --> one_place 1 {999}
select pg_temp.breaks($$delete from jobs.job where id = 15$$); --> one_place 1 {15}
select pg_temp.breaks($$update jobs.ready set priority = 2 where job_id = 8$$); --> same_queue 1 {8}
select pg_temp.breaks($$update jobs.job set queue = 'elsewhere' where id = 14$$); --> same_queue 1 {14}
select pg_temp.breaks($$update jobs.scheduled set expires_at = null where job_id = 14$$); --> same_queue 1 {14}
select pg_temp.breaks($$update jobs.ready set attempt = -1 where job_id = 8$$); --> attempts 1 {8}
select pg_temp.breaks($$update jobs.running set attempt = 0 where job_id = 6$$); --> attempts 1 {6}
select pg_temp.breaks($$update jobs.finished set attempt = 0 where job_id = 3$$); --> attempts 1 {3}
select pg_temp.breaks($$update jobs.scheduled set state = 'available' where job_id = 14$$); --> state 1 {14}
select pg_temp.breaks($$update jobs.scheduled set state = 'pending' where job_id = 14$$); --> state 1 {14}
select pg_temp.breaks($$update jobs.scheduled set due_at = now() where job_id = 15$$); --> state 1 {15}
select pg_temp.breaks($$update jobs.finished set state = 'retryable' where job_id = 3$$); --> state 1 {3}
select pg_temp.breaks($$update jobs.running set lease_expires_at = deadline_at + interval '1 s' where job_id = 6$$); --> lease 1 {6}
select pg_temp.breaks($$update jobs.running set token = -token where job_id = 6$$); --> lease 1 {6}
select pg_temp.breaks($$update jobs.running set token = 9007199254740992 where job_id = 6$$); --> lease 1 {6}
select pg_temp.breaks($$update jobs.error set job_id = 2$$); --> error 2 {2}
select pg_temp.breaks($$delete from jobs.unique_claim where 8 = any (jobs)$$); --> claim 1 {8}
select pg_temp.breaks($$update jobs.unique_claim set jobs = '{1}' where 8 = any (jobs)$$); --> claim 2 {1,8}
select pg_temp.breaks($$update jobs.unique_claim set hold_ends_at = array[null, null]::timestamptz[] where 8 = any (jobs)$$); --> claim 1 {8}
select pg_temp.breaks($$update jobs.job set unique_key = null where id = 8$$); --> claim 1 {8}
select pg_temp.breaks($$update jobs.queue_slot set job_id = null where job_id = 10$$); --> slot 1 {10}
select pg_temp.breaks($$update jobs.queue_slot set job_id = 12 where job_id = 10$$); --> slot 2 {10,12}
select pg_temp.breaks($$update jobs.ready set seq = 9999 where job_id = 8$$); --> sequence 1 {8}
select * from jobs.check(); --> none

-- Limits and orders.
select jobs.define_limit('one', queues => '{one}', concurrency => 1), jobs.order_queue('strict', '{"by_args": ["t"]}', strict => true) \gset
select count(*) from jobs.insert_batch('m', array_fill('1'::jsonb, array[3]), queue => 'one'); --> 3
select count(*) from jobs.insert_batch('m', array_fill('1'::jsonb, array[3]), queue => 'strict'); --> 3
select * from jobs.check(); --> none
select count(*) from jobs.fetch_any('{one,strict}', 10); --> 2
select * from jobs.check(); --> none
create function pg_temp.broken(harm text) returns setof text language sql as $$select split_part(pg_temp.breaks(harm), ' {', 1)$$;
select pg_temp.broken($$update jobs.permit set n = n + 1$$); --> permit 2
select pg_temp.broken($$delete from jobs.permit$$); --> permit 1, held 1
select pg_temp.broken($$update jobs.limit_rule set concurrency = 2 where name = 'one'$$); --> held 1
select pg_temp.broken($$update jobs.limit_rule set concurrency = 2, paused_at = now() where name = 'one'$$); --> none
select pg_temp.broken($$update jobs.limit_rule set concurrency = null, rate = 2, rate_period = '1 hour' where name = 'one'$$); --> held 1
select pg_temp.broken($$delete from jobs.limit_rule$$); --> held 2
select pg_temp.broken($$update jobs.turn set is_blocked = true$$); --> turn 1
select pg_temp.broken($$delete from jobs.turn$$); --> held 1
