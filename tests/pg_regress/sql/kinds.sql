-- define_kind: what jobs of a kind are inserted with, where the insert says nothing.
create view shown as select kind, queue, priority, max_attempts, timeout from jobs.jobs order by id;

select id from jobs.insert('mail'); --> 1
select jobs.define_kind('mail', 'mails', -5, 3, '10 minutes', '{"strategy": "constant", "initial": 100, "jitter": false}', '{"by_args": true}');
-- From each way in; what was there stays as it is.
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1'); --> queue|skipped: mails|f
select ord, queue, unique_skipped_as_duplicate as skipped from jobs.insert_batch('mail', array['1', '2']::jsonb[]);
--> ord|queue|skipped
--> 1|mails|t
--> 2|mails|f
select ord, queue, unique_skipped_as_duplicate as skipped from jobs.insert_many('[{"kind": "mail", "args": 2}, {"kind": "mail", "args": 3}, {"kind": "other", "args": 3}]');
--> ord|queue|skipped
--> 1|mails|t
--> 2|mails|f
--> 3|default|f
select * from shown;
--> kind|queue|priority|max_attempts|timeout
--> mail|default|1|25|00:01:00
--> mail|mails|-5|3|00:10:00
--> mail|mails|-5|3|00:10:00
--> mail|mails|-5|3|00:10:00
--> other|default|1|25|00:01:00
-- What the insert says goes before it; {} is not unique, null and JSON null say nothing.
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1', '{}', 'q', 7, max_attempts => 9, timeout => '1 second'); --> queue|skipped: q|f
select unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1', null); --> t
select unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1', 'null'); --> t
select * from shown offset 5; --> kind|queue|priority|max_attempts|timeout: mail|q|7|9|00:00:01
-- The key, and what it explains.
select jobs.unique_key('mail', '1') = jobs.unique_key('mail', '1', '{"by_args": true}') as same, jobs.unique_key('mail', '1', '{}') is null as none; --> same|none: t|t
select canonical, would from jobs.explain_unique('mail', '1'); --> canonical|would: {"args":1,"type":"mail"}|skip
select jobs.define_kind('mail', 'mails', unique_opts => '{"by_queue": true}');
select canonical from jobs.explain_unique('mail', '1'); --> {"queue":"mails","type":"mail"}
select canonical from jobs.explain_unique('mail', '1', queue => 'elsewhere'); --> {"queue":"elsewhere","type":"mail"}
-- Everything is replaced: null is the system's default again.
select jobs.define_kind('mail');
select queue, unique_skipped_as_duplicate as skipped from jobs.insert('mail', '1'); --> queue|skipped: default|f
select * from shown offset 6; --> kind|queue|priority|max_attempts|timeout: mail|default|1|25|00:01:00
-- Its retry policy.
select jobs.define_kind('flaky', 'f', retry => '{"strategy": "constant", "initial": 100, "jitter": false}');
select count(*) from jobs.insert('flaky') a, jobs.insert('flaky', retry => '"oban"') b; --> 1
select f.kind, x.scheduled_at - clock_timestamp() > interval '90 seconds' as as_the_kind_says from jobs.fetch('f', 2) f, lateral jobs.fail(f.id, f.token, 'x') x order by f.id;
--> kind|as_the_kind_says: flaky|t, flaky|f
-- A rollback takes it back, also for this session.
begin;
select jobs.define_kind('mail', 'undone');
select queue from jobs.insert('mail', '5'); --> undone
rollback;
select queue from jobs.insert('mail', '5'); --> default
begin;
savepoint a;
select jobs.define_kind('mail', 'undone');
select queue from jobs.insert('mail', '6'); --> undone
rollback to a;
select queue from jobs.insert('mail', '6'); --> default
commit;
-- The view shows settings, and what is removed has no effect any more: the system's default again,
-- also for this session.
select jobs.define_kind('shown', 'q', -5, 3, '10 minutes', '"oban"', '{"by_args": true}'), jobs.define_kind('shown bare');
select * from jobs.kinds where kind like 'shown%' order by kind;
--> kind|queue|priority|max_attempts|timeout|retry|unique_opts
--> shown|q|-5|3|00:10:00|"oban"|{"by_args": true}
--> shown bare|~|~|~|~|~|~
select id from jobs.insert('shown') \gset
select queue, priority, timeout from jobs.jobs where id = :id; --> queue|priority|timeout: q|-5|00:10:00
select jobs.undefine_kind('shown'), jobs.undefine_kind('shown'), jobs.undefine_kind('nosuch'); --> undefine_kind|undefine_kind|undefine_kind: t|f|f
select kind from jobs.kinds where kind like 'shown%'; --> shown bare
select id from jobs.insert('shown') \gset
select queue, priority, timeout from jobs.jobs where id = :id; --> queue|priority|timeout: default|1|00:01:00
begin;
select jobs.undefine_kind('shown bare'); --> t
rollback;
select kind from jobs.kinds where kind like 'shown%'; --> shown bare
select pg_temp.try('select jobs.undefine_kind(' || call || ')') from unnest(array['null', '''''']) call;
--> 22004: kind must not be null
--> 22023: kind must not be empty
-->   A kind must have 1 to 127 characters and no control characters.
-- Refused, and nothing changes.
select pg_temp.refusals('select jobs.define_kind(%s)', array['null', '''''', '''k'', ''''', '''k'', priority => 40000', '''k'', max_attempts => 0', '''k'', timeout => ''0''', '''k'', retry => ''"rivr"''', '''k'', unique_opts => ''{"by_arg": true}''',
  '''k'', unique_opts => ''[]''']);
--> null | 22004: kind must not be null
--> '' | 22023: kind must not be empty
-->   A kind must have 1 to 127 characters and no control characters.
--> 'k', '' | 22023: queue must not be empty
-->   A queue must have 1 to 127 characters and no control characters.
--> 'k', priority => 40000 | 22023: priority 40000 is out of range
-->   priority must be between -32768 and 32767; lower numbers run first.
--> 'k', max_attempts => 0 | 22023: max_attempts 0 is too low
-->   max_attempts must be at least 1; it includes the first attempt.
--> 'k', timeout => '0' | 22023: timeout "00:00:00" is out of range | Use -1 second for no limit.
-->   timeout must be longer than 0 and at most 1000 years.
--> 'k', retry => '"rivr"' | 22023: retry "rivr" is not known | Did you mean "river"?
-->   retry must be "river", "oban", "faktory" or an object such as {"strategy": "exponential", "initial": 1, "max": "PT5M"}.
--> 'k', unique_opts => '{"by_arg": true}' | 22023: field "by_arg" of unique_opts is not known | Did you mean "by_args"?
-->   The fields are by_kind, by_args, by_meta, by_queue, by_period, by_state, key, exclude_kind, window, window_from, hold_for, hold_until, on_conflict, wait, oban, faktory, ojs.
--> 'k', unique_opts => '[]' | 22023: unique_opts must not be an array
-->   unique_opts must be an object such as {"by_args": true}; {} means not unique.
select kind from jobs.kind order by kind; --> flaky, mail, shown bare
begin read only;
select jobs.define_kind('k');
--> ERROR:  cannot write jobs in a read-only transaction
--> HINT:  Use a read-write transaction.
rollback;
