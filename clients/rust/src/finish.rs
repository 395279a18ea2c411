//! The connection that says what became of jobs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::select;
use tokio::time::timeout;

use crate::engine::{Engine, State};
use crate::error::Ending;
use crate::executor::query;
use crate::job::JobInfo;
use crate::link::{Link, back_off};
use crate::{Error, Result};

const FINISH: &str = "
select json_build_array($1::jsonb->(ord - 1)->'token', reason)::text
    from jobs.finish_many($1::jsonb) where not done";
const PROGRESS: &str = "
select cancel_requested::text from jobs.heartbeat(
    ($1::jsonb->0)::bigint, ($1::jsonb->1)::bigint, progress => $1::jsonb->2)";

/// The most results of a call, and the most bytes of one that has several.
pub(crate) const MOST: usize = 1_000;
const LONGEST: usize = 16 << 20;

/// A result that the server does not have.
pub(crate) struct Finish {
    pub(crate) job: Arc<JobInfo>,
    /// As `jobs.finish_many` has it.
    pub(crate) json: Box<RawValue>,
    /// When it is to be sent.
    pub(crate) due: Instant,
    /// How often another transaction had its job locked.
    pub(crate) locked: u32,
}

impl Finish {
    pub(crate) fn new(job: &Arc<JobInfo>, ending: Ending) -> Self {
        #[derive(Serialize)]
        struct Element {
            id: i64,
            token: i64,
            #[serde(flatten)]
            ending: Ending,
        }
        let (id, token) = (job.id, job.token);
        let json = to_raw_value(&Element { id, token, ending });
        Self {
            json: json.expect("texts and numbers are JSON"),
            job: job.clone(),
            due: Instant::now(),
            locked: 0,
        }
    }
}

impl State {
    /// Takes that the server has these results, but for those that it has refused, and why.
    pub(crate) fn take(&mut self, tokens: &[i64], refused: HashMap<i64, String>) {
        for token in tokens {
            let mut result = self.unsent.remove(token).expect("it is not sent");
            match refused.get(token).map(String::as_str) {
                None => {}
                Some("locked") => {
                    result.due = Instant::now() + back_off(result.locked);
                    result.locked += 1;
                    self.unsent.insert(*token, result);
                }
                Some(reason) => {
                    tracing::warn!(id = result.job.id, reason, "job lost, result dropped");
                }
            }
        }
    }
}

/// Sends results, those together that come while a call is under way.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        let next = |state: &State| state.unsent.values().map(|one| one.due).min();
        let due = next(&engine.state.borrow());
        let wait = due.map_or(Duration::MAX, |due| due - Instant::now());
        let is_due = |state: &State| next(state).is_some_and(|due| due <= Instant::now());
        let _ = timeout(wait, engine.until(is_due)).await;
        engine.gather(|state| state.unsent.len()).await;
        let mut link = engine.link.lock().await;
        let sent = engine.send(&mut link, &engine.batch()).await;
        engine.change(|state| state.is_stuck = sent.is_err());
        if let Err(error) = sent {
            // Whoever waits for it waits for less time now.
            let stage = engine.stage();
            select! {
                () = link.pause(&error) => {}
                () = engine.until(|state| state.stage != stage) => link.failures = 0,
            }
        }
    }
}

impl Engine {
    /// The tokens of what goes into the next call.
    fn batch(&self) -> Vec<i64> {
        let (now, mut length) = (Instant::now(), 0);
        let state = self.state.borrow();
        let due = state.unsent.iter().filter(|(_, one)| one.due <= now);
        let batch = due.take(MOST).take_while(|(_, one)| {
            let is_first = length == 0;
            length += one.json.get().len();
            is_first || length <= LONGEST
        });
        batch.map(|(token, _)| *token).collect()
    }

    /// Sends results, together as far as the server takes that. Those that it does not take stay.
    async fn send(&self, link: &mut Link, tokens: &[i64]) -> Result<()> {
        let error = match self.call(link, tokens).await {
            Err(error) if !link.passes(&error) => error,
            called => return called,
        };
        match tokens {
            [token] if error.is(&["22", "54"]) => {
                let failed = Error::new(error.to_string()).typed("invalid_output");
                self.change(|state| {
                    let result = state.unsent.get_mut(token).expect("it is not sent");
                    *result = Finish::new(&result.job.clone(), failed.0);
                });
                self.call(link, tokens).await
            }
            [_] => Err(error),
            _ => {
                let mut sent = Ok(());
                for token in tokens {
                    sent = Box::pin(self.send(link, &[*token])).await.and(sent);
                }
                sent
            }
        }
    }

    async fn call(&self, link: &mut Link, tokens: &[i64]) -> Result<()> {
        let results = {
            let state = self.state.borrow();
            let result = |token| &state.unsent[token].json;
            let results: Vec<_> = tokens.iter().map(result).collect();
            to_raw_value(&results)?
        };
        let refused = query(link, FINISH, results).await?;
        self.change(|state| state.take(tokens, refused.into_iter().collect()));
        Ok(())
    }

    /// Stores how far a job is.
    pub(crate) async fn progress(&self, job: &JobInfo, of: &RawValue) -> Result<()> {
        let mut link = self.link.lock().await;
        loop {
            match query(&mut *link, PROGRESS, of).await {
                Ok(heard) => {
                    heard.into_iter().for_each(|heard| job.hear(heard));
                    return Ok(());
                }
                Err(error) if link.passes(&error) => link.pause(&error).await,
                Err(error) => {
                    if error.is(&["55000", "P0002"]) {
                        job.hear(None);
                    }
                    return Err(error);
                }
            }
        }
    }
}
