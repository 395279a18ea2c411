-- Cells: several databases that share the work. Rust: src/api/cells.rs

CREATE FUNCTION jobs.set_cell(
  cell integer, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'set_cell_wrapper';
COMMENT ON FUNCTION jobs.set_cell(integer, text) IS
$$Makes this database a cell with a number from 0 to 1023. From the commit on, it takes jobs of queues that are placed or spread here, and refuses all others with JB001. New ids are cell * 2^43 + n. A database with jobs can become cell 0: place its queues in the same transaction, such as by jobs.place_queue('*', 0).
Waits for transactions that insert jobs; inserts wait for the commit.
Errors:
- 55000: a job has an id of another cell, or this cell has given out ids
- 40P01$$;

CREATE FUNCTION jobs.place_queue(
  queue text, cell integer, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'place_queue_wrapper';
COMMENT ON FUNCTION jobs.place_queue(text, integer, text) IS
$$Places a queue in one cell, which alone takes its jobs. '*' stands for every queue that is named nowhere. Replaces an earlier placement. Call it in every cell. The cell that a queue leaves removes its settings, pause and order.
Waits for transactions that insert jobs; inserts wait for the commit, or fail with 40001.
Errors:
- 55000: this database has no cell number
- 55006: jobs of the queue, final ones included, are in this cell, and it would no longer be their own; DETAIL says how many
- 40P01, JB001 (the cell is retired)$$;

CREATE FUNCTION jobs.spread_queue(
  queue text, by jsonb, cells integer[], reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'spread_queue_wrapper';
COMMENT ON FUNCTION jobs.spread_queue(text, jsonb, integer[], text) IS
$$Spreads a queue over cells by one path of args or meta: {"by_args": ["tenant"]} or {"by_meta": ["tenant"]}. A job lives in cells[1 + hash % n], where hash is the first 8 bytes of the SHA-256 of the canonical JSON of the value, as an unsigned big-endian number. Replaces an earlier placement. Call it in every cell, with the same list.
Inserts must have the path (null is a value), and unique policies must contain it.
Errors:
- 22023: by is not one path; cells is empty or lists a cell twice
- 55000: this database has no cell number, the queue has a concurrency or rate, or its order, a limit that covers it (jobs.define_limit), a kind or a periodic job lacks the path
- as jobs.place_queue$$;

CREATE FUNCTION jobs.unplace_queue(
  queue text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unplace_queue_wrapper';
COMMENT ON FUNCTION jobs.unplace_queue(text, text) IS
$$Removes the placement of a queue, which then lives where '*' is placed, or nowhere. Returns true if it had one.
Errors: as jobs.place_queue.$$;

CREATE FUNCTION jobs.set_cell_address(
  cell integer, address text, identity uuid DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'set_cell_address_wrapper';
COMMENT ON FUNCTION jobs.set_cell_address(integer, text, uuid, text) IS
$$Sets the address of a cell, which is the HINT of refusals, and its identity (null: unchanged), which programs read in jobs.cells.
Errors:
- 55000: this database has no cell number, or is this cell and has another identity$$;

CREATE FUNCTION jobs.retire_cell(
  moved_to text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'retire_cell_wrapper';
COMMENT ON FUNCTION jobs.retire_cell(text, text) IS
$$Retires this cell: from the commit on, every call that writes fails with JB001, DETAIL {"cell": .., "retired": true}, HINT moved_to, also those that finish running jobs. Maintenance stops. Reading is unaffected. On a retired cell it sets moved_to.
Waits for transactions that have called a function that writes; such calls wait for the commit.
Errors: 55000 (this database has no cell number), 40P01.$$;

CREATE FUNCTION jobs.reinstate_cell(
  reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'reinstate_cell_wrapper';
COMMENT ON FUNCTION jobs.reinstate_cell(text) IS
$$Makes a retired cell take writes again. Make sure first that no other copy of the cell does. A copy, restored from a dump into another database or server or upgraded by pg_upgrade, gets a new identity. Has no effect if the cell is not retired.
Errors: 55000 (this database has no cell number).$$;

CREATE FUNCTION jobs.cell_for(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL)
RETURNS integer
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'cell_for_wrapper';
COMMENT ON FUNCTION jobs.cell_for(text, jsonb, jsonb, text, jsonb) IS
$$Returns the number of the cell that takes the job that jobs.insert would insert with the same arguments; null if its queue lives nowhere; 0 in a database without a cell number.
Writes nothing. Works on a standby. Errors: as jobs.insert.$$;

CREATE FUNCTION jobs.is_copy_of_cell() RETURNS boolean
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'is_copy_of_cell_wrapper';
COMMENT ON FUNCTION jobs.is_copy_of_cell() IS
  'Returns true if this database is a copy of the one that became the cell: it was restored into another database or server, or upgraded by pg_upgrade. It takes no writes until jobs.reinstate_cell().';

CREATE FUNCTION jobs.takes_queue(
  queue text)
RETURNS boolean
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'takes_queue_wrapper';
COMMENT ON FUNCTION jobs.takes_queue(text) IS
$$Returns true if jobs of the queue live in this database: all of them, or some if the queue is spread. A database without a cell number takes every queue.$$;

-- Intervals in binary form: as text they depend on the session's settings.
CREATE FUNCTION jobs.settings_digest() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
  SELECT encode(sha256(convert_to(jsonb_build_array(
    (SELECT jsonb_agg(jsonb_build_array(k.kind, k.queue, k.priority, k.max_attempts, encode(interval_send(k.timeout), 'hex'), k.retry, k.unique_opts)
                      ORDER BY k.kind)
       FROM jobs.kind k),
    (SELECT jsonb_agg(to_jsonb(p) ORDER BY p.queue) FROM jobs.placement p),
    (SELECT jsonb_agg(jsonb_build_array(r.name, r.by, r.queues, r.kinds, r.concurrency, r.rate, encode(interval_send(r.rate_period), 'hex'), r.per_cell)
                      ORDER BY r.name)
       FROM jobs.limit_rule r WHERE r.is_strict IS NULL),
    (SELECT jsonb_agg(jsonb_build_array(r.name, r.by, r.is_strict, r.is_fair, r.on_discard, r.weights) ORDER BY r.name)
       FROM jobs.limit_rule r JOIN jobs.placement p ON p.queue = r.queues[1]
      WHERE r.is_strict IS NOT NULL AND p.by IS NOT NULL
        AND p.cells @> ARRAY(SELECT c.cell FROM jobs.cell c UNION SELECT unnest(o.cells) FROM jobs.placement o)),
    (SELECT jsonb_agg(jsonb_build_array(k.gate, k.concurrency, k.rate, encode(interval_send(k.rate_period), 'hex')) ORDER BY k.gate)
       FROM jobs.limit_key_rule k WHERE k.is_override))::text, 'UTF8')), 'hex');
END;
COMMENT ON FUNCTION jobs.settings_digest() IS
  'Returns a hash of what all cells have in common: kinds, placements, limits, and orders of queues that are spread over all cells. Other orders, settings of queues and periodic jobs are those of the cells that take the queue.';

CREATE VIEW jobs.cells AS
SELECT c.cell, c.identity, c.address, c.is_self,
       CASE WHEN c.is_self AND jobs.is_copy_of_cell() THEN COALESCE(c.retired_at, pg_catalog.pg_postmaster_start_time()) ELSE c.retired_at END AS retired_at,
       c.moved_to, CASE WHEN c.is_self THEN jobs.settings_digest() END AS settings_digest
  FROM jobs.cell c
 ORDER BY c.cell;
COMMENT ON VIEW jobs.cells IS
  'Cells that this database knows: itself, if it has a number, and those whose address was set.';
COMMENT ON COLUMN jobs.cells.cell IS 'Number of the cell.';
COMMENT ON COLUMN jobs.cells.identity IS 'Identity of its database, which a copy that is reinstated does not keep; null: not known.';
COMMENT ON COLUMN jobs.cells.address IS 'Where it is found, as jobs.set_cell_address says.';
COMMENT ON COLUMN jobs.cells.is_self IS 'Whether it is this database.';
COMMENT ON COLUMN jobs.cells.retired_at IS 'When this database stopped taking writes (of a copy: when the server started); null: it takes them, or it is another cell.';
COMMENT ON COLUMN jobs.cells.moved_to IS 'Where its writes go, as jobs.retire_cell says.';
COMMENT ON COLUMN jobs.cells.settings_digest IS 'Hash of what all cells have in common: kinds, placements, limits, and orders of queues that are spread over all cells; null: another cell.';

CREATE VIEW jobs.placements AS
SELECT p.queue, p.by, p.cells FROM jobs.placement p ORDER BY p.queue;
COMMENT ON VIEW jobs.placements IS 'Where queues live (jobs.place_queue, jobs.spread_queue).';
COMMENT ON COLUMN jobs.placements.queue IS 'Name of the queue; *: every queue that has no row.';
COMMENT ON COLUMN jobs.placements.by IS 'Path of args or meta that decides among the cells; null: the queue is in one cell.';
COMMENT ON COLUMN jobs.placements.cells IS 'Cells that take its jobs.';
