-- jobs.forward, forwarded_open and forward_report: jobs of outboxes in other databases.

\set a '''aaaaaaaa-0000-0000-0000-000000000000'''
\set b '''bbbbbbbb-0000-0000-0000-000000000000'''
create function pg_temp.keys(variadic n integer[]) returns uuid[] language sql as $$ select array_agg(lpad(x::text, 32, '0')::uuid order by place) from unnest(n) with ordinality as u(x, place) $$;
create function pg_temp.jobs(variadic n integer[]) returns jsonb language sql as $$ select jsonb_agg(jsonb_build_object('kind', 'k', 'args', x) order by place) from unnest(n) with ordinality as u(x, place) $$;

-- With all parameters. Elements whose key was taken are skipped, the others inserted in their
-- order; of a key that is given twice the first counts.
select jobs.forward(source => :a, keys => pg_temp.keys(1, 2), jobs => pg_temp.jobs(1, 2), deleted => null) as new; --> 2
select jobs.forward(:a, pg_temp.keys(3, 1, 4, 2), pg_temp.jobs(3, 1, 4, 2)) as new; --> 2
select jobs.forward(:b, pg_temp.keys(4, 5, 5), pg_temp.jobs(4, 5, 6)) as new; --> 1
select jobs.forward(:a, '{}', '[]') as new; --> 0
select args, state from jobs.jobs order by id; --> args|state: 1|available, 2|available, 3|available, 4|available, 5|available
-- Options are those of jobs.insert_many. A duplicate is taken, too.
select jobs.forward(:a, pg_temp.keys(6, 7), '[{"kind": "u", "unique_opts": {"by_kind": true}, "queue": "q", "priority": 3, "scheduled_at": "2999-01-01T00:00:00Z"}, {"kind": "u", "unique_opts": {"by_kind": true}}]') as new;
--> 2
select queue, priority, state, scheduled_at from jobs.jobs where kind = 'u'; --> queue|priority|state|scheduled_at: q|3|scheduled|2999-01-01 00:00:00+00
-- It is part of the transaction.
begin;
select jobs.forward(:a, pg_temp.keys(8), pg_temp.jobs(8)) as new; --> 1
savepoint s;
select jobs.forward(:a, pg_temp.keys(8, 9), pg_temp.jobs(8, 9)) as new; --> 1
rollback to s;
select jobs.forward(:a, pg_temp.keys(8, 9), pg_temp.jobs(8, 9)) as new; --> 1
rollback;
select count(*) from jobs.jobs where args in ('8', '9'); --> 0

-- An error refuses all of them; it names the element. Bad input.
select jobs.configure_queue('full', max_waiting => 1) \gset
select c as call, pg_temp.try(format('select jobs.' || c, :a)) from unnest(array[
  'forward(%L, pg_temp.keys(8, 9), ''[{"kind": "k"}, {"kid": "k"}]'')', 'forward(%L, pg_temp.keys(1, 9), ''[{"kid": "k"}, {"kind": ""}]'')',
  'forward(%L, pg_temp.keys(8, 9), ''[{"kind": "k"}, {"kind": "u", "unique_opts": {"by_kind": true, "on_conflict": "reject"}}]'')',
  'forward(%L, pg_temp.keys(8, 9), ''[{"kind": "k", "queue": "full"}, {"kind": "k", "queue": "full"}]'')',
  'forward(null, ''{}'', ''[]'')', 'forward(%L, null, ''[]'')', 'forward(%L, ''{null}'', ''[{"kind": "k"}]'')', 'forward(%L, ''{}'', null)', 'forward(%L, ''{}'', ''{}'')', 'forward(%L, ''{}'', ''[]'', ''{null}'')',
  'forward(%L, pg_temp.keys(8), ''[]'')', 'forward(%L, pg_temp.keys(1), pg_temp.jobs(1, 2))', 'forwarded_open(null)',
  'forward_report(null, ''a'', 0, null, 0)', 'forward_report(%L, null, 0, null, 0)', 'forward_report(%L, '''', 0, null, 0)', 'forward_report(%L, ''a'', null, null, 0)', 'forward_report(%L, ''a'', -1, null, 0)', 'forward_report(%L, ''a'', 0, null, null)', 'forward_report(%L, ''a'', 0, null, -1)', 'forward_report(%L, ''a'', 0, ''-infinity'', 0)']) c;
--> call|try
--> forward(%L, pg_temp.keys(8, 9), '[{"kind": "k"}, {"kid": "k"}]')|22023: field "kid" of jobs is not known | Did you mean "kind"?
-->   Element 2: The fields are kind, args, unique_opts, queue, priority, scheduled_at, max_attempts, tags, meta, timeout, retry, expires_at, pending.
--> forward(%L, pg_temp.keys(1, 9), '[{"kid": "k"}, {"kind": ""}]')|22023: kind must not be empty
-->   Element 2: A kind must have 1 to 127 characters and no control characters.
--> forward(%L, pg_temp.keys(8, 9), '[{"kind": "k"}, {"kind": "u", "unique_opts": {"by_kind": true, "on_conflict": "reject"}}]')|23505: a job with the same unique key exists
-->   {"existing_job_id":6,"existing_job_state":"scheduled","index":2}
--> forward(%L, pg_temp.keys(8, 9), '[{"kind": "k", "queue": "full"}, {"kind": "k", "queue": "full"}]')|54000: queue "full" has no room for 2 more jobs | Retry when workers have taken some of its jobs, or raise max_waiting with jobs.configure_queue.
-->   {"depth":0,"bound":1}
--> forward(null, '{}', '[]')|22004: source must not be null
--> forward(%L, null, '[]')|22004: keys must not be null
--> forward(%L, '{null}', '[{"kind": "k"}]')|22004: an element of keys must not be null
--> forward(%L, '{}', null)|22004: jobs must not be null
--> forward(%L, '{}', '{}')|22023: jobs must not be an object | Use jobs.insert for a single job.
-->   jobs must be an array with an object for each job.
--> forward(%L, '{}', '[]', '{null}')|22004: an element of deleted must not be null
--> forward(%L, pg_temp.keys(8), '[]')|22023: keys and jobs differ in length: 1 and 0
-->   Each job must have a key.
--> forward(%L, pg_temp.keys(1), pg_temp.jobs(1, 2))|22023: keys and jobs differ in length: 1 and 2
-->   Each job must have a key.
--> forwarded_open(null)|22004: source must not be null
--> forward_report(null, 'a', 0, null, 0)|22004: source must not be null
--> forward_report(%L, null, 0, null, 0)|22004: address must not be null
--> forward_report(%L, '', 0, null, 0)|22023: address "" is not an address
-->   address must have 1 to 1000 characters and no control characters.
--> forward_report(%L, 'a', null, null, 0)|22004: waiting must not be null
--> forward_report(%L, 'a', -1, null, 0)|22023: waiting -1 is negative
-->   waiting must be 0 or more.
--> forward_report(%L, 'a', 0, null, null)|22004: refused must not be null
--> forward_report(%L, 'a', 0, null, -1)|22023: refused -1 is negative
-->   refused must be 0 or more.
--> forward_report(%L, 'a', 0, '-infinity', 0)|22023: oldest_at -infinity is out of range
-->   oldest_at must be finite.
select count(*) from jobs.forwarded where key = any (pg_temp.keys(8, 9)); --> 0

-- The outbox may still have rows of these keys, until it says that they are deleted.
select jobs.forward(:a, '{}', '[]', pg_temp.keys(1, 2, 5, 99)) as new; --> 0
select o as open, deleted_at is not null as deleted from jobs.forwarded_open(:a) o join jobs.forwarded on key = o order by 1;
--> open|deleted
--> 00000000-0000-0000-0000-000000000003|f
--> 00000000-0000-0000-0000-000000000004|f
--> 00000000-0000-0000-0000-000000000006|f
--> 00000000-0000-0000-0000-000000000007|f
select right(key::text, 1) as key, left(source::text, 1) as source, deleted_at is not null as deleted from jobs.forwarded order by key;
--> key|source|deleted
--> 1|a|t
--> 2|a|t
--> 3|a|f
--> 4|a|f
--> 5|b|f
--> 6|a|f
--> 7|a|f
-- Those that were deleted are remembered for jobs.retention_forwarded, the others for ever.
call pg_temp.later('6 days');
select rows from jobs.maintain() where task = 'prune'; --> 0
-- One that the outbox has again counts as not deleted.
select jobs.forward(:a, pg_temp.keys(1, 3), pg_temp.jobs(1, 3)) as new; --> 0
select o as open from jobs.forwarded_open(:a) o order by 1;
--> 00000000-0000-0000-0000-000000000001
--> 00000000-0000-0000-0000-000000000003
--> 00000000-0000-0000-0000-000000000004
--> 00000000-0000-0000-0000-000000000006
--> 00000000-0000-0000-0000-000000000007
call pg_temp.later('2 days');
select rows from jobs.maintain() where task = 'prune'; --> 1
select jobs.forward(:a, pg_temp.keys(1, 2, 3), pg_temp.jobs(1, 2, 3)) as new; --> 1
begin;
call pg_temp.later('10 years');
select rows >= 0 as pruned from jobs.maintain() where task = 'prune'; --> t
select count(*), count(deleted_at) as deleted from jobs.forwarded; --> count|deleted: 7|0
rollback;

-- What is reported of an outbox.
select jobs.forward_report(source => :a, address => 'db.example:5432/shop', waiting => 0, oldest_at => null, refused => 0);
select jobs.forward_report(:b, repeat('o', 1000), 3, now(), 0);
select count(*) from jobs.health() where finding like 'forward%'; --> 0
select jobs.forward_report(:b, 'other.example/shop', 3, now() - interval '6 minutes', 2);
select left(source::text, 1) as source, address, waiting, date_trunc('second', now() - oldest_at) as age, refused, seen_at <= clock_timestamp() as seen from jobs.forwarder order by 1;
--> source|address|waiting|age|refused|seen
--> a|db.example:5432/shop|0|~|0|t
--> b|other.example/shop|3|00:06:00|2|t
select severity, finding, message, hint from jobs.health() where finding like 'forward%';
--> severity|finding|message|hint
--> warning|forward_behind|the oldest of 3 rows waiting in outbox "other.example/shop" is 6 min old|Start pgjobs forward, or see its log. Last report: SELECT metric, labels, value FROM jobs.metrics() WHERE metric LIKE 'jobs_forward%'; If the outbox no longer exists: DELETE FROM jobs.forwarder WHERE source = 'bbbbbbbb-0000-0000-0000-000000000000';
--> warning|forward_refused|this queue refuses 2 rows of outbox "other.example/shop"|Errors: pgjobs forward --status. In that database, jobs.retry_outbox() retries rows and jobs.drop_outbox(ids) deletes them. All outboxes: SELECT metric, labels, value FROM jobs.metrics() WHERE metric LIKE 'jobs_forward%';
select metric, type, labels ->> 'address' as address, left(labels ->> 'source', 1) as source, case when metric like '%seconds' then round(value / 60) else value end as value from jobs.metrics() where metric like 'jobs_forward%';
--> metric|type|address|source|value
--> jobs_forward_behind_seconds|gauge|db.example:5432/shop|a|0
--> jobs_forward_behind_seconds|gauge|other.example/shop|b|6
--> jobs_forward_refused_rows|gauge|db.example:5432/shop|a|0
--> jobs_forward_refused_rows|gauge|other.example/shop|b|2
--> jobs_forward_waiting_rows|gauge|db.example:5432/shop|a|0
--> jobs_forward_waiting_rows|gauge|other.example/shop|b|3
-- One that is reported no more.
call pg_temp.later('61 minutes');
select severity, finding, message from jobs.health() where finding like 'forward%' order by 1, 2, 3;
--> severity|finding|message
--> critical|forward_behind|no forwarder has reported outbox "db.example:5432/shop" for 1 h 1 min
--> critical|forward_behind|no forwarder has reported outbox "other.example/shop" for 1 h 1 min
--> warning|forward_refused|this queue refuses 2 rows of outbox "other.example/shop"
select jobs.forward_report(:b, 'other.example/shop', 0, null, 0);
call pg_temp.later('6 days 23 hours');
select rows from jobs.maintain() where task = 'prune'; --> 1
select address from jobs.forwarder; --> other.example/shop

-- A producer may call them, and sees nothing.
create role jobs_forwarder;
select jobs.grant_producer('jobs_forwarder') \gset
set role jobs_forwarder;
select jobs.forward(:a, pg_temp.keys(10), pg_temp.jobs(10)) as new; --> 1
select count(*) > 0 as open from jobs.forwarded_open(:a); --> t
select jobs.forward_report(:a, 'a', 0, null, 0);
select pg_temp.code('select from jobs.forwarded'), pg_temp.code('select from jobs.forwarder'); --> code|code: 42501|42501
reset role;
select jobs.revoke('jobs_forwarder');
drop role jobs_forwarder;
