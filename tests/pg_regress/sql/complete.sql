-- jobs.complete and jobs.complete_many.

select count(*) from generate_series(1, 9) n, lateral jobs.insert('k', to_jsonb(n)) i; --> 9
create temp table held as select * from jobs.fetch(max_jobs => 7);
select token as t1 from held where id = 1 \gset
select token as t2 from held where id = 2 \gset
select token as t3 from held where id = 3 \gset

select jobs.complete(1, :t1); --> completed
select jobs.complete(2, :t2, '{"result": [1, 2.50]}'); --> completed
select jobs.complete(3, :t3, 'null'); --> completed
select id, state, attempt, output, finalized_at >= attempted_at as finalized, lease_expires_at, deadline_at, cancel_requested_at, worker is not null as worker from jobs.jobs where id <= 3 order by id;
--> id|state|attempt|output|finalized|lease_expires_at|deadline_at|cancel_requested_at|worker
--> 1|completed|1|~|t|~|~|~|t
--> 2|completed|1|{"result": [1, 2.50]}|t|~|~|~|t
--> 3|completed|1|null|t|~|~|~|t
-- Again with the same token: as the first time, and nothing changes.
select jobs.complete(2, :t2, '{"result": "another"}'); --> completed
select (jobs.fail(2, :t2, 'too late')).*;
--> ERROR:  cannot fail job 2: this token was already used by complete, which made the job completed
--> DETAIL:  already_finished
--> HINT:  A token is valid for one finishing call. Discard this result: another worker may own the job now.
select id, state, output, (select count(*) from jobs.errors) as errors from jobs.jobs where id = 2; --> id|state|output|errors: 2|completed|{"result": [1, 2.50]}|0
-- Another token, none, no id, no such job, a job that no session holds.
select pg_temp.refusals('select jobs.complete(%s)', array_agg(call)) from (values ('1, 1'), ('4, 1'), ('4, -1'), ('4, 0'), ('4, null'), ('null, 1'), ('null, null'), ('99, 1'), ('-1, 1'), ('0, 0'), ('9223372036854775807, 1'), ('8, 1'), ('8, null')) v(call);
--> 1, 1 | 55000: cannot complete job 1: the token is not that of a current attempt; the job is completed | The lease expired, or the job was cancelled or released. Stop working on it.
--> 4, 1 | 55000: cannot complete job 4: the token is not that of the current attempt, which worker "pg_regress/complete" has held since .. | The lease expired, or the job was cancelled or released. Stop working on it.
--> 4, -1 | 55000: cannot complete job 4: the token is not that of the current attempt, which worker "pg_regress/complete" has held since .. | The lease expired, or the job was cancelled or released. Stop working on it.
--> 4, 0 | 55000: cannot complete job 4: the token is not that of the current attempt, which worker "pg_regress/complete" has held since .. | The lease expired, or the job was cancelled or released. Stop working on it.
--> 8, 1 | 55000: cannot complete job 8: the token is not that of a current attempt; the job is available | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
--> 4, null | 22004: token must not be null
--> null, 1 | 22004: id must not be null
--> null, null | 22004: id must not be null
--> 8, null | 22004: token must not be null
--> 99, 1 | P0002: job 99 does not exist
--> -1, 1 | P0002: job -1 does not exist
--> 0, 0 | P0002: job 0 does not exist
--> 9223372036854775807, 1 | P0002: job 9223372036854775807 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
select id, state from jobs.jobs where id in (4, 8) order by id; --> id|state: 4|running, 8|available
-- With the caller's rows, or not at all.
begin;
select jobs.complete(id, token) from held where id = 4; --> completed
select state from jobs.jobs where id = 4; --> completed
rollback;
select state from jobs.jobs where id = 4; --> running
select jobs.complete(id, token) from held where id = 4; --> completed
-- Until its rescue a job whose lease ran out is still its worker's.
call pg_temp.later('3 hours');
select jobs.complete(id, token) from held where id = 5; --> completed

-- complete_many: what happened to each, in order, never all or nothing. 6 and 7 are held, 1 was
-- completed, 8 never began, 99 does not exist.
select jobs.cancel(9); --> cancelled
select row_number() over () as n, * from jobs.complete_many(array[7, 99, 1, 8, 6, 9, 7, 2],
  array[(select token from held where id = 7), 5, :t1, 5, 5, 5, (select token from held where id = 7), :t1]);
--> n|id|state|done
--> 1|7|completed|t
--> 2|99|~|f
--> 3|1|completed|t
--> 4|8|available|f
--> 5|6|running|f
--> 6|9|cancelled|f
--> 7|7|completed|t
--> 8|2|completed|f
select id, state from jobs.jobs where id between 6 and 9 order by id; --> id|state: 6|running, 7|completed, 8|available, 9|cancelled
-- What is not done can be done.
select * from jobs.complete_many(array[6], array[(select token from held where id = 6)]); --> id|state|done: 6|completed|t
select * from jobs.complete_many('{}', '{}'); --> none
select pg_temp.refusals('select * from jobs.complete_many(%s)', array_agg(call)) from (values
  ($$null, null$$), ($$null, '{1}'$$), ($$'{1}', null$$), ($$'{1}', '{}'$$), ($$'{1,2}', '{1}'$$), ($$'{1,null}', '{1,2}'$$), ($$'{1,2}', '{null,2}'$$)) v(call);
--> null, null | 22004: ids must not be null
--> null, '{1}' | 22004: ids must not be null
--> '{1}', null | 22004: tokens must not be null
--> '{1,null}', '{1,2}' | 22004: an element of ids must not be null
--> '{1,2}', '{null,2}' | 22004: an element of tokens must not be null
--> '{1}', '{}' | 22023: ids has 1 elements, but tokens has 0
--> '{1,2}', '{1}' | 22023: ids has 2 elements, but tokens has 1
-->   ids and tokens must have the same length: a token for each id.
select * from jobs.complete_many('{{1,99},{8,98}}', '{{1,1},{1,1}}');
--> id|state|done
--> 1|completed|f
--> 99|~|f
--> 8|available|f
--> 98|~|f
-- 10,000 of them.
select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[10000]), queue => 'many'); --> 10000
create temp table many as select id, token from jobs.fetch('many', 10000);
select count(*), bool_and(done) as done, min(state) as state, max(state) as state from (select array_agg(id order by id desc) ids, array_agg(token order by id desc) tokens from many) a, jobs.complete_many(ids, tokens);
--> count|done|state|state: 10000|t|completed|completed
select state, count(*) from jobs.jobs where queue = 'many' group by state; --> state|count: completed|10000
-- Fencing: the token of one job finishes no other one.
select id as a from jobs.insert('a', queue => 'f') \gset
select id as b from jobs.insert('b', queue => 'f') \gset
select count(*) from jobs.fetch('f', 2); --> 2
select pg_temp.token(:a) as ta \gset
select replace(pg_temp.ask(format('select jobs.complete(%s, %s)', :b, :ta)), :'b', 'B') as answer; --> 55000 lease_lost
-- Nor does the token of an attempt that was given back finish its successor's.
select jobs.release(:a, :ta); --> available
select count(*) from jobs.fetch('f'); --> 1
select pg_temp.token(:a) <> :ta as another_token, attempt from jobs.jobs where id = :a; --> another_token|attempt: t|1
select pg_temp.code(format('select jobs.heartbeat(%s, %s)', :a, :ta)) as heartbeat, (jobs.complete_many(array[:a], array[:ta])).done as done, state from jobs.jobs where id = :a;
--> heartbeat|done|state: 55000|f|running
select jobs.complete(:a, pg_temp.token(:a)); --> completed
