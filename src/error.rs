//! Errors that users see: SQLSTATE, message, DETAIL with the rule, HINT with the fix.

use std::ffi::CStr;
use std::fmt;

use jobs_core::error::{Invalid, did_you_mean, quoted};
use jobs_core::state::State;
use jobs_core::words::many;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode as Code};
use serde_json::Value;

use crate::pg::report;

#[derive(Debug)]
pub struct Error {
    code: Code,
    /// The SQLSTATE, where pgrx has no name for it.
    own_code: Option<&'static CStr>,
    /// The parameter or member that it is about: every 22023 and 22004 has one.
    column: Option<String>,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

pub type Result<T> = std::result::Result<T, Error>;

/// What limits all jobs of a queue together.
pub enum Limiting<'a> {
    /// The queue's own concurrency or rate.
    Setting,
    Limit(&'a str),
    Order,
}

impl Error {
    fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            own_code: None,
            column: None,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    fn detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// 22023: a value of this parameter breaks a rule.
    pub fn invalid(parameter: &str, message: impl Into<String>, rule: impl Into<String>) -> Error {
        Invalid::new(parameter, message, rule).into()
    }

    /// 22023: a value of this parameter is too low or too high.
    pub fn out_of_range(
        parameter: &str,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Error {
        Error::invalid(parameter, format!("{parameter} {value} is out of range"), rule)
    }

    /// 22004: a null where none is allowed.
    pub fn null(parameter: &str) -> Error {
        let message = format!("{parameter} must not be null");
        Error {
            column: Some(parameter.into()),
            ..Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, message)
        }
    }

    /// 22004: a null in a list where none is allowed.
    pub fn null_element(parameter: &str) -> Error {
        Error {
            message: format!("an element of {parameter} must not be null"),
            ..Error::null(parameter)
        }
    }

    /// 22021: text that is none. Postgres checks what comes in, but not what a function in C makes.
    pub fn not_utf8() -> Error {
        let message = "a string in the JSON is not valid UTF-8";
        Error::new(Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, message)
    }

    /// P0002: no job has this id.
    pub fn unknown_job(id: i64) -> Error {
        let message = format!("job {id} does not exist");
        Error::new(Code::ERRCODE_NO_DATA_FOUND, message)
            .detail("The job was never inserted into this database, or it was deleted or pruned.")
    }

    /// P0002: no periodic job has this name. `known` are those that there are.
    pub fn unknown_periodic(name: &str, known: &[String]) -> Error {
        let message = format!("periodic job {} does not exist", quoted(name));
        Error::new(Code::ERRCODE_NO_DATA_FOUND, message).hint(
            did_you_mean(name, known).unwrap_or_else(|| "Use jobs.schedule to define it.".into()),
        )
    }

    /// P0002: no limit has this name. `known` are those that there are.
    pub fn unknown_limit(name: &str, known: &[String]) -> Error {
        let message = format!("limit {} does not exist", quoted(name));
        Error::new(Code::ERRCODE_NO_DATA_FOUND, message).hint(match name.strip_prefix("queue/") {
            Some(_) => "Use jobs.configure_queue or jobs.pause_queue.".into(),
            None => did_you_mean(name, known)
                .unwrap_or_else(|| "Use jobs.define_limit to define it.".into()),
        })
    }

    /// 42704: no role has this name. `known` are those that there are.
    pub fn unknown_role(name: &str, known: &[String]) -> Error {
        let message = format!("role {} does not exist", quoted(name));
        Error::new(Code::ERRCODE_UNDEFINED_OBJECT, message)
            .detail("Give the name as in pg_roles, without quotes.")
            .hint(if name.eq_ignore_ascii_case("public") {
                "PUBLIC cannot be given these rights. Name roles instead.".into()
            } else {
                did_you_mean(name, known).unwrap_or_else(|| "Use CREATE ROLE to create it.".into())
            })
    }

    /// 42501: only for a role with the rights of the extension's owner.
    pub fn not_owner(operation: &str) -> Error {
        let message = format!("must be owner of extension jobs to {operation}");
        Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
            .detail("EXECUTE on the function is not enough.")
            .hint("To see the owner: SELECT extowner::regrole FROM pg_extension WHERE extname = 'jobs';")
    }

    /// 55000: the job's state does not allow the operation.
    pub fn wrong_state(id: i64, state: State, operation: &str, rule: &str) -> Error {
        Error::not_done(id, operation, format!("it is {}", state.as_str())).detail(rule)
    }

    /// 55000 `lease_lost`: the caller's token is not the job's current one. `holder`: the worker
    /// that has the job, and since when.
    pub fn lease_lost(
        id: i64,
        operation: &str,
        state: State,
        holder: Option<(String, String)>,
    ) -> Error {
        let whose = match holder {
            Some((worker, since)) => {
                let worker = quoted(&worker);
                format!("the current attempt, which worker {worker} has held since {since}")
            }
            None => format!("a current attempt; the job is {}", state.as_str()),
        };
        Error::not_done(id, operation, format!("the token is not that of {whose}"))
            .detail("lease_lost")
            .hint("The lease expired, or the job was cancelled or released. Stop working on it.")
    }

    /// 55000 `already_finished`: another finishing call has used the caller's token. `call`: which;
    /// `None`: one that gave the job back.
    pub fn already_finished(id: i64, operation: &str, call: Option<&str>, became: State) -> Error {
        let (call, became) = (call.unwrap_or("snooze or release"), became.as_str());
        let why = format!("this token was already used by {call}, which made the job {became}");
        Error::not_done(id, operation, why)
            .detail("already_finished")
            .hint("A token is valid for one finishing call. Discard this result: another worker may own the job now.")
    }

    fn not_done(id: i64, operation: &str, why: String) -> Error {
        let message = format!("cannot {operation} job {id}: {why}");
        Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    }

    /// 55000 `deadline_exceeded`: a heartbeat after the attempt's time is over.
    pub fn deadline_exceeded(id: i64) -> Error {
        let operation = "renew the lease of";
        Error::wrong_state(id, State::Running, operation, "deadline_exceeded")
            .hint("The attempt has exceeded the job's timeout. Stop working on it.")
    }

    /// 23505: the policy rejects duplicates. The key stays out of it: it is derived from args.
    pub fn duplicate(existing: Option<i64>, state: Option<State>, index: Option<usize>) -> Error {
        let id = existing.map_or("null".into(), |id| id.to_string());
        let state = state.map_or("null".into(), |state| format!("\"{}\"", state.as_str()));
        let index = index.map_or(String::new(), |index| format!(",\"index\":{index}"));
        let message = "a job with the same unique key exists";
        Error::new(Code::ERRCODE_UNIQUE_VIOLATION, message)
            .detail(format!("{{\"existing_job_id\":{id},\"existing_job_state\":{state}{index}}}"))
    }

    /// 54000: a queue has no room for so many new jobs.
    pub fn queue_full(queue: &str, new: i64, depth: i64, bound: i64) -> Error {
        let queue = quoted(queue);
        let message = match depth < bound {
            true => format!("queue {queue} has no room for {new} more jobs"),
            false => format!("queue {queue} is full"),
        };
        Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
            .detail(format!("{{\"depth\":{depth},\"bound\":{bound}}}"))
            .hint("Retry when workers have taken some of its jobs, or raise max_waiting with jobs.configure_queue.")
    }

    /// 54000: the text of a part of what jobs carry is longer than `jobs.max_payload`.
    pub fn too_long(part: &str, length: u64, most: u64) -> Error {
        let message = format!("the text of {part} is too long: {length} bytes");
        Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
            .detail(format!("jobs.max_payload limits the text of {part} to {most} bytes."))
            .hint(
                "Store large data elsewhere and pass a reference to it, or raise jobs.max_payload.",
            )
    }

    /// JB001 (wrong_cell): this cell does not take jobs of the queue, or not this job of a queue
    /// that is spread. `cell`: where they live; `None`: nowhere.
    pub fn wrong_cell(
        queue: &str,
        is_spread: bool,
        cell: Option<i32>,
        address: Option<String>,
    ) -> Error {
        let what = if is_spread { "this job of queue" } else { "queue" };
        let lives = cell.map_or("in no cell".into(), |cell| format!("in cell {cell}"));
        let number = cell.map_or("null".into(), |cell| cell.to_string());
        let error = Error::of_cells(format!("{what} {} lives {lives}", quoted(queue)))
            .detail(format!("{{\"cell\": {number}, \"queue\": {}}}", Value::from(queue)));
        match (cell, address) {
            (_, Some(address)) => error.hint(address),
            (Some(_), None) => error,
            (None, None) => error.hint("Use jobs.place_queue or jobs.spread_queue."),
        }
    }

    /// JB001 (wrong_cell): this cell takes no writes any more.
    pub fn retired(cell: i32, moved_to: Option<&str>) -> Error {
        Error::of_cells(format!("cell {cell} is retired"))
            .detail(format!("{{\"cell\": {cell}, \"retired\": true}}"))
            .hint(
                moved_to.unwrap_or(
                    "If no other copy of this cell takes writes, use jobs.reinstate_cell.",
                ),
            )
    }

    fn of_cells(message: String) -> Error {
        let own_code = Some(c"JB001");
        Error { own_code, ..Error::new(Code::ERRCODE_INTERNAL_ERROR, message) }
    }

    /// 55000: what only a database with a cell number can do.
    pub fn no_cell(operation: &str) -> Error {
        let message = format!("cannot {operation}: this database has no cell number");
        Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .hint("Use jobs.set_cell first.")
    }

    /// 55000: an id of another cell than this one is in use.
    pub fn ids_of_another_cell(cell: i32, id: i64) -> Error {
        let message = format!("cannot become cell {cell}: id {id} belongs to another cell");
        Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .detail("The ids of jobs begin with the number of their cell.")
            .hint("A database that has jobs already can become cell 0.")
    }

    /// 55000: the cell has another identity than the one that it is said to have.
    pub fn another_identity(cell: i32, identity: &str) -> Error {
        let message = format!("cell {cell} has another identity: {identity}");
        Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .detail("Two databases with one number are copies of each other, or a mistake.")
    }

    /// 55000: a queue with a limit cannot be spread.
    pub fn limited_queue(queue: &str, by: Limiting) -> Error {
        let queue = quoted(queue);
        let (why, hint) = match by {
            Limiting::Setting => (
                "it has a concurrency or rate".into(),
                "Remove the limit with jobs.configure_queue.",
            ),
            Limiting::Order => {
                ("its order does not contain the path".into(), "Add it to by of the order.")
            }
            Limiting::Limit(limit) => (
                format!("limit {} does not contain the path", quoted(limit)),
                "Add it to by of the limit, or define that with per_cell => true.",
            ),
        };
        let message = format!("cannot spread queue {queue}: {why}");
        Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .detail("A limit or order of the queue would span cells.")
            .hint(hint)
    }

    /// 55000: a queue cannot be spread whose kinds or periodic jobs would then be refused. `why`:
    /// that refusal; `change`: the function that changes what has this name.
    pub fn unfit_for_cells(queue: &str, what: &str, name: &str, why: Error, change: &str) -> Error {
        let (queue, name) = (quoted(queue), quoted(name));
        let message = format!("cannot spread queue {queue}: in {what} {name}, {why}");
        let error = Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message);
        Error { detail: why.detail, ..error }
            .hint(format!("First change the {what} with {change}."))
    }

    /// 55006: this cell has jobs that would live elsewhere. `queue`: of this one; `None`: of those
    /// that are named nowhere.
    pub fn cell_in_use(queue: Option<&str>, jobs: i64) -> Error {
        let what = match queue {
            Some(queue) => format!("queue {} has", quoted(queue)),
            None => "queues that are named nowhere have".into(),
        };
        let message = format!("{what} jobs in this cell, which would no longer be its own");
        Error::new(Code::ERRCODE_OBJECT_IN_USE, message)
            .detail(format!("{}, final ones included.", many(jobs, "job")))
            .hint("Finish and delete them, use a new queue name, or move the whole cell.")
    }

    /// 40001: what says where jobs live has changed since it was read.
    pub fn moved_cells() -> Error {
        Error::could_not_serialize("access: the placement of the queue changed concurrently".into())
    }

    /// 25006: writing where it is not possible.
    pub fn read_only(recovery: bool) -> Error {
        let (message, hint) = if recovery {
            ("cannot write jobs on a standby", "Connect to the primary.")
        } else {
            ("cannot write jobs in a read-only transaction", "Use a read-write transaction.")
        };
        Error::new(Code::ERRCODE_READ_ONLY_SQL_TRANSACTION, message).hint(hint)
    }

    /// 25001: what ends transactions, called where there is one to be kept.
    pub fn in_transaction(what: &str) -> Error {
        let message = format!("{what} cannot run inside a transaction block");
        Error::new(Code::ERRCODE_ACTIVE_SQL_TRANSACTION, message)
            .detail("It commits, so that it holds no snapshot and no locks while it waits.")
            .hint("Call it in autocommit mode, as a single statement.")
    }

    /// 0A000: what this extension does not do.
    pub fn unsupported(message: &str, hint: &str) -> Error {
        Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).hint(hint)
    }

    /// 40001: what the transaction's snapshot shows is over.
    pub fn serialization(id: i64) -> Error {
        Error::could_not_serialize(format!("access to job {id} due to a concurrent change"))
    }

    pub fn serialization_of_limits() -> Error {
        Error::could_not_serialize("access to running jobs due to a concurrent change".into())
    }

    /// 40001: a key is taken by a transaction that the snapshot does not show.
    pub fn unseen_claim() -> Error {
        let message = report::UNSEEN_CLAIM.to_string_lossy();
        Error::retry(message.into_owned())
    }

    fn could_not_serialize(what: String) -> Error {
        Error::retry(format!("could not serialize {what}"))
    }

    fn retry(message: String) -> Error {
        let hint = report::RETRY.to_string_lossy();
        Error::new(Code::ERRCODE_T_R_SERIALIZATION_FAILURE, message).hint(hint)
    }

    /// 42501, as Postgres' own for such a query: policies hide rows of this table of ours from the
    /// extension's owner.
    pub fn forced_row_security(table: &str) -> Error {
        let message = format!("row-level security is forced on table jobs.{table}");
        Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
            .detail("Jobs would be lost if policies hid rows from the extension's owner.")
            .hint(format!("ALTER TABLE jobs.{table} NO FORCE ROW LEVEL SECURITY;"))
    }

    /// 53200: there is no room for so many bytes.
    pub fn out_of_memory(bytes: usize) -> Error {
        Error::new(Code::ERRCODE_OUT_OF_MEMORY, "out of memory")
            .detail(format!("Failed on request of size {bytes}."))
    }

    /// Names the element of a batch (from 1) in DETAIL.
    pub fn at(mut self, index: usize) -> Error {
        if self.code != Code::ERRCODE_UNIQUE_VIOLATION && self.own_code.is_none() {
            let rule = self.detail.map_or(".".into(), |rule| format!(": {rule}"));
            self.detail = Some(format!("Element {index}{rule}"));
        }
        self
    }

    /// Raises the error in Postgres; Rust values on the way are dropped.
    pub fn raise(self) -> ! {
        if self.own_code.is_some() || self.column.is_some() {
            report::complete(self.code, self.own_code, &self.message, self.column.as_deref());
        }
        let mut report = ErrorReport::new(self.code, self.message, "jobs");
        if let Some(detail) = self.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint {
            report = report.set_hint(hint);
        }
        report.report(PgLogLevel::ERROR);
        unreachable!("reporting an error does not return");
    }
}

/// The message alone.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Error {
        Error {
            column: Some(invalid.name().into()),
            detail: Some(invalid.detail),
            hint: invalid.hint,
            ..Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, invalid.message)
        }
    }
}

/// What each SQL function is: what it returns, or the error raised in Postgres.
///
/// The errors of statements keep all that they had on the way, and one for want of memory is an
/// error like others ([`report::kept`]): any function may meet it, however little it copies itself.
pub fn or_raise<T>(run: impl FnOnce() -> Result<T>) -> T {
    report::kept(run).unwrap_or_else(|error| error.raise())
}
