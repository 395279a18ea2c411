-- Grants. Rust: src/api/access.rs
-- Not SECURITY DEFINER: they check the caller before they switch to the owner.

CREATE FUNCTION jobs.grant_producer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_producer_wrapper';
COMMENT ON FUNCTION jobs.grant_producer(text, text) IS
$$Lets a role, named as in pg_roles, insert jobs and wait for them: insert, insert_many, insert_batch, wait_for, results, unique_key, cell_for, ojs_manifest, and what pgjobs forward calls: forward, forwarded_open, forward_report. It can skip, replace or update jobs that its own policy conflicts with. It can read jobs.cells and jobs.placements. It cannot read jobs: jobs.results shows it how a job ended, but not output and error.
Errors: 42501 (unless the caller owns the extension or is a superuser), 42704 (no such role), 22004, 25006.$$;

CREATE FUNCTION jobs.grant_worker(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_worker_wrapper';
COMMENT ON FUNCTION jobs.grant_worker(text, text) IS
$$Lets a role fetch and finish jobs: fetch, fetch_any, wait, wait_any, wait_for, results, heartbeat, heartbeat_many, complete, complete_many, finish_many, fail, fail_many, snooze, release, worker_beat, worker_leave, ojs_manifest. It can read jobs.cells and jobs.placements. A worker that inserts jobs also needs jobs.grant_producer.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_viewer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_viewer_wrapper';
COMMENT ON FUNCTION jobs.grant_viewer(text, text) IS
$$Lets a role read all views, and call explain, health, metrics, history, top, last_id, show, check, wait_for and results. args, meta, progress and output are null for it; error texts are not.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_application(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_application_wrapper';
COMMENT ON FUNCTION jobs.grant_application(text, text) IS
$$Lets a role do what a trusted program needs: all that a producer, a worker and a viewer can; see args, meta, progress and output; explain_unique; cancel, retry, activate, update and delete by id; schedule, unschedule and run_periodic; define_kind, undefine_kind, configure_queue and reset_queue; define, override, pause, resume and drop limits; order_queue and unblock. It cannot manage jobs by a filter, pause queues or periodic jobs, maintain or grant.
Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_operator(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_operator_wrapper';
COMMENT ON FUNCTION jobs.grant_operator(text, text) IS
$$Lets a role do what people on call need: all that a viewer can; see args, meta, progress and output; explain_unique; cancel, retry, activate, cancel_many and retry_many; pause and resume queues, periodic jobs and limits; unblock; quiet, stop and resume workers. It cannot insert, change or delete jobs.
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
