\set ECHO none
-- jobs.update and jobs.activate.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Every field. Null leaves it as it is.
select id from jobs.insert('k', '{"a": 1}', queue => 'q', priority => 5, max_attempts => 3, tags => '{x}', meta => '{"m": 1}', timeout => '5 min', expires_at => '2998-01-01Z');
select jobs.update(1);
select queue, priority, args, scheduled_at = created_at as at_once, max_attempts, tags, meta, timeout, expires_at from jobs.jobs;
select jobs.update(1, '{"a": 2}', 'r', 7, '2999-01-01Z', 4, '{y,z}', '{"m": 2}', '-1 second', '"river"', '2999-12-31Z');
select state, queue, priority, args, scheduled_at, max_attempts, tags, meta, timeout, expires_at from jobs.jobs;
select jobs.update(1, scheduled_at => '2001-01-01Z', args => 'null', tags => '{}', meta => '{}');
select state, queue, priority, args, scheduled_at, max_attempts, tags, meta from jobs.jobs;
select id, args, queue, scheduled_at, deadline_at, tags, meta from jobs.fetch('r');

-- An available job keeps its place in the lane; with another queue or priority it goes to the end
-- of its new one.
select id as a from jobs.insert('a') \gset
select id as b from jobs.insert('b') \gset
select id as c from jobs.insert('c') \gset
select jobs.update(:a, args => '1'), jobs.update(:b, priority => 1);
select kind from jobs.fetch(max_jobs => 10);
-- A pending one stays pending, and is due when it is activated.
select id as p from jobs.insert('p', pending => true) \gset
select jobs.update(:p, scheduled_at => '2999-01-01Z');
select jobs.activate(:p);
select state, scheduled_at from jobs.jobs where id = :p;
select jobs.update(:p, scheduled_at => '2001-01-01Z');
select id as p from jobs.insert('p', pending => true) \gset
select jobs.activate(:p);
select state, scheduled_at > created_at as due_now from jobs.jobs where id = :p;
select pg_temp.try(format('select jobs.activate(%s)', :p));
-- A retryable one keeps its state and time, unless it is given another.
select id as r, token from jobs.fetch() \gset
select state from jobs.fail(:r, :token, 'no', '1 hour');
select jobs.update(:r, args => '5');
select jobs.update(:r, scheduled_at => '2999-01-01Z');
select replace(pg_temp.try(format('select jobs.activate(%s)', :r)), format('job %s:', :r), 'job R:') as refused;
-- Its key stays: what it was inserted with.
select id as u from jobs.insert('u', '{"n": 1}', '{"by_args": true}', pending => true) \gset
select jobs.update(:u, args => '{"n": 2}');
select unique_skipped_as_duplicate as skipped from jobs.insert('u', '{"n": 1}', '{"by_args": true}');
select unique_skipped_as_duplicate as skipped from jobs.insert('u', '{"n": 2}', '{"by_args": true}');

-- Refused, and nothing changes.
select call, pg_temp.try(format('select jobs.update(%s, %s)', :u, call)) from unnest(array[
  'queue => ''''', 'queue => repeat(''x'', 128)', 'priority => 32768', 'scheduled_at => ''infinity''', 'max_attempts => 0', 'tags => array[null]::text[]', 'meta => ''[]''', 'timeout => ''0''', 'timeout => ''-2 seconds''',
  'retry => ''"nosuch"''', 'expires_at => ''-infinity''']) call;
select pg_temp.try('select jobs.update(null)'), pg_temp.try('select jobs.update(999)'), pg_temp.try('select jobs.activate(null)'), pg_temp.try('select jobs.activate(999)');
select args, queue, priority, state from jobs.jobs where id = :u;
select id as x from jobs.insert('x', queue => 'x') \gset
select count(*) from jobs.fetch('x');
select replace(pg_temp.try(format('select jobs.update(%s, priority => 2)', :x)), format('job %s:', :x), 'job X:') as running;
select jobs.cancel(:x, force => true);
select replace(pg_temp.try(format('select jobs.update(%s, priority => 2)', :x)), format('job %s:', :x), 'job X:') as final;
