\set ECHO none
-- jobs.complete and jobs.complete_many.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select count(*) from generate_series(1, 9) n, lateral jobs.insert('k', to_jsonb(n)) i;
create temp table held as select * from jobs.fetch(max_jobs => 7);
select token as t1 from held where id = 1 \gset
select token as t2 from held where id = 2 \gset
select token as t3 from held where id = 3 \gset

select jobs.complete(1, :t1);
select jobs.complete(2, :t2, '{"result": [1, 2.50]}');
select jobs.complete(3, :t3, 'null');
select id, state, attempt, output, finalized_at >= attempted_at as finalized, lease_expires_at, deadline_at, cancel_requested_at, worker is not null as worker from jobs.jobs where id <= 3 order by id;
-- Again with the same token: as the first time, and nothing changes.
select jobs.complete(2, :t2, '{"result": "another"}');
select (jobs.fail(2, :t2, 'too late')).*;
select id, state, output, (select count(*) from jobs.errors) as errors from jobs.jobs where id = 2;
-- Another token, none, no id, no such job, a job that nobody holds.
select call, pg_temp.try('select jobs.complete(' || call || ')') from (values ('1, 1'), ('4, 1'), ('4, -1'), ('4, 0'), ('4, null'), ('null, 1'), ('null, null'), ('99, 1'), ('-1, 1'), ('0, 0'), ('9223372036854775807, 1'), ('8, 1'), ('8, null')) v(call);
select id, state from jobs.jobs where id in (4, 8) order by id;
-- With the caller's rows, or not at all.
begin;
select jobs.complete(id, token) from held where id = 4;
select state from jobs.jobs where id = 4;
rollback;
select state from jobs.jobs where id = 4;
select jobs.complete(id, token) from held where id = 4;
-- Until its rescue a job whose lease ran out is still its worker's.
call pg_temp.later('3 hours');
select jobs.complete(id, token) from held where id = 5;

-- complete_many: what happened to each, in order, never all or nothing. 6 and 7 are held, 1 was
-- completed, 8 never began, 99 does not exist.
select jobs.cancel(9);
select row_number() over () as n, * from jobs.complete_many(array[7, 99, 1, 8, 6, 9, 7, 2],
  array[(select token from held where id = 7), 5, :t1, 5, 5, 5, (select token from held where id = 7), :t1]);
select id, state from jobs.jobs where id between 6 and 9 order by id;
-- What is not done can be done.
select * from jobs.complete_many(array[6], array[(select token from held where id = 6)]);
select * from jobs.complete_many('{}', '{}');
select call, pg_temp.try('select * from jobs.complete_many(' || call || ')') from (values
  ($$null, null$$), ($$null, '{1}'$$), ($$'{1}', null$$), ($$'{1}', '{}'$$), ($$'{1,2}', '{1}'$$), ($$'{1,null}', '{1,2}'$$), ($$'{1,2}', '{null,2}'$$)) v(call);
select * from jobs.complete_many('{{1,99},{8,98}}', '{{1,1},{1,1}}');
-- 10,000 of them.
select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[10000]), queue => 'many');
create temp table many as select id, token from jobs.fetch('many', 10000);
select count(*), bool_and(done) as done, min(state) as state, max(state) as state from (select array_agg(id order by id desc) ids, array_agg(token order by id desc) tokens from many) a, jobs.complete_many(ids, tokens);
select state, count(*) from jobs.jobs where queue = 'many' group by state;
-- Fencing: the token of one job finishes no other one.
select id as a from jobs.insert('a', queue => 'f') \gset
select id as b from jobs.insert('b', queue => 'f') \gset
select count(*) from jobs.fetch('f', 2);
select pg_temp.token(:a) as ta \gset
select replace(pg_temp.ask(format('select jobs.complete(%s, %s)', :b, :ta)), :'b', 'B') as answer;
-- Nor does the token of an attempt that was given back finish its successor's.
select jobs.release(:a, :ta);
select count(*) from jobs.fetch('f');
select pg_temp.token(:a) <> :ta as another_token, attempt from jobs.jobs where id = :a;
select pg_temp.code(format('select jobs.heartbeat(%s, %s)', :a, :ta)) as heartbeat, (jobs.complete_many(array[:a], array[:ta])).done as done, state from jobs.jobs where id = :a;
select jobs.complete(:a, pg_temp.token(:a));
