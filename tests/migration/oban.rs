//! Oban: its package for Python brings the schema and the statements.

use crate::{MOVED, System, apt_says, fetch_order};

const SOURCE: &str = "public.oban_jobs";

pub fn moves(oban: &mut System) {
    if !oban.has_python("Oban, and its schema") {
        return;
    }
    let url = oban.url();
    oban.python_inserts("its statements insert", &url, "oban_jobs.py");
    oban.remember(SOURCE);
    let lock = oban.lock("select 1 from oban_jobs where args->>'n' = '7' for update");
    // A kind is unique as its worker was, and producers have begun to insert here: one that the job
    // n = 11 would duplicate.
    oban.sql(
        r#"select jobs.define_kind('App.Charge', unique_opts => '{"oban": {"period": 60}}'); select jobs.insert('App.Charge', '{"n": 11}')"#,
    );
    oban.moves("what waits is moved, but what a producer has inserted here", "oban", "7|1", &[]);
    oban.answer(
        "with all its options; two of one key wait side by side as before",
        MOVED,
        "1|App.Mail|available|default|1|20|now||00:01:00
2|App.Mail|available|default|10|20|now||00:01:00
3|App.Mail|available|slow|3|5|now|urgent+monthly|00:01:00
4|App.Mail|scheduled|default|1|20|2900||00:01:00
5|App.Mail|scheduled|failing|1|5|soon||00:01:00
10|App.Charge|available|default|1|20|now||00:01:00
10|App.Charge|available|default|1|20|now||00:01:00",
    );
    let another = oban.is(MOVED, "1|App.Mail|available|default|0|20|now||00:01:00");
    oban.refuses("control: another outcome is refused", another);
    oban.answer(
        "its times are those of UTC, its meta is kept",
        "select bool_and(j.scheduled_at = ((m.old->>'scheduled_at') || 'Z')::timestamptz), max(j.meta->>'tenant')
           from jobs.jobs j join jobs_moved m on m.job_id = j.id where not m.duplicate",
        "t|acme",
    );
    oban.answer("in its order", &fetch_order("default"), "11 1 10 10 2");
    oban.answer(
        "a duplicate inserted now is skipped",
        r#"select unique_skipped_as_duplicate from jobs.insert('App.Charge', '{"n": 10}')"#,
        "t",
    );
    oban.answer(
        "the duplicate is kept in the table of what was moved",
        "select old->'args'->>'n', j.meta ? 'moved_from' from jobs_moved m join jobs.jobs j on j.id = m.job_id where duplicate",
        "11|f",
    );
    oban.moved_well(SOURCE);
    oban.answer(
        "what runs, is locked or is over stays",
        "select args->>'n', state from oban_jobs order by id",
        "6|executing\n7|available\n8|cancelled\n9|suspended",
    );
    oban.unlock(lock);
    oban.moves("another run moves what was locked", "oban", "1|0", &[]);
    oban.moves("a third one nothing", "oban", "0|0", &[]);
    let without_duplicate =
        oban.before.split_inclusive('\n').filter(|row| !row.contains(r#"{"n": 11}"#));
    oban.before = without_duplicate.collect();
    oban.moved_back(SOURCE, 8);
    oban.moves(
        "when its workers have stopped, what ran is moved too",
        "oban",
        "9|0",
        &["running=on", "timeout=10 minutes"],
    );
    oban.answer(
        "with the attempts that are left, and the timeout that was said",
        "select max_attempts, timeout from jobs.jobs where args->>'n' = '6'",
        "2|00:10:00",
    );
}

/// Its migrations for Elixir cannot be had here. This table is made from what its documentation
/// says; it stands for them in what differs: errors are an array of jsonb, tags and meta can be
/// null, numbers are wider.
pub fn moves_as_for_elixir(oban: &mut System) {
    oban.checks.skip(
        "the schema of Oban for Elixir",
        "apt-get install elixir-oban",
        apt_says("elixir-oban"),
    );
    oban.sql(
        r#"create type oban_job_state as enum ('available', 'suspended', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
create table oban_jobs (
  id bigserial primary key, state oban_job_state not null default 'available', queue text not null default 'default', worker text not null,
  args jsonb not null default '{}', errors jsonb[] not null default '{}', attempt int not null default 0, max_attempts int not null default 20,
  inserted_at timestamp not null default timezone('UTC', now()), scheduled_at timestamp not null default timezone('UTC', now()),
  attempted_at timestamp, completed_at timestamp, attempted_by text[], discarded_at timestamp, priority int not null default 0,
  tags text[] default '{}', meta jsonb default '{}', cancelled_at timestamp);
insert into oban_jobs (worker, args, state, attempt, errors, tags, meta, priority) values
  ('App.Mail', '{"n": 1}', 'available', 0, '{}', null, null, 9),
  ('App.Mail', '{"n": 2}', 'retryable', 3, array['{"error": "it broke"}', '{"error": "again"}']::jsonb[], '{urgent}', '{}', 0),
  ('App.Mail', '{"n": 3}', 'executing', 1, '{}', '{}', '{}', 0);"#,
    );
    oban.remember(SOURCE);
    oban.moves("what waits is moved", "oban", "2|0", &[]);
    oban.answer(
        "with all its options",
        MOVED,
        "1|App.Mail|available|default|10|20|now||00:01:00
2|App.Mail|available|default|1|17|now|urgent|00:01:00",
    );
    oban.moved_back(SOURCE, 2);
    oban.sql(r#"insert into oban_jobs (worker, args, priority) values (repeat('x', 128), '{"n": 4}', 9)"#);
    let last = oban.script("oban", "3|0", &[]);
    oban.refuses("one job that cannot be moved, the last one", last);
    oban.answer(
        "and none is",
        "select count(*), (select count(*) from jobs.jobs), (select count(*) from jobs_moved) from oban_jobs",
        "4|0|0",
    );
}
