//! One limit: its keys, and what can be changed.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::limit_read::{self, Key, Limit};
use super::limit_set::KEY;
use super::named::{Call, Form, Name};
use super::setting::Setting;
use super::{keys, limit_set, list};
use crate::console::fields::{given, hidden, reason};
use crate::console::http::is_path;
use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::{Change, Query, Visit};

/// The path of the list.
pub(super) const LIST: &str = "/limits";

pub(crate) async fn limit(
    visit: Visit,
    Query(Name { name }): Query<Name>,
) -> Result<Response, Problem> {
    let limit = limit_read::look(&visit, &name).await?;
    let set = limit_set::setting(&limit);
    page(&visit, &limit, &set, None).await
}

/// The page with this setting in the form, and its problem.
async fn page(
    visit: &Visit,
    limit: &Limit,
    set: &Setting,
    wrong: Option<&Problem>,
) -> Result<Response, Problem> {
    let path = links::limit_path(&limit.name);
    let keys = limit_read::keys(visit, &limit.name, list::ROWS).await?;
    let running = limit.running.map(|running| ("Running", running));
    let main = html! {
        p.path { a href=(visit.url(LIST)) { "Limits" } }
        (visit.live("jobs-of-limit", &path, html! {
            @if let Some(paused) = limit.paused() { p { (paused) } }
            p { (limit.covers(visit)) }
            (parts::counts(running.into_iter().chain([("Held", limit.held)])))
        }))
        @if limit.queue().is_none() {
            div.actions { (actions(visit, limit, &path)) (DROP.offer(visit, &limit.name, LIST)) }
        }
        (parts::section("limit", "Limit", html! {
            @if limit.queue().is_none() && visit.may("define_limit") {
                (limit_set::form(visit, "/limit/set#limit", set, wrong))
            } @else {
                p { @match limit.at_most() { Some(most) => (most), None => "No limit" } "." }
            }
        }))
        @if limit.by.is_some() {
            (parts::section("keys", "Keys", html! {
                (shown(visit, limit, &keys))
                @if visit.may("override_limit") {
                    (parts::link_button("Override a key", &visit.url(&links::limit_key_path(&limit.name, "")), Look::Plain))
                }
            }))
        }
        (links::audit(visit, &limit.name))
    };
    Ok(visit.with_form(Screen::Limits, &limit.name, main, wrong))
}

fn shown(visit: &Visit, limit: &Limit, keys: &[Key]) -> Markup {
    let back = links::limit_path(&limit.name);
    let rows = keys.iter().map(|key| keys::Row {
        key: key.key.as_ref().map(|value| links::limit_key(visit, &limit.name, value)),
        notes: key.notes(),
        counts: [parts::count(key.running, false), parts::count(key.held, false)],
        actions: key.key.as_ref().map(|value| {
            pause_or_resume(visit, &limit.name, value, key.paused_at.is_some(), &back)
        }),
    });
    html! {
        @if keys.is_empty() {
            p { "No key has running or held jobs, an override or a pause." }
        } @else {
            (keys::table(["Running", "Held"], rows))
            @if limit.keys > Some(list::ROWS) {
                p.quiet { "The " (parts::number(list::ROWS)) " keys with most held jobs." }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct KeyQuery {
    name: String,
    /// As JSON; empty for one that is yet to be given.
    #[serde(default)]
    key: String,
}

pub(crate) async fn key(
    visit: Visit,
    Query(KeyQuery { name, key }): Query<KeyQuery>,
) -> Result<Response, Problem> {
    if !visit.sees_payload() {
        return Err(Problem::no_page());
    }
    let limit = limit_read::look(&visit, &name).await?;
    let found = read_key(&visit, &name, &key).await?;
    let set = limit_set::key_setting(&limit, &key, &found);
    key_page(&visit, &limit, &found, &set, None)
}

/// A key that is no JSON is none.
async fn read_key(visit: &Visit, name: &str, key: &str) -> Result<Key, Problem> {
    match serde_json::from_str::<serde_json::Value>(key) {
        Ok(_) => limit_read::key(visit, name, key).await,
        Err(_) => Ok(Key::default()),
    }
}

/// The page of a key with this setting in the form, and its problem.
fn key_page(
    visit: &Visit,
    limit: &Limit,
    key: &Key,
    set: &Setting,
    wrong: Option<&Problem>,
) -> Result<Response, Problem> {
    let value = set.get(KEY);
    let main = html! {
        p.path { a href=(visit.url(LIST)) { "Limits" } " / " (links::limit(visit, &limit.name)) }
        @if !value.is_empty() {
            p { code { (text(value)) } }
            (key.notes())
            (parts::counts([("Running", key.running), ("Held", key.held)]))
            div.actions {
                (pause_or_resume(visit, &limit.name, value, key.paused_at.is_some(), &links::limit_key_path(&limit.name, value)))
            }
        }
        @if visit.may("override_limit") {
            (parts::section("override", "Override", html! {
                (limit_set::form(visit, "/limit/override#override", set, wrong))
            }))
        }
    };
    Ok(visit.with_form(Screen::Limits, "Key of a limit", main, wrong))
}

pub(crate) async fn set(mut change: Change<Setting>) -> Result<Response, Problem> {
    let limit = limit_read::look(&change.visit, &change.form.name).await?;
    let now = limit_set::setting(&limit).values;
    let Err(wrong) = limit_set::define(&mut change, &now).await else {
        let name = &change.form.name;
        return Ok(change.done(&links::limit_path(name), format!("Limit {name} saved.")));
    };
    page(&change.visit, &limit, &change.form, Some(&wrong)).await
}

pub(crate) async fn override_key(mut change: Change<Setting>) -> Result<Response, Problem> {
    let limit = limit_read::look(&change.visit, &change.form.name).await?;
    let key = read_key(&change.visit, &limit.name, change.form.get(KEY)).await?;
    let now = limit_set::key_setting(&limit, change.form.get(KEY), &key).values;
    let Err(wrong) = limit_set::set_key(&mut change, &now).await else {
        let name = &change.form.name;
        return Ok(
            change.done(&links::limit_path(name), format!("Override of limit {name} saved."))
        );
    };
    key_page(&change.visit, &limit, &key, &change.form, Some(&wrong))
}

const DROP: Call = Call {
    path: "/limit/drop",
    function: "drop_limit",
    label: "Drop",
    question: "Removes {name}, its overrides and pauses. Jobs that it holds can start.",
    button: "Drop limit",
    look: Look::Danger,
};

pub(crate) async fn drop(change: Change<Form>) -> Result<Response, Problem> {
    DROP.run(change, "Limit", "is dropped.").await
}

pub(super) fn actions(visit: &Visit, limit: &Limit, back: &str) -> Markup {
    pause_or_resume(visit, &limit.name, "", limit.paused_at.is_some(), back)
}

/// Offers to pause or resume a limit, or a key of it.
fn pause_or_resume(visit: &Visit, name: &str, key: &str, is_paused: bool, back: &str) -> Markup {
    let (function, path, label, question, look) = match is_paused {
        false => (
            "pause_limit",
            "/limit/pause",
            "Pause",
            "No job under it starts until you resume it. Running jobs are unaffected.",
            Look::Danger,
        ),
        true => ("resume_limit", "/limit/resume", "Resume", "Its jobs start again.", Look::Primary),
    };
    let fields = html! {
        (hidden("name", name))
        (hidden("key", key))
        (hidden("back", back))
        (reason())
        (parts::button(&format!("{label} {}", if key.is_empty() { "limit" } else { "key" }), look))
    };
    html! {
        @if visit.may(function) { (parts::confirm(label, question, visit.form(path, fields))) }
    }
}

#[derive(Deserialize)]
pub(crate) struct PauseForm {
    name: String,
    /// As JSON; empty: the limit itself.
    key: String,
    back: String,
    reason: String,
}

pub(crate) async fn pause(change: Change<PauseForm>) -> Result<Response, Problem> {
    run(change, "pause_limit", "is paused.").await
}

pub(crate) async fn resume(change: Change<PauseForm>) -> Result<Response, Problem> {
    run(change, "resume_limit", "is resumed.").await
}

async fn run(change: Change<PauseForm>, function: &str, done: &str) -> Result<Response, Problem> {
    let PauseForm { name, key, back, reason } = &change.form;
    let sql = format!("select from jobs.{function}($1, $2::text::jsonb, $3)");
    change.run(&sql, &[name, &given(key), &given(reason)]).await?;
    let back = if is_path(back) { back } else { LIST };
    let what = given(key).map_or("Limit".into(), |key| format!("Key {key} of limit"));
    Ok(change.done(back, format!("{what} {name} {done}")))
}
