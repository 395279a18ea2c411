//! Who gets in, and what a session is.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::line::Line;
use crate::support::{Console, SCREENS, Visitor, encoded, run, url, url_as, value, wait_for};

const REFUSED: &str = "Your session has ended: the database no longer accepts its role.";

fn session(visitor: &Visitor) -> String {
    visitor.cookies.iter().map(|(name, value)| format!("{name}={value};")).collect()
}

#[test]
fn nothing_is_shown_to_who_is_not_logged_in() {
    let console = Console::start(&[]);
    let others =
        ["/jobs/1", "/jobs/1/raw?what=args", "/bulk?do=retry&kind=x", "/queue?name=mail", "/live"];
    for path in SCREENS.into_iter().chain(others) {
        let answer = console.get(path);
        assert_eq!(answer.status, 303, "{path}");
        assert!(answer.header("location").starts_with("/login"), "{path}");
        assert!(!answer.body.contains("order.confirm"), "{path}");
    }
    assert_eq!(console.get("/metrics").status, 404);
    let answer = console.request(
        "POST",
        "/jobs/1/cancel",
        &[("Content-Type", "application/x-www-form-urlencoded")],
        "csrf=x",
    );
    assert_eq!(answer.status, 303);
}

#[test]
fn a_login_leads_to_where_one_wanted_to_go() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    let answer = visitor.get("/queues?filter=mail");
    let login = visitor.follow(&answer);
    let entered = visitor.send(&login, "/login", &[("role", "viewer"), ("password", "viewer")]);
    assert_eq!(entered.header("location"), "/queues?filter=mail");
    for away in ["https://example.com/", "//example.com", "/\\example.com", "javascript:alert(1)"] {
        let mut visitor = console.visitor();
        let login = visitor.page(&format!("/login?next={}", crate::support::encoded(away)));
        let entered = visitor.send(
            &login,
            "/login",
            &[("role", "viewer"), ("password", "viewer"), ("next", away)],
        );
        assert_eq!(entered.status, 303);
        assert!(
            !entered.header("location").contains("example.com"),
            "{}",
            entered.header("location")
        );
        assert!(entered.header("location").starts_with('/'), "{}", entered.header("location"));
    }
}

#[test]
fn a_session_begins_at_login_and_ends_at_logout() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    visitor.page("/login");
    let before = session(&visitor);
    visitor.log_in("operator", "operator");
    let during = session(&visitor);
    assert_ne!(before, during, "a login makes a new session");

    // Who has planted the session of before is not logged in.
    let mut attacker = console.visitor();
    attacker.cookies = before
        .split_terminator(';')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(n, v)| (n.into(), v.into()))
        .collect();
    assert_ne!(attacker.get("/").status, 200);

    let page = visitor.page("/");
    let mut thief = console.visitor();
    thief.cookies = visitor.cookies.clone();
    assert_eq!(thief.get("/").status, 200);
    let left = visitor.send(&page, "/logout", &[]);
    assert_eq!(left.status, 303);
    assert_ne!(visitor.get("/").status, 200);
    assert_ne!(thief.get("/").status, 200, "the session is over for everybody");
}

#[test]
fn its_cookie_is_for_the_console_alone() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    let page = visitor.page("/login");
    let entered = visitor.send(&page, "/login", &[("role", "viewer"), ("password", "viewer")]);
    let cookie = entered.header("set-cookie");
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    let https = console.request("GET", "/login", &[("X-Forwarded-Proto", "https")], "");
    assert!(https.header("set-cookie").contains("Secure"), "{}", https.header("set-cookie"));
}

#[test]
fn a_wrong_password_says_little_and_makes_one_wait() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    let wrong = visitor.log_in("viewer", "wrong");
    let unknown = visitor.log_in("nobody-of-this-name", "wrong");
    assert_eq!((wrong.status, unknown.status), (403, 403));
    let hidden = |text: String| text.replace("nobody-of-this-name", "viewer");
    assert_eq!(
        hidden(wrong.text()),
        hidden(unknown.text()),
        "it does not say which roles there are"
    );
    let mut late = wrong;
    let must_wait = must_wait("viewer", |_, password| {
        late = console.visitor().log_in("viewer", password);
        late.status
    });
    assert!(must_wait, "also the right password: {}", late.text());
    assert!(late.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
}

#[test]
fn a_role_without_a_right_learns_which_grant_it_needs() {
    let console = Console::start(&[]);
    for role in ["producer", "worker"] {
        let mut visitor = console.visitor();
        let refused = visitor.log_in(role, role);
        assert_eq!(refused.status, 403, "{role}");
        assert!(refused.text().contains("grant_viewer"), "{}", refused.text());
        assert_ne!(visitor.get("/jobs").status, 200);
    }
}

#[test]
fn a_login_is_a_form_of_the_console_and_small() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    let login = visitor.page("/login");
    let fields = [("role", "viewer"), ("password", "viewer")];
    let forged = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(visitor.post("/login", &forged).status, 403);
    let long = "a".repeat(64);
    let answer = visitor.send(&login, "/login", &[("role", &long), ("password", "x")]);
    assert_eq!(answer.status, 422, "{}", answer.text());
    let longer = "a".repeat(20_000);
    let answer = visitor.send(&login, "/login", &[("role", "viewer"), ("password", &longer)]);
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert_ne!(visitor.get("/").status, 200);
}

#[test]
fn a_server_that_asks_for_no_password_lets_nobody_in() {
    // Of this server only the company's database asks for passwords.
    let console = Console::start_at(&url().replace("/company", "/postgres"), &["--login"]);
    let refused = console.visitor().log_in("viewer", "whatever");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("no password"), "{}", refused.text());
}

#[test]
fn a_name_that_is_not_of_this_machine_is_not_served_without_a_login() {
    let console = Console::start_as("admin", &[]);
    let of_host = |host: &str| console.raw(&format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"));
    for host in ["localhost:8088", "127.0.0.1", "[::1]:8088"] {
        assert_eq!(of_host(host).status, 200, "{host}");
    }
    assert_eq!(of_host("evil.example").status, 421);
}

#[test]
fn a_link_of_another_site_does_not_end_the_session() {
    let console = Console::start(&[]);
    let answer = console.request("GET", "/jobs", &[("Sec-Fetch-Site", "cross-site")], "");
    assert_eq!(answer.status, 200);
    assert!(answer.header("set-cookie").is_empty());
    assert!(answer.body.contains("url=/jobs\""), "{}", answer.body);
    let part = console.request("GET", "/jobs", &[("HX-Request", "true")], "");
    assert_eq!(part.status, 401, "a part of a page has no login in it");
    assert!(part.header("hx-redirect").starts_with("/login"));
}

#[test]
fn a_theme_leads_back_to_the_console_alone() {
    let console = Console::start(&[]);
    let mut person = console.person("viewer");
    let page = person.page("/queues");
    for back in [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "/x\r\nSet-Cookie: planted=1",
    ] {
        let answer = person.send(&page, "/theme", &[("theme", "dark"), ("back", back)]);
        let to = answer.header("location");
        assert!(to.starts_with('/') && !to.contains("evil"), "{back:?} leads to {to:?}");
        assert!(answer.headers.iter().all(|(_, value)| !value.starts_with("planted")));
    }
    assert!(person.page("/queues").body.contains("data-theme=\"dark\""));
}

#[test]
fn a_session_ends_when_the_database_refuses_its_role() {
    let console = Console::start(&[]);
    for change in [
        "alter role dismissed password 'another'",
        "alter role dismissed nologin",
        "drop role dismissed",
    ] {
        run("drop role if exists dismissed;
             create role dismissed login password 'dismissed' in role viewer");
        let (mut person, mut live) = (console.person("dismissed"), console.person("dismissed"));
        let page = person.page("/queues");
        // A connection that is there goes on for as long as a minute.
        run("select pg_terminate_backend(pid, 60000) from pg_stat_activity
              where usename = 'dismissed'");
        run(change);
        let answer = person.get("/jobs?kind=k");
        let login = person.follow(&answer);
        assert!(login.text().contains(REFUSED), "{change}: {}", login.text());
        let next = login.form("/login");
        assert!(next.contains(&("next".into(), "/jobs?kind=k".into())), "{next:?}");
        // It is over, also for what is sent and for a page that refreshes itself.
        for answer in [person.send(&page, "/theme", &[("theme", "dark")]), person.get("/")] {
            let to = answer.header("location");
            assert!(to.starts_with("/login"), "{change}: {to}");
            assert!(person.follow(&answer).text().contains(REFUSED), "{change}");
        }
        let part = live.request("GET", "/queues", &[("HX-Request", "true")], "");
        assert_eq!(part.status, 401, "{change}: {}", part.text());
        let to = part.header("hx-redirect").to_owned();
        assert!(live.page(&to).text().contains(REFUSED), "{change}: {to}");
    }
}

/// Logs in from an address, as a proxy on this machine says it.
fn log_in_from(console: &Console, address: &str, role: &str, password: &str) -> u16 {
    let mut visitor = console.visitor();
    let page = visitor.page("/login");
    let mut fields = page.form("/login");
    fields.retain(|(name, _)| name == "csrf");
    let body = format!("csrf={}&role={role}&password={password}", encoded(&fields[0].1));
    let headers =
        [("Content-Type", "application/x-www-form-urlencoded"), ("X-Forwarded-For", address)];
    visitor.request("POST", "/login", &headers, &body).status
}

/// Whether after five wrong passwords the right one has to wait as well; with more wrong ones, each
/// of which doubles the wait, where that is over before a slow machine has tried.
fn must_wait(right: &str, mut log_in: impl FnMut(usize, &str) -> u16) -> bool {
    let mut tries = 0..;
    let mut next = |password| {
        let status = log_in(tries.next().expect("it has no end"), password);
        assert!(matches!(status, 303 | 403 | 429), "{password}: {status}");
        status
    };
    (5..10).any(|failures| {
        for _ in 0..failures {
            while next("wrong") != 403 {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        next(right) == 429
    })
}

#[test]
fn wrong_passwords_of_others_keep_nobody_out() {
    let console = Console::start(&[]);
    let log_in =
        |address: &str, role: &str, password: &str| log_in_from(&console, address, role, password);
    for role in ["r1", "r2", "r3", "r4", "r5", "r6", "r7"] {
        assert_eq!(log_in("192.0.2.1", role, "wrong"), 403, "{role}");
    }
    assert!(must_wait("viewer", |_, password| log_in("192.0.2.1", "viewer", password)));
    assert_eq!(log_in("192.0.2.1", "operator", "operator"), 303);
    assert_eq!(log_in("192.0.2.2", "viewer", "viewer"), 303);
}

#[test]
fn another_forwarded_address_each_time_is_no_way_around() {
    let console = Console::start(&[]);
    assert!(must_wait("viewer", |n, password| {
        let addresses = format!("198.51.100.{n}, 192.0.2.1");
        log_in_from(&console, &addresses, "viewer", password)
    }));
    // What is no address is not one more.
    assert!(must_wait("viewer", |n, password| {
        log_in_from(&console, &format!("x{n}"), "viewer", password)
    }));
}

#[test]
fn only_a_wrong_password_makes_one_wait() {
    let console = Console::start(&[]);
    run("drop role if exists crowded;
        create role crowded login password 'crowded' connection limit 0 in role viewer");
    let mut visitor = console.visitor();
    for _ in 0..6 {
        assert_eq!(visitor.log_in("crowded", "crowded").status, 503);
    }
    run("alter role crowded connection limit -1");
    assert_eq!(visitor.log_in("crowded", "crowded").status, 303);
}

#[test]
fn who_only_asks_for_the_form_keeps_nobody_out() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    let page = visitor.page("/login");
    for _ in 0..1100 {
        assert_eq!(console.get("/login").status, 200);
    }
    let fields = [("role", "viewer"), ("password", "viewer")];
    assert_eq!(visitor.send(&page, "/login", &fields).status, 303);
    visitor.page("/");
}

#[test]
fn a_form_of_the_login_is_of_one_browser() {
    let console = Console::start(&[]);
    let fields = [("role", "viewer"), ("password", "viewer")];
    let page = console.visitor().page("/login");
    assert_eq!(console.visitor().send(&page, "/login", &fields).status, 403);
    let mut other = console.visitor();
    other.page("/login");
    assert_eq!(other.send(&page, "/login", &fields).status, 403);
    let mut none = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    none.push(("csrf".into(), String::new()));
    assert_eq!(console.visitor().post("/login", &none).status, 403);
}

#[test]
fn by_https_no_other_site_can_set_the_cookie() {
    let https = ("X-Forwarded-Proto", "https");
    for (options, path, begin) in [
        (&[][..], "/login", "__Host-jobs_"),
        (&["--prefix", "/ops"], "/ops/login", "__Secure-jobs_"),
    ] {
        let console = Console::start(options);
        let mut visitor = console.visitor();
        let page = visitor.request("GET", path, &[https], "");
        let csrf = encoded(&page.form("/login")[0].1);
        let body = format!("csrf={csrf}&role=viewer&password=viewer");
        let headers = [https, ("Content-Type", "application/x-www-form-urlencoded")];
        let entered = visitor.request("POST", path, &headers, &body);
        assert_eq!(entered.status, 303, "{}", entered.text());
        for answer in [page, entered] {
            let cookie = answer.header("set-cookie");
            assert!(cookie.starts_with(begin) && cookie.contains("; Secure"), "{cookie}");
        }
        let start = path.replace("login", "");
        assert_eq!(visitor.request("GET", &start, &[https], "").status, 200);
        // What has another name may have been planted.
        for (name, _) in &mut visitor.cookies {
            *name = name.replace("__Host-", "").replace("__Secure-", "");
        }
        assert_eq!(visitor.request("GET", &start, &[https], "").status, 303);
    }
}

#[test]
fn without_a_login_only_what_was_named_is_served() {
    let here = Console::start_as("admin", &[]);
    let everywhere =
        ["--listen", "0.0.0.0:0", "--allow-unauthenticated", "--allow-host", "Console.example"];
    let everywhere = Console::start_as("admin", &everywhere);
    for (console, host, status) in [
        (&here, "localhost", 200),
        (&here, "127.0.0.1:8088", 200),
        (&here, "192.0.2.1", 421),
        (&here, "console.example", 421),
        (&everywhere, "192.0.2.1:8088", 200),
        (&everywhere, "console.example:8088", 200),
        (&everywhere, "evil.example", 421),
    ] {
        let answer = console.raw(&format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.status, status, "{host}");
    }
}

#[test]
fn without_a_login_nothing_is_changed_through_a_proxy() {
    let console = Console::start_as("admin", &[]);
    let mut person = console.visitor();
    let page = person.page("/maintenance");
    let path = "/maintenance/pause";
    assert!(page.has_form(path));
    let csrf = encoded(&page.form(path)[0].1);
    for name in [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "Forwarded",
        "Via",
    ] {
        let page = person.request("GET", "/maintenance", &[(name, "192.0.2.1")], "");
        assert!(!page.has_form(path), "{name}");
        let headers = [(name, "192.0.2.1"), ("Content-Type", "application/x-www-form-urlencoded")];
        let body = format!("csrf={csrf}&reason=");
        assert_eq!(person.request("POST", path, &headers, &body).status, 403, "{name}");
    }
}

#[test]
fn the_log_has_a_line_for_each_thing_that_happens() {
    let (console, log) = Console::logged(&url(), &["--login"]);
    let forged = "x\n\r\u{1b}[2J\u{9b}jobs: role \"postgres\" logged in from 192.0.2.1";
    let mut visitor = console.visitor();
    assert_eq!(visitor.log_in(forged, "wrong").status, 403);
    let mut person = console.person("viewer");
    let page = person.page("/");
    assert_eq!(person.send(&page, "/logout", &[]).status, 303);
    drop(console);
    let said = std::fs::read_to_string(&*log).unwrap();
    let lines: Vec<_> = said.split_terminator('\n').collect();
    let begins = [
        r#"pgjobs: login as role "x\n\r\u{1b}[2J\u{9b}jobs: role \"postgres\" logged in from 192.0.2.1" from 127.0.0.1 failed"#,
        r#"pgjobs: role "viewer" logged in from 127.0.0.1"#,
        r#"pgjobs: role "viewer" logged out from 127.0.0.1"#,
    ];
    assert_eq!(lines.len(), begins.len(), "{said:?}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn others_than_this_machine_are_served_where_somebody_says_so() {
    for (url, address, option, warns) in [
        (url(), "0.0.0.0:0", "--login", true),
        (url_as("viewer"), "0.0.0.0:0", "--allow-unauthenticated", false),
        (url(), "127.0.0.1:0", "--login", false),
    ] {
        let (console, log) = Console::logged(&url, &["--listen", address, option]);
        // It has said all when it answers.
        assert!(console.get("/healthz").status < 500);
        let said = std::fs::read_to_string(&*log).unwrap();
        assert_eq!(
            said.contains("unless a proxy in front uses https"),
            warns,
            "{address} {option}: {said}"
        );
    }
    for address in ["0.0.0.0:0", "[::]:0"] {
        let output = Console::command(&url_as("viewer"), &["--listen", address])
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // A machine may have no IPv6.
        let is_refused =
            said.contains("--allow-unauthenticated") && output.status.code() == Some(2);
        assert!(is_refused || said.contains("cannot listen"), "{address}: {said}");
    }
}

/// Whether the console hears of changes as this role.
fn listens(role: &str) -> bool {
    let of = format!(
        "select count(*) = 1 from pg_stat_activity
          where usename = '{role}' and query like 'listen%'"
    );
    value(&of) == true
}

/// Opens a stream as a page does, whose address is `next`.
fn listen(person: &Visitor, next: &str) -> BufReader<TcpStream> {
    let mut stream = person.console.stream();
    let cookies = session(person);
    let next = encoded(next);
    let head = format!(
        "GET /live?next={next} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\
         Cookie: {cookies}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut status = String::new();
    stream.read_line(&mut status).unwrap();
    assert_eq!(status.trim(), "HTTP/1.0 200 OK");
    stream
}

/// Reads until the stream ends, and returns where it sends the page then.
fn sent_to(stream: BufReader<TcpStream>) -> String {
    let begun = Instant::now();
    let mut last = String::new();
    for line in stream.lines() {
        // Twice what docs/console.md promises.
        assert!(begun.elapsed() < Duration::from_secs(240), "it goes on");
        match line.unwrap() {
            line if line.is_empty() => {}
            line => last = line,
        }
    }
    let to = last.strip_prefix("data: ");
    to.unwrap_or_else(|| panic!("it ends with {last:?}")).to_owned()
}

/// Also that of a page with a form, which asks the database for nothing.
#[test]
fn a_page_that_listens_hears_that_its_session_is_over() {
    let console = Console::start(&[]);
    run("create role let_go login password 'let_go' in role viewer");
    let mut person = console.person("let_go");
    let path = "/unique?search=1";
    person.page(path);
    let stream = listen(&person, path);
    wait_for("the console listens", || listens("let_go"));
    // Its connections go on, and it is a minute until it needs another one.
    run("alter role let_go password 'another'");
    let to = sent_to(stream);
    let login = person.page(&to);
    assert!(login.text().contains(REFUSED), "{to}");
    let next = ("next".to_owned(), path.to_owned());
    assert!(login.form("/login").contains(&next), "{to}");
    // The next request hears it again.
    assert_eq!(sent_to(listen(&person, path)), to);
    assert_eq!(person.get("/").status, 303);

    let mut leaver = console.person("viewer");
    let page = leaver.page("/");
    let stream = listen(&leaver, "/");
    assert_eq!(leaver.send(&page, "/logout", &[]).status, 303);
    assert_eq!(sent_to(stream), "/login?next=%2F");
}

#[test]
fn nobody_listens_for_long_as_a_role_that_is_refused() {
    run("create role left_alone login password 'left_alone' in role viewer");
    let line = Line::new();
    let console = Console::start_at(&line.url, &["--login"]);
    let mut person = console.person("left_alone");
    wait_for("it listens", || listens("left_alone"));
    let begun = line.begun();
    run("alter role left_alone nologin");
    run("select pg_terminate_backend(pid, 60000) from pg_stat_activity
          where usename = 'left_alone'");
    wait_for("it is refused", || line.begun() > begun);
    let begun = line.begun();
    thread::sleep(Duration::from_secs(15));
    assert_eq!(line.begun(), begun, "nobody tries again");
    let answer = person.get("/");
    assert!(person.follow(&answer).text().contains(REFUSED));
}
