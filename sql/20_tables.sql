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
-- scheduled   scheduled, retryable or pending (due_at is infinity), until due_at; or available, and
--             held by a limit (gate is not null, due_at is infinity).
-- running     a lease: the worker, its token, when the lease and the attempt end.
-- finished    completed, cancelled or discarded, with the outcome.
-- error       one row per failed attempt.
-- answer      what a used token did, for an hour (ANSWERS_KEPT), where no other table shows it.
--
-- A unique job has a third row. unique_claim has one row per key, and its primary key decides which
-- of several inserts wins. unique_note says what later happened to jobs under a key.
--
-- kind, queue, queue_slot, queue_start and retention_change hold settings and limits, limit_rule
-- and limit_key_rule limits by key, permit and limit_start jobs that run and start under those,
-- periodic_schedule the schedules, worker and worker_command the workers, maintenance_* what
-- maintenance did, history_* and kept_* counts, audit_record every change made by a call, cell and
-- placement what this database is among several, and where queues live.
--
-- jobs.check() tests the invariants of these tables. docs/architecture.md has more.
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
COMMENT ON TABLE jobs.job IS 'What to do: one row per job, changed only by jobs.update and updates on conflict.';
COMMENT ON COLUMN jobs.job.scheduled_at IS 'As inserted; null: created_at.';
COMMENT ON COLUMN jobs.job.timeout IS 'Maximum duration of one attempt; null: 1 minute; -1 second: no limit.';
COMMENT ON COLUMN jobs.job.meta IS 'Null: {}.';
COMMENT ON COLUMN jobs.job.tags IS 'Null: {}.';
COMMENT ON COLUMN jobs.job.retry IS 'Retry policy; null: river.';
COMMENT ON COLUMN jobs.job.unique_key IS 'SHA-256 of the canonical text; null: not unique.';
COMMENT ON COLUMN jobs.job.hold_ends_at IS 'End of the job''s hold on its key, whatever its state; null: no hold.';
COMMENT ON COLUMN jobs.job.hold_until IS 'What releases the hold earlier: success or start.';
COMMENT ON COLUMN jobs.job.unique_until IS 'How long the job counts under its key once it is final, however short its retention: until the end of its by_period, or of its window from created_at; null: neither.';
COMMENT ON COLUMN jobs.job.unique_window IS 'Likewise for a window that counts from scheduled_at; null: none.';
COMMENT ON COLUMN jobs.job.unique_final IS 'Final states to which both apply, as a sum: 1 completed, 2 cancelled, 4 discarded; null: none.';

-- ready, scheduled and running are often empty. Vacuum would truncate them each time, under a lock
-- that blocks every fetch, and the next jobs would need new pages.
CREATE TABLE jobs.ready (
  seq          bigint      NOT NULL,
  job_id       bigint      NOT NULL,
  scheduled_at timestamptz,
  available_at timestamptz,
  expires_at   timestamptz,
  attempt      integer     NOT NULL,
  priority     smallint    NOT NULL,
  queue        text        COLLATE "C" NOT NULL,
  gate         bigint,
  CONSTRAINT ready_pkey PRIMARY KEY (queue, priority, seq, job_id)
) WITH (vacuum_truncate = off);
-- A job that becomes available after its insertion gets a new seq. Only such rows need an index by
-- job.
CREATE INDEX ready_requeued ON jobs.ready (job_id) WHERE seq <> job_id;
CREATE INDEX ready_expires ON jobs.ready (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX ready_gate ON jobs.ready (gate, seq) WHERE gate IS NOT NULL;
COMMENT ON TABLE jobs.ready IS 'Available jobs. Lanes (queue, priority) are first come, first served by seq.';
COMMENT ON COLUMN jobs.ready.seq IS 'Position in the lane: the id, or a later number of job_seq; negative: the turn of the job''s key in a fair queue, which jobs can share.';
COMMENT ON COLUMN jobs.ready.scheduled_at IS 'When the job was due, if not as in job; null: as in job.';
COMMENT ON COLUMN jobs.ready.available_at IS 'When the job was activated, released, or moved to a time in the past; null: it has been available since it was inserted or due.';
COMMENT ON COLUMN jobs.ready.gate IS 'Gate of the job''s key in the queue''s order, else under its narrowest limit (limit_key_rule.gate); null: neither covers the job.';

CREATE TABLE jobs.scheduled (
  job_id       bigint      NOT NULL,
  due_at       timestamptz NOT NULL,
  expires_at   timestamptz,
  attempt      integer     NOT NULL,
  state        jobs.state  NOT NULL,
  queue        text        COLLATE "C" NOT NULL,
  gate         bigint,
  seq          bigint,
  scheduled_at timestamptz,
  available_at timestamptz,
  priority     smallint,
  kind         text        COLLATE "C",
  limit_name   text        COLLATE "C",
  limit_key    jsonb,
  CONSTRAINT scheduled_pkey PRIMARY KEY (job_id)
) WITH (vacuum_truncate = off);
-- Maintenance looks for due jobs of all queues, a fetch for those of its own.
CREATE INDEX scheduled_next ON jobs.scheduled (due_at);
CREATE INDEX scheduled_due ON jobs.scheduled (queue, due_at);
CREATE INDEX scheduled_expires ON jobs.scheduled (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX scheduled_held ON jobs.scheduled (gate, queue, kind, priority, seq) WHERE gate IS NOT NULL;
COMMENT ON TABLE jobs.scheduled IS 'Jobs that are scheduled, retryable or pending (due at infinity), and available jobs that a limit or an order holds (likewise).';
COMMENT ON COLUMN jobs.scheduled.gate IS 'Gate of the key that holds the job (limit_key_rule.gate), in a fair order of the key and priority; null, as are the following columns: nothing holds it.';
COMMENT ON COLUMN jobs.scheduled.seq IS 'The job''s place in its lane, as in ready.';
COMMENT ON COLUMN jobs.scheduled.scheduled_at IS 'As in ready.';
COMMENT ON COLUMN jobs.scheduled.available_at IS 'As in ready.';
COMMENT ON COLUMN jobs.scheduled.priority IS 'As in job; 0 in a strict order.';
COMMENT ON COLUMN jobs.scheduled.kind IS 'As in job; empty in an order, which does not tell kinds apart.';
COMMENT ON COLUMN jobs.scheduled.limit_name IS 'Limit, or order (order/QUEUE), that holds the job.';
COMMENT ON COLUMN jobs.scheduled.limit_key IS 'Key of that limit; null: the limit has no keys.';

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
  gates               bigint[],
  permit              bigint,
  CONSTRAINT running_pkey PRIMARY KEY (job_id)
) WITH (fillfactor = 70, vacuum_truncate = off);
COMMENT ON TABLE jobs.running IS 'Leases: which worker holds which job until when. Heartbeats update them in place.';
COMMENT ON COLUMN jobs.running.hold_ends_at IS 'As in job, if completing the job releases its hold; else null.';
COMMENT ON COLUMN jobs.running.slot IS 'Slot of queue_slot that the job takes; null: its queue had no limit.';
COMMENT ON COLUMN jobs.running.queue IS 'Queue that the job was fetched from, and counts for, if job has another one by now; null: as in job.';
COMMENT ON COLUMN jobs.running.gates IS 'Gates of the keys that the job runs under; null: no limit covers it.';
COMMENT ON COLUMN jobs.running.permit IS 'The n of the job''s rows of permit, one for each of its gates; null: none.';
COMMENT ON COLUMN jobs.running.history_key IS 'Hash of the queue and kind at the fetch. Sessions that know these can count the end of the attempt without reading job; null: fetched by a statement.';
COMMENT ON COLUMN jobs.running.lease IS 'Lease that the fetch asked for; null: the timeout, or 1 hour without one.';

-- Append-only, so that a heartbeat never waits. Not dumped.
CREATE TABLE jobs.heartbeat_note (
  job_id           bigint      NOT NULL,
  token            bigint      NOT NULL,
  lease_expires_at timestamptz NOT NULL,
  at               timestamptz NOT NULL,
  goes_on_until    timestamptz NOT NULL
);
CREATE INDEX heartbeat_note_by_job ON jobs.heartbeat_note (job_id);
COMMENT ON TABLE jobs.heartbeat_note IS 'Heartbeats for jobs that another transaction had locked, for the rescue to read.';
COMMENT ON COLUMN jobs.heartbeat_note.lease_expires_at IS 'lease_expires_at of running at that time. After a later heartbeat changes it, this row no longer applies.';
COMMENT ON COLUMN jobs.heartbeat_note.at IS 'Time of the heartbeat. The latest one counts.';
COMMENT ON COLUMN jobs.heartbeat_note.goes_on_until IS 'New end of the lease.';

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
-- Most jobs are kept by the setting of their state: is_kept is false, and finished_by_age has them
-- in the order of pruning. finished_kept has the others in theirs, so that maintenance reads no job
-- that it keeps.
CREATE INDEX finished_by_age ON jobs.finished (state, is_kept, finalized_at);
CREATE INDEX finished_kept ON jobs.finished (kept_until) WHERE kept_until IS NOT NULL;
COMMENT ON TABLE jobs.finished IS 'Completed, cancelled and discarded jobs until they are pruned.';
COMMENT ON COLUMN jobs.finished.kept_until IS 'When the job can be pruned, if its queue or uniqueness decides; null: jobs.retention_.. of its state decides.';
COMMENT ON COLUMN jobs.finished.is_kept IS 'Whether kept_until is set. In an index this takes no room, unlike a null.';
COMMENT ON COLUMN jobs.finished.token IS 'Token that finished the job, so that a repeated call gets the same answer; null: not finished by a worker.';

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
-- Rows are in the order of time, so a small BRIN index finds the latest errors among millions.
CREATE INDEX error_by_age ON jobs.error USING brin (at);
COMMENT ON TABLE jobs.error IS 'Failed attempts.';
COMMENT ON COLUMN jobs.error.state IS 'State after the attempt: retryable, available, discarded or cancelled.';
COMMENT ON COLUMN jobs.error.worker IS 'Worker of the attempt; null: no worker held the job.';
COMMENT ON COLUMN jobs.error.token IS 'Token of the fail call; null: not failed by its worker.';

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
  'Results of finishing calls that no other table shows (snooze, release, completion before a retry), for repeated calls. Kept for an hour.';
COMMENT ON COLUMN jobs.answer.scheduled_at IS 'Time to which a snooze moved the job, even if it cancelled it instead; null: another call.';

-- Room on the page keeps the update of a taken key in place (HOT).
CREATE TABLE jobs.unique_claim (
  key          bytea         NOT NULL,
  jobs         bigint[]      NOT NULL,
  hold_ends_at timestamptz[],
  CONSTRAINT unique_claim_pkey PRIMARY KEY (key)
) WITH (fillfactor = 70);
COMMENT ON TABLE jobs.unique_claim IS
  'Unique keys, and the jobs inserted under each. The primary key makes uniqueness exact at every isolation level.';
COMMENT ON COLUMN jobs.unique_claim.hold_ends_at IS 'End of each job''s hold, unless unique_note says that it was released; null: no holds.';

-- Append-only, so that retrying, deleting, fetching or finishing a job does not wait for its key.
-- The transaction that has the claim locked deletes the notes; maintenance handles those that are
-- due before that.
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
  'Changes to jobs under unique keys that their claims do not show yet. Each unique job is listed in its claim or folded.';
COMMENT ON COLUMN jobs.unique_note.kind IS 'f: folded, a final job that its claim does not list, because a newer one in the list has the same state. r: returned, a job that is no longer final, as by jobs.retry; it counts as if listed. h: a hold that was released early. o: orphaned, a key that has lost a job, or has only a hold left; maintenance checks its claim when due.';
COMMENT ON COLUMN jobs.unique_note.seq IS 'f, h: the job. o: the transaction, so that each adds at most one note per key. r: a unique number.';
COMMENT ON COLUMN jobs.unique_note.job_id IS 'The job; null: the note is about the key.';
COMMENT ON COLUMN jobs.unique_note.due_at IS 'When maintenance handles the note; null: it stays until the claim is next rewritten.';

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
COMMENT ON TABLE jobs.kind IS 'Defaults of kinds; null: the system''s. Sessions cache it: only jobs.define_kind and undefine_kind write it.';

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
COMMENT ON TABLE jobs.queue IS 'Settings of queues. Sessions cache it: only functions of the extension write it.';
COMMENT ON COLUMN jobs.queue.resumed_at IS 'When jobs.resume_queue last ended a pause during which jobs waited: their wait restarted. Maintenance clears it when the queue has no available jobs.';
COMMENT ON COLUMN jobs.queue.retention_completed IS 'Microseconds; -1: forever; null: the setting.';

-- Appended by jobs.configure_queue. Maintenance then checks every final job, in batches, and
-- deletes the row.
CREATE TABLE jobs.retention_change (
  made_by    bigint  NOT NULL,
  after_id   bigint  NOT NULL,
  since      xid8    NOT NULL,
  is_settled boolean NOT NULL,
  CONSTRAINT retention_change_pkey PRIMARY KEY (made_by)
);
COMMENT ON TABLE jobs.retention_change IS 'Changes of queues'' retention: finished.kept_until is to be recomputed.';
COMMENT ON COLUMN jobs.retention_change.made_by IS 'Transaction that made the change.';
COMMENT ON COLUMN jobs.retention_change.after_id IS 'Final jobs up to this id are done.';
COMMENT ON COLUMN jobs.retention_change.since IS 'Transaction that made or settled the change.';
COMMENT ON COLUMN jobs.retention_change.is_settled IS 'Whether the change is visible everywhere: only transactions older than since can use the previous retention.';

-- A row per slot, so that fetches take different ones and never wait for each other.
CREATE TABLE jobs.queue_slot (
  slot   bigint  NOT NULL,
  job_id bigint,
  n      integer NOT NULL,
  queue  text    COLLATE "C" NOT NULL,
  CONSTRAINT queue_slot_pkey PRIMARY KEY (slot)
) WITH (fillfactor = 50);
CREATE INDEX queue_slot_by_queue ON jobs.queue_slot (queue, n);
COMMENT ON TABLE jobs.queue_slot IS 'Concurrency of queues: a row per slot, with the running job that takes it.';
COMMENT ON COLUMN jobs.queue_slot.n IS 'From 1; a fetch takes slots up to the limit.';

CREATE TABLE jobs.queue_start (
  slot    bigint      NOT NULL,
  free_at timestamptz NOT NULL,
  queue   text        COLLATE "C" NOT NULL,
  CONSTRAINT queue_start_pkey PRIMARY KEY (slot)
) WITH (fillfactor = 50);
CREATE INDEX queue_start_free ON jobs.queue_start (queue, free_at);
COMMENT ON TABLE jobs.queue_start IS 'Rates of queues: a row per start within the period, and when it can be used again.';

-- limits is the view.
CREATE TABLE jobs.limit_rule (
  paused_at    timestamptz,
  concurrency  integer,
  rate         integer,
  per_cell     boolean  NOT NULL,
  is_strict    boolean,
  is_fair      boolean,
  name         text     COLLATE "C" NOT NULL,
  by           jsonb,
  queues       text[]   COLLATE "C",
  kinds        text[]   COLLATE "C",
  rate_period  interval,
  paused_by    text,
  pause_reason text,
  on_discard   text,
  weights      jsonb,
  CONSTRAINT limit_rule_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE jobs.limit_rule IS 'Limits, as jobs.define_limit set them, and orders of queues (order/QUEUE), as jobs.order_queue set them. Sessions cache it: only functions of the extension write it.';
COMMENT ON COLUMN jobs.limit_rule.is_strict IS 'Of an order, as are is_fair, on_discard and weights; null: a limit.';
COMMENT ON COLUMN jobs.limit_rule.by IS 'What of a job makes its key; null: one limit for all of its jobs together.';
COMMENT ON COLUMN jobs.limit_rule.queues IS 'Sorted, each once; null: all.';
COMMENT ON COLUMN jobs.limit_rule.kinds IS 'Likewise.';
COMMENT ON COLUMN jobs.limit_rule.per_cell IS 'Whether it counts for each cell alone.';

CREATE TABLE jobs.limit_key_rule (
  gate         bigint   NOT NULL,
  paused_at    timestamptz,
  concurrency  integer,
  rate         integer,
  is_override  boolean  NOT NULL,
  name         text     COLLATE "C" NOT NULL,
  key          jsonb    NOT NULL,
  rate_period  interval,
  paused_by    text,
  pause_reason text,
  CONSTRAINT limit_key_rule_pkey PRIMARY KEY (gate)
);
COMMENT ON TABLE jobs.limit_key_rule IS 'Overrides and pauses of single keys of limits. Sessions cache it: only functions of the extension write it.';
COMMENT ON COLUMN jobs.limit_key_rule.gate IS 'First 8 bytes of the SHA-256 of the limit''s name, a zero byte and the key''s canonical text; of a limit without keys that text is empty.';
COMMENT ON COLUMN jobs.limit_key_rule.is_override IS 'Whether concurrency and rate replace those of the limit.';

-- In a queue with a strict order, of the job whose turn it is, from its start until it is final.
CREATE TABLE jobs.turn (
  gate       bigint  NOT NULL,
  job_id     bigint  NOT NULL,
  is_blocked boolean NOT NULL,
  queue      text    COLLATE "C" NOT NULL,
  key        text    COLLATE "C" NOT NULL,
  CONSTRAINT turn_pkey PRIMARY KEY (gate, job_id)
) WITH (vacuum_truncate = off);
CREATE INDEX turn_job ON jobs.turn (job_id);
COMMENT ON TABLE jobs.turn IS 'Jobs whose turn it is in queues with a strict order: a row for each key that has such a job. Keys that had several when the order was set have more.';
COMMENT ON COLUMN jobs.turn.gate IS 'Gate of the job''s key (limit_key_rule.gate) in the order.';
COMMENT ON COLUMN jobs.turn.key IS 'Canonical text of the key.';
COMMENT ON COLUMN jobs.turn.is_blocked IS 'Whether the job was discarded and blocks its key.';

-- Of jobs that run, so it is dumped with running.
CREATE TABLE jobs.permit (
  gate   bigint NOT NULL,
  n      bigint NOT NULL,
  job_id bigint NOT NULL,
  name   text   COLLATE "C" NOT NULL,
  key    text   COLLATE "C",
  CONSTRAINT permit_pkey PRIMARY KEY (gate, n)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE jobs.permit IS 'Running jobs under limits: a row per job and limit.';
COMMENT ON COLUMN jobs.permit.gate IS 'Gate of the job''s key under the limit (limit_key_rule.gate).';
COMMENT ON COLUMN jobs.permit.n IS 'Number of the attempt''s permits, as in running.permit.';
COMMENT ON COLUMN jobs.permit.key IS 'Canonical text of the key; null: the limit has no keys.';

CREATE TABLE jobs.limit_start (
  gate bigint      NOT NULL,
  n    bigint      NOT NULL,
  at   timestamptz NOT NULL,
  name text        COLLATE "C" NOT NULL,
  key  jsonb,
  CONSTRAINT limit_start_pkey PRIMARY KEY (gate, n)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE jobs.limit_start IS 'Starts of jobs that count for the rate of a limit: a row per start and limit.';
COMMENT ON COLUMN jobs.limit_start.gate IS 'Gate of the job''s key under the limit (limit_key_rule.gate).';
COMMENT ON COLUMN jobs.limit_start.n IS 'Number of the attempt''s permits.';
COMMENT ON COLUMN jobs.limit_start.key IS 'Null: the limit has no keys.';

-- periodic is the view.
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
  'Periodic jobs: when they run and what they insert (null: the default at the tick). The transaction that locks a row inserts the job of its tick and records it.';
COMMENT ON COLUMN jobs.periodic_schedule.defined_at IS 'When it was defined; earlier ticks do not count.';
COMMENT ON COLUMN jobs.periodic_schedule.next_run_at IS 'When maintenance handles it: the next tick, or the retry of the latest one; null: never, or paused.';
COMMENT ON COLUMN jobs.periodic_schedule.last_run_at IS 'The latest tick that was handled; it is not repeated.';
COMMENT ON COLUMN jobs.periodic_schedule.last_job_id IS 'Job of that tick or, if it was skipped, the existing job.';
COMMENT ON COLUMN jobs.periodic_schedule.last_ticks IS 'The latest ten ticks, newest first: when, the job, whether it was skipped, and why there is none.';
COMMENT ON COLUMN jobs.periodic_schedule.missed IS 'Which missed ticks get a job: the latest (once) or none (skip).';
COMMENT ON COLUMN jobs.periodic_schedule.last_error IS 'Why that tick has no job, or why the next one is delayed.';

-- A beat updates its row in place (HOT): no column that changes has an index. Not dumped: workers
-- register again.
CREATE TABLE jobs.worker (
  first_seen_at timestamptz NOT NULL,
  last_seen_at  timestamptz NOT NULL,
  concurrency   integer     NOT NULL,
  worker        text        COLLATE "C" NOT NULL,
  queues        text[]      COLLATE "C" NOT NULL,
  info          jsonb,
  CONSTRAINT worker_pkey PRIMARY KEY (worker)
) WITH (fillfactor = 50);
COMMENT ON TABLE jobs.worker IS 'Workers that have called jobs.worker_beat within a day.';
COMMENT ON COLUMN jobs.worker.queues IS 'Queues that it registered.';
COMMENT ON COLUMN jobs.worker.info IS 'Further data that it registered.';

CREATE TABLE jobs.worker_command (
  commanded_at   timestamptz NOT NULL,
  seen_at        timestamptz NOT NULL,
  worker         text        COLLATE "C" NOT NULL,
  command        text        COLLATE "C" NOT NULL,
  commanded_by   text        NOT NULL,
  command_reason text,
  CONSTRAINT worker_command_pkey PRIMARY KEY (worker)
);
COMMENT ON TABLE jobs.worker_command IS 'Workers that must not fetch, until jobs.resume_worker, or until they were not seen for 30 days. Sessions cache it: only functions of the extension write it.';
COMMENT ON COLUMN jobs.worker_command.seen_at IS 'When the command was given or, exact to a day, the worker has since fetched or called jobs.worker_beat.';
COMMENT ON COLUMN jobs.worker_command.command IS 'quiet or stop.';

-- A row per task from the start, so that recording a run never inserts. Not dumped: the runs are
-- this server's.
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
COMMENT ON TABLE jobs.maintenance_task IS 'The latest run of each maintenance task that had something to do or failed. Other runs are not recorded, so that an idle database writes no WAL.';
INSERT INTO jobs.maintenance_task (task)
VALUES ('schedule'), ('limits'), ('periodic'), ('expire'), ('rescue'), ('prune'), ('claims'), ('statistics');

CREATE TABLE jobs.maintenance_pause (
  paused_at timestamptz NOT NULL,
  paused_by text        NOT NULL,
  one       boolean     NOT NULL DEFAULT true CONSTRAINT maintenance_pause_one CHECK (one),
  CONSTRAINT maintenance_pause_pkey PRIMARY KEY (one)
);
COMMENT ON TABLE jobs.maintenance_pause IS 'One row while maintenance is paused (jobs.pause_maintenance).';

-- counts alternates places and numbers. Places 0 to 5 are the events inserted, started, completed,
-- failed, discarded and cancelled, 6 and 7 the sums of waits and runs in microseconds. The buckets
-- of both follow (core/src/counts.rs).
CREATE TABLE jobs.history_bucket (
  at     timestamptz NOT NULL,
  entry  bigint,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL
);
CREATE INDEX history_bucket_at ON jobs.history_bucket (at);
COMMENT ON TABLE jobs.history_bucket IS 'Minutes of jobs.history: counts by queue and kind. Several rows of one minute are summed.';
COMMENT ON COLUMN jobs.history_bucket.entry IS 'Entry of shared memory that it comes from, so that it does not count twice before that is freed; null: none.';

-- Append-only, so without an index. Not dumped.
CREATE TABLE jobs.history_delta (
  at     timestamptz NOT NULL,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL
);
COMMENT ON TABLE jobs.history_delta IS 'Counts of single transactions: prepared ones, or without room in shared memory. Maintenance adds them to minutes.';

CREATE TABLE jobs.history_total (
  epoch  bigint      NOT NULL,
  at     timestamptz NOT NULL,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL,
  CONSTRAINT history_total_pkey PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50);
COMMENT ON TABLE jobs.history_total IS 'Counters of jobs.metrics by queue and kind since the server started, without the current minutes. Rows beyond jobs.metrics_max_series count as (others).';
COMMENT ON COLUMN jobs.history_total.epoch IS 'Start of the server and database that it counts for. In others it counts from 0, as counters do after a restart.';

-- A row per table from the start, so that recording a count never inserts. Not dumped: maintenance
-- counts again.
CREATE TABLE jobs.kept_count (
  place      text        COLLATE "C" NOT NULL,
  counted_at timestamptz,
  took       interval,
  changes    bigint,
  queues     integer,
  counts     jsonb,
  CONSTRAINT kept_count_pkey PRIMARY KEY (place)
) WITH (fillfactor = 30);
COMMENT ON TABLE jobs.kept_count IS 'Counts of jobs by queue and state, of tables too long to count on each read. Maintenance renews them.';
INSERT INTO jobs.kept_count (place) VALUES ('ready'), ('scheduled'), ('running'), ('finished');
COMMENT ON COLUMN jobs.kept_count.counted_at IS 'Null: the table is short.';
COMMENT ON COLUMN jobs.kept_count.place IS 'Table: ready, scheduled, running or finished.';
COMMENT ON COLUMN jobs.kept_count.took IS 'Duration of the count; the longer, the less often it is renewed.';
COMMENT ON COLUMN jobs.kept_count.queues IS 'Number of queues with jobs in the table. While one table has more than 10,000, the counts of all are in kept_queue.';
COMMENT ON COLUMN jobs.kept_count.changes IS 'Rows inserted and deleted until then, by the server''s statistics. While it stays the same, nothing is counted again.';

-- A count of a table writes all its columns, in the rows that change. Not dumped: maintenance
-- counts again.
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
COMMENT ON TABLE jobs.kept_queue IS 'Counts of jobs by queue, a column per state, while there are more than 10,000 queues; otherwise empty.';
COMMENT ON COLUMN jobs.kept_queue.available IS 'Null, as for the other states: none.';

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
COMMENT ON TABLE jobs.audit_record IS 'Every change made by a managing call, in the transaction of the call. Kept for jobs.retention_audit.';
COMMENT ON COLUMN jobs.audit_record.role IS 'Role that the session acted as: that of SET ROLE, or the login role.';
COMMENT ON COLUMN jobs.audit_record.login_role IS 'Role that the session logged in as (session_user); SET ROLE does not change it.';

-- Without it, a row that an outbox still has, or has again, would become a second job.
CREATE TABLE jobs.forwarded (
  taken_at   timestamptz NOT NULL,
  deleted_at timestamptz,
  key        uuid        NOT NULL,
  source     uuid        NOT NULL,
  CONSTRAINT forwarded_pkey PRIMARY KEY (key)
);
CREATE INDEX forwarded_by_deletion ON jobs.forwarded (deleted_at, source);
COMMENT ON TABLE jobs.forwarded IS 'Rows of outboxes in other databases whose jobs were inserted here. Kept until the outbox has deleted the row and for jobs.retention_forwarded after.';
COMMENT ON COLUMN jobs.forwarded.key IS 'Key of the row in the outbox.';
COMMENT ON COLUMN jobs.forwarded.source IS 'The outbox, by the id in its jobs.outbox_source.';
COMMENT ON COLUMN jobs.forwarded.deleted_at IS 'When its deletion from the outbox was reported; null: the outbox may still have the row.';

CREATE TABLE jobs.forwarder (
  seen_at   timestamptz NOT NULL,
  waiting   bigint      NOT NULL,
  oldest_at timestamptz,
  refused   bigint      NOT NULL,
  source    uuid        NOT NULL,
  address   text        NOT NULL,
  CONSTRAINT forwarder_pkey PRIMARY KEY (source)
) WITH (fillfactor = 50);
COMMENT ON TABLE jobs.forwarder IS 'Outboxes in other databases, as pgjobs forward reported them last. Removed when not reported for jobs.retention_forwarded.';
COMMENT ON COLUMN jobs.forwarder.source IS 'The outbox, by the id in its jobs.outbox_source.';
COMMENT ON COLUMN jobs.forwarder.address IS 'Where the outbox is.';
COMMENT ON COLUMN jobs.forwarder.seen_at IS 'When it was reported last.';
COMMENT ON COLUMN jobs.forwarder.waiting IS 'How many rows were waiting.';
COMMENT ON COLUMN jobs.forwarder.oldest_at IS 'When the oldest of them was inserted; null: none was waiting.';
COMMENT ON COLUMN jobs.forwarder.refused IS 'How many rows the queue had refused.';

CREATE TABLE jobs.cell (
  retired_at        timestamptz,
  system_identifier bigint,
  database_id       bigint,
  cell              integer NOT NULL,
  is_self           boolean NOT NULL,
  identity          uuid,
  address           text,
  moved_to          text,
  CONSTRAINT cell_pkey PRIMARY KEY (cell)
);
-- Also refuses to restore a dump of another cell here.
CREATE UNIQUE INDEX cell_self ON jobs.cell (is_self) WHERE is_self;
COMMENT ON TABLE jobs.cell IS 'The cell that this database is, and others whose address was set. Sessions cache it: only functions of the extension write it.';
COMMENT ON COLUMN jobs.cell.retired_at IS 'When jobs.retire_cell retired this cell.';
COMMENT ON COLUMN jobs.cell.system_identifier IS 'The server that this cell is in, as in pg_control_system(). In another one the row is that of a copy, which takes no writes.';
COMMENT ON COLUMN jobs.cell.database_id IS 'Likewise, the oid of its database.';
COMMENT ON COLUMN jobs.cell.is_self IS 'Whether it is this database.';

CREATE TABLE jobs.placement (
  queue text      COLLATE "C" NOT NULL,
  by    jsonb,
  cells integer[] NOT NULL,
  CONSTRAINT placement_pkey PRIMARY KEY (queue)
);
COMMENT ON TABLE jobs.placement IS 'Where queues live. Sessions cache it: only functions of the extension write it, while nobody inserts a job.';
COMMENT ON COLUMN jobs.placement.queue IS '*: every queue that has no row.';
COMMENT ON COLUMN jobs.placement.by IS 'Of a queue that is spread: the path that decides among the cells.';

-- They have no primary key. In a publication (FOR ALL TABLES), rows could not be deleted otherwise.
ALTER TABLE jobs.error REPLICA IDENTITY FULL;
ALTER TABLE jobs.audit_record REPLICA IDENTITY FULL;
ALTER TABLE jobs.history_bucket REPLICA IDENTITY FULL;
ALTER TABLE jobs.history_delta REPLICA IDENTITY FULL;
ALTER TABLE jobs.heartbeat_note REPLICA IDENTITY FULL;
