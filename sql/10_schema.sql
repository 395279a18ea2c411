-- For this script only, whatever search_path CREATE EXTENSION runs with.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Not by the control file: so the schema belongs to the extension, and DROP EXTENSION removes it.
CREATE SCHEMA jobs;
COMMENT ON SCHEMA jobs IS
  'The job queue: functions that insert, fetch, finish and manage jobs, and views that show them.
Every function can raise 22004 and 22023, and every function that writes 25006, 40001 and JB001. A function''s COMMENT lists its other errors.
- 22004: a value, or an element of an array, must not be null
- 22023: a value is invalid. As for 22004, the error''s column name is the parameter
- 25006: the transaction is read-only, or the server is a standby
- 40001: another transaction has changed the same data, under REPEATABLE READ or SERIALIZABLE. Retry the transaction
- 40P01: deadlock. Retry the transaction
- P0002: no job has this id
- JB001: this cell does not take the queue or job, DETAIL {"cell": .., "queue": ..}, or is retired, DETAIL {"cell": .., "retired": true}; HINT is the address to use';

CREATE TYPE jobs.state AS ENUM (
  'available', 'scheduled', 'pending', 'running', 'retryable',
  'completed', 'cancelled', 'discarded');
COMMENT ON TYPE jobs.state IS 'State of a job. completed, cancelled and discarded are final.';
