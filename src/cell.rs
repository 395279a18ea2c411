//! The cell judges: whether a job or queue is this cell's own, whatever sent it. A database without
//! a number takes everything.

use jobs_core::dimension::{Dimension, hash};
use jobs_core::error::quoted;
use jobs_core::policy::Policy;

use crate::error::{Error, Limiting, Result};
use crate::fault::{self, Fault};
use crate::pg::jsonb::Jsonb;
use crate::pg::memory::Scratch;
use crate::store::cells::{self, Law, OTHERS};
use crate::store::changes::Changes;
use crate::store::config_cache;
use crate::store::queue::Queue;

/// Where a job lives.
#[derive(Clone, Copy, PartialEq)]
pub enum Home {
    /// Here: the database has no number.
    Here,
    Cell(i32),
    Nowhere,
}

/// Refuses to write in a cell that is retired, and keeps it from being retired until this
/// transaction ends.
pub fn keep_serving() -> Result<()> {
    if config_cache::here().is_none() {
        return Ok(());
    }
    cells::keep_cell();
    serving()
}

/// Refuses a cell that is retired.
pub fn serving() -> Result<()> {
    match config_cache::here() {
        Some(here) if here.is_retired => Err(Error::retired(here.cell, here.moved_to.as_deref())),
        _ => Ok(()),
    }
}

/// By what jobs of a queue that are unique by this policy are judged. Refuses a policy whose keys
/// could span cells.
pub fn law(queue: &str, policy: Option<&Policy>) -> Result<Option<Law>> {
    let Some(law) = cells::law(queue) else {
        return Ok(None);
    };
    if let Some(policy) = policy {
        contains_queue(policy)?;
        let by = law.placement.as_ref().and_then(|placement| placement.by.as_ref());
        if let Some(by) = by.filter(|by| !by.is_part_of(policy)) {
            return Err(by.missing().into());
        }
    }
    Ok(Some(law))
}

fn contains_queue(policy: &Policy) -> Result<()> {
    if policy.by_queue {
        return Ok(());
    }
    let rule = "In a database with a cell number, unique keys must contain the queue, so that none spans cells.";
    Err(Error::invalid("unique_opts", "unique_opts do not contain the queue", rule).hint(
        "Add \"by_queue\": true, in \"oban\" \"queue\" to fields, or in \"ojs\" \"queue\" to keys.",
    ))
}

/// Refuses defaults of a kind that an insert could use in no cell, until this transaction ends.
pub fn of_kind(queue: Option<&str>, policy: Option<&Policy>) -> Result<()> {
    cells::keep_law();
    match (queue, policy) {
        (Some(queue), policy) => law(queue, policy).map(|_| ()),
        (None, Some(policy)) if config_cache::here().is_some() => contains_queue(policy),
        _ => Ok(()),
    }
}

/// Where a job lives. Refuses one that lacks what its queue is spread by.
pub fn home(law: Option<&Law>, args: Jsonb, meta: Option<Jsonb>) -> Result<Home> {
    let Some(law) = law else {
        return Ok(Home::Here);
    };
    let Some(placement) = &law.placement else {
        return Ok(Home::Nowhere);
    };
    Ok(Home::Cell(match &placement.by {
        None => placement.cells[0],
        Some(by) => {
            let value = match by.is_of_meta() {
                true => meta.unwrap_or(Jsonb::NULL),
                false => args,
            };
            let hash = hash(&by.text(|| value.events())?);
            placement.cells[(hash % placement.cells.len() as u64) as usize]
        }
    }))
}

/// Refuses a job that does not live here.
pub fn own(law: Option<&Law>, home: Home, queue: &str) -> Result<()> {
    let Some(law) = law else {
        return Ok(());
    };
    let cell = match home {
        Home::Cell(cell) if cell == law.here.cell => return Ok(()),
        Home::Cell(cell) => Some(cell),
        Home::Here => return Ok(()),
        Home::Nowhere => None,
    };
    let is_spread = law.placement.as_ref().is_some_and(|placement| placement.by.is_some());
    refused(queue, is_spread, cell)
}

fn refused(queue: &str, is_spread: bool, cell: Option<i32>) -> Result<()> {
    if fault::is_on(Fault::AnyCell) {
        return Ok(());
    }
    Err(Error::wrong_cell(queue, is_spread, cell, cell.and_then(cells::address)))
}

/// Refuses a queue of which no job lives here.
pub fn own_queue(queue: &str) -> Result<()> {
    match cells::law(queue) {
        Some(law) if !law.is_own() => {
            refused(queue, false, law.placement.map(|placement| placement.cells[0]))
        }
        _ => Ok(()),
    }
}

/// Likewise, and jobs of the queue live here until this transaction ends.
pub fn keep_queue(queue: &str) -> Result<()> {
    cells::keep_law();
    own_queue(queue)
}

/// Refuses queues if no job of one of them lives here.
pub fn own_queues(queues: &[Queue]) -> Result<()> {
    queues.iter().try_for_each(|queue| own_queue(queue.name()))
}

/// Refuses a limit of all jobs of a queue that is spread, until this transaction ends.
pub fn not_spread(queue: &str) -> Result<()> {
    cells::keep_law();
    let placement = cells::law(queue).and_then(|law| law.placement);
    if placement.is_none_or(|placement| placement.by.is_none()) {
        return Ok(());
    }
    let message = format!("queue {} is spread over cells", quoted(queue));
    let rule = "A concurrency or rate of a spread queue would span cells.";
    Err(Error::invalid("queue", message, rule).hint("Leave concurrency and rate out."))
}

/// Refuses a limit, written by this transaction, that counts jobs of a queue in several cells. The
/// caller keeps the law.
pub fn spans_none(limit: &str) -> Result<()> {
    let (here, rules) = (config_cache::here(), config_cache::rules());
    let mut spread = here.iter().flat_map(|here| here.spread());
    let rule = rules.iter().find(|rule| rule.name == limit);
    match rule.and_then(|rule| spread.find(|(queue, by)| rule.spans_cells(queue, by))) {
        None => Ok(()),
        Some((queue, by)) => {
            let field = by.to_json();
            let message =
                format!("by does not contain {field}, by which queue {} is spread", quoted(queue));
            if rules.iter().any(|rule| rule.name == limit && rule.order.is_some()) {
                let rule = "The order of a spread queue must contain the path, so that no key spans cells.";
                return Err(Error::invalid("by", message, rule).hint("Add it to by."));
            }
            let rule = "A limit of a spread queue must contain the path, so that none spans cells.";
            Err(Error::invalid("by", message, rule)
                .hint("Add it to by, or set per_cell => true for a limit of each cell alone."))
        }
    }
}

/// Refuses to spread a queue by this dimension if a limit or the queue's order would span cells.
pub fn none_spans(queue: &str, by: &Dimension) -> Result<()> {
    let rules = config_cache::rules();
    let Some(rule) = rules.iter().find(|rule| rule.spans_cells(queue, by)) else {
        return Ok(());
    };
    Err(Error::limited_queue(
        queue,
        match rule.order {
            Some(_) => Limiting::Order,
            None => Limiting::Limit(&rule.name),
        },
    ))
}

/// Refuses a change of a job that would have it live elsewhere.
pub fn own_changed(id: i64, to: &Changes) -> Result<()> {
    let (queue, meta) = (to.options.queue.as_deref(), to.options.meta);
    let moves = queue.is_some() || to.args.is_some() || meta.is_some();
    if !moves || config_cache::here().is_none() {
        return Ok(());
    }
    cells::keep_law();
    let Some(before) = cells::job(id) else {
        return Ok(());
    };
    let queue = queue.unwrap_or(&before.queue);
    let law = cells::law(queue);
    let home = home(law.as_ref(), to.args.unwrap_or(before.args), meta.or(before.meta))?;
    own(law.as_ref(), home, queue)
}

/// Where a job that is here should be, if that is elsewhere.
pub fn elsewhere(id: i64) -> Option<Home> {
    config_cache::here()?;
    let job = cells::job(id)?;
    let law = cells::law(&job.queue)?;
    let home = home(Some(&law), job.args, job.meta).unwrap_or(Home::Nowhere);
    (home != Home::Cell(law.here.cell)).then_some(home)
}

/// Refuses a placement, written by this transaction, by which jobs that are here would live
/// elsewhere.
pub fn all_own(queue: &str) -> Result<()> {
    let Some(law) = cells::law(queue) else {
        return Ok(());
    };
    let is_spread = law.placement.as_ref().is_some_and(|placement| placement.by.is_some());
    let jobs = match law.is_own() {
        false => cells::count_jobs((queue != OTHERS).then_some(queue)),
        true if is_spread => count_elsewhere(queue),
        true => 0,
    };
    match jobs {
        0 => Ok(()),
        jobs => Err(Error::cell_in_use((queue != OTHERS).then_some(queue), jobs)),
    }
}

/// How many jobs of a queue that is spread are here, and would live elsewhere or lack what it is
/// spread by.
fn count_elsewhere(queue: &str) -> i64 {
    const AT_ONCE: i64 = 10_000;
    let law = cells::law(queue);
    let own = law.as_ref().map(|law| Home::Cell(law.here.cell));
    let (mut count, mut behind) = (0, i64::MIN);
    loop {
        pgrx::check_for_interrupts!();
        let last = Scratch::new().within(|| {
            let jobs = cells::jobs_behind(queue, behind, AT_ONCE);
            let is_own = |job: &&cells::Subject| home(law.as_ref(), job.args, job.meta).ok() == own;
            count += (jobs.len() - jobs.iter().filter(is_own).count()) as i64;
            jobs.last().map(|job| job.id)
        });
        match last {
            Some(last) => behind = last,
            None => return count,
        }
    }
}
