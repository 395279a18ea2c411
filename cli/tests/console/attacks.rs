//! What others try to do with it: texts that are code, forged requests, headers.

use crate::support::{Answer, Console, SCREENS, Visitor, encoded, run, sql, value};

/// The pages that show everything a user can name.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = SCREENS.map(str::to_owned).into();
    pages.extend(["/jobs?tag=odd".into(), "/failures?since=7d".into()]);
    for job in sql("select id, kind, unique_key from jobs.jobs where 'odd' = any(tags)") {
        let kind = encoded(job["kind"].as_str().unwrap());
        for page in [
            format!("/jobs/{}", job["id"]),
            format!("/jobs/{}/edit", job["id"]),
            format!("/jobs?kind={kind}"),
            format!("/jobs?queue={kind}&tag={kind}"),
            format!("/jobs?error={kind}"),
            format!("/bulk?do=retry&kind={kind}"),
            format!("/queue?name={kind}"),
            format!("/queues?filter={kind}"),
            format!("/limits?filter={kind}"),
            format!("/order?name={kind}"),
            format!("/worker?name={kind}"),
            format!("/periodic/job?name={kind}"),
            format!("/audit?target={kind}"),
            format!("/unique?search={}", job["unique_key"].as_str().unwrap_or_default()),
            format!("/unique?search={kind}"),
            format!("/{kind}"),
        ] {
            pages.push(page);
        }
    }
    pages
}

/// The tags of a page: what is between < and >. A text that somebody has named something has none,
/// since its < is escaped.
fn tags(answer: &Answer) -> impl Iterator<Item = &str> {
    answer.body.split('<').skip(1).filter_map(|part| part.split('>').next())
}

fn is_harmless(path: &str, answer: &Answer) {
    assert!(!answer.body.contains("<script>alert"), "{path} runs a script");
    assert!(!answer.body.contains("<img"), "{path} has a picture of others");
    for tag in tags(answer) {
        let name = tag.split([' ', '/']).next().unwrap();
        assert!(name != "script" || tag.contains(" src=\"/"), "{path}: {tag}");
        // Outside of the values of attributes, which are quoted.
        let names: String = tag.split('"').step_by(2).collect();
        let mut names = names.split_whitespace().skip(1);
        assert!(
            names.all(|name| !name.starts_with("on")
                && !name.starts_with("style")
                && !name.starts_with("srcdoc")),
            "{path}: {tag}"
        );
        assert!(!tag.contains("=\"javascript:") && !tag.contains("=\"data:text"), "{path}: {tag}");
    }
}

#[test]
fn no_text_becomes_code() {
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    let pages = pages();
    assert!(pages.len() > 80, "the company has odd jobs: {pages:?}");
    for path in pages {
        let answer = person.get(&path);
        assert!(answer.status < 500, "{path}: {}", answer.text());
        is_harmless(&path, &answer);
    }
    // So the texts were there.
    let job = value("select max(id) from jobs.jobs where kind = '<script>alert(1)</script>'");
    let page = person.page(&format!("/jobs/{job}"));
    assert!(page.text().matches("<script>alert(1)</script>").count() > 5, "{}", page.text());
}

#[test]
fn what_is_not_escaped_would_be_found() {
    let wrong = |body: &str| {
        let answer = Answer::of(200, body);
        std::panic::catch_unwind(|| is_harmless("/planted", &answer)).is_err()
    };
    assert!(!wrong("<script src=\"/a.js\"></script><p title=\"&lt;img onload=\">"));
    for planted in [
        "<script>alert(1)</script>",
        "<script src=\"//example.com/a.js\" onload=\"alert(1)\"></script>",
        "<p title=\"\"><img src=x onerror=alert(1)>\">",
        "<p title=\"\" onclick=\"alert(1)\">",
        "<a href=\"javascript:alert(1)\">",
        "<p style=\"color: red\">",
    ] {
        assert!(wrong(planted), "{planted}");
    }
}

#[test]
fn a_filter_is_no_statement() {
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    let exists =
        || value("select count(*) from pg_tables where schemaname = 'jobs' and tablename = 'job'");
    for text in [
        "' or 1=1 --",
        "'); drop table jobs.job; --",
        "1; select pg_sleep(9)",
        "\\",
        "%",
        "_%",
        "$1",
        "\u{0}",
        "'||(select 1)||'",
        r#""\u0000""#,
    ] {
        let text = encoded(text);
        for path in [
            "/jobs?kind=",
            "/jobs?queue=",
            "/jobs?tag=",
            "/jobs?error=",
            "/jobs?worker=",
            "/jobs?args=",
            "/queue?name=",
            "/queues?filter=",
            "/limits?filter=",
            "/limit?name=",
            "/limit/key?key=1&name=",
            "/order?name=",
            "/worker?name=",
            "/unique?search=",
            "/audit?target=",
            "/periodic/job?name=",
            "/bulk?do=retry&kind=",
        ] {
            let answer = person.get(&format!("{path}{text}"));
            assert!(answer.status < 500, "{path}{text}: {}", answer.text());
        }
        for path in [
            "/jobs?state=",
            "/jobs?id=",
            "/jobs?from=",
            "/jobs?after=",
            "/bulk?do=",
            "/failures?since=",
            "/jobs/",
            "/jobs/1/raw?what=",
        ] {
            let answer = person.get(&format!("{path}{text}"));
            assert!(answer.status < 500, "{path}{text}: {}", answer.text());
        }
    }
    let none = person.page(&format!("/jobs?kind={}", encoded("' or '1'='1")));
    assert!(!none.body.contains("/jobs/1\""), "a filter that is none finds nothing");
    assert_eq!(exists(), 1);
}

#[test]
fn numbers_that_are_none_are_refused() {
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    for id in [
        "0",
        "-1",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999",
        "1e3",
        "0x10",
        "abc",
    ] {
        for path in
            [format!("/jobs/{id}"), format!("/jobs/{id}/raw?what=args"), format!("/jobs/{id}/edit")]
        {
            let answer = person.get(&path);
            assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        }
        for path in
            [format!("/jobs?id={id}"), format!("/jobs?from={id}"), format!("/jobs/1?errors={id}")]
        {
            let answer = person.get(&path);
            assert!(answer.status < 500, "{path}: {}", answer.text());
        }
    }
}

#[test]
fn a_form_of_another_session_changes_nothing() {
    let console = Console::start(&[]);
    let id = value(
        "select id from jobs.insert('forged', queue => 'forged', scheduled_at => now() + interval '1 day')",
    );
    let path = format!("/jobs/{id}/cancel");
    let mut person = console.person("operator");
    let token = |visitor: &mut Visitor| visitor.page("/").form("/logout")[0].clone();
    let own = token(&mut person);
    let other = token(&mut console.person("operator"));
    assert_ne!(own, other);
    for fields in [
        vec![],
        vec![("csrf".to_owned(), String::new())],
        vec![other],
        vec![("csrf".to_owned(), own.1[1..].to_owned())],
    ] {
        assert_eq!(person.post(&path, &fields).status, 403);
    }
    let by_get = person.get(&format!("{path}?csrf={}", own.1));
    assert!([404, 405].contains(&by_get.status), "{}", by_get.status);
    let state = || value(&format!("select state from jobs.jobs where id = {id}"));
    assert_eq!(state(), "scheduled");
    let page = person.page(&format!("/jobs/{id}"));
    assert_eq!(person.send(&page, &path, &[]).status, 303, "with its own token it does");
    assert_eq!(state(), "cancelled");
}

/// The pages that show a job of this queue, and what it is named.
fn pages_of(queue: &str, names: &str) -> Vec<String> {
    let mut pages: Vec<String> = SCREENS.map(str::to_owned).into();
    let jobs = sql(&format!("select id from jobs.jobs where queue = '{queue}'"));
    let (queue, names) = (encoded(queue), encoded(names));
    pages.extend([
        format!("/jobs?queue={queue}"),
        format!("/bulk?do=retry&kind={names}&error={names}"),
        format!("/queue?name={queue}"),
        format!("/queues?filter={queue}"),
        format!("/limits?filter={queue}"),
        format!("/order?name={queue}"),
        format!("/worker?name={names}"),
        format!("/periodic/job?name={names}"),
        format!("/audit?target={queue}"),
    ]);
    for job in jobs {
        pages.extend(["", "/edit"].map(|more| format!("/jobs/{}{more}", job["id"])));
    }
    pages
}

/// An override of the direction of writing ends with the text that it is in.
#[test]
fn no_text_turns_others_around() {
    let name = "\u{202e}txet";
    run(&format!(
        "select from jobs.insert('{name}', '{{\"{name}\": \"{name}\"}}', queue => '{name}', tags => '{{{name}}}', max_attempts => 1);
         select from jobs.fetch('{name}', worker => '{name}') f, jobs.fail(f.id, f.token, e'{name}\\n{name}', details => '{{\"trace\": \"{name}\"}}');
         select from jobs.insert('{name}', queue => '{name}');
         select from jobs.fetch('{name}', worker => '{name}') f, jobs.cancel(f.id, '{name}');
         select from jobs.insert('{name}', queue => '{name}') j, jobs.cancel(j.id, '{name}');
         select from jobs.insert('{name}', queue => '{name}');
         select jobs.pause_queue('{name}', '{name}');
         select jobs.define_limit('{name}', queues => '{{{name}}}', kinds => '{{{name}}}', concurrency => 1), jobs.pause_limit('{name}', reason => '{name}');
         select jobs.order_queue('{name}', '{{\"by_args\": [\"{name}\"]}}', strict => true, fair => true, weights => '{{\"{name}\": 3}}');
         select jobs.schedule('{name}', '@yearly', '{name}', queue => '{name}');
         select jobs.pause_periodic('{name}', '{name}')"
    ));
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    let mut seen = 0;
    for path in pages_of(name, name) {
        let answer = person.get(&path);
        assert!(answer.status < 500, "{path}: {}", answer.text());
        for part in answer.body.split('<').skip(1) {
            let (tag, text) = part.split_once('>').unwrap();
            let element = tag.split(' ').next().unwrap();
            let is_alone = element == "bdi" || element == "textarea";
            assert!(is_alone || !text.contains('\u{202e}'), "{path}: <{part}");
            let title = tag.split(" title=\"").nth(1).unwrap_or_default();
            let title = title.split('"').next().unwrap();
            assert!(!title.contains('\u{202e}'), "{path}: <{part}");
            seen += text.matches('\u{202e}').count();
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn no_page_is_larger_than_two_megabytes() {
    // Each is six characters of a page.
    let quotes = "repeat('\"', 2000)";
    let deep = "('[' || repeat('[1],', 40000) || '1]')::jsonb";
    run(&format!(
        "select from generate_series(1, 120) n, jobs.pause_queue('large ' || n, {quotes});
         select from jobs.insert('large', {deep}, queue => 'large 1', meta => jsonb_build_object('a', {deep}),
             tags => array(select n || repeat('<', 100) from generate_series(1, 300) n), max_attempts => 100);
         select jobs.resume_queue('large 1');
         do $do$begin for n in 1..20 loop
             perform from jobs.fetch('large 1', worker => 'large') f,
                 jobs.fail(f.id, f.token, repeat('\"', 900000), '0 s', details => jsonb_build_object('type', {quotes}, 'n', {deep}));
         end loop; end$do$"
    ));
    let console = Console::start(&[]);
    let mut person = console.person("admin");
    for path in pages_of("large 1", "large").into_iter().chain(["/queues?filter=large".into()]) {
        let answer = person.get(&path);
        assert!([200, 404].contains(&answer.status), "{path}: {}", answer.text());
        assert!(answer.body.len() <= 2_000_000, "{path}: {}", answer.body.len());
    }
}

/// Even one that knows the token.
#[test]
fn a_form_of_another_site_changes_nothing() {
    let console = Console::start(&[]);
    let mut person = console.person("viewer");
    let page = person.page("/");
    let csrf = encoded(&page.form("/logout")[0].1);
    let mut log_out = |headers: &[(&str, &str)]| {
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let headers = [&[form], headers].concat();
        person.request("POST", "/logout", &headers, &format!("csrf={csrf}")).status
    };
    for (name, value) in [
        ("Origin", "null"),
        ("Origin", "http://evil.example"),
        ("Origin", "http://localhost:8088"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        assert_eq!(log_out(&[(name, value)]), 403, "{name}: {value}");
    }
    assert_eq!(log_out(&[("Origin", "http://localhost")]), 303);
}

#[test]
fn every_answer_says_what_a_browser_may_do_with_it() {
    let console = Console::start(&[]);
    let mut person = console.person("viewer");
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                  form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    let login = console.get("/login");
    for answer in [
        person.get("/"),
        person.get("/jobs"),
        person.get("/jobs/0"),
        person.get("/nothing"),
        login,
        console.get("/"),
    ] {
        assert_eq!(answer.header("content-security-policy"), policy);
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "same-origin");
        assert!(
            answer.header("cache-control").contains("no-store"),
            "{}",
            answer.header("cache-control")
        );
    }
}

#[test]
fn nothing_gets_into_a_header() {
    let console = Console::start(&[]);
    let planted = "%0d%0aSet-Cookie:%20planted=1";
    for path in [
        format!("/{planted}"),
        format!("/jobs?kind={planted}"),
        format!("/login?next=/{planted}"),
        format!("/jobs/{planted}"),
    ] {
        let answer = console.get(&path);
        assert!(
            answer
                .headers
                .iter()
                .all(|(_, value)| !value.contains("planted=1") || value.contains("%0")),
            "{:?}",
            answer.headers
        );
        assert!(
            !answer
                .headers
                .iter()
                .any(|(name, value)| name == "set-cookie" && value.contains("planted")),
            "{:?}",
            answer.headers
        );
    }
    let mut visitor = console.visitor();
    let login = visitor.page("/login");
    let next = "/x\r\nSet-Cookie: planted=1";
    let entered = visitor.send(
        &login,
        "/login",
        &[("role", "viewer"), ("password", "viewer"), ("next", next)],
    );
    assert!(
        !entered
            .headers
            .iter()
            .any(|(_, value)| value.contains("planted=1") && !value.contains('%')),
        "{:?}",
        entered.headers
    );

    let other_host = console.request(
        "GET",
        "/",
        &[("X-Forwarded-Host", "evil.example"), ("Forwarded", "host=evil.example")],
        "",
    );
    assert!(!other_host.header("location").contains("evil"), "{}", other_host.header("location"));
}

#[test]
fn requests_that_are_too_large_are_refused() {
    let console = Console::start(&[]);
    let body = "a".repeat(3 << 20);
    let answer = console.request(
        "POST",
        "/login",
        &[("Content-Type", "application/x-www-form-urlencoded")],
        &body,
    );
    assert!((400..500).contains(&answer.status), "{}", answer.status);
}

#[test]
fn no_address_leads_to_another_site() {
    let console = Console::start(&[]);
    for path in ["//evil.example/x", "/\\evil.example/x"] {
        let answer = console.request("GET", path, &[("Sec-Fetch-Site", "cross-site")], "");
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.body.contains("evil.example"), "{}", answer.body);
    }
}
