//! The filter of jobs, shared by commands and the console.

use chrono::{DateTime, Utc};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::ToSql;

use crate::failed::Invalid;
use crate::times;

pub(crate) const STATES: [&str; 8] = [
    "available",
    "scheduled",
    "pending",
    "running",
    "retryable",
    "completed",
    "cancelled",
    "discarded",
];

/// Empty fields match any job. Texts are as typed or as in a URL.
#[derive(Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Filter {
    pub(crate) state: String,
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) tag: String,
    pub(crate) worker: String,
    /// JSON that args contain.
    pub(crate) args: String,
    /// Text that the latest error contains.
    pub(crate) error: String,
    /// A LIKE pattern for the latest error, instead of such a text.
    pub(crate) error_like: String,
    /// The latest error came after.
    pub(crate) failed_after: String,
    /// Inserted at or after.
    pub(crate) after: String,
    /// Inserted before.
    pub(crate) before: String,
}

/// The value of a parameter of a statement.
pub(crate) type Value = Box<dyn ToSql + Send + Sync>;

/// A condition under construction, with the values of its parameters.
pub(crate) struct Condition {
    pub(crate) sql: String,
    pub(crate) of: Vec<Value>,
}

impl Condition {
    /// Any job.
    pub(crate) fn new() -> Self {
        Self { sql: "true".into(), of: Vec::new() }
    }

    /// Adds a condition in which ? stands for the value.
    pub(crate) fn and(&mut self, sql: &str, value: impl ToSql + Send + Sync + 'static) {
        self.of.push(Box::new(value));
        let parameter = format!("${}", self.of.len());
        self.sql += " and ";
        self.sql += &sql.replace('?', &parameter);
    }

    pub(crate) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.of.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The state as a constant: the planner excludes other states only if it knows the state.
    pub(crate) fn state(&self) -> Result<Option<&'static str>, Invalid> {
        let known = STATES.into_iter().find(|state| *state == self.state);
        if known.is_none() && !self.state.is_empty() {
            let message = format!("Unknown state {:?}.", self.state);
            return Err(Invalid::new(message, format!("States are {}.", STATES.join(", "))));
        }
        Ok(known)
    }

    /// Whether it asks for an error.
    pub(crate) fn has_error(&self) -> bool {
        [&self.error, &self.error_like, &self.failed_after].iter().any(|value| !value.is_empty())
    }

    /// The LIKE pattern of the latest error, for the list and for `retry_many`.
    pub(crate) fn error_like(&self) -> Result<Option<String>, Invalid> {
        match (&*self.error, &*self.error_like) {
            ("", "") => Ok(None),
            (text, "") => Ok(Some(format!("%{}%", like_literal(text)))),
            ("", pattern) => Ok(Some(pattern.into())),
            _ => {
                Err(Invalid::new("The address has both error and error_like.", "Use one of them."))
            }
        }
    }

    pub(crate) fn failed_after(&self) -> Result<Option<DateTime<Utc>>, Invalid> {
        times::typed("failed after", &self.failed_after)
    }

    pub(crate) fn after(&self) -> Result<Option<DateTime<Utc>>, Invalid> {
        times::typed("inserted from", &self.after)
    }

    pub(crate) fn before(&self) -> Result<Option<DateTime<Utc>>, Invalid> {
        times::typed("inserted before", &self.before)
    }

    fn args(&self) -> Result<Option<String>, Invalid> {
        if self.args.is_empty() {
            return Ok(None);
        }
        match serde_json::from_str::<IgnoredAny>(&self.args) {
            Ok(_) => Ok(Some(self.args.clone())),
            Err(error) => Err(Invalid::new(
                format!("Invalid JSON for args: {error}."),
                "Enter a part of the args, such as {\"to\": \"ada@example.com\"}.",
            )),
        }
    }

    /// The condition on rows of jobs.jobs.
    pub(crate) fn whole_condition(&self) -> Result<Condition, Invalid> {
        let mut condition = self.condition()?;
        if let Some(state) = self.state()? {
            condition.sql += &format!(" and state = '{state}'");
        }
        Ok(condition)
    }

    /// The condition on rows of jobs.jobs, but for the state.
    pub(crate) fn condition(&self) -> Result<Condition, Invalid> {
        let mut all = Condition::new();
        for (sql, value) in [
            ("queue = ?", &self.queue),
            ("kind = ?", &self.kind),
            ("? = any(tags)", &self.tag),
            ("worker = ?", &self.worker),
        ] {
            if !value.is_empty() {
                all.and(sql, value.clone());
            }
        }
        if let Some(args) = self.args()? {
            all.and("args @> ?::text::jsonb", args);
        }
        if let Some(pattern) = self.error_like()? {
            all.and("last_error like ?", pattern);
        }
        for (sql, time) in [
            ("last_error_at > ?", self.failed_after()?),
            ("created_at >= ?", self.after()?),
            ("created_at < ?", self.before()?),
        ] {
            if let Some(time) = time {
                all.and(sql, time);
            }
        }
        Ok(all)
    }
}

/// A LIKE pattern that only this text matches.
pub(crate) fn like_literal(text: &str) -> String {
    text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_a_parameter() {
        let evil = "' or true; --";
        let filter = Filter {
            queue: evil.into(),
            kind: evil.into(),
            tag: evil.into(),
            worker: evil.into(),
            error: evil.into(),
            ..Filter::default()
        };
        let condition = filter.condition().expect("texts");
        assert!(!condition.sql.contains('\''), "{}", condition.sql);
        assert_eq!(condition.of.len(), 5);
        assert!(condition.sql.ends_with("and last_error like $5"), "{}", condition.sql);
    }

    #[test]
    fn only_states_are_states() {
        let of = |state: &str| Filter { state: state.into(), ..Filter::default() };
        assert!(of("running' or true").state().is_err());
        assert!(matches!(of("running").state(), Ok(Some("running"))));
        assert!(matches!(of("").state(), Ok(None)));
    }
}
