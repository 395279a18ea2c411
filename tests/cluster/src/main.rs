//! For ./dev:   cluster DATA [LINE]..      makes a data directory, with these lines of
//! postgresql.conf behind those that every cluster has.

use std::path::Path;

use jobs_cluster::Postgres;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().expect("a directory");
    let lines: String = arguments.map(|line| format!("{line}\n")).collect();
    Postgres::installed().make(Path::new(&data), &lines);
}
