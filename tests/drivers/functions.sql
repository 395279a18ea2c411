-- Every function and view, each a statement and a transaction of its own, so that a pooler may give
-- each another connection. tests/drivers/pgbouncer.rs compares the output with functions.out, and
-- the names with what the schema has.
\echo produce
select id, state from jobs.insert('a', '{"n": 1}', '{"by_args": true}');
select id, unique_skipped_as_duplicate from jobs.insert('a', '{"n": 1}', '{"by_args": true}');
select ord, id, unique_skipped_as_duplicate from jobs.insert_many('[{"kind": "b"}, {"kind": "a", "args": {"n": 1}, "unique_opts": {"by_args": true}}]');
select ord, id from jobs.insert_batch('c', array['1', '2']::jsonb[], queue => 'batch', pending => true);
select length(jobs.unique_key('a', '{"n": 1}', '{"by_args": true}'));
select holder, would from jobs.explain_unique('a', '{"n": 1}', '{"by_args": true}');
select jobs.ojs_manifest() is not null;
select jobs.forward('00000000-0000-0000-0000-00000000000a', array['00000000-0000-0000-0000-00000000000b']::uuid[], '[{"kind": "d", "pending": true}]');
select count(*) from jobs.forwarded_open('00000000-0000-0000-0000-00000000000a');
select jobs.forward_report('00000000-0000-0000-0000-00000000000a', 'outbox', 0, null, 0) is not null;
\echo work
select id as id1, token as token1 from jobs.fetch() \gset
select :id1, worker = 'pooled' from jobs.jobs where id = :id1;
select lease_expires_at > now() from jobs.heartbeat(:id1, :token1);
select id, cancel_requested from jobs.heartbeat_many(array[:id1], array[:token1]);
select jobs.release(:id1, :token1);
select id as id1, token as token1 from jobs.fetch_any(array['none', 'default'], kinds => array['a']) \gset
select state from jobs.snooze(:id1, :token1, '1 hour');
select id as id2, token as token2 from jobs.fetch() \gset
select state from jobs.fail(:id2, :token2, 'no', retry_in => '1 hour');
select jobs.retry(:id2);
select token as token2 from jobs.fetch() \gset
select jobs.complete(:id2, :token2, '{"ok": true}');
select id, state, done from jobs.complete_many(array[:id2], array[:token2]);
select id, state, done from jobs.fail_many(array[:id2], array[:token2], array['late']);
select ord, id, state, done, reason from jobs.finish_many(jsonb_build_array(jsonb_build_object('id', :id2, 'token', :token2, 'do', 'complete')));
call jobs.wait('nothing', timeout => '50 ms');
call jobs.wait_any(array['nothing', 'none'], timeout => '50 ms', worker => 'pooled');
call jobs.wait_for(array[:id2], want => 'any');
select ord, id, state, output, error from jobs.results(array[:id2, 99]);
\echo manage
select id as id3 from jobs.jobs where args = '1' \gset
select id as id4 from jobs.jobs where args = '2' \gset
select jobs.activate(:id3);
select jobs.update(:id4, priority => 3);
select jobs.cancel(:id3, 'not wanted');
select jobs.cancel_many(queue => 'batch');
select jobs.retry_many(queue => 'batch');
select jobs.cancel_many(queue => 'batch', kind => 'c');
select jobs.delete(:id3);
select jobs.delete_many(queue => 'batch');
select jobs.pause_queue('default'), jobs.resume_queue('default'), jobs.configure_queue('default', concurrency => 5), jobs.define_kind('a', priority => 2);
select jobs.reset_queue('default'), jobs.undefine_kind('a');
select jobs.define_limit('tenants', '{"by_args": ["tenant"]}', queues => '{default}', concurrency => 2), jobs.override_limit('tenants', '"acme"', 5), jobs.pause_limit('tenants', '"acme"', 'why');
select key, concurrency from jobs.limit_keys;
select jobs.resume_limit('tenants', '"acme"'), jobs.drop_limit('tenants');
select jobs.order_queue('default', '{"by_args": ["tenant"]}', true, 'block', true, '{"acme": 2}'), jobs.unblock('default', '"acme"');
select count(*), jobs.order_key('{"by_args": ["a"]}', 'q', 'k', '{"a": 1}', null), jobs.order_weight('{"by_args": ["a"]}', '{"1": 2}', '1') from jobs.order_keys;
select jobs.order_queue('default', null);
select count(*) from jobs.kinds;
select outcome, next_run_at > now() from jobs.schedule('nightly', '30 2 * * *', 'a');
select jobs.delete(jobs.run_periodic('nightly')), jobs.pause_periodic('nightly', 'why'), jobs.resume_periodic('nightly');
select jobs.unschedule('nightly');
select jobs.worker_beat('pooled', '{default}', 3, '{"version": "1"}');
select jobs.quiet_worker('pooled', 'deploy'), jobs.stop_worker('pooled');
select jobs.worker_beat('pooled', '{default}', 3);
select jobs.resume_worker('pooled'), jobs.worker_leave('pooled');
select jobs.pause_maintenance() is not null;
select jobs.resume_maintenance() is not null;
select count(*) > 3, count(error) from jobs.maintain();
\echo look
select count(*) >= 0 from jobs.health();
select count(*) > 0 from jobs.metrics();
select sum(inserted) > 0 from jobs.history(queue => null, kind => null, since => '1 day', step => '1 minute');
select (select count(*) from jobs.jobs), (select count(*) from jobs.queues), (select count(*) from jobs.errors), (select count(*) from jobs.unique_claims), (select count(*) from jobs.periodic);
select (select count(*) from jobs.workers) >= 0, (select count(*) from jobs.maintenance) > 0, (select count(*) from jobs.settings) > 0;
select count(*) from jobs.top() where queue = '(all)';
select jobs.last_id() >= max(id) from jobs.jobs;
select jobs.show(1) like 'Job 1, kind %';
select reason, until > now() as later from jobs.explain(1);
select count(*) from jobs.check();
\echo cells
select jobs.set_cell(0), jobs.place_queue('*', 0);
select jobs.spread_queue('s', '{"by_args": ["t"]}', '{0}'), jobs.set_cell_address(1, 'host=one'), jobs.unplace_queue('s');
select jobs.cell_for('k'), jobs.is_copy_of_cell(), jobs.takes_queue('q'), length(jobs.settings_digest());
select cell, address, is_self from jobs.cells;
select * from jobs.placements;
select jobs.place_queue('elsewhere', 1);
select jobs.insert('k', queue => 'elsewhere');
\echo :SQLSTATE
select jobs.retire_cell('host=new'), jobs.reinstate_cell();
\echo grant
select jobs.grant_producer('app'), jobs.grant_worker('app'), jobs.grant_viewer('app'), jobs.grant_application('app'), jobs.grant_operator('app'), jobs.grant_admin('app'), jobs.revoke('app');
