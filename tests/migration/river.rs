//! River: its migrations are in its crate, its client for Python inserts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use jobs_tests::checks::{Outcome, succeeds};

use crate::{MOVED, System, fetch_order};

const VERSION: &str = "0.5.0";
const SOURCE: &str = "public.river_job";

pub fn moves(river: &mut System) {
    if let Err(error) = schema(river) {
        let tried = format!("cargo fetch # of riverqueue-migrate ={VERSION}");
        return river.checks.cannot("River, and its schema", tried, &error);
    }
    if !river.has_python("River's client") {
        return;
    }
    let url = river.url().replacen("postgresql:", "postgresql+psycopg:", 1);
    river.python_inserts("its client inserts", &url, "river_jobs.py");
    // What its workers and the unique inserts of its other clients write; the client for Python
    // does not.
    river.sql(
        r#"update river_job set state = 'retryable', attempt = 2, scheduled_at = now() + interval '1 hour', errors = array['{"attempt": 1}', '{"attempt": 2}']::jsonb[] where args->>'n' = '5';
update river_job set state = 'running', attempt = 25, attempted_at = now(), attempted_by = '{client}' where args->>'n' = '6';
update river_job set state = 'completed', finalized_at = now() where args->>'n' = '7';
update river_job set state = 'pending' where args->>'n' = '8';
update river_job set unique_key = sha256('charge'), unique_states = B'11110101' where args->>'n' = '10';"#,
    );
    river.remember(SOURCE);
    let lock = river.lock("select 1 from river_job where args->>'n' = '9' for update");

    let unknown = river.script("river", "7|0", &[]);
    river.refuses("a unique kind of which nothing is known is refused", unknown);
    river.answer(
        "and all stays as it was",
        "select count(*), (select count(*) from jobs.jobs), to_regclass('public.jobs_moved') is null from river_job",
        "10|0|t",
    );
    river.sql(r#"select jobs.define_kind('charge', unique_opts => '{"by_args": ["account"]}')"#);
    river.moves("what waits is moved", "river", "6|0", &[]);
    river.answer(
        "with all its options",
        MOVED,
        "1|mail|available|default|1|25|now||00:01:00
2|mail|available|default|4|25|now||00:01:00
3|mail|available|slow|2|5|now|urgent+monthly|00:01:00
4|mail|scheduled|default|1|25|2900||00:01:00
5|mail|scheduled|default|1|23|soon||00:01:00
10|charge|available|default|1|25|now||00:01:00",
    );
    let another = river.is(MOVED, "1|mail|available|default|2|25|now||00:01:00");
    river.refuses("control: another outcome is refused", another);
    river.answer("in its order", &fetch_order("default"), "1 10 2");
    river.answer(
        "a duplicate inserted now is skipped",
        r#"select unique_skipped_as_duplicate from jobs.insert('charge', '{"account": 7, "n": 11}')
           union all select unique_skipped_as_duplicate from jobs.insert('charge', '{"account": 8}')"#,
        "t\nf",
    );
    river.moved_well(SOURCE);
    river.answer(
        "what runs, is locked or is over stays",
        "select args->>'n', state from river_job order by id",
        "6|running\n7|completed\n8|pending\n9|available",
    );
    river.unlock(lock);
    river.moves("another run moves what was locked", "river", "1|0", &[]);
    river.moves("a third one nothing", "river", "0|0", &[]);
    river.moved_back(SOURCE, 7);
    river.moves(
        "when its workers have stopped, what ran is moved too",
        "river",
        "8|0",
        &["running=on"],
    );
    river.answer(
        "with one attempt left at least",
        "select max_attempts from jobs.jobs where args->>'n' = '6'",
        "1",
    );
    let parts = in_parts(river);
    river.check("limit and queue", parts);
}

fn in_parts(river: &System) -> Outcome {
    river.script("undo", "8", &[&format!("source={SOURCE}")])?;
    river.script("river", "1|0", &["queue=slow"])?;
    river.script("river", "2|0", &["limit=2"])?;
    river.is(
        "select string_agg(args->>'n', ' ' order by id) from jobs.jobs where meta ? 'moved_from'",
        "3 1 9",
    )
}

fn schema(river: &System) -> Outcome {
    let work = tempfile::tempdir().expect("a directory");
    let write = |name, text: &str| fs::write(work.path().join(name), text).expect("a file");
    write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\n[workspace]\n[dependencies]\n\
             riverqueue-migrate = {{ version = \"={VERSION}\", default-features = false }}\n"
        ),
    );
    write("lib.rs", "");
    succeeds(Command::new("cargo").args(["fetch", "-q"]).current_dir(work.path()))?;
    let home = std::env::var_os("HOME").unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME")
        .map_or_else(|| PathBuf::from(home).join(".cargo"), PathBuf::from);
    let registries = fs::read_dir(cargo.join("registry/src")).map_err(|error| error.to_string())?;
    let migrations = format!("riverqueue-migrate-{VERSION}/migrations/main");
    let directory = registries
        .map(|registry| registry.expect("a registry").path().join(&migrations))
        .find(|directory| directory.exists());
    let directory = directory.ok_or("the crate has no migrations")?;
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("migrations")
        .map(|file| file.expect("a file").path())
        .filter(|file| file.to_string_lossy().ends_with(".up.sql"))
        .collect();
    files.sort();
    for file in files {
        // Its own migrator replaces this comment by the schema's name, here none.
        let migration = fs::read_to_string(file).expect("a migration");
        river.sql(&migration.replace("/* TEMPLATE: schema */", ""));
    }
    Ok(())
}
