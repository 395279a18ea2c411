\set ECHO none
-- What jobs.schedule and jobs.unschedule refuse: SQLSTATE, what is wrong, the rule in DETAIL and,
-- where one is likely, the fix in HINT.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.schedule(arguments text) returns text language sql as $$ select pg_temp.try('select jobs.schedule(' || arguments || ')') $$;

-- Nulls. Everything else that is null is left out.
select a, pg_temp.schedule(a) from unnest(array['null, ''@daily'', ''k''', '''n'', null, ''k''', '''n'', ''@daily'', null', '''n'', ''@daily'', ''k'', null', '''n'', ''@daily'', ''k'', time_zone => null', '''n'', ''@daily'', ''k'', missed => null', '''n'', ''@daily'', ''k'', missed => ''skp''', '''n'', ''@daily'', ''k'', missed => ''ONCE''']) a;
select pg_temp.schedule($$'n', '@daily', 'k', unique_opts => null, queue => null, priority => null, max_attempts => null, tags => null, meta => null, timeout => null, retry => null$$);
select pg_temp.schedule($$'n', '@daily', 'k', unique_opts => 'null', meta => 'null', retry => 'null', args => 'null'$$);
select pg_temp.try('select jobs.unschedule(null)');
select jobs.unschedule('n');
-- Names.
select pg_temp.schedule($$'', '@daily', 'k'$$);
select pg_temp.schedule($$e'a\nb', '@daily', 'k'$$);
select pg_temp.schedule($$repeat('ä', 128), '@daily', 'k'$$);
select pg_temp.schedule($$repeat('ä', 127), '@daily', 'k'$$);
select jobs.unschedule(repeat('ä', 127));
select pg_temp.try('select jobs.unschedule('''')');
-- Schedules: each rule once, and what reads durations as the server does. The other cases are in
-- core/tests/core/schedule.rs.
select cron, pg_temp.schedule(format('''n'', %L, ''k''', cron)) from unnest(array['', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *', '* * * * 8', '0 0 30 2 *', '@dayly', 'every day', 'every 1 month', 'every 1 year', 'every 00:05:00', 'every 1 day 09:00']) cron;
-- A duration has units.
select opts, pg_temp.try(format('select jobs.insert(''k'', unique_opts => %L)', opts)) from unnest(array['{"by_period": "1 day 09:00"}', '{"by_period": "(5 minutes)"}', '{"by_period": "1 day 9"}']) opts;
-- A hint names the time zone that a schedule has in it.
select pg_temp.schedule($$'n', 'CRON_TZ=Europe/Berlin 0 9 * * *', 'k'$$);
-- Days that never come, and every so often in a time zone.
select pg_temp.schedule($$'n', '0 0 */31 * 1#2', 'k'$$);
select pg_temp.schedule($$'n', 'every 1 day', 'k', time_zone => 'Europe/Berlin'$$);
-- Time zones: names alone. An offset would have the sign of POSIX.
select z, pg_temp.schedule(format('''n'', ''@daily'', ''k'', time_zone => %L', z)) from unnest(array['', 'Mars/Olympus', 'Europe', '../../etc/localtime', e'Europe/Berlin\n', repeat('x', 300),
  'berlin', 'Europe/Berln', 'BST', 'AEST', 'UTC+3', '+03:00', '-8', 'GMT+5:30', 'UTC+100', 'Etc/GMT+99', '3', 'CET-1CEST', '<+03>-3']) z;
-- What jobs.insert refuses.
select a, pg_temp.schedule('''n'', ''@daily'', ' || a) from unnest(array[
  $$''$$, $$E'\t'$$, $$'k', queue => ''$$, $$'k', queue => repeat('x', 128)$$, $$'k', priority => 32768$$,
  $$'k', max_attempts => 0$$, $$'k', tags => '{a,null}'$$, $$'k', meta => '[]'$$, $$'k', timeout => '0'$$, $$'k', timeout => '2000 years'$$,
  $$'k', unique_opts => '[]'$$, $$'k', unique_opts => '{"by_arg": true}'$$, $$'k', unique_opts => '{"window": 60}'$$, $$'k', '{"a": 1}', unique_opts => '{"ojs": {"keys": ["type", "args"], "args_keys": ["b"]}}'$$]) a;
select split_part(pg_temp.schedule($$'n', '@daily', 'k', retry => '"often"'$$), ':', 1);
-- Nothing of it is there.
select count(*) from jobs.periodic;
