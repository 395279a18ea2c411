-- While the index of claims is rebuilt, a statement can meet a rival in the new index that it did
-- not look for there. It is tried again where a new snapshot can show the rival, and is 40001
-- elsewhere. No error has the key.
-- The error of Postgres, as often as the test says, and another index, as during REINDEX
-- CONCURRENTLY.
create temporary sequence met;
create function pg_temp.meet() returns trigger language plpgsql as $$
begin
  if nextval('pg_temp.met') <= current_setting('test.rivals')::int then
    raise unique_violation using message = 'duplicate key value violates unique constraint "it"', detail = 'Key (key)=(secret) already exists.', schema = tg_table_schema, table = tg_table_name, constraint = 'it';
  end if;
  return new;
end $$;
create trigger meet before insert on jobs.unique_claim for each row execute function pg_temp.meet();
create index rebuilt on jobs.unique_claim (key);
\set one 'select state, unique_skipped_as_duplicate as skipped from jobs.insert(''k'', args => ''[1]'', unique_opts => ''{"by_args": true}'')'
set test.rivals = 2;
:one; --> state|skipped: available|f
select last_value from pg_temp.met; --> 3
:one; --> state|skipped: available|t
alter sequence pg_temp.met restart;
select count(*) from jobs.insert_many('[{"kind": "k", "args": [2], "unique_opts": {"by_args": true}}, {"kind": "k", "args": [3], "unique_opts": {"by_args": true}}]'); --> 2
select last_value from pg_temp.met; --> 4
-- Not for ever.
set test.rivals = 1000000;
select pg_temp.try($$select jobs.insert('k', '[4]', '{"by_args": true}')$$);
--> 40001: could not serialize access: a job was inserted under the same unique key concurrently | Retry the transaction.
-->   The key was found in an index that is being rebuilt.
-- Where the snapshot stays, it is for the program to try again.
set test.rivals = 1;
alter sequence pg_temp.met restart;
begin isolation level repeatable read;
select pg_temp.try($$select jobs.insert('k', '[4]', '{"by_args": true}')$$);
--> 40001: could not serialize access: a job was inserted under the same unique key concurrently | Retry the transaction.
-->   The key was found in an index that is being rebuilt.
rollback;
alter sequence pg_temp.met restart;
begin isolation level serializable;
select pg_temp.try($$select jobs.insert('k', '[4]', '{"by_args": true}')$$);
--> 40001: could not serialize access: a job was inserted under the same unique key concurrently | Retry the transaction.
-->   The key was found in an index that is being rebuilt.
rollback;
select count(*) from jobs.unique_claims; --> 3
-- A duplicate in another table stays one; its key is not shown.
drop trigger meet on jobs.unique_claim;
create unique index card on jobs.job (kind, (args ->> 'card'));
select pg_temp.try($$select jobs.insert('pay', '{"card": "secret"}')$$) from generate_series(1, 2);
--> ok
--> 23505: duplicate key value violates unique constraint "card"
-->   The key is not shown.
