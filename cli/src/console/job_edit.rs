//! The form that changes a job that waits.

use axum::response::Response;
use maud::{Markup, html};

use super::fields::{area, given, hidden, line, reason};
use super::job::{self, Job};
use super::job_change::{Now, lost};
use super::page::Screen;
use super::parts::{self, Kind};
use super::problem::Problem;
use super::role::Parameters;
use super::visit::{Change, Path, Visit};

/// Above this, args and meta are not edited in a page.
const LARGEST: usize = 256 * 1024;

/// What can be changed, by the name of its parameter of jobs.update, as text.
const NAMES: [&str; 10] = [
    "args",
    "meta",
    "queue",
    "priority",
    "scheduled_at",
    "expires_at",
    "max_attempts",
    "tags",
    "timeout",
    "retry",
];

const VALUES: &str = "
    select case args when '{}' then '{}' else jsonb_pretty(args) end as args,
           case meta when '{}' then '{}' else jsonb_pretty(meta) end as meta, queue, priority::text,
           to_char(scheduled_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') as scheduled_at,
           case when isfinite(expires_at) then to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
                else expires_at::text end as expires_at,
           max_attempts::text, array_to_string(tags, ', ') as tags, timeout::text,
           jsonb_pretty(retry) as retry
      from jobs.jobs where id = $1";

/// Texts by the names of fields. In the form each value is there twice, the second time as it was,
/// so that only what somebody has changed is given to jobs.update: a queue or priority moves an
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
            if !is_carried || visit.sees_payload() && value.len() <= LARGEST {
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

pub(super) async fn page(visit: Visit, Path(id): Path<i64>) -> Result<Response, Problem> {
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
    let is_of_a_field =
        |wrong: &&Problem| wrong.field().is_some_and(|field| NAMES.contains(&field));
    let main = html! {
        p.lead { (parts::state(&job.state)) " " strong { bdi { (job.kind) } } }
        p { "What you leave as it is stays as it is. The job keeps its unique key." }
        @if let Some(wrong) = wrong.filter(|wrong| !is_of_a_field(wrong)) {
            div.wrong role="alert" { (wrong.said()) }
        }
        (visit.form(&format!("/jobs/{}/edit", job.id), fields(visit, job, values, wrong)))
    };
    let mut response = visit.still(Screen::Jobs, &format!("Edit job {}", job.id), main);
    if let Some(wrong) = wrong {
        *response.status_mut() = wrong.status;
    }
    response
}

fn fields(visit: &Visit, job: &Job, values: &Values, wrong: Option<&Problem>) -> Markup {
    let text = |name, label, help| line(name, label, help, values.get(name), wrong);
    let json = |name, label, help| area(name, label, help, values.get(name), wrong);
    html! {
        @for name in NAMES {
            @let name = was(name);
            @if values.has(&name) { (hidden(&name, values.get(&name))) }
        }
        @if !visit.sees_payload() {
            p.quiet { "Args and meta are hidden from your role, and stay as they are." }
        }
        @for (name, label, help) in [("args", "Args", "JSON."), ("meta", "Meta", "A JSON object.")] {
            @if values.has(name) {
                (json(name, label, help))
            } @else if visit.sees_payload() {
                p.quiet { (label) " is too large to be edited here: jobs.update changes it." }
            }
        }
        div.fields {
            (text("queue", "Queue", "An available job goes to the end of its lane there."))
            (text("priority", "Priority", "The lower number is fetched first."))
            (text("scheduled_at", "Due", "In UTC, such as 2026-01-31 18:30."))
            (text("expires_at", "Expires", "In UTC; infinity: never."))
            (text("max_attempts", "Attempts at most", "The first one counts."))
            (text("tags", "Tags", "With commas between them."))
            (text("timeout", "Timeout of an attempt", "Such as 5 minutes; -1 second: no limit."))
        }
        (json("retry", "Retry policy", "JSON: a name in quotes, or an object."))
        (reason())
        div.actions {
            (parts::button("Change the job", Kind::Primary))
            (parts::link_button("Back", &visit.url(&format!("/jobs/{}", job.id)), Kind::Plain))
        }
    }
}

const UPDATE: &str = "
    select jobs.update($1, args => $2::text::jsonb, meta => $3::text::jsonb, queue => $4,
        priority => $5::text::integer,
        scheduled_at => ($6::text || case when $6 ~ 'infinity' then '' else ' UTC' end)::timestamptz,
        expires_at => ($7::text || case when $7 ~ 'infinity' then '' else ' UTC' end)::timestamptz,
        max_attempts => $8::text::integer,
        tags => array_remove(regexp_split_to_array(trim($9::text), '\\s*,\\s*'), ''),
        timeout => $10::text::interval, retry => $11::text::jsonb, reason => $12) as state";

pub(super) async fn update(
    Path(id): Path<i64>,
    change: Change<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let values = Values(change.form.clone());
    let wrong = match give(&change, id, &values).await {
        Ok(state) => {
            let message = format!("Job {id} is changed. It is {state}.");
            return Ok(change.done(&format!("/jobs/{id}"), message));
        }
        Err(wrong) => wrong,
    };
    // What was typed is shown again, with what is wrong with it.
    match wrong.sqlstate() {
        Some(code) if !code.starts_with("22") => lost(&change, id, wrong),
        _ => {
            let job = job::look(&change.visit, id).await?;
            Ok(form(&change.visit, &job, &values, Some(&wrong)))
        }
    }
}

async fn give(
    change: &Change<Vec<(String, String)>>,
    id: i64,
    values: &Values,
) -> Result<String, Problem> {
    let changed: Vec<_> = NAMES
        .map(|name| values.changed(name))
        .into_iter()
        .collect::<Result<_, _>>()?;
    if changed.iter().all(Option::is_none) {
        return Err(Problem::bad_input(
            "Nothing was changed.",
            "Change a field, or go back.",
        ));
    }
    let reason = given(values.get("reason"));
    let [
        args,
        meta,
        queue,
        priority,
        scheduled_at,
        expires_at,
        max_attempts,
        tags,
        timeout,
        retry,
    ] = &changed[..]
    else {
        unreachable!("as many as there are names")
    };
    let of: Parameters = &[
        &id,
        args,
        meta,
        queue,
        priority,
        scheduled_at,
        expires_at,
        max_attempts,
        tags,
        timeout,
        retry,
        &reason,
    ];
    let now: Option<Now> = change.call(UPDATE, of).await?;
    Ok(now.map(|now| now.state).unwrap_or_default())
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
