\set ECHO none
-- Limits by key, as they are defined, overridden and paused, and what the views show of that.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create function pg_temp.audited() returns bigint language sql as $$ select count(*) from jobs.audit $$;

-- What is no limit.
select * from pg_temp.refusals('select jobs.define_limit(%L, concurrency => 1)', array['', 'a/b']);
select * from pg_temp.refusals('select jobs.define_limit(''l'', %s)', array['null', 'concurrency => 0', 'concurrency => 10001', 'rate => 0, rate_period => ''1 s''', 'rate => 100001, rate_period => ''1 s''',
  'rate => 1', 'rate_period => ''1 s''', 'rate => 1, rate_period => ''0''', 'queues => ''{}'', concurrency => 1', 'kinds => ''{}'', concurrency => 1', 'kinds => ''{""}'', concurrency => 1']);
select * from pg_temp.refusals('select jobs.define_limit(''l'', %L, concurrency => 1)', array['{}', '{"by_queue": false}', '[]', '{"by_arg": ["t"]}', '{"by_args": []}', '{"by_args": ["a..b"]}', '{"by_meta": true}', '{"by_kind": "k"}']);
select call, pg_temp.code('select jobs.' || call) from (values
  ('define_limit(null, concurrency => 1)'), ('define_limit(''l'', kinds => ''{null}'', concurrency => 1)'), ('define_limit(''l'', concurrency => 1, per_cell => null)'), ('override_limit(''l'', null)'), ('drop_limit(null)')) v(call);
select count(*) from jobs.limits;

-- What it says already changes nothing.
select jobs.define_limit('api', '{"by_args": ["tenant"], "by_kind": false}', '{b,a,b}', '{k}', 2, 10, '1 minute', reason => 'quota'), jobs.define_limit('api', '{"by_args": ["tenant", "tenant.x"]}', '{a,b}', '{k}', 2, 10, '1 minute') \gset
select jobs.define_limit('total', concurrency => 7), jobs.define_limit('both', '{"by_queue": true, "by_kind": true, "by_meta": ["m"], "by_args": true}', concurrency => 1, per_cell => true) \gset
select * from jobs.limits order by name;
select pg_temp.audited();

-- Keys of their own.
select jobs.override_limit('api', '"acme"', 5), jobs.override_limit('api', '{"args": {"tenant": "acme"}}', 5), jobs.override_limit('api', '{"args": {"tenant": {"id": 1.0}}}', null, 20, '1 hour', 'larger plan') \gset
select jobs.override_limit('api', '{"args": {}}', 1), jobs.override_limit('api', 'null', 1), jobs.override_limit('api', '"other"') \gset
select jobs.override_limit('both', '{"args": [1], "meta": {}, "queue": "q", "type": "k"}', 3) \gset
select * from pg_temp.refusals('select jobs.override_limit(''api'', %L, 1)', array['{"tenant": "acme"}', '{"args": {"tenant": "acme"}, "queue": "q"}', '{"args": {"tenat": 1}}', '{}']);
select * from pg_temp.refusals('select jobs.override_limit(''both'', %L, 1)', array['"k"', '{"args": [1]}', '{"args": [1], "meta": {}, "queue": "q", "type": 1}']);
select * from pg_temp.refusals('select jobs.override_limit(%L, ''"acme"'', 1)', array['total', 'apo', 'queue/a']);
select * from pg_temp.refusals('select jobs.override_limit(''api'', ''"acme"'', %s)', array['0', 'rate => 1']);
select name, key, concurrency, rate, running, held, oldest_held_at, next_start_at, paused_at from jobs.limit_keys order by name, key;
select name, keys from jobs.limits order by name;
-- As the others again.
select jobs.override_limit('api', '"acme"'), jobs.override_limit('api', 'null'), jobs.override_limit('api', '{"args": {}}') \gset
select key, concurrency, rate from jobs.limit_keys where name = 'api';
select pg_temp.audited();

-- Pauses: of a limit and of keys, each by itself; the first is kept.
select jobs.pause_limit('api', reason => 'outage'), jobs.pause_limit('api'), jobs.pause_limit('api', '"acme"', 'unpaid'), jobs.pause_limit('api', '{"args": {"tenant": {"id": 1}}}'), jobs.pause_limit('api', '"acme"', 'again'), jobs.pause_limit('total') \gset
select name, now() - paused_at < '1 minute' as just_now, paused_by = current_user as by_me, pause_reason from jobs.limits where paused_at is not null order by name;
select name, key, concurrency, rate, paused_at is not null as paused from jobs.limit_keys where name <> 'both' order by name, key;
select * from pg_temp.refusals('select jobs.pause_limit(%s)', array['''total'', ''"acme"''', '''apo''', '''api'', ''{}''', '''queue/a''']);
select pg_temp.code('select jobs.resume_limit(''nosuch'')');
select jobs.resume_limit('api', '{"args": {"tenant": {"id": 1}}}'), jobs.resume_limit('api'), jobs.resume_limit('api'), jobs.resume_limit('api', '"other"'), jobs.resume_limit('total') \gset
select count(*) from jobs.limits where paused_at is not null;
select key, concurrency, rate, paused_at is not null as paused from jobs.limit_keys where name = 'api' order by key;
-- An override and a pause of one key do not need each other.
select jobs.override_limit('api', '"acme"', 4), jobs.resume_limit('api', '"acme"') \gset
select key, concurrency, paused_at from jobs.limit_keys where name = 'api' and key <> '{"args": {"tenant": {"id": 1}}}';
select pg_temp.audited();

-- Defined again, a limit keeps what is said of its keys if these are made of the same.
select jobs.pause_limit('api', '"acme"'), jobs.pause_limit('api', reason => 'kept'), jobs.define_limit('api', '{"by_args": ["tenant"]}', rate => 3, rate_period => '1 s') \gset
select queues, kinds, concurrency, rate, rate_period, keys, pause_reason from jobs.limits where name = 'api';
select jobs.define_limit('api', '{"by_meta": ["tenant"]}', concurrency => 1) \gset
select by, keys, pause_reason from jobs.limits where name = 'api';
select jobs.drop_limit('both', 'not needed'), jobs.drop_limit('both', 'again'), jobs.drop_limit('nosuch');
select count(*) from jobs.limit_keys where key is not null;

-- A queue's own limit is a row like the others.
select jobs.define_limit('api', '{"by_meta": ["tenant"]}', queues => '{other}', concurrency => 1), jobs.resume_limit('api') \gset
select jobs.configure_queue('q', concurrency => 3), jobs.configure_queue('r', rate => 1, rate_period => '1 hour'), jobs.insert('k', queue => 'q'), jobs.insert('k', queue => 'r') \gset
select count(*) from jobs.fetch_any('{q,r}', 2);
select * from jobs.limits where name like 'queue/%' order by name;
select name, key, concurrency, rate, running, held, oldest_held_at, next_start_at > now() + interval '59 minutes' as next_start_at, paused_at from jobs.limit_keys where name like 'queue/%' order by name;

-- Who may not see args does not see keys.
select jobs.override_limit('api', '"secret"', 1, reason => 'audited') \gset
create role jobs_limits;
select jobs.grant_viewer('jobs_limits');
set role jobs_limits;
select name, key, concurrency from jobs.limit_keys where name = 'api';
select target, arguments, reason from jobs.audit where action = 'override_limit' and reason = 'audited';
reset role;
select target, arguments, reason from jobs.audit where action = 'override_limit' and reason = 'audited';
drop owned by jobs_limits;
drop role jobs_limits;

-- A limit of a spread queue contains the path, or counts in each cell alone; whichever comes first.
select jobs.drop_limit('api'), jobs.drop_limit('total'), jobs.set_cell(0), jobs.place_queue('*', 0), jobs.spread_queue('s', '{"by_args": ["tenant.id"]}', '{0,1}') \gset
select * from pg_temp.refusals('select jobs.define_limit(''l'', %s, concurrency => 1)', array['null', '''{"by_args": ["other"]}'', ''{s}''', '''{"by_meta": ["tenant.id"], "by_kind": true}'', ''{a,s}''']);
select by, pg_temp.code(format('select jobs.define_limit(''l'', %s, concurrency => 1)', by)) from unnest(array['''{"by_args": ["tenant"]}''', '''{"by_args": true}''', 'null, ''{a}''', 'per_cell => true']) by;
select jobs.define_limit('l', '{"by_args": ["t"]}', '{a}', concurrency => 1) \gset
select pg_temp.try($$select jobs.spread_queue('a', '{"by_args": ["u"]}', '{0}')$$) as spread, pg_temp.code($$select jobs.spread_queue('a', '{"by_args": ["t"]}', '{0}')$$) as contained;
