//! What an insert does to a job that it conflicts with: replaces it, or gives it values of the new
//! job.

use jobs_core::policy::{Field, Fields};
use jobs_core::state::State;
use jobs_core::verdict::Verdict;

use super::by_id::{chase, forced, requeued, rewrite};
use crate::error::Result;
use crate::pg::jsonb::Jsonb;
use crate::pg::time;
use crate::shmem::commit::{self, Work};
use crate::store::changes::Changes;
use crate::store::config::Options;
use crate::store::job::NewJob;
use crate::store::look::StoredHolder;
use crate::store::notes;
use crate::store::place::Place;

/// Locks a job that an insert is to replace or update, so that no other session moves it; `None` if
/// it is in another state by now.
pub fn locked(holder: &StoredHolder, verdict: &Verdict) -> Result<Option<Place>> {
    // Values of a job's own row do not keep its worker from saying that it is alive.
    let is_shared = |place: &Place| match verdict {
        Verdict::Update { fields, .. } => {
            let keeps_queue = place.state == State::Running && fields.contains(Field::Queue);
            !fields.contains(Field::ScheduledAt) && !keeps_queue
        }
        _ => false,
    };
    let locked = chase(holder.id, |place| {
        if holder.state() != Some(place.state) {
            return Some(None);
        }
        place.lock(is_shared(place)).then(|| Some(place.clone()))
    })?;
    Ok(locked.flatten())
}

/// Cancels a job that is locked, and releases the hold that it has until then.
pub fn replaced(place: &Place, hold_ends_at: Option<i64>) -> Result<()> {
    let cancel = |place: &Place| forced(place, Some("replaced"), hold_ends_at).then_some(());
    where_it_is(place, cancel).map(|_| ())
}

/// Acts on a job that is locked where it was seen, or where this transaction has put it since: a
/// held one goes back to its lane when another one that is replaced leaves.
fn where_it_is<T>(place: &Place, act: impl Fn(&Place) -> Option<T>) -> Result<Option<T>> {
    match act(place) {
        None => chase(place.id, act),
        done => Ok(done),
    }
}

/// The values of a new job that an existing one takes.
fn taken(fields: Fields, new: &NewJob) -> Changes<'_> {
    let common = &*new.common;
    let takes = |field| fields.contains(field);
    let options = Options {
        queue: takes(Field::Queue).then(|| common.queue.name().to_string()),
        priority: takes(Field::Priority).then_some(common.priority),
        max_attempts: takes(Field::MaxAttempts).then_some(common.max_attempts),
        meta: takes(Field::Meta).then(|| common.meta.given_or_else(Jsonb::empty_object)),
        tags: takes(Field::Tags).then(|| common.tags.given_or_else(Vec::new)),
        scheduled_at: takes(Field::ScheduledAt).then(|| new.scheduled_at()),
        ..Options::default()
    };
    Changes {
        kind: takes(Field::Kind).then_some(common.kind.as_str()),
        args: takes(Field::Args).then_some(new.args),
        options,
    }
}

/// Gives a job that is locked values of a new one.
pub fn updated(place: &Place, fields: Fields, new: &NewJob) -> Result<()> {
    // It may be due earlier, or be kept for less time.
    commit::wake_worker(Work::MayBeDue);
    let changes = &taken(fields, new);
    if !place.state.is_final() && place.state != State::Running {
        let done = where_it_is(place, |place| requeued(place, changes).transpose())?;
        return done.transpose().map(|_| ());
    }
    if place.state == State::Running && changes.options.queue.is_some() {
        place.keep_queue();
    }
    rewrite(place.id, changes)?;
    if place.state.is_final()
        && (changes.options.queue.is_some() || changes.options.scheduled_at.is_some())
    {
        place.keep_anew();
    }
    if changes.options.scheduled_at.is_some() {
        place.forget_schedule();
        // A final job may have been what others under its key were folded for, by its schedule.
        if let Some(key) = place.unique_key.filter(|_| place.state.is_final()) {
            notes::returned(key, place.id, time::now());
        }
    }
    Ok(())
}
