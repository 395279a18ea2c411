//! What can be done to one job: retry, cancel, activate, delete.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::job_read::Job;
use crate::console::fields::{given, reason};
use crate::console::links;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::role::Parameters;
use crate::console::visit::{Change, Only, Path, Visit};

/// What the role may do, and the state allows.
pub(crate) fn actions(visit: &Visit, job: &Job) -> Markup {
    let form = |action: &str, more: Markup, button: Markup| {
        let fields = html! { (more) (reason()) (button) };
        visit.form(&format!("{}/{action}", links::job_path(job.id)), fields)
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
                (parts::link_button("Edit", &visit.url(&(links::job_path(job.id) + "/edit")), Look::Plain))
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

pub(crate) async fn retry(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let Call { reset, reason, .. } = &change.form;
    let of: Parameters = &[&id, &!reset.is_empty(), &given(reason)];
    let sql = "select jobs.retry($1, $2, $3)";
    call(&change, id, sql, of, |state| match state {
        "available" => format!("Job {id} is available."),
        state => format!("Job {id} is {state} already: nothing was changed."),
    })
    .await
}

pub(crate) async fn cancel(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let Call { force, reason, .. } = &change.form;
    let of: Parameters = &[&id, &given(reason), &!force.is_empty()];
    let sql = "select jobs.cancel($1, $2, $3)";
    call(&change, id, sql, of, |state| match state {
        "cancelled" => format!("Job {id} is cancelled."),
        "running" => format!("The worker of job {id} is asked to stop."),
        state => format!("Job {id} is {state} already: nothing was changed."),
    })
    .await
}

pub(crate) async fn activate(
    Path(id): Path<i64>,
    change: Change<Call>,
) -> Result<Response, Problem> {
    let of: Parameters = &[&id, &given(&change.form.reason)];
    let said = |state: &str| format!("Job {id} is {state}.");
    call(&change, id, "select jobs.activate($1, $2)", of, said).await
}

pub(crate) async fn delete(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let of: Parameters = &[&id, &given(&change.form.reason)];
    match change.run("select jobs.delete($1, $2)", of).await {
        Ok(()) => Ok(change.done("/jobs", format!("Job {id} is deleted."))),
        Err(refused) => lost(&change, id, refused),
    }
}

/// Makes a call that answers with the state of the job, and goes back to that.
async fn call(
    change: &Change<Call>,
    id: i64,
    sql: &str,
    of: Parameters<'_>,
    say: impl FnOnce(&str) -> String,
) -> Result<Response, Problem> {
    match change.call::<Only<String>>(sql, of).await {
        Ok(Only(state)) => Ok(change.done(&links::job_path(id), say(&state))),
        Err(refused) => lost(change, id, refused),
    }
}

/// Somebody else was first: the job is shown as it is now, with what was said.
pub(super) fn lost<T>(change: &Change<T>, id: i64, refused: Problem) -> Result<Response, Problem> {
    match refused.sqlstate() {
        Some("55000" | "40001" | "40P01" | "55P03") => {
            let message = format!("Nothing was changed: {}", refused.line());
            Ok(change.done(&links::job_path(id), message))
        }
        Some("P0002") => {
            Ok(change.done("/jobs", format!("Job {id} is gone: nothing was changed.")))
        }
        _ => Err(refused),
    }
}
