//! The audit.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::console::fields::{date_time, given, suggesting};
use crate::console::json::tree;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::paging;
use crate::console::parts::{self, Align, Look};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Query, Visit, optional};
use crate::times;

/// How many rows a page has.
const ROWS: usize = 50;

/// The filter, and the start of the page.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct AuditQuery {
    action: String,
    role: String,
    target: String,
    from: String,
    to: String,
    /// The time of the last row that was shown; several rows can have it.
    #[serde(deserialize_with = "optional")]
    before: Option<DateTime<Utc>>,
    /// How many rows of that time were shown.
    shown: Option<i64>,
}

#[derive(Deserialize)]
struct Row {
    at: DateTime<Utc>,
    role: String,
    login_role: String,
    application_name: String,
    action: String,
    target: Option<String>,
    arguments: String,
    jobs: Option<i64>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Suggestions {
    actions: Vec<String>,
    roles: Vec<String>,
}

pub(crate) async fn audit(
    visit: Visit,
    Query(filter): Query<AuditQuery>,
) -> Result<Response, Problem> {
    let sql = "
        select at, role, login_role, application_name, action, target, arguments::text, jobs, reason
          from jobs.audit
         where ($1::text is null or action = $1) and ($2::text is null or $2 in (role, login_role))
           and ($3::text is null or target = $3)
           and ($4::timestamptz is null or at >= $4)
           and ($5::timestamptz is null or at < $5)
           and ($6::timestamptz is null or at <= $6)
         order by at desc, action, role, target, reason, audit.arguments
        offset $7::bigint limit $8::bigint";
    let mut rows: Vec<Row> = visit
        .rows(
            sql,
            &[
                &given(&filter.action),
                &given(&filter.role),
                &given(&filter.target),
                &times::typed("from", &filter.from)?,
                &times::typed("until", &filter.to)?,
                &filter.before,
                &filter.shown.unwrap_or(0),
                &(ROWS as i64 + 1),
            ],
        )
        .await?;
    let has_more = rows.len() > ROWS;
    rows.truncate(ROWS);
    let sql = "
        select coalesce(array_agg(distinct action), '{}') as actions,
               coalesce(array_agg(distinct role), '{}') as roles
          from (select action, unnest(array[role, login_role]) as role
                  from (select action, role, login_role from jobs.audit order by at desc limit 1000) a) b";
    let suggestions: Suggestions = visit.one(sql, &[]).await?;
    let url = |filter: AuditQuery| visit.url(&parts::link("/audit", filter));
    let next = has_more.then(|| url(filter.after(&rows)));
    let newest =
        filter.before.map(|_| url(AuditQuery { before: None, shown: None, ..filter.clone() }));
    let main = html! {
        p.lead {
            "Every change made by a person or program, such as pausing a queue. Kept for "
            a href=(visit.url("/maintenance#jobs.retention_audit")) { "jobs.retention_audit" } "."
        }
        (form(&visit, &filter, &suggestions))
        @if rows.is_empty() {
            (parts::empty("No change matches the filter", html! {
                a href=(visit.url("/audit")) { "Show all changes" }
            }))
        } @else {
            (table(&visit, &rows))
            (paging::by_time(newest, next))
        }
    };
    Ok(visit.page(Screen::Audit, "Audit", main))
}

impl AuditQuery {
    /// This filter, for the page after these rows.
    fn after(&self, rows: &[Row]) -> AuditQuery {
        let last = rows.last().map(|row| row.at);
        let now_shown = rows.iter().filter(|row| Some(row.at) == last).count() as i64;
        let shown_before = self.shown.filter(|_| self.before == last);
        AuditQuery {
            before: last,
            shown: Some(now_shown + shown_before.unwrap_or(0)),
            ..self.clone()
        }
    }
}

fn form(visit: &Visit, filter: &AuditQuery, suggestions: &Suggestions) -> Markup {
    html! {
        form.filter method="get" action=(visit.url("/audit")) role="search" {
            (suggesting("action", "Action", &filter.action, &suggestions.actions))
            (suggesting("role", "Role", &filter.role, &suggestions.roles))
            (suggesting("target", "Target", &filter.target, &[]))
            div.range {
                (date_time("from", "From", &filter.from))
                (date_time("to", "Until", &filter.to))
            }
            (parts::button("Filter", Look::Plain))
        }
    }
}

fn table(visit: &Visit, rows: &[Row]) -> Markup {
    let columns = [
        ("Time", Align::Text),
        ("Role", Align::Text),
        ("Action", Align::Text),
        ("Target", Align::Text),
        ("Jobs", Align::Number),
        ("Details", Align::Wide),
    ];
    let rows = html! {
        @for row in rows {
            tr {
                td { (parts::ago(row.at)) }
                td {
                    (text(&row.role))
                    @if row.login_role != row.role {
                        div.quiet { "logged in as " (text(&row.login_role)) }
                    }
                    @if !row.application_name.is_empty() { div.quiet { (text(&row.application_name)) } }
                }
                td { code { (text(&row.action)) } }
                td { @if let Some(target) = &row.target { (of_what(visit, &row.action, target)) } }
                td.number { @if let Some(jobs) = row.jobs { (parts::number(jobs)) } }
                td.wide {
                    @if let Some(reason) = &row.reason { p { (text(reason)) } }
                    @if row.arguments != "{}" { (tree(&row.arguments, 0, None)) }
                }
            }
        }
    };
    parts::table("Changes", &columns, rows)
}

/// The target of a call, with a link to its page.
fn of_what(visit: &Visit, action: &str, target: &str) -> Markup {
    let path = match action {
        "cancel" | "retry" | "activate" | "update" | "delete" => links::job_path(target),
        "pause_queue" | "resume_queue" | "configure_queue" | "reset_queue" => {
            links::queue_path(target)
        }
        "quiet_worker" | "stop_worker" | "resume_worker" => links::worker_path(target),
        "schedule" | "unschedule" | "pause_periodic" | "resume_periodic" | "run_periodic" => {
            links::periodic_job_path(target)
        }
        "define_kind" | "undefine_kind" => parts::link("/jobs", [("kind", target)]),
        _ => return html! { (text(target)) },
    };
    html! { a href=(visit.url(&path)) { (text(target)) } }
}
