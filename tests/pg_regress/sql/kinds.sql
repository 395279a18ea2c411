\set ECHO none
-- define_kind: what jobs of a kind are inserted with, where the insert says nothing.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup
create view shown as select kind, queue, priority, max_attempts, timeout from jobs.jobs order by id;

select id from jobs.insert('mail');
select jobs.define_kind('mail', 'mails', -5, 3, '10 minutes', '{"strategy": "constant", "initial": 100, "jitter": false}', '{"by_args": true}');
-- From each way in; what was there stays as it is.
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1');
select ord, queue, unique_skipped_as_duplicate as skipped from jobs.insert_batch('mail', array['1', '2']::jsonb[]);
select ord, queue, unique_skipped_as_duplicate as skipped from jobs.insert_many('[{"kind": "mail", "args": 2}, {"kind": "mail", "args": 3}, {"kind": "other", "args": 3}]');
select * from shown;
-- What the insert says goes before it; {} is not unique, null and JSON null say nothing.
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1', '{}', 'q', 7, max_attempts => 9, timeout => '1 second');
select unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1', null);
select unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1', 'null');
select * from shown offset 5;
-- The key, and what it explains.
select jobs.unique_key('mail', '1') = jobs.unique_key('mail', '1', '{"by_args": true}') as same, jobs.unique_key('mail', '1', '{}') is null as none;
select canonical, would from jobs.explain_unique('mail', '1');
select jobs.define_kind('mail', 'mails', unique_opts => '{"by_queue": true}');
select canonical from jobs.explain_unique('mail', '1');
select canonical from jobs.explain_unique('mail', '1', queue => 'elsewhere');
-- Everything is replaced: null is the system's default again.
select jobs.define_kind('mail');
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1');
select * from shown offset 6;
-- Its retry policy.
select jobs.define_kind('flaky', 'f', retry => '{"strategy": "constant", "initial": 100, "jitter": false}');
select count(*) from jobs.insert('flaky') a, jobs.insert('flaky', retry => '"oban"') b;
select f.kind, x.scheduled_at - clock_timestamp() > interval '90 seconds' as as_the_kind_says from jobs.fetch('f', 2) f, lateral jobs.fail(f.id, f.token, 'x') x order by f.id;
-- A rollback takes it back, also for this session.
begin;
select jobs.define_kind('mail', 'undone');
select queue from jobs.insert('mail', '5');
rollback;
select queue from jobs.insert('mail', '5');
begin;
savepoint a;
select jobs.define_kind('mail', 'undone');
select queue from jobs.insert('mail', '6');
rollback to a;
select queue from jobs.insert('mail', '6');
commit;
-- The view shows what is set, and what is taken back is not any more: the system's default again,
-- also for this session.
select jobs.define_kind('shown', 'q', -5, 3, '10 minutes', '"oban"', '{"by_args": true}'), jobs.define_kind('shown bare');
select * from jobs.kinds where kind like 'shown%' order by kind;
select id from jobs.insert('shown') \gset
select queue, priority, timeout from jobs.jobs where id = :id;
select jobs.undefine_kind('shown'), jobs.undefine_kind('shown'), jobs.undefine_kind('nosuch');
select kind from jobs.kinds where kind like 'shown%';
select id from jobs.insert('shown') \gset
select queue, priority, timeout from jobs.jobs where id = :id;
begin;
select jobs.undefine_kind('shown bare');
rollback;
select kind from jobs.kinds where kind like 'shown%';
select pg_temp.try('select jobs.undefine_kind(' || call || ')') from unnest(array['null', '''''']) call;
-- Refused, and nothing changes.
select call, pg_temp.try('select jobs.define_kind(' || call || ')') from unnest(array['null', '''''', '''k'', ''''', '''k'', priority => 40000', '''k'', max_attempts => 0', '''k'', timeout => ''0''', '''k'', retry => ''"rivr"''', '''k'', unique_opts => ''{"by_arg": true}''',
  '''k'', unique_opts => ''[]''']) call;
select kind from jobs.kind order by kind;
begin read only;
select jobs.define_kind('k');
rollback;
