//! Output of commands on stdout and stderr.

use std::env::args_os;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::exit;

use serde_json::Value;

use crate::failed::REFUSED;
use crate::visible;

/// Prints a line, or exits: quietly if the reader has closed the pipe, as `head` does.
pub(crate) fn print(line: impl Display) {
    let Err(error) = writeln!(stdout(), "{line}") else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(0);
    }
    tell(format_args!("{}: stdout: {error}", name()));
    exit(REFUSED.into());
}

/// The program's name, as it was called: it may be installed under another one.
pub(crate) fn name() -> String {
    let path = args_os().next().map(PathBuf::from);
    let name = path.as_deref().and_then(Path::file_name);
    name.map_or("pgjobs".into(), |name| name.to_string_lossy().into())
}

/// Prints a line on stderr, and ignores failures.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Writes a line to the log. No text of a visitor can begin another line or command a terminal.
pub(crate) fn log(line: impl Display) {
    let line = line.to_string().replace('\n', " ");
    tell(format_args!("{}: {}", name(), visible::line(&line)));
}

/// Shows progress on a line of a terminal, in place of the previous one.
pub(crate) fn show_progress(line: impl Display) {
    if stderr().is_terminal() {
        // Without wrapping, a terminal cuts a long line.
        let line = format!("\r\x1b[K\x1b[?7l{line}\x1b[?7h");
        let _ = stderr().write_all(line.as_bytes());
    }
}

/// A value without the quotes of a text.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// 1 job, 12,345 jobs.
pub(crate) fn plural(value: i64, noun: &str) -> String {
    let ending = if value == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", number_text(value))
}

/// 12,345.
pub(crate) fn number_text(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("\u{2212}{text}") } else { text }
}
