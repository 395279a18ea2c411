//! What every background process here needs: signals, sleep, transactions that end.

use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::pg_sys::panic::CaughtError;
use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use crate::pg::subxact::catch;
use crate::pg::{catalog_rows, report, server, versions};
use crate::shmem;
use crate::store::catalog;

// Postgres' own handlers. pgrx' SIGTERM handler only sets a flag of its own: a worker
// inside a statement would ignore it, and a fast shutdown would wait for ever.
unsafe extern "C-unwind" {
    fn die(signal: i32);
    fn SignalHandlerForConfigReload(signal: i32);
}

/// What a worker begins with; the launcher names it.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn jobs_database_main(database: Datum) {
    report::kept(|| super::database::main(Oid::from(database.value() as u32)));
}

/// What the launcher begins with; the postmaster is told its name.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn jobs_launcher_main(_argument: Datum) {
    report::kept(super::launcher::main);
}

/// Begins to be one: sets what it depends on, installs the signal handlers and lets signals in.
///
/// The settings come before the process connects to its database, as those of autovacuum do. What
/// the database or the role has set is then passed over, also in the transaction in which the
/// server connects the process: a `transaction_timeout` of theirs would end it there.
pub fn begin() {
    shmem::become_worker();
    for (name, value) in SETTINGS {
        set(name, value);
    }
    // SAFETY: called once at the start of a background worker, with signals blocked.
    unsafe {
        versions::handle_signal(pg_sys::SIGTERM, die);
        versions::handle_signal(pg_sys::SIGHUP, SignalHandlerForConfigReload);
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Sleeps until woken, and then does what signals ask for: ends the process, reads the
/// settings again. Ends the process also when the postmaster is gone.
pub fn sleep(at_most: Duration) {
    server::wait_for_latch(at_most);
    obey();
}

/// Does what signals ask for. Called outside of transactions, where there is nothing to cancel.
pub fn obey() {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::QueryCancelPending = 0 };
    pgrx::check_for_interrupts!();
    // SAFETY: variables of this process; the settings are read outside a transaction.
    unsafe {
        if pg_sys::ConfigReloadPending != 0 {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
            apply_log_level();
        }
    }
}

/// The worker logs at its own level.
fn apply_log_level() {
    let level = c"jobs.log_min_messages".as_ptr();
    // SAFETY: a setting that there is; the text of its value is copied.
    unsafe {
        let level = CStr::from_ptr(pg_sys::GetConfigOption(level, false, false));
        set_to(c"log_min_messages", level);
    }
}

/// What these processes depend on, whatever the server's configuration says: transactions that are
/// serializable, read only and deferrable would wait for others before they begin, and a trigger
/// that a role has attached is that role's to switch on.
const SETTINGS: &[(&str, &str)] = &[
    ("search_path", "pg_catalog, pg_temp"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("row_security", "on"),
    ("session_replication_role", "origin"),
    ("statement_timeout", "0"),
    // To be connected may take as long as a DROP DATABASE; after that see below.
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    ("transaction_timeout", "0"),
    ("max_parallel_workers_per_gather", "0"),
    ("track_activities", "on"),
    ("track_counts", "on"),
    // To read what else is set must not fail by it.
    ("temp_file_limit", "-1"),
];

/// Once it is connected: what is not in [`SETTINGS`] becomes what the server's configuration says.
/// What was set of the database, or of the role, is for sessions, and the owner of a database may
/// set it.
///
/// The configuration is read anew: a reload since the postmaster made this process may have been
/// missed, as the server ignores that signal until [`begin`].
pub fn apply_settings() {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::ConfigReloadPending = 1 };
    obey();
    set("lock_timeout", "1s");
    // What is in no database has no settings of one.
    if server::database() != pg_sys::InvalidOid {
        become_the_superuser();
        let others = transaction(catalog::settings_of_database).unwrap_or_default();
        for (name, value) in others {
            // One that cannot be what it is by default stays what it is.
            let _ = transaction(|| set(&name, &value));
        }
    }
    apply_log_level();
}

/// The database may have begun the session as another role.
fn become_the_superuser() {
    let done = transaction(|| {
        // SAFETY: the first superuser cannot be dropped; its name is a copy.
        let name = unsafe {
            let name = pg_sys::GetUserNameFromId(pg_sys::BOOTSTRAP_SUPERUSERID.into(), false);
            CStr::from_ptr(name).to_owned()
        };
        set_to(c"session_authorization", &name);
        set_to(c"role", c"none");
    });
    done.expect("the first superuser may be itself");
}

pub fn set(name: &str, value: &str) {
    let name = CString::new(name).expect("no zero byte");
    let value = CString::new(value).expect("no zero byte");
    set_to(&name, &value);
}

fn set_to(name: &CStr, value: &CStr) {
    // SAFETY: both strings are copied.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

/// Runs `work` in a transaction of its own. An error rolls it back and is returned; the
/// process continues.
pub fn transaction<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    // SAFETY: the sequence of any background worker; no transaction is open.
    let all = || unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let done = work();
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        done
    };
    let outcome = catch(|| report::kept(all));
    if outcome.is_err() {
        // SAFETY: ends whatever state the error left.
        unsafe { pg_sys::AbortCurrentTransaction() };
    }
    outcome
}

/// Whether a database can be worked in: it is open, and no session is dropping, renaming,
/// moving or copying it. Those commands hold this lock while they wait for others to
/// leave. The lock is held until the transaction ends.
pub fn database_is_free(database: Oid) -> bool {
    let free = try_lock(
        pg_sys::InvalidOid,
        pg_sys::DatabaseRelationId,
        database,
        pg_sys::RowExclusiveLock,
    );
    free && is_still_open(database)
}

/// Whether a worker may be in a database: it lets sessions in and is no template.
fn is_open(database: &pg_sys::FormData_pg_database) -> bool {
    // What is left of an interrupted DROP DATABASE cannot be connected to.
    let valid = database.datconnlimit != pg_sys::DATCONNLIMIT_INVALID_DB;
    database.datallowconn && !database.datistemplate && valid
}

fn is_still_open(database: Oid) -> bool {
    // SAFETY: in a transaction. The cache of databases, which has such rows, can also be read by a
    // process that is in none.
    unsafe { catalog_rows::read(SysCacheIdentifier::DATABASEOID, database, is_open) }
        .unwrap_or(false)
}

/// Keeps the extension from being dropped until the transaction ends; whether no session has
/// done that, or is just doing it. Taken before any table, as DROP EXTENSION does, so that the two
/// cannot deadlock.
pub fn extension_is_free(extension: Oid) -> bool {
    let free = try_lock(
        server::database(),
        pg_sys::ExtensionRelationId,
        extension,
        pg_sys::AccessShareLock,
    );
    free && is_still_there(extension)
}

/// A DROP EXTENSION may have committed between the look for it and its lock.
fn is_still_there(extension: Oid) -> bool {
    // SAFETY: in a transaction; the name is a copy, or null.
    unsafe {
        pg_sys::AcceptInvalidationMessages();
        let name = pg_sys::get_extension_name(extension);
        if !name.is_null() {
            pg_sys::pfree(name.cast());
        }
        !name.is_null()
    }
}

fn try_lock(database: Oid, class: Oid, object: Oid, mode: u32) -> bool {
    let tag = pg_sys::LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: class.to_u32(),
        locktag_field3: object.to_u32(),
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
    // SAFETY: a valid tag; never waits.
    let got = unsafe { pg_sys::LockAcquire(&tag, mode as i32, false, true) };
    got != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// All databases, and the names of those that a worker may be in. A process without a database may
/// read them, in a transaction.
pub fn databases() -> Vec<(Oid, Option<String>)> {
    let mut found = Vec::new();
    let look = |database: &pg_sys::FormData_pg_database| {
        let name = is_open(database).then(|| name_of(database));
        found.push((database.oid, name));
    };
    // SAFETY: that is what the catalog has.
    unsafe { catalog_rows::for_each(pg_sys::DatabaseRelationId, look) };
    found
}

/// The name of a database. It is in the encoding of the database in which it was given,
/// whatever that was: what is no UTF-8 is a question mark.
fn name_of(database: &pg_sys::FormData_pg_database) -> String {
    // SAFETY: names end with a zero byte.
    let name = unsafe { CStr::from_ptr(database.datname.data.as_ptr()) };
    let chunks = name.to_bytes().utf8_chunks();
    let shown = chunks.flat_map(|chunk| {
        let unknown = (!chunk.invalid().is_empty()).then_some('?');
        chunk.valid().chars().chain(unknown)
    });
    shown.collect()
}

/// Fires deferred triggers now. A commit would do it with the rights of the process.
pub fn fire_deferred() {
    // SAFETY: no query is under way.
    unsafe { pg_sys::AfterTriggerFireDeferred() };
}

/// Shows in pg_stat_activity what the process is doing; `None`: it waits.
pub fn report_activity(what: Option<&str>) {
    let text = what.map(|what| CString::new(what).expect("no zero byte"));
    let state = match what {
        Some(_) => pg_sys::BackendState::STATE_RUNNING,
        None => pg_sys::BackendState::STATE_IDLE,
    };
    // SAFETY: the text is copied.
    unsafe {
        pg_sys::pgstat_report_activity(
            state,
            text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr()),
        )
    };
}

/// Hands in what autovacuum lives on. Outside a transaction.
pub fn report_statistics() {
    // SAFETY: no transaction is under way.
    unsafe { pg_sys::pgstat_report_stat(false) };
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    #[pg_test]
    fn databases_have_names_in_any_encoding() {
        let name = |bytes: &[u8]| {
            let mut database = pgrx::pg_sys::FormData_pg_database::default();
            for (to, from) in database.datname.data.iter_mut().zip(bytes) {
                *to = *from as std::ffi::c_char;
            }
            super::name_of(&database)
        };
        assert_eq!(name(b"jobs"), "jobs");
        assert_eq!(name("für".as_bytes()), "für");
        assert_eq!(name(b"caf\xE9"), "caf?");
        assert_eq!(name(&[0xFF; 63]), "?".repeat(63));
    }
}
