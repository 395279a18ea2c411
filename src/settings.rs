//! The settings: `jobs.*` in postgresql.conf, all read again on reload.

use std::ffi::CString;

use jobs_core::state::State;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

/// The settings, each as a static with its default, and what the server is told of it: name, short
/// and long description, the least and greatest value, who may set it, and its flags.
macro_rules! settings {
    ($($(#[$about:meta])* $visible:vis $static:ident: $type:ty = $default:expr;
        $define:ident($name:literal, $short:literal, $long:literal
            $(, $least:expr, $most:expr)?; $context:ident $flags:expr);)*) => {
        $($(#[$about])*
        $visible static $static: GucSetting<$type> = GucSetting::<$type>::new($default);)*

        /// Defines the settings, whether preloaded or not.
        pub fn define() {
            $(GucRegistry::$define(
                $name, $short, $long, &$static, $($least, $most,)? GucContext::$context, $flags);)*
            #[cfg(feature = "faults")]
            GucRegistry::define_string_guc(
                c"jobs.fault", c"Fault to inject, for the controls of the tests.", c"Empty: none.",
                &FAULT, GucContext::Suset, PLAIN);
        }
    };
}

const PLAIN: GucFlags = GucFlags::empty();

settings! {
    pub ENABLED: bool = true;
        define_bool_guc(c"jobs.enabled", c"Whether the background worker runs.", c""; Sighup PLAIN);
    /// As [`listed`] reads it.
    DATABASES: Option<CString> = Some(c"");
        define_string_guc(c"jobs.databases",
            c"Databases that the background worker maintains, separated by commas.",
            c"Empty: every database with the extension. Put a name with a comma in double quotes.";
            Sighup PLAIN);
    pub INTERVAL: i32 = 1000;
        define_int_guc(c"jobs.interval",
            c"Pause between maintenance passes. The worker wakes earlier when something is due.", c"",
            10, 3_600_000; Sighup GucFlags::UNIT_MS);
    pub BATCH_SIZE: i32 = 10_000;
        define_int_guc(c"jobs.batch_size",
            c"Maximum number of rows per maintenance transaction.", c"",
            1, 1_000_000; Sighup PLAIN);
    pub ADVISORY_LOCK_PREFIX: i32 = 0;
        define_int_guc(c"jobs.advisory_lock_prefix",
            c"High half of the advisory lock ids of unique keys.",
            c"0: the id is the first 8 bytes of the key.", i32::MIN, i32::MAX; Sighup PLAIN);
    pub NOTIFY: bool = true;
        define_bool_guc(c"jobs.notify",
            c"Whether channel jobs is notified of available jobs and cancel requests.",
            c"The background worker sends the notifications, not the transactions that cause them.";
            Sighup PLAIN);
    LOG_MIN_MESSAGES: LogLevel = LogLevel::Warning;
        define_enum_guc(c"jobs.log_min_messages", c"Log level of the background worker.", c"";
            Sighup PLAIN);
    RETENTION_COMPLETED: i32 = 24 * 3600;
        define_int_guc(c"jobs.retention_completed",
            c"How long completed jobs are kept; -1: forever.", c"",
            -1, i32::MAX; Sighup GucFlags::UNIT_S);
    RETENTION_CANCELLED: i32 = 24 * 3600;
        define_int_guc(c"jobs.retention_cancelled",
            c"How long cancelled jobs are kept; -1: forever.", c"",
            -1, i32::MAX; Sighup GucFlags::UNIT_S);
    RETENTION_DISCARDED: i32 = 7 * 24 * 3600;
        define_int_guc(c"jobs.retention_discarded",
            c"How long discarded jobs are kept; -1: forever.", c"",
            -1, i32::MAX; Sighup GucFlags::UNIT_S);
    pub RETENTION_AUDIT: i32 = 90 * 24 * 3600;
        define_int_guc(c"jobs.retention_audit",
            c"How long rows of jobs.audit are kept; -1: forever.", c"",
            -1, i32::MAX; Sighup GucFlags::UNIT_S);
    pub RETENTION_HISTORY: i32 = 7 * 24 * 3600;
        define_int_guc(c"jobs.retention_history",
            c"How long minutes of jobs.history are kept; -1: forever.", c"",
            -1, i32::MAX; Sighup GucFlags::UNIT_S);
    pub RETENTION_FORWARDED: i32 = 7 * 24 * 3600;
        define_int_guc(c"jobs.retention_forwarded",
            c"How long keys of jobs.forward are kept after the outbox deleted their rows; -1: forever.",
            c"An outbox restored from an older backup than that inserts jobs again.",
            -1, i32::MAX; Sighup GucFlags::UNIT_S);
    MAX_PAYLOAD: i32 = 64 * 1024;
        define_int_guc(c"jobs.max_payload",
            c"Maximum size, as text, of args and meta together.",
            c"Also of output, progress, error details, tags, retry, unique_opts and worker info, each.",
            1, HIGHEST_PAYLOAD; Sighup GucFlags::UNIT_KB);
    METRICS_MAX_SERIES: i32 = 50_000;
        define_int_guc(c"jobs.metrics_max_series",
            c"Maximum number of series of jobs.metrics() by limit, queue and kind. The rest is summed as (others).",
            c"", 1000, i32::MAX; Sighup PLAIN);
    pub DIRECT_ACCESS: bool = true;
        define_bool_guc(c"jobs.direct_access",
            c"Whether tables are read and written without statements where possible.",
            c"For tests and diagnosis. Off is slower."; Suset GucFlags::NO_SHOW_ALL);
}
/// The fault that is on, by name; empty: none.
#[cfg(feature = "faults")]
pub static FAULT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// The highest that it can be: args, meta and tags of that length, the tags quoted, still fit into
/// the row of a fetch, which Postgres sends if it is shorter than 1 GB.
const HIGHEST_PAYLOAD: i32 = 256 * 1024;

/// The values of `jobs.log_min_messages`, as those of `log_min_messages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(missing_docs)]
pub enum LogLevel {
    #[name = c"debug5"]
    Debug5,
    #[name = c"debug4"]
    Debug4,
    #[name = c"debug3"]
    Debug3,
    #[name = c"debug2"]
    Debug2,
    #[name = c"debug1"]
    Debug1,
    #[name = c"info"]
    Info,
    #[name = c"notice"]
    Notice,
    #[name = c"warning"]
    Warning,
    #[name = c"error"]
    Error,
    #[name = c"log"]
    Log,
    #[name = c"fatal"]
    Fatal,
    #[name = c"panic"]
    Panic,
}

/// What a retention says, in microseconds; `None`: for ever.
pub fn kept(setting: &GucSetting<i32>) -> Option<i64> {
    match setting.get() {
        -1 => None,
        seconds => Some(i64::from(seconds) * 1_000_000),
    }
}

/// How long final jobs are kept, in microseconds, a time for each final state; `None`: for ever.
#[derive(Clone, Copy, Debug)]
pub struct Retention([Option<i64>; State::FINAL.len()]);

impl Retention {
    /// The one for a state; `None` also for states that are not final.
    pub fn of(self, state: State) -> Option<i64> {
        state.final_number().and_then(|n| self.0[n])
    }

    pub fn current() -> Retention {
        let settings = [&RETENTION_COMPLETED, &RETENTION_CANCELLED, &RETENTION_DISCARDED];
        Retention(settings.map(kept))
    }
}

/// How long each part of what a job carries can be, in bytes of text.
pub fn max_payload() -> u64 {
    u64::from(MAX_PAYLOAD.get().unsigned_abs()) * 1024
}

/// From what length on a job's args, meta and tags cannot be returned, whatever
/// [`max_payload`] was when they were inserted.
pub const LONGEST_ROW: u64 = 3 * HIGHEST_PAYLOAD as u64 * 1024;

pub fn metrics_max_series() -> usize {
    METRICS_MAX_SERIES.get().unsigned_abs() as usize
}

/// Whether the background worker cares for a database of this name.
pub fn covers(database: &str) -> bool {
    let list = DATABASES.get().unwrap_or_default();
    let names = listed(&list.to_string_lossy());
    names.is_empty() || names.iter().any(|name| name == database)
}

/// The names in a list, which commas separate. One in double quotes can have commas in it, and two
/// double quotes are one of its own.
fn listed(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let mut name = String::new();
        while let Some(quoted) = rest.strip_prefix('"') {
            let (part, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            name.push_str(part);
            rest = behind;
            if rest.starts_with('"') {
                name.push('"');
            }
        }
        let (plain, others) = rest.split_once(',').unwrap_or((rest, ""));
        name.push_str(plain.trim());
        rest = others.trim_start();
        names.push(name);
    }
    names.retain(|name| !name.is_empty());
    names
}

/// What has it maintain this database as well.
pub fn hint_to_cover(database: &str) -> String {
    let list = DATABASES.get().unwrap_or_default();
    let is_plain = !database.contains([',', '"']) && database.trim() == database;
    let name = match is_plain {
        true => database.to_string(),
        false => format!("\"{}\"", database.replace('"', "\"\"")),
    };
    let list = format!("{}, {name}", list.to_string_lossy());
    let list = list.replace('\'', "''");
    format!("ALTER SYSTEM SET jobs.databases = '{list}'; SELECT pg_reload_conf();")
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::listed;

    #[pg_test]
    fn a_list_of_names_is_read() {
        for (list, names) in [
            ("", &[][..]),
            (" , ", &[]),
            ("a", &["a"]),
            (" A b ,c,", &["A b", "c"]),
            (r#""a,b", c"#, &["a,b", "c"]),
            (r#""", " a ""b"" ""#, &[r#" a "b" "#]),
            (r#"a"b, """"#, &[r#"a"b"#, "\""]),
            (r#""a,b"#, &["a,b"]),
        ] {
            assert_eq!(listed(list), names, "{list}");
        }
    }
}
