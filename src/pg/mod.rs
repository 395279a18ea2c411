//! Talk with the server that pgrx has no word for: jsonb in place, result rows, arrays, times, time
//! zones, subtransactions, procedures, roles, locks, the extension and its schema, settings,
//! search_path, how our statements are planned, what pgrx leaves out of errors, uncommitted rows,
//! rows and indexes of our own tables; what differs between majors. All that is unsafe about it
//! stays in here and in [`crate::store::spi`].

pub mod answer;
pub mod array;
pub mod backtrace;
pub mod changed;
pub mod critical;
pub mod dirty;
pub mod extension;
pub mod guc;
pub mod index;
pub mod invalidation;
pub mod jsonb;
pub mod lock;
pub mod memory;
pub mod name;
pub mod nearby;
pub mod path;
pub mod planner;
pub mod procedure;
pub mod report;
pub mod role;
pub mod row;
pub mod scan;
pub mod server;
pub mod subxact;
pub mod table;
pub mod time;
pub mod transaction;
pub mod versions;
pub mod zone;
