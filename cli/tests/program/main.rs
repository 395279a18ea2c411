//! What the program promises, against the database at DATABASE_URL, which has the extension.

mod apply;
mod manage;
mod people;
mod processes;
mod signals;

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use tokio_postgres::types::FromSql;

struct Program {
    url: String,
    queue: String,
}

impl Program {
    /// With a queue of its own.
    fn new(test: &str) -> Self {
        let url = std::env::var("DATABASE_URL").expect("./dev test clients:rust sets DATABASE_URL");
        Self { url, queue: format!("{test} {}", std::process::id()) }
    }

    /// The URL of a database that does not exist.
    fn nowhere(&self) -> String {
        let (place, options) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (server, _) = place.rsplit_once('/').unwrap();
        format!("{server}/no_such_database?{options}")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgjobs"));
        command.args(["-d", &self.url]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The only line that it prints, and the exit code.
    fn json(&self, arguments: &[&str]) -> (Value, i32) {
        let output = self.run(&[&["--json"], arguments].concat(), "");
        let line = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (line, output.status.code().unwrap())
    }

    fn insert(&self, kind: &str, options: &[&str]) -> (Value, i32) {
        self.json(&[&["insert", kind, r#"{"n": [1, "ü"]}"#, "-q", &self.queue], options].concat())
    }

    /// The first value of a statement about this queue, which is $1.
    fn ask<T: for<'a> FromSql<'a>>(&self, statement: &str) -> T {
        block_on(async {
            let client = postgres_jobs::connect(&self.url.parse().unwrap()).await?;
            client.query_one(statement, &[&self.queue]).await?.try_get(0)
        })
    }

    /// Runs a statement that no transaction bears.
    fn change(&self, statement: &str) {
        block_on(async {
            let client = postgres_jobs::connect(&self.url.parse().unwrap()).await?;
            client.batch_execute(statement).await
        })
    }

    fn work(&self, options: &[&str], script: &str) -> Worker {
        self.work_into(options, script, Stdio::null(), Stdio::null())
    }

    fn work_into(&self, options: &[&str], script: &str, stdout: Stdio, stderr: Stdio) -> Worker {
        let work = ["work", "-q", &self.queue];
        let arguments = [&work, options, &["--", "sh", "-c", script]].concat();
        let jobs = self.command(&arguments);
        // The tests themselves may run under nohup.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").stdin(Stdio::piped());
        command.arg(jobs.get_program()).args(jobs.get_args());
        Worker(command.stdout(stdout).stderr(stderr).spawn().unwrap())
    }

    /// The job once it is in this state.
    fn job(&self, id: &Value, state: &str) -> Value {
        self.job_once(id, &[state])
    }

    /// The job once it has no attempt left.
    fn job_that_ended(&self, id: &Value) -> Value {
        self.job_once(id, &["completed", "discarded"])
    }

    fn job_once(&self, id: &Value, states: &[&str]) -> Value {
        let mut job = Value::Null;
        eventually(&format!("job {id} becomes {states:?}"), || {
            job = self.json(&["show", &id.to_string()]).0;
            job["state"].as_str().is_some_and(|state| states.contains(&state))
        });
        job
    }
}

/// Waits until it is so.
fn block_on<T>(asked: impl Future<Output = Result<T, tokio_postgres::Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(asked).unwrap()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

struct Worker(Child);

impl Worker {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn terminate(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.0.wait().unwrap().code()
    }

    /// Its exit code, once it has ended by itself.
    fn ended(mut self) -> Option<i32> {
        eventually("the worker ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No server listens there.
const NOWHERE: &str = "host=127.0.0.1 port=1";

/// A terminal, and what is written to it.
fn pty() -> (File, Stdio) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inside = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    (terminal.into(), inside.unwrap().into())
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

/// A pipe that is full, and what is read of it.
fn stalled() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    ioctl_fionbio(&writer, true).unwrap();
    while writer.write(b"\n").is_ok() {}
    ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}

/// A file that has no space.
fn full() -> Stdio {
    let file = std::fs::File::options().write(true).open("/dev/full");
    file.unwrap().into()
}

#[test]
fn a_program_gets_its_job_and_gives_its_output() {
    let program = Program::new("output");
    let script = r#"printf '{"args": %s, "job": ["%s", "%s", "%s", "%s", "%s"]}' \
        "$(cat)" "$JOBS_ID" "$JOBS_KIND" "$JOBS_QUEUE" "$JOBS_ATTEMPT" "$JOBS_MAX_ATTEMPTS""#;
    let worker = program.work(&[], script);
    let (result, code) = program.insert("k", &["--wait", "60", "--max-attempts", "7"]);
    assert_eq!(code, 0, "{result}");
    let job = json!([result["id"].to_string(), "k", program.queue, "1", "7"]);
    assert_eq!(result["output"], json!({ "args": { "n": [1, "ü"] }, "job": job }));
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn an_output_that_is_no_json_is_kept_as_text() {
    let program = Program::new("text");
    let script = r#"case $JOBS_KIND in
        text) printf ' hello\0\n"world"\n\n';;
        none) echo;;
        long) head -c 65535 /dev/zero | tr '\0' x; printf 'ébeyond\n';;
        esac"#;
    let mut worker = program.work_into(&[], script, Stdio::null(), Stdio::piped());
    let output = |kind: &str| program.insert(kind, &["--wait", "60"]).0["output"].clone();
    assert_eq!(output("text"), json!({ "text": " hello\u{fffd}\n\"world\"" }));
    assert_eq!(output("none"), Value::Null);
    assert_eq!(output("long"), json!({ "text": "x".repeat(65_535) }));
    let mut lines = BufReader::new(worker.0.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ébeyond"));
}

#[test]
fn an_output_that_the_database_refuses_is_reported_again() {
    let program = Program::new("refused");
    let script = r#"printf %s "$JOBS_KIND""#;
    let mut worker = program.work_into(&["--json"], script, Stdio::piped(), Stdio::null());
    let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines();
    for output in [r#""a\u0000b""#, r#""\ud800""#, "1e400000"] {
        let (inserted, _) = program.insert(output, &["--max-attempts", "1"]);
        program.job(&inserted["id"], "discarded");
        let report: Value = serde_json::from_str(&lines.nth(1).unwrap().unwrap()).unwrap();
        assert!(report["id"] == inserted["id"] && report["error"].is_string(), "{report}");
    }
}

#[test]
fn a_worker_of_some_kinds_leaves_the_others() {
    let program = Program::new("kinds");
    let (other, _) = program.insert("c", &[]);
    let _worker = program.work(&["-k", "a", "--kind", "b"], "true");
    for kind in ["a", "b"] {
        let (result, code) = program.insert(kind, &["--wait", "60"]);
        assert_eq!(code, 0, "{result}");
    }
    assert_eq!(program.job(&other["id"], "available")["attempt"], 0);
}

#[test]
fn an_output_deeper_than_a_value_of_serde_is_printed() {
    let program = Program::new("deep");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let _worker = program.work(&[], "cat");
    let insert = ["insert", "k", &deep, "-q", &program.queue, "--wait", "60"];
    let printed = |arguments: &[&str]| {
        let output = program.run(arguments, "");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(printed(&insert), format!("{deep}\n"));
    let line = printed(&[&insert[..], &["--json"]].concat());
    assert!(line.contains(&format!(r#""output":{deep},"#)), "{line}");
}

#[test]
fn a_terminal_shows_how_a_job_stands_until_it_has_ended() {
    let program = Program::new("terminal");
    let (mut terminal, stderr) = pty();
    let insert = ["insert", "k", "-q", &program.queue, "--wait", "60"];
    let mut child = program.command(&insert).stderr(stderr).spawn().unwrap();
    let mut shown = String::new();
    let mut until = |text: &str| {
        // It shows it again and again.
        while !shown.contains(text) {
            let mut buffer = [0; 4096];
            let length = terminal.read(&mut buffer).unwrap();
            shown += &String::from_utf8_lossy(&buffer[..length]);
        }
        std::mem::take(&mut shown)
    };
    until("is available");
    let id = program.ask::<i64>("select id from jobs.jobs where queue = $1");
    let token = program.ask::<i64>("select token from jobs.fetch($1)");
    until(&format!("job {id} is running"));
    let call = format!(r#"jobs.heartbeat({id}, {token}, progress => '{{"done": 3}}')"#);
    program.ask::<i64>(&format!("select count({call}) where $1 <> ''"));
    until(&format!(r#"job {id} is running: {{"done": 3}}"#));
    let call = format!("jobs.complete({id}, {token})");
    program.ask::<i64>(&format!("select count({call}) where $1 <> ''"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // What it says last clears the line. A terminal that nobody writes to ends with an error.
    let mut last = Vec::new();
    let _ = terminal.read_to_end(&mut last);
    assert!(last.ends_with(b"\r\x1b[K\x1b[?7l\x1b[?7h"), "{last:?}");
}

#[test]
fn an_exit_code_says_what_becomes_of_the_job() {
    let program = Program::new("codes");
    let _worker = program.work(&["--discard", "64"], "echo why >&2; exit $JOBS_KIND");
    let retry = r#"{"strategy": "constant", "initial": 3600}"#;
    for (code, state) in [("75", "retryable"), ("3", "retryable"), ("64", "discarded")] {
        let (inserted, _) = program.insert(code, &["--retry", retry]);
        let job = program.job(&inserted["id"], state);
        assert_eq!(job["errors"][0]["error"], "why");
        assert_eq!(job["errors"][0]["details"]["type"], format!("exit_{code}"));
    }
}

#[test]
fn a_stop_gives_back_what_does_not_end() {
    let program = Program::new("stop");
    let worker = program.work(&["--grace", "0"], "trap '' TERM; sleep 300");
    let (inserted, _) = program.insert("k", &[]);
    program.job(&inserted["id"], "running");
    assert_eq!(worker.terminate(), Some(0));
    assert_eq!(program.job(&inserted["id"], "available")["attempt"], 0);
}

#[test]
fn a_timeout_ends_the_program() {
    let program = Program::new("timeout");
    let _worker = program.work(&["--timeout", "0.5"], "sleep 300");
    let (inserted, _) = program.insert("k", &["--max-attempts", "1"]);
    let job = program.job(&inserted["id"], "discarded");
    assert_eq!(job["errors"][0]["details"]["type"], "timeout");
}

#[test]
fn options_arrive_and_duplicates_are_told() {
    let program = Program::new("options");
    let options = [
        "--at",
        "2100-01-01 UTC",
        "--tag",
        "a",
        "--tag",
        "b",
        "--priority",
        "3",
        "--timeout",
        "-1",
    ];
    let unique = ["--unique", r#"{"by_args": true, "by_queue": true}"#, "--meta", r#"{"m": 1}"#];
    let options = [&options[..], &unique].concat();
    let (first, _) = program.insert("k", &options);
    assert_eq!(
        program.insert("k", &options).0,
        json!({ "id": first["id"], "state": "scheduled", "duplicate": true })
    );
    let job = program.job(&first["id"], "scheduled");
    assert_eq!((&job["tags"], &job["meta"]), (&json!(["a", "b"]), &json!({ "m": 1 })));
    assert_eq!((&job["priority"], &job["timeout"]), (&json!(3), &json!("-00:00:01")));
    assert!(job["scheduled_at"].as_str().unwrap().starts_with("2100-01-01"), "{job}");
    assert!(job.get("token").is_none());
}

#[test]
fn what_makes_a_job_unique_is_what_the_database_takes() {
    let program = Program::new("unique");
    for unique in [
        r#"{"by_period": "P10000D"}"#,
        r#"{"by_args": true, "window": "15 minutes"}"#,
        r#"{"by_kind": null, "by_queue": true}"#,
        r#"{"oban": true}"#,
    ] {
        // A kind of its own for each form.
        let kind = format!("{} {unique}", program.queue);
        let insert = || program.insert(&kind, &["--unique", unique]);
        let (first, code) = insert();
        assert_eq!((code, &first["duplicate"]), (0, &json!(false)), "{unique}");
        assert_eq!(insert().0["duplicate"], true, "{unique}");
    }
    let insert = ["insert", "many", "--lines", "--json", "-q", &program.queue];
    let insert = [&insert[..], &["--unique", r#"{"oban": true}"#]].concat();
    let output = program.run(&insert, "{}\n{}\n[1]\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"duplicates\":1,\"inserted\":2}\n");
    let output = program.run(&["insert", "k", "--unique", r#"{"by_arg": true}"#], "");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("DETAIL: ") && said.contains("\nHINT: "), "{said}");
}

#[test]
fn lines_are_inserted_all_or_none() {
    let program = Program::new("lines");
    let insert = ["insert", "k", "--lines", "--json", "-q", &program.queue];
    let output = program.run(&insert, "{}\n{\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 2"), "{output:?}");
    let output = program.run(&[&insert[..], &["--priority", "99999"]].concat(), "{}\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("pgjobs: line 1: ") && !said.contains("Element"), "{said}");
    let output = program.run(&insert, &"{}\n".repeat(1001));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"duplicates\":0,\"inserted\":1001}\n");
    let top = program.run(&["top", "--json"], "");
    let top = String::from_utf8(top.stdout).unwrap();
    let queue = format!(r#""queue": "{}""#, program.queue);
    assert!(top.contains(&queue), "{top}");
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let program = Program::new("exit");
    let code = |arguments: &[&str]| program.run(arguments, "").status.code();
    let (code_of_priority, said) = program.said(&["insert", "k", "--priority", "99999"]);
    assert!(code_of_priority == 1 && !said.contains("Element"), "{said}");
    assert_eq!(code(&["insert", ""]), Some(1));
    for (file, fault) in [("no such program", "not found"), ("/etc/passwd", "is not executable")] {
        let said = format!("pgjobs: program \"{file}\" {fault}\n");
        assert_eq!(program.said(&["work", "--", file]), (1, said));
    }
    for wrong in [
        &["insert"][..],
        &["insert", "k", "{"],
        &["insert", "k", "--meta", "{"],
        &["insert", "k", "--unique", "{}}"],
        &["insert", "k", "--retry", "{"],
        &["insert", "k", "--wait", "-1"],
        &["work", "--concurrency", "0", "--", "true"],
        &["work", "--lease", "0", "--", "true"],
        &["work", "--timeout", "0", "--", "true"],
        &["work", "-q", "a", "-q", "a=2", "--", "true"],
        &["work", "-q", "a=b", "--", "true"],
        &["work", "-k", "a", "-k", "a", "--", "true"],
    ] {
        assert_eq!(code(wrong), Some(2), "{wrong:?}");
        // What is wrong is so without a database.
        let unconnected = [&wrong[..1], &["-d", NOWHERE], &wrong[1..]].concat();
        assert_eq!(code(&unconnected), Some(2), "{wrong:?}");
    }
    for timeout in ["-5", "-0.5", "0", "NaN", "inf", "1e300", "1 s", ""] {
        let option = format!("--timeout={timeout}");
        for wrong in [&["insert", "k", &option][..], &["work", &option, "--", "true"]] {
            let output = program.run(&[&["-d", NOWHERE], wrong].concat(), "");
            assert_eq!(output.status.code(), Some(2), "{wrong:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            let fault = format!("invalid value '{timeout}' for '--timeout");
            assert!(said.contains(&fault), "{said}");
        }
    }
    assert_eq!(code(&["show", "1", "--json", "-d", NOWHERE]), Some(3));
    assert_eq!(code(&["show", "9007199254740991"]), Some(4));
    assert_eq!(program.insert("k", &["--wait", "0.1"]).1, 5);
    assert_eq!(code(&["completions", "bash"]), Some(0));
}

#[test]
fn the_program_has_the_name_that_it_is_called_by() {
    for name in ["pgjobs", "jobs"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgjobs"));
        let output = command.arg0(name).args(["show", "1", "-d", NOWHERE]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(&format!("{name}: ")), "{said}");
    }
}

#[test]
fn why_there_is_no_connection_is_told() {
    let program = Program { url: NOWHERE.into(), queue: String::new() };
    let output = program.run(&["show", "1"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Connection refused"), "{said}");
}

#[test]
fn a_database_without_the_extension_is_told() {
    let program = Program::new("no extension");
    let name = format!("no_extension_{}", std::process::id());
    program.change(&format!("create database {name} template template0"));
    let (place, options) = program.url.split_once('?').unwrap_or((&program.url, ""));
    let (server, _) = place.rsplit_once('/').unwrap();
    let other = format!("{server}/{name}?{options}");
    let commands: [&[&str]; 4] =
        [&["insert", "k"], &["show", "1"], &["top", "--once"], &["work", "--", "cat"]];
    let said = commands
        .map(|command| program.run(&[&command[..1], &["-d", &other], &command[1..]].concat(), ""));
    program.change(&format!("drop database {name}"));
    for output in said {
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("HINT: Check the database, or run CREATE EXTENSION jobs"), "{text}");
    }
}

#[test]
fn a_worker_goes_on_whose_reports_cannot_be_written() {
    let program = Program::new("reports");
    for stdio in [closed, full] {
        for options in [&["--json"][..], &[]] {
            let script = "echo said >&2; echo 1";
            let worker = program.work_into(options, script, stdio(), stdio());
            for _ in 0..3 {
                let (inserted, _) = program.insert("k", &["--max-attempts", "1"]);
                let job = program.job_that_ended(&inserted["id"]);
                assert_eq!(job["state"], "completed", "{options:?}: {job}");
                assert_eq!(job["output"], 1);
            }
            assert_eq!(worker.terminate(), Some(0));
        }
    }
}

#[test]
fn a_worker_goes_on_whose_reports_nobody_reads() {
    let program = Program::new("unread");
    let states =
        "select string_agg(distinct state || ' ' || attempt, ', ') from jobs.jobs where queue = $1";
    // More of them than run at a time, and the last one says more than there is room for.
    let script = "case $JOBS_KIND in
        long) head -c 20000000 /dev/zero | tr '\\0' x >&2;;
        *) echo said >&2;;
        esac";
    for options in [&["--json"][..], &[]] {
        let ((unread, stdout), (mut stalled, stderr)) = (stalled(), stalled());
        let options = [options, &["--lease", "10", "-c", "2"]].concat();
        let worker = program.work_into(&options, script, stdout, stderr);
        let insert = ["insert", "k", "--lines", "-q", &program.queue];
        assert!(program.run(&insert, &"{}\n".repeat(20)).status.success());
        program.insert("long", &["--priority", "2"]);
        eventually("all jobs are completed by their first attempt", || {
            program.ask::<Option<String>>(states).as_deref() == Some("completed 1")
        });
        // Somebody reads it after all.
        let read = Arc::new(Mutex::new(Vec::new()));
        let reads = read.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(length @ 1..) = stalled.read(&mut buffer) {
                reads.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        eventually("what was dropped is counted", || {
            let read = read.lock().unwrap();
            let end = &read[read.len().saturating_sub(1000)..];
            String::from_utf8_lossy(end)
                .contains("dropped output: stderr was not read in time bytes=")
        });
        assert_eq!(worker.terminate(), Some(0));
        reader.join().unwrap();
        drop(unread);
    }
}

#[test]
fn a_worker_ends_though_nobody_reads_what_it_says() {
    let program = Program::new("unread end");
    let (_unread, stderr) = stalled();
    let options = ["-d", &program.nowhere()];
    let worker = program.work_into(&options, "true", Stdio::null(), stderr);
    assert_eq!(worker.ended(), Some(3));
}

#[test]
fn what_cannot_be_written_is_an_error_unless_its_reader_is_gone() {
    let program = Program::new("written");
    let (inserted, _) = program.insert("k", &[]);
    let id = inserted["id"].to_string();
    let end = |arguments: &[&str], stdout: Stdio, stderr: Stdio| {
        let child = program.command(arguments).stdout(stdout).stderr(stderr).spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for arguments in [&["show", &id][..], &["top"], &["completions", "bash"]] {
        let (code, said) = end(arguments, full(), Stdio::piped());
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
        let gone = end(arguments, closed(), Stdio::piped());
        assert_eq!(gone, (Some(0), String::new()), "{arguments:?}");
    }
    let unknown = ["show", "9007199254740991"];
    assert_eq!(end(&unknown, Stdio::null(), full()).0, Some(4));
}

#[test]
fn a_worker_reports_each_attempt_as_json() {
    let program = Program::new("json");
    let options = ["--json", "--timeout", "-1"];
    let script = "[ $JOBS_KIND = good ] || { echo why >&2; exit 3; }";
    let mut worker = program.work_into(&options, script, Stdio::piped(), Stdio::null());
    let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines();
    for (kind, error) in [("good", Value::Null), ("bad", "why".into())] {
        let (inserted, _) = program.insert(kind, &["--max-attempts", "1"]);
        let line = lines.next().unwrap().unwrap();
        let report: Value = serde_json::from_str(&line).unwrap();
        assert!(report["seconds"].is_number(), "{line}");
        assert_eq!(
            (&report["id"], &report["kind"], &report["attempt"]),
            (&inserted["id"], &json!(kind), &json!(1))
        );
        assert_eq!(report["error"], error);
    }
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn a_worker_says_each_thing_once() {
    let program = Program::new("log");
    let script =
        r#"[ $JOBS_KIND = good ] || { echo where; printf 'why\033[2J\nand how\n' >&2; exit 3; }"#;
    let mut worker = program.work_into(&[], script, Stdio::null(), Stdio::piped());
    let mut stderr = worker.0.stderr.take().unwrap();
    for kind in ["good", "bad"] {
        let (inserted, _) = program.insert(kind, &["--max-attempts", "1"]);
        program.job_that_ended(&inserted["id"]);
    }
    assert_eq!(worker.terminate(), Some(0));
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let about = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    for once in [
        "INFO worker started ",
        "INFO job completed job=",
        "WARN attempt failed job=",
        "ERROR job discarded job=",
        "INFO worker stopped ",
    ] {
        assert_eq!(about(once), 1, "{once}: {said}");
    }
    assert_eq!((about("good"), about("why"), about("where")), (1, 3, 1), "{said}");
    assert_eq!(about(r"why\x1b[2J\nand how"), 2, "{said}");
}

#[test]
fn a_worker_that_cannot_start_gives_one_hint() {
    let program = Program::new("start");
    let output = program.run(&["work", "-d", &program.nowhere(), "--", "cat"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let error = "pgjobs: database \"no_such_database\" does not exist\n\
        HINT: Check the database in the URL.\n";
    assert!(said.ends_with(error), "{said}");
    assert_eq!(said.matches("does not exist").count(), 1, "{said}");
}

#[test]
fn help_has_examples() {
    for command in [
        "work", "insert", "show", "list", "retry", "cancel", "explain", "pause", "resume",
        "unblock", "health", "cells", "apply", "top",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_pgjobs")).args([command, "--help"]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let example = format!("Examples:\n  pgjobs {command}");
        assert!(text.contains(&example), "{text}");
    }
}
