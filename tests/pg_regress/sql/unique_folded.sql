-- A key that is used over and over keeps the list of its claim short: final jobs that a newer one
-- covers are folded. They count again when the newer one is gone.
-- Inserts a job of a kind whatever is there, and cancels it.
create function pg_temp.cancelled(kind text, at timestamptz = null) returns bigint language sql as $$
  select i.id from jobs.insert(kind, '{}', '{"by_state": ["pending"]}', scheduled_at => at) i, lateral jobs.cancel(i.id) $$;
create function pg_temp.folded(kind text) returns bigint[] language sql as $$
  select array_agg(job_id order by job_id) from jobs.unique_note n where n.kind = 'f' and key = decode(jobs.unique_key(folded.kind, '{}', '{"by_kind": true}'), 'hex') $$;
create function pg_temp.listed(kind text) returns bigint[] language sql as $$
  select jobs from jobs.unique_claim where key = decode(jobs.unique_key(kind, '{}', '{"by_kind": true}'), 'hex') $$;

-- 1 is due later than all others and stays in the list. 2 is covered by 3; then 3 and 4 are
-- deleted.
select pg_temp.cancelled('a', clock_timestamp() + interval '10 days'), pg_temp.cancelled('a'), pg_temp.cancelled('a'), pg_temp.cancelled('a'); --> cancelled|cancelled|cancelled|cancelled: 1|2|3|4
select pg_temp.listed('a'), pg_temp.folded('a'); --> listed|folded: {1,3,4}|{2}
call pg_temp.later('1 minute');
select jobs.delete(3), jobs.delete(4); --> delete|delete: cancelled|cancelled
-- 2 is the newest that is cancelled, whoever asks: it is known again, although 1 would do.
select holder, would from jobs.explain_unique('a', '{}', '{"by_state": ["cancelled"]}'); --> holder|would: 2|skip
select holder, would from jobs.explain_unique('a', '{}', '{"by_state": ["cancelled"], "window": "2 minutes"}'); --> holder|would: 2|skip
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": ["cancelled"]}'); --> id|skipped: 2|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": ["cancelled"], "window": "2 minutes"}'); --> id|skipped: 2|t
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('a', array['{}']::jsonb[], '{"by_state": ["cancelled"], "window": "2 minutes"}'); --> ord|id|skipped: 1|2|t
-- With the next job that joins the list has it again.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_state": ["pending"]}'); --> id|skipped: 5|f
select pg_temp.listed('a'), pg_temp.folded('a'); --> listed|folded: {1,2,5}|~

-- The one that covers returns by a retry, and what it covered counts.
select pg_temp.cancelled('b'), pg_temp.cancelled('b'), pg_temp.cancelled('b'); --> cancelled|cancelled|cancelled: 6|7|8
select pg_temp.listed('b'), pg_temp.folded('b'); --> listed|folded: {7,8}|{6}
select jobs.retry(8), jobs.delete(7); --> retry|delete: available|cancelled
select holder, would from jobs.explain_unique('b', '{}', '{"by_state": ["cancelled"]}'); --> holder|would: 6|skip
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_state": ["cancelled"]}'); --> id|skipped: 6|t

-- Or it is given another schedule by an update, so that it no longer covers by that.
select pg_temp.cancelled('c', clock_timestamp() - interval '1 hour') as first, pg_temp.cancelled('c', clock_timestamp() - interval '30 minutes') as second \gset
select unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["pending"]}'); --> f
select pg_temp.folded('c') = array[:first]::bigint[] as first; --> t
select id = :second as second, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["cancelled"], "on_conflict": {"update": {"cancelled": ["scheduled_at"]}}}', scheduled_at => '2001-01-01Z');
--> second|skipped: t|t
select id = :first as first, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["cancelled"], "window": "2 hours", "window_from": "scheduled_at"}'); --> first|skipped: t|t
select unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_state": ["pending"]}'); --> f
select pg_temp.listed('c') @> array[:first, :second]::bigint[] as both; --> t

-- A batch of jobs that replace each other names each job once.
select ord, unique_skipped_as_duplicate as skipped, replaced_id - min(id) over () as replaced from jobs.insert_many(
  (select jsonb_agg(jsonb_build_object('kind', 'd', 'unique_opts', jsonb '{"by_kind": true, "on_conflict": "replace"}')) from generate_series(1, 3)));
--> ord|skipped|replaced
--> 1|f|~
--> 2|f|0
--> 3|f|1
select array_length(pg_temp.listed('d'), 1) as listed, (select count(distinct id) from unnest(pg_temp.listed('d')) id) as different; --> listed|different: 2|2
-- One of them that is rejected because of another one: that one is rolled back as well, so its id
-- says nothing.
select pg_temp.ask($$select jobs.insert_many('[{"kind": "e", "unique_opts": {"by_kind": true}}, {"kind": "e", "unique_opts": {"by_kind": true, "on_conflict": "replace"}}, {"kind": "e", "unique_opts": {"by_kind": true, "on_conflict": "reject"}}]')$$);
--> 23505 {"existing_job_id":null,"existing_job_state":"available","index":3}
-- A job that has returned more than once is shown once.
select pg_temp.cancelled('f') as first, pg_temp.cancelled('f') as second, pg_temp.cancelled('f') as third \gset
select jobs.retry(:first), jobs.cancel(:first), jobs.retry(:first); --> retry|cancel|retry: available|cancelled|available
select array_length(holders, 1) as holders from jobs.unique_claims where key = jobs.unique_key('f', '{}', '{"by_kind": true}'); --> 3
-- What is left of it in notes is bounded by maintenance.
select count(*) from generate_series(1, 20) n, lateral (select jobs.cancel(:first + 0 * n)) c, lateral (select jobs.retry(:first + 0 * n)) r; --> 20
select count(*) from jobs.unique_note where kind = 'r' and job_id = :first; --> 22
select rows > 0 as some from jobs.maintain() where task = 'claims'; --> t
select count(*) from jobs.unique_note where kind = 'r' and job_id = :first; --> 1
select holder = :first as first, would from jobs.explain_unique('f', '{}', '{"by_state": ["available"]}'); --> first|would: t|skip

-- Who deletes many jobs of a key in one transaction says once that the claim is to be looked at.
select count(pg_temp.cancelled('g')) from generate_series(1, 5); --> 5
begin;
select n_tup_upd as before from pg_stat_xact_user_tables where relid = 'jobs.unique_note'::regclass \gset
select count(jobs.delete(id)) from jobs.jobs where kind = 'g'; --> 5
select n_tup_upd - :before as written from pg_stat_xact_user_tables where relid = 'jobs.unique_note'::regclass; --> 0
rollback;

-- Folded by newer ones that are deleted since, the oldest is found where it is: completed, then
-- retried. With it the last row of the key goes.
create function pg_temp.completed(kind text) returns bigint language sql as $$
  select f.id from jobs.insert(kind, unique_opts => '{"by_state": ["available"]}', queue => kind) i, lateral jobs.fetch(kind) f, lateral jobs.complete(f.id, f.token) c where not i.unique_skipped_as_duplicate $$;
select pg_temp.completed('h') as first, pg_temp.completed('h') as second, pg_temp.completed('h') as third \gset
select pg_temp.folded('h') @> array[:first]::bigint[] as folded, jobs.delete(:second), jobs.delete(:third); --> folded|delete|delete: t|completed|completed
select count(*) from jobs.maintain() where error is not null; --> 0
select id = :first as first, unique_skipped_as_duplicate as skipped from jobs.insert('h', unique_opts => '{"by_state": ["completed", "available"]}'); --> first|skipped: t|t
select jobs.retry(:first); --> available
select id = :first as first, unique_skipped_as_duplicate as skipped from jobs.insert('h', unique_opts => '{"by_state": ["available"]}'); --> first|skipped: t|t
select jobs.delete(:first); --> available
select count(*) from jobs.maintain() where error is not null; --> 0
select count(*) from jobs.unique_claim where key = decode(jobs.unique_key('h', '{}', '{"by_kind": true}'), 'hex'); --> 0
select count(*) from jobs.unique_note where key = decode(jobs.unique_key('h', '{}', '{"by_kind": true}'), 'hex'); --> 0
