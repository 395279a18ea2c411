//! Which jobs are meant: the same for the list, its links, and what is done to many jobs at once.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::ToSql;

use super::parts::{self, STATES};
use super::problem::Problem;
use super::room::text;
use super::times;

/// What is empty is not asked for. Texts as they were typed or are in a URL.
#[derive(Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Filter {
    pub(crate) state: String,
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) tag: String,
    pub(crate) worker: String,
    /// Text that the latest error contains.
    pub(crate) error: String,
    /// A LIKE pattern of the latest error, in place of such a text.
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

/// A condition that grows, and the values of its parameters.
pub(crate) struct Condition {
    pub(crate) sql: String,
    pub(crate) of: Vec<Value>,
}

impl Condition {
    /// Any job.
    pub(crate) fn new() -> Self {
        Self {
            sql: "true".into(),
            of: Vec::new(),
        }
    }

    /// Where the text has a ? there is the value.
    pub(crate) fn and(&mut self, sql: &str, value: impl ToSql + Send + Sync + 'static) {
        self.of.push(Box::new(value));
        let parameter = format!("${}", self.of.len());
        self.sql += " and ";
        self.sql += &sql.replace('?', &parameter);
    }

    pub(crate) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.of
            .iter()
            .map(|value| &**value as &(dyn ToSql + Sync))
            .collect()
    }
}

impl Filter {
    /// A path with this filter, and what else its query has.
    pub(crate) fn path(&self, path: &str, more: &[(&str, &str)]) -> String {
        parts::link(&parts::link(path, self), more)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One of the eight, as a constant: the planner leaves out what is in another state only where
    /// it knows the state.
    pub(crate) fn state(&self) -> Result<Option<&'static str>, Problem> {
        let known = STATES.into_iter().find(|state| *state == self.state);
        if known.is_none() && !self.state.is_empty() {
            let message = format!("There is no state {:?}.", self.state);
            return Err(Problem::bad_input(
                message,
                format!("States are {}.", STATES.join(", ")),
            ));
        }
        Ok(known)
    }

    /// Whether it asks for an error.
    pub(crate) fn has_error(&self) -> bool {
        [&self.error, &self.error_like, &self.failed_after]
            .iter()
            .any(|value| !value.is_empty())
    }

    /// The LIKE pattern of the latest error, for the list and for `retry_many`.
    pub(crate) fn error_like(&self) -> Result<Option<String>, Problem> {
        match (&*self.error, &*self.error_like) {
            ("", "") => Ok(None),
            (text, "") => Ok(Some(format!("%{}%", like_literal(text)))),
            ("", pattern) => Ok(Some(pattern.into())),
            _ => Err(Problem::bad_input(
                "The address has both a text and a pattern of the latest error.",
                "Keep one of them.",
            )),
        }
    }

    pub(crate) fn failed_after(&self) -> Result<Option<DateTime<Utc>>, Problem> {
        times::typed("failed after", &self.failed_after)
    }

    pub(crate) fn after(&self) -> Result<Option<DateTime<Utc>>, Problem> {
        times::typed("inserted from", &self.after)
    }

    pub(crate) fn before(&self) -> Result<Option<DateTime<Utc>>, Problem> {
        times::typed("inserted before", &self.before)
    }

    /// The condition on rows of jobs.jobs, but for the state.
    pub(crate) fn condition(&self) -> Result<Condition, Problem> {
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

    /// What it asks for, in words: "jobs of kind k in queue q".
    pub(crate) fn in_words(&self) -> Markup {
        let said = |before: &'static str, value: &str, after: &'static str| {
            let value: Cow<str> = value.into();
            html! { @if !value.is_empty() { (before) strong { (text(&value)) } (after) } }
        };
        html! {
            @if !self.state.is_empty() { strong { (self.state) } " " }
            "jobs"
            (said(" of kind ", &self.kind, ""))
            (said(" in queue ", &self.queue, ""))
            (said(" with tag ", &self.tag, ""))
            (said(" that worker ", &self.worker, " has or had"))
            (said(" whose latest error has ", &self.error, " in it"))
            (said(" whose latest error is like ", &self.error_like, ""))
            (said(" that failed last after ", &self.failed_after, ""))
            (said(" inserted from ", &self.after, " on"))
            (said(" inserted before ", &self.before, ""))
        }
    }
}

/// A LIKE pattern that only this text matches.
pub(crate) fn like_literal(text: &str) -> String {
    let mut pattern = String::new();
    for character in text.chars() {
        if "\\%_".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
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
        assert!(
            condition.sql.ends_with("and last_error like $5"),
            "{}",
            condition.sql
        );
    }

    #[test]
    fn only_states_are_states() {
        let of = |state: &str| Filter {
            state: state.into(),
            ..Filter::default()
        };
        assert!(of("running' or true").state().is_err());
        assert!(matches!(of("running").state(), Ok(Some("running"))));
        assert!(matches!(of("").state(), Ok(None)));
    }

    #[test]
    fn a_link_has_the_whole_filter() {
        let filter = Filter {
            kind: "a&b".into(),
            error: "100 %".into(),
            ..Filter::default()
        };
        let path = filter.path("/jobs", &[("from", "7")]);
        assert_eq!(path, "/jobs?kind=a%26b&error=100+%25&from=7");
    }
}
