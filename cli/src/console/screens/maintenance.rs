//! Maintenance: its tasks, the settings, and the check of all invariants.

use std::time::Duration;

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::Mutex;

use super::named;
use crate::console::fields::{given, reason};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align, Look};
use crate::console::problem::Problem;
use crate::console::role::Reading;
use crate::console::room::text;
use crate::console::visit::{Change, Visit};

/// How long jobs.check() may take.
const LONGEST_CHECK: Duration = Duration::from_secs(15 * 60);

#[derive(Deserialize)]
struct Task {
    task: String,
    last_run_at: Option<DateTime<Utc>>,
    rows: Option<i64>,
    seconds: Option<f64>,
    last_error: Option<String>,
    last_error_at: Option<DateTime<Utc>>,
    failures: i64,
    rows_total: i64,
    failures_total: i64,
    paused_at: Option<DateTime<Utc>>,
    paused_by: Option<String>,
}

#[derive(Deserialize)]
struct Setting {
    name: String,
    value: String,
    default_value: Option<String>,
    unit: Option<String>,
    source: String,
    source_file: Option<String>,
    source_line: Option<i32>,
    description: String,
}

/// An invariant that is violated.
#[derive(Deserialize)]
struct Violation {
    invariant: String,
    violations: i64,
    job_ids: Option<Vec<i64>>,
    rule: String,
}

#[derive(Deserialize)]
pub(crate) struct Reason {
    reason: String,
}

pub(crate) async fn maintenance(visit: Visit) -> Result<Response, Problem> {
    let sql = "
        select task, last_run_at, rows, extract(epoch from duration)::float8 as seconds,
               last_error, last_error_at, failures, rows_total, failures_total,
               paused_at, paused_by
          from jobs.maintenance";
    let tasks: Vec<Task> = visit.rows(sql, &[]).await?;
    let sql = "
        select name, value, default_value, unit, source, source_file, source_line, description
          from jobs.settings order by name";
    let settings: Vec<Setting> = visit.rows(sql, &[]).await?;
    let main = html! {
        (visit.live("tasks", "/maintenance", html! {
            (standing(&tasks))
            (tasks_table(&tasks))
        }))
        div.actions { (actions(&visit, tasks.iter().any(|task| task.paused_at.is_some()))) }
        (parts::section("check", "Check", html! {
            @if !visit.is_read_only && visit.executes("check") {
                p {
                    "Checks the invariants of the jobs tables. " strong { "It reads all jobs" }
                    ", which takes seconds to minutes with millions of jobs. Workers are unaffected."
                }
                (visit.form("/maintenance/check", parts::button("Check all jobs", Look::Plain)))
            } @else {
                p {
                    "Your role may not call " code { "jobs.check()" }
                    ", or this console is read-only."
                }
            }
        }))
        (parts::section("settings", "Settings", html! {
            p { "These apply to the whole server. Change them in its configuration or with " code { "ALTER SYSTEM" } "." }
            (settings_table(&settings))
        }))
    };
    Ok(visit.still(Screen::Maintenance, "Maintenance", main))
}

pub(crate) async fn pause(change: Change<Reason>) -> Result<Response, Problem> {
    let reason = given(&change.form.reason);
    change.run("select from jobs.pause_maintenance($1)", &[&reason]).await?;
    Ok(change.done("/maintenance", "Maintenance is paused."))
}

pub(crate) async fn resume(change: Change<Reason>) -> Result<Response, Problem> {
    let reason = given(&change.form.reason);
    change.run("select from jobs.resume_maintenance($1)", &[&reason]).await?;
    Ok(change.done("/maintenance", "Maintenance is resumed."))
}

/// The result of jobs.maintain().
#[derive(Deserialize)]
struct Maintained {
    rows: i64,
    errors: Option<String>,
}

pub(crate) async fn run(change: Change<IgnoredAny>) -> Result<Response, Problem> {
    let sql = "
        select coalesce(sum(rows), 0)::bigint as rows,
               string_agg(distinct task || ': ' || error, '; ') as errors
          from jobs.maintain()";
    let Maintained { rows, errors } = change.call(sql, &[]).await?;
    let rows = parts::plural(rows, "row");
    let message = match errors {
        Some(errors) => {
            format!("Maintenance processed {rows}, with errors: {errors}")
        }
        None => format!("Maintenance processed {rows}."),
    };
    Ok(change.done("/maintenance", message))
}

/// One at a time: each reads everything.
static CHECKING: Mutex<()> = Mutex::const_new(());

pub(crate) async fn check(change: Change<IgnoredAny>) -> Result<Response, Problem> {
    // It continues if the request is abandoned, so that there is never a second one.
    let checked = tokio::spawn(checked(change.visit)).await;
    checked.unwrap_or_else(|_| Err(Problem::bad_input("The check was interrupted.", "Try again.")))
}

async fn checked(visit: Visit) -> Result<Response, Problem> {
    // It only reads, but so much that it counts as an action.
    if visit.is_read_only || !visit.executes("check") {
        return Err(Problem::forbidden(
            "This console is read-only, or the role may not call jobs.check().",
            "Run it in psql.",
        ));
    }
    let Ok(_checking) = CHECKING.try_lock() else {
        return Err(Problem::bad_input(
            "A check is already running.",
            "Wait until it has finished.",
        ));
    };
    let sql = "select invariant, violations, job_ids, rule from jobs.check()";
    let violations: Vec<Violation> = visit.read(Reading::within(LONGEST_CHECK), sql, &[]).await?;
    let main = html! {
        @if violations.is_empty() {
            p.good role="status" { "All invariants hold." }
        } @else {
            p.bad role="status" {
                "Some invariants are violated. The cause is a defect in the extension or the "
                "storage, or a manual write to the tables."
            }
            (violations_table(&visit, &violations))
        }
        p { a href=(visit.url("/maintenance")) { "Back to maintenance" } }
    };
    Ok(visit.still(Screen::Maintenance, "Check", main))
}

fn standing(tasks: &[Task]) -> Markup {
    let paused = tasks.iter().find_map(|task| Some((task.paused_at?, &task.paused_by)));
    html! {
        @if let Some((at, by)) = paused {
            p.bad {
                "Paused" (named::since(Some(at), by.as_deref(), None))
                ": no job is rescued or pruned, and no periodic job is inserted."
            }
        } @else if tasks.iter().any(|task| task.failures > 0) {
            p.bad { "A task is failing." }
        } @else {
            p.good { "All tasks are healthy." }
        }
    }
}

fn tasks_table(tasks: &[Task]) -> Markup {
    let columns = [
        ("Task", Align::Wide),
        ("Last run", Align::Text),
        ("Took", Align::Number),
        ("Rows", Align::Number),
        ("Total rows", Align::Number),
        ("Total failures", Align::Number),
        ("Last error", Align::Text),
    ];
    let rows = html! {
        @for task in tasks {
            tr {
                th.wide scope="row" { (task.task) div.quiet { (what_it_does(&task.task)) } }
                td { @match task.last_run_at { Some(at) => (parts::ago(at)), None => "never" } }
                td.number { @if let Some(seconds) = task.seconds { (parts::duration(seconds)) } }
                td.number { @if let Some(rows) = task.rows { (parts::number(rows)) } }
                td.number { (parts::number(task.rows_total)) }
                td.number { (parts::number(task.failures_total)) }
                td { (last_error(task)) }
            }
        }
    };
    parts::table("Maintenance tasks", &columns, rows)
}

fn last_error(task: &Task) -> Markup {
    html! {
        @if let Some(error) = &task.last_error {
            @if task.failures > 0 {
                strong.bad { (parts::plural(task.failures, "failure")) " in a row: " }
            } @else {
                "Recovered. "
            }
            (text(error)) " "
            @if let Some(at) = task.last_error_at { (parts::ago(at)) }
        }
    }
}

fn what_it_does(task: &str) -> &'static str {
    match task {
        "schedule" => "makes due jobs available",
        "periodic" => "inserts the jobs of periodic ticks",
        "expire" => "discards jobs past their expires_at",
        "rescue" => "fails attempts whose lease expired",
        "limits" => "returns held jobs to their queues where limits have room",
        "prune" => "deletes final jobs past their retention",
        "claims" => "removes keys that no job needs",
        "statistics" => "counts large tables and stores history",
        _ => "",
    }
}

fn actions(visit: &Visit, is_paused: bool) -> Markup {
    html! {
        @if visit.may("maintain") && !is_paused {
            (visit.form("/maintenance/run", parts::button("Run all tasks", Look::Plain)))
        }
        @if is_paused && visit.may("resume_maintenance") {
            (visit.form("/maintenance/resume", html! {
                (reason())
                (parts::button("Resume maintenance", Look::Primary))
            }))
        }
        @if !is_paused && visit.may("pause_maintenance") {
            (parts::confirm(
                "Pause maintenance",
                "Until maintenance is resumed, no job is rescued or pruned, and no periodic job is \
                 inserted. Fetches still find due jobs.",
                visit.form("/maintenance/pause", html! {
                    (reason())
                    (parts::button("Pause", Look::Danger))
                }),
            ))
        }
    }
}

fn settings_table(settings: &[Setting]) -> Markup {
    let columns = [("Setting", Align::Wide), ("Value", Align::Text), ("Source", Align::Text)];
    let rows = html! {
        @for setting in settings {
            tr #(setting.name) {
                th.wide scope="row" {
                    code { (setting.name) }
                    div.quiet { (setting.description) }
                }
                td { @if setting.value.is_empty() { "empty" } @else { code { (text(&setting.value)) } } }
                td { (comes_from(setting)) }
            }
        }
    };
    parts::table("Settings", &columns, rows)
}

fn comes_from(setting: &Setting) -> Markup {
    let line = setting.source_line.unwrap_or_default();
    let unit = setting.unit.as_deref().unwrap_or_default();
    html! {
        (setting.source)
        @if let Some(file) = &setting.source_file { div.quiet { (file) ", line " (line) } }
        @if setting.source != "default" && let Some(default) = &setting.default_value {
            div.quiet { "default: " (default) " " (unit) }
        }
    }
}

fn violations_table(visit: &Visit, violations: &[Violation]) -> Markup {
    let columns = [("Rule", Align::Wide), ("Violations", Align::Number), ("Jobs", Align::Text)];
    let rows = html! {
        @for one in violations {
            tr {
                th.wide scope="row" { (one.rule) div.quiet { (one.invariant) } }
                td.number { (parts::number(one.violations)) }
                td {
                    @for id in one.job_ids.iter().flatten() {
                        (links::job(visit, *id)) " "
                    }
                }
            }
        }
    };
    parts::table("Violations", &columns, rows)
}
