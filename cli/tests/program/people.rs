//! What is printed for people.

use serde_json::{Value, json};

use crate::Program;

/// What is printed.
fn printed(program: &Program, arguments: &[&str]) -> String {
    let output = program.run(arguments, "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn has_control(text: &str) -> bool {
    text.contains(|one: char| one.is_control() && one != '\n')
}

#[test]
fn show_prints_what_is_known_of_a_job_a_line_each() {
    let program = Program::new("shown");
    let _worker = program.work(&[], "echo '[1, \"two\"]'");
    let (inserted, _) = program.insert("k", &["--wait", "60", "--max-attempts", "7"]);
    let id = &inserted["id"];
    let text = printed(&program, &["show", &id.to_string()]);
    let first: Vec<&str> = text.lines().take(8).collect();
    let queue = format!("  queue                {}", program.queue);
    let expected = [
        &format!("job {id}"),
        "  state                completed",
        "  kind                 k",
        &queue,
        "  attempt              1",
        "  max_attempts         7",
        r#"  args                 {"n": [1, "ü"]}"#,
        r#"  output               [1, "two"]"#,
    ];
    assert_eq!(first, expected, "{text}");
    assert!(text.contains("\n  priority             1\n"), "{text}");
}

#[test]
fn what_a_handler_said_commands_no_terminal() {
    let program = Program::new("escapes");
    let script = r#"case $JOBS_KIND in
        error) printf 'first\033[2J\tstill\r\n\033]0;title\007 \302\233last' >&2; exit 1;;
        output) printf '"one\\u001b[2J\302\233\\n  state  gone\\u202e"';;
        esac"#;
    let _worker = program.work(&[], script);
    let shown = |kind: &str| {
        let (inserted, _) = program.insert(kind, &["--max-attempts", "1"]);
        program.job_that_ended(&inserted["id"]);
        printed(&program, &["show", &inserted["id"].to_string()])
    };
    let text = shown("output");
    let lines = "\n  output               one\\x1b[2J\\x9b\\n  state  gone\\u202e\n";
    assert!(text.contains(lines), "{text:?}");
    let text = shown("error");
    let lines = "\n    first\\x1b[2J\tstill\\r\n    \\x1b]0;title\\x07 \\x9blast\n";
    assert!(text.contains(lines), "{text:?}");
    assert!(!has_control(&text.replace('\t', "")), "{text:?}");
    let insert = ["insert", "error", "-q", &program.queue, "--max-attempts", "1", "--wait", "60"];
    let said = String::from_utf8(program.run(&insert, "").stderr).unwrap();
    assert!(said.ends_with("\\x1b]0;title\\x07 \\x9blast\n"), "{said:?}");
    assert!(!has_control(&said.replace('\t', "")), "{said:?}");
}

#[test]
fn what_a_worker_says_of_itself_commands_no_terminal() {
    let program = Program::new("beat");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let info = format!(r#"{{"version": "\u001b[2J1\n2", "deep": {deep}}}"#);
    let beat = format!("select count(jobs.worker_beat($1, array[$1], 1, '{info}'))");
    program.ask::<i64>(&beat);
    let text = printed(&program, &["top", "--once"]);
    assert!(text.contains(&program.queue), "{text}");
    assert!(text.contains("  \\x1b[2J1\\n2\n"), "{text:?}");
    assert!(!has_control(&text), "{text:?}");
    let line = printed(&program, &["top", "--json"]);
    assert!(line.contains(&format!(r#""deep": {deep}"#)), "{line}");
}

#[test]
fn the_busiest_queues_are_shown() {
    let program = Program::new("many");
    // Those of other tests are busier.
    let insert = "select count(*) from jobs.insert_many((select jsonb_agg(jsonb_build_object(
        'kind', 'k', 'queue', $1 || n, 'scheduled_at', '2999-01-01T00:00:00Z')) from generate_series(1, 1001) n))";
    program.ask::<i64>(insert);
    let shown: Value = serde_json::from_str(&printed(&program, &["top", "--json"])).unwrap();
    assert_eq!(shown["queues"].as_array().map(Vec::len), Some(1000));
}

#[test]
fn a_job_deeper_than_a_value_of_serde_is_shown() {
    let program = Program::new("deep shown");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let insert = ["--json", "insert", "k", &deep, "-q", &program.queue];
    let inserted: Value = serde_json::from_str(&printed(&program, &insert)).unwrap();
    assert_eq!(inserted["duplicate"], json!(false));
    let text = printed(&program, &["show", &inserted["id"].to_string()]);
    assert!(text.contains(&format!("\n  args                 {deep}\n")), "{text}");
}
