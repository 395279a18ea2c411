//! What must not be in a server's log.
//!
//! A statement may fail, that is what tests are for; but a Rust panic, an internal error (SQLSTATE
//! XX...), a crash or a lost session is a bug unless the test says that it causes it. The log needs
//! `%e` (the SQLSTATE) in log_line_prefix.

use regex::Regex;

const STOPPING: &str = "received (fast|smart) shutdown request";
const STARTING: &str = "database system is ready to accept|starting PostgreSQL";
const BAD: &str = r"PANIC: |FATAL: |panicked|\] XX[0-9A-Z]{3} |was terminated by signal";
const EXPECTED: &str = r"\] 08006 (client backend|walsender) .*FATAL: +connection to client lost|\] (57P01|3D000) autovacuum worker .*FATAL: ";
const OF_A_SHUTDOWN: &str = r"\] 57P0[13] .*FATAL: ";

/// The lines that must not be there. Those that match a regular expression of `allowed` may be, up
/// to its number of them.
///
/// Three things are expected of every server: sessions and workers that are told to end by its own
/// shutdown, clients and standbys that go away without waiting for an answer, and autovacuum
/// workers whose database is copied, renamed or dropped.
pub fn findings<'a>(log: &'a str, allowed: &[(u32, String)]) -> Vec<&'a str> {
    let regex = |text: &str| Regex::new(text).unwrap_or_else(|error| panic!("{error}"));
    let [stopping, starting] = [STOPPING, STARTING].map(regex);
    let [bad, expected, of_a_shutdown] = [BAD, EXPECTED, OF_A_SHUTDOWN].map(regex);
    let mut left: Vec<_> = allowed.iter().map(|(times, rule)| (*times, regex(rule))).collect();
    let mut stops = false;
    let mut found = Vec::new();
    for line in log.lines() {
        stops = (stops || stopping.is_match(line)) && !starting.is_match(line);
        if !bad.is_match(line) || expected.is_match(line) || (stops && of_a_shutdown.is_match(line))
        {
            continue;
        }
        let mut rules = left.iter_mut();
        match rules.find(|(times, rule)| *times > 0 && rule.is_match(line)) {
            Some((times, _)) => *times -= 1,
            None => found.push(line),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "2000-01-01 00:00:00.000 UTC [7]";

    fn is_clean(lines: &[&str], allowed: &[(u32, &str)]) -> bool {
        let log: String = lines.iter().map(|line| format!("{PREFIX} {line}\n")).collect();
        let allowed: Vec<_> =
            allowed.iter().map(|(times, rule)| (*times, rule.to_string())).collect();
        findings(&log, &allowed).is_empty()
    }

    #[test]
    fn what_is_a_bug_is_found_unless_it_is_declared_as_often() {
        for bad in [
            "XX000 client backend db: ERROR:  cache lookup failed",
            "57P01 client backend db: FATAL:  terminating connection",
            "00000 postmaster : LOG:  server process (PID 9) was terminated by signal 11: Segmentation fault",
            "XX000 client backend db: ERROR:  panicked at src/lib.rs",
            "58P02 postmaster : PANIC:  could not write",
        ] {
            let (code, _) = bad.split_once(' ').unwrap();
            assert!(!is_clean(&[bad], &[]), "{bad}");
            assert!(is_clean(&[bad], &[(1, code)]), "{bad}");
            assert!(!is_clean(&[bad, bad], &[(1, code)]), "{bad}");
        }
    }

    #[test]
    fn what_every_server_does_is_not() {
        let duplicate =
            "23505 client backend db: ERROR:  duplicate key value violates unique constraint";
        assert!(is_clean(&[duplicate], &[]));
        let gone = "08006 client backend db: FATAL:  connection to client lost";
        assert!(is_clean(&[gone], &[]));
        let shutdown = "00000 postmaster : LOG:  received fast shutdown request";
        let launcher = "57P01 jobs launcher : FATAL:  terminating background worker";
        assert!(is_clean(&[shutdown, launcher], &[]));
        assert!(!is_clean(&[launcher, shutdown], &[]));
    }

    #[test]
    fn an_autovacuum_worker_may_be_told_to_leave_but_no_other_process() {
        let told = |process| {
            format!("57P01 {process} : FATAL:  terminating process due to administrator command")
        };
        assert!(is_clean(&[&told("autovacuum worker")], &[]));
        assert!(!is_clean(&[&told("jobs worker")], &[]));
        assert!(!is_clean(&[&told("client backend db")], &[]));
    }
}
