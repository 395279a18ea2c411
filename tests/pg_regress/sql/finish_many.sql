-- jobs.finish_many: the attempts of many jobs end, each in its own way. jobs.complete_many and
-- jobs.fail_many, where all end alike, with outputs and errors.

-- Jobs that run, by numbers; and what is said of one.
create temp table held (n int generated always as identity, id bigint, token bigint);
create function pg_temp.hold(count int, queue text, options text default 'pending => false') returns void language plpgsql as $$ begin
  execute format('select from generate_series(1, %s) n, lateral jobs.insert(''k'', to_jsonb(n), queue => %L, %s)', count, queue, options);
  truncate held restart identity;
  insert into held (id, token) select id, token from jobs.fetch(queue, count) order by id;
end $$;
create function pg_temp.result(number int, more jsonb) returns jsonb language sql as $$ select jsonb_build_object('id', id, 'token', token) || more from held where n = number $$;
create function pg_temp.results(variadic more jsonb[]) returns jsonb language sql as $$ select jsonb_agg(pg_temp.result(n::int, m) order by n) from unnest(more) with ordinality u(m, n) $$;
create function pg_temp.of(job bigint) returns int language sql as $$ select n from held where id = job $$;

-- Each way to end, with all that may go with it, in the order of the results.
select pg_temp.hold(9, 'ways', 'max_attempts => 2') \gset
create temp table said as select pg_temp.results(
  '{"do": "complete"}', '{"do": "complete", "output": {"a": [1, 2.50]}}', '{"do": "complete", "output": null}',
  '{"do": "fail", "error": "e4", "retry_in": "PT1H"}', '{"do": "fail", "error": "", "details": {"type": "t"}, "retryable": true}',
  '{"do": "fail", "error": "e6", "retryable": false, "details": [1]}', '{"do": "fail", "error": "e7", "retry_in": 0}',
  '{"do": "snooze", "delay": 7200}', '{"do": "release"}') as results;
create temp table told as select f.* from said, jobs.finish_many((select jsonb_agg(r order by (r->>'id')::bigint desc) from jsonb_array_elements(results) r)) f;
select ord, pg_temp.of(id) as n, state, scheduled_at > now() + interval '59 minutes' as in_an_hour, done, reason from told order by ord;
--> ord|n|state|in_an_hour|done|reason
--> 1|9|available|~|t|~
--> 2|8|scheduled|t|t|~
--> 3|7|available|f|t|~
--> 4|6|discarded|~|t|~
--> 5|5|retryable|f|t|~
--> 6|4|retryable|t|t|~
--> 7|3|completed|~|t|~
--> 8|2|completed|~|t|~
--> 9|1|completed|~|t|~
select pg_temp.of(id) as n, state, attempt, output, finalized_at is not null as finalized, worker is not null as worker, last.error, last.details
  from jobs.jobs left join lateral (select error, details from jobs.errors e where e.job_id = jobs.id) last on true where queue = 'ways' order by id;
--> n|state|attempt|output|finalized|worker|error|details
--> 1|completed|1|~|t|t|~|~
--> 2|completed|1|{"a": [1, 2.50]}|t|t|~|~
--> 3|completed|1|null|t|t|~|~
--> 4|retryable|1|~|f|f|e4|~
--> 5|retryable|1|~|f|f||{"type": "t"}
--> 6|discarded|1|~|t|t|e6|[1]
--> 7|available|1|~|f|f|e7|~
--> 8|scheduled|0|~|f|f|~|~
--> 9|available|0|~|f|f|~|~
select bool_and(j.scheduled_at = t.scheduled_at) as as_told from told t join jobs.jobs j using (id) where t.scheduled_at is not null; --> t
-- A call made again answers as the first time, in whatever order, and nothing changes.
create function pg_temp.all_of(what text) returns text language sql as $$
  select jsonb_agg(to_jsonb(j) order by id)::text || coalesce((select jsonb_agg(to_jsonb(e) order by job_id, at)::text from jobs.errors e), '') from jobs.jobs j where j.queue = what $$;
select pg_temp.all_of('ways') as before \gset
select bool_and(f.done and f.state = t.state and f.scheduled_at is not distinct from t.scheduled_at) as the_same, count(*) from said, jobs.finish_many(results) f join told t using (id);
--> the_same|count: t|9
select pg_temp.all_of('ways') = :'before' as unchanged; --> t
-- Whatever else goes with it.
select pg_temp.of(id) as n, state, done from said, jobs.finish_many((select jsonb_agg(r - 'output' - 'details' - 'retryable' - 'retry_in' || case r->>'do' when 'complete' then '{"output": 7}' when 'snooze' then '{"delay": 1}' else '{}' end::jsonb order by n) from jsonb_array_elements(results) with ordinality as u(r, n))) f;
--> n|state|done
--> 1|completed|t
--> 2|completed|t
--> 3|completed|t
--> 4|retryable|t
--> 5|retryable|t
--> 6|discarded|t
--> 7|available|t
--> 8|scheduled|t
--> 9|available|t
select pg_temp.all_of('ways') = :'before' as unchanged; --> t

-- A lost token spoils only its own row; the reason is the DETAIL of the call for one job.
select pg_temp.hold(6, 'lost') \gset
select jobs.fail(id, token, 'x', '0') is not null as failed from held where n = 2; --> t
select count(*) from jobs.fetch('lost'); --> 1
select jobs.cancel(id, force => true) from held where n = 3; --> cancelled
select jobs.cancel(id, force => true), jobs.delete(id) from held where n = 4; --> cancel|delete: cancelled|cancelled
select f.ord, pg_temp.of(f.id) as n, f.state, f.scheduled_at is not null as scheduled, f.done, f.reason from jobs.finish_many(
  pg_temp.results('{"do": "complete"}', '{"do": "complete"}', '{"do": "snooze", "delay": 1}', '{"do": "release"}', '{"do": "fail", "error": "e", "token": 5}', '{"do": "fail", "error": "e", "retry_in": "1 hour"}')
  || '[{"id": 999, "token": 1, "do": "release"}, {"id": -1, "token": -1, "do": "complete"}]') f order by ord;
--> ord|n|state|scheduled|done|reason
--> 1|1|completed|f|t|~
--> 2|2|running|f|f|already_finished
--> 3|3|cancelled|f|f|lease_lost
--> 4|4|~|f|f|unknown
--> 5|5|running|f|f|lease_lost
--> 6|6|retryable|t|t|~
--> 7|~|~|f|f|unknown
--> 8|~|~|f|f|unknown
select pg_temp.of(id) as n, state from jobs.jobs where queue = 'lost' order by id; --> n|state: 1|completed, 2|running, 3|cancelled, 5|running, 6|retryable

-- Twice in one call: the first one counts, and the second one is answered as a later call.
select pg_temp.hold(3, 'twice') \gset
select f.ord, pg_temp.of(f.id) as n, f.state, f.done, f.reason from jobs.finish_many(jsonb_build_array(
  pg_temp.result(2, '{"do": "complete", "output": 1}'), pg_temp.result(1, '{"do": "fail", "error": "first", "retry_in": 60}'), pg_temp.result(2, '{"do": "complete", "output": 2}'),
  pg_temp.result(1, '{"do": "release"}'), pg_temp.result(1, '{"do": "fail", "error": "second", "retry_in": 0}'), pg_temp.result(3, '{"do": "release", "token": 1}'), pg_temp.result(3, '{"do": "release"}'))) f order by ord;
--> ord|n|state|done|reason
--> 1|2|completed|t|~
--> 2|1|retryable|t|~
--> 3|2|completed|t|~
--> 4|1|retryable|f|already_finished
--> 5|1|retryable|t|~
--> 6|3|available|f|lease_lost
--> 7|3|available|t|~
select pg_temp.of(id) as n, state, output, (select string_agg(error, ', ') from jobs.errors e where e.job_id = jobs.id) as errors from jobs.jobs where queue = 'twice' order by id;
--> n|state|output|errors
--> 1|retryable|~|first
--> 2|completed|1|~
--> 3|available|~|~

-- Everything else is as with one job: the end of the attempts, policies, cancel requests, limits,
-- holds, the lane.
select pg_temp.hold(2, 'last', 'max_attempts => 1') \gset
select f.state, f.scheduled_at is not null as scheduled from jobs.finish_many(pg_temp.results('{"do": "fail", "error": "e"}', '{"do": "snooze", "delay": 1}')) f;
--> state|scheduled: discarded|f, scheduled|t
select pg_temp.hold(3, 'policy', $$retry => '{"strategy": "constant", "initial": 600, "max": 600, "jitter": false, "non_retryable": ["bad.*"]}'$$) \gset
select f.state, f.scheduled_at between now() + interval '9 minutes 59 seconds' and now() + interval '10 minutes 1 second' as in_ten_minutes
  from jobs.finish_many(pg_temp.results('{"do": "fail", "error": "e", "details": {"type": "good"}}', '{"do": "fail", "error": "e", "details": {"type": "bad.one"}}', '{"do": "fail", "error": "e", "details": "bad.one"}')) f;
--> state|in_ten_minutes: retryable|t, discarded|~, retryable|t
select pg_temp.hold(5, 'cancelled') \gset
select count(jobs.cancel(id, 'not wanted')) from held; --> 5
select f.state, f.scheduled_at, f.done from jobs.finish_many(pg_temp.results('{"do": "complete"}', '{"do": "fail", "error": "e"}', '{"do": "fail", "error": "e", "retry_in": 0}', '{"do": "snooze", "delay": 1}', '{"do": "release"}')) f;
--> state|scheduled_at|done
--> completed|~|t
--> cancelled|~|t
--> cancelled|~|t
--> cancelled|~|t
--> cancelled|~|t
select pg_temp.of(id) as n, state, attempt, cancel_reason, (select count(*) from jobs.errors e where e.job_id = jobs.id) as errors from jobs.jobs where queue = 'cancelled' order by id;
--> n|state|attempt|cancel_reason|errors
--> 1|completed|1|not wanted|0
--> 2|cancelled|1|not wanted|1
--> 3|cancelled|1|not wanted|1
--> 4|cancelled|1|not wanted|0
--> 5|cancelled|1|not wanted|0
-- A worker that cancels its job by itself: as if somebody had asked to, and it had released the
-- job. Who asked before has said why.
select pg_temp.hold(4, 'given_up') \gset
select count(jobs.cancel(id, 'theirs')) from held where n = 3; --> 1
create temp table given_up as select pg_temp.results('{"do": "cancel", "reason": "mine"}', '{"do": "cancel"}', '{"do": "cancel", "reason": "mine"}', '{"do": "cancel", "token": 1}') as results;
select f.ord, f.state, f.scheduled_at, f.done, f.reason from given_up, jobs.finish_many(results) f order by ord;
--> ord|state|scheduled_at|done|reason
--> 1|cancelled|~|t|~
--> 2|cancelled|~|t|~
--> 3|cancelled|~|t|~
--> 4|running|~|f|lease_lost
select f.ord, f.state, f.done, f.reason from given_up, jobs.finish_many(results) f order by ord;
--> ord|state|done|reason
--> 1|cancelled|t|~
--> 2|cancelled|t|~
--> 3|cancelled|t|~
--> 4|running|f|lease_lost
select pg_temp.of(id) as n, state, attempt, cancel_reason, cancel_requested_at = finalized_at as by_itself, (select count(*) from jobs.errors e where e.job_id = jobs.id) as errors from jobs.jobs where queue = 'given_up' order by id;
--> n|state|attempt|cancel_reason|by_itself|errors
--> 1|cancelled|1|mine|t|0
--> 2|cancelled|1|~|t|0
--> 3|cancelled|1|theirs|f|0
--> 4|running|1|~|~|0
select jobs.release(id, token), pg_temp.ask(format('select jobs.complete(%s, %s)', id, token)) as complete from held where n = 1; --> release|complete: cancelled|55000 already_finished
select jobs.configure_queue('limited', concurrency => 4) \gset
select pg_temp.hold(8, 'limited') \gset
select count(*) from held; --> 4
select count(*) from jobs.fetch('limited', 10); --> 0
select count(*) from jobs.finish_many(pg_temp.results('{"do": "complete"}', '{"do": "fail", "error": "e"}', '{"do": "snooze", "delay": 1000}', '{"do": "release"}')) f where done; --> 4
select count(*) from jobs.fetch('limited', 10); --> 4
-- Only completion gives a hold back.
select count(*) from (values ('a'), ('b')) v(kind), lateral jobs.insert(v.kind, unique_opts => '{"by_kind": true, "by_state": [], "hold_for": "1 hour"}', queue => 'holds') i; --> 2
truncate held restart identity;
insert into held (id, token) select id, token from jobs.fetch('holds', 2);
select count(*) from jobs.finish_many(pg_temp.results('{"do": "complete"}', '{"do": "fail", "error": "e", "retryable": false}')) f where done; --> 2
select v.kind, i.unique_skipped_as_duplicate from (values ('a'), ('b')) v(kind), lateral jobs.insert(v.kind, unique_opts => '{"by_kind": true, "by_state": [], "hold_for": "1 hour"}', queue => 'holds') i;
--> kind|unique_skipped_as_duplicate: a|f, b|t
-- What is given back goes to the end of its lane, in the order of the results.
select pg_temp.hold(3, 'lane') \gset
select count(*) from jobs.insert('before', queue => 'lane'); --> 1
select count(*) from jobs.finish_many(jsonb_build_array(pg_temp.result(2, '{"do": "release"}'), pg_temp.result(3, '{"do": "fail", "error": "e", "retry_in": 0}'), pg_temp.result(1, '{"do": "release"}'))) f where done;
--> 3
select coalesce(pg_temp.of(id)::text, kind) as n from jobs.fetch('lane', 10); --> before, 2, 3, 1
-- Retention of the queue.
select jobs.configure_queue('kept', retention_completed => '1 hour', retention_discarded => '2 hours', retention_cancelled => '3 hours') \gset
select pg_temp.hold(3, 'kept') \gset
select jobs.cancel(id) from held where n = 3; --> running
select count(*) from jobs.finish_many(pg_temp.results('{"do": "complete"}', '{"do": "fail", "error": "e", "retryable": false}', '{"do": "release"}')) f where done; --> 3
select state, kept_until - finalized_at as kept from jobs.finished f where job_id in (select id from held) order by job_id; --> state|kept: completed|01:00:00, discarded|02:00:00, cancelled|03:00:00
-- It is part of the transaction.
select pg_temp.hold(2, 'tx') \gset
begin;
select f.state from jobs.finish_many(pg_temp.results('{"do": "complete"}', '{"do": "fail", "error": "e"}')) f; --> completed, retryable
rollback;
select state, count(*) from jobs.jobs where queue = 'tx' group by state; --> state|count: running|2

-- What each call says after each other one has used the token.
create temp table calls (ord int generated always as identity, name text, call text);
insert into calls (name, call) values
  ('complete', 'select jobs.complete(%1$s, %2$s)'), ('fail', $$select state from jobs.fail(%1$s, %2$s, 'e', '1 hour')$$), ('snooze', $$select state from jobs.snooze(%1$s, %2$s, '1 hour')$$), ('release', 'select jobs.release(%1$s, %2$s)'),
  ('many: complete', $$select concat_ws(' ', state, done) from jobs.complete_many(array[%1$s], array[%2$s], '{1}')$$), ('many: fail', $$select concat_ws(' ', state, done) from jobs.fail_many(array[%1$s], array[%2$s], '{e}', retry_in => '1 hour')$$);
insert into calls (name, call) select 'in many: ' || u.name, format($$select concat_ws(' ', state, done, reason) from jobs.finish_many('[{"id": %%1$s, "token": %%2$s, "do": %s}]')$$, u.more)
  from (values (1, 'complete', '"complete", "output": 1'), (2, 'fail', '"fail", "error": "e", "retry_in": "1 hour"'), (3, 'snooze', '"snooze", "delay": 3600'), (4, 'release', '"release"')) u(n, name, more) order by n;
create temp table answers (first int, again int, answer text);
do $$
declare f record; a record; j record; told text;
begin
  for f in select * from calls order by ord loop
    for a in select * from calls order by ord loop
      perform jobs.insert('k', queue => 'used');
      select id, token into j from jobs.fetch('used');
      execute format(f.call, j.id, j.token) into told;
      insert into answers values (f.ord, a.ord, pg_temp.ask(format(a.call, j.id, j.token)));
      perform jobs.cancel(j.id), jobs.delete(j.id);
    end loop;
  end loop;
end $$;
create temp view told_again as
  select c.ord, c.name as first, array_agg(answer order by again) as answers from answers join calls c on c.ord = first group by c.ord, c.name;
select string_agg(first, ', ' order by ord) as first, answers[1] as complete, answers[2] as fail, answers[3] as snooze, answers[4] as release from told_again group by 2, 3, 4, 5 order by min(ord);
--> first|complete|fail|snooze|release
--> complete, many: complete, in many: complete|completed|55000 already_finished|55000 already_finished|55000 already_finished
--> fail, many: fail, in many: fail|55000 already_finished|retryable|55000 already_finished|55000 already_finished
--> snooze, in many: snooze|55000 already_finished|55000 already_finished|scheduled|55000 already_finished
--> release, in many: release|55000 already_finished|55000 already_finished|55000 already_finished|available
select string_agg(first, ', ' order by ord) as first, answers[5] as many_complete, answers[6] as many_fail, answers[7] as in_many_complete, answers[8] as in_many_fail, answers[9] as in_many_snooze, answers[10] as in_many_release
  from told_again group by 2, 3, 4, 5, 6, 7 order by min(ord);
--> first|many_complete|many_fail|in_many_complete|in_many_fail|in_many_snooze|in_many_release
--> complete, many: complete, in many: complete|completed t|completed f|completed t|completed f already_finished|completed f already_finished|completed f already_finished
--> fail, many: fail, in many: fail|retryable f|retryable t|retryable f already_finished|retryable t|retryable f already_finished|retryable f already_finished
--> snooze, in many: snooze|scheduled f|scheduled f|scheduled f already_finished|scheduled f already_finished|scheduled t|scheduled f already_finished
--> release, in many: release|available f|available f|available f already_finished|available f already_finished|available f already_finished|available t

-- complete_many and fail_many: outputs, errors and details, one for each.
select pg_temp.hold(5, 'arrays') \gset
select array_agg(id order by n desc) as ids, array_agg(token order by n desc) as tokens from held \gset
select row_number() over () as ord, pg_temp.of(id) as n, state, done from jobs.complete_many((:'ids'::bigint[])[1:3], (:'tokens'::bigint[])[1:3], array['{"n": 5}', null, 'null']::jsonb[]);
--> ord|n|state|done
--> 1|5|completed|t
--> 2|4|completed|t
--> 3|3|completed|t
select row_number() over () as ord, pg_temp.of(id) as n, state, scheduled_at > now() + interval '4 minutes' as later, done from jobs.fail_many(:'ids', :'tokens', '{a,b,c,d,e}', array[null, null, null, '{"type": "x"}', null]::jsonb[], '5 minutes');
--> ord|n|state|later|done
--> 1|5|completed|~|f
--> 2|4|completed|~|f
--> 3|3|completed|~|f
--> 4|2|retryable|t|t
--> 5|1|retryable|t|t
select pg_temp.of(id) as n, state, output, (select string_agg(concat_ws(' ', error, details), ', ') from jobs.errors e where e.job_id = jobs.id) as errors from jobs.jobs where queue = 'arrays' order by id;
--> n|state|output|errors
--> 1|retryable|~|e
--> 2|retryable|~|d {"type": "x"}
--> 3|completed|null|~
--> 4|completed|~|~
--> 5|completed|{"n": 5}|~
select * from jobs.complete_many('{}', '{}', '{}'); --> none
select * from jobs.fail_many('{}', '{}', '{}'); --> none
select * from jobs.finish_many('[]'); --> none
select id, done from jobs.fail_many('{999}', '{1}', '{e}', null, null); --> id|done: 999|f

-- What is malformed is refused as a whole, with the element that it is about.
select pg_temp.hold(1, 'refused') \gset
select pg_temp.refusals(format('select jobs.finish_many(''[%s, %%s]'')', pg_temp.result(1, '{"do": "complete"}')), array_agg(more)) from (values
  ('7'), ('null'), ('[]'), ('{}'), ('{"id": 1, "token": 1, "do": "complete", "outptu": 1}'), ('{"id": 1, "token": 1, "do": "complete", "state": "completed"}'),
  ('{"id": 1, "token": 1}'), ('{"id": 1, "token": 1, "do": null}'), ('{"id": 1, "token": 1, "do": 1}'), ('{"id": 1, "token": 1, "do": "completed"}'), ('{"id": 1, "token": 1, "do": "heartbeat"}'),
  ('{"token": 1, "do": "release"}'), ('{"id": null, "token": 1, "do": "release"}'), ('{"id": 1, "do": "release"}'), ('{"id": "1", "token": 1, "do": "release"}'), ('{"id": 1, "token": 1.5, "do": "release"}'), ('{"id": 1e30, "token": 1, "do": "release"}'), ('{"id": [1], "token": 1, "do": "release"}'),
  ('{"id": 1, "token": 1, "do": "fail"}'), ('{"id": 1, "token": 1, "do": "fail", "error": null}'), ('{"id": 1, "token": 1, "do": "fail", "error": {}}'), ('{"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": -1}'), ('{"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": "soon"}'),
  ('{"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": true}'), ('{"id": 1, "token": 1, "do": "fail", "error": "e", "retryable": "no"}'), ('{"id": 1, "token": 1, "do": "snooze"}'), ('{"id": 1, "token": 1, "do": "snooze", "delay": "-1 s"}'), ('{"id": 1, "token": 1, "do": "snooze", "delay": "2000 years"}'),
  ('{"id": 1, "token": 1, "do": "complete", "error": "e"}'), ('{"id": 1, "token": 1, "do": "release", "output": null}'), ('{"id": 1, "token": 1, "do": "fail", "error": "e", "delay": 1}'), ('{"id": 1, "token": 1, "do": "snooze", "delay": 1, "retry_in": 1}'),
  ('{"id": 1, "token": 1, "do": "cancel", "reason": 1}'), ('{"id": 1, "token": 1, "do": "release", "reason": "r"}'), ('{"id": 1, "token": 1, "do": "cancel", "error": "e"}')) v(more);
--> 7 | 22023: an element of results must not be a number
--> null | 22023: an element of results must not be null
--> [] | 22023: an element of results must not be an array
-->   Element 2: Each element must be an object with id, token, do, and what that call takes.
--> {} | 22004: do must not be null
--> {"id": 1, "token": 1} | 22004: do must not be null
--> {"id": 1, "token": 1, "do": null} | 22004: do must not be null
--> {"token": 1, "do": "release"} | 22004: id must not be null
--> {"id": null, "token": 1, "do": "release"} | 22004: id must not be null
--> {"id": 1, "do": "release"} | 22004: token must not be null
--> {"id": 1, "token": 1, "do": "fail"} | 22004: error must not be null
--> {"id": 1, "token": 1, "do": "fail", "error": null} | 22004: error must not be null
--> {"id": 1, "token": 1, "do": "snooze"} | 22004: delay must not be null
-->   Element 2.
--> {"id": 1, "token": 1, "do": "complete", "outptu": 1} | 22023: field "outptu" of results is not known | Did you mean "output"?
--> {"id": 1, "token": 1, "do": "complete", "state": "completed"} | 22023: field "state" of results is not known
-->   Element 2: The fields are id, token, do, output, error, details, retry_in, retryable, delay, reason.
--> {"id": 1, "token": 1, "do": 1} | 22023: do must not be a number
-->   Element 2: do must be a string.
--> {"id": 1, "token": 1, "do": "completed"} | 22023: do "completed" is not known | Did you mean "complete"?
--> {"id": 1, "token": 1, "do": "heartbeat"} | 22023: do "heartbeat" is not known
-->   Element 2: do must be complete, fail, snooze, release or cancel.
--> {"id": "1", "token": 1, "do": "release"} | 22023: id must not be a string
--> {"id": [1], "token": 1, "do": "release"} | 22023: id must not be an array
-->   Element 2: id must be a whole number.
--> {"id": 1, "token": 1.5, "do": "release"} | 22023: token 1.5 is not a whole number of 64 bits
-->   Element 2: token must be a whole number of 64 bits.
--> {"id": 1e30, "token": 1, "do": "release"} | 22023: id 1000000000000000000000000000000 is not a whole number of 64 bits
-->   Element 2: id must be a whole number of 64 bits.
--> {"id": 1, "token": 1, "do": "fail", "error": {}} | 22023: error must not be an object
-->   Element 2: error must be a string.
--> {"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": -1} | 22023: retry_in "-00:00:01" is out of range
-->   Element 2: retry_in must be between 0 and 1000 years.
--> {"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": "soon"} | 22023: retry_in "soon" is not a duration | Write 900, "PT15M" or "15 minutes".
--> {"id": 1, "token": 1, "do": "fail", "error": "e", "retry_in": true} | 22023: retry_in must not be true | Write 900, "PT15M" or "15 minutes".
-->   Element 2: A duration must be a number of seconds, an ISO 8601 duration, or a Postgres interval with units.
--> {"id": 1, "token": 1, "do": "fail", "error": "e", "retryable": "no"} | 22023: retryable must not be a string
-->   Element 2: retryable must be true or false.
--> {"id": 1, "token": 1, "do": "snooze", "delay": "-1 s"} | 22023: delay "-00:00:01" is out of range
--> {"id": 1, "token": 1, "do": "snooze", "delay": "2000 years"} | 22023: delay "2000 years" is out of range
-->   Element 2: delay must be between 0 and 1000 years.
--> {"id": 1, "token": 1, "do": "complete", "error": "e"} | 22023: error cannot be used with do "complete"
-->   Element 2: complete takes id, token, do, output.
--> {"id": 1, "token": 1, "do": "release", "output": null} | 22023: output cannot be used with do "release"
--> {"id": 1, "token": 1, "do": "release", "reason": "r"} | 22023: reason cannot be used with do "release"
-->   Element 2: release takes only id, token and do.
--> {"id": 1, "token": 1, "do": "fail", "error": "e", "delay": 1} | 22023: delay cannot be used with do "fail"
-->   Element 2: fail takes id, token, do, error, details, retry_in, retryable.
--> {"id": 1, "token": 1, "do": "snooze", "delay": 1, "retry_in": 1} | 22023: retry_in cannot be used with do "snooze"
-->   Element 2: snooze takes id, token, do, delay.
--> {"id": 1, "token": 1, "do": "cancel", "reason": 1} | 22023: reason must not be a number
-->   Element 2: reason must be a string.
--> {"id": 1, "token": 1, "do": "cancel", "error": "e"} | 22023: error cannot be used with do "cancel"
-->   Element 2: cancel takes id, token, do, reason.
select pg_temp.refusals('select jobs.%s', array_agg(call)) from (values
  ($$finish_many(null)$$), ($$finish_many('null')$$), ($$finish_many('{"id": 1}')$$), ($$finish_many('"x"')$$),
  ($$finish_many((select jsonb_agg(1) from generate_series(1, 10001)))$$),
  ($$complete_many('{1}', '{1}', '{}')$$), ($$complete_many('{1}', '{1}', '{1,2}')$$),
  ($$fail_many('{1}', '{1}', null)$$), ($$fail_many('{1}', '{1}', '{null}')$$), ($$fail_many('{1}', '{1}', '{a,b}')$$), ($$fail_many('{1}', '{1,2}', '{a}')$$), ($$fail_many('{1}', '{1}', '{a}', '{1,2}')$$), ($$fail_many('{1}', '{1}', '{a}', null, '-1 s')$$),
  ($$fail_many(array_fill(1::bigint, array[10001]), array_fill(1::bigint, array[10001]), array_fill('e'::text, array[10001]))$$)) v(call);
--> finish_many(null) | 22004: results must not be null
--> fail_many('{1}', '{1}', null) | 22004: errors must not be null
--> fail_many('{1}', '{1}', '{null}') | 22004: an element of errors must not be null
--> finish_many('null') | 22023: results must not be null
--> finish_many('{"id": 1}') | 22023: results must not be an object
--> finish_many('"x"') | 22023: results must not be a string
-->   results must be an array with an object for each job.
--> finish_many((select jsonb_agg(1) from generate_series(1, 10001))) | 22023: results has 10001 elements
-->   results must have at most 10000 elements.
--> complete_many('{1}', '{1}', '{}') | 22023: ids has 1 elements, but outputs has 0
--> complete_many('{1}', '{1}', '{1,2}') | 22023: ids has 1 elements, but outputs has 2
-->   ids and outputs must have the same length: an output or null for each id.
--> fail_many('{1}', '{1}', '{a,b}') | 22023: ids has 1 elements, but errors has 2
-->   ids and errors must have the same length: an error for each id.
--> fail_many('{1}', '{1,2}', '{a}') | 22023: ids has 1 elements, but tokens has 2
-->   ids and tokens must have the same length: a token for each id.
--> fail_many('{1}', '{1}', '{a}', '{1,2}') | 22023: ids has 1 elements, but details has 2
-->   ids and details must have the same length: details or null for each id.
--> fail_many('{1}', '{1}', '{a}', null, '-1 s') | 22023: retry_in "-00:00:01" is out of range
-->   retry_in must be between 0 and 1000 years.
--> fail_many(array_fill(1::bigint, array[10001]), array_fill(1::bigint, array[10001]), array_fill('e'::text, array[10001])) | 22023: ids has 10001 elements
-->   ids must have at most 10000 elements.
-- Members that say nothing, numbers in other forms.
select state from jobs.jobs where queue = 'refused'; --> running
select f.state, f.done from jobs.finish_many(jsonb_build_array(pg_temp.result(1, '{"do": "snooze", "delay": "PT0S", "error": null, "retryable": null}') || jsonb_build_object('token', ((select token from held where n = 1)::text || '.0')::numeric))) f;
--> state|done: scheduled|t

-- 10,000 of them, of all kinds.
select count(*) from jobs.insert_batch('many', array_fill('1'::jsonb, array[10000]), queue => 'many'); --> 10000
create temp table many as select row_number() over (order by id) as n, id, token from jobs.fetch('many', 10000);
select state, done, reason, count(*), count(distinct id) as ids, min(ord) between 1 and 4 as in_order from jobs.finish_many((select jsonb_agg(jsonb_build_object('id', id, 'token', token)
  || (array['{"do": "complete", "output": 1}', '{"do": "fail", "error": "e", "retry_in": 60}', '{"do": "snooze", "delay": 60}', '{"do": "release"}']::jsonb[])[n % 4 + 1] order by n desc) from many)) group by 1, 2, 3 order by 1;
--> state|done|reason|count|ids|in_order
--> available|t|~|2500|2500|t
--> scheduled|t|~|2500|2500|t
--> retryable|t|~|2500|2500|t
--> completed|t|~|2500|2500|t
select state, count(*) from jobs.jobs where queue = 'many' group by state order by state; --> state|count: available|2500, scheduled|2500, retryable|2500, completed|2500
select count(*) as wrong from jobs.check(); --> 0
