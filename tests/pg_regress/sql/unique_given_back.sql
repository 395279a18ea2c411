-- A key is given back by the job that has it alone, whatever becomes of those that had it before.

-- The job that an insert is a duplicate of, if it is one.
create function pg_temp.met(policy jsonb) returns bigint language sql as $$ select id from jobs.insert('k', '0', policy) where unique_skipped_as_duplicate $$;
create function pg_temp.forget() returns void language sql as $$
  select jobs.cancel(id, force => true) from jobs.jobs;
  select jobs.delete(id) from jobs.jobs $$;

-- A job ends that ran while another one was inserted: that one is met, also when the first is
-- pruned.
create function pg_temp.after(call text) returns text language plpgsql as $$
declare first bigint; held bigint; second bigint; answer text; policy constant jsonb = '{"by_kind": true, "by_state": ["available"]}';
begin
  select id into first from jobs.insert('k', '1', policy);
  select token into held from jobs.fetch();
  select id into second from jobs.insert('k', '2', policy);
  execute format('select ' || call, first, held);
  answer := (pg_temp.met(policy) = second)::text;
  call pg_temp.later('30 days');
  perform jobs.maintain();
  answer := concat_ws(' ', answer, pg_temp.met(policy) = second, (select state from jobs.jobs where id = second));
  perform pg_temp.forget();
  return answer;
end $$;
select pg_temp.after(call), count(*) from unnest(array['jobs.complete(%1$s, %2$s)', 'jobs.cancel(%1$s, force => true)', $$jobs.fail(%1$s, %2$s, 'x', retryable => false)$$, $$jobs.fail(%1$s, %2$s, 'x')$$, $$jobs.snooze(%1$s, %2$s, '1 day')$$,
  'jobs.cancel(%1$s, force => true), jobs.delete(%1$s)']) call group by 1; --> after|count: true t available|6

-- A job that is replaced, waiting or running, and one in a chain of them that returns.
create function pg_temp.replaced(runs boolean) returns text[] language plpgsql as $$
declare first bigint; held bigint; second record; third record; fourth record; said text[]; policy constant jsonb = '{"by_kind": true}'; replaces constant jsonb = '{"by_kind": true, "on_conflict": "replace"}';
begin
  select id into first from jobs.insert('k', '1', policy);
  select token into held from jobs.fetch(max_jobs => 1) where runs;
  select * into second from jobs.insert('k', '2', replaces);
  said := array[(second.replaced_id = first)::text, (pg_temp.met(policy) = second.id)::text];
  if runs then
    said := said || pg_temp.ask(format('select jobs.complete(%s, %s)', first, held));
  end if;
  said := said || (pg_temp.met(policy) = second.id)::text;
  perform jobs.delete(first);
  perform jobs.maintain();
  said := said || (pg_temp.met(policy) = second.id)::text;
  select * into third from jobs.insert('k', '3', replaces);
  perform jobs.retry(second.id);
  said := said || (pg_temp.met(policy) = third.id)::text;
  select * into fourth from jobs.insert('k', '4', replaces);
  said := said || (fourth.replaced_id = third.id)::text || array(select state::text from jobs.jobs where id in (second.id, third.id));
  perform pg_temp.forget();
  return said;
end $$;
select pg_temp.replaced(false); --> {true,true,true,true,true,true,cancelled,cancelled}
select pg_temp.replaced(true); --> {true,true,"55000 lease_lost",true,true,true,true,cancelled,cancelled}

-- Two that run and mind neither each other nor what they are, but what both become.
select count(*) from generate_series(1, 2) n, lateral jobs.insert('k', to_jsonb(n), '{"by_kind": true, "by_state": ["retryable"]}'); --> 2
select max(id) as second, count(*) as both from jobs.fetch(max_jobs => 2, lease => '1 second') \gset
call pg_temp.later('2 seconds');
select count(*) from jobs.maintain() where error is not null; --> 0
select state, count(*) from jobs.jobs group by state; --> state|count: retryable|2
select pg_temp.met('{"by_kind": true, "by_state": ["retryable"]}') = :second as met; --> t
