//! The errors of one job.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::console::json::{LARGEST, tree};
use crate::console::links;
use crate::console::paging;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::room::{long, text};
use crate::console::visit::{Only, Visit};

/// How many errors a page has.
const ROWS: i64 = 20;

/// A page of the errors of a job.
pub(crate) struct Errors {
    /// The total number of errors.
    pub(crate) count: i64,
    page: i64,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    attempt: i32,
    at: DateTime<Utc>,
    error: String,
    length: usize,
    details: Option<String>,
    worker: Option<String>,
}

/// The newest errors are on page 1.
pub(crate) async fn page(visit: &Visit, id: i64, page: i64) -> Result<Errors, Problem> {
    let count = "select count(*) from jobs.errors where job_id = $1";
    let Only(count) = visit.one::<Only<i64>>(count, &[&id]).await?;
    let page = page.clamp(1, (count.max(1) - 1) / ROWS + 1);
    let sql = "
        select attempt, at, left(error, 20000) as error, length(error) as length, worker,
               case when octet_length(details::text) <= $4 then details::text end as details
          from jobs.errors where job_id = $1 order by at desc, attempt desc
        offset $2 limit $3";
    let rows = visit.rows(sql, &[&id, &((page - 1) * ROWS), &ROWS, &LARGEST]).await?;
    Ok(Errors { count, page, rows })
}

impl Errors {
    pub(crate) fn shown(&self, visit: &Visit, id: i64) -> Markup {
        let url = |page: i64| visit.url(&format!("{}?errors={page}#errors", links::job_path(id)));
        let last = (self.count - 1) / ROWS + 1;
        html! {
            section.card aria-labelledby="errors" {
                h2 #errors { "Errors " span.quiet { (parts::number(self.count)) } }
                @for (n, row) in self.rows.iter().enumerate() {
                    (row.shown(visit, self.page == 1 && n == 0))
                }
                (paging::by_time(
                    (self.page > 1).then(|| url(self.page - 1)),
                    (self.page < last).then(|| url(self.page + 1)),
                ))
                @if last > 1 { p.quiet { "Page " (self.page) " of " (last) ", newest first." } }
            }
        }
    }
}

impl Row {
    fn shown(&self, visit: &Visit, is_open: bool) -> Markup {
        let details = self.details.as_deref().map(Details::of);
        let has_more = self.error.contains('\n') || details.as_ref().is_some_and(Details::is_there);
        let title = html! {
            "Attempt " (self.attempt) ", " (parts::ago(self.at))
            @if let Some(worker) = &self.worker {
                ", worker " (links::worker(visit, worker))
            }
        };
        html! {
            article.error-of-attempt {
                h3 { (title) }
                p.error { (text(self.error.lines().next().unwrap_or_default())) }
                @if has_more {
                    details open[is_open] {
                        summary { "Trace and details" }
                        @if self.error.contains('\n') { pre.trace { (long(&self.error)) } }
                        @if self.length > self.error.chars().count() {
                            p.quiet { "Truncated. The full text has " (parts::number(self.length as i64)) " characters." }
                        }
                        @if let Some(details) = &details { (details.shown()) }
                    }
                }
            }
        }
    }
}

/// The details of an error: the stack, if any, and the rest.
struct Details {
    trace: Option<String>,
    rest: Option<String>,
}

impl Details {
    fn of(text: &str) -> Self {
        let Ok(mut members) = serde_json::from_str::<Map<String, Value>>(text) else {
            return Self { trace: None, rest: Some(text.into()) };
        };
        let trace = members.get("trace").and_then(Value::as_str).map(str::to_owned);
        if trace.is_some() {
            members.remove("trace");
        }
        let rest = (!members.is_empty()).then(|| Value::Object(members).to_string());
        Self { trace, rest }
    }

    fn is_there(&self) -> bool {
        self.trace.is_some() || self.rest.is_some()
    }

    fn shown(&self) -> Markup {
        html! {
            @if let Some(trace) = &self.trace { pre.trace { (long(trace)) } }
            @if let Some(rest) = &self.rest { (tree(rest, 1, None)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_shown_as_it_is() {
        let details =
            Details::of(r#"{"type": "Boom", "code": 9007199254740993, "trace": "a\n  at <b>"}"#);
        assert_eq!(details.trace.as_deref(), Some("a\n  at <b>"));
        assert_eq!(details.rest.as_deref(), Some(r#"{"code":9007199254740993,"type":"Boom"}"#));
        assert!(details.shown().into_string().contains("at &lt;b&gt;"));
    }

    #[test]
    fn details_of_another_form_are_shown() {
        for text in ["[1]", r#"{"trace": ["a"]}"#, "null"] {
            let details = Details::of(text);
            assert!(details.trace.is_none() && details.rest.is_some(), "{text}");
        }
    }
}
