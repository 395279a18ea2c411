-- What a session's own memory (RssAnon of its process) grows by while it calls a function :n times, the first 10,000 calls
-- left out, and in the second half of the calls: a line a function. Each 10,000 calls are a transaction of their own.
set client_min_messages = warning;
set synchronous_commit = off;
create function rss() returns bigint language sql volatile as $$
  select substring(pg_read_file('/proc/self/status') from 'RssAnon:\s+(\d+)')::bigint $$;
create temp table calls (name text, statement text);
insert into calls values
  ('insert', $$select count(jobs.insert('m', queue => 'm')) from generate_series(1, 10000)$$),
  ('fetch + complete', $$select count(jobs.complete(f.id, f.token)) from generate_series(1, 10000) g, lateral (select id, token from jobs.fetch('m', case when g > 0 then 1 end)) f$$),
  ('insert unique', $$select count(jobs.insert('u', to_jsonb(g + 10000 * :round), '{"by_args": true}', queue => 'u')) from generate_series(1, 10000) g$$),
  ('insert duplicate', $$select count(jobs.insert('d', unique_opts => '{"by_args": true}', queue => 'd')) from generate_series(1, 10000)$$),
  ('insert_batch', $$select count(*) from generate_series(1, 10000) g, lateral jobs.insert_batch('b', array[to_jsonb(g), to_jsonb(g + 1)], queue => 'b')$$),
  ('insert_many', $$select count(*) from generate_series(1, 10000) g, lateral jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'b', 'args', g, 'queue', 'b')))$$),
  ('fetch + fail', $$select count(jobs.fail(f.id, f.token, 'e', retry_in => '1 day')) from generate_series(1, 10000) g, lateral (select id, token from jobs.fetch('b', case when g > 0 then 1 end)) f$$),
  ('fetch + snooze', $$select count(jobs.snooze(f.id, f.token, '1 day')) from generate_series(1, 10000) g, lateral (select id, token from jobs.fetch('b', case when g > 0 then 1 end)) f$$),
  ('fetch + heartbeat + release', $$select count(jobs.heartbeat(f.id, f.token)), count(jobs.release(f.id, f.token)) from generate_series(1, 10000) g, lateral (select id, token from jobs.fetch('b', case when g > 0 then 1 end)) f$$),
  ('cancel', $$select count(jobs.cancel(id)) from (select id from jobs.insert_batch('c', array_fill('1'::jsonb, array[10000]), queue => 'c')) i$$),
  ('explain_unique', $$select count(*) from generate_series(1, 10000) g, lateral jobs.explain_unique('u', to_jsonb(g), '{"by_args": true}')$$),
  ('unique_key', $$select count(jobs.unique_key('u', to_jsonb(g), '{"by_args": true}')) from generate_series(1, 10000) g$$);
create procedure measure(times int) language plpgsql as $p$
declare c record; before bigint; halfway bigint;
begin
  create temp table grown (name text, kb bigint, late bigint);
  for c in select * from calls loop
    for round in 1 .. times loop
      execute replace(c.statement, ':round', round::text);
      commit;
      if round = 1 then before := rss(); end if;
      if round = times / 2 then halfway := rss(); end if;
    end loop;
    insert into grown values (c.name, rss() - before, rss() - halfway);
  end loop;
end $p$;
select greatest(:n / 10000, 2) as times \gset
call measure(:times);
select name, kb, late from grown;
