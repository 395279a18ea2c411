-- Grants. Rust: src/api/access.rs
-- Not SECURITY DEFINER: they check the caller before they switch to the owner.

CREATE FUNCTION jobs.grant_producer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_producer_wrapper';
COMMENT ON FUNCTION jobs.grant_producer(text, text) IS
$$Lets a role, named as in pg_roles, insert jobs, as pgjobs forward does too, and wait for them, but see no output and error. It can replace or update jobs that its own policy conflicts with, and read jobs.cells and jobs.placements.
Errors: 42501 (unless the caller owns the extension or is a superuser), 42704 (no such role).$$;

CREATE FUNCTION jobs.grant_worker(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_worker_wrapper';
COMMENT ON FUNCTION jobs.grant_worker(text, text) IS
$$Lets a role wait for, fetch and finish jobs, send heartbeats and beats, and read jobs.cells and jobs.placements.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_viewer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_viewer_wrapper';
COMMENT ON FUNCTION jobs.grant_viewer(text, text) IS
$$Lets a role read all views, and call the functions that only look. args, meta, progress and output are null for it; error texts are not.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_application(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_application_wrapper';
COMMENT ON FUNCTION jobs.grant_application(text, text) IS
$$Lets a role, a trusted program, do all that a producer, a worker and a viewer can; see args, meta, progress and output; manage jobs by id; set kinds, queues, limits, orders and periodic jobs. It cannot manage jobs by a filter, pause queues or periodic jobs, maintain or grant.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_operator(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_operator_wrapper';
COMMENT ON FUNCTION jobs.grant_operator(text, text) IS
$$Lets a role, a person on call, do all that a viewer can; see args, meta, progress and output; cancel, retry and activate jobs; pause and resume queues, periodic jobs and limits; unblock keys; quiet, stop and resume workers. It cannot insert, change or delete jobs.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_admin(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_admin_wrapper';
COMMENT ON FUNCTION jobs.grant_admin(text, text) IS
$$Lets a role call every function except those that grant and revoke and jobs.installed, and read all views, including args, meta, progress and output.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.revoke(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'revoke_wrapper';
COMMENT ON FUNCTION jobs.revoke(text, text) IS
$$Revokes all that a role was granted in the schema jobs, by these functions or by hand.
Errors: as jobs.grant_producer.$$;
