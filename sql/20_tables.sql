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
