-- A queue of which every metric has something to tell, and roles that may look and may not.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION jobs;
CREATE ROLE viewer LOGIN;
CREATE ROLE stranger LOGIN;
SELECT jobs.grant_viewer('viewer');

-- More jobs than are counted at once, so that counts are kept.
SELECT count(*) FROM jobs.insert_batch('bulk', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 10001) n), queue => 'long');
SELECT count(*) FROM jobs.insert_batch('mail', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 6) n), '{"by_args": true}', queue => 'mail');
SELECT jobs.configure_queue('mail', concurrency => 4, max_waiting => 100);
SELECT jobs.complete(id, token) FROM jobs.fetch('mail', worker => 'a');
SELECT (jobs.fail(id, token, 'no route to host')).state FROM jobs.fetch('mail', worker => 'a');
SELECT (jobs.fail(id, token, 'no such address', retryable => false)).state FROM jobs.fetch('mail', worker => 'a');
SELECT count(*) FROM jobs.fetch('mail', worker => 'a', lease => '1 hour');
SELECT count(*) FROM jobs.fetch('mail', worker => 'b', lease => '1 millisecond');
SELECT count(*) FROM jobs.insert('parked "with" \ odd, characters', queue => E'odd "queue" \\ ä');
SELECT jobs.pause_queue(E'odd "queue" \\ ä');
SELECT count(*) FROM jobs.insert('late', scheduled_at => clock_timestamp() + interval '10 milliseconds', queue => 'late') late, jobs.insert('next', scheduled_at => now() + interval '1 hour', queue => 'late') next;
SELECT count(*) FROM jobs.insert('doomed', queue => 'doomed', expires_at => clock_timestamp() + interval '1 millisecond');
SELECT pg_sleep(0.1);
-- Each task handles something or runs; then something fails, and leases run out that nobody
-- rescues.
SELECT count(*) FROM jobs.maintain();
SELECT count(*) FROM jobs.fetch('mail', worker => 'c', lease => '1 millisecond');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no pruning today'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON jobs.finished FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT jobs.configure_queue('mail', concurrency => 4, max_waiting => 100, retention_completed => '0', retention_discarded => '0');
SELECT count(*) FROM jobs.maintain();
SELECT jobs.pause_maintenance();
SELECT count(*) FROM jobs.fetch('late', worker => 'd', lease => '1 millisecond');
SELECT jobs.worker_beat(worker, '{mail}', 1) FROM unnest('{a,idle,quiet,stop,lost}'::text[]) worker;
SELECT jobs.quiet_worker('quiet'), jobs.stop_worker('stop');
-- No lease runs out between two looks, and no worker is lost.
UPDATE jobs.worker SET last_seen_at = now() + CASE worker WHEN 'lost' THEN interval '-1 hour' ELSE interval '1 day' END;
UPDATE jobs.running SET deadline_at = NULL, lease_expires_at = now() + CASE worker WHEN 'a' THEN interval '1 day' ELSE interval '-1 day' END;
SELECT jobs.define_limit('one "total"', queues => '{limited}', concurrency => 1), jobs.insert_batch('k', '{1,2}', queue => 'limited');
SELECT count(*) FROM jobs.fetch('limited', 2, worker => 'a', lease => '1 day');
SELECT jobs.order_queue('ordered', '{"by_kind": true}', strict => true, on_discard => 'block'), jobs.insert_batch('k', '{1,2}', queue => 'ordered');
SELECT (jobs.fail(id, token, 'no', retryable => false)).state FROM jobs.fetch('ordered');
SELECT jobs.forward_report('00000000-0000-0000-0000-00000000000a', 'shop', 3, now() - interval '1 minute', 1);
BEGIN;
SELECT jobs.set_cell(0), jobs.place_queue('*', 0);
COMMIT;
ANALYZE;
-- What this session has counted, too, is seen from now on.
SELECT pg_stat_force_next_flush();
