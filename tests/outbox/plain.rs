//! Servers without the extension, of each major that can be had.

use std::path::Path;
use std::process::Command;

use jobs_tests::checks::{Checks, Outcome, feed, holds, output, same};
use jobs_tests::{Cluster, Postgres, dev};

use crate::{ROLES, create_database, install, psql, read, refused, says};

/// Those that are had without a build.
const MAJORS: [&str; 4] = ["15", "13", "14", "16"];

/// On all of these or, where another major was asked for, on that one.
pub fn runs(checks: &mut Checks) {
    let installed = Postgres::installed();
    let named = checks.part().strip_prefix("plain_").map(str::to_owned);
    let majors = match (&named, MAJORS[0] == installed.major()) {
        (Some(named), _) => vec![&**named],
        (None, true) => MAJORS.to_vec(),
        (None, false) => vec![installed.major()],
    };
    for major in majors {
        let name = format!("plain_{major}");
        if !checks.wants(&name) {
            continue;
        }
        match dev(&["plain_postgres", major]) {
            Ok(said) => {
                let pg_config = said.lines().next_back().expect("a path").to_string();
                on(&mut Major { checks, name }, &pg_config);
            }
            Err(error) => {
                checks.cannot(&name, format!("./dev call plain_postgres {major}"), &error)
            }
        }
    }
}

/// The tests on a server of a major.
struct Major<'a> {
    checks: &'a mut Checks,
    name: String,
}

impl Major<'_> {
    fn check(&mut self, what: &str, outcome: Outcome) {
        self.checks.check(format!("{}: {what}", self.name), outcome);
    }
}

fn on(major: &mut Major, pg_config: &str) {
    let builder = Cluster::builder().postgres(Path::new(pg_config)).without_preload();
    let cluster = builder.start();
    cluster.psql("postgres", ROLES);
    for name in ["calls", "sessions"] {
        create_database(&cluster, name);
    }
    cluster.psql("calls", "grant create on database calls to producer");
    major.check("the calls answer what they must", calls(&cluster));
    major.check("roles can do what they were granted", prints(&cluster, "calls", "rights"));
    major.check("sessions beside each other", prints(&cluster, "sessions", "sessions"));
    let wrong = same(&read("rights.out").replace("available", "scheduled"), &read("rights.out"));
    major.checks.refuses(format!("{}: control: another answer is refused", major.name), wrong);
    major.check("a dump has all of it", dumped(&cluster));
    major.check("a dump of the schema becomes another outbox", schema_dumped(&cluster));
    major.check("a role of any name can own it", owned(&cluster));
    major.check("several can run the file at once", at_once(&cluster));
    major.check("default privileges give nothing", default_privileges(&cluster));
    refusals(major, &cluster);
    major.check("a standby refuses inserts", standby(&cluster));
    major.checks.end(cluster);
}

fn calls(cluster: &Cluster) -> Outcome {
    let said = says(&mut psql(cluster, "calls", "app"), &read("calls.sql"));
    same(&read("calls.out"), &said.replace(&format!("1{}", "0".repeat(400)), "1e400"))
}

/// A script prints what is expected, with no process's number.
fn prints(cluster: &Cluster, database: &str, script: &str) -> Outcome {
    let another = psql(cluster, database, "app");
    let words = std::iter::once(another.get_program()).chain(another.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let mut psql = psql(cluster, database, "app");
    let said = says(psql.env("PSQL", words.join(" ")), &read(&format!("{script}.sql")));
    let pid = regex::Regex::new("PID [0-9]+").expect("a regex");
    same(&read(&format!("{script}.out")), &pid.replace_all(&said, "PID 0"))
}

/// The source's id, rows, rights and the next id.
fn dumped(cluster: &Cluster) -> Outcome {
    cluster.psql(
        "sessions",
        "select jobs.grant_producer('producer'); select jobs.insert('dumped', queue => 'q')",
    );
    cluster.psql("postgres", "create database restored owner app");
    let dump = output(cluster.client("pg_dump").args(["-d", "sessions"]))?;
    let mut restore = psql(cluster, "restored", "postgres");
    let (ended_well, said) = feed(restore.args(["-v", "ON_ERROR_STOP=1", "-f", "-"]), &dump);
    holds(ended_well, said)?;
    let all = "select id from jobs.outbox_source; select * from jobs.outbox order by id";
    same(&cluster.psql("sessions", all), &cluster.psql("restored", all))?;
    let mut producer = psql(cluster, "restored", "producer");
    same("available", &output(producer.args(["-c", "select state from jobs.insert('new')"]))?)?;
    let is_next = "select max(id) - min(id), max(job ->> 'kind') filter (where id = (select max(id) from jobs.outbox)) from jobs.outbox";
    same("1|new", &cluster.psql("restored", is_next))?;
    install(cluster, "restored", "app")?;
    same("2", &cluster.psql("restored", "select count(*) from jobs.outbox"))
}

fn schema_dumped(cluster: &Cluster) -> Outcome {
    cluster.psql("postgres", "create database schema_only owner app");
    let dump = output(cluster.client("pg_dump").args(["-d", "sessions", "--schema-only"]))?;
    cluster.psql("schema_only", &dump);
    install(cluster, "schema_only", "app")?;
    let source = |database| cluster.psql(database, "select id from jobs.outbox_source");
    holds(
        source("schema_only").len() == 37 && source("schema_only") != source("sessions"),
        "one id",
    )
}

fn owned(cluster: &Cluster) -> Outcome {
    const OWNER: &str = "Owner \"of\" it";
    cluster.psql(
        "postgres",
        &format!(
            "create role \"{0}\" login; create database owned owner \"{0}\"",
            OWNER.replace('"', "\"\"")
        ),
    );
    install(cluster, "owned", OWNER)?;
    install(cluster, "owned", OWNER)?;
    let revoke = format!("select jobs.grant_producer('{OWNER}'), jobs.revoke('{OWNER}')");
    output(psql(cluster, "owned", OWNER).args(["-c", &revoke]))?;
    cluster.psql("owned", &revoke);
    let insert = "select state from jobs.insert('after both')";
    same("available", &output(psql(cluster, "owned", OWNER).args(["-c", insert]))?)
}

fn at_once(cluster: &Cluster) -> Outcome {
    cluster.psql("postgres", "create database at_once owner app");
    let all: Vec<_> = std::thread::scope(|scope| {
        let installs = [0; 4].map(|_| scope.spawn(|| install(cluster, "at_once", "app")));
        installs.into_iter().map(|install| install.join().expect("an install")).collect()
    });
    all.into_iter().collect::<Result<(), _>>()?;
    same("1", &cluster.psql("at_once", "select count(*) from jobs.outbox_source"))
}

fn default_privileges(cluster: &Cluster) -> Outcome {
    cluster.psql("postgres", "create database defaults owner app");
    let grant = "grant all on schemas to producer, public; alter default privileges for role app grant all on tables to producer, public; alter default privileges for role app grant all on functions to producer, public; alter default privileges for role app grant all on sequences to producer";
    cluster.psql("defaults", &format!("alter default privileges for role app {grant}"));
    install(cluster, "defaults", "app")?;
    let rights = "select relname from pg_class, aclexplode(relacl) where relnamespace = 'jobs'::regnamespace and grantee <> relowner
        union all select proname from pg_proc, aclexplode(proacl) where pronamespace = 'jobs'::regnamespace and grantee <> proowner
        union all select 'producer' from pg_namespace, aclexplode(nspacl) where nspname = 'jobs' and grantee = 'producer'::regrole";
    same("", &cluster.psql("defaults", rights))
}

fn refusals(major: &mut Major, cluster: &Cluster) {
    let script = [
        "create database others owner app",
        "create database occupied owner app",
        "create database empty owner app",
        "create database latin owner app encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'",
    ];
    cluster.psql("postgres", &script.join(";\n"));
    cluster.psql("others", "create schema jobs");
    cluster.psql("occupied", "create schema jobs authorization app create table outbox (id int)");
    cluster.psql("empty", "create schema jobs authorization app");
    let is_refused = |database, message| refused(install(cluster, database, "app"), message);
    major
        .check("a schema of somebody else's", is_refused("others", "must be owner of schema jobs"));
    major.check(
        "a schema with something else",
        is_refused("occupied", "schema jobs has other objects"),
    );
    let encoding = "jobs requires a database with encoding UTF8";
    major.check("another encoding", is_refused("latin", encoding));
    let none = "select count(*) from pg_proc where pronamespace = to_regnamespace('jobs')";
    let left = ["others", "occupied", "latin"].map(|name| cluster.psql(name, none)).concat();
    major.check("what is refused leaves nothing", same("0\n0\n0", &left));
    major.check("an empty schema of one's own is taken", install(cluster, "empty", "app"));
}

fn standby(cluster: &Cluster) -> Outcome {
    let standby = cluster.standby();
    let mut insert: Command = psql(&standby, "restored", "app");
    let said = says(&mut insert, "\\set SHOW_CONTEXT never\nselect jobs.insert('a');");
    same("ERROR:  cannot write jobs on a standby\nHINT:  Connect to the primary.", &said)
}
