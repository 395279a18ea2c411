//! Backups and upgrades: a queue that was dumped and restored, upgraded or taken over by a standby
//! is the same queue, row by row, and goes on as if nothing had happened.
//!
//! `dump/queue.sql` is a queue with something of everything in it, `dump/rows.rs` compares rows,
//! `dump/works.rs` goes on with the queue.

pub(crate) mod programs;
mod rows;
mod works;

use std::sync::Arc;

use jobs_tests::{
    Builder, Client, Cluster, Mode, SOON, count, number, poll_until, run, scalar, seconds,
    sqlstate, text, texts, with,
};
use programs::{contents, create, dump, list, psql, restore};
use rows::Contents;
use works::{Expected, UNIQUE};

const QUEUE: &str = include_str!("dump/queue.sql");
/// What is granted in that queue, as far as its use needs it.
const GRANTS: &str = "grant usage on schema jobs to dump_producer, dump_viewer;
                      grant execute on function jobs.insert to dump_producer;
                      grant select (id, state) on jobs.jobs to dump_viewer";

/// A server with the queue in the database `before`, which no session works on.
struct Queue {
    cluster: Cluster,
    before: Contents,
    expected: Expected,
}

impl Queue {
    /// Without the background worker.
    async fn start() -> Queue {
        Self::start_with(Cluster::builder().set("jobs.enabled", "off")).await
    }

    /// With the background worker in the databases `after`, `again` and `beside`.
    async fn start_with_worker() -> Queue {
        let builder = Cluster::builder()
            .set("jobs.databases", "after, again, beside")
            .set("jobs.interval", "10ms")
            .set("deadlock_timeout", "30s"); // see Waker
        Self::start_with(builder).await
    }

    async fn start_with(builder: Builder) -> Queue {
        let cluster = builder.start();
        let postgres = cluster.connect("postgres").await;
        run(&postgres, "create role dump_producer; create role dump_viewer").await;
        let db = cluster.database("before").await;
        for statement in QUEUE.split(";\n") {
            run(&db, statement).await;
        }
        for unique in UNIQUE {
            run(&db, &format!("select jobs.insert({unique})")).await;
        }
        let before = Contents::of(&db).await;
        let last = scalar(&db, "select last_value from jobs.job_seq").await;
        drop(db);
        let expected = Expected::of(&cluster, last).await;
        Queue { cluster, before, expected }
    }

    /// A database has every row and all rights.
    async fn assert_same(&self, database: &str) {
        let db = self.cluster.connect(database).await;
        let differences = self.before.differences(&Contents::of(&db).await);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

/// Has a row while maintenance is paused, which these tests need to go on.
const NOT_PAUSED: &str = "jobs.maintenance_pause";
/// Has a row until maintenance has followed a change.
const FOLLOWED: &str = "jobs.retention_change";

#[tokio::test]
async fn paused_maintenance_is_paused_after_a_restore() {
    let (cluster, db) = with("before", &[]).await;
    // The worker may have looked whether it is paused up to a second ago.
    run(&db, "select jobs.pause_maintenance()").await;
    run(&db, "select pg_sleep(1.5)").await;
    run(&db, "select jobs.insert('due', scheduled_at => clock_timestamp() + '10 ms')").await;
    let file = dump(&cluster, "before", &["-Fc"]).await;
    create(&cluster, "after").await;
    restore(&cluster, "after", &file, &[]).await;
    let after = cluster.connect("after").await;
    run(&after, "select jobs.installed(); select pg_sleep(1.5)").await;
    let state = "select state::text from jobs.jobs";
    assert_eq!(text(&after, state).await, "scheduled");
    run(&after, "select jobs.resume_maintenance()").await;
    poll_until("maintenance goes on", SOON, async || text(&after, state).await == "available")
        .await;
}

#[tokio::test]
async fn the_queue_of_these_tests_has_something_in_every_table() {
    let queue = Queue::start().await;
    assert_eq!(queue.before.empty(), [NOT_PAUSED, FOLLOWED]);
    let db = queue.cluster.connect("before").await;
    // What tells of the server, is counted again, or said again.
    let not_dumped = [
        "jobs.heartbeat_note",
        "jobs.worker",
        "jobs.maintenance_task",
        "jobs.history_delta",
        "jobs.history_total",
        "jobs.kept_count",
        "jobs.kept_queue",
    ];
    assert_eq!(rows::not_dumped(&db).await, not_dumped);
    queue.assert_same("before").await;
}

/// What has to be the same after every restore, with the background worker off.
async fn assert_goes_on(queue: &Queue, database: &str) {
    queue.assert_same(database).await;
    queue.expected.check(&queue.cluster, database).await;
}

#[tokio::test]
async fn a_plain_dump() {
    let queue = Queue::start().await;
    let file = dump(&queue.cluster, "plain.sql", &[]).await;
    create(&queue.cluster, "after").await;
    psql(&queue.cluster, "after", &file, &[]).await;
    assert_goes_on(&queue, "after").await;
    // As statements instead of COPY, in one transaction.
    let file = dump(&queue.cluster, "inserts.sql", &["--inserts"]).await;
    create(&queue.cluster, "inserts").await;
    psql(&queue.cluster, "inserts", &file, &["-1"]).await;
    assert_goes_on(&queue, "inserts").await;
}

#[tokio::test]
async fn a_custom_dump() {
    let queue = Queue::start().await;
    let file = dump(&queue.cluster, "custom", &["-Fc"]).await;
    create(&queue.cluster, "after").await;
    restore(&queue.cluster, "after", &file, &[]).await;
    assert_goes_on(&queue, "after").await;
    // In one transaction.
    create(&queue.cluster, "single").await;
    restore(&queue.cluster, "single", &file, &["-1"]).await;
    assert_goes_on(&queue, "single").await;
}

#[tokio::test]
async fn a_dump_by_several_processes() {
    let queue = Queue::start().await;
    let file = dump(&queue.cluster, "directory", &["-Fd", "-j", "4"]).await;
    create(&queue.cluster, "after").await;
    restore(&queue.cluster, "after", &file, &["-j", "4"]).await;
    assert_goes_on(&queue, "after").await;
}

#[tokio::test]
async fn a_dump_of_the_schema_alone_gives_an_empty_queue() {
    let queue = Queue::start().await;
    let file = dump(&queue.cluster, "schema", &["-Fc", "-s"]).await;
    create(&queue.cluster, "after").await;
    restore(&queue.cluster, "after", &file, &[]).await;
    let db = queue.cluster.connect("after").await;
    let empty = Contents::of(&db).await;
    assert_eq!(empty.tables["jobs.job_seq"], ["(1,f)"]);
    assert_eq!(empty.empty().len(), empty.tables.len() - 1);
    let rights: Vec<String> = queue.before.differences(&empty);
    let rights = rights.iter().filter(|line| line.starts_with("rights"));
    assert_eq!(rights.count(), 0);
    let id = number(&db, "select id from jobs.insert('first')").await;
    assert_eq!(id, 1);
    let call = "select jobs.complete(id, token)::text from jobs.fetch()";
    assert_eq!(text(&db, call).await, "completed");
}

#[tokio::test]
async fn a_dump_of_the_data_alone() {
    let queue = Queue::start().await;
    let file = dump(&queue.cluster, "rows", &["-Fc", "-a"]).await;
    let db = queue.cluster.database("after").await;
    restore(&queue.cluster, "after", &file, &[]).await;
    let differences = queue.before.row_differences(&Contents::of(&db).await);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Rights are not data.
    run(&db, GRANTS).await;
    queue.expected.check(&queue.cluster, "after").await;
}

#[tokio::test]
async fn a_restore_over_a_queue_that_is_there() {
    let queue = Queue::start().await;
    let file = dump(&queue.cluster, "custom", &["-Fc"]).await;
    let db = queue.cluster.database("after").await;
    run(
        &db,
        r#"select jobs.insert('other', unique_opts => '{"by_kind": true}') from generate_series(1, 5);
           select jobs.schedule('other', '@hourly', 'other'); select jobs.fetch()"#,
    )
    .await;
    let clean = ["--clean", "--if-exists"];
    restore(&queue.cluster, "after", &file, &clean).await;
    assert_goes_on(&queue, "after").await;
    drop(db);
    // The plain form, over what was restored just now and worked with.
    let plain = [&["-Fp"], &clean[..]].concat();
    let file = dump(&queue.cluster, "clean.sql", &plain).await;
    psql(&queue.cluster, "after", &file, &[]).await;
    assert_goes_on(&queue, "after").await;
}

/// What a restore that has lost or changed something would leave behind.
#[tokio::test]
async fn the_comparison_finds_what_was_doctored() {
    let queue = Queue::start().await;
    queue.cluster.allow_violations();
    for (n, (doctor, found)) in [
        ("delete from jobs.unique_claim where ctid = (select min(ctid) from jobs.unique_claim)", "jobs.unique_claim lacks"),
        ("update jobs.running set token = token + 1 where worker = (select min(worker) from jobs.running)", "jobs.running has"),
        ("update jobs.queue set paused_at = paused_at + interval '1 us'", "jobs.queue has"),
        ("insert into jobs.error select * from jobs.error limit 1", "jobs.error has a row 1 times"),
        ("select nextval('jobs.job_seq')", "jobs.job_seq lacks"),
        ("revoke execute on function jobs.insert from dump_producer", "rights lacks jobs.insert("),
        ("grant select on jobs.job to public", "rights has jobs.job =r/"),
    ]
    .into_iter()
    .enumerate()
    {
        let database = format!("doctored{n}");
        let copy = ["-T", "before", &database];
        programs::run(&queue.cluster, "createdb", &copy).await;
        queue.assert_same(&database).await;
        let db = queue.cluster.connect(&database).await;
        run(&db, doctor).await;
        let differences = queue.before.differences(&Contents::of(&db).await);
        assert!(
            differences.iter().any(|line| line.starts_with(found)),
            "{doctor}: {differences:?}"
        );
    }
}

/// What a restore that has lost or changed something would come to.
#[tokio::test]
async fn going_on_with_a_doctored_queue_fails() {
    let queue = Arc::new(Queue::start().await);
    queue.cluster.allow_violations();
    for (n, doctor) in [
        "select 1",
        "update jobs.queue set paused_at = null",
        "update jobs.queue_slot set job_id = null",
        "update jobs.running set token = token + 1",
        "delete from jobs.unique_claim where key = (select unique_key from jobs.job where kind = 'by meta')",
        "delete from jobs.unique_note where kind = 'h'",
        "delete from jobs.answer",
        "update jobs.periodic_schedule set next_run_at = 'infinity'",
        "select setval('jobs.job_seq', 50)",
        "revoke usage on schema jobs from dump_producer",
    ]
    .into_iter()
    .enumerate()
    {
        let database = format!("doctored{n}");
        let copy = ["-T", "before", &database];
        programs::run(&queue.cluster, "createdb", &copy).await;
        let db = queue.cluster.connect(&database).await;
        run(&db, doctor).await;
        let queue = queue.clone();
        let check = async move { queue.expected.check(&queue.cluster, &database).await };
        let failed = tokio::spawn(check).await.is_err();
        assert_eq!(failed, n > 0, "{doctor}");
    }
}

/// While it lives, the background worker of a database is woken as often as it can be. Where that
/// would have to wait for a restore, which could deadlock with it, it is left.
struct Waker(tokio::task::JoinHandle<()>);

impl Waker {
    fn of(cluster: &Cluster, database: &str) -> Waker {
        let mut config = cluster.config();
        config.dbname(database).options("-c lock_timeout=50ms");
        Waker(tokio::spawn(async move {
            loop {
                // The database, or the extension, may not be there just now.
                if let Ok((db, connection)) = config.connect(tokio_postgres::NoTls).await {
                    tokio::spawn(connection);
                    while db.batch_execute("select jobs.installed()").await.is_ok() {
                        seconds(0.005).await;
                    }
                }
                seconds(0.005).await;
            }
        }))
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Queue {
    /// No session has touched what is there of the queue; said only of a moment in which
    /// `restoring` was still true.
    async fn assert_untouched(&self, restoring: &str) {
        let db = self.cluster.connect("after").await;
        if count(&db, "pg_extension where extname = 'jobs'").await == 0 {
            return;
        }
        let touched = Contents::of(&db).await.touched(&self.before);
        let restoring: bool = scalar(&db, &format!("select {restoring}")).await;
        assert!(
            !restoring || touched.is_empty(),
            "touched while it is being restored:\n{}",
            touched.join("\n")
        );
    }

    /// Does it, and looks all the time whether any session touches what is there while `restoring`
    /// is true.
    async fn watch(&self, restoring: &str, work: impl Future<Output = ()>) {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = &mut work => return,
                () = self.assert_untouched(restoring) => {}
            }
        }
    }

    /// The control of tests in which workers leave a database alone: they are there, and take care
    /// of another one.
    async fn assert_workers_work(&self) {
        let cluster = &self.cluster;
        let exists = "select count(*) from pg_database where datname = 'beside'";
        let db = if number(&cluster.connect("postgres").await, exists).await == 0 {
            cluster.database("beside").await
        } else {
            cluster.connect("beside").await
        };
        let due = "clock_timestamp() + '10 ms'";
        let id: i64 =
            scalar(&db, &format!("select id from jobs.insert('x', scheduled_at => {due})")).await;
        let state = format!("select state::text from jobs.jobs where id = {id}");
        poll_until("workers are at work", SOON, async || text(&db, &state).await == "available")
            .await;
    }

    /// Waits until all is there but the jobs, and looks that no session touches it.
    async fn untouched_all_but_jobs(&self, db: &Client, blocked: &str) {
        poll_until("only the jobs are missing", SOON, async || {
            self.assert_untouched(blocked).await;
            let there = Contents::of(db).await;
            there.empty() == ["jobs.job", NOT_PAUSED, FOLLOWED]
                && there.tables["jobs.job_seq"] == self.before.tables["jobs.job_seq"]
        })
        .await;
    }

    /// Restores data while the table of jobs is locked, so that all the others are there for a
    /// while and jobs are not.
    async fn restore_jobs_last(&self, file: &str, options: &[&str]) {
        let cluster = &self.cluster;
        let db = cluster.connect("after").await;
        let blocker = cluster.connect("after").await;
        run(&blocker, "begin; lock table jobs.job in share mode").await;
        let blocked =
            "exists (select from pg_locks where relation = 'jobs.job'::regclass and not granted)";
        let look = async {
            self.untouched_all_but_jobs(&db, blocked).await;
            let pause = async {
                self.assert_workers_work().await;
                seconds(1.0).await;
            };
            self.watch(blocked, pause).await;
            self.assert_untouched(blocked).await;
            run(&blocker, "commit").await;
        };
        tokio::join!(restore(cluster, "after", file, options), look);
    }
}

const SEQUENCE_IS_NEW: &str = "not (select is_called from jobs.job_seq)";

#[tokio::test]
async fn the_worker_waits_for_the_end_of_a_script() {
    let queue = Queue::start_with_worker().await;
    let cluster = &queue.cluster;
    let file = dump(cluster, "plain.sql", &[]).await;
    let script = std::fs::read_to_string(&file).unwrap();
    let pause = "SELECT jobs.installed(); SELECT pg_sleep(0.05);\nCOPY jobs.";
    let slow = programs::path(cluster, "slow.sql");
    std::fs::write(&slow, script.replace("COPY jobs.", pause)).unwrap();
    create(cluster, "after").await;
    let _waker = Waker::of(cluster, "after");
    let restoring = async {
        let output = ["-o", "/dev/null"];
        psql(cluster, "after", slow.to_str().unwrap(), &output).await;
    };
    queue.watch(SEQUENCE_IS_NEW, restoring).await;
    queue.expected.check_after_the_worker(cluster, "after").await;
    queue.assert_workers_work().await;
}

#[tokio::test]
async fn the_worker_waits_while_a_dump_is_restored_bit_by_bit() {
    let queue = Queue::start_with_worker().await;
    let cluster = &queue.cluster;
    let file = dump(cluster, "custom", &["-Fc"]).await;
    create(cluster, "after").await;
    let _waker = Waker::of(cluster, "after");
    let restoring = async {
        for entry in contents(cluster, &file).await {
            let list = list(cluster, "list", &[entry]);
            restore(cluster, "after", &file, &["-L", &list]).await;
            seconds(0.05).await;
        }
    };
    queue.watch(SEQUENCE_IS_NEW, restoring).await;
    queue.expected.check_after_the_worker(cluster, "after").await;
}

#[tokio::test]
async fn the_worker_waits_for_jobs_that_are_restored_last() {
    let queue = Queue::start_with_worker().await;
    let cluster = &queue.cluster;
    let file = dump(cluster, "custom", &["-Fc"]).await;
    create(cluster, "after").await;
    let _waker = Waker::of(cluster, "after");
    let is_data =
        |entry: &String| entry.contains(" TABLE DATA ") || entry.contains(" SEQUENCE SET ");
    let (mut data, others): (Vec<String>, _) =
        contents(cluster, &file).await.into_iter().partition(is_data);
    // The sequence first, then claims and what points at jobs, the jobs themselves at last.
    data.reverse();
    data.sort_by_key(|entry| entry.contains(" TABLE DATA jobs job "));
    assert!(data[0].contains(" SEQUENCE SET ") && data.last().unwrap().contains(" jobs job "));
    let schema = list(cluster, "schema", &others);
    restore(cluster, "after", &file, &["-L", &schema]).await;
    let data = list(cluster, "order", &data);
    queue.restore_jobs_last(&file, &["-L", &data]).await;
    queue.expected.check_after_the_worker(cluster, "after").await;
}

#[tokio::test]
async fn the_worker_waits_for_all_processes_of_a_restore() {
    let queue = Queue::start_with_worker().await;
    let cluster = &queue.cluster;
    let file = dump(cluster, "directory", &["-Fd", "-j", "2"]).await;
    create(cluster, "after").await;
    let _waker = Waker::of(cluster, "after");
    restore(cluster, "after", &file, &["--section=pre-data"]).await;
    let data = ["-j", "4", "--section=data", "--section=post-data"];
    queue.restore_jobs_last(&file, &data).await;
    queue.expected.check_after_the_worker(cluster, "after").await;
    // As it is usually done.
    create(cluster, "again").await;
    let _waker = Waker::of(cluster, "again");
    restore(cluster, "again", &file, &["-j", "4"]).await;
    queue.expected.check_after_the_worker(cluster, "again").await;
}

#[tokio::test]
async fn a_restore_replaces_a_queue_under_the_worker() {
    let queue = Queue::start_with_worker().await;
    let cluster = &queue.cluster;
    let file = dump(cluster, "custom", &["-Fc"]).await;
    let db = cluster.database("after").await;
    run(
        &db,
        r#"select jobs.insert('other', unique_opts => '{"by_kind": true}', scheduled_at => clock_timestamp() + '10 ms') from generate_series(1, 5);
           select jobs.schedule('other', 'every 1 second', 'other')"#,
    )
    .await;
    let _waker = Waker::of(cluster, "after");
    restore(cluster, "after", &file, &["--clean", "--if-exists"]).await;
    queue.expected.check_after_the_worker(cluster, "after").await;
}

/// Nothing is torn by a dump that is taken while jobs are inserted, fetched and finished.
#[tokio::test]
async fn a_dump_of_a_queue_at_work_is_whole() {
    let queue = Queue::start().await;
    let cluster = &queue.cluster;
    let mut work = tokio::task::JoinSet::new();
    for n in 0..4 {
        let db = cluster.connect("before").await;
        work.spawn(async move {
            loop {
                let insert = format!(
                    r#"select jobs.insert('work', to_jsonb({n} + random() * 10), '{{"by_args": true}}', 'work', scheduled_at => now() + random() * interval '2 ms')"#
                );
                run(&db, &insert).await;
                run(&db, "select jobs.complete(id, token) from jobs.fetch('work', 2)").await;
            }
        });
    }
    for round in 0..2 {
        let name = format!("dump{round}");
        let file = dump(cluster, &name, &["-Fd", "-j", "2"]).await;
        let database = format!("copy{round}");
        create(cluster, &database).await;
        restore(cluster, &database, &file, &["-j", "2"]).await;
        assert_whole(cluster, &database).await;
    }
    assert!(work.try_join_next().is_none(), "a worker failed");
    work.shutdown().await;
}

/// All invariants hold, and there are rows that they hold of.
async fn assert_whole(cluster: &Cluster, database: &str) {
    let db = cluster.connect(database).await;
    let violated = "select coalesce(string_agg(c::text, E'\\n'), '') from jobs.check() c";
    assert_eq!(text(&db, violated).await, "");
    assert!(count(&db, "jobs.jobs where kind = 'work'").await > 0);
}

/// Really runs pg_upgrade, to the same version: what it does is the same. Maintenance is overdue
/// all the time, and the worker is switched on in both clusters, but nothing may work while the
/// servers are started for the upgrade.
async fn upgrade(options: &[&str]) {
    let queue = Queue::start().await;
    let old = &queue.cluster;
    old.stop(Mode::Fast);
    old.set("jobs.enabled", "on");
    old.set("jobs.interval", "10ms");
    let new = Cluster::builder().set("jobs.interval", "10ms").make();
    old.upgrade_to(&new, options);
    new.set("jobs.enabled", "off");
    new.start_again();
    let db = new.connect("before").await;
    let differences = queue.before.differences(&Contents::of(&db).await);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let settled = new.connect("settled").await;
    queue.expected.check_explained(&settled).await;
    new.set("jobs.enabled", "on");
    new.reload();
    queue.expected.check_after_the_worker(&new, "before").await;
}

#[tokio::test]
async fn pg_upgrade_by_copying() {
    upgrade(&[]).await;
}

#[tokio::test]
async fn pg_upgrade_by_linking() {
    upgrade(&["--link", "-j", "2"]).await;
}

#[tokio::test]
async fn a_standby_shows_the_queue_and_takes_it_over() {
    let queue = Queue::start().await;
    let cluster = &queue.cluster;
    let standby = cluster.standby();
    standby.set("jobs.interval", "10ms");
    standby.set("jobs.databases", "before");
    standby.set("jobs.enabled", "on");
    standby.reload();
    let (primary, replica) = (cluster.connect("before").await, standby.connect("before").await);
    let replicated = async || {
        let mut differences = queue.before.differences(&Contents::of(&replica).await);
        // A standby has the sequence some values ahead: that many are logged at once.
        differences.retain(|line| !line.starts_with("jobs.job_seq "));
        differences.is_empty()
    };
    poll_until("all is replicated", SOON, replicated).await;
    for view in ["jobs", "queues", "errors", "unique_claims", "periodic"] {
        let sql = format!("select v::text from jobs.{view} v order by 1");
        let rows = texts(&replica, &sql).await;
        assert!(!rows.is_empty());
        assert_eq!(rows, texts(&primary, &sql).await, "{view}");
    }
    queue.expected.check_explained(&standby.connect("settled").await).await;
    for call in
        ["call jobs.wait(timeout => '0')", "select jobs.insert('x')", "select jobs.fetch('lanes')"]
    {
        assert_eq!(sqlstate(replica.batch_execute(call).await), "25006", "{call}");
    }
    // A job that the standby has not yet shown.
    let id = number(&primary, "select id from jobs.insert('newest', unique_opts => '{\"by_kind\": true}', queue => 'newest')").await;
    cluster.stop(Mode::Fast);
    standby.promote();
    let again = "select id from jobs.insert('newest', unique_opts => '{\"by_kind\": true}', queue => 'newest')";
    assert_eq!(number(&replica, again).await, id);
    run(&replica, &format!("select jobs.delete({id})")).await;
    queue.expected.check_after_the_worker(&standby, "before").await;
}

/// What has to be done to move a queue by logical replication: no session works on it there until
/// it has arrived, and the sequence is set by hand.
#[tokio::test]
async fn a_subscriber_takes_the_queue_over_when_it_has_all() {
    let builder = Cluster::builder().set("jobs.enabled", "off");
    let queue = Queue::start_with(builder.set("wal_level", "logical")).await;
    let publisher = queue.cluster.connect("before").await;
    run(&publisher, "alter table jobs.error replica identity full").await;
    run(&publisher, "create publication queue for tables in schema jobs").await;

    let cluster = Cluster::quiet();
    // The end of a subscription is an error of its workers.
    let ended = "logical replication (apply )?worker .*FATAL: +terminating";
    cluster.allow(u32::MAX, ended);
    let db = cluster.database("before").await;
    run(&db, "create role dump_producer; create role dump_viewer").await;
    run(&db, GRANTS).await;
    let connection =
        format!("host={} user=postgres dbname=before", queue.cluster.directory().display());
    run(&db, &format!("create subscription queue connection '{connection}' publication queue"))
        .await;
    poll_until("all is replicated", 4 * SOON, async || {
        let mut differences = queue.before.row_differences(&Contents::of(&db).await);
        differences.retain(|line| !line.starts_with("jobs.job_seq "));
        differences.is_empty()
    })
    .await;
    let sequence = &Contents::of(&db).await.tables["jobs.job_seq"];
    assert_eq!(sequence, &["(1,f)"], "sequences are not replicated");

    run(&db, "drop subscription queue").await;
    let last = number(&publisher, "select last_value from jobs.job_seq").await;
    run(&db, &format!("select setval('jobs.job_seq', {last})")).await;
    queue.expected.check(&cluster, "before").await;
}

/// Publishing deletes must not forbid them: a table in a publication needs something by which its
/// rows are known.
#[tokio::test]
async fn a_publication_of_all_tables_is_in_nobodys_way() {
    let (_cluster, db) =
        with("published", &[("jobs.enabled", "off"), ("wal_level", "logical")]).await;
    run(&db, "create publication everything for all tables").await;
    run(
        &db,
        r#"select jobs.insert('x', unique_opts => '{"by_kind": true}');
           select jobs.fail(id, token, 'broken', retryable => false) from jobs.fetch();
           update jobs.finished set finalized_at = finalized_at - interval '1 year'"#,
    )
    .await;
    let failed =
        texts(&db, "select task || ': ' || error from jobs.maintain() where error is not null")
            .await;
    assert_eq!(failed, [""; 0]);
    assert_eq!(count(&db, "jobs.jobs").await, 0);
    let delete =
        "select jobs.delete(id)::text from jobs.insert('x', unique_opts => '{\"by_kind\": true}')";
    assert_eq!(text(&db, delete).await, "available");
}
