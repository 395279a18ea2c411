//! How it starts, says that it is well, and ends.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::support::{Console, SOON, as_role, run, run_at, url, url_as, value, wait_for};

#[test]
fn it_says_where_it_listens_and_ends_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut console = Console::start(&[]);
        assert!(console.address.starts_with("127.0.0.1:"), "{}", console.address);
        assert!(!console.address.ends_with(":0"), "{}", console.address);
        assert_eq!(console.end(signal), Some(0));
    }
}

#[test]
fn it_ends_though_somebody_watches() {
    let mut console = Console::start_as("viewer", &[]);
    let mut watching = console.stream();
    watching.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    watching.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(console.end(Signal::TERM), Some(0));
}

#[test]
fn who_watches_hears_of_new_jobs() {
    let console = Console::start(&[]);
    let person = console.person("viewer");
    let (name, session) = person.cookies.last().unwrap();
    hears_of_new_jobs(&console, &format!("{name}={session}"), &url());
}

/// Watches with this cookie, while jobs are inserted at the URL.
fn hears_of_new_jobs(console: &Console, cookie: &str, url: &str) {
    let mut stream = console.stream();
    write!(stream, "GET /live HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n").unwrap();
    let mut heard = String::new();
    let begun = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // Browsers pass over an event without data.
    while !heard.contains("event: changed\ndata: ") {
        assert!(begun.elapsed() < SOON, "{heard}");
        // It may not listen yet.
        run_at(url, "select from jobs.insert('heard', queue => 'heard')");
        let mut part = [0; 4096];
        if let Ok(length) = stream.read(&mut part) {
            assert!(length > 0, "the stream has ended: {heard}");
            heard += &String::from_utf8_lossy(&part[..length]);
        }
    }
    assert!(heard.contains("text/event-stream"), "{heard}");
}

/// A standby refuses LISTEN, and logs each refusal.
#[test]
fn a_standby_is_asked_for_nothing_that_it_refuses_and_tells_of_jobs_once_it_is_promoted() {
    let of = |name| std::env::var(name).expect("./dev test console sets it");
    let url = of("JOBS_STANDBY_URL");
    let console = Console::start_at(&as_role(&url, "viewer"), &[]);
    let page = console.visitor().page("/");
    assert!(page.text().contains("standby"), "{}", page.text());
    let promoted = Command::new("sh").args(["-c", &of("JOBS_PROMOTE")]).status();
    assert!(promoted.unwrap().success());
    hears_of_new_jobs(&console, "", &url);
    let log = std::fs::read_to_string(of("JOBS_STANDBY_LOG")).unwrap();
    let refused: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A thousand connections here, and as many there.
fn with_all_files() {
    let files = getrlimit(Resource::Nofile);
    let all = Rlimit { current: files.maximum, ..files };
    setrlimit(Resource::Nofile, all).unwrap();
}

/// How often a file is asked for: all answers are more than buffers hold.
const ASKED: usize = 400;

/// Asks for a file so often, and reads nothing.
fn unread(console: &Console, file: &str) -> TcpStream {
    let mut stream = console.stream();
    let ask = format!("GET {file} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // It may be closed already.
    let _ = stream.write_all(ask.repeat(ASKED).as_bytes());
    stream
}

/// A script of the console.
fn file(console: &Console) -> String {
    let page = console.get("/login").body;
    let mut sources = page.split(" src=\"").skip(1);
    let script = sources.find(|source| source.contains("uplot")).unwrap();
    script.split('"').next().unwrap().to_owned()
}

#[test]
fn who_reads_nothing_keeps_no_other_address_out() {
    with_all_files();
    let console = Console::start(&[]);
    let file = file(&console);
    let unread: Vec<_> = (0..1000).map(|_| unread(&console, &file)).collect();
    let mut other = console.stream_from([127, 0, 0, 2]);
    other.write_all(b"GET /login HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    drop(unread);
}

#[test]
fn who_reads_nothing_is_let_go() {
    let console = Console::start(&["--write-timeout", "1", "--max-per-address", "20"]);
    let file = file(&console);
    let all = ASKED * console.get(&file).body.len();
    let unread: Vec<_> = (0..20).map(|_| unread(&console, &file)).collect();
    wait_for("the address is served again", || {
        let mut stream = console.stream();
        let ask = b"GET /login HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let mut answer = Vec::new();
        // A connection too many is closed.
        stream.write_all(ask).is_ok()
            && stream.read_to_end(&mut answer).is_ok()
            && !answer.is_empty()
    });
    let mut unread = unread.into_iter();
    assert!(unread.any(|mut stream| {
        let mut answer = Vec::new();
        // It may have been reset.
        let _ = stream.read_to_end(&mut answer);
        answer.len() < all
    }));
}

#[test]
fn idle_connections_make_room_for_other_ones() {
    with_all_files();
    let console = Console::start(&["--max-per-address", "1000"]);
    let mut idle: Vec<_> = (0..1000).map(|_| console.stream()).collect();
    assert_eq!(console.get("/login").status, 200);
    let is_closed = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    assert!(idle.iter_mut().any(is_closed), "there are more than a thousand");
    console.person("viewer").page("/");
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let console = Console::start(&[]);
    let url = url_as("viewer");
    let output = Command::new(env!("CARGO_BIN_EXE_pgjobs"))
        .args(["-d", &url, "console", "--listen", &console.address])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&console.address), "{said}");
}

#[test]
fn its_address_is_told_as_json() {
    let mut console = Console::command(&url_as("viewer"), &["--json"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(console.stdout.take().unwrap()).read_line(&mut line).unwrap();
    console.kill().unwrap();
    console.wait().unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert!(said["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{line}");
    assert_eq!(said["roles"], json!(["viewer"]));
}

#[test]
fn it_tells_monitors_how_it_is() {
    let console = Console::start_as("viewer", &[]);
    let health = console.get("/healthz");
    assert_eq!(health.status, 200, "{}", health.body);
    let _: Value = serde_json::from_str(&health.body).unwrap();
    let metrics = console.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").starts_with("text/plain"));
    let wanted = value("select metric from jobs.metrics() limit 1");
    let line = format!("# TYPE {} ", wanted.as_str().unwrap());
    assert!(metrics.body.contains(&line), "{}", metrics.body);
    for line in metrics.body.lines().filter(|line| !line.starts_with('#')) {
        let (_, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        number.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
    }
}

#[test]
fn without_a_server_it_starts_and_says_that_it_is_not_well() {
    let console = Console::start_at("postgresql://viewer@127.0.0.1:1/company", &[]);
    assert_eq!(console.get("/healthz").status, 503);
    let page = console.get("/");
    assert_eq!(page.status, 503);
    assert!(page.text().contains("Database unavailable"), "{}", page.text());
}

/// As those of another version can.
#[test]
fn functions_that_answer_nothing_are_said_to_do_so() {
    run("create database other_form");
    let at = url().replace("/company", "/other_form");
    run_at(&at, "create extension jobs; select jobs.grant_admin('admin')");
    for (name, of) in [("last_id", ""), ("pause_queue", "text, text")] {
        run_at(
            &at,
            &format!(
                "alter extension jobs drop function jobs.{name};
                 drop function jobs.{name};
                 create function jobs.{name}({of}) returns setof bigint language sql as
                    'select 1::bigint where false'"
            ),
        );
    }
    let console = Console::start_at(&as_role(&at, "admin"), &[]);
    let mut visitor = console.visitor();
    let page = visitor.page("/queue?name=mail");
    let paused = visitor.send(&page, "/queue/pause", &[]);
    for answer in [visitor.get("/jobs"), paused] {
        assert_eq!(answer.status, 500, "{}", answer.text());
        let said = "Check that the console and the extension have the same version.";
        assert!(answer.text().contains(said), "{}", answer.text());
    }
}

#[test]
#[ignore = "it restarts the server, so it runs alone"]
fn a_server_that_restarts_is_found_again() {
    let console = Console::start(&[]);
    let mut person = console.person("viewer");
    person.page("/");
    let restart = std::env::var("JOBS_RESTART").unwrap();
    let restarted = Command::new("sh").args(["-c", &restart]).status();
    assert!(restarted.unwrap().success());
    let begun = Instant::now();
    while person.get("/").status != 200 {
        assert!(begun.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(50));
    }
    person.page("/jobs");
}

#[test]
fn behind_a_prefix_every_address_has_it() {
    let console = Console::start(&["--prefix", "/ops/jobs"]);
    let login = console.get("/ops/jobs/login");
    assert_eq!(login.status, 200);
    assert_eq!(console.get("/login").status, 404);
    let mut visitor = console.visitor();
    let page = visitor.page("/ops/jobs/login");
    let entered = visitor.send(&page, "/login", &[("role", "viewer"), ("password", "viewer")]);
    let page = visitor.follow(&entered);
    for name in ["href", "src", "action", "hx-get", "sse-connect"] {
        for part in page.body.split(&format!(" {name}=\"")).skip(1) {
            let address = part.split('"').next().unwrap();
            let is_own = address.starts_with("/ops/jobs/");
            assert!(is_own || address.starts_with('#'), "{name}={address}");
        }
    }
    let cookie = entered.header("set-cookie").to_owned() + login.header("set-cookie");
    assert!(cookie.contains("Path=/ops/jobs/"), "{cookie}");
}

#[test]
fn files_are_kept_for_long_and_are_there() {
    let console = Console::start(&[]);
    let page = console.get("/login").body;
    let mut found = 0;
    for name in ["href", "src"] {
        for part in page.split(&format!(" {name}=\"")).skip(1) {
            let address = part.split('"').next().unwrap();
            if !address.contains(".css") && !address.contains(".js") {
                continue;
            }
            let file = console.get(address);
            assert_eq!(file.status, 200, "{address}");
            assert!(file.header("cache-control").contains("immutable"), "{address}");
            let etag = file.header("etag").to_owned();
            let again = console.request("GET", address, &[("If-None-Match", &etag)], "");
            assert_eq!(again.status, 304, "{address}");
            found += 1;
        }
    }
    assert!(found >= 2, "{page}");
}

#[test]
fn who_has_not_logged_in_costs_the_database_little() {
    // A server that answers nothing, and counts who asks.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgresql://{}/company", server.local_addr().unwrap());
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        for _ in server.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let console = Console::start_at(&url, &["--login"]);
    let begun = Instant::now();
    for _ in 0..100 {
        let health = console.get("/healthz");
        assert_eq!(health.status, 503);
        assert_eq!(health.body, r#"{"status":"error"}"#);
    }
    // Each time with TLS, and then without.
    let most = 2 * (begun.elapsed().as_secs() / 2 + 1);
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked <= most.min(99), "{asked} connections");
}

#[test]
fn a_slow_request_does_not_last() {
    let console = Console::start(&[]);
    let mut visitor = console.visitor();
    visitor.page("/login");
    let (name, value) = &visitor.cookies[0];
    let body = format!(
        "POST /login HTTP/1.1\r\nHost: localhost\r\nCookie: {name}={value}\r\nContent-Length: 9\r\n\r\ncsrf"
    );
    let mut head = console.stream();
    head.write_all(b"GET /login HTTP/1.1\r\nHost: ").unwrap();
    let mut answered = String::new();
    let mut late = console.stream();
    late.write_all(body.as_bytes()).unwrap();
    late.read_to_string(&mut answered).unwrap();
    assert!(answered.starts_with("HTTP/1.1 408"), "{answered}");
    head.read_to_string(&mut answered).unwrap();
}

#[test]
fn pages_that_hear_of_changes_are_few_and_end_with_their_session() {
    let console = Console::start(&[]);
    let mut person = console.person("viewer");
    let (name, session) = person.cookies.last().unwrap();
    let listen =
        format!("GET /live HTTP/1.0\r\nHost: localhost\r\nCookie: {name}={session}\r\n\r\n");
    let mut streams: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = console.stream();
            stream.write_all(listen.as_bytes()).unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.0 200");
            stream
        })
        .collect();
    assert_eq!(console.raw(&listen).status, 429);
    let page = person.page("/");
    assert_eq!(person.send(&page, "/logout", &[]).status, 303);
    for stream in &mut streams {
        stream.read_to_string(&mut String::new()).unwrap();
    }
}
