//! A server that is there and says nothing, as behind a network that loses everything.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Answer, Console, SCREENS, SOON, Visitor, as_role, url};

/// Twice what docs/console.md promises.
const BOUND: Duration = Duration::from_secs(30);

/// A way to the server. While it is silent it takes what is sent, and loses it.
struct Line {
    /// The database of the company, at the near end.
    url: String,
    is_silent: Arc<AtomicBool>,
}

impl Line {
    fn new() -> Self {
        let near = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap().to_string();
        let far = url().split('/').nth(2).unwrap().to_owned();
        let line = Self {
            url: url().replace(&far, &address),
            is_silent: Arc::default(),
        };
        let is_silent = line.is_silent.clone();
        thread::spawn(move || {
            for near in near.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&far).unwrap());
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                for (from, to) in [(near, far), back] {
                    let is_silent = is_silent.clone();
                    thread::spawn(move || carry(from, to, &is_silent));
                }
            }
        });
        line
    }

    fn is_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_silent: &AtomicBool) {
    let mut part = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut part) {
        if !is_silent.load(Ordering::SeqCst) && to.write_all(&part[..length]).is_err() {
            break;
        }
    }
    // The other end may have gone as well.
    let _ = to.shutdown(Shutdown::Both);
}

/// A page that says what is wrong.
fn says_so(answer: &Answer, path: &str) {
    let text = answer.text();
    assert_eq!(answer.status, 503, "{path}: {text}");
    assert_eq!(answer.body.matches("<h1").count(), 1, "{path}: {text}");
    let is_clear = ["Postgres has not answered", "All connections of this role"];
    assert!(
        is_clear.iter().any(|said| text.contains(said)),
        "{path}: {text}"
    );
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
