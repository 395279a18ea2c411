//! What is done to many jobs is done to those that were shown, and to no others.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Console, SOON, Visitor, encoded, run, value};

const LATER: &str = "scheduled_at => now() + interval '1 day'";

/// Inserts so many jobs of a kind into a queue, both as SQL.
fn insert(kind: &str, queue: &str, jobs: i64) {
    let insert = format!("jobs.insert({kind}, to_jsonb(n), queue => {queue}, {LATER})");
    run(&format!("select count(*) from generate_series(1, {jobs}) n, {insert}"));
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
    assert_eq!((count("' spaced'", "cancelled"), count("'spaced'", "scheduled")), (2, 3));
    let preview = person.page("/bulk?do=delete&kind=+&queue=kind+is+a+space");
    assert!(preview.text().contains("4 jobs"), "{}", preview.text());
    let done = person.send(&preview, "/bulk", &[]);
    person.follow(&done);
    assert_eq!(count("'kind is a space'", "scheduled"), 5);
}

/// Each character of a text that is typed is that character, for the list and for the action.
#[test]
fn an_error_is_found_as_it_is_typed() {
    let console = Console::start(&[]);
    let errors = [r"a_b", "axb", r"50 %", "50 of it", r"c:\d", "c:d"];
    for error in errors {
        let insert =
            "jobs.insert('alike.k', to_jsonb('{}'::text), queue => 'alike', max_attempts => 1)";
        run(&format!("select from {}", insert.replace("{}", error)));
    }
    run(
        "select from jobs.fetch('alike', max_jobs => 9) f, jobs.fail(f.id, f.token, f.args #>> '{}')",
    );
    let mut person = console.person("admin");
    let retried = "select coalesce(jsonb_agg(args order by id), '[]') from jobs.jobs
        where queue = 'alike' and state = 'available'";
    let found = |person: &mut Visitor, filter: &str| {
        let pages = person.list(&format!("/jobs?{filter}"));
        pages.iter().map(|page| page.body.matches(">alike.k<").count()).sum::<usize>()
    };
    let mut all = Vec::new();
    for error in errors.into_iter().step_by(2) {
        all.push(error);
        let filter = format!("queue=alike&error={}", encoded(error));
        assert_eq!(found(&mut person, &filter), 1, "{error}");
        let preview = person.page(&format!("/bulk?do=retry&whole=yes&{filter}"));
        assert!(preview.text().contains("1 job"), "{}", preview.text());
        let done = person.send(&preview, "/bulk", &[("shown", "9")]);
        assert!(person.follow(&done).text().contains("1 job"));
        assert_eq!(value(retried), serde_json::json!(all));
    }
    // Those of Failures leave open only what differs by a number.
    let failures = person.page("/failures");
    let of_it = "error_like=%25+of+it%25";
    assert!(failures.body.contains(of_it), "{}", failures.body);
    assert!(failures.body.contains("error_like=a%5C_b%25"));
    assert_eq!(found(&mut person, &format!("queue=alike&{of_it}")), 1);
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
    let now = (count("'shown before'", "cancelled"), count("'shown before'", "scheduled"));
    assert_eq!(now, (2, 3));
    let done = person.send(&preview, "/bulk", &[("of", "do=delete")]);
    assert_eq!(done.status, 422, "a form without a filter is refused");
}

/// Keeps every query of jobs waiting until the first window of ids has waited for as long as all
/// windows may take together.
const HOLD: &str = "begin; lock table jobs.error; do $$begin for n in 1..600 loop \
    exit when exists (select from pg_stat_activity where wait_event_type = 'Lock' \
        and application_name = 'jobs console' and query like '%from jobs.jobs%order by id desc%'); \
    perform pg_stat_clear_snapshot(); perform pg_sleep(0.05); end loop; \
    perform pg_sleep(0.2); end$$; commit";

#[test]
#[ignore = "it locks a table, so it runs alone"]
fn who_is_shown_some_of_the_jobs_is_told_so() {
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    insert("'seen.in.part'", "'seen in part'", 5);
    insert("'another'", "'seen in part, too'", 300);
    insert("'seen.in.part'", "'seen in part'", 2);
    let path = "/bulk?do=cancel&kind=seen.in.part";
    let preview = thread::scope(|scope| {
        let held = scope.spawn(|| run(HOLD));
        let begun = Instant::now();
        let locks = "select count(*) from pg_locks where granted \
            and relation = 'jobs.error'::regclass and mode = 'AccessExclusiveLock'";
        while value(locks) != 1 {
            assert!(begun.elapsed() < SOON);
            thread::sleep(Duration::from_millis(10));
        }
        let preview = person.page(path);
        held.join().unwrap();
        preview
    });
    let text = preview.text();
    assert!(text.contains("At least 2 jobs"), "{text}");
    assert!(text.contains("Searched down to job") && text.contains("Search all"), "{text}");
    let whole = person.page(&format!("{path}&whole=yes")).text();
    assert!(whole.contains("Cancel these 7 jobs") && !whole.contains("At least"), "{whole}");
    // No more than were shown, unless somebody says so; the oldest come first.
    let cancelled = "select jsonb_agg(args order by id) from jobs.jobs \
        where kind = 'seen.in.part' and state = 'cancelled'";
    let done = person.send(&preview, "/bulk", &[]);
    assert!(person.follow(&done).text().contains("2 jobs"));
    assert_eq!(value(cancelled), serde_json::json!([1, 2]));
    let done = person.send(&preview, "/bulk", &[("shown", "3")]);
    assert!(person.follow(&done).text().contains("3 jobs"));
    assert_eq!(value(cancelled), serde_json::json!([1, 2, 3, 4, 5]));
}

#[test]
fn times_that_cannot_be_are_refused() {
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    for time in ["%2B262142-12-31T23:59", "0000-01-01T00:00", "-4713-01-01T00:00", "soon"] {
        for name in ["after", "before", "failed_after"] {
            assert_eq!(person.get(&format!("/jobs?{name}={time}")).status, 422, "{name} {time}");
        }
    }
}
