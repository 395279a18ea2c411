-- jobs.insert: what it writes, answers and defaults to.

-- Defaults: queue default, priority 1, max_attempts 25, timeout 1 minute, tags {}, meta {}, args
-- {}.
select id, state, unique_skipped_as_duplicate, replaced_id, queue, created_at between now() and clock_timestamp() as is_now,
       scheduled_at = created_at as due_at_once
  from jobs.insert('email.send');
--> id|state|unique_skipped_as_duplicate|replaced_id|queue|is_now|due_at_once
--> 1|available|f|~|default|t|t
select id, state, queue, kind, priority, attempt, max_attempts, args, meta, tags, timeout, attempted_at, finalized_at, expires_at,
       cancel_requested_at, worker, output, scheduled_at = created_at as due_at_once
  from jobs.jobs;
--> id|state|queue|kind|priority|attempt|max_attempts|args|meta|tags|timeout|attempted_at|finalized_at|expires_at|cancel_requested_at|worker|output|due_at_once
--> 1|available|default|email.send|1|0|25|{}|{}|{}|00:01:00|~|~|~|~|~|~|t

-- Every parameter by name; none is lost.
select id, state, unique_skipped_as_duplicate, replaced_id, queue, created_at between now() and clock_timestamp() as is_now, scheduled_at
  from jobs.insert(kind => 'report', args => '{"a": [1, 2.50, "x"]}', unique_opts => '{}', queue => 'slow', priority => -5,
                   scheduled_at => '2999-12-31 23:59:59.123456+00', max_attempts => 3, tags => '{b,a,b}', meta => '{"tenant": 7}',
                   timeout => '2 hours', retry => '"river"', expires_at => '3000-01-01 00:00+00', pending => false);
--> id|state|unique_skipped_as_duplicate|replaced_id|queue|is_now|scheduled_at
--> 2|scheduled|f|~|slow|t|2999-12-31 23:59:59.123456+00
select id, state, queue, kind, priority, attempt, max_attempts, args, meta, tags, timeout, expires_at, scheduled_at from jobs.jobs where id = 2;
--> id|state|queue|kind|priority|attempt|max_attempts|args|meta|tags|timeout|expires_at|scheduled_at
--> 2|scheduled|slow|report|-5|0|3|{"a": [1, 2.50, "x"]}|{"tenant": 7}|{b,a,b}|02:00:00|3000-01-01 00:00:00+00|2999-12-31 23:59:59.123456+00

-- NULL means the default, for each but kind and args.
select id, state, queue from jobs.insert('k', '{}', null, null, null, null, null, null, null, null, null, null, null); --> id|state|queue: 3|available|default
select id, state, queue, priority, max_attempts, meta, tags, timeout, expires_at from jobs.jobs where id = 3;
--> id|state|queue|priority|max_attempts|meta|tags|timeout|expires_at
--> 3|available|default|1|25|{}|{}|00:01:00|~

-- JSON null, scalars and arrays are values of args; {} is what leaving args out means.
select id from jobs.insert('k', 'null'); --> 4
select id from jobs.insert('k', '[1, [2], {}]'); --> 5
select id from jobs.insert('k', '42'); --> 6
select id from jobs.insert('k', '"text"'); --> 7
select id, args from jobs.jobs where kind = 'k' and args <> '{}' order by id; --> id|args: 4|null, 5|[1, [2], {}], 6|42, 7|"text"

-- The initial state: in the future scheduled, else available; pending whatever its time.
select id, state, scheduled_at > created_at as later from jobs.insert('s', scheduled_at => now() + interval '1 hour'); --> id|state|later: 8|scheduled|t
select id, state, scheduled_at from jobs.insert('s', scheduled_at => '2001-01-01 00:00+00'); --> id|state|scheduled_at: 9|available|2001-01-01 00:00:00+00
select id, state, scheduled_at = created_at as due_at_once from jobs.insert('s', pending => true); --> id|state|due_at_once: 10|pending|t
select id, state, scheduled_at from jobs.insert('s', pending => true, scheduled_at => '2999-01-01 00:00+00'); --> id|state|scheduled_at: 11|pending|2999-01-01 00:00:00+00
select id, state, scheduled_at from jobs.insert('s', pending => true, scheduled_at => '2001-01-01 00:00+00'); --> id|state|scheduled_at: 12|pending|2001-01-01 00:00:00+00
select id, state, scheduled_at from jobs.insert('s', scheduled_at => '4713-01-01 00:00+00 BC'); --> id|state|scheduled_at: 13|available|4713-01-01 00:00:00+00 BC
select id, state, scheduled_at from jobs.insert('s', scheduled_at => '294276-12-31 00:00+00'); --> id|state|scheduled_at: 14|scheduled|294276-12-31 00:00:00+00
select id, state, scheduled_at, attempt from jobs.jobs where kind = 's' and scheduled_at <> created_at and id <> 8 order by id;
--> id|state|scheduled_at|attempt
--> 9|available|2001-01-01 00:00:00+00|0
--> 11|pending|2999-01-01 00:00:00+00|0
--> 12|pending|2001-01-01 00:00:00+00|0
--> 13|available|4713-01-01 00:00:00+00 BC|0
--> 14|scheduled|294276-12-31 00:00:00+00|0

-- The time is the clock, not the transaction's start.
begin;
select pg_sleep(0.01) \gset
select created_at > now() as clock from jobs.insert('clock'); --> t
rollback;

-- The limits of numbers and names are in range.
select queue, state from jobs.insert('p', priority => -32768, max_attempts => 1, timeout => '1 microsecond'); --> queue|state: default|available
select queue, state from jobs.insert('p', priority => 32767, max_attempts => 2147483647, timeout => '-1 second'); --> queue|state: default|available
select length(queue) from jobs.insert(repeat('k', 127), queue => repeat('q', 127)); --> 127
select length(queue), octet_length(queue) from jobs.insert(repeat('日', 127), queue => repeat('😀', 127)); --> length|octet_length: 127|508
select length(kind), octet_length(kind) from jobs.jobs where length(kind) = 127 order by id; --> length|octet_length: 127|127, 127|381
select priority, max_attempts, timeout from jobs.jobs where kind = 'p' order by id;
--> priority|max_attempts|timeout
--> -32768|1|00:00:00.000001
--> 32767|2147483647|-00:00:01
-- -1 means no limit, in any way to write it.
select id is not null as inserted from jobs.insert('t', timeout => '-1'); --> t
select id is not null as inserted from jobs.insert('t', timeout => 'PT-1S'); --> t
select id is not null as inserted from jobs.insert('t', timeout => '-1000 milliseconds'); --> t
select distinct timeout from jobs.jobs where kind = 't'; --> -00:00:01

-- Names are data: nothing in them is ever SQL.
select queue from jobs.insert('''; drop schema jobs cascade; --', queue => '"$1"\', tags => '{"'';","{}",""}', meta => '{"''": "$$"}'); --> "$1"\
select kind, queue, tags, meta from jobs.jobs where queue = '"$1"\'; --> kind|queue|tags|meta: '; drop schema jobs cascade; --|"$1"\|{';,"{}",""}|{"'": "$$"}
select kind from jobs.fetch('"$1"\'); --> '; drop schema jobs cascade; --
select queue from jobs.insert(' ', queue => ' spaces '); -->  spaces 
select kind from jobs.fetch('spaces'); --> none
select kind = ' ' as kept from jobs.fetch(' spaces '); --> t

-- Big values, deep ones, numbers that no double holds, strings that are not in normal form.
select id is not null as inserted from jobs.insert('big', to_jsonb(repeat('x', 1000000))); --> t
select length(args #>> '{}') from jobs.jobs where kind = 'big'; --> 1000000
select id is not null as inserted from jobs.insert('deep', (repeat('[', 5000) || repeat(']', 5000))::jsonb, meta => (repeat('{"a":', 5000) || '1' || repeat('}', 5000))::jsonb); --> t
select args::text = repeat('[', 5000) || repeat(']', 5000) as args_kept, length(meta::text) from jobs.jobs where kind = 'deep'; --> args_kept|length: t|35001
select id is not null as inserted from jobs.insert('exact', '{"n": 9007199254740993, "d": 1.00, "e": 1e400, "s": "\u00e9", "t": "e\u0301"}'); --> t
select args ->> 'n' as n, args ->> 'd' as d, length(args ->> 'e') as digits, length(args ->> 's') as s, length(args ->> 't') as t
  from jobs.jobs where kind = 'exact'; --> n|d|digits|s|t: 9007199254740993|1.00|401|1|2
select id is not null as inserted from jobs.insert('tags', tags => array(select 'tag ' || n from generate_series(1, 10000) n)); --> t
select cardinality(tags), tags[10000] from jobs.jobs where kind = 'tags'; --> cardinality|tags: 10000|tag 10000
select id is not null as inserted from jobs.insert('tags2', tags => '{}'); --> t
select tags from jobs.jobs where kind = 'tags2'; --> {}

-- It is part of the caller's transaction, also of its savepoints.
begin;
select id is not null as inserted from jobs.insert('tx'); --> t
savepoint a;
select id is not null as inserted from jobs.insert('tx'); --> t
rollback to a;
select id is not null as inserted from jobs.insert('tx'); --> t
release a;
commit;
select count(*) from jobs.jobs where kind = 'tx'; --> 2
begin;
select id is not null as inserted from jobs.insert('tx'); --> t
rollback;
select count(*) from jobs.jobs where kind = 'tx'; --> 2

-- Plain text literals and untyped parameters find the function, positionally and by name.
prepare p as select state from jobs.insert(kind => $1, queue => $2, args => $3, tags => $4, scheduled_at => $5, timeout => $6);
execute p ('prepared', 'q', '{}', '{}', null, '1 minute'); --> available
prepare q as select state from jobs.insert($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
execute q ('prepared', '{}', null, null, null, null, null, null, null, null, null, null, null); --> available
select proname, count(*) from pg_proc where pronamespace = 'jobs'::regnamespace group by proname having count(*) > 1; --> none

-- As a function of many rows, in an expression, in a CTE.
select count(*), count(distinct (i).id) from (select jobs.insert('row', to_jsonb(n)) as i from generate_series(1, 500) n) x; --> count|count: 500|500
with i as (select * from jobs.insert('cte')) select state from i; --> available
