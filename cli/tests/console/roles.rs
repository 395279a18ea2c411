//! What each role sees and may do is what the database lets it.

use crate::support::{Console, run, value};

/// Whether each of these actions of a waiting job is offered.
const ACTIONS: [(&str, &str, &str); 5] = [
    ("viewer", "", "retry cancel delete update"),
    ("operator", "retry cancel", "delete update"),
    ("application", "retry cancel delete update", ""),
    ("admin", "retry cancel delete update", ""),
    ("read-only", "", "retry cancel delete update"),
];

fn waiting_job() -> String {
    let insert = "select id from jobs.insert('looked.at', '{\"secret\": \"swordfish\"}', queue => 'looked at', \
                  meta => '{\"hidden\": \"trout\"}', scheduled_at => now() + interval '1 day')";
    value(insert).to_string()
}

#[test]
fn an_action_is_offered_to_who_may() {
    let id = waiting_job();
    for (name, offered, refused) in ACTIONS {
        let (role, options): (_, &[&str]) =
            if name == "read-only" { ("admin", &["--read-only"]) } else { (name, &[]) };
        let console = Console::start(options);
        let mut person = console.person(role);
        let page = person.page(&format!("/jobs/{id}"));
        let edit = person.get(&format!("/jobs/{id}/edit"));
        let has = |action: &str| match action {
            "update" => edit.status == 200 && edit.has_form("/edit"),
            _ => page.has_form(&format!("/jobs/{id}/{action}")),
        };
        for action in offered.split_whitespace() {
            assert!(has(action), "{name} may {action}");
        }
        for action in refused.split_whitespace() {
            assert!(!has(action), "{name} may not {action}");
        }
    }
}

#[test]
fn what_is_not_offered_is_refused() {
    let id = waiting_job();
    for (role, options) in [("viewer", &[][..]), ("admin", &["--read-only"][..])] {
        let console = Console::start(options);
        let mut person = console.person(role);
        let token = person.page("/").form("/logout");
        for action in ["retry", "cancel", "delete"] {
            let answer = person.post(&format!("/jobs/{id}/{action}"), &token);
            assert_eq!(answer.status, 403, "{role} {action}: {}", answer.text());
        }
        assert_eq!(value(&format!("select state from jobs.jobs where id = {id}")), "scheduled");
    }
}

#[test]
fn a_viewer_sees_no_args() {
    let id = waiting_job();
    let console = Console::start(&[]);
    for (role, sees) in
        [("viewer", false), ("operator", true), ("application", true), ("admin", true)]
    {
        let mut person = console.person(role);
        let page = person.page(&format!("/jobs/{id}"));
        let raw = person.get(&format!("/jobs/{id}/raw?what=args"));
        for (name, answer) in [("page", &page), ("raw", &raw)] {
            assert_eq!(answer.body.contains("swordfish"), sees, "{role} {name}: {}", answer.text());
        }
        assert_eq!(page.body.contains("trout"), sees, "{role}");
        let found = person.get("/jobs?args=%7B%22secret%22%3A%22swordfish%22%7D");
        assert_eq!(found.status, if sees { 200 } else { 403 }, "{role}: {}", found.text());
    }
}

#[test]
fn without_login_others_can_only_look() {
    let listen = ["--listen", "0.0.0.0:0"];
    let open = Console::start_as("admin", &[&listen[..], &["--allow-unauthenticated"]].concat());
    let id = waiting_job();
    let has_cancel = |console: &Console| {
        console.get(&format!("/jobs/{id}")).has_form(&format!("/jobs/{id}/cancel"))
    };
    assert!(!has_cancel(&open));
    assert!(has_cancel(&Console::start_as("admin", &[])), "on loopback it is one's own");
    let console = Console::start(&listen);
    let page = console.person("admin").page(&format!("/jobs/{id}"));
    assert!(page.has_form(&format!("/jobs/{id}/cancel")), "who logs in may");
}

#[test]
fn rights_that_are_taken_away_are_gone() {
    run(
        "drop role if exists leaver; create role leaver login password 'leaver'; select jobs.grant_viewer('leaver')",
    );
    let console = Console::start(&[]);
    let mut person = console.person("leaver");
    person.page("/jobs");
    run("select jobs.revoke('leaver')");
    let answer = person.get("/jobs");
    assert_eq!(answer.status, 403, "{}", answer.text());
}
