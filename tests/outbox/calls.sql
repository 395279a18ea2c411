-- Calls of the functions of outbox.sql by its owner, who is no superuser, in a new outbox.
\set SHOW_CONTEXT never

-- Results. Nothing but times depends on the session.
SET timezone = 'Asia/Kolkata';
SET intervalstyle = 'sql_standard';
SET datestyle = 'German';
SELECT id, state, unique_skipped_as_duplicate, replaced_id, queue, created_at = now(), scheduled_at = now() FROM jobs.insert('plain');
SELECT id, state, queue, scheduled_at = '2030-01-01 09:00 +0530' FROM jobs.insert(kind => 'all', args => '[1, {"a": null}]', queue => 'mail', priority => -32768, scheduled_at => '2030-01-01 09:00', max_attempts => 2147483647, tags => '{{a,b},{c,"d e"}}', meta => '{"n": null}', timeout => '1 2:03:04.5', retry => '"oban"', expires_at => '01.02.2031', pending => true, unique_opts => '{"by_args": true, "wait": false, "window": null}');
SELECT (jobs.insert('nulls', 'null', 'null', NULL, NULL, NULL, NULL, NULL, 'null', NULL, 'null', NULL, NULL)).state;
SELECT (jobs.insert(U&'cafe\0301', queue => U&'\212A')).queue;
SELECT (jobs.insert('endless', timeout => '-1 s')).queue;
SELECT (jobs.insert('exact', '{"n": 12345678901234567890.10, "big": 1e400, "d": 1, "d": 2}')).queue;
SELECT ord, id, state, queue, scheduled_at = '2030-01-01 09:00 +0530' FROM jobs.insert_many('[{"kind": "a"}, {"kind": "b", "args": null, "queue": "q", "scheduled_at": "01.01.2030 09:00"}, {"kind": "c", "args": 3, "queue": null, "priority": 4.0, "max_attempts": 5, "tags": ["x"], "meta": {"y": 1}, "timeout": 90, "retry": {"strategy": "constant"}, "expires_at": "2031-01-01 00:00:00 America/New_York", "pending": false, "unique_opts": {}}, {"kind": "d", "timeout": "1 day -01:00:00"}]');
SELECT ord, state, queue FROM jobs.insert_batch('batch', ARRAY[['1'], ['{"b": 2}']]::jsonb[], queue => 'q', priority => 3);
SELECT count(*) FROM jobs.insert_many('[]'), jobs.insert_batch('none', '{}');
SELECT id, queue, job, attempts, error, next_attempt_at FROM jobs.outbox ORDER BY id;
RESET timezone;
RESET intervalstyle;
RESET datestyle;

-- Part of the transaction.
BEGIN;
SELECT (jobs.insert('kept', queue => 'tx')).queue;
SAVEPOINT s;
SELECT (jobs.insert('lost', queue => 'tx')).queue;
ROLLBACK TO s;
COMMIT;
SELECT job ->> 'kind' FROM jobs.outbox WHERE queue = 'tx';
BEGIN READ ONLY;
SELECT jobs.insert('a');
ROLLBACK;

-- What the outbox says of itself, and what people can do.
SELECT queue, waiting, oldest_at IS NULL, refused FROM jobs.outbox_status ORDER BY queue;
SELECT jobs.outbox_refused(ARRAY[1, 2], 'no', '22023', NULL), jobs.outbox_refused(ARRAY[3], 'full', '54000', '0');
SELECT id, attempts, error, sqlstate, refused_at IS NULL, next_attempt_at > now() FROM jobs.outbox WHERE error IS NOT NULL ORDER BY id;
SELECT queue, waiting, oldest_at IS NULL, refused FROM jobs.outbox_status ORDER BY queue;
SELECT id, queue FROM jobs.outbox_take(3);
SELECT id, queue FROM jobs.outbox_take(20, ARRAY['q', 'K', E'\texact']);
SELECT id FROM jobs.outbox_take(20, '{}') WHERE id < 4;
SELECT jobs.retry_outbox(ARRAY[2, 3, 4, 99]), jobs.retry_outbox(), jobs.retry_outbox();
SELECT id, attempts FROM jobs.outbox WHERE error IS NULL AND sqlstate IS NULL AND refused_at IS NULL AND next_attempt_at IS NULL AND id < 4 ORDER BY id;
SELECT jobs.outbox_done(ARRAY[1, 2, 99]);
SELECT jobs.drop_outbox(ARRAY[2, 3, 4]), jobs.drop_outbox('{}');
SELECT min(id) FROM jobs.outbox;
SELECT jobs.drop_outbox(NULL);

-- Rights.
SELECT jobs.grant_producer('nobody at all');
SELECT jobs.grant_producer('producr');
SELECT jobs.grant_forwarder('PUBLIC');
SELECT jobs.grant_producer(NULL);
SELECT jobs.grant_producer('producer'), jobs.grant_forwarder('forwarder');
