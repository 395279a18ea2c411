-- What the extension and the outbox take alike. A job by way of the outbox must be as if inserted
-- into the queue itself, whatever the sessions of both are set to.
\set ON_ERROR_STOP on

SELECT jobs.insert('plain');
SELECT jobs.insert('a', '{"text": "ü '' \\ \" \n", "numbers": [1, 2.5, 1e400, 9007199254740993, 12345678901234567890.10], "none": null, "d": 1, "d": 2}');
SELECT jobs.insert('a', ('{"deep": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb);
SELECT jobs.insert('null', 'null', 'null', NULL, NULL, NULL, NULL, NULL, 'null', NULL, 'null', NULL, NULL);
SELECT jobs.insert(repeat('é', 127), queue => repeat(U&'e\0301', 127));
SELECT jobs.insert(U&'cafe\0301', queue => U&'\212A \FB33');
SELECT jobs.insert('a', queue => ' ', priority => -32768, max_attempts => 2147483647);
SELECT jobs.insert('a', tags => '{{a,b},{"c d","NULL"}}');
SELECT jobs.insert('a', tags => '{}', meta => '{}', pending => true);
SELECT jobs.insert('a', meta => '{"none": null, "deep": {"none": null}}');
SELECT jobs.insert('a', retry => '"oban"');
SELECT jobs.insert('a', retry => '{"ojs": {"max_attempts": 3, "initial_interval": "PT1S"}, "after_lease": "5 minutes"}');
SELECT jobs.insert('a', retry => '{"strategy": "exponential", "initial": "1 s", "jitter": false, "non_retryable": []}');
SELECT jobs.insert('u', '{"a": {"b": 1.0}}', '{"by_args": ["a.b"], "by_queue": true, "by_meta": ["t"], "window": "1 day -01:00:00", "by_state": null}', meta => '{"t": 1}');
SELECT jobs.insert('u', '{"x": 1}', '{"by_args": true, "by_period": 86400, "hold_for": "PT1H"}', scheduled_at => '2100-01-01 12:00');
SELECT jobs.insert('u', '{"x": 1}', '{"oban": {"period": [2, "minutes"], "keys": ["x"]}}', scheduled_at => '2100-01-01 12:00');
SELECT jobs.insert('u', '{"x": 1}', '{}');
SELECT jobs.insert('t', scheduled_at => at) FROM unnest('{"01.02.2100 03:04:05.678901", 0044-03-15 BC, 10000-01-01, "294276-12-31 00:00+00", 1883-11-18 12:03:58-04:56:02, epoch}'::timestamptz[]) at;
SELECT jobs.insert('t', expires_at => at) FROM unnest('{"01.02.2100 03:04:05.678901", 10000-01-01, "294276-12-31 00:00+00"}'::timestamptz[]) at;
SELECT jobs.insert('t', timeout => span) FROM unnest(ARRAY[make_interval(secs => -1), make_interval(secs => 0.000001), make_interval(months => 1, days => -29), make_interval(1000), make_interval(1, 2, 0, 3, 4, 5, 6.789), make_interval(days => -1, hours => 25), make_interval(days => 3, hours => -2, secs => -0.5), make_interval(hours => 100, secs => 59.999999)]) span;
SELECT jobs.insert_many('[{"kind": "a"}, {"kind": "cafe\u0301", "args": null, "queue": "q"}, {"args": [], "kind": "c", "queue": null, "priority": 4.0, "max_attempts": 5, "tags": ["x", ""], "meta": {"y": null}, "timeout": null, "retry": {"strategy": "constant"}, "pending": false, "unique_opts": {}, "scheduled_at": null}]');
SELECT jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 't', 'scheduled_at', at, 'expires_at', at))) FROM unnest('{01.02.2100 03:04:05.678901,"2100-01-01T00:00:00Z","12 Feb 2100 15:21 Europe/Oslo","2100-07-01 12:00",2100-01-01 00:00:00.5+02:30,10000-01-01}'::text[]) at;
SELECT jobs.insert_many(jsonb_build_array(jsonb_build_object('kind', 't', 'timeout', span))) FROM unnest(ARRAY['-1', '1', '0.1', '90.5', '600.0', '4.2e1', '31104000000', '"-1"', '"7"', '"15 minutes"', '"5m"', '"1h30m"', '"+2 day -2 hours"', '"1.5 hours"', '".5 hours"', '"1 year 2 mons 3 days 04:05:06.789"',
  '"1 day -01:00:00"', '"-1 day 25:00:00"', '"@ 1 hour 2 mins"', '"-1 second ago"', '"@ -2 weeks ago"', '" 1 DAY "', '"PT15M"', '"P1Y2M3DT4H5M6.7S"', '"P2DT-2H"', '"P1W"', '"00:05:00"', '"1000 years"']::jsonb[]) span;
SELECT jobs.insert_batch('b', ARRAY[['1'], ['{"b": 2}'], ['null']]::jsonb[], '{"by_args": true}', 'q', 3, '2100-01-01', 7, '{t}', '{"m": 1}', make_interval(mins => 5), '"faktory"', '2101-01-01', true);
