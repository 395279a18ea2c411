//! The processes that `pgjobs work` starts: what they say arrives, and none of them is left.

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::{Program, Worker, eventually};

/// A command of `sh` that ignores SIGTERM, as does what it starts. Their pids are in the file.
pub(crate) fn stubborn(file: &Path) -> String {
    let file = file.display();
    format!(
        "trap '' TERM; sleep 600 & echo $$ $! >'{file}.new'; mv '{file}.new' '{file}'; wait; wait"
    )
}

/// A file for a test, which is not there yet.
pub(crate) fn file(test: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("jobs-{test}-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file
}

/// The pids in a file, once it is there.
pub(crate) fn pids(file: &Path) -> Vec<i32> {
    eventually("the program runs", || file.exists());
    let text = read_to_string(file).unwrap();
    std::fs::remove_file(file).unwrap();
    let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.collect()
}

/// A process's state and its parent; none: there is no such process.
fn stat(pid: i32) -> Option<(String, i32)> {
    let text = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.into(), fields.next()?.parse().ok()?))
}

/// Waits until the processes are gone. What outlives its parent may be left to be reaped: that is
/// the business of process 1.
pub(crate) fn gone(pids: &[i32]) {
    for &pid in pids {
        let is_there = || test_kill_process(Pid::from_raw(pid).unwrap()).is_ok();
        let is_dead = || stat(pid).is_none_or(|(state, parent)| state == "Z" && parent == 1);
        eventually(&format!("process {pid} ends"), || !is_there() || is_dead());
    }
}

/// The states of the worker's children.
fn children(worker: &Worker) -> Vec<String> {
    let names = read_dir("/proc").unwrap();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let states = names.filter_map(|name| stat(name.parse().ok()?));
    let own = states.filter(|(_, parent)| *parent == worker.0.id() as i32);
    own.map(|(state, _)| state).collect()
}

/// Asks the worker to stop the job of this queue.
fn cancel(program: &Program) {
    program.ask::<i64>("select count(jobs.cancel(id)) from jobs.jobs where queue = $1");
}

/// How many descriptors are open, and how many threads there are.
fn held(worker: &Worker) -> (usize, usize) {
    let count = |what| read_dir(format!("/proc/{}/{what}", worker.0.id())).unwrap().count();
    (count("fd"), count("task"))
}

#[test]
fn more_than_a_pipe_holds_goes_in_and_out() {
    let program = Program::new("large");
    let million = "head -c 1000000 /dev/zero | tr '\\0' x";
    let script = format!(
        "case $JOBS_KIND in
        unread) echo 1;;
        read) cat;;
        out) printf '\"'; {million}; printf '\"';;
        err) {million} >&2; echo end >&2; exit 1;;
        esac"
    );
    let _worker = program.work(&[], &script);
    let text = "x".repeat(1_000_000);
    let ended = |kind: &str, args: &str| {
        let insert = ["--json", "insert", kind, "-", "-q", &program.queue];
        let options = ["--max-attempts", "1"];
        let inserted = program.run(&[&insert[..], &options].concat(), args);
        let inserted: Value = serde_json::from_slice(&inserted.stdout).unwrap();
        program.job_that_ended(&inserted["id"])
    };
    let args = json!(text).to_string();
    assert_eq!(ended("unread", &args)["output"], 1);
    assert!(ended("read", &args)["output"] == text, "the input arrives");
    assert!(ended("out", "{}")["output"] == text, "the output arrives");
    let failed = ended("err", "{}");
    let error = failed["errors"][0]["error"].as_str().unwrap();
    assert!(error.ends_with("xxxend"), "the end of stderr arrives");
}

#[test]
fn a_thousand_programs_leave_nothing_behind() {
    let program = Program::new("thousand");
    let worker = program.work(&[], "true");
    let insert = ["insert", "k", "--lines", "-q", &program.queue];
    let work_off_100 = || {
        assert!(program.run(&insert, &"{}\n".repeat(100)).status.success());
        let left = "select count(*) from jobs.jobs where queue = $1 and state <> 'completed'";
        eventually("the jobs are completed", || program.ask::<i64>(left) == 0);
        eventually("their programs are reaped", || children(&worker).is_empty());
    };
    work_off_100();
    let (descriptors, threads) = held(&worker);
    for _ in 0..9 {
        work_off_100();
    }
    eventually("descriptors and threads are no more than before", || {
        let held = held(&worker);
        held.0 <= descriptors && held.1 <= threads
    });
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn a_timeout_kills_what_ignores_sigterm() {
    let program = Program::new("stubborn timeout");
    let file = file("timeout");
    let _worker = program.work(&["--grace", "0.2"], &stubborn(&file));
    // On a slow machine a short timeout is over before the program has said its pids.
    for seconds in ["1", "4", "16"] {
        let options = ["--timeout", seconds, "--max-attempts", "1"];
        let (inserted, _) = program.insert("k", &options);
        let job = program.job(&inserted["id"], "discarded");
        assert_eq!(job["errors"][0]["details"]["type"], "timeout");
        if file.exists() {
            return gone(&pids(&file));
        }
    }
    panic!("no program has begun");
}

#[test]
fn a_cancellation_kills_what_ignores_sigterm() {
    let program = Program::new("stubborn cancel");
    let file = file("cancel");
    let worker = program.work(&["--grace", "0.2"], &stubborn(&file));
    let (inserted, _) = program.insert("k", &[]);
    let pids = pids(&file);
    cancel(&program);
    program.job(&inserted["id"], "cancelled");
    gone(&pids);
    eventually("it is reaped", || children(&worker).is_empty());
}

#[test]
fn a_stop_kills_what_ignores_sigterm() {
    let program = Program::new("stubborn stop");
    let file = file("stop");
    // Longer than the worker waits for what it has sent SIGTERM.
    let worker = program.work(&["--grace", "2"], &stubborn(&file));
    let (inserted, _) = program.insert("k", &[]);
    let pids = pids(&file);
    assert_eq!(worker.terminate(), Some(0));
    assert_eq!(program.job(&inserted["id"], "available")["attempt"], 0);
    gone(&pids);
}

#[test]
fn a_cancellation_is_sigterm() {
    let program = Program::new("sigterm");
    let (begun, told) = (file("begun"), file("told"));
    let script = format!(
        "trap 'echo $$ >\"{0}.new\"; mv \"{0}.new\" \"{0}\"; exit' TERM; echo $$ >\"{1}.new\"; \
        mv \"{1}.new\" \"{1}\"; while :; do sleep 0.1; done",
        told.display(),
        begun.display()
    );
    let worker = program.work(&["--grace", "600"], &script);
    let (inserted, _) = program.insert("k", &[]);
    let pid = pids(&begun);
    cancel(&program);
    assert_eq!(pids(&told), pid);
    program.job(&inserted["id"], "cancelled");
    gone(&pid);
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn what_a_cancelled_program_has_started_ends_with_it() {
    let program = Program::new("left");
    let file = file("left");
    let script = format!("({}) & wait", stubborn(&file));
    let _worker = program.work(&["--grace", "600"], &script);
    let (inserted, _) = program.insert("k", &[]);
    let pids = pids(&file);
    cancel(&program);
    program.job(&inserted["id"], "cancelled");
    gone(&pids);
}
