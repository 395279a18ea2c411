-- Durations whose parts differ in sign: Postgres adds one part after the other, and a month is as
-- long as it is.

-- Together 100 days, but the months alone lead out of all time: refused wherever a duration is
-- taken.
select state from jobs.insert('running', queue => 'running'); --> available
select id, token from jobs.fetch('running') \gset
select split_part(call, '(', 1) as function, pg_temp.try(case when call like 'wait%' then 'call ' else 'select ' end || 'jobs.' || replace(call, 'LONG', '''-100000 months 3000100 days'''))
  from unnest(array['insert(''k'', timeout => LONG)', 'insert_batch(''k'', ''{"{}"}'', timeout => LONG)', 'define_kind(''k'', timeout => LONG)', 'fetch(lease => LONG)', 'heartbeat(:id, :token, LONG)',
    'fail(:id, :token, ''e'', retry_in => LONG)', 'snooze(:id, :token, LONG)', 'configure_queue(''q'', rate => 1, rate_period => LONG)', 'wait(''q'', LONG)', 'delete_many(older_than => LONG)']) c,
       replace(replace(c, ':id', :'id'), ':token', :'token') call;
--> function|try
--> insert|22023: timeout "-8333 years -4 mons +3000100 days" is out of range | Use -1 second for no limit.
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> insert_batch|22023: timeout "-8333 years -4 mons +3000100 days" is out of range | Use -1 second for no limit.
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> define_kind|22023: timeout "-8333 years -4 mons +3000100 days" is out of range | Use -1 second for no limit.
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> fetch|22023: lease "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> heartbeat|22023: lease "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> fail|22023: retry_in "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> snooze|22023: delay "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> configure_queue|22023: rate_period "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> wait|22023: timeout "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
--> delete_many|22023: older_than "-8333 years -4 mons +3000100 days" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
select pg_temp.refusals('select jobs.insert(''k'', unique_opts => %L)', array_agg(opts)) from (values
  ('{"by_kind": true, "window": "-100000 months 3000100 days"}'), ('{"by_kind": true, "hold_for": "-100000 months 3000100 days"}'), ('{"by_kind": true, "hold_for": "9000000 days -215999990 hours"}')) v(opts);
--> {"by_kind": true, "window": "-100000 months 3000100 days"} | 22023: window "-100000 months 3000100 days" is out of range
--> {"by_kind": true, "hold_for": "-100000 months 3000100 days"} | 22023: hold_for "-100000 months 3000100 days" is out of range
--> {"by_kind": true, "hold_for": "9000000 days -215999990 hours"} | 22023: hold_for "9000000 days -215999990 hours" is out of range
-->   If the months, days and hours of a duration differ in sign, each part must be at most 1000 years.
select pg_temp.code($$select jobs.insert_many('[{"kind": "k", "timeout": "-100000 months 3000100 days"}]')$$); --> 22023
select count(*) from jobs.jobs; --> 1

-- An hour less than a day is what it says.
select state from jobs.insert('k', timeout => interval '1 day' - interval '1 hour', unique_opts => '{"by_kind": true, "hold_for": "1 day -01:00:00"}'); --> available
select deadline_at - attempted_at as timeout from jobs.fetch(); --> 23:00:00
select u.until - j.created_at as hold from jobs.unique_claims u join jobs.jobs j on j.id = any(u.holders); --> 23:00:00

-- Longer than nothing as Postgres compares intervals, where a year is 360 days; in a calendar it
-- would end before it began.
select interval '-12 months 361 days' > '0' as is_positive; --> t
select state from jobs.insert('k', queue => 'backward', timeout => '-12 months 361 days'); --> available
select deadline_at = attempted_at as at_once from jobs.fetch('backward'); --> t
-- By statements, too.
create function pg_temp.nothing() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger nothing before insert on jobs.running for each row execute function pg_temp.nothing();
select state from jobs.insert('k', queue => 'backward', timeout => '-12 months 361 days'); --> available
select deadline_at = attempted_at and lease_expires_at = attempted_at as at_once from jobs.fetch('backward'); --> t
drop trigger nothing on jobs.running;
select lease_expires_at > clock_timestamp() - interval '1 minute' as just_now from jobs.heartbeat(:id, :token, '-12 months 361 days'); --> t
set statement_timeout = '20s';
call jobs.wait('nobody', '-12 months 360 days');
call jobs.wait('nobody', '-12 months 361 days');
reset statement_timeout;

-- What one session has written means the same to all.
set intervalstyle = 'postgres';
select state from jobs.insert('k', queue => 'style', retry => '{"strategy": "constant", "initial": "-1 day 25:00:00", "max": "2 hours", "jitter": false}'); --> available
set intervalstyle = 'sql_standard';
select interval '-1 day 25:00:00' < '0' as else_it_would_be_negative; --> t
select f.state, f.scheduled_at - clock_timestamp() between '59 minutes' and '61 minutes' as in_an_hour from jobs.fetch('style') j, lateral jobs.fail(j.id, j.token, 'e') f;
--> state|in_an_hour: retryable|t
show intervalstyle; --> sql_standard
