-- A role of each kind, whose password is its name. For a server that only you can reach.
DO $$
DECLARE
  role text;
BEGIN
  FOREACH role IN ARRAY ARRAY['producer', 'worker', 'viewer', 'application', 'operator', 'admin'] LOOP
    IF to_regrole(role) IS NULL THEN
      EXECUTE format('CREATE ROLE %I LOGIN', role);
    END IF;
    EXECUTE format('ALTER ROLE %I PASSWORD %L', role, role);
    EXECUTE format('SELECT jobs.grant_%s(%L, reason => %L)', role, role, 'the company begins');
  END LOOP;
END;
$$;
