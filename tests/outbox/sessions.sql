-- Sessions beside each other, in a new outbox. $PSQL is one more of the owner's.
\set SHOW_CONTEXT never
LISTEN jobs_outbox;

-- Inserts do not notify until a take has found nothing.
\! $PSQL -c "SELECT (jobs.insert('a', queue => 'q')).state"
SELECT id, queue FROM jobs.outbox_take(10);
SELECT jobs.outbox_done('{1}');
\! $PSQL -c "SELECT (jobs.insert('b')).state"
SELECT count(*) FROM jobs.outbox_take(10);
SELECT jobs.outbox_done('{2}');
SELECT count(*) FROM jobs.outbox_take(10);
\! $PSQL -c "SELECT (jobs.insert('c')).state"
SELECT 'after c';
\! $PSQL -c "SELECT count(*) FROM jobs.insert_many('[{\"kind\": \"d\"}, {\"kind\": \"d\"}]')"
SELECT 'after d';
\! $PSQL -c "SELECT count(*) FROM jobs.insert_batch('e', ARRAY['1']::jsonb[])"
SELECT 'after e';
-- Not for what is rolled back, and not from transactions that are to be prepared.
\! $PSQL -c "BEGIN; SELECT (jobs.insert('f')).state; ROLLBACK"
SELECT 'after f';
\! $PSQL -c "BEGIN" -c "SELECT (jobs.insert('g')).state" -c "PREPARE TRANSACTION 'g'" 2>&1
\! PGOPTIONS="-c jobs.notify=off" $PSQL -c "BEGIN" -c "SELECT (jobs.insert('h')).state" -c "PREPARE TRANSACTION 'h'" -c "COMMIT PREPARED 'h'"
SELECT 'after h';
-- A take that finds jobs ends that.
SELECT id, job FROM jobs.outbox_take(10);
\! $PSQL -c "SELECT (jobs.insert('i')).state"
SELECT 'after i';
-- What people let go again is announced, whoever waits.
SELECT jobs.outbox_refused('{3}', 'no', '22023', NULL);
\! $PSQL -c "SELECT jobs.retry_outbox()"
SELECT 'after retry';

-- One forwarder moves at a time; a rollback leaves everything to the next. Its rows are locked.
BEGIN;
SELECT id FROM jobs.outbox_take(2);
\! $PSQL -c "SELECT count(*) FROM jobs.outbox_take(10)"
\! $PSQL -c "SET lock_timeout = '10 ms'" -c "SELECT jobs.drop_outbox('{3}')" 2>&1 | head -n 1
\! $PSQL -c "SELECT (jobs.insert('j')).state"
SELECT jobs.outbox_done('{3}'), jobs.outbox_refused('{4}', 'full', '54000', '1 day');
ROLLBACK;
\! $PSQL -c "SELECT id, attempts FROM jobs.outbox_take(2) JOIN jobs.outbox USING (id)"
BEGIN;
SELECT id FROM jobs.outbox_take(2);
SELECT jobs.outbox_done('{3}'), jobs.outbox_refused('{4}', 'full', '54000', '1 day');
COMMIT;
\! $PSQL -c "SELECT id FROM jobs.outbox_take(1)"
SELECT id, attempts, error, sqlstate, next_attempt_at - refused_at FROM jobs.outbox WHERE id = 4;

-- Each cell has its rows and its forwarder. When one says that rows are another's, they have none.
SELECT count(*), bool_and(id IS NULL) FROM jobs.insert_many('[{"kind": "c"}, {"kind": "c"}]');
SELECT jobs.outbox_aim(array_agg(id), 7) FROM jobs.outbox WHERE job ->> 'kind' = 'c';
BEGIN;
SELECT count(*) FROM jobs.outbox_take(10, cell => 7);
\! $PSQL -c "SELECT count(*) FROM jobs.outbox_take(10, cell => 7)" -c "SELECT count(*) FROM jobs.outbox_take(10, '{}', 8)" -c "SELECT count(*) FROM jobs.outbox_take(10) WHERE job ->> 'kind' = 'c'"
SELECT jobs.outbox_aim(array_agg(id), 8) FROM jobs.outbox WHERE cell = 7;
SELECT jobs.outbox_refused(array_agg(id), 'full', '54000', '0') FROM jobs.outbox WHERE cell = 8;
SELECT cell, attempts FROM jobs.outbox WHERE job ->> 'kind' = 'c';
SELECT jobs.outbox_refused(array_agg(id), 'elsewhere', 'JB001', '0') FROM jobs.outbox WHERE cell = 8;
COMMIT;
SELECT count(*) FROM jobs.outbox_take(10) WHERE job ->> 'kind' = 'c';
SELECT jobs.drop_outbox(array_agg(id)) FROM jobs.outbox WHERE job ->> 'kind' = 'c';

-- Rows of a batch have its order. A take ends at 16 MB, but has one row at least.
SELECT count(*), bool_and(id IS NULL) FROM jobs.insert_many((SELECT jsonb_agg(jsonb_build_object('kind', 'n', 'args', n)) FROM generate_series(1, 5000) n));
SELECT count(*) FROM (SELECT id - (job ->> 'args')::integer AS first, count(*) FROM jobs.outbox WHERE job ->> 'kind' = 'n' GROUP BY 1) one;
SELECT count(*) FROM (SELECT jobs.insert('big', to_jsonb(repeat('x', 9000000)), queue => 'big') FROM generate_series(1, 3)) x;
SELECT jobs.outbox_done(array_agg(id)) FROM jobs.outbox WHERE queue IS DISTINCT FROM 'big';
SELECT count(*) FROM jobs.outbox_take(100);
SELECT jobs.drop_outbox(array_agg(id)) FROM jobs.outbox;
