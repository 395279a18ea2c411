//! What can be done to many jobs at once.

use maud::{Markup, html};
use serde::Deserialize;

use crate::console::filter::Filter;
use crate::console::parts::{self, Look};
use crate::console::visit::Visit;

/// What is done to many jobs.
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

    /// The states that it changes.
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
                "They become available now, and are granted an attempt more if none is left."
            }
            Self::Cancel => "They will not run. The workers of those that run are asked to stop.",
            Self::Delete => "They are gone for good, with their outputs and errors.",
        }
    }

    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Retry => "available again",
            Self::Cancel => "cancelled, or their workers asked to stop",
            Self::Delete => "deleted",
        }
    }

    /// What the filter asks for that its function cannot.
    pub(super) fn cannot(self, filter: &Filter) -> Vec<&'static str> {
        let by_error = self == Self::Retry;
        // All of them, so that a filter that comes anew is not forgotten: more jobs than were
        // shown would be changed.
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

/// Links to what can be done to all jobs of the list.
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
                    "jobs." (action.function()) " finds no jobs by "
                    (action.cannot(filter)[0]) ": without that filter all of them can be changed at once."
                }
            }
        }
    }
}
