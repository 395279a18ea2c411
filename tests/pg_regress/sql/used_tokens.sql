-- A token is good for one finishing call: the same call again answers as the first time, another
-- one is refused.

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
--> first|cancelled|told|complete|complete_many|fail|snooze|release|heartbeat|heartbeat_many
--> complete|f|completed|completed|true|55000 already_finished|55000 already_finished|55000 already_finished|55000 already_finished|~
--> complete_many|f|true|completed|true|55000 already_finished|55000 already_finished|55000 already_finished|55000 already_finished|~
--> fail|f|retryable|55000 already_finished|false|retryable|55000 already_finished|55000 already_finished|55000 already_finished|~
--> fail at once|f|available|55000 already_finished|false|available|55000 already_finished|55000 already_finished|55000 already_finished|~
--> fail for good|f|discarded|55000 already_finished|false|discarded|55000 already_finished|55000 already_finished|55000 already_finished|~
--> snooze|f|scheduled|55000 already_finished|false|55000 already_finished|scheduled|55000 already_finished|55000 already_finished|~
--> release|f|available|55000 already_finished|false|55000 already_finished|55000 already_finished|available|55000 already_finished|~
--> complete|t|completed|completed|true|55000 already_finished|55000 already_finished|55000 already_finished|55000 already_finished|~
--> complete_many|t|true|completed|true|55000 already_finished|55000 already_finished|55000 already_finished|55000 already_finished|~
--> fail|t|cancelled|55000 already_finished|false|cancelled|55000 already_finished|55000 already_finished|55000 already_finished|~
--> fail at once|t|cancelled|55000 already_finished|false|cancelled|55000 already_finished|55000 already_finished|55000 already_finished|~
--> fail for good|t|cancelled|55000 already_finished|false|cancelled|55000 already_finished|55000 already_finished|55000 already_finished|~
--> snooze|t|cancelled|55000 already_finished|false|55000 already_finished|cancelled|55000 already_finished|55000 already_finished|~
--> release|t|cancelled|55000 already_finished|false|55000 already_finished|55000 already_finished|cancelled|55000 already_finished|~
select count(*), count(distinct (level, meanwhile)) as ways, bool_or(changed) as changed,
       count(*) - (select count(*) from (select distinct first, cancelled, again, level, meanwhile from answer) d) as twice,
       (select count(*) from (select from answer group by first, cancelled, again having count(distinct coalesce(answer, '~')) > 1) d) as not_the_same
  from answer; --> count|ways|changed|twice|not_the_same: 1176|12|f|0|0

-- What a refusal says: which call it was, and what the job became; also where another worker has it
-- by now.
select id as a from jobs.insert('a', queue => 'a') \gset
select token as t1 from jobs.fetch('a', worker => 'first') \gset
select state from jobs.fail(:a, :t1, 'x', '0'); --> available
select attempt from jobs.fetch('a', worker => 'second'); --> 2
select replace(pg_temp.try(format('select jobs.complete(%s, %s)', :a, :t1)), :'a', 'A') as refused;
--> 55000: cannot complete job A: this token was already used by fail, which made the job available | A token is valid for one finishing call. Discard this result: another worker may own the job now.
-->   already_finished
select replace(pg_temp.try(format('select jobs.heartbeat(%s, %s)', :a, :t1)), :'a', 'A') as refused;
--> 55000: cannot renew the lease of job A: this token was already used by fail, which made the job available | A token is valid for one finishing call. Discard this result: another worker may own the job now.
-->   already_finished
-- A token that was none: whose the job is, and since when.
select replace(pg_temp.try(format('select jobs.complete(%s, 5)', :a)), :'a', 'A') as refused;
--> 55000: cannot complete job A: the token is not that of the current attempt, which worker "second" has held since .. | The lease expired, or the job was cancelled or released. Stop working on it.
-->   lease_lost
do $$ begin perform jobs.complete(max(id), 5) from jobs.jobs where queue = 'a'; exception when others then
  assert sqlerrm like '% since ' || (select attempted_at from jobs.jobs where queue = 'a'), sqlerrm; end $$;
-- The other way round.
select replace(replace(pg_temp.try(format('select jobs.complete(%2$s, %1$s)', :a, pg_temp.token(:a))), pg_temp.token(:a)::text, 'TOKEN'), ' ' || :a, ' A') as refused;
--> P0002: job TOKEN does not exist | The arguments are swapped: TOKEN is the token of job A.
-->   The job was never inserted into this database, or it was deleted or pruned.
select replace(replace(pg_temp.try(format('select jobs.release(%2$s, %1$s)', :a, pg_temp.token(:a))), pg_temp.token(:a)::text, 'TOKEN'), ' ' || :a, ' A') as refused;
--> P0002: job TOKEN does not exist | The arguments are swapped: TOKEN is the token of job A.
-->   The job was never inserted into this database, or it was deleted or pruned.
select replace(replace(pg_temp.try(format('select jobs.heartbeat(%2$s, %1$s)', :a, pg_temp.token(:a))), pg_temp.token(:a)::text, 'TOKEN'), ' ' || :a, ' A') as refused;
--> P0002: job TOKEN does not exist | The arguments are swapped: TOKEN is the token of job A.
-->   The job was never inserted into this database, or it was deleted or pruned.
-- Also once the attempt has ended.
select replace(replace(pg_temp.try(format('select jobs.complete(%2$s, %1$s)', :a, :t1)), :t1::text, 'TOKEN'), ' ' || :a, ' A') as refused;
--> P0002: job TOKEN does not exist | The arguments are swapped: TOKEN is the token of job A.
-->   The job was never inserted into this database, or it was deleted or pruned.

-- A rescue, a cancel by force and a replacement are no finishing calls: the worker has lost the
-- job, and what it says late counts for nothing.
create function pg_temp.late(job bigint, token bigint) returns text language sql as $$
  select string_agg(replace(pg_temp.ask(format(again, job, token)), ' The job was never inserted into this database, or it was deleted or pruned.', ''), ', ' order by ord) from finish where again is not null $$;
select id as b from jobs.insert('b', queue => 'b') \gset
select token as tb from jobs.fetch('b', lease => '1 second') \gset
call pg_temp.later('2 seconds');
select rows from jobs.maintain() where task = 'rescue'; --> 1
select pg_temp.late(:b, :tb); --> 55000 lease_lost, false, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost
select state, (select string_agg(e.details->>'type', ', ') from jobs.errors e where e.job_id = :b) as errors from jobs.jobs where id = :b; --> state|errors: retryable|lease_expired
select id as c from jobs.insert('c', queue => 'c') \gset
select token as tc from jobs.fetch('c') \gset
select jobs.cancel(:c, force => true); --> cancelled
select pg_temp.late(:c, :tc); --> 55000 lease_lost, false, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost
select jobs.retry(:c); --> available
select pg_temp.late(:c, :tc); --> 55000 lease_lost, false, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost
select id as d from jobs.insert('d', queue => 'd', unique_opts => '{"by_kind": true}') \gset
select token as td from jobs.fetch('d') \gset
select replaced_id = :d as replaced from jobs.insert('d', queue => 'd', unique_opts => '{"by_kind": true, "on_conflict": "replace"}'); --> t
select pg_temp.late(:d, :td); --> 55000 lease_lost, false, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost

-- complete_many: a token that another call has used spoils only its own row.
select id as e from jobs.insert('e', queue => 'e') \gset
select id as f from jobs.insert('f', queue => 'e') \gset
create temp table held as select id, token from jobs.fetch('e', 2);
select state from held, jobs.snooze(id, token, '1 hour') where held.id = :e; --> scheduled
select c.state, c.done from (select array_agg(id order by id) as ids, array_agg(token order by id) as tokens from held) h, jobs.complete_many(ids, tokens) c; --> state|done: scheduled|f, completed|t

-- After an hour nobody knows any more who gave a job back, unless it has ended so: then by snooze
-- or release.
select id as g from jobs.insert('g', queue => 'g') \gset
select token as tg from jobs.fetch('g') \gset
select jobs.cancel(:g); --> running
select jobs.release(:g, :tg); --> cancelled
select pg_temp.late(:g, :tg); --> 55000 already_finished, false, 55000 already_finished, 55000 already_finished, cancelled, 55000 already_finished
select pg_temp.late(:e, token) from held where id = :e; --> 55000 already_finished, false, 55000 already_finished, scheduled, 55000 already_finished, 55000 already_finished
call pg_temp.later('61 minutes');
select count(*) > 0 as maintained from jobs.maintain(); --> t
select pg_temp.late(:g, :tg); --> 55000 already_finished, false, 55000 already_finished, cancelled, cancelled, 55000 already_finished
select pg_temp.late(:e, token) from held where id = :e; --> 55000 lease_lost, false, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost
-- Errors are kept as long as the job is.
select pg_temp.late(:a, :t1); --> 55000 already_finished, false, available, 55000 already_finished, 55000 already_finished, 55000 already_finished
-- Of a job that is gone there is nothing to say.
select jobs.cancel(:a, force => true), jobs.delete(:a); --> cancel|delete: cancelled|cancelled
select pg_temp.late(:a, :t1); --> P0002, false, P0002, P0002, P0002, P0002
select jobs.cancel(:e), jobs.delete(:e); --> cancel|delete: cancelled|cancelled
select pg_temp.late(:e, token) from held where id = :e; --> P0002, false, P0002, P0002, P0002, P0002
