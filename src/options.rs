//! What a job is inserted with beside its kind and args: as it was given, and as it is
//! once it is checked and the defaults are filled in.

use std::rc::Rc;

use jobs_core::policy::Policy;
use jobs_core::state::State;

use crate::check;
use crate::config;
use crate::error::Result;
use crate::pg::jsonb::{Jsonb, Kept};
use crate::pg::time;
use crate::store::config::Kind;
pub use crate::store::config::Options;
use crate::store::job::{Common, NewJob};
use crate::unique::Candidate;
use crate::unique::policy::{self, Subject};

const DEFAULT_PRIORITY: i16 = 1;
const DEFAULT_MAX_ATTEMPTS: i32 = 25;

/// Where jobs of a kind go.
pub fn default_queue(defaults: &Kind) -> String {
    defaults.queue.clone().unwrap_or_else(|| "default".into())
}

/// What jobs of a kind are unique by: a driver's JSON null is left out as well.
pub fn unique_opts(given: Option<Jsonb>, defaults: &Kind) -> Option<Jsonb> {
    let given = given.filter(|options| !options.is_null());
    given.or(defaults.unique_opts.as_ref().map(Kept::get))
}

impl Options {
    /// Checks everything that can be wrong about these options; what is left per job of this kind are its args.
    pub fn checked(self, kind: &str) -> Result<Checked> {
        let defaults = config::kind(kind).unwrap_or_default();
        let meta = check::object("meta", self.meta)?;
        let (retry, attempts) = check::retry(self.retry)?;
        let max_attempts = check::attempts(self.max_attempts, attempts)?
            .or(defaults.max_attempts)
            .or(attempts.default())
            .unwrap_or(DEFAULT_MAX_ATTEMPTS);
        let queue = match self.queue {
            Some(queue) => {
                check::name("queue", Some(&queue))?;
                queue
            }
            None => default_queue(&defaults),
        };
        let priority = match self.priority {
            Some(priority) => check::priority(priority)?,
            None => defaults.priority.unwrap_or(DEFAULT_PRIORITY),
        };
        let finite = |name, at: Option<i64>| at.map(|at| check::finite(name, at)).transpose();
        let scheduled_at = finite("scheduled_at", self.scheduled_at)?;
        let expires_at = finite("expires_at", self.expires_at)?;
        let timeout = self.timeout.map(check::timeout).transpose()?;
        let policy = policy::parse(unique_opts(self.unique, &defaults))?;
        Ok(Checked {
            scheduled_at,
            pending: self.pending,
            common: Rc::new(Common {
                kind: kind.to_string(),
                queue,
                priority,
                expires_at,
                max_attempts,
                tags: self.tags,
                meta,
                timeout: timeout.or(defaults.timeout),
                retry: retry.or(defaults.retry.as_ref().map(Kept::get)),
                hold: policy.as_ref().and_then(|policy| policy.hold),
                _defaults: defaults,
            }),
            policy,
        })
    }
}

/// A kind with options that are valid, ready for any number of jobs.
#[derive(Clone)]
pub struct Checked {
    common: Rc<Common>,
    scheduled_at: Option<i64>,
    pending: bool,
    policy: Option<Rc<Policy>>,
}

impl Checked {
    /// The job with these args, inserted now.
    pub fn candidate(&self, args: Jsonb) -> Result<Candidate> {
        let now = time::now();
        let state = match self.scheduled_at {
            _ if self.pending => State::Pending,
            Some(at) if at > now => State::Scheduled,
            _ => State::Available,
        };
        let common = &*self.common;
        let unique_key = match &self.policy {
            None => None,
            Some(policy) => Some(policy::key(
                policy,
                &Subject {
                    kind: &common.kind,
                    args,
                    meta: common.meta,
                    queue: &common.queue,
                    at: self.scheduled_at.unwrap_or(now),
                },
            )?),
        };
        Ok(Candidate {
            job: NewJob {
                common: self.common.clone(),
                args,
                state,
                created_at: now,
                scheduled_at: self.scheduled_at,
                unique_key,
                kept: self
                    .policy
                    .as_ref()
                    .and_then(|policy| policy::kept(policy, now, self.scheduled_at))
                    .map(Box::new),
            },
            policy: self.policy.clone(),
        })
    }
}
