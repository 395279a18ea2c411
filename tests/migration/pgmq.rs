//! pgmq: its functions are its API.

use std::fs;

use jobs_tests::checks::Outcome;
use jobs_tests::state_directory;

use crate::{MOVED, System};

const SOURCE: &str = "pgmq.q_mail";

pub fn moves(pgmq: &mut System) {
    if !pgmq.has_python("pgmq, and its schema") {
        return;
    }
    schema(pgmq);
    pgmq.sql(
        r#"select pgmq.create('mail');
select pgmq.send('mail', '{"n": 1}');
select pgmq.read('mail', 600, 1);                                   -- in flight
select pgmq.send('mail', '{"n": 2}');
select pgmq.read('mail', 0, 1);                                     -- was read once, and came back
select pgmq.send('mail', '{"n": 3}', 600);                          -- delayed
select pgmq.send('mail', '{"n": 4}', '{"x-pgmq-group": "g"}'::jsonb);
select pgmq.send('mail', '{"n": 5}');                               -- a transaction has it locked
select pgmq.archive('mail', pgmq.send('mail', '{"n": 6}'));"#,
    );
    pgmq.remember(SOURCE);
    let lock = pgmq.lock("select 1 from pgmq.q_mail where message->>'n' = '5' for update");
    let unnamed = pgmq.script("pgmq", "3|0", &[]);
    pgmq.refuses("a queue has to be named", unnamed);
    let mail = ["queue=mail", "kind=send"];
    pgmq.moves("what waits is moved", "pgmq", "3|0", &mail);
    pgmq.answer(
        "with all its options",
        MOVED,
        "2|send|available|mail|1|24|now||00:01:00
3|send|scheduled|mail|1|25|soon||00:01:00
4|send|available|mail|1|25|now||00:01:00",
    );
    let another = pgmq.is(MOVED, "2|send|available|mail|1|25|now||00:01:00");
    pgmq.refuses("control: another outcome is refused", another);
    pgmq.answer(
        "with its headers",
        "select meta->'headers' from jobs.jobs where args->>'n' = '4'",
        r#"{"x-pgmq-group": "g"}"#,
    );
    pgmq.moved_well(SOURCE);
    pgmq.answer(
        "what is in flight or locked stays",
        "select message->>'n' from pgmq.q_mail order by 1",
        "1\n5",
    );
    pgmq.unlock(lock);
    pgmq.moves("another run moves what was locked", "pgmq", "1|0", &mail);
    pgmq.moves("a third one nothing", "pgmq", "0|0", &mail);
    pgmq.moved_back(SOURCE, 4);
    let kind = kind_of_queue(pgmq);
    pgmq.check("the kind is the queue's name if none is given", kind);
    let done = undo_beside_done(pgmq);
    pgmq.check("nor what a worker does just then", done);
    let running = undo_beside_worker(pgmq);
    pgmq.check("what has begun here is not moved back", running);
}

/// Each message is either popped by pgmq's own function or moved, never both, never neither.
pub fn races(race: &mut System) {
    if !race.has_python("an old worker beside a move") {
        return;
    }
    schema(race);
    race.sql("create table popped (n int); select pgmq.create('race'); select pgmq.send('race', jsonb_build_object('n', n)) from generate_series(1, 3000) n");
    let pop = "insert into popped select (message->>'n')::int from pgmq.pop('race');\n".repeat(500);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| race.sql(&pop));
        }
        for _ in 0..15 {
            race.run("pgmq", &["queue=race", "limit=100"]).expect("a move");
        }
    });
    race.run("pgmq", &["queue=race"]).expect("a move");
    race.answer(
        "both had jobs, and each job one of them",
        "select count(*), count(distinct n), bool_or(old), bool_or(not old)
           from (select n, true as old from popped union all select (args->>'n')::int, false from jobs.jobs) s",
        "3000|3000|t|t",
    );
    let another = race.is("select count(*) from popped", "3000");
    race.refuses("control: another number is refused", another);
}

fn schema(system: &System) {
    let library = state_directory().join("migration/lib");
    let version = fs::read_dir(&library).expect("an environment").next();
    let version = version.expect("a version of Python").expect("a directory").path();
    let script = fs::read_to_string(version.join("site-packages/pgmq/sql/pgmq.sql"));
    system.sql(&script.expect("pgmq.sql"));
}

fn kind_of_queue(pgmq: &System) -> Outcome {
    pgmq.script("pgmq", "5|0", &["queue=mail", "running=on"])?;
    pgmq.is("select distinct kind, queue from jobs.jobs where meta ? 'moved_from'", "mail|mail")
}

/// A job that is taken and done while undo waits for it.
fn undo_beside_done(pgmq: &System) -> Outcome {
    let mut worker = pgmq.lock("select jobs.complete(id, token) from jobs.fetch('mail')");
    let (waits, undone) = std::thread::scope(|scope| {
        let undo = scope.spawn(|| pgmq.script("undo", "5", &[&format!("source={SOURCE}")]));
        let waits = pgmq.until("select count(*) = 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()");
        worker.run("commit");
        pgmq.unlock(worker);
        (waits, undo.join().expect("undo"))
    });
    waits?;
    if undone.is_ok() {
        return Err(format!("undo was {undone:?}"));
    }
    pgmq.is("select count(*) from jobs.jobs where state = 'completed'", "1")?;
    pgmq.is("select count(*) from pgmq.q_mail", "0")?;
    // It waits again for the next test, behind the others.
    pgmq.sql("select jobs.retry(id) from jobs.jobs where state = 'completed'");
    Ok(())
}

/// What a new worker has taken is its own.
fn undo_beside_worker(pgmq: &System) -> Outcome {
    pgmq.is("select args->>'n' from jobs.fetch('mail')", "2")?;
    pgmq.script("undo", "4", &[&format!("source={SOURCE}")])?;
    pgmq.is("select args->>'n', state from jobs.jobs where meta ? 'moved_from'", "2|running")?;
    pgmq.is("select count(*), count(*) filter (where message->>'n' = '2') from pgmq.q_mail", "4|0")
}
