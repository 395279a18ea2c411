//! Names of time zones that are refused: what the error says and suggests.

use jobs_core::schedule::zone_name;

/// The hint for a name, where the server has a few zones.
fn hint(name: &str) -> String {
    let known = [
        "EST",
        "MST",
        "UTC",
        "Etc/GMT+3",
        "America/New_York",
        "Australia/Sydney",
        "Europe/Berlin",
        "posix/Europe/Berlin",
    ];
    let invalid = zone_name::refused(name, &known.map(str::to_owned));
    assert_eq!(invalid.name(), "time_zone");
    assert!(invalid.message.contains(name), "{invalid:?}");
    invalid.hint.expect("every refusal says what to write")
}

#[test]
fn an_offset_of_whole_hours_has_a_zone_with_the_reversed_sign() {
    for (offset, written) in [
        ("UTC+3", "Write \"Etc/GMT-3\" for 3 hours ahead of UTC"),
        ("utc +03", "Write \"Etc/GMT-3\" for 3 hours ahead of UTC"),
        ("GMT-8", "Write \"Etc/GMT+8\" for 8 hours behind UTC"),
        ("+03:00", "Write \"Etc/GMT-3\" for 3 hours ahead of UTC"),
        ("-0100", "Write \"Etc/GMT+1\" for 1 hour behind UTC"),
        ("\u{2212}5", "Write \"Etc/GMT+5\" for 5 hours behind UTC"),
        ("3", "Write \"Etc/GMT-3\" for 3 hours ahead of UTC"),
        ("+14", "Write \"Etc/GMT-14\" for 14 hours ahead of UTC"),
        ("-12", "Write \"Etc/GMT+12\" for 12 hours behind UTC"),
    ] {
        let hint = hint(offset);
        assert!(hint.starts_with(written), "{offset}: {hint}");
        assert!(hint.contains("these names have the sign reversed"), "{hint}");
    }
    assert_eq!(hint("+00:00"), "Write \"UTC\".");
}

#[test]
fn an_offset_between_hours_has_a_place() {
    for (offset, place) in
        [("GMT+5:30", "Asia/Kolkata"), ("+0545", "Asia/Kathmandu"), ("-09:30", "Pacific/Marquesas")]
    {
        assert_eq!(
            hint(offset),
            format!("Write a place that has this offset, such as \"{place}\".")
        );
    }
}

#[test]
fn other_names_have_a_place_that_is_like_them() {
    for (name, place) in [
        ("Europe/Berln", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
    ] {
        assert_eq!(hint(name), format!("Did you mean \"{place}\"?"));
    }
    for name in [
        "",
        "BST",
        "AEST",
        "CET-1CEST",
        "UTC+100",
        "+15",
        "-13",
        "+3:17",
        "+3:99",
        "+:",
        "UTC+3:00:00",
        "Etc/GMT+99",
        "Mars/Olympus",
    ] {
        assert!(hint(name).starts_with("Write a place as in pg_timezone_names"), "{name}");
    }
}
