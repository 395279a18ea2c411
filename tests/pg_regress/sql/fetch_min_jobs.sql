-- jobs.fetch and jobs.fetch_any with min_jobs and linger: nothing, unless so many jobs may start,
-- or the one of them that is available for longest is so for linger.

-- Jobs that were inserted so long ago.
create function pg_temp.put(queue text, count int, ago interval default '0', options text default 'pending => false') returns void language plpgsql as $$ begin
  execute format('select from generate_series(1, %s) n, lateral jobs.insert(''k'', to_jsonb(n), queue => %L, %s)', count, queue, options);
  update jobs.job set created_at = created_at - ago where job.queue = put.queue and created_at > now() - interval '1 second';
end $$;

-- All parameters, by name and in order.
select count(*) from jobs.fetch(queue => 'q', max_jobs => 5, worker => 'w', lease => '1 minute', kinds => '{k}', min_jobs => 2, linger => '1 minute'); --> 0
select count(*) from jobs.fetch('q', 5, 'w', '1 minute', '{k}', 2, '1 minute'); --> 0
select count(*) from jobs.fetch_any(queues => '{q,r}', max_jobs => 5, worker => 'w', lease => '1 minute', kinds => '{k}', min_jobs => 2, linger => '1 minute'); --> 0

-- Fewer than that: nothing, and nothing is changed. As many: all that max_jobs lets.
select pg_temp.put('least', 4) \gset
select count(*) from jobs.fetch('least', 100, min_jobs => 5); --> 0
select count(*) from jobs.fetch('least', 100, min_jobs => 5, linger => '1 hour'); --> 0
select state, attempt, count(*) from jobs.jobs where queue = 'least' group by 1, 2; --> state|attempt|count: available|0|4
select pg_temp.put('least', 1) \gset
begin;
select count(*) from jobs.fetch('least', 6, min_jobs => 6); --> 0
select pg_current_xact_id_if_assigned() is null as has_written_nothing; --> t
select count(*) from jobs.fetch('least', 100, min_jobs => 5); --> 5
rollback;
select count(*) from jobs.fetch('least', 5, min_jobs => 5, linger => '1 hour'); --> 5
select pg_temp.put('least', 9) \gset
select count(*) from jobs.fetch('least', 7, min_jobs => 2); --> 7
select count(*) from jobs.fetch('least', 7, min_jobs => 2); --> 2
select count(*) from jobs.fetch('least', 7, min_jobs => 2); --> 0
select count(*) from jobs.fetch('nosuch', 7, min_jobs => 2, linger => '0'); --> 0

-- linger: from the first one on. At once with 0.
select pg_temp.put('linger', 2), pg_temp.put('linger', 1, '59 minutes');
select count(*) from jobs.fetch('linger', 100, min_jobs => 5, linger => '1 hour'); --> 0
select pg_temp.put('linger', 1, '1 hour') \gset
select count(*) from jobs.fetch('linger', 100, min_jobs => 5); --> 0
select count(*) from jobs.fetch('linger', 100, min_jobs => 5, linger => '1 hour'); --> 4
select pg_temp.put('linger', 2) \gset
select count(*) from jobs.fetch('linger', 100, min_jobs => 5, linger => '1 microsecond'); --> 2
select pg_temp.put('linger', 2) \gset
select count(*) from jobs.fetch('linger', 100, min_jobs => 5, linger => '0'); --> 2
-- It counts from when the job was due, but not from before it was inserted.
select pg_temp.put('due', 2, '2 minutes', options => $$scheduled_at => now() + interval '1 hour'$$) \gset
select count(*) from jobs.fetch('due', 10, min_jobs => 2); --> 0
update jobs.scheduled set due_at = now() - interval '1 minute' where queue = 'due';
select count(*) from jobs.fetch('due', 10, min_jobs => 3, linger => '2 minutes'); --> 0
select state, count(*) from jobs.jobs where queue = 'due' group by 1; --> state|count: available|2
select count(*) from jobs.fetch('due', 10, min_jobs => 3, linger => '1 minute'); --> 2
select pg_temp.put('due', 2, options => $$scheduled_at => now() + interval '1 hour'$$) \gset
update jobs.scheduled set due_at = now() where queue = 'due';
select count(*) from jobs.fetch('due', 10, min_jobs => 2); --> 2
select pg_temp.put('past', 1, options => $$scheduled_at => now() - interval '1 day'$$) \gset
select count(*) from jobs.fetch('past', 10, min_jobs => 2, linger => '1 hour'); --> 0
update jobs.job set created_at = now() - interval '1 hour' where queue = 'past';
select count(*) from jobs.fetch('past', 10, min_jobs => 2, linger => '1 hour'); --> 1

-- What may not start is not there: other kinds, expired and pending jobs, those that another
-- session has, a paused queue, a full one.
select pg_temp.put('kinds', 2), jobs.insert('other', queue => 'kinds') is not null as other; --> put|other: |f
select count(*) from jobs.fetch('kinds', 10, kinds => '{k}', min_jobs => 3); --> 0
select count(*) from jobs.fetch('kinds', 10, kinds => '{k}', min_jobs => 3, linger => '0'); --> 2
select count(*) from jobs.fetch('kinds', 10, kinds => '{k,other}', min_jobs => 2); --> 0
select count(*) from jobs.fetch('kinds', 10, kinds => '{other}', min_jobs => 2, linger => '0'); --> 1
select pg_temp.put('gone', 2, options => $$expires_at => clock_timestamp() + interval '1 us'$$), pg_temp.put('gone', 2, options => 'pending => true'), pg_temp.put('gone', 1);
select count(*) from jobs.fetch('gone', 10, min_jobs => 2); --> 0
select count(*) from jobs.fetch('gone', 10, min_jobs => 2, linger => '0'); --> 1
select pg_temp.put('paused', 3), jobs.pause_queue('paused');
select count(*) from jobs.fetch('paused', 10, min_jobs => 2, linger => '0'); --> 0
select jobs.resume_queue('paused') \gset
select count(*) from jobs.fetch('paused', 10, min_jobs => 2); --> 3
select pg_temp.put('limited', 9), jobs.configure_queue('limited', concurrency => 4);
select count(*) from jobs.fetch('limited', 10, min_jobs => 5); --> 0
select count(*) from jobs.fetch('limited', 10, min_jobs => 5, linger => '1 hour'); --> 0
select running, available from jobs.queues where queue = 'limited'; --> running|available: 0|9
select count(*) from jobs.fetch('limited', 3, min_jobs => 2); --> 3
select count(*) from jobs.fetch('limited', 3, min_jobs => 2, linger => '1 hour'); --> 0
select count(*) from jobs.fetch('limited', 3, min_jobs => 2, linger => '0'); --> 1
select count(*) from jobs.fetch('limited', 3, min_jobs => 2, linger => '0'); --> 0
select running, available from jobs.queues where queue = 'limited'; --> running|available: 4|5
select pg_temp.put('rate', 9), jobs.configure_queue('rate', rate => 3, rate_period => '1 hour');
select count(*) from jobs.fetch('rate', 10, min_jobs => 4); --> 0
select count(*) from jobs.fetch('rate', 10, min_jobs => 3); --> 3
select count(*) from jobs.fetch('rate', 10, min_jobs => 2, linger => '0'); --> 0

-- Several queues: all of them together, in their order.
select pg_temp.put('a', 2), pg_temp.put('b', 2), pg_temp.put('c', 2, '1 hour');
select count(*) from jobs.fetch_any('{a,b}', 10, min_jobs => 5, linger => '30 minutes'); --> 0
select count(*) from jobs.fetch_any('{a,a,b}', 10, min_jobs => 5, linger => '30 minutes'); --> 0
select queue from jobs.fetch_any('{b,a}', 3, min_jobs => 3); --> b, b, a
select queue from jobs.fetch_any('{b,a,c}', 10, min_jobs => 5, linger => '30 minutes'); --> a, c, c
select count(*) from jobs.fetch_any('{}', 10, min_jobs => 2, linger => '0'); --> 0

-- In transactions of higher levels, and more than once in one.
select pg_temp.put('levels', 6) \gset
begin isolation level repeatable read;
select count(*) from jobs.fetch('levels', 10, min_jobs => 7); --> 0
select count(*) from jobs.fetch('levels', 2, min_jobs => 2); --> 2
select count(*) from jobs.fetch('levels', 10, min_jobs => 5); --> 0
commit;
begin isolation level serializable;
select count(*) from jobs.fetch('levels', 10, min_jobs => 5); --> 0
select count(*) from jobs.fetch('levels', 10, min_jobs => 4); --> 4
commit;
select state, attempt, count(*) from jobs.jobs where queue = 'levels' group by 1, 2; --> state|attempt|count: running|1|6
select locktype from pg_locks where locktype = 'advisory'; --> none

-- What is refused.
select pg_temp.refusals('select jobs.%s', array_agg(call)) from (values
  ($$fetch(min_jobs => 0)$$), ($$fetch(min_jobs => -1)$$), ($$fetch(min_jobs => null)$$), ($$fetch(min_jobs => 2)$$), ($$fetch(max_jobs => 10000, min_jobs => 10001)$$), ($$fetch(max_jobs => 2, min_jobs => 2, linger => '-1 s')$$), ($$fetch(linger => '-1 month')$$),
  ($$fetch_any('{a}', 3, min_jobs => 4)$$), ($$fetch_any('{a}', linger => '1001 years')$$), ($$fetch(min_jobs => 1, linger => '1 hour')$$)) v(call);
--> fetch(min_jobs => 0) | 22023: min_jobs 0 is out of range
--> fetch(min_jobs => -1) | 22023: min_jobs -1 is out of range
--> fetch(min_jobs => 2) | 22023: min_jobs 2 is out of range
-->   min_jobs must be between 1 and max_jobs, which is 1.
--> fetch(min_jobs => null) | 22004: min_jobs must not be null
--> fetch(min_jobs => 1, linger => '1 hour') | ok
--> fetch(max_jobs => 10000, min_jobs => 10001) | 22023: min_jobs 10001 is out of range
-->   min_jobs must be between 1 and max_jobs, which is 10000.
--> fetch(max_jobs => 2, min_jobs => 2, linger => '-1 s') | 22023: linger "-00:00:01" is out of range
--> fetch(linger => '-1 month') | 22023: linger "-1 mons" is out of range
--> fetch_any('{a}', linger => '1001 years') | 22023: linger "1001 years" is out of range
-->   linger must be between 0 and 1000 years.
--> fetch_any('{a}', 3, min_jobs => 4) | 22023: min_jobs 4 is out of range
-->   min_jobs must be between 1 and max_jobs, which is 3.
-- With 1 it is as without.
select pg_temp.put('one', 2) \gset
select count(*) from jobs.fetch('one', 10, min_jobs => 1, linger => '1 hour'); --> 2
select count(*) as wrong from jobs.check(); --> 0
