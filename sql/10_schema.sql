-- For the rest of this script only: whatever path CREATE EXTENSION runs it with, names mean what
-- they say.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The schema is made here, not by the control file, so that it belongs to the
-- extension: DROP EXTENSION removes it, and nobody else owns it.
CREATE SCHEMA jobs;
COMMENT ON SCHEMA jobs IS
  'The job queue: functions that insert, claim, finish and maintain jobs, and views that show them.';

CREATE TYPE jobs.state AS ENUM (
  'available', 'scheduled', 'pending', 'running', 'retryable',
  'completed', 'cancelled', 'discarded');
COMMENT ON TYPE jobs.state IS
  'State of a job. completed, cancelled and discarded are final; the others are on the way.';
