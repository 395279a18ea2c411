-- Triggers that somebody puts on the tables: what they raise reaches the caller as it is.

create function pg_temp.raise() returns trigger language plpgsql as $$
begin
  raise 'no %', tg_op using errcode = tg_argv[0], detail = 'd', hint = 'h';
end $$;
-- Codes of its own, as well as those that Postgres knows, and an internal error's.
create trigger t before insert on jobs.job for each row execute function pg_temp.raise('P1234');
select pg_temp.try('select id from jobs.insert(''k'')');
--> P1234: no INSERT | h
-->   d
select pg_temp.try('select (jobs.insert(''k'')).id');
--> P1234: no INSERT | h
-->   d
select pg_temp.try('select id from jobs.insert(''k'', ''{}'', ''{"by_args": true}'')');
--> P1234: no INSERT | h
-->   d
select pg_temp.try('select id from jobs.insert_batch(''k'', array[''{}''::jsonb])');
--> P1234: no INSERT | h
-->   d
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.raise('23505');
select pg_temp.try('select id from jobs.insert(''k'')');
--> 23505: no INSERT | h
-->   d
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.raise('45000');
select pg_temp.try('select id from jobs.insert(''k'')');
--> 45000: no INSERT | h
-->   d
drop trigger t on jobs.job;
-- Ours are not taken for it, before and after.
select pg_temp.try('select id from jobs.insert('''')');
--> 22023: kind must not be empty
-->   A kind must have 1 to 127 characters and no control characters.

-- One that inserts a job itself, and fails in that.
create function pg_temp.inserts() returns trigger language plpgsql as $$
begin
  if new.kind = 'outer' then
    perform jobs.insert(tg_argv[0], queue => tg_argv[1]);
  elsif new.kind = 'inner' then
    raise 'inner' using errcode = 'AB123';
  end if;
  return new;
end $$;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('inner', 'default');
select pg_temp.try('select id from jobs.insert(''outer'')'); --> AB123: inner
drop trigger t on jobs.job;
create trigger t before insert on jobs.job for each row execute function pg_temp.inserts('well', '');
select pg_temp.try('select id from jobs.insert(''outer'')');
--> 22023: queue must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
drop trigger t on jobs.job;
-- One that catches its own, and goes on.
create function pg_temp.catches() returns trigger language plpgsql as $$
begin
  if new.kind = 'outer' then
    begin
      perform jobs.insert('inner');
    exception when sqlstate 'AB123' then
      perform jobs.insert('instead');
    end;
  elsif new.kind = 'inner' then
    raise 'inner' using errcode = 'AB123';
  end if;
  return new;
end $$;
create trigger t before insert on jobs.job for each row execute function pg_temp.catches();
select pg_temp.try('select id from jobs.insert(''outer'')'); --> ok
drop trigger t on jobs.job;
select kind from jobs.jobs order by id; --> outer, instead

-- While a worker works.
create trigger t before insert on jobs.running for each row execute function pg_temp.raise('P1234');
select pg_temp.try('select id from jobs.fetch(''default'', 1)');
--> P1234: no INSERT | h
-->   d
drop trigger t on jobs.running;
select id as id, token as token from jobs.fetch('default', 1) \gset
create trigger t before delete on jobs.running for each row execute function pg_temp.raise('P1234');
select pg_temp.try('select jobs.complete(' || :id || ', ' || :token || ')');
--> P1234: no DELETE | h
-->   d
select pg_temp.try('select jobs.fail(' || :id || ', ' || :token || ', ''e'')');
--> P1234: no DELETE | h
-->   d
drop trigger t on jobs.running;
select jobs.complete(:id, :token); --> completed

-- Maintenance goes on after one, and says what it was.
select id > 0 as inserted from jobs.insert('due', scheduled_at => now() + interval '1 hour'); --> t
call pg_temp.later('2 hours');
create trigger t before delete on jobs.scheduled for each row execute function pg_temp.raise('P1234');
select task, rows, regexp_replace(error, '\d+', 'n') as error from jobs.maintain() where task = 'schedule'; --> task|rows|error: schedule|0|job n: no DELETE
drop trigger t on jobs.scheduled;
select pg_temp.try('select id from jobs.insert('''')');
--> 22023: kind must not be empty
-->   A kind must have 1 to 127 characters and no control characters.

-- A function that sets what the extension sets for its own statements, and fails, leaves the
-- session as it was.
create function pg_temp.sets() returns trigger language plpgsql set lock_timeout = '3s' set jit = off set enable_seqscan = on set plan_cache_mode = auto as $$ begin raise 'no'; end $$;
select id > 0 as inserted from jobs.insert('due', scheduled_at => now() + interval '1 hour'); --> t
call pg_temp.later('2 hours');
create trigger t before delete on jobs.scheduled for each row execute function pg_temp.sets();
select task, rows, regexp_replace(error, '\d+', 'n') as error from jobs.maintain() where task = 'schedule'; --> task|rows|error: schedule|0|job n: no
drop trigger t on jobs.scheduled;
create trigger t before insert on jobs.job for each row execute function pg_temp.sets();
\set VERBOSITY terse
select jobs.insert('k'); --> ERROR:  no
\set VERBOSITY default
drop trigger t on jobs.job;
select name, setting from pg_settings where name in ('lock_timeout', 'jit', 'enable_seqscan', 'enable_hashjoin', 'plan_cache_mode') and setting <> boot_val; --> none
