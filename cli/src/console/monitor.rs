//! Answers for programs: the health of the console, and metrics for Prometheus.

use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::app::App;
use super::connection::Connection;
use super::problem::Problem;
use super::role::{Reading, Role, SHARED};
use crate::terminal::plain;

const WITHIN: Duration = Duration::from_secs(5);
const EXTENSION: &str = "select extversion from pg_catalog.pg_extension where extname = 'jobs'";

/// Whether the console reaches the queue or, with a login, the server. With a login it gives no
/// reason, since the request is not authenticated.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let says_why = !app.has_login;
    // It continues if the request is abandoned, so that there is never a second one.
    let reached = tokio::spawn(reached(app)).await;
    let (status, said) = match reached {
        Ok(Ok(())) => (StatusCode::OK, json!({ "status": "ok" })),
        Ok(Err(problem)) if says_why => {
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "error", "error": problem.line() }))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "error" })),
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
    let Some(role) = &app.process else {
        return Err(Problem::no_page().hint("Metrics are not available with --login."));
    };
    let sql = "select m.* from jobs.metrics() m order by m.metric";
    let reading = Reading::within(WITHIN);
    let rows = role.shared_rows(sql, &[], reading, SHARED).await?;
    let (mut text, mut said) = (String::new(), HashSet::new());
    for row in rows.iter() {
        let metric: Metric = serde_json::from_str(row)?;
        add(&mut text, &metric, said.insert(metric.metric.clone()));
    }
    let head = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((head, text).into_response())
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
