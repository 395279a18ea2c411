//! Workers: they say that they are there, and operators give them commands.

use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::changed;
use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::array::Array;
use crate::pg::jsonb::Jsonb;
use crate::pg::{role, time};
use crate::shmem::announce;
use crate::store::config_cache;
use crate::store::workers::{self, Beat, Command};

#[pg_extern(sql = false)]
fn worker_beat(
    worker: Option<&str>,
    queues: Option<Array>,
    concurrency: Option<i32>,
    info: Option<Jsonb>,
) -> String {
    or_raise(|| {
        check::writable()?;
        let worker = &*check::name("worker", worker)?;
        let queues = check::names("queues", "queue", check::given("queues", queues)?)?;
        let beat = Beat {
            worker,
            queues: &queues,
            concurrency: at_least_one(check::given("concurrency", concurrency)?)?,
            info: check::payload("info", check::object("info", info)?)?,
        };
        let now = time::now();
        workers::beat(&beat, now);
        let command = config_cache::command(worker);
        if command.is_some() {
            workers::seen(worker, now);
        }
        Ok(command.map_or("run", Command::as_str).to_string())
    })
}

#[pg_extern(sql = false)]
fn worker_leave(worker: Option<&str>) -> bool {
    or_raise(|| {
        check::writable()?;
        Ok(workers::leave(&check::name("worker", worker)?))
    })
}

fn at_least_one(concurrency: i32) -> Result<i32> {
    if concurrency >= 1 {
        return Ok(concurrency);
    }
    let message = format!("concurrency {concurrency} is too low");
    let rule = "concurrency must be at least 1.";
    Err(Error::invalid("concurrency", message, rule))
}

#[pg_extern(sql = false)]
fn quiet_worker(worker: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| give(worker, Some(Command::Quiet), reason, fcinfo))
}

#[pg_extern(sql = false)]
fn stop_worker(worker: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| give(worker, Some(Command::Stop), reason, fcinfo))
}

#[pg_extern(sql = false)]
fn resume_worker(worker: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    or_raise(|| give(worker, None, reason, fcinfo))
}

/// Gives a worker a command; `None`: none any more.
fn give(
    worker: Option<&str>,
    command: Option<Command>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
) -> Result<()> {
    check::managing(reason)?;
    let worker = &*check::name("worker", worker)?;
    let is_new = match command {
        Some(command) => workers::give(worker, command, reason, &role::caller(), time::now()),
        None => workers::resume(worker),
    };
    if is_new {
        announce::requested(worker);
        changed(fcinfo);
    }
    Ok(())
}
