//! Who holds a key, and what an insert would do.

use crate::support::{Answer, Console, Visitor, sql, value};

const ARGS: &str = r#"{"account": 9007199254740993}"#;
const OPTIONS: &str = r#"{"by_args": true, "hold_for": "1 hour"}"#;

fn tried(person: &mut Visitor, fields: &[(&str, &str)]) -> Answer {
    let page = person.page("/unique");
    person.send(&page, "/unique/explain", fields)
}

#[test]
fn who_holds_a_key_is_found_by_the_key_and_by_a_job() {
    let console = Console::start(&[]);
    // What an earlier run has held is held for an hour.
    let kind = format!("key.held.{}", std::process::id());
    let of = format!("select id from jobs.insert('{kind}', '{ARGS}', '{OPTIONS}')");
    let id = value(&of).to_string();
    let of = format!("select jobs.unique_key('{kind}', '{ARGS}', '{OPTIONS}') as key");
    let key = value(&of).as_str().unwrap().to_owned();
    let mut person = console.person("viewer");
    for search in [&id, &key, &key.to_uppercase()] {
        let page = person.page(&format!("/unique?search={search}"));
        assert!(page.body.contains(&key), "{search}: {}", page.text());
        assert!(page.body.contains(&format!("href=\"/jobs/{id}\"")));
        assert!(page.text().contains("A hold keeps the key taken until"));
    }
    // The hold of a job that is gone goes on.
    sql(&format!("select jobs.delete({id})"));
    let page = person.page(&format!("/unique?search={key}"));
    assert!(page.text().contains(&format!("{id} no longer exists")), "{}", page.text());
    let page = person.page(&format!("/unique?search={id}"));
    assert!(page.text().contains(&format!("Job {id} does not exist")));
    let page = person.page("/unique?search=%27+or+true");
    assert!(page.text().contains("Not a key or job ID"));
}

#[test]
fn what_an_insert_would_do_is_said_and_nothing_is_inserted() {
    let console = Console::start(&[]);
    let of = r#"select id from jobs.insert('key.tried', '{"n": 1}', '{"by_args": true}')"#;
    let id = value(of).to_string();
    let mut person = console.person("operator");
    let unique = r#"{"by_args": true}"#;
    let cases = [
        (r#"{"n": 2}"#, unique, "Inserts the job: nothing conflicts".to_owned()),
        (r#"{"n": 1}"#, "", "Inserts the job: it is not unique".to_owned()),
        (r#"{"n": 1}"#, unique, format!("Inserts nothing and returns job {id} (available)")),
        (
            r#"{"n": 1}"#,
            r#"{"by_args": true, "on_conflict": "reject"}"#,
            format!("Fails with 23505: job {id}"),
        ),
        (
            r#"{"n": 1}"#,
            r#"{"by_args": true, "on_conflict": "replace"}"#,
            format!("Cancels job {id}"),
        ),
    ];
    for (args, options, said) in cases {
        let fields = [("kind", "key.tried"), ("args", args), ("unique_opts", options)];
        let page = tried(&mut person, &fields);
        assert_eq!(page.status, 200);
        assert!(page.text().contains(&said), "{said}: {}", page.text());
    }
    assert_eq!(value("select count(*) from jobs.jobs where kind = 'key.tried'"), 1);
}

#[test]
fn what_is_wrong_is_said_beside_its_field() {
    let console = Console::start(&[]);
    let mut person = console.person("application");
    for (kind, field, value) in [
        ("", "kind", ""),
        ("k", "args", "{\"n\": "),
        ("k", "unique_opts", r#"{"by_argz": true}"#),
        ("k", "meta", "[1]"),
    ] {
        let fields = [("kind", kind), (field, value)];
        let fields = &fields[usize::from(field == "kind")..];
        let page = tried(&mut person, fields);
        assert_eq!(page.status, 422, "{field}");
        assert!(page.body.contains(&format!("id=\"{field}-wrong\"")), "{field}: {}", page.body);
    }
    assert!(!console.person("viewer").page("/unique").has_form("/unique/explain"));
}
