//! Retries, cancels or deletes the jobs of a filter. First it is shown what and how many.

use std::time::Duration;

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use tokio_postgres::types::ToSql;

use super::bulk_action::Action;
use super::job_actions::reset;
use super::{jobs_find, jobs_table};
use crate::console::fields::{given, hidden, reason};
use crate::console::filter::{Condition, Filter};
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Only, Query, Visit};

/// How many jobs a call is about at most: the most that the functions take.
const MOST: i64 = 10_000;
/// How many of them are shown.
const OLDEST: usize = 10;
/// How long a preview may take. Among millions of jobs, those of a kind or with a tag are not found
/// at once, neither here nor by the call itself.
const PREVIEW: Duration = Duration::from_secs(20);

/// Which jobs, and what: the same for the preview and for what is done then.
#[derive(Deserialize)]
pub(crate) struct Bulk {
    r#do: Action,
    #[serde(flatten)]
    filter: Filter,
}

/// What somebody has seen, and wants done.
#[derive(Deserialize)]
pub(crate) struct Confirmed {
    /// The query of the preview. A browser changes line breaks in a field of a form, and these are
    /// encoded.
    of: String,
    /// How many jobs it showed.
    shown: i64,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    reset: String,
}

/// A filter that the function of an action can have.
struct Meant<'a> {
    action: Action,
    filter: &'a Filter,
    /// In which of these they are.
    states: Vec<&'static str>,
    error_like: Option<String>,
    failed_after: Option<DateTime<Utc>>,
}

impl Bulk {
    fn meant(&self) -> Result<Meant<'_>, Problem> {
        let (action, filter) = (self.r#do, &self.filter);
        if filter.is_empty() {
            return Err(Problem::bad_input(
                "That would be all jobs.",
                "Choose which ones first.",
            ));
        }
        if let Some(what) = action.cannot(filter).first() {
            let message = format!("jobs.{} finds no jobs by {what}.", action.function());
            return Err(Problem::bad_input(message, "Take that filter away."));
        }
        // Who asks for errors means jobs that did not get over them, as the functions do.
        let by_error = !filter.error.is_empty() || !filter.failed_after.is_empty();
        let states = match filter.state()? {
            Some(state) => vec![state],
            None => parts::STATES
                .into_iter()
                .filter(|state| !by_error || *state != "completed")
                .collect(),
        };
        Ok(Meant {
            action,
            filter,
            states: states
                .into_iter()
                .filter(|state| action.changes(state))
                .collect(),
            error_like: filter.error_like(),
            failed_after: filter.failed_after()?,
        })
    }
}

/// Of the jobs that are taken those in one state.
#[derive(Deserialize)]
struct InState {
    state: String,
    n: i64,
    oldest: Vec<i64>,
}

impl Meant<'_> {
    /// Queue, kind and tag; none: any. A name may have spaces around it, or be nothing else.
    fn names(&self) -> [Option<&str>; 3] {
        let Filter {
            queue, kind, tag, ..
        } = self.filter;
        [queue, kind, tag].map(|name| (!name.is_empty()).then_some(&**name))
    }

    /// The jobs that the function finds; `among`: they are among these.
    fn condition(&self, among: Option<Vec<i64>>) -> Result<Condition, Problem> {
        let mut condition = self.filter.condition()?;
        if let Some(ids) = among {
            condition.and("id = any(?)", ids);
        }
        // Constants of ours, so that the planner leaves out the other states.
        let states: Vec<_> = self
            .states
            .iter()
            .map(|state| format!("'{state}'"))
            .collect();
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

    /// The jobs that are taken, and one more if there are more, by state. It reads what the call
    /// itself reads.
    async fn look(&self, visit: &Visit) -> Result<Vec<InState>, Problem> {
        let condition = self.condition(jobs_find::failed(visit, self.filter).await?)?;
        let sql = format!(
            "select state, count(*) as n, (array_agg(id order by id))[1:{OLDEST}] as oldest
               from (select id, state from jobs.jobs where {} order by id limit {}) j
              group by state order by state",
            condition.sql,
            MOST + 1
        );
        visit.rows_within(PREVIEW, &sql, &condition.values()).await
    }
}

/// The oldest jobs of all states.
async fn oldest(visit: &Visit, found: &[InState]) -> Result<Vec<jobs_table::Row>, Problem> {
    let mut ids: Vec<i64> = found
        .iter()
        .flat_map(|state| &state.oldest)
        .copied()
        .collect();
    ids.sort_unstable();
    ids.truncate(OLDEST);
    let mut rows = jobs_table::rows(visit, &ids).await?;
    rows.reverse();
    Ok(rows)
}

pub(crate) async fn preview(visit: Visit, Query(asked): Query<Bulk>) -> Result<Response, Problem> {
    let meant = asked.meant()?;
    let (action, filter) = (meant.action, meant.filter);
    if !visit.may(&action.function()) {
        return Err(Problem::forbidden(
            format!("This role may not call jobs.{}.", action.function()),
            "jobs.grant_operator and jobs.grant_admin let a role manage many jobs at once.",
        ));
    }
    let counts = meant.look(&visit).await?;
    let count: i64 = counts.iter().map(|count| count.n).sum();
    let oldest = oldest(&visit, &counts).await?;
    let back = visit.url(&filter.path("/jobs", &[]));
    let title = format!("{} jobs", action.title());
    let main = html! {
        p.lead { (action.title()) " " (filter.in_words()) "." }
        @if count == 0 {
            (parts::empty("There is no such job", html! {
                "None of them is in a state that this changes: " (meant.states.join(", ")) ". "
                a href=(back) { "Back to the list" } "."
            }))
        } @else {
            (how_many(&visit, &asked, &counts, count))
            p { (action.means()) }
            (confirmation(&visit, &asked, count))
            h2 { "The oldest " (oldest.len()) }
            (jobs_table::table(&visit, "The oldest of them", &oldest))
        }
    };
    Ok(visit.still(Screen::Jobs, &title, main))
}

fn how_many(visit: &Visit, asked: &Bulk, counts: &[InState], count: i64) -> Markup {
    let only = |state: &str| {
        let filter = Filter {
            state: state.into(),
            ..asked.filter.clone()
        };
        visit.url(&filter.path("/bulk", &[("do", asked.r#do.name())]))
    };
    html! {
        @if count > MOST {
            p.count {
                strong { "More than " (parts::number(MOST)) " jobs" }
                ": the oldest " (parts::number(MOST)) " are taken. Repeat it for the others."
            }
        } @else {
            p.count {
                strong { (parts::number(count)) @if count == 1 { " job" } @else { " jobs" } }
                @if counts.len() > 1 {
                    ": "
                    @for (n, count) in counts.iter().enumerate() {
                        @if n > 0 { ", " }
                        a href=(only(&count.state)) title="Only these" {
                            (parts::number(count.n)) " " (count.state)
                        }
                    }
                }
            }
        }
    }
}

fn confirmation(visit: &Visit, asked: &Bulk, count: i64) -> Markup {
    let action = asked.r#do;
    let title = action.title();
    let label = match count {
        1 => format!("{title} this job"),
        n if n > MOST => format!("{title} the oldest 10,000"),
        n => format!("{title} these {n} jobs"),
    };
    let look = match action {
        Action::Retry => Look::Primary,
        Action::Cancel | Action::Delete => Look::Danger,
    };
    let of = asked.filter.path("", &[("do", action.name())]);
    let fields = html! {
        (hidden("of", of.trim_start_matches('?')))
        (hidden("shown", &count.min(MOST).to_string()))
        @if action == Action::Retry { (reset()) }
        (reason())
        div.actions {
            (parts::button(&label, look))
            (parts::link_button("Back", &visit.url(&asked.filter.path("/jobs", &[])), Look::Plain))
        }
    };
    html! { div.card { (visit.form("/bulk", fields)) } }
}

pub(crate) async fn act(change: Change<Confirmed>) -> Result<Response, Problem> {
    let form = &change.form;
    let asked: Bulk = serde_urlencoded::from_str(&form.of).map_err(|_| {
        Problem::bad_input(
            "This form is not whole.",
            "Look at the jobs again, and repeat it.",
        )
    })?;
    let meant = asked.meant()?;
    let action = meant.action;
    // Never more than were shown, whatever has come meanwhile.
    let most = form.shown.clamp(1, MOST) as i32;
    let mut arguments = "queue => $1, kind => $2, tag => $3, states => $4::text[]::jobs.state[],
        max_jobs => $5, reason => $6"
        .to_owned();
    let [queue, kind, tag] = meant.names();
    let reason = given(&form.reason);
    let mut of: Vec<&(dyn ToSql + Sync)> = vec![&queue, &kind, &tag, &meant.states, &most, &reason];
    let reset = !form.reset.is_empty();
    if action == Action::Retry {
        arguments += ", reset => $7, error_like => $8, failed_after => $9";
        of.extend([
            &reset as &(dyn ToSql + Sync),
            &meant.error_like,
            &meant.failed_after,
        ]);
    }
    let sql = format!("select jobs.{}({arguments})", action.function());
    let Only(done) = change.call(&sql, &of).await?;
    let message = match done {
        0 => "No job was changed: they have moved meanwhile.".into(),
        1 => format!("1 job: {}.", action.done()),
        MOST => format!("{MOST} jobs: {}. There may be more of them.", action.done()),
        n => format!("{n} jobs: {}.", action.done()),
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
        let asked = asked("do=retry&kind=k&error=100%25");
        let meant = asked.meant().expect("it can be");
        assert_eq!(meant.error_like.as_deref(), Some("%100%%"));
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
        assert!(
            condition
                .sql
                .starts_with("true and queue = $1 and kind = $2 and state in")
        );
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
        assert!(
            meant
                .condition(None)
                .is_ok_and(|condition| condition.sql.ends_with("and false"))
        );
    }

    #[test]
    fn what_the_functions_cannot_is_refused() {
        for query in [
            "do=cancel",
            "do=cancel&error=x",
            "do=delete&kind=k&failed_after=2026-01-01",
            "do=retry&worker=w",
            "do=retry&kind=k&before=2026-01-01T00:00",
        ] {
            assert!(asked(query).meant().is_err(), "{query}");
        }
    }
}
