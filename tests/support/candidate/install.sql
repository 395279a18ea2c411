SET LOCAL search_path = pg_catalog, pg_temp;
CREATE SCHEMA jobs;
CREATE TYPE jobs.state AS ENUM ('available', 'scheduled', 'pending', 'running', 'retryable', 'completed', 'cancelled', 'discarded');
CREATE SEQUENCE jobs.job_seq;
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
CREATE INDEX ready_requeued ON jobs.ready (job_id) WHERE seq <> job_id;
CREATE INDEX ready_expires ON jobs.ready (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE jobs.scheduled (
  job_id       bigint      NOT NULL,
  due_at       timestamptz NOT NULL,
  expires_at   timestamptz,
  attempt      integer     NOT NULL,
  state        jobs.state  NOT NULL,
  queue        text        COLLATE "C" NOT NULL,
  CONSTRAINT scheduled_pkey PRIMARY KEY (job_id)
) WITH (vacuum_truncate = off);
CREATE INDEX scheduled_next ON jobs.scheduled (due_at);
CREATE INDEX scheduled_due ON jobs.scheduled (queue, due_at);
CREATE INDEX scheduled_expires ON jobs.scheduled (expires_at) WHERE expires_at IS NOT NULL;
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
CREATE TABLE jobs.heartbeat_note (
  job_id           bigint      NOT NULL,
  token            bigint      NOT NULL,
  lease_expires_at timestamptz NOT NULL,
  at               timestamptz NOT NULL,
  goes_on_until    timestamptz NOT NULL
);
CREATE INDEX heartbeat_note_by_job ON jobs.heartbeat_note (job_id);
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
CREATE INDEX finished_by_age ON jobs.finished (state, is_kept, finalized_at);
CREATE INDEX finished_kept ON jobs.finished (kept_until) WHERE kept_until IS NOT NULL;
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
CREATE INDEX error_by_age ON jobs.error USING brin (at);
CREATE TABLE jobs.answer (
  job_id       bigint      NOT NULL,
  token        bigint      NOT NULL,
  at           timestamptz NOT NULL,
  scheduled_at timestamptz,
  state        jobs.state  NOT NULL,
  CONSTRAINT answer_pkey PRIMARY KEY (job_id, token)
);
CREATE INDEX answer_by_age ON jobs.answer (at);
CREATE TABLE jobs.unique_claim (
  key          bytea         NOT NULL,
  jobs         bigint[]      NOT NULL,
  hold_ends_at timestamptz[],
  CONSTRAINT unique_claim_pkey PRIMARY KEY (key)
) WITH (fillfactor = 70);
CREATE TABLE jobs.unique_note (
  key    bytea  NOT NULL,
  kind   "char" NOT NULL,
  seq    bigint NOT NULL,
  job_id bigint,
  due_at timestamptz,
  CONSTRAINT unique_note_pkey PRIMARY KEY (key, kind, seq)
);
CREATE INDEX unique_note_due ON jobs.unique_note (due_at) WHERE due_at IS NOT NULL;
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
CREATE TABLE jobs.retention_change (
  made_by    bigint  NOT NULL,
  after_id   bigint  NOT NULL,
  since      xid8    NOT NULL,
  is_settled boolean NOT NULL,
  CONSTRAINT retention_change_pkey PRIMARY KEY (made_by)
);
CREATE TABLE jobs.queue_slot (
  slot   bigint  NOT NULL,
  job_id bigint,
  n      integer NOT NULL,
  queue  text    COLLATE "C" NOT NULL,
  CONSTRAINT queue_slot_pkey PRIMARY KEY (slot)
) WITH (fillfactor = 50);
CREATE INDEX queue_slot_by_queue ON jobs.queue_slot (queue, n);
CREATE TABLE jobs.queue_start (
  slot    bigint      NOT NULL,
  free_at timestamptz NOT NULL,
  queue   text        COLLATE "C" NOT NULL,
  CONSTRAINT queue_start_pkey PRIMARY KEY (slot)
) WITH (fillfactor = 50);
CREATE INDEX queue_start_free ON jobs.queue_start (queue, free_at);
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
CREATE TABLE jobs.worker (
  first_seen_at timestamptz NOT NULL,
  last_seen_at  timestamptz NOT NULL,
  concurrency   integer     NOT NULL,
  worker        text        COLLATE "C" NOT NULL,
  queues        text[]      COLLATE "C" NOT NULL,
  info          jsonb,
  CONSTRAINT worker_pkey PRIMARY KEY (worker)
) WITH (fillfactor = 50);
CREATE TABLE jobs.worker_command (
  commanded_at   timestamptz NOT NULL,
  seen_at        timestamptz NOT NULL,
  worker         text        COLLATE "C" NOT NULL,
  command        text        COLLATE "C" NOT NULL,
  commanded_by   text        NOT NULL,
  command_reason text,
  CONSTRAINT worker_command_pkey PRIMARY KEY (worker)
);
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
INSERT INTO jobs.maintenance_task (task)
VALUES ('schedule'), ('periodic'), ('expire'), ('rescue'), ('prune'), ('claims'), ('statistics');
CREATE TABLE jobs.maintenance_pause (
  paused_at timestamptz NOT NULL,
  paused_by text        NOT NULL,
  one       boolean     NOT NULL DEFAULT true CONSTRAINT maintenance_pause_one CHECK (one),
  CONSTRAINT maintenance_pause_pkey PRIMARY KEY (one)
);
CREATE TABLE jobs.history_bucket (
  at     timestamptz NOT NULL,
  entry  bigint,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL
);
CREATE INDEX history_bucket_at ON jobs.history_bucket (at);
CREATE TABLE jobs.history_delta (
  at     timestamptz NOT NULL,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL
);
CREATE TABLE jobs.history_total (
  epoch  bigint      NOT NULL,
  at     timestamptz NOT NULL,
  queue  text        COLLATE "C" NOT NULL,
  kind   text        COLLATE "C" NOT NULL,
  counts bigint[]    NOT NULL,
  CONSTRAINT history_total_pkey PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50);
CREATE TABLE jobs.kept_count (
  place      text        COLLATE "C" NOT NULL,
  counted_at timestamptz,
  took       interval,
  changes    bigint,
  queues     integer,
  counts     jsonb,
  CONSTRAINT kept_count_pkey PRIMARY KEY (place)
) WITH (fillfactor = 30);
INSERT INTO jobs.kept_count (place) VALUES ('ready'), ('scheduled'), ('running'), ('finished');
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
ALTER TABLE jobs.error REPLICA IDENTITY FULL;
ALTER TABLE jobs.audit_record REPLICA IDENTITY FULL;
ALTER TABLE jobs.history_bucket REPLICA IDENTITY FULL;
ALTER TABLE jobs.history_delta REPLICA IDENTITY FULL;
ALTER TABLE jobs.heartbeat_note REPLICA IDENTITY FULL;
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
CREATE VIEW jobs.errors AS
SELECT e.job_id, e.attempt, e.at, e.error, e.details, e.worker, (SELECT j.kind FROM jobs.job j WHERE j.id = e.job_id) AS job_kind
  FROM jobs.error e;
CREATE FUNCTION jobs.count_queues() RETURNS TABLE (queue text, available bigint, scheduled bigint, pending bigint, running bigint, retryable bigint, completed bigint, cancelled bigint, discarded bigint, oldest_available_at timestamptz, estimated jobs.state[], counted_at timestamptz) LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'count_queues_wrapper';
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
CREATE VIEW jobs.kinds AS
SELECT k.kind, k.queue, k.priority::integer, k.max_attempts, k.timeout, k.retry, k.unique_opts
  FROM jobs.kind k;
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
CREATE FUNCTION jobs.idle_runs() RETURNS TABLE (task text, at timestamptz, duration interval) LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'idle_runs_wrapper';
CREATE VIEW jobs.maintenance AS
SELECT t.task, GREATEST(t.last_run_at, i.at) AS last_run_at,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN 0 ELSE t.rows END AS rows,
       CASE WHEN i.at > COALESCE(t.last_run_at, '-infinity') THEN i.duration ELSE t.duration END AS duration,
       t.last_error, t.last_error_at, t.failures, t.rows_total, t.failures_total, p.paused_at, p.paused_by
  FROM jobs.maintenance_task t LEFT JOIN jobs.idle_runs() i ON i.task = t.task LEFT JOIN jobs.maintenance_pause p ON true
 ORDER BY t.task;
CREATE VIEW jobs.audit AS
SELECT a.at, a.role, a.login_role, a.application_name, a.action, a.target, a.arguments, a.jobs, a.reason
  FROM jobs.audit_record a;
CREATE FUNCTION jobs.is_preloaded() RETURNS boolean LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'is_preloaded_wrapper';
CREATE VIEW jobs.settings AS
SELECT s.name, pg_catalog.current_setting(s.name) AS value, s.boot_val AS default_value, s.unit,
       s.source, s.sourcefile AS source_file, s.sourceline AS source_line,
       s.context, s.short_desc || COALESCE(' ' || NULLIF(s.extra_desc, ''), '') AS description
  FROM pg_catalog.pg_settings s
 WHERE s.name LIKE 'jobs.%' AND (SELECT jobs.is_preloaded()) IS NOT NULL;
CREATE TYPE jobs.insert_result AS (id                          bigint, state                       jobs.state, unique_skipped_as_duplicate boolean, replaced_id                 bigint, queue                       text, created_at                  timestamptz, scheduled_at                timestamptz);
CREATE TYPE jobs.batch_insert_result AS (ord                         integer, id                          bigint, state                       jobs.state, unique_skipped_as_duplicate boolean, replaced_id                 bigint, queue                       text, created_at                  timestamptz, scheduled_at                timestamptz);
CREATE FUNCTION jobs.insert(kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false) RETURNS jobs.insert_result LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'insert_wrapper';
CREATE FUNCTION jobs.insert_many(jobs jsonb) RETURNS SETOF jobs.batch_insert_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'insert_many_wrapper';
CREATE FUNCTION jobs.insert_batch(kind text, args jsonb[], unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false) RETURNS SETOF jobs.batch_insert_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'insert_batch_wrapper';
CREATE FUNCTION jobs.unique_key(kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL, meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL) RETURNS text LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'unique_key_wrapper';
CREATE TYPE jobs.unique_explanation AS (canonical    text, unique_key   text, lock_id      bigint, policy       jsonb, holder       bigint, holder_state jobs.state, would        text);
CREATE FUNCTION jobs.explain_unique(kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL, meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL) RETURNS jobs.unique_explanation LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'explain_unique_wrapper';
CREATE FUNCTION jobs.ojs_manifest() RETURNS jsonb LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'ojs_manifest_wrapper';
CREATE TYPE jobs.fetched_job AS (id               bigint, token            bigint, attempt          integer, kind             text, args             jsonb, meta             jsonb, queue            text, priority         integer, tags             text[], max_attempts     integer, created_at       timestamptz, scheduled_at     timestamptz, attempted_at     timestamptz, lease_expires_at timestamptz, deadline_at      timestamptz);
CREATE FUNCTION jobs.fetch(queue text DEFAULT 'default', max_jobs integer DEFAULT 1, worker text DEFAULT NULL, lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL) RETURNS SETOF jobs.fetched_job LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'fetch_wrapper';
CREATE FUNCTION jobs.fetch_any(queues text[], max_jobs integer DEFAULT 1, worker text DEFAULT NULL, lease interval DEFAULT NULL, kinds text[] DEFAULT NULL, min_jobs integer DEFAULT 1, linger interval DEFAULT NULL) RETURNS SETOF jobs.fetched_job LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'fetch_any_wrapper';
CREATE PROCEDURE jobs.wait(queue text DEFAULT 'default', timeout interval DEFAULT '30 s') LANGUAGE c AS 'MODULE_PATHNAME', 'wait_wrapper';
CREATE PROCEDURE jobs.wait_any(queues text[], timeout interval DEFAULT '30 s', worker text DEFAULT NULL) LANGUAGE c AS 'MODULE_PATHNAME', 'wait_any_wrapper';
CREATE PROCEDURE jobs.wait_for(ids bigint[], timeout interval DEFAULT '30 s', want text DEFAULT 'all') LANGUAGE c AS 'MODULE_PATHNAME', 'wait_for_wrapper';
CREATE TYPE jobs.job_result AS (ord          integer, id           bigint, state        jobs.state, output       jsonb, error        text, finalized_at timestamptz);
CREATE FUNCTION jobs.results(ids bigint[]) RETURNS SETOF jobs.job_result LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'results_wrapper';
CREATE FUNCTION jobs.complete(id bigint, token bigint, output jsonb DEFAULT NULL) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'complete_wrapper';
CREATE TYPE jobs.batch_complete_result AS (id    bigint, state jobs.state, done  boolean);
CREATE FUNCTION jobs.complete_many(ids bigint[], tokens bigint[], outputs jsonb[] DEFAULT NULL) RETURNS SETOF jobs.batch_complete_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'complete_many_wrapper';
CREATE TYPE jobs.finish_result AS (state        jobs.state, scheduled_at timestamptz);
CREATE FUNCTION jobs.fail(id bigint, token bigint, error text, retry_in interval DEFAULT NULL, retryable boolean DEFAULT true, details jsonb DEFAULT NULL) RETURNS jobs.finish_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'fail_wrapper';
CREATE TYPE jobs.batch_fail_result AS (id           bigint, state        jobs.state, scheduled_at timestamptz, done         boolean);
CREATE FUNCTION jobs.fail_many(ids bigint[], tokens bigint[], errors text[], details jsonb[] DEFAULT NULL, retry_in interval DEFAULT NULL) RETURNS SETOF jobs.batch_fail_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'fail_many_wrapper';
CREATE TYPE jobs.batch_finish_result AS (ord          integer, id           bigint, state        jobs.state, scheduled_at timestamptz, done         boolean, reason       text);
CREATE FUNCTION jobs.finish_many(results jsonb) RETURNS SETOF jobs.batch_finish_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'finish_many_wrapper';
CREATE FUNCTION jobs.snooze(id bigint, token bigint, delay interval) RETURNS jobs.finish_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'snooze_wrapper';
CREATE FUNCTION jobs.release(id bigint, token bigint) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'release_wrapper';
CREATE TYPE jobs.heartbeat_result AS (lease_expires_at timestamptz, deadline_at      timestamptz, cancel_requested boolean);
CREATE FUNCTION jobs.heartbeat(id bigint, token bigint, lease interval DEFAULT NULL, progress jsonb DEFAULT NULL) RETURNS jobs.heartbeat_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'heartbeat_wrapper';
CREATE FUNCTION jobs.cancel(id bigint, reason text DEFAULT NULL, force boolean DEFAULT false) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cancel_wrapper';
CREATE FUNCTION jobs.retry(id bigint, reset boolean DEFAULT false, reason text DEFAULT NULL) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'retry_wrapper';
CREATE FUNCTION jobs.delete(id bigint, reason text DEFAULT NULL) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'delete_wrapper';
CREATE TYPE jobs.batch_heartbeat_result AS (id               bigint, lease_expires_at timestamptz, deadline_at      timestamptz, cancel_requested boolean);
CREATE FUNCTION jobs.heartbeat_many(ids bigint[], tokens bigint[], lease interval DEFAULT NULL) RETURNS SETOF jobs.batch_heartbeat_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'heartbeat_many_wrapper';
CREATE FUNCTION jobs.activate(id bigint, reason text DEFAULT NULL) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'activate_wrapper';
CREATE FUNCTION jobs.update(id bigint, args jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, expires_at timestamptz DEFAULT NULL, reason text DEFAULT NULL) RETURNS jobs.state LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'update_wrapper';
CREATE FUNCTION jobs.cancel_many(queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL, older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL) RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cancel_many_wrapper';
CREATE FUNCTION jobs.retry_many(queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL, older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reset boolean DEFAULT false, error_like text DEFAULT NULL, failed_after timestamptz DEFAULT NULL, reason text DEFAULT NULL) RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'retry_many_wrapper';
CREATE FUNCTION jobs.delete_many(queue text DEFAULT NULL, kind text DEFAULT NULL, states jobs.state[] DEFAULT NULL, tag text DEFAULT NULL, older_than interval DEFAULT NULL, max_jobs integer DEFAULT 10000, reason text DEFAULT NULL) RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'delete_many_wrapper';
CREATE FUNCTION jobs.define_kind(kind text, queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, unique_opts jsonb DEFAULT NULL, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'define_kind_wrapper';
CREATE FUNCTION jobs.undefine_kind(kind text, reason text DEFAULT NULL) RETURNS boolean LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'undefine_kind_wrapper';
CREATE FUNCTION jobs.pause_queue(queue text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'pause_queue_wrapper';
CREATE FUNCTION jobs.resume_queue(queue text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'resume_queue_wrapper';
CREATE FUNCTION jobs.configure_queue(queue text, concurrency integer DEFAULT NULL, rate integer DEFAULT NULL, rate_period interval DEFAULT NULL, retention_completed interval DEFAULT NULL, retention_cancelled interval DEFAULT NULL, retention_discarded interval DEFAULT NULL, max_waiting integer DEFAULT NULL, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'configure_queue_wrapper';
CREATE FUNCTION jobs.reset_queue(queue text, reason text DEFAULT NULL) RETURNS boolean LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'reset_queue_wrapper';
CREATE TYPE jobs.schedule_result AS (outcome     text, next_run_at timestamptz);
CREATE FUNCTION jobs.schedule(name text, cron text, kind text, args jsonb DEFAULT '{}', time_zone text DEFAULT 'UTC', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, missed text DEFAULT 'once', reason text DEFAULT NULL) RETURNS jobs.schedule_result LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'schedule_wrapper';
CREATE FUNCTION jobs.unschedule(name text, reason text DEFAULT NULL) RETURNS boolean LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'unschedule_wrapper';
CREATE FUNCTION jobs.pause_periodic(name text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'pause_periodic_wrapper';
CREATE FUNCTION jobs.resume_periodic(name text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'resume_periodic_wrapper';
CREATE FUNCTION jobs.run_periodic(name text, reason text DEFAULT NULL) RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'run_periodic_wrapper';
CREATE FUNCTION jobs.worker_beat(worker text, queues text[], concurrency integer, info jsonb DEFAULT NULL) RETURNS text LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'worker_beat_wrapper';
CREATE FUNCTION jobs.quiet_worker(worker text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'quiet_worker_wrapper';
CREATE FUNCTION jobs.stop_worker(worker text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'stop_worker_wrapper';
CREATE FUNCTION jobs.resume_worker(worker text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'resume_worker_wrapper';
CREATE FUNCTION jobs.maintain() RETURNS TABLE (task text, rows bigint, duration interval, error text) LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'maintain_wrapper';
CREATE FUNCTION jobs.pause_maintenance(reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'pause_maintenance_wrapper';
CREATE FUNCTION jobs.resume_maintenance(reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'resume_maintenance_wrapper';
CREATE FUNCTION jobs.installed() RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'installed_wrapper';
CREATE FUNCTION jobs.health(old_snapshot interval DEFAULT '5 minutes', oldest_available interval DEFAULT '5 minutes', lock_wait interval DEFAULT '1 second', dead_rows bigint DEFAULT 100000) RETURNS TABLE (severity text, finding text, message text, hint text) LANGUAGE c VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'health_wrapper';
CREATE FUNCTION jobs.metrics() RETURNS TABLE (metric text, type text, labels jsonb, value double precision, help text) LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'metrics_wrapper';
CREATE FUNCTION jobs.history(queue text DEFAULT NULL, kind text DEFAULT NULL, since interval DEFAULT '1 hour', step interval DEFAULT '1 minute') RETURNS TABLE (at timestamptz, queue text, kind text, inserted bigint, started bigint, completed bigint, failed bigint, discarded bigint, cancelled bigint, wait_p50 interval, wait_p95 interval, wait_p99 interval, run_p50 interval, run_p95 interval, run_p99 interval) LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'history_wrapper';
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
CREATE FUNCTION jobs.last_id() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END FROM jobs.job_seq s;
END;
CREATE FUNCTION jobs.show(id bigint) RETURNS text LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'show_wrapper';
CREATE FUNCTION jobs.explain(id bigint) RETURNS TABLE (reason text, detail text, until timestamptz, by_ids bigint[]) LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'explain_wrapper';
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
CREATE FUNCTION jobs.grant_producer(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'grant_producer_wrapper';
CREATE FUNCTION jobs.grant_worker(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'grant_worker_wrapper';
CREATE FUNCTION jobs.grant_viewer(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'grant_viewer_wrapper';
CREATE FUNCTION jobs.grant_application(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'grant_application_wrapper';
CREATE FUNCTION jobs.grant_operator(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'grant_operator_wrapper';
CREATE FUNCTION jobs.grant_admin(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'grant_admin_wrapper';
CREATE FUNCTION jobs.revoke(role text, reason text DEFAULT NULL) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'revoke_wrapper';
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
SELECT jobs.installed();
