//! Finds jobs among millions, newest first, without reading all of them.
//!
//! `jobs.jobs` is a union by state: sorting it by id would read all of it, but a window of ids is
//! found by primary keys. So growing windows are read until there are enough jobs or the time is
//! up. A cursor is an id, so new jobs do not shift pages.

use std::ops::Range;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use tokio_postgres::types::ToSql;

use crate::console::problem::Problem;
use crate::console::role::Reading;
use crate::console::visit::{Only, Visit};
use crate::filter::{Condition, Filter};
use crate::windows::{FIRST_WINDOW, Windows};

/// How many jobs a page has.
pub(crate) const ROWS: usize = 50;
/// About how long windows are read.
const BUDGET: Duration = Duration::from_millis(120);
/// How long one window may take, on a server that is overloaded.
const WINDOW: Duration = Duration::from_secs(5);
/// States with fewer jobs are read completely.
const FEW: i64 = 20_000;
/// How long jobs are counted for that.
const COUNTING: Duration = Duration::from_millis(50);
/// How many jobs are looked up by their ids.
const MANY: i64 = 10_000;
/// How long that may take. There may be more jobs than jobs.queues estimated.
const WHOLE: Duration = Duration::from_millis(150);
/// The precision in ids when a time is mapped to an id.
const CLOSE: i64 = 4_000;
/// How far apart the ids of jobs inserted at the same time may be: transactions commit in another
/// order than their jobs got ids.
const OVERLAP: i64 = 10_000;

/// Where a page of the list begins.
#[derive(Clone, Copy)]
pub(crate) enum Cursor {
    /// The newest jobs.
    Top,
    /// Jobs below this id.
    Below(i64),
    /// Jobs above this id.
    Above(i64),
}

impl Cursor {
    /// Whether the search goes up from it.
    pub(crate) fn is_up(self) -> bool {
        matches!(self, Self::Above(_))
    }
}

/// A page of the list.
pub(crate) struct Found {
    /// The newest first.
    pub(crate) ids: Vec<i64>,
    /// Whether there are older jobs.
    pub(crate) has_more: bool,
    /// If time ran out, the id down to which (or up to which) all jobs were searched.
    pub(crate) looked_to: Option<i64>,
}

/// A job that was found.
#[derive(Deserialize)]
pub(crate) struct Job {
    pub(crate) id: i64,
    pub(crate) state: String,
}

/// Matching jobs: all, the oldest, or the newest that were found in time.
pub(crate) struct Sample {
    pub(crate) jobs: Vec<Job>,
    /// Whether they start with the oldest of all, and not with the newest.
    pub(crate) is_oldest: bool,
    /// If time ran out, the id down to which all jobs were searched.
    pub(crate) looked_to: Option<i64>,
}

/// The number of jobs in a state, by jobs.queues.
#[derive(Deserialize)]
pub(crate) struct Count {
    pub(crate) state: String,
    pub(crate) all: i64,
    pub(crate) in_queue: i64,
    pub(crate) is_estimated: bool,
}

/// The numbers of jobs in all queues and in this one; empty means all.
pub(crate) async fn counts(visit: &Visit, queue: &str) -> Result<Vec<Count>, Problem> {
    let sql = "
        select s.state, coalesce(sum(s.n), 0)::bigint as all,
               coalesce(sum(s.n) filter (where $1 in ('', q.queue)), 0)::bigint as in_queue,
               coalesce(bool_or(s.state = any(q.estimated::text[])), false) as is_estimated
          from (select * from jobs.queues offset 0) q, lateral (values
                ('available', q.available), ('scheduled', q.scheduled), ('pending', q.pending),
                ('running', q.running), ('retryable', q.retryable), ('completed', q.completed),
                ('cancelled', q.cancelled), ('discarded', q.discarded)) s(state, n)
         group by s.state";
    visit.rows_kept(Duration::ZERO, sql, &[&queue]).await
}

/// The largest id so far.
pub(crate) async fn last_id(visit: &Visit) -> Result<i64, Problem> {
    let Only(id) = visit.one("select jobs.last_id()", &[]).await?;
    Ok(id)
}

/// The jobs of a page.
pub(crate) async fn jobs(
    visit: &Visit,
    filter: &Filter,
    counts: &[Count],
    cursor: Cursor,
) -> Result<Found, Problem> {
    let last = last_id(visit).await?;
    let failed = failed(visit, filter).await?;
    let mut condition = filter.whole_condition()?;
    if let Some(ids) = &failed {
        condition.and("id = any(?)", ids.clone());
    }
    let search = Search { visit, condition };
    let mut low = 1;
    let mut high = last + 1;
    match cursor {
        Cursor::Top => {}
        Cursor::Below(id) => high = high.min(id),
        Cursor::Above(id) => low = low.max(id.saturating_add(1)),
    }
    let is_up = cursor.is_up();
    if (failed.is_some() || is_few(filter, counts, last))
        && let Some(jobs) = in_time(search.window(low..high, is_up, ROWS + 1, WHOLE).await)?
    {
        return Ok(Found::of(jobs, is_up, None));
    }
    let (mut is_cut_below, mut is_cut_above) = (false, false);
    if let Some(after) = filter.after()? {
        let about = id_at(visit, after, last).await?.start - OVERLAP;
        is_cut_below = about > low;
        low = low.max(about);
    }
    if let Some(before) = filter.before()? {
        let about = id_at(visit, before, last).await?.end + OVERLAP;
        is_cut_above = about < high;
        high = high.min(about);
    }
    // If the range ends at a time, matching jobs begin only after the overlap.
    let is_cut = if is_up { is_cut_below } else { is_cut_above };
    let size = if is_cut { OVERLAP + CLOSE } else { FIRST_WINDOW };
    let mut windows = Windows { left: low..high, size, is_up };
    let jobs = search.windows(&mut windows, ROWS + 1).await?;
    let rest = windows.rest().filter(|_| jobs.len() <= ROWS);
    Ok(Found::of(jobs, is_up, rest))
}

/// Up to `most` jobs of a condition, in these states. `is_few`: there are few in any state. Reads
/// all if that is quick, else the newest for a moment.
pub(crate) async fn sample(
    visit: &Visit,
    condition: Condition,
    states: &[&str],
    is_few: bool,
    most: usize,
) -> Result<Sample, Problem> {
    let last = last_id(visit).await?;
    let search = Search { visit, condition };
    if (is_few || are_few(visit, states).await?)
        && let Some(jobs) = in_time(search.oldest(most, WHOLE).await)?
    {
        return Ok(Sample::whole(jobs));
    }
    let mut windows = Windows { left: 1..last + 1, size: FIRST_WINDOW, is_up: false };
    let mut jobs = search.windows(&mut windows, most).await?;
    let looked_to = windows.rest();
    if looked_to.is_none() && jobs.len() < most {
        jobs.reverse();
        return Ok(Sample::whole(jobs));
    }
    Ok(Sample { looked_to: looked_to.filter(|_| jobs.len() < most), is_oldest: false, jobs })
}

/// Up to `most` of the oldest jobs of a condition, however much that reads.
pub(crate) async fn oldest(
    visit: &Visit,
    condition: Condition,
    most: usize,
    within: Duration,
) -> Result<Sample, Problem> {
    let search = Search { visit, condition };
    Ok(Sample::whole(search.oldest(most, within).await?))
}

/// The jobs that failed after the time of the filter, if it has one and they are few. They include
/// every job whose latest error is after it.
pub(crate) async fn failed(visit: &Visit, filter: &Filter) -> Result<Option<Vec<i64>>, Problem> {
    let Some(after) = filter.failed_after()? else {
        return Ok(None);
    };
    let error_like = filter.error_like()?;
    let kind = (!filter.kind.is_empty()).then_some(&filter.kind);
    let sql = "
        select job_id as id from jobs.errors
         where at > $1 and ($2::text is null or error like $2)
           and ($3::text is null or job_kind = $3)
         limit $4";
    let ids: Vec<Only<i64>> = visit.rows(sql, &[&after, &error_like, &kind, &(MANY + 1)]).await?;
    if ids.len() as i64 > MANY {
        return Ok(None);
    }
    let mut ids: Vec<_> = ids.into_iter().map(|Only(id)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(Some(ids))
}

/// Whether so few jobs can match that all are read at once. States that share a table count
/// together.
fn is_few(filter: &Filter, counts: &[Count], last: i64) -> bool {
    let of = |states: &[&str]| -> i64 {
        let counts = counts.iter().filter(|count| states.contains(&&*count.state));
        counts.map(|count| count.all).sum()
    };
    let waiting = ["scheduled", "pending", "retryable"];
    let read = match &*filter.state {
        "" => last,
        state if waiting.contains(&state) => of(&waiting),
        state => of(&[state]),
    };
    read < FEW
}

/// Whether few jobs are in these states. Counts jobs up to the limit, since jobs.queues takes
/// longer with thousands of queues.
async fn are_few(visit: &Visit, states: &[&str]) -> Result<bool, Problem> {
    if states.is_empty() {
        return Ok(true);
    }
    let states = states.join("', '");
    let sql = format!(
        "select count(*) as n
           from (select from jobs.jobs where state in ('{states}') limit {FEW}) j"
    );
    let counted = in_time(visit.read(Reading::looking_up(COUNTING), &sql, &[]).await)?;
    Ok(counted.is_some_and(|counted: Vec<Only<i64>>| counted.iter().all(|Only(n)| *n < FEW)))
}

/// The result, unless time ran out.
fn in_time<T>(found: Result<Vec<T>, Problem>) -> Result<Option<Vec<T>>, Problem> {
    match found {
        Err(late) if late.sqlstate() == Some("57014") => Ok(None),
        found => found.map(Some),
    }
}

/// A search for jobs.
struct Search<'a> {
    visit: &'a Visit,
    condition: Condition,
}

impl Search<'_> {
    /// Up to `most` jobs of a window of ids, the highest or the lowest first.
    async fn window(
        &self,
        ids: Range<i64>,
        is_up: bool,
        most: usize,
        within: Duration,
    ) -> Result<Vec<Job>, Problem> {
        let mut values: Vec<&(dyn ToSql + Sync)> = self.condition.values();
        values.extend([&ids.start as &(dyn ToSql + Sync), &ids.end]);
        let [low, high] = [1, 0].map(|back| values.len() - back);
        let sql = format!("{} and id >= ${low} and id < ${high}", self.condition.sql);
        self.first(&sql, values, is_up, most, within).await
    }

    /// Up to `most` of the lowest ids. With a range the planner would start with all jobs in it,
    /// and not with those in some states.
    async fn oldest(&self, most: usize, within: Duration) -> Result<Vec<Job>, Problem> {
        let (sql, values) = (&self.condition.sql, self.condition.values());
        self.first(sql, values, true, most, within).await
    }

    async fn first(
        &self,
        condition: &str,
        values: Vec<&(dyn ToSql + Sync)>,
        is_up: bool,
        most: usize,
        within: Duration,
    ) -> Result<Vec<Job>, Problem> {
        let order = if is_up { "asc" } else { "desc" };
        let sql = format!(
            "select id, state from jobs.jobs where {condition} order by id {order} limit {most}"
        );
        let reading = Reading::looking_up(within);
        self.visit.read(reading, &sql, &values).await
    }

    /// Reads windows until there are enough jobs or time runs out.
    async fn windows(&self, windows: &mut Windows, most: usize) -> Result<Vec<Job>, Problem> {
        let mut jobs = Vec::new();
        let began = Instant::now();
        while jobs.len() < most
            && let Some(window) = windows.next()
        {
            let left = most - jobs.len();
            let before = Instant::now();
            jobs.extend(self.window(window, windows.is_up, left, WINDOW).await?);
            windows.fit(before.elapsed(), BUDGET.saturating_sub(began.elapsed()));
        }
        Ok(jobs)
    }
}

impl Sample {
    /// All jobs, or the oldest if there are more, oldest first.
    fn whole(jobs: Vec<Job>) -> Self {
        Self { jobs, is_oldest: true, looked_to: None }
    }
}

impl Found {
    fn of(jobs: Vec<Job>, is_up: bool, looked_to: Option<i64>) -> Self {
        let mut ids: Vec<_> = jobs.into_iter().map(|job| job.id).collect();
        let has_more = ids.len() > ROWS;
        ids.truncate(ROWS);
        if is_up {
            ids.reverse();
        }
        Self { ids, has_more, looked_to }
    }
}

#[derive(Deserialize)]
struct First {
    id: i64,
    created_at: DateTime<Utc>,
}

/// The first job in these ids, and when it was inserted.
async fn first(visit: &Visit, ids: Range<i64>) -> Result<Option<First>, Problem> {
    let (mut low, mut size) = (ids.start, 100);
    while low < ids.end {
        let high = ids.end.min(low.saturating_add(size));
        let sql =
            "select id, created_at from jobs.jobs where id >= $1 and id < $2 order by id limit 1";
        if let Some(found) = visit.row(sql, &[&low, &high]).await? {
            return Ok(Some(found));
        }
        low = high;
        size = size.saturating_mul(8);
    }
    Ok(None)
}

/// The approximate ids of jobs inserted at a time. Ids grow with time, so the place is
/// interpolated, and every other time bisected, in case jobs come in bursts.
async fn id_at(visit: &Visit, time: DateTime<Utc>, last: i64) -> Result<Range<i64>, Problem> {
    let mut ids = 1..last + 1;
    let Some(oldest) = first(visit, ids.clone()).await? else {
        return Ok(ids);
    };
    ids.start = oldest.id;
    let (mut since, mut until) = (oldest.created_at, Utc::now());
    let mut is_guess = true;
    while ids.end - ids.start > CLOSE {
        let span = (until - since).num_milliseconds().max(1) as f64;
        let share = match is_guess {
            true => (time - since).num_milliseconds() as f64 / span,
            false => 0.5,
        };
        is_guess = !is_guess;
        let length = (ids.end - ids.start) as f64;
        let middle = ids.start + (length * share.clamp(0.001, 0.999)) as i64;
        match first(visit, middle..ids.end).await? {
            Some(job) if job.created_at < time => {
                ids.start = job.id;
                since = job.created_at;
            }
            Some(job) => {
                ids.end = middle;
                until = job.created_at;
            }
            None => ids.end = middle,
        }
    }
    Ok(ids)
}

/// When the job with this id, or the next existing one, was inserted.
pub(crate) async fn inserted_about(
    visit: &Visit,
    id: i64,
) -> Result<Option<DateTime<Utc>>, Problem> {
    let found = first(visit, id..id.saturating_add(10_000)).await?;
    Ok(found.map(|job| job.created_at))
}
