//! What the program says and how it ends.

use jobs_tests::{Client, Mode, comes_true, count, is, poll_until, run, seconds};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use super::{LONG, Pair, STOPS, arrive, assert_exact, end_sessions, insert, place, said, signal};

#[tokio::test]
async fn what_is_missing_is_said_with_the_fix() {
    let pair = Pair::start().await;
    pair.source.psql("shop", "create role nobody login");
    pair.queue.psql("queue", "create role nobody login");
    let (from, to) = (pair.from(), pair.to());
    let other = |place: &str, with: &str| place.replace("user=postgres", with);
    let plain = place(&[&pair.source], "postgres");
    let queue = place(&[&pair.queue], "queue");
    for (from, to, code, words) in [
        (
            &plain,
            &to,
            1,
            "outbox: the database \"postgres\" has no outbox\nHINT: Check the database, or run outbox.sql in it",
        ),
        (
            &queue,
            &to,
            1,
            "outbox: the database \"queue\" has no outbox\nHINT: Insert jobs there directly",
        ),
        (
            &from,
            &plain,
            1,
            "queue: the database \"postgres\" does not have the extension jobs\nHINT: Check the database, or run CREATE EXTENSION",
        ),
        (
            &other(&from, "user=nobody"),
            &to,
            1,
            "outbox: permission denied for schema jobs\nHINT: Ask an administrator to run SELECT jobs.grant_forwarder('nobody').",
        ),
        (
            &from,
            &other(&to, "user=nobody"),
            1,
            "queue: permission denied for schema jobs\nHINT: Ask an administrator to run SELECT jobs.grant_producer('nobody').",
        ),
        (&other(&from, "user=nosuch"), &to, 3, "outbox: role \"nosuch\" does not exist"),
        (
            &from,
            &to.replace("dbname=queue", "dbname=nosuch"),
            3,
            "queue: database \"nosuch\" does not exist",
        ),
    ] {
        for once in [&["--once"][..], &[]] {
            let (ended, text) = said(&[&["--from", from, "--to", to], once].concat()).await;
            assert!(ended == code && text.contains(words), "{from} {to}: {ended} {text}");
        }
    }
    assert_eq!(said(&["--from", &from]).await.0, 2);
    pair.source.allow(u32::MAX, "role \"nosuch\" does not exist");
    pair.queue.allow(u32::MAX, "database \"nosuch\" does not exist");

    // With the rights that the hints name, it works.
    pair.source.psql("shop", "select jobs.grant_forwarder('nobody'); select jobs.insert('k')");
    pair.queue.psql("queue", "select jobs.grant_producer('nobody')");
    let (from, to) = (other(&from, "user=nobody"), other(&to, "user=nobody"));
    let (code, text) = said(&["--from", &from, "--to", &to, "--once"]).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!(said(&["--from", &from, "--status"]).await, (0, "the outbox is empty\n".into()));
    assert_eq!(count(&pair.jobs().await, "jobs.jobs").await, 1);
}

/// What a forwarder writes to its log.
struct Log {
    stderr: BufReader<ChildStderr>,
    text: String,
}

impl Log {
    fn of(forwarder: &mut Child) -> Log {
        Log { stderr: BufReader::new(forwarder.stderr.take().unwrap()), text: String::new() }
    }

    /// Reads on until it has said this.
    async fn until(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            let read = timeout(LONG, self.stderr.read_line(&mut line)).await;
            let length = read.expect(words).unwrap();
            assert!(length > 0, "it has ended: {}", self.text);
            self.text += &line;
        }
    }

    /// All that one wrote that has ended.
    async fn whole(mut self) -> String {
        self.stderr.read_to_string(&mut self.text).await.unwrap();
        self.text
    }
}

#[tokio::test]
async fn it_waits_for_servers_that_are_away_and_ends_at_a_signal() {
    for (name, is_source) in [("source", true), ("queue", false)] {
        let pair = Pair::start().await;
        let away = if is_source { &pair.source } else { &pair.queue };
        away.stop(Mode::Fast);
        let mut forwarder = pair.forward();
        let mut log = Log::of(&mut forwarder);
        log.until("; retrying").await;
        assert!(forwarder.try_wait().unwrap().is_none(), "{name}");
        away.start_again();
        let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
        insert(&outbox, 1, 3).await;
        arrive(&jobs, 3).await;
        comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
        // Then it says that it works.
        log.until("forwarding from ").await;
        comes_true(&jobs, "count(*) = 1 from jobs.forwarder").await;
        // A queue that is read only is away; the rows are not to blame.
        run(&jobs, "alter system set default_transaction_read_only = on").await;
        run(&jobs, "select pg_reload_conf()").await;
        comes_true(&pair.jobs().await, "current_setting('default_transaction_read_only') = 'on'")
            .await;
        insert(&outbox, 4, 6).await;
        log.until("; retrying").await;
        assert!(is(&outbox, "count(*) = 3 and sum(attempts) = 0 from jobs.outbox").await);
        run(&jobs, "set default_transaction_read_only = off").await;
        run(&jobs, "alter system reset default_transaction_read_only").await;
        run(&jobs, "select pg_reload_conf()").await;
        arrive(&jobs, 6).await;
        comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
        signal(&forwarder, "TERM");
        assert!(forwarder.wait().await.unwrap().success(), "{name}");
        assert_exact(&outbox, &jobs, 6).await;
        let log = log.whole().await;
        let begins = log.lines().filter(|line| line.contains("forwarding from ")).count();
        assert_eq!(begins, 2, "{log}");
        assert!(log.contains("/shop (PostgreSQL ") && log.contains("/queue (jobs "), "{log}");
        // Not a line for each attempt.
        let outages = log.lines().filter(|line| line.ends_with("; retrying")).count();
        assert!((2..=5).contains(&outages), "{log}");
    }
}

/// A forwarder of three rows that has inserted their jobs and cannot delete the rows yet.
async fn stopped(pair: &Pair) -> (Client, Client, Child) {
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    run(&outbox, STOPS).await;
    insert(&outbox, 1, 3).await;
    let forwarder = pair.forward();
    arrive(&jobs, 3).await;
    (outbox, jobs, forwarder)
}

#[tokio::test]
async fn a_signal_ends_it_after_the_batch() {
    let pair = Pair::start().await;
    let (outbox, jobs, mut forwarder) = stopped(&pair).await;
    signal(&forwarder, "TERM");
    seconds(0.5).await;
    assert!(forwarder.try_wait().unwrap().is_none());
    run(&outbox, "select pg_advisory_unlock(7)").await;
    assert!(forwarder.wait().await.unwrap().success());
    assert_exact(&outbox, &jobs, 3).await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let pair = Pair::start().await;
    let (outbox, jobs, mut forwarder) = stopped(&pair).await;
    // Two that come at once are one.
    while forwarder.try_wait().unwrap().is_none() {
        signal(&forwarder, "INT");
        seconds(0.1).await;
    }
    assert!(forwarder.wait().await.unwrap().success());
    end_sessions(&outbox).await;
    assert_eq!(count(&outbox, "jobs.outbox").await, 3);
    run(&outbox, "select pg_advisory_unlock(7)").await;
    assert_eq!(pair.once().await.0, 0);
    assert_exact(&outbox, &jobs, 3).await;
}

#[tokio::test]
async fn another_forwarder_takes_over_and_the_queue_is_told() {
    let pair = Pair::start().await;
    let (outbox, jobs) = (pair.outbox().await, pair.jobs().await);
    let mut first = pair.forward();
    insert(&outbox, 1, 3).await;
    arrive(&jobs, 3).await;
    // It finds out when it starts.
    comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
    let second = pair.forward();
    first.kill().await.unwrap();
    insert(&outbox, 4, 6).await;
    arrive(&jobs, 6).await;
    // What the first one could not tell, the second one finds out.
    let told = "count(*) = 3 and count(deleted_at) = 3 from jobs.forwarded where key in (select key from jobs.forwarded order by taken_at limit 3)";
    comes_true(&jobs, told).await;
    let seen = "count(*) = 1 and bool_and(waiting = 0 and refused = 0 and address like '%/shop') from jobs.forwarder";
    poll_until("it is reported", LONG, async || is(&jobs, seen).await).await;
    comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
    // Likewise of one that ends later.
    let taken = "select jobs.forward(source, array[gen_random_uuid()], '[{\"kind\": \"k\"}]', '{}') from jobs.forwarder";
    run(&jobs, taken).await;
    comes_true(&jobs, "count(*) = 7 and count(deleted_at) = 7 from jobs.forwarded").await;
    drop(second);
}
