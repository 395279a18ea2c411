\set ECHO none
-- Durations whose parts differ in sign: Postgres adds one part after the other, and a month is as
-- long as it is.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Together 100 days, but the months alone lead out of all time: refused wherever a duration is
-- taken.
select state from jobs.insert('running', queue => 'running');
select id, token from jobs.fetch('running') \gset
select split_part(call, '(', 1) as function, pg_temp.try(case when call like 'wait%' then 'call ' else 'select ' end || 'jobs.' || replace(call, 'LONG', '''-100000 months 3000100 days'''))
  from unnest(array['insert(''k'', timeout => LONG)', 'insert_batch(''k'', ''{"{}"}'', timeout => LONG)', 'define_kind(''k'', timeout => LONG)', 'fetch(lease => LONG)', 'heartbeat(:id, :token, LONG)',
    'fail(:id, :token, ''e'', retry_in => LONG)', 'snooze(:id, :token, LONG)', 'configure_queue(''q'', rate => 1, rate_period => LONG)', 'wait(''q'', LONG)', 'delete_many(older_than => LONG)']) c,
       replace(replace(c, ':id', :'id'), ':token', :'token') call;
select opts, pg_temp.try(format('select jobs.insert(%L, unique_opts => %L)', 'k', opts)) from (values
  ('{"by_kind": true, "window": "-100000 months 3000100 days"}'), ('{"by_kind": true, "hold_for": "-100000 months 3000100 days"}'), ('{"by_kind": true, "hold_for": "9000000 days -215999990 hours"}')) v(opts);
select pg_temp.code($$select jobs.insert_many('[{"kind": "k", "timeout": "-100000 months 3000100 days"}]')$$);
select count(*) from jobs.jobs;

-- An hour less than a day is what it says.
select state from jobs.insert('k', timeout => interval '1 day' - interval '1 hour', unique_opts => '{"by_kind": true, "hold_for": "1 day -01:00:00"}');
select deadline_at - attempted_at as timeout from jobs.fetch();
select u.until - j.created_at as hold from jobs.unique_claims u join jobs.jobs j on j.id = any(u.holders);

-- Longer than nothing as Postgres compares intervals, where a year is 360 days; in a calendar it
-- would end before it began.
select interval '-12 months 361 days' > '0' as is_positive;
select state from jobs.insert('k', queue => 'backward', timeout => '-12 months 361 days');
select deadline_at = attempted_at as at_once from jobs.fetch('backward');
-- By statements, too.
create function pg_temp.nothing() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger nothing before insert on jobs.running for each row execute function pg_temp.nothing();
select state from jobs.insert('k', queue => 'backward', timeout => '-12 months 361 days');
select deadline_at = attempted_at and lease_expires_at = attempted_at as at_once from jobs.fetch('backward');
drop trigger nothing on jobs.running;
select lease_expires_at > clock_timestamp() - interval '1 minute' as just_now from jobs.heartbeat(:id, :token, '-12 months 361 days');
set statement_timeout = '20s';
call jobs.wait('nobody', '-12 months 360 days');
call jobs.wait('nobody', '-12 months 361 days');
reset statement_timeout;

-- What one session has written means the same to all.
set intervalstyle = 'postgres';
select state from jobs.insert('k', queue => 'style', retry => '{"strategy": "constant", "initial": "-1 day 25:00:00", "max": "2 hours", "jitter": false}');
set intervalstyle = 'sql_standard';
select interval '-1 day 25:00:00' < '0' as else_it_would_be_negative;
select f.state, f.scheduled_at - clock_timestamp() between '59 minutes' and '61 minutes' as in_an_hour from jobs.fetch('style') j, lateral jobs.fail(j.id, j.token, 'e') f;
show intervalstyle;
