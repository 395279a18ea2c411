//! Final jobs that nothing keeps any more, and answers that are not needed any more. As in [`super::due`]: a bounded number
//! of rows, none that is locked, and none without its job.

use jobs_core::key::Key;
use jobs_core::state::State;

use super::claims::KeptFinal;
use super::direct::shapes::{self, finished, job};
use super::spi::{Plan, big, bigs, text, texts};
use super::types::*;
use super::under;
use crate::pg::nearby::Nearby;
use crate::pg::row::{Row, Tid};
use crate::pg::scan::{self, Scan, Seen};
use crate::pg::subxact;
use crate::pg::table::{self, Deleted, Table};
use crate::pg::transaction;
use crate::shmem::cleared::KeptOn;

/// Which queues' jobs are meant.
#[derive(Hash)]
pub enum Queues<'a> {
    /// this one's
    One(&'a str),
    /// all others'
    AllBut(&'a [String]),
}

impl Queues<'_> {
    /// Whether a job is meant, whose queue this tells. It is not asked where that makes no difference.
    fn include(&self, queue: impl FnOnce() -> String) -> bool {
        match self {
            Queues::One(one) => queue() == *one,
            Queues::AllBut(others) => others.is_empty() || !others.contains(&queue()),
        }
    }
}

/// A final job that goes.
pub struct Old {
    /// its id
    pub id: i64,
    /// the key that it was inserted under
    pub key: Option<Key>,
}

/// Final jobs past their retention, from the oldest on.
#[derive(Default)]
pub struct PastRetention {
    /// those that can go
    pub jobs: Vec<Old>,
    /// when the first one became final that could not be deleted just now: somebody has it locked, or it comes or goes with
    /// a transaction that is still open
    pub first_busy: Option<i64>,
    /// those that their own period or window keeps
    pub kept: KeptOn,
    /// when the latest of all became final
    pub latest: i64,
}

impl PastRetention {
    /// One that became final then could not be deleted just now.
    fn note_busy(&mut self, finalized_at: i64) {
        let first = self.first_busy.get_or_insert(finalized_at);
        *first = finalized_at.min(*first);
    }

    /// One is kept until then.
    fn note_kept(&mut self, until: i64) {
        let first = self.kept.first.get_or_insert(until);
        *first = until.min(*first);
        self.kept.count += 1;
    }
}

/// Which final jobs are meant.
pub struct Wanted<'a> {
    /// of these queues
    pub queues: &'a Queues<'a>,
    /// in this state
    pub state: State,
    /// that became so after that
    pub since: i64,
    /// and before this
    pub horizon: i64,
    /// and that nothing else keeps now
    pub now: i64,
    /// so many
    pub limit: i64,
    /// but not these
    pub but: &'a [i64],
}

/// Final jobs that can go: locked. Of those that are kept it does not tell how long.
pub fn past_retention(wanted: &Wanted) -> PastRetention {
    let find = |plans: [&Plan; 2], limit: i64, but: &[i64]| {
        let (plan, queues) = match wanted.queues {
            Queues::One(queue) => (plans[0], text(queue)),
            Queues::AllBut(queues) => (plans[1], texts(queues)),
        };
        let args = [
            text(wanted.state.as_str()),
            big(wanted.horizon),
            big(limit),
            bigs(but),
            queues,
            big(wanted.since),
            big(wanted.now),
        ];
        plan.run(&args, |rows| {
            let old = |row| Old {
                id: rows.big(row, 1).expect("id"),
                key: rows.bytes(row, 2).and_then(|bytes| Key::from_bytes(&bytes)),
            };
            let jobs: Vec<Old> = (0..rows.len()).map(old).collect();
            let last = rows.len().checked_sub(1);
            (jobs, last.and_then(|last| rows.big(last, 3)))
        })
    };
    let (jobs, latest) = find(
        [&PAST_RETENTION_OF_ONE, &PAST_RETENTION],
        wanted.limit,
        wanted.but,
    );
    let mut found = PastRetention {
        jobs,
        // Before the latest anything may be locked.
        first_busy: Some(wanted.since.saturating_add(1)),
        kept: KeptOn::default(),
        latest: latest.unwrap_or(wanted.horizon),
    };
    if (found.jobs.len() as i64) < wanted.limit {
        // What is left beside somebody has locked.
        let but: Vec<i64> = found
            .jobs
            .iter()
            .map(|job| job.id)
            .chain(wanted.but.iter().copied())
            .collect();
        (_, found.first_busy) = find([&LEFT_OF_ONE, &LEFT], 1, &but);
    }
    found
}

/// The same, and deletes them with all that belongs to them but their claims. `None`: use statements.
pub fn erase_past_retention(wanted: &Wanted) -> Option<PastRetention> {
    if !transaction::is_read_committed() || !subxact::has_room() {
        return None;
    }
    // An insert may have given a job another queue since the snapshot was taken, where it is kept for longer. That shows once
    // its row of `finished` is deleted, which is taken back then.
    let erased = subxact::attempt_and_keep(|| erase_as_seen(wanted), Option::is_some);
    erased.unwrap_or_else(|error| subxact::rethrow(*error))
}

/// The same, going by what one snapshot shows of the jobs; also `None`, with some of them deleted, where that is not true any more.
fn erase_as_seen(wanted: &Wanted) -> Option<PastRetention> {
    let limit = wanted.limit as usize;
    let finished =
        Table::open(&shapes::FINISHED).filter(|table| table.has(&shapes::FINISHED_BY_AGE))?;
    let jobs = Table::open(&shapes::JOB)?;
    transaction::make_visible();
    let (dirty, seen) = (Seen::dirty(), Seen::now());
    let mut scan = finished.scan(&shapes::FINISHED_BY_AGE, &dirty, 3);
    scan.find(&[
        scan::Key::label(1, finished.label(finished::STATE, wanted.state.as_str())),
        scan::Key::at_from(2, wanted.since.saturating_add(1)),
        scan::Key::at_to(2, wanted.horizon),
    ]);
    let read_job = |row: &Row| {
        let queue = || row.text(job::QUEUE).expect("it is not null");
        let id = row.big(job::ID).expect("it is not null");
        let job = Job {
            is_meant: wanted.queues.include(queue),
            key: row.bytes(job::UNIQUE_KEY).and_then(Key::from_bytes),
            kept: under::kept(row),
            scheduled_at: row
                .big(job::SCHEDULED_AT)
                .or(row.big(job::CREATED_AT))
                .expect("it is not null"),
            row: row.tid(),
        };
        Some((id, job))
    };
    let mut nearby = Nearby::new(&jobs, &shapes::JOB.key, &seen, read_job);
    let mut unseen = jobs.scan(&shapes::JOB.key, &dirty, 1);
    let mut erased = PastRetention::default();
    loop {
        let most = table::TOGETHER.min(limit - erased.jobs.len());
        let found = next_final(&mut scan, wanted.but, most, &mut erased);
        // A scan that is at its end would begin anew.
        let is_over = found.len() < most;
        let mut whole = Vec::with_capacity(found.len());
        for of in found {
            pgrx::check_for_interrupts!();
            let id = || scan::Key::big(1, of.id);
            match nearby.take(&of.id, id) {
                Some(job) if !job.is_meant => {}
                Some(job) => {
                    let scheduled_at = of.scheduled_at.unwrap_or(job.scheduled_at);
                    let kept = job.kept.as_ref();
                    match kept.and_then(|kept| kept.until_everywhere(wanted.state, scheduled_at)) {
                        Some(until) if until > wanted.now => erased.note_kept(until),
                        _ => whole.push((of, job.key, job.row)),
                    }
                }
                None => {
                    // It may have come, together with its end, after the rows were begun to be looked at.
                    unseen.find(&[id()]);
                    if unseen.next().is_some() {
                        erased.note_busy(of.finalized_at);
                    }
                }
            }
        }
        if !erase(&finished, &jobs, whole, &mut erased) {
            return None;
        }
        if is_over || erased.jobs.len() == limit {
            break;
        }
    }
    drop((scan, nearby, unseen));
    drop(seen);
    transaction::make_visible();
    erase_notes(&erased.jobs.iter().map(|job| job.id).collect::<Vec<_>>());
    Some(erased)
}

/// A row of `job`.
struct Job {
    /// its queue is
    is_meant: bool,
    key: Option<Key>,
    kept: Option<KeptFinal>,
    /// as long as its row of `finished` says nothing else
    scheduled_at: i64,
    /// where it is
    row: Tid,
}

/// A row of `finished`.
struct Final {
    /// the job
    id: i64,
    finalized_at: i64,
    scheduled_at: Option<i64>,
    /// where it is
    row: Tid,
}

/// The next rows of a scan, but not those of these jobs; notes those that come or go with a transaction that is still open.
fn next_final(scan: &mut Scan, but: &[i64], most: usize, erased: &mut PastRetention) -> Vec<Final> {
    let mut found = Vec::with_capacity(most);
    while found.len() < most
        && let Some(row) = scan.next()
    {
        pgrx::check_for_interrupts!();
        let id = row.big(finished::JOB_ID).expect("it is not null");
        let finalized_at = row.big(finished::FINALIZED_AT).expect("it is not null");
        if but.contains(&id) {
            continue;
        }
        if row.is_in_progress {
            erased.note_busy(finalized_at);
        } else {
            found.push(Final {
                id,
                finalized_at,
                scheduled_at: row.big(finished::SCHEDULED_AT),
                row: row.tid(),
            });
        }
    }
    found
}

/// Deletes both rows of each job, with its key and where its row of `job` is; whether nobody has changed one of these meanwhile.
fn erase(
    finished: &Table,
    jobs: &Table,
    whole: Vec<(Final, Option<Key>, Tid)>,
    erased: &mut PastRetention,
) -> bool {
    let rows = whole.iter().map(|(of, ..)| of.row).collect();
    let deleted = finished.delete_each(rows, false);
    let mut job_rows = Vec::with_capacity(whole.len());
    for ((of, key, job), deleted) in whole.into_iter().zip(deleted) {
        erased.latest = of.finalized_at;
        if deleted == Deleted::Done {
            erased.jobs.push(Old { id: of.id, key });
            job_rows.push(job);
        } else {
            erased.note_busy(of.finalized_at);
        }
    }
    let deleted = jobs.delete_each(job_rows, true);
    !deleted.contains(&Deleted::Moved)
}

/// Deletes final jobs with all that belongs to them but their claims. The caller has locked them.
pub fn erase_finished(jobs: &[Old]) {
    if jobs.is_empty() {
        return;
    }
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    for plan in [&ERASE_FINISHED, &ERASE_JOBS] {
        plan.execute(&[bigs(&ids)]);
    }
    erase_notes(&ids);
}

/// Deletes what was noted of jobs.
fn erase_notes(ids: &[i64]) {
    if ids.is_empty() {
        return;
    }
    for (plan, shape) in [
        (&ERASE_ERRORS, &shapes::ERROR),
        (&ERASE_ANSWERS, &shapes::ANSWER),
    ] {
        let table = Table::open_to_read(shape, &shape.key);
        if table.is_none_or(|table| !table.is_empty(&shape.key)) {
            plan.execute(&[bigs(ids)]);
        }
    }
}

/// Deletes remembered answers from before `horizon`; how many.
pub fn forget_answers(horizon: i64, limit: i64) -> usize {
    FORGET_ANSWERS.execute(&[big(horizon), big(limit)])
}

/// When the first job of a state became final after `since`.
pub fn oldest_final(state: State, since: i64) -> Option<i64> {
    OLDEST_FINAL.run(&[text(state.as_str()), big(since)], |rows| rows.big(0, 1))
}

macro_rules! past_retention {
    ($queues:literal, $how:literal) => {
        concat!(
            "SELECT f.job_id, j.unique_key, f.finalized_at
               FROM jobs.finished f JOIN jobs.job j ON j.id = f.job_id
              WHERE f.state = $1::jobs.state AND f.finalized_at > $6 AND f.finalized_at <= $2 AND f.job_id <> ALL ($4) AND j.queue ",
            $queues,
            " AND NOT COALESCE(
                 j.unique_final & CASE f.state WHEN 'completed' THEN 1 WHEN 'cancelled' THEN 2 ELSE 4 END > 0
                 AND (j.unique_until > $7
                      OR CASE WHEN j.unique_window > '1000 years' THEN true
                              ELSE COALESCE(f.scheduled_at, j.scheduled_at, j.created_at)
                                   > $7 - CASE WHEN extract(day FROM j.unique_window) <> 0 OR date_trunc('month', j.unique_window) <> '0'
                                               THEN interval '96 hours' ELSE interval '0' END - j.unique_window END), false)
               ORDER BY f.finalized_at LIMIT $3",
            $how
        )
    };
}
// The job is locked as well, so that what it was updated to meanwhile is looked at.
macro_rules! locked {
    ($queues:literal) => {
        past_retention!($queues, " FOR UPDATE OF f, j SKIP LOCKED")
    };
}
static PAST_RETENTION: Plan = Plan::new(
    locked!("<> ALL ($5)"),
    &[TEXT, AT, INT8, INT8S, TEXTS, AT, AT],
);
static PAST_RETENTION_OF_ONE: Plan =
    Plan::new(locked!("= $5"), &[TEXT, AT, INT8, INT8S, TEXT, AT, AT]);
static LEFT: Plan = Plan::new(
    past_retention!("<> ALL ($5)", ""),
    &[TEXT, AT, INT8, INT8S, TEXTS, AT, AT],
);
static LEFT_OF_ONE: Plan = Plan::new(
    past_retention!("= $5", ""),
    &[TEXT, AT, INT8, INT8S, TEXT, AT, AT],
);
static ERASE_FINISHED: Plan = Plan::new(
    "DELETE FROM jobs.finished WHERE job_id = ANY ($1)",
    &[INT8S],
);
static ERASE_JOBS: Plan = Plan::new("DELETE FROM jobs.job WHERE id = ANY ($1)", &[INT8S]);
static ERASE_ERRORS: Plan = Plan::new("DELETE FROM jobs.error WHERE job_id = ANY ($1)", &[INT8S]);
// Others forget answers by their age, whosever they are: what somebody has locked is left to that.
static ERASE_ANSWERS: Plan = Plan::new(
    "DELETE FROM jobs.answer WHERE ctid = ANY (ARRAY(
       SELECT a.ctid FROM jobs.answer a WHERE a.job_id = ANY ($1) FOR UPDATE SKIP LOCKED))",
    &[INT8S],
);
static FORGET_ANSWERS: Plan = Plan::new(
    "DELETE FROM jobs.answer WHERE ctid = ANY (ARRAY(
       SELECT a.ctid FROM jobs.answer a WHERE a.at <= $1 ORDER BY a.at LIMIT $2 FOR UPDATE SKIP LOCKED))",
    &[AT, INT8],
);

static OLDEST_FINAL: Plan = Plan::new(
    "SELECT min(f.finalized_at) FROM jobs.finished f WHERE f.state = $1::jobs.state AND f.finalized_at > $2",
    &[TEXT, AT],
);
