//! A server that is there and says nothing, as behind a network that loses everything.

use std::thread;
use std::time::{Duration, Instant};

use crate::line::Line;
use crate::support::{Answer, Console, SCREENS, SOON, Visitor, as_role, wait_for};

/// Twice what docs/console.md promises.
const BOUND: Duration = Duration::from_secs(30);

/// A page that says what is wrong.
fn says_so(answer: &Answer, path: &str) {
    let text = answer.text();
    assert_eq!(answer.status, 503, "{path}: {text}");
    assert_eq!(answer.body.matches("<h1").count(), 1, "{path}: {text}");
    let is_clear = ["Postgres did not answer", "All connections of this role"];
    assert!(is_clear.iter().any(|said| text.contains(said)), "{path}: {text}");
}

#[test]
fn a_silent_server_is_said_to_be_silent_and_is_found_again() {
    let line = Line::new();
    // One that has never asked the server, and one that has connections.
    let fresh = Console::start_at(&as_role(&line.url, "viewer"), &[]);
    let console = Console::start_at(&line.url, &["--login"]);
    let mut person = console.person("viewer");
    for screen in SCREENS {
        person.page(screen);
    }
    line.is_silent(true);
    let begun = Instant::now();
    thread::scope(|scope| {
        // Of uniqueness nothing is shown that the server would have to be asked for.
        for screen in SCREENS.into_iter().filter(|screen| *screen != "/unique") {
            let (cookies, console, fresh) = (person.cookies.clone(), &console, &fresh);
            scope.spawn(move || says_so(&Visitor { console, cookies }.get(screen), screen));
            scope.spawn(move || says_so(&fresh.get(screen), screen));
        }
        scope.spawn(|| says_so(&console.visitor().log_in("operator", "operator"), "/login"));
        for console in [&console, &fresh] {
            scope.spawn(|| assert_eq!(console.get("/healthz").status, 503));
        }
    });
    let took = begun.elapsed();
    assert!(took < BOUND, "{took:?}");
    line.is_silent(false);
    for console in [&console, &fresh] {
        let cookies = person.cookies.clone();
        let mut person = Visitor { console, cookies };
        let begun = Instant::now();
        while person.get("/").status != 200 || console.get("/healthz").status != 200 {
            assert!(begun.elapsed() < SOON);
            thread::sleep(Duration::from_millis(50));
        }
        for screen in SCREENS {
            person.page(screen);
        }
    }
    assert_eq!(console.visitor().log_in("operator", "operator").status, 303);
}

/// Its kernel goes on to say that it is there, as that of a process that has been stopped does.
#[test]
fn connections_to_a_silent_server_are_closed() {
    let line = Line::new();
    let console = Console::start_at(&as_role(&line.url, "viewer"), &[]);
    for _ in 0..2 {
        let begun = Instant::now();
        while console.get("/queues").status != 200 {
            assert!(begun.elapsed() < SOON);
            thread::sleep(Duration::from_millis(50));
        }
        line.is_silent(true);
        thread::scope(|scope| {
            for screen in ["/queues", "/jobs", "/workers"] {
                scope.spawn(|| says_so(&console.get(screen), screen));
            }
        });
        line.is_silent(false);
    }
    // One listens.
    wait_for("they are closed", || line.open() <= 1);
}
