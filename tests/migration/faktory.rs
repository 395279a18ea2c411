//! Faktory: no server can be had, its jobs are JSON.

use std::fs;
use std::path::Path;
use std::process::Command;

use jobs_tests::ROOT;
use jobs_tests::checks::{Outcome, feed, output};

use crate::{MOVED, System, apt_says, says};

pub fn moves(faktory: &mut System) {
    faktory.checks.skip("a server of Faktory", "apt-get install faktory", apt_says("faktory"));
    let now = output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%NZ"])).expect("date");
    let lines =
        fs::read_to_string(Path::new(ROOT).join("tests/migration/faktory.jsonl")).expect("jobs");
    let mut lines = lines.replace("\"NOW\"", &format!("\"{}\"", now.trim()));
    let moved = MOVED.replace("j.args->>'n'", "j.args->>0");
    let first = read(faktory, &lines, "9|0");
    faktory.check("jobs are moved, each once", first);
    faktory.answer(
        "with all their options",
        &moved,
        "1|Mail|available|default|1|26|now||00:30:00
2|Mail|scheduled|critical|1|4|2900||00:10:00
3|Mail|scheduled|default|1|4|2900||00:30:00
4|Mail|available|default|1|1|now||00:30:00
5|Mail|available|default|-3|1|now||00:30:00
6|Sync|available|default|1|26|now||00:30:00
7|Sync|available|default|1|26|now||00:30:00
8|Sync|scheduled|default|1|26|2900||00:30:00
9|Mail|available|default|1|26|now||00:30:00",
    );
    let another = faktory.is(&moved, "1|Mail|available|default|1|25|now||00:30:00");
    faktory.refuses("control: another outcome is refused", another);
    faktory.answer(
        "args, custom and expires_at",
        "select args, meta->>'locale', expires_at = '2900-01-01Z' from jobs.jobs where args->>0 in ('1', '2', '9') order by args->>0",
        r#"[1, "a \"quoted\" \\ one"]||
[2]|de|
[9]||t"#,
    );
    faktory.answer(
        "keys are held as long as they would have been",
        r#"select string_agg(unique_skipped_as_duplicate::text, ' ')
             from generate_series(6, 8) n, jobs.insert('Sync', jsonb_build_array(n), '{"faktory": {"unique_for": 600}}')"#,
        "true false true",
    );
    faktory.answer(
        "and given back when they would have been",
        "select hold_until from jobs.job where args->>0 in ('6', '8') and meta ? 'moved_from' order by args->>0",
        "start\nsuccess",
    );
    faktory.moved_well("faktory");
    let again = read(faktory, &lines, "0|0");
    faktory.check("the same lines again move nothing", again);
    lines += r#"{"jid":"another","queue":"default","jobtype":"Mail","args":[10],"retry":25}"#;
    let new = read(faktory, &(lines + "\n"), "1|0");
    faktory.check("and a new one is moved", new);
}

/// Moves these jobs; the script must say so much.
fn read(faktory: &System, lines: &str, said: &str) -> Outcome {
    let mut psql = faktory.psql();
    let (_, came) = feed(psql.args(["-f", "ops/migrate/faktory.sql"]), lines);
    says(&came, said)
}
