//! What a command says on stdout and stderr.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::exit;

use serde_json::Value;

use crate::failed::REFUSED;
use crate::visible;

/// Prints a line, or ends the program: quietly if the reader has gone away, as `head` does.
pub(crate) fn print(line: impl Display) {
    let Err(error) = writeln!(stdout(), "{line}") else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(0);
    }
    tell(format_args!("jobs: stdout: {error}"));
    exit(REFUSED.into());
}

/// Says it on stderr, if it can be said there.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Writes a line to the log. No text of a visitor can begin another line or command a terminal.
pub(crate) fn log(line: impl Display) {
    tell(format_args!("jobs: {}", visible::line(&line.to_string())));
}

/// Shows how far it is on a line of a terminal, in place of what was shown there before.
pub(crate) fn show_progress(line: impl Display) {
    if stderr().is_terminal() {
        // A terminal that does not wrap cuts what is too long for a line.
        let line = format!("\r\x1b[K\x1b[?7l{line}\x1b[?7h");
        let _ = stderr().write_all(line.as_bytes());
    }
}

/// A value without the quotes of a text.
pub(crate) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
