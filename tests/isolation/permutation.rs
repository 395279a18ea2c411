//! What isolationtester prints, as a line for each permutation, which a specification has in place
//! of its steps alone:
//!
//! `begin1 insert1=1 insert2... commit1 insert2=(1,t)(2,f) commit2!"could not serialize access"`
//!
//! Behind `=` are the rows that a step answered with: one value as it is, else a list for each row,
//! `()` where there is none. Behind `!` is the error that it failed with. A step that waits has
//! dots and stands again where it ends. Whatever else was printed stands in braces.

use std::collections::{HashMap, HashSet};

/// Steps that each session `sN` has, with its number, where a permutation has them.
const STEPS: [(&str, &str); 5] = [
    ("rc", "BEGIN ISOLATION LEVEL READ COMMITTED"),
    ("rr", "BEGIN ISOLATION LEVEL REPEATABLE READ"),
    ("ser", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
    ("commit", "COMMIT"),
    ("abort", "ROLLBACK"),
];

/// A specification as isolationtester reads it, and the lines that it expects.
pub fn expected(file: &str) -> (String, String) {
    let (mut spec, mut lines) = (String::new(), String::new());
    let is_step = |word: &str, step: &str| {
        word.strip_prefix(step).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    for line in file.split_inclusive('\n') {
        if let Some(session) = line.strip_prefix("session s") {
            spec += line;
            for (name, sql) in STEPS {
                let step = format!("{name}{}", session.trim_end());
                if file.split_whitespace().any(|word| is_step(word, &step)) {
                    spec += &format!("step {step} {{ {sql}; }}\n");
                }
            }
        } else if let Some(permutation) = line.strip_prefix("permutation ") {
            let (steps, line) = steps(permutation.trim_end());
            spec += &format!("permutation {}\n", steps.join(" "));
            lines += &format!("{}\n", line.join(" "));
        } else if line.starts_with("or ") {
            lines += line;
        } else {
            spec += line;
        }
    }
    (spec, lines)
}

/// The steps of a permutation, with what some of them wait for in parentheses, and its words
/// without those. A step that waits stands again where it ends.
fn steps(permutation: &str) -> (Vec<&str>, Vec<String>) {
    let (mut depth, mut quoted) = (0, false);
    let is_between = |c: char| {
        quoted ^= c == '"';
        depth += i32::from("({".contains(c)) - i32::from(")}".contains(c));
        c == ' ' && depth == 0 && !quoted
    };
    let (mut steps, mut words, mut waiting) = (Vec::new(), Vec::new(), HashSet::new());
    for word in permutation.split(is_between) {
        let name = word.split(|c: char| !c.is_alphanumeric()).next().expect("a name");
        let answer = word[name.len()..].strip_prefix('(').and_then(|waits| waits.split_once(')'));
        let answer = answer.map_or(&word[name.len()..], |(_, answer)| answer);
        if !waiting.remove(name) {
            steps.push(&word[..word.len() - answer.len()]);
        }
        if answer.starts_with("...") {
            waiting.insert(name);
        }
        words.push(format!("{name}{answer}"));
    }
    (steps, words)
}

/// A line for each permutation of what isolationtester printed of a specification.
pub fn lines(spec: &str, printed: &str) -> String {
    let statements = statements(spec);
    let mut permutations = printed.split("\nstarting permutation: ");
    let head = permutations.next().unwrap_or_default();
    assert!(head.starts_with("Parsed test spec"), "{head}");
    let line = |printed| line(&statements, printed) + "\n";
    permutations.map(line).collect()
}

/// The statements of each step, as isolationtester repeats them. There are no braces within.
fn statements(spec: &str) -> HashMap<&str, &str> {
    let parts = spec.split("\nstep ").skip(1);
    parts
        .map(|part| {
            let (name, rest) = part.split_once('{').expect("a step has a statement");
            let (statement, _) = rest.split_once('}').expect("which has an end");
            (name.trim(), statement.trim_matches([' ', '\t']))
        })
        .collect()
}

/// What was printed of a permutation.
fn line(statements: &HashMap<&str, &str>, printed: &str) -> String {
    let (_, mut rest) = printed.split_once('\n').expect("its steps");
    let mut words: Vec<String> = Vec::new();
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start_matches('\n');
        let known = words.last_mut();
        if let Some((name, behind)) =
            rest.strip_prefix("step ").and_then(|step| step.split_once(": "))
        {
            let ended = behind.strip_prefix("<... completed>");
            rest = ended.unwrap_or_else(|| behind.strip_prefix(statements[name]).expect(name));
            let waits = rest.strip_prefix(" <waiting ...>");
            rest = waits.unwrap_or(rest);
            words.push(name.to_string() + if waits.is_some() { "..." } else { "" });
        } else if let Some((rows, behind)) = table(rest) {
            known.expect("a step").push_str(&format!("={rows}"));
            rest = behind;
        } else {
            let (said, behind) = rest.split_once('\n').unwrap_or((rest, ""));
            let said = match said.strip_prefix("ERROR:  ") {
                Some(error) => format!("!\"{error}\""),
                None => format!("{{{said}}}"),
            };
            match known {
                Some(step) => step.push_str(&said),
                None => words.push(said),
            }
            rest = behind;
        }
    }
    words.join(" ")
}

/// The rows of a table that stands first, and what stands behind it.
fn table(printed: &str) -> Option<(String, &str)> {
    let mut lines = printed.split_inclusive('\n');
    let (head, rule) = (lines.next()?, lines.next()?);
    let is_rule = rule.starts_with('-') && rule.trim_end().chars().all(|c| matches!(c, '-' | '+'));
    if !is_rule {
        return None;
    }
    let (mut length, mut rows) = (head.len() + rule.len(), Vec::new());
    for line in lines {
        length += line.len();
        if line.starts_with('(') && (line.ends_with(" row)\n") || line.ends_with(" rows)\n")) {
            break;
        }
        let values: Vec<&str> = line.split('|').map(str::trim).collect();
        rows.push(values.join(","));
    }
    let rows = match &rows[..] {
        [one] if !rule.contains('+') && !one.contains(' ') => one.clone(),
        [] => "()".into(),
        rows => rows.iter().map(|row| format!("({row})")).collect(),
    };
    Some((rows, &printed[length..]))
}
