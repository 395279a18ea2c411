//! Retries, cancels or deletes the jobs of a filter. First it is shown what and how many.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tokio_postgres::types::ToSql;

use super::job_actions::reset;
use super::jobs_find::Sample;
use super::jobs_list::looked;
use super::{jobs_find, jobs_table};
use crate::bulk::{Action, MOST, Meant};
use crate::console::fields::{given, hidden, reason};
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Only, Query, Visit};
use crate::failed::Invalid;
use crate::filter::Filter;

/// How many of them are shown.
const SHOWN: usize = 10;
/// How long a search of all jobs may take. Among millions, jobs of a kind or with a tag are not
/// found at once, neither here nor by the call itself.
const WHOLE: Duration = Duration::from_secs(20);

/// The jobs and the action, the same for the preview and for the call.
#[derive(Deserialize)]
pub(crate) struct Bulk {
    r#do: Action,
    /// Whether all jobs are searched, however long that takes.
    #[serde(default)]
    whole: String,
    #[serde(flatten)]
    filter: Filter,
}

/// The confirmed preview.
#[derive(Deserialize)]
pub(crate) struct Confirmed {
    /// The query of the preview, encoded, since a browser changes line breaks in a field of a form.
    of: String,
    /// How many jobs it showed, or the chosen maximum.
    shown: i64,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    reset: String,
}

impl Bulk {
    fn meant(&self) -> Result<Meant<'_>, Invalid> {
        Meant::new(self.r#do, &self.filter)
    }
}

impl Meant<'_> {
    /// The jobs to change, and one more if there are more.
    async fn look(&self, visit: &Visit, whole: bool) -> Result<Sample, Problem> {
        let failed = jobs_find::failed(visit, self.filter).await?;
        let is_few = failed.is_some();
        let (condition, most) = (self.condition(failed)?, MOST as usize + 1);
        match whole {
            true => jobs_find::oldest(visit, condition, most, WHOLE).await,
            false => jobs_find::sample(visit, condition, &self.states, is_few, most).await,
        }
    }
}

/// The first of the jobs that were found.
async fn shown(visit: &Visit, found: &Sample) -> Result<Vec<jobs_table::Row>, Problem> {
    let ids: Vec<i64> = found.jobs.iter().take(SHOWN).map(|job| job.id).collect();
    let mut rows = jobs_table::rows(visit, &ids).await?;
    if found.is_oldest {
        rows.reverse();
    }
    Ok(rows)
}

pub(crate) async fn preview(visit: Visit, Query(asked): Query<Bulk>) -> Result<Response, Problem> {
    let meant = asked.meant()?;
    let (action, filter) = (meant.action, meant.filter);
    if !visit.may(&action.function()) {
        return Err(Problem::forbidden(
            format!("This role may not call jobs.{}.", action.function()),
            "jobs.grant_operator and jobs.grant_admin allow it.",
        ));
    }
    let found = meant.look(&visit, !asked.whole.is_empty()).await?;
    let rows = shown(&visit, &found).await?;
    let back = visit.url(&filter.path("/jobs", &[]));
    let title = format!("{} jobs", action.title());
    let which = if found.is_oldest { "Oldest jobs" } else { "Newest jobs" };
    let main = html! {
        p.lead { (action.title()) " " (filter.in_words()) "." }
        @if let Some(id) = found.looked_to {
            (looked(&visit, "down to", id, &asked.path(&visit, filter, true), "Search all").await?)
        }
        @if !found.jobs.is_empty() {
            (how_many(&visit, &asked, &found))
            p { (action.means()) }
            (confirmation(&visit, &asked, &found))
            h2 { (which) }
            (jobs_table::table(&visit, which, &rows))
        } @else if found.looked_to.is_none() {
            (parts::empty(&format!("Nothing to {}", action.name()), html! {
                a href=(back) { "Back to the list" }
            }))
        }
    };
    Ok(visit.still(Screen::Jobs, &title, main))
}

impl Bulk {
    /// The address of the preview with another filter, quick or of all jobs.
    fn path(&self, visit: &Visit, filter: &Filter, whole: bool) -> String {
        let whole = if whole { "yes" } else { "" };
        visit.url(&filter.path("/bulk", &[("do", self.r#do.name()), ("whole", whole)]))
    }
}

fn how_many(visit: &Visit, asked: &Bulk, found: &Sample) -> Markup {
    let count = found.jobs.len() as i64;
    let only = |state: &str| {
        let filter = Filter { state: state.into(), ..asked.filter.clone() };
        asked.path(visit, &filter, false)
    };
    let mut states: BTreeMap<&str, i64> = BTreeMap::new();
    for job in &found.jobs {
        *states.entry(&job.state).or_default() += 1;
    }
    html! {
        @if count > MOST {
            p.count {
                strong { "More than " (parts::number(MOST)) " jobs" }
                ": this applies to the oldest " (parts::number(MOST)) ". Repeat it for the rest."
                @if !found.is_oldest { " " a href=(asked.path(visit, &asked.filter, true)) { "Show the oldest" } }
            }
        } @else {
            p.count {
                @if found.looked_to.is_some() { "At least " }
                strong { (parts::plural(count, "job")) }
                @if states.len() > 1 {
                    ": "
                    @for (n, (state, count)) in states.iter().enumerate() {
                        @if n > 0 { ", " }
                        a href=(only(state)) title="Only these" { (parts::number(*count)) " " (state) }
                    }
                }
            }
        }
    }
}

fn confirmation(visit: &Visit, asked: &Bulk, found: &Sample) -> Markup {
    let action = asked.r#do;
    let count = found.jobs.len() as i64;
    let which = match count {
        _ if found.looked_to.is_some() => "the oldest jobs".into(),
        1 => "this job".into(),
        n if n > MOST => "the oldest 10,000 jobs".into(),
        n => format!("these {}", parts::plural(n, "job")),
    };
    let label = format!("{} {which}", action.title());
    let look = match action {
        Action::Retry => Look::Primary,
        Action::Cancel | Action::Delete => Look::Danger,
    };
    let of = asked.filter.path("", &[("do", action.name())]);
    let fields = html! {
        (hidden("of", of.trim_start_matches('?')))
        @if found.looked_to.is_some() {
            (at_most(count))
        } @else {
            (hidden("shown", &count.min(MOST).to_string()))
        }
        @if action == Action::Retry { (reset()) }
        (reason())
        div.actions {
            (parts::button(&label, look))
            (parts::link_button("Back", &visit.url(&asked.filter.path("/jobs", &[])), Look::Plain))
        }
    };
    html! { div.card { (visit.form("/bulk", fields)) } }
}

/// The maximum, where there may be more jobs than were found. Its default is the number found.
fn at_most(count: i64) -> Markup {
    html! {
        label.field {
            "Max jobs"
            input type="number" name="shown" min="1" max=(MOST) value=(count) required;
        }
    }
}

pub(crate) async fn act(change: Change<Confirmed>) -> Result<Response, Problem> {
    let form = &change.form;
    let asked: Bulk = serde_urlencoded::from_str(&form.of).map_err(|_| {
        Problem::bad_input("The form is incomplete.", "Reload the list and try again.")
    })?;
    let meant = asked.meant()?;
    let action = meant.action;
    // Never more than were shown, even if there are new ones.
    let most = form.shown.clamp(1, MOST) as i32;
    let (sql, of) = meant.call(most, !form.reset.is_empty(), given(&form.reason).map(Into::into));
    let of: Vec<_> = of.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
    let Only(done) = change.call(&sql, &of).await?;
    let message = match done {
        0 => "Nothing changed: these jobs are no longer in a state that this action applies to."
            .into(),
        MOST => format!("{} {}. There may be more.", parts::plural(MOST, "job"), action.done()),
        n => format!("{} {}.", parts::plural(n, "job"), action.done()),
    };
    Ok(change.done(&asked.filter.path("/jobs", &[]), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Bulk {
        serde_urlencoded::from_str(query).expect("a query")
    }

    #[test]
    fn what_is_shown_is_what_is_done() {
        let asked = asked("do=retry&kind=k&error=100%25_%5C");
        let meant = asked.meant().expect("it can be");
        assert_eq!(meant.error_like.as_deref(), Some(r"%100\%\_\\%"));
        assert!(!meant.states.contains(&"completed") && !meant.states.contains(&"running"));
        let condition = meant.condition(None).expect("it can be");
        let expected = "true and kind = $1 and last_error like $2 and state in \
                        ('scheduled', 'pending', 'retryable', 'cancelled', 'discarded')";
        assert_eq!(condition.sql, expected);
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let asked = asked("do=retry&kind=+k%0A&queue=+&tag=");
        let meant = asked.meant().expect("it can be");
        assert_eq!(meant.names(), [Some(" "), Some(" k\n"), None]);
        let condition = meant.condition(None).expect("it can be");
        assert!(condition.sql.starts_with("true and queue = $1 and kind = $2 and state in"));
        // What the form brings back is the same.
        let of = asked.filter.path("", &[("do", "retry")]);
        let back: Bulk = serde_urlencoded::from_str(of.trim_start_matches('?')).expect("a query");
        assert!(back.filter == asked.filter);
        assert!(!of.contains(['\n', ' ']), "{of}");
    }

    #[test]
    fn a_state_that_it_does_not_change_has_no_jobs() {
        let asked = asked("do=delete&state=running");
        let meant = asked.meant().expect("it can be");
        assert!(meant.condition(None).is_ok_and(|condition| condition.sql.ends_with("and false")));
    }

    #[test]
    fn what_the_functions_cannot_is_refused() {
        for query in [
            "do=cancel",
            "do=cancel&error=x",
            "do=cancel&error_like=x",
            "do=retry&error=x&error_like=x",
            "do=delete&kind=k&failed_after=2026-01-01",
            "do=retry&worker=w",
            "do=retry&args=1",
            "do=retry&kind=k&before=2026-01-01T00:00",
        ] {
            assert!(asked(query).meant().is_err(), "{query}");
        }
    }
}
