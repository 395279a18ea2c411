\set ECHO none
-- jobs.cancel.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- Any that is not final and not running: at once.
select id, state from jobs.insert('available');
select id, state from jobs.insert('scheduled', scheduled_at => '2999-01-01 00:00Z');
select id, state from jobs.insert('pending', pending => true);
select id, state from jobs.insert('retryable', queue => 'r');
select (jobs.fail(id, token, 'x', '1 hour')).state from jobs.fetch('r');
select jobs.cancel(1), jobs.cancel(2, 'a reason'), jobs.cancel(3, null), jobs.cancel(4, '', true);
select id, state, attempt, finalized_at is not null as finalized, cancel_reason, scheduled_at > '2500-01-01' as far from jobs.jobs order by id;
select count(*) from jobs.fetch_any('{r,default}');
-- Cancelling a final one changes nothing and returns its state.
create temp table before as select * from jobs.jobs;
select jobs.cancel(1, 'later', true), jobs.cancel(2, 'another');
select id, state from jobs.insert('completed', queue => 'c');
select jobs.complete(id, token) from jobs.fetch('c');
select id, state from jobs.insert('discarded', queue => 'd');
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('d');
insert into before select * from jobs.jobs where id > 4;
select jobs.cancel(5), jobs.cancel(5, force => true), jobs.cancel(6), jobs.cancel(6, 'x', true);
select count(*) as changed from (table before except select * from jobs.jobs) x;

-- A running one stays running; the request is kept and told.
select id as a from jobs.insert('a', queue => 'a') \gset
select token as ta from jobs.fetch('a') \gset
select jobs.cancel(:a, 'first');
select state, finalized_at, cancel_requested_at is not null as requested, cancel_reason from jobs.jobs where id = :a;
select cancel_requested_at as at from jobs.jobs where id = :a \gset
select cancel_requested from jobs.heartbeat(:a, :ta);
-- Asked again: still running, since when it is.
select jobs.cancel(:a);
select state, cancel_requested_at = :'at' as since_the_first from jobs.jobs where id = :a;
-- complete still completes it.
select jobs.complete(:a, :ta);
select state, cancel_requested_at = :'at' as since_the_first, cancel_reason from jobs.jobs where id = :a;
-- With force at once, and the worker's later calls are refused.
select id as b from jobs.insert('b', queue => 'b') \gset
select token as tb from jobs.fetch('b') \gset
select jobs.cancel(:b, 'gone', true);
select state, finalized_at is not null as finalized, attempt, cancel_reason from jobs.jobs where id = :b;
select pg_temp.ask(format(call, :b, :tb)) from (values ('select jobs.complete(%s, %s)'), ('select jobs.fail(%s, %s, ''x'')'), ('select jobs.snooze(%s, %s, ''1'')'), ('select jobs.release(%s, %s)'), ('select jobs.heartbeat(%s, %s)')) v(call);
select * from jobs.complete_many(array[:b], array[:tb]);
-- force after a request.
select id as c from jobs.insert('c', queue => 'c') \gset
select count(*) from jobs.fetch('c');
select jobs.cancel(:c, 'asked'), jobs.cancel(:c, force => true);
select state, cancel_reason from jobs.jobs where id = :c;

select call, pg_temp.try('select jobs.cancel(' || call || ')') from (values ('null'), ('999'), ('-1'), ('null, ''x'', true'), ('9223372036854775807')) v(call);
-- NULL means the default.
select jobs.cancel((jobs.insert('n')).id, null, null);
-- It is part of the transaction.
select id as d from jobs.insert('d') \gset
begin;
select jobs.cancel(:d);
select state from jobs.jobs where id = :d;
rollback;
select state from jobs.jobs where id = :d;
