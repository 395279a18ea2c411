//! Every finding of `jobs.health()` has a hint with a command that runs as it stands, and that
//! shows what is behind it or mends it.

use std::collections::BTreeSet;

use jobs_tests::{Client, Cluster, comes_true, count, is, run, texts};
use tokio_postgres::SimpleQueryMessage;

/// What its command does about a finding.
#[derive(Clone, Copy, PartialEq)]
enum Command {
    Shows,
    Mends,
}
use Command::{Mends, Shows};

/// The findings whose hints were followed.
struct Hints<'a> {
    db: &'a Client,
    followed: BTreeSet<String>,
}

impl<'a> Hints<'a> {
    fn new(db: &'a Client) -> Hints<'a> {
        let followed = BTreeSet::new();
        Hints { db, followed }
    }

    /// Does what the hints of a finding say, with messages like that. Of several findings each
    /// takes another way out, where its hint has several.
    async fn follow(&mut self, arguments: &str, finding: &str, message: &str, does: Command) {
        let found = format!(
            "from jobs.health({arguments}) where finding = '{finding}' and message ~ '{message}'"
        );
        let hints = texts(self.db, &format!("select hint {found} order by hint")).await;
        assert!(!hints.is_empty(), "there is no {finding}");
        for (n, hint) in hints.iter().enumerate() {
            let ways: Vec<&str> = hint.split("; or").collect();
            let way = format!("{};", ways[n % ways.len()]).replace('\'', "''");
            let commands = texts(
                self.db,
                &format!(r"select m[1] from regexp_matches('{way}', '\m((?:SELECT|ALTER|DROP|REVOKE|VACUUM|ANALYZE|COMMIT|ROLLBACK) [^;]*;)', 'g') m"),
            )
            .await;
            assert!(!commands.is_empty(), "{finding} has no command: {hint}");
            let mut rows = 0;
            for command in commands {
                let answer = self.db.simple_query(&command).await;
                let answer = answer.unwrap_or_else(|error| panic!("{hint}: {command} {error:?}"));
                let is_row = |message: &&_| matches!(message, SimpleQueryMessage::Row(_));
                rows += answer.iter().filter(is_row).count();
            }
            assert!(does == Mends || rows > 0, "it shows nothing: {hint}");
        }
        match does {
            Mends => comes_true(self.db, &format!("count(*) = 0 {found}")).await,
            Shows => assert!(is(self.db, &format!("count(*) > 0 {found}")).await),
        }
        self.followed.insert(finding.into());
    }

    /// Follows the hint after one statement, and runs another one afterwards.
    async fn after(
        &mut self,
        sql: &str,
        arguments: &str,
        finding: &str,
        does: Command,
        then: &str,
    ) {
        run(self.db, sql).await;
        self.follow(arguments, finding, "", does).await;
        run(self.db, then).await;
    }
}

#[tokio::test]
async fn hints_about_the_background_worker_run() {
    let off = Cluster::builder().set("jobs.enabled", "off");
    let elsewhere = Cluster::builder().set("jobs.databases", "other, o'hara");
    let alone = Cluster::builder().without_preload();
    for (builder, message) in
        [(off, "jobs.enabled"), (elsewhere, "jobs.databases"), (alone, "not preloaded")]
    {
        let cluster = builder.start();
        let db = cluster.database("hints, too").await;
        let mut hints = Hints::new(&db);
        hints.follow("", "worker_not_running", message, Mends).await;
        let databases = "select current_setting('jobs.databases')";
        if message == "jobs.databases" {
            assert_eq!(texts(&db, databases).await, ["other, o'hara, \"hints, too\""]);
        }
    }
}

#[tokio::test]
async fn the_hint_of_a_database_without_a_place_runs() {
    let cluster = Cluster::builder().faults("few_places").start();
    for taken in ["a", "b"] {
        let db = cluster.database(taken).await;
        run(&db, "select jobs.insert('k')").await;
        assert_eq!(count(&db, "jobs.health()").await, 0);
    }
    let db = cluster.database("c").await;
    let message = "^more than 2 databases of this server have the extension";
    Hints::new(&db).follow("", "no_place", message, Shows).await;
}

#[tokio::test]
async fn every_hint_has_a_command_that_runs() {
    const CLEAR: &str = "select jobs.cancel(job_id, force => true) from jobs.running; select jobs.delete(id) from jobs.job";
    let cluster = Cluster::builder()
        .set("jobs.enabled", "off")
        .set("autovacuum", "off")
        .allow(1, "terminating connection due to administrator command")
        .start();
    let db = cluster.database("hints").await;
    let other =
        cluster.connect_with(cluster.config().dbname("hints").application_name("report")).await;
    run(&db, "select jobs.maintain()").await;
    assert_eq!(texts(&db, "select finding from jobs.health()").await, [""; 0]);
    let mut hints = Hints::new(&db);

    // Of maintenance.
    let paused = "select jobs.pause_maintenance()";
    hints.after(paused, "", "maintenance_paused", Mends, "").await;
    run(&other, "set application_name = 'pg_restore'").await;
    hints.follow("", "restoring", "", Shows).await;
    run(&other, "set application_name = 'report'").await;
    let fails = "update jobs.maintenance_task set failures = 1, last_error = 'x', last_error_at = now() where task = 'prune'";
    let well = "update jobs.maintenance_task set failures = 0";
    hints.after(fails, "", "maintenance_failing", Shows, well).await;
    let lost = "select jobs.insert('k'); select jobs.fetch();
        update jobs.running set lease_expires_at = now() - interval '2 minutes'";
    hints.after(lost, "", "expired_leases", Mends, CLEAR).await;

    // Of jobs and queues.
    let insert = "select jobs.insert('k', queue => 'q')";
    let at_once = "oldest_available => '0'";
    hints.after(insert, at_once, "oldest_available", Mends, CLEAR).await;
    let discarded = "select jobs.insert('k'); select jobs.fail(id, token, 'x', retryable => false) from jobs.fetch()";
    hints.after(discarded, "", "discarded", Mends, CLEAR).await;
    let failing = "select jobs.insert_batch('f', array_fill('1'::jsonb, '{10}'), queue => 'it''s');
        select jobs.fail(id, token, 'x', '1 hour') from jobs.fetch('it''s', 10)";
    hints.after(failing, "", "mostly_failing", Shows, CLEAR).await;
    assert!(is(&db, "paused from jobs.queues where queue = 'it''s'").await);
    let long = "select jobs.insert_batch('l', array_fill('1'::jsonb, '{21}'), queue => 'l', timeout => '-1 second');
        select jobs.complete(id, token) from jobs.fetch('l', 20); select jobs.fetch('l', lease => '1 day');
        update jobs.running set attempted_at = attempted_at - interval '1 day'";
    hints.after(long, "", "running_long", Shows, CLEAR).await;
    let nobody = "select jobs.insert('k', queue => 'nobody''s'); select jobs.worker_beat('w', '{nobody''s}', 1); select jobs.quiet_worker('w');
        update jobs.job set created_at = created_at - interval '6 minutes'";
    hints.after(nobody, "", "no_worker", Shows, CLEAR).await;
    let lost = "select jobs.insert('k'); select jobs.worker_beat('w''s', '{default}', 1);
        select jobs.fetch(worker => 'w''s', lease => '1 hour');
        update jobs.worker set last_seen_at = now() - interval '2 minutes'";
    hints.after(lost, "", "lost_worker", Shows, CLEAR).await;
    let paused = "select jobs.pause_queue('q'); select jobs.insert('k', queue => 'q')";
    hints.after(paused, "", "queue_paused", Mends, CLEAR).await;
    let limit = "select jobs.define_limit('it''s', '{\"by_queue\": true}', '{held}', concurrency => 1); select jobs.pause_limit('it''s', '{\"queue\": \"held\"}');
        select jobs.insert('k', queue => 'held'); select jobs.fetch('held')";
    hints.after(limit, "", "limit_paused", Mends, CLEAR).await;
    let blocked = "select jobs.order_queue('o''s', '{\"by_kind\": true}', true, 'block'); select jobs.insert('k', queue => 'o''s') from generate_series(1, 2);
        select jobs.fail(id, token, 'x', retryable => false) from jobs.fetch('o''s')";
    hints.after(blocked, "", "key_blocked", Mends, CLEAR).await;
    let tick = "select jobs.schedule('t', 'every 1 hour', 't'); update jobs.periodic_schedule set last_error = 'x'";
    let none = "select jobs.unschedule('t')";
    hints.after(tick, "", "periodic_failed", Shows, none).await;
    let report = "select jobs.forward_report('00000000-0000-0000-0000-00000000000a', 'shop', ";
    let (behind, refused) =
        (format!("{report}3, now() - interval '6 minutes', 0)"), format!("{report}0, null, 2)"));
    let forgotten = "delete from jobs.forwarder";
    hints.after(&behind, "", "forward_behind", Shows, forgotten).await;
    hints.after(&refused, "", "forward_refused", Shows, forgotten).await;
    let ahead = "update jobs.maintenance_task set last_run_at = now() + interval '1 hour'";
    run(&db, ahead).await;
    hints.follow("", "clock_moved", "^stored", Mends).await;
    hints.follow("", "clock_moved", "^the clock", Shows).await;

    // Of others that are at work.
    let prepare = |name| format!("begin; select jobs.insert('x'); prepare transaction '{name}'");
    run(&db, &prepare("first")).await;
    run(&db, &prepare("second")).await;
    run(&other, "begin isolation level repeatable read; select 1").await;
    let open = "transaction .* has been|report, idle in transaction";
    let all = format!(
        "count(*) = 3 from jobs.health(old_snapshot => '0') where finding = 'old_snapshot' and message ~ '{open}'"
    );
    comes_true(&db, &all).await;
    hints.follow("old_snapshot => '0'", "old_snapshot", open, Mends).await;
    assert_eq!(count(&db, "jobs.jobs where kind = 'x'").await, 1);
    let holder = cluster.connect("hints").await;
    let unique = "select jobs.insert('u', unique_opts => '{\"by_kind\": true}')";
    run(&holder, &format!("begin; {unique}")).await;
    let waiter = cluster.connect("hints").await;
    let waiting = tokio::spawn(async move { waiter.batch_execute(unique).await });
    comes_true(&db, "count(*) = 1 from jobs.health(lock_wait => '0') where finding = 'lock_wait'")
        .await;
    hints.follow("lock_wait => '0'", "lock_wait", "", Shows).await;
    run(&holder, "rollback").await;
    waiting.await.unwrap().unwrap();
    let dead = "select jobs.insert_batch('k', array_fill('1'::jsonb, '{300}')); select jobs.delete_many(kind => 'k')";
    run(&db, dead).await;
    run(&db, "select pg_stat_force_next_flush()").await;
    hints.follow("dead_rows => 200", "bloat", "jobs.ready", Mends).await;

    // Of the extension's objects.
    run(&db, "create role app; create function public.see() returns trigger language plpgsql as $$ begin return null; end $$").await;
    for (change, finding) in [
        ("alter table jobs.finished add column note text", "table_changed"),
        ("grant insert on jobs.job to app", "foreign_right"),
        (
            "create trigger t after insert on jobs.ready for each row execute function public.see()",
            "foreign_trigger",
        ),
        ("alter table jobs.running owner to app", "foreign_owner"),
    ] {
        hints.after(change, "", finding, Mends, "").await;
    }

    let child = "create table public.child () inherits (jobs.ready)";
    let gone = "drop table public.child; analyze jobs.ready";
    hints.after(child, "", "table_changed", Shows, gone).await;

    // Of cells.
    run(&db, "select jobs.set_cell(0)").await;
    hints.follow("", "placements_differ", "has jobs", Shows).await;
    run(&db, "select jobs.place_queue('*', 0)").await;
    hints.follow("", "cell_unreplicated", "", Shows).await;
    let retire = "select jobs.retire_cell('host=new')";
    hints.after(retire, "", "cell_retired", Mends, "").await;

    // That was all of them.
    hints.followed.insert("worker_not_running".into());
    hints.followed.insert("no_place".into());
    let listed = r"select m[1] from regexp_matches(obj_description('jobs.health'::regproc), '^- ([a-z_]+): ', 'gn') m";
    let listed: BTreeSet<String> = texts(&db, listed).await.into_iter().collect();
    assert_eq!(hints.followed, listed);
}
