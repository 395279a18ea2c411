//! An insert that is tried: what it would be unique by, and what would become of it.

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
use crate::console::times;
use crate::console::visit::{Change, Visit};

/// An insert that is tried.
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

/// Only reads, but args can be long, and do not belong into an address.
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
    let of = (
        json("unique_opts", &tried.unique_opts)?,
        json("meta", &tried.meta)?,
    );
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

/// Postgres says what is no JSON, but not in which field.
fn json<'a>(field: &str, text: &'a str) -> Result<Option<&'a str>, Problem> {
    let Some(text) = given(text) else {
        return Ok(None);
    };
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(Some(text)),
        Err(error) => {
            let message = format!("This is no JSON: {error}.");
            Err(Problem::bad_input(message, r#"Such as {"account": 7}."#).about(field))
        }
    }
}

pub(super) fn search_form(visit: &Visit, search: &str) -> Markup {
    html! {
        form.filter method="get" action=(visit.url("/unique")) role="search" {
            (fields::suggesting("search", "Key or id of a job", search, &[]))
            (parts::button("Who holds it?", Look::Primary))
        }
    }
}

pub(super) fn form(visit: &Visit, tried: &Try, wrong: Option<&Problem>) -> Markup {
    let beside_a_field = ["kind", "queue", "args", "meta", "unique_opts"];
    html! {
        section aria-labelledby="try" {
            h2 #try { "Try an insert" }
            @if visit.executes("explain_unique") {
                p {
                    "What a job would be unique by, and what would become of it now. "
                    "Nothing is inserted."
                }
                (fields::wrong(wrong, &beside_a_field))
                (visit.form("/unique/explain#answer", fields_of(tried, wrong)))
            } @else {
                p {
                    "Your role may not call " code { "jobs.explain_unique()" }
                    ": it takes an application, an operator or an admin."
                }
            }
        }
    }
}

fn fields_of(tried: &Try, wrong: Option<&Problem>) -> Markup {
    const ARGS: &str = r#"JSON, such as {"account": 7}."#;
    const OPTIONS: &str = r#"JSON, such as {"by_args": ["account"], "by_period": "1 day"}.
        Empty: as the kind says. {}: not unique."#;
    const QUEUE: &str = "Empty: as the kind says.";
    const META: &str = "A JSON object. It counts where by_meta is given.";
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
        section aria-labelledby="answer" {
            h2 #answer { "What would happen" }
            (parts::key_values(html! {
                (pair("An insert now", html! { strong { (would(visit, explained)) } }))
                @if let Some(key) = &explained.unique_key {
                    @let holders = visit.url(&parts::link("/unique", [("search", key)]));
                    (pair("Key", html! { code.key { (key) } " " a href=(holders) { "who is under it" } }))
                    (pair("Made from", html! {
                        @if let Some(canonical) = &explained.canonical { code.key { (text(canonical)) } }
                    }))
                    (pair("Policy, with all defaults", policy.map_or_else(parts::none, |policy| tree(policy, 2, None))))
                    (pair("Advisory lock", html! {
                        @if let Some(id) = explained.lock_id { code { (id) } }
                    }))
                }
            }))
        }
    }
}

/// What an insert would do, in words.
fn would(visit: &Visit, explained: &Explained) -> Markup {
    let job = html! {
        @if let Some(id) = explained.holder {
            a href=(visit.url(&links::job_path(id))) { "job " (id) }
            @match &explained.holder_state {
                Some(state) => { " (" (state) ")" }
                None => " (gone, and its hold goes on)",
            }
        }
    };
    match explained.would.as_str() {
        "insert" if explained.unique_key.is_none() => {
            html! { "inserts the job: it is not unique." }
        }
        "insert" => html! { "inserts the job: no other one is in its way." },
        "skip" => {
            html! { "inserts nothing, and answers with " (job) ", of which it is a duplicate." }
        }
        "reject" => html! { "fails with 23505: " (job) " is in its way." },
        "replace" => {
            html! {
                "cancels " (job) " and whatever else is in its way and not final, "
                "and inserts the job."
            }
        }
        "update" => html! { "inserts nothing, and changes " (job) " as the policy says." },
        other => html! { (other) " " (job) },
    }
}
