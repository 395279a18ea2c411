\set ECHO none
-- jobs.forward, forwarded_open and forward_report: jobs of outboxes in other databases.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

\set a '''aaaaaaaa-0000-0000-0000-000000000000'''
\set b '''bbbbbbbb-0000-0000-0000-000000000000'''
create function pg_temp.keys(variadic n integer[]) returns uuid[] language sql as $$ select array_agg(lpad(x::text, 32, '0')::uuid order by place) from unnest(n) with ordinality as u(x, place) $$;
create function pg_temp.jobs(variadic n integer[]) returns jsonb language sql as $$ select jsonb_agg(jsonb_build_object('kind', 'k', 'args', x) order by place) from unnest(n) with ordinality as u(x, place) $$;

-- With all parameters. Elements whose key was taken are skipped, the others inserted in their
-- order; of a key that is given twice the first counts.
select jobs.forward(source => :a, keys => pg_temp.keys(1, 2), jobs => pg_temp.jobs(1, 2), deleted => null) as new;
select jobs.forward(:a, pg_temp.keys(3, 1, 4, 2), pg_temp.jobs(3, 1, 4, 2)) as new;
select jobs.forward(:b, pg_temp.keys(4, 5, 5), pg_temp.jobs(4, 5, 6)) as new;
select jobs.forward(:a, '{}', '[]') as new;
select args, state from jobs.jobs order by id;
-- Options are those of jobs.insert_many. A duplicate is taken, too.
select jobs.forward(:a, pg_temp.keys(6, 7), '[{"kind": "u", "unique_opts": {"by_kind": true}, "queue": "q", "priority": 3, "scheduled_at": "2999-01-01T00:00:00Z"}, {"kind": "u", "unique_opts": {"by_kind": true}}]') as new;
select queue, priority, state, scheduled_at from jobs.jobs where kind = 'u';
-- It is part of the transaction.
begin;
select jobs.forward(:a, pg_temp.keys(8), pg_temp.jobs(8)) as new;
savepoint s;
select jobs.forward(:a, pg_temp.keys(8, 9), pg_temp.jobs(8, 9)) as new;
rollback to s;
select jobs.forward(:a, pg_temp.keys(8, 9), pg_temp.jobs(8, 9)) as new;
rollback;
select count(*) from jobs.jobs where args in ('8', '9');

-- An error refuses all of them; it names the element. Bad input.
select jobs.configure_queue('full', max_waiting => 1) \gset
select c as call, pg_temp.try(format('select jobs.' || c, :a)) from unnest(array[
  'forward(%L, pg_temp.keys(8, 9), ''[{"kind": "k"}, {"kid": "k"}]'')', 'forward(%L, pg_temp.keys(1, 9), ''[{"kid": "k"}, {"kind": ""}]'')',
  'forward(%L, pg_temp.keys(8, 9), ''[{"kind": "k"}, {"kind": "u", "unique_opts": {"by_kind": true, "on_conflict": "reject"}}]'')',
  'forward(%L, pg_temp.keys(8, 9), ''[{"kind": "k", "queue": "full"}, {"kind": "k", "queue": "full"}]'')',
  'forward(null, ''{}'', ''[]'')', 'forward(%L, null, ''[]'')', 'forward(%L, ''{null}'', ''[{"kind": "k"}]'')', 'forward(%L, ''{}'', null)', 'forward(%L, ''{}'', ''{}'')', 'forward(%L, ''{}'', ''[]'', ''{null}'')',
  'forward(%L, pg_temp.keys(8), ''[]'')', 'forward(%L, pg_temp.keys(1), pg_temp.jobs(1, 2))', 'forwarded_open(null)',
  'forward_report(null, ''a'', 0, null, 0)', 'forward_report(%L, null, 0, null, 0)', 'forward_report(%L, '''', 0, null, 0)', 'forward_report(%L, ''a'', null, null, 0)', 'forward_report(%L, ''a'', -1, null, 0)', 'forward_report(%L, ''a'', 0, null, null)', 'forward_report(%L, ''a'', 0, null, -1)', 'forward_report(%L, ''a'', 0, ''-infinity'', 0)']) c;
select count(*) from jobs.forwarded where key = any (pg_temp.keys(8, 9));

-- The outbox may still have rows of these keys, until it says that they are deleted.
select jobs.forward(:a, '{}', '[]', pg_temp.keys(1, 2, 5, 99)) as new;
select o as open, deleted_at is not null as deleted from jobs.forwarded_open(:a) o join jobs.forwarded on key = o order by 1;
select right(key::text, 1) as key, left(source::text, 1) as source, deleted_at is not null as deleted from jobs.forwarded order by key;
-- Those that were deleted are remembered for jobs.retention_forwarded, the others for ever.
call pg_temp.later('6 days');
select rows from jobs.maintain() where task = 'prune';
-- One that the outbox has again counts as not deleted.
select jobs.forward(:a, pg_temp.keys(1, 3), pg_temp.jobs(1, 3)) as new;
select o as open from jobs.forwarded_open(:a) o order by 1;
call pg_temp.later('2 days');
select rows from jobs.maintain() where task = 'prune';
select jobs.forward(:a, pg_temp.keys(1, 2, 3), pg_temp.jobs(1, 2, 3)) as new;
begin;
call pg_temp.later('10 years');
select rows >= 0 as pruned from jobs.maintain() where task = 'prune';
select count(*), count(deleted_at) as deleted from jobs.forwarded;
rollback;

-- What is reported of an outbox.
select jobs.forward_report(source => :a, address => 'db.example:5432/shop', waiting => 0, oldest_at => null, refused => 0);
select jobs.forward_report(:b, repeat('o', 1000), 3, now(), 0);
select count(*) from jobs.health() where finding like 'forward%';
select jobs.forward_report(:b, 'other.example/shop', 3, now() - interval '6 minutes', 2);
select left(source::text, 1) as source, address, waiting, date_trunc('second', now() - oldest_at) as age, refused, seen_at <= clock_timestamp() as seen from jobs.forwarder order by 1;
select severity, finding, message, hint from jobs.health() where finding like 'forward%';
select metric, type, labels ->> 'address' as address, left(labels ->> 'source', 1) as source, case when metric like '%seconds' then round(value / 60) else value end as value from jobs.metrics() where metric like 'jobs_forward%';
-- One that is reported no more.
call pg_temp.later('61 minutes');
select severity, finding, message from jobs.health() where finding like 'forward%' order by 1, 2, 3;
select jobs.forward_report(:b, 'other.example/shop', 0, null, 0);
call pg_temp.later('6 days 23 hours');
select rows from jobs.maintain() where task = 'prune';
select address from jobs.forwarder;

-- A producer may call them, and sees nothing.
create role jobs_forwarder;
select jobs.grant_producer('jobs_forwarder') \gset
set role jobs_forwarder;
select jobs.forward(:a, pg_temp.keys(10), pg_temp.jobs(10)) as new;
select count(*) > 0 as open from jobs.forwarded_open(:a);
select jobs.forward_report(:a, 'a', 0, null, 0);
select pg_temp.code('select from jobs.forwarded'), pg_temp.code('select from jobs.forwarder');
reset role;
select jobs.revoke('jobs_forwarder');
drop role jobs_forwarder;
