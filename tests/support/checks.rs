//! Suites whose tests share a server or follow from one another. Each is a program of its own
//! (`harness = false`) that counts and prints as Rust's tests do. A name on its command line runs a
//! part of it.

use std::fmt::Display;
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

use regex::Regex;

use crate::Cluster;

/// What a test found: nothing, or what is wrong.
pub type Outcome = Result<(), String>;

/// The tests of a suite that is running.
#[derive(Default)]
pub struct Checks {
    part: String,
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// Runs a suite.
pub fn suite(run: impl FnOnce(&mut Checks)) -> ExitCode {
    let mut checks = Checks {
        part: std::env::args()
            .skip(1)
            .find(|argument| !argument.starts_with('-'))
            .unwrap_or_default(),
        ..Checks::default()
    };
    let ran = catch_unwind(AssertUnwindSafe(|| run(&mut checks)));
    if ran.is_err() {
        checks.check("the suite comes to its end", Err(String::new()));
    }
    let Checks { passed, failed, skipped, .. } = checks;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {skipped} ignored");
    ExitCode::from(u8::from(failed > 0))
}

impl Checks {
    /// Whether the part of this name is to run.
    pub fn wants(&self, name: &str) -> bool {
        name.contains(&self.part)
    }

    /// The part that is to run; empty if all are.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// One test.
    pub fn check(&mut self, what: impl Display, outcome: Outcome) {
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("test {what} ... ok");
            }
            Err(wrong) => {
                self.failed += 1;
                println!("test {what} ... FAILED\nFAILED: {what}\n{wrong}");
            }
        }
    }

    /// Tests that a program of another language has counted.
    pub fn add(&mut self, passed: u32, failed: u32) {
        self.passed += passed;
        self.failed += failed;
    }

    /// The tests that cargo runs, by the sums that it prints; a build that fails is a failure.
    pub fn add_cargo(&mut self, cargo: &mut Command) {
        let (ended_well, said) = feed(cargo, "");
        // `./dev test` adds up the sums that begin a line, and this one is part of the suite's.
        println!("{}", said.replace("test result:", "  test result:"));
        let sum = Regex::new("(?m)^test result: .* ([0-9]+) passed; ([0-9]+) failed;");
        let number = |text: &str| text.parse::<u32>().expect("a number");
        let (mut passed, mut failed) = (0, 0);
        for sum in sum.expect("a regex").captures_iter(&said) {
            passed += number(&sum[1]);
            failed += number(&sum[2]);
        }
        self.add(passed, failed + u32::from(!ended_well && failed == 0));
    }

    /// A negative control: this must be found to be wrong.
    pub fn refuses(&mut self, what: impl Display, outcome: Outcome) {
        self.finds(what, "", outcome);
    }

    /// A negative control: this must be found to be wrong, in words that the regular expression
    /// finds.
    pub fn finds(&mut self, what: impl Display, words: &str, outcome: Outcome) {
        let words = Regex::new(words).expect("a regex");
        self.check(
            what,
            match outcome {
                Ok(()) => Err("nothing was found".into()),
                Err(wrong) if words.is_match(&wrong) => Ok(()),
                Err(wrong) => Err(format!("this was found: {wrong}")),
            },
        );
    }

    /// One test that cannot run on this machine: it did not pass. Says what was tried and how that
    /// ended.
    pub fn skip(&mut self, what: impl Display, tried: impl Display, error: impl Display) {
        self.skipped += 1;
        println!("SKIPPED: {what}\n  tried: {tried}\n  error: {error}");
    }

    /// Whether ./dev can install what a test needs, by this function of its own and arguments. If
    /// not, the test is skipped where the machine cannot have it, and has failed else.
    pub fn has(&mut self, what: impl Display, tried: impl Display, need: &[&str]) -> bool {
        match crate::need(need) {
            Ok(()) => true,
            Err(error) => {
                self.cannot(what, tried, &error);
                false
            }
        }
    }

    /// One test whose preparations failed: it is skipped where the machine has no network or no
    /// such package, and has failed else.
    pub fn cannot(&mut self, what: impl Display, tried: impl Display, error: &str) {
        const NOT_HERE: &str = "(?i)unable to locate package|E404|name resolution|could not resolve|NewConnectionError|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|unreachable|timed out";
        if Regex::new(NOT_HERE).expect("a regex").is_match(error) {
            self.skip(what, tried, error);
        } else {
            self.check(format!("{what}: {tried}"), Err(error.into()));
        }
    }

    /// Ends a server: its log must be clean, and what `jobs.check()` looks for must not be there.
    pub fn end(&mut self, cluster: Cluster) {
        let ended = catch_unwind(AssertUnwindSafe(|| drop(cluster)));
        let outcome = ended.map_err(|wrong| match wrong.downcast::<String>() {
            Ok(wrong) => *wrong,
            Err(_) => String::new(), // it was printed
        });
        self.check("the server's log is clean", outcome);
    }
}

/// This is so, or else the text says what is wrong.
pub fn holds(condition: bool, wrong: impl Display) -> Outcome {
    condition.then_some(()).ok_or_else(|| wrong.to_string())
}

/// Both texts are the same but for spaces at their ends; or else what `diff` says.
pub fn same(expected: &str, came: &str) -> Outcome {
    let (expected, came) = (expected.trim_end(), came.trim_end());
    if expected == came {
        return Ok(());
    }
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        writeln!(file, "{text}").expect("a file");
        file
    };
    let (expected, came) = (file(expected), file(came));
    let mut diff = Command::new("diff");
    diff.args(["-u", "--label", "expected", "--label", "this came"]);
    let diff = diff.arg(expected.path()).arg(came.path()).output();
    Err(String::from_utf8_lossy(&diff.expect("diff").stdout).into_owned())
}

/// What a command prints, if it ends well; else both of its streams.
pub fn output(command: &mut Command) -> Result<String, String> {
    let ended = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ended.status.success() {
        true => Ok(text(&ended.stdout)),
        false => Err(text(&[ended.stdout, ended.stderr].concat())),
    }
}

/// Whether a command ends well with this as its standard input, and what it prints, both streams in
/// their order.
pub fn feed(command: &mut Command, input: &str) -> (bool, String) {
    let file = |text: &str| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).expect("a file");
        file.rewind().expect("a file");
        file
    };
    let (input, mut printed) = (file(input), file(""));
    let both = || printed.try_clone().expect("a file");
    command.stdin(input).stdout(both()).stderr(both());
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    printed.rewind().expect("a file");
    let mut bytes = Vec::new();
    printed.read_to_end(&mut bytes).expect("a file");
    (status.success(), String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a command ends well, whatever it prints.
pub fn succeeds(command: &mut Command) -> Outcome {
    output(command).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_what_is_skipped_has_not_passed() {
        let mut checks = Checks::default();
        checks.check("passes", Ok(()));
        checks.check("fails", Err("wrong".into()));
        checks.refuses("control", Err("wrong".into()));
        checks.refuses("control", Ok(()));
        checks.finds("control", "^wr", Err("wrong".into()));
        checks.finds("control", "^wr", Err("another".into()));
        checks.cannot("net", "get", "Temporary failure in name resolution");
        checks.cannot("broken", "get", "syntax error");
        let Checks { passed, failed, skipped, .. } = checks;
        assert_eq!((passed, failed, skipped), (3, 4, 1));
    }

    #[test]
    fn texts_are_compared() {
        assert_eq!(same("a\nb\n", "a\nb"), Ok(()));
        let wrong = same("a\nb\n", "a\nc\n").unwrap_err();
        assert!(wrong.contains("-b\n+c"), "{wrong}");
    }
}
