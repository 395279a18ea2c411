-- A hold: the job holds its key by itself, until the hold runs out or is released, whatever becomes
-- of the job.
-- The job of a kind that was inserted last, and whether what is fetched is it.
create function pg_temp.job(text) returns bigint language sql as $$ select max(id) from jobs.jobs where kind = $1 $$;
create function pg_temp.fetched(text) returns boolean language sql as $$ select id = pg_temp.job($1) from jobs.fetch(worker => 'w') $$;
create function pg_temp.complete(text) returns jobs.state language sql as $$ select jobs.complete(pg_temp.job($1), pg_temp.token(pg_temp.job($1))) $$;
create function pg_temp.fail(text) returns jobs.state language sql as $$ select state from jobs.fail(pg_temp.job($1), pg_temp.token(pg_temp.job($1)), 'no', retry_in => '0') $$;

-- Held for as long as it says, also against jobs that look for other states, or only at young ones.
-- Refused inserts do not extend it.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": [], "hold_for": "1 hour"}'); --> id|skipped: 1|f
call pg_temp.later('40 minutes');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": [], "hold_for": "1 hour"}'); --> id|skipped: 1|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": ["running"], "window": 1}'); --> id|skipped: 1|t
call pg_temp.later('30 minutes');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": [], "hold_for": "1 hour"}'); --> id|skipped: 2|f
-- Beside a hold, states count as usual.
select jobs.cancel(2); --> cancelled
call pg_temp.later('2 hours');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": ["cancelled"]}'); --> id|skipped: 2|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": ["running"]}'); --> id|skipped: 3|f

-- It outlives the job: deleted, the id is answered, and nothing else is known.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_kind": true, "hold_for": "1 hour"}'); --> id|skipped: 4|f
select jobs.delete(4); --> available
select * from jobs.insert('b', '{}', '{"by_kind": true}'); --> id|state|unique_skipped_as_duplicate|replaced_id|queue|created_at|scheduled_at: 4|~|t|~|~|~|~
select ord, id, state, unique_skipped_as_duplicate as skipped from jobs.insert_many('[{"kind": "b", "unique_opts": {"by_kind": true}}, {"kind": "b"}]');
--> ord|id|state|skipped
--> 1|4|~|t
--> 2|5|available|f
select holder, holder_state, would from jobs.explain_unique('b', '{}', '{"by_kind": true}'); --> holder|holder_state|would: 4|~|skip
-- There is nothing to replace and nothing to update: skipped. Rejected, without a state.
select id, state, unique_skipped_as_duplicate as skipped, replaced_id from jobs.insert('b', '{}', '{"by_kind": true, "on_conflict": "replace"}'); --> id|state|skipped|replaced_id: 4|~|t|~
select id, state, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_kind": true, "on_conflict": {"update": {"*": ["args"]}}}'); --> id|state|skipped: 4|~|t
select pg_temp.ask($$select jobs.insert('b', '{}', '{"by_kind": true, "on_conflict": "reject"}')$$); --> 23505 {"existing_job_id":4,"existing_job_state":null}
select pg_temp.ask($$select jobs.insert('b', '{}', '{"ojs": {"on_conflict": "replace"}}')$$); --> 23505 {"existing_job_id":4,"existing_job_state":null}
-- unique_claims shows it. Its claim goes when the hold has run out, not before.
select holders, until > clock_timestamp() as held from jobs.unique_claims where key = jobs.unique_key('b', '{}', '{"by_kind": true}'); --> holders|held: {4}|t
select task, rows from jobs.maintain() where task = 'claims'; --> task|rows: claims|1
select count(*) from jobs.unique_claims where key = jobs.unique_key('b', '{}', '{"by_kind": true}'); --> 1
call pg_temp.later('2 hours');
select would from jobs.explain_unique('b', '{}', '{"by_kind": true}'); --> insert
select task, rows from jobs.maintain() where task = 'claims'; --> task|rows: claims|1
select count(*) from jobs.unique_claims where key = jobs.unique_key('b', '{}', '{"by_kind": true}'); --> 0

-- Cancelled, discarded and pruned jobs hold on. Past its retention a job counts as gone, pruned or
-- not.
truncate jobs.ready;
select id from jobs.insert('c', '{}', '{"by_state": [], "hold_for": "60 days"}'); --> 6
select jobs.cancel(6); --> cancelled
select id, state, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["running"]}'); --> id|state|skipped: 6|cancelled|t
call pg_temp.later('25 hours');
select id, state, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["running"]}'); --> id|state|skipped: 6|~|t
select task, rows from jobs.maintain() where task in ('prune', 'claims'); --> task|rows: prune|2, claims|0
select id, state, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["running"]}'); --> id|state|skipped: 6|~|t
call pg_temp.later('60 days');
select task, rows from jobs.maintain() where task in ('prune', 'claims'); --> task|rows: prune|0, claims|1
select count(*) from jobs.unique_claims where key = jobs.unique_key('c', '{}', '{"by_kind": true}'); --> 0

-- success: completed, it releases its hold, once: a retry does not take it again. A failure does
-- not.
select unique_skipped_as_duplicate as skipped from jobs.insert('d', '{}', '{"by_state": [], "hold_for": "1 hour"}', max_attempts => 2); --> f
select pg_temp.fetched('d'); --> t
select pg_temp.fail('d'); --> available
select id = pg_temp.job('d') as it, state, unique_skipped_as_duplicate as skipped from jobs.insert('d', '{}', '{"by_state": [], "hold_for": 5}'); --> it|state|skipped: t|available|t
select pg_temp.fetched('d'); --> t
select pg_temp.fail('d'); --> discarded
select id = pg_temp.job('d') as it, state, unique_skipped_as_duplicate as skipped from jobs.insert('d', '{}', '{"by_state": ["running"]}'); --> it|state|skipped: t|discarded|t
select jobs.retry(pg_temp.job('d')); --> available
select pg_temp.fetched('d'); --> t
select pg_temp.complete('d'); --> completed
select holders = array[pg_temp.job('d')] as it, until from jobs.unique_claims where key = jobs.unique_key('d', '{}', '{"by_kind": true}'); --> it|until: t|~
select jobs.retry(pg_temp.job('d')); --> available
select would from jobs.explain_unique('d', '{}', '{"by_state": ["running"]}'); --> insert
select pg_temp.fetched('d'); --> t
select would from jobs.explain_unique('d', '{}', '{"by_state": ["completed"]}'); --> insert
-- With complete_many as well.
select unique_skipped_as_duplicate as skipped from jobs.insert('e', '{}', '{"by_state": [], "hold_for": "1 hour"}'); --> f
select pg_temp.fetched('e'); --> t
select would from jobs.explain_unique('e', '{}', '{"by_state": ["cancelled"]}'); --> skip
select state from jobs.complete_many(array[pg_temp.job('e')], array[pg_temp.token(pg_temp.job('e'))]); --> completed
select would from jobs.explain_unique('e', '{}', '{"by_state": ["running"]}'); --> insert

-- start: its first fetch releases the hold, once.
select unique_skipped_as_duplicate as skipped from jobs.insert('f', '{}', '{"by_state": [], "hold_for": "1 hour", "hold_until": "start"}'); --> f
select would from jobs.explain_unique('f', '{}', '{"by_state": ["cancelled"]}'); --> skip
select pg_temp.fetched('f'); --> t
select would from jobs.explain_unique('f', '{}', '{"by_state": ["cancelled"]}'); --> insert
select jobs.release(pg_temp.job('f'), pg_temp.token(pg_temp.job('f'))); --> available
select would from jobs.explain_unique('f', '{}', '{"by_state": ["cancelled"]}'); --> insert
select jobs.cancel(pg_temp.job('f')); --> cancelled
select jobs.retry(pg_temp.job('f')); --> available
select would from jobs.explain_unique('f', '{}', '{"by_state": ["cancelled"]}'); --> insert
-- A job releases its own hold only, not that of another one under the key.
select pg_temp.fetched('f'); --> t
select pg_temp.job('f') as first, pg_temp.token(pg_temp.job('f')) as token \gset
select unique_skipped_as_duplicate as skipped from jobs.insert('f', '{}', '{"by_state": [], "hold_for": "1 hour"}'); --> f
select jobs.complete(:first, :token); --> completed
select id = pg_temp.job('f') as it, unique_skipped_as_duplicate as skipped from jobs.insert('f', '{}', '{"by_state": ["running"]}'); --> it|skipped: t|t
-- A release that is rolled back releases nothing.
begin;
select pg_temp.fetched('f'); --> t
select pg_temp.complete('f'); --> completed
select would from jobs.explain_unique('f', '{}', '{"by_state": ["running"]}'); --> insert
rollback;
select would from jobs.explain_unique('f', '{}', '{"by_state": ["running"]}'); --> skip

-- It counts from scheduled_at where that is later, and months are those of the calendar. Past the
-- end of time it is for ever.
select unique_skipped_as_duplicate as skipped from jobs.insert('g', '{}', '{"by_state": [], "hold_for": "1 hour"}', scheduled_at => clock_timestamp() + interval '1 day'); --> f
select unique_skipped_as_duplicate as skipped from jobs.insert('h', '{}', '{"by_state": [], "hold_for": "1 hour"}', scheduled_at => clock_timestamp() - interval '1 day'); --> f
select unique_skipped_as_duplicate as skipped from jobs.insert('i', '{}', '{"by_state": [], "hold_for": "1 month"}', scheduled_at => '2999-02-01 12:00Z'); --> f
select unique_skipped_as_duplicate as skipped from jobs.insert('j', '{}', '{"by_state": [], "hold_for": "1000 years"}', scheduled_at => '294000-01-01Z'); --> f
create function pg_temp.until(text) returns timestamptz language sql as $$ select until from jobs.unique_claims where key = jobs.unique_key($1, '{}', '{"by_kind": true}') $$;
select pg_temp.until('g') - clock_timestamp() between '24 hours 59 minutes' and '25 hours' as a_day_and_an_hour, pg_temp.until('h') - clock_timestamp() between '59 minutes' and '1 hour' as an_hour;
--> a_day_and_an_hour|an_hour: t|t
select pg_temp.until('i'), pg_temp.until('j'); --> until|until: 2999-03-01 12:00:00+00|infinity

-- Replaced, a job loses its hold.
select unique_skipped_as_duplicate as skipped from jobs.insert('k', '{}', '{"by_state": ["available"], "hold_for": "1 hour"}'); --> f
select id = pg_temp.job('k') as it, replaced_id is not null as replaces from jobs.insert('k', '{}', '{"by_state": ["available"], "on_conflict": "replace"}'); --> it|replaces: t|t
select array_length(holders, 1) as holders, until from jobs.unique_claims where key = jobs.unique_key('k', '{}', '{"by_kind": true}'); --> holders|until: 2|~
select jobs.cancel(pg_temp.job('k')); --> cancelled
select would from jobs.explain_unique('k', '{}', '{"by_state": ["available"]}'); --> insert
-- One that conflicts only by its hold is replaced as well, unless it is final.
select unique_skipped_as_duplicate as skipped from jobs.insert('l', '{}', '{"by_state": [], "hold_for": "1 hour"}'); --> f
select replaced_id is not null as replaces from jobs.insert('l', '{}', '{"by_state": ["running"], "hold_for": "1 hour", "on_conflict": "replace"}'); --> t
select jobs.cancel(pg_temp.job('l')); --> cancelled
select id = pg_temp.job('l') as it, unique_skipped_as_duplicate as skipped, replaced_id is not null as replaces from jobs.insert('l', '{}', '{"by_state": ["running"], "on_conflict": "replace"}');
--> it|skipped|replaces: t|t|f
select state from jobs.jobs where kind = 'l' order by id; --> cancelled, cancelled

-- In a batch earlier elements hold, too.
select ord, unique_skipped_as_duplicate as skipped, id - min(id) over () as id from jobs.insert_many(
  '[{"kind": "m", "unique_opts": {"by_state": [], "hold_for": 60}}, {"kind": "m", "unique_opts": {"by_state": ["running"]}},
    {"kind": "n", "unique_opts": {"by_state": ["running"]}}, {"kind": "n", "unique_opts": {"by_state": ["running"], "hold_for": 60}}, {"kind": "n", "unique_opts": {"by_state": ["running"]}}]');
--> ord|skipped|id
--> 1|f|0
--> 2|t|0
--> 3|f|1
--> 4|f|2
--> 5|t|2
select array_length(holders, 1) as holders, until is not null as held from jobs.unique_claims where key in (jobs.unique_key('m', '{}', '{"by_kind": true}'), jobs.unique_key('n', '{}', '{"by_kind": true}')) order by 1;
--> holders|held: 1|t, 2|t

-- Faktory: kind, args and queue; only the hold counts; success by default.
select policy -> 'by_state' as by_state, policy ->> 'hold_for' as hold_for, policy ->> 'hold_until' as hold_until, canonical from jobs.explain_unique('o', '[1]', '{"faktory": {"unique_for": 600.0}}');
--> by_state|hold_for|hold_until|canonical: []|PT10M|success|{"args":[1],"queue":"default","type":"o"}
select policy ->> 'hold_for' as hold_for, policy ->> 'hold_until' as hold_until from jobs.explain_unique('o', '[1]', '{"faktory": {"unique_for": 0.5, "unique_until": "start"}}');
--> hold_for|hold_until: PT0.5S|start
select unique_skipped_as_duplicate as skipped from jobs.insert('o', '[1]', '{"faktory": {"unique_for": 600.0}}'); --> f
select id = pg_temp.job('o') as it, unique_skipped_as_duplicate as skipped from jobs.insert('o', '[1]', '{"faktory": {"unique_for": 600.0}}'); --> it|skipped: t|t
select unique_skipped_as_duplicate as skipped from jobs.insert('o', '[1]', '{"faktory": {"unique_for": 600.0}}', queue => 'other'); --> f
select pg_temp.code($$select jobs.insert('o', '[1]', '{"faktory": {"unique_for": 600.0}, "on_conflict": "reject"}')$$); --> 23505
select unique_skipped_as_duplicate as skipped from jobs.insert('o', '[1]', '{"faktory": {"unique_for": null}}'); --> f
-- What tells that holds were released goes when they would have run out.
select count(*) > 0 as some from jobs.unique_note where kind = 'h'; --> t
call pg_temp.later('2 hours');
select rows > 0 as some from jobs.maintain() where task = 'claims'; --> t
select count(*) from jobs.unique_note where kind = 'h'; --> 0

-- Elements of one batch that replace or update: a new key's hold stands for a job that is there.
select ord, unique_skipped_as_duplicate as skipped, state, replaced_id is not null as replaces from jobs.insert_many(
  '[{"kind": "p", "unique_opts": {"by_kind": true, "hold_for": "1 hour", "on_conflict": "replace"}}, {"kind": "p", "unique_opts": {"by_kind": true}}, {"kind": "p", "unique_opts": {"by_state": ["running"], "on_conflict": "replace"}}]');
--> ord|skipped|state|replaces
--> 1|f|available|f
--> 2|t|available|f
--> 3|f|available|t
select state from jobs.jobs where kind = 'p' order by id; --> cancelled, available
select ord, unique_skipped_as_duplicate as skipped, state from jobs.insert_batch('q', array['1', '1']::jsonb[], '{"faktory": {"unique_for": 60}, "on_conflict": {"update": {"scheduled": ["args"]}}}');
--> ord|skipped|state
--> 1|f|available
--> 2|t|available
select count(*) from jobs.jobs where kind = 'q'; --> 1
-- A hold is released once: a job that starts again and again leaves one note, and none when its
-- claim is gone.
truncate jobs.ready;
select unique_skipped_as_duplicate as skipped from jobs.insert('r', '{}', '{"by_state": [], "hold_for": "1 year", "hold_until": "start"}'); --> f
select count(*) from generate_series(1, 5), lateral jobs.fetch() f, lateral jobs.release(f.id, f.token); --> 5
select count(*) from jobs.unique_note where kind = 'h' and job_id = pg_temp.job('r'); --> 1
select jobs.delete(pg_temp.job('r')); --> available
select rows > 0 as some from jobs.maintain() where task = 'claims'; --> t
select count(*) from jobs.unique_note where kind = 'h'; --> 0
-- A takeover drops the note as well: the claim says that the first job does not hold any more.
select unique_skipped_as_duplicate as skipped from jobs.insert('s', '{}', '{"by_state": [], "hold_for": "1 year", "hold_until": "start"}'); --> f
select pg_temp.fetched('s'); --> t
select unique_skipped_as_duplicate as skipped from jobs.insert('s', '{}', '{"by_state": [], "hold_for": "1 year"}'); --> f
select count(*) from jobs.unique_note where kind = 'h'; --> 0
-- Longer than time is for ever.
select unique_skipped_as_duplicate as skipped from jobs.insert('t', '{}', '{"by_state": [], "hold_for": "1000000 years"}'); --> f
select pg_temp.until('t'); --> infinity
