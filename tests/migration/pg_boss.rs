//! pg-boss, in two major versions.

use jobs_tests::checks::succeeds;

use crate::{MOVED, System, fetch_order};

const SOURCE: &str = "pgboss.job";

pub fn moves(boss: &mut System) {
    let is_newest = boss.name == "pg_boss";
    let package = if is_newest { "pg-boss" } else { "pg-boss-10" };
    if !boss.has_node(&format!("{package}, and its schema")) {
        return;
    }
    let program =
        |boss: &System, step| succeeds(boss.node("pg_boss_jobs.mjs", 60).args([package, step]));
    let filled = program(boss, "fill");
    boss.check("its API inserts", filled);
    boss.remember(SOURCE);
    let lock = boss.lock("select 1 from pgboss.job where data->>'n' = '4' for update");
    let unknown = boss.script("pg-boss", "7|0", &[]);
    boss.refuses("a queue that is throttled, of which nothing is known, is refused", unknown);
    boss.sql(
        r#"select jobs.define_kind('crawl', unique_opts => '{"by_args": ["site"], "by_period": "5000 weeks"}')"#,
    );
    boss.moves("what waits is moved", "pg-boss", "7|0", &[]);
    boss.answer(
        "with all its options",
        MOVED,
        "1|mail|available|mail|1|3|now||00:15:00
2|mail|available|mail|-4|3|now||00:15:00
3|mail|scheduled|mail|1|3|2900||00:02:00
5|failing|scheduled|failing|1|4|soon||00:15:00
9|digest|available|digest|1|3|now||00:15:00
10|crawl|available|crawl|1|3|now||00:15:00
-|mail|available|mail|1|1|now||00:15:00",
    );
    let another = boss.is(MOVED, "1|mail|available|mail|0|3|now||00:15:00");
    boss.refuses("control: another outcome is refused", another);
    boss.answer("the higher priority first", &fetch_order("mail"), "2 1 -");
    boss.answer(
        "it fails as there, and expires as there",
        "select j.retry->>'strategy', j.retry->>'initial', j.expires_at = (m.old->>'keep_until')::timestamptz
           from jobs.job j join jobs_moved m on m.job_id = j.id where j.args->>'n' in ('1', '5') order by j.args->>'n'",
        "constant|0.001|t\nexponential|90.0|t",
    );
    boss.answer(
        "duplicates inserted now are skipped",
        r#"select unique_skipped_as_duplicate
             from jobs.insert('digest', queue => 'digest', unique_opts => '{"key": "daily", "by_state": ["available", "scheduled", "pending", "retryable"]}')
           union all select unique_skipped_as_duplicate from jobs.insert('crawl', '{"site": 1}') union all select unique_skipped_as_duplicate from jobs.insert('crawl', '{"site": 2}')"#,
        "t\nt\nf",
    );
    boss.moved_well(SOURCE);
    boss.answer(
        "what runs, is locked or is over stays",
        "select data->>'n', state from pgboss.job order by 1",
        "4|created\n6|active\n7|completed\n8|cancelled",
    );
    boss.unlock(lock);
    boss.moves("another run moves what was locked", "pg-boss", "1|0", &[]);
    boss.moves("a third one nothing", "pg-boss", "0|0", &[]);
    boss.moved_back(SOURCE, 8);
    if is_newest {
        boss.sql("update pgboss.job set blocked = true where data->>'n' = '1'; update pgboss.job set blocking = true where data->>'n' = '2'");
        boss.moves("what belongs to a flow stays", "pg-boss", "6|0", &[]);
    }
    let finished = program(boss, "finish");
    boss.check("its worker completes what it had", finished);
    let left = if is_newest { "0|0" } else { "8|0" };
    boss.moves("then it is not moved", "pg-boss", left, &["running=on"]);
}
