\set ECHO none
-- Periods of the dialects that are not what their system calls a period, and what is said about
-- them.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Open Job Spec: ISO 8601 only. A number without its unit, a unit twice, units out of order, T with
-- nothing behind it: the server's reader takes them, as years, hours, sums.
select period, pg_temp.code(format('select jobs.insert(%L, unique_opts => %L)', 'k', jsonb_build_object('ojs', jsonb_build_object('period', period))))
  from unnest(array['P1', 'PT15', 'PT1H30', 'P1DT', 'PTT1S', 'P1Y1Y', 'P1M2Y', 'PT1S1M']) period;
-- Oban: without a period it is a minute; the fix for none at all is another one.
select pg_temp.try($$select jobs.insert('k', unique_opts => '{"oban": {"period": 0}}')$$) ~ 'infinity' as names_the_fix;
-- A number of days has a fixed length; this many are out of range.
select pg_temp.try($$select jobs.insert('k', unique_opts => '{"by_period": "200000000 days"}')$$) !~ 'fixed length' as names_the_rule;
