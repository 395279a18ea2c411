//! Cells: the number of this database, and where queues live.

use jobs_core::dimension::Dimension;
use pgrx::datum::Uuid;
use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::parameters::{Parameters, given};
use super::{changed, configure, order};
use crate::cell::{self, Home};
use crate::check;
use crate::error::{Error, Limiting, Result, or_raise};
use crate::pg::array::{self, Array};
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::time;
use crate::store::cells::{self as store, OTHERS};
use crate::store::periodic_schedule::{self, Definition};
use crate::store::{config, config_cache};
use crate::unique::policy;

const LAST_CELL: i32 = 1023;

#[pg_extern(sql = false)]
fn set_cell(cell: Option<i32>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::managing(reason)?;
        let cell = number("cell", check::given("cell", cell)?)?;
        if config_cache::here().is_some_and(|here| here.cell == cell) {
            return Ok(());
        }
        store::change_law();
        if let Some(id) = store::foreign_id(cell) {
            return Err(Error::ids_of_another_cell(cell, id));
        }
        store::set_number(cell);
        changed(fcinfo);
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn place_queue(
    queue: Option<&str>,
    cell: Option<i32>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let queue = &*check::name("queue", queue)?;
        let cell = number("cell", check::given("cell", cell)?)?;
        numbered("place a queue")?;
        change(queue, fcinfo, || store::place(queue, None, &[cell])).map(|_| ())
    })
}

#[pg_extern(sql = false)]
fn spread_queue(
    queue: Option<&str>,
    by: Option<Jsonb>,
    cells: Option<Array>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let queue = &*check::name("queue", queue)?;
        let by = Dimension::parse(&check::given("by", by)?.to_value("by")?)?;
        let cells = several(check::given("cells", cells)?)?;
        if queue == OTHERS {
            let rule = "Only a queue with a name of its own can be spread.";
            return Err(Error::invalid("queue", "queue \"*\" cannot be spread", rule));
        }
        numbered("spread a queue")?;
        change(queue, fcinfo, || store::place(queue, Some(&by.to_json().to_string()), &cells))?;
        // Who configures the queue, or defines a limit, kind or periodic job, waits for this
        // transaction.
        if store::is_limited(queue) {
            return Err(Error::limited_queue(queue, Limiting::Setting));
        }
        cell::none_spans(queue, &by)?;
        all_fit(queue)
    })
}

#[pg_extern(sql = false)]
fn unplace_queue(queue: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) -> bool {
    or_raise(|| {
        check::managing(reason)?;
        let queue = &*check::name("queue", queue)?;
        numbered("unplace a queue")?;
        change(queue, fcinfo, || store::unplace(queue))
    })
}

#[pg_extern(sql = false)]
fn set_cell_address(
    cell: Option<i32>,
    address: Option<&str>,
    identity: Option<Uuid>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) {
    or_raise(|| {
        check::managing(reason)?;
        let cell = number("cell", check::given("cell", cell)?)?;
        let address = check::address("address", address)?;
        let own = numbered("set the address of a cell")?;
        let identity = identity.map(|identity| identity.to_string());
        if let Some(identity) = identity.as_deref().filter(|_| cell == own)
            && let Some(known) = store::identity(cell).filter(|known| known != identity)
        {
            return Err(Error::another_identity(cell, &known));
        }
        if store::set_address(cell, address, identity.as_deref()) {
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn cell_for(
    kind: Option<&str>,
    args: Option<Jsonb>,
    unique_opts: Option<Jsonb>,
    queue: Option<&str>,
    meta: Option<Jsonb>,
) -> Option<i32> {
    or_raise(|| {
        let kind = &*check::name("kind", kind)?;
        let args = check::given("args", args)?;
        let checked = given! { unique_opts, queue, meta }?.checked(kind)?;
        Ok(match checked.candidate(args)?.home {
            Home::Here => Some(0),
            Home::Cell(cell) => Some(cell),
            Home::Nowhere => None,
        })
    })
}

#[pg_extern(sql = false)]
fn retire_cell(moved_to: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::writable_if_retired()?;
        check::reason(reason)?;
        let moved_to = check::address("moved_to", moved_to)?;
        numbered("retire the cell")?;
        if store::retire(time::now(), moved_to) {
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn reinstate_cell(reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| {
        check::writable_if_retired()?;
        check::reason(reason)?;
        let cell = numbered("reinstate the cell")?;
        if cell::serving().is_err() {
            store::reinstate(cell);
            changed(fcinfo);
        }
        Ok(())
    })
}

#[pg_extern(sql = false)]
fn takes_queue(queue: Option<&str>) -> bool {
    or_raise(|| Ok(store::law(&check::name("queue", queue)?).is_none_or(|law| law.is_own())))
}

#[pg_extern(sql = false)]
fn is_copy_of_cell() -> bool {
    or_raise(|| Ok(store::is_copy()))
}

/// Changes where a queue lives, unless jobs that are here would live elsewhere; whether anything
/// was changed. Settings of a queue that leaves are removed: they would apply if it came back.
fn change(queue: &str, fcinfo: FunctionCallInfo, write: impl FnOnce() -> bool) -> Result<bool> {
    store::change_law();
    let is_changed = write();
    if is_changed {
        changed(fcinfo);
        cell::all_own(queue)?;
        for queue in config::known_queues(queue) {
            if cell::own_queue(queue.name()).is_err() {
                configure::forget(&queue);
                order::forget(&queue);
            }
        }
    }
    Ok(is_changed)
}

/// Refuses a spread queue, written by this transaction, if it would refuse the defaults of a kind
/// or a periodic job.
fn all_fit(queue: &str) -> Result<()> {
    for (kind, unique_opts) in config::kinds_of(queue) {
        let policy = policy::parse(unique_opts.as_ref().map(OwnedJsonb::get))?;
        cell::of_kind(Some(queue), policy.as_deref())
            .map_err(|why| Error::unfit_for_cells(queue, "kind", &kind, why, "jobs.define_kind"))?;
    }
    for Definition { name, kind, args, options, .. } in periodic_schedule::of_queue(queue) {
        let insert = options.checked(&kind).and_then(|checked| checked.candidate(args));
        insert.map_err(|why| {
            Error::unfit_for_cells(queue, "periodic job", &name, why, "jobs.schedule")
        })?;
    }
    Ok(())
}

/// The number of this database.
fn numbered(operation: &str) -> Result<i32> {
    let here = config_cache::here();
    here.map(|here| here.cell).ok_or_else(|| Error::no_cell(operation))
}

fn number(parameter: &str, cell: i32) -> Result<i32> {
    if (0..=LAST_CELL).contains(&cell) {
        return Ok(cell);
    }
    let message = format!("cell {cell} is out of range");
    let rule = format!("A cell must be between 0 and {LAST_CELL}.");
    Err(Error::invalid(parameter, message, rule))
}

/// The cells of a list, each once.
fn several(list: Array) -> Result<Vec<i32>> {
    const RULE: &str = "cells must list at least one cell, and each once.";
    let mut cells = Vec::new();
    for element in array::elements(list, pg_sys::INT4OID) {
        let cell = element.ok_or_else(|| Error::null_element("cells"))?.value() as i32;
        let cell = number("cells", cell)?;
        if cells.contains(&cell) {
            return Err(Error::invalid("cells", format!("cell {cell} is listed twice"), RULE));
        }
        cells.push(cell);
    }
    match cells.is_empty() {
        true => Err(Error::invalid("cells", "cells must not be empty", RULE)),
        false => Ok(cells),
    }
}
