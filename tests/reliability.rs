//! Reliability in the large: crashes, failovers, full disks, hours of load, calls of every function
//! with all that is nasty.
//!
//! `./dev test reliability` runs it for seconds, `./dev reliability SECONDS` for longer and writes
//! docs/reliability.md from the lines that the cases print (`support/figures.rs`). Not among the
//! tests of the suite `server`: Cargo.toml says `test = false`.

#[path = "reliability/controls.rs"]
mod controls;
#[path = "reliability/crashes.rs"]
mod crashes;
#[path = "reliability/disk.rs"]
mod disk;
#[path = "reliability/failover.rs"]
mod failover;
#[path = "reliability/fuzz.rs"]
mod fuzz;
#[path = "reliability/healthy.rs"]
mod healthy;
#[path = "reliability/keyed.rs"]
mod keyed;
#[path = "reliability/leaks.rs"]
mod leaks;
#[path = "reliability/moves.rs"]
mod moves;
#[path = "reliability/smith.rs"]
mod smith;
#[path = "reliability/soak.rs"]
mod soak;
