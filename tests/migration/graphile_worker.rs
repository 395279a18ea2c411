//! Graphile Worker: a worker of it runs meanwhile.

use std::process::Stdio;

use crate::{MOVED, System, fetch_order};

const SOURCE: &str = "graphile_worker._private_jobs";

pub fn moves(graphile: &mut System) {
    if !graphile.has_node("Graphile Worker, and its schema") {
        return;
    }
    let mut worker = graphile.node("graphile_worker_jobs.mjs", 600);
    let mut worker = worker.stdin(Stdio::piped()).spawn().expect("node");
    let has_schema =
        graphile.until("select to_regclass('graphile_worker._private_jobs') is not null");
    graphile.check("it has made its schema", has_schema);
    let has_job = graphile.until("select count(*) = 1 from graphile_worker._private_jobs where payload->>'n' = '10' and locked_at is not null");
    graphile.check("its worker has a job", has_job);
    graphile.remember(SOURCE);
    let lock = graphile
        .lock("select 1 from graphile_worker._private_jobs where payload->>'n' = '4' for update");
    graphile.moves("what waits is moved", "graphile-worker", "7|0", &[]);
    graphile.answer(
        "with all its options",
        &MOVED.replace("not m.duplicate", "not m.duplicate and j.kind <> 'failing'"),
        "1|mail|available|default|1|25|now||00:01:00
2|mail|available|default|-4|25|now||00:01:00
3|mail|scheduled|default|1|3|2900|slow+remote|00:01:00
7|import|available|serial|1|25|now||00:01:00
8|import|available|serial|1|25|now||00:01:00
9|report|available|default|1|25|now||00:01:00",
    );
    let another = graphile.is(MOVED, "1|mail|available|default|0|25|now||00:01:00");
    graphile.refuses("control: another outcome is refused", another);
    graphile.answer(
        "what failed waits as long as it would have, and has the attempts that are left",
        "select j.max_attempts, j.scheduled_at = (m.old->>'run_at')::timestamptz
           from jobs.jobs j join jobs_moved m on m.job_id = j.id where j.kind = 'failing'",
        "4|t",
    );
    graphile.answer("of a named queue one job at a time", &fetch_order("serial"), "7");
    graphile.answer(
        "the audit says who made the queue serial",
        "select action, target, reason from jobs.audit",
        "configure_queue|serial|ops/migrate/graphile-worker.sql",
    );
    graphile.answer(
        "a duplicate inserted now is skipped",
        r#"select unique_skipped_as_duplicate
             from jobs.insert('another', unique_opts => '{"key": "report-1", "exclude_kind": true, "by_state": ["available", "scheduled", "pending", "retryable"]}')"#,
        "t",
    );
    graphile.moved_well(SOURCE);
    graphile.answer(
        "what runs, is locked or has failed for good stays",
        "select payload->>'n', locked_at is not null from graphile_worker._private_jobs order by id",
        "4|f\n6|f\n10|t",
    );
    graphile.unlock(lock);
    graphile.moves("another run moves what was locked", "graphile-worker", "1|0", &[]);
    graphile.moves("a third one nothing", "graphile-worker", "0|0", &[]);
    graphile.moved_back(SOURCE, 8);
    drop(worker.stdin.take());
    let finishes = graphile
        .until("select count(*) = 0 from graphile_worker._private_jobs where payload->>'n' = '10'");
    graphile.check("its worker finishes what it had", finishes);
    graphile.sql("select jobs.reset_queue('serial'); select jobs.configure_queue('serial', max_waiting => 100)");
    graphile.moves("then it is not moved", "graphile-worker", "8|0", &["running=on"]);
    graphile.answer(
        "a queue keeps its settings, whatever they are",
        "select concurrency, max_waiting from jobs.queues where queue = 'serial'",
        "|100",
    );
    let _ = worker.wait();
}
