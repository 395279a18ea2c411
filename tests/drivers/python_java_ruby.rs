//! Python, Java and Ruby.
//!
//! These programs all do the same and print the same, each in the way of its library. So there is
//! one expectation for them. They run as the role app, which needs no more than it has.

use std::process::Command;

use jobs_tests::checks::{output, same};
use jobs_tests::{program, state_directory};

use crate::{Driver, create_database};

pub const LEFT: &str = r#"select format('%s %s in %s, priority %s, attempt %s of %s, %s, %s %s %s %s', kind, state, queue, priority, attempt, max_attempts, timeout, args, meta, tags, output)
  from jobs.jobs where kind <> 'counted' order by kind, args::text collate "C";
select format('%s %s counted, %s to %s', count(*), state, min((args->'n')::int), max((args->'n')::int)) from jobs.jobs where kind = 'counted' group by state;
select format('types: from %s to %s', scheduled_at, expires_at) from jobs.jobs where kind = 'types';
select format('error: attempt %s, %s %s, again in %s', e.attempt, e.error, e.details, date_trunc('minute', j.scheduled_at - e.at + '1 second'))
  from jobs.errors e join jobs.jobs j on j.id = e.job_id;
select format('order %s of %s, shipped %s', id, customer, shipped) from orders"#;

pub const LEAVES: &str = r#"line available in default, priority 1, attempt 0 of 25, 00:01:00, null {} {} 
line available in default, priority 1, attempt 0 of 25, 00:01:00, {"n": 1} {} {} 
null_args available in default, priority 1, attempt 0 of 25, 00:01:00, null {} {} 
page available in default, priority 1, attempt 0 of 25, 00:01:00, {"n": 1} {} {} 
page available in default, priority 1, attempt 0 of 25, 00:01:00, {"n": 2} {} {} 
report available in default, priority 1, attempt 0 of 25, 00:01:00, {"month": "2030-01"} {} {} 
ship retryable in shipping, priority 1, attempt 1 of 25, 00:01:00, {"order": 0} {} {} 
ship completed in shipping, priority 1, attempt 1 of 25, 00:01:00, {"order": 2} {} {} {"ok": true}
types scheduled in default, priority -5, attempt 0 of 3, 00:01:30, {"none": null, "text": "ü ' \\ \"", "numbers": [1, 2.5, 9007199254740993]} {"note": null} {"a b","c,d","say \"hi\"",""} 
20 available counted, 0 to 19
types: from 2030-01-02 01:04:05+00 to 2031-01-01 00:00:00+00
error: attempt 1, there is no order 0 {"type": "unknown_order"}, again in 01:00:00
order 2 of Bob, shipped t
"#;

/// Whether a language writes true or True does not matter. The first order was rolled back, so the
/// one that stays is number 2.
pub fn report(name: &str, generic: bool) -> String {
    let mut report = format!(
        "inserted: available in shipping
duplicate: true, same job: true
rejected: 23505, names the job: true
rolled back: 0 orders
committed: 1 orders
types: scheduled at 2030-01-02 01:04:05
null args: 22004
repeated: 20 jobs, generic plan: {generic}
insert_many: 3 rows, 1 skipped
insert_batch: 2 rows
worker: order 0 retryable
worker: order 2 completed
not ours: 55000
"
    );
    // Its example is the one that waits for it.
    if name == "psycopg" {
        report += "result: completed, ok: true\n";
    }
    report
}

/// Django has two ways to bind values; in the other one it sends them within the statement.
pub fn django(driver: &mut Driver) {
    runs(driver);
    create_database(driver.cluster, "django_client");
    driver.database = "django_client".into();
    driver.is_pooled = true;
    runs(driver);
}

/// Prepared statements get a generic plan after some executions, and with it the types of
/// parameters that are null once and something else then: it must have been used. Where nothing may
/// be prepared it must not. Neither the program nor its session has UTC, so a time that loses its
/// zone is seen.
pub fn runs(driver: &mut Driver) {
    let Some(mut program) = example(driver, "app") else {
        return;
    };
    let name = driver.name;
    if name == "psycopg" {
        // It reads a job's output.
        driver.sql("select jobs.grant_application('app')");
    }
    let pooled = if driver.is_pooled { "nothing prepared: " } else { "" };
    driver.sql(&format!(
        "alter role app in database \"{}\" set timezone = 'Asia/Tokyo'",
        driver.database
    ));
    let printed = output(program.env("TZ", "America/New_York"));
    driver.check(format!("{pooled}it runs"), printed.as_ref().map(|_| ()).map_err(String::clone));
    let printed = printed.unwrap_or_default().to_lowercase();
    let reported = same(&report(name, !driver.is_pooled), &printed);
    driver.check(format!("{pooled}it reports what it must"), reported);
    driver.check(format!("{pooled}the queue holds what it must"), same(LEAVES, &driver.sql(LEFT)));
    if !driver.is_pooled {
        driver.refuses("control: another report is refused", same(&report(name, false), &printed));
        driver.sql("select jobs.update(id, priority => -6) from jobs.jobs where kind = 'types'");
        driver.refuses("control: another job is refused", same(LEAVES, &driver.sql(LEFT)));
    }
}

/// The driver's program, as a role; says what was tried if what it needs cannot be installed.
pub fn example(driver: &mut Driver, user: &str) -> Option<Command> {
    let name = driver.name;
    match name {
        "jdbc" => {
            let has_compiler = program("javac").is_some();
            let jdk = if has_compiler { "libpostgresql-jdbc-java" } else { "default-jdk-headless" };
            let packages = ["need_packages", jdk, "libpostgresql-jdbc-java"];
            driver
                .checks
                .has(
                    name,
                    "apt-get install default-jdk-headless libpostgresql-jdbc-java",
                    &packages,
                )
                .then(|| {
                    let unprepared = if driver.is_pooled { "&prepareThreshold=0" } else { "" };
                    let url = format!(
                        "jdbc:postgresql://127.0.0.1:{}/{}?user={user}{unprepared}",
                        driver.port, driver.database
                    );
                    let mut java = driver.program("java", user);
                    java.args([
                        "-XX:TieredStopAtLevel=1",
                        "-cp",
                        "/usr/share/java/postgresql.jar",
                        "clients/examples/java/Example.java",
                    ]);
                    java.env("JDBC_URL", url);
                    java
                })
        }
        // Debian's Ruby, because it has Debian's gems.
        "activerecord" => {
            let packages = ["need_packages", "ruby-activerecord", "ruby-pg"];
            driver.checks.has(name, "apt-get install ruby-activerecord ruby-pg", &packages).then(
                || {
                    let unprepared =
                        if driver.is_pooled { "?prepared_statements=false" } else { "" };
                    let mut ruby = driver.program("/usr/bin/ruby", user);
                    ruby.arg("clients/examples/ruby/example.rb");
                    ruby.env("DATABASE_URL", format!("{}{unprepared}", driver.url(user)));
                    ruby
                },
            )
        }
        _ => {
            let environment = format!("python_{name}");
            let own = format!("clients/examples/python/requirements-{name}.txt");
            let mut need =
                vec!["need_python", &environment, "clients/examples/python/requirements.txt"];
            if name != "psycopg" {
                need.push(&own);
            }
            let tried = format!("pip install -r {}", need[2..].join(" -r "));
            driver.checks.has(name, tried, &need).then(|| {
                let python = state_directory().join(environment).join("bin/python");
                let mut python = driver.program(&python.display().to_string(), user);
                python.arg(format!("clients/examples/python/{name}_example.py"));
                if driver.is_pooled {
                    python.env("POOLED", "1");
                }
                python
            })
        }
    }
}
