//! Uniqueness: the jobs under a key.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::jobs_table;
use super::unique_try::{self, Try};
use crate::console::page::Screen;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::visit::{Query, Visit};
use crate::times;

/// How many jobs under a key are shown.
const SHOWN: usize = 50;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Search {
    search: String,
}

pub(crate) async fn unique(
    visit: Visit,
    Query(Search { search }): Query<Search>,
) -> Result<Response, Problem> {
    let (found, job) = look(&visit, search.trim()).await?;
    let main = html! {
        (unique_try::search_form(&visit, &search))
        (found)
        (unique_try::form(&visit, &job, None))
    };
    Ok(visit.still(Screen::Unique, "Uniqueness", main))
}

/// The claim of a key.
#[derive(Deserialize)]
struct Claim {
    holders: Vec<i64>,
    #[serde(deserialize_with = "times::bounded_option")]
    until: Option<DateTime<Utc>>,
}

/// A job, to fill in the form.
#[derive(Deserialize)]
struct Job {
    unique_key: Option<String>,
    kind: String,
    queue: String,
    args: Option<String>,
    meta: Option<String>,
}

/// The result of a search by key or job id, and the values for a trial insert of the job.
async fn look(visit: &Visit, search: &str) -> Result<(Markup, Try), Problem> {
    if search.is_empty() {
        return Ok((html! {}, Try::default()));
    }
    if search.len() == 64 && search.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok((claim(visit, &search.to_lowercase()).await?, Try::default()));
    }
    let Ok(id) = search.parse::<i64>() else {
        let what = html! { "A key has 64 hexadecimal digits. A job ID is a number." };
        return Ok((parts::empty("Not a key or job ID", what), Try::default()));
    };
    let sql = "
        select unique_key, kind, queue,
               case when length(args::text) <= 10000 then args::text end as args,
               case when length(meta::text) <= 10000 then nullif(meta, '{}')::text end as meta
          from jobs.jobs where id = $1";
    let job: Option<Job> = visit.row(sql, &[&id]).await?;
    let Some(job) = job else {
        let what = html! {
            "It was deleted, pruned or never inserted. A hold can outlive its job: search for the key."
        };
        return Ok((parts::empty(&format!("Job {id} does not exist"), what), Try::default()));
    };
    let found = match &job.unique_key {
        Some(key) => claim(visit, key).await?,
        None => parts::empty(
            &format!("Job {id} is not unique"),
            html! { "It was inserted without unique options." },
        ),
    };
    let job = Try {
        kind: job.kind,
        queue: job.queue,
        args: job.args.unwrap_or_default(),
        meta: job.meta.unwrap_or_default(),
        ..Try::default()
    };
    Ok((found, job))
}

/// The jobs under a key.
async fn claim(visit: &Visit, key: &str) -> Result<Markup, Problem> {
    let sql = "select holders, until from jobs.unique_claims where key_bytes = decode($1, 'hex')";
    let claim: Option<Claim> = visit.row(sql, &[&key]).await?;
    let Some(claim) = claim.filter(|claim| !claim.holders.is_empty()) else {
        let what = html! {
            "The next insert takes it."
        };
        return Ok(parts::empty("No job is under this key", what));
    };
    let mut newest = claim.holders.clone();
    newest.sort_unstable_by(|one, other| other.cmp(one));
    newest.truncate(SHOWN);
    let jobs = jobs_table::rows(visit, &newest).await?;
    let gone = newest.iter().filter(|id| jobs.iter().all(|job| job.id != **id));
    Ok(html! {
        (parts::section("holders", "Claim", html! {
            p { "Key " code.key { (key) } }
            p {
                @match claim.until {
                    Some(until) => {
                        "A hold keeps the key taken until " (parts::exactly(until)) ", "
                        (parts::until(until)) ", however its job ends."
                    }
                    None => {
                        "No hold. Each of these jobs conflicts with a new one while its state is in "
                        "the new job's " code { "by_state" } "."
                    }
                }
            }
            @if !jobs.is_empty() { (jobs_table::table(visit, "Jobs under the key", &jobs)) }
            @for id in gone { p { "Job " (id) " no longer exists, but its hold remains." } }
            @if claim.holders.len() > newest.len() {
                p.quiet {
                    "The newest " (newest.len()) " of "
                    (parts::number(claim.holders.len() as i64)) "."
                }
            }
        }))
    })
}
