-- One job a key inside statements, triggers and blocks of one session, at each isolation level.
-- tests/server/transactions.rs has several sessions.
create function pg_temp.one(n int) returns bool language sql as $$ select unique_skipped_as_duplicate from jobs.insert('k', to_jsonb(n), '{"by_args": true}') $$;
create table public.orders (id int, customer int, total int check (total >= 0));

-- A statement at each level: what it answers, and the jobs and keys that its commit leaves.
create temp table outcome (ord serial, what text, answer boolean, jobs bigint, keys bigint, wrong bigint, locks bigint);
create procedure pg_temp.at_each_level(whose text, statement text) language plpgsql as $$
declare level text; said boolean;
begin
  foreach level in array '{read committed,repeatable read,serializable}'::text[] loop
    perform set_config('default_transaction_isolation', level, false);
    commit;
    execute statement into said;
    commit;
    insert into outcome (what, answer, jobs, keys, wrong, locks)
      select whose, said, count(*), count(distinct unique_key), (select count(*) from jobs.check()), (select count(*) from pg_locks where locktype = 'advisory') from jobs.job;
    perform jobs.delete(id) from jobs.jobs;
    commit;
  end loop;
  perform set_config('default_transaction_isolation', 'read committed', false);
end $$;
create temp view outcomes as select what, answer, jobs, keys, wrong, locks, count(*) as levels from outcome group by 1, 2, 3, 4, 5, 6 order by min(ord);

-- The second call in a statement is a duplicate of the first.
call pg_temp.at_each_level('select list', $$select not (a).unique_skipped_as_duplicate and (b).unique_skipped_as_duplicate and (a).id = (b).id
  from (select jobs.insert('k', '1', '{"by_args": true}') as a, jobs.insert('k', '1', '{"by_args": true}') as b offset 0) x$$);
call pg_temp.at_each_level('from list', $$select not a.unique_skipped_as_duplicate and b.unique_skipped_as_duplicate and a.id = b.id
  from jobs.insert('k', '1', '{"by_args": true}') a, lateral (select * from jobs.insert_batch('k', '{1}', '{"by_args": true}') where a.id is not null offset 0) b$$);
-- Postgres writes a function's `.*` out for each column.
call pg_temp.at_each_level('columns', $$select count(distinct id) = 1 from (select (jobs.insert('k', '1', '{"by_args": true}')).*) x$$);
call pg_temp.at_each_level('with rows that are written', $$with added as (insert into public.orders select n % 40 from generate_series(1, 100) n returning id), queued as (select i.* from added, lateral jobs.insert('k', to_jsonb(id), '{"by_args": true}') i)
  select count(*) filter (where not unique_skipped_as_duplicate) = 40 and count(*) = 100 from queued$$);
call pg_temp.at_each_level('two table expressions', $$with a as materialized (select * from jobs.insert_batch('k', '{1}', '{"by_args": true}')), b as materialized (select i.* from a, lateral jobs.insert('k', '1', '{"by_args": true}') i)
  select bool_or(a.unique_skipped_as_duplicate) <> bool_or(b.unique_skipped_as_duplicate) and max(a.id) = max(b.id) from a, b$$);
call pg_temp.at_each_level('inside a function', $$select array_agg(pg_temp.one(n % 5) order by n) = array_fill(false, array[5]) || array_fill(true, array[15]) from generate_series(1, 20) n$$);
call pg_temp.at_each_level('condition', $$select count(*) = 7 from generate_series(1, 20) n where not (jobs.insert('k', to_jsonb(n % 7), '{"by_args": true}')).unique_skipped_as_duplicate$$);

-- A rejected duplicate that is caught leaves the transaction as it was, and says which job it is.
create function pg_temp.detail(n int) returns jsonb language plpgsql as $$
declare detail text;
begin
  perform jobs.insert('k', to_jsonb(n), '{"by_args": true, "on_conflict": "reject"}');
  return null;
exception when unique_violation then
  get stacked diagnostics detail = pg_exception_detail;
  return detail::jsonb;
end $$;
create temp table told (n int, detail jsonb);
create function pg_temp.caught() returns boolean language plpgsql as $$ begin
  truncate told;
  insert into told select n, pg_temp.detail(n % 10) from generate_series(1, 30) n;
  return count(*) = 30 from told where case when n <= 10 then detail is null
    else detail = (select jsonb_build_object('existing_job_id', j.id, 'existing_job_state', 'available') from jobs.jobs j where j.args = to_jsonb(told.n % 10)) end;
end $$;
call pg_temp.at_each_level('caught', 'select pg_temp.caught()');

-- Triggers, of which a statement is undone before the one that counts.
create function pg_temp.bill() returns trigger language plpgsql as $$ begin
  perform jobs.insert('bill', jsonb_build_object('customer', new.customer), '{"by_args": true}');
  return null;
end $$;
create function pg_temp.bills() returns trigger language plpgsql as $$ begin
  perform jobs.insert_batch('bill', array(select jsonb_build_object('customer', customer) from added), '{"by_args": true}');
  return null;
end $$;
create function pg_temp.order_all(last int) returns void language sql as $$ insert into public.orders select n, n % 300, case n when 1000 then last else n end from generate_series(1, 1000) n $$;
create function pg_temp.ordered() returns boolean language plpgsql as $$
declare refused boolean;
begin
  begin
    perform pg_temp.order_all(-1);
  exception when check_violation then refused := true;
  end;
  set constraints all immediate;
  refused := refused and (select count(*) from jobs.jobs) = 0;
  set constraints all deferred;
  perform pg_temp.order_all(1), pg_temp.order_all(1);
  return refused;
end $$;
create trigger t after insert on public.orders for each row execute function pg_temp.bill();
call pg_temp.at_each_level('trigger for each row', 'select pg_temp.ordered()');
drop trigger t on public.orders;
create trigger t after insert on public.orders referencing new table as added for each statement execute function pg_temp.bills();
call pg_temp.at_each_level('trigger for each statement', 'select pg_temp.ordered()');
drop trigger t on public.orders;
create constraint trigger t after insert on public.orders deferrable initially deferred for each row execute function pg_temp.bill();
call pg_temp.at_each_level('deferred trigger', 'select pg_temp.ordered()');
table outcomes;
--> what|answer|jobs|keys|wrong|locks|levels
--> select list|t|1|1|0|0|3
--> from list|t|1|1|0|0|3
--> columns|t|1|1|0|0|3
--> with rows that are written|t|40|40|0|0|3
--> two table expressions|t|1|1|0|0|3
--> inside a function|t|5|5|0|0|3
--> condition|t|7|7|0|0|3
--> caught|t|10|10|0|0|3
--> trigger for each row|t|300|300|0|0|3
--> trigger for each statement|t|300|300|0|0|3
--> deferred trigger|t|300|300|0|0|3
begin;
select pg_temp.order_all(1) \gset
set constraints all immediate;
select count(*) from jobs.jobs; --> 300
rollback;
select count(*) from jobs.job; --> 0
drop table public.orders;

-- What an INSERT .. SELECT fails to write leaves no job: the second one under a key has the first
-- one's id.
create temp table sent (job bigint primary key);
select pg_temp.code($$insert into sent select i.id from generate_series(1, 500) n, lateral jobs.insert('k', to_jsonb(n % 499), '{"by_args": true}') i$$); --> 23505
select count(*) from jobs.job; --> 0
insert into sent select i.id from generate_series(1, 500) n, lateral jobs.insert('k', to_jsonb(n % 500), '{"by_args": true}') i;
create temp table copied (job bigint, skipped bool);
insert into copied select i.id, i.unique_skipped_as_duplicate from generate_series(1, 1500) n, lateral jobs.insert('k', to_jsonb(n % 1000), '{"by_args": true}') i;
select count(*) filter (where not skipped) as inserted, count(distinct job) as jobs from copied; --> inserted|jobs: 500|1000
select count(*), count(distinct unique_key) from jobs.job; --> count|count: 1000|1000
