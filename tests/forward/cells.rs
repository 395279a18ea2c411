//! Several cells: each row goes to its own, and never to two, wherever queues are placed meanwhile.

use jobs_tests::{Client, Cluster, Mode, comes_true, count, is, number, poll_until, run, text};
use tokio::process::Child;

use super::{
    FORGETFUL, LONG, Pair, STOPS, UNORDERED, arrive, different, end_sessions, place, said, spawned,
};

/// Cell 1 is the queue of the pair, cells 2 and 3 are databases of another server. What is placed
/// nowhere lives in cell 1, `two` and `three` in those.
struct Cells {
    pair: Pair,
    others: Cluster,
}

const PLACED: &str = r#"
    select jobs.place_queue('*', 1), jobs.place_queue('two', 2), jobs.place_queue('three', 3),
        jobs.spread_queue('spread', '{"by_args": ["tenant"]}', '{1,2,3}')"#;

impl Cells {
    async fn start() -> Cells {
        let pair = Pair::start().await;
        let others = Cluster::builder().set("jobs.enabled", "off").start();
        others.allow(u32::MAX, "57P0[13] client backend (two|three): FATAL: ");
        let two = others.database("two").await;
        let three = others.database("three").await;
        for (cell, db) in [(1, &pair.jobs().await), (2, &two), (3, &three)] {
            run(db, &format!("select jobs.set_cell({cell})")).await;
            run(db, PLACED).await;
        }
        Cells { pair, others }
    }

    async fn all(&self) -> [Client; 3] {
        let others = &self.others;
        [self.pair.jobs().await, others.connect("two").await, others.connect("three").await]
    }

    fn arguments(&self) -> Vec<String> {
        let two = place(&[&self.others], "two");
        let three = place(&[&self.others], "three");
        let all =
            ["--from", &self.pair.from(), "--to", &three, "--to", &two, "--to", &self.pair.to()];
        all.map(str::to_owned).into()
    }

    /// Runs until it is dropped or killed.
    fn forward(&self) -> Child {
        let arguments = self.arguments();
        spawned(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    async fn once(&self) -> (i32, String) {
        let arguments = self.arguments();
        let arguments = arguments.iter().map(String::as_str).chain(["--once"]);
        said(&arguments.collect::<Vec<_>>()).await
    }

    /// Has `two` live in cell 1, once its jobs are gone.
    async fn move_two(&self) {
        let all = self.all().await;
        run(&all[1], "select jobs.delete(id) from jobs.jobs").await;
        for db in &all {
            run(db, "select jobs.place_queue('two', 1)").await;
        }
    }
}

/// Inserts these numbers in order into queues of all cells.
async fn insert(outbox: &Client, from: i64, to: i64) {
    let queues = "(array['one', 'two', 'three'])[1 + n % 3]";
    let each = format!(
        "select jobs.insert('k', to_jsonb(n), queue => {queues}) from generate_series({from}, {to}) n"
    );
    run(outbox, &each).await;
}

const SPREAD: &str = "
    select jobs.insert('k', jsonb_build_object('tenant', n), queue => 'spread') from generate_series(1, 30) n";

#[tokio::test]
async fn each_row_goes_to_its_cell_in_order_whoever_is_killed() {
    let cells = Cells::start().await;
    let (outbox, all) = (cells.pair.outbox().await, cells.all().await);
    let mut forwarders = [cells.forward(), cells.forward()];
    for time in 0..20 {
        insert(&outbox, time * 100 + 1, time * 100 + 100).await;
        forwarders[time as usize % 2].kill().await.unwrap();
        forwarders[time as usize % 2] = cells.forward();
    }
    for (db, rows) in all.iter().zip([666, 667, 667]) {
        arrive(db, rows).await;
    }
    drop(forwarders);
    end_sessions(&outbox).await;
    run(&outbox, SPREAD).await;
    let (code, said) = cells.once().await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(count(&outbox, "jobs.outbox").await, 0);
    let mut spread = 0;
    for db in &all {
        let elsewhere = "jobs.jobs where jobs.cell_for(kind, args, queue => queue) <> (select cell from jobs.cells where is_self)";
        assert_eq!(count(db, elsewhere).await, 0);
        assert_eq!(count(db, "jobs.jobs").await, different(db).await);
        let unordered = UNORDERED.replace("jobs.jobs j)", "jobs.jobs j where queue <> 'spread')");
        assert_eq!(count(db, &format!("({unordered}) late")).await, 0);
        assert_eq!(count(db, "jobs.forwarded where deleted_at is null").await, 0);
        spread += count(db, "jobs.jobs where queue = 'spread'").await;
    }
    assert_eq!(spread, 30);
}

/// A row that cell 2 has taken is still in the outbox when its queue moves to cell 1, before a row
/// that cell 2 was to get.
async fn take_and_move(cells: &Cells, forwarder: Child) {
    let (outbox, mut forwarder) = (cells.pair.outbox().await, forwarder);
    run(&outbox, STOPS).await;
    run(&outbox, "select jobs.insert('k', '1', queue => 'two')").await;
    arrive(&cells.all().await[1], 1).await;
    forwarder.kill().await.unwrap();
    end_sessions(&outbox).await;
    run(&outbox, "select jobs.insert('k', '2', queue => 'two')").await;
    run(&outbox, "select jobs.outbox_aim(array[id], 2) from jobs.outbox where job -> 'args' = '2'")
        .await;
    cells.move_two().await;
    run(&outbox, "select pg_advisory_unlock(7)").await;
}

const ARRIVED: &str = "select string_agg(args::text, ',' order by id) from jobs.jobs";

#[tokio::test]
async fn what_a_cell_has_taken_goes_to_no_other_after_its_queue_moved() {
    let cells = Cells::start().await;
    take_and_move(&cells, cells.forward()).await;
    let outbox = cells.pair.outbox().await;
    // While the cell that has it is down, the row waits, and others go on.
    cells.others.stop(Mode::Fast);
    let forwarder = cells.forward();
    run(&outbox, "select jobs.insert('k', '3', queue => 'two')").await;
    let one = cells.pair.jobs().await;
    arrive(&one, 1).await;
    comes_true(&outbox, "count(*) = 2 and sum(attempts) = 0 from jobs.outbox").await;
    cells.others.start_again();
    comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
    drop(forwarder);
    assert_eq!(text(&one, ARRIVED).await, "3,2");
    assert_eq!(count(&cells.all().await[1], "jobs.jobs").await, 0);
}

#[tokio::test]
async fn what_the_only_database_has_taken_goes_to_no_cell_that_comes_later() {
    let cells = Cells::start().await;
    let two = place(&[&cells.others], "two");
    take_and_move(&cells, spawned(&["--from", &cells.pair.from(), "--to", &two])).await;
    let (code, said) = cells.once().await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(count(&cells.pair.outbox().await, "jobs.outbox").await, 0);
    assert_eq!(text(&cells.pair.jobs().await, ARRIVED).await, "2");
}

#[tokio::test]
async fn control_without_memory_it_goes_to_the_other_cell() {
    let cells = Cells::start().await;
    run(&cells.all().await[1], FORGETFUL).await;
    take_and_move(&cells, cells.forward()).await;
    run(&cells.pair.outbox().await, "update jobs.outbox set cell = null").await;
    assert_eq!(cells.once().await.0, 0);
    assert_eq!(text(&cells.pair.jobs().await, ARRIVED).await, "1,2");
}

#[tokio::test]
async fn a_retired_cell_and_a_full_queue_hold_up_only_their_rows() {
    let cells = Cells::start().await;
    let (outbox, [one, two, three]) = (cells.pair.outbox().await, cells.all().await);
    run(&two, "select jobs.retire_cell('host=new')").await;
    run(&three, "select jobs.configure_queue('spread', max_waiting => 1)").await;
    let forwarder = cells.forward();
    run(&outbox, SPREAD).await;
    insert(&outbox, 1, 3).await;
    let here = "select count(*) from generate_series(1, 30) n where jobs.cell_for('k', jsonb_build_object('tenant', n), queue => 'spread') = ";
    let (first, second) =
        (number(&one, &format!("{here}1")).await, number(&one, &format!("{here}2")).await);
    arrive(&one, first + 1).await;
    arrive(&three, 2).await;
    let held =
        format!("count(*) = {} and sum(attempts) = 0 from jobs.outbox where cell = 2", second + 1);
    comes_true(&outbox, &held).await;
    assert_eq!(count(&two, "jobs.jobs").await, 0);
    run(&two, "select jobs.reinstate_cell()").await;
    arrive(&two, second + 1).await;
    poll_until("all arrive as there is room", LONG, async || {
        run(&three, "select jobs.complete(id, token) from jobs.fetch('spread')").await;
        count(&outbox, "jobs.outbox").await == 0
    })
    .await;
    drop(forwarder);
}

#[tokio::test]
async fn cells_that_differ_are_followed_once() {
    let cells = Cells::start().await;
    let (outbox, [one, two, three]) = (cells.pair.outbox().await, cells.all().await);
    // The cell that is asked does not know that the queue has moved from the second to the first.
    run(&three, "select jobs.place_queue('q', 2)").await;
    run(&two, "select jobs.place_queue('q', 1)").await;
    run(&one, "select jobs.place_queue('q', 1)").await;
    run(
        &outbox,
        "select jobs.insert('k', to_jsonb(n), queue => 'q') from generate_series(1, 10) n",
    )
    .await;
    let (code, said) = cells.once().await;
    assert_eq!((code, count(&one, "jobs.jobs").await), (0, 10), "{said}");
    assert!(!said.contains("refused"), "{said}");

    // Each says another one: the row waits for somebody to repair that.
    run(&one, "select jobs.delete(id) from jobs.jobs").await;
    run(&one, "select jobs.place_queue('q', 3)").await;
    run(&outbox, "select jobs.insert('k', '11', queue => 'q')").await;
    let (code, said) = cells.once().await;
    assert!(code == 1 && said.contains("queue \"q\" lives in cell 3"), "{said}");
    let waits = "count(*) = 1 and bool_and(sqlstate = 'JB001' and cell is null and next_attempt_at < now() + interval '11 s') from jobs.outbox";
    assert!(is(&outbox, waits).await);
    // The other one was repaired, so it is sent on again.
    run(&one, "select jobs.place_queue('q', 1)").await;
    let forwarder = cells.forward();
    arrive(&one, 1).await;
    comes_true(&outbox, "count(*) = 0 from jobs.outbox").await;
    drop(forwarder);
    // What no cell takes, and what is wrong, is refused with the words of a cell.
    run(&three, "select jobs.unplace_queue('q'), jobs.unplace_queue('*')").await;
    run(&outbox, "select jobs.insert('k', queue => 'q'); select jobs.insert('k', queue => 'spread'); select jobs.insert('k', '{\"tenant\": 1}', queue => 'spread')").await;
    assert_eq!(cells.once().await.0, 1);
    let errors = "string_agg(sqlstate, ',' order by id) = 'JB001,22023' from jobs.outbox";
    assert!(is(&outbox, errors).await);
}

#[tokio::test]
async fn databases_that_are_no_different_cells_are_said() {
    let cells = Cells::start().await;
    let pair = &cells.pair;
    let (from, one, two) = (pair.from(), pair.to(), place(&[&cells.others], "two"));
    cells.others.database("none").await;
    let none = place(&[&cells.others], "none");
    for (to, words) in [
        (&none, "the database \"none\" has no cell number\nHINT: Run jobs.set_cell in it"),
        (&one, "another database is cell 1, too"),
    ] {
        let (code, said) = said(&["--from", &from, "--to", &one, "--to", to]).await;
        assert!(code == 1 && said.contains(words), "{said}");
    }
    // Rows that may be at a cell are not sent to the only database.
    let outbox = pair.outbox().await;
    run(&outbox, STOPS).await;
    run(&outbox, "select jobs.insert('k', '1', queue => 'two')").await;
    let mut forwarder = spawned(&["--from", &from, "--to", &one, "--to", &two]);
    arrive(&cells.all().await[1], 1).await;
    forwarder.kill().await.unwrap();
    end_sessions(&outbox).await;
    run(&outbox, "select pg_advisory_unlock(7)").await;
    let (code, text) = said(&["--from", &from, "--to", &one]).await;
    assert!(code == 1 && text.contains("rows are on the way to several cells"), "{text}");
    assert_eq!(said(&["--from", &from, "--to", &one, "--to", &two, "--once"]).await.0, 0);
    assert_eq!(said(&["--from", &from, "--to", &one, "--once"]).await.0, 0);
}
