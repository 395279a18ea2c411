//! Why carrying over stops for a while, or ends.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Error;

use crate::database::Database;
use crate::failed::{Failed, NOT_CONNECTED, REFUSED};

/// A call without an answer for this long has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Fault {
    pub(super) failed: Failed,
    /// Whether a person must change something first.
    pub(super) is_wrong: bool,
}

/// The set-up is wrong: user, password, database, rights, or what is installed there.
const WRONG: &[&str] = &["28", "3D000", "3F000", "42"];

impl Fault {
    pub(super) fn wrong(message: String, hint: &str) -> Self {
        let failed = Failed { hint: Some(hint.into()), ..Failed::new(REFUSED, message) };
        Self { failed, is_wrong: true }
    }

    /// Of one of the databases, and the function that grants its role what it lacks.
    pub(super) fn of(self, name: &str, database: &Database, grant: &str) -> Self {
        let mut failed = database.hinted(self.failed, grant);
        failed.lacks_right = false;
        failed.message = format!("{name}: {}", failed.message);
        Self { failed, ..self }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let code = error.code().map(|code| code.code().to_owned());
        let failed = Failed::from(error);
        let is_wrong = match &code {
            Some(code) => is_of(code, WRONG),
            None => ["password missing", "does not support TLS"]
                .iter()
                .any(|part| failed.message.contains(part)),
        };
        let code = if code.is_none() { NOT_CONNECTED } else { failed.code };
        Self { failed: Failed { code, ..failed }, is_wrong }
    }
}

/// Whether an SQLSTATE begins with one of these.
pub(super) fn is_of(code: &str, classes: &[&str]) -> bool {
    classes.iter().any(|class| code.starts_with(class))
}

/// Waits for an answer, but not for ever.
pub(super) async fn answer<T, E: Into<Fault>>(
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault> {
    answer_within(PATIENCE, asked).await
}

pub(super) async fn answer_within<T, E: Into<Fault>>(
    patience: Duration,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault> {
    let silent = || Failed::new(NOT_CONNECTED, format!("no answer for {} s", patience.as_secs()));
    match timeout(patience, asked).await {
        Ok(answer) => answer.map_err(E::into),
        Err(_) => Err(Fault { failed: silent(), is_wrong: false }),
    }
}
