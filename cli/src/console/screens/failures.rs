//! Failures: the failed attempts of a time range, by kind and error.

use axum::response::Response;
use chrono::{DateTime, Duration, SecondsFormat, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use std::collections::HashMap;

use crate::console::links;
use crate::console::page::Screen;
use crate::console::parts::{self, Align, Look};
use crate::console::problem::Problem;
use crate::console::room::{self, text};
use crate::console::visit::{Query, Visit};
use crate::filter::{Filter, like_literal};

/// How many of the latest failed attempts are read.
const ATTEMPTS: i64 = 10_000;
/// How many groups are shown, the most frequent first.
const GROUPS: usize = 100;
/// How many jobs of a group are shown.
const EXAMPLES: usize = 3;
/// How many characters of an error's first line are compared.
const CHARACTERS: i32 = 300;

/// The time ranges: in the URL, in words, and in seconds.
const SPANS: [(&str, &str, i64); 3] =
    [("1h", "Last hour", 3_600), ("1d", "Last day", 86_400), ("7d", "Last 7 days", 604_800)];

#[derive(Deserialize)]
pub(crate) struct FailuresQuery {
    #[serde(default)]
    since: String,
}

/// Attempts of a kind that failed with the same first line.
#[derive(Deserialize)]
struct Line {
    kind: Option<String>,
    line: String,
    n: i64,
    last_at: DateTime<Utc>,
    ids: Vec<i64>,
}

/// Failures whose lines differ only in numbers.
struct Group {
    kind: Option<String>,
    /// The LIKE pattern of the line, with % for the parts that differ.
    pattern: String,
    count: i64,
    last_at: DateTime<Utc>,
    /// The latest of the jobs.
    ids: Vec<i64>,
}

const LINES: &str = "
    select kind, line, count(*) as n, max(at) as last_at, (array_agg(job_id order by at desc))[1:3] as ids
      from (select job_kind as kind, left(split_part(error, E'\\n', 1), $3) as line, at, job_id
              from jobs.errors where at > $1 order by at desc limit $2) e
     group by kind, line order by last_at desc";

pub(crate) async fn failures(
    visit: Visit,
    Query(asked): Query<FailuresQuery>,
) -> Result<Response, Problem> {
    let span = SPANS.iter().find(|(name, ..)| *name == asked.since);
    let (span, in_words, seconds) = *span.unwrap_or(&SPANS[0]);
    // Rounded to the minute, so that several people's refreshes share a query.
    let now = DateTime::from_timestamp(Utc::now().timestamp() / 60 * 60, 0).unwrap_or_default();
    let since = now - Duration::seconds(seconds);
    let lines = lines(&visit, since, now).await?;
    let read: i64 = lines.iter().map(|line| line.n).sum();
    let mut groups = grouped(lines);
    let hidden = groups.len().saturating_sub(GROUPS);
    groups.truncate(GROUPS);
    let tabs = SPANS.map(|(name, title, _)| {
        let url = visit.url(&parts::link("/failures", [("since", name)]));
        (title, url, name == span)
    });
    let main = html! {
        (parts::tabs("Time range", &tabs))
        @if groups.is_empty() {
            (parts::empty("No failed attempts", html! {
                "No attempt failed in the " (in_words.to_lowercase()) ". "
                a href=(visit.url(&parts::link("/jobs", [("state", "discarded")]))) { "Show discarded jobs" }
            }))
        } @else {
            p.lead {
                @if read >= ATTEMPTS { "The latest " }
                (parts::plural(read, "failed attempt"))
            }
            (table(&visit, &groups, since))
            @if hidden > 0 { p.quiet { (parts::plural(hidden as i64, "rarer error")) " not shown." } }
        }
    };
    Ok(visit.page(Screen::Failures, "Failures", main))
}

/// The latest failed attempts since a time. The last hour may have enough of them, and sorting
/// those of a week takes long. So the searched range grows.
async fn lines(
    visit: &Visit,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Vec<Line>, Problem> {
    let mut span = Duration::hours(1);
    loop {
        let from = since.max(now - span);
        let lines: Vec<Line> = visit.rows(LINES, &[&from, &ATTEMPTS, &CHARACTERS]).await?;
        let read: i64 = lines.iter().map(|line| line.n).sum();
        if read >= ATTEMPTS || from == since {
            return Ok(lines);
        }
        span = span * 4;
    }
}

/// Groups the lines, the most frequent first.
fn grouped(lines: Vec<Line>) -> Vec<Group> {
    let mut groups: HashMap<(Option<String>, String), Group> = HashMap::new();
    for line in lines {
        let pattern = pattern(&line.line);
        let group = groups.entry((line.kind.clone(), pattern.clone())).or_insert(Group {
            kind: line.kind,
            pattern,
            count: 0,
            last_at: line.last_at,
            ids: Vec::new(),
        });
        group.count += line.n;
        group.last_at = group.last_at.max(line.last_at);
        for id in line.ids {
            if group.ids.len() < EXAMPLES && !group.ids.contains(&id) {
                group.ids.push(id);
            }
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        (b.count, b.last_at).cmp(&(a.count, a.last_at)).then_with(|| a.pattern.cmp(&b.pattern))
    });
    groups
}

/// A LIKE pattern with a % for each word that has a digit or an @: numbers, UUIDs, times and
/// addresses.
fn pattern(line: &str) -> String {
    let is_part = |one: char| one.is_alphanumeric() || "-_.:@".contains(one);
    let mut pattern = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = match is_part(first) {
            true => rest.find(|one| !is_part(one)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        // Punctuation at the end is not part of a number.
        let bare = word.trim_end_matches(['.', ':', '-', '_']);
        if bare.chars().any(|one| one.is_ascii_digit() || one == '@') {
            pattern.push('%');
            pattern += &like_literal(&word[bare.len()..]);
        } else {
            pattern += &like_literal(word);
        }
        rest = after;
    }
    pattern
}

/// A pattern for people.
fn shown(pattern: &str) -> String {
    let mut text = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            '%' => text.push('…'),
            _ => text.push(character),
        }
    }
    text
}

fn table(visit: &Visit, groups: &[Group], since: DateTime<Utc>) -> Markup {
    let columns = [
        ("Failures", Align::Number),
        ("Kind", Align::Text),
        ("Error", Align::Wide),
        ("Last failure", Align::Text),
        ("Jobs", Align::Text),
        ("Actions", Align::Actions),
    ];
    let since = since.to_rfc3339_opts(SecondsFormat::Secs, true);
    let rows = html! { @for group in groups { (group.shown(visit, &since)) } };
    parts::table("Failures by kind and error, most frequent first", &columns, rows)
}

impl Group {
    /// The jobs whose latest error matches this group.
    fn filter(&self, since: &str) -> Filter {
        Filter {
            kind: self.kind.clone().unwrap_or_default(),
            // Other lines may follow.
            error_like: format!("{}%", self.pattern),
            failed_after: since.into(),
            ..Filter::default()
        }
    }

    fn shown(&self, visit: &Visit, since: &str) -> Markup {
        let filter = self.filter(since);
        let jobs = visit.url(&filter.path("/jobs", &[]));
        let retry = visit.url(&filter.path("/bulk", &[("do", "retry")]));
        html! {
            tr {
                td.number { (parts::number(self.count)) }
                th scope="row" { (room::optional(self.kind.as_deref())) }
                td.wide { a.error href=(jobs) { (text(&shown(&self.pattern))) } }
                td { (parts::ago(self.last_at)) }
                td {
                    @for (n, id) in self.ids.iter().enumerate() {
                        @if n > 0 { " " }
                        (links::job(visit, *id))
                    }
                }
                td.actions {
                    @if visit.may("retry_many") { (parts::link_button("Retry …", &retry, Look::Plain)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_by_numbers_is_the_same() {
        let cases = [
            ("timeout after 30 s", "timeout after % s"),
            ("user 5d8f2c1e-8b7a-4c11-9d2e-0123456789ab: not found", "user %: not found"),
            ("connect 10.0.0.1:5432 refused.", "connect % refused."),
            ("at 2026-01-31T18:30:00Z", "at %"),
            ("no digits – at all", "no digits – at all"),
            ("550 <ada@example.org>: mailbox is full", "% <%>: mailbox is full"),
            ("ключ 7 не найден", "ключ % не найден"),
            (r"50% of a_b\c, 2_: no", r"%\% of a\_b\\c, %\_: no"),
            ("", ""),
        ];
        for (line, expected) in cases {
            assert_eq!(pattern(line), expected);
        }
    }

    #[test]
    fn a_pattern_is_shown_without_its_escapes() {
        assert_eq!(shown(&pattern(r"100 % of a_b\c 7")), r"… % of a_b\c …");
    }

    #[test]
    fn groups_have_the_sums() {
        let at = |second| DateTime::from_timestamp(second, 0).unwrap_or_default();
        let line = |kind: &str, line: &str, n, second, ids: &[i64]| Line {
            kind: Some(kind.into()),
            line: line.into(),
            n,
            last_at: at(second),
            ids: ids.into(),
        };
        let groups = grouped(vec![
            line("a", "code 1", 2, 30, &[5, 4]),
            line("b", "code 1", 3, 20, &[9]),
            line("a", "code 22", 4, 10, &[4, 3, 2, 1, 0]),
        ]);
        let seen: Vec<_> =
            groups.iter().map(|group| (group.count, group.last_at, &group.ids[..])).collect();
        assert_eq!(seen, [(6, at(30), &[5, 4, 3][..]), (3, at(20), &[9])]);
    }
}
