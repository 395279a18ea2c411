//! The suite `migration`: the scripts of ops/migrate/ against the systems that they move from. A
//! part is a part of a system's name.
//!
//! Each system has a database with its own schema, as its own package brings it, and jobs in every
//! state that matters, made by its own API. The very scripts that users run move them. `n` in the
//! arguments says which job is which. A transaction has one of the waiting jobs locked meanwhile,
//! as a fetch of the old system has it, and a worker of it has another one.

mod faktory;
mod graphile_worker;
mod oban;
mod pg_boss;
mod pgmq;
mod river;

use std::fmt::Display;
use std::io::Write;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use jobs_tests::checks::{Checks, Outcome, holds, output, same, succeeds, suite};
use jobs_tests::{Cluster, ROOT, state_directory};

/// The tests of a system: its jobs are made, and moved.
type Moves = fn(&mut System);

/// The databases.
const SYSTEMS: [(&str, Moves); 9] = [
    ("river", river::moves),
    ("oban", oban::moves),
    ("like_oban_for_elixir", oban::moves_as_for_elixir),
    ("pg_boss", pg_boss::moves),
    ("pg_boss_10", pg_boss::moves),
    ("graphile_worker", graphile_worker::moves),
    ("pgmq", pgmq::moves),
    ("faktory", faktory::moves),
    ("race", pgmq::races),
];

fn main() -> ExitCode {
    suite(|checks| {
        let settings = Cluster::builder().set("max_worker_processes", 64);
        let cluster = settings.start();
        for (name, moves) in SYSTEMS {
            if checks.wants(name) {
                cluster.psql("postgres", &format!("create database {name}"));
                cluster.psql(name, "create extension jobs");
                let mut system = System { checks, cluster: &cluster, name, before: String::new() };
                moves(&mut system);
            }
        }
        checks.end(cluster);
    })
}

/// A system, whose jobs are in the database of its name.
struct System<'a> {
    checks: &'a mut Checks,
    cluster: &'a Cluster,
    name: &'static str,
    before: String,
}

impl System<'_> {
    fn check(&mut self, what: impl Display, outcome: Outcome) {
        self.checks.check(format!("{}: {what}", self.name), outcome);
    }

    fn refuses(&mut self, what: impl Display, outcome: Outcome) {
        self.checks.refuses(format!("{}: {what}", self.name), outcome);
    }

    fn sql(&self, script: &str) -> String {
        self.cluster.psql(self.name, script)
    }

    /// Whether a query has this answer.
    fn is(&self, query: &str, expected: &str) -> Outcome {
        same(expected, &self.sql(query))
    }

    fn answer(&mut self, what: impl Display, query: &str, expected: &str) {
        let outcome = self.is(query, expected);
        self.check(what, outcome);
    }

    /// Runs a script of ops/migrate with these variables.
    fn run(&self, script: &str, variables: &[&str]) -> Result<String, String> {
        let mut psql = self.psql();
        psql.arg("-f").arg(format!("ops/migrate/{script}.sql"));
        for variable in variables {
            psql.args(["-v", variable]);
        }
        output(&mut psql)
    }

    /// Runs a script, which must say that it moved so many jobs and found so many duplicates.
    fn script(&self, script: &str, said: &str, variables: &[&str]) -> Outcome {
        says(&self.run(script, variables)?, said)
    }

    fn moves(&mut self, what: impl Display, script: &str, said: &str, variables: &[&str]) {
        let outcome = self.script(script, said, variables);
        self.check(what, outcome);
    }

    /// As the user that runs the tests, who may read the checkout.
    fn psql(&self) -> Command {
        let mut psql = self.cluster.client("psql");
        psql.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", self.name]);
        psql.current_dir(ROOT);
        psql
    }

    /// Whether a query becomes true within a minute.
    fn until(&self, query: &str) -> Outcome {
        let start = Instant::now();
        while self.sql(query).trim() != "t" {
            holds(
                start.elapsed() < Duration::from_secs(60),
                format!("after a minute this is still not true: {query}"),
            )?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// A transaction that has rows locked, until it is dropped.
    fn lock(&self, query: &str) -> Lock {
        let mut psql = self.psql();
        psql.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut lock = Lock(psql.spawn().expect("psql"));
        lock.run(&format!("set application_name = 'holder'; begin; {query}"));
        self.until("select count(*) = 1 from pg_stat_activity where application_name = 'holder' and state = 'idle in transaction'")
            .unwrap();
        lock
    }

    /// Lets the rows go.
    fn unlock(&self, lock: Lock) {
        drop(lock);
        self.until("select count(*) = 0 from pg_stat_activity where application_name = 'holder'")
            .unwrap();
    }

    fn url(&self) -> String {
        format!("postgresql://postgres@/{}?host={}", self.name, self.cluster.directory().display())
    }

    fn node_url(&self) -> String {
        let host = self.cluster.directory().display().to_string();
        format!("postgresql://postgres@{}/{}", host.replace('/', "%2F"), self.name)
    }

    /// Of packages only what they bring themselves is needed, and Oban's wants a newer Python than
    /// Debian has.
    fn has_python(&mut self, what: &str) -> bool {
        const LIST: &str = "tests/migration/requirements.txt";
        let need =
            ["need_python", "migration", LIST, "--", "--no-deps", "--ignore-requires-python"];
        let tried = format!("pip install --no-deps --ignore-requires-python -r {LIST}");
        self.checks.has(what, tried, &need)
    }

    /// Runs a program of this directory that inserts by a system's own API.
    fn python_inserts(&mut self, what: &str, url: &str, program: &str) {
        let mut python = Command::new(state_directory().join("migration/bin/python"));
        python.env("DATABASE_URL", url).current_dir(ROOT);
        let outcome = succeeds(python.arg(format!("tests/migration/{program}")));
        self.check(what, outcome);
    }

    fn has_node(&mut self, what: &str) -> bool {
        let copy = state_directory().join("migration-node").display().to_string();
        let need = ["need_npm", "tests/migration", &copy];
        self.checks.has(what, "npm ci # tests/migration/package-lock.json", &need)
    }

    /// A program for Node of this directory.
    fn node(&self, program: &str, seconds: u32) -> Command {
        let mut node = Command::new("timeout");
        node.arg(seconds.to_string()).arg("node");
        node.arg(state_directory().join("migration-node").join(program));
        node.env("DATABASE_URL", self.node_url());
        node
    }

    /// What holds of every move, whatever the system.
    fn moved_well(&mut self, source: &str) {
        let query = format!("select count(*) > 0, bool_and(j.meta->'moved_from'->>'source' = '{source}' and j.meta->'moved_from'->>'id' = m.old_id)
               from public.jobs_moved m join jobs.jobs j on j.id = m.job_id where not m.duplicate");
        self.answer("each moved job says where it comes from", &query, "t|t");
    }

    /// Keeps what the table is like, as jsonb, since the spaces of json do not matter.
    fn remember(&mut self, source: &str) {
        self.before = self.table(source);
    }

    fn table(&self, source: &str) -> String {
        self.sql(&format!("select to_jsonb(t) from {source} t order by 1"))
    }

    /// Moves back what waits, and compares the table with what it was before.
    fn moved_back(&mut self, source: &str, jobs: u32) {
        self.moves(
            "what waits can be moved back",
            "undo",
            &jobs.to_string(),
            &[&format!("source={source}")],
        );
        let after = self.table(source);
        let outcome = same(&self.before, &after);
        self.check("and is as it was", outcome);
        self.answer(
            "nothing of it waits here",
            "select count(*) from jobs.jobs where meta ? 'moved_from' and finalized_at is null",
            "0",
        );
        self.answer(
            "the audit says what deleted it",
            "select count(*), min(reason), max(reason) from jobs.audit where action = 'delete'",
            &format!("{jobs}|ops/migrate/undo.sql|ops/migrate/undo.sql"),
        );
        let other = format!("{}something else\n", self.before);
        self.refuses("control: another table is not as it was", same(&other, &after));
    }
}

/// One line of what a script said is this.
fn says(came: &str, said: &str) -> Outcome {
    holds(came.lines().any(|line| line == said), format!("it said:\n{came}"))
}

/// See [`System::lock`].
struct Lock(Child);

impl Lock {
    fn run(&mut self, statements: &str) {
        writeln!(self.0.stdin.as_mut().expect("a pipe"), "{statements};").expect("psql");
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A query for every job that was moved: n, and the outcome of its options; `when` is a year, soon
/// or now.
const MOVED: &str = "select coalesce(j.args->>'n', '-') as n, j.kind, j.state, j.queue, j.priority, j.max_attempts,
      case when j.scheduled_at >= '2900-01-01' then '2900' when j.scheduled_at > now() then 'soon' else 'now' end as when, array_to_string(j.tags, '+'), j.timeout
    from jobs.jobs j join public.jobs_moved m on m.job_id = j.id where not m.duplicate order by (j.args->>'n')::int nulls last, j.id";

/// Those that could be fetched now, in the order in which they would be.
fn fetch_order(queue: &str) -> String {
    format!(
        "begin; select string_agg(coalesce(args->>'n', '-'), ' ') from jobs.fetch('{queue}', 100); rollback"
    )
}

/// What apt says of a package that this Debian does not have.
fn apt_says(package: &str) -> String {
    let apt = Command::new("apt-get").args(["install", "-s", package]).output();
    let said = apt.map(|apt| String::from_utf8_lossy(&apt.stderr).into_owned());
    let said = said.unwrap_or_else(|error| error.to_string());
    said.lines().next_back().unwrap_or_default().into()
}
