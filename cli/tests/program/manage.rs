//! Commands that look at jobs and manage them.

use std::io::Write;

use serde_json::{Value, json};

use crate::{NOWHERE, Program};

impl Program {
    /// The lines that it prints as JSON, and the exit code.
    pub(crate) fn lines(&self, arguments: &[&str]) -> (Vec<Value>, i32) {
        let output = self.run(&[&["--json"], arguments].concat(), "");
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice(line).unwrap());
        (lines.collect(), output.status.code().unwrap())
    }

    /// The exit code, and what it says on stderr.
    pub(crate) fn said(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments, "");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn why_a_job_does_not_run_is_explained() {
    let program = Program::new("explain");
    let (inserted, _) = program.insert("k", &["--at", "2100-01-01 UTC"]);
    let id = inserted["id"].to_string();
    let (reasons, code) = program.lines(&["explain", &id]);
    assert_eq!((code, &reasons[0]["reason"]), (0, &json!("scheduled")));
    assert!(reasons[0]["until"].as_str().unwrap().starts_with("2100-01-01"), "{reasons:?}");
    let output = program.run(&["explain", &id], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("scheduled: due at 2100-01-01"), "{text}");
    assert_eq!(program.said(&["explain", "9007199254740991"]).0, 4);
}

#[test]
fn a_job_that_a_limit_holds_is_shown_with_it() {
    let program = Program::new("held");
    let queue = program.queue.as_str();
    program.change(&format!(
        "select jobs.define_limit('{queue}', queues => array['{queue}'], concurrency => 1)"
    ));
    let ids = ["a", "b"].map(|kind| program.insert(kind, &[]).0["id"].to_string());
    program.change(&format!("select jobs.fetch('{queue}')"));
    let output = program.run(&["show", &ids[1]], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n  limit: "), "{text}");
}

#[test]
fn states_are_those_of_the_database() {
    let program = Program::new("states");
    let states = "select array_to_string(enum_range(null::jobs.state), ', ') where $1 <> ''";
    let states: String = program.ask(states);
    let (code, said) = program.said(&["list", "--state", "done"]);
    assert_eq!(code, 2);
    assert!(said.contains(&format!("[possible values: {states}]")), "{said}");
}

#[test]
fn a_paused_queue_gives_no_jobs_until_it_is_resumed() {
    let program = Program::new("pause");
    let reason = |id: &Value| program.lines(&["explain", &id.to_string()]).0[0]["reason"].clone();
    let (inserted, _) = program.insert("k", &[]);
    let pause = ["pause", &program.queue, "--reason", "mail server is down"];
    let paused = json!({ "queue": program.queue, "paused": true });
    assert_eq!(program.lines(&pause), (vec![paused], 0));
    assert_eq!(reason(&inserted["id"]), "queue paused");
    let (top, _) = program.json(&["top"]);
    let queues = top["queues"].as_array().unwrap();
    let ours = queues.iter().find(|queue| queue["queue"] == program.queue).unwrap();
    assert!(ours["note"].as_str().unwrap().starts_with("paused"), "{ours}");
    let output = program.run(&["top", "--once"], "");
    assert!(String::from_utf8_lossy(&output.stdout).contains("  paused"), "{output:?}");
    let why: String = program.ask("select pause_reason from jobs.queues where queue = $1");
    assert_eq!(why, "mail server is down");
    assert_eq!(program.said(&["resume", &program.queue]).0, 0);
    assert_ne!(reason(&inserted["id"]), "queue paused");
    assert_eq!(program.said(&["pause"]).0, 2);
}

#[test]
fn a_blocked_key_goes_on_once_it_is_unblocked() {
    let program = Program::new("unblock");
    let queue = program.queue.as_str();
    program.change(&format!(
        "select jobs.order_queue('{queue}', '{{\"by_args\": [\"n\"]}}', strict => true, on_discard => 'block')"
    ));
    let (first, second) = (program.insert("k", &[]).0, program.insert("k", &[]).0);
    program.change(&format!(
        "select jobs.fail(id, token, 'no', retryable => false) from jobs.fetch('{queue}')"
    ));
    let blocks = || {
        let (reasons, _) = program.lines(&["explain", &second["id"].to_string()]);
        reasons
            .iter()
            .any(|reason| reason["reason"] == "order" && reason["by_ids"] == json!([first["id"]]))
    };
    // All or none.
    let key = r#"[1, "ü"]"#;
    let (code, said) = program.said(&["unblock", queue, key, r#"{"args": 1}"#]);
    assert!(code == 1 && said.contains("key does not fit by"), "{code}: {said}");
    assert!(blocks());
    let unblock = ["unblock", queue, key, "not JSON", "--reason", "corrected"];
    let answer = |key: Value, job: &Value| json!({ "queue": queue, "key": key, "unblocked": job });
    let lines =
        vec![answer(json!([1, "ü"]), &first["id"]), answer("not JSON".into(), &Value::Null)];
    assert_eq!(program.lines(&unblock), (lines, 0));
    assert!(!blocks());
    assert!(program.ask::<bool>(
        "select reason = 'corrected' from jobs.audit where action = 'unblock' and target = $1"
    ));
}

#[test]
fn a_periodic_job_is_paused_with_others_or_not_at_all() {
    let program = Program::new("periodic");
    let name = program.queue.as_str();
    program.change(&format!("select jobs.schedule('{name}', '0 0 1 1 *', 'k', queue => '{name}')"));
    let is_paused =
        || program.ask::<bool>("select paused_at is not null from jobs.periodic where name = $1");
    let unknown = ["pause", "--periodic", name, "--periodic", "unknown"];
    let (code, said) = program.said(&unknown);
    assert_eq!(code, 4, "{said}");
    assert!(!is_paused());
    assert_eq!(program.said(&["pause", "--periodic", name]).0, 0);
    assert!(is_paused());
    assert_eq!(program.said(&["resume", "--periodic", name]).0, 0);
    assert!(!is_paused());
}

#[test]
fn health_fails_if_there_are_findings() {
    let program = Program::new("health");
    program.insert("k", &[]);
    program.lines(&["pause", &program.queue]);
    let (findings, code) = program.lines(&["health"]);
    let output = program.run(&["health"], "");
    program.lines(&["resume", &program.queue]);
    let is_ours = |text: &str| text.contains(&format!("queue \"{}\" ", program.queue));
    let finding = findings.iter().find(|found| is_ours(found["message"].as_str().unwrap()));
    assert_eq!((code, &finding.unwrap()["finding"]), (1, &json!("queue_paused")));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().skip_while(|line| !is_ours(line));
    assert!(lines.next().unwrap().starts_with("info (queue_paused): "), "{text}");
    assert!(lines.next().unwrap().starts_with("  HINT: "), "{text}");
}

#[test]
fn a_fault_of_the_connection_or_its_rights_has_a_hint() {
    let program = Program::new("hints");
    let role = format!("without rights' {}", std::process::id());
    program.change(&format!("create role \"{role}\" login"));
    let url = |from: &str, to: &str| program.url.replacen(from, to, 1);
    let encoded = role.replace(' ', "%20");
    let other = url("//postgres@", &format!("//{encoded}@"));
    let literal = role.replace('\'', "''");
    let hint = |grant: &str| {
        format!("HINT: Ask an administrator to run SELECT jobs.{grant}('{literal}').")
    };
    let commands = [
        (&["show", "1"][..], "grant_viewer"),
        (&["health"], "grant_viewer"),
        (&["insert", "k"], "grant_producer"),
        (&["pause", "q"], "grant_operator"),
        (&["work", "--", "true"], "grant_worker"),
    ];
    for (command, grant) in commands {
        let (code, said) = program.said(&[&command[..1], &["-d", &other], &command[1..]].concat());
        assert!(code == 1 && said.contains(&hint(grant)), "{code}: {said}");
    }
    program.change(&format!("drop role \"{role}\""));
    let place = program.url.rsplit_once('/').unwrap().0;
    for (url, hint) in [
        (format!("{place}/no_such_database"), "HINT: Check the name of the database."),
        (other, "HINT: Check the user and the password."),
        (format!("{}?sslmode=require", program.url), "HINT: Set sslmode=disable "),
    ] {
        let (code, said) = program.said(&["show", "1", "-d", &url]);
        assert!(code == 3 && said.contains(hint), "{code}: {said}");
    }
}

#[test]
fn a_role_that_sees_no_args_cannot_search_them() {
    let program = Program::new("args");
    let role = format!("viewer_{}", std::process::id());
    program.change(&format!("create role {role} login; select jobs.grant_viewer('{role}')"));
    let viewer = program.url.replacen("//postgres@", &format!("//{role}@"), 1);
    let list = ["list", "-d", &viewer, "-q", &program.queue];
    let (code, _) = program.said(&list);
    let searched = program.said(&[&list[..], &["--args", "{}"]].concat());
    program.change(&format!("select jobs.revoke('{role}'); drop role {role}"));
    let said = "pgjobs: permission denied for args of jobs\n\
        HINT: The role needs SELECT on jobs.job.\n";
    assert_eq!((code, searched), (0, (1, said.into())));
}

#[test]
fn each_fault_of_a_forwarder_is_one_line_of_its_log() {
    let program = Program::new("log line");
    let to = ["--to", &program.url];
    let (code, said) =
        program.said(&[&["forward", "--once", "--from", &program.url], &to[..], &to].concat());
    assert!(code == 1 && said.contains(" HINT: ") && !said.contains("\\n"), "{said}");
}

/// The ids of jobs.
fn ids(jobs: &[Value]) -> Vec<i64> {
    jobs.iter().map(|job| job["id"].as_i64().unwrap()).collect()
}

#[test]
fn a_list_has_filters() {
    let program = Program::new("list");
    let id = |kind: &str, options: &[&str]| program.insert(kind, options).0["id"].as_i64().unwrap();
    let tagged = id("a", &["--tag", "t"]);
    let late = id("b", &["--at", "2100-01-01 UTC"]);
    let failed = id("failed", &["--max-attempts", "1"]);
    let work = ["-k", "failed"];
    let worker = program.work(&work, "echo '100% wrong' >&2; exit 1");
    program.job(&json!(failed), "discarded");
    drop(worker);
    let all = [failed, late, tagged];
    for (options, expected) in [
        (&[][..], &all[..]),
        (&["--tag", "t"], &[tagged]),
        (&["-k", "b"], &[late]),
        (&["--state", "scheduled"], &[late]),
        (&["--id", &failed.to_string(), "--id", &tagged.to_string()], &[failed, tagged]),
        (&["--args", r#"{"n": [1]}"#], &all),
        (&["--args", r#"{"n": [2]}"#], &[]),
        (&["--error", "0% w"], &[failed]),
        (&["--error", "1_0"], &[]),
        (&["--error-like", "1_0%"], &[failed]),
        (&["--failed-after", "1 hour ago"], &[failed]),
        (&["--failed-after", "tomorrow"], &[]),
        (&["--after", "1 hour ago", "--before", "tomorrow"], &all),
        (&["--before", "yesterday"], &[]),
    ] {
        let (jobs, code) = program.lines(&[&["list", "-q", &program.queue], options].concat());
        assert_eq!((code, &ids(&jobs)[..]), (0, expected), "{options:?}");
        assert!(jobs.iter().all(|job| job.get("token").is_none()));
    }
    for wrong in [&["--state", "gone"][..], &["--limit", "0"], &["--args", "{"]] {
        let unconnected = [&["list", "-d", crate::NOWHERE], wrong].concat();
        assert_eq!(program.said(&unconnected).0, 2, "{wrong:?}");
    }
}

#[test]
fn an_empty_value_selects_no_jobs() {
    let program = Program { url: NOWHERE.into(), queue: String::new() };
    let all = ["--state", "--queue", "--kind", "--tag"];
    let by_error = ["--error", "--error-like", "--failed-after"];
    let of_list = ["--worker", "--args", "--after", "--before"];
    for (command, options) in [
        ("cancel", all.to_vec()),
        ("retry", [&all[..], &by_error].concat()),
        ("list", [&all[..], &by_error, &of_list].concat()),
    ] {
        for option in options {
            let (code, said) = program.said(&[command, option, ""]);
            assert!(code == 2 && said.contains(&format!("'{option} ")), "{command}: {said}");
        }
    }
}

#[test]
fn pages_of_a_list_have_each_job_once() {
    let program = Program::new("pages");
    let list = ["list", "-q", &program.queue, "--limit", "2"];
    let insert = || program.insert("k", &[]).0["id"].as_i64().unwrap();
    let mut expected: Vec<i64> = (0..5).map(|_| insert()).collect();
    expected.reverse();
    let mut found = ids(&program.lines(&list).0);
    assert!(program.said(&list).1.contains(&format!("--below {}", found[1])));
    while let Some(last) = found.last().map(i64::to_string) {
        insert();
        let page = ids(&program.lines(&[&list[..], &["--below", &last]].concat()).0);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found, expected);
}

#[test]
fn jobs_are_cancelled_and_retried_by_id() {
    let program = Program::new("by id");
    let (inserted, _) = program.insert("k", &[]);
    let id = inserted["id"].to_string();
    let state = |state: &str| (vec![json!({ "id": inserted["id"], "state": state })], 4);
    let unknown = "9007199254740991";
    let cancel = ["cancel", unknown, &id, "--reason", "why"];
    assert_eq!(program.lines(&cancel), state("cancelled"));
    assert_eq!(program.job(&inserted["id"], "cancelled")["cancel_reason"], "why");
    assert_eq!(program.lines(&["retry", &id, unknown]), state("available"));
    let fetched: i32 = program.ask("select attempt from jobs.fetch($1)");
    assert_eq!(fetched, 1);
    let running = (vec![json!({ "id": inserted["id"], "state": "running" })], 0);
    assert_eq!(program.lines(&["cancel", &id]), running);
    program.lines(&["cancel", &id, "--force"]);
    program.lines(&["retry", &id, "--reset"]);
    assert_eq!(program.job(&inserted["id"], "available")["attempt"], 0);
    for wrong in [
        &["retry"][..],
        &["cancel"],
        &["cancel", "1", "--queue", "q"],
        &["cancel", "--queue", "q", "--force"],
        &["retry", "--error", "a", "--error-like", "b"],
    ] {
        let unconnected = [&wrong[..1], &["-d", crate::NOWHERE], &wrong[1..]].concat();
        assert_eq!(program.said(&unconnected).0, 2, "{wrong:?}");
    }
}

#[test]
fn jobs_of_a_filter_change_once_that_is_confirmed() {
    let program = Program::new("many");
    for kind in ["a", "a", "b"] {
        program.insert(kind, &[]);
    }
    let cancel = ["cancel", "-q", &program.queue, "-k", "a"];
    let available = "select count(*) from jobs.jobs where queue = $1 and state = 'available'";
    let preview = json!({ "matching": 2, "states": { "available": 2 } });
    assert_eq!(program.lines(&cancel), (vec![preview], 2));
    let output = program.run(&cancel, "y\n");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("\n2 matching jobs: 2 available\n"), "{text}");
    let answered = |arguments: &[&str], answer: &[u8]| {
        let (mut terminal, stdin) = crate::pty();
        terminal.write_all(answer).unwrap();
        let output = program.command(arguments).stdin(stdin).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = answered(&cancel, b"\n");
    assert!(code == Some(1) && said.starts_with("Cancel 2 jobs? "), "{said}");
    assert_eq!(program.ask::<i64>(available), 3);
    assert_eq!(answered(&cancel, b"y\n").0, Some(0));
    assert_eq!(program.ask::<i64>(available), 1);
    let retry = ["retry", "-q", &program.queue, "-s", "cancelled", "--max", "1", "--yes"];
    for (jobs, left) in [(1, 2), (1, 3), (0, 3)] {
        assert_eq!(program.lines(&retry), (vec![json!({ "jobs": jobs })], 0));
        assert_eq!(program.ask::<i64>(available), left);
    }
}

#[test]
fn cells_are_rows_and_one_that_is_down_says_why() {
    let program = Program::new("cells");
    let url = program.url.as_str();
    program.insert("k", &[]);
    let (cells, code) = program.lines(&["cells", url]);
    assert_eq!((code, cells.len()), (0, 1), "{cells:?}");
    assert_eq!((&cells[0]["role"], &cells[0]["error"]), (&json!("primary"), &Value::Null));
    assert!(cells[0]["available"].as_i64() > Some(0), "{cells:?}");
    let (cells, code) = program.lines(&["cells", url, NOWHERE]);
    assert_eq!((code, cells.len()), (1, 2), "{cells:?}");
    assert!(cells[1]["error"].as_str().unwrap().contains("refused"), "{cells:?}");
    let (code, said) = program.said(&["cells", url, url]);
    assert!(code == 1 && said.contains(" both have "), "{said}");
}
