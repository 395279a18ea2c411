//! Commands that look at jobs and manage them.

use serde_json::{Value, json};

use crate::Program;

impl Program {
    /// The lines that it prints as JSON, and the exit code.
    fn lines(&self, arguments: &[&str]) -> (Vec<Value>, i32) {
        let output = self.run(&[&["--json"], arguments].concat(), "");
        let lines = output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice(line).unwrap());
        (lines.collect(), output.status.code().unwrap())
    }

    /// The exit code, and what it says on stderr.
    fn said(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments, "");
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }
}

#[test]
fn why_a_job_does_not_run_is_explained() {
    let Some(program) = Program::new("explain") else {
        return;
    };
    let (inserted, _) = program.insert("k", &["--at", "2100-01-01 UTC"]);
    let id = inserted["id"].to_string();
    let (reasons, code) = program.lines(&["explain", &id]);
    assert_eq!((code, &reasons[0]["reason"]), (0, &json!("scheduled")));
    assert!(
        reasons[0]["until"]
            .as_str()
            .unwrap()
            .starts_with("2100-01-01"),
        "{reasons:?}"
    );
    let output = program.run(&["explain", &id], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("scheduled: due at 2100-01-01"), "{text}");
    assert_eq!(program.said(&["explain", "9007199254740991"]).0, 4);
}

#[test]
fn a_paused_queue_gives_no_jobs_until_it_is_resumed() {
    let Some(program) = Program::new("pause") else {
        return;
    };
    let reason = |id: &Value| program.lines(&["explain", &id.to_string()]).0[0]["reason"].clone();
    let (inserted, _) = program.insert("k", &[]);
    let pause = ["pause", &program.queue, "--reason", "mail server is down"];
    let paused = json!({ "queue": program.queue, "paused": true });
    assert_eq!(program.lines(&pause), (vec![paused], 0));
    assert_eq!(reason(&inserted["id"]), "queue paused");
    let why: String = program.ask("select pause_reason from jobs.queues where queue = $1");
    assert_eq!(why, "mail server is down");
    assert_eq!(program.said(&["resume", &program.queue]).0, 0);
    assert_ne!(reason(&inserted["id"]), "queue paused");
    assert_eq!(program.said(&["pause"]).0, 2);
}

#[test]
fn a_periodic_job_is_paused_with_others_or_not_at_all() {
    let Some(program) = Program::new("periodic") else {
        return;
    };
    let name = program.queue.as_str();
    program.change(&format!(
        "select jobs.schedule('{name}', '0 0 1 1 *', 'k', queue => '{name}')"
    ));
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
    let Some(program) = Program::new("health") else {
        return;
    };
    program.insert("k", &[]);
    program.lines(&["pause", &program.queue]);
    let (findings, code) = program.lines(&["health"]);
    let output = program.run(&["health"], "");
    program.lines(&["resume", &program.queue]);
    let is_ours = |text: &str| text.contains(&format!("queue \"{}\" ", program.queue));
    let finding = findings
        .iter()
        .find(|found| is_ours(found["message"].as_str().unwrap()));
    assert_eq!(
        (code, &finding.unwrap()["finding"]),
        (1, &json!("queue_paused"))
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().skip_while(|line| !is_ours(line));
    assert!(
        lines.next().unwrap().starts_with("info (queue_paused): "),
        "{text}"
    );
    assert!(lines.next().unwrap().starts_with("  HINT: "), "{text}");
}

#[test]
fn a_fault_of_the_connection_or_its_rights_has_a_hint() {
    let Some(program) = Program::new("hints") else {
        return;
    };
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
        (
            format!("{place}/no_such_database"),
            "HINT: Check the name of the database.",
        ),
        (other, "HINT: Check the user and the password."),
        (
            format!("{}?sslmode=require", program.url),
            "HINT: Set sslmode=disable ",
        ),
    ] {
        let (code, said) = program.said(&["show", "1", "-d", &url]);
        assert!(code == 3 && said.contains(hint), "{code}: {said}");
    }
}
