//! Walking values: whole ones, and paths into them.

use std::borrow::Cow;

use jobs_core::canonical::{Event, Flaw};
use jobs_core::paths::Paths;

use crate::support::{self, Listed};

fn paths(paths: &[&str]) -> Paths {
    Paths::parse(&paths.iter().map(|path| path.to_string()).collect::<Vec<_>>(), "by_args").unwrap()
}

fn select(json: &str, wanted: &[&str]) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    support::canonical(Listed::from(&value), Some(&paths(wanted))).unwrap()
}

fn name(name: &'static str) -> Event<'static> {
    Event::Name(Cow::Borrowed(name))
}

#[test]
fn only_the_paths_are_written() {
    let json = r#"{"user_id":42,"address":{"zip":"0150","city":"Oslo","geo":{"lat":1,"lon":2}},"tags":["x",{"a":1}]}"#;
    for (wanted, expected) in [
        (&["user_id"][..], r#"{"user_id":42}"#),
        (&["address.city", "user_id"], r#"{"address":{"city":"Oslo"},"user_id":42}"#),
        (&["address.geo.lat", "address.city"], r#"{"address":{"city":"Oslo","geo":{"lat":1}}}"#),
        (&["address.geo", "tags"], r#"{"address":{"geo":{"lat":1,"lon":2}},"tags":["x",{"a":1}]}"#),
        // A path and its prefix mean the prefix, whichever comes first.
        (&["address.geo.lat", "address.geo"], r#"{"address":{"geo":{"lat":1,"lon":2}}}"#),
        (&["address.geo", "address.geo.lat"], r#"{"address":{"geo":{"lat":1,"lon":2}}}"#),
    ] {
        assert_eq!(select(json, wanted), expected, "{wanted:?}");
    }
}

#[test]
fn what_is_absent_is_left_out_with_the_objects_that_it_would_be_in() {
    for (json, wanted, expected) in [
        (r#"{"a":1}"#, &["address.city"][..], "{}"),
        (r#"{"address":{"zip":1}}"#, &["address.city", "n"], "{}"),
        (r#"{"a":{"b":{}},"n":1}"#, &["a.b.c", "n"], r#"{"n":1}"#),
        (r#"{"a":{"b":{},"d":2},"n":1}"#, &["a.b.c", "a.d"], r#"{"a":{"d":2}}"#),
        // Present but empty or null is not absent.
        (r#"{"a":{"b":{}}}"#, &["a.b"], r#"{"a":{"b":{}}}"#),
        (r#"{"a":{"b":null}}"#, &["a.b"], r#"{"a":{"b":null}}"#),
        (r#"{"a":{}}"#, &["a"], r#"{"a":{}}"#),
    ] {
        assert_eq!(select(json, wanted), expected, "{json} by {wanted:?}");
    }
}

#[test]
fn a_path_goes_only_through_objects() {
    for json in [
        r#"{"a":1,"z":0}"#,
        r#"{"a":"b","z":0}"#,
        r#"{"a":null,"z":0}"#,
        r#"{"a":[],"z":0}"#,
        r#"{"a":[{"b":1},[2,{"b":3}]],"z":0}"#,
    ] {
        assert_eq!(select(json, &["a.b", "z"]), r#"{"z":0}"#, "{json}");
    }
    for json in ["1", "null", "\"a\"", "[]", r#"[{"a":{"b":1}}]"#] {
        assert_eq!(select(json, &["a.b", "a"]), "{}", "{json}");
    }
}

#[test]
fn names_with_dots_and_in_other_unicode_forms_are_found() {
    assert_eq!(
        select(r#"{"a.b":1,"a":{"b":2},"c\\":3}"#, &[r"a\.b", r"c\\"]),
        r#"{"a.b":1,"c\\":3}"#
    );
    assert_eq!(
        select("{\"cafe\u{301}\":{\"x\":1}}", &["caf\u{e9}.x"]),
        "{\"caf\u{e9}\":{\"x\":1}}"
    );
    assert_eq!(select("{\"caf\u{e9}\":1}", &["cafe\u{301}"]), "{\"caf\u{e9}\":1}");
}

#[test]
fn two_names_that_are_one_are_refused_where_they_count() {
    let twice =
        |member: &str| format!("{{\"caf\u{e9}\":{member},\"cafe\u{301}\":{member},\"n\":1}}");
    let refused = |json: &str, wanted: Option<&Paths>| {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        support::canonical(Listed::from(&value), wanted)
    };
    let same = Err(Flaw::SameName("caf\u{e9}".into()));
    assert_eq!(refused(&twice("1"), None), same);
    assert_eq!(refused(&format!("[0,{}]", twice("{}")), None), same);
    assert_eq!(refused(&twice("1"), Some(&paths(&["caf\u{e9}"]))), same);
    // Also when nothing of either would be written: which of the two is meant is not known.
    assert_eq!(refused(&twice("{}"), Some(&paths(&["caf\u{e9}.x"]))), same);
    assert_eq!(select(&twice("1"), &["n"]), r#"{"n":1}"#);
}

#[test]
fn nesting_costs_no_stack() {
    const DEPTH: usize = 100_000;
    // On a small stack, so that a walk that takes some for each level is found.
    let walk = || {
        let mut events = Vec::new();
        // {"b":[{"b":[ ... null ... ],"a":0}],"a":0}: members out of order at every level.
        for _ in 0..DEPTH / 2 {
            events.extend([Event::BeginObject, name("b"), Event::BeginArray]);
        }
        events.push(Event::Null);
        for _ in 0..DEPTH / 2 {
            events.extend([
                Event::EndArray,
                name("a"),
                Event::Number("0".into()),
                Event::EndObject,
            ]);
        }
        let expected =
            format!("{}null{}", r#"{"a":0,"b":["#.repeat(DEPTH / 2), "]}".repeat(DEPTH / 2));
        assert_eq!(support::canonical(Listed::new(events.clone()), None).unwrap(), expected);

        // Through an array that is no object, and past a value that nobody asked for.
        assert_eq!(
            support::canonical(Listed::new(events.clone()), Some(&paths(&["b.c", "a"]))).unwrap(),
            r#"{"a":0}"#
        );
        assert_eq!(
            support::canonical(Listed::new(events), Some(&paths(&["a"]))).unwrap(),
            r#"{"a":0}"#
        );

        // Down a path as deep as the value.
        let mut events: Vec<_> = (0..DEPTH).flat_map(|_| [Event::BeginObject, name("a")]).collect();
        events.push(Event::Bool(true));
        events.extend(vec![Event::EndObject; DEPTH]);
        let path = vec!["a"; DEPTH].join(".");
        let expected = format!("{}true{}", r#"{"a":"#.repeat(DEPTH), "}".repeat(DEPTH));
        assert_eq!(
            support::canonical(Listed::new(events), Some(&paths(&[&path]))).unwrap(),
            expected
        );
    };
    std::thread::Builder::new().stack_size(256 * 1024).spawn(walk).unwrap().join().unwrap();
}
