//! The actions on one job: retry, cancel, activate, delete.

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

/// The actions that the role may take and the state allows.
pub(crate) fn actions(visit: &Visit, job: &Job) -> Markup {
    let form = |action: &str, more: Markup, button: Markup| {
        let fields = html! { (more) (reason()) (button) };
        visit.form(&format!("{}/{action}", links::job_path(job.id)), fields)
    };
    let is_running = job.state == "running";
    html! {
        div.actions {
            @if job.state == "pending" && visit.may("activate") {
                (parts::confirm("Activate", "Activates the job: it becomes available, or scheduled if it is due later.",
                    form("activate", html! {}, parts::button("Activate job", Look::Primary))))
            }
            @if !is_running && job.state != "available" && visit.may("retry") {
                @let (label, button) = if job.is_final() { ("Retry", "Retry job") } else { ("Run now", "Run job") };
                (parts::confirm(label, "Makes the job available now, with one more attempt if none is left.",
                    form("retry", reset(), parts::button(button, Look::Primary))))
            }
            @if job.waits() && visit.may("update") {
                (parts::link_button("Edit", &visit.url(&(links::job_path(job.id) + "/edit")), Look::Plain))
            }
            @if !job.is_final() && visit.may("cancel") {
                @if is_running {
                    (parts::confirm("Cancel", "Asks the worker to stop at its next heartbeat.",
                        form("cancel", force(), parts::button("Cancel job", Look::Danger))))
                } @else {
                    (parts::confirm("Cancel", "The job will not run unless it is retried.",
                        form("cancel", html! {}, parts::button("Cancel job", Look::Danger))))
                }
            }
            @if !is_running && visit.may("delete") {
                (parts::confirm("Delete", "Deletes the job with its output and errors. This cannot be undone.",
                    form("delete", html! {}, parts::button("Delete job", Look::Danger))))
            }
        }
    }
}

/// For forms that retry.
pub(crate) fn reset() -> Markup {
    html! {
        label.check {
            input type="checkbox" name="reset" value="yes";
            " Reset the attempt count"
        }
    }
}

fn force() -> Markup {
    html! {
        label.check {
            input type="checkbox" name="force" value="yes";
            " Force: cancel now and refuse the worker's later calls"
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
        state => format!("Job {id} is already {state}. Nothing changed."),
    })
    .await
}

pub(crate) async fn cancel(Path(id): Path<i64>, change: Change<Call>) -> Result<Response, Problem> {
    let Call { force, reason, .. } = &change.form;
    let of: Parameters = &[&id, &given(reason), &!force.is_empty()];
    let sql = "select jobs.cancel($1, $2, $3)";
    call(&change, id, sql, of, |state| match state {
        "cancelled" => format!("Job {id} is cancelled."),
        "running" => format!("Cancel requested for job {id}."),
        state => format!("Job {id} is already {state}. Nothing changed."),
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

/// Makes a call that returns the state of the job, and goes back to the job.
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

/// The job has changed: shows it with the message of the database.
pub(super) fn lost<T>(change: &Change<T>, id: i64, refused: Problem) -> Result<Response, Problem> {
    match refused.sqlstate() {
        Some("55000" | "40001" | "40P01" | "55P03") => {
            let message = format!("Nothing changed: {}", refused.line());
            Ok(change.done(&links::job_path(id), message))
        }
        Some("P0002") => {
            Ok(change.done("/jobs", format!("Job {id} no longer exists. Nothing changed.")))
        }
        _ => Err(refused),
    }
}
