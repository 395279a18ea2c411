//! The signals that stop a worker.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::processes::{file, gone, pids, stubborn};
use crate::{Program, Worker, eventually};

#[test]
fn a_hang_up_and_an_interrupt_stop_a_worker_in_order() {
    for (name, signal) in [("hang up", Signal::HUP), ("interrupt", Signal::INT)] {
        let program = Program::new(name);
        let file = file(name);
        let worker = program.work(&["--grace", "1"], &stubborn(&file));
        let (inserted, _) = program.insert("k", &[]);
        let pids = pids(&file);
        worker.signal(signal);
        assert_eq!(worker.ended(), Some(0), "{name}");
        assert_eq!(program.job(&inserted["id"], "available")["attempt"], 0);
        gone(&pids);
    }
}

#[test]
fn a_second_signal_skips_the_grace_period() {
    let program = Program::new("second signal");
    let file = file("second");
    let mut worker = program.work(&["--grace", "600"], &stubborn(&file));
    let (inserted, _) = program.insert("k", &[]);
    let pids = pids(&file);
    // Two that come at once are one.
    eventually("the worker ends", || {
        worker.signal(Signal::TERM);
        worker.0.try_wait().unwrap().is_some()
    });
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(program.job(&inserted["id"], "available")["attempt"], 0);
    gone(&pids);
}

#[test]
fn a_hang_up_after_another_signal_leaves_the_grace_period() {
    for first in [Signal::HUP, Signal::TERM, Signal::INT] {
        hang_up_after(first);
    }
}

fn hang_up_after(first: Signal) {
    let program = Program::new("second hang-up");
    let (begun, end) = (file("begun-before"), file("ends-after"));
    let script = format!(
        "echo $$ >'{0}.new'; mv '{0}.new' '{0}'; until [ -e '{1}' ]; do sleep 0.1; done",
        begun.display(),
        end.display()
    );
    let worker = program.work(&["--grace", "600"], &script);
    let (inserted, _) = program.insert("k", &[]);
    pids(&begun);
    worker.signal(first);
    for _ in 0..10 {
        worker.signal(Signal::HUP);
        sleep(Duration::from_millis(50));
    }
    std::fs::write(&end, "").unwrap();
    assert_eq!(worker.ended(), Some(0));
    std::fs::remove_file(&end).unwrap();
    program.job(&inserted["id"], "completed");
}

#[test]
fn a_hang_up_that_is_ignored_stays_so() {
    let program = Program::new("nohup");
    let jobs = program.command(&["work", "-q", &program.queue, "--", "cat"]);
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap '' HUP; exec "$0" "$@""#]);
    command.arg(jobs.get_program()).args(jobs.get_args());
    let worker = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let worker = Worker(worker.unwrap());
    for _ in 0..2 {
        let (result, code) = program.insert("k", &["--wait", "60"]);
        assert_eq!(code, 0, "{result}");
        worker.signal(Signal::HUP);
        sleep(Duration::from_millis(50));
    }
    assert_eq!(worker.terminate(), Some(0));
}
