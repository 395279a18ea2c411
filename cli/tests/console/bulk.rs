//! What is done to many jobs is done to those that were shown, and to no others.

use crate::support::{Console, run, value};

const LATER: &str = "scheduled_at => now() + interval '1 day'";

/// Inserts so many jobs of a kind into a queue, both as SQL.
fn insert(kind: &str, queue: &str, jobs: i64) {
    let insert = format!("jobs.insert({kind}, to_jsonb(n), queue => {queue}, {LATER})");
    run(&format!(
        "select count(*) from generate_series(1, {jobs}) n, {insert}"
    ));
}

/// How many jobs of a queue are in a state.
fn count(queue: &str, state: &str) -> i64 {
    let sql = format!("select count(*) from jobs.jobs where queue = {queue} and state = '{state}'");
    value(&sql).as_i64().unwrap()
}

#[test]
fn names_are_taken_with_their_spaces() {
    let console = Console::start(&[]);
    insert("'spaced'", "' spaced'", 2);
    insert("'spaced'", "'spaced'", 3);
    insert("' '", "'kind is a space'", 4);
    insert("'another'", "'kind is a space'", 5);
    let mut person = console.person("admin");
    let preview = person.page("/bulk?do=cancel&queue=+spaced");
    assert!(preview.text().contains("2 jobs"), "{}", preview.text());
    let done = person.send(&preview, "/bulk", &[]);
    assert!(person.follow(&done).text().contains("2 jobs"));
    assert_eq!(
        (
            count("' spaced'", "cancelled"),
            count("'spaced'", "scheduled")
        ),
        (2, 3)
    );
    let preview = person.page("/bulk?do=delete&kind=+&queue=kind+is+a+space");
    assert!(preview.text().contains("4 jobs"), "{}", preview.text());
    let done = person.send(&preview, "/bulk", &[]);
    person.follow(&done);
    assert_eq!(count("'kind is a space'", "scheduled"), 5);
}

#[test]
fn no_more_jobs_are_changed_than_were_shown() {
    let console = Console::start(&[]);
    insert("'k'", "'shown before'", 2);
    let mut person = console.person("admin");
    let preview = person.page("/bulk?do=cancel&queue=shown+before");
    insert("'k'", "'shown before'", 3);
    let done = person.send(&preview, "/bulk", &[]);
    person.follow(&done);
    let now = (
        count("'shown before'", "cancelled"),
        count("'shown before'", "scheduled"),
    );
    assert_eq!(now, (2, 3));
    let done = person.send(&preview, "/bulk", &[("of", "do=delete")]);
    assert_eq!(done.status, 422, "a form without a filter is refused");
}

#[test]
fn times_that_cannot_be_are_refused() {
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    for time in [
        "%2B262142-12-31T23:59",
        "0000-01-01T00:00",
        "-4713-01-01T00:00",
        "soon",
    ] {
        for name in ["after", "before", "failed_after"] {
            assert_eq!(
                person.get(&format!("/jobs?{name}={time}")).status,
                422,
                "{name} {time}"
            );
        }
    }
}
