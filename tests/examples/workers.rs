//! One test of the example workers, whatever their language.
//!
//! Every worker knows these kinds of jobs: `ok`; `fail_once`, whose first attempt fails; `slow`,
//! which takes args.seconds; `endless`, which ends only when it is stopped; and some that must fail
//! and not end their worker: `bad_error`, whose error the database cannot hold, `bad_output`
//! likewise, `broken`, which throws what is no error, exits, panics, and `refused` and `not_found`,
//! whose rows a trigger refuses with the SQLSTATEs that a lost job has. A job that is done leaves a
//! row in the table `done`, which has no key, so that a row too many is seen. Workers are started
//! with short leases, so that only heartbeats keep a slow job.

use std::fmt::Display;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use jobs_tests::checks::{Checks, Outcome, holds, output, same};
use jobs_tests::{Cluster, ROOT, need, state_directory};

use crate::{becomes, sql};

pub const LANGUAGES: [&str; 2] = ["python", "shell"];

const BEFORE: &str = "set client_min_messages = warning; drop table if exists done; create table done (job_id bigint, attempt int, worker text);
create or replace function refuse() returns trigger language plpgsql as $$ begin
  case (select kind from jobs.jobs where id = new.job_id)
    when 'refused' then raise object_not_in_prerequisite_state using detail = 'lease_lost', message = 'this row is refused';
    when 'not_found' then raise no_data_found using message = 'this row is refused';
    else return new;
  end case;
end $$;
create trigger refuse before insert on done for each row execute function refuse()";

/// The test of a language.
struct Test<'a> {
    checks: &'a mut Checks,
    cluster: &'a Cluster,
    language: &'static str,
}

pub fn work(checks: &mut Checks, cluster: &Cluster, language: &'static str) {
    if language == "python" {
        let python = need(&["need_python", "python", "clients/examples/python/requirements.txt"]);
        if let Err(said) = python {
            return checks.check("the python worker can be built", Err(said));
        }
    }
    sql(cluster, BEFORE);
    let mut test = Test { checks, cluster, language };
    test.works();
    test.stops();
    test.stops_on_command();
    test.dies();
}

impl Test<'_> {
    fn check(&mut self, what: impl Display, outcome: Outcome) {
        self.checks.check(format!("{}: {what}", self.language), outcome);
    }

    fn becomes(&mut self, what: impl Display, condition: &str) {
        self.check(what, becomes(self.cluster, condition));
    }

    fn sql(&self, script: &str) {
        sql(self.cluster, script);
    }

    fn start(&self, workers: usize, queue: &str) -> Workers {
        Workers((0..workers).map(|_| self.worker(queue)).collect())
    }

    fn worker(&self, queue: &str) -> Child {
        // What a shell starts in the background ignores SIGINT, and so would a worker.
        let mut worker = Command::new("env");
        worker.arg("--default-signal=INT");
        match self.language {
            "python" => worker
                .arg(state_directory().join("python/bin/python"))
                .arg("clients/examples/python/worker.py"),
            _ => worker.arg("clients/examples/shell/worker.sh"),
        };
        let host = self.cluster.directory().display().to_string().replace('/', "%2F");
        let path = std::env::var("PATH").unwrap_or_default();
        worker.arg(queue).current_dir(ROOT).process_group(0);
        worker.env("PATH", format!("{}:{path}", self.cluster.postgres().bindir.display()));
        worker.env("DATABASE_URL", format!("postgresql://postgres@{host}/jobs"));
        worker.env("LEASE", "6").env("CONCURRENCY", "4").env("GRACE", "8");
        worker.spawn().expect("a worker")
    }

    /// What the queue and the table `done` hold, one line for each kind and state.
    fn left(&self, queue: &str, expected: &str) -> Outcome {
        let query = format!(
            "select format('%s %s %s jobs, attempts %s..%s, errors %s..%s, rows %s..%s', kind, state, count(*), min(attempt), max(attempt),
                 min(errors), max(errors), min(done), max(done))
               from (select kind, state, attempt, (select count(*) from jobs.errors e where e.job_id = j.id) as errors,
                 (select count(*) from done d where d.job_id = j.id and d.attempt = j.attempt) + (select count(*) from done d where d.job_id = j.id and d.attempt <> j.attempt) * 1000 as done
                 from jobs.jobs j where queue = '{queue}') s
               group by kind, state order by kind, state"
        );
        same(expected, &sql(self.cluster, &query))
    }

    fn works(&mut self) {
        let queue = self.language;
        let in_queue = format!("from jobs.jobs where queue = '{queue}'");
        self.sql(&format!(
            r#"select jobs.insert(kind, '{{"seconds": 10}}', queue => '{queue}', max_attempts => case when n = 6 then 1 end)
               from (values (1, 2, 'endless'), (2, 5, 'slow'), (3, 150, 'ok'), (4, 40, 'fail_once'), (5, 3, 'unheard_of'), (6, 2, 'bad_error'), (6, 2, 'bad_output'),
                 (6, 2, 'broken'), (6, 2, 'refused'), (6, 2, 'not_found')) v(n, many, kind), generate_series(1, many)"#
        ));
        let workers = self.start(2, queue);
        self.becomes(
            "endless jobs run",
            &format!("count(*) = 2 {in_queue} and kind = 'endless' and state = 'running'"),
        );
        self.sql(&format!(
            "select jobs.cancel(min(id)), jobs.cancel(max(id), force => true) {in_queue} and kind = 'endless'"
        ));
        self.becomes(
            "all jobs end",
            &format!("count(*) = 210 {in_queue} and finalized_at is not null"),
        );
        let left = self.left(
            queue,
            "bad_error discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
bad_output discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
broken discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
endless cancelled 2 jobs, attempts 1..1, errors 0..0, rows 0..0
fail_once completed 40 jobs, attempts 2..2, errors 1..1, rows 1..1
not_found discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
ok completed 150 jobs, attempts 1..1, errors 0..0, rows 1..1
refused discarded 2 jobs, attempts 1..1, errors 1..1, rows 0..0
slow completed 5 jobs, attempts 1..1, errors 0..0, rows 1..1
unheard_of discarded 3 jobs, attempts 1..1, errors 1..1, rows 0..0",
        );
        self.check("each job is in the state that it must be in", left);
        let another = self.left(queue, "ok completed 151 jobs");
        let what = format!("{queue}: control: another outcome is refused");
        self.checks.refuses(what, another);
        self.becomes(
            "each error has its text and a type",
            &format!(
                "count(*) = 53 and bool_and(e.error <> '' and length(e.error) < 11000 and e.details->>'type' <> '')
                   from jobs.errors e where e.job_id in (select id {in_queue})"
            ),
        );
        self.becomes(
            "what refused a row is in the error",
            &format!("count(*) = 4 from jobs.errors e where e.error like '%this row is refused%' and e.job_id in (select id {in_queue})"),
        );
        self.becomes("both workers had jobs", "count(distinct worker) = 2 from done");

        self.becomes(
            "idle workers wait for work",
            "count(*) = 2 from pg_stat_activity where query ilike 'call jobs.wait%' and state = 'active'",
        );
        self.sql(&format!("select jobs.insert('ok', queue => '{queue}')"));
        self.becomes(
            "and take it when it comes",
            &format!("count(*) = 1 {in_queue} and id = (select max(id) {in_queue}) and state = 'completed'"),
        );
        self.obey();
        workers.signal("TERM");
        self.check("idle workers stop", workers.end_well());
    }

    /// Idle workers say that they are there; quiet ones fetch nothing, and go on when they may.
    fn obey(&mut self) {
        let queue = self.language;
        let in_queue = format!("from jobs.jobs where queue = '{queue}'");
        let last = format!("{in_queue} and id = (select max(id) {in_queue})");
        let workers = format!("from jobs.workers where queues = '{{{queue}}}'");
        self.becomes(
            "idle workers are seen",
            &format!("count(*) = 2 and bool_and(status = 'idle' and concurrency = 4) {workers}"),
        );
        // A fetch that is under way when its worker is told may yet take what is inserted
        // meanwhile.
        self.sql(&format!("select jobs.quiet_worker(worker) {workers}"));
        self.becomes(
            "quiet workers wait",
            "count(*) = 2 from pg_stat_activity
               where query ilike 'call jobs.wait_any%' and state = 'active' and query_start > (select max(commanded_at) from jobs.worker_command)",
        );
        self.sql(&format!("select jobs.insert('ok', queue => '{queue}')"));
        self.becomes("and leave the job", &format!("state = 'available' {last}"));
        self.sql(&format!("select jobs.resume_worker(worker) {workers}"));
        self.becomes("until they are resumed", &format!("state = 'completed' {last}"));
    }

    /// SIGTERM while jobs run: what ends within the grace period is completed, the rest is given
    /// back, nothing new is begun.
    fn stops(&mut self) {
        let queue = format!("{}_stops", self.language);
        let in_queue = format!("from jobs.jobs where queue = '{queue}'");
        self.sql(&format!(
            "select jobs.insert('endless', queue => '{queue}') from generate_series(1, 7)"
        ));
        let workers = self.start(2, &queue);
        self.becomes(
            "seven endless jobs run",
            &format!("count(*) = 7 {in_queue} and state = 'running'"),
        );
        self.sql(&format!(
            r#"select jobs.insert('slow', '{{"seconds": 1.5}}', queue => '{queue}')"#
        ));
        self.becomes(
            "and one that ends soon",
            &format!("state in ('running', 'completed') {in_queue} and kind = 'slow'"),
        );
        workers.signal("TERM");
        std::thread::sleep(Duration::from_millis(300));
        self.becomes(
            "no worker looks for more",
            "not exists (select from pg_stat_activity
               where state = 'active' and query ~* 'jobs.(fetch|wait)' and pid <> pg_backend_pid())",
        );
        self.sql(&format!("select jobs.insert('ok', queue => '{queue}')"));
        self.check("workers with jobs stop", workers.end_well());
        let left = self.left(
            &queue,
            "endless available 7 jobs, attempts 0..0, errors 0..0, rows 0..0
ok available 1 jobs, attempts 0..0, errors 0..0, rows 0..0
slow completed 1 jobs, attempts 1..1, errors 0..0, rows 1..1",
        );
        self.check("what ran when they were stopped is done or given back", left);
    }

    /// With the command stop they end what runs, however long that takes, and begin nothing.
    fn stops_on_command(&mut self) {
        let queue = format!("{}_commands", self.language);
        let in_queue = format!("from jobs.jobs where queue = '{queue}'");
        let told = format!("from jobs.workers where queues = '{{{queue}}}'");
        self.sql(&format!(
            r#"select jobs.insert('slow', '{{"seconds": 12}}', queue => '{queue}') from generate_series(1, 5)"#
        ));
        let workers = self.start(2, &queue);
        self.becomes(
            "its slow jobs run",
            &format!("count(*) = 5 {in_queue} and state = 'running'"),
        );
        self.sql(&format!("select jobs.stop_worker(worker) {told}"));
        // As with quiet workers.
        self.becomes(
            "no fetch is under way",
            "not exists (select from pg_stat_activity
               where state = 'active' and query ilike '%jobs.fetch%' and pid <> pg_backend_pid())",
        );
        self.sql(&format!("select jobs.insert('ok', queue => '{queue}')"));
        self.check("workers that are told to stop end", workers.end_well());
        let left = self.left(
            &queue,
            "ok available 1 jobs, attempts 0..0, errors 0..0, rows 0..0
slow completed 5 jobs, attempts 1..1, errors 0..0, rows 1..1",
        );
        self.check("once what ran is done", left);
        self.sql(&format!("select jobs.resume_worker(worker) {told}"));
    }

    /// SIGKILL: the leases of its jobs run out, and another worker does them.
    fn dies(&mut self) {
        let queue = format!("{}_dies", self.language);
        let in_queue = format!("from jobs.jobs where queue = '{queue}'");
        self.sql(&format!(
            r#"select jobs.insert('slow', '{{"seconds": 3}}', queue => '{queue}') from generate_series(1, 4)"#
        ));
        let killed = self.start(1, &queue);
        self.becomes("its jobs run", &format!("count(*) = 4 {in_queue} and state = 'running'"));
        drop(killed);
        let workers = self.start(1, &queue);
        self.becomes(
            "the jobs of a dead worker are done by another one",
            &format!("count(*) = 4 {in_queue} and state = 'completed'"),
        );
        let left =
            self.left(&queue, "slow completed 4 jobs, attempts 2..2, errors 1..1, rows 1..1");
        self.check("by its second attempt, once", left);
        workers.signal("INT");
        self.check("it stops", workers.end_well());
    }
}

/// Workers, each in a process group of its own. When dropped, each is killed with all that it
/// started, as when the machine dies.
struct Workers(Vec<Child>);

impl Workers {
    fn signal(&self, signal: &str) {
        for worker in &self.0 {
            output(Command::new("kill").args(["-s", signal, &worker.id().to_string()]))
                .expect("kill");
        }
    }

    /// They all end with status 0.
    fn end_well(mut self) -> Outcome {
        for worker in &mut self.0 {
            let status = worker.wait().expect("a worker");
            holds(status.success(), format!("a worker ended with {status}"))?;
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let group = format!("-{}", worker.id());
            let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).output();
            let _ = worker.wait();
        }
    }
}
