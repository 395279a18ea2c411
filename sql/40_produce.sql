-- Inserts and unique keys. Rust: src/api/produce_insert.rs, src/api/produce_unique.rs

CREATE TYPE jobs.insert_result AS (
  id                          bigint,
  state                       jobs.state,
  unique_skipped_as_duplicate boolean,
  replaced_id                 bigint,
  queue                       text,
  created_at                  timestamptz,
  scheduled_at                timestamptz);
COMMENT ON TYPE jobs.insert_result IS 'The inserted job, or the existing job that it duplicates.';

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
  'As jobs.insert_result, for one of many jobs. ord is the position of its element, from 1.';

-- It runs with its owner's rights, as the others do, but switches to them itself (src/pg/role.rs):
-- to set and restore the search_path that SECURITY DEFINER needs would take 5 % of an insert.
CREATE FUNCTION jobs.insert(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS jobs.insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'insert_wrapper';
COMMENT ON FUNCTION jobs.insert(text, jsonb, jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts one job in your transaction. Returns the new job (replaced_id: the newest job that it replaces), or the existing job with unique_skipped_as_duplicate true.
The job is pending if you set pending, scheduled if scheduled_at is in the future, else available.
Options default to those of the kind (jobs.define_kind), then to queue 'default', priority 1 (the lowest number runs first), max_attempts 25, timeout 1 minute (-1 second: no limit), retry 'river'.
unique_opts is a uniqueness policy, or one of another system: {"oban": ..}, {"faktory": ..}, {"ojs": ..}. A duplicate is skipped, is rejected, or replaces or updates the existing job.
retry is the delay after a failed attempt:
- "river": (previous errors + 1)^4 s, 10 % more or less
- "oban": 15 + 2^n s, up to 10 % more; n is the attempt or, if max_attempts exceeds 20, attempt / max_attempts * 20
- "faktory": n^4 + 15 + rand(30) (n + 1) s; n is the number of previous failures
- {"strategy": "exponential", "initial": "1 s", "coefficient": 2, "max": "5 minutes", "jitter": true, "non_retryable": []}, with these defaults and Open Job Spec's formulas; constant has no default max. strategy can also be linear, constant, polynomial or a name above. jitter can be a fraction; true means a factor from 0.5 to 1.5. non_retryable lists error types, such as "auth.*"
- {"ojs": {"max_attempts": 3, "initial_interval": "PT1S", ..}}: Open Job Spec's RetryPolicy, whose max_attempts applies if the parameter is null
An object can have "after_lease", the delay after an expired lease.
Errors:
- 23505: a duplicate is rejected
- 54000: the queue is full (max_waiting of jobs.configure_queue); DETAIL is {"depth": .., "bound": ..}
- 54000: args and meta, tags, retry or unique_opts are longer than jobs.max_payload as text
- JB001: another cell takes the job$$;

CREATE FUNCTION jobs.insert_many(
  jobs jsonb)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'insert_many_wrapper';
COMMENT ON FUNCTION jobs.insert_many(jsonb) IS
$$Inserts an array of jobs, each an object with the parameters of jobs.insert, in one atomic statement. Returns a row per element, in order (ord from 1).
Of duplicates in the array, the first one wins.
Errors: as jobs.insert, with the index of the element, from 1, in DETAIL; 40P01 (over unique keys, or jobs that are replaced or updated).$$;

CREATE FUNCTION jobs.insert_batch(
  kind text, args jsonb[], unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  priority integer DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
  tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, pending boolean DEFAULT false)
RETURNS SETOF jobs.batch_insert_result
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'insert_batch_wrapper';
COMMENT ON FUNCTION jobs.insert_batch(text, jsonb[], jsonb, text, integer, timestamptz, integer, text[], jsonb, interval, jsonb, timestamptz, boolean) IS
$$Inserts a job for each element of args, all with the same options, in one atomic statement. Returns a row per element, in order (ord from 1).
Errors: as jobs.insert_many.$$;

CREATE FUNCTION jobs.unique_key(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unique_key_wrapper';
COMMENT ON FUNCTION jobs.unique_key(text, jsonb, jsonb, text, jsonb, timestamptz) IS
$$Returns the unique key, 64 hex digits, that jobs.insert would use with the same arguments; null if the job is not unique.
The key is the SHA-256 of the canonical text: RFC 8785 JSON of the members that apply (args, key, meta, period, queue, type).
Writes nothing. Works on a standby. Errors: as jobs.insert.$$;

CREATE TYPE jobs.unique_explanation AS (
  canonical    text,
  unique_key   text,
  lock_id      bigint,
  policy       jsonb,
  holder       bigint,
  holder_state jobs.state,
  would        text);
COMMENT ON TYPE jobs.unique_explanation IS
  'What makes a job unique, and what an insert would do now.';

CREATE FUNCTION jobs.explain_unique(
  kind text, args jsonb DEFAULT '{}', unique_opts jsonb DEFAULT NULL, queue text DEFAULT NULL,
  meta jsonb DEFAULT NULL, scheduled_at timestamptz DEFAULT NULL)
RETURNS jobs.unique_explanation
LANGUAGE c VOLATILE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'explain_unique_wrapper';
COMMENT ON FUNCTION jobs.explain_unique(text, jsonb, jsonb, text, jsonb, timestamptz) IS
$$Returns what would make the job unique, and what jobs.insert would do now with the same arguments:
- canonical, unique_key: the canonical text and its key
- lock_id: the id of the key's advisory lock
- policy: the policy in the native form, with all defaults
- holder, holder_state: the newest conflicting job
- would: insert, skip, reject, replace or update
All but would are null if the job is not unique.
Writes nothing, locks nothing, works on a standby. Errors: as jobs.insert.$$;

CREATE FUNCTION jobs.ojs_manifest()
RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'ojs_manifest_wrapper';
COMMENT ON FUNCTION jobs.ojs_manifest() IS
$$Returns what an Open Job Spec server on top of this queue can declare in its conformance manifest (ojs-unique-jobs, section 8.3): its capabilities, and the mechanism and strength of uniqueness, strong. Works on a standby.$$;
