-- jobs.cancel.

-- Any that is not final and not running: at once.
select id, state from jobs.insert('available'); --> id|state: 1|available
select id, state from jobs.insert('scheduled', scheduled_at => '2999-01-01 00:00Z'); --> id|state: 2|scheduled
select id, state from jobs.insert('pending', pending => true); --> id|state: 3|pending
select id, state from jobs.insert('retryable', queue => 'r'); --> id|state: 4|available
select (jobs.fail(id, token, 'x', '1 hour')).state from jobs.fetch('r'); --> retryable
select jobs.cancel(1), jobs.cancel(2, 'a reason'), jobs.cancel(3, null), jobs.cancel(4, '', true); --> cancel|cancel|cancel|cancel: cancelled|cancelled|cancelled|cancelled
select id, state, attempt, finalized_at is not null as finalized, cancel_reason, scheduled_at > '2500-01-01' as far from jobs.jobs order by id;
--> id|state|attempt|finalized|cancel_reason|far
--> 1|cancelled|0|t|~|f
--> 2|cancelled|0|t|a reason|t
--> 3|cancelled|0|t|~|f
--> 4|cancelled|1|t||f
select count(*) from jobs.fetch_any('{r,default}'); --> 0
-- Cancelling a final one changes nothing and returns its state.
create temp table before as select * from jobs.jobs;
select jobs.cancel(1, 'later', true), jobs.cancel(2, 'another'); --> cancel|cancel: cancelled|cancelled
select id, state from jobs.insert('completed', queue => 'c'); --> id|state: 5|available
select jobs.complete(id, token) from jobs.fetch('c'); --> completed
select id, state from jobs.insert('discarded', queue => 'd'); --> id|state: 6|available
select (jobs.fail(id, token, 'x', retryable => false)).state from jobs.fetch('d'); --> discarded
insert into before select * from jobs.jobs where id > 4;
select jobs.cancel(5), jobs.cancel(5, force => true), jobs.cancel(6), jobs.cancel(6, 'x', true); --> cancel|cancel|cancel|cancel: completed|completed|discarded|discarded
select count(*) as changed from (table before except select * from jobs.jobs) x; --> 0

-- A running one stays running; the request is kept and told.
select id as a from jobs.insert('a', queue => 'a') \gset
select token as ta from jobs.fetch('a') \gset
select jobs.cancel(:a, 'first'); --> running
select state, finalized_at, cancel_requested_at is not null as requested, cancel_reason from jobs.jobs where id = :a; --> state|finalized_at|requested|cancel_reason: running|~|t|first
select cancel_requested_at as at from jobs.jobs where id = :a \gset
select cancel_requested from jobs.heartbeat(:a, :ta); --> t
-- Asked again: still running, since when it is.
select jobs.cancel(:a); --> running
select state, cancel_requested_at = :'at' as since_the_first from jobs.jobs where id = :a; --> state|since_the_first: running|t
-- complete still completes it.
select jobs.complete(:a, :ta); --> completed
select state, cancel_requested_at = :'at' as since_the_first, cancel_reason from jobs.jobs where id = :a; --> state|since_the_first|cancel_reason: completed|t|first
-- With force at once, and the worker's later calls are refused.
select id as b from jobs.insert('b', queue => 'b') \gset
select token as tb from jobs.fetch('b') \gset
select jobs.cancel(:b, 'gone', true); --> cancelled
select state, finalized_at is not null as finalized, attempt, cancel_reason from jobs.jobs where id = :b; --> state|finalized|attempt|cancel_reason: cancelled|t|1|gone
select pg_temp.ask(format(call, :b, :tb)) from (values ('select jobs.complete(%s, %s)'), ('select jobs.fail(%s, %s, ''x'')'), ('select jobs.snooze(%s, %s, ''1'')'), ('select jobs.release(%s, %s)'), ('select jobs.heartbeat(%s, %s)')) v(call);
--> 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost, 55000 lease_lost
select * from jobs.complete_many(array[:b], array[:tb]); --> id|state|done: 8|cancelled|f
-- force after a request.
select id as c from jobs.insert('c', queue => 'c') \gset
select count(*) from jobs.fetch('c'); --> 1
select jobs.cancel(:c, 'asked'), jobs.cancel(:c, force => true); --> cancel|cancel: running|cancelled
select state, cancel_reason from jobs.jobs where id = :c; --> state|cancel_reason: cancelled|asked

select pg_temp.refusals('select jobs.cancel(%s)', array_agg(call)) from (values ('null'), ('999'), ('-1'), ('null, ''x'', true'), ('9223372036854775807')) v(call);
--> null | 22004: id must not be null
--> null, 'x', true | 22004: id must not be null
--> 999 | P0002: job 999 does not exist
--> -1 | P0002: job -1 does not exist
--> 9223372036854775807 | P0002: job 9223372036854775807 does not exist
-->   The job was never inserted into this database, or it was deleted or pruned.
-- NULL means the default.
select jobs.cancel((jobs.insert('n')).id, null, null); --> cancelled
-- It is part of the transaction.
select id as d from jobs.insert('d') \gset
begin;
select jobs.cancel(:d); --> cancelled
select state from jobs.jobs where id = :d; --> cancelled
rollback;
select state from jobs.jobs where id = :d; --> available
