//! What can be done to one job: retry, cancel, activate, delete.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::job::{Job, path};
use crate::console::fields::{given, reason};
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::role::Parameters;
use crate::console::visit::{Change, Path, Visit};

/// What the role may do, and the state allows.
pub(crate) fn actions(visit: &Visit, job: &Job) -> Markup {
    let form = |action: &str, more: Markup, button: Markup| {
        let fields = html! { (more) (reason()) (button) };
        visit.form(&format!("{}/{action}", path(job.id)), fields)
    };
    let is_running = job.state == "running";
    html! {
        div.actions {
            @if job.state == "pending" && visit.may("activate") {
                (parts::confirm("Activate", "It ends its wait: it becomes available, or scheduled if its time is yet to come.",
                    form("activate", html! {}, parts::button("Activate it", Look::Primary))))
            }
            @if !is_running && job.state != "available" && visit.may("retry") {
                @let label = if job.is_final() { "Retry" } else { "Run now" };
                (parts::confirm(label, "It becomes available now. It is granted an attempt more if none is left.",
                    form("retry", reset(), parts::button("Make it available", Look::Primary))))
            }
            @if job.waits() && visit.may("update") {
                (parts::link_button("Edit", &visit.url(&(path(job.id) + "/edit")), Look::Plain))
            }
            @if !job.is_final() && visit.may("cancel") {
                @if is_running {
                    (parts::confirm("Cancel", "Its worker is asked to stop, and told so with its next heartbeat.",
                        form("cancel", force(), parts::button("Cancel it", Look::Danger))))
                } @else {
                    (parts::confirm("Cancel", "It will not run, unless somebody retries it.",
                        form("cancel", html! {}, parts::button("Cancel it", Look::Danger))))
                }
            }
            @if !is_running && visit.may("delete") {
                (parts::confirm("Delete", "The job, its output and its errors are gone for good.",
                    form("delete", html! {}, parts::button("Delete it", Look::Danger))))
            }
        }
    }
}

/// For forms that retry.
pub(crate) fn reset() -> Markup {
    html! {
        label.check {
            input type="checkbox" name="reset" value="yes";
            " Count attempts from 0 again"
        }
    }
}

fn force() -> Markup {
    html! {
        label.check {
            input type="checkbox" name="force" value="yes";
            " At once: its worker's later calls are refused"
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Call {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    reset: String,
    #[serde(default)]
    force: String,
}

/// The state that a call answers with.
#[derive(Deserialize)]
pub(super) struct Now {
    pub(super) state: String,
}

pub(crate) async fn retry(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let form = &change.form;
    let sql = "select jobs.retry($1, $2, $3) as state";
    let of: Parameters = &[&id, &!form.reset.is_empty(), &given(&form.reason)];
    answer(
        &change,
        id,
        change.call(sql, of).await,
        |state| match state {
            "available" => format!("Job {id} is available."),
            state => format!("Job {id} is {state} already: nothing was changed."),
        },
    )
}

pub(crate) async fn cancel(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let form = &change.form;
    let sql = "select jobs.cancel($1, $2, $3) as state";
    let of: Parameters = &[&id, &given(&form.reason), &!form.force.is_empty()];
    answer(
        &change,
        id,
        change.call(sql, of).await,
        |state| match state {
            "cancelled" => format!("Job {id} is cancelled."),
            "running" => format!("The worker of job {id} is asked to stop."),
            state => format!("Job {id} is {state} already: nothing was changed."),
        },
    )
}

pub(crate) async fn activate(
    Path(id): Path<i64>,
    change: Change<Call>,
) -> Result<Response, Problem> {
    let sql = "select jobs.activate($1, $2) as state";
    let of: Parameters = &[&id, &given(&change.form.reason)];
    answer(&change, id, change.call(sql, of).await, |state| {
        format!("Job {id} is {state}.")
    })
}

pub(crate) async fn delete(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let sql = "select jobs.delete($1, $2) as state";
    let of: Parameters = &[&id, &given(&change.form.reason)];
    match change.call::<Now>(sql, of).await {
        Ok(_) => Ok(change.done("/jobs", format!("Job {id} is deleted."))),
        Err(refused) => lost(&change, id, refused),
    }
}

fn answer(
    change: &Change<Call>,
    id: i64,
    answer: Result<Option<Now>, Problem>,
    say: impl FnOnce(&str) -> String,
) -> Result<Response, Problem> {
    match answer {
        Ok(now) => {
            let state = now.map(|now| now.state).unwrap_or_default();
            Ok(change.done(&path(id), say(&state)))
        }
        Err(refused) => lost(change, id, refused),
    }
}

/// Somebody else was first: the job is shown as it is now, with what was said.
pub(super) fn lost<T>(change: &Change<T>, id: i64, refused: Problem) -> Result<Response, Problem> {
    match refused.sqlstate() {
        Some("55000" | "40001" | "40P01" | "55P03") => {
            let message = format!("Nothing was changed: {}", refused.line());
            Ok(change.done(&path(id), message))
        }
        Some("P0002") => {
            Ok(change.done("/jobs", format!("Job {id} is gone: nothing was changed.")))
        }
        _ => Err(refused),
    }
}
