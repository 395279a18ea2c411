-- jobs.update and jobs.activate.

-- Every field. Null leaves it as it is.
select id from jobs.insert('k', '{"a": 1}', queue => 'q', priority => 5, max_attempts => 3, tags => '{x}', meta => '{"m": 1}', timeout => '5 min', expires_at => '2998-01-01Z'); --> 1
select jobs.update(1); --> available
select queue, priority, args, scheduled_at = created_at as at_once, max_attempts, tags, meta, timeout, expires_at from jobs.jobs;
--> queue|priority|args|at_once|max_attempts|tags|meta|timeout|expires_at
--> q|5|{"a": 1}|t|3|{x}|{"m": 1}|00:05:00|2998-01-01 00:00:00+00
select jobs.update(1, '{"a": 2}', 'r', 7, '2999-01-01Z', 4, '{y,z}', '{"m": 2}', '-1 second', '"river"', '2999-12-31Z'); --> scheduled
select state, queue, priority, args, scheduled_at, max_attempts, tags, meta, timeout, expires_at from jobs.jobs;
--> state|queue|priority|args|scheduled_at|max_attempts|tags|meta|timeout|expires_at
--> scheduled|r|7|{"a": 2}|2999-01-01 00:00:00+00|4|{y,z}|{"m": 2}|-00:00:01|2999-12-31 00:00:00+00
select jobs.update(1, scheduled_at => '2001-01-01Z', args => 'null', tags => '{}', meta => '{}'); --> available
select state, queue, priority, args, scheduled_at, max_attempts, tags, meta from jobs.jobs;
--> state|queue|priority|args|scheduled_at|max_attempts|tags|meta
--> available|r|7|null|2001-01-01 00:00:00+00|4|{}|{}
select id, args, queue, scheduled_at, deadline_at, tags, meta from jobs.fetch('r'); --> id|args|queue|scheduled_at|deadline_at|tags|meta: 1|null|r|2001-01-01 00:00:00+00|~|{}|{}

-- An available job keeps its place in the lane; with another queue or priority it goes to the end
-- of its new one.
select id as a from jobs.insert('a') \gset
select id as b from jobs.insert('b') \gset
select id as c from jobs.insert('c') \gset
select jobs.update(:a, args => '1'), jobs.update(:b, priority => 1); --> update|update: available|available
select kind from jobs.fetch(max_jobs => 10); --> a, c, b
-- A pending one stays pending, and is due when it is activated.
select id as p from jobs.insert('p', pending => true) \gset
select jobs.update(:p, scheduled_at => '2999-01-01Z'); --> pending
select jobs.activate(:p); --> scheduled
select state, scheduled_at from jobs.jobs where id = :p; --> state|scheduled_at: scheduled|2999-01-01 00:00:00+00
select jobs.update(:p, scheduled_at => '2001-01-01Z'); --> available
select id as p from jobs.insert('p', pending => true) \gset
select jobs.activate(:p); --> available
select state, scheduled_at > created_at as due_now from jobs.jobs where id = :p; --> state|due_now: available|t
select pg_temp.try(format('select jobs.activate(%s)', :p));
--> 55000: cannot activate job 9: it is available
-->   Only a pending job can be activated.
-- A retryable one keeps its state and time, unless it is given another.
select id as r, token from jobs.fetch() \gset
select state from jobs.fail(:r, :token, 'no', '1 hour'); --> retryable
select jobs.update(:r, args => '5'); --> retryable
select jobs.update(:r, scheduled_at => '2999-01-01Z'); --> scheduled
select replace(pg_temp.try(format('select jobs.activate(%s)', :r)), format('job %s:', :r), 'job R:') as refused;
--> 55000: cannot activate job R: it is scheduled | Use jobs.retry to make it available.
-->   Only a pending job can be activated.
-- Its key stays: what it was inserted with.
select id as u from jobs.insert('u', '{"n": 1}', '{"by_args": true}', pending => true) \gset
select jobs.update(:u, args => '{"n": 2}'); --> pending
select unique_skipped_as_duplicate as skipped from jobs.insert('u', '{"n": 1}', '{"by_args": true}'); --> t
select unique_skipped_as_duplicate as skipped from jobs.insert('u', '{"n": 2}', '{"by_args": true}'); --> f

-- Refused, and nothing changes.
select pg_temp.refusals('select jobs.update(' || :u || ', %s)', array[
  'queue => ''''', 'queue => repeat(''x'', 128)', 'priority => 32768', 'scheduled_at => ''infinity''', 'max_attempts => 0', 'tags => array[null]::text[]', 'meta => ''[]''', 'timeout => ''0''', 'timeout => ''-2 seconds''',
  'retry => ''"nosuch"''', 'expires_at => ''-infinity''']);
--> queue => '' | 22023: queue must not be empty
--> queue => repeat('x', 128) | 22023: queue "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..." is too long: 128 characters
-->   A queue must have 1 to 127 characters and no control characters.
--> priority => 32768 | 22023: priority 32768 is out of range
-->   priority must be between -32768 and 32767; lower numbers run first.
--> scheduled_at => 'infinity' | 22023: scheduled_at infinity is out of range
-->   scheduled_at must be finite.
--> max_attempts => 0 | 22023: max_attempts 0 is too low
-->   max_attempts must be at least 1; it includes the first attempt.
--> tags => array[null]::text[] | 22004: an element of tags must not be null
--> meta => '[]' | 22023: meta must not be an array
-->   meta must be an object.
--> timeout => '0' | 22023: timeout "00:00:00" is out of range | Use -1 second for no limit.
--> timeout => '-2 seconds' | 22023: timeout "-00:00:02" is out of range | Use -1 second for no limit.
-->   timeout must be longer than 0 and at most 1000 years.
--> retry => '"nosuch"' | 22023: retry "nosuch" is not known
-->   retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.
--> expires_at => '-infinity' | 22023: expires_at -infinity is out of range
-->   expires_at must be finite.
select pg_temp.refusals('select jobs.%s', '{update(null),update(999),activate(null),activate(999)}');
--> update(null) | 22004: id must not be null
--> activate(null) | 22004: id must not be null
--> update(999) | P0002: job 999 does not exist
--> activate(999) | P0002: job 999 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
select args, queue, priority, state from jobs.jobs where id = :u; --> args|queue|priority|state: {"n": 2}|default|1|pending
select id as x from jobs.insert('x', queue => 'x') \gset
select count(*) from jobs.fetch('x'); --> 1
select replace(pg_temp.try(format('select jobs.update(%s, priority => 2)', :x)), format('job %s:', :x), 'job X:') as running;
--> 55000: cannot update job X: it is running | Cancel it and insert another job.
-->   Only a pending, scheduled, available or retryable job can be updated.
select jobs.cancel(:x, force => true); --> cancelled
select replace(pg_temp.try(format('select jobs.update(%s, priority => 2)', :x)), format('job %s:', :x), 'job X:') as final;
--> 55000: cannot update job X: it is cancelled | Use jobs.retry to make it available again.
-->   Only a pending, scheduled, available or retryable job can be updated.
