//! What a job is inserted with beside its kind and args: as it was given, and as it is
//! once it is checked and the defaults are filled in.

use std::rc::Rc;

use jobs_core::policy::Policy;
use jobs_core::retry::Attempts;
use jobs_core::state::State;

use crate::cell;
use crate::check;
use crate::error::Result;
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::time;
pub use crate::store::config::Options;
use crate::store::config_cache;
use crate::store::job::{Common, NewJob};
use crate::store::queue::Queue;
use crate::unique::Candidate;
use crate::unique::policy::{self, Subject};

const DEFAULT_QUEUE: &str = "default";
const DEFAULT_PRIORITY: i16 = 1;
const DEFAULT_MAX_ATTEMPTS: i32 = 25;

impl Options {
    /// Checks each by itself, and what the retry policy says of `max_attempts`. What was left out
    /// is still left out, also by a JSON null: drivers mean it so.
    pub fn valid(mut self) -> Result<(Options, Attempts)> {
        self.meta = check::object("meta", self.meta)?;
        check::tags(self.tags.as_deref())?;
        let (retry, attempts) = check::retry(self.retry)?;
        self.retry = retry;
        self.max_attempts = check::attempts(self.max_attempts, attempts)?;
        if let Some(queue) = &self.queue {
            check::name("queue", Some(queue))?;
        }
        let finite = |name, at: Option<i64>| at.map(|at| check::finite(name, at)).transpose();
        finite("scheduled_at", self.scheduled_at)?;
        finite("expires_at", self.expires_at)?;
        self.timeout = self.timeout.map(check::timeout).transpose()?;
        self.unique_opts = self.unique_opts.filter(|options| !options.is_null());
        Ok((self, attempts))
    }

    /// Checks everything that can be wrong about these options; what is left per job of this kind
    /// are its args.
    pub fn checked(self, kind: &str) -> Result<Checked> {
        let defaults = config_cache::kind(kind);
        let (given, attempts) = self.valid()?;
        let default_of = |kept: &Option<OwnedJsonb>| kept.as_ref().map(OwnedJsonb::get);
        let policy = policy::parse(given.unique_opts.or(default_of(&defaults.unique_opts)))?;
        let max_attempts = given
            .max_attempts
            .or(defaults.max_attempts)
            .or(attempts.default())
            .unwrap_or(DEFAULT_MAX_ATTEMPTS);
        let queue = given.queue.as_deref().or(defaults.queue.as_deref());
        let queue = Queue::named(queue.unwrap_or(DEFAULT_QUEUE));
        let law = cell::law(queue.name(), policy.as_deref())?;
        let priority = given.priority.or(defaults.priority);
        Ok(Checked {
            scheduled_at: given.scheduled_at,
            pending: given.pending == Some(true),
            common: Rc::new(Common {
                kind: kind.to_string(),
                queue,
                priority: priority.unwrap_or(DEFAULT_PRIORITY),
                expires_at: given.expires_at,
                max_attempts,
                tags: given.tags.into(),
                meta: given.meta.into(),
                timeout: given.timeout.or(defaults.timeout).into(),
                retry: given.retry.or(default_of(&defaults.retry)).into(),
                hold: policy.as_ref().and_then(|policy| policy.hold),
                law,
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
    /// What the job is unique by.
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_deref()
    }

    /// What a policy looks at of the job with these args.
    pub fn subject(&self, args: Jsonb, now: i64) -> Subject<'_> {
        Subject {
            kind: &self.common.kind,
            args,
            meta: self.common.meta.given().copied(),
            queue: self.common.queue.name(),
            at: self.scheduled_at.unwrap_or(now),
        }
    }

    /// Refuses args that are too long beside the meta.
    pub fn fits(&self, args: Jsonb) -> Result<()> {
        check::args_and_meta(Some(args), self.common.meta.given().copied())
    }

    /// The job with these args, inserted now.
    pub fn candidate(&self, args: Jsonb) -> Result<Candidate> {
        self.fits(args)?;
        let now = time::now();
        let state = match self.scheduled_at {
            _ if self.pending => State::Pending,
            Some(at) if at > now => State::Scheduled,
            _ => State::Available,
        };
        let key = |policy| policy::key(policy, &self.subject(args, now));
        let unique_key = self.policy().map(key).transpose()?;
        let meta = self.common.meta.given().copied();
        let home = cell::home(self.common.law.as_ref(), args, meta)?;
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
            home,
        })
    }
}
