-- Limits by key, as they are defined, overridden and paused, and what the views show of that.
create function pg_temp.audited() returns bigint language sql as $$ select count(*) from jobs.audit $$;

-- What is no limit.
select * from pg_temp.refusals('select jobs.define_limit(%L, concurrency => 1)', array['', 'a/b']);
-->  | 22023: name must not be empty
-->   A name must have 1 to 127 characters and no control characters.
--> a/b | 22023: name "a/b" contains a slash
-->   Names with a slash are those of queues' own limits, queue/NAME.
select * from pg_temp.refusals('select jobs.define_limit(''l'', %s)', array['null', 'concurrency => 0', 'concurrency => 10001', 'rate => 0, rate_period => ''1 s''', 'rate => 100001, rate_period => ''1 s''',
  'rate => 1', 'rate_period => ''1 s''', 'rate => 1, rate_period => ''0''', 'queues => ''{}'', concurrency => 1', 'kinds => ''{}'', concurrency => 1', 'kinds => ''{""}'', concurrency => 1']);
--> null | 22023: the limit limits nothing
-->   A limit must have a concurrency, a rate with its rate_period, or both.
--> concurrency => 0 | 22023: concurrency 0 is out of range | Use jobs.pause_limit to stop fetching.
--> concurrency => 10001 | 22023: concurrency 10001 is out of range
-->   concurrency must be between 1 and 10000, or null for no limit.
--> rate => 0, rate_period => '1 s' | 22023: rate 0 is out of range | Use jobs.pause_limit to stop fetching.
--> rate => 100001, rate_period => '1 s' | 22023: rate 100001 is out of range
-->   rate must be between 1 and 100000, or null for no limit.
--> rate => 1 | 22023: rate requires rate_period | Give both, or leave both out for no limit.
--> rate_period => '1 s' | 22023: rate_period requires rate | Give both, or leave both out for no limit.
-->   At most rate jobs start within any rate_period.
--> rate => 1, rate_period => '0' | 22023: rate_period "00:00:00" is out of range
-->   rate_period must be longer than 0 and at most 1000 years.
--> queues => '{}', concurrency => 1 | 22023: queues must not be empty
-->   queues must name one queue at least, or be null for all.
--> kinds => '{}', concurrency => 1 | 22023: kinds must not be empty
-->   kinds must name one kind at least, or be null for all.
--> kinds => '{""}', concurrency => 1 | 22023: an element of kinds must not be empty
-->   A kind must have 1 to 127 characters and no control characters.
select * from pg_temp.refusals('select jobs.define_limit(''l'', %L, concurrency => 1)', array['{}', '{"by_queue": false}', '[]', '{"by_arg": ["t"]}', '{"by_args": []}', '{"by_args": ["a..b"]}', '{"by_meta": true}', '{"by_kind": "k"}']);
--> {} | 22023: by must not be empty | Omit by for one limit of all jobs together.
--> {"by_queue": false} | 22023: by must not be empty | Omit by for one limit of all jobs together.
--> [] | 22023: by must not be an array
-->   by must be an object of by_args, by_meta, by_kind or by_queue, such as {"by_args": ["tenant"]}.
--> {"by_arg": ["t"]} | 22023: field "by_arg" of by is not known | Did you mean "by_args"?
-->   The fields are by_args, by_meta, by_kind, by_queue.
--> {"by_args": []} | 22023: by.by_args must not be an empty list | Omit by.by_args.
-->   by.by_args must have at least one element.
--> {"by_args": ["a..b"]} | 22023: path "a..b" of by_args has an empty name | Write "\." for a dot in a name.
-->   A path must be one or more member names separated by dots.
--> {"by_meta": true} | 22023: by.by_meta must not be true
-->   by_meta must be a list of paths such as ["tenant_id"]; true is not allowed.
--> {"by_kind": "k"} | 22023: by.by_kind must not be a string
-->   by.by_kind must be true or false.
select call, pg_temp.code('select jobs.' || call) from (values
  ('define_limit(null, concurrency => 1)'), ('define_limit(''l'', kinds => ''{null}'', concurrency => 1)'), ('define_limit(''l'', concurrency => 1, per_cell => null)'), ('override_limit(''l'', null)'), ('drop_limit(null)')) v(call);
--> call|code
--> define_limit(null, concurrency => 1)|22004
--> define_limit('l', kinds => '{null}', concurrency => 1)|22004
--> define_limit('l', concurrency => 1, per_cell => null)|22004
--> override_limit('l', null)|22004
--> drop_limit(null)|22004
select count(*) from jobs.limits; --> 0

-- What it says already changes nothing.
select jobs.define_limit('api', '{"by_args": ["tenant"], "by_kind": false}', '{b,a,b}', '{k}', 2, 10, '1 minute', reason => 'quota'), jobs.define_limit('api', '{"by_args": ["tenant", "tenant.x"]}', '{a,b}', '{k}', 2, 10, '1 minute') \gset
select jobs.define_limit('total', concurrency => 7), jobs.define_limit('both', '{"by_queue": true, "by_kind": true, "by_meta": ["m"], "by_args": true}', concurrency => 1, per_cell => true) \gset
select * from jobs.limits order by name;
--> name|by|queues|kinds|concurrency|rate|rate_period|keys|running|held|paused_at|paused_by|pause_reason|per_cell
--> api|{"by_args": ["tenant"]}|{a,b}|{k}|2|10|00:01:00|0|0|0|~|~|~|f
--> both|{"by_args": true, "by_kind": true, "by_meta": ["m"], "by_queue": true}|~|~|1|~|~|0|0|0|~|~|~|t
--> total|~|~|~|7|~|~|~|0|0|~|~|~|f
select pg_temp.audited(); --> 3

-- Keys of their own.
select jobs.override_limit('api', '"acme"', 5), jobs.override_limit('api', '{"args": {"tenant": "acme"}}', 5), jobs.override_limit('api', '{"args": {"tenant": {"id": 1.0}}}', null, 20, '1 hour', 'larger plan') \gset
select jobs.override_limit('api', '{"args": {}}', 1), jobs.override_limit('api', 'null', 1), jobs.override_limit('api', '"other"') \gset
select jobs.override_limit('both', '{"args": [1], "meta": {}, "queue": "q", "type": "k"}', 3) \gset
select * from pg_temp.refusals('select jobs.override_limit(''api'', %L, 1)', array['{"tenant": "acme"}', '{"args": {"tenant": "acme"}, "queue": "q"}', '{"args": {"tenat": 1}}', '{}']);
--> {"tenant": "acme"} | 22023: key does not fit by | If the value is not an object, you can give it alone.
--> {"args": {"tenant": "acme"}, "queue": "q"} | 22023: key does not fit by | If the value is not an object, you can give it alone.
--> {"args": {"tenat": 1}} | 22023: key does not fit by | If the value is not an object, you can give it alone.
--> {} | 22023: key does not fit by | If the value is not an object, you can give it alone.
-->   A key must have the form {"args":{"tenant":".."}}.
select * from pg_temp.refusals('select jobs.override_limit(''both'', %L, 1)', array['"k"', '{"args": [1]}', '{"args": [1], "meta": {}, "queue": "q", "type": 1}']);
--> "k" | 22023: key does not fit by
--> {"args": [1]} | 22023: key does not fit by
--> {"args": [1], "meta": {}, "queue": "q", "type": 1} | 22023: key does not fit by
-->   A key must have the form {"args":{},"meta":{"m":".."},"queue":"..","type":".."}.
select jobs.define_limit('kinds', '{"by_kind": true}', concurrency => 1), jobs.define_limit('queues', '{"by_queue": true}', concurrency => 1) \gset
select * from pg_temp.refusals('select jobs.pause_limit(%s)', array['''kinds'', ''"k"''', '''queues'', ''"q"''', '''queues'', ''7''']);
--> 'kinds', '"k"' | 22023: key does not fit by | Did you mean {"type":"k"}?
-->   A key must have the form {"type":".."}.
--> 'queues', '"q"' | 22023: key does not fit by | Did you mean {"queue":"q"}?
--> 'queues', '7' | 22023: key does not fit by
-->   A key must have the form {"queue":".."}.
select jobs.drop_limit('kinds'), jobs.drop_limit('queues') \gset
select * from pg_temp.refusals('select jobs.override_limit(%L, ''"acme"'', 1)', array['total', 'apo', 'queue/a']);
--> total | 22023: limit "total" has no keys
-->   A limit without by counts all of its jobs together.
--> apo | P0002: limit "apo" does not exist | Did you mean "api"?
--> queue/a | P0002: limit "queue/a" does not exist | Use jobs.configure_queue or jobs.pause_queue.
select * from pg_temp.refusals('select jobs.override_limit(''api'', ''"acme"'', %s)', array['0', 'rate => 1']);
--> 0 | 22023: concurrency 0 is out of range | Use jobs.pause_limit to stop fetching.
-->   concurrency must be between 1 and 10000, or null for no limit.
--> rate => 1 | 22023: rate requires rate_period | Give both, or leave both out for no limit.
-->   At most rate jobs start within any rate_period.
select name, key, concurrency, rate, running, held, oldest_held_at, next_start_at, paused_at from jobs.limit_keys order by name, key;
--> name|key|concurrency|rate|running|held|oldest_held_at|next_start_at|paused_at
--> api|{"args": {}}|1|~|0|0|~|~|~
--> api|{"args": {"tenant": null}}|1|~|0|0|~|~|~
--> api|{"args": {"tenant": "acme"}}|5|~|0|0|~|~|~
--> api|{"args": {"tenant": {"id": 1}}}|~|20|0|0|~|~|~
--> both|{"args": [1], "meta": {}, "type": "k", "queue": "q"}|3|~|0|0|~|~|~
--> total|~|7|~|0|0|~|~|~
select name, keys from jobs.limits order by name; --> name|keys: api|4, both|1, total|~
-- As the others again.
select jobs.override_limit('api', '"acme"'), jobs.override_limit('api', 'null'), jobs.override_limit('api', '{"args": {}}') \gset
select key, concurrency, rate from jobs.limit_keys where name = 'api'; --> key|concurrency|rate: {"args": {"tenant": {"id": 1}}}|~|20
select pg_temp.audited(); --> 15

-- Pauses: of a limit and of keys, each by itself; the first is kept.
select jobs.pause_limit('api', reason => 'outage'), jobs.pause_limit('api'), jobs.pause_limit('api', '"acme"', 'unpaid'), jobs.pause_limit('api', '{"args": {"tenant": {"id": 1}}}'), jobs.pause_limit('api', '"acme"', 'again'), jobs.pause_limit('total') \gset
select name, now() - paused_at < '1 minute' as just_now, paused_by = current_user as by_me, pause_reason from jobs.limits where paused_at is not null order by name;
--> name|just_now|by_me|pause_reason
--> api|t|t|outage
--> total|t|t|~
select name, key, concurrency, rate, paused_at is not null as paused from jobs.limit_keys where name <> 'both' order by name, key;
--> name|key|concurrency|rate|paused
--> api|{"args": {"tenant": "acme"}}|2|10|t
--> api|{"args": {"tenant": {"id": 1}}}|~|20|t
--> total|~|7|~|t
select * from pg_temp.refusals('select jobs.pause_limit(%s)', array['''total'', ''"acme"''', '''apo''', '''api'', ''{}''', '''queue/a''']);
--> 'total', '"acme"' | 22023: limit "total" has no keys
-->   A limit without by counts all of its jobs together.
--> 'apo' | P0002: limit "apo" does not exist | Did you mean "api"?
--> 'queue/a' | P0002: limit "queue/a" does not exist | Use jobs.configure_queue or jobs.pause_queue.
--> 'api', '{}' | 22023: key does not fit by | If the value is not an object, you can give it alone.
-->   A key must have the form {"args":{"tenant":".."}}.
select pg_temp.code('select jobs.resume_limit(''nosuch'')'); --> P0002
select jobs.resume_limit('api', '{"args": {"tenant": {"id": 1}}}'), jobs.resume_limit('api'), jobs.resume_limit('api'), jobs.resume_limit('api', '"other"'), jobs.resume_limit('total') \gset
select count(*) from jobs.limits where paused_at is not null; --> 0
select key, concurrency, rate, paused_at is not null as paused from jobs.limit_keys where name = 'api' order by key;
--> key|concurrency|rate|paused
--> {"args": {"tenant": "acme"}}|2|10|t
--> {"args": {"tenant": {"id": 1}}}|~|20|f
-- An override and a pause of one key do not need each other.
select jobs.override_limit('api', '"acme"', 4), jobs.resume_limit('api', '"acme"') \gset
select key, concurrency, paused_at from jobs.limit_keys where name = 'api' and key <> '{"args": {"tenant": {"id": 1}}}'; --> key|concurrency|paused_at: {"args": {"tenant": "acme"}}|4|~
select pg_temp.audited(); --> 24

-- Defined again, a limit keeps what is said of its keys if these are made of the same.
select jobs.pause_limit('api', '"acme"'), jobs.pause_limit('api', reason => 'kept'), jobs.define_limit('api', '{"by_args": ["tenant"]}', rate => 3, rate_period => '1 s') \gset
select queues, kinds, concurrency, rate, rate_period, keys, pause_reason from jobs.limits where name = 'api'; --> queues|kinds|concurrency|rate|rate_period|keys|pause_reason: ~|~|~|3|00:00:01|2|kept
select jobs.define_limit('api', '{"by_meta": ["tenant"]}', concurrency => 1) \gset
select by, keys, pause_reason from jobs.limits where name = 'api'; --> by|keys|pause_reason: {"by_meta": ["tenant"]}|0|kept
select jobs.drop_limit('both', 'not needed'), jobs.drop_limit('both', 'again'), jobs.drop_limit('nosuch'); --> drop_limit|drop_limit|drop_limit: t|f|f
select count(*) from jobs.limit_keys where key is not null; --> 0

-- A queue's own limit is a row like the others.
select jobs.define_limit('api', '{"by_meta": ["tenant"]}', queues => '{other}', concurrency => 1), jobs.resume_limit('api') \gset
select jobs.configure_queue('q', concurrency => 3), jobs.configure_queue('r', rate => 1, rate_period => '1 hour'), jobs.insert('k', queue => 'q'), jobs.insert('k', queue => 'r') \gset
select count(*) from jobs.fetch_any('{q,r}', 2); --> 2
select * from jobs.limits where name like 'queue/%' order by name;
--> name|by|queues|kinds|concurrency|rate|rate_period|keys|running|held|paused_at|paused_by|pause_reason|per_cell
--> queue/q|~|{q}|~|3|~|~|~|1|0|~|~|~|f
--> queue/r|~|{r}|~|~|1|01:00:00|~|~|0|~|~|~|f
select name, key, concurrency, rate, running, held, oldest_held_at, next_start_at > now() + interval '59 minutes' as next_start_at, paused_at from jobs.limit_keys where name like 'queue/%' order by name;
--> name|key|concurrency|rate|running|held|oldest_held_at|next_start_at|paused_at
--> queue/q|~|3|~|1|0|~|~|~
--> queue/r|~|~|1|~|0|~|t|~

-- Who may not see args does not see keys.
select jobs.override_limit('api', '"secret"', 1, reason => 'audited') \gset
create role jobs_limits;
select jobs.grant_viewer('jobs_limits');
set role jobs_limits;
select name, key, concurrency from jobs.limit_keys where name = 'api'; --> name|key|concurrency: api|~|1
select target, arguments, reason from jobs.audit where action = 'override_limit' and reason = 'audited'; --> target|arguments|reason: api|{"concurrency": 1}|audited
reset role;
select target, arguments, reason from jobs.audit where action = 'override_limit' and reason = 'audited'; --> target|arguments|reason: api|{"key": "secret", "concurrency": 1}|audited
drop owned by jobs_limits;
drop role jobs_limits;

-- An override is the whole setting of its key: one without a rate lifts the rate. Jobs that lack
-- the path share a key; null is a value.
select jobs.drop_limit('total'), jobs.define_limit('rate', '{"by_args": ["t"]}', '{f}', rate => 1, rate_period => '1 hour'), jobs.override_limit('rate', '"more"', rate => 3, rate_period => '1 hour'), jobs.override_limit('rate', '"lifted"', 4) \gset
select count(jobs.insert('k', args, queue => 'f')) from unnest(array['{}', '{"u": 1}', '{"t": null}', '{"t": "a"}', '{"t": "more"}', '{"t": "lifted"}']::jsonb[]) args, generate_series(1, 5); --> 30
select args -> 't' as t, count(*) from jobs.fetch('f', 30) group by t order by t; --> t|count: null|1, "a"|1, "lifted"|4, "more"|3, ~|1
-- A held job counts for one of its limits.
select jobs.define_limit('ten', queues => '{f,g}', concurrency => 10) \gset
select count(jobs.insert('k', queue => 'g')) from generate_series(1, 3) \gset
select jobs.insert('k', '{"t": "b"}', queue => 'f') \gset
select count(*) from jobs.fetch_any('{f,g}', 30); --> 0
select name, held from jobs.limits where name in ('rate', 'ten') order by name; --> name|held: rate|20, ten|4
select sum(held) = (select count(*) from jobs.jobs where state = 'available') as held from jobs.limits; --> t
select oldest_held_at = (select min(created_at) from jobs.jobs where queue = 'g') as since from jobs.limit_keys where name = 'ten'; --> t
select key -> 'args' -> 't' as t, concurrency, rate, running, held, next_start_at between now() + interval '59 minutes' and now() + interval '1 hour' as in_an_hour from jobs.limit_keys where name = 'rate' order by t;
--> t|concurrency|rate|running|held|in_an_hour
--> null|~|1|1|4|t
--> "a"|~|1|1|4|t
--> "lifted"|4|~|4|1|~
--> "more"|~|3|3|2|t
--> ~|~|1|1|9|t

-- A limit of a spread queue contains the path, or counts in each cell alone; whichever comes first.
select jobs.drop_limit('api'), jobs.set_cell(0), jobs.place_queue('*', 0), jobs.spread_queue('s', '{"by_args": ["tenant.id"]}', '{0,1}') \gset
select * from pg_temp.refusals('select jobs.define_limit(''l'', %s, concurrency => 1)', array['null', '''{"by_args": ["other"]}'', ''{s}''', '''{"by_meta": ["tenant.id"], "by_kind": true}'', ''{a,s}''']);
--> null | 22023: by does not contain {"by_args":["tenant.id"]}, by which queue "s" is spread | Add it to by, or set per_cell => true for a limit of each cell alone.
--> '{"by_args": ["other"]}', '{s}' | 22023: by does not contain {"by_args":["tenant.id"]}, by which queue "s" is spread | Add it to by, or set per_cell => true for a limit of each cell alone.
--> '{"by_meta": ["tenant.id"], "by_kind": true}', '{a,s}' | 22023: by does not contain {"by_args":["tenant.id"]}, by which queue "s" is spread | Add it to by, or set per_cell => true for a limit of each cell alone.
-->   A limit of a spread queue must contain the path, so that none spans cells.
select by, pg_temp.code(format('select jobs.define_limit(''l'', %s, concurrency => 1)', by)) from unnest(array['''{"by_args": ["tenant"]}''', '''{"by_args": true}''', 'null, ''{a}''', 'per_cell => true']) by;
--> by|code: '{"by_args": ["tenant"]}'|ok, '{"by_args": true}'|ok, null, '{a}'|ok, per_cell => true|ok
select jobs.define_limit('l', '{"by_args": ["t"]}', '{a}', concurrency => 1) \gset
select pg_temp.try($$select jobs.spread_queue('a', '{"by_args": ["u"]}', '{0}')$$) as spread, pg_temp.code($$select jobs.spread_queue('a', '{"by_args": ["t"]}', '{0}')$$) as contained;
--> spread|contained
--> 55000: cannot spread queue "a": limit "l" does not contain the path | Add it to by of the limit, or define that with per_cell => true.
-->   A limit or order of the queue would span cells.|ok
