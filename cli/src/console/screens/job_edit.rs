//! The form that changes a job that waits.

use axum::response::Response;
use maud::{Markup, html};
use tokio_postgres::types::ToSql;

use super::job::{self, Job};
use super::job_actions::lost;
use crate::console::fields::{self, area, given, hidden, line, reason};
use crate::console::json::LARGEST;
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Only, Path, Visit};

/// What can be changed: the names of parameters of jobs.update, how their texts become values
/// there, and labels.
const FIELDS: [(&str, &str, &str); 10] = [
    ("args", JSON, "Args"),
    ("meta", JSON, "Meta"),
    ("queue", "?::text", "Queue"),
    ("priority", NUMBER, "Priority"),
    ("scheduled_at", TIME, "Due"),
    ("expires_at", TIME, "Expires"),
    ("max_attempts", NUMBER, "Attempts at most"),
    ("timeout", INTERVAL, "Timeout of an attempt"),
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
        "queue" => "An available job goes to the end of its lane there.",
        "priority" => "The lower number is fetched first.",
        "scheduled_at" => "In UTC, such as 2026-01-31 18:30.",
        "expires_at" => "In UTC; infinity: never.",
        "max_attempts" => "The first one counts.",
        "timeout" => "Such as 5 minutes; -1 second: no limit.",
        "tags" => "One a line.",
        _ => "JSON: a name in quotes, or an object.",
    }
}

const VALUES: &str = "
    select case args when '{}' then '{}' else jsonb_pretty(args) end as args,
           case meta when '{}' then '{}' else jsonb_pretty(meta) end as meta, queue, priority::text,
           to_char(scheduled_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') as scheduled_at,
           case when isfinite(expires_at) then to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
                else expires_at::text end as expires_at,
           max_attempts::text, array_to_string(tags, E'\\n') as tags, timeout::text,
           jsonb_pretty(retry) as retry
      from jobs.jobs where id = $1";

/// Texts by the names of fields. In the form each value is there twice, the second time as it was.
/// So only what somebody has changed is given to jobs.update. A queue or priority moves an
/// available job, even one that it has already.
struct Values(Vec<(String, String)>);

/// What a field of the form is called that says what a value was.
fn was(name: &str) -> String {
    format!("was_{name}")
}

impl Values {
    async fn of(visit: &Visit, id: i64) -> Result<Self, Problem> {
        let row: Option<serde_json::Map<String, serde_json::Value>> =
            visit.row(VALUES, &[&id]).await?;
        let row = row.ok_or_else(|| Problem::not_found(&format!("job {id}")))?;
        let mut all = Vec::new();
        for (name, value) in row {
            let value = value.as_str().unwrap_or_default();
            // What is hidden or too large is not in the form.
            let is_carried = name == "args" || name == "meta";
            if !is_carried || visit.sees_payload() && value.len() <= LARGEST as usize {
                all.push((was(&name), value.to_owned()));
                all.push((name, value.to_owned()));
            }
        }
        Ok(Self(all))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(of, _)| of == name)
    }

    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(of, _)| of == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// What it is to become; none: it stays as it is. Browsers end lines in their own way.
    fn changed(&self, name: &str) -> Result<Option<String>, Problem> {
        let [now, was] = [name, &was(name)].map(|name| self.get(name).replace("\r\n", "\n"));
        match &*now {
            _ if now == was => Ok(None),
            "" => match name {
                "meta" => Ok(Some("{}".into())),
                "expires_at" => Ok(Some("infinity".into())),
                "tags" => Ok(Some(now)),
                _ => Err(Problem::bad_input(
                    format!("{name} cannot be empty."),
                    "Leave it as it was, or write another value.",
                )
                .about(name)),
            },
            _ => Ok(Some(now)),
        }
    }
}

impl Values {
    /// Refuses to undo what somebody else has changed since the form was made. The form then has
    /// that as what was.
    fn is_as_it_was(&mut self, name: &str, now: &Values) -> Result<(), Problem> {
        let was = was(name);
        let plain = |text: &str| text.replace("\r\n", "\n");
        let present = now.get(name).to_owned();
        if plain(self.get(&was)) == plain(&present) {
            return Ok(());
        }
        if let Some((_, value)) = self.0.iter_mut().find(|(of, _)| *of == was) {
            value.clone_from(&present);
        }
        let present = if present.is_empty() {
            "empty"
        } else {
            &present
        };
        Err(Problem::bad_input(
            format!("Somebody else has changed this meanwhile. Now it is {present}."),
            "To set what you have typed all the same, change the job again.",
        )
        .about(name))
    }
}

pub(crate) async fn page(visit: Visit, Path(id): Path<i64>) -> Result<Response, Problem> {
    let job = job::look(&visit, id).await?;
    if !visit.may("update") {
        return Err(Problem::forbidden(
            "This role may not change jobs.",
            "A role can be let by jobs.grant_application, or by GRANT EXECUTE ON FUNCTION jobs.update.",
        ));
    }
    if !job.waits() {
        let message = format!("Job {id} is {}.", job.state);
        return Err(Problem::bad_input(
            message,
            "Only a job that waits can be changed.",
        ));
    }
    let values = Values::of(&visit, id).await?;
    Ok(form(&visit, &job, &values, None))
}

fn form(visit: &Visit, job: &Job, values: &Values, wrong: Option<&Problem>) -> Response {
    let main = html! {
        p.lead { (parts::state(&job.state)) " " strong { bdi { (job.kind) } } }
        p { "What you leave as it is stays as it is. The job keeps its unique key." }
        (fields::wrong(wrong, &FIELDS.map(|(name, ..)| name)))
        (visit.form(&(job::path(job.id) + "/edit"), fields_of(visit, job, values, wrong)))
    };
    visit.with_form(Screen::Jobs, &format!("Edit job {}", job.id), main, wrong)
}

fn fields_of(visit: &Visit, job: &Job, values: &Values, wrong: Option<&Problem>) -> Markup {
    let (long, short): (Vec<_>, Vec<_>) = FIELDS
        .into_iter()
        .partition(|(_, sql, ..)| [JSON, LINES].contains(sql));
    html! {
        @for (name, ..) in FIELDS {
            @let name = was(name);
            @if values.has(&name) { (hidden(&name, values.get(&name))) }
        }
        @if !visit.sees_payload() {
            p.quiet { "Args and meta are hidden from your role, and stay as they are." }
        }
        @for (name, _, label) in long {
            @if values.has(name) {
                (area(name, label, help(name), values.get(name), wrong))
            } @else if visit.sees_payload() {
                p.quiet { (label) " is too large to be edited here: jobs.update changes it." }
            }
        }
        div.fields {
            @for (name, _, label) in short {
                (line(name, label, help(name), values.get(name), wrong))
            }
        }
        (reason())
        div.actions {
            (parts::button("Change the job", Look::Primary))
            (parts::link_button("Back", &visit.url(&job::path(job.id)), Look::Plain))
        }
    }
}

pub(crate) async fn update(
    Path(id): Path<i64>,
    change: Change<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let mut values = Values(change.form.clone());
    let wrong = match give(&change, id, &mut values).await {
        Ok(state) => {
            let message = format!("Job {id} is changed. It is {state}.");
            return Ok(change.done(&job::path(id), message));
        }
        Err(wrong) => wrong,
    };
    // What was typed is shown again, with what is wrong with it.
    match wrong.sqlstate() {
        Some(code) if !code.starts_with("22") => lost(&change, id, wrong),
        _ => {
            let job = job::look(&change.visit, id).await?;
            let wrong = wrong.about_quoted(FIELDS.map(|(name, ..)| (name, values.get(name))));
            Ok(form(&change.visit, &job, &values, Some(&wrong)))
        }
    }
}

async fn give(
    change: &Change<Vec<(String, String)>>,
    id: i64,
    values: &mut Values,
) -> Result<String, Problem> {
    let mut changed = Vec::new();
    for (name, sql, ..) in FIELDS {
        if let Some(value) = values.changed(name)? {
            check(name, sql, &value)?;
            changed.push((name, sql, value));
        }
    }
    if changed.is_empty() {
        return Err(Problem::bad_input(
            "Nothing was changed.",
            "Change a field, or go back.",
        ));
    }
    let now = Values::of(&change.visit, id).await?;
    for (name, ..) in &changed {
        values.is_as_it_was(name, &now)?;
    }
    let reason = given(values.get("reason"));
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

/// What Postgres would refuse without saying which field it is.
fn check(name: &str, sql: &str, value: &str) -> Result<(), Problem> {
    let wrong = match sql {
        JSON => serde_json::from_str::<serde::de::IgnoredAny>(value)
            .err()
            .map(|error| error.to_string()),
        NUMBER => value.parse::<i32>().err().map(|error| error.to_string()),
        _ => None,
    };
    match wrong {
        Some(wrong) => Err(Problem::bad_input(wrong, "Correct it, and try again.").about(name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[(&str, &str)]) -> Values {
        Values(
            of.iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        )
    }

    #[test]
    fn what_is_left_as_it_was_is_not_given() {
        let same = values(&[
            ("args", "{\r\n  \"n\": 1\r\n}"),
            ("was_args", "{\n  \"n\": 1\n}"),
        ]);
        assert!(matches!(same.changed("args"), Ok(None)));
        // A field that the form does not have.
        assert!(matches!(same.changed("meta"), Ok(None)));
        let other = values(&[("priority", "2"), ("was_priority", "1")]);
        assert!(matches!(other.changed("priority"), Ok(Some(two)) if two == "2"));
    }

    #[test]
    fn what_cannot_be_empty_is_refused() {
        let emptied = |name: &str| values(&[(name, " "), (&was(name), "x")]).changed(name);
        assert!(emptied("queue").is_err_and(|wrong| wrong.field() == Some("queue")));
        assert!(matches!(emptied("expires_at"), Ok(Some(never)) if never == "infinity"));
        assert!(matches!(emptied("tags"), Ok(Some(none)) if none.is_empty()));
    }
}
