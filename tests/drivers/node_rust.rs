//! The drivers and ORMs of Node and Rust.
//!
//! All of these examples do the same, so one report and one state of the queue are expected of all.
//! The session's time zone and the program's are two that are not UTC and not the same: a time that
//! loses its zone on the way is then hours off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs_tests::checks::{Outcome, output, same, succeeds};
use jobs_tests::{ROOT, need, state_directory, target_directory};

use crate::Driver;

pub const PROGRAMS: [&str; 7] =
    ["node_postgres", "drizzle", "prisma", "knex", "tokio_postgres", "sqlx", "diesel"];

const REPORT: &str = r#"insert: available in mail
unique: skipped false, then true, same job true
reject: 23505, names the existing job true
rolled back: out of stock
committed: 1 order
types: scheduled 2999-01-01T12:00:00.000Z
nulls: JSON null available, SQL NULL 22004
prepared: 6 of 12 inserted, generic plan true
insert_many: skipped false,false,true, third is the first true
worker: ok completed
worker: bad discarded
read: 2999-01-01T12:00:00.000Z, 90 minutes, ["a","b, \"c\"","NULL"], {"tenant":"acme"}
bigint: 9007199254740993, lease null
"#;

/// Kind, state, queue, priority, max_attempts, args, meta, tags, timeout, what is not now, output;
/// how many. Then errors and orders.
pub const LEAVES: &str = r#"bad discarded work 1 25 {} {} {} 00:01:00 - - - x1
email.send available mail 1 25 {"subject": "Grüße, 'Ada' \\ 😀", "user_id": 42} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 0} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 1} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 2} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 3} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 4} {} {} 00:01:00 - - - x1
index available default 1 25 {"page": 5} {} {} 00:01:00 - - - x1
nulls available default 1 25 null {} {} 00:01:00 - - - x1
ok completed work 1 25 {"n": 1} {} {} 00:01:00 - - {"done": true} x1
order.confirm available default 1 25 {"order_id": 2} {} {} 00:01:00 - - - x1
report available default 1 25 {"customer": 7} {} {} 00:01:00 - - - x1
typed scheduled default -5 3 [1, {"deep": [null]}] {"tenant": "acme"} {a,"b, \"c\"","NULL"} 01:30:00 2999-01-01 12:00:00 2999-01-02 00:00:00 - x1
bad: no such address, type BadAddress
Grace 3
"#;

pub const LEFT: &str = "select concat_ws(' ', kind, state, queue, priority, max_attempts, args, meta, tags, timeout,
    coalesce((nullif(scheduled_at, least(scheduled_at, now())) at time zone 'UTC')::text, '-'),
    coalesce((expires_at at time zone 'UTC')::text, '-'), coalesce(output::text, '-'), 'x' || count(*))
  from jobs.jobs group by kind, state, queue, priority, max_attempts, args, meta, tags, timeout,
    nullif(scheduled_at, least(scheduled_at, now())), expires_at, output
  order by kind collate \"C\", args;
select format('%s: %s, type %s', kind, error, details->>'type') from jobs.errors join jobs.jobs on id = job_id order by id;
select customer || ' ' || quantity from orders order by id";

/// It reads a job's args.
pub fn runs(driver: &mut Driver) {
    driver.sql("select jobs.grant_application('app')");
    let Some(mut program) = example(driver) else {
        return;
    };
    let report = report(driver.name);
    let printed = output(&mut program);
    driver.check("the example runs", printed.as_ref().map(|_| ()).map_err(String::clone));
    let printed = printed.unwrap_or_default();
    driver.check("it reports what it must", same(&report, &printed));
    let wrong = report.replace("9007199254740993", "9007199254740992");
    driver.refuses("control: another report is refused", same(&wrong, &printed));
    let left = driver.sql(LEFT);
    driver.check("the queue holds what it must", same(LEAVES, &left));
    let wrong = LEAVES.replace("12:00:00", "17:00:00");
    driver.refuses("control: a time that is hours off is refused", same(&wrong, &left));
    let wrong = LEAVES.replace("25 null", "25 {}");
    driver.refuses("control: JSON null is not what was left out", same(&wrong, &left));
    driver.sql("select jobs.delete(id) from jobs.jobs where kind = 'index' and args->'page' = '5'");
    driver.refuses("control: a job too few is seen", same(LEAVES, &driver.sql(LEFT)));
}

/// Diesel tells only a few SQLSTATEs apart. Prisma's adapter loses DETAIL, which has the existing
/// job's id.
pub fn report(name: &str) -> String {
    match name {
        "diesel" => REPORT.replace("22004", "Unknown"),
        "prisma" => REPORT.replace(", names the existing job true", ""),
        _ => REPORT.into(),
    }
}

/// The driver's program, if what it needs can be installed, and a database as it wants it.
pub fn example(driver: &mut Driver) -> Option<Command> {
    let mut program = match driver.name {
        "prisma" => prisma(driver)?,
        "tokio_postgres" | "sqlx" | "diesel" => {
            let mut build = Command::new("cargo");
            build.current_dir(ROOT).args(["build", "--quiet", "-p", "jobs-example-drivers"]);
            let built = need(&["need_packages", "libpq-dev"]).and_then(|()| succeeds(&mut build));
            if let Err(said) = built {
                driver.check("it can be built", Err(said));
                return None;
            }
            let program = target_directory().join(format!("debug/{}_example", driver.name));
            driver.program(&program.display().to_string(), "app")
        }
        name => {
            let copy = state_directory().join("node");
            let installed =
                need(&["need_npm", "clients/examples/node", &copy.display().to_string()]);
            if let Err(said) = installed {
                driver.check("its packages can be installed", Err(said));
                return None;
            }
            let file = match name {
                "node_postgres" => "postgres_example.mjs".into(),
                name => format!("{name}_example.mjs"),
            };
            let mut node = driver.program("node", "app");
            node.arg(copy.join(file));
            node
        }
    };
    driver.sql(&format!("create table orders (id bigint generated always as identity primary key, customer text not null, quantity smallint not null);
         alter table orders owner to app;
         alter database \"{}\" set timezone = 'America/New_York'", driver.database));
    program.env("TZ", "Asia/Kolkata");
    Some(program)
}

/// It needs a newer Node than Debian has.
fn prisma(driver: &mut Driver) -> Option<Command> {
    const NEW_ENOUGH: &str = "const [a, b] = process.versions.node.split('.'); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)";
    let copy = state_directory().join("prisma");
    if let Err(said) = generate(&copy) {
        let version = output(Command::new("node").arg("--version")).unwrap_or_default();
        if succeeds(Command::new("node").args(["-e", NEW_ENOUGH])).is_err() {
            let error = said.lines().find(|line| line.contains("Error"));
            let what = format!("prisma, with Node {}", version.trim());
            let tried = "prisma generate --schema schema.prisma";
            driver.checks.skip(what, tried, error.unwrap_or(&said));
        } else {
            driver.check("its packages can be installed and its client generated", Err(said));
        }
        return None;
    }
    let mut node = driver.program("node", "app");
    node.arg(copy.join("prisma_example.mjs"));
    Some(node)
}

/// Prisma wants to download the engine of its migrations even to generate a client, which needs
/// none: it is told that there is one already. Nor do the scripts of its packages run: they would
/// download it, too.
fn generate(copy: &PathBuf) -> Outcome {
    need(&[
        "need_npm",
        "clients/examples/node/prisma",
        &copy.display().to_string(),
        "--ignore-scripts",
    ])?;
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let schema = read(Path::new(ROOT).join("clients/examples/node/prisma/schema.prisma"));
    let wanted = format!("{schema}{}", read(copy.join("wanted")));
    if read(copy.join("generated")) == wanted {
        return Ok(());
    }
    fs::write(copy.join("schema.prisma"), schema).expect("the schema");
    let mut npx = Command::new("npx");
    npx.args(["--no-install", "prisma", "generate", "--schema", "schema.prisma"]);
    npx.env("PRISMA_SCHEMA_ENGINE_BINARY", "/bin/true").env("CHECKPOINT_DISABLE", "1");
    succeeds(npx.current_dir(copy))?;
    fs::write(copy.join("generated"), wanted).map_err(|error| error.to_string())
}
