-- R2 of yardsticks.sql with what a user who measured would add: the fillfactor of the hot tables of
-- jobs (an update that finds room on its page writes less), and functions in PL/pgSQL, which keeps
-- their plans where a function in SQL is planned with each call. Beside the frozen one, not in its
-- place.
create table r2_tuned (like r2 including all) with (fillfactor = 70);

create function r2_tuned_fetch(in_queue text, most int) returns table (id bigint, kind text, args jsonb, meta jsonb, attempt int, tags text[])
language plpgsql volatile as $$
begin
  return query
    update r2_tuned r set state = 'running', attempt = r.attempt + 1, attempted_at = now(), lease_expires_at = now() + interval '1 minute', worker = 'bench'
     where r.id = any (array(
       select a.id from r2_tuned a where a.queue = in_queue and a.state = 'available' order by a.priority, a.id limit most for update skip locked))
    returning r.id, r.kind, r.args, r.meta, r.attempt, r.tags;
end $$;

create function r2_tuned_complete(ids bigint[]) returns bigint
language plpgsql volatile as $$
declare done bigint;
begin
  update r2_tuned set state = 'completed', finalized_at = now(), lease_expires_at = null where id = any (ids) and state = 'running';
  get diagnostics done = row_count;
  return done;
end $$;
