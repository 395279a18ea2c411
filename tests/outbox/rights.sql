-- What roles can do, behind calls.sql: producer inserts, forwarder forwards.
\set SHOW_CONTEXT never

\c - producer
SELECT (jobs.insert('a')).state;
SELECT count(*) FROM jobs.insert_many('[{"kind": "a", "timeout": "1 hour", "tags": ["x"]}]'), jobs.insert_batch('a', ARRAY['1']::jsonb[], 'null', 'q', timeout => '1 h');
SELECT * FROM jobs.outbox;
SELECT * FROM jobs.outbox_source;
SELECT * FROM jobs.outbox_status;
INSERT INTO jobs.outbox (job) VALUES ('{}');
SELECT jobs.outbox_take(1);
SELECT jobs.outbox_done('{}');
SELECT jobs.outbox_refused('{}', '', '', NULL);
SELECT jobs.outbox_aim('{}', 1);
SELECT jobs.outbox_has_cells(true);
SELECT jobs.retry_outbox();
SELECT jobs.drop_outbox('{}');
SELECT jobs.grant_producer('forwarder');
SELECT jobs.revoke('forwarder');
SELECT jobs.outbox_name('kind', 'a');
CREATE TABLE jobs.mine ();

\c - forwarder
SELECT count(*) FROM jobs.outbox_source;
SELECT count(*) > 0 FROM jobs.outbox;
SELECT count(*) > 0 FROM jobs.outbox_status;
BEGIN;
SELECT count(*) FROM jobs.outbox_take(1);
SELECT jobs.outbox_done('{}'), jobs.outbox_refused('{}', '', '', NULL), jobs.outbox_aim('{}', 1), jobs.outbox_has_cells(false);
COMMIT;
SELECT jobs.insert('a');
DELETE FROM jobs.outbox;
SELECT jobs.retry_outbox();

-- Another schema before pg_catalog turns nothing.
\c - producer
CREATE SCHEMA trap;
CREATE FUNCTION trap.trap(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
CREATE OPERATOR trap.~ (LEFTARG = text, RIGHTARG = text, PROCEDURE = trap.trap);
CREATE OPERATOR trap.!~ (LEFTARG = text, RIGHTARG = text, PROCEDURE = trap.trap);
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, PROCEDURE = trap.trap);
CREATE OPERATOR trap.<> (LEFTARG = text, RIGHTARG = text, PROCEDURE = trap.trap);
CREATE FUNCTION trap.jsonb_typeof(jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
CREATE TABLE pg_temp.outbox (queue text, job jsonb);
SET search_path = trap, pg_catalog;
SELECT 'a'::text = 'a'::text;
SELECT (jobs.insert('a', '{"b": 1}', '{"by_args": true}', 'q', tags => '{x}', timeout => '1 s')).state;
SELECT state FROM jobs.insert_many('[{"kind": "a", "priority": 1, "scheduled_at": "2030-01-01", "timeout": "5 s"}]');
SELECT state FROM jobs.insert_batch('a', ARRAY['1']::jsonb[], timeout => '1 s');
SELECT state FROM jobs.insert(U&'\0001');
RESET search_path;

-- Whoever runs the file again needs no superuser, and must be the owner. Rows and rights stay.
\c - app
CREATE TABLE before AS SELECT id, key, job FROM jobs.outbox;
CREATE TABLE source AS SELECT id FROM jobs.outbox_source;
\c - postgres
\i outbox/outbox.sql
SELECT jobs.grant_producer('forwarder');
SELECT jobs.revoke('forwarder');
\c - app
\i outbox/outbox.sql
SELECT (SELECT count(*) FROM before) = (SELECT count(*) FROM before JOIN jobs.outbox USING (id, key, job)), count(*) FROM source JOIN jobs.outbox_source USING (id);
DROP TABLE before, source;
\c - producer
SELECT (jobs.insert('a')).state;
\c - app
SELECT jobs.revoke('producer'), jobs.revoke('producer');
\c - producer
SELECT jobs.insert('a');
