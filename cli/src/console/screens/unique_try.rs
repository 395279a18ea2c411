//! A trial insert: its key, and its outcome.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::console::fields::{self, area, date_time, given, line};
use crate::console::json::tree;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Look, pair};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Change, Visit};
use crate::times;

/// The values of a trial insert.
#[derive(Default, Deserialize)]
pub(crate) struct Try {
    pub(super) kind: String,
    pub(super) queue: String,
    pub(super) args: String,
    pub(super) meta: String,
    pub(super) unique_opts: String,
    pub(super) scheduled_at: String,
}

#[derive(Deserialize)]
struct Explained {
    canonical: Option<String>,
    unique_key: Option<String>,
    lock_id: Option<i64>,
    policy: Option<String>,
    holder: Option<i64>,
    holder_state: Option<String>,
    would: String,
}

/// A POST, since args can be too long for an address. It only reads.
pub(crate) async fn explain(change: Change<Try>) -> Result<Response, Problem> {
    let Change { visit, form: tried } = change;
    let explained = ask(&visit, &tried).await;
    let main = html! {
        (search_form(&visit, ""))
        @if let Ok(explained) = &explained { (answer(&visit, explained)) }
        (form(&visit, &tried, explained.as_ref().err()))
    };
    let wrong = explained.as_ref().err();
    Ok(visit.with_form(Screen::Unique, "Uniqueness", main, wrong))
}

async fn ask(visit: &Visit, tried: &Try) -> Result<Explained, Problem> {
    let args = json("args", &tried.args)?.unwrap_or("{}");
    let of = (json("unique_opts", &tried.unique_opts)?, json("meta", &tried.meta)?);
    visit
        .one(
            "select canonical, unique_key, lock_id, policy::text, holder, holder_state, would
               from jobs.explain_unique($1, $2::text::jsonb, $3::text::jsonb, $4, $5::text::jsonb,
                                        $6)",
            &[
                &tried.kind.trim(),
                &args,
                &of.0,
                &given(&tried.queue),
                &of.1,
                &times::typed("scheduled at", &tried.scheduled_at)?,
            ],
        )
        .await
}

/// Checks JSON here, since Postgres does not name the field.
fn json<'a>(field: &str, text: &'a str) -> Result<Option<&'a str>, Problem> {
    let Some(text) = given(text) else {
        return Ok(None);
    };
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(Some(text)),
        Err(error) => {
            let message = format!("Invalid JSON: {error}.");
            Err(Problem::bad_input(message, r#"Enter JSON such as {"account": 7}."#).about(field))
        }
    }
}

pub(super) fn search_form(visit: &Visit, search: &str) -> Markup {
    html! {
        form.filter method="get" action=(visit.url("/unique")) role="search" {
            (fields::suggesting("search", "Key or job ID", search, &[]))
            (parts::button("Search", Look::Primary))
        }
    }
}

pub(super) fn form(visit: &Visit, tried: &Try, wrong: Option<&Problem>) -> Markup {
    let beside_a_field = ["kind", "queue", "args", "meta", "unique_opts"];
    html! {
        (parts::section("try", "Trial insert", html! {
            @if visit.executes("explain_unique") {
                p {
                    "Shows a job's key and what an insert would do now. Nothing is inserted."
                }
                (fields::wrong(wrong, &beside_a_field))
                (visit.form("/unique/explain#answer", fields_of(tried, wrong)))
            } @else {
                p {
                    "Your role may not call " code { "jobs.explain_unique()" }
                    ". It needs jobs.grant_application, jobs.grant_operator or jobs.grant_admin."
                }
            }
        }))
    }
}

fn fields_of(tried: &Try, wrong: Option<&Problem>) -> Markup {
    const ARGS: &str = r#"JSON, such as {"account": 7}."#;
    const OPTIONS: &str = r#"JSON, such as {"by_args": ["account"], "by_period": "1 day"}.
        Empty: the kind's default. {}: not unique."#;
    const QUEUE: &str = "Empty: the kind's default.";
    const META: &str = "A JSON object, used by by_meta.";
    html! {
        div.fields {
            (line("kind", "Kind", "", &tried.kind, wrong))
            (line("queue", "Queue", QUEUE, &tried.queue, wrong))
        }
        (area("args", "Args", ARGS, &tried.args, wrong))
        (area("unique_opts", "Unique options", OPTIONS, &tried.unique_opts, wrong))
        (area("meta", "Meta", META, &tried.meta, wrong))
        (date_time("scheduled_at", "Scheduled at", &tried.scheduled_at))
        div.actions { (parts::button("Explain", Look::Primary)) }
    }
}

fn answer(visit: &Visit, explained: &Explained) -> Markup {
    let policy = explained.policy.as_deref();
    html! {
        (parts::section("answer", "Result", html! {
            (parts::key_values(html! {
                (pair("Insert", html! { strong { (would(visit, explained)) } }))
                @if let Some(key) = &explained.unique_key {
                    @let holders = visit.url(&parts::link("/unique", [("search", key)]));
                    (pair("Key", html! { code.key { (key) } " " a href=(holders) { "Show jobs" } }))
                    (pair("Canonical text", html! {
                        @if let Some(canonical) = &explained.canonical { code.key { (text(canonical)) } }
                    }))
                    (pair("Full policy", policy.map_or_else(parts::none, |policy| tree(policy, 2, None))))
                    (pair("Advisory lock", html! {
                        @if let Some(id) = explained.lock_id { code { (id) } }
                    }))
                }
            }))
        }))
    }
}

/// The outcome of the insert, in words.
fn would(visit: &Visit, explained: &Explained) -> Markup {
    let job = html! {
        @if let Some(id) = explained.holder {
            a href=(visit.url(&links::job_path(id))) { "job " (id) }
            @match &explained.holder_state {
                Some(state) => { " (" (state) ")" }
                None => " (deleted, but its hold remains)",
            }
        }
    };
    match explained.would.as_str() {
        "insert" if explained.unique_key.is_none() => {
            html! { "Inserts the job: it is not unique." }
        }
        "insert" => html! { "Inserts the job: nothing conflicts." },
        "skip" => {
            html! { "Inserts nothing and returns " (job) "." }
        }
        "reject" => html! { "Fails with 23505: " (job) " conflicts." },
        "replace" => {
            html! {
                "Cancels " (job) " and every other conflicting job that is not final, "
                "then inserts the job."
            }
        }
        "update" => html! { "Inserts nothing and updates " (job) " by the policy." },
        other => html! { (other) " " (job) },
    }
}
