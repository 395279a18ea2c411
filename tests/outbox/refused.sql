-- What the extension and the outbox refuse alike: SQLSTATE, message, DETAIL, HINT, column.
\set VERBOSITY verbose
\set SHOW_CONTEXT never
\set long 'repeat(''x'', 67108864)'

SELECT queue FROM jobs.insert(NULL);
SELECT queue FROM jobs.insert('');
SELECT queue FROM jobs.insert(repeat('k', 128));
SELECT queue FROM jobs.insert(repeat('é', 128));
SELECT queue FROM jobs.insert(repeat(U&'e\0301', 128));
SELECT queue FROM jobs.insert(E'a\tb\n"\\\r');
SELECT queue FROM jobs.insert(U&'a\001bb\0001');
SELECT queue FROM jobs.insert(U&'\007f');
SELECT queue FROM jobs.insert(U&'é\0085');
SELECT queue FROM jobs.insert(E'\n' || repeat('k', 126));
SELECT queue FROM jobs.insert('a', NULL);
SELECT queue FROM jobs.insert('a', queue => '');
SELECT queue FROM jobs.insert('a', queue => repeat('q', 1000));
SELECT queue FROM jobs.insert('a', queue => E'q\x01');
SELECT queue FROM jobs.insert('a', priority => 32768);
SELECT queue FROM jobs.insert('a', priority => -2147483648);
SELECT queue FROM jobs.insert('a', max_attempts => 0);
SELECT queue FROM jobs.insert('a', max_attempts => -2147483648);
SELECT queue FROM jobs.insert('a', tags => '{a,NULL}');
SELECT queue FROM jobs.insert('a', tags => '{{a,NULL},{b,c}}');
SELECT queue FROM jobs.insert('a', tags => ARRAY[:long, 'x']);
SELECT queue FROM jobs.insert('a', meta => '[]');
SELECT queue FROM jobs.insert('a', meta => '"s"');
SELECT queue FROM jobs.insert('a', meta => 'true');
SELECT queue FROM jobs.insert('a', retry => '1');
SELECT queue FROM jobs.insert('a', retry => 'true');
SELECT queue FROM jobs.insert('a', retry => 'false');
SELECT queue FROM jobs.insert('a', retry => '[]');
SELECT queue FROM jobs.insert('a', unique_opts => '1');
SELECT queue FROM jobs.insert('a', unique_opts => 'false');
SELECT queue FROM jobs.insert('a', unique_opts => '"by_args"');
SELECT queue FROM jobs.insert('a', unique_opts => '[]');
SELECT queue FROM jobs.insert('a', scheduled_at => 'infinity');
SELECT queue FROM jobs.insert('a', scheduled_at => '-infinity');
SELECT queue FROM jobs.insert('a', expires_at => 'infinity');
SELECT queue FROM jobs.insert('a', timeout => '0');
SELECT queue FROM jobs.insert('a', timeout => '-2 s');
SELECT queue FROM jobs.insert('a', timeout => '-1 day 23:59:59');
SELECT queue FROM jobs.insert('a', timeout => '1 mon -30 days');
SELECT queue FROM jobs.insert('a', timeout => '1000 years 0.000001 s');
SELECT queue FROM jobs.insert('a', timeout => '-13000 months 400000 days');
SELECT queue FROM jobs.insert('a', timeout => '400000 days -1000000:00:00');
SELECT queue FROM jobs.insert('a', timeout => '-2000000 days 2562047788:00:00');
SELECT queue FROM jobs.insert('a', to_jsonb(:long));
SELECT queue FROM jobs.insert('a', ('[' || repeat('1e131071,', 600) || '1]')::jsonb);
SELECT queue FROM jobs.insert('a', to_jsonb(left(:long, 40000000)), meta => jsonb_build_object('m', left(:long, 40000000)));

-- The first of several.
SELECT queue FROM jobs.insert('', NULL, priority => 99999);
SELECT queue FROM jobs.insert('a', NULL, priority => 99999);
SELECT queue FROM jobs.insert('a', priority => 99999, tags => '{NULL}');
SELECT queue FROM jobs.insert('a', tags => '{NULL}', meta => '1');
SELECT queue FROM jobs.insert('a', meta => '1', retry => '1');
SELECT queue FROM jobs.insert('a', retry => '1', max_attempts => 0);
SELECT queue FROM jobs.insert('a', max_attempts => 0, queue => '');
SELECT queue FROM jobs.insert('a', queue => '', scheduled_at => 'infinity');
SELECT queue FROM jobs.insert('a', scheduled_at => 'infinity', expires_at => 'infinity');
SELECT queue FROM jobs.insert('a', expires_at => 'infinity', timeout => '0');
SELECT queue FROM jobs.insert('a', timeout => '0', unique_opts => '1');

SELECT queue FROM jobs.insert_many(NULL);
SELECT queue FROM jobs.insert_many('{}');
SELECT queue FROM jobs.insert_many('"a"');
SELECT queue FROM jobs.insert_many('null');
SELECT queue FROM jobs.insert_many('[1]');
SELECT queue FROM jobs.insert_many('[[{"kind": "a"}]]');
SELECT queue FROM jobs.insert_many('[null]');
SELECT queue FROM jobs.insert_many('[{"kind": "a"}, "a"]');
SELECT queue FROM jobs.insert_many('[{}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a"}, {"kind": null}]');
SELECT queue FROM jobs.insert_many('[{"kind": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": ""}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a"}, {"kind": "a", "args": null, "queue": "q\u0007"}]');
SELECT queue FROM jobs.insert_many('[{"kidn": "a"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "Queue": "a"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "priorty": null}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "schedule": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "maxattempts": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "agrs": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "delay": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "x": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "": 1}]');
SELECT queue FROM jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'a', repeat('é', 101), 1)));
SELECT queue FROM jobs.insert_many('[{"kind": "a", "queue": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "priority": "1"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "priority": 1.5}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "priority": 1e400}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "priority": 32768}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "priority": 2147483648}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "max_attempts": 0}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "max_attempts": true}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "max_attempts": -2147483649}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "tags": "a"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "tags": {}}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "tags": ["a", 1]}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "tags": [null]}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "meta": []}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "pending": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "pending": "true"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "retry": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "unique_opts": []}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "unique_opts": true}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": 1}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": "soon"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": ""}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": "infinity"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": "-infinity"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": "2026-02-30"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "scheduled_at": "294277-01-01"}]');
SELECT queue FROM jobs.insert_many('[{"kind": "a", "expires_at": "2026-01-01 00:00+99"}]');
SELECT queue FROM jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 'a', 'args', to_jsonb(:long))));
SELECT queue FROM jobs.insert_many(jsonb_build_array('{"kind": "a"}'::jsonb, jsonb_build_object('kind', 'a', 'tags', jsonb_build_array(:long, 'x'))));
SELECT format('SELECT queue FROM jobs.insert_many(%L)', jsonb_build_array('{"kind": "a"}'::jsonb, jsonb_build_object('kind', 'a', 'timeout', timeout))) FROM unnest(ARRAY[
  'true', '[]', '{}', '0', '-2', '-0.5', '1e13', '-1e13', '1e400', '1e-400', '31104000001', '""', '"soon"', '"9:00"', '"0"', '"-5 minutes"', '"5 minutes ago"',
  '"1 day 09:00"', '"1 day 9"', '"1-2"', '"P"', '"PT"', '"P1D 09:00"', '"p1d"', '"P1.D"', '"99999999999 years"', '"(5 minutes)"', '"5 minutes, 3 seconds"', '"day"',
  '"1..5 hours"', '". hours"', '"09:00:00 1 day"', '"5 minutes!"', '"minus 5 minutes"', '"5 parsecs"', '"1 minute 1 minute 1 x"', '"ago"', '"@"', '"1001 years"', '"infinity"']::jsonb[]) timeout \gexec

SELECT queue FROM jobs.insert_batch('a', NULL);
SELECT queue FROM jobs.insert_batch('', NULL);
SELECT queue FROM jobs.insert_batch('a', ARRAY['1', NULL]::jsonb[]);
SELECT queue FROM jobs.insert_batch('a', ARRAY[['1', '2'], ['3', NULL]]::jsonb[]);
SELECT queue FROM jobs.insert_batch('a', '{}', priority => 99999);
SELECT queue FROM jobs.insert_batch('a', ARRAY['1', to_jsonb(:long)]);
