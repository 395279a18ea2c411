//! What a finishing call made of a job, so that a repeated call gets the same answer.

use jobs_core::state::State;

use super::spi::{big, plans, rows};
use super::types::*;

rows! {
    /// A token that a finishing call has used.
    pub struct Used {
        /// The call. `None`: one that gave the job back, too long ago to tell which.
        pub call: Option<String>,
        pub state: State,
        /// When the job was to be due again.
        pub scheduled_at: Option<i64>,
    }
}

impl Used {
    /// Whether it may have been this call.
    pub fn may_be(&self, call: &str) -> bool {
        match &self.call {
            Some(used) => used == call,
            None => matches!(call, "snooze" | "release"),
        }
    }
}

/// What a finishing call made of a job with this token, if one did.
pub fn by(id: i64, token: i64) -> Option<Used> {
    USED.rows(&[big(id), big(token)]).pop()
}

plans! {
    // Which call it was stands nowhere by itself: a failed attempt left an error, a released job
    // an answer, one that was completed the state. An answer with a time is a snooze's; it tells of
    // a cancelled job as well, which has none.
    USED(INT8, INT8) =
        "SELECT u.call, u.state, u.scheduled_at FROM (
           SELECT 'fail' AS call, e.state::text, e.scheduled_at FROM jobs.error e WHERE e.job_id = $1 AND e.token = $2
           UNION ALL
           SELECT CASE WHEN a.state = 'completed' THEN 'complete' WHEN a.scheduled_at IS NULL THEN 'release' ELSE 'snooze' END,
                  a.state::text, CASE WHEN a.state = 'scheduled' THEN a.scheduled_at END
             FROM jobs.answer a WHERE a.job_id = $1 AND a.token = $2
           UNION ALL
           SELECT CASE WHEN f.state = 'completed' THEN 'complete' END, f.state::text, NULL
             FROM jobs.finished f WHERE f.job_id = $1 AND f.token = $2) u
          ORDER BY u.call LIMIT 1";
}
