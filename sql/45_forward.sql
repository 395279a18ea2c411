-- Jobs of an outbox in another database, carried over by pgjobs forward. Rust: src/api/forward.rs

CREATE FUNCTION jobs.forward(
  source uuid, keys uuid[], jobs jsonb, deleted uuid[] DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'forward_wrapper';
COMMENT ON FUNCTION jobs.forward(uuid, uuid[], jsonb, uuid[]) IS
$$Inserts jobs of an outbox, each once however often it is called with their keys. Returns how many keys are new. For pgjobs forward.
- source: the outbox, as its jobs.outbox_source has it
- keys: a key for each element of jobs. Elements whose key was taken before are skipped; the others are inserted as by jobs.insert_many, in one atomic statement
- jobs: as for jobs.insert_many
- deleted: keys of rows that the outbox has deleted. They are remembered for jobs.retention_forwarded from then on, the others until then
A concurrent call with the same keys waits and then skips them.
Errors: as jobs.insert_many, and nothing is inserted; 22023 (keys and jobs differ in length)$$;

CREATE FUNCTION jobs.forwarded_open(source uuid)
RETURNS SETOF uuid
LANGUAGE c STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'forwarded_open_wrapper';
COMMENT ON FUNCTION jobs.forwarded_open(uuid) IS
$$Returns the keys that jobs.forward has taken from an outbox, of rows that the outbox may still have. For pgjobs forward, which asks the outbox about them.$$;

CREATE FUNCTION jobs.forward_report(
  source uuid, address text, waiting bigint, oldest_at timestamptz, refused bigint)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'forward_report_wrapper';
COMMENT ON FUNCTION jobs.forward_report(uuid, text, bigint, timestamptz, bigint) IS
$$Records the state of an outbox for jobs.health() and jobs.metrics(): where it is, how many rows wait, since when the oldest (null: none waits), and how many were refused. For pgjobs forward, which reports every 15 seconds. An outbox that is not reported for jobs.retention_forwarded is removed.
Errors: 22023 (negative number, invalid address).$$;
