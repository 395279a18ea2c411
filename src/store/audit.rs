//! The audit: a row for each call that changed something, of the same transaction.

use pgrx::pg_sys::{Datum, FunctionCallInfo};

use super::columns::delete_some;
use super::spi::{big, plans, text, texts};
use super::types::*;
use crate::pg::call::{Call, Given};
use crate::pg::{role, time};

/// Notes the call under way, which has changed something: so many jobs, if it is about jobs.
pub fn note(call: FunctionCallInfo, jobs: Option<i64>) {
    let call = Call::of(call);
    let column = |of: fn(&Given) -> &str| texts(&call.given.iter().map(of).collect::<Vec<_>>());
    NOTE.execute(&[
        big(time::now()),
        jobs.map(Datum::from),
        text(&role::caller()),
        text(&call.function),
        call.target.as_deref().and_then(text),
        call.reason.as_deref().and_then(text),
        column(|given| &given.name),
        column(|given| given.form),
        column(|given| &given.text),
    ]);
}

/// Deletes rows from before `horizon`; how many.
pub fn forget(horizon: i64, limit: i64) -> usize {
    FORGET.execute(&[big(horizon), big(limit)])
}

plans! {
    NOTE(AT, INT8, TEXT, TEXT, TEXT, TEXT, TEXTS, TEXTS, TEXTS) =
        "INSERT INTO jobs.audit_record (at, jobs, role, login_role, application_name, action, target, reason, arguments)
         SELECT $1, $2, $3, session_user, current_setting('application_name'), $4, $5, $6,
                COALESCE((SELECT jsonb_object_agg(g.name, CASE g.form WHEN 'json' THEN g.text::jsonb
                                                                      WHEN 'list' THEN to_jsonb(g.text::text[])
                                                                      ELSE to_jsonb(g.text) END)
                            FROM unnest($7, $8, $9) AS g(name, form, text)), '{{}}')";
    FORGET(AT, INT8) => delete_some("audit_record", "t.at <= $1 ORDER BY t.at");
}
