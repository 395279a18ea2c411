-- What jobs.insert refuses: 22004 for a null, 22023 for a bad value, with the value, the rule and,
-- where one is likely, the fix.

-- named: how the message must name the value, as a regular expression.
create temp table cases (n int generated always as identity, code text, call text, named text default '');

-- nulls
insert into cases (code, call) values
  ('22004', $$null$$), ('22004', $$'k', null$$), ('22004', $$'k', tags => '{a,null}'$$), ('22004', $$'k', tags => '{{a,b},{null,c}}'$$);
-- kind and queue: 1 to 127 characters, none of them a control character
insert into cases (code, call) values
  ('22023', $$''$$), ('22023', $$repeat('k', 128)$$), ('22023', $$repeat('日', 128)$$), ('22023', $$repeat('k', 1000000)$$), ('22023', $$e'a\nb'$$), ('22023', $$e'\x7f'$$), ('22023', $$e'tab\t'$$),
  ('22023', $$e'c1\u0085'$$), ('22023', $$'k', queue => ''$$), ('22023', $$'k', queue => repeat('q', 128)$$), ('22023', $$'k', queue => e'a\rb'$$), ('22023', $$'k', queue => e'\x01'$$);
-- numbers
insert into cases (code, call, named) values
  ('22023', $$'k', max_attempts => 0$$, '0'), ('22023', $$'k', max_attempts => -1$$, '-1'), ('22023', $$'k', max_attempts => -2147483648$$, '-2147483648'),
  ('22023', $$'k', priority => 32768$$, '32768'), ('22023', $$'k', priority => -32769$$, '-32769'), ('22023', $$'k', priority => 2147483647$$, '2147483647');
-- durations: negative ones, but for -1; none; longer than time
insert into cases (code, call, named) values
  ('22023', $$'k', timeout => '-2 seconds'$$, '2'), ('22023', $$'k', timeout => '-1 day'$$, '1 day'), ('22023', $$'k', timeout => '-1 month'$$, '1 mon'),
  ('22023', $$'k', timeout => '-0.5 seconds'$$, '0.5'), ('22023', $$'k', timeout => '0'$$, '0'), ('22023', $$'k', timeout => '1 month -30 days'$$, '30'),
  ('22023', $$'k', timeout => '178000000 years'$$, '178000000');
-- times
insert into cases (code, call) values
  ('22023', $$'k', scheduled_at => 'infinity'$$), ('22023', $$'k', scheduled_at => '-infinity'$$), ('22023', $$'k', scheduled_at => 'infinity', pending => true$$),
  ('22023', $$'k', expires_at => 'infinity'$$), ('22023', $$'k', expires_at => '-infinity'$$);
-- JSON of the wrong shape
insert into cases (code, call) values
  ('22023', $$'k', meta => '[]'$$), ('22023', $$'k', meta => '"text"'$$), ('22023', $$'k', meta => '1'$$), ('22023', $$'k', meta => '[{"a": 1}]'$$), ('22023', $$'k', unique_opts => '[]'$$),
  ('22023', $$'k', unique_opts => '"by_args"'$$), ('22023', $$'k', unique_opts => 'true'$$), ('22023', $$'k', retry => '"nosuch"'$$), ('22023', $$'k', retry => '{"strategy": "nosuch"}'$$),
  ('22023', $$'k', retry => '[]'$$), ('22023', $$'k', retry => '5'$$), ('22023', $$'k', unique_opts => (repeat('[', 6000) || repeat(']', 6000))::jsonb$$),
  ('22023', $$'k', retry => (repeat('[', 6000) || repeat(']', 6000))::jsonb$$), ('22023', $$'k', meta => (repeat('[', 6000) || repeat(']', 6000))::jsonb$$);
-- the first thing wrong is enough, and nothing is written
insert into cases (code, call) values
  ('22023', $$'', null, '[]', '', 99999, 'infinity', 0, '{null}', '[]', '-5', '[]', 'infinity', null$$);

select pg_temp.refusals('select jobs.insert(%s)', array_agg(call order by n)) from cases where n not in (23, 24, 25, 26, 27, 28, 29, 46, 47);
--> null | 22004: kind must not be null
--> 'k', null | 22004: args must not be null
--> 'k', tags => '{a,null}' | 22004: an element of tags must not be null
--> 'k', tags => '{{a,b},{null,c}}' | 22004: an element of tags must not be null
--> '' | 22023: kind must not be empty
--> repeat('k', 128) | 22023: kind "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk..." is too long: 128 characters
--> repeat('日', 128) | 22023: kind "日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日日..." is too long: 128 characters
--> repeat('k', 1000000) | 22023: kind "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk..." is too long: 1000000 characters
--> e'a\nb' | 22023: kind "a\nb" contains a control character
--> e'\x7f' | 22023: kind "\u{7f}" contains a control character
--> e'tab\t' | 22023: kind "tab\t" contains a control character
--> e'c1\u0085' | 22023: kind "c1\u{85}" contains a control character
--> '', null, '[]', '', 99999, 'infinity', 0, '{null}', '[]', '-5', '[]', 'infinity', null | 22023: kind must not be empty
-->   A kind must have 1 to 127 characters and no control characters.
--> 'k', queue => '' | 22023: queue must not be empty
--> 'k', queue => repeat('q', 128) | 22023: queue "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq..." is too long: 128 characters
--> 'k', queue => e'a\rb' | 22023: queue "a\rb" contains a control character
--> 'k', queue => e'\x01' | 22023: queue "\u{1}" contains a control character
-->   A queue must have 1 to 127 characters and no control characters.
--> 'k', max_attempts => 0 | 22023: max_attempts 0 is too low
--> 'k', max_attempts => -1 | 22023: max_attempts -1 is too low
--> 'k', max_attempts => -2147483648 | 22023: max_attempts -2147483648 is too low
-->   max_attempts must be at least 1; it includes the first attempt.
--> 'k', priority => 32768 | 22023: priority 32768 is out of range
--> 'k', priority => -32769 | 22023: priority -32769 is out of range
--> 'k', priority => 2147483647 | 22023: priority 2147483647 is out of range
-->   priority must be between -32768 and 32767; lower numbers run first.
--> 'k', scheduled_at => 'infinity' | 22023: scheduled_at infinity is out of range
--> 'k', scheduled_at => '-infinity' | 22023: scheduled_at -infinity is out of range
--> 'k', scheduled_at => 'infinity', pending => true | 22023: scheduled_at infinity is out of range
-->   scheduled_at must be finite.
--> 'k', expires_at => 'infinity' | 22023: expires_at infinity is out of range
--> 'k', expires_at => '-infinity' | 22023: expires_at -infinity is out of range
-->   expires_at must be finite.
--> 'k', meta => '[]' | 22023: meta must not be an array
--> 'k', meta => '"text"' | 22023: meta must not be a string
--> 'k', meta => '1' | 22023: meta must not be a number
--> 'k', meta => '[{"a": 1}]' | 22023: meta must not be an array
--> 'k', meta => (repeat('[', 6000) || repeat(']', 6000))::jsonb | 22023: meta must not be an array
-->   meta must be an object.
--> 'k', unique_opts => '[]' | 22023: unique_opts must not be an array
--> 'k', unique_opts => '"by_args"' | 22023: unique_opts must not be a string
--> 'k', unique_opts => 'true' | 22023: unique_opts must not be true
-->   unique_opts must be an object such as {"by_args": true}; {} means not unique.
--> 'k', retry => '"nosuch"' | 22023: retry "nosuch" is not known
--> 'k', retry => '[]' | 22023: retry must not be an array
--> 'k', retry => '5' | 22023: retry must not be a number | Use max_attempts to set the number of attempts.
-->   retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.
--> 'k', retry => '{"strategy": "nosuch"}' | 22023: retry.strategy "nosuch" is not known
-->   retry.strategy must be "exponential", "linear", "constant" or "polynomial".
-- The SQLSTATE that is not the one that it must be, and the message that does not name the value.
select n, code as expected, pg_temp.code('select jobs.insert(' || call || ')') as actual, call from cases
 where pg_temp.code('select jobs.insert(' || call || ')') <> code order by n; --> none
select n, named, call from cases where substring(pg_temp.try('select jobs.insert(' || call || ')'), '^[^|\n]*') !~ named order by n; --> none
select count(*) from jobs.jobs; --> 0

-- What Postgres itself refuses.
select jobs.insert('k', '{"a": }');
--> ERROR:  invalid input syntax for type json
--> LINE 1: select jobs.insert('k', '{"a": }');
-->                                 ^
--> DETAIL:  Expected JSON value, but found "}".
--> CONTEXT:  JSON data, line 1: {"a": }
select jobs.insert();
--> ERROR:  function jobs.insert() does not exist
--> LINE 1: select jobs.insert();
-->                ^
--> HINT:  No function matches the given name and argument types. You might need to add explicit type casts.
select jobs.insert('k', nosuch => 1);
--> ERROR:  function jobs.insert(unknown, nosuch => integer) does not exist
--> LINE 1: select jobs.insert('k', nosuch => 1);
-->                ^
--> HINT:  No function matches the given name and argument types. You might need to add explicit type casts.

-- An error does not disturb the transaction's other jobs once it is rolled back to a savepoint.
begin;
select state from jobs.insert('good'); --> available
savepoint a;
select jobs.insert('');
--> ERROR:  kind must not be empty
--> DETAIL:  A kind must have 1 to 127 characters and no control characters.
rollback to a;
select state from jobs.insert('good'); --> available
commit;
select count(*) from jobs.jobs where kind = 'good'; --> 2
