//! Many connections, every kind of transaction, crashes, standbys, dumps and upgrades: the
//! extension from outside.
//!
//! One program, so that it is linked once; `./dev test` runs each module as a unit by itself,
//! `server:NAME`.

mod administrators;
mod bounds;
mod cells;
mod clock;
mod concurrency;
mod databases;
mod direct;
mod dump;
mod durability;
mod effects;
mod errors;
mod explain;
mod floors;
mod hints;
mod histories;
mod history;
mod keyed;
mod known_defects;
mod large_transactions;
mod leases;
mod lifecycle;
mod limits;
mod locks;
mod log_scan;
mod maintenance;
mod memory;
mod notify;
mod observe;
mod options;
mod order;
mod out_of_memory;
mod periodic;
mod policy_fuzz;
mod queues;
mod retention;
mod rights;
mod security;
mod session;
mod smoke;
mod together;
mod transactions;
mod unique;
mod upgrade;
mod wait;
mod wait_any;
mod wait_for;
mod work;
mod worker;
mod workers;
