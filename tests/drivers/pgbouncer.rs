//! The drivers' programs, and every function, through PgBouncer:
//! clients/examples/pgbouncer/pgbouncer.ini and the table of docs/drivers.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jobs_tests::checks::{Outcome, feed, holds, output, same};
use jobs_tests::pgbouncer::{PgBouncer, need_pgbouncer};
use jobs_tests::{Cluster, ROOT};
use regex::Regex;

use crate::{Driver, create_database, outbox, python_java_ruby};

pub const PROGRAMS: [&str; 5] = ["psycopg", "sqlalchemy", "django", "jdbc", "activerecord"];
const MODES: [&str; 3] = ["session", "transaction", "statement"];

pub fn runs(driver: &mut Driver) {
    if let Err(error) = need_pgbouncer() {
        return driver.checks.cannot("pgbouncer", "apt-get download pgbouncer", &error);
    }
    let cluster = driver.cluster;
    for name in PROGRAMS {
        create_database(cluster, &format!("pooled_{name}"));
        outbox::create_outbox(cluster, &format!("outbox_pooled_{name}"));
    }
    for name in ["pooled_control", "prepared"].iter().chain(&MODES) {
        create_database(cluster, name);
    }
    let started = start(cluster);
    let outcome = started.as_ref().map(|_| ()).map_err(String::clone);
    driver.check("it starts with the example's settings", outcome);
    let Ok(pgbouncer) = started else { return };
    driver.check("it complains of nothing", pgbouncer.complains_of_nothing());
    let pool = Pool { cluster, port: pgbouncer.port };

    for name in PROGRAMS {
        let database = format!("pooled_{name}");
        pool.grow(&database, "app");
        python_java_ruby::runs(&mut through(driver, &pool, name, &database, true));
        let database = format!("outbox_{database}");
        pool.grow(&database, "app");
        outbox::runs(&mut through(driver, &pool, name, &database, true));
    }
    let mut control = through(driver, &pool, "psycopg", "pooled_control", false);
    if let Some(mut program) = python_java_ruby::example(&mut control, "postgres") {
        pool.grow("pooled_control", "postgres");
        driver.checks.finds(
            "control: pgbouncer: who prepares fails in mode transaction",
            "prepared statement .* does not exist",
            output(&mut program).map(|_| ()),
        );
        pool.grow("prepared", "app");
        python_java_ruby::runs(&mut through(driver, &pool, "psycopg", "prepared", false));
    }
    for mode in MODES {
        functions(driver, &pool, mode);
    }
    let script = read("tests/drivers/functions.sql");
    driver.check("every function was called", all_are_called(cluster, &script));
    let without: String =
        script.split_inclusive('\n').filter(|line| !line.contains("jobs.snooze")).collect();
    driver.refuses(
        "control: a function that was not called is found",
        all_are_called(cluster, &without),
    );
    transactions(driver, &pool);
    waits(driver, &pool);
    listens(driver, &pool);
}

/// The example's file with this server's address. Connections take turns, so that statements do
/// come to different ones.
fn start(cluster: &Cluster) -> Result<PgBouncer, String> {
    let example = read("clients/examples/pgbouncer/pgbouncer.ini");
    let (databases, settings) = example.split_once("[pgbouncer]").expect("two sections");
    let port = format!("port={}", cluster.port());
    let line_of = |database: &str| {
        let line = databases.lines().find(|line| line.starts_with(&format!("{database} = ")));
        line.expect(database).replace("port=5432", &port)
    };
    let pooled = PROGRAMS.map(|name| format!("pooled_{name}"));
    let outboxes = pooled.iter().map(|name| format!("outbox_{name}"));
    let pooled = pooled.iter().cloned().chain(outboxes).chain(["pooled_control".into()]);
    let mut lines: Vec<_> = pooled.map(|name| line_of("shop").replace("shop", &name)).collect();
    let server = format!("host=127.0.0.1 {port} dbname");
    lines.extend(MODES.map(|mode| format!("{mode} = {server}={mode} pool_mode={mode}")));
    let workers = line_of("shop_workers").replacen("shop_", "", 1);
    lines.push(workers.replace("dbname=shop", "dbname=transaction"));
    lines.push(format!("prepared = {server}=prepared pool_mode=session"));
    lines.push(format!("one = {server}=transaction pool_size=1"));
    let ours = ["listen_port", "listen_addr", "auth_type", "auth_file"];
    let settings = settings.lines().filter(|line| !ours.iter().any(|name| line.starts_with(name)));
    let settings: Vec<_> = settings.chain(["server_round_robin = 1"]).collect();
    PgBouncer::start(cluster, &lines.join("\n"), &settings.join("\n"))
}

/// A driver whose database is one of the pooler's.
fn through<'a>(
    driver: &'a mut Driver,
    pool: &Pool,
    name: &'static str,
    database: &str,
    is_pooled: bool,
) -> Driver<'a> {
    Driver {
        checks: driver.checks,
        cluster: driver.cluster,
        name,
        database: database.into(),
        port: pool.port,
        is_pooled,
    }
}

struct Pool<'a> {
    cluster: &'a Cluster,
    port: u16,
}

impl Pool<'_> {
    fn psql(&self, database: &str, user: &str) -> Command {
        let mut psql = self.cluster.client("psql");
        psql.args(["-X", "-q", "-At", "-h", "127.0.0.1", "-U", user, "-d", database]);
        psql.args(["-p", &self.port.to_string()]);
        psql
    }

    /// Each line a statement and a transaction of its own.
    fn sql(&self, database: &str, statements: &[&str]) -> Result<String, String> {
        let mut psql = self.psql(database, "postgres");
        let (ended_well, said) = feed(
            psql.args(["-v", "ON_ERROR_STOP=1", "-f", "-"]),
            &(statements.join(";\n") + ";\n"),
        );
        if ended_well { Ok(said) } else { Err(said) }
    }

    /// A pool has as many connections as were needed at a time: with one, nothing could go wrong.
    /// Now it has three, which take turns.
    fn grow(&self, database: &str, user: &str) {
        let sleeps = |_| {
            let mut psql = self.psql(database, user);
            psql.args(["-c", "select pg_sleep(3)"]).stdout(Stdio::null());
            psql.spawn().expect("psql")
        };
        for mut sleeping in [0, 1, 2].map(sleeps) {
            assert!(sleeping.wait().expect("psql").success());
        }
    }

    /// Whether some session is so within a minute.
    fn until(&self, activity: &str) -> Outcome {
        let start = Instant::now();
        let query = format!("select count(*) from pg_stat_activity where {activity}");
        while self.cluster.psql("postgres", &query).trim() == "0" {
            holds(start.elapsed() < Duration::from_secs(60), format!("nobody did: {activity}"))?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn functions(driver: &mut Driver, pool: &Pool, mode: &str) {
    let connections = if mode == "session" { 1 } else { 3 };
    pool.grow(mode, "postgres");
    let pids = pool.sql(mode, &["select pg_backend_pid()"; 3]);
    let pids = pids.map(|pids| pids.lines().map(String::from).collect::<BTreeSet<_>>());
    let has = holds(pids.as_ref().is_ok_and(|pids| pids.len() == connections), format!("{pids:?}"));
    driver.check(format!("mode {mode} has {connections} connections for a client"), has);
    let mut psql = pool.psql(mode, "postgres");
    let script = read("tests/drivers/functions.sql");
    let (_, came) = feed(psql.args(["-f", "-"]).env("PGAPPNAME", "pooled"), &script);
    let came = came.replace("psql:<stdin>:", "psql:tests/drivers/functions.sql:");
    driver.check(
        format!("mode {mode}: every function works"),
        same(&read("tests/drivers/functions.out"), &came),
    );
}

/// All that anybody can be granted, or that grants; the rest is internal, see docs/reference.md.
fn all_are_called(cluster: &Cluster, script: &str) -> Outcome {
    let names = |condition: &str| -> BTreeSet<String> {
        let query = format!(
            "select 'jobs.' || proname from pg_proc p where pronamespace = 'jobs'::regnamespace and {condition}"
        );
        cluster.psql("transaction", &query).lines().map(String::from).collect()
    };
    let all = names("true");
    let public = names(
        "exists (select from pg_description d where d.objoid = p.oid) and proname not in ('count_queues', 'idle_runs', 'installed', 'is_preloaded')",
    );
    let name = Regex::new(r"jobs\.[a-z_]+").expect("a regex");
    let called: BTreeSet<String> =
        name.find_iter(script).map(|found| found.as_str().into()).collect();
    let called: BTreeSet<String> = called.intersection(&all).cloned().collect();
    let lines = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join("\n");
    same(&lines(public), &lines(called))
}

fn transactions(driver: &mut Driver, pool: &Pool) {
    let statements = [
        "begin",
        "select jobs.insert('both')",
        "savepoint s",
        "select jobs.insert('none')",
        "rollback to s",
        "commit",
    ];
    pool.sql("transaction", &statements).expect("a transaction");
    let query = "select string_agg(kind, ' ') from jobs.jobs where kind in ('both', 'none')";
    let inserted = same("both", &pool.cluster.psql("transaction", query));
    driver.check("a transaction with a savepoint", inserted);
    let finds = |driver: &mut Driver, what, words, result: Result<String, String>| {
        driver.checks.finds(format!("pgbouncer: {what}"), words, result.map(|_| ()));
    };
    finds(
        driver,
        "mode statement has no transactions",
        "ERROR|FATAL",
        pool.sql("statement", &statements),
    );
    let waited = pool.sql("transaction", &["begin", "call jobs.wait()"]);
    finds(driver, "in a transaction, wait is refused", "jobs.wait", waited);
}

/// A wait through the pooler ends when the job comes. While it waits, it has a connection of its
/// pool: of one that has no more, a producer gets none, so the job comes only when the wait is
/// over.
fn waits(driver: &mut Driver, pool: &Pool) {
    driver.check(
        "a wait in the workers' pool ends when a job comes by the producers' pool",
        wait(pool, "workers", "one", 60, 0..=30),
    );
    driver.check("a producer waits for a pool of waiters", wait(pool, "one", "one", 6, 2..=60));
    for mode in MODES {
        driver.check(
            format!("mode {mode}: a wait ends when a job comes"),
            wait(pool, mode, mode, 60, 0..=30),
        );
        driver.check(format!("mode {mode}: a wait can be cancelled"), cancel(pool, mode));
    }
}

/// The insert begins when the wait has, and must take so many seconds, as must the wait.
fn wait(
    pool: &Pool,
    waits: &str,
    inserts: &str,
    timeout: u32,
    seconds: std::ops::RangeInclusive<u64>,
) -> Outcome {
    let queue = format!("woken_{waits}_{inserts}");
    std::thread::scope(|scope| {
        let call = format!("call jobs.wait('{queue}', timeout => '{timeout} s')");
        let waiting = scope.spawn(move || pool.sql(waits, &[&call]));
        pool.until(&format!("query ilike 'call jobs.wait(''{queue}''%' and state = 'active'"))?;
        let begun = Instant::now();
        pool.sql(inserts, &[&format!("select jobs.insert('a', queue => '{queue}')")])?;
        waiting.join().expect("a wait")?;
        let took = begun.elapsed().as_secs();
        holds(seconds.contains(&took), format!("it took {took} s"))
    })
}

fn cancel(pool: &Pool, mode: &str) -> Outcome {
    let psql = pool.psql(mode, "postgres");
    let mut cancelled = Command::new("env");
    cancelled.arg("--default-signal=INT").arg(psql.get_program()).args(psql.get_args());
    cancelled.args(["-c", "call jobs.wait('cancelled', timeout => '60 s')"]);
    let cancelled = cancelled.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql");
    let begun = pool.until("query ilike 'call jobs.wait(''cancelled''%' and state = 'active'");
    let killed = output(Command::new("kill").args(["-INT", &cancelled.id().to_string()]));
    let ended = cancelled.wait_with_output().expect("psql");
    begun?;
    killed?;
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    holds(said.contains("canceling statement due to user request"), said)
}

/// What LISTEN subscribes is the connection, not the client. psql shows what it was notified of.
fn listens(driver: &mut Driver, pool: &Pool) {
    let notified = |mode| {
        let script = [
            "listen jobs",
            "select jobs.insert('a', queue => 'heard')",
            "\\! sleep 5\nselect 1",
            "select 2",
            "select 3",
        ];
        let came = pool.sql(mode, &script)?;
        holds(came.contains("Asynchronous notification \"jobs\""), came)
    };
    driver.check("mode session notifies", notified("session"));
    driver.refuses("mode transaction does not", notified("transaction"));
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}
