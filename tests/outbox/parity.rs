//! The extension and the outbox, called alike.

use jobs_tests::Cluster;
use jobs_tests::checks::{Checks, Outcome, feed, holds, same};

use crate::{ROLES, create_database, install, psql, read, refused, says};

/// Neither is the other's default.
const HERE: &str = "-c timezone=America/New_York -c datestyle=German -c intervalstyle=sql_standard";
const THERE: &str =
    "-c timezone=Asia/Kolkata -c datestyle=SQL,DMY -c intervalstyle=postgres_verbose";

/// What was inserted, in order.
const JOBS: &str =
    "select kind, queue, state, priority, max_attempts, args, meta, tags, timeout, retry,
       extract(epoch from scheduled_at), extract(epoch from expires_at), encode(unique_key, 'hex'),
       hold_until, hold_ends_at is null, unique_until is null, unique_window, unique_final
  from jobs.job join (select id, state from jobs.jobs) states using (id) order by id";

const SIGNATURES: &str = "select oid::regprocedure, pg_get_function_arguments(oid), pg_get_function_result(oid) from pg_proc
   where proname in ('insert', 'insert_many', 'insert_batch') and pronamespace = 'jobs'::regnamespace order by 1;
select attrelid::regclass, attname, atttypid::regtype from pg_attribute
   where attrelid in ('jobs.insert_result'::regclass, 'jobs.batch_insert_result'::regclass) order by attrelid::regclass::text, attnum;
select enum_range(null::jobs.state)";

pub fn runs(checks: &mut Checks) {
    if !checks.wants("parity") {
        return;
    }
    let cluster = Cluster::builder().set("jobs.enabled", "off").start();
    cluster.psql("postgres", ROLES);
    for name in ["direct", "forwarded"] {
        cluster.psql("postgres", &format!("create database {name}"));
        cluster.psql(name, "create extension jobs");
    }
    create_database(&cluster, "outbox");

    let words = refusals(&cluster, "outbox").unwrap_or_else(|wrong| wrong);
    let alike = refusals(&cluster, "direct").and_then(|direct| same(&direct, &words));
    checks.check("parity: both refuse in the same words", alike);
    checks.check("parity: both take the same", taken(&cluster));
    let signatures = |database| cluster.psql(database, SIGNATURES);
    let alike = same(&signatures("direct"), &signatures("outbox"));
    checks.check("parity: both have the same parameters and columns", alike);
    cluster.psql("forwarded", "select jobs.update(max(id), priority => 9) from jobs.jobs");
    let changed = same(&cluster.psql("direct", JOBS), &cluster.psql("forwarded", JOBS));
    checks.refuses("parity: control: another job is refused", changed);
    cluster.psql("outbox", "delete from jobs.outbox; create or replace function jobs.outbox_did_you_mean(word text, candidates text[]) returns text language sql as 'select null::text'");
    let without_hints = refusals(&cluster, "outbox").and_then(|said| same(&words, &said));
    checks.finds("parity: control: a lost HINT is found", "-HINT:  Did you mean", without_hints);

    let message = "this database has the extension jobs";
    checks.check(
        "parity: it is not run beside the extension",
        refused(install(&cluster, "direct", "postgres"), message),
    );
    let outbox = "select count(*) from pg_class where relname like 'outbox%'";
    checks.check("parity: and has changed nothing", same("0", &cluster.psql("direct", outbox)));
    checks.end(cluster);
}

/// What a database says of bad input. None of it is inserted.
fn refusals(cluster: &Cluster, database: &str) -> Result<String, String> {
    let script = read("refused.sql");
    let said = says(&mut psql(cluster, database, "postgres"), &script);
    let errors = said.matches("ERROR:  ").count();
    let ours =
        ["22004", "22023", "54000"].map(|code| said.matches(&format!("ERROR:  {code}: ")).count());
    holds(errors > 150 && ours.iter().sum::<usize>() == errors, &said)?;
    let inserted = match database {
        "outbox" => "select count(*) from jobs.outbox",
        _ => "select count(*) from jobs.job",
    };
    same("0", &cluster.psql(database, inserted)).map(|()| said)
}

fn taken(cluster: &Cluster) -> Outcome {
    let insert = |database: &str, script: &str, settings: &str| {
        let mut psql = psql(cluster, database, "postgres");
        let (ended_well, said) = feed(psql.args(["-f", "-"]).env("PGOPTIONS", settings), script);
        holds(ended_well, said)
    };
    let script = read("taken.sql");
    insert("direct", &script, HERE)?;
    insert("outbox", &script, HERE)?;
    let jobs = cluster.psql("outbox", "select jsonb_agg(job order by id) from jobs.outbox");
    insert(
        "forwarded",
        &format!("\\set ON_ERROR_STOP on\nselect jobs.insert_many($outbox${jobs}$outbox$);"),
        THERE,
    )?;
    same(&cluster.psql("direct", JOBS), &cluster.psql("forwarded", JOBS))
}
