\set ECHO none
-- jobs.insert: what it writes, answers and defaults to.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Defaults: queue default, priority 1, max_attempts 25, timeout 1 minute, tags {}, meta {}, args
-- {}.
select id, state, unique_skipped_as_duplicate, replaced_id, queue, created_at between now() and clock_timestamp() as is_now,
       scheduled_at = created_at as due_at_once
  from jobs.insert('email.send');
select id, state, queue, kind, priority, attempt, max_attempts, args, meta, tags, timeout, attempted_at, finalized_at, expires_at,
       cancel_requested_at, worker, output, scheduled_at = created_at as due_at_once
  from jobs.jobs;

-- Every parameter by name; none is lost.
select id, state, unique_skipped_as_duplicate, replaced_id, queue, created_at between now() and clock_timestamp() as is_now, scheduled_at
  from jobs.insert(kind => 'report', args => '{"a": [1, 2.50, "x"]}', unique_opts => '{}', queue => 'slow', priority => -5,
                   scheduled_at => '2999-12-31 23:59:59.123456+00', max_attempts => 3, tags => '{b,a,b}', meta => '{"tenant": 7}',
                   timeout => '2 hours', retry => '"river"', expires_at => '3000-01-01 00:00+00', pending => false);
select id, state, queue, kind, priority, attempt, max_attempts, args, meta, tags, timeout, expires_at, scheduled_at from jobs.jobs where id = 2;

-- NULL means the default, for each but kind and args.
select id, state, queue from jobs.insert('k', '{}', null, null, null, null, null, null, null, null, null, null, null);
select id, state, queue, priority, max_attempts, meta, tags, timeout, expires_at from jobs.jobs where id = 3;

-- JSON null, scalars and arrays are values of args; {} is what leaving args out means.
select id from jobs.insert('k', 'null');
select id from jobs.insert('k', '[1, [2], {}]');
select id from jobs.insert('k', '42');
select id from jobs.insert('k', '"text"');
select id, args from jobs.jobs where kind = 'k' and args <> '{}' order by id;

-- The initial state: in the future scheduled, else available; pending whatever its time.
select id, state, scheduled_at > created_at as later from jobs.insert('s', scheduled_at => now() + interval '1 hour');
select id, state, scheduled_at from jobs.insert('s', scheduled_at => '2001-01-01 00:00+00');
select id, state, scheduled_at = created_at as due_at_once from jobs.insert('s', pending => true);
select id, state, scheduled_at from jobs.insert('s', pending => true, scheduled_at => '2999-01-01 00:00+00');
select id, state, scheduled_at from jobs.insert('s', pending => true, scheduled_at => '2001-01-01 00:00+00');
select id, state, scheduled_at from jobs.insert('s', scheduled_at => '4713-01-01 00:00+00 BC');
select id, state, scheduled_at from jobs.insert('s', scheduled_at => '294276-12-31 00:00+00');
select id, state, scheduled_at, attempt from jobs.jobs where kind = 's' and scheduled_at <> created_at and id <> 8 order by id;

-- The time is the clock, not the transaction's start.
begin;
select pg_sleep(0.01) \gset
select created_at > now() as clock from jobs.insert('clock');
rollback;

-- The limits of numbers and names are in range.
select queue, state from jobs.insert('p', priority => -32768, max_attempts => 1, timeout => '1 microsecond');
select queue, state from jobs.insert('p', priority => 32767, max_attempts => 2147483647, timeout => '-1 second');
select length(queue) from jobs.insert(repeat('k', 127), queue => repeat('q', 127));
select length(queue), octet_length(queue) from jobs.insert(repeat('日', 127), queue => repeat('😀', 127));
select length(kind), octet_length(kind) from jobs.jobs where length(kind) = 127 order by id;
select priority, max_attempts, timeout from jobs.jobs where kind = 'p' order by id;
-- -1 means no limit, in any way to write it.
select id is not null as inserted from jobs.insert('t', timeout => '-1');
select id is not null as inserted from jobs.insert('t', timeout => 'PT-1S');
select id is not null as inserted from jobs.insert('t', timeout => '-1000 milliseconds');
select distinct timeout from jobs.jobs where kind = 't';

-- Names are data: nothing in them is ever SQL.
select queue from jobs.insert('''; drop schema jobs cascade; --', queue => '"$1"\', tags => '{"'';","{}",""}', meta => '{"''": "$$"}');
select kind, queue, tags, meta from jobs.jobs where queue = '"$1"\';
select kind from jobs.fetch('"$1"\');
select queue from jobs.insert(' ', queue => ' spaces ');
select kind from jobs.fetch('spaces');
select kind = ' ' as kept from jobs.fetch(' spaces ');

-- Big values, deep ones, numbers that no double holds, strings that are not in normal form.
select id is not null as inserted from jobs.insert('big', to_jsonb(repeat('x', 1000000)));
select length(args #>> '{}') from jobs.jobs where kind = 'big';
select id is not null as inserted from jobs.insert('deep', (repeat('[', 5000) || repeat(']', 5000))::jsonb, meta => (repeat('{"a":', 5000) || '1' || repeat('}', 5000))::jsonb);
select args::text = repeat('[', 5000) || repeat(']', 5000) as args_kept, length(meta::text) from jobs.jobs where kind = 'deep';
select id is not null as inserted from jobs.insert('exact', '{"n": 9007199254740993, "d": 1.00, "e": 1e400, "s": "\u00e9", "t": "e\u0301"}');
select args ->> 'n' as n, args ->> 'd' as d, length(args ->> 'e') as digits, length(args ->> 's') as s, length(args ->> 't') as t
  from jobs.jobs where kind = 'exact';
select id is not null as inserted from jobs.insert('tags', tags => array(select 'tag ' || n from generate_series(1, 10000) n));
select cardinality(tags), tags[10000] from jobs.jobs where kind = 'tags';
select id is not null as inserted from jobs.insert('tags2', tags => '{}');
select tags from jobs.jobs where kind = 'tags2';

-- It is part of the caller's transaction, also of its savepoints.
begin;
select id is not null as inserted from jobs.insert('tx');
savepoint a;
select id is not null as inserted from jobs.insert('tx');
rollback to a;
select id is not null as inserted from jobs.insert('tx');
release a;
commit;
select count(*) from jobs.jobs where kind = 'tx';
begin;
select id is not null as inserted from jobs.insert('tx');
rollback;
select count(*) from jobs.jobs where kind = 'tx';

-- Plain text literals and untyped parameters find the function, positionally and by name.
prepare p as select state from jobs.insert(kind => $1, queue => $2, args => $3, tags => $4, scheduled_at => $5, timeout => $6);
execute p ('prepared', 'q', '{}', '{}', null, '1 minute');
prepare q as select state from jobs.insert($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
execute q ('prepared', '{}', null, null, null, null, null, null, null, null, null, null, null);
select proname, count(*) from pg_proc where pronamespace = 'jobs'::regnamespace group by proname having count(*) > 1;

-- As a function of many rows, in an expression, in a CTE.
select count(*), count(distinct (i).id) from (select jobs.insert('row', to_jsonb(n)) as i from generate_series(1, 500) n) x;
with i as (select * from jobs.insert('cte')) select state from i;
