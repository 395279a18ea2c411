-- jobs.unique_key: the SHA-256 of the canonical text that docs/uniqueness.md describes.

create function pg_temp.sha(canonical text) returns text language sql as $$ select encode(sha256(convert_to(canonical, 'UTF8')), 'hex') $$;

-- Each call, and the canonical text that its key must be made of.
create temp table cases (n int generated always as identity, call text, canonical text);
insert into cases (call, canonical) values
  -- the example of docs/uniqueness.md
  ($$'email.send', '{"user_id": 42}', '{"by_args": true, "by_queue": true}', 'notifications'$$, $${"args":{"user_id":42},"queue":"notifications","type":"email.send"}$$),
  -- the fields one by one
  ($$'k', '{"a": 1}', '{"by_kind": true}'$$, $${"type":"k"}$$), ($$'k', '{"a": 1}', '{"by_state": ["running"]}'$$, $${"type":"k"}$$),
  ($$'k', '{"a": 1}', '{"by_args": true}'$$, $${"args":{"a":1},"type":"k"}$$), ($$'k', '{"a": 1}', '{"by_args": true, "by_kind": true}'$$, $${"args":{"a":1},"type":"k"}$$),
  ($$'k', '{"a": 1}', '{"by_args": true, "exclude_kind": true}'$$, $${"args":{"a":1}}$$), ($$'k', '{"a": 1}', '{"by_queue": true}'$$, $${"queue":"default","type":"k"}$$),
  ($$'k', '{"a": 1}', '{"by_queue": true, "exclude_kind": true}', 'q'$$, $${"queue":"q"}$$), ($$'k', '{"a": 1}', '{"key": "x"}'$$, $${"key":"x","type":"k"}$$),
  ($$'k', '{"a": 1}', '{"key": "x", "exclude_kind": true}'$$, $${"key":"x"}$$), ($$'k', '{"a": 1}', '{"key": "x", "by_queue": true}', 'q'$$, $${"key":"x","queue":"q","type":"k"}$$),
  ($$'k', '{"a": 1}', '{"key": "x", "by_kind": true, "by_state": ["running"]}'$$, $${"key":"x","type":"k"}$$),
  ($$'k', '{"a": 1}', '{"by_meta": ["t"]}', null, '{"t": 7, "u": 8}'$$, $${"meta":{"t":7},"type":"k"}$$),
  ($$'k', '{"a": 1}', '{"by_args": true, "by_meta": ["t"], "by_queue": true, "by_period": 60}', 'q', '{"t": 7}', '2026-02-12 15:21:33Z'$$,
     $${"args":{"a":1},"meta":{"t":7},"period":"2026-02-12T15:21:00Z","queue":"q","type":"k"}$$),
  -- a modifier that says nothing about the key
  ($$'k', '{"a": 1}', '{"by_args": true, "on_conflict": "reject", "wait": false, "by_queue": false, "by_meta": null}'$$, $${"args":{"a":1},"type":"k"}$$),
  -- paths: of args, absent ones, into objects, with dots in names, one inside another, into nothing
  -- that is an object
  ($$'k', '{"user_id": 1, "x": 2}', '{"by_args": ["user_id"]}'$$, $${"args":{"user_id":1},"type":"k"}$$),
  ($$'k', '{"user_id": 1, "x": null}', '{"by_args": ["x", "nosuch"]}'$$, $${"args":{"x":null},"type":"k"}$$),
  ($$'k', '{"address": {"city": "Wien", "zip": "1010"}, "x": 2}', '{"by_args": ["address.city"]}'$$, $${"args":{"address":{"city":"Wien"}},"type":"k"}$$),
  ($$'k', '{"address": {"city": "Wien", "zip": "1010"}, "x": 2}', '{"by_args": ["x", "address.zip", "address.city"]}'$$, $${"args":{"address":{"city":"Wien","zip":"1010"},"x":2},"type":"k"}$$),
  ($$'k', '{"address": {"city": "Wien", "zip": "1010"}, "x": 2}', '{"by_args": ["address.city", "address"]}'$$, $${"args":{"address":{"city":"Wien","zip":"1010"}},"type":"k"}$$),
  ($$'k', '{"a.b": 1, "a": {"b": 2}}', '{"by_args": ["a\\.b"]}'$$, $${"args":{"a.b":1},"type":"k"}$$),
  ($$'k', '{"a.b": 1, "a": {"b": 2}}', '{"by_args": ["a.b"]}'$$, $${"args":{"a":{"b":2}},"type":"k"}$$), ($$'k', '{"a\\b": 1}', '{"by_args": ["a\\\\b"]}'$$, $${"args":{"a\\b":1},"type":"k"}$$),
  ($$'k', '{"a": [1, {"b": 2}]}', '{"by_args": ["a"]}'$$, $${"args":{"a":[1,{"b":2}]},"type":"k"}$$), ($$'k', '{"a": {}}', '{"by_args": ["a", "a"]}'$$, $${"args":{"a":{}},"type":"k"}$$),
  ($$'k', '{"a''b": 1}', '{"by_args": ["a''b"]}'$$, $${"args":{"a'b":1},"type":"k"}$$),
  -- args of any shape
  ($$'k', 'null', '{"by_args": true}'$$, $${"args":null,"type":"k"}$$), ($$'k', '[]', '{"by_args": true}'$$, $${"args":[],"type":"k"}$$),
  ($$'k', '{}', '{"by_args": true}'$$, $${"args":{},"type":"k"}$$), ($$'k', '"x"', '{"by_args": true}'$$, $${"args":"x","type":"k"}$$),
  ($$'k', 'true', '{"by_args": true}'$$, $${"args":true,"type":"k"}$$),
  ($$'k', '[1,[2,[3,{"b":[],"a":{}}]]]', '{"by_args": true}'$$, $${"args":[1,[2,[3,{"a":{},"b":[]}]]],"type":"k"}$$),
  -- RFC 8785: members by UTF-16 code units (so U+1F600 sorts before U+FB33, and length says
  -- nothing), short escapes, no other ones
  ($$'k', '{"\u20ac": 1, "\r": 2, "\ud83d\ude00": 3, "1": 4, "\u0080": 5, "\u00f6": 6, "\ufb33": 7, "</script>": 8}', '{"by_args": ["\u20ac", "\r", "\ud83d\ude00"]}'$$,
     e'{"args":{"\\r":2,"\u20ac":1,"\U0001F600":3},"type":"k"}'),
  ($$'k', '{"bb": 1, "a": 2, "ab": 3, "b": 4, "": 5, "B": 6}', '{"by_args": true}'$$, $${"args":{"":5,"B":6,"a":2,"ab":3,"b":4,"bb":1},"type":"k"}$$),
  ($$'k', '{"\ue000": 1, "\ud83d\ude00": 2}', '{"by_args": true}'$$, e'{"args":{"\U0001F600":2,"\ue000":1},"type":"k"}'),
  ($$'k', '["\u0001\u001f\b\t\n\f\r\"\\/\u007f\u2028"]', '{"by_args": true}'$$, e'{"args":["\\u0001\\u001f\\b\\t\\n\\f\\r\\"\\\\/\x7f\u2028"],"type":"k"}'),
  -- normal form C, of names, strings, kinds, queues and keys
  ($$'k', '{"e\u0301": "e\u0301"}', '{"by_args": true}'$$, e'{"args":{"\u00e9":"\u00e9"},"type":"k"}'), ($$'k', '{"\u00e9": 1}', '{"by_args": ["e\u0301"]}'$$, e'{"args":{"\u00e9":1},"type":"k"}'),
  ($$'k', '"\u212b"', '{"by_args": true}'$$, e'{"args":"\u00c5","type":"k"}'), ($$e'e\u0301', '{}', '{"by_queue": true}', e'e\u0301'$$, e'{"queue":"\u00e9","type":"\u00e9"}'),
  ($$'k', '{}', '{"key": "e\u0301"}'$$, e'{"key":"\u00e9","type":"k"}'),
  -- numbers: ES6 form
  ($$'k', '[42, 42.0, 4.2e1, 0.42e2, 4200e-2]', '{"by_args": true}'$$, $${"args":[42,42,42,42,42],"type":"k"}$$),
  ($$'k', '[0, -0, 0.0, -0.0, 0e400]', '{"by_args": true}'$$, $${"args":[0,0,0,0,0],"type":"k"}$$),
  ($$'k', '[0.1, 1.5, -1.50, 1e-6, 1e-7, 123e-9]', '{"by_args": true}'$$, $${"args":[0.1,1.5,-1.5,0.000001,1e-7,1.23e-7],"type":"k"}$$),
  ($$'k', '[1e20, 1e21, 123456789012345680000, 1.5e300]', '{"by_args": true}'$$, $${"args":[100000000000000000000,1e+21,123456789012345680000,1.5e+300],"type":"k"}$$),
  ($$'k', '[9007199254740991, 9007199254740992]', '{"by_args": true}'$$, $${"args":[9007199254740991,9007199254740992],"type":"k"}$$),
  -- where the double would be another number it keeps its digits: plain decimal, no exponent, no
  -- trailing zeros after the point
  ($$'k', '[9007199254740993, -9007199254740993, 9007199254740993.0]', '{"by_args": true}'$$, $${"args":[9007199254740993,-9007199254740993,9007199254740993],"type":"k"}$$),
  ($$'k', '[0.30000000000000004, 0.3000000000000000400, 0.300000000000000040001]', '{"by_args": true}'$$, $${"args":[0.30000000000000004,0.30000000000000004,0.300000000000000040001],"type":"k"}$$),
  ($$'k', '[18446744073709551617, 1.00000000000000000001]', '{"by_args": true}'$$, $${"args":[18446744073709551617,1.00000000000000000001],"type":"k"}$$),
  ($$'k', '1e400', '{"by_args": true}'$$, '{"args":1' || repeat('0', 400) || ',"type":"k"}'),
  ($$'k', '1e-400', '{"by_args": true}'$$, '{"args":0.' || repeat('0', 399) || '1,"type":"k"}'),
  -- deep and big
  ($$'k', (repeat('[', 5000) || repeat(']', 5000))::jsonb, '{"by_args": true}'$$, '{"args":' || repeat('[', 5000) || repeat(']', 5000) || ',"type":"k"}'),
  ($$'k', (repeat('{"a":', 5000) || '1' || repeat('}', 5000))::jsonb, '{"by_args": true}'$$, '{"args":' || repeat('{"a":', 5000) || '1' || repeat('}', 5000) || ',"type":"k"}'),
  ($$'k', to_jsonb(repeat('x', 3000000)), '{"by_args": true}'$$, '{"args":"' || repeat('x', 3000000) || '","type":"k"}'),
  ($$repeat('k', 127), '{}', '{"by_queue": true}', repeat('q', 127)$$, '{"queue":"' || repeat('q', 127) || '","type":"' || repeat('k', 127) || '"}'),
  -- periods: multiples from 0001-01-01 00:00 UTC, so a week starts on Monday; seconds, ISO 8601 and
  -- Postgres' own text
  ($$'k', '{}', '{"by_period": 900}', scheduled_at => '2026-02-12 15:21Z'$$, $${"period":"2026-02-12T15:15:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": "PT15M"}', scheduled_at => '2026-02-12 15:29:59.999999Z'$$, $${"period":"2026-02-12T15:15:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": "15 minutes"}', scheduled_at => '2026-02-12 15:30Z'$$, $${"period":"2026-02-12T15:30:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": "1 week"}', scheduled_at => '2026-02-12 15:21Z'$$, $${"period":"2026-02-09T00:00:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": "P7D"}', scheduled_at => '2026-02-09 00:00Z'$$, $${"period":"2026-02-09T00:00:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": "P1W"}', scheduled_at => '2026-02-08 23:59:59.999999Z'$$, $${"period":"2026-02-02T00:00:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": "1 day"}', scheduled_at => '2026-02-12 23:30-02'$$, $${"period":"2026-02-13T00:00:00Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": 1}', scheduled_at => '2026-02-12 15:21:33.999999Z'$$, $${"period":"2026-02-12T15:21:33Z","type":"k"}$$),
  ($$'k', '{}', '{"by_period": 86400, "exclude_kind": true}', scheduled_at => '0001-01-01 00:00Z'$$, $${"period":"0001-01-01T00:00:00Z"}$$),
  ($$'k', '{}', '{"by_period": "24 hours"}', scheduled_at => '1999-12-31 23:59:59.999999Z'$$, $${"period":"1999-12-31T00:00:00Z","type":"k"}$$);
select count(*) from cases; --> 65
do $$
declare c record; actual text;
begin
  for c in select * from cases order by n loop
    actual := pg_temp.ask('select jobs.unique_key(' || c.call || ')');
    if actual is distinct from pg_temp.sha(c.canonical) then
      raise info 'case % % must be the hash of %, but is %', c.n, left(c.call, 200), left(c.canonical, 200), actual;
    end if;
  end loop;
end $$;

-- What it looks like.
select jobs.unique_key('email.send', '{"user_id": 42}', '{"by_args": true, "by_queue": true}', 'notifications') ~ '^[0-9a-f]{64}$' as hex; --> t
-- Not unique: null.
select jobs.unique_key('k') is null as a, jobs.unique_key('k', unique_opts => '{}') is null as b, jobs.unique_key('k', unique_opts => null) is null as c,
       jobs.unique_key('k', unique_opts => '{"by_args": false, "by_queue": null, "exclude_kind": false, "key": null}') is null as d; --> a|b|c|d: t|t|t|t
-- The session's time zone and styles change nothing.
set timezone = 'America/New_York'; set datestyle = 'German'; set intervalstyle = 'sql_standard'; set extra_float_digits = -5;
select jobs.unique_key('k', '[1.1]', '{"by_args": true, "by_period": "1 day"}', scheduled_at => '2026-02-13 03:30+00') = pg_temp.sha('{"args":[1.1],"period":"2026-02-13T00:00:00Z","type":"k"}') as same;
--> t
set timezone = 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'postgres'; reset extra_float_digits;
-- Without scheduled_at the clock decides: two years are two buckets.
select jobs.unique_key('k', '{}', '{"by_period": "365 days"}') = jobs.unique_key('k', '{}', '{"by_period": "365 days"}', scheduled_at => now()) as clock; --> t
-- Key of insert: the one told here.
select id from jobs.insert('k', '{"a": 1}', '{"by_args": true}', 'q'); --> 1
select encode(unique_key, 'hex') = jobs.unique_key('k', '{"a": 1.0}', '{"by_args": true}') as same from jobs.job; --> t
-- It writes nothing, so a read-only transaction may ask.
begin read only;
select jobs.unique_key('k', '{}', '{"by_kind": true}') = pg_temp.sha('{"type":"k"}') as readable; --> t
commit;

-- What is refused is what jobs.insert refuses.
select pg_temp.refusals('select jobs.unique_key(%s)', array_agg(call)) from (values
  ($$null$$), ($$'k', null$$), ($$''$$), ($$repeat('k', 128)$$), ($$e'\n'$$), ($$'k', queue => ''$$), ($$'k', queue => repeat('q', 128)$$),
  ($$'k', scheduled_at => 'infinity'$$), ($$'k', unique_opts => '[]'$$), ($$'k', unique_opts => '{"by_arg": true}'$$),
  -- two names that become the same
  ($$'k', '{"\u00e9": 1, "e\u0301": 2}', '{"by_args": true}'$$), ($$'k', '[{"x": {"\u00e9": 1, "e\u0301": 1}}]', '{"by_args": true}'$$),
  ($$'k', '{"a": {"\u00e9": 1, "e\u0301": 2}}', '{"by_args": ["a"]}'$$)) v(call);
--> null | 22004: kind must not be null
--> 'k', null | 22004: args must not be null
--> '' | 22023: kind must not be empty
--> repeat('k', 128) | 22023: kind "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk..." is too long: 128 characters
--> e'\n' | 22023: kind "\n" contains a control character
-->   A kind must have 1 to 127 characters and no control characters.
--> 'k', queue => '' | 22023: queue must not be empty
--> 'k', queue => repeat('q', 128) | 22023: queue "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq..." is too long: 128 characters
-->   A queue must have 1 to 127 characters and no control characters.
--> 'k', scheduled_at => 'infinity' | 22023: scheduled_at infinity is out of range
-->   scheduled_at must be finite.
--> 'k', unique_opts => '[]' | 22023: unique_opts must not be an array
-->   unique_opts must be an object such as {"by_args": true}; {} means not unique.
--> 'k', unique_opts => '{"by_arg": true}' | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> 'k', '{"\u00e9": 1, "e\u0301": 2}', '{"by_args": true}' | 22023: two members of one object in args are named "é" in Unicode normal form C | Rename one of them, or leave it out.
--> 'k', '[{"x": {"\u00e9": 1, "e\u0301": 1}}]', '{"by_args": true}' | 22023: two members of one object in args are named "é" in Unicode normal form C | Rename one of them, or leave it out.
--> 'k', '{"a": {"\u00e9": 1, "e\u0301": 2}}', '{"by_args": ["a"]}' | 22023: two members of one object in args are named "é" in Unicode normal form C | Rename one of them, or leave it out.
-->   A key treats names that differ only in character encoding as the same.
-- They are no matter where they are not part of the key.
select jobs.unique_key('k', '{"\u00e9": 1, "e\u0301": 2}', '{"by_kind": true}') is not null as a, jobs.unique_key('k', '{"\u00e9": 1, "e\u0301": 2}') is null as b,
       jobs.unique_key('k', '{"x": 3, "\u00e9": 1, "e\u0301": 2}', '{"by_args": ["x"]}') = pg_temp.sha('{"args":{"x":3},"type":"k"}') as c; --> a|b|c: t|t|t
-- meta is an object here as in jobs.insert.
select pg_temp.code($$select jobs.unique_key('k', unique_opts => '{"by_meta": ["a"]}', meta => '[]')$$) as with_by_meta, pg_temp.code($$select jobs.unique_key('k', meta => '5')$$) as without;
--> with_by_meta|without: 22023|22023
