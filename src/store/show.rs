//! One job's story, line by line, from the views: what the caller may not see there is not in it.

use jobs_core::visible;
use pgrx::pg_sys::Datum;

use super::spi::{big, plans};
use super::types::*;
use crate::pg::jsonb;

/// The lines about a job; none: there is no such job. Only the text of an error continues below its
/// line, set in, so no text looks like a line of the story.
pub fn lines(id: i64) -> Vec<String> {
    let is_too_long = |value| jsonb::stored_length_above(LONGEST, &[value]).is_some();
    let too_long = CARRIED.first(&[big(id)], |rows| {
        let carried = ["args", "meta", "output", "progress"];
        carried.map(|part| Some(Datum::from(rows.raw(0, part).is_some_and(is_too_long))))
    });
    let args = [&[big(id)], &too_long.unwrap_or_default()[..]].concat();
    STORY.list(&args, |rows, row| {
        let line: String = rows.get(row, "line")?;
        Some(match rows.get(row, "is_error") {
            Some(true) => visible::lines(&line).replace('\n', "\n    "),
            _ => visible::line(&line).into_owned(),
        })
    })
}

/// The longest text of a part of what a job carries that is shown. All of them together have room
/// in one text.
const LONGEST: u64 = 64 * 1024 * 1024;

// How a time is shown.
const TIME: &str = "'YYYY-MM-DD HH24:MI:SS.MS OF'";

fn unless_too_long(parameter: &str, value: &str) -> String {
    format!("CASE WHEN {parameter} THEN '(too long to be shown)' ELSE {value} END")
}

plans! {
    CARRIED(INT8) = "SELECT args, meta, output, progress FROM jobs.jobs WHERE id = $1";
    // The head (part 1), what happened in the order of time (2), and what comes next (3). A line
    // that has nothing to say is null.
    STORY(INT8, BOOL, BOOL, BOOL, BOOL) =
        "WITH j AS MATERIALIZED (SELECT * FROM jobs.jobs WHERE id = $1),
     line(part, at, n, line) AS (
       SELECT 1, NULL::timestamptz, h.n, h.line FROM j, LATERAL (VALUES
         (1, format('Job %s, kind %s: %s', j.id, j.kind, j.state)),
         (2, format('  queue %s, priority %s, attempt %s of %s', j.queue, j.priority, j.attempt, j.max_attempts)),
         (3, '  tags ' || NULLIF(array_to_string(j.tags, ', '), '')),
         (4, '  args ' || {args}),
         (5, '  meta ' || {meta}),
         (6, '')) h(n, line)
       UNION ALL
       SELECT 2, h.at, h.n, to_char(h.at, {TIME}) || '  ' || h.line FROM j, LATERAL (VALUES
         (j.created_at, 1, 'inserted'),
         (j.attempted_at, 2, format('attempt %s begun by %s', j.attempt, j.worker)),
         (NULLIF(j.cancel_requested_at, j.finalized_at), 3, 'asked to stop' || COALESCE(': ' || j.cancel_reason, '')),
         (j.finalized_at, 5, j.state::text || CASE WHEN j.cancel_requested_at IS DISTINCT FROM j.finalized_at THEN '' ELSE COALESCE(': ' || j.cancel_reason, '') END
            || COALESCE(', output ' || {output}, ''))) h(at, n, line)
        WHERE h.at IS NOT NULL
       UNION ALL
       SELECT 2, e.at, 4, to_char(e.at, {TIME}) || '  ' || format('attempt %s failed: %s', e.attempt, e.error)
              || COALESCE(' (' || (e.details ->> 'type') || ')', '')
         FROM jobs.errors e WHERE e.job_id = $1
       UNION ALL
       SELECT 3, NULL, n.n, n.line FROM j, LATERAL (VALUES
         (1, CASE j.state
               WHEN 'available' THEN COALESCE('Held: ' || (SELECT x.detail FROM jobs.explain($1) x WHERE x.reason IN ('limit', 'limit paused', 'order') LIMIT 1), 'It waits to be fetched')
               WHEN 'scheduled' THEN 'It is due at ' || to_char(j.scheduled_at, {TIME})
               WHEN 'retryable' THEN 'It is tried again at ' || to_char(j.scheduled_at, {TIME})
               WHEN 'pending' THEN 'It waits for jobs.activate'
                 || CASE WHEN j.scheduled_at > clock_timestamp() THEN ', and is due at ' || to_char(j.scheduled_at, {TIME}) ELSE '' END
               WHEN 'running' THEN 'Its lease ends at ' || to_char(j.lease_expires_at, {TIME})
                 || COALESCE(', its time at ' || to_char(j.deadline_at, {TIME}), ', its time is not limited')
             END
             || CASE WHEN j.finalized_at IS NULL AND isfinite(j.expires_at) AND j.state <> 'running'
                  THEN ', and expires at ' || to_char(j.expires_at, {TIME}) ELSE '' END || '.'),
         (2, (SELECT format('Its worker %s is lost, last seen at ', w.worker) || to_char(w.last_seen_at, {TIME}) || '.'
                FROM jobs.workers w WHERE w.worker = j.worker AND w.status = 'lost' AND j.state = 'running')),
         (3, 'Progress: ' || {progress})) n(n, line))
     SELECT l.line, l.part = 2 AND l.n = 4 AS is_error FROM line l WHERE l.line IS NOT NULL ORDER BY l.part, l.at, l.n",
        args = unless_too_long("$2", "j.args::text"),
        meta = unless_too_long("$3", "NULLIF(j.meta, '{}')::text"),
        output = unless_too_long("$4", "j.output::text"),
        progress = unless_too_long("$5", "j.progress::text");
}
