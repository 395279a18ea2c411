//! The suite `monitoring`: the files of ops/monitoring/, against a database of which every metric
//! has something to tell.
//!
//! What the files say is compared with jobs.metrics() by tests/monitoring.py; Debian's
//! postgres_exporter really runs, and promtool checks expressions and alerts. sql_exporter is in no
//! package: its queries run, and what it makes of their rows is done as it does it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use jobs_tests::checks::{Checks, Outcome, output, succeeds, suite};
use jobs_tests::{Cluster, ROOT, free_port, program, scratch_directory};

fn main() -> ExitCode {
    suite(monitoring)
}

fn monitoring(checks: &mut Checks) {
    let packages = [
        &["need_packages", "python3-yaml"][..],
        &["need_programs", "prometheus-postgres-exporter", "prometheus"],
    ];
    if !packages.iter().all(|need| checks.has("monitoring", "apt-get", need)) {
        return;
    }
    let settings = Cluster::builder().set("jobs.enabled", "off").set("autovacuum", "off");
    let cluster = settings.start();
    // Its rows are written by hand.
    cluster.allow_violations();
    cluster.psql("postgres", "create database jobs");
    let setup = fs::read_to_string(Path::new(ROOT).join("tests/monitoring/setup.sql"));
    cluster.psql("jobs", &setup.expect("setup.sql"));

    let files = Files::copy(&cluster);
    checks.check("every query gives a viewer what jobs.metrics() says", files.queries("viewer"));
    checks.check("both exporters have every metric, and no other", files.judge("complete"));
    checks.check("dashboard and alerts use what there is, and all of it", files.judge("names"));
    checks.check("the dashboard's expressions are PromQL", files.dashboard());
    checks.check("the alerts fire when they should", files.alerts());
    checks.check("what the alerts say runs", files.judge("annotations"));
    checks.check("postgres_exporter gives what jobs.metrics() says", files.exporter("viewer"));
    checks.finds(
        "control: who was granted nothing sees nothing",
        "permission denied",
        files.queries("stranger"),
    );
    checks.finds(
        "control: nor does the exporter",
        "the page does not have",
        files.exporter("stranger"),
    );
    controls(checks, &cluster);
    checks.end(cluster);
}

/// Each thing that is checked is made wrong in a copy.
fn controls(checks: &mut Checks, cluster: &Cluster) {
    let files = Files::copy(cluster);
    files.edit("postgres_exporter.yml", |line| {
        let is_forgotten = line.contains("- workers: ") && line.contains(" hold jobs");
        if is_forgotten { String::new() } else { line.into() }
    });
    checks.finds(
        "control: a metric that an exporter lacks",
        "yml, jobs_workers: None",
        files.judge("complete"),
    );
    checks.finds(
        "control: a column that nobody declared",
        "'workers.* not in both",
        files.queries("viewer"),
    );
    let files = Files::copy(cluster);
    let replace = |file, pairs: &[(&str, &str)]| {
        files.edit(file, |line| {
            pairs.iter().fold(line.to_string(), |line, (from, to)| line.replacen(from, to, 1))
        });
    };
    replace(
        "postgres_exporter.yml",
        &[("metric = 'jobs_fetched_total'", "metric = 'jobs_finished_total'")],
    );
    replace(
        "grafana.json",
        &[
            ("jobs_workers{", "jobs_worker{"),
            ("rate(jobs_inserted_total", "rte(jobs_inserted_total"),
        ],
    );
    replace("alerts.yml", &[("jobs_expired_leases > 0", "jobs_expired_leases > 3")]);
    checks.finds(
        "control: another value",
        "jobs_fetched_total.* by jobs.metrics",
        files.queries("viewer"),
    );
    checks.finds(
        "control: another value on the exporter's page",
        "jobs_fetched_total.* by jobs.metrics",
        files.exporter("viewer"),
    );
    checks.finds(
        "control: a name that does not exist",
        "jobs_worker has no label",
        files.judge("names"),
    );
    checks.finds("control: what is no PromQL", "unknown function", files.dashboard());
    replace("alerts.test.yml", &[("FROM jobs.queues WHERE", "FROM jobs.queue_s WHERE")]);
    checks.finds(
        "control: an alert that says what does not run",
        "queue_s\" does not exist",
        files.judge("annotations"),
    );
    checks.finds("control: an alert that does not fire", "JobsLeasesExpired", files.alerts());
}

/// A copy of the files, so that a control can change them.
struct Files<'a> {
    cluster: &'a Cluster,
    directory: tempfile::TempDir,
}

impl<'a> Files<'a> {
    fn copy(cluster: &'a Cluster) -> Self {
        let directory = scratch_directory();
        let mut copy = Command::new("cp");
        copy.current_dir(ROOT).args(["-r", "ops/monitoring/.", "tests/monitoring/alerts.test.yml"]);
        succeeds(copy.arg(directory.path())).expect("cp");
        Files { cluster, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn edit(&self, name: &str, edited: impl Fn(&str) -> String) {
        let text = fs::read_to_string(self.path(name)).expect(name);
        let text: String = text.split_inclusive('\n').map(edited).collect();
        fs::write(self.path(name), text).expect(name);
    }

    fn python(&self, what: &str) -> Command {
        let mut python = Command::new("/usr/bin/python3");
        python.current_dir(ROOT).args(["tests/monitoring.py", what]);
        let path = std::env::var("PATH").unwrap_or_default();
        python.env("PATH", format!("{}:{path}", self.cluster.postgres().bindir.display()));
        python
            .env("PGHOST", self.cluster.directory())
            .env("PGPORT", "5432")
            .env("PGDATABASE", "jobs");
        python
    }

    fn judge(&self, what: &str) -> Outcome {
        succeeds(self.python(what).arg(self.directory.path()))
    }

    fn queries(&self, role: &str) -> Outcome {
        succeeds(self.python("queries").arg(self.directory.path()).arg(role))
    }

    fn dashboard(&self) -> Outcome {
        let rules = output(self.python("rules").arg(self.directory.path()))?;
        fs::write(self.path("rules.yml"), rules).expect("rules.yml");
        succeeds(promtool().args(["check", "rules"]).arg(self.path("rules.yml")))
    }

    fn alerts(&self) -> Outcome {
        let mut test = promtool();
        test.current_dir(self.directory.path());
        succeeds(test.args(["test", "rules", "alerts.test.yml"]))
    }

    fn exporter(&self, role: &str) -> Outcome {
        let address = format!("127.0.0.1:{}", free_port());
        let mut exporter = Command::new("timeout");
        exporter.arg("120").arg(program("prometheus-postgres-exporter").expect("the exporter"));
        exporter.arg(format!("--web.listen-address={address}"));
        exporter
            .arg(format!("--extend.query-path={}", self.path("postgres_exporter.yml").display()));
        exporter.args(["--disable-default-metrics", "--disable-settings-metrics"]);
        let host = self.cluster.directory().display();
        exporter.env(
            "DATA_SOURCE_NAME",
            format!("host={host} port=5432 user={role} dbname=jobs sslmode=disable"),
        );
        let log = || fs::File::create(self.path("exporter.log")).expect("a log");
        let mut exporter = exporter
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .expect("the exporter");
        let page = self.path("page");
        let got = succeeds(self.python("get").arg(format!("http://{address}/metrics")).arg(&page));
        let outcome = got.and_then(|()| succeeds(self.python("scraped").arg(&page)));
        // It passes the signal on.
        let _ = Command::new("kill").arg(exporter.id().to_string()).status();
        let _ = exporter.wait();
        outcome
    }
}

fn promtool() -> Command {
    Command::new(program("promtool").expect("promtool"))
}
