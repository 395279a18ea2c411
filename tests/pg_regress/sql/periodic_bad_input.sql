-- What jobs.schedule and jobs.unschedule refuse: SQLSTATE, what is wrong, the rule in DETAIL and,
-- where one is likely, the fix in HINT.
create function pg_temp.schedule(arguments text) returns text language sql as $$ select pg_temp.try('select jobs.schedule(' || arguments || ')') $$;

-- Nulls. Everything else that is null is left out.
select pg_temp.refusals('select jobs.schedule(%s)', array['null, ''@daily'', ''k''', '''n'', null, ''k''', '''n'', ''@daily'', null', '''n'', ''@daily'', ''k'', null', '''n'', ''@daily'', ''k'', time_zone => null', '''n'', ''@daily'', ''k'', missed => null', '''n'', ''@daily'', ''k'', missed => ''skp''', '''n'', ''@daily'', ''k'', missed => ''ONCE''']);
--> null, '@daily', 'k' | 22004: name must not be null
--> 'n', null, 'k' | 22004: cron must not be null
--> 'n', '@daily', null | 22004: kind must not be null
--> 'n', '@daily', 'k', null | 22004: args must not be null
--> 'n', '@daily', 'k', time_zone => null | 22004: time_zone must not be null
--> 'n', '@daily', 'k', missed => null | 22004: missed must not be null
--> 'n', '@daily', 'k', missed => 'skp' | 22023: missed "skp" is not known | Did you mean "skip"?
--> 'n', '@daily', 'k', missed => 'ONCE' | 22023: missed "ONCE" is not known | Did you mean "once"?
-->   missed must be "once" or "skip".
select pg_temp.schedule($$'n', '@daily', 'k', unique_opts => null, queue => null, priority => null, max_attempts => null, tags => null, meta => null, timeout => null, retry => null$$); --> ok
select pg_temp.schedule($$'n', '@daily', 'k', unique_opts => 'null', meta => 'null', retry => 'null', args => 'null'$$); --> ok
select pg_temp.try('select jobs.unschedule(null)'); --> 22004: name must not be null
select jobs.unschedule('n'); --> t
-- Names.
select pg_temp.schedule($$'', '@daily', 'k'$$);
--> 22023: name must not be empty
-->   A name must have 1 to 127 characters and no control characters.
select pg_temp.schedule($$e'a\nb', '@daily', 'k'$$);
--> 22023: name "a\nb" contains a control character
-->   A name must have 1 to 127 characters and no control characters.
select pg_temp.schedule($$repeat('ä', 128), '@daily', 'k'$$);
--> 22023: name "ääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääää..." is too long: 128 characters
-->   A name must have 1 to 127 characters and no control characters.
select pg_temp.schedule($$repeat('ä', 127), '@daily', 'k'$$); --> ok
select jobs.unschedule(repeat('ä', 127)); --> t
select pg_temp.try('select jobs.unschedule('''')');
--> 22023: name must not be empty
-->   A name must have 1 to 127 characters and no control characters.
-- Schedules: each rule once, and what reads durations as the server does. The other cases are in
-- core/tests/core/schedule.rs.
select pg_temp.refusals('select jobs.schedule(''n'', %L, ''k'')', array['', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *', '* * * * 8', '0 0 30 2 *', '@dayly', 'every day', 'every 1 month', 'every 1 year', 'every 00:05:00', 'every 1 day 09:00']);
-->  | 22023: cron must not be empty
--> @dayly | 22023: cron "@dayly" is not a schedule | Did you mean "@daily"?
-->   A schedule must have five fields (minute, hour, day of month, month, day of week), or be one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or be "every" and a duration.
--> 60 * * * * | 22023: minute "60" of cron "60 * * * *" is not valid
-->   The minute must be 0 to 59, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all.
--> * 24 * * * | 22023: hour "24" of cron "* 24 * * *" is not valid
-->   The hour must be 0 to 23, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all.
--> * * 0 * * | 22023: day of month "0" of cron "* * 0 * *" is not valid
-->   The day of month must be 1 to 31, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all. L is the last day, 15W the day from Monday to Friday nearest to the 15th, LW the last one.
--> * * * 13 * | 22023: month "13" of cron "* * * 13 *" is not valid
-->   The month must be 1 to 12 or jan to dec, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all.
--> * * * * 8 | 22023: day of week "8" of cron "* * * * 8" is not valid
-->   The day of week must be 0 to 7 or sun to sat, a range (1-5), a step (*/2, 1-5/2), a list of these (1,3,7-9), or * for all. 5L is the last Friday of the month, 1#2 the second Monday.
--> 0 0 30 2 * | 22023: cron "0 0 30 2 *" never occurs
-->   At least one of its months must have at least one of its days.
--> every day | 22023: cron "every day" has no duration | Write "every P1D".
--> every 1 month | 22023: cron "every 1 month" has no fixed length | Write "@monthly" for the first of each month, or "every 30 days".
--> every 1 year | 22023: cron "every 1 year" has no fixed length | Write "@yearly" for the first of each year, or "every 365 days".
--> every 00:05:00 | 22023: cron "every 00:05:00" has no duration | Write "every PT5M".
--> every 1 day 09:00 | 22023: cron "every 1 day 09:00" has no duration | Write "0 9 * * *" for 09:00 of each day. A duration needs units, as in "every 9 hours".
-->   The duration after "every" must have a fixed length between one second and 1000 years; months and years vary in length.
-- A duration has units.
select pg_temp.refusals('select jobs.insert(''k'', unique_opts => %L)', array['{"by_period": "1 day 09:00"}', '{"by_period": "(5 minutes)"}', '{"by_period": "1 day 9"}']);
--> {"by_period": "1 day 09:00"} | 22023: by_period "1 day 09:00" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_period": "(5 minutes)"} | 22023: by_period "(5 minutes)" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"by_period": "1 day 9"} | 22023: by_period "1 day 9" is not a duration | Write 900, "PT15M" or "15 minutes".
-->   A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.
-- A hint names the time zone that a schedule has in it.
select pg_temp.schedule($$'n', 'CRON_TZ=Europe/Berlin 0 9 * * *', 'k'$$);
--> 22023: cron "CRON_TZ=Europe/Berlin 0 9 * * *" has 6 fields instead of 5 | Write "0 9 * * *" with time_zone => 'Europe/Berlin'.
-->   A schedule must have five fields (minute, hour, day of month, month, day of week), or be one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or be "every" and a duration.
-- Days that never come, and every so often in a time zone.
select pg_temp.schedule($$'n', '0 0 */31 * 1#2', 'k'$$);
--> 22023: cron "0 0 */31 * 1#2" never occurs
-->   At least one of its months must have at least one of its days.
select pg_temp.schedule($$'n', 'every 1 day', 'k', time_zone => 'Europe/Berlin'$$);
--> 22023: time_zone "Europe/Berlin" cannot be combined with cron "every 1 day" | Omit time_zone, or write clock times, such as "0 0 * * *" for each midnight.
-->   A schedule of "every" and a duration counts from 0001-01-01 00:00 UTC in every time zone.
-- Time zones: names alone. An offset would have the sign of POSIX.
select pg_temp.refusals('select jobs.schedule(''n'', ''@daily'', ''k'', time_zone => %L)', array['', 'Mars/Olympus', 'Europe', '../../etc/localtime', e'Europe/Berlin\n', repeat('x', 300),
  'berlin', 'Europe/Berln', 'BST', 'AEST', 'UTC+3', '+03:00', '-8', 'GMT+5:30', 'UTC+100', 'Etc/GMT+99', '3', 'CET-1CEST', '<+03>-3']);
-->  | 22023: time_zone "" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> Mars/Olympus | 22023: time_zone "Mars/Olympus" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> Europe | 22023: time_zone "Europe" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> ../../etc/localtime | 22023: time_zone "../../etc/localtime" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | 22023: time_zone "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..." is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> berlin | 22023: time_zone "berlin" is not known | Did you mean "Europe/Berlin"?
--> Europe/Berln | 22023: time_zone "Europe/Berln" is not known | Did you mean "Europe/Berlin"?
--> BST | 22023: time_zone "BST" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> AEST | 22023: time_zone "AEST" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> UTC+3 | 22023: time_zone "UTC+3" is not known | Write "Etc/GMT-3" for 3 hours ahead of UTC: these names have the sign reversed, as in POSIX.
--> +03:00 | 22023: time_zone "+03:00" is not known | Write "Etc/GMT-3" for 3 hours ahead of UTC: these names have the sign reversed, as in POSIX.
--> -8 | 22023: time_zone "-8" is not known | Write "Etc/GMT+8" for 8 hours behind UTC: these names have the sign reversed, as in POSIX.
--> GMT+5:30 | 22023: time_zone "GMT+5:30" is not known | Write a place that has this offset, such as "Asia/Kolkata".
--> UTC+100 | 22023: time_zone "UTC+100" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> Etc/GMT+99 | 22023: time_zone "Etc/GMT+99" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> 3 | 22023: time_zone "3" is not known | Write "Etc/GMT-3" for 3 hours ahead of UTC: these names have the sign reversed, as in POSIX.
--> CET-1CEST | 22023: time_zone "CET-1CEST" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
--> <+03>-3 | 22023: time_zone "<+03>-3" is not known | Write a place as in pg_timezone_names, for example "Europe/Berlin".
-->   time_zone must be a name in pg_timezone_names. Offsets, POSIX time zones and abbreviations are not accepted.
--> Europe/Berlin
-->  | 22023: time_zone "Europe/Berlin
--> " is not known | Did you mean "Europe/Berlin"?
-->   time_zone must be a name in pg_timezone_names. Offsets, POSIX time zones and abbreviations are not accepted.
-- What jobs.insert refuses.
select pg_temp.refusals('select jobs.schedule(''n'', ''@daily'', %s)', array[
  $$''$$, $$E'\t'$$, $$'k', queue => ''$$, $$'k', queue => repeat('x', 128)$$, $$'k', priority => 32768$$,
  $$'k', max_attempts => 0$$, $$'k', tags => '{a,null}'$$, $$'k', meta => '[]'$$, $$'k', timeout => '0'$$, $$'k', timeout => '2000 years'$$,
  $$'k', unique_opts => '[]'$$, $$'k', unique_opts => '{"by_arg": true}'$$, $$'k', unique_opts => '{"window": 60}'$$, $$'k', '{"a": 1}', unique_opts => '{"ojs": {"keys": ["type", "args"], "args_keys": ["b"]}}'$$]);
--> '' | 22023: kind must not be empty
--> E'\t' | 22023: kind "\t" contains a control character
-->   A kind must have 1 to 127 characters and no control characters.
--> 'k', queue => '' | 22023: queue must not be empty
--> 'k', queue => repeat('x', 128) | 22023: queue "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..." is too long: 128 characters
-->   A queue must have 1 to 127 characters and no control characters.
--> 'k', priority => 32768 | 22023: priority 32768 is out of range
-->   priority must be between -32768 and 32767; lower numbers run first.
--> 'k', max_attempts => 0 | 22023: max_attempts 0 is too low
-->   max_attempts must be at least 1; it includes the first attempt.
--> 'k', tags => '{a,null}' | 22004: an element of tags must not be null
--> 'k', meta => '[]' | 22023: meta must not be an array
-->   meta must be an object.
--> 'k', timeout => '0' | 22023: timeout "00:00:00" is out of range | Use -1 second for no limit.
--> 'k', timeout => '2000 years' | 22023: timeout "2000 years" is out of range | Use -1 second for no limit.
-->   timeout must be longer than 0 and at most 1000 years.
--> 'k', unique_opts => '[]' | 22023: unique_opts must not be an array
-->   unique_opts must be an object such as {"by_args": true}; {} means not unique.
--> 'k', unique_opts => '{"by_arg": true}' | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> 'k', unique_opts => '{"window": 60}' | 22023: window alone does not make a job unique | Add "by_args": true for one job per kind and args, or "by_kind": true for one per kind.
-->   It requires one of by_kind, by_args, by_meta, by_queue, by_period, by_state, key.
--> 'k', '{"a": 1}', unique_opts => '{"ojs": {"keys": ["type", "args"], "args_keys": ["b"]}}' | 22023: member "b" is missing from args
-->   All members that make the job unique must exist in args.
select split_part(pg_temp.schedule($$'n', '@daily', 'k', retry => '"often"'$$), ':', 1); --> 22023
-- Nothing of it is there.
select count(*) from jobs.periodic; --> 0
