//! The form that changes a job.

use serde_json::json;

use crate::support::{Console, run, value};

fn insert(options: &str) -> String {
    let sql = format!(
        "select id from jobs.insert('edit', {options}, scheduled_at => now() + interval '1 day')"
    );
    value(&sql).to_string()
}

#[test]
fn what_somebody_else_has_changed_is_not_undone_without_a_word() {
    let console = Console::start(&[]);
    let id = insert("priority => 3");
    let path = format!("/jobs/{id}/edit");
    let priority = || value(&format!("select priority from jobs.jobs where id = {id}"));
    let mut person = console.person("admin");
    let page = person.page(&path);
    run(&format!("select jobs.update({id}, priority => 5)"));
    let other = person.send(&page, &path, &[("max_attempts", "9")]);
    assert_eq!(other.status, 303, "another field is nobody's business: {}", other.text());
    let told = person.send(&page, &path, &[("priority", "7")]);
    assert_eq!((told.status, priority()), (422, json!(5)));
    assert!(told.text().contains("is now 5"), "{}", told.text());
    let again = person.send(&told, &path, &[]);
    assert_eq!((again.status, priority()), (303, json!(7)));
}

/// With its spaces it would be 100 MB.
#[test]
fn deep_args_are_edited_as_they_are() {
    let console = Console::start(&[]);
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let id = insert(&format!("'{deep}'"));
    let path = format!("/jobs/{id}/edit");
    let mut person = console.person("admin");
    let page = person.page(&path);
    let args = page.form(&path).into_iter().find(|(name, _)| name == "args");
    assert_eq!(args.map(|(_, value)| value), Some(deep));
    assert!(page.body.len() < 100_000, "{}", page.body.len());
    let id = insert("to_jsonb(repeat('x', 70000))");
    let page = person.page(&format!("/jobs/{id}/edit"));
    assert!(page.text().contains("Args: too large to edit here"));
}

#[test]
fn a_tag_may_have_a_comma() {
    let console = Console::start(&[]);
    let id = insert("tags => '{\"a, b\",c}'");
    let path = format!("/jobs/{id}/edit");
    let mut person = console.person("admin");
    let page = person.page(&path);
    let done = person.send(&page, &path, &[("tags", "a, b\r\nd\r\n")]);
    assert_eq!(done.status, 303, "{}", done.text());
    assert_eq!(value(&format!("select tags from jobs.jobs where id = {id}")), json!(["a, b", "d"]));
}

#[test]
fn what_is_wrong_stands_beside_its_field() {
    let console = Console::start(&[]);
    let id = insert("priority => 3");
    let path = format!("/jobs/{id}/edit");
    let mut person = console.person("admin");
    let page = person.page(&path);
    for (name, text) in
        [("args", "{not json"), ("max_attempts", "many"), ("queue", ""), ("timeout", "soon")]
    {
        let wrong = person.send(&page, &path, &[(name, text)]);
        assert_eq!(wrong.status, 422, "{name}");
        assert!(wrong.body.contains(&format!("id=\"{name}-wrong\"")), "{name}: {}", wrong.body);
    }
}
