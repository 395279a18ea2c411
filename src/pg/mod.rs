//! Talk with the server that pgrx has no word for, and all that is unsafe about it.
//!
//! Values: jsonb in place, result rows, arrays, times, time zones. Statements: kept plans, how they
//! are planned, search_path, settings. Tables: rows and indexes of our own, also what is not
//! committed. Transactions: subtransactions, procedures, locks, roles. Errors: what pgrx leaves out
//! of them. And what differs between majors.

pub mod array;
pub mod backtrace;
pub mod call;
pub mod catalog_rows;
pub mod changed;
pub mod critical;
pub mod extension;
pub mod guc;
pub mod index;
pub mod invalidation;
pub mod jsonb;
pub mod lock;
pub mod memory;
pub mod name;
pub mod numeric;
pub mod page_lookup;
pub mod path;
pub mod planner;
pub mod procedure;
pub mod remembered;
pub mod reply;
pub mod report;
pub mod role;
pub mod row;
pub mod scan;
pub mod server;
pub mod spi;
pub mod subxact;
pub mod table;
pub mod text;
pub mod time;
pub mod transaction;
pub mod versions;
pub mod zone;
