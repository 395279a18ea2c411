-- The beginning of a move, read by the script of each system: options, the transaction, and two
-- tables. A script sets :source (the table that it moves from) before, fills `moving` after, and
-- reads end.sql then.

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

-- What was moved: the old row, and the job that it became. A move is checked, repeated and undone
-- by it.
CREATE TABLE IF NOT EXISTS public.jobs_moved (
  source    text NOT NULL,                    -- the old system's table
  old_id    text NOT NULL,
  job_id    bigint NOT NULL,                  -- the new job, or the one that it duplicated
  duplicate boolean NOT NULL,
  old       jsonb NOT NULL,                   -- the old row, whole
  moved_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (source, old_id)
);
-- One that somebody else made could have triggers.
DO $$
BEGIN
  IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'public.jobs_moved'::regclass), 'USAGE') THEN
    RAISE EXCEPTION 'public.jobs_moved is somebody else''s table'
      USING ERRCODE = 'insufficient_privilege', HINT = 'Run all moves as one role, or drop the table if it is of no use any more.';
  END IF;
END $$;
CREATE INDEX IF NOT EXISTS jobs_moved_job_id ON public.jobs_moved (job_id);

-- What is being moved, in the words of jobs.insert.
CREATE TEMPORARY TABLE moving (
  position       bigint GENERATED ALWAYS AS IDENTITY, -- as the old system would have run them
  source         text NOT NULL DEFAULT :'source',
  old_id         text NOT NULL,
  old            jsonb NOT NULL,
  attempt        int NOT NULL DEFAULT 0,              -- attempts that are over
  kind           text NOT NULL,
  args           jsonb NOT NULL,
  unique_opts    jsonb,                               -- null: as jobs.define_kind says
  must_be_unique boolean NOT NULL DEFAULT false,      -- unique, but its row does not say by what
  queue          text,
  priority       int,
  scheduled_at   timestamptz,
  max_attempts   int,                                 -- attempts that are left
  tags           text[],
  meta           jsonb,
  timeout        interval DEFAULT nullif(:'timeout', '')::interval,
  retry          jsonb,
  expires_at     timestamptz
) ON COMMIT DROP;
