//! The search for an order of events that explains a history.

use std::collections::HashSet;
use std::rc::Rc;

use super::effects::{Effect, Job, Jobs, Key};
use super::events::{Event, KeyOf, Timed, events, keys};
use super::model::*;
use super::plain::{busy_without_rival, locked_without_rival, wrong_error};

/// What is wrong with a history, in words for a reader; nothing if it is explained.
pub fn check(history: &History) -> Result<(), String> {
    let wrong = wrong_error(history)
        .or_else(|| busy_without_rival(history))
        .or_else(|| locked_without_rival(history));
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let keys = keys(history);
    let all: HashSet<usize> = keys.values().copied().collect();
    for key in all {
        explain(history, key, &keys)?;
    }
    Ok(())
}

/// What is there after some of the events.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct World {
    /// The number of processed events per session.
    done: Vec<usize>,
    committed: Jobs,
    open: Vec<Open>,
}

/// A session's open transaction.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Open {
    snapshot: Option<Rc<Jobs>>,
    pending: Jobs,
    /// The transaction has inserted a job and holds the key.
    inserted: bool,
    saved: Vec<(Jobs, bool)>,
}

struct Search<'a> {
    events: Vec<Vec<Timed<'a>>>,
    keys: &'a KeyOf,
    key: usize,
    gone: &'a [State],
    /// Worlds from which no order explains the remaining events.
    hopeless: HashSet<World>,
    furthest: World,
}

/// More than this is a fault of the checker's: histories are to be small.
const MOST_WORLDS: usize = 300_000;

fn explain(history: &History, key: usize, keys: &KeyOf) -> Result<(), String> {
    let events = events(history, key, keys);
    let world = World {
        done: vec![0; events.len()],
        open: vec![Open::default(); events.len()],
        ..World::default()
    };
    let mut search = Search {
        events,
        keys,
        key,
        gone: &history.gone,
        hopeless: HashSet::new(),
        furthest: world.clone(),
    };
    if search.leads_to_the_end(&world) {
        return Ok(());
    }
    Err(format!("no order explains key k{key}\n{}", search.tell_furthest()))
}

impl<'a> Search<'a> {
    fn leads_to_the_end(&mut self, world: &World) -> bool {
        if world.done.iter().sum::<usize>() > self.furthest.done.iter().sum() {
            self.furthest = world.clone();
        }
        let mut next: Vec<usize> = (0..self.events.len())
            .filter(|session| world.done[*session] < self.events[*session].len())
            .collect();
        if next.is_empty() {
            return true;
        }
        if self.hopeless.contains(world) {
            return false;
        }
        let span = |session: usize| self.events[session][world.done[session]].span;
        // What began after another one had ended comes after it.
        let horizon = next.iter().map(|session| span(*session).end).min();
        next.retain(|session| Some(span(*session).begin) <= horizon);
        next.sort_by_key(|session| span(*session).end);
        for session in next {
            for after in self.after(world, session) {
                if self.leads_to_the_end(&after) {
                    return true;
                }
            }
        }
        assert!(self.hopeless.len() < MOST_WORLDS, "the history is too large");
        self.hopeless.insert(world.clone());
        false
    }

    /// What there may be after the next event of a session; nothing if it cannot stand here.
    fn after(&self, world: &World, session: usize) -> Vec<World> {
        let timed = &self.events[session][world.done[session]];
        let mut after = world.clone();
        after.done[session] += 1;
        let open = &mut after.open[session];
        match &timed.event {
            Event::Snapshot => open.snapshot = Some(Rc::new(world.committed.clone())),
            Event::Savepoint => open.saved.push((open.pending.clone(), open.inserted)),
            Event::Release => drop(open.saved.pop()),
            Event::RollbackTo => {
                let (pending, inserted) = open.saved.last().cloned().expect("a savepoint");
                (open.pending, open.inserted) = (pending, inserted);
            }
            Event::End { committed: false } => *open = Open::default(),
            Event::End { committed: true } => {
                let open = std::mem::take(open);
                for (id, mut job) in open.pending {
                    job.version = after.committed.get(&id).map_or(0, |before| before.version + 1);
                    after.committed.insert(id, job);
                }
            }
            Event::Fact(fact, _) => return self.after_fact(world, session, timed, fact),
        }
        vec![after]
    }

    fn after_fact(&self, world: &World, session: usize, timed: &Timed, fact: &Fact) -> Vec<World> {
        let open = &world.open[session];
        let jobs = visible(world, open);
        let key = Key { jobs: &jobs, gone: self.gone };
        let effect = match fact {
            Fact::Look(seen) => {
                let here =
                    seen.iter().filter(|(id, _)| self.keys.get(id).is_none_or(|k| *k == self.key));
                key.effect(&Fact::Look(here.copied().collect()))
            }
            _ => key.effect(fact),
        };
        // An insert by an old snapshot may see jobs that are gone by now, or not.
        let left = inserted(fact)
            .filter(|_| timed.has_snapshot)
            .map(|_| self.without_gone(&jobs, world, open))
            .filter(|left| *left != jobs);
        let without_gone = left.and_then(|left| Key { jobs: &left, ..key }.effect(fact));
        let mut worlds = Vec::new();
        for effect in [effect, without_gone].into_iter().flatten() {
            if !is_possible(world, session, &effect, self.gone) {
                continue;
            }
            let mut after = world.clone();
            after.done[session] += 1;
            let open = &mut after.open[session];
            open.pending.extend(effect.changes);
            open.inserted |= effect.inserts;
            worlds.push(after);
        }
        worlds
    }

    /// What an old snapshot shows but for the jobs that are gone by now.
    fn without_gone(&self, jobs: &Jobs, world: &World, open: &Open) -> Jobs {
        let is_gone = |id: &i64| {
            let job = world.committed.get(id);
            job.is_some_and(|job| job.is_gone(self.gone)) && !open.pending.contains_key(id)
        };
        let left = jobs.iter().filter(|(id, _)| !is_gone(id));
        left.map(|(id, job)| (*id, job.clone())).collect()
    }

    fn tell_furthest(&self) -> String {
        let world = &self.furthest;
        let mut text = String::from("after the longest explained beginning there is committed");
        for (id, job) in &world.committed {
            let state = job.state.map_or("deleted", State::as_str);
            let hold = if job.hold.is_some() { " with its hold" } else { "" };
            text += &format!(" {id} {state}{hold},");
        }
        text += " and next would be one of\n";
        for (session, done) in world.done.iter().enumerate() {
            if let Some(timed) = self.events[session].get(*done) {
                let what = match &timed.event {
                    Event::Fact(fact, call) => format!("{}\n      {fact:?}", call.text),
                    Event::Snapshot => "snapshot".into(),
                    Event::Savepoint | Event::Release => "savepoint".into(),
                    Event::RollbackTo => "rollback to".into(),
                    Event::End { committed } => {
                        if *committed { "commit" } else { "rollback" }.into()
                    }
                };
                text += &format!("  s{session} [{}-{}] {what}\n", timed.span.begin, timed.span.end);
            }
        }
        text
    }
}

fn inserted(fact: &Fact) -> Option<i64> {
    match fact {
        Fact::Insert { reply: Reply::Inserted { id, .. }, .. } => Some(*id),
        _ => None,
    }
}

/// What a session sees.
fn visible(world: &World, open: &Open) -> Jobs {
    let mut jobs = match &open.snapshot {
        Some(jobs) => (**jobs).clone(),
        None => world.committed.clone(),
    };
    jobs.extend(open.pending.iter().map(|(id, job)| (*id, job.clone())));
    jobs
}

/// Whether another session has inserted under the key and not yet ended.
fn is_held(world: &World, session: usize) -> bool {
    let others = world.open.iter().enumerate();
    others.into_iter().any(|(other, open)| other != session && open.inserted)
}

/// Whether a session could do this: no other session holds what it needs, nor changed it since its
/// snapshot.
fn is_possible(world: &World, session: usize, effect: &Effect, gone: &[State]) -> bool {
    let open = &world.open[session];
    let version = |jobs: &Jobs, id: &i64| jobs.get(id).map(|job: &Job| job.version);
    let is_free = |id: &i64| {
        let mut others = world.open.iter().enumerate().filter(|(other, _)| *other != session);
        let is_current = open.pending.contains_key(id)
            || open
                .snapshot
                .as_ref()
                .is_none_or(|jobs| version(jobs, id) == version(&world.committed, id));
        is_current && others.all(|(_, open)| !open.pending.contains_key(id))
    };
    let is_latest = open.snapshot.as_ref().is_none_or(|jobs| {
        let mut since = world.committed.iter().filter(|(id, _)| !jobs.contains_key(id));
        since.all(|(_, job)| job.is_gone(gone))
    });
    effect.changes.keys().all(is_free) && (!effect.inserts || is_latest && !is_held(world, session))
}
