-- Who may do what. Rust: src/api/access.rs
-- Not SECURITY DEFINER: they look who calls before they switch to the owner.

CREATE FUNCTION jobs.grant_producer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_producer_wrapper';
COMMENT ON FUNCTION jobs.grant_producer(text, text) IS
$$Lets a role, named as in pg_roles, insert jobs and wait for them: insert, insert_many, insert_batch, wait_for, results, unique_key, ojs_manifest. It can skip, replace or update what its own policy conflicts with, and cannot read jobs: jobs.results shows it how a job ended, without output and error. For the extension's owner and superusers only, whoever has been granted EXECUTE. Errors: 42501 for others, 42704 no such role, 22004, 25006.$$;

CREATE FUNCTION jobs.grant_worker(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_worker_wrapper';
COMMENT ON FUNCTION jobs.grant_worker(text, text) IS
$$Lets a role fetch and finish jobs: fetch, fetch_any, wait, wait_any, wait_for, results, heartbeat, heartbeat_many, complete, complete_many, finish_many, fail, fail_many, snooze, release, worker_beat, ojs_manifest. A worker that inserts jobs is granted producer as well. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_viewer(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_viewer_wrapper';
COMMENT ON FUNCTION jobs.grant_viewer(text, text) IS
$$Lets a role read all views, jobs.health(), jobs.metrics(), jobs.check(), jobs.top(), jobs.last_id(), jobs.show(), jobs.explain() and jobs.results(), and call jobs.wait_for, without what jobs carry: args, meta, progress and output are null for it. Texts of errors are shown. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_application(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_application_wrapper';
COMMENT ON FUNCTION jobs.grant_application(text, text) IS
$$Lets a role do what a trusted program needs: what a producer, a worker and a viewer may, see what jobs carry, explain_unique; cancel, retry, activate, update and delete by id; schedule, unschedule and run_periodic; define_kind, undefine_kind, configure_queue and reset_queue. It can manage no jobs by a filter, pause nothing, maintain nothing and grant nothing. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_operator(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_operator_wrapper';
COMMENT ON FUNCTION jobs.grant_operator(text, text) IS
$$Lets a role do what people on call need: what a viewer may, see what jobs carry, explain_unique; cancel, retry and activate, also cancel_many and retry_many; pause and resume queues and periodic jobs; quiet, stop and resume workers. It can insert, change and delete no jobs. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.grant_admin(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'grant_admin_wrapper';
COMMENT ON FUNCTION jobs.grant_admin(text, text) IS
$$Lets a role call every function but those that grant and revoke, and read all views, with what jobs carry. Errors: as jobs.grant_producer.$$;

CREATE FUNCTION jobs.revoke(role text, reason text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'revoke_wrapper';
COMMENT ON FUNCTION jobs.revoke(text, text) IS
$$Takes away from a role whatever it was granted in the schema jobs, by these functions or by hand. Errors: as jobs.grant_producer.$$;
