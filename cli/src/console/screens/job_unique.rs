//! The unique key of a job, and its claim.

use maud::{Markup, html};
use serde::Deserialize;

use super::job_read::Job;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::visit::Visit;

/// How many jobs are under a key, and whether this one is.
#[derive(Deserialize)]
pub(super) struct Claim {
    is_its_own: bool,
    others: i32,
}

/// The claim of a job's key, or none if no job is under the key.
pub(super) async fn claim(visit: &Visit, id: i64, key: &str) -> Result<Option<Claim>, Problem> {
    let sql = "
        select $1 = any(holders) as is_its_own, cardinality(array_remove(holders, $1)) as others
          from jobs.unique_claims where key_bytes = decode($2, 'hex')";
    visit.row(sql, &[&id, &key]).await
}

impl Job {
    pub(super) fn unique(&self, visit: &Visit, claim: Option<&Claim>) -> Markup {
        let Some(key) = &self.unique_key else {
            return html! {};
        };
        let url = visit.url(&parts::link("/unique", [("search", key)]));
        html! {
            section.card aria-labelledby="unique" {
                h2 #unique { "Unique key" }
                p { a href=(url) { code.key { (key) } } }
                p {
                    @match claim {
                        Some(Claim { is_its_own: true, others: 0 }) => "This is the only job under the key.",
                        Some(Claim { is_its_own: true, others }) => {
                            "This job and " (parts::plural((*others).into(), "other")) " are under the key."
                        }
                        Some(_) => "A later job has replaced this one under the key.",
                        None => "No job is under the key.",
                    }
                }
            }
        }
    }
}
