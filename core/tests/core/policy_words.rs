//! What options of unique jobs are made of, for tests that make them at random: here and in
//! tests/server/policy_fuzz.rs.

/// What stands in options somewhere, and what does not.
#[rustfmt::skip]
pub const WORDS: [&str; 62] = [
    "", "*", "a", "b.c", "a.b", "a\\.b", "a..b", "\\", "\\\\", "user_id", "id", "t", "tenant_id",
    "absent", "cafe\u{301}", "\u{1f600}", "skip", "reject", "replace", "replace_except_schedule",
    "ignore", "update", "available", "scheduled", "pending", "running", "retryable", "completed",
    "cancelled", "discarded", "executing", "suspended", "active", "all", "incomplete", "successful",
    "worker", "type", "queue", "args", "meta", "kind", "priority", "max_attempts", "tags",
    "created_at", "inserted_at", "scheduled_at", "success", "start", "infinity", "15 minutes",
    "1 month", "-1 day", "1 month -30 days", "PT15M", "P1M", "P1Y2M3DT4H5M6.7S", "PT0.000001S",
    "178000000 years", "106751991 days", "minutes",
];

/// Fields that options have somewhere, and some that they do not have.
#[rustfmt::skip]
pub const FIELDS: [&str; 40] = [
    "by_kind", "by_args", "by_meta", "by_queue", "by_period", "by_state", "key", "exclude_kind",
    "window", "window_from", "hold_for", "hold_until", "on_conflict", "wait", "update", "*",
    "running", "available", "executing", "oban", "period", "fields", "keys", "states", "timestamp",
    "replace", "faktory", "unique_for", "unique_until", "ojs", "args_keys", "meta_keys",
    "args_required", "args_optional", "meta_optional", "final_conflict", "by_arg", "", "é", "a.b",
];
