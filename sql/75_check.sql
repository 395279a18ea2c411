-- Invariants and their violations, in one statement and so one snapshot, whatever work goes on. A
-- new invariant is a branch of broken and a row of rule.

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
     WHERE s.state NOT IN ('scheduled', 'retryable', 'pending', 'available')
        OR (s.state IN ('pending', 'available')) <> (s.due_at = 'infinity') OR (s.state = 'available') <> (s.gate IS NOT NULL)
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
    SELECT 'permit', p.job_id FROM jobs.permit p
     WHERE NOT EXISTS (SELECT FROM jobs.running r WHERE r.job_id = p.job_id AND r.permit = p.n AND p.gate = ANY (r.gates))
    UNION ALL
    SELECT 'permit', r.job_id FROM jobs.running r, unnest(r.gates) g(gate)
     WHERE NOT EXISTS (SELECT FROM jobs.permit p WHERE p.gate = g.gate AND p.n = r.permit)
    UNION ALL
    SELECT 'turn', t.job_id FROM jobs.turn t
     WHERE t.is_blocked <> EXISTS (SELECT FROM jobs.finished f WHERE f.job_id = t.job_id) AND EXISTS (SELECT FROM jobs.job j WHERE j.id = t.job_id)
        OR NOT t.is_blocked AND NOT EXISTS (SELECT FROM jobs.job j WHERE j.id = t.job_id)
    UNION ALL
    SELECT 'held', h.job_id
      FROM (SELECT s.gate, s.limit_name, min(s.job_id) AS job_id FROM jobs.scheduled s WHERE s.gate IS NOT NULL GROUP BY s.gate, s.limit_name) h
      LEFT JOIN jobs.limit_rule l ON l.name = h.limit_name
      LEFT JOIN jobs.limit_key_rule k ON k.gate = h.gate
      CROSS JOIN LATERAL (
        SELECT CASE WHEN k.is_override THEN k.concurrency ELSE l.concurrency END AS concurrency,
               CASE WHEN k.is_override THEN k.rate ELSE l.rate END AS rate,
               CASE WHEN k.is_override THEN k.rate_period ELSE l.rate_period END AS rate_period,
               (SELECT count(*) FROM jobs.ready r WHERE r.gate = h.gate) AS in_lane) o
     WHERE l.paused_at IS NULL AND k.paused_at IS NULL
       AND CASE WHEN l.is_strict IS NOT NULL THEN o.in_lane = 0 AND NOT EXISTS (SELECT FROM jobs.turn t WHERE t.gate = h.gate)
                ELSE COALESCE((SELECT count(*) FROM jobs.permit p WHERE p.gate = h.gate) + o.in_lane < o.concurrency, true)
                 AND COALESCE((SELECT count(*) FROM jobs.limit_start s WHERE s.gate = h.gate AND s.at > statement_timestamp() - o.rate_period - interval '2 s') + o.in_lane < o.rate, true) END
    UNION ALL
    SELECT 'sequence', j.id FROM jobs.job j, jobs.job_seq s WHERE j.id > s.last_value
    UNION ALL
    SELECT 'sequence', r.job_id FROM jobs.ready r, jobs.job_seq s WHERE r.seq > s.last_value
    UNION ALL
    SELECT 'cell', j.id FROM jobs.job j, jobs.cell c WHERE c.is_self AND j.id >> 43 <> c.cell
    UNION ALL
    SELECT 'cell', j.id FROM jobs.job j
     WHERE EXISTS (SELECT FROM jobs.cell c WHERE c.is_self)
       AND j.queue IN (SELECT q.queue FROM (SELECT DISTINCT n.queue FROM jobs.job n) q WHERE NOT jobs.takes_queue(q.queue))
  ), rule(n, invariant, rule) AS (VALUES
    (1, 'one_place', 'Every job has one row, in ready, scheduled, running or finished, and these tables have no other rows.'),
    (2, 'same_queue', 'A row of ready or scheduled has the queue, priority and expiry of its job.'),
    (3, 'attempts', 'Attempts are not negative, and at least 1 for running and completed jobs.'),
    (4, 'state', 'Every state belongs to its table, and only pending and held jobs are never due.'),
    (5, 'lease', 'A lease ends at the deadline of its attempt or before, and its token is below 2^53.'),
    (6, 'error', 'Every error belongs to a job that exists.'),
    (7, 'claim', 'A unique job is listed under its key, and a key lists only its own jobs.'),
    (8, 'slot', 'A taken slot of a queue with a limit belongs to a job that runs in the queue.'),
    (9, 'permit', 'A permit belongs to a job that runs under its limit, and a running job has those of its limits.'),
    (10, 'turn', 'In a strict order a job that is final has no turn, unless it blocks its key.'),
    (11, 'held', 'A job is held only while its limit or order has no room for it.'),
    (12, 'sequence', 'The ids of jobs and of their places are no higher than their sequences, so that none repeats.'),
    (13, 'cell', 'In a database with a cell number, the ids of jobs are those of the cell, and their queues are placed in it.'))
  SELECT r.invariant, count(*), ARRAY(SELECT DISTINCT x.job_id FROM broken x WHERE x.invariant = r.invariant AND x.job_id IS NOT NULL ORDER BY x.job_id LIMIT 10), r.rule
    FROM rule r JOIN broken b ON b.invariant = r.invariant
   GROUP BY r.n, r.invariant, r.rule ORDER BY r.n;
END;
COMMENT ON FUNCTION jobs.check() IS
$$Returns the invariants that are violated: how often, up to ten of the jobs, and the rule. No row means that all invariants hold. A row means a defect of the extension or of the storage, or that someone wrote to the tables directly, except while a dump is being restored, or a subscriber copies the tables. A row of held means a defect only if it persists for a second: maintenance may be about to return the job to its queue.
Reads all jobs in one snapshot, which takes seconds to minutes for millions of jobs. Do not call it in a SERIALIZABLE transaction, which would obstruct all others. Works on a standby.$$;
