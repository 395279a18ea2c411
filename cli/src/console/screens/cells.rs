//! The overview of several cells, and the ways from it into one of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::jobs_list::id_of;
use super::overview::{HEALTH, HEALTH_KEPT};
use crate::cells::{CELL, down, faults, up};
use crate::console::app::{App, Cells, together};
use crate::console::attach;
use crate::console::fields;
use crate::console::http::{htmx_redirect, is_fragment, see_other};
use crate::console::links;
use crate::console::page;
use crate::console::parts::{self, Align, Look};
use crate::console::problem::Problem;
use crate::console::role::{PATIENCE, Reading, Role, SHARED};
use crate::console::room::{optional, text};
use crate::console::theme::Theme;
use crate::console::visit::{Path, Query, Visit, looks, parsed};
use crate::finding::Finding;
use crate::standby::Standby;

const WITHIN: Duration = Duration::from_secs(5);
const NUMBER: &str =
    "select cell, retired_at is not null as is_retired from jobs.cells where is_self";
/// How long a database's own number is kept.
const NUMBER_KEPT: Duration = Duration::from_secs(10);
const PLACEMENTS: &str =
    "select queue, by::text, cells from jobs.placements order by queue limit 200";

/// What a cell answers.
struct Seen {
    /// The row of [`CELL`].
    cell: Value,
    standby: Option<Standby>,
    findings: Vec<Finding>,
    placements: Vec<Placement>,
}

#[derive(Deserialize)]
struct Number {
    cell: i64,
    is_retired: bool,
}

/// Where a queue lives.
#[derive(Deserialize)]
pub(super) struct Placement {
    queue: String,
    /// What decides among several cells.
    by: Option<String>,
    cells: Vec<i64>,
}

/// All cells. A visitor without a session in any of them has to log in.
pub(crate) async fn cells(
    State(app): State<Arc<App>>,
    Extension(cells): Extension<Cells>,
    headers: HeaderMap,
) -> Response {
    let roles: Vec<_> = cells.iter().map(|cell| attach::role(cell, &headers)).collect();
    let Some(ear) = roles.iter().position(Option::is_some) else {
        let login = app.login_url("", false);
        return if is_fragment(&headers) { htmx_redirect(&login) } else { see_other(&login) };
    };
    let all = together(roles.into_iter().map(see)).await;
    let main = html! { h1 { "Cells" } (shown(&cells, &all)) };
    if is_fragment(&headers) {
        return Html(main.into_string()).into_response();
    }
    page::of_cells(&cells, &cells[ear], Theme::of(&headers), "Cells", &main).into_response()
}

/// None without a role.
async fn see(role: Option<Arc<Role>>) -> Option<Result<Seen, Problem>> {
    let role = role?;
    let seen = timeout(PATIENCE, async {
        looks(&role).await?;
        let read = |sql, kept| role.shared_rows(sql, &[], Reading::within(WITHIN), kept);
        let (cell, standby, findings, placements) = tokio::try_join!(
            read(CELL, SHARED),
            role.standby(),
            read(HEALTH, HEALTH_KEPT),
            read(PLACEMENTS, SHARED)
        )?;
        let cell = parsed(&cell)?.into_iter().next().ok_or_else(Problem::no_row)?;
        Ok(Seen { cell, standby, findings: parsed(&findings)?, placements: parsed(&placements)? })
    });
    Some(seen.await.unwrap_or_else(|_| Err(Problem::no_answer())))
}

fn shown(cells: &Cells, all: &[Option<Result<Seen, Problem>>]) -> Markup {
    let known = cells.iter().zip(all).filter_map(|(cell, seen)| match seen.as_ref()? {
        Ok(seen) => Some(up(&cell.address, seen.cell.clone(), seen.standby.as_ref())),
        Err(problem) => Some(down(&cell.address, &problem.line())),
    });
    let faults = faults(&known.collect::<Vec<_>>());
    let mut placements = all.iter().flatten().flatten().map(|seen| &seen.placements);
    let placements = placements.find(|all| !all.is_empty());
    let columns = [
        ("Cell", Align::Wide),
        ("State", Align::Text),
        ("Queues", Align::Number),
        ("Available", Align::Number),
        ("Running", Align::Number),
        ("Oldest available", Align::Number),
        ("Findings", Align::Text),
    ];
    let rows = html! { @for (cell, seen) in cells.iter().zip(all) { (row(cell, seen.as_ref())) } };
    html! {
        @for fault in &faults {
            div.finding.warning {
                (parts::severity("warning"))
                div.finding-text { p { (text(fault)) } }
            }
        }
        (parts::table("Cells", &columns, rows))
        form.filter method="get" action={ (cells[0].home()) "jobs" } role="search" {
            (fields::suggesting("id", "Job ID", "", &[]))
            (parts::button("Find", Look::Plain))
        }
        @if let Some(placements) = placements { (table_of(&cells[0], placements)) }
    }
}

fn row(app: &App, seen: Option<&Result<Seen, Problem>>) -> Markup {
    let number = seen.and_then(|seen| Some(seen.as_ref().ok()?.cell["cell"].as_i64()));
    html! {
        tr {
            th.wide scope="row" {
                a href=(app.url("/")) { (text(&app.address)) }
                @match number {
                    Some(Some(cell)) => div.quiet { "cell " (cell) },
                    Some(None) => div.quiet { "no cell number" },
                    None => {}
                }
            }
            @match seen {
                None => td colspan="6" { a href=(app.login_url("/", false)) { "Log in" } },
                Some(Err(problem)) => {
                    td { span.state.lost { "down" } }
                    td.wide colspan="5" { (problem.said()) }
                }
                Some(Ok(seen)) => (seen.columns(app)),
            }
        }
    }
}

impl Seen {
    fn columns(&self, app: &App) -> Markup {
        let count = |name: &str| parts::count(self.cell[name].as_i64().unwrap_or_default(), false);
        html! {
            td {
                @match &self.standby { Some(standby) => (standby.to_string()), None => "primary" }
                @if self.cell["retired"] == true { ", retired" }
            }
            td.number { (count("queues")) }
            td.number { (count("available")) }
            td.number { (count("running")) }
            td.number {
                (self.cell["oldest_seconds"].as_f64().map_or_else(parts::none, parts::duration))
            }
            td { a href=(app.url("/")) { (severities(&self.findings)) } }
        }
    }
}

/// How many findings there are of each severity.
fn severities(findings: &[Finding]) -> Markup {
    html! {
        @if findings.is_empty() { (parts::severity("ok")) }
        @for severity in ["critical", "warning", "info"] {
            @let count = findings.iter().filter(|one| one.severity == severity).count();
            @if count > 0 { (parts::severity(severity)) " " (count) " " }
        }
    }
}

fn table_of(app: &App, placements: &[Placement]) -> Markup {
    let columns = [("Queue", Align::Wide), ("Spread by", Align::Text), ("Cells", Align::Text)];
    let rows = html! {
        @for placement in placements {
            tr {
                th.wide scope="row" { (text(&placement.queue)) }
                td { (optional(placement.by.as_deref())) }
                td { (placement.links(app, &placement.queue)) }
            }
        }
    };
    html! { section { h2 { "Placements" } (parts::table("Placements", &columns, rows)) } }
}

impl Placement {
    /// Links to a queue in each of its cells.
    fn links(&self, app: &App, queue: &str) -> Markup {
        let path = if queue == "*" { "/queues".into() } else { links::queue_path(queue) };
        html! {
            @for (n, cell) in self.cells.iter().enumerate() {
                @if n > 0 { ", " }
                a href=(links::in_cell(app, *cell, &path)) { (cell) }
            }
        }
    }
}

/// Where a queue lives, if that is known.
pub(super) async fn placement(visit: &Visit, queue: &str) -> Result<Markup, Problem> {
    let sql = "select queue, by::text, cells from jobs.placements where queue in ($1, '*')
        order by queue = '*' limit 1";
    let found: Option<Placement> = match visit.app.is_cell() {
        true => visit.row(sql, &[&queue]).await?,
        false => None,
    };
    Ok(html! {
        @if let Some(placement) = found {
            p {
                @match &placement.by {
                    Some(by) => { "Spread by " code { (text(by)) } " over cells " }
                    None => "Placed in cell ",
                }
                (placement.links(&visit.app, queue)) "."
            }
        }
    })
}

#[derive(Deserialize)]
pub(crate) struct Wanted {
    id: String,
}

/// To a job of any cell.
pub(crate) async fn to_job(
    State(app): State<Arc<App>>,
    Query(Wanted { id }): Query<Wanted>,
) -> Result<Response, Problem> {
    let id = id_of(&id)?;
    Ok(see_other(&links::in_cell(&app, links::cell_of(id), &links::job_path(id))))
}

/// Whether a job is another cell's, by its id.
pub(super) async fn is_elsewhere(visit: &Visit, id: i64) -> Result<bool, Problem> {
    let own = match visit.app.is_cell() {
        true => visit.row::<Number>(NUMBER, &[]).await?,
        false => None,
    };
    Ok(own.is_some_and(|own| own.cell != links::cell_of(id)))
}

/// To a page of the cell with a number. One that takes writes goes before a retired one.
pub(crate) async fn to_cell(
    Extension(cells): Extension<Cells>,
    headers: HeaderMap,
    uri: Uri,
    Path((number, _)): Path<(i64, String)>,
) -> Result<Response, Problem> {
    let mut asked = JoinSet::new();
    for cell in cells.iter().cloned() {
        let role = attach::role(&cell, &headers);
        asked.spawn(async move { (number_of(role).await, cell) });
    }
    let mut found = None;
    while let Some(answer) = asked.join_next().await {
        let (own, cell) = answer.expect("it does not panic");
        let Some(own) = own.filter(|own| own.cell == number) else { continue };
        found = Some(cell);
        if !own.is_retired {
            break;
        }
    }
    let Some(cell) = found else {
        let message = format!("None of the databases that answer is cell {number}.");
        let problem = Problem::new(StatusCode::NOT_FOUND, "Not found", message);
        return Err(problem.hint("The overview shows which cells are down."));
    };
    // Behind /cell/NUMBER.
    let path = uri.path_and_query().and_then(|path| path.as_str().splitn(4, '/').nth(3));
    Ok(see_other(&cell.url(&format!("/{}", path.unwrap_or_default()))))
}

async fn number_of(role: Option<Arc<Role>>) -> Option<Number> {
    let role = role?;
    let rows = role.shared_rows(NUMBER, &[], Reading::within(WITHIN), NUMBER_KEPT);
    let rows = timeout(PATIENCE, rows).await.ok()?.ok()?;
    parsed(&rows).ok()?.pop()
}
