//! The console's own connections: whose code runs on them, and how many there are.

use std::io::Write;

use crate::line::Line;
use crate::support::{Console, SCREENS, Visitor, run, value, wait_for};

/// What would run if a name in a statement of the console meant what somebody else has created.
#[test]
fn objects_of_others_do_not_run() {
    run("
        create schema trap;
        create function trap.to_jsonb(record) returns jsonb language plpgsql as
            $$begin raise 'this is a trap'; end$$;
        create function trap.sprung(jobs.state, jobs.state) returns boolean language plpgsql as
            $$begin raise 'this is a trap'; end$$;
        create operator trap.= (leftarg = jobs.state, rightarg = jobs.state, procedure = trap.sprung);
        create role trapped login password 'trapped';
        alter role trapped set search_path = trap, public;
        alter role trapped set timezone = 'America/New_York';
        alter role trapped set default_transaction_isolation = 'serializable';
        grant usage on schema trap to public;
        select jobs.grant_operator('trapped');");
    let console = Console::start_as("trapped", &[]);
    let mut visitor = console.visitor();
    for screen in SCREENS {
        visitor.page(screen);
    }
    let page = visitor.page("/jobs?state=completed");
    assert!(!page.text().contains("this is a trap"), "{}", page.text());
}

#[test]
fn who_logs_out_leaves_no_connection_behind() {
    run("create role leaves login password 'leaves' in role viewer;
         create role stays login password 'stays' in role viewer");
    let sessions = |role: &str, query: &str| {
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = 'jobs console'
                and usename = '{role}' and query like '{query}'"
        );
        value(&sql).as_i64().unwrap()
    };
    let console = Console::start(&[]);
    let mut leaver = console.person("leaves");
    wait_for("somebody listens", || sessions("leaves", "listen%") == 1);
    let mut other = console.person("leaves");
    let stayer = console.person("stays");
    let log_out = |visitor: &mut Visitor| {
        let page = visitor.page("/");
        assert_eq!(visitor.send(&page, "/logout", &[]).status, 303);
    };
    log_out(&mut leaver);
    assert_eq!(sessions("leaves", "listen%"), 1, "somebody still has the role");
    log_out(&mut other);
    wait_for("the role is left", || sessions("leaves", "%") == 0);
    wait_for("another one listens", || sessions("stays", "listen%") == 1);
    drop(stayer);
}

#[test]
fn all_roles_share_the_connections() {
    let line = Line::new();
    let console = Console::start_at(&line.url, &["--login", "--max-connections", "4"]);
    for n in 1..=15 {
        let role = format!("shares{n}");
        run(&format!("create role {role} login password '{role}' in role viewer"));
        console.person(&role).page("/queues");
    }
    // With one of its own for each role there would be more than 15.
    assert!(line.most() <= 12, "{}", line.most());
}

/// Those who leave before a page comes leave its statement behind: others wait for the connection.
#[test]
#[ignore = "it locks a table, so it runs alone"]
fn who_goes_away_leaves_no_connection_behind() {
    let backends = "select count(*) from pg_stat_activity \
        where application_name = 'jobs console' and usename = 'operator'";
    let console = Console::start_as("operator", &[]);
    console.visitor().page("/queues");
    let lock = "begin; lock table jobs.queue; do $$begin for n in 1..30 loop perform pg_sleep(0.1); \
        assert (select count(*) from pg_stat_get_activity(null) a join pg_roles r on r.oid = a.usesysid \
            where a.application_name = 'jobs console' and r.rolname = 'operator') <= 5; \
        perform pg_stat_clear_snapshot(); end loop; end$$; commit";
    std::thread::scope(|scope| {
        let held = scope.spawn(|| run(lock));
        while !held.is_finished() {
            let mut stream = console.stream();
            stream.write_all(b"GET /queues HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        held.join().unwrap();
    });
    wait_for("a connection is free", || console.get("/queues").status == 200);
    assert!(value(backends).as_i64().unwrap() <= 5);
}
