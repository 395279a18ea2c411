//! What the screens show: all of it, exactly, however large.

use crate::support::{Console, SCREENS, encoded, run, sql, value};

#[test]
fn every_screen_is_there_for_every_role() {
    let console = Console::start(&[]);
    let job = value("select max(id) from jobs.jobs where kind = 'payment.capture'");
    let job = format!("/jobs/{job}");
    let things = [&*job, "/queue?name=mail", "/worker?name=mailer-2", "/periodic/job?name=stock"];
    for role in ["viewer", "operator", "application", "admin"] {
        let mut person = console.person(role);
        for path in SCREENS.into_iter().chain(things) {
            let page = person.page(path);
            assert_eq!(page.body.matches("<h1").count(), 1, "{role} {path}");
            assert!(page.body.contains("aria-current=\"page\""), "{role} {path}");
        }
    }
}

#[test]
fn the_worst_findings_come_first_and_few_are_shown_at_once() {
    // Beside discarded jobs a paused queue, and a kind and a queue that fail.
    run("select jobs.pause_queue('to be found') from jobs.insert('to.be.found', queue => 'to be found');
         select count(*) from jobs.insert_batch('to.fail', array_fill('1'::jsonb, '{20}'), queue => 'to fail');
         select count(jobs.fail(id, token, 'to be found', '1 day')) from jobs.fetch('to fail', 20)");
    let console = Console::start_as("viewer", &[]);
    let body = console.visitor().page("/").body;
    let (shown, more) = body.split_once("<details class=\"more-findings\"").expect(&body);
    let severities = |html: &str| -> Vec<usize> {
        let findings = html.split("<div class=\"finding ").skip(1);
        let rank = |finding: &str| {
            let severity = finding.split('"').next().unwrap();
            ["critical", "warning", "info"].iter().position(|one| *one == severity)
        };
        findings.map(|finding| rank(finding).unwrap()).collect()
    };
    let (shown, more) = (severities(shown), (severities(more), more));
    assert_eq!(shown.len(), 3);
    assert!(more.1.contains(&format!("<summary>{} more finding", more.0.len())), "{body}");
    let all = [shown, more.0].concat();
    assert!(all.is_sorted(), "{all:?}");
}

#[test]
fn each_task_of_maintenance_says_what_it_does() {
    let console = Console::start_as("viewer", &[]);
    let body = console.visitor().page("/maintenance").body;
    let tasks = value("select string_agg(task, ' ') from jobs.maintenance");
    for task in tasks.as_str().unwrap().split(' ') {
        let (_, row) = body.split_once(&format!("scope=\"row\">{task}<")).expect(task);
        let (_, words) = row.split_once('>').unwrap();
        assert!(!words.starts_with('<'), "{task}: {}", &row[..100]);
    }
}

#[test]
fn what_is_not_there_is_said_so() {
    let console = Console::start(&[]);
    let mut person = console.person("viewer");
    for path in [
        "/jobs/9000000000000000000",
        "/nothing",
        "/periodic/job?name=nothing",
        "/worker?name=nobody",
    ] {
        let answer = person.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.header("content-type").starts_with("text/html"), "{path}");
        assert!(answer.has_form("/logout"), "{path} has the frame");
    }
    assert!(person.page("/jobs?kind=there.is.none").text().contains("No job"));
}

#[test]
fn numbers_are_exact() {
    let console = Console::start(&[]);
    let job = value("select max(id) from jobs.jobs where kind = 'odd.numbers'");
    let mut person = console.person("operator");
    for path in [format!("/jobs/{job}"), format!("/jobs/{job}/raw?what=args")] {
        let body = person.page(&path).body;
        for number in [
            "9007199254740993",
            "123456789012345678901234567890",
            "0.10000000000000000555",
            &format!("1{}", "0".repeat(40)),
        ] {
            assert!(body.contains(number), "{path}: {number}");
        }
    }
}

#[test]
fn large_jobs_are_small_pages() {
    let console = Console::start(&[]);
    let job = value("select max(id) from jobs.jobs where kind = 'odd.large'");
    let mut person = console.person("application");
    let page = person.page(&format!("/jobs/{job}"));
    assert!(page.body.len() < 200_000, "{} bytes", page.body.len());
    assert!(page.text().contains("MB") || page.text().contains("kB"), "it says how large");
    let raw = person.page(&format!("/jobs/{job}/raw?what=args"));
    assert!(
        raw.body.len() > 800_000 && raw.body.contains("name 14999"),
        "{} bytes",
        raw.body.len()
    );
    assert!(raw.header("content-type").starts_with("text/plain"));

    let deep = value("select max(id) from jobs.jobs where kind = 'odd.deep'");
    person.page(&format!("/jobs/{deep}"));
}

#[test]
fn a_thousand_errors_come_by_the_page() {
    let console = Console::start(&[]);
    let job = value("select max(id) from jobs.jobs where kind = 'odd.errors'");
    let mut person = console.person("viewer");
    let mut seen = Vec::new();
    for number in 1..=50 {
        let page = person.page(&format!("/jobs/{job}?errors={number}"));
        let found: Vec<String> = page
            .text()
            .split("found port ")
            .skip(1)
            .map(|rest| rest.split(' ').next().unwrap().to_owned())
            .collect();
        assert!(!found.is_empty(), "page {number}");
        seen.extend(found);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 1000, "{} errors on 50 pages", seen.len());
}

#[test]
fn a_list_goes_on_where_it_ended_though_jobs_come() {
    let console = Console::start(&[]);
    run(
        "select count(*) from generate_series(1, 230) n, jobs.insert('paged', to_jsonb(n), queue => 'paged', scheduled_at => now() + interval '1 day')",
    );
    let ids: Vec<i64> = sql("select id from jobs.jobs where queue = 'paged' order by id desc")
        .iter()
        .map(|row| row["id"].as_i64().unwrap())
        .collect();
    let mut person = console.person("viewer");
    let mut page = person.page("/jobs?queue=paged&state=scheduled");
    let mut seen = Vec::new();
    loop {
        seen.extend(rows(&page.body));
        let Some(next) = page.next() else {
            break;
        };
        run(
            "select from jobs.insert('paged', queue => 'paged', scheduled_at => now() + interval '1 day')",
        );
        page = person.page(&next);
    }
    assert_eq!(seen, ids, "every job once, the newest first");
}

/// The ids of a list's rows, in order.
fn rows(body: &str) -> Vec<i64> {
    let links = body.split("href=\"/jobs/").skip(1);
    let mut ids: Vec<i64> = links.filter_map(|link| link.split('"').next()?.parse().ok()).collect();
    ids.dedup();
    ids
}

#[test]
fn a_filter_finds_what_it_says() {
    let console = Console::start(&[]);
    run("select from jobs.insert('filtered.a', queue => 'filtered', tags => '{red}', scheduled_at => now() + interval '1 day');
         select from jobs.insert('filtered.b', queue => 'filtered', tags => '{blue}', pending => true)");
    let mut person = console.person("viewer");
    for (filter, a, b) in [
        ("queue=filtered", true, true),
        ("queue=filtered&kind=filtered.a", true, false),
        ("queue=filtered&tag=blue", false, true),
        ("queue=filtered&state=pending", false, true),
        ("queue=filtered&state=running", false, false),
        ("queue=filtered&before=2020-01-01T00:00", false, false),
        ("queue=filtered&after=2020-01-01T00:00", true, true),
    ] {
        let pages = person.list(&format!("/jobs?{filter}"));
        let tables = pages.iter().filter_map(|page| page.body.split("<table").nth(1));
        let body: String = tables.collect();
        assert_eq!((body.contains("filtered.a"), body.contains("filtered.b")), (a, b), "{filter}");
    }
    let failed =
        person.list(&format!("/jobs?kind=payment.capture&error={}", encoded("insufficient_funds")));
    assert!(failed.iter().any(|page| page.text().contains("insufficient_funds")));
    let id = value("select max(id) from jobs.jobs where kind = 'filtered.a'");
    assert_eq!(person.get(&format!("/jobs?id={id}")).header("location"), format!("/jobs/{id}"));
}
