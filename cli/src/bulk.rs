//! The actions on the jobs of a filter, as the functions of the extension have them.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::failed::Invalid;
use crate::filter::{Condition, Filter, STATES, Value};

/// A bulk action.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Retry,
    Cancel,
    Delete,
}

impl Action {
    pub(crate) const ALL: [Self; 3] = [Self::Retry, Self::Cancel, Self::Delete];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::Cancel => "Cancel",
            Self::Delete => "Delete",
        }
    }

    pub(crate) fn function(self) -> String {
        format!("{}_many", self.name())
    }

    /// Whether it changes jobs in a state.
    pub(crate) fn changes(self, state: &str) -> bool {
        match self {
            Self::Retry => !["available", "running"].contains(&state),
            Self::Cancel => !["completed", "cancelled", "discarded"].contains(&state),
            Self::Delete => state != "running",
        }
    }

    pub(crate) fn means(self) -> &'static str {
        match self {
            Self::Retry => {
                "Makes these jobs available now, with one more attempt where none is left."
            }
            Self::Cancel => "Cancels waiting jobs and asks running jobs to stop.",
            Self::Delete => {
                "Deletes these jobs with their outputs and errors. This cannot be undone."
            }
        }
    }

    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Cancel => "cancelled or asked to stop",
            Self::Delete => "deleted",
        }
    }

    /// The parts of the filter that its function does not support.
    pub(crate) fn cannot(self, filter: &Filter) -> Vec<&'static str> {
        let by_error = self == Self::Retry;
        // Exhaustive, so that no new filter is forgotten: more jobs than were shown would be
        // changed.
        let Filter {
            state,
            queue,
            kind,
            tag,
            worker,
            args,
            error,
            error_like,
            failed_after,
            after,
            before,
        } = filter;
        [
            ("state", state, true),
            ("queue", queue, true),
            ("kind", kind, true),
            ("tag", tag, true),
            ("worker", worker, false),
            ("args", args, false),
            ("time of insertion", after, false),
            ("time of insertion", before, false),
            ("latest error", error, by_error),
            ("latest error", error_like, by_error),
            ("latest error", failed_after, by_error),
        ]
        .into_iter()
        .filter(|(_, value, can)| !value.is_empty() && !can)
        .map(|(name, ..)| name)
        .collect()
    }
}

/// How many jobs a call changes at most: the limit of the functions.
pub(crate) const MOST: i64 = 10_000;

/// A filter that the function of an action supports.
pub(crate) struct Meant<'a> {
    pub(crate) action: Action,
    pub(crate) filter: &'a Filter,
    /// The states of the jobs.
    pub(crate) states: Vec<&'static str>,
    pub(crate) error_like: Option<String>,
    failed_after: Option<DateTime<Utc>>,
}

impl<'a> Meant<'a> {
    pub(crate) fn new(action: Action, filter: &'a Filter) -> Result<Self, Invalid> {
        if filter.is_empty() {
            return Err(Invalid::new("No filter is set.", "Filter the jobs first."));
        }
        if let Some(what) = action.cannot(filter).first() {
            let message = format!("jobs.{} cannot filter by {what}.", action.function());
            return Err(Invalid::new(message, "Remove that filter."));
        }
        // A filter by error means jobs that have not completed since, as in the functions.
        let by_error = filter.has_error();
        let states = match filter.state()? {
            Some(state) => vec![state],
            None => STATES.into_iter().filter(|state| !by_error || *state != "completed").collect(),
        };
        Ok(Meant {
            action,
            filter,
            states: states.into_iter().filter(|state| action.changes(state)).collect(),
            error_like: filter.error_like()?,
            failed_after: filter.failed_after()?,
        })
    }

    /// Queue, kind and tag; none means any. A name may have spaces around it, or consist of spaces.
    pub(crate) fn names(&self) -> [Option<&str>; 3] {
        let Filter { queue, kind, tag, .. } = self.filter;
        [queue, kind, tag].map(|name| (!name.is_empty()).then_some(&**name))
    }

    /// The jobs that the function finds, `among` these if given.
    pub(crate) fn condition(&self, among: Option<Vec<i64>>) -> Result<Condition, Invalid> {
        let mut condition = self.filter.condition()?;
        if let Some(ids) = among {
            condition.and("id = any(?)", ids);
        }
        // Constants of ours, so that the planner excludes the other states.
        let states: Vec<_> = self.states.iter().map(|state| format!("'{state}'")).collect();
        condition.sql += &match &states[..] {
            [] => " and false".into(),
            [state] => format!(" and state = {state}"),
            states => format!(" and state in ({})", states.join(", ")),
        };
        if self.action == Action::Cancel {
            condition.sql += " and cancel_requested_at is null";
        }
        Ok(condition)
    }

    /// The call that changes at most so many of them, and the values of its parameters. `reset` is
    /// of retries alone.
    pub(crate) fn call(
        &self,
        most: i32,
        reset: bool,
        reason: Option<String>,
    ) -> (String, Vec<Value>) {
        let mut arguments =
            "queue => $1, kind => $2, tag => $3, states => $4::text[]::jobs.state[],
        max_jobs => $5, reason => $6"
                .to_owned();
        let [queue, kind, tag] = self.names().map(|name| name.map(str::to_owned));
        let mut of: Vec<Value> = vec![
            Box::new(queue),
            Box::new(kind),
            Box::new(tag),
            Box::new(self.states.clone()),
            Box::new(most),
            Box::new(reason),
        ];
        if self.action == Action::Retry {
            arguments += ", reset => $7, error_like => $8, failed_after => $9";
            of.push(Box::new(reset));
            of.push(Box::new(self.error_like.clone()));
            of.push(Box::new(self.failed_after));
        }
        (format!("select jobs.{}({arguments})", self.action.function()), of)
    }
}
