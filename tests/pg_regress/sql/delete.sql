\set ECHO none
-- jobs.delete: gone, with its errors; the state that it had is the answer.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

select id, state from jobs.insert('available');
select id, state from jobs.insert('scheduled', scheduled_at => '2999-01-01 00:00Z');
select id, state from jobs.insert('pending', pending => true);
select id, state from jobs.insert('retryable', queue => 'r');
select (jobs.fail(id, token, 'x', '1 hour')).state from jobs.fetch('r');
select id, state from jobs.insert('completed', queue => 'c');
select jobs.complete(id, token) from jobs.fetch('c');
select id, state from jobs.insert('cancelled');
select jobs.cancel(6);
select id, state from jobs.insert('discarded', queue => 'd');
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('d');
select id, state from jobs.insert('released', queue => 'b');
select jobs.release(id, token) from jobs.fetch('b');
select n, jobs.delete(n) from generate_series(1, 8) n order by n;
select count(*), (select count(*) from jobs.errors) as errors from jobs.jobs;
-- Gone is gone.
select pg_temp.ask(format('select jobs.delete(%s)', n)) as again from generate_series(1, 8) n group by 1;
select pg_temp.ask(format(call, 1)) from (values ('select jobs.cancel(%s)'), ('select jobs.retry(%s)'), ('select jobs.complete(%s, 1)'), ('select jobs.fail(%s, 1, ''x'')'), ('select jobs.heartbeat(%s, 1)')) v(call);
-- A running one is refused, also with a cancel request.
select id as a from jobs.insert('a', queue => 'a') \gset
select count(*) from jobs.fetch('a');
select replace(pg_temp.try(format('select jobs.delete(%s)', :a)), :'a', 'A') as refused;
select jobs.cancel(:a);
select pg_temp.code(format('select jobs.delete(%s)', :a));
select state from jobs.jobs where id = :a;
select jobs.cancel(:a, force => true), jobs.delete(:a);
-- Nothing of a deleted job is left in any table after maintenance, with and without a key.
select id as u from jobs.insert('u', unique_opts => '{"by_kind": true}', queue => 'u') \gset
select jobs.complete(id, token) from jobs.fetch('u');
select jobs.delete(:u);
select task, error from jobs.maintain() where error is not null;
create function pg_temp.rows() returns table (name text, rows bigint) language plpgsql as $$
begin
  for name in select relname from pg_class where relnamespace = 'jobs'::regnamespace and relkind in ('r', 'p') and relname not in ('maintenance_task', 'kept_count', 'audit_record') and relname !~ '^history_' loop
    execute format('select count(*) from jobs.%I', name) into rows;
    if rows > 0 then return next; end if;
  end loop;
end $$;
select * from pg_temp.rows();
-- It is part of the transaction.
select id as t from jobs.insert('t') \gset
begin;
select jobs.delete(:t);
select count(*) from jobs.jobs where id = :t;
rollback;
select state from jobs.jobs where id = :t;

select call, pg_temp.try('select jobs.delete(' || call || ')') from (values ('null'), ('999'), ('-1'), ('0')) v(call);
