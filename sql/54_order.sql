-- Order of queues by key. Rust: src/api/order.rs

CREATE FUNCTION jobs.order_queue(
  queue text, by jsonb, strict boolean DEFAULT false, on_discard text DEFAULT 'continue', fair boolean DEFAULT false,
  weights jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'order_queue_wrapper';
COMMENT ON FUNCTION jobs.order_queue(text, jsonb, boolean, text, boolean, jsonb, text) IS
$$Sets the whole order of a queue by key: strict, fair, or both. Counts from the commit. Waits for transactions that have started or ended jobs, and they wait for this one.
- by: what makes a job's key, as in jobs.define_limit; null: jobs start in the order of their lanes again
- strict: jobs of a key start in the order in which they became available, whatever their priority, each after the one before it is final. A job that waits for its retry, was snoozed or released keeps its turn; a scheduled job has none until it is due; a final job that is retried goes to the end
- on_discard: what a discarded job that had started does to its key in a strict order. continue: the next job starts; block: none does until jobs.unblock, or until the job is retried or deleted
- fair: keys with waiting jobs of the best priority share the starts
- weights: shares of keys that are not 1, such as {"acme": 3} (0.001 to 1000). A member is the key's value where by is one path, otherwise the JSON of the key
Errors:
- 22023: neither strict nor fair, block without strict, weights without fair, a field of by that is not known, a spread queue whose path by does not contain
- 22004, 25006, 40001, 40P01, JB001 (the queue lives in another cell)$$;

CREATE FUNCTION jobs.unblock(
  queue text, key jsonb, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unblock_wrapper';
COMMENT ON FUNCTION jobs.unblock(text, jsonb, text) IS
$$Returns the id of the discarded job that no longer blocks the key (jobs.order_queue with on_discard => 'block'), null if nothing blocks it. The next job of the key can start; the discarded job stays as it is.
key is as in jobs.order_keys; if by is one path, its value will do ('"acme"'), unless that is an object.
Errors:
- 22023: the key does not fit the order
- 22004, 25006, 40001, JB001 (the queue lives in another cell)$$;

CREATE FUNCTION jobs.order_key(by jsonb, queue text, kind text, args jsonb, meta jsonb)
RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'order_key_wrapper';
COMMENT ON FUNCTION jobs.order_key(jsonb, text, text, jsonb, jsonb) IS
  'Returns the canonical text of a job''s key by jobs.order_queue''s by; null if it has none. For jobs.order_keys.';

CREATE FUNCTION jobs.order_weight(by jsonb, weights jsonb, key jsonb)
RETURNS double precision
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'order_weight_wrapper';
COMMENT ON FUNCTION jobs.order_weight(jsonb, jsonb, jsonb) IS
  'Returns the weight of a key by jobs.order_queue''s by and weights. For jobs.order_keys.';

-- Jobs in lanes and held jobs are counted by gate, and the key is that of one of them.
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
             SELECT t.queue, t.key, 0, 0, t.job_id FROM jobs.turn t WHERE t.queue = r.queues[1] AND t.is_blocked) k
     WHERE r.is_strict IS NOT NULL
     GROUP BY k.queue, k.key, r.by, r.is_fair, r.weights
  ) o, (SELECT pg_catalog.has_table_privilege('jobs.job'::regclass, 'SELECT') OFFSET 0) v(sees_payload);
COMMENT ON VIEW jobs.order_keys IS
  'Keys that have waiting or running jobs in queues with an order (jobs.order_queue), or are blocked. key is null without SELECT on jobs.job, as for a viewer.';
COMMENT ON COLUMN jobs.order_keys.queue IS 'Queue with an order.';
COMMENT ON COLUMN jobs.order_keys.key IS 'The key: an object of args, meta, queue and type, as far as by asks for them.';
COMMENT ON COLUMN jobs.order_keys.waiting IS 'Number of its available jobs, held ones included.';
COMMENT ON COLUMN jobs.order_keys.running IS 'Number of its running jobs.';
COMMENT ON COLUMN jobs.order_keys.weight IS 'Its share of the starts; null: the order is not fair.';
COMMENT ON COLUMN jobs.order_keys.blocked_by IS 'Discarded job that blocks the key until jobs.unblock, or until it is retried or deleted; null: none.';
