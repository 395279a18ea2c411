//! From `unique_opts` to a policy, from a policy and a job to a key.

use std::cell::RefCell;
use std::rc::Rc;

use jobs_core::key::{self, Key, Parts};
use jobs_core::period;
use jobs_core::policy::{self, Policy, WindowFrom};

use crate::error::Result;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::store::kept::Kept;

use super::holders;

thread_local! {
    /// The options parsed last: callers insert with the same ones over and over.
    static LAST: RefCell<Option<Parsed>> = const { RefCell::new(None) };
}

struct Parsed {
    /// Identifies the options.
    options: (u8, Vec<u8>),
    policy: Option<Rc<Policy>>,
}

/// The policy of some options; `None`: not unique.
pub fn parse(options: Option<Jsonb>) -> Result<Option<Rc<Policy>>> {
    // A driver's JSON null is meant as no options, too.
    let Some(options) = options.filter(|options| !options.is_null()) else {
        return Ok(None);
    };
    let (kind, content) = options.identity();
    let cached = LAST.with_borrow(|last| match last {
        Some(last) if last.options.0 == kind && last.options.1 == content => {
            Some(last.policy.clone())
        }
        _ => None,
    });
    if let Some(policy) = cached {
        return Ok(policy);
    }
    let policy = policy::parse(&options.to_value("unique_opts")?, &time::read_interval)?;
    let policy = policy.map(Rc::new);
    LAST.set(Some(Parsed { options: (kind, content.to_vec()), policy: policy.clone() }));
    Ok(policy)
}

/// What keeps a job of a policy once it is final: the period or window for which it is to be
/// unique, in the states in which the policy itself would count it.
pub fn kept(policy: &Policy, created_at: i64, scheduled_at: Option<i64>) -> Option<Kept> {
    if policy.by_period.is_none() && policy.window.is_none() || !holders::asks_for_final(policy) {
        return None;
    }
    let in_period = scheduled_at.unwrap_or(created_at);
    let period = policy.by_period.map(|p| period::end_of(in_period, p));
    let (window, sliding) = match policy.window {
        None => (None, None),
        Some(window) => match window.from {
            WindowFrom::CreatedAt => (Some(time::end_of_window(created_at, window.length)), None),
            // It may be scheduled anew.
            WindowFrom::ScheduledAt => (None, Some(window.length)),
        },
    };
    Some(Kept { states: policy.by_state, until: period.max(window), window: sliding })
}

/// What of a job its key can be made of.
pub struct Subject<'a> {
    pub kind: &'a str,
    pub args: Jsonb,
    /// `None` for `{}`.
    pub meta: Option<Jsonb>,
    pub queue: &'a str,
    /// `scheduled_at` if given, else the clock
    pub at: i64,
}

/// The key of a job under a policy.
pub fn key(policy: &Policy, subject: &Subject) -> Result<Key> {
    canonical(policy, subject).map(|text| Key::of(&text))
}

/// The text that the key is the hash of.
pub fn canonical(policy: &Policy, subject: &Subject) -> Result<String> {
    let parts = Parts { kind: subject.kind, queue: subject.queue, at_micros: subject.at };
    let args = || subject.args.events();
    let meta = || subject.meta.unwrap_or(Jsonb::NULL).events();
    Ok(key::canonical(policy, &parts, args, meta)?)
}
