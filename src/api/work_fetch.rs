//! Claiming jobs.

use jobs_core::interval::Interval;
use jobs_core::text::nfc;
use pgrx::PgSqlErrorCode as Code;
use pgrx::prelude::*;

use crate::attempt::{self, By, Ending, Failure, Finishing};
use crate::check;
use crate::error::{Result, answer};
use crate::fault::{self, Fault};
use crate::pg::answer::Rows;
use crate::pg::array::Array;
use crate::pg::{lock, server, subxact, time};
use crate::settings::LONGEST_ROW;
use crate::shmem::commit::{self, Work};
use crate::shmem::{fetches, things};
use crate::store::effects::Told;
use crate::store::fetch::{self, Emit, Fetch, Room};
use crate::store::lanes::{self, Reach};
use crate::store::{clock, config_cache, due, limits, place, workers};
use crate::transition;

/// Due jobs that a fetch moves at least, so that a crowd of them is moved in few steps.
const DUE_AT_LEAST: usize = 1000;
/// Where a fetch has discarded more jobs than these, it looks for no others in their place.
const MOST_DISCARDED: usize = 1000;

/// Claims jobs of one queue. See the COMMENT in sql/50_work.sql.
#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn fetch(
    queue: Option<&str>,
    max_jobs: Option<i32>,
    worker: Option<&str>,
    lease: Option<pgrx::datum::Interval>,
    kinds: Option<Array>,
    min_jobs: Option<i32>,
    linger: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    let run = || {
        let queue = check::name("queue", queue)?.into_owned();
        let least = Least { min_jobs, linger };
        claim(&[queue], max_jobs, worker, lease, kinds, least, fcinfo)
    };
    answer(run)
}

/// Claims jobs of several queues, in strict order. See the COMMENT in sql/50_work.sql.
#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn fetch_any(
    queues: Option<Array>,
    max_jobs: Option<i32>,
    worker: Option<&str>,
    lease: Option<pgrx::datum::Interval>,
    kinds: Option<Array>,
    min_jobs: Option<i32>,
    linger: Option<pgrx::datum::Interval>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Rows {
    let run = || {
        let queues = check::names("queues", "queue", check::given("queues", queues)?)?;
        let least = Least { min_jobs, linger };
        claim(&queues, max_jobs, worker, lease, kinds, least, fcinfo)
    };
    answer(run)
}

fn claim(
    queues: &[String],
    max_jobs: Option<i32>,
    worker: Option<&str>,
    lease: Option<pgrx::datum::Interval>,
    kinds: Option<Array>,
    least: Least,
    fcinfo: pg_sys::FunctionCallInfo,
) -> Result<Rows> {
    check::writable()?;
    let wanted = check::max_jobs(max_jobs)?;
    let lease = check::lease(lease)?;
    let kinds = kinds
        .map(|kinds| check::texts("kinds", kinds))
        .transpose()?;
    let kinds: Option<Vec<String>> =
        kinds.map(|kinds| kinds.iter().map(|kind| nfc(kind).into_owned()).collect());
    let least = least.checked(wanted)?;
    // Whatever name it is, the worker can be given a command by it.
    let worker = match worker.filter(|worker| !worker.is_empty()) {
        Some(worker) => check::name("worker", Some(worker))?.into_owned(),
        None => session_name(),
    };
    let fetch = Fetch {
        now: time::now(),
        worker: &worker,
        lease,
        kinds: kinds.as_deref(),
    };
    let mut rows = Rows::new(fcinfo);
    rows.expect(fetch::FETCHED_JOB);
    if config_cache::command(&worker).is_some() {
        workers::seen(&worker, fetch.now);
        return Ok(rows);
    }
    for queue in queues {
        fetches::note(queue, fetch.kinds, fetch.now);
    }
    let mut emit = |values, nulls| rows.push_datums((values, nulls));
    let taken = match least {
        None => take(queues, &fetch, wanted, &mut emit),
        Some(least) => least.take(queues, &fetch, wanted, &mut rows),
    };
    if taken < wanted {
        commit::wake_worker(Work::MayBeDue);
    }
    Ok(rows)
}

/// Claims up to so many jobs; how many. Jobs that no fetch can return are discarded, and others
/// come in their place.
fn take(queues: &[String], fetch: &Fetch, wanted: usize, emit: Emit) -> usize {
    let (mut left, mut discarded) = (wanted, 0);
    for queue in queues {
        loop {
            let mut too_long = Vec::new();
            let mut pass_on = |values: Vec<_>, nulls| match fetch::too_long(&values) {
                None => emit(values, nulls),
                Some(length) => too_long.push((fetch::id_and_token(&values), length)),
            };
            let claimed = take_from(queue, fetch, left, &mut pass_on);
            left -= claimed - too_long.len();
            discarded += too_long.len();
            discard(&too_long);
            if left == 0 || too_long.is_empty() || discarded > MOST_DISCARDED {
                break;
            }
        }
        if left == 0 {
            break;
        }
    }
    wanted - left
}

/// Ends attempts at jobs whose rows would be too long to be returned, for good.
fn discard(too_long: &[((i64, i64), u64)]) {
    if too_long.is_empty() {
        return;
    }
    let error = |length| {
        format!(
            "the job cannot be fetched: its args, meta and tags have {length} bytes of text, and at most {LONGEST_ROW} can be returned"
        )
    };
    let errors: Vec<String> = too_long.iter().map(|(_, length)| error(length)).collect();
    let details = place::details_of_type("too_long");
    let said: Vec<Finishing> = too_long
        .iter()
        .zip(&errors)
        .map(|(((id, token), _), error)| Finishing {
            id: *id,
            token: *token,
            ending: Ending::Fail(Failure {
                error,
                details: Some(details),
                retry_in: None,
                retryable: false,
                by: By::Fetch,
            }),
        })
        .collect();
    attempt::end(&said);
}

/// Claims up to so many jobs of a queue; how many.
fn take_from(queue: &str, fetch: &Fetch, wanted: usize, emit: Emit) -> usize {
    let set = config_cache::queue(queue);
    if set.is_paused() {
        return 0;
    }
    let mut most = wanted;
    let slots = set
        .concurrency
        .map(|limit| limits::lock_slots(queue, limit, most));
    most = slots.as_ref().map_or(most, Vec::len);
    let starts = set.rate_period.map(|period| {
        let starts = limits::lock_starts(queue, most, fetch.now, period);
        most = starts.len();
        (starts, period)
    });
    if most == 0 {
        return 0;
    }
    let promoted = match due::has_due(queue, fetch.now) {
        true => promote(queue, fetch.now, wanted.max(DUE_AT_LEAST), Told::Fetch),
        false => 0,
    };
    let room = Room {
        slots: slots.as_deref(),
        starts: starts
            .as_ref()
            .map(|(starts, period)| (&starts[..], *period)),
        promoted,
    };
    let tokens: Vec<i64> = (0..most).map(|_| new_token()).collect();
    fetch::claim(queue, fetch, &tokens, &room, emit)
}

/// How many jobs a fetch is to get at least, as it was asked for.
struct Least {
    min_jobs: Option<i32>,
    linger: Option<pgrx::datum::Interval>,
}

impl Least {
    /// `None`: one is enough.
    fn checked(self, max_jobs: usize) -> Result<Option<AtLeast>> {
        let jobs = check::min_jobs(self.min_jobs, max_jobs)?;
        let linger = check::duration("linger", self.linger)?;
        Ok((jobs > 1).then_some(AtLeast { jobs, linger }))
    }
}

/// By so many locks fetches take turns that want several jobs at least.
const TURNS: u64 = 16;

/// How many jobs a fetch is to get at least.
struct AtLeast {
    jobs: usize,
    /// once one is available for so long, there may be fewer; `None`: never
    linger: Option<Interval>,
}

impl AtLeast {
    /// Claims up to so many jobs, or none; how many.
    ///
    /// What turns out to be too little is given back, by a subtransaction that is rolled back.
    /// Nobody else who asks for so many is to pass over those jobs meanwhile: for him they may be
    /// enough. So fetches that want several jobs of a queue take turns. They may do so with those
    /// of other queues: [`TURNS`] numbers are locked at most, however many queues there are.
    fn take(&self, queues: &[String], fetch: &Fetch, wanted: usize, rows: &mut Rows) -> usize {
        let turns = queues
            .iter()
            .map(|queue| (things::queue(queue) % TURNS) as i64);
        let turns = turns.filter(|_| !fault::is_on(Fault::OutOfTurn));
        lock::in_turn(turns.collect(), || {
            if !self.are_there(queues, fetch) {
                return 0;
            }
            let is_enough = |taken: &(usize, i64)| self.is_met(taken.0, taken.1, fetch.now);
            let taken = subxact::kept_if(is_enough, || {
                let mut first = i64::MAX;
                let mut emit = |values: Vec<_>, nulls| {
                    first = first.min(fetch::since(&values));
                    rows.push_datums((values, nulls));
                };
                let count = take(queues, fetch, wanted, &mut emit);
                (count, first)
            });
            if is_enough(&taken) {
                taken.0
            } else {
                rows.clear();
                0
            }
        })
    }

    /// Whether there are enough jobs, as far as limits of queues are left aside. Due ones are made
    /// available for that.
    fn are_there(&self, queues: &[String], fetch: &Fetch) -> bool {
        let (mut count, mut first) = (0, i64::MAX);
        for queue in queues {
            if config_cache::queue(queue).is_paused() {
                continue;
            }
            if due::has_due(queue, fetch.now) {
                promote(queue, fetch.now, self.jobs.max(DUE_AT_LEAST), Told::All);
            }
            for since in fetch::available_since(queue, fetch, self.jobs - count) {
                count += 1;
                first = first.min(since);
            }
            if count >= self.jobs {
                break;
            }
        }
        self.is_met(count, first, fetch.now)
    }

    /// Whether so many jobs are enough, of which the first is available since then. Where that lies
    /// ahead, the clock was put back, and nobody knows how long it has waited.
    fn is_met(&self, count: usize, first: i64, now: i64) -> bool {
        let has_waited = |linger| time::add(first, linger) <= now || clock::is_ahead(first, now);
        count >= self.jobs || count > 0 && self.linger.is_some_and(has_waited)
    }
}

/// Makes due jobs available; how many. Where that fails because of one of them, the others can be
/// fetched all the same.
fn promote(queue: &str, now: i64, most: usize, told: Told) -> usize {
    let from = lanes::scheduled_from(queue, Reach::FromFloor);
    let promote = || fetch::promote_due(queue, from, now, most as i64, &[], told);
    if !subxact::has_room() {
        return promote();
    }
    subxact::attempt(promote).unwrap_or_else(|error| match subxact::describe(&error).0 {
        Code::ERRCODE_QUERY_CANCELED
        | Code::ERRCODE_T_R_SERIALIZATION_FAILURE
        | Code::ERRCODE_T_R_DEADLOCK_DETECTED => subxact::rethrow(*error),
        _ => promote_singly(queue, now),
    })
}

/// Makes the first due jobs of a queue ready one by one, apart from those that fail. What fails is
/// for maintenance to tell.
fn promote_singly(queue: &str, now: i64) -> usize {
    const MOST: i64 = 60;
    let due = due::scheduled(queue, now, MOST, &[]);
    let promote = |id: &i64| {
        let place = place::locate(*id);
        usize::from(place.is_some_and(|place| transition::became_due(&place)))
    };
    subxact::attempt_each(&due, &promote, &mut |_, _, _| {})
}

/// A new random token: 1 to 2^53 - 1, which a JSON number and a double hold exactly.
fn new_token() -> i64 {
    (server::random() >> 11).max(1) as i64
}

/// The session's application_name, else its process id.
fn session_name() -> String {
    match server::application_name() {
        name if name.is_empty() => server::process().to_string(),
        name => name,
    }
}
