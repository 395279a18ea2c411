-- pg_dump includes the rows of these.
SELECT pg_catalog.pg_extension_config_dump('jobs.job_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.job', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.ready', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.scheduled', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.running', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.finished', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.error', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.answer', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.unique_claim', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.unique_note', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.kind', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.queue', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.retention_change', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.queue_slot', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.queue_start', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.limit_rule', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.limit_key_rule', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.turn', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.permit', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.limit_start', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.periodic_schedule', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.worker_command', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.maintenance_pause', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.forwarded', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.forwarder', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.cell', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.placement', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.audit_record', '');
SELECT pg_catalog.pg_extension_config_dump('jobs.history_bucket', '');

-- Revokes all rights but the owner's: those of PUBLIC to functions and types, and those granted by
-- ALTER DEFAULT PRIVILEGES.
SELECT jobs.installed();
