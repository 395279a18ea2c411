-- The start of a migration, included by each system's script: options, the transaction and two
-- tables. A script first sets :source (the table that it moves from). Afterwards it fills `moving`
-- and includes end.sql.

\set ON_ERROR_STOP on
\if :{?queue}
\else
  \set queue ''
\endif
\if :{?limit}
\else
  \set limit ALL
\endif
\if :{?running}
\else
  \set running off
\endif
\if :{?unique}
\else
  \set unique ask
\endif
\if :{?timeout}
\else
  \set timeout ''
\endif

BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL client_min_messages = warning;

-- The moved rows, each with the job that it became. Checks, repetitions and undo.sql use this
-- table.
CREATE TABLE IF NOT EXISTS public.jobs_moved (
  source    text NOT NULL,                    -- the old system's table
  old_id    text NOT NULL,
  job_id    bigint NOT NULL,                  -- the new job, or the one that it duplicates
  duplicate boolean NOT NULL,
  old       jsonb NOT NULL,                   -- the complete old row
  moved_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (source, old_id)
);
-- A table of another role could have triggers.
DO $$
BEGIN
  IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'public.jobs_moved'::regclass), 'USAGE') THEN
    RAISE EXCEPTION 'public.jobs_moved belongs to another role'
      USING ERRCODE = 'insufficient_privilege', HINT = 'Run all migrations as one role, or drop the table if you no longer need it.';
  END IF;
END $$;
CREATE INDEX IF NOT EXISTS jobs_moved_job_id ON public.jobs_moved (job_id);

-- The rows being moved, with the parameters of jobs.insert.
CREATE TEMPORARY TABLE moving (
  position       bigint GENERATED ALWAYS AS IDENTITY, -- in the old system's order
  source         text NOT NULL DEFAULT :'source',
  old_id         text NOT NULL,
  old            jsonb NOT NULL,
  attempt        int NOT NULL DEFAULT 0,              -- finished attempts
  kind           text NOT NULL,
  args           jsonb NOT NULL,
  unique_opts    jsonb,                               -- null: the kind's
  must_be_unique boolean NOT NULL DEFAULT false,      -- unique, but by unknown columns
  queue          text,
  priority       int,
  scheduled_at   timestamptz,
  max_attempts   int,                                 -- remaining attempts
  tags           text[],
  meta           jsonb,
  timeout        interval DEFAULT nullif(:'timeout', '')::interval,
  retry          jsonb,
  expires_at     timestamptz
) ON COMMIT DROP;
