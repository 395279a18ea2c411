//! Numbers of seconds on the command line.

use std::time::Duration;

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// How long an attempt may run; the longest is no limit.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(-1.0) => Ok(Duration::MAX),
        Ok(limit) if limit > 0.0 => seconds(text),
        _ => Err("must be a positive number of seconds, or -1 for no limit".into()),
    }
}
