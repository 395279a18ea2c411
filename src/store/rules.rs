//! Limits and orders as they are defined: what each covers, what its keys are made of, how many
//! jobs may run or start, and what is said of single keys. Sessions remember them
//! ([`super::config_cache`]).

use std::collections::HashMap;

use jobs_core::dimension::Dimension;
use jobs_core::interval::Interval;
use jobs_core::limit::{self, By};
use jobs_core::order::Weights;
use pgrx::pg_sys::{InvalidOid, Oid};

use super::columns::{list, record, set};
use super::spi::{Arg, Snapshot, Tuples, Value, big, plans, text};
use super::types::*;
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::name::Name;

/// How many jobs may run at a time, and how many may start within a period.
#[derive(Clone, Default, PartialEq)]
pub struct Setting {
    pub concurrency: Option<i32>,
    pub rate: Option<(i32, Interval)>,
}

impl Setting {
    /// How many jobs of a key can be about to start; `None`: it has no limit.
    fn most(&self) -> Option<usize> {
        let rate = self.rate.map(|(rate, _)| rate);
        self.concurrency.into_iter().chain(rate).min().map(|most| most as usize)
    }

    fn read(rows: &Tuples, row: usize) -> Setting {
        let (rate, period) = (rows.get(row, "rate"), rows.get(row, "rate_period"));
        Setting { concurrency: rows.get(row, "concurrency"), rate: rate.zip(period) }
    }

    /// Concurrency, rate and period.
    fn args(&self) -> [Arg; 3] {
        let (rate, period) = self.rate.unzip();
        [
            self.concurrency.and_then(|n| n.arg()),
            rate.and_then(|n| n.arg()),
            period.and_then(|p| p.arg()),
        ]
    }
}

/// The order of a queue by key.
pub struct Order {
    /// A job starts when the one of its key before it is final.
    pub is_strict: bool,
    /// A job that is discarded blocks its key.
    pub blocks: bool,
    /// What share of the starts each key has; `None`: there are no shares.
    pub weights: Option<Weights>,
}

/// Of a key in a fair order at most so many jobs are in the lane.
pub const WINDOW: usize = 100;

/// A limit, or the order of a queue, which is known as `order/QUEUE`.
pub struct Rule {
    pub name: String,
    /// What makes the key of a job; `None`: the limit is for all of its jobs together.
    pub by: Option<By>,
    /// `None`: all.
    pub queues: Option<Vec<String>>,
    /// `None`: all.
    pub kinds: Option<Vec<String>>,
    pub setting: Setting,
    pub is_paused: bool,
    /// What is said of single keys, by their gates ([`jobs_core::limit::gate`]).
    pub keys: HashMap<i64, KeyRule>,
    pub order: Option<Order>,
    per_cell: bool,
}

/// The name of a queue's order.
pub fn order_of(queue: &str) -> String {
    format!("order/{queue}")
}

/// What is said of a single key.
pub struct KeyRule {
    /// What holds instead of the limit's own setting.
    pub setting: Option<Setting>,
    pub is_paused: bool,
}

impl Rule {
    /// Whether jobs of a queue and kind are under it.
    pub fn covers(&self, queue: &str, kind: &str) -> bool {
        self.covers_queue(queue) && has(&self.kinds, kind)
    }

    pub fn covers_queue(&self, queue: &str) -> bool {
        has(&self.queues, queue)
    }

    /// Whether it is a strict order.
    pub fn is_strict(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.is_strict)
    }

    /// Whether jobs of a queue that is spread by this could be under it in several cells.
    pub fn spans_cells(&self, queue: &str, by: &Dimension) -> bool {
        let is_within = self.by.as_ref().is_some_and(|own| own.contains(by));
        self.covers_queue(queue) && !is_within && !self.per_cell
    }

    /// The gate of a key, and of a priority where each has shares for itself.
    pub fn gate(&self, key: &str, priority: i16) -> i64 {
        match &self.order {
            Some(order) if !order.is_strict => {
                limit::gate(&self.name, &format!("{key}\0{priority}"))
            }
            _ => limit::gate(&self.name, key),
        }
    }

    /// How many jobs of a gate can be about to start.
    pub fn most(&self, gate: i64) -> usize {
        match &self.order {
            Some(order) if order.is_strict => 1,
            Some(_) => WINDOW,
            None => self.setting_of(gate).most().unwrap_or(usize::MAX),
        }
    }

    /// Held jobs return to the lane of a gate when it has room for so many. Those of a fair order
    /// return many at a time: a key would have no turn while a few are not committed.
    pub fn least(&self) -> usize {
        match &self.order {
            Some(order) if !order.is_strict => WINDOW / 4,
            _ => 1,
        }
    }

    /// The periods within which starts count.
    pub fn periods(&self) -> impl Iterator<Item = Interval> {
        let of_keys = self.keys.values().filter_map(|key| key.setting.as_ref());
        let settings = std::iter::once(&self.setting).chain(of_keys);
        settings.filter_map(|setting| setting.rate.map(|(_, period)| period))
    }

    /// What holds for a key.
    pub fn setting_of(&self, gate: i64) -> &Setting {
        let own = self.keys.get(&gate).and_then(|key| key.setting.as_ref());
        own.unwrap_or(&self.setting)
    }

    /// Whether no job with this key may start.
    pub fn is_paused_for(&self, gate: i64) -> bool {
        self.is_paused || self.keys.get(&gate).is_some_and(|key| key.is_paused)
    }
}

fn has(list: &Option<Vec<String>>, name: &str) -> bool {
    list.as_ref().is_none_or(|list| list.iter().any(|other| other == name))
}

record! {
    /// A limit as it is set.
    Limit: "jobs.limit_rule" by name {
        by: OwnedJsonb,
        queues: Vec<String>,
        kinds: Vec<String>,
        concurrency: i32,
        rate: i32,
        rate_period: Interval,
        per_cell: bool,
        is_strict: bool,
        is_fair: bool,
        on_discard: String,
        weights: OwnedJsonb,
    }
}

static RULE: Name = Name::new(c"limit_rule");
static KEY_RULE: Name = Name::new(c"limit_key_rule");

pub(super) fn tables() -> [&'static Name; 2] {
    [&RULE, &KEY_RULE]
}

/// All limits, by name.
pub(super) fn all(seen: Snapshot) -> Vec<Rule> {
    // The previous version's tables have none.
    if RULE.oid() == InvalidOid {
        return Vec::new();
    }
    let mut rules = RULES.run_as_of(seen, &[], |rows| {
        (0..rows.len()).map(|row| rule(rows, row)).collect::<Vec<_>>()
    });
    if !rules.is_empty() {
        KEYS.run_as_of(seen, &[], |rows| {
            for row in 0..rows.len() {
                let name: String = rows.given(row, "name");
                if let Ok(at) = rules.binary_search_by(|rule| rule.name.cmp(&name)) {
                    rules[at].keys.insert(rows.given(row, "gate"), key_rule(rows, row));
                }
            }
        });
    }
    rules
}

fn rule(rows: &Tuples, row: usize) -> Rule {
    let by: Option<OwnedJsonb> = rows.get(row, "by");
    Rule {
        name: rows.given(row, "name"),
        by: by.map(|by| read_by(by.get())),
        queues: rows.get(row, "queues"),
        kinds: rows.get(row, "kinds"),
        setting: Setting::read(rows, row),
        is_paused: rows.given(row, "is_paused"),
        keys: HashMap::new(),
        order: order(rows, row),
        per_cell: rows.given(row, "per_cell"),
    }
}

fn order(rows: &Tuples, row: usize) -> Option<Order> {
    let (is_strict, is_fair) = (rows.get(row, "is_strict")?, rows.get::<bool>(row, "is_fair")?);
    let on_discard: Option<String> = rows.get(row, "on_discard");
    Some(Order {
        is_strict,
        blocks: on_discard.as_deref() == Some("block"),
        weights: is_fair.then(|| read_weights(rows, row)),
    })
}

fn read_weights(rows: &Tuples, row: usize) -> Weights {
    let (by, weights): (Option<OwnedJsonb>, Option<OwnedJsonb>) =
        (rows.get(row, "by"), rows.get(row, "weights"));
    let read = by.zip(weights).and_then(|(by, weights)| {
        let weights = weights.get().to_value("weights").ok()?;
        Weights::parse(&weights, &read_by(by.get())).ok()
    });
    read.unwrap_or_default()
}

fn key_rule(rows: &Tuples, row: usize) -> KeyRule {
    let is_override: bool = rows.given(row, "is_override");
    KeyRule {
        setting: is_override.then(|| Setting::read(rows, row)),
        is_paused: rows.given(row, "is_paused"),
    }
}

fn read_by(by: Jsonb) -> By {
    let by = by.to_value("by").ok();
    by.and_then(|by| By::parse(&by).ok())
        .expect("jobs.limit_rule has what jobs.define_limit has read")
}

/// A key of a limit.
pub struct Key {
    pub gate: i64,
    /// Its canonical text.
    pub text: String,
}

/// The settings of a limit; `None`: there is none of that name. No other session changes it, or
/// what is said of its keys, until this transaction ends.
pub fn lock(name: &str) -> Option<Limit> {
    LOCK.first(&[text(name)], Limit::read)
}

impl Limit {
    pub fn by(&self) -> Option<By> {
        self.by.as_ref().map(|by| read_by(by.get()))
    }
}

/// Sets a limit; whether it was otherwise. What is said of keys goes if they are made of something
/// else now.
pub fn define(name: &str, limit: &Limit) -> bool {
    let before = loop {
        let is_new = MAKE.execute(&[text(name)]) > 0;
        if let Some(before) = lock(name) {
            break (!is_new).then_some(before);
        }
    };
    if before.as_ref() == Some(limit) {
        return false;
    }
    if before.is_some_and(|before| before.by != limit.by) {
        DROP_KEYS.execute(&[text(name)]);
    }
    SET.execute(&limit.row(name)) > 0
}

/// Removes a limit and what is said of its keys; whether there was one.
pub fn drop(name: &str) -> bool {
    let is_dropped = DROP.execute(&[text(name)]) > 0;
    DROP_KEYS.execute(&[text(name)]);
    is_dropped
}

/// Sets what holds for a key of a locked limit; `None`: what holds for the others. Whether it was
/// otherwise.
pub fn set_key(name: &str, key: &Key, setting: Option<&Setting>) -> bool {
    let before = KEY.first(&[big(key.gate)], |rows| key_rule(rows, 0).setting).flatten();
    if before.as_ref() == setting {
        return false;
    }
    let [concurrency, rate, period] = setting.cloned().unwrap_or_default().args();
    let is_override = Some(setting.is_some().into());
    SET_KEY.execute(&[
        big(key.gate),
        text(name),
        json(key),
        is_override,
        concurrency,
        rate,
        period,
    ]);
    FORGET_KEY.execute(&[big(key.gate)]);
    true
}

/// Pauses a limit, or a key of a locked one; whether it was not paused before.
pub fn pause(name: &str, key: Option<&Key>, at: i64, by: &str, reason: Option<&str>) -> bool {
    let about = [big(at), text(by), reason.and_then(text)];
    let paused = match key {
        None => PAUSE.execute(&[&[text(name)], &about[..]].concat()),
        Some(key) => {
            PAUSE_KEY.execute(&[&[big(key.gate), text(name), json(key)], &about[..]].concat())
        }
    };
    paused > 0
}

/// Resumes a limit, or a key; whether it was paused.
pub fn resume(name: &str, key: Option<&Key>) -> bool {
    let Some(key) = key else {
        return RESUME.execute(&[text(name)]) > 0;
    };
    let is_resumed = RESUME_KEY.execute(&[big(key.gate)]) > 0;
    FORGET_KEY.execute(&[big(key.gate)]);
    is_resumed
}

fn json(key: &Key) -> Arg {
    Some(Jsonb::from_text(&key.text).datum())
}

plans! {
    RULES() =
        "SELECT r.name, r.by, r.queues, r.kinds, r.concurrency, r.rate, r.rate_period, r.paused_at IS NOT NULL AS is_paused, r.per_cell,
                r.is_strict, r.is_fair, r.on_discard, r.weights
           FROM jobs.limit_rule r ORDER BY r.name";
    KEYS() =
        "SELECT k.gate, k.name, k.is_override, k.concurrency, k.rate, k.rate_period, k.paused_at IS NOT NULL AS is_paused
           FROM jobs.limit_key_rule k";
    KEY(INT8) =
        "SELECT k.is_override, k.concurrency, k.rate, k.rate_period, k.paused_at IS NOT NULL AS is_paused
           FROM jobs.limit_key_rule k WHERE k.gate = $1";
    LOCK(TEXT) => Limit::select() + " FOR UPDATE";
    MAKE(TEXT) = "INSERT INTO jobs.limit_rule (name, per_cell) VALUES ($1, false) ON CONFLICT DO NOTHING";
    SET[Limit::TYPES] =
        "UPDATE jobs.limit_rule {set} WHERE name = $1",
        set = set(Limit::SET);
    DROP(TEXT) = "DELETE FROM jobs.limit_rule WHERE name = $1";
    DROP_KEYS(TEXT) = "DELETE FROM jobs.limit_key_rule WHERE name = $1";
    SET_KEY(INT8, TEXT, JSONB, BOOL, INT4, INT4, SPAN) =
        "INSERT INTO jobs.limit_key_rule (gate, name, key, is_override, concurrency, rate, rate_period) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (gate) DO UPDATE SET (is_override, concurrency, rate, rate_period) = ROW ($4, $5, $6, $7)";
    PAUSE(TEXT, AT, TEXT, TEXT) =
        "UPDATE jobs.limit_rule SET paused_at = $2, paused_by = $3, pause_reason = $4 WHERE name = $1 AND paused_at IS NULL";
    PAUSE_KEY(INT8, TEXT, JSONB, AT, TEXT, TEXT) =
        "INSERT INTO jobs.limit_key_rule AS k (gate, name, key, is_override, paused_at, paused_by, pause_reason)
         VALUES ($1, $2, $3, false, $4, $5, $6)
         ON CONFLICT (gate) DO UPDATE SET paused_at = $4, paused_by = $5, pause_reason = $6 WHERE k.paused_at IS NULL";
    RESUME(TEXT) =
        "UPDATE jobs.limit_rule SET paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE name = $1 AND paused_at IS NOT NULL";
    RESUME_KEY(INT8) =
        "UPDATE jobs.limit_key_rule SET paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE gate = $1 AND paused_at IS NOT NULL";
    FORGET_KEY(INT8) = "DELETE FROM jobs.limit_key_rule WHERE gate = $1 AND NOT is_override AND paused_at IS NULL";
}
