//! pg_dump, pg_restore, psql and what they work on.

use std::path::PathBuf;

use jobs_tests::Cluster;

/// Runs a client program beside the test's own connections; it must succeed. What it printed.
pub async fn run(cluster: &Cluster, program: &str, args: &[&str]) -> String {
    let (ok, text) = try_run(cluster, program, args).await;
    assert!(ok, "{program} {args:?}: {text}");
    text
}

/// Runs a client program that may fail: whether it succeeded, and what it printed.
pub async fn try_run(cluster: &Cluster, program: &str, args: &[&str]) -> (bool, String) {
    let mut command = cluster.bin(program);
    command.args(args);
    let output = tokio::task::spawn_blocking(move || command.output().expect("a program"));
    let output = output.await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A path in the cluster's directory.
pub fn path(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.directory().join(name)
}

/// A path in the cluster's directory as text, for an argument.
pub fn file(cluster: &Cluster, name: &str) -> String {
    path(cluster, name).to_str().expect("UTF-8").into()
}

/// Dumps the database `before` into a file (or directory) of that name.
pub async fn dump(cluster: &Cluster, name: &str, options: &[&str]) -> String {
    let file = file(cluster, name);
    run(cluster, "pg_dump", &[options, &["-f", &file, "before"]].concat()).await;
    file
}

/// Makes an empty database.
pub async fn create(cluster: &Cluster, database: &str) {
    run(cluster, "createdb", &["-T", "template0", database]).await;
}

/// Restores a dump with pg_restore, which must find nothing wrong.
pub async fn restore(cluster: &Cluster, database: &str, file: &str, options: &[&str]) {
    run(cluster, "pg_restore", &[&["-e", "-d", database], options, &[file]].concat()).await;
}

/// Makes a database that is the copy of another one, by a dump.
pub async fn copy(cluster: &Cluster, from: &str, to: &str) {
    let file = file(cluster, "copy");
    run(cluster, "pg_dump", &["-Fc", "-f", &file, from]).await;
    create(cluster, to).await;
    restore(cluster, to, &file, &[]).await;
    run(cluster, "psql", &["-c", "select jobs.installed()", to]).await;
}

/// Runs a script with psql, which must find nothing wrong.
pub async fn psql(cluster: &Cluster, database: &str, file: &str, options: &[&str]) {
    let args = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", file];
    run(cluster, "psql", &[&args[..], options].concat()).await;
}

/// The table of contents of a dump, a line an entry.
pub async fn contents(cluster: &Cluster, file: &str) -> Vec<String> {
    let list = run(cluster, "pg_restore", &["-l", file]).await;
    list.lines().filter(|line| !line.starts_with(';')).map(String::from).collect()
}

/// Writes a list for `pg_restore -L`.
pub fn list(cluster: &Cluster, name: &str, entries: &[String]) -> String {
    std::fs::write(path(cluster, name), entries.join("\n") + "\n").expect("a list");
    file(cluster, name)
}
