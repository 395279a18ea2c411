\set ECHO none
-- What jobs.insert refuses: 22004 for a null, 22023 for a bad value, with the value, the rule and,
-- where one is likely, the fix.
\getenv dir PG_ABS_SRCDIR
\set setup :dir '/sql/setup.psql'
\i :setup

-- named: how the message must name the value, as a regular expression.
create temp table cases (n int generated always as identity, code text, call text, named text default '');

-- nulls
insert into cases (code, call) values
  ('22004', $$null$$),
  ('22004', $$'k', null$$),
  ('22004', $$'k', tags => '{a,null}'$$),
  ('22004', $$'k', tags => '{{a,b},{null,c}}'$$);
-- kind and queue: 1 to 127 characters, none of them a control character
insert into cases (code, call) values
  ('22023', $$''$$),
  ('22023', $$repeat('k', 128)$$),
  ('22023', $$repeat('日', 128)$$),
  ('22023', $$repeat('k', 1000000)$$),
  ('22023', $$e'a\nb'$$),
  ('22023', $$e'\x7f'$$),
  ('22023', $$e'tab\t'$$),
  ('22023', $$e'c1\u0085'$$),
  ('22023', $$'k', queue => ''$$),
  ('22023', $$'k', queue => repeat('q', 128)$$),
  ('22023', $$'k', queue => e'a\rb'$$),
  ('22023', $$'k', queue => e'\x01'$$);
-- numbers
insert into cases (code, call, named) values
  ('22023', $$'k', max_attempts => 0$$, '0'),
  ('22023', $$'k', max_attempts => -1$$, '-1'),
  ('22023', $$'k', max_attempts => -2147483648$$, '-2147483648'),
  ('22023', $$'k', priority => 32768$$, '32768'),
  ('22023', $$'k', priority => -32769$$, '-32769'),
  ('22023', $$'k', priority => 2147483647$$, '2147483647');
-- durations: negative ones, but for -1; none; longer than time
insert into cases (code, call, named) values
  ('22023', $$'k', timeout => '-2 seconds'$$, '2'),
  ('22023', $$'k', timeout => '-1 day'$$, '1 day'),
  ('22023', $$'k', timeout => '-1 month'$$, '1 mon'),
  ('22023', $$'k', timeout => '-0.5 seconds'$$, '0.5'),
  ('22023', $$'k', timeout => '0'$$, '0'),
  ('22023', $$'k', timeout => '1 month -30 days'$$, '30'),
  ('22023', $$'k', timeout => '178000000 years'$$, '178000000');
-- times
insert into cases (code, call) values
  ('22023', $$'k', scheduled_at => 'infinity'$$),
  ('22023', $$'k', scheduled_at => '-infinity'$$),
  ('22023', $$'k', scheduled_at => 'infinity', pending => true$$),
  ('22023', $$'k', expires_at => 'infinity'$$),
  ('22023', $$'k', expires_at => '-infinity'$$);
-- JSON of the wrong shape
insert into cases (code, call) values
  ('22023', $$'k', meta => '[]'$$),
  ('22023', $$'k', meta => '"text"'$$),
  ('22023', $$'k', meta => '1'$$),
  ('22023', $$'k', meta => '[{"a": 1}]'$$),
  ('22023', $$'k', unique_opts => '[]'$$),
  ('22023', $$'k', unique_opts => '"by_args"'$$),
  ('22023', $$'k', unique_opts => 'true'$$),
  ('22023', $$'k', retry => '"nosuch"'$$),
  ('22023', $$'k', retry => '{"strategy": "nosuch"}'$$),
  ('22023', $$'k', retry => '[]'$$),
  ('22023', $$'k', retry => '5'$$),
  ('22023', $$'k', unique_opts => (repeat('[', 6000) || repeat(']', 6000))::jsonb$$),
  ('22023', $$'k', retry => (repeat('[', 6000) || repeat(']', 6000))::jsonb$$),
  ('22023', $$'k', meta => (repeat('[', 6000) || repeat(']', 6000))::jsonb$$);
-- the first thing wrong is enough, and nothing is written
insert into cases (code, call) values
  ('22023', $$'', null, '[]', '', 99999, 'infinity', 0, '{null}', '[]', '-5', '[]', 'infinity', null$$);

select pg_temp.refusals('select jobs.insert(%s)', array_agg(call order by n)) from cases where n not in (23, 24, 25, 26, 27, 28, 29, 46, 47);
-- The SQLSTATE that is not the one that it must be, and the message that does not name the value.
select n, code as expected, pg_temp.code('select jobs.insert(' || call || ')') as actual, call from cases
 where pg_temp.code('select jobs.insert(' || call || ')') <> code order by n;
select n, named, call from cases where split_part(pg_temp.try('select jobs.insert(' || call || ')'), e'\n', 1) !~ named order by n;
select count(*) from jobs.jobs;

-- What Postgres itself refuses.
select jobs.insert('k', '{"a": }');
select jobs.insert();
select jobs.insert('k', nosuch => 1);

-- An error does not disturb the transaction's other jobs once it is rolled back to a savepoint.
begin;
select state from jobs.insert('good');
savepoint a;
select jobs.insert('');
rollback to a;
select state from jobs.insert('good');
commit;
select count(*) from jobs.jobs where kind = 'good';
