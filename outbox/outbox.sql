-- The outbox of jobs: insert jobs in a database that does not have the extension.
--
-- Run this file as the database's owner, in Postgres 13 or newer. It needs no superuser and no
-- extension, and is one statement, so psql, a driver or a migration tool takes it as it is:
--
--     psql -f outbox.sql mydb
--
-- Run it again to upgrade: rows and grants are kept.
--
-- jobs.insert, jobs.insert_many and jobs.insert_batch take the parameters of the extension's
-- functions and return its columns. A call adds rows to jobs.outbox, as part of your transaction.
-- The program `pgjobs forward` moves them to the queue:
--
--     your transaction              pgjobs forward                          the queue
--     jobs.insert -> jobs.outbox -> jobs.outbox_take ---------------------> jobs.forward
--                        |          jobs.outbox_done: deleted <------------ taken, once per key
--                        +--------- jobs.outbox_refused: kept <------------ refused, with the error
--
-- jobs.outbox         the jobs that the queue has not taken yet. A row is deleted once it is taken.
--                     The queue remembers its key, so that no row is taken twice.
--                     Of several cells, each remembers its own, so a row names its cell first:
--                     jobs.outbox_aim.
-- jobs.outbox_source  one row: the id of this outbox, by which the queue knows it. Dumps keep it.
-- jobs.outbox_status  counts by queue.
--
-- What a call can know is checked here, with the extension's errors: types, names, ranges. Policies
-- (unique_opts, retry), defaults of kinds and limits of queues are known to the queue alone. A row
-- that it refuses stays here with its error and stops no other row.
DO $outbox$
DECLARE
  path   text := pg_catalog.current_setting('search_path');
  owner  name;
  is_new boolean;
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
PERFORM pg_advisory_xact_lock(1785684595, 0); -- several programs may start at once

IF current_setting('server_version_num')::integer < 130000 THEN
  RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the outbox of jobs requires Postgres 13 or newer';
ELSIF EXISTS (SELECT FROM pg_extension WHERE extname = 'jobs') THEN
  RAISE EXCEPTION USING ERRCODE = '42710',
    MESSAGE = 'this database has the extension jobs',
    DETAIL = 'An outbox is for databases without the extension. Here, jobs.insert inserts into the queue itself.';
ELSIF current_setting('server_encoding') <> 'UTF8' THEN
  RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'jobs requires a database with encoding UTF8';
END IF;

SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'jobs' INTO owner;
is_new := NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('jobs') AND relname = 'outbox_source');
IF owner <> current_user THEN
  RAISE EXCEPTION USING ERRCODE = '42501',
    MESSAGE = 'must be owner of schema jobs',
    HINT = format('SET ROLE %I;', owner);
ELSIF is_new AND (EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('jobs'))
               OR EXISTS (SELECT FROM pg_type WHERE typnamespace = to_regnamespace('jobs'))
               OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('jobs'))) THEN
  RAISE EXCEPTION USING ERRCODE = '42P06',
    MESSAGE = 'schema jobs has other objects',
    DETAIL = 'The outbox needs the schema jobs for itself.';
END IF;

------------------------------------------------------------------------------------------------
-- Schema, types and tables
------------------------------------------------------------------------------------------------

IF owner IS NULL THEN
  CREATE SCHEMA jobs;
END IF;
COMMENT ON SCHEMA jobs IS
  'The outbox of the job queue: functions that insert jobs as part of your transaction. pgjobs forward moves them to the queue.';

IF is_new THEN
  CREATE TYPE jobs.state AS ENUM (
    'available', 'scheduled', 'pending', 'running', 'retryable',
    'completed', 'cancelled', 'discarded');

  CREATE TYPE jobs.insert_result AS (
    id                          bigint,
    state                       jobs.state,
    unique_skipped_as_duplicate boolean,
    replaced_id                 bigint,
    queue                       text,
    created_at                  timestamptz,
    scheduled_at                timestamptz);

  CREATE TYPE jobs.batch_insert_result AS (
    ord                         integer,
    id                          bigint,
    state                       jobs.state,
    unique_skipped_as_duplicate boolean,
    replaced_id                 bigint,
    queue                       text,
    created_at                  timestamptz,
    scheduled_at                timestamptz);

  CREATE TABLE jobs.outbox_source (
    id        uuid    NOT NULL DEFAULT gen_random_uuid(),
    has_cells boolean NOT NULL DEFAULT false
  );
  CREATE UNIQUE INDEX outbox_source_one_row ON jobs.outbox_source ((true));

  -- It is often empty: vacuum would truncate it each time, under a lock that blocks inserts.
  CREATE TABLE jobs.outbox (
    id              bigint      GENERATED ALWAYS AS IDENTITY,
    key             uuid        NOT NULL DEFAULT gen_random_uuid(),
    queue           text        COLLATE "C",
    job             jsonb       NOT NULL,
    cell            integer,
    created_at      timestamptz NOT NULL DEFAULT now(),
    attempts        integer     NOT NULL DEFAULT 0,
    error           text,
    sqlstate        text,
    refused_at      timestamptz,
    next_attempt_at timestamptz,
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
  ) WITH (vacuum_truncate = off);
END IF;
-- Again after a dump of the schema alone.
INSERT INTO jobs.outbox_source DEFAULT VALUES ON CONFLICT DO NOTHING;

COMMENT ON TYPE jobs.state IS 'State of a job at the queue. A job in the outbox is available.';
COMMENT ON TYPE jobs.insert_result IS
  'The job in the outbox. id is null: the queue assigns it. state is available, unique_skipped_as_duplicate is false and replaced_id is null: the queue decides.';
COMMENT ON TYPE jobs.batch_insert_result IS
  'As jobs.insert_result, for one of many jobs. ord is the position of its element, from 1.';
COMMENT ON TABLE jobs.outbox_source IS 'One row: the id of this outbox. Dumps keep it.';
COMMENT ON COLUMN jobs.outbox_source.has_cells IS 'Whether a job without a cell was sent to none. False until a forwarder to several cells has asked each of them what it has taken.';
COMMENT ON TABLE jobs.outbox IS 'Jobs that the queue has not taken yet.';
COMMENT ON COLUMN jobs.outbox.id IS 'Jobs of a queue are forwarded in this order.';
COMMENT ON COLUMN jobs.outbox.key IS 'By which the queue recognises a row that it has taken.';
COMMENT ON COLUMN jobs.outbox.queue IS 'As given; null: the default of the kind, which the queue knows.';
COMMENT ON COLUMN jobs.outbox.job IS 'An element of jobs.insert_many: kind, args and the options that were given. Times have their offset, durations are ISO 8601.';
COMMENT ON COLUMN jobs.outbox.cell IS 'The only cell to which the job may be sent. It is written before, so that no other cell gets a job that this one may have taken. Null: not chosen yet, or there is only one database.';
COMMENT ON COLUMN jobs.outbox.attempts IS 'How often the queue has refused the job.';
COMMENT ON COLUMN jobs.outbox.error IS 'Message, DETAIL and HINT of the latest refusal; null: none.';
COMMENT ON COLUMN jobs.outbox.sqlstate IS 'SQLSTATE of the latest refusal.';
COMMENT ON COLUMN jobs.outbox.refused_at IS 'Time of the latest refusal.';
COMMENT ON COLUMN jobs.outbox.next_attempt_at IS 'When a refused job is tried again; infinity: not before jobs.retry_outbox; null: the job has not been refused.';

CREATE OR REPLACE VIEW jobs.outbox_status AS
  SELECT queue,
         count(*) FILTER (WHERE error IS NULL) AS waiting,
         min(created_at) FILTER (WHERE next_attempt_at IS DISTINCT FROM 'infinity') AS oldest_at,
         count(*) FILTER (WHERE error IS NOT NULL) AS refused
    FROM jobs.outbox
   GROUP BY queue;
COMMENT ON VIEW jobs.outbox_status IS
'Jobs in the outbox by queue; queue is null where the default of the kind decides.
- waiting: jobs that have not been refused
- oldest_at: when the oldest job was inserted that waits or is tried again
- refused: jobs that the queue has refused, whether they are tried again or not';

------------------------------------------------------------------------------------------------
-- Errors, in the extension's words
------------------------------------------------------------------------------------------------

-- 22023 and 22004 name the parameter as their column. Of a batch, DETAIL begins with the element.
CREATE OR REPLACE FUNCTION jobs.outbox_error(
  code text, field text, message text, detail text, hint text, element bigint)
RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF element IS NOT NULL THEN
    detail := 'Element ' || element || coalesce(': ' || detail, '.');
  END IF;
  IF detail IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = code, COLUMN = field, MESSAGE = message;
  ELSIF hint IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = code, COLUMN = field, MESSAGE = message, DETAIL = detail;
  END IF;
  RAISE EXCEPTION USING ERRCODE = code, COLUMN = field, MESSAGE = message, DETAIL = detail, HINT = hint;
END $$;

CREATE OR REPLACE FUNCTION jobs.outbox_null(field text, element bigint DEFAULT NULL)
RETURNS void LANGUAGE sql STABLE AS $$
  SELECT jobs.outbox_error('22004', field, field || ' must not be null', NULL, NULL, element)
$$;

CREATE OR REPLACE FUNCTION jobs.outbox_wrong_type(
  field text, what text, value jsonb, rule text, hint text, element bigint)
RETURNS void LANGUAGE sql STABLE AS $$
  SELECT jobs.outbox_error('22023', field, what || ' must not be ' ||
    CASE jsonb_typeof(value) WHEN 'object' THEN 'an object' WHEN 'array' THEN 'an array'
      WHEN 'string' THEN 'a string' WHEN 'number' THEN 'a number' ELSE value::text END,
    rule, hint, element)
$$;

CREATE OR REPLACE FUNCTION jobs.outbox_too_long(part text, length bigint, element bigint)
RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
  -- 64 MB, as at the queue, unless this database says otherwise:
  -- ALTER DATABASE mydb SET jobs.max_payload = '128MB'
  most bigint := coalesce(pg_size_bytes(nullif(current_setting('jobs.max_payload', true), '')), 67108864);
BEGIN
  IF length > most THEN
    RAISE EXCEPTION USING ERRCODE = '54000',
      MESSAGE = format('the text of %s is too long: %s bytes', part, length),
      DETAIL = coalesce('Element ' || element || ': ', '') || format('jobs.max_payload limits the text of %s to %s bytes.', part, most),
      HINT = 'Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION jobs.outbox_read_only()
RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION USING ERRCODE = '25006',
      MESSAGE = 'cannot write jobs on a standby', HINT = 'Connect to the primary.';
  END IF;
  RAISE EXCEPTION USING ERRCODE = '25006',
    MESSAGE = 'cannot write jobs in a read-only transaction', HINT = 'Use a read-write transaction.';
END $$;

-- A value in messages is cut after 100 characters.
CREATE OR REPLACE FUNCTION jobs.outbox_shown(value text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN char_length(value) > 100 THEN left(value, 100) || '...' ELSE value END
$$;

-- The hint that names the candidate nearest to a misspelt word: one edit (a letter added, missing,
-- replaced, or two swapped) for every three letters.
CREATE OR REPLACE FUNCTION jobs.outbox_did_you_mean(word text, candidates text[])
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  letters   integer := char_length(word);
  best      integer := least(greatest(letters / 3, 1), letters - 1) + 1;
  nearest   text;
  candidate text;
  a text := lower(word);
  b text;
  before integer[];
  above  integer[];
  line   integer[];
BEGIN
  IF letters > 100 THEN
    RETURN NULL;
  END IF;
  FOREACH candidate IN ARRAY candidates LOOP
    b := lower(candidate);
    CONTINUE WHEN abs(char_length(b) - letters) >= best;
    above := ARRAY(SELECT generate_series(0, char_length(b)));
    FOR i IN 1..letters LOOP
      line := ARRAY[i];
      FOR j IN 1..char_length(b) LOOP
        line[j + 1] := least(above[j + 1] + 1, line[j] + 1,
          above[j] + (substr(a, i, 1) <> substr(b, j, 1))::integer);
        IF i > 1 AND j > 1 AND substr(a, i, 1) = substr(b, j - 1, 1) AND substr(a, i - 1, 1) = substr(b, j, 1) THEN
          line[j + 1] := least(line[j + 1], before[j - 1] + 1);
        END IF;
      END LOOP;
      before := above;
      above := line;
    END LOOP;
    IF above[char_length(b) + 1] < best THEN
      best := above[char_length(b) + 1];
      nearest := candidate;
    END IF;
  END LOOP;
  RETURN 'Did you mean "' || jobs.outbox_shown(nearest) || '"?';
END $$;

------------------------------------------------------------------------------------------------
-- Checks
------------------------------------------------------------------------------------------------

-- Whether a name needs no further look.
CREATE OR REPLACE FUNCTION jobs.outbox_is_plain(name text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT octet_length(name) BETWEEN 1 AND 127 AND name !~ '[^ -~]'
$$;

-- The name of a kind or queue, in Unicode normal form C.
CREATE OR REPLACE FUNCTION jobs.outbox_name(field text, name text, element bigint DEFAULT NULL)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  message text;
  escape  text;
BEGIN
  IF jobs.outbox_is_plain(name) THEN
    RETURN name;
  ELSIF name IS NULL THEN
    PERFORM jobs.outbox_null(field, element);
  END IF;
  name := normalize(name, NFC);
  IF name = '' THEN
    message := field || ' must not be empty';
  ELSIF char_length(name) > 127 THEN
    message := format('%s "%s" is too long: %s characters', field, jobs.outbox_shown(name), char_length(name));
  ELSIF name ~ '[\u0001-\u001f\u007f-\u009f]' THEN
    name := replace(replace(jobs.outbox_shown(name), '\', '\\'), '"', '\"');
    name := replace(replace(replace(name, E'\t', '\t'), E'\n', '\n'), E'\r', '\r');
    FOR escape IN SELECT DISTINCT match[1] FROM regexp_matches(name, '[\u0001-\u001f\u007f-\u009f]', 'g') match LOOP
      name := replace(name, escape, format('\u{%s}', to_hex(ascii(escape))));
    END LOOP;
    message := format('%s "%s" contains a control character', field, name);
  ELSE
    RETURN name;
  END IF;
  PERFORM jobs.outbox_error('22023', field, message,
    format('A %s must have 1 to 127 characters and no control characters.', field), NULL, element);
END $$;

-- Does not depend on the session's IntervalStyle.
CREATE OR REPLACE FUNCTION jobs.outbox_iso(value interval)
RETURNS text LANGUAGE sql STABLE SET intervalstyle = iso_8601 AS $$ SELECT value::text $$;

-- How long an attempt may run, in ISO 8601.
CREATE OR REPLACE FUNCTION jobs.outbox_timeout(timeout interval, element bigint)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  iso  text := jobs.outbox_iso(timeout);
  rule text;
  -- Postgres adds months, days and the rest one after the other. Huge parts of different signs lead
  -- out of all time.
  months integer;
  days   integer;
  rest   interval;
BEGIN
  IF iso = 'PT-1S' THEN
    RETURN iso; -- no limit
  ELSIF timeout <= interval '0' OR timeout > interval '1000 years' THEN
    rule := 'timeout must be longer than 0 and at most 1000 years.';
  ELSIF iso LIKE '%-%' THEN
    months := extract(year FROM timeout) * 12 + extract(month FROM timeout);
    days := extract(day FROM timeout);
    rest := timeout - make_interval(months => months, days => days);
    IF abs(months) > 365000 / 30 OR abs(days) > 365000
      OR rest > interval '365000 days' OR rest < interval '-365000 days' THEN
      rule := 'If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.';
    END IF;
  END IF;
  IF rule IS NOT NULL THEN
    PERFORM jobs.outbox_error('22023', 'timeout', format('timeout "%s" is out of range', timeout), rule,
      'Use -1 second for no limit.', element);
  END IF;
  RETURN iso;
END $$;

-- A kind and the options that are given, as an element of insert_many has them.
CREATE OR REPLACE FUNCTION jobs.outbox_options(
  kind text, unique_opts jsonb, queue text, priority integer, scheduled_at timestamptz, max_attempts integer,
  tags text[], meta jsonb, timeout interval, retry jsonb, expires_at timestamptz, pending boolean,
  element bigint DEFAULT NULL)
RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  options jsonb := jsonb_build_object('kind', kind);
BEGIN
  IF priority IS NOT NULL THEN
    IF priority NOT BETWEEN -32768 AND 32767 THEN
      PERFORM jobs.outbox_error('22023', 'priority', format('priority %s is out of range', priority),
        'priority must be between -32768 and 32767; lower numbers run first.', NULL, element);
    END IF;
    options := options || jsonb_build_object('priority', priority);
  END IF;
  IF tags IS NOT NULL THEN
    tags := ARRAY(SELECT unnest(tags)); -- of one dimension
    IF array_position(tags, NULL) IS NOT NULL THEN
      PERFORM jobs.outbox_error('22004', 'tags', 'an element of tags must not be null', NULL, NULL, element);
    END IF;
  END IF;
  IF jsonb_typeof(meta) <> 'null' THEN
    IF jsonb_typeof(meta) <> 'object' THEN
      PERFORM jobs.outbox_wrong_type('meta', 'meta', meta, 'meta must be an object.', NULL, element);
    END IF;
    options := options || jsonb_build_object('meta', meta);
  END IF;
  IF tags IS NOT NULL THEN
    PERFORM jobs.outbox_too_long('tags', octet_length(array_to_string(tags, '')), element);
    options := options || jsonb_build_object('tags', tags);
  END IF;
  -- A JSON null is a driver's way to leave something out.
  IF jsonb_typeof(retry) <> 'null' THEN
    IF jsonb_typeof(retry) NOT IN ('string', 'object') THEN
      PERFORM jobs.outbox_wrong_type('retry', 'retry', retry,
        'retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.',
        CASE WHEN jsonb_typeof(retry) = 'number' THEN 'Use max_attempts to set the number of attempts.'
             WHEN retry = 'false' THEN 'Set max_attempts to 1 for no retries.' END, element);
    END IF;
    options := options || jsonb_build_object('retry', retry);
  END IF;
  IF max_attempts IS NOT NULL THEN
    IF max_attempts < 1 THEN
      PERFORM jobs.outbox_error('22023', 'max_attempts', format('max_attempts %s is too low', max_attempts),
        'max_attempts must be at least 1; it includes the first attempt.', NULL, element);
    END IF;
    options := options || jsonb_build_object('max_attempts', max_attempts);
  END IF;
  IF queue IS NOT NULL THEN
    options := options || jsonb_build_object('queue', jobs.outbox_name('queue', queue, element));
  END IF;
  IF scheduled_at IS NOT NULL THEN
    IF NOT isfinite(scheduled_at) THEN
      PERFORM jobs.outbox_error('22023', 'scheduled_at', format('scheduled_at %s is out of range', scheduled_at),
        'scheduled_at must be finite.', NULL, element);
    END IF;
    options := options || jsonb_build_object('scheduled_at', scheduled_at);
  END IF;
  IF expires_at IS NOT NULL THEN
    IF NOT isfinite(expires_at) THEN
      PERFORM jobs.outbox_error('22023', 'expires_at', format('expires_at %s is out of range', expires_at),
        'expires_at must be finite.', NULL, element);
    END IF;
    options := options || jsonb_build_object('expires_at', expires_at);
  END IF;
  IF timeout IS NOT NULL THEN
    options := options || jsonb_build_object('timeout', jobs.outbox_timeout(timeout, element));
  END IF;
  IF jsonb_typeof(unique_opts) <> 'null' THEN
    IF jsonb_typeof(unique_opts) <> 'object' THEN
      PERFORM jobs.outbox_wrong_type('unique_opts', 'unique_opts', unique_opts,
        'unique_opts must be an object such as {"by_args": true}; {} means not unique.', NULL, element);
    END IF;
    options := options || jsonb_build_object('unique_opts', unique_opts);
  END IF;
  IF pending THEN
    options := options || '{"pending": true}';
  END IF;
  RETURN options;
END $$;

-- No text of jsonb is longer than its bytes by a factor of 14,746, with which 10 bytes can be a
-- number of 131,072 digits.
CREATE OR REPLACE FUNCTION jobs.outbox_check_args(options jsonb, args jsonb, element bigint)
RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF args IS NULL THEN
    PERFORM jobs.outbox_null('args', element);
  END IF;
  PERFORM jobs.outbox_too_long('args and meta',
    octet_length(args::text)::bigint + coalesce(octet_length((options -> 'meta')::text), 0), element);
  RETURN args;
END $$;

-- The job with these options and args.
CREATE OR REPLACE FUNCTION jobs.outbox_job(options jsonb, args jsonb, element bigint DEFAULT NULL)
RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT options || jsonb_build_object('args',
    CASE WHEN pg_column_size(args) + pg_column_size(options) < 4000 THEN args
         ELSE jobs.outbox_check_args(options, args, element) END)
$$;

-- A duration in JSON: a number of seconds or text, read strictly and as with the default
-- IntervalStyle, as at the queue.
CREATE OR REPLACE FUNCTION jobs.outbox_duration(field text, value jsonb, element bigint)
RETURNS interval LANGUAGE plpgsql STABLE SET intervalstyle = postgres AS $$
DECLARE
  given text := regexp_replace(value #>> '{}', '^\s+|\s+$', '', 'g');
  rule  CONSTANT text := 'A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.';
  fix   CONSTANT text := 'Write 900, "PT15M" or "15 minutes".';
BEGIN
  CASE jsonb_typeof(value)
  WHEN 'number' THEN
    IF abs(value::numeric) > 9223372036854 THEN
      PERFORM jobs.outbox_error('22023', field, format('%s %s is out of range', field, jobs.outbox_shown(given)),
        'A duration must be at most 9223372036854 seconds.', NULL, element);
    END IF;
    RETURN trunc(value::numeric, 12)::double precision * interval '1 second';
  WHEN 'string' THEN
    IF translate(given, '-+', '') ~ '^P(?=.)(\d+(\.\d+)?Y)?(\d+(\.\d+)?M)?(\d+(\.\d+)?W)?(\d+(\.\d+)?D)?(T(?=\d)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?$'
      OR given ~ '^[-+]*(\d+\.?\d*|\.\d+)$'
      OR given ~* '^@?\s*(([-+]?(\d+\.?\d*|\.\d+)\s*[a-z]+\s*)+([-+]?\d+:\d+:(\d+\.?\d*|\.\d+))?|[-+]?\d+:\d+:(\d+\.?\d*|\.\d+))( ago)?$' THEN
      BEGIN
        RETURN given::interval;
      EXCEPTION WHEN data_exception THEN
        NULL;
      END;
    END IF;
    PERFORM jobs.outbox_error('22023', field,
      format('%s "%s" is not a duration', field, jobs.outbox_shown(value #>> '{}')), rule, fix, element);
  ELSE
    PERFORM jobs.outbox_wrong_type(field, field, value, rule, fix, element);
  END CASE;
END $$;

-- A time in JSON. Without an offset it is one of the session's TimeZone.
CREATE OR REPLACE FUNCTION jobs.outbox_time(field text, value jsonb, element bigint)
RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
  read timestamptz := 'infinity';
BEGIN
  IF jsonb_typeof(value) <> 'string' THEN
    PERFORM jobs.outbox_wrong_type(field, field, value, field || ' must be a timestamp as a string.', NULL, element);
  END IF;
  BEGIN
    read := (value #>> '{}')::timestamptz;
  EXCEPTION WHEN data_exception THEN
    NULL;
  END;
  IF NOT isfinite(read) THEN
    PERFORM jobs.outbox_error('22023', field,
      format('%s "%s" is not a timestamp', field, jobs.outbox_shown(value #>> '{}')),
      field || ' must be a finite timestamp.', 'Use ISO 8601, for example 2026-02-12T15:21:00Z.', element);
  END IF;
  RETURN read;
END $$;

CREATE OR REPLACE FUNCTION jobs.outbox_whole(field text, value jsonb, element bigint)
RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF jsonb_typeof(value) <> 'number' THEN
    PERFORM jobs.outbox_wrong_type(field, field, value, field || ' must be a whole number.', NULL, element);
  ELSIF value::numeric <> trunc(value::numeric) OR value::numeric NOT BETWEEN -2147483648 AND 2147483647 THEN
    PERFORM jobs.outbox_error('22023', field,
      format('%s %s is not a whole number of 32 bits', field, jobs.outbox_shown(value::text)),
      field || ' must be a whole number of 32 bits.', NULL, element);
  END IF;
  RETURN value::integer;
END $$;

CREATE OR REPLACE FUNCTION jobs.outbox_string(field text, value jsonb, element bigint)
RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF jsonb_typeof(value) <> 'string' THEN
    PERFORM jobs.outbox_wrong_type(field, field, value, field || ' must be a string.', NULL, element);
  END IF;
  RETURN value #>> '{}';
END $$;

-- Whether an element of insert_many needs no further look.
CREATE OR REPLACE FUNCTION jobs.outbox_is_plain_element(job jsonb)
RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN jsonb_typeof(job) = 'object' AND pg_column_size(job) < 4000 THEN
    job - '{kind,args,queue,unique_opts}'::text[] = '{}'
    AND job -> 'args' IS NOT NULL
    AND jsonb_typeof(job -> 'kind') = 'string' AND jobs.outbox_is_plain(job ->> 'kind')
    AND coalesce(jsonb_typeof(job -> 'queue') = 'string' AND jobs.outbox_is_plain(job ->> 'queue'), true)
    AND coalesce(jsonb_typeof(job -> 'unique_opts') = 'object', true)
  END
$$;

-- An element of insert_many, checked, as every session reads it alike.
CREATE OR REPLACE FUNCTION jobs.outbox_element(job jsonb, element bigint)
RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  fields CONSTANT text[] := '{kind,args,unique_opts,queue,priority,scheduled_at,max_attempts,tags,meta,timeout,retry,expires_at,pending}';
  field text;
  value jsonb;
  tag   jsonb;
  -- As the parameters of jobs.insert.
  kind         text;
  queue        text;
  priority     integer;
  scheduled_at timestamptz;
  max_attempts integer;
  tags         text[];
  timeout      interval;
  expires_at   timestamptz;
  pending      boolean;
BEGIN
  IF jsonb_typeof(job) <> 'object' THEN
    PERFORM jobs.outbox_wrong_type('jobs', 'an element of jobs', job,
      'Each element must be an object with the parameters of jobs.insert.', NULL, element);
  END IF;
  FOR field, value IN SELECT * FROM jsonb_each(job) LOOP
    IF field <> ALL (fields) THEN
      PERFORM jobs.outbox_error('22023', 'jobs', format('field "%s" of jobs is not known', jobs.outbox_shown(field)),
        format('The fields are %s.', array_to_string(fields, ', ')), jobs.outbox_did_you_mean(field, fields), element);
    END IF;
    CONTINUE WHEN value = 'null'; -- a value of args; leaves every other field out
    CASE field
    WHEN 'kind' THEN kind := jobs.outbox_string(field, value, element);
    WHEN 'queue' THEN queue := jobs.outbox_string(field, value, element);
    WHEN 'priority' THEN priority := jobs.outbox_whole(field, value, element);
    WHEN 'max_attempts' THEN max_attempts := jobs.outbox_whole(field, value, element);
    WHEN 'scheduled_at' THEN scheduled_at := jobs.outbox_time(field, value, element);
    WHEN 'expires_at' THEN expires_at := jobs.outbox_time(field, value, element);
    WHEN 'timeout' THEN timeout := jobs.outbox_duration(field, value, element);
    WHEN 'pending' THEN
      IF jsonb_typeof(value) <> 'boolean' THEN
        PERFORM jobs.outbox_wrong_type(field, field, value, 'pending must be true or false.', NULL, element);
      END IF;
      pending := value::boolean;
    WHEN 'tags' THEN
      IF jsonb_typeof(value) <> 'array' THEN
        PERFORM jobs.outbox_wrong_type(field, field, value, 'tags must be an array of strings.', NULL, element);
      END IF;
      FOR tag IN SELECT * FROM jsonb_array_elements(value) LOOP
        IF jsonb_typeof(tag) <> 'string' THEN
          PERFORM jobs.outbox_wrong_type(field, 'an element of tags', tag, 'tags must be an array of strings.', NULL, element);
        END IF;
      END LOOP;
      tags := ARRAY(SELECT jsonb_array_elements_text(value));
    ELSE NULL; -- args, and what outbox_options checks
    END CASE;
  END LOOP;
  kind := jobs.outbox_name('kind', kind, element);
  RETURN jobs.outbox_job(
    jobs.outbox_options(kind, job -> 'unique_opts', queue, priority, scheduled_at, max_attempts, tags,
      job -> 'meta', timeout, job -> 'retry', expires_at, pending, element),
    coalesce(job -> 'args', '{}'), element);
END $$;

------------------------------------------------------------------------------------------------
-- Insert
------------------------------------------------------------------------------------------------

-- Whether a forwarder wants to be notified. A commit that notifies holds a lock of the whole server
-- until its WAL is flushed, so inserts do it only while a forwarder is idle, and holds the advisory
-- lock (1785684595, 1): 1785684595 is 'jobs' in ASCII. jobs.notify = off is for transactions that
-- end with PREPARE TRANSACTION, which must not notify.
CREATE OR REPLACE FUNCTION jobs.outbox_is_watched()
RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT NOT (pg_try_advisory_lock_shared(1785684595, 1) AND pg_advisory_unlock_shared(1785684595, 1))
         AND current_setting('jobs.notify', true) IS DISTINCT FROM 'off'
$$;

CREATE OR REPLACE FUNCTION jobs.insert(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS jobs.insert_result
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job jsonb;
BEGIN
  IF current_setting('transaction_read_only') = 'on' THEN
    PERFORM jobs.outbox_read_only();
  END IF;
  IF jobs.outbox_is_plain(kind) AND coalesce(jobs.outbox_is_plain(queue), true) AND pg_column_size(args) < 4000
    AND num_nonnulls(unique_opts, priority, scheduled_at, max_attempts, tags, meta, timeout, retry, expires_at) = 0
    AND pending IS NOT TRUE THEN
    job := CASE WHEN queue IS NULL THEN jsonb_build_object('kind', kind, 'args', args)
                ELSE jsonb_build_object('kind', kind, 'args', args, 'queue', queue) END;
  ELSE
    kind := jobs.outbox_name('kind', kind);
    IF args IS NULL THEN
      PERFORM jobs.outbox_null('args');
    END IF;
    job := jobs.outbox_job(
      jobs.outbox_options(kind, unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta, timeout,
        retry, expires_at, pending), args);
    queue := job ->> 'queue';
  END IF;
  INSERT INTO jobs.outbox (queue, job) VALUES (queue, job);
  IF jobs.outbox_is_watched() THEN
    NOTIFY jobs_outbox;
  END IF;
  RETURN ROW(NULL, 'available', false, NULL, coalesce(queue, 'default'), now(),
    coalesce(scheduled_at, now()))::jobs.insert_result;
END $$;
COMMENT ON FUNCTION jobs.insert(text, jsonb, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
'Inserts one job into the outbox, as part of your transaction. Takes the parameters of the extension''s jobs.insert. Returns state available and a null id, which the queue assigns when it takes the job.
Options default to those of the kind at the queue. The queue applies unique_opts when it takes the job, and reads the period of by_period then, unless you set scheduled_at.
Errors:
- 54000: args and meta, or tags, are longer than 64 MB as text, or than jobs.max_payload if that is set in this database
- 22004, 22023, 25006: as the extension''s';

CREATE OR REPLACE FUNCTION jobs.insert_many(
  jobs jsonb)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_read_only') = 'on' THEN
    PERFORM jobs.outbox_read_only();
  END IF;
  IF jobs IS NULL THEN
    PERFORM jobs.outbox_null('jobs');
  ELSIF jsonb_typeof(jobs) <> 'array' THEN
    PERFORM jobs.outbox_wrong_type('jobs', 'jobs', jobs, 'jobs must be an array with an object for each job.',
      'Use jobs.insert for a single job.', NULL);
  END IF;
  RETURN QUERY
  WITH element AS MATERIALIZED (
    SELECT ord, CASE WHEN jobs.outbox_is_plain_element(given) THEN given ELSE jobs.outbox_element(given, ord) END AS job
      FROM jsonb_array_elements(jobs) WITH ORDINALITY AS elements (given, ord)
  ), inserted AS (
    INSERT INTO jobs.outbox (queue, job) SELECT job ->> 'queue', job FROM element ORDER BY ord
  )
  SELECT ord::integer, NULL::bigint, 'available'::jobs.state, false, NULL::bigint,
         coalesce(job ->> 'queue', 'default'), now(), coalesce((job ->> 'scheduled_at')::timestamptz, now())
    FROM element ORDER BY ord;
  IF jobs.outbox_is_watched() THEN
    NOTIFY jobs_outbox;
  END IF;
END $$;
COMMENT ON FUNCTION jobs.insert_many(jsonb) IS
'Inserts an array of jobs into the outbox, each an object with the parameters of jobs.insert, in one atomic statement. Returns a row per element, in order (ord from 1).
Errors: as jobs.insert, with the index of the element, from 1, in DETAIL.';

CREATE OR REPLACE FUNCTION jobs.insert_batch(
  kind text, args jsonb[], unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  options jsonb;
BEGIN
  IF current_setting('transaction_read_only') = 'on' THEN
    PERFORM jobs.outbox_read_only();
  END IF;
  kind := jobs.outbox_name('kind', kind);
  IF args IS NULL THEN
    PERFORM jobs.outbox_null('args');
  END IF;
  options := jobs.outbox_options(kind, unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta,
    timeout, retry, expires_at, pending);
  queue := options ->> 'queue';
  RETURN QUERY
  WITH element AS MATERIALIZED (
    SELECT ord, jobs.outbox_job(options, given, ord) AS job
      FROM unnest(args) WITH ORDINALITY AS elements (given, ord)
  ), inserted AS (
    INSERT INTO jobs.outbox (queue, job) SELECT queue, job FROM element ORDER BY ord
  )
  SELECT ord::integer, NULL::bigint, 'available'::jobs.state, false, NULL::bigint,
         coalesce(queue, 'default'), now(), coalesce(scheduled_at, now())
    FROM element ORDER BY ord;
  IF jobs.outbox_is_watched() THEN
    NOTIFY jobs_outbox;
  END IF;
END $$;
COMMENT ON FUNCTION jobs.insert_batch(text, jsonb[], jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
'Inserts a job of one kind into the outbox for each element of args, all with the same options, in one atomic statement. Returns a row per element, in order (ord from 1).
Errors: as jobs.insert_many.';

------------------------------------------------------------------------------------------------
-- Forward
------------------------------------------------------------------------------------------------

-- Plans are kept by sessions that saw the table empty.
CREATE OR REPLACE FUNCTION jobs.outbox_take("limit" integer, hold text[] DEFAULT NULL, cell integer DEFAULT NULL)
RETURNS TABLE (id bigint, key uuid, queue text, job jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  bytes bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1785684595, 2 + coalesce(1 + outbox_take.cell, 0)) THEN
    RETURN; -- another forwarder moves
  END IF;
  FOR look IN 1..2 LOOP
    FOR id, key, queue, job IN
      SELECT o.id, o.key, o.queue, o.job
        FROM jobs.outbox o
       WHERE (o.next_attempt_at IS NULL OR o.next_attempt_at <= now())
         AND o.cell IS NOT DISTINCT FROM outbox_take.cell
         AND (hold IS NULL OR coalesce(o.queue, E'\t' || (o.job ->> 'kind')) <> ALL (hold))
       ORDER BY o.id
       LIMIT "limit"
         FOR UPDATE SKIP LOCKED
    LOOP
      bytes := bytes + octet_length(job::text);
      RETURN NEXT;
      EXIT WHEN bytes > 16000000; -- far from the longest jsonb
    END LOOP;
    IF bytes > 0 THEN
      PERFORM pg_advisory_unlock_all();
      RETURN;
    END IF;
    -- Inserts that see this lock notify. Others may have committed since.
    EXIT WHEN outbox_take.cell IS NOT NULL OR NOT pg_try_advisory_lock(1785684595, 1);
  END LOOP;
END $$;
COMMENT ON FUNCTION jobs.outbox_take(integer, text[], integer) IS
'Returns jobs to forward to a cell (null: those that have none), at most limit and about 16 MB, in the order of their ids, and locks them until the end of the transaction. Returns none while another transaction forwards to the cell. Leaves out jobs that are not due, and the lanes in hold: queues, and for jobs without a queue a tab and the kind.
If there are none and cell is null, inserts notify channel jobs_outbox from now on, until this session calls the function again and finds one or ends. A transaction that has already inserted does not notify.';

CREATE OR REPLACE FUNCTION jobs.outbox_aim(ids bigint[], cell integer)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  UPDATE jobs.outbox SET cell = outbox_aim.cell WHERE id = ANY (ids)
$$;
COMMENT ON FUNCTION jobs.outbox_aim(bigint[], integer) IS
'Chooses the cell to which jobs are forwarded. The one before, if any, must have refused them.';

CREATE OR REPLACE FUNCTION jobs.outbox_has_cells(so boolean)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE jobs.outbox_source SET has_cells = so WHERE has_cells <> so
$$;
COMMENT ON FUNCTION jobs.outbox_has_cells(boolean) IS
'Records whether each job that may have been sent to a cell names it.';

CREATE OR REPLACE FUNCTION jobs.outbox_done(ids bigint[])
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  DELETE FROM jobs.outbox WHERE id = ANY (ids)
$$;
COMMENT ON FUNCTION jobs.outbox_done(bigint[]) IS 'Deletes jobs that the queue has taken.';

CREATE OR REPLACE FUNCTION jobs.outbox_refused(ids bigint[], error text, sqlstate text, retry_after interval)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
  UPDATE jobs.outbox
     SET attempts = attempts + 1, error = outbox_refused.error, sqlstate = outbox_refused.sqlstate,
         refused_at = now(), next_attempt_at = coalesce(now() + retry_after, 'infinity'),
         cell = CASE WHEN outbox_refused.sqlstate <> 'JB001' THEN cell END
   WHERE id = ANY (ids)
$$;
COMMENT ON FUNCTION jobs.outbox_refused(bigint[], text, text, interval) IS
'Records that the queue has refused jobs. Those of another cell (JB001) name none any more. They are tried again after retry_after; null: not before jobs.retry_outbox.';

------------------------------------------------------------------------------------------------
-- Manage
------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION jobs.retry_outbox(ids bigint[] DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  count bigint;
BEGIN
  UPDATE jobs.outbox
     SET error = NULL, sqlstate = NULL, refused_at = NULL, next_attempt_at = NULL
   WHERE error IS NOT NULL AND (ids IS NULL OR id = ANY (ids));
  GET DIAGNOSTICS count = ROW_COUNT;
  NOTIFY jobs_outbox;
  RETURN count;
END $$;
COMMENT ON FUNCTION jobs.retry_outbox(bigint[]) IS
'Lets refused jobs be forwarded again, now: those with these ids, or all. Returns how many there were.';

CREATE OR REPLACE FUNCTION jobs.drop_outbox(ids bigint[])
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  count bigint;
BEGIN
  IF ids IS NULL THEN
    PERFORM jobs.outbox_null('ids');
  END IF;
  DELETE FROM jobs.outbox WHERE id = ANY (ids);
  GET DIAGNOSTICS count = ROW_COUNT;
  RETURN count;
END $$;
COMMENT ON FUNCTION jobs.drop_outbox(bigint[]) IS
'Deletes jobs from the outbox, refused or not, so that they are never forwarded. Returns how many there were. Waits for a forwarder that is moving them.
Errors: 22004.';

------------------------------------------------------------------------------------------------
-- Rights
------------------------------------------------------------------------------------------------

-- The name of a role as statements have it.
CREATE OR REPLACE FUNCTION jobs.outbox_role(role text)
RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF role IS NULL THEN
    PERFORM jobs.outbox_null('role');
  ELSIF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
    RAISE EXCEPTION USING ERRCODE = '42704',
      MESSAGE = format('role "%s" does not exist', jobs.outbox_shown(role)),
      DETAIL = 'Give the name as in pg_roles, without quotes.',
      HINT = CASE lower(role)
        WHEN 'public' THEN 'PUBLIC cannot be given these rights. Name roles instead.'
        ELSE coalesce(jobs.outbox_did_you_mean(role, ARRAY(SELECT rolname::text FROM pg_roles ORDER BY 1)),
                      'Use CREATE ROLE to create it.') END;
  END IF;
  RETURN quote_ident(role);
END $$;

CREATE OR REPLACE FUNCTION jobs.grant_producer(role text)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  role := jobs.outbox_role(role);
  EXECUTE 'GRANT USAGE ON SCHEMA jobs TO ' || role;
  EXECUTE 'GRANT EXECUTE ON ROUTINE jobs.insert, jobs.insert_many, jobs.insert_batch TO ' || role;
END $$;
COMMENT ON FUNCTION jobs.grant_producer(text) IS
'Lets a role, named as in pg_roles, insert jobs: insert, insert_many, insert_batch. It cannot read the outbox.
Errors: 42501 (unless the caller owns the schema or is a superuser), 42704 (no such role), 22004.';

CREATE OR REPLACE FUNCTION jobs.grant_forwarder(role text)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  role := jobs.outbox_role(role);
  EXECUTE 'GRANT USAGE ON SCHEMA jobs TO ' || role;
  EXECUTE 'GRANT EXECUTE ON ROUTINE jobs.outbox_take, jobs.outbox_aim, jobs.outbox_has_cells, jobs.outbox_done, jobs.outbox_refused TO ' || role;
  EXECUTE 'GRANT SELECT ON jobs.outbox, jobs.outbox_source, jobs.outbox_status TO ' || role;
END $$;
COMMENT ON FUNCTION jobs.grant_forwarder(text) IS
'Lets a role run pgjobs forward: outbox_take, outbox_aim, outbox_has_cells, outbox_done and outbox_refused, and reading the outbox. It cannot insert jobs.
Errors: as jobs.grant_producer.';

CREATE OR REPLACE FUNCTION jobs.revoke(role text)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  role := jobs.outbox_role(role);
  IF role = (SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace WHERE nspname = 'jobs') THEN
    RETURN; -- an owner's own rights stay
  END IF;
  EXECUTE 'REVOKE ALL ON SCHEMA jobs FROM ' || role || ' CASCADE';
  EXECUTE 'REVOKE ALL ON ALL TABLES IN SCHEMA jobs FROM ' || role || ' CASCADE';
  EXECUTE 'REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobs FROM ' || role || ' CASCADE';
  EXECUTE 'REVOKE ALL ON ALL ROUTINES IN SCHEMA jobs FROM ' || role || ' CASCADE';
END $$;
COMMENT ON FUNCTION jobs.revoke(text) IS
'Revokes all that a role was granted in the schema jobs, by these functions or by hand.
Errors: as jobs.grant_producer.';

REVOKE ALL ON ALL ROUTINES IN SCHEMA jobs FROM PUBLIC;
IF is_new THEN
  -- What ALTER DEFAULT PRIVILEGES has granted.
  REVOKE ALL ON ALL TABLES IN SCHEMA jobs FROM PUBLIC;
  REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobs FROM PUBLIC;
  PERFORM jobs.revoke(rolname)
     FROM pg_roles
    WHERE rolname <> current_user
      AND oid IN (
        SELECT (aclexplode(relacl)).grantee FROM pg_class WHERE relnamespace = to_regnamespace('jobs')
        UNION ALL
        SELECT (aclexplode(proacl)).grantee FROM pg_proc WHERE pronamespace = to_regnamespace('jobs'));
END IF;
PERFORM set_config('search_path', path, true);
END $outbox$;
