//! What `jobs.health()` finds.

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Finding {
    pub(crate) severity: String,
    pub(crate) finding: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}
