//! The audit: its filters, and its pages by time.

use crate::support::{Console, Visitor, run};

/// Each is audited, all of them at one time.
fn pause_at_once(queues: usize) {
    run(&format!(
        "do $$ begin perform jobs.pause_queue('audited.' || n, 'so that ' || n) from generate_series(1, {queues}) n; end $$"
    ));
}

/// The queues that a page is about, and the next page.
fn look(person: &mut Visitor, path: &str) -> (Vec<String>, Option<String>) {
    let page = person.page(path);
    let links = page.body.split("href=\"/queue?name=audited.").skip(1);
    let queues = links.map(|link| link.split('"').next().unwrap().to_owned());
    let next = page.body.split("rel=\"next\" href=\"").nth(1);
    let next = next.map(|next| next.split('"').next().unwrap().replace("&amp;", "&"));
    (queues.collect(), next)
}

#[test]
fn pages_have_each_call_once_also_where_many_are_of_one_time() {
    let console = Console::start(&[]);
    pause_at_once(120);
    let mut person = console.person("viewer");
    let (mut all, mut next) = (Vec::new(), Some("/audit?action=pause_queue".to_owned()));
    while let Some(path) = next.take() {
        let (queues, following) = look(&mut person, &path);
        all.extend(queues);
        next = following.filter(|_| all.len() < 120);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 120);
    run(
        "do $$ begin perform jobs.resume_queue('audited.' || n) from generate_series(1, 120) n; end $$",
    );
}

#[test]
fn a_filter_finds_what_it_says() {
    let console = Console::start(&[]);
    let queue = format!("audit {}", std::process::id());
    run(&format!(
        "select jobs.pause_queue('{queue}', 'to be found'), jobs.resume_queue('{queue}')"
    ));
    let mut person = console.person("viewer");
    let queue = queue.replace(' ', "+");
    let link = format!("href=\"/queue?name={queue}\"");
    let mut count = |query: &str| {
        let page = person.page(&format!("/audit?target={queue}{query}"));
        page.body.matches(&link).count()
    };
    assert_eq!(count(""), 2);
    assert_eq!(count("&action=pause_queue&role=postgres"), 1);
    assert_eq!(count("&role=viewer"), 0);
    assert_eq!(count("&from=2020-01-01T00:00"), 2);
    assert_eq!(count("&to=2020-01-01T00:00"), 0);
}

#[test]
fn who_logged_in_is_shown_after_set_role() {
    let console = Console::start(&[]);
    let queue = format!("login {}", std::process::id());
    run(&format!(
        "set role operator; select jobs.pause_queue('{queue}'), jobs.resume_queue('{queue}')"
    ));
    let mut person = console.person("viewer");
    for role in ["operator", "postgres"] {
        let query = format!("/audit?target={}&role={role}", queue.replace(' ', "+"));
        let page = person.page(&query).body;
        assert_eq!(page.matches("logged in as <bdi>postgres</bdi>").count(), 2, "{page}");
    }
}
