-- Where nothing can be written, everything that writes is 25006, and what only reads works.

select id from jobs.insert('k', unique_opts => '{"by_kind": true}'); --> 1
select count(*) from jobs.fetch(); --> 1
select token from jobs.jobs \gset
create temp table calls (call text);
insert into calls values ('insert(''k'')'), ('insert(''k'', unique_opts => ''{"by_kind": true}'')'), ('insert(''k'', unique_opts => ''{"by_kind": true, "on_conflict": "reject"}'')'), ('insert_many(''[{"kind": "k"}]'')'), ('insert_many(''[]'')'),
  ('insert_batch(''k'', ''{1}'')'), ('insert_batch(''k'', ''{}'')'), ('fetch()'), ('fetch(''nosuch'')'), ('fetch_any(''{a}'')'), ('fetch_any(''{}'')'), ('complete(1, :t)'), ('complete(1, 1)'), ('complete(99, 1)'),
  ('complete_many(''{1}'', ''{:t}'')'), ('complete_many(''{}'', ''{}'')'), ('finish_many(''[]'')'), ('fail(1, :t, ''x'')'), ('fail_many(''{}'', ''{}'', ''{}'')'), ('snooze(1, :t, ''1'')'), ('release(1, :t)'), ('heartbeat(1, :t)'), ('heartbeat(1, 1)'),
  ('cancel(1)'), ('cancel(99)'), ('retry(1)'), ('delete(1)'), ('maintain()'), ('cancel_many(queue => ''q'')'), ('define_kind(''k'')'), ('undefine_kind(''k'')'), ('reset_queue(''q'')'), ('define_limit(''l'', concurrency => 1)'), ('override_limit(''l'', ''1'', 1)'), ('pause_limit(''l'')'), ('resume_limit(''l'')'), ('drop_limit(''l'')'), ('order_queue(''q'', null)'), ('unblock(''q'', ''1'')'), ('pause_periodic(''n'')'), ('resume_periodic(''n'')'), ('run_periodic(''n'')'), ('schedule(''n'', ''@daily'', ''k'')'), ('unschedule(''n'')'),
  ('worker_beat(''w'', ''{q}'', 1)'), ('quiet_worker(''w'')'), ('stop_worker(''w'')'), ('resume_worker(''w'')'), ('worker_leave(''w'')'),
  ('forward(''00000000-0000-0000-0000-00000000000a'', ''{}'', ''[]'')'), ('forward_report(''00000000-0000-0000-0000-00000000000a'', ''a'', 0, null, 0)');
create function pg_temp.report() returns table (call text, answer text) language sql as $$
  select c.call, pg_temp.try('select jobs.' || replace(c.call, ':t', (select token::text from jobs.jobs where id = 1))) from calls c $$;
begin read only;
select answer, count(*) from pg_temp.report() group by answer; --> answer|count: 25006: cannot write jobs in a read-only transaction | Use a read-write transaction.|51
select jobs.unique_key('k', '{}', '{"by_kind": true}') is not null as unique_key; --> t
select jobs.last_id() >= 1 as last_id; --> t
select state, (select count(*) from jobs.queues) as queues, (select count(*) from jobs.errors) as errors, (select count(*) from jobs.periodic) as periodic from jobs.jobs;
--> state|queues|errors|periodic: running|1|0|0
commit;
begin isolation level serializable read only deferrable;
select distinct split_part(answer, ':', 1) from pg_temp.report(); --> 25006
commit;
set default_transaction_read_only = on;
select jobs.insert('k');
--> ERROR:  cannot write jobs in a read-only transaction
--> HINT:  Use a read-write transaction.
select count(*) from jobs.fetch();
--> ERROR:  cannot write jobs in a read-only transaction
--> HINT:  Use a read-write transaction.
reset default_transaction_read_only;
-- Nothing has changed, and it goes on.
select id, state from jobs.jobs; --> id|state: 1|running
select jobs.complete(1, :token); --> completed
