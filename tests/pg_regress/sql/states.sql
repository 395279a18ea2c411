-- Every operation on a job in every state, against the table of transitions, written down by hand.

-- One job for each state and each way into it that matters, in a queue of its own; token is the
-- last that it was fetched with.
create temp table job (place text primary key, state jobs.state, id bigint, token bigint);
insert into job select v.place, v.state, i.id
  from (values ('available', 'available'::jobs.state), ('available, released', 'available'), ('scheduled', 'scheduled'), ('scheduled, snoozed', 'scheduled'), ('pending', 'pending'), ('running', 'running'),
               ('running, cancel requested', 'running'), ('running, last attempt', 'running'), ('running, lease expired', 'running'), ('retryable', 'retryable'), ('completed', 'completed'), ('cancelled', 'cancelled'),
               ('cancelled, by its worker', 'cancelled'), ('cancelled, by force', 'cancelled'), ('discarded', 'discarded'), ('discarded, expired', 'discarded')) v(place, state),
       lateral jobs.insert('k', queue => v.place, pending => v.place = 'pending', max_attempts => case when v.place = 'running, last attempt' then 1 end,
                           scheduled_at => case when v.place = 'scheduled' then timestamptz '2999-01-01 00:00Z' end,
                           expires_at => case when v.place = 'discarded, expired' then timestamptz '2001-01-01 00:00Z' end,
                           timeout => case when v.place = 'running, lease expired' then interval '1 microsecond' else '-1' end) i;
update job set token = f.token from (select x.place, f.token from job x, lateral jobs.fetch(x.place) f where x.place ~ 'running|released|snoozed|retryable|completed|by|^discarded$') f where f.place = job.place;
select jobs.release(id, token) from job where place = 'available, released'; --> available
select (jobs.snooze(id, token, '1 hour')).state from job where place = 'scheduled, snoozed'; --> scheduled
select jobs.cancel(id) from job where place in ('running, cancel requested', 'cancelled', 'cancelled, by its worker'); --> running, cancelled, running
select (jobs.fail(id, token, 'x', '1 hour')).state from job where place in ('retryable', 'cancelled, by its worker'); --> retryable, cancelled
select jobs.complete(id, token) from job where place = 'completed'; --> completed
select jobs.cancel(id, force => true) from job where place = 'cancelled, by force'; --> cancelled
select (jobs.fail(id, token, 'x', retryable => false)).state from job where place = 'discarded'; --> discarded
select task, rows from jobs.maintain() where task = 'expire'; --> task|rows: expire|1
-- The lease of this one has run out; the maintenance above rescued it, so it is fetched again.
update job set token = f.token from jobs.fetch('running, lease expired') f where place = 'running, lease expired';
select jobs.retry(id) from job where place = 'running, lease expired'; --> available
update job set token = f.token from jobs.fetch('running, lease expired') f where place = 'running, lease expired';
select place from job left join jobs.jobs j using (id) where j.state is distinct from job.state order by 1; --> none

-- What each operation does, then undone: what it answers (for delete the state that it had, for a
-- heartbeat "beat", for a fetch "running" or "none") and, where that is another one, the state
-- afterwards; or SQLSTATE and DETAIL.
create temp table operation (name text primary key, call text);
insert into operation values
  ('complete', 'select jobs.complete(%s, %s)'), ('fail', 'select (jobs.fail(%s, %s, ''x'')).state'), ('fail at once', 'select (jobs.fail(%s, %s, ''x'', ''0'')).state'),
  ('fail, final', 'select (jobs.fail(%s, %s, ''x'', retryable => false)).state'),
  ('snooze', 'select (jobs.snooze(%s, %s, ''1 hour'')).state'), ('release', 'select jobs.release(%s, %s)'),
  ('heartbeat', 'select ''beat'' from jobs.heartbeat(%s, %s)'),
  ('cancel', 'select jobs.cancel(%s)'), ('cancel, force', 'select jobs.cancel(%s, force => true)'), ('retry', 'select jobs.retry(%s)'), ('retry, reset', 'select jobs.retry(%s, reset => true)'),
  ('delete', 'select jobs.delete(%s)'), ('activate', 'select jobs.activate(%s)'), ('update', 'select jobs.update(%s, args => ''1'')'), ('fetch', 'select coalesce((select ''running'' from jobs.fetch((select queue from jobs.jobs where id = %s))), ''none'')');
create function pg_temp.outcome(call text, job bigint, token text) returns text language plpgsql as $$
declare answer text; after text; detail text; before text := (select state from jobs.jobs where id = job); violations bigint;
begin
  begin
    begin
      execute format(call, job, token) into answer;
    exception when others then
      get stacked diagnostics detail = pg_exception_detail;
      -- A word is for programs; a rule is for people.
      answer := sqlstate || case when sqlstate = '55000' and detail !~ ' ' then ' ' || detail else '' end;
    end;
    after := coalesce((select state::text from jobs.jobs where id = job), 'gone');
    -- finalized_at is set exactly in the final states.
    if exists (select from jobs.jobs where (finalized_at is not null) <> (state in ('completed', 'cancelled', 'discarded'))) then answer := answer || ' finalized_at!'; end if;
    raise exception using errcode = 'ZZ000';
  exception when sqlstate 'ZZ000' then
    return rtrim(answer) || case when after = answer or after = before and answer ~ '^(\d|beat|none|P)' then '' else ' -> ' || after end;
  end;
end $$;

-- With the right token: the one of the current attempt; where there is none, the last one, which is
-- answered as the first time if it is the call that made the job what it is.
create temp table expected (place text, complete text, fail text, fail_at_once text, fail_final text, snooze text, release text, heartbeat text);
insert into expected values
  ('available, released',      '55000 already_finished', '55000 already_finished', '55000 already_finished', '55000 already_finished', '55000 already_finished', 'available', '55000 already_finished'),
  ('scheduled, snoozed',       '55000 already_finished', '55000 already_finished', '55000 already_finished', '55000 already_finished', 'scheduled', '55000 already_finished', '55000 already_finished'),
  ('running',                   'completed',  'retryable',  'available',  'discarded',  'scheduled', 'available', 'beat'),
  ('running, cancel requested', 'completed',  'cancelled',  'cancelled',  'cancelled',  'cancelled', 'cancelled', 'beat'),
  ('running, last attempt',     'completed',  'discarded',  'discarded',  'discarded',  'scheduled', 'available', 'beat'),
  -- Until its rescue has happened it is still its worker's; but a heartbeat past the deadline is
  -- refused.
  ('running, lease expired',    'completed',  'retryable',  'available',  'discarded',  'scheduled', 'available', '55000 deadline_exceeded'),
  ('retryable',                '55000 already_finished', 'retryable', 'retryable', 'retryable', '55000 already_finished', '55000 already_finished', '55000 already_finished'),
  ('completed',                'completed', '55000 already_finished', '55000 already_finished', '55000 already_finished', '55000 already_finished', '55000 already_finished', '55000 already_finished'),
  ('cancelled, by its worker', '55000 already_finished', 'cancelled', 'cancelled', 'cancelled', '55000 already_finished', '55000 already_finished', '55000 already_finished'),
  ('cancelled, by force',       '55000 lease_lost', '55000 lease_lost', '55000 lease_lost', '55000 lease_lost', '55000 lease_lost', '55000 lease_lost', '55000 lease_lost'),
  ('discarded',                '55000 already_finished', 'discarded', 'discarded', 'discarded', '55000 already_finished', '55000 already_finished', '55000 already_finished');
create temp table cases as
  select place, o.name as operation, 'right' as token, x.expected from expected e, operation o,
    lateral (select case o.name when 'complete' then e.complete when 'fail' then e.fail when 'fail at once' then e.fail_at_once when 'fail, final' then e.fail_final
                                when 'snooze' then e.snooze when 'release' then e.release when 'heartbeat' then e.heartbeat end) x(expected)
   where o.call ~ '%s, %s';
-- A token that is not the current one is refused in every state; NULL is 22004.
insert into cases select place, name, 'stale', '55000 lease_lost' from job, operation where call ~ '%s, %s';
insert into cases select place, name, 'NULL', '22004' from job, operation where call ~ '%s, %s';
-- Without a token.
create temp table unfenced (place text, cancel text, cancel_force text, retry text, retry_reset text, delete text, fetched text, activate text, update text);
insert into unfenced values
  ('available',                 'cancelled', 'cancelled', 'available', 'available', 'available -> gone', 'running', '55000', 'available'),
  ('available, released',       'cancelled', 'cancelled', 'available', 'available', 'available -> gone', 'running', '55000', 'available'),
  ('scheduled',                 'cancelled', 'cancelled', 'available', 'available', 'scheduled -> gone', 'none', '55000', 'scheduled'),
  ('scheduled, snoozed',        'cancelled', 'cancelled', 'available', 'available', 'scheduled -> gone', 'none', '55000', 'scheduled'),
  ('pending',                   'cancelled', 'cancelled', 'available', 'available', 'pending -> gone',   'none', 'available', 'pending'),
  ('running',                   'running',   'cancelled', 'running',   'running',   '55000',             'none', '55000', '55000'),
  ('running, cancel requested', 'running',   'cancelled', 'running',   'running',   '55000',             'none', '55000', '55000'),
  ('running, last attempt',     'running',   'cancelled', 'running',   'running',   '55000',             'none', '55000', '55000'),
  ('running, lease expired',    'running',   'cancelled', 'running',   'running',   '55000',             'none', '55000', '55000'),
  ('retryable',                 'cancelled', 'cancelled', 'available', 'available', 'retryable -> gone', 'none', '55000', 'retryable'),
  ('completed',                 'completed', 'completed', 'available', 'available', 'completed -> gone', 'none', '55000', '55000'),
  ('cancelled',                 'cancelled', 'cancelled', 'available', 'available', 'cancelled -> gone', 'none', '55000', '55000'),
  ('cancelled, by its worker',  'cancelled', 'cancelled', 'available', 'available', 'cancelled -> gone', 'none', '55000', '55000'),
  ('cancelled, by force',       'cancelled', 'cancelled', 'available', 'available', 'cancelled -> gone', 'none', '55000', '55000'),
  ('discarded',                 'discarded', 'discarded', 'available', 'available', 'discarded -> gone', 'none', '55000', '55000'),
  ('discarded, expired',        'discarded', 'discarded', 'available', 'available', 'discarded -> gone', 'none', '55000', '55000');
insert into cases
  select place, o.name, '', x.expected from unfenced e, operation o,
    lateral (select case o.name when 'cancel' then e.cancel when 'cancel, force' then e.cancel_force when 'retry' then e.retry when 'retry, reset' then e.retry_reset
                                when 'delete' then e.delete when 'fetch' then e.fetched when 'activate' then e.activate when 'update' then e.update end) x(expected)
   where o.call !~ '%s, %s';
create temp table results as
  select c.*, pg_temp.outcome(o.call, j.id, case c.token when 'right' then j.token::text when 'stale' then '1' when 'NULL' then 'null' end) as actual
    from cases c join operation o on o.name = c.operation join job j using (place);
select token, count(*), count(*) filter (where actual = expected) as as_expected from results group by token order by token;
--> token|count|as_expected
--> |128|128
--> NULL|112|112
--> right|77|77
--> stale|112|112
select * from results where actual is distinct from expected order by 1, 2, 3; --> none

-- The details of each transition. attempt: + 1 by fetch, kept by fail, - 1 by snooze and release;
-- errors: one by fail, none by the others.
create function pg_temp.story(call text, job bigint, token text) returns text language plpgsql as $$
declare story text;
begin
  execute format(call, job, token);
  story := (select format('%s attempt %s of %s errors %s', state, attempt, max_attempts, (select count(*) from jobs.errors where job_id = job)) from jobs.jobs where id = job);
  raise exception using errcode = 'ZZ000';
exception when sqlstate 'ZZ000' then return story;
end $$;
select place, name, pg_temp.story(call, id, token::text) from job, operation
 where place in ('running', 'running, cancel requested', 'running, last attempt') and name not in ('delete', 'fetch', 'heartbeat', 'retry', 'retry, reset', 'activate', 'update') order by 1, 2;
--> place|name|story
--> running|cancel|running attempt 1 of 25 errors 0
--> running|cancel, force|cancelled attempt 1 of 25 errors 0
--> running|complete|completed attempt 1 of 25 errors 0
--> running|fail|retryable attempt 1 of 25 errors 1
--> running|fail at once|available attempt 1 of 25 errors 1
--> running|fail, final|discarded attempt 1 of 25 errors 1
--> running|release|available attempt 0 of 25 errors 0
--> running|snooze|scheduled attempt 0 of 25 errors 0
--> running, cancel requested|cancel|running attempt 1 of 25 errors 0
--> running, cancel requested|cancel, force|cancelled attempt 1 of 25 errors 0
--> running, cancel requested|complete|completed attempt 1 of 25 errors 0
--> running, cancel requested|fail|cancelled attempt 1 of 25 errors 1
--> running, cancel requested|fail at once|cancelled attempt 1 of 25 errors 1
--> running, cancel requested|fail, final|cancelled attempt 1 of 25 errors 1
--> running, cancel requested|release|cancelled attempt 1 of 25 errors 0
--> running, cancel requested|snooze|cancelled attempt 1 of 25 errors 0
--> running, last attempt|cancel|running attempt 1 of 1 errors 0
--> running, last attempt|cancel, force|cancelled attempt 1 of 1 errors 0
--> running, last attempt|complete|completed attempt 1 of 1 errors 0
--> running, last attempt|fail|discarded attempt 1 of 1 errors 1
--> running, last attempt|fail at once|discarded attempt 1 of 1 errors 1
--> running, last attempt|fail, final|discarded attempt 1 of 1 errors 1
--> running, last attempt|release|available attempt 0 of 1 errors 0
--> running, last attempt|snooze|scheduled attempt 0 of 1 errors 0
select place, name, pg_temp.story(call, id, token::text) from job, operation where name in ('retry', 'retry, reset') and place in ('retryable', 'completed', 'discarded', 'cancelled', 'pending') order by 1, 2;
--> place|name|story
--> cancelled|retry|available attempt 0 of 25 errors 0
--> cancelled|retry, reset|available attempt 0 of 25 errors 0
--> completed|retry|available attempt 1 of 25 errors 0
--> completed|retry, reset|available attempt 0 of 25 errors 0
--> discarded|retry|available attempt 1 of 25 errors 1
--> discarded|retry, reset|available attempt 0 of 25 errors 1
--> pending|retry|available attempt 0 of 25 errors 0
--> pending|retry, reset|available attempt 0 of 25 errors 0
--> retryable|retry|available attempt 1 of 25 errors 1
--> retryable|retry, reset|available attempt 0 of 25 errors 1

-- Nothing above changed anything, and an unknown id is P0002 everywhere.
select place from job left join jobs.jobs j using (id) where j.state is distinct from job.state order by 1; --> none
select pg_temp.code(format(call, 999999, '1')) as unknown, pg_temp.code(replace(call, '%s', 'null')) as null, count(*) from operation where name <> 'fetch' group by 1, 2;
--> unknown|null|count: P0002|22004|14

-- A refusal names the job, its state and the operation.
select bool_and(message ~ ('\m' || id || '\M')) as the_job, bool_and(message ~ 'completed') as its_state, bool_and(message ~ substring(replace(name, 'heartbeat', 'lease') from '\w+')) as the_operation, count(*)
  from job, operation, lateral (select substring(pg_temp.try(format(call, id, 1)), '^[^|\n]*')) t(message) where place = 'completed' and call ~ '%s, %s'; --> the_job|its_state|the_operation|count: t|t|t|7
