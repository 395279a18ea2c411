\set ECHO none
-- A token is good for one finishing call: the same call again answers as the first time, another
-- one is refused.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Finishing calls: what each is called as, and what it does to job %1$s with token %2$s. Asked
-- again it says something else, where it says anything.
create temp table finish (ord int, name text, first text, again text);
insert into finish values
  (1, 'complete', $$select jobs.complete(%1$s, %2$s, '1')$$, $$select jobs.complete(%1$s, %2$s, '2')$$),
  (2, 'complete_many', $$select done from jobs.complete_many(array[%1$s], array[%2$s])$$, $$select done from jobs.complete_many(array[%1$s], array[%2$s])$$),
  (3, 'fail', $$select state from jobs.fail(%1$s, %2$s, 'first', '1 hour')$$, $$select state from jobs.fail(%1$s, %2$s, 'again', '0')$$),
  (4, 'fail at once', $$select state from jobs.fail(%1$s, %2$s, 'first', '0')$$, null),
  (5, 'fail for good', $$select state from jobs.fail(%1$s, %2$s, 'first', retryable => false)$$, null),
  (6, 'snooze', $$select state from jobs.snooze(%1$s, %2$s, '1 hour')$$, $$select state from jobs.snooze(%1$s, %2$s, '2 hours')$$),
  (7, 'release', $$select jobs.release(%1$s, %2$s)$$, $$select jobs.release(%1$s, %2$s)$$),
  (8, 'heartbeat', null, $$select cancel_requested from jobs.heartbeat(%1$s, %2$s)$$),
  (9, 'heartbeat_many', null, $$select cancel_requested from jobs.heartbeat_many(array[%1$s], array[%2$s])$$);
create temp table answer (first text, cancelled boolean, told text, again text, level text, meanwhile text, answer text, changed boolean);

-- All that there is of a job.
create function pg_temp.all_of(job bigint) returns text language sql as $$
  select concat_ws(' ', (select to_jsonb(j) from jobs.jobs j where id = job), (select jsonb_agg(to_jsonb(e) order by at) from jobs.errors e where job_id = job)) $$;

-- Each call after each other one, at a level, also where somebody asked to cancel the job before,
-- and where a successor has it by now.
create procedure pg_temp.ask_all(level text) language plpgsql as $$
declare
  f record; a record; j record; is_cancelled boolean; meanwhile text; told text; answer text; before text;
begin
  perform set_config('default_transaction_isolation', level, false);
  commit;
  foreach is_cancelled in array array[false, true] loop
    for f in select * from finish where finish.first is not null order by ord loop
      for a in select * from finish where finish.again is not null order by ord loop
        foreach meanwhile in array array['nothing', 'the same transaction', 'a successor', 'a successor that ended'] loop
          perform jobs.insert('k', queue => 'q');
          select id, token into j from jobs.fetch('q', worker => 'first');
          if is_cancelled then
            perform jobs.cancel(j.id);
          end if;
          commit;
          execute format(f.first, j.id, j.token) into told;
          if meanwhile <> 'the same transaction' then
            commit;
          end if;
          if meanwhile like 'a successor%' then
            perform jobs.retry(j.id);
            perform from jobs.fetch('q', worker => 'successor');
            if meanwhile = 'a successor that ended' then
              perform jobs.fail(id, token, 'the successor''s', '2 hours') from jobs.jobs where id = j.id;
            end if;
            commit;
          end if;
          before := pg_temp.all_of(j.id);
          answer := pg_temp.ask(format(a.again, j.id, j.token));
          insert into answer values (f.name, is_cancelled, told, a.name, current_setting('transaction_isolation'), meanwhile, answer, before <> pg_temp.all_of(j.id));
          perform jobs.cancel(j.id, force => true), jobs.delete(j.id);
          commit;
        end loop;
      end loop;
    end loop;
  end loop;
end $$;
call pg_temp.ask_all('read committed');
call pg_temp.ask_all('repeatable read');
call pg_temp.ask_all('serializable');
reset default_transaction_isolation;

-- One answer for each pair, whatever happened in between, at every level; nothing changes.
select first, cancelled, told,
       max(answer) filter (where again = 'complete') as complete, max(answer) filter (where again = 'complete_many') as complete_many,
       max(answer) filter (where again = 'fail') as fail, max(answer) filter (where again = 'snooze') as snooze,
       max(answer) filter (where again = 'release') as release, max(answer) filter (where again = 'heartbeat') as heartbeat,
       max(answer) filter (where again = 'heartbeat_many') as heartbeat_many
  from answer a group by 1, 2, 3 order by cancelled, (select ord from finish f where f.name = a.first);
select count(*), count(distinct (level, meanwhile)) as ways, bool_or(changed) as changed,
       count(*) - (select count(*) from (select distinct first, cancelled, again, level, meanwhile from answer) d) as twice,
       (select count(*) from (select from answer group by first, cancelled, again having count(distinct coalesce(answer, '~')) > 1) d) as not_the_same
  from answer;

-- What a refusal says: which call it was, and what the job became; also where another worker has it
-- by now.
select id as a from jobs.insert('a', queue => 'a') \gset
select token as t1 from jobs.fetch('a', worker => 'first') \gset
select state from jobs.fail(:a, :t1, 'x', '0');
select attempt from jobs.fetch('a', worker => 'second');
select replace(pg_temp.try(format('select jobs.complete(%s, %s)', :a, :t1)), :'a', 'A') as refused;
select replace(pg_temp.try(format('select jobs.heartbeat(%s, %s)', :a, :t1)), :'a', 'A') as refused;
-- A token that was none: whose the job is, and since when.
select replace(pg_temp.try(format('select jobs.complete(%s, 5)', :a)), :'a', 'A') as refused;
do $$ begin perform jobs.complete(max(id), 5) from jobs.jobs where queue = 'a'; exception when others then
  assert sqlerrm like '% since ' || (select attempted_at from jobs.jobs where queue = 'a'), sqlerrm; end $$;
-- The other way round.
select replace(replace(pg_temp.try(format('select jobs.complete(%2$s, %1$s)', :a, pg_temp.token(:a))), pg_temp.token(:a)::text, 'TOKEN'), ' ' || :a, ' A') as refused;
select replace(replace(pg_temp.try(format('select jobs.release(%2$s, %1$s)', :a, pg_temp.token(:a))), pg_temp.token(:a)::text, 'TOKEN'), ' ' || :a, ' A') as refused;
select replace(replace(pg_temp.try(format('select jobs.heartbeat(%2$s, %1$s)', :a, pg_temp.token(:a))), pg_temp.token(:a)::text, 'TOKEN'), ' ' || :a, ' A') as refused;
-- Also once the attempt has ended.
select replace(replace(pg_temp.try(format('select jobs.complete(%2$s, %1$s)', :a, :t1)), :t1::text, 'TOKEN'), ' ' || :a, ' A') as refused;

-- A rescue, a cancel by force and a replacement are no finishing calls: the worker has lost the
-- job, and what it says late counts for nothing.
create function pg_temp.late(job bigint, token bigint) returns text language sql as $$
  select string_agg(replace(pg_temp.ask(format(again, job, token)), ' The job was never inserted into this database, or it was deleted or pruned.', ''), ', ' order by ord) from finish where again is not null $$;
select id as b from jobs.insert('b', queue => 'b') \gset
select token as tb from jobs.fetch('b', lease => '1 second') \gset
call pg_temp.later('2 seconds');
select rows from jobs.maintain() where task = 'rescue';
select pg_temp.late(:b, :tb);
select state, (select string_agg(e.details->>'type', ', ') from jobs.errors e where e.job_id = :b) as errors from jobs.jobs where id = :b;
select id as c from jobs.insert('c', queue => 'c') \gset
select token as tc from jobs.fetch('c') \gset
select jobs.cancel(:c, force => true);
select pg_temp.late(:c, :tc);
select jobs.retry(:c);
select pg_temp.late(:c, :tc);
select id as d from jobs.insert('d', queue => 'd', unique_opts => '{"by_kind": true}') \gset
select token as td from jobs.fetch('d') \gset
select replaced_id = :d as replaced from jobs.insert('d', queue => 'd', unique_opts => '{"by_kind": true, "on_conflict": "replace"}');
select pg_temp.late(:d, :td);

-- complete_many: a token that another call has used spoils only its own row.
select id as e from jobs.insert('e', queue => 'e') \gset
select id as f from jobs.insert('f', queue => 'e') \gset
create temp table held as select id, token from jobs.fetch('e', 2);
select state from held, jobs.snooze(id, token, '1 hour') where held.id = :e;
select c.state, c.done from (select array_agg(id order by id) as ids, array_agg(token order by id) as tokens from held) h, jobs.complete_many(ids, tokens) c;

-- After an hour nobody knows any more who gave a job back, unless it has ended so: then by snooze
-- or release.
select id as g from jobs.insert('g', queue => 'g') \gset
select token as tg from jobs.fetch('g') \gset
select jobs.cancel(:g);
select jobs.release(:g, :tg);
select pg_temp.late(:g, :tg);
select pg_temp.late(:e, token) from held where id = :e;
call pg_temp.later('61 minutes');
select count(*) > 0 as maintained from jobs.maintain();
select pg_temp.late(:g, :tg);
select pg_temp.late(:e, token) from held where id = :e;
-- Errors are kept as long as the job is.
select pg_temp.late(:a, :t1);
-- Of a job that is gone there is nothing to say.
select jobs.cancel(:a, force => true), jobs.delete(:a);
select pg_temp.late(:a, :t1);
select jobs.cancel(:e), jobs.delete(:e);
select pg_temp.late(:e, token) from held where id = :e;
