-- Insert jobs, keep them unique. Rust: src/api/produce_insert.rs, src/api/produce_unique.rs

CREATE TYPE jobs.insert_result AS (
  id                          bigint,
  state                       jobs.state,
  unique_skipped_as_duplicate boolean,
  replaced_id                 bigint,
  queue                       text,
  created_at                  timestamptz,
  scheduled_at                timestamptz);
COMMENT ON TYPE jobs.insert_result IS
  'The job that an insert has made, or the one that it is a duplicate of.';

CREATE TYPE jobs.batch_insert_result AS (
  ord                         integer,
  id                          bigint,
  state                       jobs.state,
  unique_skipped_as_duplicate boolean,
  replaced_id                 bigint,
  queue                       text,
  created_at                  timestamptz,
  scheduled_at                timestamptz);
COMMENT ON TYPE jobs.batch_insert_result IS
  'The result of one insert of many: ord is the number of its element, from 1.';

-- It works with its owner's rights, as the others do, but switches by itself (src/pg/role.rs):
-- SECURITY DEFINER needs a search_path of its own, and to set and restore that is a twentieth of an
-- insert.
CREATE FUNCTION jobs.insert(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS jobs.insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'insert_wrapper';
COMMENT ON FUNCTION jobs.insert(text, jsonb, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts one job; part of the caller's transaction.
Defaults: queue 'default', priority 1 (lower runs first), max_attempts 25, timeout 1 minute (-1 second: none), retry 'river'.
A scheduled_at in the future makes it scheduled, pending => true pending, otherwise it is available.
retry: how long it waits after a failure: "river": (errors before this one + 1)^4 s, 10 % either way; "oban": 15 + 2^n s and up to 10 %, n the attempt, or attempt / max_attempts * 20 above 20 attempts; "faktory": n^4 + 15 + rand(30) (n + 1) s, n the failures before this one;
or as Open Job Spec has it {"strategy": "exponential" | "linear" | "constant" | "polynomial", "initial": 1 s, "coefficient": 2, "max": 5 minutes, "jitter": true (a factor from 0.5 to 1.5) or a part, "non_retryable": ["type", "prefix.*"]}; strategy may be one of the three names, too;
or Open Job Spec's RetryPolicy in its own words {"ojs": {"max_attempts": 3, "initial_interval": "PT1S", ..}}, whose max_attempts counts where max_attempts is not given. In each object "after_lease": how long it waits instead where the lease of its worker ran out.
unique_opts is a uniqueness policy (River's names; {"oban": ..}, {"faktory": ..} and {"ojs": ..} as those systems have them); a duplicate is skipped, or rejected with 23505, or replaces or updates the existing job.
Returns the job with the id: the new one (replaced_id: the newest of those that it replaces), or the existing one with unique_skipped_as_duplicate.
Errors: 22023 bad value, 22004 null where none is allowed, 23505 rejected duplicate, 54000 full queue (max_waiting of jobs.configure_queue; DETAIL {"depth":..,"bound":..}) or a text of args and meta, tags, retry or unique_opts longer than jobs.max_payload, 25006 on a standby or read only, 40001 under REPEATABLE READ and SERIALIZABLE when a rival committed meanwhile.$$;

CREATE FUNCTION jobs.insert_many(
  jobs jsonb)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'insert_many_wrapper';
COMMENT ON FUNCTION jobs.insert_many(jsonb) IS
$$Inserts an array of jobs, each an object with the parameters of jobs.insert, in one atomic statement; a row per element, in order (ord from 1).
Duplicates inside the array are resolved like duplicates outside: the first one wins.
Errors as jobs.insert; DETAIL names the element's index from 1. Also 40P01, a deadlock with another transaction over unique keys or jobs that are replaced or updated: repeat the transaction.$$;

CREATE FUNCTION jobs.insert_batch(
  kind text, args jsonb[], unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'insert_batch_wrapper';
COMMENT ON FUNCTION jobs.insert_batch(text, jsonb[], jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts a job of one kind for each element of args, with the same options, in one atomic statement; a row per element, in order (ord from 1).
Errors as jobs.insert_many.$$;

CREATE FUNCTION jobs.unique_key(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unique_key_wrapper';
COMMENT ON FUNCTION jobs.unique_key(text, jsonb, jsonb, text, jsonb, timestamptz) IS
$$The key (64 hex digits) that jobs.insert with the same arguments would hold: SHA-256 of the canonical text (RFC 8785 JSON of the members args, key, meta, period, queue, type that apply). Null: not unique.
Volatile because by_period without scheduled_at takes the clock. Errors as jobs.insert; writes nothing, works on a standby.$$;

CREATE TYPE jobs.unique_explanation AS (
  canonical    text,
  unique_key   text,
  lock_id      bigint,
  policy       jsonb,
  holder       bigint,
  holder_state jobs.state,
  would        text);
COMMENT ON TYPE jobs.unique_explanation IS
  'What a job would be unique by, and what would become of it now.';

CREATE FUNCTION jobs.explain_unique(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL)
RETURNS jobs.unique_explanation
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'explain_unique_wrapper';
COMMENT ON FUNCTION jobs.explain_unique(text, jsonb, jsonb, text, jsonb, timestamptz) IS
$$What jobs.insert with the same arguments would be unique by, and what would happen now: the canonical text and its key, the advisory lock's id, the policy in the native form with everything that was left out filled in (also where it was given in another system's form), the newest job that conflicts, and insert, skip, reject, replace or update. All null but would: not unique.
Errors as jobs.insert; writes nothing, locks nothing, works on a standby.$$;

CREATE FUNCTION jobs.ojs_manifest()
RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'ojs_manifest_wrapper';
COMMENT ON FUNCTION jobs.ojs_manifest() IS
$$What a server of the Open Job Spec that keeps its jobs here can declare in its conformance manifest (ojs-unique-jobs, section 8.3): the strength of uniqueness, strong, its mechanism, and what else this queue is capable of.
conformance_level and protocols are the server's own to add. No errors; works on a standby.$$;
