//! The connection that sends results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::select;
use tokio::time::timeout;

use crate::engine::{Engine, Finish, State};
use crate::executor::query;
use crate::job::Key;
use crate::report::Report;
use crate::{ClientError, Error};

/// The refused results by number, from 1, with the reason; and those whose jobs are discarded, with
/// none.
pub(crate) const FINISH: &str = "
select json_build_array(ord, case when not done then reason end)::text
    from jobs.finish_many($1::jsonb) where not done or state = 'discarded'";

/// The maximum number of results in a call, and the maximum size of a call with several.
pub(crate) const MOST: usize = 1_000;
const LONGEST: usize = 16 << 20;

/// The server's message for a jsonb larger than it can allocate, in every language. Its SQLSTATE is
/// that of every internal error.
const TOO_LARGE: &str = "invalid memory alloc request size";

const UNSENT: &str = "the result was not sent";

/// Sends results. Those that arrive during a call are sent together.
pub(crate) async fn run(engine: Arc<Engine>, cell: usize) {
    loop {
        let next = |state: &State| state.unsent_of(cell).map(|(_, one)| one.due).min();
        let due = next(&engine.state.borrow());
        let wait = due.map_or(Duration::MAX, |due| due - Instant::now());
        let is_due = |state: &State| next(state).is_some_and(|due| due <= Instant::now());
        let _ = timeout(wait, engine.until(is_due)).await;
        engine.gather(|state| state.unsent.len()).await;
        let mut link = engine.links[cell].lock().await;
        let (keys, results) = engine.batch(cell);
        match query(&mut *link, FINISH, &[&results]).await {
            Ok(refused) => {
                link.failures = 0;
                engine.take(&keys, refused.into_iter().collect());
            }
            Err(error) if link.passes(&error) => {
                let stage = engine.stage();
                engine.change(|state| state.cells[cell].is_stuck = true);
                // The wait for it gets shorter now.
                select! {
                    () = link.pause("finish", &error) => {}
                    () = engine.until(|state| state.stage != stage) => link.failures = 0,
                }
            }
            Err(error) => engine.refuse(&keys, &error),
        }
    }
}

impl Engine {
    /// The keys and results of the next call.
    fn batch(&self, cell: usize) -> (Vec<Key>, String) {
        let now = Instant::now();
        let state = self.state.borrow();
        let due = || state.unsent_of(cell).filter(|(_, one)| one.due <= now);
        let alone = due().find(|(_, one)| one.is_alone);
        let most = if alone.is_some() { 1 } else { MOST };
        let mut length = 0;
        let batch = alone.into_iter().chain(due()).take(most);
        let batch = batch.take_while(|(_, one)| {
            length += one.json.len();
            length == one.json.len() || length <= LONGEST
        });
        let (keys, results): (_, Vec<_>) = batch.map(|(key, one)| (*key, &*one.json)).unzip();
        (keys, format!("[{}]", results.join(",")))
    }

    /// Records that the server has these results, except those with a reason. The others that it
    /// answers about have discarded their jobs.
    pub(crate) fn take(&self, keys: &[Key], mut answers: HashMap<usize, Option<String>>) {
        self.change(|state| {
            for (number, key) in (1..).zip(keys) {
                state.cells[key.0].is_stuck = false;
                let answer = answers.remove(&number);
                if answer == Some(Some("locked".into())) {
                    state.unsent.get_mut(key).expect(UNSENT).put_off();
                    continue;
                }
                let Finish { job, failure, .. } = state.unsent.remove(key).expect(UNSENT);
                state.reports.extend(match (answer, failure) {
                    (Some(Some(reason)), _) => Some(Report::Dropped(job, reason)),
                    (Some(None), Some(failure)) => Some(Report::Discarded(job, failure)),
                    _ => None,
                });
            }
        });
    }

    /// Records that the server refused a call. Each of its results is then sent by itself. One that
    /// is refused again is repeated, as a failed attempt if its value is the cause.
    pub(crate) fn refuse(&self, keys: &[Key], error: &ClientError) {
        let is_of_value = error.is(&["22", "54"]) || error.to_string().contains(TOO_LARGE);
        self.change(|state| {
            for key in keys {
                state.cells[key.0].is_stuck = false;
                let result = state.unsent.get_mut(key).expect(UNSENT);
                if !std::mem::replace(&mut result.is_alone, true) {
                    continue;
                }
                let job = result.job.clone();
                state.reports.push(Report::Refused(job.clone(), error.to_string()));
                if is_of_value {
                    let failure = Error::new(error.to_string()).typed("invalid_output");
                    result.json = Finish::new(&job, &Err(failure.clone())).json;
                    if result.failure.replace(failure.clone()).is_none() {
                        state.reports.push(Report::Failed(job, failure));
                    }
                }
                result.put_off();
            }
        });
    }
}
