//! The suite `standby`: on a streaming standby everything works that only reads, and tells how far
//! behind it is; what writes says so. A part is `sql`, `program` or `console`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use jobs_tests::checks::{Checks, Outcome, feed, holds, same, suite};
use jobs_tests::{Cluster, SOON, pgjobs};
use regex::Regex;

/// Jobs of each kind that a screen has something to show of.
const JOBS: &str = r#"
create extension jobs;
select from jobs.insert('report', '{"n": 1}');
select from jobs.insert('mail', queue => 'mail', unique_opts => '{"by_kind": true}');
select from jobs.insert('fails', queue => 'fails');
select from jobs.fetch('fails') f, jobs.fail(f.id, f.token, 'broken');
select from jobs.worker_beat('w', '{default}', 1);
select from jobs.schedule('daily', '@daily', 'report');
select from jobs.define_limit('one', concurrency => 1);
select from jobs.order_queue('mail', '{"by_args": ["t"]}', strict => true);
"#;

/// The functions that only read; every other one writes.
const READS: &str = "cell_for check count_queues explain explain_unique forwarded_open health history \
    idle_runs is_copy_of_cell is_preloaded last_id metrics ojs_manifest order_key order_weight \
    results settings_digest show takes_queue top unique_key wait_for";

fn main() -> ExitCode {
    suite(|checks| {
        let cluster = Cluster::builder().with_tcp().set("jobs.enabled", "off").start();
        cluster.psql("postgres", "create database app");
        cluster.psql("app", JOBS);
        if let Err(said) = pgjobs() {
            return checks.check("the program is built", Err(said));
        }
        let standby = cluster.standby();
        let servers = Servers { cluster: &cluster, standby: &standby };
        checks.check("the standby has the jobs", servers.has("count(*) = 3 from jobs.jobs"));
        let parts: [(&str, Part); 3] = [("sql", sql), ("program", program), ("console", console)];
        for (name, part) in parts {
            if checks.wants(name) {
                part(checks, &servers);
            }
        }
        lag(checks, &servers);
        checks.end(standby);
        checks.end(cluster);
    })
}

/// The tests of a part.
type Part = fn(&mut Checks, &Servers);

struct Servers<'a> {
    cluster: &'a Cluster,
    standby: &'a Cluster,
}

impl Servers<'_> {
    /// This becomes true on the standby.
    fn has(&self, condition: &str) -> Outcome {
        eventually(condition, || self.ask(&format!("select {condition}")) == "t")
    }

    fn ask(&self, statement: &str) -> String {
        self.standby.psql("app", statement).trim().into()
    }

    /// The program at one of the servers: whether it ends well, and both of its streams.
    fn run(&self, server: &Cluster, arguments: &[&str]) -> (bool, String) {
        let mut program = Command::new(pgjobs().expect("the program"));
        feed(program.args(["-d", &url(server)]).args(arguments), "")
    }
}

fn url(server: &Cluster) -> String {
    format!("postgresql://postgres@127.0.0.1:{}/app", server.port())
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> Outcome {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > SOON {
            return Err(format!("never: {what}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Every view and every function.
fn sql(checks: &mut Checks, servers: &Servers) {
    let views = servers.ask("select viewname from pg_views where schemaname = 'jobs' order by 1");
    for view in views.lines() {
        let rows =
            format!("select count(*) >= 0 from (select to_json(v)::text from jobs.{view} v) v");
        checks.check(format!("the view {view}"), same("t", &servers.ask(&rows)));
    }
    let (mut reads, mut writes) = (BTreeSet::new(), Vec::new());
    let calls = calls(servers);
    for (name, call) in &calls {
        match refusal(servers.standby, call) {
            None => drop(reads.insert(name.as_str())),
            Some(said) => writes.push((name, said)),
        }
    }
    let reads = reads.into_iter().collect::<Vec<_>>().join(" ");
    checks.check("these functions work there, and no others", same(READS, &reads));
    for (name, said) in writes {
        let is_clear = said.contains("25006: cannot write jobs on a standby")
            && said.contains("HINT:  Connect to the primary.");
        checks.check(format!("{name} says that it writes"), holds(is_clear, said));
    }
    let primary = calls.iter().find(|(name, _)| name == "unschedule").expect("a call");
    let written = refusal(servers.cluster, &primary.1);
    checks.check("control: the primary takes it", holds(written.is_none(), "it is refused"));
}

/// A call of each function, with a value for each parameter that needs one.
fn calls(servers: &Servers) -> Vec<(String, String)> {
    const CALLS: &str = "
        select p.proname || ' ' || case p.prokind when 'p' then 'call ' else 'select * from ' end || 'jobs.' || p.proname || '(' ||
            coalesce((select string_agg(case
                when n.name = 'cron' then quote_literal('@daily') when n.name = 'jobs' then quote_literal('[{\"kind\": \"k\"}]')
                when n.name = 'results' then quote_literal('[]') when n.name = 'role' then quote_literal('pg_monitor')
                when n.name = 'queue' then quote_literal('mail') when n.type = 'bigint' then '1'
                when n.type = 'integer' then '1' when n.type = 'interval' then quote_literal('1 s')
                when n.type = 'jsonb' then quote_literal('{}') when n.type = 'jsonb[]' then quote_literal('{1}')
                when n.type = 'uuid' then 'gen_random_uuid()' when n.type = 'uuid[]' then 'array[gen_random_uuid()]'
                when n.type ~ '^timestamp' then 'now()' when n.type ~ '\\[\\]' then quote_literal('{1}') else quote_literal('k') end, ', ' order by n.place)
              from unnest(p.proargnames[1:p.pronargs - p.pronargdefaults], array(select format_type(t, null) from unnest(p.proargtypes) t)) with ordinality n(name, type, place)
              where n.name is not null), '') || ')'
        from pg_proc p where p.pronamespace = 'jobs'::regnamespace and p.proname <> 'installed' -- for scripts alone
        order by 1";
    let calls = servers.ask(CALLS);
    let parted = calls.lines().map(|line| line.split_once(' ').expect("a call"));
    parted.map(|(name, call)| (name.into(), call.into())).collect()
}

/// What a server says if the call writes where it must not.
fn refusal(server: &Cluster, call: &str) -> Option<String> {
    let mut psql = server.client("psql");
    psql.args(["-X", "-q", "-v", "VERBOSITY=verbose", "-d", "app", "-c", call]);
    let (_, said) = feed(&mut psql, "");
    said.contains("25006").then_some(said)
}

/// `pgjobs`.
fn program(checks: &mut Checks, servers: &Servers) {
    checks.check("the standby is not behind", servers.has(&format!("{LAG} = 0")));
    let reads: [&[&str]; 6] = [
        &["top", "--once"],
        &["top", "--json"],
        &["show", "1"],
        &["list"],
        &["explain", "1"],
        &["health"],
    ];
    for command in reads {
        let (_, there) = servers.run(servers.standby, command);
        let works = !there.is_empty() && !there.starts_with("pgjobs:");
        checks.check(format!("pgjobs {}", command.join(" ")), holds(works, &there));
    }
    let shown = |server, command: &[&str], words: &str| {
        let (_, said) = servers.run(server, command);
        let words = Regex::new(words).expect("a regex");
        holds(words.is_match(&said), said)
    };
    let not_behind = r#""standby": ?\{"lag_seconds":0(.0)?\}"#;
    for (command, words) in [
        (&["top", "--once"][..], "^standby, not behind the primary\n"),
        (&["top", "--json"], not_behind),
        (&["health"], "^standby, not behind the primary\n"),
        (&["health", "--json"], not_behind),
    ] {
        let what = format!("pgjobs {} has the lag", command.join(" "));
        // What the primary writes by itself may still be on its way.
        checks.check(&what, eventually(&what, || shown(servers.standby, command, words).is_ok()));
        checks.refuses(
            format!("control: {what}: not of a primary"),
            shown(servers.cluster, command, words),
        );
    }
    for command in [
        &["insert", "k"][..],
        &["retry", "1"],
        &["cancel", "1"],
        &["cancel", "--queue", "mail", "--yes"],
        &["pause", "mail"],
        &["resume", "mail"],
    ] {
        let (ended_well, said) = servers.run(servers.standby, command);
        let words = "cannot write jobs on a standby\nHINT: Connect to the primary.";
        let is_clear = !ended_well && said.contains(words) && said.matches("HINT").count() == 1;
        checks.check(format!("pgjobs {} says why not", command.join(" ")), holds(is_clear, said));
    }
    let (inserted, said) = servers.run(servers.cluster, &["insert", "k"]);
    checks.check("control: the primary takes a job", holds(inserted, said));
}

/// The console.
fn console(checks: &mut Checks, servers: &Servers) {
    let here = Console::start(servers.cluster);
    let there = Console::start(servers.standby);
    let screens = [
        "/",
        "/jobs",
        "/jobs/1",
        "/jobs/3",
        "/failures",
        "/queues",
        "/queue?name=mail",
        "/workers",
        "/worker?name=w",
        "/limits",
        "/limit?name=one",
        "/order?name=mail",
        "/periodic",
        "/periodic/job?name=daily",
        "/unique",
        "/audit",
        "/maintenance",
    ];
    for screen in screens {
        let page = there.get(screen);
        let is_whole = page.starts_with("HTTP/1.0 200") && page.contains("the primary</span>");
        checks.check(format!("the screen {screen}"), holds(is_whole, page));
    }
    let offers = |console: &Console, screen: &str, action: &str| {
        let page = console.get(screen);
        holds(page.contains(&format!("action=\"{action}\"")), page)
    };
    for (screen, action) in [
        ("/jobs/1", "/jobs/1/cancel"),
        ("/queue?name=mail", "/queue/pause"),
        ("/worker?name=w", "/worker/quiet"),
        ("/periodic/job?name=daily", "/periodic/run"),
        ("/maintenance", "/maintenance/run"),
    ] {
        checks.refuses(format!("{action} is not offered"), offers(&there, screen, action));
        checks.check(format!("control: {action} on the primary"), offers(&here, screen, action));
    }
    let page = there.get("/jobs/1");
    let part = |pattern: &str| {
        let pattern = Regex::new(pattern).expect("a regex");
        pattern.captures(&page).map_or_else(String::new, |found| found[1].into())
    };
    let (cookie, token) = (part("set-cookie: ([^;]*)"), part(r#"name="csrf" value="([^"]*)""#));
    let post = |path: &str, form: &str| there.post(path, &cookie, &format!("csrf={token}{form}"));
    let refused = post("/jobs/1/cancel", "");
    let is_clear = refused.starts_with("HTTP/1.0 409")
        && refused.contains("Nothing can be changed on a standby.")
        && refused.contains("Connect the console to the primary.");
    checks.check("an action says why not", holds(is_clear, refused));
    let tried =
        "&kind=mail&queue=mail&args=&meta=&scheduled_at=&unique_opts=%7B%22by_kind%22%3A+true%7D";
    let unique = post("/unique/explain", tried);
    checks.check("unique options can be tried", holds(unique.starts_with("HTTP/1.0 200"), unique));
    let checked = post("/maintenance/check", "");
    checks.check("jobs.check() runs", holds(checked.contains("All invariants hold."), checked));
    let healthy = there.get("/healthz");
    checks.check("/healthz", holds(healthy.starts_with("HTTP/1.0 200"), healthy));
    let has_lag = |console: &Console| {
        let metrics = console.get("/metrics");
        holds(metrics.contains("\njobs_replication_lag_seconds "), metrics)
    };
    checks.check("/metrics has the lag", has_lag(&there));
    checks.refuses("control: not of a primary", has_lag(&here));
}

struct Console {
    process: Child,
    address: String,
}

impl Console {
    fn start(server: &Cluster) -> Self {
        let mut program = Command::new(pgjobs().expect("the program"));
        program.args(["-d", &url(server), "console", "--listen", "127.0.0.1:0"]);
        let mut process = program.stdout(Stdio::piped()).spawn().expect("pgjobs");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = Regex::new("http://([^/ \n]+)").expect("a regex");
        let address = address.captures(&line).unwrap_or_else(|| panic!("it says {line:?}"));
        Self { address: address[1].into(), process }
    }

    fn get(&self, path: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    }

    fn post(&self, path: &str, cookie: &str, form: &str) -> String {
        let length = form.len();
        self.say(&format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nCookie: {cookie}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\n\r\n{form}"
        ))
    }

    fn say(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const LAG: &str =
    "(select value from jobs.metrics() where metric = 'jobs_replication_lag_seconds')";

/// The lag grows while nothing is replayed, and while the primary is away.
fn lag(checks: &mut Checks, servers: &Servers) {
    let tells = |words: &str| {
        let words = Regex::new(words).expect("a regex");
        let (_, top) = servers.run(servers.standby, &["top", "--once"]);
        holds(words.is_match(&top), top)
    };
    let cell = |number| format!("select jobs.set_cell({number}), jobs.place_queue('*', 0);");
    servers.cluster.psql("postgres", "create database other");
    servers.cluster.psql("other", &format!("create extension jobs; {}", cell(1)));
    servers.cluster.psql("app", &cell(0));
    // Before the first one there is no lag.
    servers.cluster.psql("app", "select from jobs.insert('soon')");
    checks.check(
        "the standby replays",
        servers.has("count(*) = 1 from jobs.jobs where kind = 'soon'"),
    );
    checks.check("the standby is not behind", servers.has(&format!("{LAG} = 0")));
    let not_behind = || tells("^standby, not behind the primary\n").is_ok();
    // As above.
    checks.check("and says so", eventually("it says so", not_behind));
    servers.ask("select pg_wal_replay_pause()");
    servers.cluster.psql("app", "select from jobs.insert('late'); select jobs.define_kind('late')");
    let behind = "^standby, [0-9.]+ (ms|s|min|min [0-9]+ s) behind the primary\n";
    checks.check("it is behind while nothing is replayed", servers.has(&format!("{LAG} > 0")));
    checks.check("and says how far", tells(behind));
    let cells = |other: &str| {
        let (agree, said) = servers.run(servers.cluster, &["cells", &url(servers.cluster), other]);
        holds(agree, said)
    };
    checks.check("its kinds are not compared", cells(&url(servers.standby)));
    let other = url(servers.cluster).replace("/app", "/other");
    checks.refuses("control: those of another cell are", cells(&other));
    servers.ask("select pg_wal_replay_resume()");
    checks.check("and is not any more", servers.has(&format!("{LAG} = 0")));
    servers.cluster.stop(jobs_tests::Mode::Fast);
    checks.check("a standby without its primary is behind", servers.has(&format!("{LAG} > 0")));
    checks.check("and says so", tells(behind));
    servers.cluster.start_again();
}
