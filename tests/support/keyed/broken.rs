//! What broke a limit or an order. An attempt runs for certain from the answer of its fetch to the
//! first call that may end it; what was in force counts where nothing changed between the call of
//! the fetch and its answer.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::rules::{Key, Limit, Order, PERIOD, QUEUE, Rules, Timeline};
use super::sessions::LEASE;
use super::{Journal, Span, Start};

/// Some time that a job was in a state for certain.
#[derive(Clone, Copy)]
struct Certain {
    from: Instant,
    to: Instant,
}

impl Certain {
    fn has(&self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }
}

/// An attempt, with what follows from the journal.
struct Attempt<'a> {
    start: &'a Start,
    sent: Instant,
    /// When its fetch had answered.
    from: Instant,
    runs: Certain,
    /// The job has the turn of its key, if it got it by this start or an earlier one.
    turn: Certain,
}

pub fn broken(journal: &Journal, rules: &Rules) -> Vec<String> {
    let attempts = attempts(journal, rules);
    let mut broken = Vec::new();
    for limit in rules.limits.values() {
        concurrency(&attempts, limit, &mut broken);
        rate(&attempts, limit, &mut broken);
    }
    paused(&attempts, rules, &mut broken);
    turns(&attempts, rules, &mut broken);
    sequence(journal, &attempts, rules, &mut broken);
    broken
}

fn attempts<'a>(journal: &'a Journal, rules: &Rules) -> Vec<Attempt<'a>> {
    let far = Instant::now() + Duration::from_secs(3600);
    let mut next: HashMap<i64, Instant> = HashMap::new();
    let mut starts: Vec<&Start> = journal.starts.iter().collect();
    starts.sort_by_key(|start| start.fetch.done);
    let mut attempts: Vec<Attempt> = starts
        .into_iter()
        .rev()
        .map(|start| {
            let (sent, from) = (start.fetch.sent, start.fetch.done.expect("it answered"));
            let touched = touched(journal, start);
            let cut = touched.iter().map(|span| span.sent.max(from)).min();
            let ends = |at: Option<Instant>| at.into_iter().chain(cut).fold(far, Instant::min);
            let runs = ends(start.ended).min(sent + LEASE);
            let next = next.insert(start.id, from);
            // What expires does so as soon as it no longer runs.
            let expires = start.expires.then_some(runs);
            let turn = ends(start.is_final.into_iter().chain(next).chain(expires).min());
            let turn = blocked_until(journal, rules, start).map_or(turn, |at| ends(Some(at)));
            Attempt {
                start,
                sent,
                from,
                runs: Certain { from, to: runs },
                turn: Certain { from, to: turn },
            }
        })
        .collect();
    attempts.reverse();
    attempts
}

/// The calls by others that may have changed a job since its fetch.
fn touched<'a>(journal: &'a Journal, start: &Start) -> Vec<&'a Span> {
    let by_id = journal.touched.get(&start.id);
    let by_key = start.unique.and_then(|unique| journal.touched_by_key.get(&unique));
    let all = by_id.into_iter().chain(by_key).flatten();
    all.filter(|span| span.may_be_after(start.fetch.sent)).collect()
}

/// Until when a discarded job blocks its key.
fn blocked_until(journal: &Journal, rules: &Rules, start: &Start) -> Option<Instant> {
    let span = start.discarded?;
    let (n, order) = strict(&rules.order, start.fetch)?;
    let (at, _) = strict(&rules.order, span).filter(|(_, order)| order.blocks)?;
    if at != n || start.queue != QUEUE {
        return None;
    }
    let key = order.by.key(start.who);
    let unblocked = journal.unblocked.iter().filter(|(other, _)| *other == key);
    let unblocked = unblocked.filter(|(_, other)| other.may_be_after(span.sent));
    let until = unblocked.map(|(_, other)| other.sent).chain(rules.order.until(n)).min();
    until.or(Some(Instant::now()))
}

/// The order during a call, if it is strict.
fn strict(orders: &Timeline<Option<Order>>, span: Span) -> Option<(usize, Order)> {
    let (n, order) = orders.during(span.sent, span.done?)?;
    order.filter(|order| order.is_strict).map(|order| (n, order))
}

fn concurrency(attempts: &[Attempt], limit: &Timeline<Limit>, broken: &mut Vec<String>) {
    let covered = |limit: &Limit, one: &Attempt, key: Key| {
        limit.covers(&one.start.queue, &one.start.kind) && limit.by.key(one.start.who) == key
    };
    for one in attempts.iter().filter(|one| one.runs.has(one.from)) {
        let Some((n, set)) = limit.during(one.sent, one.from) else {
            continue;
        };
        let key = set.by.key(one.start.who);
        if !covered(set, one, key) {
            continue;
        }
        let beside = attempts.iter().filter(|other| covered(set, other, key));
        let beside: Vec<_> = beside.filter(|other| other.runs.has(one.from)).collect();
        // One of those started last, and found all others running.
        let latest = beside.iter().map(|other| other.sent).max().expect("itself");
        let may_be_last = beside.iter().filter(|other| other.from >= latest);
        let are_known = may_be_last
            .map(|other| limit.during(other.sent, other.from))
            .all(|found| found.is_some_and(|(other, _)| other == n));
        if are_known && beside.len() > set.most(key) {
            broken.push(format!(
                "{} run under {} {key:?}, of {}: job {}",
                beside.len(),
                set.name,
                set.most(key),
                one.start.id
            ));
        }
    }
}

fn rate(attempts: &[Attempt], limit: &Timeline<Limit>, broken: &mut Vec<String>) {
    let mut starts: BTreeMap<(usize, Key), Vec<i64>> = BTreeMap::new();
    let mut rates = HashMap::new();
    for one in attempts {
        let Some((n, set)) = limit.during(one.sent, one.from) else {
            continue;
        };
        let key = set.by.key(one.start.who);
        if let Some(rate) = set.rate(key).filter(|_| set.covers(&one.start.queue, &one.start.kind))
        {
            starts.entry((n, key)).or_default().push(one.start.at);
            rates.insert((n, key), rate);
        }
    }
    for (of, starts) in &mut starts {
        starts.sort_unstable();
        let rate = rates[of];
        let times = starts.windows(rate + 1).map(|some| some[rate] - some[0]);
        let short = times.filter(|time| *time < PERIOD.as_micros() as i64);
        broken.extend(short.map(|time| format!("{} starts of {of:?} in {time} us", rate + 1)));
    }
}

fn paused(attempts: &[Attempt], rules: &Rules, broken: &mut Vec<String>) {
    for one in attempts {
        let (queue, kind) = (&one.start.queue, &one.start.kind);
        let mut say =
            |what: &str| broken.push(format!("{} starts while {what} pauses", one.start.id));
        for limit in rules.limits.values() {
            let Some((_, set)) = limit.during(one.sent, one.from) else {
                continue;
            };
            if set.covers(queue, kind) && set.is_paused_for(set.by.key(one.start.who)) {
                say(set.name);
            }
        }
        let pause = rules.pause.during(one.sent, one.from);
        if queue == QUEUE && pause.is_some_and(|(_, is_paused)| *is_paused) {
            say(QUEUE);
        }
    }
}

/// No session starts while another job has the turn.
fn turns(attempts: &[Attempt], rules: &Rules, broken: &mut Vec<String>) {
    for one in attempts.iter().filter(|one| one.start.queue == QUEUE) {
        let Some((n, order)) = strict(&rules.order, one.start.fetch) else {
            continue;
        };
        let key = order.by.key(one.start.who);
        for other in attempts.iter().filter(|other| other.start.id != one.start.id) {
            if other.start.queue != QUEUE || order.by.key(other.start.who) != key {
                continue;
            }
            // When an order is set, jobs that run get turns, and others may not.
            let is_same = strict(&rules.order, other.start.fetch).is_some_and(|(at, _)| at == n);
            let has = if is_same { other.turn } else { other.runs };
            let is_before = other.from <= one.sent || one.turn.has(one.from);
            if is_before && has.has(one.from) {
                broken
                    .push(format!("{} starts while {} has the turn", one.start.id, other.start.id));
            }
        }
    }
}

/// No session starts while a job waits that was available before.
fn sequence(journal: &Journal, attempts: &[Attempt], rules: &Rules, broken: &mut Vec<String>) {
    let mut first: HashMap<i64, &Attempt> = HashMap::new();
    for one in attempts {
        first.entry(one.start.id).or_insert(one);
    }
    for one in first.values().filter(|one| one.start.queue == QUEUE) {
        let is_touched = |id: &i64| {
            let all = journal.touched.get(id).into_iter().flatten();
            all.into_iter().any(|span| span.sent <= one.from)
        };
        let Some(own) = journal.inserted.get(&one.start.id) else {
            continue;
        };
        let Some((_, order)) = strict(&rules.order, one.start.fetch) else {
            continue;
        };
        // What came due after its insertion has its place from then on, until the order changes.
        let is_same =
            own.available.is_some() || rules.order.during(own.not_before, one.from).is_some();
        if !is_same || is_touched(&one.start.id) {
            continue;
        }
        let key = order.by.key(one.start.who);
        for (id, other) in journal.inserted.iter().filter(|(_, other)| other.queue == QUEUE) {
            let Some(Span { sent, done: Some(done) }) = other.available else {
                continue;
            };
            let is_batch = own.available.is_some_and(|own| own.sent == sent);
            let is_before = done < own.not_before || is_batch && other.ord < own.ord;
            let waits = first.get(id).is_none_or(|it| it.sent > one.from);
            if is_before && waits && order.by.key(other.who) == key && !is_touched(id) {
                broken.push(format!("{} starts before {id}", one.start.id));
            }
        }
    }
}
