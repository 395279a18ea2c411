//! The timeline of a job.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::job_read::Job;
use crate::console::parts;
use crate::console::problem::Problem;
use crate::console::room::text;
use crate::console::visit::Visit;

/// How many failed attempts are shown here. The others are among the errors.
const ATTEMPTS: i64 = 10;

/// A past or future event.
struct Event {
    at: DateTime<Utc>,
    class: &'static str,
    what: Markup,
}

impl Event {
    /// An attempt fails, and with it, at the same moment, the job.
    fn place(&self) -> (DateTime<Utc>, usize) {
        let order = ["inserted", "began", "failed", "asked", "managed", "final", "next"];
        let place = order.iter().position(|class| *class == self.class);
        (self.at, place.unwrap_or(order.len()))
    }
}

#[derive(Deserialize)]
struct Failed {
    attempt: i32,
    at: DateTime<Utc>,
    error: String,
    worker: Option<String>,
}

#[derive(Deserialize)]
struct Managed {
    at: DateTime<Utc>,
    role: String,
    login_role: String,
    action: String,
    reason: Option<String>,
}

/// The timeline of a job with this many errors.
pub(crate) async fn of(visit: &Visit, job: &Job, errors: i64) -> Result<Markup, Problem> {
    let sql = "
        select attempt, at, left(split_part(error, E'\\n', 1), 300) as error, worker
          from jobs.errors where job_id = $1 order by at desc, attempt desc limit $2";
    let failed: Vec<Failed> = visit.rows(sql, &[&job.id, &ATTEMPTS]).await?;
    let sql = "
        select at, role, login_role, action, reason from jobs.audit
         where target = $1 and at >= $2
           and action in ('cancel', 'retry', 'activate', 'update')
         order by at desc limit 20";
    let managed: Vec<Managed> = visit.rows(sql, &[&job.id.to_string(), &job.created_at]).await?;
    let mut events = job.events(managed.iter().any(|managed| managed.action == "cancel"));
    events.extend(failed.iter().map(Failed::event));
    events.extend(managed.iter().map(Managed::event));
    events.sort_by_key(Event::place);
    let earlier = errors - failed.len() as i64;
    let first_failed = events.iter().position(|event| event.class == "failed");
    let first_failed = first_failed.filter(|_| earlier > 0);
    let now = Utc::now();
    Ok(html! {
        section.card aria-labelledby="timeline" {
            h2 #timeline { "Timeline" }
            ol.timeline {
                @for (n, event) in events.iter().enumerate() {
                    @let before = n.checked_sub(1).map(|before| events[before].at);
                    @if Some(n) == first_failed {
                        li.earlier { a href="#errors" { (parts::plural(earlier, "earlier attempt")) " failed" } }
                    }
                    li class=(event.class) {
                        (parts::exactly(event.at))
                        span.what { (event.what) (gap(before, event.at, now)) }
                    }
                }
            }
        }
    })
}

/// The time since the previous event, or until a future one.
fn gap(before: Option<DateTime<Utc>>, at: DateTime<Utc>, now: DateTime<Utc>) -> Markup {
    html! {
        span.quiet {
            @match before {
                Some(before) if at <= now => {
                    " +" (parts::duration((at - before).num_microseconds().unwrap_or(0) as f64 / 1e6))
                }
                _ => { " " (parts::ago(at)) }
            }
        }
    }
}

impl Job {
    fn events(&self, is_cancel_known: bool) -> Vec<Event> {
        let mut events =
            vec![Event { at: self.created_at, class: "inserted", what: html! { "inserted" } }];
        let mut add = |at: Option<DateTime<Utc>>, class, what: Markup| {
            events.extend(at.map(|at| Event { at, class, what }));
        };
        let worker = self.worker.as_deref();
        add(
            self.attempted_at,
            "began",
            html! {
                "attempt " (self.attempt) " started"
                @if let Some(worker) = worker { " on worker " (text(worker)) }
            },
        );
        let why = html! { @if let Some(reason) = &self.cancel_reason { ": " (text(reason)) } };
        let is_asked = self.cancel_requested_at != self.finalized_at && !is_cancel_known;
        add(
            self.cancel_requested_at.filter(|_| is_asked),
            "asked",
            html! { "cancel requested" (why) },
        );
        let took = self.finalized_at.zip(self.attempted_at);
        let took =
            took.map(|(end, begin)| (end - begin).num_microseconds().unwrap_or(0) as f64 / 1e6);
        add(
            self.finalized_at,
            "final",
            html! {
                (parts::state(&self.state))
                @if self.state == "cancelled" { (why) }
                @if let Some(took) = took { " after " (parts::duration(took)) }
            },
        );
        add(self.waits().then_some(self.scheduled_at), "next", self.next());
        add(self.lease_expires_at, "next", html! { "lease expires unless a heartbeat renews it" });
        add(self.deadline_at, "next", html! { "deadline of the attempt" });
        add(self.expires_at.filter(|_| self.waits()), "next", html! { "expires if not fetched" });
        events
    }

    /// What happens when the job is due.
    fn next(&self) -> Markup {
        html! {
            @match &*self.state {
                "pending" => "due, once activated",
                "available" => { "attempt " (self.attempt + 1) " can start" },
                _ => { "attempt " (self.attempt + 1) " is due" },
            }
        }
    }
}

impl Failed {
    fn event(&self) -> Event {
        let what = html! {
            "attempt " (self.attempt) " failed"
            @if let Some(worker) = &self.worker { " on worker " (text(worker)) }
            ": " span.error { (text(&self.error)) }
        };
        Event { at: self.at, class: "failed", what }
    }
}

impl Managed {
    fn event(&self) -> Event {
        let what = html! {
            (text(&self.role))
            @if self.login_role != self.role { " (logged in as " (text(&self.login_role)) ")" }
            " called " code { (self.action) }
            @if let Some(reason) = &self.reason { ": " (text(reason)) }
        };
        Event { at: self.at, class: "managed", what }
    }
}
