//! The unique key of a job, and the jobs under it.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::job::Job;
use super::job_rows::readable;
use super::parts;
use super::problem::Problem;
use super::visit::Visit;

/// The jobs under a key.
#[derive(Deserialize)]
pub(super) struct Holders {
    holders: Vec<i64>,
    until: Option<DateTime<Utc>>,
    states: Vec<(i64, String)>,
}

pub(super) async fn holders(visit: &Visit, key: &str) -> Result<Option<Holders>, Problem> {
    let sql = concat!(
        "select c.holders, ",
        readable!("c.until"),
        " as until, (select coalesce(jsonb_agg(jsonb_build_array(h.id, j.state)), '[]')
                       from unnest(c.holders[1:20]) h(id),
                            lateral (select state from jobs.jobs where id = h.id offset 0) j) as states
          from jobs.unique_claims c where c.key_bytes = decode($1, 'hex')"
    );
    visit.row(sql, &[&key]).await
}

impl Job {
    pub(super) fn unique(&self, visit: &Visit, holders: Option<&Holders>) -> Markup {
        let Some(key) = &self.unique_key else {
            return html! {};
        };
        let url = visit.url(&parts::link("/unique", &[("search", key)]));
        html! {
            section.card aria-labelledby="unique" {
                h2 #unique { "Unique key" }
                p { a href=(url) { code { (key) } } }
                @match holders {
                    None => p { "No job is under this key any more." },
                    Some(holders) => (self.under_the_key(visit, holders)),
                }
            }
        }
    }

    fn under_the_key(&self, visit: &Visit, holders: &Holders) -> Markup {
        let state = |id: i64| holders.states.iter().find(|(of, _)| *of == id);
        html! {
            @if !holders.holders.contains(&self.id) {
                p { "A later job has taken its place under the key:" }
            } @else {
                p { "Jobs under this key:" }
            }
            ul.holders {
                @for id in holders.holders.iter().take(20) {
                    li {
                        @if *id == self.id { "this job" } @else {
                            a href=(visit.url(&format!("/jobs/{id}"))) { "job " (id) }
                        }
                        @match state(*id) {
                            Some((_, state)) => { " " (parts::state(state)) }
                            None => " (gone; its hold goes on)",
                        }
                    }
                }
                @if holders.holders.len() > 20 { li { "and " (holders.holders.len() - 20) " more" } }
            }
            @if let Some(until) = holders.until { p { "The key is held until " (parts::exactly(until)) "." } }
        }
    }
}
