-- Limits by key. Rust: src/api/limits.rs

CREATE FUNCTION jobs.define_limit(
  name text, by jsonb DEFAULT NULL, queues text[] DEFAULT NULL, kinds text[] DEFAULT NULL,
  concurrency integer DEFAULT NULL, rate integer DEFAULT NULL, rate_period interval DEFAULT NULL,
  per_cell boolean DEFAULT false, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'define_limit_wrapper';
COMMENT ON FUNCTION jobs.define_limit(text, jsonb, text[], text[], integer, integer, interval, boolean, text) IS
$$Limits how many jobs run at a time, or start within a period. A job is under every limit that covers its queue and kind, and starts when all of them have room. Counts from the commit: jobs that run count, and none is stopped.
- name: without a slash. Replaces a limit of that name, whose overrides and paused keys stay if by is the same
- by: what makes a job's key, such as {"by_args": ["tenant"]}; each key has the whole limit for itself. by_args: paths, or true for all args; by_meta: paths; by_kind, by_queue: true. Jobs that lack a path share a key. Null: one limit for all jobs
- queues, kinds: what it covers; null means all
- concurrency: how many jobs can run at a time, across all workers (1 to 10000)
- rate, rate_period: how many jobs can start within any period of this length (1 to 100000); both or neither
- per_cell: the limit counts in each cell alone; needed for a spread queue unless by contains the path
Errors:
- 22023: neither concurrency nor rate, an empty list, a field of by that is not known, a spread queue
- 40P01, JB001 (the cell is retired)$$;

CREATE FUNCTION jobs.override_limit(
  name text, key jsonb, concurrency integer DEFAULT NULL, rate integer DEFAULT NULL, rate_period interval DEFAULT NULL,
  reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'override_limit_wrapper';
COMMENT ON FUNCTION jobs.override_limit(text, jsonb, integer, integer, interval, text) IS
$$Sets the whole limit of one key: a null concurrency or rate is no limit. All null: removes the override.
key is as in jobs.limit_keys, such as {"args": {"tenant": "acme"}}, or, if by is one path, its value ('"acme"'), unless that is an object. The key need not have jobs yet.
Errors:
- P0002: no such limit
- 22023: the limit has no keys (by), or the key does not fit it; as jobs.define_limit
- 40P01$$;

CREATE FUNCTION jobs.pause_limit(
  name text, key jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_limit_wrapper';
COMMENT ON FUNCTION jobs.pause_limit(text, jsonb, text) IS
$$Pauses a limit, or one key of it (as in jobs.override_limit): no job under it starts until jobs.resume_limit. Running jobs and inserts are unaffected. Has no effect if it is already paused.
Errors: as jobs.override_limit.$$;

CREATE FUNCTION jobs.resume_limit(
  name text, key jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_limit_wrapper';
COMMENT ON FUNCTION jobs.resume_limit(text, jsonb, text) IS
$$Resumes a paused limit, or one key of it. Without a key it resumes the limit itself, and its paused keys stay paused. Has no effect if it is not paused.
Errors: as jobs.override_limit.$$;

CREATE FUNCTION jobs.drop_limit(
  name text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'drop_limit_wrapper';
COMMENT ON FUNCTION jobs.drop_limit(text, text) IS
$$Removes a limit, with its overrides and pauses. Returns true if it existed.
Errors: 40P01.$$;

-- Held jobs are counted along scheduled_held; only the first of each lane is looked at, so that a
-- million of one key cost little.
CREATE VIEW jobs.limit_keys AS
SELECT k.name, CASE WHEN v.sees_payload THEN k.key END AS key, k.concurrency, k.rate, k.running, k.held, k.oldest_held_at, k.next_start_at, k.paused_at, k.rate_period,
       k.overridden
  FROM (
    SELECT r.name, g.key, s.concurrency, s.rate, g.running, g.held, g.oldest_held_at,
           CASE WHEN s.rate IS NOT NULL THEN (
             SELECT n.at FROM (SELECT t.at + s.rate_period AS at FROM jobs.limit_start t WHERE t.gate = g.gate ORDER BY t.at DESC OFFSET s.rate - 1 LIMIT 1) n
              WHERE n.at > clock_timestamp()) END AS next_start_at,
           CASE WHEN r.by IS NULL THEN r.paused_at ELSE o.paused_at END AS paused_at, s.rate_period, COALESCE(o.is_override, false) AS overridden
      FROM (SELECT u.gate, u.name, u.key, sum(u.running)::bigint AS running, sum(u.held)::bigint AS held, min(u.since) AS oldest_held_at
              FROM (SELECT p.gate, p.name, p.key::jsonb, count(*) AS running, 0 AS held, NULL::timestamptz AS since FROM jobs.permit p GROUP BY p.gate, p.name, p.key
                    UNION ALL
                    SELECT l.gate, f.limit_name, f.limit_key, 0, l.held, f.since
                      FROM (SELECT s.gate, s.queue, s.kind, s.priority, count(*) AS held, min(s.seq) AS first
                              FROM jobs.scheduled s WHERE s.gate IS NOT NULL GROUP BY s.gate, s.queue, s.kind, s.priority) l,
                           LATERAL (SELECT s.limit_name, s.limit_key,
                                           GREATEST(COALESCE(s.scheduled_at, j.scheduled_at), j.created_at, s.available_at,
                                                    (SELECT q.resumed_at FROM jobs.queue q WHERE q.queue = j.queue)) AS since
                                      FROM jobs.scheduled s JOIN jobs.job j ON j.id = s.job_id
                                     WHERE s.gate = l.gate AND s.queue = l.queue AND s.kind = l.kind AND s.priority = l.priority AND s.seq = l.first LIMIT 1) f
                    UNION ALL
                    SELECT o.gate, o.name, o.key, 0, 0, NULL FROM jobs.limit_key_rule o
                    UNION ALL
                    SELECT ('x' || left(encode(sha256(convert_to(r.name, 'UTF8') || '\x00'), 'hex'), 16))::bit(64)::bigint, r.name, NULL, 0, 0, NULL
                      FROM jobs.limit_rule r WHERE r.by IS NULL) u
             GROUP BY u.gate, u.name, u.key) g
      JOIN jobs.limit_rule r ON r.name = g.name AND r.is_strict IS NULL
      LEFT JOIN jobs.limit_key_rule o ON o.gate = g.gate,
      LATERAL (SELECT CASE WHEN o.is_override THEN o.concurrency ELSE r.concurrency END AS concurrency,
                      CASE WHEN o.is_override THEN o.rate ELSE r.rate END AS rate,
                      CASE WHEN o.is_override THEN o.rate_period ELSE r.rate_period END AS rate_period) s
    UNION ALL
    SELECT 'queue/' || q.queue, NULL, q.concurrency, q.rate,
           CASE WHEN q.concurrency IS NOT NULL THEN (SELECT count(*) FROM jobs.queue_slot s WHERE s.queue = q.queue AND s.job_id IS NOT NULL) END,
           0, NULL,
           (SELECT n.at FROM (SELECT min(s.free_at) AS at FROM jobs.queue_start s WHERE s.queue = q.queue) n WHERE n.at > clock_timestamp()),
           NULL, q.rate_period, false
      FROM jobs.queue q WHERE COALESCE(q.concurrency, q.rate) IS NOT NULL
  ) k, (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.limit_keys IS
  'Keys of limits that have running or held jobs, an override or a pause; and a row for each limit without keys, queue/NAME for a queue''s own. key is also null without SELECT on jobs.job, as for a viewer.';
COMMENT ON COLUMN jobs.limit_keys.name IS 'Name of the limit.';
COMMENT ON COLUMN jobs.limit_keys.key IS 'The key: an object of args, meta, queue and type, as far as by asks for them; null: the limit has no keys.';
COMMENT ON COLUMN jobs.limit_keys.concurrency IS 'Maximum number of its running jobs; null: no limit.';
COMMENT ON COLUMN jobs.limit_keys.rate IS 'Maximum number of its jobs that start within the period; null: no limit.';
COMMENT ON COLUMN jobs.limit_keys.running IS 'Number of its running jobs; null: a queue with a rate alone.';
COMMENT ON COLUMN jobs.limit_keys.held IS 'Number of its available jobs that the limit holds; a job that several limits hold counts for one. 0 for a queue''s own limit.';
COMMENT ON COLUMN jobs.limit_keys.oldest_held_at IS 'Since when the oldest of these is available; null: none is held.';
COMMENT ON COLUMN jobs.limit_keys.next_start_at IS 'When the rate allows the next start; null: now.';
COMMENT ON COLUMN jobs.limit_keys.paused_at IS 'When the key, or the limit without keys, was paused; null: it is not, but the limit of a key may be (jobs.limits).';
COMMENT ON COLUMN jobs.limit_keys.rate_period IS 'Period of rate.';
COMMENT ON COLUMN jobs.limit_keys.overridden IS 'Whether concurrency and rate are the key''s own (jobs.override_limit).';

CREATE VIEW jobs.limits AS
SELECT r.name, r.by, r.queues, r.kinds, r.concurrency, r.rate, r.rate_period,
       CASE WHEN r.by IS NOT NULL THEN COALESCE(k.keys, 0) END AS keys,
       CASE WHEN r.by IS NOT NULL THEN COALESCE(k.running, 0) ELSE k.running END AS running, COALESCE(k.held, 0) AS held,
       r.paused_at, r.paused_by, r.pause_reason, r.per_cell
  FROM (SELECT l.name, l.by, l.queues, l.kinds, l.concurrency, l.rate, l.rate_period, l.paused_at, l.paused_by, l.pause_reason, l.per_cell FROM jobs.limit_rule l WHERE l.is_strict IS NULL
        UNION ALL
        SELECT 'queue/' || q.queue, NULL, ARRAY[q.queue], NULL, q.concurrency, q.rate, q.rate_period, NULL, NULL, NULL, false
          FROM jobs.queue q WHERE COALESCE(q.concurrency, q.rate) IS NOT NULL) r
  LEFT JOIN (SELECT n.name, count(*) AS keys, sum(n.running)::bigint AS running, sum(n.held)::bigint AS held FROM jobs.limit_keys n GROUP BY n.name) k
         ON k.name = r.name;
COMMENT ON VIEW jobs.limits IS
  'Limits, as jobs.define_limit set them, and the own limits of queues (jobs.configure_queue) as queue/NAME.';
COMMENT ON COLUMN jobs.limits.name IS 'Name of the limit.';
COMMENT ON COLUMN jobs.limits.by IS 'What makes the key of a job; null: one limit for all jobs together.';
COMMENT ON COLUMN jobs.limits.queues IS 'Queues that it covers; null: all.';
COMMENT ON COLUMN jobs.limits.kinds IS 'Kinds that it covers; null: all.';
COMMENT ON COLUMN jobs.limits.concurrency IS 'Maximum number of running jobs, for each key; null: no limit.';
COMMENT ON COLUMN jobs.limits.rate IS 'Maximum number of jobs that start within rate_period, for each key; null: no limit.';
COMMENT ON COLUMN jobs.limits.rate_period IS 'Period of rate.';
COMMENT ON COLUMN jobs.limits.keys IS 'Number of keys that jobs.limit_keys shows; null: the limit has no keys.';
COMMENT ON COLUMN jobs.limits.running IS 'Number of running jobs under the limit; null: a queue with a rate alone.';
COMMENT ON COLUMN jobs.limits.held IS 'Number of available jobs that the limit holds; a job that several limits hold counts for one.';
COMMENT ON COLUMN jobs.limits.paused_at IS 'When the whole limit was paused (jobs.pause_limit); null: it is not. A queue''s pause is in jobs.queues.';
COMMENT ON COLUMN jobs.limits.paused_by IS 'Role that paused it.';
COMMENT ON COLUMN jobs.limits.pause_reason IS 'Reason given to jobs.pause_limit.';
COMMENT ON COLUMN jobs.limits.per_cell IS 'Whether it counts in each cell alone.';
