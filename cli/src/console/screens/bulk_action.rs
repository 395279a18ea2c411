//! The bulk actions.

use maud::{Markup, html};
use serde::Deserialize;

use crate::console::filter::Filter;
use crate::console::parts::{self, Look};
use crate::console::visit::Visit;

/// A bulk action.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    Retry,
    Cancel,
    Delete,
}

impl Action {
    const ALL: [Self; 3] = [Self::Retry, Self::Cancel, Self::Delete];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Delete => "delete",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::Cancel => "Cancel",
            Self::Delete => "Delete",
        }
    }

    pub(super) fn function(self) -> String {
        format!("{}_many", self.name())
    }

    /// Whether it changes jobs in a state.
    pub(super) fn changes(self, state: &str) -> bool {
        match self {
            Self::Retry => !["available", "running"].contains(&state),
            Self::Cancel => !["completed", "cancelled", "discarded"].contains(&state),
            Self::Delete => state != "running",
        }
    }

    pub(super) fn means(self) -> &'static str {
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

    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Cancel => "cancelled or asked to stop",
            Self::Delete => "deleted",
        }
    }

    /// The parts of the filter that its function does not support.
    pub(super) fn cannot(self, filter: &Filter) -> Vec<&'static str> {
        let by_error = self == Self::Retry;
        // Exhaustive, so that no new filter is forgotten: more jobs than were shown would be
        // changed.
        let Filter {
            state,
            queue,
            kind,
            tag,
            worker,
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

/// Links to the bulk actions on all jobs of the list.
pub(crate) fn offers(visit: &Visit, filter: &Filter) -> Markup {
    let may: Vec<_> = Action::ALL
        .into_iter()
        .filter(|action| visit.may(&action.function()))
        .filter(|action| filter.state.is_empty() || action.changes(&filter.state))
        .collect();
    if may.is_empty() || filter.is_empty() {
        return html! {};
    }
    let can: Vec<_> = may
        .iter()
        .filter(|action| action.cannot(filter).is_empty())
        .collect();
    let cannot = may.iter().find(|action| !action.cannot(filter).is_empty());
    html! {
        div.actions {
            @for action in can {
                @let url = visit.url(&filter.path("/bulk", &[("do", action.name())]));
                (parts::link_button(&format!("{} all …", action.title()), &url, Look::Plain))
            }
            @if let Some(action) = cannot {
                p.quiet {
                    "jobs." (action.function()) " cannot filter by " (action.cannot(filter)[0])
                    ". Remove that filter to act on all jobs."
                }
            }
        }
    }
}
