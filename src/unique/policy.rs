//! From `unique_opts` to a policy, from a policy and a job to a key.

use std::cell::RefCell;
use std::rc::Rc;

use jobs_core::key::{self, Key, Parts};
use jobs_core::policy::{self, Policy};

use crate::error::Result;
use crate::pg::jsonb::{Jsonb, JsonbEvents};
use crate::pg::time;

thread_local! {
    /// The options parsed last: callers insert with the same ones over and over.
    static LAST: RefCell<Option<Parsed>> = const { RefCell::new(None) };
}

struct Parsed {
    options: Vec<u8>,
    policy: Option<Rc<Policy>>,
}

/// The policy of some options; `None`: not unique.
pub fn parse(options: Option<Jsonb>) -> Result<Option<Rc<Policy>>> {
    // A driver's JSON null is meant as no options, too.
    let Some(options) = options.filter(|options| !options.is_null()) else {
        return Ok(None);
    };
    let cached = LAST.with_borrow(|last| match last {
        Some(last) if last.options == options.bytes() => Some(last.policy.clone()),
        _ => None,
    });
    if let Some(policy) = cached {
        return Ok(policy);
    }
    let policy = policy::parse(&options.to_value("unique_opts")?, &time::read_interval)?;
    let policy = policy.map(Rc::new);
    LAST.set(Some(Parsed {
        options: options.bytes().to_vec(),
        policy: policy.clone(),
    }));
    Ok(policy)
}

/// What of a job its key can be made of.
pub struct Subject<'a> {
    /// its kind
    pub kind: &'a str,
    /// its args
    pub args: Jsonb,
    /// its meta; `None`: `{}`
    pub meta: Option<Jsonb>,
    /// its queue
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
    let parts = Parts {
        kind: subject.kind,
        queue: subject.queue,
        at_micros: subject.at,
    };
    let meta = || {
        subject
            .meta
            .map_or_else(JsonbEvents::of_nothing, Jsonb::events)
    };
    Ok(key::canonical(
        policy,
        &parts,
        || subject.args.events(),
        meta,
    )?)
}
