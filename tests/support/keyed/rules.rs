//! Limits, the order and pauses as they are set, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Span;
use crate::{Client, run};

/// The queue that can have an order.
pub const QUEUE: &str = "a";
/// The queues that jobs are in.
pub const QUEUES: &[&str] = &[QUEUE, "b"];
/// Every rate is for this time.
pub const PERIOD: Duration = Duration::from_millis(300);

/// Whom a job is for: two members of its args, which make its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    pub t: i64,
    pub u: i64,
}

/// What makes the keys of a limit or an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// All jobs have one key.
    Nothing,
    /// The member t of args.
    T,
    /// The member u of args.
    U,
    /// Both members.
    Both,
}

pub type Key = (Option<i64>, Option<i64>);

impl By {
    pub(super) fn key(self, who: Who) -> Key {
        let has = |member, other| self == member || self == other;
        (has(By::T, By::Both).then_some(who.t), has(By::U, By::Both).then_some(who.u))
    }

    fn sql(self) -> &'static str {
        match self {
            By::Nothing => "null",
            By::T => r#"'{"by_args": ["t"]}'"#,
            By::U => r#"'{"by_args": ["u"]}'"#,
            By::Both => r#"'{"by_args": ["t", "u"]}'"#,
        }
    }
}

/// A key as SQL has it.
pub fn key_sql((t, u): Key) -> String {
    let members = [("t", t), ("u", u)].into_iter();
    let members = members.filter_map(|(name, value)| Some(format!(r#""{name}": {}"#, value?)));
    format!(r#"'{{"args": {{{}}}}}'"#, members.collect::<Vec<_>>().join(", "))
}

/// A limit as it is set.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name.
    pub name: &'static str,
    /// What makes its keys.
    pub by: By,
    /// The queues that it covers; none named: all.
    pub queues: &'static [&'static str],
    /// The kind that it covers; `None`: all.
    pub kind: Option<&'static str>,
    /// How many jobs of a key may run.
    pub concurrency: Option<usize>,
    /// How many may start within a period.
    pub rate: Option<usize>,
    /// The concurrency of single keys.
    pub(super) overrides: BTreeMap<Key, usize>,
    /// Whether the whole limit is paused.
    pub is_paused: bool,
    pub(super) paused: BTreeSet<Key>,
}

impl Limit {
    /// At most so many jobs of a key run.
    pub fn of(name: &'static str, by: By, concurrency: usize) -> Limit {
        Limit {
            name,
            by,
            queues: &[],
            kind: None,
            concurrency: Some(concurrency),
            rate: None,
            overrides: BTreeMap::new(),
            is_paused: false,
            paused: BTreeSet::new(),
        }
    }

    /// At most so many jobs of a kind and key start within a period.
    pub fn rate_of(name: &'static str, kind: &'static str, by: By, rate: usize) -> Limit {
        Limit { kind: Some(kind), concurrency: None, rate: Some(rate), ..Limit::of(name, by, 1) }
    }

    pub(super) fn covers(&self, queue: &str, kind: &str) -> bool {
        (self.queues.is_empty() || self.queues.contains(&queue))
            && self.kind.is_none_or(|own| own == kind)
    }

    /// How many jobs of this key may run.
    pub(super) fn most(&self, key: Key) -> usize {
        let own = self.overrides.get(&key).copied();
        own.or(self.concurrency).unwrap_or(usize::MAX)
    }

    /// How many may start within the period.
    pub(super) fn rate(&self, key: Key) -> Option<usize> {
        self.rate.filter(|_| !self.overrides.contains_key(&key))
    }

    pub(super) fn is_paused_for(&self, key: Key) -> bool {
        self.is_paused || self.paused.contains(&key)
    }
}

/// The order of [`QUEUE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// What makes its keys.
    pub by: By,
    /// Jobs of a key start one after the other.
    pub is_strict: bool,
    /// Keys share the starts.
    pub is_fair: bool,
    /// A discarded job blocks its key.
    pub blocks: bool,
    /// Of the key of the first tenant.
    pub weight: u8,
}

impl Order {
    /// An order by the first member of args.
    pub const fn of(is_strict: bool, is_fair: bool) -> Order {
        Order { by: By::T, is_strict, is_fair, blocks: false, weight: 1 }
    }
}

/// What was set, one after the other.
pub struct Timeline<S>(Vec<(Span, S)>);

impl<S> Default for Timeline<S> {
    fn default() -> Timeline<S> {
        Timeline(Vec::new())
    }
}

impl<S> Timeline<S> {
    pub fn set(&mut self, span: Span, setting: S) {
        self.0.push((Span { done: Some(Instant::now()), ..span }, setting));
    }

    pub fn latest(&self) -> Option<&S> {
        self.0.last().map(|(_, setting)| setting)
    }

    /// What was in force all of this time, with its number; `None`: it changed, or nothing was.
    pub fn during(&self, from: Instant, to: Instant) -> Option<(usize, &S)> {
        let n = self.0.iter().rposition(|(span, _)| span.sent <= to)?;
        let (span, setting) = &self.0[n];
        (!span.may_be_after(from)).then_some((n, setting))
    }

    /// When the next one after this was set at the earliest.
    pub fn until(&self, n: usize) -> Option<Instant> {
        self.0.get(n + 1).map(|(span, _)| span.sent)
    }
}

/// All that is in force.
#[derive(Default)]
pub struct Rules {
    pub limits: BTreeMap<&'static str, Timeline<Limit>>,
    pub order: Timeline<Option<Order>>,
    /// Whether [`QUEUE`] is paused.
    pub pause: Timeline<bool>,
}

impl Rules {
    pub async fn set_limit(&mut self, db: &Client, limit: Limit) {
        let span = Span::begin();
        run(db, &define(&limit)).await;
        self.limits.entry(limit.name).or_default().set(span, limit);
    }

    pub async fn set_order(&mut self, db: &Client, order: Option<Order>) {
        let span = Span::begin();
        run(db, &order_sql(order)).await;
        self.order.set(span, order);
    }
}

pub fn define(limit: &Limit) -> String {
    let number = |n: Option<usize>| n.map_or("null".into(), |n| n.to_string());
    let list = |names: &[&str]| match names {
        [] => "null".into(),
        names => format!("'{{{}}}'", names.join(",")),
    };
    let period = limit.rate.map_or("null".into(), |_| format!("'{} ms'", PERIOD.as_millis()));
    format!(
        "select jobs.define_limit('{}', by => {}, queues => {}, kinds => {}, concurrency => {}, rate => {}, rate_period => {period})",
        limit.name,
        limit.by.sql(),
        list(limit.queues),
        list(limit.kind.as_slice()),
        number(limit.concurrency),
        number(limit.rate),
    )
}

pub fn order_sql(order: Option<Order>) -> String {
    let Some(order) = order else {
        return format!("select jobs.order_queue('{QUEUE}', by => null)");
    };
    let Order { by, is_strict, is_fair, blocks, weight } = order;
    let weights = match is_fair && by == By::T {
        true => format!(r#"'{{"0": {weight}}}'"#),
        false => "null".into(),
    };
    format!(
        "select jobs.order_queue('{QUEUE}', by => {}, strict => {is_strict}, fair => {is_fair}, on_discard => '{}', weights => {weights})",
        by.sql(),
        if blocks { "block" } else { "continue" },
    )
}
