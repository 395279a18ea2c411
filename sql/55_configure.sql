-- What is set of kinds and queues. Rust: src/api/configure.rs

CREATE FUNCTION jobs.define_kind(
  kind text, queue text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, unique_opts jsonb DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'define_kind_wrapper';
COMMENT ON FUNCTION jobs.define_kind(text, text, integer, integer, interval, jsonb, jsonb, text) IS
$$Sets what jobs of a kind are inserted with, by whatever client, where the insert says nothing; null: the system's default. Replaces what was defined before; jobs that are there stay as they are. unique_opts '{}' of an insert means not unique, whatever the kind says.
Errors: as jobs.insert; 25006 read only, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.undefine_kind(
  kind text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'undefine_kind_wrapper';
COMMENT ON FUNCTION jobs.undefine_kind(text, text) IS
$$Takes back what jobs.define_kind has set: jobs of the kind are inserted with the system's defaults again; those that are there stay as they are. Whether anything was defined. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.pause_queue(
  queue text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'pause_queue_wrapper';
COMMENT ON FUNCTION jobs.pause_queue(text, text) IS
$$Stops fetching from a queue, which need not have jobs yet, from the next fetch on. Jobs that run go on, inserts and maintenance too. jobs.queues shows since when, by whom and why; a queue that is paused already stays as it is. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.resume_queue(
  queue text, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'resume_queue_wrapper';
COMMENT ON FUNCTION jobs.resume_queue(text, text) IS
$$Lets a paused queue go on; one that is not paused stays as it is. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;

CREATE FUNCTION jobs.configure_queue(
  queue text, concurrency integer DEFAULT NULL, rate integer DEFAULT NULL, rate_period interval DEFAULT NULL,
  retention_completed interval DEFAULT NULL, retention_cancelled interval DEFAULT NULL, retention_discarded interval DEFAULT NULL,
  max_waiting integer DEFAULT NULL, reason text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'configure_queue_wrapper';
COMMENT ON FUNCTION jobs.configure_queue(text, integer, integer, interval, interval, interval, interval, integer, text) IS
$$Sets the limits of a queue, all of them: null means no limit, or the system's retention. concurrency: the most jobs of it that run at a time, anywhere (1 to 10000). rate: the most that start within any time of rate_period's length (1 to 100000); both or neither. retention_..: how long final jobs are kept; -1 second: for ever.
max_waiting: the bound of the queue: the most jobs of it that wait, which are the available, scheduled, retryable and pending ones. An insert that has no room is 54000, with DETAIL {"depth": how many wait, counted up to the bound, "bound": ..}, and writes nothing; a batch that has no room for all of its jobs is refused whole. Duplicates are answered as ever and count nothing. A periodic job whose queue is full is tried again every second. Whatever else makes a job wait (retry, fail, snooze, release, update) is never refused. What others have not committed yet does not count, so while transactions are open the queue can get more, by as many jobs as these have inserted. Counting takes about 1 ms for 10,000 jobs; a session does so where the bound may be near, and with its first insert.
A fetch may get fewer than would fit. Jobs that run already count for concurrency, those that have started do not count for a new rate. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile, 40P01 a deadlock with another transaction that has configured or paused several queues: repeat the transaction.$$;

CREATE FUNCTION jobs.reset_queue(
  queue text, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'reset_queue_wrapper';
COMMENT ON FUNCTION jobs.reset_queue(text, text) IS
$$Takes back what jobs.configure_queue has set: no limits, and the system's retention. A queue that is paused stays paused: jobs.resume_queue lets it go on. Whether anything was set. Errors: 22023, 22004, 25006, 40001 under REPEATABLE READ and SERIALIZABLE when it was changed meanwhile.$$;
