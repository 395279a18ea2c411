-- A queue with something of everything in it. Kinds say what becomes of a job; what is fetched here
-- has a queue of its own, so that each fetch gets what is meant.

-- What operators set.
select jobs.define_kind('defined', queue => 'defined', priority => 7, max_attempts => 3, timeout => '5 minutes',
  retry => '{"strategy": "constant", "initial": 60}', unique_opts => '{"by_args": true}');
select jobs.define_kind('defined by nothing');
select jobs.pause_queue('paused', reason => 'held');
select jobs.configure_queue('slots', concurrency => 2);
select jobs.configure_queue('rate', rate => 2, rate_period => '30 days');
select jobs.configure_queue('bounded', max_waiting => 100);
select jobs.configure_queue('kept', retention_completed => '-1 second', retention_cancelled => '1 year', retention_discarded => '2 days');
select jobs.quiet_worker('quiet', 'it runs hot');
select jobs.stop_worker('stopped');
-- Rows of cells: in a database without a number they say nothing.
insert into jobs.cell (cell, is_self, identity, address) values (7, false, '00000000-0000-0000-0000-000000000007', 'host=seven');
insert into jobs.placement values ('spread', '{"by_args": ["tenant"]}', '{7,8}');
select jobs.define_limit('per tenant', by => '{"by_args": ["tenant"]}', queues => '{tenants}', concurrency => 1, rate => 2, rate_period => '30 days');
select jobs.override_limit('per tenant', '"other"', concurrency => 3);
select jobs.order_queue('ordered', '{"by_args": ["account"]}', true, 'block', true, '{"7": 2}');

-- Periodic jobs: one whose tick has its job, two that are overdue, one of them a duplicate, and one
-- that waits.
select jobs.schedule('done', '0 0 1 1 *', 'tick done', '{"n": 1}', time_zone => 'Europe/Berlin', queue => 'ticks', priority => 3, max_attempts => 2,
  tags => '{a,"b c"}', meta => '{"m": 1}', timeout => '2 minutes', retry => '"oban"', unique_opts => '{"by_args": true}');
update jobs.periodic_schedule set defined_at = defined_at - interval '400 days', next_run_at = next_run_at - interval '400 days';
select jobs.maintain();
select jobs.insert('tick held', unique_opts => '{"by_kind": true}', queue => 'ticks');
select jobs.schedule('overdue', '0 0 1 1 *', 'tick overdue', queue => 'ticks');
select jobs.schedule('overdue and held', '0 0 1 1 *', 'tick held', queue => 'ticks', unique_opts => '{"by_kind": true}');
update jobs.periodic_schedule set defined_at = defined_at - interval '400 days', next_run_at = next_run_at - interval '400 days'
 where name like 'overdue%';
select jobs.schedule('waits', 'every 3000 days', 'tick waits');
select jobs.schedule('paused', '@daily', 'tick paused', missed => 'skip');
select jobs.pause_periodic('paused', reason => 'held');

-- Available: as inserted, and put back into the lane in each way.
select jobs.insert('full', '{"a": [1, null, "\u00fc\\ \t"], "b": 12345678901234567890.10}', queue => 'lanes', priority => 5, max_attempts => 9,
  tags => '{a,"b c",""}', meta => '{"x": {"y": 1}}', timeout => '90 s', retry => '{"strategy": "linear"}', expires_at => now() + interval '10 days');
select jobs.insert('first of all', queue => 'lanes', priority => -32768);
select jobs.insert('released', queue => 'lanes');
select jobs.insert('failed at once', queue => 'lanes');
select jobs.release(id, token) from jobs.fetch('lanes', kinds => '{released}');
select jobs.fail(id, token, 'once more', retry_in => '0') from jobs.fetch('lanes', kinds => '{failed at once}');
select jobs.activate(id) from jobs.insert('activated', pending => true, queue => 'lanes');
select jobs.insert('as inserted', queue => 'lanes');
select jobs.cancel(id) from jobs.insert('taken back', queue => 'lanes');
select jobs.retry(id) from jobs.jobs where kind = 'taken back';
select jobs.insert('waits for ' || queue, queue => queue) from unnest('{paused,slots,slots,slots,rate,rate,rate}'::text[]) queue;

-- Waiting for a time, or for nothing.
select jobs.insert('scheduled', scheduled_at => now() + interval '1 day', tags => '{x}', expires_at => now() + interval '2 days');
select jobs.insert('far', scheduled_at => '9999-12-31 23:59:59.999999+00');
select jobs.insert('pending', pending => true, scheduled_at => now() + interval '1 day');
select jobs.insert('snoozed', queue => 'give back');
select jobs.snooze(id, token, '1 day') from jobs.fetch('give back');
select jobs.insert('retryable', queue => 'give back', timeout => '-1 second');
select jobs.fail(id, token, E'it''s\n\\broken\u00fc', retry_in => '1 day', details => '{"type": "Broken", "trace": ["a", null]}') from jobs.fetch('give back');

-- Running: heartbeats, cancel requests, slots. Nothing here ends before an hour has passed.
select jobs.insert('running', queue => 'running', timeout => '-1 second');
select jobs.insert('running with a deadline', queue => 'running', timeout => '3 hours');
select jobs.insert('running and asked to stop', queue => 'running', timeout => '-1 second');
select jobs.insert('running and holding', queue => 'running', timeout => '-1 second', unique_opts => '{"by_state": [], "hold_for": "P10D"}');
select jobs.fetch('running', 10, worker => 'host:1', lease => '2 hours');
select jobs.heartbeat(id, token, '1 day', '{"done": 0.5}') from jobs.jobs where kind = 'running';
select jobs.cancel(id, 'not needed') from jobs.jobs where kind = 'running and asked to stop';
select jobs.fetch('slots', 10, lease => '50 s');
select jobs.fetch('rate', 10, lease => '50 s');
select jobs.insert('limited', '{"tenant": "acme"}', queue => 'tenants') from generate_series(1, 3);
select jobs.fetch('tenants', 10, lease => '50 s');
-- One that waits for its retry, one that runs, one that blocks its key, each with one behind it.
select jobs.insert('ordered', jsonb_build_object('account', n % 3), queue => 'ordered', max_attempts => 1 + n % 3) from generate_series(1, 6) n;
select jobs.fail(id, token, 'no', retry_in => '1 day') from jobs.fetch('ordered', 10, lease => '50 s') where args->>'account' <> '2';
-- Only the timeout of a minute would be in the way.
update jobs.running set deadline_at = null, lease_expires_at = now() + interval '1 day' where lease = '50 s';

-- Of outboxes.
select jobs.forward(gen_random_uuid(), array[gen_random_uuid()], '[{"kind": "forwarded", "queue": "of an outbox"}]', array[gen_random_uuid()]);
select jobs.forward_report(gen_random_uuid(), 'shop', 1, now(), 1);

-- Final.
select jobs.insert('completed', queue => 'kept');
select jobs.complete(id, token, '{"rows": 3}') from jobs.fetch('kept');
select jobs.insert('completed and asked to stop', queue => 'kept');
with f as materialized (select id, token from jobs.fetch('kept')), c as materialized (select f.*, jobs.cancel(id, 'too late') from f)
select jobs.complete(id, token) from c;
select jobs.cancel(id, 'no reason') from jobs.insert('cancelled');
select jobs.insert('cancelled by force', queue => 'give back');
select jobs.cancel(id, 'at once', force => true) from jobs.fetch('give back');
select jobs.insert('discarded', queue => 'give back', max_attempts => 2);
select jobs.fail(id, token, 'first', retry_in => '0') from jobs.fetch('give back');
select jobs.fail(id, token, 'second', details => '{"code": 2}') from jobs.fetch('give back');
-- Gone, and with them the newest ids: no other job may get these.
select jobs.delete(id) from jobs.insert_batch('gone', array_fill('1'::jsonb, '{20}'));

-- Keys: several jobs under one, live and folded; returned by a retry; lost by delete.
select jobs.insert('many', unique_opts => '{"by_state": ["pending"]}') from generate_series(1, 3);
select jobs.delete(max(id)) from jobs.jobs where kind = 'many';
select jobs.cancel(id) from jobs.insert('folded', unique_opts => '{"by_state": ["pending"]}');
select jobs.cancel(id) from jobs.insert('folded', unique_opts => '{"by_state": ["pending"]}');
select jobs.cancel(id) from jobs.insert('folded', unique_opts => '{"by_state": ["pending"]}');
select jobs.cancel(id) from jobs.insert('returned', unique_opts => '{"by_kind": true}');
select jobs.insert('returned', unique_opts => '{"by_kind": true}', scheduled_at => now() + interval '1 day');
select jobs.retry(min(id)) from jobs.jobs where kind = 'returned';
select jobs.delete(id) from jobs.insert('lost', unique_opts => '{"by_kind": true}');
-- A claim that is looked at because of one of its jobs, and must stay because of the other.
select jobs.insert('half lost', unique_opts => '{"by_state": ["pending"]}', queue => 'lanes') from generate_series(1, 2);
select jobs.delete(max(id)) from jobs.jobs where kind = 'half lost';

-- Holds: of a deleted job, given back by the start, by success, and by neither.
select jobs.delete(id) from jobs.insert('held by a deleted job', unique_opts => '{"by_state": [], "hold_for": "P10D"}');
select jobs.insert('held until the start', unique_opts => '{"by_state": [], "hold_for": "P10D", "hold_until": "start"}', queue => 'give back');
select jobs.release(id, token) from jobs.fetch('give back');
select jobs.complete(id, token) from jobs.fetch('give back');
select jobs.insert('held until success', unique_opts => '{"by_state": [], "hold_for": "P10D"}', queue => 'give back');
select jobs.complete(id, token) from jobs.fetch('give back');
select jobs.cancel(id) from jobs.insert('held by a cancelled job', unique_opts => '{"by_state": [], "hold_for": "P10D"}');

-- The history of minutes that are over.
insert into jobs.history_bucket (at, queue, kind, counts) values (date_trunc('hour', now()) - interval '1 hour', 'mail', 'history', '{0,7}');

-- Overdue: what the next maintenance acts on.
select jobs.insert('due', queue => 'due', scheduled_at => clock_timestamp() + interval '20 ms');
select jobs.insert('due retry', queue => 'give back');
select jobs.fail(id, token, 'soon again', retry_in => '20 ms') from jobs.fetch('give back');
select jobs.insert('expired', expires_at => clock_timestamp() + interval '20 ms');
-- Once it is rescued it waits for long, so that nothing else is due while a test looks.
select jobs.insert('lease over', queue => 'give back', timeout => '-1 second', retry => '{"strategy": "constant", "initial": "P1D", "max": "P2D"}');
select jobs.fetch('give back', lease => '20 ms');
select jobs.insert('lease over for good', queue => 'give back', timeout => '-1 second', max_attempts => 1);
select jobs.fetch('give back', lease => '20 ms');
select jobs.cancel(id) from jobs.insert('past its retention', unique_opts => '{"by_kind": true}');
update jobs.finished set finalized_at = finalized_at - interval '30 days'
 where job_id = (select id from jobs.jobs where kind = 'past its retention');
select pg_sleep(0.1);

-- Rights.
grant usage on schema jobs to dump_producer, dump_viewer;
grant execute on function jobs.insert to dump_producer;
grant execute on procedure jobs.wait to dump_producer with grant option;
grant select on jobs.queues to dump_viewer;
grant select (id, state) on jobs.jobs to dump_viewer;
