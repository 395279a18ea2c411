-- jobs.delete: gone, with its errors; the state that it had is the answer.

select id, state from jobs.insert('available'); --> id|state: 1|available
select id, state from jobs.insert('scheduled', scheduled_at => '2999-01-01 00:00Z'); --> id|state: 2|scheduled
select id, state from jobs.insert('pending', pending => true); --> id|state: 3|pending
select id, state from jobs.insert('retryable', queue => 'r'); --> id|state: 4|available
select (jobs.fail(id, token, 'x', '1 hour')).state from jobs.fetch('r'); --> retryable
select id, state from jobs.insert('completed', queue => 'c'); --> id|state: 5|available
select jobs.complete(id, token) from jobs.fetch('c'); --> completed
select id, state from jobs.insert('cancelled'); --> id|state: 6|available
select jobs.cancel(6); --> cancelled
select id, state from jobs.insert('discarded', queue => 'd'); --> id|state: 7|available
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('d'); --> discarded
select id, state from jobs.insert('released', queue => 'b'); --> id|state: 8|available
select jobs.release(id, token) from jobs.fetch('b'); --> available
select n, jobs.delete(n) from generate_series(1, 8) n order by n;
--> n|delete
--> 1|available
--> 2|scheduled
--> 3|pending
--> 4|retryable
--> 5|completed
--> 6|cancelled
--> 7|discarded
--> 8|available
select count(*), (select count(*) from jobs.errors) as errors from jobs.jobs; --> count|errors: 0|0
-- Gone is gone.
select pg_temp.ask(format('select jobs.delete(%s)', n)) as again from generate_series(1, 8) n group by 1; --> P0002 The job was never inserted into this database, or it was deleted or pruned.
select pg_temp.ask(format(call, 1)) from (values ('select jobs.cancel(%s)'), ('select jobs.retry(%s)'), ('select jobs.complete(%s, 1)'), ('select jobs.fail(%s, 1, ''x'')'), ('select jobs.heartbeat(%s, 1)')) v(call);
--> P0002 The job was never inserted into this database, or it was deleted or pruned.
--> P0002 The job was never inserted into this database, or it was deleted or pruned.
--> P0002 The job was never inserted into this database, or it was deleted or pruned.
--> P0002 The job was never inserted into this database, or it was deleted or pruned.
--> P0002 The job was never inserted into this database, or it was deleted or pruned.
-- A running one is refused, also with a cancel request.
select id as a from jobs.insert('a', queue => 'a') \gset
select count(*) from jobs.fetch('a'); --> 1
select replace(pg_temp.try(format('select jobs.delete(%s)', :a)), :'a', 'A') as refused;
--> 55000: cannot delete job A: it is running | Cancel it first, with force => true if its worker is gone.
-->   A running job cannot be deleted.
select jobs.cancel(:a); --> running
select pg_temp.code(format('select jobs.delete(%s)', :a)); --> 55000
select state from jobs.jobs where id = :a; --> running
select jobs.cancel(:a, force => true), jobs.delete(:a); --> cancel|delete: cancelled|cancelled
-- Nothing of a deleted job is left in any table after maintenance, with and without a key.
select id as u from jobs.insert('u', unique_opts => '{"by_kind": true}', queue => 'u') \gset
select jobs.complete(id, token) from jobs.fetch('u'); --> completed
select jobs.delete(:u); --> completed
select task, error from jobs.maintain() where error is not null; --> none
create function pg_temp.rows() returns table (name text, rows bigint) language plpgsql as $$
begin
  for name in select relname from pg_class where relnamespace = 'jobs'::regnamespace and relkind in ('r', 'p') and relname not in ('maintenance_task', 'kept_count', 'audit_record') and relname !~ '^history_' loop
    execute format('select count(*) from jobs.%I', name) into rows;
    if rows > 0 then return next; end if;
  end loop;
end $$;
select * from pg_temp.rows(); --> none
-- It is part of the transaction.
select id as t from jobs.insert('t') \gset
begin;
select jobs.delete(:t); --> available
select count(*) from jobs.jobs where id = :t; --> 0
rollback;
select state from jobs.jobs where id = :t; --> available

select pg_temp.refusals('select jobs.delete(%s)', array_agg(call)) from (values ('null'), ('999'), ('-1'), ('0')) v(call);
--> null | 22004: id must not be null
--> 999 | P0002: job 999 does not exist
--> -1 | P0002: job -1 does not exist
--> 0 | P0002: job 0 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
