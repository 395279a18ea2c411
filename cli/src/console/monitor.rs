//! Answers for programs: the health of the console, and metrics for Prometheus.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::app::{App, Cells, together};
use super::connection::Connection;
use super::problem::Problem;
use super::role::{PATIENCE, Reading, Role, SHARED};
use crate::terminal::plain;

const WITHIN: Duration = Duration::from_secs(5);
const EXTENSION: &str = "select extversion from pg_catalog.pg_extension where extname = 'jobs'";

/// Whether the console reaches the queue or, with a login, the server.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    health_of(&[app]).await
}

/// Likewise of several: whether it reaches all of them.
pub(super) async fn health_of_cells(Extension(cells): Extension<Cells>) -> Response {
    health_of(&cells).await
}

/// With a login it gives no reason, since the request is not authenticated.
async fn health_of(apps: &[Arc<App>]) -> Response {
    // It continues if the request is abandoned, so that there is never a second one.
    let reached = together(apps.iter().cloned().map(reached)).await;
    let failed = apps.iter().zip(reached).filter_map(|(app, reached)| Some((app, reached.err()?)));
    let failed: Vec<_> = failed
        .map(|(app, problem)| match app.is_cell() && apps.len() > 1 {
            true => format!("{}: {}", app.address, problem.line()),
            false => problem.line(),
        })
        .collect();
    let (status, said) = match failed.is_empty() {
        true => (StatusCode::OK, json!({ "status": "ok" })),
        false if apps.iter().any(|app| app.has_login) => {
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "error" }))
        }
        false => {
            let said = json!({ "status": "error", "error": failed.join("; ") });
            (StatusCode::SERVICE_UNAVAILABLE, said)
        }
    };
    let head = [(header::CONTENT_TYPE, "application/json")];
    (status, head, said.to_string()).into_response()
}

async fn reached(app: Arc<App>) -> Result<(), Problem> {
    let mut known = app.health.lock().await;
    if let Some((since, reached)) = &*known
        && since.elapsed() < SHARED
    {
        return reached.clone();
    }
    let asked = async {
        match &app.process {
            Some(role) => queue_answers(role, app.database_name()).await,
            None => server_answers(&app).await,
        }
    };
    let asked = timeout(WITHIN, asked).await;
    let asked = asked.unwrap_or_else(|_| Err(Problem::no_answer()));
    known.insert((Instant::now(), asked)).1.clone()
}

async fn queue_answers(role: &Role, database: &str) -> Result<(), Problem> {
    let reading = Reading::within(WITHIN);
    match role.rows(EXTENSION, &[], reading).await?.len() {
        0 => Err(Problem::no_extension(database)),
        _ => Ok(()),
    }
}

/// A server that asks for a password, or refuses the connection without one, answers.
async fn server_answers(app: &App) -> Result<(), Problem> {
    let permit = app.pool.permit(tokio::time::Instant::now() + WITHIN).await?;
    let Err(error) = Connection::open(&app.database, permit).await else {
        return Ok(());
    };
    let is_away = std::error::Error::source(&error).is_some_and(|cause| cause.is::<io::Error>());
    let is_away = is_away || error.is_closed();
    let code = error.code().map(SqlState::code);
    match is_away || code.is_some_and(|code| !code.starts_with("28")) {
        true => Err(error.into()),
        false => Ok(()),
    }
}

#[derive(Deserialize)]
struct Metric {
    metric: String,
    r#type: String,
    labels: Map<String, Value>,
    value: Value,
    help: String,
}

/// jobs.metrics() in the format of Prometheus. With a login there is no role to query as.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let role = app.process.clone().ok_or_else(no_metrics)?;
    Ok(exposed(&measured(role).await?))
}

/// Those of all cells, each with the label `cell`, and which cells answer.
pub(super) async fn metrics_of_cells(
    Extension(cells): Extension<Cells>,
) -> Result<Response, Problem> {
    let roles: Option<Vec<_>> = cells.iter().map(|app| app.process.clone()).collect();
    let asked = roles.ok_or_else(no_metrics)?.into_iter();
    let all = together(asked.map(|role| timeout(PATIENCE, measured(role)))).await;
    let mut metrics = Vec::new();
    for (app, of_cell) in cells.iter().zip(all) {
        let of_cell = of_cell.unwrap_or_else(|_| Err(Problem::no_answer()));
        let up = Metric {
            metric: "jobs_cell_up".into(),
            r#type: "gauge".into(),
            labels: Map::new(),
            value: u8::from(of_cell.is_ok()).into(),
            help: "1 if the cell answers the console, else 0".into(),
        };
        metrics.extend([up].into_iter().chain(of_cell.unwrap_or_default()).map(|mut metric| {
            // As Prometheus does with a label of its own.
            if let Some(own) = metric.labels.insert("cell".into(), app.address.clone().into()) {
                metric.labels.insert("exported_cell".into(), own);
            }
            metric
        }));
    }
    metrics.sort_by(|one, other| one.metric.cmp(&other.metric));
    Ok(exposed(&metrics))
}

fn no_metrics() -> Problem {
    Problem::no_page().hint("Metrics are not available with --login.")
}

async fn measured(role: Arc<Role>) -> Result<Vec<Metric>, Problem> {
    let sql = "select m.* from jobs.metrics() m order by m.metric";
    let rows = role.shared_rows(sql, &[], Reading::within(WITHIN), SHARED).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

/// Metrics of a name stand together.
fn exposed(metrics: &[Metric]) -> Response {
    let mut text = String::new();
    for of_name in metrics.chunk_by(|one, other| one.metric == other.metric) {
        for (n, metric) in of_name.iter().enumerate() {
            add(&mut text, metric, n == 0);
        }
    }
    let head = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (head, text).into_response()
}

fn add(text: &mut String, metric: &Metric, is_first: bool) {
    let Metric { metric: name, r#type, labels, value, help } = metric;
    if is_first {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        *text += &format!("# HELP {name} {help}\n# TYPE {name} {type}\n");
    }
    let labels: Vec<String> = labels.iter().map(|(key, value)| label(key, value)).collect();
    *text += name;
    if !labels.is_empty() {
        write!(text, "{{{}}}", labels.join(",")).expect("a text can be written to");
    }
    // NaN and infinities come as texts.
    let value = plain(value).replace("Infinity", "Inf");
    writeln!(text, " {value}").expect("a text can be written to");
}

fn label(key: &str, value: &Value) -> String {
    let value = plain(value);
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{key}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let metric = Metric {
            metric: "jobs_x".into(),
            r#type: "gauge".into(),
            labels: serde_json::from_str(r#"{"queue": "a\"b\\c\nd", "state": "running"}"#)
                .expect("JSON"),
            value: json!(1.5),
            help: "Of two\nlines".into(),
        };
        let mut text = String::new();
        add(&mut text, &metric, true);
        add(&mut text, &Metric { labels: Map::new(), ..metric }, false);
        let expected = "# HELP jobs_x Of two\\nlines\n# TYPE jobs_x gauge\n\
            jobs_x{queue=\"a\\\"b\\\\c\\nd\",state=\"running\"} 1.5\njobs_x 1.5\n";
        assert_eq!(text, expected);
    }
}
