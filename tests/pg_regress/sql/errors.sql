-- What errors carry for a program: every 22023 and 22004 names the parameter or member that it is
-- about in the diagnostics' column name, however the error reaches who asks; and no other error has
-- one.

-- SQLSTATE and column name of a statement that fails.
create function pg_temp.about(statement text) returns text language plpgsql as $$
declare state text; name text;
begin
  execute statement;
  return 'ok';
exception when others then
  get stacked diagnostics state = returned_sqlstate, name = column_name;
  return state || ' ' || coalesce(nullif(name, ''), '-');
end $$;
create temp table cases (n int generated always as identity, name text, call text);

-- Parameters of an insert, and members of what is in them.
insert into cases (name, call) select name, format('jobs.insert(%s)', call) from (values
  ('kind', $$null$$), ('kind', $$''$$), ('kind', $$repeat('k', 128)$$), ('args', $$'k', null$$), ('queue', $$'k', queue => e'a\nb'$$), ('priority', $$'k', priority => 40000$$),
  ('max_attempts', $$'k', max_attempts => 0$$), ('tags', $$'k', tags => '{a,null}'$$), ('meta', $$'k', meta => '[]'$$), ('timeout', $$'k', timeout => '0'$$),
  ('scheduled_at', $$'k', scheduled_at => 'infinity'$$), ('expires_at', $$'k', expires_at => '-infinity'$$), ('retry', $$'k', retry => '"nosuch"'$$), ('retry', $$'k', retry => '{"nosuch": 1}'$$),
  ('strategy', $$'k', retry => '{"strategy": "nosuch"}'$$), ('initial', $$'k', retry => '{"initial": "1 hour"}'$$), ('jitter', $$'k', retry => '{"jitter": 2}'$$),
  ('non_retryable', $$'k', retry => '{"non_retryable": ["*"]}'$$), ('unique_opts', $$'k', unique_opts => '[]'$$), ('unique_opts', $$'k', unique_opts => '{"by_arg": true}'$$),
  ('unique_opts', $$'k', unique_opts => (repeat('[', 40) || repeat(']', 40))::jsonb$$), ('args', $$'k', '{"caf\u00e9": 1, "cafe\u0301": 2}', '{"by_args": true}'$$),
  ('args', $$'k', '{}', '{"ojs": {"keys": ["args"], "args_keys": ["a"]}}'$$)
  ) v (name, call);
insert into cases (name, call) select name, format('jobs.insert(''k'', unique_opts => %L)', options) from (values
  ('by_args', '{"by_args": 7}'), ('by_args', '{"by_args": []}'), ('by_args', '{"by_args": ["a..b"]}'), ('by_meta', '{"by_meta": true}'), ('by_queue', '{"by_queue": "yes"}'),
  ('by_period', '{"by_period": "1 month"}'), ('by_state', '{"by_state": ["finished"]}'), ('key', '{"key": ""}'), ('key', '{"key": "k", "by_args": true}'), ('window', '{"window": "1 hour"}'),
  ('window', '{"by_kind": true, "window": "soon"}'), ('window_from', '{"by_kind": true, "window_from": "created_at"}'), ('hold_until', '{"by_kind": true, "hold_for": 1, "hold_until": "never"}'),
  ('on_conflict', '{"by_kind": true, "on_conflict": "ignore"}'), ('on_conflict', '{"by_kind": true, "on_conflict": {"updates": {}}}'), ('update', '{"by_kind": true, "on_conflict": {"update": []}}'),
  ('update', '{"by_kind": true, "on_conflict": {"update": {}}}'), ('running', '{"by_kind": true, "on_conflict": {"update": {"running": []}}}'),
  ('scheduled', '{"by_kind": true, "on_conflict": {"update": {"scheduled": ["id"]}}}'), ('wait', '{"by_kind": true, "wait": 1}'), ('oban', '{"oban": 1}'), ('oban', '{"oban": {"unit": 1}}'),
  ('period', '{"oban": {"period": "long"}}'), ('keys', '{"oban": {"keys": ["a"], "fields": ["worker"]}}'), ('unique_until', '{"faktory": {"unique_for": 1, "unique_until": "end"}}'),
  ('unique_for', '{"faktory": {"unique_for": "1 hour"}}'), ('keys', '{"ojs": {"keys": ["kind"]}}'), ('keys', '{"ojs": {"keys": ["meta"]}}'), ('period', '{"ojs": {"period": "1 hour"}}')
  ) v (name, options);

-- Elements of a batch: the member, or what they are elements of.
insert into cases (name, call) select name, format('jobs.insert_many(%L)', jobs) from (values
  ('jobs', '{}'), ('jobs', '[1]'), ('jobs', '[{"kind": "k"}, {"kind": "k", "kidn": 1}]'), ('kind', '[{"kind": "k"}, {}]'), ('kind', '[{"kind": 1}]'),
  ('priority', '[{"kind": "k"}, {"kind": "k", "priority": "high"}]'), ('priority', '[{"kind": "k", "priority": 40000}]'), ('priority', '[{"kind": "k", "priority": 1e40}]'),
  ('max_attempts', '[{"kind": "k", "max_attempts": 1.5}]'), ('tags', '[{"kind": "k", "tags": [1]}]'), ('scheduled_at', '[{"kind": "k", "scheduled_at": "soon"}]'),
  ('timeout', '[{"kind": "k", "timeout": "soon"}]'), ('pending', '[{"kind": "k", "pending": "yes"}]'), ('jitter', '[{"kind": "k", "retry": {"jitter": 2}}]'),
  ('by_args', '[{"kind": "k", "unique_opts": {"by_args": 1}}]')
  ) v (name, jobs);
insert into cases (name, call) values
  ('jobs', $$jobs.insert_many(null)$$), ('args', $$jobs.insert_batch('k', null)$$), ('args', $$jobs.insert_batch('k', array['{}', null]::jsonb[])$$),
  ('kind', $$jobs.insert_batch('', array['{}']::jsonb[])$$), ('queue', $$jobs.insert_batch('k', array['{}']::jsonb[], queue => '')$$),
  ('args', $$jobs.insert_batch('k', array['{}', '{}']::jsonb[], '{"ojs": {"keys": ["args"], "args_keys": ["a"]}}')$$);

-- Every other function.
insert into cases (name, call) values
  ('kind', $$jobs.unique_key('')$$), ('scheduled_at', $$jobs.explain_unique('k', scheduled_at => 'infinity')$$), ('queue', $$jobs.fetch(null)$$), ('max_jobs', $$jobs.fetch('q', 0)$$),
  ('lease', $$jobs.fetch('q', lease => '0')$$), ('min_jobs', $$jobs.fetch('q', min_jobs => 2)$$), ('linger', $$jobs.fetch('q', linger => '-1 s')$$), ('kinds', $$jobs.fetch('q', kinds => '{null}')$$),
  ('queues', $$jobs.fetch_any(null)$$), ('queues', $$jobs.fetch_any('{null}')$$), ('queues', $$jobs.fetch_any('{""}')$$), ('queues', $$jobs.fetch_any(array_fill('q'::text, '{10001}'))$$),
  ('id', $$jobs.complete(null, 1)$$), ('token', $$jobs.complete(1, null)$$), ('ids', $$jobs.complete_many(null, '{1}')$$), ('ids', $$jobs.complete_many('{null}', '{1}')$$),
  ('tokens', $$jobs.complete_many('{1}', null)$$), ('ids', $$jobs.complete_many('{1,2}', '{1}')$$), ('outputs', $$jobs.complete_many('{1,2}', '{1,2}', '{1}')$$),
  ('ids', $$jobs.complete_many(array_fill(1::bigint, '{10001}'), array_fill(1::bigint, '{10001}'))$$), ('error', $$jobs.fail(1, 1, null)$$), ('ids', $$jobs.fail_many(null, '{1}', '{e}')$$),
  ('ids', $$jobs.fail_many('{1,2}', '{1}', '{e}')$$),
  ('ids', $$jobs.fail_many(array_fill(1::bigint, array[10001]), array_fill(1::bigint, array[10001]), array_fill('e'::text, array[10001]))$$),
  ('errors', $$jobs.fail_many('{1}', '{1}', null)$$), ('errors', $$jobs.fail_many('{1}', '{1}', '{null}')$$), ('errors', $$jobs.fail_many('{1}', '{1}', '{}')$$),
  ('details', $$jobs.fail_many('{1}', '{1}', '{e}', '{}')$$), ('retry_in', $$jobs.fail_many('{1}', '{1}', '{e}', retry_in => '-1 s')$$), ('results', $$jobs.finish_many(null)$$),
  ('results', $$jobs.finish_many('{}')$$), ('results', $$jobs.finish_many('[1]')$$), ('results', $$jobs.finish_many('[{"jd": 1}]')$$),
  ('results', $$jobs.finish_many((select jsonb_agg('{"id": 1, "token": 1, "do": "release"}'::jsonb) from generate_series(1, 10001)))$$),
  ('do', $$jobs.finish_many('[{"id": 1, "token": 1}]')$$), ('do', $$jobs.finish_many('[{"id": 1, "token": 1, "do": "complet"}]')$$), ('id', $$jobs.finish_many('[{"token": 1, "do": "release"}]')$$),
  ('id', $$jobs.finish_many('[{"id": "1", "token": 1, "do": "release"}]')$$), ('token', $$jobs.finish_many('[{"id": 1, "token": 1.5, "do": "release"}]')$$),
  ('error', $$jobs.finish_many('[{"id": 1, "token": 1, "do": "fail"}]')$$), ('retryable', $$jobs.finish_many('[{"id": 1, "token": 1, "do": "fail", "error": "e", "retryable": 1}]')$$),
  ('retry_in', $$jobs.finish_many('[{"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": -1}]')$$), ('delay', $$jobs.finish_many('[{"id": 1, "token": 1, "do": "snooze"}]')$$),
  ('output', $$jobs.finish_many('[{"id": 1, "token": 1, "do": "release", "output": 1}]')$$), ('retry_in', $$jobs.fail(1, 1, 'e', retry_in => '-1 s')$$), ('delay', $$jobs.snooze(1, 1, null)$$),
  ('delay', $$jobs.snooze(1, 1, '-1 s')$$), ('token', $$jobs.release(1, null)$$), ('lease', $$jobs.heartbeat(1, 1, '-1 s')$$), ('ids', $$jobs.heartbeat_many('{1}', '{}')$$),
  ('ids', $$jobs.heartbeat_many(array_fill(1::bigint, '{10001}'), array_fill(1::bigint, '{10001}'))$$), ('id', $$jobs.cancel(null)$$), ('id', $$jobs.retry(null)$$), ('id', $$jobs.activate(null)$$),
  ('id', $$jobs.delete(null)$$), ('id', $$jobs.update(null)$$), ('priority', $$jobs.update(1, priority => 40000)$$), ('queue', $$jobs.cancel_many()$$),
  ('states', $$jobs.cancel_many(states => '{null}')$$), ('older_than', $$jobs.retry_many(older_than => '-1 s')$$), ('error_like', $$jobs.retry_many(error_like => 'a\')$$),
  ('failed_after', $$jobs.retry_many(failed_after => 'infinity')$$), ('max_jobs', $$jobs.delete_many(queue => 'q', max_jobs => 0)$$), ('queue', $$jobs.pause_queue('')$$),
  ('queue', $$jobs.resume_queue(null)$$), ('queue', $$jobs.reset_queue('')$$), ('kind', $$jobs.undefine_kind(null)$$), ('concurrency', $$jobs.configure_queue('q', 0)$$),
  ('rate', $$jobs.configure_queue('q', rate => 1)$$), ('rate_period', $$jobs.configure_queue('q', rate_period => '1 s')$$), ('rate_period', $$jobs.configure_queue('q', rate => 1, rate_period => '0')$$),
  ('retention_discarded', $$jobs.configure_queue('q', retention_discarded => '-2 s')$$), ('max_waiting', $$jobs.configure_queue('q', max_waiting => 0)$$),
  ('by', $$jobs.define_limit('l', '{}', concurrency => 1)$$), ('by_args', $$jobs.define_limit('l', '{"by_args": []}', concurrency => 1)$$),
  ('kinds', $$jobs.define_limit('l', kinds => '{}', concurrency => 1)$$), ('concurrency', $$jobs.define_limit('l')$$), ('per_cell', $$jobs.define_limit('l', concurrency => 1, per_cell => null)$$),
  ('key', $$jobs.override_limit('l', null)$$), ('name', $$jobs.pause_limit('')$$), ('name', $$jobs.resume_limit(null)$$), ('name', $$jobs.drop_limit(null)$$),
  ('queue', $$jobs.order_queue(null, null)$$), ('by', $$jobs.order_queue('q', null, strict => true)$$), ('strict', $$jobs.order_queue('q', '{"by_kind": true}')$$),
  ('on_discard', $$jobs.order_queue('q', '{"by_kind": true}', true, 'stop')$$), ('fair', $$jobs.order_queue('q', '{"by_kind": true}', true, fair => null)$$),
  ('weights', $$jobs.order_queue('q', '{"by_kind": true}', fair => true, weights => '[]')$$), ('key', $$jobs.unblock('q', null)$$), ('kind', $$jobs.define_kind(null)$$), ('ids', $$jobs.results(null)$$),
  ('ids', $$jobs.results('{1,null}')$$), ('ids', $$jobs.results(array_fill(1::bigint, '{10001}'))$$), ('worker', $$jobs.worker_beat('', '{}', 1)$$), ('queues', $$jobs.worker_beat('w', '{null}', 1)$$),
  ('queues', $$jobs.worker_beat('w', array_fill('q'::text, '{10001}'), 1)$$), ('concurrency', $$jobs.worker_beat('w', '{}', 0)$$), ('info', $$jobs.worker_beat('w', '{}', 1, '[]')$$),
  ('worker', $$jobs.worker_leave('')$$), ('worker', $$jobs.quiet_worker(null)$$), ('worker', $$jobs.stop_worker('')$$), ('worker', $$jobs.resume_worker(null)$$),
  ('by_state', $$jobs.define_kind('k', unique_opts => '{"by_state": "all"}')$$), ('name', $$jobs.schedule('', '@daily', 'k')$$), ('cron', $$jobs.schedule('n', '@dayly', 'k')$$),
  ('cron', $$jobs.schedule('n', null, 'k')$$), ('cron', $$jobs.schedule('n', '61 * * * *', 'k')$$), ('cron', $$jobs.schedule('n', 'every 0 seconds', 'k')$$),
  ('time_zone', $$jobs.schedule('n', '@daily', 'k', time_zone => 'Europe/Berlni')$$), ('missed', $$jobs.schedule('n', '@daily', 'k', missed => 'never')$$), ('name', $$jobs.unschedule(null)$$),
  ('name', $$jobs.pause_periodic('')$$), ('name', $$jobs.resume_periodic(null)$$), ('name', $$jobs.run_periodic(null)$$), ('role', $$jobs.grant_worker(null)$$),
  ('role', $$jobs.grant_application(null)$$), ('role', $$jobs.grant_operator(null)$$), ('old_snapshot', $$jobs.health(old_snapshot => '-1 s')$$), ('queue', $$jobs.history(queue => '')$$),
  ('kind', $$jobs.history(kind => repeat('k', 128))$$), ('since', $$jobs.history(since => '0')$$), ('step', $$jobs.history(step => null)$$), ('id', $$jobs.show(null)$$), ('id', $$jobs.explain(null)$$);
select n, name, pg_temp.about('select ' || call) as answer, call from cases
 where pg_temp.about('select ' || call) not in ('22023 ' || name, '22004 ' || name) order by n; --> none
select count(*) from jobs.jobs; --> 0

-- Other errors have none, also right after one that has.
select pg_temp.about($$select jobs.insert('')$$), pg_temp.about($$select jobs.complete(1, 1)$$), pg_temp.about($$select jobs.show(1)$$), pg_temp.about($$select 1 / 0$$),
       pg_temp.about($q$do $d$ begin raise 'kind must not be empty' using errcode = '22023'; end $d$$q$), pg_temp.about($$select jobs.grant_worker('nobody there')$$);
--> about|about|about|about|about|about: 22023 kind|P0002 -|P0002 -|22012 -|22023 -|42704 -
select pg_temp.about($q$do $d$ begin perform jobs.insert(''); exception when others then perform jobs.complete(1, 1); end $d$$q$); --> P0002 -
select pg_temp.about($q$do $d$ begin perform jobs.insert(''); exception when others then raise; end $d$$q$); --> 22023 kind
select pg_temp.about($q$do $d$ begin perform jobs.insert(''); exception when others then raise 'kind must not be empty' using errcode = '22023'; end $d$$q$); --> 22023 -

-- Through triggers on the extension's own tables, in which an error is taken apart and raised anew
-- more than once.
create function pg_temp.inserts() returns trigger language plpgsql as $$
begin
  if new.kind = 'outer' then
    if tg_argv[0] = 'own' then
      raise 'no' using errcode = tg_argv[1], column = 'c', table = 't', schema = 's', constraint = 'n', datatype = 'd';
    elsif tg_argv[0] = 'caught' then
      begin
        perform jobs.insert('k', max_attempts => 0);
      exception when others then
        perform jobs.insert('instead');
        raise;
      end;
    elsif tg_argv[0] = 'other' then
      begin
        perform jobs.insert('k', max_attempts => 0);
      exception when others then
        raise 'no' using errcode = tg_argv[1];
      end;
    else
      perform jobs.insert('k', max_attempts => 0);
    end if;
  end if;
  return new;
end $$;
create function pg_temp.all_about(statement text) returns text language plpgsql as $$
declare state text; c text; t text; s text; n text; d text; message text;
begin
  execute statement;
  return 'ok';
exception when others then
  get stacked diagnostics state = returned_sqlstate, message = message_text, c = column_name, t = table_name, s = schema_name, n = constraint_name, d = pg_datatype_name;
  return concat_ws(' | ', state, message, 'column ' || nullif(c, ''), 'table ' || nullif(t, ''), 'schema ' || nullif(s, ''), 'constraint ' || nullif(n, ''), 'type ' || nullif(d, ''));
end $$;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('plain');
select pg_temp.all_about($$select id from jobs.insert('outer')$$); --> 22023 | max_attempts 0 is too low | column max_attempts
select pg_temp.all_about($$select id from jobs.insert('outer', '{}', '{"by_kind": true}')$$); --> 22023 | max_attempts 0 is too low | column max_attempts
select pg_temp.all_about($$select id from jobs.insert_batch('outer', '{"{}"}')$$); --> 22023 | max_attempts 0 is too low | column max_attempts
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('caught');
select pg_temp.all_about($$select id from jobs.insert('outer')$$); --> 22023 | max_attempts 0 is too low | column max_attempts
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('other', '22023');
select pg_temp.all_about($$select id from jobs.insert('outer')$$); --> 22023 | no
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('own', '22023');
select pg_temp.all_about($$select id from jobs.insert('outer')$$); --> 22023 | no | column c | table t | schema s | constraint n | type d
select pg_temp.all_about($$select id from jobs.insert_many('[{"kind": "outer"}]')$$); --> 22023 | no | column c | table t | schema s | constraint n | type d
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('own', 'AB123');
select pg_temp.all_about($$select id from jobs.insert('outer')$$); --> AB123 | no | column c | table t | schema s | constraint n | type d
-- A subtransaction of ours is rolled back on the way.
select pg_temp.all_about($$select id from jobs.insert('outer', '{}', '{"by_kind": true, "on_conflict": "replace"}')$$); --> AB123 | no | column c | table t | schema s | constraint n | type d
drop trigger t on jobs.job;
-- A user's constraint.
alter table jobs.job add constraint no_x check (kind <> 'x');
select pg_temp.all_about($$select id from jobs.insert('x')$$); --> 23514 | new row for relation "job" violates check constraint "no_x" | table job | schema jobs | constraint no_x
alter table jobs.job drop constraint no_x;
-- Maintenance catches what is raised in it, and the next error is another one.
select id > 0 as inserted from jobs.insert('due', scheduled_at => now() + interval '1 hour'); --> t
call pg_temp.later('2 hours');
create function pg_temp.fails() returns trigger language plpgsql as $$ begin perform jobs.insert('k', max_attempts => 0); end $$;
create trigger t before delete on jobs.scheduled for each row execute function pg_temp.fails();
select task, rows, regexp_replace(error, '\d+', 'n') as error from jobs.maintain() where task = 'schedule'; --> task|rows|error: schedule|0|job n: max_attempts 0 is too low
select pg_temp.all_about($$select jobs.complete(1, 1)$$); --> P0002 | job 1 does not exist
drop trigger t on jobs.scheduled;
select pg_temp.all_about($$select jobs.fetch('')$$); --> 22023 | queue must not be empty | column queue
