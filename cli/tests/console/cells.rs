//! One console for several databases.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::line::Line;
use crate::support::{Answer, Console, SCREENS, as_role, run, run_at, url, value_at, wait_for};

const DOWN: &str = "postgresql://operator@127.0.0.1:1/nowhere";
/// Without a role, for a console with a login.
const DOWN_FOR_ALL: &str = "postgresql://127.0.0.1:1/nowhere";

/// The cells 1 and 2, for an operator: the queue mail lives in 2, sync in both, all else in 1.
fn cells(name: &str) -> [String; 2] {
    let url = url();
    let (server, _) = url.rsplit_once('/').unwrap();
    [1, 2].map(|cell| {
        run(&format!("create database {name}_{cell}"));
        let url = format!("{server}/{name}_{cell}");
        run_at(&url, "create extension jobs");
        run_at(
            &url,
            &format!(
                "select jobs.grant_operator('operator'), jobs.set_cell({cell});
                 select jobs.place_queue('*', 1), jobs.place_queue('mail', 2);
                 select jobs.spread_queue('sync', '{{\"by_args\": [\"tenant\"]}}', '{{1,2}}')"
            ),
        );
        as_role(&url, "operator")
    })
}

/// Without a role.
fn bare(url: &str) -> String {
    url.replacen("operator:operator@", "", 1)
}

fn insert(url: &str, queue: &str) -> i64 {
    let insert = format!("select id from jobs.insert('k', queue => '{queue}')");
    value_at(&bare(url), &insert).as_i64().unwrap()
}

/// What a table says of a cell, whose name ends so.
fn row(page: &Answer, name: &str) -> String {
    // What stands before the first row names the cells as well.
    let mut rows = page.body.split("<tr>").skip(1);
    let row = rows.find(|row| row.contains(&format!("{name}</bdi>"))).expect(&page.body);
    Answer::of(200, row.split("</tr>").next().unwrap()).text()
}

#[test]
fn cells_are_rows_and_one_that_is_down_says_why() {
    let [one, two] = cells("rows");
    for _ in 0..3 {
        insert(&one, "reports");
    }
    insert(&two, "mail");
    let console = Console::start_of(&[&one, &two, DOWN], &[]);
    let page = console.visitor().page("/");
    let (first, second, third) =
        (row(&page, "rows_1"), row(&page, "rows_2"), row(&page, "/nowhere"));
    assert!(first.contains("cell 1 primary 1 3 0 "), "{first}");
    assert!(second.contains("cell 2 primary 1 1 0 "), "{second}");
    // There is no synchronous standby.
    assert!(first.contains("warning ") && second.contains("warning "), "{first} {second}");
    assert!(third.contains(" down Postgres is not answering"), "{third}");
    let text = page.text();
    assert!(text.contains("127.0.0.1:1/nowhere\" is down"), "{text}");
    assert!(!text.contains("both have"), "{text}");
    // The others are unaffected, and the one that is down leads back to them.
    console.visitor().page("/db1/queues");
    console.visitor().page("/db2/queues");
    let down = console.get("/db3/queues");
    assert_eq!(down.status, 503);
    assert!(down.body.contains("href=\"/\""), "{}", down.body);
}

#[test]
fn monitors_are_told_of_all_cells_and_which_is_down() {
    let [one, two] = cells("monitored");
    insert(&one, "reports");
    let both = Console::start_of(&[&one, &two], &["--prefix", "/jobs"]);
    assert_eq!(both.get("/jobs/healthz").status, 200);
    let overview = both.get("/jobs/db2");
    assert_eq!((overview.status, overview.header("location")), (303, "/jobs/db2/"));
    let console = Console::start_of(&[&one, &two, DOWN], &[]);
    let health = console.get("/healthz");
    assert_eq!(health.status, 503);
    let known: Value = serde_json::from_str(&health.body).unwrap();
    let error = known["error"].as_str().unwrap();
    assert!(error.starts_with("127.0.0.1:1/nowhere: "), "{error}");
    assert!(!error.contains("monitored"), "{error}");
    assert_eq!(console.get("/db1/healthz").status, 200);

    let metrics = console.get("/metrics");
    assert_eq!(metrics.status, 200, "{}", metrics.body);
    let place = |url: &str| bare(url).replacen("postgresql://", "", 1);
    let (one, two) = (place(&one), place(&two));
    for line in [
        format!("jobs_cell_up{{cell=\"{one}\"}} 1"),
        format!("jobs_cell_up{{cell=\"{two}\"}} 1"),
        "jobs_cell_up{cell=\"127.0.0.1:1/nowhere\"} 0".into(),
        format!("jobs_cell_retired{{cell=\"{two}\",exported_cell=\"2\"}} 0"),
        format!("jobs_queue_jobs{{cell=\"{one}\",queue=\"reports\",state=\"available\"}} 1"),
    ] {
        assert!(metrics.body.lines().any(|known| known == line), "{line}: {}", metrics.body);
    }
    let (heads, samples): (Vec<_>, Vec<_>) =
        metrics.body.lines().partition(|line| line.starts_with('#'));
    assert!(samples.iter().all(|line| line.contains("cell=\"")), "{}", metrics.body);
    let different: BTreeSet<_> = heads.iter().collect();
    assert_eq!(different.len(), heads.len(), "{}", metrics.body);

    let login = Console::start_of(&[&url(), DOWN_FOR_ALL], &["--login"]);
    let health = login.get("/healthz");
    assert_eq!((health.status, &*health.body), (503, r#"{"status":"error"}"#));
    assert_eq!(login.get("/metrics").status, 404);
}

#[test]
fn two_databases_with_one_number_are_found() {
    let [one, _] = cells("doubles");
    let console = Console::start_of(&[&one, &one], &[]);
    let text = console.visitor().page("/").text();
    assert!(text.contains("both have cell number 1"), "{text}");
}

#[test]
fn a_silent_cell_keeps_no_other_waiting() {
    let line = Line::new();
    let urls = [as_role(&line.url, "viewer"), as_role(&url(), "viewer")];
    let console = Console::start_of(&[&urls[0], &urls[1]], &[]);
    console.visitor().page("/");
    line.is_silent(true);
    console.visitor().page("/db2/");
    wait_for("it is silent", || {
        let text = console.visitor().page("/").text();
        text.contains(" down ") && text.contains(" primary ")
    });
}

/// The addresses in a page, except for those of the choice of a cell.
fn addresses(page: &Answer) -> Vec<&str> {
    let (head, rest) = page.body.split_once("<nav class=\"cells\"").expect(&page.body);
    let (_, rest) = rest.split_once("</nav>").unwrap();
    let mut all = Vec::new();
    for part in [head, rest] {
        for name in ["href", "action", "src", "hx-get", "data-live", "data-start"] {
            let values = format!(" {name}=\"");
            all.extend(part.split(&values).skip(1).filter_map(|rest| rest.split('"').next()));
        }
    }
    all.retain(|address| !address.starts_with('#'));
    all
}

#[test]
fn every_link_and_form_stays_in_its_cell() {
    let [one, two] = cells("stays");
    let job = insert(&one, "reports");
    insert(&two, "mail");
    for prefix in ["", "/tools/jobs"] {
        let console = Console::start_of(&[&one, &two], &["--prefix", prefix]);
        let things = [format!("/jobs/{job}"), "/queue?name=reports".into()];
        for path in SCREENS.into_iter().map(String::from).chain(things) {
            let page = console.visitor().page(&format!("{prefix}/db1{path}"));
            let all = addresses(&page);
            let elsewhere = |address: &&&str| !address.starts_with(&format!("{prefix}/db1/"));
            let found: Vec<_> = all.iter().filter(elsewhere).collect();
            // Where a queue is placed says it by its number.
            assert!(found.iter().all(|one| one.contains("/cell/1/")), "{path}: {found:?}");
            assert!(all.len() > 10, "{path}: {all:?}");
        }
    }
    let console = Console::start_of(&[&one, &two], &[]);
    let mut visitor = console.visitor();
    let queues = visitor.page("/db1/queues");
    assert!(queues.body.contains("href=\"/db2/queues\""), "{}", queues.body);
    let foreign = queues.form("/queue/pause");
    visitor.page("/db2/");
    assert_eq!(visitor.post("/db2/queue/pause", &foreign).status, 403);
    let page = visitor.page("/db2/queue?name=mail");
    let paused = visitor.send(&page, "/db2/queue/pause", &[]);
    assert_eq!(paused.header("location"), "/db2/queue?name=mail");
    let text = visitor.follow(&paused).text();
    assert!(text.contains("Queue mail is paused."), "{text}");
    assert!(!visitor.page("/db1/queue?name=mail").text().contains("paused"));
}

#[test]
fn a_job_is_found_in_its_cell() {
    let [one, two] = cells("finds");
    let job = insert(&two, "mail");
    let console = Console::start_of(&[&one, &two], &[]);
    let mut visitor = console.visitor();
    for path in [format!("/jobs?id={job}"), format!("/db1/jobs/{job}")] {
        let mut answer = visitor.get(&path);
        assert_eq!(answer.header("location"), format!("/cell/2/jobs/{job}"), "{path}");
        answer = visitor.get(answer.header("location"));
        assert_eq!(answer.header("location"), format!("/db2/jobs/{job}"), "{path}");
        let text = visitor.follow(&answer).text();
        assert!(text.contains("cell 2"), "{text}");
    }
    assert_eq!(visitor.get(&format!("/db2/jobs/{}", job + 1)).status, 404);
    assert_eq!(visitor.get("/jobs?id=none").status, 422);
    let console = Console::start_of(&[&one, DOWN], &[]);
    let answer = console.get(&format!("/cell/2/jobs/{job}"));
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("None of the databases that answer is cell 2."));
}

#[test]
fn a_queue_leads_to_its_cells() {
    let [one, two] = cells("places");
    let console = Console::start_of(&[&one, &two], &[]);
    let mut visitor = console.visitor();
    let link = "href=\"/cell/2/queue?name=mail\"";
    let all = visitor.page("/");
    assert!(all.body.contains(link) && all.text().contains("sync"), "{}", all.body);
    let queue = visitor.page("/db1/queue?name=mail");
    assert!(queue.body.contains(link), "{}", queue.body);
    assert!(queue.text().contains("Placed in cell 2 ."), "{}", queue.text());
    let spread = visitor.page("/db1/queue?name=sync").text();
    assert!(spread.contains("over cells 1 , 2 ."), "{spread}");
    let answer = visitor.get("/cell/2/queue?name=mail");
    assert_eq!(answer.header("location"), "/db2/queue?name=mail");
    // A retired copy of a cell is shown if nothing else has its number.
    run_at(&bare(&two), "select jobs.retire_cell('elsewhere')");
    wait_for("it is retired", || {
        row(&console.visitor().page("/"), "places_2").contains("primary, retired")
    });
    assert_eq!(visitor.get("/cell/2/queues").status, 303);
}

#[test]
fn one_login_enters_all_cells_that_accept_it() {
    let company = url();
    let console = Console::start_of(&[&company, &company], &["--login"]);
    let mut visitor = console.visitor();
    for path in ["/", "/db1/", "/cell/1/queues"] {
        let answer = visitor.get(path);
        assert!(
            answer.status != 200 && !answer.body.contains("company"),
            "{path}: {}",
            answer.body
        );
    }
    let login = visitor.get("/");
    assert!(login.header("location").starts_with("/db1/login"), "{}", login.header("location"));
    let page = visitor.follow(&login);
    let wrong = visitor.send(&page, "/login", &[("role", "viewer"), ("password", "wrong")]);
    assert_eq!(wrong.status, 403);
    let entered = visitor.send(&page, "/login", &[("role", "viewer"), ("password", "viewer")]);
    assert_eq!(entered.header("location"), "/");
    for path in ["/", "/db1/", "/db2/queues"] {
        visitor.page(path);
    }
    let page = visitor.page("/db2/");
    assert_eq!(visitor.send(&page, "/db2/logout", &[]).status, 303);
    for path in ["/", "/db1/", "/db2/"] {
        assert_eq!(visitor.get(path).status, 303, "{path}");
    }
    // One that is down, and one that asks for no password.
    let [trusting, _] = cells("trusts").map(|url| bare(&url));
    let console = Console::start_of(&[DOWN_FOR_ALL, &company, &trusting], &["--login"]);
    let mut visitor = console.visitor();
    let page = visitor.page("/db1/login");
    let entered = visitor.send(&page, "/login", &[("role", "operator"), ("password", "operator")]);
    assert_eq!(entered.header("location"), "/", "{}", entered.text());
    visitor.page("/db2/");
    assert!(visitor.get("/db3/").header("location").starts_with("/db3/login"));
    assert!(row(&visitor.page("/"), "trusts_1").ends_with("Log in"));
}

#[test]
fn one_database_is_no_cell() {
    let url = as_role(&url(), "viewer");
    let console = Console::start_of(&[&url], &[]);
    assert!(!console.visitor().page("/queues").body.contains("class=\"cells\""));
    assert_eq!(console.get("/db1/").status, 404);
    let refused = Console::command(&url, &["--database", &url]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}
