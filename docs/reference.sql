-- Writes docs/reference.md from the COMMENTs of the catalog: ./dev reference. The suite `doc`
-- checks that it is up to date.
\set ON_ERROR_STOP on
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset recordsep '\n'
SET search_path = pg_catalog;
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

-- Functions by section, in reading order. One that is missing here is listed under the heading "Not
-- in any section", and the test fails.
CREATE TEMP TABLE section (n integer, title text, intro text, functions text[]);
INSERT INTO section VALUES
  (1, 'Produce', 'A producer inserts jobs. [uniqueness.md](uniqueness.md) describes unique jobs.',
   '{insert,insert_many,insert_batch,wait_for,results,unique_key,explain_unique,ojs_manifest}'),
  (2, 'Work', 'A worker fetches jobs and finishes each with its token: see [worker-in-sql.md](worker-in-sql.md).',
   '{fetch,fetch_any,wait,wait_any,heartbeat,heartbeat_many,complete,complete_many,finish_many,fail,fail_many,snooze,release,worker_beat,worker_leave}'),
  (3, 'Manage jobs', 'These need no token.',
   '{cancel,retry,activate,update,delete,cancel_many,retry_many,delete_many}'),
  (4, 'Kinds, queues and workers', 'Defaults of kinds, settings of queues and commands for workers.',
   '{define_kind,undefine_kind,configure_queue,reset_queue,pause_queue,resume_queue,quiet_worker,stop_worker,resume_worker}'),
  (5, 'Limits and order', 'See [limits.md](limits.md) and [order.md](order.md). A queue''s own limits are set by jobs.configure_queue.',
   '{define_limit,override_limit,pause_limit,resume_limit,drop_limit,order_queue,unblock}'),
  (6, 'Periodic jobs', 'See [periodic.md](periodic.md).',
   '{schedule,unschedule,pause_periodic,resume_periodic,run_periodic}'),
  (7, 'Cells', 'Several databases that share the queues: see [cells.md](cells.md).',
   '{set_cell,place_queue,spread_queue,unplace_queue,set_cell_address,cell_for,retire_cell,reinstate_cell}'),
  (8, 'Look', 'See [health](operations/health.md) and [monitor](operations/monitor.md). See also the [views](#views).',
   '{health,metrics,history,top,last_id,show,explain,check}'),
  (9, 'Maintain', 'The background worker does this by itself.',
   '{maintain,pause_maintenance,resume_maintenance}'),
  (10, 'Access', 'Nothing is granted to PUBLIC. Grants can be combined: see [security.md](security.md#roles).',
   '{grant_producer,grant_worker,grant_viewer,grant_application,grant_operator,grant_admin,revoke}'),
  (11, 'Internal', 'Called by views, by `pgjobs forward` and by the install script: ',
   '{count_queues,forward,forward_report,forwarded_open,idle_runs,installed,is_copy_of_cell,is_preloaded,order_key,order_weight,settings_digest,takes_queue}');

CREATE TEMP VIEW listed AS
SELECT s.n, s.title, s.intro, f.name::name AS name, f.place FROM section s, unnest(s.functions) WITH ORDINALITY AS f(name, place);

-- A line of a COMMENT is a paragraph, or an item of a list. What Markdown would take for markup is
-- escaped.
CREATE FUNCTION pg_temp.markdown(comment text) RETURNS text LANGUAGE sql AS $$
  SELECT regexp_replace(regexp_replace(COALESCE(comment, 'NO COMMENT'), '([\\`*<])', '\\\1', 'g'), '\n(?!- )', E'\n\n', 'g')
$$;

-- Short names of types, as people write them.
CREATE FUNCTION pg_temp.type(type oid, typmod integer DEFAULT -1) RETURNS text LANGUAGE sql AS $$
  SELECT replace(replace(format_type(type, typmod), 'timestamp with time zone', 'timestamptz'), 'double precision', 'float8')
$$;

-- Name, type and default of a parameter; or of a column of the result.
CREATE TEMP VIEW parameter AS
SELECT p.oid, a.n, p.proargmodes[a.n] IN ('o', 't') AS is_result,
       format('%s %s', p.proargnames[a.n], pg_temp.type(a.type)) AS declaration,
       ' = ' || regexp_replace(regexp_replace(pg_get_function_arg_default(p.oid, a.n::integer), '::[a-z_. ]+(\[\])?$', ''), '^NULL$', 'null') AS default_value
  FROM pg_proc p, unnest(COALESCE(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS a(type, n)
 WHERE p.pronamespace = 'jobs'::regnamespace;

-- Columns of the type of a result; nothing for other types.
CREATE FUNCTION pg_temp.columns(type oid) RETURNS text[] LANGUAGE sql AS $$
  SELECT COALESCE(array_agg(format('%s %s', a.attname, pg_temp.type(a.atttypid, a.atttypmod)) ORDER BY a.attnum), '{}')
    FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid AND c.relkind = 'c'
    JOIN pg_attribute a ON a.attrelid = c.oid
   WHERE t.oid = type
$$;

-- One line if it fits, else a parameter a line.
CREATE FUNCTION pg_temp.bracket(before text, items text[]) RETURNS text LANGUAGE sql AS $$
  SELECT CASE WHEN length(before || array_to_string(items, ', ')) < 110 THEN before || '(' || array_to_string(items, ', ') || ')'
              ELSE before || E'(\n    ' || array_to_string(items, E',\n    ') || ')' END
$$;

-- With the columns of a type only at the first function that returns it.
CREATE TEMP VIEW signature AS
SELECT p.oid, p.proname,
       pg_temp.bracket(CASE p.prokind WHEN 'p' THEN 'CALL ' ELSE '' END || 'jobs.' || p.proname, a.parameters) ||
       CASE WHEN p.prokind = 'p' THEN ''
            WHEN a.results <> '{}' THEN E'\n  ' || pg_temp.bracket('-> rows ', a.results)
            WHEN a.columns <> '{}' THEN E'\n  ' || pg_temp.bracket(
              format('-> %s of %s ', CASE WHEN p.proretset THEN 'rows' ELSE 'a row' END, pg_temp.type(p.prorettype)), a.columns)
            ELSE format(E'\n  -> %s%s', CASE WHEN p.proretset THEN 'rows of ' END, pg_temp.type(p.prorettype)) END AS signature
  FROM pg_proc p, LATERAL (
    SELECT COALESCE(array_agg(a.declaration || COALESCE(a.default_value, '') ORDER BY a.n) FILTER (WHERE a.is_result IS NOT TRUE), '{}') AS parameters,
           COALESCE(array_agg(a.declaration ORDER BY a.n) FILTER (WHERE a.is_result), '{}') AS results,
           CASE WHEN p.proname = (
             SELECT l.name FROM listed l JOIN pg_proc q ON q.proname = l.name
              WHERE q.pronamespace = p.pronamespace AND q.prorettype = p.prorettype ORDER BY l.n, l.place LIMIT 1)
           THEN pg_temp.columns(p.prorettype) ELSE '{}' END AS columns
      FROM parameter a WHERE a.oid = p.oid) a
 WHERE p.pronamespace = 'jobs'::regnamespace;

\qecho '# Reference'
\qecho
\qecho 'Every function, view, setting and type. `./dev reference` generates this page from COMMENTs, which `\\df+ jobs.*`, `\\d+ jobs.*` and `\\dn+ jobs` show as well.'
\qecho
\qecho '## Functions'
\qecho
\qecho 'You can name parameters, `jobs.insert(kind => .., queue => ..)`, and leave out those with a default. No function is overloaded.'
\qecho

SELECT regexp_replace(pg_temp.markdown(obj_description('jobs'::regnamespace)), '^[^\n]*\n\n', '');

WITH placed AS (
  SELECT COALESCE(l.n, 99) AS n, COALESCE(l.title, 'Not in any section') AS title, l.intro, COALESCE(l.place, s.oid::bigint) AS place,
         COALESCE(s.proname, l.name) AS name, s.signature, obj_description(s.oid, 'pg_proc') AS comment
    FROM signature s FULL JOIN listed l ON l.name = s.proname
)
SELECT CASE WHEN place = min(place) OVER (PARTITION BY n) THEN format(E'\n### %s\n\n%s\n', title, intro) ELSE '' END ||
       format(E'\n#### jobs.%s\n\n```text\n%s\n```\n\n%s', name, COALESCE(signature, 'THERE IS NO SUCH FUNCTION'), pg_temp.markdown(comment))
  FROM placed WHERE n <> 11 ORDER BY n, place;

SELECT format(E'\n### %s\n\n%s%s.', l.title, l.intro,
              string_agg(CASE WHEN s.oid IS NULL THEN 'NO SUCH FUNCTION ' ELSE '' END || format('`jobs.%s`', l.name), ', ' ORDER BY l.place))
  FROM listed l LEFT JOIN signature s ON s.proname = l.name WHERE l.n = 11 GROUP BY l.title, l.intro;

\qecho
\qecho '## Views'
\qecho
\qecho 'Read-only, in any transaction and on a standby.'

SELECT format(E'\n### %s\n\n%s\n\n%s', 'jobs.' || c.relname, pg_temp.markdown(obj_description(c.oid, 'pg_class')),
              (SELECT string_agg(format('- `%s` %s: %s', a.attname, pg_temp.type(a.atttypid, a.atttypmod), pg_temp.markdown(col_description(c.oid, a.attnum))), E'\n' ORDER BY a.attnum)
                 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))
  FROM pg_class c
 WHERE c.relnamespace = 'jobs'::regnamespace AND c.relkind = 'v'
 ORDER BY array_position('{jobs,errors,queues,workers,periodic,unique_claims,maintenance,settings}', c.relname::text), c.relname;

\qecho
\qecho '## Settings'
\qecho
\qecho 'See [configure](operations/configure.md).'
\qecho

SELECT format('- `%s` = %s (%s): %s', s.name,
              CASE WHEN s.boot_val = '' THEN 'empty' ELSE s.boot_val || COALESCE(' ' || s.unit, '') END ||
              CASE s.unit WHEN 's' THEN format(' (%s)', justify_hours(make_interval(secs => s.boot_val::integer))) ELSE '' END,
              CASE s.vartype WHEN 'bool' THEN 'on, off' WHEN 'enum' THEN array_to_string(s.enumvals, ', ') WHEN 'integer' THEN s.min_val || ' to ' || s.max_val ELSE s.vartype END,
              pg_temp.markdown(s.short_desc || COALESCE(' ' || NULLIF(s.extra_desc, ''), '')))
  FROM pg_settings s WHERE s.name LIKE 'jobs.%' AND (SELECT jobs.is_preloaded()) IS NOT NULL ORDER BY s.name;

\qecho
\qecho '## Types'
\qecho

SELECT format('`jobs.%s`: %s. %s', t.typname, string_agg(format('`%s`', e.enumlabel), ', ' ORDER BY e.enumsortorder),
              pg_temp.markdown(obj_description(t.oid, 'pg_type')))
  FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = 'jobs'::regnamespace GROUP BY t.oid, t.typname ORDER BY t.typname;

\qecho
SELECT format('Types of results, whose columns are listed with the first function that returns them: %s. In PL/pgSQL you can declare variables of these types.',
              string_agg(format('`jobs.%s`', t.typname), ', ' ORDER BY t.typname))
  FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid WHERE t.typnamespace = 'jobs'::regnamespace AND c.relkind = 'c';

\qecho
\qecho '## Tables'
\qecho
\qecho 'Internal: they change between versions, and only the extension writes them. [Architecture](architecture.md) shows how they relate.'

SELECT 'Dumps leave out ' || string_agg(format('`%s`', c.relname), ', ' ORDER BY c.relname) || '.'
  FROM pg_class c, pg_extension e
 WHERE e.extname = 'jobs' AND c.relnamespace = 'jobs'::regnamespace AND c.relkind IN ('r', 'p', 'S') AND c.oid <> ALL (e.extconfig);

SELECT format('%s: NO COMMENT', c.relname)
  FROM pg_class c
 WHERE c.relnamespace = 'jobs'::regnamespace AND c.relkind IN ('r', 'p', 'S') AND obj_description(c.oid, 'pg_class') IS NULL;
