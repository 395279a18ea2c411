//! The form that edits a waiting job.

use std::collections::BTreeMap;

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio_postgres::types::ToSql;

use super::job_actions::lost;
use super::job_read::{Job, look};
use crate::console::edited::Edited;
use crate::console::fields::{self, area, given, line, reason};
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Change, Only, Path, Visit};

/// The editable fields: parameters of jobs.update, how their texts become values, and labels.
const FIELDS: [(&str, &str, &str); 10] = [
    ("args", JSON, "Args"),
    ("meta", JSON, "Meta"),
    ("queue", "?::text", "Queue"),
    ("priority", NUMBER, "Priority"),
    ("scheduled_at", TIME, "Due"),
    ("expires_at", TIME, "Expires"),
    ("max_attempts", NUMBER, "Max attempts"),
    ("timeout", INTERVAL, "Timeout"),
    ("tags", LINES, "Tags"),
    ("retry", JSON, "Retry policy"),
];
const JSON: &str = "?::text::jsonb";
const NUMBER: &str = "?::text::integer";
const TIME: &str = "(?::text || case when ? ~ 'infinity' then '' else ' UTC' end)::timestamptz";
const INTERVAL: &str = "?::text::interval";
const LINES: &str = "array_remove(regexp_split_to_array(trim(?::text), E'\\s*\\n\\s*'), '')";

fn help(field: &str) -> &'static str {
    match field {
        "args" => "JSON.",
        "meta" => "A JSON object.",
        "queue" => "An available job moves to the end of its lane in the new queue.",
        "priority" => "Lower numbers are fetched first.",
        "scheduled_at" => "In UTC, such as 2026-01-31 18:30.",
        "expires_at" => "In UTC, or infinity for never.",
        "max_attempts" => "Including the first.",
        "timeout" => "Such as 5 minutes, or -1 second for no limit.",
        "tags" => "One per line.",
        _ => "A policy name in quotes, or a JSON object.",
    }
}

/// The largest editable JSON, both as the server's text and as indented in the form. Deep JSON can
/// need a thousand times as many spaces.
const LARGEST: i32 = 64 * 1024;

/// JSON and tags that are too large are null.
const VALUES: &str = "
    select case when octet_length(args::text) <= $2 then args::text end as args,
           case when octet_length(meta::text) <= $2 then meta::text end as meta, queue, priority::text,
           to_char(scheduled_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') as scheduled_at,
           case when isfinite(expires_at) then to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
                else expires_at::text end as expires_at,
           max_attempts::text, timeout::text,
           case when octet_length(array_to_string(tags, E'\\n')) <= $2
                then array_to_string(tags, E'\\n') end as tags,
           case when octet_length(retry::text) <= $2 then retry::text end as retry
      from jobs.jobs where id = $1";

#[derive(Deserialize)]
pub(crate) struct Form {
    reason: String,
    /// Only changed fields are passed to jobs.update: a queue or priority moves an available job,
    /// even if it is unchanged.
    #[serde(flatten)]
    values: Edited,
}

async fn values(visit: &Visit, id: i64) -> Result<Edited, Problem> {
    let row: Option<BTreeMap<String, Option<String>>> = visit.row(VALUES, &[&id, &LARGEST]).await?;
    let mut row = row.ok_or_else(|| Problem::not_found(&format!("Job {id}")))?;
    // Hidden or too large values are not in the form.
    row.retain(|name, value| value.is_some() || !of_sql(name, &[JSON, LINES]));
    let all = row.iter().map(|(name, value)| {
        let value = value.as_deref().unwrap_or_default();
        let is_json = of_sql(name, &[JSON]);
        (&**name, if is_json { pretty(value) } else { value.into() })
    });
    Ok(Edited::of(all))
}

/// Whether a field has one of these types.
fn of_sql(field: &str, ways: &[&str]) -> bool {
    let mut fields = FIELDS.iter();
    fields.any(|(name, sql, _)| *name == field && ways.contains(sql))
}

/// Indents JSON, unless it gets too large.
fn pretty(json: &str) -> String {
    let pretty = serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value));
    let pretty = pretty.ok().filter(|text| text.len() <= LARGEST as usize);
    pretty.unwrap_or_else(|| json.into())
}

fn names() -> [&'static str; 10] {
    FIELDS.map(|(name, ..)| name)
}

pub(crate) async fn page(visit: Visit, Path(id): Path<i64>) -> Result<Response, Problem> {
    let job = look(&visit, id).await?;
    if !visit.may("update") {
        return Err(Problem::forbidden(
            "This role may not update jobs.",
            "jobs.grant_application allows it, as does EXECUTE on jobs.update.",
        ));
    }
    if !job.waits() {
        let message = format!("Job {id} is {}.", job.state);
        return Err(Problem::bad_input(message, "Only waiting jobs can be edited."));
    }
    let values = values(&visit, id).await?;
    Ok(form(&visit, &job, &values, None))
}

fn form(visit: &Visit, job: &Job, values: &Edited, wrong: Option<&Problem>) -> Response {
    let main = html! {
        p.lead { (parts::state(&job.state)) " " strong { (text(&job.kind)) } }
        p { "Fields you leave alone keep their value. The unique key does not change." }
        (fields::wrong(wrong, &names()))
        (visit.form(&(links::job_path(job.id) + "/edit"), fields_of(visit, job, values, wrong)))
    };
    visit.with_form(Screen::Jobs, &format!("Edit job {}", job.id), main, wrong)
}

fn fields_of(visit: &Visit, job: &Job, values: &Edited, wrong: Option<&Problem>) -> Markup {
    let (long, short): (Vec<_>, Vec<_>) =
        FIELDS.into_iter().partition(|(_, sql, ..)| [JSON, LINES].contains(sql));
    html! {
        (values.before())
        @if !visit.sees_payload() {
            p.quiet { "Args and meta are hidden from your role and keep their value." }
        }
        @for (name, _, label) in long {
            @if values.has(name) {
                (area(name, label, help(name), values.get(name), wrong))
            } @else if visit.sees_payload() {
                p.quiet { (label) ": too large to edit here. Use jobs.update." }
            }
        }
        div.fields {
            @for (name, _, label) in short {
                (line(name, label, help(name), values.get(name), wrong))
            }
        }
        (reason())
        div.actions {
            (parts::button("Save changes", Look::Primary))
            (parts::link_button("Back", &visit.url(&links::job_path(job.id)), Look::Plain))
        }
    }
}

pub(crate) async fn update(
    Path(id): Path<i64>,
    mut change: Change<Form>,
) -> Result<Response, Problem> {
    let wrong = match give(&mut change, id).await {
        Ok(state) => {
            let message = format!("Job {id} saved. It is {state}.");
            return Ok(change.done(&links::job_path(id), message));
        }
        Err(wrong) => wrong,
    };
    // The typed values are shown again with the problem.
    match wrong.sqlstate() {
        Some(code) if !code.starts_with("22") => lost(&change, id, wrong),
        _ => {
            let job = look(&change.visit, id).await?;
            let values = &change.form.values;
            let wrong = wrong.about_quoted(names().map(|name| (name, values.get(name))));
            Ok(form(&change.visit, &job, values, Some(&wrong)))
        }
    }
}

async fn give(change: &mut Change<Form>, id: i64) -> Result<String, Problem> {
    let now = values(&change.visit, id).await?;
    let changed = change.form.values.changed(names(), &now)?;
    let changed =
        FIELDS.iter().filter_map(|(name, sql, _)| Some((*name, *sql, changed.get(name)?)));
    let changed = changed.map(|(name, sql, value)| Ok((name, sql, checked(name, sql, value)?)));
    let changed = changed.collect::<Result<Vec<_>, Problem>>()?;
    let reason = given(&change.form.reason);
    let mut of: Vec<&(dyn ToSql + Sync)> = vec![&id, &reason];
    let mut arguments = String::new();
    for (name, sql, value) in &changed {
        of.push(value);
        let value = sql.replace('?', &format!("${}", of.len()));
        arguments += &format!(", {name} => {value}");
    }
    let sql = format!("select jobs.update($1, reason => $2{arguments})");
    let Only(state) = change.call(&sql, &of).await?;
    Ok(state)
}

/// Replaces empty values, and refuses those for which Postgres would not name the field.
fn checked<'a>(name: &str, sql: &str, value: &'a str) -> Result<&'a str, Problem> {
    let wrong = match (sql, value) {
        (LINES, "") => None,
        (_, "") if name == "meta" => return Ok("{}"),
        (_, "") if name == "expires_at" => return Ok("infinity"),
        (_, "") => Some(format!("{name} must not be empty.")),
        (JSON, _) => serde_json::from_str::<IgnoredAny>(value).err().map(|error| error.to_string()),
        (NUMBER, _) => value.parse::<i32>().err().map(|error| error.to_string()),
        _ => None,
    };
    match wrong {
        Some(wrong) => {
            Err(Problem::bad_input(wrong, "Correct the value and try again.").about(name))
        }
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_empty_is_refused() {
        for (name, sql, _) in FIELDS {
            let expected = match name {
                "meta" => Some("{}"),
                "expires_at" => Some("infinity"),
                "tags" => Some(""),
                _ => None,
            };
            match checked(name, sql, "") {
                Ok(value) => assert_eq!(Some(value), expected, "{name}"),
                Err(wrong) => assert_eq!((wrong.field(), expected), (Some(name), None)),
            }
        }
    }
}
