//! The suite `doc`: the examples of README.md and docs/, and docs/reference.md. A part is a part of
//! a document's name.
//!
//! Every ```sql block of a document runs, in order, in one fresh database of the document's own. A
//! ```text or ```output block behind it is what psql must print; `...` in it stands for anything
//! within a line, as for a time. A block with no output behind it must print nothing, so there is
//! no output that is not compared. The line `<!-- not run: WHY -->` before a block leaves it out,
//! as SQL of another system or a part of a program; these are listed.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use jobs_tests::checks::{Checks, Outcome, feed, holds, same, succeeds, suite};
use jobs_tests::{Cluster, ROOT};
use regex::Regex;

fn main() -> ExitCode {
    suite(documentation)
}

fn documentation(checks: &mut Checks) {
    let cluster = Cluster::builder().set("max_worker_processes", 64).start();
    let mut control = None;
    for document in documents() {
        let text = read(&document);
        for line in text.lines().filter(|line| line.starts_with("<!-- not run")) {
            println!("{document}: {line}");
        }
        let blocks = blocks(&text);
        if blocks.is_empty() || !checks.wants(&document) {
            continue;
        }
        cluster.psql("postgres", &format!("create database \"{document}\""));
        for block in blocks {
            let came = block.run(&cluster, &document);
            checks.check(format!("{document} line {}", block.line), block.compare(&came));
            if control.is_none() && block.expected.is_some() {
                control = Some((block, came));
            }
        }
    }
    if let Some((mut block, came)) = control {
        block.expected = block.expected.map(|expected| expected + "this must not be there\n");
        checks.refuses("control: a wrong output is found", block.compare(&came));
        block.expected = None;
        checks.refuses(
            "control: an output that is not in the document is found",
            block.compare(&came),
        );
    }
    let programs = ["docs/workers.md", "docs/workers-run.md", "docs/testing.md"].map(read);
    let no_block = |text: &str| holds(silent(text).is_empty(), silent(text).join("\n"));
    let both = programs.iter().try_for_each(|text| no_block(text));
    checks.check("no block of a program is left out silently", both);
    let without: String = programs[0]
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("<!-- not run"))
        .collect();
    checks.refuses("control: one that is left out silently is found", no_block(&without));
    let mut prose = Command::new("python3");
    let prose = succeeds(prose.current_dir(ROOT).arg("ops/scripts/prose.py"));
    checks.check("no line of prose is too long", prose);
    reference(checks, &cluster);
    checks.end(cluster);
}

/// Checks that docs/reference.md matches the COMMENTs, or writes it for `./dev reference`.
fn reference(checks: &mut Checks, cluster: &Cluster) {
    cluster.psql("postgres", "create database reference");
    cluster.psql("reference", "create extension jobs");
    let generated = || transcript(cluster, "reference", &read("docs/reference.sql"));
    if std::env::var_os("JOBS_WRITE_REFERENCE").is_some() {
        fs::write(Path::new(ROOT).join("docs/reference.md"), generated())
            .expect("docs/reference.md");
    }
    let page = read("docs/reference.md");
    let is_current = || same(&page, &generated());
    checks
        .check("docs/reference.md is up to date; if this is right: ./dev reference", is_current());
    let missing = Regex::new("NO COMMENT|NO SUCH|Not in any section").expect("a regex");
    let missing: Vec<_> = page.lines().filter(|line| missing.is_match(line)).collect();
    checks.check("it leaves out nothing", holds(missing.is_empty(), missing.join("\n")));
    cluster.psql("reference", "comment on column jobs.queues.paused is 'something else'");
    checks.refuses("control: another COMMENT is found", is_current());
}

/// README.md and its neighbours, then docs/.
fn documents() -> Vec<String> {
    let mut top = Command::new("find");
    top.current_dir(ROOT).args([".", "-maxdepth", "1", "-name", "*.md"]);
    let found = |find: &mut Command| {
        let found = find.current_dir(ROOT).output().expect("find").stdout;
        let found = String::from_utf8(found).expect("names");
        let mut names: Vec<String> =
            found.lines().map(|name| name.trim_start_matches("./").into()).collect();
        names.sort();
        names
    };
    let mut all = found(&mut top);
    all.extend(found(Command::new("find").args(["docs", "-name", "*.md"])));
    all
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

/// What psql prints of a script, as a person would see it.
fn transcript(cluster: &Cluster, database: &str, script: &str) -> String {
    let mut psql = cluster.bin("psql");
    feed(psql.args(["-X", "-q", "-d", database]), script).1
}

/// A block of SQL, and the output that the document shows.
struct Block {
    line: usize,
    sql: String,
    expected: Option<String>,
}

impl Block {
    fn run(&self, cluster: &Cluster, database: &str) -> String {
        transcript(cluster, database, &self.sql)
    }

    /// Line by line.
    fn compare(&self, came: &str) -> Outcome {
        let expected = self.expected.as_deref().unwrap_or_default();
        let (wanted, lines) = (normal(expected), normal(came));
        let matches = |(pattern, line): (&String, &String)| {
            let pattern = regex::escape(pattern).replace(r"\.\.\.", ".*");
            Regex::new(&format!("^{pattern}$")).expect("a regex").is_match(line)
        };
        let is_same = wanted.len() == lines.len() && wanted.iter().zip(&lines).all(matches);
        if is_same {
            Ok(())
        } else {
            same(&format!("{expected}\n"), came).and(Err("only spaces differ".into()))
        }
    }
}

/// The width of a column depends on what `...` stands for, so it does not count; nor do empty
/// lines.
fn normal(text: &str) -> Vec<String> {
    let spaces = Regex::new(" +").expect("a regex");
    let dashes = Regex::new("---*").expect("a regex");
    let line = |line: &str| {
        let line = spaces.replace_all(line, " ");
        dashes.replace_all(&line, "-").trim_end_matches(' ').to_string()
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// The blocks of SQL that are run.
fn blocks(text: &str) -> Vec<Block> {
    enum Within {
        Text,
        Sql,
        Output,
        Other,
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut within = Within::Text;
    // The next block is the output of the last one; the next one is not run.
    let (mut shows_output, mut skip) = (false, false);
    for (index, line) in text.lines().enumerate() {
        match (&within, line.strip_prefix("```")) {
            (Within::Text, None) => {
                if line.starts_with("<!-- not run") {
                    skip = true;
                } else if !line.trim().is_empty() {
                    shows_output = false; // other text between
                }
            }
            (Within::Text, Some(language)) => {
                let is_sql = language.starts_with("sql") && !skip;
                let is_output = language.starts_with("text") || language.starts_with("output");
                within = if is_sql {
                    blocks.push(Block { line: index + 1, sql: String::new(), expected: None });
                    Within::Sql
                } else if is_output && shows_output {
                    blocks.last_mut().expect("a block").expected = Some(String::new());
                    Within::Output
                } else {
                    Within::Other
                };
                (shows_output, skip) = (is_sql, false);
            }
            (_, Some(_)) => within = Within::Text,
            (Within::Sql, None) => blocks.last_mut().expect("a block").sql += &format!("{line}\n"),
            (Within::Output, None) => {
                let expected = &mut blocks.last_mut().expect("a block").expected;
                expected.as_mut().expect("an output").push_str(&format!("{line}\n"));
            }
            (Within::Other, None) => {}
        }
    }
    blocks
}

/// The blocks that are not SQL and do not say that they are not run. Below the name of a language
/// alone stands an example that the suite `clients` runs.
fn silent(text: &str) -> Vec<String> {
    let is_code = Regex::new("^```[a-z]").expect("a regex");
    let is_sql = Regex::new("^```(sql|text)").expect("a regex");
    let says_so = Regex::new(r"^(<!-- not run|\*[A-Za-z]+\* )").expect("a regex");
    let mut found = Vec::new();
    let (mut inside, mut before) = (false, "");
    for line in text.lines() {
        if inside {
            inside = !line.starts_with("```");
            continue;
        }
        inside = line.starts_with("```");
        if is_code.is_match(line) && !is_sql.is_match(line) && !says_so.is_match(before) {
            found.push(line.to_string());
        }
        if !inside && !line.trim().is_empty() {
            before = line;
        }
    }
    found
}
