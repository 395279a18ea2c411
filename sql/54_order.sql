-- Order of queues by key. Rust: src/api/order.rs

CREATE FUNCTION jobs.order_queue(
  queue text, by jsonb, strict boolean DEFAULT false, on_discard text DEFAULT 'continue', fair boolean DEFAULT false,
  weights jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'order_queue_wrapper';
COMMENT ON FUNCTION jobs.order_queue(text, jsonb, boolean, text, boolean, jsonb, text) IS
$$Sets the order of a queue by key: strict, fair, or both. Replaces an earlier order and takes effect at commit. Waits for open transactions that have started or ended jobs; such calls wait for this one.
- by: what makes a job's key, as in jobs.define_limit; null removes the order
- strict: jobs of a key start in the order in which they became available (ties by id), regardless of priority, each after the previous one is final, its retries included
- on_discard: what follows when a job that has started is discarded. continue: the next job starts; block: no job of the key starts until jobs.unblock, or until the discarded job is retried or deleted
- fair: keys that have jobs ready to start at the most urgent priority share the starts by weight
- weights: such as {"acme": 3}; between 0.001 and 1000, default 1. Name a key by its value if by is one path, otherwise by its JSON
Errors:
- 22023: neither strict nor fair; block without strict; an unknown on_discard; weights without fair, out of range, or for a key that does not fit by; a null by with other settings; an unknown field of by; a spread queue whose path is not in by
- 40P01, JB001 (the queue lives in another cell)$$;

CREATE FUNCTION jobs.unblock(
  queue text, key jsonb, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unblock_wrapper';
COMMENT ON FUNCTION jobs.unblock(text, jsonb, text) IS
$$Returns the id of the discarded job that blocked the key (jobs.order_queue with on_discard => 'block'), or null if the key was not blocked. Unblocks the key, so that its next job can start. The discarded job does not change.
- key: as in jobs.override_limit
Errors:
- 22023: the key does not fit the order
- JB001 (the queue lives in another cell)$$;

CREATE FUNCTION jobs.order_key(by jsonb, queue text, kind text, args jsonb, meta jsonb)
RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'order_key_wrapper';
COMMENT ON FUNCTION jobs.order_key(jsonb, text, text, jsonb, jsonb) IS
  'Returns the canonical text of a job''s key for a by of jobs.order_queue, or null if the job has no key. Used by jobs.order_keys.';

CREATE FUNCTION jobs.order_weight(by jsonb, weights jsonb, key jsonb)
RETURNS double precision
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'order_weight_wrapper';
COMMENT ON FUNCTION jobs.order_weight(jsonb, jsonb, jsonb) IS
  'Returns the weight of a key for a by and weights of jobs.order_queue. Used by jobs.order_keys.';

-- Keys are counted by gate, along scheduled_held, and only the first held job of each is looked at.
CREATE VIEW jobs.orders AS
SELECT r.queues[1] AS queue, r.by, r.is_strict AS strict, r.on_discard, r.is_fair AS fair, CASE WHEN v.sees_payload THEN r.weights END AS weights,
       COALESCE(w.keys, 0) AS waiting_keys, COALESCE(b.keys, 0) AS blocked_keys
  FROM jobs.limit_rule r
  LEFT JOIN (SELECT k.queue, count(*) AS keys
               FROM (SELECT a.queue, a.gate FROM jobs.ready a WHERE a.gate IS NOT NULL
                     UNION
                     SELECT h.queue, h.gate
                       FROM (SELECT s.queue, s.gate FROM jobs.scheduled s WHERE s.gate IS NOT NULL GROUP BY s.queue, s.gate) h
                      WHERE (SELECT s.limit_name FROM jobs.scheduled s WHERE s.gate = h.gate LIMIT 1) = 'order/' || h.queue) k
              GROUP BY k.queue) w ON w.queue = r.queues[1]
  LEFT JOIN (SELECT t.queue, count(DISTINCT t.gate) AS keys FROM jobs.turn t WHERE t.is_blocked GROUP BY t.queue) b ON b.queue = r.queues[1],
       (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload)
 WHERE r.is_strict IS NOT NULL;
COMMENT ON VIEW jobs.orders IS 'Orders of queues, as jobs.order_queue set them.';
COMMENT ON COLUMN jobs.orders.queue IS 'Queue with an order.';
COMMENT ON COLUMN jobs.orders.by IS 'What makes the key of a job.';
COMMENT ON COLUMN jobs.orders.strict IS 'Whether jobs of a key start one after the other.';
COMMENT ON COLUMN jobs.orders.on_discard IS 'What a discarded job of a strict order does to its key: continue or block.';
COMMENT ON COLUMN jobs.orders.fair IS 'Whether keys share the starts by weight.';
COMMENT ON COLUMN jobs.orders.weights IS 'Weights of keys, as given; null: every key has weight 1. Also null without SELECT on jobs.job.';
COMMENT ON COLUMN jobs.orders.waiting_keys IS 'Number of keys with available jobs, not counting jobs that a limit holds.';
COMMENT ON COLUMN jobs.orders.blocked_keys IS 'Number of keys that a discarded job blocks (jobs.unblock), with or without waiting jobs.';

-- Waiting jobs are counted by gate, and the key is read from one job of each gate.
CREATE VIEW jobs.order_keys AS
SELECT o.queue, CASE WHEN v.sees_payload THEN o.key END AS key, o.waiting, o.running, o.weight, o.blocked_by
  FROM (
    SELECT k.queue, k.key, sum(k.waiting)::bigint AS waiting, sum(k.running)::bigint AS running,
           CASE WHEN r.is_fair THEN jobs.order_weight(r.by, r.weights, k.key) END AS weight, min(k.blocked_by) AS blocked_by
      FROM jobs.limit_rule r,
           LATERAL (
             SELECT j.queue, jobs.order_key(r.by, j.queue, j.kind, j.args, j.meta)::jsonb AS key, g.waiting, 0 AS running, NULL::bigint AS blocked_by
               FROM (SELECT a.gate, count(*) AS waiting, min(a.job_id) AS job_id FROM jobs.ready a WHERE a.queue = r.queues[1] AND a.gate IS NOT NULL GROUP BY a.gate
                     UNION ALL
                     SELECT s.gate, count(*), min(s.job_id) FROM jobs.scheduled s
                      WHERE s.queue = r.queues[1] AND s.gate IS NOT NULL AND s.limit_name = r.name GROUP BY s.gate
                     UNION ALL
                     SELECT NULL, 1, s.job_id FROM jobs.scheduled s
                      WHERE s.queue = r.queues[1] AND s.gate IS NOT NULL AND s.limit_name <> r.name) g
               JOIN jobs.job j ON j.id = g.job_id
             UNION ALL
             SELECT r.queues[1], jobs.order_key(r.by, r.queues[1], j.kind, j.args, j.meta)::jsonb, 0, 1, NULL
               FROM jobs.running w JOIN jobs.job j ON j.id = w.job_id WHERE COALESCE(w.queue, j.queue) = r.queues[1]
             UNION ALL
             SELECT t.queue, t.key::jsonb, 0, 0, t.job_id FROM jobs.turn t WHERE t.queue = r.queues[1] AND t.is_blocked) k
     WHERE r.is_strict IS NOT NULL
     GROUP BY k.queue, k.key, r.by, r.is_fair, r.weights
  ) o, (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.order_keys IS
  'Keys of queues with an order (jobs.order_queue) that have waiting or running jobs or are blocked. key is null without SELECT on jobs.job.';
COMMENT ON COLUMN jobs.order_keys.queue IS 'Queue with an order.';
COMMENT ON COLUMN jobs.order_keys.key IS 'The key: an object of args, meta, queue and type, as by names them.';
COMMENT ON COLUMN jobs.order_keys.waiting IS 'Number of available jobs of the key, including held jobs.';
COMMENT ON COLUMN jobs.order_keys.running IS 'Number of running jobs of the key.';
COMMENT ON COLUMN jobs.order_keys.weight IS 'Weight of the key; null: the order is not fair.';
COMMENT ON COLUMN jobs.order_keys.blocked_by IS 'Id of the discarded job that blocks the key (see jobs.unblock); null: the key is not blocked.';
