//! The payload of a job: args, meta, progress and output.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::job_read::{Carried, Job};
use crate::console::json::tree;
use crate::console::links;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::visit::{Only, Path, Query, Visit};

/// The payload columns. They are null for a role that may not see them.
const CARRIED: [&str; 4] = ["args", "meta", "progress", "output"];

impl Job {
    pub(super) fn carried(&self, visit: &Visit) -> Markup {
        let all = [&self.args, &self.meta, &self.progress, &self.output];
        html! {
            @for (name, carried) in CARRIED.into_iter().zip(all) {
                // Absent values are not shown. Hidden ones may exist.
                @let is_empty = carried.as_ref().is_some_and(|carried| name == "meta" && carried.size == 2);
                @let may_be = name == "args" || !visit.sees_payload() && (name == "meta" || self.may_have(name));
                @if may_be || carried.is_some() && !is_empty {
                    section.card aria-labelledby=(name) {
                        h2 id=(name) { (titled(name)) }
                        (self.shown(visit, name, carried.as_ref()))
                    }
                }
            }
        }
    }

    fn may_have(&self, name: &str) -> bool {
        match &*self.state {
            "running" => name == "progress",
            "completed" => name == "output",
            _ => false,
        }
    }

    fn shown(&self, visit: &Visit, name: &str, carried: Option<&Carried>) -> Markup {
        let raw = visit.url(&format!("{}/raw?what={name}", links::job_path(self.id)));
        match carried {
            Some(Carried { text: Some(text), .. }) => tree(text, 2, Some(&raw)),
            Some(Carried { size, .. }) => html! {
                p { (parts::bytes(*size)) ": too large to show. " a href=(raw) { "Raw" } }
            },
            None if visit.sees_payload() => html! { p.quiet { "None." } },
            None => html! { p.quiet { "Hidden from your role." } },
        }
    }
}

fn titled(name: &str) -> &'static str {
    match name {
        "args" => "Args",
        "meta" => "Meta",
        "progress" => "Progress",
        _ => "Output",
    }
}

#[derive(Deserialize)]
pub(crate) struct What {
    what: String,
}

/// A payload column as text.
pub(crate) async fn raw(
    visit: Visit,
    Path(id): Path<i64>,
    Query(asked): Query<What>,
) -> Result<Response, Problem> {
    let Some(name) = CARRIED.into_iter().find(|name| *name == asked.what) else {
        return Err(Problem::no_page());
    };
    let sql = format!("select {name}::text from jobs.jobs where id = $1");
    let found: Option<Only<Option<String>>> = visit.row(&sql, &[&id]).await?;
    match found {
        None => Err(Problem::not_found(&format!("Job {id}"))),
        Some(Only(None)) if !visit.sees_payload() => Err(Problem::no_payload(name)),
        Some(Only(text)) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            Ok((kind, text.unwrap_or_default()).into_response())
        }
    }
}
