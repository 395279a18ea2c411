//! Charts of the history.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use crate::console::parts::{self, Align};
use crate::console::problem::Problem;
use crate::console::visit::Visit;

/// A time range, and the length of its steps.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
pub(crate) enum Span {
    #[default]
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "6h")]
    SixHours,
    #[serde(rename = "24h")]
    Day,
    #[serde(rename = "7d")]
    Week,
}

impl Span {
    const ALL: [Self; 4] = [Self::Hour, Self::SixHours, Self::Day, Self::Week];

    /// Its name in a URL and in words; its minutes, and those of a step.
    fn facts(self) -> (&'static str, &'static str, i64, i64) {
        match self {
            Self::Hour => ("1h", "1 hour", 60, 1),
            Self::SixHours => ("6h", "6 hours", 360, 5),
            Self::Day => ("24h", "24 hours", 1440, 15),
            Self::Week => ("7d", "7 days", 10_080, 120),
        }
    }

    fn minutes(self) -> (i64, i64) {
        let (.., since, step) = self.facts();
        (since, step)
    }

    pub(crate) fn tabs(self, url: impl Fn(&str) -> String) -> Markup {
        let tab = |span: Self| {
            let (name, title, ..) = span.facts();
            (title, url(name), span == self)
        };
        parts::tabs("Time range", &Self::ALL.map(tab))
    }
}

/// The history of one step.
#[derive(Deserialize)]
pub(crate) struct Step {
    /// Its start, in seconds since 1970.
    at: i64,
    inserted: i64,
    completed: i64,
    failed: i64,
    /// In seconds, of the kind and queue that waited or ran longest.
    wait_p50: Option<f64>,
    wait_p95: Option<f64>,
    run_p50: Option<f64>,
    run_p95: Option<f64>,
}

const HISTORY: &str = "
select extract(epoch from at)::bigint as at, sum(inserted)::bigint as inserted,
    sum(completed)::bigint as completed, sum(failed)::bigint as failed,
    extract(epoch from max(wait_p50))::float8 as wait_p50,
    extract(epoch from max(wait_p95))::float8 as wait_p95,
    extract(epoch from max(run_p50))::float8 as run_p50,
    extract(epoch from max(run_p95))::float8 as run_p95
from jobs.history(queue => $1::text, since => make_interval(mins => $2::int),
    step => make_interval(mins => $3::int))
group by 1 order by 1";

/// The steps with data, of one queue or of all.
pub(crate) async fn read(
    visit: &Visit,
    span: Span,
    queue: Option<&str>,
) -> Result<Vec<Step>, Problem> {
    let (since, step) = span.minutes();
    visit.rows(HISTORY, &[&queue, &(since as i32), &(step as i32)]).await
}

/// Throughput and latency, with a table of the same data.
pub(crate) fn charts(span: Span, steps: &[Step]) -> Markup {
    let now = Utc::now().timestamp();
    let grid = grid(span, now);
    let find = |at: i64| steps.iter().find(|step| step.at == at);
    let rate = |of: fn(&Step) -> i64| {
        let rate =
            |&at: &i64| find(at).map_or(0.0, |step| of(step) as f64 / minutes_of(span, at, now));
        grid.iter().map(rate).collect::<Vec<_>>()
    };
    let seconds = |of: fn(&Step) -> Option<f64>| {
        grid.iter().map(|&at| find(at).and_then(of)).collect::<Vec<_>>()
    };
    let throughput = json!({
        "at": grid, "unit": "per minute",
        "series": [
            { "label": "inserted", "tone": "quiet", "values": rate(|step| step.inserted) },
            { "label": "completed", "tone": "good", "values": rate(|step| step.completed) },
            { "label": "failed", "tone": "bad", "values": rate(|step| step.failed) },
        ],
    });
    let latency = json!({
        "at": grid, "unit": "seconds",
        "series": [
            { "label": "wait p50", "tone": "wait-half", "values": seconds(|step| step.wait_p50) },
            { "label": "wait p95", "tone": "wait", "values": seconds(|step| step.wait_p95) },
            { "label": "run p50", "tone": "run-half", "values": seconds(|step| step.run_p50) },
            { "label": "run p95", "tone": "run", "values": seconds(|step| step.run_p95) },
        ],
    });
    html! {
        div.charts {
            (parts::chart("Jobs per minute", &throughput))
            (parts::chart("Latency of the slowest kind", &latency))
        }
        (as_table(steps))
    }
}

/// The starts of all steps, including the current one once it has 30 s.
fn grid(span: Span, now: i64) -> Vec<i64> {
    let (since, step) = span.minutes();
    let (since, step) = (since * 60, step * 60);
    let last = match now.rem_euclid(step) {
        passed if passed < 30 => now - passed - step,
        passed => now - passed,
    };
    (0..since / step).rev().map(|back| last - back * step).collect()
}

/// How many minutes of a step have elapsed.
fn minutes_of(span: Span, at: i64, now: i64) -> f64 {
    let (_, step) = span.minutes();
    (now - at).clamp(1, step * 60) as f64 / 60.0
}

fn as_table(steps: &[Step]) -> Markup {
    let columns = [
        ("From", Align::Text),
        ("Inserted", Align::Number),
        ("Completed", Align::Number),
        ("Failed", Align::Number),
        ("Wait p95", Align::Number),
        ("Run p95", Align::Number),
    ];
    let seconds = |value: Option<f64>| value.map_or_else(parts::none, parts::duration);
    let rows = html! {
        @for step in steps.iter().rev() {
            tr {
                td { @if let Some(at) = DateTime::from_timestamp(step.at, 0) { (parts::exactly(at)) } }
                td.number { (parts::count(step.inserted, false)) }
                td.number { (parts::count(step.completed, false)) }
                td.number { (parts::count(step.failed, false)) }
                td.number { (seconds(step.wait_p95)) }
                td.number { (seconds(step.run_p95)) }
            }
        }
    };
    html! {
        details.as-table {
            summary { "Show as table" }
            @if steps.is_empty() {
                p.quiet { "No activity in this time range." }
            } @else {
                (parts::table("History", &columns, rows))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_ends_with_the_step_that_says_something() {
        let grid_at = |now| grid(Span::Hour, now);
        assert_eq!(grid_at(6000).len(), 60);
        assert_eq!(grid_at(6029).last(), Some(&5940));
        assert_eq!(grid_at(6030).last(), Some(&6000));
        assert!(grid_at(6030).windows(2).all(|two| two[1] - two[0] == 60));
    }

    #[test]
    fn a_step_that_is_under_way_is_shorter() {
        assert_eq!(minutes_of(Span::Hour, 6000, 6030), 0.5);
        assert_eq!(minutes_of(Span::Hour, 6000, 9000), 1.0);
    }
}
