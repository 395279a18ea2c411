-- A window: an existing job counts only while it is younger.

-- Younger than the window: a duplicate. A refused insert does not extend it.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": "1 hour"}'); --> id|skipped: 1|f
call pg_temp.later('40 minutes');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": "1 hour"}'); --> id|skipped: 1|t
call pg_temp.later('30 minutes');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": "1 hour"}'); --> id|skipped: 2|f
-- The new job's window counts, not the one the existing job was inserted with; without one any age
-- does.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": 1}'); --> id|skipped: 2|t
call pg_temp.later('2 seconds');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": 1}'); --> id|skipped: 3|f
call pg_temp.later('2 days');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true}'); --> id|skipped: 3|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": "P3D"}'); --> id|skipped: 3|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('a', '{}', '{"by_kind": true, "window": "P1D"}'); --> id|skipped: 4|f
-- Months and years are those of the calendar.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_kind": true}'); --> id|skipped: 5|f
call pg_temp.later('27 days');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_kind": true, "window": "1 month"}'); --> id|skipped: 5|t
call pg_temp.later('5 days');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_kind": true, "window": "1 month"}'); --> id|skipped: 6|f
-- Longer than time has been: any age.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('b', '{}', '{"by_kind": true, "window": "100000 years"}'); --> id|skipped: 6|t

-- window_from: the existing job's created_at, or its scheduled_at.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_kind": true}', scheduled_at => clock_timestamp() + interval '3 hours'); --> id|skipped: 7|f
call pg_temp.later('2 hours');
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_kind": true, "window": "1 hour", "window_from": "scheduled_at"}'); --> id|skipped: 7|t
select id, unique_skipped_as_duplicate as skipped from jobs.insert('c', '{}', '{"by_kind": true, "window": "1 hour", "window_from": "created_at"}'); --> id|skipped: 8|f
-- States and window both have to be met.
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d', '{}', '{"by_kind": true}'); --> id|skipped: 9|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d', '{}', '{"by_state": ["running"], "window": "1 hour"}'); --> id|skipped: 10|f
select id, unique_skipped_as_duplicate as skipped from jobs.insert('d', '{}', '{"by_state": ["available"], "window": "1 hour"}'); --> id|skipped: 10|t
-- In a batch, too: earlier elements are as young as can be.
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('e', array['1', '1', '2']::jsonb[], '{"by_args": true, "window": "1 hour"}');
--> ord|id|skipped
--> 1|11|f
--> 2|11|t
--> 3|12|f
call pg_temp.later('2 hours');
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_batch('e', array['1', '1', '2']::jsonb[], '{"by_args": true, "window": "1 hour"}');
--> ord|id|skipped
--> 1|13|f
--> 2|13|t
--> 3|14|f
-- The one that was due last counts also where it is not the newest.
select ord, id, unique_skipped_as_duplicate as skipped from jobs.insert_many(
  '[{"kind": "f", "scheduled_at": "2999-01-01Z", "unique_opts": {"by_kind": true, "window": "1 hour", "window_from": "scheduled_at"}},
    {"kind": "f", "scheduled_at": "2001-01-01Z", "unique_opts": {"by_state": ["running"]}},
    {"kind": "f", "unique_opts": {"by_kind": true, "window": "1 hour", "window_from": "scheduled_at"}}]');
--> ord|id|skipped
--> 1|15|f
--> 2|16|f
--> 3|15|t
