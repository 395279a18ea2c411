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
-- The schema
--
-- A job's state is the table that its second row is in. The first row, in job, says what to do: it
-- is written once and work never rewrites it. The second row is narrow. A transition deletes it
-- from one table and inserts it into another, in the caller's transaction:
--
--     insert ------> ready <------ scheduled <----- insert, with a scheduled_at or pending
--                    |   ^            ^
--              fetch |   | release,   | fail, snooze
--                    v   | retry      |
--                    running ---------+
--                    |
--                    | complete, fail for good, cancel
--                    v
--                    finished ------> deleted, when its retention ends
--
-- ready       available. A lane is a queue and a priority; a fetch takes the lowest seq of a lane.
-- scheduled   scheduled, retryable or pending (due_at is infinity), until due_at.
-- running     a lease: the worker, its token, when the lease and the attempt end.
-- finished    completed, cancelled or discarded, with the outcome.
-- error       one row per failed attempt.
-- answer      what a used token did, for an hour, where no other table shows it.
--
-- A unique job has a third row. unique_claim has one row per key, and its primary key decides which
-- of several inserts wins. unique_note says what later happened to jobs under a key.
--
-- kind, queue, queue_slot, queue_start and retention_change hold settings and limits,
-- periodic_schedule the schedules, worker and worker_command the workers, maintenance_* what
-- maintenance did, history_* and kept_* counts, audit_record every change made by a call.
--
-- jobs.check() tests what must hold between these tables. docs/architecture.md has more.
--
-- There are no CHECK constraints: only the extension writes these tables, and Postgres would parse
-- a constraint's text again for each statement.

-- Ids of jobs and positions in the ready lanes come from one sequence: a job that
-- is available at once has seq = id, so its ready row is found without an index of
-- its own.
CREATE SEQUENCE jobs.job_seq;
COMMENT ON SEQUENCE jobs.job_seq IS 'Ids of jobs, and positions in the ready lanes.';

CREATE TABLE jobs.job (
  id           bigint      NOT NULL,
  created_at   timestamptz NOT NULL,
  scheduled_at timestamptz,
  expires_at   timestamptz,
  hold_ends_at timestamptz,
  timeout      interval,
  max_attempts integer     NOT NULL,
  priority     smallint    NOT NULL,
  kind         text        COLLATE "C" NOT NULL,
  queue        text        COLLATE "C" NOT NULL,
  args         jsonb       NOT NULL,
  meta         jsonb,
  tags         text[],
  retry        jsonb,
  unique_key   bytea,
  hold_until   text,
  unique_until  timestamptz,
  unique_window interval,
  unique_final  smallint,
  CONSTRAINT job_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE jobs.job IS 'What to do: one row a job, written once, changed only by update and conflict updates.';
COMMENT ON COLUMN jobs.job.scheduled_at IS 'As given at insertion; null: created_at.';
COMMENT ON COLUMN jobs.job.timeout IS 'How long one attempt may run; null: 1 minute; -1 second: no limit.';
COMMENT ON COLUMN jobs.job.meta IS 'Null: {}.';
COMMENT ON COLUMN jobs.job.tags IS 'Null: {}.';
COMMENT ON COLUMN jobs.job.retry IS 'Retry policy; null: river.';
COMMENT ON COLUMN jobs.job.unique_key IS 'SHA-256 of the canonical unique text; null: inserted without uniqueness.';
COMMENT ON COLUMN jobs.job.hold_ends_at IS 'Until when the job holds its key by itself, whatever becomes of it; null: it does not.';
COMMENT ON COLUMN jobs.job.hold_until IS 'What releases the key before that: success or start.';
COMMENT ON COLUMN jobs.job.unique_until IS 'Until when the job counts under its key once it is final, however short its retention: the end of its by_period, or of its window from created_at; null: neither.';
COMMENT ON COLUMN jobs.job.unique_window IS 'The same, counted from when it was due: its window from scheduled_at; null: none.';
COMMENT ON COLUMN jobs.job.unique_final IS 'The final states in which that is so: 1 completed, 2 cancelled, 4 discarded, or their sum; null: none.';

-- The tables that jobs pass through are empty again and again. Vacuum would give their pages back
-- each time, under a lock that keeps every fetch waiting, and the next jobs would have to get new
-- ones.
CREATE TABLE jobs.ready (
  seq          bigint      NOT NULL,
  job_id       bigint      NOT NULL,
  scheduled_at timestamptz,
  available_at timestamptz,
  expires_at   timestamptz,
  attempt      integer     NOT NULL,
  priority     smallint    NOT NULL,
  queue        text        COLLATE "C" NOT NULL,
  CONSTRAINT ready_pkey PRIMARY KEY (queue, priority, seq)
) WITH (vacuum_truncate = off);
-- A job that becomes available later than it was inserted gets a new seq; only such rows need an
-- index by job.
CREATE INDEX ready_requeued ON jobs.ready (job_id) WHERE seq <> job_id;
CREATE INDEX ready_expires ON jobs.ready (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON TABLE jobs.ready IS 'Available jobs: a row may be fetched now. Lanes (queue, priority) are first come, first served by seq.';
COMMENT ON COLUMN jobs.ready.scheduled_at IS 'When the job was due, where that differs from its first schedule; null: as in job.';
COMMENT ON COLUMN jobs.ready.available_at IS 'When the job was activated, released, or moved to a time that had passed; null: it has been available since it was inserted or due.';

CREATE TABLE jobs.scheduled (
  job_id       bigint      NOT NULL,
  due_at       timestamptz NOT NULL,
  expires_at   timestamptz,
  attempt      integer     NOT NULL,
  state        jobs.state  NOT NULL,
  queue        text        COLLATE "C" NOT NULL,
  CONSTRAINT scheduled_pkey PRIMARY KEY (job_id)
) WITH (vacuum_truncate = off);
-- Maintenance finds what is due by its time, whatever the queues are called; a fetch finds what is
-- due of its queues.
CREATE INDEX scheduled_next ON jobs.scheduled (due_at);
CREATE INDEX scheduled_due ON jobs.scheduled (queue, due_at);
CREATE INDEX scheduled_expires ON jobs.scheduled (expires_at) WHERE expires_at IS NOT NULL;
COMMENT ON TABLE jobs.scheduled IS 'Jobs that wait for a time: scheduled, retryable, and pending (due at infinity).';

CREATE TABLE jobs.running (
  job_id              bigint      NOT NULL,
  token               bigint      NOT NULL,
  attempted_at        timestamptz NOT NULL,
  lease_expires_at    timestamptz NOT NULL,
  deadline_at         timestamptz,
  scheduled_at        timestamptz,
  hold_ends_at        timestamptz,
  cancel_requested_at timestamptz,
  slot                bigint,
  attempt             integer     NOT NULL,
  history_key         integer,
  lease               interval,
  worker              text        NOT NULL,
  cancel_reason       text,
  progress            jsonb,
  queue               text        COLLATE "C",
  CONSTRAINT running_pkey PRIMARY KEY (job_id)
) WITH (fillfactor = 70, vacuum_truncate = off);
COMMENT ON TABLE jobs.running IS 'Leases: which worker holds which job until when. Updated in place by heartbeats.';
COMMENT ON COLUMN jobs.running.hold_ends_at IS 'As in job, if completing the job releases its key; else null.';
COMMENT ON COLUMN jobs.running.slot IS 'The slot of queue_slot that the job takes; null: its queue had no limit.';
COMMENT ON COLUMN jobs.running.queue IS 'The queue that the job was fetched from, and counts for while it runs, where it was given another one meanwhile; null: as in job.';
COMMENT ON COLUMN jobs.running.history_key IS 'A hash of the queue and kind that the job was fetched with. Sessions that know them need not read job to count the end of the attempt; null: it was fetched by a statement.';
COMMENT ON COLUMN jobs.running.lease IS 'The lease a fetch asked for; null: the timeout, or 1 hour where there is none.';

-- Appended, so that a heartbeat waits for nobody. Not dumped.
CREATE TABLE jobs.heartbeat_note (
  job_id           bigint      NOT NULL,
  token            bigint      NOT NULL,
  lease_expires_at timestamptz NOT NULL,
  at               timestamptz NOT NULL,
  goes_on_until    timestamptz NOT NULL
);
CREATE INDEX heartbeat_note_by_job ON jobs.heartbeat_note (job_id);
COMMENT ON TABLE jobs.heartbeat_note IS 'Heartbeats for jobs that another transaction had locked. The rescue reads them before it takes a job, and deletes those that no longer apply.';
COMMENT ON COLUMN jobs.heartbeat_note.lease_expires_at IS 'lease_expires_at of running at that time. Once a later heartbeat has changed it, this row no longer applies.';
COMMENT ON COLUMN jobs.heartbeat_note.at IS 'Time of the heartbeat. The latest one counts.';
COMMENT ON COLUMN jobs.heartbeat_note.goes_on_until IS 'The new end of the lease.';

CREATE TABLE jobs.finished (
  job_id              bigint      NOT NULL,
  finalized_at        timestamptz NOT NULL,
  token               bigint,
  attempted_at        timestamptz,
  scheduled_at        timestamptz,
  cancel_requested_at timestamptz,
  kept_until          timestamptz,
  attempt             integer     NOT NULL,
  state               jobs.state  NOT NULL,
  is_kept             boolean     NOT NULL,
  worker              text,
  cancel_reason       text,
  output              jsonb,
  CONSTRAINT finished_pkey PRIMARY KEY (job_id)
);
-- Most jobs go by the setting of their state: is_kept is false, and this index has them in the
-- order in which they are to be pruned. The others are in the order of their own ends, so that
-- maintenance walks over no job that is to stay.
CREATE INDEX finished_by_age ON jobs.finished (state, is_kept, finalized_at);
CREATE INDEX finished_kept ON jobs.finished (kept_until) WHERE kept_until IS NOT NULL;
COMMENT ON TABLE jobs.finished IS 'Outcomes: completed, cancelled and discarded jobs until they are pruned.';
COMMENT ON COLUMN jobs.finished.kept_until IS 'Until when the job is kept, where its queue or its uniqueness says so; null: as long as the setting jobs.retention_.. of its state says.';
COMMENT ON COLUMN jobs.finished.is_kept IS 'Whether kept_until is set. It takes no room in an index where a null would.';
COMMENT ON COLUMN jobs.finished.token IS 'The token that finished the job, so that a repeated call gets the same answer; null: not finished by a worker.';

CREATE TABLE jobs.error (
  job_id       bigint      NOT NULL,
  at           timestamptz NOT NULL,
  token        bigint,
  scheduled_at timestamptz,
  attempt      integer     NOT NULL,
  state        jobs.state  NOT NULL,
  worker       text,
  error        text        NOT NULL,
  details      jsonb
);
CREATE INDEX error_by_job ON jobs.error (job_id, at);
-- Appended in the order of time, so that a few entries find the latest errors among millions.
CREATE INDEX error_by_age ON jobs.error USING brin (at);
COMMENT ON TABLE jobs.error IS 'Failed attempts, appended.';
COMMENT ON COLUMN jobs.error.state IS 'What became of the job: retryable, available, discarded or cancelled.';
COMMENT ON COLUMN jobs.error.worker IS 'Whose attempt it was; null: no worker had the job.';
COMMENT ON COLUMN jobs.error.token IS 'The token of the fail call; null: not failed by its worker.';

CREATE TABLE jobs.answer (
  job_id       bigint      NOT NULL,
  token        bigint      NOT NULL,
  at           timestamptz NOT NULL,
  scheduled_at timestamptz,
  state        jobs.state  NOT NULL,
  CONSTRAINT answer_pkey PRIMARY KEY (job_id, token)
);
CREATE INDEX answer_by_age ON jobs.answer (at);
COMMENT ON TABLE jobs.answer IS
  'What became of jobs by finishing calls that left no other trace (snooze, release, the completion of a job that was retried), so that a repeated call gets the same answer. Kept for an hour.';
COMMENT ON COLUMN jobs.answer.scheduled_at IS 'Until when a snooze put the job off, also where it was cancelled instead; null: another call.';

-- Room on the page keeps the update of a taken key in place (HOT).
CREATE TABLE jobs.unique_claim (
  key          bytea         NOT NULL,
  jobs         bigint[]      NOT NULL,
  hold_ends_at timestamptz[],
  CONSTRAINT unique_claim_pkey PRIMARY KEY (key)
) WITH (fillfactor = 70);
COMMENT ON TABLE jobs.unique_claim IS
  'Unique keys and the jobs inserted under each. The primary key is what makes uniqueness exact at every isolation level.';
COMMENT ON COLUMN jobs.unique_claim.hold_ends_at IS 'Until when each of the jobs holds the key by itself, unless unique_note says that it was released; null: none of them does.';

-- Notes are appended, so that who retries, deletes, fetches or finishes a job waits for nobody who
-- is at work on its key. Who has the claim locked deletes them; maintenance takes those that are
-- due without that.
CREATE TABLE jobs.unique_note (
  key    bytea  NOT NULL,
  kind   "char" NOT NULL,
  seq    bigint NOT NULL,
  job_id bigint,
  due_at timestamptz,
  CONSTRAINT unique_note_pkey PRIMARY KEY (key, kind, seq)
);
CREATE INDEX unique_note_due ON jobs.unique_note (due_at) WHERE due_at IS NOT NULL;
COMMENT ON TABLE jobs.unique_note IS
  'Notes on unique keys: what has become of jobs without their claims having been written. Every job that was inserted as unique is in the list of its claim or folded.';
COMMENT ON COLUMN jobs.unique_note.kind IS
  'f: folded, a final job that the list of its claim leaves out, because a newer one there is in the same state. r: returned, a job that was final and is not any more, by jobs.retry say; it counts as if the claim listed it. h: a hold that a job has released before it ran out. o: orphaned, a key that lost a job, or has no job left but a hold; its claim is looked at when that is due.';
COMMENT ON COLUMN jobs.unique_note.seq IS 'f, h: the job. o: the transaction, so that each says it once of a key. r: a number of its own.';
COMMENT ON COLUMN jobs.unique_note.job_id IS 'The job; null: the note is on the key.';
COMMENT ON COLUMN jobs.unique_note.due_at IS 'From when on maintenance takes the note; null: it stays until a new list is made from it.';

CREATE TABLE jobs.kind (
  kind         text COLLATE "C" NOT NULL,
  queue        text COLLATE "C",
  priority     smallint,
  max_attempts integer,
  timeout      interval,
  retry        jsonb,
  unique_opts  jsonb,
  CONSTRAINT kind_pkey PRIMARY KEY (kind)
);
COMMENT ON TABLE jobs.kind IS 'What jobs of a kind are inserted with where the insert says nothing; null: the system''s default. Sessions remember it: written by jobs.define_kind only.';

CREATE TABLE jobs.queue (
  queue               text COLLATE "C" NOT NULL,
  paused_at           timestamptz,
  paused_by           text,
  pause_reason        text,
  resumed_at          timestamptz,
  concurrency         integer,
  rate                integer,
  rate_period         interval,
  max_waiting         integer,
  retention_completed bigint,
  retention_cancelled bigint,
  retention_discarded bigint,
  CONSTRAINT queue_pkey PRIMARY KEY (queue)
);
CREATE INDEX queue_retention ON jobs.queue (queue)
 WHERE COALESCE(retention_completed, retention_cancelled, retention_discarded) IS NOT NULL;
CREATE INDEX queue_bounded ON jobs.queue (queue) WHERE max_waiting IS NOT NULL;
COMMENT ON TABLE jobs.queue IS 'What is set of a queue. Sessions remember it: written by jobs.pause_queue, resume_queue and configure_queue only.';
COMMENT ON COLUMN jobs.queue.resumed_at IS 'When jobs.resume_queue last ended a pause during which jobs waited: their wait began anew. Maintenance forgets it once the queue has no available jobs.';
COMMENT ON COLUMN jobs.queue.retention_completed IS 'Microseconds; -1: for ever; null: the setting.';

-- Appended by jobs.configure_queue; maintenance reads every final job anew because of it, in parts,
-- and deletes it.
CREATE TABLE jobs.retention_change (
  made_by    bigint  NOT NULL,
  after_id   bigint  NOT NULL,
  since      xid8    NOT NULL,
  is_settled boolean NOT NULL,
  CONSTRAINT retention_change_pkey PRIMARY KEY (made_by)
);
COMMENT ON TABLE jobs.retention_change IS 'Retentions of queues that were changed: the final jobs that finished.kept_until is to be set anew of.';
COMMENT ON COLUMN jobs.retention_change.made_by IS 'The transaction that changed them.';
COMMENT ON COLUMN jobs.retention_change.after_id IS 'Final jobs up to this id have been looked at.';
COMMENT ON COLUMN jobs.retention_change.since IS 'The transaction that made or settled it.';
COMMENT ON COLUMN jobs.retention_change.is_settled IS 'The change is known everywhere: only transactions that are older than since may go by the retention of before.';

-- A row each, so that fetches take different ones and never wait for each other.
CREATE TABLE jobs.queue_slot (
  slot   bigint  NOT NULL,
  job_id bigint,
  n      integer NOT NULL,
  queue  text    COLLATE "C" NOT NULL,
  CONSTRAINT queue_slot_pkey PRIMARY KEY (slot)
) WITH (fillfactor = 50);
CREATE INDEX queue_slot_by_queue ON jobs.queue_slot (queue, n);
COMMENT ON TABLE jobs.queue_slot IS 'Queues with a limit on how many jobs run: a row for each that may, with the job that does.';
COMMENT ON COLUMN jobs.queue_slot.n IS 'From 1; a fetch takes those up to the limit.';

CREATE TABLE jobs.queue_start (
  slot    bigint      NOT NULL,
  free_at timestamptz NOT NULL,
  queue   text        COLLATE "C" NOT NULL,
  CONSTRAINT queue_start_pkey PRIMARY KEY (slot)
) WITH (fillfactor = 50);
CREATE INDEX queue_start_free ON jobs.queue_start (queue, free_at);
COMMENT ON TABLE jobs.queue_start IS 'Queues with a limit on how many jobs start in a period: a row for each that may, with the time from which on it may again.';

-- Not named periodic: that is the view.
CREATE TABLE jobs.periodic_schedule (
  defined_at   timestamptz NOT NULL,
  next_run_at  timestamptz,
  last_run_at  timestamptz,
  last_job_id  bigint,
  paused_at    timestamptz,
  max_attempts integer,
  priority     smallint,
  last_skipped boolean     NOT NULL DEFAULT false,
  name         text        COLLATE "C" NOT NULL,
  cron         text        NOT NULL,
  time_zone    text        NOT NULL,
  kind         text        COLLATE "C" NOT NULL,
  queue        text        COLLATE "C",
  args         jsonb       NOT NULL,
  unique_opts  jsonb,
  meta         jsonb,
  retry        jsonb,
  tags         text[],
  timeout      interval,
  last_error   text,
  paused_by    text,
  pause_reason text,
  last_ticks   jsonb       NOT NULL DEFAULT '[]',
  missed       text        NOT NULL DEFAULT 'once',
  CONSTRAINT periodic_schedule_pkey PRIMARY KEY (name)
);
CREATE INDEX periodic_schedule_due ON jobs.periodic_schedule (next_run_at);
COMMENT ON TABLE jobs.periodic_schedule IS
  'Periodic jobs: when, and what is inserted then (null: the default at that time). Who has a row locked inserts the job of its tick and notes that in the same transaction.';
COMMENT ON COLUMN jobs.periodic_schedule.defined_at IS 'When it was defined: no earlier tick counts.';
COMMENT ON COLUMN jobs.periodic_schedule.next_run_at IS 'When maintenance looks at it: the next tick, or when the last one is tried again; null: never, or it is paused.';
COMMENT ON COLUMN jobs.periodic_schedule.last_run_at IS 'The latest tick that was dealt with; it does not come again.';
COMMENT ON COLUMN jobs.periodic_schedule.last_job_id IS 'The job of that tick, or, if it was skipped, the job that it duplicated.';
COMMENT ON COLUMN jobs.periodic_schedule.last_ticks IS 'The latest ten ticks that were dealt with, newest first: when, the job, whether it was skipped, and why there is none.';
COMMENT ON COLUMN jobs.periodic_schedule.missed IS 'once: the latest of missed ticks gets its job; skip: none of them does.';
COMMENT ON COLUMN jobs.periodic_schedule.last_error IS 'Why that tick has no job, or why the next one is put off.';

-- Updated in place (HOT) by each beat: no column that changes has an index. Not dumped: who is
-- there says so again.
CREATE TABLE jobs.worker (
  first_seen_at timestamptz NOT NULL,
  last_seen_at  timestamptz NOT NULL,
  concurrency   integer     NOT NULL,
  worker        text        COLLATE "C" NOT NULL,
  queues        text[]      COLLATE "C" NOT NULL,
  info          jsonb,
  CONSTRAINT worker_pkey PRIMARY KEY (worker)
) WITH (fillfactor = 50);
COMMENT ON TABLE jobs.worker IS 'Workers that said that they are there: jobs.worker_beat. A row goes a day after the last time.';
COMMENT ON COLUMN jobs.worker.queues IS 'Where it says that it fetches from.';
COMMENT ON COLUMN jobs.worker.info IS 'What else it says.';

CREATE TABLE jobs.worker_command (
  commanded_at   timestamptz NOT NULL,
  seen_at        timestamptz NOT NULL,
  worker         text        COLLATE "C" NOT NULL,
  command        text        COLLATE "C" NOT NULL,
  commanded_by   text        NOT NULL,
  command_reason text,
  CONSTRAINT worker_command_pkey PRIMARY KEY (worker)
);
COMMENT ON TABLE jobs.worker_command IS 'Workers that are to fetch no more, until jobs.resume_worker, or until nobody has seen them for 30 days. Sessions remember it: written by functions of the extension only.';
COMMENT ON COLUMN jobs.worker_command.seen_at IS 'When it was commanded, or the worker has fetched or said that it is there since, within a day.';
COMMENT ON COLUMN jobs.worker_command.command IS 'quiet or stop.';

-- A row a task from the start, so that noting a run never inserts. Not dumped: it tells of this
-- server.
CREATE TABLE jobs.maintenance_task (
  task           text        COLLATE "C" NOT NULL,
  last_run_at    timestamptz,
  duration       interval,
  rows           bigint,
  rows_total     bigint      NOT NULL DEFAULT 0,
  failures       integer     NOT NULL DEFAULT 0,
  failures_total bigint      NOT NULL DEFAULT 0,
  last_error_at  timestamptz,
  last_error     text,
  CONSTRAINT maintenance_task_pkey PRIMARY KEY (task)
) WITH (fillfactor = 30);
COMMENT ON TABLE jobs.maintenance_task IS 'The latest run of each maintenance task that had something to do or failed. Runs that find nothing are not written down: an idle database writes no WAL.';
INSERT INTO jobs.maintenance_task (task)
VALUES ('schedule'), ('periodic'), ('expire'), ('rescue'), ('prune'), ('claims'), ('statistics');

CREATE TABLE jobs.maintenance_pause (
  paused_at timestamptz NOT NULL,
  paused_by text        NOT NULL,
  one       boolean     NOT NULL DEFAULT true CONSTRAINT maintenance_pause_one CHECK (one),
  CONSTRAINT maintenance_pause_pkey PRIMARY KEY (one)
);
COMMENT ON TABLE jobs.maintenance_pause IS 'A row while maintenance is paused: jobs.pause_maintenance, jobs.resume_maintenance.';

-- Counts are places and numbers in turns: the events inserted, started, completed, failed,
-- discarded and cancelled are 0 to 5, the sums of waits and runs in microseconds 6 and 7, and the
-- buckets of both follow (core/src/counts.rs).
CREATE TABLE jobs.history_bucket (
  at     timestamptz NOT NULL,
  entry  bigint,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL
);
CREATE INDEX history_bucket_at ON jobs.history_bucket (at);
COMMENT ON TABLE jobs.history_bucket IS 'What jobs.history shows of minutes that are over: what was counted by queue and kind. A minute may have several rows, which are summed.';
COMMENT ON COLUMN jobs.history_bucket.entry IS 'The entry of shared memory that it was, so that it does not count twice before that is freed; null: it was none.';

-- Appended by transactions, and so without an index. Not dumped.
CREATE TABLE jobs.history_delta (
  at     timestamptz NOT NULL,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL
);
COMMENT ON TABLE jobs.history_delta IS 'What single transactions have counted: prepared ones, and where shared memory has no room or is not there. Maintenance makes minutes of them.';

CREATE TABLE jobs.history_total (
  epoch  bigint      NOT NULL,
  at     timestamptz NOT NULL,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL,
  CONSTRAINT history_total_pkey PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50);
COMMENT ON TABLE jobs.history_total IS 'What was counted of each queue and kind since the server began: the counters of jobs.metrics, to which the minutes that are not over are added. It has at most as many rows as jobs.metrics_max_series allows; anything beyond counts for (others). It tells of this server.';
COMMENT ON COLUMN jobs.history_total.epoch IS 'Of which start of the server and of which database it is: of others it counts from 0, as counters of a server do that was started anew.';

-- A row a table from the start, so that keeping a count never inserts. Not dumped: it is counted
-- again.
CREATE TABLE jobs.kept_count (
  place      text        COLLATE "C" NOT NULL,
  counted_at timestamptz,
  took       interval,
  changes    bigint,
  queues     integer,
  counts     jsonb,
  CONSTRAINT kept_count_pkey PRIMARY KEY (place)
) WITH (fillfactor = 30);
COMMENT ON TABLE jobs.kept_count IS 'How many jobs are in the tables that are too long to be counted whenever somebody asks: by queue and state. Counted now and then by maintenance.';
INSERT INTO jobs.kept_count (place) VALUES ('ready'), ('scheduled'), ('running'), ('finished');
COMMENT ON COLUMN jobs.kept_count.counted_at IS 'Null: the table is short.';
COMMENT ON COLUMN jobs.kept_count.place IS 'The table: ready, scheduled, running or finished.';
COMMENT ON COLUMN jobs.kept_count.took IS 'How long counting took; the longer, the more rarely it is done.';
COMMENT ON COLUMN jobs.kept_count.queues IS 'How many queues have jobs there. While any table has more than 10,000, the counts of all are in kept_queue.';
COMMENT ON COLUMN jobs.kept_count.changes IS 'Rows inserted and deleted up to then, by the server''s statistics: while they do not change, nothing is counted again.';

-- Of a table of jobs all columns are written at a time, in the rows that change. Not dumped: it is
-- counted again.
CREATE TABLE jobs.kept_queue (
  available           bigint,
  scheduled           bigint,
  pending             bigint,
  running             bigint,
  retryable           bigint,
  completed           bigint,
  cancelled           bigint,
  discarded           bigint,
  oldest_available_at timestamptz,
  queue               text        COLLATE "C" NOT NULL,
  CONSTRAINT kept_queue_pkey PRIMARY KEY (queue)
);
CREATE INDEX kept_queue_oldest_available_at ON jobs.kept_queue (oldest_available_at);
COMMENT ON TABLE jobs.kept_queue IS 'The number of jobs by queue, a column for each state, kept by maintenance while there are more than 10,000 queues; otherwise empty.';
COMMENT ON COLUMN jobs.kept_queue.available IS 'Null, as in the other states: there are none.';

-- Who looks wants the latest first, and maintenance deletes from the other end.
CREATE TABLE jobs.audit_record (
  at               timestamptz NOT NULL,
  jobs             bigint,
  role             text        NOT NULL,
  login_role       text        NOT NULL,
  application_name text        NOT NULL,
  action           text        NOT NULL,
  target           text,
  arguments        jsonb       NOT NULL,
  reason           text
);
CREATE INDEX audit_record_by_age ON jobs.audit_record (at);
COMMENT ON TABLE jobs.audit_record IS 'Who has managed what, appended by the transaction that did: a row for each call that changed something. Kept for jobs.retention_audit.';
COMMENT ON COLUMN jobs.audit_record.role IS 'The role that the session acted as: of SET ROLE, or as it logged in.';
COMMENT ON COLUMN jobs.audit_record.login_role IS 'The role that the session logged in as (session_user). SET ROLE does not change it.';

-- Without a primary key: where they are part of a publication (FOR ALL TABLES), rows could not be
-- deleted otherwise.
ALTER TABLE jobs.error REPLICA IDENTITY FULL;
ALTER TABLE jobs.audit_record REPLICA IDENTITY FULL;
ALTER TABLE jobs.history_bucket REPLICA IDENTITY FULL;
ALTER TABLE jobs.history_delta REPLICA IDENTITY FULL;
ALTER TABLE jobs.heartbeat_note REPLICA IDENTITY FULL;
-- The latest error is looked up for who asks for it only: a join would look for those of each job.
-- One branch a state (available has two), each with a constant state and a join of its own, so that
-- WHERE state = 'running' reads one table, and conditions on a job reach every branch.
-- 1 minute is DEFAULT_TIMEOUT of src/store/fetch.rs.
CREATE VIEW jobs.jobs AS
SELECT p.id, p.state, p.queue, p.kind, p.priority, p.attempt, p.max_attempts,
       CASE WHEN v.sees_payload THEN p.args END AS args, CASE WHEN v.sees_payload THEN COALESCE(p.meta, '{}') END AS meta,
       COALESCE(p.tags, '{}') AS tags,
       p.created_at, COALESCE(p.moved_to, p.scheduled_at, p.created_at) AS scheduled_at,
       p.attempted_at, p.finalized_at, p.expires_at,
       COALESCE(p.timeout, '1 minute') AS timeout, p.lease_expires_at, p.deadline_at,
       p.cancel_requested_at, p.cancel_reason, p.worker, p.token,
       CASE WHEN v.sees_payload THEN p.progress END AS progress, CASE WHEN v.sees_payload THEN p.output END AS output,
       COALESCE(p.retry, '"river"') AS retry, encode(p.unique_key, 'hex') AS unique_key,
       (SELECT e.error FROM jobs.error e WHERE e.job_id = p.id ORDER BY e.at DESC LIMIT 1) AS last_error,
       (SELECT e.at FROM jobs.error e WHERE e.job_id = p.id ORDER BY e.at DESC LIMIT 1) AS last_error_at,
       NULL::bigint AS flow_id, NULL::text AS step
  FROM (
    SELECT j.*, 'available'::jobs.state AS state, p.attempt, p.scheduled_at AS moved_to,
           NULL::timestamptz AS attempted_at, NULL::timestamptz AS finalized_at,
           NULL::timestamptz AS lease_expires_at, NULL::timestamptz AS deadline_at,
           NULL::timestamptz AS cancel_requested_at, NULL::text AS cancel_reason, NULL::text AS worker,
           NULL::bigint AS token, NULL::jsonb AS progress, NULL::jsonb AS output
      FROM jobs.job j JOIN jobs.ready p ON p.queue = j.queue AND p.priority = j.priority AND p.seq = j.id
    UNION ALL
    SELECT j.*, 'available', p.attempt, p.scheduled_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL
      FROM jobs.job j JOIN jobs.ready p ON p.job_id = j.id WHERE p.seq <> p.job_id
    UNION ALL
    SELECT j.*, 'scheduled', p.attempt, p.due_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'scheduled'
    UNION ALL
    SELECT j.*, 'pending', p.attempt, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'pending'
    UNION ALL
    SELECT j.*, 'retryable', p.attempt, p.due_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL
      FROM jobs.job j JOIN jobs.scheduled p ON p.job_id = j.id WHERE p.state = 'retryable'
    UNION ALL
    SELECT j.id, j.created_at, j.scheduled_at, j.expires_at, j.hold_ends_at, j.timeout, j.max_attempts, j.priority, j.kind,
           COALESCE(p.queue, j.queue), j.args, j.meta, j.tags, j.retry, j.unique_key, j.hold_until, j.unique_until, j.unique_window, j.unique_final,
           'running', p.attempt, p.scheduled_at, p.attempted_at, NULL, p.lease_expires_at,
           p.deadline_at, p.cancel_requested_at, p.cancel_reason, p.worker, p.token, p.progress, NULL
      FROM jobs.job j JOIN jobs.running p ON p.job_id = j.id
    UNION ALL
    SELECT j.*, 'completed', p.attempt, p.scheduled_at, p.attempted_at, p.finalized_at, NULL, NULL,
           p.cancel_requested_at, p.cancel_reason, p.worker, p.token, NULL, p.output
      FROM jobs.job j JOIN jobs.finished p ON p.job_id = j.id WHERE p.state = 'completed'
    UNION ALL
    SELECT j.*, 'cancelled', p.attempt, p.scheduled_at, p.attempted_at, p.finalized_at, NULL, NULL,
           p.cancel_requested_at, p.cancel_reason, p.worker, p.token, NULL, p.output
      FROM jobs.job j JOIN jobs.finished p ON p.job_id = j.id WHERE p.state = 'cancelled'
    UNION ALL
    SELECT j.*, 'discarded', p.attempt, p.scheduled_at, p.attempted_at, p.finalized_at, NULL, NULL,
           p.cancel_requested_at, p.cancel_reason, p.worker, p.token, NULL, p.output
      FROM jobs.job j JOIN jobs.finished p ON p.job_id = j.id WHERE p.state = 'discarded'
  ) p, (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.jobs IS
  'Every job, one row. args, meta, progress and output are null for a role that may not SELECT from jobs.job, such as a viewer (jobs.grant_viewer).';
COMMENT ON COLUMN jobs.jobs.id IS 'Number of the job; larger ones were inserted later.';
COMMENT ON COLUMN jobs.jobs.state IS 'Where the job stands.';
COMMENT ON COLUMN jobs.jobs.queue IS 'Queue that it is fetched from.';
COMMENT ON COLUMN jobs.jobs.kind IS 'What to do.';
COMMENT ON COLUMN jobs.jobs.priority IS 'Within its queue the lower number is fetched first.';
COMMENT ON COLUMN jobs.jobs.attempt IS 'How many attempts have begun; a snoozed or released one does not count.';
COMMENT ON COLUMN jobs.jobs.max_attempts IS 'How many there may be.';
COMMENT ON COLUMN jobs.jobs.args IS 'Arguments of the job, as inserted or updated.';
COMMENT ON COLUMN jobs.jobs.meta IS 'What else was given along with it; {} if nothing.';
COMMENT ON COLUMN jobs.jobs.tags IS 'Tags, for filters.';
COMMENT ON COLUMN jobs.jobs.created_at IS 'When it was inserted.';
COMMENT ON COLUMN jobs.jobs.scheduled_at IS 'When it was or will be due most recently: as inserted, or the time of its retry or snooze.';
COMMENT ON COLUMN jobs.jobs.attempted_at IS 'When the attempt began that runs or was the last one of a final job; else null.';
COMMENT ON COLUMN jobs.jobs.finalized_at IS 'When it became completed, cancelled or discarded; else null.';
COMMENT ON COLUMN jobs.jobs.expires_at IS 'From then on it is discarded instead of being fetched; null: never.';
COMMENT ON COLUMN jobs.jobs.timeout IS 'How long one attempt may run; negative: no limit.';
COMMENT ON COLUMN jobs.jobs.lease_expires_at IS 'While it runs: without a heartbeat until then the attempt fails.';
COMMENT ON COLUMN jobs.jobs.deadline_at IS 'While it runs: when the attempt is over, whatever the heartbeats; null: no limit.';
COMMENT ON COLUMN jobs.jobs.cancel_requested_at IS 'When somebody asked a running job to stop; else null.';
COMMENT ON COLUMN jobs.jobs.cancel_reason IS 'The reason given to jobs.cancel.';
COMMENT ON COLUMN jobs.jobs.worker IS 'Who has it, or finished it, by the name that the fetch gave.';
COMMENT ON COLUMN jobs.jobs.token IS 'Of the attempt that runs, or that finished the job; else null.';
COMMENT ON COLUMN jobs.jobs.progress IS 'What the latest heartbeat said, while it runs.';
COMMENT ON COLUMN jobs.jobs.output IS 'What jobs.complete was given.';
COMMENT ON COLUMN jobs.jobs.retry IS 'The retry policy in force, as it was given; "river" if nothing was.';
COMMENT ON COLUMN jobs.jobs.unique_key IS 'Key that it was inserted under, 64 hex digits, as jobs.unique_key gives them; null: it is not unique.';
COMMENT ON COLUMN jobs.jobs.last_error IS 'Text of the latest error, also where the job got over it; null: there is none.';
COMMENT ON COLUMN jobs.jobs.last_error_at IS 'When that was.';
COMMENT ON COLUMN jobs.jobs.flow_id IS 'Kept for a later version, which has flows of jobs: always null.';
COMMENT ON COLUMN jobs.jobs.step IS 'Kept for a later version, which has flows of jobs: always null.';

CREATE VIEW jobs.errors AS
SELECT e.job_id, e.attempt, e.at, e.error, e.details, e.worker, (SELECT j.kind FROM jobs.job j WHERE j.id = e.job_id) AS job_kind
  FROM jobs.error e;
COMMENT ON VIEW jobs.errors IS 'Every failed attempt.';
COMMENT ON COLUMN jobs.errors.job_id IS 'The job.';
COMMENT ON COLUMN jobs.errors.attempt IS 'Which attempt failed.';
COMMENT ON COLUMN jobs.errors.at IS 'When.';
COMMENT ON COLUMN jobs.errors.error IS 'What went wrong, as the worker or the rescue says it.';
COMMENT ON COLUMN jobs.errors.details IS 'What the worker gave beside the text, such as type, code and trace; type is timeout, lease_expired, expired or too_long where no worker failed it.';
COMMENT ON COLUMN jobs.errors.worker IS 'Whose attempt it was, by the name that the fetch gave; null: no worker had the job.';
COMMENT ON COLUMN jobs.errors.job_kind IS 'Kind of the job.';

-- No view from here on touches args: a viewer of queues sees counts only.
CREATE FUNCTION jobs.count_queues()
RETURNS TABLE (queue text, available bigint, scheduled bigint, pending bigint, running bigint, retryable bigint,
               completed bigint, cancelled bigint, discarded bigint, oldest_available_at timestamptz,
               estimated jobs.state[], counted_at timestamptz)
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'count_queues_wrapper';
COMMENT ON FUNCTION jobs.count_queues() IS 'What the view jobs.queues shows of queues that have jobs, if there are at most 10,000 queues.';

-- Of each queue one row comes from one branch, so that a condition on the queue reaches each.
CREATE VIEW jobs.queues AS
WITH counted AS MATERIALIZED (
  SELECT f.queue COLLATE "C" AS queue, f.available, f.scheduled, f.pending, f.running, f.retryable, f.completed, f.cancelled, f.discarded,
         f.oldest_available_at, f.estimated, f.counted_at
    FROM jobs.count_queues() f
)
SELECT c.queue,
       COALESCE(c.available, 0) AS available, COALESCE(c.scheduled, 0) AS scheduled,
       COALESCE(c.pending, 0) AS pending, COALESCE(c.running, 0) AS running,
       COALESCE(c.retryable, 0) AS retryable, COALESCE(c.completed, 0) AS completed,
       COALESCE(c.cancelled, 0) AS cancelled, COALESCE(c.discarded, 0) AS discarded,
       c.oldest_available_at,
       q.paused_at IS NOT NULL AS paused, q.paused_at, q.paused_by, q.pause_reason, q.concurrency, q.rate, q.rate_period, q.max_waiting,
       COALESCE(c.estimated, '{}') AS estimated, c.counted_at,
       q.retention_completed * interval '1 microsecond' AS retention_completed,
       q.retention_cancelled * interval '1 microsecond' AS retention_cancelled,
       q.retention_discarded * interval '1 microsecond' AS retention_discarded
  FROM (SELECT f.* FROM counted f
        UNION ALL
        SELECT k.queue, k.available, k.scheduled, k.pending, k.running, k.retryable, k.completed, k.cancelled, k.discarded,
               k.oldest_available_at, (SELECT enum_range(NULL::jobs.state)), (SELECT min(t.counted_at) FROM jobs.kept_count t)
          FROM jobs.kept_queue k
        UNION ALL
        SELECT s.queue, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL
          FROM jobs.queue s
         WHERE num_nonnulls(s.paused_at, s.concurrency, s.rate, s.rate_period, s.max_waiting, s.retention_completed, s.retention_cancelled, s.retention_discarded) > 0
           AND s.queue NOT IN (SELECT f.queue FROM counted f) AND NOT EXISTS (SELECT FROM jobs.kept_queue k WHERE k.queue = s.queue)) c
  LEFT JOIN jobs.queue q ON q.queue = c.queue;
COMMENT ON VIEW jobs.queues IS
  'Queues that have jobs or of which something is set: how many in each state, since when the oldest available one waits, whether it is paused, its limits. Up to 10,000 jobs of a kind of state are counted right then; where there are more, in any queue, the count is one that maintenance made before: the states are in estimated, the time is in counted_at. With more than 10,000 queues, all counts and ages come from maintenance, and a new queue appears with the next count.';
COMMENT ON COLUMN jobs.queues.queue IS 'Name of the queue.';
COMMENT ON COLUMN jobs.queues.available IS 'Jobs that can be fetched now.';
COMMENT ON COLUMN jobs.queues.scheduled IS 'Jobs that wait for their time.';
COMMENT ON COLUMN jobs.queues.pending IS 'Jobs that wait for jobs.activate.';
COMMENT ON COLUMN jobs.queues.running IS 'Jobs that a worker has.';
COMMENT ON COLUMN jobs.queues.retryable IS 'Jobs that failed and wait for the next attempt.';
COMMENT ON COLUMN jobs.queues.completed IS 'Completed jobs that are not yet pruned.';
COMMENT ON COLUMN jobs.queues.cancelled IS 'Cancelled jobs that are not yet pruned.';
COMMENT ON COLUMN jobs.queues.discarded IS 'Jobs that are given up and not yet pruned.';
COMMENT ON COLUMN jobs.queues.oldest_available_at IS 'Since when the oldest available job has waited: the later of when it was due and when it was inserted, retried, activated or released, or its queue resumed; null: no job is available.';
COMMENT ON COLUMN jobs.queues.paused IS 'Whether fetching from it is stopped: jobs.pause_queue.';
COMMENT ON COLUMN jobs.queues.paused_at IS 'Since when; null: it is not.';
COMMENT ON COLUMN jobs.queues.paused_by IS 'The role that paused it.';
COMMENT ON COLUMN jobs.queues.pause_reason IS 'The reason given to jobs.pause_queue.';
COMMENT ON COLUMN jobs.queues.concurrency IS 'The most of its jobs that run at a time; null: no limit.';
COMMENT ON COLUMN jobs.queues.rate IS 'The most of its jobs that start within rate_period; null: no limit.';
COMMENT ON COLUMN jobs.queues.rate_period IS 'The time that rate is for.';
COMMENT ON COLUMN jobs.queues.max_waiting IS 'The most of its jobs that wait (available, scheduled, retryable, pending): an insert beyond that is refused; null: no bound.';
COMMENT ON COLUMN jobs.queues.estimated IS 'States whose count was made before, by maintenance, at counted_at; empty: all are counted now.';
COMMENT ON COLUMN jobs.queues.counted_at IS 'When the oldest of those counts was made.';
COMMENT ON COLUMN jobs.queues.retention_completed IS 'How long completed jobs of the queue are kept, negative: for ever; null: jobs.retention_completed.';
COMMENT ON COLUMN jobs.queues.retention_cancelled IS 'The same for cancelled ones.';
COMMENT ON COLUMN jobs.queues.retention_discarded IS 'The same for discarded ones.';

CREATE VIEW jobs.kinds AS
SELECT k.kind, k.queue, k.priority::integer, k.max_attempts, k.timeout, k.retry, k.unique_opts
  FROM jobs.kind k;
COMMENT ON VIEW jobs.kinds IS
  'What jobs.define_kind has set: what jobs of a kind are inserted with where the insert says nothing; null: the system''s default.';
COMMENT ON COLUMN jobs.kinds.kind IS 'The kind.';
COMMENT ON COLUMN jobs.kinds.queue IS 'Queue of its jobs; null: default.';
COMMENT ON COLUMN jobs.kinds.priority IS 'Priority of its jobs; null: 1.';
COMMENT ON COLUMN jobs.kinds.max_attempts IS 'How many attempts there may be; null: 25.';
COMMENT ON COLUMN jobs.kinds.timeout IS 'How long one attempt may run, negative: no limit; null: 1 minute.';
COMMENT ON COLUMN jobs.kinds.retry IS 'Retry policy, as given; null: river.';
COMMENT ON COLUMN jobs.kinds.unique_opts IS 'Unique options, as given; null: not unique.';

-- The one place that says what a worker's status is. Its joins let a condition on the worker reach
-- each table.
CREATE VIEW jobs.workers AS
SELECT COALESCE(COALESCE(h.worker, w.worker), c.worker) AS worker, COALESCE(h.running, 0) AS running, COALESCE(h.job_ids, '{}') AS job_ids,
       COALESCE(w.queues, h.queues, '{}') AS queues, COALESCE(h.kinds, '{}') AS kinds, h.oldest_attempted_at, h.next_lease_expires_at, h.last_lease_expires_at,
       COALESCE(h.expired, 0) AS expired, COALESCE(h.cancel_requested, 0) AS cancel_requested,
       CASE WHEN w.last_seen_at <= clock_timestamp() - interval '60 s' THEN 'lost'
            ELSE COALESCE(c.command, CASE WHEN h.worker IS NULL THEN 'idle' ELSE 'busy' END) END AS status,
       w.first_seen_at, w.last_seen_at, w.concurrency, COALESCE(h.running, 0) AS busy,
       w.info ->> 'version' AS version, w.info, c.command, c.commanded_at, c.commanded_by, c.command_reason
  FROM (SELECT r.worker, count(*) AS running, array_agg(r.job_id ORDER BY r.job_id) AS job_ids,
               array_agg(DISTINCT COALESCE(r.queue, j.queue) ORDER BY COALESCE(r.queue, j.queue)) AS queues,
               array_agg(DISTINCT j.kind ORDER BY j.kind) AS kinds,
               min(r.attempted_at) AS oldest_attempted_at, min(r.lease_expires_at) AS next_lease_expires_at,
               max(r.lease_expires_at) AS last_lease_expires_at,
               count(*) FILTER (WHERE r.lease_expires_at <= clock_timestamp()) AS expired, count(r.cancel_requested_at) AS cancel_requested
          FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id
         GROUP BY r.worker) h
  FULL JOIN jobs.worker w ON w.worker = h.worker
  FULL JOIN jobs.worker_command c ON c.worker = COALESCE(h.worker, w.worker);
COMMENT ON VIEW jobs.workers IS 'Workers by the name that they fetch with: those that hold jobs, those that say that they are there (jobs.worker_beat), also when they are idle and for a day after they are lost, and those that have a command.';
COMMENT ON COLUMN jobs.workers.worker IS 'Name that it fetches with.';
COMMENT ON COLUMN jobs.workers.running IS 'How many jobs it holds.';
COMMENT ON COLUMN jobs.workers.job_ids IS 'The jobs that it holds.';
COMMENT ON COLUMN jobs.workers.queues IS 'Queues that it says it fetches from; of one that never said so, those of its jobs.';
COMMENT ON COLUMN jobs.workers.kinds IS 'Kinds of the jobs that it holds.';
COMMENT ON COLUMN jobs.workers.oldest_attempted_at IS 'When the longest running one began.';
COMMENT ON COLUMN jobs.workers.next_lease_expires_at IS 'When the first of its leases runs out.';
COMMENT ON COLUMN jobs.workers.last_lease_expires_at IS 'When the last of its leases runs out.';
COMMENT ON COLUMN jobs.workers.expired IS 'How many of its leases have run out and are not yet rescued.';
COMMENT ON COLUMN jobs.workers.cancel_requested IS 'How many of its jobs have been asked to stop.';
COMMENT ON COLUMN jobs.workers.status IS 'lost: the last beat of the worker is more than 60 seconds ago; else its command, quiet or stop; else busy if it holds jobs, or idle.';
COMMENT ON COLUMN jobs.workers.first_seen_at IS 'When it said so first; null: it never did.';
COMMENT ON COLUMN jobs.workers.last_seen_at IS 'When it said so last, within 3 seconds.';
COMMENT ON COLUMN jobs.workers.concurrency IS 'How many jobs it says it runs at a time.';
COMMENT ON COLUMN jobs.workers.busy IS 'How many of these places are taken: as running.';
COMMENT ON COLUMN jobs.workers.version IS 'Member version of info.';
COMMENT ON COLUMN jobs.workers.info IS 'What else it says of itself.';
COMMENT ON COLUMN jobs.workers.command IS 'What an operator has commanded: quiet or stop, also of one that is lost; null: nothing.';
COMMENT ON COLUMN jobs.workers.commanded_at IS 'When.';
COMMENT ON COLUMN jobs.workers.commanded_by IS 'By whom.';
COMMENT ON COLUMN jobs.workers.command_reason IS 'Why.';

CREATE VIEW jobs.unique_claims AS
SELECT encode(c.key, 'hex') AS key, COALESCE(h.holders, '{}') AS holders, h.until, c.key AS key_bytes
  FROM jobs.unique_claim c, LATERAL (
    SELECT array_agg(u.id ORDER BY u.id) FILTER (WHERE u.exists OR u.hold_ends_at IS NOT NULL) AS holders,
           max(u.hold_ends_at) AS until
      FROM (SELECT l.id, EXISTS (SELECT FROM jobs.job j WHERE j.id = l.id) AS exists,
                   CASE WHEN l.hold_ends_at > clock_timestamp()
                         AND NOT EXISTS (SELECT FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'h' AND n.seq = l.id) THEN l.hold_ends_at END AS hold_ends_at
              FROM (SELECT * FROM unnest(c.jobs, c.hold_ends_at) AS l(id, hold_ends_at)
                    UNION
                    SELECT n.job_id, NULL FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'r' AND n.job_id <> ALL (c.jobs)) l) u) h;
COMMENT ON VIEW jobs.unique_claims IS
  'Unique keys, as jobs.unique_key gives them, and the jobs under each that are looked at when another one wants the key. until: when the last hold on it runs out; null: no job holds it by itself.';
COMMENT ON COLUMN jobs.unique_claims.key IS '64 hex digits, as jobs.unique_key gives them.';
COMMENT ON COLUMN jobs.unique_claims.holders IS 'Ids of the jobs under the key; of a deleted job, if its hold goes on.';
COMMENT ON COLUMN jobs.unique_claims.until IS 'When the last hold (hold_for) on the key runs out; null: no job holds it by itself.';
COMMENT ON COLUMN jobs.unique_claims.key_bytes IS 'The same key, decode(key, ''hex''): by this one a key is found at once among millions.';

CREATE VIEW jobs.periodic AS
SELECT p.name, p.cron, p.time_zone, p.kind, COALESCE(p.queue, k.queue, 'default') AS queue, p.next_run_at, p.last_run_at,
       p.last_job_id, p.last_skipped, p.last_error, p.defined_at,
       CASE WHEN v.sees_payload THEN p.args END AS args, p.unique_opts, p.priority::integer, p.max_attempts, p.tags,
       CASE WHEN v.sees_payload THEN p.meta END AS meta, p.timeout, p.retry,
       p.missed, p.paused_at, p.paused_by, p.pause_reason,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('at', (t.tick ->> 'at')::timestamptz, 'job_id', t.tick -> 'job_id',
                 'state', (SELECT j.state FROM jobs.jobs j WHERE j.id = (t.tick ->> 'job_id')::bigint),
                 'skipped', t.tick -> 'skipped', 'error', t.tick -> 'error') ORDER BY t.n), '[]')
          FROM jsonb_array_elements(p.last_ticks) WITH ORDINALITY AS t(tick, n)) AS last_ticks
  FROM jobs.periodic_schedule p LEFT JOIN jobs.kind k ON k.kind = p.kind,
       (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.periodic IS
  'Periodic jobs: when they run, the latest tick and what became of it (its job, or the one that it was skipped as a duplicate of, or why there is none), and what is inserted (null: the default; args and meta also for a role that may not SELECT from jobs.job).';
COMMENT ON COLUMN jobs.periodic.name IS 'Name of the definition.';
COMMENT ON COLUMN jobs.periodic.cron IS 'When it runs, as given.';
COMMENT ON COLUMN jobs.periodic.time_zone IS 'Whose clock cron means.';
COMMENT ON COLUMN jobs.periodic.kind IS 'Kind of its jobs.';
COMMENT ON COLUMN jobs.periodic.queue IS 'Queue that its next job goes to.';
COMMENT ON COLUMN jobs.periodic.next_run_at IS 'The next tick, or when maintenance tries the last one again; null: never, or it is paused.';
COMMENT ON COLUMN jobs.periodic.last_run_at IS 'The latest tick that was dealt with.';
COMMENT ON COLUMN jobs.periodic.last_job_id IS 'The job of that tick or, if it was skipped, the one that it would have duplicated.';
COMMENT ON COLUMN jobs.periodic.last_skipped IS 'Whether the unique options skipped it.';
COMMENT ON COLUMN jobs.periodic.last_error IS 'Why that tick has no job, or why the next one is put off; null: nothing is wrong.';
COMMENT ON COLUMN jobs.periodic.defined_at IS 'When it was defined; ticks before do not count.';
COMMENT ON COLUMN jobs.periodic.args IS 'Arguments of its jobs.';
COMMENT ON COLUMN jobs.periodic.unique_opts IS 'Unique options of its jobs, as given; null: the default of the kind.';
COMMENT ON COLUMN jobs.periodic.priority IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.max_attempts IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.tags IS 'As given; null: none.';
COMMENT ON COLUMN jobs.periodic.meta IS 'As given; null: none.';
COMMENT ON COLUMN jobs.periodic.timeout IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.retry IS 'As given; null: the default.';
COMMENT ON COLUMN jobs.periodic.missed IS 'What happens to ticks that are more than 60 seconds late because nothing ran. once: the latest gets its job; skip: none does.';
COMMENT ON COLUMN jobs.periodic.paused_at IS 'Since when it is paused, by jobs.pause_periodic; null: it is not.';
COMMENT ON COLUMN jobs.periodic.paused_by IS 'The role that paused it.';
COMMENT ON COLUMN jobs.periodic.pause_reason IS 'The reason given to jobs.pause_periodic.';
COMMENT ON COLUMN jobs.periodic.last_ticks IS 'The latest ten ticks that were dealt with, newest first: an array of {"at", "job_id", "state", "skipped", "error"}, where job_id, skipped and error are as the columns last_.. say of the latest one, and state is that of the job now; null: it is gone.';

CREATE FUNCTION jobs.idle_runs()
RETURNS TABLE (task text, at timestamptz, duration interval)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'idle_runs_wrapper';
COMMENT ON FUNCTION jobs.idle_runs() IS
  'The latest runs of maintenance tasks in this database that found nothing to do. The background worker keeps them in shared memory, so there are none without it.';

CREATE VIEW jobs.maintenance AS
SELECT t.task, GREATEST(t.last_run_at, i.at) AS last_run_at,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN 0 ELSE t.rows END AS rows,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN i.duration ELSE t.duration END AS duration,
       t.last_error, t.last_error_at, t.failures, t.rows_total, t.failures_total, p.paused_at, p.paused_by
  FROM jobs.maintenance_task t LEFT JOIN jobs.idle_runs() i ON i.task = t.task LEFT JOIN jobs.maintenance_pause p ON true
 ORDER BY t.task;
COMMENT ON VIEW jobs.maintenance IS
  'The maintenance tasks: the last run of each, how many rows it handled and how long it took; its last error, and how often it has failed since it last succeeded (failures); totals; whether maintenance is paused.';
COMMENT ON COLUMN jobs.maintenance.task IS 'Name of the task, as jobs.maintain() gives it.';
COMMENT ON COLUMN jobs.maintenance.last_run_at IS 'When it ran last; null: never.';
COMMENT ON COLUMN jobs.maintenance.rows IS 'How many rows that run handled.';
COMMENT ON COLUMN jobs.maintenance.duration IS 'How long it took.';
COMMENT ON COLUMN jobs.maintenance.last_error IS 'What it failed at last, even if all is well by now.';
COMMENT ON COLUMN jobs.maintenance.last_error_at IS 'When that was.';
COMMENT ON COLUMN jobs.maintenance.failures IS 'How often it has failed since it last succeeded; 0: all is well.';
COMMENT ON COLUMN jobs.maintenance.rows_total IS 'Rows that it has ever handled.';
COMMENT ON COLUMN jobs.maintenance.failures_total IS 'How much it has ever failed at.';
COMMENT ON COLUMN jobs.maintenance.paused_at IS 'Since when maintenance is paused, the same for each task; null: it is not.';
COMMENT ON COLUMN jobs.maintenance.paused_by IS 'Who paused it.';

CREATE VIEW jobs.audit AS
SELECT a.at, a.role, a.login_role, a.application_name, a.action, a.target, a.arguments, a.jobs, a.reason
  FROM jobs.audit_record a;
COMMENT ON VIEW jobs.audit IS
  'Who has managed what: a row for each call that changed something, by whatever role, in the transaction of that call; and a row with the action "clock put back" when maintenance has corrected times that lay ahead of the clock. Calls that failed, that were rolled back or that left everything as it was are not there, nor are those of producers and workers. Kept for jobs.retention_audit.';
COMMENT ON COLUMN jobs.audit.at IS 'When the call was made.';
COMMENT ON COLUMN jobs.audit.role IS 'The role that the session acted as: of SET ROLE, or as it logged in.';
COMMENT ON COLUMN jobs.audit.login_role IS 'The role that the session logged in as (session_user). SET ROLE does not change it.';
COMMENT ON COLUMN jobs.audit.application_name IS 'application_name of the session.';
COMMENT ON COLUMN jobs.audit.action IS 'The function that was called, or "clock put back" for what maintenance has corrected.';
COMMENT ON COLUMN jobs.audit.target IS 'What it was called for: id of a job, name of a kind, queue, periodic job or role; null: a filter, or maintenance.';
COMMENT ON COLUMN jobs.audit.arguments IS 'What else was given, or is the default, without nulls; of args and meta only that they were given: true.';
COMMENT ON COLUMN jobs.audit.jobs IS 'How many jobs it changed; null: it is not about jobs.';
COMMENT ON COLUMN jobs.audit.reason IS 'The reason that was given.';

-- Asking the library first loads it, and with it the settings, where it was not preloaded.
CREATE FUNCTION jobs.is_preloaded() RETURNS boolean
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'is_preloaded_wrapper';
COMMENT ON FUNCTION jobs.is_preloaded() IS 'Whether shared_preload_libraries has jobs: without that there is no background worker.';

CREATE VIEW jobs.settings AS
SELECT s.name, pg_catalog.current_setting(s.name) AS value, s.boot_val AS default_value, s.unit,
       s.source, s.sourcefile AS source_file, s.sourceline AS source_line,
       s.context, s.short_desc || COALESCE(' ' || NULLIF(s.extra_desc, ''), '') AS description
  FROM pg_catalog.pg_settings s
 WHERE s.name LIKE 'jobs.%' AND (SELECT jobs.is_preloaded()) IS NOT NULL;
COMMENT ON VIEW jobs.settings IS
  'The settings jobs.*: the value in force in this session, the default in the given unit, and where the value comes from (source; file and line are shown to members of pg_read_all_settings). What is set of a single queue is in jobs.queues.';
COMMENT ON COLUMN jobs.settings.name IS 'Name of the setting.';
COMMENT ON COLUMN jobs.settings.value IS 'Value in force in this session, with its unit.';
COMMENT ON COLUMN jobs.settings.default_value IS 'What it is if nobody sets it, in unit.';
COMMENT ON COLUMN jobs.settings.unit IS 'Unit of default_value and of a value that is written without one; null: none.';
COMMENT ON COLUMN jobs.settings.source IS 'Where the value comes from: default, configuration file, and so on.';
COMMENT ON COLUMN jobs.settings.source_file IS 'File that sets it; null for a role that is no member of pg_read_all_settings.';
COMMENT ON COLUMN jobs.settings.source_line IS 'Line in that file.';
COMMENT ON COLUMN jobs.settings.context IS 'sighup: it is set for the whole server, and read again on reload.';
COMMENT ON COLUMN jobs.settings.description IS 'What it does.';
-- Insert jobs, keep them unique. Rust: src/api/produce_insert.rs, src/api/produce_unique.rs

CREATE TYPE jobs.insert_result AS (
  id                          bigint,
  state                       jobs.state,
  unique_skipped_as_duplicate boolean,
  replaced_id                 bigint,
  queue                       text,
  created_at                  timestamptz,
  scheduled_at                timestamptz);
COMMENT ON TYPE jobs.insert_result IS
  'The job that an insert has made, or the one that it is a duplicate of.';

CREATE TYPE jobs.batch_insert_result AS (
  ord                         integer,
  id                          bigint,
  state                       jobs.state,
  unique_skipped_as_duplicate boolean,
  replaced_id                 bigint,
  queue                       text,
  created_at                  timestamptz,
  scheduled_at                timestamptz);
COMMENT ON TYPE jobs.batch_insert_result IS
  'The result of one insert of many: ord is the number of its element, from 1.';

-- It works with its owner's rights, as the others do, but switches by itself (src/pg/role.rs):
-- SECURITY DEFINER needs a search_path of its own, and to set and restore that is a twentieth of an
-- insert.
CREATE FUNCTION jobs.insert(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS jobs.insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'insert_wrapper';
COMMENT ON FUNCTION jobs.insert(text, jsonb, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts one job; part of the caller's transaction.
Defaults: queue 'default', priority 1 (lower runs first), max_attempts 25, timeout 1 minute (-1 second: none), retry 'river'.
A scheduled_at in the future makes it scheduled, pending => true pending, otherwise it is available.
retry: how long it waits after a failure: "river": (errors before this one + 1)^4 s, 10 % either way; "oban": 15 + 2^n s and up to 10 %, n the attempt, or attempt / max_attempts * 20 above 20 attempts; "faktory": n^4 + 15 + rand(30) (n + 1) s, n the failures before this one;
or as Open Job Spec has it {"strategy": "exponential" | "linear" | "constant" | "polynomial", "initial": 1 s, "coefficient": 2, "max": 5 minutes, "jitter": true (a factor from 0.5 to 1.5) or a part, "non_retryable": ["type", "prefix.*"]}; strategy may be one of the three names, too;
or Open Job Spec's RetryPolicy in its own words {"ojs": {"max_attempts": 3, "initial_interval": "PT1S", ..}}, whose max_attempts counts where max_attempts is not given. In each object "after_lease": how long it waits instead where the lease of its worker ran out.
unique_opts is a uniqueness policy (River's names; {"oban": ..}, {"faktory": ..} and {"ojs": ..} as those systems have them); a duplicate is skipped, or rejected with 23505, or replaces or updates the existing job.
Returns the job with the id: the new one (replaced_id: the newest of those that it replaces), or the existing one with unique_skipped_as_duplicate.
Errors: 22023 bad value, 22004 null where none is allowed, 23505 rejected duplicate, 54000 full queue (max_waiting of jobs.configure_queue; DETAIL {"depth":..,"bound":..}) or a text of args and meta, tags, retry or unique_opts longer than jobs.max_payload, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when a rival committed meanwhile.$$;

CREATE FUNCTION jobs.insert_many(
  jobs jsonb)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'insert_many_wrapper';
COMMENT ON FUNCTION jobs.insert_many(jsonb) IS
$$Inserts an array of jobs, each an object with the parameters of jobs.insert, in one atomic statement; a row per element, in order (ord from 1).
Duplicates inside the array are resolved like duplicates outside: the first one wins.
Errors as jobs.insert; DETAIL names the element's index from 1. Also 40P01, a deadlock with another transaction over unique keys or jobs that are replaced or updated: repeat the transaction.$$;

CREATE FUNCTION jobs.insert_batch(
  kind text, args jsonb[], unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'insert_batch_wrapper';
COMMENT ON FUNCTION jobs.insert_batch(text, jsonb[], jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts a job of one kind for each element of args, with the same options, in one atomic statement; a row per element, in order (ord from 1).
Errors as jobs.insert_many.$$;

CREATE FUNCTION jobs.unique_key(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unique_key_wrapper';
COMMENT ON FUNCTION jobs.unique_key(text, jsonb, jsonb, text, jsonb, timestamptz) IS
$$The key (64 hex digits) that jobs.insert with the same arguments would hold: SHA-256 of the canonical text (RFC 8785 JSON of the members args, key, meta, period, queue, type that apply). Null: not unique.
Volatile because by_period without scheduled_at takes the clock. Errors as jobs.insert; writes nothing, works on a standby.$$;

CREATE TYPE jobs.unique_explanation AS (
  canonical    text,
  unique_key   text,
  lock_id      bigint,
  policy       jsonb,
  holder       bigint,
  holder_state jobs.state,
  would        text);
COMMENT ON TYPE jobs.unique_explanation IS
  'What a job would be unique by, and what would become of it now.';

CREATE FUNCTION jobs.explain_unique(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL)
RETURNS jobs.unique_explanation
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'explain_unique_wrapper';
COMMENT ON FUNCTION jobs.explain_unique(text, jsonb, jsonb, text, jsonb, timestamptz) IS
$$What jobs.insert with the same arguments would be unique by, and what would happen now: the canonical text and its key, the advisory lock's id, the policy in the native form with everything that was left out filled in (also where it was given in another system's form), the newest job that conflicts, and insert, skip, reject, replace or update. All null but would: not unique.
Errors as jobs.insert; writes nothing, locks nothing, works on a standby.$$;

CREATE FUNCTION jobs.ojs_manifest()
RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'ojs_manifest_wrapper';
COMMENT ON FUNCTION jobs.ojs_manifest() IS
$$What a server of the Open Job Spec that keeps its jobs here can declare in its conformance manifest (ojs-unique-jobs, section 8.3): the strength of uniqueness, strong, its mechanism, and what else this queue is capable of.
conformance_level and protocols are the server's own to add. No errors; works on a standby.$$;
-- Claim jobs, finish them, move them about.
-- Rust: src/api/work_fetch.rs, src/api/work_wait.rs, src/api/work_results.rs,
-- src/api/work_finish.rs, src/api/work_finish_many.rs, src/api/work_manage.rs

CREATE TYPE jobs.fetched_job AS (
  id               bigint,
  token            bigint,
  attempt          integer,
  kind             text,
  args             jsonb,
  meta             jsonb,
  queue            text,
  priority         integer,
  tags             text[],
  max_attempts     integer,
  created_at       timestamptz,
  scheduled_at     timestamptz,
  attempted_at     timestamptz,
  lease_expires_at timestamptz,
  deadline_at      timestamptz);
COMMENT ON TYPE jobs.fetched_job IS
  'A job that a worker has fetched, with the token of this attempt.';

CREATE FUNCTION jobs.fetch(
  queue text DEFAULT 'default', max_jobs integer DEFAULT 1, worker text DEFAULT NULL,
  lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL)
RETURNS SETOF jobs.fetched_job
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fetch_wrapper';
COMMENT ON FUNCTION jobs.fetch(text, integer, text, interval, text[], integer, interval) IS
$$Fetches up to max_jobs (1 to 10000) available jobs of a queue for this worker: lower priority number first, then in the order in which they became available. Never waits for another fetch.
Each row has a new token: every later call about this attempt needs it. worker: a name of 1 to 127 characters, none of them a control character; null or empty: application_name, else the process id. kinds: only these.
lease: how long the server waits for a heartbeat (default: the job's timeout, else 1 hour); never past the deadline (start + timeout).
min_jobs (1 to max_jobs): nothing, unless so many may start now, or the one of them that is available for longest is so for linger (null: never fewer). Fetches with min_jobs above 1 take turns with those of the same queue, and sometimes with those of other queues.
Jobs that are due but not yet moved by the background worker are taken too. Commit at once.
A job whose row cannot be returned, because args, meta and tags have more than 768 MB of text, is discarded with an error of type too_long, and the other jobs are returned.
Errors: 22023, 22004, 25006; 40001 under REPEATABLE READ and SERIALIZABLE.$$;

CREATE FUNCTION jobs.fetch_any(
  queues text[], max_jobs integer DEFAULT 1, worker text DEFAULT NULL,
  lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL)
RETURNS SETOF jobs.fetched_job
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fetch_any_wrapper';
COMMENT ON FUNCTION jobs.fetch_any(text[], integer, text, interval, text[], integer, interval) IS
$$As jobs.fetch over several queues, in the strict order given: a queue is looked at only when the ones before it have nothing left. min_jobs counts the jobs of all of them together. At most 10000 queues (22023).$$;

-- Ends transactions, so it can be neither SECURITY DEFINER nor have settings of its own: it looks
-- at the tables as its owner.
CREATE PROCEDURE jobs.wait(
  queue text DEFAULT 'default', timeout interval DEFAULT '30 s')
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_wrapper';
COMMENT ON PROCEDURE jobs.wait(text, interval) IS
$$Returns as soon as a job of the queue may be ready to be fetched, else after the timeout (0: at once): woken by the commit that makes it available, or when it is due. There may be none then: another worker can get the job first.
A job that an earlier call of the session has returned for, and that is still there, is kept back: for 0.1 seconds, and with preload for twice as long each time, up to a second. Such a job is locked, or of a kind that was not asked for. A commit ends the wait all the same.
While it waits it holds no snapshot, transaction id or table lock. It ends the transaction, so it must be a statement of its own, in autocommit mode. Without preload it looks ten times a second.
Errors: 25001 inside a transaction block, 22023, 22004 a null, 25006 on a standby.$$;

CREATE PROCEDURE jobs.wait_any(
  queues text[], timeout interval DEFAULT '30 s', worker text DEFAULT NULL)
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_any_wrapper';
COMMENT ON PROCEDURE jobs.wait_any(text[], interval, text) IS
$$As jobs.wait for several queues: returns when a job of one of them may be ready. With worker, the name that it fetches with, it also returns when one of the worker's jobs is asked to stop, and when the worker gets another command: jobs.quiet_worker, stop_worker, resume_worker. jobs.heartbeat and jobs.worker_beat say what it is.
Of these requests only new ones count: those since the call began, or since the session's last call for that worker. A worker that is quiet or to stop gets no jobs, so jobs do not end its wait. With a worker and no queue at all it waits for these requests alone. Without preload it looks once a second for these requests.
At most 10000 queues. Errors: as jobs.wait; 22023 more queues.$$;

CREATE PROCEDURE jobs.wait_for(
  ids bigint[], timeout interval DEFAULT '30 s', want text DEFAULT 'all')
LANGUAGE c
AS 'MODULE_PATHNAME', 'wait_for_wrapper';
COMMENT ON PROCEDURE jobs.wait_for(bigint[], interval, text) IS
$$Returns once it has seen that all of the jobs are over, or with want => 'any' one of them, else after the timeout (0: at once). A job is over when it is completed, cancelled or discarded. A job that is not there is over, too: it was deleted or pruned, or never inserted and committed.
The call checks when it begins, when the job ends that it waits for at the moment, and from time to time. A job that was over at a check counts, even if it is retried later. A job that was over only between two checks does not.
At most 10000 ids, in any order and more than once; none at all: it returns at once. jobs.results says what became of them.
Woken by the commit that ends a job; while it waits it holds no snapshot, transaction id or table lock. It ends the transaction, so it must be a statement of its own, in autocommit mode. Without preload it looks ten times a second.
Errors: 25001 inside a transaction block; 22023 more than 10000 ids, another want, a negative timeout; 22004 a null, also as an element; 25006 on a standby.$$;

CREATE TYPE jobs.job_result AS (
  ord          integer,
  id           bigint,
  state        jobs.state,
  output       jsonb,
  error        text,
  finalized_at timestamptz);
COMMENT ON TYPE jobs.job_result IS
  'What became of one of several jobs.';

-- Not SECURITY DEFINER: what it shows is what its caller may see.
CREATE FUNCTION jobs.results(
  ids bigint[])
RETURNS SETOF jobs.job_result
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'results_wrapper';
COMMENT ON FUNCTION jobs.results(bigint[]) IS
$$What became of jobs: a row per id, in order, ord from 1. state: as it is now, null where there is no such job, or no more. output: what jobs.complete was given; error: the text of the latest failed attempt; finalized_at: since when the job is final, null while it is not.
The caller sees output with SELECT on jobs.job, and error with SELECT on jobs.errors, as in the views; else they are null. So a producer sees how its jobs ended, but no job's output: a program that is to read it is granted application (docs/security.md).
At most 10000 ids. Works on a standby. Errors: 22023 more of them; 22004 a null, also as an element.$$;

CREATE FUNCTION jobs.complete(
  id bigint, token bigint, output jsonb DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'complete_wrapper';
COMMENT ON FUNCTION jobs.complete(bigint, bigint, jsonb) IS
$$Finishes a running job: completed, with its output. Also after a cancel request. Part of the caller's transaction.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 54000 an output whose text is longer than jobs.max_payload, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.batch_complete_result AS (
  id    bigint,
  state jobs.state,
  done  boolean);
COMMENT ON TYPE jobs.batch_complete_result IS
  'Whether one of many jobs was completed, and its state now.';

CREATE FUNCTION jobs.complete_many(
  ids bigint[], tokens bigint[], outputs jsonb[] DEFAULT NULL)
RETURNS SETOF jobs.batch_complete_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'complete_many_wrapper';
COMMENT ON FUNCTION jobs.complete_many(bigint[], bigint[], jsonb[]) IS
$$Completes many jobs, each with its output (outputs, or one of them, null: none); a row per pair, in order, never all or nothing. done: this token completed the job, now or by an earlier call of complete, complete_many or finish_many, and not so where another call has used it; state: the job's state now, null where there is no such job.
It waits for a transaction that has one of the jobs locked, and the others wait with it: jobs.finish_many leaves that job instead.
At most 10000. Errors: 22023 arrays of different length, more than 10000; 22004 a null in ids or tokens, 54000 an output whose text is longer than jobs.max_payload, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.finish_result AS (
  state        jobs.state,
  scheduled_at timestamptz);
COMMENT ON TYPE jobs.finish_result IS
  'The state of a job after an attempt, and when it can run again.';

CREATE FUNCTION jobs.fail(
  id bigint, token bigint, error text, retry_in interval DEFAULT NULL, retryable boolean DEFAULT true, details jsonb DEFAULT NULL)
RETURNS jobs.finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fail_wrapper';
COMMENT ON FUNCTION jobs.fail(bigint, bigint, text, interval, boolean, jsonb) IS
$$Records a failed attempt. Attempts left: retryable after retry_in, else after the job's policy (see jobs.insert); available at once if that is 0.
An error longer than 1,000,000 bytes is cut; the text that is kept says so.
At max_attempts, with retryable => false, or when the policy's non_retryable has the type of the error (details: {"type": ..}): discarded. After a cancel request: cancelled. scheduled_at: when it will be retried, null when final.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id, token or error, 54000 details whose text is longer than jobs.max_payload, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved, 22023 a negative retry_in.$$;

CREATE TYPE jobs.batch_fail_result AS (
  id           bigint,
  state        jobs.state,
  scheduled_at timestamptz,
  done         boolean);
COMMENT ON TYPE jobs.batch_fail_result IS
  'Whether a failed attempt of one of many jobs was recorded, its state, and when it can run again.';

CREATE FUNCTION jobs.fail_many(
  ids bigint[], tokens bigint[], errors text[], details jsonb[] DEFAULT NULL, retry_in interval DEFAULT NULL)
RETURNS SETOF jobs.batch_fail_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'fail_many_wrapper';
COMMENT ON FUNCTION jobs.fail_many(bigint[], bigint[], text[], jsonb[], interval) IS
$$Records failed attempts of many jobs, each as jobs.fail does, with its error and its details (details, or one of them, null: none); a row per pair, in order, never all or nothing. retry_in counts for all of them.
done: this token failed the job, now or by an earlier call of fail, fail_many or finish_many; state and scheduled_at are then those that it got, else state is the job's state now, null where there is no such job.
It waits for a transaction that has one of the jobs locked, and the others wait with it: jobs.finish_many leaves that job instead.
At most 10000. Errors: 22023 arrays of different length, more than 10000, a negative retry_in; 22004 a null in ids, tokens or errors; 54000 details whose text is longer than jobs.max_payload; 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.batch_finish_result AS (
  ord          integer,
  id           bigint,
  state        jobs.state,
  scheduled_at timestamptz,
  done         boolean,
  reason       text);
COMMENT ON TYPE jobs.batch_finish_result IS
  'What became of one of many jobs whose attempts were to end, or the reason why its attempt could not.';

CREATE FUNCTION jobs.finish_many(
  results jsonb)
RETURNS SETOF jobs.batch_finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'finish_many_wrapper';
COMMENT ON FUNCTION jobs.finish_many(jsonb) IS
$$Ends the attempts of many jobs, each in its own way: results is an array of objects with id, token and do. do is one of complete (may have output), fail (error; may have details, retry_in, retryable), snooze (delay) and release, and means what the function of that name does; or it is cancel (may have reason): the worker itself cancels the job, as by jobs.cancel and jobs.release in one. Durations are seconds, ISO 8601 or Postgres interval text. JSON null leaves a member out, but it is a value of output.
A row per result, in order (ord from 1), never all or nothing. done: this call ended the attempt, or the same call did before; state and scheduled_at are then those that the job got. Else reason is lease_lost, already_finished or unknown, as of a call for one job, or locked, and state is the job's state now, null where there is no such job. locked: another transaction still had the job locked after a second, or half of statement_timeout where that is less, as an open jobs.cancel does. Nothing is lost: send the result again, and go on with heartbeats. Of results with the same id and token the first one counts.
At most 10000. Jobs are locked in the order of their ids, as by all calls for many: only a transaction with several such calls can get 40P01. Errors, each with the element in DETAIL, and then nothing is changed: 22023 no array, an unknown member or do, a member that goes with another do, a wrong type, a negative delay or retry_in, more than 10000; 22004 no id, token, do, error or delay; 54000 output or details whose text is longer than jobs.max_payload; 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.snooze(
  id bigint, token bigint, delay interval)
RETURNS jobs.finish_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'snooze_wrapper';
COMMENT ON FUNCTION jobs.snooze(bigint, bigint, interval) IS
$$Gives a running job back until delay from now: scheduled, the attempt does not count, no error is recorded. After a cancel request: cancelled.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved, 22023 a negative delay.$$;

CREATE FUNCTION jobs.release(
  id bigint, token bigint)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'release_wrapper';
COMMENT ON FUNCTION jobs.release(bigint, bigint) IS
$$Gives a running job back at once (the worker shuts down): available, the attempt does not count, no error is recorded. After a cancel request: cancelled.
Called again with the same token it answers as the first time, whatever its other arguments. Errors: 55000 with DETAIL already_finished when another finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, P0002 unknown id, 22004 a null id or token, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.heartbeat_result AS (
  lease_expires_at timestamptz,
  deadline_at      timestamptz,
  cancel_requested boolean);
COMMENT ON TYPE jobs.heartbeat_result IS
  'The lease of a running job, and whether its worker should stop.';

CREATE FUNCTION jobs.heartbeat(
  id bigint, token bigint, lease interval DEFAULT NULL, progress jsonb DEFAULT NULL)
RETURNS jobs.heartbeat_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'heartbeat_wrapper';
COMMENT ON FUNCTION jobs.heartbeat(bigint, bigint, interval, jsonb) IS
$$A heartbeat: renews the lease (null: as long as the fetch asked for), never past the deadline, and may record progress (null: unchanged). cancel_requested: the worker should stop.
It waits for nobody. While another transaction has the job locked, as an open jobs.cancel does, it returns the lease as it was and records no progress. It counts all the same: when that transaction ends, the lease goes on as asked for.
Errors: 55000 with DETAIL already_finished when a finishing call has used the token, 55000 with DETAIL lease_lost when it is not the job's current one, 55000 with DETAIL deadline_exceeded past the deadline, P0002, 22004, 22023 a lease that is not positive, 54000 a progress whose text is longer than jobs.max_payload, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.cancel(
  id bigint, reason text DEFAULT NULL, force boolean DEFAULT false)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cancel_wrapper';
COMMENT ON FUNCTION jobs.cancel(bigint, text, boolean) IS
$$Cancels a job that is not final. A running one stays running with cancel_requested_at set and its worker is told at its next heartbeat and by a notification on channel jobs; with force it is cancelled at once and the worker's later calls are refused.
A final job is left as it is. So is a running job that was asked to stop already, but another reason is written down. Returns the state. Errors: P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.retry(
  id bigint, reset boolean DEFAULT false, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retry_wrapper';
COMMENT ON FUNCTION jobs.retry(bigint, boolean, text) IS
$$Makes a job available now: one that waits, is pending, or is final (max_attempts grows by 1 if attempts were exhausted). reset: attempt back to 0; errors are kept.
An available or running job is left as it is. Returns the state. Errors: P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.delete(
  id bigint, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'delete_wrapper';
COMMENT ON FUNCTION jobs.delete(bigint, text) IS
$$Deletes a job that is not running, with its errors. Returns the state that it had. Errors: 55000 it is running, P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE TYPE jobs.batch_heartbeat_result AS (
  id               bigint,
  lease_expires_at timestamptz,
  deadline_at      timestamptz,
  cancel_requested boolean);
COMMENT ON TYPE jobs.batch_heartbeat_result IS
  'The lease of one of many running jobs. All but id are null for a job that is lost.';

CREATE FUNCTION jobs.heartbeat_many(
  ids bigint[], tokens bigint[], lease interval DEFAULT NULL)
RETURNS SETOF jobs.batch_heartbeat_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'heartbeat_many_wrapper';
COMMENT ON FUNCTION jobs.heartbeat_many(bigint[], bigint[], interval) IS
$$Heartbeats of many jobs in one statement; a row per id, in order. A job that is lost (its token is no longer current, or its deadline is over) has nulls. It waits for nobody, as jobs.heartbeat.
At most 10000. Errors: 22023 arrays of two lengths, more than 10000, a lease that is not positive; 22004 a null array or element, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.activate(
  id bigint, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'activate_wrapper';
COMMENT ON FUNCTION jobs.activate(bigint, text) IS
$$Makes a pending job available, or scheduled if its scheduled_at is in the future. Returns the state. Errors: 55000 it is not pending, P0002 unknown id, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.update(
  id bigint, args jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL,
  max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL,
  retry jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL, reason text DEFAULT NULL)
RETURNS jobs.state
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'update_wrapper';
COMMENT ON FUNCTION jobs.update(bigint, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, text) IS
$$Changes a job that is neither running nor final; null: unchanged. A new scheduled_at makes a waiting job scheduled or available, as an insert would; a pending one stays pending. A queue or priority puts an available job at the end of that lane. Other values that the job has already change nothing. Its unique key stays.
Returns the state. Errors: 55000 it is running or final, P0002 unknown id, 22023 and 54000 as jobs.insert (args and meta count together, also if only one is changed), 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when the job moved.$$;

CREATE FUNCTION jobs.cancel_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cancel_many_wrapper';
COMMENT ON FUNCTION jobs.cancel_many(text, text, jobs.state[], text, interval, integer, text) IS
$$Cancels the jobs that a filter finds, as jobs.cancel does, for this reason: running ones are asked to stop, those that were asked already are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved, 40P01 a deadlock with another transaction that has locked several of the jobs: repeat the transaction.$$;

CREATE FUNCTION jobs.retry_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000,
  reset boolean DEFAULT false, error_like text DEFAULT NULL, failed_after timestamptz DEFAULT NULL, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retry_many_wrapper';
COMMENT ON FUNCTION jobs.retry_many(text, text, jobs.state[], text, interval, integer, boolean, text, timestamptz, text) IS
$$Makes the jobs that a filter finds available, as jobs.retry does; available and running ones are left out. reset: attempt back to 0. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; error_like is a LIKE pattern of the job's latest error, in which % and _ are wildcards and \ before one escapes it, and failed_after says after when that was: by these two alone no completed job is found, whatever it failed at before. None at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000, an error_like that ends with a single backslash, an infinite failed_after; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved, 40P01 a deadlock with another transaction that has locked several of the jobs: repeat the transaction.$$;

CREATE FUNCTION jobs.delete_many(
  queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL,
  older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'delete_many_wrapper';
COMMENT ON FUNCTION jobs.delete_many(text, text, jobs.state[], text, interval, integer, text) IS
$$Deletes the jobs that a filter finds, as jobs.delete does; running ones are left out. Returns how many.
Filters are joined by and; null: any; older_than counts from created_at; none at all is refused (for all jobs give all states). At most max_jobs, oldest first.
Errors: 22023 no filter, a negative older_than, max_jobs not from 1 to 10000; 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when a job moved, 40P01 a deadlock with another transaction that has locked several of the jobs: repeat the transaction.$$;
-- What is set of kinds and queues. Rust: src/api/configure.rs

CREATE FUNCTION jobs.define_kind(
  kind text, queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, unique_opts jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'define_kind_wrapper';
COMMENT ON FUNCTION jobs.define_kind(text, text, integer, integer, interval, jsonb, jsonb, text) IS
$$Sets what jobs of a kind are inserted with, by whatever client, where the insert says nothing; null: the system's default. Replaces what was defined before; jobs that are there stay as they are. unique_opts '{}' of an insert means not unique, whatever the kind says.
Errors: as jobs.insert; 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.undefine_kind(
  kind text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'undefine_kind_wrapper';
COMMENT ON FUNCTION jobs.undefine_kind(text, text) IS
$$Takes back what jobs.define_kind has set: jobs of the kind are inserted with the system's defaults again; those that are there stay as they are. Whether anything was defined. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.pause_queue(
  queue text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_queue_wrapper';
COMMENT ON FUNCTION jobs.pause_queue(text, text) IS
$$Stops fetching from a queue, which need not have jobs yet, from the next fetch on. Jobs that run go on, inserts and maintenance too. jobs.queues shows since when, by whom and why; a queue that is paused already stays as it is. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.resume_queue(
  queue text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_queue_wrapper';
COMMENT ON FUNCTION jobs.resume_queue(text, text) IS
$$Lets a paused queue go on; one that is not paused stays as it is. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.configure_queue(
  queue text, concurrency integer DEFAULT NULL, rate integer DEFAULT NULL, rate_period interval DEFAULT NULL,
  retention_completed interval DEFAULT NULL, retention_cancelled interval DEFAULT NULL, retention_discarded interval DEFAULT NULL,
  max_waiting integer DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'configure_queue_wrapper';
COMMENT ON FUNCTION jobs.configure_queue(text, integer, integer, interval, interval, interval, interval, integer, text) IS
$$Sets the limits of a queue, all of them: null means no limit, or the system's retention. concurrency: the most jobs of it that run at a time, anywhere (1 to 10000). rate: the most that start within any time of rate_period's length (1 to 100000); both or neither. retention_..: how long final jobs are kept; -1 second: for ever.
max_waiting: the bound of the queue: the most jobs of it that wait, which are the available, scheduled, retryable and pending ones. An insert that has no room is 54000, with DETAIL {"depth": how many wait, counted up to the bound, "bound": ..}, and writes nothing; a batch that has no room for all of its jobs is refused whole. Duplicates are answered as ever and count nothing. A periodic job whose queue is full is tried again every second. Whatever else makes a job wait (retry, fail, snooze, release, update) is never refused. What others have not committed yet does not count, so while transactions are open the queue can get more, by as many jobs as these have inserted. Counting takes about 1 ms for 10,000 jobs; a session does so where the bound may be near, and with its first insert.
A fetch may get fewer than would fit. Jobs that run already count for concurrency, those that have started do not count for a new rate. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile, 40P01 a deadlock with another transaction that has configured or paused several queues: repeat the transaction.$$;

CREATE FUNCTION jobs.reset_queue(
  queue text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'reset_queue_wrapper';
COMMENT ON FUNCTION jobs.reset_queue(text, text) IS
$$Takes back what jobs.configure_queue has set: no limits, and the system's retention. A queue that is paused stays paused: jobs.resume_queue lets it go on. Whether anything was set. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;
-- Periodic jobs. Rust: src/api/periodic.rs, src/ticks.rs

CREATE TYPE jobs.schedule_result AS (
  outcome     text,
  next_run_at timestamptz);
COMMENT ON TYPE jobs.schedule_result IS
  'Whether a periodic job was created, changed or left unchanged by its definition, and its next tick.';

CREATE FUNCTION jobs.schedule(
  name text, cron text, kind text, args jsonb DEFAULT '{}', time_zone text DEFAULT 'UTC', unique_opts jsonb DEFAULT NULL,
  queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL,
  meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, missed text DEFAULT 'once',
  reason text DEFAULT NULL)
RETURNS jobs.schedule_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'schedule_wrapper';
COMMENT ON FUNCTION jobs.schedule(text, text, text, jsonb, text, jsonb, text, integer, integer, text[], jsonb, interval, jsonb, text, text) IS
$$Defines a periodic job: at each tick one job is inserted, as jobs.insert does, with the tick as its scheduled_at. A definition of the same name is replaced as a whole; a tick of it that has passed is dealt with first. One that says the same already is left as it is, and one that is paused stays so.
Returns outcome (created, changed or unchanged) and the next tick (null: it is paused).
cron: minute, hour, day of month, month and day of week of a clock in time_zone; or @hourly, @daily, @weekly, @monthly, @yearly; or every and a duration of fixed length (every 90 seconds), which counts from 0001-01-01 00:00 UTC and allows no other time_zone. Days can be L (last day of the month), 15W (nearest weekday), 5L (last Friday) and 1#2 (second Monday).
time_zone: a name in pg_timezone_names. Offsets such as UTC+3 and abbreviations are refused.
Where the clock is put forward, a tick that it skips comes at the first moment after; where it is put back, a tick is the first time only; a schedule of every hour goes on with the time that passes.
One job a tick, whatever the number of workers, restarts and failovers. A job that the unique options skip or reject, or that cannot be inserted, is left out; jobs.periodic says so.
missed: what happens to ticks that are more than 60 seconds late because neither server nor worker ran. once: the latest gets its job; skip: none does.
Options: as jobs.insert; null: the default when the job is inserted. Errors: 22023 and 22004 as jobs.insert, 22023 an invalid cron, time_zone or missed, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.unschedule(
  name text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unschedule_wrapper';
COMMENT ON FUNCTION jobs.unschedule(text, text) IS
$$Ends a periodic job; its jobs that are there stay. Whether there was one of this name. Errors: 22004, 22023 what cannot be a name, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.pause_periodic(
  name text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_periodic_wrapper';
COMMENT ON FUNCTION jobs.pause_periodic(text, text) IS
$$Stops the ticks of a periodic job until jobs.resume_periodic; a tick that has passed and has no job yet gets none. Its jobs that are there stay. jobs.periodic shows since when, by whom and why; what is paused already stays as it is. Errors: P0002 no such name, 22023 what cannot be a name, 22004, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when the definition was changed meanwhile.$$;

CREATE FUNCTION jobs.resume_periodic(
  name text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_periodic_wrapper';
COMMENT ON FUNCTION jobs.resume_periodic(text, text) IS
$$Lets a periodic job that is paused go on, from the next tick on: those that fell into the pause are not made up for. What is not paused stays as it is. Errors: as jobs.pause_periodic; 22023 also where the server does not know the time zone any more.$$;

CREATE FUNCTION jobs.run_periodic(
  name text, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'run_periodic_wrapper';
COMMENT ON FUNCTION jobs.run_periodic(text, text) IS
$$Inserts the job of a periodic job now, beside its ticks, which come as ever; also while it is paused. Returns the id of the job or, where the unique options of the definition skip it as a duplicate, that of the job that is there. Errors: P0002 no such name, and as jobs.insert, also 23505 where the unique options reject a duplicate.$$;
-- Workers as operators see them. Rust: src/api/workers.rs

CREATE FUNCTION jobs.worker_beat(
  worker text, queues text[], concurrency integer, info jsonb DEFAULT NULL)
RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'worker_beat_wrapper';
COMMENT ON FUNCTION jobs.worker_beat(text, text[], integer, jsonb) IS
$$A worker says that it is there, under the name that it fetches with: which queues it takes jobs from, how many it runs at a time, and what else is worth knowing (info: an object; version is shown by itself). The view jobs.workers shows it then, idle or not.
To be called at least every 30 seconds: a worker that was not seen for 60 seconds is shown as lost. It renews no lease: that is what jobs.heartbeat is for. What was said before is replaced; said again within 3 seconds, nothing is written.
Returns the command of the worker: run; quiet (fetch no more, let what runs end); stop (the same, and then end).
At most 10000 queues. Errors: 22023 more queues, a concurrency below 1, a bad name, info that is no object; 54000 info whose text is longer than jobs.max_payload; 22004, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE.$$;

CREATE FUNCTION jobs.quiet_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'quiet_worker_wrapper';
COMMENT ON FUNCTION jobs.quiet_worker(text, text) IS
$$Stops a worker from fetching, until jobs.resume_worker: from the next fetch on it gets nothing, whatever its program does, and jobs.worker_beat tells it. What it runs goes on, heartbeats too. It need not have said that it is there: the name that it fetches with counts. A worker that has this command already stays as it is. Kept in the database: it outlives restarts, and dumps have it. Maintenance forgets it once the worker has neither fetched nor said that it is there for 30 days, and runs nothing.
Errors: 22023 a bad name, 22004, 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when it got another command meanwhile.$$;

CREATE FUNCTION jobs.stop_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'stop_worker_wrapper';
COMMENT ON FUNCTION jobs.stop_worker(text, text) IS
$$As jobs.quiet_worker, and jobs.worker_beat asks the worker to end once what it runs is done. A worker that starts again under that name has the same command, until jobs.resume_worker. Errors: as jobs.quiet_worker.$$;

CREATE FUNCTION jobs.resume_worker(
  worker text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_worker_wrapper';
COMMENT ON FUNCTION jobs.resume_worker(text, text) IS
$$Takes back the command that jobs.quiet_worker or jobs.stop_worker gave a worker; one that has none stays as it is. Errors: as jobs.quiet_worker.$$;
-- What the background worker does, to be done at once. Rust: src/api/maintain.rs, src/worker/

CREATE FUNCTION jobs.maintain()
RETURNS TABLE (task text, rows bigint, duration interval, error text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'maintain_wrapper';
COMMENT ON FUNCTION jobs.maintain() IS
$$Runs every maintenance task once: schedule (due jobs become available), periodic (jobs of ticks that have passed are inserted), expire, rescue (leases that ran out; times that lie ahead of a clock which was put back), prune (final jobs past their retention, and past their own by_period and window; rows of jobs.audit past theirs; workers that were not seen for a day; the command of a worker, once that is not seen for 30 days), claims (keys that no job needs), statistics (counts of long tables; minutes of jobs.history).
A row per task; a failing task, or a job that a task fails at, is reported in error and does not stop the others. What is too much for one transaction is left to the next call, and error says so. While maintenance is paused, or the database is being restored, nothing is done and error says so. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.pause_maintenance(reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_maintenance_wrapper';
COMMENT ON FUNCTION jobs.pause_maintenance(text) IS
$$Stops maintenance of this database, by the background worker and by jobs.maintain(), until jobs.resume_maintenance(). Waits for maintenance that is under way: a round of the background worker, or a transaction that has called jobs.maintain(); once this is committed nothing is maintained. Inserting, fetching and finishing go on, and a fetch still finds what is due. Kept in the database: it outlives restarts, and dumps have it. While it is paused already, nothing changes. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.resume_maintenance(reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_maintenance_wrapper';
COMMENT ON FUNCTION jobs.resume_maintenance(text) IS
$$Lets maintenance go on that jobs.pause_maintenance() has stopped. Errors: 25006 on a standby or read only.$$;

CREATE FUNCTION jobs.installed() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'installed_wrapper';
COMMENT ON FUNCTION jobs.installed() IS
$$The end of the install script, and of each upgrade script: refuses a database whose encoding is not UTF8 (0A000), takes what others have come by that is the owner's alone, as by ALTER DEFAULT PRIVILEGES, and tells the background worker, at commit, that this database has the extension. Of what the script has made it takes every right, of what was there before the right to write, TRIGGER, REFERENCES and CREATE; what jobs.grant_producer and the like have granted stays. For the extension's owner and superusers only (42501). Harmless otherwise.$$;
-- What monitoring asks, and people at a prompt. Rust: src/api/observe.rs and
-- src/store/{health,metrics,show,explain}.rs

CREATE FUNCTION jobs.health(
  old_snapshot interval DEFAULT '5 minutes', oldest_available interval DEFAULT '5 minutes', lock_wait interval DEFAULT '1 second',
  dead_rows bigint DEFAULT 100000)
RETURNS TABLE (severity text, finding text, message text, hint text)
LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'health_wrapper';
COMMENT ON FUNCTION jobs.health(interval, interval, interval, bigint) IS
$$What needs somebody's attention: a row per finding, the worst first; none means that all is well. severity is critical, warning or info. finding is one of the words below, to filter by. hint has a command that shows what is behind it or mends it, as it stands.
worker_not_running: the background worker does not run here, and nobody has called jobs.maintain() for 10 minutes; for 5 where no process is left for the worker.
no_slot: more than 256 databases of the server have the extension, and this one is among those that the background worker visits in turn, every 5 seconds.
maintenance_paused: by whom, and since when.
restoring: maintenance waits for pg_restore.
maintenance_failing: a task has failed at least the last time, with the error.
old_snapshot: what keeps vacuum from clearing away dead rows, and whose it is.
oldest_available: how long the oldest available job of a queue that is not paused has waited (see jobs.queues.oldest_available_at).
discarded: jobs that were discarded in the last hour.
mostly_failing: a kind or queue of which more attempts failed in the last 10 minutes than jobs were completed, and 10 at least; with the newest error. Not where completed jobs are kept for less than 10 minutes.
running_long: jobs that have run for a minute at least, ten times as long as 95 of 100 of the latest jobs of their kind, and longer than any of them.
queue_paused: a paused queue with jobs that could be fetched; info, from an hour on a warning.
no_worker: a queue that is not paused, whose jobs have waited for 5 minutes, and from which nobody has fetched for as long.
lost_worker: a worker that was not seen for a minute and holds jobs, and when the last of their leases ends.
periodic_failed: a periodic job whose latest tick has no job because of an error.
clock_moved: stored times lie more than a minute ahead of the clock, or were brought forward within the last day; with how many and by how much.
expired_leases: running jobs that nobody has rescued a minute after their lease ran out.
bloat: a table with more dead rows than live ones.
lock_wait: a session that waits for a unique key, and for whom.
table_changed: what somebody has changed about a table that makes calls slower, or an index that was left behind unfinished.
foreign_right: what others may do with the extension's objects that is the owner's alone: write, TRIGGER, REFERENCES, CREATE.
foreign_trigger: a trigger or rule that somebody has attached; it makes calls slower, too.
foreign_owner: an object that another role owns than the extension.
Parameters: from when on a snapshot, an available job or a wait for a key is a finding (critical from 12 times that on, a wait from 60 times), and how many dead rows; null: never. Errors: 22023 where one is negative.
Works on a standby, for what can be seen there.$$;

CREATE FUNCTION jobs.metrics()
RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'metrics_wrapper';
COMMENT ON FUNCTION jobs.metrics() IS
$$Everything to be measured, for Prometheus and others: name of the metric, type (gauge or counter), labels as a JSON object, value, what it means. Times are in seconds. At most jobs.metrics_max_series rows are by queue and kind. The busiest queues have rows of their own, and so have pairs of queue and kind as long as there is room or in the place of idle ones; the rest is summed as (others). A histogram without measurements is left out. Costs as much as the views jobs.queues, jobs.workers and jobs.maintenance. Counters without labels are those of the server's statistics: they count what was rolled back as well, and begin anew when those are reset. Counters by queue and kind, and histograms of how long attempts waited and ran (jobs_wait_seconds, jobs_run_seconds), are those of jobs.history since the server began.$$;

CREATE FUNCTION jobs.history(
  queue text DEFAULT NULL, kind text DEFAULT NULL, since interval DEFAULT '1 hour', step interval DEFAULT '1 minute')
RETURNS TABLE (at timestamptz, queue text, kind text, inserted bigint, started bigint, completed bigint, failed bigint,
               discarded bigint, cancelled bigint, wait_p50 interval, wait_p95 interval, wait_p99 interval,
               run_p50 interval, run_p95 interval, run_p99 interval)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'history_wrapper';
COMMENT ON FUNCTION jobs.history(text, text, interval, interval) IS
$$What happened to jobs, by steps of time, queue and kind, up to what has just committed. queue, kind: only that one; null: all, each with rows of its own. since: how far back; step: whole minutes, and at is a multiple of it in UTC. A step in which nothing happened has no row.
inserted, completed, discarded and cancelled count jobs; started and failed count attempts, of the queue and kind with which they were fetched. Each counts at its own time, not at that of the commit; what is rolled back does not count. An attempt that is snoozed or released counts as started only.
wait_p50, wait_p95, wait_p99: how long half, 95 and 99 % of the attempts that began waited at most: since the later of when the job was due and when it was inserted, retried, activated or released, or its queue resumed. run_..: how long those ran at most that ended: completed, failed or cancelled. Both are off by less than a quarter, or by less than 256 microseconds. Null: there was none.
Minutes are kept for jobs.retention_history. A crash or a restart of the server loses those that maintenance has not written yet, mostly the last one or two. Errors: 22023 a bad name, a since that is not positive, a step that is not of whole minutes; 22004 a null since or step. Works on a standby, for what was written.$$;

CREATE FUNCTION jobs.top()
RETURNS TABLE (queue text, available bigint, oldest interval, running bigint, workers bigint, scheduled bigint, retryable bigint,
               completed_per_s numeric, failed_per_s numeric, note text)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  WITH clock AS (SELECT clock_timestamp() AS now), latest AS MATERIALIZED (
    SELECT f.job_id, f.finalized_at
      FROM unnest('{false,true}'::boolean[]) AS k(is_kept), LATERAL (
        SELECT f.job_id, f.finalized_at FROM jobs.finished f
         WHERE f.state = 'completed' AND f.is_kept = k.is_kept AND f.finalized_at > (SELECT c.now - interval '1 minute' FROM clock c)
         ORDER BY f.finalized_at DESC LIMIT 10000) f
     ORDER BY f.finalized_at DESC LIMIT 10000
  ), span AS (  -- of the minute, or of the part of it in which so many were completed
    SELECT CASE WHEN count(*) < 10000 THEN 60 ELSE GREATEST(extract(epoch FROM (SELECT c.now FROM clock c) - min(l.finalized_at)), 0.001) END AS seconds FROM latest l
  ), completed AS (
    SELECT j.queue, count(*) AS n FROM latest l JOIN jobs.job j ON j.id = l.job_id GROUP BY j.queue
  ), failed AS (
    SELECT j.queue, count(*) AS n
      FROM (SELECT e.job_id FROM jobs.error e WHERE e.at > (SELECT c.now - interval '1 minute' FROM clock c) LIMIT 10000) e JOIN jobs.job j ON j.id = e.job_id
     GROUP BY j.queue
  ), busy AS (
    SELECT COALESCE(r.queue, j.queue) AS queue, count(DISTINCT r.worker) AS workers FROM jobs.running r JOIN jobs.job j ON j.id = r.job_id GROUP BY 1
  ), line AS MATERIALIZED (
    SELECT q.queue, q.available, (SELECT c.now FROM clock c) - q.oldest_available_at AS oldest, q.running, q.scheduled, q.retryable,
           q.paused, q.running >= q.concurrency AS is_full, q.estimated <> '{}' AS is_estimated
      FROM jobs.queues q
  ), busiest AS (
    SELECT l.*, COALESCE(c.n, 0) AS completed
      FROM line l LEFT JOIN completed c ON c.queue = l.queue
     ORDER BY completed DESC, l.running DESC, l.available DESC, l.queue LIMIT 1000
  )
  SELECT a.queue, a.available, date_trunc('second', CASE WHEN a.oldest < interval '0' THEN interval '0' ELSE a.oldest END), a.running, a.workers, a.scheduled, a.retryable,
         round(a.completed / s.seconds, 1), round(a.failed / 60.0, 1), a.note
    FROM (SELECT 0 AS part, '(all)', sum(l.available)::bigint, max(l.oldest), sum(l.running)::bigint, (SELECT count(DISTINCT r.worker) FROM jobs.running r),
                 sum(l.scheduled)::bigint, sum(l.retryable)::bigint,
                 COALESCE((SELECT sum(c.n) FROM completed c), 0), COALESCE((SELECT sum(f.n) FROM failed f), 0), ''
            FROM line l HAVING count(*) > 0
          UNION ALL
          SELECT 1, b.queue, b.available, b.oldest, b.running, COALESCE(w.workers, 0), b.scheduled, b.retryable, b.completed, COALESCE(f.n, 0),
                 concat_ws(', ', CASE WHEN b.paused THEN 'paused' END, CASE WHEN b.is_full THEN 'full' END, CASE WHEN b.is_estimated THEN 'estimated' END)
            FROM busiest b LEFT JOIN busy w ON w.queue = b.queue LEFT JOIN failed f ON f.queue = b.queue
         ) a(part, queue, available, oldest, running, workers, scheduled, retryable, completed, failed, note), span s
   ORDER BY a.part, a.completed DESC, a.running DESC, a.available DESC, a.queue;
END;
COMMENT ON FUNCTION jobs.top() IS
$$What happens right now, for \watch in psql: a row for all queues together, then one for each of the 1,000 busiest queues, in that order. available, running, scheduled, retryable: how many jobs, as in jobs.queues; oldest: how long the oldest available one has waited; workers: how many hold jobs; completed_per_s: over the last minute, or as long as the latest 10,000 took, of those that are kept (a retention of less than a minute hides some); failed_per_s: attempts that failed in the last minute, of which at most 10,000 are counted; note: paused, full (as many run as may), estimated (some of the numbers were counted before, see jobs.queues).$$;

CREATE FUNCTION jobs.last_id() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END FROM jobs.job_seq s;
END;
COMMENT ON FUNCTION jobs.last_id() IS
$$No job has a larger id than this, also none of a transaction that is still open; 0: there has been none yet. Costs nothing, however many jobs there are, so a program can read the jobs that were inserted last: WHERE id > jobs.last_id() - 1000. It can be larger than the id of the newest job: some numbers are given to nothing that stays. No errors; works on a standby.$$;

CREATE FUNCTION jobs.show(id bigint) RETURNS text
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'show_wrapper';
COMMENT ON FUNCTION jobs.show(bigint) IS
$$The whole story of a job as text, to be read by people: what it is, what it carries, what happened to it and when, in the session's time zone, and what comes next. In psql best seen by \g (format=unaligned tuples_only). Shows what the caller may see in the views: a viewer sees no args, meta, progress and output. Control characters are shown as escapes, so no text commands the terminal or looks like another line. The form of the text may change; programs read jobs.jobs and jobs.errors. Errors: P0002 no such job, 22004 id is null.$$;

-- Not SECURITY DEFINER: it looks whether the caller may see what jobs carry before it switches to
-- the owner.
CREATE FUNCTION jobs.explain(id bigint)
RETURNS TABLE (reason text, detail text, until timestamptz, by_ids bigint[])
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'explain_wrapper';
COMMENT ON FUNCTION jobs.explain(bigint) IS
$$Why a job does not run now, or since when it does: a row for each reason that holds, the decisive one first. detail says it in words, until is when the reason is over by itself (null: not known), by_ids are jobs that it is about (10 of them at most). All of it is what one snapshot shows.
reason: final, running (with worker, lease, deadline, a request to stop, and the progress for a role that may SELECT from jobs.job; until: the lease), expired; or of a job that waits those of pending (with scheduled, if it is due later), scheduled, retryable, queue paused, queue limit (as many run as may; by_ids: those), queue rate (until: the next start), no worker (nobody has fetched from its queue for 5 minutes, or since all its workers are quiet), kind not asked for (its queue is fetched from, and no fetch of the last 5 minutes has asked for its kind; not known without preload, nor of fetches before the server was started), behind n jobs (that a fetch from its queue takes before it; more than 10000 are not counted), next (the next fetch from its queue gets it).
A job that is due but not yet available can be fetched: then the last two say so. A job of a kind that is not asked for is not next. Costs the same however many jobs wait. Errors: P0002 no such job, 22004 id is null. Works on a standby.$$;
-- What must hold whatever happens, and how often it does not. One statement, so one snapshot: work
-- that goes on does not disturb it. A new invariant is a branch of broken and a row of rule.

CREATE FUNCTION jobs.check()
RETURNS TABLE (invariant text, violations bigint, job_ids bigint[], rule text)
LANGUAGE sql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  WITH place AS (
    SELECT r.job_id FROM jobs.ready r
    UNION ALL SELECT s.job_id FROM jobs.scheduled s
    UNION ALL SELECT r.job_id FROM jobs.running r
    UNION ALL SELECT f.job_id FROM jobs.finished f
  ), waiting AS (
    SELECT r.job_id, r.queue, r.priority, r.expires_at, r.attempt FROM jobs.ready r
    UNION ALL SELECT s.job_id, s.queue, NULL, s.expires_at, s.attempt FROM jobs.scheduled s
  ), broken AS MATERIALIZED (
    SELECT 'one_place' AS invariant, COALESCE(j.id, p.job_id) AS job_id
      FROM jobs.job j FULL JOIN (SELECT p.job_id, count(*) AS places FROM place p GROUP BY p.job_id) p ON p.job_id = j.id
     WHERE j.id IS NULL OR p.places IS DISTINCT FROM 1
    UNION ALL
    SELECT 'same_queue', j.id FROM jobs.job j JOIN waiting w ON w.job_id = j.id
     WHERE w.queue <> j.queue OR w.priority <> j.priority OR w.expires_at IS DISTINCT FROM j.expires_at
    UNION ALL
    SELECT 'attempts', w.job_id FROM waiting w WHERE w.attempt < 0
    UNION ALL
    SELECT 'attempts', r.job_id FROM jobs.running r WHERE r.attempt < 1
    UNION ALL
    SELECT 'attempts', f.job_id FROM jobs.finished f WHERE f.attempt < 0 OR f.state = 'completed' AND f.attempt < 1
    UNION ALL
    SELECT 'state', s.job_id FROM jobs.scheduled s
     WHERE s.state NOT IN ('scheduled', 'retryable', 'pending') OR (s.state = 'pending') <> (s.due_at = 'infinity')
    UNION ALL
    SELECT 'state', f.job_id FROM jobs.finished f WHERE f.state NOT IN ('completed', 'cancelled', 'discarded')
    UNION ALL
    SELECT 'lease', r.job_id FROM jobs.running r
     WHERE r.lease_expires_at > r.deadline_at OR r.token NOT BETWEEN 0 AND 9007199254740991
    UNION ALL
    SELECT 'error', e.job_id FROM jobs.error e WHERE NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = e.job_id)
    UNION ALL
    SELECT 'claim', j.id FROM jobs.job j
     WHERE j.unique_key IS NOT NULL
       AND NOT EXISTS (SELECT FROM jobs.unique_claim c WHERE c.key = j.unique_key AND (j.id = ANY (c.jobs)
             OR EXISTS (SELECT FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'f' AND n.seq = j.id)
             OR EXISTS (SELECT FROM jobs.unique_note n WHERE n.key = c.key AND n.kind = 'r' AND n.job_id = j.id)))
    UNION ALL
    SELECT 'claim', u.id FROM jobs.unique_claim c, unnest(c.jobs) u(id) JOIN jobs.job j ON j.id = u.id WHERE j.unique_key IS DISTINCT FROM c.key
    UNION ALL
    SELECT 'claim', c.jobs[1] FROM jobs.unique_claim c
     WHERE cardinality(c.jobs) = 0 OR cardinality(c.hold_ends_at) <> cardinality(c.jobs) OR array_position(c.jobs, NULL) IS NOT NULL
    UNION ALL
    SELECT 'slot', q.job_id FROM jobs.queue_slot q
     WHERE q.job_id IS NOT NULL AND NOT EXISTS (SELECT FROM jobs.running r WHERE r.job_id = q.job_id AND r.slot = q.slot)
    UNION ALL
    SELECT 'slot', r.job_id FROM jobs.running r JOIN jobs.queue_slot q ON q.slot = r.slot WHERE q.job_id IS DISTINCT FROM r.job_id
    UNION ALL
    SELECT 'sequence', j.id FROM jobs.job j, jobs.job_seq s WHERE j.id > s.last_value
    UNION ALL
    SELECT 'sequence', r.job_id FROM jobs.ready r, jobs.job_seq s WHERE r.seq > s.last_value
  ), rule(n, invariant, rule) AS (VALUES
    (1, 'one_place', 'Every job is in exactly one of the tables ready, scheduled, running and finished, and these have no others.'),
    (2, 'same_queue', 'What waits has the queue, the priority and the expiry of its job.'),
    (3, 'attempts', 'No count of attempts is negative, and what runs or is completed has had one.'),
    (4, 'state', 'Each state is one of its table, and only what is pending is due at no time.'),
    (5, 'lease', 'A lease does not go beyond the deadline of its attempt, and its token is a number that JSON can carry.'),
    (6, 'error', 'Errors are those of jobs that exist.'),
    (7, 'claim', 'A job that was inserted as unique is listed under its key, and no key lists a job of another one.'),
    (8, 'slot', 'A slot of a queue with a limit is taken by a job that runs in it.'),
    (9, 'sequence', 'The numbers of jobs and of their places are ones that have been given out, so that none comes again.'))
  SELECT r.invariant, count(*), ARRAY(SELECT DISTINCT x.job_id FROM broken x WHERE x.invariant = r.invariant AND x.job_id IS NOT NULL ORDER BY x.job_id LIMIT 10), r.rule
    FROM rule r JOIN broken b ON b.invariant = r.invariant
   GROUP BY r.n, r.invariant, r.rule ORDER BY r.n;
END;
COMMENT ON FUNCTION jobs.check() IS
$$Whether everything holds that must hold in these tables, whatever happened: a row per invariant that is violated, how often, up to ten of the jobs, and what the rule is. No row: all is well; a row is a defect of the extension, of the storage, or somebody wrote to the tables by hand. Only while a dump is being restored, or a subscriber copies the tables, there may be some.
Reads all jobs, in one snapshot: work goes on meanwhile, and on millions of jobs it takes seconds to minutes; not in a SERIALIZABLE transaction, which would be in the way of all others. Works on a standby.$$;
-- Who may do what. Rust: src/api/access.rs
-- Not SECURITY DEFINER: they look who calls before they switch to the owner.

CREATE FUNCTION jobs.grant_producer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_producer_wrapper';
COMMENT ON FUNCTION jobs.grant_producer(text, text) IS
$$Lets a role, named as in pg_roles, insert jobs and wait for them: insert, insert_many, insert_batch, wait_for, results, unique_key, ojs_manifest. It can skip, replace or update what its own policy conflicts with, and cannot read jobs: jobs.results shows it how a job ended, without output and error. For the extension's owner and superusers only, whoever has been granted EXECUTE. Errors: 42501 for others, 42704 no such role, 22004, 25006.$$;

CREATE FUNCTION jobs.grant_worker(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_worker_wrapper';
COMMENT ON FUNCTION jobs.grant_worker(text, text) IS
$$Lets a role fetch and finish jobs: fetch, fetch_any, wait, wait_any, wait_for, results, heartbeat, heartbeat_many, complete, complete_many, finish_many, fail, fail_many, snooze, release, worker_beat, ojs_manifest. A worker that inserts jobs is granted producer as well. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_viewer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_viewer_wrapper';
COMMENT ON FUNCTION jobs.grant_viewer(text, text) IS
$$Lets a role read all views, jobs.health(), jobs.metrics(), jobs.check(), jobs.top(), jobs.last_id(), jobs.show(), jobs.explain() and jobs.results(), and call jobs.wait_for, without what jobs carry: args, meta, progress and output are null for it. Texts of errors are shown. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_application(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_application_wrapper';
COMMENT ON FUNCTION jobs.grant_application(text, text) IS
$$Lets a role do what a trusted program needs: what a producer, a worker and a viewer may, see what jobs carry, explain_unique; cancel, retry, activate, update and delete by id; schedule, unschedule and run_periodic; define_kind, undefine_kind, configure_queue and reset_queue. It can manage no jobs by a filter, pause nothing, maintain nothing and grant nothing. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_operator(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_operator_wrapper';
COMMENT ON FUNCTION jobs.grant_operator(text, text) IS
$$Lets a role do what people on call need: what a viewer may, see what jobs carry, explain_unique; cancel, retry and activate, also cancel_many and retry_many; pause and resume queues and periodic jobs; quiet, stop and resume workers. It can insert, change and delete no jobs. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_admin(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_admin_wrapper';
COMMENT ON FUNCTION jobs.grant_admin(text, text) IS
$$Lets a role call every function but those that grant and revoke, and read all views, with what jobs carry. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.revoke(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'revoke_wrapper';
COMMENT ON FUNCTION jobs.revoke(text, text) IS
$$Takes away from a role whatever it was granted in the schema jobs, by these functions or by hand. Errors: as jobs.grant_producer.$$;
-- pg_dump takes the rows of these along with the extension.
SELECT pg_catalog.pg_extension_config_dump('jobs.job_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.job', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.ready', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.scheduled', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.running', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.finished', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.error', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.answer', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.unique_claim', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.unique_note', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.kind', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.queue', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.retention_change', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.queue_slot', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.queue_start', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.periodic_schedule', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.worker_command', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.maintenance_pause', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.audit_record', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.history_bucket', '');

-- Nobody but the owner may do anything with all this: not PUBLIC, who might call functions and use
-- types, and nobody who was given something by ALTER DEFAULT PRIVILEGES.
SELECT jobs.installed();
