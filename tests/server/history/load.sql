-- What sessions do at random, with a note of each attempt that began, so that all that was counted
-- can be computed from rows as well.

select jobs.schedule('often', 'every 1 second', 'k1', queue => 'q2');

create table attempt (token bigint, job_id bigint, attempted_at timestamptz, due_at timestamptz);

create function act() returns void language plpgsql as $$
declare
  q text := 'q' || ceil(random() * 2);
  k text := 'k' || ceil(random() * 3);
  dice float := random();
  once jsonb := to_jsonb(random());
  ids bigint[];
  tokens bigint[];
begin
  if dice < 0.3 then
    perform jobs.insert(k, queue => q, scheduled_at => clock_timestamp() - random() ^ 8 * interval '10 days');
  elsif dice < 0.4 then
    perform jobs.insert_batch(k, array_fill('1'::jsonb, array[1 + (random() * 20)::integer]), queue => q);
  elsif dice < 0.43 then
    perform jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'k1', 'queue', q), jsonb_build_object('kind', 'k2', 'queue', q), jsonb_build_object('kind', 'k1', 'queue', q)));
  elsif dice < 0.46 then
    perform jobs.cancel(id) from jobs.insert(k, queue => q, scheduled_at => clock_timestamp() + interval '1 day');
  elsif dice < 0.49 then
    perform jobs.insert(k, queue => q, expires_at => clock_timestamp() + interval '1 millisecond');
  elsif dice < 0.52 then
    -- The second replaces the first.
    perform jobs.insert(k, queue => q, args => once, unique_opts => '{"by_args": true, "by_queue": true}'),
            jobs.insert(k, queue => q, args => once, unique_opts => '{"by_args": true, "by_queue": true, "on_conflict": "replace"}');
  else
    -- Some leases are lost, and their attempts rescued.
    with got as materialized (
           select * from jobs.fetch(q, 1 + (random() * 9)::integer) where dice < 0.75
            union all
           select * from jobs.fetch_any('{q1,q2}', 1 + (random() * 9)::integer, lease => case when dice > 0.95 then interval '1 ms' end) where dice >= 0.75),
         noted as (insert into attempt select token, id, attempted_at, greatest(scheduled_at, created_at) from got)
    select array_agg(g.id), array_agg(g.token) into ids, tokens from got g where dice <= 0.95;
    perform pg_sleep(random() ^ 4 * 0.05);
    for n in 1 .. coalesce(cardinality(ids), 0) loop
      dice := random();
      if dice < 0.4 then
        perform jobs.complete(ids[n], tokens[n]);
      elsif dice < 0.48 then
        perform jobs.complete_many(ids[n:], tokens[n:]);
        exit;
      elsif dice < 0.51 then
        perform jobs.fail_many(ids[n:], tokens[n:], array_fill('again'::text, array[1 + cardinality(ids) - n]), retry_in => case when dice < 0.5 then interval '0' end);
        exit;
      elsif dice < 0.55 then
        perform jobs.finish_many((
          select jsonb_agg(jsonb_build_object('id', id, 'token', token)
                           || case (random() * 4)::integer when 0 then '{"do": "complete"}' when 1 then '{"do": "fail", "error": "again", "retry_in": 0}'
                                when 2 then '{"do": "fail", "error": "never again", "retryable": false}' when 3 then '{"do": "snooze", "delay": 0}'
                                else '{"do": "release"}' end::jsonb)
            from unnest(ids[n:], tokens[n:]) t(id, token)));
        exit;
      elsif dice < 0.65 then
        perform jobs.fail(ids[n], tokens[n], 'again', retry_in => '0');
      elsif dice < 0.75 then
        perform jobs.fail(ids[n], tokens[n], 'never again', retryable => false);
      elsif dice < 0.8 then
        perform jobs.snooze(ids[n], tokens[n], '0');
      elsif dice < 0.85 then
        perform jobs.release(ids[n], tokens[n]);
      elsif dice < 0.9 then
        perform jobs.cancel(ids[n], force => true);
      else
        perform jobs.cancel(ids[n]);
        if dice < 0.93 then
          perform jobs.complete(ids[n], tokens[n]);
        elsif dice < 0.96 then
          perform jobs.fail(ids[n], tokens[n], 'stopped');
        else
          perform jobs.release(ids[n], tokens[n]);
        end if;
      end if;
    end loop;
  end if;
end $$;

-- Some of it is rolled back, within the function as well.
create function act_or_not() returns void language plpgsql as $$
begin
  perform act();
  begin
    perform act();
    begin
      perform act();
      if random() < 0.5 then raise 'back'; end if;
    exception when raise_exception then null;
    end;
    if random() < 0.3 then raise 'back'; end if;
  exception when raise_exception then null;
  end;
  perform act();
end $$;

-- Events and times by what rows say.
create view event as
  select j.created_at as at, j.queue, j.kind, 'inserted' as what, null::interval as wait, null::interval as run from jobs.job j
  union all
  select a.attempted_at, j.queue, j.kind, 'started', a.attempted_at - greatest(a.due_at, r.at), null
    from attempt a join jobs.job j on j.id = a.job_id,
         -- When it was released.
         lateral (select max(w.at) as at from jobs.answer w
                   where w.job_id = a.job_id and w.state = 'available' and w.scheduled_at is null and w.at <= a.attempted_at) r
  union all
  select f.finalized_at, j.queue, j.kind, f.state::text, null,
         -- What ended by an error has its time there.
         case when not exists (select from jobs.error e where e.job_id = f.job_id and e.at = f.finalized_at) then f.finalized_at - f.attempted_at end
    from jobs.finished f join jobs.job j on j.id = f.job_id
  union all
  -- Expired ones have no attempt, and those whose lease was lost no token.
  select e.at, j.queue, j.kind, 'failed', null, e.at - a.attempted_at
    from jobs.error e join jobs.job j on j.id = e.job_id,
         lateral (select attempted_at from attempt a where a.job_id = e.job_id and a.attempted_at <= e.at order by a.attempted_at desc limit 1) a
   where e.error <> 'expired';

create view by_rows as
  select date_trunc('minute', at) as at, queue, kind,
         count(*) filter (where what = 'inserted') as inserted, count(*) filter (where what = 'started') as started,
         count(*) filter (where what = 'completed') as completed, count(*) filter (where what = 'failed') as failed,
         count(*) filter (where what = 'discarded') as discarded, count(*) filter (where what = 'cancelled') as cancelled
    from event group by 1, 2, 3;

create view times_by_rows as
  select queue, kind,
         coalesce(percentile_disc('{0.5,0.95,0.99}'::float[]) within group (order by wait), '{null,null,null}') as wait,
         coalesce(percentile_disc('{0.5,0.95,0.99}'::float[]) within group (order by run), '{null,null,null}') as run
    from event group by 1, 2;

-- What jobs.history says else than the rows.
create function wrong() returns table (what text) language sql as $$
  select format('%s: counted %s, in rows %s', coalesce(h.at, r.at), h, r)
    from (select at, queue, kind, inserted, started, completed, failed, discarded, cancelled from jobs.history(since => '1 day')) h
    full join by_rows r on h.at = r.at and h.queue = r.queue and h.kind = r.kind
   where (h.inserted, h.started, h.completed, h.failed, h.discarded, h.cancelled) is distinct from
         (r.inserted, r.started, r.completed, r.failed, r.discarded, r.cancelled)
  union all
  select format('%s %s: measured %s, in rows %s', queue, kind, h, r)
    from (select queue, kind, array[wait_p50, wait_p95, wait_p99, run_p50, run_p95, run_p99] as times from jobs.history(since => '1 day', step => '36500 days')) h
    join times_by_rows r using (queue, kind), unnest(h.times, r.wait || r.run) t(counted, exact)
   where (counted is null) <> (exact is null) or abs(extract(epoch from counted - exact)) > greatest(extract(epoch from exact) / 4, 0.000256)
$$;
