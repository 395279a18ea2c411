//! Limits, orders and pauses change while sessions work.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::rules::{By, Key, Limit, Order, QUEUE, define, key_sql, order_sql};
use super::{Scene, Span, sessions};
use crate::{Client, run, seconds};

/// Whom overrides and pauses of keys are for.
const FIRST: i64 = 0;

/// What is set, and how.
enum Change {
    Limit(Limit),
    Order(Order),
    /// Of [`QUEUE`].
    Pause(bool),
}

pub async fn change(scene: Arc<Scene>, mut rng: StdRng) {
    while !scene.is_over() {
        seconds(rng.random_range(0.05..0.3)).await;
        let (change, call) = any(&scene, &mut rng);
        let span = Span::begin();
        // Until it is known to have happened.
        loop {
            let database = scene.database.read().await;
            let db = sessions::connected(&scene.cluster, &database).await;
            if db.batch_execute(&call).await.is_ok() {
                break;
            }
            seconds(0.01).await;
        }
        note(&scene, span, change);
    }
}

fn note(scene: &Scene, span: Span, change: Change) {
    let mut rules = scene.rules.lock().unwrap();
    match change {
        Change::Limit(limit) => {
            rules.limits.get_mut(limit.name).expect("it was set").set(span, limit);
        }
        Change::Order(order) => rules.order.set(span, Some(order)),
        Change::Pause(is_paused) => rules.pause.set(span, is_paused),
    }
}

fn any(scene: &Scene, rng: &mut StdRng) -> (Change, String) {
    let rules = scene.rules.lock().unwrap();
    if rules.pause.latest() == Some(&true) {
        return (Change::Pause(false), format!("select jobs.resume_queue('{QUEUE}')"));
    }
    if rng.random_bool(0.1) {
        return (Change::Pause(true), format!("select jobs.pause_queue('{QUEUE}')"));
    }
    let order = rules.order.latest().copied().flatten();
    if let Some(order) = order.filter(|_| rng.random_bool(0.6)) {
        let order = Order {
            by: *[By::T, By::T, By::U, By::Both].choose(rng).expect("one"),
            blocks: order.is_strict && rng.random_bool(0.5),
            weight: rng.random_range(1..4),
            ..order
        };
        return (Change::Order(order), order_sql(Some(order)));
    }
    let limits: Vec<_> = rules.limits.values().filter_map(|limit| limit.latest()).collect();
    let limit = (*limits.choose(rng).expect("a limit")).clone();
    let (limit, call) = other(limit, rng);
    (Change::Limit(limit), call)
}

/// Another setting of a limit.
fn other(limit: Limit, rng: &mut StdRng) -> (Limit, String) {
    let name = limit.name;
    if limit.is_paused {
        let call = format!("select jobs.resume_limit('{name}')");
        return (Limit { is_paused: false, ..limit }, call);
    }
    let key: Key = limit.by.key(super::Who { t: FIRST, u: FIRST });
    if limit.paused.contains(&key) {
        let mut limit = limit;
        limit.paused.remove(&key);
        let call = format!("select jobs.resume_limit('{name}', {})", key_sql(key));
        return (limit, call);
    }
    let mut limit = limit;
    let has_keys = limit.by != By::Nothing;
    match rng.random_range(0..10) {
        0..2 => {
            limit.is_paused = true;
            (limit, format!("select jobs.pause_limit('{name}')"))
        }
        2..4 if has_keys => {
            limit.paused.insert(key);
            (limit, format!("select jobs.pause_limit('{name}', {})", key_sql(key)))
        }
        4..6 if has_keys => {
            let more = rng.random_range(1..5);
            limit.overrides.insert(key, more);
            let call = format!(
                "select jobs.override_limit('{name}', {}, concurrency => {more})",
                key_sql(key)
            );
            (limit, call)
        }
        6 if has_keys => {
            limit.overrides.remove(&key);
            (limit, format!("select jobs.override_limit('{name}', {})", key_sql(key)))
        }
        _ => {
            let by = *[By::T, By::U, By::Both].choose(rng).expect("one");
            if has_keys && by != limit.by {
                limit.by = by;
                limit.overrides.clear();
                limit.paused.clear();
            }
            limit.concurrency = limit.concurrency.map(|_| match has_keys {
                true => rng.random_range(1..4),
                false => rng.random_range(4..9),
            });
            limit.rate = limit.rate.map(|_| rng.random_range(5..15));
            let call = define(&limit);
            (limit, call)
        }
    }
}

/// Has everything go on.
pub async fn resume_all(scene: &Scene, db: &Client) {
    let limits: Vec<Limit> = {
        let rules = scene.rules.lock().unwrap();
        rules.limits.values().filter_map(|limit| limit.latest().cloned()).collect()
    };
    for limit in limits {
        let span = Span::begin();
        run(db, &format!("select jobs.resume_limit('{}')", limit.name)).await;
        for key in &limit.paused {
            let resume = format!("select jobs.resume_limit('{}', {})", limit.name, key_sql(*key));
            run(db, &resume).await;
        }
        let limit = Limit { is_paused: false, paused: Default::default(), ..limit };
        note(scene, span, Change::Limit(limit));
    }
    let span = Span::begin();
    run(db, &format!("select jobs.resume_queue('{QUEUE}')")).await;
    note(scene, span, Change::Pause(false));
    let span = Span::begin();
    let keys = "select jobs.unblock(queue, key) from jobs.order_keys where blocked_by is not null";
    run(db, keys).await;
    scene.journal(|journal| {
        let blocked: Vec<_> = journal.starts.iter().map(|start| start.who).collect();
        for by in [By::T, By::U, By::Both] {
            let keys = blocked.iter().map(|who| (by.key(*who), span.ended(db)));
            journal.unblocked.extend(keys);
        }
    });
}
