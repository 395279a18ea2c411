-- What changes from the first release candidate to the version in the making, but for functions,
-- views and COMMENTs: the tests take all of those from sql/. A function or view that cannot be
-- replaced is dropped here.

CREATE TABLE jobs.forwarded (
  taken_at   timestamptz NOT NULL,
  deleted_at timestamptz,
  key        uuid        NOT NULL,
  source     uuid        NOT NULL,
  CONSTRAINT forwarded_pkey PRIMARY KEY (key)
);
CREATE INDEX forwarded_by_deletion ON jobs.forwarded (deleted_at, source);

CREATE TABLE jobs.forwarder (
  seen_at   timestamptz NOT NULL,
  waiting   bigint      NOT NULL,
  oldest_at timestamptz,
  refused   bigint      NOT NULL,
  source    uuid        NOT NULL,
  address   text        NOT NULL,
  CONSTRAINT forwarder_pkey PRIMARY KEY (source)
) WITH (fillfactor = 50);

SELECT pg_catalog.pg_extension_config_dump('jobs.forwarded', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.forwarder', '');
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

CREATE TABLE jobs.placement (
  queue text      COLLATE "C" NOT NULL,
  by    jsonb,
  cells integer[] NOT NULL,
  CONSTRAINT placement_pkey PRIMARY KEY (queue)
);
SELECT pg_catalog.pg_extension_config_dump('jobs.cell', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.placement', '');

INSERT INTO jobs.maintenance_task (task) VALUES ('limits');
ALTER TABLE jobs.ready ADD COLUMN gate bigint;
CREATE INDEX ready_gate ON jobs.ready (gate, seq) WHERE gate IS NOT NULL;
ALTER TABLE jobs.ready DROP CONSTRAINT ready_pkey, ADD CONSTRAINT ready_pkey PRIMARY KEY (queue, priority, seq, job_id);
ALTER TABLE jobs.scheduled
  ADD COLUMN gate bigint, ADD COLUMN seq bigint, ADD COLUMN scheduled_at timestamptz, ADD COLUMN available_at timestamptz,
  ADD COLUMN priority smallint, ADD COLUMN kind text COLLATE "C", ADD COLUMN limit_name text COLLATE "C", ADD COLUMN limit_key jsonb;
CREATE INDEX scheduled_held ON jobs.scheduled (gate, queue, kind, priority, seq) WHERE gate IS NOT NULL;
ALTER TABLE jobs.running ADD COLUMN gates bigint[], ADD COLUMN permit bigint;

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

CREATE TABLE jobs.turn (
  gate       bigint  NOT NULL,
  job_id     bigint  NOT NULL,
  is_blocked boolean NOT NULL,
  queue      text    COLLATE "C" NOT NULL,
  key        text    COLLATE "C" NOT NULL,
  CONSTRAINT turn_pkey PRIMARY KEY (gate, job_id)
) WITH (vacuum_truncate = off);
CREATE INDEX turn_job ON jobs.turn (job_id);

CREATE TABLE jobs.permit (
  gate   bigint NOT NULL,
  n      bigint NOT NULL,
  job_id bigint NOT NULL,
  name   text   COLLATE "C" NOT NULL,
  key    text   COLLATE "C",
  CONSTRAINT permit_pkey PRIMARY KEY (gate, n)
) WITH (vacuum_truncate = off);

CREATE TABLE jobs.limit_start (
  gate bigint      NOT NULL,
  n    bigint      NOT NULL,
  at   timestamptz NOT NULL,
  name text        COLLATE "C" NOT NULL,
  key  jsonb,
  CONSTRAINT limit_start_pkey PRIMARY KEY (gate, n)
) WITH (vacuum_truncate = off);

SELECT pg_catalog.pg_extension_config_dump('jobs.limit_rule', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.limit_key_rule', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.turn', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.permit', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.limit_start', '');
